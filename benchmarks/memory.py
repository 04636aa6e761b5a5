"""How many bytes a call needs beyond its arguments and results."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from models.program import Program

NUMPY_ONLY = [tracemalloc.DomainFilter(inclusive=True, domain=np.lib.tracemalloc_domain)]


def working_memory(make: Callable[[], Callable[[], Any]]) -> int:
    """Return the bytes that a call needs beyond its arguments and results.

    These are the arrays that live on between calls (an arena, scratch of threads, constants, state)
    and the most that the second call holds beyond them at once. NumPy reports the memory of each
    array to tracemalloc, whichever thread makes it. `make` prepares the call; what was there before
    it, such as arguments, does not count.
    """
    tracemalloc.start()
    try:
        call = make()
        first = call()
        traces = tracemalloc.take_snapshot().filter_traces(NUMPY_ONLY).traces
        between = sum(trace.size for trace in traces) - result_size(first)
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        second = call()
        transient = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    return between + max(transient - result_size(second), 0)


def program_memory(program: Program, data: Sequence[Any]) -> int:
    """Return the same for a program, with its variables.

    The transformer lists the buffers of a device, which tracemalloc does not see; those of the
    NumPy backend are arrays, and seen.
    """
    made: list[Any] = []

    def make() -> Callable[[], Any]:
        made.extend(program.compiled())
        return lambda: made[1](*data)

    traced = working_memory(make)
    transformer = made[0]
    if transformer.transformer_name == "numpy":
        return traced
    return traced + sum(buffer.bytes for buffer in transformer.device_buffers)


def result_size(result: Any) -> int:
    """Return the bytes of an array, or of those in a list; None has none."""
    parts = [result] if isinstance(result, (np.ndarray, np.generic)) else result
    return sum(part.nbytes for part in parts if part is not None)
