"""Rows of the op table: reductions, norms and products of matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import weft
from weft.testing.table.rows import (
    ALL,
    CUBE,
    NAMED,
    NUMBERS,
    ONE,
    ONE_FILLED,
    REC,
    C,
    H,
    N,
    Operand,
    Refusal,
    Row,
    Shapes,
    W,
    fixed,
    operands,
)

_REDUCTIONS: dict[str, tuple[str, tuple[str, ...], Shapes, Callable[..., Any]]] = {
    "sum": ("any", ALL, ONE, np.sum),
    "prod": ("nonzero", ALL, ONE, np.prod),
    "max": ("distinct", NUMBERS, ONE_FILLED, np.max),
    "min": ("distinct", NUMBERS, ONE_FILLED, np.min),
    "mean": ("any", NUMBERS, ONE, np.mean),
    "variance": ("any", NUMBERS, ONE, np.var),
}

_KEPT_AXES: tuple[tuple[str, dict[str, Any], Shapes, dict[str, Any]], ...] = (
    ("last", {"reduction_axes": -1}, CUBE, {"axis": -1}),
    ("first", {"reduction_axes": 0}, (((2, 3, 4),), ((5,),)), {"axis": 0}),
    ("outer", {"reduction_axes": (0, 2)}, (((2, 3, 4),), ((2, 1, 3, 2, 2),)), {"axis": (0, 2)}),
    ("none", {"reduction_axes": ()}, CUBE, {"axis": ()}),
    ("keepdims", {"reduction_axes": 1, "keepdims": True}, CUBE, {"axis": 1, "keepdims": True}),
    ("out-axes", {"out_axes": (1,)}, CUBE, {"axis": (0, 2)}),
    ("batch", {}, NAMED, {"axis": (1, 2)}),
    ("recurrent", {}, (((C, REC, H),),), {"axis": (0, 2)}),
    ("by-axis", {"reduction_axes": (N, H)}, NAMED, {"axis": (0, 2)}),
    ("by-name", {"reduction_axes": "C", "keepdims": True}, NAMED, {"axis": 1, "keepdims": True}),
)
"""How axes are chosen: in weft's words, for these shapes, and in NumPy's words."""


def _reductions() -> list[Row]:
    rows = []
    for name, (domain, dtypes, shapes, function) in _REDUCTIONS.items():
        weft_function = getattr(weft, name)
        values = operands(domain)
        rows.append(Row(name, weft_function, values, shapes, dtypes, function, "all", twice=True))
        rows += [
            Row(name, lambda x, f=weft_function, o=options: f(x, **o), values, chosen, dtypes,
                lambda x, f=function, o=wanted: f(x, **o), case)
            for case, options, chosen, wanted in _KEPT_AXES
        ]  # fmt: skip
        rows.append(
            Row(name, lambda x, f=weft_function: f(x, out_axes=(H, N)), values, NAMED, dtypes,
                lambda x, f=function: f(x, axis=1).T, "out-axes-order")
        )  # fmt: skip
    return rows


def _index_rows() -> list[Row]:
    rows = []
    for name, function in (("argmax", np.argmax), ("argmin", np.argmin)):
        find = getattr(weft, name)
        chosen: list[tuple[str, Shapes, Callable[..., Any], Callable[..., Any]]] = [
            ("all", ONE_FILLED, find, function),
            ("axis", CUBE, lambda x, f=find: f(x, 1), lambda x, f=function: f(x, axis=1)),
            ("several", CUBE, lambda x, f=find: f(x, (0, 2)),
             lambda x, f=function: f(x.transpose(1, 0, 2).reshape(3, 8), axis=1)),
            ("batch", NAMED, find, lambda x, f=function: f(x.reshape(3, 8), axis=1)),
            ("out-axes", NAMED, lambda x, f=find: f(x, out_axes=(H, N)),
             lambda x, f=function: f(x, axis=1).T),
        ]  # fmt: skip
        rows += [
            Row(name, build, fixed("any"), shapes, ALL, expected, case)
            for case, shapes, build, expected in chosen
        ]
    return rows


_NORMS = [
    Row("L1_norm", weft.L1_norm, operands("distinct"), ONE, expected=lambda x: np.abs(x).sum()),
    Row("L1_norm", lambda x: weft.L1_norm(x, out_axes=(N,)), operands("distinct"), NAMED,
        expected=lambda x: np.abs(x).sum(axis=(1, 2)), case="out-axes"),
    Row("L2_norm", weft.L2_norm, operands("nonzero"), ONE_FILLED,
        expected=lambda x: np.sqrt((x * x).sum()), twice=True),
    Row("L2_norm", lambda x: weft.L2_norm(x, reduction_axes=[C, N]), operands("nonzero"), NAMED,
        expected=lambda x: np.sqrt((x * x).sum(axis=(0, 1))), case="axes"),
    Row("squared_L2", weft.squared_L2, shapes=(*ONE, *NAMED), expected=lambda x: (x * x).sum(),
        dtypes=NUMBERS),
    Row("squared_L2", lambda x: weft.squared_L2(x, out_axes=(N,)), shapes=NAMED,
        expected=lambda x: (x * x).sum(axis=(1, 2)), case="out-axes"),
    Row("max", weft.max, fixed("index"), expected=np.max, case="ties", dtypes=NUMBERS),
    Row("prod", lambda x: weft.prod(weft.where(weft.greater(x, 0.1), x, 0) * x, -1),
        operands("distinct"), (((4, 2),),), case="zeros",
        expected=lambda x: np.prod(np.where(x > 0.1, x, 0) * x, axis=-1)),
    Row("tensor_size", lambda x: x * weft.tensor_size(x), shapes=(*CUBE, ((0,),)),
        expected=lambda x: x * 24),
    Row("tensor_size", lambda x: x * weft.tensor_size(x, reduction_axes=[N]), shapes=NAMED,
        expected=lambda x: x * 3, case="axes"),
    Row("batch_size", lambda x: x / weft.batch_size(x), shapes=(*NAMED, ((C, H),)),
        expected=lambda x: x / 3),
]  # fmt: skip

_PAIR = (Operand(), Operand())

_PRODUCTS = [
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
            ("all-axes", ((C, N), (N, C)), {"reduction_axes": (C, N)}, "cn,nc->"),
            ("no-axes", ((H, C), (C,)), {"reduction_axes": ()}, "hc,c->ch"),
            ("out-axes", ((H, C), (C, W)), {"out_axes": (W, H)}, "hc,cw->wh"),
            ("outer", ((H,), (W,)), {}, "h,w->hw"),
        )
    ),
    *(
        Row("matmul", weft.matmul, _PAIR, (pair,), NUMBERS, np.matmul, case,
            twice=case == "batched")
        for case, pair in {
            "matrices": ((3, 4), (4, 2)),
            "vectors": ((4,), (4,)),
            "vector-matrix": ((4,), (4, 2)),
            "matrix-vector": ((3, 4), (4,)),
            "batched": ((2, 3, 4), (2, 4, 2)),
            "broadcast": ((2, 1, 3, 4), (3, 4, 2)),
            "rank-5": ((2, 1, 2, 3, 2), (1, 3, 1, 2, 2)),
            "empty": ((2, 0), (0, 3)),
            "ones": ((1, 1), (1, 1)),
        }.items()
    ),
]  # fmt: skip

ROWS: tuple[Row, ...] = (*_reductions(), *_index_rows(), *_NORMS, *_PRODUCTS)

REFUSALS: tuple[Refusal, ...] = ()
