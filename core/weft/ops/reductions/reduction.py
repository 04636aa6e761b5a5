"""Reductions along axes.

By default all positional axes are reduced, and all named axes but the batch axis ``N`` and the
recurrent axis ``REC``. `reduction_axes`, or `axis` as in NumPy, are the axes to reduce. `out_axes`
are the axes to keep, in the order of the result. `keepdims` keeps reduced axes with length 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.errors import AxesError, DTypeError
from weft.ir import dtypes
from weft.ir.axes import Axes, AxisKeys
from weft.ir.dtypes import Array, DType, DTypeLike, accumulator_dtype
from weft.ir.storage import as_op
from weft.ir.tensor import CompositeOp, TensorLike, TensorOp, operators
from weft.ops.keywords import also_takes
from weft.ops.pointwise.bits import bitwise_not
from weft.ops.pointwise.comparison import equal, greater, logical_not, maximum, not_equal
from weft.ops.pointwise.elementwise import (
    cast,
    divide,
    multiply,
    negative,
    reciprocal,
    square,
    subtract,
)
from weft.ops.reductions.cumulative import CumprodOp
from weft.ops.reductions.reduced_axes import (
    OutAxes,
    arranged,
    joined,
    reduce,
    reduced_positions,
)
from weft.ops.shape.movement import BroadcastOp, size_of
from weft.support.backports import override

__all__ = [
    "AllOp",
    "AnyOp",
    "ArgExtremumOp",
    "ArgmaxOp",
    "ArgminOp",
    "ExtremumOp",
    "MaxOp",
    "MeanOp",
    "MinOp",
    "ProdOp",
    "ReductionOp",
    "SumOp",
    "VarianceOp",
    "all",
    "any",
    "argmax",
    "argmin",
    "batch_size",
    "count_nonzero",
    "max",
    "mean",
    "min",
    "prod",
    "sum",
    "tensor_size",
]


class ReductionOp(TensorOp):
    """The base of reductions.

    Attributes
    ----------
    positions
        The positions of the reduced axes, increasing.
    """

    positions: tuple[int, ...]

    @override
    def infer(self) -> tuple[Axes, DType]:
        (x,) = self.args
        if self.positions != tuple(i for i in range(x.rank) if i in self.positions):
            raise AxesError(f"{self.positions} are not increasing positions in {x.axes}")
        return Axes(x.axes[place] for place in self.kept()), self.result_dtype(x.dtype)

    @property
    @override
    def flops(self) -> int:
        size: int = self.args[0].axes.size
        return size

    def kept(self) -> tuple[int, ...]:
        """Return the positions of the kept axes."""
        return tuple(place for place in range(self.args[0].rank) if place not in self.positions)

    def result_dtype(self, operand: DType) -> DType:
        """Return the dtype of the result for the operand's dtype."""
        return operand

    def spread(self, value: TensorOp, x: TensorOp) -> TensorOp:
        """Return a tensor of the result's axes, broadcast over the reduced ones."""
        if not self.positions:
            return value
        return BroadcastOp(value, target_axes=x.axes, dims=self.kept())


class SumOp(ReductionOp):
    """The sum; 0 for no elements, bool counts as int32.

    16-bit floats are summed in float32.
    """

    @override
    def result_dtype(self, operand: DType) -> DType:
        return dtypes.int32 if dtypes.is_bool(operand) else operand

    @override
    def reference(self, x: Array) -> Any:
        wide = accumulator_dtype(self.dtype)
        return np.sum(x, axis=self.positions, dtype=wide).astype(self.dtype)

    @override
    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        return (self.spread(delta, x),)


class ProdOp(ReductionOp):
    """The product; 1 for no elements, bool counts as int32.

    16-bit floats are multiplied in float32.
    """

    @override
    def result_dtype(self, operand: DType) -> DType:
        return dtypes.int32 if dtypes.is_bool(operand) else operand

    @override
    def reference(self, x: Array) -> Any:
        wide = accumulator_dtype(self.dtype)
        return np.prod(x, axis=self.positions, dtype=wide).astype(self.dtype)

    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Multiply the adjoint by the products of the elements before and after each element.

        There is no division, so derivatives of every order are exact at zeros.
        """
        wide = accumulator_dtype(x.dtype)
        rows, back = joined(cast(x, wide), self.positions)
        before, after = (
            CumprodOp(rows, position=rows.rank - 1, exclusive=True, reverse=reverse)
            for reverse in (False, True)
        )
        share = self.spread(cast(delta, wide), x) * back(before * after)
        return (cast(share, x.dtype),)


def reversed_order(x: TensorOp) -> TensorOp:
    """Return numbers in the reversed order: negated floats, or integers with inverted bits.

    The negative of the least integer would be itself. The function is its own inverse.
    """
    return negative(x) if dtypes.is_inexact(x.dtype) else bitwise_not(x)


class ExtremumOp(ReductionOp):
    """The base of maximum and minimum; the gradient is split evenly among ties."""

    def infer(self) -> tuple[Axes, DType]:
        """Refuse complex numbers and empty axes, which have no extremum."""
        (x,) = self.args
        if x.dtype.kind == "c":
            raise DTypeError(f"{x.dtype} numbers have no order: take real() or absolute()")
        if 0 in (x.axes[place].length for place in self.positions):
            raise AxesError(f"{x.axes} has no elements to compare along {self.positions}")
        return super().infer()

    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp | None]:
        """Split the adjoint evenly among the elements that equal the result."""
        wide = accumulator_dtype(x.dtype)
        chosen = equal(x, self.spread(self, x))
        count = SumOp(cast(chosen, wide), positions=self.positions)
        share = cast(divide(cast(delta, wide), count), x.dtype)
        return (cast(chosen, x.dtype) * self.spread(share, x),)


class MaxOp(ExtremumOp):
    """The maximum; NaN if an element is NaN."""

    @override
    def reference(self, x: Array) -> Any:
        return np.max(x, axis=self.positions)


class MinOp(ExtremumOp, CompositeOp):
    """The minimum; NaN if an element is NaN."""

    @override
    def decompose(self, x: TensorOp) -> TensorOp:
        return reversed_order(MaxOp(reversed_order(x), positions=self.positions))

    @override
    def reference(self, x: Array) -> Any:
        return np.min(x, axis=self.positions)


class ArgExtremumOp(ExtremumOp):
    """The base of argmax and argmin: the first index of an extremum along one axis, as int64."""

    def infer(self) -> tuple[Axes, DType]:
        """Check that there is one reduced axis."""
        if len(self.positions) != 1:
            raise AxesError("exactly one axis must be reduced: flatten several first")
        return super().infer()

    @override
    def result_dtype(self, operand: DType) -> DType:
        return dtypes.int64

    @override
    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[None]:
        return (None,)


class ArgmaxOp(ArgExtremumOp):
    """The index of the first maximum, or of the first NaN."""

    @override
    def reference(self, x: Array) -> Any:
        return np.argmax(x, axis=self.positions[0]).astype(np.int64)


class ArgminOp(ArgExtremumOp, CompositeOp):
    """The index of the first minimum, or of the first NaN."""

    @override
    def decompose(self, x: TensorOp) -> TensorOp:
        return ArgmaxOp(reversed_order(x), positions=self.positions)

    @override
    def reference(self, x: Array) -> Any:
        return np.argmin(x, axis=self.positions[0]).astype(np.int64)


class AnyOp(ReductionOp, CompositeOp):
    """Whether any element is true: nonzero or NaN; False for no elements."""

    @override
    def result_dtype(self, operand: DType) -> DType:
        return dtypes.bool_

    @override
    def reference(self, x: Array) -> Any:
        return np.any(np.not_equal(x, 0), axis=self.positions)

    @override
    def decompose(self, x: TensorOp) -> TensorOp:
        return greater(SumOp(truth(x), positions=self.positions), 0)

    @override
    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[None]:
        return (None,)


class AllOp(AnyOp):
    """Whether all elements are true: nonzero or NaN; True for no elements."""

    @override
    def reference(self, x: Array) -> Any:
        return np.all(np.not_equal(x, 0), axis=self.positions)

    @override
    def decompose(self, x: TensorOp) -> TensorOp:
        return logical_not(AnyOp(logical_not(truth(x)), positions=self.positions))


def truth(x: TensorOp) -> TensorOp:
    """Return the elements as bool: whether they are nonzero."""
    return x if dtypes.is_bool(x.dtype) else not_equal(x, 0)


class MeanOp(ReductionOp, CompositeOp):
    """The arithmetic mean; integers give float32, no elements NaN.

    16-bit floats are summed and counted in float32.
    """

    def result_dtype(self, operand: DType) -> DType:
        """Return the dtype of floats and complex numbers, and float32 for others."""
        return operand if dtypes.is_inexact(operand) else dtypes.DEFAULT

    @property
    def accumulator_dtype(self) -> DType:
        """The dtype of the sum and the count."""
        return accumulator_dtype(self.dtype)

    def share(self, x: TensorOp) -> TensorOp:
        """Return the reciprocal of the number of reduced elements."""
        reduced = Axes(x.axes[place] for place in self.positions)
        return reciprocal(size_of(reduced, self.accumulator_dtype))

    @override
    def reference(self, x: Array) -> Any:
        total = np.sum(x, axis=self.positions, dtype=self.accumulator_dtype)
        count = np.asarray(np.asarray(x).size / (total.size or 1), total.dtype)
        return (total / count).astype(self.dtype)

    @override
    def decompose(self, x: TensorOp) -> TensorOp:
        total = SumOp(cast(x, self.accumulator_dtype), positions=self.positions)
        return cast(multiply(total, self.share(x)), self.dtype)

    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Broadcast the adjoint divided by the count."""
        share = multiply(cast(delta, self.accumulator_dtype), self.share(x))
        return (self.spread(cast(share, self.dtype), x),)


class VarianceOp(MeanOp):
    """The variance: the mean of squared deviations from the mean, without Bessel's correction."""

    def infer(self) -> tuple[Axes, DType]:
        """Refuse complex numbers."""
        if self.args[0].dtype.kind == "c":
            problem = "the variance takes no complex numbers: add those of real() and imag()"
            raise DTypeError(problem)
        return super().infer()

    def reference(self, x: Array) -> Any:
        """Call NumPy's var; NaN for no elements."""
        wide = np.asarray(x, self.accumulator_dtype)
        if not wide.size:
            return super().reference(wide)
        return np.var(wide, axis=self.positions).astype(self.dtype)

    def distance(self, x: TensorOp) -> TensorOp:
        """Return the deviation of each element from the mean, corrected for its rounding error."""
        near, rest = around_mean(cast(x, self.accumulator_dtype), self.positions)
        return subtract(near, self.spread(rest, x))

    def decompose(self, x: TensorOp) -> TensorOp:
        """Compute in two passes, corrected for the rounding error of the mean.

        (Chan, Golub and LeVeque, Algorithms for computing the sample variance, 1983: the corrected
        two-pass algorithm.) A single pass cancels if the mean is far from 0.
        """
        near, rest = around_mean(cast(x, self.accumulator_dtype), self.positions)
        return cast(mean_square(near, rest, self.positions), self.dtype)

    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Multiply the adjoint by 2 (x - mean) / count."""
        share = multiply(multiply(cast(delta, self.accumulator_dtype), 2), self.share(x))
        return (cast(self.distance(x) * self.spread(share, x), self.dtype),)


def around_mean(x: TensorOp, positions: tuple[int, ...]) -> tuple[TensorOp, TensorOp]:
    """Return x minus its rounded mean over axes, and the mean of the result, which is almost 0."""
    mean = MeanOp(x, positions=positions)
    near = subtract(x, mean.spread(mean, x))
    return near, MeanOp(near, positions=positions)


def mean_square(near: TensorOp, rest: TensorOp, positions: tuple[int, ...]) -> TensorOp:
    """Return the variance, at least 0, from the results of `around_mean`."""
    # The rest comes first, so that the squares can be computed in place afterwards.
    return maximum(negative(square(rest)) + MeanOp(square(near), positions=positions), 0)


def sum_over(x: TensorOp, positions: tuple[int, ...]) -> TensorOp:
    """Return the sum over the axes at given positions; the tensor itself for none."""
    return SumOp(x, positions=positions) if positions else x


@also_takes(axis="reduction_axes")
def sum(
    x: TensorLike,
    reduction_axes: AxisKeys | None = None,
    out_axes: OutAxes | None = None,
    keepdims: bool = False,
    *,
    dtype: DTypeLike | None = None,
) -> TensorOp:
    """Return the sum over axes.

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
    dtype
        The dtype that the elements are cast to before.

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
    >>> x = np.array([[1.0, 2.0], [3.0, 4.0]])
    >>> weft.jit(weft.sum)(x)
    array(10.)
    >>> weft.jit(lambda x: weft.sum(x, axis=0, keepdims=True))(x)
    array([[4., 6.]])
    """
    x = x if dtype is None else cast(x, dtype)
    return reduce(SumOp, x, reduction_axes, out_axes, keepdims)


@also_takes(axis="reduction_axes")
def prod(
    x: TensorLike,
    reduction_axes: AxisKeys | None = None,
    out_axes: OutAxes | None = None,
    keepdims: bool = False,
    *,
    dtype: DTypeLike | None = None,
) -> TensorOp:
    """Return the product over axes; its gradient is exact at zeros.

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
    dtype
        The dtype that the elements are cast to before.

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
    >>> x = np.array([[1.0, 2.0], [3.0, 4.0]])
    >>> weft.jit(lambda x: weft.prod(x, axis=1))(x)
    array([ 2., 12.])
    """
    x = x if dtype is None else cast(x, dtype)
    return reduce(ProdOp, x, reduction_axes, out_axes, keepdims)


@also_takes(axis="reduction_axes")
def max(
    x: TensorLike,
    reduction_axes: AxisKeys | None = None,
    out_axes: OutAxes | None = None,
    keepdims: bool = False,
) -> TensorOp:
    """Return the maximum over axes; NaN if an element is NaN.

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
        The extrema, in the dtype of the operand. The gradient is split evenly among ties.

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
    >>> x = np.array([[1.0, 2.0], [3.0, 4.0]])
    >>> weft.jit(lambda x: weft.max(x, axis=0))(x)
    array([3., 4.])
    """
    return reduce(MaxOp, x, reduction_axes, out_axes, keepdims)


@also_takes(axis="reduction_axes")
def min(
    x: TensorLike,
    reduction_axes: AxisKeys | None = None,
    out_axes: OutAxes | None = None,
    keepdims: bool = False,
) -> TensorOp:
    """Return the minimum over axes; NaN if an element is NaN.

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
        The extrema, in the dtype of the operand. The gradient is split evenly among ties.

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
    >>> x = np.array([[1.0, 2.0], [3.0, 4.0]])
    >>> weft.jit(lambda x: weft.min(x, axis=0))(x)
    array([1., 2.])
    """
    return reduce(MinOp, x, reduction_axes, out_axes, keepdims)


@also_takes(axis="reduction_axes")
def mean(
    x: TensorLike,
    reduction_axes: AxisKeys | None = None,
    out_axes: OutAxes | None = None,
    keepdims: bool = False,
) -> TensorOp:
    """Return the mean over axes.

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
        The means, NaN of no elements. Integers give float32.

    Raises
    ------
    AxesError
        If the operand has no such axis.
    ArgumentError
        If both `reduction_axes` and `out_axes` are given.

    Examples
    --------
    >>> x = np.array([[1.0, 2.0], [3.0, 4.0]])
    >>> weft.jit(lambda x: weft.mean(x, axis=0))(x)
    array([2., 3.])
    """
    return reduce(MeanOp, x, reduction_axes, out_axes, keepdims)


@also_takes(axis="reduction_axes")
def any(
    x: TensorLike,
    reduction_axes: AxisKeys | None = None,
    out_axes: OutAxes | None = None,
    keepdims: bool = False,
) -> TensorOp:
    """Return whether any element over axes is nonzero; False for no elements.

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
        The truth values, as bool.

    Raises
    ------
    AxesError
        If the operand has no such axis.
    ArgumentError
        If both `reduction_axes` and `out_axes` are given.

    Examples
    --------
    >>> x = np.array([[True, False], [True, True]])
    >>> weft.jit(lambda x: weft.any(x, axis=0))(x)
    array([ True,  True])
    """
    return reduce(AnyOp, x, reduction_axes, out_axes, keepdims)


@also_takes(axis="reduction_axes")
def all(
    x: TensorLike,
    reduction_axes: AxisKeys | None = None,
    out_axes: OutAxes | None = None,
    keepdims: bool = False,
) -> TensorOp:
    """Return whether all elements over axes are nonzero; True for no elements.

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
        The truth values, as bool.

    Raises
    ------
    AxesError
        If the operand has no such axis.
    ArgumentError
        If both `reduction_axes` and `out_axes` are given.

    Examples
    --------
    >>> x = np.array([[True, False], [True, True]])
    >>> weft.jit(lambda x: weft.all(x, axis=0))(x)
    array([ True, False])
    """
    return reduce(AllOp, x, reduction_axes, out_axes, keepdims)


@also_takes(axis="reduction_axes")
def count_nonzero(
    x: TensorLike,
    reduction_axes: AxisKeys | None = None,
    out_axes: OutAxes | None = None,
    keepdims: bool = False,
) -> TensorOp:
    """Return the number of nonzero elements over axes; NaN counts.

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
        The numbers, as int32.

    Raises
    ------
    AxesError
        If the operand has no such axis.
    ArgumentError
        If both `reduction_axes` and `out_axes` are given.

    Examples
    --------
    >>> weft.jit(lambda x: weft.count_nonzero(x, axis=1))(np.array([[0, 1], [2, 3]]))
    array([1, 2], dtype=int32)
    """
    return reduce(SumOp, truth(as_op(x)), reduction_axes, out_axes, keepdims)


def _arg(
    kind: type[ArgExtremumOp],
    x: TensorLike,
    reduction_axes: AxisKeys | None,
    out_axes: OutAxes | None,
    keepdims: bool,
) -> TensorOp:
    x = as_op(x)
    positions = reduced_positions(x, reduction_axes, out_axes)
    if len(positions) == 1:
        found = kind(x, positions=positions)
    else:
        rows, _ = joined(x, positions)
        found = kind(rows, positions=(rows.rank - 1,))
    return arranged(found, x, positions, out_axes, keepdims)


@also_takes(axis="reduction_axes")
def argmax(
    x: TensorLike,
    reduction_axes: AxisKeys | None = None,
    out_axes: OutAxes | None = None,
    keepdims: bool = False,
) -> TensorOp:
    """Return the index of the first maximum over axes; of the first NaN, if there is one.

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
        The indices, as int64: along the axis, or into the reduced axes flattened in row-major
        order. They have no gradient.

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
    >>> x = np.array([[1.0, 5.0], [7.0, 2.0]])
    >>> weft.jit(lambda x: weft.argmax(x, axis=1))(x)
    array([1, 0])
    >>> weft.jit(weft.argmax)(x)
    array(2)
    """
    return _arg(ArgmaxOp, x, reduction_axes, out_axes, keepdims)


@also_takes(axis="reduction_axes")
def argmin(
    x: TensorLike,
    reduction_axes: AxisKeys | None = None,
    out_axes: OutAxes | None = None,
    keepdims: bool = False,
) -> TensorOp:
    """Return the index of the first minimum over axes; of the first NaN, if there is one.

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
        The indices, as int64: along the axis, or into the reduced axes flattened in row-major
        order. They have no gradient.

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
    >>> x = np.array([[1.0, 5.0], [7.0, 2.0]])
    >>> weft.jit(lambda x: weft.argmin(x, axis=1))(x)
    array([0, 1])
    >>> weft.jit(weft.argmin)(x)
    array(0)
    """
    return _arg(ArgminOp, x, reduction_axes, out_axes, keepdims)


@also_takes(axis="reduction_axes")
def tensor_size(
    x: TensorLike, reduction_axes: AxisKeys | None = None, out_axes: OutAxes | None = None
) -> TensorOp:
    """Return the number of elements over axes.

    Parameters
    ----------
    x
        The operand.
    reduction_axes, axis
        The axes that count: positions, axes or names of axes. By default all, except for axes named
        ``N`` (batch) and ``REC`` (recurrent).
    out_axes
        The axes that do not count, in place of those that do.

    Returns
    -------
    TensorOp
        A float32 scalar.

    Raises
    ------
    AxesError
        If the operand has no such axis.
    ArgumentError
        If both `reduction_axes` and `out_axes` are given.

    Examples
    --------
    >>> weft.jit(weft.tensor_size)(np.ones((2, 3)))
    array(6., dtype=float32)
    """
    x = as_op(x)
    positions = reduced_positions(x, reduction_axes, out_axes)
    return size_of(Axes(x.axes[place] for place in positions), dtypes.DEFAULT)


def batch_size(x: TensorLike) -> TensorOp:
    """Return the length of the batch axis, named ``N``, as a float32 scalar; 1 without one.

    Examples
    --------
    >>> N = weft.make_axis(8, "N")
    >>> weft.jit(lambda: weft.batch_size(weft.zeros((weft.make_axis(3, "C"), N))))()
    array(8., dtype=float32)
    """
    return size_of(as_op(x).axes.batch_axes(), dtypes.DEFAULT)


operators["sum_over"] = sum_over
