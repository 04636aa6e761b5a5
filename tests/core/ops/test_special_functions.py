"""Special functions against mpmath: values in units of the last place, gradients and limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np
import pytest
import scipy.special

import weft

S = weft.special
mp.mp.prec = 120


def wave(x: Any):
    """The amplitude of Bessel functions, to which their errors are relative."""
    return 1 / mp.sqrt(1 + mp.pi * abs(x) / 2)


# A function, what it is, a range, the ulp allowed, and a factor by which they grow.
VALUES: dict[str, tuple[Callable[..., Any], Callable[..., Any], float, float, float]] = {
    "i0": (S.i0, lambda x: mp.besseli(0, x), 0, 60, 8),
    "i1": (S.i1, lambda x: mp.besseli(1, x), 0, 60, 8),
    "i0e": (S.i0e, lambda x: mp.besseli(0, x) * mp.exp(-x), 0, 400, 8),
    "i1e": (S.i1e, lambda x: mp.besseli(1, x) * mp.exp(-x), 0, 400, 8),
    "k0": (S.k0, lambda x: mp.besselk(0, x), 0, 80, 8),
    "k1": (S.k1, lambda x: mp.besselk(1, x), 0, 80, 8),
    "k0e": (S.k0e, lambda x: mp.besselk(0, x) * mp.exp(x), 0, 400, 8),
    "k1e": (S.k1e, lambda x: mp.besselk(1, x) * mp.exp(x), 0, 400, 8),
    "erfcx": (S.erfcx, lambda x: mp.exp(x * x) * mp.erfc(x), -9, 9, 15),
    "ndtr": (S.ndtr, lambda x: mp.erfc(-x / mp.sqrt(2)) / 2, -12, 5, 12),
    "log_ndtr": (S.log_ndtr, lambda x: mp.log(mp.erfc(-x / mp.sqrt(2)) / 2), -30, 5, 15),
    "lambertw": (S.lambertw, lambda x: mp.lambertw(x).real, -0.3678, 100, 6),
    "lower": (
        lambda x: S.lambertw(x, -1), lambda x: mp.lambertw(x, -1).real, -0.3678, -1e-6, 6,
    ),
    "zeta": (S.zeta, mp.zeta, 1.01, 30, 6),
    "trigamma": (lambda x: S.polygamma(1, x), lambda x: mp.polygamma(1, x), 0, 60, 8),
}  # fmt: skip

WAVES = {
    "j0": (S.j0, lambda x: mp.besselj(0, x)),
    "j1": (S.j1, lambda x: mp.besselj(1, x)),
    "y0": (S.y0, lambda x: mp.bessely(0, x)),
    "y1": (S.y1, lambda x: mp.bessely(1, x)),
}
"""Functions with zeros, whose errors are absolute there."""


def computed(function: Callable[..., Any], *arrays: Any) -> Any:
    with weft.backend("numpy"):
        return weft.jit(function)(*arrays)


def error(found: Any, exact: Any, dtype: Any) -> float:
    unit = mp.mpf(2) ** mp.floor(mp.log(abs(exact), 2)) * float(np.finfo(dtype).eps)
    return float(abs(mp.mpf(float(found)) - exact) / unit)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_values_are_exact_to_some_ulp(dtype: str):
    random = np.random.default_rng(5)
    problems = []
    for name, (function, exact, low, high, ulps) in VALUES.items():
        x = random.uniform(low, high, 30).astype(dtype)
        for place, found in zip(x, computed(function, x), strict=True):
            off = error(found, exact(mp.mpf(float(place))), dtype)
            if not off <= ulps:
                problems.append(f"{name}({place}) is off by {off} ulp")
    assert problems == []


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_waves_are_exact_to_some_ulp_of_their_amplitude(dtype: str):
    random = np.random.default_rng(6)
    for name, (function, exact) in WAVES.items():
        x = np.concatenate([random.uniform(0.5, 9, 30), random.uniform(9, 1e3, 30)]).astype(dtype)
        for place, found in zip(x, computed(function, x), strict=True):
            point = mp.mpf(float(place))
            off = abs(mp.mpf(float(found)) - exact(point)) / wave(point)
            assert off <= 24 * np.finfo(dtype).eps, (name, place)


def test_airy_functions():
    x = np.linspace(-9.5, 9.5, 40)
    for index, found in enumerate(computed(lambda x: list(S.airy(x)), x)):
        function = mp.airyai if index < 2 else mp.airybi
        for place, value in zip(x, found, strict=True):
            exact = function(mp.mpf(place), derivative=index % 2)
            size = max(abs(exact), mp.mpf(1) if place < 0 else mp.mpf(0))
            allowed = (5 + 3 * abs(place) ** 1.5) * 2.3e-16 * size
            assert abs(mp.mpf(float(value)) - exact) <= allowed, (index, place)


def test_incomplete_functions_and_their_gradients():
    a = np.array([1e-3, 0.3, 0.7, 1.5, 3, 10, 50, 300])
    x = np.array([0.5, 0.2, 3, 0.4, 5, 11, 40, 310])
    found = computed(lambda a, x: [S.gammainc(a, x), S.gammaincc(a, x)], a, x)
    slopes = computed(lambda a, x: weft.grad(lambda a: weft.sum(S.gammainc(a, x)))(a), a, x)
    for place, (shape, point) in enumerate(zip(map(mp.mpf, a), map(mp.mpf, x), strict=True)):
        lower = lambda a, x=point: mp.gammainc(a, 0, x, regularized=True)  # noqa: E731
        exact = lower(shape), 1 - lower(shape)
        assert [each[place] for each in found] == pytest.approx([*map(float, exact)], rel=1e-13)
        assert slopes[place] == pytest.approx(float(mp.diff(lower, shape)), rel=1e-12)
    b, y = np.array([0.2, 3, 0.4, 5, 11, 40, 310, 2]), np.linspace(0.1, 0.8, 8)
    found = computed(S.betainc, a, b, y)
    np.testing.assert_allclose(found, scipy.special.betainc(a, b, y), rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_incomplete_gamma_functions_over_their_range(dtype: str):
    """Around the mean and in both tails, with a bound that grows as the documentation says."""
    random, eps = np.random.default_rng(7), float(np.finfo(dtype).eps)
    a = np.exp(random.uniform(np.log(1e-4), np.log(1e4), 60)).astype(dtype)
    spread = np.concatenate([random.normal(size=40) * 4 / np.sqrt(a[:40] + 1),
                             random.uniform(-0.9, 2, 20)])  # fmt: skip
    x = np.maximum(a * np.abs(1 + spread), 1e-6).astype(dtype)
    for function, upper in ((S.gammainc, False), (S.gammaincc, True)):
        for shape, place, found in zip(a, x, computed(function, a, x), strict=True):
            ends = (mp.mpf(float(place)), mp.inf) if upper else (0, mp.mpf(float(place)))
            exact = mp.gammainc(mp.mpf(float(shape)), *ends, regularized=True)
            if exact < np.finfo(dtype).tiny:
                continue
            allowed = 20 + 2 * float(shape) ** 0.5 - 3 * float(mp.log(exact))
            off = float(abs(mp.mpf(float(found)) - exact) / exact) / eps
            assert off <= allowed, (function, shape, place)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_hurwitz_zeta_function_over_its_range(dtype: str):
    random = np.random.default_rng(8)
    x = np.concatenate([1 + np.exp(random.uniform(np.log(1e-4), 0, 30)), random.uniform(2, 30, 30)])
    q = np.exp(random.uniform(np.log(0.3), np.log(1e3), 60))
    x, q = x.astype(dtype), q.astype(dtype)
    for order, place, found in zip(x, q, computed(S.zeta, x, q), strict=True):
        # The error of mpmath's function is absolute.
        with mp.workprec(500):
            exact = mp.zeta(mp.mpf(float(order)), mp.mpf(float(place)))
        if exact > np.finfo(dtype).tiny:
            assert error(found, exact, dtype) <= 12, (order, place)


@pytest.mark.parametrize(
    "name", ["j0", "j1", "y0", "y1", "i0", "i1", "i0e", "i1e", "k0", "k1", "k0e", "k1e", "ndtr",
             "ndtri", "log_ndtr", "erfcx", "entr"],
)  # fmt: skip
def test_ends_are_those_of_scipy(name: str):
    """At infinity, where SciPy has NaN for some Bessel functions, these have their limits."""
    x = np.array([0.0, 1.0, 0.5, np.inf, np.nan])
    wanted = getattr(scipy.special, name)(x)
    if name in ("j0", "j1", "y0", "y1", "i0", "i1"):
        wanted[3] = np.inf if name[0] == "i" else 0
    np.testing.assert_allclose(computed(getattr(S, name), x), wanted, rtol=1e-13)


def test_limits_of_incomplete_functions_are_those_of_scipy():
    values = [0, 0.5, 2, np.inf, -1, np.nan]
    a, x = map(np.ravel, np.meshgrid(values, values))
    for name in ("gammainc", "gammaincc"):
        found, wanted = computed(getattr(S, name), a, x), getattr(scipy.special, name)(a, x)
        np.testing.assert_allclose(found, wanted, rtol=1e-13)


def test_floats_come_apart_at_the_ends_of_their_range():
    x = np.array([5e-324, 1e-310, 1.7e308, -3.0, 0.0, np.inf])
    mantissa, exponent = computed(lambda x: list(weft.frexp(x)), x)
    wanted = np.frexp(x)
    np.testing.assert_array_equal(mantissa, wanted[0])
    np.testing.assert_array_equal(exponent, wanted[1])
    powers = np.array([-1074, 2000, -3000, 1023, 7, 1])
    x = np.array([1.5, 1e-300, 1.0, 1.0, 0.0, -np.inf])
    np.testing.assert_array_equal(computed(weft.ldexp, x, powers), np.ldexp(x, powers))
