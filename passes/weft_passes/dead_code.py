"""DeadCode: removes ops that no result or effect needs.

An op that no root reaches is not part of a graph. What is left to drop: updates that write a
state's own value back, and ordering edges of ops that are gone.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.ir.graph import Graph
from weft.ir.storage import ReadOp
from weft.ir.target import Target
from weft.passes.interface import GraphPass
from weft.plugins import hookimpl


class DeadCode(GraphPass):
    """Drop updates that change nothing, and edges from ops that are gone."""

    def do_pass(self, graph: Graph, target: Target) -> Graph:
        """Look at updates and edges once."""
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
