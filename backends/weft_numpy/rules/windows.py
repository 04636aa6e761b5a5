"""The lowering rule of fold: sums of overlapping windows, one window element at a time.

NumPy's reductions over the few elements of a window are ten times slower.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from weft.ir import dtypes
from weft.ir.dtypes import DType
from weft.nn.spatial import windows
from weft_numpy.emitter import Emitter
from weft_numpy.rules.table import rules

Array = np.ndarray[Any, Any]


def _total(out: Array, dtype: DType) -> Array:
    """Return the accumulator, filled with zeros: the result itself, or a wider array."""
    total = out if out.dtype == dtype else np.empty(out.shape, dtype)
    total.fill(0)
    return total


@rules.on_type(windows.FoldOp)
def fold_rule(op: windows.FoldOp, emit: Emitter) -> None:
    """Add each window element to its slice of the result; floats of 16 bits in float32."""
    fold = partial(_fold, list(op.parts()), dtypes.accumulator_dtype(op.dtype))
    emit.line(f"{emit.bind(fold, 'fold')}({emit.args[0]}, {emit.out})")


def _fold(parts: list[Any], wide: DType, x: Array, out: Array) -> None:
    total = _total(out, wide)
    for where, part in parts:
        target = total[where]
        np.add(target, x[part], target)
    if total is not out:
        np.copyto(out, total, "unsafe")
