"""Decompose: replaces composites by what the backend computes, by default simpler ops."""

from __future__ import annotations

from collections.abc import Callable

from weft.ir.tensor import CompositeOp, TensorOp
from weft.ops.products.linalg import MatmulOp
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


@hookimpl
def weft_register_passes(register: Callable[[str, type], None]) -> None:
    """Register the pass."""
    register("decompose", Decompose)
