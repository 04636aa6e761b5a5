"""State lifting: turns a graph that uses states into a function of values.

States that are read become inputs, those that are written outputs; so nothing inside a called graph
has an effect on a state. (Closure conversion, as compilers of functional languages do it.)
"""

from __future__ import annotations

from typing import Any, NamedTuple

from weft.ir import scope
from weft.ir.graph import Graph
from weft.ir.op import Op, are_same
from weft.ir.storage import ParameterOp, ReadOp


class LiftedGraph(NamedTuple):
    """A graph without states, and the states that it gets and gives as values.

    Attributes
    ----------
    graph
        Its inputs are those of the original, then one for each state of `reads`; its outputs are
        those of the original, then one for each state of `writes`.
    reads, writes
        The states; each one written is also read.
    """

    graph: Graph
    reads: tuple[Any, ...] = ()
    writes: tuple[Any, ...] = ()


def function_of(graph: Graph) -> LiftedGraph:
    """Return a graph as a function of values, made once for each graph."""
    return graph.memo(function_of, lambda: _without_states(graph))


def _without_states(graph: Graph) -> LiftedGraph:
    reads = [op for op in graph.ops if isinstance(op, ReadOp)]
    if not reads and not graph.updates:
        return LiftedGraph(graph)
    new: dict[Op, Any] = {}
    inputs: dict[Any, ParameterOp] = {}
    for state in graph.states:
        read = next((op for op in reads if op.state is state), None)
        axes = state.axes if read is None else read.axes
        with scope.replacing(state):
            inputs[state] = ParameterOp(source=state, target_axes=axes)
    for op in graph.ops:
        if isinstance(op, ReadOp):
            new[op] = inputs[op.state]
        else:
            args = tuple([new[arg] for arg in op.args])
            new[op] = op.on(args)
    writes = dict(graph.updates)
    made = Graph(
        inputs=[*graph.inputs, *inputs.values()],
        outputs=[new[op] for op in (*graph.outputs, *writes.values())],
        effects=[new[op] for op in graph.effects],
        after={new[op]: [new[each] for each in first] for op, first in graph.after.items()},
        name=graph.name,
    )
    return LiftedGraph(made, tuple(inputs), tuple(writes))


def carrying(lifted: LiftedGraph, count: int) -> tuple[Graph, tuple[Any, ...]]:
    """Return a graph whose written states are inputs right after the first `count`; all states.

    A loop carries what is written. The states come in the order of the inputs.
    """
    graph, writes = lifted.graph, lifted.writes
    given = len(graph.inputs) - len(lifted.reads)
    parameter = dict(zip(lifted.reads, graph.inputs[given:], strict=True))
    rest = [state for state in lifted.reads if state not in set(writes)]
    inputs = [
        *graph.inputs[:count],
        *(parameter[state] for state in writes),
        *graph.inputs[count:given],
        *(parameter[state] for state in rest),
    ]
    made = graph.memo((carrying, count), lambda: graph.replace(inputs=inputs))
    return made, (*writes, *rest)


def writing(lifted: LiftedGraph, writes: tuple[Any, ...], count: int) -> LiftedGraph:
    """Return a function that yields a value for each of the states, which may be that it had."""
    if are_same(writes, lifted.writes):
        return lifted
    graph = lifted.graph
    given = len(graph.inputs) - len(lifted.reads)
    parameter = dict(zip(lifted.reads, graph.inputs[given:], strict=True))
    for state in writes:
        if state not in parameter:
            with scope.replacing(state):
                parameter[state] = ParameterOp(source=state, target_axes=state.axes)
    new = dict(zip(lifted.writes, graph.outputs[count:], strict=True))
    made = graph.replace(
        inputs=[*graph.inputs[:given], *parameter.values()],
        outputs=[*graph.outputs[:count], *(new.get(s, parameter[s]) for s in writes)],
    )
    return LiftedGraph(made, tuple(parameter), writes)
