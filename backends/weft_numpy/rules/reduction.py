"""Lowering rules of reductions."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.ir.op import Op
from weft.ops.reductions import reduction
from weft_numpy.emitter import Emitter
from weft_numpy.pairwise_sum import accumulator_dtype, needs_pairwise, pairwise_sum_into
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
    """Reduce by the ufunc along the axes, in a wider dtype or in blocks where it rounds."""
    ufunc = REDUCTIONS[type(op)]
    call = f"{emit.bind(ufunc, ufunc.__name__)}.reduce"
    axes = op.positions[0] if len(op.positions) == 1 else op.positions
    wide = accumulator_dtype(op)
    summed = isinstance(op, reduction.SumOp | reduction.ProdOp)
    dtype = emit.bind(wide, "dtype") if summed else None
    (source,), (layout,) = emit.args, emit.step.args
    if needs_pairwise(op, layout, op.positions):
        adding = emit.bind(pairwise_sum_into, "pairwise_sum_into")
        emit.line(f"{adding}({source}, {op.positions}, {dtype}, {emit.out})")
    elif wide != op.dtype:
        emit.line(f"copyto({emit.out}, {call}({source}, {axes}, {dtype}), 'unsafe')")
    else:
        emit.line(f"{call}({source}, {axes}, {dtype}, {emit.out})")


@rules.on_type(reduction.ArgmaxOp, reduction.ArgminOp)
def arg_rule(op: Any, emit: Emitter) -> None:
    """Call the array's own method."""
    method = "argmax" if isinstance(op, reduction.ArgmaxOp) else "argmin"
    emit.line(f"{emit.args[0]}.{method}({op.positions[0]}, {emit.out})")
