"""The memory that calls of graphs need."""

from __future__ import annotations

from collections.abc import Sequence

from weft.ir.graph import Graph
from weft.ir.op import Op
from weft.ir.target import Target
from weft.ops.control.graph_ops import GraphsOp, LoopOp, WhileOp
from weft.plan.steps import plan_of


def workspace_of(op: Op, target: Target) -> int:
    """Return the scratch bytes of an op, which include the arenas of the graphs that it calls."""
    if not isinstance(op, GraphsOp):
        return target.workspace(op)
    if isinstance(op, WhileOp):
        return spare_offsets((op.body, op.condition), with_end=True)[-1]
    if isinstance(op, LoopOp) and op.count > 1:
        return spare_offsets(op.graphs, with_end=True)[-1]
    return max(plan_of(graph).arena_size for graph in op.graphs)


def spare_offsets(graphs: Sequence[Graph], with_end: bool = False) -> list[int]:
    """Return the offsets of spare memory for the outputs of graphs, after the graphs' arenas.

    `with_end` appends the end of the last one.
    """
    plans = [plan_of(graph) for graph in graphs]
    align = plans[0].alignment
    ends = [_padded(max(plan.arena_size for plan in plans), align)]
    for op in (op for plan in plans for op in plan.graph.outputs):
        ends.append(ends[-1] + _padded(op.nbytes, align))
    return ends if with_end else ends[:-1]


def _padded(nbytes: int, align: int) -> int:
    return -(-nbytes // align) * align
