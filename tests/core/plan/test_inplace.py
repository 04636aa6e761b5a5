"""What writes over an old value does so wherever all readers of that can come first."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
import state_programs
from hypothesis import HealthCheck, settings
from hypothesis import given as drawing
from hypothesis import strategies as st
from planned import UNFUSED, computation, graph_of
from state_programs import COLUMNS, ROWS, STATE_BYTES, WHOLE_WRITES, WRITES

import weft
from weft.plan.inplace import InPlaceAnalysis, topological_order
from weft.plan.plan import RESULT, STATE

thorough = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def copies(plan: Any) -> list[str]:
    """Return the kind of memory that each copy of a whole state is in."""
    is_copy = {"ContiguousOp", *WRITERS}
    return [
        step.out.base.kind
        for step in plan.steps
        if type(step.op).__name__ in is_copy
        and step.out.nbytes == STATE_BYTES
        and step.args[0].base is not step.out.base
    ]


WRITERS = ("DynamicUpdateSliceOp", "UpdateSliceOp", "ScatterOp")


class Parts:
    """A state, and what the cases do with it."""

    def __init__(self) -> None:
        self.state = weft.persistent_tensor((ROWS, COLUMNS), initial_value=0)
        self.row = weft.placeholder((1, COLUMNS))
        self.at = weft.placeholder((), dtype="int64")
        self.parameters = self.row, self.at

    def write(self, row: Any = None) -> Any:
        row = self.row if row is None else row
        weft.assign(self.state, weft.dynamic_update_slice(self.state, row, (self.at, 0)))
        return weft.value_of(self.state)

    def old_row_beside_new(self) -> Any:
        old = weft.relu(self.state[:1])
        return old + self.write()[:1]

    def old_row_as_it_is_beside_new(self) -> Any:
        old = self.state[:1]
        return old + self.write()[:1]

    def old_row_read_after_the_write(self) -> Any:
        old = weft.value_of(self.state)
        new = self.write()
        return [new[:1], weft.relu(old[1:2])]

    def old_sum_read_after_the_write(self) -> Any:
        old = weft.value_of(self.state)
        new = self.write()
        return [new[:1], weft.sum(old, 0)]

    def row_of_itself(self) -> Any:
        return weft.relu(self.write(self.state[5:6])[5:6])

    def rows_of_itself_twice(self) -> Any:
        self.write(self.state[5:6])
        return self.write(self.state[3:4] * 2)[5:6]

    def reads_between_writes(self) -> Any:
        seen = []
        for number in range(3):
            seen.append(weft.relu(self.state[number : number + 1]))
            self.write(self.row * number)
        total = seen[0] + seen[1] + seen[2]
        return total + self.state[:1]

    def a_fixed_slice(self) -> Any:
        old = weft.relu(self.state[:1])
        weft.assign(self.state, weft.update_slice(self.state, (slice(2, 3),), self.row))
        return old + self.state[2:3]

    def a_cache(self) -> Any:
        old = weft.relu(self.state[:1])
        return old + weft.update_cache(self.state, self.row, self.at)[:1]

    def a_check_built_later(self) -> Any:
        new = self.write()
        return [new[:1], weft.take(self.row[0], self.at)]

    def large_values_elsewhere(self) -> Any:
        old = weft.value_of(self.state)
        new = self.write()
        large = weft.tanh(weft.broadcast(self.row[0], (100 * ROWS, COLUMNS)))
        return [weft.sum(weft.exp(large[::-1]) * large), new[:1], weft.relu(old[:1])]


IN_PLACE = [name for name in vars(Parts) if not name.startswith("_") and name != "write"]


@pytest.mark.parametrize("passes", [UNFUSED, None], ids=["plain", "default"])
@pytest.mark.parametrize("name", IN_PLACE)
def test_a_part_of_a_state_is_written_in_place(name: str, passes: Any) -> None:
    parts = Parts()
    results = getattr(parts, name)()
    plan = weft.make_transformer("numpy", passes=passes).computation(results, *parts.parameters)
    plan.plan.verify()
    assert copies(plan.plan) == []
    if name != "large_values_elsewhere":
        assert plan.plan.arena_size < STATE_BYTES / 4


@pytest.mark.parametrize("passes", [UNFUSED, None], ids=["plain", "default"])
def test_a_state_that_is_returned_is_copied_once(passes: Any) -> None:
    parts = Parts()
    new = weft.reshape(parts.write(), (COLUMNS, ROWS))
    call = weft.make_transformer("numpy", passes=passes).computation(new, *parts.parameters)
    assert copies(call.plan) == [RESULT]
    expected = np.zeros((ROWS, COLUMNS), np.float32)
    for at in (3, 5):
        expected[at] = at
        found = call(np.full((1, COLUMNS), at), at)
        np.testing.assert_array_equal(found, expected.reshape(COLUMNS, ROWS))
        found[:] = 9  # the caller's own


def test_each_version_of_a_state_that_is_returned_is_copied_once() -> None:
    parts = Parts()
    versions = [parts.write(parts.row * number) for number in range(3)]
    call = computation([*versions, versions[1]], *parts.parameters)
    assert copies(call.plan) == [RESULT] * 4
    found = call(np.ones((1, COLUMNS)), 2)
    assert [value[2, 0] for value in found] == [0, 1, 2, 1]
    assert not any(np.shares_memory(*pair) for pair in combinations(found, 2))


def test_a_value_for_two_states_lies_in_the_one_that_it_changes() -> None:
    parts = Parts()
    other = weft.persistent_tensor((ROWS, COLUMNS))
    weft.value_of(other)
    weft.assign(other, parts.write())
    call = computation([other[:1], parts.state[:1]], *parts.parameters)
    assert copies(call.plan) == [STATE]
    call(np.ones((1, COLUMNS)), 2)
    for state in (other, parts.state):
        assert call.transformer.get_value(state)[:, 0].tolist() == [0, 0, 1, *[0] * (ROWS - 3)]


def test_a_whole_update_that_repeats_a_row_of_the_state_is_made_in_place() -> None:
    parts = Parts()
    row = weft.broadcast(parts.state[0], (ROWS, COLUMNS))
    weft.assign(parts.state, parts.state * 0.5 + row)
    weft.assign(parts.state, parts.state + 1)
    call = weft.make_transformer("numpy").computation(parts.state[:1], *parts.parameters)
    assert copies(call.plan) == []
    assert call.plan.arena_size < STATE_BYTES / 4
    for expected in (1, 2.5):
        assert call(np.ones((1, COLUMNS)), 0)[0, 0] == expected


@pytest.mark.parametrize("passes", [UNFUSED, None], ids=["plain", "default"])
def test_a_new_value_waits_for_what_may_end_the_call(passes: Any) -> None:
    parts = Parts()
    write = weft.assign(parts.state, weft.tanh(weft.broadcast(parts.row[0], (ROWS, COLUMNS))))
    checked = weft.take(weft.exp(parts.row[0]), parts.at)
    transformer = weft.make_transformer("numpy", passes=passes)
    call = transformer.computation([weft.doall([write]), checked], *parts.parameters)
    assert copies(call.plan) == []
    assert call.plan.arena_size < STATE_BYTES / 4


@pytest.mark.parametrize("passes", [UNFUSED, None], ids=["plain", "default"])
def test_a_reader_of_all_of_the_old_value_that_needs_the_new_one_makes_a_copy(passes: Any) -> None:
    parts = Parts()
    old = weft.value_of(parts.state)
    new = parts.write()
    both = weft.sum(old * weft.broadcast(new[0], (ROWS, COLUMNS)), (0, 1))
    call = weft.make_transformer("numpy", passes=passes).computation(both, *parts.parameters)
    assert STATE in copies(call.plan)
    assert [call(np.full((1, COLUMNS), value), 0).item() for value in (1, 2, 3)] == [
        0, 2 * COLUMNS, 6 * COLUMNS,
    ]  # fmt: skip


def test_an_earlier_value_of_the_arena_is_written_over_after_its_readers() -> None:
    x, at = weft.placeholder((ROWS, COLUMNS)), weft.placeholder((), dtype="int64")
    first = weft.tanh(x)
    second = weft.dynamic_update_slice(first, first[5:6], (at, 0))
    results = [weft.sum(weft.cumsum(second, 0)), first[:1] + second[:1]]
    for passes in (UNFUSED, None):
        call = weft.make_transformer("numpy", passes=passes).computation(results, x, at)
        (write,) = (s for s in call.plan.steps if type(s.op).__name__ in WRITERS)
        assert write.args[0].offset == write.out.offset
        value = np.linspace(-1, 1, ROWS * COLUMNS, dtype="f4").reshape(ROWS, COLUMNS)
        np.testing.assert_allclose(call(value, 0)[1][0], np.tanh(value[[0, 5]]).sum(0), rtol=1e-5)


def test_what_an_op_may_write_over_says_who_comes_first() -> None:
    parts = Parts()
    graph = graph_of(parts.old_row_read_after_the_write(), *parts.parameters)
    found = InPlaceAnalysis(graph)
    (writer,) = (op for op in graph.ops if type(op).__name__ in WRITERS)
    (reader,) = (op for op in graph.ops if type(op).__name__ == "ReluOp")
    assert found.first == {writer: [reader]}
    assert found.states == {writer: parts.state}
    order = list(map(id, found.order))
    assert order.index(id(reader)) < order.index(id(writer))
    assert sorted(found.order, key=id) == sorted(graph.ops, key=id)


def test_a_graph_without_such_ops_is_left_in_its_order() -> None:
    x = weft.placeholder((4,))
    graph = graph_of(weft.tanh(x) * 2, x)
    found = InPlaceAnalysis(graph)
    assert found.order is graph.ops
    assert not any((found.first, found.copied, found.states))


@st.composite
def orders(draw: Any) -> tuple[list[list[int]], dict[int, list[int]]]:
    count = draw(st.integers(1, 8))
    before = [
        draw(st.lists(st.integers(0, n - 1), max_size=2, unique=True)) if n else []
        for n in range(count)
    ]
    node = st.integers(0, count - 1)
    pairs = draw(st.lists(st.tuples(node, node), max_size=6))
    soft_edges: dict[int, list[int]] = {}
    for one, other in pairs:
        if one != other:
            soft_edges.setdefault(one, []).append(other)
    return before, {node: sorted({*nodes}) for node, nodes in soft_edges.items()}


def is_acyclic(edges: list[list[int]]) -> bool:
    left = dict(enumerate(edges))
    while free := [node for node, others in left.items() if not {*others} & left.keys()]:
        for node in free:
            del left[node]
    return not left


@settings(max_examples=300, deadline=None)
@drawing(drawn=orders())
def test_an_order_keeps_what_it_must_and_all_hopes_where_it_can(drawn: Any) -> None:
    before, soft_edges = drawn
    order = topological_order(before, soft_edges)
    places = {node: place for place, node in enumerate(order)}
    assert sorted(order) == list(range(len(before)))
    assert all(places[each] < places[n] for n, others in enumerate(before) for each in others)
    met = all(places[each] < places[node] for node, nodes in soft_edges.items() for each in nodes)
    wanted = [[*others, *soft_edges.get(node, ())] for node, others in enumerate(before)]
    assert met == is_acyclic(wanted)


def computed(program: Any, on: state_programs.Weft, backend: str, **options: Any) -> Any:
    """Return the computation of a program, its plan verified."""
    with weft.saved_user_deps():
        results = state_programs.run(program, on)
        call = weft.make_transformer(backend, **options).computation(results, *on.parameters)
    call.plan.verify()
    return call


def check_values(program: Any, on: state_programs.Weft, call: Any) -> None:
    """Compare three calls with NumPy, the states included."""
    random = np.random.default_rng(0)
    states = [random.uniform(-1, 1, (ROWS, COLUMNS)).astype("f4") for _ in on.states]
    for state, value in zip(on.states, states, strict=True):
        call.transformer.set_value(state, value)
    for _ in range(3):
        given = state_programs.given(random)
        wanted = state_programs.run(program, state_programs.Numpy(states, *given))
        for found, expected in zip(call(*given), wanted, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        for state, expected in zip(on.states, states, strict=True):
            found = call.transformer.get_value(state)
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@thorough
@drawing(program=state_programs.steps((*WRITES, *WHOLE_WRITES)))
def test_random_programs_of_reads_and_writes_equal_numpy(program: Any) -> None:
    on = state_programs.Weft()
    check_values(program, on, computed(program, on, "numpy"))


@settings(thorough, max_examples=10)
@drawing(program=state_programs.steps((*WRITES, *WHOLE_WRITES)))
def test_random_programs_on_devices_equal_numpy(backend: str, program: Any) -> None:
    on = state_programs.Weft()
    check_values(program, on, computed(program, on, backend))


@pytest.mark.parametrize("options", [{}, {"passes": UNFUSED}], ids=["default", "plain"])
@thorough
@drawing(program=state_programs.steps(("update", "cache", "put"), takes=False))
def test_no_state_is_copied_where_readers_of_old_values_can_come_first(
    options: Any, program: Any
) -> None:
    on = state_programs.Weft()
    with weft.saved_user_deps():
        graph = graph_of(state_programs.run(program, on), *on.parameters)
    if state_programs.can_write_in_place(graph):
        again = state_programs.Weft()
        plan = computed(program, again, "numpy", **options).plan
        assert plan.arena_size < STATE_BYTES
        assert {*copies(plan)} <= {RESULT}
