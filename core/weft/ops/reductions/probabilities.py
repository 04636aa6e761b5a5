"""Softmax, log-softmax and related functions, and the Softmax schema for losses."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.errors import DTypeError
from weft.ir import dtypes
from weft.ir.axes import Axes, AxisKeys
from weft.ir.dtypes import Array, DType, accumulator_dtype
from weft.ir.op import explain, explained
from weft.ir.storage import as_op, constant
from weft.ir.tensor import CompositeOp, TensorLike, TensorOp
from weft.ops.control.effects import stop_gradient
from weft.ops.keywords import also_takes
from weft.ops.pointwise.comparison import equal, where
from weft.ops.pointwise.elementwise import FloatOp, align, cast, divide, negative, subtract
from weft.ops.pointwise.math import exp, log
from weft.ops.pointwise.rounding import isfinite
from weft.ops.reductions.reduced_axes import reduced_positions
from weft.ops.reductions.reduction import MaxOp, ReductionOp, SumOp
from weft.ops.shape.movement import BroadcastOp
from weft.support.backports import override

__all__ = [
    "LogSoftmaxOp",
    "LogSumExpOp",
    "LogitsOp",
    "Schema",
    "Softmax",
    "SoftmaxOp",
    "log_softmax",
    "masked_softmax",
    "softmax",
    "softmin",
]


class Schema:
    """The meaning of an op as part of a larger pattern.

    Attributes
    ----------
    composite
        An equivalent op that gradients and computations use instead, or None.
    """

    composite: TensorOp | None

    def __init__(self, composite: TensorOp | None = None) -> None:
        self.composite = composite


class Softmax(Schema):
    """The op is the softmax of `x` along the axes at `positions`."""

    composite: SoftmaxOp

    @property
    def x(self) -> TensorOp:
        """The operand of the softmax, the logits."""
        x: TensorOp = self.composite.args[0]
        return x

    @property
    def positions(self) -> tuple[int, ...]:
        """The positions of the normalized axes."""
        return self.composite.positions


class LogitsOp(CompositeOp):
    """The base of softmax and log-softmax over some axes.

    16-bit floats are computed in float32.

    Attributes
    ----------
    positions
        The positions of the normalized axes, over which probabilities sum to 1.
    """

    positions: tuple[int, ...]

    @override
    def infer(self) -> tuple[Axes, DType]:
        return self.args[0].axes, self.args[0].dtype

    def widened(self, *operands: TensorOp) -> tuple[TensorOp, ...]:
        """Return operands in the accumulator dtype."""
        return tuple(cast(each, accumulator_dtype(self.dtype)) for each in operands)

    def below_largest(self, x: TensorOp) -> TensorOp:
        """Return each element minus the maximum."""
        return below_largest(x, self.positions)

    def total(self, x: TensorOp) -> TensorOp:
        """Return the sum over the normalized axes, broadcast back."""
        return broadcast_back(SumOp(x, positions=self.positions), x, self.positions)

    def normalized(self, x: Array) -> tuple[Any, Any]:
        """Return, in NumPy, the elements minus the maximum, and the sums of their exponentials."""
        wide = np.asarray(x, accumulator_dtype(self.dtype))
        below = wide - np.max(wide, axis=self.positions, keepdims=True, initial=-np.inf)
        return below, np.sum(np.exp(below), axis=self.positions, keepdims=True)


class SoftmaxOp(LogitsOp):
    """The softmax: exp(x) divided by its sum over some axes, after subtracting the maximum."""

    @override
    def reference(self, x: Array) -> Any:
        below, total = self.normalized(x)
        return (np.exp(below) / total).astype(self.dtype)

    @override
    def decompose(self, x: TensorOp) -> TensorOp:
        (wide,) = self.widened(x)
        powers = exp(self.below_largest(wide))
        return cast(powers / self.total(powers), self.dtype)

    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Return s (delta - sum(delta s)) for the result s, summed over the normalized axes."""
        wide, shares = self.widened(delta, self)
        return (cast(shares * (wide - self.total(wide * shares)), self.dtype),)


class LogSoftmaxOp(LogitsOp):
    """The logarithm of the softmax, finite where the softmax underflows."""

    def reference(self, x: Array) -> Any:
        """Subtract the maximum, then the logarithm of the sum of exponentials."""
        below, total = self.normalized(x)
        return (below - np.log(total)).astype(self.dtype)

    def decompose(self, x: TensorOp) -> TensorOp:
        """Subtract the maximum, then the logarithm of the sum of exponentials."""
        (wide,) = self.widened(x)
        below = self.below_largest(wide)
        total = log(SumOp(exp(below), positions=self.positions))
        return cast(below - broadcast_back(total, x, self.positions), self.dtype)

    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Return delta - softmax(x) sum(delta), summed over the normalized axes."""
        wide, logarithms = self.widened(delta, self)
        return (cast(wide - exp(logarithms) * self.total(wide), self.dtype),)


class LogSumExpOp(ReductionOp, CompositeOp):
    """The logarithm of the sum of exponentials over some axes, without overflow.

    It is minus infinity for an empty sum and if all elements are; the gradient is then 0. 16-bit
    floats are summed in float32.
    """

    def reference(self, x: Array) -> Any:
        """Subtract the maximum if it is finite, and add it back."""
        wide = np.asarray(x, accumulator_dtype(self.dtype))
        top = np.max(wide, axis=self.positions, keepdims=True, initial=-np.inf)
        top = np.where(np.isfinite(top), top, 0)
        total = np.log(np.sum(np.exp(wide - top), axis=self.positions, keepdims=True)) + top
        return np.squeeze(total, axis=self.positions).astype(self.dtype)

    def decompose(self, x: TensorOp) -> TensorOp:
        """Subtract the maximum if it is finite, and add it back."""
        top, powers = self._powers(x)
        return cast(log(SumOp(powers, positions=self.positions)) + top, self.dtype)

    def _powers(self, x: TensorOp) -> tuple[TensorOp, TensorOp]:
        """Return the subtracted maximum, a constant for gradients, and the exponentials."""
        wide = cast(x, accumulator_dtype(self.dtype))
        if 0 in (x.axes[place].length for place in self.positions):
            return constant(0, dtype=wide.dtype), exp(wide)
        largest = stop_gradient(MaxOp(wide, positions=self.positions))
        top = where(isfinite(largest), largest, 0)
        return top, exp(wide - self.spread(top, x))

    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Multiply the adjoint by the fraction of each exponential in the sum."""
        _, powers = self._powers(x)
        total = SumOp(powers, positions=self.positions)
        share = cast(delta, powers.dtype) / where(equal(total, 0), 1, total)
        return (cast(powers * self.spread(share, x), self.dtype),)


def below_largest(x: TensorOp, positions: tuple[int, ...]) -> TensorOp:
    """Return each element minus the maximum over some axes, of which an empty one has none."""
    if 0 in (x.axes[place].length for place in positions):
        return x
    return subtract(x, broadcast_back(MaxOp(x, positions=positions), x, positions))


def broadcast_back(value: TensorOp, like: TensorOp, positions: tuple[int, ...]) -> TensorOp:
    """Return a reduced tensor broadcast over the reduced axes."""
    kept = tuple(place for place in range(like.rank) if place not in positions)
    return BroadcastOp(value, target_axes=like.axes, dims=kept) if positions else value


@also_takes(axis="normalization_axes")
def softmax(x: TensorLike, normalization_axes: AxisKeys | None = None) -> TensorOp:
    """Return the softmax: exp(x) divided by its sum over the normalized axes.

    Finite operands give neither NaN nor overflow. An element of minus infinity gives 0. A row of
    only minus infinity, or with plus infinity, gives NaN; for masked rows see `masked_softmax`.

    Parameters
    ----------
    x
        The operand.
    normalization_axes, axis
        The axes to normalize over: positions, axes or names of axes. By default all named ones but
        ``N`` and ``REC``, or the last positional one.

    Returns
    -------
    TensorOp
        Shares that sum to 1, with the axes of the operand. Integers give float32. It is a quotient
        with a `Softmax` schema, which gives the cross entropies the logits; gradients and
        computations use the composite op of the schema.

    Raises
    ------
    AxesError
        If the operand has no such axis.
    DTypeError
        If the operand is complex.

    Examples
    --------
    >>> weft.jit(weft.softmax)(np.array([[0.0, 0.0], [1.0, 0.0]]))
    array([[0.5   , 0.5   ],
           [0.7311, 0.2689]])
    """
    (x,) = align(FloatOp, x)
    positions = normalized_positions(x, normalization_axes)
    composite = SoftmaxOp(x, positions=positions)
    powers = exp(below_largest(x, positions))
    result = divide(powers, broadcast_back(SumOp(powers, positions=positions), x, positions))
    result.add_schema(Softmax(composite))
    return result


@also_takes(axis="normalization_axes")
def log_softmax(x: TensorLike, normalization_axes: AxisKeys | None = None) -> TensorOp:
    """Return the logarithm of the softmax, without underflow.

    Parameters
    ----------
    x
        The operand.
    normalization_axes, axis
        The axes to normalize over: positions, axes or names of axes. By default all named ones but
        ``N`` and ``REC``, or the last positional one.

    Returns
    -------
    TensorOp
        Logarithms, with the axes of the operand. Integers give float32.

    Raises
    ------
    AxesError
        If the operand has no such axis.
    DTypeError
        If the operand is complex.

    Examples
    --------
    >>> weft.jit(weft.log_softmax)(np.array([[0.0, 0.0], [1000.0, 0.0]]))
    array([[-6.9315e-01, -6.9315e-01],
           [ 0.0000e+00, -1.0000e+03]])
    """
    (x,) = align(FloatOp, x)
    return LogSoftmaxOp(x, positions=normalized_positions(x, normalization_axes))


@also_takes(axis="normalization_axes")
def softmin(x: TensorLike, normalization_axes: AxisKeys | None = None) -> TensorOp:
    """Return the softmax of -x.

    Parameters
    ----------
    x
        The operand.
    normalization_axes, axis
        The axes to normalize over: positions, axes or names of axes. By default all named ones but
        ``N`` and ``REC``, or the last positional one.

    Returns
    -------
    TensorOp
        Shares that sum to 1, with the axes of the operand. Integers give float32.

    Raises
    ------
    AxesError
        If the operand has no such axis.
    DTypeError
        If the operand is complex.

    Examples
    --------
    >>> weft.jit(weft.softmin)(np.array([1.0, 0.0]))
    array([0.2689, 0.7311])
    """
    return softmax(negative(*align(FloatOp, x)), normalization_axes)


@also_takes(axis="normalization_axes")
def masked_softmax(
    x: TensorLike, mask: TensorLike, normalization_axes: AxisKeys | None = None
) -> TensorOp:
    """Return the softmax over the elements where a mask is true, and 0 elsewhere.

    Masked elements may have any value, NaN included, and have gradient 0.

    Parameters
    ----------
    x
        The operand.
    mask
        Which elements count, as bool, broadcast against x.
    normalization_axes, axis
        The axes to normalize over: positions, axes or names of axes. By default all named ones but
        ``N`` and ``REC``, or the last positional one.

    Returns
    -------
    TensorOp
        Shares that sum to 1, or to 0 where all is masked. Integers give float32.

    Raises
    ------
    AxesError
        If operand and mask do not broadcast, or there is no such axis.
    DTypeError
        If the mask is not bool, or the operand complex.

    Examples
    --------
    >>> x, mask = np.array([1.0, 1.0, np.nan]), np.array([True, True, False])
    >>> weft.jit(weft.masked_softmax)(x, mask)
    array([0.5, 0.5, 0. ])
    """
    (x,), mask = align(FloatOp, x), as_op(mask)
    if not dtypes.is_bool(mask.dtype):
        problem = f"the mask must be bool, not {mask.dtype}: compare it, as with not_equal(mask, 0)"
        raise DTypeError(explain("masked_softmax", problem, (x, mask)))
    wide = cast(x, accumulator_dtype(x.dtype))
    lowest = float(np.finfo(wide.dtype).min)
    shares = softmax(where(mask, wide, lowest), normalization_axes)
    return cast(where(mask, shares, 0), x.dtype)


def normalized_positions(x: TensorOp, axes: AxisKeys | None) -> tuple[int, ...]:
    """Return the positions of the axes normalized by a softmax."""
    if axes is not None:
        return tuple(sorted(explained("softmax", (x,), x.axes.positions, axes)))
    if not x.axes.is_named:
        return (x.rank - 1,) if x.axes else ()
    return reduced_positions(x, None, None)
