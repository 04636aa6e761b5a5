"""Sorting, top-k and binary search.

NaN counts as the largest number: it comes last, and first in descending order. Sorting is stable in
both directions: equal elements, and NaNs, keep their order.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np

from weft.errors import ArgumentError, AxesError, DTypeError
from weft.ir import dtypes
from weft.ir.axes import Axes, AxisKey, make_axes
from weft.ir.dtypes import Array, DType
from weft.ir.storage import as_op, constant
from weft.ir.tensor import CompositeOp, TensorLike, TensorOp
from weft.ops.arguments import checked_integer
from weft.ops.indexing.gathering import TakeAlongAxisOp, TakeOp, as_indices, with_length
from weft.ops.indexing.slicing import SliceOp
from weft.ops.pointwise.comparison import (
    equal,
    less,
    less_equal,
    logical_not,
    minimum,
    where,
)
from weft.ops.pointwise.elementwise import cast, common_dtype
from weft.ops.pointwise.rounding import isnan
from weft.ops.reductions.cumulative import place
from weft.ops.shape.movement import broadcast, cast_axes
from weft.support.backports import override

__all__ = [
    "ArgsortOp",
    "SearchSortedOp",
    "SortOp",
    "SortingOp",
    "TopKIndicesOp",
    "argsort",
    "isin",
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
        if self.side not in ("left", "right"):
            raise ArgumentError(f"side must be 'left' or 'right', not {self.side!r}")
        if ordered.dtype != values.dtype or ordered.dtype.kind == "c":
            raise DTypeError(
                f"operands must have one real dtype, not {ordered.dtype} and {values.dtype}"
            )
        return values.axes, dtypes.int64

    @override
    def reference(self, ordered: Array, values: Array) -> Any:
        return np.searchsorted(comparable(ordered), comparable(values), self.side).astype(np.int64)

    def decompose(self, ordered: TensorOp, values: TensorOp) -> TensorOp:
        """Search by bisection, for all elements at once."""
        length = ordered.axes[0].length
        found: TensorOp = broadcast(constant(0, dtype=dtypes.int64), values.axes)
        step = 1 << length.bit_length() >> 1
        while step:
            beyond = found + step
            probe = TakeOp(ordered, minimum(beyond, length) - 1, position=0)
            is_before = self._is_before(probe, values)
            found = where(less_equal(beyond, length) & is_before, beyond, found)
            step //= 2
        return found

    def _is_before(self, x: TensorOp, y: TensorOp) -> TensorOp:
        if self.side == "right":
            return logical_not(_precedes(y, x))
        return _precedes(x, y)

    @override
    def generate_adjoints(self, delta: TensorOp, *args: TensorOp) -> tuple[None, None]:
        return None, None


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


class TopK(NamedTuple):
    """The largest or smallest elements, and their indices."""

    values: TensorOp
    indices: TensorOp


def topk(x: TensorLike, k: int, axis: AxisKey = -1, largest: bool = True) -> TopK:
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
    TopK
        A named tuple of two tensors, which are `k` long along the axis: `values`, and `indices` as
        int64.

    Raises
    ------
    AxesError
        If the operand has no such axis.
    ArgumentError
        If `k` is no integer, negative, or more than the length of the axis.
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
    return TopK(TakeAlongAxisOp(x, indices, position=position), indices)


def searchsorted(
    ordered: TensorLike,
    values: TensorLike,
    side: Side = "left",
    *,
    sorter: TensorLike | None = None,
) -> TensorOp:
    """Return the insertion index of each value in a sorted vector.

    NaN counts as the largest.

    Parameters
    ----------
    ordered
        A vector in ascending order; of another the result is undefined.
    values
        What is inserted, of any shape.
    side
        The index is the number of elements less than the value for ``"left"``, less or equal for
        ``"right"``.
    sorter
        Indices that bring `ordered` into ascending order, as `argsort` gives them; by default it is
        in order.

    Returns
    -------
    TensorOp
        The indices, as int64, with the axes of `values`. They have no gradient.

    Raises
    ------
    AxesError
        If `ordered` is not a vector.
    ArgumentError
        If there is no such side.
    DTypeError
        If the operands are complex.

    Examples
    --------
    >>> weft.jit(weft.searchsorted)(np.array([1.0, 2.0, 3.0]), np.array([2.0, 2.5]))
    array([1, 2])
    """
    if sorter is not None:
        ordered = TakeOp(as_op(ordered), as_indices(sorter), position=0)
    dtype = common_dtype((ordered, values))
    ordered, values = (cast(as_op(x), dtype) for x in (ordered, values))
    return SearchSortedOp(ordered, values, side=side)


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


def flat(x: TensorOp) -> TensorOp:
    """Return the tensor flattened into one positional axis, in row-major order."""
    return cast_axes(x, make_axes((x.axes.size,)))
