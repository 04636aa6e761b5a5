"""Approximations of the error function and the normal distribution, per precision.

The float32 versions are rational functions, fitted for this library at Chebyshev points by least
squares in float64 with Lawson's weights (C. L. Lawson, 1961), which approach the minimax relative
error. In exact arithmetic the relative error of erf and erfc is below 6e-9, that of the normal tail
below 9e-8 times 1 + x² / 4. The errors stated below, in units in the last place (ulp) of float32,
bound the largest of several million measured on the NumPy backend, including subnormal numbers.
Most of the error is the rounding of exp, tanh and products.
"""

from __future__ import annotations

import math

from weft.ir import dtypes
from weft.ir.tensor import TensorOp
from weft.ops.pointwise.comparison import less, minimum, where
from weft.ops.pointwise.elementwise import absolute, square
from weft.ops.pointwise.math import exp, tanh
from weft.ops.pointwise.polynomials import Coefficients, polynomial, quotient
from weft.ops.pointwise.rounding import CopysignOp, FloorOp

_ERFC_LIMIT = 30.0
"""erfc is 0 above this, also in float64."""

# atanh(erf(x)) / x as a function of x², for x up to 3.95.
_ERF_ABOVE: Coefficients = (6.7039684709, 131.25083827, 861.14560063, 3472.7488899)
_ERF_BELOW: Coefficients = (1.0, 72.909100688, 482.85935722, 3077.6435613)
_ERF_LIMIT = 4.0
"""erf is 1 above this, in float32."""

# erfc(x) exp(x²), for x up to 10.3.
_ERFC_ABOVE: Coefficients = (0.564196062, 3.9365988913, 12.549055813, 21.220284656, 17.112253197)
_ERFC_BELOW: Coefficients = (
    1.0, 6.9778780391, 22.735414941, 41.169173598, 40.529404808, 17.112253095,
)  # fmt: skip

# The upper tail of the normal distribution times exp(x² / 2), for x up to 14.5; the error is
# relative to that of x² in float32, 1 + x² / 4.
_TAIL_ABOVE: Coefficients = (0.39883515889, 2.9578775934, 9.2742116556, 13.407460846)
_TAIL_BELOW: Coefficients = (1.0, 7.4050043904, 24.379943667, 39.943495477, 26.814924069)


def error_function(x: TensorOp) -> TensorOp:
    """Return erf of float32 or float64, with a small relative error.

    In float32 the error is up to 4 ulp, plus that of tanh. It is ±0 at ±0, ±1 at infinities, and
    NaN at NaN.
    """
    if x.dtype != dtypes.float32:
        return _exact_erf(x)
    x2 = minimum(square(x), _ERF_LIMIT**2)
    return tanh(x * quotient(x2, _ERF_ABOVE, _ERF_BELOW))


def complement(x: TensorOp) -> TensorOp:
    """Return erfc of float32 or float64, with a small relative error down to the least number.

    In float32 the error is up to 10 ulp. It is 1 at ±0, 0 and 2 at infinities, and NaN at NaN.
    """
    if x.dtype != dtypes.float32:
        return _exact_erfc(x)
    size = minimum(absolute(x), _ERFC_LIMIT)
    far = _power(size) * quotient(size, _ERFC_ABOVE, _ERFC_BELOW)
    return where(less(x, 0), 2 - far, far)


def normal_tail(x: TensorOp) -> TensorOp:
    """Return the upper tail of the normal distribution, for x in float32 between 0 and 40.

    The error is mostly that of x²: up to 6 ulp for x up to 1, 12 up to 4, 30 up to 6, and 100 at
    14, where the tail underflows.
    """
    return exp(square(x) * -0.5) * quotient(x, _TAIL_ABOVE, _TAIL_BELOW)


def _power(size: TensorOp) -> TensorOp:
    """Return exp(-x²) with a small relative error, for x between 0 and `_ERFC_LIMIT`."""
    # The square of a multiple of 1/16 is exact, so exp amplifies no rounding error of it.
    coarse = FloorOp(size * 16) * (1 / 16)
    return exp(-square(coarse)) * exp((coarse - size) * (coarse + size))


# W. J. Cody, Rational Chebyshev approximations for the error function, Math. Comp. 23 (1969), in
# the form of his program CALERF: erf up to 0.46875, erfc up to 4, and erfc above.
_NEAR_SPLIT = 0.46875
_NEAR_ABOVE: Coefficients = (
    1.85777706184603153e-1, 3.16112374387056560e0, 1.13864154151050156e2, 3.77485237685302021e2,
    3.20937758913846947e3,
)  # fmt: skip
_NEAR_BELOW: Coefficients = (
    1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3,
    2.84423683343917062e3,
)  # fmt: skip
_MIDDLE_SPLIT = 4.0
_MIDDLE_ABOVE: Coefficients = (
    2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594e0, 6.61191906371416295e1,
    2.98635138197400131e2, 8.81952221241769090e2, 1.71204761263407058e3, 2.05107837782607147e3,
    1.23033935479799725e3,
)  # fmt: skip
_MIDDLE_BELOW: Coefficients = (
    1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2,
    1.62138957456669019e3, 3.29079923573345963e3, 4.36261909014324716e3, 3.43936767414372164e3,
    1.23033935480374942e3,
)  # fmt: skip
_FAR_ABOVE: Coefficients = (
    1.63153871373020978e-2, 3.05326634961232344e-1, 3.60344899949804439e-1, 1.25781726111229246e-1,
    1.60837851487422766e-2, 6.58749161529837803e-4,
)  # fmt: skip
_FAR_BELOW: Coefficients = (
    1.0, 2.56852019228982242e0, 1.87295284992346725e0, 5.27905102951428412e-1,
    6.05183413124413191e-2, 2.33520497626869185e-3,
)  # fmt: skip


def _exact_erf(x: TensorOp) -> TensorOp:
    """Return a rational function near 0, and 1 - erfc elsewhere."""
    size = absolute(x)
    far = CopysignOp(1 - _far_erfc(size), x)
    return where(less(size, _NEAR_SPLIT), _near_erf(x), far)


def _exact_erfc(x: TensorOp) -> TensorOp:
    """Return a rational function times exp(-x²), and 1 - erf near 0."""
    size = absolute(x)
    far = _far_erfc(size)
    both = where(less(x, 0), 2 - far, far)
    return where(less(size, _NEAR_SPLIT), 1 - _near_erf(x), both)


def _near_erf(x: TensorOp) -> TensorOp:
    """Return erf for absolute values up to `_NEAR_SPLIT`."""
    x2 = square(x)
    return x * polynomial(x2, _NEAR_ABOVE) / polynomial(x2, _NEAR_BELOW)


def _far_erfc(size: TensorOp) -> TensorOp:
    """Return erfc for values from `_NEAR_SPLIT` on, with a small relative error."""
    size = minimum(size, _ERFC_LIMIT)
    middle = quotient(size, _MIDDLE_ABOVE, _MIDDLE_BELOW)
    z = 1 / square(size)
    rest = z * polynomial(z, _FAR_ABOVE) / polynomial(z, _FAR_BELOW)
    far = (1 / math.sqrt(math.pi) - rest) / size
    return _power(size) * where(less(size, _MIDDLE_SPLIT), middle, far)
