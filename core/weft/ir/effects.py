"""Strips effects from graphs that recompute values, so that each effect happens once."""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import Any

from weft.ir import scope
from weft.ir.graph import Graph
from weft.ir.op import Op
from weft.ir.traversal import postorder


def without_effect(op: Op, args: tuple[Any, ...]) -> Op:
    """Return a function that recomputes the value of an op from other operands, without effects.

    The value of an op with an effect is its first operand, but that of a collective depends on the
    other ranks, so it is computed again. An op that runs graphs runs them without theirs.
    """
    if op.has_effect and op.graphs:
        fields: dict[str, Any] = {
            name: without_effects(value) if isinstance(value, Graph) else value
            for name, value in op.attributes().items()
        }
        with scope.replacing(op):
            return type(op)(*args, **fields)
    if op.hands_on:
        value: Op = args[0]
        return value
    return op.on(args)


def without_effects(graph: Graph) -> Graph:
    """Return a graph that computes the same values and has no effects, the same one each time."""
    for each in _callees_first(graph):
        each.memo(without_effects, partial(_stripped, each))
    return graph.memo(without_effects, partial(_stripped, graph))


def _callees_first(graph: Any) -> list[Any]:
    return postorder([graph], attrgetter("called"))


def _stripped(graph: Graph) -> Graph:
    if not any(op.has_effect for op in graph.ops):
        return graph
    # Without effects nothing is left to order but by operands.
    bare = graph.replace(effects=(), after={})
    return bare.rewrite(lambda op: without_effect(op, op.args))
