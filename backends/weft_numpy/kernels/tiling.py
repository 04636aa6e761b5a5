"""Tilings: divisions of a kernel's iteration domain into tiles that fit a cache."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import prod

from weft_numpy.machine import Machine

MIN_TILE, MAX_TILE = 2**14, 2**17
"""Elements of a tile: enough to hide the cost of calling NumPy, few enough to stay in cache.

Threads contend for the interpreter lock between calls; the longer a call, the rarer that is.
"""

STREAMED_TILE = 2**20
"""Elements of a tile that is read once, and so need not stay in cache."""

MIN_TILES = 16
"""The fewest tiles of a reduction loop, for any number of threads: sums must not depend on it."""

MAX_ROW = 2**18
"""The longest row, in elements, that is kept whole; it stays in an outer cache level."""

MIN_RUN = 64
"""The fewest contiguous elements that a tile may cut columns into."""

MAX_COLUMN_TILE = 256
"""The length of columns from which a single reduction loop runs along the rows instead."""

MATMUL_TILE = 2**20
"""Elements of a matrix product's tile."""

MATMUL_CACHE = 2**21
"""Bytes of scratch memory in the product tiles of all threads, so that an epilogue finds them in
cache.
"""

MIN_MATMUL_ROWS = 128
"""The fewest rows or columns of a product's tile; BLAS packs the other matrix for each tile."""

WIDE_RATIO = 12
"""The ratio of width to height from which a product's columns are cut: tiles of rows would make
BLAS pack too much.
"""

CONTRACTED = -1
"""The contracted dimension of a matrix product, which is not in the iteration domain.

Values of a prologue vary along it, and have an axis for it instead of the last one.
"""

MIN_ROWS_PER_THREAD = 32
"""The rows for each thread below which columns are cut as well."""


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
    contracted
        The length of `CONTRACTED`.
    """

    lengths: tuple[int, ...]
    indexed: tuple[int, ...] = ()
    blocked: int | None = None
    block: int = 0
    contracted: int = 0

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return 1 if self.blocked is None else -(-self.lengths[self.blocked] // self.block)

    @property
    def remainder(self) -> int:
        """The length of the last block if it is shorter than the others, else 0."""
        return 0 if self.blocked is None else self.lengths[self.blocked] % self.block

    @property
    def count(self) -> int:
        """The number of tiles."""
        return self.blocks * prod(self.lengths[each] for each in self.indexed)

    @property
    def axes(self) -> tuple[int, ...]:
        """The dimensions for which a tile's arrays have axes."""
        return tuple(each for each in range(len(self.lengths)) if each not in self.indexed)

    def shape(self, varying: Collection[int], is_remainder: bool = False) -> tuple[int, ...]:
        """Return the shape of a value in a full tile, or in the remainder tile."""
        lengths = [self.length(each, is_remainder) if each in varying else 1 for each in self.axes]
        return (*lengths[:-1], self.contracted) if CONTRACTED in varying else tuple(lengths)

    def length(self, dimension: int, is_remainder: bool = False) -> int:
        """Return the length of a dimension in a full tile, or in the remainder tile."""
        if dimension != self.blocked:
            return self.lengths[dimension]
        return self.remainder if is_remainder and self.remainder else self.block


def untiled(lengths: Sequence[int], contracted: int = 0) -> Tiling:
    """Return the tiling with a single tile."""
    return Tiling(tuple(lengths), contracted=contracted)


def elements_per_tile(bytes_per_element: int, machine: Machine) -> int:
    """Return the most elements of a tile, given the bytes per element in all its arrays."""
    return min(max(machine.cache // max(bytes_per_element, 1), MIN_TILE), MAX_TILE)


def flat_tiling(lengths: tuple[int, ...], elements: int, min_tiles: int = 1) -> Tiling:
    """Return tiles of contiguous elements, at most so many each, regardless of reductions.

    There are at least `min_tiles` if possible; a small number of tiles is a multiple of it.
    """
    inner = 1
    for dimension in reversed(range(len(lengths))):
        if dimension and inner * lengths[dimension] <= elements:
            inner *= lengths[dimension]
            continue
        outer = prod(lengths[:dimension])
        longest = max(elements // inner, 1)
        block = _block_length(lengths[dimension], longest, outer, min_tiles, inner == 1)
        return Tiling(lengths, tuple(range(dimension)), dimension, block)
    return untiled(lengths)


def limit_block(tiling: Tiling, height: int) -> Tiling:
    """Return the tiling with blocks of at most `height`, unless tiles become too small."""
    inner = prod(tiling.lengths[axis] for axis in tiling.axes if axis != tiling.blocked)
    if tiling.block <= height or inner * height < MIN_TILE:
        return tiling
    return replace(tiling, block=height)


def row_tiling(
    lengths: tuple[int, ...],
    reduced: Collection[int],
    elements: int,
    min_tiles: int,
    is_one_pass: bool,
) -> Tiling | None:
    """Return tiles of whole rows along the reduced dimensions; None if rows are too long.

    `is_one_pass` says that one reduction loop suffices in any case.
    """
    unreduced = [each for each in range(len(lengths)) if each not in reduced]
    for dimension in unreduced:
        indexed = tuple(each for each in unreduced if each < dimension)
        others = [n for each, n in enumerate(lengths) if each not in indexed and each != dimension]
        inner = prod(others)
        is_last = dimension == unreduced[-1]
        if inner > elements and not (is_last and inner <= MAX_ROW):
            continue
        longest = max(elements // inner, 1)
        cuts_runs = dimension == len(lengths) - 1 and longest < lengths[dimension]
        if cuts_runs and (longest < MIN_RUN or (is_one_pass and inner >= MAX_COLUMN_TILE)):
            return None
        outer = prod(lengths[each] for each in indexed)
        block = _block_length(lengths[dimension], longest, outer, min_tiles, cuts_runs)
        return Tiling(lengths, indexed, dimension, block)
    return None


def matmul_tiling(
    lengths: tuple[int, ...],
    contracted: int,
    min_tiles: int,
    keeps_rows: bool,
    scratch: int = 0,
) -> Tiling:
    """Return tiles of a matrix product: several small matrices, or some rows or columns of one.

    Rows are cut, so that each thread writes contiguous memory, unless they are few and long.
    Columns are never cut with `keeps_rows`. `scratch`, in bytes per row, makes tiles smaller.
    """
    *batch, height, width = lengths
    outer, last = prod(batch), len(lengths) - 1
    if batch and 2 * height * width <= MATMUL_TILE and (outer >= min_tiles or height < min_tiles):
        longest = MATMUL_TILE // (height * width)
        block = _block_length(batch[-1], longest, prod(batch[:-1]), min_tiles, False)
        return Tiling(lengths, tuple(range(last - 2)), last - 2, block, contracted)
    has_few_rows = width > height and height < MIN_ROWS_PER_THREAD * min_tiles
    cuts_columns = (width > WIDE_RATIO * height or has_few_rows) and not keeps_rows
    elements = MATMUL_CACHE * width // (min_tiles * scratch) if scratch else MATMUL_TILE
    longest = max(elements // (height if cuts_columns else width), MIN_MATMUL_ROWS)
    blocked = last if cuts_columns else last - 1
    block = _block_length(lengths[blocked], longest, outer, min_tiles, cuts_columns)
    return Tiling(lengths, tuple(range(last - 1)), blocked, block, contracted)


def _block_length(length: int, longest: int, outer: int, min_tiles: int, is_aligned: bool) -> int:
    """Return the length of about equal blocks, `longest` at most, for at least `min_tiles`."""
    blocks = -(-length // longest)
    total = blocks * outer
    if total < 4 * min_tiles:
        total = -(-total // min_tiles) * min_tiles
        blocks = min(-(-total // outer), length)
    block = -(-length // blocks)
    if is_aligned and block > 64:
        block = min(-(-block // 16) * 16, length)
    return max(block, 1)
