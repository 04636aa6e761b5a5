"""im2col: windows over a few images as columns of matrices, in scratch memory.

The columns of all images of a block are one matrix with gaps, as in `lattice`: they are copied in
long runs, but the outputs must be copied as well, without the gaps. Alternatively each image has a
separate matrix without gaps: columns are copied in short runs, and outputs need no copy. That is
faster where filters have few elements, or windows do not overlap.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from weft.ir.dtypes import DType
from weft.nn.spatial.geometry import Numbers, Pairs, Sliding
from weft_numpy.sliding.blocked import CACHED, Array, shaped
from weft_numpy.sliding.lattice import Lattice

LEAST_COLUMNS = 256
"""The fewest columns for an efficient matrix product, for any cache."""


class BlockedGeometry:
    """The sizes of a convolution, and its division into blocks.

    Attributes
    ----------
    batch, channels, count
        The numbers of images, of their channels, and of filters.
    groups, depth
        The number of groups, and of the elements of a filter.
    images
        The images of a block.
    rows
        For each block of the same images its range of windows along the first axis.
    has_gaps
        Whether the columns of all images are one matrix with gaps.
    """

    def __init__(
        self, images: Numbers, filters: Numbers, stride: Numbers, padding: Pairs,
        dilation: Numbers, groups: int, dtype: DType, has_gaps: bool, threads: int,
    ) -> None:  # fmt: skip
        self.batch, self.channels, *lengths = images
        self.count, self.groups, self.depth = filters[0], groups, math.prod(filters[1:])
        self.kernel, self.dtype, self.has_gaps = filters[2:], dtype, has_gaps
        self.lattice = Lattice(lengths, Sliding(self.kernel, stride, padding, dilation), has_gaps)
        column = (groups * self.depth + self.count) * dtype.itemsize
        limit = max(CACHED // max(column, 1), LEAST_COLUMNS)
        windows = self.lattice.columns if has_gaps else math.prod(self.lattice.counts)
        self.images = max(1, min(limit // windows, -(-self.batch // threads)))
        parts = -(-windows * self.images // limit)
        if self.images == 1:
            parts = max(parts, threads // max(self.batch, 1))
        self.rows = _cut(self.lattice.counts[0], parts)

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return -(-self.batch // self.images) * len(self.rows)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The elements in scratch memory of images, columns, outputs, filters and filters again."""
        lattice, filters = self.lattice, self.count * self.depth
        line = lattice.row if self.has_gaps else math.prod(lattice.counts[1:])
        width = self.images * len(self.rows[0]) * line
        elements = len(lattice.phases) * self.channels * lattice.span(self.images)
        columns = self.groups * self.depth * width
        if self.has_gaps:
            return elements, columns, self.count * width, filters, filters
        return elements, columns, 0, self.images * filters, filters


def _cut(count: int, parts: int) -> list[range]:
    """Divide a range into ranges of equal length; the last one may be shorter."""
    step = -(-count // parts)
    return [range(start, min(start + step, count)) for start in range(0, count, step)]


class Chunk:
    """The base of some windows of some images, and of their columns.

    Attributes
    ----------
    rows
        The windows along the first axis.
    columns
        Matrices of columns.
    sources
        Pairs of columns and the views of images that they show, for several places in a window.
    """

    columns: Array
    sources: list[tuple[Array, Array]]

    def __init__(self, rows: range) -> None:
        self.rows = slice(rows.start, rows.stop)

    def gather(self) -> None:
        """Copy the columns from the images."""
        for columns, elements in self.sources:
            np.copyto(columns, elements)

    def take(self, outputs: Array) -> Array:
        """Return outputs of the windows as matrices with a row for each filter."""
        raise NotImplementedError

    def room(self, outputs: Array) -> Array:
        """Return memory for such matrices."""
        raise NotImplementedError

    def give(self, outputs: Array) -> None:
        """Copy matrices to the outputs, unless they are views of them."""


class SeparateChunk(Chunk):
    """Some windows with a matrix of columns for each image and group, without gaps."""

    def __init__(self, block: ImageBlock, rows: range) -> None:
        super().__init__(rows)
        geometry, lattice = block.geometry, block.geometry.lattice
        groups, lines = geometry.groups, (len(rows), *lattice.counts[1:])
        width = math.prod(lines)
        shape = block.images, geometry.channels, *geometry.kernel
        by_tap = shaped(block.arrays[1], *shape, *lines)
        self.columns = by_tap.reshape(block.images, groups, geometry.depth, width)
        self._matrices = block.images, groups, geometry.count // groups, width
        self.sources = [
            (
                by_tap[(slice(None), slice(None), *(each.taps for each in phase))],
                lattice.windows(run, phase, block.images, rows),
            )
            for phase, run in block.phases
        ]

    def take(self, outputs: Array) -> Array:
        """View the outputs."""
        return outputs.reshape(self._matrices)

    room = take


class JoinedChunk(Chunk):
    """Some windows with a matrix of columns for each group, of all images and with gaps."""

    def __init__(self, block: ImageBlock, rows: range) -> None:
        super().__init__(rows)
        geometry, lattice = block.geometry, block.geometry.lattice
        groups, images, length = geometry.groups, block.images, len(rows) * lattice.row
        by_tap = shaped(block.arrays[1], geometry.channels, *geometry.kernel, images, length)
        self.columns = by_tap.reshape(groups, geometry.depth, images * length)
        outputs = shaped(block.arrays[2], geometry.count, images, length)
        self._outputs = outputs.reshape(groups, geometry.count // groups, images * length)
        self._windows = lattice.inner(outputs)
        by_image = by_tap.reshape(groups * geometry.depth, images, length)
        self._gaps = list(lattice.gaps(by_image))
        self.sources = [
            (
                by_tap[(slice(None), *(each.taps for each in phase))],
                lattice.runs(run, phase, images, rows),
            )
            for phase, run in block.phases
        ]

    def scatter(self) -> None:
        """Add the columns to the images, one tap at a time."""
        for columns, elements in self.sources:
            for index in np.ndindex(columns.shape[1:-2]):
                at = (slice(None), *index)
                target = elements[at]
                np.add(target, columns[at], target)

    def close_gaps(self) -> None:
        """Set the columns in gaps to zero."""
        for gap in self._gaps:
            gap.fill(0)

    def take(self, outputs: Array) -> Array:
        """Copy the outputs, with zeros in the gaps."""
        self._outputs.fill(0)
        np.copyto(self._windows, outputs)
        return self._outputs

    def room(self, outputs: Array) -> Array:
        """Return scratch memory."""
        return self._outputs

    def give(self, outputs: Array) -> None:
        """Copy the outputs without the gaps."""
        np.copyto(outputs, self._windows, "unsafe")


class ImageBlock:
    """The scratch memory of a block of images.

    Attributes
    ----------
    run
        The elements of all channels, with zeros around images.
    phases
        Pairs of a phase and its part of the run.
    chunks
        The chunks of windows over the images, in order.
    """

    def __init__(self, geometry: BlockedGeometry, arrays: Sequence[Array], images: int) -> None:
        lattice = geometry.lattice
        self.geometry, self.arrays, self.images = geometry, arrays, images
        shape = len(lattice.phases), geometry.channels, lattice.span(images)
        self.run = shaped(arrays[0], *shape)
        self.phases = list(zip(lattice.phases, self.run, strict=True))
        self._places: list[tuple[Any, Array]] = [
            ((..., *(each.elements for each in phase)), lattice.elements(run, phase, images))
            for phase, run in self.phases
        ]
        kind = JoinedChunk if geometry.has_gaps else SeparateChunk
        self.chunks = [kind(self, rows) for rows in geometry.rows]

    def load(self, x: Array) -> None:
        """Copy images in."""
        self.run.fill(0)
        for where, elements in self._places:
            np.copyto(elements, x[where])

    def store(self, x: Array) -> None:
        """Copy images out."""
        x.fill(0)
        for where, elements in self._places:
            np.copyto(x[where], elements, "unsafe")


class Lane:
    """The scratch memory of one thread.

    Attributes
    ----------
    filters
        The arrays with the size of the filters: none, one or two.
    """

    def __init__(self, geometry: BlockedGeometry, arrays: Sequence[Array]) -> None:
        self.geometry = geometry
        self.filters = arrays[3:]
        numbers = {min(geometry.images, geometry.batch), geometry.batch % geometry.images} - {0}
        self.by_images = {n: ImageBlock(geometry, arrays, n) for n in numbers}

    def steps(self, blocks: Iterable[int]) -> Iterator[tuple[slice, ImageBlock, Any, bool]]:
        """Yield for each block its images, its memory, its chunk, and whether images are new."""
        geometry, loaded = self.geometry, -1
        for number in blocks:
            group, part = divmod(number, len(geometry.rows))
            start = group * geometry.images
            images = slice(start, min(start + geometry.images, geometry.batch))
            block = self.by_images[images.stop - start]
            yield images, block, block.chunks[part], group != loaded
            loaded = group
