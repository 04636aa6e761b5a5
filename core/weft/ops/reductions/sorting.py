"""Sorting, top-k and binary search.

NaN counts as the largest number: it comes last, and first in descending order. Sorting is stable in
both directions: equal elements, and NaNs, keep their order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np

from weft.errors import ArgumentError, AxesError, DTypeError
from weft.ir import dtypes
from weft.ir.axes import Axes, AxisKey, make_axes
from weft.ir.dtypes import Array, DType
from weft.ir.op import explain, explained
from weft.ir.storage import as_op, constant
from weft.ir.tensor import CompositeOp, TensorLike, TensorOp
from weft.ops.arguments import checked_integer, drop_axis
from weft.ops.indexing.gathering import TakeAlongAxisOp, TakeOp, as_indices, with_length
from weft.ops.indexing.slicing import SliceOp
from weft.ops.pointwise.comparison import (
    equal,
    greater,
    less,
    less_equal,
    logical_not,
    minimum,
    where,
)
from weft.ops.pointwise.elementwise import cast, common_dtype
from weft.ops.pointwise.rounding import isnan
from weft.ops.reductions.cumulative import CummaxOp, place
from weft.ops.reductions.reduction import argmax
from weft.ops.shape.joining import pad
from weft.ops.shape.movement import IotaOp, broadcast, cast_axes, transpose
from weft.support.backports import override

__all__ = [
    "ArgsortOp",
    "SearchSortedOp",
    "SortOp",
    "SortingOp",
    "TopKIndicesOp",
    "argsort",
    "isin",
    "kthvalue",
    "mode",
    "searchsorted",
    "sort",
    "topk",
]


Side = Literal["left", "right"]


class SortingOp(TensorOp):
    """The base of ops that sort along an axis.

    Attributes
    ----------
    position
        The position of that axis.
    descending
        Whether the largest comes first.
    """

    position: int
    descending: bool

    def infer(self) -> tuple[Axes, DType]:
        """Return the operand's axes and dtype; complex numbers are refused."""
        (x,) = self.args
        if not 0 <= self.position < x.rank:
            raise AxesError(f"{self.position} is not a position in {x.axes}")
        if x.dtype.kind == "c":
            raise DTypeError(f"{x.dtype} numbers have no order: sort real() or absolute()")
        return x.axes, x.dtype


class ArgsortOp(SortingOp):
    """The indices along an axis that sort it, as int64; stable, NaN counts as the largest."""

    @override
    def infer(self) -> tuple[Axes, DType]:
        return super().infer()[0], dtypes.int64

    @override
    def reference(self, x: Array) -> Any:
        return sorted_indices(x, self.position, self.descending)

    @override
    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[None]:
        return (None,)


class SortOp(SortingOp, CompositeOp):
    """The elements sorted along an axis; the gradient is permuted back."""

    @override
    def reference(self, x: Array) -> Any:
        result = np.sort(comparable(x), axis=self.position).astype(self.dtype)
        return np.flip(result, self.position) if self.descending else result

    @override
    def decompose(self, x: TensorOp) -> TensorOp:
        order = ArgsortOp(x, position=self.position, descending=self.descending)
        return TakeAlongAxisOp(x, order, position=self.position)


class TopKIndicesOp(SortingOp, CompositeOp):
    """The first k indices of argsort along an axis, as int64.

    Attributes
    ----------
    k
        The number of indices.
    """

    k: int

    @override
    def infer(self) -> tuple[Axes, DType]:
        axes, _ = super().infer()
        length = axes[self.position].length
        if self.k < 0 or (isinstance(length, int) and self.k > length):
            raise ArgumentError(
                f"k must be from 0 to {length}, the length of {axes[self.position]!r}, not {self.k}"
            )
        return with_length(axes, self.position, self.k), dtypes.int64

    @override
    def reference(self, x: Array) -> Any:
        order = sorted_indices(x, self.position, self.descending)
        return np.take(order, range(self.k), axis=self.position)

    @override
    def decompose(self, x: TensorOp) -> TensorOp:
        order = ArgsortOp(x, position=self.position, descending=self.descending)
        return SliceOp(order, bounds=tuple((0, axis.length, 1) for axis in self.axes))

    @override
    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[None]:
        return (None,)


class SearchSortedOp(CompositeOp):
    """The insertion index of each element of the second operand in the first, a sorted vector.

    Attributes
    ----------
    side
        ``left`` for the index before equal elements, ``right`` for the index after them.
    """

    side: Side

    @override
    def infer(self) -> tuple[Axes, DType]:
        ordered, values = self.args
        if ordered.rank != 1:
            raise AxesError(f"the sorted operand must be a vector, not {ordered.axes}")
        _check_search(ordered, values, self.side)
        return values.axes, dtypes.int64

    @override
    def reference(self, ordered: Array, values: Array) -> Any:
        return np.searchsorted(comparable(ordered), comparable(values), self.side).astype(np.int64)

    @override
    def decompose(self, ordered: TensorOp, values: TensorOp) -> TensorOp:
        def take(places: TensorOp) -> TensorOp:
            return TakeOp(ordered, places, position=0)

        return _bisected(take, ordered.axes[0].length, values, self.side)

    @override
    def generate_adjoints(self, delta: TensorOp, *args: TensorOp) -> tuple[None, None]:
        return None, None


def _check_search(ordered: TensorOp, values: TensorOp, side: Side) -> None:
    if side not in ("left", "right"):
        raise ArgumentError(f"side must be 'left' or 'right', not {side!r}")
    if ordered.dtype != values.dtype or ordered.dtype.kind == "c":
        raise DTypeError(
            f"operands must have one real dtype, not {ordered.dtype} and {values.dtype}"
        )


def _bisected(
    take: Callable[[TensorOp], TensorOp], length: Any, values: TensorOp, side: Side
) -> TensorOp:
    """Return the insertion indices of values, by bisection for all at once.

    `take` returns the sorted elements at indices.
    """
    if not isinstance(length, int):
        raise AxesError(f"a search in many rows needs their length, {length} is unknown now")
    found: TensorOp = broadcast(constant(0, dtype=dtypes.int64), values.axes)
    step = 1 << length.bit_length() >> 1
    while step:
        beyond = found + step
        probe = take(minimum(beyond, length) - 1)
        is_before = (
            logical_not(_precedes(values, probe)) if side == "right" else _precedes(probe, values)
        )
        found = where(less_equal(beyond, length) & is_before, beyond, found)
        step //= 2
    return found


def comparable(x: Array) -> Any:
    """Return an array that NumPy sorts correctly: bfloat16, which sorts NaN wrongly, as float32."""
    array = np.asarray(x)
    return array.astype(np.float32) if array.dtype.kind == "V" else array


def sorted_indices(x: Array, position: int, descending: bool) -> Any:
    """Return, in NumPy, the indices that sort an array."""
    values = comparable(x)
    if not descending:
        return np.argsort(values, axis=position, kind="stable").astype(np.int64)
    # Sorted from the end to the beginning, so that equal elements keep their order.
    order = np.argsort(np.flip(values, position), axis=position, kind="stable")
    return np.int64(values.shape[position] - 1) - np.flip(order, position)


def _precedes(x: TensorOp, y: TensorOp) -> TensorOp:
    if not dtypes.is_float(x.dtype):
        return less(x, y)
    return less(x, y) | isnan(y) & ~isnan(x)


def argsort(
    x: TensorLike, axis: AxisKey = -1, descending: bool = False, *, stable: bool = True
) -> TensorOp:
    """Return the indices that sort a tensor along an axis.

    Parameters
    ----------
    x
        The operand.
    axis
        The axis: a position, an axis or its name; by default the last.
    descending
        Whether the largest come first.
    stable
        Makes no difference: equal elements, and NaNs, always keep their order.

    Returns
    -------
    TensorOp
        The indices, as int64. NaN comes last, or first in descending order. They have no gradient.

    Raises
    ------
    AxesError
        If the operand has no such axis.
    DTypeError
        If the operand is complex.

    Examples
    --------
    >>> weft.jit(weft.argsort)(np.array([3.0, 1.0, 2.0]))
    array([1, 2, 0])
    """
    x = as_op(x)
    return ArgsortOp(x, position=place("argsort", x, axis), descending=bool(descending))


def sort(
    x: TensorLike, axis: AxisKey = -1, descending: bool = False, *, stable: bool = True
) -> TensorOp:
    """Return a tensor sorted along an axis; the gradient is permuted back.

    Parameters
    ----------
    x
        The operand.
    axis
        The axis: a position, an axis or its name; by default the last.
    descending
        Whether the largest come first.
    stable
        Makes no difference: equal elements, and NaNs, always keep their order.

    Returns
    -------
    TensorOp
        The elements in order. NaN comes last, or first in descending order.

    Raises
    ------
    AxesError
        If the operand has no such axis.
    DTypeError
        If the operand is complex.

    Examples
    --------
    >>> weft.jit(weft.sort)(np.array([3.0, np.nan, 1.0, 2.0]))
    array([ 1.,  2.,  3., nan])
    >>> weft.jit(lambda x: weft.sort(x, axis=0, descending=True))(np.array([[1, 4], [3, 2]]))
    array([[3, 4],
           [1, 2]])
    """
    x = as_op(x)
    return SortOp(x, position=place("sort", x, axis), descending=bool(descending))


class Chosen(NamedTuple):
    """Elements chosen along an axis, and their indices."""

    values: TensorOp
    indices: TensorOp


def topk(x: TensorLike, k: int, axis: AxisKey = -1, largest: bool = True) -> Chosen:
    """Return the largest elements along an axis in descending order, and their indices.

    The first of equal elements are selected; NaN counts as the largest. The gradient goes to the
    selected elements.

    Parameters
    ----------
    x
        The operand.
    k
        How many elements.
    axis
        The axis: a position, an axis or its name; by default the last.
    largest
        Whether the largest are wanted; otherwise the smallest, in ascending order.

    Returns
    -------
    Chosen
        A named tuple of two tensors, which are `k` long along the axis: `values`, and `indices` as
        int64.

    Raises
    ------
    AxesError
        If the operand has no such axis.
    ArgumentError
        If `k` is not an integer, is negative, or is more than the length of the axis.
    DTypeError
        If the operand is complex.

    Examples
    --------
    >>> values, indices = weft.jit(lambda x: weft.topk(x, 2))(np.array([3.0, 1.0, 4.0]))
    >>> values, indices
    (array([4., 3.]), array([2, 0]))
    """
    x = as_op(x)
    position, number = place("topk", x, axis), checked_integer("topk", "k", k, 0)
    indices = TopKIndicesOp(x, position=position, descending=bool(largest), k=number)
    return Chosen(TakeAlongAxisOp(x, indices, position=position), indices)


def kthvalue(x: TensorLike, k: int, axis: AxisKey = -1, keepdims: bool = False) -> Chosen:
    """Return the k-th smallest element along an axis, and its index.

    The first of equal elements comes first; NaN counts as the largest. The gradient goes to the
    element.

    Parameters
    ----------
    x
        The operand.
    k
        Which element, counted from 1, the smallest.
    axis
        The axis: a position, an axis or its name; by default the last.
    keepdims
        Whether the axis stays, with length 1.

    Returns
    -------
    Chosen
        A named tuple of two tensors without the axis: `values`, and `indices` as int64.

    Raises
    ------
    AxesError
        If the operand has no such axis.
    ArgumentError
        If `k` is not an integer, is less than 1, or is more than the length of the axis.
    DTypeError
        If the operand is complex.

    Examples
    --------
    >>> value, index = weft.jit(lambda x: weft.kthvalue(x, 2))(np.array([3.0, 1.0, 2.0]))
    >>> value, index
    (array(2.), array(2))
    """
    x = as_op(x)
    position, number = place("kthvalue", x, axis), checked_integer("kthvalue", "k", k, 1)
    first = TopKIndicesOp(x, position=position, descending=False, k=number)
    bounds = [(0, axis.length, 1) for axis in first.axes]
    bounds[position] = (number - 1, 1, 1)
    return _chosen(x, SliceOp(first, bounds=tuple(bounds)), position, keepdims)


def mode(x: TensorLike, axis: AxisKey = -1, keepdims: bool = False) -> Chosen:
    """Return the most frequent element along an axis, and the index of its last occurrence.

    It is the smallest of equally frequent ones. All NaNs count as one element, the largest. The
    gradient goes to the last occurrence.

    Parameters
    ----------
    x
        The operand.
    axis
        The axis: a position, an axis or its name; by default the last.
    keepdims
        Whether the axis stays, with length 1.

    Returns
    -------
    Chosen
        A named tuple of two tensors without the axis: `values`, and `indices` as int64.

    Raises
    ------
    AxesError
        If the operand has no such axis, or it is empty.
    DTypeError
        If the operand is complex.

    Examples
    --------
    >>> value, index = weft.jit(weft.mode)(np.array([3, 1, 2, 1, 3]))
    >>> value, index
    (array(1), array(3))
    """
    x = as_op(x)
    position = place("mode", x, axis)
    order = ArgsortOp(x, position=position, descending=False)
    ordered = TakeAlongAxisOp(x, order, position=position)
    number = IotaOp(target_axes=x.axes, target_dtype=dtypes.int64, position=position)
    widths = [(0, 0)] * x.rank
    widths[position] = (1, 0)
    bounds = tuple((0, axis.length, 1) for axis in x.axes)
    before = SliceOp(pad(ordered, widths, 0), bounds=bounds)
    first = where(same(before, ordered) & greater(number, 0), 0, number)
    start = CummaxOp(first, position=position, reverse=False, exclusive=False)
    # The first of the longest runs: they are counted up to each element, and reach it at their end.
    longest = explained("mode", (x,), argmax, number - start, position, None, True)
    return _chosen(x, TakeAlongAxisOp(order, longest, position=position), position, keepdims)


def _chosen(x: TensorOp, indices: TensorOp, position: int, keepdims: bool) -> Chosen:
    """Return the elements at indices, which are of length 1 along an axis."""
    values = TakeAlongAxisOp(x, indices, position=position)
    if keepdims:
        return Chosen(values, indices)
    kept = drop_axis(x.axes, position)
    return Chosen(cast_axes(values, kept), cast_axes(indices, kept))


def searchsorted(
    ordered: TensorLike,
    values: TensorLike,
    side: Side = "left",
    *,
    sorter: TensorLike | None = None,
    axis: AxisKey = -1,
) -> TensorOp:
    """Return the insertion index of each value in a sorted vector, or in the row of its own.

    NaN counts as the largest.

    Parameters
    ----------
    ordered
        A vector in ascending order, or many, along an axis; of another order the result is
        undefined.
    values
        What is inserted: of any shape into a vector; into rows, with the other axes of `ordered`,
        and for positional axes one of its own in the place of the sorted one.
    side
        The index is the number of elements less than the value for ``"left"``, less or equal for
        ``"right"``.
    sorter
        Indices that bring `ordered` into ascending order, as `argsort` gives them; by default it is
        in order.
    axis
        The axis that is in order: a position, an axis or its name; by default the last.

    Returns
    -------
    TensorOp
        The indices, as int64, with the axes of `values`. They have no gradient.

    Raises
    ------
    AxesError
        If `ordered` has no such axis, its rows no known length, or the values lack another axis.
    ArgumentError
        If there is no such side.
    DTypeError
        If the operands are complex.

    Examples
    --------
    >>> weft.jit(weft.searchsorted)(np.array([1.0, 2.0, 3.0]), np.array([2.0, 2.5]))
    array([1, 2])
    >>> rows, values = np.array([[1, 2, 3], [4, 5, 6]]), np.array([[2, 9], [2, 5]])
    >>> weft.jit(weft.searchsorted)(rows, values)
    array([[1, 3],
           [0, 1]])
    """
    ordered = as_op(ordered)
    position = place("searchsorted", ordered, axis)
    if sorter is not None:
        indices = as_indices(sorter)
        take: Any = TakeOp if ordered.rank == 1 else TakeAlongAxisOp
        ordered = take(ordered, indices, position=position)
    dtype = common_dtype((ordered, values))
    ordered, values = (cast(as_op(x), dtype) for x in (ordered, values))
    if ordered.rank == 1:
        return SearchSortedOp(ordered, values, side=side)
    return _searched_rows(ordered, position, values, side)


def _searched_rows(ordered: TensorOp, position: int, values: TensorOp, side: Side) -> TensorOp:
    """Search each value in its row; all rows are merged, and the axes of values beside them."""
    explained("searchsorted", (ordered, values), _check_search, ordered, values, side)
    rows = drop_axis(ordered.axes, position)
    if ordered.axes.is_named:
        is_fit = all(axis in values.axes for axis in rows)
        places = tuple(values.axes.position(axis) for axis in rows) if is_fit else ()
    else:
        is_fit = values.rank == ordered.rank and drop_axis(values.axes, position) == rows
        places = tuple(i for i in range(ordered.rank) if i != position)
    if not is_fit:
        problem = f"values need the axes {rows} of the sorted rows, not {values.axes}"
        raise AxesError(explain("searchsorted", problem, (ordered, values)))
    order = (*places, *(i for i in range(values.rank) if i not in places))
    turned = transpose(values, order)
    wanted = cast_axes(turned, (rows.size, turned.axes[len(rows) :].size))
    length = ordered.axes[position].length
    last = (*(i for i in range(ordered.rank) if i != position), position)
    lines = cast_axes(transpose(ordered, last), (rows.size, length))

    def take(places: TensorOp) -> TensorOp:
        return TakeAlongAxisOp(lines, places, position=1)

    found = explained("searchsorted", (ordered, values), _bisected, take, length, wanted, side)
    return transpose(cast_axes(found, turned.axes), tuple(map(int, np.argsort(order))))


def isin(x: TensorLike, values: TensorLike, *, invert: bool = False) -> TensorOp:
    """Return whether each element is among some values.

    NaN is among no values.

    Parameters
    ----------
    x
        The operand.
    values
        The values, of any shape.
    invert
        Whether to return the opposite.

    Returns
    -------
    TensorOp
        The truth values, as bool, with the axes of x.

    Raises
    ------
    DTypeError
        If the operands are complex.

    Examples
    --------
    >>> weft.jit(weft.isin)(np.array([1, 2, 3]), np.array([1, 3]))
    array([ True, False,  True])
    """
    x, values = as_op(x), as_op(values)
    ordered = sort(flat(values))
    found = less(searchsorted(ordered, x), searchsorted(ordered, x, "right"))
    found = found & equal(x, x) if dtypes.is_inexact(x.dtype) else found
    return logical_not(found) if invert else found


def same(x: TensorOp, y: TensorOp) -> TensorOp:
    """Return whether elements are equal, or both NaN."""
    if not dtypes.is_float(x.dtype):
        return equal(x, y)
    return equal(x, y) | isnan(x) & isnan(y)


def flat(x: TensorOp) -> TensorOp:
    """Return the tensor flattened into one positional axis, in row-major order."""
    return cast_axes(x, make_axes((x.axes.size,)))
