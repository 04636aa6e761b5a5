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
from typing import Any, NamedTuple

import numpy as np

from weft.errors import ArgumentError, AxesError, DTypeError
from weft.functional import trees
from weft.functional.jit import jit
from weft.functional.tracing import array_of, op_of
from weft.functional.trees import Structure
from weft.ir import dtypes
from weft.ir.dtypes import accumulator_dtype
from weft.ir.storage import constant
from weft.ir.tensor import TensorOp
from weft.ops.pointwise.elementwise import cast
from weft.ops.shape.creation import zeros
from weft.support.backports import override
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
        leaves, structure = trees.flatten(params)
        paths = trees.paths(structure, "params")
        values = [_value(leaf, f"{name}: {path}") for leaf, path in zip(leaves, paths, strict=True)]
        slopes = _alike(name, "gradients", gradients, structure, values)
        if not isinstance(state, Mapping) or set(state) != {STEPS, *names}:
            wanted = ", ".join((STEPS, *names))
            raise ArgumentError(f"{name}: the state must be a dict of {wanted}, as init returns it")
        before = op_of(state[STEPS], f"{name}: state['{STEPS}']")
        old = {slot: _alike(name, slot, state[slot], structure, values) for slot in names}
        rate = learning_rate(before) if callable(learning_rate) else learning_rate
        rate = checked_rate(name, rate)
        steps = before + 1
        made = []
        new: dict[str, list[TensorOp]] = {slot: [] for slot in names}
        for index, (value, slope) in enumerate(zip(values, slopes, strict=True)):
            slots = _GivenSlots(value, {slot: each[index] for slot, each in old.items()}, steps)
            found = updated(rule, cast(value, slots.dtype), slope, slots, rate)
            made.append(cast(found, value.dtype))
            for slot, each in slots.new.items():
                new[slot].append(each)
        after = {slot: trees.unflatten(structure, each) for slot, each in new.items()}
        return trees.unflatten(structure, made), {STEPS: steps, **after}

    update.__name__ = f"{name}_update"
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
    array = array_of(leaf, what)
    return lambda: np.zeros(array.shape, accumulator_dtype(array.dtype))


def _alike(
    name: str, what: str, tree: Any, structure: Structure, values: list[TensorOp]
) -> list[TensorOp]:
    """Return the leaves of a tree like the parameters; raises for another structure or shape."""
    leaves = trees.leaves_like(structure, tree, f"{name}: the tree of {what}")
    found = []
    for leaf, value, path in zip(leaves, values, trees.paths(structure, what), strict=True):
        op = op_of(leaf, f"{name}: {path}")
        if op.axes != value.axes:
            raise AxesError(f"{name}: {path} has {op.axes}, but the parameter {value.axes}")
        found.append(op)
    return found


def clip_by_global_norm(tree: Any, limit: float) -> Any:
    """Return a tree of gradients, scaled down by one factor to a joint norm of at most `limit`.

    It runs for arrays and builds ops in a function that is traced, as `Optimizer` says. See
    `weft.clip_by_global_norm`.

    >>> import numpy as np, weft
    >>> weft.optim.clip_by_global_norm({"w": np.float32([3, 4])}, 2.5)["w"].round(3).tolist()
    [1.5, 2.0]
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
    """Return Adadelta; for the formula see `weft.adadelta`.

    The rate is as in `sgd`.
    """
    rule = update_rules.adadelta(decay, epsilon, weight_decay)
    return _optimizer("adadelta", learning_rate, rule)


def adagrad(
    learning_rate: Rate = 0.01,
    epsilon: float = 1e-10,
    weight_decay: float = 0.0,
) -> Optimizer:
    """Return Adagrad; for the formula see `weft.adagrad`.

    The rate is as in `sgd`.
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
    """Return Adam; for the formula see `weft.adam`.

    The rate is as in `sgd`.
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
    """Return AdamW: Adam with decoupled weight decay; for the formula see `weft.adamw`.

    The rate is as in `sgd`.
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
    """Return LAMB: AdamW with a trust ratio for each parameter; for the formula see `weft.lamb`.

    The rate is as in `sgd`.
    """
    rule = update_rules.lamb(beta1, beta2, epsilon, weight_decay)
    return _optimizer("lamb", learning_rate, rule)


def lion(
    learning_rate: Rate = 0.0001,
    beta1: float = 0.9,
    beta2: float = 0.99,
    weight_decay: float = 0.0,
) -> Optimizer:
    """Return Lion, by the sign of a moving average; for the formula see `weft.lion`.

    The rate is as in `sgd`.
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
    """Return RMSprop; for the formula see `weft.rmsprop`.

    The rate is as in `sgd`.
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
    """Return gradient descent, optionally with momentum; for the formula see `weft.sgd`.

    The `learning_rate` of every optimizer is a number, a scalar op, or a schedule: a function of
    the number of earlier steps, as in ``lambda step: weft.cosine_decay(step, 0.1, steps=1000)``.
    """
    rule = update_rules.sgd(momentum, nesterov, weight_decay, dampening)
    return _optimizer("sgd", learning_rate, rule)
