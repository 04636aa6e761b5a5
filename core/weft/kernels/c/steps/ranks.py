"""Ranks: unsigned integers in the order of values, in which NaN is above all and 0 equals -0."""

from __future__ import annotations

from weft import dtypes
from weft.dtypes import DType
from weft.kernels.c.forms import Form


def rank_dtype(dtype: DType) -> DType:
    """Return the dtype of the rank of a value."""
    return dtypes.uint64 if dtype.itemsize == 8 else dtypes.uint32


def rank_type(dtype: DType) -> str:
    """Return the type of a rank."""
    return Form().type(rank_dtype(dtype))


def rank_of(dtype: DType, value: str, descending: bool = False) -> str:
    """Return the rank of a value, or that in reversed order."""
    rank = f"weft_rank_{Form().type(dtype)}({value})"
    return f"~{rank}" if descending else rank
