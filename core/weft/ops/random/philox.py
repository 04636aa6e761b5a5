"""Counter-based random bits: Philox 4x32-10, identical on every backend.

The key is a seed and a stream. The counter is the index of the element and the number of the call,
which is a state. So values are new at every call, reproducible from the start, and independent of
the order of computation. `weft.random` takes keys as arguments instead. (Salmon, Moraes, Dror,
Shaw: Parallel random numbers: as easy as 1, 2, 3; SC 2011.)
"""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.errors import ArgumentError, AxesError, DTypeError, WeftError
from weft.ir import dtypes, scope
from weft.ir.axes import Axes, AxesLike, make_axes
from weft.ir.dtypes import Array, DType, DTypeLike, accumulator_dtype
from weft.ir.op import Op, explain
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

WORDS = 2
"""The words of a key."""

CALLS, SAMPLES, KEYS, FOLDED = range(4)
"""What bits are for: the last word of the counter, so that no two uses of a key share bits.

Numbers of a call that a state counts, numbers drawn from a key, keys split from a key, and keys
made of a key and an integer.
"""

BitSource = Callable[[Axes], TensorOp]
"""A function from axes to random uint32, which are independent of those of its other calls."""

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_KEY_STEPS = (np.uint64(0x9E3779B9), np.uint64(0xBB67AE85))
_WORD, _WIDTH = np.uint64(0xFFFFFFFF), np.uint64(32)
_PART = 2**15
_DIGITS = {"float16": 11, "bfloat16": 8}
_streams = itertools.count(2**31)
_call_counters: weakref.WeakValueDictionary[int, TensorOp] = weakref.WeakValueDictionary()
"""States that count calls, by their serial numbers."""


def philox(counter: Any, key: Any) -> Any:
    """Return the four random words of each counter; counters are uint32 of shape (4, n).

    >>> philox(np.zeros((4, 1), np.uint32), (0, 0))[:, 0].tolist()
    [1713891541, 3781805453, 3159862348, 2600524760]
    """
    words = rounds(*([np.asarray(word, np.uint64) for word in each] for each in (counter, key)))
    return np.stack(words).astype(np.uint32)


def rounds(words: list[Any], key: list[Any]) -> list[Any]:
    """Return four words after the ten rounds of Philox; all are uint64 arrays or tensors."""
    low, high = key
    for _ in range(10):
        first = words[0] * _MULTIPLIERS[0]
        second = words[2] * _MULTIPLIERS[1]
        words = [
            (second >> _WIDTH) ^ words[1] ^ low,
            second & _WORD,
            (first >> _WIDTH) ^ words[3] ^ high,
            first & _WORD,
        ]
        low, high = (low + _KEY_STEPS[0]) & _WORD, (high + _KEY_STEPS[1]) & _WORD
    return words


def _numbers_from_0(axes: Axes, position: int) -> tuple[TensorOp, TensorOp | None]:
    """Return both words of the numbers along an axis; None for high words that are all 0."""
    if axes[position].length <= 2**32:
        return IotaOp(target_axes=axes, target_dtype=dtypes.uint32, position=position), None
    number = IotaOp(target_axes=axes, target_dtype=dtypes.uint64, position=position)
    return cast(number, dtypes.uint32), cast(number >> _WIDTH, dtypes.uint32)


def _rounds_of_words(words: list[TensorOp], key: list[TensorOp]) -> list[TensorOp]:
    """Return what `rounds` does, in 32-bit arithmetic, where sums and products wrap."""
    first, second = (np.uint32(each) for each in _MULTIPLIERS)
    steps = [np.uint32(each) for each in _KEY_STEPS]
    for _ in range(10):
        words = [
            high_word(words[2], second) ^ words[1] ^ key[0],
            words[2] * second,
            high_word(words[0], first) ^ words[3] ^ key[1],
            words[0] * first,
        ]
        key = [word + step for word, step in zip(key, steps, strict=True)]
    return words


def high_word(x: TensorOp, y: Any) -> TensorOp:
    """Return the high words of products of uint32, by those of their halves.

    `y` is a number of this dtype, as in `_MULTIPLIERS`.
    """
    half, mask = np.uint32(16), np.uint32(0xFFFF)
    low, high = x & mask, x >> half
    below, above = np.uint32(y & mask), np.uint32(y >> half)
    # Neither sum exceeds 2³² - 1: (2¹⁶ - 1)² + 2 (2¹⁶ - 1) is that.
    middle = high * below + (low * below >> half)
    return high * above + (middle >> half) + (low * above + (middle & mask) >> half)


def bits_of(size: int, key: Any, counter: Any, domain: int = CALLS, first: int = 0) -> Any:
    """Return the flat bits of `RandomBitsOp` for each key, from a block on."""
    blocks = np.arange(first, first - (-size // 4), dtype=np.uint64)
    keys = np.asarray(key, np.uint64)[..., None]
    number = np.asarray(counter, np.uint64)[..., None]
    words = rounds(
        [blocks & _WORD, blocks >> _WIDTH, number, np.uint64(domain)],
        [keys[..., 0, :], keys[..., 1, :]],
    )
    bits = np.empty((*keys.shape[:-2], blocks.size, 4), np.uint32)
    for place, word in enumerate(words):
        bits[..., place] = word
    return bits.reshape(*keys.shape[:-2], 4 * blocks.size)[..., :size]


class RandomBitsOp(CompositeOp):
    """32 random bits for each element, as uint32, determined by a key and a counter.

    The operands are keys, two words of uint32 along the last axis, and a uint32 counter for all
    keys, or one for each. The axes of the keys but the last come first in the result. For each key,
    element i is word ``i % 4`` of the block with the counter ``(i // 4, 0, counter, domain)``; the
    second word of the counter has the high bits of block numbers from 2³².

    Attributes
    ----------
    target_axes
        The axes of the bits of one key.
    domain
        What the bits are for, a number below 2³²: bits of two domains are independent.
    """

    takes_contiguous = True

    target_axes: Axes
    domain: int

    def infer(self) -> tuple[Axes, DType]:
        """Check key and counter, and return the axes of the keys and the declared ones."""
        key, counter = self.args
        if key.dtype != dtypes.uint32 or key.axes.lengths[-1:] != (WORDS,):
            raise AxesError(f"a key is {WORDS} words of uint32, not {key.dtype} {key.axes}")
        if counter.dtype != dtypes.uint32 or counter.axes not in (Axes(), self._batch):
            problem = f"a uint32 scalar, or has {self._batch}, not {counter.dtype} {counter.axes}"
            raise AxesError(f"the counter is {problem}")
        return self._batch + self.target_axes, dtypes.uint32

    @property
    def _batch(self) -> Axes:
        return Axes(self.args[0].axes[:-1])

    def reference(self, key: Array, counter: Array) -> Any:
        """Run Philox for each block of four elements."""
        bits = bits_of(self.target_axes.size, key, counter, self.domain)
        return bits.reshape(self.axes.shape)

    def decompose(self, key: TensorOp, counter: TensorOp) -> TensorOp:
        """Run Philox in 32-bit integers, which every device has."""
        batch, size = self._batch.lengths, self.target_axes.size
        axes = make_axes((*batch, -(-size // 4)))

        def spread(word: TensorOp) -> TensorOp:
            return broadcast(cast_axes(word, (*batch, 1)) if word.axes else word, axes)

        def word(number: int) -> TensorOp:
            return spread(constant(number, dtype=dtypes.uint32))

        low, high = _numbers_from_0(axes, len(batch))
        words = [low, word(0) if high is None else high, spread(counter), word(self.domain)]
        keys = [spread(key[..., place]) for place in range(WORDS)]
        bits = stack(_rounds_of_words(words, keys), pos=len(axes))
        return cast_axes(reshape(bits, (*batch, 4 * axes[-1].length))[..., :size], self.axes)

    @override
    def generate_adjoints(self, delta: TensorOp, key: TensorOp, counter: TensorOp) -> Any:
        return None, None


def random_bits(axes: AxesLike | TensorOp, seed: int = 0, stream: int | None = None) -> TensorOp:
    """Return random bits, new at every call.

    Parameters
    ----------
    axes
        The axes, the lengths of positional ones, or a tensor whose axes are meant.
    seed
        A number from 0 to 2³² - 1.
    stream
        A number from 0 to 2³¹ - 1; by default each op has its own. Ops with the same seed and
        stream give the same numbers, on every backend.

    Returns
    -------
    TensorOp
        The bits, as uint32.

    Raises
    ------
    ArgumentError
        If a number is out of range.

    Examples
    --------
    >>> draw = weft.make_transformer().computation(weft.random_bits((3,), seed=0, stream=0))
    >>> draw()
    array([2219120097, 4035800746,  253345875], dtype=uint32)
    """
    key, calls = key_of("random_bits", seed, stream), call_number()
    return RandomBitsOp(key, calls, target_axes=axes_of(axes), domain=CALLS)


def fresh_bits(seed: int, *streams: int | None) -> BitSource:
    """Return a source of `random_bits`; each use takes the next one of the streams."""
    left = iter(streams)
    return lambda axes: random_bits(axes, seed, next(left))


def bits_from(function: str, key: TensorLike) -> BitSource:
    """Return a source of bits that a key determines; the number of the use is the counter."""
    checked, uses = checked_key(function, key), itertools.count()

    def draw(axes: Axes) -> TensorOp:
        counter = constant(next(uses), dtype=dtypes.uint32)
        return RandomBitsOp(checked, counter, target_axes=axes, domain=SAMPLES)

    return draw


def checked_key(function: str, key: TensorLike) -> TensorOp:
    """Return a key as an op; raises ArgumentError unless it is two words of uint32."""
    way = "make one with weft.random.key(0), or with weft.random.split(key)"
    if isinstance(key, bool | int | float | complex) or key is None:
        raise ArgumentError(explain(function, f"takes a key, not {key!r}: {way}", ()))
    try:
        op = as_op(key)
    except WeftError as error:
        problem = f"takes a key, not {key!r:.80}: {way}"
        raise ArgumentError(explain(function, problem, ())) from error
    if op.dtype == dtypes.uint32 and op.axes.lengths == (WORDS,):
        return op
    if op.dtype == dtypes.uint32 and op.axes.lengths[-1:] == (WORDS,):
        way = "take one of them, as in keys[0]"
    problem = f"takes a key, which is {WORDS} words of uint32, not {op.dtype} {op.axes}: {way}"
    raise ArgumentError(explain(function, problem, (op,)))


def call_number() -> TensorOp:
    """Return the number of the call, from 1, as a uint32 scalar counted by a state."""
    calls = persistent_tensor((), dtypes.uint32, 0)
    _call_counters[calls.serial] = calls
    with scope.saved_user_deps():
        assign(calls, calls + 1)
        return value_of(calls)


def counts_calls(state: Op) -> bool:
    """Whether a state counts the calls of an op that draws random numbers."""
    return state.serial in _call_counters


def fill_bits(domain: int, key: Any, counter: Any, out: Any) -> None:
    """Fill an array with the random words of keys and counters, one for each of its rows.

    Words are computed in parts that stay in the cache between the rounds.
    """
    keys = key.reshape(-1, WORDS)
    counters = np.broadcast_to(counter.reshape(-1), len(keys))
    size = out.size // max(len(keys), 1)
    rows = out.reshape(len(keys), size)
    several = max(_PART // max(size, 1), 1)
    for first in range(0, len(keys), several):
        part = slice(first, first + several)
        for start in range(0, size, _PART):
            count = min(_PART, size - start)
            bits = bits_of(count, keys[part], counters[part], domain, start // 4)
            rows[part, start : start + count] = bits


def key_of(function: str, seed: int, stream: int | None) -> TensorOp:
    """Return the key of a seed and a stream, by default a new one.

    Raises ArgumentError out of range.
    """
    number = _word(function, "stream", stream, 31) if stream is not None else next(_streams)
    return constant(np.array([_word(function, "seed", seed, 32), number], np.uint32))


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


def location_and_scale(
    function: str, loc: TensorLike, scale: TensorLike, axes: Axes
) -> tuple[TensorOp | float, TensorOp | float]:
    """Return two parameters of a distribution, of which the second is at least 0 if it is known."""
    if isinstance(scale, int | float) and not scale >= 0:
        raise ArgumentError(explain(function, f"scale must be at least 0, not {scale!r}", ()))
    return parameter(function, "loc", loc, axes), parameter(function, "scale", scale, axes)


def unit(draw: BitSource, axes: Axes, dtype: DType, digits: int) -> TensorOp:
    """Return uniform multiples of 2 to the power of -digits in [0, 1)."""
    return multiply(cast(shift_right(draw(axes), 32 - digits), dtype), 2.0**-digits)


def middles(words: TensorOp, dtype: DType) -> TensorOp:
    """Return midpoints of 2²³ equal intervals from 0 to 1 for random words, exact in float32."""
    return cast(shift_right(words, 32 - 23), dtype) * 2.0**-23 + 2.0**-24


def uniform(
    axes: AxesLike | TensorOp,
    low: TensorLike = 0.0,
    high: TensorLike = 1.0,
    dtype: DTypeLike = dtypes.DEFAULT,
    seed: int = 0,
    stream: int | None = None,
) -> TensorOp:
    """Return uniformly distributed numbers in [low, high), new at every call.

    The resolution is 2⁻²⁴ of the interval, or less for dtypes with fewer digits. Where that is
    finer than the resolution of the dtype near `high`, rounding can give `high` itself.

    Parameters
    ----------
    axes
        The axes, the lengths of positional ones, or a tensor whose axes are meant.
    low, high
        The limits: numbers, or tensors that broadcast to the axes.
    dtype
        A float dtype.
    seed
        A number from 0 to 2³² - 1.
    stream
        A number from 0 to 2³¹ - 1; by default each op has its own. Ops with the same seed and
        stream give the same numbers, on every backend.

    Returns
    -------
    TensorOp
        The numbers. Their gradients go to tensors of limits.

    Raises
    ------
    ArgumentError
        If a number is out of range.
    AxesError
        If a tensor of parameters does not broadcast to the axes.
    DTypeError
        If the dtype is not a float.

    Examples
    --------
    >>> draw = weft.make_transformer().computation(weft.uniform((3,), seed=0, stream=0))
    >>> draw()
    array([0.5167, 0.9397, 0.059 ], dtype=float32)
    >>> draw()  # new at every call
    array([0.0249, 0.7129, 0.1489], dtype=float32)
    """
    return sample_uniform(fresh_bits(seed, stream), axes, {"low": low, "high": high}, dtype)


def sample_uniform(
    draw: BitSource, axes: AxesLike | TensorOp, bounds: dict[str, TensorLike], dtype: DTypeLike
) -> TensorOp:
    """Return uniformly distributed numbers between two bounds, which are given by name."""
    target = axes_of(axes)
    working = float_to_compute_in("uniform", dtype)
    low, high = (parameter("uniform", name, value, target) for name, value in bounds.items())
    digits = _DIGITS.get(dtypes.as_dtype(dtype).name, 24)
    share = unit(draw, target, working, digits)
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
    """Return normally distributed numbers, new at every call.

    By the method of Box and Muller (1958), from two uniform numbers for each element.

    Parameters
    ----------
    axes
        The axes, the lengths of positional ones, or a tensor whose axes are meant.
    loc, scale
        The mean and the standard deviation: numbers, or tensors that broadcast to the axes.
    dtype
        A float dtype.
    seed
        A number from 0 to 2³² - 1.
    stream
        A number from 0 to 2³⁰ - 1; by default each op has its own. It uses the streams ``2 *
        stream`` and ``2 * stream + 1`` of `random_bits`. Ops with the same seed and stream give the
        same numbers, on every backend.

    Returns
    -------
    TensorOp
        The numbers. Their gradients go to tensors of parameters.

    Raises
    ------
    ArgumentError
        If a number is out of range.
    AxesError
        If a tensor of parameters does not broadcast to the axes.
    DTypeError
        If the dtype is not a float.

    Examples
    --------
    >>> draw = weft.make_transformer().computation(weft.normal((3,), seed=0, stream=0))
    >>> draw()
    array([-1.2058,  2.1594,  0.3457], dtype=float32)
    """
    first, second = (None, None)
    if stream is not None:
        first = 2 * _word("normal", "stream", stream, 30)
        second = first + 1
    return sample_normal(fresh_bits(seed, first, second), axes, loc, scale, dtype)


def sample_normal(
    draw: BitSource,
    axes: AxesLike | TensorOp,
    loc: TensorLike,
    scale: TensorLike,
    dtype: DTypeLike,
) -> TensorOp:
    """Return normally distributed numbers."""
    target = axes_of(axes)
    working = float_to_compute_in("normal", dtype)
    loc, scale = location_and_scale("normal", loc, scale, target)
    radius = sqrt(log(1.0 - unit(draw, target, working, 24)) * -2.0)
    angle = unit(draw, target, working, 24) * (2 * math.pi)
    return cast(radius * cos(angle) * scale + loc, dtype)
