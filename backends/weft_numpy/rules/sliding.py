"""Lowering rules of convolutions, pooling and folds, in blocks of images."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

import numpy as np

from weft.ir import dtypes
from weft.ir.dtypes import Array, DType
from weft.ir.op import Op
from weft.nn.spatial import convolutions, pooling, windows
from weft.nn.spatial.geometry import Numbers
from weft_numpy import sliding
from weft_numpy.emitter import Emitter
from weft_numpy.rules.table import rules

Work = tuple[type[sliding.Convolution | sliding.Pooling], tuple[Any, ...]]
"""The class that computes an op in blocks, and its arguments."""


CONVOLUTIONS = {
    convolutions.ConvolutionOp: sliding.Forward,
    convolutions.ConvolutionFilterOp: sliding.Filters,
    convolutions.ConvolutionInputOp: sliding.Transposed,
}


def lengths_of(op: convolutions.BilinearConvolutionOp) -> tuple[Numbers, Numbers, Numbers]:
    """Return the lengths of images, filters and outputs."""
    first, second, result = (each.axes.shape for each in (*op.args, op))
    if isinstance(op, convolutions.ConvolutionOp):
        return first, second, result
    if isinstance(op, convolutions.ConvolutionFilterOp):
        return first, result, second
    return result, second, first


def is_product(op: convolutions.BilinearConvolutionOp) -> bool:
    """Whether a convolution is a matrix product without copies, as its decomposition computes."""
    if isinstance(op, convolutions.ConvolutionFilterOp):
        return False
    _, filters, outputs = lengths_of(op)
    is_bare = not any(map(any, op.padding)) and all(n == 1 for n in (*filters[2:], *op.stride))
    return is_bare and prod(outputs[2:]) >= sliding.LEAST_COLUMNS


def work_of(op: Op) -> Work | None:
    """Return the work of an op; None for one that is not computed in blocks.

    Floats of 16 bits are multiplied in float32.
    """
    match op:
        case convolutions.BilinearConvolutionOp():
            images, filters, _ = lengths_of(op)
            form = op.groups, dtypes.accumulator_dtype(op.dtype), *op.sliding(filters[2:])
            return CONVOLUTIONS[type(op)], (images, filters, *form)
        case pooling.MaxPoolOp(args=(images,)):
            return sliding.MaxPool, (images.axes.shape, images.dtype, *op.sliding)
        case pooling.AvgPoolOp(args=(images,)):
            numbers = op.numbers(dtypes.accumulator_dtype(op.dtype))
            if (numbers == numbers.flat[0]).all():
                numbers = np.array(numbers.flat[0])
            return sliding.AvgPool, (numbers, images.axes.shape, images.dtype, *op.sliding)
        case pooling.MaxPoolInputOp():
            return sliding.MaxPoolInput, (op.axes.shape, op.dtype, *op.sliding)
    return None


def blocked(op: Op) -> sliding.Blocked | None:
    """Return what computes an op; None for one that is not computed in blocks."""
    work = work_of(op)
    return None if work is None else work[0](*work[1])


def workspace(op: Op, threads: int) -> int:
    """Return the bytes of scratch memory that an op in blocks needs, at least 1; 0 for others."""
    work = blocked(op)
    return 0 if work is None else work.workspace * work.lanes(threads)


@rules.on_type(
    convolutions.ConvolutionOp, convolutions.ConvolutionFilterOp, convolutions.ConvolutionInputOp
)
@rules.on_type(pooling.MaxPoolOp, pooling.AvgPoolOp, pooling.MaxPoolInputOp)
def blocked_rule(op: Op, emit: Emitter) -> None:
    """Make the work before calls, and call it with the scratch memory of the step."""
    work, memory = work_of(op), emit.step.workspace
    assert work is not None, "the rule is there for ops in blocks"
    assert memory is not None, "their workspace is never empty"
    assert emit.step.out.is_contiguous, "parts of results are written as matrices"
    kind, arguments = work
    text = ", ".join(_text(argument, emit) for argument in arguments)
    made = emit.prepared(f"{emit.bind(kind, kind.__name__)}({text})", kind.__name__.lower())
    emit.line(f"{made}({', '.join([*emit.args, emit.out, emit.name(memory)])})")


def _text(argument: Any, emit: Emitter) -> str:
    """Return a number, a tuple of such, a dtype or an array as generated code has it."""
    if isinstance(argument, np.dtype):
        return emit.bind(argument, "dtype")
    return emit.bind(argument, "array") if isinstance(argument, np.ndarray) else repr(argument)


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
