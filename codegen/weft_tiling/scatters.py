"""Scatters: the dtypes in which updates are combined and counted."""

from __future__ import annotations

from weft.ir import dtypes
from weft.ir.dtypes import DType
from weft.ops.indexing.gathering import ScatterOp
from weft_tiling.counters import needs_wide_counter
from weft_tiling.machine import Machine

_WIDER = {"b": dtypes.int32, "i": dtypes.int32, "u": dtypes.uint32, "f": dtypes.float32}


def total_dtype(op: ScatterOp, processor: Machine) -> DType:
    """Return the dtype of the accumulators: atomics need 32 or 64 bits."""
    if processor.is_serial or op.reduction == "set" or op.dtype.itemsize >= 4:
        return op.accumulator_dtype
    return _WIDER.get(op.dtype.kind, dtypes.float32)


def number_dtype(op: ScatterOp, processor: Machine) -> DType | None:
    """Return the dtype of update numbers for ``set`` on parallel devices.

    None where no kernel compares them: there is a single update, or one work item applies all.
    """
    count = op.args[1].axes.size
    if op.reduction != "set" or processor.is_serial or count == 1:
        return None
    if not needs_wide_counter(count):
        return dtypes.int32
    return dtypes.int64 if processor.has_int64_atomics else None


def scatter_bytes(op: ScatterOp, processor: Machine) -> int:
    """Return the bytes of wider accumulators, or of the last update's number for each index."""
    number = number_dtype(op, processor)
    if number is not None:
        return op.axes.shape[op.position] * number.itemsize
    dtype = total_dtype(op, processor)
    return 0 if dtype == op.dtype else op.axes.size * dtype.itemsize
