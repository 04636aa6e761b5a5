"""Pairwise sums of arrays, whose rounding errors grow slowly with the number of elements.

NumPy sums pairwise along the axis with the smallest stride, and sequentially along any other axis.
So long axes are summed in blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.ir import dtypes
from weft.ir.description import TensorDescription
from weft.ir.dtypes import DType
from weft.ir.op import Op
from weft.ops.reductions.reduction import ProdOp, SumOp

BLOCK = 128
"""The most elements that are summed sequentially."""

BLAS_ROWS = 256
"""The most rows that BLAS sums at once, since it may do so sequentially."""

_reduce: Any = np.add.reduce
_ONES = {kind: np.ones(BLAS_ROWS, kind) for kind in ("float32", "float64")}

WIDER = {"float32": dtypes.float64, "complex64": dtypes.complex128}


def accumulator_dtype(op: Op) -> DType:
    """Return the dtype in which a reduction is computed, wider for products.

    Each multiplication rounds the whole product, in any order.
    """
    if not isinstance(op, SumOp | ProdOp):
        return op.dtype
    wide = dtypes.accumulator_dtype(op.dtype)
    return WIDER.get(wide.name, wide) if isinstance(op, ProdOp) else wide


def needs_pairwise(op: Op, layout: TensorDescription, axes: Sequence[int]) -> bool:
    """Whether NumPy's own reduction would accumulate too many rounding errors."""
    if not isinstance(op, SumOp) or not dtypes.is_inexact(op.dtype):
        return False
    along = [abs(s) for s, n in zip(layout.strides, layout.shape, strict=True) if n > 1]
    lengths = [layout.shape[axis] for axis in axes]
    if along:
        lengths = [
            n
            for n, axis in zip(lengths, axes, strict=True)
            if abs(layout.strides[axis]) > min(along) or not layout.strides[axis]
        ]
    return int(np.prod(lengths, dtype=np.int64)) > BLOCK


def pairwise_sum(x: Any, axes: Sequence[int], dtype: Any, out: Any = None) -> Any:
    """Sum along increasing axes in blocks; the axes are kept with length 1."""
    first, *others = axes
    for axis in reversed(others):
        x = _sum_along(x, axis, dtype)
    return _sum_along(x, first, dtype, out)


def pairwise_sum_into(x: Any, axes: Sequence[int], dtype: Any, out: Any) -> None:
    """Sum along increasing axes into `out`, which lacks them."""
    np.copyto(out, pairwise_sum(x, axes, dtype).reshape(out.shape), "unsafe")


def _sum_along(x: Any, axis: int, dtype: Any, out: Any = None) -> Any:
    """Sum along one axis, which is kept with length 1."""
    strides = [abs(stride) for stride, n in zip(x.strides, x.shape, strict=True) if n > 1]
    is_pairwise = 0 < abs(x.strides[axis]) == min(strides, default=0)
    while x.shape[axis] > BLOCK and not is_pairwise:
        before, (length, *after) = x.shape[:axis], x.shape[axis:]
        count, rest = divmod(length, BLOCK)
        sums = np.empty((*before, count + (rest > 0), *after), dtype)
        at = (slice(None),) * axis
        whole = x[(*at, slice(0, count * BLOCK))].reshape(*before, count, BLOCK, *after)
        _reduce(whole, axis + 1, dtype, sums[(*at, slice(0, count))])
        if rest:
            last = x[(*at, slice(count * BLOCK, None))]
            _reduce(last, axis, dtype, sums[(*at, slice(count, None))], True)
        x, is_pairwise = sums, sums.shape[axis] == sums.size
    return _reduce(x, axis, dtype, out, True)


def blas_column_sum(x: Any, out: Any) -> None:
    """Sum the rows of matrices by BLAS, in blocks of rows."""
    ones = _ONES[x.dtype.name]
    while (rows := x.shape[-2]) > BLAS_ROWS:
        count, rest = divmod(rows, BLAS_ROWS)
        sums = np.empty((*x.shape[:-2], count + (rest > 0), x.shape[-1]), x.dtype)
        whole = x[..., : count * BLAS_ROWS, :]
        whole = whole.reshape(*x.shape[:-2], count, BLAS_ROWS, x.shape[-1])
        np.matmul(ones, whole, sums[..., :count, :])
        if rest:
            np.matmul(ones[:rest], x[..., count * BLAS_ROWS :, :], sums[..., count, :])
        x = sums
    np.matmul(ones[:rows], x, out)
