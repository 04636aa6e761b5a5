"""Rows of the op table: arithmetic, unary functions, comparisons, selection, casts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import weft
from weft.errors import ArgumentError, AxesError, DTypeError
from weft.ir.tensor import TensorOp
from weft.testing.table.rows import (
    ALL,
    FIXED,
    FLOATS,
    NUMBERS,
    ONE,
    TWO,
    C,
    H,
    Operand,
    Refusal,
    Row,
    Shapes,
    fixed,
    operands,
)

_UNARY: dict[str, tuple[str, tuple[str, ...], Callable[..., Any]]] = {
    "positive": ("any", ALL, np.array),
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

_BITS = ("int32", "bool")

_WITHOUT_GRADIENT: dict[str, tuple[tuple[str, ...], tuple[str, ...], Callable[..., Any]]] = {
    "sign": (("any",), NUMBERS, np.sign),
    "logical_not": (("any",), ALL, np.logical_not),
    "logical_and": (("any", "any"), ALL, np.logical_and),
    "logical_or": (("any", "any"), ALL, np.logical_or),
    "logical_xor": (("any", "any"), ALL, np.logical_xor),
    "bitwise_not": (("any",), _BITS, np.bitwise_not),
    "bitwise_and": (("any", "any"), _BITS, np.bitwise_and),
    "bitwise_or": (("any", "any"), _BITS, np.bitwise_or),
    "bitwise_xor": (("any", "any"), _BITS, np.bitwise_xor),
    "shift_left": (("any", "positive"), ("int32",), np.left_shift),
    "shift_right": (("any", "positive"), ("int32",), np.right_shift),
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


def _mixed(x: TensorOp, y: TensorOp) -> Any:
    """Return expressions of Python operators, with numbers on both sides."""
    return -((2 * x - y / 4 + 1) ** 2) + abs(1 - x) * (y - 3) + 2.0**x


def _mixed_integers(x: TensorOp, y: TensorOp) -> Any:
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
    Row("bitcast", lambda x: weft.bitcast(x, "int32"), fixed("any"), ONE, ("float32",),
        lambda x: x.view(np.int32), is_special=True, is_generic=False),
    Row("bitcast", lambda x: weft.bitcast(weft.bitcast(x, "float32"), "uint32"), fixed("any"), ONE,
        ("int32",), lambda x: x.view(np.uint32), case="back", is_generic=False),
    Row("clip", weft.clip, operands("any", "inside", "beyond"), TERNARY, NUMBERS,
        lambda x, low, high: np.minimum(np.maximum(x, low), high), is_special=True),
    *(
        Row("clip", lambda x, limits=limits: weft.clip(x, *limits), operands("distinct"), ONE[:4],
            NUMBERS, lambda x, limits=limits: np.clip(x, *limits), case)
        for case, limits in {
            "numbers": (0, 1), "below": (1, None), "above": (None, 1), "unlimited": (None, None),
        }.items()
    ),
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

ROWS = (*_elementwise_rows(), *_MORE_ELEMENTWISE)

_X, _UNFIT = weft.placeholder((2, 3)), weft.placeholder((4,))

_Z = weft.placeholder((2, 3), "complex64")

REFUSALS = (
    *(
        Refusal(name, "shapes", partial(_function(name), _X, _UNFIT), AxesError, "2, 3")
        for name in (*_BINARY, "clip", "equal", "not_equal", "less", "logical_and", "logical_or",
                     "logical_xor")
    ),
    *(
        Refusal(name, "complex", partial(_function(name), _Z, _Z), DTypeError, "no order")
        for name in (
            "maximum", "minimum", "less", "less_equal", "greater", "greater_equal", "clip", "mod",
            "floordivide",
        )
    ),
    *(
        Refusal(name, "text", partial(_function(name), "three"), DTypeError, "not made of numbers")
        for name in (*_UNARY, "sign", "logical_not")
    ),
    *(
        Refusal(name, "floats", partial(_function(name), *[_X] * count), DTypeError, "not float32")
        for name, count in {
            "bitwise_not": 1, "bitwise_and": 2, "bitwise_or": 2, "bitwise_xor": 2,
            "shift_left": 2, "shift_right": 2,
        }.items()
    ),
    Refusal("where", "value", lambda: weft.where(True, _X, _X), ArgumentError, "Python value"),
    Refusal("where", "shapes", lambda: weft.where(_X, _X, _UNFIT), AxesError, "2, 3"),
    Refusal("cast", "dtype", lambda: weft.cast(_X, "float12"), DTypeError, "not a dtype of weft"),
    Refusal("cast", "complex", lambda: weft.cast(_Z, "float32"), DTypeError, "do not fit float32"),
    Refusal("bitcast", "size", lambda: weft.bitcast(_X, "int16"), DTypeError, "reinterpreted"),
)  # fmt: skip
