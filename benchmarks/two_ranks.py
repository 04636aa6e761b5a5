"""How much faster two ranks train than one, on one global batch; each has one thread.

Needs mpi4py and an `mpiexec`. A round has three steps in turn: one rank trains on the whole batch
while the other sleeps, both train on a half each, and both do so without any exchange, which shows
what the machine allows.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from time import perf_counter
from typing import Any

from scaling_measured import MODELS, RATE, launched

import weft

BATCHES = {"CNN": 1024, "MLP of 4 MB": 8192, "MLP of 40 MB": 4096}
"""Examples in a global batch: so many that the exchange is a small part of a step."""


@contextmanager
def compiled_step(name: str, batch: int, communicator: str) -> Iterator[Callable[[], Any]]:
    """Yield a step of training on a batch, which has been called."""
    loss, placeholders, _, data = MODELS[name](batch)
    means = weft.data_parallel(loss, communicator=communicator)
    update = weft.sgd(*means, learning_rate=RATE)
    with weft.make_transformer("native") as transformer:
        step = transformer.computation([loss, update], *placeholders)
        step(*data)
        yield lambda: step(*data)


def seconds(comm: Any, work: Callable[[], Any] | None) -> float:
    """Return the time of the slowest rank; one that has no work sleeps."""
    comm.Barrier()
    begin = perf_counter()
    if work is not None:
        work()
    took = perf_counter() - begin
    met = comm.Ibarrier()
    while not met.Test():
        time.sleep(1e-3)
    return max(comm.allgather(took))


def measure_rank(rounds: int) -> dict[str, Any] | None:
    """Measure as one of the two ranks, and return by model what rank 0 has to print."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    found = {}
    for name, batch in BATCHES.items():
        with (
            nullcontext() if comm.rank else compiled_step(name, batch, "local") as whole,
            compiled_step(name, batch // 2, "mpi") as halves,
            compiled_step(name, batch // 2, "local") as apart,
        ):
            works = {"one": whole, "two": halves, "apart": apart}
            times: dict[str, list[float]] = {each: [] for each in works}
            for _ in range(rounds):
                for each, work in works.items():
                    times[each].append(seconds(comm, work))
        found[name] = times
    return found if comm.rank == 0 else None


def table(found: dict[str, dict[str, list[float]]]) -> str:
    """Return the table in Markdown: medians, and ratios of medians."""
    lines = [
        "| step | global batch | one rank | two ranks | speedup | without exchange | exchange |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, times in found.items():
        one, two, apart = (statistics.median(times[each]) for each in ("one", "two", "apart"))
        lines.append(
            f"| {name} | {BATCHES[name]:,} | {_milliseconds(one)} | {_milliseconds(two)} | "
            f"{one / two:.2f} | {one / apart:.2f} | {1 - apart / two:.1%} |"
        )
    return "\n".join(lines)


def _milliseconds(seconds: float) -> str:
    return f"{float(f'{1e3 * seconds:.3g}'):,g} ms"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        found = measure_rank(options.rounds)
        if found is not None:
            print(json.dumps(found))
        return
    print(table(launched(__file__, 2, options.rounds)))


if __name__ == "__main__":
    main()
