"""Ops of neural networks: activations, softmax and the losses that go with them."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.axes import Axes
from weft.dtypes import DType
from weft.errors import AxesError
from weft.ops import reduction
from weft.ops.comparison import greater, maximum, where
from weft.ops.elementwise import (
    ElementwiseOp,
    InexactOp,
    absolute,
    add,
    align,
    divide,
    multiply,
    negative,
    square,
    subtract,
)
from weft.ops.math import exp, log, tanh
from weft.ops.movement import BroadcastOp
from weft.ops.reduction import MaxOp, ReductionOp, SumOp, reduced_positions
from weft.tensor import CompositeOp, TensorOp

__all__ = [
    "BinaryCrossEntropyLogitsOp",
    "CrossEntropyLogitsOp",
    "LogSumExpOp",
    "ReluOp",
    "SafeLogOp",
    "Schema",
    "SigmoidOp",
    "Softmax",
    "SoftmaxOp",
    "cross_entropy_binary",
    "cross_entropy_binary_inner",
    "cross_entropy_multi",
    "relu",
    "safelog",
    "sigmoid",
    "sigmoidAtomic",
    "softmax",
]

SAFE_LOG_LOWEST = -50.0
SAFE_LOG_FLOOR = float(np.exp(SAFE_LOG_LOWEST))


class Schema:
    """What an op means as part of a larger pattern.

    Attributes
    ----------
    composite
        An op of the same value that gradients and computations use instead, or None.
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
        """The places of the axes that are normalised."""
        return self.composite.positions


class ReluOp(ElementwiseOp, CompositeOp):
    """The larger of the operand and 0; its gradient at 0 is 0."""

    def reference(self, x: Any) -> Any:
        """Choose the larger."""
        return np.maximum(x, np.zeros((), np.asarray(x).dtype))

    def decompose(self, x: TensorOp) -> TensorOp:
        """Write it as a maximum."""
        return maximum(x, 0)

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """1 above 0, else 0."""
        return (where(greater(self, 0), delta, 0),)


class SigmoidOp(InexactOp, CompositeOp):
    """The logistic function 1 / (1 + exp(-x)), without overflow."""

    def reference(self, x: Any) -> Any:
        """Use the hyperbolic tangent, which does not overflow."""
        half = np.asarray(0.5, np.asarray(x).dtype)
        return half * np.tanh(half * x) + half

    def decompose(self, x: TensorOp) -> TensorOp:
        """Write it as a hyperbolic tangent."""
        return tanh(x * 0.5) * 0.5 + 0.5

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Self (1 - self)."""
        return (delta * (self - square(self)),)


class SafeLogOp(InexactOp, CompositeOp):
    """The logarithm of the operand or of exp(-50), whichever is larger; so never below -50."""

    def reference(self, x: Any) -> Any:
        """Limit, then take the logarithm."""
        dtype = np.asarray(x).dtype
        floor, lowest = np.asarray(SAFE_LOG_FLOOR, dtype), np.asarray(SAFE_LOG_LOWEST, dtype)
        return np.maximum(np.log(np.maximum(x, floor)), lowest)

    def decompose(self, x: TensorOp) -> TensorOp:
        """Limit, take the logarithm, and limit it again: exp(-50) is 0 in float16."""
        return maximum(log(maximum(x, SAFE_LOG_FLOOR)), SAFE_LOG_LOWEST)

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """1 / x above the limit, else 0."""
        return (where(greater(x, SAFE_LOG_FLOOR), delta / maximum(x, SAFE_LOG_FLOOR), 0),)


class SoftmaxOp(CompositeOp):
    """exp(x) over its sum along some axes, computed after subtracting the largest element.

    Attributes
    ----------
    positions
        The places of the axes along which the result sums to 1.
    """

    positions: tuple[int, ...]

    def infer(self) -> tuple[Axes, DType]:
        """Keep axes and dtype."""
        return self.args[0].axes, self.args[0].dtype

    def reference(self, x: Any) -> Any:
        """Exponentiate and normalise."""
        powers = np.exp(x - np.max(x, axis=self.positions, keepdims=True))
        return powers / np.sum(powers, axis=self.positions, keepdims=True)

    def decompose(self, x: TensorOp) -> TensorOp:
        """Exponentiate and normalise."""
        powers = exp(x - _repeat(MaxOp(x, positions=self.positions), x, self.positions))
        return powers / _repeat(SumOp(powers, positions=self.positions), x, self.positions)

    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Self (delta - sum of delta self), over the normalised axes only."""
        share = SumOp(delta * self, positions=self.positions)
        return (self * (delta - _repeat(share, x, self.positions)),)


class LogSumExpOp(ReductionOp, CompositeOp):
    """The logarithm of the sum of exponentials along some axes, without overflow."""

    def reference(self, x: Any) -> Any:
        """Subtract the largest, and add it again."""
        top = np.max(x, axis=self.positions, keepdims=True)
        total = np.log(np.sum(np.exp(x - top), axis=self.positions, keepdims=True)) + top
        return np.squeeze(total, axis=self.positions)

    def decompose(self, x: TensorOp) -> TensorOp:
        """Subtract the largest, and add it again."""
        top = MaxOp(x, positions=self.positions)
        return log(SumOp(exp(x - self.spread(top, x)), positions=self.positions)) + top

    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Softmax."""
        return (self.spread(delta, x) * SoftmaxOp(x, positions=self.positions),)


class CrossEntropyLogitsOp(CompositeOp):
    """The sum over some axes of ``-t log(softmax(x))``, computed from the logits x.

    Finite for any finite logits, and right for targets that do not sum to 1.

    Attributes
    ----------
    positions
        The places of the axes that the softmax normalises; the result lacks them.
    """

    positions: tuple[int, ...]

    def infer(self) -> tuple[Axes, DType]:
        """Drop the normalised axes; both operands share axes and dtype."""
        x, t = self.args
        if x.axes != t.axes or x.dtype != t.dtype:
            raise AxesError(f"logits {x.dtype} {x.axes} and targets {t.dtype} {t.axes} differ")
        return Axes(a for i, a in enumerate(x.axes) if i not in self.positions), x.dtype

    def reference(self, x: Any, t: Any) -> Any:
        """Multiply the targets with the distance from the logarithm of the sum."""
        top = np.max(x, axis=self.positions, keepdims=True)
        total = np.log(np.sum(np.exp(x - top), axis=self.positions, keepdims=True)) + top
        return np.sum(t * (total - x), axis=self.positions)

    def decompose(self, x: TensorOp, t: TensorOp) -> TensorOp:
        """Multiply the targets with the distance from the logarithm of the sum."""
        return SumOp(t * self._distance(x), positions=self.positions)

    def _distance(self, x: TensorOp) -> TensorOp:
        return _repeat(LogSumExpOp(x, positions=self.positions), x, self.positions) - x

    def generate_adjoints(self, delta: TensorOp, x: TensorOp, t: TensorOp) -> Any:
        """Softmax times the sum of targets minus targets; the distance for the targets."""
        total = _repeat(SumOp(t, positions=self.positions), x, self.positions)
        spread = _repeat(delta, x, self.positions)
        dx = spread * (SoftmaxOp(x, positions=self.positions) * total - t)
        return dx, spread * self._distance(x)


class BinaryCrossEntropyLogitsOp(ElementwiseOp, CompositeOp):
    """-t log(y) - (1 - t) log(1 - y) for y = sigmoid(x), computed from x without overflow."""

    def reference(self, x: Any, t: Any) -> Any:
        """max(x, 0) - x t + log(1 + exp(-abs x))."""
        return np.maximum(x, 0) - x * t + np.log1p(np.exp(-np.abs(x)))

    def decompose(self, x: TensorOp, t: TensorOp) -> TensorOp:
        """max(x, 0) - x t + log(1 + exp(-abs x))."""
        return maximum(x, 0) - x * t + log(add(exp(negative(absolute(x))), 1))

    def partials(self, delta: TensorOp, x: TensorOp, t: TensorOp) -> tuple[TensorOp, TensorOp]:
        """Sigmoid(x) - t, and -x for the targets."""
        return delta * (SigmoidOp(x) - t), negative(delta * x)


SoftmaxOp.bypassed_by = (CrossEntropyLogitsOp, LogSumExpOp)
SigmoidOp.bypassed_by = (BinaryCrossEntropyLogitsOp,)


def _repeat(value: TensorOp, like: TensorOp, positions: tuple[int, ...]) -> TensorOp:
    """Return a reduced tensor repeated over the reduced axes."""
    kept = tuple(place for place in range(like.rank) if place not in positions)
    return BroadcastOp(value, target_axes=like.axes, dims=kept) if positions else value


def relu(x: Any) -> TensorOp:
    """Return the larger of x and 0."""
    return ReluOp(*align(ReluOp, x))


def sigmoid(x: Any) -> TensorOp:
    """Return 1 / (1 + exp(-x))."""
    return SigmoidOp(*align(SigmoidOp, x))


sigmoidAtomic = sigmoid  # noqa: N816


def safelog(x: Any) -> TensorOp:
    """Return the logarithm, limited below at -50."""
    return SafeLogOp(*align(SafeLogOp, x))


def softmax(x: Any, normalization_axes: Any = None) -> TensorOp:
    """Return exp(x) over its sum along the normalised axes.

    By default those are all but ``N`` and ``REC`` for named axes, and the last for positional ones.
    The result is a quotient that carries a `Softmax` schema, from which the cross entropies take
    the logits; gradients and computations use the composite that the schema names.
    """
    (x,) = align(InexactOp, x)
    positions = _normalised(x, normalization_axes)
    composite = SoftmaxOp(x, positions=positions)
    powers = exp(subtract(x, _repeat(MaxOp(x, positions=positions), x, positions)))
    result = divide(powers, _repeat(SumOp(powers, positions=positions), x, positions))
    result.add_schema(Softmax(composite))
    return result


def _normalised(x: TensorOp, axes: Any) -> tuple[int, ...]:
    if axes is not None:
        return tuple(sorted(x.axes.positions(axes)))
    if not x.axes.is_named:
        return (x.rank - 1,) if x.axes else ()
    return reduced_positions(x, None, None)


def cross_entropy_multi(y: Any, t: Any, usebits: bool = False, out_axes: Any = None) -> TensorOp:
    """Return the sum of ``-t log(y)`` over classes, in nats or, with `usebits`, in bits.

    For the result of `softmax` it is computed from the logits, finite at any of them, and summed
    over the axes that the softmax normalised; otherwise from `safelog`, over the default axes of
    `softmax`. `out_axes` names the axes to keep instead.
    """
    y, t = align(InexactOp, y, t)
    schema = y.find_schema(Softmax)
    if schema is not None and out_axes is None and t.axes == y.axes:
        result: TensorOp = CrossEntropyLogitsOp(schema.x, t, positions=schema.positions)
    elif schema is not None and t.axes == y.axes:
        logits = schema.x
        total = LogSumExpOp(logits, positions=schema.positions)
        inner = t * (_repeat(total, logits, schema.positions) - logits)
        result = reduction.sum(inner, out_axes=out_axes)
    else:
        inner = negative(multiply(t, safelog(y)))
        places = None if out_axes is not None else _normalised(inner, None)
        result = reduction.sum(inner, places, out_axes)
    return result * (1 / float(np.log(2))) if usebits else result


def cross_entropy_binary_inner(y: Any, t: Any) -> TensorOp:
    """Return ``-t log(y) - (1 - t) log(1 - y)``, from the logits where y is a sigmoid."""
    y, t = align(InexactOp, y, t)
    if isinstance(y.meaning, SigmoidOp) and y.axes == t.axes:
        return BinaryCrossEntropyLogitsOp(y.meaning.args[0], t)
    return negative(safelog(y) * t + safelog(1 - y) * (1 - t))


def cross_entropy_binary(y: Any, t: Any, out_axes: Any = None) -> TensorOp:
    """Return the binary cross entropy summed over the default axes, or all but `out_axes`."""
    return reduction.sum(cross_entropy_binary_inner(y, t), out_axes=out_axes)
