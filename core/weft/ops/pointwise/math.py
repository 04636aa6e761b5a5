"""Roots, powers, exponentials, logarithms, and the primitives of trigonometry."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.ir import dtypes
from weft.ir.dtypes import Array
from weft.ir.tensor import CompositeOp, TensorLike, TensorOp, operators
from weft.ops.pointwise.comparison import equal, less, maximum, minimum, where
from weft.ops.pointwise.elementwise import (
    ArithmeticOp,
    FloatOp,
    InexactOp,
    absolute,
    align,
    build,
    meaning,
    reciprocal,
    sign,
    square,
)
from weft.ops.pointwise.rounding import IsinfOp
from weft.support.backports import override

__all__ = [
    "AtanOp",
    "CbrtOp",
    "Cos",
    "CosOp",
    "Exp",
    "Exp2Op",
    "ExpOp",
    "Expm1Op",
    "HypotOp",
    "Log",
    "Log1pOp",
    "Log2Op",
    "Log10Op",
    "LogOp",
    "LogaddexpOp",
    "Power",
    "PowerOp",
    "RsqrtOp",
    "Sin",
    "SinOp",
    "Sqrt",
    "SqrtOp",
    "Tanh",
    "TanhOp",
    "atan",
    "cbrt",
    "cos",
    "exp",
    "exp2",
    "expm1",
    "hypot",
    "lerp",
    "log",
    "log1p",
    "log2",
    "log10",
    "logaddexp",
    "pow",
    "power",
    "rsqrt",
    "sin",
    "sqrt",
    "tanh",
]


class SqrtOp(InexactOp):
    """The square root; NaN below 0, gradient infinite at 0."""

    reference = meaning(np.sqrt)

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Multiply the adjoint by 1 / (2 sqrt x)."""
        return (delta * 0.5 / self,)


class ExpOp(InexactOp):
    """The exponential function."""

    reference = meaning(np.exp)

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Multiply the adjoint by exp x."""
        return (delta * self,)


class LogOp(InexactOp):
    """The natural logarithm; minus infinity at 0 and NaN below."""

    reference = meaning(np.log)

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Multiply the adjoint by 1 / x."""
        return (delta / x,)


class SinOp(InexactOp):
    """The sine of an angle in radians."""

    reference = meaning(np.sin)

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Multiply the adjoint by cos x."""
        return (delta * cos(x),)


class CosOp(InexactOp):
    """The cosine of an angle in radians."""

    reference = meaning(np.cos)

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Multiply the adjoint by -sin x."""
        return (-(delta * sin(x)),)


class AtanOp(InexactOp):
    """The arctangent, from -π/2 to π/2."""

    reference = meaning(np.arctan)

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Multiply the adjoint by 1 / (1 + x²), without overflow of the square."""
        if x.dtype.kind == "c":
            return (delta / (x * 1j + 1) / (1 - x * 1j),)
        is_far = less(1, absolute(x))
        near = where(is_far, reciprocal(x), x)
        slope = reciprocal(square(near) + 1)
        return (delta * where(is_far, slope * square(near), slope),)


class TanhOp(InexactOp):
    """The hyperbolic tangent."""

    reference = meaning(np.tanh)

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Multiply the adjoint by 1 - tanh² x."""
        return (delta * (1 - square(self)),)


class PowerOp(ArithmeticOp):
    """The first operand to the power of the second; NaN for a negative base with a fraction.

    A negative power of integers is the quotient rounded towards zero: 0, except for the bases 1 and
    -1; the base 0 gives 0.
    """

    def reference(self, x: Array, y: Array) -> Any:
        """Call NumPy's power, with the op's definition for negative powers of integers."""
        if not dtypes.is_integer(self.dtype):
            return np.power(x, y)
        negative = np.less(y, 0)
        root = np.where(negative & (np.abs(x) != 1), 0, x)
        # Only the parity of a negative power matters; the least integer cannot be negated.
        result = np.power(root, np.where(negative, 2 - y % 2, y))
        return result.astype(self.dtype)

    def partials(self, delta: TensorOp, x: TensorOp, y: TensorOp) -> tuple[Any, Any]:
        """Multiply the adjoint by y x^(y-1), and by x^y log x, which is 0 at x = 0."""
        # For y = 0 the factor y gives 0; x ** -1 must not turn it into NaN at x = 0.
        exponent = where(equal(y, 0), 1, y)
        base = delta * y * power(x, exponent - 1)
        if y.is_constant:
            return base, None
        safe = where(equal(x, 0), 1, x)
        return base, delta * self * log(safe)


class RsqrtOp(InexactOp, CompositeOp):
    """The reciprocal square root; infinite at 0 and NaN below."""

    @override
    def reference(self, x: Array) -> Any:
        return np.divide(np.ones((), np.asarray(x).dtype), np.sqrt(x))

    @override
    def decompose(self, x: TensorOp) -> TensorOp:
        return reciprocal(sqrt(x))

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Multiply the adjoint by -1 / (2 x sqrt x)."""
        return (delta * -0.5 * self / x,)


class CbrtOp(FloatOp, CompositeOp):
    """The cube root, negative below 0; its gradient at 0 is infinite."""

    reference = meaning(np.cbrt)

    def decompose(self, x: TensorOp) -> TensorOp:
        """Raise the absolute value to the power of 1/3, and restore the sign."""
        return sign(x) * power(absolute(x), 1 / 3)

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Multiply the adjoint by 1 / (3 cbrt² x)."""
        return (delta / (square(self) * 3),)


class Exp2Op(FloatOp, CompositeOp):
    """2 to the power of the operand."""

    reference = meaning(np.exp2)

    def decompose(self, x: TensorOp) -> TensorOp:
        """Raise 2 to the power, which is exact for integers on most devices."""
        return power(2, x)

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Multiply the adjoint by 2^x log 2."""
        return (delta * self * math.log(2),)


class Expm1Op(InexactOp, CompositeOp):
    """exp(x) - 1, accurate near 0."""

    reference = meaning(np.expm1)

    def decompose(self, x: TensorOp) -> TensorOp:
        """Solve tanh(x / 2) = (exp(x) - 1) / (exp(x) + 1), without cancellation."""
        return tanh(x * 0.5) * (exp(x) + 1)

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Multiply the adjoint by exp x."""
        return (delta * exp(x),)


class Log1pOp(InexactOp, CompositeOp):
    """log(1 + x), accurate near 0; minus infinity at -1 and NaN below."""

    reference = meaning(np.log1p)

    def decompose(self, x: TensorOp) -> TensorOp:
        """Scale the logarithm of the rounded sum u by x / (u - 1) (Kahan; HP-15C, 1982)."""
        u = x + 1
        scale = where(equal(u, x), 1, x / (u - 1))
        return where(equal(u, 1), x, log(u) * scale)

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Multiply the adjoint by 1 / (1 + x)."""
        return (delta / (x + 1),)


class Log2Op(InexactOp, CompositeOp):
    """The logarithm to base 2; minus infinity at 0 and NaN below."""

    reference = meaning(np.log2)

    @override
    def decompose(self, x: TensorOp) -> TensorOp:
        return log(x) / math.log(2)

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Multiply the adjoint by 1 / (x log 2)."""
        return (delta * (1 / math.log(2)) / x,)


class Log10Op(InexactOp, CompositeOp):
    """The logarithm to base 10; minus infinity at 0 and NaN below."""

    reference = meaning(np.log10)

    @override
    def decompose(self, x: TensorOp) -> TensorOp:
        return log(x) / math.log(10)

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Multiply the adjoint by 1 / (x log 10)."""
        return (delta * (1 / math.log(10)) / x,)


class LogaddexpOp(FloatOp, CompositeOp):
    """log(exp(x) + exp(y)), without overflow."""

    reference = meaning(np.logaddexp)

    def decompose(self, x: TensorOp, y: TensorOp) -> TensorOp:
        """Add log1p(exp(-difference)) to the larger; the difference of equal infinities is 0."""
        distance = where(equal(x, y), 0, absolute(x - y))
        return maximum(x, y) + log1p(exp(-distance))

    def partials(self, delta: TensorOp, x: TensorOp, y: TensorOp) -> tuple[TensorOp, TensorOp]:
        """Multiply the adjoint by the fraction of each exponential in the sum."""
        return delta * self._share(x, y), delta * self._share(y, x)

    def _share(self, x: TensorOp, y: TensorOp) -> TensorOp:
        is_all = IsinfOp(x) & equal(x, self)
        return where(is_all, 1, operators["sigmoid"](where(is_all, 0, x - y)))


class HypotOp(FloatOp, CompositeOp):
    """The hypotenuse, without overflow; infinity with NaN gives infinity, as in C.

    The gradient at the origin is 0.
    """

    reference = meaning(np.hypot)

    def decompose(self, x: TensorOp, y: TensorOp) -> TensorOp:
        """Factor the longer side out of the root; equal sides may be 0 or infinite."""
        x, y = absolute(x), absolute(y)
        longer = maximum(x, y)
        ratio = where(equal(x, y), 1, minimum(x, y) / longer)
        length = longer * sqrt(square(ratio) + 1)
        return where(IsinfOp(x) | IsinfOp(y), math.inf, length)

    def partials(self, delta: TensorOp, x: TensorOp, y: TensorOp) -> tuple[TensorOp, TensorOp]:
        """Multiply the adjoint by each side divided by the length."""
        length = where(equal(self, 0), 1, self)
        return delta * (x / length), delta * (y / length)


Sqrt, Exp, Log, Power = SqrtOp, ExpOp, LogOp, PowerOp
Sin, Cos, Tanh = SinOp, CosOp, TanhOp


def sqrt(x: TensorLike) -> TensorOp:
    """Return the square root.

    Examples
    --------
    >>> weft.jit(weft.sqrt)(np.array([4.0, 2.0]))
    array([2.    , 1.4142])
    """
    return build(SqrtOp, x)


def exp(x: TensorLike) -> TensorOp:
    """Return e to the power of x.

    Examples
    --------
    >>> weft.jit(weft.exp)(np.array([0.0, 1.0]))
    array([1.    , 2.7183])
    """
    return build(ExpOp, x)


def log(x: TensorLike) -> TensorOp:
    """Return the natural logarithm.

    Examples
    --------
    >>> weft.jit(weft.log)(np.array([1.0, 2.0]))
    array([0.    , 0.6931])
    """
    return build(LogOp, x)


def rsqrt(x: TensorLike) -> TensorOp:
    """Return 1 / sqrt(x); infinite at 0 and NaN below.

    Examples
    --------
    >>> weft.jit(weft.rsqrt)(np.array([4.0, 0.25]))
    array([0.5, 2. ])
    """
    return build(RsqrtOp, x)


def cbrt(x: TensorLike) -> TensorOp:
    """Return the cube root, negative below 0; its gradient at 0 is infinite.

    Examples
    --------
    >>> weft.jit(weft.cbrt)(np.array([8.0, -27.0]))
    array([ 2., -3.])
    """
    return build(CbrtOp, x)


def exp2(x: TensorLike) -> TensorOp:
    """Return 2 to the power of x.

    Examples
    --------
    >>> weft.jit(weft.exp2)(np.array([3.0, -1.0]))
    array([8. , 0.5])
    """
    return build(Exp2Op, x)


def expm1(x: TensorLike) -> TensorOp:
    """Return exp(x) - 1, accurate near 0.

    Examples
    --------
    >>> weft.jit(weft.expm1)(np.array([1e-12, 1.0]))
    array([1.0000e-12, 1.7183e+00])
    """
    return build(Expm1Op, x)


def log1p(x: TensorLike) -> TensorOp:
    """Return log(1 + x), accurate near 0; minus infinity at -1 and NaN below.

    Examples
    --------
    >>> weft.jit(weft.log1p)(np.array([1e-12, 1.0]))
    array([1.0000e-12, 6.9315e-01])
    """
    return build(Log1pOp, x)


def log2(x: TensorLike) -> TensorOp:
    """Return the logarithm to base 2.

    Examples
    --------
    >>> weft.jit(weft.log2)(np.array([8.0, 0.5]))
    array([ 3., -1.])
    """
    return build(Log2Op, x)


def log10(x: TensorLike) -> TensorOp:
    """Return the logarithm to base 10.

    Examples
    --------
    >>> weft.jit(weft.log10)(np.array([1000.0, 0.1]))
    array([ 3., -1.])
    """
    return build(Log10Op, x)


def logaddexp(x: TensorLike, y: TensorLike) -> TensorOp:
    """Return log(exp(x) + exp(y)), without overflow.

    Parameters
    ----------
    x, y
        The operands, broadcast against each other.

    Returns
    -------
    TensorOp
        The logarithms, in the promoted dtype of the operands. Integers give float32.

    Raises
    ------
    AxesError
        If the operands do not broadcast.
    DTypeError
        If the operands are complex.

    Examples
    --------
    >>> weft.jit(weft.logaddexp)(np.array([0.0, 1000.0]), np.array([0.0, 1000.0]))
    array([6.9315e-01, 1.0007e+03])
    """
    return build(LogaddexpOp, x, y)


def hypot(x: TensorLike, y: TensorLike) -> TensorOp:
    """Return sqrt(x² + y²), without overflow; the gradient at the origin is 0.

    Parameters
    ----------
    x, y
        The operands, broadcast against each other.

    Returns
    -------
    TensorOp
        The lengths, in the promoted dtype of the operands. Integers give float32.

    Raises
    ------
    AxesError
        If the operands do not broadcast.
    DTypeError
        If the operands are complex.

    Examples
    --------
    >>> weft.jit(weft.hypot)(np.array([3.0, 5.0]), np.array([4.0, 12.0]))
    array([ 5., 13.])
    """
    return build(HypotOp, x, y)


def lerp(x: TensorLike, y: TensorLike, weight: TensorLike) -> TensorOp:
    """Return the linear interpolation x + weight (y - x), exact at weights 0 and 1.

    Parameters
    ----------
    x, y
        What is returned at the weights 0 and 1.
    weight
        How far to go from x to y; outside of 0 to 1 this extrapolates.

    Returns
    -------
    TensorOp
        The values between, in the promoted dtype of the operands, which are broadcast. Integers
        give float32.

    Raises
    ------
    AxesError
        If the operands do not broadcast.
    DTypeError
        If the operands are complex.

    Examples
    --------
    >>> weft.jit(weft.lerp)(np.array([0.0, 10.0]), np.array([1.0, 20.0]), 0.25)
    array([ 0.25, 12.5 ])
    """
    x, y, weight = align(FloatOp, x, y, weight)
    step = y - x
    return where(less(weight, 0.5), x + weight * step, y - (1 - weight) * step)


def sin(x: TensorLike) -> TensorOp:
    """Return the sine of an angle in radians.

    Examples
    --------
    >>> weft.jit(weft.sin)(np.array([0.0, np.pi / 2]))
    array([0., 1.])
    """
    return build(SinOp, x)


def cos(x: TensorLike) -> TensorOp:
    """Return the cosine of an angle in radians.

    Examples
    --------
    >>> weft.jit(weft.cos)(np.array([0.0, np.pi]))
    array([ 1., -1.])
    """
    return build(CosOp, x)


def atan(x: TensorLike) -> TensorOp:
    """Return the arctangent of x, from -π/2 to π/2.

    Examples
    --------
    >>> weft.jit(weft.atan)(np.array([0.0, 1.0]))
    array([0.    , 0.7854])
    """
    return build(AtanOp, x)


def tanh(x: TensorLike) -> TensorOp:
    """Return the hyperbolic tangent.

    Examples
    --------
    >>> weft.jit(weft.tanh)(np.array([0.0, 1.0]))
    array([0.    , 0.7616])
    """
    return build(TanhOp, x)


def power(x: TensorLike, y: TensorLike) -> TensorOp:
    """Return x to the power of y.

    Parameters
    ----------
    x
        The base.
    y
        The exponent.

    Returns
    -------
    TensorOp
        The powers, in the promoted dtype of the operands, which are broadcast.

    Raises
    ------
    AxesError
        If the operands do not broadcast.

    Examples
    --------
    >>> weft.jit(weft.power)(np.array([2.0, 3.0]), 2)
    array([4., 9.])
    >>> weft.jit(weft.power)(4.0, np.array([0.5, -1.0]))
    array([2.  , 0.25])
    """
    return build(PowerOp, x, y)


pow = power

operators["power"] = power
