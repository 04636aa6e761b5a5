"""Decompose: replaces composites by what the backend computes, by default simpler ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.ir.tensor import CompositeOp, TensorOp
from weft.ops.products.linalg import MatmulOp
from weft.ops.shape.joining import ConcatOp
from weft.passes.interface import PeepholeGraphPass
from weft.passes.visitors import visit
from weft.plugins import hookimpl


class Decompose(PeepholeGraphPass):
    """Replace each composite that the backend does not compute as it is."""

    @visit.on_type(CompositeOp, MatmulOp)
    def decompose(self, op: TensorOp) -> None:
        """Replace one composite; those inside its decomposition follow."""
        found = self.target.legalized(op)
        if found is not None:
            self.replace_op(op, found)
        elif isinstance(op, CompositeOp) and not self.target.keeps_whole(op):
            self.replace_op(op, op.decompose(*op.args))

    @visit.on_type(ConcatOp)
    def split(self, op: ConcatOp) -> None:
        """Concatenate in several steps what reads more storages than a kernel may touch."""
        limit = self.target.max_kernel_buffers
        if limit is None or len({*op.args}) < limit:
            return
        pieces = [
            ConcatOp(*each, position=op.position) if len(each) > 1 else each[0]
            for each in batched(op.args, limit - 1)
        ]
        self.replace_op(op, ConcatOp(*pieces, position=op.position))


def batched(ops: Sequence[TensorOp], count: int) -> list[Sequence[TensorOp]]:
    """Return ops in groups of at most so many, in order."""
    return [ops[first : first + count] for first in range(0, len(ops), count)]


@hookimpl
def weft_register_passes(register: Callable[[str, type], None]) -> None:
    """Register the pass."""
    register("decompose", Decompose)
