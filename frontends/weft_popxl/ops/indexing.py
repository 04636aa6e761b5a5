"""Ops that pick and place elements by indices, and what stands behind `t[...]`."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

import weft
from weft import TensorOp
from weft_popxl import dtypes
from weft_popxl.arguments import axes_of, axis_of, flag, one_of, whole, wholes
from weft_popxl.building import apply, change
from weft_popxl.data import as_array, as_tensor
from weft_popxl.errors import popart_exception, refuse_type, refuse_value
from weft_popxl.ops.elementwise import matching
from weft_popxl.tensor import Constant, Tensor

__all__ = [
    "dynamic_slice",
    "dynamic_update",
    "dynamic_update_",
    "gather",
    "getitem",
    "onehot",
    "scatter",
    "scatter_reduce",
]


def getitem(t: Tensor, key: Any) -> Tensor:
    """Return what ``t[key]`` is.

    Integers drop their axis, slices may have negative steps, an array or tensor of integers gathers
    along the first axis, and one of bools gives t with zeros where it is false. Raises TypeError
    for any other key.
    """
    t = as_tensor(t)
    if isinstance(key, list | np.ndarray | Tensor) and not _is_index(key):
        return _picked(t, key)
    parts = key if isinstance(key, tuple) else (key,)
    found = tuple(_part(part) for part in parts)
    made: Tensor = apply("slice", lambda x: x[found], t)
    return made


def _is_index(key: Any) -> bool:
    return isinstance(key, np.ndarray) and not key.ndim and key.dtype.kind in "iu"


def _part(part: Any) -> Any:
    if part is Ellipsis or isinstance(part, slice):
        return part
    try:
        number = None if isinstance(part, bool) else operator.index(part)
    except TypeError:
        number = None
    if number is None:
        refuse_type(f"a tensor is indexed by integers, slices, arrays and tensors, not by {part!r}")
    return number


def _picked(t: Tensor, key: Any) -> Tensor:
    indices = key if isinstance(key, Tensor) else as_tensor(as_array(key))
    if indices.dtype == dtypes.bool:
        return _masked(t, indices)
    if not indices.dtype.is_int:
        refuse_type(f"a tensor is indexed by integers or bools, not by {indices.dtype.name}")
    return gather(t, indices)


def _masked(t: Tensor, mask: Tensor) -> Tensor:
    shape = mask.shape
    if shape == t.shape[: len(shape)]:
        shape = (*shape, *(1,) * (t.rank - len(shape)))

    def function(x: TensorOp, chosen: TensorOp) -> Any:
        return weft.where(weft.reshape(chosen, shape), x, weft.constant(0, dtype=x.dtype))

    made: Tensor = apply("where", function, t, mask)
    if made.shape != t.shape:
        raise popart_exception(f"the mask {mask!r} does not fit {t!r}")
    return made


def gather(
    t: Tensor,
    indices: Any,
    axis: int = 0,
    available_memory_proportion: float | None = None,
    zero_OOR: bool = False,  # noqa: N803
) -> Tensor:
    """Return the slices of t at indices along an axis, whose place the axes of the indices take.

    An index out of range ends the run with an error or, with `zero_OOR`, gives zeros. The
    proportion of memory is a hint without a meaning here.
    """
    t = as_tensor(t)
    where = as_tensor(indices, dtypes.int32)
    place = axis_of("gather", t, axis)
    has_zeros = flag("gather: zero_OOR", zero_OOR)

    def function(x: TensorOp, index: TensorOp) -> Any:
        if not has_zeros:
            return weft.take(x, index, axis=place)
        inside = (index >= 0) & (index < t.shape[place])
        taken = weft.take(x, weft.where(inside, index, weft.constant(0, dtype=index.dtype)), place)
        shape = (*(1,) * place, *where.shape, *(1,) * (t.rank - place - 1))
        return weft.where(weft.reshape(inside, shape), taken, weft.constant(0, dtype=x.dtype))

    made: Tensor = apply("gather", function, t, where)
    return made


def _everywhere(indices: TensorOp, shape: Sequence[int], place: int) -> Any:
    """Return the index of each element, as rows for scatter_nd, of indices along one axis."""
    lengths = tuple(indices.shape)
    columns = [
        weft.reshape(weft.cast(indices, weft.int64), (-1, 1))
        if axis == place
        else weft.constant(np.indices(lengths)[axis].reshape(-1, 1).astype(np.int64))
        for axis in range(len(shape))
    ]
    return weft.concat(columns, axis=1)


def scatter(
    t: Tensor,
    indices: Any,
    values: Any,
    axis: int = 0,
    available_memory_proportion: float | None = None,
) -> Tensor:
    """Return t with single elements replaced, whose places along an axis are indices.

    Indices and values have one shape, with as many axes as t, no longer than t along the others:
    for axis 0, ``t[indices[i, j], j] = values[i, j]``. The proportion of memory is a hint without a
    meaning here.
    """
    return _scattered("scatter", t, indices, values, axis, "set")


def _scattered(kind: str, t: Tensor, indices: Any, values: Any, axis: int, how: str) -> Tensor:
    t, values = matching(kind, t, values)
    where = as_tensor(indices, dtypes.int32)
    place = axis_of(kind, t, axis)
    if where.rank != t.rank or values.shape != where.shape:
        raise popart_exception(
            f"{kind} takes indices and values of one shape, with {t.rank} axes as {t!r}, not "
            f"{where!r} and {values!r}"
        )

    def function(x: TensorOp, index: TensorOp, new: TensorOp) -> Any:
        rows = _everywhere(index, t.shape, place)
        return weft.scatter_nd(x, rows, weft.reshape(new, (-1,)), reduction=how)

    made: Tensor = apply(kind, function, t, where, values)
    return made


_WAYS = {"sum": "add", "max": "max", "min": "min", "mul": "mul", "none": "set"}
_STARTS = {"sum": 0, "max": -math.inf, "min": math.inf, "mul": 1, "none": 0}


def scatter_reduce(
    data: Tensor,
    indices: Any,
    reduction: str,
    initial_values: Tensor | None = None,
    axis: int = 0,
    axis_size: int | None = None,
) -> Tensor:
    """Return what elements with the same index along an axis make together.

    `reduction` is ``sum``, ``max``, ``min``, ``mul`` or ``none``, which keeps one of them. The
    result has the length `axis_size` along the axis and begins as `initial_values`, by default what
    does not matter: 0, 1 or an infinity; where nothing was met, ``max`` and ``min`` give 0. Indices
    have the shape of `data`. Raises ValueError for another reduction.
    """
    data = as_tensor(data)
    how = _WAYS[one_of("scatter_reduce: the reduction", reduction, list(_WAYS))]
    if initial_values is None and axis_size is None:
        refuse_value("scatter_reduce needs axis_size or initial_values")
    if initial_values is not None:
        return _scattered("scatter_reduce", initial_values, indices, data, axis, how)
    shape = list(data.shape)
    place = axis_of("scatter_reduce", data, axis)
    shape[place] = whole("scatter_reduce: axis_size", axis_size, least=1)
    start = _STARTS[reduction] if data.dtype.is_float else 0
    begun = as_tensor(np.full(shape, start, data.dtype.as_numpy()))
    made = _scattered("scatter_reduce", begun, indices, data, place, how)
    if reduction not in ("max", "min"):
        return made

    def emptied(x: TensorOp) -> Any:
        return weft.where(weft.isinf(x), weft.constant(0, dtype=x.dtype), x)

    finished: Tensor = apply("where", emptied, made)
    return finished


def onehot(t: Tensor, num_classes: Any, values: Any, axis: int = -1) -> Tensor:
    """Return values by whether the index along a new axis, of num_classes, equals the element.

    `values` are two: for where it does not, and for where it does.
    """
    t = as_tensor(t)
    given = num_classes.data if isinstance(num_classes, Constant) else num_classes
    count = whole("onehot: num_classes", given, least=1)
    both = as_tensor(values)
    if both.shape != (2,):
        raise popart_exception(f"onehot takes two values, off and on, not {both!r}")
    place = axis_of("onehot", t, axis, added=1)

    def function(x: TensorOp, value: TensorOp) -> Any:
        chosen = weft.cast(weft.one_hot(x, count, pos=place), weft.bool_)
        return weft.where(chosen, value[1], value[0])

    made: Tensor = apply("onehot", function, t, both)
    return made


def _starts(x: TensorOp, index: TensorOp, axes: Sequence[int]) -> list[Any]:
    starts: list[Any] = [0] * x.rank
    for number, place in enumerate(axes):
        starts[place] = weft.cast(index[number], weft.int32)
    return starts


def _block(
    kind: str, t: Any, index: Any, axes: Iterable[int], sizes: Iterable[int]
) -> tuple[Tensor, Tensor, tuple[int, ...], tuple[int, ...]]:
    """Return a tensor, where a block of it begins, along which axes, and the shape of the block."""
    t = as_tensor(t)
    where = as_tensor(index, dtypes.int32)
    places = axes_of(kind, t, axes)
    given = wholes(f"{kind}: a size", sizes, least=1)
    if where.shape != (len(places),) or len(given) != len(places):
        raise popart_exception(
            f"{kind} takes one index and one size for each of the axes {places} of {t!r}, not "
            f"{where!r} and the sizes {given}"
        )
    lengths = list(t.shape)
    for place, size in zip(places, given, strict=True):
        if size > t.shape[place]:
            raise popart_exception(
                f"{kind}: a block of size {size} along axis {place} does not fit into {t!r}"
            )
        lengths[place] = size
    return t, where, places, tuple(lengths)


def dynamic_slice(
    t: Tensor,
    index: Tensor,
    axes: Iterable[int],
    sizes: Iterable[int],
    no_overlap: bool = False,
) -> Tensor:
    """Return the block of t of given sizes along axes that begins at indices known in a run.

    A block that would reach outside is moved until it lies inside. `no_overlap` is a hint.
    """
    t, where, places, lengths = _block("dynamic_slice", t, index, axes, sizes)

    def function(x: TensorOp, begin: TensorOp) -> Any:
        return weft.dynamic_slice(x, _starts(x, begin, places), lengths)

    made: Tensor = apply("dynamic_slice", function, t, where)
    return made


def _updated(places: Sequence[int]) -> Any:
    def function(x: TensorOp, begin: TensorOp, new: TensorOp) -> Any:
        return weft.dynamic_update_slice(x, new, _starts(x, begin, places))

    return function


def dynamic_update(
    t: Tensor,
    index: Tensor,
    t_update: Tensor,
    axes: Iterable[int],
    sizes: Iterable[int],
    no_overlap: bool = False,
) -> Tensor:
    """Return t with the block replaced that `dynamic_slice` would return."""
    kind = "dynamic_update"
    t, where, places, lengths = _block(kind, t, index, axes, sizes)
    made: Tensor = apply(kind, _updated(places), t, where, _fitting(kind, t, t_update, lengths))
    return made


def dynamic_update_(
    t: Tensor,
    index: Tensor,
    t_update: Tensor,
    axes: Iterable[int],
    sizes: Iterable[int],
    no_overlap: bool = False,
) -> Tensor:
    """Replace the block of t, in place, that `dynamic_slice` would return."""
    kind = "dynamic_update_"
    t, where, places, lengths = _block(kind, t, index, axes, sizes)
    return change(kind, _updated(places), t, where, _fitting(kind, t, t_update, lengths))


def _fitting(kind: str, t: Tensor, update: Any, lengths: tuple[int, ...]) -> Tensor:
    _, new = matching(kind, t, update)
    if new.shape != lengths:
        raise popart_exception(f"{kind} takes a block of shape {lengths}, not {new!r}")
    return new
