"""The result pool: reuses the memory of large results that are no longer referenced.

The first access to fresh pages costs more than most of a call. Each call returns a new array, a
view of pooled memory; Python's reference count tells whether the array or any view of it is still
referenced. The memory is page-aligned, as devices that share the host's memory require.
"""

from __future__ import annotations

import math
import mmap
import sys
from collections import deque
from contextlib import suppress

import numpy as np

from weft.errors import HostMemoryError
from weft.ir.dtypes import Array, DType

SMALLEST = 2**18
"""Bytes; the C library has memory for less at hand."""

MOST = 2
"""The buffers kept for one result, so that there is one while the caller still holds the last."""


class ResultPool:
    """The memory for one result of a program, which `what` names in errors; thread-safe."""

    def __init__(self, shape: tuple[int, ...], dtype: DType, what: str = "a result") -> None:
        self.shape = shape
        self.dtype = dtype
        self.what = what
        self.nbytes = math.prod(shape) * dtype.itemsize
        self.buffers: deque[Array] = deque()

    def take(self) -> Array:
        """Return an array for the result, owned by the program's caller.

        Raises HostMemoryError if there is no memory for it.
        """
        buffers = self.buffers
        with suppress(IndexError):  # another thread has taken the rest
            for _ in range(len(buffers)):
                buffer = buffers.popleft()
                if sys.getrefcount(buffer.base) <= _UNHELD:
                    return self._view_of(buffer)
                buffers.append(buffer)
            if len(buffers) >= MOST:
                buffers.popleft()
        try:
            return self._view_of(_page_aligned(self.nbytes, self.shape, self.dtype))
        except (MemoryError, ValueError) as error:  # too much for this host, or for any
            raise HostMemoryError(
                f"the host has no {self.nbytes:,} bytes for {self.what}: return less of it, "
                "compute it for fewer elements at a time, or give out= an array of a file "
                "(numpy.memmap)"
            ) from error

    def _view_of(self, buffer: Array) -> Array:
        array = buffer[...]
        self.buffers.append(buffer)
        return array


def _page_aligned(nbytes: int, shape: tuple[int, ...], dtype: DType) -> Array:
    """Return a page-aligned array."""
    memory = np.empty(nbytes + mmap.PAGESIZE, np.uint8)
    return np.ndarray(shape, dtype, memory, -memory.ctypes.data % mmap.PAGESIZE)


def _references() -> int:
    """Return the reference count of unreferenced memory, as `take` sees it."""
    buffers = deque([_page_aligned(0, (0,), np.dtype(np.uint8))])
    for _ in range(len(buffers)):
        buffer = buffers.popleft()
        return sys.getrefcount(buffer.base)
    return 0


_UNHELD = _references()
