"""Rows of the op table: complex functions with real operands and results.

So every check of the kit applies to them, including central differences.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import weft
from weft.errors import AxesError, DTypeError
from weft.testing.table.rows import (
    FLOATS,
    NUMBERS,
    C,
    H,
    Operand,
    Refusal,
    Row,
    Shapes,
    fixed,
    operands,
)

Function = Callable[..., Any]

_OF_ONE: dict[str, Function] = {
    "absolute": np.absolute,
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atanh": np.arctanh,
    "conj": np.conj,
    "cos": np.cos,
    "cosh": np.cosh,
    "exp": np.exp,
    "expm1": np.expm1,
    "imag": np.imag,
    "log": np.log,
    "log10": np.log10,
    "log1p": np.log1p,
    "log2": np.log2,
    "nan_to_num": np.nan_to_num,
    "negative": np.negative,
    "real": np.real,
    "reciprocal": np.reciprocal,
    "round": np.rint,
    "rsqrt": lambda z: 1 / np.sqrt(z),
    "sigmoid": lambda z: 1 / (1 + np.exp(-z)),
    "sign": np.sign,
    "sin": np.sin,
    "sinc": np.sinc,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "square": np.square,
    "tan": np.tan,
    "tanh": np.tanh,
}

_OF_TWO: dict[str, Function] = {
    "add": np.add,
    "divide": np.divide,
    "multiply": np.multiply,
    "power": np.power,
    "subtract": np.subtract,
    "xlogy": lambda z, w: z * np.log(w),
}

_QUESTIONS: dict[str, Function] = {
    "isfinite": np.isfinite,
    "isinf": np.isinf,
    "isnan": np.isnan,
}

_COMPARISONS: dict[str, Function] = {
    "equal": np.equal,
    "isclose": np.isclose,
    "not_equal": np.not_equal,
}

_PAIR: Shapes = (((2, 3), (2, 3)), ((H, C), (C,)))


def _real(z: Any) -> Any:
    """Return a real number that depends on both parts of z."""
    return weft.real(z) + weft.imag(z) * 2


def _numpy_real(z: Any) -> Any:
    return np.real(z) + np.imag(z) * 2


def _row(
    name: str,
    build: Function,
    expected: Function,
    domain: tuple[Operand, ...] = operands("unit", "unit"),
    case: str = "complex",
) -> Row:
    """Return a row with real and imaginary parts as operands."""
    return Row(name, build, domain, _PAIR, FLOATS, expected, case, twice=True, is_generic=False)


def _of_one(name: str, function: Function) -> Row:
    own = getattr(weft, name)
    return _row(
        name,
        lambda x, y: _real(own(weft.complex(x, y))),
        lambda x, y: _numpy_real(function(x + 1j * y)),
    )


def _of_two(name: str, function: Function) -> Row:
    own = getattr(weft, name)
    return _row(
        name,
        lambda x, y: _real(own(weft.complex(x, y), x * 1j - y)),
        lambda x, y: _numpy_real(function(x + 1j * y, 1j * x - y)),
    )


def _question(name: str, function: Function) -> Row:
    own = getattr(weft, name)
    return Row(
        name,
        lambda x, y: own(weft.complex(x, y)),
        fixed("any", "any"),
        _PAIR,
        FLOATS,
        lambda x, y: function(x + 1j * y),
        "complex",
        is_generic=False,
    )


def _comparison(name: str, function: Function) -> Row:
    own = getattr(weft, name)
    return Row(
        name,
        lambda x, y: own(weft.complex(x, y), weft.complex(x, x)),
        fixed("index", "index"),
        _PAIR,
        FLOATS,
        lambda x, y: function(x + 1j * y, x + 1j * x),
        "complex",
        is_generic=False,
    )


ROWS: tuple[Row, ...] = (
    *(_of_one(*pair) for pair in _OF_ONE.items()),
    *(_of_two(*pair) for pair in _OF_TWO.items()),
    *(_question(*pair) for pair in _QUESTIONS.items()),
    *(_comparison(*pair) for pair in _COMPARISONS.items()),
    _row("complex", lambda x, y: _real(weft.complex(x, y) * (2 + 3j)),
         lambda x, y: _numpy_real((x + 1j * y) * (2 + 3j)), case="gradient"),
    _row("where", lambda x, y: _real(weft.where(weft.greater(x, y), weft.complex(x, y), x * 2j)),
         lambda x, y: _numpy_real(np.where(x > y, x + 1j * y, x * 2j)),
         operands("distinct", "distinct")),
    _row("cast", lambda x, y: _real(weft.cast(x * y, "complex128") * (2 + 3j)),
         lambda x, y: x * y * 8),
    Row("complex", weft.complex, fixed("any", "any"), _PAIR, (*FLOATS, "int32"),
        lambda x, y: x + 1j * y, is_generic=False),
    *(
        Row(name, getattr(weft, name), operands("any"), (((2, 3),), ((),), ((0,),), ((H, C),)),
            NUMBERS, function)
        for name, function in (("real", np.real), ("imag", np.imag), ("conj", np.conj))
    ),
)  # fmt: skip

_X, _UNFIT = weft.placeholder((2, 3)), weft.placeholder((4,))
_Z = weft.placeholder((2, 3), "complex64")

REFUSALS: tuple[Refusal, ...] = (
    *(
        Refusal(name, "text", partial(getattr(weft, name), "three"), DTypeError, "not made of")
        for name in ("real", "imag", "conj")
    ),
    Refusal("complex", "shapes", lambda: weft.complex(_X, _UNFIT), AxesError, "2, 3"),
    Refusal("complex", "parts", lambda: weft.complex(_X, _Z), DTypeError, "take real"),
)
