"""Loaded libraries: each goes with its last user, and never before."""

from __future__ import annotations

import gc
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import weft
from weft.errors import StateError
from weft_native import shared_library
from weft_native.shared_library import load
from weft_native.transformer import NativeTransformer

pytestmark = [pytest.mark.slow, pytest.mark.needs("compiler")]

TEXT = '__attribute__((visibility("default"))) int answer(void) {{ return {}; }}'
VALUES = np.linspace(-1, 1, 5, dtype=np.float32)


@pytest.fixture
def nothing_recent(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keep no library that nobody uses."""
    monkeypatch.setattr(shared_library, "_recent", deque(maxlen=0))
    yield
    gc.collect()


def mappings() -> int:
    """Return the mappings that this process has of libraries that were compiled."""
    return Path("/proc/self/maps").read_text().count(".scratch/program.so")


def doubled(transformer: NativeTransformer, number: int) -> weft.Computation:
    x = weft.placeholder((5,))
    return transformer.computation(weft.tanh(x) * (number + 0.25), x)


def result(number: int) -> np.ndarray:
    return np.tanh(VALUES.astype(np.float64)) * (number + 0.25)


@pytest.mark.long
@pytest.mark.needs("linux")
def test_closed_graphs_leave_no_mappings(nothing_recent: None) -> None:
    counts = []
    for number in range(12):
        with NativeTransformer() as transformer:
            found = doubled(transformer, number)(VALUES)
        np.testing.assert_allclose(found, result(number), rtol=1e-5)
        del transformer
        gc.collect()
        counts.append(mappings())
    assert len(set(counts)) == 1, counts


@pytest.mark.long
@pytest.mark.needs("linux")
def test_many_closed_graphs_leave_few_mappings() -> None:
    counts = []
    for number in range(100):
        with NativeTransformer() as transformer:
            doubled(transformer, number)(VALUES)
        counts.append(mappings())
    assert max(counts[50:]) <= max(counts[:50]) + 10, counts[::10]


@pytest.mark.needs("linux")
def test_a_library_is_loaded_as_long_as_a_function_of_it_is_held(nothing_recent: None) -> None:
    gc.collect()
    before = mappings()
    library = load(TEXT.format(7), "a test", ["answer"])
    function = library["answer"]
    del library
    gc.collect()
    assert function() == 7
    assert load(TEXT.format(7), "a test", ["answer"])["answer"]() == 7
    assert mappings() > before
    del function
    gc.collect()
    assert mappings() == before
    assert load(TEXT.format(7), "a test", ["answer"]).answer() == 7


def test_a_call_that_is_held_outlives_its_transformer(nothing_recent: None) -> None:
    transformer = NativeTransformer()
    computation = doubled(transformer, 3)
    np.testing.assert_allclose(computation(VALUES), result(3), rtol=1e-5)
    run = computation.program.run
    out = np.empty(5, np.float32)
    run(VALUES, out)
    np.testing.assert_allclose(out, result(3), rtol=1e-5)
    transformer.close()
    del computation, transformer
    gc.collect()
    with pytest.raises(StateError):
        run(VALUES, out)


@pytest.mark.long
def test_libraries_come_and_go_while_others_run(nothing_recent: None) -> None:
    x = weft.placeholder((300, 40))
    wide = np.linspace(-1, 1, 12000, dtype=np.float32).reshape(300, 40)
    steady = NativeTransformer(threads=2)
    running = steady.computation(weft.softmax(x @ weft.transpose(x)), x)
    expected = running(wide)
    problems: list[BaseException] = []
    is_over = threading.Event()

    def call() -> None:
        try:
            while not is_over.is_set():
                np.testing.assert_array_equal(running(wide), expected)
        except BaseException as error:
            problems.append(error)

    def come_and_go(first: int) -> None:
        try:
            for number in range(first, first + 12):
                with NativeTransformer(threads=2) as transformer:
                    found = doubled(transformer, number % 5)(VALUES)
                    np.testing.assert_allclose(found, result(number % 5), rtol=1e-5)
                del transformer
                gc.collect()
        except BaseException as error:
            problems.append(error)

    callers = [threading.Thread(target=call) for _ in range(2)]
    others = [threading.Thread(target=come_and_go, args=(first,)) for first in (0, 2, 4)]
    for each in (*callers, *others):
        each.start()
    for each in others:
        each.join()
    is_over.set()
    for each in callers:
        each.join()
    steady.close()
    assert problems == []
