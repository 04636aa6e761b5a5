"""Placement of blocks in one arena."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.plan import placement
from weft.plan.placement import Block, lower_bound, place

blocks = st.lists(
    st.builds(
        lambda size, first, length: Block(size, first, first + length),
        st.integers(0, 64),
        st.integers(0, 20),
        st.integers(0, 8),
    ),
    max_size=25,
)


def alive_bytes(given_blocks: list[Any], step: int):
    return sum(block.size for block in given_blocks if block.first <= step <= block.last)


def are_apart(given_blocks: list[Any], offsets: Sequence[int]):
    for (a, at), (b, bt) in combinations(zip(given_blocks, offsets, strict=True), 2):
        together = a.first <= b.last and b.first <= a.last and a.size and b.size
        if together and at < bt + b.size and bt < at + a.size:
            return False
    return True


def check(given_blocks: list[Any], offsets: list[int], size: int):
    assert len(offsets) == len(given_blocks)
    for block, offset in zip(given_blocks, offsets, strict=True):
        assert 0 <= offset <= offset + block.size <= max(size, 0) or block.size == 0
    assert are_apart(given_blocks, offsets)


@given(given_blocks=blocks)
def test_the_bound_is_the_most_bytes_alive_at_one_step(given_blocks: list[Any]):
    assert lower_bound(given_blocks) == max(alive_bytes(given_blocks, s) for s in range(30))


@settings(deadline=None)
@given(given_blocks=blocks)
def test_blocks_that_live_together_lie_apart(given_blocks: list[Any]):
    offsets, size = place(given_blocks)
    check(given_blocks, offsets, size)
    assert size >= lower_bound(given_blocks)


@settings(deadline=None)
@given(given_blocks=blocks.filter(len))
def test_every_attempt_is_sound_and_none_is_better_than_the_best(given_blocks: list[Any]):
    attempts = list(placement._attempts(given_blocks, 0))
    assert len(attempts) > 7
    for offsets, size in attempts:
        check(given_blocks, offsets, size)
    assert place(given_blocks)[1] <= min(size for _, size in attempts)


@settings(deadline=None)
@given(given_blocks=blocks, unit=st.sampled_from([1, 64, 256]))
def test_offsets_are_multiples_of_what_sizes_are(given_blocks: list[Any], unit: int):
    padded = [block._replace(size=-(-block.size // unit) * unit) for block in given_blocks]
    offsets, size = place(padded)
    assert all(offset % unit == 0 for offset in (*offsets, size))


few = st.lists(
    st.builds(
        lambda size, first, length: Block(size, first, first + length),
        st.integers(1, 3),
        st.integers(0, 5),
        st.integers(0, 4),
    ),
    min_size=1,
    max_size=5,
)


@settings(deadline=None, max_examples=50)
@given(given_blocks=few)
def test_few_blocks_need_no_more_than_the_best_of_all_placements(given_blocks: list[Any]):
    size = place(given_blocks)[1]
    offsets = [range(size - block.size) for block in given_blocks]
    assert not any(are_apart(given_blocks, each) for each in product(*offsets))


@pytest.mark.parametrize(
    ("given_blocks", "size"),
    [
        ([], 0),
        ([Block(0, 0, 5)], 0),
        ([Block(8, 0, 1), Block(8, 2, 3)], 8),
        ([Block(8, 0, 2), Block(8, 2, 3)], 16),
        ([Block(8, 0, 1), Block(4, 2, 4), Block(4, 2, 4), Block(8, 5, 6)], 8),
        # Two groups apart in time, of which the second needs a search.
        ([Block(9, 0, 1), *[Block(*each) for each in
          ((2, 10, 12), (1, 11, 13), (1, 13, 15), (2, 14, 16), (1, 10, 10), (3, 16, 17))]], 9),
    ],
)  # fmt: skip
def test_known_cases(given_blocks: list[Any], size: int):
    assert place(given_blocks)[1] == size


def test_the_search_finds_what_no_heuristic_does():
    rng = np.random.default_rng(0)
    found = 0
    for _ in range(300):
        begins, lengths = rng.integers(0, 10, 12), rng.integers(0, 6, 12)
        given_blocks = [
            Block(int(size), int(first), int(first + length))
            for size, first, length in zip(rng.integers(1, 9, 12), begins, lengths, strict=True)
        ]
        bound = lower_bound(given_blocks)
        *others, searched = [size for _, size in placement._attempts(given_blocks, bound)]
        assert searched >= bound
        found += searched < min(others)
    assert found


def test_many_blocks_are_placed_without_comparing_all_pairs():
    chain = [Block(16, step, step + 1) for step in range(50_000)]
    offsets, size = place(chain)
    assert size == 32
    assert set(offsets) == {0, 16}


def trace(rng: Any, fewest: int, most: int, events: int = 1000):
    """Return what a program allocates and frees: so many blocks live, one in ten of them empty."""
    live, found = [], []
    for step in range(events):
        must, may = len(live) < fewest or not live, len(live) < most
        if must or (may and rng.random() < 0.5):
            size = 0 if rng.random() < 0.1 else int(rng.integers(0, 1_000_000))
            live.append(len(found))
            found.append(Block(-(-size // 256) * 256, step, events))
        else:
            index = live.pop(int(rng.integers(len(live))))
            found[index] = found[index]._replace(last=step - 1)
    return found


@pytest.mark.parametrize(("fewest", "most"), [(1, 1), (1, 10), (10, 10), (10, 100)])
def test_traces_of_allocations_come_close_to_the_bound(fewest: int, most: int):
    given_blocks = trace(np.random.default_rng(0), fewest, most)
    assert any(block.size == 0 for block in given_blocks)
    offsets, size = place(given_blocks)
    check(given_blocks, offsets, size)
    assert all(offset % 256 == 0 for offset in offsets)
    assert size <= 1.15 * lower_bound(given_blocks)
