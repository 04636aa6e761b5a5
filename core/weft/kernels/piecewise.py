"""Piecewise ops: padding, concatenation, and slices of them, as kernels read them.

At each point a kernel loads the element of one operand, or takes the constant around them, so none
of these arrays is in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from operator import add
from typing import Any, NamedTuple

import numpy as np

from weft.ir.axes import Axes
from weft.ir.dtypes import Array, DType
from weft.ir.op import Op, attribute_key
from weft.ir.tensor import TensorOp
from weft.ops.indexing.slicing import SliceOp
from weft.ops.shape.joining import ConcatOp, PadOp
from weft.support.backports import override

__all__ = ["Piece", "PiecewiseOp", "as_piecewise"]

Interval = tuple[int, int]
"""The first index along an axis, and the one after the last."""


class Piece(NamedTuple):
    """A box of a value, in which its elements are those of an operand.

    Attributes
    ----------
    operand
        The index of the operand.
    box
        The interval along each axis, which is not empty.
    origin
        The index in the value of the operand's first element, which may be outside of the box.
    """

    operand: int
    box: tuple[Interval, ...]
    origin: tuple[int, ...]


class PiecewiseOp(TensorOp):
    """The elements of an operand in each of several boxes, and a constant elsewhere.

    Passes create it in kernels, after differentiation.

    Attributes
    ----------
    pieces
        The boxes, which do not overlap.
    fill
        The constant; None if the boxes cover all elements.
    target_axes
        The axes of the result.
    """

    pieces: tuple[Piece, ...]
    fill: float | None
    target_axes: Axes

    @override
    def infer(self) -> tuple[Axes, DType]:
        return self.target_axes, self.args[0].dtype

    @property
    def cut_axes(self) -> list[int]:
        """The axes along which an operand is shifted, or is not the whole result."""
        wholes = [((0, axis.length), 0) for axis in self.axes]
        return [
            axis
            for axis, whole in enumerate(wholes)
            if any((each.box[axis], each.origin[axis]) != whole for each in self.pieces)
        ]

    def interior(self, axis: int) -> Interval:
        """Return the longest interval along an axis within which no box begins or ends."""
        ends = sorted({0, self.axes[axis].length, *(n for it in self.pieces for n in it.box[axis])})
        return max(pairwise(ends), key=lambda pair: pair[1] - pair[0])

    @override
    def reference(self, *args: Array) -> Any:
        result = np.full(self.axes.shape, self.fill or 0, np.asarray(args[0]).dtype)
        for operand, box, origin in self.pieces:
            inside = tuple(
                slice(low - first, high - first)
                for (low, high), first in zip(box, origin, strict=True)
            )
            result[tuple(slice(*pair) for pair in box)] = args[operand][inside]
        return result


MAX_DEPTH = 2
"""How many paddings and concatenations of each other are one op, as where both axes are rolled."""


def as_piecewise(op: Op, depth: int = MAX_DEPTH) -> PiecewiseOp | None:
    """Return a padding, a concatenation, or a slice of one as a piecewise op; None for others.

    What is padded or concatenated may be such an op itself, with the same constant if it has one.
    """
    if isinstance(op, SliceOp) and all(step == 1 for _, _, step in op.bounds):
        whole = as_piecewise(op.args[0], depth)
        return None if whole is None else _sliced(whole, op)
    if not depth:
        return None
    if isinstance(op, PadOp):
        (x,) = op.args
        origin = tuple(before for before, _ in op.widths)
        box = tuple((start, start + length) for start, length, _ in op.inner_bounds(x.axes))
        return _composed(op, [Piece(0, box, origin)], op.fill, depth)
    if isinstance(op, ConcatOp):
        boxes = [tuple((start, start + n) for start, n, _ in part) for part in op.parts()]
        pieces = [
            Piece(index, box, tuple(low for low, _ in box)) for index, box in enumerate(boxes)
        ]
        return _composed(op, pieces, None, depth)
    return None


def _composed(op: Op, pieces: list[Piece], fill: float | None, depth: int) -> PiecewiseOp:
    """Return a piecewise op of the operands of operands that are such ops themselves."""
    inner = [as_piecewise(arg, depth - 1) for arg in op.args]
    found_fills = (fill, *(each.fill for each in inner if each is not None))
    fills = {attribute_key(each): each for each in found_fills if each is not None}
    if len(fills) > 1 or all(each is None for each in inner):
        return _piecewise(op.args, pieces, fill, op.axes)
    args: list[Op] = []
    found: list[Piece] = []
    for operand, box, origin in pieces:
        below = inner[operand]
        whole = tuple((0, axis.length) for axis in op.args[operand].axes)
        start = Piece(0, whole, (0,) * len(whole))
        for place, shown, first in (start,) if below is None else below.pieces:
            moved = tuple(
                (max(low, a + by), min(high, b + by))
                for (low, high), (a, b), by in zip(box, shown, origin, strict=True)
            )
            at = tuple(map(add, first, origin))
            found.append(Piece(len(args) + place, moved, at))
        args += (op.args[operand],) if below is None else below.args
    return _piecewise(args, found, next(iter(fills.values()), None), op.axes)


def _piecewise(
    args: Sequence[Op], pieces: Iterable[Piece], fill: float | None, axes: Axes
) -> PiecewiseOp:
    """Return a piecewise op without pieces that have no elements, and operands without pieces."""
    found = [each for each in pieces if all(low < high for low, high in each.box)]
    used = dict.fromkeys(args[each.operand] for each in found) or {args[0]: None}
    number = {arg: place for place, arg in enumerate(used)}
    numbered = tuple(each._replace(operand=number[args[each.operand]]) for each in found)
    return PiecewiseOp(*used, pieces=numbered, fill=fill, target_axes=axes)


def _sliced(whole: PiecewiseOp, op: SliceOp) -> PiecewiseOp:
    """Return a slice of a piecewise op."""
    pieces = (
        Piece(
            operand,
            tuple(
                (max(low - start, 0), min(high - start, length))
                for (low, high), (start, length, _) in zip(box, op.bounds, strict=True)
            ),
            tuple(first - start for first, (start, _, _) in zip(origin, op.bounds, strict=True)),
        )
        for operand, box, origin in whole.pieces
    )
    return _piecewise(whole.args, pieces, whole.fill, op.axes)
