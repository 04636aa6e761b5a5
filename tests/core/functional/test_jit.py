"""Functions compiled by `jit`: trees in and out, what is traced anew, and refusals."""

from __future__ import annotations

import asyncio
import re
import sys
import tracemalloc
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from weft.functional import trees


class Point(NamedTuple):
    """A named tuple of arrays."""

    x: Any
    y: Any


@dataclass(frozen=True)
class Layer:
    """A dataclass of arrays, with a field that is part of the structure."""

    weight: Any
    bias: Any
    activation: str = field(default="tanh", metadata={"static": True})


@dataclass
class Derived:
    """A dataclass that computes a field, and does not take it."""

    start: Any
    twice: Any = field(init=False)

    def __post_init__(self) -> None:
        self.twice = 2 * self.start


LEAVES = st.floats(-2, 2, width=32) | st.integers(-5, 5) | st.booleans()
TREES = st.recursive(
    LEAVES | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
        | st.dictionaries(st.sampled_from("abc"), inner, max_size=3).map(OrderedDict)
        | st.tuples(inner, inner).map(lambda pair: Point(*pair))
        | st.tuples(inner, inner).map(lambda pair: Layer(*pair))
    ),
    max_leaves=6,
)


def same(found: Any, wanted: Any) -> None:
    """Compare two trees of arrays in structure, dtypes and values."""
    leaves, structure = trees.flatten(found)
    exact, other = trees.flatten(wanted)
    assert structure == other
    for one, two in zip(leaves, exact, strict=True):
        assert np.asarray(one).dtype == np.asarray(two).dtype
        np.testing.assert_array_equal(one, two)


@given(TREES)
def test_trees_come_back_as_they_went_in(tree: Any) -> None:
    kinds = {bool: "bool", int: "int64", float: "float32"}
    wanted = trees.map_leaves(lambda leaf: np.asarray(leaf, kinds[type(leaf)]), tree)
    function = weft.jit(lambda tree: tree, backend="numpy")
    for found in (function(tree), function(tree)):
        same(found, wanted)
        assert re.findall("'[abc]'", repr(found)) == re.findall("'[abc]'", repr(tree))


def test_results_have_the_structure_that_the_function_returned(backend: str) -> None:
    @weft.jit(backend=backend)
    def layer(layer: Layer, point: Point, rows: list[Any]) -> Any:
        value = weft.tanh(rows[0] @ layer.weight + layer.bias)
        return {"value": value, "none": None, "pair": (Point(point.y, point.x), [3, True, 1.5])}

    x, w = np.ones((2, 3), np.float32), np.full((3, 4), 0.1, np.float32)
    found = layer(Layer(w, np.zeros(4, np.float32)), Point(1, 2.0), rows=[x])
    np.testing.assert_allclose(found["value"], np.tanh(x @ w), rtol=1e-5)
    del found["value"]
    number = np.float32
    pair = Point(number(2), np.int64(1)), [np.int64(3), np.bool_(True), number(1.5)]
    same(found, {"none": None, "pair": pair})


def test_dataclasses_are_put_together_without_their_constructor() -> None:
    found = weft.jit(lambda x: Derived(x.start + x.twice), backend="numpy")(Derived(1.0))
    assert (found.start.item(), found.twice.item()) == (3.0, 6.0)


def count_traces(function: Callable[..., Any], **options: Any) -> tuple[Any, list[int]]:
    """Return a jitted function, and a list that has an element for each trace."""
    traces: list[int] = []

    def traced(*args: Any, **keywords: Any) -> Any:
        traces.append(1)
        return function(*args, **keywords)

    traced.__signature__ = __import__("inspect").signature(function)  # type: ignore[attr-defined]
    return weft.jit(traced, backend="numpy", **options), traces


def f32(*shape: int) -> Any:
    return np.ones(shape, np.float32)


CALLS = {
    "equal types": ([(f32(2),), (f32(2),)], 1),
    "another shape": ([(f32(2),), (f32(3),), (f32(2),)], 2),
    "another dtype": ([(f32(2),), (np.ones(2),), (f32(2),)], 2),
    "another structure": ([([f32(2)],), ((f32(2),),), ({"a": f32(2)},)], 3),
    "numbers of one kind": ([(1.0,), (2.5,), (1,), (7,), (True,)], 3),
    "large integers": ([(1,), (2**40,), (-(2**40),), (2,)], 1),
    "a number of NumPy": ([(np.float32(1),), (np.float32(2),)], 1),
    "strides": ([(f32(2, 3),), (f32(3, 2).T,)], 1),
}


@pytest.mark.parametrize(("calls", "count"), CALLS.values(), ids=CALLS)
def test_a_function_is_traced_once_for_each_type_of_arguments(calls: Any, count: int) -> None:
    function, traces = count_traces(lambda tree: weft.sum(leaves_of(tree)) * 2)
    for _ in range(2):
        for args in calls:
            wanted = 2 * np.sum(leaves_of(args[0]))
            np.testing.assert_allclose(np.asarray(function(*args), np.float64), wanted)
    assert len(traces) == count


def leaves_of(tree: Any) -> Any:
    return trees.flatten(tree)[0][0]


def test_static_arguments_are_traced_for_each_value() -> None:
    def scaled(x: Any, mode: str, times: int = 2, *, axis: Any = None) -> Any:
        return weft.sum(x * times, axis) if mode == "sum" else x * times

    function, traces = count_traces(scaled, static_argnames=["mode", "axis"], static_argnums=2)
    x = f32(2, 3)
    assert function(x, "sum").item() == 12
    assert function(x, "sum", 3).item() == 18
    assert function(x, mode="none", times=1).tolist() == x.tolist()
    assert function(x, "sum", 3).item() == 18
    assert function(x, "sum", axis=(0,)).tolist() == [4.0] * 3
    assert len(traces) == 4


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((1,), (True,)),
        ((1,), (1.0,)),
        (0.0, -0.0),
        ((2, (1, "a")), (2, (1.0, "a"))),
        (frozenset([1]), frozenset([True])),
        (Point(1, 2), Point(True, 2)),
        (Layer(1, 2), Layer(1.0, 2)),
    ],
)
def test_static_arguments_that_are_equal_and_differ_are_traced_apart(one: Any, other: Any) -> None:
    function, traces = count_traces(lambda x, n: x * len(repr(n)), static_argnames="n")
    for _ in range(2):
        for value in (one, other):
            assert function(1.0, value).item() == function(1.0, n=value).item() == len(repr(value))
    assert len(traces) == 4


@pytest.mark.parametrize("dynamic", ["n", {"x": "n"}, {"x": {0: "n"}}, {0: weft.symbol("n")}])
def test_dynamic_lengths_are_not_traced_again(dynamic: Any, backend: str) -> None:
    traces = []

    @weft.jit(backend=backend, dynamic=dynamic)
    def mean(x: Any) -> Any:
        traces.append(1)
        return weft.sum(x) / x.shape[0]

    for count in (3, 5, 1, 3):
        assert mean(f32(count, 2)).item() == pytest.approx(2)
    assert len(traces) == 1
    mean(f32(3, 4))
    assert len(traces) == 2


LATER_CALLS: dict[str, tuple[Any, ...]] = {
    "the same types": (f32(2, 3), 2.0, f32(3)),
    "other strides": (f32(3, 2).T, 2.0, f32(6)[::2]),
    "bytes in the other order": (f32(2, 3).astype(">f4"), 2.0, f32(3)),
    "an integer for a float": (f32(2, 3), 2, f32(3)),
    "read only": (np.broadcast_to(np.float32(1), (2, 3)), 2.0, f32(3)),
    "a row": (f32(1, 3)[[0]], 2.0, f32(3)[None][0]),
}


@pytest.mark.parametrize("first", LATER_CALLS.values(), ids=LATER_CALLS)
@pytest.mark.parametrize("later", LATER_CALLS.values(), ids=LATER_CALLS)
def test_later_calls_take_what_the_first_one_takes(first: Any, later: Any, backend: str) -> None:
    @weft.jit(backend=backend)
    def both(x: Any, y: Any, z: Any) -> Any:
        return {"z": x + y * z, "a": (x * 2, None, [z - y])}

    for x, y, z in (first, later, later):
        found = both(x, y, z)
        np.testing.assert_array_equal(found["z"], x + y * z)
        np.testing.assert_array_equal(found["a"][0], x * 2)
        np.testing.assert_array_equal(found["a"][2][0], z - y)


LARGE = np.arange(2**17, dtype="f4").reshape(2**12, 4, 8)
LAYOUTS = {
    "row-major": LARGE,
    "the middle outermost": LARGE.reshape(4, 2**12, 8).transpose(1, 0, 2),
    "column-major": np.asfortranarray(LARGE),
    "with gaps": np.repeat(LARGE, 2, 0)[::2],
    "backwards": np.ascontiguousarray(LARGE[::-1])[::-1],
}


@pytest.mark.parametrize("dynamic", [None, {"tree": {0: "n"}}])
def test_a_large_array_is_read_in_the_order_of_its_axes_in_memory(dynamic: Any) -> None:
    function, traces = count_traces(
        lambda tree, shift: (weft.sum(tree["x"], 1) + shift, tree["x"].shape[1]), dynamic=dynamic
    )
    for number in (0, 1, 1, 2, 2, 0, 3, 4, 1):
        x = list(LAYOUTS.values())[number]
        found, length = function({"x": x}, 1.0)
        np.testing.assert_allclose(found, x.sum(1) + 1)
        assert length == 4

    async def awaited() -> Any:
        return await function.call_async({"x": x}, 1.0)

    np.testing.assert_allclose(asyncio.run(awaited())[0], x.sum(1) + 1)
    assert len(traces) == 3


def test_an_array_in_another_order_is_not_copied() -> None:
    function = weft.jit(lambda x: weft.sum(x), backend="numpy")
    x = np.asfortranarray(LARGE)
    function(x)
    tracemalloc.start()
    try:
        function(x)
        assert tracemalloc.get_traced_memory()[1] < x.nbytes / 2
    finally:
        tracemalloc.stop()


def test_an_array_in_another_order_is_donated_as_a_copy() -> None:
    function = weft.jit(lambda x: x + 1, backend="numpy", donate_argnums=0)
    for _ in range(2):
        np.testing.assert_array_equal(function(np.asfortranarray(LARGE)), LARGE + 1)


@pytest.mark.needs("compiler")
def test_a_later_call_is_one_generated_function() -> None:
    function = weft.jit(lambda p, x: {"y": p["w"] * x, "x": (x, 1.0)}, backend="native")
    args = {"w": f32(3)}, 2.0
    function(*args)
    names: list[str] = []
    sys.setprofile(lambda frame, event, _: event == "call" and names.append(frame.f_code.co_name))
    try:
        function(*args)
    finally:
        sys.setprofile(None)
    # Where the program is not called in C, one function of Python more calls it.
    assert names in (["__call__", "call"], ["__call__", "call", "__call__"])


def test_many_results(backend: str) -> None:
    function = weft.jit(lambda x: {str(n): x + n for n in range(40)}, backend=backend)
    for _ in range(2):
        assert {key: value.item() for key, value in function(1.0).items()} == {
            str(n): n + 1 for n in range(40)
        }


def test_a_closed_transformer_refuses_later_calls(backend: str) -> None:
    with weft.make_transformer(backend) as transformer:
        function = weft.jit(lambda x: x + 1, backend=transformer)
        assert function(function(1.0)).item() == 3.0
    with pytest.raises(weft.errors.StateError, match="has been closed"):
        function(1.0)


def test_lower_gives_the_computation(backend: str) -> None:
    function = weft.jit(lambda p, x: weft.tanh(x * p["w"] + p["b"]), backend=backend)
    params = {"w": f32(3), "b": f32(3)}
    computation = function.lower(params, f32(2, 3))
    assert [op.name.partition("_")[0] for op in computation.parameters] == ["p['b']", "p['w']", "x"]
    assert "Tanh" in computation.graph.text()
    assert computation.program_for(f32(3), f32(3), f32(2, 3)).plan.steps
    assert computation is function.lower(params, f32(2, 3))
    np.testing.assert_allclose(function(params, f32(2, 3)), np.tanh(np.full((2, 3), 2)), rtol=1e-5)


def test_functions_inside_functions_and_with_ops_build_ops() -> None:
    inner = weft.jit(lambda x: x * 2)
    outer = weft.jit(lambda x: inner(x) + inner(1.0), backend="numpy")
    assert outer(3.0).item() == 8.0
    assert not inner._compiled
    x = weft.placeholder((2,))
    step = weft.make_transformer("numpy").computation(inner(x), x)
    assert step(f32(2)).tolist() == [2.0, 2.0]


def test_a_method_is_compiled_with_its_object_as_the_first_argument() -> None:
    @dataclass
    class Model:
        scale: Any

        @weft.jit
        def __call__(self, x: Any) -> Any:
            return self.scale * x

    assert Model(2.0)(3.0).item() == 6.0


def test_states_belong_to_the_transformer_that_is_given() -> None:
    total = weft.variable((), initial_value=1.0, name="total")
    transformer = weft.make_transformer("numpy")

    @weft.jit(backend=transformer)
    def add(x: Any) -> Any:
        weft.assign(total, total + x)
        return total

    assert [add(x).item() for x in (2.0, 3.0)] == [3.0, 6.0]
    assert transformer.get_value(total).item() == 6.0


def test_effects_happen_although_their_results_are_not_used(
    capsys: pytest.CaptureFixture[str],
) -> None:
    @weft.jit(backend="numpy")
    def noisy(x: Any) -> Any:
        weft.print_op(x, prefix="seen ")
        return x + 1

    assert noisy(1.0).item() == 2.0
    assert "seen" in capsys.readouterr().out


class Foreign:
    """An array of another library, by the protocol."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def test_arrays_of_other_libraries_are_taken() -> None:
    assert weft.jit(lambda x: x + 1, backend="numpy")(Foreign(f32(2))).tolist() == [2.0, 2.0]


leaked: list[Any] = []


def leak(x: Any) -> Any:
    leaked.append(x)
    return x


def forever(x: Any) -> Any:
    return forever(x + 1)


REFUSED: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "an integer beyond 64 bits": (lambda: weft.jit(lambda n: n)(2**70), ("argument n", "int64")),
    "such an integer in a later call": (
        lambda: list(map(weft.jit(lambda n: n), (1, 2, 2**70))),
        ("argument n", "int64"),
    ),
    "a string": (lambda: weft.jit(lambda x: x)("a"), ("the argument x is 'a'", "static")),
    "a string in a tree": (
        lambda: weft.jit(lambda p: p["w"])({"w": [1.0, "b"]}),
        ("the argument p['w'][1] is 'b'",),
    ),
    "an array of objects": (lambda: weft.jit(abs)(np.array([None])), ("array of object",)),
    "a result that is none": (lambda: weft.jit(lambda x: {"a": "b"})(1.0), ("result['a'] is 'b'",)),
    "a result without value": (
        lambda: weft.jit(lambda x: weft.assign(weft.variable(()), x))(1.0),
        ("result", "yields no tensor"),
    ),
    "an unhashable static argument": (
        lambda: weft.jit(lambda x, n: x, static_argnames="n")(1.0, [1]),
        ("static argument n", "hashable", "tuple"),
    ),
    "an unknown static argument": (
        lambda: weft.jit(lambda x, mode: x, static_argnames="mod"),
        ("has x, mode", "did you mean 'mode'"),
    ),
    "a static argument out of range": (
        lambda: weft.jit(lambda x: x, static_argnums=3),
        ("static_argnums= names the argument 3",),
    ),
    "an unknown dynamic axis": (
        lambda: weft.jit(lambda x: x, dynamic={"x": {2: "n"}})(f32(2)),
        ("axis 2 of x", "(2,)"),
    ),
    "a dynamic length that is not a name": (
        lambda: weft.jit(lambda x: x, dynamic=3),
        ("names of lengths", "3"),
    ),
    "not a function": (lambda: weft.jit(3), ("takes a function, not 3",)),
    "options of a transformer": (
        lambda: weft.jit(abs, backend=weft.make_transformer("numpy"), threads=2),
        ("threads are options",),
    ),
    "a state": (
        lambda: weft.jit(lambda x: x + weft.variable((), name="w"))(1.0),
        ("reads the state w", "jit(f, backend=transformer)"),
    ),
    "an assignment": (
        lambda: weft.jit(lambda x: weft.assign(weft.variable((), name="w"), x) and x)(1.0),
        ("writes the state w",),
    ),
    "a value of another call": (
        lambda: (weft.jit(leak)(1.0), weft.jit(lambda y: y + leaked[-1])(1.0)),
        ("<lambda> uses a value", "in the trace of leak", "argument x", "used by AddOp"),
    ),
    "recursion without end": (lambda: weft.jit(forever)(1.0), ("calls itself without end",)),
    "a condition on a traced value": (
        lambda: weft.jit(lambda x: x if x > 0 else -x)(1.0),
        ("truth value",),
    ),
}


@pytest.mark.parametrize(("call", "words"), REFUSED.values(), ids=REFUSED)
def test_refusals_say_what_to_do(call: Callable[[], Any], words: tuple[str, ...]) -> None:
    with weft.backend("numpy"), pytest.raises(weft.WeftError) as caught:
        call()
    for word in (*words, "test_jit.py"):
        assert word in str(caught.value)


def test_nothing_is_kept_of_a_trace_that_failed() -> None:
    calls = []

    @weft.jit(backend="numpy")
    def fails_once(x: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            raise RuntimeError("not now")
        return x * 2

    with pytest.raises(RuntimeError, match="not now"):
        fails_once(2.0)
    assert not weft.functional.tracing.is_tracing()
    assert fails_once(2.0).item() == 4.0


def test_weft_exports_what_its_package_of_functions_does() -> None:
    assert set(weft.functional.__all__) <= set(weft.__all__)
    assert all(
        getattr(weft, name) is getattr(weft.functional, name) for name in weft.functional.__all__
    )
