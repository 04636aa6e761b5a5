"""Schedules: valid orders with low peaks, in which whatever must not change place has not."""

from __future__ import annotations

from itertools import pairwise, permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from planned import N, deep, graph_of, plan_of, run, target, training_steps, with_kernels

import weft
from weft.plan.copies import with_copies
from weft.plan.dataflow import Dataflow
from weft.plan.liveness import Liveness
from weft.plan.plan import STATE, make_plan
from weft.plan.schedule import peak_lower_bound, schedules
from weft.plan.steps import Plan
from weft.testing.imitation import imitated_ranks
from weft.testing.random_graphs import RandomProgram, programs
from weft.testing.reference import evaluate

pytestmark = pytest.mark.slow

thorough = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)


def flow_of(results: list[Any] | weft.TensorOp, *parameters: Any, **options: Any):
    return Dataflow(with_copies(graph_of(results, *parameters)), target(**options))


def kinds(plan: Plan):
    return [type(step.op).__name__ for step in plan.steps]


def is_in_order(flow: Dataflow, order: list[int]):
    """Whether an order of steps respects what must come first, joints included."""
    places = {node: place for place, node in enumerate(order)}
    for node, first in enumerate(flow.before):
        latest = max((places[each] for each in first), default=-1)
        if flow.is_step[node] and latest >= places[node]:
            return False
        places.setdefault(node, latest)
    return sorted(order) == flow.order


def live_bytes(liveness: Liveness):
    """Count the bytes in use at each step from the values alone, each in its own memory."""
    found = [0] * (len(liveness.order) + len(liveness.late))
    for number in liveness.arena:
        for step in range(liveness.first[number], liveness.last[number] + 1):
            found[step] += liveness.flow.sizes[number]
    return found


@thorough
@given(program=programs())
def test_every_schedule_is_an_order_and_the_plan_takes_the_lowest_peak(program: RandomProgram):
    graph = weft.capture(program.results, program.placeholders)
    plan = make_plan(graph, target(alignment=8))
    plan.verify()
    flow = Dataflow(with_copies(graph), target(alignment=8))
    found = schedules(flow)
    assert found[0].order == flow.order
    for each in found:
        assert is_in_order(flow, each.order)
        assert each.live_bytes == live_bytes(each)
        assert each.peak >= peak_lower_bound(flow)
    assert plan.peak_live <= plan.peak_as_written
    assert plan.arena_size >= plan.peak_live


@thorough
@given(program=training_steps())
def test_what_runs_in_a_better_order_gives_the_same(program: Any):
    results, x = program
    graph = graph_of(results, x)
    array = np.random.default_rng(0).normal(size=(N, N)).astype("f4")
    wanted, states = evaluate(graph, [array])
    for each in (graph, with_kernels(graph)):
        plan = make_plan(each, target(alignment=16, workspace=lambda op: 40))
        plan.verify()
        found, after = run(plan, [array])
        assert [v.tobytes() for v in found] == [v.tobytes() for v in wanted]
        for state, value in states.items():
            assert after[state].tobytes() == value.tobytes()


def test_an_operand_is_computed_right_before_its_reader():
    x = weft.placeholder((256,))
    wide = [weft.tanh(weft.broadcast(x * number, (64, 256))) for number in range(1, 7)]
    sums = [weft.sum(each, 0) for each in wide]
    total = sums[0]
    for each in sums[1:]:
        total = total * each
    plan = plan_of(total, x)
    plan.verify()
    assert plan.peak_as_written > 6 * 64 * 1024
    assert plan.peak_live < 65 * 1024 + 256


def test_the_operand_with_the_larger_need_comes_first():
    x = weft.placeholder((64,))

    def wide(x: weft.TensorOp):
        return weft.sum(weft.tanh(weft.broadcast(x, (100, 64))), 0)

    small = weft.exp(weft.broadcast(weft.sin(x), (10, 64)))
    y = small + weft.broadcast(wide(x), (10, 64))
    plan = plan_of(weft.tanh(y.T @ small), x, alignment=1)
    large = 100 * 64 * 4
    assert plan.peak_as_written == 10 * 64 * 4 + large + 256
    assert plan.peak_live == large + 256


@pytest.mark.parametrize("seed", range(6))
def test_small_graphs_come_close_to_the_best_order(seed: int):
    rng = np.random.default_rng(seed)
    x = weft.placeholder((4, 4))
    pool = [x]
    for _ in range(6):
        a, b = (pool[int(rng.integers(len(pool)))] for _ in range(2))
        rows = int(rng.integers(1, 20))
        made = weft.tanh(weft.broadcast(weft.sum(a, 0), (rows, 4)) @ weft.tanh(b.T @ b))
        pool.append(weft.tanh(made))
    flow = flow_of(weft.sum(weft.concat(pool[1:], 0)), x, alignment=1)
    found = schedules(flow)
    best = min(each.peak for each in found)
    assert best <= found[0].peak
    if len(flow.order) <= 9:
        orders = (list(order) for order in permutations(flow.order))
        assert best <= 1.2 * min(Liveness(flow, o).peak for o in orders if is_in_order(flow, o))


def test_ties_keep_the_order_as_written():
    x = weft.placeholder((64,))
    parts = [weft.tanh(x), weft.exp(x), weft.sin(x)]
    plan = plan_of([weft.sum(each * x[::-1]) for each in parts], x)
    assert plan.peak_live == plan.peak_as_written - 512
    chain = plan_of(weft.sum(weft.exp(weft.tanh(x))), x)
    assert kinds(chain) == ["TanhOp", "ExpOp", "SumOp"]
    assert chain.peak_live == chain.peak_as_written


def test_the_same_graph_gets_the_same_order_each_time():
    first, second = (plan_of(*_residual_network(4)) for _ in range(2))
    assert [step.op.location for step in first.steps] == [s.op.location for s in second.steps]
    addresses = [[(b.first, b.last, b.offset) for b in each.buffers] for each in (first, second)]
    assert addresses[0] == addresses[1]


def _residual_network(layers: int):
    x = h = weft.placeholder((32, 64))
    for _ in range(layers):
        wide = [weft.tanh(h @ weft.variable((64, 256))) for _ in range(3)]
        narrow = [each @ weft.variable((256, 64)) for each in wide]
        h = h + narrow[0] * narrow[1] * narrow[2]
    return h, x


def test_equal_layers_come_in_the_same_order():
    layers = 6
    plan = plan_of(*_residual_network(layers))
    assert plan.peak_live < plan.peak_as_written
    found = kinds(plan)
    each = len(found) // layers
    assert len(found) == each * layers
    assert found == found[:each] * layers


def test_effects_keep_their_order(capsys: pytest.CaptureFixture[str]):
    x = weft.placeholder((64, 64))
    large = weft.tanh(weft.broadcast(x, (50, 64, 64)))
    first = weft.print_op(weft.sum(large), "first")
    second = weft.print_op(weft.max(x), "second")
    third = weft.sum(weft.take(x, [0, 1], 0))
    fourth = weft.print_op(weft.min(x), "fourth")
    graph = weft.capture([third, weft.doall([first, second, fourth])], [x])
    for liveness in schedules(Dataflow(with_copies(graph), target())):
        ops = [liveness.flow.ops[node] for node in liveness.order]
        barriers = [op for op in ops if op.has_effect or op.may_raise]
        assert [op.prefix if op.has_effect else "take" for op in barriers] == [
            "first", "second", "take", "fourth",
        ]  # fmt: skip


def test_ordering_edges_are_kept():
    x = weft.placeholder((8,))
    one, other = weft.tanh(x), weft.exp(x)
    graph = weft.capture([one, other], [x])
    for first, second in ((one, other), (other, one)):
        first, second = (op for kind in (type(first), type(second)) for op in graph.ops
                         if type(op) is kind)  # fmt: skip
        plan = make_plan(graph.replace(after={second: (first,)}), target())
        plan.verify()
        assert [step.op for step in plan.steps] == [first, second]


def test_what_a_barrier_waits_for_comes_first():
    x = weft.placeholder((16, 16))
    h = weft.tanh(x)
    y = weft.checkpoint(weft.tanh(weft.sin(h) @ h), [h])
    loss = weft.sum(y * y, (0, 1))
    graph = graph_of([loss, weft.deriv(loss, x)], x)
    flow = Dataflow(with_copies(graph), target())
    assert not all(flow.is_step), "a node that joins several others is what this is about"
    assert all(is_in_order(flow, each.order) for each in schedules(flow))


@pytest.mark.parametrize("order", [1, -1], ids=["first-layer-first", "last-layer-first"])
def test_updates_wait_for_the_readers_of_the_old_value(order: int):
    """Whatever order the user updates weights in, each is updated in place and soon."""
    x = h = weft.placeholder((32, 64))
    weights = [weft.variable((64, 64), initial_value=0.1) for _ in range(8)]
    for weight in weights:
        h = weft.tanh(h @ weight)
    loss = weft.sum(weft.square(h), (0, 1))
    with weft.saved_user_deps():
        updates = [weft.assign(w, w - weft.deriv(loss, w)) for w in weights[::order]]
        plan = plan_of([loss, weft.doall(updates)], x)
    plan.verify()
    assert "ContiguousOp" not in kinds(plan)
    assert sum(step.out.base.kind == STATE for step in plan.steps) == 8
    activation, weight = 32 * 64 * 4, 64 * 64 * 4
    assert plan.peak_live <= 8 * activation + weight + 3 * activation


def test_states_lie_apart_from_the_arena():
    w = weft.variable((64, 64), initial_value=1)
    x = weft.placeholder((64, 64))
    weft.assign(w, weft.tanh(w @ x) + w)
    plan = plan_of([weft.sum(w)], x)
    plan.verify()
    (state,) = (buffer for buffer in plan.buffers if buffer.kind == STATE)
    assert (state.owner, state.nbytes, state.offset) == (w, 64 * 64 * 4, 0)
    assert plan.arena_size == 64 * 64 * 4, "one product, and neither the old nor the new state"


def test_a_long_chain_is_scheduled_without_recursion():
    results, x = deep(4_000, width=2, batch=2)
    plan = make_plan(weft.capture(results, [x]), target())
    assert len(plan.steps) > 25_000
    assert plan.peak_live <= plan.peak_as_written


def perceptron(batch: int, widths: tuple[int, ...]):
    """Return the results of a step of training, and an input."""
    x = h = weft.placeholder((batch, widths[0]))
    for inputs, units in pairwise(widths):
        h = weft.relu(weft.matmul(h, weft.variable((inputs, units))) + weft.variable((units,)))
    loss = weft.mean(weft.square(h))
    return [loss, weft.sgd(*weft.data_parallel(loss, bucket_bytes=2048), learning_rate=0.1)], x


@pytest.mark.parametrize("batch", [2, 16, 300])
@pytest.mark.parametrize("widths", [(16,) * 5, (256, 64, 16), (16, 64, 256), (8, 90, 8, 90, 8)])
def test_what_no_reduction_waits_for_overlaps_with_it(batch: int, widths: tuple[int, ...]):
    with imitated_ranks():
        flow = flow_of(*perceptron(batch, widths))
        for each in schedules(flow):
            assert is_in_order(flow, each.order)
            starts = [n for n in each.order if isinstance(flow.ops[n], weft.StartCollectiveOp)]
            assert len(starts) > 1
            stack, needed = [], set()
            for number, start in enumerate(starts):
                stack.append(start)
                while stack:
                    node = stack.pop()
                    needed.add(node)
                    stack += flow.before[node]
                before = each.order[: each.order.index(start) + 1]
                assert needed.issuperset(before), f"start {number}"
            kinds = [type(flow.ops[node]) for node in each.order]
            first_wait = kinds.index(weft.WaitCollectiveOp)
            assert not {weft.StartCollectiveOp, weft.MatmulOp} & set(kinds[first_wait:])
