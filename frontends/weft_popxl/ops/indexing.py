"""Gathers, dynamic slices, and the implementation of `t[...]`."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

import weft
from weft import TensorOp
from weft_popxl import dtypes
from weft_popxl.arguments import flag, whole, wholes
from weft_popxl.building import apply, matching
from weft_popxl.data import as_array, as_tensor
from weft_popxl.errors import popart_exception, refuse_type, refuse_value
from weft_popxl.ops.families import applied, twins
from weft_popxl.program import Constant, Tensor
from weft_popxl.tensor_arguments import axes_of, axis_of

__all__ = [
    "dynamic_slice",
    "dynamic_update",
    "dynamic_update_",
    "gather",
    "getitem",
    "groupedgather",
    "onehot",
    "tied_gather",
]


def getitem(t: Tensor, key: Any) -> Tensor:
    """Return ``t[key]``.

    An integer removes its axis, slices may have negative steps, an integer array or tensor gathers
    along the first axis, and a bool one sets t to zero where it is false. Raises TypeError for any
    other key.
    """
    t = as_tensor(t)
    if isinstance(key, list | np.ndarray | Tensor) and not _is_index(key):
        return _picked(t, key)
    parts = key if isinstance(key, tuple) else (key,)
    found = tuple(_part(part) for part in parts)
    return apply("slice", lambda x: x[found], t)


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
    return _gathered(t, indices, 0, weft.take)


def _masked(t: Tensor, mask: Tensor) -> Tensor:
    shape = mask.shape
    if shape == t.shape[: len(shape)]:
        shape = (*shape, *(1,) * (t.rank - len(shape)))

    def function(x: TensorOp, chosen: TensorOp) -> Any:
        return weft.where(weft.reshape(chosen, shape), x, weft.constant(0, dtype=x.dtype))

    made = apply("where", function, t, mask)
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
    """Return the slices of t at indices along an axis, which the axes of the indices replace.

    An index out of range gives zeros with `zero_OOR`, else an undefined slice: here the first or
    the last, and negative indices count from the end. `available_memory_proportion` has no effect.
    """
    return _gathered(t, indices, axis, _zeroed if flag("gather: zero_OOR", zero_OOR) else _limited)


Taken = Callable[[TensorOp, TensorOp, int], Any]


def _gathered(t: Tensor, indices: Any, axis: int, function: Taken) -> Tensor:
    t = as_tensor(t)
    where = as_tensor(indices, dtypes.int32)
    place = axis_of("gather", t, axis)
    return apply("gather", lambda x, index: function(x, index, place), t, where)


def tied_gather(
    t: Tensor,
    indices: Any,
    axis: int = 0,
    available_memory_proportion: float | None = None,
    zero_OOR: bool = False,  # noqa: N803
) -> Tensor:
    """Return `gather` of t; the memory layout of the indices has no effect."""
    return gather(t, indices, axis, available_memory_proportion, zero_OOR)


def groupedgather(
    t: Tensor,
    indices: Any,
    axis: int = 0,
    group_size: int = 1,
    available_memory_proportion: float | None = None,
    zero_OOR: bool = False,  # noqa: N803
) -> Tensor:
    """Return for each group the slices of its part of t at its part of the indices.

    With several groups, the first axis of both is the group, and `axis` is a later one of t; with
    one group it is `gather`, which describes the other arguments.
    """
    t = as_tensor(t)
    where = as_tensor(indices, dtypes.int32)
    groups = whole("groupedgather: group_size", group_size, least=1)
    if groups == 1:
        return gather(t, where, axis, available_memory_proportion, zero_OOR)
    place = axis_of("groupedgather", t, axis)
    if not place:
        refuse_value(f"groupedgather: axis 0 of {t!r} counts the groups, gather along a later one")
    if where.shape[:1] != (groups,) or t.shape[0] != groups:
        raise popart_exception(
            f"groupedgather takes {groups} groups along the first axis, not {t!r} and {where!r}"
        )
    has_zeros = flag("groupedgather: zero_OOR", zero_OOR)

    def function(x: TensorOp, index: TensorOp) -> Any:
        rows = weft.moveaxis(x, place, 1)
        inside = (index >= 0) & (index < t.shape[place])
        zero = weft.constant(0, dtype=index.dtype)
        index = weft.where(inside, index, zero) if has_zeros else _limit(index, t.shape[place])
        taken = weft.gather_nd(rows, weft.reshape(index, (*where.shape, 1)), batch_dims=1)
        if has_zeros:
            shape = (*where.shape, *(1,) * (t.rank - 2))
            zero = weft.constant(0, dtype=x.dtype)
            taken = weft.where(weft.reshape(inside, shape), taken, zero)
        found = range(1, where.rank)
        return weft.moveaxis(taken, tuple(found), tuple(n + place - 1 for n in found))

    return apply("groupedgather", function, t, where)


def _zeroed(x: TensorOp, index: TensorOp, place: int) -> Any:
    """Return slices, with zeros for indices out of range."""
    inside = (index >= 0) & (index < x.shape[place])
    taken = weft.take(x, weft.where(inside, index, weft.constant(0, dtype=index.dtype)), place)
    shape = (*(1,) * place, *index.shape, *(1,) * (x.rank - place - 1))
    return weft.where(weft.reshape(inside, shape), taken, weft.constant(0, dtype=x.dtype))


def _limited(x: TensorOp, index: TensorOp, place: int) -> Any:
    """Return slices, with indices clamped to the range."""
    return weft.take(x, _limit(index, x.shape[place]), place)


def _limit(index: TensorOp, length: int) -> Any:
    return weft.clip(index, 0 if index.dtype.kind == "u" else -length, length - 1)


def onehot(t: Tensor, num_classes: Any, values: Any, axis: int = -1) -> Tensor:
    """Return values[1] where the index along a new axis, of num_classes, equals the element.

    Elsewhere it is values[0].
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

    return apply("onehot", function, t, both)


def _starts(x: TensorOp, index: TensorOp, axes: Sequence[int]) -> list[Any]:
    starts: list[Any] = [0] * x.rank
    for number, place in enumerate(axes):
        starts[place] = weft.cast(index[number], weft.int32)
    return starts


def _block(
    kind: str, t: Any, index: Any, axes: Iterable[int], sizes: Iterable[int]
) -> tuple[Tensor, Tensor, tuple[int, ...], tuple[int, ...]]:
    """Return the tensor, the start and the axes of a block, and its shape."""
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
    """Return the block of t of given sizes along axes, which begins at dynamic indices.

    A block that exceeds t is moved inside. `no_overlap` has no effect.
    """
    t, where, places, lengths = _block("dynamic_slice", t, index, axes, sizes)

    def function(x: TensorOp, begin: TensorOp) -> Any:
        return weft.dynamic_slice(x, _starts(x, begin, places), lengths)

    return apply("dynamic_slice", function, t, where)


def _dynamic_update(
    kind: str,
    t: Tensor,
    index: Tensor,
    t_update: Tensor,
    axes: Iterable[int],
    sizes: Iterable[int],
    no_overlap: bool = False,
) -> Tensor:
    """Return t with the block of `dynamic_slice` replaced."""
    t, where, places, lengths = _block(kind, t, index, axes, sizes)
    _, new = matching(kind, t, t_update)
    if new.shape != lengths:
        raise popart_exception(f"{kind} takes a block of shape {lengths}, not {new!r}")

    def function(x: TensorOp, begin: TensorOp, new: TensorOp) -> Any:
        return weft.dynamic_update_slice(x, new, _starts(x, begin, places))

    return applied(kind, function, t, where, new)


dynamic_update, dynamic_update_ = twins(
    _dynamic_update, "Replace the block of `dynamic_slice` in t in place."
)
