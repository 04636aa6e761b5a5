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
from weft.ir.dtypes import Array
from weft.ir.tensor import TensorOp
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


def _real(z: TensorOp) -> Any:
    """Return a real number that depends on both parts of z."""
    return weft.real(z) + weft.imag(z) * 2


def _numpy_real(z: Array) -> Any:
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


def _rows(
    functions: dict[str, Function],
    make: Callable[[Any, Any, Function], tuple[Any, ...]],
    domain: tuple[Operand, ...] = operands("unit", "unit"),
) -> list[Row]:
    """Return rows of functions of what `make` makes of two real tensors, in weft and in NumPy."""

    def row(name: str, function: Function) -> Row:
        own, is_smooth = getattr(weft, name), domain[0].differentiable
        outer, outer_in_numpy = (_real, _numpy_real) if is_smooth else (lambda z: z, lambda z: z)
        return Row(
            name, lambda x, y: outer(own(*make(x, y, weft.complex))), domain, _PAIR, FLOATS,
            lambda x, y: outer_in_numpy(function(*make(x, y, lambda a, b: a + 1j * b))),
            "complex", twice=is_smooth, is_generic=False,
        )  # fmt: skip

    return [row(*pair) for pair in functions.items()]


ROWS: tuple[Row, ...] = (
    *_rows(_OF_ONE, lambda x, y, z: (z(x, y),)),
    *_rows(_OF_TWO, lambda x, y, z: (z(x, y), x * 1j - y)),
    *_rows(_QUESTIONS, lambda x, y, z: (z(x, y),), fixed("any", "any")),
    *_rows(_COMPARISONS, lambda x, y, z: (z(x, y), z(x, x)), fixed("index", "index")),
    _row("complex", lambda x, y: _real(weft.complex(x, y) * (2 + 3j)),
         lambda x, y: _numpy_real((x + 1j * y) * (2 + 3j)), case="gradient"),
    _row("where", lambda x, y: _real(weft.where(weft.greater(x, y), weft.complex(x, y), x * 2j)),
         lambda x, y: _numpy_real(np.where(x > y, x + 1j * y, x * 2j)),
         operands("distinct", "distinct")),
    _row("cast", lambda x, y: _real(weft.cast(x * y, "complex128") * (2 + 3j)),
         lambda x, y: x * y * 8),
    Row("view_as_real", lambda x, y: weft.view_as_real(weft.complex(x, y)),
        operands("unit", "unit"), _PAIR, FLOATS, lambda x, y: np.stack([x, y], axis=-1),
        twice=True, is_generic=False),
    Row("view_as_complex", lambda x: _real(weft.view_as_complex(x) * (2 + 3j)), operands("unit"),
        (((3, 2),), ((2,),), ((2, 0, 2),), ((C, H),)), FLOATS,
        lambda x: _numpy_real((x[..., 0] + 1j * x[..., 1]) * (2 + 3j)), twice=True,
        is_generic=False),
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
    Refusal("view_as_real", "real", lambda: weft.view_as_real(_X), DTypeError, "two parts"),
    Refusal("view_as_complex", "length", lambda: weft.view_as_complex(_X), AxesError, "two parts"),
    Refusal("complex", "parts", lambda: weft.complex(_X, _Z), DTypeError, "take real"),
)
