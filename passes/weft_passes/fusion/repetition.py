"""Loops whose body is one elementwise kernel become kernels that repeat it at each point.

So carried values are in registers between iterations, and not in memory.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from weft.ir import scope
from weft.ir.graph import Graph, on_new_operands
from weft.ir.op import Op, are_same
from weft.ir.results import ResultOp
from weft.kernels import VIEWS, FusedOp, Kernel
from weft.ops.control.graph_ops import LoopOp
from weft.ops.control.passing_loops import PassingLoopOp
from weft.ops.pointwise.elementwise import ElementwiseOp

MAX_WORK = 1 << 30
"""The most element operations of a kernel: an interrupt waits until it ends."""


def repeat_kernels(graph: Graph) -> Graph:
    """Replace each loop whose body is one elementwise kernel."""
    if not any(issubclass(kind, LoopOp) for kind in graph.kinds):
        return graph
    new: dict[Op, Op] = {}
    results: dict[Op, tuple[Op, ...]] = {}
    for op in graph.ops:
        found = _results(op, new) if isinstance(op, LoopOp) else None
        if found is not None:
            results[op] = found
        elif isinstance(op, ResultOp) and op.args[0] in results:
            new[op] = results[op.args[0]][op.index]
        else:
            new[op] = on_new_operands(op, new)
    return graph.mapped(new) if results else graph


def _results(loop: LoopOp, new: Mapping[Op, Op]) -> tuple[Op, ...] | None:
    """Return the results of a loop from a kernel that repeats its body; None if none can."""
    graph = loop.graph
    kernels = [op for op in graph.ops if isinstance(op, FusedOp)]
    computed = _computed(loop)
    if len(kernels) != 1 or computed is None or not _is_elementwise(kernels[0].kernel, loop.count):
        return None
    (body,) = kernels
    numbers = {op: body.kernel.outputs[op.index] for op in graph.ops if are_same(op.args, (body,))}
    if not numbers.keys() >= set(graph.outputs):
        return None
    next_values = {
        graph.inputs[index]: numbers[graph.outputs[output]] for index, output in computed.items()
    }
    given = _given(loop, body, next_values.keys(), new)
    if given is None:
        return None
    places = {arg: number for number, arg in enumerate(body.args)}
    kernel = replace(
        body.kernel,
        outputs=tuple(next_values.values()),
        count=loop.count,
        carried=tuple((places[op], n) for op, n in next_values.items() if op in places),
    )
    with scope.replacing(loop):
        whole = FusedOp(*(given[arg] for arg in body.args), kernel=kernel)
        order = {index: place for place, index in enumerate(computed)}
        return tuple(
            ResultOp(whole, index=order[index]) if index in order else new[loop.args[index]]
            for index in range(len(loop.result_types))
        )


def _given(
    loop: LoopOp, body: FusedOp, carried: Collection[Op], new: Mapping[Op, Op]
) -> dict[Op, Op] | None:
    """Return what the operands of the kernel are before the loop.

    What does not change in the loop is computed before it. None if there is more in the loop.
    """
    graph = loop.graph
    given = {op: new[arg] for op, arg in zip(graph.inputs, loop.args, strict=True)}
    if any(op.axes != arg.axes for op, arg in given.items()):
        return None
    for op in graph.ops:
        if op in given or op is body or are_same(op.args, (body,)):
            continue
        if op.has_effect or op.graphs or not given.keys() - carried >= {*op.args}:
            return None
        given[op] = on_new_operands(op, given)
    return given


def _is_elementwise(kernel: Kernel, count: int) -> bool:
    """Whether each point of a kernel may repeat it, and all results are whole."""
    whole = tuple(range(len(kernel.domain)))
    return (
        kernel.count == 1
        and all(isinstance(each.op, (ElementwiseOp, *VIEWS)) for each in kernel.body)
        and all(kernel.values[number].places == whole for number in kernel.outputs)
        and kernel.size * len(kernel.body) * count <= MAX_WORK
    )


def _computed(loop: LoopOp) -> dict[int, int] | None:
    """Return the output of the body for each carried value that changes.

    None if a carried value becomes another operand.
    """
    if not isinstance(loop, PassingLoopOp):
        return {index: index for index in range(len(loop.graph.outputs))}
    count = len(loop.graph.outputs)
    found = {}
    for index, source in enumerate(loop.sources):
        if source < count:
            found[index] = source
        elif source != count + index:
            return None
    return found
