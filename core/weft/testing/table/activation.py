"""Rows of the op table: activations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import NormalDist
from typing import Any

import numpy as np

import weft
from weft.errors import ArgumentError, AxesError, DTypeError
from weft.ir.dtypes import Array
from weft.testing.table.rows import (
    FLOATS,
    NUMBERS,
    ONE,
    C,
    H,
    Refusal,
    Row,
    Shapes,
    W,
    fixed,
    operands,
)


def _logistic(x: Array) -> Any:
    return 1 / (1 + np.exp(-x))


def _elu(x: Array, alpha: float = 1) -> Any:
    return np.where(x > 0, x, alpha * (np.exp(np.minimum(x, 0)) - 1))


def _softplus(x: Array) -> Any:
    return np.log(1 + np.exp(x))


def _gelu_tanh(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


_normal_share = np.vectorize(NormalDist().cdf, otypes=[float])

_SMOOTH: dict[str, Callable[..., Any]] = {
    "sigmoid": _logistic,
    "log_sigmoid": lambda x: np.log(_logistic(x)),
    "softplus": _softplus,
    "silu": lambda x: x * _logistic(x),
    "mish": lambda x: x * np.tanh(_softplus(x)),
    "gelu": lambda x: x * _normal_share(x),
    "tanh_shrink": lambda x: x - np.tanh(x),
}

_KINKED: dict[str, Callable[..., Any]] = {
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "leaky_relu": lambda x: np.where(x > 0, x, x * 0.01),
    "elu": _elu,
    "celu": _elu,
    "selu": lambda x: 1.0507009873554805 * _elu(x, 1.6732632423543772),
    "hard_sigmoid": lambda x: np.clip(x / 6 + 0.5, 0, 1),
    "hard_swish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "hard_tanh": lambda x: np.clip(x, -1, 1),
    "hard_shrink": lambda x: np.where(np.abs(x) > 0.5, x, 0),
    "soft_shrink": lambda x: np.sign(x) * np.maximum(np.abs(x) - 0.5, 0),
}

_FEW: Shapes = (((2, 3),), ((),), ((0, 2),), ((H, C),))
_WEIGHTED: Shapes = (
    ((2, 3, 4), (2, 3, 4)),
    ((), ()), ((5,), ()), ((3, 4), (4,)), ((2, 1, 3, 2), (3, 1)), ((2, 0, 3), (3,)), ((4,), (1,)),
    ((H, C), (H, C)), ((H, C), (C, H)), ((H, C), (C,)), ((H, C), ()),
)  # fmt: skip
"""Shapes of two operands where the second adds no axes to the first."""

_OPTIONS: dict[str, tuple[str, Callable[..., Any], Callable[..., Any]]] = {
    "slope": ("leaky_relu", lambda x: weft.leaky_relu(x, 0.25), lambda x: np.maximum(x, x / 4)),
    "alpha": ("elu", lambda x: weft.elu(x, 2), lambda x: _elu(x, 2)),
    "scaled": ("celu", lambda x: weft.celu(x, 2), lambda x: 2 * _elu(x / 2)),
    "beta": ("softplus", lambda x: weft.softplus(x, 3), lambda x: _softplus(3 * x) / 3),
    "limits": ("hard_tanh", lambda x: weft.hard_tanh(x, -0.3, 1.2),
               lambda x: np.clip(x, -0.3, 1.2)),
    "reach": ("hard_shrink", lambda x: weft.hard_shrink(x, 1.1),
              lambda x: np.where(np.abs(x) > 1.1, x, 0)),
    "distance": ("soft_shrink", lambda x: weft.soft_shrink(x, 1.1),
                 lambda x: x - np.clip(x, -1.1, 1.1)),
    "wide": ("relu6", lambda x: weft.relu6(x * 4 + 3), lambda x: np.clip(x * 4 + 3, 0, 6)),
    "far": ("hard_swish", lambda x: weft.hard_swish(x * 3),
            lambda x: 3 * x * np.clip(x / 2 + 0.5, 0, 1)),
    "outside": ("hard_sigmoid", lambda x: weft.hard_sigmoid(x * 3),
                lambda x: np.clip(x / 2 + 0.5, 0, 1)),
    "tanh": ("gelu", lambda x: weft.gelu(x, "tanh"), _gelu_tanh),
    "": ("threshold", lambda x: weft.threshold(x, 0.6, -7), lambda x: np.where(x > 0.6, x, -7)),
}  # fmt: skip
"""By case, a function with non-default arguments, and the same in NumPy."""


def _halves(x: Array, axis: int) -> Any:
    first, second = np.split(x, 2, axis)
    return first * _logistic(second)


_GLU: tuple[tuple[str, Any, Shapes, int], ...] = (
    ("last", -1, (((2, 4),), ((6,),), ((0, 2),), ((3, 0),)), -1),
    ("first", 0, (((4, 3),), ((2, 1, 2),)), 0),
    ("name", "C", (((C, W),), ((W, C),)), 0),
    ("axis", H, (((C, H),), ((H, C),)), 1),
)

ROWS: tuple[Row, ...] = (
    *(
        Row(name, getattr(weft, name), operands("any"), ONE if name == "sigmoid" else _FEW,
            expected=expected, twice=True, is_special=True)
        for name, expected in _SMOOTH.items()
    ),
    *(
        Row(name, getattr(weft, name), operands("distinct" if name == "relu" else "any"),
            ONE if name == "relu" else _FEW,
            NUMBERS if name == "relu" else FLOATS, expected, twice=True, is_special=True)
        for name, expected in _KINKED.items()
    ),
    *(
        Row(name, build, operands("distinct"), _FEW, FLOATS, expected, case, twice=True,
            is_special=True)
        for case, (name, build, expected) in _OPTIONS.items()
    ),
    *(
        Row(name, getattr(weft, name), fixed("any"), _FEW, ("int32",),
            lambda x, f=function: f(x).astype(np.float32), "integers", is_generic=False)
        for name, function in (("gelu", _SMOOTH["gelu"]), ("elu", _elu))
    ),
    Row("relu", weft.relu, fixed("any"), _FEW, ("bool",), lambda x: np.array(x, np.int32), "bool"),
    Row("prelu", weft.prelu, operands("distinct", "any"), _WEIGHTED, FLOATS,
        lambda x, weight: np.where(x > 0, x, weight * x), twice=True, is_special=True),
    *(
        Row("glu", lambda x, axis=axis: weft.glu(x, axis), operands("any"), shapes, FLOATS,
            lambda x, place=place: _halves(x, place), case, twice=True)
        for case, axis, shapes, place in _GLU
    ),
)  # fmt: skip

_X, _UNFIT = weft.placeholder((2, 3)), weft.placeholder((4,))
_Z = weft.placeholder((2, 3), "complex64")
_UNKNOWN = weft.placeholder((weft.make_axis(None, "N"),))


def _refusals() -> list[Refusal]:
    wrong: dict[str, dict[str, Any]] = {
        "leaky_relu": {"negative_slope": "steep"},
        "elu": {"alpha": None},
        "celu": {"alpha": 0},
        "softplus": {"beta": -1.0},
        "hard_tanh": {"min_val": [0]},
        "hard_shrink": {"lambd": True},
        "threshold": {"threshold": 0, "value": "none"},
    }
    found = [
        Refusal(name, "complex", partial(getattr(weft, name), _Z), DTypeError, "take real")
        for name in (*_SMOOTH, *_KINKED)
        if name != "sigmoid"
    ]
    found += [
        Refusal(name, "number", partial(getattr(weft, name), _X, **options), ArgumentError,
                "must be a Python number")
        for name, options in wrong.items()
    ]  # fmt: skip
    return found


REFUSALS: tuple[Refusal, ...] = (
    *_refusals(),
    Refusal(
        "soft_shrink",
        "negative",
        partial(weft.soft_shrink, _X, -1.0),
        ArgumentError,
        "finite number of at least 0",
    ),
    Refusal("sigmoid", "text", lambda: weft.sigmoid("x"), DTypeError, "not made of numbers"),
    Refusal(
        "threshold", "missing", lambda: weft.threshold(_X, None, 0), ArgumentError, "threshold"
    ),
    Refusal("gelu", "mode", lambda: weft.gelu(_X, "erf"), ArgumentError, "'none' or 'tanh'"),
    Refusal("gelu", "flag", lambda: weft.gelu(_X, True), ArgumentError, "'none' or 'tanh'"),
    Refusal("hard_tanh", "crossed", lambda: weft.hard_tanh(_X, 1, 0), ArgumentError, "cross"),
    Refusal("prelu", "shapes", lambda: weft.prelu(_X, _UNFIT), AxesError, "2, 3"),
    Refusal("glu", "odd", lambda: weft.glu(_X), AxesError, "must be even"),
    Refusal("glu", "range", lambda: weft.glu(_X, 2), AxesError, "out of range"),
    Refusal("glu", "name", lambda: weft.glu(_X, "C"), AxesError, "unknown axis"),
    Refusal("glu", "unknown", lambda: weft.glu(_UNKNOWN), AxesError, "must be even"),
    Refusal("glu", "scalar", lambda: weft.glu(1.0), AxesError, "out of range"),
)
