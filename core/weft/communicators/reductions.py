"""Reductions of the arrays of all ranks, the same to the bit wherever they are computed.

They go in the order of ranks, so every rank that has all arrays gets the same result. The operators
of MPI promise less: their MAX takes NaN or the number beside it, by the order of its operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_UFUNCS: dict[str, np.ufunc] = {"sum": np.add, "max": np.maximum, "min": np.minimum}


def reduce_rows(rows: Sequence[Array] | Array, reduction: str, out: Array) -> None:
    """Write the reduction of arrays, one of each rank in their order, to another.

    Sums of floats of 16 and 8 bits are added up in float32 and rounded once. NaN of any rank gives
    NaN, always the same one. In extrema -0.0 is less than 0.0. Of bools, ``max`` is or and ``min``
    is and. Integers that overflow wrap around.
    """
    kept = out.dtype.itemsize > 2 or out.dtype.kind in "iub"
    found = out if kept else np.empty(out.shape, np.float32)
    np.copyto(found, rows[0])
    for row in rows[1:]:
        _UFUNCS[reduction](found, row if kept else row.astype(np.float32), found)
    if found.dtype.kind == "f":
        _settle(found, rows, reduction)
    elif found.dtype.kind == "c":
        _settle(found.reshape(-1).view(found.real.dtype), (), reduction)
    if found is not out:
        np.copyto(out, found, casting="unsafe")


def _settle(found: Array, rows: Sequence[Array] | Array, reduction: str) -> None:
    """Give NaN one form, and zeros of extrema the sign that IEEE 754 has for them."""
    nan = np.isnan(found)
    if np.count_nonzero(nan):
        found[nan] = np.nan
    if reduction == "sum":
        return
    zero = found == 0
    if np.count_nonzero(zero):
        signs = [np.signbit(row) for row in rows]
        negative = reduce(np.logical_and if reduction == "max" else np.logical_or, signs)
        found[zero] = np.where(negative, np.array(-0.0, found.dtype), 0)[zero]
