"""Special functions: error function and its inverse, gamma functions, x log(y), sinc, frexp.

All but xlogy are evaluated in float32 for 16-bit floats.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from weft.errors import DTypeError
from weft.ir import dtypes
from weft.ir.dtypes import Array, DType
from weft.ir.op import explain
from weft.ir.storage import as_op
from weft.ir.tensor import CompositeOp, TensorLike, TensorOp
from weft.ops.pointwise.bits import bitcast
from weft.ops.pointwise.comparison import equal, less, maximum, minimum, where
from weft.ops.pointwise.complex_parts import real
from weft.ops.pointwise.elementwise import (
    FloatOp,
    InexactOp,
    absolute,
    align,
    build,
    cast,
    square,
)
from weft.ops.pointwise.error_functions import complement, error_function
from weft.ops.pointwise.math import cos, exp, log, log1p, sin, sqrt
from weft.ops.pointwise.polynomials import Coefficients, polynomial
from weft.ops.pointwise.rounding import FloorOp, round
from weft.support.backports import override

__all__ = [
    "DigammaOp",
    "ErfOp",
    "ErfcOp",
    "ErfinvOp",
    "LgammaOp",
    "XlogyOp",
    "digamma",
    "erf",
    "erfc",
    "erfinv",
    "frexp",
    "ldexp",
    "lgamma",
    "sinc",
    "xlogy",
]


def _elements(function: Callable[[float], float]) -> Any:
    """Return a function of a float as the `reference` of an op."""
    each = np.vectorize(function, otypes=[np.float64])
    return staticmethod(lambda x: np.asarray(each(x)).astype(np.asarray(x).dtype))


def wide(x: TensorOp) -> TensorOp:
    """Return 16-bit floats cast to float32; others unchanged."""
    return cast(x, dtypes.float32) if x.dtype.itemsize < 4 else x


class ErfOp(FloatOp, CompositeOp):
    """The error function; the error in float32 is up to 4 ulp, plus that of tanh."""

    reference = _elements(math.erf)

    def decompose(self, x: TensorOp) -> TensorOp:
        """Approximate it for the precision of the dtype."""
        return cast(error_function(wide(x)), self.dtype)

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Multiply the adjoint by 2 / sqrt π exp(-x²)."""
        return (delta * (exp(-square(x)) * (2 / math.sqrt(math.pi))),)


class ErfcOp(FloatOp, CompositeOp):
    """The complement 1 - erf(x); the error in float32 is up to 10 ulp, also where it is tiny."""

    reference = _elements(math.erfc)

    def decompose(self, x: TensorOp) -> TensorOp:
        """Approximate it for the precision of the dtype."""
        return cast(complement(wide(x)), self.dtype)

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Multiply the adjoint by -2 / sqrt π exp(-x²)."""
        return (delta * (exp(-square(x)) * (-2 / math.sqrt(math.pi))),)


# M. Giles, Approximating the erfinv function, GPU Computing Gems Jade (2011), for double precision:
# polynomials in w = -log(1 - x²) up to 6.25, and in its root up to 4 and above.
_ERFINV_NEAR: Coefficients = (
    -3.6444120640178196996e-21, -1.685059138182016589e-19, 1.2858480715256400167e-18,
    1.115787767802518096e-17, -1.333171662854620906e-16, 2.0972767875968561637e-17,
    6.6376381343583238325e-15, -4.0545662729752068639e-14, -8.1519341976054721522e-14,
    2.6335093153082322977e-12, -1.2975133253453532498e-11, -5.4154120542946279317e-11,
    1.051212273321532285e-09, -4.1126339803469836976e-09, -2.9070369957882005086e-08,
    4.2347877827932403518e-07, -1.3654692000834678645e-06, -1.3882523362786468719e-05,
    0.0001867342080340571352, -0.00074070253416626697512, -0.0060336708714301490533,
    0.24015818242558961693, 1.6536545626831027356,
)  # fmt: skip
_ERFINV_MIDDLE: Coefficients = (
    2.2137376921775787049e-09, 9.0756561938885390979e-08, -2.7517406297064545428e-07,
    1.8239629214389227755e-08, 1.5027403968909827627e-06, -4.013867526981545969e-06,
    2.9234449089955446044e-06, 1.2475304481671778723e-05, -4.7318229009055733981e-05,
    6.8284851459573175448e-05, 2.4031110387097893999e-05, -0.0003550375203628474796,
    0.00095328937973738049703, -0.0016882755560235047313, 0.0024914420961078508066,
    -0.0037512085075692412107, 0.005370914553590063617, 1.0052589676941592334,
    3.0838856104922207635,
)  # fmt: skip
_ERFINV_FAR: Coefficients = (
    -2.7109920616438573243e-11, -2.5556418169965252055e-10, 1.5076572693500548083e-09,
    -3.7894654401267369937e-09, 7.6157012080783393804e-09, -1.4960026627149240478e-08,
    2.9147953450901080826e-08, -6.7711997758452339498e-08, 2.2900482228026654717e-07,
    -9.9298272942317002539e-07, 4.5260625972231537039e-06, -1.9681778105531670567e-05,
    7.5995277030017761139e-05, -0.00021503011930044477347, -0.00013871931833623122026,
    1.0103004648645343977, 4.8499064014085844221,
)  # fmt: skip


class ErfinvOp(FloatOp, CompositeOp):
    """The inverse error function; infinite at -1 and 1, NaN outside."""

    @override
    def reference(self, x: Array) -> Any:
        w = -np.log((1 - x) * (1 + x))
        root = np.sqrt(w)
        near, middle, far = (
            np.polyval(np.asarray(coefficients, x.dtype), z)
            for coefficients, z in (
                (_ERFINV_NEAR, w - 3.125),
                (_ERFINV_MIDDLE, root - 3.25),
                (_ERFINV_FAR, root - 5),
            )
        )
        slope = np.where(w < 6.25, near, np.where(w < 16, middle, far))
        return np.where(np.abs(x) == 1, x * np.inf, x * slope).astype(x.dtype)

    @override
    def decompose(self, x: TensorOp) -> TensorOp:
        x = wide(x)
        w = -log((1 - x) * (x + 1))
        root = sqrt(w)
        tail = where(
            less(w, 16), polynomial(root - 3.25, _ERFINV_MIDDLE), polynomial(root - 5, _ERFINV_FAR)
        )
        slope = where(less(w, 6.25), polynomial(w - 3.125, _ERFINV_NEAR), tail)
        return cast(where(equal(absolute(x), 1), x * math.inf, x * slope), self.dtype)

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Multiply the adjoint by exp(y²) sqrt(π) / 2 for the result y."""
        return (delta * (exp(square(self)) * (math.sqrt(math.pi) / 2)),)


# C. Lanczos, A precision approximation of the gamma function, SIAM J. Numer. Anal. 1 (1964), with
# g = 7 and nine coefficients by P. Godfrey: exact to 15 digits.
_LANCZOS_G = 7.0
_LANCZOS_T = _LANCZOS_G + 0.5
_LANCZOS_FIRST = 0.99999999999980993227684700473478
_LANCZOS: Coefficients = (
    676.520368121885098567009190444019, -1259.13921672240287047156078755283,
    771.3234287776530788486528258894, -176.61502916214059906584551354,
    12.507343278686904814458936853, -0.13857109526572011689554707, 9.984369578019570859563e-6,
    1.50563273514931155834e-7,
)  # fmt: skip


# lgamma(2 + w) = w (1 - c + w S) with Euler's constant c, and S w² the sum of
# (zeta(k) - 1) (-w)^k / k from k = 2 on, which converges as 4^-k up to
# 1/2 (Abramowitz and Stegun, 6.1.33).
_LGAMMA_SLOPE = 0.42278433509846713939
_LGAMMA_NEAR: Coefficients = (
    -6.42296456383810002e-11, 1.33047643742444895e-10, -2.75952288512423315e-10,
    5.73136724167886201e-10, -1.19214014058609121e-9, 2.48367454380247832e-9,
    -5.18347504197004666e-9, 1.08386592148969541e-8, -2.27110946089431649e-8,
    4.76981016936398057e-8, -1.00432248239680996e-7, 2.12071848055546659e-7,
    -4.49246919876456604e-7, 9.55141213040741983e-7, -2.03921575380136624e-6,
    4.3748667899074878e-6, -9.4394882752683959e-6, 0.0000205072127756706916,
    -0.0000449262367381331417, 0.0000994575127818085337, -0.00022315475845357938,
    0.000509669524743042422, -0.00119275391170326098, 0.00289051033074152329,
    -0.00738555102867398527, 0.0205808084277845479, -0.0673523010531980951, 0.322467033424113218,
)  # fmt: skip
_OWN_SINE = 1e-9
_SHORT = 13
"""The number of these coefficients for float32."""


_SINC: Coefficients = tuple(
    (-1.0) ** order / math.factorial(2 * order + 1) for order in reversed(range(10))
)
"""The power series of sin(x) / x in x²."""


def _lanczos(z: TensorOp) -> tuple[TensorOp, TensorOp]:
    """Return the series for gamma(z + 1), and its derivative."""
    series: Any = _LANCZOS_FIRST
    slope: Any = 0.0
    for place, coefficient in enumerate(_LANCZOS, 1):
        term = coefficient / (z + place)
        series, slope = series + term, slope - term / (z + place)
    return series, slope


def _lanczos_logarithm(z: TensorOp) -> TensorOp:
    """Return log(z + g + 1/2), accurate for small z."""
    return log1p(z / _LANCZOS_T) + math.log(_LANCZOS_T)


def _lgamma_near(x: TensorOp) -> TensorOp:
    """Return lgamma from 1/2 to 5/2, with a small relative error at its zeros 1 and 2."""
    is_lower = less(x, 1.5)
    w = where(is_lower, x - 1, x - 2)
    terms = _LGAMMA_NEAR[-_SHORT:] if x.dtype == dtypes.float32 else _LGAMMA_NEAR
    value = w * (w * polynomial(w, terms) + _LGAMMA_SLOPE)
    return value - where(is_lower, log1p(w), 0)


def _lgamma(x: float) -> float:
    try:
        return math.lgamma(x)
    except (ValueError, OverflowError):
        return math.inf


class LgammaOp(FloatOp, CompositeOp):
    """The logarithm of the absolute gamma function; infinite at 0, -1, -2 and so on."""

    reference = _elements(_lgamma)

    def decompose(self, x: TensorOp) -> TensorOp:
        """Use the Lanczos approximation from 1/2 on, and the reflection formula below."""
        x = wide(x)
        is_low = less(x, 0.5)
        z = where(is_low, -x, x - 1)
        series, _ = _lanczos(z)
        log_t = _lanczos_logarithm(z)
        # Factored, because t ** (z + 1/2) and exp(t) overflow before their quotient.
        powers = (z + 0.5 - (z + _LANCZOS_T) / log_t) * log_t
        high = powers + log(series) + math.log(2 * math.pi) / 2
        size = absolute(x)
        fraction = size - FloorOp(size)
        nearest = minimum(fraction, 1 - fraction)
        # sin(x) = x for small fractions, whose product with pi might be subnormal.
        sine = where(less(nearest, _OWN_SINE), nearest, sin(nearest * math.pi) * (1 / math.pi))
        result = where(is_low, -log(sine) - high, high)
        # Large negative numbers are integers and so poles; at infinity the formula gives NaN.
        is_infinite = is_low & equal(fraction, 0) | equal(size, math.inf)
        result = where(is_infinite, math.inf, result)
        is_near = less(absolute(x - 1.5), 1)
        near = _lgamma_near(where(is_near, x, 1))
        return cast(where(is_near, near, result), self.dtype)

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Multiply the adjoint by digamma."""
        return (delta * DigammaOp(x),)


def _digamma(x: float) -> float:
    if math.isinf(x) or math.isnan(x):
        return x if x > 0 else math.nan
    if x == 0:
        return -math.copysign(math.inf, x)
    if x < 0:
        rest = math.remainder(x, 1)
        return _digamma(1 - x) - math.pi / math.tan(math.pi * rest) if rest else math.nan
    total = 0.0
    while x < 10:
        total -= 1 / x
        x += 1
    inverse = (1 / x) ** 2
    bernoulli = (691 / 32760, -1 / 132, 1 / 240, -1 / 252, 1 / 120, -1 / 12, 0)
    return total + math.log(x) - 0.5 / x + float(np.polyval(bernoulli, inverse))


class DigammaOp(FloatOp, CompositeOp):
    """The derivative of the logarithm of the gamma function; NaN at -1, -2 and so on.

    It is infinite at 0, with the other sign.
    """

    reference = _elements(_digamma)

    def decompose(self, x: TensorOp) -> TensorOp:
        """Differentiate the Lanczos approximation from 1/2 on, and reflect below."""
        x = wide(x)
        is_low = less(x, 0.5)
        z = where(is_low, -x, x - 1)
        series, slope = _lanczos(z)
        high = _lanczos_logarithm(z) + slope / series - _LANCZOS_G / (z + _LANCZOS_T)
        angle = where(is_low, x - FloorOp(x + 0.5), 0.25) * math.pi
        low = high - cos(angle) / sin(angle) * math.pi
        is_pole = equal(angle, 0) | equal(x, -math.inf)
        is_zero = equal(x, 0)
        pole = where(is_zero, -1 / where(is_zero, x, 1), math.nan)
        return cast(where(is_pole, pole, where(is_low, low, high)), self.dtype)

    @override
    def partials(self, delta: TensorOp, x: TensorOp) -> Iterable[Any]:
        return CompositeOp.generate_adjoints(self, delta, x)


class XlogyOp(InexactOp, CompositeOp):
    """The product of the first operand and the logarithm of the second; 0 where the first is 0."""

    def reference(self, x: Array, y: Array) -> Any:
        """Multiply, with 0 where the first operand is 0."""
        is_zero = np.equal(x, 0) & ~np.isnan(y)
        return np.where(is_zero, np.zeros((), self.dtype), x * np.log(y))

    def decompose(self, x: TensorOp, y: TensorOp) -> TensorOp:
        """Multiply, with 0 where the first operand is 0."""
        return where(equal(x, 0) & equal(y, y), 0, x * log(y))

    def partials(self, delta: TensorOp, x: TensorOp, y: TensorOp) -> tuple[TensorOp, TensorOp]:
        """Multiply the adjoint by log y, and by x / y, which is 0 where x is 0."""
        return delta * log(y), delta * where(equal(x, 0), 0, x / y)


def erf(x: TensorLike) -> TensorOp:
    """Return the error function of x.

    Examples
    --------
    >>> weft.jit(weft.erf)(np.array([0.0, 1.0]))
    array([0.    , 0.8427])
    """
    return build(ErfOp, x)


def erfc(x: TensorLike) -> TensorOp:
    """Return 1 - erf(x), with a small relative error where it is tiny.

    Examples
    --------
    >>> weft.jit(weft.erfc)(np.array([0.0, 1.0]))
    array([1.    , 0.1573])
    """
    return build(ErfcOp, x)


def erfinv(x: TensorLike) -> TensorOp:
    """Return the inverse error function of x; infinite at -1 and 1, NaN outside.

    Examples
    --------
    >>> weft.jit(weft.erfinv)(np.array([0.0, 0.5, 1.0]))
    array([0.    , 0.4769,    inf])
    """
    return build(ErfinvOp, x)


def lgamma(x: TensorLike) -> TensorOp:
    """Return the logarithm of the absolute value of the gamma function.

    It is infinite at 0, -1, -2 and so on. The gradient is `digamma`.

    Examples
    --------
    >>> weft.jit(weft.lgamma)(np.array([1.0, 4.0]))
    array([0.    , 1.7918])
    """
    return build(LgammaOp, x)


def digamma(x: TensorLike) -> TensorOp:
    """Return the derivative of `lgamma`; NaN at -1, -2 and so on.

    It is infinite at 0, with the other sign.

    Examples
    --------
    >>> weft.jit(weft.digamma)(np.array([1.0, 2.0]))
    array([-0.5772,  0.4228])
    """
    return build(DigammaOp, x)


def xlogy(x: TensorLike, y: TensorLike) -> TensorOp:
    """Return x log(y), which is 0 where x is 0 unless y is NaN.

    The gradient with respect to x is log(y) everywhere, so it is infinite at y = 0.

    Parameters
    ----------
    x
        The factor.
    y
        What the logarithm is taken of.

    Returns
    -------
    TensorOp
        The products, in the promoted dtype of the operands, which are broadcast. Integers give
        float32.

    Raises
    ------
    AxesError
        If the operands do not broadcast.

    Examples
    --------
    >>> weft.jit(weft.xlogy)(np.array([0.0, 2.0]), np.array([0.0, 1.0]))
    array([0., 0.])
    """
    return build(XlogyOp, x, y)


def sinc(x: TensorLike) -> TensorOp:
    """Return sin(πx) / (πx), which is 1 at 0; derivatives at 0 are exact.

    Examples
    --------
    >>> weft.jit(weft.sinc)(np.array([0.0, 0.5]))
    array([1.    , 0.6366])
    """
    (given,) = align(InexactOp, x)
    x = wide(given)
    angle = x * math.pi
    # Reducing x by integers keeps the sine exact at its zeros, and finite for an infinite angle.
    halves = round(real(x))
    is_odd = absolute(halves - round(halves * 0.5) * 2)
    turn = sin((x - halves) * math.pi) * (1 - is_odd * 2)
    return cast(over_angle(turn, angle), given.dtype)


def over_angle(sine: TensorOp, angle: TensorOp) -> TensorOp:
    """Return the sine of an angle divided by the angle, with all derivatives at 0."""
    is_small = less(absolute(angle), 1)
    # Near 0 the quotient cancels; the series and its derivatives are exact.
    series = polynomial(square(where(is_small, angle, 0)), _SINC)
    return where(is_small, series, sine / where(is_small, 1, angle))


def _integers_like(dtype: DType) -> DType:
    """Return the integers as wide as floats."""
    return np.dtype(f"int{dtype.itemsize * 8}")


def _power(exponent: TensorOp, dtype: DType) -> TensorOp:
    """Return 2 to a power that is a normal number."""
    finfo = np.finfo(dtype)
    return bitcast((exponent + (finfo.maxexp - 1)) * 2**finfo.nmant, dtype)


def _scaled(x: TensorOp, exponent: TensorOp) -> TensorOp:
    """Return x times 2 to a power, rounded once; for float32 and float64."""
    highest = np.finfo(x.dtype).maxexp - 1
    factors = []
    for _ in range(3):
        part = maximum(minimum(exponent, highest), 1 - highest)
        factors.append(_power(part, x.dtype))
        exponent = exponent - part
    # The largest part comes last, so that only its product may be subnormal or infinite.
    first, second, third = factors
    return x * third * second * first


def ldexp(x: TensorLike, n: TensorLike) -> TensorOp:
    """Return x times 2 to the power n, rounded once.

    Parameters
    ----------
    x
        The numbers.
    n
        Their exponents: integers, broadcast against x.

    Returns
    -------
    TensorOp
        The products, in the dtype of x. Integers give float32.

    Raises
    ------
    AxesError
        If the operands do not broadcast.
    DTypeError
        If x is complex, or n holds no integers.

    Examples
    --------
    >>> weft.jit(weft.ldexp)(np.array([0.5, 3.0]), np.array([2, -1]))
    array([2. , 1.5])
    """
    (given,), n = align(FloatOp, x), as_op(n)
    if not dtypes.is_integer(n.dtype):
        problem = f"the exponents must be integers, not {n.dtype}: cast them"
        raise DTypeError(explain("ldexp", problem, (given, n)))
    x = wide(given)
    # Beyond this power all results are 0 or infinite.
    limit = 4 * np.finfo(x.dtype).maxexp
    lowest, highest = np.iinfo(n.dtype).min, np.iinfo(n.dtype).max
    n = minimum(n, limit) if highest > limit else n
    n = maximum(n, -limit) if lowest < -limit else n
    return cast(_scaled(x, cast(n, _integers_like(x.dtype))), given.dtype)


def frexp(x: TensorLike) -> tuple[TensorOp, TensorOp]:
    """Return mantissas and exponents: x is the mantissa times 2 to the power of the exponent.

    The size of the mantissa is from 1/2 up to 1. 0, infinities and NaN have the exponent 0. The
    gradient of the exponent is 0.

    Returns
    -------
    tuple of TensorOp
        The mantissas, in the dtype of x, and the exponents, int32. Integers give float32.

    Raises
    ------
    DTypeError
        If x is complex.

    Examples
    --------
    >>> mantissa, exponent = weft.jit(weft.frexp)(np.array([3.0, -0.5, 0.0]))
    >>> mantissa, exponent
    (array([ 0.75, -0.5 ,  0.  ]), array([2, 0, 0], dtype=int32))
    """
    (given,) = align(FloatOp, x)
    x = wide(given)
    finfo, size = np.finfo(x.dtype), absolute(x)
    # Subnormal numbers are scaled into the range of normal ones first.
    is_subnormal = less(size, float(finfo.tiny))
    shift = where(is_subnormal, finfo.nmant, 0)
    bits = bitcast(where(is_subnormal, size * 2.0**finfo.nmant, size), _integers_like(x.dtype))
    found = (bits >> finfo.nmant) - cast(shift, bits.dtype) - (finfo.maxexp - 2)
    is_regular = less(size, math.inf) & ~equal(size, 0)
    exponent = where(is_regular, found, 0)
    return cast(_scaled(x, -exponent), given.dtype), cast(exponent, dtypes.int32)
