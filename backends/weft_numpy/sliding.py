"""Convolutions as columns and a matrix product, and pooling as windows and a reduction.

Both work on blocks of images that fit a core's cache, in scratch memory of the plan. The windows of
a block are copied to the columns of a matrix (im2col), and a product with the filters computes its
outputs. The transposed convolution multiplies first and sums the columns (col2im); the gradient of
the filters is a product of outputs and columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from weft.ir import dtypes
from weft.ir.description import row_major
from weft.ir.dtypes import DType
from weft.ops.spatial import Numbers, Pairs, Sliding

Array = np.ndarray[Any, Any]

CACHED = 1 << 20
"""The bytes of the arrays of a block."""

LEAST_COLUMNS = 256
"""The fewest columns for an efficient matrix product, for any cache."""


def _cut(count: int, step: int) -> list[slice]:
    """Divide a range into slices of a length; the last one may be shorter."""
    return [slice(start, min(start + step, count)) for start in range(0, count, step)]


class Convolution:
    """The base of the three convolutions, called with operands, result and scratch memory.

    With stride 1 the windows of all lines are one run of memory, if a line has as many columns as
    elements: the last ones, across the end of the line, are gaps, whose outputs are dropped. Such
    runs are copied several times faster than lines.

    Attributes
    ----------
    batch, channels, count, depth
        The numbers of images, their channels, filters, and elements of a filter.
    counts, lines
        The windows along each axis, and the columns along each but the first, with gaps.
    images, rows
        The slices of images, and of their windows along the first axis, of the blocks.
    """

    def __init__(
        self, images: Numbers, filters: Numbers, stride: Numbers, padding: Pairs,
        dilation: Numbers, groups: int, dtype: DType,
    ) -> None:  # fmt: skip
        self.batch, self.channels, *self.lengths = images
        self.count, self.groups, self.depth = filters[0], groups, math.prod(filters[1:])
        self.kernel, self.dtype = filters[2:], dtype
        sliding = Sliding(self.kernel, stride, padding, dilation)
        self.counts, self.padded = sliding.counts(self.lengths), sliding.padded(self.lengths)
        self.padding = padding
        self.has_gaps = len(stride) > 1 and stride[-2:] == (1, 1)
        self.lines = self.counts[1:]
        if self.has_gaps:
            self.lines = (*self.lines[:-1], self.padded[-1])
        self.size, line = math.prod(self.padded), math.prod(self.lines)
        limit = CACHED // max((groups * self.depth + self.count) * dtype.itemsize, 1)
        limit = max(limit, LEAST_COLUMNS) // max(line, 1)
        step = max(1, limit // max(self.counts[0], 1))
        self.images = _cut(self.batch, step)
        self.rows = _cut(self.counts[0], max(1, min(limit, self.counts[0])))
        self.most = min(step, self.batch), min(max(1, limit), self.counts[0]) * line
        units = row_major(self.padded, dtype.itemsize)
        self.steps = tuple(n * unit for n, unit in zip(stride, units, strict=True))
        self.taps = tuple(n * unit for n, unit in zip(dilation, units, strict=True))
        self.slack = sliding.extents[-1]

    @property
    def sizes(self) -> list[int]:
        """The elements of padded images, columns and outputs, and of two arrays of filters."""
        images, columns = self.most
        padded = self.channels * images * self.size + self.slack
        per_column = [self.groups * self.depth, self.count]
        filters = self.count * self.depth
        return [padded, *(images * columns * each for each in per_column), filters, filters]

    @property
    def workspace(self) -> int:
        """The bytes of scratch memory."""
        return sum(self.sizes) * self.dtype.itemsize

    def array(self, memory: Array, place: int, *shape: int) -> Array:
        """Return one of the arrays of scratch memory, in a shape."""
        start = sum(self.sizes[:place]) * self.dtype.itemsize
        return np.ndarray(shape, self.dtype, memory, start)

    def matrices(self, w: Array) -> Array:
        """Return filters as a matrix for each group, with a row for each filter."""
        shape = self.groups, self.count // self.groups, self.depth
        return w.astype(self.dtype, copy=False).reshape(shape)

    def inner(self, memory: Array, images: int) -> tuple[Array, tuple[Any, ...]]:
        """Return padded images without the padding, and the elements of images that they have."""
        shown: list[Any] = []
        taken: list[Any] = []
        for length, padded, (before, _) in zip(
            self.lengths, self.padded, self.padding, strict=True
        ):
            start = max(-before, 0)
            stop = max(min(length, padded - before), start)
            taken.append(slice(start, stop))
            shown.append(slice(start + before, stop + before))
        whole = self.array(memory, 0, self.channels, images, *self.padded)
        return whole[(..., *shown)].swapaxes(0, 1), (..., *taken)

    def load(self, x: Array, memory: Array) -> None:
        """Copy images to scratch memory, with zeros around them."""
        self.array(memory, 0, self.sizes[0]).fill(0)
        inner, taken = self.inner(memory, len(x))
        np.copyto(inner, x[taken])

    def windows(self, memory: Array, images: int, rows: slice) -> Array:
        """Return the elements of windows as an array (channels, taps, images, columns)."""
        count = rows.stop - rows.start
        shape = (self.channels, *self.kernel, images, count, *self.lines)
        image = self.size * self.dtype.itemsize
        strides = (images * image, *self.taps, image, *self.steps)
        return np.ndarray(shape, self.dtype, memory, rows.start * self.steps[0], strides)

    def columns(self, memory: Array, images: int, rows: slice) -> Array:
        """Return memory for columns, in the shape of `windows`."""
        count = rows.stop - rows.start
        return self.array(memory, 1, self.channels, *self.kernel, images, count, *self.lines)

    def outputs(self, memory: Array, images: int, rows: slice) -> Array:
        """Return memory for outputs as an array (filters, images, columns)."""
        return self.array(memory, 2, self.count, images, rows.stop - rows.start, *self.lines)

    def without_gaps(self, outputs: Array) -> Array:
        """Return the outputs of windows as an array (images, filters, windows)."""
        return outputs[..., : self.counts[-1]].swapaxes(0, 1)

    def as_matrices(self, array: Array, rows: int) -> Array:
        """Return columns or outputs as a matrix of so many rows for each group."""
        columns = math.prod(array.shape[-2 - len(self.lines) :])
        return array.reshape(self.groups, rows // self.groups, columns)

    def close_gaps(self, columns: Array) -> None:
        """Set the columns in gaps to zero."""
        columns[..., self.counts[-1] :].fill(0)

    def blocks(self) -> Iterator[tuple[slice, slice]]:
        """Yield the images and rows of each block."""
        return ((images, rows) for images in self.images for rows in self.rows)


class Forward(Convolution):
    """The convolution of images with filters."""

    def __call__(self, x: Array, w: Array, out: Array, memory: Array) -> None:
        """Write the outputs."""
        filters = self.matrices(w)
        for images, rows in self.blocks():
            number = images.stop - images.start
            if not rows.start:
                self.load(x[images], memory)
            columns = self.columns(memory, number, rows)
            np.copyto(columns, self.windows(memory, number, rows))
            outputs = self.outputs(memory, number, rows)
            matrix = self.as_matrices(columns, self.groups * self.depth)
            np.matmul(filters, matrix, self.as_matrices(outputs, self.count))
            np.copyto(out[images, :, rows], self.without_gaps(outputs), "unsafe")


class Mirrored(Forward):
    """The transposed convolution with stride 1: a convolution with flipped filters.

    Its geometry is that of the convolution with flipped filters, whose images are the outputs.
    """

    def matrices(self, w: Array) -> Array:
        """Return the flipped filters, with channels and filters exchanged."""
        inner, outer = self.channels // self.groups, self.count // self.groups
        split = w.reshape(self.groups, inner, outer, *self.kernel)
        return super().matrices(np.flip(split, tuple(range(3, split.ndim))).swapaxes(1, 2))


class Transposed(Convolution):
    """The transposed convolution, from outputs and filters to images."""

    def __call__(self, delta: Array, w: Array, out: Array, memory: Array) -> None:
        """Write the images."""
        filters = self.matrices(w).swapaxes(1, 2)
        # With one filter in a group it is an outer product, which BLAS is slow at.
        product = np.multiply if self.count == self.groups else np.matmul
        # A gap holds products of zeros, which are zeros unless a filter is not finite.
        is_finite = np.isfinite(np.add.reduce(w, axis=None))
        for images, rows in self.blocks():
            number = images.stop - images.start
            if not rows.start:
                self.array(memory, 0, self.sizes[0]).fill(0)
            outputs = self.outputs(memory, number, rows)
            outputs.fill(0)
            np.copyto(self.without_gaps(outputs), delta[images, :, rows])
            columns = self.columns(memory, number, rows)
            matrix = self.as_matrices(columns, self.groups * self.depth)
            product(filters, self.as_matrices(outputs, self.count), matrix)
            if not is_finite:
                self.close_gaps(columns)
            windows = self.windows(memory, number, rows)
            for tap in np.ndindex(*self.kernel):
                target = windows[(slice(None), *tap)]
                np.add(target, columns[(slice(None), *tap)], target)
            if rows is self.rows[-1]:
                inner, taken = self.inner(memory, number)
                out[images].fill(0)
                np.copyto(out[images][taken], inner, "unsafe")


class Filters(Convolution):
    """The gradient of the filters of a convolution."""

    def __call__(self, x: Array, delta: Array, out: Array, memory: Array) -> None:
        """Write the filters."""
        shape = self.groups, self.count // self.groups, self.depth
        total, product = (self.array(memory, place, *shape) for place in (3, 4))
        total.fill(0)
        # In a gap, elements of images meet zeros: that matters only if one is not finite.
        is_finite = np.isfinite(np.add.reduce(x, axis=None))
        for images, rows in self.blocks():
            number = images.stop - images.start
            if not rows.start:
                self.load(x[images], memory)
            columns = self.columns(memory, number, rows)
            np.copyto(columns, self.windows(memory, number, rows))
            if not is_finite:
                self.close_gaps(columns)
            outputs = self.outputs(memory, number, rows)
            outputs.fill(0)
            np.copyto(self.without_gaps(outputs), delta[images, :, rows])
            matrix = self.as_matrices(columns, self.groups * self.depth).swapaxes(1, 2)
            np.matmul(self.as_matrices(outputs, self.count), matrix, product)
            np.add(total, product, total)
        np.copyto(out.reshape(shape), total, "unsafe")


class Pooling:
    """The base of work on windows over images, one tap of all windows of a block at a time.

    NumPy is fast on whole arrays and slow on the few elements of a window.

    Attributes
    ----------
    taps
        For each tap the windows that have it, and its elements.
    counts, wide
        The numbers of windows, and the dtype of computation: float32 for floats of 16 bits.
    images, step, size
        The slices of images of the blocks, their number in one, and that of its windows.
    """

    def __init__(
        self, shape: Numbers, kernel: Numbers, stride: Numbers, padding: Pairs, dilation: Numbers,
        dtype: DType,
    ) -> None:  # fmt: skip
        sliding = Sliding(kernel, stride, padding, dilation)
        self.taps = [(at, elements) for at, elements, _ in sliding.taps(shape[2:])]
        self.counts = (*shape[1:2], *sliding.counts(shape[2:]))
        self.dtype, self.wide = dtype, dtypes.accumulator_dtype(dtype)
        self.image = math.prod(shape[1:])
        step = max(1, min(CACHED // max(self.image * self.wide.itemsize, 1), shape[0]))
        self.step: int = step
        self.size: int = step * math.prod(self.counts)
        self.images = _cut(shape[0], step)

    @property
    def workspace(self) -> int:
        """The bytes of scratch memory: two arrays over the windows of a block, and images."""
        images = 0 if self.wide == self.dtype else self.step * self.image
        return (2 * self.size + images) * self.wide.itemsize

    def array(self, memory: Array, place: int, images: int) -> Array:
        """Return an array over the windows of some images in scratch memory."""
        start = place * self.size * self.wide.itemsize
        return np.ndarray((images, *self.counts), self.wide, memory, start)


class MaxPool(Pooling):
    """The maximum of each window."""

    def __call__(self, x: Array, out: Array, memory: Array) -> None:
        """Write the maxima."""
        for images in self.images:
            block, total = x[images], out[images]
            total.fill(dtypes.least(self.dtype))
            for at, elements in self.taps:
                target = total[at]
                np.maximum(target, block[elements], out=target)


class AvgPool(Pooling):
    """The mean of each window; `numbers` are the elements that count in each."""

    def __init__(self, numbers: Array, *geometry: Any) -> None:
        super().__init__(*geometry)
        self.numbers = numbers

    def __call__(self, x: Array, out: Array, memory: Array) -> None:
        """Write the means."""
        for images in self.images:
            block, result = x[images], out[images]
            total = result if out.dtype == self.wide else self.array(memory, 0, len(block))
            total.fill(0)
            for at, elements in self.taps:
                target = total[at]
                np.add(target, block[elements], target)
            np.divide(total, self.numbers, total)
            if total is not result:
                np.copyto(result, total, "unsafe")


class MaxPoolInput(Pooling):
    """The gradient of a max-pool, divided among the maxima of each window."""

    def __call__(self, delta: Array, x: Array, maxima: Array, out: Array, memory: Array) -> None:
        """Write the gradient of the images."""
        for images in self.images:
            block, most, result = x[images], maxima[images], out[images]
            share, chosen = (self.array(memory, place, len(block)) for place in (0, 1))
            share.fill(0)
            for at, elements in self.taps:
                target, own = share[at], chosen[at]
                np.equal(block[elements], most[at], own)
                np.add(target, own, target)
            np.divide(delta[images], share, share)
            total = result
            if out.dtype != self.wide:
                start = 2 * self.size * self.wide.itemsize
                total = np.ndarray(block.shape, self.wide, memory, start)
            total.fill(0)
            for at, elements in self.taps:
                target, own = total[elements], chosen[at]
                np.equal(block[elements], most[at], own)
                np.multiply(own, share[at], own)
                np.add(target, own, target)
            if total is not result:
                np.copyto(result, total, "unsafe")
