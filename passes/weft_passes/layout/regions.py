"""Regions: elementwise ops and reductions over the same indices, seen through views."""

from __future__ import annotations

from dataclasses import dataclass, field

from weft.ir.axes import Axes
from weft.ir.graph import Graph
from weft.ir.op import Op
from weft.ops.elementwise import ElementwiseOp
from weft.ops.movement import BroadcastOp, ReshapeOp, TransposeOp
from weft.ops.reduction import ArgExtremumOp, ReductionOp
from weft_passes.factors import (
    Form,
    View,
    align,
    flat,
    new_form,
    renewed,
    settled,
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
    form
        The root's axes in the factors of the region.
    """

    op: Op
    arg: Op
    root: Op
    form: Form


@dataclass(eq=False)
class Region:
    """Ops that run over the same indices.

    Attributes
    ----------
    ops
        Elementwise ops, and reductions of what these compute or read.
    reads
        What they read that none of them computes at the same place.
    form, axes
        In which form they are to be computed; None for each in its own.
    """

    ops: list[Op] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    form: Form | None = None
    axes: Axes = field(default_factory=Axes)


class Regions:
    """The regions of a graph.

    Attributes
    ----------
    views
        What each transposition, reshape and broadcast shows.
    forms
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
        self.views: dict[Op, View] = {}
        self.forms: dict[Op, Form] = {}
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
        """Return what an op is a view of."""
        return self.views[op].root if op in self.views else op

    def computes(self, op: Op) -> bool:
        """Whether an op is computed at the indices of a region."""
        return op in self.forms and isinstance(op, ElementwiseOp)

    def enter(self, op: Op) -> None:
        """Put an op into the region of its operands."""
        operands = dict.fromkeys(arg for arg in op.args if arg.axes)
        first = next((arg for arg in operands if self.computes(arg)), None)
        if first is None:
            region, form = Region(), new_form(next(iter(operands)).axes)
        else:
            region, form = self.regions[first], self.forms[first]
        self.forms[op] = form
        for arg in operands:
            if arg is not first:
                region = self.read(op, arg, region)
        region.ops.append(op)
        self.regions[op] = region

    def read(self, op: Op, arg: Op, region: Region) -> Region:
        """Return the region of an op, joined with that of an operand; or note that it enters."""
        form = self.forms[op]
        if self.forms.get(arg) is form and self.computes(arg):
            return region
        root, root_form = arg, form
        if arg in self.views:
            view = self.views[arg]
            shown, below = renewed(view.form, view.root_form)
            if align(shown, form):
                root, root_form = view.root, below
        if self.computes(root) and len(flat(settled(root_form))) == len(flat(settled(form))):
            other = self.regions[root]
            if other is region and settled(self.forms[root]) == settled(root_form):
                return region
            if other is not region and align(self.forms[root], root_form):
                return self.joined(region, other)
        read = self.reads[op, arg] = Read(op, arg, root, root_form)
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

    def result_forms(self, op: Op) -> tuple[Form, Form] | None:
        """Return the form of an op's result in the graph as it is, and that which was chosen.

        None for an op that is computed as it is.
        """
        region = self.regions.get(op)
        if region is None or region.form is None:
            return None
        form = self.forms[op]
        if not isinstance(op, ReductionOp):
            return form, region.form
        places = self.reduced_places(op, region.form)
        if places is None:
            return None
        kept = tuple(form[place] for place in op.kept())
        return kept, tuple(row for place, row in enumerate(region.form) if place not in places)

    def reduced_places(self, op: ReductionOp, form: Form) -> tuple[int, ...] | None:
        """Return the axes that a reduction reduces in a form of its region; None if it cannot.

        Axes of length 1 that its result does not have are reduced as well.
        """
        form, own = settled(form), settled(self.forms[op])
        reduced = {factor for place in op.positions for factor in own[place]}
        places = tuple(place for place, row in enumerate(form) if not reduced.isdisjoint(row))
        rows = [form[place] for place in places]
        if not rows or any(not reduced.issuperset(row) for row in rows):
            return None
        if isinstance(op, ArgExtremumOp):
            return places if rows == [own[op.positions[0]]] else None
        short = [place for place, row in enumerate(form) if not row]
        if len(short) != [own[place] for place in op.kept()].count(()):
            places = tuple(sorted((*places, *short)))
        return places


def _runs_over_indices(op: Op) -> bool:
    if isinstance(op, ElementwiseOp):
        return bool(op.axes and op.axes.size)
    return isinstance(op, ReductionOp) and bool(op.positions and op.args[0].axes.size)
