"""Tilings: divisions of a kernel's iteration domain into tiles that fit a cache."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import prod

# Elements of a tile: enough to hide the cost of calling NumPy, few enough to stay in cache.
MIN_TILE, MAX_TILE = 2**14, 2**17
MAX_ROW = 2**18  # elements of a tile with the fewest rows, or columns
MIN_COLUMNS = 64  # contiguous elements that a tile cuts rows into


@dataclass(frozen=True)
class Tiling:
    """A tiling: tile n has block n of one dimension, and the other dimensions as a whole."""

    lengths: tuple[int, ...]  # of all dimensions
    axis: int | None = None  # the dimension that is divided; None if there is a single tile
    block: int = 0  # the length of a block; the last may be shorter

    @property
    def count(self) -> int:
        """The number of tiles."""
        return 1 if self.axis is None else -(-self.lengths[self.axis] // self.block)

    @property
    def tile(self) -> tuple[int, ...]:
        """The lengths of all dimensions in a tile, the last tile aside."""
        return tuple(self.block if n == self.axis else each for n, each in enumerate(self.lengths))


def tiling_of(
    lengths: tuple[int, ...], whole: Collection[int], elements: int, count: int
) -> Tiling | None:
    """Return tiles that are whole along some dimensions; None if those are too long.

    Tiles have at most `elements` elements if possible, and there are at least `count`.
    """
    size, last = prod(lengths), len(lengths) - 1
    least = {
        axis: size // length * min(MIN_COLUMNS if axis == last else 1, length)
        for axis, length in enumerate(lengths)
        if axis not in whole
    }
    fitting = (axis for axis in least if least[axis] <= elements)
    axis = next(fitting, min(least, key=least.__getitem__, default=None))
    if axis is None or least[axis] > max(elements, MAX_ROW):
        return None
    blocks = -(-size // max(elements, least[axis]))
    if blocks < 4 * count:
        blocks = -(-blocks // count) * count
    return Tiling(lengths, axis, -(-lengths[axis] // min(blocks, lengths[axis])))
