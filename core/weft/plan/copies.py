"""The copies that a plan needs: values that must lie in memory of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from weft.ir import scope
from weft.ir.graph import Graph
from weft.ir.op import Op
from weft.ir.results import ResultOp
from weft.ir.storage import DONATED, ParameterOp, ReadOp
from weft.ir.views import planned_layout
from weft.ops.control.graph_ops import CallOp
from weft.ops.shape.movement import ContiguousOp
from weft.plan.inplace import InPlaceAnalysis, buffer_owner

_GIVEN = (ParameterOp, ReadOp)


def copy_of(value: Any) -> ContiguousOp:
    """Return a copy of a value, which takes its place in program order."""
    with scope.replacing(value):
        return ContiguousOp(value)


def with_copies(graph: Graph, is_called: bool = False, lends: bool = False) -> Graph:
    """Return the graph with copies, so that each output and update is computed by an op of its own.

    Copied are outputs and updates that are partial views, that have another role already, or that
    occupy the buffer of a state with partial updates; parts of a value that are read after the
    value is overwritten; and views that an op takes as contiguous tensors. Operands and results of
    called graphs have buffers of their own, so that one program serves all calls; if the graph
    `lends` its results, a call writes to these.
    """
    graph = _with_own_operands(_with_results_once(graph), is_called)
    graph = _with_contiguous_operands(graph)
    overwriting = InPlaceAnalysis(graph)
    if overwriting.copied:
        graph = _with_copied(graph, overwriting.copied)
        overwriting = InPlaceAnalysis(graph)
    states = overwriting.states
    lent = _writable_results(graph) if lends else set()
    taken: set[Op] = set()
    copies: dict[Op, list[Op]] = {}

    def own(value: Op, state: Any = None) -> Op:
        producer = buffer_owner(value)
        is_lent = state is None and value in lent
        if (
            producer is None
            or producer in taken
            or (_has_fixed_buffer(producer) and not is_lent)
            or states.get(producer, state) is not state
        ):
            copy = copy_of(value)
            copies.setdefault(value, []).append(copy)
            return copy
        taken.add(producer)
        return value

    outputs = [own(op) for op in graph.outputs]
    updates = [
        (state, own(value, state))
        for state, value in graph.updates
        if not (isinstance(value, ReadOp) and value.state is state)
    ]
    ops: Sequence[Op] = graph.ops
    if copies:
        ops = [each for op in ops for each in (op, *copies.get(op, ()))]
    return graph.replace(ops, outputs=outputs, updates=updates)


def _with_results_once(graph: Graph) -> Graph:
    """Return a graph in which a single op selects each result of an op with several results."""
    if ResultOp not in graph.kinds:
        return graph
    takers: dict[tuple[Op, int], Op] = {}

    def taken_once(op: Op) -> Op:
        if not isinstance(op, ResultOp):
            return op
        return takers.setdefault((op.args[0], op.index), op)

    return graph.rewrite(taken_once)


def _has_fixed_buffer(op: Op) -> bool:
    """Whether a value exists before the first step, or is a result of a called graph."""
    if isinstance(op, ResultOp) and op.args[0].graphs:
        return True
    return op.is_constant or isinstance(op, _GIVEN)


def _is_argument(op: Op | None) -> bool:
    """Whether a value is an argument, donated or not."""
    is_donated = isinstance(op, ReadOp) and op.state.kind == DONATED
    return is_donated or isinstance(op, ParameterOp)


def _writable_results(graph: Graph) -> set[Op]:
    """Return the results of calls that are outputs and that calls may write in place.

    At least half of the calls of a graph then yield the same outputs; the others copy theirs, so
    that all calls share code.
    """
    results: dict[Any, list[ResultOp]] = {op: [] for op in graph.ops if isinstance(op, CallOp)}
    for op in dict.fromkeys(graph.outputs):
        if isinstance(op, ResultOp) and op.args[0] in results:
            results[op.args[0]].append(op)
    kinds = {call: (call.graph, frozenset(op.index for op in ops)) for call, ops in results.items()}
    alike, all_calls = Counter(kinds.values()), Counter(call.graph for call in results)
    shared = {call for call, kind in kinds.items() if 2 * alike[kind] >= all_calls[call.graph]}
    return {op for call in shared for op in results[call]}


def _with_own_operands(graph: Graph, is_called: bool) -> Graph:
    """Return a graph whose calls take contiguous tensors only, none in memory of the user's."""
    if not graph.called:
        return graph
    returned = {buffer_owner(op) for op in graph.outputs}
    returned |= {buffer_owner(op) for state, op in graph.updates if state.kind == DONATED}

    def is_own(arg: Op) -> bool:
        producer = buffer_owner(arg)
        is_users = _is_argument(producer) or producer in returned
        return producer is not None and (is_called or not is_users)

    wanted = {op: [arg for arg in op.args if not is_own(arg)] for op in graph.ops if op.graphs}
    return _with_copied(graph, wanted) if any(wanted.values()) else graph


def _with_contiguous_operands(graph: Graph) -> Graph:
    """Return a graph in which ops take contiguous tensors if they must."""
    wanted = {
        op: [arg for arg in op.args if not planned_layout(arg).is_contiguous]
        for op in graph.ops
        if op.takes_contiguous
    }
    return _with_copied(graph, wanted) if any(wanted.values()) else graph


def _with_copied(graph: Graph, wanted: Mapping[Op, Collection[Op]]) -> Graph:
    """Return the graph in which ops read one copy of each of some operands."""
    copied = set().union(*wanted.values())
    new: dict[Op, Op] = {}
    lent: dict[Op, Op] = {}
    ops: list[Op] = []
    for op in graph.ops:
        mine = set(wanted.get(op, ()))
        args = tuple([(lent if arg in mine else new)[arg] for arg in op.args])
        new[op] = op.on(args)
        ops.append(new[op])
        if op in copied:
            lent[op] = copy_of(new[op])
            ops.append(lent[op])
    return graph.mapped(new, ops)
