"""The Hurwitz zeta function, and the derivatives of digamma."""

from __future__ import annotations

import math
from typing import Any

from numpy.polynomial import Polynomial

from weft.ir.storage import constant
from weft.ir.tensor import TensorOp
from weft.ops.pointwise.comparison import equal, less, minimum, where
from weft.ops.pointwise.math import cos, power, sin
from weft.ops.pointwise.polynomials import Coefficients, polynomial
from weft.ops.pointwise.rounding import round
from weft.ops.special.base import SpecialOp
from weft.support.backports import override

_TERMS = 10
"""The terms of the series before its rest is integrated."""
_STEEPEST = 256.0
"""Beyond this exponent, the rest is 0 or its corrections are."""
_BERNOULLI = (
    1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000,
    1 / 74724249600, -3617 / 10670622842880000, 43867 / 5109094217170944000,
    -174611 / 802857662698291200000, 77683 / 14101100039391805440000,
)  # fmt: skip
"""Bernoulli's numbers B_2, B_4 and so on, divided by the factorials of their indices."""


class ZetaOp(SpecialOp):
    """The sum of (q + k)^-x over k from 0 on, for x > 1 and q > 0, by Euler and Maclaurin.

    (Abramowitz and Stegun, 23.1.30.) It is infinite where x is 1 or q is 0, and NaN below.
    """

    @override
    def formula(self, x: TensorOp, q: TensorOp) -> TensorOp:
        total: Any = power(q, -x)
        for k in range(1, _TERMS):
            total = total + power(q + k, -x)
        last = q + _TERMS
        inverse = 1 / last
        tail = power(last, -x)
        # The rising factorial of x, over powers of the last q.
        steep = minimum(x, _STEEPEST)
        rising = steep * inverse
        rest: Any = 0.5
        for k, number in enumerate(_BERNOULLI):
            rest = rest + rising * number
            rising = rising * ((steep + (2 * k + 1)) * inverse) * ((steep + (2 * k + 2)) * inverse)
        total = total + tail * (last / (x - 1) + rest)
        total = where(equal(q, math.inf) & less(1, x), 0, total)
        total = where(less(x, 1) | less(q, 0), math.nan, total)
        return where(equal(x, 1) | equal(q, 0) & less(1, x), math.inf, total)

    def slopes(self, x: TensorOp, q: TensorOp) -> tuple[None, TensorOp]:
        """Return that of the formula by x, and -x times the sum for x + 1."""
        return None, -x * ZetaOp(x + 1, q)


class PolygammaOp(SpecialOp):
    """The derivative of digamma of an order; infinite at 0, -1, -2 and so on.

    Attributes
    ----------
    n
        The order, from 1 on.
    """

    n: int

    @override
    def formula(self, x: TensorOp) -> TensorOp:
        is_low, place = less(x, 0), x - round(x)
        sign = -1 if self.n % 2 == 0 else 1
        rest = where(is_low, 1 - x, x)
        high = ZetaOp(constant(self.n + 1, dtype=x.dtype), rest) * float(math.factorial(self.n))
        # The reflection formula (Abramowitz and Stegun, 6.4.7), whose angle is exact.
        is_pole = equal(place, 0)
        angle = where(is_low & ~is_pole, place, 0.25) * math.pi
        slope = polynomial(cos(angle) / sin(angle), _cotangent_slope(self.n))
        low = -high - slope * math.pi ** (self.n + 1)
        value = where(is_low, low, high * sign)
        return where(is_low & is_pole, math.inf * sign, value)

    @override
    def slopes(self, x: TensorOp) -> tuple[TensorOp]:
        return (PolygammaOp(x, n=self.n + 1),)


def _cotangent_slope(n: int) -> Coefficients:
    """Return the polynomial in the cotangent that its derivative of an order is."""
    terms = Polynomial([0, 1])
    for _ in range(n):
        terms = -Polynomial([1, 0, 1]) * terms.deriv()
    return tuple(map(float, terms.coef[::-1]))
