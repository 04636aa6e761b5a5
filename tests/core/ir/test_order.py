"""Order: ops read and write states as they were built, sequences in the order of their members."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from weft.errors import StateError
from weft.support.ordered_set import OrderedSet


def test_a_sequence_keeps_its_order_whatever_was_built_first(transformer: weft.Transformer):
    w = weft.variable((), initial_value=3)
    first = weft.assign(w, 10)
    second = weft.assign(w, w * 2)
    assert transformer.computation(weft.sequential([second, first, w]))() == 10
    assert transformer.get_value(w) == 10


def test_a_sequence_in_the_order_of_building(transformer: weft.Transformer):
    w = weft.variable((), initial_value=3)
    first = weft.assign(w, 10)
    second = weft.assign(w, w * 2)
    assert transformer.computation(weft.sequential([first, second, w]))() == 20


def test_sequences_that_contradict_each_other_are_refused(transformer: weft.Transformer):
    w = weft.variable((), initial_value=3)
    with weft.saved_user_deps():
        first = weft.assign(w, w + 1)
    with weft.saved_user_deps():
        second = weft.assign(w, w * 2)
    one, other = weft.sequential([first, second, w]), weft.sequential([second, first, w])
    with pytest.raises(weft.errors.StateError, match="the order is open"):
        transformer.computation([one, other])


def test_a_long_sequence_is_captured_in_linear_time(transformer: weft.Transformer):
    w = weft.variable((), initial_value=0)
    writes = []
    for _ in range(3000):
        with weft.saved_user_deps():
            writes.append(weft.assign(w, w + 1))
    assert transformer.computation(weft.sequential([*writes, w]))() == 3000


def test_an_effect_that_is_asked_for_twice_runs_once(
    transformer: weft.Transformer, capsys: pytest.CaptureFixture[str]
):
    x = weft.placeholder(())
    shown = weft.print_op(x, "P")
    both = transformer.computation([weft.sequential([shown, x + 1]), shown], x)
    assert [value.item() for value in both(3)] == [4, 3]
    assert capsys.readouterr().out == "P 3.0\n"


def test_a_gradient_through_a_sequence_that_rereads_is_refused():
    x = weft.variable((), initial_value=0.0)
    y = weft.exp(x)
    with weft.saved_user_deps():
        write = weft.assign(x, 5.0)
    with pytest.raises(weft.errors.GradientError, match="build it after the write"):
        weft.deriv(weft.sequential([write, y]), x)


def test_a_gradient_through_a_sequence_that_updates_first(transformer: weft.Transformer):
    x = weft.variable((), initial_value=2.0)
    with weft.saved_user_deps():
        write = weft.assign(x, 5.0)
        y = weft.square(x)
    result = weft.sequential([write, y])
    value, gradient = transformer.computation([result, weft.deriv(result, x)])()
    assert (value, gradient) == (25, 10)


class Refusing(weft.ops.PrintOp):
    """Raises instead of printing, as printing into a closed pipe does."""

    def perform(self, *values: Any):
        raise BrokenPipeError("nobody reads this")


def test_an_effect_that_raises_leaves_states_as_they_were():
    w = weft.variable((4,), initial_value=1.0)
    weft.assign(w, w + 1)
    shown = Refusing(weft.sum(w), prefix=None)
    transformer = weft.make_transformer("numpy")
    with pytest.raises(BrokenPipeError) as caught:
        transformer.computation([w, shown])()
    assert any("test_order.py" in note for note in caught.value.__notes__)
    np.testing.assert_array_equal(transformer.get_value(w), np.ones(4))


@pytest.mark.parametrize("value", [lambda w: w, lambda w: w + 0, lambda w: w * 1])
def test_a_state_may_be_assigned_its_own_value(
    transformer: weft.Transformer, value: Callable[..., Any]
):
    w = weft.variable((), initial_value=3)
    weft.assign(w, value(w))
    assert transformer.computation(w)() == 3


COPIES = {
    "plainly": lambda state, value: weft.assign(state, value),
    "through a cast": lambda state, value: weft.assign(state, weft.cast(value, state.dtype)),
    "through a broadcast": lambda state, value: weft.assign(state, weft.broadcast(value, (2,))),
    "into all of it": lambda state, value: weft.set_item(state, slice(None), value),
    "in a group": lambda state, value: weft.doall([weft.assign(state, value)]),
    "in a sequence": lambda state, value: weft.sequential([weft.assign(state, value)]),
    "after a computation": lambda state, value: weft.assign(state, value * 2 + 1),
}
"""Writes of one state's value, or of what is computed of it, into the same state or another."""

_MEMBERS = st.tuples(st.sampled_from(list(COPIES)), st.integers(0, 2), st.integers(0, 2))


@given(st.lists(_MEMBERS, min_size=1, max_size=6), st.booleans())
def test_sequences_write_what_an_imperative_program_does(members: Any, is_read_before: Any):
    states = [weft.variable((2,), initial_value=[n, n + 10]) for n in range(3)]
    values = [np.array([n, n + 10.0]) for n in range(3)]
    before = states[0] + 0
    writes = []
    for how, target, source in members:
        writes.append(COPIES[how](states[target], states[source]))
        values[target] = values[source] * 2 + 1 if how == "after a computation" else values[source]
    region = weft.sequential([*writes, states[0]])
    transformer = weft.make_transformer("numpy", cache=False)
    wanted = [region, *states, *([before] if is_read_before else [])]
    got = transformer.computation(wanted)()
    np.testing.assert_array_equal(got[:4], [values[0], *values])
    if is_read_before:
        np.testing.assert_array_equal(got[4], [0, 10])


@pytest.mark.parametrize("copy", COPIES)
def test_a_sequence_may_write_a_state_to_itself(transformer: weft.Transformer, copy: str):
    w = weft.variable((2,), initial_value=[1, 2])
    got = transformer.computation(weft.sequential([COPIES[copy](w, w), w]))()
    assert got.tolist() == ([3, 5] if copy == "after a computation" else [1, 2])


def scalar_variable(value: float = 0) -> Any:
    return weft.variable((), initial_value=value)


def values(results: Any) -> list[float | None]:
    """Return scalar results as Python numbers; None stays None."""
    return [None if result is None else result.item() for result in results]


def test_an_op_built_after_an_assign_waits_for_it(transformer: weft.Transformer):
    x = weft.placeholder((), initial_value=0)
    a = weft.assign(x, 5)
    z = x + 1
    assert type(z.other_deps) is OrderedSet
    assert repr(list(z.other_deps)).startswith("[<AssignOp(AssignOp_")
    assert list(z.other_deps) == [a]
    assert transformer.computation(z)().item() == 6


def test_other_deps_is_a_fresh_set_each_time():
    x = weft.placeholder((), initial_value=0)
    a = weft.assign(x, 5)
    z = x + 1
    assert z.other_deps.pop() is a
    assert list(z.other_deps) == [a]


def test_an_op_built_before_an_assign_does_not_wait_for_it(transformer: weft.Transformer):
    x = weft.placeholder((), initial_value=0)
    z0 = x + 1
    weft.assign(x, 5)
    assert len(z0.other_deps) == 0
    assert transformer.computation(z0)().item() == 1


def test_ops_built_before_and_after_a_write_read_their_own_version(transformer: weft.Transformer):
    x = weft.placeholder((), initial_value=0)
    z0 = x + 1
    weft.assign(x, 5)
    z = x + 1
    assert values(transformer.computation([z0, z])()) == [1, 6]
    assert values(transformer.computation([z, z0])()) == [6, 6]


def test_a_plain_assign_runs_with_every_call(transformer: weft.Transformer):
    w = scalar_variable()
    update = weft.assign(w, w + 1)
    assert isinstance(update, weft.Op)
    w_comp = transformer.computation(w)
    assert values([w_comp(), w_comp(), w_comp()]) == [1, 2, 3]


def test_a_guarded_assign_does_not_run_by_itself(transformer: weft.Transformer):
    w = scalar_variable()
    with weft.Op.saved_user_deps():
        weft.assign(w, w + 1)
    w_comp = transformer.computation(w)
    assert values([w_comp(), w_comp(), w_comp()]) == [0, 0, 0]


@pytest.mark.parametrize("w_first", [True, False])
def test_a_guarded_assign_runs_if_the_computation_names_it(
    transformer: weft.Transformer, w_first: bool
):
    w = scalar_variable()
    with weft.Op.saved_user_deps():
        update_op = weft.assign(w, w + 1)
    w_comp = transformer.computation([w, update_op] if w_first else [update_op, w])
    expected = [[1, None], [2, None], [3, None]]
    got = [values(w_comp()) for _ in range(3)]
    assert got == (expected if w_first else [pair[::-1] for pair in expected])


def test_a_computation_made_before_the_assign_ignores_it(transformer: weft.Transformer):
    w = scalar_variable()
    w_comp = transformer.computation(w)
    weft.assign(w, w + 1)
    assert values([w_comp(), w_comp(), w_comp()]) == [0, 0, 0]


def test_assigns_are_a_chain_in_the_order_of_creation(transformer: weft.Transformer):
    w = scalar_variable(1)
    a = weft.assign(w, w * 2)
    b = weft.assign(w, w + 3)
    z = w * 10
    assert list(z.other_deps) == [b]
    assert list(b.other_deps) == [a]
    assert transformer.computation(z)().item() == 50


def test_pruning_moves_no_dependency_onto_the_state(transformer: weft.Transformer):
    w = scalar_variable()
    weft.assign(w, w + 1)
    assert transformer.computation(w + 0 * w)().item() == 1


def test_set_item_writes_and_an_expression_does_not(transformer: weft.Transformer):
    x = weft.placeholder((3,), initial_value=[1, 2, 3])
    stored = x
    x = x + x
    assert x is not stored
    assert transformer.computation(x)().tolist() == [2, 4, 6]
    assert transformer.get_value(stored).tolist() == [1, 2, 3]
    with weft.saved_user_deps():
        double = weft.SetItem(stored, stored + stored)
    assert transformer.computation(double)() is None
    assert transformer.get_value(stored).tolist() == [2, 4, 6]


def test_a_state_that_set_item_writes_may_be_a_result(transformer: weft.Transformer):
    p = weft.placeholder((2,), initial_value=[1, 2])
    double = weft.SetItem(p, p + p)
    assert transformer.computation([double, p])()[1].tolist() == [2, 4]


def test_augmented_addition_makes_a_new_op_and_writes_nothing(transformer: weft.Transformer):
    w = kept = scalar_variable(1)
    w += 1
    assert w is not kept
    assert len((kept + 1).other_deps) == 0
    assert values(transformer.computation([kept, w])()) == [1, 2]


def test_a_state_is_its_final_value_and_an_expression_what_it_read(transformer: weft.Transformer):
    w = scalar_variable()
    with weft.saved_user_deps():
        u = weft.assign(w, w + 1)
    assert values(transformer.computation([w, w + 0, u])()) == [1, 0, None]


@pytest.mark.parametrize("passes", [None, ("decompose",)], ids=["all passes", "no pruning"])
def test_a_state_is_its_final_value_with_and_without_pruning(passes: tuple[str, ...] | None):
    transformer = weft.make_transformer("numpy", passes=passes)
    w = scalar_variable()
    with weft.saved_user_deps():
        u = weft.assign(w, w + 1)
    assert values(transformer.computation([w, w + 0, u])()) == [1, 0, None]


def test_interleaved_updates_both_see_the_old_values(transformer: weft.Transformer):
    p, q = scalar_variable(2), scalar_variable(3)
    loss = p * q
    weft.assign(p, p - weft.deriv(loss, p))
    weft.assign(q, q - weft.deriv(loss, q))
    assert values(transformer.computation([p, q])()) == [-1, 1]


def test_two_writes_from_one_version_are_refused(transformer: weft.Transformer):
    w = scalar_variable()
    first = weft.assign(w, w + 1)
    with weft.saved_user_deps():
        second = weft.assign(w, w * 2)
    with pytest.raises(StateError) as caught:
        transformer.computation([w, second])
    assert first.file_info in str(caught.value)
    assert second.file_info in str(caught.value)
    assert first.lineno != second.lineno
    assert transformer.computation(w)().item() == 1


def test_sequential_reads_again_inside_and_changes_nothing_outside(transformer: weft.Transformer):
    w = scalar_variable(1)
    with weft.saved_user_deps():
        x1 = w + 0.5
        write = weft.assign(w, 8)
        inside = weft.sequential([write, x1])
    assert len(x1.other_deps) == 0
    assert values(transformer.computation([x1])()) == [1.5]
    assert transformer.computation(inside)().item() == 8.5
    assert transformer.get_value(w).item() == 8


def test_value_of_keeps_the_value_from_before_a_write(transformer: weft.Transformer):
    w = scalar_variable(1)
    before = weft.value_of(w)
    weft.assign(w, w + 1)
    assert values(transformer.computation([before, w])()) == [1, 2]


def test_an_unlisted_placeholder_holds_what_was_assigned_last(transformer: weft.Transformer):
    x = weft.placeholder((), initial_value=7)
    plus = transformer.computation(x + 1)
    with_parameter = transformer.computation(x + 1, x)
    assert plus().item() == 8
    assert with_parameter(100).item() == 101
    assert plus().item() == 8
    transformer.set_value(x, 1)
    assert plus().item() == 2


def test_states_begin_with_a_number(transformer: weft.Transformer):
    w = weft.variable((2, 3), initial_value=0)
    assert transformer.computation(w)().tolist() == [[0, 0, 0], [0, 0, 0]]
