"""DeadCode: removes ops that no result or effect needs.

Unreachable ops are not part of a graph. Left to remove are updates that write a state's own value
back, and ordering edges of removed ops.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.ir.graph import Graph
from weft.ir.storage import ReadOp
from weft.ir.target import Target
from weft.passes.interface import GraphPass
from weft.plugins import hookimpl


class DeadCode(GraphPass):
    """Remove updates that change nothing, and edges from removed ops."""

    def do_pass(self, graph: Graph, target: Target) -> Graph:
        """Remove dead updates and edges in one sweep."""
        updates = [
            (state, value)
            for state, value in graph.updates
            if not (isinstance(value, ReadOp) and value.state is state)
        ]
        if not graph.after:
            return graph.replace(updates=updates)
        live = set(graph.replace(after={}, updates=updates).ops)
        after = {
            op: kept
            for op, firsts in graph.after.items()
            if op in live and (kept := tuple(first for first in firsts if first in live))
        }
        if len(updates) == len(graph.updates) and after == graph.after:
            return graph
        return graph.replace(updates=updates, after=after)


@hookimpl
def weft_register_passes(register: Callable[[str, type], None]) -> None:
    """Register the pass."""
    register("dead-code", DeadCode)
