"""Variances, quantiles, norms and other composite reductions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.errors import ArgumentError, AxesError
from weft.ir import dtypes
from weft.ir.axes import Axes, AxisKeys
from weft.ir.dtypes import Array, DType, accumulator_dtype
from weft.ir.op import explain
from weft.ir.storage import as_op, constant
from weft.ir.tensor import CompositeOp, TensorLike, TensorOp
from weft.ops.arguments import as_number, checked_number
from weft.ops.control.effects import stop_gradient
from weft.ops.indexing.slicing import slice_along_axis
from weft.ops.keywords import also_takes
from weft.ops.pointwise.comparison import equal, greater, less, maximum, where
from weft.ops.pointwise.elementwise import (
    FloatOp,
    InexactOp,
    absolute,
    align,
    cast,
    real_dtype,
    sign,
    square,
)
from weft.ops.pointwise.math import power, sqrt
from weft.ops.pointwise.rounding import isnan
from weft.ops.reductions.probabilities import LogSumExpOp
from weft.ops.reductions.reduced_axes import OutAxes, joined, reduce, reduced_positions
from weft.ops.reductions.reduction import (
    MaxOp,
    MinOp,
    ReductionOp,
    SumOp,
    VarianceOp,
    count_nonzero,
    max,
    min,
    sum,
)
from weft.ops.reductions.sorting import SortOp
from weft.ops.shape.movement import size_of
from weft.support.backports import override

__all__ = [
    "L1_norm",
    "L2_norm",
    "NormOp",
    "QuantileOp",
    "StdOp",
    "logsumexp",
    "median",
    "norm",
    "percentile",
    "quantile",
    "squared_L2",
    "std",
    "var",
    "variance",
]


class NormOp(ReductionOp, CompositeOp):
    """The p-norm ``(sum abs(x) ** p) ** (1 / p)``, scaled so that no power overflows.

    The gradient is 0 where the norm is 0, and for elements that are 0. 16-bit floats are computed
    in float32.

    Attributes
    ----------
    exponent
        The number p, finite and not 0.
    """

    exponent: float

    @override
    def infer(self) -> tuple[Axes, DType]:
        if not math.isfinite(self.exponent) or self.exponent == 0:
            raise ArgumentError(f"the exponent must be finite and not 0, not {self.exponent}")
        return super().infer()

    def reference(self, x: Array) -> Any:
        """Scale, take the root of the sum of powers, and scale back."""
        size = np.abs(np.asarray(x, accumulator_dtype(self.dtype)))
        choose, other = (np.max, 0) if self.exponent > 0 else (np.min, np.inf)
        scale = choose(size, axis=self.positions, keepdims=True, initial=other)
        scale = np.where((scale > 0) & (scale < np.inf), scale, 1)
        total = np.sum(np.power(size / scale, self.exponent), axis=self.positions, keepdims=True)
        result = np.power(total, 1 / self.exponent) * scale
        return np.squeeze(result, axis=self.positions).astype(self.dtype)

    def decompose(self, x: TensorOp) -> TensorOp:
        """Scale, take the root of the sum of powers, and scale back."""
        size = absolute(cast(x, accumulator_dtype(self.dtype)))
        scale = self._scale(size)
        parts = size / self.spread(scale, x)
        powers = square(parts) if self.exponent == 2 else power(parts, self.exponent)
        total = SumOp(powers, positions=self.positions)
        root = sqrt(total) if self.exponent == 2 else power(total, 1 / self.exponent)
        return cast(root * scale, self.dtype)

    def _scale(self, size: TensorOp) -> TensorOp:
        """Return the absolute value with the largest power, or 1 if that is 0 or infinite."""
        if 0 in (size.axes[place].length for place in self.positions):
            return constant(np.ones(self.axes.shape, size.dtype), self.axes)
        choose = MaxOp if self.exponent > 0 else MinOp
        chosen = choose(size, positions=self.positions)
        return where(greater(chosen, 0) & less(chosen, math.inf), chosen, 1)

    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Multiply the adjoint by sign(x) (abs(x) / norm) ** (p - 1)."""
        wide, share = (cast(y, accumulator_dtype(self.dtype)) for y in (x, delta))
        # The norm itself may exceed the range of 16 bits.
        total = self if wide is x else type(self)(wide, **self.attributes())
        is_zero = equal(total, 0)
        parts = wide / self.spread(where(is_zero, 1, total), x)
        if self.exponent != 2:
            safe = where(equal(parts, 0), 1, absolute(parts))
            parts = sign(parts) * power(safe, self.exponent - 1)
        share = self.spread(where(is_zero, 0, share), x)
        return (cast(share * parts, self.dtype),)


class StdOp(VarianceOp):
    """The standard deviation, of elements moved and scaled to the interval from 0 to 1.

    So neither a sum nor a square leaves the range of a dtype, and that of equal numbers is 0. The
    gradient of a standard deviation of 0 is 0. 16-bit floats are computed in float32.

    Attributes
    ----------
    correction
        What is subtracted from the count of elements to give the divisor, which is at least 0.
    """

    correction: float

    def reference(self, x: Array) -> Any:
        """Move, scale, take the root of the corrected variance, and scale back."""
        wide = np.asarray(x, self.accumulator_dtype)
        if not wide.size:
            return super().reference(wide)
        low, high = (
            choose(wide, axis=self.positions, keepdims=True) for choose in (np.min, np.max)
        )
        half = np.where((low < -1) & (high > 1), 0.5, 1)
        span = high * half - low * half
        span = np.where(span == 0, 1, span)
        parts = (wide * half - low * half) / span
        square = np.var(parts, axis=self.positions, keepdims=True)
        count = wide.size // low.size
        root = np.sqrt(square * (count / np.maximum(np.float64(count - self.correction), 0)))
        return np.squeeze(root * span / half, axis=self.positions).astype(self.dtype)

    def decompose(self, x: TensorOp) -> TensorOp:
        """Move, scale, take the root of the corrected variance, and scale back."""
        parts, span, half = self._parts(cast(x, self.accumulator_dtype))
        square = VarianceOp(parts, positions=self.positions)
        count, divisor = self._counts(x)
        return cast(sqrt(square * (count / divisor)) * span / half, self.dtype)

    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Multiply the adjoint by (x - mean) / std / divisor, of the scaled elements."""
        parts, _, _ = self._parts(cast(x, self.accumulator_dtype))
        square = VarianceOp(parts, positions=self.positions)
        is_zero = equal(square, 0)
        count, divisor = self._counts(x)
        root = sqrt(where(is_zero, 1, square) * (count / divisor))
        share = where(is_zero, 0, cast(delta, self.accumulator_dtype) / divisor)
        unit = self.distance(parts) / self.spread(root, x)
        return (cast(self.spread(share, x) * unit, self.dtype),)

    def _parts(self, x: TensorOp) -> tuple[TensorOp, TensorOp, TensorOp]:
        """Return elements from 0 to 1; their range, halved where it may overflow; and the factor.

        The last two and the minimum are constants for differentiation: what the adjoint has of the
        elements does not depend on how they are moved and scaled.
        """
        if 0 in (x.axes[place].length for place in self.positions):
            one = constant(1, dtype=x.dtype)
            return x, one, one
        low, high = (stop_gradient(op(x, positions=self.positions)) for op in (MinOp, MaxOp))
        half = cast(where(less(low, -1) & greater(high, 1), 0.5, 1), x.dtype)
        least = low * half
        span = high * half - least
        span = where(equal(span, 0), 1, span)
        parts = (x * self.spread(half, x) - self.spread(least, x)) / self.spread(span, x)
        return parts, span, half

    def _counts(self, x: TensorOp) -> tuple[TensorOp, TensorOp]:
        """Return the number of reduced elements, and that minus the correction."""
        count = size_of(Axes(x.axes[place] for place in self.positions), self.accumulator_dtype)
        return count, maximum(count - self.correction, 0)


class QuantileOp(ReductionOp, CompositeOp):
    """The quantile, linearly interpolated between two neighbors.

    It is NaN if an element is NaN. 16-bit floats are interpolated in float32.

    Attributes
    ----------
    share
        The probability, from 0 for the minimum to 1 for the maximum.
    """

    share: float

    def infer(self) -> tuple[Axes, DType]:
        """Check the probability, and refuse empty axes."""
        (x,) = self.args
        if not 0 <= self.share <= 1:
            raise ArgumentError(f"the probability must be from 0 to 1, not {self.share}")
        if 0 in (x.axes[place].length for place in self.positions):
            raise AxesError(f"{x.axes} has no elements to compare along {self.positions}")
        return super().infer()

    @override
    def reference(self, x: Array) -> Any:
        kept = self.kept()
        lengths = np.shape(x)
        count = math.prod(lengths[place] for place in self.positions)
        shape = (*(lengths[place] for place in kept), count)
        rows = np.transpose(np.asarray(x, accumulator_dtype(self.dtype)), (*kept, *self.positions))
        ordered = np.sort(np.reshape(rows, shape), axis=-1)
        low, high, weight = neighbors(self.share, ordered.shape[-1])
        result = ordered[..., low]
        if weight:
            result = result * (1 - weight) + ordered[..., high] * weight
        return np.where(np.isnan(ordered[..., -1]), np.nan, result).astype(self.dtype)

    @override
    def decompose(self, x: TensorOp) -> TensorOp:
        rows, _ = joined(x, self.positions)
        count = rows.axes[-1].length
        if not isinstance(count, int):
            problem = f"a quantile needs the number of elements, {count} is unknown until a call"
            raise AxesError(self.explain(problem))
        ordered = SortOp(rows, position=rows.rank - 1, descending=False)
        low, high, weight = neighbors(self.share, count)
        below, above, last = (
            cast(slice_along_axis(ordered, rows.rank - 1, place), accumulator_dtype(self.dtype))
            for place in (low, high, count - 1)
        )
        result = below * (1 - weight) + above * weight if weight else below
        return cast(where(isnan(last), last, result), self.dtype)


def neighbors(share: float, count: int) -> tuple[int, int, float]:
    """Return the indices of two sorted elements around a quantile, and the weight of the second."""
    place = share * (count - 1)
    low = math.floor(place)
    return low, math.ceil(place), place - low


@also_takes(axis="reduction_axes")
def variance(
    x: TensorLike,
    reduction_axes: AxisKeys | None = None,
    out_axes: OutAxes | None = None,
    keepdims: bool = False,
    correction: float = 0,
) -> TensorOp:
    """Return the variance over axes: squared deviations divided by the count minus a correction.

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
        What the divisor is smaller by than the count; 1 is Bessel's correction. The divisor is at
        least 0.

    Returns
    -------
    TensorOp
        The variances. Integers give float32.

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
    >>> x = np.array([1.0, 3.0])
    >>> weft.jit(weft.variance)(x)
    array(1.)
    >>> weft.jit(lambda x: weft.variance(x, correction=1))(x)
    array(2.)
    """
    (x,) = align(FloatOp, x)
    if math.isnan(as_number(correction)):
        problem = f"correction must be a number, not {correction!r}"
        raise ArgumentError(explain("variance", problem, (x,)))
    if correction == 0:
        return reduce(VarianceOp, x, reduction_axes, out_axes, keepdims)
    wide = cast(x, accumulator_dtype(x.dtype))
    positions = reduced_positions(x, reduction_axes, out_axes)
    count = size_of(Axes(x.axes[place] for place in positions), wide.dtype)
    result = reduce(VarianceOp, wide, reduction_axes, out_axes, keepdims)
    return cast(result * (count / maximum(count - correction, 0)), x.dtype)


var = variance


@also_takes(axis="reduction_axes")
def std(
    x: TensorLike,
    reduction_axes: AxisKeys | None = None,
    out_axes: OutAxes | None = None,
    keepdims: bool = False,
    correction: float = 0,
) -> TensorOp:
    """Return the standard deviation over axes, the square root of the `variance`.

    The elements are scaled by their range, so it is found where the variance is out of range. The
    gradient of a standard deviation of 0 is 0.

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
        What the divisor is smaller by than the count; 1 is Bessel's correction. The divisor is at
        least 0.

    Returns
    -------
    TensorOp
        The standard deviations. Integers give float32.

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
    >>> weft.jit(weft.std)(np.array([1.0, 3.0, 5.0, 7.0]))
    array(2.2361)
    """
    (x,) = align(FloatOp, x)
    number = as_number(correction)
    if math.isnan(number):
        problem = f"correction must be a number, not {correction!r}"
        raise ArgumentError(explain("std", problem, (x,)))
    return reduce(StdOp, x, reduction_axes, out_axes, keepdims, correction=number)


@also_takes(axis="reduction_axes")
def quantile(
    x: TensorLike,
    q: float,
    reduction_axes: AxisKeys | None = None,
    out_axes: OutAxes | None = None,
    keepdims: bool = False,
) -> TensorOp:
    """Return the q-quantile over axes.

    It is linearly interpolated between two elements, which both get a gradient. It is NaN if an
    element is NaN. A gradient needs known lengths.

    Parameters
    ----------
    x
        The operand.
    q
        The share of the elements below the quantile, from 0 to 1.
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
        The quantiles. Integers give float32.

    Raises
    ------
    AxesError
        If the operand has no such axis, or a reduced axis is empty.
    ArgumentError
        If both `reduction_axes` and `out_axes` are given, or `q` is not a number from 0 to 1.
    DTypeError
        If the operand is complex.

    Examples
    --------
    >>> weft.jit(lambda x: weft.quantile(x, 0.25))(np.array([1.0, 2.0, 3.0, 4.0]))
    array(1.75)
    """
    (x,) = align(FloatOp, x)
    if math.isnan(as_number(q)):
        problem = f"q must be a number from 0 to 1, not {q!r}"
        raise ArgumentError(explain("quantile", problem, (x,)))
    return reduce(QuantileOp, x, reduction_axes, out_axes, keepdims, share=as_number(q))


@also_takes(axis="reduction_axes")
def percentile(
    x: TensorLike,
    q: float,
    reduction_axes: AxisKeys | None = None,
    out_axes: OutAxes | None = None,
    keepdims: bool = False,
) -> TensorOp:
    """Return the q-th percentile over axes, the `quantile` of q / 100.

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
        The percentiles. Integers give float32.

    Raises
    ------
    AxesError
        If the operand has no such axis, or a reduced axis is empty.
    ArgumentError
        If both `reduction_axes` and `out_axes` are given, or `q` is not a number from 0 to 100.
    DTypeError
        If the operand is complex.

    Examples
    --------
    >>> weft.jit(lambda x: weft.percentile(x, 25))(np.array([1.0, 2.0, 3.0, 4.0]))
    array(1.75)
    """
    share = checked_number("percentile", "q", q, 0, 100) / 100
    return quantile(x, share, reduction_axes, out_axes, keepdims)


@also_takes(axis="reduction_axes")
def median(
    x: TensorLike,
    reduction_axes: AxisKeys | None = None,
    out_axes: OutAxes | None = None,
    keepdims: bool = False,
) -> TensorOp:
    """Return the median over axes, the mean of two elements for an even number.

    It is NaN if an element is NaN. A gradient needs known lengths.

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
        The medians. Integers give float32.

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
    >>> weft.jit(weft.median)(np.array([7.0, 1.0, 3.0]))
    array(3.)
    """
    return quantile(x, 0.5, reduction_axes, out_axes, keepdims)


@also_takes(axis="reduction_axes")
def logsumexp(
    x: TensorLike,
    reduction_axes: AxisKeys | None = None,
    out_axes: OutAxes | None = None,
    keepdims: bool = False,
) -> TensorOp:
    """Return the logarithm of the sum of exponentials over axes, without overflow.

    It is minus infinity for no elements and if all elements are; the gradient is then 0.

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
        The logarithms. Integers give float32.

    Raises
    ------
    AxesError
        If the operand has no such axis.
    ArgumentError
        If both `reduction_axes` and `out_axes` are given.
    DTypeError
        If the operand is complex.

    Examples
    --------
    >>> weft.jit(weft.logsumexp)(np.array([1000.0, 1000.0]))
    array(1000.6931)
    """
    (x,) = align(FloatOp, x)
    return reduce(LogSumExpOp, x, reduction_axes, out_axes, keepdims)


@also_takes(axis="reduction_axes")
def norm(
    x: TensorLike,
    ord: float | str = 2,
    reduction_axes: AxisKeys | None = None,
    out_axes: OutAxes | None = None,
    keepdims: bool = False,
) -> TensorOp:
    """Return the vector norm over axes: ``(sum abs(x) ** ord) ** (1 / ord)``.

    It does not overflow if the norm is in range. The gradient is 0 where the norm is 0, and for
    elements that are 0; ties share the gradient of an extremum.

    Parameters
    ----------
    x
        The operand.
    ord
        The order. For 0 it is the number of nonzero elements, for infinity the largest absolute
        value, for minus infinity the smallest. ``"fro"`` is the Frobenius norm of a matrix, the
        order 2 over two axes.
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
        The norms. Integers give float32, complex numbers real ones.

    Raises
    ------
    AxesError
        If the operand has no such axis.
    ArgumentError
        If both `reduction_axes` and `out_axes` are given, the order is none of these, or a
        Frobenius norm is over another number of axes.

    Examples
    --------
    >>> x = np.array([[3.0, 4.0], [5.0, -12.0]])
    >>> weft.jit(lambda x: weft.norm(x, axis=1))(x)
    array([ 5., 13.])
    >>> weft.jit(lambda x: weft.norm(x, ord=np.inf, axis=1))(x)
    array([ 4., 12.])
    """
    (x,) = align(InexactOp, x)
    arguments = (reduction_axes, out_axes, keepdims)
    if isinstance(ord, str) and ord == "fro":
        if len(reduced_positions(x, reduction_axes, out_axes)) != 2:
            problem = f"a Frobenius norm takes two axes of {x.axes}: give them"
            raise ArgumentError(explain("norm", problem, (x,)))
        ord = 2
    if math.isnan(as_number(ord)):
        problem = f"ord must be a number or 'fro', not {ord!r}"
        raise ArgumentError(explain("norm", problem, (x,)))
    ord = as_number(ord)
    if ord == 0:
        return cast(count_nonzero(x, *arguments), real_dtype(x.dtype))
    if x.dtype.kind == "c" or abs(ord) in (1, math.inf):
        x = absolute(x)
    simple = {1: sum, math.inf: max, -math.inf: min}.get(ord)
    if simple is not None:
        return simple(x, *arguments)
    return reduce(NormOp, x, *arguments, exponent=ord)


@also_takes(axis="reduction_axes")
def L2_norm(  # noqa: N802
    x: TensorLike, reduction_axes: AxisKeys | None = None, out_axes: OutAxes | None = None
) -> TensorOp:
    """Return the Euclidean norm over axes.

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

    Returns
    -------
    TensorOp
        The norms. Integers give float32.

    Raises
    ------
    AxesError
        If the operand has no such axis.
    ArgumentError
        If both `reduction_axes` and `out_axes` are given.

    Examples
    --------
    >>> weft.jit(weft.L2_norm)(np.array([3.0, 4.0]))
    array(5.)
    """
    return norm(x, 2, reduction_axes, out_axes)


@also_takes(axis="reduction_axes")
def L1_norm(  # noqa: N802
    x: TensorLike, reduction_axes: AxisKeys | None = None, out_axes: OutAxes | None = None
) -> TensorOp:
    """Return the sum of absolute values over axes.

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

    Returns
    -------
    TensorOp
        The sums. Integers keep their dtype.

    Raises
    ------
    AxesError
        If the operand has no such axis.
    ArgumentError
        If both `reduction_axes` and `out_axes` are given.

    Examples
    --------
    >>> weft.jit(weft.L1_norm)(np.array([3.0, -4.0]))
    array(7.)
    """
    return sum(absolute(x), reduction_axes, out_axes)


@also_takes(axis="reduction_axes")
def squared_L2(  # noqa: N802
    x: TensorLike, reduction_axes: AxisKeys | None = None, out_axes: OutAxes | None = None
) -> TensorOp:
    """Return the sum of squares over axes.

    Parameters
    ----------
    x
        The operand.
    reduction_axes, axis
        The axes to reduce: positions, axes or names of axes. By default all, also those named ``N``
        and ``REC``.
    out_axes
        The axes to keep, in place of those to reduce: positions, or axes of a tensor with named
        ones, which the result has in this order.

    Returns
    -------
    TensorOp
        The sums. Integers keep their dtype.

    Raises
    ------
    AxesError
        If the operand has no such axis.
    ArgumentError
        If both `reduction_axes` and `out_axes` are given.

    Examples
    --------
    >>> weft.jit(weft.squared_L2)(np.array([3.0, 4.0]))
    array(25.)
    """
    x = as_op(x)
    if reduction_axes is None and out_axes is None:
        reduction_axes = range(x.rank)
    total = sum(square(cast(x, accumulator_dtype(x.dtype))), reduction_axes, out_axes)
    return cast(total, x.dtype) if dtypes.is_inexact(x.dtype) else total
