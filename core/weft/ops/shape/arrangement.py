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
    """Return the tensor with its elements reversed along axes.

    Parameters
    ----------
    x
        The operand.
    axis
        One or more axes: positions, axes or names; by default all.

    Returns
    -------
    TensorOp
        A tensor of the same axes.

    Raises
    ------
    AxesError
        If the operand has no such axis.

    Examples
    --------
    >>> x = np.array([[1, 2, 3], [4, 5, 6]])
    >>> weft.jit(lambda x: weft.flip(x, 1))(x)
    array([[3, 2, 1],
           [6, 5, 4]])
    """
    op: TensorOp = as_op(x)
    for place in range(op.rank) if axis is None else op.axes.positions(axis):
        length = op.axes[place].length
        op = _part(op, place, length - 1, length, -1)
    return op


def roll(
    x: TensorLike, shift: SupportsIndex | Sequence[SupportsIndex], axis: AxisKeys | None = None
) -> TensorOp:
    """Return the tensor shifted circularly along axes.

    Parameters
    ----------
    x
        The operand.
    shift
        By how many elements: one number for all axes, or one for each. Along an axis of unknown
        length, a call with an axis shorter than the shift raises AxesError.
    axis
        One or more axes: positions, axes or names. By default the flattened tensor is shifted.

    Returns
    -------
    TensorOp
        A tensor of the same axes.

    Raises
    ------
    AxesError
        If the operand has no such axis.
    ArgumentError
        If the shift is not one integer, or one for each axis.

    Examples
    --------
    >>> weft.jit(lambda x: weft.roll(x, 1))(np.array([1, 2, 3, 4]))
    array([4, 1, 2, 3])
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
    """Return the tensor repeated as a whole along its axes.

    Parameters
    ----------
    x
        The operand.
    repetitions
        How many times along each axis. Fewer numbers than axes apply to the last axes; more add
        leading axes.

    Returns
    -------
    TensorOp
        A tensor with each axis as many times longer.

    Raises
    ------
    AxesError
        If numbers add axes to a named tensor.
    ArgumentError
        If a number is not an integer, or is negative.

    Examples
    --------
    >>> weft.jit(lambda x: weft.tile(x, 2))(np.array([1, 2, 3]))
    array([1, 2, 3, 1, 2, 3])
    >>> weft.jit(lambda x: weft.tile(x, (2, 1)))(np.array([1, 2, 3]))
    array([[1, 2, 3],
           [1, 2, 3]])
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

    Parameters
    ----------
    x
        The operand.
    repeats
        How many times: one number, or a list with one for each element.
    axis
        The axis: a position, an axis or its name. By default the tensor is flattened.

    Returns
    -------
    TensorOp
        A tensor whose axis is longer.

    Raises
    ------
    AxesError
        If the operand has no such axis, or a list is given for an axis of unknown length.
    ArgumentError
        If the list has another length, or a number is not an integer, or is negative.

    Examples
    --------
    >>> weft.jit(lambda x: weft.repeat(x, 2))(np.array([1, 2, 3]))
    array([1, 1, 2, 2, 3, 3])
    >>> weft.jit(lambda x: weft.repeat(x, [0, 1, 3]))(np.array([1, 2, 3]))
    array([2, 3, 3, 3])
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
    """Return the tensor without axes of length 1.

    Parameters
    ----------
    x
        The operand.
    axis
        The axes to remove: positions, axes or names; by default all of length 1.

    Returns
    -------
    TensorOp
        A tensor of the other axes.

    Raises
    ------
    AxesError
        If the operand has no such axis, or its length is not 1.

    Examples
    --------
    >>> weft.jit(weft.squeeze)(np.ones((1, 3, 1))).shape
    (3,)
    >>> weft.jit(lambda x: weft.squeeze(x, 0))(np.ones((1, 3, 1))).shape
    (3, 1)
    """
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
    """Return the tensor with new axes of length 1.

    Parameters
    ----------
    x
        The operand. New axes of a named tensor need names: use `expand_dims`.
    axis
        One or more positions of new axes in the result.

    Returns
    -------
    TensorOp
        A tensor with more axes.

    Raises
    ------
    AxesError
        If the operand has named axes, or there is no such position.

    Examples
    --------
    >>> weft.jit(lambda x: weft.unsqueeze(x, (0, -1)))(np.ones(3)).shape
    (1, 3, 1)
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
    """Return the tensor with axes moved; the others keep their order.

    Parameters
    ----------
    x
        The operand.
    source
        One or more axes: positions, axes or names.
    destination
        As many positions in the result.

    Returns
    -------
    TensorOp
        A tensor of the permuted axes.

    Raises
    ------
    AxesError
        If the operand has no such axis, or the numbers of axes differ.

    Examples
    --------
    >>> weft.jit(lambda x: weft.moveaxis(x, 0, -1))(np.ones((2, 3, 4))).shape
    (3, 4, 2)
    """
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
    """Return the tensor with two axes swapped.

    Parameters
    ----------
    x
        The operand.
    first, second
        The axes: positions, axes or names.

    Returns
    -------
    TensorOp
        A tensor of the permuted axes.

    Raises
    ------
    AxesError
        If the operand has no such axis.

    Examples
    --------
    >>> weft.jit(lambda x: weft.swapaxes(x, 0, -1))(np.ones((2, 3, 4))).shape
    (4, 3, 2)
    """
    x = as_op(x)
    order = list(range(x.rank))
    a, b = x.axes.position(first), x.axes.position(second)
    order[a], order[b] = b, a
    return transpose(x, order)


def broadcast_arrays(*tensors: Any) -> list[TensorOp]:
    """Return tensors broadcast to common axes, aligned by name or from the right.

    Raises
    ------
    AxesError
        If they do not broadcast.

    Examples
    --------
    >>> weft.jit(weft.broadcast_arrays)(np.array([1, 2, 3]), np.array([[10], [20]]))
    [array([[1, 2, 3],
           [1, 2, 3]]), array([[10, 10, 10],
           [20, 20, 20]])]
    """
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
    """Return the tensor split along an axis.

    Parameters
    ----------
    x
        The operand.
    parts
        The number of equal parts, or a list of the lengths of the parts; NumPy takes the split
        points there.
    axis
        The axis: a position, an axis or its name.

    Returns
    -------
    list of TensorOp
        The parts.

    Raises
    ------
    AxesError
        If the operand has no such axis, its length is unknown, or the parts do not add up to it.
    ArgumentError
        If the parts are neither a number nor a list of integers.

    Examples
    --------
    >>> weft.jit(lambda x: weft.split(x, 2))(np.arange(4))
    [array([0, 1]), array([2, 3])]
    >>> weft.jit(lambda x: weft.split(x, [1, 3]))(np.arange(4))
    [array([0]), array([1, 2, 3])]
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
    """Return the tensor split along an axis into equal parts; the last may be shorter.

    As in PyTorch, a part has the length of the axis divided by `count`, rounded up.

    Parameters
    ----------
    x
        The operand.
    count
        The greatest number of parts.
    axis
        The axis: a position, an axis or its name.

    Returns
    -------
    list of TensorOp
        The parts.

    Raises
    ------
    AxesError
        If the operand has no such axis, or its length is unknown.
    ArgumentError
        If the number is not an integer, or is less than 1.

    Examples
    --------
    >>> weft.jit(lambda x: weft.chunk(x, 2))(np.arange(5))
    [array([0, 1, 2]), array([3, 4])]
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
    """Return the slices at each index of an axis, without that axis.

    Parameters
    ----------
    x
        The operand.
    axis
        The axis: a position, an axis or its name.

    Returns
    -------
    list of TensorOp
        The slices.

    Raises
    ------
    AxesError
        If the operand has no such axis, or its length is unknown.

    Examples
    --------
    >>> weft.jit(weft.unstack)(np.array([[1, 2], [3, 4]]))
    [array([1, 2]), array([3, 4])]
    """
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
    """Return the differences of neighbors along an axis: each number subtracted from the next.

    Parameters
    ----------
    x
        The operand.
    axis
        The axis: a position, an axis or its name; by default the last.
    n
        How many times this is done.
    prepend, append
        What is concatenated with the tensor before, along the axis.

    Returns
    -------
    TensorOp
        A tensor whose axis is shorter by `n`, but not below 0. Bool gives int32.

    Raises
    ------
    AxesError
        If the operand has no such axis.
    ArgumentError
        If `n` is not an integer, or is negative.

    Examples
    --------
    >>> weft.jit(weft.diff)(np.array([1, 4, 9, 16]))
    array([3, 5, 7])
    >>> weft.jit(lambda x: weft.diff(x, n=2))(np.array([1, 4, 9, 16]))
    array([2, 2])
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
    """Return the lower triangle of matrices: zeros above a diagonal.

    Parameters
    ----------
    x
        The operand, with matrices along the last two axes.
    k
        Which diagonal: 0 is the main one, positive ones are above.

    Returns
    -------
    TensorOp
        A tensor of the same axes.

    Raises
    ------
    AxesError
        If the operand has fewer than two axes.
    ArgumentError
        If `k` is not an integer.

    Examples
    --------
    >>> weft.jit(weft.tril)(np.array([[1, 2], [3, 4]]))
    array([[1, 0],
           [3, 4]])
    """
    x = as_op(x)
    return where(below_diagonal(_last_two("tril", x), "tril", k), x, constant(0, dtype=x.dtype))


def triu(x: TensorLike, k: int = 0) -> TensorOp:
    """Return the upper triangle of matrices: zeros below a diagonal.

    Parameters
    ----------
    x
        The operand, with matrices along the last two axes.
    k
        Which diagonal: 0 is the main one, positive ones are above.

    Returns
    -------
    TensorOp
        A tensor of the same axes.

    Raises
    ------
    AxesError
        If the operand has fewer than two axes.
    ArgumentError
        If `k` is not an integer.

    Examples
    --------
    >>> weft.jit(weft.triu)(np.array([[1, 2], [3, 4]]))
    array([[1, 2],
           [0, 4]])
    """
    x = as_op(x)
    below = below_diagonal(_last_two("triu", x), "triu", checked_integer("triu", "k", k) - 1)
    return where(below, constant(0, dtype=x.dtype), x)


def _last_two(function: str, x: TensorOp) -> Axes:
    if x.rank < 2:
        raise AxesError(explain(function, f"a matrix needs two axes, not {x.axes}", (x,)))
    return x.axes[-2:]


def diag(x: TensorLike, k: int = 0) -> TensorOp:
    """Return a matrix with a vector on a diagonal, or a diagonal of a matrix.

    Parameters
    ----------
    x
        A vector or a matrix, without names.
    k
        Which diagonal: 0 is the main one, positive ones are above.

    Returns
    -------
    TensorOp
        A matrix that is square, positional, and zero elsewhere; or a vector.

    Raises
    ------
    AxesError
        If the operand is neither, or a vector of unknown length.
    ArgumentError
        If `k` is not an integer.

    Examples
    --------
    >>> weft.jit(weft.diag)(np.array([1, 2]))
    array([[1, 0],
           [0, 2]])
    >>> weft.jit(lambda x: weft.diag(x, 1))(np.array([[1, 2], [3, 4]]))
    array([2])
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
