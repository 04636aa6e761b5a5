"""Streams that are used different numbers of times in a run, and how their data are laid out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft_popxl as popxl
from weft_popxl import ops


def rows(count: int, *shape: int, start: float = 0.0) -> Any:
    """Return different numbers, `count` slices of a shape."""
    size = count * int(np.prod(shape))
    return np.arange(start, start + size, dtype=np.float32).reshape(count, *shape)


def summed(ir: popxl.Ir, stream: popxl.HostToDeviceStream, count: int) -> popxl.Tensor:
    """Return the sum of slices that a repeated graph loads."""

    def step(total: popxl.Tensor) -> popxl.Tensor:
        return total + ops.host_load(stream)

    begun = ops.init(stream.shape, stream.dtype)
    graph = ir.create_graph(step, begun)
    (total,) = ops.repeat(graph, count, begun)
    return total


@pytest.mark.parametrize("transfers", [1, 4])
def test_four_loads_and_one_store(transfers: int, backend: str) -> None:
    ir = popxl.Ir()
    ir.num_host_transfers = transfers
    with ir.main_graph:
        source = popxl.h2d_stream((2,), popxl.float32)
        loss = popxl.d2h_stream((), popxl.float32)
        ops.host_store(loss, ops.mean(summed(ir, source, 4)))
    data = rows(4, 2)
    with popxl.Session(ir, backend) as session:
        assert session.create_host_outputs()[loss].shape == ()
        for _ in range(2):
            assert session.run({source: data})[loss] == data.sum(0).mean()


def three_and_five(transfers: int) -> tuple[popxl.Ir, list[Any]]:
    """Return a program that loads one stream 3 times and another 5 times."""
    ir = popxl.Ir()
    ir.num_host_transfers = transfers
    with ir.main_graph:
        a, b = (popxl.h2d_stream((2,), popxl.float32, name) for name in "ab")
        sink = popxl.d2h_stream((2,), popxl.float32)
        ops.host_store(sink, summed(ir, a, 3))
        ops.host_store(sink, summed(ir, b, 5))
    return ir, [a, b, sink]


@pytest.mark.parametrize(
    ("transfers", "of_a", "of_b"), [(1, 3, 5), (5, 3, 5), (5, 5, 5), (10, 5, 5), (10, 10, 10)]
)
def test_each_stream_has_its_own_number(transfers: int, of_a: int, of_b: int) -> None:
    ir, (a, b, sink) = three_and_five(transfers)
    first, second = rows(of_a, 2), rows(of_b, 2, start=100)
    with popxl.Session(ir) as session:
        found = session.run({a: first, b: second})[sink]
    np.testing.assert_array_equal(found, [first[:3].sum(0), second[:5].sum(0)])


REFUSED: dict[str, tuple[int, tuple[int, ...], str]] = {
    "too few": (1, (2, 2), r"shape \(3, 2\): the ops of a run use it 3 times; not \(2, 2\)"),
    "too many": (1, (4, 2), r"shape \(3, 2\): the ops"),
    "more than all": (5, (6, 2), r"shape \(3, 2\), or up to 5 slices: the ops"),
    "too few of more": (5, (2, 2), "or up to 5 slices"),
    "one": (1, (2,), r"not \(2,\)"),
    "other slices": (5, (3, 3), r"not \(3, 3\)"),
    "one more axis": (5, (3, 1, 2), r"not \(3, 1, 2\)"),
    "nothing": (5, (0, 2), r"not \(0, 2\)"),
    "scalar": (5, (), r"not \(\)"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_other_numbers_of_slices_are_refused(case: str) -> None:
    transfers, shape, message = REFUSED[case]
    ir, (a, b, _) = three_and_five(transfers)
    with popxl.Session(ir) as session, pytest.raises(ValueError, match=f"input of .*{message}"):
        session.run({a: np.ones(shape, np.float32), b: rows(5, 2)})


def test_a_stream_that_is_loaded_twice_in_each_round_of_another(backend: str) -> None:
    count = 5
    ir = popxl.Ir()
    ir.num_host_transfers = 2 * count
    with ir.main_graph:
        once, twice = (popxl.h2d_stream((2, 2), popxl.float32) for _ in range(2))
        sink = popxl.d2h_stream((2, 2), popxl.float32)
        graph = ir.create_empty_graph("round")
        with graph, popxl.in_sequence():
            x, y, z = (ops.host_load(stream) for stream in (once, twice, twice))
            ops.host_store(sink, x + 10 * y + 100 * z)
        ops.repeat(graph, count)
    data = rows(2 * count, 2, 2)
    wanted = data[:count] + 10 * data[::2] + 100 * data[1::2]
    with popxl.Session(ir, backend) as session:
        outputs = {sink: np.full((2 * count, 2, 2), -1, np.float32)}
        session.run_with_outputs({once: data, twice: data}, outputs)
        np.testing.assert_array_equal(outputs[sink][:count], wanted)
        assert (outputs[sink][count:] == -1).all()
        own = {sink: np.zeros((count, 2, 2), np.float32)}
        session.run_with_outputs({once: data[:count], twice: data}, own)
        np.testing.assert_array_equal(own[sink], wanted)
        for wrong in ((count - 1, 2, 2), (2 * count + 1, 2, 2), (2, 2)):
            with pytest.raises(ValueError, match=r"output of .* must have the shape \(5, 2, 2\)"):
                session.run_with_outputs({once: data, twice: data}, {sink: np.zeros(wrong, "f4")})


SHAPES: dict[str, Callable[[Any], Any]] = {
    "a number": lambda x: x.item(),
    "a scalar": lambda x: x.reshape(()),
    "an axis": lambda x: x.reshape(1),
    "two axes": lambda x: x.reshape(1, 1),
    "a list": lambda x: [x.item()],
}


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)], ids=str)
@pytest.mark.parametrize("form", SHAPES)
def test_arrays_of_one_element(form: str, shape: tuple[int, ...]) -> None:
    ir = popxl.Ir()
    with ir.main_graph:
        source = popxl.h2d_stream(shape, popxl.float32)
        sink = popxl.d2h_stream(shape, popxl.float32)
        ops.host_store(sink, ops.host_load(source) * 2)
    with popxl.Session(ir) as session:
        found = session.run({source: SHAPES[form](np.float32(3))})[sink]
        assert found.shape == shape
        assert found.item() == 6
        outputs = {sink: np.zeros((1, 1, 1), np.float32)}
        session.run_with_outputs({source: np.float32(4)}, outputs)
        assert outputs[sink].tolist() == [[[8]]]
        with pytest.raises(ValueError, match="must have the shape"):
            session.run({source: [3.0, 4.0]})


@pytest.mark.parametrize("form", [(2,), (2, 1), (2, 1, 1)], ids=str)
def test_several_slices_of_one_element(form: tuple[int, ...]) -> None:
    ir = popxl.Ir()
    ir.num_host_transfers = 2
    with ir.main_graph:
        source = popxl.h2d_stream((1,), popxl.float32)
        sink = popxl.d2h_stream((1,), popxl.float32)
        for _ in range(2):
            ops.host_store(sink, -ops.host_load(source))
    with popxl.Session(ir) as session:
        found = session.run({source: rows(2, 1).reshape(form)})[sink]
        assert found.tolist() == [[0], [-1]]


def test_the_condition_of_a_conditional_comes_from_a_stream() -> None:
    ir = popxl.Ir()
    with ir.main_graph:
        source, flag = popxl.h2d_stream((1,), popxl.float32), popxl.h2d_stream((1,), popxl.bool)
        x, condition = ops.host_load(source), ops.host_load(flag)
        more, less = (ir.create_graph(f, x) for f in (lambda x: x + 5.0, lambda x: x - 3.0))
        (y,) = ops.conditional(condition, more, less, [x], [x])
        sink = popxl.d2h_stream(y.shape, y.dtype)
        ops.host_store(sink, y)
    with popxl.Session(ir) as session:
        for value in (True, False):
            inputs = {source: np.array([20], np.float32), flag: np.array(value)}
            assert session.run(inputs)[sink].tolist() == [25 if value else 17]


@pytest.mark.parametrize("seed", range(4))
def test_any_numbers_of_loads_and_stores_keep_their_order(seed: int, backend: str) -> None:
    """Streams used in calls and repeats nested at random take and give slices in program order."""
    rng = np.random.default_rng(seed)
    ir = popxl.Ir()
    used: dict[Any, int] = {}
    log: list[tuple[Any, Any, Any]] = []

    def step(pairs: list[tuple[Any, Any]], inner: Any, rounds: int) -> Any:
        def build() -> None:
            for source, sink in pairs:
                ops.host_store(sink, ops.host_load(source) * 2)
            if inner is not None:
                ops.repeat(inner[0], rounds)

        return ir.create_graph(build)

    def run(pairs: list[tuple[Any, Any]], inner: Any, rounds: int) -> None:
        for source, sink in pairs:
            log.append((source, sink, used.get(source, 0)))
            used[source] = used.get(source, 0) + 1
        for _ in range(rounds if inner is not None else 0):
            run(*inner[1])

    with ir.main_graph, popxl.in_sequence():
        sources = [popxl.h2d_stream((2,), popxl.float32) for _ in range(3)]
        sinks = [popxl.d2h_stream((2,), popxl.float32) for _ in range(3)]

        def pairs() -> list[tuple[Any, Any]]:
            count = int(rng.integers(1, 4))
            return [(sources[rng.integers(3)], sinks[rng.integers(3)]) for _ in range(count)]

        inner: Any = None
        for _ in range(3):
            plan = (pairs(), inner, int(rng.integers(1, 4)))
            inner = (step(*plan), plan)
        ops.call(inner[0])
        ops.repeat(inner[0], 2)
    for _ in range(3):
        run(*inner[1])
    data = {source: rows(count, 2, start=100 * n) for n, (source, count) in enumerate(used.items())}
    wanted: dict[Any, list[Any]] = {}
    for source, sink, place in log:
        wanted.setdefault(sink, []).append(data[source][place] * 2)
    with popxl.Session(ir, backend) as session:
        given = {stream: array.reshape(-1, 2)[:] for stream, array in data.items()}
        given = {s: a[0] if len(a) == 1 else a for s, a in given.items()}
        found = session.run(given)
    assert set(found) == set(wanted)
    for sink, values in wanted.items():
        np.testing.assert_array_equal(found[sink].reshape(-1, 2), values)
