"""Rows of the op table: reductions without NaN, and percentiles."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import weft
from weft.errors import ArgumentError, AxesError, DTypeError
from weft.testing.table.rows import (
    FLOATS,
    MATRIX,
    NUMBERS,
    C,
    H,
    N,
    Refusal,
    Row,
    Shapes,
    fixed,
    operands,
)

_HOLES = np.indices((3, 4)).sum(axis=0) % 3 == 0
"""Where a matrix has NaN: once or twice in a row."""

_CUBES: Shapes = (((2, 3, 2),), ((2, 1, 3),), ((N, C, H),))

_REDUCTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any], str]] = {
    "nansum": (weft.nansum, np.nansum, "any"),
    "nanprod": (weft.nanprod, np.nanprod, "nonzero"),
    "nanmean": (weft.nanmean, np.nanmean, "any"),
    "nanmax": (weft.nanmax, np.nanmax, "distinct"),
    "nanmin": (weft.nanmin, np.nanmin, "distinct"),
    "nanvar": (partial(weft.nanvar, correction=1), partial(np.nanvar, ddof=1), "any"),
    "nanstd": (weft.nanstd, np.nanstd, "any"),
    "nanmedian": (weft.nanmedian, np.nanmedian, "distinct"),
    "nanquantile": (partial(weft.nanquantile, q=0.3), partial(np.nanquantile, q=0.3), "distinct"),
    "nanpercentile": (
        partial(weft.nanpercentile, q=70), partial(np.nanpercentile, q=70), "distinct"
    ),
}  # fmt: skip
"""By name: the function, that of NumPy, and the domain of its operand."""

_INDICES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "nanargmax": (weft.nanargmax, np.nanargmax),
    "nanargmin": (weft.nanargmin, np.nanargmin),
}

_RUNNING: dict[str, tuple[Callable[..., Any], Callable[..., Any], str]] = {
    "nancumsum": (weft.nancumsum, np.nancumsum, "any"),
    "nancumprod": (weft.nancumprod, np.nancumprod, "nonzero"),
}


def _with_holes(where: Any, x: Any) -> Any:
    return where(_HOLES, np.nan, x)


_OVER_HOLES = [
    Row(name, lambda x, f=ours: f(_with_holes(weft.where, x), axis=-1) ** 2, operands(domain),
        MATRIX, FLOATS, lambda x, f=theirs: f(_with_holes(np.where, x), axis=-1) ** 2, "holes",
        twice=True)
    for name, (ours, theirs, domain) in _REDUCTIONS.items()
]  # fmt: skip

_OVER_NUMBERS = [
    Row(name, lambda x, f=ours: f(x, axis=1, keepdims=True), operands(domain), _CUBES, NUMBERS,
        lambda x, f=theirs: f(x, axis=1, keepdims=True), "numbers")
    for name, (ours, theirs, domain) in (
        *(item for item in _REDUCTIONS.items() if item[0] not in ("nansum", "nanmean", "nanvar",
                                                                  "nanmax", "nanmin")),
        ("nanvar", (weft.nanvar, np.nanvar, "any")),
        ("percentile",
         (partial(weft.percentile, q=30), partial(np.percentile, q=30), "distinct")),
    )
]  # fmt: skip

_NOTHING_LEFT = [
    *(
        Row(name, lambda x, f=ours: f(x * np.nan, axis=1), fixed("any"), (((2, 3),),),
            expected=lambda x, v=value: np.full(2, v), case="nothing-left")
        for name, ours, value in (
            ("nanprod", weft.nanprod, 1), ("nanvar", weft.nanvar, np.nan),
            ("nanstd", weft.nanstd, np.nan), ("nanmedian", weft.nanmedian, np.nan),
            ("nanargmax", weft.nanargmax, -1), ("nanargmin", weft.nanargmin, -1),
        )
    ),
    Row("nanvar", lambda x: weft.nanvar(x, -1, correction=2), fixed("any"), (((3, 2),),),
        expected=lambda x: np.full(3, np.nan), case="all-corrected"),
    Row("nanquantile", lambda x: weft.nanquantile(weft.stack([x * np.inf, x, x - x]), 0.5, 0),
        fixed("positive"), (((3,),),), expected=lambda x: x, case="infinite"),
    *(
        Row(name, lambda x, f=ours, s=sign: f(weft.stack([x * np.nan, x * s * np.inf]), 0),
            fixed("positive"), (((3,),),), expected=np.ones_like, case="infinite")
        for name, ours, sign in (("nanargmax", weft.nanargmax, -1),
                                 ("nanargmin", weft.nanargmin, 1))
    ),
]  # fmt: skip

_FOUND = [
    row
    for name, (ours, theirs) in _INDICES.items()
    for row in (
        Row(name, lambda x, f=ours: f(_with_holes(weft.where, x), axis=-1), fixed("index"), MATRIX,
            FLOATS, lambda x, f=theirs: f(_with_holes(np.where, x), axis=-1), "holes"),
        Row(name, lambda x, f=ours: f(x, (0, 1)), fixed("index"), _CUBES, NUMBERS,
            lambda x, f=theirs: f(x.reshape(-1, x.shape[-1]), axis=0), "numbers"),
    )
]  # fmt: skip

_CUMULATED = [
    row
    for name, (ours, theirs, domain) in _RUNNING.items()
    for row in (
        Row(name, lambda x, f=ours: f(_with_holes(weft.where, x), 1) ** 2, operands(domain),
            MATRIX, FLOATS, lambda x, f=theirs: f(_with_holes(np.where, x), axis=1) ** 2, "holes",
            twice=True),
        Row(name, lambda x, f=ours: f(x, 0), operands(domain), (((3, 2),), ((1,),), ((0, 2),)),
            NUMBERS, lambda x, f=theirs: f(x, axis=0), "numbers"),
    )
]  # fmt: skip

ROWS: tuple[Row, ...] = (
    *_OVER_HOLES, *_OVER_NUMBERS, *_NOTHING_LEFT, *_FOUND, *_CUMULATED
)  # fmt: skip


def _x(*axes: Any, dtype: str = "float32") -> Any:
    return weft.placeholder(axes, dtype)


_QUANTILES = ("nanquantile", "nanpercentile", "nanmedian")
_BY_NAME: dict[str, Callable[..., Any]] = {
    **{name: ours for name, (ours, _, _) in _REDUCTIONS.items()},
    **{name: ours for name, (ours, _) in _INDICES.items()},
    "percentile": partial(weft.percentile, q=30),
}

REFUSALS: tuple[Refusal, ...] = (
    *(
        Refusal(name, "axis", partial(function, _x(2, 3), axis=2), AxesError, "out of range")
        for name, function in _BY_NAME.items()
        if name not in ("nansum", "nanmean", "nanmax", "nanmin")
    ),
    *(
        Refusal(name, "empty", partial(_BY_NAME[name], _x(0)), AxesError, "at least one")
        for name in _QUANTILES
    ),
    *(
        Refusal(name, "unknown", partial(_BY_NAME[name], _x(weft.symbol("n"))), AxesError,
                "known number of elements")
        for name in _QUANTILES
    ),
    *(
        Refusal(name, "complex", partial(_BY_NAME[name], _x(2, dtype="c8")), DTypeError, "real")
        for name in ("nanvar", "nanstd", *_QUANTILES)
    ),
    *(
        Refusal(name, "no-axis", partial(getattr(weft, name), _x(2, 2)), ArgumentError,
                "needs an axis")
        for name in _RUNNING
    ),
    Refusal("percentile", "range", lambda: weft.percentile(_x(2), 101), ArgumentError, "to 100"),
    Refusal("nanpercentile", "range", lambda: weft.nanpercentile(_x(2), -1), ArgumentError,
            "to 100"),
    Refusal("nanquantile", "range", lambda: weft.nanquantile(_x(2), 1.5), ArgumentError, "to 1"),
    Refusal("nanvar", "of", lambda: weft.nanvar(_x(2), correction="1"), ArgumentError, "not '1'"),
    Refusal("nanstd", "of", lambda: weft.nanstd(_x(2), correction=None), ArgumentError, "not None"),
    Refusal("nanargmax", "nothing", lambda: weft.nanargmax(_x(0)), AxesError, "no elements"),
)  # fmt: skip
