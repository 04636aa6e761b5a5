"""Convolutions and their adjoints, in blocks of images."""

from __future__ import annotations

from math import prod
from operator import le

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


@in_blocks(ConvolutionOp)
def forward(op: ConvolutionOp, machine: Machine) -> Convolution:
    """Return what convolves images."""
    images, filters, _ = lengths_of(op)
    numbers = op.groups, dtypes.working_dtype(op.dtype), _has_gaps(op), _threads(op, machine)
    return Forward(images, filters, op.stride, op.padding, op.dilation, *numbers)


@in_blocks(ConvolutionFilterOp)
def filters(op: ConvolutionFilterOp, machine: Machine) -> Convolution:
    """Return what sums up filters."""
    images, filters, _ = lengths_of(op)
    numbers = op.groups, dtypes.working_dtype(op.dtype), _has_gaps(op), _threads(op, machine)
    return Filters(images, filters, op.stride, op.padding, op.dilation, *numbers)


@in_blocks(ConvolutionInputOp)
def transposed(op: ConvolutionInputOp, machine: Machine) -> Convolution:
    """Return what lays filters out, or convolves with filters turned around."""
    images, filters, outputs = lengths_of(op)
    numbers = op.dilation, op.groups, dtypes.working_dtype(op.dtype), True, _threads(op, machine)
    windows = outputs[0] * prod(outputs[2:])
    if windows < MANY_WINDOWS or filters[0] > 2 * images[1] or any(n > 1 for n in op.stride):
        return Transposed(images, filters, op.stride, op.padding, *numbers)
    turned = images[1], filters[0] // op.groups, *filters[2:]
    extents = op.sliding(filters[2:]).extents
    around = tuple((n - 1 - a, n - 1 - b) for n, (a, b) in zip(extents, op.padding, strict=True))
    return Mirrored(outputs, turned, op.stride, around, *numbers)


def _threads(op: BilinearConvolutionOp, machine: Machine) -> int:
    _, (count, *rest), outputs = lengths_of(op)
    windows, depth = outputs[0] * prod(outputs[2:]), prod(rest)
    copied = windows * (depth * op.groups + count)
    return threads_for(COPY * copied + FLOP * 2 * windows * count * depth, machine)


def _has_gaps(op: BilinearConvolutionOp) -> bool:
    """Whether copying columns in short runs would take longer than copying outputs."""
    _, (count, *rest), _ = lengths_of(op)
    kernel = rest[1:]
    is_apart = all(map(le, op.sliding(kernel).extents, op.stride))
    is_short = is_apart or op.groups * prod(rest) <= 2 * count
    return op.dtype != dtypes.working_dtype(op.dtype) or prod(kernel) == 1 or not is_short


def is_product(op: BilinearConvolutionOp) -> bool:
    """Whether a convolution is a product of matrices as they lie in memory, better decomposed."""
    if isinstance(op, ConvolutionFilterOp):
        return False
    _, filters, outputs = lengths_of(op)
    is_bare = not any(map(any, op.padding)) and all(n == 1 for n in (*filters[2:], *op.stride))
    return is_bare and prod(outputs[2:]) >= LEAST_COLUMNS
