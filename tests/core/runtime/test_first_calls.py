"""Threads that make the first call of a computation at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import weft

PATIENCE = 60
"""Seconds after which a thread that should have gone on is taken to be stuck."""


class WatchedLock:
    """A lock that tells when another thread comes to it."""

    def __init__(self, lock: Any) -> None:
        self.lock = lock
        self.watcher = threading.get_ident()
        self.reached = threading.Event()

    def __enter__(self) -> None:
        if threading.get_ident() != self.watcher:
            self.reached.set()
        self.lock.acquire()

    def __exit__(self, *error: object) -> None:
        self.lock.release()


@pytest.fixture
def lock(transformer: Any) -> WatchedLock:
    transformer.state_lock = WatchedLock(transformer.state_lock)
    return transformer.state_lock  # type: ignore[no-any-return]


def call_in_another(computation: Any, lock: WatchedLock) -> Future[Any]:
    """Call in another thread, and return when that one has come to the lock or has finished."""
    pool = ThreadPoolExecutor(1)
    result = pool.submit(computation)
    result.add_done_callback(lambda _: lock.reached.set())
    assert lock.reached.wait(PATIENCE)
    pool.shutdown(wait=False)
    return result


def counter() -> Any:
    count = weft.variable((3,), initial_value=0)
    weft.assign(count, count + 1)
    return count


def test_threads_that_call_first_compile_once(
    transformer: weft.Transformer, lock: WatchedLock, monkeypatch: pytest.MonkeyPatch
):
    computation = transformer.computation(counter())
    compiled = []
    transform = transformer.transform_ordered_ops
    monkeypatch.setattr(
        transformer,
        "transform_ordered_ops",
        lambda program, ops, name: compiled.append(name) or transform(program, ops, name),
    )
    with lock:
        second = call_in_another(computation, lock)
        first = computation()
    assert first.tolist() == [1, 1, 1]
    assert second.result(PATIENCE).tolist() == [2, 2, 2]
    assert len(compiled) == len(set(compiled))


def product() -> tuple[Any, Any]:
    """Return what takes working memory and a constant."""
    x = weft.placeholder((40, 40))
    return x @ x @ np.full((40, 40), 0.5, np.float32), x


@pytest.mark.parametrize("step", ["finish_transform", "allocate_storage", "allocate"])
@pytest.mark.parametrize(
    ("parts", "argument", "wanted"),
    [
        (lambda: (counter(),), (), {1, 2}),
        (product, (np.ones((40, 40), np.float32),), {800}),
    ],
    ids=["state", "no-state"],
)
def test_a_call_waits_for_the_thread_that_compiles(
    transformer: weft.Transformer,
    lock: WatchedLock,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    parts: Callable[..., Any],
    argument: tuple[Any, ...],
    wanted: set[int],
):
    computation = transformer.computation(*parts())
    original = getattr(transformer, step)
    others = []

    def interrupted(*args: Any):
        if not others:
            others.append(call_in_another(lambda: computation(*argument), lock))
        return original(*args)

    with monkeypatch.context() as patch:
        patch.setattr(transformer, step, interrupted)
        first = computation(*argument)
    both = np.stack([first, others[0].result(PATIENCE)])
    assert set(both.ravel().tolist()) == wanted
    assert np.ptp(both.reshape(2, -1), axis=1).tolist() == [0, 0]


@pytest.mark.parametrize("step", ["finish_transform", "allocate_storage"])
def test_a_state_is_ready_when_another_thread_asks_for_it(
    transformer: weft.Transformer, lock: WatchedLock, monkeypatch: pytest.MonkeyPatch, step: str
):
    state = counter()
    computation = transformer.computation(state)
    original = getattr(transformer, step)
    values = []

    def interrupted():
        if not values:
            values.append(call_in_another(lambda: transformer.get_value(state), lock))
        return original()

    with monkeypatch.context() as patch:
        patch.setattr(transformer, step, interrupted)
        with lock:
            computation()
    assert values[0].result(PATIENCE).tolist() == [1, 1, 1]
