"""A batch is computed as the call of its number, in any order and by any worker."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft.distributed import map as weft_map
from weft.distributed.counters import counters_of
from weft.errors import ArgumentError

pytest.importorskip("safetensors")


def counter(dtype: str = "int32", initial: Any = 3) -> Any:
    """Return a state that the tests count with."""
    return weft.persistent_tensor((), dtype, initial_value=initial, name="counter")


def counted(added: Any, dtype: str = "int32", initial: Any = 3) -> Any:
    """Return the value of a state before something is added to it."""
    state = counter(dtype, initial)
    before = weft.value_of(state)
    return [before, weft.assign(state, weft.cast(state + added, dtype))]


def noise() -> Any:
    """Return a graph with random numbers."""
    x = weft.placeholder((4,))
    return weft.capture([x * weft.normal((4,)) + weft.dropout(x, 0.5)], [x])


def nested() -> Any:
    """Return a graph that calls one in a loop."""
    x, graph = weft.placeholder((4,)), noise()
    with weft.saved_user_deps():
        return weft.capture(weft.loop(graph, 3, *weft.call(graph, x)), [x])


COUNTING: dict[str, Callable[[Any], Any]] = {
    "random": lambda x: [weft.uniform((4,)), weft.dropout(x, 0.5), weft.normal((4,), seed=1)],
    "twice": lambda x: weft.uniform((4,), stream=1) + weft.uniform((4,), stream=1),
    "called": lambda x: weft.call(noise(), *weft.call(graph := noise(), *weft.call(graph, x))),
    "repeated": lambda x: weft.loop(noise(), 5, x),
    "nested": lambda x: weft.loop(nested(), 2, x),
    "step": lambda x: counted(7),
    "downwards": lambda x: counted(-5),
    "overflow": lambda x: counted(100, "int8", 120),
    "below zero": lambda x: counted(-1, "int64", -(2**63) + 2),
}


@pytest.mark.parametrize("case", COUNTING)
def test_batches_are_computed_as_calls_one_after_the_other(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_BACKEND", "numpy")  # of the processes that load the file
    x = weft.placeholder((4,))
    transformer = weft.make_transformer("numpy")
    computation = transformer.computation(COUNTING[case](x), x)
    batches = [np.full(4, number, np.float32) for number in range(9)]
    computation(batches[0])  # the calls of batches come after those that there were
    computation.save(tmp_path / "a.weft", states=True)
    with ThreadPoolExecutor(4) as threads:
        mapped = list(weft_map(computation, batches, threads))
        rest = list(weft_map(tmp_path / "a.weft", batches[6:], threads, start=6))
    expected = [computation(batch) for batch in batches]
    for found, wanted in zip([*mapped, *rest], [*expected, *expected[6:]], strict=True):
        for one, other in zip(leaves(found), leaves(wanted), strict=True):
            np.testing.assert_array_equal(one, other)
    assert len({repr(each) for each in expected}) == len(expected)


def leaves(results: Any) -> list[Any]:
    several = results if isinstance(results, tuple) else (results,)
    return [each for each in several if each is not None]


def in_branch(x: Any) -> Any:
    """Return a result of a conditional, one branch of which counts."""
    state, y = counter(), weft.placeholder((4,))
    with weft.saved_user_deps():
        counting = weft.capture([weft.assign(state, state + 1), y * 2], [y])
    return weft.cond(weft.sum(x) > 0, counting, weft.capture([y], [y]), [x], [x])


def exchanged(x: Any) -> Any:
    """Return a state that is written with another one."""
    first, second = counter(), counter()
    with weft.saved_user_deps():
        values = [weft.value_of(second + 1), weft.value_of(first + 1)]
        return [weft.assign(first, values[0]), weft.assign(second, values[1])]


OTHERS: dict[str, Callable[[Any], Any]] = {
    "doubled": lambda x: counted(counter()),
    "by an argument": lambda x: counted(weft.cast(weft.sum(x), "int32")),
    "float": lambda x: counted(1.0, "float32", 0.0),
    "exchanged": exchanged,
    "in a branch": in_branch,
}


@pytest.mark.parametrize("case", OTHERS)
def test_what_does_not_follow_from_the_number_of_calls_is_refused(case: str) -> None:
    x = weft.placeholder((4,))
    computation = weft.make_transformer("numpy").computation(OTHERS[case](x), x)
    assert counters_of(computation.graph) == {}
    with ThreadPoolExecutor(1) as threads, pytest.raises(ArgumentError, match="writes states"):
        weft_map(computation, [], threads)


def test_what_needs_other_ranks_is_refused() -> None:
    x = weft.placeholder((4,))
    total = weft.AllReduceOp(x, communicator="mpi", ranks=2, reduction="sum")
    computation = weft.make_transformer("numpy").computation(total, x)
    with (
        ThreadPoolExecutor(1) as threads,
        pytest.raises(ArgumentError, match="workers of an executor are not ranks") as caught,
    ):
        weft_map(computation, [], threads)
    assert "test_counters.py" in str(caught.value)
