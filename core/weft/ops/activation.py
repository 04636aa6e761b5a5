"""Activations: the nonlinear functions between the layers of a network."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.ops.comparison import greater, maximum, where
from weft.ops.elementwise import ElementwiseOp, InexactOp, build, square
from weft.ops.math import tanh
from weft.tensor import CompositeOp, TensorOp

__all__ = [
    "ReluOp",
    "SigmoidOp",
    "relu",
    "sigmoid",
    "sigmoidAtomic",
]


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


def relu(x: Any) -> TensorOp:
    """Return the larger of x and 0."""
    return build(ReluOp, x)


def sigmoid(x: Any) -> TensorOp:
    """Return 1 / (1 + exp(-x))."""
    return build(SigmoidOp, x)


sigmoidAtomic = sigmoid  # noqa: N816
