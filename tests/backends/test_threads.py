"""How many threads a call runs in, and what happens to BLAS meanwhile."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import weft
from weft.errors import ArgumentError, StateError
from weft.ops.pointwise.elementwise import ElementwiseOp
from weft_numpy import machine
from weft_numpy.blas_threads import SingleThreadedBlas, blas
from weft_numpy.emitter import Emitter
from weft_numpy.machine import Machine, this_machine
from weft_numpy.rules.table import rules
from weft_numpy.thread_pool import parallel_for

pytestmark = pytest.mark.slow


def test_threads_default_to_the_processors_of_this_process(monkeypatch: Any) -> None:
    monkeypatch.delenv("WEFT_NUM_THREADS", raising=False)
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert this_machine().threads == available
    assert weft.make_transformer("numpy").machine.threads == available


def test_threads_from_the_environment(monkeypatch: Any) -> None:
    monkeypatch.setenv("WEFT_NUM_THREADS", "3")
    assert weft.make_transformer("numpy").machine.threads == 3
    assert weft.make_transformer("numpy", threads=2).machine.threads == 2


@pytest.mark.parametrize("threads", [0, -1, 1.5, "2", True])
def test_bad_threads_are_refused(threads: Any) -> None:
    with pytest.raises(ArgumentError, match="threads= takes a whole number, 1 or more"):
        weft.make_transformer("numpy", threads=threads)


@pytest.mark.parametrize("text", ["0", "-2", "two", "1.5"])
def test_bad_threads_in_the_environment_are_refused(monkeypatch: Any, text: str) -> None:
    monkeypatch.setenv("WEFT_NUM_THREADS", text)
    with pytest.raises(ArgumentError, match=f"WEFT_NUM_THREADS={text} is not a whole"):
        weft.make_transformer("numpy")


def test_the_cache_size_is_that_of_the_second_level(tmp_path: Any, monkeypatch: Any) -> None:
    for number, (level, size) in enumerate([("1", "32K"), ("2", "768K"), ("3", "4096K")]):
        folder = tmp_path / f"index{number}"
        folder.mkdir()
        (folder / "level").write_text(f"{level}\n")
        (folder / "size").write_text(f"{size}\n")
    monkeypatch.setattr(machine, "_CACHES", tmp_path)
    assert this_machine(2).cache == 768 * 1024
    monkeypatch.setattr(machine, "_CACHES", tmp_path / "nowhere")
    assert this_machine(2).cache == machine.DEFAULT_CACHE


class Library:
    """A BLAS, as threadpoolctl shows one."""

    def __init__(self, threads: int) -> None:
        self.num_threads = threads

    def set_num_threads(self, threads: int) -> None:
        self.num_threads = threads


@pytest.fixture
def two_libraries() -> tuple[SingleThreadedBlas, list[Library]]:
    own, libraries = SingleThreadedBlas(), [Library(4), Library(1)]
    own._libraries = libraries
    return own, libraries


def counts(libraries: list[Library]) -> list[int]:
    return [library.num_threads for library in libraries]


def test_blas_has_one_thread_during_a_call(two_libraries: Any) -> None:
    own, libraries = two_libraries
    seen: list[Any] = []
    own.during(lambda *args: seen.append((args, counts(libraries))), 1, 2)
    assert seen == [((1, 2), [1, 1])]
    assert counts(libraries) == [4, 1]


def test_blas_is_restored_after_an_error(two_libraries: Any) -> None:
    own, libraries = two_libraries
    with pytest.raises(ZeroDivisionError):
        own.during(lambda: 1 // 0)  # type: ignore[arg-type]
    assert counts(libraries) == [4, 1]


def test_blas_is_limited_by_the_next_call_if_that_failed(two_libraries: Any) -> None:
    own, libraries = two_libraries
    own._libraries = [SimpleNamespace(), *libraries]
    with pytest.raises(AttributeError):
        own.during(lambda: None)
    own._libraries = libraries
    seen: list[int] = []
    own.during(lambda: seen.extend(counts(libraries)))
    assert seen == [1, 1]
    assert counts(libraries) == [4, 1]


def test_the_last_of_several_calls_restores_blas(two_libraries: Any) -> None:
    own, libraries = two_libraries
    inside, release = threading.Event(), threading.Event()

    def wait() -> None:
        inside.set()
        assert release.wait(30)

    other = threading.Thread(target=own.during, args=(wait,))
    other.start()
    assert inside.wait(30)
    own.during(lambda: None)
    assert counts(libraries) == [1, 1]
    release.set()
    other.join(30)
    assert counts(libraries) == [4, 1]


def test_blas_is_limited_and_restored_in_any_thread() -> None:
    """The last call ends in another thread than the one that limited it."""
    own, seen = SingleThreadedBlas(), []
    own.during(lambda: None)
    libraries: Any = own._libraries
    inside, release = threading.Event(), threading.Event()

    def wait() -> None:
        inside.set()
        assert release.wait(30)
        seen.extend(counts(libraries))

    with threadpool_limits(2, user_api="blas"):
        before = counts(libraries)
        for first_out in (True, False):
            other = threading.Thread(target=own.during, args=(wait,))
            if first_out:
                own.during(other.start)
            else:
                other.start()
            assert inside.wait(30)
            release.set()
            other.join(30)
            assert counts(libraries) == before
    assert set(seen) <= {1}


def test_a_fork_restores_blas_in_the_child(two_libraries: Any) -> None:
    own, libraries = two_libraries
    own.during(own._forget)
    assert counts(libraries) == [4, 1]
    seen: list[int] = []
    own.during(lambda: seen.extend(counts(libraries)))
    assert seen == [1, 1]


class ProbeOp(ElementwiseOp):
    """Copies, and notes with how many threads of BLAS; raises for negative numbers."""


seen_counts: list[int] = []


def probe(x: Any, out: Any) -> None:
    seen_counts.extend(library.num_threads for library in blas._libraries or ())
    if x.flat[0] < 0:
        raise ValueError("a negative number")
    np.copyto(out, x)


@pytest.fixture
def probing(monkeypatch: Any) -> None:
    def probe_rule(op: Any, emit: Emitter) -> None:
        emit.line(f"{emit.bind(probe, 'probe')}({emit.args[0]}, {emit.out})")

    monkeypatch.setitem(rules._rules, ProbeOp, probe_rule)
    seen_counts.clear()


def blas_counts() -> list[int]:
    return [library.num_threads for library in blas._libraries or ()]


@pytest.mark.usefixtures("probing")
def test_a_program_that_shares_work_runs_with_one_thread_of_blas() -> None:
    x = weft.placeholder((300, 1000))
    y = ProbeOp(weft.exp(weft.tanh(x)))
    call = weft.make_transformer("numpy", threads=2).computation(y, x)
    call(np.ones((300, 1000), np.float32))
    assert seen_counts
    assert set(seen_counts) <= {1}
    assert blas._users == 0


@pytest.mark.usefixtures("probing")
@pytest.mark.parametrize("size", [10, 300_000])
def test_errors_in_kernels_show_the_statement_and_the_line_of_the_user(size: int) -> None:
    x = weft.placeholder((size,))
    y = weft.exp(ProbeOp(weft.tanh(x)))
    call = weft.make_transformer("numpy", threads=2).computation(y, x)
    for _ in range(3):
        with pytest.raises(ValueError, match="a negative number") as caught:
            call(np.full(size, -1, np.float32))
        notes = "\n".join(caught.value.__notes__)
        assert "in generated code: probe(" in notes
        assert "y = weft.exp(ProbeOp(weft.tanh(x)))" in notes
    assert call(np.ones(size, np.float32)).shape == (size,)


MACHINE = Machine(threads=2, cache=2**20, blas_threads=2)


def called(result: Any, *parameters: Any, machine: Machine = MACHINE) -> Any:
    """Return a computation for a machine, after a call with ones."""
    transformer = weft.make_transformer("numpy", cache=False)
    transformer.machine = machine
    call = transformer.computation(result, *parameters)
    call(*(np.ones(each.axes.shape, np.float32) for each in parameters))
    return call


def layer(rows: int) -> Any:
    x, weights = weft.placeholder((rows, 512)), weft.placeholder((512, 512))
    return called(weft.relu(weft.matmul(x, weights)), x, weights)


def shares_in_pool(call: Any) -> bool:
    return "parallel_for(" in call.source


def blas_is_held(call: Any) -> bool:
    """Whether BLAS has one thread while a program runs."""
    return parallel_for in call.program.code.names.values()


def test_products_with_little_after_them_are_left_to_the_threads_of_blas() -> None:
    call = layer(512)
    assert not shares_in_pool(call)
    assert not blas_is_held(call)


def test_products_with_much_after_them_are_shared_in_the_pool() -> None:
    x, weights = weft.placeholder((512, 512)), weft.placeholder((512, 512))
    y = weft.matmul(x, weights)
    for _ in range(6):
        y = weft.tanh(weft.sin(y))
    call = called(y, x, weights)
    assert shares_in_pool(call)
    assert blas_is_held(call)


def test_small_products_have_one_thread_of_blas() -> None:
    call = layer(8)
    assert not shares_in_pool(call)
    assert blas_is_held(call)


def test_the_smallest_products_take_no_care_of_blas() -> None:
    x, weights = weft.placeholder((8, 16)), weft.placeholder((16, 8))
    assert not blas_is_held(called(weft.matmul(x, weights), x, weights))


def test_a_blas_with_other_threads_than_asked_for_is_left_out() -> None:
    x, weights = weft.placeholder((512, 512)), weft.placeholder((512, 512))
    other = Machine(threads=2, cache=2**20, blas_threads=8)
    assert shares_in_pool(called(weft.matmul(x, weights), x, weights, machine=other))


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, 4),
        ({"OPENBLAS_NUM_THREADS": "1"}, 1),
        ({"OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "3"}, 3),
        ({"OMP_NUM_THREADS": "64"}, 4),
        ({"OMP_NUM_THREADS": "many"}, 4),
    ],
)
def test_the_environment_tells_the_threads_of_blas(
    monkeypatch: Any, variables: dict[str, str], expected: int
) -> None:
    for name in machine.BLAS_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    monkeypatch.setattr(machine, "available_processors", lambda: 4)
    assert this_machine(1).blas_threads == expected


@pytest.mark.parametrize("threads", [1, 2])
def test_an_update_by_a_product_keeps_a_part_of_it_at_a_time(threads: int) -> None:
    x, given = weft.placeholder((64, 1024)), weft.placeholder((64, 1024))
    weights = weft.variable((1024, 1024), initial_value=np.zeros((1024, 1024), np.float32))
    update = weft.assign(weights, weights - 0.1 * weft.matmul(weft.transpose(x), given))
    machine = Machine(threads, cache=2**20)
    call = called([update], x, given, machine=machine)
    assert call.plan.arena_size <= weights.axes.size * 4 / 2
    ones = np.ones((64, 1024), np.float32)
    call(ones, ones)
    np.testing.assert_allclose(call.transformer.get_value(weights), -12.8, rtol=1e-6)


def test_sums_do_not_depend_on_the_number_of_threads() -> None:
    values = np.random.default_rng(0).standard_normal(1_000_000).astype(np.float32)
    x = weft.placeholder((1_000_000,))
    found = {
        weft.make_transformer("numpy", threads=threads)
        .computation(weft.variance(x), x)(values)
        .item()
        for threads in (1, 2, 3, 4)
        for _ in range(3)
    }
    assert len(found) == 1


def test_sums_of_many_floats_are_nearly_exact() -> None:
    values = np.random.default_rng(0).random(3_000_001, np.float32)
    x = weft.placeholder(values.shape)
    total, spread = weft.make_transformer("numpy").computation(
        [weft.sum(x), weft.variance(x + 10)], x
    )(values)
    exact = values.astype(np.float64)
    np.testing.assert_allclose(total, exact.sum(), rtol=1e-6)
    np.testing.assert_allclose(spread, (values + np.float32(10)).astype("f8").var(), rtol=1e-6)


def test_closing_while_calls_run() -> None:
    x = weft.placeholder((300, 1000))
    transformer = weft.make_transformer("numpy", threads=2)
    call = transformer.computation(weft.softmax(weft.tanh(x)), x)
    values = np.ones((300, 1000), np.float32)
    expected = call(values)
    started = threading.Barrier(3)
    found: list[Any] = []

    def calls() -> None:
        started.wait(30)
        try:
            while True:
                found.append(call(values))
        except StateError as error:
            found.append(error)

    callers = [threading.Thread(target=calls) for _ in range(2)]
    for each in callers:
        each.start()
    started.wait(30)
    transformer.close()
    for each in callers:
        each.join(30)
    errors = [each for each in found if isinstance(each, StateError)]
    assert len(errors) == 2
    for each in found:
        assert each in errors or np.array_equal(each, expected)


def kernels_in(text: str) -> Iterator[str]:
    return (line.strip() for line in text.splitlines())


def test_the_source_shows_each_statement_under_the_line_of_the_user() -> None:
    x = weft.placeholder((300, 1000))
    doubled = x * 2
    bent = weft.tanh(doubled)
    call = weft.make_transformer("numpy", threads=2).computation(bent + x, x)
    call(np.ones((300, 1000), np.float32))
    lines = list(kernels_in(call.source))
    here = "test_threads.py:"
    for number, statement, user in (
        (0, "multiply(", "doubled = x * 2"),
        (1, "tanh(", "bent = weft.tanh(doubled)"),
        (2, "add(", "computation(bent + x, x)"),
    ):
        place = next(i for i, line in enumerate(lines) if line.startswith(statement))
        assert lines[place - 1].startswith(f"# {here}"), number
        assert lines[place - 1].endswith(user)
