"""Graphs that call graphs that call graphs: depth is bounded by memory, as that of ops is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import weft
from weft.cache.structure import structure_of
from weft.errors import BackendError
from weft.ir.traversal import LEVELS, nested

pytestmark = pytest.mark.slow

DEPTH = 200
ONES = np.ones(4, np.float32)


def called(graph: Any, x: Any) -> Any:
    return weft.call(graph, x)


def looped(graph: Any, x: Any) -> Any:
    return weft.loop(graph, 1, x)


def chosen(graph: Any, x: Any) -> Any:
    same = weft.capture([x * 1], [x])
    return weft.cond(weft.sum(x) > 0, graph, same, [x], [x])


def repeated(graph: Any, x: Any) -> Any:
    """Run the graph once: afterwards the first element is not below 0 any more."""
    condition = weft.capture([x[0] > 0], [x])
    (value,) = weft.while_loop(condition, weft.capture([-weft.call(graph, x)[0]], [x]), x)
    return (-value,)


NESTED: dict[str, Callable[[Any, Any], Any]] = {
    "calls": called, "loops": looped, "choices": chosen, "whiles": repeated
}  # fmt: skip


def nest(inside: Callable[[Any, Any], Any], depth: int, ops: int = 1) -> Any:
    """Return a graph of some ops around a graph of some ops, and so on; it adds 1 at each depth."""
    x = weft.placeholder((4,))
    graph = weft.capture([x + 1], [x])
    for number in range(depth):
        x = weft.placeholder((4,))
        (value,) = inside(graph, x)
        for _ in range(ops):
            value = value + 1 / ops
        graph = weft.capture([value], [x], f"level{number}")
    return graph


@pytest.fixture(autouse=True)
def few_frames() -> Iterator[None]:
    """Leave a test the stack of a shallow program, whatever pytest has taken of it."""
    frames, frame = 0, sys._getframe()
    while frame.f_back is not None:
        frames, frame = frames + 1, frame.f_back
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(frames + 1000)
    yield
    sys.setrecursionlimit(limit)


@pytest.mark.share(4)
@pytest.mark.parametrize("kind", NESTED)
def test_deeply_nested_graphs_are_looked_at(kind: str) -> None:
    graph = nest(NESTED[kind], DEPTH)
    graph.verify()
    assert graph.may_raise is (kind in ("loops", "whiles"))
    assert graph.symbols == ()
    text = graph.text(full=True)
    assert text == weft.parse(text).text(full=True)
    other = nest(NESTED[kind], DEPTH)
    assert structure_of(graph).digest == structure_of(other).digest


@pytest.mark.parametrize("kind", NESTED)
def test_deeply_nested_graphs_run(kind: str) -> None:
    depth = DEPTH if kind != "choices" else DEPTH // 2
    graph, x = nest(NESTED[kind], depth), weft.placeholder((4,))
    results = weft.call(graph, x)
    with weft.make_transformer("numpy") as made:
        computation = made.computation(results[0], x)
        np.testing.assert_allclose(computation(ONES), ONES + depth + 1, rtol=1e-4)
        computation.plan.verify()
        for shown in (
            computation.plan.table(),
            computation.source,
            str(computation.fusion_statistics),
        ):
            assert shown


@pytest.mark.parametrize("kind", ["calls", "loops", "choices"])
def test_gradients_of_deeply_nested_graphs(kind: str) -> None:
    graph, x = nest(NESTED[kind], 4 * LEVELS), weft.placeholder((4,))
    (value,) = weft.call(graph, x)
    slope = weft.deriv(weft.sum(value * value), x)
    gradient = weft.autodiff(graph).graph
    gradient.verify()
    with weft.make_transformer("numpy") as made:
        found = made.computation(slope, x)(ONES)
    np.testing.assert_allclose(found, 2 * (ONES + 4 * LEVELS + 1), rtol=1e-4)


def test_unknown_lengths_deep_inside() -> None:
    n = weft.symbol("n")
    x = weft.placeholder((n,))
    graph = weft.capture([x + 1], [x])
    for _ in range(DEPTH):
        x = weft.placeholder((n,))
        graph = weft.capture([weft.call(graph, x)[0] + 1], [x])
    known = graph.specialized({graph.symbols[0]: 4})
    assert known.outputs[0].axes.shape == (4,)
    with weft.make_transformer("numpy") as made:
        np.testing.assert_array_equal(made.computation(graph)(ONES)[0], ONES + DEPTH + 1)


def test_what_is_nested_is_made_once_and_begun_twice_at_most() -> None:
    kept: dict[int, int] = {}
    begun: list[int] = []

    def made(number: int) -> int:
        def make() -> int:
            begun.append(number)
            return made(number - 1) + 1 if number else 0

        return nested(kept, number, make)

    assert made(10_000) == 10_000
    assert max(begun.count(number) for number in (0, 5000, 9990, 10_000)) <= 2
    assert len(begun) <= 2 * len(kept)


def test_an_error_deep_inside_is_raised_and_nothing_is_kept() -> None:
    kept: dict[int, int] = {}

    def made(number: int) -> int:
        return nested(kept, number, lambda: made(number - 1) if number else 1 // 0)

    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            made(100)
        assert kept == {}
    assert nested(kept, 5, lambda: 7) == 7


@pytest.mark.needs("opencl")
@pytest.mark.parametrize("depth", [60, DEPTH])
def test_loops_of_the_host_are_nested_up_to_a_depth(depth: int) -> None:
    x = weft.placeholder((4,))
    graph = nest(repeated, depth)
    with weft.make_transformer("opencl") as made:
        computation = made.computation(weft.call(graph, x)[0], x)
        if depth == DEPTH:
            with pytest.raises(BackendError, match="nested more than 64 deep") as caught:
                computation(ONES)
            assert f'File "{__file__}", line' in str(caught.value)
        else:
            np.testing.assert_allclose(computation(ONES), ONES + depth + 1, rtol=1e-5)
