"""Rows of the op table: linear systems, inverses, determinants, powers of matrices.

Operands are made regular or positive definite inside the rows, so they may have any layout.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import weft
from weft.errors import ArgumentError, AxesError, DTypeError, WeftError
from weft.ir.dtypes import Array
from weft.ir.tensor import TensorOp
from weft.testing.table.rows import FIXED, C, H, Operand, Refusal, Row, Shapes

Function = Callable[..., Any]

_ONE = (Operand("unit"),)
_TWO = (Operand("unit"), Operand("any"))
_SQUARES: Shapes = (((2, 3, 3),), ((2, 2),), ((1, 1),), ((2, 1, 2, 2),), ((0, 0),), ((0, 2, 2),))
_SYSTEMS: Shapes = (
    ((2, 3, 3), (2, 3, 2)), ((3, 3), (3,)), ((3, 3), (2, 3, 1)), ((2, 2, 2), (2,)),
    ((2, 1, 2, 2), (3, 2, 1)), ((1, 1), (1,)), ((0, 0), (0, 2)), ((0, 3, 3), (3, 1)),
    ((2, 2), (2, 0)),
)  # fmt: skip
_TURN = 1 - 0.5j
"""A factor that makes real numbers complex."""


def _regular(x: Any) -> Any:
    """Return diagonally dominant matrices, of a tensor or an array."""
    diagonal = 3 * np.eye(x.shape[-1])
    return x + (diagonal if isinstance(x, np.ndarray) else weft.constant(diagonal, dtype=x.dtype))


def _symmetric(x: Any) -> Any:
    """Return symmetric, positive definite matrices."""
    return _regular(x @ x.mT)


def _hermitian(x: Any) -> Any:
    """Return Hermitian, positive definite matrices."""
    return _symmetric(x) + (x - x.mT) * 0.5j


def _as_it_is(x: TensorOp) -> Any:
    return x


def _log_of_det(x: Array) -> Any:
    return np.linalg.slogdet(x)[1]


_OF_ONE: tuple[tuple[str, str, Function, Function, Function], ...] = (
    ("cholesky", "", weft.cholesky, np.linalg.cholesky, _symmetric),
    ("inverse", "", weft.inverse, np.linalg.inv, _regular),
    ("det", "", weft.det, np.linalg.det, _regular),
    ("det", "negative", weft.det, np.linalg.det, lambda x: -_regular(x)),
    ("slogdet", "", lambda x: weft.slogdet(x)[1], _log_of_det, lambda x: -_regular(x)),
    ("logdet", "", weft.logdet, _log_of_det, _regular),
    ("matrix_power", "3", lambda x: weft.matrix_power(x, 3), lambda x: x @ x @ x, _as_it_is),
    ("matrix_power", "-5", lambda x: weft.matrix_power(x, -5),
     lambda x: np.linalg.matrix_power(x, -5), _regular),
)  # fmt: skip
"""The function, its case, its call, the same in NumPy, and the function of its operand."""

_OF_SYSTEM: tuple[tuple[str, str, Function, Function, Function], ...] = (
    ("solve", "", weft.solve, np.linalg.solve, _regular),
    ("triangular_solve", "lower", weft.triangular_solve,
     lambda a, b: np.linalg.solve(np.tril(a), b), _regular),
    ("triangular_solve", "upper", lambda a, b: weft.triangular_solve(a, b, lower=False),
     lambda a, b: np.linalg.solve(np.triu(a), b), _regular),
    ("triangular_solve", "transposed", lambda a, b: weft.triangular_solve(a, b, transposed=True),
     lambda a, b: np.linalg.solve(np.tril(a).mT, b), _regular),
    ("triangular_solve", "upper-transposed", lambda a, b: weft.triangular_solve(a, b, False, True),
     lambda a, b: np.linalg.solve(np.triu(a).mT, b), _regular),
    ("cholesky_solve", "lower", weft.cholesky_solve,
     lambda a, b: np.linalg.solve(np.tril(a) @ np.tril(a).conj().mT, b), _regular),
    ("cholesky_solve", "upper", lambda a, b: weft.cholesky_solve(a, b, lower=False),
     lambda a, b: np.linalg.solve(np.triu(a).conj().mT @ np.triu(a), b), _regular),
)  # fmt: skip
"""The same for functions of a matrix and right-hand sides."""


def _rows() -> list[Row]:
    rows = [
        Row(name, lambda x, f=function, m=make: f(m(x)), _ONE, _SQUARES,
            expected=lambda x, f=numpy, m=make: f(m(x)), case=case, twice=True)
        for name, case, function, numpy, make in _OF_ONE
    ]  # fmt: skip
    rows += [
        Row(name, lambda a, b, f=function, m=make: f(m(a), b), _TWO, _SYSTEMS,
            expected=lambda a, b, f=numpy, m=make: f(m(a), b), case=case, twice=True)
        for name, case, function, numpy, make in _OF_SYSTEM
    ]  # fmt: skip
    return rows


def _complex_rows() -> list[Row]:
    """Return rows with real results, so that real derivatives test complex ones."""
    rows = [
        Row(name, lambda x, f=function, m=make: weft.real(f(m(x)) * _TURN), _ONE, (((2, 3, 3),),),
            ("float32",), lambda x, f=numpy, m=make: (f(m(x)) * _TURN).real, "complex", twice=True)
        for name, function, numpy, make in (
            ("cholesky", weft.cholesky, np.linalg.cholesky, _hermitian),
            ("inverse", weft.inverse, np.linalg.inv, lambda x: _regular(x * _TURN)),
            ("det", weft.det, np.linalg.det, lambda x: _regular(x * _TURN)),
            ("logdet", weft.logdet, lambda x: np.log(np.linalg.det(x)),
             lambda x: _regular(x * _TURN)),
        )
    ]  # fmt: skip
    rows += [
        Row(name, lambda a, b, f=function: weft.real(f(_regular(a * _TURN), b)), _TWO,
            (((2, 3, 3), (2, 3, 2)),), ("float32",),
            lambda a, b, f=numpy: f(_regular(a * _TURN), b).real, f"complex-{case}", twice=True)
        for name, case, function, numpy, _ in _OF_SYSTEM
    ]  # fmt: skip
    return rows


_SECOND_LOST = np.array([1.0, 0.0]).reshape(2, 1, 1)


def _degenerate(x: Any) -> Any:
    """Return a stack of a regular matrix and a zero matrix."""
    return _regular(x) * _SECOND_LOST.astype(x.dtype)


def _first_alone(function: Function) -> Function:
    """Return a function of stacks with NaN for the second matrix."""

    def computed(*stacks: Array) -> Any:
        first = function(*(stack[0] for stack in stacks))
        return np.stack([first, np.full_like(first, np.nan)])

    return computed


_DEGENERATE = [
    *(
        Row(name, lambda x, f=function: f(_degenerate(x)), (FIXED,), (((2, 3, 3),),),
            expected=lambda x, f=wanted: f(_degenerate(x)), case="singular")
        for name, function, wanted in (
            ("inverse", weft.inverse, _first_alone(np.linalg.inv)),
            ("det", weft.det, np.linalg.det),
            ("slogdet", lambda x: weft.slogdet(x)[0], lambda x: np.linalg.slogdet(x)[0]),
            ("logdet", weft.logdet, _log_of_det),
        )
    ),
    *(
        Row(name, lambda a, b, f=function: f(_degenerate(a), b), (FIXED, FIXED),
            (((2, 3, 3), (2, 3, 2)),),
            expected=lambda a, b, f=numpy: _first_alone(f)(_degenerate(a), b), case=f"no-{case}")
        for name, case, function, numpy, _ in _OF_SYSTEM
    ),
    Row("cholesky", lambda x: weft.cholesky(_degenerate(weft.matmul(x, x.mT))), (FIXED,),
        (((2, 3, 3),),), case="indefinite",
        expected=lambda x: np.tril(_first_alone(np.linalg.cholesky)(_degenerate(x @ x.mT)))),
    Row("logdet", lambda x: weft.logdet(-_regular(x)), (FIXED,), (((2, 3, 3),),), case="negative",
        expected=lambda x: np.full(2, np.nan)),
]  # fmt: skip

_MORE = [
    Row("slogdet", lambda x: weft.slogdet(-_regular(x))[0], (FIXED,), _SQUARES,
        expected=lambda x: np.linalg.slogdet(-_regular(x))[0], case="sign"),
    Row("slogdet", lambda x: weft.slogdet(_regular(x) * 1e20)[1], _ONE, (((2, 3, 3),),),
        expected=lambda x: np.linalg.slogdet(_regular(x) * 1e20)[1], case="large"),
    Row("cholesky", lambda x: weft.cholesky(_symmetric(x) + weft.constant(
            np.triu(np.full((3, 3), np.nan), 1))), (FIXED,), (((2, 3, 3),),), ("float64",),
        lambda x: np.linalg.cholesky(_symmetric(x)), "unread-triangle"),
    Row("triangular_solve", lambda a, b: weft.triangular_solve(_regular(a) + weft.constant(
            np.triu(np.full((3, 3), np.nan), 1)), b), (FIXED, FIXED),
        (((2, 3, 3), (2, 3, 1)),), ("float64",),
        lambda a, b: np.linalg.solve(np.tril(_regular(a)), b), "unread-triangle"),
    *(
        Row("matrix_power", lambda x, n=n: weft.matrix_power(x, n), (Operand(),), _SQUARES,
            ("float32", "int32"), lambda x, n=n: np.linalg.matrix_power(x, n), f"{n}")
        for n in (0, 1, 2, 6)
    ),
    Row("solve", lambda a, b: weft.solve(a + 20 * np.eye(3, dtype="i4"), b), (FIXED, FIXED),
        (((3, 3), (3, 2)),), ("int32",),
        lambda a, b: np.linalg.solve(a + 20 * np.eye(3), b), "integers", is_generic=False),
]  # fmt: skip

ROWS: tuple[Row, ...] = (*_rows(), *_complex_rows(), *_DEGENERATE, *_MORE)

_SQUARE, _OBLONG, _VECTOR = (weft.placeholder(shape) for shape in ((3, 3), (2, 3), (3,)))
_NAMED = weft.placeholder((H, C))
_LEADING = weft.placeholder((2, 3, 3)), weft.placeholder((4, 3, 1))
_OF_MATRIX = ("cholesky", "inverse", "det", "slogdet", "logdet")
_OF_SIDES = ("solve", "triangular_solve", "cholesky_solve")


def _refusals() -> list[Refusal]:
    def refusal(
        function: str, case: str, arguments: tuple[Any, ...], error: type[WeftError], words: str
    ) -> Refusal:
        build = partial(getattr(weft, function), *arguments)
        return Refusal(function, case, build, error, words)

    found = [
        refusal(name, case, arguments, error, words)
        for name in _OF_MATRIX
        for case, arguments, error, words in (
            ("oblong", (_OBLONG,), AxesError, "needs square matrices"),
            ("vector", (_VECTOR,), AxesError, "takes matrices"),
            ("named", (_NAMED,), AxesError, f"{name}: takes positional"),
            ("text", ("x",), DTypeError, "not made of numbers"),
            ("unknown", (weft.placeholder((weft.symbol("n"), 3)),), AxesError, "square"),
        )
    ]
    found += [
        refusal(name, case, arguments, error, words)
        for name in _OF_SIDES
        for case, arguments, error, words in (
            ("oblong", (_OBLONG, _OBLONG), AxesError, "needs square matrices"),
            ("vector", (_VECTOR, _VECTOR), AxesError, "takes matrices"),
            ("sides", (_SQUARE, _OBLONG), AxesError, "do not fit the matrices"),
            ("scalar", (_SQUARE, 1.0), AxesError, "must be a vector or matrices"),
            ("leading", _LEADING, AxesError, f"{name}: .* do not broadcast"),
            ("named", (_NAMED, _VECTOR), AxesError, "takes positional axes"),
        )
    ]
    return [
        *found,
        refusal("triangular_solve", "lower", (_SQUARE, _SQUARE, "L"), ArgumentError, "lower must"),
        refusal("triangular_solve", "transposed", (_SQUARE, _SQUARE, True, 1), ArgumentError,
                "transposed must"),
        refusal("cholesky_solve", "lower", (_SQUARE, _SQUARE, None), ArgumentError, "lower must"),
        refusal("matrix_power", "fraction", (_SQUARE, 0.5), ArgumentError, "n must be a whole"),
        refusal("matrix_power", "oblong", (_OBLONG, 2), AxesError, "needs square matrices"),
        refusal("matrix_power", "vector", (_VECTOR, 2), AxesError, "takes matrices"),
        refusal("matrix_power", "named", (_NAMED, 2), AxesError, "positional"),
    ]  # fmt: skip


REFUSALS: tuple[Refusal, ...] = tuple(_refusals())
