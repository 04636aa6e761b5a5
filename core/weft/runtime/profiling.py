"""Runs a computation with time stamps, and measures the rates of a machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.cache.store import is_off, open_cache
from weft.errors import WeftError
from weft.ir import scope
from weft.ir.dtypes import Array, float32
from weft.ir.graph import Graph
from weft.ir.storage import placeholder
from weft.ops.arguments import checked_integer
from weft.ops.products.linalg import matmul
from weft.report.profile import Profile, Rates, make_rows
from weft.report.progress import Stage
from weft.report.recorder import Event, Recorder, Recording
from weft.support.digest import digest_of
from weft.transforms.capture import capture

if TYPE_CHECKING:
    from weft.runtime.computation import Computation
    from weft.runtime.transformer import Transformer


COPY_SIZE, PRODUCT_SIZE = 1 << 24, 1024
"""The elements of the largest array that is copied, and the order of matrices in a product."""

COPIES = 5
"""The sizes of arrays that are copied, each an eighth of the one before: caches are faster."""

ROUNDS, MOST_ROUNDS, GAIN = 10, 50, 1.02
"""The runs in a row of which the fastest counts, and how many follow while it still gets faster.

What else runs on the machine makes a run slower, never faster.
"""

WARM_UP = 2
"""The calls before those that are measured: a first call may load code or capture launches."""


_Call = tuple[float, float, Recording]


def profile(
    computation: Computation, graph: Graph, arrays: Sequence[Array], repeat: int
) -> Profile:
    """Return the profile of a computation's graph, with all lengths known, for some arguments."""
    transformer = computation.transformer
    repeat = checked_integer("profile", "repeat", repeat, low=1)
    recorder = Recorder()
    recorded = transformer.inspection(graph, recorder)
    one_thread: list[_Call] = []
    try:
        with transformer.state_lock, _states_kept(transformer, graph):
            calls = _recorded_calls(recorded, recorder, arrays, repeat)
            ordinary = sorted(_seconds(lambda: computation(*arrays)) for _ in range(repeat))
            context = transformer.on_one_thread()
            if context is not None:
                with context:
                    one_thread = _recorded_calls(recorded, recorder, arrays, repeat)
        rates = machine_rates(transformer)
        plan = recorded.program.plan
    finally:
        transformer.discard([recorded])
    fastest = _faster_half(calls)
    recordings = [recording for _, _, recording in fastest]
    rows = make_rows(
        recorder.rows,
        plan,
        _seconds_of_rows(fastest),
        [_mean(each) for each in zip(*(r.counts for r in recordings), strict=True)],
        _seconds_of_rows(_faster_half(one_thread)) if one_thread else None,
    )
    start, end, shown = fastest[-1]
    return Profile(
        computation=computation.name,
        backend=transformer.transformer_name,
        device=transformer.device_name,
        repeat=repeat,
        wall=_mean([end - start for start, end, _ in fastest]),
        call=end - start,
        ordinary=_mean(ordinary[: len(fastest)]),
        rows=rows,
        rates=rates,
        threads=transformer.threads,
        events=tuple(Event(row, a - start, b - start) for row, a, b in shown.events),
    )


def _faster_half(calls: Sequence[_Call]) -> list[_Call]:
    return sorted(calls, key=lambda call: call[1] - call[0])[: (len(calls) + 1) // 2]


def _seconds_of_rows(calls: Sequence[_Call]) -> list[float]:
    return [_mean(each) for each in zip(*(r.seconds for *_, r in calls), strict=True)]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _recorded_calls(
    recorded: Computation, recorder: Recorder, arrays: Sequence[Array], repeat: int
) -> list[_Call]:
    """Return start, end and recording of each call."""
    calls = []
    with Stage(f"calling {recorded.graph.name}", WARM_UP + repeat) as stage:
        for number in range(WARM_UP + repeat):
            start = perf_counter()
            recorded(*arrays)
            end = perf_counter()
            recording = recorder.take()
            if number >= WARM_UP:
                calls.append((start, end, recording))
            stage.advance()
    return calls


def _seconds(call: Callable[[], object]) -> float:
    start = perf_counter()
    call()
    return perf_counter() - start


@contextmanager
def _states_kept(transformer: Transformer, graph: Graph) -> Iterator[None]:
    """Give the states that a graph updates their values back at the end."""
    tensors = [transformer.state_tensors[state] for state, _ in graph.updates]
    before = [tensor.get() for tensor in tensors]
    try:
        yield
    finally:
        for tensor, value in zip(tensors, before, strict=True):
            tensor[...] = value


def machine_rates(transformer: Transformer) -> Rates:
    """Return the rates of copies and of a matrix product on a transformer's device.

    They are measured once, and kept in the cache folder.
    """
    name = f"{transformer.transformer_name}\n{transformer.device_name}\n{transformer.threads}"
    key = digest_of(f"rates\n{COPY_SIZE}\n{COPIES}\n{PRODUCT_SIZE}\n{name}".encode())
    if key in _known:
        return _known[key]
    import json  # most programs measure nothing

    content = None if is_off() else open_cache().read(key)
    if content is None:
        with Stage("measuring copies and a matrix product"):
            rates = _measured(transformer)
        if rates.copies and rates.matmul and not is_off():
            open_cache().write(key, json.dumps([rates.copies, rates.matmul]).encode())
    else:
        copies, product = json.loads(content)
        rates = Rates(tuple(map(tuple, copies)), product)
    return _known.setdefault(key, rates)


_known: dict[str, Rates] = {}
"""The rates that this process has measured or read."""


def _measured(transformer: Transformer) -> Rates:
    sizes = [COPY_SIZE >> 3 * number for number in range(COPIES)]
    rates = [(8 * size, _copy_rate(transformer, size)) for size in sizes]
    copies = tuple((nbytes, rate) for nbytes, rate in rates if rate is not None)
    return Rates(copies, _matmul_rate(transformer))


def _copy_rate(transformer: Transformer, size: int) -> float | None:
    x = placeholder((size,), dtype=float32)
    return _rate(transformer, x, [x], 2 * size * 4)


def _matmul_rate(transformer: Transformer) -> float | None:
    x, y = (placeholder((PRODUCT_SIZE, PRODUCT_SIZE), dtype=float32) for _ in range(2))
    return _rate(transformer, matmul(x, y), [x, y], 2 * PRODUCT_SIZE**3)


def _rate(transformer: Transformer, result: Any, parameters: list[Any], work: int) -> float | None:
    """Return the work of a computation over the least time of its launches.

    None if it fails, or takes no time that the clock shows.
    """
    recorder = Recorder()
    arrays = [np.ones(op.axes.shape, np.float32) for op in parameters]
    with suppress(WeftError, MemoryError), scope.saved_user_deps():
        graph = capture([result], parameters, "machine_rate")
        computation = transformer.inspection(graph, recorder)
        try:
            least, before, rounds = _least_time(computation, recorder, arrays), np.inf, ROUNDS
            while least * GAIN < before and rounds < MOST_ROUNDS:
                before, rounds = least, rounds + ROUNDS
                least = min(least, _least_time(computation, recorder, arrays))
        finally:
            transformer.discard([computation])
        return work / least if least else None
    return None


def _least_time(computation: Computation, recorder: Recorder, arrays: Sequence[Array]) -> float:
    calls = _recorded_calls(computation, recorder, arrays, ROUNDS)
    return min(sum(recording.seconds) for *_, recording in calls)
