"""Reductions over segments: elements with the same number, as in `jax.ops.segment_sum`.

A number outside the segments is ignored, and so are its elements.
"""

from __future__ import annotations

from typing import Any

from weft.errors import AxesError, DTypeError
from weft.ir import dtypes
from weft.ir.axes import Axes, Axis
from weft.ir.dtypes import accumulator_dtype
from weft.ir.lengths import Length
from weft.ir.op import explain
from weft.ir.storage import as_op, constant
from weft.ir.tensor import TensorLike, TensorOp
from weft.ops.arguments import checked_integer
from weft.ops.indexing.gathering import REDUCTIONS, ScatterOp, as_indices
from weft.ops.indexing.slicing import SliceOp
from weft.ops.pointwise.comparison import greater_equal, less, where
from weft.ops.pointwise.elementwise import InexactOp, align, cast, divide
from weft.ops.shape.movement import BroadcastOp, broadcast, size_of, transpose

__all__ = [
    "segment_max",
    "segment_mean",
    "segment_min",
    "segment_prod",
    "segment_sum",
]


def _segmented(
    function: str, reduction: str, data: TensorOp, segment_ids: TensorLike, segments: Any
) -> TensorOp:
    """Return a scatter into neutral elements, one more than segments, for what is ignored."""
    ids = as_indices(segment_ids)
    if not dtypes.is_integer(ids.dtype):
        raise DTypeError(explain(function, f"ids are integers, not {ids.dtype}", (data, ids)))
    count, name = segments, None
    if isinstance(segments, Axis):
        count, name = segments.length, segments.name
    number = count
    if not isinstance(count, Length):
        number = checked_integer(function, "num_segments", count, 0)
    data = _ids_first(function, data, ids)
    rest = data.axes[ids.rank :]
    try:
        into = Axes((Axis(number + 1, name), *rest))
    except AxesError as error:
        problem = f"{error.problem}: num_segments may be an Axis, with a name"
        raise AxesError(explain(function, problem, (data, ids))) from None
    neutral = constant(REDUCTIONS[reduction].neutral(data.dtype), dtype=data.dtype)
    ids = cast(ids, dtypes.int64)
    size = size_of(Axes((Axis(number),)), dtypes.int64)
    is_inside = greater_equal(ids, 0) & less(ids, size)
    result = ScatterOp(
        broadcast(neutral, into),
        where(is_inside, ids, size),
        data,
        position=0,
        reduction=reduction,
    )
    return SliceOp(result, bounds=tuple((0, n, 1) for n in (number, *rest.lengths)))


def _ids_first(function: str, data: TensorOp, ids: TensorOp) -> TensorOp:
    """Return the data with the axes of the ids in front."""
    if ids.axes.is_named and all(axis in data.axes for axis in ids.axes):
        data = transpose(data, Axes((*ids.axes, *(a for a in data.axes if a not in ids.axes))))
    if data.axes[: ids.rank] != ids.axes:
        problem = f"ids {ids.axes} must have the first axes of the data {data.axes}"
        raise AxesError(explain(function, problem, (data, ids)))
    return data


def segment_sum(data: TensorLike, segment_ids: TensorLike, num_segments: int | Axis) -> TensorOp:
    """Return the sum of each segment, of the elements with its number; 0 for an empty one.

    Parameters
    ----------
    data
        The elements.
    segment_ids
        The number of each element's segment, of any integer dtype and in any order, with the first
        axes of the data, mostly one; named axes may stand anywhere. Elements with a number outside
        the segments are ignored.
    num_segments
        How many segments there are; for named axes, their axis.

    Returns
    -------
    TensorOp
        The sums, with the axis of the segments in place of those of the numbers, in the dtype of
        the data; 16-bit floats are added in float32.

    Raises
    ------
    AxesError
        If the numbers have other axes, or the data named ones and the segments none.
    ArgumentError
        If `num_segments` is not an integer, or is negative.
    DTypeError
        If the numbers are not integers, or the elements are bool.

    Examples
    --------
    >>> x, ids = np.array([1.0, 2.0, 4.0, 8.0]), np.array([0, 0, 2, -1])
    >>> weft.jit(lambda x, ids: weft.segment_sum(x, ids, 3))(x, ids)
    array([3., 0., 4.])
    """
    return _segmented("segment_sum", "add", as_op(data), segment_ids, num_segments)


def segment_prod(data: TensorLike, segment_ids: TensorLike, num_segments: int | Axis) -> TensorOp:
    """Return the product of each segment, of the elements with its number; 1 for an empty one.

    Its first derivative is exact at zeros, its second is not.

    Parameters
    ----------
    data
        The elements.
    segment_ids
        The number of each element's segment, as for `segment_sum`.
    num_segments
        How many segments there are; for named axes, their axis.

    Returns
    -------
    TensorOp
        The products, with the axis of the segments in place of those of the numbers, in the dtype
        of the data; 16-bit floats are multiplied in float32.

    Raises
    ------
    AxesError
        If the numbers have other axes, or the data named ones and the segments none.
    ArgumentError
        If `num_segments` is not an integer, or is negative.
    DTypeError
        If the numbers are not integers, or the elements are bool.

    Examples
    --------
    >>> x, ids = np.array([1.0, 2.0, 4.0, 8.0]), np.array([0, 0, 2, 2])
    >>> weft.jit(lambda x, ids: weft.segment_prod(x, ids, 3))(x, ids)
    array([ 2.,  1., 32.])
    """
    return _segmented("segment_prod", "mul", as_op(data), segment_ids, num_segments)


def segment_max(data: TensorLike, segment_ids: TensorLike, num_segments: int | Axis) -> TensorOp:
    """Return the maximum of each segment, of the elements with its number.

    That of an empty one is minus infinity, or the least integer. Ties share the gradient.

    Parameters
    ----------
    data
        The elements.
    segment_ids
        The number of each element's segment, as for `segment_sum`.
    num_segments
        How many segments there are; for named axes, their axis.

    Returns
    -------
    TensorOp
        The maxima, with the axis of the segments in place of those of the numbers, in the dtype of
        the data.

    Raises
    ------
    AxesError
        If the numbers have other axes, or the data named ones and the segments none.
    ArgumentError
        If `num_segments` is not an integer, or is negative.
    DTypeError
        If the numbers are not integers, or the elements are complex.

    Examples
    --------
    >>> x, ids = np.array([1.0, 2.0, 4.0, 8.0]), np.array([0, 0, 2, 2])
    >>> weft.jit(lambda x, ids: weft.segment_max(x, ids, 3))(x, ids)
    array([  2., -inf,   8.])
    """
    return _segmented("segment_max", "max", as_op(data), segment_ids, num_segments)


def segment_min(data: TensorLike, segment_ids: TensorLike, num_segments: int | Axis) -> TensorOp:
    """Return the minimum of each segment, of the elements with its number.

    That of an empty one is infinity, or the greatest integer. Ties share the gradient.

    Parameters
    ----------
    data
        The elements.
    segment_ids
        The number of each element's segment, as for `segment_sum`.
    num_segments
        How many segments there are; for named axes, their axis.

    Returns
    -------
    TensorOp
        The minima, with the axis of the segments in place of those of the numbers, in the dtype of
        the data.

    Raises
    ------
    AxesError
        If the numbers have other axes, or the data named ones and the segments none.
    ArgumentError
        If `num_segments` is not an integer, or is negative.
    DTypeError
        If the numbers are not integers, or the elements are complex.

    Examples
    --------
    >>> x, ids = np.array([1.0, 2.0, 4.0, 8.0]), np.array([0, 0, 2, 2])
    >>> weft.jit(lambda x, ids: weft.segment_min(x, ids, 3))(x, ids)
    array([ 1., inf,  4.])
    """
    return _segmented("segment_min", "min", as_op(data), segment_ids, num_segments)


def segment_mean(data: TensorLike, segment_ids: TensorLike, num_segments: int | Axis) -> TensorOp:
    """Return the mean of each segment, of the elements with its number; 0 for an empty one.

    Parameters
    ----------
    data
        The elements.
    segment_ids
        The number of each element's segment, as for `segment_sum`.
    num_segments
        How many segments there are; for named axes, their axis.

    Returns
    -------
    TensorOp
        The means, with the axis of the segments in place of those of the numbers. Integers give
        float32; 16-bit floats are added in float32.

    Raises
    ------
    AxesError
        If the numbers have other axes, or the data named ones and the segments none.
    ArgumentError
        If `num_segments` is not an integer, or is negative.
    DTypeError
        If the numbers are not integers.

    Examples
    --------
    >>> x, ids = np.array([1.0, 2.0, 4.0, 8.0]), np.array([0, 0, 2, 2])
    >>> weft.jit(lambda x, ids: weft.segment_mean(x, ids, 3))(x, ids)
    array([1.5, 0. , 6. ])
    """
    (data,) = align(InexactOp, data)
    wide, ids = cast(data, accumulator_dtype(data.dtype)), as_indices(segment_ids)
    total = _segmented("segment_mean", "add", wide, ids, num_segments)
    ones = broadcast(constant(1, dtype=wide.dtype), ids.axes)
    count = _segmented("segment_mean", "add", ones, ids, num_segments)
    divisor = where(less(count, 1), 1, count)
    spread = BroadcastOp(divisor, target_axes=total.axes, dims=(0,))
    return cast(divide(total, spread), data.dtype)
