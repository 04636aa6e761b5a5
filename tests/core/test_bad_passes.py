"""A pass that breaks a rule is named, with the op and its line; the graph stays as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import weft
from weft.errors import (
    GraphError,
    PassDidNotConverge,
    PassError,
)
from weft.ops.elementwise import AddOp, MultiplyOp, SubtractOp
from weft.passes import run_passes

NUMPY = weft.make_transformer("numpy").target


def x(*shape: Any, dtype: Any = "float32") -> Any:
    return weft.placeholder(shape, dtype=dtype)


def w(*shape: Any) -> Any:
    return weft.variable(shape)


def test_a_computation_of_an_op_of_a_captured_graph(transformer):
    a = x(2)
    graph = weft.capture([weft.tanh(a) * 2], [a])
    for op in (*graph.inputs, *graph.outputs):
        with pytest.raises(GraphError, match="belongs to a captured graph") as caught:
            transformer.computation(op)
        assert a.file_info in str(caught.value)
    assert len(transformer.computations) == 0


def changed_by(do_pass: Callable[[weft.Graph], Any]) -> weft.GraphPass:
    class Changes(weft.GraphPass):
        def do_pass(self, graph, target):
            return do_pass(graph)

    return Changes()


def a_graph() -> weft.Graph:
    a, state = x(2), w(2)
    weft.assign(state, state + a)
    return weft.capture([weft.tanh(a) * 2, state], [a])


def op_of(graph: weft.Graph, kind: str) -> Any:
    return next(op for op in graph.ops if type(op).__name__ == kind)


def in_a_cycle(graph: weft.Graph) -> weft.Graph:
    return graph.replace(after={op_of(graph, "TanhOp"): (op_of(graph, "MultiplyOp"),)})


def with_a_state_as_operand(graph: weft.Graph) -> weft.Graph:
    return graph.replace(outputs=[graph.states[0], graph.outputs[1]])


def with_a_forged_op(graph: weft.Graph) -> weft.Graph:
    product = op_of(graph, "MultiplyOp")
    forged = product.with_args((weft.constant([1.0, 2.0, 3.0]), product.args[1]))
    return graph.replace(outputs=[forged, graph.outputs[1]])


@pytest.mark.parametrize(
    ("do_pass", "message"),
    [
        (in_a_cycle, "cycle"),
        (with_a_state_as_operand, "stored state is used as a value"),
        (with_a_forged_op, "operands give float32 Axes\\(3\\)"),
        (lambda graph: graph.replace(inputs=()), "changed what the graph takes"),
        (lambda graph: graph.replace(outputs=graph.outputs[:1]), "changed what the graph"),
        (lambda graph: graph.replace(updates=()), "changed what the graph"),
        (
            lambda graph: graph.replace(outputs=[weft.constant([1, 2, 3]), graph.outputs[1]]),
            "changed what the graph",
        ),
        (lambda graph: None, "returned None, not a graph"),
    ],
    ids=["cycle", "state", "forged", "input", "output", "update", "shape", "nothing"],
)
def test_a_pass_that_breaks_the_graph(do_pass, message):
    graph = a_graph()
    before = graph.text()
    with pytest.raises(PassError, match=message) as caught:
        run_passes(graph, [changed_by(do_pass)], NUMPY)
    assert isinstance(caught.value, RuntimeError)
    assert "pass Changes" in str(caught.value)
    assert f'File "{__file__}", line' in str(caught.value)
    assert graph.text() == before


def test_a_cycle_is_shown_op_by_op():
    graph = a_graph()
    with pytest.raises(GraphError, match="cycle") as caught:
        _ = in_a_cycle(graph).ops
    for kind in ("TanhOp", "MultiplyOp"):
        assert f"{op_of(graph, kind)} waits for the next, File" in str(caught.value)


class PingPong(weft.PeepholeGraphPass):
    """Two rules that undo each other."""

    @weft.visit.on_type(AddOp)
    def there(self, op):
        self.replace_op(op, weft.subtract(op.args[0], -op.args[1]))

    @weft.visit.on_type(SubtractOp)
    def back(self, op):
        self.replace_op(op, weft.add(op.args[0], -op.args[1]))


class Reshapes(weft.PeepholeGraphPass):
    """A rule that changes the shape, and one that changes the dtype."""

    @weft.visit.on_type(AddOp)
    def shape(self, op):
        self.replace_op(op, weft.sum(op))

    @weft.visit.on_type(MultiplyOp)
    def dtype(self, op):
        self.replace_op(op, weft.cast(op, "float64"))


class Grows(weft.PeepholeGraphPass):
    """A rule that matches what it makes, deeper and deeper."""

    @weft.visit.on_type(AddOp)
    def visit(self, op):
        self.replace_op(op, weft.tanh(weft.add(*op.args)))


@pytest.mark.parametrize("growing", [PingPong, Grows])
def test_a_pass_that_never_ends(growing):
    a = x(2)
    y = a + 1
    with pytest.raises(PassDidNotConverge, match=f"pass {growing.__name__}") as caught:
        run_passes(weft.capture([weft.tanh(y)], [a]), [growing()], NUMPY)
    assert y.file_info in str(caught.value)
    assert "AddOp" in str(caught.value)


@pytest.mark.parametrize("build", [lambda a: a + 1, lambda a: a * 2], ids=["shape", "dtype"])
def test_a_pass_that_changes_axes_or_dtype(build):
    a = x(2)
    y = build(a)
    with pytest.raises(
        PassError, match=r"pass Reshapes replaced it by .* must keep both"
    ) as caught:
        run_passes(weft.capture([weft.tanh(y)], [a]), [Reshapes()], NUMPY)
    assert y.file_info in str(caught.value)
