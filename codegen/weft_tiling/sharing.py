"""Sharing: how many work items and groups work is divided among."""

from __future__ import annotations

from weft.ir.guards import recomputed
from weft_tiling.machine import Machine

GRAIN = 4096
"""The fewest points for each work item on a serial device."""

GROUPS_PER_UNIT = 8
"""The most work groups, or work items of a serial device, for each compute unit."""

MIN_SPLIT_POINTS = 1024
"""The fewest points of a split."""


def serial_items(points: int, processor: Machine) -> int:
    """Return the number of work items for some points on a serial device."""
    if processor.units == 1:
        return 1
    (items,) = recomputed(item_count, points // GRAIN, processor.units, for_largest=True)
    return items  # type: ignore[no-any-return]


def item_count(grains: int, units: int) -> tuple[int]:
    """Return how many work items, or groups of them, share some work on so many units."""
    return (max(1, min(grains, units * GROUPS_PER_UNIT)),)


def parallel_items(points: int, processor: Machine) -> int:
    """Return the number of work items for some points on a parallel device, in whole groups."""
    count = -(-points // processor.group)
    (groups,) = recomputed(item_count, count, processor.units, for_largest=True)
    return groups * processor.group  # type: ignore[no-any-return]


def count_splits(
    rows: int,
    reduced: int,
    processor: Machine,
    min_points: int = MIN_SPLIT_POINTS,
    points: int | None = None,
) -> int:
    """Return the number of splits of each row; 1 for no split.

    `rows` counts tiles of columns for column reductions; `points` is then the number of points in
    all of them.
    """
    if not rows or reduced < 2 * min_points:
        return 1
    wanted = processor.units * GROUPS_PER_UNIT
    if processor.is_serial:
        wanted = min(wanted, serial_items(points or rows * reduced, processor))
    return max(1, min(wanted // rows, reduced // min_points))
