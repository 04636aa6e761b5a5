"""Placement: offsets for blocks of known size and lifetime in one arena.

Several heuristics are tried and the best is kept; the search stops at the lower bound, the most
bytes that are alive at one time.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from typing import Protocol

QUADRATIC_LIMIT = 1500
"""The number of blocks up to which heuristics that compare all pairs are tried."""


class Block(Protocol):
    """What is placed: alive from step `first` to step `last`, both included."""

    size: int
    first: int
    last: int


def lower_bound(blocks: Sequence[Block]) -> int:
    """Return the most bytes that are alive at one step: no arena can be smaller."""
    changes: dict[int, int] = {}
    for block in blocks:
        changes[block.first] = changes.get(block.first, 0) + block.size
        changes[block.last + 1] = changes.get(block.last + 1, 0) - block.size
    alive = peak = 0
    for step in sorted(changes):
        alive += changes[step]
        peak = max(peak, alive)
    return peak


def place(blocks: Sequence[Block]) -> tuple[list[int], int]:
    """Return an offset for each block, and the size of the arena that holds them all."""
    bound = lower_bound(blocks)
    best = _in_time_order(blocks)
    if best[1] > bound and len(blocks) <= QUADRATIC_LIMIT:
        for key in _ORDERS:
            found = _first_fit(blocks, key)
            best = min(best, found, key=lambda result: result[1])
            if best[1] == bound:
                break
    return best


def _in_time_order(blocks: Sequence[Block]) -> tuple[list[int], int]:
    """Allocate and free as the program would, taking the smallest hole that fits."""
    offsets = [0] * len(blocks)
    holes = _Holes()
    events = [(block.first, 1, -block.size, index) for index, block in enumerate(blocks)]
    events += [(block.last + 1, 0, 0, index) for index, block in enumerate(blocks)]
    for _, starts, _, index in sorted(events):
        if starts:
            offsets[index] = holes.take(blocks[index].size)
        else:
            holes.give(offsets[index], blocks[index].size)
    return offsets, holes.end


class _Holes:
    """The free stretches of an arena that grows at its end."""

    def __init__(self) -> None:
        self.end = 0
        self.by_size: list[tuple[int, int]] = []
        self.starting: dict[int, int] = {}
        self.ending: dict[int, int] = {}

    def take(self, size: int) -> int:
        if not size:
            return 0
        place = bisect_left(self.by_size, (size, 0))
        if place < len(self.by_size):
            room, offset = self.by_size[place]
            self._remove(offset, room)
            if room > size:
                self._insert(offset + size, room - size)
            return offset
        offset = self.ending.get(self.end, self.end)
        if offset < self.end:
            self._remove(offset, self.end - offset)
        self.end = offset + size
        return offset

    def give(self, offset: int, size: int) -> None:
        if not size:
            return
        if (room := self.starting.get(offset + size)) is not None:
            self._remove(offset + size, room)
            size += room
        if (start := self.ending.get(offset)) is not None:
            self._remove(start, offset - start)
            offset, size = start, size + offset - start
        self._insert(offset, size)

    def _insert(self, offset: int, size: int) -> None:
        insort(self.by_size, (size, offset))
        self.starting[offset] = size
        self.ending[offset + size] = offset

    def _remove(self, offset: int, size: int) -> None:
        del self.by_size[bisect_left(self.by_size, (size, offset))]
        del self.starting[offset]
        del self.ending[offset + size]


_ORDERS: tuple[Callable[[Block], tuple[int, int]], ...] = (
    lambda block: (-block.size, block.first),
    lambda block: (-block.size * (block.last - block.first + 1), block.first),
    lambda block: (block.first - block.last, -block.size),
)


def _first_fit(
    blocks: Sequence[Block], key: Callable[[Block], tuple[int, int]]
) -> tuple[list[int], int]:
    """Give each block, in the order of a key, the lowest offset free for all its lifetime."""
    offsets = [0] * len(blocks)
    placed: list[tuple[int, int, int, int]] = []
    top = 0
    for index in sorted(range(len(blocks)), key=lambda index: key(blocks[index])):
        block = blocks[index]
        offset = 0
        for start, end, first, last in placed:
            if start >= offset + block.size:
                break
            if end > offset and first <= block.last and last >= block.first:
                offset = end
        offsets[index] = offset
        if block.size:
            insort(placed, (offset, offset + block.size, block.first, block.last))
            top = max(top, offset + block.size)
    return offsets, top
