"""Writes of state: the whole of it, a slice, or one value everywhere; and the value at a moment."""

from __future__ import annotations

from typing import Any

from weft.dtypes import DType
from weft.errors import AxesError, StateError, WeftError
from weft.op import Op, explain
from weft.ops.elementwise import cast
from weft.ops.indexing import update_slice
from weft.ops.movement import IdentityOp, broadcast
from weft.ops.storage import AssignOp, as_op, constant
from weft.tensor import TensorOp, operators

__all__ = [
    "SetItem",
    "ValueOfOp",
    "assign",
    "fill",
    "set_item",
    "value_of",
]


class ValueOfOp(IdentityOp):
    """The value that the operand has when this op is built, whatever is written later."""


def assign(state: Any, value: Any) -> AssignOp:
    """Write a value, broadcast and cast, into a state; what is built afterwards reads it.

    Raises StateError for anything but a variable, persistent tensor or placeholder, and AxesError
    or DTypeError for a value that does not fit.
    """
    if not isinstance(state, Op) or not state.is_state:
        what = "a constant" if isinstance(state, Op) and state.is_constant else "no stored tensor"
        problem = f"{state} is not assignable, it is {what}: assign to a variable"
        raise StateError(explain("assign", problem, [state] if isinstance(state, Op) else []))
    value = _number_for(value, state.dtype)
    try:
        if value.axes:
            value = broadcast(value, state.axes)
    except WeftError:
        problem = f"{value} {value.axes} does not fit {state} {state.axes}"
        raise AxesError(explain("assign", problem, (state, value))) from None
    return AssignOp(state, cast(value, state.dtype))  # type: ignore[arg-type]


def _number_for(value: Any, dtype: DType) -> TensorOp:
    if isinstance(value, bool | int | float | complex):
        return constant(value, dtype=dtype)
    return as_op(value)


def SetItem(state: Any, value: Any) -> AssignOp:  # noqa: N802
    """Write the whole of a state, as `assign` does."""
    return assign(state, value)


def set_item(state: Any, item: Any, value: Any) -> AssignOp:
    """Write a slice of a state; steps may be negative."""
    slices = item if isinstance(item, tuple) else (item,)
    if all(part is Ellipsis or _is_everything(part) for part in slices):
        return assign(state, value)
    return assign(state, update_slice(state, slices, value))


def _is_everything(part: Any) -> bool:
    return isinstance(part, slice) and part == slice(None)


def fill(state: Any, value: Any) -> AssignOp:
    """Write one number into every element of a state."""
    return assign(state, value)


def value_of(x: Any) -> TensorOp:
    """Return the value that a tensor has now, before any later write."""
    return ValueOfOp(as_op(x))


operators["set_item"] = set_item  # type: ignore[assignment]
