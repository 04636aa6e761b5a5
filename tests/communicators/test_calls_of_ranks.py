"""What ranks compare before a collective: the same on all that do the same, whatever else they do.

Each rank is imitated in turn, and what it would compare is written down.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft.communicators import RankCall, current_call, within
from weft.communicators.interface import Array, Collective, Request
from weft.errors import CheckFailed, CommunicationError
from weft.ranks.collectives import started, waited
from weft.runtime import exchanges
from weft.testing import imitation
from weft.testing.imitation import ImitatedRanks, imitated_ranks

ONES = np.ones(3, "float32")


class WatchedRanks(ImitatedRanks):
    """Ranks that write down what they compare."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.compared: list[str] = []

    def start(self, collective: Collective, x: Array, out: Array) -> Request:
        """Write down what is compared."""
        self.compared.append(collective.compared(x))
        return super().start(collective, x, out)


class Program:
    """What a rank does, step by step."""

    def __init__(self) -> None:
        self.transformer = weft.make_transformer("numpy")
        self.made: list[Any] = []
        self.state = weft.variable((3,), initial_value=1)
        self.of_root = weft.variable((3,), initial_value=weft.broadcast_from(ONES))

    def make(self, factor: int, is_later: bool) -> None:
        """Make a computation; all of them have their collectives on the same lines."""
        x, ok = weft.placeholder((3,)), weft.placeholder((2,), "bool")
        y = weft.assert_op(x * factor, ok[0])
        if is_later:
            start = started("all_reduce", y)
            total = waited(start) + 0 * weft.assert_op(x, ok[1])
        else:
            total = weft.assert_op(weft.all_reduce(y), ok[1])
        result = total * self.state * self.of_root
        self.made.append(self.transformer.computation(result, x, ok))

    def call(self, which: int, fails: int | None = None) -> None:
        """Call a computation, which may fail before its collective or after it has started."""
        if not self.made:
            return
        ok = np.arange(2) != (2 if fails is None else fails)
        try:
            self.made[which % len(self.made)](ONES, ok)
        except CheckFailed:
            assert fails is not None
        else:
            assert fails is None

    def alone(self, what: str) -> None:
        """Do what needs no other rank."""
        x = weft.placeholder((3,))
        if what == "compute":
            call = self.transformer.computation(x * self.state + weft.rank_index(), x)
            call(ONES)
        elif what == "set":
            self.transformer.set_value(self.state, ONES)
            self.transformer.set_value(self.of_root, ONES)
        elif what == "get":
            self.transformer.get_value(self.state)
        else:
            weft.make_transformer("numpy").computation(x + 1, x)(ONES)


STEP = st.one_of(
    st.tuples(st.just("make"), st.integers(1, 2), st.booleans()),
    st.tuples(st.just("call"), st.integers(0, 3)),
)
ALONE = st.tuples(st.just("alone"), st.sampled_from(["compute", "set", "get", "other"]))


def compared(steps: list[tuple[Any, ...]]) -> list[str]:
    """Return what a rank compares that takes some steps in a process of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(imitation, "_numbers", itertools.repeat(0))  # it is in the digests of graphs
        patch.setattr(exchanges, "_made", Counter())
        with imitated_ranks(2, kind=WatchedRanks) as ranks:
            program = Program()
            for name, *arguments in steps:
                getattr(program, name)(*arguments)
            assert isinstance(ranks, WatchedRanks)
            return ranks.compared


@given(st.lists(STEP, max_size=8), st.data())
@settings(max_examples=15, deadline=None)
def test_what_a_rank_does_alone_changes_nothing(steps: list[Any], data: st.DataObject) -> None:
    mixed = list(steps)
    for _ in range(data.draw(st.integers(1, 4))):
        mixed.insert(data.draw(st.integers(0, len(mixed))), data.draw(ALONE))
    assert compared(mixed) == compared(steps)


@given(
    st.lists(st.integers(0, 2), min_size=2, max_size=6),
    st.integers(0, 5),
    st.sampled_from([0, 1]),
    st.booleans(),
)
@settings(max_examples=15, deadline=None)
def test_a_rank_that_raised_is_a_call_ahead(
    calls: list[int], place: int, fails: int, is_later: bool
) -> None:
    place %= len(calls) - 1
    begin = [("make", 1, is_later), ("make", 1, is_later), ("make", 2, is_later)]
    right = [("call", which) for which in calls]
    wrong = [*right[:place], ("call", calls[place], fails), *right[place + 1 :]]
    one, other = compared([*begin, *right]), compared([*begin, *wrong])
    if fails:
        assert one == other
    else:
        pairs = itertools.zip_longest(one, other)
        same = itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)
        calls_before = [text for text, _ in same if "ReduceOp in" in text or "StartC" in text]
        assert len(calls_before) <= place, "noticed in that call"


def test_equal_graphs_are_told_apart_by_order_or_by_name() -> None:
    begin = [("make", 1, False), ("make", 1, False)]
    one = compared([*begin, ("call", 0), ("call", 1)])
    other = compared([*begin, ("call", 1), ("call", 0)])
    calls = [[text for text in each if "AllReduceOp" in text] for each in (one, other)]
    assert len(calls[0]) == len(calls[1]) == 2
    assert not {*calls[0][:1]} & {*calls[1][:1]}
    assert sorted(calls[0]) == sorted(calls[1])


@pytest.fixture
def two_sums() -> Iterator[tuple[Any, Any]]:
    """Return two computations that exchange, of which the first waits until it is let go on."""
    with imitated_ranks(2):
        x = weft.placeholder((3,))
        transformer = weft.make_transformer("numpy")
        yield tuple(transformer.computation(weft.all_reduce(x), x) for _ in range(2))


def test_calls_of_two_threads_at_once_are_an_error_in_both(two_sums: tuple[Any, Any]) -> None:
    one, other = (made.exchange for made in two_sums)
    errors: list[str] = []

    def disturb() -> None:
        try:
            two_sums[1](ONES)
        except CommunicationError as error:
            errors.append(str(error))

    def disturbed() -> None:
        with one.call():
            thread = threading.Thread(target=disturb)
            thread.start()
            thread.join()

    with pytest.raises(CommunicationError, match=r"two threads .* call 1 of computation_0"):
        disturbed()
    assert len(errors) == 1
    assert "in call 1 of computation_1" in errors[0]
    assert other.calls == 1
    assert (two_sums[0](ONES) == 2).all()
    assert (two_sums[1](ONES) == 2).all()


def test_a_call_inside_of_another_is_that_while_it_lasts() -> None:
    abandoned: list[int] = []

    def failing() -> None:
        with within(RankCall("inner")):
            assert current_call().text == "inner"
            current_call().started(lambda: abandoned.append(1))
            raise CheckFailed("here")

    with within(RankCall("outer")):
        with pytest.raises(CheckFailed, match="here"):
            failing()
        assert current_call().text == "outer"
    assert (current_call().text, abandoned) == ("", [1])
