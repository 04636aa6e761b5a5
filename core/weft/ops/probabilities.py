"""Softmax and the logarithm of a sum of exponentials, and the schema by which losses know them."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.axes import Axes
from weft.dtypes import DType
from weft.ops.elementwise import InexactOp, align, divide, subtract
from weft.ops.math import exp, log
from weft.ops.movement import BroadcastOp
from weft.ops.reduction import MaxOp, ReductionOp, SumOp, reduced_positions
from weft.tensor import CompositeOp, TensorOp

__all__ = [
    "LogSumExpOp",
    "Schema",
    "Softmax",
    "SoftmaxOp",
    "softmax",
]


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
        powers = exp(x - repeated(MaxOp(x, positions=self.positions), x, self.positions))
        return powers / repeated(SumOp(powers, positions=self.positions), x, self.positions)

    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Self (delta - sum of delta self), over the normalised axes only."""
        share = SumOp(delta * self, positions=self.positions)
        return (self * (delta - repeated(share, x, self.positions)),)


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


def repeated(value: TensorOp, like: TensorOp, positions: tuple[int, ...]) -> TensorOp:
    """Return a reduced tensor repeated over the reduced axes."""
    kept = tuple(place for place in range(like.rank) if place not in positions)
    return BroadcastOp(value, target_axes=like.axes, dims=kept) if positions else value


def softmax(x: Any, normalization_axes: Any = None) -> TensorOp:
    """Return exp(x) over its sum along the normalised axes.

    By default those are all but ``N`` and ``REC`` for named axes, and the last for positional ones.
    The result is a quotient that carries a `Softmax` schema, from which the cross entropies take
    the logits; gradients and computations use the composite that the schema names.
    """
    (x,) = align(InexactOp, x)
    positions = normalised_positions(x, normalization_axes)
    composite = SoftmaxOp(x, positions=positions)
    powers = exp(subtract(x, repeated(MaxOp(x, positions=positions), x, positions)))
    result = divide(powers, repeated(SumOp(powers, positions=positions), x, positions))
    result.add_schema(Softmax(composite))
    return result


def normalised_positions(x: TensorOp, axes: Any) -> tuple[int, ...]:
    if axes is not None:
        return tuple(sorted(x.axes.positions(axes)))
    if not x.axes.is_named:
        return (x.rank - 1,) if x.axes else ()
    return reduced_positions(x, None, None)
