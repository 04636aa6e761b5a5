"""Lowering rules of pooling and its gradient, in blocks of images."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.ir import dtypes
from weft.nn.spatial import pooling
from weft_numpy.costs import POOLING_STEP
from weft_numpy.emitter import Emitter
from weft_numpy.machine import Machine
from weft_numpy.rules.blocked import in_blocks, threads_for
from weft_numpy.rules.table import rules
from weft_numpy.sliding.pooling import AvgPool, MaxPool, MaxPoolInput, Pooling
from weft_numpy.sliding.tiles import MaxPoolTilesInput, are_tiles


def _numbers(op: pooling.PoolingOp, images: Any, steps: int, machine: Machine) -> tuple[Any, ...]:
    threads = threads_for(POOLING_STEP * steps * images.axes.size, machine)
    return images.axes.shape, *op.sliding, images.dtype, threads


@in_blocks(pooling.MaxPoolOp)
def max_pool(op: pooling.MaxPoolOp, machine: Machine) -> MaxPool:
    """Return the work of a max-pool."""
    return MaxPool(*_numbers(op, op.args[0], 2, machine))


@in_blocks(pooling.AvgPoolOp)
def avg_pool(op: pooling.AvgPoolOp, machine: Machine) -> AvgPool:
    """Return the work of an average-pool; floats of 16 bits accumulate in float32."""
    numbers = op.numbers(dtypes.accumulator_dtype(op.dtype))
    if (numbers == numbers.flat[0]).all():
        numbers = np.array(numbers.flat[0])
    return AvgPool(numbers, *_numbers(op, op.args[0], 2, machine))


@in_blocks(pooling.MaxPoolInputOp)
def max_pool_input(op: pooling.MaxPoolInputOp, machine: Machine) -> Pooling:
    """Return the work of the gradient of a max-pool."""
    numbers = _numbers(op, op, 4, machine)
    kind = MaxPoolTilesInput if are_tiles(op.axes.shape[2:], op.sliding) else MaxPoolInput
    return kind(*numbers)


@rules.on_type(pooling.MaxPoolIndexOp)
def max_pool_index_rule(op: pooling.MaxPoolIndexOp, emit: Emitter) -> None:
    """Loop over the elements of a window, for all windows at once, as the reference does."""
    emit.line(f"copyto({emit.out}, {emit.bind(op.reference, 'max_pool_index')}({emit.args[0]}))")
