"""Learning-rate schedules as tensors of the step number.

The step is a scalar that counts from 0, such as a persistent tensor incremented in each training
step. The result is a scalar, which every optimizer takes as its learning rate.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from weft import ops
from weft.errors import ArgumentError, AxesError, DTypeError
from weft.ir import dtypes
from weft.ir.op import explain
from weft.ir.storage import as_op
from weft.ir.tensor import TensorLike, TensorOp
from weft.ops.arguments import check_flags, checked_number

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
    return ops.cast(op, dtypes.float64 if op.dtype == dtypes.float64 else dtypes.DEFAULT)


def _positive(function: str, what: str, value: float) -> float:
    number = checked_number(function, what, value)
    if not number:
        raise ArgumentError(explain(function, f"{what} must be more than 0", ()))
    return number


def _progress(function: str, step: TensorLike, steps: float) -> TensorOp:
    """Return the fraction of the steps completed, at most 1."""
    return ops.clip(_step(function, step) / _positive(function, "steps", steps), 0.0, 1.0)


def step_decay(step: TensorLike, rate: float, steps: float, factor: float = 0.1) -> TensorOp:
    """Return ``rate * factor ** floor(step / steps)``: a factor after every `steps` steps.

    Parameters
    ----------
    step
        The number of the step, a scalar that counts from 0, such as a state.
    rate
        The rate at step 0, a number of at least 0.
    steps
        How many steps the rate is constant; above 0.
    factor
        The factor, above 0.

    Returns
    -------
    TensorOp
        A scalar, float64 for a step of float64, else float32.

    Raises
    ------
    AxesError, DTypeError
        If the step is not a real scalar.
    ArgumentError
        If a number is out of range.

    Examples
    --------
    >>> rate = weft.jit(lambda step: weft.step_decay(step, 0.5, 10))
    >>> [round(rate(step).item(), 4) for step in (0, 9, 10, 20)]
    [0.5, 0.5, 0.05, 0.005]
    """
    return _decayed("step_decay", step, rate, steps, factor, staircase=True)


def exponential_decay(
    step: TensorLike, rate: float, steps: float, factor: float = 0.1, staircase: bool = False
) -> TensorOp:
    """Return ``rate * factor ** (step / steps)``.

    Parameters
    ----------
    step
        The number of the step, a scalar that counts from 0, such as a state.
    rate
        The rate at step 0, a number of at least 0.
    steps
        After how many steps the rate has the factor; above 0.
    factor
        The factor, above 0.
    staircase
        Whether the quotient is rounded down, so that the rate is constant between multiples of
        `steps`.

    Returns
    -------
    TensorOp
        A scalar, float64 for a step of float64, else float32.

    Raises
    ------
    AxesError, DTypeError
        If the step is not a real scalar.
    ArgumentError
        If a number is out of range, or `staircase` is not a bool.

    Examples
    --------
    >>> rate = weft.jit(lambda step: weft.exponential_decay(step, 0.5, 10))
    >>> [round(rate(step).item(), 4) for step in (0, 5, 10)]
    [0.5, 0.1581, 0.05]
    """
    return _decayed("exponential_decay", step, rate, steps, factor, staircase)


def _decayed(
    function: str, step: TensorLike, rate: float, steps: float, factor: float, staircase: bool
) -> TensorOp:
    rate = checked_number(function, "rate", rate)
    factor = _positive(function, "factor", factor)
    times = _times(function, step, steps, staircase)
    return ops.power(as_op(factor, times.dtype), times) * rate


def _times(function: str, step: TensorLike, steps: float, staircase: bool) -> TensorOp:
    """Return step / steps, rounded down with `staircase`."""
    check_flags(function, staircase=staircase)
    times = _step(function, step) / _positive(function, "steps", steps)
    return ops.floor(times) if staircase else times


def inverse_time_decay(
    step: TensorLike, rate: float, steps: float, factor: float = 1.0, staircase: bool = False
) -> TensorOp:
    """Return ``rate / (1 + factor * step / steps)``.

    (Robbins and Monro: A stochastic approximation method, 1951.)

    Parameters
    ----------
    step
        The number of the step, a scalar that counts from 0, such as a state.
    rate
        The rate at step 0, a number of at least 0.
    steps
        The unit of the steps; above 0.
    factor
        The factor in the denominator, at least 0.
    staircase
        Whether the quotient is rounded down, so that the rate is constant between multiples of
        `steps`.

    Returns
    -------
    TensorOp
        A scalar, float64 for a step of float64, else float32.

    Raises
    ------
    AxesError, DTypeError
        If the step is not a real scalar.
    ArgumentError
        If a number is out of range, or `staircase` is not a bool.

    Examples
    --------
    >>> rate = weft.jit(lambda step: weft.inverse_time_decay(step, 0.5, 10))
    >>> [round(rate(step).item(), 4) for step in (0, 10, 30)]
    [0.5, 0.25, 0.125]
    """
    rate = checked_number("inverse_time_decay", "rate", rate)
    factor = checked_number("inverse_time_decay", "factor", factor)
    return rate / (_times("inverse_time_decay", step, steps, staircase) * factor + 1.0)


def polynomial_decay(
    step: TensorLike, rate: float, steps: float, end: float = 0.0, order: float = 1.0
) -> TensorOp:
    """Return ``end + (rate - end) * (1 - step / steps) ** order``, and `end` after `steps` steps.

    Parameters
    ----------
    step
        The number of the step, a scalar that counts from 0, such as a state.
    rate
        The rate at step 0, a number of at least 0.
    steps
        The number of steps of the decay, above 0.
    end
        The last rate, at least 0.
    order
        The exponent, above 0; 1 makes the decay linear.

    Returns
    -------
    TensorOp
        A scalar, float64 for a step of float64, else float32.

    Raises
    ------
    AxesError, DTypeError
        If the step is not a real scalar.
    ArgumentError
        If a number is out of range.

    Examples
    --------
    >>> rate = weft.jit(lambda step: weft.polynomial_decay(step, 0.5, 10))
    >>> [round(rate(step).item(), 4) for step in (0, 5, 10, 20)]
    [0.5, 0.25, 0.0, 0.0]
    """
    function = "polynomial_decay"
    rate, end = checked_number(function, "rate", rate), checked_number(function, "end", end)
    order = _positive(function, "order", order)
    left = 1.0 - _progress(function, step, steps)
    return (left if order == 1 else ops.power(left, order)) * (rate - end) + end


def cosine_decay(step: TensorLike, rate: float, steps: float, end: float = 0.0) -> TensorOp:
    """Return ``end + (rate - end) * (1 + cos(pi * step / steps)) / 2``, and `end` after `steps`.

    (Loshchilov and Hutter: SGDR: Stochastic gradient descent with warm restarts, 2017, equation 5,
    without restarts.)

    Parameters
    ----------
    step
        The number of the step, a scalar that counts from 0, such as a state.
    rate
        The rate at step 0, a number of at least 0.
    steps
        The number of steps of the decay, above 0.
    end
        The last rate, at least 0.

    Returns
    -------
    TensorOp
        A scalar, float64 for a step of float64, else float32.

    Raises
    ------
    AxesError, DTypeError
        If the step is not a real scalar.
    ArgumentError
        If a number is out of range.

    Examples
    --------
    >>> rate = weft.jit(lambda step: weft.cosine_decay(step, 0.5, 10))
    >>> [round(rate(step).item(), 4) for step in (0, 5, 10, 20)]
    [0.5, 0.25, 0.0, 0.0]
    """
    function = "cosine_decay"
    rate, end = checked_number(function, "rate", rate), checked_number(function, "end", end)
    return (ops.cos(_progress(function, step, steps) * math.pi) + 1.0) * ((rate - end) / 2) + end


def piecewise_constant(
    step: TensorLike, boundaries: Sequence[int], rates: Sequence[float]
) -> TensorOp:
    """Return the rate of the interval of a step.

    Parameters
    ----------
    step
        The number of the step, a scalar that counts from 0, such as a state.
    boundaries
        The first steps of the intervals after the first: a list of numbers, increasing.
    rates
        A list with a rate for each interval, one more than boundaries.

    Returns
    -------
    TensorOp
        A scalar, float64 for a step of float64, else float32.

    Raises
    ------
    AxesError, DTypeError
        If the step is not a real scalar.
    ArgumentError
        If boundaries do not increase, or there is not one more rate.

    Examples
    --------
    >>> rate = weft.jit(lambda step: weft.piecewise_constant(step, [10, 20], [1.0, 0.5, 0.25]))
    >>> [rate(step).item() for step in (9, 10, 25)]
    [1.0, 0.5, 0.25]
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
        at = ops.cast(step, dtypes.int64)
        starts = [min(math.ceil(start), 2**63 - 1) for start in starts]
    for start, value in zip(starts, values[1:], strict=True):
        result = ops.where(ops.greater_equal(at, start), value, result)
    return result  # type: ignore[no-any-return]


def _numbers(function: str, what: str, several: Sequence[float]) -> list[float]:
    if not isinstance(several, list | tuple):
        problem = f"{what} must be a list of numbers, not {several!r}"
        raise ArgumentError(explain(function, problem, ()))
    return [checked_number(function, what, value) for value in several]


def warm_up(step: TensorLike, rate: float | TensorOp, steps: float, start: float = 0.0) -> TensorOp:
    """Return a rate times a factor that rises linearly from `start` to 1 over some steps.

    (Goyal et al.: Accurate, large minibatch SGD, 2017, section 2.2.)

    Parameters
    ----------
    step
        The number of the step, a scalar that counts from 0, such as a state.
    rate
        A number, or a schedule of the same step.
    steps
        The number of steps of the rise, above 0.
    start
        The factor at step 0, from 0 to 1.

    Returns
    -------
    TensorOp
        A scalar, float64 for a step of float64, else float32.

    Raises
    ------
    AxesError, DTypeError
        If the step or the rate is not a scalar, or the step is not real.
    ArgumentError
        If a number is out of range.

    Examples
    --------
    >>> rate = weft.jit(lambda step: weft.warm_up(step, 0.5, 10))
    >>> [rate(step).item() for step in (0, 5, 20)]
    [0.0, 0.25, 0.5]

    With a state that counts, and a decay:

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
