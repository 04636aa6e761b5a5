"""Trigonometric and hyperbolic functions composed of sin, cos, tanh and atan.

Formulas that hold for complex numbers are used for real ones as well where nothing cancels in them;
of complex numbers they give the principal values, exact to about half the digits near the branch
points.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.ir.tensor import CompositeOp, TensorOp
from weft.ops.comparison import equal, greater, where
from weft.ops.elementwise import FloatOp, InexactOp, absolute, build, meaning, multiply, square
from weft.ops.math import atan, cos, exp, hypot, log, log1p, rsqrt, sin, sqrt, tanh
from weft.ops.rounding import CopysignOp, SignbitOp

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
        """Divide sine by cosine, which overflow for complex numbers."""
        return tanh(x * 1j) * -1j if x.dtype.kind == "c" else sin(x) / cos(x)

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """1 + tan² x."""
        return (delta * (square(self) + 1),)


class AsinOp(InexactOp, CompositeOp):
    """The angle from -π/2 to π/2 whose sine is the operand; NaN outside of -1 to 1."""

    reference = meaning(np.arcsin)

    def decompose(self, x: TensorOp) -> TensorOp:
        """Use the tangent of that angle."""
        return atan(x / (sqrt(1 - x) * sqrt(x + 1)))

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """1 / sqrt(1 - x²)."""
        return (delta * rsqrt(1 - x) * rsqrt(x + 1),)


class AcosOp(InexactOp, CompositeOp):
    """The angle from 0 to π whose cosine is the operand; NaN outside of -1 to 1."""

    reference = meaning(np.arccos)

    def decompose(self, x: TensorOp) -> TensorOp:
        """Use the tangent of half of that angle."""
        return atan(sqrt(1 - x) / sqrt(x + 1)) * 2

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """-1 / sqrt(1 - x²)."""
        return (-(delta * rsqrt(1 - x) * rsqrt(x + 1)),)


class Atan2Op(FloatOp, CompositeOp):
    """The angle of the point (x, y) from -π to π, with y as the first operand.

    Zeros and infinities have the signs and angles that C gives them. The gradient at the origin is
    NaN: the angle jumps there.
    """

    reference = meaning(np.arctan2)

    def decompose(self, y: TensorOp, x: TensorOp) -> TensorOp:
        """Find the angle in the first quadrant, where equal infinities make π/4, and reflect it."""
        high, wide = absolute(y), absolute(x)
        slope = where(equal(high, wide), where(equal(high, 0), high, 1), high / wide)
        angle = atan(slope)
        return CopysignOp(where(SignbitOp(x), math.pi - angle, angle), y)

    def partials(self, delta: TensorOp, y: TensorOp, x: TensorOp) -> tuple[TensorOp, TensorOp]:
        """X / r² and -y / r²."""
        radius = hypot(x, y)
        turn = delta / radius
        return turn * (x / radius), -(turn * (y / radius))


class SinhOp(InexactOp, CompositeOp):
    """The hyperbolic sine."""

    reference = meaning(np.sinh)

    def decompose(self, x: TensorOp) -> TensorOp:
        """Multiply tangent and cosine, in which nothing cancels near 0."""
        return tanh(x) * cosh(x)

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Cosh x."""
        return (delta * cosh(x),)


class CoshOp(InexactOp, CompositeOp):
    """The hyperbolic cosine."""

    reference = meaning(np.cosh)

    def decompose(self, x: TensorOp) -> TensorOp:
        """Multiply the root of the exponential last, so that only the result overflows."""
        root = exp(x * 0.5)
        return root * 0.5 * root + 0.5 / root / root

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Sinh x."""
        return (delta * sinh(x),)


class AsinhOp(InexactOp, CompositeOp):
    """The inverse of the hyperbolic sine."""

    reference = meaning(np.arcsinh)

    def decompose(self, x: TensorOp) -> TensorOp:
        """Above 1 use log(size), so that no square overflows, and near 0 log1p."""
        if x.dtype.kind == "c":
            return asin(x * 1j) * -1j
        size = absolute(x)
        large = log(size) + log(sqrt(square(1 / size) + 1) + 1)
        small = log1p(size + size * (size / (sqrt(square(size) + 1) + 1)))
        return CopysignOp(where(greater(size, 1), large, small), x)

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """1 / sqrt(1 + x²), whose square may overflow."""
        if x.dtype.kind == "c":
            return (delta * rsqrt(square(x) + 1),)
        return (delta / hypot(x, 1),)


class AcoshOp(InexactOp, CompositeOp):
    """The inverse of the hyperbolic cosine, not negative; NaN below 1."""

    reference = meaning(np.arccosh)

    def decompose(self, x: TensorOp) -> TensorOp:
        """cosh(2 t) = 1 + 2 sinh²(t), and x - 1 is exact near 1."""
        return asinh(sqrt((x - 1) * 0.5)) * 2

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """1 / sqrt(x² - 1)."""
        return (delta * rsqrt(x - 1) * rsqrt(x + 1),)


class AtanhOp(InexactOp, CompositeOp):
    """The inverse of the hyperbolic tangent; infinite at -1 and 1, NaN outside."""

    reference = meaning(np.arctanh)

    def decompose(self, x: TensorOp) -> TensorOp:
        """Use log1p of the size, in which nothing cancels."""
        if x.dtype.kind == "c":
            return atan(x * 1j) * -1j
        size = absolute(x)
        return CopysignOp(log1p(size * 2 / (1 - size)) * 0.5, x)

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """1 / (1 - x²)."""
        return (delta / ((1 - x) * (x + 1)),)


def tan(x: Any) -> TensorOp:
    """Return the tangent of an angle in radians."""
    return build(TanOp, x)


def asin(x: Any) -> TensorOp:
    """Return the angle, from -π/2 to π/2, whose sine is x; NaN outside of -1 to 1."""
    return build(AsinOp, x)


def acos(x: Any) -> TensorOp:
    """Return the angle, from 0 to π, whose cosine is x; NaN outside of -1 to 1."""
    return build(AcosOp, x)


def atan2(y: Any, x: Any) -> TensorOp:
    """Return the angle, from -π to π, of the point (x, y); the signs of zeros count.

    The gradient at the origin, where the angle jumps, is NaN.
    """
    return build(Atan2Op, y, x)


def sinh(x: Any) -> TensorOp:
    """Return the hyperbolic sine."""
    return build(SinhOp, x)


def cosh(x: Any) -> TensorOp:
    """Return the hyperbolic cosine."""
    return build(CoshOp, x)


def asinh(x: Any) -> TensorOp:
    """Return the inverse hyperbolic sine."""
    return build(AsinhOp, x)


def acosh(x: Any) -> TensorOp:
    """Return the inverse hyperbolic cosine, not negative; NaN below 1."""
    return build(AcoshOp, x)


def atanh(x: Any) -> TensorOp:
    """Return the inverse hyperbolic tangent; infinite at -1 and 1, NaN outside."""
    return build(AtanhOp, x)


def degrees(x: Any) -> TensorOp:
    """Return an angle in radians as degrees; integers give float32."""
    return multiply(x, 180 / math.pi)


def radians(x: Any) -> TensorOp:
    """Return an angle in degrees as radians; integers give float32."""
    return multiply(x, math.pi / 180)
