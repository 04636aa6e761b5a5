"""Rows of the op table for edge cases of primitives: many elements, large numbers, signed zeros."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import weft
from weft.ir.tensor import TensorOp
from weft.testing.table.rows import FLOATS, NUMBERS, Refusal, Row, Shapes, fixed

MANY = 70001
"""A length above 2**16, and no multiple of a block."""

_UPPER = np.triu(np.full((3, 3), 5, np.float32), 1)

_Function = Callable[..., Any]


def _whole(x: Any) -> Any:
    """Return integers, whose sums are exact in any order."""
    return x * 2 // 1


def _definite(x: TensorOp) -> Any:
    return x @ x.T + 3 * np.eye(3, dtype=np.float32)


_LONG: dict[str, tuple[_Function, _Function]] = {
    "add": (lambda x: x + x[::-1], lambda x: x + x[::-1]),
    "tanh": (weft.tanh, np.tanh),
    "contiguous": (lambda x: weft.contiguous(x[::-1]), lambda x: x[::-1]),
    "concat": (lambda x: weft.concat([x, -x], 0), lambda x: np.concatenate([x, -x])),
    "where": (lambda x: weft.where(x > 1, x, 1), lambda x: np.where(x > 1, x, 1)),
    "arange": (lambda x: weft.arange(MANY), lambda x: np.arange(MANY)),
    "take": (lambda x: weft.take(x, np.arange(MANY)[::-7]), lambda x: x[::-7]),
    "sum": (lambda x: weft.sum(_whole(x)), lambda x: np.sum(_whole(x))),
    "max": (lambda x: weft.max(x * weft.arange(MANY)), lambda x: np.max(x * np.arange(MANY))),
    "argmax": (lambda x: weft.argmax(weft.arange(MANY) + x * 0), lambda x: np.int64(MANY - 1)),
    "argsort": (lambda x: weft.argsort(x[:2050]), lambda x: np.argsort(x[:2050], kind="stable")),
}
"""By function, a call with many elements, and the same in NumPy."""

_COLUMNS: Shapes = (((8209, 3),), ((3, 8209),))

_ZEROS: dict[str, _Function] = {
    "sqrt": weft.sqrt,
    "sin": weft.sin,
    "tanh": weft.tanh,
    "floor": weft.floor,
    "add": lambda x: x + x,
    "multiply": lambda x: x * 3,
    "divide": lambda x: x / 3,
    "absolute": weft.absolute,
}
"""Functions that are 0 at 0; the sign of the zero is the sign of its reciprocal."""

ROWS = (
    *(
        Row(name, build, fixed("positive"), (((MANY,),),),
            FLOATS if name == "tanh" else NUMBERS, expected, "long", is_generic=False)
        for name, (build, expected) in _LONG.items()
    ),
    *(
        Row("sum", lambda x, at=at: weft.sum(_whole(x), at), fixed("positive"), _COLUMNS, NUMBERS,
            lambda x, at=at: np.sum(_whole(x), at), f"long-{at}")
        for at in (0, 1)
    ),
    Row("matmul", lambda x, y: weft.matmul(_whole(x), _whole(y)), fixed("positive", "positive"),
        (((3, 8209), (8209, 2)),), NUMBERS, lambda x, y: _whole(x) @ _whole(y), "long"),
    *(
        Row(name, lambda x, f=build: 1 / f(x * 0), fixed("any"), dtypes=FLOATS,
            case="sign-of-zero", is_special=True)
        for name, build in _ZEROS.items()
    ),
    Row("floor", lambda x: weft.floor(x * 2.0**40), fixed("any"), dtypes=FLOATS,
        expected=lambda x: np.floor(x * 2.0**40), case="large", is_generic=False),
    *(
        Row(name, lambda x, f=function: f(x * 4096), fixed("any"), dtypes=FLOATS,
            expected=lambda x, f=theirs: f(x * 4096), case="large", is_generic=False)
        for name, function, theirs in (("sin", weft.sin, np.sin), ("cos", weft.cos, np.cos))
    ),
    *(
        Row(name, function, fixed("any"), (((6,),),), NUMBERS, case="special", is_special=True)
        for name, function in (
            ("argmax", weft.argmax), ("argmin", weft.argmin), ("max", weft.max),
            ("min", weft.min), ("argsort", weft.argsort), ("sum", weft.sum), ("prod", weft.prod),
        )
    ),
    *(
        Row("cast", lambda x, to=to: weft.cast(x, to), fixed("any"), dtypes=("int32",),
            case=f"special-{to}", is_special=True)
        for to in ("bool", "int8", "uint8", "int16", "uint32", "int64", "float32")
    ),
    Row("power", weft.power, fixed("nonzero", "positive"), dtypes=("int32",),
        shapes=(((6,), (6,)),), case="special-integers", is_special=True),
    Row("matmul", lambda x, y: weft.matmul(x * 2**29 + 1, y * 2**29 + 1), fixed("any", "any"),
        (((2, 3), (3, 2)),), ("int32",), case="overflow", is_generic=False),
    Row("matmul", lambda x: weft.matmul(x * 0, x * np.nan), fixed("any"), (((3, 3),),), FLOATS,
        lambda x: x * np.nan, "zero-times-nan"),
    Row("prod", lambda x: weft.prod(x * 2 + 1), fixed("any"), dtypes=("int32",), case="overflow"),
    Row("prod", lambda x: weft.prod(weft.where(weft.arange(40) < 20, x * 0 + 2, 0.5)),
        fixed("any"), (((40,),),), FLOATS, lambda x: 1, "large-on-the-way"),
    Row("prod", lambda x: weft.prod(weft.where(weft.arange(MANY) < MANY - 1, 1, x)),
        fixed("positive"), (((MANY,),),), FLOATS, lambda x: x[-1], "long", is_generic=False),
    Row("equal", lambda x: weft.equal(x, x * (1 + 2.0**-20)), fixed("positive"), dtypes=FLOATS,
        expected=lambda x: np.zeros(x.shape), case="neighbors", is_generic=False),
    Row("cholesky", lambda x: weft.cholesky(_definite(x) + _UPPER),
        fixed("any"), (((3, 3),),), FLOATS, lambda x: np.linalg.cholesky(_definite(x)),
        "upper-triangle", is_generic=False),
    Row("cast", lambda x: weft.cast(x * 256, "bool"), fixed("any"), dtypes=("int32",),
        expected=lambda x: x != 0, case="high-bits", is_generic=False),
)  # fmt: skip

REFUSALS: tuple[Refusal, ...] = ()
