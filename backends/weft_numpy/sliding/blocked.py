"""Blocked: the base of work on blocks of arrays, distributed over threads."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from weft.ir.dtypes import DType
from weft_numpy.thread_pool import parallel_for

Array = np.ndarray[Any, Any]

CACHED = 1 << 20
"""The bytes of the arrays of a block, which fit a core's cache."""

LINE = 64
"""The alignment of arrays in bytes, a cache line."""


class Piece(NamedTuple):
    """An array of scratch memory: its number of elements and dtype."""

    size: int
    dtype: DType

    @property
    def nbytes(self) -> int:
        """Its size in bytes, rounded up to a cache line."""
        return -(-self.size * self.dtype.itemsize // LINE) * LINE


def shaped(memory: Array, *shape: int) -> Array:
    """Return the first elements of a flat array in a shape."""
    return memory[: math.prod(shape)].reshape(shape)


class Blocked:
    """The base of work in blocks, which is called with arrays.

    `prepare` sets its memory once, before the first call.

    Parameters
    ----------
    numbers
        The parameters of the work; the last one is the number of threads.

    Attributes
    ----------
    lanes
        The scratch arrays of each thread.
    """

    lanes: list[Any]

    def __init__(self, *numbers: Any) -> None:
        self.numbers = numbers
        self.threads: int = numbers[-1]

    def pieces(self) -> list[Piece]:
        """Return the arrays that each thread needs."""
        raise NotImplementedError

    def lane(self, arrays: list[Array]) -> Any:
        """Return the views that a thread works with, given its arrays."""
        return arrays

    def work(self, parts: Iterator[int], lane: Any, *arrays: Any) -> None:
        """Compute some numbered parts of the work."""
        raise NotImplementedError

    @property
    def workspace(self) -> int:
        """The bytes of scratch memory for all threads."""
        return max(LINE, self.threads * sum(piece.nbytes for piece in self.pieces()))

    def prepare(self, memory: Array) -> Any:
        """Return the work with memory of `workspace` bytes."""
        start, self.lanes = 0, []
        pieces = self.pieces()
        for _ in range(self.threads):
            arrays = []
            for piece in pieces:
                stretch = memory[start : start + piece.size * piece.dtype.itemsize]
                arrays.append(stretch.view(piece.dtype))
                start += piece.nbytes
            self.lanes.append(self.lane(arrays))
        return self

    def share(self, count: int, *arrays: Any) -> None:
        """Distribute parts over threads; without images there are none."""
        if count:
            parallel_for(self.work, count, self.lanes, *arrays)
