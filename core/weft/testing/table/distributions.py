"""Rows of the op table: random bits and distributions, at the first call of a computation.

Expected values are computed from the published generator, with Python integers where exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from statistics import NormalDist
from typing import Any

import numpy as np

import weft
from weft.errors import ArgumentError, AxesError, DTypeError
from weft.ir.dtypes import Array
from weft.ops.random.philox import SAMPLES, philox
from weft.testing.table.rows import (
    FIXED,
    FLOATS,
    ONE,
    C,
    H,
    N,
    Operand,
    Refusal,
    Row,
    Shapes,
    fixed,
    operands,
)

_NOTHING: Shapes = ((),)
_SEED, _STREAM = 5, 3


def _bits(shape: tuple[int, ...], seed: int = _SEED, stream: int = _STREAM) -> Any:
    """Return the bits of the first call, block by block."""
    size = int(np.prod(shape))
    blocks = [philox(np.array([[n], [0], [1], [0]]), (seed, stream)) for n in range(-(-size // 4))]
    words = np.concatenate([np.zeros(0, np.uint32), *(block[:, 0] for block in blocks)])
    return words[:size].reshape(shape)


def unit(shape: tuple[int, ...], digits: int = 24, **key: int) -> Any:
    """Return the uniform numbers of the first call."""
    return (_bits(shape, **key) >> np.uint32(32 - digits)) / 2.0**digits


def _open_unit(shape: tuple[int, ...]) -> Any:
    return unit(shape, 23) + 2.0**-24


def _long_words(shape: tuple[int, ...], stream: int = _STREAM) -> list[int]:
    """Return integers of 64 bits for the elements of a shape."""
    upper, lower = _bits((2, int(np.prod(shape))), stream=stream).tolist()
    return [high * 2**32 + low for high, low in zip(upper, lower, strict=True)]


def _integers(shape: tuple[int, ...], low: int, high: int) -> Any:
    drawn = [low + word * (high - low) // 2**64 for word in _long_words(shape)]
    return np.array(drawn, object).reshape(shape)


def _order(length: int) -> Any:
    words = _long_words((length,))
    return np.array(sorted(range(length), key=words.__getitem__), np.int64)


def box_muller(shape: tuple[int, ...]) -> Any:
    """Return the normal numbers of the first call."""
    radius = np.sqrt(-2 * np.log(1 - unit(shape, stream=2 * _STREAM)))
    return radius * np.cos(2 * np.pi * unit(shape, stream=2 * _STREAM + 1))


def truncated(shape: tuple[int, ...], low: float, high: float) -> Any:
    """Return the normal numbers between two bounds of the first call."""
    normal = NormalDist()
    if low + high > 0:
        return -truncated(shape, -high, -low)
    below, above = normal.cdf(low), normal.cdf(high)
    chances = below + _open_unit(shape) * (above - below)
    return np.array([normal.inv_cdf(p) for p in chances.flat]).reshape(shape)


def _dropped(x: Array, rate: float) -> Any:
    return np.where(_bits(x.shape) < int(rate * 2**32), 0, x / (1 - rate))


def _largest(x: Any, axis: int) -> Any:
    return np.argmax(x - np.log(-np.log(_open_unit(x.shape))), axis=axis)


KEY = {"seed": _SEED, "stream": _STREAM}

_WORDS = (2026, 1128)
_GIVEN = np.array(_WORDS, np.uint32)
"""A key of `weft.random`."""


def _keyed_words(count: int, use: int, key: tuple[int, ...] = _WORDS) -> Any:
    """Return the integers of 32 bits that a key gives for one of its uses."""
    blocks = -(-count // 4)
    counters = np.zeros((4, blocks), np.uint32)
    counters[0], counters[2], counters[3] = np.arange(blocks), use, SAMPLES
    return philox(counters, key).T.reshape(-1)[:count]


def _keyed(count: int, use: int = 0, key: tuple[int, ...] = _WORDS) -> Any:
    """Return the middles of 2²³ intervals that a key gives for one of its uses."""
    return (_keyed_words(count, use, key) >> np.uint32(9)) / 2.0**23 + 2.0**-24


def _key_of_use(use: int) -> tuple[int, ...]:
    """Return the key that a loop is given: the first words of a use."""
    counter = np.array([[0], [0], [use], [SAMPLES]], np.uint32)
    return tuple(int(word) for word in philox(counter, _WORDS)[:2, 0])


def _first(accepted: Callable[..., float | None], count: int, use: int, *parameters: Any) -> Any:
    """Return the first proposal that is accepted, element by element."""
    key, found = _key_of_use(use), []
    each = list(zip(*(np.ravel(x).astype(np.float64) for x in parameters), strict=True))
    for place, values in enumerate(each):
        turn = 0
        sample = None
        while sample is None:
            rows = _keyed(count * len(each), turn, key).reshape(count, -1)
            sample, turn = accepted(*rows[:, place], *values), turn + 1
        found.append(sample)
    return np.reshape(found, np.shape(parameters[0]))


def _marsaglia_tsang(u: float, share: float, turn: float, a: float) -> float | None:
    """Return a gamma sample for a of at least 1, or None."""
    d, x = a - 1 / 3, math.sqrt(-2 * math.log(share)) * math.cos(2 * math.pi * turn)
    v = (1 + x / math.sqrt(9 * d)) ** 3
    if v > 0 and math.log(u) < x * x / 2 + d - d * v + d * math.log(v):
        return d * v
    return None


def _gamma(a: Any) -> Any:
    whole = _first(_marsaglia_tsang, 3, 0, np.where(a < 1, a + 1.0, a))
    power = _keyed(a.size, 1).reshape(a.shape) ** (1.0 / a)
    return whole * np.where(a < 1, power, 1.0)


def _transformed_rejection(u: float, v: float, mean: float) -> float | None:
    """Return a Poisson sample for means of at least 10, or None (Hörmann's PTRS)."""
    b = 0.931 + 2.53 * math.sqrt(mean)
    a = -0.059 + 0.02483 * b
    edge = 0.5 - abs(u - 0.5)
    k = math.floor((2 * a / edge + b) * (u - 0.5) + mean + 0.43)
    if edge >= 0.07 and v <= 0.9277 - 3.6224 / (b - 2):
        return k
    height = v * (1.1239 + 1.1328 / (b - 3.4)) / (a / edge**2 + b)
    is_below = k >= 0 and math.log(height) <= k * math.log(mean) - mean - math.lgamma(k + 1)
    return k if is_below else None


def _best_fisher(u: float, v: float, kappa: float) -> float | None:
    """Return a von Mises sample, or None; the wrapped Cauchy proposal has mode 0."""
    tau = 1 + math.sqrt(1 + 4 * kappa**2)
    r = tau / (2 * kappa)
    angle = 2 * math.atan(math.sqrt((r - 1) / (r + 1)) * math.tan(math.pi * (u - 0.5)))
    c = kappa * (r - math.cos(angle))
    return angle if math.log(c / v) + 1 - c >= 0 else None


def _fewest(probability: Callable[[int, float], float], p: Any, use: int = 0) -> Any:
    """Return the least counts whose distribution function is above a uniform number."""
    found = []
    for u, value in zip(_keyed(p.size, use), np.ravel(p).astype(np.float64), strict=True):
        count, below = 0, probability(0, value)
        while u > below:
            count += 1
            below += probability(count, value)
        found.append(count)
    return np.reshape(found, p.shape)


def _poisson_chance(k: int, mean: float) -> float:
    return math.exp(-mean) * mean**k / math.factorial(k)


def _binomial_chance(k: int, p: float) -> float:
    return math.comb(9, k) * p**k * (1 - p) ** (9 - k)


_KEYED: tuple[tuple[str, Callable[..., Any], str, Callable[..., Any]], ...] = (
    ("cauchy", lambda x: weft.random.cauchy(_GIVEN, x, x.dtype, x), "any",
     lambda x: x + np.tan(np.pi * (_keyed(x.size).reshape(x.shape) - 0.5))),
    ("lognormal", lambda x: weft.random.lognormal(_GIVEN, x, dtype=x.dtype), "unit",
     lambda x: np.exp(x * _keyed_normal(x.shape))),
    ("gamma", lambda x: weft.random.gamma(_GIVEN, 4 * x, dtype=x.dtype), "positive",
     lambda x: _gamma(4 * x)),
    ("loggamma", lambda x: weft.random.loggamma(_GIVEN, x, dtype=x.dtype), "positive",
     lambda x: np.log(_gamma(x))),
    ("vonmises", lambda x: weft.random.vonmises(_GIVEN, 0, x, dtype=x.dtype), "positive",
     lambda x: _first(_best_fisher, 2, 0, x)),
    ("poisson", lambda x: weft.random.poisson(_GIVEN, x), "positive",
     lambda x: _fewest(_poisson_chance, x)),
    ("poisson", lambda x: weft.random.poisson(_GIVEN, x + 10), "positive",
     lambda x: _first(_transformed_rejection, 2, 1, x + 10)),
    ("binomial", lambda x: weft.random.binomial(_GIVEN, 9, x), "unit",
     lambda x: np.where(x > 0.5, 9 - _fewest(_binomial_chance, np.minimum(x, 1 - x)),
                        _fewest(_binomial_chance, np.minimum(x, 1 - x)))),
    ("geometric", lambda x: weft.random.geometric(_GIVEN, x), "unit",
     lambda x: 1 + np.floor(np.log(_keyed(x.size).reshape(x.shape)) / np.log1p(-x))),
)  # fmt: skip
"""By function of a key: how it is called, the values of its parameter, and the samples."""

_KEYED_DTYPES = ("float32", "float64")


def _keyed_normal(shape: tuple[int, ...]) -> Any:
    size = int(np.prod(shape))
    first, second = ((_keyed_words(size, use) >> np.uint32(8)) / 2.0**24 for use in range(2))
    return (np.sqrt(-2 * np.log(1 - first)) * np.cos(2 * np.pi * second)).reshape(shape)


_LOCATED: dict[str, tuple[Callable[..., Any], Callable[[tuple[int, ...]], Any]]] = {
    "uniform": (lambda x, loc, scale: weft.uniform(x, loc, loc + scale, x.dtype, **KEY), unit),
    "normal": (lambda x, *rest: weft.normal(x, *rest, x.dtype, **KEY), box_muller),
    "gumbel": (lambda x, *rest: weft.gumbel(x, *rest, x.dtype, **KEY),
               lambda shape: -np.log(-np.log(_open_unit(shape)))),
    "laplace": (lambda x, *rest: weft.laplace(x, *rest, x.dtype, **KEY),
                lambda shape: np.sign(_open_unit(shape) - 0.5)
                * -np.log(1 - 2 * np.abs(_open_unit(shape) - 0.5))),
    "truncated_normal": (lambda x, *rest: weft.truncated_normal(
        x, *rest, -1.5, 2.5, x.dtype, **KEY), lambda shape: truncated(shape, -1.5, 2.5)),
    "exponential": (lambda x, loc, scale: loc + weft.exponential(x, scale, x.dtype, **KEY),
                    lambda shape: -np.log(_open_unit(shape))),
}  # fmt: skip
"""By distribution with location and scale: its function, and its standard form in NumPy."""


def _located_rows() -> list[Row]:
    return [
        Row(name, build, (FIXED, *operands("any", "positive")),
            (((2, 3), (2, 3), (3,)), ((2, 3), (), ()), ((), (), ()), ((0,), (), ())),
            FLOATS[:1] if name == "truncated_normal" else FLOATS,
            lambda x, loc, scale, f=standard: loc + scale * f(x.shape))
        for name, (build, standard) in _LOCATED.items()
    ]  # fmt: skip


def _plain(name: str, case: str, first: Any, expected: Array, *rest: Any) -> Row:
    function = getattr(weft, name)
    return Row(name, lambda: function(first, *rest, **KEY), (), _NOTHING, ("float32",),
               lambda: expected, case, is_generic=False)  # fmt: skip


ROWS: tuple[Row, ...] = (
    *_located_rows(),
    *(
        Row(f"random.{name}", build, fixed(kind), (((2, 3),), ((),), ((0,),)), _KEYED_DTYPES,
            expected, case=f"keyed-{number}")
        for number, (name, build, kind, expected) in enumerate(_KEYED)
    ),
    Row("random_bits", lambda: weft.random_bits((2, 3), seed=7, stream=3), (), _NOTHING,
        ("float32",), lambda: _bits((2, 3), 7, 3), is_generic=False),
    Row("random_bits", lambda: weft.random_bits((5,), 2**32 - 1, 1), (), _NOTHING, ("float32",),
        lambda: _bits((5,), 2**32 - 1, 1), case="large-seed", is_generic=False),
    Row("random_bits", lambda x: weft.random_bits(x, **KEY), (FIXED,), ONE, ("float32",),
        lambda x: _bits(x.shape), case="like"),
    _plain("uniform", "numbers", (3, 5), -1 + 4 * unit((3, 5)), -1, 3),
    _plain("normal", "numbers", (3, 5), 1 + 2 * box_muller((3, 5)), 1, 2),
    _plain("truncated_normal", "tail", (3, 4), 1 + 2 * truncated((3, 4), 5.0, 6.0), 1, 2, 5, 6),
    _plain("truncated_normal", "half", (7,), truncated((7,), -np.inf, 0.0), 0, 1, -np.inf, 0),
    *(
        _plain("randint", f"{dtype}-{low}-{high}", shape, _integers(shape, low, high), low, high,
               dtype)
        for dtype, low, high, shape in (
            ("int32", -3, 9, (3, 4)), ("int8", -128, 128, (9,)), ("uint8", 0, 1, (2,)),
            ("int32", -2**31, 2**31, (5,)), ("int64", 2**62, 2**62 + 3, (5,)),
            ("uint64", 2**64 - 2**32, 2**64, (5,)), ("uint32", 7, 2**31, ()), ("int16", 0, 5, (0,)),
        )
    ),
    _plain("permutation", "number", 7, _order(7)),
    _plain("permutation", "axis", C, _order(4)),
    _plain("permutation", "one", 1, _order(1)),
    _plain("permutation", "none", 0, _order(0)),
    Row("permutation", lambda x: weft.permutation(x, 1, **KEY), operands("any"),
        (((2, 5),), ((C, H),)), ("float32", "int32"), lambda x: x[:, _order(5)], case="tensor"),
    Row("shuffle", lambda x: weft.shuffle(x, **KEY), operands("any"),
        (((5, 2),), ((1, 3),), ((0, 2),), ((4,),), ((N, C),)), expected=lambda x: x[_order(5)]),
    Row("shuffle", lambda x: weft.shuffle(x, "C", **KEY), operands("any"), (((N, C, H),),),
        expected=lambda x: x[:, _order(4)], case="named"),
    Row("bernoulli", lambda p: weft.bernoulli(p, **KEY), fixed("unit"), ONE, FLOATS,
        lambda p: _bits(p.shape) < np.floor(p.astype(np.float64) * 2**32)),
    Row("bernoulli", lambda p: weft.bernoulli(p, (4, 3), p.dtype, **KEY), fixed("unit"),
        (((3,),), ((),)), FLOATS, lambda p: _bits((4, 3)) / 2.0**32 < p, case="axes"),
    Row("bernoulli", lambda p: weft.bernoulli(p * 10, **KEY), fixed("distinct"), (((3, 5),),),
        FLOATS, lambda p: p > 0, case="certain"),
    *(
        Row("bernoulli", lambda p=p: weft.bernoulli(p, (4, 5), **KEY), (), _NOTHING, ("float32",),
            lambda p=p: _bits((4, 5)) / 2.0**32 < p, case=f"number-{p}", is_generic=False)
        for p in (0, 0.3, 1)
    ),
    Row("categorical", lambda x: weft.categorical(x, **KEY), fixed("any"),
        (((5, 3),), ((4,),), ((2, 1),), ((0, 2),)), FLOATS, lambda x: _largest(x, -1)),
    Row("categorical", lambda x: weft.categorical(x, "C", **KEY), fixed("any"), (((N, C, H),),),
        FLOATS, lambda x: _largest(x, 1), case="named"),
    Row("categorical", lambda x: weft.categorical(weft.where(weft.less(x, 0), x, -np.inf), **KEY),
        (Operand("distinct", differentiable=False),), (((4, 5),),), FLOATS,
        lambda x: _largest(np.where(x < 0, x, -np.inf), -1), case="impossible"),
    Row("dropout", lambda x: weft.dropout(x, 0.4, **KEY), operands("any"), ONE,
        expected=lambda x: _dropped(x, 0.4), twice=True),
    Row("dropout", lambda x: weft.square(weft.dropout(weft.square(x), 0.5, **KEY)),
        operands("any"), (((3, 4),),), expected=lambda x: _dropped(x * x, 0.5) ** 2, case="squares",
        twice=True),
    Row("dropout", lambda x: weft.dropout(x, 0.5, **KEY), (FIXED,), (((3, 4),),), ("int32",),
        lambda x: _dropped(x, 0.5), case="integers", is_generic=False),
    *(
        Row("dropout", lambda x, o=options: weft.dropout(x, *o), operands("any"), (((3, 4),),),
            expected=lambda x, f=factor: x * f, case=case)
        for case, options, factor in (
            ("not-training", (0.5, False), 1), ("nothing", (0,), 1), ("everything", (1,), 0),
        )
    ),
)  # fmt: skip

_X, _COMPLEX = weft.placeholder((2, 3)), weft.placeholder((3,), "complex64")
_INTEGERS = weft.placeholder((2,), "int32")

REFUSALS: tuple[Refusal, ...] = (
    *(
        Refusal(name, case, partial(getattr(weft, name), *args, **options), error, words)
        for name, args in (
            ("random_bits", ((3,),)), ("uniform", ((3,),)), ("normal", ((3,),)),
            ("gumbel", ((3,),)), ("laplace", ((3,),)), ("exponential", ((3,),)),
            ("truncated_normal", ((3,),)), ("randint", ((3,), 0, 5)), ("permutation", (3,)),
            ("shuffle", (_X,)), ("categorical", (_X,)), ("bernoulli", (0.5,)),
            ("dropout", (_X, 0.5)),
        )
        for case, options, error, words in (
            ("negative-seed", {"seed": -1}, ArgumentError, "seed must be an integer from 0 to"),
            ("large-seed", {"seed": 2**32}, ArgumentError, "seed must be an integer from 0 to"),
            ("stream", {"stream": "first"}, ArgumentError, "stream must be an integer from 0"),
        )
    ),
    *(
        Refusal(name, case, partial(getattr(weft, name), (3,), **options), error, words)
        for name in ("uniform", "normal", "gumbel", "laplace", "exponential", "truncated_normal")
        for first in ["low" if name == "uniform" else "scale"]
        for case, options, error, words in (
            ("dtype", {"dtype": "int32"}, DTypeError, "are not floats: cast them"),
            ("text", {first: "one"}, DTypeError, "must be a number, or a tensor that fits"),
            ("shape", {first: _X}, AxesError, "must be a number, or a tensor that fits"),
            ("complex", {first: _COMPLEX}, DTypeError, "complex64 numbers have no order"),
        )
    ),
    *(
        Refusal(name, "scale", partial(getattr(weft, name), (3,), scale=-1), ArgumentError,
                "scale must be at least 0, not -1")
        for name in ("normal", "gumbel", "laplace", "exponential", "truncated_normal")
    ),
    Refusal("random_bits", "axes", lambda: weft.random_bits("axes"), AxesError, "cannot be made"),
    Refusal("normal", "large-stream", lambda: weft.normal((3,), stream=2**30), ArgumentError,
            "stream must be an integer from 0"),
    Refusal("truncated_normal", "bounds", lambda: weft.truncated_normal((3,), low=2, high=2),
            ArgumentError, "low must be below high"),
    Refusal("truncated_normal", "bound", lambda: weft.truncated_normal((3,), low=_X),
            ArgumentError, "low and high must be numbers"),
    Refusal("randint", "empty", lambda: weft.randint((3,), 5, 5), ArgumentError, "1 to 2\\*\\*32"),
    Refusal("randint", "wide", lambda: weft.randint((3,), 0, 2**32 + 1, "int64"), ArgumentError,
            "1 to 2\\*\\*32"),
    Refusal("randint", "dtype-range", lambda: weft.randint((3,), 0, 257, "uint8"), ArgumentError,
            "that fit uint8"),
    Refusal("randint", "dtype", lambda: weft.randint((3,), 0, 2, "float32"), DTypeError,
            "must be integers, not float32"),
    Refusal("randint", "bound", lambda: weft.randint((3,), 0, 2.5), ArgumentError,
            "must be integers, not 2.5"),
    Refusal("permutation", "negative", lambda: weft.permutation(-2), AxesError, "not be negative"),
    Refusal("permutation", "text", lambda: weft.permutation("abc"), DTypeError, "not made of"),
    Refusal("shuffle", "axis", lambda: weft.shuffle(_X, 2), AxesError, "shuffle: dimension 2"),
    Refusal("categorical", "axis", lambda: weft.categorical(_X, "C"), AxesError,
            "categorical: unknown axis"),
    Refusal("categorical", "none", lambda: weft.categorical(weft.placeholder((2, 0))), AxesError,
            "no elements"),
    Refusal("categorical", "complex", lambda: weft.categorical(_COMPLEX), DTypeError, "complex"),
    Refusal("bernoulli", "chance", lambda: weft.bernoulli(1.5), ArgumentError, "from 0 to 1"),
    Refusal("bernoulli", "integers", lambda: weft.bernoulli(_INTEGERS), DTypeError, "not int32"),
    Refusal("bernoulli", "shape", lambda: weft.bernoulli(_X, (4,)), AxesError, "that fits"),
    Refusal("dropout", "rate", lambda: weft.dropout(_X, -0.1), ArgumentError, "from 0 to 1"),
    Refusal("dropout", "no-rate", lambda: weft.dropout(_X, None), ArgumentError, "not None"),
    Refusal("dropout", "training", lambda: weft.dropout(_X, 0.5, _X), ArgumentError,
            "training must be True or False"),
)  # fmt: skip
