"""Shifts: same-size windows with stride 1, where each tap is a shift of the image.

With stride 1 and windows centered on the elements, window n reads element n + s at a tap, where s
depends on the tap alone and elements are numbered in memory order. So the elements read at a tap
are one run of an image between zeros, except that the run continues from the end of a line into the
next. Each combination of taps along all axes but the first has its own copy of the images, in which
elements that would be read across the end of a line are zero. Columns of windows are then copied in
runs as long as images, without gaps.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from weft.ir.description import row_major
from weft.nn.spatial.geometry import Numbers, Sliding
from weft_numpy.sliding.blocked import Array, shaped

Index = tuple[Any, ...]
"""A slice or index for each spatial axis of an image."""


def keeps_size(lengths: Numbers, sliding: Sliding) -> bool:
    """Whether windows are centered on the elements, and every tap reads some element."""
    kernel, stride, padding, dilation = sliding
    reaches = [gap * (size // 2) for size, gap in zip(kernel, dilation, strict=True)]
    is_centered = all(size % 2 for size in kernel) and all(step == 1 for step in stride)
    is_padded = all(pair == (n, n) for pair, n in zip(padding, reaches, strict=True))
    is_met = all(reach < length for reach, length in zip(reaches, lengths, strict=True))
    return is_centered and is_padded and is_met


class TapShift(NamedTuple):
    """A tap along the first axis, or a combination of taps along all others.

    Attributes
    ----------
    shift
        The offset of the elements that it reads from the windows' own elements.
    far_elements, far_windows
        The slices of elements that no window reads in its own line, and of windows that read none.
    """

    shift: int
    far_elements: list[Index]
    far_windows: list[Index]


def make_tap_shift(steps: Numbers, lengths: Numbers) -> TapShift:
    """Return the tap with an offset along each axis."""
    shift = sum(step * unit for step, unit in zip(steps, row_major(lengths, 1), strict=True))
    elements, windows = [], []
    for axis, (step, length) in enumerate(zip(steps, lengths, strict=True)):
        after = (slice(None),) * (len(lengths) - axis - 1)
        ends = slice(0, abs(step)), slice(length - abs(step), None)
        first, last = ((..., end, *after) for end in ends)
        if step:
            elements.append(first if step > 0 else last)
            windows.append(last if step > 0 else first)
    return TapShift(shift, elements, windows)


class Shifts:
    """The shifts of all taps.

    Attributes
    ----------
    lengths, size
        The spatial lengths of images, and their number of elements.
    lines, copies
        The taps along the first axis, and the combinations along all others, each with a copy of
        the images.
    """

    def __init__(self, lengths: Numbers, kernel: Numbers, dilation: Numbers) -> None:
        self.lengths, self.size = lengths, math.prod(lengths)
        first, *others = (
            [(tap - size // 2) * gap for tap in range(size)]
            for size, gap in zip(kernel, dilation, strict=True)
        )
        none = (0,) * len(others)
        self.lines = [make_tap_shift((step, *none), lengths) for step in first]
        self.copies = [make_tap_shift((0, *steps), lengths) for steps in itertools.product(*others)]
        self._margin = self.lines[-1].shift + max(copy.shift for copy in self.copies)
        self._span = self.size + 2 * self._margin

    @property
    def copied(self) -> int:
        """The elements of all zero-padded copies of a channel of an image."""
        return len(self.copies) * self._span

    def load(self, x: Array, memory: Array) -> Array:
        """Copy images to a zero-padded array (images, channels, copies, elements)."""
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
        """Return the elements of windows as an array (images, channels, lines, copies, windows)."""
        start = self._margin + self.lines[0].shift
        apart = (self.lines[-1].shift - self.lines[0].shift) // max(len(self.lines) - 1, 1)
        *outer, copy, unit = copies.strides
        return as_strided(
            copies[..., start:],
            (*copies.shape[:2], len(self.lines), len(self.copies), self.size),
            (*outer, apart * unit, copy, unit),
        )

    def add_up(self, columns: Array, out: Array) -> None:
        """Add columns to the elements that their windows read: the transpose of copying `runs`.

        Columns have the shape (images, lines * copies * channels, windows), and are overwritten.
        The result has the shape (images, channels, elements). Windows that read nothing in their
        line are set to zero, so that all channels can be shifted as one run.
        """
        shape = len(self.lines), len(self.copies), *out.shape[1:]
        by_tap = columns.reshape(len(columns), *shape)
        center, middle = len(self.lines) // 2, len(self.copies) // 2
        total = by_tap[:, center]
        for number, line in enumerate(self.lines):
            if number != center:
                self._add(by_tap[:, number], line, total)
        np.copyto(out, total[:, middle])
        for number, copy in enumerate(self.copies):
            if number != middle:
                self._add(total[:, number], copy, out)

    def _add(self, windows: Array, tap: TapShift, total: Array) -> None:
        """Add windows to the elements that they read at a tap."""
        by_lengths = windows.reshape(*windows.shape[:-1], *self.lengths, copy=False)
        for far in tap.far_windows:
            by_lengths[far] = 0
        source, target = (each.reshape(len(each), -1, copy=False) for each in (windows, total))
        shift, count = tap.shift, source.shape[1] - abs(tap.shift)
        overlap = target[:, max(shift, 0) :][:, :count]
        np.add(overlap, source[:, max(-shift, 0) :][:, :count], overlap)
