"""The transform from a graph to its gradient graph, with PopXL's names.

The gradient graph is built by `weft.autodiff`.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from weft_popxl.errors import popart_exception, refuse_type, refuse_value
from weft_popxl.program import Graph, Tensor
from weft_popxl.transforms.differentiation import Differentiation
from weft_popxl.transforms.info import (
    ExpectedConnection,
    ExpectedConnectionType,
    GradGraphInfo,
    Known,
)

__all__ = ["ExpectedConnection", "ExpectedConnectionType", "GradGraphInfo", "autodiff"]

WAYS = ("error", "zeros", "skip")
"""The options for an input without a gradient."""


def autodiff(
    graph: Graph,
    grads_provided: Iterable[Tensor] | None = None,
    grads_required: Iterable[Tensor] | None = None,
    called_graphs_grad_info: Known | None = None,
    return_all_grad_graphs: bool = False,
    *,
    recompute: bool = False,
    on_missing: str = "error",
) -> Any:
    """Return a new gradient graph as `GradGraphInfo`.

    Parameters
    ----------
    graph
        The forward graph. Autodiff appends saved values to its outputs, but does not change it
        otherwise.
    grads_provided
        The outputs whose gradients are inputs of the gradient graph; by default all floating-point
        outputs, or all outputs if there is none. An output that is listed twice has two gradients.
    grads_required
        The inputs whose gradients are outputs, in that order; by default all floating-point inputs,
        or all inputs if there is none. Integers are differentiated as if they were floats, and the
        gradients are truncated.
    called_graphs_grad_info
        Existing gradient graphs of called graphs, which are not differentiated again.
    return_all_grad_graphs
        Whether to return a mapping that also has the gradient graphs of all called graphs. These
        take the gradients of all differentiable outputs, so they fit every other call.
    recompute
        Whether the gradient graph recomputes values from the inputs of the forward graph instead of
        reading saved values. Effects such as printing are not repeated.
    on_missing
        The handling of inputs that the outputs do not depend on: ``error``, ``zeros`` or ``skip``.

    Raises TypeError for arguments of wrong types. Raises popart_exception for tensors of another
    graph, for a gradient graph of another graph, for a graph with in-place changes, for a required
    gradient that does not exist, and for a given gradient graph that lacks a provided or required
    gradient.
    """
    if not isinstance(graph, Graph):
        refuse_type(f"autodiff takes a graph, not {graph!r}")
    if on_missing not in WAYS:
        refuse_value(f"on_missing must be one of {', '.join(WAYS)}, not {on_missing!r}")
    if graph.is_main:
        raise popart_exception(f"{graph} has no inputs, so it has no gradients")
    known = _checked_known(called_graphs_grad_info)
    provided, required = _checked(graph, grads_provided, grads_required)
    if graph in known and _fits(known[graph], provided, required):
        return known if return_all_grad_graphs else known[graph]
    _require_differentiable(graph, known)
    has_floats = any(tensor.dtype.is_float for tensor in provided)
    is_integer = not has_floats or not all(tensor.dtype.is_float for tensor in required)
    run = Differentiation(graph, known, recompute, is_integer)
    found = run.infos(provided, required, on_missing)
    return {**known, **found} if return_all_grad_graphs else found[graph]


def _fits(info: GradGraphInfo, provided: Sequence[Tensor], required: Sequence[Tensor]) -> bool:
    kinds = [each.connection_type for each in info.expected_inputs]
    given = info.inputs[: kinds.count(ExpectedConnectionType.FwdGrad)]
    return given == tuple(provided) and info.outputs == tuple(required)


def _checked(
    graph: Graph, provided: Iterable[Tensor] | None, required: Iterable[Tensor] | None
) -> tuple[list[Tensor], list[Tensor]]:
    """Return the tensors of the provided and required gradients, after checks."""
    given = _own(graph, "grads_provided", provided, graph._outputs)
    wanted = _own(graph, "grads_required", required, graph.inputs)
    for tensor in given:
        if tensor not in graph.outputs:
            warnings.warn(
                f"autodiff: {tensor!r} in grads_provided is not an output of {graph}, so it is "
                "left out",
                stacklevel=3,
            )
    for tensor in wanted:
        if tensor not in graph.inputs:
            raise popart_exception(
                f"Unable to provide required gradient output for fwd id {tensor.id}: it is no "
                f"input of {graph}"
            )
    outputs = [tensor for tensor in given if tensor in graph.outputs]
    if not outputs or not wanted:
        raise popart_exception(
            f"Unable to provide required gradient output for any input of {graph}: it has no "
            f"{'inputs' if outputs else 'outputs to begin from'}"
        )
    return outputs, wanted


def _own(
    graph: Graph, what: str, given: Iterable[Tensor] | None, default: Sequence[Tensor]
) -> list[Tensor]:
    if given is None:
        return [tensor for tensor in default if tensor.dtype.is_float] or list(default)
    if isinstance(given, Tensor) or not isinstance(given, Iterable):
        refuse_type(f"{what} is a list of tensors, not {given!r}")
    tensors = list(given)
    if not tensors:
        raise popart_exception(
            f"Calling Autodiff on Graph {graph.id} with defined but empty vector {what}"
        )
    for tensor in tensors:
        if not isinstance(tensor, Tensor):
            refuse_type(f"{what} holds tensors, not {tensor!r}")
        if tensor.graph is not graph:
            raise popart_exception(
                f"autodiff of {graph}: {what} holds {tensor!r}, but this tensor is not in the "
                "forward graph"
            )
    outside = dict.fromkeys(tensor for tensor in tensors if tensor not in default)
    if Counter(tensors) - Counter((*default, *outside)):
        raise popart_exception(f"autodiff of {graph}: {what} holds a tensor twice")
    return tensors


def _checked_known(given: Known | None) -> dict[Graph, GradGraphInfo]:
    """Return the existing gradient graphs, after checks."""
    if given is None:
        return {}
    what = "called_graphs_grad_info"
    if not isinstance(given, Mapping):
        refuse_type(f"{what} maps graphs to what autodiff returned for them, not {given!r}")
    for graph, info in given.items():
        if not isinstance(graph, Graph):
            refuse_type(f"{what} maps graphs, not {graph!r}")
        if not isinstance(info, GradGraphInfo):
            refuse_type(f"{what} maps {graph} to {info!r}: give what autodiff returned for it")
        if info.forward_graph is not graph:
            raise popart_exception(
                f"{what} maps {graph} to the gradient graph of another graph, {info.forward_graph}"
            )
    return dict(given)


def _require_differentiable(graph: Graph, known: Known) -> None:
    """Refuse graphs with in-place changes, and those marked as not differentiable."""
    waiting, seen = [graph], {graph}
    while waiting:
        each = waiting.pop()
        if each is not graph and not each.can_be_recursively_autodiffed:
            raise popart_exception(
                f"The graph {each.id} has been marked as unsafe to autodiff: give its gradient "
                "graph in called_graphs_grad_info"
            )
        changing = next((record for record in each._records if record.writes), None)
        if changing is not None:
            raise popart_exception(
                f"The graph {each.id} contains a modifying op, {changing!r}, so it cannot be "
                "differentiated"
            )
        called = [other for other in each.called_graphs if other not in seen]
        seen.update(called)
        waiting.extend(other for other in called if other not in known)


# Programs also use the function `transforms.autodiff` as the module of that name.
vars(autodiff).update(
    autodiff=autodiff,
    ExpectedConnection=ExpectedConnection,
    ExpectedConnectionType=ExpectedConnectionType,
    GradGraphInfo=GradGraphInfo,
)
