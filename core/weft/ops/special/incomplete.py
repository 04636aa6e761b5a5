"""The incomplete gamma and beta functions.

Each is a density times an integral of which the integrand decreases from 1 on. It is cut where the
integrand is below the precision, and computed by the rule of Gauss and Legendre, whose number of
points depends on the precision alone. So it is a fixed number of elementwise ops for all operands.
The derivatives by the parameters are those of the ops.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from weft.ir import dtypes
from weft.ir.tensor import TensorOp
from weft.ops.control.effects import stop_gradient
from weft.ops.pointwise.comparison import equal, less, less_equal, minimum, where
from weft.ops.pointwise.elementwise import absolute, square
from weft.ops.pointwise.math import exp, expm1, log, log1p, power, sqrt
from weft.ops.pointwise.polynomials import Approximation, polynomial
from weft.ops.special.base import SpecialOp
from weft.support.backports import override

# log(Γ(1 + a)) / (a (a - 1)) for a between 0 and 1, fitted as in `weft.ops.special.bessel`.
_LOG_GAMMA = Approximation(
    double=(
        (
            2.86330230591567481e-4, 0.0133523202857731702, 0.157043002509692467,
            0.732511506857864549, 1.57339694949304699, 1.55967170575221558, 0.577215664901532859,
        ),
        (
            6.19781527236404643e-5, 5.11052494027796583e-3, 0.0938006445948848339,
            0.666295171959718327, 2.23475871492620165, 3.7851551293303727, 3.12694748951883854,
            1.0,
        ),
    ),
    single=(
        (2.353911342e-3, 0.1421699638, 0.6216809926, 0.5772156632),
        (0.06046238537, 0.6151719854, 1.501920754, 1.0),
    ),
)  # fmt: skip

# The points of the rule of Gauss and Legendre on the first half of (0, 1), and their weights.
_LONG = (
    (
        1.5532579626752299e-3, 8.165938360126395e-3, 0.019989067515846244, 0.036899976285362837,
        0.058719732103973659, 0.085217118808615801, 0.1161112839475869, 0.1510747526033421,
        0.18973690850537857, 0.23168792592899005, 0.27648311523095541, 0.32364763723456094,
        0.37268153691605508, 0.42306504319570823, 0.47426407872234115,
    ),
    (
        3.9840962480833028e-3, 9.2332341555454796e-3, 0.014392353941661685,
        0.019399596284813525, 0.024201336415297026, 0.028746578108809533, 0.032987114941090248,
        0.036877987368852603, 0.040377947614710108, 0.04344989360054149, 0.046061261118893064,
        0.04818436858732213, 0.049796710293397634, 0.050881194874202752, 0.05142632644677942,
    ),
)  # fmt: skip
_SHORT = (
    (9.21968288e-3, 0.0479413718, 0.115048663, 0.206341023, 0.316084251, 0.437383296),
    (0.0235876682, 0.053469663, 0.0800391643, 0.101583713, 0.116746268, 0.124573523),
)  # fmt: skip

_LARGE = 8
"""Smaller parameters are raised by as much, for Stirling's series."""
_STEPS = 8
"""Integrals from 0 are those for a parameter increased by as much, and terms of a series before.

For a small parameter itself, the integrand has two scales.
"""
_NEAR_ONE = 0.125
"""Where (1 - x) (1 + a) is less, and b less than 1, the function has a power series."""
_STIRLING = (1 / 156, -691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12)
"""Of the logarithm of gamma; the factors of odd powers of 1 / a (Abramowitz and Stegun, 6.1.41)."""


_ATANH = tuple(2 / (2 * k + 3) for k in reversed(range(11)))
"""Of the inverse hyperbolic tangent, from the third power on; the last ones are enough for
float32."""


def _depth(x: TensorOp) -> float:
    """Return how far the exponent of an integrand falls before it is cut."""
    return 38.0 if x.dtype == dtypes.float64 else 18.0


def _integral(exponent: Callable[[TensorOp], TensorOp], end: TensorOp) -> TensorOp:
    """Return the integral of the exponential of a function from 0 to an end."""
    end = stop_gradient(end)
    points, weights = _LONG if end.dtype == dtypes.float64 else _SHORT
    total: Any = 0.0
    for point, weight in zip(points, weights, strict=True):
        lower, upper = (exp(exponent(end * place)) for place in (point, 1 - point))
        total = (lower + upper) * weight + total
    area: TensorOp = end * total
    return area


def _falling_end(a: TensorOp, steepness: TensorOp, depth: Any) -> TensorOp:
    """Return a y where a y - x (1 - exp(-y)) is at least a depth, for a steepness of a - x.

    It is the depth for (a - x) y + x y² / (2 + y), which is smaller.
    """
    middle = depth - steepness * 2
    root = sqrt(square(middle) + a * depth * 8)
    is_flat = less(0, middle)
    return where(is_flat, (root + middle) / (a * 2), depth * 4 / (root - where(is_flat, 0, middle)))


def _raised(a: TensorOp) -> tuple[TensorOp, TensorOp]:
    """Return whether a parameter is small, and one from `_LARGE` on."""
    is_small = less(a, _LARGE)
    return is_small, where(is_small, a + _LARGE, a)


def _stirling(a: TensorOp) -> TensorOp:
    """Return log(Γ(a) sqrt(a / 2 π) (e / a)^a)."""
    inverse = 1 / a
    return polynomial(square(inverse), _STIRLING) * inverse


def _divided_difference(
    coefficients: tuple[float, ...], x: TensorOp, y: TensorOp
) -> tuple[TensorOp, TensorOp]:
    """Return a polynomial at x, and the slope of the line from there to its value at y."""
    highest, *others = coefficients
    at_x, at_y, slope = x * 0 + highest, y * 0 + highest, x * 0
    for coefficient in others:
        slope = slope * x + at_y
        at_x, at_y = at_x * x + coefficient, at_y * y + coefficient
    return at_x, slope


def _log(share: TensorOp, ratio: TensorOp) -> TensorOp:
    """Return the logarithm of a ratio, of which the share is the ratio less 1."""
    is_near = less(absolute(share), 0.5)
    return where(is_near, log1p(where(is_near, share, 0)), log(where(is_near, 1, ratio)))


def _log_less(share: TensorOp, ratio: TensorOp) -> TensorOp:
    """Return `_log` less the share, which cancels for small ones.

    With t = share / (2 + share), the logarithm is 2 (t + t³ / 3 + t⁵ / 5 + ...).
    """
    is_near = less(absolute(share), 0.35)
    near = where(is_near, share, 0)
    t = near / (near + 2)
    series = polynomial(square(t), _ATANH[-11 if share.dtype == dtypes.float64 else -5 :])
    return where(is_near, t * (square(t) * series - near), _log(share, ratio) - share)


class GammaincOp(SpecialOp):
    """The regularized incomplete gamma function of a and x.

    Attributes
    ----------
    upper
        Whether it is the integral from x to infinity, else that from 0 to x.
    """

    upper: bool

    @override
    def formula(self, a: TensorOp, x: TensorOp) -> TensorOp:
        is_inner = less(0, a) & less(0, x) & less(a, math.inf) & less(x, math.inf)
        shape, place = where(is_inner, a, 1), where(is_inner, x, 1)
        is_small, is_below = less(shape, 1) & less(place, 1), less(place, shape)
        part = _gamma_part(where(is_small, 1, shape), where(is_small, 1, place), is_below)
        value = where(is_below, 1 - part, part) if self.upper else where(is_below, part, 1 - part)
        small = self._small(where(is_small, shape, 0.5), where(is_small, place, 0.5))
        value = where(is_small, small, value)
        # The limits: all is below infinity or above 0, unless the parameter is there as well.
        is_zero, is_infinite = equal(x, 0), equal(a, math.inf)
        end = where(is_zero | is_infinite, float(self.upper), float(not self.upper))
        both = is_zero & equal(a, 0) | is_infinite & equal(x, math.inf)
        is_known = less_equal(0, a) & less_equal(0, x) & ~both
        return where(is_inner, value, where(is_known, end, math.nan))

    def _small(self, a: TensorOp, x: TensorOp) -> TensorOp:
        """Return it for parameters below 1, by a power series (Abramowitz and Stegun, 6.5.29)."""
        count = 19 if x.dtype == dtypes.float64 else 11
        power, total = -x, -x / (a + 1)
        for n in range(2, count):
            power = power * x * (-1 / n)
            total = total + power / (a + n)
        exponent = a * (log(x) - (a - 1) * _LOG_GAMMA(a))
        if self.upper:
            return -expm1(exponent) - exp(exponent) * a * total
        return exp(exponent) * (a * total + 1)

    def slopes(self, a: TensorOp, x: TensorOp) -> tuple[None, TensorOp]:
        """Return that of the formula by a, and the density at x."""
        is_inner = less(0, a) & less(0, x) & less(a, math.inf) & less(x, math.inf)
        place = where(is_inner, x, 1)
        scale, exponent = _gamma_density(where(is_inner, a, 1), place)
        root = exp(exponent * 0.5)
        end = where(equal(x, math.inf), 0, power(x, a - 1))
        density = where(is_inner, scale * root * (root / place), end)
        return None, -density if self.upper else density


def _gamma_density(a: TensorOp, x: TensorOp) -> tuple[TensorOp, TensorOp]:
    """Return two numbers: x^a exp(-x) / Γ(a) is the one times the exponential of the other."""
    is_small, large = _raised(a)
    scale = sqrt(large) * (1 / math.sqrt(2 * math.pi))
    for k in range(_LARGE):
        scale = scale * where(is_small, (a + k) / large, 1)
    share, ratio = (x - large) / large, x / large
    exponent = large * _log_less(share, ratio) + (a - large) * _log(share, ratio)
    return scale, exponent - _stirling(large)


def _gamma_part(a: TensorOp, x: TensorOp, is_below: TensorOp) -> TensorOp:
    """Return the integral of the density below x, or above x."""
    scale, exponent = _gamma_density(a, x)
    shape = where(is_below, a + _STEPS, a)
    depth, steepness = _depth(x), absolute(x - shape)
    rising = depth * 2 / (steepness + sqrt(square(steepness) + x * (2 * depth)))
    rising = minimum(rising, log1p(rising + depth / x))
    end = where(is_below, _falling_end(shape, steepness, depth), rising)
    sign = where(is_below, -1, 1)
    area = _integral(lambda y: shape * (y * sign) - x * expm1(y * sign), end)
    total = x * area + 1
    for k in range(_STEPS - 1, 0, -1):
        total = total * (x / (a + k)) + 1
    return scale * exp(exponent) * where(is_below, total / a, area)


class BetaincOp(SpecialOp):
    """The regularized incomplete beta function of a, b and x."""

    @override
    def formula(self, a: TensorOp, b: TensorOp, x: TensorOp) -> TensorOp:
        is_inner = _is_inside(a, b, x)
        first, second = where(is_inner, a, 1), where(is_inner, b, 1)
        below = where(is_inner, x, 0.5)
        above = 1 - below
        is_small = less(second, 1) & less(above * (first + 1), _NEAR_ONE)
        small = _small_beta(
            where(is_small, first, 1), where(is_small, second, 0.5), where(is_small, above, 0.03)
        )
        first, second = where(is_small, 1, first), where(is_small, 1, second)
        below, above = where(is_small, 0.5, below), where(is_small, 0.5, above)
        # Above the mean a small b would leave few digits of 1 - part.
        is_below = less(second, 1) | less(below * (second + 1), above * (first + 1))
        part = _beta_part(
            where(is_below, first, second), where(is_below, second, first),
            where(is_below, below, above), where(is_below, above, below),
        )  # fmt: skip
        value = where(is_small, small, where(is_below, part, 1 - part))
        # The limits: all is at 0 for a = 0 or an infinite b, and at 1 for the opposite.
        at_zero, at_one = equal(a, 0) | equal(b, math.inf), equal(b, 0) | equal(a, math.inf)
        is_known = less_equal(0, x) & less_equal(x, 1) & less_equal(0, a) & less_equal(0, b)
        is_known = is_known & ~(at_zero & at_one)
        end = where(equal(x, 0), 0.0, where(equal(x, 1) | at_zero, 1.0, 0.0))
        return where(is_inner, value, where(is_known, end, math.nan))

    def slopes(self, a: TensorOp, b: TensorOp, x: TensorOp) -> tuple[None, None, TensorOp]:
        """Return those of the formula by a and b, and the density at x."""
        is_inner = _is_inside(a, b, x)
        place = where(is_inner, x, 0.5)
        scale, exponent = _beta_density(
            where(is_inner, a, 1), where(is_inner, b, 1), place, 1 - place
        )
        root = exp(exponent * 0.5)
        end = where(equal(x, 0), b, a) * power(x, a - 1) * power(1 - x, b - 1)
        return None, None, where(is_inner, scale * (root / place) * (root / (1 - place)), end)


def _is_inside(a: TensorOp, b: TensorOp, x: TensorOp) -> TensorOp:
    """Return whether all operands of the incomplete beta function are between their limits."""
    is_inner = less(0, x) & less(x, 1)
    for parameter in (a, b):
        is_inner = is_inner & less(0, parameter) & less(parameter, math.inf)
    return is_inner


def _beta_density(
    a: TensorOp, b: TensorOp, x: TensorOp, above: TensorOp
) -> tuple[TensorOp, TensorOp]:
    """Return two numbers: x^a (1 - x)^b / B(a, b) is the one times the exponential of the other."""
    (a_is_small, p), (b_is_small, q) = _raised(a), _raised(b)
    n, count = p + q, a + b
    scale = sqrt(p / n * q) * (1 / math.sqrt(2 * math.pi))
    for k in range(_LARGE):
        scale = scale * where(a_is_small, (a + k) / p / ((count + k) / n), 1)
    count = where(a_is_small, count + _LARGE, count)
    for k in range(_LARGE):
        scale = scale * where(b_is_small, (b + k) / q / ((count + k) / n), 1)
    # The logarithms of x n / p and of (1 - x) n / q. What is left out of those for large
    # parameters cancels, if both are large.
    apart = x * q - above * p
    exponent = where(a_is_small, 0, apart) - where(b_is_small, 0, apart)
    for is_small, parameter, share, ratio in (
        (a_is_small, a, apart / p, x * (n / p)), (b_is_small, b, -apart / q, above * (n / q)),
    ):  # fmt: skip
        less_share = _log_less(share, ratio)
        exponent = exponent + parameter * where(is_small, _log(share, ratio), less_share)
    return scale, exponent + _stirling(n) - _stirling(p) - _stirling(q)


def _beta_part(a: TensorOp, b: TensorOp, x: TensorOp, above: TensorOp) -> TensorOp:
    """Return the integral of the density below x, which is about the mean or less.

    It is over the y with t / (1 - t) = x / (1 - x) exp(-y). The exponent of the integrand is
    written as that with the smaller of two terms that cancel.
    """
    scale, exponent = _beta_density(a, b, x, above)
    shape = a + _STEPS
    count, is_left, depth = shape + b, less(shape, b), _depth(x)
    # 1 - x + x exp(-y) is at least exp(-x y), so the integrand falls as that of gamma. From an
    # end that is too large, steps of iteration lead to one that is not much too large.
    end = _falling_end(shape, shape * above - b * x, above * depth) / above
    for _ in range(2):
        end = minimum(end, log1p(expm1((b * end + depth) / count) / above))
    part, sign = where(is_left, x, above), where(is_left, -1, 1)
    slope = where(is_left, -shape, b)
    area = _integral(lambda y: slope * y - count * log1p(part * expm1(y * sign)), end)
    total = (a + b + (_STEPS - 1)) * x * area + 1
    for k in range(_STEPS - 1, 0, -1):
        total = total * (x * (a + b + (k - 1)) / (a + k)) + 1
    return scale * exp(exponent) * total / a


def _small_beta(a: TensorOp, b: TensorOp, y: TensorOp) -> TensorOp:
    """Return the function of 1 - y for b below 1 and small y, less than `_NEAR_ONE` / (1 + a).

    It is 1 less a power series (DLMF 8.17.8), of which the first term is exp(b rate).
    """
    is_small, p = _raised(a)
    # log(Γ(a + b) / Γ(a) / Γ(1 + b)) / b, of which no part is computed as a difference.
    share, inverse, other = b / p, 1 / p, 1 / (p + b)
    rate = (p * _log_less(share, share + 1) - log1p(share) * 0.5) / b - (b - 1) * _LOG_GAMMA(b)
    series, slope = _divided_difference(_STIRLING, square(other), square(inverse))
    rate = rate - inverse * other * (series + inverse * (inverse + other) * slope)
    raised: Any = 0.0
    for k in range(_LARGE):
        step = b / (a + k)
        raised = step * (raised + 1) + raised
    rate = rate - where(is_small, log1p(raised), 0) / b + log(y * (p + b))
    term: Any = 1.0
    total: Any = 0.0
    for n in range(1, 19 if y.dtype == dtypes.float64 else 9):
        term = term * ((n - a) * y * (1 / n))
        total = term / (b + n) + total
    exponent = b * rate
    value: TensorOp = -expm1(exponent) - exp(exponent) * b * total
    return value
