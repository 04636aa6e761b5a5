"""Functions of real numbers: roots, powers, exponentials, logarithms, trigonometry."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import dtypes
from weft.ops.comparison import equal, where
from weft.ops.elementwise import ArithmeticOp, InexactOp, build, meaning, square
from weft.tensor import TensorOp, operators

__all__ = [
    "Cos",
    "CosOp",
    "Exp",
    "ExpOp",
    "Log",
    "LogOp",
    "Power",
    "PowerOp",
    "Sin",
    "SinOp",
    "Sqrt",
    "SqrtOp",
    "Tanh",
    "TanhOp",
    "cos",
    "exp",
    "log",
    "power",
    "sin",
    "sqrt",
    "tanh",
]


class SqrtOp(InexactOp):
    """The square root; NaN below 0, gradient infinite at 0."""

    reference = meaning(np.sqrt)

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """1 / (2 sqrt x)."""
        return (delta * 0.5 / self,)


class ExpOp(InexactOp):
    """The exponential function."""

    reference = meaning(np.exp)

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Exp x."""
        return (delta * self,)


class LogOp(InexactOp):
    """The natural logarithm; minus infinity at 0 and NaN below."""

    reference = meaning(np.log)

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """1 / x."""
        return (delta / x,)


class SinOp(InexactOp):
    """The sine of an angle in radians."""

    reference = meaning(np.sin)

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Cos x."""
        return (delta * cos(x),)


class CosOp(InexactOp):
    """The cosine of an angle in radians."""

    reference = meaning(np.cos)

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """-sin x."""
        return (-(delta * sin(x)),)


class TanhOp(InexactOp):
    """The hyperbolic tangent."""

    reference = meaning(np.tanh)

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """1 - tanh² x."""
        return (delta * (1 - square(self)),)


class PowerOp(ArithmeticOp):
    """The first operand to the power of the second; NaN for a negative base and a fraction.

    An integer to a negative integer power gives 0, as the quotient rounded towards zero would,
    except for the bases 1 and -1.
    """

    def reference(self, x: Any, y: Any) -> Any:
        """Raise to the power."""
        if not dtypes.is_integer(self.dtype):
            return np.power(x, y)
        negative = np.less(y, 0)
        root = np.where(negative & (np.abs(x) != 1), 0, x)
        result = np.power(root, np.abs(y))
        return result.astype(self.dtype)

    def partials(self, delta: TensorOp, x: TensorOp, y: TensorOp) -> tuple[Any, Any]:
        """Y x^(y-1), and x^y log x, which is taken as 0 where x is 0."""
        # Where y is 0 the factor y makes it 0; x ** -1 must not turn that into NaN at x = 0.
        exponent = where(equal(y, 0), 1, y)
        base = delta * y * power(x, exponent - 1)
        if y.is_constant:
            return base, None
        safe = where(equal(x, 0), 1, x)
        return base, delta * self * log(safe)


Sqrt, Exp, Log, Power = SqrtOp, ExpOp, LogOp, PowerOp
Sin, Cos, Tanh = SinOp, CosOp, TanhOp


def sqrt(x: Any) -> TensorOp:
    """Return the square root."""
    return build(SqrtOp, x)


def exp(x: Any) -> TensorOp:
    """Return e to the power of x."""
    return build(ExpOp, x)


def log(x: Any) -> TensorOp:
    """Return the natural logarithm."""
    return build(LogOp, x)


def sin(x: Any) -> TensorOp:
    """Return the sine."""
    return build(SinOp, x)


def cos(x: Any) -> TensorOp:
    """Return the cosine."""
    return build(CosOp, x)


def tanh(x: Any) -> TensorOp:
    """Return the hyperbolic tangent."""
    return build(TanhOp, x)


def power(x: Any, y: Any) -> TensorOp:
    """Return x to the power of y."""
    return build(PowerOp, x, y)


operators["power"] = power
