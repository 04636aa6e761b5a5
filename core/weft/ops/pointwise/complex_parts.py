"""Real and imaginary parts, conjugates, and construction of complex numbers.

Gradients: the adjoint of a holomorphic function is multiplied by the complex derivative, without
conjugation. The ops here and `absolute` are not holomorphic. The adjoint of z = x + iy for a real
result u is ∂u/∂x - i ∂u/∂y, as in JAX; its conjugate is the direction of steepest ascent.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from weft.errors import AxesError, DTypeError
from weft.ir import dtypes
from weft.ir.axes import Axes, Axis
from weft.ir.description import TensorDescription
from weft.ir.dtypes import Array, DType
from weft.ir.storage import as_op
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
from weft.ops.shape.movement import cast_axes, zeros_like
from weft.support.backports import override

__all__ = [
    "ComplexOp",
    "ConjOp",
    "ImagOp",
    "RealOp",
    "ViewAsComplexOp",
    "ViewAsRealOp",
    "complex",
    "conj",
    "imag",
    "real",
    "view_as_complex",
    "view_as_real",
]


class PartOp(ElementwiseOp):
    """The base of the real and imaginary part, which are views."""

    number: ClassVar[int]
    """Which part of each number it is."""

    def result_dtype(self, operand: DType) -> DType:
        """Return the float of half the size; raises DTypeError for real operands."""
        if operand.kind != "c":
            raise DTypeError(f"real and imaginary parts need a complex dtype, not {operand}")
        return real_dtype(operand)

    @override
    def view(self, operand: TensorDescription) -> TensorDescription:
        return operand.part(self.number)


class RealOp(PartOp):
    """The real part of complex numbers."""

    number = 0
    reference = meaning(np.real)

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Return the adjoint as the real part of a complex number."""
        return (complex(delta, 0),)


class ImagOp(PartOp):
    """The imaginary part of complex numbers."""

    number = 1
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


class ViewAsRealOp(CompositeOp):
    """The parts of complex numbers along a last axis of length 2, named `part`: a view."""

    def infer(self) -> tuple[Axes, DType]:
        """Add an axis; raises DTypeError for real operands."""
        (z,) = self.args
        if z.dtype.kind != "c":
            raise DTypeError(f"only complex numbers have two parts, not {z.dtype}")
        part = Axis(2, "part" if z.axes.is_named else None)
        return Axes((*z.axes, part)), real_dtype(z.dtype)

    @override
    def view(self, operand: TensorDescription) -> TensorDescription:
        return operand.pairs()

    @override
    def reference(self, z: Array) -> Any:
        return np.stack([np.real(z), np.imag(z)], axis=-1)

    def decompose(self, z: TensorOp) -> TensorOp:
        """Stack the parts."""
        return operators["stack"]([RealOp(z), ImagOp(z)], self.axes[-1:], z.rank)

    def generate_adjoints(self, delta: TensorOp, z: TensorOp) -> tuple[TensorOp]:
        """Return the complex adjoint of both parts."""
        return (conj(ViewAsComplexOp(delta)),)


class ViewAsComplexOp(CompositeOp):
    """Complex numbers from pairs along the last axis, of length 2: a view where strides allow."""

    def infer(self) -> tuple[Axes, DType]:
        """Drop the axis; raises AxesError for another length, DTypeError for other dtypes."""
        (pairs,) = self.args
        if not pairs.rank or pairs.axes[-1].length != 2:
            raise AxesError(f"{pairs.axes} has no last axis of two parts")
        if pairs.dtype not in (dtypes.float32, dtypes.float64):
            raise DTypeError(f"parts of complex numbers are float32 or float64, not {pairs.dtype}")
        return pairs.axes[:-1], np.dtype(f"c{2 * pairs.dtype.itemsize}")

    @override
    def view(self, operand: TensorDescription) -> TensorDescription | None:
        return operand.paired()

    def reference(self, pairs: Array) -> Any:
        """Assign both parts."""
        result = np.empty(pairs.shape[:-1], np.result_type(pairs, np.complex64))
        result.real, result.imag = pairs[..., 0], pairs[..., 1]
        return result

    @override
    def decompose(self, pairs: TensorOp) -> TensorOp:
        return ComplexOp(pairs[..., 0], pairs[..., 1])

    def generate_adjoints(self, delta: TensorOp, pairs: TensorOp) -> tuple[TensorOp]:
        """Return the parts of the adjoint, which is a conjugate."""
        return (cast_axes(ViewAsRealOp(conj(delta)), pairs.axes),)


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
    >>> weft.jit(weft.real)(np.array([3 + 4j]))
    array([3.])
    """
    (x,) = align(ElementwiseOp, x)
    return RealOp(x) if x.dtype.kind == "c" else x


def imag(x: TensorLike) -> TensorOp:
    """Return the imaginary part of x; zeros for real numbers.

    Examples
    --------
    >>> weft.jit(weft.imag)(np.array([3 + 4j]))
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
    >>> weft.jit(weft.complex)(np.array([3.0]), np.array([4.0]))
    array([3.+4.j])
    """
    return build(ComplexOp, real, imag)


def conj(x: TensorLike) -> TensorOp:
    """Return the complex conjugate of x; real numbers are unchanged.

    Examples
    --------
    >>> weft.jit(weft.conj)(np.array([3 + 4j]))
    array([3.-4.j])
    """
    (x,) = align(ArithmeticOp, x)
    return ConjOp(x) if x.dtype.kind == "c" else x


def view_as_real(x: TensorLike) -> TensorOp:
    """Return the parts of complex numbers along a new last axis of length 2.

    It is a view: no element is copied. Beside named axes it is named ``part``.

    Raises
    ------
    DTypeError
        If x is real.

    Examples
    --------
    >>> weft.jit(weft.view_as_real)(np.array([1 + 2j, 3j]))
    array([[1., 2.],
           [0., 3.]])
    """
    return ViewAsRealOp(as_op(x))


def view_as_complex(x: TensorLike) -> TensorOp:
    """Return the complex numbers whose parts are along the last axis, of length 2.

    It is a view where the pairs are contiguous.

    Raises
    ------
    AxesError
        If the last axis has another length than 2.
    DTypeError
        If x is neither float32 nor float64.

    Examples
    --------
    >>> weft.jit(weft.view_as_complex)(np.array([[1.0, 2.0], [0.0, 3.0]]))
    array([1.+2.j, 0.+3.j])
    """
    return ViewAsComplexOp(as_op(x))


operators["real"] = real
operators["conj"] = conj
