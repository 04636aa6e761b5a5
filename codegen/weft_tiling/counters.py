"""Counters: whether counts and indices need 32 bits or 64."""

from __future__ import annotations

from weft.ir import dtypes
from weft.ir.dtypes import DType

MAX_NARROW = 2**31 - 2**24
"""The largest count for a 32-bit counter.

A loop's counter goes up to one step beyond the end without overflow. The longest step is that of
grid-stride loops, the number of work items, less than 2**24; others are blocks, vectors and tiles.
"""


def needs_wide_counter(count: int) -> bool:
    """Whether a count needs a counter of 64 bits."""
    return count > MAX_NARROW


def index_dtype(wide: bool) -> DType:
    """Return the dtype of indices in memory."""
    return dtypes.int64 if wide else dtypes.int32
