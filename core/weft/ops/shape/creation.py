"""Tensor creation: constants, ranges, identity matrices and meshes.

Ranges of integers are int64, like the results of `argmax`; the default of the others is float32.
"""

from __future__ import annotations

import math
from typing import Any, SupportsIndex

import numpy as np

from weft.errors import ArgumentError, AxesError, DTypeError
from weft.ir import dtypes
from weft.ir.axes import Axes, AxesLike, Axis, make_axes
from weft.ir.dtypes import DType, DTypeLike
from weft.ir.lengths import Length, floor_divide
from weft.ir.op import Op, explain
from weft.ir.storage import as_op, constant
from weft.ir.tensor import TensorLike, TensorOp
from weft.ops.arguments import checked_integer, index_of
from weft.ops.keywords import also_takes
from weft.ops.pointwise.comparison import equal, greater_equal, less, where
from weft.ops.pointwise.elementwise import add, cast, common_dtype, divide, multiply, subtract
from weft.ops.shape.movement import BroadcastOp, IotaOp, broadcast

__all__ = [
    "arange",
    "empty",
    "empty_like",
    "eye",
    "full",
    "full_like",
    "linspace",
    "meshgrid",
    "ones",
    "ones_like",
    "tri",
    "zeros",
    "zeros_like",
]


@also_takes(shape="axes", fill_value="value", device=None)
def full(axes: AxesLike, value: TensorLike, dtype: DTypeLike | None = None) -> TensorOp:
    """Return a tensor filled with a value; it is a view without memory of its own.

    Parameters
    ----------
    axes, shape
        The axes, or the lengths of positional ones.
    value, fill_value
        What it is filled with: a number, or a tensor that broadcasts to the axes.
    dtype
        The dtype; by default that of the value, float32 for Python's numbers.
    device
        Must be None, for the backend of a graph decides where its tensors are.

    Returns
    -------
    TensorOp
        A tensor of these axes.

    Examples
    --------
    >>> weft.jit(lambda: weft.full((2, 2), 7.0))()
    array([[7., 7.],
           [7., 7.]], dtype=float32)
    """
    if isinstance(value, Op):
        op = as_op(value) if dtype is None else cast(value, dtype)
    else:
        op = constant(value, dtype=None if dtype is None else dtypes.as_dtype(dtype))
    return broadcast(op, make_axes(axes))


@also_takes(shape="axes", device=None)
def zeros(axes: AxesLike, dtype: DTypeLike | None = None) -> TensorOp:
    """Return zeros of the given axes or shape.

    Parameters
    ----------
    axes, shape
        The axes, or the lengths of positional ones.
    dtype
        The dtype; by default float32.
    device
        Must be None, for the backend of a graph decides where its tensors are.

    Returns
    -------
    TensorOp
        A tensor of these axes.

    Examples
    --------
    >>> weft.jit(lambda: weft.zeros((2, 2)))()
    array([[0., 0.],
           [0., 0.]], dtype=float32)
    """
    return full(axes, 0, dtype)


@also_takes(shape="axes", device=None)
def ones(axes: AxesLike, dtype: DTypeLike | None = None) -> TensorOp:
    """Return ones of the given axes or shape.

    Parameters
    ----------
    axes, shape
        The axes, or the lengths of positional ones.
    dtype
        The dtype; by default float32.
    device
        Must be None, for the backend of a graph decides where its tensors are.

    Returns
    -------
    TensorOp
        A tensor of these axes.

    Examples
    --------
    >>> weft.jit(lambda: weft.ones((2, 2)))()
    array([[1., 1.],
           [1., 1.]], dtype=float32)
    """
    return full(axes, 1, dtype)


@also_takes(fill_value="value", device=None)
def full_like(x: TensorLike, value: TensorLike, dtype: DTypeLike | None = None) -> TensorOp:
    """Return a tensor like another one, filled with a value.

    Parameters
    ----------
    x
        The tensor whose axes the result has.
    value, fill_value
        What it is filled with: a number, or a tensor that broadcasts to the axes.
    dtype
        The dtype; by default that of x.
    device
        Must be None, for the backend of a graph decides where its tensors are.

    Returns
    -------
    TensorOp
        A tensor with the axes of x.

    Examples
    --------
    >>> weft.jit(lambda x: weft.full_like(x, 7))(np.ones((2, 2)))
    array([[7., 7.],
           [7., 7.]])
    """
    x = as_op(x)
    return full(x.axes, value, x.dtype if dtype is None else dtype)


@also_takes(device=None)
def zeros_like(x: TensorLike, dtype: DTypeLike | None = None) -> TensorOp:
    """Return zeros with the axes and, by default, the dtype of x.

    Parameters
    ----------
    x
        The tensor whose axes the result has.
    dtype
        The dtype; by default that of x.
    device
        Must be None, for the backend of a graph decides where its tensors are.

    Returns
    -------
    TensorOp
        A tensor with the axes of x.

    Examples
    --------
    >>> weft.jit(weft.zeros_like)(np.array([1.5, 2.5]))
    array([0., 0.])
    """
    return full_like(x, 0, dtype)


@also_takes(device=None)
def ones_like(x: TensorLike, dtype: DTypeLike | None = None) -> TensorOp:
    """Return ones with the axes and, by default, the dtype of x.

    Parameters
    ----------
    x
        The tensor whose axes the result has.
    dtype
        The dtype; by default that of x.
    device
        Must be None, for the backend of a graph decides where its tensors are.

    Returns
    -------
    TensorOp
        A tensor with the axes of x.

    Examples
    --------
    >>> weft.jit(weft.ones_like)(np.array([1.5, 2.5]))
    array([1., 1.])
    """
    return full_like(x, 1, dtype)


# No memory is left unset: what fills a tensor is decided when the graph is compiled.
empty, empty_like = zeros, zeros_like


@also_takes(device=None)
def arange(
    start: complex | Axis | Length,
    stop: float | Axis | Length | None = None,
    step: float = 1,
    dtype: DTypeLike | None = None,
) -> TensorOp:
    """Return evenly spaced numbers from `start` up to, but not including, `stop`.

    Parameters
    ----------
    start
        The first number; if it is the only argument, it is `stop`, and the numbers begin at 0.
    stop
        The limit: a number, an unknown length (as in ``x.axes[0].length``), or an axis, which the
        result then has.
    step
        The distance of two numbers.
    dtype
        The dtype; by default int64 for integers, float32 for floats.
    device
        Must be None, for the backend of a graph decides where its tensors are.

    Returns
    -------
    TensorOp
        A vector of the numbers.

    Raises
    ------
    ArgumentError
        If start, stop and step are not numbers, or the step is 0.
    DTypeError
        If an integer dtype cannot hold all the numbers.

    Examples
    --------
    >>> weft.jit(lambda: weft.arange(5))()
    array([0, 1, 2, 3, 4])
    >>> weft.jit(lambda: weft.arange(1, 2, 0.25))()
    array([1.  , 1.25, 1.5 , 1.75], dtype=float32)
    """
    if stop is None:
        start, stop = 0, start
    axis = stop if isinstance(stop, Axis) else None
    numbers = _checked_range(start, stop if axis is None else axis.length, step)
    is_whole = all(isinstance(number, int | Length) for number in numbers)
    default = dtypes.int64 if is_whole else dtypes.DEFAULT
    target = default if dtype is None else dtypes.as_dtype(dtype)
    length = _steps(numbers, is_whole)
    _require_fit(numbers, length, target)
    if axis is None or axis.length != length:
        axis = Axis(length, None if axis is None else axis.name)
    working = _working_dtype(target)
    count: TensorOp = IotaOp(target_axes=Axes((axis,)), target_dtype=working, position=0)
    first, _, each = numbers
    if each != 1:
        each = each % 2**64 if working == dtypes.uint64 else each
        count = multiply(count, constant(each, dtype=working))
    if first != 0:
        count = add(count, constant(first, dtype=working))
    return cast(count, target)


def _checked_range(start: Any, stop: Any, step: Any) -> list[Any]:
    """Return start, stop and step as int or float; stop may be an unknown length."""
    found: list[Any] = []
    for what, number in (("start", start), ("stop", stop), ("step", step)):
        if what == "stop" and isinstance(number, Length):
            found.append(number)
        elif (index := index_of(number)) is not None:
            found.append(index)
        elif isinstance(number, float | np.floating) and math.isfinite(number):
            found.append(float(number))
        else:
            raise ArgumentError(f"arange: {what} must be a finite number, not {number!r}")
    if found[-1] == 0:
        raise ArgumentError("arange: the step must not be 0")
    return found


def _steps(numbers: list[Any], is_whole: bool) -> Any:
    """Return the number of elements of a range."""
    start, stop, step = numbers
    if isinstance(stop, Length) and not is_whole:
        raise ArgumentError(
            f"arange: up to an unknown length {stop}, start and step must be integers"
        )
    if not is_whole:
        return max(0, math.ceil((stop - start) / step))
    count = floor_divide(stop - start + step - (1 if step > 0 else -1), step)
    return count if isinstance(count, Length) else max(0, count)


def _require_fit(numbers: list[Any], length: int | Length, target: DType) -> None:
    """Check that the first and the last number fit the dtype."""
    if dtypes.is_bool(target) or target.kind == "c":
        raise DTypeError(f"arange takes an integer or float dtype, not {target}")
    if dtypes.is_integer(target) and length != 0:
        start, _, step = numbers
        last = start if isinstance(length, Length) else start + (length - 1) * step
        dtypes.host_array([start, last], target, "arange")


def _working_dtype(target: DType) -> DType:
    """Return the dtype of the computation: float32 for 16-bit floats, 64 bits for integers."""
    if dtypes.is_float(target):
        return dtypes.float32 if target.itemsize == 2 else target
    return dtypes.uint64 if target == dtypes.uint64 else dtypes.int64


@also_takes(device=None)
def linspace(
    start: TensorLike,
    stop: TensorLike,
    num: SupportsIndex | Axis = 50,
    endpoint: bool = True,
    dtype: DTypeLike | None = None,
) -> TensorOp:
    """Return evenly spaced numbers from `start` to `stop`, which are both exact.

    Parameters
    ----------
    start, stop
        The limits: numbers or scalar tensors, which get gradients.
    num
        How many numbers there are, or an axis of this length.
    endpoint
        Whether `stop` is the last number; otherwise it is the one after the last.
    dtype
        A float dtype; by default that of start and stop, float32 for numbers.
    device
        Must be None, for the backend of a graph decides where its tensors are.

    Returns
    -------
    TensorOp
        A vector of the numbers.

    Raises
    ------
    AxesError
        If start or stop is not a scalar, or the axis has no known length.
    ArgumentError
        If `num` is not an integer, or is negative.
    DTypeError
        If the dtype is not a float.

    Examples
    --------
    >>> weft.jit(lambda: weft.linspace(0, 1, 5))()
    array([0.  , 0.25, 0.5 , 0.75, 1.  ], dtype=float32)
    """
    axis = (
        make_axes(num)[0]
        if isinstance(num, Axis)
        else Axis(checked_integer("linspace", "num", num, 0))
    )
    target = common_dtype((start, stop)) if dtype is None else dtypes.as_dtype(dtype)
    target = target if dtype is not None or dtypes.is_inexact(target) else dtypes.DEFAULT
    if not dtypes.is_float(target):
        raise DTypeError(f"linspace needs a float dtype, not {target}: cast the result")
    first, last = (_end("linspace", end, target) for end in (start, stop))
    if not isinstance(axis.length, int):
        raise AxesError(f"linspace needs an axis of known length, not {axis!r}")
    return cast(_between(first, last, axis, axis.length - bool(endpoint)), target)


def _end(function: str, value: TensorLike, dtype: DType) -> TensorOp:
    working = _working_dtype(dtype)
    end = cast(value, working) if isinstance(value, Op) else as_op(value, working)
    if end.axes:
        problem = f"start and stop must be scalars, not {end.axes}"
        raise AxesError(explain(function, problem, (end,)))
    return end


def _between(start: TensorOp, stop: TensorOp, axis: Axis, steps: int) -> TensorOp:
    """Interpolate from the nearer end, so that both ends are exact."""
    axes = Axes((axis,))
    if steps < 1:
        return broadcast(start, axes)
    count = IotaOp(target_axes=axes, target_dtype=start.dtype, position=0)
    each = subtract(divide(stop, steps), divide(start, steps))
    below, above = add(start, each * count), subtract(stop, each * (steps - count))
    return where(less(count, (steps + 1) / 2), below, above)


@also_takes(device=None)
def eye(
    rows: Axis | Length | SupportsIndex,
    columns: Axis | Length | SupportsIndex | None = None,
    k: int = 0,
    dtype: DTypeLike | None = None,
) -> TensorOp:
    """Return a matrix with ones on a diagonal and zeros elsewhere.

    Parameters
    ----------
    rows, columns
        Lengths or axes; without columns the matrix is square.
    k
        Which diagonal: 0 is the main one, positive ones are above.
    dtype
        The dtype; by default float32.
    device
        Must be None, for the backend of a graph decides where its tensors are.

    Returns
    -------
    TensorOp
        The matrix.

    Raises
    ------
    AxesError
        If the columns lack a name that the rows have.
    ArgumentError
        If `k` is not an integer.

    Examples
    --------
    >>> weft.jit(lambda: weft.eye(2))()
    array([[1., 0.],
           [0., 1.]], dtype=float32)
    >>> weft.jit(lambda: weft.eye(2, 3, k=1))()
    array([[0., 1., 0.],
           [0., 0., 1.]], dtype=float32)
    """
    row, column = _row_and_column(_matrix_axes("eye", rows, columns), "eye", k)
    return cast(equal(row, column), dtypes.DEFAULT if dtype is None else dtype)


def tri(
    rows: Axis | Length | SupportsIndex,
    columns: Axis | Length | SupportsIndex | None = None,
    k: int = 0,
    dtype: DTypeLike = dtypes.DEFAULT,
) -> TensorOp:
    """Return a matrix with ones on and below a diagonal and zeros elsewhere.

    Parameters
    ----------
    rows, columns
        Lengths or axes; without columns the matrix is square.
    k
        Which diagonal: 0 is the main one, positive ones are above.
    dtype
        The dtype.

    Returns
    -------
    TensorOp
        The matrix.

    Raises
    ------
    AxesError
        If the columns lack a name that the rows have.
    ArgumentError
        If `k` is not an integer.

    Examples
    --------
    >>> weft.jit(lambda: weft.tri(3))()
    array([[1., 0., 0.],
           [1., 1., 0.],
           [1., 1., 1.]], dtype=float32)
    """
    row, column = _row_and_column(_matrix_axes("tri", rows, columns), "tri", k)
    return cast(greater_equal(row, column), dtype)


def _matrix_axes(
    function: str,
    rows: Axis | Length | SupportsIndex,
    columns: Axis | Length | SupportsIndex | None,
) -> Axes:
    if columns is None and isinstance(rows, Axis) and rows.name is not None:
        raise AxesError(f"{function}: columns need a name as {rows!r} has one: give their axis too")
    if isinstance(rows, tuple | list):
        raise ArgumentError(f"{function} takes rows and columns as two arguments, not {rows!r}")
    return make_axes((rows, rows if columns is None else columns))


def _row_and_column(axes: Axes, function: str, k: int) -> tuple[TensorOp, TensorOp]:
    """Return the row index plus k, and the column index, of each element of a matrix."""
    offset = checked_integer(function, "k", k)
    row, column = (
        IotaOp(target_axes=Axes((axis,)), target_dtype=dtypes.int64, position=0) for axis in axes
    )
    moved = add(row, offset) if offset else row
    return (
        BroadcastOp(moved, target_axes=axes, dims=(0,)),
        BroadcastOp(column, target_axes=axes, dims=(1,)),
    )


def below_diagonal(axes: Axes, function: str, k: int) -> TensorOp:
    """Return the bool mask of the elements on or below the k-th diagonal of a matrix."""
    return greater_equal(*_row_and_column(axes, function, k))


def meshgrid(*vectors: Any, indexing: str = "xy") -> list[TensorOp]:
    """Return coordinate tensors from coordinate vectors, each broadcast along the other axes.

    Parameters
    ----------
    vectors
        The vectors, whose axes keep their names.
    indexing
        The order of the axes: that of the vectors for ``"ij"``; for ``"xy"``, as in NumPy, the
        first two are swapped.

    Returns
    -------
    list of TensorOp
        A tensor for each vector, all of the same axes.

    Raises
    ------
    AxesError
        If one of them is not a vector.
    ArgumentError
        If the indexing is neither of these.

    Examples
    --------
    >>> weft.jit(weft.meshgrid)(np.array([1, 2, 3]), np.array([10, 20]))
    [array([[1, 2, 3],
           [1, 2, 3]]), array([[10, 10, 10],
           [20, 20, 20]])]
    """
    if indexing not in ("xy", "ij"):
        raise ArgumentError(f"meshgrid: indexing must be 'xy' or 'ij', not {indexing!r}")
    ops = [as_op(vector) for vector in vectors]
    for op in ops:
        if op.rank != 1:
            raise AxesError(explain("meshgrid", f"takes vectors, not {op.axes}", ops))
    order = list(range(len(ops)))
    if indexing == "xy":
        order[:2] = reversed(order[:2])
    target = Axes(ops[place].axes[0] for place in order)
    return [
        BroadcastOp(op, target_axes=target, dims=(order.index(place),))
        for place, op in enumerate(ops)
    ]
