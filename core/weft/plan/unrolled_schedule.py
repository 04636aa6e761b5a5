"""Unrolls a schedule with repeated steps into a graph with one op for each."""

from __future__ import annotations

from collections.abc import Mapping

from weft.ir.graph import Graph
from weft.ir.op import Op, are_same
from weft.ir.traversal import postorder
from weft.plan.dataflow import Dataflow
from weft.plan.liveness import Liveness


def unroll(repeated: Liveness) -> Liveness:
    """Return an equal schedule on a graph in which each step has an op of its own."""
    rebuilding = _Unroller(repeated.flow)
    ops = [rebuilding.step(node) for node in repeated.order]
    flow = Dataflow(rebuilding.graph(), repeated.flow.target)
    nodes = {op: node for node, op in enumerate(flow.ops)}
    return Liveness(flow, [nodes[op] for op in ops])


class _Unroller:
    """Builds the op of each step, on the ops that wrote the buffers it reads.

    Attributes
    ----------
    contents
        By buffer, the op whose value it holds.
    first
        For each op, the op of its first step.
    """

    def __init__(self, flow: Dataflow) -> None:
        self.flow = flow
        self.contents: dict[int, Op] = {}
        self.first: dict[Op, Op] = {}
        self.views: dict[tuple[Op, ...], Op] = {}

    def step(self, node: int) -> Op:
        """Return the op of a step."""
        flow, op = self.flow, self.flow.ops[node]
        read = [number for number in flow.reads[node] if number in self.contents]
        known = {flow.values[number]: self.contents[number] for number in read}
        args = tuple([self._counterpart(arg, known) for arg in op.args])
        is_own = op not in self.first and all(a is b for a, b in zip(args, op.args, strict=True))
        new = op if is_own else op.with_args(args)
        if op not in self.first:
            new.__dict__["serial"] = op.serial  # keeps the op's place in program order
        self.first.setdefault(op, new)
        for number in flow.writes[node]:
            value = flow.values[number]
            result = value if is_own else new if value is op else value.with_args((new,))
            self.contents[number] = result
            self.first.setdefault(value, result)
        return new

    def _counterpart(self, op: Op, known: Mapping[Op, Op]) -> Op:
        """Return the counterpart of an op: the op of a step, an initial value, or a view.

        A value that passed through an effect and was recomputed later is the recomputed one.
        """
        counterparts: dict[Op, Op] = {}
        for each in postorder([op], lambda op: () if op in known else self._operands(op)):
            if each in known:
                counterparts[each] = known[each]
            elif each.hands_on:
                value = counterparts[each.args[0]]
                counterparts[each] = (
                    self.first[each] if self.first[each].args[0] is value else value
                )
            elif each in self.first:
                counterparts[each] = self.first[each]
            else:
                counterparts[each] = self._view(
                    each, tuple([counterparts[arg] for arg in each.args])
                )
        return counterparts[op]

    def _operands(self, op: Op) -> tuple[Op, ...]:
        if op.hands_on:
            return op.args[:1]
        return () if op in self.first else op.args

    def _view(self, op: Op, args: tuple[Op, ...]) -> Op:
        if are_same(args, op.args):
            return op
        if (op, *args) not in self.views:
            self.views[op, *args] = op.with_args(args)
        return self.views[op, *args]

    def graph(self) -> Graph:
        """Return the rebuilt graph, whose results are those of first steps."""
        graph = self.flow.graph

        def first(op: Op) -> Op:
            return self._counterpart(op, {})

        after = {first(op): tuple(map(first, ops)) for op, ops in graph.after.items()}
        return graph.replace(
            outputs=[first(op) for op in graph.outputs],
            updates=[(state, first(value)) for state, value in graph.updates],
            effects=[first(op) for op in graph.effects],
            after=after,
        )
