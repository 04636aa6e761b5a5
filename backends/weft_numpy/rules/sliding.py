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
from weft.nn.spatial import pooling, windows
from weft.nn.spatial.convolutions import (
    BilinearConvolutionOp,
    ConvolutionFilterOp,
    ConvolutionInputOp,
    ConvolutionOp,
)
from weft.nn.spatial.geometry import Numbers
from weft_numpy.costs import COLUMN_COPY, FLOP, MIN_THREADED_BLOCKS, POOLING_STEP
from weft_numpy.emitter import Emitter
from weft_numpy.machine import Machine
from weft_numpy.rules.table import rules
from weft_numpy.sliding import (
    LEAST_COLUMNS,
    Array,
    AvgPool,
    Blocked,
    Filters,
    Forward,
    MaxPool,
    MaxPoolInput,
    Transposed,
)

SMALL_PRODUCT = 10**6
"""Multiplications of a product that OpenBLAS computes without packing its operands."""

Work = tuple[type[Blocked], tuple[Any, ...]]
"""The class that computes an op in blocks, and its arguments."""


def lengths_of(op: BilinearConvolutionOp) -> tuple[Numbers, Numbers, Numbers]:
    """Return the lengths of images, filters and outputs."""
    first, second, result = (each.axes.shape for each in (*op.args, op))
    if isinstance(op, ConvolutionOp):
        return first, second, result
    if isinstance(op, ConvolutionFilterOp):
        return first, result, second
    return result, second, first


def is_product(op: BilinearConvolutionOp) -> bool:
    """Whether a convolution is a matrix product without copies, as its decomposition computes."""
    if isinstance(op, ConvolutionFilterOp):
        return False
    _, filters, outputs = lengths_of(op)
    is_bare = not any(map(any, op.padding)) and all(n == 1 for n in (*filters[2:], *op.stride))
    return is_bare and prod(outputs[2:]) >= LEAST_COLUMNS


def _convolution(op: BilinearConvolutionOp, machine: Machine) -> Work:
    """Return the work of a convolution; floats of 16 bits are multiplied in float32.

    Images are apart if a product for each of them is as fast as one of many.
    """
    images, filters, outputs = lengths_of(op)
    kinds = {ConvolutionOp: Forward, ConvolutionFilterOp: Filters, ConvolutionInputOp: Transposed}
    count, depth, number = filters[0], prod(filters[1:]), outputs[0] * prod(outputs[2:])
    copied = number * (depth * op.groups + count)
    threads = _threads(COLUMN_COPY * copied + FLOP * 2 * number * count * depth, machine)
    dtype, windows = dtypes.accumulator_dtype(op.dtype), prod(outputs[2:])
    is_good = windows >= LEAST_COLUMNS or windows * count * depth <= SMALL_PRODUCT
    form = op.groups, dtype, is_good and op.dtype == dtype, threads, *op.sliding(filters[2:])
    return kinds[type(op)], (images, filters, *form)


def _pooling(op: pooling.PoolingOp, images: Any, steps: int, machine: Machine) -> tuple[Any, ...]:
    threads = _threads(POOLING_STEP * steps * images.axes.size, machine)
    return images.axes.shape, images.dtype, threads, *op.sliding


def _max_pool(op: pooling.MaxPoolOp, machine: Machine) -> Work:
    return MaxPool, _pooling(op, op.args[0], 2, machine)


def _avg_pool(op: pooling.AvgPoolOp, machine: Machine) -> Work:
    numbers = op.numbers(dtypes.accumulator_dtype(op.dtype))
    if (numbers == numbers.flat[0]).all():
        numbers = np.array(numbers.flat[0])
    return AvgPool, (numbers, *_pooling(op, op.args[0], 2, machine))


def _max_pool_input(op: pooling.MaxPoolInputOp, machine: Machine) -> Work:
    return MaxPoolInput, _pooling(op, op, 4, machine)


def _threads(nanoseconds: float, machine: Machine) -> int:
    """Return the number of threads for work of some nanoseconds."""
    return machine.threads if nanoseconds >= MIN_THREADED_BLOCKS else 1


WORK: dict[type[Op], Callable[[Any, Machine], Work]] = {
    ConvolutionOp: _convolution,
    ConvolutionFilterOp: _convolution,
    ConvolutionInputOp: _convolution,
    pooling.MaxPoolOp: _max_pool,
    pooling.AvgPoolOp: _avg_pool,
    pooling.MaxPoolInputOp: _max_pool_input,
}
"""By kind of op what returns its work."""


def work_of(op: Op, machine: Machine) -> Work | None:
    """Return the work of an op; None for one that is not computed in blocks."""
    make = next((WORK[kind] for kind in type(op).__mro__ if kind in WORK), None)
    return None if make is None else make(op, machine)


def workspace(op: Op, machine: Machine) -> int:
    """Return the bytes of scratch memory that an op in blocks needs, at least 1; 0 for others."""
    work = work_of(op, machine)
    return 0 if work is None else max(work[0](*work[1]).workspace, 1)


def blocked_rule(op: Op, emit: Emitter) -> None:
    """Make the work before calls, and call it with the scratch memory of the step."""
    machine = emit.shared.kernels.machine
    work, memory = work_of(op, machine), emit.step.workspace
    assert work is not None, "the rule is there for ops in blocks"
    assert memory is not None, "their workspace is never empty"
    assert emit.step.out.is_contiguous, "parts of results are written as matrices"
    kind, arguments = work
    text = ", ".join(_text(argument, emit) for argument in arguments)
    made = emit.prepared(f"{emit.bind(kind, kind.__name__)}({text})", kind.__name__.lower())
    if kind(*arguments).threads > 1:
        emit.note_threads()
    emit.line(f"{made}({', '.join([*emit.args, emit.out, emit.name(memory)])})")


def _text(argument: Any, emit: Emitter) -> str:
    """Return a number, a tuple of such, a dtype or an array as generated code has it."""
    if isinstance(argument, np.dtype):
        return emit.bind(argument, "dtype")
    return emit.bind(argument, "array") if isinstance(argument, np.ndarray) else repr(argument)


for each in WORK:
    rules.add(each, blocked_rule)


@rules.on_type(pooling.MaxPoolIndexOp)
def max_pool_index_rule(op: pooling.MaxPoolIndexOp, emit: Emitter) -> None:
    """Loop over the elements of a window, for all windows at once, as the reference does."""
    emit.line(f"copyto({emit.out}, {emit.bind(op.reference, 'max_pool_index')}({emit.args[0]}))")


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
