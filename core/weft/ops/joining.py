"""Tensors put together: padded, concatenated, stacked; and the one-hot code of an index."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from weft import dtypes
from weft.axes import Axes, Axis, make_axes
from weft.dtypes import DType
from weft.errors import ArgumentError, AxesError
from weft.op import Op, explain
from weft.ops.indexing import Bounds, SliceOp, UpdateSliceOp, python_slices, with_lengths
from weft.ops.movement import BroadcastOp, IotaOp, broadcast, cast_axes, expand_dims, transpose
from weft.ops.storage import as_op, constant
from weft.tensor import CompositeOp, TensorOp, operators

__all__ = [
    "ConcatOp",
    "PadOp",
    "concat",
    "concat_along_axis",
    "one_hot",
    "pad",
    "stack",
]


class PadOp(CompositeOp):
    """The operand with a constant around it.

    Attributes
    ----------
    widths
        For each axis the number of elements before and after.
    fill
        The value around the operand.
    """

    widths: tuple[tuple[int, int], ...]
    fill: float

    def infer(self) -> tuple[Axes, DType]:
        """Lengthen the axes."""
        (x,) = self.args
        if len(self.widths) != x.rank or any(min(pair) < 0 for pair in self.widths):
            raise AxesError(f"padding {self.widths} must give two counts >= 0 for each of {x.axes}")
        lengths = (
            before + axis.length + after
            for axis, (before, after) in zip(x.axes, self.widths, strict=True)
        )
        return with_lengths(x.axes, lengths), x.dtype

    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Cut the padding off."""
        return (SliceOp(delta, bounds=self.inner_bounds(x.axes)),)

    def inner_bounds(self, axes: Axes) -> Bounds:
        """Return where the operand lies inside the result."""
        return tuple(
            (before, axis.length, 1) for axis, (before, _) in zip(axes, self.widths, strict=True)
        )

    def decompose(self, x: TensorOp) -> TensorOp:
        """Write the operand into the constant."""
        around = broadcast(constant(self.fill, dtype=x.dtype), self.axes)
        return UpdateSliceOp(around, x, bounds=self.inner_bounds(x.axes))

    def reference(self, x: Any) -> Any:
        """Pad with the constant."""
        result = np.full(self.axes.shape, self.fill, np.asarray(x).dtype)
        result[python_slices(self.inner_bounds(make_axes(np.shape(x))))] = x
        return result


class ConcatOp(TensorOp):
    """Several tensors one after the other along one axis.

    Attributes
    ----------
    position
        The place of that axis.
    """

    position: int

    def infer(self) -> tuple[Axes, DType]:
        """Add up the lengths along the axis; everything else must agree."""
        first = self.args[0]
        for x in self.args:
            others = Axes(axis for place, axis in enumerate(x.axes) if place != self.position)
            mine = Axes(axis for place, axis in enumerate(first.axes) if place != self.position)
            if others != mine or x.dtype != first.dtype:
                raise AxesError(
                    f"cannot concatenate {first.dtype} {first.axes} and {x.dtype} {x.axes} along "
                    f"dimension {self.position}: all others must be equal"
                )
        total = sum(x.axes[self.position].length for x in self.args)
        lengths = list(first.axes.lengths)
        lengths[self.position] = total
        return with_lengths(first.axes, lengths), first.dtype

    def parts(self) -> list[Bounds]:
        """Return the slice of the result that each operand takes."""
        start: Any = 0
        found = []
        for x in self.args:
            bounds: list[tuple[Any, Any, int]] = [(0, axis.length, 1) for axis in x.axes]
            length = x.axes[self.position].length
            bounds[self.position] = (start, length, 1)
            start = start + length
            found.append(tuple(bounds))
        return found

    def generate_adjoints(self, delta: TensorOp, *args: TensorOp) -> list[TensorOp]:
        """Give each operand its slice of the adjoint."""
        return [
            cast_axes(SliceOp(delta, bounds=bounds), x.axes)
            for x, bounds in zip(args, self.parts(), strict=True)
        ]

    def reference(self, *args: Any) -> Any:
        """Concatenate."""
        return np.concatenate(args, axis=self.position)


def pad(x: Any, paddings: Sequence[Any], value: float = 0.0) -> TensorOp:
    """Return the tensor with `value` around it.

    `paddings` gives for each axis a pair of counts before and after, or one count for both.
    """
    if not isinstance(paddings, Sequence):
        raise ArgumentError(f"paddings must list a count or a pair for each axis, not {paddings!r}")
    op: TensorOp = as_op(x)
    widths = tuple(
        (int(pair), int(pair)) if hasattr(pair, "__index__") else (int(pair[0]), int(pair[1]))
        for pair in paddings
    )
    if not any(map(any, widths)) and len(widths) == op.rank:
        return op
    fill = dtypes.host_array(value, op.dtype, what="padding").item()
    return PadOp(op, widths=widths, fill=fill)


def concat(tensors: Sequence[Any], axis: Any = 0) -> TensorOp:
    """Return tensors one after the other along an axis, given as an axis, name or place.

    Named tensors are brought into the axis order of the first; dtypes are promoted.
    """
    xs = _listed("concat", tensors)
    dtype = xs[0].dtype
    for x in xs[1:]:
        dtype = dtypes.promote(dtype, x.dtype)
    first = xs[0]
    name = getattr(axis, "name", axis)
    position = first.axes.position(name)
    if first.axes.is_named:
        xs = [transpose(x, [mine.name for mine in first.axes]) for x in xs]
    return ConcatOp(*(operators["cast"](x, dtype) for x in xs), position=position)


concat_along_axis = concat


def _listed(function: str, tensors: Any) -> list[TensorOp]:
    if isinstance(tensors, Op) or not isinstance(tensors, Iterable):
        problem = f"{function} takes a list of tensors: {function}([x, y])"
        raise ArgumentError(explain(function, problem, [tensors]))
    xs = [as_op(x) for x in tensors]
    if not xs:
        raise ArgumentError(f"{function} needs at least one tensor")
    return xs


def stack(tensors: Sequence[Any], axis: Any = None, pos: int = 0) -> TensorOp:
    """Return tensors of equal axes along a new axis at place `pos`.

    A named `axis` must have the number of tensors as its length.
    """
    xs = _listed("stack", tensors)
    if isinstance(axis, int):
        raise ArgumentError(f"stack: axis= is the new axis, for its place say pos={axis}")
    new = Axis(len(xs)) if axis is None else make_axes(axis)[0]
    if new.length != len(xs):
        raise AxesError(f"axis {new!r} cannot number {len(xs)} tensors")
    one = Axis(1, new.name)
    place = pos % (xs[0].rank + 1)
    result = concat([expand_dims(broadcast(x, xs[0].axes), one, place) for x in xs], place)
    return cast_axes(result, Axes((*result.axes[:place], new, *result.axes[place + 1 :])))


def one_hot(x: Any, axis: Any, dtype: Any = dtypes.DEFAULT) -> TensorOp:
    """Return 1 where the index along a new first axis equals the element, else 0.

    An element outside the axis gives zeros only. `axis` is an axis, or a number of classes.
    """
    x, new = as_op(x), make_axes(axis)[0]
    if not dtypes.is_integer(x.dtype) or x.dtype.itemsize < dtypes.int32.itemsize:
        # In fewer bits the count along the axis could wrap around and meet an element twice.
        x = operators["cast"](x, dtypes.int32)
    if x.axes.is_named and new.name is None:
        problem = f"the new axis needs a name beside {x.axes}: give make_axis({new!r}, 'name')"
        raise AxesError(explain("one_hot", problem, (x,)))
    target = Axes((new, *x.axes))
    index = IotaOp(target_axes=target, target_dtype=x.dtype, position=0)
    spread = BroadcastOp(x, target_axes=target, dims=tuple(range(1, len(target))))
    return operators["cast"](operators["equal"](index, spread), dtypes.as_dtype(dtype))
