"""Passes of the user: what they must define, which visitor is called, what they replace."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from graph_expression import expression_of

import weft
from weft import visit
from weft.errors import PassError
from weft.ir.target import never
from weft.ops.pointwise.elementwise import (
    Add,
    AddOp,
    ElementwiseOp,
    Multiply,
    MultiplyOp,
    NegativeOp,
)
from weft.passes.interface import run_passes
from weft.plugins.entrypoints import DEFAULT_PIPELINE
from weft.plugins.registry import PASSES, load

TARGET = weft.make_transformer("numpy").target
UNFUSED = replace(TARGET, fusible=never)


def test_a_pass_must_define_do_pass():
    class Nothing(weft.GraphPass):
        pass

    with pytest.raises(TypeError, match="do_pass"):
        Nothing()


class Swap(weft.PeepholeGraphPass):
    """Turns sums into products."""

    @weft.visit.on_type(AddOp)
    def visit_add(self, op: weft.TensorOp):
        self.replace_op(op, weft.multiply(*op.args))


class LeaveAlone(Swap):
    """Overrides the visitor of its parent."""

    @weft.visit.on_type(AddOp)
    def visit_add(self, op: weft.TensorOp):
        pass


class ByBase(weft.PeepholeGraphPass):
    """Has a visitor for a base class and one for a class below it; notes which one was called."""

    def __init__(self):
        self.seen = []

    @weft.visit.on_type(ElementwiseOp)
    def visit_any(self, op: weft.TensorOp):
        self.seen.append(("any", type(op).__name__))

    @weft.visit.on_type(NegativeOp, MultiplyOp)
    def visit_some(self, op: weft.TensorOp):
        self.seen.append(("some", type(op).__name__))


def test_replace_op_splices_and_leaves_the_original_alone():
    x = weft.placeholder((2,), name="x")
    inner = x + 1
    y = weft.tanh(inner)
    graph = weft.capture([y], [x])
    before = (graph.text(), y.args, inner.args, x.name)
    new = run_passes(graph, [Swap()], TARGET)
    assert expression_of(new) == "TanhOp(MultiplyOp(x, 1))"
    assert (graph.text(), y.args, inner.args, x.name) == before
    assert expression_of(graph) == "TanhOp(AddOp(x, 1))"


def test_an_override_does_not_leak_to_the_parent():
    x = weft.placeholder((2,), name="x")
    graph = weft.capture([x + 1], [x])
    assert run_passes(graph, [LeaveAlone()], TARGET) is graph
    assert expression_of(run_passes(graph, [Swap()], TARGET)) == "MultiplyOp(x, 1)"


def test_the_nearest_class_in_the_mro_wins():
    x = weft.placeholder((2,), name="x")
    seeing = ByBase()
    graph = weft.capture([weft.tanh(-x) * x], [x])
    assert run_passes(graph, [seeing], TARGET) is graph
    assert seeing.seen == [("some", "NegativeOp"), ("any", "TanhOp"), ("some", "MultiplyOp")]


def test_a_pass_of_the_user_runs_in_a_transformer(transformer: weft.Transformer):
    x = weft.placeholder((2,))
    y = x + 3
    transformer.register_graph_pass(Swap(), position=0)
    assert transformer.computation(y, x)([1, 2]).tolist() == [3, 6]
    assert type(y).__name__ == "AddOp"


@pytest.mark.parametrize("name", DEFAULT_PIPELINE)
def test_a_pass_returns_the_very_graph_when_nothing_changes(name: str):
    x, y = weft.placeholder((2, 3), name="x"), weft.placeholder((2, 3), name="y")
    graph = weft.capture([weft.tanh(x) + y], [x, y])
    assert load(PASSES, name)().do_pass(graph, UNFUSED) is graph


def test_replace_op_outside_a_run_is_refused():
    x = weft.placeholder(())
    with pytest.raises(PassError, match="not running"):
        Swap().replace_op(x + 1, x)


class Counting(weft.GraphPass):
    """Notes how many ops each graph has that it sees, and copies one that has too many."""

    def __init__(self, most: int):
        self.most, self.seen = most, []

    def do_pass(self, graph: weft.Graph, target: weft.Target):
        self.seen.append(len(graph.ops))
        if len(graph.ops) <= self.most:
            return graph
        (output,) = graph.outputs
        return graph.replace(outputs=[output.args[0]])


def test_a_pass_sees_a_graph_that_it_left_alone_only_once():
    x = weft.placeholder((2,))
    graph = weft.capture([weft.tanh(weft.tanh(weft.tanh(x)))], [x])
    idle, busy, shortens = Counting(9), Counting(9), Counting(3)
    run_passes(graph, [idle, busy, idle, shortens, idle, busy, idle, shortens, shortens], TARGET)
    assert (idle.seen, busy.seen, shortens.seen) == ([4, 3], [4, 3], [4, 3])


def test_a_pass_that_is_named_twice_is_one():
    names = ("dead-code", "merge-equal", "dead-code")
    transformer = weft.make_transformer("numpy", passes=(name for name in names))
    first, other, last = transformer.graph_passes
    assert first is last is not other
    default = weft.make_transformer("numpy").graph_passes
    assert len(default) == len(DEFAULT_PIPELINE)
    assert len({id(each) for each in default}) == len(set(DEFAULT_PIPELINE))


class PrunesZero(weft.PeepholeGraphPass):
    """Replaces the sum of a scalar zero and anything else."""

    @visit.on_type(Add)
    def visit(self, op: weft.TensorOp):
        x, y = op.args
        rep = None
        if x.is_scalar and x.is_constant:
            if x.const == 0:
                rep = y
        elif y.is_scalar and y.is_constant:  # noqa: SIM102
            if y.const == 0:
                rep = x
        if rep is not None:
            self.replace_op(op, rep)


class TwoVisitors(weft.PeepholeGraphPass):
    """Has two visitors of one name."""

    @visit.on_type(Add)
    def visit(self, op: weft.TensorOp):
        self.replace_op(op, weft.subtract(op.args[0], -op.args[1]))

    @visit.on_type(Multiply)
    def visit(self, op: weft.TensorOp):
        self.replace_op(op, weft.divide(op.args[0], 1 / op.args[1]))


def test_a_pass_replaces_ops_by_their_operands():
    transformer = weft.make_transformer("numpy", passes=[])
    transformer.register_graph_pass(PrunesZero())
    x = weft.placeholder((2,))
    y = 0 + (x + 0)
    c = transformer.computation(weft.tanh(y), x)
    assert [type(op).__name__ for op in c.program.graph.ops] == ["ParameterOp", "TanhOp"]
    assert y.args[1].args[0] is x


def test_visitors_of_one_name_add_up():
    x = weft.placeholder((2,))
    transformer = weft.make_transformer("numpy", passes=["decompose", TwoVisitors()])
    c = transformer.computation((x + 3) * 2, x)
    kinds = {type(op).__name__ for op in c.program.graph.ops}
    assert "AddOp" not in kinds
    assert "MultiplyOp" not in kinds
    np.testing.assert_allclose(c([1, 2]), [8, 10])
