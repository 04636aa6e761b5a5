"""Rows of the op table: running sums, products and extrema."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import weft
from weft.errors import ArgumentError, AxesError, DTypeError
from weft.ir.dtypes import Array
from weft.ir.tensor import TensorOp
from weft.testing.table.rows import (
    ALL,
    CUBE,
    NAMED,
    NUMBERS,
    C,
    N,
    Operand,
    Refusal,
    Row,
    Shapes,
    W,
    fixed,
    operands,
)


def _least(x: Array, axis: int) -> Any:
    low = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    return np.max(x, axis=axis, initial=low)


def _greatest(x: Array, axis: int) -> Any:
    high = np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).max
    return np.min(x, axis=axis, initial=high)


def _log_sum_exp(x: Array, axis: int) -> Any:
    return np.log(np.sum(np.exp(x), axis=axis))


_KINDS: dict[str, tuple[Callable[..., Any], Callable[..., Any], str, tuple[str, ...]]] = {
    "cumsum": (weft.cumsum, np.sum, "any", ALL),
    "cumprod": (weft.cumprod, np.prod, "nonzero", ALL),
    "cummax": (weft.cummax, _least, "distinct", NUMBERS),
    "cummin": (weft.cummin, _greatest, "distinct", NUMBERS),
    "logcumsumexp": (weft.logcumsumexp, _log_sum_exp, "any", NUMBERS),
}
"""By name: the function, its NumPy reduction, and its operand."""

_LINES: Shapes = (((6,),), ((1,),), ((0,),), ((W,),))

_OPTIONS: tuple[tuple[str, Shapes, dict[str, Any]], ...] = (
    ("line", _LINES, {}),
    ("line-from-end", _LINES, {"exclusive": True, "reverse": True}),
    ("first", (((3, 4),), ((0, 2),), ((2, 0),)), {"axis": 0}),
    ("middle", (*CUBE, ((2, 0, 3),), ((2, 2, 1, 2, 3),)), {"axis": 1, "exclusive": True}),
    ("last", (*CUBE, ((5,),)), {"axis": -1, "reverse": True}),
    ("named", NAMED, {"axis": "C", "exclusive": True, "reverse": True}),
)


def _running(
    combine: Callable[..., Any],
    x: Array,
    axis: Any = 0,
    exclusive: bool = False,
    reverse: bool = False,
) -> Any:
    """Reduce all elements up to each one, separately for each."""
    rows = np.moveaxis(x, 1 if axis == "C" else axis, 0)[:: -1 if reverse else 1]
    parts = [combine(rows[: k + (not exclusive)], axis=0) for k in range(len(rows))]
    return np.moveaxis(np.stack(parts)[:: -1 if reverse else 1], 0, 1 if axis == "C" else axis)


def _slopes(compare: Callable[[Any, Any], bool], x: Array) -> Any:
    """Return the gradient of running extrema weighted with powers of 2; ties go to the first."""
    slopes = np.zeros(len(x))
    best = 0
    for k, value in enumerate(x):
        best = k if compare(value, x[best]) else best
        slopes[best] += 2.0**k
    return slopes


def _slope(function: Callable[..., Any], x: TensorOp) -> Any:
    weights = weft.constant(2.0 ** np.arange(6))
    return weft.deriv(function(x), x, error=weft.cast(weights, x.dtype))


_MASK = np.array([True, False, True, True, False, True])


def _holes(where: Any, x: Any, value: float) -> Any:
    """Return six elements with some, including the first, replaced by a value."""
    return where(_MASK, x, value) if value == 0 else where(_MASK, value, x)


def _rest(x: Any, reverse: bool) -> Any:
    """Return all elements but the first, or in reverse all but the last."""
    return x[:-1] if reverse else x[1:]


def _with_initial(function: Callable[..., Any], x: Array, reverse: bool) -> Any:
    """Return a running reduction of rows with that of nothing beside it."""
    start = function(x[:, :0], axis=1, keepdims=True)
    parts = start, _running(function, x, 1, reverse=reverse)
    return np.concatenate(parts[::-1] if reverse else parts, 1)


def _operands(name: str, domain: str, options: dict[str, Any]) -> tuple[Operand, ...]:
    """Return an operand, without a gradient if an exclusive result starts with an infinity."""
    is_finite = name in ("cumsum", "cumprod") or "exclusive" not in options
    return operands(domain) if is_finite else fixed(domain)


_ROWS_OF_KINDS = [
    Row(name, lambda x, f=ours, o=options: f(x, **o), _operands(name, domain, options), shapes,
        dtypes, lambda x, f=theirs, o=options: _running(f, x, **o), case,
        twice=case in ("line", "middle"), is_special="line" in case)
    for name, (ours, theirs, domain, dtypes) in _KINDS.items()
    for case, shapes, options in _OPTIONS
]  # fmt: skip

_AT_EDGES = [
    *(
        Row("cumprod", lambda x, r=reverse: weft.cumprod(_holes(weft.where, x, 0), reverse=r),
            operands("distinct"), _LINES[:1], case=f"zeros-{reverse}", twice=True,
            expected=lambda x, r=reverse: _running(np.prod, _holes(np.where, x, 0), reverse=r))
        for reverse in (False, True)
    ),
    *(
        Row(name, lambda x, f=ours, r=reverse: _rest(f(x, 0, True, r), r),
            operands(domain), _LINES[:1], case=f"exclusive-{reverse}", twice=True,
            expected=lambda x, f=theirs, r=reverse: _running(f, _rest(x, not r), reverse=r))
        for name, (ours, theirs, domain, _) in _KINDS.items()
        for reverse in (False, True)
    ),
    *(
        Row(name, lambda x, f=ours, r=reverse: f(x, exclusive=True, reverse=r), fixed("index"),
            _LINES, NUMBERS, lambda x, f=theirs, r=reverse: _running(f, x, 0, True, r),
            f"ties-{reverse}")
        for name, (ours, theirs, _, _) in _KINDS.items()
        for reverse in (False, True)
    ),
    *(
        Row(name, lambda x, f=ours: _slope(f, x), fixed("index"), _LINES[:1],
            expected=lambda x, f=compare: _slopes(f, x), case="slope-at-ties", is_generic=False)
        for name, ours, compare in (
            ("cummax", weft.cummax, np.greater), ("cummin", weft.cummin, np.less)
        )
    ),
    *(
        Row(name, lambda x, f=ours, r=reverse: f(x, 1, reverse=r, dtype="float64",
                                                  include_initial=True),
            operands("nonzero"), (((2, 3),), ((2, 0),)), case=f"initial-{reverse}",
            expected=lambda x, f=theirs, r=reverse: _with_initial(f, x.astype(np.float64), r))
        for name, (ours, theirs, _, _) in list(_KINDS.items())[:2]
        for reverse in (False, True)
    ),
    Row("cummax", lambda x: _slope(weft.cummax, _holes(weft.where, x, np.nan)), fixed("distinct"),
        _LINES[:1], case="slope-at-nan", is_generic=False),
    Row("logcumsumexp", lambda x: weft.logcumsumexp(_holes(weft.where, x, -np.inf))[1:],
        operands("distinct"), _LINES[:1], case="minus-infinity", twice=True,
        expected=lambda x: _running(_log_sum_exp, _holes(np.where, x, -np.inf))[1:]),
    Row("logcumsumexp", lambda x: weft.logcumsumexp(x * 1000, 1), operands("distinct"),
        (((3, 4),),), case="large", is_generic=False,
        expected=lambda x: _running(lambda part, axis: np.max(part, axis), x * 1000, 1)),
]  # fmt: skip

ROWS: tuple[Row, ...] = (*_ROWS_OF_KINDS, *_AT_EDGES)


def _x(*axes: Any, dtype: str = "float32") -> Any:
    return weft.placeholder(axes, dtype)


REFUSALS: tuple[Refusal, ...] = tuple(
    Refusal(name, case, partial(ours, x, axis), error, words)
    for name, (ours, _, _, _) in _KINDS.items()
    for case, x, axis, error, words in (
        ("no-axis", _x(2, 3), None, ArgumentError, "needs an axis"),
        ("scalar", _x(), 0, AxesError, "out of range"),
        ("far", _x(2, 3), 2, AxesError, f"{name}: dimension 2 is out of range"),
        ("name", _x(N, C), "H", AxesError, "unknown axis 'H'"),
        ("several", _x(2, 3), (0, 1), AxesError, "unknown axis"),
        ("order", _x(2, dtype="c8"), 0, DTypeError, "complex64"),
    )
    if case != "order" or ours not in (weft.cumsum, weft.cumprod)
)
