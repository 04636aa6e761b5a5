"""Convolutions as columns and a matrix product, and pooling as windows and a reduction.

Both work on blocks of images that fit a core's cache, in scratch memory of the plan. The windows of
a block are copied to the columns of matrices (im2col), and products with the filters compute its
outputs. The transposed convolution multiplies first and sums the columns (col2im); the gradient of
the filters is a product of outputs and columns. Threads share blocks, unless BLAS shares products.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from weft.ir import dtypes
from weft.ir.description import row_major
from weft.ir.dtypes import Array, DType
from weft.nn.spatial.geometry import Numbers, Sliding
from weft.support.backports import override
from weft_numpy.thread_pool import parallel_for

CACHED = 1 << 20  # bytes of the arrays of a block
LEAST_COLUMNS = 256  # for an efficient matrix product, with any cache
BLAS_THREADED = 10**6  # multiplications from which on OpenBLAS's threads share such a product
MIN_SHARED = 2**18  # elements or multiplications from which on several threads pay off


def _cut(count: int, step: int) -> list[slice]:
    """Divide a range into slices of a length; the last one may be shorter."""
    return [slice(start, min(start + step, count)) for start in range(0, count, step)]


class Blocked:
    """The base of work on blocks of images, called with operands, result and scratch memory."""

    workspace = 1
    """The bytes of scratch memory of a thread."""

    def __init__(self, images: Sequence[slice], size: int) -> None:
        self.images = images
        self.is_shared = size >= MIN_SHARED

    def lanes(self, threads: int) -> int:
        """Return the number of threads that share the blocks."""
        return min(threads, len(self.images)) if self.is_shared else 1

    def __call__(self, *arrays: Array) -> None:
        """Write the result; there are as many threads as the memory is for."""
        *operands, memory = arrays
        size = self.workspace
        lanes = [memory[at : at + size] for at in range(0, len(memory) - size + 1, size)]
        parallel_for(partial(self.compute, *operands), len(self.images), lanes)

    def compute(self, *arguments: Any) -> None:
        """Write blocks of the result, given operands, result, their numbers and scratch memory."""
        raise NotImplementedError


class Block(NamedTuple):
    """Some windows of some images, in scratch memory.

    The axes of windows and columns are images, channels, places in a window and windows. Matrices
    have axes for images and groups first, or groups alone if one product is for all images.
    """

    number: int
    images: slice
    rows: slice  # of the windows along the first axis
    windows: Array  # their elements in the padded images
    columns: Array  # memory for as many
    matrix: Array  # the columns, a row for each element of a filter
    by_image: Array  # memory for outputs: images, filters and windows
    outputs: Array  # the same as matrices, a row for each filter


class Convolution(Blocked):
    """The base of the three convolutions.

    A product for each image reads and writes outputs in place. A joint one for the images of a
    block needs a copy of outputs, as they have images before filters, and reads the filters once.
    """

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
        self.is_joint = self.depth > math.prod(self.counts)
        line, column = math.prod(self.counts[1:]), groups * self.depth + self.count
        limit = max(CACHED // max(column * dtype.itemsize, 1), LEAST_COLUMNS) // line
        step = max(1, min(limit // self.counts[0], batch))
        product = self.count * self.depth * math.prod(self.counts)
        super().__init__(_cut(batch, step), batch * product)
        self.uses_blas_threads = product * (step if self.is_joint else 1) >= BLAS_THREADED
        self.is_shared &= not self.uses_blas_threads
        self.rows = _cut(self.counts[0], max(1, limit))
        columns = step * line * min(max(1, limit), self.counts[0])
        padded, filter_size = math.prod(self.padded) * self.channels, self.count * self.depth
        outputs = self.count * columns
        # The elements of padded images, columns, outputs, and both products and factors of filters.
        sizes = groups * self.depth * columns, outputs, filter_size * step, outputs
        self.sizes = (step * padded, *sizes)
        self.workspace = max(sum(self.sizes) * dtype.itemsize, 1)

    def array(self, memory: Array, place: int, *shape: int) -> Array:
        """Return one of the arrays of scratch memory, in a shape."""
        return np.ndarray(shape, self.dtype, memory, sum(self.sizes[:place]) * self.dtype.itemsize)

    def images_of(self, memory: Array, images: int) -> Array:
        """Return the padded images."""
        return self.array(memory, 0, images, self.channels, *self.padded)

    def blocks(self, numbers: Iterator[int], memory: Array) -> Iterator[Block]:
        """Yield the blocks, those of the same images in order."""
        for number in numbers:
            images = self.images[number]
            count = images.stop - images.start
            channel, image, *_ = self.images_of(memory, count).swapaxes(0, 1).strides
            for rows in self.rows:
                lines = (rows.stop - rows.start, *self.counts[1:])
                shape = (count, self.channels, *self.kernel, *lines)
                strides = (image, channel, *self.places, *self.steps)
                start = rows.start * self.steps[0] if self.channels else 0  # no memory to be in
                windows = np.ndarray(shape, self.dtype, memory, start, strides)
                elements = self.matrices(memory, 1, count, (self.channels, *self.kernel), lines)
                outputs = self.matrices(memory, 2, count, (self.count,), lines)
                yield Block(number, images, rows, windows, *elements, *outputs)

    def matrices(
        self, memory: Array, place: int, images: int, rows: Numbers, lines: Numbers
    ) -> tuple[Array, Array]:
        """Return one of the arrays of scratch memory with images first, and as matrices."""
        matrix = self.groups, math.prod(rows) // self.groups, math.prod(lines)
        if not self.is_joint:
            each = self.array(memory, place, images, *rows, *lines)
            return each, each.reshape(images, *matrix)
        array = self.array(memory, place, *rows, images, *lines)
        return np.moveaxis(array, len(rows), 0), array.reshape(*matrix[:2], images * matrix[2])

    def is_in_place(self, outputs: Array) -> bool:
        """Whether the outputs of a block are matrices as they lie."""
        return not self.is_joint and outputs.dtype == self.dtype and outputs.flags.c_contiguous

    def outputs_of(self, array: Array, block: Block) -> Array:
        """Return the outputs of a block as matrices, copied if they do not lie so."""
        outputs = array[block.images, :, block.rows]
        if self.is_in_place(array):
            return outputs.reshape(block.outputs.shape)
        np.copyto(block.by_image, outputs)
        return block.outputs

    def gathered(self, x: Array, numbers: Iterator[int], memory: Array) -> Iterator[Block]:
        """Yield the blocks with the columns of images, which have zeros around them."""
        for block in self.blocks(numbers, memory):
            if block.rows.start == 0:
                images = x[block.images]
                padded = self.images_of(memory, len(images))
                padded.fill(0)
                np.copyto(padded[(..., *self.inner)], images[(..., *self.taken)])
            np.copyto(block.columns, block.windows)
            yield block

    def filters(self, w: Array) -> Array:
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

    @override
    def compute(self, x: Array, w: Array, out: Array, *blocks: Any) -> None:
        filters = self.filters(w)
        for block in self.gathered(x, *blocks):
            if self.is_in_place(out):
                np.matmul(filters, block.matrix, self.outputs_of(out, block))
                continue
            np.matmul(filters, block.matrix, block.outputs)
            np.copyto(out[block.images, :, block.rows], block.by_image, "unsafe")


class Transposed(Convolution):
    """The transposed convolution, from outputs and filters to images."""

    @override
    def compute(self, delta: Array, w: Array, out: Array, *blocks: Any) -> None:
        filters = self.filters(w).swapaxes(1, 2)
        # With one filter in a group it is an outer product, which BLAS is slow at.
        product = np.multiply if self.count == self.groups else np.matmul
        for block in self.blocks(*blocks):
            images = self.images_of(blocks[-1], block.images.stop - block.images.start)
            if block.rows.start == 0:
                images.fill(0)
            product(filters, self.outputs_of(delta, block), block.matrix)
            for place in np.ndindex(*self.kernel):
                target = block.windows[(slice(None), slice(None), *place)]
                np.add(target, block.columns[(slice(None), slice(None), *place)], target)
            if block.rows.stop == self.counts[0]:
                result = out[block.images]
                result.fill(0)
                np.copyto(result[(..., *self.taken)], images[(..., *self.inner)], "unsafe")


class Filters(Convolution):
    """The gradient of the filters of a convolution, a sum for each block that threads share."""

    @override
    def __call__(self, *arrays: Array) -> None:
        x, delta, out, memory = arrays
        shape = self.groups, self.depth, self.count // self.groups
        sums = np.zeros((len(self.images) if self.is_shared else 1, *shape), self.dtype)
        super().__call__(x, delta, sums, memory)
        result = np.add.reduce(sums).swapaxes(1, 2)
        np.copyto(out.reshape(result.shape), result, "unsafe")

    @override
    def compute(
        self, x: Array, delta: Array, sums: Array, numbers: Iterator[int], memory: Array
    ) -> None:
        for block in self.gathered(x, numbers, memory):
            outputs = self.outputs_of(delta, block).swapaxes(-1, -2)
            if not self.is_joint:  # OpenBLAS is slow at small products with such a second factor
                columns = self.array(memory, 4, *outputs.shape)
                np.copyto(columns, outputs)
                outputs = columns
            products = self.array(memory, 3, *block.matrix.shape[:-1], outputs.shape[-1])
            np.matmul(block.matrix, outputs, products)
            total = sums[block.number % len(sums)]
            for product in [products] if self.is_joint else products:
                np.add(total, product, total)


class Pooling(Blocked):
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
        super().__init__(_cut(shape[0], step), math.prod(shape))
        self.windows = step, shape[1], *sliding.counts(shape[2:])

    @override
    def compute(self, *arguments: Any) -> None:
        *operands, out, numbers, memory = arguments
        for images in map(self.images.__getitem__, numbers):
            result = out[images]  # 16 bits are computed as float32
            total = result if out.dtype == self.wide else np.empty(result.shape, self.wide)
            self.compute_block(total, memory, *(each[images] for each in operands))
            if total is not result:
                np.copyto(result, total, "unsafe")

    def compute_block(self, total: Array, memory: Array, *operands: Any) -> None:
        """Compute a block."""
        raise NotImplementedError


class MaxPool(Pooling):
    """The maximum of each window."""

    def compute_block(self, total: Array, memory: Array, *operands: Any) -> None:
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

    def compute_block(self, total: Array, memory: Array, *operands: Any) -> None:
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
        self.workspace = max(2 * math.prod(self.windows) * self.wide.itemsize, 1)

    def compute_block(self, total: Array, memory: Array, *operands: Any) -> None:
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
