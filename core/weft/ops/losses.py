"""Losses: distances between what a network gives and what it should give."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.axes import Axes
from weft.dtypes import DType
from weft.errors import AxesError
from weft.ops import reduction
from weft.ops.activation import SigmoidOp
from weft.ops.comparison import greater, maximum, where
from weft.ops.elementwise import (
    ElementwiseOp,
    InexactOp,
    absolute,
    add,
    align,
    build,
    multiply,
    negative,
)
from weft.ops.math import exp, log
from weft.ops.probabilities import LogSumExpOp, Softmax, SoftmaxOp, normalised_positions, repeated
from weft.ops.reduction import SumOp
from weft.tensor import CompositeOp, TensorOp

__all__ = [
    "BinaryCrossEntropyLogitsOp",
    "CrossEntropyLogitsOp",
    "SafeLogOp",
    "cross_entropy_binary",
    "cross_entropy_binary_inner",
    "cross_entropy_multi",
    "safelog",
]


SAFE_LOG_LOWEST = -50.0
SAFE_LOG_FLOOR = float(np.exp(SAFE_LOG_LOWEST))


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
        return repeated(LogSumExpOp(x, positions=self.positions), x, self.positions) - x

    def generate_adjoints(self, delta: TensorOp, x: TensorOp, t: TensorOp) -> Any:
        """Softmax times the sum of targets minus targets; the distance for the targets."""
        total = repeated(SumOp(t, positions=self.positions), x, self.positions)
        spread = repeated(delta, x, self.positions)
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


def safelog(x: Any) -> TensorOp:
    """Return the logarithm, limited below at -50."""
    return build(SafeLogOp, x)


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
        inner = t * (repeated(total, logits, schema.positions) - logits)
        result = reduction.sum(inner, out_axes=out_axes)
    else:
        inner = negative(multiply(t, safelog(y)))
        places = None if out_axes is not None else normalised_positions(inner, None)
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
