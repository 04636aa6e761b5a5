"""Windows that preserve the image size, as shifted images.

With stride 1 and windows centred on the elements, window number n of an image meets element n + s
at one of its places, where s depends on the place alone, if the elements of an image are numbered
as they lie in memory. So the elements met at a place are one run of an image between zeros, except
that such a run goes on where a line ends, into the next. Each place along all axes but the first
has a copy of the images for itself, in which elements that would be met around such an end are
zero; so columns of windows are copied in runs as long as images, and there are no gaps.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from weft.ir.description import row_major
from weft.ops.spatial import Numbers, Sliding
from weft_numpy.sliding.blocked import Array, shaped

Index = tuple[Any, ...]
"""Into an array that ends in the axes of an image."""


def keeps_size(lengths: Numbers, sliding: Sliding) -> bool:
    """Whether windows are centred on the elements, and all their places meet some."""
    kernel, stride, padding, dilation = sliding
    reaches = [gap * (size // 2) for size, gap in zip(kernel, dilation, strict=True)]
    is_centred = all(size % 2 for size in kernel) and all(step == 1 for step in stride)
    is_padded = all(pair == (n, n) for pair, n in zip(padding, reaches, strict=True))
    is_met = all(reach < length for reach, length in zip(reaches, lengths, strict=True))
    return is_centred and is_padded and is_met


class Place(NamedTuple):
    """IndexingMap in a window: one along the first axis, or one along all the others.

    Attributes
    ----------
    shift
        How far the elements that windows meet there lie from their own.
    far_elements, far_windows
        Where elements are that no window meets in its own line, and windows that meet none.
    """

    shift: int
    far_elements: list[Index]
    far_windows: list[Index]


def make_place(steps: Numbers, lengths: Numbers) -> Place:
    """Return the place so many elements away along each axis."""
    shift = sum(step * unit for step, unit in zip(steps, row_major(lengths, 1), strict=True))
    elements, windows = [], []
    for axis, (step, length) in enumerate(zip(steps, lengths, strict=True)):
        after = (slice(None),) * (len(lengths) - axis - 1)
        ends = slice(0, abs(step)), slice(length - abs(step), None)
        first, last = ((..., end, *after) for end in ends)
        if step:
            elements.append(first if step > 0 else last)
            windows.append(last if step > 0 else first)
    return Place(shift, elements, windows)


class Shifts:
    """The shifts of all places in a window.

    Attributes
    ----------
    lengths, size
        The lengths of images, and the number of their elements.
    lines, copies
        The places along the first axis, and along all the others: each has a copy of the images.
    """

    def __init__(self, lengths: Numbers, kernel: Numbers, dilation: Numbers) -> None:
        self.lengths, self.size = lengths, math.prod(lengths)
        first, *others = (
            [(place - size // 2) * gap for place in range(size)]
            for size, gap in zip(kernel, dilation, strict=True)
        )
        none = (0,) * len(others)
        self.lines = [make_place((step, *none), lengths) for step in first]
        self.copies = [make_place((0, *steps), lengths) for steps in itertools.product(*others)]
        self._margin = self.lines[-1].shift + max(copy.shift for copy in self.copies)
        self._span = self.size + 2 * self._margin

    @property
    def copied(self) -> int:
        """The elements of all copies of a channel of an image, with zeros around them."""
        return len(self.copies) * self._span

    def load(self, x: Array, memory: Array) -> Array:
        """Copy images: to images, channels, copies, elements with zeros around them."""
        copies = shaped(memory, *x.shape[:2], len(self.copies), self._span)
        copies.fill(0)
        for number, copy in enumerate(self.copies):
            start = self._margin - copy.shift
            elements = copies[:, :, number, start : start + self.size].reshape(x.shape, copy=False)
            np.copyto(elements, x)
            for far in copy.far_elements:
                elements[far] = 0
        return copies

    def runs(self, copies: Array) -> Array:
        """Return what windows meet: images, channels, lines, copies, windows."""
        start = self._margin + self.lines[0].shift
        apart = (self.lines[-1].shift - self.lines[0].shift) // max(len(self.lines) - 1, 1)
        *outer, copy, unit = copies.strides
        return as_strided(
            copies[..., start:],
            (*copies.shape[:2], len(self.lines), len(self.copies), self.size),
            (*outer, apart * unit, copy, unit),
        )

    def add_up(self, columns: Array, out: Array) -> None:
        """Add columns to the elements that their windows meet: the reverse of copying `runs`.

        Columns are images, then lines, copies and channels together, windows; they are overwritten.
        The result is images, channels, elements. Where windows that meet nothing in their line have
        zeros, all channels can be shifted as one run.
        """
        places = len(self.lines), len(self.copies), *out.shape[1:]
        by_place = columns.reshape(len(columns), *places)
        centre, middle = len(self.lines) // 2, len(self.copies) // 2
        total = by_place[:, centre]
        for number, line in enumerate(self.lines):
            if number != centre:
                self._add(by_place[:, number], line, total)
        np.copyto(out, total[:, middle])
        for number, copy in enumerate(self.copies):
            if number != middle:
                self._add(total[:, number], copy, out)

    def _add(self, windows: Array, place: Place, total: Array) -> None:
        """Add windows to the elements that they meet at a place."""
        by_lengths = windows.reshape(*windows.shape[:-1], *self.lengths, copy=False)
        for far in place.far_windows:
            by_lengths[far] = 0
        source, target = (each.reshape(len(each), -1, copy=False) for each in (windows, total))
        shift, count = place.shift, source.shape[1] - abs(place.shift)
        met = target[:, max(shift, 0) :][:, :count]
        np.add(met, source[:, max(-shift, 0) :][:, :count], met)
