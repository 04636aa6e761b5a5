"""Lattice: a layout of images in which sliding windows are contiguous runs of memory.

Every axis has a pitch: its length plus the zeros of the padding, which the end of one line shares
with the beginning of the next. The elements that windows read at one tap then have the stride of
the windows, so they form one run, as if images had a single axis. Positions between the last window
of a line and the first of the next are gaps, whose results are dropped.

For strides above 1, a split lattice groups the elements of each phase of the stride; a tap always
reads the same phase.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from numpy.lib.stride_tricks import as_strided

from weft.ir.description import row_major
from weft.nn.spatial.geometry import Sliding
from weft_numpy.sliding.blocked import Array


class Phase(NamedTuple):
    """A phase of the stride along an axis: its elements, and the taps that read them.

    Attributes
    ----------
    elements, taps
        Slices of the axis, and of the taps.
    length, size
        Their numbers.
    shift, gap
        The offset, in elements of the phase, from a window's first element to that of the first
        tap, and the distance between the elements of consecutive taps.
    """

    elements: slice
    length: int
    taps: slice
    size: int
    shift: int
    gap: int

    @property
    def end(self) -> int:
        """The offset from a window's first element to that of the last tap."""
        return self.shift + (self.size - 1) * self.gap


class LatticeAxis(NamedTuple):
    """One axis: its number of windows, their step, the length of lines, and its phases."""

    windows: int
    step: int
    pitch: int
    phases: list[Phase]


def make_lattice_axis(length: int, sliding: Sliding, is_split: bool) -> LatticeAxis:
    """Return an axis of a lattice, given its length and the sliding windows along it."""
    (size,), (stride,), ((before, _),), (dilation,) = sliding
    (windows,) = sliding.counts((length,))
    apart = stride if is_split else 1
    step, reach = stride // apart, (windows - 1) * (stride // apart) + 1
    period, gap = (each // math.gcd(apart, dilation) for each in (apart, dilation))
    phases = []
    for tap in range(min(period, size)):
        shift, first = divmod(tap * dilation - before, apart)
        taps = len(range(tap, size, period))
        # What lies behind the last element that a window meets is not needed.
        last = reach + shift + (taps - 1) * gap
        used = max(0, min(len(range(first, length, apart)), last))
        elements = slice(first, first + used * apart, apart)
        phases.append(Phase(elements, used, slice(tap, None, period), taps, shift, gap))
    low, high = min(each.shift for each in phases), max(each.end for each in phases)
    longest = max(each.length for each in phases)
    return LatticeAxis(windows, step, max(reach, reach + high, longest - low), phases)


class Lattice:
    """The layout of images and windows in a run of memory for each channel.

    Attributes
    ----------
    counts
        The number of windows along each axis.
    phases
        All combinations of phases of the axes.
    row, columns, image
        The distance between windows along the first axis, the extent of all windows of an image,
        and the distance between images, in positions of the run.
    """

    def __init__(self, lengths: Sequence[int], sliding: Sliding, is_split: bool) -> None:
        axes = [
            make_lattice_axis(length, sliding.along(number), is_split)
            for number, length in enumerate(lengths)
        ]
        self.counts = tuple(axis.windows for axis in axes)
        self.pitches = tuple(axis.pitch for axis in axes)
        self.phases = list(itertools.product(*(axis.phases for axis in axes)))
        self._units = row_major(self.pitches, 1)
        self._steps = [axis.step * unit for axis, unit in zip(axes, self._units, strict=True)]
        self.row, self.image = self._steps[0], math.prod(self.pitches)
        self.columns = self.counts[0] * self.row
        last = self._offset((axis.windows - 1) * axis.step for axis in axes)
        reach = max(self._offset(each.end for each in phase) for phase in self.phases)
        self.margin = max(0, *(-self._shift(phase) for phase in self.phases))
        self.end = max(self.image, max(self.columns, last + 1) + reach)

    def _offset(self, numbers: Iterable[int]) -> int:
        """Return the offset of an element, given its index along each axis."""
        return sum(number * unit for number, unit in zip(numbers, self._units, strict=True))

    def _shift(self, phase: Sequence[Phase]) -> int:
        """Return the offset of the first tap of a phase."""
        return self._offset(each.shift for each in phase)

    def span(self, images: int) -> int:
        """Return the length of a channel's run."""
        return self.margin + (images - 1) * self.image + self.end

    def elements(self, run: Array, phase: Sequence[Phase], images: int) -> Array:
        """Return the elements of a phase as an array (images, channels, lengths)."""
        inner = run[:, self.margin : self.margin + images * self.image]
        lines = inner.reshape(len(run), images, *self.pitches)
        used = (slice(each.length) for each in phase)
        return lines[(slice(None), slice(None), *used)].swapaxes(0, 1)

    def runs(self, run: Array, phase: Sequence[Phase], images: int, rows: range) -> Array:
        """Return the elements of windows in a phase as an array (channels, taps, images, columns).

        The lattice must be split, so that windows are contiguous.
        """
        start, sizes, strides = self._tap_view(phase, rows, run.itemsize)
        return as_strided(
            run[:, start:],
            (len(run), *sizes, images, len(rows) * self.row),
            (run.strides[0], *strides, self.image * run.itemsize, run.itemsize),
        )

    def windows(self, run: Array, phase: Sequence[Phase], images: int, rows: range) -> Array:
        """Return the elements of windows as an array (images, channels, taps, windows)."""
        start, sizes, strides = self._tap_view(phase, rows, run.itemsize)
        steps = (step * run.itemsize for step in self._steps)
        return as_strided(
            run[:, start:],
            (images, len(run), *sizes, len(rows), *self.counts[1:]),
            (self.image * run.itemsize, run.strides[0], *strides, *steps),
        )

    def _tap_view(
        self, phase: Sequence[Phase], rows: range, unit: int
    ) -> tuple[int, list[int], list[int]]:
        """Return the offset of the first window in a phase, and shape and strides of its taps."""
        pairs = list(zip(phase, self._units, strict=True))
        start = self.margin + self._shift(phase) + rows.start * self.row
        return (
            start,
            [each.size for each in phase],
            [each.gap * step * unit for each, step in pairs],
        )

    def inner(self, positions: Array) -> Array:
        """Return the positions of windows as an array (images, channels, windows).

        It is a view of an array (channels, images, positions).
        """
        counts = (slice(count) for count in self.counts[1:])
        return self._lines(positions)[(slice(None), slice(None), slice(None), *counts)].swapaxes(
            0, 1
        )

    def gaps(self, positions: Array) -> Iterator[Array]:
        """Yield views of the gaps."""
        lines = self._lines(positions)
        for axis, (count, pitch) in enumerate(
            zip(self.counts[1:], self.pitches[1:], strict=True), 3
        ):
            if count < pitch:
                yield lines[(slice(None),) * axis + (slice(count, None),)]

    def _lines(self, positions: Array) -> Array:
        """Return an array of channels, images and places with an axis for each of the images."""
        rows = positions.shape[-1] // self.row
        return positions.reshape(*positions.shape[:2], rows, *self.pitches[1:])
