"""Cache blocking of matrix products on serial devices, and the scratch memory it needs."""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt

from weft.ir.guards import is_traced, largest, recomputed
from weft_c.matmul.accumulators import Accumulator
from weft_c.processor import Processor
from weft_tiling import sharing

DEPTH = 256
"""The terms of a block: a panel of two vectors for each fits the first-level cache."""

PACKED_DEPTH = 2048
"""The terms of a block of a packed matrix: a panel of two vectors fits the second-level cache."""

CACHE_PERIOD = 4096
"""The distance in bytes of addresses in one set of the first-level cache."""

ROWS = 256
"""The rows of `DEPTH` terms that fit the second-level cache."""

GRAIN = 32
"""The multiplications that weigh as much as one point of a loop."""

VECTOR_GRAIN = 4
"""The same for a matrix-vector product, which is bound by memory."""

MIN_TILE_ROWS, MAX_TILE_ROWS = 4, 12
"""The fewest rows of a tile that hide the latency of additions, and the most in registers.

Small products have few rows, since their code compiles faster; not with a fused epilogue, whose
loops dominate the compile time.
"""

MAX_VECTORS, MAX_SCALARS = 8, 32
"""The most vectors, or scalars, of a tile of one row, bounded by the registers."""

MAX_UNPACKED_BYTES = 1 << 18
"""The most bytes of an operand that is read without packing."""

MIN_PACKED_ROWS = 24
"""The fewest rows, or columns, for which packing the other operand pays off."""

MIN_PART_ROWS = 96
"""The fewest rows of a part, if there are parts for all units: each packs the columns again."""

MAX_SINGLE_ITEM_WORK = 64**3
"""The most multiplications of a product by one work item: a parallel launch takes as long."""


@dataclass(frozen=True)
class Tile:
    """A tile of sums in registers: rows, and vectors of lanes along each row."""

    rows: int
    vectors: int
    lanes: int

    @property
    def width(self) -> int:
        """The columns."""
        return self.vectors * self.lanes


@dataclass(frozen=True)
class Blocking:
    """The blocking of a product of matrices [m, k] and [k, n].

    Attributes
    ----------
    tile
        The register tile.
    depth
        The terms of a block of the sums.
    down, across
        The number of parts of the rows, and of the columns, for work items.
    items
        The number of work items.
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
        """The number of tiles along the rows; the last one may overlap its predecessor."""
        return -(-self.m // self.tile.rows)


def blocking(
    lengths: tuple[int, int, int, int],
    acc: Accumulator,
    processor: Processor,
    is_stored: bool,
    lanes: int,
    panel: int = 0,
) -> Blocking:
    """Return the blocking of a batch of products [m, k] by [k, n]; `lengths` is (batch, m, k, n).

    A tile has vectors of `lanes` lanes, or scalars for 1. `is_stored` if the sums are stored
    without a fused epilogue. For a single row, packing never pays off, and the sums have one block.
    `panel` is the width of the panels of a packed second matrix.
    """
    batch, m, k, n = lengths
    work = batch * m * n * k
    if panel:
        vectors = panel // lanes
        tile = Tile(_tile_rows(m, acc.tile_rows(vectors)), vectors, lanes)
        depth = min(DEPTH if shares_cache_sets(k, acc) else PACKED_DEPTH, k)
    elif m == 1:
        tile, depth = _tile_of_a_row(n, lanes), k
    else:
        most = min(MAX_TILE_ROWS, acc.registers // 2)
        if not is_traced(work) and is_stored and work <= MAX_SINGLE_ITEM_WORK:
            most = MIN_TILE_ROWS
        tile = _best_tile(m, n, lanes, most)
        depth = min(DEPTH, k) if acc.is_plain else k
    grain = VECTOR_GRAIN if m == 1 and not panel else GRAIN
    division = batch, m, n, work, grain, depth, tile.rows, tile.width, processor.units
    down, across, items = recomputed(divided, *division, for_largest=True)
    return Blocking(tile, depth, down, across, items, m)


def divided(
    batch: int,
    m: int,
    n: int,
    work: int,
    grain: int,
    depth: int,
    tile_rows: int,
    tile_width: int,
    units: int,
) -> tuple[int, int, int]:
    """Return the parts of the rows and of the columns of products, and the work items for them."""
    is_single = grain == GRAIN and (work <= MAX_SINGLE_ITEM_WORK or units == 1)
    (items,) = (1,) if is_single else sharing.item_count(work // grain // sharing.GRAIN, units)
    wanted = -(-items // batch)
    rows, panels = -(-m // tile_rows), -(-n // tile_width)
    across = min(max(isqrt(wanted * n // m), 1), panels, wanted)
    down = min(-(-wanted // across), max(m // MIN_PART_ROWS, 1))
    across = min(-(-wanted // down), panels)
    at_most = max(ROWS * DEPTH // max(depth, 1), tile_rows)
    down = min(max(down, -(-units // (batch * across)), -(-m // at_most)), rows)
    return down, across, min(batch * down * across, items)


def _tile_of_a_row(n: int, lanes: int) -> Tile:
    """Return a tile that is no wider than the row, so that the last one may overlap another."""
    if n < lanes or lanes == 1:
        return Tile(1, min(MAX_SCALARS, n), 1)
    vectors = -(-n // lanes)
    evenly = _balanced(vectors, MAX_VECTORS)
    return Tile(1, evenly if evenly * lanes <= n else -(-vectors // 2), lanes)


def _best_tile(m: int, n: int, lanes: int, most: int) -> Tile:
    if lanes == 1:
        return Tile(_tile_rows(m, 4), 8 if n > 4 else 4, 1)
    return Tile(_tile_rows(m, most), 2 if n > lanes else 1, lanes)


def _tile_rows(m: int, most: int) -> int:
    """Return the rows of a tile: as even as possible, or the most for a traced length."""
    return int(min(m, most)) if is_traced(m) else _balanced(m, most)


def _balanced(length: int, most: int) -> int:
    """Return the smallest step that covers `length` in as few steps as `most` does."""
    return -(-length // -(-length // most))


def shares_cache_sets(k: int, acc: Accumulator) -> bool:
    """Whether the elements of a column of rows of k terms are in few sets of a cache."""
    return k * acc.dtype.itemsize % CACHE_PERIOD == 0


def packs_rows(m: int, k: int, n: int, acc: Accumulator, panel: int = 0) -> bool:
    """Whether the rows of the first operand are packed.

    They are read in place if they are near and not in few sets of the cache. Tiles of a packed
    second matrix read them in place unless they share sets, however far apart they are.
    """
    if panel:
        return m > 1 and shares_cache_sets(k, acc)
    is_near = m * k * acc.dtype.itemsize <= MAX_UNPACKED_BYTES
    is_spread = k * acc.dtype.itemsize % (CACHE_PERIOD // 2) != 0
    return m > 1 and n >= MIN_PACKED_ROWS and not (is_near and is_spread and acc.is_plain)


def tiles_bytes(
    lengths: tuple[int, int, int, int],
    acc: Accumulator,
    processor: Processor,
    is_stored: bool,
    has_prologue: bool,
    panel: int = 0,
) -> int:
    """Return the most bytes of scratch memory that `multiply_tiles` needs, for any layout."""
    batch, m, k, n = lengths
    sizes: list[int] = []
    widths = {acc.lanes, 1} if m == 1 and not panel else {acc.lanes}
    for lanes in widths:
        cut = blocking(lengths, acc, processor, is_stored, lanes, panel)
        tile, depth = cut.tile, cut.depth
        columns = depth * tile.width if m > 1 and not panel else 0
        rows = depth * cut.rows if has_prologue or packs_rows(m, k, n, acc, panel) else 0
        partial_sums = batch * m * n if k > depth and not is_stored else 0
        sizes.append(cut.items * (columns + rows + tile.rows * tile.width) + partial_sums)
    return largest(*sizes) * acc.sum_dtype.itemsize + 1024
