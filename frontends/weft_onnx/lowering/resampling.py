"""Resampling of images."""

from __future__ import annotations

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


@lowers("Upsample")
def upsample(node: Node) -> Tensor:
    """Enlarge by scales."""
    if node.version >= 9:
        scales = [float(each) for each in node.array(1).reshape(-1)]
    elif node.version >= 7:
        scales = list(node.required("scales"))
    else:
        scales = [1.0, 1.0, node.required("height_scale"), node.required("width_scale")]
    mode = node.attr("mode", "nearest").removeprefix("bi")
    return _by_scales(node, scales, mode)


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
    x, mode = node[0], node.attr("mode", "nearest")
    if node.version < 11:
        scales = [float(each) for each in node.array(1).reshape(-1)]
        return _by_scales(node, scales, mode)
    coordinates = node.attr("coordinate_transformation_mode", "half_pixel")
    axes = node.attr("axes")
    axes = tuple(range(x.rank)) if axes is None else node.axes(axes)
    lengths = [x.axes.shape[axis] for axis in axes]
    if node.has(3) and node.shape(3)[0]:
        sizes, policy = node.ints(3), node.attr("keep_aspect_ratio_policy", "stretch")
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
    special = node.attr("exclude_outside", 0) or node.attr("antialias", 0)
    if is_plain and not special and coordinates in COORDINATES:
        return weft.resize(
            x, lengths=sizes, mode=mode, coordinates=coordinates, axes=axes,
            rounding=ROUNDING[node.attr("nearest_mode", "round_prefer_floor")],
            cubic_coefficient=node.attr("cubic_coeff_a", -0.75),
        )  # fmt: skip
    return _by_axes(node, x, axes, sizes, scales)


def _by_axes(
    node: Node, x: Tensor, axes: tuple[int, ...], sizes: list[int], scales: list[float]
) -> Tensor:
    """Resize one axis after the other: by indices, or by a product with a matrix of weights."""
    kind, is_crop = x.dtype, False
    roi = node.array(1).reshape(-1) if node.has(1) else np.zeros(0)
    coordinates = node.attr("coordinate_transformation_mode", "half_pixel")
    outside: Tensor | None = None
    for place, (axis, size, scale) in enumerate(zip(axes, sizes, scales, strict=True)):
        n = x.axes.shape[axis]
        is_crop = coordinates == "tf_crop_and_resize"
        span = (float(roi[place]), float(roi[place + len(axes)])) if is_crop else (0.0, 1.0)
        node.require_room(size, n)
        at = _coordinates(coordinates, size, n, scale, span)
        if size == n and np.array_equal(at, np.arange(n)):
            continue
        if node.attr("mode", "nearest") == "nearest":
            nearest = _nearest(at, node.attr("nearest_mode", "round_prefer_floor"))
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
        x = weft.where(outside, node.attr("extrapolation_value", 0.0), x)
    return cast(x, kind)


def _coordinates(mode: str, size: int, n: int, scale: float, span: tuple[float, float]) -> Any:
    """Return where each result lies in the operand, by the formulas of the specification."""
    x, length = np.arange(size, dtype=np.float64), scale * n
    if mode == "align_corners":
        return x * (n - 1) / (length - 1) if length != 1 else np.zeros(size)
    if mode == "asymmetric":
        return x / scale
    if mode == "tf_crop_and_resize":
        start, end = span
        if length == 1:
            return np.full(size, 0.5 * (start + end) * (n - 1))
        return start * (n - 1) + x * (end - start) * (n - 1) / (length - 1)
    if mode == "pytorch_half_pixel" and length == 1:
        return np.full(size, -0.5)
    half = (x + 0.5) / scale - 0.5
    if mode == "half_pixel_symmetric":
        return n / 2 * (1 - size / length) + half
    return half


def _nearest(x: Any, mode: str) -> Any:
    if mode == "round_prefer_floor":
        return np.ceil(x - 0.5)
    if mode == "round_prefer_ceil":
        return np.floor(x + 0.5)
    return np.floor(x) if mode == "floor" else np.ceil(x)


def _weights(node: Node, at: Any, n: int, scale: float) -> Any:
    """Return the matrix [n, size] of the weights of elements in results."""
    is_cubic = node.attr("mode", "nearest") == "cubic"
    shrinks = node.attr("antialias", 0) and scale < 1
    factor = scale if shrinks else 1.0
    reach = int(np.ceil((2 if is_cubic else 1) / factor))
    first = np.floor(at)
    weights = np.zeros((n, len(at)))
    taps = np.arange(-reach, reach + 2)
    for column, (x, low) in enumerate(zip(at, first, strict=True)):
        places = (low + taps).astype(np.int64)
        distance = np.abs(places - x) * factor
        found = _cubic(distance, node.attr("cubic_coeff_a", -0.75)) if is_cubic else (
            np.clip(1 - distance, 0, 1)
        )  # fmt: skip
        if node.attr("exclude_outside", 0):
            found = np.where((places < 0) | (places >= n), 0, found)
        np.add.at(weights[:, column], np.clip(places, 0, n - 1), found / found.sum())
    return weights


def _cubic(x: Any, a: float) -> Any:
    """Return the weights of cubic convolution (Keys, 1981)."""
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


@lowers("GridSample")
def grid_sample(node: Node) -> Tensor:
    """Sample images at the points of a grid."""
    mode = {"linear": "bilinear", "cubic": "bicubic"}.get(
        node.attr("mode", "linear"), node.attr("mode", "linear")
    )
    return weft.grid_sample(
        node[0], node[1], mode, node.attr("padding_mode", "zeros"),
        bool(node.attr("align_corners", 0)),
    )  # fmt: skip


@lowers("AffineGrid")
def affine_grid(node: Node) -> Tensor:
    """Return the grid of affine transforms."""
    lengths = tuple(node.ints(1)[2:])
    return weft.affine_grid(node[0], lengths, bool(node.attr("align_corners", 0)))
