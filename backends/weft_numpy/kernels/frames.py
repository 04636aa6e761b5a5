"""Frames: how the dimensions of a kernel are cut into tiles that stay in a cache."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import prod

from weft_numpy.machine import Machine

LEAST, MOST = 2**14, 2**17
"""The elements of a tile: so many that calling NumPy costs little, so few that they stay near.

Two threads get into each other's way between calls, when they need the interpreter; the longer a
call, the rarer that is.
"""

ONCE = 2**20
"""The elements of a tile that is read once, so that it need not stay anywhere."""

LEAST_PARTS = 16
"""The fewest tiles of a sweep, whatever the number of threads, so that sums do not depend on it."""

LONGEST_ROW = 2**18
"""The most elements of a row that is still kept whole; it stays in a cache further away."""

SHORTEST_RUN = 64
"""The fewest elements in a row of memory that a tile may cut columns into."""

TALL = 256
"""The length of columns from which they are swept over along the rows, if once is enough."""

PRODUCT = 2**20
"""The elements of a matrix product's tile."""

NEAR_PRODUCT = 2**21
"""The bytes of scratch memory in the tiles of all threads, the product's among them, which what
follows should find in a cache.
"""

ROWS = 128
"""The fewest rows or columns that a product is cut into; for each tile BLAS copies the other one's
matrix.
"""

WIDE = 12
"""How many times as wide as high a product is whose columns are cut, because for rows BLAS would
copy too much.
"""

TERMS = -1
"""The dimension of the terms of a matrix product, which no code runs over.

Values that vary along it, those of a prologue, have an axis for it in the place of the last.
"""

FEW_ROWS = 32
"""The rows for each thread below which columns are cut as well."""


@dataclass(frozen=True)
class Frame:
    """Tiles: some dimensions are walked index by index, one in blocks, the others are whole.

    Attributes
    ----------
    lengths
        The lengths of all dimensions.
    walked
        The dimensions of which a tile has one index; its arrays have no axes for these.
    blocked
        The dimension of which a tile has a block; None if the only tile is everything.
    block
        How many indices that is, except in the last block.
    terms
        The length of `TERMS`.
    """

    lengths: tuple[int, ...]
    walked: tuple[int, ...] = ()
    blocked: int | None = None
    block: int = 0
    terms: int = 0

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return 1 if self.blocked is None else -(-self.lengths[self.blocked] // self.block)

    @property
    def rest(self) -> int:
        """The indices in the last block, if they are fewer than in the others, else 0."""
        return 0 if self.blocked is None else self.lengths[self.blocked] % self.block

    @property
    def count(self) -> int:
        """The number of tiles."""
        return self.blocks * prod(self.lengths[each] for each in self.walked)

    @property
    def axes(self) -> tuple[int, ...]:
        """The dimensions for which a tile's arrays have axes."""
        return tuple(each for each in range(len(self.lengths)) if each not in self.walked)

    def shape(self, varying: Collection[int], is_rest: bool = False) -> tuple[int, ...]:
        """Return the shape of a value in a tile, or in the last one, which may be smaller."""
        found = [self.length(each, is_rest) if each in varying else 1 for each in self.axes]
        return (*found[:-1], self.terms) if TERMS in varying else tuple(found)

    def length(self, dimension: int, is_rest: bool = False) -> int:
        """Return how many indices of a dimension a tile has, or the last one."""
        if dimension != self.blocked:
            return self.lengths[dimension]
        return self.rest if is_rest and self.rest else self.block


def whole(lengths: Sequence[int], terms: int = 0) -> Frame:
    """Return the frame whose only tile is everything."""
    return Frame(tuple(lengths), terms=terms)


def tile_elements(bytes_per_element: int, machine: Machine) -> int:
    """Return how many elements a tile may have, given the bytes that one takes in all arrays."""
    return min(max(machine.cache // max(bytes_per_element, 1), LEAST), MOST)


def flat(lengths: tuple[int, ...], elements: int, least: int = 1) -> Frame:
    """Return tiles of so many elements, of neighbours, for a sweep in which all tiles are alike.

    There are at least so many tiles if that is possible, and their number is a multiple of it if
    they are few.
    """
    inner = 1
    for dimension in reversed(range(len(lengths))):
        if dimension and inner * lengths[dimension] <= elements:
            inner *= lengths[dimension]
            continue
        outer = prod(lengths[:dimension])
        block = _block(lengths[dimension], max(elements // inner, 1), outer, least, inner == 1)
        return Frame(lengths, tuple(range(dimension)), dimension, block)
    return whole(lengths)


def lower(frame: Frame, height: int) -> Frame:
    """Return tiles of no more rows than a height, unless these have too few elements then."""
    inner = prod(frame.lengths[axis] for axis in frame.axes if axis != frame.blocked)
    if frame.block <= height or inner * height < LEAST:
        return frame
    return replace(frame, block=height)


def rows(
    lengths: tuple[int, ...], reduced: Collection[int], elements: int, least: int, is_single: bool
) -> Frame | None:
    """Return tiles that hold whole rows along the reduced dimensions; None if these are too long.

    `is_single` says that all reductions can be done in one sweep in any case.
    """
    kept = [each for each in range(len(lengths)) if each not in reduced]
    for dimension in kept:
        walked = tuple(each for each in kept if each < dimension)
        rest = [n for each, n in enumerate(lengths) if each not in walked and each != dimension]
        inner = prod(rest)
        is_last = dimension == kept[-1]
        if inner > elements and not (is_last and inner <= LONGEST_ROW):
            continue
        most = max(elements // inner, 1)
        cuts_runs = dimension == len(lengths) - 1 and most < lengths[dimension]
        if cuts_runs and (most < SHORTEST_RUN or (is_single and inner >= TALL)):
            return None
        outer = prod(lengths[each] for each in walked)
        block = _block(lengths[dimension], most, outer, least, cuts_runs)
        return Frame(lengths, walked, dimension, block)
    return None


def product(
    lengths: tuple[int, ...], terms: int, least: int, keeps_rows: bool, scratch: int = 0
) -> Frame:
    """Return tiles of a matrix product: several small matrices, or some rows or columns of one.

    Rows are cut, so that threads write to memory of their own, unless they are few and long. They
    are kept whole if `keeps_rows` says so. Tiles are smaller if there is scratch memory, of so many
    bytes a row.
    """
    *batch, height, width = lengths
    outer, last = prod(batch), len(lengths) - 1
    if batch and 2 * height * width <= PRODUCT and (outer >= least or height < least):
        most = PRODUCT // (height * width)
        outside = prod(batch[:-1])
        block = _block(batch[-1], most, outside, least, False)
        return Frame(lengths, tuple(range(last - 2)), last - 2, block, terms)
    is_few = width > WIDE * height or (width > height and height < FEW_ROWS * least)
    cuts_columns = is_few and not keeps_rows
    elements = NEAR_PRODUCT * width // (least * scratch) if scratch else PRODUCT
    most = max(elements // (height if cuts_columns else width), ROWS)
    blocked = last if cuts_columns else last - 1
    block = _block(lengths[blocked], most, outer, least, cuts_columns)
    return Frame(lengths, tuple(range(last - 1)), blocked, block, terms)


def _block(length: int, most: int, outer: int, least: int, is_aligned: bool) -> int:
    """Return the length of blocks of at most so many indices, about equal, at least so many."""
    blocks = -(-length // most)
    total = blocks * outer
    if total < 4 * least:
        total = -(-total // least) * least
        blocks = min(-(-total // outer), length)
    block = -(-length // blocks)
    if is_aligned and block > 64:
        block = min(-(-block // 16) * 16, length)
    return max(block, 1)
