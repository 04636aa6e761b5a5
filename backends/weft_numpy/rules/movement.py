"""Rules for views, copies, padding and joining."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.errors import NeedsMemory
from weft.ir.op import Op
from weft.ops import bits, indexing, joining, movement, windows
from weft_numpy.codegen import Emitter, How
from weft_numpy.rules.table import rules


@rules.on_type(movement.ContiguousOp)
def copy_rule(op: Op, emit: Emitter) -> None:
    """Copy; a small array by a fifth of the time of `copyto`."""
    emit.line(f"{emit.out}[...] = {emit.args[0]}", How.ITEM)


@rules.on_type(movement.TransposeOp, movement.BroadcastOp, indexing.SliceOp)
@rules.on_type(bits.BitcastOp, movement.IdentityOp, windows.WindowsOp)
def view_rule(op: Op, emit: Emitter) -> None:
    """Write nothing: these are always views, which the plan describes."""


@rules.on_type(movement.ReshapeOp)
def reshape_rule(op: Op, emit: Emitter) -> None:
    """Copy into the result seen under the operand's shape, where strides allow no view."""
    shape = emit.step.args[0].shape
    target = emit.part(emit.out, emit.step.out, f".reshape({shape})")
    emit.line(f"copyto({target}, {emit.args[0]})")


@rules.on_type(indexing.UpdateSliceOp)
def update_slice_rule(op: Any, emit: Emitter) -> None:
    """Copy the first operand unless it is in place, then write the slice."""
    if emit.args[0] != emit.out:
        emit.line(f"copyto({emit.out}, {emit.args[0]})")
    emit.line(f"copyto({_slice(op.bounds, emit)}, {emit.args[1]})")


@rules.on_type(joining.PadOp)
def pad_rule(op: Any, emit: Emitter) -> None:
    """Fill, then copy the operand into the middle."""
    emit.line(f"{emit.out}.fill({emit.bind(np.asarray(op.fill, op.dtype)[()], 'fill')})")
    inner = op.inner_bounds(op.args[0].axes)
    emit.line(f"copyto({_slice(inner, emit)}, {emit.args[0]})")


@rules.on_type(joining.ConcatOp)
def concat_rule(op: Any, emit: Emitter) -> None:
    """Copy each operand into its part."""
    for bounds, arg in zip(op.parts(), emit.args, strict=True):
        emit.line(f"copyto({_slice(bounds, emit)}, {arg})")


def _slice(bounds: indexing.Bounds, emit: Emitter) -> str:
    parts = ", ".join(
        f"{part.start}:{'' if part.stop is None else part.stop}:{part.step or 1}"
        for part in indexing.python_slices(bounds)
    )
    return emit.part(emit.out, emit.step.out, f"[{parts}]") if bounds else emit.out


@rules.on_type(movement.IotaOp)
def iota_rule(op: Op, emit: Emitter) -> None:
    """Copy an index that was counted while compiling."""
    with NeedsMemory(op.explain("its value is counted while compiling")):
        count = op.reference()
    emit.line(f"copyto({emit.out}, {emit.bind(count, 'index')})")
