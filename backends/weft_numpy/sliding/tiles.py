"""The adjoint of max pooling for windows that tile the images.

Windows of a few elements make short loops, in which NumPy takes most of the time to begin. So what
windows have one of is repeated for each of their elements, and everything else is computed for
whole images, which lie in memory in one piece.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from weft.ops.spatial import Numbers, Sliding
from weft_numpy.sliding.blocked import Array, Piece, shaped
from weft_numpy.sliding.pooling import Pooling

MOST_ELEMENTS = 255
"""The elements of a window that a byte can count."""


def are_tiles(lengths: Numbers, sliding: Sliding) -> bool:
    """Whether each element belongs to exactly one window, none of which has too many."""
    kernel, stride, padding, dilation = sliding
    is_whole = all(n % size == 0 for n, size in zip(lengths, kernel, strict=True))
    is_dense = kernel == stride and all(n == 1 for n in dilation) and not any(map(any, padding))
    return is_dense and is_whole and math.prod(kernel) <= MOST_ELEMENTS


class MaxPoolTilesInput(Pooling):
    """The adjoint of the maxima of windows, split among the largest elements of each."""

    arrays_of_images = 4

    def __init__(self, *numbers: Any) -> None:
        super().__init__(*numbers)
        self.axes = [axis for axis, size in enumerate(self.sliding.kernel) if size > 1]

    def pieces(self) -> list[Piece]:
        """Return numbers and counts for each element, and for what is left after each axis."""
        sizes = [self.size(*self._lengths(axis)) for axis in range(len(self.lengths) + 1)]
        return [Piece(size, dtype) for dtype in (self.wide, np.dtype(np.uint8)) for size in sizes]

    def _lengths(self, reduced: int) -> Numbers:
        """Return the lengths after so many axes."""
        return (*self.counts[:reduced], *self.lengths[reduced:])

    def __call__(self, delta: Array, x: Array, maxima: Array, out: Array) -> None:
        """Write the adjoint of the images."""
        self.share(self.blocks, delta, x, maxima, out)

    def work(self, parts: Iterator[int], lane: list[Array], *arrays: Array) -> None:
        """Find the largest elements, then give each its share."""
        for part in parts:
            delta, x, maxima, out = (array[self.block(part)] for array in arrays)
            stages = [
                shaped(memory, *x.shape[:2], *self._lengths(place % (len(self.lengths) + 1)))
                for place, memory in enumerate(lane)
            ]
            numbers, counts = stages[: len(stages) // 2], stages[len(stages) // 2 :]
            share, is_chosen = numbers[-1], counts[0].view(np.bool_)
            np.equal(x, self._repeated(maxima, numbers), is_chosen)
            np.copyto(share, self._counted(counts))
            np.divide(delta, share, share)
            np.copyto(out, is_chosen)
            np.multiply(out, self._repeated(share, numbers), out, casting="unsafe")

    def _repeated(self, source: Array, stages: Sequence[Array]) -> Array:
        """Repeat numbers of windows for each element, along the last axis first."""
        for axis in reversed(self.axes):
            for place in self._places(axis):
                np.copyto(stages[axis][place], source)
            source = stages[axis]
        return source

    def _counted(self, stages: Sequence[Array]) -> Array:
        """Add up the elements of windows, along the first axis first."""
        source = stages[0]
        for axis in self.axes:
            first, second, *others = (source[place] for place in self._places(axis))
            total = stages[axis + 1]
            np.add(first, second, total)
            for each in others:
                np.add(total, each, total)
            source = total
        return source

    def _places(self, axis: int) -> Iterator[tuple[slice, ...]]:
        """Yield for each place in a window along an axis where the elements there are."""
        size = self.sliding.kernel[axis]
        for first in range(size):
            yield (*(slice(None),) * (2 + axis), slice(first, None, size))
