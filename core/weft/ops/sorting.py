"""Sorting, top-k and binary search.

NaN counts as the largest number: it comes last, and first in descending order. Sorting is stable
both ways: equal elements, and NaNs, stay in the order in which they were.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np

from weft.errors import ArgumentError, AxesError, DTypeError
from weft.ir import dtypes
from weft.ir.axes import Axes, make_axes
from weft.ir.dtypes import DType
from weft.ir.storage import as_op, constant
from weft.ir.tensor import CompositeOp, TensorOp
from weft.ops.arguments import whole_number
from weft.ops.comparison import (
    equal,
    less,
    less_equal,
    logical_not,
    minimum,
    where,
)
from weft.ops.cumulative import place
from weft.ops.elementwise import cast, common_dtype
from weft.ops.gathering import TakeAlongAxisOp, TakeOp, with_length
from weft.ops.indexing import SliceOp
from weft.ops.movement import broadcast, cast_axes
from weft.ops.rounding import isnan

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
    """The base of ops that need the order of elements along an axis.

    Attributes
    ----------
    position
        The place of that axis.
    descending
        Whether the largest comes first.
    """

    position: int
    descending: bool

    def infer(self) -> tuple[Axes, DType]:
        """Refuse complex numbers; keep axes and dtype."""
        (x,) = self.args
        if not 0 <= self.position < x.rank:
            raise AxesError(f"{self.position} is no place among {x.axes}")
        if x.dtype.kind == "c":
            raise DTypeError(f"{x.dtype} numbers have no order: sort real() or absolute()")
        return x.axes, x.dtype


class ArgsortOp(SortingOp):
    """The indices along an axis that sort it, as int64; stable, NaN counts as the largest."""

    def infer(self) -> tuple[Axes, DType]:
        """Keep the axes."""
        return super().infer()[0], dtypes.int64

    def reference(self, x: Any) -> Any:
        """Sort."""
        return sorted_indices(x, self.position, self.descending)

    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[None]:
        """Return None: there is no gradient."""
        return (None,)


class SortOp(SortingOp, CompositeOp):
    """The elements in order along an axis; the gradient goes back to where they were."""

    def reference(self, x: Any) -> Any:
        """Sort."""
        result = np.sort(comparable(x), axis=self.position).astype(self.dtype)
        return np.flip(result, self.position) if self.descending else result

    def decompose(self, x: TensorOp) -> TensorOp:
        """Take the elements by their sorted indices."""
        order = ArgsortOp(x, position=self.position, descending=self.descending)
        return TakeAlongAxisOp(x, order, position=self.position)


class TopKIndicesOp(SortingOp, CompositeOp):
    """The indices of the first elements along an axis in sorted order, as int64.

    Attributes
    ----------
    k
        Their number.
    """

    k: int

    def infer(self) -> tuple[Axes, DType]:
        """Cut the axis down to their number."""
        axes, _ = super().infer()
        length = axes[self.position].length
        if self.k < 0 or (isinstance(length, int) and self.k > length):
            raise ArgumentError(
                f"k must be from 0 to {length}, the length of {axes[self.position]!r}, not {self.k}"
            )
        return with_length(axes, self.position, self.k), dtypes.int64

    def reference(self, x: Any) -> Any:
        """Sort, and take the first."""
        order = sorted_indices(x, self.position, self.descending)
        return np.take(order, range(self.k), axis=self.position)

    def decompose(self, x: TensorOp) -> TensorOp:
        """Sort, and take the first."""
        order = ArgsortOp(x, position=self.position, descending=self.descending)
        return SliceOp(order, bounds=tuple((0, axis.length, 1) for axis in self.axes))

    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[None]:
        """Return None: there is no gradient."""
        return (None,)


class SearchSortedOp(CompositeOp):
    """For each element of the second operand, its place in the first, a sorted vector, as int64.

    Attributes
    ----------
    side
        ``left`` for the place before equal elements, ``right`` for that after them.
    """

    side: Side

    def infer(self) -> tuple[Axes, DType]:
        """Take the second operand's axes."""
        ordered, values = self.args
        if ordered.rank != 1:
            raise AxesError(f"a place is searched in a vector, not in {ordered.axes}")
        if self.side not in ("left", "right"):
            raise ArgumentError(f"side must be 'left' or 'right', not {self.side!r}")
        if ordered.dtype != values.dtype or ordered.dtype.kind == "c":
            raise DTypeError(
                f"values of one real dtype are compared, not {ordered.dtype} and {values.dtype}"
            )
        return values.axes, dtypes.int64

    def reference(self, ordered: Any, values: Any) -> Any:
        """Search."""
        return np.searchsorted(comparable(ordered), comparable(values), self.side).astype(np.int64)

    def decompose(self, ordered: TensorOp, values: TensorOp) -> TensorOp:
        """Halve the stretch that is left to search."""
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

    def generate_adjoints(self, delta: TensorOp, *args: TensorOp) -> tuple[None, None]:
        """Return None: there is no gradient."""
        return None, None


def comparable(x: Any) -> Any:
    """Return an array that NumPy orders rightly: its bfloat16 does not know NaN."""
    array = np.asarray(x)
    return array.astype(np.float32) if array.dtype.kind == "V" else array


def sorted_indices(x: Any, position: int, descending: bool) -> Any:
    """Return, in NumPy, the indices that sort an array."""
    values = comparable(x)
    if not descending:
        return np.argsort(values, axis=position, kind="stable").astype(np.int64)
    # From the end to the beginning, so that equal elements keep their order.
    order = np.argsort(np.flip(values, position), axis=position, kind="stable")
    return np.int64(values.shape[position] - 1) - np.flip(order, position)


def _precedes(x: TensorOp, y: TensorOp) -> TensorOp:
    if not dtypes.is_float(x.dtype):
        return less(x, y)
    return less(x, y) | isnan(y) & ~isnan(x)


def argsort(x: Any, axis: Any = -1, descending: bool = False) -> TensorOp:
    """Return the indices that sort a tensor along an axis, as int64.

    Stable both ways: equal elements, and NaNs, keep their order. NaN comes last, or first in
    `descending` order. An index has no gradient.
    """
    x = as_op(x)
    return ArgsortOp(x, position=place("argsort", x, axis), descending=bool(descending))


def sort(x: Any, axis: Any = -1, descending: bool = False) -> TensorOp:
    """Return the elements of a tensor in order along an axis.

    NaN comes last, or first in `descending` order. The gradient of each element goes back to where
    it was; equal elements keep their order.
    """
    x = as_op(x)
    return SortOp(x, position=place("sort", x, axis), descending=bool(descending))


class TopK(NamedTuple):
    """The largest elements, or the smallest, and their indices."""

    values: TensorOp
    indices: TensorOp


def topk(x: Any, k: int, axis: Any = -1, largest: bool = True) -> TopK:
    """Return the k largest elements along an axis in descending order, and their indices (int64).

    Not `largest` gives the smallest, in ascending order. Of equal elements the first are taken;
    NaN counts as the largest. The gradient goes to the elements that were taken.
    """
    x = as_op(x)
    position, number = place("topk", x, axis), whole_number("topk", "k", k, 0)
    indices = TopKIndicesOp(x, position=position, descending=bool(largest), k=number)
    return TopK(TakeAlongAxisOp(x, indices, position=position), indices)


def searchsorted(ordered: Any, values: Any, side: Side = "left") -> TensorOp:
    """Return for each value its place in a sorted vector, as int64.

    On the `side` ``left`` that is the number of elements that are less, on the ``right`` of those
    that are less or equal; NaN counts as the largest. The vector must be in ascending order, or the
    result means nothing. A place has no gradient.
    """
    dtype = common_dtype((ordered, values))
    ordered, values = (cast(as_op(x), dtype) for x in (ordered, values))
    return SearchSortedOp(ordered, values, side=side)


def isin(x: Any, values: Any) -> TensorOp:
    """Return whether each element is among some values, as bool; NaN is not."""
    x, values = as_op(x), as_op(values)
    ordered = sort(flat(values))
    found = less(searchsorted(ordered, x), searchsorted(ordered, x, "right"))
    return found & equal(x, x)


def flat(x: TensorOp) -> TensorOp:
    """Return the elements along one positional axis, in row-major order."""
    return cast_axes(x, make_axes((x.axes.size,)))
