"""Donated arguments, in whose memory results are computed.

A result takes the place of an argument that nobody needs after the call. Such an argument is a
state while the program is planned, so the analyses that update states in place do the same for it.
Then its memory is that of the result: the call passes one array for both. Where the program reads
the argument after the result is known, the plan has a copy.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from weft.ir.graph import Graph
from weft.ir.op import Op
from weft.ir.storage import DONATED, AssignableTensorOp, ReadOp
from weft.plan.buffers import RESULT
from weft.plan.inplace import buffer_owner
from weft.plan.steps import Plan

Donated = Mapping[int, int]
"""The input whose memory a result takes over, both by number."""
NOTHING: Donated = MappingProxyType({})


class DonatedTensorOp(AssignableTensorOp):
    """What stands for the memory of a donated argument.

    Attributes
    ----------
    result
        The number of the result that takes it over.
    """

    result: int


def pairs_of(graph: Graph, donated: Donated) -> Donated:
    """Return the pairs of a result and an input that are not the same value already."""
    return {
        result: number
        for result, number in donated.items()
        if buffer_owner(graph.outputs[result]) is not graph.inputs[number]
    }


def with_donated_states(graph: Graph, donated: Donated) -> Graph:
    """Return a graph with a state for each donated input, updated to its result."""
    if not donated:
        return graph
    states = {
        result: DonatedTensorOp(
            kind=DONATED,
            target_axes=graph.outputs[result].axes,
            target_dtype=graph.outputs[result].dtype,
            value=None,
            result=result,
        )
        for result in donated
    }
    reads: dict[Op, Op] = {
        graph.inputs[number]: ReadOp(state=states[result], target_axes=graph.inputs[number].axes)
        for result, number in donated.items()
    }
    new: dict[Op, Op] = {}
    for op in graph.ops:
        args = tuple([new[arg] for arg in op.args])
        new[op] = reads.get(op, op) if args == op.args else op.with_args(args)
    return graph.replace(
        outputs=[new[op] for number, op in enumerate(graph.outputs) if number not in donated],
        updates=[
            *((state, new[value]) for state, value in graph.updates),
            *((state, new[graph.outputs[result]]) for result, state in states.items()),
        ],
        effects=[new[op] for op in graph.effects],
        after={new[op]: [new[each] for each in first] for op, first in graph.after.items()},
    )


def in_results(plan: Plan, donated: Donated) -> Plan:
    """Return a plan in which donated states are results again, in whose memory they are."""
    if not donated:
        return plan
    count = len(plan.graph.outputs) + len(donated)
    others = [number for number in range(count) if number not in donated]
    for buffer in plan.buffers:
        if buffer.kind == RESULT:
            buffer.owner = others[buffer.owner]
    for buffer in plan.buffers:
        if buffer.kind == DONATED:
            buffer.kind, buffer.owner = RESULT, buffer.owner.result
    plan.graph, plan.source = (
        _with_results(graph, others, count) for graph in (plan.graph, plan.source)
    )
    return plan


def _with_results(graph: Graph, others: list[int], count: int) -> Graph:
    outputs: dict[int, Op] = dict(zip(others, graph.outputs, strict=True))
    updates: list[tuple[Any, Op]] = []
    for state, value in graph.updates:
        if isinstance(state, DonatedTensorOp):
            outputs[state.result] = value
        else:
            updates.append((state, value))
    return graph.replace(outputs=[outputs[number] for number in range(count)], updates=updates)
