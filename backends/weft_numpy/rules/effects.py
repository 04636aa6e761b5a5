"""The lowering rules of effects and collectives."""

from __future__ import annotations

from weft.ops.control import effects
from weft.ranks import collectives
from weft.support.interrupts import interruptible
from weft_numpy.emitter import Emitter
from weft_numpy.rules.table import rules


@rules.on_type(effects.EffectOp)
def effect_rule(op: effects.EffectOp, emit: Emitter) -> None:
    """Call the effect with the operands; the value is a view of the first."""
    run, perform = emit.bind(interruptible, "interruptible"), emit.bind(op.perform, "perform")
    emit.line(f"{run}({', '.join([perform, *emit.args])})")


@rules.on_type(collectives.CommunicationOp)
def communication_rule(op: collectives.CommunicationOp, emit: Emitter) -> None:
    """Call the exchange, which writes the result; an interrupt ends the wait for other ranks."""
    run, write = emit.bind(interruptible, "interruptible"), emit.bind(op.write, "write")
    emit.line(f"{run}({', '.join([write, *emit.args, emit.out])})")
