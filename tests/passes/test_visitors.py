"""However the visitors of a peephole pass are written, each op is visited by the one it is for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import pytest

import weft
from weft import visit
from weft.errors import PassError
from weft.ops.pointwise.elementwise import AddOp, ElementwiseOp, MultiplyOp
from weft.passes.interface import run_passes

TARGET = weft.make_transformer("numpy").target
_seen: list[tuple[str, str]] = []


def note(who: str, op: weft.TensorOp):
    """Note that a visitor saw an elementwise op."""
    if isinstance(op, ElementwiseOp):
        _seen.append((who, type(op).__name__))


class Plain(weft.PeepholeGraphPass):
    """One visitor for all, as the document has it."""

    def visit(self, op: weft.TensorOp):
        note("all", op)


class PlainFirst(weft.PeepholeGraphPass):
    """A visitor for all, then one for a class of ops."""

    def visit(self, op: weft.TensorOp):
        note("all", op)

    @visit.on_type(AddOp)
    def visit(self, op: weft.TensorOp):
        note("add", op)


class PlainLast(weft.PeepholeGraphPass):
    """A visitor for a class of ops, then one for all."""

    @visit.on_type(AddOp)
    def visit(self, op: weft.TensorOp):
        note("add", op)

    def visit(self, op: weft.TensorOp):  # noqa: F811
        note("all", op)


class OtherNames(weft.PeepholeGraphPass):
    """A marked method of another name beside the one for all."""

    @visit.on_type(AddOp)
    def visit_add(self, op: weft.TensorOp):
        note("add", op)

    def visit(self, op: weft.TensorOp):
        note("all", op)


class MarkedAsAll(weft.PeepholeGraphPass):
    """The visitor of all, by a mark."""

    @visit.on_type(weft.Op)
    def everything(self, op: weft.TensorOp):
        note("all", op)

    @visit.on_type(AddOp)
    def some(self, op: weft.TensorOp):
        note("add", op)


class PlainParent(Plain):
    """Adds a visitor to the one for all that it inherits."""

    @visit.on_type(AddOp)
    def visit(self, op: weft.TensorOp):
        note("add", op)


class MarkedParent(weft.PeepholeGraphPass):
    """Has a visitor for one class."""

    @visit.on_type(AddOp)
    def visit(self, op: weft.TensorOp):
        note("add", op)


class PlainChild(MarkedParent):
    """Adds one for all to the visitor that it inherits."""

    def visit(self, op: weft.TensorOp):
        note("all", op)


class AsksItsParent(PlainFirst):
    """Calls the visitors that it overrides."""

    @visit.on_type(AddOp, MultiplyOp)
    def visit(self, op: weft.TensorOp):
        super().visit(op)


MADE = type(weft.PeepholeGraphPass)(
    "Made", (weft.PeepholeGraphPass,), {"visit": lambda self, op: note("all", op)}
)


class AnyCallable(weft.PeepholeGraphPass):
    """A visitor that is not a function."""

    visit = partial(lambda who, self, op: note(who, op), "all")


ONE = [("all", "AddOp"), ("all", "MultiplyOp")]
TWO = [("add", "AddOp"), ("all", "MultiplyOp")]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [(Plain, ONE), (MADE, ONE), (AnyCallable, ONE)]
    + [(kind, TWO) for kind in (PlainFirst, PlainLast, OtherNames, MarkedAsAll)]
    + [(kind, TWO) for kind in (PlainParent, PlainChild, AsksItsParent)],
)
def test_each_op_has_its_visitor(kind: type[Any], expected: list[Any]):
    x, y = weft.placeholder((2,)), weft.placeholder((2,))
    graph = weft.capture([(x + y) * y], [x, y])
    _seen.clear()
    assert run_passes(graph, [kind()], TARGET) is graph
    assert _seen == expected


def test_a_visitor_of_all_ops_replaces_those_it_likes():
    class Halves(weft.PeepholeGraphPass):
        def visit(self, op: weft.TensorOp):
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
def test_a_pass_that_cannot_be_called_is_refused_when_it_is_defined(parameters: str):
    with pytest.raises(PassError, match=r"do_pass\(self, graph, target\)") as caught:
        exec(
            f"class Old(weft.GraphPass):\n    def do_pass({parameters}): return graph",
            {"weft": weft},
        )
    assert f"Old.do_pass({parameters})" in str(caught.value)


@pytest.mark.parametrize(
    "parameters", ["self, g, t", "self, *args", "self, graph, target=None, more=3"]
)
def test_other_names_and_more_options_are_fine(parameters: str):
    namespace = {"weft": weft}
    exec(f"class New(weft.GraphPass):\n    def do_pass({parameters}): return None", namespace)
    assert namespace["New"]().do_pass(1, 2) is None


def test_a_pass_takes_a_graph_and_not_ops():
    op = weft.constant(1) + 1
    for given in ([op], op, {op}, None):
        with pytest.raises(PassError, match=r"Plain takes a graph .*weft\.capture"):
            Plain().do_pass(given, TARGET)


def seeing(self: Any, op: weft.TensorOp):
    note("all", op)


class Mixin:
    """No pass, but with a visitor of all ops."""

    def visit(self, op: weft.TensorOp):
        note("all", op)


class MixedIn(Mixin, weft.PeepholeGraphPass):
    """Inherits its visitor from a class that is not a pass."""


class MixedInLast(weft.PeepholeGraphPass, Mixin):
    """The same, behind the pass."""


class MixedWithMarks(Mixin, MarkedParent):
    """Has a visitor of all ops from there, and one of a class from a pass."""


class TwoParents(MarkedParent, Plain):
    """Has the visitors of both."""


class SetLater(weft.PeepholeGraphPass):
    """Gets its visitor after it is defined."""


SetLater.visit = seeing


class ParentSetLater(SetLater):
    """Inherits one that was set."""


class OnTheObject(weft.PeepholeGraphPass):
    """Makes its visitor in the constructor."""

    def __init__(self):
        self.visit = partial(note, "all")


class Static(weft.PeepholeGraphPass):
    """A visitor without the pass."""

    @staticmethod
    def visit(op: weft.TensorOp):
        note("all", op)


class MarkedStatic(weft.PeepholeGraphPass):
    """Two of them: with a mark, and of the class."""

    @visit.on_type(AddOp)
    @staticmethod
    def add(op: weft.TensorOp):
        note("add", op)

    @classmethod
    def visit(cls, op: weft.TensorOp):
        note("all", op)


class FromAProperty(weft.PeepholeGraphPass):
    """Finds its visitor when it runs."""

    @property
    def visit(self):
        return partial(note, "all")


def wrapped(method: Callable[..., Any]):
    @wraps(method)
    def wrapper(self: Any, op: weft.TensorOp):
        method(self, "all", op)

    return wrapper


class Wrapped(weft.PeepholeGraphPass):
    """A visitor in a decorator, which gives it more."""

    @wrapped
    def visit(self, who: str, op: weft.TensorOp):
        note(who, op)


LATE_ONE = [MixedIn, MixedInLast, SetLater, ParentSetLater, OnTheObject, Static, FromAProperty]
LATE_TWO = [MixedWithMarks, TwoParents, MarkedStatic]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [(kind, ONE) for kind in (*LATE_ONE, Wrapped)] + [(kind, TWO) for kind in LATE_TWO],
)
def test_a_visitor_is_called_wherever_the_pass_has_it_from(kind: type[Any], expected: list[Any]):
    test_each_op_has_its_visitor(kind, expected)


IN_THE_BODY = {
    "too few": "def visit(self): ...",
    "too many": "def visit(self, op, more): ...",
    "by name": "def visit(self, *, op): ...",
    "static": "@staticmethod\n    def visit(self, op): ...",
    "of the class": "@classmethod\n    def visit(op): ...",
    "marked": "@weft.visit.on_type(weft.ops.AddOp)\n    def add(self): ...",
    "mark inside": "@staticmethod\n    @weft.visit.on_type(weft.ops.AddOp)\n    def add(op): ...",
}


@pytest.mark.parametrize("bases", ["weft.PeepholeGraphPass", "Mixed, weft.PeepholeGraphPass"])
@pytest.mark.parametrize("body", IN_THE_BODY.values(), ids=IN_THE_BODY)
def test_a_visitor_that_cannot_be_called_is_refused_when_the_class_is_defined(
    body: str, bases: str
):
    mixed = "Mixed" in bases
    source = f"class Old({'' if mixed else bases}):\n    {body}\n"
    if mixed:
        source = f"{source}class Mixed(Old): ...\nclass New({bases}): ...\n"
    with pytest.raises(PassError, match=r"one argument, the op|first of its decorators") as caught:
        exec(source, {"weft": weft})
    assert 'File "<string>", line' in str(caught.value)


WRONG = [lambda: None, lambda self, op, more: None, 3, None, "visit"]


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("where", ["class", "mixin", "object"])
def test_a_visitor_that_is_set_and_cannot_be_called_is_refused_by_the_run(where: str, wrong: Any):
    class Early:
        pass

    class Late(Early, weft.PeepholeGraphPass):
        pass

    late = Late()
    owner = {"class": Late, "mixin": Early, "object": late}[where]
    owner.visit = wrong
    x = weft.placeholder((2,))
    with pytest.raises(PassError, match=r"Late\.visit (takes|is) .*one argument, the op") as caught:
        run_passes(weft.capture([x + 1], [x]), [late], TARGET)
    assert not callable(wrong) or f'File "{__file__}", line' in str(caught.value)


def test_a_mark_on_an_object_is_refused():
    late = Plain()
    late.add = visit.on_type(AddOp)(seeing)
    x = weft.placeholder((2,))
    with pytest.raises(PassError, match=r"visitor add was set on an object.*body of the class"):
        run_passes(weft.capture([x + 1], [x]), [late], TARGET)


@pytest.mark.parametrize("where", ["mixin", "class", "object"])
@pytest.mark.parametrize("wrong", [lambda ops: None, lambda a, b, c, d: None, 3])
def test_do_pass_from_elsewhere_is_checked_as_that_of_the_body(where: str, wrong: Any):
    class Late(weft.GraphPass):
        def do_pass(self, graph: Any, target: Any):
            return graph

    late = Late()
    if where != "mixin":
        {"class": Late, "object": late}[where].do_pass = wrong
        with pytest.raises(PassError, match=r"Late\.do_pass (takes|is).*\(graph, target\)"):
            weft.make_transformer("numpy", passes=[late]).computation(weft.constant(1) + 1)()
    elif callable(wrong):
        mixin = type("Early", (), {"do_pass": wrong})
        with pytest.raises(PassError, match=r"Early\.do_pass\(.*do_pass\(self, graph, target\)"):
            type("Late", (mixin, weft.GraphPass), {})


class Turned(weft.PeepholeGraphPass):
    """Gets its visitor when something has been compiled with it."""


def test_what_was_compiled_before_a_visitor_was_set_is_not_used_again(
    monkeypatch: pytest.MonkeyPatch,
):
    def compiled():
        x = weft.placeholder((2,))
        with weft.make_transformer("numpy", passes=[Turned(), "decompose"]) as transformer:
            return transformer.computation(x + 1, x)([1, 2]).tolist()

    def turn(self: Any, op: weft.TensorOp):
        if isinstance(op, AddOp):
            self.replace_op(op, weft.subtract(*op.args))

    assert compiled() == compiled() == [2, 3]
    monkeypatch.setattr(Turned, "visit", turn, raising=False)
    assert compiled() == [0, 1]
    monkeypatch.undo()
    assert compiled() == [2, 3]
