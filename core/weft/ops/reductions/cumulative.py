"""Cumulative sums, products and extrema along an axis.

The decomposition is a parallel prefix scan in a logarithmic number of elementwise steps (Hillis and
Steele, Data Parallel Algorithms, 1986).
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from weft.errors import ArgumentError, AxesError, DTypeError
from weft.ir import dtypes
from weft.ir.axes import Axes, AxisKey
from weft.ir.dtypes import Array, DType, DTypeLike, accumulator_dtype
from weft.ir.lengths import Length
from weft.ir.op import explain
from weft.ir.storage import as_op
from weft.ir.tensor import CompositeOp, TensorLike, TensorOp
from weft.ops.indexing.slicing import Bounds, SliceOp, UpdateSliceOp
from weft.ops.pointwise.comparison import equal, logical_not, maximum, minimum, where
from weft.ops.pointwise.elementwise import ArithmeticOp, FloatOp, add, align, cast, multiply
from weft.ops.pointwise.math import LogaddexpOp, exp
from weft.ops.pointwise.rounding import isnan
from weft.ops.shape.joining import pad
from weft.support.backports import override

__all__ = [
    "CummaxOp",
    "CumminOp",
    "CumprodOp",
    "CumsumOp",
    "CumulativeOp",
    "LinearRecurrenceOp",
    "LogCumSumExpOp",
    "cummax",
    "cummin",
    "cumprod",
    "cumsum",
    "cumulative_prod",
    "cumulative_sum",
    "logcumsumexp",
]


class RunningOp(CompositeOp):
    """The base of scans: each element depends on the elements before it along an axis.

    Attributes
    ----------
    position
        The position of that axis.
    reverse
        Whether to scan from the end of the axis.
    """

    position: int
    reverse: bool

    @property
    def flops(self) -> int:
        """One for each element and operand."""
        return len(self.args) * int(self.axes.size)

    def infer(self) -> tuple[Axes, DType]:
        """Return the axes and dtype, which all operands must share."""
        first = self.args[0]
        for x in self.args[1:]:
            if x.axes != first.axes or x.dtype != first.dtype:
                raise AxesError(f"{first.dtype} {first.axes} and {x.dtype} {x.axes} differ")
        if not 0 <= self.position < first.rank:
            raise AxesError(f"{self.position} is not a position in {first.axes}")
        return first.axes, first.dtype

    @property
    def length(self) -> int:
        """The number of elements along the axis; raises AxesError while it is unknown."""
        axis = self.axes[self.position]
        if not isinstance(axis.length, int):
            raise AxesError(self.explain(f"the length of {axis!r} is unknown until a call"))
        return axis.length

    def moved(self, x: TensorOp, fill: ArrayLike, back: bool = False) -> TensorOp:
        """Return the tensor shifted by one element along the scan, or with `back` against it.

        The vacant element becomes `fill`.
        """
        to_end = self.reverse == back
        widths = [(0, 0)] * x.rank
        widths[self.position] = (1, 0) if to_end else (0, 1)
        bounds = self._bounds(0 if to_end else 1, x.axes[self.position].length)
        return SliceOp(pad(x, widths, fill), bounds=bounds)

    def reach(self, by: int) -> tuple[Bounds, Bounds]:
        """Return the slice of elements with a predecessor `by` before, and of the predecessors."""
        rest = self.length - by
        ends = self._bounds(0, rest), self._bounds(by, rest)
        return ends if self.reverse else ends[::-1]

    def _bounds(self, start: int, length: int | Length) -> Bounds:
        bounds: list[tuple[Any, Any, int]] = [(0, axis.length, 1) for axis in self.args[0].axes]
        bounds[self.position] = (start, length, 1)
        return tuple(bounds)

    def scan_order(self, x: Array) -> Any:
        """Return a NumPy array with the axis first, in the direction of the scan."""
        front = np.moveaxis(x, self.position, 0)
        return front[::-1] if self.reverse else front

    def from_scan_order(self, x: Array) -> Any:
        """Undo `scan_order`."""
        return np.moveaxis(x[::-1] if self.reverse else x, 0, self.position)


class LinearRecurrenceOp(RunningOp):
    """The linear recurrence ``y[k] = a[k] y[k - 1] + b[k]`` of weights a and terms b.

    The first element is that of b; the first weight is ignored.
    """

    @override
    def reference(self, weights: Array, terms: Array) -> Any:
        factors, result = self.scan_order(weights), np.array(self.scan_order(terms))
        for k in range(1, len(result)):
            result[k] += factors[k] * result[k - 1]
        return self.from_scan_order(result)

    def decompose(self, weights: TensorOp, terms: TensorOp) -> TensorOp:
        """Double the number of combined steps until they cover the axis."""
        by = 1
        while by < self.length:
            here, before = self.reach(by)
            factor = SliceOp(weights, bounds=here)
            reached = factor * SliceOp(terms, bounds=before)
            terms = UpdateSliceOp(terms, SliceOp(terms, bounds=here) + reached, bounds=here)
            weights = UpdateSliceOp(weights, factor * SliceOp(weights, bounds=before), bounds=here)
            by *= 2
        return terms

    def generate_adjoints(self, delta: TensorOp, weights: TensorOp, terms: TensorOp) -> Any:
        """Run the recurrence in reverse, with the weights shifted by one."""
        share = backwards(self, self.moved(weights, 0, back=True), delta)
        return share * self.moved(self, 0), share


def backwards(op: RunningOp, weights: TensorOp, delta: TensorOp) -> TensorOp:
    """Return the linear recurrence of an adjoint against the direction of an op."""
    return LinearRecurrenceOp(weights, delta, position=op.position, reverse=not op.reverse)


class CumulativeOp(RunningOp):
    """The base of cumulative reductions along an axis.

    16-bit floats are combined in float32.

    Attributes
    ----------
    exclusive
        Whether each result excludes its own element; the first is then the neutral element.
    """

    exclusive: bool
    ufunc: ClassVar[np.ufunc]
    combine: ClassVar[Any]

    @staticmethod
    def nothing(dtype: DType) -> Any:
        """Return the neutral element."""
        raise NotImplementedError

    def adjoint(self, delta: TensorOp, x: TensorOp) -> TensorOp:
        """Return the adjoint of x for the inclusive op."""
        raise NotImplementedError

    def inclusive(self, x: TensorOp) -> TensorOp:
        """Return the inclusive op on x."""
        return type(self)(x, position=self.position, reverse=self.reverse, exclusive=False)

    @override
    def reference(self, x: Array) -> Any:
        wide = self.scan_order(np.asarray(x, accumulator_dtype(self.dtype)))
        result = self.ufunc.accumulate(wide, axis=0, dtype=wide.dtype)
        if self.exclusive and len(result):
            first = np.full_like(result[:1], self.nothing(self.dtype))
            result = np.concatenate([first, result[:-1]])
        return self.from_scan_order(result).astype(self.dtype)

    def decompose(self, x: TensorOp) -> TensorOp:
        """Double the number of combined elements until they cover the axis."""
        total = cast(x, accumulator_dtype(self.dtype))
        by = 1
        while by < self.length:
            here, before = self.reach(by)
            both = self.combine(SliceOp(total, bounds=before), SliceOp(total, bounds=here))
            total = UpdateSliceOp(total, both, bounds=here)
            by *= 2
        result = cast(total, self.dtype)
        return self.moved(result, self.nothing(self.dtype)) if self.exclusive else result

    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Differentiate the inclusive op, shifted by one for an exclusive op."""
        if self.exclusive:
            delta = self.moved(delta, 0, back=True)
        wide = accumulator_dtype(self.dtype)
        return (cast(self.adjoint(cast(delta, wide), cast(x, wide)), self.dtype),)


class CumsumOp(CumulativeOp):
    """The running sum; integers wrap around."""

    ufunc = np.add
    combine = staticmethod(add)

    @staticmethod
    @override
    def nothing(dtype: DType) -> Any:
        return 0

    @override
    def adjoint(self, delta: TensorOp, x: TensorOp) -> TensorOp:
        return CumsumOp(delta, position=self.position, reverse=not self.reverse, exclusive=False)


class CumprodOp(CumulativeOp):
    """The running product; integers wrap around."""

    ufunc = np.multiply
    combine = staticmethod(multiply)

    @staticmethod
    @override
    def nothing(dtype: DType) -> Any:
        return 1

    def adjoint(self, delta: TensorOp, x: TensorOp) -> TensorOp:
        """Multiply the exclusive product by a reverse recurrence of the adjoint.

        There is no division, so derivatives of every order are exact at zeros.
        """
        before = CumprodOp(x, position=self.position, reverse=self.reverse, exclusive=True)
        return before * backwards(self, self.moved(x, 0, back=True), delta)


class RunningExtremumOp(CumulativeOp):
    """The base of running extrema; their gradient goes to the first of equal elements."""

    def infer(self) -> tuple[Axes, DType]:
        """Refuse complex numbers, which have no order."""
        if self.args[0].dtype.kind == "c":
            raise DTypeError(f"{self.args[0].dtype} numbers have no order: take real() or imag()")
        return super().infer()

    def adjoint(self, delta: TensorOp, x: TensorOp) -> TensorOp:
        """Sum the adjoint over the run of elements where an extremum holds."""
        result = self.inclusive(x)
        follower = self.moved(result, 0, back=True)
        stays = equal(result, follower) | isnan(result)
        is_new = logical_not(self.moved(stays, False))
        return where(is_new, backwards(self, cast(stays, delta.dtype), delta), 0)


class CummaxOp(RunningExtremumOp):
    """The running maximum; NaN from the first NaN on."""

    ufunc = np.maximum
    combine = staticmethod(maximum)

    @staticmethod
    @override
    def nothing(dtype: DType) -> Any:
        return dtypes.least(dtype)


class CumminOp(RunningExtremumOp):
    """The running minimum; NaN from the first NaN on."""

    ufunc = np.minimum
    combine = staticmethod(minimum)

    @staticmethod
    @override
    def nothing(dtype: DType) -> Any:
        return dtypes.greatest(dtype)


class LogCumSumExpOp(CumulativeOp):
    """The logarithm of the running sum of exponentials, without overflow."""

    ufunc = np.logaddexp
    combine = LogaddexpOp

    @staticmethod
    @override
    def nothing(dtype: DType) -> Any:
        return -np.inf

    def adjoint(self, delta: TensorOp, x: TensorOp) -> TensorOp:
        """Run a reverse recurrence with the ratio of each sum to the next as weight.

        These ratios, and that of an element to its sum, are at most 1. The ratio of 0 to 0 is 0.
        """
        total = self.inclusive(x)
        divisor = where(equal(total, -np.inf), 0, total)
        share = exp(total - self.moved(divisor, np.inf, back=True))
        return exp(x - divisor) * backwards(self, share, delta)


def place(function: str, x: TensorOp, axis: AxisKey | None) -> int:
    """Return the position of the axis of a function; None is allowed for a vector."""
    try:
        if axis is None and x.rank != 1:
            raise ArgumentError(f"needs an axis of {x.axes}, as in axis=0")
        return x.axes.position(0 if axis is None else axis)
    except (ArgumentError, AxesError) as error:
        raise type(error)(explain(function, error.problem, (x,))) from None


def _accumulate(
    kind: type[CumulativeOp],
    function: str,
    x: TensorOp,
    axis: AxisKey | None,
    exclusive: bool,
    reverse: bool,
) -> TensorOp:
    position = place(function, x, axis)
    return kind(x, position=position, exclusive=bool(exclusive), reverse=bool(reverse))


def _summands(
    kind: type[CumulativeOp],
    function: str,
    x: TensorLike,
    axis: AxisKey | None,
    reverse: bool,
    dtype: DTypeLike | None,
    include_initial: bool,
) -> TensorOp:
    """Return what a sum or product accumulates, with its start in front if it is included."""
    (x,) = align(ArithmeticOp, x if dtype is None else cast(x, dtype))
    if not include_initial:
        return x
    position = place(function, x, axis)
    widths = [(0, 0)] * x.rank
    widths[position] = (0, 1) if reverse else (1, 0)
    return pad(x, widths, kind.nothing(x.dtype))


def cumsum(
    x: TensorLike,
    axis: AxisKey | None = None,
    exclusive: bool = False,
    reverse: bool = False,
    *,
    dtype: DTypeLike | None = None,
    include_initial: bool = False,
) -> TensorOp:
    """Return the cumulative sum along an axis.

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
    dtype
        The dtype that the elements are cast to before.
    include_initial
        Whether the result begins with one element more, the sum of none; with `reverse` it ends so.

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
    >>> x = np.array([1, 2, 3])
    >>> weft.jit(weft.cumsum)(x)
    array([1, 3, 6])
    >>> weft.jit(lambda x: weft.cumsum(x, exclusive=True))(x)
    array([0, 1, 3])
    >>> weft.jit(lambda x: weft.cumsum(x, reverse=True))(x)
    array([6, 5, 3])
    """
    x = _summands(CumsumOp, "cumsum", x, axis, reverse, dtype, include_initial)
    return _accumulate(CumsumOp, "cumsum", x, axis, exclusive, reverse)


def cumprod(
    x: TensorLike,
    axis: AxisKey | None = None,
    exclusive: bool = False,
    reverse: bool = False,
    *,
    dtype: DTypeLike | None = None,
    include_initial: bool = False,
) -> TensorOp:
    """Return the cumulative product along an axis; its gradient is exact at zeros.

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
    dtype
        The dtype that the elements are cast to before.
    include_initial
        Whether the result begins with one element more, the product of none; with `reverse` it ends
        so.

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
    >>> weft.jit(weft.cumprod)(np.array([1, 2, 3, 4]))
    array([ 1,  2,  6, 24])
    """
    x = _summands(CumprodOp, "cumprod", x, axis, reverse, dtype, include_initial)
    return _accumulate(CumprodOp, "cumprod", x, axis, exclusive, reverse)


def cummax(
    x: TensorLike, axis: AxisKey | None = None, exclusive: bool = False, reverse: bool = False
) -> TensorOp:
    """Return the cumulative maximum along an axis; it is NaN from the first NaN on.

    Parameters
    ----------
    x
        The operand.
    axis
        The axis: a position, an axis or its name. A vector needs none.
    exclusive
        Whether each element is left out of its own result. The first is then minus infinity, or the
        least number of the dtype.
    reverse
        Whether it begins at the end of the axis.

    Returns
    -------
    TensorOp
        The maxima, in the dtype of the operand. Their gradients go to the elements chosen, the
        first among ties.

    Raises
    ------
    AxesError
        If the operand has no such axis.
    ArgumentError
        If there are several axes and none is given.
    DTypeError
        If the operand is complex.

    Examples
    --------
    >>> weft.jit(weft.cummax)(np.array([1.0, 3.0, 2.0, 4.0]))
    array([1., 3., 3., 4.])
    """
    return _accumulate(CummaxOp, "cummax", as_op(x), axis, exclusive, reverse)


def cummin(
    x: TensorLike, axis: AxisKey | None = None, exclusive: bool = False, reverse: bool = False
) -> TensorOp:
    """Return the cumulative minimum along an axis; it is NaN from the first NaN on.

    Parameters
    ----------
    x
        The operand.
    axis
        The axis: a position, an axis or its name. A vector needs none.
    exclusive
        Whether each element is left out of its own result. The first is then infinity, or the
        greatest number of the dtype.
    reverse
        Whether it begins at the end of the axis.

    Returns
    -------
    TensorOp
        The minima, in the dtype of the operand. Their gradients go to the elements chosen, the
        first among ties.

    Raises
    ------
    AxesError
        If the operand has no such axis.
    ArgumentError
        If there are several axes and none is given.
    DTypeError
        If the operand is complex.

    Examples
    --------
    >>> weft.jit(weft.cummin)(np.array([3.0, 4.0, 1.0, 2.0]))
    array([3., 3., 1., 1.])
    """
    return _accumulate(CumminOp, "cummin", as_op(x), axis, exclusive, reverse)


def logcumsumexp(
    x: TensorLike, axis: AxisKey | None = None, exclusive: bool = False, reverse: bool = False
) -> TensorOp:
    """Return the logarithm of the cumulative sum of exponentials along an axis, without overflow.

    Minus infinity is the logarithm of 0; a sum of 0 has gradient 0.

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
        The logarithms. Integers give float32.

    Raises
    ------
    AxesError
        If the operand has no such axis.
    ArgumentError
        If there are several axes and none is given.
    DTypeError
        If the operand is complex.

    Examples
    --------
    >>> weft.jit(weft.logcumsumexp)(np.array([0.0, 0.0, 1000.0]))
    array([0.0000e+00, 6.9315e-01, 1.0000e+03])
    """
    (x,) = align(FloatOp, x)
    return _accumulate(LogCumSumExpOp, "logcumsumexp", x, axis, exclusive, reverse)


cumulative_sum, cumulative_prod = cumsum, cumprod
