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
from weft.ops.shape.movement import IotaOp, broadcast, cast_axes, reshape

_COMBINED: dict[str, Callable[[Any, Any], TensorOp]] = {
    "add": add, "mul": multiply, "max": maximum, "min": minimum,
}  # fmt: skip


@upcalls.updated_at.provide
def updated_at(x: TensorOp, index: Any, value: TensorLike, reduction: str) -> TensorOp:
    """Return a tensor with the elements at an index replaced, or combined with a value.

    The index is one of `getitem`, or a mask, a bool tensor of the tensor's shape; then the value is
    broadcast to the tensor, else to what the index selects. It is cast to the dtype of the tensor.
    `reduction` and repeated indices are as in `scatter`.
    """
    value = cast(as_op(value), x.dtype)
    items = index if isinstance(index, tuple) else (index,)
    if any(_is_mask(item) for item in items):
        if len(items) > 1:
            raise ArgumentError(x.explain("a mask must be the only index: use where()"))
        mask = as_op(items[0])
        if mask.axes.lengths != x.axes.lengths:
            problem = f"a mask must have the shape {x.axes.lengths}, not {mask.axes.lengths}"
            raise AxesError(x.explain(f"{problem}: broadcast it, or use where()"))
        combined = _COMBINED[reduction](x, value) if reduction in _COMBINED else value
        return where(mask, broadcast(combined, x.axes), x)
    selected = getitem(x, index)
    value = broadcast(value, selected.axes)
    if any(is_index_tensor(item) for item in items):
        return _scattered(x, index, value, reduction)
    if reduction in _COMBINED:
        value = _COMBINED[reduction](selected, value)
    bare = tuple(item for item in items if item is not None)
    return update_slice(x, bare, cast_axes(value, getitem(x, bare).axes))


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
