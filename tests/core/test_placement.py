"""Placement of blocks in one arena."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft import placement
from weft.placement import lower_bound, place


@dataclass
class Block:
    size: int
    first: int
    last: int


blocks = st.lists(
    st.builds(
        lambda size, first, length: Block(size, first, first + length),
        st.integers(0, 64),
        st.integers(0, 20),
        st.integers(0, 8),
    ),
    max_size=25,
)


def alive_bytes(given_blocks, step):
    return sum(block.size for block in given_blocks if block.first <= step <= block.last)


def check_apart(given_blocks, offsets, size):
    assert len(offsets) == len(given_blocks)
    placed = list(zip(given_blocks, offsets, strict=True))
    for block, offset in placed:
        assert 0 <= offset <= offset + block.size <= max(size, 0) or block.size == 0
    for (a, at), (b, bt) in combinations(placed, 2):
        together = a.first <= b.last and b.first <= a.last and a.size and b.size
        assert not together or at + a.size <= bt or bt + b.size <= at


@given(given_blocks=blocks)
def test_the_bound_is_the_most_bytes_alive_at_one_step(given_blocks):
    assert lower_bound(given_blocks) == max(alive_bytes(given_blocks, s) for s in range(30))


@given(given_blocks=blocks)
def test_blocks_that_live_together_lie_apart(given_blocks):
    offsets, size = place(given_blocks)
    check_apart(given_blocks, offsets, size)
    assert size >= lower_bound(given_blocks)


@given(given_blocks=blocks)
def test_every_heuristic_is_sound_by_itself(given_blocks):
    results = [placement._in_time_order(given_blocks)]
    results += [placement._first_fit(given_blocks, key) for key in placement._ORDERS]
    for offsets, size in results:
        check_apart(given_blocks, offsets, size)
    assert place(given_blocks)[1] == min(size for _, size in results)


@pytest.mark.parametrize(
    ("given_blocks", "size"),
    [
        ([], 0),
        ([Block(0, 0, 5)], 0),
        ([Block(8, 0, 1), Block(8, 2, 3)], 8),
        ([Block(8, 0, 2), Block(8, 2, 3)], 16),
        ([Block(8, 0, 1), Block(4, 2, 4), Block(4, 2, 4), Block(8, 5, 6)], 8),
    ],
)
def test_known_cases(given_blocks, size):
    assert place(given_blocks)[1] == size


def test_many_blocks_are_placed_without_comparing_all_pairs():
    chain = [Block(16, step, step + 1) for step in range(50_000)]
    offsets, size = place(chain)
    assert size == 32
    assert set(offsets) == {0, 16}
