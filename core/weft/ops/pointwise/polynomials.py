"""Polynomials with constant coefficients, for approximations."""

from __future__ import annotations

from dataclasses import dataclass

from weft.ir import dtypes
from weft.ir.tensor import TensorOp

Coefficients = tuple[float, ...]


def polynomial(x: TensorOp, coefficients: Coefficients) -> TensorOp:
    """Evaluate a polynomial by Horner's rule, with the coefficient of the highest power first."""
    highest, second, *others = coefficients
    result = x * highest + second
    for coefficient in others:
        result = result * x + coefficient
    return result


def quotient(x: TensorOp, above: Coefficients, below: Coefficients) -> TensorOp:
    """Return a rational function: one polynomial divided by another."""
    return polynomial(x, above) / polynomial(x, below)


@dataclass(frozen=True)
class Approximation:
    """A polynomial or a rational function, fitted for each precision.

    Attributes
    ----------
    double, single
        The coefficients for float64 and for float32: of the numerator and, if there is one, of the
        denominator.
    """

    double: tuple[Coefficients, ...]
    single: tuple[Coefficients, ...]

    def __call__(self, x: TensorOp) -> TensorOp:
        """Evaluate the approximation for the precision of x."""
        above, *below = self.double if x.dtype == dtypes.float64 else self.single
        return quotient(x, above, *below) if below else polynomial(x, above)
