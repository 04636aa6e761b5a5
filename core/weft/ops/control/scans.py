"""Scans: loops that read a row of some tensors in each iteration, and stack rows of results.

The op is what gradients are derived from: an inner value that a gradient reads becomes one more
stacked result, and the gradient is a scan in the opposite direction. `as_loop` makes a `LoopOp` of
it before passes run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from weft.errors import AxesError
from weft.ir import dtypes, scope
from weft.ir.axes import Axes, Axis, make_axes
from weft.ir.dtypes import DType
from weft.ir.graph import Graph, called_graphs
from weft.ir.op import Op
from weft.ir.results import results_of
from weft.ir.storage import ParameterOp, constant, placeholder
from weft.ir.tensor import CompositeOp, TensorOp
from weft.ops.control.graph_ops import CallOp, Evaluate, GraphsOp, LoopOp, stacked
from weft.ops.indexing.dynamic_slices import DynamicSliceOp, DynamicUpdateSliceOp
from weft.ops.indexing.slicing import tensor_slice
from weft.ops.pointwise.elementwise import add, subtract
from weft.ops.shape.creation import zeros
from weft.ops.shape.joining import stack
from weft.ops.shape.movement import cast_axes
from weft.support.backports import override
from weft.support.locks import cached_property

UNROLLED = 8
"""The iterations up to which a scan becomes calls, where rows need not be found at the call."""


class ScanOp(GraphsOp):
    """A loop whose body takes a row of some operands, and yields rows that are stacked.

    Operands and inputs of the body are the initial values of the loop-carried ones, the scanned
    ones, along their first axis, and the loop-invariant ones. The first outputs of the body are the
    carried values after the iteration, the others are rows.

    Attributes
    ----------
    graph
        The body of the loop.
    count
        The number of iterations, which may be unknown.
    carried, scanned
        How many operands are carried, and how many are scanned.
    reverse
        Whether the last row comes first. Rows are stacked where those that were read with them are.
    recompute
        Whether the gradient computes values of the body again, instead of stacking them.
    stack_name
        The name of the axis along which rows with named axes are stacked.
    """

    graph: Any
    count: Any
    carried: int
    scanned: int
    reverse: bool
    recompute: bool
    stack_name: str

    may_raise = True  # an interrupt, between iterations

    @property
    def graphs(self) -> tuple[Graph, ...]:  # type: ignore[override]
        """The body of the loop."""
        return (self.graph,)

    @cached_property
    @override
    def result_types(self) -> tuple[tuple[Axes, DType], ...]:
        return tuple(
            (op.axes if index < self.carried else self.axes_of_saved(op), op.dtype)
            for index, op in enumerate(self.graph.outputs)
        )

    @override
    def axes_of_saved(self, op: TensorOp) -> Axes:
        return stacked(op.axes, self.count, self.stack_name)

    def infer(self) -> tuple[Axes, Any]:
        """Check operands against inputs, and carried values against outputs."""
        rows = self.carried, self.carried + self.scanned
        for index, (arg, parameter) in enumerate(zip(self.args, self.graph.inputs, strict=True)):
            is_row = rows[0] <= index < rows[1]
            axes = Axes(arg.axes[1:]) if is_row else arg.axes
            if is_row and (not arg.axes or arg.axes[0].length != self.count):
                raise AxesError(f"{arg.axes} does not have {self.count} rows")
            if (axes.lengths, arg.dtype) != (parameter.axes.lengths, parameter.dtype):
                raise AxesError(
                    f"{arg.dtype} {axes} is given for the input {parameter.source} of "
                    f"{self.graph.name}, which is {parameter.dtype} {parameter.axes}"
                )
        return super().infer()

    @property
    def order_of_rows(self) -> range:
        """The rows in the order in which iterations read them."""
        rows = range(self.count)
        return rows[::-1] if self.reverse else rows

    @override
    def run(self, evaluate: Evaluate, args: tuple[Any, ...]) -> tuple[Any, ...]:
        carried, end = args[: self.carried], self.carried + self.scanned
        scanned, rest = args[self.carried : end], args[end:]
        stacked: list[tuple[Any, ...]] = [()] * self.count
        for row in self.order_of_rows:
            found = evaluate(self.graph, (*carried, *(np.asarray(x)[row] for x in scanned), *rest))
            carried, stacked[row] = found[: self.carried], found[self.carried :]
        return (*carried, *map(np.stack, zip(*stacked, strict=True)))


def as_scan(op: LoopOp | ScanOp, args: tuple[Any, ...], **changed: Any) -> ScanOp:
    """Return a loop as a scan without rows, or a scan, with some attributes changed."""
    return ScanOp(*args, **{name: getattr(op, name) for name in ScanOp.fields} | changed)


def as_loop(op: ScanOp, args: tuple[Any, ...], body: Graph) -> GraphsOp:
    """Return the loop that a scan of some operands is, with the same results and a counter.

    A scan of a few iterations without effects is a call of a graph that calls the body.
    """
    # What is compiled for unknown lengths serves more of them as a loop.
    is_known = type(op.count) is int
    if op.count <= (UNROLLED if is_known and not body.effects else 0):
        return CallOp(*args, graph=_unrolled(op, body))
    end = op.carried + op.scanned
    if not op.scanned and len(body.outputs) == op.carried:
        return LoopOp(*args, graph=body, count=op.count)
    inputs = [parameter_like(each) for each in args]
    position = parameter_like(constant(0, dtype=dtypes.int64))
    buffers = [parameter_like(zeros(axes, dtype)) for axes, dtype in op.result_types[op.carried :]]
    at = subtract(op.count - 1, position) if op.reverse else position
    rows = [
        _row(each, at, parameter.axes)
        for each, parameter in zip(
            inputs[op.carried : end], body.inputs[op.carried :], strict=False
        )
    ]
    found = results_of(CallOp(*inputs[: op.carried], *rows, *inputs[end:], graph=body))
    filled = [
        _with_row(buffer, row, at) for buffer, row in zip(buffers, found[op.carried :], strict=True)
    ]
    step = Graph(
        inputs=[*inputs[: op.carried], *buffers, position, *inputs[op.carried :]],
        outputs=[*found[: op.carried], *filled, add(position, 1)],
        name=op.graph.name,
    )
    empty = [zeros(each.axes, each.dtype) for each in buffers]
    first = constant(0, dtype=dtypes.int64)
    carried, rest = args[: op.carried], args[op.carried :]
    return LoopOp(*carried, *empty, first, *rest, graph=step, count=op.count)


def _unrolled(op: ScanOp, body: Graph) -> Graph:
    """Return a graph with the operands and the results of a scan, which calls the body."""
    inputs, end = [parameter_like(each) for each in op.args], op.carried + op.scanned
    carried: Sequence[TensorOp] = inputs[: op.carried]
    scanned, rest = inputs[op.carried : end], inputs[end:]
    made: list[Sequence[TensorOp]] = [()] * max(op.count, 0)
    for row in op.order_of_rows:
        rows = [
            cast_axes(tensor_slice(each, [row, *[slice(None)] * (each.rank - 1)]), like.axes)
            for each, like in zip(scanned, body.inputs[op.carried :], strict=False)
        ]
        found = results_of(CallOp(*carried, *rows, *rest, graph=body))
        carried, made[row] = found[: op.carried], found[op.carried :]
    stacks = [
        stack([each[place] for each in made], axes[0] if axes.is_named else None)
        if made
        else zeros(axes, dtype)
        for place, (axes, dtype) in enumerate(op.result_types[op.carried :])
    ]
    return Graph(inputs=inputs, outputs=[*carried, *stacks], name=op.graph.name)


def parameter_like(op: TensorOp) -> ParameterOp:
    """Return an input of a body for values like an op's."""
    source = placeholder(op.axes, op.dtype)
    return ParameterOp(source=source, target_axes=op.axes)


def _row(x: TensorOp, at: TensorOp, axes: Axes) -> TensorOp:
    block = DynamicSliceOp(x, *_starts(x, at), sizes=(1, *x.axes.lengths[1:]))
    return cast_axes(block, axes)


def _with_row(buffer: TensorOp, row: TensorOp, at: TensorOp) -> TensorOp:
    axes = make_axes((Axis(1, buffer.axes[0].name), *buffer.axes[1:]))
    return DynamicUpdateSliceOp(buffer, cast_axes(row, axes), *_starts(buffer, at))


def _starts(x: TensorOp, at: TensorOp) -> list[TensorOp]:
    return [at, *(constant(0, dtype=dtypes.int64) for _ in x.axes[1:])]


class ScannableOp(CompositeOp):
    """A composite that a scan may compute in less memory than its decomposition."""

    def scan(self) -> TensorOp | None:
        """Return the result by a scan; None if the decomposition is better."""
        raise NotImplementedError


def with_scans(graph: Graph, is_whole: Callable[[Op], bool]) -> Graph:
    """Return a graph with the scans of composites, unless a target computes them as they are.

    So it is in the graphs that it calls.
    """

    def changed(op: ScannableOp, known: Known) -> TensorOp | None:
        return None if is_whole(op) else op.scan()

    return _rewritten(graph, ScannableOp, changed)


def without_scans(graph: Graph) -> Graph:
    """Return a graph with loops in place of its scans, also in the graphs that it calls."""

    def changed(op: ScanOp, known: Known) -> Op:
        return as_loop(op, op.args, known[op.graph])

    return _rewritten(graph, ScanOp, changed, without_scans)


Known = Mapping[Graph, Graph]
"""What takes the place of each called graph."""


def _rewritten(
    graph: Graph,
    kind: type[Op],
    replacement: Callable[[Any, Known], Op | None],
    key: Callable[[Graph], Graph] | None = None,
) -> Graph:
    """Return a graph with other ops for those of a kind, also in the graphs that it calls.

    With a key, a graph keeps what takes its place.
    """
    graphs = called_graphs(graph, own=True)
    if not any(issubclass(each, kind) for called in graphs for each in called.kinds):
        return graph
    known: dict[Graph, Graph] = {}

    def changed(op: Op) -> Op:
        is_of_kind = isinstance(op, kind)
        if all(known[each] is each for each in op.graphs) and not is_of_kind:
            return op
        with scope.replacing(op):
            found = replacement(op, known) if is_of_kind else None
            if found is not None or not op.graphs:
                return op if found is None else found
            fields: dict[str, Any] = {
                name: known[value] if isinstance(value, Graph) else value
                for name, value in op.attributes().items()
            }
            return type(op)(*op.args, **fields)

    for each in graphs:
        make = partial(each.rewrite, changed)
        known[each] = make() if key is None else each.memo(key, make)
    return known[graph]
