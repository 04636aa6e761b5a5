"""Tensor descriptions: shape, strides and offset of a tensor in a buffer, and views of it.

Offsets and strides are in bytes. Every method returns a new description of the same buffer, or
None where a view cannot express what was asked and a copy is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from weft.ir.dtypes import DType


# Nobody changes one; but one that is frozen takes four times as long to make.
@dataclass(slots=True, unsafe_hash=True)
class TensorDescription:
    """Shape, strides and offset in bytes, dtype, and the buffer `base` that holds the elements."""

    shape: tuple[int, ...]
    dtype: DType
    strides: tuple[int, ...]
    offset: int = 0
    base: Any = None

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The bytes that the elements would take without gaps."""
        return self.size * self.dtype.itemsize

    @property
    def byte_range(self) -> tuple[int, int]:
        """The first byte that the elements cover in the buffer, and the number of bytes."""
        if not self.size:
            return self.offset, 0
        below = above = 0
        for length, step in zip(self.shape, self.strides, strict=True):
            if step < 0:
                below += (length - 1) * step
            else:
                above += (length - 1) * step
        return self.offset + below, above - below + self.dtype.itemsize

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements lie in row-major order without gaps."""
        plain = row_major(self.shape, self.dtype.itemsize)
        return (
            self.strides == plain
            or self.size == 0
            or all(
                stride == expected
                for length, stride, expected in zip(self.shape, self.strides, plain, strict=True)
                if length != 1
            )
        )

    def transpose(self, permutation: Sequence[int]) -> TensorDescription:
        """Return the dimensions in another order."""
        return self._seen(
            tuple([self.shape[place] for place in permutation]),
            tuple([self.strides[place] for place in permutation]),
        )

    reorder = transpose

    def broadcast(self, shape: tuple[int, ...], dims: Sequence[int]) -> TensorDescription:
        """Return a view of a larger shape; `dims` says where each dimension of this one goes."""
        strides = [0] * len(shape)
        for place, length, stride in zip(dims, self.shape, self.strides, strict=True):
            strides[place] = stride if length == shape[place] else 0
        return self._seen(shape, tuple(strides))

    def slice(self, bounds: Sequence[tuple[int, int, int]]) -> TensorDescription:
        """Return the elements ``start + i * step`` for ``i < length`` along each dimension."""
        shape = tuple(length for _, length, _ in bounds)
        # An empty view stays where it is: its place might lie outside the buffer.
        starts = (start for start, _, _ in bounds) if prod(shape) else (0,) * len(bounds)
        moved = sum(start * stride for start, stride in zip(starts, self.strides, strict=True))
        steps = zip(bounds, self.strides, strict=True)
        strides = tuple(stride * step for (_, _, step), stride in steps)
        return TensorDescription(shape, self.dtype, strides, self.offset + moved, self.base)

    def with_dtype(self, dtype: DType) -> TensorDescription:
        """Return the same bytes as elements of another dtype of the same size."""
        return TensorDescription(self.shape, dtype, self.strides, self.offset, self.base)

    def bitcast(self, dtype: DType) -> TensorDescription | None:
        """Return the same bytes as elements of another dtype, of the same, half or twice the size.

        Elements of half the size are a last dimension of length 2 more; such a dimension becomes
        elements of twice the size, if the halves are in place.
        """
        own, size = self.dtype.itemsize, dtype.itemsize
        shape, strides = self.shape, self.strides
        if size < own:
            shape, strides = (*shape, 2), (*strides, size)
        elif size > own:
            if strides[-1] != own or any(each % size for each in (self.offset, *strides[:-1])):
                return None
            shape, strides = shape[:-1], strides[:-1]
        return TensorDescription(shape, dtype, strides, self.offset, self.base)

    def part(self, number: int) -> TensorDescription:
        """Return the real parts of complex elements, or with 1 the imaginary ones."""
        dtype = np.dtype(f"f{self.dtype.itemsize // 2}")
        # An empty view stays where it is, as in `slice`.
        offset = self.offset + (number * dtype.itemsize if self.size else 0)
        return TensorDescription(self.shape, dtype, self.strides, offset, self.base)

    def pairs(self) -> TensorDescription:
        """Return the parts of complex elements along a last dimension of length 2."""
        found = self.bitcast(self.part(0).dtype)
        assert found is not None, "the parts of a number are in place"
        return found

    def paired(self) -> TensorDescription | None:
        """Return the pairs along the last dimension as complex elements, if they are in place."""
        return self.bitcast(np.dtype(f"c{2 * self.dtype.itemsize}"))

    def windows(self, spans: Sequence[tuple[int, int, int, int]]) -> TensorDescription:
        """Return all windows that slide along each dimension, which overlap in memory.

        `spans` gives for each dimension the number of windows, the step between them, the number of
        elements in one and the step between those. Each dimension becomes two, the windows first.
        """
        pairs = [
            ((count, step * stride), (length, gap * stride))
            for (count, step, length, gap), stride in zip(spans, self.strides, strict=True)
        ]
        flat = [each for pair in pairs for each in pair]
        return self._seen(
            tuple([length for length, _ in flat]), tuple([stride for _, stride in flat])
        )

    def cast(self, shape: tuple[int, ...]) -> TensorDescription | None:
        """Return the same elements in row-major order under another shape, if strides allow."""
        strides = reshaped_strides(self.shape, self.strides, shape, self.dtype.itemsize)
        return None if strides is None else self._seen(shape, strides)

    def _seen(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> TensorDescription:
        """Return a view that begins at the same place."""
        return TensorDescription(shape, self.dtype, strides, self.offset, self.base)

    def flatten(self) -> TensorDescription | None:
        """Return all elements along one dimension, if strides allow."""
        return self.cast((self.size,))

    def unflatten(self, shape: tuple[int, ...]) -> TensorDescription | None:
        """Return one dimension split into several, if strides allow."""
        return self.cast(shape)


def row_major(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Return the strides in bytes of a row-major tensor without gaps."""
    return _row_major(tuple(shape), itemsize)


@lru_cache(maxsize=4096)
def _row_major(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    strides = []
    step = itemsize
    for length in reversed(shape):
        strides.append(step)
        step *= max(length, 1)
    return tuple(reversed(strides))


def contiguous(shape: tuple[int, ...], dtype: DType, base: object = None) -> TensorDescription:
    """Describe a row-major tensor at the start of a buffer."""
    return TensorDescription(shape, dtype, row_major(shape, dtype.itemsize), 0, base)


def reshaped_strides(
    shape: Sequence[int], strides: Sequence[int], target: Sequence[int], itemsize: int
) -> tuple[int, ...] | None:
    """Return strides that show the same elements under another shape, or None if none do.

    Both shapes are walked together in the smallest groups of equal size; a group of source
    dimensions must be collapsible into one evenly strided run.
    """
    if prod(shape) != prod(target):
        raise ValueError(f"cannot reshape {tuple(shape)} to {tuple(target)}")
    if prod(shape) == 0:
        return row_major(target, itemsize)
    source = [(n, stride) for n, stride in zip(shape, strides, strict=True) if n != 1]
    result = [0] * len(target)
    taken = 0
    place = 0
    while taken < len(source):
        first, (have, _) = taken, source[taken]
        start, want = place, 1
        while want != have:
            if want < have:
                want *= target[place]
                place += 1
            else:
                taken += 1
                have *= source[taken][0]
        group = source[first : taken + 1]
        if any(a[1] != b[0] * b[1] for a, b in pairwise(group)):
            return None
        step = group[-1][1]
        for index in reversed(range(start, place)):
            result[index] = step
            step *= target[index]
        taken += 1
    return tuple(result)
