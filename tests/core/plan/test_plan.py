"""Plans: where values lie, and what is written in place."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planned import UNFUSED, computation

import weft
from weft.plan.plan import INPUT, RESULT, STATE
from weft.testing.reference import evaluate


def steps(c: weft.Computation):
    return [type(step.op).__name__ for step in c.plan.steps]


def kinds(c: weft.Computation):
    return sorted(buffer.kind for buffer in c.plan.buffers)


def test_a_chain_runs_in_the_memory_of_its_result():
    x = weft.placeholder((8,))
    c = computation(weft.exp(weft.sin(weft.tanh(x))), x)
    assert kinds(c) == [INPUT, RESULT]
    assert c.plan.arena_size == c.plan.peak_live == 0
    assert {step.out.base.kind for step in c.plan.steps} == {RESULT}


def test_an_operand_that_is_read_again_is_not_overwritten():
    x = weft.placeholder((8,))
    y = weft.tanh(x)
    c = computation(weft.sum(weft.exp(y)) * y, x)
    value = np.linspace(-1, 1, 8, dtype=np.float32)
    np.testing.assert_allclose(c(value), np.exp(np.tanh(value)).sum() * np.tanh(value), rtol=1e-5)
    c.plan.verify()


def test_views_take_no_memory_and_no_step():
    x = weft.placeholder((4, 6))
    y = weft.reshape(weft.tanh(x), (2, 2, 6))[1, ::-1].T
    c = computation(weft.sum(weft.broadcast(y, (5, 6, 2)) * 1.5), x)
    assert steps(c) == ["TanhOp", "MultiplyOp", "SumOp"]
    reads = c.plan.steps[1].args[0]
    assert (reads.shape, reads.strides) == ((5, 6, 2), (0, 4, -24))


def test_a_result_that_is_a_view_is_copied():
    x = weft.placeholder((2, 3))
    c = computation([x.T, weft.tanh(x)[0]], x)
    assert steps(c) == ["ContiguousOp", "TanhOp", "ContiguousOp"]
    value = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert c(value)[0].flags.c_contiguous
    np.testing.assert_array_equal(c(value)[0], value.T)


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda x: [weft.reshape(weft.tanh(x), (6,))], ["TanhOp"]),
        (lambda x: [weft.reshape(weft.reshape(weft.tanh(x), (6,)), (3, 2))], ["TanhOp"]),
        (lambda x: [weft.transpose(weft.exp(x), (0, 1))], ["ExpOp"]),
        (lambda x: [weft.tanh(x)[:, None]], ["TanhOp"]),
        (lambda x: [weft.view_as_complex(weft.reshape(weft.tanh(x), (3, 2)))], ["TanhOp"]),
        (lambda x: [weft.print_op(weft.tanh(x))], ["TanhOp", "PrintOp"]),
        (lambda x: [weft.reshape(weft.tanh(x).T, (6,))], ["TanhOp", "ReshapeOp"]),
        (lambda x: [weft.reshape(x, (6,))], ["ContiguousOp"]),
        (lambda x: [weft.tanh(x).T], ["TanhOp", "ContiguousOp"]),
        (lambda x: [weft.tanh(x)[0]], ["TanhOp", "ContiguousOp"]),
        (lambda x: [weft.tanh(x)[::-1]], ["TanhOp", "ContiguousOp"]),
        (lambda x: [weft.broadcast(weft.tanh(x), (2, 2, 3))], ["TanhOp", "ContiguousOp"]),
        (lambda x: [y := weft.tanh(x), weft.reshape(y, (6,))], ["TanhOp", "ContiguousOp"]),
        (lambda x: [weft.reshape(y := weft.tanh(x), (6,)), weft.exp(y)], ["TanhOp", "ExpOp"]),
    ],
)
def test_a_result_that_is_all_of_a_value_lies_in_its_memory(
    build: Callable[..., Any], expected: list[str], capsys: pytest.CaptureFixture[str]
):
    x = weft.placeholder((2, 3))
    c = computation(build(x), x)
    assert sorted(steps(c)) == sorted(expected)
    c.plan.verify()
    value = np.arange(6, dtype=np.float32).reshape(2, 3)
    wanted, _ = evaluate(c.graph, [value])
    got = c(value)
    for each, expected_value in zip(got, wanted, strict=True):
        np.testing.assert_allclose(each, expected_value, rtol=1e-6)
        assert each.flags.c_contiguous
    assert not any(np.shares_memory(a, b) for a, b in combinations(got, 2))


def test_a_donated_argument_that_is_seen_as_parts_is_copied():
    parts = weft.jit(weft.view_as_real, backend="numpy", donate_argnums=0)
    values = np.array([1 + 2j, 3 - 4j], "complex64")
    np.testing.assert_array_equal(parts(values.copy()), [[1, 2], [3, -4]])


def test_a_state_that_gets_all_of_a_value_is_written_by_the_op_that_makes_it():
    w, x = weft.variable((6,), initial_value=1), weft.placeholder((2, 3))
    weft.assign(w, weft.reshape(weft.tanh(x), (6,)))
    c = computation([w * 2], x)
    assert steps(c).count("ContiguousOp") == 0
    c.plan.verify()
    assert c(np.zeros((2, 3)))[0].tolist() == [0] * 6


def test_a_result_that_is_asked_for_twice_is_two_arrays():
    x = weft.placeholder((2,))
    y = x + 1
    first, second = computation([y, y], x)([1, 2])
    assert first.tolist() == second.tolist() == [2, 3]
    assert not np.shares_memory(first, second)


def test_an_update_is_written_straight_into_the_state():
    w, x = weft.variable((8,), initial_value=0), weft.placeholder((8,))
    weft.assign(w, w * 0.9 + x)
    c = computation(weft.sum(w), x)
    assert c.plan.peak_live == 0, "what comes first lies in the state too"
    *updates, _ = c.plan.steps
    assert [s.out.base.kind for s in updates] == [STATE, STATE]
    c.plan.verify()
    assert [c(np.ones(8)).item() for _ in range(2)] == pytest.approx([8, 8 * 1.9])


def test_writes_of_parts_of_a_state_one_after_the_other_copy_nothing():
    w, x, at = (
        weft.variable((3, 8), initial_value=0),
        weft.placeholder((8,)),
        weft.placeholder((), dtype="int32"),
    )
    seen = []
    for number in range(3):
        row = weft.reshape(x * number, (1, 8))
        weft.assign(w, weft.dynamic_update_slice(w, row, [at + number, 0]))
        seen.append(weft.sum(weft.cumsum(w[number])))
    c = computation(weft.stack(seen), x, at)
    writes = [s for s in c.plan.steps if type(s.op).__name__ == "DynamicUpdateSliceOp"]
    assert [(s.args[0].base.kind, s.out.base.kind) for s in writes] == [(STATE, STATE)] * 3
    c.plan.verify()
    np.testing.assert_array_equal(c(np.ones(8), 0), np.arange(3) * 36)
    expected = np.arange(3)[:, None] * np.ones(8)
    np.testing.assert_array_equal(c.transformer.get_value(w), expected)


def test_an_earlier_value_of_a_state_that_is_read_later_has_memory_of_its_own():
    w, x = weft.variable((8,), initial_value=0), weft.placeholder((8,))
    weft.assign(w, weft.sort(w + x))
    middle = weft.value_of(w)
    weft.assign(w, weft.cumsum(w))
    c = computation([weft.sum(w), weft.sum(middle)], x)
    c.plan.verify()
    assert [value.item() for value in c(np.ones(8))] == [36, 8]


def test_an_update_waits_for_the_last_reader_of_the_old_value():
    w = weft.variable((4,), initial_value=[1, 2, 3, 4])
    old = weft.tanh(w)
    weft.assign(w, w + 1)
    late = weft.exp(old * 0) * w
    c = computation([w, late, old[::-1]])
    c.plan.verify()
    got = c()
    assert got[0].tolist() == [2, 3, 4, 5]
    np.testing.assert_allclose(got[2], np.tanh([4, 3, 2, 1]), rtol=1e-5)


def test_states_can_be_swapped():
    p = weft.variable((3,), initial_value=[1, 2, 3])
    q = weft.variable((3,), initial_value=[4, 5, 6])
    old_p = weft.value_of(p)
    first = weft.assign(p, q)
    second = weft.assign(q, old_p)
    c = computation([p, q, first, second])
    c.plan.verify()
    assert [v.tolist() for v in c()[:2]] == [[4, 5, 6], [1, 2, 3]]
    assert [v.tolist() for v in c()[:2]] == [[1, 2, 3], [4, 5, 6]]


def test_states_can_be_rotated():
    states = [weft.variable((), initial_value=n) for n in range(4)]
    old = [weft.value_of(state) for state in states]
    for state, value in zip(states, old[1:] + old[:1], strict=True):
        weft.assign(state, value)
    c = computation(states)
    c.plan.verify()
    assert [v.item() for v in c()] == [1, 2, 3, 0]
    assert [v.item() for v in c()] == [2, 3, 0, 1]


@pytest.mark.parametrize(
    "update",
    [
        lambda w: weft.transpose(w),
        lambda w: w[::-1],
        lambda w: w + w.T,
        lambda w: weft.where(w > 4, w.T, w),
        lambda w: weft.update_slice(w, (slice(0, 2), slice(0, 2)), w[1:, 1:]),
        lambda w: w @ w,
        lambda w: weft.broadcast(weft.sum(w, 0), (3, 3)) + w,
        lambda w: weft.concat([w[1:], w[:1]]),
        lambda w: weft.reshape(weft.reshape(w.T, (9,))[::-1], (3, 3)),
        lambda w: weft.maximum(w, weft.broadcast(w[0], (3, 3))),
    ],
    ids=list("abcdefghij"),
)
def test_a_state_updated_from_a_view_of_itself(update: Callable[..., Any]):
    start = np.arange(9, dtype=np.float32).reshape(3, 3)
    w = weft.variable((3, 3), initial_value=start)
    expected = computation(update(w))()
    transformer = weft.make_transformer("numpy", passes=UNFUSED)
    weft.assign(w, update(w))
    c = transformer.computation([w * 1, w])
    c.plan.verify()
    for got in c():
        np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(transformer.get_value(w), expected)


def test_the_table_lists_steps_and_buffers():
    x = weft.placeholder((64,))
    y = weft.tanh(x)
    c = computation([weft.sum(y * x), weft.max(y)], x)
    lines = c.plan.table().splitlines()
    assert lines[0] == "arena 256 bytes, at most 256 live, 512 in the order as written"
    assert sum("<-" in line for line in lines) == len(c.plan.steps)
    assert any("TanhOp(input0:float32[64])" in line for line in lines)
    assert any(line.startswith("steps ") for line in lines)


def test_the_arena_reaches_the_lower_bound_on_a_training_step():
    rng = np.random.default_rng(0)
    x, t = weft.placeholder((32, 64)), weft.placeholder((32, 16))
    h, loss = x, None
    weights = [
        weft.variable((a, b), initial_value=rng.normal(size=(a, b)) / 8)
        for a, b in ((64, 128), (128, 128), (128, 16))
    ]
    for w in weights[:-1]:
        h = weft.tanh(h @ w)
    loss = weft.mean(weft.cross_entropy_multi(weft.softmax(h @ weights[-1]), t))
    for w in weights:
        weft.assign(w, w - 0.1 * weft.deriv(loss, w))
    c = computation([loss, *weights], x, t)
    plan = c.plan
    plan.verify()
    assert plan.arena_size == plan.peak_live
    unshared = sum(s.out.nbytes for s in plan.steps)
    assert plan.arena_size < unshared / 3
    first = c(rng.normal(size=(32, 64)), np.eye(16)[rng.integers(0, 16, 32)])[0]
    assert np.isfinite(first)


def written(state: Any, value: Any):
    weft.assign(state, value)
    return state


@st.composite
def programs(draw: st.DrawFn):
    """Draw results over two inputs and a state, with updates of the state between them."""
    n = draw(st.integers(1, 4))
    x, y = weft.placeholder((n, n)), weft.placeholder((n, n))
    w = weft.variable((n, n), initial_value=np.arange(n * n).reshape(n, n) / 8)
    pool = [x, y, w, x + y]
    choices = [
        lambda a, b: a + b,
        lambda a, b: a * b,
        lambda a, b: weft.tanh(a),
        lambda a, b: a.T,
        lambda a, b: a[::-1] - b,
        lambda a, b: weft.maximum(a, b),
        lambda a, b: weft.broadcast(weft.mean(a, 0), (n, n)),
        lambda a, b: weft.where(a > b, a, b.T),
        lambda a, b: weft.update_slice(a, (0,), b[:, 0]),
        lambda a, b: weft.reshape(weft.reshape(a.T, (n * n,))[::-1], (n, n)),
        lambda a, b: weft.value_of(w),
        lambda a, b: written(w, weft.tanh(a + b)),
    ]
    for _ in range(draw(st.integers(1, 14))):
        build = draw(st.sampled_from(choices))
        pool.append(build(draw(st.sampled_from(pool)), draw(st.sampled_from(pool))))
    results = draw(st.lists(st.sampled_from(pool), min_size=1, max_size=4))
    return results, (x, y), w, n


@settings(max_examples=150, deadline=None)
@given(program=programs(), seed=st.integers(0, 9))
def test_random_programs_verify_and_passes_change_nothing(program: Any, seed: Any):
    results, parameters, w, n = program
    rng = np.random.default_rng(seed)
    arrays = [rng.normal(size=(n, n)).astype(np.float32) for _ in parameters]
    plain = weft.make_transformer("numpy", passes=["decompose"])
    passed = weft.make_transformer("numpy")
    c = [each.computation([*results, w], *parameters) for each in (plain, passed)]
    for each in c:
        each.plan.verify()
    reference = Reference(c[0].graph)
    for _ in range(2):
        expected = reference(arrays)
        for each in c:
            for got, want in zip(each(*arrays), expected, strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


class Reference:
    """Runs a captured graph by the reference meaning of its ops, with states in a dictionary."""

    def __init__(self, graph: Any):
        self.graph = graph
        self.states = {}
        for state in graph.states:
            value = next((init.args[1].const for init in state.initializers), 0)
            self.states[state] = np.broadcast_to(value, state.axes.shape).astype(state.dtype)

    def __call__(self, arrays: Any):
        values = dict(zip(self.graph.inputs, arrays, strict=True))
        for op in self.graph.ops:
            if op in values:
                continue
            if type(op).__name__ == "ReadOp":
                values[op] = self.states[op.state]
            elif op.is_constant:
                values[op] = op.const
            else:
                values[op] = op.reference(*(values[arg] for arg in op.args))
        self.states.update((state, values[value]) for state, value in self.graph.updates)
        return [values[op] for op in self.graph.outputs]
