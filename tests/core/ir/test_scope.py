"""Effect scopes and the other parts of the context in which ops are built."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import weft
from weft.ir import scope
from weft.support.ordered_set import OrderedSet


def test_a_scope_is_forgotten_with_its_last_holder():
    w = weft.variable(())
    with weft.saved_user_deps() as token:
        write = weft.assign(w, 1)
    gone = weakref.ref(write)
    assert w.last_write(token) is write
    del write
    assert gone() is not None
    del token
    gc.collect()
    assert gone() is None


def test_nested_guards_are_apart():
    w = weft.variable(())
    with weft.saved_user_deps():
        outer = weft.assign(w, 1)
        with weft.saved_user_deps():
            hidden = w + 0.5
            inner = weft.assign(w, 2)
            assert list((w + 1).other_deps) == [inner]
        assert list((w + 1).other_deps) == [outer]
    assert len(hidden.other_deps) == 0


def test_tasks_have_guards_of_their_own():
    w = weft.variable(())

    async def guarded(inside: asyncio.Event, leave: asyncio.Event):
        with weft.saved_user_deps():
            weft.assign(w, 1)
            inside.set()
            await leave.wait()

    async def plain(inside: asyncio.Event, leave: asyncio.Event):
        await inside.wait()
        found = len((w + 1).other_deps)
        leave.set()
        return found

    async def both():
        inside, leave = asyncio.Event(), asyncio.Event()
        return await asyncio.gather(guarded(inside, leave), plain(inside, leave))

    assert asyncio.run(both()) == [None, 0]


@pytest.mark.parametrize(
    "context",
    [
        weft.saved_user_deps,
        scope.captured_ops,
        scope.all_ops,
        lambda: weft.metadata(a=1),
        lambda: scope.located(("f", 1)),
        lambda: scope.replacing(weft.constant(0)),
    ],
    ids=["guard", "captured_ops", "all_ops", "metadata", "located", "replacing"],
)
def test_an_exception_restores_the_context(context: Callable[..., Any]):
    before = scope.current.get()

    def fails():
        with context():
            assert scope.current.get() != before
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert scope.current.get() is before


def test_an_op_that_cannot_be_built_is_recorded_nowhere():
    x, y = weft.placeholder((2,)), weft.placeholder((3,))
    w = weft.variable((2,))
    with weft.Op.captured_ops() as made:
        with pytest.raises(weft.errors.AxesError):
            x + y
        with pytest.raises(weft.errors.AxesError):
            weft.ir.storage.AssignOp(w, y)
    assert made == []
    assert len((w + 1).other_deps) == 0


def test_recorders_of_all_ops_see_what_captured_ops_hides():
    with weft.Op.captured_ops() as hidden_from, weft.Op.all_ops() as every:
        first = weft.placeholder(())
        with weft.Op.captured_ops() as inner:
            second = weft.placeholder(())
            with scope.replacing(first), weft.Op.all_ops() as innermost:
                third = weft.placeholder(())
            with weft.Op.captured_ops() as deepest:
                fourth = weft.placeholder(())
    assert every == [first, second, third, fourth]
    assert (inner, innermost, deepest) == ([second, third], [third], [fourth])
    assert hidden_from == [first]


def test_adjoints_read_the_states_of_their_op_as_it_did_and_have_its_location():
    v, w = weft.variable(()), weft.variable(())
    y = v * 2
    weft.assign(v, 1)
    second = weft.assign(w, 1)
    with scope.differentiating(y):
        pinned, free = v + 1, w + 1
    assert pinned.location == free.location == y.location
    assert len(pinned.other_deps) == 0
    assert list(free.other_deps) == [second]


def test_an_ordered_set_keeps_the_order_of_insertion():
    found = OrderedSet([3, 1, 3, 2])
    assert list(found) == [3, 1, 2]
    found.add(0)
    found.discard(1)
    found.discard(99)
    found.update([5, 3])
    assert list(found) == [3, 2, 0, 5]
    assert found.pop() == 3
    assert found == {2, 0, 5}
    assert repr(found) == "OrderedSet([2, 0, 5])"
    assert found | [7] == OrderedSet([2, 0, 5, 7])
    assert 2 in found
    assert len(found) == 3


def test_a_computation_made_inside_the_guard_includes_the_update(transformer: weft.Transformer):
    w = weft.variable((), initial_value=0)
    with weft.saved_user_deps():
        weft.assign(w, w + 1)
        c1 = transformer.computation(w)
    c2 = transformer.computation(w)
    assert [c().item() for c in (c2, c1, c2, c1, c2)] == [0, 1, 1, 2, 2]


def test_a_guard_can_be_entered_again(transformer: weft.Transformer):
    w = weft.variable((), initial_value=1)
    with weft.saved_user_deps() as m:
        write = weft.assign(w, w * 5)
    with weft.saved_user_deps(m):
        inside = w + 10
    outside = w + 10
    assert list(inside.other_deps) == [write]
    assert len(outside.other_deps) == 0
    assert transformer.computation(inside)().item() == 15


def test_a_fresh_guard_hides_the_writes_outside(transformer: weft.Transformer):
    w = weft.variable((), initial_value=0)
    weft.assign(w, w + 5)
    with weft.saved_user_deps():
        z = w + 10
    assert len(z.other_deps) == 0
    assert transformer.computation(z)().item() == 10


def test_an_exception_inside_the_guard_restores_the_scope_outside():
    w = weft.variable((), initial_value=0)
    outer = weft.assign(w, 1)

    def fails():
        with weft.saved_user_deps():
            weft.assign(w, 2)
            raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        fails()
    assert list((w + 1).other_deps) == [outer]


def test_a_guard_is_private_to_its_thread():
    w = weft.variable((), initial_value=0)
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


def test_the_root_scope_is_shared_by_threads(transformer: weft.Transformer):
    w = weft.variable((), initial_value=0)
    weft.assign(w, w + 1)
    with ThreadPoolExecutor(1) as pool:
        w_comp = pool.submit(transformer.computation, w).result()
    assert [w_comp().item() for _ in range(3)] == [1, 2, 3]


def test_an_op_made_in_a_guard_may_be_used_outside_it(transformer: weft.Transformer):
    w = weft.variable((), initial_value=1)
    with weft.saved_user_deps():
        weft.assign(w, w + 10)
        z = w * 2
    both = w + z
    assert transformer.computation(both)().item() == 1 + 22
    assert transformer.get_value(w).item() == 11
