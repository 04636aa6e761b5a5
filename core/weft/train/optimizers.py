"""Optimizers: an op that updates all variables, from a loss or from gradients.

All gradients and new values are computed from the values before the step. The state of an optimizer
is in persistent tensors, its slots, which start at 0 and are named after the variable, as in
``weight_velocity``. Slots of 16-bit variables are float32, and so is the update.

The writes are scoped as by `saved_user_deps`: only a computation of the op performs them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from weft import ops, ranks
from weft.autodiff.reverse import deriv
from weft.errors import ArgumentError, AxesError, DTypeError, WeftError
from weft.ir import dtypes, scope
from weft.ir.axes import ShardAxis
from weft.ir.dtypes import accumulator_dtype
from weft.ir.op import Op, explain
from weft.ir.storage import as_op, persistent_tensor
from weft.ir.tensor import TensorLike, TensorOp
from weft.ops.arguments import as_number
from weft.ops.reductions.reduction import sum_over
from weft.ranks.sharding import gathered, own_shard, shard_axis, without_padding
from weft.support.backports import override
from weft.train import update_rules
from weft.train.update_rules import Rule, Slots, checked_rate, current, updated

__all__ = [
    "adadelta",
    "adagrad",
    "adam",
    "adamw",
    "lamb",
    "lion",
    "rmsprop",
    "sgd",
]


class StateSlots(Slots):
    """Slots in persistent tensors of the graph, and all writes of a step.

    Attributes
    ----------
    function
        The optimizer's name.
    variable
        The current variable.
    axis
        The axis of its shard; None where this rank updates all of it.
    writes
        Pairs of a state and its new value, or its shard.
    """

    def __init__(self, function: str) -> None:
        self.function = function
        self.variable: Any = None
        self.axis: ShardAxis | None = None
        self.writes: list[tuple[TensorOp, TensorOp]] = []
        self._steps: TensorOp | None = None
        self._rank_of: dict[str, TensorOp] = {}

    def select(self, variable: TensorOp, axis: ShardAxis | None) -> TensorOp:
        """Set the current variable, and return its value, or this rank's shard of it."""
        self.variable = variable
        self.dtype = accumulator_dtype(variable.dtype)
        self.axis = axis
        value = variable if axis is None else own_shard(variable, axis, self._rank(axis))
        return ops.cast(value, self.dtype)

    def _rank(self, axis: ShardAxis) -> TensorOp:
        """Return the number of this rank, the same op for all variables."""
        name = axis.communicator
        if name not in self._rank_of:
            self._rank_of[name] = ranks.rank_index(name)
        return self._rank_of[name]

    @override
    def old(self, name: str) -> TensorOp:
        label = f"{self.variable.name}_{name}"
        axes = self.variable.axes if self.axis is None else self.axis
        slot: TensorOp = persistent_tensor(axes, self.dtype, 0, name=label)
        return slot

    @override
    def write(self, slot: TensorOp, value: TensorOp) -> TensorOp:
        self.writes.append((slot, value))
        return value

    @override
    def steps(self) -> TensorOp:
        if self._steps is None:
            count = persistent_tensor((), dtypes.int32, 0, name=f"{self.function}_steps")
            self._steps = self.write(count, count + 1)
        return self._steps

    def whole_writes(self) -> list[tuple[TensorOp, TensorOp]]:
        """Return the writes with whole variables, gathered from the shards of all ranks."""
        shards = [
            ops.cast(value, state.dtype)
            for state, value in self.writes
            if shard_axis(value) != shard_axis(state)
        ]
        wholes = iter(gathered(shards))
        return [
            (state, value if shard_axis(value) == shard_axis(state) else next(wholes))
            for state, value in self.writes
        ]

    @override
    def norms(self, *tensors: TensorOp) -> list[TensorOp]:
        axis = self.axis
        if axis is None:
            return super().norms(*tensors)
        shards = [without_padding(x, axis, self._rank(axis)) for x in tensors]
        own = ops.stack([sum_over(ops.square(x), tuple(range(x.rank))) for x in shards])
        total = ops.sqrt(ranks.all_reduce(own, communicator=axis.communicator))
        return [total[place] for place in range(len(tensors))]


def _optimized(
    function: str,
    given: TensorOp | Iterable[TensorLike],
    variables: Iterable[TensorOp] | None,
    learning_rate: float | TensorOp,
    rule: Rule,
) -> Op:
    """Return the op that subtracts ``learning_rate`` times the rule's update from all variables."""
    pairs = _pairs(function, given, variables)
    rate = checked_rate(function, learning_rate)
    outer, slots = scope.current.get().scope, StateSlots(function)
    with scope.saved_user_deps() as inner:
        for variable, _ in pairs:
            write = variable.last_write(outer)
            if write is not None:
                variable.record_write(inner, write)
        for variable, gradient in pairs:
            value = slots.select(variable, shard_axis(gradient))
            slots.write(variable, updated(rule, value, gradient, slots, rate))
        writes = slots.whole_writes()
        # In a sequence writes are visible at once, so all values are computed before the first.
        values = [value for _, value in writes]
        return ops.doall([*values, *(ops.assign(state, value) for state, value in writes)])


def _pairs(
    function: str, given: TensorOp | Iterable[TensorLike], variables: Iterable[TensorOp] | None
) -> list[tuple[Any, TensorOp]]:
    """Return each variable with its gradient."""
    if isinstance(given, TensorOp):
        chosen = list(given.variables() if variables is None else _variables(function, variables))
        if not chosen:
            raise ArgumentError(explain(function, "the loss depends on no variable", (given,)))
        check_variables(function, chosen)
        return [(variable, deriv(given, variable)) for variable in chosen]
    if variables is None or not _is_listed(given):
        problem = f"takes a scalar loss, or a list of gradients and their variables, not {given!r}"
        raise ArgumentError(explain(function, problem, ()))
    gradients, chosen = list(given), _variables(function, variables)
    if len(gradients) != len(chosen):
        problem = f"{len(gradients)} gradients were given for {len(chosen)} variables"
        raise ArgumentError(explain(function, problem, chosen))
    check_variables(function, chosen)
    return [
        (variable, gradient_for(function, variable, gradient))
        for variable, gradient in zip(chosen, gradients, strict=True)
    ]


def _is_listed(several: object) -> bool:
    return isinstance(several, Iterable) and not isinstance(several, Op | str)


def _variables(function: str, several: Iterable[TensorOp]) -> list[Any]:
    if not _is_listed(several):
        is_number = not math.isnan(as_number(several))
        hint = f": for the rate say learning_rate={several!r}" if is_number else ""
        problem = f"variables must be a list of variables, not {several!r}{hint}"
        raise ArgumentError(explain(function, problem, ()))
    return list(several)


def check_variables(function: str, variables: list[Any]) -> None:
    """Raise ArgumentError or DTypeError unless these are different states of floats."""
    for variable in variables:
        if not isinstance(variable, Op) or not variable.is_state:
            problem = f"{variable!r} is not a variable, so it cannot be optimized"
            raise ArgumentError(explain(function, problem, ()))
        if getattr(variable, "is_placeholder", False):
            problem = f"{variable} is a placeholder, which keeps no step: make it a variable"
            raise ArgumentError(explain(function, problem, (variable,)))
        if not dtypes.is_float(variable.dtype):
            problem = f"{variable} holds {variable.dtype}, but a step needs floats"
            raise DTypeError(explain(function, problem, (variable,)))
    if len(set(variables)) != len(variables):
        raise ArgumentError(explain(function, "a variable is listed twice", variables))


def gradient_for(function: str, variable: TensorOp, gradient: TensorLike) -> TensorOp:
    """Return a gradient with the axes of its variable, or a shard of it.

    Raises AxesError for one that does not fit.
    """
    op = current(as_op(gradient))
    axis = shard_axis(op)
    if axis is not None and axis.axes == variable.axes:
        return op
    try:
        return ops.broadcast(op, variable.axes)
    except WeftError:
        problem = f"a gradient with {op.axes} does not fit {variable} {variable.axes}"
        raise AxesError(explain(function, problem, (variable, op))) from None


def sgd(
    loss_or_gradients: TensorOp | Iterable[TensorLike],
    variables: Iterable[TensorOp] | None = None,
    learning_rate: float | TensorOp = 0.01,
    momentum: float = 0.0,
    nesterov: bool = False,
    weight_decay: float = 0.0,
    dampening: float = 0.0,
) -> Op:
    """Return an op that performs a step of gradient descent, optionally with momentum.

    ``g += weight_decay * w; v = momentum * v + (1 - dampening) * g; w -= learning_rate * v``; with
    `nesterov` the last term is ``g + momentum * v`` instead of v. (Polyak, 1964; Sutskever,
    Martens, Dahl and Hinton: On the importance of initialization and momentum, 2013.)

    Parameters
    ----------
    loss_or_gradients
        A scalar loss, or a list of gradients.
    variables
        The variables that are updated: a list; for gradients one for each, in their order. By
        default all that the loss depends on.
    learning_rate
        A number or a scalar op, such as a state or a schedule.
    momentum
        The decay of the velocity v, which is 0 at first; at least 0. With 0 there is none, and v is
        g.
    nesterov
        Whether the gradient looks ahead; this needs a momentum and no dampening.
    weight_decay
        What times the variable is added to its gradient; at least 0.
    dampening
        The part of the gradient that the velocity leaves out, also in the first step.

    Returns
    -------
    Op
        The step. Only a computation of it writes the variables, with all gradients and new values
        computed from the values before.

    Raises
    ------
    ArgumentError
        If the loss depends on no variable, what is given is not a list of different variables with
        a gradient for each, a number is out of range, or `nesterov` comes without momentum or with
        dampening.
    GradientError
        If the loss is not a scalar, or has no gradient.
    AxesError, DTypeError
        If a gradient does not fit its variable, or a variable holds no floats.

    Examples
    --------
    >>> w = weft.variable((2,), "float64", np.array([1.0, -2.0]))
    >>> step = weft.sgd(weft.sum(weft.square(w)), learning_rate=0.25)
    >>> transformer = weft.make_transformer()
    >>> transformer.computation(step)()
    >>> transformer.computation(w)()
    array([ 0.5, -1. ])
    """
    rule = update_rules.sgd(momentum, nesterov, weight_decay, dampening)
    return _optimized("sgd", loss_or_gradients, variables, learning_rate, rule)


def adam(
    loss_or_gradients: TensorOp | Iterable[TensorLike],
    variables: Iterable[TensorOp] | None = None,
    learning_rate: float | TensorOp = 0.001,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    weight_decay: float = 0.0,
) -> Op:
    """Return an op that performs a step of Adam.

    ``w -= learning_rate * m / (sqrt(v) + epsilon)`` with bias-corrected moving averages m of the
    gradient and v of its square (Kingma and Ba: Adam, 2015). For decoupled weight decay see
    `adamw`.

    Parameters
    ----------
    loss_or_gradients
        A scalar loss, or a list of gradients.
    variables
        The variables that are updated: a list; for gradients one for each, in their order. By
        default all that the loss depends on.
    learning_rate
        A number or a scalar op, such as a state or a schedule.
    beta1, beta2
        The decays of the moving averages of the gradient and of its square, from 0 to below 1.
    epsilon
        A number of at least 0, against division by 0.
    weight_decay
        What times the variable is added to its gradient; at least 0.

    Returns
    -------
    Op
        The step. Only a computation of it writes the variables, with all gradients and new values
        computed from the values before.

    Raises
    ------
    ArgumentError
        If the loss depends on no variable, what is given is not a list of different variables with
        a gradient for each, or a number is out of range.
    GradientError
        If the loss is not a scalar, or has no gradient.
    AxesError, DTypeError
        If a gradient does not fit its variable, or a variable holds no floats.

    Examples
    --------
    >>> w = weft.variable((2,), "float64", np.array([1.0, -2.0]))
    >>> step = weft.adam(weft.sum(weft.square(w)), learning_rate=0.25)
    >>> transformer = weft.make_transformer()
    >>> transformer.computation(step)()
    >>> transformer.computation(w)()
    array([ 0.75, -1.75])
    """
    rule = update_rules.adam(beta1, beta2, epsilon, weight_decay)
    return _optimized("adam", loss_or_gradients, variables, learning_rate, rule)


def adamw(
    loss_or_gradients: TensorOp | Iterable[TensorLike],
    variables: Iterable[TensorOp] | None = None,
    learning_rate: float | TensorOp = 0.001,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    weight_decay: float = 0.01,
) -> Op:
    """Return an op that performs a step of AdamW: Adam with decoupled weight decay.

    ``w -= learning_rate * (m / (sqrt(v) + epsilon) + weight_decay * w)`` with bias-corrected moving
    averages m of the gradient and v of its square (Loshchilov and Hutter: Decoupled weight decay
    regularization, 2019).

    Parameters
    ----------
    loss_or_gradients
        A scalar loss, or a list of gradients.
    variables
        The variables that are updated: a list; for gradients one for each, in their order. By
        default all that the loss depends on.
    learning_rate
        A number or a scalar op, such as a state or a schedule.
    beta1, beta2
        The decays of the moving averages of the gradient and of its square, from 0 to below 1.
    epsilon
        A number of at least 0, against division by 0.
    weight_decay
        What times the variable is added to the step, apart from the moving averages; at least 0.

    Returns
    -------
    Op
        The step. Only a computation of it writes the variables, with all gradients and new values
        computed from the values before.

    Raises
    ------
    ArgumentError
        If the loss depends on no variable, what is given is not a list of different variables with
        a gradient for each, or a number is out of range.
    GradientError
        If the loss is not a scalar, or has no gradient.
    AxesError, DTypeError
        If a gradient does not fit its variable, or a variable holds no floats.

    Examples
    --------
    >>> w = weft.variable((2,), "float64", np.array([1.0, -2.0]))
    >>> step = weft.adamw(weft.sum(weft.square(w)), learning_rate=0.25, weight_decay=0.5)
    >>> transformer = weft.make_transformer()
    >>> transformer.computation(step)()
    >>> transformer.computation(w)()
    array([ 0.625, -1.5  ])
    """
    rule = update_rules.adamw(beta1, beta2, epsilon, weight_decay)
    return _optimized("adamw", loss_or_gradients, variables, learning_rate, rule)


def lamb(
    loss_or_gradients: TensorOp | Iterable[TensorLike],
    variables: Iterable[TensorOp] | None = None,
    learning_rate: float | TensorOp = 0.001,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-6,
    weight_decay: float = 0.01,
) -> Op:
    """Return an op that performs a step of LAMB: AdamW with a trust ratio for each variable.

    The trust ratio is the norm of the variable divided by that of the step of `adamw`, or 1 if
    either is 0; it multiplies the step (You et al.: Large batch optimization for deep learning,
    2020).

    Parameters
    ----------
    loss_or_gradients
        A scalar loss, or a list of gradients.
    variables
        The variables that are updated: a list; for gradients one for each, in their order. By
        default all that the loss depends on.
    learning_rate
        A number or a scalar op, such as a state or a schedule.
    beta1, beta2
        The decays of the moving averages of the gradient and of its square, from 0 to below 1.
    epsilon
        A number of at least 0, against division by 0.
    weight_decay
        What times the variable is added to the step, apart from the moving averages; at least 0.

    Returns
    -------
    Op
        The step. Only a computation of it writes the variables, with all gradients and new values
        computed from the values before.

    Raises
    ------
    ArgumentError
        If the loss depends on no variable, what is given is not a list of different variables with
        a gradient for each, or a number is out of range.
    GradientError
        If the loss is not a scalar, or has no gradient.
    AxesError, DTypeError
        If a gradient does not fit its variable, or a variable holds no floats.

    Examples
    --------
    >>> w = weft.variable((2,), "float64", np.array([1.0, -2.0]))
    >>> step = weft.lamb(weft.sum(weft.square(w)), learning_rate=0.5)
    >>> transformer = weft.make_transformer()
    >>> transformer.computation(step)()
    >>> transformer.computation(w)()
    array([ 0.2133, -1.2055])
    """
    rule = update_rules.lamb(beta1, beta2, epsilon, weight_decay)
    return _optimized("lamb", loss_or_gradients, variables, learning_rate, rule)


def rmsprop(
    loss_or_gradients: TensorOp | Iterable[TensorLike],
    variables: Iterable[TensorOp] | None = None,
    learning_rate: float | TensorOp = 0.01,
    decay: float = 0.99,
    epsilon: float = 1e-8,
    momentum: float = 0.0,
    centered: bool = False,
    weight_decay: float = 0.0,
) -> Op:
    """Return an op that performs a step of RMSprop.

    ``v = decay * v + (1 - decay) * g**2; w -= learning_rate * g / (sqrt(v) + epsilon)`` (Tieleman
    and Hinton: Lecture 6.5, 2012).

    Parameters
    ----------
    loss_or_gradients
        A scalar loss, or a list of gradients.
    variables
        The variables that are updated: a list; for gradients one for each, in their order. By
        default all that the loss depends on.
    learning_rate
        A number or a scalar op, such as a state or a schedule.
    decay
        The decay of the moving average v, from 0 to below 1.
    epsilon
        A number of at least 0, against division by 0.
    momentum
        The decay of a velocity in which the steps accumulate; with 0 there is none.
    centered
        Whether the variance of the gradient takes the place of v (Graves: Generating sequences with
        recurrent neural networks, 2013).
    weight_decay
        What times the variable is added to its gradient; at least 0.

    Returns
    -------
    Op
        The step. Only a computation of it writes the variables, with all gradients and new values
        computed from the values before.

    Raises
    ------
    ArgumentError
        If the loss depends on no variable, what is given is not a list of different variables with
        a gradient for each, or a number is out of range.
    GradientError
        If the loss is not a scalar, or has no gradient.
    AxesError, DTypeError
        If a gradient does not fit its variable, or a variable holds no floats.

    Examples
    --------
    >>> w = weft.variable((2,), "float64", np.array([1.0, -2.0]))
    >>> step = weft.rmsprop(weft.sum(weft.square(w)), learning_rate=0.25, decay=0.75)
    >>> transformer = weft.make_transformer()
    >>> transformer.computation(step)()
    >>> transformer.computation(w)()
    array([ 0.5, -1.5])
    """
    rule = update_rules.rmsprop(decay, epsilon, momentum, centered, weight_decay)
    return _optimized("rmsprop", loss_or_gradients, variables, learning_rate, rule)


def adagrad(
    loss_or_gradients: TensorOp | Iterable[TensorLike],
    variables: Iterable[TensorOp] | None = None,
    learning_rate: float | TensorOp = 0.01,
    epsilon: float = 1e-10,
    weight_decay: float = 0.0,
) -> Op:
    """Return an op that performs a step of Adagrad.

    ``s += g**2; w -= learning_rate * g / (sqrt(s) + epsilon)`` (Duchi, Hazan and Singer: Adaptive
    subgradient methods, 2011).

    Parameters
    ----------
    loss_or_gradients
        A scalar loss, or a list of gradients.
    variables
        The variables that are updated: a list; for gradients one for each, in their order. By
        default all that the loss depends on.
    learning_rate
        A number or a scalar op, such as a state or a schedule.
    epsilon
        A number of at least 0, against division by 0.
    weight_decay
        What times the variable is added to its gradient; at least 0.

    Returns
    -------
    Op
        The step. Only a computation of it writes the variables, with all gradients and new values
        computed from the values before.

    Raises
    ------
    ArgumentError
        If the loss depends on no variable, what is given is not a list of different variables with
        a gradient for each, or a number is out of range.
    GradientError
        If the loss is not a scalar, or has no gradient.
    AxesError, DTypeError
        If a gradient does not fit its variable, or a variable holds no floats.

    Examples
    --------
    >>> w = weft.variable((2,), "float64", np.array([1.0, -2.0]))
    >>> step = weft.adagrad(weft.sum(weft.square(w)), learning_rate=0.25)
    >>> transformer = weft.make_transformer()
    >>> transformer.computation(step)()
    >>> transformer.computation(w)()
    array([ 0.75, -1.75])
    """
    rule = update_rules.adagrad(epsilon, weight_decay)
    return _optimized("adagrad", loss_or_gradients, variables, learning_rate, rule)


def adadelta(
    loss_or_gradients: TensorOp | Iterable[TensorLike],
    variables: Iterable[TensorOp] | None = None,
    learning_rate: float | TensorOp = 1.0,
    decay: float = 0.9,
    epsilon: float = 1e-6,
    weight_decay: float = 0.0,
) -> Op:
    """Return an op that performs a step of Adadelta.

    ``d = g * sqrt(u + epsilon) / sqrt(v + epsilon)`` with moving averages v of g**2 and u of d**2,
    the latter before the step; ``w -= learning_rate * d`` (Zeiler: Adadelta, 2012).

    Parameters
    ----------
    loss_or_gradients
        A scalar loss, or a list of gradients.
    variables
        The variables that are updated: a list; for gradients one for each, in their order. By
        default all that the loss depends on.
    learning_rate
        A number or a scalar op, such as a state or a schedule.
    decay
        The decay of the moving averages, from 0 to below 1.
    epsilon
        A number of at least 0, against division by 0; it decides the size of the first steps.
    weight_decay
        What times the variable is added to its gradient; at least 0.

    Returns
    -------
    Op
        The step. Only a computation of it writes the variables, with all gradients and new values
        computed from the values before.

    Raises
    ------
    ArgumentError
        If the loss depends on no variable, what is given is not a list of different variables with
        a gradient for each, or a number is out of range.
    GradientError
        If the loss is not a scalar, or has no gradient.
    AxesError, DTypeError
        If a gradient does not fit its variable, or a variable holds no floats.

    Examples
    --------
    >>> w = weft.variable((2,), "float64", np.array([1.0, -2.0]))
    >>> step = weft.adadelta(weft.sum(weft.square(w)), epsilon=0.25)
    >>> transformer = weft.make_transformer()
    >>> transformer.computation(step)()
    >>> transformer.computation(w)()
    array([-0.2403, -0.5296])
    """
    rule = update_rules.adadelta(decay, epsilon, weight_decay)
    return _optimized("adadelta", loss_or_gradients, variables, learning_rate, rule)


def lion(
    loss_or_gradients: TensorOp | Iterable[TensorLike],
    variables: Iterable[TensorOp] | None = None,
    learning_rate: float | TensorOp = 0.0001,
    beta1: float = 0.9,
    beta2: float = 0.99,
    weight_decay: float = 0.0,
) -> Op:
    """Return an op that performs a step of Lion, by the sign of a moving average.

    ``w -= learning_rate * (sign(beta1 * m + (1 - beta1) * g) + weight_decay * w)``, and then ``m =
    beta2 * m + (1 - beta2) * g`` (Chen et al.: Symbolic discovery of optimization algorithms,
    2023).

    Parameters
    ----------
    loss_or_gradients
        A scalar loss, or a list of gradients.
    variables
        The variables that are updated: a list; for gradients one for each, in their order. By
        default all that the loss depends on.
    learning_rate
        A number or a scalar op, such as a state or a schedule.
    beta1, beta2
        The weight of the moving average m in the step, and its decay, from 0 to below 1.
    weight_decay
        What times the variable is added to the step; at least 0.

    Returns
    -------
    Op
        The step. Only a computation of it writes the variables, with all gradients and new values
        computed from the values before.

    Raises
    ------
    ArgumentError
        If the loss depends on no variable, what is given is not a list of different variables with
        a gradient for each, or a number is out of range.
    GradientError
        If the loss is not a scalar, or has no gradient.
    AxesError, DTypeError
        If a gradient does not fit its variable, or a variable holds no floats.

    Examples
    --------
    >>> w = weft.variable((2,), "float64", np.array([1.0, -2.0]))
    >>> step = weft.lion(weft.sum(weft.square(w)), learning_rate=0.25)
    >>> transformer = weft.make_transformer()
    >>> transformer.computation(step)()
    >>> transformer.computation(w)()
    array([ 0.75, -1.75])
    """
    rule = update_rules.lion(beta1, beta2, weight_decay)
    return _optimized("lion", loss_or_gradients, variables, learning_rate, rule)
