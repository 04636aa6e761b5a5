"""Rules of calls, loops and conditionals, and of ops with effects or an order.

A graph is batched once for each combination of batched inputs. What a loop carries is batched if it
is so after some iteration. Where a condition is batched, both branches run, or the loop runs until
the condition holds for no example, and each example keeps its own values.
"""

from __future__ import annotations

from collections.abc import Iterable

from weft import ops
from weft.batching.walk import (
    Batch,
    Batched,
    BatchedGraph,
    Results,
    batched_graph,
    batching_rule_of,
    moved,
    walk_of,
)
from weft.errors import BatchingError
from weft.ir.graph import Graph
from weft.ir.op import Op
from weft.ir.results import results_of
from weft.ir.storage import ParameterOp, placeholder
from weft.ir.tensor import TensorOp
from weft.ops.control.graph_ops import GraphsOp
from weft.ops.control.scans import ScanOp


@batching_rule_of(ops.IdentityOp, ops.SequentialOp, ops.ParallelOp)
def batched_identity(op: Op, batch: Batch, *args: Op) -> Batched:
    """Return the same op; it is batched if the operand that it yields is."""
    place = -1 if isinstance(op, ops.SequentialOp) else 0
    is_batched = batch.operands[place] and not isinstance(op, ops.ParallelOp)
    return Batched(type(op)(*args, **op.attributes()), is_batched)


@batching_rule_of(ops.DecisionOp)
def batched_decision(op: ops.DecisionOp, batch: Batch, x: TensorOp) -> TensorOp:
    """Refuse: the ranks could not decide for each example."""
    raise BatchingError(
        op.explain(
            "the condition is batched, but what it decides exchanges tensors with other ranks, "
            "which all examples must do together: use where() on the results"
        )
    )


def _results(op: GraphsOp, flags: Iterable[bool]) -> Results:
    return Results(op, tuple(map(Batched, results_of(op), flags)))


@batching_rule_of(ops.CallOp)
def batched_call(op: ops.CallOp, batch: Batch, *args: TensorOp) -> Results:
    """Call the batched graph."""
    made = batched_graph(op.graph, batch)
    return _results(ops.CallOp(*args, graph=made.graph), made.outputs)


@batching_rule_of(ops.SavedOp)
def batched_saved(op: ops.SavedOp, batch: Batch, made: ops.CallOp | ops.LoopOp | ScanOp) -> Batched:
    """Return what the inner op became in the batched graph."""
    walk = walk_of(made.graph)
    if walk is None:
        return Batched(ops.SavedOp(made, **op.attributes()), False)
    walk.reach([op.inner])
    inner = walk.value(op.inner)
    value = ops.SavedOp(made, inner=inner.op)
    is_stacked = not isinstance(made, ops.CallOp) and inner.is_batched
    return Batched(moved(value, 1, 0) if is_stacked else value, inner.is_batched)


def _carried(graph: Graph, batch: Batch, count: int) -> tuple[BatchedGraph, Batch]:
    """Return the batched body of a loop, and the batch with what is batched in some iteration.

    The loop carries the first `count` outputs of the body.
    """
    rest, rows = batch.operands[count:], (False,) * (len(graph.outputs) - count)
    while True:
        carried = batch.operands[:count]
        body = batched_graph(graph, batch, (*carried, *rows))
        if body.outputs[:count] == carried:
            return body, batch
        batch = batch.of((*body.outputs[:count], *rest))


def _operands(batch: Batch, wanted: Batch, args: Iterable[TensorOp]) -> list[TensorOp]:
    """Return operands with the batch axis where it is wanted."""
    flags = zip(args, batch.operands, wanted.operands, strict=True)
    return [
        batch.repeated(arg) if is_wanted and not is_batched else arg
        for arg, is_batched, is_wanted in flags
    ]


@batching_rule_of(ops.LoopOp)
def batched_loop(op: ops.LoopOp, batch: Batch, *args: TensorOp) -> Results:
    """Loop over the batched body."""
    body, whole = _carried(op.graph, batch, len(op.graph.outputs))
    operands = _operands(batch, whole, args)
    return _results(ops.LoopOp(*operands, graph=body.graph, count=op.count), body.outputs)


@batching_rule_of(ScanOp)
def batched_scan(op: ScanOp, batch: Batch, *args: TensorOp) -> Results:
    """Scan with the batched body; the batch axis comes after that of rows, and then before it."""
    body, whole = _carried(op.graph, batch, op.carried)
    operands = _operands(batch, whole, args)
    for place in range(op.carried, op.carried + op.scanned):
        if whole.operands[place]:
            operands[place] = moved(operands[place], 0, 1)
    made = ScanOp(*operands, **{**op.attributes(), "graph": body.graph})
    results: list[TensorOp] = [*results_of(made)]
    for place in range(op.carried, len(results)):
        if body.outputs[place]:
            results[place] = moved(results[place], 1, 0)
    return Results(made, tuple(map(Batched, results, body.outputs)))


@batching_rule_of(ops.CondOp)
def batched_cond(op: ops.CondOp, batch: Batch, *args: TensorOp) -> Results:
    """Choose between batched graphs, or for a batched condition between the results of both."""
    place = 1 + len(op.then_graph.inputs)
    batches = batch.of(batch.operands[1:place]), batch.of(batch.operands[place:])
    pairs = list(zip(op.graphs, batches, strict=True))
    found = zip(*(batched_graph(*pair).outputs for pair in pairs), strict=True)
    flags = tuple(any(each) for each in found)
    if not batch.operands[0]:
        then, other = (batched_graph(*pair, flags).graph for pair in pairs)
        return _results(ops.CondOp(*args, then_graph=then, else_graph=other), flags)
    _require_no_effect(op)
    is_batched = (True,) * len(flags)
    graphs = (batched_graph(*pair, is_batched).graph for pair in pairs)
    operands = args[1:place], args[place:]
    calls = (ops.CallOp(*given, graph=graph) for graph, given in zip(graphs, operands, strict=True))
    results = zip(*map(results_of, calls), strict=True)
    return Results(None, tuple(Batched(_chosen(args[0], *pair), True) for pair in results))


def _chosen(condition: TensorOp, x: TensorOp, y: TensorOp) -> TensorOp:
    """Return for each example one tensor or the other."""
    return ops.WhereOp(ops.BroadcastOp(condition, target_axes=x.axes, dims=(0,)), x, y)


def _require_no_effect(op: GraphsOp) -> None:
    if op.has_effect:
        raise BatchingError(
            op.explain(
                "the condition is batched, so the graphs run for all examples together, but they "
                "have effects (printing, assertions, collectives), which would not be those of "
                "the examples: move the effects out of the graphs"
            )
        )


@batching_rule_of(ops.WhileOp)
def batched_while(op: ops.WhileOp, batch: Batch, *args: TensorOp) -> Results:
    """Loop while the condition holds for an example; those that are finished keep their values."""
    body, whole = _carried(op.body, batch, len(op.body.outputs))
    condition = batched_graph(op.condition, whole)
    if not condition.outputs[0]:
        operands = _operands(batch, whole, args)
        loop = ops.WhileOp(*operands, condition=condition.graph, body=body.graph)
        return _results(loop, body.outputs)
    _require_no_effect(op)
    count = len(op.body.outputs)
    whole = batch.of(((True,) * count) + batch.operands[count:])
    body = batched_graph(op.body, whole, whole.operands[:count])
    graphs = batched_graph(op.condition, whole).graph, body.graph
    operands = _operands(batch, whole, args)
    going = results_of(ops.CallOp(*operands, graph=graphs[0]))[0]
    condition_graph, body_graph = _until_all_are_finished(*graphs, going)
    loop = ops.WhileOp(
        *operands[:count], going, *operands[count:], condition=condition_graph, body=body_graph
    )
    return _results(loop, (True,) * count)


def _until_all_are_finished(condition: Graph, body: Graph, going: TensorOp) -> tuple[Graph, Graph]:
    """Return condition and body of a loop that carries, too, which examples still go on."""
    count = len(body.outputs)
    source = placeholder(going.axes, going.dtype, name="going")
    still = ParameterOp(source=source, target_axes=going.axes)
    inputs = (*body.inputs[:count], still, *body.inputs[count:])
    after = results_of(ops.CallOp(*body.inputs, graph=body))
    kept = [_chosen(still, *pair) for pair in zip(after, body.inputs, strict=False)]
    (goes_on,) = results_of(ops.CallOp(*kept, *body.inputs[count:], graph=condition))
    any_goes_on = ops.AnyOp(still, positions=(0,))
    return (
        Graph(inputs, [any_goes_on], name=condition.name),
        Graph(inputs, [*kept, goes_on], name=body.name),
    )
