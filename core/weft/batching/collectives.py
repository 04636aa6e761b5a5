"""Rules of collectives: all examples are exchanged at once."""

from __future__ import annotations

from weft import ranks
from weft.batching.walk import Batch, Batched, batching_rule_of, moved
from weft.ir.tensor import TensorOp

_DIVIDING = ("all_gather", "reduce_scatter")
"""The kinds of collectives that can be started early and concern the first axis."""


@batching_rule_of(ranks.CollectiveOp)
def batched_collective(op: ranks.CollectiveOp, batch: Batch, x: TensorOp) -> TensorOp:
    """Exchange the elements of all examples."""
    return type(op)(x, **op.attributes())


@batching_rule_of(ranks.AllGatherOp, ranks.AllToAllOp, ranks.ReduceScatterOp)
def batched_division(op: ranks.CollectiveOp, batch: Batch, x: TensorOp) -> TensorOp:
    """Divide or join the first axis of the examples, with the batch axis as the last."""
    return moved(type(op)(moved(x, 0, op.rank), **op.attributes()), op.rank, 0)


@batching_rule_of(ranks.StartCollectiveOp)
def batched_start(op: ranks.StartCollectiveOp, batch: Batch, x: TensorOp) -> Batched:
    """Start one collective for all examples."""
    turned = moved(x, 0, x.rank - 1) if op.kind in _DIVIDING else x
    return Batched(ranks.StartCollectiveOp(turned, **op.attributes()), False)


@batching_rule_of(ranks.WaitCollectiveOp)
def batched_wait(
    op: ranks.WaitCollectiveOp, batch: Batch, number: TensorOp, x: TensorOp
) -> TensorOp:
    """Wait for the collective of all examples, which reads its operand until then."""
    made = ranks.WaitCollectiveOp(number, number.args[0], **op.attributes())
    return moved(made, op.rank, 0) if op.kind in _DIVIDING else made
