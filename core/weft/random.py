"""Random numbers from explicit keys.

A key is two words of uint32. It determines what is drawn from it, to the bit and on every backend;
numbers drawn from different keys are independent. A key is an array like any other: an argument of
a function, a value that a loop carries, a leaf of a tree. `split` and `fold_in` make new keys of
one. Each key is to be used once, as two draws from one key are not independent of each other.

Keys and bits come from a counter-based generator, Philox 4x32-10. (Salmon, Moraes, Dror, Shaw:
Parallel random numbers: as easy as 1, 2, 3; SC 2011.) The last word of the counter says what bits
are for, so keys split from a key share no bits with numbers drawn from it.

Functions of arrays alone that give keys give arrays; all others build ops, as `weft.sin` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

from weft.errors import ArgumentError, AxesError, DTypeError
from weft.ir import dtypes
from weft.ir.axes import Axes, AxesLike, Axis, AxisKey, make_axes
from weft.ir.dtypes import DTypeLike
from weft.ir.lengths import Length
from weft.ir.op import explain
from weft.ir.storage import as_op, constant
from weft.ir.tensor import TensorLike, TensorOp
from weft.ops.arguments import checked_integer
from weft.ops.indexing.gathering import take
from weft.ops.pointwise.bits import shift_right
from weft.ops.pointwise.elementwise import cast
from weft.ops.pointwise.math import log
from weft.ops.random import distributions
from weft.ops.random.philox import (
    FOLDED,
    KEYS,
    WORDS,
    RandomBitsOp,
    axes_of,
    bits_from,
    checked_key,
    sample_normal,
    sample_uniform,
)
from weft.ops.reductions.cumulative import cumsum, place
from weft.ops.reductions.sorting import argsort, searchsorted
from weft.ops.shape.joining import stack
from weft.ops.shape.movement import cast_axes
from weft.support.spelling import unknown_name

__all__ = [
    "bernoulli",
    "bits",
    "categorical",
    "choice",
    "exponential",
    "fold_in",
    "gumbel",
    "key",
    "laplace",
    "normal",
    "permutation",
    "randint",
    "split",
    "truncated_normal",
    "uniform",
]

if not TYPE_CHECKING:
    __getattr__ = unknown_name(__name__, __all__)

Shape = AxesLike | TensorOp
"""Lengths or axes of the result, or a tensor that has them."""


def key(seed: TensorLike) -> Any:
    """Return the key of a seed: its lower and its upper 32 bits, as uint32.

    The result is an array, or an op if the seed is one. A seed is an integer from -2**63 to below
    2**64, or a traced integer scalar; negative ones count from 2**64.

    Raises
    ------
    ArgumentError
        If the seed is out of range, or no integer.

    Examples
    --------
    >>> weft.random.key(2**32 + 7)
    array([7, 1], dtype=uint32)
    """
    if isinstance(seed, TensorOp):
        if not dtypes.is_integer(seed.dtype) or seed.axes:
            problem = f"a seed is an integer scalar, not {seed.dtype} {seed.axes}"
            raise ArgumentError(explain("key", problem, (seed,)))
        wide = cast(seed, dtypes.uint64)
        words = [wide & np.uint64(2**32 - 1), shift_right(wide, np.uint64(32))]
        return cast(stack(words, pos=0), dtypes.uint32)
    number: Any = seed
    if isinstance(number, np.ndarray) and number.shape == () and number.dtype.kind in "iu":
        number = int(number)
    number = checked_integer("key", "the seed", number)
    if not -(2**63) <= number < 2**64:
        problem = f"the seed must be from -2**63 to below 2**64, not {number}"
        raise ArgumentError(explain("key", problem, ()))
    number %= 2**64
    return np.array([number % 2**32, number >> 32], np.uint32)


def split(key: TensorLike, num: SupportsIndex | tuple[SupportsIndex, ...] = 2) -> Any:
    """Return independent new keys, made of one that is not to be used any more.

    Parameters
    ----------
    key
        A key.
    num
        The number of new keys, or a shape of them.

    Returns
    -------
    ndarray or TensorOp
        Keys of shape ``(num, 2)``; an op if the key is one. The first keys do not depend on `num`.

    Raises
    ------
    ArgumentError
        If the key is no key, or a number is negative.

    Examples
    --------
    >>> key, other = weft.random.split(weft.random.key(0))
    >>> key.tolist() != other.tolist()
    True
    >>> weft.random.split(key, (4, 3)).shape
    (4, 3, 2)
    """
    several = num if isinstance(num, tuple) else (num,)
    counts = [checked_integer("split", "num", count, low=0) for count in several]
    return _made_of("split", key, 0, make_axes((*counts, WORDS)), KEYS)


def fold_in(key: TensorLike, data: TensorLike) -> Any:
    """Return a new key made of a key and an integer, such as the number of a step or a layer.

    Parameters
    ----------
    key
        A key; other integers may be folded into it as well.
    data
        An integer from 0 to below 2**32, or a traced integer scalar, which is cast to uint32.

    Returns
    -------
    ndarray or TensorOp
        A key; an op if `key` or `data` is one.

    Raises
    ------
    ArgumentError
        If the key is no key, or the integer is out of range or none.

    Examples
    --------
    >>> key = weft.random.key(0)
    >>> keys = [weft.random.fold_in(key, step) for step in range(3)]
    >>> keys[0].shape
    (2,)
    """
    if isinstance(data, TensorOp):
        if not dtypes.is_integer(data.dtype) or data.axes:
            problem = f"data is an integer scalar, not {data.dtype} {data.axes}"
            raise ArgumentError(explain("fold_in", problem, (data,)))
        return _made_of("fold_in", key, cast(data, dtypes.uint32), make_axes(WORDS), FOLDED)
    number = checked_integer("fold_in", "data", data, low=0)  # type: ignore[arg-type]
    if number >= 2**32:
        problem = f"data must be below 2**32, not {number}: fold in its parts one by one"
        raise ArgumentError(explain("fold_in", problem, ()))
    return _made_of("fold_in", key, number, make_axes(WORDS), FOLDED)


def _made_of(
    function: str, key: TensorLike, counter: TensorOp | int, axes: Axes, domain: int
) -> Any:
    """Return new keys, as an array if nothing is an op."""
    number = counter if isinstance(counter, TensorOp) else constant(counter, dtype=dtypes.uint32)
    made = RandomBitsOp(checked_key(function, key), number, target_axes=axes, domain=domain)
    if isinstance(key, TensorOp) or number is counter:
        return made
    return made.reference(*(op.const for op in made.args))


def bits(key: TensorLike, shape: Shape = (), dtype: DTypeLike = dtypes.uint32) -> TensorOp:
    """Return random bits as unsigned integers.

    Parameters
    ----------
    key
        A key.
    shape
        The lengths or axes of the result, or a tensor that has them.
    dtype
        An unsigned dtype of 8, 16, 32 or 64 bits.

    Returns
    -------
    TensorOp
        Integers, of which each value is equally likely.

    Raises
    ------
    ArgumentError
        If the key is no key.
    DTypeError
        If the dtype is another one.

    Examples
    --------
    >>> draw = weft.jit(lambda key: weft.random.bits(key, (3,), "uint8"))
    >>> draw(weft.random.key(0))
    array([229,  63, 236], dtype=uint8)
    """
    kind, axes, draw = dtypes.as_dtype(dtype), axes_of(shape), bits_from("bits", key)
    if kind.kind != "u":
        raise DTypeError(explain("bits", f"bits are unsigned integers, not {kind}", ()))
    if kind != dtypes.uint64:
        return cast(draw(axes), kind)
    return cast_axes(distributions.long_words(draw(make_axes((2, axes.size)))), axes)


def uniform(
    key: TensorLike,
    shape: Shape = (),
    dtype: DTypeLike = dtypes.DEFAULT,
    minval: TensorLike = 0.0,
    maxval: TensorLike = 1.0,
) -> TensorOp:
    """Return uniformly distributed numbers in [minval, maxval).

    The resolution is 2⁻²⁴ of the interval, or less for dtypes with fewer digits. Where that is
    finer than the resolution of the dtype near `maxval`, rounding can give `maxval` itself.

    Parameters
    ----------
    key
        A key.
    shape
        The lengths or axes of the result, or a tensor that has them.
    dtype
        A dtype of floats.
    minval, maxval
        Numbers, or tensors that broadcast to the shape; the gradient flows to them.

    Returns
    -------
    TensorOp
        Floats, the same for the same key on every backend.

    Raises
    ------
    ArgumentError, AxesError, DTypeError
        If the key is no key, a bound does not fit, or the dtype is none of floats.

    Examples
    --------
    >>> noise = weft.jit(lambda key: weft.random.uniform(key, (3,)))
    >>> noise(weft.random.key(0))
    array([0.1789, 0.0753, 0.9882], dtype=float32)
    """
    bounds = {"minval": minval, "maxval": maxval}
    return sample_uniform(bits_from("uniform", key), shape, bounds, dtype)


def normal(
    key: TensorLike,
    shape: Shape = (),
    dtype: DTypeLike = dtypes.DEFAULT,
    loc: TensorLike = 0.0,
    scale: TensorLike = 1.0,
) -> TensorOp:
    """Return normally distributed numbers, by the method of Box and Muller (1958).

    Parameters
    ----------
    key
        A key.
    shape
        The lengths or axes of the result, or a tensor that has them.
    dtype
        A dtype of floats.
    loc, scale
        The mean and the standard deviation: numbers, or tensors that broadcast to the shape; the
        gradient flows to them.

    Returns
    -------
    TensorOp
        Floats.

    Raises
    ------
    ArgumentError, AxesError, DTypeError
        If the key is no key, a parameter does not fit, or the dtype is none of floats.

    Examples
    --------
    >>> noise = weft.jit(lambda key: weft.random.normal(key, (1000,), loc=5.0))(weft.random.key(0))
    >>> round(float(noise.mean()), 1), round(float(noise.std()), 1)
    (5.0, 1.0)
    """
    return sample_normal(bits_from("normal", key), shape, loc, scale, dtype)


def bernoulli(key: TensorLike, p: TensorLike = 0.5, shape: Shape | None = None) -> TensorOp:
    """Return bools that are True with a probability.

    Parameters
    ----------
    key
        A key.
    p
        The probability, a number from 0 to 1, or a tensor of floats, which are clipped to that
        range. It has a resolution of 2⁻³² and no gradient.
    shape
        The lengths or axes of the result, or a tensor that has them; `p` broadcasts to it. By
        default that of `p`.

    Returns
    -------
    TensorOp
        Bools.

    Raises
    ------
    ArgumentError, AxesError, DTypeError
        If the key is no key, the probability is out of range, does not fit or is no float.

    Examples
    --------
    >>> coins = weft.jit(lambda key: weft.random.bernoulli(key, 0.5, (4,)))
    >>> coins(weft.random.key(0))
    array([ True,  True, False, False])
    """
    return distributions.sample_bernoulli(bits_from("bernoulli", key), p, shape, dtypes.bool_)


def randint(
    key: TensorLike,
    shape: Shape,
    minval: SupportsIndex,
    maxval: SupportsIndex,
    dtype: DTypeLike = dtypes.int32,
) -> TensorOp:
    """Return uniformly distributed integers from `minval` to ``maxval - 1``.

    The error of each probability is at most 2⁻⁶⁴.

    Parameters
    ----------
    key
        A key.
    shape
        The lengths or axes of the result, or a tensor that has them.
    minval, maxval
        Integers. There may be 2**32 different results.
    dtype
        A dtype of integers that holds all of them.

    Returns
    -------
    TensorOp
        Integers, the same for the same key on every backend.

    Raises
    ------
    ArgumentError
        If the key is no key, or the bounds do not fit.
    DTypeError
        If the dtype is none of integers.

    Examples
    --------
    >>> dice = weft.jit(lambda key: weft.random.randint(key, (8,), 1, 7))
    >>> dice(weft.random.key(0)).tolist()
    [2, 1, 6, 4, 6, 2, 3, 4]
    """
    bounds = {"minval": minval, "maxval": maxval}
    return distributions.sample_integers(bits_from("randint", key), shape, bounds, dtype)


def categorical(
    key: TensorLike, logits: TensorLike, axis: AxisKey = -1, shape: AxesLike | None = None
) -> TensorOp:
    """Return indices along an axis, drawn with the probabilities ``softmax(logits)``.

    Parameters
    ----------
    key
        A key.
    logits
        Unnormalized logarithms of probabilities; they have no gradient. An index of minus infinity
        is drawn only if all are.
    axis
        The axis of the classes, by position or name.
    shape
        The lengths or axes of the result. It ends with those of the logits without `axis`, by
        default there are no others; further ones in front are independent draws.

    Returns
    -------
    TensorOp
        Indices, int64.

    Raises
    ------
    ArgumentError
        If the key is no key.
    AxesError
        If there is no such axis, or the shape ends otherwise.

    Examples
    --------
    >>> draw = weft.jit(lambda key, x: weft.random.categorical(key, x, shape=(5,)))
    >>> draw(weft.random.key(0), np.log([0.0625, 0.875, 0.0625]))
    array([2, 1, 1, 1, 1])
    """
    draw, op = bits_from("categorical", key), as_op(logits)
    rest = list(op.axes)
    del rest[place("categorical", op, axis)]
    axes = make_axes(rest if shape is None else shape)
    count = len(axes) - len(rest)
    if count < 0 or list(axes[count:]) != rest:
        problem = f"the shape {axes} does not end with {make_axes(rest)}, those of the logits"
        raise AxesError(explain("categorical", problem, (op,)))
    return distributions.sample_categories(draw, op, axis, axes[:count])


def permutation(key: TensorLike, x: TensorLike | Axis | Length, axis: AxisKey = 0) -> TensorOp:
    """Return the integers below a number, or the slices of a tensor, in random order.

    All permutations are equally likely.

    Parameters
    ----------
    key
        A key.
    x
        A number, or an axis, of whose length the integers are; or a tensor, to which the gradient
        flows.
    axis
        The axis of a tensor along which slices are taken, by position or name; all other axes share
        one permutation.

    Returns
    -------
    TensorOp
        The integers as int64, or a tensor like x; the same for the same key on every backend.

    Raises
    ------
    ArgumentError
        If the key is no key.
    AxesError
        If there is no such axis.

    Examples
    --------
    >>> weft.jit(lambda key: weft.random.permutation(key, 5))(weft.random.key(0))
    array([1, 0, 3, 4, 2])
    >>> rows = np.array([[1, 2], [3, 4], [5, 6]])
    >>> weft.jit(weft.random.permutation)(weft.random.key(0), rows)
    array([[3, 4],
           [1, 2],
           [5, 6]])
    """
    draw = bits_from("permutation", key)
    if isinstance(x, int | Axis | Length) and not isinstance(x, bool):
        return distributions.random_order(draw, x)
    return distributions.shuffled("permutation", draw, x, axis)


def choice(
    key: TensorLike,
    a: TensorLike,
    shape: AxesLike = (),
    replace: bool = True,
    p: TensorLike | None = None,
    axis: AxisKey = 0,
) -> TensorOp:
    """Return random elements of a tensor, or random integers below a number.

    Parameters
    ----------
    key
        A key.
    a
        A tensor, of which slices along `axis` are taken, or a number, which gives int64.
    shape
        How many: the lengths or axes of the result, in place of `axis`.
    replace
        Whether an element may be taken again.
    p
        The probability of each, a vector of floats; by default all are equally likely. Only ratios
        count. Without replacement these are the probabilities of the next one among those left, by
        the largest logarithms plus Gumbel noise. (Efraimidis, Spirakis: Weighted random sampling
        with a reservoir, 2006.)
    axis
        The axis of a tensor, by position or name.

    Returns
    -------
    TensorOp
        Elements, slices or integers.

    Raises
    ------
    ArgumentError
        If the key is no key, there is nothing to take, or too little to take without replacement.
    AxesError, DTypeError
        If `p` is no vector of floats of the right length, or there is no such axis.

    Examples
    --------
    >>> key = weft.random.key(0)
    >>> weft.jit(lambda key: weft.random.choice(key, 5, (3,), replace=False))(key)
    array([1, 0, 3])
    >>> draw = weft.jit(lambda key, a, p: weft.random.choice(key, a, (4,), p=p))
    >>> draw(key, np.array([10, 20, 30]), np.array([0.5, 0.0, 0.5]))
    array([10, 10, 30, 30])
    """
    is_number = isinstance(a, int) and not isinstance(a, bool)
    op = None if is_number else as_op(a)
    position = 0 if op is None else place("choice", op, axis)
    length: Any = a if op is None else op.axes[position].length
    axes = make_axes(shape)
    indices = _chosen(key, length, axes, replace, p)
    return indices if op is None else take(op, indices, position)


def _chosen(
    key: TensorLike, length: Any, axes: Axes, replace: bool, p: TensorLike | None
) -> TensorOp:
    """Return random indices below a length."""
    draw, size = bits_from("choice", key), axes.size
    if isinstance(length, int) and isinstance(size, int):
        few = size if not replace else min(size, 1)
        if length < few:
            ways = "" if replace else ": take fewer, or replace=True"
            problem = f"{size} of {length} cannot be taken{ways}"
            raise ArgumentError(explain("choice", problem, ()))
    if p is None:
        if replace:
            bounds = {"0": 0, "the number of elements": length}
            return distributions.sample_integers(draw, axes, bounds, dtypes.int64)
        return cast_axes(distributions.random_order(draw, length)[:size], axes)
    chance = as_op(p)
    if not dtypes.is_float(chance.dtype):
        raise DTypeError(explain("choice", f"p must be floats, not {chance.dtype}", (chance,)))
    if chance.axes.lengths != (length,):
        problem = f"p must be a vector of {length} probabilities, not {chance.axes}"
        raise AxesError(explain("choice", problem, (chance,)))
    chance = cast_axes(cast(chance, dtypes.accumulator_dtype(chance.dtype)), length)
    if replace:
        total = cumsum(chance)
        share = sample_uniform(draw, axes, {"low": 0.0, "high": 1.0}, chance.dtype)
        return cast_axes(searchsorted(total, share * total[-1], "right"), axes)
    noise = distributions.sample(
        "choice", draw, distributions.standard_gumbel, chance, dtype=chance.dtype
    )
    return cast_axes(argsort(log(chance) + noise, descending=True)[:size], axes)


def exponential(
    key: TensorLike,
    shape: Shape = (),
    dtype: DTypeLike = dtypes.DEFAULT,
    scale: TensorLike = 1.0,
) -> TensorOp:
    """Return exponentially distributed numbers.

    Parameters
    ----------
    key
        A key.
    shape
        The lengths or axes of the result, or a tensor that has them.
    dtype
        A dtype of floats.
    scale
        The mean: a number, or a tensor that broadcasts to the shape; the gradient flows to it.

    Returns
    -------
    TensorOp
        Floats of at least 0.

    Raises
    ------
    ArgumentError, AxesError, DTypeError
        If the key is no key, the mean does not fit, or the dtype is none of floats.

    Examples
    --------
    >>> waits = weft.jit(lambda key: weft.random.exponential(key, (1000,), scale=2.0))
    >>> round(float(waits(weft.random.key(0)).mean()))
    2
    """
    draw, standard = bits_from("exponential", key), distributions.standard_exponential
    return distributions.sample("exponential", draw, standard, shape, 0.0, scale, dtype)


def gumbel(
    key: TensorLike,
    shape: Shape = (),
    dtype: DTypeLike = dtypes.DEFAULT,
    loc: TensorLike = 0.0,
    scale: TensorLike = 1.0,
) -> TensorOp:
    """Return Gumbel-distributed numbers.

    Their mean is ``loc + 0.5772 * scale``, their variance ``(pi * scale)**2 / 6``.

    Parameters
    ----------
    key
        A key.
    shape
        The lengths or axes of the result, or a tensor that has them.
    dtype
        A dtype of floats.
    loc, scale
        The mode and the scale: numbers, or tensors that broadcast to the shape; the gradient flows
        to them.

    Returns
    -------
    TensorOp
        Floats.

    Raises
    ------
    ArgumentError, AxesError, DTypeError
        If the key is no key, a parameter does not fit, or the dtype is none of floats.

    Examples
    --------
    >>> noise = weft.jit(lambda key: weft.random.gumbel(key, (1000,)))(weft.random.key(0))
    >>> abs(float(noise.mean()) - 0.5772) < 0.1
    True
    """
    draw, standard = bits_from("gumbel", key), distributions.standard_gumbel
    return distributions.sample("gumbel", draw, standard, shape, loc, scale, dtype)


def laplace(
    key: TensorLike,
    shape: Shape = (),
    dtype: DTypeLike = dtypes.DEFAULT,
    loc: TensorLike = 0.0,
    scale: TensorLike = 1.0,
) -> TensorOp:
    """Return Laplace-distributed numbers.

    Their mean is `loc`, their variance ``2 * scale**2``.

    Parameters
    ----------
    key
        A key.
    shape
        The lengths or axes of the result, or a tensor that has them.
    dtype
        A dtype of floats.
    loc, scale
        The mean and the scale: numbers, or tensors that broadcast to the shape; the gradient flows
        to them.

    Returns
    -------
    TensorOp
        Floats.

    Raises
    ------
    ArgumentError, AxesError, DTypeError
        If the key is no key, a parameter does not fit, or the dtype is none of floats.

    Examples
    --------
    >>> noise = weft.jit(lambda key: weft.random.laplace(key, (1000,)))(weft.random.key(0))
    >>> abs(float(noise.mean())) < 0.2, abs(float(noise.var()) - 2) < 0.4
    (True, True)
    """
    draw, standard = bits_from("laplace", key), distributions.standard_laplace
    return distributions.sample("laplace", draw, standard, shape, loc, scale, dtype)


def truncated_normal(
    key: TensorLike,
    lower: float = -2.0,
    upper: float = 2.0,
    shape: Shape = (),
    dtype: DTypeLike = dtypes.DEFAULT,
    loc: TensorLike = 0.0,
    scale: TensorLike = 1.0,
) -> TensorOp:
    """Return samples of a normal distribution that is truncated to an interval.

    Parameters
    ----------
    key
        A key.
    lower, upper
        The bounds, Python numbers, in standard deviations `scale` from `loc`; they may be infinite.
    shape
        The lengths or axes of the result, or a tensor that has them.
    dtype
        A dtype of floats.
    loc, scale
        The mean and the standard deviation before the truncation: numbers, or tensors that
        broadcast to the shape; the gradient flows to them.

    Returns
    -------
    TensorOp
        Floats.

    Raises
    ------
    ArgumentError, AxesError, DTypeError
        If the key is no key, a bound is no number, a parameter does not fit, or the dtype is none
        of floats.

    Examples
    --------
    >>> noise = weft.jit(lambda key: weft.random.truncated_normal(key, shape=(1000,)))
    >>> bool(np.all(np.abs(noise(weft.random.key(0))) <= 2))
    True
    """
    draw = bits_from("truncated_normal", key)
    standard = distributions.standard_truncated_normal({"lower": lower, "upper": upper})
    return distributions.sample("truncated_normal", draw, standard, shape, loc, scale, dtype)
