"""The gradients of calls, loops and choices: calls, and choices, of gradient graphs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from weft import dtypes
from weft.autodiff import GradGraphInfo, gathering, gradient_graph, like_parameter, rebuilt
from weft.grad import Missing
from weft.graph import Graph
from weft.inlining import without_saved
from weft.op import Op
from weft.ops.calls import call_op, cond_op, saved
from weft.ops.elementwise import add
from weft.ops.graph_ops import CallOp, CondOp, LoopOp
from weft.ops.movement import zeros_like
from weft.tensor import TensorOp


def _gradients_of_called(graph: Graph, keys: Iterable[Any], recompute: bool) -> GradGraphInfo:
    """Return the gradient graph for a call: a known one, or one for the adjoints that are there."""
    now = gathering.get()
    if now is not None and graph in now.known:
        return now.known[graph]
    required = tuple(op for op in graph.inputs if dtypes.is_inexact(op.dtype))
    info = gradient_graph(graph, tuple(keys), required, recompute)
    if now is not None:
        now.used.setdefault(graph, info)
    return info


def _by_op(graph: Graph, delta: Mapping[Any, TensorOp]) -> dict[Op, TensorOp]:
    """Return adjoints by the op that they are of; an output that is there twice gets the sum."""
    found: dict[Op, TensorOp] = {}
    for key, adjoint in delta.items():
        op = graph.outputs[key] if isinstance(key, int) else key
        if dtypes.is_inexact(op.dtype):
            found[op] = add(found[op], adjoint) if op in found else adjoint
    return found


def adjoints_of_call(op: CallOp, delta: Mapping[Any, TensorOp]) -> list[Any]:
    """Return the adjoints of a call's operands."""
    return _adjoints(op, op.graph, delta, turn=0)


def _adjoints(
    op: CallOp | LoopOp, graph: Graph, delta: Mapping[Any, TensorOp], turn: int
) -> list[Any]:
    """Return the adjoints of the inputs of one call of a graph."""
    given = _by_op(graph, delta)
    info = _gradients_of_called(graph, given, recompute=False)
    provided = info.provided()
    seeds = [given[each] if each in given else zeros_like(each) for each in provided]
    values = [
        _value(op, connection.fwd_tensor, turn)
        for connection in info.expected_inputs[len(provided) :]
    ]
    gradients = call_op(info.graph, *seeds, *values).results
    found: dict[Any, Any] = dict(zip(info.outputs, gradients, strict=True))
    return [found.get(each, info.missing.get(each)) for each in graph.inputs]


def _value(op: CallOp | LoopOp, inner: TensorOp, turn: int) -> TensorOp:
    """Return what an op of a called graph is in a call, or in a round of a loop."""
    graph = op.graph
    while isinstance(op, LoopOp) and inner in graph.inputs:
        index = graph.inputs.index(inner)
        if turn == 0 or index >= len(graph.outputs):
            operand: TensorOp = op.args[index]
            return operand
        inner, turn = graph.outputs[index], turn - 1
    return saved(op, inner, turn)


def adjoints_of_loop(op: LoopOp, delta: Mapping[Any, TensorOp]) -> list[Any]:
    """Return the adjoints of a loop's operands: one gradient call for each round, last first."""
    carried = len(op.graph.outputs)
    found: list[Any] = [None] * len(op.args)
    now: dict[Any, Any] = {key: value for key, value in delta.items() if isinstance(key, int)}
    inside = {key: value for key, value in delta.items() if not isinstance(key, int)}
    for turn in reversed(range(op.count)):
        here = {inner: value for (inner, at), value in inside.items() if at == turn}
        shares = _adjoints(op, op.graph, {**now, **here}, turn)
        for index, share in enumerate(shares[carried:], carried):
            if share is not None:
                found[index] = share if found[index] is None else _sum(found[index], share)
        broken = next((share for share in shares[:carried] if isinstance(share, Missing)), None)
        if broken is not None:
            return [broken] * carried + found[carried:]
        now = {key: share for key, share in enumerate(shares[:carried]) if share is not None}
    for index in range(carried):
        found[index] = now.get(index)
    return found


def _sum(one: Any, other: Any) -> Any:
    if isinstance(one, Missing) or isinstance(other, Missing):
        return one if isinstance(one, Missing) else other
    return add(one, other)


def adjoints_of_cond(op: CondOp, delta: Mapping[Any, TensorOp]) -> list[Any]:
    """Return the adjoints of the operands of a choice: a choice of gradient graphs.

    Each computes again what it needs, so that nothing is kept for the graph that did not run.
    """
    required = [
        tuple(each for each in graph.inputs if dtypes.is_inexact(each.dtype)) for graph in op.graphs
    ]
    chosen = []
    for number, graph in enumerate(op.graphs):
        keys = tuple(graph.outputs[key] for key in delta)
        chosen.append(_with_zeros(graph, keys, required, number))
    args = [[*delta.values(), *op.operands_of(which)] for which in (True, False)]
    shares = iter(cond_op(op.args[0], chosen[0][0], chosen[1][0], *args).results)
    result: list[Any] = [None]
    for graph, wanted, (_, missing) in zip(op.graphs, required, chosen, strict=True):
        for each in graph.inputs:
            share = next(shares) if each in wanted else None
            result.append(missing.get(each, share))
    return result


def _with_zeros(
    graph: Graph, provided: Sequence[TensorOp], required: Sequence[Sequence[TensorOp]], number: int
) -> tuple[Graph, Mapping[Any, Missing]]:
    """Return a graph of all gradients of both graphs of a choice, those of the other being zero.

    It takes an adjoint for each output that has one, and the inputs of its graph.
    """
    distinct = tuple(dict.fromkeys(provided))
    info = gradient_graph(graph, distinct, tuple(required[number]), recompute=True)
    seeds = [like_parameter(op, "Gradient___") for op in provided]
    total: dict[Op, TensorOp] = {}
    for op, seed in zip(provided, seeds, strict=True):
        total[op] = add(total[op], seed) if op in total else seed
    own = {op: like_parameter(op, "") for op in graph.inputs}
    values = [*total.values(), *(own[op] for op in info.inputs[len(distinct) :])]
    new: dict[Op, Op] = dict(zip(info.graph.inputs, values, strict=True))
    gradients = dict(zip(info.outputs, rebuilt(info.graph.outputs, new), strict=True))
    outputs = [
        gradients[op] if op in gradients else zeros_like(op) for each in required for op in each
    ]
    made = Graph(inputs=[*seeds, *own.values()], outputs=outputs, name=f"{graph.name}_bwd")
    return without_saved(made), info.missing
