"""The gradient of a gamma sample z with respect to its shape parameter a.

A sample moves with the parameter so that its quantile stays: dz/da = -(∂F/∂a) / p, with the
distribution function F and the density p. (Figurnov, Mohamed, Mnih: Implicit reparameterization
gradients, NeurIPS 2018.) F is an integral from 0 to z, 1 - F one from z on. Divided by p(z), with
the variable of integration z exp(±v), they give

    d(log z)/da = ∫ (v ± (log z - ψ(a))) exp(-±(z - a) v - z φ(±v)) dv,   φ(x) = exp(x) - 1 - x,

for v from 0 on; minus is for z up to a, plus for those above. This integrand is smooth and keeps
its sign nearly everywhere, so few points of Gauss and Legendre give all digits, for any a from 1
on. For a below 1 the integral from below is that for a + 1, by the recurrence of F:

    a d(log z)/da (a) = ψ(a + 1) - log z + z d(log z)/da (a + 1).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from weft.ir.dtypes import Array
from weft.ir.storage import constant
from weft.ir.tensor import CompositeOp, TensorOp
from weft.ops.control.effects import stop_gradient
from weft.ops.pointwise.comparison import greater, less, maximum, minimum, where
from weft.ops.pointwise.elementwise import FloatOp, absolute, square
from weft.ops.pointwise.math import exp, expm1, log1p, sqrt
from weft.ops.pointwise.polynomials import polynomial
from weft.ops.pointwise.special import digamma
from weft.ops.reductions.reduction import sum
from weft.ops.shape.movement import broadcast, cast_axes
from weft.support.backports import override


class LogGammaSampleOp(FloatOp, CompositeOp):
    """The first operand, the logarithm of a gamma sample, as a function of the second, its shape.

    The adjoint of the first operand is zero, as its distribution is fixed by the second.
    """

    def reference(self, log_sample: Array, alpha: Array) -> Any:
        """Return the logarithm."""
        return log_sample

    def decompose(self, log_sample: TensorOp, alpha: TensorOp) -> TensorOp:
        """Return the logarithm."""
        return log_sample

    @override
    def partials(self, delta: TensorOp, log_sample: TensorOp, alpha: TensorOp) -> Iterable[Any]:
        # The derivative is one of the sample that moves, so a second one has all of its terms.
        return None, delta * log_slope(self, alpha)


_POINTS = {np.dtype(np.float32): (24, 18.0, 8), np.dtype(np.float64): (48, 40.0, 15)}
"""By dtype: points, the negative exponent that is neglected, and terms of φ."""


def log_slope(y: TensorOp, alpha: TensorOp) -> TensorOp:
    """Return d(log z)/da for the logarithm y of a gamma sample z, float32 or float64."""
    points, end, terms = _POINTS[y.dtype]
    z = exp(y)
    is_upper = greater(z, maximum(alpha, 1.0))
    is_shifted = less(alpha, 1.0) & less(z, 1.0)
    a = where(is_shifted, alpha + 1.0, alpha)
    side = where(is_upper, constant(1.0, dtype=y.dtype), -1.0)
    gap, start = side * (z - a), side * _above_digamma(y, z, a)
    # The exponent is beyond `end` there: φ(x) is at least x² / 2 above 0, x² / (2 - x) below.
    upper = 2 * end / (gap + sqrt(square(gap) + 2 * end * z))
    slack = 2 * gap - end
    lower = 4 * end / (slack + sqrt(square(slack) + 8 * end * a))
    reach = stop_gradient(where(is_upper, upper, lower))

    def spread(x: TensorOp) -> TensorOp:
        lengths = x.axes.lengths
        return broadcast(cast_axes(x, (*lengths, 1)), (*lengths, points))

    nodes, weights = (constant(each, dtype=y.dtype) for each in _gauss_legendre(points))
    v = spread(reach) * nodes
    signed = spread(side) * v
    exponent = spread(gap) * v + spread(z) * _phi(signed, terms)
    total = sum((v + spread(start)) * exp(-exponent) * weights, axis=-1)
    slope = reach * cast_axes(total, y.axes)
    lifted = (digamma(alpha + 1.0) - y + z * slope) / alpha
    # Infinity, for the least of alpha, times a sample of 0 would be NaN.
    lifted = minimum(lifted, float(np.finfo(y.dtype).max))
    return where(is_shifted, lifted, slope)


def _gauss_legendre(points: int) -> tuple[Array, Array]:
    """Return points and weights for an integral from 0 to 1."""
    nodes, weights = np.polynomial.legendre.leggauss(points)
    return (nodes + 1) / 2, weights / 2


def _phi(x: TensorOp, terms: int) -> TensorOp:
    """Return exp(x) - 1 - x, by its series where the difference loses digits."""
    is_near = less(absolute(x), 0.5)
    near = where(is_near, x, 0.0)
    series = polynomial(near, tuple(1 / math.factorial(n + 2) for n in reversed(range(terms))))
    return where(is_near, square(near) * series, expm1(x) - x)


_BERNOULLI = (691 / 32760, -1 / 132, 1 / 240, -1 / 252, 1 / 120, -1 / 12, 0.0)


def _above_digamma(y: TensorOp, z: TensorOp, a: TensorOp) -> TensorOp:
    """Return log z - ψ(a) for y = log z, from the distance of z and a where both are large."""
    is_near = greater(a, 12.0) & greater(2.0 * z, a)
    large = where(is_near, a, 12.0)
    inverse = 1.0 / large
    # log a - ψ(a) for large a.
    rest = 0.5 * inverse - polynomial(square(inverse), _BERNOULLI)
    distance = where(is_near, (z - a) * inverse, 0.0)
    return where(is_near, log1p(distance) + rest, y - digamma(where(is_near, 12.0, a)))
