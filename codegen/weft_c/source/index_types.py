"""The width of loop counters and indices: 32 or 64 bits."""

from __future__ import annotations

from weft.ir import dtypes
from weft.ir.description import TensorDescription
from weft.ir.dtypes import DType

MAX_NARROW = 2**31 - 2**24
"""The largest count for a 32-bit counter.

A loop's counter goes up to one step beyond the end without overflow. The longest step is that of
grid-stride loops, the number of work items, less than 2**24; others are blocks, vectors and tiles.
"""


def needs_wide_counter(count: int) -> bool:
    """Whether a count needs a counter of 64 bits."""
    return count > MAX_NARROW


def is_wide(*tensors: TensorDescription) -> bool:
    """Whether indices into any of some tensors, and counters of its elements, need 64 bits."""
    return any(
        needs_wide_counter(max(each.size, each.byte_range[1] // max(each.dtype.itemsize, 1)))
        for each in tensors
    )


def index_type(wide: bool) -> str:
    """Return the C type of indices and counters, which on the host has 64 bits either way."""
    return "i64" if wide else "index_t"


def index_dtype(wide: bool) -> DType:
    """Return the dtype of indices in memory."""
    return dtypes.int64 if wide else dtypes.int32
