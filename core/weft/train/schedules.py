"""Learning-rate schedules as tensors of the step number.

The step is a scalar that counts from 0, such as a persistent tensor incremented in each training
step. The result is a scalar, which every optimizer takes as its learning rate.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from weft.errors import ArgumentError, AxesError, DTypeError
from weft.ir import dtypes
from weft.ir.op import explain
from weft.ir.storage import as_op
from weft.ir.tensor import TensorLike, TensorOp
from weft.ops.arguments import checked_number
from weft.ops.pointwise.comparison import clip, greater_equal, where
from weft.ops.pointwise.elementwise import cast
from weft.ops.pointwise.math import cos, power
from weft.ops.pointwise.rounding import floor

__all__ = [
    "cosine_decay",
    "exponential_decay",
    "inverse_time_decay",
    "piecewise_constant",
    "polynomial_decay",
    "step_decay",
    "warm_up",
]


def _step(function: str, step: TensorLike) -> TensorOp:
    """Return the step number as a float scalar."""
    op = as_op(step)
    if op.axes:
        problem = f"step must be a scalar, which counts from 0, not {op.axes}"
        raise AxesError(explain(function, problem, (op,)))
    if not dtypes.is_integer(op.dtype) and not dtypes.is_float(op.dtype):
        raise DTypeError(explain(function, f"step must be a number, not {op.dtype}", (op,)))
    return cast(op, dtypes.float64 if op.dtype == dtypes.float64 else dtypes.DEFAULT)


def _positive(function: str, what: str, value: float) -> float:
    number = checked_number(function, what, value)
    if not number:
        raise ArgumentError(explain(function, f"{what} must be more than 0", ()))
    return number


def _progress(function: str, step: TensorLike, steps: float) -> TensorOp:
    """Return the fraction of the steps completed, at most 1."""
    return clip(_step(function, step) / _positive(function, "steps", steps), 0.0, 1.0)


def step_decay(step: TensorLike, rate: float, steps: float, factor: float = 0.1) -> TensorOp:
    """Return ``rate * factor ** floor(step / steps)``: multiplied by factor every `steps` steps."""
    return _decayed("step_decay", step, rate, steps, factor, staircase=True)


def exponential_decay(
    step: TensorLike, rate: float, steps: float, factor: float = 0.1, staircase: bool = False
) -> TensorOp:
    """Return ``rate * factor ** (step / steps)``; with `staircase` as `step_decay`."""
    return _decayed("exponential_decay", step, rate, steps, factor, staircase)


def _decayed(
    function: str, step: TensorLike, rate: float, steps: float, factor: float, staircase: bool
) -> TensorOp:
    rate = checked_number(function, "rate", rate)
    factor = _positive(function, "factor", factor)
    times = _times(function, step, steps, staircase)
    return power(as_op(factor, times.dtype), times) * rate


def _times(function: str, step: TensorLike, steps: float, staircase: bool) -> TensorOp:
    """Return step / steps, rounded down with `staircase`."""
    if not isinstance(staircase, bool):
        problem = f"staircase must be True or False, not {staircase!r}"
        raise ArgumentError(explain(function, problem, ()))
    times = _step(function, step) / _positive(function, "steps", steps)
    return floor(times) if staircase else times


def inverse_time_decay(
    step: TensorLike, rate: float, steps: float, factor: float = 1.0, staircase: bool = False
) -> TensorOp:
    """Return ``rate / (1 + factor * step / steps)``; with `staircase` the quotient is rounded down.

    (Robbins and Monro: A stochastic approximation method, 1951.)
    """
    rate = checked_number("inverse_time_decay", "rate", rate)
    factor = checked_number("inverse_time_decay", "factor", factor)
    return rate / (_times("inverse_time_decay", step, steps, staircase) * factor + 1.0)


def polynomial_decay(
    step: TensorLike, rate: float, steps: float, end: float = 0.0, order: float = 1.0
) -> TensorOp:
    """Return ``end + (rate - end) * (1 - step / steps) ** order``, and `end` after `steps` steps.

    The order 1 gives a linear decay.
    """
    function = "polynomial_decay"
    rate, end = checked_number(function, "rate", rate), checked_number(function, "end", end)
    order = _positive(function, "order", order)
    left = 1.0 - _progress(function, step, steps)
    return (left if order == 1 else power(left, order)) * (rate - end) + end


def cosine_decay(step: TensorLike, rate: float, steps: float, end: float = 0.0) -> TensorOp:
    """Return ``end + (rate - end) * (1 + cos(pi * step / steps)) / 2``, and `end` after `steps`.

    (Loshchilov and Hutter: SGDR: Stochastic gradient descent with warm restarts, 2017, equation 5,
    without restarts.)
    """
    function = "cosine_decay"
    rate, end = checked_number(function, "rate", rate), checked_number(function, "end", end)
    return (cos(_progress(function, step, steps) * math.pi) + 1.0) * ((rate - end) / 2) + end


def piecewise_constant(
    step: TensorLike, boundaries: Sequence[int], rates: Sequence[float]
) -> TensorOp:
    """Return the rate of the interval of a step.

    `boundaries` are the first steps of the intervals after the first, in increasing order. `rates`
    has one number for each interval.
    """
    function = "piecewise_constant"
    at = _step(function, step)
    starts, values = (
        _numbers(function, what, several)
        for what, several in (("boundaries", boundaries), ("rates", rates))
    )
    if len(values) != len(starts) + 1 or any(a >= b for a, b in itertools.pairwise(starts)):
        problem = f"takes increasing boundaries and one more rate, not {starts} and {values}"
        raise ArgumentError(explain(function, problem, ()))
    result: Any = as_op(values[0], at.dtype)
    if dtypes.is_integer(as_op(step).dtype):
        # float32 does not hold every step above 2**24.
        at = cast(step, dtypes.int64)
        starts = [min(math.ceil(start), 2**63 - 1) for start in starts]
    for start, value in zip(starts, values[1:], strict=True):
        result = where(greater_equal(at, start), value, result)
    return result  # type: ignore[no-any-return]


def _numbers(function: str, what: str, several: Sequence[float]) -> list[float]:
    if not isinstance(several, list | tuple):
        problem = f"{what} must be a list of numbers, not {several!r}"
        raise ArgumentError(explain(function, problem, ()))
    return [checked_number(function, what, value) for value in several]


def warm_up(step: TensorLike, rate: float | TensorOp, steps: float, start: float = 0.0) -> TensorOp:
    """Return a rate times a factor that rises linearly from `start` to 1 over `steps` steps.

    `rate` is a number or a schedule of the same step. (Goyal and others: Accurate, large minibatch
    SGD, 2017, section 2.2.)

    >>> import weft
    >>> step = weft.persistent_tensor((), weft.int32, 0)
    >>> rate = weft.warm_up(step, weft.cosine_decay(step, 0.1, 1000), 50)
    """
    function = "warm_up"
    first = checked_number(function, "start", start, high=1)
    factor = _progress(function, step, steps) * (1.0 - first) + first
    if not isinstance(rate, TensorOp):
        return factor * checked_number(function, "rate", rate)
    if rate.axes:
        problem = f"rate must be a number or a scalar, not {rate.axes}"
        raise AxesError(explain(function, problem, (rate,)))
    return factor * rate
