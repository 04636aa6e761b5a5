"""Argument checks, and the axes and reductions that normalizations and losses share."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any, SupportsIndex

import numpy as np

from weft.errors import ArgumentError, AxesError, WeftError
from weft.ir.axes import Axes, AxisKey
from weft.ir.dtypes import DType, accumulator_dtype
from weft.ir.op import explain, explained
from weft.ir.storage import as_op
from weft.ir.tensor import TensorLike, TensorOp
from weft.ops.pointwise.elementwise import ElementwiseOp, FloatOp, align, cast, divide
from weft.ops.reductions.reduction import MeanOp, SumOp
from weft.ops.shape.movement import BroadcastOp, broadcast, transpose

REDUCTIONS = ("mean", "sum", "none")
"""The reductions of losses."""


def as_number(value: object) -> float:
    """Return a real number as a float, infinite on overflow; NaN for other values."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def checked_number(
    function: str, what: str, value: float, low: float = 0, high: float = math.inf
) -> float:
    """Return a number as a float; raises ArgumentError unless it is finite and in range."""
    number = as_number(value)
    if not low <= number <= high or math.isinf(number):
        above, below = ("" if math.isinf(limit) else f" {limit}" for limit in (low, high))
        limits = f" from{above} to{below}" if below else f" of at least{above}" if above else ""
        problem = f"{what} must be a finite number{limits}, not {value!r}"
        raise ArgumentError(explain(function, problem, ()))
    return number


def index_of(value: object) -> int | None:
    """Return an integer as an int, and None for other values; the error of an op is its own."""
    if isinstance(value, (bool, np.bool)):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except WeftError:
        raise
    except TypeError:
        return None


def checked_integer(function: str, what: str, value: SupportsIndex, low: float = -math.inf) -> int:
    """Return an integer as an int; raises ArgumentError for other values or below a limit."""
    number = index_of(value)
    if number is None or number < low:
        limit = "" if math.isinf(low) else f", at least {low}"
        problem = f"{what} must be a whole number{limit}, not {value!r}"
        raise ArgumentError(explain(function, problem, ()))
    return number


def check_flags(function: str, operands: Sequence[Any] = (), /, **flags: object) -> None:
    """Raise ArgumentError for a flag that is not True or False, such as `reverse="yes"`."""
    for name, value in flags.items():
        if not isinstance(value, bool):
            problem = f"{name} must be True or False, not {value!r}"
            raise ArgumentError(explain(function, problem, operands))


def check_choice(
    function: str, what: str, value: object, choices: Iterable[Any], operands: Sequence[Any] = ()
) -> None:
    """Raise ArgumentError unless a value is one of several."""
    known = list(choices)
    if value not in known:
        *most, last = map(repr, known)
        problem = f"{what} must be {', '.join(most)} or {last}, not {value!r}"
        raise ArgumentError(explain(function, problem, operands))


def checked_order(function: str, p: float) -> float:
    """Return the order of a norm; raises ArgumentError unless it is at least 1, or infinity."""
    if as_number(p) == math.inf:
        return math.inf
    return checked_number(function, "p", p, low=1)


def aligned_to(function: str, what: str, value: TensorLike, axes: Axes) -> TensorOp:
    """Return a tensor transposed to these axes, or a scalar unchanged."""
    op = as_op(value)
    if not op.axes or op.axes == axes:
        return op
    if op.axes.is_named and axes.is_named and op.axes.is_equal_set(axes):
        return transpose(op, axes)
    problem = f"{what} has {op.axes}, but must have {axes}, or no axes"
    raise AxesError(explain(function, problem, (op,)))


def broadcast_in_dim(value: TensorOp, x: TensorOp, places: tuple[int, ...]) -> TensorOp:
    """Broadcast a tensor with the axes of x at `places`, or a scalar, to the axes of x."""
    return BroadcastOp(value, target_axes=x.axes, dims=places if value.axes else ())


def drop_axis(axes: Axes, position: int) -> Axes:
    """Return the axes without the one at a position."""
    return Axes((*axes[:position], *axes[position + 1 :]))


def class_position(function: str, x: TensorOp, axis: AxisKey | None) -> int:
    """Return the position of the class axis: the given one, the axis named C, or the last."""
    if axis is None and x.axes.is_named:
        axis = x.axes.channel_axis
    elif axis is None and x.axes:
        axis = -1
    if axis is None:
        problem = f"which axis of {x.axes} is that of the classes? Say axis="
        raise AxesError(explain(function, problem, (x,)))
    return int(explained(function, (x,), x.axes.position, axis))


def broadcast_to_losses(
    function: str, what: str, factors: TensorLike, losses: TensorOp
) -> TensorOp:
    """Return factors of losses, broadcast to the axes of the losses."""
    op = as_op(factors, losses.dtype if isinstance(factors, int | float) else None)
    try:
        return broadcast(op, losses.axes)
    except AxesError:
        problem = f"{what} {op.axes} cannot be broadcast to the losses' axes {losses.axes}"
        raise AxesError(explain(function, problem, (op, losses))) from None


def predictions_and_targets(
    function: str, x: TensorLike, targets: TensorLike, kind: type[ElementwiseOp] = FloatOp
) -> tuple[TensorOp, ...]:
    """Return predictions and targets of the same axes, or scalars, in a common dtype of `kind`.

    The targets take the predictions' order of axes. Raises AxesError if only one has an axis:
    alignment by name would pair each prediction with every target.
    """
    given: list[Any] = [v if isinstance(v, bool | int | float) else as_op(v) for v in (x, targets)]
    axes = [op.axes for op in given if isinstance(op, TensorOp) and op.axes]
    is_same = Axes.is_equal_set if axes and axes[0].is_named else Axes.__eq__
    if len(axes) == 2 and not is_same(*axes):
        problem = f"predictions {axes[0]} and targets {axes[1]} must have the same axes"
        raise AxesError(explain(function, f"{problem}: broadcast() one", given))
    return tuple(align(kind, *given))


def loss_operands(
    function: str, x: TensorLike, targets: TensorLike
) -> tuple[TensorOp, TensorOp, DType]:
    """Return `predictions_and_targets`, and the dtype of the loss.

    16-bit floats are returned as float32, since a mean may be in range where a loss is not.
    """
    x, t = predictions_and_targets(function, x, targets)
    wide = accumulator_dtype(x.dtype)
    return cast(x, wide), cast(t, wide), x.dtype


def reduce_losses(
    function: str,
    losses: TensorOp,
    reduction: str,
    weights: TensorOp | None = None,
    dtype: DType | None = None,
) -> TensorOp:
    """Return the mean or the sum of losses over all axes, or the losses themselves.

    The mean of weighted losses is their sum divided by the sum of `weights`. The result has a
    `dtype`, by default that of the losses. Raises ArgumentError for other reductions.
    """
    dtype = losses.dtype if dtype is None else dtype
    if not isinstance(reduction, str) or reduction not in REDUCTIONS:
        problem = f"the reduction {reduction!r} must be one of {', '.join(map(repr, REDUCTIONS))}"
        raise ArgumentError(explain(function, problem, (losses,)))
    if reduction == "none":
        return cast(losses, dtype)
    if reduction == "mean" and weights is None:
        return cast(MeanOp(losses, positions=tuple(range(losses.rank))), dtype)
    total = _total(losses)
    if reduction == "mean" and weights is not None:
        total = divide(total, _total(weights))
    return cast(total, dtype)


def _total(x: TensorOp) -> TensorOp:
    return SumOp(cast(x, accumulator_dtype(x.dtype)), positions=tuple(range(x.rank)))
