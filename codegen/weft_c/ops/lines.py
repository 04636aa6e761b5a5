"""Lines: one-dimensional slices along an axis, for scans, searches and sorting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from weft.ir.description import TensorDescription
from weft.kernels.collapse import collapse
from weft_c.loops.parallel import GROUPS_PER_UNIT
from weft_c.ops.views import merge_dims
from weft_c.processor import Processor

WIDTH = 64
"""The contiguous lines that a serial device processes together."""


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


def suits_work_groups(x: TensorDescription, processor: Processor, least: int) -> bool:
    """Whether work groups process lines, which must have at least `least` elements."""
    if processor.is_serial or x.shape[-1] < least:
        return False
    return not are_columns(x) or line_count(x) < processor.units * GROUPS_PER_UNIT


def line_blocks(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the grid of tiles of `WIDTH` lines, without the dimension along the lines."""
    return (*shape[:-2], -(-shape[-2] // WIDTH))
