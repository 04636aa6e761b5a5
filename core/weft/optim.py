"""Optimizers as pairs of functions of trees: `init` makes a state, `update` performs a step.

>>> import numpy as np, weft
>>> optimizer = weft.optim.adam(0.25)
>>> params = {"w": np.ones(3, "float32")}
>>> state = optimizer.init(params)
>>> gradients = weft.grad(lambda params: weft.sum(weft.square(params["w"])))(params)
>>> params, state = optimizer.update(gradients, state, params)
>>> params["w"].round(3).tolist(), state["steps"].item()
([0.75, 0.75, 0.75], 1)

The formulas are those of the optimizers of graphs, such as `weft.adam`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from weft.errors import ArgumentError, AxesError, DTypeError
from weft.functional import trees
from weft.functional.jit import jit
from weft.functional.tracing import array_of, op_of, ops_like
from weft.functional.trees import Structure
from weft.ir import dtypes, scope
from weft.ir.dtypes import accumulator_dtype
from weft.ir.storage import constant
from weft.ir.tensor import TensorOp
from weft.ops.pointwise.elementwise import cast
from weft.ops.shape.creation import zeros
from weft.support.backports import override
from weft.support.spelling import UnknownAttribute, instead_of, unknown_name
from weft.train import clipping, update_rules
from weft.train.update_rules import Rule, Slots, checked_rate, updated

__all__ = [
    "Optimizer",
    "adadelta",
    "adagrad",
    "adam",
    "adamw",
    "clip_by_global_norm",
    "lamb",
    "lion",
    "rmsprop",
    "sgd",
]

if not TYPE_CHECKING:
    __getattr__ = unknown_name(__name__, __all__)


def __dir__() -> list[str]:
    """List what is public, and nothing that is only imported here."""
    return __all__


Rate = float | TensorOp | Callable[[TensorOp], Any]
"""A learning rate, or a function for it of the number of earlier steps."""

STEPS = "steps"


class Optimizer(NamedTuple):
    """An optimizer as two functions, which build ops in a function that is traced.

    Called with arrays outside of one they run, compiled at the first call for their shapes.

    Attributes
    ----------
    init
        ``init(params)`` returns the state before the first step: a dict with the number of
        ``steps``, an int32 scalar, and for each slot a tree like that of the parameters, of zeros.
        Slots of 16-bit parameters are float32.
    update
        ``update(gradients, state, params)`` returns a pair of the new parameters and the new state.
        Gradients have the structure and the shapes of the parameters. Raises ArgumentError for
        another structure or a state of another optimizer, AxesError for other shapes, and
        DTypeError for parameters that are no floats.
    """

    init: Callable[[Any], dict[str, Any]]
    update: Callable[[Any, Any, Any], tuple[Any, dict[str, Any]]]

    def __getattr__(self, name: str) -> NoReturn:
        problem = f"an optimizer has no attribute {name!r}"
        raise UnknownAttribute(problem, lambda: instead_of(name, self._fields))


class _SlotNames(Slots):
    """Records the names of the slots that a rule uses."""

    def __init__(self) -> None:
        self.names: list[str] = []

    @override
    def old(self, name: str) -> TensorOp:
        self.names.append(name)
        return constant(0.0)

    @override
    def write(self, slot: TensorOp, value: TensorOp) -> TensorOp:
        return value

    @override
    def steps(self) -> TensorOp:
        return constant(1, dtype=dtypes.int32)


class _GivenSlots(Slots):
    """The slots of one parameter, from a state that was given.

    Attributes
    ----------
    new
        Their new values, by name.
    """

    def __init__(self, value: TensorOp, slots: Mapping[str, TensorOp], steps: TensorOp) -> None:
        self.dtype = accumulator_dtype(value.dtype)
        self.new = dict(slots)
        self._slots = slots
        self._steps = steps

    @override
    def old(self, name: str) -> TensorOp:
        return self._slots[name]

    @override
    def write(self, slot: TensorOp, value: TensorOp) -> TensorOp:
        name = next(name for name, old in self._slots.items() if old is slot)
        self.new[name] = value
        return value

    @override
    def steps(self) -> TensorOp:
        return self._steps


def _optimizer(name: str, learning_rate: Rate, rule: Rule) -> Optimizer:
    if not callable(learning_rate):
        checked_rate(name, learning_rate)
    recorder = _SlotNames()
    rule(constant(0.0), constant(0.0), recorder)
    names = recorder.names

    def init(params: Any) -> dict[str, Any]:
        leaves, structure = trees.flatten(params)
        empty = [
            _zeros(leaf, f"{name}: {path}")
            for leaf, path in zip(leaves, trees.paths(structure, "params"), strict=True)
        ]
        slots = {slot: trees.unflatten(structure, [each() for each in empty]) for slot in names}
        return {STEPS: np.zeros((), np.int32), **slots}

    def update(gradients: Any, state: Any, params: Any) -> tuple[Any, dict[str, Any]]:
        if not isinstance(state, Mapping) or set(state) != {STEPS, *names}:
            problem = f"the state must be a dict of {', '.join((STEPS, *names))}"
            way = "as init returns it, and comes second: update(gradients, state, params)"
            raise ArgumentError(f"{name}: {problem}, {way}")
        leaves, structure = trees.flatten(params)
        paths = trees.paths(structure, "params")
        values = [_value(leaf, f"{name}: {path}") for leaf, path in zip(leaves, paths, strict=True)]
        slopes = _alike(name, "gradients", gradients, structure, values)
        before = op_of(state[STEPS], f"{name}: state['{STEPS}']")
        old = {slot: _alike(name, slot, state[slot], structure, values) for slot in names}
        rate = learning_rate(before) if callable(learning_rate) else learning_rate
        rate = checked_rate(name, rate)
        steps = before + 1
        made = []
        new: dict[str, list[TensorOp]] = {slot: [] for slot in names}
        places = trees.scopes(structure, name)
        for index, (value, slope) in enumerate(zip(values, slopes, strict=True)):
            slots = _GivenSlots(value, {slot: each[index] for slot, each in old.items()}, steps)
            with scope.name_scope(places[index]):
                found = updated(rule, cast(value, slots.dtype), slope, slots, rate)
                made.append(cast(found, value.dtype))
            for slot, each in slots.new.items():
                new[slot].append(each)
        after = {slot: trees.unflatten(structure, each) for slot, each in new.items()}
        return trees.unflatten(structure, made), {STEPS: steps, **after}

    update.__name__ = update.__qualname__ = f"{name}_update"
    init.__name__ = init.__qualname__ = f"{name}_init"
    return Optimizer(init, jit(update))


def _value(leaf: Any, what: str) -> TensorOp:
    op = op_of(leaf, what)
    if not dtypes.is_float(op.dtype):
        raise DTypeError(f"{what} is {op.dtype}, but a step needs floats")
    return op


def _zeros(leaf: Any, what: str) -> Callable[[], Any]:
    """Return what makes a slot for a parameter: ops for an op, arrays for an array."""
    if isinstance(leaf, TensorOp):
        return lambda: zeros(leaf.axes, accumulator_dtype(leaf.dtype))
    # Those on a device have a shape and a dtype, too.
    is_elsewhere = isinstance(getattr(leaf, "dtype", None), np.dtype)
    array = leaf if is_elsewhere and not isinstance(leaf, np.ndarray) else array_of(leaf, what)
    return lambda: np.zeros(array.shape, accumulator_dtype(array.dtype))


def _alike(
    name: str, what: str, tree: Any, structure: Structure, values: list[TensorOp]
) -> list[TensorOp]:
    """Return the leaves of a tree like the parameters; raises for another structure or shape."""
    found = []
    for (op, where), value in zip(ops_like(structure, tree, name, what, what), values, strict=True):
        if op.axes != value.axes:
            raise AxesError(f"{where} has {op.axes}, but the parameter {value.axes}")
        found.append(op)
    return found


def clip_by_global_norm(tree: Any, limit: float) -> Any:
    """Return a tree of gradients, scaled down by one factor to a joint norm of at most `limit`.

    It runs for arrays, and builds ops in a function that is traced. (Pascanu, Mikolov and Bengio,
    2013.)

    Parameters
    ----------
    tree
        The gradients; their dtypes are kept.
    limit
        A Python number above 0.

    Returns
    -------
    Any
        A tree like the given one.

    Raises
    ------
    ArgumentError
        If the limit is out of range.

    Examples
    --------
    >>> weft.optim.clip_by_global_norm({"w": np.array([3.0, 4.0])}, 2.5)
    {'w': array([1.5, 2. ])}
    """
    return _clipped(tree, limit)


def _clip(tree: Any, limit: float) -> Any:
    leaves, structure = trees.flatten(tree)
    paths = trees.paths(structure, "tree")
    ops = [op_of(leaf, path) for leaf, path in zip(leaves, paths, strict=True)]
    return trees.unflatten(structure, clipping.clip_by_global_norm(ops, limit))


_clipped = jit(_clip, static_argnames="limit")


def adadelta(
    learning_rate: Rate = 1.0,
    decay: float = 0.9,
    epsilon: float = 1e-6,
    weight_decay: float = 0.0,
) -> Optimizer:
    """Return Adadelta (Zeiler, 2012).

    For the gradient g the step is ``d = g * sqrt(u + epsilon) / sqrt(v + epsilon)``, with moving
    averages v of g**2 and u of d**2, the latter before the step; then ``w -= learning_rate * d``.

    Parameters
    ----------
    learning_rate
        A number, a scalar op, or a schedule: a function of the number of earlier steps, as in
        ``lambda step: weft.cosine_decay(step, 0.1, steps=1000)``.
    decay
        The decay of the moving averages, from 0 to below 1.
    epsilon
        A number of at least 0, against division by 0; it decides the size of the first steps.
    weight_decay
        What times the parameter is added to its gradient; at least 0.

    Returns
    -------
    Optimizer
        The functions ``init`` and ``update``.

    Raises
    ------
    ArgumentError
        If a number is out of range.

    Examples
    --------
    >>> params = {"w": np.array([1.0, -2.0])}
    >>> optimizer = weft.optim.adadelta(epsilon=0.25)
    >>> state = optimizer.init(params)
    >>> params, state = optimizer.update({"w": np.array([2.0, -4.0])}, state, params)
    >>> params["w"]
    array([-0.2403, -0.5296])
    """
    rule = update_rules.adadelta(decay, epsilon, weight_decay)
    return _optimizer("adadelta", learning_rate, rule)


def adagrad(
    learning_rate: Rate = 0.01,
    epsilon: float = 1e-10,
    weight_decay: float = 0.0,
) -> Optimizer:
    """Return Adagrad (Duchi, Hazan and Singer, 2011).

    For the gradient g a step is ``s += g**2; w -= learning_rate * g / (sqrt(s) + epsilon)``.

    Parameters
    ----------
    learning_rate
        A number, a scalar op, or a schedule: a function of the number of earlier steps, as in
        ``lambda step: weft.cosine_decay(step, 0.1, steps=1000)``.
    epsilon
        A number of at least 0, against division by 0.
    weight_decay
        What times the parameter is added to its gradient; at least 0.

    Returns
    -------
    Optimizer
        The functions ``init`` and ``update``.

    Raises
    ------
    ArgumentError
        If a number is out of range.

    Examples
    --------
    >>> params = {"w": np.array([1.0, -2.0])}
    >>> optimizer = weft.optim.adagrad(0.25)
    >>> state = optimizer.init(params)
    >>> params, state = optimizer.update({"w": np.array([2.0, -4.0])}, state, params)
    >>> params["w"]
    array([ 0.75, -1.75])
    """
    rule = update_rules.adagrad(epsilon, weight_decay)
    return _optimizer("adagrad", learning_rate, rule)


def adam(
    learning_rate: Rate = 0.001,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    weight_decay: float = 0.0,
) -> Optimizer:
    """Return Adam (Kingma and Ba, 2015).

    A step is ``w -= learning_rate * m / (sqrt(v) + epsilon)``, with bias-corrected moving averages
    m of the gradient and v of its square.

    Parameters
    ----------
    learning_rate
        A number, a scalar op, or a schedule: a function of the number of earlier steps, as in
        ``lambda step: weft.cosine_decay(step, 0.1, steps=1000)``.
    beta1, beta2
        The decays of the moving averages of the gradient and of its square, from 0 to below 1.
    epsilon
        A number of at least 0, against division by 0.
    weight_decay
        What times the parameter is added to its gradient; at least 0.

    Returns
    -------
    Optimizer
        The functions ``init`` and ``update``.

    Raises
    ------
    ArgumentError
        If a number is out of range.

    Examples
    --------
    >>> params = {"w": np.array([1.0, -2.0])}
    >>> optimizer = weft.optim.adam(0.25)
    >>> state = optimizer.init(params)
    >>> params, state = optimizer.update({"w": np.array([2.0, -4.0])}, state, params)
    >>> params["w"]
    array([ 0.75, -1.75])
    """
    rule = update_rules.adam(beta1, beta2, epsilon, weight_decay)
    return _optimizer("adam", learning_rate, rule)


def adamw(
    learning_rate: Rate = 0.001,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    weight_decay: float = 0.01,
) -> Optimizer:
    """Return AdamW: Adam with decoupled weight decay (Loshchilov and Hutter, 2019).

    A step is ``w -= learning_rate * (m / (sqrt(v) + epsilon) + weight_decay * w)``, with
    bias-corrected moving averages m of the gradient and v of its square.

    Parameters
    ----------
    learning_rate
        A number, a scalar op, or a schedule: a function of the number of earlier steps, as in
        ``lambda step: weft.cosine_decay(step, 0.1, steps=1000)``.
    beta1, beta2
        The decays of the moving averages of the gradient and of its square, from 0 to below 1.
    epsilon
        A number of at least 0, against division by 0.
    weight_decay
        What times the parameter is added to the step, apart from the moving averages; at least 0.

    Returns
    -------
    Optimizer
        The functions ``init`` and ``update``.

    Raises
    ------
    ArgumentError
        If a number is out of range.

    Examples
    --------
    >>> params = {"w": np.array([1.0, -2.0])}
    >>> optimizer = weft.optim.adamw(0.25, weight_decay=0.5)
    >>> state = optimizer.init(params)
    >>> params, state = optimizer.update({"w": np.array([2.0, -4.0])}, state, params)
    >>> params["w"]
    array([ 0.625, -1.5  ])
    """
    rule = update_rules.adamw(beta1, beta2, epsilon, weight_decay)
    return _optimizer("adamw", learning_rate, rule)


def lamb(
    learning_rate: Rate = 0.001,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-6,
    weight_decay: float = 0.01,
) -> Optimizer:
    """Return LAMB: AdamW with a trust ratio for each parameter (You et al., 2020).

    The step of `adamw` is multiplied by the norm of the parameter divided by that of the step, or
    by 1 if either is 0.

    Parameters
    ----------
    learning_rate
        A number, a scalar op, or a schedule: a function of the number of earlier steps, as in
        ``lambda step: weft.cosine_decay(step, 0.1, steps=1000)``.
    beta1, beta2
        The decays of the moving averages of the gradient and of its square, from 0 to below 1.
    epsilon
        A number of at least 0, against division by 0.
    weight_decay
        What times the parameter is added to the step, apart from the moving averages; at least 0.

    Returns
    -------
    Optimizer
        The functions ``init`` and ``update``.

    Raises
    ------
    ArgumentError
        If a number is out of range.

    Examples
    --------
    >>> params = {"w": np.array([1.0, -2.0])}
    >>> optimizer = weft.optim.lamb(0.5)
    >>> state = optimizer.init(params)
    >>> params, state = optimizer.update({"w": np.array([2.0, -4.0])}, state, params)
    >>> params["w"]
    array([ 0.2133, -1.2055])
    """
    rule = update_rules.lamb(beta1, beta2, epsilon, weight_decay)
    return _optimizer("lamb", learning_rate, rule)


def lion(
    learning_rate: Rate = 0.0001,
    beta1: float = 0.9,
    beta2: float = 0.99,
    weight_decay: float = 0.0,
) -> Optimizer:
    """Return Lion, by the sign of a moving average (Chen et al., 2023).

    A step is ``w -= learning_rate * (sign(beta1 * m + (1 - beta1) * g) + weight_decay * w)`` for
    the gradient g, and then ``m = beta2 * m + (1 - beta2) * g``.

    Parameters
    ----------
    learning_rate
        A number, a scalar op, or a schedule: a function of the number of earlier steps, as in
        ``lambda step: weft.cosine_decay(step, 0.1, steps=1000)``.
    beta1, beta2
        The weight of the moving average in the step, and its decay, from 0 to below 1.
    weight_decay
        What times the parameter is added to the step; at least 0.

    Returns
    -------
    Optimizer
        The functions ``init`` and ``update``.

    Raises
    ------
    ArgumentError
        If a number is out of range.

    Examples
    --------
    >>> params = {"w": np.array([1.0, -2.0])}
    >>> optimizer = weft.optim.lion(0.25)
    >>> state = optimizer.init(params)
    >>> params, state = optimizer.update({"w": np.array([2.0, -4.0])}, state, params)
    >>> params["w"]
    array([ 0.75, -1.75])
    """
    rule = update_rules.lion(beta1, beta2, weight_decay)
    return _optimizer("lion", learning_rate, rule)


def rmsprop(
    learning_rate: Rate = 0.01,
    decay: float = 0.99,
    epsilon: float = 1e-8,
    momentum: float = 0.0,
    centered: bool = False,
    weight_decay: float = 0.0,
) -> Optimizer:
    """Return RMSprop (Tieleman and Hinton, 2012).

    For the gradient g a step is ``v = decay * v + (1 - decay) * g**2; w -= learning_rate * g /
    (sqrt(v) + epsilon)``.

    Parameters
    ----------
    learning_rate
        A number, a scalar op, or a schedule: a function of the number of earlier steps, as in
        ``lambda step: weft.cosine_decay(step, 0.1, steps=1000)``.
    decay
        The decay of the moving average v, from 0 to below 1.
    epsilon
        A number of at least 0, against division by 0.
    momentum
        The decay of a velocity in which the steps accumulate; with 0 there is none.
    centered
        Whether the variance of the gradient takes the place of v (Graves, 2013).
    weight_decay
        What times the parameter is added to its gradient; at least 0.

    Returns
    -------
    Optimizer
        The functions ``init`` and ``update``.

    Raises
    ------
    ArgumentError
        If a number is out of range.

    Examples
    --------
    >>> params = {"w": np.array([1.0, -2.0])}
    >>> optimizer = weft.optim.rmsprop(0.25, decay=0.75)
    >>> state = optimizer.init(params)
    >>> params, state = optimizer.update({"w": np.array([2.0, -4.0])}, state, params)
    >>> params["w"]
    array([ 0.5, -1.5])
    """
    rule = update_rules.rmsprop(decay, epsilon, momentum, centered, weight_decay)
    return _optimizer("rmsprop", learning_rate, rule)


def sgd(
    learning_rate: Rate = 0.01,
    momentum: float = 0.0,
    nesterov: bool = False,
    weight_decay: float = 0.0,
    dampening: float = 0.0,
) -> Optimizer:
    """Return gradient descent, optionally with momentum.

    For a gradient g a step is ``g += weight_decay * w; v = momentum * v + (1 - dampening) * g; w -=
    learning_rate * v``, with the velocity v 0 at first. With `nesterov` the last term is ``g +
    momentum * v`` instead of v.

    Parameters
    ----------
    learning_rate
        A number, a scalar op, or a schedule: a function of the number of earlier steps, as in
        ``lambda step: weft.cosine_decay(step, 0.1, steps=1000)``.
    momentum
        The decay of the velocity, at least 0; with 0 there is none, and v is g.
    nesterov
        Whether the gradient looks ahead; this needs a momentum and no dampening.
    weight_decay
        What times the parameter is added to its gradient; at least 0.
    dampening
        The part of the gradient that the velocity leaves out, also in the first step.

    Returns
    -------
    Optimizer
        The functions ``init`` and ``update``.

    Raises
    ------
    ArgumentError
        If a number is out of range, or `nesterov` comes without momentum or with dampening.

    Examples
    --------
    >>> params = {"w": np.array([1.0, -2.0])}
    >>> optimizer = weft.optim.sgd(0.5)
    >>> state = optimizer.init(params)
    >>> params, state = optimizer.update({"w": np.array([2.0, -4.0])}, state, params)
    >>> params["w"]
    array([0., 0.])
    """
    rule = update_rules.sgd(momentum, nesterov, weight_decay, dampening)
    return _optimizer("sgd", learning_rate, rule)
