"""Lowering rules of reductions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.ir.description import TensorDescription
from weft.ir.op import Op
from weft.ops import reduction
from weft_numpy.codegen import Emitter
from weft_numpy.pairwise_sum import accumulator_dtype, needs_pairwise, pairwise_sum
from weft_numpy.rules.table import rules

REDUCTIONS: dict[type[Op], np.ufunc] = {
    reduction.SumOp: np.add,
    reduction.ProdOp: np.multiply,
    reduction.MaxOp: np.maximum,
    reduction.MinOp: np.minimum,
    reduction.AnyOp: np.logical_or,
    reduction.AllOp: np.logical_and,
}

COUNTING = (reduction.SumOp, reduction.ProdOp)
"""Reductions whose value depends on the number of repetitions of an element."""


@rules.on_type(*REDUCTIONS)
def reduction_rule(op: Any, emit: Emitter) -> None:
    """Reduce by the ufunc along the axes."""
    write_reduction(emit, op, emit.step.args[0], op.positions, emit.step.out)


def write_reduction(
    emit: Emitter,
    op: Any,
    source: TensorDescription,
    axes: Sequence[int],
    out: TensorDescription,
    keepdims: bool = False,
) -> None:
    """Reduce an array by the ufunc of an op, in a wider dtype or in blocks where it rounds."""
    ufunc = REDUCTIONS[type(op)]
    reduce = f"{emit.bind(ufunc, ufunc.__name__)}.reduce"
    wide = accumulator_dtype(op)
    dtype = emit.bind(wide, "dtype") if isinstance(op, COUNTING) else None
    x, target = emit.name(source), emit.name(out)
    along = axes[0] if len(axes) == 1 else tuple(axes)
    if needs_pairwise(op, source, axes):
        add = emit.bind(pairwise_sum, "pairwise_sum")
        emit.line(f"{add}({x}, {tuple(axes)}, {dtype}, {target})")
    elif out.dtype != wide:
        total = f"{reduce}({x}, {along}, {dtype}, None, {keepdims})"
        emit.line(f"copyto({target}, {total}, 'unsafe')")
    else:
        kept = ", True" if keepdims else ""
        emit.line(f"{reduce}({x}, {along}, {dtype}, {target}{kept})")


@rules.on_type(reduction.ArgmaxOp, reduction.ArgminOp)
def arg_rule(op: Any, emit: Emitter) -> None:
    """Call the array's own method."""
    method = "argmax" if isinstance(op, reduction.ArgmaxOp) else "argmin"
    emit.line(f"{emit.args[0]}.{method}({op.positions[0]}, {emit.out})")
