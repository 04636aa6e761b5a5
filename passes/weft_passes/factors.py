"""Axis splitting: the factors of axes that correspond in two tensors, through any views.

The length of an axis is the product of the lengths of its factors, of which the last runs fastest.
A transposition leaves the axes their factors, a reshape deals them out anew, a broadcast adds some.
So a view is known by the factors of its axes, and the way from one view to another by those of
both.
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
from weft.ops.movement import BroadcastOp, ReshapeOp, TransposeOp, cast_axes


class Factor:
    """A part of an axis, longer than 1; `parts` are the factors that took its place, if any."""

    __slots__ = ("length", "parts")

    def __init__(self, length: int) -> None:
        self.length = length
        self.parts: tuple[Factor, ...] = ()


Row = tuple[Factor, ...]
Form = tuple[Row, ...]
"""The factors of each axis; none for an axis of length 1."""

Move = tuple[str, tuple[Any, ...]]
"""A method of `TensorDescription` that gives a view, and its arguments."""


def new_form(axes: Axes) -> Form:
    """Return axes of a factor each."""
    return tuple((Factor(length),) if length != 1 else () for length in axes.shape)


def flat(form: Form) -> Row:
    """Return all factors in order."""
    return tuple([factor for row in form for factor in row])


def lengths(form: Form) -> tuple[int, ...]:
    """Return the lengths of the axes."""
    return tuple([prod([factor.length for factor in row]) for row in form])


def settled(form: Form) -> Form:
    """Return a form in the factors that have no parts by now."""
    for row in form:
        for factor in row:
            if factor.parts:
                return tuple([tuple(_final(row)) for row in form])
    return form


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


def renewed(*forms: Form) -> tuple[Form, ...]:
    """Return the same forms in factors of their own."""
    forms = tuple(map(settled, forms))
    copies = {factor: Factor(factor.length) for form in forms for factor in flat(form)}
    return tuple(tuple(tuple(copies[factor] for factor in row) for row in form) for form in forms)


def align(form: Form, other: Form) -> bool:
    """Let the axes of a form consist of another's factors, of which some may be split for it.

    The two have no factor in common. False, with nothing done, where lengths do not divide.
    """
    pairs = list(zip(settled(form), settled(other), strict=True))
    refined = [_refinement(*([each.length for each in row] for row in pair)) for pair in pairs]
    if any(found is None for found in refined):
        return False
    for (row, wanted), found in zip(pairs, refined, strict=True):
        for factor, same in zip(_split(row, found), _split(wanted, found), strict=True):
            factor.parts = (same,)
    return True


def restricted(form: Form, other: Form) -> Form:
    """Return the axes longer than 1 that are left of a form if only another's factors are."""
    left = set(flat(settled(other)))
    rows = (tuple(factor for factor in row if factor in left) for row in settled(form))
    return tuple(row for row in rows if row)


def translated(form: Form, known: Form, other: Form) -> Form | None:
    """Return a form in the factors of another, given one tensor's axes in both; None if none is."""
    form, known = renewed(form, known)
    return settled(form) if align(known, other) else None


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


def dealt_out(row: Row, shape: Sequence[int]) -> Form | None:
    """Return factors, split where that is needed, as axes of the given lengths."""
    long = [length for length in shape if length != 1]
    found = _refinement([factor.length for factor in row], long)
    if found is None:
        return None
    rest = iter(_split(row, found))
    form = []
    for length in shape:
        axis: list[Factor] = []
        while prod(factor.length for factor in axis) < length:
            axis.append(next(rest))
        form.append(tuple(axis))
    return tuple(form)


@dataclass(frozen=True, slots=True)
class View:
    """A tensor as moves show it: the op below them, and the axes of the two in common factors."""

    root: TensorOp
    form: Form
    root_form: Form


def view_of(op: Op, views: dict[Op, View]) -> View | None:
    """Return what a transposition, reshape or broadcast shows, given what its operand shows.

    None for a reshape in which lengths do not divide, and of no elements.
    """
    (x,) = op.args
    if not op.axes.size:
        return None
    if x in views:
        below = views[x]
    else:
        form = new_form(x.axes)
        below = View(x, form, form)
    form = settled(below.form)
    if isinstance(op, TransposeOp):
        found: Form | None = tuple(form[place] for place in op.permutation)
    elif isinstance(op, BroadcastOp):
        found = _repeated(op, form)
    else:
        found = dealt_out(flat(form), op.axes.shape)
    return None if found is None else View(below.root, found, below.root_form)


def _repeated(op: BroadcastOp, form: Form) -> Form:
    rows = list(new_form(op.axes))
    for place, axis, row in zip(op.dims, op.args[0].axes, form, strict=True):
        if axis.length != 1:
            rows[place] = row
    return tuple(rows)


def moves(form: Form, target: Form) -> list[Move]:
    """Return what turns a tensor of one form into one of another; factors it lacks are repeated."""
    form, target = settled(form), settled(target)
    if form == target:
        return []
    if len(form) == len(target) and set(form) == set(target):
        return [("transpose", (_permutation(form, target),))]
    have = flat(form)
    present = set(have)
    pieces = [run for row in target for run in _pieces(row, present)]
    kept = [place for place, piece in enumerate(pieces) if piece and piece[0] in present]
    wanted = tuple(pieces[place] for place in kept)
    units = _common_runs(have, flat(wanted))
    place_of = {factor: place for place, factor in enumerate(flat(wanted))}
    order = tuple(sorted(range(len(units)), key=lambda index: place_of[units[index][0]]))
    shape = lengths(form)
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


def _permutation(form: Form, target: Form) -> tuple[int, ...]:
    """Return, for each axis of the target, its place; axes of length 1 keep their order."""
    places: dict[Row, list[int]] = {}
    for place in reversed(range(len(form))):
        places.setdefault(form[place], []).append(place)
    return tuple(places[row].pop() for row in target)


def _pieces(row: Row, present: set[Factor]) -> list[Row]:
    """Return an axis cut where it goes over from factors that are present to others."""
    return [tuple(run) for _, run in groupby(row, key=present.__contains__)] or [()]


def _common_runs(have: Row, wanted: Row) -> Form:
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
