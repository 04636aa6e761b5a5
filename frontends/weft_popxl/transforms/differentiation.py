"""Applies `weft.autodiff` to graphs of an Ir, and converts the results to graphs of the Ir."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import or_
from typing import Any

import weft
from weft.autodiff.gradient_graph import given, gradient_graph
from weft.errors import WeftError
from weft.ir.dtypes import is_inexact
from weft.ir.graph import called_graphs
from weft.ir.results import ResultOp
from weft.ir.storage import ParameterOp
from weft.ir.tensor import TensorOp
from weft.ir.traversal import postorder
from weft.ops.control.graph_ops import CallOp, CondOp, LoopOp
from weft.ops.control.scans import ScanOp
from weft_popxl.errors import popart_exception
from weft_popxl.program import Graph, Tensor
from weft_popxl.transforms.info import (
    ExpectedConnection,
    ExpectedConnectionType,
    GradGraphInfo,
    Known,
)
from weft_popxl.transforms.integers import as_integers, floating

logger = logging.getLogger("weft_popxl")


class Differentiation:
    """One application of `weft.autodiff`.

    Parameters
    ----------
    graph
        The graph to differentiate.
    known
        Existing gradient graphs.
    recompute
        Whether to recompute values instead of saving them.
    is_integer
        Whether to differentiate integers as if they were floats.
    """

    def __init__(self, graph: Graph, known: Known, recompute: bool, is_integer: bool) -> None:
        self.graph = graph
        self.known = dict(known)
        self.recompute = recompute or is_integer
        self.is_integer = is_integer

    def infos(
        self, provided: Sequence[Tensor], required: Sequence[Tensor], on_missing: str
    ) -> dict[Graph, GradGraphInfo]:
        """Return the new gradient graphs by forward graph."""
        cores = self.of_called()
        own = self.run(provided, required, cores)
        missing = self.independent(own)
        if missing and on_missing == "error":
            _refuse_missing(missing)
        if missing and on_missing == "skip":
            required = [tensor for tensor in required if tensor not in missing]
            if not required:
                _refuse_missing(missing)
            zero = own.independent.union(self.op(self.graph, tensor) for tensor in missing)
            own = replace(self.run(provided, required, cores), independent=zero)
        there = {info._core for info in self.known.values()}
        used = frozenset(called_graphs(own.graph))
        made = {
            each: self.info(each, core, self.with_gradient(each, each._outputs))
            for each, core in cores.items()
            if core not in there and not used.isdisjoint(core.graphs)
        }
        made[self.graph] = self.info(self.graph, own, provided)
        infos = (*self.known.values(), *made.values())
        graphs = {each: info.graph for info in infos for each in info._core.graphs}
        for info in made.values():
            info.graph._called = _called(info._core.graph, graphs)
        return made

    def of_called(self) -> dict[Graph, Any]:
        """Return general gradient graphs of the called graphs, which fit every call.

        Existing ones are returned unchanged.
        """
        cores: dict[Graph, Any] = {}
        for each in called_first(self.graph, self.known):
            core = self.core(each)
            if each in self.known and self.known[each]._core.forward_graph is core:
                cores[each] = self.known[each]._core
                continue
            outputs, inputs = (
                tuple([self.op(each, tensor) for tensor in self.with_gradient(each, row)])
                for row in (each._outputs, each._inputs)
            )
            if outputs and inputs:
                with given({found.forward_graph: found for found in cores.values()}):
                    cores[each] = gradient_graph(core, outputs, inputs, recompute=self.is_integer)
        return cores

    def core(self, graph: Graph) -> weft.Graph:
        """Return the graph that is differentiated in place of one of the Ir."""
        captured = graph.captured().graph
        try:
            return floating(captured) if self.is_integer else captured
        except WeftError as error:
            raise popart_exception(
                "Unable to provide required gradient output for fwd id of integers of "
                f"{graph}: {error.problem}"
            ) from None

    def run(
        self,
        provided: Sequence[Tensor],
        required: Sequence[Tensor],
        cores: Mapping[Graph, Any],
    ) -> Any:
        """Return the result of `weft.autodiff`, with gradient graphs of the called graphs."""
        try:
            return weft.autodiff(
                self.core(self.graph),
                [self.op(self.graph, each) for each in self.with_gradient(self.graph, provided)],
                [self.op(self.graph, each) for each in required],
                {core.forward_graph: core for core in cores.values()},
                recompute=self.recompute,
            )
        except WeftError as error:
            ids = ", ".join(tensor.id for tensor in required)
            raise popart_exception(
                f"Unable to provide required gradient output for fwd id {ids}: {error.problem}"
            ) from None

    def op(self, forward: Graph, tensor: Tensor) -> Any:
        """Return the op of an input or output in the differentiated graph."""
        captured, core = forward.captured(), self.core(forward)
        if core is captured.graph:
            return captured.op_of[tensor]
        if tensor in forward.inputs:
            return core.inputs[forward.inputs.index(tensor)]
        return core.outputs[forward._outputs.index(tensor)]

    def with_gradient(self, forward: Graph, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return the inputs or outputs that may have gradients."""
        return [tensor for tensor in tensors if is_inexact(self.op(forward, tensor).dtype)]

    def independent(self, core: Any) -> list[Tensor]:
        """Return inputs whose gradients depend on no provided gradient: they are zero."""
        seeds = (1 << len(core.provided)) - 1
        return [
            self.tensor(self.graph, fwd)
            for inputs, fwd in zip(dependence(core.graph), core.outputs, strict=True)
            if not inputs & seeds
        ]

    def tensor(self, forward: Graph, op: TensorOp) -> Tensor:
        """Return the tensor of a forward op, which is an input or becomes an output."""
        if self.is_integer:
            core, captured = self.core(forward), forward.captured().graph
            own = dict(zip(core.outputs, captured.outputs, strict=True))
            own.update(zip(core.inputs, captured.inputs, strict=True))
            op = own[op]
        tensor = forward._tensor_of(op, "t")
        if tensor not in forward.inputs and tensor not in forward.outputs:
            forward._activations.append(tensor)
        return tensor

    def info(self, forward: Graph, core: Any, provided: Sequence[Tensor]) -> GradGraphInfo:
        """Return a gradient graph as a new graph of the Ir.

        `provided` are the outputs whose gradients are inputs; those without a gradient get an
        unused input.
        """
        given = len(core.provided)
        pairs = zip(core.inputs[given:], core.graph.inputs[given:], strict=True)
        values = [(self.tensor(forward, op), parameter) for op, parameter in pairs]
        values.sort(key=lambda pair: pair[0].id)
        seeds = iter(core.graph.inputs[:given])
        parameters = [
            next(seeds) if is_inexact(self.op(forward, tensor).dtype) else _unread(tensor)
            for tensor in provided
        ]
        _warn_of_unread(core, provided, parameters)
        parameters += [parameter for _, parameter in values]
        wanted = [self.tensor(forward, op) for op in core.outputs]
        fwd, grad = ExpectedConnectionType.Fwd, ExpectedConnectionType.FwdGrad
        expected = (
            *(ExpectedConnection(grad, tensor) for tensor in provided),
            *(ExpectedConnection(fwd, tensor) for tensor, _ in values),
        )
        found = core.graph.replace(inputs=parameters)
        if self.is_integer:
            dtypes = [each.fwd_tensor.dtype.as_numpy() for each in expected]
            found = as_integers(found, dtypes, [each.dtype.as_numpy() for each in wanted])
        made = Graph._made(forward.ir, forward.ir._graph_name(f"{forward.id}_bwd"))
        names = [f"Gradient___{tensor.name}" for tensor in wanted]
        made._adopt(found, map(_name, expected), names)
        forward.ir._graphs.append(made)
        results = tuple(ExpectedConnection(grad, tensor) for tensor in wanted)
        return GradGraphInfo(made, forward, expected, results, core)


def _unread(tensor: Tensor) -> ParameterOp:
    source = weft.placeholder(tensor.shape, tensor.dtype.as_numpy(), name=tensor.name)
    return ParameterOp(source=source, target_axes=source.axes)


def _warn_of_unread(core: Any, tensors: Sequence[Tensor], seeds: Sequence[Any]) -> None:
    read = set(postorder(core.graph.outputs))
    for tensor, seed in zip(tensors, seeds, strict=True):
        if seed not in read:
            logger.warning("autodiff: no required gradient depends on that of %r", tensor)


def _name(connection: ExpectedConnection) -> str:
    is_gradient = connection.connection_type is ExpectedConnectionType.FwdGrad
    return f"{'Gradient___' if is_gradient else ''}{connection.fwd_tensor.name}"


def _called(graph: weft.Graph, graphs: Mapping[weft.Graph, Graph]) -> tuple[Graph, ...]:
    """Return the graphs of the Ir that a graph calls, directly or through graphs of no Ir."""

    def called(each: Any) -> Sequence[Any]:
        return () if each in graphs else each.called

    roots: Sequence[Any] = graph.called
    inside: list[Any] = postorder(roots, called)
    return tuple(dict.fromkeys(graphs[each] for each in inside if each in graphs))


_dependence: weakref.WeakKeyDictionary[weft.Graph, list[int]] = weakref.WeakKeyDictionary()


def dependence(graph: weft.Graph) -> list[int]:
    """Return for each output of a captured graph a bit set of the inputs that it depends on."""
    found = _dependence.get(graph)
    if found is None:
        bits: dict[Any, int] = {op: 1 << place for place, op in enumerate(graph.inputs)}
        for op in graph.ops:
            args = op.args
            if isinstance(op, ResultOp) and isinstance(args[0], CallOp | CondOp | LoopOp | ScanOp):
                inside = _dependence_inside(args[0])[op.index]
                args = tuple(arg for n, arg in enumerate(args[0].args) if inside >> n & 1)
            if op not in bits:
                bits[op] = reduce(or_, (bits[arg] for arg in args), 0)
        found = _dependence[graph] = [bits[op] for op in graph.outputs]
    return found


def _dependence_inside(op: Any) -> list[int]:
    """Return for each result of a call, conditional, loop or scan the operands behind it."""
    first, *other = (dependence(graph) for graph in op.graphs)
    if isinstance(op, CondOp):
        place = 1 + len(op.then_graph.inputs)
        return [1 | x << 1 | y << place for x, y in zip(first, *other, strict=True)]
    if isinstance(op, CallOp):
        return first
    given = [1 << place for place in range(len(op.args))]
    now, rows = given, [0] * (len(first) - op.carried)
    for _ in range(op.count):
        before = now
        found = [reduce(or_, _chosen(before, bits), 0) for bits in first]
        now = found[: op.carried] + given[op.carried :]
        rows = [one | other for one, other in zip(rows, found[op.carried :], strict=True)]
        if now == before:
            break
    return now[: op.carried] + rows


def _chosen(values: Sequence[int], bits: int) -> list[int]:
    return [value for place, value in enumerate(values) if bits >> place & 1]


def _refuse_missing(missing: Sequence[Tensor]) -> None:
    ids = ", ".join(tensor.id for tensor in missing)
    raise popart_exception(
        f"Unable to provide required gradient output for fwd id {ids}: no output whose gradient is "
        "provided depends on it through ops that have gradients. Leave it out of grads_required, "
        "or say on_missing='zeros' or 'skip'"
    )


def called_first(graph: Graph, known: Known) -> list[Graph]:
    """Return the graphs that a graph calls, transitively, each after its own callees.

    Graphs that only known graphs call are omitted.
    """

    def called(each: Any) -> Sequence[Any]:
        return () if each in known else each.called_graphs

    roots: Sequence[Any] = graph.called_graphs
    found: list[Any] = postorder(roots, called)
    return found
