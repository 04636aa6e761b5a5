"""Adjoints of calls, loops and conditionals, built as calls of gradient graphs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from weft.autodiff.gradient_graph import GradientGraph, given_graphs, gradient_graph, like_parameter
from weft.autodiff.reverse import Missing, gradient_of
from weft.ir import dtypes, scope
from weft.ir.graph import Graph
from weft.ir.op import Op
from weft.ir.storage import ParameterOp, placeholder
from weft.ir.tensor import TensorOp
from weft.ops.control.calls import all_saved, call_op, cond_op
from weft.ops.control.graph_ops import CallOp, CondOp, GraphsOp, LoopOp
from weft.ops.control.scans import ScanOp
from weft.ops.pointwise.elementwise import add, cast
from weft.ops.shape.movement import cast_axes, zeros_like
from weft.transforms.inlining import without_saved


def _called_gradient_graph(
    graph: Graph, adjoints: Mapping[Any, TensorOp], recompute: bool
) -> GradientGraph:
    """Return the gradient graph of a called graph, given or derived, for the present adjoints."""
    info = given_graphs.get().get(graph)
    if info is not None:
        return info.part(adjoints)
    required = tuple(op for op in graph.inputs if dtypes.is_inexact(op.dtype))
    return gradient_graph(graph, tuple(adjoints), required, recompute)


def _adjoints_by_op(graph: Graph, delta: Mapping[Any, TensorOp]) -> dict[Op, TensorOp]:
    """Return the adjoint of each inner op; those of a repeated output are summed."""
    found: dict[Op, TensorOp] = {}
    for key, adjoint in delta.items():
        op = graph.outputs[key] if isinstance(key, int) else key
        if dtypes.is_inexact(op.dtype):
            found[op] = add(found[op], adjoint) if op in found else adjoint
    return found


@gradient_of(CallOp)
def adjoints_of_call(op: CallOp, delta: Mapping[Any, TensorOp], *_: TensorOp) -> list[Any]:
    """Return the adjoints of a call's operands."""
    return _adjoints(op, op.graph, delta)


def _adjoints(
    op: CallOp, graph: Graph, delta: Mapping[Any, TensorOp], recompute: bool = False
) -> list[Any]:
    """Return the adjoints of a graph's inputs for one call."""
    adjoints = _adjoints_by_op(graph, delta)
    info = _called_gradient_graph(graph, adjoints, recompute)
    return _input_adjoints(op, info, adjoints, all_saved(op, info.values))


def _input_adjoints(
    op: GraphsOp,
    info: GradientGraph,
    adjoints: Mapping[Any, TensorOp],
    values: Iterable[TensorOp],
) -> list[Any]:
    """Return the adjoints of a graph's inputs: results of a call of its gradient graph."""
    graph, provided = info.forward_graph, info.provided
    taken = set(provided)
    for each in adjoints:
        if each not in taken:
            return [Missing(op, (op,), _refusal(graph, each))] * len(graph.inputs)
    rest = dict(adjoints)
    seeds = [rest.pop(each) if each in rest else zeros_like(each) for each in provided]
    gradients = call_op(info.graph, *seeds, *values).results
    found: dict[Any, Any] = dict(zip(info.outputs, gradients, strict=True))
    return [
        found[each] if each in found else _zero_or_missing(op, info, each) for each in graph.inputs
    ]


def _refusal(graph: Graph, op: Op) -> str:
    """Return the error text for an adjoint that a given gradient graph does not take."""
    number = next(number for number, each in enumerate(graph.outputs) if each is op)
    return (
        f"is a call of {graph.name}, whose gradient graph in called_graphs_grad_info takes no "
        f"gradient of output {number}, {op}, but there is one: differentiate "
        f"{graph.name} with it in grads_provided, or leave it out of called_graphs_grad_info"
    )


def _zero_or_missing(op: Op, info: GradientGraph, parameter: Any) -> Missing | None:
    """Return the adjoint of an input that a gradient graph has no output for: zero or missing."""
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


@gradient_of(LoopOp)
@gradient_of(ScanOp)
def adjoints_of_scan(op: LoopOp | ScanOp, delta: Mapping[Any, TensorOp], *_: TensorOp) -> list[Any]:
    """Return the adjoints of a loop's or a scan's operands: a scan in the opposite direction.

    It carries the adjoints of carried values, and sums those of loop-invariant operands. It scans
    the adjoints of rows, and what the gradient graph of the body reads.
    """
    graph, end = op.graph, op.carried + op.scanned
    stacked: dict[Any, TensorOp] = _adjoints_by_op(
        graph,
        {key: each for key, each in delta.items() if not isinstance(key, int) or key >= op.carried},
    )
    scanned: dict[Any, Any] = {
        like_parameter(each, "Gradient___"): adjoint for each, adjoint in stacked.items()
    }
    seeds: dict[Any, Any] = dict(zip(stacked, scanned, strict=True))
    floats = [k for k in range(op.carried) if dtypes.is_inexact(graph.inputs[k].dtype)]
    carried = {k: like_parameter(graph.inputs[k], "Gradient___") for k in floats}
    for k, parameter in carried.items():
        each = graph.outputs[k]
        seeds[each] = add(seeds[each], parameter) if each in seeds else parameter
    info = _called_gradient_graph(graph, seeds, op.recompute)
    values, rows_read, invariants = _values_read(op, info)
    scanned |= rows_read
    with scope.captured_ops():
        adjoints = _input_adjoints(op, info, seeds, values)
    broken = next((each for each in adjoints[: op.carried] if isinstance(each, Missing)), None)
    if broken is not None and op.count != 1:
        return [broken] * len(op.args)
    found = [place for place, each in enumerate(adjoints) if isinstance(each, TensorOp)]
    summed = {place: _total_of(graph.inputs[place]) for place in found if place >= end}
    rows = [place for place in found if op.carried <= place < end]
    body = Graph(
        inputs=[*carried.values(), *summed.values(), *scanned, *invariants],
        outputs=[
            *(adjoints[k] if k in found else zeros_like(carried[k]) for k in floats),
            *(add(each, cast(adjoints[k], each.dtype)) for k, each in summed.items()),
            *(adjoints[k] for k in rows),
        ],
        name=f"{graph.name}_bwd",
    )
    first = [delta[k] if k in delta else zeros_like(op.args[k]) for k in floats]
    first += [zeros_like(each) for each in summed.values()]
    backward = ScanOp(
        *first, *scanned.values(), *invariants.values(), graph=body, count=op.count,
        carried=len(first), scanned=len(scanned), reverse=not op.reverse, recompute=op.recompute,
        stack_name=op.stack_name,
    )  # fmt: skip
    for place, result in zip([*floats, *summed, *rows], backward.results, strict=True):
        operand = op.args[place]
        if place in found:
            adjoints[place] = cast(cast_axes(result, operand.axes), operand.dtype)
    return adjoints


def _values_read(
    op: LoopOp | ScanOp, info: GradientGraph
) -> tuple[list[TensorOp], dict[Any, TensorOp], dict[Any, TensorOp]]:
    """Return stand-ins for the values that a gradient graph reads, and what they are bound to.

    The first mapping has those that differ from row to row, the second loop-invariant operands;
    constants stand for themselves.
    """
    values: list[TensorOp] = []
    rows: dict[Any, TensorOp] = {}
    invariants: dict[Any, TensorOp] = {}
    for each in info.values:
        if each.is_constant:
            values.append(each)
            continue
        value = like_parameter(each, "")
        values.append(value)
        place = op.graph.places.get(each, -1)
        if place >= op.carried + op.scanned:
            invariants[value] = op.args[place]
        else:
            rows[value] = op.args[place] if place >= op.carried else all_saved(op, [each])[0]
    return values, rows, invariants


def _total_of(parameter: TensorOp) -> ParameterOp:
    """Return an input for the sum of adjoints of another one."""
    source = placeholder(parameter.axes, dtypes.accumulator_dtype(parameter.dtype))
    return ParameterOp(source=source, target_axes=parameter.axes)


@gradient_of(CondOp)
def adjoints_of_cond(op: CondOp, delta: Mapping[Any, TensorOp], *_: TensorOp) -> list[Any]:
    """Return the adjoints of a conditional's operands: a conditional over gradient graphs.

    No values are saved, since only one branch ran: gradient graphs recompute the values they read.
    The branch is called again for a given gradient graph that reads inner values.
    """
    inputs, adjoints, recomputed_calls = [], [], []
    for graph in op.graphs:
        seeds = {key: like_parameter(graph.outputs[key], "Gradient___") for key in delta}
        own = [like_parameter(each, "") for each in graph.inputs]
        with scope.captured_ops():
            with scope.replacing(op):
                forward = CallOp(*own, graph=graph)
            adjoints.append(_adjoints(forward, graph, seeds, recompute=True))
        recomputed_calls.append(forward)
        inputs.append([*seeds.values(), *own])
    found = [(side, each) for side, row in enumerate(adjoints) for each in row]
    gradients = [(side, each) for side, each in found if isinstance(each, TensorOp)]
    chosen = [
        without_saved(
            Graph(
                inputs=inputs[number],
                outputs=[each if side == number else zeros_like(each) for side, each in gradients],
                name=f"{graph.name}_bwd",
            ),
            recomputed=recomputed_calls,
        )
        for number, graph in enumerate(op.graphs)
    ]
    args = [[*delta.values(), *op.operands_of(which)] for which in (True, False)]
    results = iter(cond_op(op.args[0], chosen[0], chosen[1], *args).results)
    return [
        None,
        *(next(results) if isinstance(each, TensorOp) else each for _, each in found),
    ]
