"""The rule for ops that act on the host."""

from __future__ import annotations

from weft.ops import control
from weft_numpy.codegen import Emitter
from weft_numpy.rules.table import rules


@rules.on_type(control.EffectOp)
def effect_rule(op: control.EffectOp, emit: Emitter) -> None:
    """Hand the operands over; the value is a view of the first."""
    emit.line(f"{emit.bind(op.perform, 'perform')}({', '.join(emit.args)})")
