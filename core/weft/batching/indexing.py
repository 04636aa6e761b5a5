"""Rules of ops with indices that are operands."""

from __future__ import annotations

from typing import Any

from weft.batching.walk import Batch, batching_rule_of, moved
from weft.ir import dtypes
from weft.ir.storage import constant
from weft.ir.tensor import TensorOp
from weft.ops.indexing.dynamic_slices import DynamicSliceOp, DynamicUpdateSliceOp
from weft.ops.indexing.gathering import IndexedOp, ScatterOp, TakeOp, offsets, without_names
from weft.ops.pointwise.elementwise import add, multiply
from weft.ops.reductions.sorting import SearchSortedOp
from weft.ops.shape.movement import IotaOp, cast_axes, size_of, transpose


@batching_rule_of(TakeOp)
def batched_take(op: TakeOp, batch: Batch, x: TensorOp, indices: TensorOp) -> TensorOp:
    """Take along the next axis, or rows of all examples at once."""
    x, indices = without_names(x), without_names(indices)
    before, count = op.position, indices.rank - 1
    if not batch.operands[1]:
        return TakeOp(x, indices, position=before + 1)
    if not batch.operands[0]:
        return moved(TakeOp(x, indices, position=before), before, 0)
    taken = TakeOp(_rows(x, before), _row_numbers(op, indices), position=0)
    head = (*range(1 + count, 1 + count + before), *range(1, 1 + count))
    return transpose(taken, (0, *head, *range(1 + count + before, taken.rank)))


@batching_rule_of(ScatterOp)
def batched_scatter(op: ScatterOp, batch: Batch, *args: TensorOp) -> TensorOp:
    """Scatter along the next axis, or into rows of all examples at once."""
    x, indices, updates = map(without_names, batch.spread(args))
    before, count = op.position, indices.rank - 1
    if not batch.operands[1]:
        indices = without_names(args[1])
        return ScatterOp(x, indices, updates, position=before + 1, reduction=op.reduction)
    head = (*range(1 + before, 1 + before + count), *range(1, 1 + before))
    puts = transpose(updates, (0, *head, *range(1 + before + count, updates.rank)))
    numbers = _row_numbers(op, indices)
    made = ScatterOp(_rows(x, before), numbers, puts, position=0, reduction=op.reduction)
    lengths = (batch.size, x.axes[before + 1].length, *made.axes.lengths[1:])
    return moved(cast_axes(made, lengths), 1, before + 1)


def _rows(x: TensorOp, position: int) -> TensorOp:
    """Return a batched tensor with the batch axis and the indexed one merged in front."""
    turned = moved(x, position + 1, 1)
    first, second, *rest = turned.axes.lengths
    return cast_axes(turned, (first * second, *rest))


def _row_numbers(op: IndexedOp, indices: TensorOp) -> TensorOp:
    """Return batched indices as numbers of rows; those out of range are detected first."""
    axes, place = op.args[0].axes, op.position
    example = IotaOp(target_axes=indices.axes, target_dtype=dtypes.int64, position=0)
    length = size_of(axes[place : place + 1], dtypes.int64)
    return add(offsets(axes, place, indices), multiply(example, length))


@batching_rule_of(DynamicSliceOp, DynamicUpdateSliceOp)
def batched_block(op: Any, batch: Batch, *args: TensorOp) -> Any:
    """Slice the other axes where the starts are the same for all; otherwise gather."""
    count = len(args) - len(op.starts())
    if any(batch.operands[count:]):
        return NotImplemented
    fields = op.attributes()
    if "sizes" in fields:
        fields["sizes"] = (batch.size, *op.sizes)
    first = constant(0, dtype=dtypes.int64)
    return type(op)(*batch.spread(args)[:count], first, *args[count:], **fields)


@batching_rule_of(SearchSortedOp)
def batched_searchsorted(
    op: SearchSortedOp, batch: Batch, ordered: TensorOp, values: TensorOp
) -> Any:
    """Search all values at once in a vector that is the same for all."""
    if batch.operands[0]:
        return NotImplemented
    return SearchSortedOp(ordered, values, side=op.side)
