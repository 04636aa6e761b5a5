"""Gather and scatter with indices into several axes."""

from __future__ import annotations

from functools import reduce
from typing import Any

from weft.errors import AxesError
from weft.ir import dtypes
from weft.ir.axes import Axes, Axis, AxisKey, broadcast_axes, make_axes
from weft.ir.op import explain
from weft.ir.storage import as_op, constant
from weft.ir.tensor import TensorLike, TensorOp, operators
from weft.ops.arguments import checked_integer
from weft.ops.indexing.gathering import (
    ScatterOp,
    TakeAlongAxisOp,
    TakeOp,
    as_indices,
    as_updates,
    combined,
    offsets,
    scatter_along,
    taken_axes,
    with_length,
    without_names,
)
from weft.ops.indexing.slicing import SliceOp, is_index_tensor, one_for_each_axis, tensor_slice
from weft.ops.pointwise.elementwise import add, multiply
from weft.ops.shape.movement import IotaOp, broadcast, cast_axes, size_of, transpose

__all__ = [
    "gather_nd",
    "put_along_axis",
    "scatter_along_axis",
    "scatter_nd",
    "take_along_axis",
]


def take_along_axis(x: TensorLike, indices: TensorLike, axis: AxisKey = -1) -> TensorOp:
    """Return the elements of x at an index for each element of the result, along an axis.

    Parameters
    ----------
    x
        The operand.
    indices
        Integers with the axes of x, except for the length of the indexed one; the other axes are
        broadcast. Named indices may lack the axis: ``take_along_axis(logits, labels, "C")`` is one
        logit for each label.
    axis
        The axis: a position, an axis or its name; by default the last.

    Returns
    -------
    TensorOp
        A tensor with the axes of the indices and of x. It lacks the indexed axis if the indices do.

    Raises
    ------
    AxesError
        If the operand has no such axis, or the others do not broadcast.
    DTypeError
        If the indices are not integers.
    IndexOutOfRange
        If an index is out of range: at the call, or here if it is constant.

    Examples
    --------
    >>> x = np.array([[10, 20, 30], [40, 50, 60]])
    >>> weft.jit(weft.take_along_axis)(x, np.array([[2, 0], [1, 1]]))
    array([[30, 10],
           [50, 50]])
    """
    x, indices, position, is_kept = _along("take_along_axis", x, indices, axis)
    result = TakeAlongAxisOp(x, indices, position=position)
    return result if is_kept else _without(result, position)


def _without(x: TensorOp, position: int) -> TensorOp:
    return cast_axes(x, Axes((*x.axes[:position], *x.axes[position + 1 :])))


def _along(
    function: str, x: TensorLike, indices: TensorLike, axis: AxisKey
) -> tuple[TensorOp, TensorOp, int, bool]:
    """Return broadcast operands, the position of the axis, and whether the indices had it."""
    x, indices = as_op(x), as_indices(indices)
    position = x.axes.position(axis)
    own = x.axes[position]
    is_kept = own.name is None or own.name in indices.axes.names
    try:
        if not is_kept:
            indices = cast_axes(indices, Axes((Axis(1, own.name), *indices.axes)))
        if own.name is None and (indices.rank != x.rank or indices.axes.is_named):
            raise AxesError(f"{indices.axes} and {x.axes} must have as many axes, without names")
        key = position if own.name is None else own.name
        count = indices.axes[indices.axes.position(key)].length
        frame = broadcast_axes(
            with_length(x.axes, position, 1),
            with_length(indices.axes, indices.axes.position(key), 1),
        )
        place = frame.position(key)
        x = broadcast(x, with_length(frame, place, own.length))
        indices = broadcast(indices, with_length(frame, place, count))
    except AxesError as error:
        raise AxesError(explain(function, error.problem, (x, indices))) from None
    return x, indices, place, is_kept


def scatter_along_axis(
    x: TensorLike,
    indices: TensorLike,
    updates: TensorLike,
    axis: AxisKey = -1,
    reduction: str = "set",
    include_self: bool = True,
) -> TensorOp:
    """Return x with updates at an index for each update, along an axis.

    It is the dual of `take_along_axis`.

    Parameters
    ----------
    x
        The operand.
    indices
        Integers with the axes of x, except for the length of the indexed one, or broadcast to
        these.
    updates
        The updates, broadcast to the axes of the indices, and cast to the dtype of x.
    axis
        The axis: a position, an axis or its name; by default the last.
    reduction
        What an update does: ``set`` replaces the element, ``add``, ``mul``, ``max`` and ``min``
        combine with it. ``mean`` is their mean, for integers rounded down.
    include_self
        Whether the element itself is combined with its updates; otherwise only they are.

    Returns
    -------
    TensorOp
        A tensor like x.

    Raises
    ------
    AxesError
        If the operand has no such axis, or indices or updates do not broadcast.
    ArgumentError
        If there is no such reduction.
    DTypeError
        If the indices are not integers.
    IndexOutOfRange
        If an index is out of range: at the call, or here if it is constant.

    Examples
    --------
    >>> x = np.zeros((2, 3), "int64")
    >>> weft.jit(weft.scatter_along_axis)(x, np.array([[2], [0]]), np.array([[7], [8]]))
    array([[0, 0, 7],
           [8, 0, 0]])
    """
    x = as_op(x)
    wide, indices, position, _ = _along("scatter_along_axis", x, indices, axis)
    if wide.axes != x.axes:
        problem = f"the indices have axes that {x.axes} lacks: they would update {wide.axes}"
        raise AxesError(explain("scatter_along_axis", problem, (x, indices)))
    updates = as_updates("scatter_along_axis", updates, x, indices.axes)

    def put(into: TensorOp, values: TensorOp, how: str) -> TensorOp:
        return scatter_along(into, indices, values, position, how)

    return combined("scatter_along_axis", put, x, updates, reduction, include_self)


put_along_axis = scatter_along_axis


def gather_nd(x: TensorLike, indices: TensorLike, batch_dims: int = 0) -> TensorOp:
    """Return the elements or slices of x at rows of indices.

    Parameters
    ----------
    x
        The operand.
    indices
        Integers, with rows along the last axis. A row of length m indexes m axes: the first ones,
        or those after the shared ones.
    batch_dims
        How many axes in front x and the indices share.

    Returns
    -------
    TensorOp
        A tensor with the axes of the indices without the last, then the remaining axes of x.

    Raises
    ------
    AxesError
        If the last axis of the indices has no known length, rows are longer than x has axes, or the
        shared axes differ.
    ArgumentError
        If `batch_dims` is not an integer, or is negative.
    DTypeError
        If the indices are not integers.
    IndexOutOfRange
        If an index is out of range: at the call, or here if it is constant.

    Examples
    --------
    >>> x = np.array([[1, 2], [3, 4]])
    >>> weft.jit(weft.gather_nd)(x, np.array([[0, 0], [1, 0]]))
    array([1, 3])
    >>> weft.jit(weft.gather_nd)(x, np.array([[1]]))
    array([[3, 4]])
    """
    x, indices = as_op(x), as_indices(indices)
    count = _row_length("gather_nd", x, indices, batch_dims)
    head = batch_dims + count
    linear = _linear_rows(x.axes, indices, batch_dims, count)
    rows = cast_axes(x, make_axes((x.axes[:head].size, *x.axes[head:].lengths)))
    taken = TakeOp(rows, without_names(linear), position=0)
    return cast_axes(taken, taken_axes(x.axes, linear.axes, 0, head))


def _row_length(function: str, x: TensorOp, indices: TensorOp, batch_dims: int) -> int:
    checked_integer(function, "batch_dims", batch_dims, 0)
    length = indices.axes[-1].length if indices.rank else None
    problem = None
    if not isinstance(length, int):
        problem = f"the last axis of the indices {indices.axes} must exist and have a known length"
    elif batch_dims >= indices.rank:
        problem = f"batch_dims must be less than {indices.rank}, the rank of the indices"
    elif batch_dims + length > x.rank:
        problem = f"rows of {length} indices, with {batch_dims} axes before, exceed {x.axes}"
    elif x.axes[:batch_dims] != indices.axes[:batch_dims]:
        problem = f"the first {batch_dims} axes of {x.axes} and {indices.axes} differ"
    if problem is not None:
        raise AxesError(explain(function, problem, (x, indices)))
    assert isinstance(length, int)
    return length


def _linear_rows(axes: Axes, indices: TensorOp, batch_dims: int, count: int) -> TensorOp:
    """Return the flat index of each index row, over the indexed axes."""
    target = indices.axes[:-1]
    head = axes[: batch_dims + count]
    found: TensorOp = broadcast(constant(0, dtype=dtypes.int64), target)
    for place in range(batch_dims):
        number = IotaOp(target_axes=target, target_dtype=dtypes.int64, position=place)
        found = add(found, multiply(number, size_of(head[place + 1 :], dtypes.int64)))
    for column in range(count):
        index = _column(indices, column)
        place = batch_dims + column
        found = add(found, cast_axes(offsets(axes, place, index, head[place + 1 :]), target))
    return found


def _column(indices: TensorOp, column: int) -> TensorOp:
    """Return one column of the index rows, positional; a constant if the indices are."""
    axes = make_axes(indices.axes[:-1].lengths)
    if indices.is_constant:
        return constant(indices.const[..., column], axes)
    bounds = (*((0, axis.length, 1) for axis in axes), (column, 1, 1))
    return cast_axes(SliceOp(indices, bounds=bounds), axes)


def scatter_nd(
    x: TensorLike,
    indices: TensorLike,
    updates: TensorLike,
    reduction: str = "set",
    include_self: bool = True,
) -> TensorOp:
    """Return x with updates at rows of indices; the dual of `gather_nd`.

    Parameters
    ----------
    x
        The operand.
    indices
        Integers, with rows along the last axis. A row of length m indexes the first m axes.
    updates
        The updates, broadcast to what `gather_nd` returns for the indices, and cast to the dtype of
        x.
    reduction
        What an update does: ``set`` replaces the element, ``add``, ``mul``, ``max`` and ``min``
        combine with it. ``mean`` is their mean, for integers rounded down.
    include_self
        Whether the element itself is combined with its updates; otherwise only they are.

    Returns
    -------
    TensorOp
        A tensor like x.

    Raises
    ------
    AxesError
        If the last axis of the indices has no known length, rows are longer than x has axes, or the
        updates do not broadcast.
    ArgumentError
        If there is no such reduction.
    DTypeError
        If the indices are not integers.
    IndexOutOfRange
        If an index is out of range: at the call, or here if it is constant.

    Examples
    --------
    >>> x = np.zeros((2, 2), "int64")
    >>> weft.jit(weft.scatter_nd)(x, np.array([[0, 1], [1, 0]]), np.array([7, 8]))
    array([[0, 7],
           [8, 0]])
    """
    x, indices = as_op(x), as_indices(indices)
    count = _row_length("scatter_nd", x, indices, 0)
    linear = _linear_rows(x.axes, indices, 0, count)
    updates = as_updates("scatter_nd", updates, x, taken_axes(x.axes, linear.axes, 0, count))
    rows = cast_axes(x, make_axes((x.axes[:count].size, *x.axes[count:].lengths)))
    places = without_names(linear)

    def put(into: TensorOp, values: TensorOp, how: str) -> TensorOp:
        return ScatterOp(into, places, values, position=0, reduction=how)

    result = combined("scatter_nd", put, rows, without_names(updates), reduction, include_self)
    return cast_axes(result, x.axes)


def take_at(x: TensorOp, items: tuple[Any, ...]) -> TensorOp:
    """Return ``x[items]`` for items with index tensors, as in NumPy's advanced indexing.

    Index tensors are broadcast together. The result has their axes at the first of them, or at the
    front if a slice separates them from each other or from an integer.
    """
    items = one_for_each_axis(x, items)
    tensors = [place for place, item in enumerate(items) if is_index_tensor(item)]
    slices = [place for place, item in enumerate(items) if isinstance(item, slice)]
    rest = tensor_slice(
        x, [slice(None) if place in tensors else item for place, item in enumerate(items)]
    )
    kept = sorted((*tensors, *slices))
    others = [kept.index(place) for place in slices]
    counted = [kept.index(place) for place in tensors]
    places = [place for place in range(x.rank) if place not in slices]
    is_one_block = places[-1] - places[0] < len(places)
    at = len([place for place in slices if place < places[0]]) if is_one_block else 0
    rest = transpose(rest, [*others[:at], *counted, *others[at:]])
    indices = [as_indices(items[place]) for place in tensors]
    return _take_block(rest, at, indices)


def _take_block(x: TensorOp, at: int, indices: list[TensorOp]) -> TensorOp:
    """Return the elements at index tensors for the axes from a position on."""
    if len(indices) == 1:
        return TakeOp(x, indices[0], position=at)
    axes = reduce(broadcast_axes, (index.axes for index in indices))
    end = at + len(indices)
    linear: Any = None
    for place, index in enumerate(indices, at):
        found = offsets(
            x.axes, place, without_names(broadcast(index, axes)), x.axes[place + 1 : end]
        )
        linear = found if linear is None else add(linear, found)
    lengths = x.axes.lengths
    rows = cast_axes(x, make_axes((*lengths[:at], x.axes[at:end].size, *lengths[end:])))
    taken = TakeOp(rows, linear, position=at)
    return cast_axes(taken, taken_axes(x.axes, axes, at, len(indices)))


operators["take_at"] = take_at
