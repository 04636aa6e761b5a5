"""Rebuilds a graph with its regions in the chosen axis splits."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from weft.ir import scope
from weft.ir.axes import Axes
from weft.ir.graph import Graph, on_new_operands
from weft.ir.op import Op
from weft.ir.tensor import TensorOp
from weft.ops.pointwise.elementwise import ElementwiseOp
from weft.ops.reductions.reduction import ReductionOp
from weft_passes.axis_splitting import AxisSplit, Move, moved, moves, settled, translated
from weft_passes.layout.regions import Region, Regions


def rebuilt(graph: Graph, regions: Regions) -> Graph:
    """Return the graph in the chosen axis splits; the same graph if there are none."""
    return _Rebuilder(regions).run(graph)


@dataclass(frozen=True, slots=True)
class _Value:
    """A rebuilt value: its tensor, and its axis splits before and after."""

    tensor: TensorOp
    split: AxisSplit
    unsplit: AxisSplit


class _Rebuilder:
    """Rebuilds a graph in the chosen axis splits, without views that became needless."""

    def __init__(self, regions: Regions) -> None:
        self.regions = regions
        self.values: dict[Op, _Value] = {}
        self.views: dict[Hashable, TensorOp] = {}
        self.new: dict[Op, Op] = {}

    def run(self, graph: Graph) -> Graph:
        """Rebuild each op, operands first."""
        for op in graph.ops:
            self.rebuild(op)
        edges = (op for op, firsts in graph.after.items() for op in (op, *firsts))
        for op in (*graph.roots, *edges):
            self.original(op)
        if all(new is op for op, new in self.new.items()) and not self.values:
            return graph
        return graph.mapped(self.new)

    def rebuild(self, op: Op) -> None:
        """Rebuild an op in the axis split of its region, or with its own axes."""
        region = self.regions.regions.get(op)
        if op in self.regions.views and self.regions.views[op].root in self.values:
            return
        if region is None or region.split is None:
            self.keep(op)
        elif isinstance(op, ElementwiseOp):
            self.rebuild_elementwise(op, region)
        elif isinstance(op, ReductionOp):
            self.rebuild_reduction(op, region)

    def keep(self, op: Op) -> None:
        """Give an op the operands that it had, whatever they are made of now."""
        self.new[op] = on_new_operands(op, {arg: self.original(arg) for arg in op.args})

    def rebuild_elementwise(self, op: ElementwiseOp, region: Region) -> None:
        """Compute an op in the axis split of its region."""
        with scope.replacing(op):
            args = tuple(self.operand(op, arg, region) for arg in op.args)
            if op.axes == region.axes:
                self.put(op, on_new_operands(op, dict(zip(op.args, args, strict=True))))
            else:
                self.put(op, type(op)(*args, **op.attributes()))

    def rebuild_reduction(self, op: ReductionOp, region: Region) -> None:
        """Reduce in the region's axis split, if that keeps the reduced axes separate."""
        assert region.split is not None
        (x,) = op.args
        places = self.regions.reduced_places(op, region.split)
        if places is None:
            self.keep(op)
            return
        with scope.replacing(op):
            operand = self.operand(op, x, region)
            if x.axes == region.axes and places == op.positions:
                self.put(op, on_new_operands(op, {x: operand}))
            else:
                self.put(op, type(op)(operand, **{**op.attributes(), "positions": places}))

    def put(self, op: Op, made: Any) -> None:
        """Record an op's new value and its axis split."""
        splits = self.regions.result_forms(op)
        assert splits is not None
        if made.axes == op.axes and settled(splits[0]) == settled(splits[1]):
            self.new[op] = made
        else:
            self.values[op] = _Value(made, *splits)

    def operand(self, op: Op, arg: TensorOp, region: Region) -> TensorOp:
        """Return an operand in the axis split of the region."""
        if not arg.axes:
            return self.original(arg)
        read = self.regions.reads.get((op, arg))
        if read is None:
            root = self.regions.root(arg)
            return self.values[root].tensor if root in self.values else self.original(root)
        assert region.split is not None
        value = self.values.get(read.root)
        as_before = settled(self.regions.splits[op]) == settled(region.split)
        if value is None and as_before and arg.axes == region.axes:
            return self.original(arg)
        tensor, split = self.original(read.root), read.split
        if value is not None:
            found = translated(value.unsplit, value.split, read.split)
            if found is not None:
                tensor, split = value.tensor, found
        return self.moved(tensor, moves(split, region.split), region.axes)

    def moved(self, x: TensorOp, steps: list[Move], axes: Axes) -> TensorOp:
        """Return a tensor after moves, the same for the same."""
        key = (x, tuple(steps), axes)
        if key not in self.views:
            self.views[key] = moved(x, steps, axes)
        return self.views[key]

    def original(self, op: Op) -> TensorOp:
        """Return the new op with the axes and the value of an op."""
        if op not in self.new:
            with scope.replacing(op):
                self.new[op] = self.moved_back(op)
        return self.new[op]  # type: ignore[return-value]

    def moved_back(self, op: Op) -> TensorOp:
        """Return a value of a region, or a view of one, under the axes that the graph knew."""
        if op in self.values:
            value = self.values[op]
            return self.moved(value.tensor, moves(value.unsplit, value.split), op.axes)
        view = self.regions.views[op]
        value = self.values[view.root]
        found = translated(value.unsplit, value.split, view.root_split)
        if found is None:
            return self.moved(self.original(view.root), moves(view.root_split, view.split), op.axes)
        return self.moved(value.tensor, moves(found, view.split), op.axes)
