"""RequiredTensorShaping: reshapes tensors to the rank that the backend's loops support.

Neighboring axes become one where every operand's strides step through them evenly: down to one
axis for elementwise ops, and to (kept, reduced) or (reduced, kept) for reductions. Strides are
known before anything is planned, because only views bend them. A reshape that joins such axes is a
view; where the limit demands more, it is a copy, and then that of the fewest bytes.

Elementwise ops that read one another are shaped alike, and so as their reductions want it if the
limit leaves a choice: what could run as one kernel still can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise

from weft.ir import scope
from weft.ir.axes import make_axes
from weft.ir.description import TensorDescription
from weft.ir.graph import Graph, on_new_operands
from weft.ir.op import Op
from weft.ir.storage import as_op
from weft.ir.target import Target
from weft.ir.tensor import TensorOp
from weft.ir.views import Layouts
from weft.ops.pointwise.elementwise import ElementwiseOp
from weft.ops.reductions.reduction import ReductionOp
from weft.ops.shape.movement import BroadcastOp, ReshapeOp, cast_axes, transpose
from weft.passes.interface import GraphPass
from weft.plugins import hookimpl
from weft_passes.axis_splitting import (
    SplitView,
    flat,
    moved,
    moves,
    redistributed,
    settled,
    view_of,
)

Shape = tuple[int, ...]
IndexingMap = tuple[int, ...]


class RequiredTensorShaping(GraphPass):
    """Reduce the rank of elementwise ops and reductions to what the target takes."""

    def do_pass(self, graph: Graph, target: Target) -> Graph:
        """Leave a graph for a target without limits alone."""
        if target.max_elementwise_rank is None and target.max_reduction_rank is None:
            return graph
        return _Shaping(target).run(graph)


@dataclass
class _Chain:
    """Elementwise ops of one shape that read one another.

    Attributes
    ----------
    ops
        The ops.
    operands
        What they read that is not one of them.
    wanted
        The places before which an axis should begin, for the sake of reductions.
    """

    ops: list[ElementwiseOp]
    operands: set[TensorOp] = field(default_factory=set)
    wanted: set[int] = field(default_factory=set)


@dataclass
class _Matrix:
    """What a reduction is brought to.

    Attributes
    ----------
    order
        The order in which the axes of its operand are joined.
    shape
        The lengths of the joined axes.
    positions
        The joined axes that are reduced.
    starts
        The operand's axes with which a joined one begins, the first left out.
    """

    order: IndexingMap
    shape: Shape
    positions: IndexingMap
    starts: set[int]


class _Shaping:
    """One run of the pass over one graph."""

    def __init__(self, target: Target) -> None:
        self.limit = target.max_elementwise_rank
        self.reduction_limit = target.max_reduction_rank
        self.layouts = Layouts()
        self.chains: dict[Op, _Chain] = {}
        self.shapes: dict[Op, Shape] = {}
        self.matrices: dict[Op, _Matrix] = {}
        self.shaped: dict[Op, TensorOp] = {}
        self.new: dict[Op, Op] = {}

    def run(self, graph: Graph) -> Graph:
        """Plan first, then rebuild."""
        for op in graph.ops:
            if isinstance(op, ElementwiseOp):
                self.enchain(op)
            elif isinstance(op, ReductionOp):
                self.plan_reduction(op)
        for chain in {id(chain): chain for chain in self.chains.values()}.values():
            self.plan_chain(chain)
        if not self.shapes and not self.matrices:
            return graph
        for op in graph.ops:
            self.new[op] = self.rebuilt(op)
        return graph.mapped(self.new)

    def enchain(self, op: ElementwiseOp) -> None:
        """Put an op into one chain with those that it reads."""
        if self.limit is None or op.rank <= self.limit:
            return
        chain = _Chain([op])
        for arg in op.args:
            other = self.chains.get(arg)
            if other is not None:
                chain = chain if other is chain else self.joined(chain, other)
            elif arg.axes:
                chain.operands.add(arg)
        self.chains[op] = chain

    def joined(self, one: _Chain, other: _Chain) -> _Chain:
        """Return the larger of two chains with the smaller in it."""
        small, large = sorted((one, other), key=lambda chain: len(chain.ops))
        self.chains.update(dict.fromkeys(small.ops, large))
        large.ops += small.ops
        large.operands |= small.operands
        large.wanted |= small.wanted
        return large

    def plan_chain(self, chain: _Chain) -> None:
        """Choose one shape for all ops of a chain, or for each its own if that saves copies."""
        for operand in chain.operands:
            chain.wanted |= self.starts_of_result(operand)
        shape, nbytes = self.best_shape(chain.ops[0], chain.operands, chain.wanted)
        self.shapes.update(dict.fromkeys(chain.ops, shape))
        if nbytes:
            own = [chain.operands.intersection(op.args) for op in chain.ops]
            each = [
                self.best_shape(op, operands, chain.wanted)
                for op, operands in zip(chain.ops, own, strict=True)
            ]
            if sum(copied for _, copied in each) < nbytes:
                shapes = (shape for shape, _ in each)
                self.shapes.update(zip(chain.ops, shapes, strict=True))

    def starts_of_result(self, op: Op) -> set[int]:
        """Return with which axes of a reduction's result one begins that it keeps as it is."""
        matrix = self.matrices.get(op)
        if matrix is None or matrix.order != tuple(range(op.args[0].rank)):
            return set()
        kept = [place for place in matrix.order if place not in op.positions]  # type: ignore[attr-defined]
        return {index for index, place in enumerate(kept) if place in matrix.starts}

    def best_shape(
        self, op: TensorOp, operands: Iterable[TensorOp], wanted: set[int]
    ) -> tuple[Shape, int]:
        """Return the shape that makes the fewest bytes of operands be copied, and these bytes."""
        lengths = op.axes.shape
        places = _long(range(op.rank), lengths)
        bent: dict[int, set[TensorOp]] = {}
        for operand in operands:
            for place in _bends(self.layouts.of(operand), places):
                bent.setdefault(place, set()).add(operand)
        starts = sorted({*bent, *wanted.intersection(places[1:])})

        def copied(kept: Iterable[int]) -> set[TensorOp]:
            return {operand for place in bent.keys() - kept for operand in bent[place]}

        def price(kept: Iterable[int]) -> tuple[int, int]:
            width = sum(operand.dtype.itemsize for operand in copied(kept))
            return width * op.axes.size, len(wanted.difference(kept))

        assert self.limit is not None
        best = min(combinations(starts, min(self.limit - 1, len(starts))), key=price)
        gone = copied(best)
        needed = [place for place in best if place in wanted or bent[place] - gone]
        return _joined(lengths, places, needed), price(best)[0]

    def plan_reduction(self, op: ReductionOp) -> None:
        """Choose what a reduction is brought to, without a copy if there is a way."""
        (x,) = op.args
        if self.reduction_limit is None or not op.positions:
            return
        kept = op.kept()
        limit = max(self.reduction_limit, 2 if _long(kept, x.axes.shape) else 1)
        if x.rank <= limit:
            return
        found = self.layouts.of(x)
        reduced = tuple(sorted(op.positions, key=lambda place: -abs(found.strides[place])))
        as_it_is = tuple(range(x.rank))
        for order in (as_it_is, (*kept, *reduced)):
            matrix = _matrix(found, order, op.positions)
            if len(matrix.shape) <= limit:
                break
        else:
            matrix = _matrix(found, (*kept, *op.positions), op.positions, is_copied=True)
        self.matrices[op] = matrix
        if matrix.order == as_it_is and x in self.chains:
            self.chains[x].wanted.update(matrix.starts)

    def rebuilt(self, op: Op) -> Op:
        """Return the replacement of an op."""
        if op in self.shapes:
            with scope.replacing(op):
                shape = self.shapes[op]
                args = (self.under(arg, shape) if arg.axes else self.new[arg] for arg in op.args)
                self.shaped[op] = made = type(op)(*args, **op.attributes())  # type: ignore[assignment]
                return cast_axes(as_op(made), op.axes)
        if op in self.matrices:
            with scope.replacing(op):
                return cast_axes(as_op(self.reduced(op)), op.axes)
        return on_new_operands(op, self.new)

    def reduced(self, op: Op) -> Op:
        """Return a reduction of what its operand is brought to."""
        matrix, x = self.matrices[op], op.args[0]
        if matrix.order == tuple(range(x.rank)):
            operand = self.under(x, matrix.shape)
        else:
            operand = cast_axes(transpose(as_op(self.new[x]), matrix.order), matrix.shape)
        return type(op)(operand, **{**op.attributes(), "positions": matrix.positions})

    def under(self, x: Op, shape: Shape) -> TensorOp:
        """Return a value's replacement in another shape, from before a reshape if possible."""
        value = self.shaped.get(x, self.new[x])
        if isinstance(value, BroadcastOp):
            return _spread(value, shape)
        if isinstance(value, ReshapeOp):
            (source,) = value.args
            if self.layouts.of(source).cast(value.axes.shape) is not None:
                value = source
        return cast_axes(as_op(value), shape)


def _spread(x: BroadcastOp, shape: Shape) -> TensorOp:
    """Return a broadcast under another shape: what it repeats, brought to that shape and repeated.

    So whatever computes the one can also compute the other.
    """
    views: dict[Op, SplitView] = {}
    for op in (x.args[0], x):
        view = view_of(op, views) if isinstance(op, ReshapeOp | BroadcastOp) else None
        if view is not None:
            views[op] = view
    target = None if x not in views else redistributed(flat(settled(views[x].split)), shape)
    if target is None:
        return cast_axes(x, shape)
    view = views[x]
    return moved(view.root, moves(view.root_split, target), make_axes(shape))


def _long(order: Iterable[int], lengths: Shape) -> list[int]:
    """Return the places whose axes are longer than 1: the others have no stride to speak of."""
    return [place for place in order if lengths[place] != 1]


def _bends(found: TensorDescription, places: Sequence[int]) -> set[int]:
    """Return the places whose axis cannot be joined with the one before it in a view."""
    return {
        place
        for before, place in pairwise(places)
        if found.strides[before] != found.strides[place] * found.shape[place]
    }


def _joined(lengths: Shape, places: Sequence[int], starts: Iterable[int]) -> Shape:
    """Return the lengths of axes that begin at the given places, and at the first."""
    begins = {*places[:1], *starts}
    shape: list[int] = []
    for place in places:
        if place in begins:
            shape.append(1)
        shape[-1] *= lengths[place]
    return tuple(shape) or (1,)


def _matrix(
    found: TensorDescription, order: IndexingMap, reduced: IndexingMap, is_copied: bool = False
) -> _Matrix:
    """Return a reduction's operand with axes joined in an order."""
    places = _long(order, found.shape)
    if not set(places).intersection(reduced):
        places.append(reduced[0])
    changes = {b for a, b in pairwise(places) if (a in reduced) != (b in reduced)}
    starts = changes if is_copied else changes | _bends(found, places)
    shape = _joined(found.shape, places, starts)
    begins = [place for place in places if place in starts or place == places[0]]
    positions = tuple(index for index, place in enumerate(begins) if place in reduced)
    return _Matrix(order, shape, positions, starts)


@hookimpl
def weft_register_passes(register: Callable[[str, type], None]) -> None:
    """Register the pass."""
    register("required-tensor-shaping", RequiredTensorShaping)
