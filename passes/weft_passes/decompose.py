"""Decompose: replaces composites without a rule on the backend by simpler ops."""

from __future__ import annotations

from collections.abc import Callable

from weft.ir.tensor import CompositeOp
from weft.passes.interface import PeepholeGraphPass, visit
from weft.plugins import hookimpl


class Decompose(PeepholeGraphPass):
    """Replace each composite by its decomposition, unless the backend takes it whole."""

    @visit.on_type(CompositeOp)
    def decompose(self, op: CompositeOp) -> None:
        """Replace one composite; those inside its decomposition follow."""
        if not self.target.keeps_whole(op):
            self.replace_op(op, op.decompose(*op.args))


@hookimpl
def weft_register_passes(register: Callable[[str, type], None]) -> None:
    """Register the pass."""
    register("decompose", Decompose)
