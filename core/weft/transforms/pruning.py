"""Prunes unused results and operands of calls.

Where many calls of a graph yield the same, one that uses a little less yields it too, so that there
is one body for all of them: the gradient of the first of many layers is like those of the others,
but for a gradient by its input, which nobody asks for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from weft.ir import scope
from weft.ir.graph import Graph
from weft.ir.op import Op, are_same
from weft.ir.results import ResultOp
from weft.ir.traversal import nested
from weft.ops.control.graph_ops import CallOp
from weft.transforms.costs import work_of

MANY = 8
"""The calls of a graph, at least, for which another one yields more than is used."""

LITTLE = 1 / 16
"""The share of a body's work that may be wasted by such a call."""

Indices = tuple[int, ...]
"""Some results of a call, or inputs of a graph, by their numbers."""


class Pruning:
    """Lets calls yield only what is used, and take only what that needs.

    Attributes
    ----------
    whole
        By graph, the one that it yields a part of.
    """

    def __init__(self) -> None:
        self.known: dict[tuple[Graph, Indices], tuple[Graph, Indices]] = {}
        self.whole: dict[Graph, Graph] = {}

    def graph(self, graph: Graph) -> Graph:
        """Return a graph whose calls, and those inside them, have no results that nobody uses."""
        if CallOp not in graph.kinds:
            return graph
        yielded = self._yielded(graph)
        if all(self._is_whole(op, yielded.get(op, ())) for op in graph.ops if type(op) is CallOp):
            return graph
        new: dict[Op, Op] = {}
        made: list[Op] = []
        for op in graph.ops:
            args = tuple([new[arg] for arg in op.args])
            if isinstance(op, CallOp):
                new[op] = self._call(op, args, yielded.get(op, ()))
            elif isinstance(op, ResultOp) and op.args[0] in yielded and not are_same(args, op.args):
                with scope.replacing(op):
                    new[op] = ResultOp(*args, index=yielded[op.args[0]].index(op.index))
            else:
                new[op] = op.on(args)
            made.append(new[op])
        return graph.mapped(new, dict.fromkeys(made))

    def _yielded(self, graph: Graph) -> dict[Any, Indices]:
        """Return the results that each call is to yield, in order; none for other calls."""
        used: dict[Any, set[int]] = {}
        for op in graph.ops:
            if isinstance(op, ResultOp) and isinstance(op.args[0], CallOp):
                used.setdefault(op.args[0], set()).add(op.index)
        yielded = {call: tuple(sorted(indices)) for call, indices in used.items()}
        counts = Counter((call.graph, indices) for call, indices in yielded.items())
        common = [each for each, count in counts.items() if count >= MANY]
        for call, indices in yielded.items() if len(counts) > len(common) > 0 else ():
            more = [each for graph, each in common if graph is call.graph]
            if indices not in more:
                fits = (each for each in more if self._may_yield(call, indices, each))
                yielded[call] = next(fits, indices)
        return yielded

    def _may_yield(self, call: CallOp, used: Indices, more: Indices) -> bool:
        """Whether a call may yield more than is used: little work, and nothing that may fail."""
        if not set(used) < set(more):
            return False
        (part, needed), (whole, taken) = (self._body(call.graph, each) for each in (used, more))
        if any(call.args[index].args for index in set(taken) - set(needed)):
            return False
        most, least = (sum(map(work_of, each.ops)) for each in (whole, part))
        return most - least <= LITTLE * most and whole.may_raise == part.may_raise

    def _is_whole(self, call: CallOp, used: Indices) -> bool:
        """Whether a call yields all that its graph can, from all that it takes."""
        part, needed = self._body(call.graph, used)
        return part is call.graph and len(needed) == len(call.args)

    def _call(self, op: CallOp, args: Sequence[Any], used: Indices) -> Op:
        """Return a call that yields some of the results only."""
        graph, needed = self._body(op.graph, used)
        taken = tuple([args[index] for index in needed])
        if graph is op.graph and are_same(taken, op.args):
            return op
        with scope.replacing(op):
            return CallOp(*taken, graph=graph)

    def _body(self, graph: Graph, used: Indices) -> tuple[Graph, Indices]:
        """Return a graph that yields some of its outputs only, and which inputs it takes."""
        return nested(self.known, (graph, used), lambda: self._part(graph, used))

    def _part(self, graph: Graph, used: Indices) -> tuple[Graph, Indices]:
        fewer = self.graph(graph.replace(outputs=[graph.outputs[index] for index in used]))
        read = {arg for op in fewer.ops for arg in op.args}.union(fewer.outputs)
        needed = tuple(index for index, each in enumerate(fewer.inputs) if each in read)
        part = fewer.replace(fewer.ops, inputs=[fewer.inputs[index] for index in needed])
        self.whole[part] = graph
        return part, needed
