"""Rows of the op table: products of vectors, matrices and tensors, and Einstein's notation."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import weft
from weft.errors import ArgumentError, AxesError, DTypeError
from weft.ir.dtypes import Array
from weft.testing.table.rows import (
    NUMBERS,
    C,
    H,
    N,
    Operand,
    Refusal,
    Row,
    Shapes,
    W,
    operands,
)

_ANY = (Operand(),)
_PAIR = (Operand(), Operand())
_ALL = (*NUMBERS, "bool")
_MAIN = ("float32", "int32")
_THREE = weft.make_axis(3, "C")

_DOTS = [
    *(
        Row("dot", weft.dot, _PAIR, (pair,), NUMBERS, np.dot, case)
        for case, pair in {
            "vectors": ((5,), (5,)),
            "matrix-vector": ((3, 4), (4,)),
            "vector-matrix": ((4,), (4, 2)),
            "matrices": ((3, 4), (4, 2)),
            "ranks-3-2": ((2, 3, 4), (4, 5)),
            "ranks-3-3": ((2, 3, 4), (5, 4, 2)),
            "scalar": ((), (3, 2)),
            "empty": ((2, 0), (0, 3)),
        }.items()
    ),
    *(
        Row("dot", lambda x, y, o=options: weft.dot(x, y, **o), _PAIR, (pair,), NUMBERS,
            lambda x, y, e=einsum: np.einsum(e, x, y), case, twice=case == "batch")
        for case, pair, options, einsum in (
            ("named", ((H, C), (C, W)), {}, "hc,cw->hw"),
            ("batch", ((H, C, N), (C, N)), {}, "hcn,cn->nh"),
            ("two-contracted", ((C, H, N), (H, C, W)), {}, "chn,hcw->nw"),
            ("reduction-axes", ((C, N), (C, N)), {"reduction_axes": N}, "cn,cn->c"),
            ("places", ((C, N), (C, N)), {"reduction_axes": 1}, "cn,cn->c"),
            ("all-axes", ((C, N), (N, C)), {"reduction_axes": (C, N)}, "cn,nc->"),
            ("no-axes", ((H, C), (C,)), {"reduction_axes": ()}, "hc,c->ch"),
            ("out-axes", ((H, C), (C, W)), {"out_axes": (W, H)}, "hc,cw->wh"),
            ("outer", ((H,), (W,)), {}, "h,w->hw"),
        )
    ),
]  # fmt: skip

_MATMULS = [
    Row("matmul", weft.matmul, _PAIR, pairs, NUMBERS, np.matmul, case, twice=case == "batched")
    for case, pairs in {
        "matrices": (((3, 4), (4, 2)),),
        "vectors": (((4,), (4,)),),
        "vector-matrix": (((4,), (4, 2)), ((4,), (2, 4, 2)), ((4,), (2, 1, 4, 2))),
        "matrix-vector": (((3, 4), (4,)), ((2, 3, 4), (4,)), ((2, 1, 3, 4), (4,))),
        "batched": (((2, 3, 4), (2, 4, 2)),),
        "batched-left": (((2, 3, 4), (4, 2)), ((2, 1, 2, 3), (3, 2)), ((2, 2, 1, 3), (1, 3, 1))),
        "batched-right": (((3, 4), (2, 4, 2)), ((1, 2, 3), (2, 3, 2)), ((2, 3), (2, 1, 3, 2))),
        "broadcast": (((2, 1, 3, 4), (3, 4, 2)),),
        "rank-5": (((2, 1, 2, 3, 2), (1, 3, 1, 2, 2)),),
        "empty": (
            ((2, 0), (0, 3)), ((0, 2), (2, 3)), ((2, 3), (3, 0)), ((0,), (0,)), ((0,), (0, 2)),
            ((2, 3, 0), (0, 2)), ((0, 2, 3), (3, 2)), ((0, 2, 3), (1, 3, 2)), ((2, 3), (0, 3, 2)),
            ((2, 1, 2, 0), (3, 0, 2)),
        ),
        "ones": (((1, 1), (1, 1)), ((1,), (1,)), ((1, 1, 1), (1,)), ((1,), (1, 1, 1))),
    }.items()
]  # fmt: skip

_EQUATIONS: dict[str, Shapes] = {
    "ij->ji": (((3, 4),), ((0, 2),)),
    "ji": (((3, 4),),),
    "ij->": (((3, 4),), ((2, 0),)),
    "kij->j": (((2, 3, 4),),),
    "->": (((),),),
    "...": (((2, 3),), ((),)),
    "...ij->j...i": (((2, 3, 4),), ((3, 4),)),
    "ii": (((3, 3),), ((0, 0),), ((1, 1),)),
    "ii->i": (((3, 3),), ((0, 0),)),
    "iji->ji": (((2, 3, 2),),),
    "iiji->j": (((2, 2, 3, 2),),),
    "ii...->...i": (((3, 3, 2),), ((2, 2),)),
    "i,i->i": (((3,), (3,)), ((1,), (3,))),
    "i,i->": (((5,), (5,)), ((1,), (5,)), ((0,), (0,))),
    "i,j->ji": (((3,), (4,)),),
    ",ij->ij": (((), (2, 3)),),
    ",->": (((), ()),),
    "ij,jk->ik": (((3, 4), (4, 2)), ((2, 0), (0, 3)), ((3, 1), (4, 2)), ((0, 2), (2, 0))),
    "ij,jk->ki": (((3, 4), (4, 2)),),
    " aB , B c ": (((3, 4), (4, 2)),),
    "ij,ij->ij": (((2, 3), (2, 3)), ((1, 3), (2, 1))),
    "ij,ij->j": (((2, 3), (2, 3)), ((1, 3), (2, 3)), ((2, 1), (1, 3))),
    "ij,kl->lj": (((2, 3), (3, 2)),),
    "bij,bkj->kbi": (((2, 3, 4), (2, 2, 4)), ((1, 3, 4), (2, 2, 4))),
    "ii,ij->j": (((3, 3), (3, 2)),),
    "...ij,...jk->...ik": (((2, 1, 2, 3), (2, 3, 2)), ((2, 3), (3, 2)), ((2, 2, 3), (3, 2))),
    "i...,j...": (((2, 3), (4, 1)), ((2, 2, 3), (4, 3))),
    "...,...": (((2, 3), (3,)),),
    "ij,jk,kl->il": (((2, 3), (3, 4), (4, 2)), ((2, 3), (3, 1), (4, 2))),
    "ij,jk,ki->": (((2, 3), (3, 2), (2, 2)),),
    "i,j,k->kji": (((2,), (3,), (2,)),),
    "i,i,i->i": (((3,), (3,), (1,)),),
    "bi,bj,ij->b": (((2, 3), (2, 4), (3, 4)),),
    "ij,j,jk,k->i": (((2, 3), (3,), (3, 2), (2,)), ((2, 3), (1,), (3, 2), (1,))),
    "ab,...bc,cd,d...->a...": (((2, 3), (2, 3, 2), (2, 2), (2, 2)),),
}  # fmt: skip
"""By equation, alternative shapes of the operands."""

_EINSUMS = [
    Row("einsum", partial(weft.einsum, equation), operands(*["any"] * len(shapes[0])), shapes,
        _MAIN, partial(np.einsum, equation), equation, twice=equation.count(",") == 2)
    for equation, shapes in _EQUATIONS.items()
]  # fmt: skip


def _tensordots() -> list[Row]:
    chosen: list[tuple[str, Shapes, Any, Any]] = [
        ("2", (((2, 3, 2), (3, 2, 4)), ((3, 2), (3, 2))), 2, 2),
        ("1", (((2, 3), (3, 2)), ((3,), (3, 2, 2)), ((2, 0), (0, 3))), 1, 1),
        ("0", (((2, 3), (2,)), ((), (3,)), ((), ())), 0, 0),
        ("pairs", (((2, 3, 2), (2, 3, 2)),), ([1, -1], [1, 0]), ([1, 2], [1, 0])),
        ("pair", (((2, 3), (2, 3)),), (0, 0), (0, 0)),
        ("no-pairs", (((2, 3), (2,)),), ([], []), ([], [])),
        ("named", (((H, C), (W, C)),), ("C", "C"), (1, 1)),
        ("other-names", (((H, C), (W, weft.make_axis(4, "D"))),), (["C"], ["D"]), (1, 1)),
    ]
    return [
        Row("tensordot", lambda x, y, a=axes: weft.tensordot(x, y, a), _PAIR, shapes, _MAIN,
            lambda x, y, a=wanted: np.tensordot(x, y, a), case)
        for case, shapes, axes, wanted in chosen
    ]  # fmt: skip


def _at_last(x: Array, y: Array) -> Any:
    return np.vecdot(np.swapaxes(x, 0, -1), np.swapaxes(y, 0, -1))


_PRODUCTS = [
    *_tensordots(),
    Row("outer", weft.outer, _PAIR, (((3,), (4,)), ((1,), (0,)), ((H,), (C,))), _ALL,
        lambda x, y: np.outer(x, y) * 1, twice=True),
    Row("inner", weft.inner, _PAIR,
        (((2, 4), (3, 4)), ((4,), (4,)), ((2, 3, 4), (4,)), ((), (3,)), ((2, 0), (3, 0))),
        NUMBERS, np.inner, twice=True),
    Row("kron", weft.kron, _PAIR,
        (((2, 3), (3, 2)), ((2,), (2, 3)), ((2, 1, 3), (2,)), ((), (3,)), ((), ()),
         ((0, 2), (2, 2))), NUMBERS, np.kron, twice=True),
    Row("vecdot", weft.vecdot, _PAIR,
        (((2, 3), (2, 3)), ((3,), (3,)), ((2, 1, 3), (4, 3)), ((3,), (2, 3)), ((2, 0), (0,)),
         ((0, 3), (3,)), ((1,), (1,))), _ALL, lambda x, y: np.sum(1 * x * y, -1), twice=True),
    Row("vecdot", lambda x, y: weft.vecdot(x, y, 0), _PAIR, (((3, 2), (3, 2)), ((3, 1, 2), (3, 2))),
        expected=_at_last, case="axis"),
    Row("vecdot", lambda x, y: weft.vecdot(x, y, C), _PAIR, (((N, C), (C, N)), ((N, C), (C, H))),
        expected=lambda x, y: np.einsum("nc,cn->n", x, y), case="named"),
    Row("vecdot", lambda x, y: weft.real(weft.vecdot(x * (1 - 2j), y * (3 + 1j))), _PAIR,
        (((2, 3), (2, 3)),), ("float32",),
        lambda x, y: np.vecdot(x * (1 - 2j), y * (3 + 1j)).real, "complex"),
    Row("cross", weft.cross, _PAIR,
        (((2, 3), (2, 3)), ((3,), (3,)), ((2, 1, 3), (4, 3)), ((3,), (2, 3)), ((0, 3), (3,)),
         ((1, 3), (0, 3)), ((N, _THREE), (_THREE,)), ((N, _THREE), (H, _THREE))),
        (*NUMBERS, "bool"), lambda x, y: np.cross(1 * x, 1 * y), twice=True),
    Row("cross", lambda x, y: weft.cross(x, y, 0), _PAIR, (((3, 2), (3, 2)), ((3, 2), (3,))),
        expected=lambda x, y: np.cross(x, y, axis=0), case="axis"),
    Row("cross", lambda x, y: weft.cross(x, y, "C"), _PAIR,
        (((_THREE, N), (N, _THREE)), ((_THREE, N), (H, _THREE))),
        expected=lambda x, y: np.cross(x, y.T, axis=0), case="named"),
    Row("multi_dot", lambda *xs: weft.multi_dot(xs), operands("any", "any", "any"),
        (((2, 3), (3, 4), (4, 2)), ((3,), (3, 4), (4, 2)), ((2, 3), (3, 4), (4,)),
         ((3,), (3, 3), (3,)), ((2, 0), (0, 2), (2, 1))),
        _MAIN, lambda *xs: np.linalg.multi_dot(xs)),
    Row("multi_dot", lambda x, y: weft.multi_dot([x, y]), _PAIR, (((2, 3), (3, 2)),), _MAIN,
        np.dot, "two"),
    Row("matmul", lambda x, y: weft.real(weft.matmul(x * (1 - 2j), y * (3 + 1j))), _PAIR,
        (((2, 3, 2), (2, 2)),), ("float32",),
        lambda x, y: np.matmul(x * (1 - 2j), y * (3 + 1j)).real, "complex"),
    Row("matmul", weft.matmul, _PAIR, (((2, 3), (3, 2)),), ("bool",),
        lambda x, y: np.matmul(x.astype("i4"), y.astype("i4")), "bool"),
    Row("matmul", lambda x, y: 2 * x @ [[1], [2], [3]] + np.ones((2, 2), "f4") @ y, _PAIR,
        (((2, 3), (2, 1)),), ("float32",),
        lambda x, y: 2 * x @ [[1], [2], [3]] + np.ones((2, 2)) @ y, "operator"),
]  # fmt: skip

_SQUARES: Shapes = (((3, 4),), ((2, 3, 3),), ((2, 1, 3, 2),), ((0, 3),), ((3, 0),), ((0, 2, 2),))


def _offset_rows() -> list[Row]:
    functions: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
        "diagonal": (weft.diagonal, np.linalg.diagonal),
        "trace": (weft.trace, lambda x, offset: np.linalg.trace(1 * x, offset=offset)),
    }
    return [
        Row(name, lambda x, f=function, o=offset: f(x, o), _ANY, _SQUARES, _ALL,
            lambda x, f=numpy, o=offset: f(x, offset=o), f"offset-{offset}")
        for name, (function, numpy) in functions.items() for offset in (0, 1, -2, 5)
    ]  # fmt: skip


_PARTS = [
    *_offset_rows(),
    Row("matrix_transpose", weft.matrix_transpose, _ANY,
        (((2, 3, 4),), ((3, 4),), ((2, 1, 0, 3),), ((N, C, H),)), _ALL, np.matrix_transpose),
    Row("matrix_transpose", lambda x: x.mT @ x, _ANY, (((2, 3, 2),),), NUMBERS,
        lambda x: np.matrix_transpose(x) @ x, "property", twice=True),
]  # fmt: skip

ROWS: tuple[Row, ...] = (*_DOTS, *_MATMULS, *_EINSUMS, *_PRODUCTS, *_PARTS)

_NUMBER = weft.placeholder(())
_VECTOR, _ROWS, _OTHER = (weft.placeholder(shape) for shape in ((3,), (2, 3), (4, 5)))
_CHANNELS = weft.placeholder((C,))
_STACK, _NAMED = weft.placeholder((2, 2, 3)), weft.placeholder((H, C))
_UNKNOWN = weft.placeholder((weft.symbol("n"), 3))


def _refusals(
    function: str, *cases: tuple[str, tuple[Any, ...], type[Any], str]
) -> tuple[Refusal, ...]:
    return tuple(
        Refusal(function, case, partial(getattr(weft, function), *arguments), error, words)
        for case, arguments, error, words in cases
    )


REFUSALS: tuple[Refusal, ...] = (
    *_refusals(
        "matmul",
        ("scalar", (_NUMBER, _ROWS), AxesError, "no scalars"),
        ("named", (_NAMED, _NAMED), AxesError, "share H, C: give the axis"),
        ("lengths", (_ROWS, _ROWS), AxesError, "cannot contract length 3"),
        ("leading", (weft.placeholder((2, 1, 3)), weft.placeholder((3, 3, 1))), AxesError,
         "do not broadcast"),
        ("text", (_ROWS, "y"), DTypeError, "not made of numbers"),
        ("nothing", (_ROWS, None), DTypeError, "not made of numbers"),
        ("unknown", (_ROWS, weft.placeholder((weft.symbol("k"), 2))), AxesError, "contract"),
    ),
    *_refusals(
        "dot",
        ("mixed", (_NAMED, _ROWS), AxesError, "named .* and positional"),
        ("lengths", (_ROWS, _OTHER), AxesError, "differ in length"),
        ("positional", (_ROWS, _VECTOR, 0), ArgumentError, "need names"),
        ("unknown-axis", (_NAMED, _NAMED, "Z"), AxesError, "dot: unknown axis 'Z'"),
        ("not-shared", (_NAMED, _CHANNELS, "H"), AxesError, "cannot be contracted"),
        ("place", (_NAMED, _NAMED, 2), AxesError, "out of range"),
    ),
    *_refusals(
        "einsum",
        ("equation", (_ROWS, _ROWS), ArgumentError, "takes an equation"),
        ("none", ("ij",), ArgumentError, "no operands"),
        ("character", ("ij,j?->i", _ROWS, _ROWS), ArgumentError, r"'\?' is.*\n.*\n {6}\^"),
        ("dots", ("i..->i", _ROWS), ArgumentError, r"'\.' is not a letter"),
        ("arrows", ("ij->i->j", _ROWS), ArgumentError, "'->' can follow"),
        ("comma", ("ij->i,j", _ROWS), ArgumentError, "',' can follow"),
        ("ellipses", ("......", _ROWS), ArgumentError, "'...' is repeated in one operand"),
        ("twice", ("ij->ii", _ROWS), ArgumentError, r"'i' is repeated in the result\n.*\n {7}\^"),
        ("count", ("ij,jk->ik", _ROWS), ArgumentError, "2 terms for 1 operands"),
        ("rank", ("ijk->i", _ROWS), AxesError, "operand 0 has rank 2, but .* 3 letters"),
        ("too-few", ("ij,j->i", _ROWS, _STACK), AxesError, r"operand 1 has rank 3.*\n.*\n {5}\^"),
        ("result", ("ij->ik", _ROWS), ArgumentError, r"'k' of the result.*\n.*\n {7}\^"),
        ("hidden", ("i...->i", _ROWS), ArgumentError, "needs an ellipsis"),
        ("lengths", ("ij,jk->ik", _ROWS, _OTHER), AxesError,
         r"'j' has length 4 in operand 1, but 3 before\n.*\n {5}\^"),
        ("diagonal", ("ii->i", weft.placeholder((1, 3))), AxesError, "'i' has length 3"),
        ("ellipsis-lengths", ("...,...", _ROWS, _OTHER), AxesError, "'...' has length"),
        ("unknown", ("ij,ik->jk", _ROWS, _UNKNOWN), AxesError, "equals only itself"),
        ("names", ("ij,ij->j", _NAMED, weft.placeholder((weft.Axis(2, "K"), C))), AxesError,
         r"'i' stands for axis K of operand 1, but for axis H before\n.*\n {5}\^"),
        ("operand", ("i->", "x"), DTypeError, "not made of numbers"),
    ),
    *_refusals(
        "tensordot",
        ("too-many", (_ROWS, _VECTOR, 2), AxesError, "cannot sum over 2 axes"),
        ("negative", (_ROWS, _VECTOR, -1), AxesError, "cannot sum over -1 axes"),
        ("lengths", (_ROWS, _OTHER, 1), AxesError, "differ in length"),
        ("kind", (_ROWS, _ROWS, "ij"), ArgumentError, "a number or two lists"),
        ("pairs", (_ROWS, _ROWS, ([0, 1], [0])), AxesError, "not pairs"),
        ("repeated", (_ROWS, _ROWS, ([0, 0], [0, 1])), AxesError, "twice"),
        ("range", (_ROWS, _ROWS, (2, 0)), AxesError, "tensordot: dimension 2"),
        ("same-name", (_NAMED, _NAMED, ("C", "C")), AxesError, "more than once"),
        ("mixed", (_NAMED, _ROWS, 0), AxesError, "mix named and positional"),
    ),
    *_refusals(
        "outer",
        ("rank", (_ROWS, _VECTOR), AxesError, "takes vectors"),
        ("same-name", (_CHANNELS, _CHANNELS), AxesError, "more than once"),
    ),
    *_refusals(
        "inner",
        ("lengths", (_VECTOR, _OTHER), AxesError, "differ in length"),
        ("named", (_NAMED, _NAMED), AxesError, "use dot"),
    ),
    *_refusals("kron", ("named", (_NAMED, _NAMED), AxesError, "positional")),
    *_refusals(
        "vecdot",
        ("lengths", (_VECTOR, weft.placeholder((1,))), AxesError, "differ in length"),
        ("leading", (_ROWS, weft.placeholder((3, 3))), AxesError, "do not broadcast"),
        ("scalar", (_NUMBER, _VECTOR), AxesError, "vecdot: dimension -1"),
        ("axis", (_VECTOR, _ROWS, 1), AxesError, "vecdot: dimension 1"),
        ("not-shared", (_NAMED, _CHANNELS, "H"), AxesError, "cannot be contracted"),
        ("mixed", (_NAMED, _ROWS), AxesError, "named"),
    ),
    *_refusals(
        "cross",
        ("lengths", (_OTHER, _OTHER), AxesError, "length 3 along axis -1"),
        ("scalar", (_NUMBER, _VECTOR), AxesError, "cross: dimension -1"),
        ("leading", (_ROWS, weft.placeholder((5, 3))), AxesError, "do not broadcast"),
        ("name", (weft.placeholder((_THREE,)), _VECTOR), AxesError, "unknown axis 'C'"),
        ("unknown", (weft.placeholder((weft.symbol("n"),)), _VECTOR), AxesError, "length 3"),
    ),
    *_refusals(
        "multi_dot",
        ("one", ([_ROWS],), ArgumentError, "list of 2"),
        ("no-list", (_ROWS,), ArgumentError, "list of 2"),
        ("rank", ([_ROWS, _VECTOR, _ROWS],), AxesError, "operand 1 must be a matrix"),
        ("lengths", ([_ROWS, _OTHER],), AxesError, "has length 4 in operand 1"),
        ("named", ([_NAMED, _NAMED],), AxesError, "positional"),
    ),
    *_refusals(
        "matrix_transpose",
        ("rank", (_VECTOR,), AxesError, "two axes or more"),
    ),
    *_refusals(
        "diagonal",
        ("rank", (_VECTOR,), AxesError, "matrices in the last two axes"),
        ("named", (_NAMED,), AxesError, "positional"),
        ("offset", (_ROWS, 1.5), ArgumentError, "offset must be a whole number, not 1.5"),
        ("unknown", (_UNKNOWN,), AxesError, "make them square"),
    ),
    *_refusals(
        "trace",
        ("rank", (_VECTOR,), AxesError, "trace: .*matrices in the last two axes"),
        ("named", (_NAMED,), AxesError, "positional"),
        ("offset", (_ROWS, "1"), ArgumentError, "offset must be a whole number"),
    ),
)  # fmt: skip
