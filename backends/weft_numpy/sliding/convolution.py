"""Convolutions by im2col over blocks of images that fit the cache.

The windows of a few images are copied to the columns of a matrix (see `columns`), and a matrix
product computes their outputs. The transposed convolution multiplies first and sums the columns
(col2im); the filter gradient is a product of columns and outputs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from weft_numpy.sliding.blocked import Array, Blocked, Piece, shaped
from weft_numpy.sliding.columns import BlockedGeometry, Lane


class Convolution(Blocked):
    """The base of the three convolutions; their arguments are those of `BlockedGeometry`.

    They are called with both operands and memory for the result.
    """

    arrays: ClassVar[int] = 3
    """The number of the arrays in `BlockedGeometry.sizes` that a thread needs."""

    lanes: list[Lane]

    def __init__(self, *numbers: Any) -> None:
        super().__init__(*numbers)
        self.geometry = BlockedGeometry(*numbers)

    def pieces(self) -> list[Piece]:
        """Return arrays for images, columns and outputs, and some for filters."""
        geometry = self.geometry
        return [Piece(size, geometry.dtype) for size in geometry.sizes[: self.arrays]]

    def lane(self, arrays: list[Array]) -> Lane:
        """Return views of a thread's arrays."""
        return Lane(self.geometry, arrays)

    def matrices(self, w: Array) -> Array:
        """Return filters as a matrix for each group, with a row for each filter."""
        wide = w.astype(self.geometry.dtype, copy=False)
        geometry = self.geometry
        return wide.reshape(geometry.groups, geometry.count // geometry.groups, geometry.depth)


class Forward(Convolution):
    """The convolution of images with filters."""

    def __call__(self, x: Array, w: Array, out: Array) -> None:
        """Write the outputs."""
        self.share(self.geometry.blocks, x, self.matrices(w), out)

    def work(self, parts: Iterator[int], lane: Lane, *operands: Array) -> None:
        """Multiply the filters by columns."""
        x, w, out = operands
        for images, block, chunk, is_new in lane.steps(parts):
            if is_new:
                block.load(x[images])
            chunk.gather()
            target = out[images, :, chunk.rows]
            np.matmul(w, chunk.columns, chunk.room(target))
            chunk.give(target)


class Mirrored(Forward):
    """The transposed convolution with stride 1: a convolution with flipped filters.

    Its geometry is that of the convolution with flipped filters, whose images are the outputs.
    """

    arrays = 4

    def matrices(self, w: Array) -> Array:
        """Return the flipped filters, with channels and filters exchanged."""
        geometry = self.geometry
        inner, outer = (n // geometry.groups for n in (geometry.channels, geometry.count))
        split = w.reshape(geometry.groups, inner, outer, *geometry.kernel)
        turned = np.flip(split, tuple(range(3, split.ndim))).swapaxes(1, 2)
        matrices = shaped(self.lanes[0].filters[0], *turned.shape)
        np.copyto(matrices, turned)
        return super().matrices(matrices)


class Transposed(Convolution):
    """The transposed convolution, from outputs and filters to images."""

    def __call__(self, delta: Array, w: Array, out: Array) -> None:
        """Write the images."""
        groups = -(-self.geometry.batch // self.geometry.images)
        # A gap holds products of zeros, which are zeros unless a filter is not finite.
        is_finite = np.isfinite(np.add.reduce(w, axis=None))
        self.share(groups, delta, self.matrices(w).swapaxes(1, 2), is_finite, out)

    def work(self, parts: Iterator[int], lane: Lane, *operands: Any) -> None:
        """Multiply the transposed filters by the outputs, and sum the columns."""
        delta, w, is_finite, out = operands
        # With one filter in a group it is an outer product, which BLAS is slow at.
        product = np.multiply if w.shape[-1] == 1 else np.matmul
        chunks = len(self.geometry.rows)
        blocks = (part * chunks + number for part in parts for number in range(chunks))
        for images, block, chunk, is_new in lane.steps(blocks):
            if is_new:
                block.run.fill(0)
            product(w, chunk.take(delta[images, :, chunk.rows]), chunk.columns)
            if not is_finite:
                chunk.close_gaps()
            chunk.scatter()
            if chunk is block.chunks[-1]:
                block.store(out[images])


class Filters(Convolution):
    """The filter gradient of a convolution."""

    arrays = 5

    def __call__(self, x: Array, delta: Array, out: Array) -> None:
        """Write the filters."""
        total = self._sum(x, delta, False)
        # In a gap, elements of images meet zeros: that matters only if one is not finite.
        if self.geometry.has_gaps and not np.isfinite(np.add.reduce(total, axis=None)):
            total = self._sum(x, delta, True)
        np.copyto(out.reshape(total.shape), total, "unsafe")

    def _sum(self, x: Array, delta: Array, is_exact: bool) -> Array:
        """Return the sum over all blocks, independent of the scheduling of threads."""
        self.share(self.threads, x, delta, is_exact)
        first, *others = (self._total(lane) for lane in self.lanes)
        for each in others:
            np.add(first, each, first)
        return first.swapaxes(1, 2)

    def _total(self, lane: Lane) -> Array:
        """Return a part's sum, of shape (groups, elements of a filter, filters)."""
        geometry = self.geometry
        filters = geometry.count // geometry.groups
        return shaped(lane.filters[1], geometry.groups, geometry.depth, filters)

    def work(self, parts: Iterator[int], lane: Lane, *operands: Any) -> None:
        """Sum the products of columns and outputs of each part."""
        x, delta, is_exact = operands
        for part in parts:
            total = self._total(self.lanes[part])
            total.fill(0)
            ends = (self.geometry.blocks * each // self.threads for each in (part, part + 1))
            for images, block, chunk, is_new in lane.steps(range(*ends)):
                if is_new:
                    block.load(x[images])
                chunk.gather()
                if is_exact:
                    chunk.close_gaps()
                outputs = chunk.take(delta[images, :, chunk.rows]).swapaxes(-1, -2)
                products = shaped(lane.filters[0], *chunk.columns.shape[:-1], outputs.shape[-1])
                np.matmul(chunk.columns, outputs, products)
                several = math.prod(products.shape[:-3])
                for product in products.reshape(several, *total.shape):
                    np.add(total, product, total)
