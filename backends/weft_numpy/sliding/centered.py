"""Same-size convolutions, with a matrix product for each image.

Products of the few windows of one image are small enough for BLAS to compute without packing; one
call computes those of several images.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from weft.ir.dtypes import DType
from weft.nn.spatial.geometry import Numbers
from weft_numpy.sliding.blocked import CACHED, Array, Blocked, Piece, shaped
from weft_numpy.sliding.shifts import Shifts

LOADED = 1 << 19
"""The bytes of image copies at a time, with one thread."""

LONG = 1 << 21
"""The same with more threads, which wait for the interpreter lock between steps."""

TURNED_FROM = 64
"""The elements of a filter from which on transposing the outputs pays off."""


class Centered(Blocked):
    """The base of the three convolutions, called with both operands and memory for the result.

    Attributes
    ----------
    count, depth
        The number of filters, and that of the elements of one.
    images, step
        The images of a part, and those that have columns at a time.
    """

    def __init__(
        self, images: Numbers, filters: Numbers, dilation: Numbers, dtype: DType, threads: int
    ) -> None:
        super().__init__(images, filters, dilation, dtype, threads)
        self.batch, self.channels, *lengths = images
        self.count, self.depth, self.dtype = filters[0], math.prod(filters[1:]), dtype
        self.shifts = Shifts(tuple(lengths), filters[2:], dilation)
        own = -(-self.batch // threads)
        image = self.channels * self.shifts.copied * dtype.itemsize
        loaded = LOADED if threads == 1 else LONG
        self.images = max(1, min(own, loaded // max(image, 1)))
        columns = self.depth * self.shifts.size * dtype.itemsize
        steps = -(-self.images // max(1, CACHED // max(columns, 1)))
        self.step = -(-self.images // steps)

    @property
    def parts(self) -> int:
        """The number of parts."""
        return -(-self.batch // self.images)

    def part(self, number: int) -> slice:
        """Return the images of a part."""
        return slice(number * self.images, min((number + 1) * self.images, self.batch))

    def steps(self, images: int) -> Iterator[slice]:
        """Yield the images of a part that have columns at a time."""
        for start in range(0, images, self.step):
            yield slice(start, min(start + self.step, images))

    def sizes(self) -> list[int]:
        """Return the elements of the arrays of scratch memory that a thread needs.

        The first two are copies of images, and columns.
        """
        shifts = self.shifts
        copies = self.images * self.channels * shifts.copied
        return [copies, self.step * self.depth * shifts.size]

    def pieces(self) -> list[Piece]:
        """Return arrays of the computation's dtype."""
        return [Piece(size, self.dtype) for size in self.sizes()]

    def matrices(self, outputs: Array) -> Array:
        """View outputs as a matrix for each image, with a row for each filter."""
        return outputs.reshape(len(outputs), self.count, self.shifts.size)

    def columns(self, memory: Array, images: int) -> Array:
        """Return memory as a matrix of columns for each image."""
        return shaped(memory, images, self.depth, self.shifts.size)

    def gathered(self, x: Array, lane: list[Array]) -> Iterator[tuple[slice, Array]]:
        """Yield images with their columns."""
        copies = self.shifts.load(x, lane[0])
        runs = self.shifts.runs(copies)
        for images in self.steps(len(x)):
            windows = runs[images]
            columns = self.columns(lane[1], len(windows))
            np.copyto(columns.reshape(windows.shape), windows)
            yield images, columns


class CenteredForward(Centered):
    """The convolution of images with filters."""

    def __call__(self, x: Array, w: Array, out: Array) -> None:
        """Write the outputs."""
        self.share(self.parts, x, w.reshape(self.count, self.depth), self.matrices(out))

    def work(self, parts: Iterator[int], lane: list[Array], *operands: Array) -> None:
        """Multiply the filters by columns."""
        x, w, out = operands
        for part in parts:
            outputs = out[self.part(part)]
            for images, columns in self.gathered(x[self.part(part)], lane):
                np.matmul(w, columns, outputs[images])


class CenteredTransposed(Centered):
    """The transposed convolution, from outputs and filters to images."""

    def sizes(self) -> list[int]:
        """Return those of filters, and of columns."""
        return [self.count * self.depth, super().sizes()[1]]

    def __call__(self, delta: Array, w: Array, out: Array) -> None:
        """Write the images."""
        flat = out.reshape(self.batch, self.channels, self.shifts.size)
        self.share(self.parts, self.matrices(delta), self._places_first(w), flat)

    def _places_first(self, w: Array) -> Array:
        """Return transposed filters with a matrix of channels for each tap."""
        by_place = w.reshape(self.count, self.channels, math.prod(w.shape[2:])).transpose(2, 1, 0)
        ordered = shaped(self.lanes[0][0], *by_place.shape)
        np.copyto(ordered, by_place)
        return ordered.reshape(self.depth, self.count)

    def work(self, parts: Iterator[int], lane: list[Array], *operands: Array) -> None:
        """Multiply the transposed filters by the outputs, and sum the columns."""
        delta, w, out = operands
        # With one filter it is an outer product, which BLAS is slow at.
        product = np.multiply if self.count == 1 else np.matmul
        for part in parts:
            outputs, target = delta[self.part(part)], out[self.part(part)]
            for images in self.steps(len(outputs)):
                columns = self.columns(lane[1], len(outputs[images]))
                product(w, outputs[images], columns)
                self.shifts.add_up(columns, target[images])


class CenteredFilters(Centered):
    """The filter gradient of a convolution.

    Sums do not depend on the scheduling of threads.
    """

    @property
    def turns(self) -> bool:
        """Whether outputs are transposed first: a product with a transposed matrix takes longer."""
        return self.depth >= TURNED_FROM

    def sizes(self) -> list[int]:
        """Return also those of outputs, of a product for each image, and of sums of parts."""
        outputs = self.images * self.count * self.shifts.size if self.turns else 0
        products = (n * self.count * self.depth for n in (self.images, self.parts))
        return [*super().sizes(), outputs, *products]

    def __call__(self, x: Array, delta: Array, out: Array) -> None:
        """Write the filters."""
        sums = self._products(self.lanes[0][4], self.parts)
        self.share(self.parts, x, self.matrices(delta), sums)
        (total,) = self._products(self.lanes[0][3], 1)
        np.add.reduce(sums, 0, None, total)
        np.copyto(out.reshape(self.count, self.depth), total.T)

    def _products(self, memory: Array, count: int) -> Array:
        return shaped(memory, count, self.depth, self.count)

    def work(self, parts: Iterator[int], lane: list[Array], *operands: Array) -> None:
        """Multiply columns by outputs, and sum the products of each part."""
        x, delta, sums = operands
        for part in parts:
            outputs = delta[self.part(part)].swapaxes(1, 2)
            if self.turns:
                turned = shaped(lane[2], *outputs.shape)
                np.copyto(turned, outputs)
                outputs = turned
            products = self._products(lane[3], len(outputs))
            for images, columns in self.gathered(x[self.part(part)], lane):
                np.matmul(columns, outputs[images], products[images])
            np.add.reduce(products, 0, None, sums[part])
