"""What batching makes of calls, loops, effects, states, names, and ops of one's own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from loops_over_examples import require_what_a_loop_gives

import weft
from weft.batching import Batch, Batched, batched, batching_rule_of, walk
from weft.errors import (
    ArgumentError,
    AxesError,
    BatchingError,
    CheckFailed,
    IndexOutOfRange,
    StateError,
)
from weft.ops.control.graph_ops import CallOp, CondOp
from weft.ops.products.linalg import MatmulOp
from weft.ops.reductions.probabilities import SoftmaxOp
from weft.testing.reference import evaluate


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).uniform(-2, 2, shape).astype("float32")


def value_of(op: Any, parameters: Any, *arrays: Any) -> Any:
    (value,), _ = evaluate(weft.capture([op], parameters), arrays)
    return value


def test_what_depends_on_no_batched_op_is_used_as_it_is():
    x, w = weft.placeholder((2,)), weft.placeholder((2,))
    square = w * w
    found = batched([x + square, square, x], {x: weft.placeholder((3, 2))}, 3)
    assert [each.is_batched for each in found] == [True, False, True]
    assert found[1].op is square
    assert found[0].op.shape == (3, 2)


def test_the_inputs_may_be_inside_of_the_graph():
    x = weft.placeholder((2,))
    inner = weft.exp(x)
    batch = weft.placeholder((3, 2))
    ((made, _),) = batched([weft.sum(inner * 2)], {inner: batch}, 3)
    assert value_of(made, [batch], np.ones((3, 2))).tolist() == [4, 4, 4]


def test_an_op_may_be_mapped_over_and_used_whole():
    x, whole = weft.placeholder((2,)), weft.placeholder((3, 2))
    ((made, _),) = batched([weft.dot(whole, x)], {x: whole}, 3)
    array = numbers(3, 2)
    np.testing.assert_allclose(value_of(made, [whole], array), array @ array.T, rtol=1e-5)


def test_batches_nest():
    x, y = weft.placeholder((4,)), weft.placeholder((4,))
    rows, columns = weft.placeholder((3, 4)), weft.placeholder((2, 4))
    ((inner, _),) = batched([weft.sum(weft.tanh(x) * y)], {y: columns}, 2)
    ((outer, _),) = batched([inner], {x: rows}, 3)
    a, b = numbers(3, 4), numbers(2, 4, seed=1)
    got = value_of(outer, [rows, columns], a, b)
    np.testing.assert_allclose(got, np.tanh(a) @ b.T, rtol=1e-5)


def test_batches_nest_under_names():
    h = weft.make_axis(4, "H")
    x, y = weft.placeholder([h]), weft.placeholder([h])
    rows, columns = weft.placeholder((3, 4)), weft.placeholder((2, 4))
    ((inner, _),) = batched([x * weft.softmax(y)], {y: columns}, 2)
    ((outer, _),) = batched([inner], {x: rows}, 3)
    assert (outer.shape, outer.axes[-1], len(set(outer.axes.names))) == ((3, 2, 4), h, 3)
    a, b = numbers(3, 4), np.zeros((2, 4), "float32")
    got = value_of(outer, [rows, columns], a, b)
    np.testing.assert_allclose(got, np.broadcast_to(a[:, None] / 4, (3, 2, 4)), rtol=1e-6)


def test_gradients_for_each_example():
    x, t, w = weft.placeholder((4,)), weft.placeholder(()), weft.placeholder((4,))
    gradient = weft.deriv(weft.square(weft.sum(weft.tanh(x * w)) - t), w)
    arrays = [[numbers(4, seed=n), numbers(seed=n), numbers(4, seed=9)] for n in range(5)]
    require_what_a_loop_gives([gradient], [x, t, w], arrays, (0, 1))


@pytest.mark.parametrize("name", ["x", "w", "both"])
def test_products_with_a_batch_on_one_side_are_one_product(name: str):
    x, w = weft.placeholder((5, 4)), weft.placeholder((4, 6))
    inputs = {x: weft.placeholder((3, 5, 4)), w: weft.placeholder((3, 4, 6))}
    chosen = (
        inputs if name == "both" else {x if name == "x" else w: inputs[x if name == "x" else w]}
    )
    ((made, _),) = batched([weft.matmul(x, w)], chosen, 3)
    graph = weft.capture([made], [chosen.get(x, x), chosen.get(w, w)])
    (product,) = (op for op in graph.ops if isinstance(op, MatmulOp))
    assert product.rank == (3 if name == "both" else 2)


def test_a_softmax_remains_one():
    x = weft.placeholder((2, 4))
    ((made, _),) = batched([weft.softmax(x)], {x: weft.placeholder((3, 2, 4))}, 3)
    assert isinstance(made, SoftmaxOp)
    assert made.positions == (2,)


def test_ops_keep_their_lines_and_metadata():
    x = weft.placeholder((2,))
    with weft.metadata(layer=1):
        y = weft.gelu(x)
    ((made, _),) = batched([y], {x: weft.placeholder((3, 2))}, 3)
    assert (made.location, made.metadata) == (y.location, {"layer": 1})


def test_a_long_chain():
    x = y = weft.placeholder(())
    for _ in range(5_000):
        y = y + x
    ((made, _),) = batched([y], {x: weft.placeholder((3,))}, 3)
    assert made.shape == (3,)


# Named axes


def test_the_batch_axis_of_named_axes_has_a_new_name():
    n, c = weft.make_axis(3, "N"), weft.make_axis(2, "C")
    x = weft.placeholder([n, c])
    batch = weft.placeholder([weft.make_axis(5, "B"), n, c])
    (one, total) = batched([weft.exp(x), weft.sum(x, reduction_axes=(0, 1))], {x: batch}, 5)
    assert one.op.axes[1:] == x.axes
    assert one.op.axes[0].name not in ("B", None)
    assert total.op.axes == weft.make_axes((5,))


# Calls, loops and conditionals


def like(x: Any) -> Any:
    return weft.placeholder(x.axes, x.dtype)


def test_a_graph_is_batched_once_for_each_combination():
    a, b = weft.placeholder((2,)), weft.placeholder((2,))
    graph = weft.capture([a * b, weft.sin(b)], [a, b], "layer")
    x, y = weft.placeholder((2,)), weft.placeholder((2,))
    one, _ = weft.call(graph, x, y)
    two, same = weft.call(graph, one, y)
    found = batched([two, same], {x: weft.placeholder((3, 2))}, 3)
    assert [each.is_batched for each in found] == [True, False]
    graphs = {op.graph for op in weft.Op.ordered_ops([found[0].op]) if isinstance(op, CallOp)}
    assert len(graphs) == 1


def test_graphs_may_be_nested_deeply():
    x = weft.placeholder((2,))
    graph = weft.capture([weft.tanh(x)], [x])
    for _ in range(100):
        x = weft.placeholder((2,))
        graph = weft.capture([weft.call(graph, x)[0] + x], [x])
    y = weft.placeholder((2,))
    ((made, _),) = batched(weft.call(graph, y), {y: weft.placeholder((3, 2))}, 3)
    assert made.shape == (3, 2)


def test_a_loop_carries_batched_values_from_the_iteration_in_which_they_become_so():
    a, b, c = (weft.placeholder((2,)) for _ in range(3))
    body = weft.capture([b + 1, b * 0.5 + c], [a, b, c], "body")
    x, y, z = (weft.placeholder((2,)) for _ in range(3))
    results = weft.loop(body, 3, x, y, z)
    arrays = [[numbers(2), numbers(2, seed=7), numbers(2, seed=n)] for n in range(4)]
    batch = require_what_a_loop_gives(results, [x, y, z], arrays, (2,))
    assert all(each.is_batched for each in batch.results)
    batch = require_what_a_loop_gives(results, [x, y, z], arrays, ())
    assert not any(each.is_batched for each in batch.results)


def test_gradients_through_a_loop_and_a_choice():
    a, b = weft.placeholder((2,)), weft.placeholder((2,))
    body = weft.capture([weft.tanh(a * b) + a], [a, b], "body")
    other = weft.capture([weft.sin(a)], [a, b], "other")
    x, w = weft.placeholder((2,)), weft.placeholder((2,))
    (looped,) = weft.loop(body, 3, x, w)
    (chosen,) = weft.cond(weft.greater(weft.sum(x), 0), body, other, [looped, w], [w, looped])
    results = [chosen, *(weft.deriv(weft.sum(chosen), each) for each in (x, w))]
    arrays = [[numbers(2, seed=n), numbers(2, seed=8)] for n in range(6)]
    require_what_a_loop_gives(results, [x, w], arrays, (0,))
    require_what_a_loop_gives(results, [x, w], arrays, (0, 1))


@pytest.mark.parametrize("chosen", [(0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2)])
def test_choices(chosen: tuple[int, ...]):
    a = weft.placeholder((2,))
    then = weft.capture([weft.exp(a), a * 0 + 2], [a], "then")
    other = weft.capture([a - 1, a * 0 + 3], [a], "other")
    wanted, x, y = weft.placeholder((), "bool"), weft.placeholder((2,)), weft.placeholder((2,))
    results = weft.cond(wanted, then, other, [x], [y])
    arrays = [[np.array(n % 2 == 0), numbers(2), numbers(2)] for n in range(4)]
    batch = require_what_a_loop_gives(results, [wanted, x, y], arrays, chosen)
    keeps = any(isinstance(op, CondOp) for op in weft.Op.ordered_ops([batch.results[0].op]))
    assert keeps == (0 not in chosen)


def halved() -> tuple[weft.Graph, weft.Graph]:
    """Return condition and body of a loop that halves while the sum is above a limit."""
    a, count, limit = weft.placeholder((2,)), weft.placeholder((), "int32"), weft.placeholder(())
    above = weft.capture([weft.greater(weft.sum(a), limit)], [a, count, limit], "above")
    return above, weft.capture([a * 0.5, count + 1], [a, count, limit], "halve")


@pytest.mark.parametrize("chosen", [(0,), (1,), (2,), (0, 1), (0, 2), (0, 1, 2)])
@pytest.mark.parametrize("examples", [0, 1, 5])
def test_each_example_leaves_a_while_loop_when_it_is_finished(chosen: Any, examples: int):
    x, start, limit = weft.placeholder((2,)), weft.placeholder((), "int32"), weft.placeholder(())
    results = weft.while_loop(*halved(), x, start, limit)
    arrays = [
        [np.full(2, 4.0**n, "float32"), np.int32(n), np.float32(1 / (n + 1))]
        for n in range(examples)
    ]
    batch = require_what_a_loop_gives(results, [x, start, limit], arrays, chosen)
    assert [each.is_batched for each in batch.results] == (
        [False, True] if chosen == (1,) else [True, True]
    )


def test_a_while_loop_runs_as_often_as_its_longest_example(transformer_of: Callable[[str], Any]):
    x = weft.placeholder((2,))
    results = weft.while_loop(*halved(), x, weft.constant(0, dtype="int32"), 1.0)
    rows = weft.placeholder((3, 2))
    found = batched(results, {x: rows}, 3)
    computation = transformer_of("numpy").computation([each.op for each in found], rows)
    halves, counts = computation(np.array([[0, 0], [1, 1], [64, 0]], "float32"))
    assert counts.tolist() == [0, 1, 6]
    assert halves.tolist() == [[0, 0], [0.5, 0.5], [1, 0]]


@pytest.mark.parametrize("kind", ["cond", "while"])
def test_effects_under_a_batched_condition_are_refused(kind: str):
    a, x, wanted = weft.placeholder(()), weft.placeholder(()), weft.placeholder((), "bool")
    shown = weft.capture([weft.print_op(a) * 0.5], [a], "shown")
    if kind == "cond":
        (y,) = weft.cond(wanted, shown, shown, [x], [x])
        inputs = {wanted: weft.placeholder((3,), "bool")}
    else:
        (y,) = weft.while_loop(weft.capture([weft.greater(a, 1)], [a]), shown, x)
        inputs = {x: weft.placeholder((3,))}
    with pytest.raises(BatchingError, match="they have effects"):
        batched([y], inputs, 3)
    if kind == "cond":
        (found,) = batched([y], {x: weft.placeholder((3,))}, 3)
        assert found.is_batched


# Effects and states


def test_a_value_is_printed_whole(capsys: pytest.CaptureFixture[str]):
    x, rows = weft.placeholder(()), weft.placeholder((3,))
    ((made, _),) = batched([weft.print_op(x, "x:") + 1], {x: rows}, 3)
    assert value_of(made, [rows], np.arange(3.0)).tolist() == [1, 2, 3]
    assert capsys.readouterr().out == "x: [0. 1. 2.]\n"


def test_an_assertion_is_of_all_examples():
    x, y = weft.placeholder(()), weft.placeholder(())
    checked = weft.assert_op(x, weft.greater(y, 0), "too small") + 1
    rows = weft.placeholder((3,))
    ((made, is_batched),) = batched([checked], {y: rows}, 3)
    assert not is_batched
    assert value_of(made, [x, rows], 1.0, np.ones(3)) == 2
    with pytest.raises(CheckFailed, match="too small in 1 of 3 elements"):
        value_of(made, [x, rows], 1.0, np.array([1.0, 0, 1]))


def test_a_call_after_an_assertion_of_all_examples_is_not_batched():
    a, x, y = (weft.placeholder((2,)) for _ in range(3))
    graph = weft.capture([weft.tanh(a * a)], [a], "layer")
    (called,) = weft.call(graph, weft.assert_op(x, weft.less(y, 1), "too large"))
    rows = weft.placeholder((3, 2))
    found = batched([called, weft.deriv(weft.sum(called), x)], {y: rows}, 3)
    assert [each.is_batched for each in found] == [False, False]
    assert value_of(found[1].op, [x, rows], np.zeros(2), np.zeros((3, 2))).tolist() == [0, 0]
    for each in found:
        with pytest.raises(CheckFailed, match="too large"):
            value_of(each.op, [x, rows], np.zeros(2), np.eye(3, 2))


def test_an_index_out_of_range_is_not_one_of_the_next_example():
    x, index = weft.placeholder((2,)), weft.placeholder((), "int64")
    rows, indices = weft.placeholder((3, 2)), weft.placeholder((3,), "int64")
    ((made, _),) = batched([weft.take(x, index)], {x: rows, index: indices}, 3)
    array = numbers(3, 2)
    got = value_of(made, [rows, indices], array, np.array([1, -1, -2]))
    assert got.tolist() == array[[0, 1, 2], [1, 1, 0]].tolist()
    with pytest.raises(IndexOutOfRange):
        value_of(made, [rows, indices], array, np.array([0, 2, 0]))


def test_effects_keep_their_order(capsys: pytest.CaptureFixture[str]):
    x, rows = weft.placeholder(()), weft.placeholder((2,))
    first = weft.print_op(x, "first")
    second = weft.print_op(x * 2, "second")
    ((made, _),) = batched([second + first], {x: rows}, 2)
    value_of(made, [rows], np.ones(2))
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["first", "second"]


def test_effects_in_a_graph_keep_their_order(capsys: pytest.CaptureFixture[str]):
    a = weft.placeholder(())
    first = weft.print_op(a, "first")
    second = weft.print_op(a * 2, "second")
    graph = weft.capture([second + first], [a], "shown")
    x, rows = weft.placeholder(()), weft.placeholder((2,))
    ((made, _),) = batched(weft.call(graph, x), {x: rows}, 2)
    value_of(made, [rows], np.ones(2))
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["first", "second"]


def test_a_state_is_read_as_it_was_when_the_op_was_built(transformer_of: Callable[[str], Any]):
    x, rows = weft.placeholder((2,)), weft.placeholder((3, 2))
    state = weft.variable((2,), initial_value=1)
    before = x * state
    weft.assign(state, state + 4)
    after = x * state
    results = batched([before, after], {x: rows}, 3)
    computation = transformer_of("numpy").computation([each.op for each in results], rows)
    one, other = computation(np.ones((3, 2)))
    assert (one.tolist(), other.tolist()) == ([[1, 1]] * 3, [[5, 5]] * 3)


@pytest.mark.parametrize("output", ["write", "state", "later"])
def test_an_assignment_of_a_batched_value_is_refused(output: str):
    x, state = weft.placeholder(()), weft.variable(())
    with weft.saved_user_deps():
        write = weft.assign(state, x * 2)
        result = {"write": write, "state": state, "later": state + 1}[output]
        with pytest.raises(StateError, match="reduce the value over the batch") as caught:
            batched([result], {x: weft.placeholder((3,))}, 3)
    assert f'File "{__file__}", line' in str(caught.value)


@pytest.mark.parametrize("in_scope", [False, True])
def test_a_write_that_is_the_same_for_all_examples_happens_once(
    transformer_of: Callable[[str], Any], capsys: pytest.CaptureFixture[str], in_scope: bool
):
    a, x, state = weft.placeholder(()), weft.placeholder(()), weft.variable((), initial_value=1)
    with weft.saved_user_deps():
        weft.assign(state, weft.print_op(state * 2, "doubled"))
        graph = weft.capture([a * state], [a])
    with weft.saved_user_deps() if in_scope else nullcontext():
        (product,) = weft.call(graph, x)
        after = x * 0 + state
    rows = weft.placeholder((3,))
    found = batched([product, after], {x: rows}, 3)
    computation = transformer_of("numpy").computation([each.op for each in found], rows)
    for value in (2, 4):
        one, other = computation(np.arange(3.0))
        assert (one.tolist(), other.tolist()) == ([0, value, 2 * value], [value] * 3)
    assert capsys.readouterr().out == "doubled 2.0\ndoubled 4.0\n"


def test_a_state_may_itself_be_batched(transformer_of: Callable[[str], Any]):
    x, state = weft.placeholder((2,)), weft.variable((2,), initial_value=1)
    weights = weft.placeholder((3, 2))
    ((made, _),) = batched([weft.sum(x * state)], {state: weights}, 3)
    computation = transformer_of("numpy").computation(made, x, weights)
    assert computation(np.ones(2), np.arange(6).reshape(3, 2)).tolist() == [1, 5, 9]


def test_random_numbers_are_the_same_for_all_examples():
    x, rows = weft.placeholder((4,)), weft.placeholder((3, 4))
    ((made, _),) = batched([weft.dropout(x, 0.5, stream=1)], {x: rows}, 3)
    got = value_of(made, [rows], np.ones((3, 4)))
    assert got.tolist() == [got[0].tolist()] * 3


# Ops of one's own


class HalfOp(weft.TensorOp):
    """Half of the operand; it has neither a rule nor a decomposition."""

    def infer(self) -> Any:
        return self.args[0].axes, self.args[0].dtype

    def reference(self, x: Any) -> Any:
        return x / 2


class ComposedOp(weft.CompositeOp):
    """The sum of the operand along its last axis."""

    def infer(self) -> Any:
        return self.args[0].axes[:-1], self.args[0].dtype

    def reference(self, x: Any) -> Any:
        return np.sum(x, axis=-1)

    def decompose(self, x: Any) -> Any:
        return weft.sum(x, reduction_axes=x.rank - 1)


@pytest.fixture
def _no_rules(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(walk, "_rules", dict(walk._rules))


@pytest.mark.usefixtures("_no_rules")
def test_an_op_of_ones_own_gets_a_rule():
    x, rows = weft.placeholder((2,)), weft.placeholder((3, 2))
    y = HalfOp(x)
    words = r"HalfOp: cannot be batched: .*batching_rule_of"
    with pytest.raises(BatchingError, match=words) as caught:
        batched([y], {x: rows}, 3)
    assert y.file_info in str(caught.value)

    @batching_rule_of(HalfOp)
    def rule(op: HalfOp, batch: Batch, operand: Any) -> Any:
        assert (op, batch.size, batch.operands, operand) == (y, 3, (True,), rows)
        return HalfOp(operand)

    ((made, _),) = batched([y], {x: rows}, 3)
    assert value_of(made, [rows], np.ones((3, 2))).tolist() == [[0.5, 0.5]] * 3
    with pytest.raises(ArgumentError, match="already"):
        batching_rule_of(HalfOp)(lambda op, batch, x: x)


@pytest.mark.usefixtures("_no_rules")
@pytest.mark.parametrize("wrong", [lambda x: x[0], lambda x: weft.cast(x, "int32"), lambda x: None])
def test_what_a_rule_returns_is_checked(wrong: Any):
    batching_rule_of(HalfOp)(lambda op, batch, x: wrong(x))
    x = weft.placeholder((2,))
    with pytest.raises(BatchingError, match="its batching rule must return"):
        batched([HalfOp(x)], {x: weft.placeholder((3, 2))}, 3)


@pytest.mark.usefixtures("_no_rules")
def test_a_rule_may_decline():
    asked = []

    @batching_rule_of(ComposedOp)
    def rule(op: ComposedOp, batch: Batch, x: Any) -> Any:
        asked.append(op)
        return NotImplemented

    x = weft.placeholder((2,))
    require_what_a_loop_gives([ComposedOp(x)], [x], [[numbers(2, seed=n)] for n in range(3)], (0,))
    assert len(asked) == 1


def test_a_composite_of_ones_own_needs_no_rule():
    x = weft.placeholder((4, 2))
    arrays = [[numbers(4, 2, seed=n)] for n in range(3)]
    require_what_a_loop_gives([ComposedOp(x)], [x], arrays, (0,))


def test_only_op_classes_get_batching_rules():
    with pytest.raises(ArgumentError, match="takes op classes"):
        batching_rule_of("HalfOp")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        (weft.placeholder((2, 3)), AxesError, "a batch axis of length 3 in front"),
        (weft.placeholder((3, 2), "int32"), AxesError, "cannot stand for"),
        (weft.placeholder((2,)), AxesError, "cannot stand for"),
        (1.0, ArgumentError, "takes tensor ops"),
    ],
)
def test_inputs_must_fit(value: Any, error: type[Exception], words: str):
    x = weft.placeholder((2,))
    with pytest.raises(error, match=words):
        batched([x + 1], {x: value}, 3)


def test_results_say_whether_they_are_batched():
    x = weft.placeholder(())
    (found,) = batched([x], {x: weft.placeholder((3,))}, 3)
    assert found == Batched(found.op, True)
