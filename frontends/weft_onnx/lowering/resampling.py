"""Resampling of images."""

from __future__ import annotations

from typing import Any

import weft
from weft.ir.op import Op
from weft_onnx.nodes import Node, lowers

COORDINATES = {
    "half_pixel": "half_pixel", "asymmetric": "asymmetric", "align_corners": "align_corners",
    "half_pixel_symmetric": "half_pixel_symmetric", "pytorch_half_pixel": "pytorch_half_pixel",
}  # fmt: skip
ROUNDING = {
    "round_prefer_floor": "half_down", "round_prefer_ceil": "half_up", "floor": "floor",
    "ceil": "ceil",
}  # fmt: skip


@lowers("Upsample")
def upsample(node: Node) -> Op:
    """Enlarge by scales."""
    if node.version >= 9:
        scales = [float(each) for each in node.array(1).reshape(-1)]
    elif node.version >= 7:
        scales = list(node.required("scales"))
    else:
        scales = [1.0, 1.0, node.required("height_scale"), node.required("width_scale")]
    mode = node.attr("mode", "nearest")
    return _resized(node, node[0], None, scales, {"linear": "linear", "bilinear": "linear"}.get(
        mode, mode), "asymmetric", "floor")  # fmt: skip


def _resized(node: Node, x: Op, lengths: Any, scales: Any, mode: str, coordinates: str,
             rounding: str, **more: Any) -> Op:  # fmt: skip
    axes = more.pop("axes", tuple(range(x.rank)))
    return weft.resize(
        x, lengths=lengths, scales=scales, mode=mode, coordinates=coordinates, axes=axes,
        rounding=rounding, **more,
    )  # fmt: skip


@lowers("Resize")
def resize(node: Node) -> Any:
    """Resize by scales or to sizes."""
    x, mode = node[0], node.attr("mode", "nearest")
    if node.version < 11:
        scales = [float(each) for each in node.array(1).reshape(-1)]
        return _resized(node, x, None, scales, mode, "asymmetric", "floor")
    coordinates = node.attr("coordinate_transformation_mode", "half_pixel")
    rounding = node.attr("nearest_mode", "round_prefer_floor")
    axes = node.attr("axes")
    axes = tuple(range(x.rank)) if axes is None else node.axes(axes)
    sizes = node.ints(3) if node.has(3) and node.shape(3)[0] else None
    scales = None
    if sizes is None:
        scales = [float(each) for each in node.array(2).reshape(-1)]
    lengths = [x.axes.shape[axis] for axis in axes]
    policy = node.attr("keep_aspect_ratio_policy", "stretch")
    if sizes is not None and policy != "stretch":
        ratios = [want / have for want, have in zip(sizes, lengths, strict=True)]
        ratio = min(ratios) if policy == "not_larger" else max(ratios)
        scales = [ratio] * len(axes)
        sizes = [int(ratio * n + 0.5) for n in lengths]
    unsupported = (
        coordinates == "tf_crop_and_resize"
        or node.attr("exclude_outside", 0)
        or coordinates not in COORDINATES
    )
    if unsupported:
        return _on_host(node, sizes, scales, axes)
    more = {"antialias": True} if node.attr("antialias", 0) else {}
    return _resized(
        node, x, sizes, scales, mode, COORDINATES[coordinates], ROUNDING[rounding], axes=axes,
        cubic_coefficient=node.attr("cubic_coeff_a", -0.75), **more,
    )  # fmt: skip


def _on_host(node: Node, sizes: Any, scales: Any, axes: Any) -> Any:
    raise node.error("weft has no crop_and_resize, and no interpolation that leaves out the border")


@lowers("GridSample")
def grid_sample(node: Node) -> Op:
    """Sample images at the points of a grid."""
    mode = {"bilinear": "bilinear", "linear": "bilinear", "nearest": "nearest", "bicubic": "bicubic",
            "cubic": "bicubic"}[node.attr("mode", "linear")]  # fmt: skip
    return weft.grid_sample(
        node[0], node[1], mode, node.attr("padding_mode", "zeros"),
        bool(node.attr("align_corners", 0)),
    )  # fmt: skip


@lowers("AffineGrid")
def affine_grid(node: Node) -> Op:
    """Return the grid of affine transforms."""
    lengths = tuple(node.ints(1)[2:])
    return weft.affine_grid(node[0], lengths, bool(node.attr("align_corners", 0)))
