"""Images at other sizes and places."""

from __future__ import annotations

from typing import Any

import weft
from weft_torch.rules import Node, Tensor, lowers


@lowers(
    "upsample_bilinear2d upsample_linear1d upsample_trilinear3d upsample_bicubic2d "
    "_upsample_bilinear2d_aa _upsample_bicubic2d_aa"
)
def upsample(
    node: Node,
    x: Tensor,
    align_corners: bool,
    scales: Any = None,
    scales_d: Any = None,
    scales_h: Any = None,
    scales_w: Any = None,
    scale_factors: Any = None,
) -> Tensor:
    """Interpolate."""
    lengths = node.shape()[2:]
    given = scale_factors or [each for each in (scales, scales_d, scales_h, scales_w) if each]
    exact = [after / before for after, before in zip(lengths, x.axes.lengths[2:], strict=True)]
    is_exact = all(abs(one - other) < 1e-9 for one, other in zip(given, exact, strict=False))
    if not is_exact and (node.name.endswith("_aa") or not align_corners):
        raise node.refuse("a scale that is not the quotient of the lengths")
    mode = "cubic" if "cubic" in node.name else "linear"
    coordinates = "align_corners" if align_corners else "half_pixel"
    return weft.resize(
        x,
        list(lengths),
        mode=mode,
        coordinates=coordinates,
        antialias=node.name.endswith("_aa"),
        cubic_coefficient=-0.5 if node.name.endswith("_aa") else -0.75,
    )


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
