"""Views and movement: the same elements under other axes, in another order, or put together."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from weft import dtypes
from weft.axes import Axes, Axis, FlattenedAxis, make_axes
from weft.description import TensorDescription
from weft.dtypes import DType
from weft.errors import ArgumentError, AxesError
from weft.lengths import Length, floor_divide, product
from weft.op import CompositeOp, Op, TensorOp, explain, operators
from weft.ops.storage import as_op, constant

Bounds = tuple[tuple[Any, Any, int], ...]


class ReshapeOp(TensorOp):
    """The elements in row-major order under other axes of the same size.

    Attributes
    ----------
    target_axes
        The axes of the result.
    """

    target_axes: Axes

    def infer(self) -> tuple[Axes, DType]:
        """Check that the sizes agree."""
        (x,) = self.args
        if x.axes.size != self.target_axes.size:
            raise AxesError(
                f"{x.axes} has {x.axes.size} elements, {self.target_axes} {self.target_axes.size}"
            )
        return self.target_axes, x.dtype

    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Give the adjoint the operand's axes."""
        return (cast_axes(delta, x.axes),)

    def reference(self, x: Any) -> Any:
        """Reshape in row-major order."""
        return np.reshape(x, self.axes.shape)

    def view(self, operand: TensorDescription) -> TensorDescription | None:
        """A view where the operand's strides allow it."""
        return operand.cast(self.axes.shape)


class TransposeOp(TensorOp):
    """The axes in another order.

    Attributes
    ----------
    permutation
        For each axis of the result, its place in the operand.
    """

    permutation: tuple[int, ...]

    def infer(self) -> tuple[Axes, DType]:
        """Permute the axes."""
        (x,) = self.args
        if sorted(self.permutation) != list(range(x.rank)):
            raise AxesError(f"{self.permutation} does not permute the {x.rank} axes {x.axes}")
        return Axes(x.axes[place] for place in self.permutation), x.dtype

    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Permute back."""
        inverse = tuple(map(int, np.argsort(self.permutation)))
        return (TransposeOp(delta, permutation=inverse),)

    def reference(self, x: Any) -> Any:
        """Transpose."""
        return np.transpose(x, self.permutation)

    def view(self, operand: TensorDescription) -> TensorDescription:
        """Always a view."""
        return operand.transpose(self.permutation)


class BroadcastOp(TensorOp):
    """The operand repeated along new axes and along axes of length 1.

    Attributes
    ----------
    target_axes
        The axes of the result.
    dims
        For each axis of the operand, its place in the result; increasing.
    """

    target_axes: Axes
    dims: tuple[int, ...]

    def infer(self) -> tuple[Axes, DType]:
        """Check that each axis keeps its length or had length 1."""
        (x,) = self.args
        increasing = all(a < b for a, b in zip(self.dims, self.dims[1:], strict=False))
        if len(self.dims) != x.rank or not increasing:
            raise AxesError(f"{self.dims} does not place the {x.rank} axes {x.axes} in order")
        for axis, place in zip(x.axes, self.dims, strict=True):
            if axis.length not in (1, self.target_axes[place].length):
                raise AxesError(f"{x.axes} does not broadcast to {self.target_axes}")
        return self.target_axes, x.dtype

    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Sum over what was repeated."""
        kept = {
            place
            for axis, place in zip(x.axes, self.dims, strict=True)
            if axis.length == self.target_axes[place].length
        }
        gone = tuple(place for place in range(self.rank) if place not in kept)
        return (cast_axes(operators["sum_over"](delta, gone), x.axes),)

    def reference(self, x: Any) -> Any:
        """Insert dimensions of length 1, then broadcast."""
        shape = [1] * self.rank
        for place, length in zip(self.dims, np.shape(x), strict=True):
            shape[place] = length
        return np.broadcast_to(np.reshape(x, shape), self.axes.shape)

    def view(self, operand: TensorDescription) -> TensorDescription:
        """Always a view, with stride 0 where elements repeat."""
        return operand.broadcast(self.axes.shape, self.dims)


class SliceOp(TensorOp):
    """Evenly spaced elements along each axis.

    Attributes
    ----------
    bounds
        For each axis ``(start, length, step)``: elements ``start + i * step`` for ``i < length``.
    """

    bounds: Bounds

    def infer(self) -> tuple[Axes, DType]:
        """Give each axis its new length and keep its name."""
        (x,) = self.args
        if len(self.bounds) != x.rank:
            raise AxesError(f"{len(self.bounds)} slices for the {x.rank} axes {x.axes}")
        return _sliced_axes(x.axes, self.bounds), x.dtype

    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Put the adjoint into zeros."""
        return (UpdateSliceOp(zeros_like(x), delta, bounds=self.bounds),)

    def reference(self, x: Any) -> Any:
        """Slice."""
        return x[python_slices(self.bounds)]

    def view(self, operand: TensorDescription) -> TensorDescription:
        """Always a view."""
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
        """Check that the second operand has the slice's axes."""
        x, value = self.args
        wanted = _sliced_axes(x.axes, self.bounds)
        if value.axes != wanted or value.dtype != x.dtype:
            raise AxesError(f"a slice of {x.dtype} {wanted} cannot take {value.dtype} {value.axes}")
        return x.axes, x.dtype

    def may_overwrite(self, index: int) -> bool:
        """The slice can be written into the first operand."""
        return index == 0

    def generate_adjoints(self, delta: TensorOp, x: TensorOp, value: TensorOp) -> Any:
        """Cut the slice out of the adjoint for the second, and zero it for the first."""
        zeros = zeros_like(value)
        return UpdateSliceOp(delta, zeros, bounds=self.bounds), SliceOp(delta, bounds=self.bounds)

    def reference(self, x: Any, value: Any) -> Any:
        """Copy and assign the slice."""
        result = np.array(x)
        result[python_slices(self.bounds)] = value
        return result


class PadOp(TensorOp):
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


class IdentityOp(TensorOp):
    """The operand itself; subclasses say why it is an op of its own."""

    def infer(self) -> tuple[Axes, DType]:
        """Keep axes and dtype."""
        return self.args[0].axes, self.args[0].dtype

    def reference(self, x: Any) -> Any:
        """Pass the operand on."""
        return x

    def view(self, operand: TensorDescription) -> TensorDescription | None:
        """The operand's own memory."""
        return operand

    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp | None]:
        """Pass the adjoint on."""
        return (delta,)


class ContiguousOp(IdentityOp):
    """A copy of the operand in row-major order."""

    def reference(self, x: Any) -> Any:
        """Copy."""
        return np.array(x, order="C")

    def view(self, operand: TensorDescription) -> None:
        """Never a view."""


class IotaOp(TensorOp):
    """The index along one axis, counted from 0.

    Attributes
    ----------
    target_axes, target_dtype
        What the result is.
    position
        The place of the axis that counts.
    """

    target_axes: Axes
    target_dtype: DType
    position: int

    def infer(self) -> tuple[Axes, DType]:
        """Take the declared axes and dtype."""
        return self.target_axes, self.target_dtype

    def reference(self) -> Any:
        """Count along the axis."""
        shape = [1] * self.rank
        shape[self.position] = -1
        count = np.arange(self.axes.shape[self.position], dtype=self.dtype)
        return np.broadcast_to(count.reshape(shape), self.axes.shape)


class SizeOp(CompositeOp):
    """The number of elements of some axes as a scalar; a constant once the lengths are known.

    Attributes
    ----------
    counted
        The axes whose lengths are multiplied.
    target_dtype
        The dtype of the result.
    """

    counted: Axes
    target_dtype: DType

    def infer(self) -> tuple[Axes, DType]:
        """Be a scalar."""
        return Axes(), self.target_dtype

    def decompose(self) -> TensorOp:
        """Be the constant."""
        return constant(self.counted.size, dtype=self.dtype)

    def reference(self) -> Any:
        """Multiply the lengths."""
        return np.asarray(product(self.counted.shape), self.dtype)


def with_lengths(axes: Axes, lengths: Any) -> Axes:
    """Return axes of the same names with other lengths; an axis that keeps its length is kept."""
    return Axes(
        axis if axis.length == length else Axis(length, axis.name)
        for axis, length in zip(axes, lengths, strict=True)
    )


def python_slices(bounds: Bounds) -> tuple[slice, ...]:
    """Return bounds as slices that Python indexing takes."""
    slices = []
    for start, length, step in bounds:
        stop = start + length * step
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


def zeros_like(x: TensorOp) -> TensorOp:
    """Return zeros with the axes and dtype of a tensor."""
    return broadcast(constant(0, dtype=x.dtype), x.axes)


def reshape(x: Any, shape: Any) -> TensorOp:
    """Return the elements in row-major order under other axes; one size may be -1."""
    x = as_op(x)
    if isinstance(shape, Axes):
        return cast_axes(x, shape)
    if isinstance(shape, Axis | int | Length):
        shape = (shape,)
    sizes = list(shape)
    if sizes.count(-1) > 1:
        raise AxesError(f"only one of the sizes {tuple(sizes)} may be -1")
    if -1 in sizes:
        free = sizes.index(-1)
        rest = product(
            size.length if isinstance(size, Axis) else size
            for place, size in enumerate(sizes)
            if place != free
        )
        sizes[free] = floor_divide(x.axes.size, rest) if rest else 0
    return cast_axes(x, sizes)


def cast_axes(x: Any, axes: Any) -> TensorOp:
    """Return the same elements under other axes of the same size, in row-major order."""
    op: TensorOp = as_op(x)
    target = make_axes(axes)
    return op if op.axes == target else ReshapeOp(op, target_axes=target)


def cast_role(x: Any, axes: Any) -> TensorOp:
    """Return the tensor with other axes of the same lengths, as under new names."""
    x = as_op(x)
    target = make_axes(axes)
    if x.axes.lengths != target.lengths:
        raise AxesError(x.explain(f"cast_role keeps lengths, but {x.axes} and {target} differ"))
    return cast_axes(x, target)


def map_roles(x: Any, mapping: Mapping[Any, Any]) -> TensorOp:
    """Return the tensor with axes renamed; keys and values are axes or names."""
    x = as_op(x)
    names = {getattr(old, "name", old): getattr(new, "name", new) for old, new in mapping.items()}
    for name in names:
        x.axes.position(name)
    renamed = Axes(Axis(axis.length, names.get(axis.name, axis.name)) for axis in x.axes)
    return cast_axes(x, renamed)


def transpose(x: Any, axes: Any = None) -> TensorOp:
    """Return the axes in another order, given as axes, names or places; reversed by default."""
    x = as_op(x)
    places = tuple(reversed(range(x.rank))) if axes is None else x.axes.positions(axes)
    if len(places) != x.rank:
        raise AxesError(x.explain(f"transpose needs all of {x.axes}, but got {axes}"))
    return x if places == tuple(range(x.rank)) else TransposeOp(x, permutation=places)


def axes_with_order(x: Any, axes: Any) -> TensorOp:
    """Return the tensor with the same axes in the given order."""
    return transpose(x, make_axes(axes))


def broadcast(x: Any, axes: Any) -> TensorOp:
    """Return the tensor repeated over axes; those it has are aligned by name or from the right."""
    op: TensorOp = as_op(x)
    target = make_axes(axes)
    if op.axes == target:
        return op
    if not op.axes:
        return BroadcastOp(op, target_axes=target, dims=())
    if op.axes.is_named != target.is_named or op.rank > len(target):
        raise AxesError(op.explain(f"{op.axes} cannot be broadcast to {target}"))
    if not op.axes.is_named:
        head = len(target) - op.rank
        return BroadcastOp(op, target_axes=target, dims=tuple(range(head, len(target))))
    places = target.positions(op.axes)
    if list(places) != sorted(places):
        op = transpose(op, tuple(map(int, np.argsort(places))))
    if len(places) == len(target):
        return op
    return BroadcastOp(op, target_axes=target, dims=tuple(sorted(places)))


def expand_dims(x: Any, axis: Any = None, dim: int = 0) -> TensorOp:
    """Return the tensor with one more axis at place `dim`, repeated along it.

    Without an `axis` the new one is positional and has length 1.
    """
    x = as_op(x)
    new = Axis(1) if axis is None else make_axes(axis)[0]
    if not -x.rank - 1 <= dim <= x.rank:
        raise AxesError(x.explain(f"place {dim} is out of range for a new axis of {x.axes}"))
    place = dim % (x.rank + 1)
    target = Axes((*x.axes[:place], new, *x.axes[place:]))
    if new.length == 1:
        return cast_axes(x, target)
    dims = tuple(d if d < place else d + 1 for d in range(x.rank))
    return BroadcastOp(x, target_axes=target, dims=dims)


def flatten(x: Any) -> TensorOp:
    """Return the tensor with all its axes flattened into one, which remembers them."""
    x = as_op(x)
    return cast_axes(x, Axes((x.axes.flatten(),)))


def flatten_at(x: Any, place: int) -> TensorOp:
    """Return the axes before `place` flattened into one, and the rest into another."""
    x = as_op(x)
    if place in (0, x.rank):
        return flatten(x)
    return cast_axes(x, Axes((x.axes[:place].flatten(), x.axes[place:].flatten())))


def unflatten(x: Any) -> TensorOp:
    """Return the tensor with every flattened axis split into the axes it stands for."""
    x = as_op(x)
    axes: list[Axis] = []
    for axis in x.axes:
        axes.extend(axis.axes if isinstance(axis, FlattenedAxis) else (axis,))
    return cast_axes(x, Axes(axes))


def contiguous(x: Any) -> TensorOp:
    """Return a copy in row-major order."""
    return ContiguousOp(as_op(x))


def bounds_of(item: slice, length: Any, what: str) -> tuple[Any, Any, int]:
    """Return a Python slice of an axis as ``(start, length, step)``.

    Of an unknown length, only starts and stops counted from one end by integers can be taken, with
    step 1 or -1.
    """
    for bound in (item.start, item.stop, item.step):
        if not (bound is None or isinstance(bound, Length) or _as_index(bound) is not None):
            raise ArgumentError(f"a slice of {what} goes from integer to integer, not {bound!r}")
    step = 1 if item.step is None else int(item.step)
    if step == 0:
        raise ArgumentError(f"the step of the slice of {what} must not be 0")
    if isinstance(length, int):
        start, stop, _ = slice(_index(item.start), _index(item.stop), step).indices(length)
        return start, max(0, -(-(stop - start) // step)), step
    backwards = step < 0
    start = _from_end(item.start, length, length - 1 if backwards else 0)
    stop = _from_end(item.stop, length, -1 if backwards else length)
    return start, floor_divide(stop - start + step - (1 if step > 0 else -1), step), step


def _index(bound: Any) -> int | None:
    return None if bound is None else int(bound.__index__())


def _from_end(bound: Any, length: Any, default: Any) -> Any:
    if bound is None:
        return default
    return bound + length if isinstance(bound, int) and bound < 0 else bound


def tensor_slice(x: Any, slices: Sequence[Any], axes: Any = None) -> TensorOp:
    """Return a slice of the tensor: one slice or index for each axis; an index drops its axis.

    `axes` renames what is left. Raises AxesError for an index out of range.
    """
    x = as_op(x)
    bounds, dropped = _bounds_and_dropped(x, slices)
    result = x
    if any(bound != (0, n, 1) for bound, n in zip(bounds, x.axes.lengths, strict=True)):
        result = SliceOp(x, bounds=bounds)
    kept = Axes(axis for place, axis in enumerate(result.axes) if place not in dropped)
    return cast_axes(result, kept if axes is None else make_axes(axes))


def _bounds_and_dropped(x: TensorOp, slices: Sequence[Any]) -> tuple[Bounds, set[int]]:
    if not isinstance(slices, Sequence):
        raise ArgumentError(x.explain(f"slices must list one for each axis, not {slices!r}"))
    slices = tuple(slices)
    if any(part is None for part in slices):
        raise ArgumentError(x.explain(f"None is no index of {x.axes}: expand_dims adds an axis"))
    if any(part is Ellipsis for part in slices):
        place = next(i for i, part in enumerate(slices) if part is Ellipsis)
        fill = (slice(None),) * (x.rank - len(slices) + 1)
        slices = (*slices[:place], *fill, *slices[place + 1 :])
    if len(slices) > x.rank:
        raise AxesError(x.explain(f"{len(slices)} indices for the {x.rank} axes {x.axes}"))
    slices += (slice(None),) * (x.rank - len(slices))
    bounds: list[tuple[Any, Any, int]] = []
    dropped = set()
    for place, (item, axis) in enumerate(zip(slices, x.axes, strict=True)):
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
        return None if isinstance(item, bool) else operator.index(item)
    except TypeError:
        return None


def _instead_of(item: Any) -> str:
    if not hasattr(item, "dtype") and not isinstance(item, list):
        return repr(item)
    what = f"{type(item).__name__} of {item.dtype}" if hasattr(item, "dtype") else "a list"
    return f"{what}: where() chooses by a mask, dot() with a one_hot() takes elements by index"


def getitem(x: TensorOp, item: Any) -> TensorOp:
    """Return ``x[item]`` for integers, slices and an ellipsis."""
    return tensor_slice(x, item if isinstance(item, tuple) else (item,))


def slice_along_axis(x: Any, axis: Any, index: int) -> TensorOp:
    """Return the tensor at one index of an axis, which is dropped."""
    x = as_op(x)
    slices: list[Any] = [slice(None)] * x.rank
    slices[x.axes.position(axis)] = index
    return tensor_slice(x, slices)


def update_slice(x: Any, slices: Sequence[Any], value: Any) -> TensorOp:
    """Return the tensor with a slice of it replaced by a value, which is broadcast and cast."""
    x = as_op(x)
    bounds, dropped = _bounds_and_dropped(x, slices)
    cut = _sliced_axes(x.axes, bounds)
    kept = Axes(axis for place, axis in enumerate(cut) if place not in dropped)
    value = operators["cast"](as_op(value), x.dtype)
    return UpdateSliceOp(x, cast_axes(broadcast(value, kept), cut), bounds=bounds)


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


def scalar_value(op: Op) -> complex | None:
    """Return the number that a scalar constant, or one repeated over axes, holds; else None."""
    source = op.args[0] if isinstance(op, BroadcastOp) else op
    if source.is_constant and source.is_scalar:
        value: complex = np.asarray(source.const).item()
        return value
    return None


def size_of(axes: Axes, dtype: DType) -> TensorOp:
    """Return the number of elements of axes as a scalar, known at once or at a call."""
    if axes.is_static:
        return constant(axes.size, dtype=dtype)
    return SizeOp(counted=axes, target_dtype=dtype)


operators.update(transpose=transpose, getitem=getitem)
