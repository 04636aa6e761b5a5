"""Lowering rules of random numbers."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from weft.ops.random import philox
from weft_numpy.emitter import Emitter
from weft_numpy.rules.table import rules

PART = 2**15  # elements whose words stay in the cache between the rounds of Philox


@rules.on_type(philox.RandomBitsOp)
def random_bits_rule(op: philox.RandomBitsOp, emit: Emitter) -> None:
    """Run Philox on blocks that fit the cache."""
    fill = emit.bind(partial(_fill, op.domain), "random_bits")
    emit.line(f"{fill}({', '.join([*emit.args, emit.out])})")


def _fill(domain: int, key: Any, counter: Any, out: Any) -> None:
    keys = key.reshape(-1, philox.WORDS)
    counters = np.broadcast_to(counter.reshape(-1), len(keys))
    size = out.size // max(len(keys), 1)
    rows = out.reshape(len(keys), size)
    several = max(PART // max(size, 1), 1)
    for first in range(0, len(keys), several):
        part = slice(first, first + several)
        for start in range(0, size, PART):
            count = min(PART, size - start)
            bits = philox.bits_of(count, keys[part], counters[part], domain, start // 4)
            rows[part, start : start + count] = bits
