"""Reductions of special values: right, and the same to the bit on all ranks.

Argument: the backend that computes them as ops.
"""

from __future__ import annotations

import sys
from hashlib import sha256
from typing import Any

import ml_dtypes
import numpy as np

import weft
from weft.communicators import Collective, connected

ranks = connected()
mine, size = ranks.rank, ranks.size
FLOATS = ["float16", "float32", "float64", ml_dtypes.bfloat16]
INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
SIZES = (0, 1, 7, 64 * size, 40_000 * size + 4)
"""Some go to all ranks at once, others in parts, which need not be equal."""


def given(rank: int, dtype: np.dtype[Any], count: int) -> Any:
    """Return what a rank has: NaN of other payloads, infinities, zeros, the largest, and others."""
    generator = np.random.default_rng([rank, count])
    if dtype == np.bool_:
        return generator.random(count) < 0.5
    if dtype.name in INTEGERS:
        return np.frombuffer(generator.bytes(count * dtype.itemsize), dtype)
    real = np.dtype("f4" if dtype == "complex64" else "f8") if dtype.kind == "c" else dtype
    largest = ml_dtypes.finfo(real).max
    nan = np.frombuffer(generator.bytes(count * real.itemsize), real)
    special = [np.full(count, value, real) for value in (0.0, -0.0, np.inf, -np.inf, largest)]
    ordinary = generator.normal(size=count).astype(real)
    kinds = [ordinary, np.where(np.isnan(nan), nan, np.array(np.nan, real)), *special]
    found = np.choose(generator.integers(0, 12, count).clip(4) - 4, [*kinds, ordinary])
    found = np.where(generator.random(count) < 0.5, ordinary, found).astype(real)
    return found if real is dtype else (found + 1j * found[::-1]).astype(dtype)


def expected(rows: list[Any], reduction: str) -> Any:
    """Return the reduction by its definition, one row after the other."""
    dtype = rows[0].dtype
    wide = dtype if dtype.itemsize > 2 or dtype.kind in "iub" else np.dtype("f4")
    rows = [row.astype(wide) for row in rows]
    found = rows[0].copy()
    for row in rows[1:]:
        if reduction == "sum":
            found = (found + row).astype(wide)
        elif dtype.kind in "iub":
            found = (np.maximum if reduction == "max" else np.minimum)(found, row)
        else:
            bigger = (row > found) | ((row == found) & (np.signbit(found) > np.signbit(row)))
            taken = np.where(bigger if reduction == "max" else ~bigger, row, found)
            found = np.where(np.isnan(found) | np.isnan(row), np.array(np.nan, wide), taken)
    return found.astype(dtype)


def require_equal(got: Any, want: Any, what: str) -> None:
    """Compare values, signs of zeros, and the bits of all ranks."""
    assert got.dtype == want.dtype, what
    digests = ranks.gather_text(sha256(got.tobytes()).hexdigest(), what)
    if got.dtype.kind not in "iubc":
        got, want = got.astype("f8"), want.astype("f8")  # NumPy's test knows no NaN of bfloat16
        told = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(got)[told], np.signbit(want)[told], err_msg=what)
    np.testing.assert_array_equal(got, want, err_msg=what)
    assert len(set(digests)) == 1, f"{what}: other bits on other ranks"


def reductions(dtype: np.dtype[Any]) -> list[str]:
    """Return the reductions that a dtype has."""
    if dtype.kind == "b":
        return ["max", "min"]
    return ["sum"] if dtype.kind == "c" else ["sum", "max", "min"]


np.seterr(all="ignore")
count = 0
for kind in (*FLOATS, *INTEGERS, "bool", "complex64", "complex128"):
    dtype = np.dtype(kind)
    for length in SIZES:
        rows = [given(rank, dtype, length) for rank in range(size)]
        for reduction in reductions(dtype):
            what = f"{reduction} of {length} {dtype.name}"
            want = expected(rows, reduction)
            got = ranks.run(Collective("all_reduce", reduction, label=what), rows[mine])
            require_equal(got, want, what)
            if length % size == 0:
                collective = Collective("reduce_scatter", reduction, label=what)
                part = ranks.run(collective, rows[mine])
                whole = ranks.run(Collective("all_gather", label=what), part)
                require_equal(whole, want, f"scattered {what}")
            count += 1

for kind in ("float16", "float32", "bool", "int32"):
    dtype = np.dtype(kind)
    rows = [given(rank, dtype, 64 * size) for rank in range(size)]
    x = weft.placeholder(rows[0].shape, dtype)
    names = reductions(dtype) + (["mean"] if dtype.kind == "f" else [])
    results = [weft.all_reduce(x, name) for name in names]
    found = weft.make_transformer(sys.argv[1]).computation(results, x)(rows[mine])
    for name, got in zip(names, found, strict=True):
        if name == "mean":
            want = (expected(rows, "sum") / np.array(size, dtype)).astype(dtype)
        else:
            want = expected(rows, name)
        require_equal(got, want, f"{name} of {kind} as an op")
print(f"rank {mine} of {size}: {count} reductions are right", flush=True)
