"""The formulas of optimizers: what each subtracts from a variable, by its gradient and its slots.

Two doors lead here: ops that update variables of a graph (`optimizers`), and functions of trees
(`weft.optim`). They differ in where slots and the number of the step are.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from weft.errors import ArgumentError, AxesError
from weft.ir import dtypes
from weft.ir.dtypes import DType
from weft.ir.op import explain
from weft.ir.tensor import TensorOp
from weft.ops.arguments import checked_number
from weft.ops.control.state import value_of
from weft.ops.pointwise.comparison import equal, logical_or, maximum, where
from weft.ops.pointwise.elementwise import cast, negative, sign, square
from weft.ops.pointwise.math import expm1, sqrt
from weft.ops.reductions.reduction import sum_over


class Slots(ABC):
    """The slots of the variable that is updated: tensors that an optimizer keeps between steps.

    Attributes
    ----------
    dtype
        The dtype of the update.
    """

    dtype: DType = dtypes.DEFAULT

    @abstractmethod
    def old(self, name: str) -> TensorOp:
        """Return a slot of the variable, 0 at the first step."""

    @abstractmethod
    def write(self, slot: TensorOp, value: TensorOp) -> TensorOp:
        """Record the new value of a slot, and return it."""

    @abstractmethod
    def steps(self) -> TensorOp:
        """Return the number of steps, with this one."""

    def norms(self, *tensors: TensorOp) -> list[TensorOp]:
        """Return the norms of tensors over all elements of the variable."""
        return [sqrt(sum_over(square(x), tuple(range(x.rank)))) for x in tensors]

    def average(self, name: str, value: TensorOp, decay: float) -> TensorOp:
        """Return the new exponential moving average of a value, kept in a slot."""
        old = self.old(name)
        return self.write(old, old * decay + value * (1 - decay))

    def unbiased(self, average: TensorOp, decay: float) -> TensorOp:
        """Return a bias-corrected average: without the weight of its initial 0."""
        if not decay:
            return average
        # 1 - decay ** steps, without cancellation for a decay close to 1.
        return average / negative(expm1(cast(self.steps(), self.dtype) * math.log(decay)))


Rule = Callable[[TensorOp, TensorOp, Slots], TensorOp]
"""A function of value, gradient and slots that returns the update before the learning rate."""


def updated(
    rule: Rule, value: TensorOp, gradient: TensorOp, slots: Slots, rate: float | TensorOp
) -> TensorOp:
    """Return a variable's new value, with a rate as `checked_rate` returns it."""
    change = rule(value, cast(gradient, slots.dtype), slots)
    return value - change * (rate if isinstance(rate, float) else cast(rate, slots.dtype))


def checked_rate(function: str, learning_rate: float | TensorOp) -> float | TensorOp:
    """Return a learning rate as a float, or as a scalar with its present value."""
    if not isinstance(learning_rate, TensorOp):
        return checked_number(function, "learning_rate", learning_rate)
    is_real = dtypes.is_float(learning_rate.dtype) or dtypes.is_integer(learning_rate.dtype)
    if learning_rate.axes or not is_real:
        problem = f"learning_rate must be a real scalar, not {learning_rate.dtype} "
        raise AxesError(explain(function, f"{problem}{learning_rate.axes}", (learning_rate,)))
    return current(learning_rate)


def current(x: TensorOp) -> TensorOp:
    """Return the present value of a state; other tensors unchanged."""
    return value_of(x) if x.is_state else x


def _check_numbers(function: str, **numbers: Any) -> None:
    """Raise ArgumentError unless all are finite numbers of at least 0."""
    for name, value in numbers.items():
        checked_number(function, name, value)


def _check_decays(function: str, **decays: Any) -> None:
    """Raise ArgumentError unless all are numbers from 0 to less than 1."""
    _check_numbers(function, **decays)
    for name, value in decays.items():
        if value >= 1:
            problem = f"{name} must be less than 1, not {value!r}"
            raise ArgumentError(explain(function, problem, ()))


def sgd(momentum: float, nesterov: bool, weight_decay: float, dampening: float) -> Rule:
    """Return the formula of `weft.sgd`."""
    _check_numbers("sgd", momentum=momentum, weight_decay=weight_decay, dampening=dampening)
    if nesterov and (not momentum or dampening):
        problem = "nesterov needs a momentum, and no dampening"
        raise ArgumentError(explain("sgd", problem, ()))

    def rule(value: TensorOp, gradient: TensorOp, slots: Slots) -> TensorOp:
        gradient = _decayed(gradient, value, weight_decay)
        if not momentum:
            return gradient
        old = slots.old("velocity")
        velocity = slots.write(old, old * momentum + gradient * (1 - dampening))
        return gradient + velocity * momentum if nesterov else velocity

    return rule


def _decayed(gradient: TensorOp, value: TensorOp, weight_decay: float) -> TensorOp:
    """Add the gradient of ``weight_decay / 2 * value²``."""
    return gradient + value * weight_decay if weight_decay else gradient


def adam(beta1: float, beta2: float, epsilon: float, weight_decay: float) -> Rule:
    """Return the formula of `weft.adam`."""
    _check_decays("adam", beta1=beta1, beta2=beta2)
    _check_numbers("adam", epsilon=epsilon, weight_decay=weight_decay)

    def rule(value: TensorOp, gradient: TensorOp, slots: Slots) -> TensorOp:
        gradient = _decayed(gradient, value, weight_decay)
        return _adam_step(gradient, slots, beta1, beta2, epsilon)

    return rule


def _adam_step(
    gradient: TensorOp, slots: Slots, beta1: float, beta2: float, epsilon: float
) -> TensorOp:
    first = slots.unbiased(slots.average("first_moment", gradient, beta1), beta1)
    second = slots.unbiased(slots.average("second_moment", square(gradient), beta2), beta2)
    return first / (sqrt(second) + epsilon)


def adamw(beta1: float, beta2: float, epsilon: float, weight_decay: float) -> Rule:
    """Return the formula of `weft.adamw`."""
    _check_decays("adamw", beta1=beta1, beta2=beta2)
    _check_numbers("adamw", epsilon=epsilon, weight_decay=weight_decay)

    def rule(value: TensorOp, gradient: TensorOp, slots: Slots) -> TensorOp:
        return _decayed(_adam_step(gradient, slots, beta1, beta2, epsilon), value, weight_decay)

    return rule


def lamb(beta1: float, beta2: float, epsilon: float, weight_decay: float) -> Rule:
    """Return the formula of `weft.lamb`."""
    _check_decays("lamb", beta1=beta1, beta2=beta2)
    _check_numbers("lamb", epsilon=epsilon, weight_decay=weight_decay)

    def rule(value: TensorOp, gradient: TensorOp, slots: Slots) -> TensorOp:
        step = _decayed(_adam_step(gradient, slots, beta1, beta2, epsilon), value, weight_decay)
        norm, length = slots.norms(value, step)
        is_none = logical_or(equal(norm, 0), equal(length, 0))
        return step * where(is_none, 1, norm / where(is_none, 1, length))

    return rule


def rmsprop(
    decay: float, epsilon: float, momentum: float, centered: bool, weight_decay: float
) -> Rule:
    """Return the formula of `weft.rmsprop`."""
    _check_decays("rmsprop", decay=decay)
    _check_numbers("rmsprop", epsilon=epsilon, momentum=momentum, weight_decay=weight_decay)

    def rule(value: TensorOp, gradient: TensorOp, slots: Slots) -> TensorOp:
        gradient = _decayed(gradient, value, weight_decay)
        spread = slots.average("mean_square", square(gradient), decay)
        if centered:
            mean = slots.average("mean", gradient, decay)
            spread = maximum(spread - square(mean), 0.0)
        step = gradient / (sqrt(spread) + epsilon)
        if not momentum:
            return step
        old = slots.old("velocity")
        return slots.write(old, old * momentum + step)

    return rule


def adagrad(epsilon: float, weight_decay: float) -> Rule:
    """Return the formula of `weft.adagrad`."""
    _check_numbers("adagrad", epsilon=epsilon, weight_decay=weight_decay)

    def rule(value: TensorOp, gradient: TensorOp, slots: Slots) -> TensorOp:
        gradient = _decayed(gradient, value, weight_decay)
        old = slots.old("sum_of_squares")
        return gradient / (sqrt(slots.write(old, old + square(gradient))) + epsilon)

    return rule


def adadelta(decay: float, epsilon: float, weight_decay: float) -> Rule:
    """Return the formula of `weft.adadelta`."""
    _check_decays("adadelta", decay=decay)
    _check_numbers("adadelta", epsilon=epsilon, weight_decay=weight_decay)

    def rule(value: TensorOp, gradient: TensorOp, slots: Slots) -> TensorOp:
        gradient = _decayed(gradient, value, weight_decay)
        spread = slots.average("mean_square", square(gradient), decay)
        old = slots.old("mean_square_step")
        step = gradient * (sqrt(old + epsilon) / sqrt(spread + epsilon))
        slots.write(old, old * decay + square(step) * (1 - decay))
        return step

    return rule


def lion(beta1: float, beta2: float, weight_decay: float) -> Rule:
    """Return the formula of `weft.lion`."""
    _check_decays("lion", beta1=beta1, beta2=beta2)
    _check_numbers("lion", weight_decay=weight_decay)

    def rule(value: TensorOp, gradient: TensorOp, slots: Slots) -> TensorOp:
        old = slots.old("momentum")
        slots.write(old, old * beta2 + gradient * (1 - beta2))
        return _decayed(sign(old * beta1 + gradient * (1 - beta1)), value, weight_decay)

    return rule
