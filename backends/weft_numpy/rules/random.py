"""Lowering rules of random numbers."""

from __future__ import annotations

from functools import partial

from weft.ops.random import philox
from weft_numpy.emitter import Emitter
from weft_numpy.rules.table import rules


@rules.on_type(philox.RandomBitsOp)
def random_bits_rule(op: philox.RandomBitsOp, emit: Emitter) -> None:
    """Run Philox on blocks that fit the cache."""
    fill = emit.bind(partial(philox.fill_bits, op.domain), "random_bits")
    emit.line(f"{fill}({', '.join([*emit.args, emit.out])})")
