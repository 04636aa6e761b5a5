"""Rules for reductions."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import dtypes
from weft.op import Op
from weft.ops import reduction
from weft_numpy.codegen import Emitter
from weft_numpy.rules.table import rules

REDUCTIONS: dict[type[Op], np.ufunc] = {
    reduction.SumOp: np.add,
    reduction.ProdOp: np.multiply,
    reduction.MaxOp: np.maximum,
    reduction.MinOp: np.minimum,
    reduction.AnyOp: np.logical_or,
    reduction.AllOp: np.logical_and,
}


@rules.on_type(*REDUCTIONS)
def reduction_rule(op: Any, emit: Emitter) -> None:
    """Call the ufunc's reduction along the axes; 16-bit sums are accumulated in float32."""
    ufunc = REDUCTIONS[type(op)]
    call = f"{emit.bind(ufunc, ufunc.__name__)}.reduce"
    axes = op.positions[0] if len(op.positions) == 1 else op.positions
    summed = isinstance(op, reduction.SumOp | reduction.ProdOp)
    if summed and op.dtype.name in ("float16", "bfloat16"):
        wide = emit.bind(dtypes.float32, "float32")
        emit.line(f"copyto({emit.out}, {call}({emit.args[0]}, {axes}, {wide}), 'unsafe')")
        return
    dtype = emit.bind(op.dtype, "dtype") if summed else None
    emit.line(f"{call}({emit.args[0]}, {axes}, {dtype}, {emit.out})")


@rules.on_type(reduction.ArgmaxOp, reduction.ArgminOp)
def arg_rule(op: Any, emit: Emitter) -> None:
    """Call the array's own method."""
    method = "argmax" if isinstance(op, reduction.ArgmaxOp) else "argmin"
    emit.line(f"{emit.args[0]}.{method}({op.positions[0]}, {emit.out})")
