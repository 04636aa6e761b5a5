"""Gather and scatter by index tensors.

Indices are from 0 to length - 1, or from -length to -1, counted from the end. An index out of range
raises IndexOutOfRange at the call, or at construction if it is constant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from weft.errors import ArgumentError, AxesError, DTypeError, IndexOutOfRange
from weft.ir import dtypes
from weft.ir.axes import Axes, AxisKey, make_axes
from weft.ir.dtypes import Array, DType, accumulator_dtype
from weft.ir.lengths import Length
from weft.ir.op import explain
from weft.ir.storage import as_op, constant
from weft.ir.tensor import CompositeOp, TensorLike, TensorOp
from weft.ops.indexing.slicing import with_lengths
from weft.ops.pointwise.comparison import WhereOp, equal, greater_equal, maximum, minimum, where
from weft.ops.pointwise.elementwise import add, cast, divide, floordivide, multiply
from weft.ops.reductions.reduction import MaxOp, MinOp, ProdOp, ReductionOp, SumOp
from weft.ops.shape.movement import BroadcastOp, IotaOp, broadcast, cast_axes, size_of, zeros_like
from weft.support.backports import override

__all__ = [
    "IndexedOp",
    "ScatterOp",
    "TakeAlongAxisOp",
    "TakeOp",
    "gather",
    "index_reduce",
    "scatter",
    "take",
]


_ONE = Axes()
"""The axes of a scalar."""


class IndexedOp(TensorOp):
    """The base of ops with indices along one axis of the first operand in the second.

    Attributes
    ----------
    position
        The position of that axis.
    """

    position: int
    may_raise = True

    def infer(self) -> tuple[Axes, DType]:
        """Check the position of the axis, and the dtype and range of the indices."""
        x, indices = self.args[:2]
        if not 0 <= self.position < x.rank:
            raise AxesError(f"{self.position} is not a position in {x.axes}")
        if not dtypes.is_integer(indices.dtype):
            is_mask = dtypes.is_bool(indices.dtype)
            hint = "where() and nonzero() take masks" if is_mask else "cast() converts them"
            raise DTypeError(f"indices must be integers, not {indices.dtype}: {hint}")
        source = indices.args[0] if isinstance(indices, BroadcastOp) else indices
        if source.is_constant and isinstance(x.axes[self.position].length, int):
            self._check(source.const)
        return x.axes, x.dtype

    def _check(self, indices: Array) -> None:
        axis = self.args[0].axes[self.position]
        low, high = -axis.length, axis.length - 1
        if not indices.size or (low <= indices.min() and indices.max() <= high):
            return
        wrong = (indices < low) | (indices > high)
        first = tuple(np.argwhere(wrong)[0].tolist())
        at = f" at {first} of the indices" if first else ""
        which = f"dimension {self.position}" if axis.name is None else f"axis {axis.name}"
        legal = f"its indices go from {low} to {high}" if axis.length else "it has no elements"
        raise IndexOutOfRange(
            f"index {indices[first]}{at} is out of range for {which} of length {axis.length}: "
            f"{legal}"
        )

    def places(self, indices: Array) -> Any:
        """Return the indices in the dtype of NumPy's indexing, as a C-contiguous array.

        NumPy assigns in memory order, so the last update in row-major order wins. Raises
        IndexOutOfRange, with the user's line, for an index out of range.
        """
        indices = np.asarray(indices)
        try:
            self._check(indices)
        except IndexOutOfRange as error:
            raise IndexOutOfRange(self.explain(error.problem)) from None
        return np.asarray(indices, np.intp, order="C")


class TakeOp(IndexedOp):
    """A gather: the elements of the first operand at the indices in the second, along one axis.

    The axes of the indices replace that axis.
    """

    def infer(self) -> tuple[Axes, DType]:
        """Replace the axis by the axes of the indices."""
        axes, dtype = super().infer()
        return taken_axes(axes, self.args[1].axes, self.position), dtype

    @override
    def reference(self, x: Array, indices: Array) -> Any:
        return np.take(x, self.places(indices), axis=self.position)

    def generate_adjoints(self, delta: TensorOp, x: TensorOp, indices: TensorOp) -> Any:
        """Scatter-add the adjoint at the indices."""
        zeros = zeros_like(x)
        into = ScatterOp(zeros, indices, delta, position=self.position, reduction="add")
        return into, None


class TakeAlongAxisOp(IndexedOp, CompositeOp):
    """A gather with an index for each element of the result, along one axis.

    Both operands have the same axes, except for the length of the indexed one.
    """

    def infer(self) -> tuple[Axes, DType]:
        """Check that the other axes agree, and return the axes of the indices."""
        axes, dtype = super().infer()
        indices = self.args[1].axes
        _require_same_others(axes, indices, self.position)
        return indices, dtype

    @override
    def reference(self, x: Array, indices: Array) -> Any:
        return np.take_along_axis(x, self.places(indices), axis=self.position)

    @override
    def decompose(self, x: TensorOp, indices: TensorOp) -> TensorOp:
        linear = _linear_along(x.axes, indices, self.position)
        return cast_axes(TakeOp(_flat(x), linear, position=0), self.axes)

    def generate_adjoints(self, delta: TensorOp, x: TensorOp, indices: TensorOp) -> Any:
        """Scatter-add the adjoint at the indices."""
        return scatter_along(zeros_like(x), indices, delta, self.position, "add"), None


class ScatterReduction(NamedTuple):
    """The functions of a scatter reduction, and its neutral element."""

    ufunc: np.ufunc
    combine: Any
    over: type[ReductionOp]
    neutral: Any


REDUCTIONS = {
    "add": ScatterReduction(np.add, add, SumOp, lambda dtype: 0),
    "mul": ScatterReduction(np.multiply, multiply, ProdOp, lambda dtype: 1),
    "max": ScatterReduction(np.maximum, maximum, MaxOp, dtypes.least),
    "min": ScatterReduction(np.minimum, minimum, MinOp, dtypes.greatest),
}
"""The scatter reductions by name, besides ``set`` and ``mean``."""


class ScatterOp(IndexedOp, CompositeOp):
    """A scatter: the first operand with updates, the third, at the indices in the second.

    It is the dual of `TakeOp`: updates have the axes of a gather. Updates with repeated indices are
    all combined; with ``set`` the last one in row-major order wins. 16-bit floats are added and
    multiplied in float32.

    Attributes
    ----------
    reduction
        How updates combine with the elements: ``set``, ``add``, ``mul``, ``max`` or ``min``.
    """

    reduction: str

    def infer(self) -> tuple[Axes, DType]:
        """Check that updates have the axes and dtype of a gather."""
        axes, dtype = super().infer()
        _, indices, updates = self.args
        if self.reduction != "set" and self.reduction not in REDUCTIONS:
            known = ", ".join(["set", *REDUCTIONS])
            raise ArgumentError(f"unknown reduction {self.reduction!r}: use one of {known}")
        wanted = taken_axes(axes, indices.axes, self.position)
        if updates.axes != wanted or updates.dtype != dtype:
            raise AxesError(f"updates must be {dtype} {wanted}, not {updates.dtype} {updates.axes}")
        if dtypes.is_bool(dtype) and self.reduction in ("add", "mul"):
            raise DTypeError(f"{self.reduction} takes numbers, not bool: cast them, or use max")
        if dtype.kind == "c" and self.reduction in ("max", "min"):
            raise DTypeError(f"{dtype} numbers have no order, which {self.reduction} needs")
        return axes, dtype

    @override
    def may_overwrite(self, index: int) -> bool:
        return index == 0

    @property
    def accumulator_dtype(self) -> DType:
        """The dtype of the reduction."""
        return self.dtype if self.reduction == "set" else accumulator_dtype(self.dtype)

    @override
    def reference(self, x: Array, indices: Array, updates: Array) -> Any:
        result = np.array(x, self.accumulator_dtype)
        at = (*(slice(None),) * self.position, self.places(indices))
        if self.reduction == "set":
            result[at] = updates
        else:
            wide = np.asarray(updates, self.accumulator_dtype)
            REDUCTIONS[self.reduction].ufunc.at(result, at, wide)
        return result.astype(self.dtype)

    def decompose(self, x: TensorOp, indices: TensorOp, updates: TensorOp) -> TensorOp:
        """Compare each position with each index, and reduce over the matching updates."""
        if indices.axes.size == 0:
            return x
        places = _flat(offsets(x.axes, self.position, indices))
        count = places.axes[0].length
        rows = cast_axes(cast(x, self.accumulator_dtype), _grouped(x.axes, self.position))
        before, length, after = rows.axes.lengths
        puts = cast_axes(cast(updates, self.accumulator_dtype), (before, count, after))
        meetings = make_axes((length, count))
        index = IotaOp(target_axes=meetings, target_dtype=dtypes.int64, position=0)
        hit = equal(index, broadcast(places, meetings))
        put = self._last_put if self.reduction == "set" else self._all_put
        return cast(cast_axes(put(rows, puts, hit), self.axes), self.dtype)

    def _last_put(self, rows: TensorOp, puts: TensorOp, hit: TensorOp) -> TensorOp:
        number = IotaOp(target_axes=hit.axes, target_dtype=dtypes.int64, position=1)
        last = MaxOp(where(hit, number, -1), positions=(1,))
        chosen = TakeOp(puts, maximum(last, 0), position=1)
        is_hit = BroadcastOp(greater_equal(last, 0), target_axes=rows.axes, dims=(1,))
        return WhereOp(is_hit, chosen, rows)

    def _all_put(self, rows: TensorOp, puts: TensorOp, hit: TensorOp) -> TensorOp:
        _, combine, over, neutral = REDUCTIONS[self.reduction]
        before, length, after = rows.axes.lengths
        meetings = make_axes((before, length, puts.axes[1].length, after))
        chosen = where(
            BroadcastOp(hit, target_axes=meetings, dims=(1, 2)),
            BroadcastOp(puts, target_axes=meetings, dims=(0, 2, 3)),
            constant(neutral(rows.dtype), dtype=rows.dtype),
        )
        result: TensorOp = combine(rows, over(chosen, positions=(2,)))
        return result

    def generate_adjoints(
        self, delta: TensorOp, x: TensorOp, indices: TensorOp, updates: TensorOp
    ) -> Any:
        """Return the adjoints of the operand and of the updates, by reduction."""
        if self.reduction == "add":
            return delta, None, self._taken(delta)
        if self.reduction == "set":
            outside = self._put(delta, zeros_like(updates), "set")
            return outside, None, where(self._is_kept(indices), self._taken(delta), 0)
        if self.reduction == "mul":
            return self._adjoints_of_product(delta, x, updates)
        return self._adjoints_of_extremum(delta, x, updates)

    def _taken(self, value: TensorOp) -> TensorOp:
        return TakeOp(value, self.args[1], position=self.position)

    def _put(self, into: TensorOp, value: TensorOp, reduction: str) -> TensorOp:
        return ScatterOp(into, self.args[1], value, position=self.position, reduction=reduction)

    def _is_kept(self, indices: TensorOp) -> TensorOp:
        """Return a mask of the updates that are the last with their index."""
        flat = _flat(indices)
        number = IotaOp(target_axes=flat.axes, target_dtype=dtypes.int64, position=0)
        empty = broadcast(
            constant(0, dtype=dtypes.int64), make_axes(self.axes[self.position].length)
        )
        kept = ScatterOp(empty, flat, number, position=0, reduction="max")
        is_kept = cast_axes(equal(TakeOp(kept, flat, position=0), number), indices.axes)
        dims = tuple(range(self.position, self.position + indices.rank))
        return BroadcastOp(is_kept, target_axes=self.args[2].axes, dims=dims)

    def _adjoints_of_extremum(self, delta: TensorOp, x: TensorOp, updates: TensorOp) -> Any:
        """Split the adjoint evenly among ties, as `max` does."""
        first, others = equal(x, self), equal(updates, self._taken(self))
        wide = self.accumulator_dtype
        ties = self._put(cast(first, wide), cast(others, wide), "add")
        share = cast(divide(cast(delta, wide), ties), self.dtype)
        return where(first, share, 0), None, where(others, self._taken(share), 0)

    def _adjoints_of_product(self, delta: TensorOp, x: TensorOp, updates: TensorOp) -> Any:
        """Multiply the adjoint by the product of all other factors.

        It is the product of the nonzero factors divided by the factor itself, or 0 if another
        factor is 0. First derivatives are exact everywhere, second ones if no update is 0.
        """
        delta, x, updates = (cast(each, self.accumulator_dtype) for each in (delta, x, updates))
        ones = broadcast(constant(1, dtype=x.dtype), x.axes)
        is_zero, x_is_zero = equal(updates, 0), equal(x, 0)
        safe = where(is_zero, 1, updates)
        zeros = self._put(cast(x_is_zero, x.dtype), cast(is_zero, x.dtype), "add")
        others = self._taken(zeros) - cast(is_zero, x.dtype)
        factors = self._put(where(x_is_zero, 1, x), safe, "mul")
        rest = where(equal(others, 0), self._taken(factors) / safe, 0)
        dx, du = delta * self._put(ones, updates, "mul"), self._taken(delta) * rest
        return cast(dx, self.dtype), None, cast(du, self.dtype)


def taken_axes(axes: Axes, indices: Axes, position: int, count: int = 1) -> Axes:
    """Return axes with one or more, from a position on, replaced by those of the indices."""
    end = position + count
    try:
        return Axes((*axes[:position], *indices, *axes[end:]))
    except AxesError as error:
        raise AxesError(
            f"{error.problem}: the axes {indices} of the indices replace {axes[position:end]} in "
            f"{axes}, give them distinct names (cast_axes, map_roles)"
        ) from None


def _require_same_others(axes: Axes, indices: Axes, position: int) -> None:
    length = indices[position].length if len(indices) == len(axes) else None
    if with_length(axes, position, length) != indices:
        raise AxesError(
            f"indices along {axes[position]!r} of {axes} must have the same axes, except for its "
            f"length, not {indices}"
        )


def with_length(axes: Axes, position: int, length: int | Length | None) -> Axes:
    """Return the axes with the length of one replaced."""
    lengths = (length if i == position else axis.length for i, axis in enumerate(axes))
    return with_lengths(axes, lengths)


def _grouped(axes: Axes, position: int) -> Axes:
    """Return three axes: the merged axes before a position, the axis there, and those after."""
    before, after = axes[:position], axes[position + 1 :]
    return make_axes((before.size, axes[position].length, after.size))


def _flat(x: TensorOp) -> TensorOp:
    """Return the flattened tensor."""
    return cast_axes(x, make_axes((x.axes.size,)))


def offsets(axes: Axes, position: int, indices: TensorOp, unit: Axes = _ONE) -> TensorOp:
    """Return indices along an axis as int64 counted from 0, times the size of `unit`.

    The lookup in a table detects indices out of range, which must not address other elements of a
    flattened tensor.
    """
    line = make_axes((axes[position].length,))
    table: TensorOp = IotaOp(target_axes=line, target_dtype=dtypes.int64, position=0)
    if unit.size != 1:
        table = multiply(table, size_of(unit, dtypes.int64))
    return TakeOp(table, indices, position=0)


def _linear_along(axes: Axes, indices: TensorOp, position: int) -> TensorOp:
    """Return the flat indices of the elements that indices along an axis address."""
    target = _grouped(indices.axes, position)
    before, after = axes[position:], axes[position + 1 :]
    found = cast_axes(offsets(axes, position, without_names(indices), after), target)
    for place, unit in ((0, before), (2, _ONE)):
        if target[place].length != 1:
            count = IotaOp(target_axes=target, target_dtype=dtypes.int64, position=place)
            found = add(found, count if unit.size == 1 else count * size_of(unit, dtypes.int64))
    return _flat(found)


def without_names(x: TensorOp) -> TensorOp:
    """Return the tensor without axis names."""
    return cast_axes(x, make_axes(x.axes.lengths))


def scatter_along(
    x: TensorOp, indices: TensorOp, updates: TensorOp, position: int, reduction: str
) -> TensorOp:
    """Return a scatter with an index for each update, along one axis."""
    linear = _linear_along(x.axes, indices, position)
    result = ScatterOp(_flat(x), linear, _flat(updates), position=0, reduction=reduction)
    return cast_axes(result, x.axes)


def combined(
    function: str,
    put: Callable[[TensorOp, TensorOp, str], TensorOp],
    x: TensorOp,
    updates: TensorOp,
    reduction: str,
    include_self: bool,
) -> TensorOp:
    """Return x combined with updates by a reduction, for a function that scatters them into it.

    Without `include_self`, elements with updates are first replaced by the neutral element.
    """
    if reduction not in ("set", "mean", *REDUCTIONS):
        known = ", ".join(["set", *REDUCTIONS, "mean"])
        problem = f"unknown reduction {reduction!r}: use one of {known}"
        raise ArgumentError(explain(function, problem, (x,)))
    if reduction == "mean":
        return _averaged(put, x, updates, include_self)
    if include_self or reduction == "set":
        return put(x, updates, reduction)
    neutral = constant(REDUCTIONS[reduction].neutral(x.dtype), dtype=x.dtype)
    return put(put(x, broadcast(neutral, updates.axes), "set"), updates, reduction)


def _averaged(
    put: Callable[[TensorOp, TensorOp, str], TensorOp],
    x: TensorOp,
    updates: TensorOp,
    include_self: bool,
) -> TensorOp:
    """Divide the sum by the number of summands; integers are rounded down."""
    is_whole = dtypes.is_integer(x.dtype) and x.dtype != dtypes.uint64
    dtype = dtypes.int64 if is_whole else accumulator_dtype(x.dtype)
    wide, terms = cast(x, dtype), cast(updates, dtype)
    start = wide if include_self else put(wide, zeros_like(terms), "set")
    own = broadcast(constant(int(include_self), dtype=dtype), wide.axes)
    count = put(own, broadcast(constant(1, dtype=dtype), terms.axes), "add")
    ratio = floordivide if dtypes.is_integer(x.dtype) else divide
    return cast(ratio(put(start, terms, "add"), where(equal(count, 0), 1, count)), x.dtype)


def as_indices(value: TensorLike) -> TensorOp:
    """Return indices as a tensor op; Python integers and lists of them become int64."""
    if isinstance(value, int | list | tuple) and not isinstance(value, bool):
        try:
            array = np.asarray(value)
        except ValueError:
            return as_op(value)
        if not array.size:
            array = array.astype(np.int64)
        if array.dtype.kind in "iu":
            return constant(array)
    return as_op(value)


def _position(function: str, x: TensorOp, axis: AxisKey | None) -> int:
    if axis is None and x.rank != 1:
        raise AxesError(explain(function, f"needs an axis of {x.axes}, as in axis=0", (x,)))
    return x.axes.position(0 if axis is None else axis)


def as_updates(function: str, value: TensorLike, x: TensorOp, axes: Axes) -> TensorOp:
    """Return updates in the dtype of x, broadcast to the required axes."""
    is_number = isinstance(value, bool | int | float | complex)
    op = as_op(value, x.dtype if is_number else None)
    try:
        return broadcast(cast(op, x.dtype), axes)
    except AxesError:
        problem = f"updates {op.axes} cannot be broadcast to {axes}"
        raise AxesError(explain(function, problem, (x, op))) from None


def take(x: TensorLike, indices: TensorLike, axis: AxisKey | None = None) -> TensorOp:
    """Return the elements at indices along an axis; the gradient sums over repeated indices.

    Parameters
    ----------
    x
        The operand.
    indices
        Integers of any dtype and shape; negative ones count from the end.
    axis
        The axis: a position, an axis or its name. A vector needs none.

    Returns
    -------
    TensorOp
        A tensor with the axes of the indices in place of the indexed one.

    Raises
    ------
    AxesError
        If the operand has no such axis, or several and none is given.
    DTypeError
        If the indices are not integers.
    IndexOutOfRange
        If an index is out of range: at the call, or here if it is constant.

    Examples
    --------
    >>> weft.jit(weft.take)(np.array([10, 20, 30]), np.array([2, 0, -1]))
    array([30, 10, 30])
    >>> x = np.array([[1, 2, 3], [4, 5, 6]])
    >>> weft.jit(lambda x: weft.take(x, [2, 0], axis=1))(x)
    array([[3, 1],
           [6, 4]])
    """
    x = as_op(x)
    return TakeOp(x, as_indices(indices), position=_position("take", x, axis))


gather = take


def scatter(
    x: TensorLike,
    indices: TensorLike,
    updates: TensorLike,
    axis: AxisKey | None = None,
    reduction: str = "set",
    include_self: bool = True,
) -> TensorOp:
    """Return x with updates at indices along an axis, which replace elements or combine with them.

    It is the dual of `take`. Updates with repeated indices are all combined; with ``set`` the last
    one in row-major order wins. 16-bit floats are combined in float32.

    The gradient of ``set`` goes to the winning update, that of ``max`` and ``min`` is split evenly
    among ties. That of ``mul`` is exact at zeros, but its second derivative is not.

    Parameters
    ----------
    x
        The operand.
    indices
        Integers of any dtype and shape; negative ones count from the end.
    updates
        The updates, broadcast to what `take` returns for the indices, and cast to the dtype of x.
    axis
        The axis: a position, an axis or its name. A vector needs none.
    reduction
        What an update does: ``set`` replaces the element, ``add``, ``mul``, ``max`` and ``min``
        combine with it. ``mean`` is their mean, for integers rounded down.
    include_self
        Whether the element itself is combined with its updates; otherwise only they are.

    Returns
    -------
    TensorOp
        A tensor like x.

    Raises
    ------
    AxesError
        If the operand has no such axis, or several and none is given, or the updates do not
        broadcast.
    ArgumentError
        If there is no such reduction.
    DTypeError
        If the indices are not integers.
    IndexOutOfRange
        If an index is out of range: at the call, or here if it is constant.

    Examples
    --------
    >>> x, indices = np.array([1, 1, 1, 1]), np.array([0, 2, 2])
    >>> weft.jit(weft.scatter)(x, indices, np.array([5, 6, 7]))
    array([5, 1, 7, 1])
    >>> weft.jit(lambda x, i: weft.scatter(x, i, 10, reduction="add"))(x, indices)
    array([11,  1, 21,  1])
    >>> updates = np.array([5, 6, 8])
    >>> weft.jit(lambda x, i, y: weft.scatter(x, i, y, 0, "mean", include_self=False))(
    ...     x, indices, updates
    ... )
    array([5, 1, 7, 1])
    """
    return _scattered("scatter", x, indices, updates, axis, reduction, include_self)


def _scattered(
    function: str,
    x: TensorLike,
    indices: TensorLike,
    updates: TensorLike,
    axis: AxisKey | None,
    reduction: str,
    include_self: bool,
) -> TensorOp:
    x, indices = as_op(x), as_indices(indices)
    position = _position(function, x, axis)
    updates = as_updates(function, updates, x, taken_axes(x.axes, indices.axes, position))

    def put(into: TensorOp, values: TensorOp, how: str) -> TensorOp:
        return ScatterOp(into, indices, values, position=position, reduction=how)

    return combined(function, put, x, updates, reduction, include_self)


_TORCH_REDUCTIONS = {"prod": "mul", "mean": "mean", "amax": "max", "amin": "min"}


def index_reduce(
    x: TensorLike,
    axis: AxisKey,
    index: TensorLike,
    source: TensorLike,
    reduce: str,
    *,
    include_self: bool = True,
) -> TensorOp:
    """Return x with slices of a source combined into it at indices along an axis.

    It is `scatter` with the arguments of ``torch.index_reduce``.

    Parameters
    ----------
    x
        The operand.
    axis
        The axis: a position, an axis or its name.
    index
        A vector of integers; negative ones count from the end.
    source
        The slices, along the axis as many as indices; broadcast, and cast to the dtype of x.
    reduce
        How they combine: ``prod``, ``mean``, ``amax`` or ``amin``. A mean of integers is rounded
        down.
    include_self
        Whether the elements of x are combined too; otherwise only the slices are.

    Returns
    -------
    TensorOp
        A tensor like x.

    Raises
    ------
    AxesError
        If the operand has no such axis, the index is not a vector, or the source does not
        broadcast.
    ArgumentError
        If there is no such reduction.
    DTypeError
        If the indices are not integers.
    IndexOutOfRange
        If an index is out of range: at the call, or here if it is constant.

    Examples
    --------
    >>> x, index, source = np.array([1, 2, 3]), np.array([0, 2, 2]), np.array([4, 5, 6])
    >>> weft.jit(lambda x, i, y: weft.index_reduce(x, 0, i, y, "prod"))(x, index, source)
    array([ 4,  2, 90])
    """
    x, index = as_op(x), as_indices(index)
    if index.rank != 1:
        problem = f"the index must be a vector, not {index.axes}"
        raise AxesError(explain("index_reduce", problem, (x, index)))
    if reduce not in _TORCH_REDUCTIONS:
        problem = f"unknown reduction {reduce!r}: use one of {', '.join(_TORCH_REDUCTIONS)}"
        raise ArgumentError(explain("index_reduce", problem, (x,)))
    how = _TORCH_REDUCTIONS[reduce]
    return _scattered("index_reduce", x, index, source, axis, how, include_self)
