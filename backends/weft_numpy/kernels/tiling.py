"""Tilings: divisions of a kernel's iteration domain into tiles that fit a cache."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import prod

MIN_TILE, MAX_TILE = 2**14, 2**16
"""Elements of a tile: enough to hide the cost of calling NumPy, few enough to stay in cache."""

CACHE = 2**20
"""Bytes of all arrays of a tile, which the second-level cache of a core holds."""

MAX_ROW = 2**18
"""The most elements of a tile with the fewest rows, or columns."""

MIN_COLUMNS = 64
"""The fewest contiguous elements that a tile cuts rows into."""


@dataclass(frozen=True)
class Tiling:
    """A tiling: some dimensions are indexed, one is divided into blocks, the others are whole.

    Attributes
    ----------
    lengths
        The lengths of all dimensions.
    indexed
        The dimensions of which a tile has one index; its arrays have no axes for these.
    blocked
        The dimension of which a tile has a block; None if there is a single tile.
    block
        The length of a block; the last may be shorter.
    """

    lengths: tuple[int, ...]
    indexed: tuple[int, ...] = ()
    blocked: int | None = None
    block: int = 0

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return 1 if self.blocked is None else -(-self.lengths[self.blocked] // self.block)

    @property
    def remainder(self) -> int:
        """The length of the last block if it is shorter than the others, else 0."""
        return 0 if self.blocked is None else self.lengths[self.blocked] % self.block

    @property
    def inner(self) -> int:
        """The number of tiles with the same block, which are neighbours."""
        return prod(self.lengths[each] for each in self.indexed)

    @property
    def count(self) -> int:
        """The number of tiles."""
        return self.blocks * self.inner

    @property
    def axes(self) -> tuple[int, ...]:
        """The dimensions for which a tile's arrays have axes."""
        return tuple(each for each in range(len(self.lengths)) if each not in self.indexed)

    def shape(self, varying: Collection[int]) -> tuple[int, ...]:
        """Return the shape of a value in a tile, the last tile aside."""
        lengths = [self.block if each == self.blocked else self.lengths[each] for each in self.axes]
        return tuple(
            n if each in varying else 1 for each, n in zip(self.axes, lengths, strict=True)
        )


def row_tiling(
    lengths: tuple[int, ...], whole: Collection[int], elements: int, least: int
) -> Tiling | None:
    """Return tiles of whole rows along some dimensions; None if rows are too long.

    Tiles have at most `elements` elements if possible, and there are at least `least` of them.
    """
    others = [each for each in range(len(lengths)) if each not in whole]
    for dimension in others:
        indexed = tuple(each for each in others if each < dimension)
        row = prod(n for axis, n in enumerate(lengths) if axis not in (*indexed, dimension))
        if row > elements and dimension != others[-1]:
            continue
        shortest = min(MIN_COLUMNS if dimension == len(lengths) - 1 else 1, lengths[dimension])
        if row * shortest > max(elements, MAX_ROW):
            return None
        outer = prod(lengths[each] for each in indexed)
        block = _block(lengths[dimension], max(elements // row, shortest), outer, least)
        return Tiling(lengths, indexed, dimension, block)
    return None


def _block(length: int, longest: int, outer: int, least: int) -> int:
    """Return the length of about equal blocks, `longest` at most, for at least `least` tiles."""
    blocks = -(-length // longest)
    if blocks * outer < 4 * least:
        blocks = min(-(-blocks * outer // least) * least, length)
    return -(-length // blocks)
