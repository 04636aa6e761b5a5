"""Placement: arena offsets for blocks of known size and lifetime.

The smallest arena is NP-hard to find (dynamic storage allocation; Garey and Johnson, Computers and
Intractability, SR2). Several heuristics are tried and the best is kept; the search stops at the
lower bound, the peak of the live bytes. Small sets of blocks are searched exactly.
"""

from __future__ import annotations

import operator
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

PAIRS_LIMIT = 1_000_000
"""The most edges of the interference graph for which heuristics build it."""

EVERY_KEY_LIMIT = 1500
"""The most blocks for which all orders are tried, rather than the first two."""

ROUNDS, ROUNDS_WORK = 16, 8000
"""The most repairs of a placement, and the most blocks placed in all repairs together."""

MANY, CLOSE = 400, 1.02
"""The size of a large group of blocks, and the accepted factor over its lower bound."""

EXACT_LIMIT = 20
"""The most blocks for which an exact search is tried."""

EXACT_NODES = 5000
"""The number of partial placements after which an exact search gives up."""

Placed = tuple[list[int], int]
"""An offset for each block, and the size of the arena."""


class Block(NamedTuple):
    """A block to place: a size in bytes, live from step `first` to step `last`, both included."""

    size: int
    first: int
    last: int


def lower_bound(blocks: Sequence[Block]) -> int:
    """Return the peak of the live bytes, a lower bound of the arena."""
    changes: dict[int, int] = {}
    for size, first, last in blocks:
        changes[first] = changes.get(first, 0) + size
        changes[last + 1] = changes.get(last + 1, 0) - size
    live = peak = 0
    for step in sorted(changes):
        live += changes[step]
        peak = max(peak, live)
    return peak


def place(blocks: Sequence[Block], quick: Placed | None = None, is_exact: bool = True) -> Placed:
    """Return an offset for each block, and the size of the arena that holds them all.

    Offsets are multiples of any number that divides all sizes. `quick` is what `place_quickly`
    returned, if it is known. An exact search takes up to a second.
    """
    bound = lower_bound(blocks)
    first = place_quickly(blocks) if quick is None else quick
    if first[1] <= bound:
        return first
    offsets, size = [0] * len(blocks), bound
    for members in _independent_groups(blocks):
        enough = size if len(members) < MANY else int(size * CLOSE)
        member_offsets, needed = _best([blocks[index] for index in members], enough, is_exact)
        size = max(size, needed)
        for index, offset in zip(members, member_offsets, strict=True):
            offsets[index] = offset
    return min(first, (offsets, size), key=lambda placed: placed[1])


def placement_in_units(
    sizes: tuple[int, ...],
    largest: tuple[int, ...],
    ranges: tuple[tuple[int, int], ...],
    unit: int,
) -> tuple[int, ...]:
    """Return the offset of each block, then the size of the arena, as multiples of a unit.

    The unit divides all sizes. `ranges` has the first and the last step of each block. Blocks are
    placed for the `largest` sizes, which are the same for many calls, if these are known (not
    empty) and no size exceeds them.
    """
    fits = bool(largest) and all(map(operator.le, sizes, largest))
    return _placement_in_units(largest if fits else sizes, ranges, unit)


@lru_cache(maxsize=64)
def _placement_in_units(
    sizes: tuple[int, ...], ranges: tuple[tuple[int, int], ...], unit: int
) -> tuple[int, ...]:
    """Place blocks of some sizes; without an exact search, since a call waits for it."""
    blocks = [Block(size, *steps) for size, steps in zip(sizes, ranges, strict=True)]
    offsets, size = place(blocks, is_exact=False)
    return *(offset // unit for offset in offsets), size // unit


def place_quickly(blocks: Sequence[Block]) -> Placed:
    """Return a placement in O(n log n)."""
    return min(_in_time_order(blocks), _backwards(blocks), key=lambda placed: placed[1])


def _independent_groups(blocks: Sequence[Block]) -> Iterator[list[int]]:
    """Yield groups of blocks such that blocks of different groups are never live together."""
    members: list[int] = []
    end = -1
    for index in sorted(range(len(blocks)), key=lambda index: blocks[index].first):
        if blocks[index].first > end and members:
            yield members
            members = []
        members.append(index)
        end = max(end, blocks[index].last)
    if members:
        yield members


def _best(blocks: Sequence[Block], enough: int, is_exact: bool) -> Placed:
    """Return the smallest of several placements, or the first of at most `enough` bytes."""
    best: Placed | None = None
    for attempt in _attempts(blocks, enough, is_exact):
        if best is None or attempt[1] < best[1]:
            best = attempt
        if best[1] <= enough:
            break
    assert best is not None
    return best


def _attempts(blocks: Sequence[Block], enough: int, is_exact: bool = True) -> Iterator[Placed]:
    yield place_quickly(blocks)
    yield from _by_keys(blocks, enough)
    if is_exact and len(blocks) <= EXACT_LIMIT:
        yield _Search(blocks, enough).run()


def _by_keys(blocks: Sequence[Block], enough: int) -> Iterator[Placed]:
    """Yield placements in several orders, the blocks that are hardest to place first.

    Then repeat with the blocks moved to the front that ended too high (squeaky wheel
    optimization; Joslin and Clements, 1999).
    """
    interference = _interference_graph(blocks)
    if interference is None:
        return
    pressures = _memory_pressures(blocks)
    best, least = list(range(len(blocks))), sum(block.size for block in blocks) + 1
    for key, tightest in _KEYS if len(blocks) <= EVERY_KEY_LIMIT else _KEYS[:2]:
        order = sorted(range(len(blocks)), key=lambda index: key(blocks[index], pressures[index]))
        offsets, size = _in_order(order, blocks, interference, tightest)
        yield offsets, size
        if size < least:
            best, least = order, size
    for _ in range(min(ROUNDS, ROUNDS_WORK // len(blocks))):
        offsets, size = _in_order(best, blocks, interference, tightest=False)
        yield offsets, size
        high = [index for index in best if offsets[index] + blocks[index].size > enough]
        best = list(dict.fromkeys([*high, *best]))


def _memory_pressures(blocks: Sequence[Block]) -> list[int]:
    """Return for each block the peak of the live bytes during its live range."""
    sizes, firsts, lasts = np.array(blocks, np.int64).T
    steps = np.unique(firsts)
    begins = np.searchsorted(steps, firsts)
    ends = np.searchsorted(steps, lasts, "right")
    changes = np.zeros(len(steps) + 1, np.int64)
    np.add.at(changes, begins, sizes)
    np.subtract.at(changes, ends, sizes)
    live = np.cumsum(changes)
    return [int(live[begin:end].max()) for begin, end in zip(begins, ends, strict=True)]


def _backwards(blocks: Sequence[Block]) -> Placed:
    return _in_time_order([Block(size, -last, -first) for size, first, last in blocks])


def _in_time_order(blocks: Sequence[Block]) -> Placed:
    """Allocate and free as the program would, taking the smallest hole that fits."""
    offsets = [0] * len(blocks)
    free_list = _FreeList()
    events = [(block[1], 1, -block[0], index) for index, block in enumerate(blocks)]
    events += [(block[2] + 1, 0, 0, index) for index, block in enumerate(blocks)]
    for _, starts, _, index in sorted(events):
        if starts:
            offsets[index] = free_list.allocate(blocks[index].size)
        else:
            free_list.free(offsets[index], blocks[index].size)
    return offsets, free_list.end


class _FreeList:
    """The free list of an arena that grows at its end."""

    def __init__(self) -> None:
        self.end = 0
        self.by_size: list[tuple[int, int]] = []
        self.starting: dict[int, int] = {}
        self.ending: dict[int, int] = {}

    def allocate(self, size: int) -> int:
        if not size:
            return 0
        index = bisect_left(self.by_size, (size, 0))
        if index < len(self.by_size):
            room, offset = self.by_size[index]
            self._remove(offset, room)
            if room > size:
                self._insert(offset + size, room - size)
            return offset
        offset = self.ending.get(self.end, self.end)
        if offset < self.end:
            self._remove(offset, self.end - offset)
        self.end = offset + size
        return offset

    def free(self, offset: int, size: int) -> None:
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


_KEYS: tuple[tuple[Callable[[Block, int], int], bool], ...] = (
    (lambda block, pressure: -block.size, False),
    (lambda block, pressure: -block.size * pressure, False),
    (lambda block, pressure: -block.size, True),
    (lambda block, pressure: -block.size * (block.last - block.first + 1), False),
    (lambda block, pressure: block.first - block.last, False),
    (lambda block, pressure: -pressure, False),
)
"""The sort keys of the orders, and whether a block takes the tightest gap: size; size times memory
pressure; size, in the tightest gap; size times live range; live range; memory pressure."""


def _in_order(
    order: Sequence[int],
    blocks: Sequence[Block],
    interference: Sequence[Sequence[int]],
    tightest: bool,
) -> Placed:
    """Place blocks in an order, each at an offset that is free during its live range.

    The lowest such offset is taken or, if `tightest`, the smallest such gap.
    """
    offsets = [0] * len(blocks)
    spans: list[tuple[int, int] | None] = [None] * len(blocks)
    top = 0
    for index in order:
        size = blocks[index].size
        spans_in_use = [span for each in interference[index] if (span := spans[each])]
        spans_in_use.sort()
        offset = _tightest(spans_in_use, size) if tightest else _lowest(spans_in_use, size)
        offsets[index] = offset
        if size:
            spans[index] = offset, offset + size
            top = max(top, offset + size)
    return offsets, top


def _lowest(spans: Sequence[tuple[int, int]], size: int) -> int:
    """Return the start of the first gap of at least a size between sorted spans."""
    offset = 0
    for start, end in spans:
        if start - offset >= size:
            return offset
        offset = max(offset, end)
    return offset


def _tightest(spans: Sequence[tuple[int, int]], size: int) -> int:
    """Return the start of the smallest gap of at least a size between sorted spans."""
    tightest, room, offset = -1, 0, 0
    for start, end in spans:
        if start - offset >= size and (tightest < 0 or start - offset < room):
            tightest, room = offset, start - offset
        offset = max(offset, end)
    return offset if tightest < 0 else tightest


def _interference_graph(blocks: Sequence[Block]) -> list[list[int]] | None:
    """Return the interference graph of the blocks; None if it has too many edges."""
    neighbors: list[list[int]] = [[] for _ in blocks]
    live: list[int] = []
    pairs = 0
    for index in sorted(range(len(blocks)), key=lambda index: blocks[index].first):
        first = blocks[index].first
        live = [each for each in live if blocks[each].last >= first]
        for each in live:
            neighbors[each].append(index)
        neighbors[index] = live.copy()
        live.append(index)
        pairs += len(live)
        if pairs > PAIRS_LIMIT:
            return None
    return neighbors


class _Search:
    """An exact search, by branch and bound, for a placement of at most a given size.

    Moving every block to its lowest free offset, the lowest first, makes no placement worse. So it
    is enough to place blocks in the order of their offsets, each on top of the placed blocks that
    it interferes with.
    """

    def __init__(self, blocks: Sequence[Block], enough: int) -> None:
        self.blocks = blocks
        self.enough = enough
        self.offsets = [0] * len(blocks)
        self.best: Placed = [0] * len(blocks), sum(block.size for block in blocks) + 1
        self.nodes = 0
        steps = {block.first for block in blocks}
        self.live = [
            [i for i, (_, first, last) in enumerate(blocks) if first <= step <= last]
            for step in sorted(steps)
        ]
        self.interference = _interference_graph(blocks) or []

    def run(self) -> Placed:
        """Return the smallest placement found, which may be larger than the sum of the blocks."""
        self._stack([0] * len(self.blocks), set(range(len(self.blocks))), 0)
        return self.best

    def _stack(self, floors: list[int], left: set[int], lowest: int) -> None:
        """Place the remaining blocks, none below `lowest`."""
        self.nodes += 1
        if not left:
            size = max(at + block.size for at, block in zip(self.offsets, self.blocks, strict=True))
            self.best = self.offsets.copy(), size
            return
        seen = set()
        for index in sorted(left, key=lambda index: (floors[index], -self.blocks[index].size)):
            if self.nodes > EXACT_NODES or self.best[1] <= self.enough:
                return
            if not self._is_promising(floors, left, lowest):
                return
            if floors[index] < lowest or self.blocks[index] in seen:
                continue
            seen.add(self.blocks[index])
            self.offsets[index] = floors[index]
            top = floors[index] + self.blocks[index].size
            above = floors.copy()
            for other in self.interference[index]:
                above[other] = max(above[other], top)
            self._stack(above, left - {index}, floors[index])

    def _is_promising(self, floors: list[int], left: set[int], lowest: int) -> bool:
        """Whether the remaining blocks might fit below the best placement found."""
        for live in self.live:
            rest = [index for index in live if index in left]
            if rest:
                base = max(lowest, min(floors[index] for index in rest))
                if base + sum(self.blocks[index].size for index in rest) >= self.best[1]:
                    return False
        return True
