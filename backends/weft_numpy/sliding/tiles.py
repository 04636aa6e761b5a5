"""The gradient of a max-pool whose windows tile the images without overlap.

Loops over the few elements of a window are dominated by NumPy's overhead. So values of windows are
repeated for each of their elements, and the rest is computed on whole, contiguous images.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from weft.nn.spatial.geometry import Numbers, Sliding
from weft_numpy.sliding.blocked import Array, Piece, shaped
from weft_numpy.sliding.pooling import Pooling

MOST_ELEMENTS = 255
"""The most elements of a window, which a byte can count."""


def are_tiles(lengths: Numbers, sliding: Sliding) -> bool:
    """Whether each element is in exactly one window, and windows are small."""
    kernel, stride, padding, dilation = sliding
    is_whole = all(n % size == 0 for n, size in zip(lengths, kernel, strict=True))
    is_dense = kernel == stride and all(n == 1 for n in dilation) and not any(map(any, padding))
    return is_dense and is_whole and math.prod(kernel) <= MOST_ELEMENTS


class MaxPoolTilesInput(Pooling):
    """The gradient of a max-pool, divided among the maxima of each window."""

    arrays_of_images = 4

    def __init__(self, *numbers: Any) -> None:
        super().__init__(*numbers)
        self.axes = [axis for axis, size in enumerate(self.sliding.kernel) if size > 1]

    def pieces(self) -> list[Piece]:
        """Return arrays of values and counts, for the elements and after each axis."""
        sizes = [self.size(*self._lengths(axis)) for axis in range(len(self.lengths) + 1)]
        return [Piece(size, dtype) for dtype in (self.wide, np.dtype(np.uint8)) for size in sizes]

    def _lengths(self, reduced: int) -> Numbers:
        """Return the spatial lengths after the reduction of `reduced` axes."""
        return (*self.counts[:reduced], *self.lengths[reduced:])

    def __call__(self, delta: Array, x: Array, maxima: Array, out: Array) -> None:
        """Write the gradient of the images."""
        self.share(self.blocks, delta, x, maxima, out)

    def work(self, parts: Iterator[int], lane: list[Array], *arrays: Array) -> None:
        """Find the maxima, then write the share of each."""
        for part in parts:
            delta, x, maxima, out = (array[self.block(part)] for array in arrays)
            stages = [
                shaped(memory, *x.shape[:2], *self._lengths(index % (len(self.lengths) + 1)))
                for index, memory in enumerate(lane)
            ]
            numbers, counts = stages[: len(stages) // 2], stages[len(stages) // 2 :]
            share, is_chosen = numbers[-1], counts[0].view(np.bool_)
            np.equal(x, self._repeated(maxima, numbers), is_chosen)
            np.copyto(share, self._counted(counts))
            np.divide(delta, share, share)
            np.copyto(out, is_chosen)
            np.multiply(out, self._repeated(share, numbers), out, casting="unsafe")

    def _repeated(self, source: Array, stages: Sequence[Array]) -> Array:
        """Repeat values of windows for each element, along the last axis first."""
        for axis in reversed(self.axes):
            for index in self._indices(axis):
                np.copyto(stages[axis][index], source)
            source = stages[axis]
        return source

    def _counted(self, stages: Sequence[Array]) -> Array:
        """Sum the elements of windows, along the first axis first."""
        source = stages[0]
        for axis in self.axes:
            first, second, *others = (source[index] for index in self._indices(axis))
            total = stages[axis + 1]
            np.add(first, second, total)
            for each in others:
                np.add(total, each, total)
            source = total
        return source

    def _indices(self, axis: int) -> Iterator[tuple[slice, ...]]:
        """Yield the slices of the elements at each tap along an axis."""
        size = self.sliding.kernel[axis]
        for first in range(size):
            yield (*(slice(None),) * (2 + axis), slice(first, None, size))
