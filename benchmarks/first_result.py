"""From ops to a first result in a fresh process: without a cache, and from what another one left.

Building the graph, compiling it and one call are timed, once NumPy and weft are imported and data
and parameters are there; the modules of the backend and the passes, which are imported when they
are first used, belong to it. Bytecode is cached as for any user. The limit is the work per op.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator
from tempfile import TemporaryDirectory

from environment import run_fresh
from measure import Row, busy, main

GOALS = {"mlp": 0.06, "cnn": 0.15, "block": 0.10}
"""The most seconds, by the name of the model."""

PROGRAM_SECONDS, KERNEL_SECONDS = 0.2, 0.06
"""The most seconds for a program on a device, and for each kernel in it; a fifth of that with what
the driver keeps."""

WARM_GOAL = 5.0
"""The least ratio of the encoder's first call with an empty cache over that with a full one."""

NATIVE_GOAL = 1.5
"""The most times as long as on NumPy that a first result may take on the native backend."""


def once(model: str, bytecode: str, **variables: str) -> list[float]:
    """Return the seconds of building, of the first call, and of the next, and the kernels."""
    command = ["-m", "models.first_call", model]
    return [float(text) for text in run_fresh(command, bytecode, **variables).split()]


def without_cache(model: str, goal: float, bytecode: str, rounds: int) -> Iterator[Row]:
    """Measure a model in some fresh processes without a disk cache."""
    once(model, bytecode)
    taken = [once(model, bytecode) for _ in range(rounds)]
    totals = [build + first for build, first, *_ in taken]
    build, _, call, _ = (statistics.median(stage) for stage in zip(*taken, strict=True))
    note = f"building the graph {build:.3g} s, a later call {call:.3g} s"
    remark = "; ".join(part for part in (note, busy(totals)) if part)
    yield Row(f"first result, {model}", statistics.median(totals), "s", goal, remark)


def with_cache(bytecode: str, rounds: int) -> Iterator[Row]:
    """Measure the encoder's first call with an empty disk cache, and with that which it filled."""
    once("encoder", bytecode)
    pairs = []
    for _ in range(rounds):
        with TemporaryDirectory() as cache:
            cold, warm = (
                once("encoder", bytecode, WEFT_CACHE="1", WEFT_CACHE_DIR=cache) for _ in range(2)
            )
        pairs.append((cold, warm))
    ratio = statistics.median(cold[1] / warm[1] for cold, warm in pairs)
    what = "first call of 12 layers, empty over full cache"
    yield Row(what, ratio, "x", WARM_GOAL, at_least=True)
    for name, runs in zip(("empty", "full"), zip(*pairs, strict=True), strict=True):
        build, first, call, _ = (statistics.median(stage) for stage in zip(*runs, strict=True))
        note = f"building the graph {build:.3g} s, a later call {call:.3g} s"
        yield Row(f"first call of 12 layers, {name} cache", first, "s", note=note)


def on_device(model: str, bytecode: str, rounds: int) -> Iterator[Row]:
    """Measure a model without what the driver keeps of earlier compilations, and with it."""
    once(model, bytecode)
    pairs = []
    for _ in range(rounds):
        with TemporaryDirectory() as cache:
            pairs.append([once(model, bytecode, POCL_CACHE_DIR=cache) for _ in range(2)])
    empty, full = (statistics.median(run[1] for run in runs) for runs in zip(*pairs, strict=True))
    kernels = pairs[0][0][3]
    goal = PROGRAM_SECONDS + KERNEL_SECONDS * kernels
    yield Row(f"first call, {model}", empty, "s", goal, f"{kernels:.0f} kernels")
    yield Row(f"first call, {model}, driver's cache", full, "s", goal / 5)


def on_native(model: str, bytecode: str, rounds: int) -> Iterator[Row]:
    """Measure a model natively and on NumPy, with an empty disk cache and a full one.

    A ratio is that of building the graph and the first call, in processes that take turns.
    """
    runs: dict[str, list[list[list[float]]]] = {"native": [], "numpy": []}
    for backend in runs:
        once(model, bytecode, WEFT_BACKEND=backend)
    for _ in range(rounds):
        for backend, found in runs.items():
            with TemporaryDirectory() as cache:
                variables = {"WEFT_CACHE": "1", "WEFT_CACHE_DIR": cache, "WEFT_BACKEND": backend}
                found.append([once(model, bytecode, **variables) for _ in range(2)])
    for place, what in enumerate(("first call", "warm cache")):
        totals = {
            backend: [sum(pair[place][:2]) for pair in pairs] for backend, pairs in runs.items()
        }
        ratio = statistics.median(
            one / other for one, other in zip(totals["native"], totals["numpy"], strict=True)
        )
        seconds = ", ".join(
            f"{backend} {statistics.median(each):.3g} s" for backend, each in totals.items()
        )
        yield Row(f"{what} native over numpy, {model}", ratio, "x", NATIVE_GOAL, seconds)


def benchmark(rounds: int) -> Iterator[Row]:
    """Measure each model."""
    with TemporaryDirectory() as bytecode:
        backend = os.environ.get("WEFT_BACKEND", "numpy")
        if backend != "numpy":
            measure = on_native if backend == "native" else on_device
            for model in GOALS:
                yield from measure(model, bytecode, max(rounds, 2))
            return
        for model, goal in GOALS.items():
            yield from without_cache(model, goal, bytecode, max(rounds, 2))
        yield from with_cache(bytecode, max(rounds, 2))


if __name__ == "__main__":
    main(benchmark, rounds=7)
