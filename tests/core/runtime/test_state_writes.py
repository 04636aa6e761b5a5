"""What states take: arrays, writes through views, initializers; what sequences compute; names."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from weft.errors import ArgumentError, AxesError, StateError

C, H = weft.Axis(3, "C"), weft.Axis(4, "H")
START = np.arange(12.0).reshape(3, 4)


def state(axes: Any = (3, 4)) -> Any:
    return weft.variable(axes, float, initial_value=START)


def after(write: Any, w: Any) -> Any:
    transformer = weft.make_transformer("numpy")
    transformer.computation(write)()
    return transformer.get_value(w)


# Views


VIEWS: dict[str, Any] = {
    "row": lambda x: x[1],
    "element": lambda x: x[2, -1],
    "part": lambda x: x[1:, ::2],
    "backwards": lambda x: x[::-1, 3:0:-2],
    "transpose": lambda x: x.T,
    "reshape": lambda x: x.reshape(2, 6) if isinstance(x, np.ndarray) else weft.reshape(x, (2, 6)),
    "column-of-transpose": lambda x: x.T[1],
    "part-of-part": lambda x: x[1:][:, 1:3],
    "part-of-reshape": lambda x: (
        x.reshape(12) if isinstance(x, np.ndarray) else weft.reshape(x, (12,))
    )[2:9:3],
    "nothing": lambda x: x[3:],
}

WRITES: dict[str, Any] = {
    "assign": (lambda v, z: weft.assign(v, z), lambda v, z: z),
    "fill": (lambda v, z: weft.fill(v, 7), lambda v, z: np.full_like(v, 7)),
    "set_item": (lambda v, z: weft.set_item(v, ..., z), lambda v, z: z),
    "accumulate": (lambda v, z: weft.accumulate(v, z, 2), lambda v, z: v + 2 * z),
    "scaled_add": (lambda v, z: weft.scaled_add(v, z, 3, -1), lambda v, z: 3 * v - z),
    "moving_average": (lambda v, z: weft.moving_average(v, z, 0.5), lambda v, z: (v + z) / 2),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("view", VIEWS)
def test_a_write_through_a_view_is_one_into_the_state(view: str, write: str) -> None:
    w, expected = state(), START.copy()
    target = VIEWS[view](expected)
    value = np.asarray(np.random.default_rng(1).normal(size=target.shape))
    build, meaning = WRITES[write]
    new = meaning(target, value)
    if target.base is None:  # an element is not a view in NumPy
        expected[2, -1] = new
    else:
        target[...] = new
    shown = VIEWS[view](w)
    np.testing.assert_allclose(after(build(shown, value), w), expected)


@given(st.lists(st.sampled_from(["flip", "cut", "turn", "fold"]), max_size=5))
def test_writes_through_chains_of_views(steps: list[str]) -> None:
    w, expected = state(), START.copy()
    shown, target = w, expected
    for step in steps:
        if step == "flip":
            shown, target = shown[::-1], target[::-1]
        elif step == "cut" and target.shape[0] > 1:
            shown, target = shown[1:], target[1:]
        elif step == "turn":
            shown, target = weft.transpose(shown), target.T
        elif target.flags.c_contiguous:
            shown, target = weft.reshape(shown, (-1,)), target.reshape(-1)
    target[...] = -1
    np.testing.assert_array_equal(after(weft.assign(shown, -1), w), expected)


def test_a_view_built_before_a_write_still_names_the_place() -> None:
    w = state()
    row = w[0]
    weft.assign(w, w * 2)
    write = weft.accumulate(row, 1)
    expected = START * 2
    expected[0] += 1
    np.testing.assert_array_equal(after(write, w), expected)


def test_set_item_of_a_view_and_a_view_with_names() -> None:
    w = state((C, H))
    np.testing.assert_array_equal(after(weft.set_item(w[1:], (0, slice(2)), 5), w)[1], [5, 5, 6, 7])
    value = weft.constant(np.ones(3), C)
    write = weft.assign(weft.slice_along_axis(w, H, 2), value)
    np.testing.assert_array_equal(after(write, w)[:, 2], [1, 1, 1])


@pytest.mark.parametrize(
    "shown",
    [lambda w: w + 0, lambda w: weft.broadcast(w, (2, 3, 4)), lambda w: weft.take(w, [0], 0),
     weft.value_of, lambda w: weft.constant(START)[0]],
)  # fmt: skip
def test_what_is_no_place_is_not_assignable(shown: Any) -> None:
    with pytest.raises(StateError, match="a slice, a transpose or a reshape of one"):
        weft.assign(shown(state()), 0)


# Arrays, and parameters


@pytest.mark.parametrize("write", WRITES)
def test_arrays_take_the_names_of_a_state(write: str) -> None:
    w, value = state((C, H)), START[::-1] / 3
    build, meaning = WRITES[write]
    np.testing.assert_allclose(after(build(w, value), w), meaning(START, value))


def test_arrays_of_another_shape_and_tensors_without_names_do_not() -> None:
    for value in (START.T, START[0], weft.constant(START)):
        with pytest.raises(AxesError, match="does not fit"):
            weft.assign(state((C, H)), value)
    np.testing.assert_array_equal(
        after(weft.set_item(w := state((C, H)), 1, [1, 2, 3, 4]), w)[1], [1, 2, 3, 4]
    )


@pytest.mark.parametrize("make", [weft.variable, weft.persistent_tensor])
def test_a_state_among_the_parameters_says_what_to_do(make: Any, transformer: Any) -> None:
    w = make((), name="w")
    with pytest.raises(ArgumentError, match=r"transformer\.set_value\(w\w*, value\)") as caught:
        transformer.computation(w * 2, w)
    assert f'File "{__file__}"' in str(caught.value)
    x = weft.placeholder(())
    run = transformer.computation(w * x, x)
    with pytest.raises(ArgumentError, match=r"transformer\.set_value\(w\w*, value\)"):
        run(feed_dict={w: 1, x: 2})


# Initializers


def test_an_initializer_gets_what_it_asks_for() -> None:
    seen: list[Any] = []

    def axes_only(axes: Any) -> Any:
        seen.append(axes)
        return np.full(axes.lengths, 2.0)

    def both(axes: Any, scale: float = 3, dtype: Any = None) -> Any:
        seen.append((axes, dtype))
        return np.full(axes.lengths, scale, dtype)

    draw = functools.partial(np.random.default_rng(0).uniform, 0.0, 1.0, size=(3, 4))
    found = [
        weft.variable((C, H), initial_value=axes_only),
        weft.variable((C, H), "float64", initial_value=both),
        weft.variable((C, H), initial_value=functools.partial(both, scale=4)),
        weft.variable((C, H), initial_value=lambda: START),
        weft.variable((C, H), initial_value=draw),
    ]
    axes = weft.make_axes((C, H))
    assert seen == [axes, (axes, weft.float64), (axes, weft.float32)]
    transformer = weft.make_transformer("numpy")
    got = transformer.computation(found)()
    assert [value.ravel()[1] for value in got[:4]] == [2, 3, 4, 1]


# Sequences


def test_a_result_that_a_sequence_computes_is_the_value_it_had_there(transformer: Any) -> None:
    w = weft.variable((), initial_value=0)
    with weft.saved_user_deps():
        before, after = w + w, w + w
        outside = weft.value_of(after)
        inner = after * 3
        sequence = weft.sequential([before, weft.assign(w, 2), inner, before])
    got = transformer.computation([before, after, inner, sequence, outside])()
    assert [value.item() for value in got] == [0, 4, 12, 0, 0]


def test_what_two_sequences_compute_is_the_value_outside(transformer: Any) -> None:
    a, b = weft.variable((), initial_value=1), weft.variable((), initial_value=1)
    with weft.saved_user_deps():
        total = a + b
        one = weft.sequential([weft.assign(a, 5), total])
    with weft.saved_user_deps():
        other = weft.sequential([weft.assign(b, 7), total])
    got = transformer.computation([total, one, other])()
    assert [value.item() for value in got] == [2, 6, 8]


# Name scopes


def test_names_in_a_scope_begin_with_its_name() -> None:
    with weft.name_scope("encoder") as prefix:
        assert prefix == "encoder/"
        x = weft.placeholder((), name="x")
        with weft.name_scope("layer1"):
            w = weft.variable((), name="weight")
            y = (x * w).named("y")
            unnamed = y + 1
    outside = weft.placeholder((), name="not_encoded")
    names = [op.name for op in (x, w, y, outside)]
    assert names == ["encoder/x", "encoder/layer1/weight", "encoder/layer1/y", "not_encoded"]
    assert unnamed.name.startswith("encoder/layer1/AddOp_")
    assert weft.name_scope is not None


def test_programs_with_scoped_names_compile_print_and_parse(transformer: Any) -> None:
    with weft.name_scope("a b/µ"):
        x = weft.placeholder((2,), name="x")
        w = weft.variable((2,), initial_value=weft.ones, name="w")
        y = (x * w).named("y")
    graph = weft.capture([y], [x])
    assert weft.parse(str(graph)) is not None
    assert transformer.computation(y, x, name="a/b")([1, 2]).tolist() == [1, 2]


def test_what_is_built_from_an_op_has_its_scope(transformer: Any) -> None:
    x = weft.placeholder((4, 4), name="x")
    with weft.name_scope("outer"), weft.name_scope("inner"):
        y = weft.softmax(weft.tanh(x), 1)
    loss = weft.sum(y * y)
    with weft.name_scope("elsewhere"):
        slope = weft.deriv(loss, x)
    assert (y.name_scope, x.name_scope) == ("outer/inner", "")
    built = [op for op in weft.capture([slope], [x]).ops if not op.is_constant]
    assert {op.name_scope for op in built} == {"", "outer/inner"}
    steps = transformer.computation([y, slope], x).plan.steps
    assert "outer/inner" in {step.op.name_scope for step in steps} <= {"", "outer/inner"}


@pytest.mark.parametrize("name", ["", None, 3])
def test_a_scope_needs_a_name(name: Any) -> None:
    with pytest.raises(ArgumentError, match="takes a name"), weft.name_scope(name):
        pass
