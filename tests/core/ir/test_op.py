"""What the user sees of an op: operands, initializers, name, metadata, line, schemas and form."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import ArgumentError
from weft.ops.control.effects import PrintOp
from weft.ops.pointwise.elementwise import Add, AddOp
from weft.passes.interface import run_passes


def this_line() -> int:
    """Return the line of the caller."""
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


def test_a_sum_of_constants_is_an_op_with_two_operands():
    x, y = weft.constant(0), weft.constant(1)
    s = weft.add(x, y)
    assert type(s).__name__ == "AddOp"
    assert isinstance(s, weft.Op)
    assert type(s.args) is tuple
    assert [arg is given for arg, given in zip(s.args, (x, y), strict=True)] == [True, True]


def test_printed_ops_show_their_value_and_line():
    x = weft.placeholder((2, 3), "float64", name="x")
    assert str(x) == f"{x}: float64(2, 3), test_op.py:{x.location[1]}"
    assert f"{x}" == x.name


def test_constants_show_their_value():
    x = weft.constant(0)
    assert repr(x) == f"<AssignableTensorOp(<Const(0)>):{id(x)}>"
    assert str(x).startswith("<Const(0)>[AssignableTensorOp_")
    assert weft.is_constant(x)
    assert x.is_scalar
    assert x.dtype == weft.float32
    assert weft.const(x) == 0


def test_a_constant_has_an_initializer_and_a_sum_has_none():
    x = weft.constant(0)
    s = weft.add(x, weft.constant(1))
    assert len(s.initializers) == 0
    (init,) = x.initializers
    assert type(init).__name__ == "InitTensorOp"
    assert list(x.initializers) == [init]


def test_a_state_with_an_initial_value_has_an_assign():
    calls = []
    w = weft.variable((), initial_value=lambda: calls.append(1) or 3)
    (init,) = w.initializers
    assert type(init).__name__ == "AssignOp"
    assert [type(op).__name__ for op in init.args[1].initializers] == ["InitTensorOp"]
    assert calls == [1]
    assert len(weft.variable(()).initializers) == 0


def test_names_are_unique_and_settable():
    a, b = weft.constant(0), weft.constant(0)
    assert a.name != b.name
    a.name = "weights"
    assert a.name == "weights"
    assert a.named("twin") is a
    assert a.name == "twin"
    assert b.named("twin").name != "twin"
    assert b.name.startswith("twin")
    assert weft.placeholder((), name="given").name.startswith("given")


def test_metadata_from_constructor_context_and_decorator():
    @weft.with_op_metadata
    def layer(x: weft.TensorOp):
        return x * 2

    layer.metadata = {"layer": "first"}

    class Model:
        metadata = {"model": "m"}

        @weft.with_op_metadata
        def __call__(self, x: weft.TensorOp):
            return x + 1

    x = weft.placeholder((), metadata={"kind": "data"})
    with weft.metadata(stage="outer", run="1"), weft.metadata(stage="inner"):
        y = x + 1
    assert x.metadata == {"kind": "data"}
    assert y.metadata == {"stage": "inner", "run": "1"}
    assert layer(x).metadata == {"layer": "first"}
    assert Model()(x).metadata == {"model": "m"}
    assert (x + 1).metadata == {}


@pytest.mark.parametrize("wrong", ["text", [("a", 1)], 3])
def test_metadata_must_be_a_dictionary(wrong: Any):
    with pytest.raises(ValueError, match="metadata must be a dictionary"):
        weft.placeholder((), metadata=wrong)
    x = weft.placeholder(())
    with pytest.raises(ArgumentError):
        x.metadata = wrong


def test_metadata_survives_replacement_by_a_pass():
    class Halve(weft.PeepholeGraphPass):
        @weft.visit.on_type(AddOp)
        def visit(self, op: weft.TensorOp):
            x, y = op.args
            self.replace_op(op, weft.multiply(weft.subtract(x, -y), 1))

    x = weft.placeholder((2,))
    y = x + x
    y.metadata = {"layer": "x"}
    graph = weft.capture([y], [x])
    target = weft.make_transformer("numpy").target
    (output,) = run_passes(graph, [Halve()], target).outputs
    assert type(output).__name__ == "MultiplyOp"
    assert output.metadata == {"layer": "x"}
    assert output.file_info == y.file_info


def test_every_op_points_at_the_line_of_the_user():
    x = weft.placeholder((2, 3))
    ops = {
        x: this_line() - 2,
        weft.tanh(x): this_line(),
        x + 1: this_line(),
        -x: this_line(),
        x[0]: this_line(),
        weft.mean(x): this_line(),
    }
    for op, expected in ops.items():
        assert (op.filename, op.lineno) == (__file__, expected)
        assert op.file_info == f'File "{__file__}", line {expected}'


def test_ops_made_inside_weft_point_at_the_user_as_well():
    x = weft.placeholder((2, 3))
    line = this_line() + 2
    with weft.Op.all_ops() as made:
        y = weft.softmax(x)
    assert len(made) > 3
    assert {(op.filename, op.lineno) for op in made} == {(__file__, line)}
    line = this_line() + 2
    with weft.Op.all_ops() as made:
        weft.deriv(weft.sum(y), x)
    assert len(made) > 3
    # What a forward op contributes has its line.
    assert {(op.filename, op.lineno) for op in made} == {(__file__, y.lineno), (__file__, line)}


def test_a_package_whose_name_merely_starts_with_weft_is_the_user():
    scope = {"__name__": "weftwork.models", "weft": weft}
    exec(compile("x = weft.placeholder(())\n", "weftwork/models.py", "exec"), scope)
    assert scope["x"].file_info == 'File "weftwork/models.py", line 1'


def test_softmax_is_a_quotient_with_a_schema():
    x = weft.placeholder(weft.make_axis(20, "C"))
    s = weft.softmax(x)
    assert type(s).__name__ == "DivideOp"
    assert [type(schema).__name__ for schema in s.schemas] == ["Softmax"]
    assert s.find_schema(type(s.schemas[0])) is s.schemas[0]
    assert s.find_schema(PrintOp) is None
    (captured,) = weft.capture([s], [x]).outputs
    assert type(captured).__name__ == "SoftmaxOp"


def test_the_newest_schema_comes_first():
    s = weft.softmax(weft.placeholder((3,)))
    older = s.schemas[0]
    newer = type(older)(older.composite)
    s.add_schema(newer)
    assert s.schemas == [newer, older]
    assert s.find_schema(type(older)) is newer


def test_ops_are_immutable_in_structure():
    x = weft.placeholder((2,))
    y = x + 1
    for field, value in (("args", ()), ("axes", x.axes), ("reads", ()), ("dtype", weft.int8)):
        with pytest.raises(AttributeError, match="immutable"):
            setattr(y, field, value)


def test_ops_are_hashed_by_identity():
    x, y = weft.placeholder((2,)), weft.placeholder((2,))
    assert len({x, y, x}) == 2
    assert {x: 1, y: 2}[y] == 2
    assert hash(x) == object.__hash__(x)


def test_an_op_has_no_truth_value():
    x = weft.placeholder((2,))
    with pytest.raises(TypeError, match="no truth value"):
        bool(x > 0)


def test_an_op_is_iterated_along_its_first_axis(transformer: weft.Transformer):
    x = weft.placeholder((2, 3))
    one, other = x
    assert one.axes == other.axes == weft.make_axes(3)
    rows = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(transformer.computation(other - one, x)(rows), rows[1] - rows[0])
    assert list(weft.placeholder((0, 3))) == []


def test_captured_ops_hide_from_the_outer_list_and_all_ops_do_not():
    with weft.Op.captured_ops() as outer:
        a = weft.constant(0)
        with weft.Op.all_ops() as inner:
            b = weft.constant(1)
        with weft.Op.captured_ops() as hidden:
            c = weft.constant(2)
    assert (outer, inner, hidden) == ([a, b], [b], [c])


def test_variables_lists_what_is_trainable_in_topological_order():
    w, b, p = weft.variable(()), weft.variable(()), weft.persistent_tensor(())
    x = weft.placeholder(())
    c = weft.tanh(w * x + b) + p
    assert list(c.variables()) == [w, b]
    assert list(c.variables(filter=lambda op: op.is_placeholder)) == [x]


@pytest.mark.parametrize(
    ("make", "shown"),
    [
        (lambda: weft.placeholder((3,)), r"<AssignableTensorOp\(placeholder_\d+\): float32\(3\)>"),
        (
            lambda: weft.variable((2, 3), initial_value=0.0, dtype="float64"),
            r"<AssignableTensorOp\(variable_\d+\): float64\(2, 3\)>",
        ),
        (
            lambda: weft.persistent_tensor((), initial_value=0),
            r"<AssignableTensorOp\(persistent_\d+\): float32\(\)>",
        ),
        (
            lambda: weft.placeholder((weft.ax.N, weft.make_axis(3, "C")), name="image") * 2,
            r"<MultiplyOp\(MultiplyOp_\d+\): float32\(N, C=3\)>",
        ),
        (
            lambda: weft.assign(weft.variable((), initial_value=0.0, name="v"), 1),
            r"<AssignOp\(AssignOp_\d+\)>",
        ),
    ],
)
def test_a_repr_gives_class_name_dtype_shape_and_line(make: Callable[..., Any], shown: str) -> None:
    where = r", test_op\.py:\d+>"
    assert re.fullmatch(shown.removesuffix(">") + where, repr(make()))


def test_operands_are_shown_with_the_values_of_constants():
    x = weft.constant(0)
    y = weft.constant(1)
    mysum = weft.add(x, y)
    assert type(mysum) is Add
    assert Add.__name__ == "AddOp"
    assert isinstance(mysum, weft.Op)
    assert mysum.args == (x, y)
    assert repr(mysum.args) == (
        f"(<AssignableTensorOp(<Const(0)>):{id(x)}>, <AssignableTensorOp(<Const(1)>):{id(y)}>)"
    )


def test_initializers_are_shown_as_ops():
    x = weft.constant(0)
    mysum = weft.add(x, weft.constant(1))
    assert not mysum.initializers
    (init,) = x.initializers
    assert repr(init).startswith("<InitTensorOp(InitTensorOp_")


def test_an_op_has_axes_a_name_metadata_and_a_line():
    axes = weft.make_axes([weft.make_axis(3, "C")])
    op = weft.placeholder(axes, metadata={"stochastic": "dropout"})
    assert op.axes == axes
    op.name = "dropped"
    assert op.name == "dropped"
    assert op.metadata["stochastic"] == "dropout"
    assert op.filename == __file__
    assert op.file_info == f'File "{__file__}", line {op.lineno}'


def test_a_schema_is_named_for_what_the_ops_compute():
    x = weft.placeholder(weft.make_axis(20, "C"))
    s = weft.softmax(x)
    assert [type(schema).__name__ for schema in s.schemas] == ["Softmax"]
    assert type(s).__name__ == "DivideOp"
