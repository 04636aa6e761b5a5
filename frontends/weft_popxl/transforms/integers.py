"""Graphs of integers, differentiated as if the integers were floats, as PopXL allows it."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

import weft
from weft import dtypes, scope
from weft.errors import WeftError
from weft.op import Op
from weft.ops.elementwise import CastOp
from weft.ops.graph_ops import CallOp, LoopOp
from weft.ops.storage import ParameterOp

_floating: weakref.WeakKeyDictionary[weft.Graph, weft.Graph] = weakref.WeakKeyDictionary()


def floating(graph: weft.Graph) -> weft.Graph:
    """Return a captured graph with float32 in the place of integers, made once for each.

    Raises what an op raises that takes integers alone, such as one with indices.
    """
    found = _floating.get(graph)
    if found is None:
        new: dict[Op, Any] = {}
        for op in graph.ops:
            with scope.replacing(op):
                new[op] = _floated(op, [new[arg] for arg in op.args])
        found = _floating[graph] = weft.Graph(
            inputs=[new[op] for op in graph.inputs],
            outputs=[new[op] for op in graph.outputs],
            name=graph.name,
        )
    return found


def _floated(op: Any, args: Sequence[Any]) -> Any:
    """Return an op on operands some of which became floats."""
    if isinstance(op, ParameterOp):
        if not dtypes.is_integer(op.dtype):
            return op
        source = weft.placeholder(op.axes, weft.float32, name=op.source.name)
        return ParameterOp(source=source, target_axes=op.axes)
    if list(args) == list(op.args):
        return op
    if isinstance(op, CastOp) and dtypes.is_integer(op.dtype) and op.args[0].dtype.kind in "iu":
        return args[0]
    fields = op.attributes()
    if isinstance(op, CallOp | LoopOp):
        fields["graph"] = floating(op.graph)
        return type(op)(*_fitting(args, fields["graph"].inputs), **fields)
    try:
        return type(op)(*args, **fields)
    except WeftError:
        return type(op)(*(_as_float(arg) for arg in args), **fields)


def _as_float(op: Any) -> Any:
    return weft.cast(op, weft.float32) if dtypes.is_integer(op.dtype) else op


def _fitting(args: Iterable[Any], inputs: Iterable[Any]) -> list[Any]:
    return [weft.cast(arg, each.dtype) for arg, each in zip(args, inputs, strict=True)]


def as_integers(
    graph: weft.Graph, inputs: Sequence[np.dtype[Any]], outputs: Sequence[np.dtype[Any]]
) -> weft.Graph:
    """Return a graph with inputs and outputs of other dtypes, cast on the way in and out."""
    given = [
        weft.placeholder(op.axes, dtype, name=op.source.name)
        for op, dtype in zip(graph.inputs, inputs, strict=True)
    ]
    made = weft.call(graph, *_fitting(given, graph.inputs))
    results = [weft.cast(op, dtype) for op, dtype in zip(made, outputs, strict=True)]
    return weft.capture(results, given, graph.name)
