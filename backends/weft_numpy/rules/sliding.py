"""Lowering rules of convolutions, pooling and their gradients, in blocks of images."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, TypeVar

import numpy as np

from weft.ir import dtypes
from weft.ir.op import Op
from weft.ops import pooling
from weft.ops.convolutions import (
    BilinearConvolutionOp,
    ConvolutionFilterOp,
    ConvolutionInputOp,
    ConvolutionOp,
)
from weft.ops.spatial import Numbers
from weft.support.dispatch import ClassTable
from weft_numpy.codegen import Emitter
from weft_numpy.rules.table import rules
from weft_numpy.sliding import (
    LEAST_COLUMNS,
    AvgPool,
    Convolution,
    Filters,
    Forward,
    MaxPool,
    MaxPoolInput,
    Mirrored,
    Pooling,
    Transposed,
)

Work = tuple[type[Convolution | Pooling], tuple[Any, ...]]
M = TypeVar("M", bound=Callable[[Any], Work])

_makers = ClassTable[Callable[[Any], Work]]()


def _in_blocks(*kinds: type[Op]) -> Callable[[M], M]:
    """Decorate a function that returns the class that computes an op, and its arguments."""

    def mark(make: M) -> M:
        for kind in kinds:
            _makers[kind] = make
            rules.add(kind, blocked_rule)
        return make

    return mark


def work_of(op: Op) -> Work | None:
    """Return the class that computes an op in blocks, and its arguments; None for other ops."""
    make = _makers.nearest(type(op))
    return None if make is None else make(op)


def workspace(op: Op) -> int:
    """Return the bytes of scratch memory that an op in blocks needs; 0 for any other op."""
    work = work_of(op)
    return 0 if work is None else work[0](*work[1]).workspace


def blocked_rule(op: Op, emit: Emitter) -> None:
    """Make the work before calls, and call it with the scratch memory of the step."""
    work, memory = work_of(op), emit.step.workspace
    assert work is not None, "the rule is there for ops in blocks"
    assert memory is not None, "their workspace is never empty"
    name = emit.bind(work[0], work[0].__name__)
    numbers = ", ".join(_text(number, emit) for number in work[1])
    made = emit.prepared(f"{name}({numbers})", name.lower())
    emit.line(f"{made}({', '.join([*emit.args, emit.out, emit.name(memory)])})")


def _text(number: Any, emit: Emitter) -> str:
    """Return a number, a tuple of such, a dtype or an array as generated code has it."""
    if isinstance(number, np.dtype):
        return emit.bind(number, "dtype")
    return emit.bind(number, "array") if isinstance(number, np.ndarray) else repr(number)


def lengths_of(op: BilinearConvolutionOp) -> tuple[Numbers, Numbers, Numbers]:
    """Return the lengths of images, filters and outputs."""
    first, second, result = (each.axes.shape for each in (*op.args, op))
    if isinstance(op, ConvolutionOp):
        return first, second, result
    if isinstance(op, ConvolutionFilterOp):
        return first, result, second
    return result, second, first


@_in_blocks(ConvolutionOp, ConvolutionFilterOp, ConvolutionInputOp)
def convolution(op: BilinearConvolutionOp) -> Work:
    """Return the work of a convolution; floats of 16 bits are multiplied in float32."""
    images, filters, outputs = lengths_of(op)
    kinds = {ConvolutionOp: Forward, ConvolutionFilterOp: Filters, ConvolutionInputOp: Transposed}
    rest = op.dilation, op.groups, dtypes.accumulator_dtype(op.dtype)
    if isinstance(op, ConvolutionInputOp) and _is_mirrored(op):
        turned = images[1], filters[0] // op.groups, *filters[2:]
        extents = op.sliding(filters[2:]).extents
        pairs = zip(extents, op.padding, strict=True)
        around = tuple((n - 1 - before, n - 1 - after) for n, (before, after) in pairs)
        return Mirrored, (outputs, turned, op.stride, around, *rest)
    return kinds[type(op)], (images, filters, op.stride, op.padding, *rest)


def _is_mirrored(op: BilinearConvolutionOp) -> bool:
    """Whether a transposed convolution is faster as a convolution with flipped filters."""
    return op.groups > 1 and set(op.stride) == {1} and 0 not in op.axes.shape


def is_product(op: BilinearConvolutionOp) -> bool:
    """Whether a convolution is a matrix product without copies, as its decomposition computes."""
    if isinstance(op, ConvolutionFilterOp):
        return False
    _, filters, outputs = lengths_of(op)
    is_bare = not any(map(any, op.padding)) and all(n == 1 for n in (*filters[2:], *op.stride))
    return is_bare and prod(outputs[2:]) >= LEAST_COLUMNS


@_in_blocks(pooling.MaxPoolOp)
def max_pool(op: pooling.MaxPoolOp) -> Work:
    """Return the work of a max-pool."""
    return MaxPool, (op.args[0].axes.shape, *op.sliding, op.dtype)


@_in_blocks(pooling.AvgPoolOp)
def avg_pool(op: pooling.AvgPoolOp) -> Work:
    """Return the work of an average-pool; floats of 16 bits accumulate in float32."""
    numbers = op.numbers(dtypes.accumulator_dtype(op.dtype))
    if (numbers == numbers.flat[0]).all():
        numbers = np.array(numbers.flat[0])
    return AvgPool, (numbers, op.args[0].axes.shape, *op.sliding, op.dtype)


@_in_blocks(pooling.MaxPoolInputOp)
def max_pool_input(op: pooling.MaxPoolInputOp) -> Work:
    """Return the work of the gradient of a max-pool."""
    return MaxPoolInput, (op.axes.shape, *op.sliding, op.dtype)


@rules.on_type(pooling.MaxPoolIndexOp)
def max_pool_index_rule(op: pooling.MaxPoolIndexOp, emit: Emitter) -> None:
    """Loop over the elements of a window, for all windows at once, as the reference does."""
    emit.line(f"copyto({emit.out}, {emit.bind(op.reference, 'max_pool_index')}({emit.args[0]}))")
