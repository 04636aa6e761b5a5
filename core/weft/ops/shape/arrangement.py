"""Rearrangements of elements: flip, roll, repeat, split, diagonals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any, SupportsIndex

import numpy as np

from weft.errors import ArgumentError, AxesError
from weft.ir.axes import Axes, Axis, AxisKey, AxisKeys, broadcast_axes, make_axes
from weft.ir.dtypes import Array
from weft.ir.lengths import Length
from weft.ir.op import explain, explained
from weft.ir.storage import as_op, as_ops, constant
from weft.ir.tensor import TensorLike, TensorOp
from weft.ops.arguments import checked_integer
from weft.ops.indexing.gathering import take, with_length, without_names
from weft.ops.indexing.slicing import SliceOp, UpdateSliceOp, slice_along_axis
from weft.ops.pointwise.comparison import where
from weft.ops.pointwise.elementwise import subtract
from weft.ops.products.linalg import diagonal
from weft.ops.shape.creation import below_diagonal, zeros
from weft.ops.shape.joining import ConcatOp, concat
from weft.ops.shape.movement import BroadcastOp, broadcast, cast_axes, flatten, transpose

__all__ = [
    "broadcast_arrays",
    "chunk",
    "diag",
    "diff",
    "flip",
    "moveaxis",
    "repeat",
    "roll",
    "split",
    "squeeze",
    "swapaxes",
    "tile",
    "tril",
    "triu",
    "unsqueeze",
    "unstack",
]


def _part(
    x: TensorOp, position: int, start: int | Length, length: int | Length, step: int = 1
) -> TensorOp:
    """Return a strided slice along one axis."""
    bounds: list[Any] = [(0, axis.length, 1) for axis in x.axes]
    bounds[position] = (start, length, step)
    return SliceOp(x, bounds=tuple(bounds))


def _known_length(function: str, x: TensorOp, position: int) -> int:
    length = x.axes[position].length
    if not isinstance(length, int):
        problem = f"axis {x.axes[position]!r} of {x.axes} must have a known length"
        raise AxesError(explain(function, problem, (x,)))
    return length


def flip(x: TensorLike, axis: AxisKeys | None = None) -> TensorOp:
    """Return the tensor with its elements reversed along one or more axes, by default along all."""
    op: TensorOp = as_op(x)
    for place in range(op.rank) if axis is None else op.axes.positions(axis):
        length = op.axes[place].length
        op = _part(op, place, length - 1, length, -1)
    return op


def roll(
    x: TensorLike, shift: SupportsIndex | Sequence[SupportsIndex], axis: AxisKeys | None = None
) -> TensorOp:
    """Return the tensor shifted circularly by `shift` elements along an axis.

    With several axes, `shift` is one number for all, or one for each. Without an axis the flattened
    tensor is shifted. Along an axis of unknown length, a call with an axis shorter than the shift
    raises AxesError.
    """
    op: TensorOp = as_op(x)
    if axis is None:
        return cast_axes(roll(flatten(op), shift, 0), op.axes)
    places = op.axes.positions(axis)
    shifts = [shift] * len(places) if hasattr(shift, "__index__") else shift
    if not isinstance(shifts, Sequence) or len(shifts) != len(places):
        problem = f"shift must be one number, or one for each of {len(places)} axes, not {shift!r}"
        raise ArgumentError(explain("roll", problem, (op,)))
    for place, count in zip(places, shifts, strict=True):
        op = _rolled(op, place, checked_integer("roll", "shift", count))
    return op


def _rolled(x: TensorOp, place: int, count: int) -> TensorOp:
    length = x.axes[place].length
    if isinstance(length, int):
        count = count % length if length else 0
    if count == 0:
        return x
    middle = length - count if count > 0 else -count
    tail, head = _part(x, place, middle, length - middle), _part(x, place, 0, middle)
    return ConcatOp(tail, head, position=place)


def tile(x: TensorLike, repetitions: SupportsIndex | Sequence[SupportsIndex]) -> TensorOp:
    """Return the tensor tiled: repeated as a whole, the given number of times along each axis.

    Fewer numbers than axes apply to the last axes. More add leading axes, which is an error for
    named tensors.
    """
    x = as_op(x)
    given = (repetitions,) if hasattr(repetitions, "__index__") else repetitions
    if not isinstance(given, Sequence) or isinstance(given, str):
        problem = f"repetitions must be one number, or one for each axis, not {repetitions!r}"
        raise ArgumentError(explain("tile", problem, (x,)))
    counts = [checked_integer("tile", "a repetition", count, 0) for count in given]
    if x.axes.is_named and len(counts) > x.rank:
        problem = f"{len(counts)} repetitions add axes without names to {x.axes}"
        raise AxesError(explain("tile", problem, (x,)))
    rank = max(len(counts), x.rank)
    counts = [1] * (rank - len(counts)) + counts
    lengths = [1] * (rank - x.rank) + list(x.axes.lengths)
    if all(count == 1 for count in counts):
        return cast_axes(x, x.axes if rank == x.rank else lengths)
    pairs = make_axes(size for pair in zip(counts, lengths, strict=True) for size in pair)
    dims = tuple(range(2 * (rank - x.rank) + 1, 2 * rank, 2))
    repeated = BroadcastOp(without_names(x), target_axes=pairs, dims=dims)
    sizes = [count * length for count, length in zip(counts, lengths, strict=True)]
    names = x.axes.names if x.axes.is_named else (None,) * rank
    return cast_axes(repeated, Axes(map(Axis, sizes, names)))


def repeat(
    x: TensorLike,
    repeats: SupportsIndex | Sequence[SupportsIndex] | Array,
    axis: AxisKey | None = None,
) -> TensorOp:
    """Return the tensor with each element repeated along an axis.

    `repeats` is one number, or a list with one for each element. Without an axis the tensor is
    flattened.
    """
    x = as_op(x)
    if axis is None:
        return repeat(cast_axes(x, make_axes((x.axes.size,))), repeats, 0)
    place = x.axes.position(axis)
    if not hasattr(repeats, "__index__"):
        return _repeated_each(x, repeats, place)
    count = checked_integer("repeat", "repeats", repeats, 0)
    lengths = x.axes.lengths
    pairs = make_axes((*lengths[: place + 1], count, *lengths[place + 1 :]))
    dims = tuple(d if d <= place else d + 1 for d in range(x.rank))
    spread = BroadcastOp(without_names(x), target_axes=pairs, dims=dims)
    return cast_axes(spread, with_length(x.axes, place, lengths[place] * count))


def _repeated_each(x: TensorOp, repeats: Sequence[SupportsIndex] | Array, place: int) -> TensorOp:
    length = _known_length("repeat", x, place)
    if not isinstance(repeats, Sequence | np.ndarray) or len(repeats) != length:
        problem = f"repeats must be one number, or a list of {length}, not {repeats!r}"
        raise ArgumentError(explain("repeat", problem, (x,)))
    counts = [checked_integer("repeat", "repeats", count, 0) for count in repeats]
    index = constant(np.repeat(np.arange(length), counts))
    taken = take(without_names(x), index, place)
    return cast_axes(taken, with_length(x.axes, place, sum(counts)))


def squeeze(x: TensorLike, axis: AxisKeys | None = None) -> TensorOp:
    """Return the tensor without axes of length 1: the given ones, or all."""
    x = as_op(x)
    if axis is None:
        places = tuple(place for place, each in enumerate(x.axes) if each.length == 1)
    else:
        places = x.axes.positions(axis)
    for place in places:
        if x.axes[place].length != 1:
            problem = f"only axes of length 1 can be removed, not {x.axes[place]!r} of {x.axes}"
            raise AxesError(explain("squeeze", problem, (x,)))
    return cast_axes(x, Axes(each for place, each in enumerate(x.axes) if place not in places))


def unsqueeze(x: TensorLike, axis: SupportsIndex | Iterable[SupportsIndex]) -> TensorOp:
    """Return the tensor with new axes of length 1, at given positions of the result.

    Named tensors need names for new axes: use `expand_dims`.
    """
    x = as_op(x)
    given = tuple(axis) if isinstance(axis, Iterable) else (axis,)
    if x.axes.is_named and given:
        problem = f"a new axis of {x.axes} needs a name: use expand_dims(x, make_axis(1, name))"
        raise AxesError(explain("unsqueeze", problem, (x,)))
    rank = x.rank + len(given)
    frame = make_axes((1,) * rank)
    places = frame.positions(checked_integer("unsqueeze", "axis", place) for place in given)
    lengths = iter(x.axes.lengths)
    return cast_axes(x, make_axes(1 if p in places else next(lengths) for p in range(rank)))


def moveaxis(x: TensorLike, source: AxisKeys, destination: AxisKeys) -> TensorOp:
    """Return the tensor with one or more axes moved; the others keep their order."""
    x = as_op(x)
    sources, goals = x.axes.positions(source), x.axes.positions(destination)
    if len(sources) != len(goals):
        problem = f"{len(sources)} axes cannot be moved to {len(goals)} places"
        raise AxesError(explain("moveaxis", problem, (x,)))
    order = [place for place in range(x.rank) if place not in sources]
    for goal, place in sorted(zip(goals, sources, strict=True)):
        order.insert(goal, place)
    return transpose(x, order)


def swapaxes(x: TensorLike, first: AxisKey, second: AxisKey) -> TensorOp:
    """Return the tensor with two axes swapped."""
    x = as_op(x)
    order = list(range(x.rank))
    a, b = x.axes.position(first), x.axes.position(second)
    order[a], order[b] = b, a
    return transpose(x, order)


def broadcast_arrays(*tensors: Any) -> list[TensorOp]:
    """Return tensors broadcast to common axes, aligned by name or from the right."""
    ops = as_ops(tensors)
    if not ops:
        return []
    try:
        axes = reduce(broadcast_axes, (op.axes for op in ops))
    except AxesError as error:
        raise AxesError(explain("broadcast_arrays", error.problem, ops)) from None
    return [broadcast(op, axes) for op in ops]


def split(
    x: TensorLike, parts: SupportsIndex | Sequence[SupportsIndex], axis: AxisKey = 0
) -> list[TensorOp]:
    """Return the tensor split along an axis, into equal parts or parts of given lengths.

    A list gives the lengths of the parts, which must add up to the length of the axis; in NumPy it
    gives the split points.
    """
    x = as_op(x)
    place = x.axes.position(axis)
    length = _known_length("split", x, place)
    if hasattr(parts, "__index__"):
        count = checked_integer("split", "parts", parts, 1)
        if length % count:
            problem = (
                f"{x.axes[place]!r} of {x.axes} does not divide into {count} equal parts: give a "
                "list of lengths, or use chunk"
            )
            raise AxesError(explain("split", problem, (x,)))
        lengths = [length // count] * count
    elif isinstance(parts, Sequence) and not isinstance(parts, str):
        lengths = [checked_integer("split", "a length", part, 0) for part in parts]
    else:
        problem = f"parts must be a number, or a list of lengths, not {parts!r}"
        raise ArgumentError(explain("split", problem, (x,)))
    if sum(lengths) != length:
        problem = f"parts of lengths {lengths} do not add up to {x.axes[place]!r} of {x.axes}"
        raise AxesError(explain("split", problem, (x,)))
    return _parts(x, place, lengths)


def chunk(x: TensorLike, count: int, axis: AxisKey = 0) -> list[TensorOp]:
    """Return at most `count` parts of equal length along an axis; the last may be shorter.

    As in PyTorch, a part has the length of the axis divided by `count`, rounded up.
    """
    x = as_op(x)
    place = x.axes.position(axis)
    length = _known_length("chunk", x, place)
    size = -(-length // checked_integer("chunk", "count", count, 1))
    starts = range(0, length, size) if size else [0]
    return _parts(x, place, [min(size, length - start) for start in starts])


def _parts(x: TensorOp, place: int, lengths: list[int]) -> list[TensorOp]:
    starts = [sum(lengths[:number]) for number in range(len(lengths))]
    return [_part(x, place, *bounds) for bounds in zip(starts, lengths, strict=True)]


def unstack(x: TensorLike, axis: AxisKey = 0) -> list[TensorOp]:
    """Return the slices at each index of an axis, without that axis."""
    x = as_op(x)
    place = x.axes.position(axis)
    return [slice_along_axis(x, place, i) for i in range(_known_length("unstack", x, place))]


def diff(
    x: TensorLike,
    *,
    axis: AxisKey = -1,
    n: int = 1,
    prepend: TensorLike | None = None,
    append: TensorLike | None = None,
) -> TensorOp:
    """Return the n-th differences of neighbors along an axis: each number subtracted from the next.

    `prepend` and `append` are concatenated with the tensor before, along the axis. Bool gives
    int32.
    """
    op = as_op(x)
    place = explained("diff", (op,), op.axes.position, axis)
    order = checked_integer("diff", "n", n, 0)
    ends = [each for each in (prepend, op, append) if each is not None]
    op = concat(ends, place) if len(ends) > 1 else op
    for _ in range(order):
        length = op.axes[place].length - 1
        if length == -1:
            break
        op = subtract(_part(op, place, 1, length), _part(op, place, 0, length))
    return op


def tril(x: TensorLike, k: int = 0) -> TensorOp:
    """Return the lower triangle of matrices: zeros above the k-th diagonal.

    The matrices are along the last two axes. Diagonal 0 is the main one, positive ones are above.
    """
    x = as_op(x)
    return where(below_diagonal(_last_two("tril", x), "tril", k), x, constant(0, dtype=x.dtype))


def triu(x: TensorLike, k: int = 0) -> TensorOp:
    """Return the upper triangle of matrices: zeros below the k-th diagonal.

    The matrices are along the last two axes. Diagonal 0 is the main one, positive ones are above.
    """
    x = as_op(x)
    below = below_diagonal(_last_two("triu", x), "triu", checked_integer("triu", "k", k) - 1)
    return where(below, constant(0, dtype=x.dtype), x)


def _last_two(function: str, x: TensorOp) -> Axes:
    if x.rank < 2:
        raise AxesError(explain(function, f"a matrix needs two axes, not {x.axes}", (x,)))
    return x.axes[-2:]


def diag(x: TensorLike, k: int = 0) -> TensorOp:
    """Return a matrix with a vector on its k-th diagonal, or the k-th diagonal of a matrix.

    The new matrix is square, positional, and zero elsewhere.
    """
    x = as_op(x)
    k = checked_integer("diag", "k", k)
    if x.rank == 2:
        return diagonal(x, k)
    if x.rank != 1 or x.axes.is_named:
        problem = f"diag takes a vector without a name, or a matrix, not {x.axes}"
        raise AxesError(explain("diag", problem, (x,)))
    length = _known_length("diag", x, 0)
    size = length + abs(k)
    start = k if k >= 0 else -k * size
    bounds = ((start, length, size + 1),)
    flat = UpdateSliceOp(zeros((size * size,), x.dtype), x, bounds=bounds)
    return cast_axes(flat, make_axes((size, size)))
