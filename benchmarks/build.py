"""Building a graph of 10,000 ops, the user's line of each included.

The limit is what Python takes to make an object and fill its dictionary, about a third of this.
Processor time of the fastest round counts, since noise only ever adds.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from time import process_time
from typing import Any

from measure import Row, main

import weft

OPS = 10_000
GOAL = 5.0


def sums(x: Any) -> Any:
    """Return a chain of sums."""
    for _ in range(OPS):
        x = x + x
    return x


def mixed(x: Any) -> Any:
    """Return a chain of functions and sums, and of products with numbers, which are ops too."""
    y = x
    for _ in range(OPS // 5):
        y = weft.exp((weft.tanh(y) + x) * 1.5)
    return y


class Bare:
    """An object with as many attributes as an op."""

    def __init__(self, x: Any) -> None:
        self.args = self.axes = self.dtype = self.order = self.serial = self.reads = x


def bare(x: Any) -> Any:
    """Return a chain of objects."""
    for _ in range(OPS):
        x = Bare(x)
    return x


CHAINS: dict[str, Callable[[Any], Any]] = {"sums": sums, "mixed": mixed, "bare objects": bare}


def seconds(build: Callable[[Any], Any]) -> float:
    """Return the processor time of one build, without the garbage collector."""
    x = weft.placeholder((4, 4))
    gc.collect()
    gc.disable()
    try:
        begin = process_time()
        kept = build(x)
        end = process_time()
    finally:
        gc.enable()
    assert kept is not x
    return end - begin


def benchmark(rounds: int) -> Iterator[Row]:
    """Build each chain in turns."""
    found = {name: [seconds(build) for _ in range(rounds)] for name, build in CHAINS.items()}
    for name, times in found.items():
        goal = None if name == "bare objects" else GOAL
        yield Row(f"{name}, an op of {OPS}", min(times) / OPS * 1e6, "us", goal)


if __name__ == "__main__":
    main(benchmark)
