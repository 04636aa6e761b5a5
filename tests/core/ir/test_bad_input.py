"""What cannot be built gives a clear error that names the user's line, and changes nothing."""

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
    ImmutableError,
    PassDidNotConverge,
    PassError,
    PluginError,
    StateError,
    UnknownPluginError,
    UnsupportedOpError,
    WeftError,
)

NUMPY = weft.make_transformer("numpy").target
H, W, N = weft.make_axis(2, "H"), weft.make_axis(3, "W"), weft.make_axis(4, "N")
K = weft.make_axis(5, "K")


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
    "reshape, two -1": Case(lambda: weft.reshape(x(4), (-1, -1)), AxesError, ("one", "-1")),
    "broadcast": Case(lambda: weft.broadcast(x(2), (3,)), AxesError, ("broadcast",)),
    "concat": Case(lambda: weft.concat([x(2), x(2, 2)]), AxesError, ("ConcatOp", "dimension 0")),
    "concat of nothing": Case(lambda: weft.concat([]), ArgumentError, ("at least one",)),
    "stack": Case(lambda: weft.stack([x(2)], weft.make_axis(3, "S")), AxesError, ("S=3", "1")),
    "pad": Case(lambda: weft.pad(x(2), [(1, -1)]), AxesError, ("padding", "-1")),
    "max of nothing": Case(lambda: weft.max(x(0)), AxesError, ("MaxOp", "no elements")),
    "expand_dims": Case(lambda: weft.expand_dims(x(2), dim=5), AxesError, ("position 5",)),
    "constant": Case(lambda: weft.constant([1, 2], (3,)), AxesError, ("shape (2,)", "Axes(3)")),
    "initial value": Case(
        lambda: weft.variable((3,), initial_value=[1, 2]), AxesError, ("initial value", "(2,)")
    ),
    "assign": Case(lambda: weft.assign(w(2), [1, 2, 3]), AxesError, ("assign", "Axes(3)")),
    "set_item": Case(lambda: weft.set_item(w(3), slice(0, 2), [1, 2, 3]), AxesError, ("Axes(3)",)),
    "cross entropy": Case(
        lambda: weft.cross_entropy_multi(weft.softmax(x(3)), x(4)),
        AxesError, ("Axes(3)", "Axes(4)"),
    ),
    "cross entropy, names": Case(
        lambda: weft.cross_entropy_multi(weft.softmax(x(H, N)), x(W, N)),
        AxesError, ("cross_entropy_multi", "same axes", "H=2", "W=3"),
    ),
    "cross entropy, fewer names": Case(
        lambda: weft.cross_entropy_multi(weft.softmax(x(H, N)), x(N)), AxesError, ("same axes",)
    ),
    "binary cross entropy, names": Case(
        lambda: weft.cross_entropy_binary(weft.sigmoid(x(H, N)), x(W, N)),
        AxesError, ("cross_entropy_binary", "same axes"),
    ),
    "inner binary cross entropy, shapes": Case(
        lambda: weft.cross_entropy_binary_inner(x(3, 4), x(1, 4)),
        AxesError, ("cross_entropy_binary_inner", "same axes"),
    ),
    "cosine similarity, names": Case(
        lambda: weft.cosine_similarity(x(N, H), x(N, W)), AxesError, ("cosine_similarity", "H=2")
    ),
    "cosine similarity, lengths": Case(
        lambda: weft.cosine_similarity(x(3, 4), x(3, 1)), AxesError, ("differ in length",)
    ),
    "prelu": Case(lambda: weft.prelu(x(H), x(W)), AxesError, ("prelu", "adds axes")),
    "nan_to_num": Case(lambda: weft.nan_to_num(x(H), x(W)), AxesError, ("adds axes",)),
    "cast_axes, order": Case(
        lambda: weft.cast_axes(x(H, W), (W, H)), AxesError, ("another order", "axes_with_order")
    ),
    "cast_axes, order inside": Case(
        lambda: weft.cast_axes(x(H, W, N), weft.make_axes([(W, H), N])),
        AxesError, ("another order",),
    ),
    "reshape, order": Case(
        lambda: weft.reshape(x(H, W), weft.Axes((W, H))), AxesError, ("another order",)
    ),
    "a flattened axis": Case(
        lambda: weft.dot(x(H, K), weft.flatten_at(x(W, N, weft.make_axis(3, "H")), 2)),
        AxesError, ("DotOp", "H=2", "H=3"),
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
    "axes of text": Case(lambda: weft.Axes("HW"), AxesError, ("text",)),
    "axes of None": Case(lambda: weft.Axes(None), AxesError, ("None",)),
    "axes of fractions": Case(lambda: weft.Axes((2.5,)), AxesError, ("integer", "2.5")),
    "axes without text": Case(lambda: weft.Axes(H) - "H", AxesError, ("text",)),
    "the name of an axis": Case(lambda: weft.make_axis(2, 3), AxesError, ("text", "3")),
    "another name": Case(lambda: setattr(x(H).axes[0], "name", "Q"), AxesError, ("map_roles",)),
    "another name for weft.ax": Case(
        lambda: setattr(weft.ax.N, "name", "M"), AxesError, ("axis N", "fixed")
    ),
    "another length": Case(lambda: setattr(x(H).axes[0], "length", 3), AxesError, ("fixed",)),
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
    # what is not a tensor, and what cannot be written
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
    "the value of an expression": Case(lambda: (x() + 1).const, ArgumentError, ("a constant",)),
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
    # what never changes
    "setting axes": Case(lambda: setattr(x(2), "axes", H), ImmutableError, ("immutable",)),
    "deleting axes": Case(lambda: delattr(x(2), "axes"), ImmutableError, ("cannot be deleted",)),
    "setting lengths": Case(lambda: setattr(x(2).axes, "lengths", 3), ImmutableError, ("lengths",)),
    "deleting lengths": Case(lambda: delattr(x(2).axes, "lengths"), ImmutableError, ("lengths",)),
    "setting outputs": Case(
        lambda: setattr(weft.capture([x(2)]), "outputs", ()), ImmutableError, ("replace()",)
    ),
    "deleting outputs": Case(
        lambda: delattr(weft.capture([x(2)]), "outputs"), ImmutableError, ("outputs",)
    ),
    # captures
    "a parameter that is a variable": Case(
        lambda: (lambda v: weft.capture([v + 1], [v]))(w()), ArgumentError, ("not a placeholder",)
    ),
    "a parameter that is a number": Case(
        lambda: weft.capture([x()], [3]), ArgumentError, ("not a placeholder",)
    ),
    "a parameter twice": Case(
        lambda: (lambda v: weft.capture([v + 1], [v, v]))(x()), ArgumentError, ("twice",)
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BUILT)
def test_what_cannot_be_built(case: str):
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
        UnknownPluginError, errors.ArtifactError, errors.BatchingError, errors.CheckpointError,
    ),
    ImportError: (errors.MissingPackage,),
    TypeError: (DTypeError, errors.NotPicklable),
    IndexError: (errors.IndexOutOfRange,),
    AttributeError: (ImmutableError,),
    AssertionError: (errors.CheckFailed,),
    MemoryError: (errors.HostMemoryError, errors.MemoryLimitError),
    RuntimeError: (
        PassError, PassDidNotConverge, errors.PlanError, PluginError, errors.BackendError,
        UnsupportedOpError, errors.BatchFailed, errors.WorkerError, errors.CommunicationError,
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "parent"), [(kind, parent) for parent, kinds in BUILTINS.items() for kind in kinds]
)
def test_each_class_is_also_the_built_in_that_fits(kind: type[Any], parent: type[Any]):
    assert issubclass(kind, WeftError)
    assert issubclass(kind, parent)


def test_the_list_of_error_classes_is_complete():
    listed = {kind for kinds in BUILTINS.values() for kind in kinds} | {WeftError}
    defined = {kind for kind in vars(errors).values() if isinstance(kind, type)}
    assert {kind for kind in defined if issubclass(kind, WeftError)} == listed


def test_a_failed_write_leaves_the_state_as_it_was(transformer: weft.Transformer):
    state = weft.variable((2,), initial_value=[1, 2])
    for wrong in ([1, 2, 3], "text"):
        with pytest.raises(WeftError):
            weft.assign(state, wrong)
    with pytest.raises(WeftError):
        state[5] = 1
    assert len((state + 1).other_deps) == 0
    assert transformer.computation(state)().tolist() == [1, 2]


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


def test_a_division_by_zero_of_constants_is_no_error(transformer: weft.Transformer):
    got = transformer.computation([weft.constant(1.0) / 0, weft.log(weft.constant(-1.0))])()
    assert np.isinf(got[0])
    assert np.isnan(got[1])
