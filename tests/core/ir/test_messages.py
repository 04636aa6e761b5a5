"""What a user or the author of an op gets wrong is answered with what to write instead."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest

import weft
from weft import plugins
from weft.errors import (
    ArgumentError,
    AxesError,
    DTypeError,
    IndexOutOfRange,
    StateError,
    WeftError,
)
from weft.plugins import hookimpl

H, W = weft.make_axis(2, "H"), weft.make_axis(3, "W")


def x(*shape: Any, dtype: Any = "float32") -> Any:
    return weft.placeholder(shape, dtype=dtype)


class FieldOp(weft.TensorOp):
    """An op with one attribute."""

    k: int

    def infer(self):
        return self.args[0].axes, self.args[0].dtype


class InferringOp(weft.TensorOp):
    """An op that infers whatever it is given."""

    inferred: Any

    def infer(self):
        return self.inferred


class Case(NamedTuple):
    """A mistake, the error it gives, and words of the message."""

    make: Callable[[], Any]
    error: type[WeftError]
    words: tuple[str, ...]


NO_VALUE = ("has no ", "value", "before it is computed", "weft.jit")
AXES = weft.make_axes((2,))

MISTAKES = {
    "axes of an op in another order": Case(
        lambda: weft.ops.TanhOp(x(H, W), axes=(W, H)),
        AxesError,
        ("Axes(H=2, W=3)", "follow from the operands", "axes_with_order", "cast_axes"),
    ),
    "axes of an op of another name": Case(
        lambda: weft.ops.AddOp(x(H), x(H), axes=weft.make_axis(2, "C")),
        AxesError,
        ("Axes(H=2)", "C=2", "cast_axes"),
    ),
    # operators and functions
    "where of == None": Case(
        lambda: weft.where(x(2) == None, x(2), 0), ArgumentError, ("value False", "x == y")  # noqa: E711
    ),
    "stack without a list": Case(
        lambda: weft.stack(x(2), x(2)), ArgumentError, ("list of tensors: stack([x, y])",)
    ),
    "stack of a number": Case(lambda: weft.stack(3), ArgumentError, ("stack([x, y])",)),
    "concat without a list": Case(
        lambda: weft.concat(x(2), x(2)), ArgumentError, ("list of tensors: concat([x, y])",)
    ),
    "constant of ops": Case(
        lambda: weft.constant([x(), 2.0]), ArgumentError, ("holds tensor ops", "stack()")
    ),
    "constant of nested ops": Case(
        lambda: weft.constant([[1, 2], [x()]]), ArgumentError, ("holds tensor ops",)
    ),
    "ragged constant": Case(
        lambda: weft.constant([[1, 2], [3]]), ArgumentError, ("[[1, 2], [3]] is ragged",)
    ),
    "ragged operand": Case(lambda: weft.add(x(2), [[1, 2], [3]]), ArgumentError, ("is ragged",)),
    "and of floats": Case(lambda: x(2) & x(2), DTypeError, ("only bool and integers", "operand 1")),
    "or with a number": Case(lambda: (x(2) > 0) | 1.5, DTypeError, ("only bool and integers",)),
    "invert a float": Case(lambda: ~x(2), DTypeError, ("only bool and integers", "float32")),
    "one_hot of named axes": Case(
        lambda: weft.one_hot(x(H), 4), AxesError, ("needs a name", "make_axis(4, 'name')")
    ),
    # values that are not known yet
    "np.array": Case(lambda: np.array(x(2)), DTypeError, NO_VALUE),
    "np.asarray": Case(lambda: np.asarray([x(2)], np.float32), DTypeError, NO_VALUE),
    "float": Case(lambda: float(x()), DTypeError, NO_VALUE),
    "int": Case(lambda: int(x()), DTypeError, NO_VALUE),
    "complex": Case(lambda: complex(x()), DTypeError, NO_VALUE),
    "len": Case(lambda: len(x()), DTypeError, ("a scalar has no len()",)),
    "a fraction of a length": Case(
        lambda: 1 / x(weft.symbol("n")).shape[0], AxesError, ("length n", "//", "weft.as_op")
    ),
    "a length times a fraction": Case(
        lambda: x(weft.symbol("n")).shape[0] * 0.5, AxesError, ("length n and 0.5",)
    ),
    "unknown len": Case(
        lambda: len(x(weft.symbol("n"))), DTypeError, ("length n", "x.shape[0]", "scan()")
    ),
    "bool": Case(lambda: bool(x()), DTypeError, ("no truth value", "where()")),
    "iteration": Case(lambda: list(x()), DTypeError, ("cannot be iterated",)),
    "an item of a value": Case(
        lambda: (x(2) * 2).__setitem__(0, 1.0),
        StateError, ("not assignable", "x.at[index].set(value)"),
    ),
    "numpy's function": Case(lambda: np.linalg.svd(x(2, 2)), DTypeError, ("of numpy.svd",)),
    "numpy's out": Case(lambda: np.exp(x(2), out=np.ones(2)), ArgumentError, ("out=",)),
    "a mask of another shape": Case(
        lambda: x(2, 3).at[:, np.array([True, False])].set(1.0), AxesError, ("mask", "(3,)", "(2,)")
    ),
    "a mask and indices": Case(
        lambda: x(2, 2).at[np.array([True, False]), np.array([0])].set(1.0),
        ArgumentError, ("integers and slices", "where()"),
    ),
    # indices
    "None among names": Case(lambda: x(H)[None], AxesError, ("expand_dims",)),
    "index of a mask": Case(
        lambda: x(4, 3)[:, np.array([True, False, True])],
        ArgumentError, ("dimension 1 (length 3)", "ndarray of bool", "where()"),
    ),
    "index of floats": Case(
        lambda: x(4)[np.array([0.5])], ArgumentError, ("dimension 0 (length 4)", "cast()")
    ),
    "index of a list of floats": Case(
        lambda: x(H)[[0.0]], ArgumentError, ("(length 2)", "list of float64")
    ),
    "index of a ragged list": Case(lambda: x(4)[[0, [1]]], ArgumentError, ("[0, [1]]",)),
    "index out of range": Case(
        lambda: x(4, 3)[:, [0, 3]], IndexOutOfRange, ("index 3 at (1,)", "dimension 1 of length 3")
    ),
    "index of an op": Case(lambda: x(4)[x(4) > 0], ArgumentError, ("GreaterOp of bool", "where()")),
    "index of a bool": Case(lambda: x(4)[True], ArgumentError, ("not True",)),
    "slice of an array": Case(lambda: x(4)[np.arange(2):], ArgumentError, ("integer to integer",)),
    "set_item of an array": Case(
        lambda: weft.set_item(weft.variable((4,)), np.arange(2), 0),
        ArgumentError, ("length 4", "scatter()"),
    ),
    "slices that are no list": Case(
        lambda: weft.tensor_slice(x(4), slice(2)), ArgumentError, ("one for each axis",)
    ),
    # axes and states
    "initial value without axes": Case(
        lambda: weft.variable(initial_value=[0.0, 0.0]),
        AxesError, ("give its axes", "variable((2,), initial_value=...)"),
    ),
    "a value in the place of axes": Case(
        lambda: weft.variable(np.zeros((2, 3))),
        ArgumentError, ("not a shape", "variable((2, 3), initial_value=...)"),
    ),
    "a length that is an array": Case(
        lambda: weft.zeros((np.zeros(2),)), AxesError, ("must be an integer",)
    ),
    "initial tensor without axes": Case(
        lambda: weft.persistent_tensor(initial_value=x(2)), AxesError, ("give its axes",)
    ),
    "initial value of ops": Case(
        lambda: weft.variable((2,), initial_value=[x(), 1]), ArgumentError, ("initial value",)
    ),
    "sizes one by one": Case(
        lambda: weft.placeholder(3, 4), ArgumentError, ("one tuple", "placeholder((3, 4))")
    ),
    "axes one by one": Case(lambda: weft.variable(H, W), ArgumentError, ("((H=2, W=3))",)),
    "None for a length": Case(
        lambda: weft.placeholder((None, 3)),
        AxesError, ("not None", "weft.symbol('n')", "weft.ax.N"),
    ),
    "-1 for a length": Case(
        lambda: weft.placeholder((-1, 3)), AxesError, ("got -1", "weft.symbol('n')")
    ),
    "a fraction for axes": Case(lambda: weft.placeholder(1.5), AxesError, ("1.5", "sizes")),
    "assign": Case(
        lambda: weft.assign(
            weft.variable((3,), name="to"), weft.placeholder((4, 5), name="what")
        ),
        AxesError, ("assign: what Axes(4, 5) does not fit to Axes(3)",),
    ),
    # ops of other authors
    "an operand that is an array": Case(
        lambda: FieldOp(np.ones(3), k=1), ArgumentError, ("FieldOp", "weft.as_op")
    ),
    "an operand that is a number": Case(
        lambda: FieldOp(2.0, k=1), ArgumentError, ("FieldOp", "not 2.0", "weft.as_op")
    ),
    "a missing attribute": Case(lambda: FieldOp(x(2)), ArgumentError, ("FieldOp misses k",)),
    "an extra attribute": Case(
        lambda: FieldOp(x(2), k=1, z=2), ArgumentError, ("FieldOp has no attribute z", "takes k")
    ),
    "a misspelt attribute": Case(
        lambda: FieldOp(x(2), z=2), ArgumentError, ("misses k and has no attribute z",)
    ),
    "infer without a dtype": Case(
        lambda: InferringOp(x(2), inferred=AXES), ArgumentError, ("InferringOp: infer", "dtype")
    ),
    "infer of a tuple": Case(
        lambda: InferringOp(x(2), inferred=((2,), AXES)), ArgumentError, ("weft.Axes",)
    ),
    "infer of nothing": Case(
        lambda: InferringOp(x(2), inferred=None), ArgumentError, ("not None",)
    ),
    "infer of the name of a dtype": Case(
        lambda: InferringOp(x(2), inferred=(AXES, "float32")), ArgumentError, ("'float32'",)
    ),
    # choosing a backend
    "an option that there is not": Case(
        lambda: weft.make_transformer("numpy", fastmath=True),
        ArgumentError, ("'numpy' has no option 'fastmath'", "mean 'fast_math'", "passes"),
    ),
}  # fmt: skip


def test_the_axes_of_an_op_can_be_stated_if_they_are_right():
    for axes in ((H, W), weft.make_axes((H, W)), None):
        assert weft.ops.TanhOp(x(H, W), axes=axes).axes == weft.make_axes((H, W))
    assert FieldOp(x(2), k=3, axes=2).axes == weft.make_axes(2)


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_answered_with_what_to_write(case: str):
    expected = MISTAKES[case]
    with pytest.raises(WeftError) as caught:
        expected.make()
    assert type(caught.value) is expected.error
    message = str(caught.value)
    assert [word for word in expected.words if word not in message] == []
    assert f'File "{__file__}", line {expected.make.__code__.co_firstlineno}' in message


def test_operators_of_bool(transformer: weft.Transformer):
    a, b = x(4, dtype="bool"), x(4, dtype="bool")
    results = [a & b, a | b, a ^ b, ~a, a & True, False | a, np.array([True] * 4) ^ a]
    left, right = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
    got = transformer.computation(results, a, b)(left, right)
    wanted = [left & right, left | right, left ^ right, ~left, left, left, ~left]
    assert {op.dtype.name for op in results} == {"bool"}
    assert [each.tolist() for each in got] == [each.tolist() for each in wanted]


def test_an_array_of_one_index_is_an_index():
    assert x(4, 3)[np.array(1)].axes == weft.make_axes((3,))


def test_an_error_of_the_backend_itself_is_not_taken_for_a_wrong_option():
    class Broken(weft.NumPyTransformer):
        def __init__(self, mark: int = 0, **options: Any) -> None:
            super().__init__(**options)
            self.mark = mark + 1

    class Plugin:
        @hookimpl
        def weft_register_backends(self, register: Callable[..., Any]):
            register("broken", Broken)

    plugins.register(plugin := Plugin(), "broken")
    try:
        with pytest.raises(weft.errors.PluginError, match=r"TypeError.*str"):
            weft.make_transformer("broken", mark="one")
    finally:
        plugins.unregister(plugin)


@pytest.mark.parametrize(
    "module", [weft, weft.random, weft.special, weft.optim], ids=lambda module: module.__name__
)
def test_only_public_names_are_listed(module: ModuleType):
    assert dir(module) == sorted(module.__all__)


def test_the_names_of_layers_are_listed_beside_those_of_functions():
    assert {"Dense", "celu"} < set(dir(weft.nn))
    assert "windows" not in dir(weft.nn)


@pytest.mark.parametrize("options", [[], ["--version"]])
def test_the_command_as_a_module(options: Any):
    done = subprocess.run(
        [sys.executable, "-m", "weft", *options], capture_output=True, encoding="utf-8", timeout=60
    )
    assert done.returncode == 0
    assert ("Usage: weft" if not options else weft.__version__) in done.stdout
