"""Polynomials: what they mean, their gradient, and how they are made of other ops."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

import weft
from weft import CompositeOp, TensorOp
from weft.errors import ArgumentError, DTypeError
from weft.ops import ElementwiseOp


class PolynomialOp(ElementwiseOp, CompositeOp):
    """The sum of coefficients times powers of the operand.

    Attributes
    ----------
    coefficients
        The factors of the powers 0, 1, 2 and so on; at least one.
    """

    coefficients: tuple[float, ...]

    def result_dtype(self, operand: Any) -> Any:
        """Keep a float; raises DTypeError for anything else."""
        if not weft.dtypes.is_inexact(operand):
            raise DTypeError(f"polynomials are of floats, not of {operand}")
        return operand

    def may_overwrite(self, index: int) -> bool:
        """No: the operand is read to the end, while the result is being made."""
        return False

    def reference(self, x: Any) -> Any:
        """Multiply and add in turn, from the highest power down (Horner's scheme)."""
        highest, *rest = [np.asarray(factor, x.dtype) for factor in reversed(self.coefficients)]
        value = np.full_like(x, highest)
        for factor in rest:
            value = value * x + factor
        return value

    def decompose(self, x: TensorOp) -> TensorOp:
        """Do the same with ops."""
        highest, *rest = reversed(self.coefficients)
        value: TensorOp = weft.broadcast(weft.constant(highest, dtype=x.dtype), x.axes)
        for factor in rest:
            value = value * x + factor
        return value

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Multiply by the derivative, which is a polynomial again."""
        slope = tuple(power * factor for power, factor in enumerate(self.coefficients))[1:]
        return (delta * PolynomialOp(x, coefficients=slope or (0.0,)),)


def polynomial(x: Any, coefficients: Iterable[float]) -> TensorOp:
    """Return ``c[0] + c[1] x + c[2] x² + ...``; integers count as float32."""
    x, factors = weft.as_op(x), tuple(map(float, coefficients))
    if not factors:
        raise ArgumentError("a polynomial has at least one coefficient")
    if not weft.dtypes.is_inexact(x.dtype):
        x = weft.cast(x, weft.float32)
    return PolynomialOp(x, coefficients=factors)
