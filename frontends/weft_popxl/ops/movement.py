"""Movement ops; those with a trailing underscore return views."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import weft
from weft import TensorOp
from weft_popxl.arguments import several, whole, wholes
from weft_popxl.building import apply, apply_all, same_dtypes, view
from weft_popxl.data import as_tensor
from weft_popxl.errors import popart_exception, refuse_value
from weft_popxl.ops.families import twins
from weft_popxl.program import Tensor
from weft_popxl.tensor_arguments import axes_of, axis_of

__all__ = [
    "concat",
    "concat_",
    "diag",
    "flatten",
    "flatten_",
    "reshape",
    "reshape_",
    "slice",
    "slice_",
    "split",
    "squeeze",
    "squeeze_",
    "subsample",
    "subsample_",
    "transpose",
    "transpose_",
]

Numbers = int | Iterable[int] | None


def _moved(
    kind: str, t: Any, show: Callable[[TensorOp], TensorOp], back: Callable[..., TensorOp]
) -> Tensor:
    """Return a movement of a tensor: a view if the name of the op ends with an underscore."""
    tensor = as_tensor(t)
    if kind.endswith("_"):
        return view(kind, show, lambda value, old: (back(value, old),), tensor)
    return apply(kind, show, tensor)


def _transpose(kind: str, t: Tensor, permutation: Iterable[int] | None = None) -> Tensor:
    """Return t with permuted dimensions, in reverse order without a permutation."""
    t = as_tensor(t)
    places = list(range(t.rank))
    order = places[::-1]
    if permutation is not None:
        given = several(f"{kind}: the permutation", permutation)
        order = [axis_of(kind, t, axis) for axis in given]
    if sorted(order) != places:
        raise popart_exception(f"{kind}: {order} is not an order of the dimensions of {t!r}")
    back = [order.index(place) for place in places]
    return _moved(
        kind, t, lambda x: weft.transpose(x, order), lambda value, _: weft.transpose(value, back)
    )


transpose, transpose_ = twins(_transpose, "Return a view of t with permuted dimensions.")


def _reshape(kind: str, t: Tensor, shape: Iterable[int]) -> Tensor:
    """Return t in another shape, in which one length may be -1; raises ValueError if none fits."""
    t = as_tensor(t)
    wanted = wholes(f"{kind}: the shape", shape)
    lengths = list(wanted)
    known = math.prod(length for length in lengths if length != -1)
    if lengths.count(-1) == 1 and known and t.nelms % known == 0:
        lengths[lengths.index(-1)] = t.nelms // known
    if min(lengths, default=0) < 0 or math.prod(lengths) != t.nelms:
        refuse_value(f"{kind}: {t!r} has {t.nelms} elements, which do not fit {tuple(wanted)}")
    return _moved(
        kind, t, lambda x: weft.reshape(x, lengths), lambda value, _: weft.reshape(value, t.shape)
    )


reshape, reshape_ = twins(_reshape, "Return a view of t with another shape.")


def _flatten(kind: str, t: Tensor) -> Tensor:
    """Return t with one dimension."""
    return _reshape(kind, t, (-1,) if as_tensor(t).nelms else (0,))


flatten, flatten_ = twins(_flatten, "Return a view of t with one dimension.")


def _squeeze(kind: str, t: Tensor, axes: Numbers = None) -> Tensor:
    """Return t without dimensions of length 1: all, or those given."""
    t = as_tensor(t)
    given = [place for place, length in enumerate(t.shape) if length == 1]
    if axes is not None:
        given = list(axes_of(kind, t, axes))
    if any(t.shape[place] != 1 for place in given):
        refuse_value(f"{kind}: {t!r} has another length than 1 along one of {given}")
    return _reshape(kind, t, [n for place, n in enumerate(t.shape) if place not in given])


squeeze, squeeze_ = twins(_squeeze, "Return a view of t without dimensions of length 1.")


def _listed(what: str, numbers: Any) -> list[int | None]:
    """Return one or several values as a list of integers or None."""
    given = several(what, numbers) if isinstance(numbers, Iterable) else [numbers]
    return [None if number is None else whole(what, number) for number in given]


def _slice(
    kind: str,
    t: Tensor,
    start: Numbers = None,
    stop: Numbers = None,
    step: Numbers = None,
    axis: Numbers = None,
) -> Tensor:
    """Return a slice of t, from start to before stop, with a step, along one or several axes.

    Each argument is a number, or a list for the axes in `axis`, by default the first ones. None, as
    an argument or in a list, has the default of Python's slices. Steps may be negative.
    """
    t = as_tensor(t)
    parts = {"start": start, "stop": stop, "step": step, "axis": axis}
    given = [
        None if part is None else _listed(f"{kind}: {name}", part) for name, part in parts.items()
    ]
    count = builtins.max((len(part) for part in given if part is not None), default=0)
    if any(part is not None and len(part) != count for part in given):
        refuse_value(f"{kind} takes as many starts, stops and steps as axes")
    starts, stops, steps, axes = (part or [None] * count for part in given)
    places = axes_of(kind, t, [n if axis is None else axis for n, axis in enumerate(axes)])
    found = [builtins.slice(None)] * t.rank
    for number, place in enumerate(places):
        found[place] = builtins.slice(starts[number], stops[number], steps[number])
    return _sliced(kind, t, found)


slice, slice_ = twins(_slice, "Return a slice of t as a view; see `slice`.")


def _sliced(kind: str, t: Tensor, slices: Sequence[Any]) -> Tensor:
    parts = tuple(slices)
    return _moved(
        kind,
        t,
        lambda x: x[parts] if parts else x,
        lambda value, old: weft.update_slice(old, parts, value) if parts else value,
    )


def _subsample(kind: str, t: Tensor, strides: Numbers) -> Tensor:
    """Return every n-th element along each axis, from a stride for each of the first axes.

    Along the other axes all elements are kept; a number is the stride of the first axis. Raises
    ValueError for more strides than axes, and for strides below 1.
    """
    t = as_tensor(t)
    what = f"{kind}: a stride"
    steps = wholes(what, strides if isinstance(strides, Iterable) else [strides], least=1)
    if len(steps) > t.rank:
        refuse_value(f"{kind} takes a stride for each axis of {t!r} at most, not {steps}")
    return _sliced(kind, t, [builtins.slice(None, None, step) for step in steps])


subsample, subsample_ = twins(
    _subsample, "Return every n-th element along each axis as a view; see `subsample`."
)


def diag(t: Tensor) -> Tensor:
    """Return the diagonal of a matrix; raises ValueError for other ranks than 2."""
    t = as_tensor(t)
    if t.rank != 2:
        refuse_value(f"diag takes a matrix, not {t!r}")
    return apply("diag", weft.diagonal, t)


def _concat(kind: str, ts: Iterable[Tensor], axis: int = 0) -> Tensor:
    """Return the concatenation of tensors along an axis."""
    tensors = [as_tensor(t) for t in several(f"{kind}: the tensors", ts)]
    if not tensors:
        refuse_value(f"{kind} takes at least one tensor")
    same_dtypes(kind, *tensors)
    place = axis_of(kind, tensors[0], axis)

    def show(*parts: TensorOp) -> Any:
        return weft.concat(parts, axis=place)

    def put(value: TensorOp, *old: TensorOp) -> Any:
        return weft.split(value, [op.shape[place] for op in old], axis=place)

    return view(kind, show, put, *tensors) if kind.endswith("_") else apply(kind, show, *tensors)


concat, concat_ = twins(_concat, "Return the concatenation of tensors along an axis as a view.")


def split(t: Tensor, splits: int | Sequence[int], axis: int = 0) -> list[Tensor]:
    """Return parts of t along an axis: a number of equal parts, or parts of given lengths."""
    t = as_tensor(t)
    place = axis_of("split", t, axis)
    parts: int | list[int]
    if isinstance(splits, Iterable):
        parts = wholes("split: the lengths", splits)
    else:
        parts = whole("split: the number of parts", splits)
    return list(apply_all("split", lambda x: weft.split(x, parts, axis=place), t))
