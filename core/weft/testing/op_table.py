"""The table of ops: every public function of weft, the operands it takes, and what comes out.

The conformance tests run each row on every backend, in several dtypes, ranks and layouts. A
function without a row fails a test, so the table cannot fall behind.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

import weft
from weft.testing.movement_rows import MOVEMENT_ROWS
from weft.testing.reduction_rows import REDUCTION_ROWS
from weft.testing.rows import (
    ALL,
    FIXED,
    FLOATS,
    MATRIX,
    NUMBERS,
    ONE,
    TWO,
    C,
    H,
    Operand,
    Row,
    Shapes,
    fixed,
    operands,
)
from weft.testing.state_rows import STATE_ROWS

_UNARY: dict[str, tuple[str, tuple[str, ...], Callable[..., Any]]] = {
    "negative": ("any", NUMBERS, np.negative),
    "absolute": ("distinct", NUMBERS, np.absolute),
    "square": ("any", NUMBERS, np.square),
    "sqrt": ("positive", FLOATS, np.sqrt),
    "reciprocal": ("nonzero", FLOATS, lambda x: 1 / x),
    "exp": ("any", FLOATS, np.exp),
    "log": ("positive", FLOATS, np.log),
    "sin": ("any", FLOATS, np.sin),
    "cos": ("any", FLOATS, np.cos),
    "tanh": ("any", FLOATS, np.tanh),
    "sigmoid": ("any", FLOATS, lambda x: 1 / (1 + np.exp(-x))),
    "relu": ("distinct", NUMBERS, lambda x: np.maximum(x, 0)),
    "safelog": ("positive", FLOATS, np.log),
}

_BINARY: dict[str, tuple[tuple[str, str], tuple[str, ...], Callable[..., Any]]] = {
    "add": (("any", "any"), NUMBERS, np.add),
    "subtract": (("any", "any"), NUMBERS, np.subtract),
    "multiply": (("any", "any"), NUMBERS, np.multiply),
    "divide": (("any", "nonzero"), FLOATS, np.divide),
    "maximum": (("distinct", "distinct"), NUMBERS, np.maximum),
    "minimum": (("distinct", "distinct"), NUMBERS, np.minimum),
    "power": (("positive", "any"), FLOATS, np.power),
    "mod": (("distinct", "positive"), FLOATS, np.mod),
}

_WITHOUT_GRADIENT: dict[str, tuple[tuple[str, ...], tuple[str, ...], Callable[..., Any]]] = {
    "sign": (("any",), NUMBERS, np.sign),
    "logical_not": (("any",), ALL, np.logical_not),
    "floordivide": (("any", "nonzero"), NUMBERS, np.floor_divide),
    "mod": (("any", "nonzero"), ("int32",), np.mod),
    "equal": (("any", "any"), ALL, np.equal),
    "not_equal": (("any", "any"), ALL, np.not_equal),
    "greater": (("any", "any"), ALL, np.greater),
    "greater_equal": (("any", "any"), ALL, np.greater_equal),
    "less": (("any", "any"), ALL, np.less),
    "less_equal": (("any", "any"), ALL, np.less_equal),
}

TERNARY: Shapes = (
    ((2, 3), (2, 3), (2, 3)),
    ((), (), ()), ((3,), (), (2, 1)), ((), (4,), (4,)), ((2, 0), (1, 1), ()),
    ((H, C), (C, H), ()), ((C,), (H, C), (H,)),
)  # fmt: skip

_CONDITION = Operand(dtype="bool", differentiable=False)


def _function(name: str) -> Callable[..., Any]:
    return getattr(weft, name)  # type: ignore[no-any-return]


def _elementwise_rows() -> list[Row]:
    rows = [
        Row(name, _function(name), operands(domain), ONE, dtypes, expected, twice=True,
            is_special=True)
        for name, (domain, dtypes, expected) in _UNARY.items()
    ]  # fmt: skip
    rows += [
        Row(name, _function(name), operands(*domains), TWO, dtypes, expected, twice=True,
            is_special=True)
        for name, (domains, dtypes, expected) in _BINARY.items()
    ]  # fmt: skip
    rows += [
        Row(
            name,
            _function(name),
            fixed(*domains),
            ONE if len(domains) == 1 else TWO,
            dtypes,
            expected,
            case="integers" if dtypes == ("int32",) else "",
            is_special=True,
        )
        for name, (domains, dtypes, expected) in _WITHOUT_GRADIENT.items()
    ]
    return rows


def _integer_power(x: Any, y: Any) -> Any:
    exact = np.asarray(x, np.float64) ** np.abs(y)
    return np.where(np.asarray(y) < 0, np.trunc(1 / np.where(exact == 0, np.inf, exact)), exact)


def _mixed(x: Any, y: Any) -> Any:
    """Return expressions of Python's operators, with numbers on both sides."""
    return -((2 * x - y / 4 + 1) ** 2) + abs(1 - x) * (y - 3) + 2.0**x


def _mixed_integers(x: Any, y: Any) -> Any:
    return (7 - x) % 3 * (x // 2) + (-y) // 3 + 2 % (abs(y) + 1)


_MORE_ELEMENTWISE = [
    Row("divide", weft.divide, fixed("any", "nonzero"), dtypes=("int32",), shapes=TWO,
        expected=lambda x, y: (x / y).astype(np.float32), case="integers"),
    Row("power", weft.power, fixed("nonzero", "any"), dtypes=("int32",), shapes=TWO,
        expected=_integer_power, case="integers"),
    Row("power", lambda x: weft.power(x, 3), operands("any"), expected=lambda x: x**3,
        dtypes=NUMBERS, case="constant", twice=True),
    Row("power", lambda x: x**-1.5, operands("positive"), expected=lambda x: x**-1.5,
        case="constant-fraction", twice=True),
    Row("where", weft.where, (_CONDITION, Operand(), Operand()), TERNARY, ALL, np.where,
        is_special=True),
    Row("where", lambda x, y: weft.where(x, y, 0), (FIXED, Operand()), TWO, NUMBERS,
        lambda x, y: np.where(x != 0, y, 0), case="number"),
    Row("safelog", lambda x: weft.safelog(x * 0), expected=lambda x: np.full(x.shape, -50.0),
        case="limited"),
    Row("add", _mixed, operands("any", "any"), TWO[:3], expected=_mixed, case="operators"),
    Row("add", _mixed_integers, fixed("any", "any"), TWO[:3], ("int32",), _mixed_integers,
        case="integer-operators"),
    *(
        Row("cast", lambda x, to=to: weft.cast(x, to), operands(domain), ONE, (*FLOATS, "int32"),
            lambda x, to=to: x.astype(to), case=to)
        for to, domain in [("float64", "any"), ("float32", "any")]
    ),
    *(
        Row("cast", lambda x, to=to: weft.cast(x, to), fixed(domain), ONE, ALL,
            lambda x, to=to: x.astype(to), case=to, is_special=to == "bool")
        for to, domain in [("int32", "any"), ("int64", "any"), ("uint8", "positive"),
                           ("bool", "any")]
    ),
]  # fmt: skip


def _softmax(x: Any, axis: Any) -> Any:
    powers = np.exp(x - x.max(axis=axis, keepdims=True))
    return powers / powers.sum(axis=axis, keepdims=True)


def _entropy(y: Any, t: Any, axis: Any) -> Any:
    return -(t * np.log(y)).sum(axis=axis)


def _binary_entropy(y: Any, t: Any) -> Any:
    return -(t * np.log(y) + (1 - t) * np.log(1 - y))


def _logistic(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


_LOGITS = operands("any", "shares")
_PAIR: Shapes = (((3, 4), (3, 4)),)
_NAMED_PAIR: Shapes = (((C, H), (C, H)), ((C, weft.Axis(3, "N")), (C, weft.Axis(3, "N"))))

_NN = [
    Row("softmax", weft.softmax, shapes=(((2, 3),), ((4,),), ((1, 1),), ((2, 3, 1, 2, 2),)),
        expected=lambda x: _softmax(x, -1), twice=True),
    Row("softmax", lambda x: weft.softmax(x, (0, 2)), shapes=(((2, 3, 4),), ((1, 0, 2),)),
        expected=lambda x: _softmax(x, (0, 2)), case="several-axes", twice=True),
    Row("softmax", weft.softmax, shapes=(((C, weft.Axis(3, "N")),), ((H, C),)),
        expected=lambda x: _softmax(x, 0), case="named"),
    Row("softmax", lambda x: weft.softmax(x, normalization_axes=[C]), shapes=(((H, C),),),
        expected=lambda x: _softmax(x, 1), case="named-subset", twice=True),
    Row("softmax", lambda x: weft.softmax(x * 1000), shapes=MATRIX,
        expected=lambda x: _softmax(x * 1000, -1), case="large", operands=fixed("distinct")),
    Row("cross_entropy_multi", lambda x, t: weft.cross_entropy_multi(weft.softmax(x), t), _LOGITS,
        (*_PAIR, *_NAMED_PAIR), expected=lambda x, t: _entropy(_softmax(x, -1), t, -1),
        case="softmax", twice=True),
    Row("cross_entropy_multi", lambda x, t: weft.cross_entropy_multi(weft.softmax(x), t),
        operands("any", "positive"), _PAIR, case="softmax-unnormalised",
        expected=lambda x, t: _entropy(_softmax(x, -1), t, -1)),
    Row("cross_entropy_multi", weft.cross_entropy_multi, operands("unit", "shares"), _PAIR,
        expected=lambda y, t: _entropy(y, t, -1), case="probabilities"),
    Row("cross_entropy_multi", lambda y, t: weft.cross_entropy_multi(y, t, usebits=True),
        operands("unit", "shares"), _PAIR, case="bits",
        expected=lambda y, t: _entropy(y, t, -1) / np.log(2)),
    Row("cross_entropy_multi", lambda x, t: weft.cross_entropy_multi(
            weft.softmax(x), t, usebits=True, out_axes=(H,)), _LOGITS, _NAMED_PAIR[:1],
        expected=lambda x, t: _entropy(_softmax(x, (0, 1)), t, 0) / np.log(2), case="out-axes"),
    Row("cross_entropy_binary_inner",
        lambda x, t: weft.cross_entropy_binary_inner(weft.sigmoid(x), t),
        operands("distinct", "unit"), TWO[:4], case="sigmoid",
        expected=lambda x, t: _binary_entropy(_logistic(x), t), twice=True),
    Row("cross_entropy_binary_inner", weft.cross_entropy_binary_inner, operands("unit", "unit"),
        TWO[:4], expected=_binary_entropy, case="probabilities"),
    Row("cross_entropy_binary", lambda x, t: weft.cross_entropy_binary(weft.sigmoid(x), t),
        operands("distinct", "unit"), _PAIR,
        expected=lambda x, t: _binary_entropy(_logistic(x), t).sum(), case="sigmoid"),
    Row("cross_entropy_binary", lambda y, t: weft.cross_entropy_binary(y, t, out_axes=(H,)),
        operands("unit", "unit"), (((C, H), (C, H)),),
        expected=lambda y, t: _binary_entropy(y, t).sum(axis=0), case="out-axes"),
]  # fmt: skip


TABLE: tuple[Row, ...] = (
    *_elementwise_rows(),
    *_MORE_ELEMENTWISE,
    *_NN,
    *REDUCTION_ROWS,
    *MOVEMENT_ROWS,
    *STATE_ROWS,
)
"""Every row."""


def public_functions() -> dict[str, Any]:
    """Return by name the functions of `weft` that make ops."""
    found = ((name, getattr(weft, name)) for name in weft.__all__)
    return {
        name: value
        for name, value in found
        if inspect.isfunction(value) and value.__module__.startswith("weft.ops.")
    }


def functions_without_row() -> list[str]:
    """Return the names of the public functions that the table lacks; an alias needs no row.

    Nor does `weft.computation`, which yields no tensor; the conformance tests call it.
    """
    covered = {getattr(weft, row.function) for row in TABLE} | {weft.computation}
    return sorted(name for name, value in public_functions().items() if value not in covered)
