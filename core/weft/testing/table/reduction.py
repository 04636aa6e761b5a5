"""Rows of the op table: reductions, norms, quantiles."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import weft
from weft.errors import ArgumentError, AxesError, DTypeError, WeftError
from weft.ir.dtypes import Array
from weft.testing.table.rows import (
    ALL,
    CUBE,
    FLOATS,
    MATRIX,
    NAMED,
    NUMBERS,
    ONE,
    ONE_FILLED,
    REC,
    C,
    H,
    N,
    Refusal,
    Row,
    Shapes,
    fixed,
    operands,
)


def _log_sum_exp(x: Array, **along: Any) -> Any:
    return np.log(np.sum(np.exp(x), **along))


_REDUCTIONS: dict[str, tuple[str, tuple[str, ...], Shapes, Callable[..., Any]]] = {
    "sum": ("any", ALL, ONE, np.sum),
    "prod": ("nonzero", ALL, ONE, np.prod),
    "max": ("distinct", NUMBERS, ONE_FILLED, np.max),
    "min": ("distinct", NUMBERS, ONE_FILLED, np.min),
    "mean": ("any", NUMBERS, ONE, np.mean),
    "variance": ("any", NUMBERS, ONE, np.var),
    "std": ("any", NUMBERS, ONE_FILLED, np.std),
    "logsumexp": ("any", NUMBERS, ONE, _log_sum_exp),
    "median": ("distinct", NUMBERS, ONE_FILLED, np.median),
    "any": ("index", ALL, ONE, np.any),
    "all": ("index", ALL, ONE, np.all),
    "count_nonzero": ("index", ALL, ONE, np.count_nonzero),
}

_KEPT_AXES: tuple[tuple[str, dict[str, Any], Shapes, dict[str, Any]], ...] = (
    ("last", {"reduction_axes": -1}, CUBE, {"axis": -1}),
    ("first", {"reduction_axes": 0}, (((2, 3, 4),), ((5,),)), {"axis": 0}),
    ("outer", {"reduction_axes": (0, 2)}, (((2, 3, 4),), ((2, 1, 3, 2, 2),)), {"axis": (0, 2)}),
    ("none", {"reduction_axes": ()}, CUBE, {"axis": ()}),
    ("axis", {"axis": 1}, CUBE, {"axis": 1}),
    ("keepdims", {"reduction_axes": 1, "keepdims": True}, CUBE, {"axis": 1, "keepdims": True}),
    ("out-axes", {"out_axes": (1,)}, CUBE, {"axis": (0, 2)}),
    ("batch", {}, NAMED, {"axis": (1, 2)}),
    ("recurrent", {}, (((C, REC, H),),), {"axis": (0, 2)}),
    ("by-axis", {"reduction_axes": (N, H)}, NAMED, {"axis": (0, 2)}),
    ("by-name", {"reduction_axes": "C", "keepdims": True}, NAMED, {"axis": 1, "keepdims": True}),
)
"""Selections of axes: the arguments in weft, the shapes, and the axes in NumPy."""


def _reductions() -> list[Row]:
    rows = []
    for name, (domain, dtypes, shapes, function) in _REDUCTIONS.items():
        weft_function = getattr(weft, name)
        values = fixed(domain) if domain == "index" else operands(domain)
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
            ("keepdims", CUBE, lambda x, f=find: f(x, axis=-1, keepdims=True),
             lambda x, f=function: f(x, axis=-1, keepdims=True)),
            ("all-keepdims", (*CUBE, *NAMED), lambda x, f=find: f(x, keepdims=True),
             lambda x, f=function: f(x, keepdims=True)),
            ("none", (*CUBE, *NAMED), lambda x, f=find: f(x, ()), lambda x: np.zeros(x.shape)),
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

_ORDERS: tuple[tuple[str, float, str], ...] = (
    ("euclidean", 2, "nonzero"),
    ("cubic", 3, "nonzero"),
    ("root", 0.5, "nonzero"),
    ("harmonic", -1, "nonzero"),
    ("sum", 1, "nonzero"),
    ("largest", np.inf, "distinct"),
    ("smallest", -np.inf, "distinct"),
)


def _norm(x: Array, order: float, **along: Any) -> Any:
    if np.isinf(order):
        return (np.max if order > 0 else np.min)(np.abs(x), **along)
    return np.sum(np.abs(x) ** float(order), **along) ** (1 / order)


_GENERAL_NORMS = [
    *(
        Row("norm", lambda x, p=order: weft.norm(x, p, -1), operands(domain), (((3, 4),), ((1,),)),
            NUMBERS, lambda x, p=order: _norm(x, p, axis=-1), case, twice=True)
        for case, order, domain in _ORDERS
    ),
    Row("norm", weft.norm, operands("nonzero"), (*ONE, *NAMED), expected=lambda x: _norm(x, 2),
        case="all"),
    Row("norm", lambda x: weft.norm(x, 0, keepdims=True), fixed("index"), ONE, ALL,
        lambda x: np.sum(x != 0, keepdims=True), "count"),
    Row("norm", lambda x: weft.norm(x, "fro", (0, 2)), operands("nonzero"),
        expected=lambda x: _norm(x, 2, axis=(0, 2)), case="frobenius"),
    Row("norm", lambda x: weft.norm(x * 1e30, 3, "C", keepdims=True), fixed("nonzero"), NAMED,
        expected=lambda x: _norm(x.astype(np.float64), 3, axis=1, keepdims=True) * 1e30,
        case="large", is_generic=False),
    Row("norm", lambda x: weft.norm(x * np.inf, 2, -1), fixed("nonzero"), MATRIX,
        expected=lambda x: np.full(3, np.inf), case="infinite"),
    *(
        Row("norm", lambda x, p=order: weft.deriv(weft.norm(x * 0, p), x), fixed("nonzero"), MATRIX,
            expected=np.zeros_like, case=f"{case}-slope-at-0")
        for case, order, _ in _ORDERS
    ),
    Row("std", lambda x: weft.deriv(weft.std(x * 0), x), fixed("any"), MATRIX,
        expected=np.zeros_like, case="slope-at-0"),
]  # fmt: skip


def _holes(where: Any, x: Any, value: float) -> Any:
    """Return x with elements above 0.5, and the first row, replaced by a value."""
    row = np.arange(3).reshape(3, 1) == 0
    return where((x > 0.5) | row, value, x)


_WITH_HOLES: tuple[tuple[Callable[..., Any], Callable[..., Any], float], ...] = (
    (weft.nansum, np.nansum, np.nan),
    (weft.nanmean, np.nanmean, np.nan),
    (weft.nanmax, np.nanmax, np.nan),
    (weft.nanmin, np.nanmin, np.nan),
    (weft.median, np.median, np.nan),
    (weft.max, np.max, np.nan),
    (weft.any, np.any, np.nan),
    (weft.logsumexp, _log_sum_exp, -np.inf),
    (weft.logsumexp, _log_sum_exp, np.inf),
    (weft.logsumexp, _log_sum_exp, np.nan),
)

_FAR = [
    *(
        Row(ours.__name__, lambda x, f=ours, v=value: f(_holes(weft.where, x, v), -1),
            fixed("any"), MATRIX, FLOATS,
            lambda x, f=theirs, v=value: _quiet(f, _holes(np.where, x, v), axis=-1),
            f"with-{value}")
        for ours, theirs, value in _WITH_HOLES
    ),
    *(
        Row(ours.__name__, lambda x, f=ours: f(x, axis=1, keepdims=True), operands(domain),
            dtypes=NUMBERS, expected=lambda x, f=theirs: f(x, axis=1, keepdims=True))
        for ours, domain, theirs in (
            (weft.nansum, "any", np.sum), (weft.nanmean, "any", np.mean),
            (weft.nanmax, "distinct", np.max), (weft.nanmin, "distinct", np.min),
        )
    ),
    Row("nanmean", lambda x: weft.nanmean(_holes(weft.where, x, np.nan)[1:], -1), operands("any"),
        MATRIX, expected=lambda x: np.nanmean(_holes(np.where, x, np.nan)[1:], axis=-1),
        case="slope"),
    Row("logsumexp", lambda x: weft.maximum(weft.logsumexp(_holes(weft.where, x, -np.inf), -1), -9),
        operands("distinct"), MATRIX, case="slope-at-minus-infinity", twice=True,
        expected=lambda x: np.maximum(_log_sum_exp(_holes(np.where, x, -np.inf), axis=-1), -9)),
    Row("logsumexp", lambda x: weft.logsumexp(x * 1000, -1), operands("distinct"), MATRIX,
        expected=lambda x: np.max(x * 1000, axis=-1), case="large", is_generic=False),
]  # fmt: skip


def _quiet(function: Callable[..., Any], *args: Array, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*args, **options)


_DIVIDED = [
    *(
        Row(ours.__name__, lambda x, f=ours, c=correction: f(x, -1, correction=c), dtypes=NUMBERS,
            expected=lambda x, f=theirs, c=correction: f(x, axis=-1, ddof=c),
            case=f"correction-{correction}", twice=correction == 1)
        for ours, theirs in ((weft.variance, np.var), (weft.std, np.std))
        for correction in (1, 2.5)
    ),
    Row("variance", lambda x: weft.var(x, -1, correction=1), fixed("any"), (((3, 1),),),
        expected=lambda x: np.full(3, np.nan), case="nothing-left"),
    *(
        Row("quantile", lambda x, q=q: weft.quantile(x, q, (0, 2)), operands("distinct"),
            (((2, 3, 4),), ((2, 1, 1),)), NUMBERS,
            lambda x, q=q: np.quantile(x, q, axis=(0, 2)), f"{q}")
        for q in (0, 0.3, 0.5, 1)
    ),
    Row("quantile", lambda x: weft.quantile(x, 0.25, "C", keepdims=True), operands("distinct"),
        NAMED, expected=lambda x: np.quantile(x, 0.25, axis=1, keepdims=True), case="named"),
]  # fmt: skip

ROWS: tuple[Row, ...] = (
    *_reductions(), *_index_rows(), *_NORMS, *_GENERAL_NORMS, *_FAR, *_DIVIDED
)  # fmt: skip

_OVER_AXES = (*_REDUCTIONS, "argmax", "argmin", "norm", "L1_norm", "L2_norm", "squared_L2",
              "nansum", "nanmean", "nanmax", "nanmin", "tensor_size")  # fmt: skip


def _x(*axes: Any, dtype: str = "float32") -> Any:
    return weft.placeholder(axes, dtype)


def _refusal(case: str, build: Callable[[], Any], error: type[WeftError], words: str) -> Refusal:
    return Refusal(case.partition("-")[0], case.partition("-")[2], build, error, words)


REFUSALS: tuple[Refusal, ...] = (
    *(
        Refusal(name, case, partial(getattr(weft, name), _x(2, 3), axis=axis), AxesError, words)
        for name in _OVER_AXES
        for case, axis, words in (
            ("far", 2, "dimension 2 is out of range"),
            ("twice", (1, -1), "twice"),
            ("fraction", 0.5, "unknown axis 0.5"),
        )
    ),
    *(
        _refusal(*case)
        for case in (
            ("sum-unknown-name", lambda: weft.sum(_x(N, C), "H"), AxesError, "unknown axis 'H'"),
            ("sum-both", lambda: weft.sum(_x(2), 0, (0,)), ArgumentError, "not both"),
            ("sum-nothing", lambda: weft.sum(None), DTypeError, "not made of numbers"),
            ("batch_size-text", lambda: weft.batch_size("N"), DTypeError, "not"),
            ("max-empty", lambda: weft.max(_x(2, 0)), AxesError, "no elements"),
            ("max-complex", lambda: weft.max(_x(2, dtype="c8")), DTypeError, "no order"),
            ("argmin-empty", lambda: weft.argmin(_x(0, 2), 0), AxesError, "no elements"),
            ("median-empty", lambda: weft.median(_x(0)), AxesError, "no elements"),
            ("median-complex", lambda: weft.median(_x(2, dtype="c8")), DTypeError, "complex"),
            ("quantile-share", lambda: weft.quantile(_x(2), 1.5), ArgumentError, "from 0 to 1"),
            ("quantile-list", lambda: weft.quantile(_x(2), [0.5]), ArgumentError, "a number from"),
            ("quantile-axis", lambda: weft.quantile(_x(2), 0.5, 1), AxesError, "out of range"),
            ("norm-order", lambda: weft.norm(_x(2), "nuc"), ArgumentError, "or 'fro', not 'nuc'"),
            ("norm-no-order", lambda: weft.norm(_x(2), None), ArgumentError, "not None"),
            ("norm-nan", lambda: weft.norm(_x(2), np.nan), ArgumentError, "not nan"),
            ("norm-vector", lambda: weft.norm(_x(2), "fro"), ArgumentError, "two axes"),
            ("norm-empty", lambda: weft.norm(_x(0), np.inf), AxesError, "no elements"),
            ("variance-of", lambda: weft.var(_x(2), correction="1"), ArgumentError, "not '1'"),
            ("variance-complex", lambda: weft.var(_x(2, dtype="c8")), DTypeError, "complex"),
            ("std-of", lambda: weft.std(_x(2), correction=None), ArgumentError, "not None"),
        )
    ),
)  # fmt: skip
