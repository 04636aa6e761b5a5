"""The width of loop counters and indices: 32 or 64 bits."""

from __future__ import annotations

from weft.ir.description import TensorDescription
from weft_tiling.counters import needs_wide_counter


def is_wide(*tensors: TensorDescription) -> bool:
    """Whether indices into any of some tensors, and counters of its elements, need 64 bits."""
    return any(
        needs_wide_counter(max(each.size, each.byte_range[1] // max(each.dtype.itemsize, 1)))
        for each in tensors
    )


def index_type(wide: bool) -> str:
    """Return the C type of indices and counters, which on the host has 64 bits either way."""
    return "i64" if wide else "index_t"
