"""Special functions over their whole ranges against mpmath, within the bounds of the documentation.

Operands are drawn evenly in their logarithms, and near where a formula changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import mpmath as mp
import numpy as np
import pytest
from needs import skip_without_backend

import weft

S = weft.special
Array = np.ndarray[Any, Any]


class Sweep(NamedTuple):
    """A function with what it is compared with.

    Attributes
    ----------
    function
        That of the operands.
    exact
        What it is in mpmath.
    drawn
        Returns operands for a generator of random numbers and a count.
    allowed
        Returns the allowed error over ε and over the value, for the value and the operands.
    """

    function: Callable[..., Any]
    exact: Callable[..., Any]
    drawn: Callable[[Any, int], tuple[Array, ...]]
    allowed: Callable[..., float]


def logarithmic(random: Any, low: float, high: float, count: int) -> Array:
    drawn: Array = np.exp(random.uniform(np.log(low), np.log(high), count))
    return drawn


def fraction(a: Any, b: Any, x: Any) -> Any:
    """The incomplete beta function below the mean, by a continued fraction (DLMF 8.17.22)."""
    below, above = 1 / (1 - (a + b) * x / (a + 1)), mp.mpf(1)
    total = below
    for m in range(1, 100_000):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            below, above = 1 / (1 + numerator * below), 1 + numerator / above
            total *= below * above
        if abs(below * above - 1) < mp.eps * 256:
            return total * beta_density(a, b, x) * x * (1 - x) / a
    raise ArithmeticError("no convergence")


def beta_density(a: Any, b: Any, x: Any) -> Any:
    scale = mp.loggamma(a + b) - mp.loggamma(a) - mp.loggamma(b)
    return mp.exp((a - 1) * mp.log(x) + (b - 1) * mp.log(1 - x) + scale)


def beta(a: Any, b: Any, x: Any) -> Any:
    is_below = x < (a + 1) / (a + b + 2)
    return fraction(a, b, x) if is_below else 1 - fraction(b, a, 1 - x)


def for_beta(random: Any, count: int) -> tuple[Array, ...]:
    """Anywhere, near 0, near 1, about the mean, and where the formula for small b begins."""
    a, b = logarithmic(random, 1e-3, 1e5, count), logarithmic(random, 1e-3, 1e5, count)
    spread = np.sqrt(a * b / (a + b + 1)) / (a + b)
    small = logarithmic(random, 1e-12, 1, count)
    near = a / (a + b) + spread * 3 * random.normal(size=count)
    edge = 1 - logarithmic(random, 0.03, 3, count) / (1 + a)
    kinds = [random.uniform(size=count), small, 1 - small, near, edge]
    x = np.choose(np.arange(count) % len(kinds), kinds)
    return a, b, np.clip(x, 1e-9, 1 - 1e-6)


def of_beta(value: Any, a: float, b: float, x: float) -> float:
    return 30 + 2 * (a + b) ** 0.5 + 6 * abs(float(mp.log(value)))


def slope(function: Callable[..., Any], operand: int) -> Callable[..., Any]:
    def derivative(*operands: Any) -> Any:
        def total(x: Any) -> Any:
            return weft.sum(function(*operands[:operand], x, *operands[operand + 1 :]))

        return weft.grad(total)(operands[operand])

    return derivative


def for_gamma(random: Any, count: int) -> tuple[Array, ...]:
    """Around the mean and in both tails."""
    a = logarithmic(random, 1e-3, 1e4, count)
    spread = np.where(np.arange(count) % 3, random.normal(size=count) * 4 / np.sqrt(a + 1),
                      random.uniform(-0.9, 2, count))  # fmt: skip
    return a, np.maximum(a * np.abs(1 + spread), 1e-6)


def gamma_density(a: Any, x: Any) -> Any:
    return mp.exp((a - 1) * mp.log(x) - x - mp.loggamma(a))


def of_gamma(value: Any, a: float, x: float) -> float:
    return 20 + 2 * a**0.5 + 6 * abs(float(mp.log(value * x)))


def sum_of_powers(n: int) -> Callable[[Any], Any]:
    """The derivative of digamma of order n above 0; the error of mpmath's zeta is absolute."""

    def exact(x: Any) -> Any:
        with mp.workprec(400 + 11 * n):
            return (-1) ** (n + 1) * mp.factorial(n) * mp.zeta(n + 1, x)

    return exact


def polygamma(n: int) -> Sweep:
    """A sweep of an order over all numbers."""
    return Sweep(
        lambda x: S.polygamma(n, x), sum_of_powers(n),
        lambda random, count: (logarithmic(random, 1e-30, 1e30, count // 8),),
        lambda value, x: 8,
    )  # fmt: skip


SWEEPS = {
    "betainc": Sweep(S.betainc, beta, for_beta, of_beta),
    "slope of betainc": Sweep(
        slope(S.betainc, 2), beta_density, for_beta,
        lambda value, a, b, x: 20 + of_beta(value * x * (1 - x), a, b, x),
    ),
    "slope of gammainc": Sweep(slope(S.gammainc, 1), gamma_density, for_gamma, of_gamma),
    "zeta": Sweep(
        S.zeta, mp.zeta,
        lambda random, count: (1 + logarithmic(random, 0.1, 2, count),
                               logarithmic(random, 1e10, 1e30, count)),
        lambda value, x, q: 12,
    ),
    **{f"polygamma({n})": polygamma(n) for n in (1, 2, 20, 100, 170)},
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("backend", "count"),
    [("numpy", 16), *(pytest.param(name, 1000, marks=pytest.mark.long)
                      for name in ("numpy", "native"))],
)  # fmt: skip
def test_errors_are_within_their_bounds(backend: str, count: int, dtype: str):
    skip_without_backend(backend)
    problems, limits = [], np.finfo(dtype)
    for name, (function, exact, drawn, allowed) in SWEEPS.items():
        operands = tuple(each.astype(dtype) for each in drawn(np.random.default_rng(3), count))
        found = weft.jit(function, backend=backend)(*operands)
        for value, *place in zip(found, *operands, strict=True):
            with mp.workprec(400):
                wanted = exact(*(mp.mpf(float(each)) for each in place))
                if not limits.tiny < abs(wanted) < limits.max:
                    continue
                off = float(abs(mp.mpf(float(value)) / wanted - 1)) / float(limits.eps)
            if not off <= allowed(wanted, *map(float, place)):
                problems.append(f"{name}({place}) is off by {off:.4g} ε")
    assert problems == []
