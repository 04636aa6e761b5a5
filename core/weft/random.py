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

from weft import ops
from weft.errors import ArgumentError, AxesError, DTypeError
from weft.ir import dtypes
from weft.ir.axes import Axes, AxesLike, Axis, AxisKey, make_axes
from weft.ir.dtypes import DTypeLike
from weft.ir.lengths import Length
from weft.ir.op import explain
from weft.ir.storage import as_op, constant
from weft.ir.tensor import TensorLike, TensorOp
from weft.ops.arguments import checked_integer
from weft.ops.products.linalg import require_matrices, require_positional
from weft.ops.random import distributions, rejection
from weft.ops.random.philox import (
    FOLDED,
    KEYS,
    WORDS,
    axes_of,
    bits_from,
    checked_key,
    float_to_compute_in,
    middles,
    parameter,
    sample_normal,
    sample_uniform,
)
from weft.ops.reductions.cumulative import place
from weft.support.spelling import unknown_name

__all__ = [
    "bernoulli",
    "beta",
    "binomial",
    "bits",
    "categorical",
    "cauchy",
    "choice",
    "dirichlet",
    "exponential",
    "fold_in",
    "gamma",
    "geometric",
    "gumbel",
    "key",
    "laplace",
    "loggamma",
    "lognormal",
    "multinomial",
    "multivariate_normal",
    "normal",
    "permutation",
    "poisson",
    "randint",
    "split",
    "truncated_normal",
    "uniform",
    "vonmises",
]

if not TYPE_CHECKING:
    __getattr__ = unknown_name(__name__, __all__)


def __dir__() -> list[str]:
    """List what is public, and nothing that is only imported here."""
    return __all__


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
        wide = ops.cast(seed, dtypes.uint64)
        words = [wide & np.uint64(2**32 - 1), ops.shift_right(wide, np.uint64(32))]
        return ops.cast(ops.stack(words, pos=0), dtypes.uint32)
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
        If the key is not a key, or a number is negative.

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
        If the key is not a key, or the integer is out of range or none.

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
        return _made_of("fold_in", key, ops.cast(data, dtypes.uint32), make_axes(WORDS), FOLDED)
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
    made = ops.RandomBitsOp(checked_key(function, key), number, target_axes=axes, domain=domain)
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
        If the key is not a key.
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
        return ops.cast(draw(axes), kind)
    return ops.cast_axes(distributions.long_words(draw(make_axes((2, axes.size)))), axes)


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
        If the key is not a key, a bound does not fit, or the dtype is not a float.

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
        If the key is not a key, a parameter does not fit, or the dtype is not a float.

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
        If the key is not a key, the probability is out of range, does not fit or is not a float.

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
        If the key is not a key, or the bounds do not fit.
    DTypeError
        If the dtype is not an integer.

    Examples
    --------
    >>> dice = weft.jit(lambda key: weft.random.randint(key, (8,), 1, 7))
    >>> dice(weft.random.key(0)).tolist()
    [2, 1, 6, 4, 6, 2, 3, 4]
    """
    bounds = {"minval": minval, "maxval": maxval}
    return distributions.sample_integers(bits_from("randint", key), shape, bounds, dtype)


def categorical(
    key: TensorLike,
    logits: TensorLike,
    axis: AxisKey = -1,
    shape: AxesLike | None = None,
    replace: bool = True,
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
        default there are no others; further ones in front are draws.
    replace
        Whether draws are independent. Otherwise all those of one place differ, in the order in
        which they are drawn, by the largest logits plus Gumbel noise. (Kool, van Hoof, Welling:
        Stochastic beams and where to find them, ICML 2019.)

    Returns
    -------
    TensorOp
        Indices, int64.

    Raises
    ------
    ArgumentError
        If the key is not a key, or there are fewer classes than draws that have to differ.
    AxesError
        If there is no such axis, or the shape ends otherwise.

    Examples
    --------
    >>> draw = weft.jit(lambda key, x: weft.random.categorical(key, x, shape=(5,)))
    >>> draw(weft.random.key(0), np.log([0.0625, 0.875, 0.0625]))
    array([2, 1, 1, 1, 1])
    >>> draw = weft.jit(lambda key, x: weft.random.categorical(key, x, shape=(2,), replace=False))
    >>> draw(weft.random.key(0), np.log([0.0625, 0.875, 0.0625]))
    array([2, 1])
    """
    draw, op = bits_from("categorical", key), as_op(logits)
    rest = list(op.axes)
    del rest[place("categorical", op, axis)]
    axes = make_axes(rest if shape is None else shape)
    count = len(axes) - len(rest)
    if count < 0 or list(axes[count:]) != rest:
        problem = f"the shape {axes} does not end with {make_axes(rest)}, those of the logits"
        raise AxesError(explain("categorical", problem, (op,)))
    if not replace:
        return distributions.sample_different_categories(draw, op, axis, axes[:count])
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
        If the key is not a key.
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
        If the key is not a key, there is nothing to take, or too little to take without
        replacement.
    AxesError, DTypeError
        If `p` is not a vector of floats of the right length, or there is no such axis.

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
    return indices if op is None else ops.take(op, indices, position)


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
        return ops.cast_axes(distributions.random_order(draw, length)[:size], axes)
    chance = as_op(p)
    if not dtypes.is_float(chance.dtype):
        raise DTypeError(explain("choice", f"p must be floats, not {chance.dtype}", (chance,)))
    if chance.axes.lengths != (length,):
        problem = f"p must be a vector of {length} probabilities, not {chance.axes}"
        raise AxesError(explain("choice", problem, (chance,)))
    chance = ops.cast_axes(ops.cast(chance, dtypes.accumulator_dtype(chance.dtype)), length)
    if replace:
        total = ops.cumsum(chance)
        share = sample_uniform(draw, axes, {"low": 0.0, "high": 1.0}, chance.dtype)
        return ops.cast_axes(ops.searchsorted(total, share * total[-1], "right"), axes)
    noise = distributions.sample(
        "choice", draw, distributions.standard_gumbel, chance, dtype=chance.dtype
    )
    return ops.cast_axes(ops.argsort(ops.log(chance) + noise, descending=True)[:size], axes)


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
        If the key is not a key, the mean does not fit, or the dtype is not a float.

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
        If the key is not a key, a parameter does not fit, or the dtype is not a float.

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
        If the key is not a key, a parameter does not fit, or the dtype is not a float.

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
        If the key is not a key, a bound is not a number, a parameter does not fit, or the dtype is
        not a float.

    Examples
    --------
    >>> noise = weft.jit(lambda key: weft.random.truncated_normal(key, shape=(1000,)))
    >>> bool(np.all(np.abs(noise(weft.random.key(0))) <= 2))
    True
    """
    draw = bits_from("truncated_normal", key)
    standard = distributions.standard_truncated_normal({"lower": lower, "upper": upper})
    return distributions.sample("truncated_normal", draw, standard, shape, loc, scale, dtype)


def cauchy(
    key: TensorLike,
    shape: Shape = (),
    dtype: DTypeLike = dtypes.DEFAULT,
    loc: TensorLike = 0.0,
    scale: TensorLike = 1.0,
) -> TensorOp:
    """Return Cauchy-distributed numbers, by inversion.

    They have no mean; their median is `loc`, and half of them are within `scale` of it.

    Parameters
    ----------
    key
        A key.
    shape
        The lengths or axes of the result, or a tensor that has them.
    dtype
        A dtype of floats.
    loc, scale
        The median and the scale: numbers, or tensors that broadcast to the shape; the gradient
        flows to them.

    Returns
    -------
    TensorOp
        Floats.

    Raises
    ------
    ArgumentError, AxesError, DTypeError
        If the key is not a key, a parameter does not fit, or the dtype is not a float.

    Examples
    --------
    >>> noise = weft.jit(lambda key: weft.random.cauchy(key, (1000,)))(weft.random.key(0))
    >>> abs(float(np.mean(np.abs(noise) < 1)) - 0.5) < 0.05
    True
    """
    draw, standard = bits_from("cauchy", key), rejection.standard_cauchy
    return distributions.sample("cauchy", draw, standard, shape, loc, scale, dtype)


def lognormal(
    key: TensorLike,
    sigma: TensorLike = 1.0,
    shape: Shape | None = None,
    dtype: DTypeLike = dtypes.DEFAULT,
    mean: TensorLike = 0.0,
) -> TensorOp:
    """Return numbers whose logarithms are normally distributed.

    Parameters
    ----------
    key
        A key.
    sigma, mean
        The standard deviation and the mean of the logarithms: numbers, or tensors that broadcast to
        the shape; the gradient flows to them.
    shape
        The lengths or axes of the result, or a tensor that has them; by default those of the
        parameters.
    dtype
        A dtype of floats.

    Returns
    -------
    TensorOp
        Floats of at least 0.

    Raises
    ------
    ArgumentError, AxesError, DTypeError
        If the key is not a key, a parameter does not fit, or the dtype is not a float.

    Examples
    --------
    >>> draw = weft.jit(lambda key: weft.random.lognormal(key, 0.5, (1000,)))
    >>> abs(float(np.median(draw(weft.random.key(0)))) - 1) < 0.1
    True
    """
    draw, working = bits_from("lognormal", key), float_to_compute_in("lognormal", dtype)
    deviation, middle = distributions.operands(
        "lognormal", shape, working, sigma=(sigma, "at least 0"), mean=(mean, "finite")
    )
    normals = sample_normal(draw, deviation.axes, 0.0, 1.0, working)
    return ops.cast(ops.exp(normals * deviation + middle), dtype)


def gamma(
    key: TensorLike,
    a: TensorLike,
    shape: Shape | None = None,
    dtype: DTypeLike = dtypes.DEFAULT,
) -> TensorOp:
    """Return samples of gamma distributions of scale 1, with the density x**(a - 1) exp(-x) / Γ(a).

    Proposals are accepted or rejected (Marsaglia, Tsang: A simple method for generating gamma
    variables, 2000). The gradient moves a sample so that its quantile stays: it is that of the
    inverse of the distribution function (Figurnov, Mohamed, Mnih: Implicit reparameterization
    gradients, NeurIPS 2018). Multiply by a scale, or divide by a rate, for others.

    Parameters
    ----------
    key
        A key.
    a
        The shape parameter, which is the mean: a number of at least 0, or a tensor that broadcasts
        to the shape; the gradient flows to it.
    shape
        The lengths or axes of the result, or a tensor that has them; by default those of `a`.
    dtype
        A dtype of floats.

    Returns
    -------
    TensorOp
        Floats of at least 0. In a tensor 0 gives 0, infinity gives infinity, and negative numbers
        and NaN give NaN.

    Raises
    ------
    ArgumentError, AxesError, DTypeError
        If the key is not a key, the parameter does not fit, or the dtype is not a float.

    Examples
    --------
    >>> draw = weft.jit(lambda key, a: weft.random.gamma(key, a, (1000,)))
    >>> abs(float(draw(weft.random.key(0), 4.0).mean()) - 4) < 0.2
    True
    """
    return _gamma("gamma", key, a, shape, dtype)


def loggamma(
    key: TensorLike,
    a: TensorLike,
    shape: Shape | None = None,
    dtype: DTypeLike = dtypes.DEFAULT,
) -> TensorOp:
    """Return the logarithms of samples of `gamma`, which do not underflow where `a` is small.

    Parameters
    ----------
    key
        A key, from which `gamma` draws the samples of these logarithms.
    a
        The shape parameter: a number of at least 0, or a tensor that broadcasts to the shape; the
        gradient flows to it.
    shape
        The lengths or axes of the result, or a tensor that has them; by default those of `a`.
    dtype
        A dtype of floats.

    Returns
    -------
    TensorOp
        Floats; minus infinity where `a` is 0.

    Raises
    ------
    ArgumentError, AxesError, DTypeError
        If the key is not a key, the parameter does not fit, or the dtype is not a float.

    Examples
    --------
    >>> draw = weft.jit(lambda key, a: weft.random.loggamma(key, a, (1000,)))
    >>> -1200 < float(draw(weft.random.key(0), 0.001).mean()) < -800
    True
    """
    return _gamma("loggamma", key, a, shape, dtype)


def _gamma(
    function: str, key: TensorLike, a: TensorLike, shape: Shape | None, dtype: DTypeLike
) -> TensorOp:
    draw, working = bits_from(function, key), float_to_compute_in(function, dtype)
    (alpha,) = distributions.operands(function, shape, working, a=(a, "at least 0"))
    return ops.cast(rejection.sample_gamma(draw, alpha, function == "loggamma"), dtype)


def beta(
    key: TensorLike,
    a: TensorLike,
    b: TensorLike,
    shape: Shape | None = None,
    dtype: DTypeLike = dtypes.DEFAULT,
) -> TensorOp:
    """Return samples of beta distributions, with the density x**(a - 1) (1 - x)**(b - 1) / B(a, b).

    A sample is x / (x + y) for samples x and y of `gamma`, computed from their logarithms. The
    gradient flows through both.

    Parameters
    ----------
    key
        A key.
    a, b
        The parameters: numbers of at least 0, or tensors that broadcast to the shape; the gradient
        flows to them.
    shape
        The lengths or axes of the result, or a tensor that has them; by default those that the
        parameters broadcast to.
    dtype
        A dtype of floats.

    Returns
    -------
    TensorOp
        Floats from 0 to 1. If one parameter is 0 or infinite they are 0 or 1; NaN if both are, or
        one is negative.

    Raises
    ------
    ArgumentError, AxesError, DTypeError
        If the key is not a key, a parameter does not fit, or the dtype is not a float.

    Examples
    --------
    >>> draw = weft.jit(lambda key, a, b: weft.random.beta(key, a, b, (1000,)))
    >>> abs(float(draw(weft.random.key(0), 1.0, 3.0).mean()) - 0.25) < 0.02
    True
    """
    draw, working = bits_from("beta", key), float_to_compute_in("beta", dtype)
    tensors = distributions.operands(
        "beta", shape, working, a=(a, "at least 0"), b=(b, "at least 0")
    )
    first, second = (rejection.sample_gamma(draw, each, True) for each in tensors)
    # The logistic function, without an exponential that overflows.
    is_below, distance = ops.less(first, second), first - second
    smaller = ops.exp(ops.where(is_below, distance, -distance))
    return ops.cast(ops.where(is_below, smaller, 1.0) / (1.0 + smaller), dtype)


def dirichlet(
    key: TensorLike,
    alpha: TensorLike,
    shape: AxesLike | None = None,
    dtype: DTypeLike = dtypes.DEFAULT,
) -> TensorOp:
    """Return samples of Dirichlet distributions: vectors of shares along the last axis.

    They are samples of `gamma` divided by their sum, computed from their logarithms. The gradient
    flows through all of them.

    Parameters
    ----------
    key
        A key.
    alpha
        The concentrations along the last axis, at least 0; the gradient flows to them.
    shape
        The lengths or axes of the result without the last, to which those of `alpha` broadcast; by
        default these.
    dtype
        A dtype of floats.

    Returns
    -------
    TensorOp
        Floats whose sum along the last axis is 1. A concentration of 0 gives 0; a negative one, or
        none above 0, gives NaN.

    Raises
    ------
    ArgumentError, AxesError, DTypeError
        If the key is not a key, the concentrations do not fit, or the dtype is not a float.

    Examples
    --------
    >>> draw = weft.jit(lambda key, alpha: weft.random.dirichlet(key, alpha, (1000,)))
    >>> draw(weft.random.key(0), np.array([1.0, 3.0])).mean(0).round(1)
    array([0.3, 0.7], dtype=float32)
    """
    draw, working = bits_from("dirichlet", key), float_to_compute_in("dirichlet", dtype)
    op = as_op(alpha)
    if not op.axes:
        problem = "alpha must have an axis of concentrations, the last one; it is a scalar"
        raise AxesError(explain("dirichlet", problem, (op,)))
    axes = None if shape is None else make_axes(shape) + op.axes[-1:]
    (each,) = distributions.operands("dirichlet", axes, working, alpha=(op, "at least 0"))
    return ops.cast(ops.softmax(rejection.sample_gamma(draw, each, True), -1), dtype)


def poisson(
    key: TensorLike,
    lam: TensorLike,
    shape: Shape | None = None,
    dtype: DTypeLike = dtypes.int32,
) -> TensorOp:
    """Return samples of Poisson distributions.

    Below a mean of 10 by inversion, from it on proposals are accepted or rejected. (Hörmann: The
    transformed rejection method for generating Poisson random variables, 1993.)

    Parameters
    ----------
    key
        A key.
    lam
        The mean: a number of at least 0, or a tensor that broadcasts to the shape. It has no
        gradient. The counts are computed in float64 if it is, else in float32, which has all
        integers up to 2**24.
    shape
        The lengths or axes of the result, or a tensor that has them; by default those of `lam`.
    dtype
        A dtype of signed integers, or of floats.

    Returns
    -------
    TensorOp
        Counts, at most the largest integer of the dtype. Where a tensor of means is negative, NaN
        or infinite they are -1, and NaN among floats.

    Raises
    ------
    ArgumentError, AxesError, DTypeError
        If the key is not a key, the mean does not fit, or the dtype is another one.

    Examples
    --------
    >>> draw = weft.jit(lambda key: weft.random.poisson(key, 3.5, (1000,)))(weft.random.key(0))
    >>> abs(float(draw.mean()) - 3.5) < 0.2
    True
    """
    draw = bits_from("poisson", key)
    (mean,) = distributions.operands(
        "poisson", shape, _precision("poisson", lam), lam=(lam, "at least 0")
    )
    sample = rejection.sample_poisson(draw, mean)
    return rejection.as_counts("poisson", sample, dtypes.as_dtype(dtype))


def _precision(function: str, *parameters: TensorLike) -> Any:
    """Return float64 if a parameter is, else float32."""
    given = [as_op(each).dtype for each in parameters if not isinstance(each, int | float)]
    return dtypes.float64 if dtypes.float64 in given else dtypes.float32


def binomial(
    key: TensorLike,
    n: TensorLike,
    p: TensorLike,
    shape: Shape | None = None,
    dtype: DTypeLike = dtypes.int32,
) -> TensorOp:
    """Return samples of binomial distributions: successes among `n` trials.

    Below 10 successes, or failures, on average by inversion, else proposals are accepted or
    rejected. (Hörmann: The generation of binomial random variates, 1993.)

    Parameters
    ----------
    key
        A key.
    n, p
        The number of trials and the probability of each: numbers, or tensors that broadcast to the
        shape. They have no gradient. The counts are computed in float64 if one is a tensor of that,
        else in float32, which has all integers up to 2**24.
    shape
        The lengths or axes of the result, or a tensor that has them; by default those that the
        parameters broadcast to.
    dtype
        A dtype of signed integers, or of floats.

    Returns
    -------
    TensorOp
        Counts from 0 to `n`. Where a tensor of numbers has a negative, broken or infinite one, or
        a probability is not from 0 to 1, they are -1, and NaN among floats.

    Raises
    ------
    ArgumentError, AxesError, DTypeError
        If the key is not a key, a parameter does not fit, or the dtype is another one.

    Examples
    --------
    >>> draw = weft.jit(lambda key: weft.random.binomial(key, 10, 0.3, (1000,)))
    >>> abs(float(draw(weft.random.key(0)).mean()) - 3) < 0.2
    True
    """
    draw = bits_from("binomial", key)
    trials, chance = distributions.operands(
        "binomial",
        shape,
        _precision("binomial", n, p),
        n=(n, "an integer from 0 on"),
        p=(p, "from 0 to 1"),
    )
    sample = rejection.sample_binomial(draw, trials, chance)
    return rejection.as_counts("binomial", sample, dtypes.as_dtype(dtype))


def geometric(
    key: TensorLike,
    p: TensorLike,
    shape: Shape | None = None,
    dtype: DTypeLike = dtypes.int32,
) -> TensorOp:
    """Return samples of geometric distributions: trials up to the first success, by inversion.

    Parameters
    ----------
    key
        A key.
    p
        The probability of success in each trial: a number, or a tensor that broadcasts to the
        shape. It has no gradient. The counts are computed in float64 if it is, else in float32.
    shape
        The lengths or axes of the result, or a tensor that has them; by default those of `p`.
    dtype
        A dtype of signed integers, or of floats.

    Returns
    -------
    TensorOp
        Counts of at least 1, at most the largest integer of the dtype. Where a tensor of
        probabilities is not above 0, or above 1, they are -1, and NaN among floats.

    Raises
    ------
    ArgumentError, AxesError, DTypeError
        If the key is not a key, the probability does not fit, or the dtype is another one.

    Examples
    --------
    >>> draw = weft.jit(lambda key: weft.random.geometric(key, 0.25, (1000,)))(weft.random.key(0))
    >>> abs(float(draw.mean()) - 4) < 0.4
    True
    """
    draw = bits_from("geometric", key)
    (chance,) = distributions.operands(
        "geometric", shape, _precision("geometric", p), p=(p, "above 0 and at most 1")
    )
    valid = ops.greater(chance, 0.0) & ~ops.greater(chance, 1.0)
    u = middles(draw(chance.axes), chance.dtype)
    count = ops.floor(ops.log(u) / ops.log1p(-ops.where(valid, chance, 1.0))) + 1.0
    sample = ops.where(valid, count, np.nan)
    return rejection.as_counts("geometric", sample, dtypes.as_dtype(dtype))


def multinomial(
    key: TensorLike,
    n: TensorLike,
    p: TensorLike,
    shape: AxesLike | None = None,
    dtype: DTypeLike = dtypes.int32,
) -> TensorOp:
    """Return samples of multinomial distributions: how often each class comes in `n` trials.

    The trials are divided in two between halves of the classes, by `binomial`, and these again.

    Parameters
    ----------
    key
        A key.
    n
        The number of trials: a number, or a tensor that broadcasts to the shape.
    p
        The probabilities of the classes along the last axis, of which only ratios count. They have
        no gradient. The counts are computed in float64 if they are, else in float32, which has all
        integers up to 2**24.
    shape
        The lengths of the result without the last axis; by default those that `n` and the other
        axes of `p` broadcast to.
    dtype
        A dtype of signed integers, or of floats.

    Returns
    -------
    TensorOp
        Counts whose sum along the last axis is `n`. Where a probability is negative or not finite,
        none is above 0, or `n` is none of `binomial`, they are all -1, and NaN among floats.

    Raises
    ------
    ArgumentError, AxesError, DTypeError
        If the key is not a key, a parameter does not fit or has named axes, or the dtype is another
        one.

    Examples
    --------
    >>> draw = weft.jit(lambda key, p: weft.random.multinomial(key, 1000, p))
    >>> counts = draw(weft.random.key(0), np.array([0.5, 0.0, 0.5]))
    >>> int(counts.sum()), int(counts[1]), abs(int(counts[0]) - 500) < 50
    (1000, 0, True)
    """
    draw, chances = bits_from("multinomial", key), as_op(p)
    require_positional("multinomial", chances)
    if not chances.axes or not chances.axes[-1].length:
        problem = f"p must have an axis of classes, the last one, not {chances.axes}"
        raise AxesError(explain("multinomial", problem, (chances,)))
    working = _precision("multinomial", n, p)
    rest: Any = make_axes(() if shape is None else shape)
    if shape is None:
        rest = distributions.common_axes("multinomial", as_op(n).axes, Axes(chances.axes[:-1]))
    (trials,) = distributions.operands("multinomial", rest, working, n=(n, "an integer from 0 on"))
    (chances,) = distributions.operands(
        "multinomial", rest + chances.axes[-1:], working, p=(chances, "at least 0")
    )
    total = ops.sum(chances, axis=-1)
    valid = (
        ops.all(ops.greater_equal(chances, 0.0), axis=-1)
        & ops.greater(total, 0.0)
        & ops.less(total, np.inf)
    )
    counts = _divided(draw, trials, chances)
    sample = ops.where(ops.cast_axes(valid, (*rest.lengths, 1)), counts, np.nan)
    return rejection.as_counts("multinomial", sample, dtypes.as_dtype(dtype))


def _divided(draw: Any, trials: TensorOp, chances: TensorOp) -> TensorOp:
    """Return trials divided among the last axis of probabilities, by halves."""
    lengths, length = trials.axes.lengths, chances.axes[-1].length
    depth = (length - 1).bit_length()
    sums = [ops.pad(chances, [*((0, 0) for _ in lengths), (0, 2**depth - length)])]
    for level in reversed(range(depth)):
        sums.append(ops.sum(ops.reshape(sums[-1], (*lengths, 2**level, 2)), axis=-1))
    counts = ops.cast_axes(trials, (*lengths, 1))
    for halves in reversed(sums[:-1]):
        pairs = ops.reshape(halves, (*lengths, counts.axes[-1].length, 2))
        left, right = pairs[..., 0], pairs[..., 1]
        whole = left + right
        share = ops.where(ops.greater(whole, 0.0), left / whole, 0.0)
        first = rejection.sample_binomial(draw, counts, share)
        counts = ops.reshape(ops.stack([first, counts - first], pos=-1), halves.axes.lengths)
    return counts[..., :length]


def vonmises(
    key: TensorLike,
    loc: TensorLike,
    kappa: TensorLike,
    shape: Shape | None = None,
    dtype: DTypeLike = dtypes.DEFAULT,
) -> TensorOp:
    """Return angles x of von Mises distributions, with densities like exp(κ cos(x - loc)).

    Proposals are accepted or rejected. (Best, Fisher: Efficient simulation of the von Mises
    distribution, 1979.)

    Parameters
    ----------
    key
        A key.
    loc
        The mode: a number, or a tensor that broadcasts to the shape; the gradient flows to it.
    kappa
        The concentration κ: a number of at least 0, or a tensor that broadcasts to the shape. It
        has no gradient.
    shape
        The lengths or axes of the result, or a tensor that has them; by default those that the
        parameters broadcast to.
    dtype
        A dtype of floats.

    Returns
    -------
    TensorOp
        Floats from -π to π. NaN where a tensor of concentrations is negative, NaN or infinite.

    Raises
    ------
    ArgumentError, AxesError, DTypeError
        If the key is not a key, a parameter does not fit, or the dtype is not a float.

    Examples
    --------
    >>> draw = weft.jit(lambda key: weft.random.vonmises(key, 1.0, 9.0, (1000,)))
    >>> abs(float(draw(weft.random.key(0)).mean()) - 1) < 0.05
    True
    """
    draw, working = bits_from("vonmises", key), float_to_compute_in("vonmises", dtype)
    middle, concentration = distributions.operands(
        "vonmises", shape, working, loc=(loc, "finite"), kappa=(kappa, "at least 0")
    )
    angle = middle + rejection.sample_von_mises(draw, concentration)
    turns = ops.floor(angle * (0.5 / np.pi) + 0.5)
    return ops.cast(angle - turns * (2 * np.pi), dtype)


def multivariate_normal(
    key: TensorLike,
    mean: TensorLike,
    cov: TensorLike,
    shape: AxesLike | None = None,
    dtype: DTypeLike = dtypes.DEFAULT,
) -> TensorOp:
    """Return normally distributed vectors, with a mean and a covariance matrix.

    They are the mean plus normal numbers times the Cholesky factor of the covariance.

    Parameters
    ----------
    key
        A key.
    mean
        The mean, with the elements of a vector along the last axis; the gradient flows to it.
    cov
        The covariance, symmetric positive definite matrices in the last two axes, of which the
        lower triangle is read; the gradient flows to it.
    shape
        The lengths of the result without the last axis; by default those that the other axes of
        both broadcast to.
    dtype
        A dtype of floats.

    Returns
    -------
    TensorOp
        Floats; NaN where a covariance is not positive definite.

    Raises
    ------
    ArgumentError, AxesError, DTypeError
        If the key is not a key, the parameters do not fit or have named axes, or the dtype is not
        a float.

    Examples
    --------
    >>> mean, cov = np.array([1.0, 2.0]), np.array([[4.0, 2.0], [2.0, 3.0]])
    >>> draw = weft.jit(lambda key: weft.random.multivariate_normal(key, mean, cov, (5000,)))
    >>> np.cov(draw(weft.random.key(0)).T).round()
    array([[4., 2.],
           [2., 3.]])
    """
    function = "multivariate_normal"
    draw, working = bits_from(function, key), float_to_compute_in(function, dtype)
    middle, matrix = (ops.cast(as_op(each), working) for each in (mean, cov))
    require_matrices(function, matrix)
    if not middle.axes or middle.axes[-1].length != matrix.axes[-1].length:
        problem = f"mean and cov must have vectors and matrices of one size, not {middle.axes}"
        raise AxesError(explain(function, f"{problem} and {matrix.axes}", (middle, matrix)))
    if shape is None:
        batches = Axes(middle.axes[:-1]), Axes(matrix.axes[:-2])
        shape = distributions.common_axes(function, *batches)
    axes = make_axes(shape) + middle.axes[-1:]
    parameter(function, "cov", matrix, make_axes((*axes.lengths, axes[-1].length)))
    (middle,) = distributions.operands(function, axes, working, mean=(middle, "finite"))
    normals = sample_normal(draw, axes, 0.0, 1.0, working)
    rows = ops.cast_axes(normals, (*axes.lengths[:-1], 1, axes.lengths[-1]))
    moved = ops.matmul(rows, ops.matrix_transpose(ops.cholesky(matrix)))
    return ops.cast(middle + ops.cast_axes(moved, axes), dtype)
