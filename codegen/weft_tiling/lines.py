"""Lines: one-dimensional slices along an axis, for scans, searches and sorting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from weft.ir import dtypes
from weft.ir.description import TensorDescription
from weft.ir.dtypes import DType, accumulator_dtype
from weft.kernels.collapse import collapse
from weft.ops.reductions.cumulative import RunningOp
from weft_tiling.counters import index_dtype, needs_wide_counter
from weft_tiling.machine import Machine
from weft_tiling.sharing import GROUPS_PER_UNIT, serial_items

WIDTH = 64
"""The contiguous lines that a serial device processes together."""

ELEMENTS_PER_ITEM = 4
"""The elements of a chunk for each work item."""

MIN_LINE = 64
"""The shortest line that a work group scans."""

MAX_SPLITS = 256
"""The most splits of a line; each of them reads the totals of all before it."""

MIN_CHUNKS = 4
"""The fewest chunks of a split."""

_COST = 16
"""The weight of a sorted element in points of a parallel loop."""


def merge_dims(tensor: TensorDescription, groups: Sequence[Sequence[int]]) -> TensorDescription:
    """Return a tensor with the dimensions of each group merged; strides must allow it."""
    return replace(
        tensor,
        shape=tuple(prod(tensor.shape[dim] for dim in group) for group in groups),
        strides=tuple(tensor.strides[group[-1]] for group in groups),
    )


def as_lines(position: int, *tensors: TensorDescription) -> list[TensorDescription]:
    """Return tensors with an axis moved to the end, and the other dimensions collapsed.

    The lengths of that axis may differ between tensors.
    """
    rank = len(tensors[0].shape)
    others = [dim for dim in range(rank) if dim != position]
    turned = [each.transpose([*others, position]) for each in tensors]
    shape = turned[0].shape[:-1]
    groups = collapse(shape, [0] * len(shape), [each.strides[:-1] for each in turned])
    return [merge_dims(each, (*groups, (rank - 1,))) for each in turned]


def with_axis(tensor: TensorDescription, position: int, length: int) -> TensorDescription:
    """Return a tensor broadcast along a new axis."""
    shape, strides = list(tensor.shape), list(tensor.strides)
    shape.insert(position, length)
    strides.insert(position, 0)
    return replace(tensor, shape=tuple(shape), strides=tuple(strides))


def are_columns(x: TensorDescription) -> bool:
    """Whether memory is contiguous across lines rather than along them."""
    if len(x.shape) < 2 or x.shape[-2] < 4:
        return False
    return abs(x.strides[-2]) < abs(x.strides[-1])


def line_count(x: TensorDescription) -> int:
    """Return the number of lines."""
    return prod(x.shape[:-1])


def suits_work_groups(x: TensorDescription, processor: Machine, least: int) -> bool:
    """Whether work groups process lines, which must have at least `least` elements."""
    if processor.is_serial or x.shape[-1] < least:
        return False
    return not are_columns(x) or line_count(x) < processor.units * GROUPS_PER_UNIT


def line_blocks(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the grid of tiles of `WIDTH` lines, without the dimension along the lines."""
    return (*shape[:-2], -(-shape[-2] // WIDTH))


def split_count(lines: int, length: int, processor: Machine) -> int:
    """Return the number of splits of each line."""
    if processor.is_serial:
        return 1
    min_length = MIN_CHUNKS * processor.group * ELEMENTS_PER_ITEM
    return max(1, min(MAX_SPLITS, 2 * processor.units // lines, length // min_length))


def part_length(length: int, splits: int, group: int) -> int:
    """Return the length of a split, a multiple of a chunk."""
    chunk = group * ELEMENTS_PER_ITEM
    return -(-length // splits // chunk) * chunk if splits > 1 else length


def scan_bytes(op: RunningOp, processor: Machine) -> int:
    """Return the bytes of the splits' totals: two scalars for a recurrence, else one."""
    length = op.axes.shape[op.position]
    lines = op.axes.size // length if op.axes.size else 1
    splits = split_count(lines, length, processor)
    return 2 * lines * splits * accumulator_dtype(op.dtype).itemsize if splits > 1 else 0


def sort_key_dtype(dtype: DType) -> DType:
    """Return the dtype of the sort keys of a dtype."""
    return dtypes.uint64 if dtype.itemsize == 8 else dtypes.uint32


def next_power_of_two(length: int) -> int:
    """Return the least power of two that is at least `length`."""
    return 1 << (length - 1).bit_length()


def place_dtype(length: int, processor: Machine) -> DType:
    """Return the dtype of positions along a line, and of a network's counters.

    The counters go up to twice the number of slots of the network.
    """
    return index_dtype(
        needs_wide_counter(length if processor.is_serial else 2 * next_power_of_two(length))
    )


def fits_group(length: int, dtype: DType, processor: Machine) -> bool:
    """Return whether the keys and places of a line fit in local memory."""
    each = sort_key_dtype(dtype).itemsize + place_dtype(length, processor).itemsize
    return next_power_of_two(length) * each <= processor.local_bytes


def concurrent_lines(count: int, length: int, processor: Machine) -> int:
    """Return how many lines are sorted concurrently."""
    if processor.is_serial:
        return min(count, serial_items(count * length * _COST, processor))
    return min(count, processor.units)


def network_bytes(count: int, length: int, dtype: DType, processor: Machine) -> int:
    """Return the bytes of the keys and places of a sorting network that does not fit a group."""
    if fits_group(length, dtype, processor):
        return 0
    each = sort_key_dtype(dtype).itemsize + place_dtype(length, processor).itemsize
    slots = next_power_of_two(length)
    return concurrent_lines(count, length, processor) * slots * each + 4 * 256
