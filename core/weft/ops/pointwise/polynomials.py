"""Polynomials with constant coefficients, for approximations."""

from __future__ import annotations

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
