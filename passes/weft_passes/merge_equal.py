"""MergeEqual: value numbering; merges ops with equal classes, attributes and operands."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from weft.ir.graph import Graph
from weft.ir.op import Op
from weft.ir.storage import ParameterOp
from weft.ir.target import Target
from weft.passes.interface import GraphPass
from weft.plugins import hookimpl

SMALL = 256
"""The bytes up to which constants are compared by value."""


class MergeEqual(GraphPass):
    """Compute equal subexpressions once; ops with effects stay apart."""

    def do_pass(self, graph: Graph, target: Target) -> Graph:
        """Number values in one sweep, operands first."""
        first: dict[Hashable, Op] = {}

        def merged(op: Op) -> Op:
            if op.has_effect or isinstance(op, ParameterOp):
                return op
            key = _key(op)
            return op if key is None else first.setdefault(key, op)

        return graph.rewrite(merged)


def _key(op: Op) -> Hashable | None:
    if op.is_constant:
        if op.const.nbytes > SMALL:
            return None
        return (op.const.tobytes(), op.dtype, op.axes)
    return (type(op), op.args, op.attribute_key)


@hookimpl
def weft_register_passes(register: Callable[[str, type], None]) -> None:
    """Register the pass."""
    register("merge-equal", MergeEqual)
