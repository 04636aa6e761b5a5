"""Runs of `weft.autodiff` on the graphs of an Ir, and what they make as graphs of the Ir."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterable, Sequence
from functools import reduce
from operator import or_
from typing import Any

import weft
from weft.errors import WeftError
from weft.ops.graph_ops import CallOp
from weft.ops.results import ResultOp
from weft.ops.storage import ParameterOp
from weft.traversal import postorder
from weft_popxl.errors import popart_exception
from weft_popxl.graph import Graph
from weft_popxl.tensor import Tensor
from weft_popxl.transforms.info import (
    ExpectedConnection,
    ExpectedConnectionType,
    GradGraphInfo,
    Known,
)
from weft_popxl.transforms.integers import as_integers, floating

logger = logging.getLogger("weft_popxl")


class Differentiation:
    """One run of `weft.autodiff`.

    Parameters
    ----------
    graph
        The graph to differentiate.
    known
        Gradient graphs that are there already.
    recompute
        Whether the gradient graph takes nothing from inside the forward graph.
    is_integer
        Whether to differentiate as if integers were floats.
    """

    def __init__(self, graph: Graph, known: Known, recompute: bool, is_integer: bool) -> None:
        self.graph = graph
        self.known = dict(known)
        self.recompute = recompute or is_integer
        self.is_integer = is_integer

    def infos(
        self, provided: Sequence[Tensor], required: Sequence[Tensor], on_missing: str
    ) -> dict[Graph, GradGraphInfo]:
        """Return the gradient graphs that are new, by the graph that each is of."""
        made = self.of_called() if self.is_integer else {}
        self.known.update(made)
        asked, provided = provided, [t for t in provided if t.dtype.is_float or self.is_integer]
        found = self.run(provided, required)
        missing = self.independent(found[self.core(self.graph)])
        if missing and on_missing == "error":
            _refuse_missing(missing)
        if missing and on_missing == "skip":
            required = [tensor for tensor in required if tensor not in missing]
            if not required:
                _refuse_missing(missing)
            found = self.run(provided, required)
        for each in with_called(self.graph):
            core = found.get(self.core(each))
            if core is not None and each not in self.known:
                made[each] = self.info(each, core, asked if each is self.graph else ())
        graphs = {info._core.graph: info.graph for info in (*self.known.values(), *made.values())}
        for info in made.values():
            called = (op.graph for op in info._core.graph.ops if isinstance(op, CallOp))
            info.graph._called = _distinct(graphs[each] for each in called if each in graphs)
        return made

    def of_called(self) -> dict[Graph, GradGraphInfo]:
        """Return gradient graphs of the graphs that are called, each from the inputs alone."""
        made: dict[Graph, GradGraphInfo] = {}
        for each in reversed(with_called(self.graph)):
            if each is not self.graph and each not in self.known and each not in made:
                run = Differentiation(each, {**self.known, **made}, True, True)
                made |= run.infos(each._outputs, each.inputs, "zeros")
        return made

    def core(self, graph: Graph) -> weft.Graph:
        """Return the graph that is differentiated in the place of one of the Ir."""
        captured = graph.captured().graph
        try:
            return floating(captured) if self.is_integer else captured
        except WeftError as error:
            raise popart_exception(
                "Unable to provide required gradient output for fwd id of integers of "
                f"{graph}: {error.problem}"
            ) from None

    def run(self, provided: Sequence[Tensor], required: Sequence[Tensor]) -> dict[Any, Any]:
        """Return what `weft.autodiff` makes, by the graph that it differentiated."""
        own = self.core(self.graph)
        op_of = self.graph.captured().op_of
        if self.is_integer:
            op_of = {
                **dict(zip(self.graph._outputs, own.outputs, strict=False)),
                **dict(zip(self.graph.inputs, own.inputs, strict=False)),
            }
        try:
            found: dict[Any, Any] = weft.autodiff(
                own,
                [op_of[tensor] for tensor in provided],
                [op_of[tensor] for tensor in required],
                {self.core(each): info._core for each, info in self.known.items()},
                return_all_grad_graphs=True,
                recompute=self.recompute,
            )
        except WeftError as error:
            ids = ", ".join(tensor.id for tensor in required)
            raise popart_exception(
                f"Unable to provide required gradient output for fwd id {ids}: {error.problem}"
            ) from None
        return found

    def independent(self, core: Any) -> list[Tensor]:
        """Return inputs whose gradients depend on no gradient that is given: they are zero."""
        seeds = (1 << len(core.provided())) - 1
        return [
            self.tensor(self.graph, fwd)
            for inputs, fwd in zip(dependence(core.graph), core.outputs, strict=True)
            if not inputs & seeds
        ]

    def tensor(self, forward: Graph, op: Any) -> Tensor:
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

        `provided` are the outputs whose gradients were asked for, if they were; those without
        gradients get an input that nothing reads.
        """
        given = len(core.provided())
        tensors = provided or [self.tensor(forward, op) for op in core.inputs[:given]]
        pairs = zip(core.inputs[given:], core.graph.inputs[given:], strict=True)
        values = [(self.tensor(forward, op), parameter) for op, parameter in pairs]
        values.sort(key=lambda pair: pair[0].id)
        seeds = iter(core.graph.inputs[:given])
        parameters = [
            next(seeds) if tensor.dtype.is_float or self.is_integer else _unread(tensor)
            for tensor in tensors
        ]
        _warn_of_unread(core, tensors, parameters)
        parameters += [parameter for _, parameter in values]
        wanted = [self.tensor(forward, op) for op in core.outputs]
        fwd, grad = ExpectedConnectionType.Fwd, ExpectedConnectionType.FwdGrad
        expected = (
            *(ExpectedConnection(grad, tensor) for tensor in tensors),
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


def _distinct(graphs: Iterable[Graph]) -> tuple[Graph, ...]:
    return tuple(dict.fromkeys(graphs))


_dependence: weakref.WeakKeyDictionary[weft.Graph, list[int]] = weakref.WeakKeyDictionary()


def dependence(graph: weft.Graph) -> list[int]:
    """Return for each output of a captured graph, as bits, on which inputs it depends."""
    found = _dependence.get(graph)
    if found is None:
        bits: dict[Any, int] = {op: 1 << place for place, op in enumerate(graph.inputs)}
        for op in graph.ops:
            args = op.args
            if isinstance(op, ResultOp) and isinstance(args[0], CallOp):
                inside = dependence(args[0].graph)[op.index]
                args = tuple(arg for n, arg in enumerate(args[0].args) if inside >> n & 1)
            if op not in bits:
                bits[op] = reduce(or_, (bits[arg] for arg in args), 0)
        found = _dependence[graph] = [bits[op] for op in graph.outputs]
    return found


def _refuse_missing(missing: Sequence[Tensor]) -> None:
    ids = ", ".join(tensor.id for tensor in missing)
    raise popart_exception(
        f"Unable to provide required gradient output for fwd id {ids}: no output whose gradient is "
        "provided depends on it through ops that have gradients. Leave it out of grads_required, "
        "or say on_missing='zeros' or 'skip'"
    )


def with_called(graph: Graph) -> list[Graph]:
    """Return a graph and all that it calls, directly or not."""
    found, waiting = {graph: None}, [graph]
    while waiting:
        called = [each for each in waiting.pop().called_graphs if each not in found]
        found.update(dict.fromkeys(called))
        waiting.extend(called)
    return list(found)
