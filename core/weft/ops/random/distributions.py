"""Random distributions and permutations.

All use `random_bits`: samples are new at every call, reproducible from the start, and depend on
`seed` and `stream` as described there. Integers, permutations and dropout masks are the same on
every backend. Floats differ by the rounding of functions such as the logarithm.

Distributions that reject proposals are in `rejection`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import SupportsIndex

import numpy as np

from weft.errors import ArgumentError, AxesError, DTypeError
from weft.ir import dtypes
from weft.ir.axes import Axes, AxesLike, Axis, AxisKey, broadcast_axes, make_axes
from weft.ir.dtypes import DType, DTypeLike
from weft.ir.lengths import Length
from weft.ir.op import explain
from weft.ir.storage import as_op, constant
from weft.ir.tensor import TensorLike, TensorOp
from weft.ops.arguments import as_number
from weft.ops.indexing.gathering import take
from weft.ops.pointwise.bits import bitwise_or, shift_left
from weft.ops.pointwise.comparison import (
    greater,
    greater_equal,
    less,
    maximum,
    minimum,
    where,
)
from weft.ops.pointwise.elementwise import (
    FloatOp,
    absolute,
    align,
    cast,
    negative,
    square,
)
from weft.ops.pointwise.math import log, sqrt
from weft.ops.pointwise.polynomials import polynomial
from weft.ops.random.philox import (
    BitSource,
    axes_of,
    float_to_compute_in,
    fresh_bits,
    high_word,
    location_and_scale,
    middles,
    parameter,
)
from weft.ops.reductions.cumulative import place
from weft.ops.reductions.reduction import argmax
from weft.ops.reductions.sorting import argsort
from weft.ops.shape.arrangement import moveaxis
from weft.ops.shape.movement import broadcast, cast_axes

__all__ = [
    "bernoulli",
    "categorical",
    "exponential",
    "gumbel",
    "laplace",
    "permutation",
    "randint",
    "shuffle",
    "truncated_normal",
]

_WORDS = 2**32


def threshold(chance: float) -> int:
    """Return the number of 32-bit words, out of 2³², that give True with this probability."""
    return int(chance * _WORDS)


def probability(function: str, name: str, value: float) -> float:
    if isinstance(value, int | float) and 0 <= value <= 1:
        return float(value)
    problem = f"{name} must be a number from 0 to 1, not {value!r}"
    raise ArgumentError(explain(function, problem, ()))


def bernoulli(
    p: TensorLike,
    axes: AxesLike | TensorOp | None = None,
    dtype: DTypeLike = "bool",
    seed: int = 0,
    stream: int | None = None,
) -> TensorOp:
    """Return Bernoulli samples, new at every call: True with a probability.

    Parameters
    ----------
    p
        The probability: a number, or a tensor, which is clipped to the range from 0 to 1. Its
        resolution is 2⁻³². It has no gradient.
    axes
        The axes that `p` is broadcast to, or a tensor whose axes are meant; by default those of
        `p`.
    dtype
        The dtype of the samples.
    seed
        A number from 0 to 2³² - 1.
    stream
        A number from 0 to 2³¹ - 1; by default each op has its own. Ops with the same seed and
        stream give the same numbers, on every backend.

    Returns
    -------
    TensorOp
        The samples.

    Raises
    ------
    ArgumentError
        If a number is out of range.
    AxesError
        If `p` does not broadcast to the axes.
    DTypeError
        If a tensor of probabilities is not a float.

    Examples
    --------
    >>> draw = weft.make_transformer().computation(weft.bernoulli(0.5, (5,), seed=0, stream=0))
    >>> draw()
    array([False, False,  True, False, False])
    """
    return sample_bernoulli(fresh_bits(seed, stream), p, axes, dtype)


def sample_bernoulli(
    draw: BitSource, p: TensorLike, axes: AxesLike | TensorOp | None, dtype: DTypeLike
) -> TensorOp:
    """Return Bernoulli samples."""
    if isinstance(p, int | float):
        target = axes_of(() if axes is None else axes)
        yes: TensorOp = constant(threshold(probability("bernoulli", "p", p)), dtype=dtypes.uint64)
    else:
        chance = as_op(p)
        if not dtypes.is_float(chance.dtype):
            problem = f"p must be a probability, a float, not {chance.dtype}"
            raise DTypeError(explain("bernoulli", problem, (chance,)))
        target = chance.axes if axes is None else axes_of(axes)
        chance = as_op(parameter("bernoulli", "p", chance, target))
        wide = cast(chance, float_to_compute_in("bernoulli", chance.dtype))
        is_certain = greater_equal(wide, 1.0)
        chosen = where(is_certain, 0.0, maximum(wide, 0.0)) * float(_WORDS)
        return cast(is_certain | less(draw(target), cast(chosen, dtypes.uint32)), dtype)
    return cast(less(cast(draw(target), dtypes.uint64), yes), dtype)


def randint(
    axes: AxesLike | TensorOp,
    low: int,
    high: int,
    dtype: DTypeLike = dtypes.int32,
    seed: int = 0,
    stream: int | None = None,
) -> TensorOp:
    """Return uniformly distributed integers, new at every call.

    They are the upper half of the product of 64 random bits and the size of the range. The error of
    each probability is at most 2⁻⁶⁴. (Lemire: Fast random integer generation in an interval, 2019;
    without the rejection step.)

    Parameters
    ----------
    axes
        The axes, the lengths of positional ones, or a tensor whose axes are meant.
    low, high
        The least integer, and the one after the greatest. There are at most 2³² between.
    dtype
        An integer dtype, which they must fit.
    seed
        A number from 0 to 2³² - 1.
    stream
        A number from 0 to 2³¹ - 1; by default each op has its own. Ops with the same seed and
        stream give the same numbers, on every backend.

    Returns
    -------
    TensorOp
        The integers.

    Raises
    ------
    ArgumentError
        If the bounds are not integers, are in the wrong order or do not fit the dtype, or seed or
        stream are out of range.
    DTypeError
        If the dtype is not an integer.

    Examples
    --------
    >>> draw = weft.make_transformer().computation(weft.randint((5,), 0, 10, seed=0, stream=0))
    >>> draw()
    array([5, 9, 0, 5, 7], dtype=int32)
    """
    return sample_integers(fresh_bits(seed, stream), axes, {"low": low, "high": high}, dtype)


def sample_integers(
    draw: BitSource, axes: AxesLike | TensorOp, bounds: dict[str, SupportsIndex], dtype: DTypeLike
) -> TensorOp:
    """Return uniformly distributed integers between two bounds, which are given by name."""
    target, kind = axes_of(axes), dtypes.as_dtype(dtype)
    lowest, count = _range(bounds, kind)
    words = draw(make_axes((2, target.size)))
    drawn = words[0]
    if count < _WORDS:
        # The high word of the product of 64 random bits and the count, less a rounding error.
        times = np.uint32(count)
        low, carry = words[0] * times, high_word(words[1], times)
        drawn = high_word(words[0], times) + cast(less(low + carry, low), dtypes.uint32)
    if kind.itemsize <= 4:
        return cast_axes(cast(drawn + np.uint32(lowest % _WORDS), kind), target)
    return cast_axes(cast(drawn, kind) + kind.type(lowest), target)


def _range(bounds: dict[str, SupportsIndex], dtype: DType) -> tuple[int, int]:
    """Return the lowest integer and the size of the range; raises for invalid bounds."""
    low, high = bounds.values()
    if not dtypes.is_integer(dtype):
        problem = f"the results must be integers, not {dtype}: cast them, or use uniform"
        raise DTypeError(explain("randint", problem, ()))
    limits = np.iinfo(dtype)
    for bound in (low, high):
        if isinstance(bound, bool) or not hasattr(bound, "__index__"):
            problem = f"{' and '.join(bounds)} must be integers, not {bound!r}"
            raise ArgumentError(explain("randint", problem, ()))
    lowest, end = int(low.__index__()), int(high.__index__())
    if not (limits.min <= lowest < end <= limits.max + 1) or end - lowest > _WORDS:
        problem = f"from {lowest} to below {end} there must be 1 to 2**32 integers that fit {dtype}"
        raise ArgumentError(explain("randint", problem, ()))
    return lowest, end - lowest


def categorical(
    logits: TensorLike, axis: AxisKey = -1, seed: int = 0, stream: int | None = None
) -> TensorOp:
    """Return indices drawn with the probabilities ``softmax(logits)``, new at every call.

    The index is the argmax of the logits plus Gumbel noise (Gumbel, 1954). An index of logit -inf
    is drawn only if all are -inf.

    Parameters
    ----------
    logits
        The logits, which have no gradient.
    axis
        The axis of the categories: a position, an axis or its name; by default the last.
    seed
        A number from 0 to 2³² - 1.
    stream
        A number from 0 to 2³¹ - 1; by default each op has its own. Ops with the same seed and
        stream give the same numbers, on every backend.

    Returns
    -------
    TensorOp
        The indices, as int64, with the other axes.

    Raises
    ------
    AxesError
        If the logits have no such axis.
    ArgumentError
        If a number is out of range.

    Examples
    --------
    >>> logits = np.log([[0.5, 0.5, 1e-9], [1e-9, 1e-9, 1.0]])
    >>> draw = weft.make_transformer().computation(weft.categorical(logits, seed=0, stream=0))
    >>> draw()
    array([1, 2])
    """
    return sample_categories(fresh_bits(seed, stream), logits, axis, ())


def sample_categories(
    draw: BitSource, logits: TensorLike, axis: AxisKey, before: AxesLike
) -> TensorOp:
    """Return indices along an axis of logits, drawn with their probabilities.

    There are as many for each place of the logits as axes before those of the logits have elements.
    """
    position = place("categorical", as_op(logits), axis)
    leading = make_axes(before)
    return argmax(_noisy(draw, logits, leading), len(leading) + position)


def sample_different_categories(
    draw: BitSource, logits: TensorLike, axis: AxisKey, before: AxesLike
) -> TensorOp:
    """Return such indices without repetition: those of the largest logits plus Gumbel noise.

    Kool, van Hoof, Welling: Stochastic beams and where to find them, ICML 2019.
    """
    leading, op = make_axes(before), as_op(logits)
    position, count = place("categorical", op, axis), leading.size
    length = op.axes[position].length
    if isinstance(count, int) and isinstance(length, int) and count > length:
        problem = f"{count} of {length} classes cannot be drawn: draw fewer, or replace=True"
        raise ArgumentError(explain("categorical", problem, (op,)))
    rest = [axis for each, axis in enumerate(op.axes) if each != position]
    order = argsort(_noisy(draw, op, ()), position, descending=True)
    return cast_axes(moveaxis(order, position, 0)[:count], (*leading, *rest))


def _noisy(draw: BitSource, logits: TensorLike, leading: AxesLike) -> TensorOp:
    """Return logits plus Gumbel noise, with axes in front."""
    (x,) = align(FloatOp, logits)
    working = float_to_compute_in("categorical", x.dtype)
    axes = make_axes(leading) + x.axes
    return cast(x, working) + sample("gumbel", draw, standard_gumbel, axes, dtype=working)


def permutation(
    x: TensorLike | Axis | Length, axis: AxisKey = 0, seed: int = 0, stream: int | None = None
) -> TensorOp:
    """Return the integers below a number in random order, new at every call.

    All permutations are equally likely: the integers are sorted by 64 random bits each.

    Parameters
    ----------
    x
        The number, or an axis, which the result then has. A tensor is shuffled by `shuffle`.
    axis
        The axis of a tensor: a position, an axis or its name.
    seed
        A number from 0 to 2³² - 1.
    stream
        A number from 0 to 2³¹ - 1; by default each op has its own. Ops with the same seed and
        stream give the same numbers, on every backend.

    Returns
    -------
    TensorOp
        The integers, as int64; or the shuffled tensor.

    Raises
    ------
    AxesError
        If a tensor has no such axis.
    ArgumentError
        If a number is out of range.

    Examples
    --------
    >>> draw = weft.make_transformer().computation(weft.permutation(5, seed=0, stream=0))
    >>> draw()
    array([2, 3, 0, 4, 1])
    """
    if not isinstance(x, int | Axis | Length) or isinstance(x, bool):
        return shuffle(x, axis, seed, stream)
    return random_order(fresh_bits(seed, stream), x)


def random_order(draw: BitSource, x: AxesLike) -> TensorOp:
    """Return the integers below the length of an axis in random order, as int64."""
    target = make_axes(x)
    return cast_axes(argsort(long_words(draw(make_axes((2, target.size))))), target)


def long_words(words: TensorOp) -> TensorOp:
    """Return two rows of uint32 as one of uint64."""
    upper, lower = (cast(words[row], dtypes.uint64) for row in range(2))
    return bitwise_or(shift_left(upper, np.uint64(32)), lower)


def shuffle(x: TensorLike, axis: AxisKey = 0, seed: int = 0, stream: int | None = None) -> TensorOp:
    """Return the slices of a tensor along an axis in random order, new at every call.

    All other axes share one permutation. The gradient is permuted back.

    Parameters
    ----------
    x
        The operand.
    axis
        The axis: a position, an axis or its name.
    seed
        A number from 0 to 2³² - 1.
    stream
        A number from 0 to 2³¹ - 1; by default each op has its own. Ops with the same seed and
        stream give the same numbers, on every backend.

    Returns
    -------
    TensorOp
        A tensor like x.

    Raises
    ------
    AxesError
        If the operand has no such axis.
    ArgumentError
        If a number is out of range.

    Examples
    --------
    >>> x = np.array([[1, 2], [3, 4], [5, 6]])
    >>> draw = weft.make_transformer().computation(weft.shuffle(x, seed=0, stream=0))
    >>> draw()
    array([[5, 6],
           [1, 2],
           [3, 4]])
    """
    return shuffled("shuffle", fresh_bits(seed, stream), x, axis)


def shuffled(function: str, draw: BitSource, x: TensorLike, axis: AxisKey) -> TensorOp:
    """Return the slices of x along an axis in random order."""
    op = as_op(x)
    position = place(function, op, axis)
    return take(op, random_order(draw, op.axes[position]), position)


def sample(
    function: str,
    draw: BitSource,
    standard: Callable[[TensorOp], TensorOp],
    axes: AxesLike | TensorOp,
    loc: TensorLike = 0.0,
    scale: TensorLike = 1.0,
    dtype: DTypeLike = dtypes.DEFAULT,
) -> TensorOp:
    """Return ``standard(u) * scale + loc`` for uniform numbers u strictly between 0 and 1."""
    target, working = axes_of(axes), float_to_compute_in(function, dtype)
    loc, scale = location_and_scale(function, loc, scale, target)
    return cast(standard(middles(draw(target), working)) * scale + loc, dtype)


_DOMAINS: dict[str, Callable[[float], bool]] = {
    "finite": math.isfinite,
    "at least 0": lambda x: 0 <= x < math.inf,
    "from 0 to 1": lambda x: 0 <= x <= 1,
    "above 0 and at most 1": lambda x: 0 < x <= 1,
    "an integer from 0 on": lambda x: 0 <= x < math.inf and x == int(x),
}


def operands(
    function: str,
    shape: AxesLike | TensorOp | None,
    working: DType,
    **parameters: tuple[TensorLike, str],
) -> list[TensorOp]:
    """Return parameters with the axes of a shape, by default those that they broadcast to.

    Each is given with what a number has to be; that of tensors is seen by their samples.
    """
    for name, (value, domain) in parameters.items():
        if isinstance(value, int | float):
            number = value if isinstance(value, bool) else as_number(value)
            if not _DOMAINS[domain](number):
                problem = f"{name} must be {domain}, not {value!r}"
                raise ArgumentError(explain(function, problem, ()))
            parameters[name] = number, domain
    given = (as_op(value).axes for value, _ in parameters.values())
    axes = common_axes(function, *given) if shape is None else axes_of(shape)
    found = (parameter(function, name, value, axes) for name, (value, _) in parameters.items())
    return [broadcast(cast(as_op(each, working), working), axes) for each in found]


def common_axes(function: str, *given: Axes) -> Axes:
    """Return the axes that those of parameters broadcast to."""
    try:
        return reduce(broadcast_axes, given)
    except AxesError as error:
        problem = f"the parameters do not fit each other: {error.problem}"
        raise AxesError(explain(function, problem, ())) from None


def exponential(
    axes: AxesLike | TensorOp,
    scale: TensorLike = 1.0,
    dtype: DTypeLike = dtypes.DEFAULT,
    seed: int = 0,
    stream: int | None = None,
) -> TensorOp:
    """Return exponentially distributed samples, new at every call.

    By inversion: the negative logarithm of a uniform number.

    Parameters
    ----------
    axes
        The axes, the lengths of positional ones, or a tensor whose axes are meant.
    scale
        The mean: a number, or a tensor that broadcasts to the axes.
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
        The samples. Their gradients go to tensors of parameters.

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
    >>> draw = weft.make_transformer().computation(weft.exponential((3,), seed=0, stream=0))
    >>> draw()
    array([0.6603, 0.0622, 2.8304], dtype=float32)
    """
    draw = fresh_bits(seed, stream)
    return sample("exponential", draw, standard_exponential, axes, 0.0, scale, dtype)


def standard_exponential(u: TensorOp) -> TensorOp:
    """Return the quantile of the exponential distribution at 1 - u."""
    return negative(log(u))


def gumbel(
    axes: AxesLike | TensorOp,
    loc: TensorLike = 0.0,
    scale: TensorLike = 1.0,
    dtype: DTypeLike = dtypes.DEFAULT,
    seed: int = 0,
    stream: int | None = None,
) -> TensorOp:
    """Return Gumbel-distributed samples, new at every call.

    By inversion. The mean is ``loc + 0.5772 * scale``, the variance ``(pi * scale)² / 6``.

    Parameters
    ----------
    axes
        The axes, the lengths of positional ones, or a tensor whose axes are meant.
    loc, scale
        The mode and the scale: numbers, or tensors that broadcast to the axes.
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
        The samples. Their gradients go to tensors of parameters.

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
    >>> draw = weft.make_transformer().computation(weft.gumbel((3,), seed=0, stream=0))
    >>> draw()
    array([ 0.415 ,  2.7768, -1.0404], dtype=float32)
    """
    draw = fresh_bits(seed, stream)
    return sample("gumbel", draw, standard_gumbel, axes, loc, scale, dtype)


def standard_gumbel(u: TensorOp) -> TensorOp:
    """Return the quantile of the Gumbel distribution at u."""
    return negative(log(negative(log(u))))


def laplace(
    axes: AxesLike | TensorOp,
    loc: TensorLike = 0.0,
    scale: TensorLike = 1.0,
    dtype: DTypeLike = dtypes.DEFAULT,
    seed: int = 0,
    stream: int | None = None,
) -> TensorOp:
    """Return Laplace-distributed samples, new at every call.

    By inversion. The variance is ``2 * scale²``.

    Parameters
    ----------
    axes
        The axes, the lengths of positional ones, or a tensor whose axes are meant.
    loc, scale
        The mean and the scale: numbers, or tensors that broadcast to the axes.
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
        The samples. Their gradients go to tensors of parameters.

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
    >>> draw = weft.make_transformer().computation(weft.laplace((3,), seed=0, stream=0))
    >>> draw()
    array([ 0.0339,  2.1146, -2.1373], dtype=float32)
    """
    draw = fresh_bits(seed, stream)
    return sample("laplace", draw, standard_laplace, axes, loc, scale, dtype)


def standard_laplace(u: TensorOp) -> TensorOp:
    """Return the quantile of the Laplace distribution at u."""
    tail = log(2.0 * minimum(u, 1.0 - u))
    return where(less(u, 0.5), tail, negative(tail))


def truncated_normal(
    axes: AxesLike | TensorOp,
    loc: TensorLike = 0.0,
    scale: TensorLike = 1.0,
    low: float = -2.0,
    high: float = 2.0,
    dtype: DTypeLike = dtypes.DEFAULT,
    seed: int = 0,
    stream: int | None = None,
) -> TensorOp:
    """Return samples of the truncated normal distribution, new at every call.

    By inversion, with quantiles accurate to 1e-7, also in the tails.

    Parameters
    ----------
    axes
        The axes, the lengths of positional ones, or a tensor whose axes are meant.
    loc, scale
        The mean and the standard deviation before the truncation: numbers, or tensors that
        broadcast to the axes.
    low, high
        The bounds, in standard deviations from `loc`; they may be infinite.
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
        The samples. Their gradients go to tensors of parameters.

    Raises
    ------
    ArgumentError
        If a number is out of range, the bounds are in the wrong order, or there is no probability
        between them.
    AxesError
        If a tensor of parameters does not broadcast to the axes.
    DTypeError
        If the dtype is not a float.

    Examples
    --------
    >>> draw = weft.make_transformer().computation(weft.truncated_normal((3,), seed=0, stream=0))
    >>> draw()
    array([ 0.0399,  1.4027, -1.4115], dtype=float32)
    """
    standard = standard_truncated_normal({"low": low, "high": high})
    return sample("truncated_normal", fresh_bits(seed, stream), standard, axes, loc, scale, dtype)


def standard_truncated_normal(bounds: dict[str, float]) -> Callable[[TensorOp], TensorOp]:
    """Return the quantile of the normal distribution between two bounds, which are given by name.

    Of an interval above 0 it is the quantile at 1 - u.
    """
    low, high = bounds.values()
    for bound in (low, high):
        if isinstance(bound, bool) or not isinstance(bound, int | float):
            problem = f"{' and '.join(bounds)} must be numbers, not {bound!r}"
            raise ArgumentError(explain("truncated_normal", problem, ()))
    if not low < high:
        problem = f"{' must be below '.join(bounds)}, not {low} and {high}"
        raise ArgumentError(explain("truncated_normal", problem, ()))
    # Probabilities near 1 lose precision, so an interval above 0 is mirrored.
    side = -1.0 if low + high > 0 else 1.0
    first, last = sorted((side * low, side * high))
    below, above = _normal_cdf(first), _normal_cdf(last)
    if above == 0:
        problem = f"from {low} to {high} standard deviations there is no probability in float64"
        raise ArgumentError(explain("truncated_normal", problem, ()))
    # The largest probability is a factor, so that those of a tail do not underflow in float32.
    share, start = (above - below) / above, below / above
    center = -0.5 * math.erf(-first / 2**0.5)

    def standard(u: TensorOp) -> TensorOp:
        centered, part = u * (above - below) + center, u * share + start
        lower = minimum(part, (0.5 - centered) / above) if last > 0 else part
        x = _normal_quantile(centered, sqrt(maximum(-math.log(above) - log(lower), 0.0)))
        return minimum(maximum(x, first), last) * side

    return standard


def _normal_cdf(x: float) -> float:
    """Return the cumulative distribution function of the normal distribution."""
    return 0.5 * math.erfc(-x / 2**0.5)


# Numerators and denominators, highest power first; for |p - 1/2| up to 0.425, and p from exp(-25).
_MIDDLE = (
    (59.109374720, 159.29113202, 50.434271938, 3.3871327179),
    (67.187563600, 78.757757664, 17.895169469, 1.0),
)
_INTERMEDIATE = (
    (0.17023821103, 1.3067284816, 2.7568153900, 1.4234372777),
    (0.12021132975, 0.73700164250, 1.0),
)
_TAIL = (
    (0.017337203997, 0.42868294337, 3.0812263860, 6.6579051150),
    (0.012258202635, 0.24197894225, 1.0),
)


def _normal_quantile(centered: TensorOp, depth: TensorOp) -> TensorOp:
    """Return the quantile of the normal distribution for a probability p.

    It is given by p - 1/2, and by the root of the negative logarithm of p or 1 - p, the smaller.
    Three rational functions (Wichura: The percentage points of the normal distribution, algorithm
    AS 241, 1988, PPND7). Unlike `erfinv` they stay accurate for p close to 0.
    """
    outside = where(
        less(depth, 5.0), _quotient(_INTERMEDIATE, depth - 1.6), _quotient(_TAIL, depth - 5.0)
    )
    outside = where(greater(centered, 0), outside, negative(outside))
    middle = centered * _quotient(_MIDDLE, 0.180625 - square(centered))
    return where(less(absolute(centered), 0.425), middle, outside)


def _quotient(rows: tuple[tuple[float, ...], tuple[float, ...]], x: TensorOp) -> TensorOp:
    above, below = rows
    result: TensorOp = polynomial(x, above) / polynomial(x, below)
    return result
