"""Lowering rules of random numbers."""

from __future__ import annotations

from functools import partial
from typing import Any

from weft.ops.random import philox
from weft_numpy.emitter import Emitter
from weft_numpy.rules.table import rules

PART = 2**15  # elements whose words stay in the cache between the rounds of Philox


@rules.on_type(philox.RandomBitsOp)
def random_bits_rule(op: philox.RandomBitsOp, emit: Emitter) -> None:
    """Run Philox on blocks that fit the cache."""
    fill = emit.bind(partial(_fill, (op.seed, op.stream)), "random_bits")
    emit.line(f"{fill}({emit.args[0]}, {emit.out})")


def _fill(key: tuple[int, int], call: Any, out: Any) -> None:
    for start in range(0, out.size, PART):
        size = min(PART, out.size - start)
        out.flat[start : start + size] = philox.bits_of(size, call, key, start // 4)
