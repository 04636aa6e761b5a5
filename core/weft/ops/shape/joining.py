"""PadWidth, concatenation, stacking and one-hot encoding."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike

from weft.errors import ArgumentError, AxesError
from weft.ir import dtypes
from weft.ir.axes import Axes, AxesLike, Axis, AxisKey, make_axes
from weft.ir.dtypes import Array, DType, DTypeLike
from weft.ir.op import Op, explain
from weft.ir.storage import as_op, constant
from weft.ir.tensor import CompositeOp, TensorLike, TensorOp, operators
from weft.ops.indexing.slicing import Bounds, SliceOp, UpdateSliceOp, python_slices, with_lengths
from weft.ops.shape.movement import (
    BroadcastOp,
    IotaOp,
    broadcast,
    cast_axes,
    expand_dims,
    new_place,
    reshape,
    transpose,
)
from weft.support.backports import override

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
    """The operand padded with a constant.

    Attributes
    ----------
    widths
        For each axis the number of elements before and after.
    fill
        The padding value.
    """

    widths: tuple[tuple[int, int], ...]
    fill: float

    @override
    def infer(self) -> tuple[Axes, DType]:
        (x,) = self.args
        if len(self.widths) != x.rank or any(min(pair) < 0 for pair in self.widths):
            raise AxesError(
                f"padding {self.widths} must be a pair of numbers >= 0 for each of {x.axes}"
            )
        lengths = (
            before + axis.length + after
            for axis, (before, after) in zip(x.axes, self.widths, strict=True)
        )
        return with_lengths(x.axes, lengths), x.dtype

    @override
    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        return (SliceOp(delta, bounds=self.inner_bounds(x.axes)),)

    def inner_bounds(self, axes: Axes) -> Bounds:
        """Return the slice of the result that is the operand."""
        return tuple(
            (before, axis.length, 1) for axis, (before, _) in zip(axes, self.widths, strict=True)
        )

    @override
    def decompose(self, x: TensorOp) -> TensorOp:
        around = broadcast(constant(self.fill, dtype=x.dtype), self.axes)
        return UpdateSliceOp(around, x, bounds=self.inner_bounds(x.axes))

    @override
    def reference(self, x: Array) -> Any:
        result = np.full(self.axes.shape, self.fill, np.asarray(x).dtype)
        result[python_slices(self.inner_bounds(make_axes(np.shape(x))))] = x
        return result


class ConcatOp(TensorOp):
    """The concatenation of tensors along one axis.

    Attributes
    ----------
    position
        The position of that axis.
    """

    position: int

    def infer(self) -> tuple[Axes, DType]:
        """Sum the lengths along the axis, and check that all others agree."""
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
        """Return the slice of the result for each operand."""
        start: Any = 0
        found = []
        for x in self.args:
            bounds: list[tuple[Any, Any, int]] = [(0, axis.length, 1) for axis in x.axes]
            length = x.axes[self.position].length
            bounds[self.position] = (start, length, 1)
            start = start + length
            found.append(tuple(bounds))
        return found

    @override
    def generate_adjoints(self, delta: TensorOp, *args: TensorOp) -> list[TensorOp]:
        return [
            cast_axes(SliceOp(delta, bounds=bounds), x.axes)
            for x, bounds in zip(args, self.parts(), strict=True)
        ]

    @override
    def reference(self, *args: Any) -> Any:
        return np.concatenate(args, axis=self.position)


PadWidth = SupportsIndex | Sequence[SupportsIndex]
"""The numbers of elements before and after along an axis, or one number for both."""


def pad(
    x: TensorLike,
    paddings: Sequence[PadWidth] | Mapping[Any, PadWidth],
    value: ArrayLike = 0.0,
    mode: str = "constant",
) -> TensorOp:
    """Return the tensor padded with a value, or with elements of its own.

    Parameters
    ----------
    x
        The operand.
    paddings
        For each axis the numbers of elements before and after, or one number for both; or a
        dictionary from axes to these.
    value
        The value of constant padding.
    mode
        What stands in the padding:

        * ``constant``: the value;
        * ``edge`` (or ``replicate``): the edge element;
        * ``reflect``: the reflection, without the edge element;
        * ``symmetric``: the reflection, with the edge element;
        * ``wrap`` (or ``circular``): the elements of the opposite end.

    Returns
    -------
    TensorOp
        A tensor whose axes are longer.

    Raises
    ------
    AxesError
        If a padding is negative, or an axis has too few elements; `reflect` needs one more than the
        padding.
    ArgumentError
        If there is no such mode, the value is not a scalar or the mode takes none, or paddings are
        not numbers and pairs of them, one for each axis.

    Examples
    --------
    >>> x = np.array([1, 2, 3])
    >>> weft.jit(lambda x: weft.pad(x, [(1, 2)]))(x)
    array([0, 1, 2, 3, 0, 0])
    >>> weft.jit(lambda x: weft.pad(x, [2], mode="reflect"))(x)
    array([3, 2, 1, 2, 3, 2, 1])
    """
    op: TensorOp = as_op(x)
    widths = _widths(op, paddings)
    mode = _SAME_MODE.get(mode, mode) if isinstance(mode, str) else repr(mode)
    fill = dtypes.host_array(value, op.dtype, what="padding")
    problem = None
    if mode != "constant" and mode not in _BORDERS:
        known = ", ".join(["constant", *_BORDERS, *_SAME_MODE])
        problem = f"unknown mode of padding {mode!r}: use one of {known}"
    elif fill.shape:
        problem = f"the value must be a scalar, not an array of shape {fill.shape}"
    elif mode != "constant" and fill:
        problem = f"padding by {mode} takes no value, got {value!r}"
    if problem is not None:
        raise ArgumentError(explain("pad", problem, (op,)))
    if mode == "constant":
        return PadOp(op, widths=widths, fill=fill.item()) if any(map(any, widths)) else op
    for place, pair in enumerate(widths):
        if any(pair):
            op = _bordered(op, place, pair, mode)
    return op


_SAME_MODE = {"replicate": "edge", "circular": "wrap"}
"""PyTorch's names of modes."""

_BORDERS: dict[str, tuple[int, Callable[[Any, int, int], Bounds]]] = {
    "edge": (1, lambda n, before, after: ((0, 1, 1), (n - 1, 1, 1))),
    "reflect": (1, lambda n, before, after: ((before, before, -1), (n - 2, after, -1))),
    "symmetric": (0, lambda n, before, after: ((before - 1, before, -1), (n - 1, after, -1))),
    "wrap": (0, lambda n, before, after: ((n - before, before, 1), (0, after, 1))),
}
"""For each mode, the elements needed beyond the padding, and the bounds of both borders."""


def _widths(
    x: TensorOp, paddings: Sequence[PadWidth] | Mapping[Any, PadWidth]
) -> tuple[tuple[int, int], ...]:
    """Return the padding before and after each axis."""
    if isinstance(paddings, Mapping):
        given = {x.axes.position(axis): pair for axis, pair in paddings.items()}
        paddings = [given.get(place, 0) for place in range(x.rank)]
    if not isinstance(paddings, Sequence) or len(paddings) != x.rank:
        problem = f"paddings must be a list of a number or a pair for each axis, not {paddings!r}"
        raise ArgumentError(explain("pad", problem, (x,)))
    return tuple(_width(x, pair) for pair in paddings)


def _width(x: TensorOp, pair: Any) -> tuple[int, int]:
    both = (pair, pair) if hasattr(pair, "__index__") else pair
    is_pair = isinstance(both, Sequence) and len(both) == 2
    if not is_pair or not all(hasattr(n, "__index__") and not isinstance(n, bool) for n in both):
        raise ArgumentError(
            explain("pad", f"padding is a number, or a pair of numbers, not {pair!r}", (x,))
        )
    if min(both) < 0:
        raise AxesError(explain("pad", f"padding must be at least 0, not {pair!r}", (x,)))
    return int(both[0]), int(both[1])


def _bordered(x: TensorOp, place: int, pair: tuple[int, int], mode: str) -> TensorOp:
    """Return the tensor padded along one axis with elements of its own."""
    length = x.axes[place].length
    surplus, borders = _BORDERS[mode]
    needed = 1 if mode == "edge" else max(pair) + surplus
    if isinstance(length, int) and length < needed:
        problem = f"padding {x.axes[place]!r} of {x.axes} by {mode} needs {needed} elements"
        raise AxesError(explain("pad", problem, (x,)))
    before, after = (
        _border(x, place, bound, count) if count else None
        for bound, count in zip(borders(length, *pair), pair, strict=True)
    )
    return ConcatOp(*(part for part in (before, x, after) if part is not None), position=place)


def _border(x: TensorOp, place: int, bound: tuple[Any, Any, int], count: int) -> TensorOp:
    bounds: list[tuple[Any, Any, int]] = [(0, axis.length, 1) for axis in x.axes]
    bounds[place] = bound
    border = SliceOp(x, bounds=tuple(bounds))
    lengths = list(border.axes.lengths)
    if lengths[place] == count:
        return border
    lengths[place] = count
    target = with_lengths(x.axes, lengths)
    return BroadcastOp(border, target_axes=target, dims=tuple(range(x.rank)))


def concat(tensors: Sequence[Any], axis: AxisKey | None = 0) -> TensorOp:
    """Return the concatenation of tensors along an axis.

    Parameters
    ----------
    tensors
        A list of tensors. Named ones are transposed to the order of the first.
    axis
        The axis: a position, an axis or its name. With None each tensor is flattened before.

    Returns
    -------
    TensorOp
        A tensor in the promoted dtype of the tensors.

    Raises
    ------
    AxesError
        If there is no such axis, or the other axes differ.
    ArgumentError
        If there is no tensor, or one is given in place of a list.

    Examples
    --------
    >>> x, y = np.array([[1, 2]]), np.array([[3, 4]])
    >>> weft.jit(lambda x, y: weft.concat([x, y]))(x, y)
    array([[1, 2],
           [3, 4]])
    >>> weft.jit(lambda x, y: weft.concat([x, y], axis=1))(x, y)
    array([[1, 2, 3, 4]])
    """
    xs = _listed("concat", tensors)
    if axis is None:
        xs, axis = [reshape(x, -1) for x in xs], 0
    dtype = xs[0].dtype
    for x in xs[1:]:
        dtype = dtypes.promote(dtype, x.dtype)
    first = xs[0]
    name = getattr(axis, "name", axis)
    position = first.axes.position(name)
    if first.axes.is_named:
        xs = [transpose(x, list(map(str, first.axes.names))) for x in xs]
    return ConcatOp(*(operators["cast"](x, dtype) for x in xs), position=position)


concat_along_axis = concat


def _listed(function: str, tensors: Iterable[TensorLike]) -> list[TensorOp]:
    if isinstance(tensors, Op) or not isinstance(tensors, Iterable):
        problem = f"{function} takes a list of tensors: {function}([x, y])"
        raise ArgumentError(explain(function, problem, [tensors]))
    xs = [as_op(x) for x in tensors]
    if not xs:
        raise ArgumentError(f"{function} needs at least one tensor")
    return xs


def stack(tensors: Sequence[Any], axis: AxesLike | None = None, pos: int = 0) -> TensorOp:
    """Return tensors of equal axes stacked along a new axis.

    Parameters
    ----------
    tensors
        A list of tensors.
    axis
        The new axis, whose length is their number; by default a positional one. An integer is its
        position, as in NumPy.
    pos
        The position of the new axis in the result, where `axis` is not that.

    Returns
    -------
    TensorOp
        A tensor with one axis more, in the promoted dtype of the tensors.

    Raises
    ------
    AxesError
        If their axes differ, the new axis has another length, or there is no such position.
    ArgumentError
        If there is no tensor, or one is given in place of a list.

    Examples
    --------
    >>> x, y = np.array([1, 2]), np.array([3, 4])
    >>> weft.jit(lambda x, y: weft.stack([x, y]))(x, y)
    array([[1, 2],
           [3, 4]])
    >>> weft.jit(lambda x, y: weft.stack([x, y], axis=1))(x, y)
    array([[1, 3],
           [2, 4]])
    """
    xs = _listed("stack", tensors)
    if isinstance(axis, int):
        pos, axis = axis, None
    if not all(xs[0].axes.agrees_with(x.axes) for x in xs):
        problem = "only tensors of equal axes can be stacked: broadcast() them first"
        raise AxesError(explain("stack", problem, xs))
    new = Axis(len(xs)) if axis is None else make_axes(axis)[0]
    if new.length != len(xs):
        raise AxesError(f"axis {new!r} must have length {len(xs)}, the number of tensors")
    one = Axis(1, new.name)
    place = new_place("stack", xs[0], pos)
    result = concat([expand_dims(broadcast(x, xs[0].axes), one, place) for x in xs], place)
    return cast_axes(result, Axes((*result.axes[:place], new, *result.axes[place + 1 :])))


def one_hot(
    x: TensorLike,
    axis: AxesLike,
    dtype: DTypeLike = dtypes.DEFAULT,
    pos: int = 0,
    on_value: TensorLike = 1,
    off_value: TensorLike = 0,
) -> TensorOp:
    """Return the one-hot encoding of integers along a new axis.

    Parameters
    ----------
    x
        The integers. One outside of the new axis gives zeros only.
    axis
        The new axis, or the number of classes.
    dtype
        The dtype of the result.
    pos
        The position of the new axis in the result; by default it is the first.
    on_value, off_value
        What stands for 1 and 0.

    Returns
    -------
    TensorOp
        A tensor with one axis more.

    Raises
    ------
    AxesError
        If the new axis of a named tensor lacks a name, or there is no such position.

    Examples
    --------
    >>> weft.jit(lambda x: weft.one_hot(x, 3, pos=-1))(np.array([0, 2]))
    array([[1., 0., 0.],
           [0., 0., 1.]], dtype=float32)
    """
    x, new = as_op(x), make_axes(axis)[0]
    if not dtypes.is_integer(x.dtype) or x.dtype.itemsize < dtypes.int32.itemsize:
        # In a narrower dtype the index along the axis could wrap around and match twice.
        x = operators["cast"](x, dtypes.int32)
    if x.axes.is_named and new.name is None:
        problem = f"the new axis of {x.axes} needs a name: give make_axis({new!r}, 'name')"
        raise AxesError(explain("one_hot", problem, (x,)))
    place = new_place("one_hot", x, pos)
    target = Axes((*x.axes[:place], new, *x.axes[place:]))
    index = IotaOp(target_axes=target, target_dtype=x.dtype, position=place)
    dims = tuple(d if d < place else d + 1 for d in range(x.rank))
    is_hot = operators["equal"](index, BroadcastOp(x, target_axes=target, dims=dims))
    if (on_value, off_value) == (1, 0):
        return operators["cast"](is_hot, dtypes.as_dtype(dtype))
    return operators["where"](is_hot, as_op(on_value, dtype), as_op(off_value, dtype))


operators["stack"] = stack
