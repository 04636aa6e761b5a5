"""Lowering rules of convolutions and their gradients, in blocks of images."""

from __future__ import annotations

from math import prod
from operator import le
from typing import Any

from weft.ir import dtypes
from weft.nn.spatial.convolutions import (
    BilinearConvolutionOp,
    ConvolutionFilterOp,
    ConvolutionInputOp,
    ConvolutionOp,
)
from weft.nn.spatial.geometry import Numbers
from weft_numpy.costs import COLUMN_COPY, FLOP
from weft_numpy.machine import Machine
from weft_numpy.rules.blocked import in_blocks, threads_for
from weft_numpy.sliding.blocked import CACHED, Blocked
from weft_numpy.sliding.centered import CenteredFilters, CenteredForward, CenteredTransposed
from weft_numpy.sliding.columns import LEAST_COLUMNS
from weft_numpy.sliding.convolution import Filters, Forward, Mirrored, Transposed
from weft_numpy.sliding.shifts import keeps_size

SMALL_PRODUCT = 10**6
"""Multiplications of a product that OpenBLAS computes without packing its operands."""

MANY_WINDOWS = 512
"""The fewest windows for which flipping the filters pays off."""


def lengths_of(op: BilinearConvolutionOp) -> tuple[Numbers, Numbers, Numbers]:
    """Return the lengths of images, filters and outputs."""
    first, second, result = (each.axes.shape for each in (*op.args, op))
    if isinstance(op, ConvolutionOp):
        return first, second, result
    if isinstance(op, ConvolutionFilterOp):
        return first, result, second
    return result, second, first


@in_blocks(ConvolutionOp)
def forward(op: ConvolutionOp, machine: Machine) -> Blocked:
    """Return the work of a convolution."""
    if _keeps_size(op):
        return CenteredForward(*_centered(op, machine))
    images, filters, _ = lengths_of(op)
    numbers = op.groups, dtypes.accumulator_dtype(op.dtype), _has_gaps(op), _threads(op, machine)
    return Forward(images, filters, op.stride, op.padding, op.dilation, *numbers)


@in_blocks(ConvolutionFilterOp)
def filters(op: ConvolutionFilterOp, machine: Machine) -> Blocked:
    """Return the work of a filter gradient."""
    if _keeps_size(op):
        return CenteredFilters(*_centered(op, machine))
    images, filters, _ = lengths_of(op)
    numbers = op.groups, dtypes.accumulator_dtype(op.dtype), _has_gaps(op), _threads(op, machine)
    return Filters(images, filters, op.stride, op.padding, op.dilation, *numbers)


@in_blocks(ConvolutionInputOp)
def transposed(op: ConvolutionInputOp, machine: Machine) -> Blocked:
    """Return the work of a transposed convolution, or of a convolution with flipped filters."""
    if _keeps_size(op):
        return CenteredTransposed(*_centered(op, machine))
    images, filters, outputs = lengths_of(op)
    numbers = (
        op.dilation,
        op.groups,
        dtypes.accumulator_dtype(op.dtype),
        True,
        _threads(op, machine),
    )
    windows, is_empty = outputs[0] * prod(outputs[2:]), 0 in images
    is_few = windows < MANY_WINDOWS or filters[0] > 2 * images[1]
    if is_empty or is_few or any(n > 1 for n in op.stride):
        return Transposed(images, filters, op.stride, op.padding, *numbers)
    turned = images[1], filters[0] // op.groups, *filters[2:]
    extents = op.sliding(filters[2:]).extents
    around = tuple((n - 1 - a, n - 1 - b) for n, (a, b) in zip(extents, op.padding, strict=True))
    return Mirrored(outputs, turned, op.stride, around, *numbers)


def _threads(op: BilinearConvolutionOp, machine: Machine) -> int:
    _, (count, *rest), outputs = lengths_of(op)
    windows, depth = outputs[0] * prod(outputs[2:]), prod(rest)
    copied = windows * (depth * op.groups + count)
    return threads_for(COLUMN_COPY * copied + FLOP * 2 * windows * count * depth, machine)


def _centered(op: BilinearConvolutionOp, machine: Machine) -> tuple[Any, ...]:
    images, filters, _ = lengths_of(op)
    return images, filters, op.dilation, op.dtype, _threads(op, machine)


def _keeps_size(op: BilinearConvolutionOp) -> bool:
    """Whether a product for each image is as fast as one of many, with columns in the cache."""
    (_, _, *lengths), (count, *rest), _ = lengths_of(op)
    windows, depth = prod(lengths), prod(rest)
    is_apart = op.groups == 1 and op.dtype == dtypes.accumulator_dtype(op.dtype)
    is_good = windows * depth * count <= SMALL_PRODUCT or windows >= LEAST_COLUMNS
    is_cached = windows * depth * op.dtype.itemsize <= CACHED
    sliding = op.sliding(rest[1:])
    return is_apart and is_good and is_cached and keeps_size(tuple(lengths), sliding)


def _has_gaps(op: BilinearConvolutionOp) -> bool:
    """Whether copying columns in short runs would take longer than copying outputs."""
    _, (count, *rest), _ = lengths_of(op)
    kernel = rest[1:]
    is_apart = all(map(le, op.sliding(kernel).extents, op.stride))
    is_short = is_apart or op.groups * prod(rest) <= 2 * count
    return op.dtype != dtypes.accumulator_dtype(op.dtype) or prod(kernel) == 1 or not is_short


def is_product(op: BilinearConvolutionOp) -> bool:
    """Whether a convolution is a matrix product without copies, as its decomposition computes."""
    if isinstance(op, ConvolutionFilterOp):
        return False
    _, filters, outputs = lengths_of(op)
    is_bare = not any(map(any, op.padding)) and all(n == 1 for n in (*filters[2:], *op.stride))
    return is_bare and prod(outputs[2:]) >= LEAST_COLUMNS
