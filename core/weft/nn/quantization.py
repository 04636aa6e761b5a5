"""Matrices of few bits: codes in groups along the rows, each with a scale and a zero point."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import ops
from weft.errors import ArgumentError, AxesError, DTypeError
from weft.ir import dtypes
from weft.ir.axes import Axes, make_axes
from weft.ir.dtypes import Array, DType, accumulator_dtype
from weft.ir.op import explain
from weft.ir.storage import as_op, constant, owning_constant
from weft.ir.tensor import CompositeOp, TensorLike, TensorOp
from weft.ops.arguments import checked_integer
from weft.ops.products.linalg import require_matrices
from weft.support.backports import override

__all__ = ["DequantizeOp", "dequantize", "quantize"]

WORD = 32
"""The bits of a word, which holds the codes of neighbors in a column."""

BITS = (2, 4, 8)
"""The numbers of bits that a code may have."""


class DequantizeOp(CompositeOp):
    """A matrix from its codes: ``(code - zero) * scale``.

    The operands are the words of codes (..., terms * bits / 32, columns), scales and zero points
    (..., groups, columns), the last of which are uint8 or have the dtype of the scales. A word
    holds codes of consecutive terms, the first of them in its lowest bits (the layout of E. Frantar
    and others: GPTQ, 2022).

    Attributes
    ----------
    bits
        The bits of a code.
    """

    bits: int

    @override
    def infer(self) -> tuple[Axes, DType]:
        codes, scales, zeros = self.args
        if codes.dtype != dtypes.uint32 or not dtypes.is_float(scales.dtype):
            raise DTypeError(
                f"codes are words of uint32 and scales are floats, not {codes.dtype} and "
                f"{scales.dtype}"
            )
        if zeros.dtype not in (dtypes.uint8, scales.dtype):
            raise DTypeError(
                f"zero points are uint8 or, as the scales, {scales.dtype}, not {zeros.dtype}"
            )
        if codes.rank < 2 or scales.axes.lengths != zeros.axes.lengths:
            raise AxesError(
                "codes have two axes or more, scales and zero points the same, not "
                f"{codes.axes}, {scales.axes}, {zeros.axes}"
            )
        *batch, words, columns = codes.axes.lengths
        if any(not isinstance(n, int) for n in (words, scales.axes[-2].length)):
            raise AxesError(f"the rows of {codes.axes} and {scales.axes} must be known now")
        groups, terms = scales.axes[-2].length, words * self.codes_of_word
        if scales.axes.lengths != (*batch, groups, columns) or not groups or terms % groups:
            raise AxesError(
                f"scales {scales.axes} do not fit codes {codes.axes} of {self.bits} bits: these "
                f"have {terms} terms, which are divided into equal groups"
            )
        if terms // groups % self.codes_of_word:
            raise AxesError(
                f"a group has {terms // groups} terms: it must be a multiple of the "
                f"{self.codes_of_word} codes of a word"
            )
        return make_axes((*batch, terms, columns)), scales.dtype

    @property
    def codes_of_word(self) -> int:
        """The codes of a word."""
        return WORD // self.bits

    @property
    def group_size(self) -> int:
        """The terms of a group."""
        return int(self.axes[-2].length // self.args[1].axes[-2].length)

    @override
    def reference(self, codes: Array, scales: Array, zeros: Array) -> Any:
        wide = accumulator_dtype(self.dtype)
        factors, origins = (np.asarray(x, wide) for x in (scales, zeros))
        return matrix_of(codes, factors, origins, self.bits).astype(self.dtype)

    @override
    def decompose(self, codes: TensorOp, scales: TensorOp, zeros: TensorOp) -> TensorOp:
        """Shift and mask the words; of constants, compute the matrix once for all calls."""
        sources = [x.args[0] if isinstance(x, ops.BroadcastOp) else x for x in self.args]
        if all(x.is_constant for x in sources):
            shapes = (x.axes.shape for x in self.args)
            values = map(np.broadcast_to, (x.const for x in sources), shapes)
            return owning_constant(self.reference(*values), self.axes)
        wide = accumulator_dtype(self.dtype)
        *batch, groups, columns = scales.axes.lengths
        shifted = ops.shift_right(ops.unsqueeze(codes, -2), _shifts(self.bits))
        numbers = ops.bitwise_and(shifted, np.uint32(2**self.bits - 1))
        numbers = ops.cast_axes(numbers, (*batch, groups, self.group_size, columns))
        origin, factor = (ops.unsqueeze(ops.cast(x, wide), -2) for x in (zeros, scales))
        return ops.cast_axes(
            ops.cast((ops.cast(numbers, wide) - origin) * factor, self.dtype), self.axes
        )


def matrix_of(codes: Array, scales: Array, zeros: Array, bits: int) -> Array:
    """Return the matrix of words, scales and zero points, in the dtype of the scales."""
    *batch, words, columns = codes.shape
    shifts = np.arange(0, WORD, bits, dtype=np.uint32)[:, None]
    numbers = (codes[..., None, :] >> shifts) & np.uint32(2**bits - 1)
    terms, groups = words * WORD // bits, scales.shape[-2]
    grouped = numbers.reshape(*batch, groups, terms // groups, columns).astype(scales.dtype)
    centered = grouped - zeros[..., None, :].astype(scales.dtype)
    found: Array = (centered * scales[..., None, :]).reshape(*batch, terms, columns)
    return found


def words_of(codes: Array, bits: int) -> Array:
    """Return codes (..., terms, columns), whole words of them, as words."""
    *batch, terms, columns = codes.shape
    split = codes.astype(np.uint32).reshape(*batch, terms * bits // WORD, WORD // bits, columns)
    shifts = np.arange(0, WORD, bits, dtype=np.uint32)[:, None]
    found: Array = np.bitwise_or.reduce(split << shifts, axis=-2)
    return found


def _shifts(bits: int) -> TensorOp:
    """Return the places of the codes in a word, as a column."""
    return constant(np.arange(0, WORD, bits, dtype=np.uint32)[:, None])


def _checked_bits(function: str, bits: Any, *operands: TensorOp) -> int:
    found = checked_integer(function, "bits", bits)
    if found not in BITS:
        raise ArgumentError(explain(function, f"codes have 2, 4 or 8 bits, not {found}", operands))
    return found


def quantize(
    x: TensorLike, bits: int = 4, group_size: int = 32
) -> tuple[TensorOp, TensorOp, TensorOp]:
    """Return a matrix as codes of few bits, with a scale and a zero point for each group of terms.

    A group is a part of a column. Its scale is its range, widened to contain 0, divided by
    ``2 ** bits - 1``, so that a code is ``round(x / scale) + zero``, and 0 is exact. `dequantize`
    is the inverse, up to half a scale. Weights are quantized once, and kept as constants or states.

    Parameters
    ----------
    x
        Floats (..., terms, columns): the second operand of a product, which sums over the terms.
    bits
        The bits of a code: 2, 4 or 8.
    group_size
        The terms of a group, a divisor of their number, and a multiple of ``32 / bits``.

    Returns
    -------
    tuple of TensorOp
        The codes, as words of uint32 (..., terms * bits / 32, columns) with the first term in the
        lowest bits; the scales (..., terms / group_size, columns) in the dtype of x; and the zero
        points, uint8 of the same shape.

    Raises
    ------
    DTypeError
        If x has no floats.
    AxesError
        If it has fewer than two axes, or named ones, or if groups do not divide the terms.
    ArgumentError
        If the bits are others, or a group does not consist of whole words.

    Examples
    --------
    >>> w = np.array([[0.0], [-0.5], [0.25], [1.0], [0.0], [0.5], [0.75], [-0.25]])
    >>> codes, scales, zeros = weft.jit(lambda w: weft.quantize(w, group_size=8))(w)
    >>> f"{codes[0, 0]:08x}", scales, zeros
    ('3da5f705', array([[0.1]]), array([[5]], dtype=uint8))
    """
    x = as_op(x)
    bits = _checked_bits("quantize", bits, x)
    size, count = checked_integer("quantize", "group_size", group_size), WORD // bits
    require_matrices("quantize", x)
    if not dtypes.is_float(x.dtype):
        raise DTypeError(explain("quantize", f"takes floats, not {x.dtype}", (x,)))
    if size < 1 or size % count:
        problem = f"group_size is {size}: it must be a multiple of {count}, the codes of a word"
        raise ArgumentError(explain("quantize", problem, (x,)))
    *batch, terms, columns = x.axes.lengths
    if not isinstance(terms, int) or terms % size:
        problem = f"groups of {size} do not divide {terms} terms, which must be known now"
        raise AxesError(explain("quantize", problem, (x,)))
    grouped, most = ops.cast_axes(x, (*batch, terms // size, size, columns)), 2**bits - 1
    low, high = ops.minimum(ops.min(grouped, -2), 0), ops.maximum(ops.max(grouped, -2), 0)
    # Divided first, as a difference may be too large.
    scales = high / most - low / most
    scales = ops.where(ops.equal(scales, 0), 1, scales)
    zeros = ops.round((0 - low) / scales)
    numbers = ops.round(grouped / ops.unsqueeze(scales, -2)) + ops.unsqueeze(zeros, -2)
    codes = ops.cast(ops.clip(numbers, 0, most), dtypes.uint32)
    codes = ops.cast_axes(codes, (*batch, terms // count, count, columns))
    words = ops.SumOp(ops.shift_left(codes, _shifts(bits)), positions=(codes.rank - 2,))
    return words, scales, ops.cast(ops.clip(zeros, 0, most), dtypes.uint8)


def dequantize(
    codes: TensorLike, scales: TensorLike, zeros: TensorLike | None = None, bits: int = 4
) -> TensorOp:
    """Return the matrix that codes of few bits stand for: ``(code - zero) * scale``.

    A product with it reads the codes, where a backend can: `native` unpacks them in registers, so a
    product of a row takes the time in which memory yields them.

    Parameters
    ----------
    codes
        Words of uint32 (..., terms * bits / 32, columns), as `quantize` returns them.
    scales
        Floats (..., groups, columns), one for each equal part of a column.
    zeros
        The zero points, uint8 or floats like the scales; by default ``2 ** (bits - 1)``.
    bits
        The bits of a code: 2, 4 or 8.

    Returns
    -------
    TensorOp
        The matrix (..., terms, columns) in the dtype of the scales; floats of 16 bits are computed
        in float32.

    Raises
    ------
    DTypeError
        If codes, scales or zero points have other dtypes.
    AxesError
        If shapes do not fit.
    ArgumentError
        If the bits are others.

    Examples
    --------
    >>> codes, scales = np.array([[0x76543210]], "uint32"), np.array([[0.5]], "float32")
    >>> weft.jit(weft.dequantize)(codes, scales).T
    array([[-4. , -3.5, -3. , -2.5, -2. , -1.5, -1. , -0.5]], dtype=float32)
    """
    codes, scales = as_op(codes), as_op(scales)
    bits = _checked_bits("dequantize", bits, codes)
    if zeros is None:
        zeros = constant(np.uint8(2 ** (bits - 1)))
        zeros = ops.broadcast(zeros, scales.axes)
    return DequantizeOp(codes, scales, as_op(zeros), bits=bits)
