"""Identities of special functions over their whole ranges, in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft

S = weft.special

EPS = float(np.finfo(float).eps)
COUNT = 8
"""How many points a call computes."""


class Identity(NamedTuple):
    """Two sides that are equal, for operands in ranges.

    Attributes
    ----------
    sides
        Returns both sides, and the size to which the error is relative.
    ranges
        Those of the operands. Those of positive numbers are drawn evenly in their logarithm.
    ulps
        How many of the relative spacings of numbers the sides may be apart.
    """

    sides: Callable[..., Sequence[Any]]
    ranges: Sequence[tuple[float, float]]
    ulps: float


def equals(left: Any, right: Any) -> tuple[Any, Any, Any]:
    """Compare relative to the value."""
    return left, right, right


def wronskian_of_airy(x: Any) -> tuple[Any, Any, Any]:
    ai, ai_slope, bi, bi_slope = S.airy(x)
    return ai * bi_slope - ai_slope * bi, 1 / math.pi + 0 * x, 1 + weft.absolute(x) ** 1.5


def gamma_recurrence(a: Any, share: Any) -> tuple[Any, Any, Any]:
    """P(a, x) = P(a + 1, x) + the density, with x around a."""
    x = a * share
    step = weft.exp(S.xlogy(a, x) - x - S.gammaln(a + 1))
    return S.gammainc(a, x), S.gammainc(a + 1, x) + step, 1 + weft.absolute(S.xlogy(a, x)) + x


def polygamma_recurrence(x: Any) -> tuple[Any, Any, Any]:
    low, high = S.polygamma(2, x), S.polygamma(2, x + 1) - 2 / x**3
    return equals(low, high)


def trigamma_reflection(x: Any) -> tuple[Any, Any, Any]:
    right = weft.square(math.pi / weft.sin(math.pi * x))
    return equals(S.polygamma(1, x) + S.polygamma(1, 1 - x), right)


def lambert(x: Any) -> tuple[Any, Any, Any]:
    w = S.lambertw(x)
    return w * weft.exp(w), x, weft.absolute(x) * (1 + weft.absolute(w))


def lower_lambert(w: Any) -> tuple[Any, Any, Any]:
    x = -w * weft.exp(-w)
    return S.lambertw(x, -1), -w, w * (1 + 1 / (w - 1))


def three_terms(evaluate: Any, a: Any, b: Any, c: Any, *, n: int = 7) -> Callable[[Any], Any]:
    """Return the recurrence p(n + 1) = (a x + b) p(n) - c p(n - 1)."""

    def sides(x: Any) -> tuple[Any, Any, Any]:
        high, middle, low = (evaluate(k, x) for k in (n + 1, n, n - 1))
        terms = (a * x + b) * middle, c * low
        return high, terms[0] - terms[1], weft.absolute(terms[0]) + weft.absolute(terms[1])

    return sides


def shares(x: Any) -> tuple[Any, Any, Any]:
    """All kinds of Chebyshev polynomials as functions of half an angle."""
    half = weft.acos(x) * 0.5
    kinds = S.eval_chebyt(9, x), S.eval_chebyu(9, x), S.eval_chebyv(9, x), S.eval_chebyw(9, x)
    sine, cosine = weft.sin(half), weft.cos(half)
    scaled = kinds[0], kinds[1] * 2 * sine * cosine, kinds[2] * cosine, kinds[3] * sine
    wanted = weft.cos(18 * half), weft.sin(20 * half), weft.cos(19 * half), weft.sin(19 * half)
    return weft.concat(scaled, 0), weft.concat(wanted, 0), 1.0


IDENTITIES = {
    "the Wronskian of J and Y": Identity(
        lambda x: equals(S.j1(x) * S.y0(x) - S.j0(x) * S.y1(x), 2 / (math.pi * x)),
        [(1e-8, 1e6)], 60,
    ),
    "the Wronskian of I and K": Identity(
        lambda x: equals(S.i0e(x) * S.k1e(x) + S.i1e(x) * S.k0e(x), 1 / x), [(1e-8, 1e12)], 20,
    ),
    "scaled modified Bessel functions": Identity(
        lambda x: equals(S.i0(x) * S.k1(x), S.i0e(x) * S.k1e(x)), [(1e-8, 600)], 3000,
    ),
    "the Wronskian of Ai and Bi": Identity(wronskian_of_airy, [(-300.0, 60.0)], 40),
    "both incomplete gamma functions": Identity(
        lambda a, x: equals(S.gammainc(a, x) + S.gammaincc(a, x), 1.0 + 0 * x),
        [(1e-8, 1e8), (1e-8, 1e8)], 2,
    ),
    "incomplete gamma functions of a + 1": Identity(
        gamma_recurrence, [(1e-3, 1e4), (0.3, 3.0)], 60,
    ),
    "incomplete beta functions of 1 - x": Identity(
        lambda a, b, x: (S.betainc(a, b, x), 1 - S.betainc(b, a, 1 - x), 1.0),
        [(1e-6, 1e4), (1e-6, 1e4), (0.5, 1.0)], 40,
    ),
    "zeta of q + 1": Identity(
        lambda x, q: equals(S.zeta(x, q), S.zeta(x, q + 1) + q ** -x),
        [(1.001, 40.0), (1e-3, 1e6)], 60,
    ),
    "polygamma of x + 1": Identity(polygamma_recurrence, [(1e-4, 0.9)], 60),
    "trigamma of 1 - x": Identity(trigamma_reflection, [(1e-6, 0.5)], 60),
    "digamma of x + 1": Identity(
        lambda x: (S.psi(x + 1), S.psi(x) + 1 / x, 1 + 1 / x), [(1e-6, 1e12)], 20,
    ),
    "the logarithm of gamma of x + 1": Identity(
        lambda x: (S.gammaln(x + 1), S.gammaln(x) + weft.log(x), weft.absolute(S.gammaln(x)) + 1),
        [(1e-12, 1e12)], 20,
    ),
    "erf and erfc": Identity(lambda x: (S.erf(x) + S.erfc(x), 1.0, 1.0), [(-30.0, 30.0)], 12),
    "erfcx and erfc": Identity(
        lambda x: (S.erfcx(x) * weft.exp(-x * x), S.erfc(x), S.erfc(x) * (1 + x * x)),
        [(-25.0, 25.0)], 16,
    ),
    "both tails of the normal distribution": Identity(
        lambda x: (S.ndtr(x) + S.ndtr(-x), 1.0, 1.0), [(-40.0, 40.0)], 12,
    ),
    "ndtr and its logarithm": Identity(
        lambda x: (weft.exp(S.log_ndtr(x)), S.ndtr(x), S.ndtr(x) * (1 + x * x)),
        [(-37.0, 10.0)], 16,
    ),
    "ndtri and ndtr": Identity(
        lambda x: (S.ndtri(S.ndtr(x)), x, 1 + weft.absolute(x)), [(-37.0, 1.0)], 30,
    ),
    "the principal branch of lambertw": Identity(lambert, [(-0.36, 1e6)], 12),
    "the lower branch of lambertw": Identity(lower_lambert, [(1.01, 500.0)], 40),
    "four kinds of Chebyshev polynomials": Identity(shares, [(-1.0, 1.0)], 200),
    "Legendre polynomials": Identity(
        three_terms(S.eval_legendre, 15 / 8, 0, 7 / 8), [(-3.0, 3.0)], 60,
    ),
    "Hermite polynomials": Identity(three_terms(S.eval_hermite, 2, 0, 14), [(-9.0, 9.0)], 90),
    "probabilists' Hermite polynomials": Identity(
        three_terms(S.eval_hermitenorm, 1, 0, 7), [(-9.0, 9.0)], 90,
    ),
    "Laguerre polynomials": Identity(
        three_terms(S.eval_laguerre, -1 / 8, 15 / 8, 7 / 8), [(-9.0, 40.0)], 400,
    ),
}  # fmt: skip


def points(low: float, high: float) -> Any:
    """Return lists of numbers, for positive ends those of even logarithms, and both ends."""
    inside = st.floats(0, 1).map(
        lambda share: low * (high / low) ** share if low > 0 else low + share * (high - low)
    )
    number = st.one_of(st.sampled_from([low, high]), inside).map(lambda x: min(max(x, low), high))
    return st.lists(number, min_size=COUNT, max_size=COUNT).map(np.array)


@pytest.mark.parametrize("name", IDENTITIES)
def test_identity(name: str) -> None:
    identity = IDENTITIES[name]
    compute = weft.jit(lambda *operands: list(identity.sides(*operands)), backend="numpy")

    @given(st.tuples(*(points(*ends) for ends in identity.ranges)))
    @settings(max_examples=12)
    def holds(operands: Any) -> None:
        left, right, size = (np.asarray(each) for each in compute(*operands))
        apart = np.abs(left - right) / (np.abs(size) * EPS + 1e-300)
        assert np.all(apart <= identity.ulps), (apart, operands)

    holds()
