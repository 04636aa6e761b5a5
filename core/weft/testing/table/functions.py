"""Rows of the op table: unary and binary functions, rounding, special functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from statistics import NormalDist
from typing import Any

import numpy as np

import weft
from weft.errors import AxesError, DTypeError
from weft.ir.tensor import TensorOp
from weft.testing.table.rows import (
    ALL,
    FIXED,
    FLOATS,
    NUMBERS,
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

_FEW: Shapes = (((2, 3),), ((),), ((0, 2),), ((H, C),))
_FEW_PAIRS: Shapes = (((2, 3), (2, 3)), ((), (4,)), ((3, 1), (2,)), ((H, C), (C,)), ((0,), ()))
_TRIPLES: Shapes = (((2, 3), (2, 3), (2, 3)), ((3,), (), (2, 1)), ((H, C), (C,), ()))


def _each(function: Callable[[float], float]) -> Callable[..., Any]:
    return np.vectorize(function, otypes=[float])


def _erf(x: float) -> float:
    """Return the sum of the power series."""
    total = term = x
    for n in range(1, 60):
        term *= -x * x / n
        total += term / (2 * n + 1)
    return total * 2 / math.sqrt(math.pi)


def _digamma(x: float) -> float:
    """Return digamma by the recurrence and the asymptotic series."""
    far = x + 40
    series = -1 / (2 * far) - 1 / (12 * far**2) + 1 / (120 * far**4) - 1 / (252 * far**6)
    return math.log(far) + series - sum(1 / (x + n) for n in range(40))


_UNARY: dict[str, tuple[str, Callable[..., Any]]] = {
    "rsqrt": ("positive", lambda x: x**-0.5),
    "cbrt": ("nonzero", np.cbrt),
    "exp2": ("any", np.exp2),
    "expm1": ("any", np.expm1),
    "log1p": ("inside", np.log1p),
    "log2": ("positive", np.log2),
    "log10": ("positive", np.log10),
    "tan": ("inside", np.tan),
    "asin": ("inside", np.arcsin),
    "acos": ("inside", np.arccos),
    "atan": ("any", np.arctan),
    "sinh": ("any", np.sinh),
    "cosh": ("any", np.cosh),
    "asinh": ("any", np.arcsinh),
    "acosh": ("beyond", np.arccosh),
    "atanh": ("inside", np.arctanh),
    "degrees": ("any", np.degrees),
    "radians": ("any", np.radians),
    "sinc": ("any", np.sinc),
    "erf": ("any", _each(_erf)),
    "erfc": ("inside", _each(lambda x: 1 - _erf(x))),
    "erfinv": ("inside", _each(lambda x: NormalDist().inv_cdf((x + 1) / 2) / math.sqrt(2))),
    "lgamma": ("positive", _each(lambda x: math.log(math.gamma(x)))),
    "digamma": ("positive", _each(_digamma)),
}

_BINARY: dict[str, tuple[tuple[str, str], Callable[..., Any]]] = {
    "atan2": (("nonzero", "nonzero"), np.arctan2),
    "hypot": (("nonzero", "nonzero"), np.hypot),
    "logaddexp": (("any", "any"), np.logaddexp),
    "xlogy": (("any", "positive"), lambda x, y: x * np.log(y)),
}

_WITHOUT_GRADIENT: dict[str, tuple[tuple[str, ...], Callable[..., Any]]] = {
    "floor": (ALL, np.floor),
    "ceil": (ALL, np.ceil),
    "trunc": (ALL, np.trunc),
    "round": (ALL, np.rint),
    "isnan": (ALL, np.isnan),
    "isinf": (ALL, np.isinf),
    "isfinite": (ALL, np.isfinite),
    "signbit": (NUMBERS, np.signbit),
}

_REAL_ONLY = (
    "cbrt", "exp2", "erf", "erfc", "erfinv", "lgamma", "digamma", "floor", "ceil", "trunc",
    "signbit",
)  # fmt: skip
"""Unary functions without complex operands."""

_REAL_PAIRS = ("atan2", "hypot", "logaddexp", "copysign", "nextafter", "fmod")
"""Binary functions without complex operands."""


def _function(name: str) -> Callable[..., Any]:
    return getattr(weft, name)  # type: ignore[no-any-return]


def _rows() -> list[Row]:
    rows = [
        Row(name, _function(name), operands(domain), _FEW, expected=expected, twice=True,
            is_special=True)
        for name, (domain, expected) in _UNARY.items()
    ]  # fmt: skip
    rows += [
        Row(name, _function(name), operands(*domains), _FEW_PAIRS, expected=expected, twice=True,
            is_special=True)
        for name, (domains, expected) in _BINARY.items()
    ]  # fmt: skip
    rows += [
        Row(name, _function(name), fixed("any"), _FEW, dtypes, expected, is_special=True)
        for name, (dtypes, expected) in _WITHOUT_GRADIENT.items()
    ]
    rows += [
        Row(name, _function(name), fixed("positive"), _FEW, ("int32",),
            lambda x, f=_UNARY[name][1]: f(x).astype(np.float32), "integers", is_generic=False)
        for name in ("expm1", "log2", "erf")
    ]  # fmt: skip
    return rows


def _near(x: TensorOp, y: TensorOp) -> tuple[Any, Any]:
    return x * 0.7, y * 0.7 + 0.1


_MORE = [
    Row("round", lambda x: weft.round(x * 0.5), fixed("index"), _FEW, FLOATS,
        lambda x: np.rint(x * 0.5), "ties"),
    Row("lgamma", lambda x: weft.lgamma(x - 3), operands("unit"), _FEW, case="negative",
        expected=_each(lambda x: math.log(abs(math.gamma(x - 3)))), twice=True),
    Row("digamma", lambda x: weft.digamma(x - 3), operands("unit"), _FEW, case="negative",
        expected=_each(lambda x: _digamma(x + 1) - sum(1 / (x - n) for n in range(4))),
        twice=True),
    Row("erfc", lambda x: weft.erfc(x * 3), operands("beyond"), _FEW, case="far",
        expected=_each(lambda x: 2 * NormalDist().cdf(-x * 3 * math.sqrt(2)))),
    Row("sinc", lambda x: weft.sinc(x * 0.05), operands("any"), _FEW, case="near-zero",
        expected=lambda x: np.sinc(x * 0.05), twice=True),
    Row("xlogy", lambda x: weft.xlogy(x * 0, x), fixed("nonzero"), _FEW, case="zero",
        expected=lambda x: np.where(x < 0, 0, 0)),
    Row("copysign", weft.copysign, (Operand("nonzero"), Operand("nonzero", differentiable=False)),
        _FEW_PAIRS, expected=np.copysign, is_special=True),
    Row("nextafter", weft.nextafter, (Operand(), FIXED), _FEW_PAIRS, expected=np.nextafter),
    Row("fmod", weft.fmod, operands("distinct", "positive"), TWO, expected=np.fmod, twice=True,
        is_special=True),
    Row("fmod", weft.fmod, fixed("any", "nonzero"), TWO, ("int32",), np.fmod, "integers",
        is_special=True),
    Row("lerp", weft.lerp, operands("any", "any", "unit"), _TRIPLES, twice=True,
        expected=lambda x, y, weight: x + weight * (y - x)),
    Row("lerp", lambda x, y: weft.lerp(x, y, 0.25), operands("any", "any"), _FEW_PAIRS,
        expected=lambda x, y: x + 0.25 * (y - x), case="number"),
    Row("nan_to_num", weft.nan_to_num, operands("nonzero"), _FEW, NUMBERS, np.nan_to_num,
        is_special=True),
    Row("nan_to_num", lambda x: weft.nan_to_num(x, 1, posinf=2, neginf=-2), operands("nonzero"),
        _FEW, FLOATS, lambda x: np.nan_to_num(x, nan=1, posinf=2, neginf=-2), "numbers",
        is_special=True),
    *(
        Row("isclose",
            lambda x, y, o=options: weft.isclose(*_near(x, y), rtol=0.3, atol=0.1, **o),
            fixed("any", "any"), _FEW_PAIRS, (*FLOATS, "int32"),
            lambda x, y, o=options: np.isclose(*_near(x, y), rtol=0.3, atol=0.1, **o), case,
            is_special=True, is_generic=False)
        for case, options in {"": {}, "nan": {"equal_nan": True}}.items()
    ),
    Row("isclose", weft.isclose, fixed("any", "any"), _FEW_PAIRS, FLOATS, np.isclose, "defaults"),
]  # fmt: skip

ROWS: tuple[Row, ...] = (*_rows(), *_MORE)

_X, _UNFIT = weft.placeholder((2, 3)), weft.placeholder((4,))
_Z = weft.placeholder((2, 3), "complex64")

REFUSALS = (
    *(
        Refusal(name, "text", partial(_function(name), "three"), DTypeError, "not made of numbers")
        for name in (*_UNARY, *_WITHOUT_GRADIENT, "nan_to_num")
    ),
    *(
        Refusal(name, "complex", partial(_function(name), _Z), DTypeError, "take real")
        for name in _REAL_ONLY
    ),
    *(
        Refusal(name, "complex", partial(_function(name), _Z, _Z), DTypeError, "take real")
        for name in _REAL_PAIRS
    ),
    *(
        Refusal(name, "shapes", partial(_function(name), _X, _UNFIT), AxesError, "2, 3")
        for name in (*_REAL_PAIRS, "xlogy", "isclose")
    ),
    Refusal("lerp", "shapes", lambda: weft.lerp(_X, _X, _UNFIT), AxesError, "2, 3"),
    Refusal("lerp", "complex", lambda: weft.lerp(_Z, _Z, 0.5), DTypeError, "take real"),
)
