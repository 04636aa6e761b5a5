"""Blocking: how a product of matrices is cut for serial devices, and what memory that takes."""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt

from weft_c.loops.parallel import serial_items
from weft_c.matmul.accumulators import Accumulator
from weft_c.processor import Processor

DEPTH = 256
"""The terms that are added up at a time: with two vectors for each they fit the nearest cache."""

ROWS = 256
"""The rows, of `DEPTH` terms, that fit the cache after the nearest."""

GRAIN = 32
"""How many multiplications count as one point of a loop."""

VECTOR_GRAIN = 4
"""The same for the product with a vector, which takes as long as reading the matrix."""

MIN_TILE_ROWS, MAX_TILE_ROWS = 4, 12
"""The rows of a tile that hide how long an addition takes, and those that registers hold.

Small products take few, whose text compiles sooner; not where something is computed from the sums,
which takes long loops.
"""

MAX_VECTORS, MAX_SCALARS = 8, 32
"""How many vectors, or single numbers, a tile of one row has at most: registers hold them."""

MAX_UNPACKED_BYTES = 1 << 18
"""The bytes of a matrix that is read as it lies."""

MIN_PACKED_ROWS = 24
"""With fewer rows, or columns, copying the other operand takes longer than it saves."""

MAX_SINGLE_ITEM_WORK = 64**3
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
    lengths: tuple[int, int, int, int],
    acc: Accumulator,
    processor: Processor,
    is_stored: bool,
    lanes: int,
) -> Blocking:
    """Return how a batch of products [m, k] by [k, n] is cut, which may be stored as they are.

    A tile has vectors of so many lanes, or numbers where there is one. A single row meets each
    column once, so that nothing is worth a copy, and all terms are added up at a time.
    """
    batch, m, k, n = lengths
    work = batch * m * n * k
    if m == 1:
        tile, depth = _tile_of_a_row(n, lanes), k
        items = serial_items(work // VECTOR_GRAIN, processor)
    else:
        tile = _best_tile(
            m,
            n,
            lanes,
            MIN_TILE_ROWS if work <= MAX_SINGLE_ITEM_WORK and is_stored else MAX_TILE_ROWS,
        )
        depth = min(DEPTH, k) if acc.is_plain else k
        items = 1 if work <= MAX_SINGLE_ITEM_WORK else serial_items(work // GRAIN, processor)
    wanted = -(-items // batch)
    rows, panels = -(-m // tile.rows), -(-n // tile.width)
    across = min(max(isqrt(wanted * n // m), 1), panels, wanted)
    at_most = max(ROWS * DEPTH // max(depth, 1), tile.rows)
    down = min(max(-(-wanted // across), -(-m // at_most)), rows)
    return Blocking(tile, depth, down, across, min(batch * down * across, items), m)


def _tile_of_a_row(n: int, lanes: int) -> Tile:
    """Return a tile that is no wider than the row, so that the last one may overlap another."""
    if n < lanes or lanes == 1:
        return Tile(1, min(MAX_SCALARS, n), 1)
    vectors = -(-n // lanes)
    evenly = _balanced(vectors, MAX_VECTORS)
    return Tile(1, evenly if evenly * lanes <= n else -(-vectors // 2), lanes)


def _best_tile(m: int, n: int, lanes: int, rows: int) -> Tile:
    if lanes == 1:
        return Tile(_balanced(m, 4), 8 if n > 4 else 4, 1)
    return Tile(_balanced(m, rows), 2 if n > lanes else 1, lanes)


def _balanced(length: int, most: int) -> int:
    """Return the least number that needs no more steps than the most does."""
    return -(-length // -(-length // most))


def packs_rows(m: int, k: int, n: int, acc: Accumulator) -> bool:
    """Whether rows that lie in memory are copied before they are multiplied."""
    is_near = m * k * acc.dtype.itemsize <= MAX_UNPACKED_BYTES
    return m > 1 and n >= MIN_PACKED_ROWS and not (is_near and acc.is_plain)


def tiles_bytes(
    lengths: tuple[int, int, int, int],
    acc: Accumulator,
    processor: Processor,
    is_stored: bool,
    has_prologue: bool,
) -> int:
    """Return how many bytes of scratch memory `multiply_tiles` needs at most, for any layout."""
    batch, m, k, n = lengths
    size = 0
    for lanes in {acc.lanes, 1} if m == 1 else {acc.lanes}:
        cut = blocking(lengths, acc, processor, is_stored, lanes)
        tile, depth = cut.tile, cut.depth
        columns = depth * tile.width if m > 1 else 0
        rows = depth * cut.rows if has_prologue or packs_rows(m, k, n, acc) else 0
        partial_sums = batch * m * n if k > depth and not is_stored else 0
        size = max(size, cut.items * (columns + rows + tile.rows * tile.width) + partial_sums)
    return size * acc.sum_dtype.itemsize + 1024
