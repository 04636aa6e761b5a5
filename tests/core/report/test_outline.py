"""Outlines: boxes by name scope, gradients beside what they are of, and no cycles of boxes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft.ir.graph import Graph
from weft.report.outline import (
    SCOPE,
    Box,
    boxed,
    drawn_as,
    is_gradient,
    kinds_computed,
    parts_of,
)
from weft.runtime.reporting import pass_histories
from weft.support.source import function_around

LAYERS, SHAPE = 3, (2, 8, 16)
NET = weft.nn.Sequential(
    *[weft.nn.TransformerBlock(2, 32, is_causal=True) for _ in range(LAYERS)], weft.nn.Dense(4)
)
OPTIMIZER = weft.optim.adam(1e-3)


def loss(params: Any, x: Any) -> Any:
    return weft.mean(weft.softmax(NET(params, x), -1) ** 2)


@weft.jit(backend="numpy")
def step(params: Any, state: Any, x: Any) -> Any:
    value, gradients = weft.value_and_grad(loss)(params, x)
    return value, *OPTIMIZER.update(gradients, state, params)


@pytest.fixture(scope="module")
def graphs(weft_cache_folder: str) -> list[Graph]:
    """Return the graph of a training step, as captured and after each pass."""
    params = NET.init(np.random.default_rng(0), SHAPE)
    lowered = step.lower(params, OPTIMIZER.init(params), np.ones(SHAPE, np.float32))
    (history,) = pass_histories(lowered.transformer, lowered.program.captured)
    return [history.graph, *(graph for _, graph in history.steps)]


def outline(graph: Graph) -> tuple[int | Box, ...]:
    shown = [n for n, op in enumerate(graph.ops) if drawn_as(op) is op and not op.is_constant]
    return boxed(graph.ops, shown)


def boxes_in(items: Sequence[int | Box]) -> Iterator[Box]:
    for item in items:
        if isinstance(item, Box):
            yield item
            yield from boxes_in(item.items)


def require_no_cycles(graph: Graph, items: Sequence[int | Box]) -> None:
    """Raise CycleError if items of one box depend on each other in a circle."""
    levels = [items, *(box.items for box in boxes_in(items))]
    for level in levels:
        owner = {}
        for number, item in enumerate(level):
            for index in item.ops if isinstance(item, Box) else [item]:
                owner[graph.ops[index]] = number
        needs: dict[int, set[int]] = {number: set() for number in range(len(level))}
        for op, number in owner.items():
            found = {owner[arg] for arg in map(drawn_as, op.args) if arg in owner}
            needs[number] |= found - {number}
        TopologicalSorter(needs).prepare()


def test_boxes_of_a_training_step_have_no_cycles(graphs: list[Graph]) -> None:
    for graph in graphs:
        require_no_cycles(graph, outline(graph))


def test_boxes_are_named_by_their_scopes(graphs: list[Graph]) -> None:
    for graph in graphs:
        items = outline(graph)
        top = [box for box in items if isinstance(box, Box)]
        (model,) = [box for box in top if box.title == "Sequential" and not box.is_gradient]
        inside = {box.title: box for box in model.items if isinstance(box, Box)}
        assert {*map(str, range(LAYERS))} <= set(inside)
        layers = {box.title for box in inside["1"].items if isinstance(box, Box)}
        assert {"norm1", "self_attn", "norm2", "linear1", "linear2"} >= layers >= {"self_attn"}
        assert any(box.title == "Sequential" and box.is_gradient for box in top)
        (optimizer,) = [box for box in top if box.title == "adam"]
        assert {box.title for box in optimizer.items if isinstance(box, Box)} >= set("012")


def test_each_op_of_a_box_is_of_its_scope(graphs: list[Graph]) -> None:
    def check(items: Sequence[int | Box], names: tuple[str, ...]) -> None:
        for item in items:
            if not isinstance(item, Box):
                continue
            inner = (*names, item.title) if item.kind == SCOPE else names
            for op in map(graph.ops.__getitem__, item.ops):
                assert is_gradient(op) or not item.is_gradient
                if op.name_scope and item.kind == SCOPE:
                    assert f"{op.name_scope}/".startswith("/".join(inner) + "/")
            check(item.items, inner)

    for graph in graphs:
        check(outline(graph), ())


def test_ops_of_a_gradient_lead_to_what_they_are_of(graphs: list[Graph]) -> None:
    captured = graphs[0]
    forward = {op.order: op for op in captured.ops if op.adjoint_of is None}
    found = [op for op in captured.ops if op.adjoint_of is not None]
    assert len(found) > 100
    for op in found:
        of = forward[op.adjoint_of]
        assert (op.name_scope, op.location) == (of.name_scope, of.location)


def test_passes_keep_the_scopes(graphs: list[Graph]) -> None:
    before = {op.name_scope for op in graphs[0].ops}
    for graph in graphs:
        computing = [op for op in graph.ops if not op.is_constant]
        assert {op.name_scope for op in computing} <= before
        assert {"Sequential/1/self_attn", "Sequential/1/linear1"} <= {
            op.name_scope for op in computing
        }


steady = settings(max_examples=60, deadline=None, derandomize=True, database=None)


@steady
@given(st.randoms(use_true_random=False), st.integers(30, 60))
def test_scopes_that_are_entered_again_make_no_cycles(chance: random.Random, count: int) -> None:
    values: list[Any] = [weft.placeholder((2,), name="x")]
    for _ in range(count):
        names = chance.choice(["", "a", "b", "a/b", "b/a", "a/c"])
        with weft.name_scope(names) if names else nullcontext():
            values.append(chance.choice(values) * chance.choice(values) + 1)
    y = weft.sum(sum(values[1:], values[0]))
    graph = weft.capture([y, weft.deriv(y, values[0])], [values[0]])
    items = outline(graph)
    listed = [index for item in items for index in (item.ops if isinstance(item, Box) else [item])]
    shown = [n for n, op in enumerate(graph.ops) if drawn_as(op) is op and not op.is_constant]
    assert sorted(listed) == shown
    require_no_cycles(graph, items)


def test_each_call_of_a_layer_is_a_box() -> None:
    block = weft.nn.TransformerBlock(2, 32)
    params = [block.init(np.random.default_rng(0), SHAPE) for _ in range(7)]

    def net(params: Any, x: Any) -> Any:
        for each in params:
            x = block(each, x)
        return x

    traced = [weft.jit(net, backend="numpy") for _ in range(2)]
    for graph in [each.lower(params, np.ones(SHAPE, np.float32)).graph for each in traced]:
        titles = [item.title for item in outline(graph) if isinstance(item, Box)]
        numbered = [f"TransformerBlock_{number}" for number in range(1, 7)]
        assert titles == ["inputs", "TransformerBlock", *numbered]


def test_gradients_of_repetitions_count_from_the_last() -> None:
    x = y = weft.placeholder((4, 4), name="x")
    for _ in range(12):
        y = weft.tanh(weft.exp(y @ y) - weft.max(y, 1, keepdims=True)) + y
    loss = weft.sum(y)
    graph = weft.capture([loss, weft.deriv(loss, x)], [x])
    order = [box for box in boxes_in(outline(graph)) if " of " in box.title]
    forward = [box.title.partition(":")[0] for box in order if not box.is_gradient]
    backward = [box.title.partition(":")[0] for box in order if box.is_gradient]
    assert forward[0] == "1 of 12"
    assert backward
    count = int(backward[0].split()[-1])
    assert backward == [f"{n} of {count}" for n in range(count, 0, -1)]


def test_a_composite_tells_what_it_computes() -> None:
    x = weft.placeholder((2, 2, 8, 4), name="x")
    (op,) = [op for op in weft.capture([weft.attention(x, x, x)], [x]).ops if op.args]
    parts = [(type(each).__name__, each.axes.lengths) for each in parts_of(op)]  # type: ignore[arg-type]
    assert ("SoftmaxOp", (2, 2, 8, 8)) in parts
    assert [name for name, _ in parts].count("MatmulOp") == 2


# Functions around lines

SOURCE = """
x = 1

class Block:
    def __call__(self, x):
        def inner(y):
            return y
        return inner(x)

    async def later(self):
        return 2

def step(
    a,
):
    return a
"""
PLACES = [
    (2, ""), (4, ""), (5, "Block.__call__"), (7, "Block.__call__.inner"), (8, "Block.__call__"),
    (11, "Block.later"), (13, "step"), (16, "step"), (99, ""), (0, ""),
]  # fmt: skip


@pytest.mark.parametrize(("line", "name"), PLACES)
def test_the_function_around_a_line(line: int, name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(SOURCE)
    assert function_around((str(path), line)) == name


@pytest.mark.parametrize("text", ["def (", "\0", "", "model.onnx: node"])
def test_there_is_no_function_in_what_is_not_python(text: str, tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(text)
    assert function_around((str(path), 1)) == ""
    assert function_around((str(tmp_path / "missing.py"), 1)) == ""


def test_kinds_computed_are_those_of_primitives() -> None:
    x = weft.placeholder((2, 4, 8))
    found = list(kinds_computed(weft.attention(x, x, x)))
    assert Counter(found) == Counter(
        ["Multiply", "Matmul", "Max", "Subtract", "Exp", "Sum", "Divide", "Matmul"]
    )
    assert list(kinds_computed(weft.tanh(x))) == ["Tanh"]
