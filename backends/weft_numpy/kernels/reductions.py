"""Strategies of a tile's reductions: BLAS for sums of rows and columns, NumPy for others."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from weft.ir import dtypes
from weft.ir.description import TensorDescription
from weft.ir.dtypes import DType
from weft.ir.op import Op
from weft.ops.pointwise.elementwise import MultiplyOp, SquareOp
from weft.ops.reductions import reduction
from weft_numpy.emitter import Emitter
from weft_numpy.kernels.kernel_values import BLAS_ROW, KernelValues
from weft_numpy.kernels.tiling import Tiling
from weft_numpy.pairwise_sum import (
    BLAS_ROWS,
    BLOCK,
    accumulator_dtype,
    blas_column_sum,
    needs_pairwise,
    pairwise_sum,
)
from weft_numpy.rules.reduction import REDUCTIONS

MIN_BLAS_ROW = 16
"""The fewest elements of a row that BLAS sums."""

MAX_WIDE_TOTAL = 1024
"""The most accumulators in a dtype twice as wide."""

COUNTING = (reduction.SumOp, reduction.ProdOp)
"""Reductions whose value depends on the number of repetitions of an element."""


@dataclass(frozen=True)
class ReductionStrategy:
    """The strategy of one reduction of a tile.

    Attributes
    ----------
    axes
        The axes of the tile that it runs over.
    factors
        The two values whose products are summed, or the single value that is reduced.
    blas_rows
        Whether BLAS sums the last axis first.
    blas_columns
        Whether BLAS sums the axis before the last, which is then the only one.
    broadcast
        The dimensions of the operand after broadcasting along invariant ones; None if that does not
        matter.
    temporaries
        The dimensions and dtype of each temporary array.
    """

    axes: tuple[int, ...]
    factors: tuple[int, ...]
    blas_rows: bool
    blas_columns: bool
    broadcast: frozenset[int] | None
    temporaries: tuple[tuple[frozenset[int], DType], ...]


def total_dtype(op: Op, elements: int) -> DType:
    """Return the accumulator's dtype: twice as wide if that is cheap."""
    wide = accumulator_dtype(op)
    if not isinstance(op, COUNTING) or elements > MAX_WIDE_TOTAL:
        return wide
    return {"f": dtypes.float64, "c": dtypes.complex128}.get(wide.kind, wide)


def products(values: KernelValues, tiling: Tiling, number: int) -> tuple[int, ...]:
    """Return the factors whose products a reduction could sum without storing them.

    Empty if there are none: both must vary along the last axis.
    """
    kernel = values.kernel
    source = values.sources[kernel.instruction(number).args[0]]
    if source < len(kernel.operands) or not _can_blas_rows(values, tiling, number, source):
        return ()
    instruction = kernel.instruction(source)
    if not isinstance(instruction.op, MultiplyOp | SquareOp):
        return ()
    factors = tuple(values.sources[arg] for arg in instruction.args)
    last = tiling.axes[-1]
    if any(last not in values.varying[each] for each in factors):
        return ()
    return factors if len(factors) == 2 else factors * 2


def choose_strategy(
    values: KernelValues, tiling: Tiling, number: int, factors: tuple[int, ...]
) -> ReductionStrategy:
    """Return the strategy of a reduction; `factors` as returned by `products`, if used."""
    instruction = values.kernel.instruction(number)
    op = instruction.op
    source = values.sources[instruction.args[0]]
    reduced = values.reduced.intersection(tiling.axes)
    axes = tuple(index for index, each in enumerate(tiling.axes) if each in reduced)
    varying = values.varying[source]
    broadcast = None
    temporaries: list[tuple[frozenset[int], DType]] = []
    blas_rows = bool(factors) or _can_blas_rows(values, tiling, number, source)
    blas_columns = not blas_rows and _can_blas_columns(values, tiling, number, source)
    if blas_rows or blas_columns:
        if len(axes) > 1:
            temporaries.append((varying - {tiling.axes[-1]}, op.dtype))
    else:
        if _needs_broadcast(values, tiling, number, source):
            broadcast = frozenset(tiling.axes)
            temporaries.append((broadcast, values.dtype(source)))
        if accumulator_dtype(op) != op.dtype:
            temporaries.append((values.varying[number], accumulator_dtype(op)))
    return ReductionStrategy(
        axes, factors or (source,), blas_rows, blas_columns, broadcast, tuple(temporaries)
    )


def _can_blas_rows(values: KernelValues, tiling: Tiling, number: int, source: int) -> bool:
    """Whether BLAS can sum the last axis of a value."""
    if not _is_float_sum(values, number, source):
        return False
    if not tiling.axes or tiling.axes[-1] not in values.reduced:
        return False
    length = tiling.length(tiling.axes[-1])
    return MIN_BLAS_ROW <= length <= BLAS_ROW and not _needs_broadcast(
        values, tiling, number, source
    )


def _can_blas_columns(values: KernelValues, tiling: Tiling, number: int, source: int) -> bool:
    """Whether BLAS can sum the axis before the last of a value, if no other is reduced.

    It uses several threads unless it is limited to one, as for tiles.
    """
    if not _is_float_sum(values, number, source) or tiling.blocked is None or len(tiling.axes) < 2:
        return False
    if values.reduced.intersection(tiling.axes) != {tiling.axes[-2]}:
        return False
    is_dense = source >= len(values.kernel.operands) or (
        values.operands[source].strides[tiling.axes[-1]] == values.operands[source].dtype.itemsize
    )
    length = tiling.length(tiling.axes[-2])
    return (
        is_dense and length >= MIN_BLAS_ROW and not _needs_broadcast(values, tiling, number, source)
    )


def _is_float_sum(values: KernelValues, number: int, source: int) -> bool:
    op = values.kernel.instruction(number).op
    return type(op) is reduction.SumOp and values.dtype(source).name in ("float32", "float64")


def _needs_broadcast(values: KernelValues, tiling: Tiling, number: int, source: int) -> bool:
    """Whether the operand of a reduction must be broadcast first."""
    counted = set(tiling.axes) - (
        set() if isinstance(values.kernel.instruction(number).op, COUNTING) else values.reduced
    )
    return any(each not in values.varying[source] and values.lengths[each] != 1 for each in counted)


def write_reduction(
    emit: Emitter,
    op: Any,
    how: ReductionStrategy,
    operands: list[TensorDescription],
    out: TensorDescription,
    temporaries: list[TensorDescription],
) -> None:
    """Write a reduction of a tile into `out`, whose reduced axes have length 1."""
    ufunc = REDUCTIONS[type(op)]
    reduce = f"{emit.bind(ufunc, ufunc.__name__)}.reduce"
    target = emit.name(out)
    names = [emit.name(each) for each in operands]
    if how.blas_rows:
        if len(names) == 1:
            names.append(emit.row(1, operands[0]))
        _write_rows(emit, how, names, out, temporaries)
        return
    if how.blas_columns:
        sums = emit.part(target, out, "[..., 0, :]")
        if operands[0].shape[-2] > BLAS_ROWS:
            emit.line(f"{emit.bind(blas_column_sum, 'blas_column_sum')}({names[0]}, {sums})")
            return
        ones = emit.row(1, operands[0], -2)
        emit.line(f"{emit.bind(np.matmul, 'matmul')}({ones}, {names[0]}, {sums})")
        return
    (source,) = names
    rest = iter(temporaries)
    if how.broadcast is not None:
        source, operand = emit.name(next(rest)), source
        emit.line(f"copyto({source}, {operand})")
    wide = accumulator_dtype(op)
    dtype = emit.bind(wide, "dtype") if isinstance(op, COUNTING) else None
    accumulator = emit.name(next(rest)) if out.dtype != wide else target
    layout = operands[0] if how.broadcast is None else temporaries[0]
    if needs_pairwise(op, layout, how.axes):
        emit.line(
            f"{emit.bind(pairwise_sum, 'pairwise_sum')}"
            f"({source}, {how.axes}, {dtype}, {accumulator})"
        )
    else:
        emit.line(f"{reduce}({source}, {_axes(how.axes)}, {dtype}, {accumulator}, True)")
    if accumulator != target:
        emit.line(f"copyto({target}, {accumulator}, 'unsafe')")


def _write_rows(
    emit: Emitter,
    how: ReductionStrategy,
    names: list[str],
    out: TensorDescription,
    temporaries: list[TensorDescription],
) -> None:
    layout = temporaries[0] if temporaries else out
    sums = emit.part(emit.name(layout), layout, "[..., 0]")
    emit.line(f"{emit.bind(np.vecdot, 'vecdot')}({', '.join(names)}, {sums})")
    if temporaries:
        axes, dtype = how.axes[:-1], emit.bind(layout.dtype, "dtype")
        if prod(layout.shape[axis] for axis in axes) > BLOCK:
            add = emit.bind(pairwise_sum, "pairwise_sum")
            emit.line(f"{add}({emit.name(layout)}, {axes}, {dtype}, {emit.name(out)})")
        else:
            reduce = f"{emit.bind(np.add, 'add')}.reduce"
            emit.line(f"{reduce}({emit.name(layout)}, {_axes(axes)}, None, {emit.name(out)}, True)")


def _axes(axes: tuple[int, ...]) -> int | tuple[int, ...]:
    return axes[0] if len(axes) == 1 else axes
