"""Lowering rules of sorting and scans."""

from __future__ import annotations

from weft.ir import dtypes
from weft.ir.description import TensorDescription
from weft.ops.reductions import cumulative, sorting
from weft_numpy.emitter import Emitter
from weft_numpy.rules.references import reference_rule
from weft_numpy.rules.table import rules


@rules.on_type(sorting.SortOp)
def sort_rule(op: sorting.SortOp, emit: Emitter) -> None:
    """Sort the result in place; for descending order a reversed view of it."""
    if op.dtype.kind == "V":
        # The order of NumPy's bfloat16 does not know NaN.
        reference_rule(op, emit)
        return
    emit.line(f"copyto({emit.out}, {emit.args[0]})")
    seen = _part(emit, emit.out, emit.step.out, op.position, "::-1" if op.descending else "")
    emit.line(f"{seen}.sort({op.position})")


@rules.on_type(cumulative.CumulativeOp)
def cumulative_rule(op: cumulative.CumulativeOp, emit: Emitter) -> None:
    """Accumulate by the ufunc; over reversed views if reverse, shifted by one if exclusive."""
    taken, filled, first = SLICES[op.exclusive, op.reverse]
    x = _part(emit, emit.args[0], emit.step.args[0], op.position, taken)
    out = _part(emit, emit.out, emit.step.out, op.position, filled)
    call = f"{emit.bind(op.ufunc, op.ufunc.__name__)}.accumulate"
    wide = dtypes.accumulator_dtype(op.dtype)
    dtype = emit.bind(wide, "dtype")
    if wide != op.dtype:
        emit.line(f"copyto({out}, {call}({x}, {op.position}, {dtype}), 'unsafe')")
    else:
        emit.line(f"{call}({x}, {op.position}, {dtype}, {out})")
    if op.exclusive:
        beginning = _part(emit, emit.out, emit.step.out, op.position, first)
        emit.line(f"{beginning}.fill({emit.bind(op.nothing(op.dtype), 'nothing')})")


SLICES = {
    (False, False): ("", "", ""),
    (False, True): ("::-1", "::-1", ""),
    (True, False): (":-1", "1:", ":1"),
    (True, True): (":0:-1", "-2::-1", "-1:"),
}
"""By exclusive and reverse: the slices that are read and written, and the one left to fill."""


def _part(
    emit: Emitter, array: str, description: TensorDescription, position: int, slice_: str
) -> str:
    """Return the name of an array sliced along one axis."""
    return emit.part(array, description, f"[{':, ' * position}{slice_}]") if slice_ else array
