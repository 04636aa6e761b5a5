"""Builds kernels from groups of ops, and the graph in which they replace those ops."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from weft.errors import GraphError
from weft.ir import scope
from weft.ir.graph import Graph, on_new_operands
from weft.ir.op import Op
from weft.ir.results import ResultOp
from weft.ir.traversal import postorder
from weft.kernels.fused_op import FusedOp
from weft.kernels.indexing_maps import VIEWS, IndexingMap, operand_indexing_map
from weft.kernels.kernel import Instruction, Kernel, Operand, stage_of
from weft.kernels.piecewise import PiecewiseOp
from weft.ops.reductions.reduction import ReductionOp


@dataclass(eq=False)
class Group:
    """A group of ops that is replaced by one kernel.

    Attributes
    ----------
    domain
        The lengths of the iteration domain.
    places
        The group's ops in topological order, with their indexing maps.
    piecewise
        What the kernel computes in the place of some of them.
    """

    domain: tuple[int, ...]
    places: dict[Op, IndexingMap] = field(default_factory=dict)
    piecewise: Mapping[Op, PiecewiseOp] = field(default_factory=dict)

    def computed(self, op: Op) -> Op:
        """Return what the kernel computes in the place of one of the group's ops."""
        return self.piecewise.get(op, op)

    def kernel(self, outputs: Iterable[Op]) -> tuple[Kernel, tuple[Op, ...]]:
        """Return the kernel that stores some of the group's ops, and its operands."""
        slots: dict[tuple[Op, IndexingMap], int] = {}
        sources: list[list[Any]] = []
        ops = [(op, self.computed(op), places) for op, places in self.places.items()]
        for _, op, places in ops:
            found: list[Any] = []
            for index, arg in enumerate(op.args):
                if arg in self.places:
                    found.append(arg)
                else:
                    slot = (arg, operand_indexing_map(op, index, places))
                    slots.setdefault(slot, len(slots))
                    found.append(slot)
            sources.append(found)
        operands = [_operand(op, places) for op, places in slots]
        values: list[Operand | Instruction] = [*operands]
        numbers: dict[Any, int] = dict(slots)
        for (named, op, places), found in zip(ops, sources, strict=True):
            args = tuple([numbers[source] for source in found])
            numbers[named] = len(values)
            values.append(Instruction(op, args, places, stage_of(op, args, values)))
        kernel = Kernel(
            self.domain,
            self._reduced(),
            tuple(operands),
            tuple(values[len(operands) :]),  # type: ignore[arg-type]
            tuple([numbers[op] for op in outputs]),
        )
        return kernel, tuple([op for op, _ in slots])

    def operands(self) -> Iterator[Op]:
        """Yield the ops outside of the group whose values it reads."""
        args = (arg for op in self.places for arg in self.computed(op).args)
        return (arg for arg in args if arg not in self.places)

    def _reduced(self) -> tuple[int, ...]:
        for op in self.places:
            if isinstance(op, ReductionOp):
                whole = self.places.get(op.args[0], tuple(range(op.args[0].rank)))
                return tuple(sorted(whole[place] for place in op.positions))  # type: ignore[misc]
        return ()


def _operand(op: Op, places: IndexingMap) -> Operand:
    constant = op.const if op.is_constant and not op.axes else None
    return Operand(op.axes, op.dtype, places, constant)


def fused(graph: Graph, groups: Iterable[Group]) -> Graph:
    """Return the graph with a `FusedOp` in the place of each group, and effects in their order.

    A group must be convex: no path may leave it and return. An op may be in several groups: each
    computes it, and the first of them stores it if it has readers outside. A broadcast or reshape
    with readers outside is duplicated as a view of a stored value.

    Raises GraphError for a group that is not convex, and for one with an op that has edges in
    `graph.after`.
    """
    groups = tuple(groups)
    return _Fusing(in_effect_order(graph), groups).run() if groups else graph


def in_effect_order(graph: Graph) -> Graph:
    """Return the graph with an edge from each effect to the next.

    Program order keeps the order of effects, until an effect depends on a kernel with later ops.
    """
    effects = [op for op in graph.ops if op.has_effect]
    edges = {
        op: (*graph.after.get(op, ()), before)
        for before, op in pairwise(effects)
        if before not in graph.after.get(op, ())
    }
    return graph.replace(after={**graph.after, **edges}) if edges else graph


class _Fusing:
    """The replacement of groups by kernels in one graph."""

    def __init__(self, graph: Graph, groups: Iterable[Group]) -> None:
        self.graph = graph
        self.owner: dict[Op, Group] = {}
        for group in groups:
            for op in group.places:
                self.owner.setdefault(op, group)
        self.needed = self._needed(groups)
        self.first: dict[Group, Op] = {}
        for op, group in self.owner.items():
            self.first.setdefault(group, op)
        self.new: dict[Op, Op] = {}

    def run(self) -> Graph:
        for op in self.graph.after:
            if op in self.owner:
                raise GraphError(op.explain("a kernel cannot wait for more than its operands"))
        roots = [self._first(op) for op in (*self.graph.inputs, *self.graph.roots)]
        for op in postorder(roots, self._children):
            group = self.owner.get(op)
            if group is None:
                self._require(op.args)
                self.new[op] = on_new_operands(op, self.new)
            else:
                self._fuse(group)
        return self.graph.mapped(self.new)

    def _needed(self, groups: Iterable[Group]) -> set[Op]:
        """Return the ops with readers outside their group; views among them leave the group."""
        found = set(self.graph.roots)
        found.update(*self.graph.after.values())
        for group in groups:
            found.update(group.operands())
        for op in reversed(self.graph.ops):
            if op in found and isinstance(op, VIEWS):
                self.owner.pop(op, None)
            if op not in self.owner:
                found.update(op.args)
        return found

    def _require(self, operands: Iterable[Op]) -> None:
        """Refuse a group that is not convex."""
        for op in operands:
            if op not in self.new:
                raise GraphError(
                    op.explain("a path leads from it out of a group of ops to fuse, and back")
                )

    def _first(self, op: Op) -> Op:
        """Return the representative of an op's group, or the op itself."""
        group = self.owner.get(op)
        return op if group is None else self.first[group]

    def _children(self, op: Op) -> list[Op]:
        """Return the predecessors of an op, or of the group that it represents."""
        group = self.owner.get(op)
        needed = (*op.args, *self.graph.after.get(op, ())) if group is None else group.operands()
        return [self._first(arg) for arg in needed]

    def _fuse(self, group: Group) -> None:
        outputs = [op for op in group.places if op in self.needed and self.owner.get(op) is group]
        kernel, operands = group.kernel(outputs)
        self._require(operands)
        with scope.replacing(outputs[-1]):
            whole = FusedOp(*[self.new[op] for op in operands], kernel=kernel)
        for index, op in enumerate(outputs):
            with scope.replacing(op):
                self.new[op] = ResultOp(whole, index=index)
