"""Rules for random numbers."""

from __future__ import annotations

from weft.op import Op
from weft.ops import random
from weft_numpy.codegen import Emitter
from weft_numpy.rules.table import rules


@rules.on_type(random.RandomBitsOp)
def random_bits_rule(op: Op, emit: Emitter) -> None:
    """Run Philox on whole arrays."""
    emit.line(f"copyto({emit.out}, {emit.bind(op.reference, 'random_bits')}({emit.args[0]}))")
