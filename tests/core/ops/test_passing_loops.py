"""Loops that pass carried values on: what they compute, and that they copy nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft.ops.control.graph_ops import LoopOp
from weft.ops.control.passing_loops import LONGEST_CYCLE, PassingLoopOp, cycle_of, passing
from weft.plan.sub_plans import CopyPart, LoopPart, expand_step

SHAPES = ((3, 5), (7,))
"""The shapes of carried values; only values of the same one can change places."""


def body(sources: tuple[int | None, ...], shapes: tuple[int, ...]) -> weft.Graph:
    """Return a body with a carried value for each shape, and an invariant one.

    The sources say which input each carried value is afterwards; None is a value that is computed
    from all carried ones.
    """
    inputs = [weft.placeholder(SHAPES[shape]) for shape in shapes]
    factor = weft.placeholder(SHAPES[0], name="factor")
    total = weft.mean(factor) + sum(weft.mean(x) / (n + 2) for n, x in enumerate(inputs))
    # Enough ops that the loop is not replaced by them.
    computed = [weft.tanh(weft.sin(x) * 0.5 + total) - 0.1 * weft.cos(x) for x in inputs]
    outputs = [
        value if source is None else [*inputs, factor][source]
        for value, source in zip(computed, sources, strict=True)
    ]
    return weft.capture(outputs, [*inputs, factor])


def repeated(graph: weft.Graph, count: int, *arrays: Any) -> list[Any]:
    """Return carried values after some iterations of a body, by NumPy."""
    op = LoopOp(*map(weft.constant, arrays), graph=graph, count=count)
    return [np.asarray(each) for each in op.reference(*(a.astype(np.float64) for a in arrays))]


def arrays_for(graph: weft.Graph) -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(op.axes.shape).astype(np.float32) for op in graph.inputs]


def check(transformer: weft.Transformer, graph: weft.Graph, count: int) -> Any:
    """Compare a loop with NumPy twice, and return the step that is the loop."""
    parameters = [weft.placeholder(op.axes.shape) for op in graph.inputs]
    loop = weft.loop(graph, count, *parameters)
    computation = transformer.computation(list(loop), *parameters)
    arrays = arrays_for(graph)
    wanted = repeated(graph, count, *arrays)
    for _ in range(2):
        for found, exact in zip(computation(*arrays), wanted, strict=True):
            np.testing.assert_allclose(found, exact, rtol=1e-4, atol=1e-5)
    return next((s for s in computation.plan.steps if isinstance(s.op, LoopOp)), None)


@st.composite
def bodies(draw: st.DrawFn) -> tuple[tuple[int | None, ...], tuple[int, ...]]:
    """Draw what carried values are after an iteration, and their shapes."""
    shapes = draw(st.lists(st.sampled_from((0, 0, 1)), min_size=1, max_size=5))

    def source(shape: int) -> st.SearchStrategy[int | None]:
        same = [n for n, other in enumerate((*shapes, 0)) if other == shape]
        return st.sampled_from([None, *same])

    return tuple(draw(source(shape)) for shape in shapes), tuple(shapes)


@settings(max_examples=30)
@given(bodies(), st.integers(2, 14))
def test_passed_values_are_what_numpy_says(
    drawn: tuple[tuple[int | None, ...], tuple[int, ...]], count: int
) -> None:
    with weft.make_transformer("numpy", cache=False) as transformer:
        check(transformer, body(*drawn), count)


CASES: dict[str, tuple[int | None, ...]] = {
    "the state before": (1, None),
    "a delay line": (None, 0, 1, 2),
    "values that change places": (1, 0, None),
    "one that stays": (0, None),
    "an invariant": (2, None),
    "one value twice": (2, 2, None),
    "nothing is computed": (1, 2, 0),
}


@pytest.mark.parametrize("count", [2, 3, 4, 5, 11])
@pytest.mark.parametrize("name", CASES)
def test_values_take_turns_with_buffers(
    transformer: weft.Transformer, name: str, count: int
) -> None:
    sources = CASES[name]
    step = check(transformer, body(sources, (0,) * len(sources)), count)
    if name == "nothing is computed":
        return  # so few ops that they may stand in the place of the loop
    assert isinstance(step.op, PassingLoopOp)
    # Only results that are an operand, or equal to another result, are copied, once each.
    parts = expand_step(step)
    inside = [part for each in parts if isinstance(each, LoopPart) for part in each.parts]
    assert not any(isinstance(part, CopyPart) for part in inside)
    if name in ("the state before", "a delay line") and count > 3:
        assert not any(isinstance(part, CopyPart) for part in parts)


def test_a_long_cycle_is_copied() -> None:
    """A delay line of forty values is where it was before after 41 iterations."""
    sources = (None, *range(39))
    graph = body(sources, (1,) * 40)
    loop = LoopOp(*map(weft.constant, arrays_for(graph)), graph=graph, count=50)
    assert passing(loop) is loop
    with weft.make_transformer("numpy", cache=False) as transformer:
        check(transformer, graph, 50)


@given(bodies())
def test_the_cycle_uses_no_more_buffers_than_there_are(
    drawn: tuple[tuple[int | None, ...], tuple[int, ...]],
) -> None:
    graph = body(*drawn)
    loop = passing(LoopOp(*map(weft.constant, arrays_for(graph)), graph=graph, count=3))
    if not isinstance(loop, PassingLoopOp):
        return
    turns, first = cycle_of(loop)
    assert first < len(turns) <= LONGEST_CYCLE
    used = {buffer for turn in turns for buffer in turn.outputs}
    for shape in {buffer.shape for buffer in used}:
        carried = sum(op.axes.shape == shape for op in graph.inputs[: len(loop.sources)])
        computed = sum(op.axes.shape == shape for op in loop.graph.outputs)
        assert sum(buffer.shape == shape for buffer in used) <= carried + computed
    for turn in turns:
        assert not set(turn.outputs) & set(turn.carried)


def test_lengths_may_be_unknown(transformer: weft.Transformer) -> None:
    n = weft.symbol("n")
    u, v = weft.placeholder((n, 6)), weft.placeholder((n, 6))
    new = weft.tanh(weft.sin(v) * 0.5 + weft.cos(u)) - 0.1 * weft.exp(-v * v)
    graph = weft.capture([v, new], [u, v])
    x, y = weft.placeholder((n, 6)), weft.placeholder((n, 6))
    computation = transformer.computation(list(weft.loop(graph, 9, x, y)), x, y)
    for rows in (3, 8, 1):
        a, b = np.random.default_rng(rows).standard_normal((2, rows, 6)).astype(np.float32)
        found = computation(a, b)
        for _ in range(9):
            a, b = b, np.tanh(np.sin(b) * 0.5 + np.cos(a)) - 0.1 * np.exp(-b * b)
        np.testing.assert_allclose(found[0], a, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found[1], b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("limit", range(5))
def test_a_condition_is_computed_before_each_iteration(
    transformer: weft.Transformer, limit: int, capfd: pytest.CaptureFixture[str]
) -> None:
    value, most = weft.placeholder(()), weft.placeholder(())
    with weft.saved_user_deps():
        shown = weft.print_op(value, "condition")
        condition = weft.capture([weft.less(shown, most)], [value, most])
    inner, other = weft.placeholder(()), weft.placeholder(())
    body = weft.capture([inner + 1.0], [inner, other])
    start, end = weft.placeholder(()), weft.placeholder(())
    (found,) = weft.while_loop(condition, body, start, end)
    assert transformer.computation(found, start, end)(0.0, limit) == limit
    assert capfd.readouterr().out.count("condition") == limit + 1


@pytest.mark.parametrize("limit", range(5))
def test_while_loops_end_after_even_and_odd_numbers(
    transformer: weft.Transformer, limit: int
) -> None:
    n, x, most = weft.placeholder(()), weft.placeholder((3,)), weft.placeholder(())
    condition = weft.capture([weft.less(n, most)], [n, x, most])
    body = weft.capture([n + 1.0, weft.sin(x) + n], [n, x, most])
    start, y, end = weft.placeholder(()), weft.placeholder((3,)), weft.placeholder(())
    computation = transformer.computation(
        list(weft.while_loop(condition, body, start, y, end)), start, y, end
    )
    wanted = given = np.array([0.5, -1, 2], np.float32)
    for number in range(limit):
        wanted = np.sin(wanted) + number
    for _ in range(2):
        found = computation(0.0, given, limit)
        assert found[0] == limit
        np.testing.assert_allclose(found[1], wanted, rtol=1e-5)
