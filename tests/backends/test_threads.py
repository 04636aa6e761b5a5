"""How many threads a call runs in, and that results do not depend on them."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import ArgumentError, StateError
from weft.ops.pointwise.elementwise import ElementwiseOp
from weft_numpy.emitter import Emitter
from weft_numpy.rules.table import rules

pytestmark = pytest.mark.slow


def test_threads_default_to_the_processors_of_this_process(monkeypatch: Any) -> None:
    monkeypatch.delenv("WEFT_NUM_THREADS", raising=False)
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert weft.make_transformer("numpy").threads == available


def test_threads_from_the_environment(monkeypatch: Any) -> None:
    monkeypatch.setenv("WEFT_NUM_THREADS", "3")
    assert weft.make_transformer("numpy").threads == 3
    assert weft.make_transformer("numpy", threads=2).threads == 2


@pytest.mark.parametrize("threads", [0, -1, 1.5, "2", True])
def test_bad_threads_are_refused(threads: Any) -> None:
    with pytest.raises(ArgumentError, match="threads= takes a whole number, 1 or more"):
        weft.make_transformer("numpy", threads=threads)


@pytest.mark.parametrize("text", ["0", "-2", "two", "1.5"])
def test_bad_threads_in_the_environment_are_refused(monkeypatch: Any, text: str) -> None:
    monkeypatch.setenv("WEFT_NUM_THREADS", text)
    with pytest.raises(ArgumentError, match=f"WEFT_NUM_THREADS={text} is not a whole"):
        weft.make_transformer("numpy")


class ProbeOp(ElementwiseOp):
    """Copies; raises for negative numbers."""


def probe(x: Any, out: Any) -> None:
    if x.flat[0] < 0:
        raise ValueError("a negative number")
    np.copyto(out, x)


@pytest.fixture
def probing(monkeypatch: Any) -> None:
    def probe_rule(op: Any, emit: Emitter) -> None:
        emit.line(f"{emit.bind(probe, 'probe')}({emit.args[0]}, {emit.out})")

    monkeypatch.setitem(rules._rules, ProbeOp, probe_rule)


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


def called(result: Any, *parameters: Any, threads: int = 2) -> Any:
    """Return a computation, after a call with ones."""
    transformer = weft.make_transformer("numpy", cache=False, threads=threads)
    call = transformer.computation(result, *parameters)
    call(*(np.ones(each.axes.shape, np.float32) for each in parameters))
    return call


def chain(x: Any) -> Any:
    return weft.tanh(weft.exp(x) * 0.5)


@pytest.mark.parametrize(("threads", "is_shared"), [(1, False), (2, True)])
def test_loops_over_much_memory_are_shared_by_threads(threads: int, is_shared: bool) -> None:
    x = weft.placeholder((512, 512))
    assert ("parallel_for(" in called(chain(x), x, threads=threads).source) is is_shared


def test_loops_over_little_memory_have_one_thread() -> None:
    x = weft.placeholder((64, 64))
    assert "parallel_for(" not in called(chain(x), x).source


@pytest.mark.parametrize(("columns", "is_shared"), [(1, True), (256, False)])
def test_a_program_with_a_large_product_leaves_the_threads_to_blas(
    columns: int, is_shared: bool
) -> None:
    x, weights = weft.placeholder((500, 512)), weft.placeholder((512, columns))
    call = called([chain(x), weft.matmul(x, weights)], x, weights)
    assert ("parallel_for(" in call.source) is is_shared


def test_many_small_products_are_shared_by_threads() -> None:
    x, y = weft.placeholder((256, 32, 32)), weft.placeholder((256, 32, 32))
    assert "parallel_for(" in called(weft.exp(weft.matmul(x, y)), x, y).source


@pytest.mark.parametrize("threads", [1, 2])
def test_an_update_by_a_product_keeps_a_part_of_it_at_a_time(threads: int) -> None:
    x, given = weft.placeholder((64, 1024)), weft.placeholder((64, 1024))
    weights = weft.variable((1024, 1024), initial_value=np.zeros((1024, 1024), np.float32))
    update = weft.assign(weights, weights - 0.1 * weft.matmul(weft.transpose(x), given))
    call = called([update], x, given, threads=threads)
    assert call.plan.arena_size <= weights.axes.size * 4 / 2
    ones = np.ones((64, 1024), np.float32)
    call(ones, ones)
    np.testing.assert_allclose(call.transformer.get_value(weights), -12.8, rtol=1e-6)


@pytest.mark.parametrize("function", [weft.variance, weft.mean])
@pytest.mark.parametrize("shape", [(1_000_000,), (60_000,), (10_000, 30), (30, 10_000)])
def test_sums_do_not_depend_on_the_number_of_threads(function: Any, shape: Any) -> None:
    values = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    x = weft.placeholder(shape)
    found = {
        weft.make_transformer("numpy", threads=threads)
        .computation(function(x * 2, axis=0), x)(values)
        .tobytes()
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
