"""State updates: assignments, slice updates, running sums and averages.

A write is an effect: it happens in computations of the write, or of an op built after it.
"""

from __future__ import annotations

from typing import Any

from weft.errors import AxesError, DTypeError, WeftError
from weft.ir import dtypes
from weft.ir.dtypes import DType, accumulator_dtype
from weft.ir.op import explain
from weft.ir.storage import AssignOp, as_op, constant
from weft.ir.tensor import TensorLike, TensorOp, operators
from weft.ops.indexing.slicing import update_slice
from weft.ops.pointwise.elementwise import cast, subtract
from weft.ops.shape.movement import IdentityOp, broadcast, with_names
from weft.ops.shape.views import WriteTarget

__all__ = [
    "SetItem",
    "ValueOfOp",
    "accumulate",
    "assign",
    "fill",
    "moving_average",
    "scaled_add",
    "set_item",
    "value_of",
]


class ValueOfOp(IdentityOp):
    """The value of the operand when this op is built, regardless of later writes."""


def assign(state: TensorOp, value: TensorLike) -> AssignOp:
    """Return a write of a value into a state, seen by all ops built later.

    Parameters
    ----------
    state
        A variable, persistent tensor or placeholder; or a view of one by slices, transposes and
        reshapes, which writes only that part.
    value
        The value, broadcast and cast to the target. An array of the right shape takes its axis
        names.

    Returns
    -------
    AssignOp
        The write, which happens in computations of it, or of an op built after it that reads the
        state.

    Raises
    ------
    StateError
        If the target is neither a state nor a view of one.
    AxesError
        If the value does not broadcast to the target.
    DTypeError
        If a complex value is written into a real state.

    Examples
    --------
    >>> state = weft.persistent_tensor((2,), initial_value=[1.0, 2.0])
    >>> transformer = weft.make_transformer()
    >>> transformer.computation(weft.assign(state, [3.0, 4.0]))()
    >>> transformer.computation(state)()
    array([3., 4.], dtype=float32)
    """
    target = WriteTarget("assign", state)
    return _write(target, _fitting("assign", target, value))


def _write(target: WriteTarget, value: TensorOp) -> AssignOp:
    """Return the write of a fitting value into a state or a part of it."""
    value = cast(value, target.state.dtype)
    if target.value is not target.state:
        value = target.holding(broadcast(value, target.value.axes))
    return AssignOp(target.state, value)


def _fitting(function: str, target: WriteTarget, value: TensorLike) -> TensorOp:
    """Return a value broadcast to the axes of the target, or as a scalar."""
    old = target.value
    value = with_names(_number_for(value, old.dtype), value, old.axes)
    try:
        return broadcast(value, old.axes) if value.axes else value
    except WeftError:
        problem = f"{value} {value.axes} does not fit {old} {old.axes}"
        raise AxesError(explain(function, problem, (old, value))) from None


def _number_for(value: TensorLike, dtype: DType) -> TensorOp:
    if isinstance(value, bool | int | float | complex):
        return constant(value, dtype=dtype)
    return as_op(value)


def SetItem(state: TensorOp, value: TensorLike) -> AssignOp:  # noqa: N802
    """Return a write of a whole state, as `assign` does.

    Parameters
    ----------
    state
        A variable, persistent tensor or placeholder; or a view of one by slices, transposes and
        reshapes, which writes only that part.
    value
        The value, broadcast and cast to the target. An array of the right shape takes its axis
        names.

    Returns
    -------
    AssignOp
        The write, which happens in computations of it, or of an op built after it that reads the
        state.

    Raises
    ------
    StateError
        If the target is neither a state nor a view of one.
    AxesError
        If the value does not broadcast to the target.
    DTypeError
        If a complex value is written into a real state.

    Examples
    --------
    >>> state = weft.persistent_tensor((2,), initial_value=[1.0, 2.0])
    >>> weft.make_transformer().computation(weft.sequential([weft.SetItem(state, 3.0), state]))()
    array([3., 3.], dtype=float32)
    """
    return assign(state, value)


def set_item(state: TensorOp, item: Any, value: TensorLike) -> AssignOp:
    """Return a write into a slice of a state or view.

    Parameters
    ----------
    state
        A variable, persistent tensor or placeholder; or a view of one by slices, transposes and
        reshapes, which writes only that part.
    item
        A slice or an index, or a tuple of these for each axis, as in ``state[item]``; steps may be
        negative.
    value
        The value, broadcast and cast to the slice.

    Returns
    -------
    AssignOp
        The write, which happens in computations of it, or of an op built after it that reads the
        state.

    Raises
    ------
    StateError
        If the target is neither a state nor a view of one.
    AxesError
        If an index is out of range, or the value does not broadcast to the slice.
    ArgumentError
        If an item is neither a slice nor an integer.
    DTypeError
        If a complex value is written into a real state.

    Examples
    --------
    >>> state = weft.persistent_tensor((3,), initial_value=[1.0, 2.0, 3.0])
    >>> write = weft.set_item(state, slice(0, 2), 9.0)
    >>> weft.make_transformer().computation(weft.sequential([write, state]))()
    array([9., 9., 3.], dtype=float32)
    """
    slices = item if isinstance(item, tuple) else (item,)
    if all(part is Ellipsis or _is_everything(part) for part in slices):
        return assign(state, value)
    target = WriteTarget("set_item", state)
    return _write(target, update_slice(target.value, slices, value))


def _is_everything(part: object) -> bool:
    return isinstance(part, slice) and part == slice(None)


def fill(state: TensorOp, value: TensorLike) -> AssignOp:
    """Return a write of a number into all elements of a state.

    Parameters
    ----------
    state
        A variable, persistent tensor or placeholder; or a view of one by slices, transposes and
        reshapes, which writes only that part.
    value
        The number.

    Returns
    -------
    AssignOp
        The write, which happens in computations of it, or of an op built after it that reads the
        state.

    Raises
    ------
    StateError
        If the target is neither a state nor a view of one.
    AxesError
        If the value does not broadcast to the target.
    DTypeError
        If a complex value is written into a real state.

    Examples
    --------
    >>> state = weft.persistent_tensor((2,), initial_value=[1.0, 2.0])
    >>> weft.make_transformer().computation(weft.sequential([weft.fill(state, 7), state]))()
    array([7., 7.], dtype=float32)
    """
    return assign(state, value)


def accumulate(state: TensorOp, value: TensorLike, factor: TensorLike = 1) -> AssignOp:
    """Return a write that adds ``factor * value`` to a state, as in ``state += value``.

    16-bit floats are added in float32. The result is cast to the dtype of the state by `cast`,
    which truncates for integers.

    Parameters
    ----------
    state
        A variable, persistent tensor or placeholder; or a view of one by slices, transposes and
        reshapes, which writes only that part.
    value
        The value, broadcast to the target.
    factor
        A number, or a tensor that broadcasts to the target.

    Returns
    -------
    AssignOp
        The write, which happens in computations of it, or of an op built after it that reads the
        state.

    Raises
    ------
    StateError
        If the target is neither a state nor a view of one.
    AxesError
        If the value does not broadcast to the target.
    DTypeError
        If a complex value is written into a real state.

    Examples
    --------
    >>> state = weft.persistent_tensor(initial_value=1.0)
    >>> write = weft.accumulate(state, 1)
    >>> count = weft.make_transformer().computation(weft.sequential([write, state]))
    >>> count(), count()
    (array(2., dtype=float32), array(3., dtype=float32))
    """
    return _scaled_add("accumulate", state, value, 1, factor)


def scaled_add(
    state: TensorOp, value: TensorLike, a: TensorLike = 1, b: TensorLike = 1
) -> AssignOp:
    """Return a write of ``a * state + b * value`` into a state.

    16-bit floats are added in float32. The result is cast to the dtype of the state by `cast`,
    which truncates for integers.

    Parameters
    ----------
    state
        A variable, persistent tensor or placeholder; or a view of one by slices, transposes and
        reshapes, which writes only that part.
    value
        The value, broadcast to the target.
    a, b
        Numbers, or tensors that broadcast to the target.

    Returns
    -------
    AssignOp
        The write, which happens in computations of it, or of an op built after it that reads the
        state.

    Raises
    ------
    StateError
        If the target is neither a state nor a view of one.
    AxesError
        If the value does not broadcast to the target.
    DTypeError
        If a complex value is written into a real state.

    Examples
    --------
    >>> state = weft.persistent_tensor(initial_value=1.0)
    >>> write = weft.scaled_add(state, 2.0, a=10, b=3)
    >>> weft.make_transformer().computation(weft.sequential([write, state]))()
    array(16., dtype=float32)
    """
    return _scaled_add("scaled_add", state, value, a, b)


def _scaled_add(
    function: str, state: TensorOp, value: TensorLike, a: TensorLike, b: TensorLike
) -> AssignOp:
    target = WriteTarget(function, state)
    value = _fitting(function, target, value)
    old, new = (cast(x, accumulator_dtype(x.dtype)) for x in (target.value, value))
    return _write(target, _fitting(function, target, old * a + new * b))


def moving_average(state: TensorOp, value: TensorLike, decay: TensorLike) -> AssignOp:
    """Return a write of the exponential moving average ``decay * state + (1 - decay) * value``.

    For a state that starts at 0, division by ``1 - decay ** calls`` corrects the bias.

    Parameters
    ----------
    state
        A variable, persistent tensor or placeholder; or a view of one by slices, transposes and
        reshapes, which writes only that part. It has a float dtype.
    value
        The value, broadcast to the target.
    decay
        The share of the old value: a number or a scalar.

    Returns
    -------
    AssignOp
        The write, which happens in computations of it, or of an op built after it that reads the
        state.

    Raises
    ------
    StateError
        If the target is neither a state nor a view of one.
    AxesError
        If the value does not broadcast to the target.
    DTypeError
        If the state has no float dtype.

    Examples
    --------
    >>> mean = weft.persistent_tensor(initial_value=0.0)
    >>> write = weft.moving_average(mean, 1.0, decay=0.75)
    >>> average = weft.make_transformer().computation(weft.sequential([write, mean]))
    >>> average(), average()
    (array(0.25, dtype=float32), array(0.4375, dtype=float32))
    """
    if not dtypes.is_inexact(WriteTarget("moving_average", state).value.dtype):
        problem = f"{state} is {state.dtype}, but an average needs a float dtype"
        raise DTypeError(explain("moving_average", problem, (state,)))
    return _scaled_add("moving_average", state, value, decay, subtract(1.0, decay))


def value_of(x: TensorLike) -> TensorOp:
    """Return the present value of a tensor, before any later write.

    Examples
    --------
    >>> state = weft.persistent_tensor(initial_value=1.0)
    >>> before = weft.value_of(state)
    >>> write = weft.assign(state, 5.0)
    >>> weft.make_transformer().computation([before, state])()
    (array(1., dtype=float32), array(5., dtype=float32))
    """
    return ValueOfOp(as_op(x))


operators["set_item"] = set_item  # type: ignore[assignment]
