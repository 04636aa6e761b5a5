"""Resampling of images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import weft
from weft_onnx.nodes import Node, cast, lowers
from weft_onnx.values import Tensor

COORDINATES = frozenset({"half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"})
"""The transformations of coordinates that `weft.resize` has."""

ROUNDING = {
    "round_prefer_floor": "half_down", "round_prefer_ceil": "half_up", "floor": "floor",
    "ceil": "ceil",
}  # fmt: skip
"""What weft calls the ways to find the nearest element."""


UPSAMPLE_MODES = {"nearest": "nearest", "linear": "linear", "bilinear": "linear"}
"""What weft calls the modes of Upsample, of which opset 6 has another name."""


@lowers("Upsample")
def upsample(node: Node) -> Tensor:
    """Enlarge by scales."""
    if node.version >= 9:
        scales = [float(each) for each in node.array(1).reshape(-1)]
    elif node.version >= 7:
        scales = list(node.required("scales"))
    else:
        scales = [1.0, 1.0, node.required("height_scale"), node.required("width_scale")]
    return _by_scales(node, scales, node.choice("mode", UPSAMPLE_MODES))


def _by_scales(node: Node, scales: list[float], mode: str) -> Tensor:
    """Return the operand resized as before opset 11."""
    x = node[0]
    node.require_room(*(int(n * scale) for n, scale in zip(x.axes.shape, scales, strict=True)))
    return weft.resize(
        x, scales=scales, mode=mode, coordinates="asymmetric", axes=tuple(range(x.rank)),
        rounding="floor",
    )  # fmt: skip


@lowers("Resize")
def resize(node: Node) -> Any:
    """Resize by scales or to sizes."""
    x, mode = node[0], node.choice("mode")
    if node.version < 11:
        scales = [float(each) for each in node.array(1).reshape(-1)]
        return _by_scales(node, scales, mode)
    coordinates = node.choice("coordinate_transformation_mode")
    if mode == "nearest" and node.flag("exclude_outside"):
        raise node.error(
            "exclude_outside 1 has no meaning with mode 'nearest', which has no weights: set it to "
            "0, or take mode 'linear' or 'cubic'"
        )
    axes = node.attr("axes")
    axes = tuple(range(x.rank)) if axes is None else node.axes(axes)
    lengths = [x.axes.shape[axis] for axis in axes]
    if node.has(3) and node.shape(3)[0]:
        sizes, policy = node.ints(3), node.choice("keep_aspect_ratio_policy", default="stretch")
        scales = [want / have for want, have in zip(sizes, lengths, strict=True)]
        if policy != "stretch":
            ratio = min(scales) if policy == "not_larger" else max(scales)
            scales = [ratio] * len(axes)
            sizes = [int(ratio * n + 0.5) for n in lengths]
        is_plain = policy == "stretch"
    else:
        scales = [float(each) for each in node.array(2).reshape(-1)]
        sizes = [int(np.floor(n * scale)) for n, scale in zip(lengths, scales, strict=True)]
        pairs = zip(sizes, lengths, scales, strict=True)
        is_plain = all(abs(size - n * scale) < 1e-6 for size, n, scale in pairs)
    node.require_room(*sizes)
    special = node.flag("exclude_outside") or node.flag("antialias")
    if is_plain and not special and coordinates in COORDINATES:
        return weft.resize(
            x, lengths=sizes, mode=mode, coordinates=coordinates, axes=axes,
            rounding=node.choice("nearest_mode", ROUNDING),
            cubic_coefficient=node.attr("cubic_coeff_a"),
        )  # fmt: skip
    return _by_axes(node, x, axes, sizes, scales)


def _by_axes(
    node: Node, x: Tensor, axes: tuple[int, ...], sizes: list[int], scales: list[float]
) -> Tensor:
    """Resize one axis after the other: by indices, or by a product with a matrix of weights."""
    kind, is_crop = x.dtype, False
    roi = node.array(1).reshape(-1) if node.has(1) else np.zeros(0)
    coordinates = node.choice("coordinate_transformation_mode")
    if coordinates == "tf_crop_and_resize" and roi.size != 2 * len(axes):
        raise node.error(
            f"tf_crop_and_resize needs a start and an end for each of {len(axes)} axes in roi, "
            f"which has {roi.size} elements"
        )
    outside: Tensor | None = None
    for place, (axis, size, scale) in enumerate(zip(axes, sizes, scales, strict=True)):
        n = x.axes.shape[axis]
        is_crop = coordinates == "tf_crop_and_resize"
        span = (float(roi[place]), float(roi[place + len(axes)])) if is_crop else (0.0, 1.0)
        node.require_room(size, n)
        at = _coordinates(coordinates, size, n, scale, span)
        if size == n and np.array_equal(at, np.arange(n)):
            continue
        if node.choice("mode") == "nearest":
            nearest = node.choice("nearest_mode", NEAREST)(at)
            found = np.clip(nearest, 0, n - 1).astype(np.int64)
            x = weft.take(x, weft.constant(found), axis)
        else:
            weights = weft.constant(_weights(node, at, n, scale).astype(np.float32))
            wide = weft.moveaxis(cast(x, "float32"), axis, -1)
            x = weft.moveaxis(weft.matmul(wide, weights), -1, axis)
        if is_crop:
            shape = [1] * x.rank
            shape[axis] = size
            mask = weft.constant(((at < 0) | (at > n - 1)).reshape(shape))
            outside = mask if outside is None else weft.logical_or(outside, mask)
    if is_crop and outside is not None:
        x = weft.where(outside, node.attr("extrapolation_value"), x)
    return cast(x, kind)


def _coordinates(mode: str, size: int, n: int, scale: float, span: tuple[float, float]) -> Any:
    """Return where each result lies in the operand, by the formulas of the specification."""
    x, length = np.arange(size, dtype=np.float64), scale * n
    if mode == "align_corners":
        return x * (n - 1) / (length - 1) if length != 1 else np.zeros(size)
    if mode == "asymmetric":
        return x / scale
    if mode == "tf_half_pixel_for_nn":
        return (x + 0.5) / scale
    if mode == "tf_crop_and_resize":
        start, end = span
        if size == 1:
            return np.full(size, 0.5 * (start + end) * (n - 1))
        return start * (n - 1) + x * (end - start) * (n - 1) / (length - 1)
    if mode == "pytorch_half_pixel" and size == 1:
        return np.zeros(size)
    half = (x + 0.5) / scale - 0.5
    if mode == "half_pixel_symmetric":
        return n / 2 * (1 - size / length) + half
    return half


NEAREST: dict[str, Callable[[Any], Any]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}
"""The element that is nearest to a coordinate, by nearest_mode."""


def _weights(node: Node, at: Any, n: int, scale: float) -> Any:
    """Return the matrix [n, size] of the weights of elements in results."""
    is_cubic = node.choice("mode") == "cubic"
    shrinks = node.flag("antialias") and scale < 1
    factor = scale if shrinks else 1.0
    reach = int(np.ceil((2 if is_cubic else 1) / factor))
    places = np.floor(at)[:, None].astype(np.int64) + np.arange(-reach, reach + 2)
    distance = np.abs(places - at[:, None]) * factor
    if is_cubic:
        found = _cubic(distance, node.attr("cubic_coeff_a"))
    else:
        found = np.clip(1 - distance, 0, 1)
    if node.flag("exclude_outside"):
        found = np.where((places < 0) | (places >= n), 0, found)
    found = found / found.sum(axis=1, keepdims=True)
    weights = np.zeros((n, len(at)))
    np.add.at(weights, (np.clip(places, 0, n - 1), np.arange(len(at))[:, None]), found)
    return weights


def _cubic(x: Any, a: float) -> Any:
    """Return the weights of cubic convolution (Keys, 1981)."""
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


GRID_MODES = {
    "nearest": "nearest", "linear": "bilinear", "bilinear": "bilinear", "cubic": "bicubic",
    "bicubic": "bicubic",
}  # fmt: skip
"""What weft calls the modes of GridSample, of which opset 16 has other names."""


@lowers("GridSample")
def grid_sample(node: Node) -> Tensor:
    """Sample images at the points of a grid."""
    mode = node.choice("mode", GRID_MODES)
    padding, align_corners = node.choice("padding_mode"), node.flag("align_corners")
    grid = node[1]
    if mode == "bicubic" and padding == "border":
        # Points outside are moved to the center of the edge, as in the reference evaluator.
        ends = [1.0 if align_corners else (n - 1) / n for n in reversed(node.shape(0)[2:])]
        edge = weft.constant(np.array(ends), dtype=grid.dtype)
        moved = weft.clip(grid, -edge, edge)
        grid = weft.where(weft.less_equal(weft.absolute(grid), 1), grid, moved)
    return weft.grid_sample(node[0], grid, mode, padding, align_corners)


@lowers("AffineGrid")
def affine_grid(node: Node) -> Tensor:
    """Return the grid of affine transforms."""
    lengths = tuple(node.ints(1)[2:])
    return weft.affine_grid(node[0], lengths, node.flag("align_corners"))
