"""Before fusion: shifted slices of cheap values are computed from slices of their operands.

So ``f[1:] - f[:-1]`` with ``f = u * u``, as a flux between the cells of a grid is written, is one
kernel that reads `u`, and `f` is not in memory. Elements that several slices have are computed for
each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

from weft.ir.graph import Graph, on_new_operands
from weft.ir.op import Op
from weft.ir.target import Target
from weft.ops.indexing.slicing import Bounds, SliceOp, with_lengths
from weft.ops.shape.joining import ConcatOp, PadOp
from weft.ops.shape.movement import BroadcastOp
from weft_passes.fusion.recomputation import CHEAP, MOST_AGAIN

Shifts = frozenset[Bounds]


def slice_operands(graph: Graph, target: Target) -> Graph:
    """Move shifted slices of cheap elementwise values to the operands of these."""
    if not any(issubclass(kind, SliceOp) for kind in graph.kinds):
        return graph
    shifts = _shifts(graph, target)
    if not shifts:
        return graph
    new: dict[Op, Op] = {}
    slices = _Slices(shifts, new)
    for op in graph.ops:
        if isinstance(op, SliceOp) and _sliced(op) in shifts:
            new[op] = slices.of(op.args[0], op.bounds)
        else:
            new[op] = on_new_operands(op, new)
    return graph.mapped(new)


def _shifts(graph: Graph, target: Target) -> dict[Op, Shifts]:
    """Return the values that only slices need, each with all slices that need it."""
    users: dict[Op, list[Op]] = {}
    for op in graph.ops:
        for arg in dict.fromkeys(op.args):
            users.setdefault(arg, []).append(op)
    pinned = {*graph.roots, *graph.after, *(op for ops in graph.after.values() for op in ops)}
    found: dict[Op, Shifts] = {}
    needed: dict[Op, Shifts] = {}
    costs: dict[Op, int] = {}
    for op in reversed(graph.ops):
        readers = users.get(op, ())
        is_inner = op not in pinned and all(_is_shift(each) or each in found for each in readers)
        shifts = _needed(op, readers, needed, is_inner)
        cost = max((costs.get(each, 0) for each in readers), default=0)
        if _is_shift(op):
            needed[op], costs[op] = shifts, cost
        elif is_inner and readers and _is_cheap(op, target):
            computed = sum(prod(length for _, length, _ in bounds) for bounds in shifts)
            if computed > op.axes.size and (cost + 1) * (len(shifts) - 1) <= MOST_AGAIN:
                found[op] = needed[op] = shifts
                costs[op] = cost + 1
    count = len(found) + 1
    while len(found) < count:
        count = len(found)
        for op in [*found]:
            is_inner = all(_is_shift(each) or each in found for each in users[op])
            if not is_inner or not all(
                arg in found or _is_in_memory(arg, target) for arg in op.args
            ):
                del found[op]
    return found


def _needed(op: Op, readers: Iterable[Op], needed: Mapping[Op, Shifts], is_inner: bool) -> Shifts:
    """Return the slices of an op that its readers need, which is all of it unless `is_inner`."""
    shifts = set() if is_inner else {tuple((0, axis.length, 1) for axis in op.axes)}
    for each in readers:
        if isinstance(each, SliceOp) and each in needed:
            shifts.update(_composed(each.bounds, bounds) for bounds in needed[each])
        else:
            shifts.update(needed.get(each, ()))
    return frozenset(shifts)


def _composed(outer: Bounds, inner: Bounds) -> Bounds:
    """Return the bounds of a slice of a slice."""
    return tuple(
        (start + step * first, length, step * by)
        for (start, _, step), (first, length, by) in zip(outer, inner, strict=True)
    )


def _sliced(op: Op) -> Op:
    """Return what slices of each other are slices of."""
    while isinstance(op, SliceOp):
        (op,) = op.args
    return op


def _is_shift(op: Op) -> bool:
    return isinstance(op, SliceOp) and all(step == 1 for _, _, step in op.bounds)


def _is_cheap(op: Op, target: Target) -> bool:
    """Whether a value takes less time than to write and read it."""
    return isinstance(op, CHEAP) and bool(op.axes) and target.fusible(op)


def _is_in_memory(op: Op, target: Target) -> bool:
    """Whether a kernel finds a value, or that of which it is a view, that no kernel computes."""
    while isinstance(op, BroadcastOp):
        (op,) = op.args
    return isinstance(op, SliceOp | PadOp | ConcatOp) or not (op.axes and target.fusible(op))


class _Slices:
    """Slices of the values of a graph, each made once.

    Attributes
    ----------
    shifts
        The values that are computed from slices of their operands.
    new
        What the ops of the graph so far became.
    """

    def __init__(self, shifts: Mapping[Op, Shifts], new: Mapping[Op, Op]) -> None:
        self.shifts = shifts
        self.new = new
        self._made: dict[tuple[Op, Bounds], Op] = {}

    def of(self, op: Op, bounds: Bounds) -> Op:
        """Return a slice of an op of the graph."""
        if not op.axes:
            return self.new[op]
        key = op, bounds
        if key not in self._made:
            made = self._made[key] = self._slice(op, bounds)
            made.stand_for(op)
        return self._made[key]

    def _slice(self, op: Op, bounds: Bounds) -> Op:
        if op in self.shifts:
            args = [self.of(arg, bounds) for arg in op.args]
            return type(op)(*args, **op.attributes())
        if isinstance(op, SliceOp):
            return self.of(op.args[0], _composed(op.bounds, bounds))
        if isinstance(op, BroadcastOp):
            return self._broadcast(op, bounds)
        return SliceOp(self.new[op], bounds=bounds)

    def _broadcast(self, op: BroadcastOp, bounds: Bounds) -> Op:
        """Return the broadcast of a slice, so that a scalar stays one."""
        (x,) = op.args
        inner = tuple(
            bounds[place] if axis.length != 1 else (0, 1, 1)
            for axis, place in zip(x.axes, op.dims, strict=True)
        )
        axes = with_lengths(op.axes, (length for _, length, _ in bounds))
        return BroadcastOp(self.of(x, inner), target_axes=axes, dims=op.dims)
