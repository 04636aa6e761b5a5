"""State updates: whole, sliced or filled; running sums and averages.

Each write is an effect: a computation does it if it names the write, or an op built after it.
"""

from __future__ import annotations

from typing import Any

from weft.errors import AxesError, DTypeError, WeftError
from weft.ir import dtypes
from weft.ir.dtypes import DType, accumulator_dtype
from weft.ir.op import explain
from weft.ir.storage import AssignOp, as_op, constant
from weft.ir.tensor import TensorOp, operators
from weft.ops.elementwise import cast, subtract
from weft.ops.indexing import update_slice
from weft.ops.movement import IdentityOp, broadcast, with_names
from weft.ops.views import Place

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
    """The value that the operand has when this op is built, whatever is written later."""


def assign(state: Any, value: Any) -> AssignOp:
    """Return a write of a value, broadcast and cast, into a state; what is built later reads it.

    The state may be given by a view of it, made of slices, transposes and reshapes: then what the
    view shows is written, and the rest stays. An array of the right shape takes the names of axes.
    Raises StateError for anything but a variable, persistent tensor or placeholder or such a view,
    and AxesError or DTypeError for a value that does not fit.
    """
    place = Place("assign", state)
    return _write(place, _fitting("assign", place, value))


def _write(place: Place, value: TensorOp) -> AssignOp:
    """Return the write of a fitting value into a state, or a part of it."""
    value = cast(value, place.state.dtype)
    if place.value is not place.state:
        value = place.holding(broadcast(value, place.value.axes))
    return AssignOp(place.state, value)


def _fitting(function: str, place: Place, value: Any) -> TensorOp:
    """Return a value as a scalar, or repeated over the axes of the place that is to take it."""
    target = place.value
    value = with_names(_number_for(value, target.dtype), value, target.axes)
    try:
        return broadcast(value, target.axes) if value.axes else value
    except WeftError:
        problem = f"{value} {value.axes} does not fit {target} {target.axes}"
        raise AxesError(explain(function, problem, (target, value))) from None


def _number_for(value: Any, dtype: DType) -> TensorOp:
    if isinstance(value, bool | int | float | complex):
        return constant(value, dtype=dtype)
    return as_op(value)


def SetItem(state: Any, value: Any) -> AssignOp:  # noqa: N802
    """Return a write of the whole of a state, as by `assign`."""
    return assign(state, value)


def set_item(state: Any, item: Any, value: Any) -> AssignOp:
    """Return a write into a slice of a state, or of a view of one; steps may be negative."""
    slices = item if isinstance(item, tuple) else (item,)
    if all(part is Ellipsis or _is_everything(part) for part in slices):
        return assign(state, value)
    place = Place("set_item", state)
    return _write(place, update_slice(place.value, slices, value))


def _is_everything(part: Any) -> bool:
    return isinstance(part, slice) and part == slice(None)


def fill(state: Any, value: Any) -> AssignOp:
    """Return a write of one number into every element of a state."""
    return assign(state, value)


def accumulate(state: Any, value: Any, factor: Any = 1) -> AssignOp:
    """Return a write that adds ``factor * value`` to a state, as in ``state += value``.

    See `scaled_add`.
    """
    return _scaled_add("accumulate", state, value, 1, factor)


def scaled_add(state: Any, value: Any, a: Any = 1, b: Any = 1) -> AssignOp:
    """Return a write of ``a * state + b * value`` into a state.

    The value is broadcast to the state; the factors are numbers or tensors that broadcast likewise.
    Floats of 16 bits are added in float32; what comes out is cast to the state's dtype as `cast`
    does, so integers lose a fraction. Raises as `assign` does.
    """
    return _scaled_add("scaled_add", state, value, a, b)


def _scaled_add(function: str, state: Any, value: Any, a: Any, b: Any) -> AssignOp:
    place = Place(function, state)
    value = _fitting(function, place, value)
    old, new = (cast(x, accumulator_dtype(x.dtype)) for x in (place.value, value))
    return _write(place, _fitting(function, place, old * a + new * b))


def moving_average(state: Any, value: Any, decay: Any) -> AssignOp:
    """Return a write of the exponential moving average ``decay * state + (1 - decay) * value``.

    `decay` is a number or a scalar. From a state that begins at 0, divide by
    ``1 - decay ** calls`` to be rid of that beginning. Raises DTypeError for a state that holds no
    floats, else as `assign` does.
    """
    if not dtypes.is_inexact(Place("moving_average", state).value.dtype):
        problem = f"{state} holds {state.dtype}, which cannot hold an average: make it a float"
        raise DTypeError(explain("moving_average", problem, (state,)))
    return _scaled_add("moving_average", state, value, decay, subtract(1.0, decay))


def value_of(x: Any) -> TensorOp:
    """Return the value that a tensor has now, before any later write."""
    return ValueOfOp(as_op(x))


operators["set_item"] = set_item  # type: ignore[assignment]
