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
from weft.ir.storage import DONATED, AssignableTensorOp
from weft.plan.buffers import RESULT
from weft.plan.carried_memory import updating
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
        or graph.outputs[result].dtype != graph.inputs[number].dtype
    }


def with_donated_states(graph: Graph, donated: Donated) -> Graph:
    """Return a graph with a state for each donated input, updated to its result."""
    return updating(
        graph,
        {
            result: (number, _state_like(graph.outputs[result], result))
            for result, number in donated.items()
        },
    )


def _state_like(output: Any, result: int) -> DonatedTensorOp:
    return DonatedTensorOp(
        kind=DONATED,
        target_axes=output.axes,
        target_dtype=output.dtype,
        value=None,
        result=result,
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
