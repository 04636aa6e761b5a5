"""Convolutions as columns and a matrix product, and pooling as windows and a reduction.

Both work on blocks of images that fit a core's cache, in scratch memory of the plan. The windows of
a block are copied to the columns of a matrix (im2col), and a product with the filters computes its
outputs. The transposed convolution multiplies first and sums the columns (col2im); the gradient of
the filters is a product of outputs and columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from weft.ir import dtypes
from weft.ir.description import row_major
from weft.ir.dtypes import DType
from weft.nn.spatial.geometry import Numbers, Sliding

Array = np.ndarray[Any, Any]

CACHED = 1 << 20  # bytes of the arrays of a block
LEAST_COLUMNS = 256  # for an efficient matrix product, with any cache


def _cut(count: int, step: int) -> list[slice]:
    """Divide a range into slices of a length; the last one may be shorter."""
    return [slice(start, min(start + step, count)) for start in range(0, count, step)]


class Block(NamedTuple):
    """Some windows of some images, in scratch memory.

    The axes of windows and columns are channels, places in a window, images and windows. Matrices
    have an axis for groups first.
    """

    images: slice
    rows: slice  # of the windows along the first axis
    windows: Array  # their elements in the padded images
    columns: Array  # memory for as many
    matrix: Array  # the columns, a row for each element of a filter
    outputs: Array  # memory for outputs as matrices, a row for each filter
    by_image: Array  # the same with the axes of outputs: images, filters and windows


class Convolution:
    """The base of the three convolutions, called with operands, result and scratch memory."""

    def __init__(
        self, images: Numbers, filters: Numbers, groups: int, dtype: DType, *sliding: Any
    ) -> None:
        batch, self.channels, *lengths = images
        self.count, self.groups, self.depth = filters[0], groups, math.prod(filters[1:])
        self.kernel, self.dtype = filters[2:], dtype
        each = Sliding(*sliding)
        self.counts, self.padded = each.counts(lengths), each.padded(lengths)
        units = row_major(self.padded, dtype.itemsize)
        self.steps = tuple(n * unit for n, unit in zip(each.stride, units, strict=True))
        self.places = tuple(n * unit for n, unit in zip(each.dilation, units, strict=True))
        overlaps = map(_overlap, lengths, self.padded, each.padding)
        self.taken, self.inner = zip(*overlaps, strict=True)
        line, column = math.prod(self.counts[1:]), groups * self.depth + self.count
        limit = max(CACHED // max(column * dtype.itemsize, 1), LEAST_COLUMNS) // line
        step = max(1, min(limit // self.counts[0], batch))
        self.images, self.rows = _cut(batch, step), _cut(self.counts[0], max(1, limit))
        columns = step * line * min(max(1, limit), self.counts[0])
        padded, filter_size = math.prod(self.padded) * self.channels, self.count * self.depth
        # The elements of padded images, columns and outputs, and of two arrays of filters.
        sizes = groups * self.depth * columns, self.count * columns, filter_size, filter_size
        self.sizes = (step * padded, *sizes)

    @property
    def workspace(self) -> int:
        """The bytes of scratch memory."""
        return int(sum(self.sizes) * self.dtype.itemsize)

    def array(self, memory: Array, place: int, *shape: int) -> Array:
        """Return one of the arrays of scratch memory, in a shape."""
        return np.ndarray(shape, self.dtype, memory, sum(self.sizes[:place]) * self.dtype.itemsize)

    def images_of(self, memory: Array, images: int) -> Array:
        """Return the padded images."""
        return self.array(memory, 0, images, self.channels, *self.padded)

    def blocks(self, memory: Array) -> Iterator[Block]:
        """Yield the blocks, those of the same images in order."""
        for images in self.images:
            number = images.stop - images.start
            channel, image, *_ = self.images_of(memory, number).swapaxes(0, 1).strides
            for rows in self.rows:
                lines = (rows.stop - rows.start, *self.counts[1:])
                shape = (self.channels, *self.kernel, number, *lines)
                strides = (channel, *self.places, image, *self.steps)
                start = rows.start * self.steps[0] if self.channels else 0  # no memory to be in
                windows = np.ndarray(shape, self.dtype, memory, start, strides)
                columns = self.array(memory, 1, *shape)
                outputs = self.array(memory, 2, self.count, number, *lines)
                width = number * math.prod(lines)
                matrix = columns.reshape(self.groups, self.depth, width)
                by_group = outputs.reshape(self.groups, self.count // self.groups, width)
                by_image = outputs.swapaxes(0, 1)
                yield Block(images, rows, windows, columns, matrix, by_group, by_image)

    def gathered(self, x: Array, memory: Array) -> Iterator[Block]:
        """Yield the blocks with the columns of images, which have zeros around them."""
        for block in self.blocks(memory):
            if block.rows.start == 0:
                images = x[block.images]
                padded = self.images_of(memory, len(images))
                padded.fill(0)
                np.copyto(padded[(..., *self.inner)], images[(..., *self.taken)])
            np.copyto(block.columns, block.windows)
            yield block

    def matrices(self, w: Array) -> Array:
        """Return filters as a matrix for each group, with a row for each filter."""
        shape = self.groups, self.count // self.groups, self.depth
        return w.astype(self.dtype, copy=False).reshape(shape)


def _overlap(length: int, padded: int, padding: tuple[int, int]) -> tuple[slice, slice]:
    """Return the elements of an axis that are in the padded one, and where they are there."""
    start = max(-padding[0], 0)
    stop = max(min(length, padded - padding[0]), start)
    return slice(start, stop), slice(start + padding[0], stop + padding[0])


class Forward(Convolution):
    """The convolution of images with filters."""

    def __call__(self, x: Array, w: Array, out: Array, memory: Array) -> None:
        """Write the outputs."""
        filters = self.matrices(w)
        for block in self.gathered(x, memory):
            np.matmul(filters, block.matrix, block.outputs)
            np.copyto(out[block.images, :, block.rows], block.by_image, "unsafe")


class Transposed(Convolution):
    """The transposed convolution, from outputs and filters to images."""

    def __call__(self, delta: Array, w: Array, out: Array, memory: Array) -> None:
        """Write the images."""
        filters = self.matrices(w).swapaxes(1, 2)
        # With one filter in a group it is an outer product, which BLAS is slow at.
        product = np.multiply if self.count == self.groups else np.matmul
        for block in self.blocks(memory):
            images = self.images_of(memory, block.images.stop - block.images.start)
            if block.rows.start == 0:
                images.fill(0)
            np.copyto(block.by_image, delta[block.images, :, block.rows])
            product(filters, block.outputs, block.matrix)
            for place in np.ndindex(*self.kernel):
                target = block.windows[(slice(None), *place)]
                np.add(target, block.columns[(slice(None), *place)], target)
            if block.rows.stop == self.counts[0]:
                result = out[block.images]
                result.fill(0)
                np.copyto(result[(..., *self.taken)], images[(..., *self.inner)], "unsafe")


class Filters(Convolution):
    """The gradient of the filters of a convolution."""

    def __call__(self, x: Array, delta: Array, out: Array, memory: Array) -> None:
        """Write the filters."""
        shape = self.groups, self.count // self.groups, self.depth
        total, product = (self.array(memory, place, *shape) for place in (3, 4))
        total.fill(0)
        for block in self.gathered(x, memory):
            np.copyto(block.by_image, delta[block.images, :, block.rows])
            np.matmul(block.outputs, block.matrix.swapaxes(1, 2), product)
            np.add(total, product, total)
        np.copyto(out.reshape(shape), total, "unsafe")


class Pooling:
    """The base of work on windows over images, one tap of all windows of a block at a time.

    NumPy is fast on whole arrays and slow on the few elements of a window. For each tap there are
    the windows that have it, and its elements.
    """

    def __init__(self, shape: Numbers, dtype: DType, *geometry: Any) -> None:
        sliding = Sliding(*geometry)
        self.taps = [(at, elements) for at, elements, _ in sliding.taps(shape[2:])]
        self.dtype, self.wide = dtype, dtypes.accumulator_dtype(dtype)
        image = math.prod(shape[1:]) * self.wide.itemsize
        step = max(1, min(CACHED // max(image, 1), shape[0]))
        self.images = _cut(shape[0], step)
        self.windows = step, shape[1], *sliding.counts(shape[2:])

    workspace = 0
    """The bytes of scratch memory."""

    def __call__(self, *arrays: Array) -> None:
        """Write the result, given operands, result and scratch memory; 16 bits as float32."""
        *operands, out, memory = arrays
        for images in self.images:
            result = out[images]
            total = result if out.dtype == self.wide else np.empty(result.shape, self.wide)
            self.compute(total, memory, *(each[images] for each in operands))
            if total is not result:
                np.copyto(result, total, "unsafe")

    def compute(self, total: Array, memory: Array, *operands: Any) -> None:
        """Compute a block."""
        raise NotImplementedError


class MaxPool(Pooling):
    """The maximum of each window."""

    def compute(self, total: Array, memory: Array, *operands: Any) -> None:
        """Take the maximum of each tap with those before."""
        (x,) = operands
        total.fill(dtypes.least(self.dtype))
        for at, elements in self.taps:
            target = total[at]
            np.maximum(target, x[elements], out=target)


class AvgPool(Pooling):
    """The mean of each window; `numbers` are the elements that count in each."""

    def __init__(self, numbers: Array, *geometry: Any) -> None:
        super().__init__(*geometry)
        self.numbers = numbers

    def compute(self, total: Array, memory: Array, *operands: Any) -> None:
        """Add up the taps and divide."""
        (x,) = operands
        total.fill(0)
        for at, elements in self.taps:
            target = total[at]
            np.add(target, x[elements], target)
        np.divide(total, self.numbers, total)


class MaxPoolInput(Pooling):
    """The gradient of a max-pool, divided among the maxima of each window."""

    def __init__(self, *geometry: Any) -> None:
        super().__init__(*geometry)
        self.workspace = 2 * math.prod(self.windows) * self.wide.itemsize

    def compute(self, total: Array, memory: Array, *operands: Any) -> None:
        """Count the maxima of each window, then add the share of each."""
        delta, x, maxima = operands
        share, chosen = np.ndarray((2, *self.windows), self.wide, memory)[:, : len(x)]
        share.fill(0)
        for at, elements in self.taps:
            target, own = share[at], chosen[at]
            np.equal(x[elements], maxima[at], own)
            np.add(target, own, target)
        np.divide(delta, share, share)
        total.fill(0)
        for at, elements in self.taps:
            target, own = total[elements], chosen[at]
            np.equal(x[elements], maxima[at], own)
            np.multiply(own, share[at], own)
            np.add(target, own, target)
