"""The rule of random bits."""

from __future__ import annotations

from weft.batching.walk import Batch, batching_rule_of
from weft.ir.axes import make_axes
from weft.ir.tensor import TensorOp
from weft.ops.indexing.gathering import without_names
from weft.ops.random.philox import RandomBitsOp
from weft.ops.shape.movement import cast_axes


@batching_rule_of(RandomBitsOp)
def batched_bits(op: RandomBitsOp, batch: Batch, key: TensorOp, counter: TensorOp) -> TensorOp:
    """Compute the bits of each key."""
    keys, counters = map(without_names, batch.spread((key, counter)))
    if not batch.operands[1] and not counter.axes:
        counters = counter
    plain = make_axes(op.target_axes.lengths)
    made = RandomBitsOp(keys, counters, target_axes=plain, domain=op.domain)
    return cast_axes(made, batch.before(op.axes))
