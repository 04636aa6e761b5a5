"""Bitwise logic, shifts and bitcasts of integers and bools."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.errors import DTypeError
from weft.ir import dtypes
from weft.ir.axes import Axes, Axis
from weft.ir.description import TensorDescription
from weft.ir.dtypes import Array, DType, DTypeLike
from weft.ir.op import explain
from weft.ir.storage import as_op
from weft.ir.tensor import CompositeOp, TensorLike, TensorOp, operators
from weft.ops.pointwise.elementwise import ElementwiseOp, build, meaning
from weft.support.backports import override

__all__ = [
    "BitcastOp",
    "BitwiseAndOp",
    "BitwiseNotOp",
    "BitwiseOp",
    "BitwiseOrOp",
    "BitwiseXorOp",
    "ShiftLeftOp",
    "ShiftOp",
    "ShiftRightOp",
    "bitcast",
    "bitwise_and",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_not",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "shift_left",
    "shift_right",
]


def _bits(dtype: DType) -> DType:
    if not (dtypes.is_bool(dtype) or dtypes.is_integer(dtype)):
        raise DTypeError(
            f"bitwise ops take only bool and integers, not {dtype}: compare first, as in "
            "(x > 0) & (y > 0)"
        )
    return dtype


def _integer(dtype: DType) -> DType:
    if not dtypes.is_integer(dtype):
        raise DTypeError(f"shifts take integers, not {dtype}")
    return dtype


class BitwiseOp(ElementwiseOp):
    """Bitwise ops on integers or bools; they have no gradient."""

    operand_dtype = staticmethod(_bits)

    @override
    def partials(self, delta: TensorOp, *args: TensorOp) -> list[None]:
        return [None] * len(args)


class BitwiseAndOp(BitwiseOp):
    """The bitwise AND."""

    reference = meaning(np.bitwise_and)


class BitwiseOrOp(BitwiseOp):
    """The bitwise OR."""

    reference = meaning(np.bitwise_or)


class BitwiseXorOp(BitwiseOp):
    """The bitwise XOR."""

    reference = meaning(np.bitwise_xor)


class BitwiseNotOp(BitwiseOp, CompositeOp):
    """The bitwise NOT, which reverses the order of values."""

    reference = meaning(np.bitwise_not)

    @override
    def decompose(self, x: TensorOp) -> TensorOp:
        every = np.bitwise_not(np.zeros((), x.dtype))
        return BitwiseXorOp(x, as_op(every))


class ShiftOp(BitwiseOp):
    """Shifts of integers; a count below 0 or beyond the width shifts all bits out."""

    operand_dtype = staticmethod(_integer)


class ShiftLeftOp(ShiftOp):
    """The left shift, filled with zeros."""

    reference = meaning(np.left_shift)


class ShiftRightOp(ShiftOp):
    """The right shift: arithmetic for signed integers, logical for unsigned ones."""

    reference = meaning(np.right_shift)


class BitcastOp(TensorOp):
    """The bits reinterpreted as another dtype: a view.

    Elements of half the size are a last axis of length 2, the low bits first; an operand with such
    an axis gives elements of twice the size.

    Attributes
    ----------
    target
        The name of the result's dtype.
    """

    target: str

    def infer(self) -> tuple[Axes, DType]:
        """Check that sizes agree; bool is refused, because most bit patterns are no bool."""
        (x,) = self.args
        target = dtypes.as_dtype(self.target)
        own, size = x.dtype.itemsize, target.itemsize
        axes: Axes = x.axes
        if own == 2 * size:
            axes = Axes((*axes, Axis(2, "word" if axes.is_named else None)))
        elif 2 * own == size and x.rank and axes[-1].length == 2:
            axes = Axes(axes[:-1])
        elif own != size:
            raise DTypeError(f"the bits of {x.dtype} cannot be reinterpreted as {target}")
        if dtypes.bool_ in (x.dtype, target):
            raise DTypeError(f"the bits of {x.dtype} cannot be reinterpreted as {target}")
        return axes, target

    @property
    def takes_contiguous(self) -> bool:  # type: ignore[override]
        """Whether halves are joined, which must be in place."""
        return bool(self.args[0].dtype.itemsize < self.dtype.itemsize)

    def reference(self, x: Array) -> Any:
        """View the bits of the declared dtype, even if the reference computes in wider floats."""
        bits = np.array(x, self.args[0].dtype, order="C", ndmin=1)
        return bits.view(dtypes.as_dtype(self.target)).astype(self.dtype).reshape(self.axes.shape)

    @override
    def view(self, operand: TensorDescription) -> TensorDescription | None:
        return operand.bitcast(dtypes.as_dtype(self.target))

    @override
    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[None]:
        return (None,)


def bitwise_and(x: TensorLike, y: TensorLike) -> TensorOp:
    """Return the bitwise AND; of bools, the logical one.

    Parameters
    ----------
    x, y
        The operands, broadcast against each other.

    Returns
    -------
    TensorOp
        The combined bits, in the promoted dtype of the operands.

    Raises
    ------
    AxesError
        If the operands do not broadcast.
    DTypeError
        If the operands are not integers or bools.

    Examples
    --------
    >>> weft.jit(weft.bitwise_and)(np.array([12, 7]), np.array([10, 1]))
    array([8, 1])
    """
    return build(BitwiseAndOp, x, y)


def bitwise_or(x: TensorLike, y: TensorLike) -> TensorOp:
    """Return the bitwise OR; of bools, the logical one.

    Parameters
    ----------
    x, y
        The operands, broadcast against each other.

    Returns
    -------
    TensorOp
        The combined bits, in the promoted dtype of the operands.

    Raises
    ------
    AxesError
        If the operands do not broadcast.
    DTypeError
        If the operands are not integers or bools.

    Examples
    --------
    >>> weft.jit(weft.bitwise_or)(np.array([12, 7]), np.array([10, 1]))
    array([14,  7])
    """
    return build(BitwiseOrOp, x, y)


def bitwise_xor(x: TensorLike, y: TensorLike) -> TensorOp:
    """Return the bitwise XOR; of bools, the logical one.

    Parameters
    ----------
    x, y
        The operands, broadcast against each other.

    Returns
    -------
    TensorOp
        The combined bits, in the promoted dtype of the operands.

    Raises
    ------
    AxesError
        If the operands do not broadcast.
    DTypeError
        If the operands are not integers or bools.

    Examples
    --------
    >>> weft.jit(weft.bitwise_xor)(np.array([12, 7]), np.array([10, 1]))
    array([6, 6])
    """
    return build(BitwiseXorOp, x, y)


def bitwise_not(x: TensorLike) -> TensorOp:
    """Return the bitwise NOT; of bools, the logical one.

    Examples
    --------
    >>> weft.jit(weft.bitwise_not)(np.array([0, 5]))
    array([-1, -6])
    >>> weft.jit(weft.bitwise_not)(np.array([True, False]))
    array([False,  True])
    """
    return build(BitwiseNotOp, x)


def shift_left(x: TensorLike, count: TensorLike) -> TensorOp:
    """Return x shifted left by a number of bits.

    Parameters
    ----------
    x
        The operand.
    count
        The numbers of bits; one outside of the width of x gives 0.

    Returns
    -------
    TensorOp
        The shifted integers, in the promoted dtype of the operands, which are broadcast.

    Raises
    ------
    AxesError
        If the operands do not broadcast.
    DTypeError
        If the operands are not integers.

    Examples
    --------
    >>> weft.jit(weft.shift_left)(np.array([1, 3]), 2)
    array([ 4, 12])
    """
    return build(ShiftLeftOp, x, count)


def shift_right(x: TensorLike, count: TensorLike) -> TensorOp:
    """Return x shifted right by a number of bits, filled with the sign.

    Parameters
    ----------
    x
        The operand.
    count
        The numbers of bits; one outside of the width of x leaves the sign alone: 0 or -1.

    Returns
    -------
    TensorOp
        The shifted integers, in the promoted dtype of the operands, which are broadcast.

    Raises
    ------
    AxesError
        If the operands do not broadcast.
    DTypeError
        If the operands are not integers.

    Examples
    --------
    >>> weft.jit(weft.shift_right)(np.array([12, -12]), 2)
    array([ 3, -3])
    """
    return build(ShiftRightOp, x, count)


def bitcast(x: TensorLike, dtype: DTypeLike) -> TensorOp:
    """Return the bits reinterpreted as a dtype of the same size.

    Parameters
    ----------
    x
        The operand.
    dtype
        The dtype of the result.

    Returns
    -------
    TensorOp
        A tensor of this dtype, of the same shape. It has no gradient.

    Raises
    ------
    DTypeError
        If the dtype has another size.

    Examples
    --------
    >>> weft.jit(lambda x: weft.bitcast(x, "int32"))(np.array([1.0], "float32"))
    array([1065353216], dtype=int32)
    """
    op, target = as_op(x), dtypes.as_dtype(dtype)
    if op.dtype.itemsize != target.itemsize:
        problem = f"the bits of {op.dtype} cannot be reinterpreted as {target}"
        raise DTypeError(explain("bitcast", problem, (op,)))
    return op if op.dtype == target else BitcastOp(op, target=target.name)


bitwise_invert, bitwise_left_shift, bitwise_right_shift = bitwise_not, shift_left, shift_right

operators["and"] = bitwise_and
operators["or"] = bitwise_or
operators["xor"] = bitwise_xor
operators["invert"] = bitwise_not
operators["lshift"] = shift_left
operators["rshift"] = shift_right
