"""Lowering rules of reductions, and pairwise sums.

NumPy sums pairwise along the axis with the smallest stride, and sequentially along any other axis,
where rounding errors grow with the number of elements. So long axes are summed in blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from weft.ir import dtypes
from weft.ir.description import TensorDescription
from weft.ir.dtypes import Array, DType
from weft.ir.op import Op
from weft.ops.reductions import reduction
from weft_numpy.emitter import Emitter
from weft_numpy.rules.table import rules

REDUCTIONS: dict[type[Op], np.ufunc] = {
    reduction.SumOp: np.add,
    reduction.ProdOp: np.multiply,
    reduction.MaxOp: np.maximum,
    reduction.MinOp: np.minimum,
    reduction.AnyOp: np.logical_or,
    reduction.AllOp: np.logical_and,
}

ACCUMULATING = (reduction.SumOp, reduction.ProdOp)  # in a dtype that may be a wider one

BLOCK = 128  # the most elements that are summed sequentially

_reduce: Any = np.add.reduce
_ONES = {kind: np.ones(BLOCK, kind) for kind in ("float32", "float64")}

WIDER = {"float32": dtypes.float64, "complex64": dtypes.complex128}


def accumulator_dtype(op: Op) -> DType:
    """Return the dtype in which a reduction is computed, wider for products.

    Each multiplication rounds the whole product, in any order.
    """
    if not isinstance(op, ACCUMULATING):
        return op.dtype
    wide = dtypes.accumulator_dtype(op.dtype)
    return WIDER.get(wide.name, wide) if isinstance(op, reduction.ProdOp) else wide


def needs_pairwise(op: Op, layout: TensorDescription, axes: Sequence[int]) -> bool:
    """Whether NumPy's own reduction would accumulate too many rounding errors."""
    if not isinstance(op, reduction.SumOp) or not dtypes.is_inexact(op.dtype):
        return False
    long = [axis for axis in axes if not _is_innermost(layout.shape, layout.strides, axis)]
    return prod(layout.shape[axis] for axis in long) > BLOCK


def _is_innermost(shape: Sequence[int], strides: Sequence[int], axis: int) -> bool:
    """Whether an axis has the smallest stride, along which NumPy sums pairwise."""
    steps = [abs(step) for step, length in zip(strides, shape, strict=True) if length > 1]
    return 0 < abs(strides[axis]) == min(steps, default=0)


def pairwise_sum(x: Array, axes: Sequence[int], dtype: Any, out: Array) -> None:
    """Sum along increasing axes in blocks into `out`, with or without these axes."""
    for axis in reversed(axes):
        while x.shape[axis] > BLOCK and not _is_innermost(x.shape, x.strides, axis):
            count, rest = divmod(x.shape[axis], BLOCK)
            before, after = x.shape[:axis], x.shape[axis + 1 :]
            at = (slice(None),) * axis
            whole = x[(*at, slice(count * BLOCK))].reshape(*before, count, BLOCK, *after)
            sums = np.empty((*before, count + (rest > 0), *after), dtype)
            into = sums[(*at, slice(count))]
            is_dense = axis == x.ndim - 2 and x.strides[-1] == x.itemsize
            if is_dense and x.dtype == dtype and dtype.name in _ONES:
                np.matmul(_ONES[dtype.name], whole, into)  # BLAS sums columns faster
            else:
                _reduce(whole, axis + 1, dtype, into)
            if rest:
                last = x[(*at, slice(count * BLOCK, None))]
                _reduce(last, axis, dtype, sums[(*at, slice(count, None))], True)
            x = sums
        x = _reduce(x, axis, dtype, None, True)
    np.copyto(out, x.reshape(out.shape), "unsafe")


@rules.on_type(*REDUCTIONS)
def reduction_rule(op: Any, emit: Emitter) -> None:
    """Reduce by the ufunc along the axes."""
    (source,) = emit.step.args
    write_reduction(emit, op, source, op.positions, emit.step.out)


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
    dtype = emit.bind(wide, "dtype") if isinstance(op, ACCUMULATING) else None
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
def arg_rule(op: reduction.ArgmaxOp | reduction.ArgminOp, emit: Emitter) -> None:
    """Call the array's own method, which writes indices of the machine's width."""
    method = "argmax" if isinstance(op, reduction.ArgmaxOp) else "argmin"
    if op.dtype == np.intp:
        emit.line(f"{emit.args[0]}.{method}({op.positions[0]}, {emit.out})")
    else:  # where pointers have 32 bits
        emit.line(f"copyto({emit.out}, {emit.args[0]}.{method}({op.positions[0]}))")
