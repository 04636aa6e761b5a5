"""Counters: how many bits loops count with, and find elements of memory with."""

from __future__ import annotations

from weft.ir import dtypes
from weft.ir.description import TensorDescription
from weft.ir.dtypes import DType
from weft_c.source.functions import byte_range

MAX_NARROW = 2**31 - 2**24
"""The most things that are counted with 32 bits.

A loop ends once its counter is a step beyond the last thing, which must not be more than 32 bits
hold. The longest step is that of parallel devices, whose work items take turns: there are less than
2**24 of them. Others are blocks, vectors and tiles.
"""


def needs_wide_counter(count: int) -> bool:
    """Whether so many things need a counter of 64 bits."""
    return count > MAX_NARROW


def is_wide(*tensors: TensorDescription) -> bool:
    """Whether indices into tensors need 64 bits, as do counters of their elements."""
    return any(
        needs_wide_counter(max(each.size, byte_range(each)[1] // max(each.dtype.itemsize, 1)))
        for each in tensors
    )


def index_type(wide: bool) -> str:
    """Return the type of indices and counters."""
    return "i64" if wide else "i32"


def index_dtype(wide: bool) -> DType:
    """Return the dtype of indices that are kept in memory."""
    return dtypes.int64 if wide else dtypes.int32
