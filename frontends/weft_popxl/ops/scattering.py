"""Scatters, and reductions of elements with equal indices."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from weft import TensorOp
from weft_popxl import dtypes
from weft_popxl.arguments import one_of, whole
from weft_popxl.building import apply, matching
from weft_popxl.data import as_tensor
from weft_popxl.errors import popart_exception, refuse_value
from weft_popxl.program import Tensor
from weft_popxl.tensor_arguments import axis_of

__all__ = ["scatter", "scatter_reduce"]


def _everywhere(indices: TensorOp, place: int) -> Any:
    """Return the index of each element, as rows for scatter_nd, from indices along one axis."""
    lengths = tuple(indices.shape)
    columns = [
        weft.reshape(weft.cast(indices, weft.int64), (-1, 1))
        if axis == place
        else weft.constant(np.indices(lengths)[axis].reshape(-1, 1).astype(np.int64))
        for axis in range(len(lengths))
    ]
    return weft.concat(columns, axis=1)


def scatter(
    t: Tensor,
    indices: Any,
    values: Any,
    axis: int = 0,
    available_memory_proportion: float | None = None,
) -> Tensor:
    """Return t with single elements replaced at indices along an axis.

    Indices and values have the rank of t, and are no longer than t along the other axes: for axis
    0, ``t[indices[i, j], j] = values[i, j]``. Indices may have an axis of length 1 where the values
    have a longer one, or be a vector with an index for each slice of the values along the axis. Of
    several values for one element the last in row-major order is kept.
    `available_memory_proportion` has no effect.
    """
    return _scattered("scatter", t, indices, values, axis, "set")


def _scattered(kind: str, t: Tensor, indices: Any, values: Any, axis: int, how: str) -> Tensor:
    t, values = matching(kind, t, values)
    where = as_tensor(indices, dtypes.int32)
    place = axis_of(kind, t, axis)
    _require_fitting(kind, t.rank, where, values, place)
    return apply(kind, lambda x, index, new: _put(x, index, new, place, how), t, where, values)


def _require_fitting(kind: str, rank: int, indices: Tensor, values: Tensor, place: int) -> None:
    if values.rank != rank or not _broadcasts(indices.shape, values.shape, place):
        raise popart_exception(
            f"{kind} takes values with {rank} axes, and indices of their shape, with 1 in the "
            f"place of some lengths, or one for each slice along axis {place}, not {indices!r} "
            f"and {values!r}"
        )


def _broadcasts(indices: tuple[int, ...], values: tuple[int, ...], place: int) -> bool:
    if indices == (values[place],):
        return True
    same = len(indices) == len(values)
    return same and all(n in (1, m) for n, m in zip(indices, values, strict=True))


def _put(x: TensorOp, index: TensorOp, new: TensorOp, place: int, how: str) -> Any:
    """Return a tensor with values scattered along an axis; the indices are broadcast to them."""
    length = new.shape[place]
    if index.shape == (length,) and new.shape == (*x.shape[:place], length, *x.shape[place + 1 :]):
        return weft.scatter(x, index, new, place, how)
    if index.rank < new.rank:
        index = weft.reshape(index, [-1 if axis == place else 1 for axis in range(new.rank)])
    index = weft.broadcast(index, new.axes)
    return weft.scatter_nd(x, _everywhere(index, place), weft.reshape(new, (-1,)), reduction=how)


_WAYS = {"sum": "add", "max": "max", "min": "min", "mul": "mul", "none": "set"}


def _start(reduction: str, dtype: np.dtype[Any]) -> Any:
    """Return the identity element of a reduction."""
    if reduction in ("sum", "none", "mul"):
        return reduction == "mul"
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return limits.min if reduction == "max" else limits.max
    if dtype.kind == "b":
        return reduction == "min"
    return -np.inf if reduction == "max" else np.inf


def scatter_reduce(
    data: Tensor,
    indices: Any,
    reduction: str,
    initial_values: Tensor | None = None,
    axis: int = 0,
    axis_size: int | None = None,
    available_memory_proportion: float | None = None,
    enable_index_broadcast: bool = True,
) -> Tensor:
    """Return the reduction of elements with equal indices along an axis.

    `reduction` is ``sum``, ``max``, ``min``, ``mul`` or ``none``, which keeps the last. The result
    has the length `axis_size` along the axis and is initialized to `initial_values`, by default the
    identity element; without elements it is then 0, and 1 for ``mul``. Indices have the shape of
    `data`, with 1 in the place of some lengths, or are a vector with an index for each slice of
    `data` along the axis. `available_memory_proportion` and `enable_index_broadcast` have no
    effect. Raises ValueError for another reduction.
    """
    data = as_tensor(data)
    how = _WAYS[one_of("scatter_reduce: the reduction", reduction, list(_WAYS))]
    if initial_values is None and axis_size is None:
        refuse_value("scatter_reduce needs axis_size or initial_values")
    if initial_values is not None:
        return _scattered("scatter_reduce", initial_values, indices, data, axis, how)
    place = axis_of("scatter_reduce", data, axis)
    size = whole("scatter_reduce: axis_size", axis_size, least=1)
    where = as_tensor(indices, dtypes.int32)
    _require_fitting("scatter_reduce", data.rank, where, data, place)
    shape = (*data.shape[:place], size, *data.shape[place + 1 :])

    def function(x: TensorOp, index: TensorOp) -> Any:
        begun = np.full(shape, _start(reduction, x.dtype), x.dtype)
        made = _put(weft.constant(begun), index, x, place, how)
        if reduction not in ("max", "min"):
            return made
        ones = weft.constant(np.ones(data.shape, np.bool_))
        nothing = weft.constant(np.zeros(shape, np.bool_))
        met = _put(nothing, index, ones, place, "set")
        return weft.where(met, made, weft.constant(0, dtype=x.dtype))

    return apply("scatter_reduce", function, data, where)
