"""The lowering rule of fused kernels."""

from __future__ import annotations

from weft.kernels import FusedOp
from weft_numpy.emitter import Emitter
from weft_numpy.rules.table import rules


@rules.on_type(FusedOp)
def fused_rule(op: FusedOp, emit: Emitter) -> None:
    """Write the lowered kernel."""
    emit.shared.kernels.write(op, emit)
