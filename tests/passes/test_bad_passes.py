"""A pass that breaks a rule is named, with the op and its line; the graph stays as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import (
    GraphError,
    PassDidNotConverge,
    PassError,
)
from weft.ops.pointwise.elementwise import AddOp, MultiplyOp, SubtractOp
from weft.passes.interface import run_passes
from weft.plugins.entrypoints import DEFAULT_PIPELINE

NUMPY = weft.make_transformer("numpy").target


def x(*shape: Any, dtype: Any = "float32") -> Any:
    return weft.placeholder(shape, dtype=dtype)


def w(*shape: Any) -> Any:
    return weft.variable(shape, initial_value=0)


def test_a_computation_of_an_op_of_a_captured_graph(transformer: weft.Transformer):
    a = x(2)
    graph = weft.capture([weft.tanh(a) * 2], [a])
    for op in (*graph.inputs, *graph.outputs):
        with pytest.raises(GraphError, match="belongs to a captured graph") as caught:
            transformer.computation(op)
        assert a.file_info in str(caught.value)
    assert len(transformer.computations) == 0


def changed_by(do_pass: Callable[[weft.Graph], Any]) -> weft.GraphPass:
    class Changes(weft.GraphPass):
        def do_pass(self, graph: weft.Graph, target: weft.Target):
            return do_pass(graph)

    return Changes()


def a_graph() -> weft.Graph:
    a, state = x(2), w(2)
    weft.assign(state, state + a)
    shown = weft.print_op(weft.tanh(a), "seen")
    return weft.capture([shown * 2, state, weft.sum(a)], [a])


def op_of(graph: weft.Graph, kind: str) -> Any:
    return next(op for op in graph.ops if type(op).__name__ == kind)


def in_place_of(kind: str, make: Callable[[Any], Any]) -> Callable[[weft.Graph], weft.Graph]:
    """Return a pass that puts another op in the place of each of a class."""
    return lambda graph: graph.rewrite(
        lambda op: make(op) if type(op).__name__ == kind else op  # type: ignore[no-any-return]
    )


def tampered(**entries: Any) -> Callable[[Any], Any]:
    """Return what makes a copy of an op and forges some of its attributes."""

    def make(op: Any) -> Any:
        copy = op.with_args(op.args)
        copy.__dict__.update(entries)
        return copy

    return make


def on_three_numbers(op: Any) -> Any:
    return op.with_args((weft.constant([1.0, 2.0, 3.0]), *op.args[1:]))


def from_nothing(op: Any) -> Any:
    forged = object.__new__(AddOp)
    forged.__dict__.update(op.__dict__, args=(op.args[0], weft.constant(2, dtype="int32")))
    return forged


def in_a_cycle(graph: weft.Graph) -> weft.Graph:
    return graph.replace(after={op_of(graph, "TanhOp"): (op_of(graph, "MultiplyOp"),)})


def with_a_cycle_of_operands(graph: weft.Graph) -> weft.Graph:
    def close(op: Any) -> Any:
        if type(op).__name__ == "TanhOp":
            op = made.setdefault("first", op.with_args(op.args))
        if type(op).__name__ == "MultiplyOp":
            made["first"].__dict__["args"] = (op,)
        return op

    made: dict[str, Any] = {}
    return graph.rewrite(close)


def with_a_state_as_operand(graph: weft.Graph) -> weft.Graph:
    return graph.replace(outputs=[graph.states[0], *graph.outputs[1:]])


def with_its_effect_twice(graph: weft.Graph) -> weft.Graph:
    (effect,) = graph.effects
    return graph.replace(effects=[effect, effect.with_args(effect.args)])


def with_its_effect_twice_and_one_hidden(graph: weft.Graph) -> weft.Graph:
    copied = in_place_of("MultiplyOp", lambda op: op.with_args((again(op.args[0]), op.args[1])))
    return copied(graph)


def again(op: Any) -> Any:
    return op.with_args(op.args)


def without_its_effect(graph: weft.Graph) -> weft.Graph:
    return in_place_of("PrintOp", lambda op: op.args[0])(graph).replace(effects=())


def with_an_update_of(value: Any) -> Callable[[weft.Graph], weft.Graph]:
    return lambda graph: graph.replace(updates=[(state, value) for state, _ in graph.updates])


ILLEGAL: dict[str, tuple[Callable[[weft.Graph], Any], str]] = {
    "cycle": (in_a_cycle, "cycle"),
    "cycle of operands": (with_a_cycle_of_operands, "cycle"),
    "state as operand": (with_a_state_as_operand, "stored state is used as a value"),
    "other operand": (in_place_of("MultiplyOp", on_three_numbers), "operands give"),
    "shape": (in_place_of("SumOp", tampered(axes=weft.make_axes((3,)))), "changed what the graph"),
    "inner shape": (in_place_of("TanhOp", tampered(axes=weft.make_axes((3,)))), "operands give"),
    "dtype": (in_place_of("TanhOp", tampered(dtype=np.dtype("float64"))), "operands give"),
    "operands": (in_place_of("TanhOp", tampered(args=())), "TanhOp: its operands do not fit"),
    "attribute": (in_place_of("SumOp", tampered(positions=())), r"operands give float32 Axes\(2\)"),
    "from nothing": (in_place_of("AddOp", from_nothing), "AddOp: operands have different dtypes"),
    "foreign parameter": (
        in_place_of("TanhOp", lambda op: op.with_args((again(op.args[0]),))),
        "the parameter is not an input",
    ),
    "input": (lambda graph: graph.replace(inputs=()), "changed what the graph|is not an input"),
    "output": (lambda graph: graph.replace(outputs=graph.outputs[:1]), "changed what the graph"),
    "other output": (
        lambda graph: graph.replace(outputs=[weft.constant([1, 2, 3]), *graph.outputs[1:]]),
        "changed what the graph",
    ),
    "lost update": (lambda graph: graph.replace(updates=()), "changed what the graph"),
    "double update": (
        lambda graph: graph.replace(updates=graph.updates * 2),
        "updates the state twice",
    ),
    "update of another shape": (with_an_update_of(weft.constant([1.0])), "cannot update"),
    "update of another dtype": (
        with_an_update_of(weft.constant([1, 2], dtype="int32")),
        "cannot update",
    ),
    "lost effect": (without_its_effect, "lost the effect"),
    "unlisted effect": (lambda graph: graph.replace(effects=()), "lost the effect"),
    "double effect": (with_its_effect_twice, "more than one effect"),
    "hidden double effect": (with_its_effect_twice_and_one_hidden, "more than one effect"),
    "nothing": (lambda graph: None, "returned None, not a graph"),
}


@pytest.mark.parametrize(("do_pass", "message"), ILLEGAL.values(), ids=ILLEGAL)
def test_a_pass_that_breaks_the_graph(do_pass: Callable[..., Any], message: str):
    graph = a_graph()
    before = graph.text()
    with pytest.raises(PassError, match=message) as caught:
        run_passes(graph, [changed_by(do_pass)], NUMPY)
    assert isinstance(caught.value, RuntimeError)
    assert "pass Changes" in str(caught.value)
    assert f'File "{__file__}", line' in str(caught.value)
    assert graph.text() == before


UNFUSED = [name for name in DEFAULT_PIPELINE if name != "fusion"]
"""Leaves every op of a graph where a pass finds it."""


@pytest.mark.parametrize("position", [0, 3, len(UNFUSED)], ids=["first", "inside", "last"])
@pytest.mark.parametrize("do_pass", [case for case, _ in ILLEGAL.values()], ids=ILLEGAL)
def test_a_broken_graph_is_refused_before_code_is_generated(
    do_pass: Callable[..., Any], position: int, monkeypatch: pytest.MonkeyPatch
):
    with weft.make_transformer("numpy", cache=False, passes=UNFUSED) as transformer:
        monkeypatch.setattr(transformer, "transform_ordered_ops", None)
        transformer.register_graph_pass(changed_by(do_pass), position)
        computation = transformer.computation(a_graph())
        with pytest.raises(PassError, match="pass Changes"):
            computation(np.zeros(2, "f4"))


def test_the_pass_to_blame_is_the_first_one_that_went_wrong():
    def fails(graph: weft.Graph) -> weft.Graph:
        raise KeyError("what a pass may meet in a malformed graph")

    class Innocent(weft.GraphPass):
        def do_pass(self, graph: weft.Graph, target: weft.Target):
            return fails(graph)

    guilty = changed_by(ILLEGAL["dtype"][0])
    with pytest.raises(PassError, match="pass Changes left a malformed graph"):
        run_passes(a_graph(), [guilty, Innocent()], NUMPY)
    with pytest.raises(KeyError):
        run_passes(a_graph(), [Innocent(), guilty], NUMPY)


def test_a_pass_that_changes_ops_in_place():
    def forge(graph: weft.Graph) -> weft.Graph:
        op_of(graph, "TanhOp").__dict__["dtype"] = np.dtype("float64")
        return graph

    with pytest.raises(PassError, match=r"changed in place by one of these.*: Changes\n.*TanhOp"):
        run_passes(a_graph(), [changed_by(forge)], NUMPY)


def test_a_cycle_is_shown_op_by_op():
    graph = a_graph()
    with pytest.raises(GraphError, match="cycle") as caught:
        _ = in_a_cycle(graph).ops
    for kind in ("TanhOp", "MultiplyOp"):
        assert f"{op_of(graph, kind)} waits for the next, File" in str(caught.value)


class PingPong(weft.PeepholeGraphPass):
    """Two rules that undo each other."""

    @weft.visit.on_type(AddOp)
    def there(self, op: weft.TensorOp):
        self.replace_op(op, weft.subtract(op.args[0], -op.args[1]))

    @weft.visit.on_type(SubtractOp)
    def back(self, op: weft.TensorOp):
        self.replace_op(op, weft.add(op.args[0], -op.args[1]))


class Reshapes(weft.PeepholeGraphPass):
    """A rule that changes the shape, and one that changes the dtype."""

    @weft.visit.on_type(AddOp)
    def shape(self, op: weft.TensorOp):
        self.replace_op(op, weft.sum(op))

    @weft.visit.on_type(MultiplyOp)
    def dtype(self, op: weft.TensorOp):
        self.replace_op(op, weft.cast(op, "float64"))


class Grows(weft.PeepholeGraphPass):
    """A rule that matches what it makes, deeper and deeper."""

    @weft.visit.on_type(AddOp)
    def visit(self, op: weft.TensorOp):
        self.replace_op(op, weft.tanh(weft.add(*op.args)))


@pytest.mark.parametrize("growing", [PingPong, Grows])
def test_a_pass_that_never_ends(growing: type[Any]):
    a = x(2)
    y = a + 1
    with pytest.raises(PassDidNotConverge, match=f"pass {growing.__name__}") as caught:
        run_passes(weft.capture([weft.tanh(y)], [a]), [growing()], NUMPY)
    assert y.file_info in str(caught.value)
    assert "AddOp" in str(caught.value)


@pytest.mark.parametrize("build", [lambda a: a + 1, lambda a: a * 2], ids=["shape", "dtype"])
def test_a_pass_that_changes_axes_or_dtype(build: Callable[..., Any]):
    a = x(2)
    y = build(a)
    with pytest.raises(
        PassError, match=r"pass Reshapes replaced it by .* must keep both"
    ) as caught:
        run_passes(weft.capture([weft.tanh(y)], [a]), [Reshapes()], NUMPY)
    assert y.file_info in str(caught.value)
