"""How a reduction of a tile is computed: BLAS adds up rows, NumPy does everything else."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from weft.ir import dtypes
from weft.ir.description import TensorDescription
from weft.ir.dtypes import DType
from weft.ir.op import Op
from weft.ops import reduction
from weft.ops.elementwise import MultiplyOp, SquareOp
from weft_numpy.adding import BLOCK, HIGHEST, add_rows, add_up, needs_blocks, working_dtype
from weft_numpy.codegen import Emitter
from weft_numpy.kernels.frames import Frame
from weft_numpy.kernels.values import ROW, Values
from weft_numpy.rules.reduction import REDUCTIONS

SHORTEST_ROW = 16
"""The fewest elements that BLAS is asked to add up."""

WIDEST = 1024
"""The most elements that tiles add up in a dtype twice as wide."""

ADDING = (reduction.SumOp, reduction.ProdOp)
"""Reductions for which it matters how often an element occurs."""


@dataclass(frozen=True)
class Recipe:
    """How one reduction of a tile goes.

    Attributes
    ----------
    axes
        The axes of the tile that it runs over.
    factors
        The two values whose products are added up, or the one that is reduced.
    by_rows
        Whether BLAS adds up the last axis first.
    by_columns
        Whether BLAS adds up the axis before the last, which is the only one.
    spread
        The dimensions of the operand after it was repeated where it does not vary; None if that
        makes no difference.
    temporaries
        The dimensions and dtype of each array that it needs meanwhile.
    """

    axes: tuple[int, ...]
    factors: tuple[int, ...]
    by_rows: bool
    by_columns: bool
    spread: frozenset[int] | None
    temporaries: tuple[tuple[frozenset[int], DType], ...]


def total_dtype(op: Op, elements: int) -> DType:
    """Return the dtype in which what tiles give is added up: twice as wide, if that is cheap."""
    wide = working_dtype(op)
    if not isinstance(op, ADDING) or elements > WIDEST:
        return wide
    return {"f": dtypes.float64, "c": dtypes.complex128}.get(wide.kind, wide)


def products(values: Values, frame: Frame, number: int) -> tuple[int, ...]:
    """Return the values whose products a reduction could add up without computing its operand.

    Empty if it could not: both must vary along the last axis.
    """
    kernel = values.kernel
    made = values.sources[kernel.instruction(number).args[0]]
    if made < len(kernel.operands) or not _by_rows(values, frame, number, made):
        return ()
    instruction = kernel.instruction(made)
    if not isinstance(instruction.op, MultiplyOp | SquareOp):
        return ()
    factors = tuple(values.sources[arg] for arg in instruction.args)
    last = frame.axes[-1]
    if any(last not in values.varying[each] for each in factors):
        return ()
    return factors if len(factors) == 2 else factors * 2


def recipe(values: Values, frame: Frame, number: int, factors: tuple[int, ...]) -> Recipe:
    """Return how a reduction goes; `factors` as `products` says, if they are used."""
    instruction = values.kernel.instruction(number)
    op = instruction.op
    made = values.sources[instruction.args[0]]
    reduced = values.reduced.intersection(frame.axes)
    axes = tuple(place for place, each in enumerate(frame.axes) if each in reduced)
    varying = values.varying[made]
    spread = None
    temporaries: list[tuple[frozenset[int], DType]] = []
    by_rows = bool(factors) or _by_rows(values, frame, number, made)
    by_columns = not by_rows and _by_columns(values, frame, number, made)
    if by_rows or by_columns:
        if len(axes) > 1:
            temporaries.append((varying - {frame.axes[-1]}, op.dtype))
    else:
        if _repeats(values, frame, number, made):
            spread = frozenset(frame.axes)
            temporaries.append((spread, values.dtype(made)))
        if working_dtype(op) != op.dtype:
            temporaries.append((values.varying[number], working_dtype(op)))
    return Recipe(axes, factors or (made,), by_rows, by_columns, spread, tuple(temporaries))


def _by_rows(values: Values, frame: Frame, number: int, made: int) -> bool:
    """Whether BLAS can add up the last axis of a value."""
    if not _is_float_sum(values, number, made):
        return False
    if not frame.axes or frame.axes[-1] not in values.reduced:
        return False
    length = frame.length(frame.axes[-1])
    return SHORTEST_ROW <= length <= ROW and not _repeats(values, frame, number, made)


def _by_columns(values: Values, frame: Frame, number: int, made: int) -> bool:
    """Whether BLAS can add up the axis before the last of a value, and that is all.

    It does so quickly, but in several threads if it is not told to use one, as it is for tiles.
    """
    if not _is_float_sum(values, number, made) or frame.blocked is None or len(frame.axes) < 2:
        return False
    if values.reduced.intersection(frame.axes) != {frame.axes[-2]}:
        return False
    is_dense = made >= len(values.kernel.operands) or (
        values.operands[made].strides[frame.axes[-1]] == values.operands[made].dtype.itemsize
    )
    length = frame.length(frame.axes[-2])
    return is_dense and length >= SHORTEST_ROW and not _repeats(values, frame, number, made)


def _is_float_sum(values: Values, number: int, made: int) -> bool:
    op = values.kernel.instruction(number).op
    return type(op) is reduction.SumOp and values.dtype(made).name in ("float32", "float64")


def _repeats(values: Values, frame: Frame, number: int, made: int) -> bool:
    """Whether the operand of a reduction has too few axes to be reduced as it is."""
    counted = set(frame.axes) - (
        set() if isinstance(values.kernel.instruction(number).op, ADDING) else values.reduced
    )
    return any(each not in values.varying[made] and values.lengths[each] != 1 for each in counted)


def write_reduction(
    emit: Emitter,
    op: Any,
    how: Recipe,
    operands: list[TensorDescription],
    out: TensorDescription,
    temporaries: list[TensorDescription],
) -> None:
    """Write a reduction of a tile into `out`, whose reduced axes have length 1."""
    ufunc = REDUCTIONS[type(op)]
    reduce = f"{emit.bind(ufunc, ufunc.__name__)}.reduce"
    target = emit.name(out)
    names = [emit.name(each) for each in operands]
    if how.by_rows:
        if len(names) == 1:
            names.append(emit.row(1, operands[0]))
        _write_rows(emit, how, names, out, temporaries)
        return
    if how.by_columns:
        sums = emit.part(target, out, "[..., 0, :]")
        if operands[0].shape[-2] > HIGHEST:
            emit.line(f"{emit.bind(add_rows, 'add_rows')}({names[0]}, {sums})")
            return
        ones = emit.row(1, operands[0], -2)
        emit.line(f"{emit.bind(np.matmul, 'matmul')}({ones}, {names[0]}, {sums})")
        return
    (source,) = names
    rest = iter(temporaries)
    if how.spread is not None:
        source, shown = emit.name(next(rest)), source
        emit.line(f"copyto({source}, {shown})")
    wide = working_dtype(op)
    dtype = emit.bind(wide, "dtype") if isinstance(op, ADDING) else None
    place = emit.name(next(rest)) if out.dtype != wide else target
    lies = operands[0] if how.spread is None else temporaries[0]
    if needs_blocks(op, lies, how.axes):
        emit.line(f"{emit.bind(add_up, 'add_up')}({source}, {how.axes}, {dtype}, {place})")
    else:
        emit.line(f"{reduce}({source}, {_axes(how.axes)}, {dtype}, {place}, True)")
    if place != target:
        emit.line(f"copyto({target}, {place}, 'unsafe')")


def _write_rows(
    emit: Emitter,
    how: Recipe,
    names: list[str],
    out: TensorDescription,
    temporaries: list[TensorDescription],
) -> None:
    lies = temporaries[0] if temporaries else out
    sums = emit.part(emit.name(lies), lies, "[..., 0]")
    emit.line(f"{emit.bind(np.vecdot, 'vecdot')}({', '.join(names)}, {sums})")
    if temporaries:
        axes, dtype = how.axes[:-1], emit.bind(lies.dtype, "dtype")
        if prod(lies.shape[axis] for axis in axes) > BLOCK:
            add = emit.bind(add_up, "add_up")
            emit.line(f"{add}({emit.name(lies)}, {axes}, {dtype}, {emit.name(out)})")
        else:
            reduce = f"{emit.bind(np.add, 'add')}.reduce"
            emit.line(f"{reduce}({emit.name(lies)}, {_axes(axes)}, None, {emit.name(out)}, True)")


def _axes(axes: tuple[int, ...]) -> int | tuple[int, ...]:
    return axes[0] if len(axes) == 1 else axes
