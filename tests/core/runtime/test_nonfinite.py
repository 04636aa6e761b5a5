"""Where NaN and infinities come from: planted ones are found, with line, operands and iteration."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import ArgumentError, CheckFailed, StateError
from weft.ir import dtypes

ROWS = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


def training_step() -> tuple[weft.Graph, Any]:
    """Return the graph of a step that trains a small network, and its input."""
    x = weft.placeholder((3, 4), name="x")
    first = weft.variable((4, 4), initial_value=np.eye(4) * 0.5, name="first")
    second = weft.variable((4, 5), initial_value=np.full((4, 5), 0.1), name="second")
    hidden = weft.gelu(weft.layer_norm(x @ first + x))
    pooled = weft.sigmoid(hidden) * weft.max(hidden, reduction_axes=hidden.axes[1], keepdims=True)
    loss = weft.mean(weft.square(weft.log_softmax(pooled @ second)))
    updates = [weft.assign(w, w - 0.1 * weft.deriv(loss, w)) for w in (first, second)]
    return weft.capture([loss, *updates], [x], "step"), x


def numbers_of(graph: weft.Graph) -> list[Any]:
    """Return the ops that compute floats which something else uses."""
    used = {arg for op in graph.ops for arg in op.args}
    return [
        op
        for op in graph.ops
        if op.is_tensor and dtypes.is_inexact(op.dtype) and not op.is_constant and op in used
    ]


def planted(graph: weft.Graph, place: Any) -> tuple[weft.Graph, Any]:
    """Return a graph in which the users of a value get NaN from a logarithm."""
    wrong = weft.log(-1.0 - weft.abs(place))
    new = {op: op for op in graph.ops}
    for op in graph.ops:
        args = tuple(wrong if new[arg] is place else new[arg] for arg in op.args)
        new[op] = op.on(args)
    return graph.mapped({**new, place: place}), wrong


PLACES = range(50)


@pytest.mark.parametrize("number", PLACES)
def test_a_nan_planted_in_a_training_step_is_found(number: int) -> None:
    graph, _ = training_step()
    doctored, wrong = planted(graph, random.Random(number).choice(numbers_of(graph)))
    with weft.make_transformer("numpy") as transformer:
        found = transformer.computation(doctored).find_nonfinite(ROWS)
    assert found is not None
    assert found.op is wrong
    assert found.value.nans == found.value.size
    assert found.operands[0].high <= -1


def test_a_planted_nan_is_found_on_every_backend(transformer: Any) -> None:
    graph, _ = training_step()
    places = numbers_of(graph)
    for number in (1, len(places) // 2, len(places) - 1):
        doctored, wrong = planted(graph, places[number])
        found = transformer.computation(doctored).find_nonfinite(ROWS)
        assert found is not None
        assert found.op is wrong
    assert transformer.computation(graph).find_nonfinite(ROWS) is None


def test_the_gradient_of_a_root_at_zero_is_found_with_the_line_of_the_root(
    transformer: Any,
) -> None:
    x = weft.placeholder((4,), name="x")
    distance = weft.sqrt(weft.square(x))
    step = transformer.computation(weft.deriv(weft.sum(distance), x), x)
    found = step.find_nonfinite(np.float32([1, 0, 2, 3]))
    assert found is not None
    assert found.op.location == distance.location
    assert np.isnan(step(np.float32([1, 0, 2, 3]))).sum() == 1
    assert step.find_nonfinite(np.float32([1, 4, 2, 3])) is None


def growing(name: str = "body") -> weft.Graph:
    x = weft.placeholder((4,), name="x")
    return weft.capture([weft.exp(x) * 1.5], [x], name)


def test_the_iteration_of_a_loop_is_named(transformer: Any) -> None:
    x = weft.placeholder((4,), name="x")
    outer = weft.capture([weft.loop(growing(), 3, x)[0] + 1], [x], "outer")
    step = transformer.computation(weft.call(outer, x)[0] * 2, x)
    found = step.find_nonfinite(np.ones(4, np.float32))
    assert found is not None
    assert [(type(op).__name__, turn) for op, turn in found.calls] == [("CallOp", 0), ("LoopOp", 2)]
    assert type(found.op).__name__ == "MultiplyOp"
    assert "in graph run 3 of <LoopOp" in str(found)
    assert step.find_nonfinite(np.full(4, -9, np.float32)) is None


def test_a_branch_and_a_while_loop_are_looked_into(transformer: Any) -> None:
    x = weft.placeholder((), name="x")
    root, square = (weft.capture([f(x)], [x], f.__name__) for f in (weft.sqrt, weft.square))
    chosen = weft.cond(x < 0, root, square, [x], [x])[0]
    found = transformer.computation(chosen, x).find_nonfinite(-4)
    assert found is not None
    assert [type(op).__name__ for op, _ in found.calls] == ["CondOp"]
    assert type(found.op).__name__ == "SqrtOp"
    small = weft.capture([x < 1e30], [x], "small")
    grown = weft.while_loop(small, weft.capture([x * x * x], [x], "cube"), x)[0]
    found = transformer.computation(grown, x).find_nonfinite(1e20)
    assert found is not None
    assert [(type(op).__name__, turn) for op, turn in found.calls] == [("WhileOp", 1)]


def test_a_nan_that_something_masks_is_found_and_said_to_be_masked(transformer: Any) -> None:
    x = weft.placeholder((3,), name="x")
    step = transformer.computation(weft.argmax(weft.log(x)), x)
    found = step.find_nonfinite(np.float32([-1, 1, 2]))
    assert found is not None
    assert type(found.op).__name__ == "LogOp"
    assert not found.reaches_result
    assert "something later masks it" in str(found)


def test_an_infinity_of_a_mask_counts_where_it_becomes_nan(transformer: Any) -> None:
    x = weft.placeholder((3,), name="x")
    masked = transformer.computation(weft.softmax(weft.where(x > 0, x, -np.inf)), x)
    assert masked.find_nonfinite(np.float32([1, -1, 2])) is None
    found = masked.find_nonfinite(np.float32([-1, -1, -2]))
    assert found is not None
    assert type(found.op).__name__ == "SoftmaxOp"
    assert found.operands[0].infinities == 3
    assert "makes NaN of an infinity" in str(found)


def test_an_overflow_counts_where_it_reaches_a_result(transformer: Any) -> None:
    x = weft.placeholder((3,), name="x")
    masked = transformer.computation(weft.minimum(weft.exp(x), 9), x)
    assert masked.find_nonfinite(np.float32([1, 1000, 2])) is None
    plain = transformer.computation(weft.exp(x) + 1, x)
    found = plain.find_nonfinite(np.float32([1, 1000, 2]))
    assert found is not None
    assert type(found.op).__name__ == "ExpOp"
    assert (found.value.infinities, found.value.size) == (1, 3)
    assert found.operands[0].high == 1000


def test_what_was_given_is_named(transformer: Any) -> None:
    x = weft.placeholder((2,), name="given")
    w = weft.variable((2,), initial_value=1.0, name="weight")
    step = transformer.computation(x * w, x)
    assert str(step.find_nonfinite(np.float32([np.nan, 1]))).startswith("argument given holds NaN")
    transformer.set_value(w, [np.inf, 1])
    found = str(step.find_nonfinite(np.float32([1, 1])))
    assert found.startswith("state weight")
    held = "1 of 2 elements are infinite, the first at [0], finite ones from 1 to 1"
    assert f"holds an infinity: {held}" in found


def test_states_effects_and_memory_stay_as_they_are(transformer: Any, capsys: Any) -> None:
    w = weft.variable((2,), initial_value=3.0, name="w")
    step = transformer.computation([weft.assign(w, weft.print_op(w) * 1e30)])
    first = step.find_nonfinite()
    made, buffers = len(transformer.computations), len(transformer.device_buffers)
    for _ in range(3):
        assert (step.find_nonfinite() is None) == (first is None)
    assert (len(transformer.computations), len(transformer.device_buffers)) == (made, buffers)
    np.testing.assert_array_equal(transformer.get_value(w), [3, 3])
    assert capsys.readouterr().out == ""
    step()
    np.testing.assert_allclose(transformer.get_value(w), [3e30, 3e30], rtol=1e-6)


def test_each_solution_of_unknown_lengths_is_searched(transformer: Any) -> None:
    x = weft.placeholder([weft.Axis(None, "N")])
    step = transformer.computation(weft.sum(x / (x - 1)), x)
    for length in (2, 5):
        found = step.find_nonfinite(np.arange(length, dtype=np.float32))
        assert found is not None
        assert type(found.op).__name__ == "DivideOp"
        assert found.value.size == length


def test_complex_numbers_count_by_magnitude() -> None:
    x = weft.placeholder((2,), np.complex64)
    with weft.make_transformer("numpy") as transformer:
        found = transformer.computation(weft.log(x) * 0, x).find_nonfinite([0, 3 + 4j])
    assert found is not None
    assert type(found.op).__name__ == "LogOp"
    assert (found.operands[0].low, found.operands[0].high) == (0, 5)


def test_wrong_arguments_and_a_closed_transformer_are_refused(transformer: Any) -> None:
    x = weft.placeholder((2,), name="x")
    step = transformer.computation(weft.log(x), x)
    with pytest.raises(ArgumentError, match="expecting 1 arguments, but was called with 2"):
        step.find_nonfinite([1, 2], [3, 4])
    transformer.close()
    with pytest.raises(StateError, match="closed"):
        step.find_nonfinite([1, 2])


@pytest.fixture
def checking(monkeypatch: pytest.MonkeyPatch, backend: str) -> Any:
    """Return a transformer that checks all results."""
    monkeypatch.setenv("WEFT_CHECK_FINITE", "1")
    with weft.make_transformer(backend) as made:
        yield made


@pytest.mark.parametrize("into", [False, True], ids=["returned", "out"])
def test_every_call_checks_its_results_if_it_is_told_to(checking: Any, into: bool) -> None:
    x = weft.placeholder((2,), name="x")
    w = weft.variable((2,), initial_value=1.0, name="w")
    step = checking.computation([w + weft.exp(x), weft.assign(w, w * weft.exp(x))], x)
    options = {"out": [np.zeros(2, np.float32)]} if into else {}
    step(np.float32([1, 1]), **options)
    before = checking.get_value(w)
    with pytest.raises(CheckFailed, match="not finite") as caught:
        step(np.float32([1, 900]), **options)
    assert "ExpOp" in str(caught.value)
    assert "finite ones from 1 to 900" in str(caught.value)
    np.testing.assert_array_equal(checking.get_value(w), before)
    step(np.float32([0, 0]), **options)


def test_an_infinite_initial_value_is_no_finding(checking: Any) -> None:
    best = weft.variable((2,), initial_value=-np.inf, name="best")
    step = checking.computation(weft.assign(best, weft.maximum(best, 1.0)))
    step()
    np.testing.assert_array_equal(checking.get_value(best), [1, 1])


def test_calls_check_nothing_unless_they_are_told_to(
    transformer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_CHECK_FINITE", "0")
    x = weft.placeholder((2,), name="x")
    step = transformer.computation(weft.log(x), x)
    assert np.isnan(step(np.float32([-1, 1]))[0])
