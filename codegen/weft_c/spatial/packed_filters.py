"""Convolutions with packed filters: their ops, and which convolutions they replace.

Filters are rearranged into panels, as `weft_c.matmul.packed_panels` describes.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np

from weft.ir.axes import Axes, make_axes
from weft.ir.dtypes import DType, float32, int32
from weft.ir.op import Op
from weft.nn.spatial.convolutions import (
    BilinearConvolutionOp,
    ConvolutionInputOp,
    ConvolutionOp,
    convolved,
    transposed_convolved,
)
from weft.nn.spatial.geometry import Numbers, Pairs, Sliding
from weft.ops.products.linalg import ContractionOp
from weft.support.backports import override
from weft_c.matmul.accumulators import Accumulator, accumulator
from weft_c.matmul.packed_panels import dtype_of_sums, packed
from weft_c.matmul.words import numbers_in, numbers_of
from weft_c.processor import Processor
from weft_c.spatial.direct_convolution import best_tile
from weft_c.spatial.geometry import forward, transposed
from weft_tiling.counters import needs_wide_counter
from weft_tiling.spatial import Geometry, geometry_of

MAX_TAPS = 1024
"""The most elements of a filter, of which kernels have tables."""

MIN_PIXELS = 512
"""The fewest results of a filter for which packing pays off in every call.

Packing takes about a nanosecond for a number of a filter, and saves a seventh of the
multiplications' time.
"""

DIRECT_EFFICIENCY = 0.85
"""The speed of direct convolution for a multiplication, relative to packed filters."""

MAX_VECTORS = 3
"""The most vectors of filters of a tile: with more, operands take registers from sums."""

TRANSPOSITION = 0.6
"""The cycles in which a sum is moved to its place, when it is complete."""


class PackedConvolutionOp(ContractionOp):
    """The convolution of images with packed filters, or the transposed one of stride 1.

    If both are words of numbers of 8 bits, the sums of these numbers' products are int32.

    Attributes
    ----------
    stride, padding, dilation, groups
        Those of the convolution.
    kernel
        The spatial lengths of a filter.
    results
        The channels of the result in a group.
    is_transposed
        Whether this is the transposed convolution.
    """

    stride: Numbers
    padding: Pairs
    dilation: Numbers
    groups: int
    kernel: Numbers
    results: int
    is_transposed: bool

    @property
    def sliding(self) -> Sliding:
        """The windows."""
        return Sliding(self.kernel, self.stride, self.padding, self.dilation)

    def infer(self) -> tuple[Axes, DType]:
        """Return the axes of the outputs, or of the images."""
        images, _ = self.args
        batch, _, *lengths = images.axes.shape
        sliding = self.sliding
        counts = sliding.lengths(lengths) if self.is_transposed else sliding.counts(lengths)
        axes = make_axes((batch, self.groups * self.results, *counts))
        return axes, dtype_of_sums(images.dtype)

    @override
    def reference(self, x: Any, packed: Any) -> Any:
        groups, panels, terms, width = packed.shape
        channels = terms // prod(self.kernel)
        rows = packed.transpose(0, 1, 3, 2).reshape(groups, panels * width, channels, -1)
        rows = rows[:, : self.results]
        if self.is_transposed:
            rows = rows.transpose(0, 2, 1, 3)
        filters = rows.reshape(rows.shape[0] * rows.shape[1], rows.shape[2], *self.kernel)
        if self.dtype == int32:
            x, filters = numbers_of(x, 1, np.uint8), numbers_of(filters, 1, np.int8)
        compute = transposed_convolved if self.is_transposed else convolved
        return compute(x, filters, self.sliding, self.groups, self.axes.shape)

    @property
    def flops(self) -> int:
        """Two for each product, those with padding included."""
        x, packed = self.args
        if self.is_transposed:
            return 2 * int(x.axes.size) * self.results * prod(self.kernel)
        return 2 * int(self.axes.size) * int(packed.axes.shape[2]) * numbers_in(x)

    def operand_map(self, index: int, places: Any) -> tuple[int | None, ...]:
        """Return that of the batch for images, and none for filters."""
        spatial = (None,) * len(self.kernel)
        return (places[0], None, *spatial) if index == 0 else (None,) * 4


@dataclass(frozen=True)
class Windows:
    """The windows of a convolution of images with two spatial axes, the first of length 1 for one.

    Attributes
    ----------
    batch, groups, channels, results
        The images, the groups, and the channels of images and results in a group.
    lengths, counts
        The spatial sizes of images and results.
    step, before
        The stride, and the zeros before an image, along each axis.
    taps
        For each tap the index of the filter's element, and the place in the padded image that the
        first window reads.
    """

    batch: int
    groups: int
    channels: int
    results: int
    lengths: tuple[int, int]
    counts: tuple[int, int]
    step: tuple[int, int]
    before: tuple[int, int]
    taps: tuple[tuple[int, tuple[int, int]], ...]

    @property
    def pixels(self) -> int:
        """The results of a channel."""
        return prod(self.counts)

    @property
    def terms(self) -> int:
        """The terms of a sum."""
        return self.channels * len(self.taps)

    def extent(self, axis: int, count: int) -> int:
        """Return the elements of the padded image that `count` windows read along an axis."""
        return (count - 1) * self.step[axis] + max(at[axis] for _, at in self.taps) + 1

    @property
    def is_padded(self) -> bool:
        """Whether a window reads beyond the image."""
        return any(
            self.before[axis] or self.extent(axis, self.counts[axis]) > self.lengths[axis]
            for axis in range(2)
        )


def windows_of(g: Geometry, is_transposed: bool) -> Windows:
    """Return the windows of a convolution, or of a transposed one of stride 1."""
    kernel, stride, padding, dilation = g.sliding
    channels, results, lengths, counts = g.channels, g.filters, g.lengths, g.counts
    # Where along each axis a window reads at its taps, from the window's own index on.
    reads = [
        [k * gap - first for k in range(size)]
        for size, gap, (first, _) in zip(kernel, dilation, padding, strict=True)
    ]
    if is_transposed:
        channels, results, lengths, counts = results, channels, counts, lengths
        reads = [[-offset for offset in several] for several in reads]
    before = tuple(max(0, -min(several)) for several in reads)
    taps = []
    for number, at in enumerate(product(*reads)):
        offset = tuple(each + more for each, more in zip(at, before, strict=True))
        taps.append((number, _pair(offset, 0)))
    return Windows(
        g.batch, g.groups, channels, results, _pair(lengths, 1), _pair(counts, 1),
        _pair(stride, 1), _pair(before, 0), tuple(taps),
    )  # fmt: skip


def _pair(numbers: tuple[int, ...], first: int) -> tuple[int, int]:
    return (first, *numbers) if len(numbers) == 1 else numbers  # type: ignore[return-value]


@dataclass(frozen=True)
class PixelTile:
    """A tile of sums: rows and columns of results, and for each the vectors of its filters."""

    rows: int
    columns: int
    vectors: int
    lanes: int

    @property
    def pixels(self) -> int:
        """The results of a filter."""
        return self.rows * self.columns

    @property
    def width(self) -> int:
        """The filters."""
        return self.vectors * self.lanes


def best_pixel_tile(
    windows: Windows, acc: Accumulator, panel: int | None = None
) -> tuple[float, PixelTile]:
    """Return the cycles of all tiles for a term of their sums, and the best tile.

    `panel` is the width of panels if filters have been packed already.
    """
    height, width = windows.counts
    lanes = acc.lanes
    candidates: list[tuple[float, PixelTile]] = []
    for vectors in range(1, min(MAX_VECTORS, -(-windows.results // lanes)) + 1):
        if panel is not None and vectors * lanes != panel:
            continue
        most = acc.tile_rows(vectors)
        for columns in range(1, min(width, most) + 1):
            rows = min(height, most // columns) if columns == width else 1
            tile = PixelTile(rows, columns, vectors, lanes)
            panels = -(-windows.results // tile.width)
            tiles = panels * -(-height // rows) * -(-width // columns)
            cycles = max(tile.pixels * vectors, tile.pixels + vectors, 8) + 1
            moved = TRANSPOSITION * tile.pixels * tile.width / windows.terms
            candidates.append((tiles * (cycles + moved), tile))
    return min(candidates, key=lambda each: (each[0], -each[1].pixels))


def legalized_convolution(op: Op, processor: Processor) -> Op | None:
    """Return the convolution with packed filters in the place of one, if that is faster."""
    if type(op) not in (ConvolutionOp, ConvolutionInputOp) or op.dtype != float32:
        return None
    assert isinstance(op, BilinearConvolutionOp), "these are the two"
    acc = accumulator(op.dtype, processor)
    is_static = op.axes.is_static and all(each.axes.is_static for each in op.args)
    if not processor.is_serial or acc.lanes == 1 or not is_static:
        return None
    images, filters = op.args
    is_transposed = isinstance(op, ConvolutionInputOp)
    g = geometry_of(op)
    if not is_possible(op, g, is_transposed):
        return None
    windows = windows_of(g, is_transposed)
    if not filters.is_constant and windows.batch * windows.pixels < MIN_PIXELS:
        return None
    cycles, tile = best_pixel_tile(windows, acc)
    planes, phases = transposed(g) if is_transposed else forward(g)
    if needs_wide_counter(windows.channels * planes.size):
        return None
    direct, _ = best_tile(windows.results, phases[0], planes, acc.lanes, acc.registers)
    if cycles > direct / DIRECT_EFFICIENCY:
        return None
    panels = packed(filters, op.groups, tile.width, is_transposed)
    return PackedConvolutionOp(
        images, panels, results=windows.results, kernel=g.sliding.kernel,
        is_transposed=is_transposed, **op.geometry(),
    )  # fmt: skip


def is_possible(op: BilinearConvolutionOp, g: Geometry, is_transposed: bool) -> bool:
    """Whether there is code for packed filters: for few axes, taps and elements."""
    sizes = [each.axes.size for each in (*op.args, op)]
    if len(g.lengths) > 2 or g.taps > MAX_TAPS or 0 in sizes:
        return False
    if is_transposed:
        # The lengths of the result must follow from those of the operand.
        lengths = g.sliding.lengths(g.counts)
        if any(step > 1 for step in g.sliding.stride) or lengths != g.lengths:
            return False
    return not any(map(needs_wide_counter, sizes))
