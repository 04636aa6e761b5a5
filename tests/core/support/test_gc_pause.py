"""Pauses of the garbage collector: it is on afterwards, and does not walk large graphs thrice."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from weft.support import gc_pause
from weft.support.gc_pause import FEW, MANY, gc_paused


@pytest.fixture(autouse=True)
def _after_a_full_collection() -> Iterator[None]:
    gc.collect()
    yield
    gc.unfreeze()
    gc.enable()


def made_in_a_pause(count: int) -> list[Any]:
    with gc_paused():
        return [[] for _ in range(count)]


def is_old(thing: Any) -> bool:
    return any(each is thing for each in gc.get_objects(generation=2))


@contextmanager
def frozen_by_the_user() -> Iterator[None]:
    gc.freeze()
    yield
    gc.unfreeze()


def test_the_collector_is_off_in_the_outermost_pause_only():
    with gc_paused():
        with gc_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    with gc_paused():
        pass
    assert not gc.isenabled()


def test_a_fork_ends_the_pauses_of_other_threads():
    with gc_paused():
        gc_pause._forget()
        assert gc.isenabled()
    assert gc.isenabled()
    with gc_paused():
        assert not gc.isenabled()
    assert gc.isenabled()


@pytest.mark.parametrize(("count", "moved"), [(MANY // 2, False), (2 * MANY, True)])
def test_many_new_objects_are_old_at_once(count: int, moved: bool):
    things = made_in_a_pause(count)
    assert is_old(things[0]) is moved
    assert gc.get_freeze_count() < FEW


def test_without_a_full_collection_it_takes_more_and_more_objects():
    assert is_old(made_in_a_pause(2 * MANY)[0])
    assert not is_old(made_in_a_pause(2 * MANY)[0])
    assert is_old(made_in_a_pause(6 * MANY)[0])
    gc.collect()
    assert is_old(made_in_a_pause(2 * MANY)[0])


def test_what_the_user_froze_stays_frozen():
    with frozen_by_the_user():
        frozen = gc.get_freeze_count()
        made_in_a_pause(2 * MANY)
        assert gc.get_freeze_count() == frozen > 0
