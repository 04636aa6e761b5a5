"""Functional updates: a tensor with the elements that an index selects replaced or combined."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.errors import ArgumentError, AxesError
from weft.ir import dtypes, upcalls
from weft.ir.axes import make_axes
from weft.ir.storage import as_op
from weft.ir.tensor import TensorLike, TensorOp
from weft.ops.indexing.gathering import ScatterOp, without_names
from weft.ops.indexing.slicing import getitem, is_index_tensor, update_slice
from weft.ops.pointwise.comparison import maximum, minimum, where
from weft.ops.pointwise.elementwise import add, cast, multiply
from weft.ops.shape.movement import BroadcastOp, IotaOp, broadcast, cast_axes, reshape

_COMBINED: dict[str, Callable[[Any, Any], TensorOp]] = {
    "add": add, "mul": multiply, "max": maximum, "min": minimum,
}  # fmt: skip


@upcalls.updated_at.provide
def updated_at(x: TensorOp, index: Any, value: TensorLike, reduction: str) -> TensorOp:
    """Return a tensor with the elements at an index replaced, or combined with a value.

    The index is one of `getitem`, in which a mask, a bool tensor, may stand for as many axes as it
    has. The value is broadcast to what the index selects, where a mask selects these axes as a
    whole, and cast to the dtype of the tensor. `reduction` and repeated indices are as in
    `scatter`.
    """
    value = cast(as_op(value), x.dtype)
    items = index if isinstance(index, tuple) else (index,)
    if any(_is_mask(item) for item in items):
        return _updated_where(x, items, value, reduction)
    selected = getitem(x, index)
    value = broadcast(value, selected.axes)
    if any(is_index_tensor(item) for item in items):
        return _scattered(x, index, value, reduction)
    if reduction in _COMBINED:
        value = _COMBINED[reduction](selected, value)
    bare = tuple(item for item in items if item is not None)
    return update_slice(x, bare, cast_axes(value, getitem(x, bare).axes))


def _updated_where(
    x: TensorOp, items: tuple[Any, ...], value: TensorOp, reduction: str
) -> TensorOp:
    """Return an update of what an index selects without its mask, and of that where it is true."""
    at = next(place for place, item in enumerate(items) if _is_mask(item))
    mask, others = as_op(items[at]), (*items[:at], *items[at + 1 :])
    if any(_is_mask(item) or is_index_tensor(item) for item in others):
        problem = "a mask goes with integers and slices, not with another mask or index tensors"
        raise ArgumentError(x.explain(f"{problem}: use where()"))
    index = (*items[:at], *[slice(None)] * mask.rank, *items[at + 1 :])
    part = getitem(x, index)
    rest = x.rank - sum(item is not None and item is not Ellipsis for item in index)
    first = sum(rest if i is Ellipsis else i is None or isinstance(i, slice) for i in items[:at])
    dims = tuple(range(first, first + mask.rank))
    selected = tuple(part.axes.lengths[place] for place in dims)
    if mask.axes.lengths != selected:
        problem = f"a mask of these axes must have the shape {selected}, not {mask.axes.lengths}"
        raise AxesError(x.explain(f"{problem}: broadcast it, or use where()"))
    changed = _COMBINED[reduction](part, value) if reduction in _COMBINED else value
    is_hit = BroadcastOp(mask, target_axes=part.axes, dims=dims)
    result = where(is_hit, broadcast(changed, part.axes), part)
    return result if part is x else updated_at(x, index, result, "set")


def _is_mask(item: object) -> bool:
    dtype = getattr(item, "dtype", None)
    return dtype is not None and dtypes.is_bool(dtype)


def _scattered(x: TensorOp, index: Any, value: TensorOp, reduction: str) -> TensorOp:
    """Return a scatter at the numbers of the elements that the index selects."""
    row = make_axes((x.axes.size,))
    numbers = IotaOp(target_axes=row, target_dtype=dtypes.int64, position=0)
    places = reshape(getitem(cast_axes(numbers, x.axes), index), (-1,))
    updates = reshape(without_names(value), (-1,))
    flat = reshape(without_names(x), (-1,))
    scattered = ScatterOp(flat, without_names(places), updates, position=0, reduction=reduction)
    return cast_axes(scattered, x.axes)
