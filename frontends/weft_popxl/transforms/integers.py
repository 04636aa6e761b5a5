"""Differentiation of integers as if they were floats, which PopXL permits."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

import weft
from weft.errors import WeftError
from weft.ir import dtypes, scope
from weft.ir.op import Op, are_same
from weft.ir.storage import ParameterOp
from weft.ir.tensor import TensorOp
from weft.ops.pointwise.elementwise import AbsoluteOp, CastOp, FloorDivideOp, MultiplyOp, SignOp
from weft.ops.shape.movement import BroadcastOp

_floating: weakref.WeakKeyDictionary[weft.Graph, weft.Graph] = weakref.WeakKeyDictionary()


def floating(graph: weft.Graph) -> weft.Graph:
    """Return a captured graph with float32 in place of integers; the result is cached.

    A graph without integers is returned unchanged. Raises the error of an op that requires
    integers, such as one with indices.
    """
    found = _floating.get(graph)
    if found is None:
        new: dict[Op, Any] = {}
        for op in graph.ops:
            with scope.replacing(op):
                new[op] = _floated(op, new)
        ends = {op: _as_float(new[op]) for op in graph.outputs}
        if all(now is op for op, now in (*new.items(), *ends.items())):
            return graph
        found = _floating[graph] = weft.Graph(
            inputs=[new[op] for op in graph.inputs],
            outputs=[ends[op] for op in graph.outputs],
            name=graph.name,
        )
    return found


def _floated(op: Op, new: Mapping[Op, Any]) -> Any:
    """Return an op rebuilt on operands some of which became floats."""
    args = tuple([new[arg] for arg in op.args])
    if isinstance(op, ParameterOp):
        if not dtypes.is_integer(op.dtype):
            return op
        source = weft.placeholder(op.axes, weft.float32, name=op.source.name)
        return ParameterOp(source=source, target_axes=op.axes)
    if are_same(args, op.args):
        return op
    if isinstance(op, CastOp) and dtypes.is_integer(op.dtype) and op.args[0].dtype.kind in "iu":
        return args[0]
    made = _on_floats(op, args)
    divided = _divided(op)
    if divided is None:
        return made
    quotient = weft.divide(*(_as_float(new[each]) for each in divided))
    # Truncated, with the gradient of the exact quotient.
    return weft.stop_gradient(made) + (quotient - weft.stop_gradient(quotient))


def _on_floats(op: Op, args: Sequence[Any]) -> Any:
    fields = op.attributes()
    if op.graphs:
        names = [name for name, value in fields.items() if isinstance(value, weft.Graph)]
        fields.update((name, floating(fields[name])) for name in names)
        inputs = [each for name in names for each in fields[name].inputs]
        # The first operand of a selection is its condition.
        rest = len(args) - len(inputs)
        return type(op)(*args[:rest], *_fitting(args[rest:], inputs), **fields)
    try:
        return type(op)(*args, **fields)
    except WeftError:
        return type(op)(*(_as_float(arg) for arg in args), **fields)


def _divided(op: Any) -> tuple[Any, ...] | None:
    """Return the dividend and divisor if an op is an integer quotient of `ops.div`.

    It is the product of the signs times the quotient of the absolute values, rounded down.
    """
    if not (isinstance(op, MultiplyOp) and isinstance(op.args[1], FloorDivideOp)):
        return None
    sizes = [_operand_of(AbsoluteOp, each) for each in op.args[1].args]
    signs = [_operand_of(SignOp, each) for each in op.args[0].args]
    is_quotient = all(size is not None for size in sizes) and are_same(sizes, signs)
    return tuple(sizes) if is_quotient else None


def _operand_of(kind: type[Op], op: Any) -> Any:
    while isinstance(op, BroadcastOp):
        (op,) = op.args
    return op.args[0] if isinstance(op, kind) else None


def _as_float(op: TensorOp) -> Any:
    return weft.cast(op, weft.float32) if dtypes.is_integer(op.dtype) else op


def _fitting(args: Iterable[Any], inputs: Iterable[Any]) -> list[Any]:
    return [weft.cast(arg, each.dtype) for arg, each in zip(args, inputs, strict=True)]


def as_integers(
    graph: weft.Graph, inputs: Sequence[np.dtype[Any]], outputs: Sequence[np.dtype[Any]]
) -> weft.Graph:
    """Return a graph with inputs and outputs cast from and to other dtypes."""
    given = [
        weft.placeholder(op.axes, dtype, name=op.source.name)
        for op, dtype in zip(graph.inputs, inputs, strict=True)
    ]
    made = weft.call(graph, *_fitting(given, graph.inputs))
    results = [weft.cast(op, dtype) for op, dtype in zip(made, outputs, strict=True)]
    return weft.capture(results, given, graph.name)
