"""Bad input gives a clear error of the right class that names the user's line, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import weft
from weft import errors
from weft.errors import (
    ArgumentError,
    AxesError,
    DTypeError,
    GradientError,
    GraphError,
    PassDidNotConverge,
    PassError,
    PluginError,
    StateError,
    UnknownPluginError,
    UnsupportedOpError,
    WeftError,
)
from weft.ops.elementwise import AddOp, MultiplyOp, SubtractOp
from weft.passes import run_passes

NUMPY = weft.make_transformer("numpy").target
H, W, N = weft.make_axis(2, "H"), weft.make_axis(3, "W"), weft.make_axis(4, "N")


def x(*shape: Any, dtype: Any = "float32") -> Any:
    return weft.placeholder(shape, dtype=dtype)


def w(*shape: Any, dtype: Any = "float32") -> Any:
    return weft.variable(shape, dtype=dtype)


class NoGradientOp(weft.TensorOp):
    """An op without a gradient, and without a rule in any backend."""

    def infer(self):
        return self.args[0].axes, self.args[0].dtype


def no_gradient(op: Any) -> Any:
    return NoGradientOp(op)


@dataclass
class Case:
    """Building something that cannot be, the error it gives, and words of the message."""

    build: Callable[[], Any]
    error: type[WeftError]
    words: tuple[str, ...] = field(default=())


BUILT = {
    # wrong shapes
    "add": Case(lambda: x(2) + x(3), AxesError, ("AddOp", "Axes(2)", "Axes(3)", "broadcast")),
    "add, named": Case(
        lambda: x(H) + x(weft.make_axis(5, "H")), AxesError, ("H", "length 2", "5")
    ),
    "named and positional": Case(lambda: x(H) + x(2), AxesError, ("named", "positional")),
    "where": Case(lambda: weft.where(x(2) > 0, x(2), x(3)), AxesError, ("WhereOp",)),
    "where, condition": Case(lambda: weft.where(x(4) > 0, x(2), x(2)), AxesError, ("4", "2")),
    "matmul": Case(lambda: x(2, 3) @ x(2, 3), AxesError, ("MatmulOp", "contract")),
    "matmul of scalars": Case(lambda: x() @ x(2), AxesError, ("matmul", "dot")),
    "dot": Case(lambda: weft.dot(x(H), x(weft.make_axis(5, "H"))), AxesError, ("DotOp", "H=5")),
    "reshape": Case(lambda: weft.reshape(x(4), (3,)), AxesError, ("4 elements", "3")),
    "reshape, -1": Case(lambda: weft.reshape(x(4), (3, -1)), AxesError, ("4 elements",)),
    "reshape, two -1": Case(lambda: weft.reshape(x(4), (-1, -1)), AxesError, ("elements",)),
    "broadcast": Case(lambda: weft.broadcast(x(2), (3,)), AxesError, ("broadcast",)),
    "concat": Case(lambda: weft.concat([x(2), x(2, 2)]), AxesError, ("ConcatOp", "dimension 0")),
    "concat of nothing": Case(lambda: weft.concat([]), ArgumentError, ("at least one",)),
    "stack": Case(lambda: weft.stack([x(2)], weft.make_axis(3, "S")), AxesError, ("S=3", "1")),
    "pad": Case(lambda: weft.pad(x(2), [(1, -1)]), AxesError, ("PadOp", "-1")),
    "max of nothing": Case(lambda: weft.max(x(0)), AxesError, ("MaxOp", "no elements")),
    "expand_dims": Case(lambda: weft.expand_dims(x(2), dim=5), AxesError, ("place 5",)),
    "constant": Case(lambda: weft.constant([1, 2], (3,)), AxesError, ("shape (2,)", "Axes(3)")),
    "initial value": Case(
        lambda: weft.variable((3,), initial_value=[1, 2]), AxesError, ("initial value", "(2,)")
    ),
    "assign": Case(lambda: weft.assign(w(2), [1, 2, 3]), AxesError, ("assign", "Axes(3)")),
    "set_item": Case(lambda: weft.set_item(w(3), slice(0, 2), [1, 2, 3]), AxesError, ("Axes(3)",)),
    "cross entropy": Case(
        lambda: weft.cross_entropy_multi(weft.softmax(x(3)), x(4)), AxesError, ("Axes(3)", "Axes(4)")
    ),
    "cast_role": Case(lambda: weft.cast_role(x(2), (3,)), AxesError, ("lengths",)),
    # unknown axes
    "sum over an unknown axis": Case(lambda: weft.sum(x(H), "Z"), AxesError, ("'Z'", "H=2")),
    "sum over no dimension": Case(lambda: weft.sum(x(2), 3), AxesError, ("dimension 3",)),
    "softmax": Case(lambda: weft.softmax(x(H), [W]), AxesError, ("W=3", "H=2")),
    "transpose": Case(lambda: weft.transpose(x(H, W), (H,)), AxesError, ("needs all of",)),
    "transpose, repeats": Case(lambda: weft.transpose(x(4, 2), (0, 0)), AxesError, ("twice",)),
    "dot over an axis": Case(lambda: weft.dot(x(H, W), x(H), [W]), AxesError, ("'W'", "share")),
    "map_roles": Case(lambda: weft.map_roles(x(H), {"Z": "Y"}), AxesError, ("'Z'",)),
    "slice_along_axis": Case(lambda: weft.slice_along_axis(x(H), "Z", 0), AxesError, ("'Z'",)),
    "argmax": Case(lambda: weft.argmax(x(H), "Z"), AxesError, ("'Z'",)),
    "both ways of naming axes": Case(
        lambda: weft.sum(x(H, W), H, W), ArgumentError, ("reduction_axes", "out_axes")
    ),
    "make_axes, mixed": Case(lambda: weft.make_axes((H, 3)), AxesError, ("mix named",)),
    "make_axes, twice": Case(lambda: weft.placeholder((H, H)), AxesError, ("more than once",)),
    "make_axes, text": Case(lambda: weft.placeholder("HW"), AxesError, ("text",)),
    "negative length": Case(lambda: weft.make_axis(-1, "H"), AxesError, ("negative",)),
    # indices
    "index": Case(lambda: x(4)[7], AxesError, ("index 7", "out of range")),
    "too many indices": Case(lambda: x(4)[0, 0], AxesError, ("2 indices", "1 axes")),
    "step 0": Case(lambda: x(4)[::0], ArgumentError, ("step",)),
    "index of text": Case(lambda: x(4)["a"], ArgumentError, ("integer or a slice", "'a'")),
    "slice of text": Case(lambda: x(4)["a":], ArgumentError, ("'a'",)),
    "slice of a fraction": Case(lambda: x(4)[1.5:], ArgumentError, ("1.5",)),
    "set_item outside": Case(lambda: weft.set_item(w(3), 7, 1), AxesError, ("index 7",)),
    # wrong dtypes
    "uint64 with int64": Case(
        lambda: x(dtype="uint64") + x(dtype="int64"), DTypeError, ("uint64", "int64", "cast")
    ),
    "float16 with bfloat16": Case(
        lambda: x(dtype="float16") * x(dtype="bfloat16"), DTypeError, ("bfloat16", "cast")
    ),
    "cast": Case(lambda: weft.cast(x(), "float33"), DTypeError, ("float33", "float32")),
    "placeholder": Case(lambda: weft.placeholder((), "U3"), DTypeError, ("U3",)),
    "NaN in an integer": Case(
        lambda: weft.constant(float("nan"), dtype="int32"), DTypeError, ("NaN", "int32")
    ),
    "infinity in an integer": Case(
        lambda: weft.constant([1, np.inf], dtype="int8"), DTypeError, ("infinity", "int8")
    ),
    "a fraction in an integer": Case(
        lambda: weft.constant(0.5, dtype="int32"), DTypeError, ("fraction", "int32")
    ),
    "an overflow": Case(lambda: weft.constant(300, dtype="uint8"), DTypeError, ("300", "uint8")),
    "initial NaN": Case(
        lambda: weft.variable((2,), dtype="int32", initial_value=float("nan")),
        DTypeError, ("initial value", "NaN"),
    ),
    "initial value of another dtype": Case(
        lambda: weft.variable((), initial_value=weft.constant(1, dtype="int32")),
        DTypeError, ("int32", "float32"),
    ),
    "assigned NaN": Case(
        lambda: weft.assign(w(dtype="int32"), float("nan")), DTypeError, ("NaN", "int32")
    ),
    "text": Case(lambda: weft.constant("abc"), DTypeError, ("numbers",)),
    "an operand that is text": Case(lambda: x(2) + "abc", DTypeError, ("numbers",)),
    "padding with NaN": Case(
        lambda: weft.pad(x(2, dtype="int32"), [1], float("nan")), DTypeError, ("NaN",)
    ),
    # what is no tensor, and what cannot be written
    "an assign as operand": Case(
        lambda: weft.add(weft.assign(w(), 1), 1), ArgumentError, ("no tensor",)
    ),
    "assign to a constant": Case(
        lambda: weft.assign(weft.constant(1), 2), StateError, ("not assignable", "constant")
    ),
    "assign to an expression": Case(
        lambda: weft.assign(x() + 1, 2), StateError, ("not assignable",)
    ),
    "assign to a number": Case(lambda: weft.assign(3, 2), StateError, ("not assignable",)),
    "SetItem of a constant": Case(
        lambda: weft.SetItem(weft.constant(1), 2), StateError, ("not assignable",)
    ),
    "metadata": Case(lambda: weft.placeholder((), metadata=3), ArgumentError, ("dictionary",)),
    "the value of an expression": Case(lambda: (x() + 1).const, ArgumentError, ("is not a constant",)),
    "sequential of nothing": Case(lambda: weft.sequential([]), ArgumentError, ("at least one",)),
    "doall of numbers": Case(lambda: weft.doall([1]), ArgumentError, ("not 1",)),
    # gradients
    "deriv of a tensor": Case(
        lambda: (lambda v: weft.deriv(v * v, v))(x(2)), GradientError, ("scalar", "error=")
    ),
    "deriv of integers": Case(
        lambda: weft.deriv(x(dtype="int32"), x()), GradientError, ("of int32",)
    ),
    "deriv by integers": Case(
        lambda: weft.deriv(x(), x(dtype="int32")), GradientError, ("with respect to int32",)
    ),
    "deriv of a number": Case(lambda: weft.deriv(1.0, x()), ArgumentError, ("1.0",)),
    "deriv with a wrong error": Case(
        lambda: weft.deriv(x(2), x(2), x(3)), AxesError, ("error has Axes(3)", "Axes(2)")
    ),
    "missing gradient": Case(
        lambda: (lambda v: weft.deriv(weft.sum(weft.tanh(no_gradient(v * 2)) * v), v))(x(2)),
        GradientError, ("NoGradientOp", "generate_adjoints", "stop_gradient", "<-"),
    ),
    # captures
    "a parameter that is a variable": Case(
        lambda: (lambda v: weft.capture([v + 1], [v]))(w()), ArgumentError, ("no placeholder",)
    ),
    "a parameter that is a number": Case(
        lambda: weft.capture([x()], [3]), ArgumentError, ("no placeholder",)
    ),
    "a parameter twice": Case(
        lambda: (lambda v: weft.capture([v + 1], [v, v]))(x()), ArgumentError, ("twice",)
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BUILT)
def test_what_cannot_be_built(case):
    expected = BUILT[case]
    state = w(2)
    kept = weft.assign(state, state + 1)
    with pytest.raises(WeftError) as caught:
        expected.build()
    assert type(caught.value) is expected.error
    message = str(caught.value)
    assert f'File "{__file__}", line {expected.build.__code__.co_firstlineno}' in message
    assert [word for word in expected.words if word not in message] == []
    assert list((state + 1).other_deps) == [kept]


BUILTINS = {
    ValueError: (
        AxesError, ArgumentError, StateError, GraphError, errors.ParseError, GradientError,
        UnknownPluginError,
    ),
    TypeError: (DTypeError,),
    RuntimeError: (
        PassError, PassDidNotConverge, errors.PlanError, PluginError, errors.BackendError,
        UnsupportedOpError,
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "parent"), [(kind, parent) for parent, kinds in BUILTINS.items() for kind in kinds]
)
def test_each_class_is_also_the_built_in_that_fits(kind, parent):
    assert issubclass(kind, WeftError)
    assert issubclass(kind, parent)


def test_the_list_of_error_classes_is_complete():
    listed = {kind for kinds in BUILTINS.values() for kind in kinds} | {WeftError}
    defined = {kind for kind in vars(errors).values() if isinstance(kind, type)}
    assert {kind for kind in defined if issubclass(kind, WeftError)} == listed


def test_a_failed_write_leaves_the_state_as_it_was(transformer):
    state = weft.variable((2,), initial_value=[1, 2])
    for wrong in ([1, 2, 3], "text"):
        with pytest.raises(WeftError):
            weft.assign(state, wrong)
    with pytest.raises(WeftError):
        state[5] = 1
    assert len((state + 1).other_deps) == 0
    assert transformer.computation(state)().tolist() == [1, 2]


CALLS = {
    "too few": ((), {}, ArgumentError, ("expecting 2", "called with 0")),
    "too many": ((1, 2, 3), {}, ArgumentError, ("expecting 2", "called with 3")),
    "a wrong shape": (([1, 2], 1), {}, AxesError, ("argument 0", "(2,)", "Axes(3)")),
    "a wrong rank": ((1, 1), {}, AxesError, ("argument 0", "()", "Axes(3)")),
    "a wrong dtype": (
        ([1, 2, 3], np.float32(1)), {}, DTypeError, ("argument 1", "float32", "int32")
    ),
    "a fraction": (([1, 2, 3], 1.5), {}, DTypeError, ("argument 1", "fraction")),
    "NaN": (([1, 2, 3], float("nan")), {}, DTypeError, ("argument 1", "NaN")),
    "an overflow": (([1, 2, 3], 2**40), {}, DTypeError, ("argument 1", "int32")),
    "text": (("abc", 1), {}, DTypeError, ("argument 0", "number")),
    "ragged": (([1, [2, 3]], 1), {}, ArgumentError, ("argument 0",)),
    "complex": (([1, 2, 3j], 1), {}, DTypeError, ("argument 0", "complex")),
    "a wrong number of outs": (
        ([1, 2, 3], 1), {"out": []}, ArgumentError, ("1 results", "out= gives 0")
    ),
    "a wrong out": (
        ([1, 2, 3], 1), {"out": np.zeros(3)}, ArgumentError, ("out= needs", "float32")
    ),
    "an out that is a view": (
        ([1, 2, 3], 1), {"out": np.zeros((3, 2), np.float32)[:, 0]}, ArgumentError, ("contiguous",)
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CALLS)
@pytest.mark.parametrize("warm", [False, True], ids=["first call", "later call"])
def test_a_call_that_does_not_fit(transformer, case, warm):
    arguments, options, error, words = CALLS[case]
    a, b = x(3), x(dtype="int32")
    state = weft.variable((), initial_value=0)
    weft.assign(state, state + 1)
    c = transformer.computation(a * weft.cast(b, "float32") + state * 0, a, b)
    if warm:
        c([1, 2, 3], 2)
    with pytest.raises(error) as caught:
        c(*arguments, **options)
    message = str(caught.value)
    assert [word for word in words if word not in message] == []
    assert f'File "{__file__}", line' in message
    assert c([1, 2, 3], 2).tolist() == [2, 4, 6]
    assert transformer.get_value(state).item() == 1 + warm


def test_feed_dict_that_does_not_fit(transformer):
    a, b, other = x(), x(), x()
    c = transformer.computation(a + b, a, b)
    with pytest.raises(ArgumentError, match="no parameters") as caught:
        c(feed_dict={other: 1})
    assert "File" in str(caught.value)
    with pytest.raises(ArgumentError, match="missing values") as caught:
        c(feed_dict={a: 1})
    assert b.file_info in str(caught.value)
    with pytest.raises(TypeError, match="colour"):
        c(1, 2, colour=3)


def test_an_unknown_length_that_is_not_given(transformer):
    n = weft.Axis(None, "N")
    state = weft.variable((n,))
    c = transformer.computation(state + 1)
    with pytest.raises(AxesError, match=r"no argument tells the lengths N.*axes=") as caught:
        c()
    assert f'File "{__file__}", line' in str(caught.value)
    assert transformer.computation(state + 1, axes={n: 3})().tolist() == [1, 1, 1]


def test_lengths_that_conflict(transformer):
    n = weft.Axis(None, "N")
    a, b = x(n), x(n)
    c = transformer.computation(a + b, a, b)
    with pytest.raises(AxesError, match="length N is 2 elsewhere, but 3") as caught:
        c([1, 2], [1, 2, 3])
    assert b.file_info in str(caught.value)
    assert c([1, 2], [1, 2]).tolist() == [2, 4]


def test_a_length_that_is_given_but_not_unknown(transformer):
    with pytest.raises(ArgumentError, match="not unknown") as caught:
        transformer.computation(x(H), axes={H: 3})
    assert f'File "{__file__}", line' in str(caught.value)


def test_results_that_are_no_ops(transformer):
    with pytest.raises(ArgumentError, match="returns ops, not 3"):
        transformer.computation([x(), 3])
    assert len(transformer.computations) == 0


def test_a_value_of_another_shape_or_dtype_for_a_state(transformer):
    state = weft.variable((2,), dtype="int32", initial_value=[1, 2])
    for wrong, error in (
        ([1, 2, 3], AxesError), ([np.nan, 1], DTypeError), ([1.5, 1], DTypeError)
    ):  # fmt: skip
        with pytest.raises(error):
            transformer.set_value(state, wrong)
        assert transformer.get_value(state).tolist() == [1, 2]
    for wrong in (weft.constant(1), x() + 1, "w"):
        with pytest.raises(ArgumentError, match="not a state"):
            transformer.get_value(wrong)


# Graphs and passes


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
    with pytest.raises(PassError, match="pass Reshapes replaced it by .* must keep both") as caught:
        run_passes(weft.capture([weft.tanh(y)], [a]), [Reshapes()], NUMPY)
    assert y.file_info in str(caught.value)


# Backends and initialisation


def test_an_unknown_backend_or_pass():
    with pytest.raises(ValueError, match="numpi") as caught:
        weft.make_transformer("numpi")
    assert isinstance(caught.value, UnknownPluginError)
    assert "'numpy'" in str(caught.value)
    with pytest.raises(UnknownPluginError, match=r"simple-prun.*'simple-prune'"):
        weft.make_transformer("numpy", passes=["simple-prun"])
    with pytest.raises(TypeError, match="colour"):
        weft.make_transformer("numpy", colour=3)


def test_ops_without_a_rule_are_all_listed_and_stop_nobody_else(transformer):
    a = x(2)
    first, second = no_gradient(a), no_gradient(a * 2)
    bad = transformer.computation([first, second], a)
    good = transformer.computation(a + 1, a)
    for _ in range(2):
        with pytest.raises(UnsupportedOpError) as caught:
            bad([1, 2])
        assert str(caught.value).count("NoGradientOp") == 2
        assert first.file_info in str(caught.value)
        assert second.file_info in str(caught.value)
        assert good([1, 2]).tolist() == [2, 3]
    assert transformer.computation(a * 3, a)([1, 2]).tolist() == [3, 6]


STEPS = [
    "run_registered_graph_passes", "initialize_tensor_descriptions", "start_transform_allocate",
    "finish_transform_allocate", "transform_ordered_ops", "finish_transform", "allocate_storage",
    "allocate",
]  # fmt: skip


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("warm", [False, True], ids=["first", "later"])
def test_an_exception_in_the_middle_of_initialisation(transformer, monkeypatch, step, after, warm):
    a = x(64)
    state = weft.variable((64,), initial_value=1)
    weft.assign(state, state + 1)
    if warm:
        transformer.computation(weft.sum(state))()
    y = weft.tanh(a * state)
    c = transformer.computation([weft.sum(y) + weft.exp(y), state], a)
    real = getattr(transformer, step)

    def fails(*arguments: Any) -> Any:
        if after:
            real(*arguments)
        raise MemoryError("once")

    value = np.linspace(0, 1, 64, dtype=np.float32)
    with monkeypatch.context() as patch:
        patch.setattr(transformer, step, fails)
        for _ in range(2):
            with pytest.raises(MemoryError, match="once"):
                c(value)
    got, updated = c(value)
    expected = np.tanh(value * (2 + warm))
    np.testing.assert_allclose(got, expected.sum() + np.exp(expected), rtol=1e-4)
    assert updated.tolist() == [2 + warm] * 64
    assert c(value)[1][0] == 3 + warm
    assert all(storage.allocated for storage in transformer.device_buffers)


def test_an_initialiser_that_fails_runs_again(transformer, monkeypatch):
    state = weft.variable((2,), initial_value=[1, 2])
    c = transformer.computation(state * 2)
    real = transformer.transform_ordered_ops

    def broken(program: Any, steps: Any, name: str) -> Any:
        run = real(program, steps, name)
        if not name.startswith("init"):
            return run

        def fails(*arrays: Any) -> None:
            raise OSError("lost the device")

        return fails

    with monkeypatch.context() as patch:
        patch.setattr(transformer, "transform_ordered_ops", broken)
        for _ in range(2):
            with pytest.raises(OSError, match="lost the device"):
                c()
    assert c().tolist() == [2, 4]


def test_strict_finalize():
    strict = weft.make_transformer("numpy", strict_finalize=True)
    a = x()
    c = strict.computation(a + 1, a)
    assert c(1).item() == 2
    with pytest.raises(StateError, match="finalized") as caught:
        strict.computation(a + 2, a)
    assert f'File "{__file__}", line' in str(caught.value)
    assert c(2).item() == 3
    assert len(strict.computations) == 1


def test_a_missing_gradient_shows_the_path():
    a = x(2)
    hole = no_gradient(a * 2)
    end = weft.tanh(weft.sin(hole))
    with pytest.raises(GradientError) as caught:
        weft.deriv(weft.sum(end), a)
    message = str(caught.value)
    assert hole.file_info in message
    path = message[message.index("(") :]
    assert path.index(hole.name) > 0
    other = x(2)
    assert weft.deriv(weft.sum(end + other), other).axes == other.axes


def test_a_division_by_zero_of_constants_is_no_error(transformer):
    got = transformer.computation([weft.constant(1.0) / 0, weft.log(weft.constant(-1.0))])()
    assert np.isinf(got[0])
    assert np.isnan(got[1])
