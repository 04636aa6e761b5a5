"""Rows of the op table: one step of each optimizer, and gradient clipping.

Sequences of steps are tested in the test suite of weft.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import weft
from weft.errors import ArgumentError, AxesError, DTypeError, GradientError
from weft.ir.dtypes import Array
from weft.ir.tensor import TensorOp
from weft.testing.table.rows import C, H, Operand, Refusal, Row, Shapes, fixed, operands

_SHAPES: Shapes = (((2, 3), (2, 3)), ((), ()), ((1,), (1,)), ((H, C), (C, H)), ((2, 0), (2, 0)))
_VALUES = fixed("any", "nonzero")


def _stepped(name: str, **options: Any) -> Callable[[Any, Any], Any]:
    """Return a builder of a variable after one step, with the second operand as gradient."""

    def build(value: TensorOp, gradient: TensorOp) -> Any:
        w = weft.variable(value.axes, value.dtype)
        step = getattr(weft, name)([gradient], [w], **options)
        return weft.sequential([weft.assign(w, value), step, w + 0])

    return build


def _descended(value: TensorOp, factor: TensorOp) -> Any:
    """Return two variables after a step by the gradients of their product times a factor."""
    first, second = (weft.variable(value.axes, value.dtype) for _ in range(2))
    loss = weft.sum(weft.sin(first) * second * factor, range(value.rank))
    step = weft.sgd(loss, learning_rate=0.5)
    writes = [weft.assign(first, value), weft.assign(second, value + 1)]
    return weft.sequential([*writes, step, first - second])


def _descended_arrays(value: Array, factor: Any) -> Any:
    first = value - 0.5 * np.cos(value) * (value + 1) * factor
    return first - (value + 1 - 0.5 * np.sin(value) * factor)


_DECAY: dict[str, Any] = {"learning_rate": 0.1, "weight_decay": 0.2}
_ADAM: dict[str, Any] = {**_DECAY, "epsilon": 0.25}


def _sign(x: Array, epsilon: float = 0.25) -> Any:
    """Return the direction of a first step, with epsilon in the denominator."""
    return x / (np.abs(x) + epsilon)


def _norm(x: Array) -> Any:
    return np.sqrt((x * x).sum())


_STEPS: dict[str, tuple[dict[str, Any], Callable[[Any, Any], Any]]] = {
    "sgd": (
        {"learning_rate": 0.1, "momentum": 0.5, "weight_decay": 0.2, "nesterov": True},
        lambda w, g: w - 0.1 * 1.5 * (g + 0.2 * w),
    ),
    "adam": (_ADAM, lambda w, g: w - 0.1 * _sign(g + 0.2 * w)),
    "adamw": (_ADAM, lambda w, g: w - 0.1 * (_sign(g) + 0.2 * w)),
    "lamb": (
        _ADAM,
        lambda w, g: w - 0.1 * (_sign(g) + 0.2 * w) * _norm(w) / _norm(_sign(g) + 0.2 * w),
    ),
    "rmsprop": (
        {"learning_rate": 0.1, "decay": 0.75, "momentum": 0.5, "epsilon": 0.25},
        lambda w, g: w - 0.2 * _sign(g, 0.5),
    ),
    "adagrad": ({"learning_rate": 0.1, "epsilon": 0.25}, lambda w, g: w - 0.1 * _sign(g)),
    "adadelta": (
        {"learning_rate": 0.5, "decay": 0.75, "epsilon": 0.25},
        lambda w, g: w - 0.5 * g / np.sqrt(g * g + 1),
    ),
    "lion": (_DECAY, lambda w, g: w - 0.1 * (np.sign(g) + 0.2 * w)),
}
"""By optimizer: options, and the first step, up to a small epsilon."""


def _clipped(arrays: Any, limit: float) -> list[Any]:
    norm = _norm(np.concatenate([np.ravel(array) for array in arrays]))
    return [array * min(1, limit / norm) if norm else array for array in arrays]


def _flat(tensors: Any) -> Any:
    return weft.concat([weft.reshape(x, (-1,)) for x in tensors])


_PAIR: Shapes = (((2, 3), (4,)), ((), (1,)), ((2, 0), (3,)), ((H, C), (2, 2)))

ROWS: tuple[Row, ...] = (
    *(
        Row(name, _stepped(name, **options), _VALUES, _SHAPES if name != "lamb" else _SHAPES[:4],
            expected=expected)
        for name, (options, expected) in _STEPS.items()
    ),
    Row("rmsprop", _stepped("rmsprop", decay=0.75, centered=True, epsilon=0.25), _VALUES,
        case="centered", shapes=_SHAPES[:1],
        expected=lambda w, g: w - 0.01 * g / (np.sqrt(0.25 * g * g - (0.25 * g) ** 2) + 0.25)),
    Row("sgd", _descended, (Operand(differentiable=False), Operand("nonzero",
        differentiable=False)), (((2, 3), (2, 3)), ((), ())), expected=_descended_arrays,
        case="loss"),
    Row("clip_by_value", lambda x: weft.clip_by_value(x, -0.7, 1.1), operands("distinct"),
        (((2, 3, 4),), ((H, C),), ((0,),)), expected=lambda x: np.clip(x, -0.7, 1.1)),
    *(
        Row("clip_by_norm", lambda x, n=limit: weft.clip_by_norm(x, n), operands("any"),
            (((3, 4),), ((),), ((H, C),), ((0, 2),)), case=f"limit-{limit}", twice=True,
            expected=lambda x, n=limit: _clipped([x], n)[0])
        for limit in (0.5, 100)
    ),
    *(
        Row("clip_by_global_norm", lambda x, y, n=limit: _flat(weft.clip_by_global_norm([x, y], n)),
            operands("any", "any"), _PAIR,
            expected=lambda x, y, n=limit: np.concatenate([a.ravel() for a in _clipped([x, y], n)]),
            case=f"limit-{limit}", twice=True)
        for limit in (1, 50.0)
    ),
)  # fmt: skip

_W, _V = weft.variable((2, 3)), weft.variable((4,))
_COUNT = weft.variable((), "int32")
_GIVEN = weft.placeholder((2, 3))
_LOSS, _UNSUMMED = weft.sum(_W * _W), _W * _W

_NAMES = tuple(_STEPS)

REFUSALS: tuple[Refusal, ...] = (
    *(
        Refusal(name, case, partial(getattr(weft, name), *args, **options), error, words)
        for name in _NAMES
        for case, args, options, error, words in (
            ("not-scalar", (_UNSUMMED,), {}, GradientError, "deriv needs a scalar"),
            ("no-variable", (weft.constant(1.0),), {}, ArgumentError, "depends on no variable"),
            ("only-gradients", ([_W],), {}, ArgumentError, "and their variables"),
            ("text", ("loss", [_W]), {}, ArgumentError, "and their variables, not 'loss'"),
            ("number", ([_W, _V], [_W]), {}, ArgumentError, "2 gradients were given for 1"),
            ("shape", ([_V], [_W]), {}, AxesError, "does not fit"),
            ("one-variable", (_LOSS, _W), {}, ArgumentError, "must be a list of variables"),
            ("rate-second", (_LOSS, 0.1), {}, ArgumentError, "say learning_rate=0.1"),
            ("loss-second", ([_W], _LOSS), {}, ArgumentError, "must be a list of variables"),
            ("placeholder", (weft.sum(_GIVEN * 2), [_GIVEN]), {}, ArgumentError,
             "is a placeholder"),
            ("no-state", (_LOSS, [_UNSUMMED]), {}, ArgumentError, "is not a variable"),
            ("twice", (_LOSS, [_W, _W]), {}, ArgumentError, "listed twice"),
            ("integers", ([_COUNT], [_COUNT]), {}, DTypeError, "a step needs floats"),
            ("negative-rate", (_LOSS,), {"learning_rate": -0.1}, ArgumentError,
             "learning_rate must be a finite number"),
            ("no-rate", (_LOSS,), {"learning_rate": None}, ArgumentError,
             "learning_rate must be a finite number"),
            ("rates", (_LOSS,), {"learning_rate": _W}, AxesError, "must be a real scalar"),
            ("decay", (_LOSS,), {"weight_decay": "much"}, ArgumentError, "weight_decay must be"),
        )
    ),
    *(
        Refusal(name, f"{option}-1", partial(getattr(weft, name), _LOSS, **{option: 1.0}),
                ArgumentError, f"{option} must be less than 1")
        for name, option in (
            ("adam", "beta1"), ("adam", "beta2"), ("adamw", "beta1"), ("lamb", "beta2"),
            ("lion", "beta1"), ("rmsprop", "decay"), ("adadelta", "decay"),
        )
    ),
    Refusal("adagrad", "epsilon", lambda: weft.adagrad(_LOSS, epsilon=-1), ArgumentError,
            "epsilon must be a finite number"),
    Refusal("sgd", "nesterov", lambda: weft.sgd(_LOSS, nesterov=True), ArgumentError,
            "nesterov needs a momentum"),
    Refusal("clip_by_value", "bounds", lambda: weft.clip_by_value(_W, 2, 1), ArgumentError,
            "low must not be above high"),
    *(
        Refusal(name, case, partial(getattr(weft, name), given, limit), error, words)
        for name, one in (("clip_by_norm", _W), ("clip_by_global_norm", [_W]))
        for case, given, limit, error, words in (
            ("limit", one, 0, ArgumentError, "limit must be more than 0"),
            ("text", one, "1", ArgumentError, "limit must be a finite number"),
        )
    ),
    Refusal("clip_by_norm", "complex", lambda: weft.clip_by_norm(weft.constant(1j), 1.0),
            DTypeError, "complex"),
    Refusal("clip_by_global_norm", "tensor", lambda: weft.clip_by_global_norm(_W, 1.0),
            ArgumentError, "takes a list of gradients"),
)  # fmt: skip
