"""Dropout."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import ops, ranks
from weft.errors import ArgumentError, AxesError, DTypeError
from weft.ir import dtypes
from weft.ir.axes import Axes
from weft.ir.dtypes import Array, DType, accumulator_dtype
from weft.ir.op import explain
from weft.ir.storage import constant
from weft.ir.tensor import CompositeOp, TensorLike, TensorOp
from weft.ops.pointwise.elementwise import align
from weft.ops.random.distributions import probability, threshold
from weft.ops.random.philox import CALLS, SAMPLES, WORDS, bits_of, call_number, checked_key, key_of
from weft.support.backports import override

__all__ = ["DropoutOp", "dropout"]


class DropoutOp(CompositeOp):
    """Dropout: sets elements to 0 at random, and divides the others by the probability to keep.

    16-bit floats are scaled in float32.

    The other operands are a key and a counter. They determine the mask, as in `RandomBitsOp`, so
    the gradient recomputes the mask instead of storing it.

    Attributes
    ----------
    rate
        The probability of 0, from 0 to less than 1.
    domain
        What the bits are for, as in `RandomBitsOp`.
    """

    rate: float
    domain: int

    @override
    def infer(self) -> tuple[Axes, DType]:
        x, key, counter = self.args
        if not dtypes.is_inexact(x.dtype):
            raise DTypeError(f"dropout takes floats, not {x.dtype}: cast them")
        for what, op, lengths in (("key", key, (WORDS,)), ("counter", counter, ())):
            if op.dtype != dtypes.uint32 or op.axes.lengths != lengths:
                shape = list(lengths)
                raise AxesError(f"the {what} is uint32 {shape}, not {op.dtype} {op.axes}")
        return x.axes, x.dtype

    @override
    def may_overwrite(self, index: int) -> bool:
        return index == 0

    @property
    def scale(self) -> float:
        """The factor of kept elements."""
        return 1 / (1 - self.rate)

    def reference(self, x: Array, key: Array, counter: Array) -> Any:
        """Compute the mask by comparing random bits with the rate."""
        bits = bits_of(self.axes.size, key, counter, self.domain).reshape(self.axes.shape)
        stays = bits >= np.uint64(threshold(self.rate))
        wide = np.asarray(x, accumulator_dtype(self.dtype)) * self.scale
        return np.where(stays, wide.astype(self.dtype), np.zeros((), self.dtype))

    def decompose(self, x: TensorOp, key: TensorOp, counter: TensorOp) -> TensorOp:
        """Compute the mask by comparing random bits with the rate."""
        bits = ops.RandomBitsOp(key, counter, target_axes=x.axes, domain=self.domain)
        drops = ops.less(bits, constant(threshold(self.rate), dtype=dtypes.uint32))
        scaled = ops.cast(ops.cast(x, accumulator_dtype(self.dtype)) * self.scale, self.dtype)
        return ops.where(drops, 0, scaled)

    def generate_adjoints(self, delta: TensorOp, *args: TensorOp) -> Any:
        """Apply the same dropout to the adjoint."""
        return DropoutOp(delta, *args[1:], **self.attributes()), None, None


def dropout(
    x: TensorLike,
    rate: float,
    training: bool = True,
    seed: int = 0,
    stream: int | None = None,
    by_rank: bool = False,
    key: TensorLike | None = None,
) -> TensorOp:
    """Return x with each element set to 0 with probability `rate`, and the others scaled.

    The kept elements are divided by ``1 - rate``, which preserves the mean. The gradient drops the
    same elements. (Srivastava, Hinton, Krizhevsky, Sutskever and Salakhutdinov: Dropout, 2014.)

    Parameters
    ----------
    x
        A tensor of floats or complex numbers; integers count as float32.
    rate
        The probability of 0, a Python number from 0 to 1.
    training
        Whether elements are dropped; otherwise x is returned unchanged.
    seed, stream
        Without a key the elements are new at every call. `seed` is below 2³² and a given `stream`
        below 2³¹; ops with the same of both drop the same elements. By default each op has a stream
        of its own.
    by_rank
        Whether each rank drops other elements.
    key
        A key of `weft.random`, which decides what is dropped: the same key drops the same elements.
        A function under `jit` needs one.

    Returns
    -------
    TensorOp
        Floats, with the axes of x. 16-bit floats are scaled in float32.

    Raises
    ------
    ArgumentError
        If the rate is out of range, `training` is not a bool, the key is not a key, or a key comes
        with a seed or a stream.

    Examples
    --------
    >>> y = weft.jit(lambda x, key: weft.dropout(x, 0.5, key=key))(np.ones(8), weft.random.key(0))
    >>> sorted(set(y.tolist()))
    [0.0, 2.0]
    >>> weft.jit(lambda x: weft.dropout(x, 0.5, training=False))(np.ones(4))
    array([1., 1., 1., 1.])
    """
    if not isinstance(training, bool):
        problem = f"training must be True or False when the graph is built, not {training!r}"
        raise ArgumentError(explain("dropout", problem, ()))
    if key is not None and (seed != 0 or stream is not None):
        problem = "takes a key, or a seed and a stream, not both"
        raise ArgumentError(explain("dropout", problem, ()))
    chance = probability("dropout", "rate", rate)
    bits = key_of("dropout", seed, stream) if key is None else checked_key("dropout", key)
    (op,) = align(ops.InexactOp, x)
    if not training or chance == 0:
        return op
    if chance == 1:
        return ops.zeros_like(op)
    if key is None:
        return DropoutOp(op, bits, _call_number(by_rank), rate=chance, domain=CALLS)
    counter = ranks.rank_index() if by_rank else constant(0)
    return DropoutOp(op, bits, ops.cast(counter, dtypes.uint32), rate=chance, domain=SAMPLES)


def _call_number(by_rank: bool) -> TensorOp:
    """Return the number of the call; with `by_rank` no two ranks number their calls alike."""
    number = call_number()
    if not by_rank:
        return number
    rank = ranks.rank_index()
    return ops.multiply(number, rank.ranks) + ops.cast(rank, dtypes.uint32)
