"""Dropout."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.errors import ArgumentError, AxesError, DTypeError
from weft.ir import dtypes
from weft.ir.axes import Axes
from weft.ir.dtypes import Array, DType, accumulator_dtype
from weft.ir.op import explain
from weft.ir.storage import constant
from weft.ir.tensor import CompositeOp, TensorLike, TensorOp
from weft.ops.pointwise.comparison import less, where
from weft.ops.pointwise.elementwise import InexactOp, align, cast, multiply
from weft.ops.random.distributions import probability, threshold
from weft.ops.random.philox import RandomBitsOp, bits_of, call_number, key_of
from weft.ops.shape.movement import zeros_like
from weft.ranks.collectives import rank_index
from weft.support.backports import override

__all__ = ["DropoutOp", "dropout"]


class DropoutOp(CompositeOp):
    """Dropout: sets elements to 0 at random, and divides the others by the probability to keep.

    16-bit floats are scaled in float32.

    The second operand is the number of the call. With seed and stream it determines the mask, as in
    `RandomBitsOp`, so the gradient recomputes the mask instead of storing it.

    Attributes
    ----------
    rate
        The probability of 0, from 0 to less than 1.
    seed, stream
        The key of the random bits.
    """

    rate: float
    seed: int
    stream: int

    @override
    def infer(self) -> tuple[Axes, DType]:
        x, call = self.args
        if not dtypes.is_inexact(x.dtype):
            raise DTypeError(f"dropout takes floats, not {x.dtype}: cast them")
        if call.axes or call.dtype != dtypes.uint32:
            raise AxesError(f"the call's number is a uint32 scalar, not {call.dtype} {call.axes}")
        return x.axes, x.dtype

    @override
    def may_overwrite(self, index: int) -> bool:
        return index == 0

    @property
    def scale(self) -> float:
        """The factor of kept elements."""
        return 1 / (1 - self.rate)

    def reference(self, x: Array, call: Array) -> Any:
        """Compute the mask by comparing random bits with the rate."""
        bits = bits_of(self.axes.size, call, (self.seed, self.stream)).reshape(self.axes.shape)
        stays = bits >= np.uint64(threshold(self.rate))
        wide = np.asarray(x, accumulator_dtype(self.dtype)) * self.scale
        return np.where(stays, wide.astype(self.dtype), np.zeros((), self.dtype))

    def decompose(self, x: TensorOp, call: TensorOp) -> TensorOp:
        """Compute the mask by comparing random bits with the rate."""
        bits = RandomBitsOp(call, target_axes=x.axes, seed=self.seed, stream=self.stream)
        drops = less(bits, constant(threshold(self.rate), dtype=dtypes.uint32))
        scaled = cast(cast(x, accumulator_dtype(self.dtype)) * self.scale, self.dtype)
        return where(drops, 0, scaled)

    def generate_adjoints(self, delta: TensorOp, x: TensorOp, call: TensorOp) -> Any:
        """Apply the same dropout to the adjoint."""
        return DropoutOp(delta, call, **self.attributes()), None


def dropout(
    x: TensorLike,
    rate: float,
    training: bool = True,
    seed: int = 0,
    stream: int | None = None,
    by_rank: bool = False,
) -> TensorOp:
    """Return x with each element set to 0 with probability `rate`, and the others scaled.

    The kept elements are divided by ``1 - rate``, which preserves the mean. Without `training` x is
    returned unchanged. Integers count as float32. The gradient drops the same elements. With
    `by_rank` each rank drops other elements, by default all drop the same.
    (Srivastava, Hinton, Krizhevsky, Sutskever and Salakhutdinov: Dropout, 2014.)
    """
    if not isinstance(training, bool):
        problem = f"training must be True or False when the graph is built, not {training!r}"
        raise ArgumentError(explain("dropout", problem, ()))
    chance, key = probability("dropout", "rate", rate), key_of("dropout", seed, stream)
    (op,) = align(InexactOp, x)
    if not training or chance == 0:
        return op
    if chance == 1:
        return zeros_like(op)
    return DropoutOp(op, _call_number(by_rank), rate=chance, seed=key[0], stream=key[1])


def _call_number(by_rank: bool) -> TensorOp:
    """Return the number of the call; with `by_rank` no two ranks number their calls alike."""
    number = call_number()
    if not by_rank:
        return number
    rank = rank_index()
    return multiply(number, rank.ranks) + cast(rank, dtypes.uint32)
