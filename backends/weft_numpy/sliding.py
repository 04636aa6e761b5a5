"""Convolutions as columns and a matrix product, and pooling as windows and a reduction.

Both work on blocks of images that fit a core's cache, in scratch memory of the plan. The windows of
a block are copied to the columns of a matrix (im2col), and a product with the filters computes its
outputs. The transposed convolution multiplies first and sums the columns (col2im); the gradient of
the filters is a product of outputs and columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import accumulate, repeat
from typing import Any, NamedTuple

import numpy as np

from weft.ir import dtypes
from weft.ir.description import row_major
from weft.ir.dtypes import DType
from weft.nn.spatial.geometry import Numbers, Sliding

Array = np.ndarray[Any, Any]

CACHED = 1 << 20
"""The bytes of the arrays of a block."""

LEAST_COLUMNS = 256
"""The fewest columns for an efficient matrix product, for any cache."""


def _cut(count: int, step: int) -> list[slice]:
    """Divide a range into slices of a length; the last one may be shorter."""
    return [slice(start, min(start + step, count)) for start in range(0, count, step)]


class Block(NamedTuple):
    """Some windows of some images, in scratch memory.

    Attributes
    ----------
    images, rows
        The images, and the windows along the first axis.
    windows, columns
        The elements of windows in the padded images, and memory for as many; the axes are channels,
        places in a window, images and windows. Of images apart, images come first.
    matrix
        The columns as a matrix for each group, or for each image and group, with a row for each
        element of a filter.
    """

    images: slice
    rows: slice
    windows: Array
    columns: Array
    matrix: Array


class Convolution:
    """The base of the three convolutions, called with operands, result and scratch memory.

    The columns of a block are one matrix, whose products are copied to the outputs or from them, or
    one `apart` for each image, whose products are outputs already, but smaller.

    Attributes
    ----------
    images, rows
        The slices of images, and of their windows along the first axis, of the blocks.
    sizes
        The elements of padded images, columns, outputs, a sum and products of filters.
    """

    def __init__(
        self,
        images: Numbers,
        filters: Numbers,
        groups: int,
        dtype: DType,
        apart: bool,
        *sliding: Any,
    ) -> None:
        batch, self.channels, *lengths = images
        self.count, self.groups, self.depth = filters[0], groups, math.prod(filters[1:])
        self.kernel, self.dtype, self.apart = filters[2:], dtype, apart
        self.sliding = each = Sliding(*sliding)
        self.counts, self.padded = each.counts(lengths), each.padded(lengths)
        units = row_major(self.padded, dtype.itemsize)
        self.steps = tuple(n * unit for n, unit in zip(each.stride, units, strict=True))
        self.places = tuple(n * unit for n, unit in zip(each.dilation, units, strict=True))
        overlaps = map(_overlap, lengths, self.padded, each.padding)
        self.taken, self.inner = zip(*overlaps, strict=True)
        line, column = math.prod(self.counts[1:]), groups * self.depth + self.count
        limit = max(CACHED // max(column * dtype.itemsize, 1), LEAST_COLUMNS) // line
        step, lines = max(1, min(limit // self.counts[0], batch)), max(1, limit)
        self.images, self.rows = _cut(batch, step), _cut(self.counts[0], lines)
        columns = step * line * min(lines, self.counts[0])
        padded, size = math.prod(self.padded) * self.channels, self.count * self.depth
        outputs, products = (0, step * size) if apart else (self.count * columns, size)
        self.sizes = (step * padded, groups * self.depth * columns, outputs, size, products)

    @property
    def workspace(self) -> int:
        """The bytes of scratch memory."""
        return int(sum(self.sizes) * self.dtype.itemsize)

    def array(self, memory: Array, place: int, *shape: int) -> Array:
        """Return one of the arrays of scratch memory, in a shape."""
        return np.ndarray(shape, self.dtype, memory, sum(self.sizes[:place]) * self.dtype.itemsize)

    def images_of(self, memory: Array, images: slice) -> Array:
        """Return the padded images."""
        return self.array(memory, 0, images.stop - images.start, self.channels, *self.padded)

    def load(self, x: Array, images: slice, memory: Array) -> None:
        """Copy images to scratch memory, with zeros around them."""
        padded = self.images_of(memory, images)
        padded.fill(0)
        np.copyto(padded[(..., *self.inner)], x[(images, ..., *self.taken)])

    def block(self, memory: Array, images: slice, rows: slice) -> Block:
        """Return a block."""
        number, lines = images.stop - images.start, (rows.stop - rows.start, *self.counts[1:])
        image, channel, *_ = self.images_of(memory, images).strides
        shape, strides = (self.channels, *self.kernel), (channel, *self.places)
        place = len(shape) * (not self.apart)
        shape = (*shape[:place], number, *shape[place:], *lines)
        strides = (*strides[:place], image, *strides[place:], *self.steps)
        start = rows.start * self.steps[0] if self.channels else 0  # no memory to be in
        windows = np.ndarray(shape, self.dtype, memory, start, strides)
        columns = self.array(memory, 1, *shape)
        return Block(images, rows, windows, columns, self._matrices(columns, self.depth, number))

    def _matrices(self, array: Array, rows: int, images: int) -> Array:
        """View columns or outputs as a matrix for each group, or for each image and group."""
        apart = (images,) if self.apart else ()
        width = math.prod(array.shape[-len(self.counts) :]) * (1 if self.apart else images)
        return array.reshape(*apart, self.groups, rows, width)

    def outputs(self, block: Block, outputs: Array, memory: Array) -> tuple[Array, Array]:
        """Return matrices for a block's outputs, and a view of these like the outputs.

        Images apart have them in the outputs, others in scratch memory.
        """
        own = outputs[block.images, :, block.rows]
        if self.apart:
            return self._matrices(own, self.count // self.groups, len(own)), own
        spare = self.array(memory, 2, self.count, len(own), *own.shape[2:])
        matrices = self._matrices(spare, self.count // self.groups, len(own))
        return matrices, spare.swapaxes(0, 1)

    def taken_outputs(self, block: Block, outputs: Array, memory: Array) -> Array:
        """Return a block's outputs as matrices."""
        matrices, like = self.outputs(block, outputs, memory)
        if not self.apart:
            np.copyto(like, outputs[block.images, :, block.rows])
        return matrices

    def gathered(self, x: Array, memory: Array) -> Iterator[Block]:
        """Yield the blocks, those of the same images in order, with their columns."""
        for images in self.images:
            self.load(x, images, memory)
            for rows in self.rows:
                block = self.block(memory, images, rows)
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
            matrices, like = self.outputs(block, out, memory)
            np.matmul(filters, block.matrix, matrices)
            if not self.apart:
                np.copyto(out[block.images, :, block.rows], like, "unsafe")


class Transposed(Convolution):
    """The transposed convolution, from outputs and filters to images.

    Attributes
    ----------
    mirrored
        With stride 1 the convolution of the outputs with flipped filters, which computes the same
        with fewer passes over the columns; None if it has over half as many columns more.
    """

    def __init__(self, images: Numbers, *geometry: Any) -> None:
        super().__init__(images, *geometry)
        self.mirrored: Forward | None = None
        columns = self.count * math.prod(images[2:])
        sliding, is_dense = self.sliding, all(step == 1 for step in self.sliding.stride)
        if is_dense and 0 < 2 * columns <= 3 * self.channels * math.prod(self.counts):
            ends = zip(sliding.extents, sliding.padding, strict=True)
            around = tuple((n - 1 - before, n - 1 - after) for n, (before, after) in ends)
            outputs = images[0], self.count, *self.counts
            filters = self.channels, self.count // self.groups, *self.kernel
            form = self.groups, self.dtype, self.apart
            self.mirrored = Forward(outputs, filters, *form, *sliding._replace(padding=around))

    @property
    def workspace(self) -> int:
        """The bytes of scratch memory, of which one of the two ways is in use at a time."""
        return max(super().workspace, 0 if self.mirrored is None else self.mirrored.workspace)

    def flipped(self, w: Array, memory: Array) -> Array:
        """Return the filters of `mirrored`, in its scratch memory."""
        assert self.mirrored is not None, "it takes the filters"
        outer, inner = self.count // self.groups, self.channels // self.groups
        found = self.mirrored.array(memory, 3, self.groups, inner, outer, *self.kernel)
        split = w.reshape(self.groups, outer, inner, *self.kernel)
        np.copyto(found, np.flip(split, tuple(range(3, split.ndim))).swapaxes(1, 2))
        return found

    def __call__(self, delta: Array, w: Array, out: Array, memory: Array) -> None:
        """Write the images."""
        # The zeros around the outputs times an infinity would be NaN.
        if self.mirrored is not None and np.isfinite(w).all():
            self.mirrored(delta, self.flipped(w, memory), out, memory)
            return
        filters = self.matrices(w).swapaxes(1, 2)
        # With one filter in a group it is an outer product, which BLAS is slow at.
        product = np.multiply if self.count == self.groups else np.matmul
        before = (slice(None),) * (1 + self.apart)
        for images in self.images:
            total = self.images_of(memory, images)
            total.fill(0)
            for rows in self.rows:
                block = self.block(memory, images, rows)
                product(filters, self.taken_outputs(block, delta, memory), block.matrix)
                for place in np.ndindex(*self.kernel):
                    target = block.windows[(*before, *place)]
                    np.add(target, block.columns[(*before, *place)], target)
            result = out[images]
            result.fill(0)
            np.copyto(result[(..., *self.taken)], total[(..., *self.inner)], "unsafe")


class Filters(Convolution):
    """The gradient of the filters of a convolution."""

    def __call__(self, x: Array, delta: Array, out: Array, memory: Array) -> None:
        """Write the filters."""
        shape = self.groups, self.count // self.groups, self.depth
        total = self.array(memory, 3, *shape)
        total.fill(0)
        for block in self.gathered(x, memory):
            outputs = self.taken_outputs(block, delta, memory)
            products = self.array(memory, 4, *outputs.shape[:-1], self.depth)
            np.matmul(outputs, block.matrix.swapaxes(-1, -2), products)
            for product in products if self.apart else (products,):
                np.add(total, product, total)
        np.copyto(out.reshape(shape), total, "unsafe")


class Pooling:
    """The base of work on windows over images, one tap of all windows of a block at a time.

    NumPy is fast on whole arrays and slow on the few elements of a window.

    Attributes
    ----------
    images
        The slices of images of the blocks.
    stages
        The shapes of a block of images, and of what is left after the reduction of each axis; the
        last one is that of the windows.
    workspace
        The bytes of scratch memory.
    """

    def __init__(self, shape: Numbers, dtype: DType, *geometry: Any) -> None:
        batch, channels, *lengths = shape
        self.sliding, self.lengths = Sliding(*geometry), lengths
        self.dtype, self.wide = dtype, dtypes.accumulator_dtype(dtype)
        image = math.prod(shape[1:]) * self.wide.itemsize
        step = max(1, min(CACHED // max(image, 1), batch))
        self.images, counts = _cut(batch, step), self.sliding.counts(lengths)
        ends = range(len(lengths) + 1)
        self.stages = [(step, channels, *counts[:end], *lengths[end:]) for end in ends]

    def arrays(self, memory: Array, *shapes: Numbers) -> list[Array]:
        """Return arrays of scratch memory."""
        ends = [0, *accumulate(math.prod(shape) * self.wide.itemsize for shape in shapes)]
        return [np.ndarray(*each) for each in zip(shapes, repeat(self.wide), repeat(memory), ends)]

    def take(self, *shapes: Numbers) -> None:
        """Have scratch memory for arrays of some shapes."""
        self.workspace = sum(map(math.prod, shapes)) * self.wide.itemsize

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


class ReductionPooling(Pooling):
    """The base of pooling by one ufunc, which reduces windows along one axis at a time."""

    combine: np.ufunc

    def __init__(self, *geometry: Any) -> None:
        super().__init__(*geometry)
        self.taps = [
            [((..., *at[1:], *rest), (..., *elements[1:], *rest)) for at, elements, _ in taps]
            for axis, length in enumerate(self.lengths, 1)
            for rest in [(slice(None),) * (len(self.lengths) - axis)]
            for taps in [self.sliding.along(axis - 1).taps((length,))]
        ]
        self.take(*self.stages[1:-1])

    @property
    def initial(self) -> Any:
        """The identity element of the ufunc."""
        raise NotImplementedError

    def compute(self, total: Array, memory: Array, *operands: Any) -> None:
        """Combine the taps along each axis."""
        (source,) = operands
        spare = [each[: len(source)] for each in self.arrays(memory, *self.stages[1:-1])]
        for taps, reduced in zip(self.taps, (*spare, total), strict=True):
            reduced.fill(self.initial)
            for at, elements in taps:
                target = reduced[at]
                self.combine(target, source[elements], out=target)
            source = reduced


class MaxPool(ReductionPooling):
    """The maximum of each window."""

    combine = np.maximum

    @property
    def initial(self) -> Any:
        """The least number."""
        return dtypes.least(self.dtype)


class AvgPool(ReductionPooling):
    """The mean of each window; `numbers` are the elements that count in each."""

    combine = np.add
    initial = 0

    def __init__(self, numbers: Array, *geometry: Any) -> None:
        super().__init__(*geometry)
        self.numbers = numbers

    def compute(self, total: Array, memory: Array, *operands: Any) -> None:
        """Divide the sums."""
        super().compute(total, memory, *operands)
        np.divide(total, self.numbers, total)


class MaxPoolInput(Pooling):
    """The gradient of a max-pool, divided among the maxima of each window."""

    def __init__(self, *geometry: Any) -> None:
        super().__init__(*geometry)
        self.taps = [tap[:2] for tap in self.sliding.taps(self.lengths)]
        # Whether a window's element at each tap is its maximum takes a byte each.
        masks = -(-len(self.taps) // self.wide.itemsize), *self.stages[-1]
        self.shapes = self.stages[-1], self.stages[-1], masks
        self.take(*self.shapes)

    def compute(self, total: Array, memory: Array, *operands: Any) -> None:
        """Count the maxima of each window, then add the share of each."""
        delta, x, maxima = operands
        share, own, masks = self.arrays(memory, *self.shapes)
        share, own, shape = share[: len(x)], own[: len(x)], (len(self.taps), *self.stages[-1])
        is_chosen = np.ndarray(shape, bool, masks)[:, : len(x)]
        share.fill(0)
        for mask, (at, elements) in zip(is_chosen, self.taps, strict=True):
            np.equal(x[elements], maxima[at], mask[at])
            np.copyto(own[at], mask[at])
            np.add(share[at], own[at], share[at])
        np.divide(delta, share, share)
        total.fill(0)
        for mask, (at, elements) in zip(is_chosen, self.taps, strict=True):
            np.copyto(own[at], mask[at])
            np.multiply(own[at], share[at], own[at])
            np.add(total[elements], own[at], total[elements])
