"""Regions: elementwise ops and reductions over the same indices, seen through views."""

from __future__ import annotations

from dataclasses import dataclass, field

from weft.ir.axes import Axes
from weft.ir.graph import Graph
from weft.ir.op import Op
from weft.ops.pointwise.elementwise import ElementwiseOp
from weft.ops.reductions.reduction import ArgExtremumOp, ReductionOp
from weft.ops.shape.movement import BroadcastOp, ReshapeOp, TransposeOp
from weft_passes.axis_splitting import (
    AxisSplit,
    SplitView,
    align,
    flat,
    renewed,
    settled,
    unsplit,
    view_of,
)

MOVES = (TransposeOp, ReshapeOp, BroadcastOp)


@dataclass(eq=False)
class Read:
    """An operand that enters a region.

    Attributes
    ----------
    op, arg
        The op of the region, and its operand.
    root
        The op that the operand is a view of.
    split
        The root's axes in the factors of the region.
    """

    op: Op
    arg: Op
    root: Op
    split: AxisSplit


@dataclass(eq=False)
class Region:
    """Ops that run over the same indices.

    Attributes
    ----------
    ops
        Elementwise ops, and reductions of what these compute or read.
    reads
        What they read that none of them computes at the same place.
    split, axes
        The chosen axis split of its ops; None if each keeps its own.
    """

    ops: list[Op] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    split: AxisSplit | None = None
    axes: Axes = field(default_factory=Axes)


class Regions:
    """The regions of a graph.

    Attributes
    ----------
    views
        What each transposition, reshape and broadcast shows.
    splits
        The axes of each op in a region, in the region's factors; for a reduction, its operand's.
    regions
        The region of each op that is in one.
    reads
        The operands that enter regions, by op and operand.
    uses
        For each elementwise op of a region, who else reads it: the view that is read, and the
        reader, None for the caller.
    """

    def __init__(self, graph: Graph) -> None:
        self.views: dict[Op, SplitView] = {}
        self.splits: dict[Op, AxisSplit] = {}
        self.regions: dict[Op, Region] = {}
        self.reads: dict[tuple[Op, Op], Read] = {}
        self.uses: dict[Op, list[tuple[Op, Op | None]]] = {}
        for op in graph.ops:
            self.add(op)
        for op in graph.roots:
            self.note_use(op, None)

    def add(self, op: Op) -> None:
        """Follow a move, put an op into a region, or note what it uses."""
        if isinstance(op, MOVES):
            view = view_of(op, self.views)
            if view is not None:
                self.views[op] = view
                return
        elif _runs_over_indices(op):
            self.enter(op)
            return
        for arg in op.args:
            self.note_use(arg, op)

    def note_use(self, arg: Op, user: Op | None) -> None:
        """Remember who reads a value of a region from outside."""
        root = self.root(arg)
        if self.computes(root):
            self.uses.setdefault(root, []).append((arg, user))

    def root(self, op: Op) -> Op:
        """Return the base that an op is a view of."""
        return self.views[op].root if op in self.views else op

    def computes(self, op: Op) -> bool:
        """Whether an op is computed at the indices of a region."""
        return op in self.splits and isinstance(op, ElementwiseOp)

    def enter(self, op: Op) -> None:
        """Put an op into the region of its operands."""
        operands = dict.fromkeys(arg for arg in op.args if arg.axes)
        first = next((arg for arg in operands if self.computes(arg)), None)
        if first is None:
            region, split = Region(), unsplit(next(iter(operands)).axes)
        else:
            region, split = self.regions[first], self.splits[first]
        self.splits[op] = split
        for arg in operands:
            if arg is not first:
                region = self.read(op, arg, region)
        region.ops.append(op)
        self.regions[op] = region

    def read(self, op: Op, arg: Op, region: Region) -> Region:
        """Return the region of an op, joined with that of an operand; or note that it enters."""
        split = self.splits[op]
        if self.splits.get(arg) is split and self.computes(arg):
            return region
        root, root_split = arg, split
        if arg in self.views:
            view = self.views[arg]
            shown, below = renewed(view.split, view.root_split)
            if align(shown, split):
                root, root_split = view.root, below
        if self.computes(root) and len(flat(settled(root_split))) == len(flat(settled(split))):
            other = self.regions[root]
            if other is region and settled(self.splits[root]) == settled(root_split):
                return region
            if other is not region and align(self.splits[root], root_split):
                return self.joined(region, other)
        read = self.reads[op, arg] = Read(op, arg, root, root_split)
        region.reads.append(read)
        self.note_use(arg, op)
        return region

    def joined(self, one: Region, other: Region) -> Region:
        """Return the larger of two regions with the smaller in it."""
        small, large = sorted((one, other), key=lambda region: len(region.ops))
        self.regions.update(dict.fromkeys(small.ops, large))
        large.ops += small.ops
        large.reads += small.reads
        return large

    def result_forms(self, op: Op) -> tuple[AxisSplit, AxisSplit] | None:
        """Return an op's axis splits: the one in the graph, and the chosen one.

        None for an op that is computed as it is.
        """
        region = self.regions.get(op)
        if region is None or region.split is None:
            return None
        split = self.splits[op]
        if not isinstance(op, ReductionOp):
            return split, region.split
        places = self.reduced_places(op, region.split)
        if places is None:
            return None
        kept = tuple(split[place] for place in op.kept())
        return kept, tuple(row for place, row in enumerate(region.split) if place not in places)

    def reduced_places(self, op: ReductionOp, split: AxisSplit) -> tuple[int, ...] | None:
        """Return the reduced axes in an axis split of a region; None if it merges them with others.

        Axes of length 1 that its result does not have are reduced as well.
        """
        split, own = settled(split), settled(self.splits[op])
        reduced = {factor for place in op.positions for factor in own[place]}
        places = tuple(place for place, row in enumerate(split) if not reduced.isdisjoint(row))
        rows = [split[place] for place in places]
        if not rows or any(not reduced.issuperset(row) for row in rows):
            return None
        if isinstance(op, ArgExtremumOp):
            return places if rows == [own[op.positions[0]]] else None
        short = [place for place, row in enumerate(split) if not row]
        if len(short) != [own[place] for place in op.kept()].count(()):
            places = tuple(sorted((*places, *short)))
        return places


def _runs_over_indices(op: Op) -> bool:
    if isinstance(op, ElementwiseOp):
        return bool(op.axes and op.axes.size)
    return isinstance(op, ReductionOp) and bool(op.positions and op.args[0].axes.size)
