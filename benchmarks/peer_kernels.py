"""Loops in numba as one writes them by hand who knows it well: parallel over blocks, fast sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from models.block import EPSILON

BLOCK = 1 << 15
"""The elements of a block, which stay in cache."""


def chain() -> Callable[..., Any]:
    """Return the chain of ten ops."""
    import numba

    @numba.njit(parallel=True, fastmath={"contract", "reassoc", "nsz", "arcp"})  # type: ignore[untyped-decorator]
    def run(x: Any) -> Any:
        out = np.empty_like(x)
        for i in numba.prange(x.size):
            y = np.tanh(x[i] * np.float32(0.8) + np.float32(0.3))
            z = np.exp(y * np.float32(0.5)) if x[i] > 0 else y
            out[i] = max(z * np.float32(1.1) + np.float32(0.2), np.float32(-0.5))
        return out

    return run  # type: ignore[no-any-return]


def softmax() -> Callable[..., Any]:
    """Return softmax of rows."""
    import numba

    @numba.njit(parallel=True, fastmath=True)  # type: ignore[untyped-decorator]
    def run(x: Any) -> Any:
        out = np.empty_like(x)
        for row in numba.prange(x.shape[0]):
            top = np.float32(-np.inf)
            for i in range(x.shape[1]):
                top = max(top, x[row, i])
            total = np.float32(0)
            for i in range(x.shape[1]):
                power = np.exp(x[row, i] - top)
                out[row, i] = power
                total += power
            share = np.float32(1) / total
            for i in range(x.shape[1]):
                out[row, i] *= share
        return out

    return run  # type: ignore[no-any-return]


def layer_norm() -> Callable[..., Any]:
    """Return layer norm of rows."""
    import numba

    @numba.njit(parallel=True, fastmath=True)  # type: ignore[untyped-decorator]
    def run(scale: Any, bias: Any, x: Any) -> Any:
        out = np.empty_like(x)
        count = np.float32(x.shape[1])
        for row in numba.prange(x.shape[0]):
            total = np.float32(0)
            for i in range(x.shape[1]):
                total += x[row, i]
            mean = total / count
            squares = np.float32(0)
            for i in range(x.shape[1]):
                squares += (x[row, i] - mean) ** 2
            slope = np.float32(1) / np.sqrt(squares / count + np.float32(EPSILON))
            for i in range(x.shape[1]):
                out[row, i] = (x[row, i] - mean) * slope * scale[i] + bias[i]
        return out

    return run  # type: ignore[no-any-return]


def total() -> Callable[..., Any]:
    """Return the sum of a vector, block by block."""
    import numba

    @numba.njit(parallel=True, fastmath=True)  # type: ignore[untyped-decorator]
    def run(x: Any) -> Any:
        sums = np.zeros((x.size + BLOCK - 1) // BLOCK)
        for block in numba.prange(sums.size):
            part = np.float32(0)
            for i in range(block * BLOCK, min(x.size, (block + 1) * BLOCK)):
                part += x[i]
            sums[block] = part
        return np.float32(sums.sum())

    return run  # type: ignore[no-any-return]


def row_sums() -> Callable[..., Any]:
    """Return the sums of rows."""
    import numba

    @numba.njit(parallel=True, fastmath=True)  # type: ignore[untyped-decorator]
    def run(x: Any) -> Any:
        out = np.empty(x.shape[0], x.dtype)
        for row in numba.prange(x.shape[0]):
            part = np.float32(0)
            for i in range(x.shape[1]):
                part += x[row, i]
            out[row] = part
        return out

    return run  # type: ignore[no-any-return]


KERNELS: dict[str, Callable[[], Callable[..., Any]]] = {
    "chain of ten, 1e3": chain,
    "chain of ten, 1e5": chain,
    "chain of ten, 1e7": chain,
    "softmax 4096x1024": softmax,
    "layer norm 4096x1024": layer_norm,
    "sum of 1e7": total,
    "row sums 4096x4096": row_sums,
}
"""By the name of the work, what compiles its loops."""
