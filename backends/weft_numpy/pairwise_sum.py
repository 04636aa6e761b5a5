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
from weft.ops.reduction import ProdOp, SumOp

BLOCK = 128
"""The most elements that are summed sequentially."""

_reduce: Any = np.add.reduce

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
    steps = [abs(s) for s, n in zip(layout.strides, layout.shape, strict=True) if n > 1]
    count = 1
    for axis in axes:
        if not 0 < abs(layout.strides[axis]) == min(steps, default=0):
            count *= layout.shape[axis]
    return count > BLOCK


def pairwise_sum(x: Any, axes: Sequence[int], dtype: Any, out: Any) -> None:
    """Sum along increasing axes in blocks into `out`, with or without these axes."""
    for axis in reversed(axes):
        while x.shape[axis] > BLOCK and not _is_innermost(x, axis):
            count, rest = divmod(x.shape[axis], BLOCK)
            before, after = x.shape[:axis], x.shape[axis + 1 :]
            at = (slice(None),) * axis
            whole = x[(*at, slice(count * BLOCK))].reshape(*before, count, BLOCK, *after)
            sums = np.empty((*before, count + (rest > 0), *after), dtype)
            _reduce(whole, axis + 1, dtype, sums[(*at, slice(count))])
            if rest:
                last = x[(*at, slice(count * BLOCK, None))]
                _reduce(last, axis, dtype, sums[(*at, slice(count, None))], True)
            x = sums
        x = _reduce(x, axis, dtype, None, True)
    np.copyto(out, x.reshape(out.shape), "unsafe")


def _is_innermost(x: Any, axis: int) -> bool:
    """Whether an axis has the smallest stride, along which NumPy sums pairwise."""
    steps = [abs(step) for step, length in zip(x.strides, x.shape, strict=True) if length > 1]
    return 0 < abs(x.strides[axis]) == min(steps)  # type: ignore[no-any-return]
