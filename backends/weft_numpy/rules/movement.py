"""Lowering rules of views, copies, padding and concatenation."""

from __future__ import annotations

import numpy as np

from weft.errors import NeedsMemory
from weft.ir.op import Op
from weft.nn.spatial import windows
from weft.ops.indexing import slicing
from weft.ops.pointwise import bits, complex_parts
from weft.ops.shape import joining, movement
from weft_numpy.emitter import Emitter
from weft_numpy.rules.table import rules


@rules.on_type(movement.ContiguousOp)
def copy_rule(op: Op, emit: Emitter) -> None:
    """Copy the operand; small arrays in a fifth of the time of `copyto`."""
    emit.line(f"{emit.out}[...] = {emit.args[0]}")


@rules.on_type(movement.TransposeOp, movement.BroadcastOp, slicing.SliceOp)
@rules.on_type(bits.BitcastOp, movement.IdentityOp, windows.WindowsOp)
@rules.on_type(complex_parts.ViewAsRealOp)
def view_rule(op: Op, emit: Emitter) -> None:
    """Write nothing: the results are views, which the plan describes."""


@rules.on_type(movement.ReshapeOp)
def reshape_rule(op: Op, emit: Emitter) -> None:
    """Copy the operand to the result, viewed in the operand's shape."""
    shape = emit.step.args[0].shape
    target = emit.part(emit.out, emit.step.out, f".reshape({shape})")
    emit.line(f"copyto({target}, {emit.args[0]})")


@rules.on_type(slicing.UpdateSliceOp)
def update_slice_rule(op: slicing.UpdateSliceOp, emit: Emitter) -> None:
    """Copy the first operand unless the update is in place, then copy the slice."""
    if emit.args[0] != emit.out:
        emit.line(f"copyto({emit.out}, {emit.args[0]})")
    emit.line(f"copyto({_slice(op.bounds, emit)}, {emit.args[1]})")


@rules.on_type(joining.PadOp)
def pad_rule(op: joining.PadOp, emit: Emitter) -> None:
    """Fill the result, then copy the operand to its slice."""
    emit.line(f"{emit.out}.fill({emit.bind(np.asarray(op.fill, op.dtype)[()], 'fill')})")
    inner = op.inner_bounds(op.args[0].axes)
    emit.line(f"copyto({_slice(inner, emit)}, {emit.args[0]})")


@rules.on_type(joining.ConcatOp)
def concat_rule(op: joining.ConcatOp, emit: Emitter) -> None:
    """Copy each operand to its slice of the result."""
    for bounds, arg in zip(op.parts(), emit.args, strict=True):
        emit.line(f"copyto({_slice(bounds, emit)}, {arg})")


def _slice(bounds: slicing.Bounds, emit: Emitter) -> str:
    parts = ", ".join(
        f"{part.start}:{'' if part.stop is None else part.stop}:{part.step or 1}"
        for part in slicing.python_slices(bounds)
    )
    return emit.part(emit.out, emit.step.out, f"[{parts}]") if bounds else emit.out


@rules.on_type(movement.IotaOp)
def iota_rule(op: Op, emit: Emitter) -> None:
    """Copy an array that was computed at compile time."""
    with NeedsMemory(op.explain("its value is counted while compiling")):
        count = op.reference()
    emit.line(f"copyto({emit.out}, {emit.bind(count, 'index')})")
