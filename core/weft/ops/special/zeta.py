"""The Hurwitz zeta function, and the derivatives of digamma."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from weft.ir.storage import constant
from weft.ir.tensor import TensorOp
from weft.ops.pointwise.comparison import equal, less, maximum, minimum, where
from weft.ops.pointwise.elementwise import cast
from weft.ops.pointwise.math import cos, power, sin
from weft.ops.pointwise.polynomials import Coefficients, polynomial
from weft.ops.pointwise.rounding import round
from weft.ops.pointwise.special import frexp, ldexp
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
        last = q + _TERMS
        rest = power(last, 1 - x) / (x - 1) + power(last, -x) * _corrections(x, 1 / last)
        total: Any = rest
        for k in reversed(range(_TERMS)):
            total = total + power(q + k, -x)
        total = where(equal(q, math.inf) & less(1, x), 0, total)
        total = where(less(x, 1) | less(q, 0), math.nan, total)
        return where(equal(x, 1) | equal(q, 0) & less(1, x), math.inf, total)

    def slopes(self, x: TensorOp, q: TensorOp) -> tuple[None, TensorOp]:
        """Return that of the formula by x, and -x times the sum for x + 1."""
        return None, -x * ZetaOp(x + 1, q)


def _corrections(x: TensorOp, inverse: TensorOp) -> TensorOp:
    """Return half the first term of the rest and its corrections, over that term.

    The rising factorials of x stand over powers of the base, given its inverse.
    """
    steep = minimum(x, _STEEPEST)
    rising = steep * inverse
    total: Any = 0.5
    for k, number in enumerate(_BERNOULLI):
        total = total + rising * number
        rising = rising * ((steep + (2 * k + 1)) * inverse) * ((steep + (2 * k + 2)) * inverse)
    return cast(total, x.dtype)


class PolygammaOp(SpecialOp):
    """The derivative of digamma of an order; infinite at 0, -1, -2 and so on.

    It is the factorial of the order n times the sum of (x + k)^-(n + 1), with both signs. Powers
    of 2 are kept apart, as the factors may be out of the range of the product.

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
        high, exponent = self._sum(where(is_low, 1 - x, x))
        # The reflection formula (Abramowitz and Stegun, 6.4.7), whose angle is exact.
        is_pole = equal(place, 0)
        angle = where(is_low & ~is_pole, place, 0.25) * math.pi
        slope = polynomial(cos(angle) / sin(angle), _cotangent_slope(self.n))
        low = -ldexp(high, exponent) - slope
        factorial = math.factorial(self.n)
        bits = factorial.bit_length()
        total = where(is_low, low, high * sign) * (factorial / 2**bits)
        value = ldexp(total, where(is_low, bits, exponent + bits))
        value = where(equal(x, math.inf), 0, value)
        return where(is_low & is_pole, math.inf * sign, value)

    def _sum(self, q: TensorOp) -> tuple[TensorOp, TensorOp]:
        """Return the sum for powers of q + k, as in `ZetaOp`, as a number and a power of 2."""
        half, exponent = frexp(q)
        is_less = less(half, math.sqrt(0.5))
        first, exponent = where(is_less, half * 2, half), exponent - cast(is_less, "int32")
        # Steps are small beside a large q. Beside a small one all other terms are.
        step = ldexp(constant(1.0, dtype=q.dtype), minimum(-exponent, 60))
        order = constant(self.n + 1, dtype=q.dtype)
        last, scale = step * _TERMS + first, minimum(step, 1)
        rest = last / self.n * (scale / step) + _corrections(order, step / last) * scale
        total = power(last, -order) * rest
        for k in reversed(range(_TERMS)):
            total = total + power(step * k + first, -order) * scale
        return total, exponent * -(self.n + 1) + maximum(exponent, 0)

    @override
    def slopes(self, x: TensorOp) -> tuple[TensorOp]:
        return (PolygammaOp(x, n=self.n + 1),)


def _cotangent_slope(n: int) -> Coefficients:
    """Return the polynomial in cot(πx) that its derivative of an order is, by the factorial."""
    terms = [0, 1]
    for _ in range(n):
        slopes = [-k * each for k, each in enumerate(terms)]
        terms = [x + y for x, y in zip([*slopes[1:], 0, 0], [0, *slopes], strict=True)]
    scale = Fraction(math.pi) ** (n + 1) / math.factorial(n)
    return tuple(float(each * scale) for each in reversed(terms))
