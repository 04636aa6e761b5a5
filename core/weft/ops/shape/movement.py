"""Views and data movement: reshape, transpose, broadcast, copy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import index
from typing import Any, SupportsIndex

import numpy as np

from weft.errors import ArgumentError, AxesError
from weft.ir.axes import Axes, AxesLike, Axis, AxisKeys, FlattenedAxis, make_axes
from weft.ir.description import TensorDescription
from weft.ir.dtypes import Array, DType
from weft.ir.guards import is_traced
from weft.ir.lengths import Length, floor_divide, product
from weft.ir.op import Op, explain
from weft.ir.storage import as_op, constant
from weft.ir.tensor import CompositeOp, TensorLike, TensorOp, operators
from weft.ops.keywords import also_takes
from weft.support.backports import override

__all__ = [
    "BroadcastOp",
    "ContiguousOp",
    "IdentityOp",
    "IotaOp",
    "ReshapeOp",
    "SizeOp",
    "Transpose",
    "TransposeOp",
    "axes_with_order",
    "broadcast",
    "broadcast_to",
    "cast_axes",
    "cast_role",
    "contiguous",
    "expand_dims",
    "flatten",
    "flatten_at",
    "map_roles",
    "permute_dims",
    "ravel",
    "reshape",
    "transpose",
    "unflatten",
]


class ReshapeOp(TensorOp):
    """The operand reshaped, in row-major order, to axes of the same size.

    Attributes
    ----------
    target_axes
        The axes of the result.
    """

    target_axes: Axes

    @override
    def infer(self) -> tuple[Axes, DType]:
        (x,) = self.args
        if x.axes.size != self.target_axes.size:
            raise AxesError(
                f"{x.axes} has {x.axes.size} elements, {self.target_axes} {self.target_axes.size}"
            )
        return self.target_axes, x.dtype

    @override
    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        return (cast_axes(delta, x.axes),)

    @override
    def reference(self, x: Array) -> Any:
        return np.reshape(x, self.axes.shape)

    def view(self, operand: TensorDescription) -> TensorDescription | None:
        """Return the reshaped layout if the operand's strides allow it, else None."""
        return operand.cast(self.axes.shape)


class TransposeOp(TensorOp):
    """The operand with its axes permuted.

    Attributes
    ----------
    permutation
        For each axis of the result, its position in the operand.
    """

    permutation: tuple[int, ...]

    @override
    def infer(self) -> tuple[Axes, DType]:
        (x,) = self.args
        if sorted(self.permutation) != list(range(x.rank)):
            raise AxesError(f"{self.permutation} does not permute the {x.rank} axes {x.axes}")
        return Axes(x.axes[place] for place in self.permutation), x.dtype

    @override
    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        inverse = tuple(map(int, np.argsort(self.permutation)))
        return (TransposeOp(delta, permutation=inverse),)

    @override
    def reference(self, x: Array) -> Any:
        return np.transpose(x, self.permutation)

    @override
    def view(self, operand: TensorDescription) -> TensorDescription:
        return operand.transpose(self.permutation)


class BroadcastOp(TensorOp):
    """The operand broadcast along new axes and along axes of length 1.

    Attributes
    ----------
    target_axes
        The axes of the result.
    dims
        For each axis of the operand, its position in the result; increasing.
    """

    target_axes: Axes
    dims: tuple[int, ...]

    def infer(self) -> tuple[Axes, DType]:
        """Check that each axis keeps its length or has length 1."""
        (x,) = self.args
        increasing = all(a < b for a, b in zip(self.dims, self.dims[1:], strict=False))
        if len(self.dims) != x.rank or not increasing:
            raise AxesError(f"{self.dims} are not {x.rank} increasing positions for {x.axes}")
        for axis, place in zip(x.axes, self.dims, strict=True):
            if axis.length not in (1, self.target_axes[place].length):
                raise AxesError(f"{x.axes} does not broadcast to {self.target_axes}")
        return self.target_axes, x.dtype

    @override
    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        kept = {
            place
            for axis, place in zip(x.axes, self.dims, strict=True)
            if axis.length == self.target_axes[place].length
        }
        gone = tuple(place for place in range(self.rank) if place not in kept)
        return (cast_axes(operators["sum_over"](delta, gone), x.axes),)

    @override
    def reference(self, x: Array) -> Any:
        shape = [1] * self.rank
        for place, length in zip(self.dims, np.shape(x), strict=True):
            shape[place] = length
        return np.broadcast_to(np.reshape(x, shape), self.axes.shape)

    def view(self, operand: TensorDescription) -> TensorDescription:
        """Return the layout with stride 0 along broadcast axes."""
        return operand.broadcast(self.axes.shape, self.dims)


class IdentityOp(TensorOp):
    """The operand itself; subclasses add a meaning."""

    @override
    def infer(self) -> tuple[Axes, DType]:
        return self.args[0].axes, self.args[0].dtype

    @override
    def reference(self, x: Array, *others: Any) -> Any:
        return x

    @override
    def view(self, operand: TensorDescription) -> TensorDescription | None:
        return operand

    @override
    def generate_adjoints(self, delta: TensorOp, *args: TensorOp) -> tuple[TensorOp | None, ...]:
        return (delta, *(None for _ in args[1:]))


class ContiguousOp(IdentityOp):
    """A copy of the operand in row-major order."""

    @override
    def reference(self, x: Array, *others: Any) -> Any:
        return np.array(x, order="C")

    def view(self, operand: TensorDescription) -> None:
        """Return None: a copy is not a view."""


class IotaOp(TensorOp):
    """The index along one axis, from 0.

    Attributes
    ----------
    target_axes, target_dtype
        The axes and dtype of the result.
    position
        The position of the indexed axis.
    """

    target_axes: Axes
    target_dtype: DType
    position: int

    @override
    def infer(self) -> tuple[Axes, DType]:
        return self.target_axes, self.target_dtype

    @override
    def reference(self) -> Any:
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

    @override
    def infer(self) -> tuple[Axes, DType]:
        return Axes(), self.target_dtype

    @override
    def decompose(self) -> TensorOp:
        return constant(self.counted.size, dtype=self.dtype)

    @override
    def reference(self) -> Any:
        return np.asarray(product(self.counted.shape), self.dtype)


Transpose = TransposeOp


def zeros_like(x: TensorOp) -> TensorOp:
    """Return zeros with the axes and dtype of a tensor."""
    return broadcast(constant(0, dtype=x.dtype), x.axes)


def reshape(x: TensorLike, shape: AxesLike, *, copy: bool | None = None) -> TensorOp:
    """Return the tensor reshaped in row-major order.

    Parameters
    ----------
    x
        The operand.
    shape
        The sizes, or axes. One size may be -1: it is what the others leave. A single number makes
        one axis.
    copy
        Makes no difference, for a tensor never changes.

    Returns
    -------
    TensorOp
        A tensor of this shape, with the dtype of the operand.

    Raises
    ------
    AxesError
        If the sizes do not have as many elements together, or several are -1.

    Examples
    --------
    >>> weft.jit(lambda x: weft.reshape(x, (2, -1)))(np.arange(6))
    array([[0, 1, 2],
           [3, 4, 5]])
    """
    x = as_op(x)
    if isinstance(shape, Axes):
        return cast_axes(x, shape)
    if isinstance(shape, Axis | int | Length):
        shape = (shape,)
    if not isinstance(shape, Iterable):
        raise AxesError(explain("reshape", f"{shape!r} is not a shape", (x,)))
    sizes: list[Any] = [index(size) if isinstance(size, TensorOp) else size for size in shape]
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


def cast_axes(x: TensorLike, axes: AxesLike) -> TensorOp:
    """Return the tensor reshaped to axes of the same size, in row-major order.

    Parameters
    ----------
    x
        The operand.
    axes
        The axes, or the lengths of positional ones.

    Returns
    -------
    TensorOp
        A tensor of these axes, with the dtype of the operand.

    Raises
    ------
    AxesError
        If the axes have another size, or are the same named axes in another order, flattened or
        not: elements are not moved, so the names would refer to wrong elements.

    Examples
    --------
    >>> weft.jit(lambda x: weft.cast_axes(x, (3, 2)))(np.array([[1, 2, 3], [4, 5, 6]]))
    array([[1, 2],
           [3, 4],
           [5, 6]])
    """
    op: TensorOp = as_op(x)
    target = make_axes(axes)
    if op.axes.is_named and target.is_named and op.axes != target:
        mine, theirs = op.axes.unflattened(), target.unflattened()
        if mine != theirs and set(mine) == set(theirs):
            problem = (
                f"{op.axes} and {target} are the same axes in another order: use "
                "axes_with_order() to transpose, or map_roles() to rename"
            )
            raise AxesError(explain("cast_axes", problem, (op,)))
    return reshaped(op, target)


def reshaped(op: TensorOp, axes: Iterable[Axis]) -> TensorOp:
    """Return the elements in row-major order under other axes; the op itself for equal axes."""
    target = make_axes(axes)
    return op if op.axes == target else ReshapeOp(op, target_axes=target)


def with_names(op: TensorOp, value: TensorLike, axes: Axes) -> TensorOp:
    """Return the op of a value; an array of matching lengths gets the given axes."""
    is_array = not isinstance(value, TensorOp)
    return cast_axes(op, axes) if is_array and op.axes.lengths == axes.lengths else op


def cast_role(x: TensorLike, axes: AxesLike) -> TensorOp:
    """Return the tensor with its axes replaced by others of the same lengths.

    Parameters
    ----------
    x
        The operand.
    axes
        The axes, in the order of those that they replace.

    Returns
    -------
    TensorOp
        A tensor of these axes.

    Raises
    ------
    AxesError
        If the lengths differ.

    Examples
    --------
    >>> H, W = weft.make_axis(2, "H"), weft.make_axis(3, "W")
    >>> weft.cast_role(np.ones((2, 3)), (H, W)).axes
    Axes(H=2, W=3)
    """
    x = as_op(x)
    target = make_axes(axes)
    if x.axes.lengths != target.lengths:
        raise AxesError(x.explain(f"cast_role keeps lengths, but {x.axes} and {target} differ"))
    return reshaped(x, target)


def map_roles(x: TensorLike, mapping: Mapping[Any, Any]) -> TensorOp:
    """Return the tensor with axes renamed.

    Parameters
    ----------
    x
        The operand, with named axes.
    mapping
        A dictionary from axes or names to axes or names; the other axes keep theirs.

    Returns
    -------
    TensorOp
        A tensor of the renamed axes.

    Raises
    ------
    AxesError
        If the operand has no such axis.
    ArgumentError
        If the mapping is not a dictionary.

    Examples
    --------
    >>> x = weft.placeholder((weft.make_axis(2, "C"), weft.make_axis(3, "W")))
    >>> weft.map_roles(x, {"C": "K"}).axes
    Axes(K=2, W=3)
    """
    x = as_op(x)
    if not isinstance(mapping, Mapping):
        problem = f"new names are given in a dictionary, as {{'C': 'K'}}, not by {mapping!r}"
        raise ArgumentError(explain("map_roles", problem, (x,)))
    names = {getattr(old, "name", old): getattr(new, "name", new) for old, new in mapping.items()}
    for name in names:
        x.axes.position(name)
    renamed = Axes(Axis(axis.length, names.get(axis.name, axis.name)) for axis in x.axes)
    return reshaped(x, renamed)


def transpose(x: TensorLike, axes: AxisKeys | None = None) -> TensorOp:
    """Return the tensor with its axes permuted.

    Parameters
    ----------
    x
        The operand.
    axes
        All axes in their new order: positions, axes or names. By default the order is reversed.

    Returns
    -------
    TensorOp
        A tensor of the permuted axes.

    Raises
    ------
    AxesError
        If the operand has no such axis, or one is left out or given twice.

    Examples
    --------
    >>> x = np.array([[1, 2, 3], [4, 5, 6]])
    >>> weft.jit(weft.transpose)(x)
    array([[1, 4],
           [2, 5],
           [3, 6]])
    >>> weft.jit(lambda x: weft.transpose(x, (1, 0)))(x).shape
    (3, 2)
    """
    x = as_op(x)
    places = tuple(reversed(range(x.rank))) if axes is None else x.axes.positions(axes)
    if len(places) != x.rank:
        raise AxesError(x.explain(f"transpose needs all of {x.axes}, but got {axes}"))
    return x if places == tuple(range(x.rank)) else TransposeOp(x, permutation=places)


permute_dims = transpose


def axes_with_order(x: TensorLike, axes: AxesLike) -> TensorOp:
    """Return the tensor with the same axes in the given order.

    Parameters
    ----------
    x
        The operand.
    axes
        The axes of the operand in their new order.

    Returns
    -------
    TensorOp
        A tensor of these axes.

    Raises
    ------
    AxesError
        If they are not all axes of the operand.

    Examples
    --------
    >>> C, W = weft.make_axis(2, "C"), weft.make_axis(3, "W")
    >>> weft.axes_with_order(weft.placeholder((C, W)), (W, C)).axes
    Axes(W=3, C=2)
    """
    return transpose(x, make_axes(axes))


@also_takes(shape="axes")
def broadcast(x: TensorLike, axes: AxesLike) -> TensorOp:
    """Return the tensor broadcast to axes.

    Parameters
    ----------
    x
        The operand.
    axes, shape
        The axes of the result, or the lengths of positional ones. Named axes are aligned by name,
        positional ones from the right.

    Returns
    -------
    TensorOp
        A tensor of these axes.

    Raises
    ------
    AxesError
        If the operand does not broadcast to them.

    Examples
    --------
    >>> weft.jit(lambda x: weft.broadcast(x, (2, 3)))(np.array([1, 2, 3]))
    array([[1, 2, 3],
           [1, 2, 3]])
    """
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


broadcast_to = broadcast


def expand_dims(x: TensorLike, axis: AxesLike | None = None, dim: int = 0) -> TensorOp:
    """Return the tensor broadcast along a new axis.

    Parameters
    ----------
    x
        The operand.
    axis
        The new axis; by default a positional one of length 1. An integer is its position, as in
        NumPy.
    dim
        The position of the new axis in the result, where `axis` is not that.

    Returns
    -------
    TensorOp
        A tensor with one axis more.

    Raises
    ------
    AxesError
        If there is no such position.

    Examples
    --------
    >>> weft.jit(lambda x: weft.expand_dims(x, 1))(np.array([1, 2]))
    array([[1],
           [2]])
    >>> W = weft.make_axis(3, "W")
    >>> weft.expand_dims(weft.placeholder((W,)), weft.make_axis(2, "H")).axes
    Axes(H=2, W=3)
    """
    x = as_op(x)
    is_place = isinstance(axis, SupportsIndex)
    new = Axis(1) if axis is None or is_place else make_axes(axis)[0]
    place = new_place("expand_dims", x, axis if is_place else dim)
    target = Axes((*x.axes[:place], new, *x.axes[place:]))
    if new.length == 1:
        return cast_axes(x, target)
    dims = tuple(d if d < place else d + 1 for d in range(x.rank))
    return BroadcastOp(x, target_axes=target, dims=dims)


def flatten(x: TensorLike) -> TensorOp:
    """Return the tensor with all its axes flattened into one, which records them for `unflatten`.

    A single axis is kept.

    Examples
    --------
    >>> weft.jit(weft.flatten)(np.array([[1, 2, 3], [4, 5, 6]]))
    array([1, 2, 3, 4, 5, 6])
    """
    x = as_op(x)
    return cast_axes(x, Axes((x.axes.flatten(),)))


ravel = flatten


def new_place(function: str, x: TensorOp, place: Any) -> int:
    """Return the position of a new axis as a nonnegative integer; raises AxesError out of range."""
    if not hasattr(place, "__index__") or not -x.rank - 1 <= place <= x.rank:
        problem = f"position {place!r} is out of range for a new axis of {x.axes}"
        raise AxesError(explain(function, problem, (x,)))
    return int(place) % (x.rank + 1)


def flatten_at(x: TensorLike, place: int) -> TensorOp:
    """Return the tensor with the axes before a place flattened into one, and the rest into another.

    Parameters
    ----------
    x
        The operand.
    place
        The number of axes in front that become one; from the end if it is negative. At an end all
        axes become one.

    Returns
    -------
    TensorOp
        A tensor of two axes, or of one. A single axis is kept.

    Raises
    ------
    AxesError
        If there is no such place between the axes.

    Examples
    --------
    >>> weft.flatten_at(weft.placeholder((2, 3, 4)), 1).shape
    (2, 12)
    """
    x = as_op(x)
    if not hasattr(place, "__index__") or not -x.rank <= place <= x.rank:
        problem = f"{place!r} is not a position between the axes of {x.axes}"
        raise AxesError(explain("flatten_at", problem, (x,)))
    if place in (0, x.rank):
        return flatten(x)
    return cast_axes(x, Axes((x.axes[:place].flatten(), x.axes[place:].flatten())))


def unflatten(x: TensorLike) -> TensorOp:
    """Return the tensor with every flattened axis split into its original axes.

    Examples
    --------
    >>> H, W = weft.make_axis(2, "H"), weft.make_axis(3, "W")
    >>> x = weft.flatten(weft.placeholder((H, W)))
    >>> weft.unflatten(x).axes
    Axes(H=2, W=3)
    """
    x = as_op(x)
    axes: list[Axis] = []
    for axis in x.axes:
        axes.extend(axis.axes if isinstance(axis, FlattenedAxis) else (axis,))
    return cast_axes(x, Axes(axes))


def contiguous(x: TensorLike) -> TensorOp:
    """Return a copy in row-major order.

    Examples
    --------
    >>> weft.jit(lambda x: weft.contiguous(weft.transpose(x)))(np.ones((2, 3))).shape
    (3, 2)
    """
    return ContiguousOp(as_op(x))


def scalar_value(op: Op) -> complex | None:
    """Return the number of a scalar constant, broadcast or not; None for other ops."""
    source = op.args[0] if isinstance(op, BroadcastOp) else op
    if source.is_constant and source.is_scalar:
        value: complex = np.asarray(source.const).item()
        return value
    return None


def size_of(axes: Axes, dtype: DType) -> TensorOp:
    """Return the number of elements of axes as a scalar, constant if the lengths are known."""
    if axes.is_static and not is_traced(*axes.lengths):
        return constant(axes.size, dtype=dtype)
    return SizeOp(counted=axes, target_dtype=dtype)


operators["transpose"] = transpose
operators["size_of"] = size_of
