"""Reductions that leave out NaN, as NumPy's functions of these names."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.errors import ArgumentError, AxesError
from weft.ir import dtypes
from weft.ir.axes import Axes, AxisKey, AxisKeys
from weft.ir.dtypes import DType, accumulator_dtype
from weft.ir.op import explain
from weft.ir.storage import as_op, constant
from weft.ir.tensor import TensorLike, TensorOp
from weft.ops.arguments import as_number, checked_number, drop_axis
from weft.ops.indexing.gathering import TakeAlongAxisOp, TakeOp, with_length, without_names
from weft.ops.keywords import also_takes
from weft.ops.pointwise.comparison import equal, greater, where
from weft.ops.pointwise.elementwise import FloatOp, InexactOp, align, cast
from weft.ops.pointwise.math import sqrt
from weft.ops.pointwise.rounding import isnan
from weft.ops.reductions.cumulative import cumprod, cumsum
from weft.ops.reductions.reduced_axes import OutAxes, arranged, joined, reduced_positions
from weft.ops.reductions.reduction import SumOp, all, argmax, argmin, max, min, prod, sum
from weft.ops.reductions.sorting import SortOp
from weft.ops.reductions.statistics import neighbors, std, variance
from weft.ops.shape.movement import BroadcastOp, cast_axes, size_of

__all__ = [
    "nanargmax",
    "nanargmin",
    "nancumprod",
    "nancumsum",
    "nanmax",
    "nanmean",
    "nanmedian",
    "nanmin",
    "nanpercentile",
    "nanprod",
    "nanquantile",
    "nanstd",
    "nansum",
    "nanvar",
]


@also_takes(axis="reduction_axes")
def nansum(
    x: TensorLike,
    reduction_axes: AxisKeys | None = None,
    out_axes: OutAxes | None = None,
    keepdims: bool = False,
) -> TensorOp:
    """Return the sum over axes of the elements that are not NaN.

    Parameters
    ----------
    x
        The operand.
    reduction_axes, axis
        The axes to reduce: positions, axes or names of axes. By default all, except for axes named
        ``N`` (batch) and ``REC`` (recurrent).
    out_axes
        The axes to keep, in place of those to reduce: positions, or axes of a tensor with named
        ones, which the result has in this order.
    keepdims
        Whether the reduced axes stay, with length 1.

    Returns
    -------
    TensorOp
        The sums. Integers keep their dtype, bool gives int32.

    Raises
    ------
    AxesError
        If the operand has no such axis.
    ArgumentError
        If both `reduction_axes` and `out_axes` are given.

    Examples
    --------
    >>> weft.jit(weft.nansum)(np.array([1.0, np.nan, 3.0]))
    array(4.)
    """
    return sum(where(isnan(x), 0, x), reduction_axes, out_axes, keepdims)


@also_takes(axis="reduction_axes")
def nanprod(
    x: TensorLike,
    reduction_axes: AxisKeys | None = None,
    out_axes: OutAxes | None = None,
    keepdims: bool = False,
) -> TensorOp:
    """Return the product over axes of the elements that are not NaN.

    Parameters
    ----------
    x
        The operand.
    reduction_axes, axis
        The axes to reduce: positions, axes or names of axes. By default all, except for axes named
        ``N`` (batch) and ``REC`` (recurrent).
    out_axes
        The axes to keep, in place of those to reduce: positions, or axes of a tensor with named
        ones, which the result has in this order.
    keepdims
        Whether the reduced axes stay, with length 1.

    Returns
    -------
    TensorOp
        The products. Integers keep their dtype, bool gives int32.

    Raises
    ------
    AxesError
        If the operand has no such axis.
    ArgumentError
        If both `reduction_axes` and `out_axes` are given.

    Examples
    --------
    >>> weft.jit(weft.nanprod)(np.array([2.0, np.nan, 3.0]))
    array(6.)
    """
    return prod(where(isnan(x), 1, x), reduction_axes, out_axes, keepdims)


@also_takes(axis="reduction_axes")
def nanmean(
    x: TensorLike,
    reduction_axes: AxisKeys | None = None,
    out_axes: OutAxes | None = None,
    keepdims: bool = False,
) -> TensorOp:
    """Return the mean over axes of the elements that are not NaN.

    Parameters
    ----------
    x
        The operand.
    reduction_axes, axis
        The axes to reduce: positions, axes or names of axes. By default all, except for axes named
        ``N`` (batch) and ``REC`` (recurrent).
    out_axes
        The axes to keep, in place of those to reduce: positions, or axes of a tensor with named
        ones, which the result has in this order.
    keepdims
        Whether the reduced axes stay, with length 1.

    Returns
    -------
    TensorOp
        The means, NaN where there are no elements. Integers give float32.

    Raises
    ------
    AxesError
        If the operand has no such axis.
    ArgumentError
        If both `reduction_axes` and `out_axes` are given.

    Examples
    --------
    >>> weft.jit(weft.nanmean)(np.array([1.0, np.nan, 3.0]))
    array(2.)
    """
    (x,) = align(InexactOp, x)
    wide = cast(x, accumulator_dtype(x.dtype))
    total = nansum(wide, reduction_axes, out_axes, keepdims)
    count = sum(~isnan(x), reduction_axes, out_axes, keepdims)
    return cast(total / cast(count, wide.dtype), x.dtype)


@also_takes(axis="reduction_axes")
def nanvar(
    x: TensorLike,
    reduction_axes: AxisKeys | None = None,
    out_axes: OutAxes | None = None,
    keepdims: bool = False,
    correction: float = 0,
) -> TensorOp:
    """Return the variance over axes of the elements that are not NaN.

    Parameters
    ----------
    x
        The operand.
    reduction_axes, axis
        The axes to reduce: positions, axes or names of axes. By default all, except for axes named
        ``N`` (batch) and ``REC`` (recurrent).
    out_axes
        The axes to keep, in place of those to reduce: positions, or axes of a tensor with named
        ones, which the result has in this order.
    keepdims
        Whether the reduced axes stay, with length 1.
    correction
        What the divisor is smaller by than the count; 1 is Bessel's correction.

    Returns
    -------
    TensorOp
        The variances, NaN where there are no more elements than the correction. Integers give
        float32.

    Raises
    ------
    AxesError
        If the operand has no such axis.
    ArgumentError
        If both `reduction_axes` and `out_axes` are given, or the correction is not a number.
    DTypeError
        If the operand is complex.

    Examples
    --------
    >>> weft.jit(weft.nanvar)(np.array([1.0, np.nan, 3.0]))
    array(1.)
    """
    arguments = (reduction_axes, out_axes, keepdims)
    filled, ratio, dtype = _filled("nanvar", x, correction, *arguments)
    return cast(variance(filled, *arguments) * ratio, dtype)


@also_takes(axis="reduction_axes")
def nanstd(
    x: TensorLike,
    reduction_axes: AxisKeys | None = None,
    out_axes: OutAxes | None = None,
    keepdims: bool = False,
    correction: float = 0,
) -> TensorOp:
    """Return the standard deviation over axes of the elements that are not NaN.

    It is the root of `nanvar`, found as in `std`. The gradient of a standard deviation of 0 is 0.

    Parameters
    ----------
    x
        The operand.
    reduction_axes, axis
        The axes to reduce: positions, axes or names of axes. By default all, except for axes named
        ``N`` (batch) and ``REC`` (recurrent).
    out_axes
        The axes to keep, in place of those to reduce: positions, or axes of a tensor with named
        ones, which the result has in this order.
    keepdims
        Whether the reduced axes stay, with length 1.
    correction
        What the divisor is smaller by than the count; 1 is Bessel's correction.

    Returns
    -------
    TensorOp
        The standard deviations, NaN where there are no more elements than the correction. Integers
        give float32.

    Raises
    ------
    AxesError
        If the operand has no such axis.
    ArgumentError
        If both `reduction_axes` and `out_axes` are given, or the correction is not a number.
    DTypeError
        If the operand is complex.

    Examples
    --------
    >>> weft.jit(weft.nanstd)(np.array([1.0, np.nan, 5.0]))
    array(2.)
    """
    arguments = (reduction_axes, out_axes, keepdims)
    filled, ratio, dtype = _filled("nanstd", x, correction, *arguments)
    return cast(std(filled, *arguments) * sqrt(ratio), dtype)


def _filled(
    function: str, x: TensorLike, correction: float, *arguments: Any
) -> tuple[TensorOp, TensorOp, DType]:
    """Return a tensor with the mean for NaN, and what its variance is multiplied by.

    It has the same sum of squared deviations. The last of the result is the dtype of the variance.
    """
    (x,) = align(FloatOp, x)
    number = as_number(correction)
    if math.isnan(number):
        problem = f"correction must be a number, not {correction!r}"
        raise ArgumentError(explain(function, problem, (x,)))
    wide = cast(x, accumulator_dtype(x.dtype))
    positions = reduced_positions(x, arguments[0], arguments[1], function)
    filled = where(isnan(wide), _spread(nanmean(wide, positions), x, positions), wide)
    known = sum(cast(~isnan(wide), wide.dtype), *arguments)
    divisor = where(greater(known, number), known - number, math.nan)
    count = size_of(Axes(x.axes[place] for place in positions), wide.dtype)
    return filled, count / divisor, x.dtype


def _spread(reduced: TensorOp, x: TensorOp, positions: tuple[int, ...]) -> TensorOp:
    """Return a reduced tensor broadcast to the axes that it was reduced from."""
    kept = tuple(place for place in range(x.rank) if place not in positions)
    return BroadcastOp(reduced, target_axes=x.axes, dims=kept)


@also_takes(axis="reduction_axes")
def nanmax(
    x: TensorLike,
    reduction_axes: AxisKeys | None = None,
    out_axes: OutAxes | None = None,
    keepdims: bool = False,
) -> TensorOp:
    """Return the maximum over axes of the elements that are not NaN; NaN if there are none.

    Parameters
    ----------
    x
        The operand.
    reduction_axes, axis
        The axes to reduce: positions, axes or names of axes. By default all, except for axes named
        ``N`` (batch) and ``REC`` (recurrent).
    out_axes
        The axes to keep, in place of those to reduce: positions, or axes of a tensor with named
        ones, which the result has in this order.
    keepdims
        Whether the reduced axes stay, with length 1.

    Returns
    -------
    TensorOp
        The extrema, in the dtype of the operand.

    Raises
    ------
    AxesError
        If the operand has no such axis, or a reduced axis is empty.
    ArgumentError
        If both `reduction_axes` and `out_axes` are given.
    DTypeError
        If the operand is complex.

    Examples
    --------
    >>> weft.jit(weft.nanmax)(np.array([1.0, np.nan, 3.0]))
    array(3.)
    """
    return _known_extremum(max, -math.inf, x, reduction_axes, out_axes, keepdims)


@also_takes(axis="reduction_axes")
def nanmin(
    x: TensorLike,
    reduction_axes: AxisKeys | None = None,
    out_axes: OutAxes | None = None,
    keepdims: bool = False,
) -> TensorOp:
    """Return the minimum over axes of the elements that are not NaN; NaN if there are none.

    Parameters
    ----------
    x
        The operand.
    reduction_axes, axis
        The axes to reduce: positions, axes or names of axes. By default all, except for axes named
        ``N`` (batch) and ``REC`` (recurrent).
    out_axes
        The axes to keep, in place of those to reduce: positions, or axes of a tensor with named
        ones, which the result has in this order.
    keepdims
        Whether the reduced axes stay, with length 1.

    Returns
    -------
    TensorOp
        The extrema, in the dtype of the operand.

    Raises
    ------
    AxesError
        If the operand has no such axis, or a reduced axis is empty.
    ArgumentError
        If both `reduction_axes` and `out_axes` are given.
    DTypeError
        If the operand is complex.

    Examples
    --------
    >>> weft.jit(weft.nanmin)(np.array([1.0, np.nan, 3.0]))
    array(1.)
    """
    return _known_extremum(min, math.inf, x, reduction_axes, out_axes, keepdims)


def _known_extremum(
    choose: Callable[..., TensorOp], instead: float, x: TensorLike, *arguments: Any
) -> TensorOp:
    x = as_op(x)
    if not dtypes.is_float(x.dtype):
        return choose(x, *arguments)
    chosen = choose(where(isnan(x), instead, x), *arguments)
    return where(all(isnan(x), *arguments), math.nan, chosen)


@also_takes(axis="reduction_axes")
def nanargmax(
    x: TensorLike,
    reduction_axes: AxisKeys | None = None,
    out_axes: OutAxes | None = None,
    keepdims: bool = False,
) -> TensorOp:
    """Return the index over axes of the largest of the elements that are not NaN.

    It is the first of equal ones, and -1 if there are none.

    Parameters
    ----------
    x
        The operand.
    reduction_axes, axis
        The axes to reduce: positions, axes or names of axes. By default all, except for axes named
        ``N`` (batch) and ``REC`` (recurrent).
    out_axes
        The axes to keep, in place of those to reduce: positions, or axes of a tensor with named
        ones, which the result has in this order.
    keepdims
        Whether the reduced axes stay, with length 1.

    Returns
    -------
    TensorOp
        The indices, as int64: into the reduced axes, flattened in row-major order if there are
        several. They have no gradient.

    Raises
    ------
    AxesError
        If the operand has no such axis, or a reduced axis is empty.
    ArgumentError
        If both `reduction_axes` and `out_axes` are given.
    DTypeError
        If the operand is complex.

    Examples
    --------
    >>> weft.jit(weft.nanargmax)(np.array([2.0, np.nan, 3.0]))
    array(2)
    """
    return _known_index(argmax, nanmax, x, reduction_axes, out_axes, keepdims)


@also_takes(axis="reduction_axes")
def nanargmin(
    x: TensorLike,
    reduction_axes: AxisKeys | None = None,
    out_axes: OutAxes | None = None,
    keepdims: bool = False,
) -> TensorOp:
    """Return the index over axes of the smallest of the elements that are not NaN.

    It is the first of equal ones, and -1 if there are none.

    Parameters
    ----------
    x
        The operand.
    reduction_axes, axis
        The axes to reduce: positions, axes or names of axes. By default all, except for axes named
        ``N`` (batch) and ``REC`` (recurrent).
    out_axes
        The axes to keep, in place of those to reduce: positions, or axes of a tensor with named
        ones, which the result has in this order.
    keepdims
        Whether the reduced axes stay, with length 1.

    Returns
    -------
    TensorOp
        The indices, as int64: into the reduced axes, flattened in row-major order if there are
        several. They have no gradient.

    Raises
    ------
    AxesError
        If the operand has no such axis, or a reduced axis is empty.
    ArgumentError
        If both `reduction_axes` and `out_axes` are given.
    DTypeError
        If the operand is complex.

    Examples
    --------
    >>> weft.jit(weft.nanargmin)(np.array([2.0, np.nan, 1.0]))
    array(2)
    """
    return _known_index(argmin, nanmin, x, reduction_axes, out_axes, keepdims)


def _known_index(
    find: Callable[..., TensorOp], choose: Callable[..., TensorOp], x: TensorLike, *arguments: Any
) -> TensorOp:
    """Return the index of the first element that equals the extremum, also an infinite one."""
    x = as_op(x)
    if not dtypes.is_float(x.dtype):
        return find(x, *arguments)
    positions = reduced_positions(x, arguments[0], arguments[1], f"nan{find.__name__}")
    found = argmax(equal(x, _spread(choose(x, positions), x, positions)), *arguments)
    return where(all(isnan(x), *arguments), -1, found)


@also_takes(axis="reduction_axes")
def nanquantile(
    x: TensorLike,
    q: float,
    reduction_axes: AxisKeys | None = None,
    out_axes: OutAxes | None = None,
    keepdims: bool = False,
) -> TensorOp:
    """Return the q-quantile over axes of the elements that are not NaN.

    It is linearly interpolated between two elements, which both get a gradient. The number of
    elements must be known.

    Parameters
    ----------
    x
        The operand.
    q
        The probability, from 0 for the minimum to 1 for the maximum.
    reduction_axes, axis
        The axes to reduce: positions, axes or names of axes. By default all, except for axes named
        ``N`` (batch) and ``REC`` (recurrent).
    out_axes
        The axes to keep, in place of those to reduce: positions, or axes of a tensor with named
        ones, which the result has in this order.
    keepdims
        Whether the reduced axes stay, with length 1.

    Returns
    -------
    TensorOp
        The quantiles, NaN where there are no elements. Integers give float32; 16-bit floats are
        interpolated in float32.

    Raises
    ------
    AxesError
        If the operand has no such axis, or a reduced axis is empty or of unknown length.
    ArgumentError
        If both `reduction_axes` and `out_axes` are given, or `q` is not a number from 0 to 1.
    DTypeError
        If the operand is complex.

    Examples
    --------
    >>> weft.jit(lambda x: weft.nanquantile(x, 0.25))(np.array([1.0, np.nan, 3.0]))
    array(1.5)
    """
    return _known_quantile(
        "nanquantile",
        checked_number("nanquantile", "q", q, 0, 1),
        x,
        reduction_axes,
        out_axes,
        keepdims,
    )


@also_takes(axis="reduction_axes")
def nanpercentile(
    x: TensorLike,
    q: float,
    reduction_axes: AxisKeys | None = None,
    out_axes: OutAxes | None = None,
    keepdims: bool = False,
) -> TensorOp:
    """Return the q-th percentile over axes of the elements that are not NaN.

    It is the `nanquantile` of q / 100.

    Parameters
    ----------
    x
        The operand.
    q
        The percentile, from 0 to 100.
    reduction_axes, axis
        The axes to reduce: positions, axes or names of axes. By default all, except for axes named
        ``N`` (batch) and ``REC`` (recurrent).
    out_axes
        The axes to keep, in place of those to reduce: positions, or axes of a tensor with named
        ones, which the result has in this order.
    keepdims
        Whether the reduced axes stay, with length 1.

    Returns
    -------
    TensorOp
        The percentiles, NaN where there are no elements. Integers give float32.

    Raises
    ------
    AxesError
        If the operand has no such axis, or a reduced axis is empty or of unknown length.
    ArgumentError
        If both `reduction_axes` and `out_axes` are given, or `q` is not a number from 0 to 100.
    DTypeError
        If the operand is complex.

    Examples
    --------
    >>> weft.jit(lambda x: weft.nanpercentile(x, 25))(np.array([1.0, np.nan, 3.0]))
    array(1.5)
    """
    share = checked_number("nanpercentile", "q", q, 0, 100) / 100
    return _known_quantile("nanpercentile", share, x, reduction_axes, out_axes, keepdims)


@also_takes(axis="reduction_axes")
def nanmedian(
    x: TensorLike,
    reduction_axes: AxisKeys | None = None,
    out_axes: OutAxes | None = None,
    keepdims: bool = False,
) -> TensorOp:
    """Return the median over axes of the elements that are not NaN.

    It is the mean of two elements for an even number. The number of elements must be known.

    Parameters
    ----------
    x
        The operand.
    reduction_axes, axis
        The axes to reduce: positions, axes or names of axes. By default all, except for axes named
        ``N`` (batch) and ``REC`` (recurrent).
    out_axes
        The axes to keep, in place of those to reduce: positions, or axes of a tensor with named
        ones, which the result has in this order.
    keepdims
        Whether the reduced axes stay, with length 1.

    Returns
    -------
    TensorOp
        The medians, NaN where there are no elements. Integers give float32.

    Raises
    ------
    AxesError
        If the operand has no such axis, or a reduced axis is empty or of unknown length.
    ArgumentError
        If both `reduction_axes` and `out_axes` are given.
    DTypeError
        If the operand is complex.

    Examples
    --------
    >>> weft.jit(weft.nanmedian)(np.array([7.0, np.nan, 1.0, 3.0]))
    array(3.)
    """
    return _known_quantile("nanmedian", 0.5, x, reduction_axes, out_axes, keepdims)


def _known_quantile(
    function: str,
    share: float,
    x: TensorLike,
    reduction_axes: AxisKeys | None,
    out_axes: OutAxes | None,
    keepdims: bool,
) -> TensorOp:
    """Sort NaN to the end, and look up the places of the quantile for each number of others."""
    (x,) = align(FloatOp, x)
    positions = reduced_positions(x, reduction_axes, out_axes, function)
    named, _ = joined(cast(x, accumulator_dtype(x.dtype)), positions)
    rows, last = without_names(named), named.rank - 1
    length = rows.axes[last].length
    if not isinstance(length, int) or not length:
        problem = f"needs a known number of elements, at least one, of {x.axes} along {positions}"
        raise AxesError(explain(function, problem, (x,)))
    ordered = SortOp(rows, position=last, descending=False)
    count = cast_axes(
        SumOp(cast(~isnan(rows), dtypes.int64), positions=(last,)), with_length(rows.axes, last, 1)
    )
    table = np.array([neighbors(share, each) for each in (1, *range(1, length + 1))])
    low, high = (TakeOp(constant(table[:, i].astype(np.int64)), count, position=0) for i in (0, 1))
    weight = TakeOp(constant(table[:, 2], dtype=rows.dtype), count, position=0)
    below, above = (TakeAlongAxisOp(ordered, each, position=last) for each in (low, high))
    # An infinite element has no share of 0 in a result.
    result = where(equal(weight, 0), below, below * (1 - weight) + above * weight)
    result = cast(cast_axes(result, drop_axis(named.axes, last)), x.dtype)
    return arranged(result, x, positions, out_axes, keepdims)


def nancumsum(
    x: TensorLike, axis: AxisKey | None = None, exclusive: bool = False, reverse: bool = False
) -> TensorOp:
    """Return the cumulative sum along an axis, with 0 for NaN.

    Parameters
    ----------
    x
        The operand.
    axis
        The axis: a position, an axis or its name. A vector needs none.
    exclusive
        Whether each element is left out of its own result.
    reverse
        Whether it begins at the end of the axis.

    Returns
    -------
    TensorOp
        The sums. Integers keep their dtype and wrap around; bool gives int32.

    Raises
    ------
    AxesError
        If the operand has no such axis.
    ArgumentError
        If there are several axes and none is given.

    Examples
    --------
    >>> weft.jit(weft.nancumsum)(np.array([1.0, np.nan, 3.0]))
    array([1., 1., 4.])
    """
    return cumsum(where(isnan(x), 0, x), axis, exclusive, reverse)


def nancumprod(
    x: TensorLike, axis: AxisKey | None = None, exclusive: bool = False, reverse: bool = False
) -> TensorOp:
    """Return the cumulative product along an axis, with 1 for NaN.

    Parameters
    ----------
    x
        The operand.
    axis
        The axis: a position, an axis or its name. A vector needs none.
    exclusive
        Whether each element is left out of its own result.
    reverse
        Whether it begins at the end of the axis.

    Returns
    -------
    TensorOp
        The products. Integers keep their dtype and wrap around; bool gives int32.

    Raises
    ------
    AxesError
        If the operand has no such axis.
    ArgumentError
        If there are several axes and none is given.

    Examples
    --------
    >>> weft.jit(weft.nancumprod)(np.array([1.0, np.nan, 3.0]))
    array([1., 1., 3.])
    """
    return cumprod(where(isnan(x), 1, x), axis, exclusive, reverse)
