"""Features of regions of images."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from weft.ir.dtypes import Array
from weft_onnx.nodes import Node, lowers

ALIGNED = {"half_pixel": True, "output_half_pixel": False}
"""Whether the center of the first pixel is at a half, by coordinate_transformation_mode."""


@lowers("RoiAlign")
def roi_align(node: Node) -> Any:
    """Pool features over bins of boxes, by interpolation.

    The host computes maxima, and means of as many samples as a box is long.
    """
    # Before opset 16 there is no attribute, and no shift.
    aligned = node.choice("coordinate_transformation_mode", ALIGNED, "output_half_pixel")
    is_max = node.choice("mode", {"avg": False, "max": True})
    bins = node.attr("output_height"), node.attr("output_width")
    ratio = node.attr("sampling_ratio")
    if ratio < 0:
        raise node.error(f"sampling_ratio is {ratio}: it must be 0 or a number of samples")
    scale = node.attr("spatial_scale")
    if ratio and not is_max:
        return weft.roi_align(
            node[0], node[1], node[2], bins, spatial_scale=scale, sampling_ratio=ratio,
            aligned=aligned,
        )  # fmt: skip

    def pooled(x: Array, boxes: Array, images: Array) -> list[Array]:
        height, width = x.shape[2:]
        found = np.zeros((len(boxes), x.shape[1], *bins), np.float64)
        corners = boxes.astype(np.float64) * scale - (0.5 if aligned else 0.0)
        for place, (left, top, right, bottom) in enumerate(corners):
            rows = _samples(top, bottom, bins[0], ratio, height, aligned)
            columns = _samples(left, right, bins[1], ratio, width, aligned)
            found[place] = _pooled(x[images[place]], rows, columns, is_max)
        return [found.astype(x.dtype)]

    return node.host(pooled, node.raw(0), node.raw(1), node.raw(2))[0]


def _samples(
    begin: float, end: float, bins: int, ratio: int, n: int, aligned: bool
) -> tuple[Array, Array]:
    """Return the neighboring pixels [bins, samples, 2] of samples, and the weights of these."""
    length = end - begin if aligned else max(end - begin, 1.0)
    count = ratio or max(int(np.ceil(length / bins)), 0)
    steps = np.arange(bins)[:, None] + (np.arange(count) + 0.5) / max(count, 1)
    places = begin + steps * (length / bins)
    is_inside = (places >= -1) & (places <= n)
    inside = np.clip(places, 0, n - 1)
    low = np.floor(inside)
    weights = np.stack([1 - (inside - low), inside - low], -1) * is_inside[..., None]
    pixels = np.stack([low, np.minimum(low + 1, n - 1)], -1).astype(np.int64)
    return pixels, weights


def _pooled(x: Array, rows: Any, columns: Any, is_max: bool) -> Array:
    """Return the means of samples in bins, or the maxima of their weighted neighbors."""
    (row_pixels, row_weights), (column_pixels, column_weights) = rows, columns
    pixels = x[:, row_pixels[:, :, :, None, None, None], column_pixels].astype(np.float64)
    weights = row_weights[:, :, :, None, None, None] * column_weights
    # The axes are channels, then bins, samples and neighbors along rows, and along columns.
    weighted = pixels * weights
    if not weighted.size:
        return np.zeros((x.shape[0], row_pixels.shape[0], column_pixels.shape[0]))
    if is_max:
        return np.asarray(weighted.max((2, 3, 5, 6)))
    count = row_pixels.shape[1] * column_pixels.shape[1]
    return np.asarray(weighted.sum((2, 3, 5, 6)) / max(count, 1))
