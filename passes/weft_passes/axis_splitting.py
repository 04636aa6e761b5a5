"""Axis splitting: tracks the factors of axes through transpositions, reshapes and broadcasts.

The length of an axis is the product of the lengths of its factors, the last of which varies
fastest. A transposition permutes axes, a reshape regroups their factors, a broadcast adds factors.
So the factors of its axes determine a view, and those of two views the ops between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from math import prod
from typing import Any

from weft.ir.axes import Axes, make_axes
from weft.ir.op import Op
from weft.ir.tensor import TensorOp
from weft.ops.shape.movement import BroadcastOp, ReshapeOp, TransposeOp, cast_axes


class Factor:
    """A part of an axis, longer than 1; `parts` are the factors that took its place, if any."""

    __slots__ = ("length", "parts")

    def __init__(self, length: int) -> None:
        self.length = length
        self.parts: tuple[Factor, ...] = ()


Row = tuple[Factor, ...]
AxisSplit = tuple[Row, ...]
"""The factors of each axis; none for an axis of length 1."""

Move = tuple[str, tuple[Any, ...]]
"""A method of `TensorDescription` that gives a view, and its arguments."""


def unsplit(axes: Axes) -> AxisSplit:
    """Return axes of a factor each."""
    return tuple((Factor(length),) if length != 1 else () for length in axes.shape)


def flat(split: AxisSplit) -> Row:
    """Return all factors in order."""
    return tuple([factor for row in split for factor in row])


def lengths(split: AxisSplit) -> tuple[int, ...]:
    """Return the lengths of the axes."""
    return tuple([prod([factor.length for factor in row]) for row in split])


def settled(split: AxisSplit) -> AxisSplit:
    """Return an axis split in terms of factors that are not split further."""
    for row in split:
        for factor in row:
            if factor.parts:
                return tuple([tuple(_final(row)) for row in split])
    return split


def _final(row: Row) -> Iterator[Factor]:
    waiting = list(reversed(row))
    while waiting:
        factor = waiting.pop()
        passed = []
        while len(factor.parts) == 1:
            passed.append(factor)
            (factor,) = factor.parts
        for each in passed:
            each.parts = (factor,)
        if factor.parts:
            waiting.extend(reversed(factor.parts))
        else:
            yield factor


def renewed(*splits: AxisSplit) -> tuple[AxisSplit, ...]:
    """Return copies of axis splits with factors of their own."""
    splits = tuple(map(settled, splits))
    copies = {factor: Factor(factor.length) for split in splits for factor in flat(split)}
    return tuple(
        tuple(tuple(copies[factor] for factor in row) for row in split) for split in splits
    )


def align(split: AxisSplit, other: AxisSplit) -> bool:
    """Express an axis split in the factors of another, splitting factors of both as needed.

    The two have no factor in common. False, with nothing done, where lengths do not divide.
    """
    pairs = list(zip(settled(split), settled(other), strict=True))
    refined = [_refinement(*([each.length for each in row] for row in pair)) for pair in pairs]
    if any(found is None for found in refined):
        return False
    for (row, wanted), found in zip(pairs, refined, strict=True):
        for factor, same in zip(_split(row, found), _split(wanted, found), strict=True):
            factor.parts = (same,)
    return True


def restricted(split: AxisSplit, other: AxisSplit) -> AxisSplit:
    """Return an axis split without factors that another lacks, and without axes of length 1."""
    left = set(flat(settled(other)))
    rows = (tuple(factor for factor in row if factor in left) for row in settled(split))
    return tuple(row for row in rows if row)


def translated(split: AxisSplit, known: AxisSplit, other: AxisSplit) -> AxisSplit | None:
    """Return an axis split in the factors of another; None if they do not divide.

    `known` and `other` are the axes of one tensor in both.
    """
    split, known = renewed(split, known)
    return settled(split) if align(known, other) else None


def _refinement(one: Sequence[int], other: Sequence[int]) -> list[int] | None:
    """Return the coarsest lengths from which both rows can be multiplied together."""
    found = []
    mine, theirs = list(reversed(one)), list(reversed(other))
    while mine and theirs:
        a, b = mine.pop(), theirs.pop()
        small, large = min(a, b), max(a, b)
        if large % small:
            return None
        found.append(small)
        if a != b:
            (mine if a > b else theirs).append(large // small)
    return None if mine or theirs else found


def _split(row: Row, found: Sequence[int] | None) -> list[Factor]:
    """Return a row in factors of the given lengths, which become the parts of those it had."""
    rest = iter(found or ())
    result: list[Factor] = []
    for factor in row:
        parts = [next(rest)]
        while prod(parts) < factor.length:
            parts.append(next(rest))
        if len(parts) > 1:
            factor.parts = tuple(map(Factor, parts))
        result.extend(factor.parts or (factor,))
    return result


def redistributed(row: Row, shape: Sequence[int]) -> AxisSplit | None:
    """Return factors, split where that is needed, as axes of the given lengths."""
    long = [length for length in shape if length != 1]
    found = _refinement([factor.length for factor in row], long)
    if found is None:
        return None
    rest = iter(_split(row, found))
    split = []
    for length in shape:
        axis: list[Factor] = []
        while prod(factor.length for factor in axis) < length:
            axis.append(next(rest))
        split.append(tuple(axis))
    return tuple(split)


@dataclass(frozen=True, slots=True)
class SplitView:
    """A tensor as moves show it: the op below them, and the axes of the two in common factors."""

    root: TensorOp
    split: AxisSplit
    root_split: AxisSplit


def view_of(op: Op, views: dict[Op, SplitView]) -> SplitView | None:
    """Return the view that a transposition, reshape or broadcast is of its root.

    None for a reshape in which lengths do not divide, and of no elements.
    """
    (x,) = op.args
    if not op.axes.size:
        return None
    if x in views:
        below = views[x]
    else:
        split = unsplit(x.axes)
        below = SplitView(x, split, split)
    split = settled(below.split)
    if isinstance(op, TransposeOp):
        found: AxisSplit | None = tuple(split[place] for place in op.permutation)
    elif isinstance(op, BroadcastOp):
        found = _repeated(op, split)
    else:
        found = redistributed(flat(split), op.axes.shape)
    return None if found is None else SplitView(below.root, found, below.root_split)


def _repeated(op: BroadcastOp, split: AxisSplit) -> AxisSplit:
    rows = list(unsplit(op.axes))
    for place, axis, row in zip(op.dims, op.args[0].axes, split, strict=True):
        if axis.length != 1:
            rows[place] = row
    return tuple(rows)


def moves(split: AxisSplit, target: AxisSplit) -> list[Move]:
    """Return the views that turn one axis split into another; missing factors are broadcast."""
    split, target = settled(split), settled(target)
    if split == target:
        return []
    if len(split) == len(target) and set(split) == set(target):
        return [("transpose", (_permutation(split, target),))]
    have = flat(split)
    present = set(have)
    pieces = [run for row in target for run in _pieces(row, present)]
    kept = [place for place, piece in enumerate(pieces) if piece and piece[0] in present]
    wanted = tuple(pieces[place] for place in kept)
    units = _common_runs(have, flat(wanted))
    place_of = {factor: place for place, factor in enumerate(flat(wanted))}
    order = tuple(sorted(range(len(units)), key=lambda index: place_of[units[index][0]]))
    shape = lengths(split)
    steps: list[Move] = []
    if order != tuple(range(len(units))):
        if lengths(units) != shape:
            steps.append(("cast", (lengths(units),)))
        steps.append(("transpose", (order,)))
        shape = lengths(tuple(units[index] for index in order))
    if len(flat(wanted)) < len(flat(target)):
        if lengths(wanted) != shape:
            steps.append(("cast", (lengths(wanted),)))
        shape = lengths(tuple(pieces))
        steps.append(("broadcast", (shape, tuple(kept))))
    if lengths(target) != shape:
        steps.append(("cast", (lengths(target),)))
    return steps


def _permutation(split: AxisSplit, target: AxisSplit) -> tuple[int, ...]:
    """Return, for each axis of the target, its place; axes of length 1 keep their order."""
    places: dict[Row, list[int]] = {}
    for place in reversed(range(len(split))):
        places.setdefault(split[place], []).append(place)
    return tuple(places[row].pop() for row in target)


def _pieces(row: Row, present: set[Factor]) -> list[Row]:
    """Return an axis cut where it goes over from factors that are present to others."""
    return [tuple(run) for _, run in groupby(row, key=present.__contains__)] or [()]


def _common_runs(have: Row, wanted: Row) -> AxisSplit:
    """Return a row cut where the next factor is not the next in the other row as well."""
    after = dict(pairwise(wanted))
    runs: list[list[Factor]] = []
    for factor in have:
        if runs and after.get(runs[-1][-1]) is factor:
            runs[-1].append(factor)
        else:
            runs.append([factor])
    return tuple(map(tuple, runs))


def moved(x: TensorOp, steps: Iterable[Move], axes: Axes) -> TensorOp:
    """Return a tensor after moves that give it the lengths of the axes, under these axes."""
    kind = ""
    for kind, given in steps:
        if kind == "cast":
            x = cast_axes(x, *given)
        elif kind == "transpose":
            x = TransposeOp(x, permutation=given[0])
        else:
            x = BroadcastOp(x, target_axes=make_axes(given[0]), dims=given[1])
    return cast_axes(x.args[0] if kind == "cast" and isinstance(x, ReshapeOp) else x, axes)
