"""Adjoints of calls, loops and conditionals, built as calls of gradient graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from weft.autodiff.gradient_graph import GradientGraph, given_graphs, gradient_graph, like_parameter
from weft.autodiff.reverse import Missing
from weft.ir import dtypes, scope, upcalls
from weft.ir.graph import Graph
from weft.ir.op import Op
from weft.ir.tensor import TensorOp
from weft.ops.calls import all_saved, call_op, cond_op, saved
from weft.ops.elementwise import add
from weft.ops.graph_ops import CallOp, CondOp, LoopOp
from weft.ops.movement import zeros_like
from weft.transforms.inlining import without_saved


def _gradients_of_called(
    graph: Graph, adjoints: Mapping[Any, TensorOp], recompute: bool
) -> GradientGraph:
    """Return the gradient graph for the adjoints that are there, or the part of a given one."""
    info = given_graphs.get().get(graph)
    if info is not None:
        return info.part(adjoints)
    required = tuple(op for op in graph.inputs if dtypes.is_inexact(op.dtype))
    return gradient_graph(graph, tuple(adjoints), required, recompute)


def _by_op(graph: Graph, delta: Mapping[Any, TensorOp]) -> dict[Op, TensorOp]:
    """Return adjoints by the op that they are of; an output that is there twice gets the sum."""
    found: dict[Op, TensorOp] = {}
    for key, adjoint in delta.items():
        op = graph.outputs[key] if isinstance(key, int) else key
        if dtypes.is_inexact(op.dtype):
            found[op] = add(found[op], adjoint) if op in found else adjoint
    return found


@upcalls.adjoints_of_call.provide
def adjoints_of_call(op: CallOp, delta: Mapping[Any, TensorOp]) -> list[Any]:
    """Return the adjoints of a call's operands."""
    return _adjoints(op, op.graph, delta)


def _adjoints(
    op: CallOp | LoopOp,
    graph: Graph,
    delta: Mapping[Any, TensorOp],
    turn: int = 0,
    recompute: bool = False,
) -> list[Any]:
    """Return the adjoints of the inputs of one call of a graph."""
    adjoints = _by_op(graph, delta)
    info = _gradients_of_called(graph, adjoints, recompute)
    provided = info.provided
    for each in adjoints:
        if each not in provided:
            return [Missing(op, (op,), _refused(graph, each))] * len(graph.inputs)
    rest = dict(adjoints)
    seeds = [rest.pop(each) if each in rest else zeros_like(each) for each in provided]
    inside = info.values
    values = _values(op, inside, turn) if isinstance(op, LoopOp) else all_saved(op, inside)
    gradients = call_op(info.graph, *seeds, *values).results
    found: dict[Any, Any] = dict(zip(info.outputs, gradients, strict=True))
    return [
        found[each] if each in found else _without_gradient(op, info, each) for each in graph.inputs
    ]


def _refused(graph: Graph, op: Op) -> str:
    """Return what is said of a call whose gradient graph does not take an adjoint."""
    return (
        f"is a call of {graph.name}, whose gradient graph in called_graphs_grad_info takes no "
        f"gradient of output {graph.outputs.index(op)}, {op}, but there is one: differentiate "
        f"{graph.name} with it in grads_provided, or leave it out of called_graphs_grad_info"
    )


def _without_gradient(op: Op, info: GradientGraph, parameter: Any) -> Missing | None:
    """Return what stands for the gradient of an input that a gradient graph does not yield."""
    if parameter in info.missing:
        return info.missing[parameter]
    if parameter in info.independent or not dtypes.is_inexact(parameter.dtype):
        return None
    name = info.forward_graph.name
    problem = (
        f"is a call of {name}, whose gradient graph in called_graphs_grad_info yields no gradient "
        f"of the input {parameter.source}: differentiate {name} with it in grads_required, or "
        "leave it out of called_graphs_grad_info"
    )
    return Missing(op, (op,), problem)


def _values(op: LoopOp, inside: Sequence[TensorOp], turn: int) -> list[TensorOp]:
    """Return what ops of a graph are in a round of a loop."""
    return [_value(op, inner, turn) for inner in inside]


def _value(op: LoopOp, inner: TensorOp, turn: int) -> TensorOp:
    graph = op.graph
    while inner in graph.inputs:
        index = graph.inputs.index(inner)
        if turn == 0 or index >= len(graph.outputs):
            operand: TensorOp = op.args[index]
            return operand
        inner, turn = graph.outputs[index], turn - 1
    return saved(op, inner, turn)


@upcalls.adjoints_of_loop.provide
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
        if broken is not None and turn:
            return [broken] * len(op.args)
        now = {key: share for key, share in enumerate(shares[:carried]) if share is not None}
    for index in range(carried):
        found[index] = now.get(index)
    return found


def _sum(one: Any, other: Any) -> Any:
    if isinstance(one, Missing) or isinstance(other, Missing):
        return one if isinstance(one, Missing) else other
    return add(one, other)


@upcalls.adjoints_of_cond.provide
def adjoints_of_cond(op: CondOp, delta: Mapping[Any, TensorOp]) -> list[Any]:
    """Return the adjoints of the operands of a choice: a choice of calls of gradient graphs.

    Nothing is kept for the graph that did not run: gradient graphs compute again what they need.
    For one that was given and takes values from inside, the graph is called again.
    """
    inputs, shares, again = [], [], []
    for graph in op.graphs:
        seeds = {key: like_parameter(graph.outputs[key], "Gradient___") for key in delta}
        own = [like_parameter(each, "") for each in graph.inputs]
        with scope.replacing(op):
            forward = CallOp(*own, graph=graph)
        again.append(forward)
        inputs.append([*seeds.values(), *own])
        shares.append(_adjoints(forward, graph, seeds, recompute=True))
    found = [(side, share) for side, row in enumerate(shares) for share in row]
    gradients = [(side, share) for side, share in found if isinstance(share, TensorOp)]
    chosen = [
        without_saved(
            Graph(
                inputs=inputs[number],
                outputs=[
                    share if side == number else zeros_like(share) for side, share in gradients
                ],
                name=f"{graph.name}_bwd",
            ),
            recomputed=again,
        )
        for number, graph in enumerate(op.graphs)
    ]
    args = [[*delta.values(), *op.operands_of(which)] for which in (True, False)]
    results = iter(cond_op(op.args[0], chosen[0], chosen[1], *args).results)
    return [
        None,
        *(next(results) if isinstance(share, TensorOp) else share for _, share in found),
    ]
