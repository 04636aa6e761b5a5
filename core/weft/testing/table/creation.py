"""Rows of the op table: filled tensors, ranges, identity matrices, meshes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import weft
from weft.errors import ArgumentError, AxesError, DTypeError, WeftError
from weft.ir.axes import Axis
from weft.testing.table.rows import (
    ALL,
    CUBE,
    FIXED,
    FLOATS,
    NUMBERS,
    C,
    H,
    Refusal,
    Row,
    W,
    fixed,
    operands,
)

_NONE = ((),)


def _row(function: str, case: str, build: Callable[..., Any], expected: Callable[..., Any]) -> Row:
    """Return a row of an op without operands."""
    return Row(function, build, (), _NONE, ("float32",), expected, case, is_generic=False)


_FULL_ROWS = [
    _row("zeros", "shape", lambda: weft.zeros((2, 3)), lambda: np.zeros((2, 3), np.float32)),
    _row("zeros", "length", lambda: weft.zeros(4, bool), lambda: np.zeros(4, bool)),
    _row("ones", "named", lambda: weft.ones((C, H)), lambda: np.ones((4, 2), np.float32)),
    _row("ones", "scalar", lambda: weft.ones((), "uint8"), lambda: np.ones((), np.uint8)),
    _row("full", "number", lambda: weft.full((0, 2), 7), lambda: np.full((0, 2), 7, np.float32)),
    _row("full", "bool", lambda: weft.full((2,), True), lambda: np.full(2, True)),
    _row("full", "complex", lambda: weft.full(2, 1j), lambda: np.full(2, 1j, np.complex64)),
    _row("full", "dtype", lambda: weft.full(2, -3, "int8"), lambda: np.full(2, -3, np.int8)),
    Row("full", lambda x: weft.full((2, 3), x), shapes=(((),), ((3,),)), dtypes=ALL,
        expected=lambda x: np.full((2, 3), x), case="tensor"),
    Row("zeros_like", weft.zeros_like, (FIXED,), (*CUBE, ((C, H),)), ALL, np.zeros_like),
    Row("ones_like", weft.ones_like, (FIXED,), (*CUBE, ((0, 2),)), ALL, np.ones_like),
    Row("full_like", lambda x: weft.full_like(x, 1), (FIXED,), dtypes=ALL,
        expected=lambda x: np.full_like(x, 1)),
    Row("full_like", lambda x: weft.full_like(x, 0.5, "float64"), (FIXED,), dtypes=ALL,
        expected=lambda x: np.full_like(x, 0.5, float), case="dtype"),
]  # fmt: skip

_RANGES: dict[str, tuple[Any, ...]] = {
    "stop": (5,),
    "start": (2, 7),
    "step": (1, 10, 3),
    "exact": (1, 10, 9),
    "backwards": (5, -5, -4),
    "empty": (3, 3),
    "none": (3, 9, -1),
    "floats": (0.5, 3, 0.25),
    "fraction": (0.0, 1.0, 0.3),
    "floats-backwards": (1.0, -1, -0.5),
    "numpy": (np.int8(3), np.float32(5.5)),
}

_TYPED_RANGES: dict[str, tuple[tuple[Any, ...], str]] = {
    "uint8": ((250, 256), "uint8"),
    "uint8-backwards": ((5, -1, -1), "uint8"),
    "uint64": ((2**64 - 1, 2**64 - 7, -2), "uint64"),
    "int32": ((-3, 3), "int32"),
    "whole-floats": ((0.0, 4.0, 2.0), "int32"),
    "float64": ((0, 3), "float64"),
    "float16": ((1000, 3000, 7), "float16"),
}

_RANGE_ROWS = [
    *(
        _row("arange", case, lambda a=a: weft.arange(*a),
             lambda a=a: np.arange(*a, dtype=np.result_type(*map(type, a), *_like(a))))
        for case, a in _RANGES.items()
    ),
    *(
        _row("arange", case, lambda a=a, t=t: weft.arange(*a, dtype=t),
             lambda a=a, t=t: np.array([*_counted(*a)], dtype=t))
        for case, (a, t) in _TYPED_RANGES.items()
    ),
    _row("arange", "named", lambda: weft.arange(W), lambda: np.arange(5)),
    _row("arange", "named-from", lambda: weft.arange(2, W), lambda: np.arange(2, 5)),
    _row("linspace", "ends", lambda: weft.linspace(-1, 2.5, 6),
         lambda: np.linspace(-1, 2.5, 6, dtype=np.float32)),
    _row("linspace", "default", lambda: weft.linspace(1, 0, dtype="float64"),
         lambda: np.linspace(1, 0)),
    _row("linspace", "open", lambda: weft.linspace(0, 1, 5, endpoint=False),
         lambda: np.linspace(0, 1, 5, endpoint=False, dtype=np.float32)),
    _row("linspace", "one", lambda: weft.linspace(2, 3, 1), lambda: np.array([2], np.float32)),
    _row("linspace", "none", lambda: weft.linspace(2, 3, 0), lambda: np.array([], np.float32)),
    _row("linspace", "named", lambda: weft.linspace(0, 1, W),
         lambda: np.linspace(0, 1, 5, dtype=np.float32)),
    _row("linspace", "extreme", lambda: weft.linspace(-3e38, 3e38, 5),
         lambda: np.linspace(-3e38, 3e38, 5).astype(np.float32)),
    Row("linspace", lambda x, y: weft.square(weft.linspace(x, y, 6)), operands("any", "any"),
        (((), ()),), FLOATS, lambda x, y: np.linspace(x, y, 6) ** 2, "tensors", twice=True),
    Row("linspace", lambda x: weft.linspace(x, 3, 4), fixed("any"), (((),),), ("int32",),
        lambda x: np.linspace(x, 3, 4, dtype=np.float32), "integer", is_generic=False),
]  # fmt: skip


def _like(numbers: tuple[Any, ...]) -> tuple[type, ...]:
    return (np.float32,) if any(isinstance(x, float | np.floating) for x in numbers) else (int,)


def _counted(start: Any, stop: Any, step: Any = 1) -> range:
    return range(int(start), int(stop), int(step))


_MATRIX_ROWS = [
    _row("eye", "square", lambda: weft.eye(3), lambda: np.eye(3, dtype=np.float32)),
    _row("eye", "above", lambda: weft.eye(3, 4, 1, "int32"), lambda: np.eye(3, 4, 1, np.int32)),
    _row("eye", "below", lambda: weft.eye(3, 2, -2, bool), lambda: np.eye(3, 2, -2, bool)),
    _row("eye", "outside", lambda: weft.eye(2, k=5), lambda: np.eye(2, k=5, dtype=np.float32)),
    _row("eye", "empty", lambda: weft.eye(0, 2), lambda: np.eye(0, 2, dtype=np.float32)),
    _row("eye", "named", lambda: weft.eye(C, H), lambda: np.eye(4, 2, dtype=np.float32)),
    _row("tri", "square", lambda: weft.tri(3), lambda: np.tri(3, dtype=np.float32)),
    _row("tri", "above", lambda: weft.tri(3, 5, 1, bool), lambda: np.tri(3, 5, 1, bool)),
    _row("tri", "below", lambda: weft.tri(H, W, -1), lambda: np.tri(2, 5, -1, np.float32)),
    *(
        Row("meshgrid", lambda *x, n=number, i=indexing: weft.meshgrid(*x, indexing=i)[n],
            operands("any", "any", "any"), (((2,), (3,), (4,)), ((1,), (0,), (2,)),
            ((C,), (H,), (W,))), NUMBERS,
            lambda *x, n=number, i=indexing: np.meshgrid(*x, indexing=i)[n],
            f"{indexing}-{number}")
        for indexing in ("xy", "ij") for number in range(3)
    ),
    Row("meshgrid", lambda x: weft.meshgrid(x)[0], shapes=(((3,),),),
        expected=lambda x: np.meshgrid(x)[0], case="one"),
]  # fmt: skip

ROWS: tuple[Row, ...] = (*_FULL_ROWS, *_RANGE_ROWS, *_MATRIX_ROWS)

_X = weft.placeholder((3,))

_WRONG: dict[str, dict[str, tuple[Callable[[], Any], type[WeftError], str]]] = {
    "zeros": {
        "negative": (lambda: weft.zeros((2, -1)), AxesError, "must not be negative"),
        "text": (lambda: weft.zeros("ab"), AxesError, "the text 'ab'"),
        "none": (lambda: weft.zeros(None), AxesError, "cannot be made from None"),
        "dtype": (lambda: weft.zeros(2, "float8"), DTypeError, "float8"),
    },
    "ones": {"fraction": (lambda: weft.ones(2.5), AxesError, "cannot be made from 2.5")},
    "full": {
        "shape": (lambda: weft.full((2, 2), _X), AxesError, "broadcast"),
        "fraction": (lambda: weft.full((2,), 0.5, "int32"), DTypeError, "fractions"),
        "text": (lambda: weft.full((2,), "one"), DTypeError, "not made of numbers"),
        "none": (lambda: weft.full((2,), None), DTypeError, "not made of numbers"),
    },
    "full_like": {
        "overflow": (lambda: weft.full_like(_X, 300, "uint8"), DTypeError, "does not fit uint8"),
    },
    "zeros_like": {"dtype": (lambda: weft.zeros_like(_X, "text"), DTypeError, "not a dtype")},
    "ones_like": {"dtype": (lambda: weft.ones_like(_X, object), DTypeError, "not a dtype")},
    "arange": {
        "step": (lambda: weft.arange(1, 2, 0), ArgumentError, "step must not be 0"),
        "text": (lambda: weft.arange("5"), ArgumentError, "stop must be a finite number"),
        "vector": (lambda: weft.arange(np.ones(3)), ArgumentError, "stop must be a finite number"),
        "infinite": (lambda: weft.arange(0.0, float("inf")), ArgumentError, "finite"),
        "tensor": (lambda: weft.arange(0, weft.sum(_X)), DTypeError, "no integer value"),
        "unfit": (lambda: weft.arange(250, 258, dtype="uint8"), DTypeError, "250 to 257 .* uint8"),
        "fraction": (lambda: weft.arange(0.0, 2, 0.5, dtype=int), DTypeError, "fractions"),
        "complex": (lambda: weft.arange(3, dtype=complex), DTypeError, "integer or float"),
        "unknown": (lambda: weft.arange(0.5, weft.symbol("n")), ArgumentError, "must be integers"),
    },
    "linspace": {
        "num": (lambda: weft.linspace(0, 1, -1), ArgumentError, "num must be .* at least 0"),
        "fraction": (lambda: weft.linspace(0, 1, 2.5), ArgumentError, "num must be"),
        "dtype": (lambda: weft.linspace(0, 9, 10, dtype=int), DTypeError, "float dtype"),
        "vector": (lambda: weft.linspace(_X, 1, 5), AxesError, "must be scalars"),
        "unknown": (lambda: weft.linspace(0, 1, Axis(None, "N")), AxesError, "known length"),
    },
    "eye": {
        "negative": (lambda: weft.eye(-1), AxesError, "negative"),
        "shape": (lambda: weft.eye((2, 3)), ArgumentError, "two arguments"),
        "offset": (lambda: weft.eye(2, k=0.5), ArgumentError, "k must be a whole number"),
        "name": (lambda: weft.eye(C), AxesError, "columns need a name"),
        "names": (lambda: weft.eye(C, C), AxesError, "more than once"),
    },
    "tri": {
        "none": (lambda: weft.tri(None), AxesError, "None"),
        "offset": (lambda: weft.tri(2, k="1"), ArgumentError, "k must be a whole number"),
    },
    "meshgrid": {
        "indexing": (lambda: weft.meshgrid(_X, indexing="yx"), ArgumentError, "'xy' or 'ij'"),
        "rank": (lambda: weft.meshgrid(_X, [[1, 2]]), AxesError, "takes vectors"),
        "names": (lambda: weft.meshgrid(weft.ones(C), weft.ones(C)), AxesError, "more than once"),
    },
}  # fmt: skip

REFUSALS: tuple[Refusal, ...] = tuple(
    Refusal(function, case, build, error, words)
    for function, cases in _WRONG.items()
    for case, (build, error, words) in cases.items()
)
