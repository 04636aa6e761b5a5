"""Lowering rules of convolutions, pooling and folds, in blocks of images."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import numpy as np

from weft.ir import dtypes
from weft.ir.dtypes import DType
from weft.ir.op import Op
from weft.ops import pooling, windows
from weft.ops.convolutions import (
    BilinearConvolutionOp,
    ConvolutionFilterOp,
    ConvolutionInputOp,
    ConvolutionOp,
)
from weft.ops.spatial import Numbers
from weft_numpy.codegen import Emitter
from weft_numpy.rules.table import rules
from weft_numpy.sliding import (
    LEAST_COLUMNS,
    Array,
    AvgPool,
    Convolution,
    Filters,
    Forward,
    MaxPool,
    MaxPoolInput,
    Pooling,
    Transposed,
)

Work = tuple[type[Convolution | Pooling], tuple[Any, ...]]


def work_of(op: Op) -> Work | None:
    """Return the class that computes an op in blocks, and its arguments; None for other ops."""
    make = next((WORK[kind] for kind in type(op).__mro__ if kind in WORK), None)
    return None if make is None else make(op)


def workspace(op: Op) -> int:
    """Return the bytes of scratch memory that an op in blocks needs, at least 1; 0 for others."""
    work = work_of(op)
    return 0 if work is None else max(work[0](*work[1]).workspace, 1)


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


def convolution(op: BilinearConvolutionOp) -> Work:
    """Return the work of a convolution; floats of 16 bits are multiplied in float32."""
    images, filters, _ = lengths_of(op)
    kinds = {ConvolutionOp: Forward, ConvolutionFilterOp: Filters, ConvolutionInputOp: Transposed}
    form = op.groups, dtypes.accumulator_dtype(op.dtype), *op.sliding(filters[2:])
    return kinds[type(op)], (images, filters, *form)


def is_product(op: BilinearConvolutionOp) -> bool:
    """Whether a convolution is a matrix product without copies, as its decomposition computes."""
    if isinstance(op, ConvolutionFilterOp):
        return False
    _, filters, outputs = lengths_of(op)
    is_bare = not any(map(any, op.padding)) and all(n == 1 for n in (*filters[2:], *op.stride))
    return is_bare and prod(outputs[2:]) >= LEAST_COLUMNS


def max_pool(op: pooling.MaxPoolOp) -> Work:
    """Return the work of a max-pool."""
    return MaxPool, (op.args[0].axes.shape, op.dtype, *op.sliding)


def avg_pool(op: pooling.AvgPoolOp) -> Work:
    """Return the work of an average-pool; floats of 16 bits accumulate in float32."""
    numbers = op.numbers(dtypes.accumulator_dtype(op.dtype))
    if (numbers == numbers.flat[0]).all():
        numbers = np.array(numbers.flat[0])
    return AvgPool, (numbers, op.args[0].axes.shape, op.dtype, *op.sliding)


def max_pool_input(op: pooling.MaxPoolInputOp) -> Work:
    """Return the work of the gradient of a max-pool."""
    return MaxPoolInput, (op.axes.shape, op.dtype, *op.sliding)


WORK: dict[type[Op], Callable[[Any], Work]] = {
    ConvolutionOp: convolution,
    ConvolutionFilterOp: convolution,
    ConvolutionInputOp: convolution,
    pooling.MaxPoolOp: max_pool,
    pooling.AvgPoolOp: avg_pool,
    pooling.MaxPoolInputOp: max_pool_input,
}
"""For each op in blocks the class that computes it, and its arguments."""

for each in WORK:
    rules.add(each, blocked_rule)


@rules.on_type(windows.FoldOp)
def fold_rule(op: windows.FoldOp, emit: Emitter) -> None:
    """Add each window element to its slice of the result; floats of 16 bits in float32.

    NumPy's reductions over the few elements of a window are ten times slower.
    """
    fold = partial(_fold, list(op.parts()), dtypes.accumulator_dtype(op.dtype))
    emit.line(f"{emit.bind(fold, 'fold')}({emit.args[0]}, {emit.out})")


def _fold(parts: list[Any], wide: DType, x: Array, out: Array) -> None:
    total = out if out.dtype == wide else np.empty(out.shape, wide)
    total.fill(0)
    for where, part in parts:
        target = total[where]
        np.add(target, x[part], target)
    if total is not out:
        np.copyto(out, total, "unsafe")
