"""Rules for sums and extrema of windows: whole tensors of one element of each, one by one.

NumPy's reductions over the few elements of a window are ten times slower.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import dtypes
from weft.dtypes import DType
from weft.ops import pooling, windows
from weft_numpy.codegen import Emitter
from weft_numpy.rules.table import rules

Array = np.ndarray[Any, Any]


def _total(out: Array, dtype: DType) -> Array:
    """Return zeros to add up in: the result itself, or wider ones."""
    total = out if out.dtype == dtype else np.empty(out.shape, dtype)
    total.fill(0)
    return total


@rules.on_type(windows.FoldOp)
def fold_rule(op: windows.FoldOp, emit: Emitter) -> None:
    """Add each part where it belongs; floats of 16 bits in float32."""
    parts = list(op.parts())
    wide = dtypes.working_dtype(op.dtype)

    def fold(x: Array, out: Array) -> None:
        total = _total(out, wide)
        for where, part in parts:
            target = total[where]
            np.add(target, x[part], target)
        if total is not out:
            np.copyto(out, total, "unsafe")

    emit.line(f"{emit.bind(fold, 'fold')}({emit.args[0]}, {emit.out})")


@rules.on_type(pooling.MaxPoolOp)
def max_pool_rule(op: pooling.MaxPoolOp, emit: Emitter) -> None:
    """Take the maximum with one element of all windows after the other."""
    taps = list(op.sliding.taps(op.args[0].axes.shape[2:]))
    lowest = dtypes.least(op.dtype)

    def max_pool(x: Array, out: Array) -> None:
        out.fill(lowest)
        for where, elements, _ in taps:
            target = out[where]
            np.maximum(target, x[elements], out=target)

    emit.line(f"{emit.bind(max_pool, 'max_pool')}({emit.args[0]}, {emit.out})")


@rules.on_type(pooling.AvgPoolOp)
def avg_pool_rule(op: pooling.AvgPoolOp, emit: Emitter) -> None:
    """Add one element of all windows after the other, and divide; in float32 for 16 bits."""
    taps = list(op.sliding.taps(op.args[0].axes.shape[2:]))
    wide = dtypes.working_dtype(op.dtype)
    numbers = op.numbers(wide)

    def avg_pool(x: Array, out: Array) -> None:
        total = _total(out, wide)
        for where, elements, _ in taps:
            target = total[where]
            np.add(target, x[elements], target)
        np.divide(total, numbers, total)
        if total is not out:
            np.copyto(out, total, "unsafe")

    emit.line(f"{emit.bind(avg_pool, 'avg_pool')}({emit.args[0]}, {emit.out})")


@rules.on_type(pooling.MaxPoolIndexOp)
def max_pool_index_rule(op: pooling.MaxPoolIndexOp, emit: Emitter) -> None:
    """Compare one element of all windows after the other, as the reference does."""
    emit.line(f"copyto({emit.out}, {emit.bind(op.reference, 'max_pool_index')}({emit.args[0]}))")
