"""Counters: integer states to which each call adds a fixed number.

Random numbers count calls so. What such a state holds in any later call follows from its value now,
so a batch can be computed without those before it.
"""

from __future__ import annotations

from typing import Any

from weft.ir.graph import Graph
from weft.ir.op import Op
from weft.ir.results import ResultOp
from weft.ir.storage import ReadOp
from weft.ops.control.graph_ops import CallOp, LoopOp
from weft.ops.pointwise.elementwise import AddOp


def counters_of(graph: Graph) -> dict[Any, int]:
    """Return the counters among the states that a graph writes, each with what a call adds."""
    found = {}
    for state, value in graph.updates:
        source, added = _without_constants(value)
        if isinstance(source, ReadOp) and source.state is state:
            found[state] = added
    return found


def _without_constants(op: Op) -> tuple[Op, int]:
    """Return an op and an integer whose sum is the given one; the op itself and 0 if none is."""
    total = 0
    while (below := _summands(op)) is not None:
        op, added = below
        total += added
    return op, total


def _summands(op: Op) -> tuple[Op, int] | None:
    """Return the operand that an op adds a constant to, and the constant; None for another op."""
    if op.axes or op.dtype is None or op.dtype.kind not in "iu":
        return None
    if isinstance(op, AddOp):
        x, y = op.args if op.args[1].is_constant else op.args[::-1]
        return (x, int(y.const)) if y.is_constant else None
    run = op.args[0] if isinstance(op, ResultOp) else None
    if not isinstance(run, CallOp | LoopOp) or not isinstance(op, ResultOp):
        return None
    source, added = _without_constants(run.graph.outputs[op.index])
    place = run.graph.places.get(source)
    if place is None:
        return None
    if isinstance(run, CallOp):
        return run.args[place], added
    return (run.args[place], added * run.count) if place == op.index else None
