"""Basic slicing, and updates of slices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import numpy as np

from weft.errors import ArgumentError, AxesError
from weft.ir.axes import Axes, AxesLike, Axis, AxisKey, make_axes
from weft.ir.description import TensorDescription
from weft.ir.dtypes import Array, DType
from weft.ir.guards import as_integer
from weft.ir.lengths import Length, Size, floor_divide
from weft.ir.storage import as_op
from weft.ir.tensor import TensorLike, TensorOp, operators
from weft.ops.shape.movement import broadcast, cast_axes, with_names, zeros_like
from weft.support.backports import override

__all__ = [
    "SliceOp",
    "UpdateSliceOp",
    "slice_along_axis",
    "tensor_slice",
    "update_slice",
]

Bounds = tuple[tuple[Size, Size, int], ...]


class SliceOp(TensorOp):
    """A strided slice along each axis.

    Attributes
    ----------
    bounds
        For each axis ``(start, length, step)``: elements ``start + i * step`` for ``i < length``.
    """

    bounds: Bounds

    @override
    def infer(self) -> tuple[Axes, DType]:
        (x,) = self.args
        if len(self.bounds) != x.rank:
            raise AxesError(f"{len(self.bounds)} slices for the {x.rank} axes {x.axes}")
        return _sliced_axes(x.axes, self.bounds), x.dtype

    @override
    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        return (UpdateSliceOp(zeros_like(x), delta, bounds=self.bounds),)

    @override
    def reference(self, x: Array) -> Any:
        return x[python_slices(self.bounds)]

    @override
    def view(self, operand: TensorDescription) -> TensorDescription:
        return operand.slice(self.bounds)


class UpdateSliceOp(TensorOp):
    """The first operand with a slice of it replaced by the second.

    Attributes
    ----------
    bounds
        The slice, as in `SliceOp`.
    """

    bounds: Bounds

    def infer(self) -> tuple[Axes, DType]:
        """Check that the second operand has the axes of the slice."""
        x, value = self.args
        wanted = _sliced_axes(x.axes, self.bounds)
        if value.axes != wanted or value.dtype != x.dtype:
            raise AxesError(
                f"a slice {x.dtype} {wanted} cannot be set to {value.dtype} {value.axes}"
            )
        return x.axes, x.dtype

    def may_overwrite(self, index: int) -> bool:
        """Allow the first operand: the slice can be written into it."""
        return index == 0

    def generate_adjoints(self, delta: TensorOp, x: TensorOp, value: TensorOp) -> Any:
        """Return the adjoint with zeros in the slice, and the slice of the adjoint."""
        zeros = zeros_like(value)
        return UpdateSliceOp(delta, zeros, bounds=self.bounds), SliceOp(delta, bounds=self.bounds)

    @override
    def reference(self, x: Array, value: Array) -> Any:
        result = np.array(x)
        result[python_slices(self.bounds)] = value
        return result


def with_lengths(axes: Axes, lengths: Iterable[int | Length | None]) -> Axes:
    """Return axes with the same names and other lengths."""
    return Axes(
        axis if axis.length == length else Axis(length, axis.name)
        for axis, length in zip(axes, lengths, strict=True)
    )


def python_slices(bounds: Bounds) -> tuple[slice, ...]:
    """Return bounds as Python slices."""
    slices = []
    for start, length, step in bounds:
        stop = start + (length - 1) * step + (1 if step > 0 else -1)
        slices.append(slice(start, stop if stop >= 0 else None, step) if length else slice(0, 0))
    return tuple(slices)


def _sliced_axes(axes: Axes, bounds: Bounds) -> Axes:
    for axis, (start, length, step) in zip(axes, bounds, strict=True):
        places = (start, start + (length - 1) * step, axis.length)
        if length and all(isinstance(place, int) for place in places):
            first, last, size = places
            if not (0 <= first < size and 0 <= last < size):
                raise AxesError(f"a slice from {first} to {last} reaches outside axis {axis!r}")
    return with_lengths(axes, (length for _, length, _ in bounds))


def bounds_of(item: slice, length: int | Length, what: str) -> tuple[Any, Any, int]:
    """Return a Python slice of an axis as ``(start, length, step)``.

    For an unknown length, start and stop must count from the same end, with a step of 1 or -1.
    """
    for bound in (item.start, item.stop, item.step):
        if isinstance(bound, TensorOp):
            bound.__index__()
        if not (bound is None or isinstance(bound, Length) or _as_index(bound) is not None):
            raise ArgumentError(f"a slice of {what} goes from integer to integer, not {bound!r}")
    step = 1 if item.step is None else int(item.step)
    if step == 0:
        raise ArgumentError(f"the step of the slice of {what} must not be 0")
    if isinstance(length, int):
        low, high = (0, length) if step > 0 else (-1, length - 1)
        start = _clipped(item.start, length, (low, high), low if step > 0 else high)
        stop = _clipped(item.stop, length, (low, high), high if step > 0 else low)
        return start, max(0, -(-(stop - start) // step)), step
    backwards = step < 0
    start = _from_end(item.start, length, length - 1 if backwards else 0)
    stop = _from_end(item.stop, length, -1 if backwards else length)
    return start, floor_divide(stop - start + step - (1 if step > 0 else -1), step), step


def _clipped(bound: Any, length: int, ends: tuple[int, int], default: int) -> int:
    """Return a bound of a slice, counted from the first element, as `slice.indices` does.

    That function would take a traced length for its value.
    """
    if bound is None:
        return default
    index = as_integer(bound)
    return min(max(index + length if index < 0 else index, ends[0]), ends[1])


def _from_end(bound: Any, length: Any, default: Any) -> Any:
    if bound is None:
        return default
    return bound + length if isinstance(bound, int) and bound < 0 else bound


def tensor_slice(x: TensorLike, slices: Sequence[Any], axes: AxesLike | None = None) -> TensorOp:
    """Return a slice of the tensor, as ``x[...]`` does for slices and integers.

    Parameters
    ----------
    x
        The operand.
    slices
        A list of slices and indices, for each axis; an index drops its axis. An ellipsis and
        missing items stand for whole axes.
    axes
        New axes in place of those that remain.

    Returns
    -------
    TensorOp
        The slice, a view.

    Raises
    ------
    AxesError
        If an index is out of range, or there are more items than axes.
    ArgumentError
        If an item is neither a slice nor an integer.

    Examples
    --------
    >>> x = np.array([[1, 2, 3], [4, 5, 6]])
    >>> weft.jit(lambda x: weft.tensor_slice(x, [1, slice(0, 2)]))(x)
    array([4, 5])
    """
    x = as_op(x)
    bounds, dropped = _bounds_and_dropped(x, slices)
    result = x
    if any(bound != (0, n, 1) for bound, n in zip(bounds, x.axes.lengths, strict=True)):
        result = SliceOp(x, bounds=bounds)
    kept = Axes(axis for place, axis in enumerate(result.axes) if place not in dropped)
    return cast_axes(result, kept if axes is None else make_axes(axes))


def one_for_each_axis(x: TensorOp, items: Any) -> tuple[Any, ...]:
    """Return an index with one item for each axis: ellipsis and missing items become slices."""
    if not isinstance(items, Sequence):
        raise ArgumentError(
            x.explain(f"slices must be a list with one for each axis, not {items!r}")
        )
    items = tuple(items)
    if any(item is None for item in items):
        raise ArgumentError(x.explain(f"None does not index {x.axes}: expand_dims adds an axis"))
    if any(item is Ellipsis for item in items):
        place = next(i for i, item in enumerate(items) if item is Ellipsis)
        fill = (slice(None),) * (x.rank - len(items) + 1)
        items = (*items[:place], *fill, *items[place + 1 :])
    if len(items) > x.rank:
        raise AxesError(x.explain(f"{len(items)} indices for the {x.rank} axes {x.axes}"))
    return (*items, *(slice(None),) * (x.rank - len(items)))


def _bounds_and_dropped(x: TensorOp, slices: Sequence[Any]) -> tuple[Bounds, set[int]]:
    bounds: list[tuple[Any, Any, int]] = []
    dropped = set()
    for place, (item, axis) in enumerate(zip(one_for_each_axis(x, slices), x.axes, strict=True)):
        if isinstance(item, slice):
            bounds.append(bounds_of(item, axis.length, f"axis {axis!r}"))
            continue
        index = _as_index(item)
        if index is None:
            raise ArgumentError(
                x.explain(
                    f"an index of dimension {place} (length {axis.length}) of {x.axes} must be an "
                    f"integer or a slice, not {_instead_of(item)}"
                )
            )
        if isinstance(axis.length, int) and not -axis.length <= index < axis.length:
            problem = f"index {index} is out of range for dimension {place} of {x.axes}"
            raise AxesError(x.explain(problem))
        dropped.add(place)
        bounds.append((_from_end(index, axis.length, 0), 1, 1))
    return tuple(bounds), dropped


def _as_index(item: Any) -> int | None:
    try:
        return None if isinstance(item, bool) else as_integer(item)
    except TypeError:
        return None


def _instead_of(item: object) -> str:
    dtype = _dtype_of(item)
    if dtype is None:
        return repr(item)
    what = f"{type(item).__name__} of {dtype}"
    if dtype.kind == "b":
        return f"{what}: where() selects by a mask, nonzero() gives the indices for take()"
    if dtype.kind in "iu":
        return f"{what}: take() and scatter() accept index tensors"
    return f"{what}: cast() converts to integers"


def _dtype_of(item: object) -> DType | None:
    """Return the dtype of a tensor, array or list; None for other values."""
    if isinstance(item, list):
        try:
            item = np.asarray(item if item else np.empty(0, np.int64))
        except ValueError:
            return None
    return getattr(item, "dtype", None)


def is_index_tensor(item: object) -> bool:
    """Whether an item of an index is a tensor, array or list of integers."""
    dtype = _dtype_of(item)
    return dtype is not None and dtype.kind in "iu" and _as_index(item) is None


def getitem(x: TensorOp, item: Any) -> TensorOp:
    """Return ``x[item]`` for integers, slices, an ellipsis, None, and tensors of integers."""
    items = item if isinstance(item, tuple) else (item,)
    if any(part is None for part in items):
        return _with_new_axes(x, items)
    if any(map(is_index_tensor, items)):
        return operators["take_at"](x, items)
    return tensor_slice(x, items)


def _with_new_axes(x: TensorOp, items: tuple[Any, ...]) -> TensorOp:
    """Return ``x[items]``, with a new axis of length 1 for each None."""
    if x.axes.is_named:
        raise AxesError(x.explain("None takes positional axes: see expand_dims"))
    if not any(item is Ellipsis for item in items):
        items = (*items, Ellipsis)
    rest = x.rank - sum(item is not None and item is not Ellipsis for item in items)
    one_for_each_axis(x, [item for item in items if item is not None])
    lengths = iter(x.axes.lengths)
    shape: list[Any] = []
    for item in items:
        shape.extend([1] if item is None else islice(lengths, rest if item is Ellipsis else 1))
    whole = tuple(slice(None) if item is None else item for item in items)
    return getitem(cast_axes(x, shape), whole)


def slice_along_axis(x: TensorLike, axis: AxisKey, index: int) -> TensorOp:
    """Return the slice at one index of an axis, which is dropped.

    Parameters
    ----------
    x
        The operand.
    axis
        The axis: a position, an axis or its name.
    index
        The index; a negative one counts from the end.

    Returns
    -------
    TensorOp
        The slice, a view without this axis.

    Raises
    ------
    AxesError
        If the operand has no such axis, or the index is out of range.
    ArgumentError
        If the index is not an integer.

    Examples
    --------
    >>> x = np.array([[1, 2, 3], [4, 5, 6]])
    >>> weft.jit(lambda x: weft.slice_along_axis(x, 1, -1))(x)
    array([3, 6])
    """
    x = as_op(x)
    slices: list[Any] = [slice(None)] * x.rank
    slices[x.axes.position(axis)] = index
    return tensor_slice(x, slices)


def update_slice(x: TensorLike, slices: Sequence[Any], value: TensorLike) -> TensorOp:
    """Return the tensor with a slice replaced by a value.

    Parameters
    ----------
    x
        The operand.
    slices
        A list of slices and indices, for each axis. An ellipsis and missing items stand for whole
        axes.
    value
        The value, broadcast to the slice, and cast to the dtype of x.

    Returns
    -------
    TensorOp
        A tensor like x.

    Raises
    ------
    AxesError
        If an index is out of range, there are more items than axes, or the value does not
        broadcast.
    ArgumentError
        If an item is neither a slice nor an integer.

    Examples
    --------
    >>> x = np.array([[1, 2, 3], [4, 5, 6]])
    >>> weft.jit(lambda x: weft.update_slice(x, [1, slice(0, 2)], 0))(x)
    array([[1, 2, 3],
           [0, 0, 6]])
    """
    x = as_op(x)
    bounds, dropped = _bounds_and_dropped(x, slices)
    cut = _sliced_axes(x.axes, bounds)
    kept = Axes(axis for place, axis in enumerate(cut) if place not in dropped)
    op = with_names(operators["cast"](as_op(value), x.dtype), value, kept)
    return UpdateSliceOp(x, cast_axes(broadcast(op, kept), cut), bounds=bounds)


operators["getitem"] = getitem
