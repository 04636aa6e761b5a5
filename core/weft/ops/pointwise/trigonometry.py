"""Trigonometric and hyperbolic functions composed of sin, cos, tanh and atan.

Formulas for complex numbers are also used for real ones if there is no cancellation. For complex
numbers they give the principal values, with about half the digits correct near branch points.
"""

from __future__ import annotations

import math

import numpy as np

from weft.ir.tensor import CompositeOp, TensorLike, TensorOp
from weft.ops.pointwise.comparison import equal, greater, where
from weft.ops.pointwise.complex_parts import imag, real
from weft.ops.pointwise.elementwise import (
    FloatOp,
    InexactOp,
    absolute,
    align,
    build,
    meaning,
    multiply,
    square,
)
from weft.ops.pointwise.math import atan, cos, exp, hypot, log, log1p, rsqrt, sin, sqrt, tanh
from weft.ops.pointwise.rounding import CopysignOp, SignbitOp

__all__ = [
    "AcosOp",
    "AcoshOp",
    "AsinOp",
    "AsinhOp",
    "Atan2Op",
    "AtanhOp",
    "CoshOp",
    "SinhOp",
    "TanOp",
    "acos",
    "acosh",
    "angle",
    "asin",
    "asinh",
    "atan2",
    "atanh",
    "cosh",
    "degrees",
    "radians",
    "sinh",
    "tan",
]


class TanOp(InexactOp, CompositeOp):
    """The tangent of an angle in radians."""

    reference = meaning(np.tan)

    def decompose(self, x: TensorOp) -> TensorOp:
        """Divide sine by cosine, or use tanh for complex numbers, for which these overflow."""
        return tanh(x * 1j) * -1j if x.dtype.kind == "c" else sin(x) / cos(x)

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Multiply the adjoint by 1 + tan² x."""
        return (delta * (square(self) + 1),)


class AsinOp(InexactOp, CompositeOp):
    """The arcsine, from -π/2 to π/2; NaN outside of -1 to 1."""

    reference = meaning(np.arcsin)

    def decompose(self, x: TensorOp) -> TensorOp:
        """Compute the arctangent of the tangent of the angle."""
        return atan(x / (sqrt(1 - x) * sqrt(x + 1)))

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Multiply the adjoint by 1 / sqrt(1 - x²)."""
        return (delta * rsqrt(1 - x) * rsqrt(x + 1),)


class AcosOp(InexactOp, CompositeOp):
    """The arccosine, from 0 to π; NaN outside of -1 to 1."""

    reference = meaning(np.arccos)

    def decompose(self, x: TensorOp) -> TensorOp:
        """Compute twice the arctangent of the tangent of half the angle."""
        return atan(sqrt(1 - x) / sqrt(x + 1)) * 2

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Multiply the adjoint by -1 / sqrt(1 - x²)."""
        return (-(delta * rsqrt(1 - x) * rsqrt(x + 1)),)


class Atan2Op(FloatOp, CompositeOp):
    """The angle of the point (x, y) from -π to π, with y as the first operand.

    Signed zeros and infinities give the same angles as in C. The gradient at the origin is
    NaN, because the angle is discontinuous there.
    """

    reference = meaning(np.arctan2)

    def decompose(self, y: TensorOp, x: TensorOp) -> TensorOp:
        """Compute the angle in the first quadrant, π/4 for equal infinities, and reflect it."""
        high, wide = absolute(y), absolute(x)
        slope = where(equal(high, wide), where(equal(high, 0), high, 1), high / wide)
        angle = atan(slope)
        return CopysignOp(where(SignbitOp(x), math.pi - angle, angle), y)

    def partials(self, delta: TensorOp, y: TensorOp, x: TensorOp) -> tuple[TensorOp, TensorOp]:
        """Multiply the adjoint by x / r², and by -y / r²."""
        radius = hypot(x, y)
        turn = delta / radius
        return turn * (x / radius), -(turn * (y / radius))


class SinhOp(InexactOp, CompositeOp):
    """The hyperbolic sine."""

    reference = meaning(np.sinh)

    def decompose(self, x: TensorOp) -> TensorOp:
        """Multiply tanh by cosh, without cancellation near 0."""
        return tanh(x) * cosh(x)

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Multiply the adjoint by cosh x."""
        return (delta * cosh(x),)


class CoshOp(InexactOp, CompositeOp):
    """The hyperbolic cosine."""

    reference = meaning(np.cosh)

    def decompose(self, x: TensorOp) -> TensorOp:
        """Multiply by the root of the exponential twice, so that only the result overflows."""
        root = exp(x * 0.5)
        return root * 0.5 * root + 0.5 / root / root

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Multiply the adjoint by sinh x."""
        return (delta * sinh(x),)


class AsinhOp(InexactOp, CompositeOp):
    """The inverse of the hyperbolic sine."""

    reference = meaning(np.arcsinh)

    def decompose(self, x: TensorOp) -> TensorOp:
        """Use log(abs x) above 1, so that no square overflows, and log1p below."""
        if x.dtype.kind == "c":
            return asin(x * 1j) * -1j
        size = absolute(x)
        large = log(size) + log(sqrt(square(1 / size) + 1) + 1)
        small = log1p(size + size * (size / (sqrt(square(size) + 1) + 1)))
        return CopysignOp(where(greater(size, 1), large, small), x)

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Multiply the adjoint by 1 / sqrt(1 + x²), without overflow of the square."""
        if x.dtype.kind == "c":
            return (delta * rsqrt(x * 1j + 1) * rsqrt(1 - x * 1j),)
        return (delta / hypot(x, 1),)


class AcoshOp(InexactOp, CompositeOp):
    """The inverse of the hyperbolic cosine, not negative; NaN below 1."""

    reference = meaning(np.arccosh)

    def decompose(self, x: TensorOp) -> TensorOp:
        """Use cosh(2 t) = 1 + 2 sinh²(t), since x - 1 is exact near 1."""
        return asinh(sqrt((x - 1) * 0.5)) * 2

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Multiply the adjoint by 1 / sqrt(x² - 1)."""
        return (delta * rsqrt(x - 1) * rsqrt(x + 1),)


class AtanhOp(InexactOp, CompositeOp):
    """The inverse of the hyperbolic tangent; infinite at -1 and 1, NaN outside."""

    reference = meaning(np.arctanh)

    def decompose(self, x: TensorOp) -> TensorOp:
        """Use log1p of the absolute value, without cancellation."""
        if x.dtype.kind == "c":
            return atan(x * 1j) * -1j
        size = absolute(x)
        return CopysignOp(log1p(size * 2 / (1 - size)) * 0.5, x)

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Multiply the adjoint by 1 / (1 - x²)."""
        return (delta / (1 - x) / (x + 1),)


def tan(x: TensorLike) -> TensorOp:
    """Return the tangent of an angle in radians.

    Examples
    --------
    >>> weft.jit(weft.tan)(np.array([0.0, np.pi / 4]))
    array([0., 1.])
    """
    return build(TanOp, x)


def asin(x: TensorLike) -> TensorOp:
    """Return the arcsine of x, from -π/2 to π/2; NaN outside of -1 to 1.

    Examples
    --------
    >>> weft.jit(weft.asin)(np.array([0.0, 1.0]))
    array([0.    , 1.5708])
    """
    return build(AsinOp, x)


def acos(x: TensorLike) -> TensorOp:
    """Return the arccosine of x, from 0 to π; NaN outside of -1 to 1.

    Examples
    --------
    >>> weft.jit(weft.acos)(np.array([0.0, 1.0]))
    array([1.5708, 0.    ])
    """
    return build(AcosOp, x)


def atan2(y: TensorLike, x: TensorLike) -> TensorOp:
    """Return the angle, from -π to π, of the point (x, y), with respect to signed zeros.

    The gradient at the origin, where the angle is discontinuous, is NaN.

    Parameters
    ----------
    y
        The ordinates of the points.
    x
        Their abscissas, broadcast against y.

    Returns
    -------
    TensorOp
        The angles in radians, in the promoted dtype of the operands. Integers give float32.

    Raises
    ------
    AxesError
        If the operands do not broadcast.
    DTypeError
        If the operands are complex.

    Examples
    --------
    >>> weft.jit(weft.atan2)(np.array([1.0, -1.0]), np.array([0.0, 0.0]))
    array([ 1.5708, -1.5708])
    """
    return build(Atan2Op, y, x)


def sinh(x: TensorLike) -> TensorOp:
    """Return the hyperbolic sine.

    Examples
    --------
    >>> weft.jit(weft.sinh)(np.array([0.0, 0.5]))
    array([0.    , 0.5211])
    """
    return build(SinhOp, x)


def cosh(x: TensorLike) -> TensorOp:
    """Return the hyperbolic cosine.

    Examples
    --------
    >>> weft.jit(weft.cosh)(np.array([0.0, 1.0]))
    array([1.    , 1.5431])
    """
    return build(CoshOp, x)


def asinh(x: TensorLike) -> TensorOp:
    """Return the inverse hyperbolic sine.

    Examples
    --------
    >>> weft.jit(weft.asinh)(np.array([0.0, 0.5]))
    array([0.    , 0.4812])
    """
    return build(AsinhOp, x)


def acosh(x: TensorLike) -> TensorOp:
    """Return the inverse hyperbolic cosine, not negative; NaN below 1.

    Examples
    --------
    >>> weft.jit(weft.acosh)(np.array([1.0, 2.0]))
    array([0.   , 1.317])
    """
    return build(AcoshOp, x)


def atanh(x: TensorLike) -> TensorOp:
    """Return the inverse hyperbolic tangent; infinite at -1 and 1, NaN outside.

    Examples
    --------
    >>> weft.jit(weft.atanh)(np.array([0.0, 0.5]))
    array([0.    , 0.5493])
    """
    return build(AtanhOp, x)


def degrees(x: TensorLike) -> TensorOp:
    """Convert an angle from radians to degrees; integers give float32.

    Examples
    --------
    >>> weft.jit(weft.degrees)(np.array([np.pi, np.pi / 2]))
    array([180.,  90.])
    """
    return multiply(x, 180 / math.pi)


def radians(x: TensorLike) -> TensorOp:
    """Convert an angle from degrees to radians; integers give float32.

    Examples
    --------
    >>> weft.jit(weft.radians)(np.array([180.0, 90.0]))
    array([3.1416, 1.5708])
    """
    return multiply(x, math.pi / 180)


def angle(x: TensorLike) -> TensorOp:
    """Return the angle of numbers in the complex plane, from -π to π.

    That of real numbers is 0, or π for negative ones.

    Examples
    --------
    >>> weft.jit(weft.angle)(np.array([1.0 + 1.0j, -1.0]))
    array([0.7854, 3.1416])
    """
    (x,) = align(InexactOp, x)
    return atan2(imag(x), real(x))
