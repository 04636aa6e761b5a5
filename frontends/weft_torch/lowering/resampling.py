"""Images at other sizes and places."""

from __future__ import annotations

from typing import Any

import weft
from weft_torch.rules import Node, Tensor, lowers


def _resized(node: Node, x: Tensor, lengths: Any, align_corners: bool) -> Tensor:
    antialias = "_aa" in node.name
    if antialias and align_corners:
        raise node.refuse("antialias with align_corners")
    names = ("scales",) if len(lengths) == 1 else ("scales_d", "scales_h", "scales_w")
    given = node.arguments.get("scale_factors") or [
        node.arguments[name] for name in names[-len(lengths) :]
    ]
    exact = [after / before for after, before in zip(lengths, x.axes.lengths[2:], strict=True)]
    scales = [one or other for one, other in zip(given, exact, strict=True)]
    is_exact = all(abs(one - other) < 1e-9 for one, other in zip(scales, exact, strict=True))
    by_length = is_exact or align_corners
    return weft.resize(
        x,
        lengths=list(lengths) if by_length else None,
        scales=None if by_length else scales,
        mode="cubic" if "cubic" in node.name else "linear",
        coordinates="align_corners" if align_corners else "half_pixel",
        antialias=antialias,
        cubic_coefficient=-0.5 if antialias else -0.75,
    )


@lowers(
    "upsample_bilinear2d upsample_linear1d upsample_trilinear3d upsample_bicubic2d "
    "_upsample_bilinear2d_aa _upsample_bicubic2d_aa"
)
def upsample(node: Node, x: Tensor, align_corners: bool) -> Tensor:
    """Interpolate."""
    return _resized(node, x, node.shape()[2:], align_corners)


@lowers("_upsample_bilinear2d_aa_backward _upsample_bicubic2d_aa_backward")
def upsample_backward(node: Node, grad_output: Tensor, align_corners: bool) -> Tensor:
    """Return the gradient of an image, of which interpolation is a linear function."""
    x = weft.zeros(node.shape(), node.dtype())
    y = _resized(node, x, grad_output.axes.lengths[2:], align_corners)
    return weft.deriv(y, x, grad_output)


@lowers("upsample_nearest1d upsample_nearest2d upsample_nearest3d")
def nearest(node: Node, x: Tensor) -> Tensor:
    """Take the pixel before."""
    lengths = list(node.shape()[2:])
    return weft.resize(x, lengths, mode="nearest", coordinates="asymmetric", rounding="floor")


def _sampled(
    x: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    mode = ("bilinear", "nearest", "bicubic")[interpolation_mode]
    padding = ("zeros", "border", "reflection")[padding_mode]
    return weft.grid_sample(x, grid, mode, padding, align_corners)


lowers("grid_sampler_2d grid_sampler_3d")(_sampled)


@lowers("grid_sampler_2d_backward grid_sampler_3d_backward")
def grid_sampler_backward(
    grad_output: Tensor,
    x: Tensor,
    grid: Tensor,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
    output_mask: Any,
) -> Any:
    """Return the gradients of an image and of the places in it."""
    y = _sampled(x, grid, interpolation_mode, padding_mode, align_corners)
    return [
        weft.deriv(y, each, grad_output) if is_wanted else None
        for each, is_wanted in zip((x, grid), output_mask, strict=True)
    ]
