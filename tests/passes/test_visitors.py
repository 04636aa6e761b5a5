"""However the visitors of a peephole pass are written, each op is visited by the one it is for."""

from __future__ import annotations

from functools import partial

import pytest

import weft
from weft import visit
from weft.errors import PassError
from weft.ops.elementwise import AddOp, ElementwiseOp, MultiplyOp
from weft.passes.interface import run_passes

TARGET = weft.make_transformer("numpy").target
_seen: list[tuple[str, str]] = []


def note(who, op):
    """Note that a visitor saw an elementwise op."""
    if isinstance(op, ElementwiseOp):
        _seen.append((who, type(op).__name__))


class Plain(weft.PeepholeGraphPass):
    """One visitor for all, as the document has it."""

    def visit(self, op):
        note("all", op)


class PlainFirst(weft.PeepholeGraphPass):
    """A visitor for all, then one for a class of ops."""

    def visit(self, op):
        note("all", op)

    @visit.on_type(AddOp)
    def visit(self, op):
        note("add", op)


class PlainLast(weft.PeepholeGraphPass):
    """A visitor for a class of ops, then one for all."""

    @visit.on_type(AddOp)
    def visit(self, op):
        note("add", op)

    def visit(self, op):  # noqa: F811
        note("all", op)


class OtherNames(weft.PeepholeGraphPass):
    """A marked method of another name beside the one for all."""

    @visit.on_type(AddOp)
    def visit_add(self, op):
        note("add", op)

    def visit(self, op):
        note("all", op)


class MarkedAsAll(weft.PeepholeGraphPass):
    """The visitor of all, by a mark."""

    @visit.on_type(weft.Op)
    def everything(self, op):
        note("all", op)

    @visit.on_type(AddOp)
    def some(self, op):
        note("add", op)


class PlainParent(Plain):
    """Adds a visitor to the one for all that it inherits."""

    @visit.on_type(AddOp)
    def visit(self, op):
        note("add", op)


class MarkedParent(weft.PeepholeGraphPass):
    """Has a visitor for one class."""

    @visit.on_type(AddOp)
    def visit(self, op):
        note("add", op)


class PlainChild(MarkedParent):
    """Adds one for all to the visitor that it inherits."""

    def visit(self, op):
        note("all", op)


class AsksItsParent(PlainFirst):
    """Calls the visitors that it overrides."""

    @visit.on_type(AddOp, MultiplyOp)
    def visit(self, op):
        super().visit(op)


MADE = type(weft.PeepholeGraphPass)(
    "Made", (weft.PeepholeGraphPass,), {"visit": lambda self, op: note("all", op)}
)


class AnyCallable(weft.PeepholeGraphPass):
    """A visitor that is no function."""

    visit = partial(lambda who, self, op: note(who, op), "all")


ONE = [("all", "AddOp"), ("all", "MultiplyOp")]
TWO = [("add", "AddOp"), ("all", "MultiplyOp")]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [(Plain, ONE), (MADE, ONE), (AnyCallable, ONE)]
    + [(kind, TWO) for kind in (PlainFirst, PlainLast, OtherNames, MarkedAsAll)]
    + [(kind, TWO) for kind in (PlainParent, PlainChild, AsksItsParent)],
)
def test_each_op_has_its_visitor(kind, expected):
    x, y = weft.placeholder((2,)), weft.placeholder((2,))
    graph = weft.capture([(x + y) * y], [x, y])
    _seen.clear()
    assert run_passes(graph, [kind()], TARGET) is graph
    assert _seen == expected


def test_a_visitor_of_all_ops_replaces_those_it_likes():
    class Halves(weft.PeepholeGraphPass):
        def visit(self, op):
            if isinstance(op, AddOp):
                self.replace_op(op, weft.subtract(op.args[0], -op.args[1]))

    x = weft.placeholder((2,))
    with weft.make_transformer("numpy", passes=[Halves()]) as transformer:
        computation = transformer.computation((x + 1) * 2 + x, x)
        assert computation([1, 2]).tolist() == [5, 8]
        kinds = {type(op).__name__ for op in computation.program.graph.ops}
    assert "SubtractOp" in kinds
    assert "AddOp" not in kinds


def test_a_call_of_no_visitor_does_nothing():
    assert MarkedParent().visit(weft.constant(1)) is None
    assert MarkedParent.visit.on_type


@pytest.mark.parametrize(
    "parameters", ["self, ops", "self, graph", "self, graph, target, more", "self"]
)
def test_a_pass_that_cannot_be_called_is_refused_when_it_is_defined(parameters):
    with pytest.raises(PassError, match=r"do_pass\(self, graph, target\)") as caught:
        exec(
            f"class Old(weft.GraphPass):\n    def do_pass({parameters}): return graph",
            {"weft": weft},
        )
    assert f"Old.do_pass({parameters})" in str(caught.value)


@pytest.mark.parametrize(
    "parameters", ["self, g, t", "self, *args", "self, graph, target=None, more=3"]
)
def test_other_names_and_more_options_are_fine(parameters):
    namespace = {"weft": weft}
    exec(f"class New(weft.GraphPass):\n    def do_pass({parameters}): return None", namespace)
    assert namespace["New"]().do_pass(1, 2) is None


def test_a_pass_takes_a_graph_and_not_ops():
    op = weft.constant(1) + 1
    for given in ([op], op, {op}, None):
        with pytest.raises(PassError, match=r"Plain takes a graph .*weft\.capture"):
            Plain().do_pass(given, TARGET)
