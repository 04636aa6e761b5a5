"""From ops to the first result of the training step: building, differentiating, compiling.

The limit is the work per op: about a hundred and fifty ops pass through capture, nine passes,
planning and the interpreter's own compiler. In a fresh process the modules of the backend and the
passes, which are imported when they are first used, come on top; their bytecode is cached, as for
any user.
"""

from __future__ import annotations

import gc
import statistics
from collections.abc import Iterator
from tempfile import TemporaryDirectory
from time import perf_counter

from environment import run_fresh
from measure import Row, busy, main
from models import mlp
from models.program import training_step

FRESH = "import compile_time; print(*compile_time.once())"
FRESH_PROCESSES = 5


def once() -> tuple[float, float, float]:
    """Return the seconds for the forward graph, its gradients, and compiling with a first call."""
    data, values = mlp.data(), mlp.parameters()
    start = perf_counter()
    x, t, loss, variables = mlp.forward(values)
    built = perf_counter()
    program = training_step(loss, (x, t), variables, mlp.RATE)
    derived = perf_counter()
    program.compiled()[1](*data)
    return built - start, derived - built, perf_counter() - derived


def in_fresh_processes() -> list[list[float]]:
    """Return what `once` returns when nothing ran before it, some times."""
    with TemporaryDirectory() as bytecode:
        _, *texts = [run_fresh(["-c", FRESH], bytecode) for _ in range(1 + FRESH_PROCESSES)]
    return [[float(text) for text in each.split()] for each in texts]


def benchmark(rounds: int) -> Iterator[Row]:
    """Compile the same step again and again, each time from scratch."""
    once()
    taken = []
    for _ in range(max(rounds, 2)):
        gc.collect()
        taken.append(once())
    build, gradients, compiling = map(list, zip(*taken, strict=True))
    yield Row(
        "compile and first call", statistics.median(compiling) * 1e3, "ms", 60, busy(compiling)
    )
    yield Row("build the forward graph", statistics.median(build) * 1e3, "ms")
    yield Row("derive gradients and updates", statistics.median(gradients) * 1e3, "ms")
    fresh = in_fresh_processes()
    first = [compiling for _, _, compiling in fresh]
    before = [build + gradients for build, gradients, _ in fresh]
    what = "compile and first call, first in a process"
    yield Row(what, statistics.median(first) * 1e3, "ms", 60, busy(first))
    yield Row("build and derive, first in a process", statistics.median(before) * 1e3, "ms")


if __name__ == "__main__":
    main(benchmark)
