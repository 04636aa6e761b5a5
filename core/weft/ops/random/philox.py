"""Counter-based random bits: Philox 4x32-10, identical on every backend.

The key is a seed and a stream. The counter is the index of the element and the number of the call,
which is a state. So values are new at every call, reproducible from the start, and independent of
the order of computation. (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3;
SC 2011.)
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from weft.errors import ArgumentError, AxesError, DTypeError, WeftError
from weft.ir import dtypes, scope
from weft.ir.axes import Axes, AxesLike, make_axes
from weft.ir.dtypes import Array, DType, DTypeLike, accumulator_dtype
from weft.ir.op import explain
from weft.ir.storage import as_op, constant, persistent_tensor
from weft.ir.tensor import CompositeOp, TensorLike, TensorOp
from weft.ops.control.state import assign, value_of
from weft.ops.pointwise.bits import shift_right
from weft.ops.pointwise.elementwise import cast, multiply
from weft.ops.pointwise.math import cos, log, sqrt
from weft.ops.shape.joining import stack
from weft.ops.shape.movement import IotaOp, broadcast, cast_axes, reshape
from weft.support.backports import override

__all__ = [
    "RandomBitsOp",
    "normal",
    "random_bits",
    "uniform",
]

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_WORD = 0xFFFFFFFF
_DIGITS = {"float16": 11, "bfloat16": 8}
_streams = itertools.count(2**31)


def philox(counter: Any, key: tuple[int, int]) -> Any:
    """Return the four random words of each counter; counters are uint32 of shape (4, n).

    >>> philox(np.zeros((4, 1), np.uint32), (0, 0))[:, 0].tolist()
    [1713891541, 3781805453, 3159862348, 2600524760]
    """
    words = rounds([np.asarray(word, np.uint64) for word in counter], key)
    return np.stack(words).astype(np.uint32)


def rounds(words: list[Any], key: tuple[int, int]) -> list[Any]:
    """Return four words, uint64 arrays or tensors, after the ten rounds of Philox."""
    low, high = key
    mask, shift = np.uint64(_WORD), np.uint64(32)
    for _ in range(10):
        first = words[0] * _MULTIPLIERS[0]
        second = words[2] * _MULTIPLIERS[1]
        words = [
            (second >> shift) ^ words[1] ^ np.uint64(low),
            second & mask,
            (first >> shift) ^ words[3] ^ np.uint64(high),
            first & mask,
        ]
        low, high = (low + _KEY_STEPS[0]) & _WORD, (high + _KEY_STEPS[1]) & _WORD
    return words


def bits_of(size: int, call: Any, key: tuple[int, int], first: int = 0) -> Any:
    """Return the flat bits of `RandomBitsOp` from a block on."""
    blocks = np.arange(first, first - (-size // 4), dtype=np.uint64)
    counter = np.zeros((4, blocks.size), np.uint64)
    counter[0] = blocks & np.uint64(_WORD)
    counter[1] = blocks >> np.uint64(32)
    counter[2] = call
    return philox(counter, key).T.reshape(-1)[:size]


class RandomBitsOp(CompositeOp):
    """32 random bits for each element, as uint32; the operand is the number of the call.

    Element i is word ``i % 4`` of the block with the counter ``(i // 4, 0, call, 0)``; the second
    word of the counter has the high bits of block numbers from 2³².

    Attributes
    ----------
    target_axes
        The axes of the result.
    seed, stream
        The key, two words of 32 bits.
    """

    target_axes: Axes
    seed: int
    stream: int

    def infer(self) -> tuple[Axes, DType]:
        """Check the number of the call, and return the declared axes."""
        (call,) = self.args
        if call.axes or call.dtype != dtypes.uint32:
            raise AxesError(f"the call's number is a uint32 scalar, not {call.dtype} {call.axes}")
        return self.target_axes, dtypes.uint32

    def reference(self, call: Array) -> Any:
        """Run Philox for each block of four elements."""
        bits = bits_of(self.axes.size, call, (self.seed, self.stream))
        return bits.reshape(self.axes.shape)

    def decompose(self, call: TensorOp) -> TensorOp:
        """Run Philox in 64-bit integers."""
        size = self.axes.size
        axes = make_axes((-(-size // 4),))
        block = IotaOp(target_axes=axes, target_dtype=dtypes.uint64, position=0)
        zero = broadcast(constant(0, dtype=dtypes.uint64), axes)
        number = broadcast(cast(call, dtypes.uint64), axes)
        counter = [block & np.uint64(_WORD), block >> np.uint64(32), number, zero]
        words = rounds(counter, (self.seed, self.stream))
        bits = cast(stack(words, pos=1), dtypes.uint32)
        return cast_axes(reshape(bits, (-1,))[:size], self.axes)

    @override
    def generate_adjoints(self, delta: TensorOp, call: TensorOp) -> tuple[None]:
        return (None,)


def random_bits(axes: AxesLike | TensorOp, seed: int = 0, stream: int | None = None) -> TensorOp:
    """Return random uint32, new at every call; `axes` may be a tensor with the desired axes.

    `seed` is below 2³² and a given `stream` below 2³¹. By default each op has its own stream; ops
    with the same seed and stream give the same numbers.
    """
    key, calls = key_of("random_bits", seed, stream), call_number()
    return RandomBitsOp(calls, target_axes=axes_of(axes), seed=key[0], stream=key[1])


def call_number() -> TensorOp:
    """Return the number of the call, from 1, as a uint32 scalar counted by a state."""
    calls = persistent_tensor((), dtypes.uint32, 0)
    with scope.saved_user_deps():
        assign(calls, calls + 1)
        return value_of(calls)


def key_of(function: str, seed: int, stream: int | None) -> tuple[int, int]:
    """Return seed and stream, by default a new stream; raises ArgumentError out of range."""
    number = _word(function, "stream", stream, 31) if stream is not None else next(_streams)
    return _word(function, "seed", seed, 32), number


def _word(function: str, name: str, value: int, digits: int) -> int:
    if not isinstance(value, bool) and hasattr(value, "__index__"):
        number = int(value.__index__())
        if 0 <= number < 2**digits:
            return number
    problem = f"{name} must be an integer from 0 to 2**{digits} - 1, not {value!r}"
    raise ArgumentError(explain(function, problem, ()))


def axes_of(axes: AxesLike | TensorOp) -> Axes:
    """Return axes, or the axes of a tensor."""
    return axes.axes if isinstance(axes, TensorOp) else make_axes(axes)


def float_to_compute_in(function: str, dtype: DTypeLike) -> DType:
    """Return float32 for 16-bit floats, other floats unchanged; raises DTypeError for others."""
    target = dtypes.as_dtype(dtype)
    if not dtypes.is_float(target):
        problem = f"random numbers of {target} are not floats: cast them"
        raise DTypeError(explain(function, problem, ()))
    return accumulator_dtype(target)


def parameter(function: str, name: str, value: TensorLike, axes: Axes) -> TensorOp | float:
    """Return a parameter of a distribution: a finite number, or a tensor broadcast to the axes."""
    if isinstance(value, int | float):
        if not math.isfinite(value):
            problem = f"{name} must be a finite number, not {value!r}"
            raise ArgumentError(explain(function, problem, ()))
        return value
    try:
        op = as_op(value)
        if op.dtype.kind == "c":
            raise DTypeError(f"{op.dtype} numbers have no order")
        return broadcast(op, axes) if op.axes else op
    except WeftError as error:
        problem = f"{name} must be a number, or a tensor that fits {axes}: {error.problem}"
        raise type(error)(explain(function, problem, ())) from None


def unit(axes: Axes, dtype: DType, digits: int, seed: int, stream: int | None) -> TensorOp:
    """Return uniform multiples of 2 to the power of -digits in [0, 1)."""
    bits = shift_right(random_bits(axes, seed, stream), 32 - digits)
    return multiply(cast(bits, dtype), 2.0**-digits)


def uniform(
    axes: AxesLike | TensorOp,
    low: TensorLike = 0.0,
    high: TensorLike = 1.0,
    dtype: DTypeLike = dtypes.DEFAULT,
    seed: int = 0,
    stream: int | None = None,
) -> TensorOp:
    """Return uniformly distributed numbers in [low, high), new at every call; see `random_bits`.

    `low` and `high` are numbers, or tensors that broadcast to the axes. The resolution is 2⁻²⁴ of
    the interval, or less for dtypes with fewer digits. Where that is finer than the resolution of
    the dtype near `high`, rounding can give `high` itself.
    """
    target = axes_of(axes)
    working = float_to_compute_in("uniform", dtype)
    low, high = (
        parameter("uniform", name, value, target) for name, value in (("low", low), ("high", high))
    )
    digits = _DIGITS.get(dtypes.as_dtype(dtype).name, 24)
    share = unit(target, working, digits, seed, stream)
    if isinstance(low, TensorOp) or isinstance(high, TensorOp) or _is_wide(high - low, working):
        # Halves, because the difference itself may be out of range.
        low, high = (0.5 * cast(as_op(bound, working), working) for bound in (low, high))
        return cast((share * (high - low) + low) * 2.0, dtype)
    return cast(share * (high - low) + low, dtype)


def _is_wide(width: float, dtype: DType) -> bool:
    return abs(width) > float(np.finfo(dtype).max)


def normal(
    axes: AxesLike | TensorOp,
    loc: TensorLike = 0.0,
    scale: TensorLike = 1.0,
    dtype: DTypeLike = dtypes.DEFAULT,
    seed: int = 0,
    stream: int | None = None,
) -> TensorOp:
    """Return normally distributed numbers, new at every call; see `random_bits`.

    `loc` and `scale`, the mean and the standard deviation, are numbers, or tensors that broadcast
    to the axes. By the method of Box and Muller (1958), from two uniform numbers for each element.
    A given `stream` uses the streams ``2 * stream`` and ``2 * stream + 1`` of `random_bits`, so it
    must be below 2³⁰.
    """
    target = axes_of(axes)
    working = float_to_compute_in("normal", dtype)
    loc, scale = (
        parameter("normal", name, value, target) for name, value in (("loc", loc), ("scale", scale))
    )
    first, second = (None, None)
    if stream is not None:
        first = 2 * _word("normal", "stream", stream, 30)
        second = first + 1
    radius = sqrt(log(1.0 - unit(target, working, 24, seed, first)) * -2.0)
    angle = unit(target, working, 24, seed, second) * (2 * math.pi)
    return cast(radius * cos(angle) * scale + loc, dtype)
