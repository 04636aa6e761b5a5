"""Pooling over blocks of images that fit the cache.

NumPy is fast on whole arrays and slow on the few elements of a window, so the loop is over taps,
each for all windows at once. Maxima and sums are separable: they are reduced along one axis at a
time, which takes fewer steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from weft.ir import dtypes
from weft.ir.dtypes import DType
from weft.nn.spatial.geometry import Numbers, Pairs, Sliding
from weft_numpy.sliding.blocked import CACHED, Array, Blocked, Piece, shaped

Where = tuple[slice, slice]

LONG = 1 << 22
"""The bytes of the arrays of a block, with several threads.

Between two steps a thread waits for the interpreter lock, about the time of reading 100 kB. So
steps are long, although the blocks exceed the cache.
"""


class Pooling(Blocked):
    """The base of work on windows over images.

    Attributes
    ----------
    lengths, counts
        The spatial lengths of images, and the numbers of windows.
    images, channels
        The images of a block, and their channels.
    wide
        The dtype of computation: float32 for floats of 16 bits.
    """

    arrays_of_images: int
    """The number of arrays of the images' size in a block."""

    def __init__(
        self, shape: Numbers, kernel: Numbers, stride: Numbers, padding: Pairs, dilation: Numbers,
        dtype: DType, threads: int,
    ) -> None:  # fmt: skip
        super().__init__(shape, kernel, stride, padding, dilation, dtype, threads)
        self.shape, self.lengths = shape, shape[2:]
        self.dtype, self.wide = dtype, dtypes.accumulator_dtype(dtype)
        self.sliding = Sliding(kernel, stride, padding, dilation)
        self.counts = self.sliding.counts(self.lengths)
        self.images, self.channels = self._block()

    def _block(self) -> Numbers:
        batch, channels, *lengths = self.shape
        plane = self.arrays_of_images * math.prod(lengths) * self.wide.itemsize
        planes = max(1, (CACHED if self.threads == 1 else LONG) // max(plane, 1))
        images = max(1, min(planes // max(channels, 1), -(-batch // self.threads)))
        return images, max(1, min(planes, channels))

    @property
    def groups(self) -> int:
        """The number of blocks of the same images."""
        return -(-self.shape[1] // self.channels)

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return -(-self.shape[0] // self.images) * self.groups

    def block(self, number: int) -> Where:
        """Return the images and the channels of a block."""
        image, channel = divmod(number, self.groups)
        return (
            slice(image * self.images, min((image + 1) * self.images, self.shape[0])),
            slice(channel * self.channels, min((channel + 1) * self.channels, self.shape[1])),
        )

    def size(self, *lengths: int) -> int:
        """Return the elements of a block for some spatial lengths."""
        return self.images * self.channels * math.prod(lengths)


class Taps(NamedTuple):
    """The reduction of windows along one axis to one element each.

    Attributes
    ----------
    whole
        Slices of elements that all windows have, at most two, which are combined first.
    rest
        Pairs of slices of windows and of their elements.
    """

    whole: list[Any]
    rest: list[tuple[Any, Any]]


def make_taps(sliding: Sliding, axis: int, length: int) -> Taps:
    """Return the taps along one of the spatial axes, given its length."""
    along = sliding.along(axis)
    (count,) = along.counts((length,))
    before = (slice(None),) * (2 + axis)
    taps = [
        ((*before, windows), (*before, elements))
        for (_, windows), (_, elements), _ in along.taps((length,))
    ]
    taps.sort(key=lambda tap: tap[0][-1] != slice(0, count))
    whole = [elements for windows, elements in taps if windows[-1] == slice(0, count)][:2]
    return Taps(whole, taps[len(whole) :])


class ReductionPooling(Pooling):
    """The base of pooling by one ufunc, along one axis at a time."""

    arrays_of_images = 2
    combine: np.ufunc

    def __init__(self, *numbers: Any) -> None:
        super().__init__(*numbers)
        self.taps = [make_taps(self.sliding, *axis) for axis in enumerate(self.lengths)]

    @property
    def initial(self) -> Any:
        """The identity element of the ufunc."""
        raise NotImplementedError

    def pieces(self) -> list[Piece]:
        """Return an array for the result of each axis but the last; more for 16 bits."""
        ends = range(0 if self.is_narrow else 1, len(self.lengths) + self.is_narrow)
        return [Piece(self.size(*self._lengths(end)), self.wide) for end in ends]

    @property
    def is_narrow(self) -> bool:
        """Whether images are computed in another dtype than their own."""
        return False

    def _lengths(self, reduced: int) -> Numbers:
        """Return the spatial lengths after the reduction of `reduced` axes."""
        return (*self.counts[:reduced], *self.lengths[reduced:])

    def __call__(self, x: Array, out: Array) -> None:
        """Write the result."""
        self.share(self.blocks, x, out)

    def work(self, parts: Iterator[int], lane: list[Array], *arrays: Array) -> None:
        """Reduce blocks along each axis."""
        x, out = arrays
        for part in parts:
            where = self.block(part)
            source, target = x[where], out[where]
            spare = iter(lane)
            if self.is_narrow:
                wide = shaped(next(spare), *source.shape)
                np.copyto(wide, source)
                source = wide
            for axis, taps in enumerate(self.taps, 1):
                is_last = axis == len(self.taps) and not self.is_narrow
                shape = (*target.shape[:2], *self._lengths(axis))
                total = target if is_last else shaped(next(spare), *shape)
                self._reduce(taps, source, total)
                source = total
            self.finish(source, target)

    def _reduce(self, taps: Taps, source: Array, total: Array) -> None:
        """Combine the elements of windows along an axis."""
        if not taps.whole:
            total.fill(self.initial)
        elif len(taps.whole) == 1:
            np.copyto(total, source[taps.whole[0]])
        else:
            self.combine(*(source[each] for each in taps.whole), out=total)
        for windows, elements in taps.rest:
            target = total[windows]
            self.combine(target, source[elements], out=target)

    def finish(self, total: Array, out: Array) -> None:
        """Compute the result from the last reduction, which may be in place already."""


class MaxPool(ReductionPooling):
    """The maximum of each window."""

    combine = np.maximum

    @property
    def initial(self) -> Any:
        """The least number."""
        return dtypes.least(self.dtype)


class AvgPool(ReductionPooling):
    """The mean of each window.

    Parameters
    ----------
    numbers
        The elements that count in each window: an array over the windows, or a scalar.
    """

    combine = np.add
    initial = 0

    def __init__(self, numbers: Array, *geometry: Any) -> None:
        super().__init__(*geometry)
        self.numbers = numbers, *geometry
        self.elements = numbers

    @property
    def is_narrow(self) -> bool:
        """Whether the dtype is a float of 16 bits, which accumulates in float32."""
        return self.wide != self.dtype

    def finish(self, total: Array, out: Array) -> None:
        """Divide the sums by the counts."""
        np.divide(total, self.elements, total)
        if self.is_narrow:
            np.copyto(out, total, "unsafe")


class MaxPoolInput(Pooling):
    """The gradient of a max-pool, divided among the maxima of each window."""

    arrays_of_images = 4

    def __init__(self, *numbers: Any) -> None:
        super().__init__(*numbers)
        self.taps = [(at, elements) for at, elements, _ in self.sliding.taps(self.lengths)]

    def pieces(self) -> list[Piece]:
        """Return a mask of the elements of windows, and an array over the windows."""
        size = self.size(*self.counts)
        total = self.size(*self.lengths) if self.wide != self.dtype else 0
        return [
            Piece(size * len(self.taps), np.dtype(bool)),
            Piece(size * len(self.taps), self.wide),
            Piece(size, self.wide),
            Piece(total, self.wide),
        ]

    def __call__(self, delta: Array, x: Array, maxima: Array, out: Array) -> None:
        """Write the gradient of the images."""
        self.share(self.blocks, delta, x, maxima, out)

    def work(self, parts: Iterator[int], lane: list[Array], *arrays: Array) -> None:
        """Find the maxima, then add the share of each."""
        for part in parts:
            where = self.block(part)
            delta, x, maxima, out = (array[where] for array in arrays)
            shape = len(self.taps), *delta.shape
            is_chosen, chosen = (shaped(memory, *shape) for memory in lane[:2])
            share = shaped(lane[2], *delta.shape)
            is_chosen.fill(False)
            for each, (at, elements) in zip(is_chosen, self.taps, strict=True):
                np.equal(x[elements], maxima[at], each[at])
            np.copyto(chosen, is_chosen)
            np.add.reduce(chosen, axis=0, out=share)
            np.divide(delta, share, share)
            if out.dtype == self.wide:
                self._spread(chosen, share, out)
            else:
                total = shaped(lane[3], *out.shape)
                self._spread(chosen, share, total)
                np.copyto(out, total, "unsafe")

    def _spread(self, chosen: Array, share: Array, total: Array) -> None:
        """Add the shares of each element over the windows that contain it."""
        total.fill(0)
        for each, (at, elements) in zip(chosen, self.taps, strict=True):
            target, own = total[elements], each[at]
            np.multiply(own, share[at], own)
            np.add(target, own, target)
