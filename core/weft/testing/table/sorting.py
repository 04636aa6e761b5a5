"""Rows of the op table: sorting, searching, unique values, nonzero positions, histograms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import weft
from weft.errors import ArgumentError, AxesError, DTypeError, WeftError
from weft.ir.dtypes import Array
from weft.testing.table.rows import (
    ALL,
    CUBE,
    FIXED,
    MATRIX,
    NAMED,
    NUMBERS,
    C,
    H,
    N,
    Operand,
    Refusal,
    Row,
    Shapes,
    fixed,
    operands,
)

_LINES: Shapes = (
    ((6,),), ((3, 4),), ((1,),), ((0,),), ((2, 0, 3),), ((3, 1),), ((2, 2, 1, 2, 3),), ((H, C),)
)  # fmt: skip

_INDEX = Operand("index", dtype="int32", differentiable=False)


def _ordered(x: Array, axis: int = -1, descending: bool = False) -> Any:
    """Return the sorting indices; descending order sorts the negatives."""
    wide = x.astype(np.float64)
    return np.argsort(-wide if descending else wide, axis=axis, kind="stable")


def _sorted(x: Array, axis: int = -1, descending: bool = False) -> Any:
    return np.take_along_axis(x, _ordered(x, axis, descending), axis)


_ORDERS: tuple[tuple[str, Shapes, dict[str, Any], int], ...] = (
    ("ascending", _LINES, {}, -1),
    ("descending", _LINES, {"descending": True}, -1),
    ("first", (*MATRIX, ((0, 2),)), {"axis": 0}, 0),
    ("middle", CUBE, {"axis": 1, "descending": True}, 1),
    ("named", NAMED, {"axis": "C"}, 1),
)

_SORTED = [
    row
    for case, shapes, options, axis in _ORDERS
    for is_descending in [options.get("descending", False)]
    for row in (
        Row("argsort", lambda x, o=options: weft.argsort(x, **o), fixed("index"), shapes, ALL,
            lambda x, a=axis, d=is_descending: _ordered(x, a, d), case,
            is_special=axis == -1),
        Row("sort", lambda x, o=options: weft.sort(x, **o), operands("distinct"), shapes, ALL,
            lambda x, a=axis, d=is_descending: _sorted(x, a, d), case, twice=True,
            is_special=axis == -1),
    )
]  # fmt: skip


def _holes(where: Any, x: Any) -> Any:
    """Return six elements with two replaced by NaN."""
    return where(np.array([False, True, False, True, False, False]), np.nan, x)


_WITH_NAN = [
    Row(ours.__name__, lambda x, f=ours, d=descending: f(_holes(weft.where, x), 0, d),
        fixed("distinct"), _LINES[:1],
        expected=lambda x, f=theirs: f(_holes(np.where, x)), case=f"nan-{descending}")
    for ours, descending, theirs in (
        (weft.sort, False, np.sort),
        (weft.sort, True, lambda x: np.sort(x)[::-1]),
        (weft.argsort, False, np.argsort),
        (weft.argsort, True, lambda x: np.array([1, 3, *_ordered(np.where(x == x, x, -9))[:1:-1]])),
    )
]  # fmt: skip

_LARGEST = [
    row
    for case, shapes, k, options, axis in (
        ("last", (((3, 4),), ((5,),)), 2, {}, -1),
        ("smallest", (((3, 4),), ((5,),)), 3, {"largest": False}, -1),
        ("first", CUBE, 2, {"axis": 0}, 0),
        ("named", NAMED, 3, {"axis": "C", "largest": False}, 1),
        ("none", CUBE, 0, {"axis": 1}, 1),
    )
    for is_largest in [options.get("largest", True)]
    for row in (
        Row("topk", lambda x, k=k, o=options: weft.topk(x, k, **o).values, operands("distinct"),
            shapes, NUMBERS, lambda x, k=k, a=axis, d=is_largest: np.take(
                _sorted(x, a, d), range(k), a
            ), f"values-{case}", twice=True),
        Row("topk", lambda x, k=k, o=options: weft.topk(x, k, **o).indices, fixed("index"),
            shapes, ALL, lambda x, k=k, a=axis, d=is_largest: np.take(
                _ordered(x, a, d), range(k), a
            ), f"indices-{case}"),
    )
]  # fmt: skip


def _mode(x: Array) -> Any:
    """Return the most frequent element along the last axis, and where it occurs last."""
    counts = np.sum(x[..., :, None] == x[..., None, :], axis=-1)
    order = np.lexsort((-np.arange(x.shape[-1]) + 0 * x, x, -counts), axis=-1)
    return np.take_along_axis(x, order, -1)[..., 0], order[..., 0]


_NTH = [
    *(
        row
        for case, shapes, k, axis in (
            ("last", (((3, 4),), ((4,),)), 2, -1), ("first", CUBE, 2, 0), ("named", NAMED, 3, "C")
        )
        for at in [1 if axis == "C" else axis]
        for row in (
            Row("kthvalue", lambda x, k=k, a=axis: weft.kthvalue(x, k, a).values,
                operands("distinct"), shapes, NUMBERS,
                lambda x, k=k, a=at: np.take(_sorted(x, a), k - 1, a), f"values-{case}",
                twice=True),
            Row("kthvalue", lambda x, k=k, a=axis: weft.kthvalue(x, k, a, True).indices,
                fixed("index"), shapes, ALL,
                lambda x, k=k, a=at: np.take(_ordered(x, a), [k - 1], a), f"indices-{case}"),
        )
    ),
    Row("kthvalue", lambda x: weft.kthvalue(_holes(weft.where, x), 5).values * 0, fixed("any"),
        _LINES[:1], expected=lambda x: np.nan, case="nan"),
    Row("mode", lambda x: weft.mode(x).values, fixed("index"), (((3, 9),), ((1,),), ((2, 1),)),
        ALL, lambda x: _mode(x)[0], "values"),
    Row("mode", lambda x: weft.mode(x).indices, fixed("index"), (((2, 2, 7),), ((H, C),)), ALL,
        lambda x: _mode(x)[1], "indices"),
    Row("mode", lambda x: weft.square(weft.mode(x, 0, True).values), operands("distinct"),
        (((3, 2),), ((1, 2),)), expected=lambda x: np.min(x, 0, keepdims=True) ** 2, case="slope",
        twice=True),
    Row("mode", lambda x: weft.mode(_holes(weft.where, x)).indices, fixed("distinct"), _LINES[:1],
        expected=lambda x: 3, case="nan"),
]  # fmt: skip

_PAIRS: Shapes = (
    ((7,), (3, 4)), ((8,), (5,)), ((1,), ()), ((0,), (3,)), ((5,), (0,)), ((4,), (N, C))
)  # fmt: skip

_SEARCHED = [
    *(
        Row("searchsorted", lambda x, y, s=side: weft.searchsorted(weft.sort(x), y, s),
            fixed("index", "index"), _PAIRS, ALL,
            lambda x, y, s=side: np.searchsorted(np.sort(x), y, s), side, is_special=True)
        for side in ("left", "right")
    ),
    *(
        Row("searchsorted", lambda x, y, s=side: weft.searchsorted(
                weft.sort(_holes(weft.where, x)), _holes(weft.where, y), s
            ), fixed("any", "any"), (((6,), (6,)),),
            expected=lambda x, y, s=side: np.searchsorted(
                np.sort(_holes(np.where, x)), _holes(np.where, y), s
            ), case=f"nan-{side}")
        for side in ("left", "right")
    ),
    Row("isin", lambda x, y: weft.isin(x, y, invert=True), fixed("index", "index"), _PAIRS, ALL,
        lambda x, y: np.isin(x, y, invert=True), "invert"),
    Row("searchsorted", lambda x, y: weft.searchsorted(x, y, sorter=weft.argsort(x)),
        fixed("any", "any"), (((5,), (3,)),), NUMBERS,
        lambda x, y: np.searchsorted(x, y, sorter=np.argsort(x)), "sorter"),
    *(
        Row("searchsorted", lambda x, y, s=side: weft.searchsorted(weft.sort(x), y, s),
            fixed("index", "index"),
            (((3, 5), (3, 4)), ((2, 2, 1), (2, 2, 3)), ((2, 0), (2, 3)), ((0, 3), (0, 2)),
             ((N, C), (H, N))), ALL,
            lambda x, y, s=side: np.stack(
                [np.searchsorted(*row, s) for row in zip(np.sort(x), y, strict=True)]
            ), f"rows-{side}")
        for side in ("left", "right")
    ),
    Row("searchsorted",
        lambda x, y: weft.searchsorted(x, y, sorter=weft.argsort(x, 0), axis=0),
        fixed("index", "index"), (((5, 3), (4, 3)),), NUMBERS,
        lambda x, y: np.stack(
            [np.searchsorted(np.sort(a), b) for a, b in zip(x.T, y.T, strict=True)], axis=1
        ), "rows-sorter"),
    Row("isin", weft.isin, fixed("index", "index"), (*_PAIRS, ((3, 4), (2, 2))), ALL,
        lambda x, y: np.isin(x, y), is_special=True),
]  # fmt: skip


def _filled(values: Array, size: int, fill: Any = 0, axis: int = -1) -> Any:
    """Return the first elements, padded to a size along an axis."""
    values = np.moveaxis(np.asarray(values), axis, -1)[..., :size]
    widths = [(0, 0)] * (values.ndim - 1) + [(0, size - values.shape[-1])]
    return np.moveaxis(np.pad(values, widths, constant_values=fill), -1, axis)


def _distinct(x: Array, size: int, axis: int | None = None) -> list[Any]:
    values, inverse, counts = np.unique(x, return_inverse=True, return_counts=True, axis=axis)
    return [_filled(values, size, 3, axis or 0), inverse, _filled(counts, size), len(counts)]


_ANY_SHAPE: Shapes = (((3, 4),), ((5,),), ((1,),), ((0,),), ((2, 0, 3),), ((H, C),))

_SELECTED = [
    *(
        Row("unique", lambda x, p=part, s=size: weft.unique(x, s, 3)[p], fixed("index"),
            (*_ANY_SHAPE, ((),)), ALL, lambda x, p=part, s=size: _distinct(x, s)[p],
            f"{weft.unique(0, 1)._fields[part]}-{size}", is_special=True)
        for part in range(4)
        for size in (9, 3)
    ),
    *(
        Row("unique", lambda x, s=size: weft.unique(x, s).values, operands("distinct"), _LINES[:1],
            expected=lambda x, s=size: _filled(np.sort(x), s), case=f"slope-{size}", twice=True)
        for size in (9, 3)
    ),
    *(
        Row("unique", lambda x, p=part: weft.unique(weft.clip(x, 1, 2), 7, 3, 1)[p],
            fixed("index"), (((2, 9, 3),), ((2, 5),), ((3, 0),), ((1, 1),), ((H, C),)),
            NUMBERS, lambda x, p=part: _distinct(np.clip(x, 1, 2), 7, 1)[p],
            f"axis-{weft.unique(0, 1)._fields[part]}")
        for part in range(3)
    ),
    Row("unique", lambda x: weft.unique(x, 2, axis=1).values, operands("distinct"), (((3, 4),),),
        expected=lambda x: x[:, np.lexsort(x[::-1])][:, :2], case="axis-slope", twice=True),
    *(
        Row("nonzero", lambda x, s=size: weft.nonzero(x, s, -1).indices, fixed("index"),
            _ANY_SHAPE, ALL, lambda x, s=size: _filled(np.stack(np.nonzero(x)), s, -1),
            f"indices-{size}")
        for size in (15, 4, 0)
    ),
    Row("nonzero", lambda x: weft.nonzero(x, 2).number, fixed("index"), _ANY_SHAPE, ALL,
        np.count_nonzero, "number"),
    *(
        Row("masked_select", lambda x, y, s=size: weft.masked_select(x, y > 1, s, 7).values,
            (Operand("any"), _INDEX), (((3, 4), (3, 4)), ((3, 4), (4,)), ((C, H), (H,))), NUMBERS,
            lambda x, y, s=size: _filled(x[y > 1], s, 7), f"values-{size}", twice=True)
        for size in (14, 3)
    ),
    Row("masked_select", lambda x, y: weft.masked_select(x, y, 3).number, fixed("any", "index"),
        (((3, 4), (4,)),), NUMBERS, lambda x, y: 3 * np.count_nonzero(y), "number"),
]  # fmt: skip


def _counted(x: Array, length: int, weights: Array | None = None) -> Any:
    places = [np.ones_like(x) if weights is None else weights] * length
    return np.array([np.sum(part[x == k]) for k, part in enumerate(places)])


def _histogram(x: Array, weights: Array | None = None) -> Any:
    return np.histogram(x, 4, (-1, 1), weights=weights)[0]


_COUNTED = [
    Row("bincount", lambda x: weft.bincount(x, 4), fixed("index"), _ANY_SHAPE, ("int32",),
        lambda x: _counted(x, 4)),
    Row("bincount", lambda x: weft.bincount(x, 0), fixed("index"), CUBE, ("int32",),
        lambda x: np.zeros(0), "none"),
    Row("bincount", lambda x, y: weft.bincount(x, 5, y), (_INDEX, Operand("any")),
        tuple((*shape, *shape) for shape in _ANY_SHAPE), NUMBERS,
        lambda x, y: _counted(x, 5, y), "weights", twice=True),
    Row("bincount", lambda x: weft.bincount(x, 5, 0.5), fixed("index"), MATRIX, ("int32",),
        lambda x: _counted(x, 5) / 2, "weight"),
    Row("histogram", lambda x: weft.histogram(x, 4, (-1, 1)).counts, fixed("distinct"),
        _ANY_SHAPE, NUMBERS, _histogram, is_special=True),
    Row("histogram", lambda x: weft.histogram(x, 2, (0, 3)).counts, fixed("index"), _ANY_SHAPE,
        NUMBERS, lambda x: np.histogram(x, 2, (0, 3))[0], "on-edges"),
    Row("histogram", lambda x, y: weft.histogram(x, 4, (-1, 1), y).counts, (FIXED, Operand()),
        (((3, 4), (3, 4)),), expected=_histogram, case="weights"),
    Row("histogram", lambda x: weft.histogram(x, 3, (0, 1.5)).edges + 0 * x[0], fixed("any"),
        (((4,),),), expected=lambda x: np.linspace(0, 1.5, 4), case="edges"),
]  # fmt: skip

ROWS: tuple[Row, ...] = (
    *_SORTED, *_WITH_NAN, *_LARGEST, *_NTH, *_SEARCHED, *_SELECTED, *_COUNTED
)  # fmt: skip


def _x(*axes: Any, dtype: str = "float32") -> Any:
    return weft.placeholder(axes, dtype)


_MISTAKES: tuple[tuple[str, str, Callable[[], Any], type[WeftError], str], ...] = (
    ("sort", "far", lambda: weft.sort(_x(2), 1), AxesError, "sort: dimension 1 is out of range"),
    ("sort", "scalar", lambda: weft.sort(_x()), AxesError, "dimension -1 is out of range"),
    ("sort", "complex", lambda: weft.sort(_x(2, dtype="c8")), DTypeError, "no order"),
    ("sort", "name", lambda: weft.sort(_x(N, C), "H"), AxesError, "unknown axis 'H'"),
    ("argsort", "no-axis", lambda: weft.argsort(_x(2, 2), None), ArgumentError, "needs an axis"),
    ("argsort", "complex", lambda: weft.argsort(_x(2, dtype="c8")), DTypeError, "no order"),
    ("topk", "too-many", lambda: weft.topk(_x(2, 3), 4), ArgumentError, "k must be from 0 to 3"),
    ("topk", "negative", lambda: weft.topk(_x(3), -1), ArgumentError, "k must be a whole number"),
    ("topk", "fraction", lambda: weft.topk(_x(3), 1.5), ArgumentError, "not 1.5"),
    ("topk", "list", lambda: weft.topk(_x(3), [1]), ArgumentError, r"not \[1\]"),
    ("topk", "axis", lambda: weft.topk(_x(3), 1, 1), AxesError, "out of range"),
    ("kthvalue", "too-many", lambda: weft.kthvalue(_x(2, 3), 4), ArgumentError, "from 0 to 3"),
    ("kthvalue", "zero", lambda: weft.kthvalue(_x(3), 0), ArgumentError, "at least 1"),
    ("kthvalue", "axis", lambda: weft.kthvalue(_x(3), 1, 1), AxesError, "out of range"),
    ("kthvalue", "complex", lambda: weft.kthvalue(_x(2, dtype="c8"), 1), DTypeError, "no order"),
    ("mode", "empty", lambda: weft.mode(_x(2, 0)), AxesError, "no elements"),
    ("mode", "axis", lambda: weft.mode(_x(3), 1), AxesError, "out of range"),
    ("mode", "complex", lambda: weft.mode(_x(2, dtype="c8")), DTypeError, "no order"),
    ("searchsorted", "matrix", lambda: weft.searchsorted(_x(2, 2), 1), AxesError, "sorted rows"),
    ("searchsorted", "rows", lambda: weft.searchsorted(_x(2, 2), _x(3, 2)), AxesError, "rows"),
    (
        "searchsorted",
        "unknown",
        lambda: weft.searchsorted(_x(2, weft.symbol("n")), _x(2, 2)),
        AxesError,
        "needs their length",
    ),
    ("searchsorted", "scalar", lambda: weft.searchsorted(_x(), 1), AxesError, "out of range"),
    (
        "searchsorted",
        "rows-side",
        lambda: weft.searchsorted(_x(2, 2), _x(2, 2), "up"),
        ArgumentError,
        "not 'up'",
    ),
    ("searchsorted", "side", lambda: weft.searchsorted(_x(2), 1, "up"), ArgumentError, "not 'up'"),
    ("searchsorted", "complex", lambda: weft.searchsorted(_x(2), 1j), DTypeError, "real dtype"),
    ("isin", "complex", lambda: weft.isin(_x(2, dtype="c8"), 1), DTypeError, "real dtype"),
    (
        "unique",
        "size",
        lambda: weft.unique(_x(2), -1),
        ArgumentError,
        "size must be a whole",
    ),
    ("unique", "complex", lambda: weft.unique(_x(2, dtype="c8"), 1), DTypeError, "no order"),
    ("unique", "axis", lambda: weft.unique(_x(2), 1, 0, 1), AxesError, "out of range"),
    ("unique", "fill", lambda: weft.unique(_x(2, dtype="i4"), 1, 0.5), DTypeError, "fractions"),
    ("nonzero", "scalar", lambda: weft.nonzero(_x(), 1), AxesError, "at least one axis"),
    ("nonzero", "size", lambda: weft.nonzero(_x(2), None), ArgumentError, "not None"),
    (
        "nonzero",
        "unknown",
        lambda: weft.nonzero(_x(2, weft.symbol("n")), 2),
        AxesError,
        "known lengths",
    ),
    (
        "masked_select",
        "size",
        lambda: weft.masked_select(_x(2), [1, 0], "2"),
        ArgumentError,
        "'2'",
    ),
    ("masked_select", "axes", lambda: weft.masked_select(_x(2), _x(3), 1), AxesError, "3"),
    ("bincount", "floats", lambda: weft.bincount(_x(2), 3), DTypeError, "takes integers"),
    ("bincount", "length", lambda: weft.bincount(_x(2, dtype="i4"), 1.0), ArgumentError, "not 1.0"),
    ("bincount", "axes", lambda: weft.bincount(_x(2, dtype="i4"), 3, _x(3)), AxesError, "weights"),
    ("histogram", "range", lambda: weft.histogram(_x(2), 3, (1, 0)), ArgumentError, "lower first"),
    ("histogram", "no-range", lambda: weft.histogram(_x(2), 3, 1), ArgumentError, "a pair"),
    ("histogram", "bins", lambda: weft.histogram(_x(2), "3", (0, 1)), ArgumentError, "bins must"),
    ("histogram", "complex", lambda: weft.histogram(_x(2, dtype="c8"), 3, (0, 1)), DTypeError, "c"),
)

REFUSALS: tuple[Refusal, ...] = tuple(Refusal(*mistake) for mistake in _MISTAKES)
