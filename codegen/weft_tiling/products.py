"""Matrix products: the tile of a work group, and the parts that sums are split in."""

from __future__ import annotations

from dataclasses import dataclass

from weft_tiling.machine import Machine

SLICE = 16
"""The terms of a slice."""

MIN_SPLIT_TERMS = 128
"""The fewest terms of a split."""

MAX_UNTILED_WORK = 2048
"""The most multiplications of a product that is computed without tiles."""


@dataclass(frozen=True)
class TileShape:
    """The tile of a work group: a grid of work items, each with a square block of sums."""

    down: int
    across: int
    block: int

    @property
    def rows(self) -> int:
        """The rows of a tile."""
        return self.down * self.block

    @property
    def columns(self) -> int:
        """The columns of a tile."""
        return self.across * self.block


def tile_shape(m: int, n: int, processor: Machine) -> TileShape:
    """Return the tile of a work group for products of so many rows and columns."""
    group = processor.group
    across = 1 << (group.bit_length() // 2)
    down = group // across
    shared = SLICE * (down + across + 1) * 8 * 8
    is_large = m * n >= processor.units * (8 * down) * (8 * across)
    return TileShape(down, across, 8 if is_large and shared <= processor.local_bytes else 4)


def tile_columns(m: int, n: int, processor: Machine) -> int:
    """Return the columns of a tile."""
    return tile_shape(m, n, processor).columns


def split_k(batch: int, m: int, n: int, k: int, processor: Machine) -> int:
    """Return the number of splits of the sums."""
    shape = tile_shape(m, n, processor)
    tiles = batch * -(-m // shape.rows) * -(-n // shape.columns)
    return max(1, min(2 * processor.units // max(tiles, 1), k // MIN_SPLIT_TERMS))


def column_splits(batch: int, columns: int, k: int, processor: Machine) -> int:
    """Return the parts that the sums of columns are split in, on a device that is not serial."""
    wanted = processor.units * processor.group * 2 // max(batch * columns, 1)
    return max(1, min(wanted, k // MIN_SPLIT_TERMS))
