"""GEMM parameters: a matrix product as a call of a BLAS with column-major matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from weft.ir.description import TensorDescription

_LARGEST = 2**31 - 1
"""The largest length and leading dimension: BLAS interfaces take 32-bit integers."""


@dataclass(frozen=True)
class GemmOperand:
    """The layout of a matrix for a BLAS, in elements.

    Attributes
    ----------
    is_transposed
        Whether it is row-major, so that the BLAS must transpose it.
    leading
        The leading dimension: the stride of columns, or of rows if it is transposed.
    step
        The stride of the batch.
    """

    is_transposed: bool
    leading: int
    step: int


@dataclass(frozen=True)
class Gemm:
    """Parameters of a strided batched GEMM on column-major matrices: out = left @ right.

    A row-major product is the column-major product of the transposed matrices in reverse order:
    `left` is the second operand and `right` the first.

    Attributes
    ----------
    m, n, k
        The rows and columns of the column-major result, and the length of the sums.
    batch
        The number of products.
    """

    m: int
    n: int
    k: int
    batch: int
    left: GemmOperand
    right: GemmOperand
    out: GemmOperand


def gemm(x: TensorDescription, y: TensorDescription, out: TensorDescription) -> Gemm | None:
    """Return the GEMM for x @ y, of equal batch dimensions; None where a BLAS cannot compute it.

    A BLAS reads no matrices with negative strides, stride 0, or gaps along both dimensions, and no
    batches with uneven strides.
    """
    if not out.size or not x.size:
        return None
    left, right, result = (_gemm_operand(each) for each in (y, x, out))
    if left is None or right is None or result is None or result.is_transposed:
        return None
    *batch, rows, k = x.shape
    product = Gemm(out.shape[-1], rows, k, prod(batch), left, right, result)
    sizes = product.m, product.n, k, product.batch, left.leading, right.leading, result.leading
    return product if max(sizes) <= _LARGEST else None


def _gemm_operand(layout: TensorDescription) -> GemmOperand | None:
    """Return the column-major layout of a row-major matrix; None where strides rule it out."""
    *batch, rows, columns = layout.shape
    *steps, down, along = (stride // layout.dtype.itemsize for stride in layout.strides)
    step = _even_step(batch, steps)
    if step is None:
        return None
    if along == 1 or columns == 1:
        leading = down if rows > 1 else columns
        if leading >= columns:
            return GemmOperand(False, leading, step)
    if down == 1 or rows == 1:
        leading = along if columns > 1 else rows
        if leading >= rows:
            return GemmOperand(True, leading, step)
    return None


def _even_step(lengths: Sequence[int], steps: Sequence[int]) -> int | None:
    """Return the common stride of a batch of several dimensions; None if there is none."""
    even_step: int | None = None
    count = 1
    for length, step in reversed(list(zip(lengths, steps, strict=True))):
        if length == 1:
            continue
        if even_step is None:
            even_step = step
        elif step != even_step * count:
            return None
        count *= length
    return None if even_step is not None and even_step < 0 else even_step or 0
