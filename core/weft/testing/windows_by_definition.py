"""What sliding windows, convolutions and pooling are, by definition and in float64.

Everything is read from one table: for each window and each of its elements, the index of an element
of the image. An index outside of the image refers to one more element, which holds the padding.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.nn.spatial.geometry import Sliding

Array = Any


class Windows:
    """Windows over images of some spatial lengths.

    Attributes
    ----------
    counts
        The number of windows along each axis.
    table
        For each window and each of its elements, both in row-major order, an index in the image.
    """

    def __init__(self, lengths: Sequence[int], sliding: Sliding, counts: Sequence[int]) -> None:
        self.lengths, self.sliding, self.counts = tuple(lengths), sliding, tuple(counts)
        self.size = math.prod(lengths)
        rank = len(self.lengths)
        found, is_inside = np.zeros((1,) * 2 * rank, np.int64), np.ones((1,) * 2 * rank, bool)
        for axis, (n, count) in enumerate(zip(self.lengths, self.counts, strict=True)):
            ((size,), (step,), ((before, _),), (gap,)) = sliding.along(axis)
            element = np.arange(count)[:, None] * step + np.arange(size) * gap - before
            others = tuple(other for other in range(2 * rank) if other not in (axis, rank + axis))
            element = np.expand_dims(element, others)
            found = found * n + element
            is_inside = is_inside & (element >= 0) & (element < n)
        shape = math.prod(self.counts), math.prod(sliding.kernel)
        self.table = np.where(is_inside, found, self.size).reshape(shape)

    @classmethod
    def over(cls, lengths: Sequence[int], sliding: Sliding) -> Windows:
        """Return all windows that fit images."""
        return cls(lengths, sliding, counts_of(lengths, sliding))

    @property
    def is_inside(self) -> Array:
        """Whether an element of a window is one of the image."""
        return self.table < self.size

    def of(self, images: Array, fill: float = 0) -> Array:
        """Return the elements of windows, as an array (N, C, windows, elements)."""
        flat = images.reshape(*images.shape[:2], self.size)
        more = np.full((*flat.shape[:2], 1), fill)
        return np.concatenate([flat, more], axis=-1)[:, :, self.table]

    def summed(self, elements: Array) -> Array:
        """Return images with the sums of the elements of windows, the adjoint of `of`."""
        total = np.zeros((*elements.shape[:2], self.size + 1))
        ends: Any = slice(None), slice(None), self.table
        np.add.at(total, ends, elements)
        return total[:, :, : self.size].reshape(*elements.shape[:2], *self.lengths)

    def numbers(self, counted: Sequence[tuple[int, int]]) -> Array:
        """Return for each window how many of its elements are in the image and some padding."""
        around = Sliding(*self.sliding[:2], self._without(counted), self.sliding.dilation)
        lengths = [a + n + b for n, (a, b) in zip(self.lengths, counted, strict=True)]
        return Windows(lengths, around, self.counts).is_inside.sum(axis=1)

    def _without(self, counted: Sequence[tuple[int, int]]) -> Any:
        pairs = zip(self.sliding.padding, counted, strict=True)
        return tuple((a - c, b - d) for (a, b), (c, d) in pairs)


def counts_of(lengths: Sequence[int], sliding: Sliding) -> tuple[int, ...]:
    """Return how many windows fit the padded image along each axis, by trying."""
    axes = zip(lengths, sliding.extents, *sliding[1:3], strict=True)
    return tuple(
        sum(1 for start in range(0, max(a + n + b, 0), step) if start + extent <= a + n + b)
        for n, extent, step, (a, b) in axes
    )


class Bilinear:
    """The three functions that are linear in images, filters and outputs, two of them given."""

    def __init__(self, windows: Windows, groups: int) -> None:
        self.windows, self.groups = windows, groups

    def outputs(self, images: Array, filters: Array) -> Array:
        """Return the convolution."""
        found = np.einsum("ngcpk,gock->ngop", self._seen(images), self._split(filters))
        return found.reshape(len(images), len(filters), *self.windows.counts)

    def images(self, outputs: Array, filters: Array) -> Array:
        """Return the adjoint of the convolution in its images."""
        split = self._split(filters)
        elements = np.einsum("ngop,gock->ngcpk", self._outputs(outputs), split)
        batch, groups, channels = elements.shape[:3]
        return self.windows.summed(
            elements.reshape(batch, groups * channels, *self.windows.table.shape)
        )

    def filters(self, images: Array, outputs: Array) -> Array:
        """Return the adjoint of the convolution in its filters."""
        found = np.einsum("ngcpk,ngop->gock", self._seen(images), self._outputs(outputs))
        groups, count, channels, _ = found.shape
        return found.reshape(groups * count, channels, *self.windows.sliding.kernel)

    def _seen(self, images: Array) -> Array:
        shape = self.groups, images.shape[1] // self.groups, *self.windows.table.shape
        return self.windows.of(images).reshape(len(images), *shape)

    def _split(self, filters: Array) -> Array:
        count, channels = filters.shape[:2]
        taps = self.windows.table.shape[1]
        return filters.reshape(self.groups, count // self.groups, channels, taps)

    def _outputs(self, outputs: Array) -> Array:
        shape = self.groups, outputs.shape[1] // self.groups, len(self.windows.table)
        return outputs.reshape(len(outputs), *shape)


class Pooling:
    """Results of pooling, and their adjoints."""

    def __init__(self, windows: Windows) -> None:
        self.windows = windows

    def _shaped(self, results: Array) -> Array:
        return results.reshape(*results.shape[:2], *self.windows.counts)

    def _given(self, delta: Array) -> Array:
        return delta.reshape(*delta.shape[:2], len(self.windows.table), 1)

    def maximum(self, x: Array) -> Array:
        """Return the maximum of each window."""
        return self._shaped(self.windows.of(x, -np.inf).max(axis=-1))

    def _is_top(self, x: Array) -> Array:
        """Return whether an element is one of the maxima of its window, or NaN."""
        seen = self.windows.of(x, -np.inf)
        is_top = (seen == seen.max(axis=-1, keepdims=True)) | np.isnan(seen)
        return is_top & self.windows.is_inside

    def index(self, x: Array) -> Array:
        """Return where in the image the first maximum of each window is."""
        first = self._is_top(x).argmax(axis=-1)
        found = self.windows.table[np.arange(len(self.windows.table)), first]
        return self._shaped(found.astype(np.int64))

    def put(self, index: Array, values: Array) -> Array:
        """Return images of zeros with values at their places."""
        result = np.zeros((*values.shape[:2], self.windows.size))
        flat = *values.shape[:2], len(self.windows.table)
        np.put_along_axis(result, index.reshape(flat), values.reshape(flat), axis=-1)
        return result.reshape(*values.shape[:2], *self.windows.lengths)

    def maximum_adjoint(self, x: Array, delta: Array) -> Array:
        """Return the adjoint, split evenly among the maxima of a window."""
        is_top = self._is_top(x)
        shares = is_top / is_top.sum(axis=-1, keepdims=True)
        return self.windows.summed(shares * self._given(delta))

    def mean(self, x: Array, counted: Any) -> Array:
        """Return the mean of each window, in which some padding counts."""
        return self._shaped(self.windows.of(x).sum(axis=-1) / self.windows.numbers(counted))

    def mean_adjoint(self, delta: Array, counted: Any) -> Array:
        """Return the adjoint of the mean."""
        shares = self._given(delta) / self.windows.numbers(counted)[:, None]
        return self.windows.summed(shares * self.windows.is_inside)

    def norm(self, x: Array, p: float) -> Array:
        """Return the p-norm of each window."""
        return self._shaped((np.abs(self.windows.of(x)) ** p).sum(axis=-1) ** (1 / p))

    def norm_adjoint(self, x: Array, delta: Array, p: float) -> Array:
        """Return the adjoint of the p-norm, 0 where that is 0."""
        seen, norm = self.windows.of(x), self._given(self.norm(x, p))
        slopes = (np.abs(seen) / np.where(norm == 0, 1, norm)) ** (p - 1) * np.sign(seen)
        return self.windows.summed(slopes * self._given(delta))


def columns(windows: Windows, images: Array) -> Array:
    """Return the windows as columns, over all channels."""
    places, taps = windows.table.shape
    seen = windows.of(images).swapaxes(-1, -2)
    return seen.reshape(len(images), images.shape[1] * taps, places)


def folded(windows: Windows, columns: Array, shape: tuple[int, ...]) -> Array:
    """Return images of a shape that are the sums of columns."""
    places, taps = windows.table.shape
    return windows.summed(columns.reshape(*shape[:2], taps, places).swapaxes(-1, -2))


def meaning(length: int, count: int) -> Array:
    """Return the matrix of means over windows that divide an axis, as `adaptive_avg_pool` does."""
    result = np.zeros((count, length))
    for i in range(count):
        part = slice(i * length // count, -(-(i + 1) * length // count))
        result[i, part] = 1 / len(range(*part.indices(length)))
    return result


def reaching_over(lengths: Sequence[int], sliding: Sliding) -> Sliding:
    """Return windows padded further, for a last one that starts before the padding at the end."""
    pairs = []
    for n, extent, step, (before, after) in zip(
        lengths, sliding.extents, *sliding[1:3], strict=True
    ):
        starts = itertools.takewhile(lambda s: s < before + n, itertools.count(0, step))  # noqa: B023
        most = -(-(before + n + after - extent) // step)
        last = [start for start in starts if start <= most * step][-1]
        pairs.append((before, max(after, last + extent - before - n)))
    return sliding._replace(padding=tuple(pairs))
