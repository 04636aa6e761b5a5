"""Memory for large results: that of an earlier result if nobody holds it any more.

The first touch of fresh memory takes longer than most of what a call does with it. What the caller
gets is a new array each time, a view of a buffer; whoever holds the array or any view of it holds
the buffer, which Python's reference count tells.
"""

from __future__ import annotations

import sys
from collections import deque
from contextlib import suppress
from typing import Any

import numpy as np

from weft.dtypes import DType

Array = np.ndarray[Any, Any]

SMALLEST = 2**18
"""Bytes; the C library has memory for less at hand."""

MOST = 2
"""The buffers kept for one result, so that there is one while the caller still holds the last."""


class Recycled:
    """Memory for one result of a program; safe in several threads."""

    def __init__(self, shape: tuple[int, ...], dtype: DType) -> None:
        self.shape = shape
        self.dtype = dtype
        self.buffers: deque[Array] = deque()

    def take(self) -> Array:
        """Return an array for the result, which the caller of the program will own."""
        buffers = self.buffers
        with suppress(IndexError):  # another thread has taken the rest
            for _ in range(len(buffers)):
                buffer = buffers.popleft()
                if sys.getrefcount(buffer) <= _UNHELD:
                    return self._shown(buffer)
                buffers.append(buffer)
            if len(buffers) >= MOST:
                buffers.popleft()
        return self._shown(np.empty(self.shape, self.dtype))

    def _shown(self, buffer: Array) -> Array:
        shown = buffer[...]
        self.buffers.append(buffer)
        return shown


def _references() -> int:
    """Return the reference count that `take` sees of a buffer that nobody holds."""
    buffers = deque([np.empty(0)])
    for _ in range(len(buffers)):
        buffer = buffers.popleft()
        return sys.getrefcount(buffer)
    return 0


_UNHELD = _references()
