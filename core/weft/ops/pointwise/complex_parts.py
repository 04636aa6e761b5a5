"""Real and imaginary parts, conjugates, and construction of complex numbers.

Gradients: the adjoint of a holomorphic function is multiplied by the complex derivative, without
conjugation. The ops here and `absolute` are not holomorphic. The adjoint of z = x + iy for a real
result u is ∂u/∂x - i ∂u/∂y, as in JAX; its conjugate is the direction of steepest ascent.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.errors import DTypeError
from weft.ir import dtypes
from weft.ir.dtypes import Array, DType
from weft.ir.tensor import CompositeOp, TensorLike, TensorOp, operators
from weft.ops.pointwise.elementwise import (
    ArithmeticOp,
    ElementwiseOp,
    FloatOp,
    align,
    build,
    meaning,
    real_dtype,
)
from weft.ops.shape.movement import zeros_like
from weft.support.backports import override

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
    """The base of the real and imaginary part."""

    def result_dtype(self, operand: DType) -> DType:
        """Return the float of half the size; raises DTypeError for real operands."""
        if operand.kind != "c":
            raise DTypeError(f"real and imaginary parts need a complex dtype, not {operand}")
        return real_dtype(operand)


class RealOp(PartOp):
    """The real part of complex numbers."""

    reference = meaning(np.real)

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Return the adjoint as the real part of a complex number."""
        return (complex(delta, 0),)


class ImagOp(PartOp):
    """The imaginary part of complex numbers."""

    reference = meaning(np.imag)

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Return the negated adjoint as the imaginary part of a complex number."""
        return (complex(0, -delta),)


class ComplexOp(FloatOp):
    """Complex numbers from two real operands: complex64 of float32, complex128 of float64."""

    @staticmethod
    def operand_dtype(dtype: DType) -> DType:
        """Return float64 for float64, else float32."""
        FloatOp.operand_dtype(dtype)
        return dtype if dtype == dtypes.float64 else dtypes.float32

    def result_dtype(self, operand: DType) -> DType:
        """Return the complex dtype of twice the size."""
        return dtypes.complex128 if operand == dtypes.float64 else dtypes.complex64

    def reference(self, x: Array, y: Array) -> Any:
        """Assign both parts; a sum would turn an infinite imaginary part into NaN."""
        result = np.empty(self.axes.shape, self.dtype)
        result.real, result.imag = x, y
        return result

    def partials(self, delta: TensorOp, x: TensorOp, y: TensorOp) -> tuple[TensorOp, TensorOp]:
        """Return the real part of the adjoint, and its negated imaginary part."""
        return RealOp(delta), -ImagOp(delta)


class ConjOp(ArithmeticOp, CompositeOp):
    """The complex conjugate."""

    reference = meaning(np.conjugate)

    def decompose(self, x: TensorOp) -> TensorOp:
        """Negate the imaginary part; a real number is its own conjugate."""
        return ComplexOp(RealOp(x), -ImagOp(x)) if x.dtype.kind == "c" else x

    @override
    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        return (conj(delta),)


def real(x: TensorLike) -> TensorOp:
    """Return the real part of x; real numbers are unchanged.

    Examples
    --------
    >>> weft.jit(weft.real, backend="numpy")(np.array([3 + 4j]))
    array([3.])
    """
    (x,) = align(ElementwiseOp, x)
    return RealOp(x) if x.dtype.kind == "c" else x


def imag(x: TensorLike) -> TensorOp:
    """Return the imaginary part of x; zeros for real numbers.

    Examples
    --------
    >>> weft.jit(weft.imag, backend="numpy")(np.array([3 + 4j]))
    array([4.])
    """
    (x,) = align(ElementwiseOp, x)
    return ImagOp(x) if x.dtype.kind == "c" else zeros_like(x)


def complex(real: TensorLike, imag: TensorLike) -> TensorOp:
    """Return complex numbers from real and imaginary parts.

    Parameters
    ----------
    real, imag
        The parts, broadcast against each other.

    Returns
    -------
    TensorOp
        The numbers, as complex128 if the promoted dtype of the parts is float64, else as complex64.

    Raises
    ------
    AxesError
        If the operands do not broadcast.
    DTypeError
        If a part is complex.

    Examples
    --------
    >>> weft.jit(weft.complex, backend="numpy")(np.array([3.0]), np.array([4.0]))
    array([3.+4.j])
    """
    return build(ComplexOp, real, imag)


def conj(x: TensorLike) -> TensorOp:
    """Return the complex conjugate of x; real numbers are unchanged.

    Examples
    --------
    >>> weft.jit(weft.conj, backend="numpy")(np.array([3 + 4j]))
    array([3.-4.j])
    """
    (x,) = align(ArithmeticOp, x)
    return ConjOp(x) if x.dtype.kind == "c" else x


operators["real"] = real
operators["conj"] = conj
