"""Functions and their slopes over the whole range of each dtype, in units of the last place.

mpmath is the judge. Points lie at every power of 2, between them up to where exponentials end, and
densely where a formula changes, cancels, overflows or underflows.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import mpmath as mp
import numpy as np
import pytest

import weft
from weft.ir import dtypes

pytestmark = pytest.mark.share(6)

INFINITY = math.inf
mp.mp.prec = 120


class Row(NamedTuple):
    """A function, what it is, and how exact.

    Attributes
    ----------
    near
        Numbers that are tried from all sides.
    low, high
        The range.
    ulps
        The units in the last place by which results may be off, at least one subnormal number.
    absolute
        By how many epsilons they may be off besides: where a difference of numbers near 1 cancels.
    """

    build: Callable[[Any], Any]
    exact: Callable[[Any], Any]
    near: tuple[float, ...] = (0.0,)
    low: float = -INFINITY
    high: float = INFINITY
    ulps: float = 4
    absolute: float = 0


def exp(x: Any):
    return mp.exp(x) if x < 3000 else mp.inf


def sigmoid(x: Any):
    return 1 / (1 + mp.exp(-x)) if x > -3000 else mp.exp(max(x, mp.mpf(-1e6)))


def softplus(x: Any):
    return mp.log1p(exp(x)) if x < 3000 else x


def gelu(x: Any):
    return x * mp.erfc(-x / mp.sqrt(2)) / 2 if abs(x) < 1e4 else max(x, mp.mpf(0))


def gelu_tanh(x: Any):
    angle = mp.sqrt(2 / mp.pi) * (x + mp.mpf(0.044715) * x**3)
    return x * sigmoid(2 * angle) if abs(x) < 1e4 else max(x, mp.mpf(0))


def gelu_slope(x: Any):
    if abs(x) > 1e4:
        return mp.mpf(x > 0)
    return mp.erfc(-x / mp.sqrt(2)) / 2 + x * mp.npdf(x)


def mish_slope(x: Any):
    t = mp.tanh(softplus(x))
    return t + x * (1 - t * t) * sigmoid(x)


def shrink(x: Any):
    if abs(x) < 1e-9:
        return x**3 / 3
    return x - mp.tanh(x)


def gauss(x: Any):
    return 2 / mp.sqrt(mp.pi) * mp.exp(-x * x) if abs(x) < 1e4 else mp.mpf(0)


def lgamma(x: Any):
    return mp.loggamma(x).real if x > 0 else mp.log(abs(mp.gamma(x)))


def hyperbolic(function: Callable[..., Any]):
    return lambda x: function(x) if abs(x) < 3000 else function(mp.sign(x) * 3000)


def slope(function: Callable[..., Any]):
    return lambda x: weft.deriv(weft.sum(function(x)), x)


def entropy(target: int):
    return lambda x: weft.binary_cross_entropy_with_logits(x, x * 0 + target, reduction="none")


ENDS = (0.0, 17.0, -17.0, 88.8, -88.8, 104.0, -104.0, 710.0, -710.0, -745.0)

FUNCTIONS = {
    "sigmoid": Row(weft.sigmoid, sigmoid, ENDS),
    "log_sigmoid": Row(weft.log_sigmoid, lambda x: -softplus(-x), ENDS),
    "silu": Row(weft.silu, lambda x: x * sigmoid(x), ENDS),
    "softplus": Row(weft.softplus, softplus, ENDS),
    "logaddexp": Row(lambda x: weft.logaddexp(x, 0.0), softplus, ENDS),
    "mish": Row(weft.mish, lambda x: x * mp.tanh(softplus(x)), ENDS, ulps=5),
    "elu": Row(weft.elu, lambda x: x if x > 0 else mp.expm1(x), ENDS),
    "celu": Row(lambda x: weft.celu(x, 2.0), lambda x: x if x > 0 else 2 * mp.expm1(x / 2), ENDS),
    "exp": Row(weft.exp, exp, ENDS),
    "expm1": Row(weft.expm1, lambda x: exp(x) if x > 3000 else mp.expm1(x), ENDS),
    "exp2": Row(weft.exp2, lambda x: mp.mpf(2) ** min(x, 5000), (0, 127.9, -126, 1023.5, -1022)),
    "gelu": Row(weft.gelu, gelu, (0, -1, -4, 3), low=-6, ulps=30),
    "gelu's tail": Row(weft.gelu, gelu, (-13, -14, -38), high=-6, ulps=2000),
    "gelu, tanh": Row(lambda x: weft.gelu(x, "tanh"), gelu_tanh, (0, -5, 3), low=-5, ulps=60),
    "its tail": Row(lambda x: weft.gelu(x, "tanh"), gelu_tanh, (-6, -10), high=-5, ulps=2000),
    "tanh": Row(weft.tanh, mp.tanh, (0, 9, 0.5, 0.625)),
    "tanh_shrink": Row(weft.tanh_shrink, shrink, (0, 2, 0.01)),
    "sinh": Row(weft.sinh, hyperbolic(mp.sinh), ENDS),
    "cosh": Row(weft.cosh, hyperbolic(mp.cosh), ENDS),
    "asinh": Row(weft.asinh, mp.asinh, (0, 1, 1e19)),
    "acosh": Row(weft.acosh, mp.acosh, (1, 2, 1e19), low=1),
    "atanh": Row(weft.atanh, mp.atanh, (0, 0.5, 0.99999), -0.99999999, 0.99999999),
    "log1p": Row(weft.log1p, mp.log1p, (0, -0.9999), low=-0.99999999),
    "erf": Row(weft.erf, mp.erf, (0, 0.5, 3.9), ulps=5),
    "erfc": Row(weft.erfc, lambda x: mp.erfc(min(x, 1000)), (0, 0.47, 4, 9, 10, 26), ulps=10),
    "erfinv": Row(weft.erfinv, mp.erfinv, (0, 0.99, 0.9), -0.99999, 0.99999),
    "lgamma": Row(weft.lgamma, lgamma, (1, 2, 0.5, 2.5, 0), low=0, high=1e30, ulps=8, absolute=12),
    "lgamma at its zeros": Row(weft.lgamma, lgamma, (1, 2), 0.55, 2.45, ulps=5),
    "lgamma below 0": Row(weft.lgamma, lgamma, (-0.5, -2.4), -20.9, 0, ulps=20, absolute=60),
    "digamma": Row(weft.digamma, mp.digamma, (1.46163214, 0.5, 2), low=1e-30, ulps=6, absolute=20),
    "sinc": Row(weft.sinc, mp.sincpi, (0, 1, 2, 1 / math.pi), -1e4, 1e4),
    "rsqrt": Row(weft.rsqrt, lambda x: 1 / mp.sqrt(x), (1,), low=1e-37),
    "entropy of 1": Row(entropy(1), lambda x: softplus(-x), ENDS),
    "entropy of 0": Row(entropy(0), softplus, ENDS),
}

SLOPES = {
    "sigmoid": Row(slope(weft.sigmoid), lambda x: sigmoid(x) * sigmoid(-x), ENDS, absolute=1),
    "log_sigmoid": Row(slope(weft.log_sigmoid), lambda x: sigmoid(-x), ENDS),
    "softplus": Row(slope(weft.softplus), sigmoid, ENDS),
    "silu": Row(slope(weft.silu), lambda x: sigmoid(x) + x * sigmoid(x) * sigmoid(-x), ENDS,
                ulps=6, absolute=1),
    "silu's tail": Row(slope(weft.silu), lambda x: sigmoid(x) + x * sigmoid(x) * sigmoid(-x), ENDS,
                       high=-2, ulps=8),
    "mish": Row(slope(weft.mish), mish_slope, ENDS, ulps=6, absolute=1),
    "mish's tail": Row(slope(weft.mish), mish_slope, ENDS, high=-2, ulps=8),
    "gelu": Row(slope(weft.gelu), gelu_slope, (0, -0.75, 3), ulps=10, absolute=1),
    "elu": Row(slope(weft.elu), lambda x: mp.mpf(1) if x > 0 else mp.exp(x), ENDS),
    "expm1": Row(slope(weft.expm1), exp, ENDS),
    "tanh": Row(slope(weft.tanh), lambda x: mp.sech(x) ** 2 if abs(x) < 1e3 else mp.mpf(0),
                (0, 9, 5), absolute=4),
    "erf": Row(slope(weft.erf), gauss, (0, 9), -5, 5, ulps=40),
    "asinh": Row(slope(weft.asinh), lambda x: 1 / mp.sqrt(1 + x * x), (0, 1e19)),
    "acosh": Row(slope(weft.acosh), lambda x: 1 / mp.sqrt(x * x - 1), (1, 1e19), low=1.0000002),
    "log1p": Row(slope(weft.log1p), lambda x: 1 / (1 + x), (0, -0.99), low=-0.9999),
    "logaddexp": Row(slope(lambda x: weft.logaddexp(x, 0.0)), sigmoid, ENDS),
    "entropy of 1": Row(slope(entropy(1)), lambda x: -sigmoid(-x), ENDS),
    "entropy of 0": Row(slope(entropy(0)), sigmoid, ENDS),
}  # fmt: skip

IN_FLOAT32 = ("sigmoid", "silu", "mish", "gelu", "gelu, tanh", "tanh_shrink", "erf", "erfc", "sinc")
"""What floats of 16 bits are computed in, so that results are rounded once."""


def points(row: Row, dtype: Any) -> Any:
    """Return the points of a row's range, increasing."""
    finfo, random = np.finfo(dtype), np.random.default_rng(3)
    powers = np.arange(round(math.log2(finfo.smallest_subnormal)), finfo.maxexp)[:: finfo.bits // 8]
    magnitudes = np.ldexp(1 + random.random(powers.size), powers)
    ends = np.linspace(0, 110 if finfo.bits < 64 else 760, 120)
    found = [magnitudes, -magnitudes, ends, -ends, random.uniform(-3, 3, 50)]
    with np.errstate(over="ignore"):
        for center in row.near:
            size = max(abs(center), 0.1)
            found += [center + size * random.uniform(-d, d, 10) for d in (0.05, 1e-3, 1e-6)]
            nearest = dtype.type(center)
            found += [[nearest, *(np.nextafter(nearest, dtype.type(s)) for s in (-np.inf, np.inf))]]
        x = np.unique(np.concatenate([np.asarray(each, dtype) for each in found]))
    return x[np.isfinite(x) & (x >= row.low) & (x <= row.high) & (x != 0)]


@functools.cache
def judged(table: str, dtype: Any) -> dict[str, tuple[Any, list[Any]]]:
    """Return for each row its points, and what the function is there."""
    found = {}
    for name, row in (FUNCTIONS if table == "functions" else SLOPES).items():
        if dtype.itemsize > 2 or (table == "functions" and name in IN_FLOAT32):
            x = points(row, dtype)
            found[name] = x, [row.exact(mp.mpf(float(each))) for each in x]
    return found


def too_far(row: Row, dtype: Any, got: float, want: Any) -> bool:
    """Whether a result is off by more than it may be; beyond the range is infinity."""
    finfo = np.finfo(dtype)
    largest, least = float(finfo.max), float(finfo.smallest_subnormal)
    if math.isnan(got):
        return True
    exponent = mp.floor(mp.log(abs(want), 2)) if want else mp.mpf(finfo.minexp)
    unit = max(mp.mpf(2) ** (min(exponent, finfo.maxexp - 1) - finfo.nmant), mp.mpf(least))
    ulps = 1 if dtype.itemsize == 2 else row.ulps
    allowed = ulps * unit + row.absolute * float(finfo.eps)
    if math.isinf(got):
        return got * want < 0 or abs(want) < largest - allowed
    return abs(mp.mpf(got) - min(max(want, -2 * largest), 2 * largest)) > allowed


@pytest.mark.parametrize("table", ["functions", "slopes"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_functions_are_exact_up_to_the_ends_of_their_range(
    transformer: weft.Transformer, table: Any, dtype: Any
):
    if dtype not in transformer.target.dtypes or (table, dtype) == ("slopes", "float16"):
        pytest.skip("not computed")
    dtype = dtypes.as_dtype(dtype)
    rows = FUNCTIONS if table == "functions" else SLOPES
    wanted = judged(table, dtype)
    arrays = [x for x, _ in wanted.values()]
    parameters = [weft.placeholder(x.shape, dtype=dtype) for x in arrays]
    results = [rows[name].build(x) for name, x in zip(wanted, parameters, strict=True)]
    found = transformer.computation(results, *parameters)(*arrays)
    problems = [
        f"{name}({x[place]}): {got} is not {mp.nstr(exact[place], 9)}"
        for (name, (x, exact)), values in zip(wanted.items(), found, strict=True)
        for place, got in enumerate(map(float, values))
        if too_far(rows[name], dtype, got, exact[place])
    ]
    assert problems == []


@pytest.mark.parametrize("name", ["sigmoid", "silu", "mish", "gelu"])
def test_limits_at_infinity(transformer: weft.Transformer, name: str):
    x = weft.placeholder((3,))
    y = getattr(weft, name)(x)
    values = np.array([np.inf, -np.inf, np.nan], "f4")
    found, slopes = transformer.computation([y, weft.deriv(weft.sum(y), x)], x)(values)
    assert found[0] == (1 if name == "sigmoid" else np.inf)
    assert found[1] == 0
    assert np.isnan(found[2])
    assert slopes[:2].tolist() == [0 if name == "sigmoid" else 1, 0]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_lengths_neither_overflow_nor_underflow(transformer: weft.Transformer, dtype: str):
    """Of vectors, for norms, normalized vectors, and the cosine of an angle between two."""
    tiny, huge = float(np.finfo(dtype).tiny), float(np.finfo(dtype).max)
    values = np.array([[3, 4], [3 * tiny, 4 * tiny], [huge / 8 * 3, huge / 2]], dtype)
    x = weft.placeholder(values.shape, dtype=dtype)
    results = [
        weft.norm(x, axis=1), weft.normalize(x, axes=1, epsilon=0), weft.hypot(x[:, 0], x[:, 1]),
        weft.softmax(x, axis=1), weft.logsumexp(x, axis=1),
    ]  # fmt: skip
    norms, units, sides, shares, sums = transformer.computation(results, x)(values)
    expected = values[:, 1] / 4 * 5
    np.testing.assert_allclose(norms, expected, rtol=1e-6)
    np.testing.assert_allclose(sides, expected, rtol=1e-6)
    np.testing.assert_allclose(units, [[0.6, 0.8]] * 3, rtol=1e-6)
    np.testing.assert_allclose(shares[1:], [[0.5, 0.5], [0, 1]])
    assert sums[2] == values[2, 1]
