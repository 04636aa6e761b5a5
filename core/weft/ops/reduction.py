"""Reductions: many elements into one along some axes.

By default all positional axes are reduced, and all named axes but the batch axis ``N`` and the
recurrent axis ``REC``. `reduction_axes` names those to reduce, `out_axes` those to keep, in the
order wanted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import dtypes
from weft.axes import Axes, Axis, make_axes
from weft.dtypes import DType
from weft.errors import ArgumentError, AxesError, GradientError
from weft.ops.bits import bitwise_not
from weft.ops.comparison import equal
from weft.ops.elementwise import (
    absolute,
    cast,
    divide,
    multiply,
    negative,
    reciprocal,
    square,
    subtract,
)
from weft.ops.indexing import tensor_slice
from weft.ops.joining import pad
from weft.ops.math import sqrt
from weft.ops.movement import BroadcastOp, cast_axes, flatten, size_of, transpose, zeros_like
from weft.ops.storage import as_op
from weft.tensor import CompositeOp, TensorOp, operators

__all__ = [
    "ArgExtremumOp",
    "ArgmaxOp",
    "ArgminOp",
    "ExtremumOp",
    "L1_norm",
    "L2_norm",
    "MaxOp",
    "MeanOp",
    "MinOp",
    "ProdOp",
    "ReductionOp",
    "SumOp",
    "VarianceOp",
    "argmax",
    "argmin",
    "batch_size",
    "max",
    "mean",
    "min",
    "prod",
    "squared_L2",
    "sum",
    "tensor_size",
    "variance",
]


class ReductionOp(TensorOp):
    """The base of reductions.

    Attributes
    ----------
    positions
        The places of the axes that are reduced, increasing.
    """

    positions: tuple[int, ...]

    def infer(self) -> tuple[Axes, DType]:
        """Drop the reduced axes."""
        (x,) = self.args
        if list(self.positions) != sorted(set(self.positions)) or any(
            not 0 <= place < x.rank for place in self.positions
        ):
            raise AxesError(f"{self.positions} are not increasing places among {x.axes}")
        return Axes(x.axes[place] for place in self.kept()), self.result_dtype(x.dtype)

    def kept(self) -> tuple[int, ...]:
        """Return the places of the operand's axes that are kept."""
        return tuple(place for place in range(self.args[0].rank) if place not in self.positions)

    def result_dtype(self, operand: DType) -> DType:
        """Return the dtype of the result for the operand's dtype."""
        return operand

    def spread(self, value: TensorOp, x: TensorOp) -> TensorOp:
        """Return a tensor of the result's axes repeated over the reduced ones."""
        if not self.positions:
            return value
        return BroadcastOp(value, target_axes=x.axes, dims=self.kept())


class SumOp(ReductionOp):
    """The sum; 0 for no elements, bool counts as int32."""

    def result_dtype(self, operand: DType) -> DType:
        """Keep the dtype, with bool as int32."""
        return dtypes.int32 if dtypes.is_bool(operand) else operand

    def reference(self, x: Any) -> Any:
        """Add up."""
        return np.sum(x, axis=self.positions, dtype=self.dtype)

    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Repeat the adjoint."""
        return (self.spread(delta, x),)


class ProdOp(ReductionOp):
    """The product; 1 for no elements, bool counts as int32."""

    def result_dtype(self, operand: DType) -> DType:
        """Keep the dtype, with bool as int32."""
        return dtypes.int32 if dtypes.is_bool(operand) else operand

    def reference(self, x: Any) -> Any:
        """Multiply up."""
        return np.prod(x, axis=self.positions, dtype=self.dtype)

    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Multiply by the product of the elements before and of those after each one.

        That needs no division, so it is exact where elements are zero, at every order.
        """
        kept = self.kept()
        order = (*kept, *self.positions)
        turned = transpose(x, order)
        tail = Axes(x.axes[place] for place in self.positions).size
        if not isinstance(tail, int):
            raise GradientError("the gradient of a product needs axes of known length")
        if not tail:
            return (zeros_like(x),)
        rows = cast_axes(turned, (*(x.axes[place].length for place in kept), tail))
        others = _products_before(rows, 1) * _products_before(rows, -1)
        inverse = tuple(map(int, np.argsort(order)))
        others = transpose(cast_axes(others, turned.axes), inverse)
        return (self.spread(delta, x) * others,)


def _products_before(x: TensorOp, step: int) -> TensorOp:
    """Return, along the last axis, the product of all elements before each one (after, for -1).

    By doubling the reach of a shifted product (Hillis and Steele, 1986).
    """
    length = x.axes[-1].length
    result = _shifted(x, 1, step)
    reach = 1
    while reach < length:
        result = result * _shifted(result, reach, step)
        reach *= 2
    return result


def _shifted(x: TensorOp, by: int, step: int) -> TensorOp:
    length = x.axes[-1].length
    inner = slice(0, length - by) if step > 0 else slice(by, length)
    widths = [(0, 0)] * (x.rank - 1) + [(by, 0) if step > 0 else (0, by)]
    return pad(tensor_slice(x, (Ellipsis, inner)), widths, 1)


def reversed_order(x: TensorOp) -> TensorOp:
    """Return numbers whose order is the opposite: negative floats, or integers' other bits.

    The negative of the smallest integer would be itself. Applied twice, it gives `x` again.
    """
    return negative(x) if dtypes.is_inexact(x.dtype) else bitwise_not(x)


class ExtremumOp(ReductionOp):
    """The largest or smallest element; its gradient is split evenly among ties."""

    def infer(self) -> tuple[Axes, DType]:
        """Refuse an empty axis: nothing is the largest of no elements."""
        (x,) = self.args
        if any(x.axes[place].length == 0 for place in self.positions):
            raise AxesError(f"{x.axes} has no elements to choose from along {self.positions}")
        return super().infer()

    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp | None]:
        """Split the adjoint among the elements that equal the result."""
        chosen = cast(equal(x, self.spread(self, x)), x.dtype)
        count = SumOp(chosen, positions=self.positions)
        return (chosen * self.spread(divide(delta, count), x),)


class MaxOp(ExtremumOp):
    """The largest element; NaN if any is."""

    def reference(self, x: Any) -> Any:
        """Choose the largest."""
        return np.max(x, axis=self.positions)


class MinOp(ExtremumOp, CompositeOp):
    """The smallest element; NaN if any is."""

    def decompose(self, x: TensorOp) -> TensorOp:
        """Take the largest in the reversed order."""
        return reversed_order(MaxOp(reversed_order(x), positions=self.positions))

    def reference(self, x: Any) -> Any:
        """Choose the smallest."""
        return np.min(x, axis=self.positions)


class ArgExtremumOp(ExtremumOp):
    """The index of the first largest or smallest element along one axis, as int64."""

    def infer(self) -> tuple[Axes, DType]:
        """Refuse several axes."""
        if len(self.positions) != 1:
            raise AxesError("exactly one axis must be reduced: flatten several first")
        return super().infer()

    def result_dtype(self, operand: DType) -> DType:
        """Be int64."""
        return dtypes.int64

    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[None]:
        """Let nothing flow."""
        return (None,)


class ArgmaxOp(ArgExtremumOp):
    """The index of the first largest element; of the first NaN if there is one."""

    def reference(self, x: Any) -> Any:
        """Find the largest."""
        return np.argmax(x, axis=self.positions[0])


class ArgminOp(ArgExtremumOp, CompositeOp):
    """The index of the first smallest element; of the first NaN if there is one."""

    def decompose(self, x: TensorOp) -> TensorOp:
        """Find the largest in the reversed order."""
        return ArgmaxOp(reversed_order(x), positions=self.positions)

    def reference(self, x: Any) -> Any:
        """Find the smallest."""
        return np.argmin(x, axis=self.positions[0])


class MeanOp(ReductionOp, CompositeOp):
    """The arithmetic mean; integers give float32, no elements NaN.

    Floats of 16 bits are added up and counted in float32.
    """

    def result_dtype(self, operand: DType) -> DType:
        """Be a float."""
        return operand if dtypes.is_inexact(operand) else dtypes.DEFAULT

    @property
    def working_dtype(self) -> DType:
        """The dtype in which sums and counts are taken."""
        return dtypes.float32 if self.dtype.itemsize == 2 else self.dtype

    def share(self, x: TensorOp) -> TensorOp:
        """Return 1 over the number of elements that are reduced into one."""
        reduced = Axes(x.axes[place] for place in self.positions)
        return reciprocal(size_of(reduced, self.working_dtype))

    def reference(self, x: Any) -> Any:
        """Average."""
        total = np.sum(x, axis=self.positions, dtype=self.working_dtype)
        count = np.asarray(np.asarray(x).size / (total.size or 1), total.dtype)
        return (total / count).astype(self.dtype)

    def decompose(self, x: TensorOp) -> TensorOp:
        """Multiply the sum by the reciprocal of the count."""
        total = SumOp(cast(x, self.working_dtype), positions=self.positions)
        return cast(multiply(total, self.share(x)), self.dtype)

    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Share the adjoint evenly."""
        share = multiply(cast(delta, self.working_dtype), self.share(x))
        return (self.spread(cast(share, self.dtype), x),)


class VarianceOp(MeanOp):
    """The mean of squared distances from the mean (without Bessel's correction)."""

    def reference(self, x: Any) -> Any:
        """Average the squared distances; NaN for no elements."""
        wide = np.asarray(x, self.working_dtype)
        if not wide.size:
            return super().reference(wide)
        return np.var(wide, axis=self.positions).astype(self.dtype)

    def distance(self, x: TensorOp) -> TensorOp:
        """Return the distance of each element from the mean."""
        x = cast(x, self.working_dtype)
        return subtract(x, self.spread(MeanOp(x, positions=self.positions), x))

    def decompose(self, x: TensorOp) -> TensorOp:
        """Take two passes, which is exact where one loses digits."""
        return cast(MeanOp(square(self.distance(x)), positions=self.positions), self.dtype)

    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """2 (x - mean) / count."""
        share = multiply(multiply(cast(delta, self.working_dtype), 2), self.share(x))
        return (cast(self.distance(x) * self.spread(share, x), self.dtype),)


def sum_over(x: TensorOp, positions: tuple[int, ...]) -> TensorOp:
    """Return the sum over the axes at the given places; the tensor itself for none."""
    return SumOp(x, positions=positions) if positions else x


def default_positions(axes: Axes) -> tuple[int, ...]:
    """Return the places that a reduction takes when none are given."""
    return tuple(i for i, axis in enumerate(axes) if not (axis.is_batch or axis.is_recurrent))


def reduced_positions(x: TensorOp, reduction_axes: Any, out_axes: Any) -> tuple[int, ...]:
    """Return the places to reduce from the two ways of saying so."""
    if out_axes is not None:
        if reduction_axes is not None:
            raise ArgumentError(x.explain("give reduction_axes or out_axes, not both"))
        kept = x.axes.positions(make_axes(out_axes) if x.axes.is_named else out_axes)
        return tuple(place for place in range(x.rank) if place not in kept)
    if reduction_axes is None:
        return default_positions(x.axes)
    return tuple(sorted(x.axes.positions(reduction_axes)))


def _reduce(
    kind: type[ReductionOp], x: Any, reduction_axes: Any, out_axes: Any, keepdims: bool = False
) -> TensorOp:
    x = as_op(x)
    positions = reduced_positions(x, reduction_axes, out_axes)
    result: TensorOp = kind(x, positions=positions)
    if out_axes is not None and x.axes.is_named:
        return transpose(result, make_axes(out_axes))
    if keepdims:
        ones = (Axis(1, a.name) if i in positions else a for i, a in enumerate(x.axes))
        return cast_axes(result, Axes(ones))
    return result


def sum(
    x: Any, reduction_axes: Any = None, out_axes: Any = None, keepdims: bool = False
) -> TensorOp:
    """Return the sum over axes; integers keep their dtype, bool gives int32."""
    return _reduce(SumOp, x, reduction_axes, out_axes, keepdims)


def prod(
    x: Any, reduction_axes: Any = None, out_axes: Any = None, keepdims: bool = False
) -> TensorOp:
    """Return the product over axes; integers keep their dtype, bool gives int32."""
    return _reduce(ProdOp, x, reduction_axes, out_axes, keepdims)


def max(
    x: Any, reduction_axes: Any = None, out_axes: Any = None, keepdims: bool = False
) -> TensorOp:
    """Return the largest element over axes."""
    return _reduce(MaxOp, x, reduction_axes, out_axes, keepdims)


def min(
    x: Any, reduction_axes: Any = None, out_axes: Any = None, keepdims: bool = False
) -> TensorOp:
    """Return the smallest element over axes."""
    return _reduce(MinOp, x, reduction_axes, out_axes, keepdims)


def mean(
    x: Any, reduction_axes: Any = None, out_axes: Any = None, keepdims: bool = False
) -> TensorOp:
    """Return the mean over axes."""
    return _reduce(MeanOp, x, reduction_axes, out_axes, keepdims)


def variance(
    x: Any, reduction_axes: Any = None, out_axes: Any = None, keepdims: bool = False
) -> TensorOp:
    """Return the variance over axes, divided by the number of elements."""
    return _reduce(VarianceOp, x, reduction_axes, out_axes, keepdims)


def _arg(kind: type[ArgExtremumOp], x: Any, reduction_axes: Any, out_axes: Any) -> TensorOp:
    x = as_op(x)
    positions = reduced_positions(x, reduction_axes, out_axes)
    kept = [place for place in range(x.rank) if place not in positions]
    if len(positions) != 1:
        x = transpose(x, (*kept, *positions))
        tail = Axes(x.axes[len(kept) :])
        x = cast_axes(x, Axes((*x.axes[: len(kept)], tail.flatten()))) if x.rank else flatten(x)
        positions = (len(kept),)
    result = kind(x, positions=positions)
    named = out_axes is not None and x.axes.is_named
    return transpose(result, make_axes(out_axes)) if named else result


def argmax(x: Any, reduction_axes: Any = None, out_axes: Any = None) -> TensorOp:
    """Return the index of the first largest element; over several axes, in row-major order."""
    return _arg(ArgmaxOp, x, reduction_axes, out_axes)


def argmin(x: Any, reduction_axes: Any = None, out_axes: Any = None) -> TensorOp:
    """Return the index of the first smallest element; over several axes, in row-major order."""
    return _arg(ArgminOp, x, reduction_axes, out_axes)


def tensor_size(x: Any, reduction_axes: Any = None, out_axes: Any = None) -> TensorOp:
    """Return the number of elements over axes as a float32 scalar."""
    x = as_op(x)
    positions = reduced_positions(x, reduction_axes, out_axes)
    return size_of(Axes(x.axes[place] for place in positions), dtypes.DEFAULT)


def batch_size(x: Any) -> TensorOp:
    """Return the length of the batch axis as a float32 scalar; 1 without one."""
    return size_of(as_op(x).axes.batch_axes(), dtypes.DEFAULT)


def squared_L2(x: Any, reduction_axes: Any = None, out_axes: Any = None) -> TensorOp:  # noqa: N802
    """Return the sum of squares, over all axes unless some are given."""
    x = as_op(x)
    if reduction_axes is None and out_axes is None:
        reduction_axes = range(x.rank)
    return sum(square(x), reduction_axes, out_axes)


def L2_norm(x: Any, reduction_axes: Any = None, out_axes: Any = None) -> TensorOp:  # noqa: N802
    """Return the Euclidean length, over the default axes unless some are given."""
    return sqrt(sum(square(as_op(x)), reduction_axes, out_axes))


def L1_norm(x: Any, reduction_axes: Any = None, out_axes: Any = None) -> TensorOp:  # noqa: N802
    """Return the sum of absolute values, over the default axes unless some are given."""
    return sum(absolute(as_op(x)), reduction_axes, out_axes)


operators["sum_over"] = sum_over
