"""Changes in place: who sees them, through which views, and where their order is open."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from popxl_programs import results

import weft_popxl as popxl
from weft_popxl import ops
from weft_popxl.ops import var_updates

X = np.arange(12, dtype=np.float32).reshape(3, 4) - 5
Y = np.linspace(0.5, 2, 12, dtype=np.float32).reshape(3, 4)


def lamb(t: Any, x: Any, limit: float) -> Any:
    r1, r2 = min(np.sqrt((t**2).sum()), limit), np.sqrt((x**2).sum())
    return t - 0.1 * r1 / r2 * x


UPDATES: dict[str, tuple[Callable[[Any, Any], Any], Any]] = {
    "add_": (lambda x, y: ops.add_(x, y), X + Y),
    "add_ to the right": (lambda x, y: ops.add_(popxl.constant([1.0]), x), X + 1),
    "+=": (lambda x, y: x.__iadd__(2), X + 2),
    "scaled_add_": (lambda x, y: ops.scaled_add_(x, y, 2, b=popxl.constant(-3.0)), 2 * X - 3 * Y),
    "relu_": (lambda x, y: ops.relu_(x), np.maximum(X, 0)),
    "exp_": (lambda x, y: ops.exp_(x), np.exp(X)),
    "swish_": (lambda x, y: ops.swish_(x), X / (1 + np.exp(-X))),
    "clip_": (lambda x, y: ops.clip_(x, -1, 2), np.clip(X, -1, 2)),
    "increment_mod_": (lambda x, y: ops.increment_mod_(x, 2, 5), (X + 2) % 5),
    "dynamic_update_": (
        lambda x, y: ops.dynamic_update_(x, [1], y[:2], [0], [2]),
        np.concatenate([X[:1], Y[:2]]),
    ),
    "accumulate_": (lambda x, y: var_updates.accumulate_(x, y), X + Y),
    "accumulate_ with a factor": (
        lambda x, y: var_updates.accumulate_(x, y, popxl.constant(0.5)),
        X + 0.5 * Y,
    ),
    "accumulate_square_": (lambda x, y: var_updates.accumulate_square_(x, y, 2.0), X + 2 * Y**2),
    "accumulate_mean_": (lambda x, y: var_updates.accumulate_mean_(x, y, 3), (3 * X + Y) / 4),
    "accumulate_moving_average_": (
        lambda x, y: var_updates.accumulate_moving_average_(x, y, 0.9),
        0.9 * X + 0.1 * Y,
    ),
    "accumulate_moving_average_square_": (
        lambda x, y: var_updates.accumulate_moving_average_square_(x, y, 0.9),
        0.9 * X + 0.1 * Y**2,
    ),
    "accumulator_scale_": (lambda x, y: var_updates.accumulator_scale_(x, 0.5), X / 2),
    "accumulator_zero_": (lambda x, y: var_updates.accumulator_zero_(x), 0 * X),
    "copy_var_update_": (lambda x, y: var_updates.copy_var_update_(x, y), Y),
    "sparse_accumulate_": (
        lambda x, y: var_updates.sparse_accumulate_(x, y[:3, :3], [1, 3, 1], 1, 0.5),
        X + 0.5 * np.stack([0 * Y[:, 0], Y[:, 0] + Y[:, 2], 0 * Y[:, 0], Y[:, 1]], 1),
    ),
    "adam_var_update": (
        lambda x, y: var_updates.adam_var_update(x, y, ops.sumsquare(x), ops.sumsquare(y), 0.1, 4),
        lamb(X, Y, 4),
    ),
    "adam_var_update of zeros": (
        lambda x, y: var_updates.adam_var_update(x, y, 0.0, ops.sumsquare(y), 0.1),
        X - 0.1 * Y,
    ),
    "a row": (lambda x, y: ops.add_(ops.slice_(x, 1, 2), 10), X + np.array([[0], [10], [0]])),
    "every other column, turned": (
        lambda x, y: ops.relu_(ops.subsample_(x.T_, [2, 1])),
        np.where([[1, 0, 1, 0]], np.maximum(X, 0), X),
    ),
    "flat": (
        lambda x, y: ops.add_(ops.slice_(x.flatten_(), 3, 5), 1),
        X + np.eye(1, 12, 3).reshape(3, 4) + np.eye(1, 12, 4).reshape(3, 4),
    ),
    "squeezed": (
        lambda x, y: ops.add_(ops.squeeze_(ops.slice_(x, 0, 1)), 1),
        X + np.array([[1], [0], [0]]),
    ),
    "half of a pair": (
        lambda x, y: ops.add_(ops.slice_(ops.concat_([y, x]), 2, 4), 1),
        X + np.array([[1], [0], [0]]),
    ),
    "by a view of a change": (lambda x, y: ops.add_(ops.add_(x, 1).reshape_((12,)), 1), X + 2),
}


def test_updates_reach_the_variable(backend: str) -> None:
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        y = popxl.variable(Y)
        variables = []
        for update, _ in UPDATES.values():
            variables.append(popxl.variable(X))
            update(variables[-1], y)
    with popxl.Session(ir, backend) as session:
        session.run()
        found = session.get_tensors_data(variables)
    for (name, (_, wanted)), variable in zip(UPDATES.items(), variables, strict=True):
        np.testing.assert_allclose(found[variable], wanted, rtol=1e-5, atol=1e-5, err_msg=name)


def test_all_that_lies_in_the_same_memory_sees_a_change(backend: str) -> None:
    def build(ir: popxl.Ir) -> Any:
        x = popxl.variable(X)
        before = x * 1
        turned = ops.transpose_(x)
        copied = ops.transpose(x)
        result = ops.add_(x, 1)
        ops.add_(turned, 1)
        return [before, x * 1, turned * 1, copied, result * 1, ops.identity(x)]

    found = results(backend, build, in_sequence=True)
    for value, wanted in zip(found, [X, X + 2, X.T + 2, X.T, X + 2, X + 2], strict=True):
        np.testing.assert_array_equal(value, wanted)


def test_16_bits_and_integers_keep_their_dtype(backend: str) -> None:
    def build(ir: popxl.Ir) -> Any:
        half, whole = popxl.variable(np.float16(1.5)), popxl.variable(3)
        var_updates.accumulate_(half, half, 0.5)
        var_updates.accumulate_(whole, whole, 2)
        return [half + 0, whole + 0]

    half, whole = results(backend, build, in_sequence=True)
    assert (half.dtype.name, half.item()) == ("float16", 2.25)
    assert (whole.dtype.name, whole.item()) == ("int32", 9)


# Where the order is open


def spread(h: SimpleNamespace) -> None:
    ops.add_(h.x, 1)
    h.keep(h.x * 2)


def before(h: SimpleNamespace) -> None:
    h.keep(h.x * 2)
    ops.add_(h.x, 1)


def twice(h: SimpleNamespace) -> None:
    ops.add_(h.x, 1)
    ops.add_(h.x, 2)


def through_a_view(h: SimpleNamespace) -> None:
    turned = h.x.T_
    ops.add_(turned, 1)
    h.keep(h.x * 2)


def through_a_call(h: SimpleNamespace) -> None:
    ops.call(h.ir.create_graph(by_ref, h.x), h.x)
    h.keep(h.x * 2)


def through_a_repeat(h: SimpleNamespace) -> None:
    h.keep(h.x * 2)
    ops.repeat(h.ir.create_graph(by_ref, h.x), 2, h.x)


def by_ref(x: popxl.TensorByRef) -> None:
    x += 1


def stored_and_changed(h: SimpleNamespace) -> None:
    h.keep(h.x)
    ops.relu_(h.x)


def branching(h: SimpleNamespace) -> None:
    changed = ops.add_(h.x, 1)
    ops.relu_(changed)
    h.keep(changed * 2)


def inside_a_graph(h: SimpleNamespace) -> None:
    def function(x: popxl.Tensor) -> popxl.Tensor:
        y = x * 2
        x += 1
        return y

    h.keep(ops.call(h.ir.create_graph(function, h.x), h.x)[0])


OPEN = [
    spread,
    before,
    twice,
    through_a_view,
    through_a_call,
    through_a_repeat,
    stored_and_changed,
    branching,
    inside_a_graph,
]


def program(build: Callable[[SimpleNamespace], None], in_sequence: bool) -> popxl.Ir:
    ir = popxl.Ir()

    def keep(tensor: popxl.Tensor) -> None:
        ops.host_store(popxl.d2h_stream(tensor.shape, tensor.dtype), tensor)

    with ir.main_graph, popxl.in_sequence(in_sequence):
        build(SimpleNamespace(ir=ir, x=popxl.variable(X, name="x"), keep=keep))
    return ir


@pytest.mark.parametrize("build", OPEN)
def test_an_open_order_is_refused_and_a_sequence_settles_it(build: Any) -> None:
    with pytest.raises(popxl.popart_exception, match=r"^Inplacing ambiguity detected\.") as caught:
        popxl.Session(program(build, in_sequence=False))
    assert str(caught.value).count(__file__) >= 2, "both lines are named"
    with popxl.Session(program(build, in_sequence=True)) as session:
        session.run()


def chained(h: SimpleNamespace) -> None:
    h.keep(ops.relu_(ops.add_(h.x, 1)) * 2)


def ordered_by_data(h: SimpleNamespace) -> None:
    gradient = ops.sum(h.x * 2)
    var_updates.accumulator_scale_(h.x, gradient)


def views_alone(h: SimpleNamespace) -> None:
    ops.slice_(h.x, 0, 1)
    ops.add_(h.x, 1)


def readers_alone(h: SimpleNamespace) -> None:
    h.keep(h.x * 2)
    h.keep(h.x.T_ * 3)


def sequence_of_some(h: SimpleNamespace) -> None:
    with popxl.in_sequence():
        ops.add_(h.x, 1)
    y = ops.exp(popxl.constant(1.0))
    with popxl.in_sequence():
        h.keep(h.x * y)


@pytest.mark.parametrize(
    "build", [chained, ordered_by_data, views_alone, readers_alone, sequence_of_some]
)
def test_an_order_that_follows_is_not_refused(build: Any) -> None:
    popxl.Session(program(build, in_sequence=False))


def test_a_long_chain_of_views(backend: str) -> None:
    def build(ir: popxl.Ir) -> Any:
        x = popxl.variable([1.0, 2.0])
        y = x
        for _ in range(1500):
            y = ops.reshape_(y, (2, 1) if y.rank == 1 else (2,))
        y += 0.5
        return [x * 1]

    (found,) = results(backend, build, in_sequence=True)
    np.testing.assert_array_equal(found, [1.5, 2.5])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(0, 3)), max_size=8))
def test_changes_through_views_are_those_of_numpy(steps: list[tuple[int, int, int]]) -> None:
    """Any order of changes through any views gives what NumPy's views give."""
    ir = popxl.Ir()
    arrays, tensors = [X.copy()], []
    with ir.main_graph, popxl.in_sequence():
        tensors.append(popxl.variable(X))
        for kind, at, number in steps:
            array, tensor = arrays[at % len(arrays)], tensors[at % len(tensors)]
            if kind == 0:
                array += number
                ops.add_(tensor, float(number))
            elif kind == 1:
                np.maximum(array, 0, out=array)
                ops.relu_(tensor)
            elif kind == 2:
                arrays.append(array.T)
                tensors.append(tensor.T_)
            elif kind == 3 and len(array) > 1:
                arrays.append(array[1:])
                tensors.append(ops.slice_(tensor, 1))
            elif kind == 4:
                arrays.append(array[::-1])
                tensors.append(ops.slice_(tensor, step=-1))
            else:
                arrays.append(array.copy())
                tensors.append(ops.identity(tensor))
        streams = []
        for tensor in tensors:
            streams.append(popxl.d2h_stream(tensor.shape, tensor.dtype))
            ops.host_store(streams[-1], tensor)
    with popxl.Session(ir) as session:
        found = session.run()
    for stream, array in zip(streams, arrays, strict=True):
        np.testing.assert_array_equal(found[stream], array)
