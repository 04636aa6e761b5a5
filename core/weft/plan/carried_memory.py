"""Carried values of loops that an iteration updates in part, in memory of their own.

A row that is written into a stack of results would otherwise copy the stack, since an iteration
reads one slot and writes another. Such a value is a state of the body while that is planned, so the
analyses that update states in place do the same for it. The loop says where the memory is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from weft.ir.graph import Graph, called_graphs
from weft.ir.op import Op, are_same
from weft.ir.storage import CARRIED, AssignableTensorOp, ReadOp
from weft.ops.control.graph_ops import LoopOp
from weft.ops.control.passing_loops import sources_of
from weft.plan.inplace import PARTIAL_UPDATES, buffer_owner

_PARTIALLY_UPDATED = "partially updated"
"""The key of the partial updates of a loop's body in its memo."""


class Carried(NamedTuple):
    """A carried value that the body updates in part.

    Attributes
    ----------
    output, carried
        Its index among the outputs of the body, and among the carried values.
    state
        What stands for its memory in the plan of the body.
    """

    output: int
    carried: int
    state: Any


def carried_in_place(graph: Graph) -> tuple[Carried, ...]:
    """Return the carried values that the loops over a graph update in part."""
    return graph.memo(_PARTIALLY_UPDATED, tuple)


def find_carried(graph: Graph) -> None:
    """Find the values that loops update in part, in a graph and in those that it calls.

    A body that something else runs as well, or that loops carry differently, has none.
    """
    found: dict[Graph, Mapping[int, int]] = {}
    for each in called_graphs(graph, own=True):
        for op in each.ops:
            for callee in op.graphs:
                mine = _updates(op) if isinstance(op, LoopOp) and op.count > 1 else {}
                found[callee] = mine if found.setdefault(callee, mine) == mine else {}
    for callee, pairs in found.items():
        callee.memo(_PARTIALLY_UPDATED, partial(_with_states, callee, pairs))


def _with_states(graph: Graph, pairs: Mapping[int, int]) -> tuple[Carried, ...]:
    return tuple(
        Carried(output, carried, _state_like(graph.inputs[carried]))
        for output, carried in pairs.items()
    )


def _updates(loop: LoopOp) -> dict[int, int]:
    """Return outputs of a body that update their own carried value, and nothing else's, in part."""
    graph, sources = loop.graph, sources_of(loop)
    times = Counter(graph.outputs)
    found: dict[int, int] = {}
    for carried, output in enumerate(sources):
        if output >= len(graph.outputs) or sources.count(output) > 1:
            continue
        value: Op | None = graph.outputs[output]
        if times[value] > 1 or not isinstance(value, PARTIAL_UPDATES):
            continue
        while value is not None and isinstance(value, PARTIAL_UPDATES):
            value = buffer_owner(value.args[0])
        is_passed_on = len(graph.outputs) + carried in sources
        if value is graph.inputs[carried] and not is_passed_on:
            found[output] = carried
    return found


def _state_like(parameter: Any) -> AssignableTensorOp:
    return AssignableTensorOp(
        kind=CARRIED, target_axes=parameter.axes, target_dtype=parameter.dtype, value=None
    )


def with_carried_states(graph: Graph) -> Graph:
    """Return the body of loops with a state for each carried value that it updates in part."""
    found = carried_in_place(graph)
    return updating(graph, {each.output: (each.carried, each.state) for each in found})


def updating(graph: Graph, states: Mapping[int, tuple[int, Any]]) -> Graph:
    """Return a graph that updates states in the place of some outputs.

    `states` has for such an output, by number, the input that is the value of its state before, and
    the state.
    """
    if not states:
        return graph
    reads: dict[Op, Op] = {
        graph.inputs[number]: ReadOp(state=state, target_axes=state.axes)
        for number, state in states.values()
    }
    new: dict[Op, Op] = {}
    for op in graph.ops:
        args = tuple([new.get(arg, arg) for arg in op.args])
        new[op] = reads.get(op, op) if are_same(args, op.args) else op.with_args(args)
    updates = [(state, new[graph.outputs[output]]) for output, (_, state) in states.items()]
    return graph.replace(
        outputs=[new[op] for number, op in enumerate(graph.outputs) if number not in states],
        updates=[*((state, new[value]) for state, value in graph.updates), *updates],
        effects=[new[op] for op in graph.effects],
        after={new[op]: [new[each] for each in first] for op, first in graph.after.items()},
    )
