"""Products of matrices as a BLAS is asked for them, whose matrices lie in columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from weft.ir.description import TensorDescription

DTYPES = frozenset({"float16", "bfloat16", "float32", "float64"})
"""The names of the dtypes that such products are made in."""
_LARGEST = 2**31 - 1
"""The largest length and leading dimension, which are of 32 bits."""


@dataclass(frozen=True)
class GemmOperand:
    """How a matrix lies; counted in elements.

    Attributes
    ----------
    is_transposed
        Whether its rows lie in memory as a BLAS expects columns to.
    leading
        The distance of its columns, or of its rows if it is transposed.
    step
        The distance of a matrix and the next one in a batch.
    """

    is_transposed: bool
    leading: int
    step: int


@dataclass(frozen=True)
class Gemm:
    """What ``gemm`` is asked for: with matrices in columns, out = left @ right.

    A product of matrices in rows is, looked at in columns, that of the transposed matrices in the
    other order: `left` is the second operand and `right` the first.

    Attributes
    ----------
    m, n, k
        The rows and columns of the result in columns, and the length of the sums.
    batch
        How many products there are.
    """

    m: int
    n: int
    k: int
    batch: int
    left: GemmOperand
    right: GemmOperand
    out: GemmOperand


def gemm(x: TensorDescription, y: TensorDescription, out: TensorDescription) -> Gemm | None:
    """Return how a BLAS makes x @ y, of equal leading dimensions; None where it cannot.

    It cannot read matrices backwards, repeated or with gaps along both dimensions, nor batches that
    are not evenly spaced.
    """
    if x.dtype.name not in DTYPES or not out.size or not x.size:
        return None
    left, right, result = (_gemm_operand(each) for each in (y, x, out))
    if left is None or right is None or result is None or result.is_transposed:
        return None
    *batch, rows, k = x.shape
    found = Gemm(out.shape[-1], rows, k, prod(batch), left, right, result)
    sizes = found.m, found.n, k, found.batch, left.leading, right.leading, result.leading
    return found if max(sizes) <= _LARGEST else None


def _gemm_operand(layout: TensorDescription) -> GemmOperand | None:
    """Return how a matrix in rows lies, looked at in columns; None if it has no such form."""
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
    """Return the step from each matrix of a batch to the next, if it is always the same."""
    found: int | None = None
    count = 1
    for length, step in reversed(list(zip(lengths, steps, strict=True))):
        if length == 1:
            continue
        if found is None:
            found = step
        elif step != found * count:
            return None
        count *= length
    return None if found is not None and found < 0 else found or 0
