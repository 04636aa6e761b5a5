"""Rules of views, slices and padding."""

from __future__ import annotations

from typing import Any

from weft.batching.walk import Batch, batching_rule_of
from weft.ir.tensor import TensorOp
from weft.ops.indexing.slicing import SliceOp, UpdateSliceOp
from weft.ops.shape.joining import PadOp
from weft.ops.shape.movement import BroadcastOp, ReshapeOp, TransposeOp


@batching_rule_of(ReshapeOp)
def batched_reshape(op: ReshapeOp, batch: Batch, x: TensorOp) -> TensorOp:
    """Reshape each example."""
    return ReshapeOp(x, target_axes=batch.before(op.target_axes))


@batching_rule_of(TransposeOp)
def batched_transpose(op: TransposeOp, batch: Batch, x: TensorOp) -> TensorOp:
    """Permute the other axes."""
    return TransposeOp(x, permutation=(0, *(place + 1 for place in op.permutation)))


@batching_rule_of(BroadcastOp)
def batched_broadcast(op: BroadcastOp, batch: Batch, x: TensorOp) -> TensorOp:
    """Broadcast each example."""
    dims = (0, *(place + 1 for place in op.dims))
    return BroadcastOp(x, target_axes=batch.before(op.target_axes), dims=dims)


@batching_rule_of(SliceOp, UpdateSliceOp)
def batched_slice(op: SliceOp | UpdateSliceOp, batch: Batch, *args: TensorOp) -> Any:
    """Slice the other axes."""
    return type(op)(*batch.spread(args), bounds=((0, batch.size, 1), *op.bounds))


@batching_rule_of(PadOp)
def batched_pad(op: PadOp, batch: Batch, x: TensorOp) -> TensorOp:
    """Pad the other axes."""
    return PadOp(x, widths=((0, 0), *op.widths), fill=op.fill)
