"""Region features: RoI align."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np

from weft.errors import AxesError
from weft.ir import dtypes
from weft.ir.axes import make_axes
from weft.ir.dtypes import accumulator_dtype
from weft.ir.storage import as_op, constant
from weft.ir.tensor import TensorLike, TensorOp
from weft.nn.spatial.geometry import Numbers, PerAxis, Use, is_count
from weft.ops.arguments import checked_number
from weft.ops.indexing.gathering import as_indices, take
from weft.ops.pointwise.comparison import clip, less_equal, logical_and, maximum, minimum, where
from weft.ops.pointwise.elementwise import FloatOp, align, cast
from weft.ops.pointwise.rounding import floor
from weft.ops.reductions.reduction import mean
from weft.ops.shape.creation import arange
from weft.ops.shape.movement import cast_axes, transpose

__all__ = ["roi_align"]


class _Neighbor(NamedTuple):
    """One of the two neighboring pixels of each sample along an axis, and its weight."""

    pixel: TensorOp
    weight: TensorOp


def roi_align(
    x: TensorLike,
    boxes: TensorLike,
    batch_indices: TensorLike,
    output_size: PerAxis,
    spatial_scale: float = 1.0,
    sampling_ratio: int = 2,
    aligned: bool = False,
) -> TensorOp:
    """Return features of boxes in images, averaged over a grid of bins (He et al., 2017).

    Each bin is the mean of evenly spaced samples. A sample is bilinearly interpolated, and 0 more
    than one pixel outside the image.

    Parameters
    ----------
    x
        Images (N, C, H, W), of known height and width; integers count as float32.
    boxes
        Boxes (R, 4), with the rows x1, y1, x2, y2.
    batch_indices
        The number of the image of each box, (R,), integers.
    output_size
        The number of bins along H and W: an integer for both, or a list of two.
    spatial_scale
        What converts boxes to pixels of x: a number of at least 0.
    sampling_ratio
        The number of samples of a bin along each axis.
    aligned
        Whether the center of the first pixel is at 0.5. Otherwise it is at 0, and boxes are at
        least one pixel long.

    Returns
    -------
    TensorOp
        (R, C, bins along H, bins along W), in the dtype of x.

    Raises
    ------
    AxesError
        If x, the boxes or their numbers have other axes, or H and W are unknown.
    DTypeError
        If `batch_indices` are not integers.
    ArgumentError
        If an option has another form.
    IndexOutOfRange
        In a call, for a number of no image.

    Examples
    --------
    >>> x, boxes = np.arange(16.0).reshape(1, 1, 4, 4), np.array([[0.0, 0.0, 2.0, 2.0]])
    >>> weft.jit(lambda x, boxes: weft.roi_align(x, boxes, np.array([0]), 2))(x, boxes)
    array([[[[2.5, 3.5],
             [6.5, 7.5]]]])
    """
    (x,) = align(FloatOp, x)
    boxes, images = as_op(boxes), as_indices(batch_indices)
    use = Use("roi_align", (x, boxes, images))
    height, width = use.spatial_lengths((2,))
    _check_boxes(use, (height, width))
    bins = use.numbers("output_size", output_size, 2)
    if not is_count(sampling_ratio, 1):
        raise use.refusal(f"sampling_ratio must be an integer >= 1, not {sampling_ratio!r}")
    scale = checked_number("roi_align", "spatial_scale", spatial_scale)
    corners = cast(boxes, accumulator_dtype(x.dtype)) * scale - (0.5 if aligned else 0.0)
    least = None if aligned else 1.0
    rows = _neighbors(corners[:, 1], corners[:, 3], bins[0], sampling_ratio, height, least)
    columns = _neighbors(corners[:, 0], corners[:, 2], bins[1], sampling_ratio, width, least)
    first = take(arange(x.axes.lengths[0], dtype=dtypes.int64) * (height * width), images, 0)
    samples = _interpolated(x, first, rows, columns)
    count, channels = boxes.axes.lengths[0], x.axes.lengths[1]
    grid = make_axes((count, bins[0], sampling_ratio, bins[1], sampling_ratio, channels))
    return transpose(mean(cast_axes(samples, grid), (2, 4)), (0, 3, 1, 2))


def _check_boxes(use: Use, lengths: Numbers) -> None:
    _, boxes, images = use.operands
    if not all(is_count(length, 1) for length in lengths):
        raise use.refusal(f"H and W must be known and not 0, not {lengths}", AxesError)
    if boxes.axes.is_named or boxes.rank != 2 or boxes.axes.lengths[1] != 4:
        raise use.refusal(f"boxes must have the axes (R, 4), not {boxes.axes}", AxesError)
    if images.axes != boxes.axes[:1]:
        problem = f"batch_indices must have the axes {boxes.axes[:1]}, not {images.axes}"
        raise use.refusal(problem, AxesError)


def _neighbors(
    begin: TensorOp, end: TensorOp, bins: int, per_bin: int, n: int, least: float | None
) -> tuple[_Neighbor, _Neighbor]:
    """Return the neighboring pixels of the samples of each box along an axis of n pixels.

    Both results have the axes (R, bins * per_bin).
    """
    extent = end - begin
    if least is not None:
        extent = maximum(extent, least)
    steps = (np.arange(bins * per_bin) + 0.5) / (per_bin * bins)
    place = begin[:, None] + extent[:, None] * constant(steps, dtype=begin.dtype)
    is_near = logical_and(less_equal(-1, place), less_equal(place, n))
    # Samples outside the image, and NaN, take the first pixel with weight 0.
    place = where(is_near, clip(place, 0, n - 1), 0)
    low = floor(place)
    share, one = place - low, cast(is_near, place.dtype)
    high = minimum(low + 1, n - 1)
    return (
        _Neighbor(cast(low, dtypes.int64), (1 - share) * one),
        _Neighbor(cast(high, dtypes.int64), share * one),
    )


def _interpolated(
    x: TensorOp,
    first: TensorOp,
    rows: tuple[_Neighbor, _Neighbor],
    columns: tuple[_Neighbor, _Neighbor],
) -> TensorOp:
    """Return the samples, (R, rows, columns, C); `first` is the first pixel of each box's image."""
    n, channels, height, width = x.axes.lengths
    pixels = cast_axes(transpose(x, (0, 2, 3, 1)), make_axes((n * height * width, channels)))
    total: Any = None
    for row, column in itertools.product(rows, columns):
        index = first[:, None, None] + row.pixel[:, :, None] * width + column.pixel[:, None, :]
        weight = cast(row.weight[:, :, None, None] * column.weight[:, None, :, None], x.dtype)
        share = take(pixels, index, 0) * weight
        total = share if total is None else total + share
    sampled: TensorOp = total
    return sampled
