"""Construction of a graph from a Python function and its arguments, whose tensors become inputs."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import weft
from weft_popxl import dtypes
from weft_popxl.context import get_current_graph
from weft_popxl.errors import refuse_type, refuse_value
from weft_popxl.module import Module, graph_name
from weft_popxl.program import Graph, Tensor, operators
from weft_popxl.tensor_spec import TensorSpec, checked_shape


def build(graph: Graph, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Build the body of a graph by a call of a function."""
    called = function.build if isinstance(function, Module) else function
    try:
        signature = inspect.signature(called)
    except ValueError:
        refuse_type(f"a graph is created from a function with a signature, not from {function!r}")
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        refuse_value(f"the arguments do not fit {graph_name(function)}{signature}: {error}")
    bound.apply_defaults()
    with graph:
        for name, value in bound.arguments.items():
            parameter = signature.parameters[name]
            by_ref = "TensorByRef" in str(parameter.annotation)
            if parameter.kind is parameter.VAR_KEYWORD:
                value = {key: _as_inputs(key, each, by_ref) for key, each in value.items()}
            else:
                value = _as_inputs(name, value, by_ref)
            bound.arguments[name] = value
        for output in _outputs(called(*bound.args, **bound.kwargs)):
            graph_output(output)


operators["build"] = build


def _as_inputs(name: str, value: Any, by_ref: bool) -> Any:
    """Return an argument in which each tensor is replaced by a new input."""
    if isinstance(value, Tensor | TensorSpec):
        passed = by_ref or (isinstance(value, TensorSpec) and value.by_ref)
        return graph_input(value.shape, value.dtype, name, passed)
    if not isinstance(value, list | tuple):
        return value
    tensors = [isinstance(each, Tensor | TensorSpec) for each in value]
    if not any(tensors):
        return value
    if not all(tensors):
        refuse_type(f"the argument {name!r} holds tensors and others: pass them as two arguments")
    made = [_as_inputs(f"{name}_{number}", each, by_ref) for number, each in enumerate(value)]
    if isinstance(value, list):
        return made
    # The constructor of a named tuple takes its fields as separate arguments.
    return type(value)(*made) if hasattr(value, "_fields") else tuple(made)


def _outputs(returned: Any) -> list[Tensor]:
    if returned is None:
        return []
    if isinstance(returned, Tensor):
        return [returned]
    found: list[Any] = list(returned) if isinstance(returned, Iterable) else [None]
    if isinstance(returned, str | Mapping) or not all(isinstance(each, Tensor) for each in found):
        refuse_value(f"a graph returns None, a tensor or an iterable of tensors, not {returned!r}")
    return found


def graph_input(
    shape: Iterable[int],
    dtype: Any,
    name: str | None = None,
    by_ref: bool = False,
    meta_shape: Iterable[int] | None = None,
) -> Tensor:
    """Return a new input of the current graph, after the existing ones.

    `meta_shape` has no effect. A main graph with inputs cannot be run in a session.
    """
    graph = get_current_graph()
    graph._require_open()
    wanted = dtypes.dtype.as_dtype(dtype).as_numpy()
    op = weft.placeholder(checked_shape(shape), wanted, name=name)
    made = graph._add(Tensor, op, name, by_ref=by_ref)
    graph._inputs.append(made)
    return made


def graph_output(t: Tensor) -> None:
    """Make a tensor of the current graph an output; raises ValueError for tensors of others."""
    graph = get_current_graph()
    if not isinstance(t, Tensor):
        refuse_type(f"an output is a tensor, not {t!r}")
    if t.graph is not graph:
        refuse_value(f"{t!r} is not in the current graph {graph}: it cannot be its output")
    graph._require_open()
    graph._outputs.append(t)
