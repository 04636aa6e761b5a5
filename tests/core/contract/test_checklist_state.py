"""The rows of contract/graph.md, section 4, on state and the order of reads and writes."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import weft
from weft.errors import StateError
from weft.support.ordered_set import OrderedSet


def scalar_variable(value: float = 0) -> Any:
    return weft.variable((), initial_value=value)


def values(results: Any) -> list[float | None]:
    """Return scalar results as Python numbers; None stays None."""
    return [None if result is None else result.item() for result in results]


def test_c03_an_op_built_after_an_assign_waits_for_it(transformer):
    x = weft.placeholder((), initial_value=0)
    a = weft.assign(x, 5)
    z = x + 1
    assert isinstance(z.other_deps, OrderedSet)
    assert list(z.other_deps) == [a]
    assert transformer.computation(z)().item() == 6


def test_c03_other_deps_is_a_fresh_set_each_time():
    x = weft.placeholder((), initial_value=0)
    a = weft.assign(x, 5)
    z = x + 1
    assert z.other_deps.pop() is a
    assert list(z.other_deps) == [a]


def test_c04_an_op_built_before_the_assign_does_not(transformer):
    x = weft.placeholder((), initial_value=0)
    z0 = x + 1
    weft.assign(x, 5)
    assert len(z0.other_deps) == 0
    assert transformer.computation(z0)().item() == 1


def test_c05_both_in_one_computation_see_their_own_version(transformer):
    x = weft.placeholder((), initial_value=0)
    z0 = x + 1
    weft.assign(x, 5)
    z = x + 1
    assert values(transformer.computation([z0, z])()) == [1, 6]
    assert values(transformer.computation([z, z0])()) == [6, 6]


def test_c06_a_plain_assign_runs_with_every_call(transformer):
    w = scalar_variable()
    weft.assign(w, w + 1)
    w_comp = transformer.computation(w)
    assert values([w_comp(), w_comp(), w_comp()]) == [1, 2, 3]


def test_c07_a_guarded_assign_does_not(transformer):
    w = scalar_variable()
    with weft.Op.saved_user_deps():
        weft.assign(w, w + 1)
    w_comp = transformer.computation(w)
    assert values([w_comp(), w_comp(), w_comp()]) == [0, 0, 0]


@pytest.mark.parametrize("w_first", [True, False])
def test_c08_unless_the_computation_names_it(transformer, w_first):
    w = scalar_variable()
    with weft.Op.saved_user_deps():
        update_op = weft.assign(w, w + 1)
    w_comp = transformer.computation([w, update_op] if w_first else [update_op, w])
    expected = [[1, None], [2, None], [3, None]]
    got = [values(w_comp()) for _ in range(3)]
    assert got == (expected if w_first else [pair[::-1] for pair in expected])


def test_c09_a_computation_made_before_the_assign_ignores_it(transformer):
    w = scalar_variable()
    w_comp = transformer.computation(w)
    weft.assign(w, w + 1)
    assert values([w_comp(), w_comp(), w_comp()]) == [0, 0, 0]


def test_c10_a_computation_made_inside_the_guard_includes_the_update(transformer):
    w = scalar_variable()
    with weft.saved_user_deps():
        weft.assign(w, w + 1)
        c1 = transformer.computation(w)
    c2 = transformer.computation(w)
    assert values(c() for c in (c2, c1, c2, c1, c2)) == [0, 1, 1, 2, 2]


def test_c11_a_guard_can_be_entered_again(transformer):
    w = scalar_variable(1)
    with weft.saved_user_deps() as m:
        write = weft.assign(w, w * 5)
    with weft.saved_user_deps(m):
        inside = w + 10
    outside = w + 10
    assert list(inside.other_deps) == [write]
    assert len(outside.other_deps) == 0
    assert transformer.computation(inside)().item() == 15


def test_c11_a_fresh_guard_hides_the_writes_outside(transformer):
    w = scalar_variable(0)
    weft.assign(w, w + 5)
    with weft.saved_user_deps():
        z = w + 10
    assert len(z.other_deps) == 0
    assert transformer.computation(z)().item() == 10


def test_c12_an_exception_inside_the_guard_restores_the_scope_outside():
    w = scalar_variable()
    outer = weft.assign(w, 1)

    def fails():
        with weft.saved_user_deps():
            weft.assign(w, 2)
            raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        fails()
    assert list((w + 1).other_deps) == [outer]


def test_c13_a_guard_is_private_to_its_thread():
    w = scalar_variable()
    entered, built = threading.Event(), threading.Event()

    def guarded() -> None:
        with weft.saved_user_deps():
            weft.assign(w, 1)
            entered.set()
            assert built.wait(10)

    with ThreadPoolExecutor(2) as pool:
        guard = pool.submit(guarded)
        assert entered.wait(10)
        reader = pool.submit(lambda: w + 1).result()
        built.set()
        guard.result()
    assert len(reader.other_deps) == 0
    assert len((w + 1).other_deps) == 0


def test_c14_assigns_are_a_chain_in_the_order_of_creation(transformer):
    w = scalar_variable(1)
    a = weft.assign(w, w * 2)
    b = weft.assign(w, w + 3)
    z = w * 10
    assert list(z.other_deps) == [b]
    assert list(b.other_deps) == [a]
    assert transformer.computation(z)().item() == 50


def test_c15_pruning_moves_no_dependency_onto_the_state(transformer):
    w = scalar_variable()
    weft.assign(w, w + 1)
    assert transformer.computation(w + 0 * w)().item() == 1


def test_c19_set_item_writes_and_an_expression_does_not(transformer):
    x = weft.placeholder((3,), initial_value=[1, 2, 3])
    stored = x
    x = x + x
    assert transformer.computation(x)().tolist() == [2, 4, 6]
    assert transformer.get_value(stored).tolist() == [1, 2, 3]
    with weft.saved_user_deps():
        double = weft.SetItem(stored, stored + stored)
    assert transformer.computation(double)() is None
    assert transformer.get_value(stored).tolist() == [2, 4, 6]


def test_c19_augmented_addition_makes_a_new_op_and_writes_nothing(transformer):
    w = kept = scalar_variable(1)
    w += 1
    assert w is not kept
    assert len((kept + 1).other_deps) == 0
    assert values(transformer.computation([kept, w])()) == [1, 2]


def test_c41_a_state_is_its_final_value_and_an_expression_what_it_read(transformer):
    w = scalar_variable()
    with weft.saved_user_deps():
        u = weft.assign(w, w + 1)
    assert values(transformer.computation([w, w + 0, u])()) == [1, 0, None]


@pytest.mark.parametrize("passes", [None, ("decompose",)], ids=["all passes", "no pruning"])
def test_c41_with_and_without_passes(passes):
    transformer = weft.make_transformer("numpy", passes=passes)
    w = scalar_variable()
    with weft.saved_user_deps():
        u = weft.assign(w, w + 1)
    assert values(transformer.computation([w, w + 0, u])()) == [1, 0, None]


def test_c42_interleaved_updates_both_see_the_old_values(transformer):
    p, q = scalar_variable(2), scalar_variable(3)
    loss = p * q
    weft.assign(p, p - weft.deriv(loss, p))
    weft.assign(q, q - weft.deriv(loss, q))
    assert values(transformer.computation([p, q])()) == [-1, 1]


def test_c43_two_writes_from_one_version_are_refused(transformer):
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


def test_c44_the_root_scope_is_shared_by_threads(transformer):
    w = scalar_variable()
    weft.assign(w, w + 1)
    with ThreadPoolExecutor(1) as pool:
        w_comp = pool.submit(transformer.computation, w).result()
    assert values([w_comp(), w_comp(), w_comp()]) == [1, 2, 3]


def test_c45_an_op_made_in_a_guard_may_be_used_outside_it(transformer):
    w = scalar_variable(1)
    with weft.saved_user_deps():
        weft.assign(w, w + 10)
        z = w * 2
    both = w + z
    assert transformer.computation(both)().item() == 1 + 22
    assert transformer.get_value(w).item() == 11


def test_sequential_reads_again_inside_and_changes_nothing_outside(transformer):
    w = scalar_variable(1)
    with weft.saved_user_deps():
        x1 = w + 0.5
        write = weft.assign(w, 8)
        inside = weft.sequential([write, x1])
    assert len(x1.other_deps) == 0
    assert values(transformer.computation([x1])()) == [1.5]
    assert transformer.computation(inside)().item() == 8.5
    assert transformer.get_value(w).item() == 8


def test_value_of_keeps_the_value_from_before_a_write(transformer):
    w = scalar_variable(1)
    before = weft.value_of(w)
    weft.assign(w, w + 1)
    assert values(transformer.computation([before, w])()) == [1, 2]


def test_an_unlisted_placeholder_holds_what_was_assigned_last(transformer):
    x = weft.placeholder((), initial_value=7)
    plus = transformer.computation(x + 1)
    with_parameter = transformer.computation(x + 1, x)
    assert plus().item() == 8
    assert with_parameter(100).item() == 101
    assert plus().item() == 8
    transformer.set_value(x, 1)
    assert plus().item() == 2


def test_states_without_a_value_are_zeros(transformer):
    w = weft.variable((2, 3))
    assert transformer.computation(w)().tolist() == [[0, 0, 0], [0, 0, 0]]
