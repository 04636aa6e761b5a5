"""Real and imaginary parts, conjugates, and construction of complex numbers.

Gradients: a function that is differentiable in the complex sense gets the product with its complex
derivative, without conjugation. For the ops here and for `absolute`, whose complex derivative does
not exist, the adjoint of z = x + iy for a real result u is ∂u/∂x - i ∂u/∂y, as in JAX; following
its conjugate, u grows fastest.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.errors import DTypeError
from weft.ir import dtypes
from weft.ir.dtypes import DType
from weft.ir.tensor import CompositeOp, TensorOp, operators
from weft.ops.elementwise import (
    ArithmeticOp,
    ElementwiseOp,
    FloatOp,
    align,
    build,
    meaning,
    real_dtype,
)
from weft.ops.movement import zeros_like

__all__ = [
    "ComplexOp",
    "ConjOp",
    "ImagOp",
    "RealOp",
    "complex",
    "conj",
    "imag",
    "real",
]


class PartOp(ElementwiseOp):
    """The base of ops that take one part of complex numbers."""

    def result_dtype(self, operand: DType) -> DType:
        """Be the float of half the size; raises DTypeError for real operands."""
        if operand.kind != "c":
            raise DTypeError(f"{operand} numbers have no real and imaginary parts")
        return real_dtype(operand)


class RealOp(PartOp):
    """The real part of complex numbers."""

    reference = meaning(np.real)

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """The adjoint as a real part."""
        return (complex(delta, 0),)


class ImagOp(PartOp):
    """The imaginary part of complex numbers."""

    reference = meaning(np.imag)

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """The negated adjoint as an imaginary part."""
        return (complex(0, -delta),)


class ComplexOp(FloatOp):
    """The complex numbers of two reals; of float32 complex64, of float64 complex128."""

    @staticmethod
    def operand_dtype(dtype: DType) -> DType:
        """Take what is no float64 as float32."""
        FloatOp.operand_dtype(dtype)
        return dtype if dtype == dtypes.float64 else dtypes.float32

    def result_dtype(self, operand: DType) -> DType:
        """Be complex, of twice the size."""
        return dtypes.complex128 if operand == dtypes.float64 else dtypes.complex64

    def reference(self, x: Any, y: Any) -> Any:
        """Set both parts; a sum would turn an infinite imaginary part into NaN."""
        result = np.empty(self.axes.shape, self.dtype)
        result.real, result.imag = x, y
        return result

    def partials(self, delta: TensorOp, x: TensorOp, y: TensorOp) -> tuple[TensorOp, TensorOp]:
        """The real part, and the imaginary part negated."""
        return RealOp(delta), -ImagOp(delta)


class ConjOp(ArithmeticOp, CompositeOp):
    """The number with its imaginary part negated."""

    reference = meaning(np.conjugate)

    def decompose(self, x: TensorOp) -> TensorOp:
        """Negate the imaginary part; a real number is its own conjugate."""
        return ComplexOp(RealOp(x), -ImagOp(x)) if x.dtype.kind == "c" else x

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """The conjugate of the adjoint."""
        return (conj(delta),)


def real(x: Any) -> TensorOp:
    """Return the real part of x; a real number is its own."""
    (x,) = align(ElementwiseOp, x)
    return RealOp(x) if x.dtype.kind == "c" else x


def imag(x: Any) -> TensorOp:
    """Return the imaginary part of x; zeros for real numbers."""
    (x,) = align(ElementwiseOp, x)
    return ImagOp(x) if x.dtype.kind == "c" else zeros_like(x)


def complex(real: Any, imag: Any) -> TensorOp:
    """Return the complex numbers of real and imaginary parts.

    Of float64 they are complex128, of anything else complex64. Raises DTypeError for complex parts.
    """
    return build(ComplexOp, real, imag)


def conj(x: Any) -> TensorOp:
    """Return x with its imaginary part negated; a real number is its own conjugate."""
    (x,) = align(ArithmeticOp, x)
    return ConjOp(x) if x.dtype.kind == "c" else x


operators["real"] = real
operators["conj"] = conj
