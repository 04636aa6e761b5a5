"""Rows of the op table: special functions, parts of floats, and divisors of integers."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import weft
from weft.errors import ArgumentError, AxesError, DTypeError
from weft.testing.table.rows import (
    FIXED,
    FLOATS,
    Operand,
    Refusal,
    Row,
    Shapes,
    fixed,
    operands,
)

_FEW: Shapes = (((2, 3),), ((),))
_PAIRS: Shapes = (((2, 3), (3,)), ((), ()))
_TRIPLE: Shapes = (((2, 3), (3,), (2, 1)),)
_ALL_INTEGERS = ("int32", "int64", "uint8")


def _mean_over_circle(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Return the mean of a function of x and an angle, by the trapezoidal rule."""
    angles = np.arange(64) * (2 * math.pi / 64)
    return lambda x: np.mean(function(np.asarray(x)[..., None], angles), axis=-1)


def _along_line(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Return the integral of an even function of x and t over positive t."""
    places = np.arange(-160, 161) / 20
    return lambda x: np.sum(function(np.asarray(x, "f8")[..., None], places), axis=-1) / 40


def _normal(x: float) -> float:
    return math.erfc(-x / math.sqrt(2)) / 2


def _each(function: Callable[[float], float]) -> Callable[..., Any]:
    return np.vectorize(function, otypes=[float])


_UNARY: dict[str, tuple[str, Callable[..., Any] | None]] = {
    "entr": ("positive", lambda x: -x * np.log(x)),
    "erfcx": ("inside", _each(lambda x: math.exp(x * x) * math.erfc(x))),
    "i0": ("any", _mean_over_circle(lambda x, t: np.exp(x * np.cos(t)))),
    "i0e": ("nonzero", _mean_over_circle(lambda x, t: np.exp(x * np.cos(t) - abs(x)))),
    "i1": ("any", _mean_over_circle(lambda x, t: np.exp(x * np.cos(t)) * np.cos(t))),
    "i1e": ("nonzero", _mean_over_circle(lambda x, t: np.exp(x * np.cos(t) - abs(x)) * np.cos(t))),
    "j0": ("any", _mean_over_circle(lambda x, t: np.cos(x * np.sin(t)))),
    "j1": ("any", _mean_over_circle(lambda x, t: np.cos(x * np.sin(t) - t))),
    "k0": ("positive", _along_line(lambda x, t: np.exp(-x * np.cosh(t)))),
    "k0e": ("positive", _along_line(lambda x, t: np.exp(-x * (np.cosh(t) - 1)))),
    "k1": ("positive", _along_line(lambda x, t: np.exp(-x * np.cosh(t)) * np.cosh(t))),
    "k1e": ("positive", _along_line(lambda x, t: np.exp(-x * (np.cosh(t) - 1)) * np.cosh(t))),
    "lambertw": ("positive", None),
    "log_ndtr": ("any", _each(lambda x: math.log(_normal(x)))),
    "ndtr": ("any", _each(_normal)),
    "ndtri": ("unit", None),
    "spherical_bessel_j0": ("nonzero", lambda x: np.sin(x) / x),
    "y0": ("positive", None),
    "y1": ("positive", None),
}
"""Functions of one number: the domain, and what they are in NumPy."""

_POLYNOMIALS: dict[str, Callable[..., Any]] = {
    "chebyt": lambda x: 4 * x**3 - 3 * x,
    "chebyu": lambda x: 8 * x**3 - 4 * x,
    "chebyv": lambda x: 8 * x**3 - 4 * x**2 - 4 * x + 1,
    "chebyw": lambda x: 8 * x**3 + 4 * x**2 - 4 * x - 1,
    "hermite": lambda x: 8 * x**3 - 12 * x,
    "hermitenorm": lambda x: x**3 - 3 * x,
    "laguerre": lambda x: (6 - 18 * x + 9 * x**2 - x**3) / 6,
    "legendre": lambda x: (5 * x**3 - 3 * x) / 2,
}
"""Those of degree 3."""


def _of(name: str) -> Callable[..., Any]:
    return getattr(weft.special, name)  # type: ignore[no-any-return]


ROWS: tuple[Row, ...] = (
    *(
        Row(f"special.{name}", _of(name), operands(domain), _FEW, expected=expected, twice=True,
            is_special=True)
        for name, (domain, expected) in _UNARY.items()
    ),
    *(
        Row(f"special.eval_{name}", partial(_of(f"eval_{name}"), 3), operands("any"), _FEW,
            expected=expected, twice=True)
        for name, expected in _POLYNOMIALS.items()
    ),
    Row("special.lambertw", lambda x: weft.special.lambertw(x * -0.15, -1), operands("positive"),
        _FEW, case="lower"),
    *(
        Row("special.airy", lambda x, i=index: weft.special.airy(x)[i], operands("any"), _FEW,
            case=case, twice=index < 2)
        for index, case in enumerate(("Ai", "slope-of-Ai", "Bi", "slope-of-Bi"))
    ),
    Row("special.polygamma", partial(weft.special.polygamma, 1), operands("positive"), _FEW,
        twice=True, is_special=True),
    # Near a pole the rounding of x - 3 to 16 bits is larger than the tolerance.
    Row("special.polygamma", lambda x: weft.special.polygamma(2, x - 3), operands("unit"), _FEW,
        case="negative", is_generic=False),
    Row("special.zeta", weft.special.zeta, operands("beyond", "positive"), _PAIRS),
    Row("special.zeta", weft.special.zeta, operands("beyond"), _FEW, case="Riemann"),
    Row("special.gammainc", weft.special.gammainc, operands("positive", "positive"), _PAIRS),
    Row("special.gammaincc", weft.special.gammaincc, operands("positive", "positive"), _PAIRS),
    Row("special.betainc", weft.special.betainc, operands("positive", "positive", "unit"), _TRIPLE),
    Row("special.xlog1py", weft.special.xlog1py, operands("any", "positive"), _PAIRS,
        expected=lambda x, y: x * np.log1p(y), twice=True, is_special=True),
    Row("angle", weft.angle, operands("nonzero"), _FEW, (*FLOATS, "complex64"), np.angle,
        is_generic=False),
    Row("frexp", lambda x: weft.frexp(x)[0], operands("nonzero"), _FEW,
        expected=lambda x: np.frexp(x)[0], is_special=True),
    Row("frexp", lambda x: weft.frexp(x)[1], fixed("nonzero"), _FEW,
        expected=lambda x: np.frexp(x)[1], case="exponent", is_special=True),
    Row("ldexp", weft.ldexp, (Operand(), Operand("index", "int32", differentiable=False)), _PAIRS,
        expected=np.ldexp),
    Row("gcd", weft.gcd, (FIXED, FIXED), _PAIRS, _ALL_INTEGERS, np.gcd, is_special=True),
    Row("lcm", weft.lcm, (FIXED, FIXED), _PAIRS, _ALL_INTEGERS, np.lcm, is_special=True),
)  # fmt: skip

_X, _UNFIT = weft.placeholder((2, 3)), weft.placeholder((4,))
_Z = weft.placeholder((2, 3), "complex64")

REFUSALS = (
    *(
        Refusal(f"special.{name}", "complex", partial(_of(name), _Z), DTypeError, "take real")
        for name in (*_UNARY, "airy")
    ),
    *(
        Refusal(f"special.{name}", "shapes", partial(_of(name), _X, _UNFIT), AxesError, "2, 3")
        for name in ("gammainc", "gammaincc", "xlog1py", "zeta")
    ),
    *(
        Refusal(f"special.eval_{name}", "degree", partial(_of(f"eval_{name}"), -1, _X),
                ArgumentError, "whole number")
        for name in _POLYNOMIALS
    ),
    Refusal("special.betainc", "shapes", lambda: weft.special.betainc(_X, 1, _UNFIT), AxesError,
            "2, 3"),
    Refusal("special.lambertw", "branch", lambda: weft.special.lambertw(_X, 1), ArgumentError,
            "are complex"),
    Refusal("special.polygamma", "order", lambda: weft.special.polygamma(-1, _X), ArgumentError,
            "whole number"),
    Refusal("special.polygamma", "high", lambda: weft.special.polygamma(171, _X), ArgumentError,
            "at most 170"),
    Refusal("angle", "text", lambda: weft.angle("three"), DTypeError, "not made of numbers"),
    Refusal("frexp", "complex", lambda: weft.frexp(_Z), DTypeError, "take real"),
    Refusal("ldexp", "floats", lambda: weft.ldexp(_X, _X), DTypeError, "cast them"),
    *(
        Refusal(name, "floats", partial(getattr(weft, name), _X, _X), DTypeError, "of integers")
        for name in ("gcd", "lcm")
    ),
)  # fmt: skip
