"""Convolutions and pooling: their sizes, and the matrix product that a convolution is."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from weft.ir.description import TensorDescription
from weft.ir.dtypes import accumulator_dtype
from weft.nn.spatial.convolutions import (
    BilinearConvolutionOp,
    ConvolutionFilterOp,
    ConvolutionInputOp,
    ConvolutionOp,
)
from weft.nn.spatial.geometry import Numbers, Sliding
from weft.nn.spatial.pooling import MaxPoolInputOp

UNROLLED = 16
"""The most elements of an unrolled window."""


@dataclass(frozen=True)
class Geometry:
    """The sizes of a convolution.

    Attributes
    ----------
    batch, groups
        The number of images, and of groups of channels.
    channels, filters
        The input and output channels of a group.
    lengths, counts
        The spatial sizes of the images, and of the outputs.
    sliding
        Kernel size, stride, padding and dilation.
    """

    batch: int
    groups: int
    channels: int
    filters: int
    lengths: Numbers
    counts: Numbers
    sliding: Sliding

    @property
    def taps(self) -> int:
        """The elements of a filter in one channel."""
        return prod(self.sliding.kernel)


def geometry_of(op: BilinearConvolutionOp) -> Geometry:
    """Return the geometry of a convolution or of one of its gradients."""
    first, second, result = (each.axes.shape for each in (*op.args, op))
    if isinstance(op, ConvolutionOp):
        images, filters, outputs = first, second, result
    elif isinstance(op, ConvolutionFilterOp):
        images, filters, outputs = first, result, second
    else:
        images, filters, outputs = result, second, first
    count, channels, *kernel = filters
    return Geometry(
        images[0], op.groups, channels, count // op.groups, tuple(images[2:]), tuple(outputs[2:]),
        op.sliding(kernel),
    )  # fmt: skip


def product_lengths(
    op: BilinearConvolutionOp, g: Geometry
) -> tuple[tuple[int, ...], int, int, int]:
    """Return the batch shape, rows, columns and terms of a convolution's matrix product."""
    if isinstance(op, ConvolutionOp):
        return (g.batch, g.groups), g.filters, prod(g.counts), g.channels * g.taps
    if isinstance(op, ConvolutionInputOp):
        return (g.batch, g.groups), g.channels, prod(g.lengths), g.filters * g.taps
    return (g.groups,), g.filters, g.channels * g.taps, g.batch * prod(g.counts)


def result_of_product(
    op: BilinearConvolutionOp, g: Geometry, out: TensorDescription
) -> TensorDescription:
    """Return the convolution's result in the shape of the product."""
    batch, m, n, _ = product_lengths(op, g)
    result = out.cast((*batch, m, n))
    assert result is not None, "results are contiguous"
    return result


def are_tiles(op: MaxPoolInputOp) -> bool:
    """Whether windows tile the images without overlap, and are small enough to unroll."""
    axes = zip(op.axes.shape[2:], op.args[2].axes.shape[2:], *op.sliding, strict=True)
    is_tiled = all(
        n == count * step and size == step and gap == 1 and not any(pair)
        for n, count, size, step, pair, gap in axes
    )
    return is_tiled and prod(op.kernel) <= UNROLLED


def share_bytes(op: MaxPoolInputOp, processor: object) -> int:
    """Return the bytes of the shares of overlapping windows, on any device."""
    if are_tiles(op):
        return 0
    windows: int = prod(op.args[2].axes.shape)
    return windows * accumulator_dtype(op.dtype).itemsize + 256
