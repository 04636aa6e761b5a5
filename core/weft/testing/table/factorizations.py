"""Rows of the op table: factorizations, and what is made of them.

Results do not depend on the signs and phases of vectors, which libraries choose differently.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

import weft
from weft.errors import ArgumentError, AxesError, WeftError
from weft.ir.dtypes import Array
from weft.ir.tensor import TensorOp
from weft.testing.table.rows import FIXED, FLOATS, C, H, Operand, Refusal, Row, Shapes

Function = Callable[..., Any]

_ONE = (Operand("unit"),)
_SQUARES: Shapes = (((2, 3, 3),), ((1, 1),), ((0, 0),), ((0, 2, 2),))
_OBLONG: Shapes = (((2, 3, 2),), ((2, 4),), ((3, 3),), ((1, 3),), ((3, 1),))
_EMPTY: Shapes = (((0, 2),), ((2, 0),), ((0, 3, 2),))
_TURN = 1 - 0.5j
"""A factor that makes real numbers complex, and their results real with a share of both parts."""


def _constant(x: Any, value: Array) -> Any:
    return value if isinstance(x, np.ndarray) else weft.constant(value, dtype=x.dtype)


def _full(x: Any) -> Any:
    """Return matrices of full rank, with different singular values."""
    rows, columns = x.shape[-2:]
    return x + _constant(x, np.eye(rows, columns) * (3 + 2 * np.arange(columns)))


def _symmetric(x: Any) -> Any:
    """Return indefinite symmetric matrices with different eigenvalues."""
    size = x.shape[-1]
    return x + x.mT + _constant(x, np.diag(4 * np.arange(size) - 6.0 + (np.arange(size) > 1)))


def _hermitian(x: Any) -> Any:
    return _symmetric(x) + (x - x.mT) * 0.5j


def _turned(x: Any) -> Any:
    """Return complex matrices of full rank."""
    return _full(x) + _mixed(x) * 1j


def _mixed(x: Any) -> Any:
    return x * _constant(x, 0.2 + np.arange(x.shape[-1]))


def _spread(library: ModuleType, f: Function, x: TensorOp) -> Any:
    """Return V diag(exp(w)) Vᴴ + |V|² of eigenvalues and eigenvectors."""
    values, vectors = f(x)
    scaled = vectors * library.exp(values * 0.25)[..., None, :]
    return scaled @ library.conj(vectors.mT) + library.abs(vectors) ** 2


def _weighted(library: ModuleType, f: Function, x: Any) -> Any:
    """Return U diag(sin(s)) Vh + U diag(1, 2, …) Vh."""
    u, s, vh = f(x, full_matrices=False)
    weights = library.sin(s) + _constant(s, np.arange(1.0, s.shape[-1] + 1))
    return (u * weights[..., None, :]) @ vh


def _projected(library: ModuleType, f: Function, x: Any) -> Any:
    """Return what LAPACK's order of the eigenvalues and the phases do not change."""
    values, vectors = f(x)
    sizes = library.abs(vectors) ** 2
    return library.real(sizes @ (values * values)[..., None])


def _cubes(library: ModuleType, f: Function, x: Any) -> Any:
    return library.real(library.sum(f(x) ** 3, -1))


def _ldl_parts(library: ModuleType, f: Function, x: TensorOp) -> Any:
    lower, middle, _ = f(x)
    return lower * lower + middle


_Case = tuple[str, str, Function, Function, Function | None, Function, Function]
"""A function, its case, what is taken of its results, in weft and NumPy, and its operands."""

_R = weft.linalg
_N = np.linalg


def _exponential(x: Any) -> Any:
    """Return the sum of the series of the exponential, which is short for small matrices."""
    term = total = np.broadcast_to(np.eye(x.shape[-1]), x.shape)
    for number in range(1, 60):
        term = term @ x / number
        total = total + term
    return total


def _lu_product(library: ModuleType, f: Function, x: TensorOp) -> Any:
    """Return the squares of the packed factors, which stand for both."""
    return f(x) ** 2


def _eliminated(x: Any) -> Any:
    """Return the packed factors by elimination without pivots, where none are needed."""
    x = x.copy()
    for k in range(min(x.shape[-2:])):
        x[..., k + 1 :, k] /= x[..., k, k][..., None]
        x[..., k + 1 :, k + 1 :] -= x[..., k + 1 :, k, None] * x[..., k, None, k + 1 :]
    return x


def _plain(library: ModuleType, f: Function, x: Any) -> Any:
    return f(x)


def _build(library: ModuleType, wrap: Function, call: Function, make: Function, x: Any) -> Any:
    found = wrap(library, call, make(x))
    is_complex = np.dtype(found.dtype).kind == "c"
    return library.real(found * _TURN) if is_complex else found


_OF_OBLONG: tuple[_Case, ...] = (
    ("qr", "q", _plain, lambda x: _R.qr(x).Q, lambda x: _N.qr(x)[0], _full, _turned),
    ("qr", "r", _plain, lambda x: _R.qr(x).R, lambda x: _N.qr(x)[1], _full, _turned),
    ("svd", "", _weighted, _R.svd, _N.svd, _full, _turned),
    ("svdvals", "", _plain, _R.svdvals, _N.svdvals, _full, _turned),
    ("pinv", "", _plain, _R.pinv, _N.pinv, _full, _turned),
    ("lu_factor", "", _lu_product, lambda x: _R.lu_factor(x).lu, _eliminated, _full, _turned),
    ("cond", "", _plain, _R.cond, _N.cond, _full, _turned),
)
"""Functions of oblong matrices."""

_OF_SQUARE: tuple[_Case, ...] = (
    ("eigh", "", _spread, _R.eigh, _N.eigh, _symmetric, _hermitian),
    ("eigvalsh", "", _plain, _R.eigvalsh, _N.eigvalsh, _symmetric, _hermitian),
    ("eig", "", _projected, _R.eig, _N.eig, _full, _turned),
    ("eigvals", "", _cubes, _R.eigvals, _N.eigvals, _full, _turned),
    ("ldl", "", _ldl_parts, _R.ldl, None, _symmetric, _hermitian),
    ("matrix_exp", "", _plain, _R.matrix_exp, _exponential, _mixed, lambda x: _mixed(x) * _TURN),
)


def _rows() -> list[Row]:
    found = []
    for families, shapes in ((_OF_OBLONG, _OBLONG), (_OF_SQUARE, _SQUARES)):
        for name, case, wrap, own, other, make, make_complex in families:
            for kind, made in (("", make), ("complex", make_complex)):
                build = partial(_build, weft, wrap, own, made)
                expected = partial(_build, np, wrap, other, made) if other else None
                found.append(
                    Row(
                        f"linalg.{name}", build, _ONE,
                        shapes[:2] if kind else shapes, ("float32",) if kind else FLOATS,
                        expected,
                        "-".join(filter(None, (case, kind))),
                        twice=True, is_generic=False,
                    )
                )  # fmt: skip
    return found


def _solved_by_lu(trans: Any, a: TensorOp, b: TensorOp) -> Any:
    return weft.linalg.lu_solve(weft.linalg.lu_factor(_full(a)), b, trans)


def _triangular(a: TensorOp, b: TensorOp, *args: Any, **options: Any) -> Any:
    return weft.linalg.solve_triangular(_full(a), b, *args, **options)


_TWO = (Operand("unit"), Operand("any"))
_SYSTEMS: Shapes = (((2, 3, 3), (2, 3, 2)), ((3, 3), (3,)), ((0, 0), (0, 2)))
_LEAST: Shapes = (((2, 3, 2), (2, 3, 2)), ((2, 3), (2,)), ((3, 1), (3,)))


def _unit(a: Array) -> Any:
    return np.triu(a, 1) + np.eye(a.shape[-1])


def _system(name: str, case: str, own: Function, other: Function, shapes: Shapes) -> Row:
    return Row(
        f"linalg.{name}", own, _TWO, shapes, FLOATS, other, case, twice=True, is_generic=False
    )


_SYSTEM_ROWS = (
    *(
        _system("lu_solve", str(trans), partial(_solved_by_lu, trans),
                lambda a, b, t=turn: _N.solve(t(_full(a)), b), _SYSTEMS)
        for trans, turn in ((0, lambda a: a), ("T", lambda a: a.mT), (2, lambda a: a.mT))
    ),
    _system("solve_triangular", "", _triangular,
            lambda a, b: _N.solve(np.triu(_full(a)), b), _SYSTEMS),
    _system("solve_triangular", "unit", partial(_triangular, trans=1, unit_diagonal=True),
            lambda a, b: _N.solve(_unit(_full(a)).mT, b), _SYSTEMS[:1]),
    _system("solve_triangular", "right", lambda a, b: _triangular(a, b.mT, lower=True, left=False),
            lambda a, b: _N.solve(np.tril(_full(a)).mT, b).mT, _SYSTEMS[:1]),
    _system("lstsq", "", lambda a, b: _R.lstsq(_full(a), b).x,
            lambda a, b: _N.pinv(_full(a)) @ b, _LEAST),
    _system("lstsq", "residuals", lambda a, b: _R.lstsq(_full(a), b).residuals,
            lambda a, b: np.sum(np.square(_full(a) @ _N.pinv(_full(a)) @ b - b), -2), _LEAST[:1]),
    _system("expm_multiply", "", lambda a, b: _R.expm_multiply(a, b),
            lambda a, b: _exponential(a) @ b, _SYSTEMS),
)  # fmt: skip


def _value(name: str, case: str, own: Function, other: Function, shapes: Shapes) -> Row:
    return Row(
        f"linalg.{name}", own, (FIXED,), shapes, FLOATS, other, case, is_generic=False
    )  # fmt: skip


def _lost(x: TensorOp) -> Any:
    """Return matrices of rank 1."""
    return x[..., :1] * x[..., :1, :] + _constant(x, np.ones(x.shape[-1])) * x[..., :1] * 2


def _with_nan(x: TensorOp) -> Any:
    """Return a matrix of NaN after one of full rank, which needs no pivots."""
    hole = np.zeros((2, 1, 1))
    hole[1] = np.nan
    return _full(x * 0.25) + _constant(x, hole)


def _first_alone(f: Function) -> Function:
    def computed(x: Array) -> Any:
        first = np.asarray(f(_full(x[0] * 0.25)))
        return np.stack([first, np.full_like(first, np.nan)])

    return computed


_VALUES = (
    _value("qr", "complete", lambda x: _R.qr(_full(x), mode="complete").Q,
           lambda x: _N.qr(_full(x), "complete")[0], _OBLONG),
    _value("svd", "whole", lambda x: _projector(weft, _R.svd, _full(x)),
           lambda x: _projector(np, _N.svd, _full(x)), _OBLONG),
    _value("matrix_rank", "", lambda x: _R.matrix_rank(_full(x)),
           lambda x: _N.matrix_rank(_full(x)), _OBLONG + _EMPTY),
    _value("matrix_rank", "lost", lambda x: _R.matrix_rank(_lost(x), rtol=1e-4),
           lambda x: _N.matrix_rank(_lost(x), rtol=1e-4), (((2, 3, 3),),)),
    _value("pinv", "lost", lambda x: _R.pinv(_lost(x), rtol=1e-4),
           lambda x: _N.pinv(_lost(x), rtol=1e-4), (((2, 3, 3),),)),
    _value("lu", "", lambda x: _of_lu(x), lambda x: x + 0, _OBLONG + _EMPTY),
    *(_value(name, "empty", lambda x, f=f: f(x), lambda x, f=g: f(x), _EMPTY)
      for name, f, g in (
          ("qr", lambda x: _R.qr(x).R, lambda x: _N.qr(x)[1]),
          ("svd", lambda x: _R.svd(x).S, lambda x: _N.svd(x)[1]),
          ("pinv", _R.pinv, _N.pinv))),
    *(_value(name, "nan", lambda x, f=f: f(_with_nan(x)), _first_alone(g), (((2, 3, 3),),))
      for name, f, g in (
          ("qr", lambda x: _R.qr(x).Q, lambda x: _N.qr(x)[0]),
          ("svdvals", _R.svdvals, _N.svdvals), ("eigvalsh", _R.eigvalsh, _N.eigvalsh),
          ("eigvals", lambda x: weft.real(_R.eigvals(x)).sum(-1),
           lambda x: _N.eigvals(x).real.sum(-1)),
          ("lu_factor", lambda x: _R.lu_factor(x).lu, _eliminated), ("pinv", _R.pinv, _N.pinv),
          ("matrix_exp", lambda x: _R.matrix_exp(x * 0.5), lambda x: _exponential(x * 0.5)))),
)  # fmt: skip


def _projector(library: ModuleType, f: Function, x: TensorOp) -> Any:
    """Return the projections onto all of the vectors, which are identities, and S beside them."""
    u, s, vh = f(x)
    return (
        library.sum(u @ u.mT, -1).sum(-1) + library.sum(vh @ vh.mT, -1).sum(-1) + library.sum(s, -1)
    )


def _of_lu(x: TensorOp) -> Any:
    p, lower, upper = _R.lu(x)
    return p @ lower @ upper


_NORMS = tuple(
    Row("linalg.matrix_norm", lambda x, o=order: _R.matrix_norm(_full(x), ord=o), _ONE, _OBLONG[:2],
        FLOATS, lambda x, o=order: _N.matrix_norm(_full(x), ord=o), str(order), twice=True,
        is_generic=False)
    for order in ("fro", 1, 2, -2, "nuc")
)  # fmt: skip

ROWS: tuple[Row, ...] = (
    *_rows(),
    *_SYSTEM_ROWS,
    *_VALUES,
    *_NORMS,
    Row("linalg.cond", lambda x: _R.cond(_full(x), 1), _ONE, _SQUARES[:2], FLOATS,
        lambda x: _N.cond(_full(x), 1), "1", is_generic=False),
    Row("linalg.vector_norm", lambda x: _R.vector_norm(x, axis=-1, ord=3), _ONE, _OBLONG[:1],
        FLOATS, lambda x: _N.vector_norm(x, axis=-1, ord=3), is_generic=False),
)  # fmt: skip

_SQUARE, _WIDE, _VECTOR = (weft.placeholder(shape) for shape in ((3, 3), (2, 3), (3,)))
_NAMED, _UNKNOWN = weft.placeholder((H, C)), weft.placeholder((weft.symbol("n"), 3))


def _refused(
    names: str, case: str, error: type[WeftError], words: str, *args: Any, **options: Any
) -> list[Refusal]:
    return [
        Refusal(f"linalg.{name}", case, partial(function, *args, **options), error, words)
        for name in names.split()
        for function in [getattr(weft.linalg, name)]
    ]


_OF_KNOWN = "qr svd svdvals lu lu_factor eigh eigvalsh eig eigvals ldl pinv matrix_exp matrix_rank"

REFUSALS: tuple[Refusal, ...] = (
    *_refused(_OF_KNOWN + " cond matrix_norm", "vector", AxesError,
              "takes matrices", _VECTOR),
    *_refused(_OF_KNOWN, "named", AxesError, "positional", _NAMED),
    *_refused(_OF_KNOWN, "unknown", AxesError, "known lengths",
              _UNKNOWN),
    *_refused("eigh eigvalsh eig eigvals ldl matrix_exp", "oblong", AxesError,
              "needs square matrices", _WIDE),
    *_refused("qr", "mode", ArgumentError, "mode must be", _SQUARE, mode="r"),
    *_refused("svd", "flag", ArgumentError, "full_matrices must", _SQUARE, full_matrices=1),
    *_refused("cond", "order", ArgumentError, "ord must be", _SQUARE, "max"),
    *_refused("matrix_norm", "order", ArgumentError, "ord must be", _SQUARE, ord="max"),
    *_refused("cond", "empty", AxesError, "have no elements", weft.placeholder((2, 0, 0))),
    *_refused("matrix_norm", "empty", AxesError, "have no elements", weft.placeholder((0, 3)),
              ord=-2),
    *_refused("solve_triangular", "oblong", AxesError, "needs square", _WIDE, _VECTOR),
    *_refused("solve_triangular", "trans", ArgumentError, "trans must be", _SQUARE, _VECTOR, 3),
    *_refused("solve_triangular", "lower", ArgumentError, "lower must", _SQUARE, _VECTOR, 0, 1),
    *_refused("lu_solve", "trans", ArgumentError, "trans must be", (_SQUARE, _VECTOR), _VECTOR, 3),
    *_refused("lu_solve", "sides", AxesError, "not broadcast", (_SQUARE, _VECTOR), _WIDE),
    *_refused("expm_multiply", "sides", AxesError, "do not fit", _SQUARE,
              weft.placeholder((4, 2))),
    *_refused("lstsq", "sides", AxesError, "cannot contract", _SQUARE,
              weft.placeholder((4, 2))),
    *_refused("vector_norm", "axis", AxesError, "out of range", _VECTOR, axis=2),
)  # fmt: skip
