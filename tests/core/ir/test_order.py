"""Order: sequences run their members in order, effects run once, and states survive errors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft


def test_a_sequence_keeps_its_order_whatever_was_built_first(transformer):
    w = weft.variable((), initial_value=3)
    first = weft.assign(w, 10)
    second = weft.assign(w, w * 2)
    assert transformer.computation(weft.sequential([second, first, w]))() == 10
    assert transformer.get_value(w) == 10


def test_a_sequence_in_the_order_of_building(transformer):
    w = weft.variable((), initial_value=3)
    first = weft.assign(w, 10)
    second = weft.assign(w, w * 2)
    assert transformer.computation(weft.sequential([first, second, w]))() == 20


def test_sequences_that_contradict_each_other_are_refused(transformer):
    w = weft.variable((), initial_value=3)
    with weft.saved_user_deps():
        first = weft.assign(w, w + 1)
    with weft.saved_user_deps():
        second = weft.assign(w, w * 2)
    one, other = weft.sequential([first, second, w]), weft.sequential([second, first, w])
    with pytest.raises(weft.errors.StateError, match="the order is open"):
        transformer.computation([one, other])


def test_a_long_sequence_is_captured_in_linear_time(transformer):
    w = weft.variable((), initial_value=0)
    writes = []
    for _ in range(3000):
        with weft.saved_user_deps():
            writes.append(weft.assign(w, w + 1))
    assert transformer.computation(weft.sequential([*writes, w]))() == 3000


def test_an_effect_that_is_asked_for_twice_runs_once(transformer, capsys):
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


def test_a_gradient_through_a_sequence_that_updates_first(transformer):
    x = weft.variable((), initial_value=2.0)
    with weft.saved_user_deps():
        write = weft.assign(x, 5.0)
        y = weft.square(x)
    result = weft.sequential([write, y])
    value, gradient = transformer.computation([result, weft.deriv(result, x)])()
    assert (value, gradient) == (25, 10)


class Refusing(weft.ops.PrintOp):
    """Raises instead of printing, as printing into a closed pipe does."""

    def perform(self, *values):
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
def test_a_state_may_be_assigned_its_own_value(transformer, value):
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
def test_sequences_write_what_an_imperative_program_does(members, is_read_before):
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
def test_a_sequence_may_write_a_state_to_itself(transformer, copy):
    w = weft.variable((2,), initial_value=[1, 2])
    got = transformer.computation(weft.sequential([COPIES[copy](w, w), w]))()
    assert got.tolist() == ([3, 5] if copy == "after a computation" else [1, 2])
