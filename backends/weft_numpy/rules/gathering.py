"""Lowering rules of gathers and scatters."""

from __future__ import annotations

from functools import partial
from math import prod

import numpy as np

from weft.ir.dtypes import Array
from weft.ops.indexing import dynamic_slices, gathering
from weft_numpy.emitter import Emitter
from weft_numpy.rules.table import rules


@rules.on_type(gathering.TakeOp)
def take_rule(op: gathering.TakeOp, emit: Emitter) -> None:
    """Check the indices and gather; NumPy's own check would need a copy of the result.

    NumPy copies the whole of an operand that is not contiguous.
    """
    x, indices = emit.args[0], _indices(op, emit)
    if emit.step.args[0].is_contiguous:
        take = emit.bind(np.take, "take")
        emit.line(f"{take}({x}, {indices}, {op.position}, {emit.out}, 'wrap')")
    else:
        emit.line(f"copyto({emit.out}, {x}[{':, ' * op.position}{indices}])")


@rules.on_type(gathering.TakeAlongAxisOp)
def take_along_axis_rule(op: gathering.TakeAlongAxisOp, emit: Emitter) -> None:
    """Call NumPy's function."""
    take = emit.bind(np.take_along_axis, "take_along_axis")
    call = f"{take}({emit.args[0]}, {_indices(op, emit)}, {op.position})"
    emit.line(f"copyto({emit.out}, {call})")


@rules.on_type(gathering.ScatterOp)
def scatter_rule(op: gathering.ScatterOp, emit: Emitter) -> None:
    """Copy the first operand unless the scatter is in place, then apply the updates.

    Floats of 16 bits are updated in a contiguous copy in float32.
    """
    x, _, updates = emit.args
    indices = _indices(op, emit)
    target = emit.out
    is_wide = op.accumulator_dtype != op.dtype
    if is_wide:
        target = f"{x}.astype({emit.bind(op.accumulator_dtype, 'dtype')}, 'C')"
    elif x != emit.out:
        emit.line(f"copyto({emit.out}, {x})")
    if op.reduction == "set":
        emit.line(f"{emit.out}[{':, ' * op.position}{indices}] = {updates}")
        return
    ufunc = gathering.REDUCTIONS[op.reduction].ufunc
    put = emit.bind(partial(_scatter, ufunc, op.position), f"{op.reduction}_at")
    call = f"{put}({target}, {indices}, {updates})"
    emit.line(f"copyto({emit.out}, {call}, 'unsafe')" if is_wide else call)


@rules.on_type(dynamic_slices.DynamicSliceOp)
def dynamic_slice_rule(op: dynamic_slices.DynamicSliceOp, emit: Emitter) -> None:
    """Copy the block."""
    x, *starts = emit.args
    block = f"{emit.bind(op.block, 'block')}({', '.join(starts)})"
    emit.line(f"copyto({emit.out}, {x}[{block}])")


@rules.on_type(dynamic_slices.DynamicUpdateSliceOp)
def dynamic_update_slice_rule(op: dynamic_slices.DynamicUpdateSliceOp, emit: Emitter) -> None:
    """Copy the first operand unless the update is in place, then copy the block."""
    x, update, *starts = emit.args
    block = f"{emit.bind(op.block, 'block')}({', '.join(starts)})"
    if x != emit.out:
        emit.line(f"copyto({emit.out}, {x})")
    emit.line(f"{emit.out}[{block}] = {update}")


def _indices(op: gathering.IndexedOp, emit: Emitter) -> str:
    return f"{emit.bind(op.places, 'places')}({emit.args[1]})"


def _scatter(
    ufunc: np.ufunc, position: int, target: Array, indices: Array, updates: Array
) -> Array:
    """Combine updates with the elements of a contiguous array, flattened.

    NumPy's `at` is several times faster on vectors than on arrays of more dimensions.
    """
    length, after = target.shape[position], prod(target.shape[position + 1 :])
    before = prod(target.shape[:position])
    linear = indices.reshape(-1)
    if before * after != 1:
        linear = np.where(linear < 0, linear + length, linear)[:, None] * after + np.arange(after)
        linear = (np.arange(before)[:, None] * (length * after) + linear.reshape(-1)).reshape(-1)
    ufunc.at(target.reshape(-1), linear, updates.reshape(-1).astype(target.dtype, copy=False))
    return target
