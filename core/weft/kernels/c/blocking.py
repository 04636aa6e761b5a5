"""Blocking: how a product of matrices is cut for serial devices, and what memory that takes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import isqrt

from weft.kernels.c.accumulators import VECTOR, Accumulator
from weft.kernels.c.loops import serial_items
from weft.kernels.c.processor import Processor

DEPTH = 256
"""The terms that are added up at a time: with two vectors for each they fit the nearest cache."""

ROWS = 256
"""The rows, of `DEPTH` terms, that fit the cache after the nearest."""

GRAIN = 32
"""How many multiplications count as one point of a loop."""

VECTOR_GRAIN = 4
"""The same for the product with a vector, which takes as long as reading the matrix."""

LEAST_ROWS, MOST_ROWS = 4, 12
"""The rows of a tile that hide how long an addition takes, and those that registers hold.

Small products take few, whose text compiles sooner; not where something is computed from the sums,
which takes long loops.
"""

SMALL = 64**3
"""The multiplications up to which one work item makes a product: a launch takes as long."""


@dataclass(frozen=True)
class Tile:
    """The sums in registers: rows, and vectors of lanes along each."""

    rows: int
    vectors: int
    lanes: int

    @property
    def width(self) -> int:
        """The columns."""
        return self.vectors * self.lanes


@dataclass(frozen=True)
class Blocking:
    """How a product of matrices [m, k] and [k, n] is cut.

    Attributes
    ----------
    tile
        What is kept in registers.
    depth
        The terms that are added up at a time.
    down, across
        In how many parts the rows, and the columns, are cut for work items.
    items
        The work items.
    """

    tile: Tile
    depth: int
    down: int
    across: int
    items: int
    m: int

    @property
    def rows(self) -> int:
        """The most rows of a part."""
        return -(-self.tiles // self.down) * self.tile.rows

    @property
    def tiles(self) -> int:
        """The tiles from the first row to the last, which may overlap the one before."""
        return -(-self.m // self.tile.rows)


def blocking(
    lengths: tuple[int, int, int, int], acc: Accumulator, processor: Processor, is_stored: bool
) -> Blocking:
    """Return how a batch of products [m, k] by [k, n] is cut, which may be stored as they are."""
    batch, m, k, n = lengths
    work = batch * m * n * k
    tile = _best_tile(m, n, acc, LEAST_ROWS if work <= SMALL and is_stored else MOST_ROWS)
    depth = min(DEPTH, k) if acc.is_plain else k
    if m == 1:
        items = serial_items(work // VECTOR_GRAIN, processor)
    else:
        items = 1 if work <= SMALL else serial_items(work // GRAIN, processor)
    wanted = -(-items // batch)
    rows, panels = -(-m // tile.rows), -(-n // tile.width)
    across = min(max(isqrt(wanted * n // m), 1), panels, wanted)
    at_most = max(ROWS * DEPTH // max(depth, 1), tile.rows)
    down = min(max(-(-wanted // across), -(-m // at_most)), rows)
    return Blocking(tile, depth, down, across, min(batch * down * across, items), m)


def _best_tile(m: int, n: int, acc: Accumulator, rows: int) -> Tile:
    if acc.lanes == 1:
        return Tile(_even(m, 4), 8 if n > 4 else 4, 1)
    if m == 1:
        return Tile(1, min(8, -(-n // VECTOR)), VECTOR)
    return Tile(_even(m, rows), 2 if n > VECTOR else 1, VECTOR)


def _even(length: int, most: int) -> int:
    """Return the least number that needs no more steps than the most does."""
    return -(-length // -(-length // most))


def tiles_bytes(batch: int, m: int, k: int, n: int, acc: Accumulator, processor: Processor) -> int:
    """Return how many bytes of scratch memory `multiply_tiles` needs at most."""
    size = 0
    for (b, i), is_stored in product({(batch, m), (1, batch * m)}, (False, True)):
        cut = blocking((b, i, k, n), acc, processor, is_stored)
        tile, depth = cut.tile, cut.depth
        elements = depth * (cut.rows + tile.width) + tile.rows * tile.width
        waiting = batch * m * n if k > depth else 0
        size = max(size, cut.items * elements + waiting)
    return size * acc.dtype_of_sums.itemsize + 1024
