"""Convolutions and their adjoints, in blocks of images."""

from __future__ import annotations

from math import prod

from weft import dtypes
from weft.ops.convolutions import (
    BilinearConvolutionOp,
    ConvolutionFilterOp,
    ConvolutionInputOp,
    ConvolutionOp,
)
from weft.ops.spatial import Numbers
from weft_numpy.kernels.costs import FLOP
from weft_numpy.machine import Machine
from weft_numpy.rules.blocked import in_blocks, threads_for
from weft_numpy.sliding.columns import LEAST_COLUMNS
from weft_numpy.sliding.convolution import (
    Convolution,
    Filters,
    Forward,
    Mirrored,
    Transposed,
)

COPY = 0.2
"""Nanoseconds to copy an element to a column, or from one."""

MANY_WINDOWS = 512
"""With fewer windows, turning the filters around takes longer than it saves."""


def lengths_of(op: BilinearConvolutionOp) -> tuple[Numbers, Numbers, Numbers]:
    """Return the lengths of images, filters and outputs."""
    first, second, result = (each.axes.shape for each in (*op.args, op))
    if isinstance(op, ConvolutionOp):
        return first, second, result
    if isinstance(op, ConvolutionFilterOp):
        return first, result, second
    return result, second, first


@in_blocks(ConvolutionOp, ConvolutionInputOp, ConvolutionFilterOp)
def convolution(op: BilinearConvolutionOp, machine: Machine) -> Convolution:
    """Return what computes an op."""
    images, filters, outputs = lengths_of(op)
    windows, depth = outputs[0] * prod(outputs[2:]), prod(filters[1:])
    copied = windows * (depth * op.groups + filters[0])
    time = COPY * copied + FLOP * 2 * windows * filters[0] * depth
    wide, threads = dtypes.working_dtype(op.dtype), threads_for(time, machine)
    # Where filters have few elements, copying columns in short runs is less than copying outputs.
    has_gaps = op.groups * depth > 2 * filters[0] or op.dtype != wide
    rest = op.groups, wide
    if not isinstance(op, ConvolutionInputOp):
        kind = Forward if isinstance(op, ConvolutionOp) else Filters
        return kind(images, filters, op.stride, op.padding, op.dilation, *rest, has_gaps, threads)
    if windows < MANY_WINDOWS or filters[0] > 2 * images[1] or any(n > 1 for n in op.stride):
        return Transposed(images, filters, op.stride, op.padding, op.dilation, *rest, True, threads)
    turned = images[1], filters[0] // op.groups, *filters[2:]
    extents = op.sliding(filters[2:]).extents
    around = tuple((n - 1 - a, n - 1 - b) for n, (a, b) in zip(extents, op.padding, strict=True))
    return Mirrored(outputs, turned, op.stride, around, op.dilation, *rest, True, threads)


def is_product(op: BilinearConvolutionOp) -> bool:
    """Whether a convolution is a product of matrices as they lie in memory, better decomposed."""
    if isinstance(op, ConvolutionFilterOp):
        return False
    _, filters, outputs = lengths_of(op)
    is_bare = not any(map(any, op.padding)) and all(n == 1 for n in (*filters[2:], *op.stride))
    return is_bare and prod(outputs[2:]) >= LEAST_COLUMNS
