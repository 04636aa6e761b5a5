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
    """A tiling: tile n has block n of one dimension, and the other dimensions as a whole.

    Attributes
    ----------
    lengths
        The lengths of all dimensions.
    axis
        The dimension that is divided; None if there is a single tile.
    block
        The length of a block; the last may be shorter.
    """

    lengths: tuple[int, ...]
    axis: int | None = None
    block: int = 0

    @property
    def count(self) -> int:
        """The number of tiles."""
        return 1 if self.axis is None else -(-self.lengths[self.axis] // self.block)

    @property
    def remainder(self) -> int:
        """The length of the last block if it is shorter than the others, else 0."""
        return 0 if self.axis is None else self.lengths[self.axis] % self.block

    def shape(self, varying: Collection[int]) -> tuple[int, ...]:
        """Return the shape of a value in a tile, the last tile aside."""
        lengths = [self.block if n == self.axis else each for n, each in enumerate(self.lengths)]
        return tuple(each if n in varying else 1 for n, each in enumerate(lengths))


def row_tiling(
    lengths: tuple[int, ...], whole: Collection[int], elements: int, threads: int
) -> Tiling | None:
    """Return tiles of whole rows along some dimensions; None if rows are too long.

    Tiles have at most `elements` elements if possible, and there are some for each thread.
    """
    size, last = prod(lengths), len(lengths) - 1
    least = {
        axis: size // length * min(MIN_COLUMNS if axis == last else 1, length)
        for axis, length in enumerate(lengths)
        if axis not in whole
    }
    axis = next(
        (axis for axis in least if least[axis] <= elements),
        min(least, key=least.__getitem__, default=None),
    )
    if axis is None or least[axis] > max(elements, MAX_ROW):
        return None
    length = lengths[axis]
    blocks = -(-size // max(elements, least[axis]))
    if blocks < 4 * threads:
        blocks = -(-blocks // threads) * threads
    return Tiling(lengths, axis, -(-length // min(blocks, length)))
