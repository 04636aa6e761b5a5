"""A long chain of sines and sums, and whether twice as much takes twice as long.

The limit is a constant time an op at every stage. Each length runs in a process of its own, so that
peak memory belongs to it alone, and is run a few times, of which the fastest counts, since noise
only ever adds. All stages run on one thread; their processor time is taken, which other processes
disturb less.
"""

from __future__ import annotations

import multiprocessing
import resource
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from time import process_time

import numpy as np
from measure import Row, main

import weft

LENGTHS = (25_000, 50_000, 100_000, 200_000)
STAGES = ("build", "differentiate", "compile and first call")
GOAL = 2.3


def chain(length: int) -> tuple[list[float], float]:
    """Return the seconds of each stage for a chain of so many ops, and the peak memory in MB."""
    # At 0 the sine's slope is 1, so that neither values nor gradients grow or vanish.
    zeros = np.zeros(8, "f4")
    times = [process_time()]
    x = weft.placeholder((8,))
    y = x
    for _ in range(length // 2):
        y = weft.sin(y) + x
    total = weft.sum(y)
    times.append(process_time())
    gradient = weft.deriv(total, x)
    times.append(process_time())
    call = weft.make_transformer("numpy").computation([total, gradient], x)
    _, found = call(zeros)
    times.append(process_time())
    assert found[0] == length // 2 + 1
    stages = [end - start for start, end in pairwise(times)]
    return stages, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measured(length: int, rounds: int) -> tuple[list[float], float]:
    """Return the fastest time of each stage, and the peak memory, of some fresh processes."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, max_tasks_per_child=1) as pool:
        runs = list(pool.map(chain, [length] * rounds))
    fastest = [min(stage) for stage in zip(*(stages for stages, _ in runs), strict=True)]
    return fastest, max(memory for _, memory in runs)


def benchmark(rounds: int) -> Iterator[Row]:
    """Run every length and compare each with the one before, which is half as long."""
    before: list[float] = []
    for length in LENGTHS:
        stages, memory = measured(length, rounds)
        for index, (stage, seconds) in enumerate(zip(STAGES, stages, strict=True)):
            each = seconds / length * 1e6
            yield Row(f"{stage}, {length} ops", seconds, "s", note=f"{each:.1f} us an op")
            if before:
                ratio = seconds / before[index]
                yield Row(f"{stage}, {length} over half as many", ratio, "x", GOAL)
        yield Row(f"peak memory, {length} ops", memory, "MB")
        before = stages


if __name__ == "__main__":
    main(benchmark, rounds=2)
