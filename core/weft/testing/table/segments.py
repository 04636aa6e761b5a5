"""Rows of the op table: reductions over segments, and more kinds of scatter."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import weft
from weft.errors import ArgumentError, AxesError, DTypeError, IndexOutOfRange, WeftError
from weft.ir import dtypes
from weft.ir.axes import Axis
from weft.ir.dtypes import Array
from weft.ir.tensor import TensorOp
from weft.testing.table.rows import (
    ALL,
    FIXED,
    FLOATS,
    NUMBERS,
    C,
    H,
    N,
    Operand,
    Refusal,
    Row,
    Shapes,
)

_NUMBER = Operand("index", "int32", False)
_PLACE = Operand("place", "int32", False)
_SEGMENTS = Axis(4, "S")

_PARTS: Shapes = (
    ((5, 2), (5,)), ((2, 3, 2), (2, 3)), ((1,), (1,)), ((), ()), ((0, 2), (0,)), ((2, 0), (2,))
)  # fmt: skip

_UFUNCS: dict[str, tuple[Any, Callable[[Any], Any], str]] = {
    "add": (np.add, lambda dtype: 0, "any"),
    "mul": (np.multiply, lambda dtype: 1, "nonzero"),
    "max": (np.maximum, dtypes.least, "distinct"),
    "min": (np.minimum, dtypes.greatest, "distinct"),
}
"""By reduction: the ufunc, its neutral element, and the domain of its operands."""


def _segments(how: str, x: Array, ids: Array) -> Any:
    ufunc, neutral, _ = _UFUNCS[how]
    result = np.full((4, *x.shape[ids.ndim :]), neutral(x.dtype), x.dtype)
    is_inside = (ids >= 0) & (ids < 4)
    ufunc.at(result, ids[is_inside], x[is_inside])
    return result


def _segment_means(x: Array, ids: Array) -> Any:
    count = np.array([np.sum(ids == k) for k in range(4)])
    return _segments("add", x.astype(np.float64), ids) / np.maximum(count, 1)[:, None]


def _call(name: str, *arguments: Any) -> Any:
    return getattr(weft, name)(*arguments)


def _reached(x: TensorOp) -> Any:
    """Return extrema with a number for those of empty segments."""
    return weft.where(weft.isfinite(x), x, 3)


_SEGMENT_ROWS = [
    *(
        Row(name, lambda x, i, n=name: _call(n, x, i, 4),
            (Operand(_UFUNCS[how][2], differentiable=how in ("add", "mul")), _NUMBER), _PARTS,
            numbers, lambda x, i, h=how: _segments(h, x, i))
        for name, how, numbers in (
            ("segment_sum", "add", NUMBERS), ("segment_prod", "mul", NUMBERS),
            ("segment_max", "max", ALL), ("segment_min", "min", ALL),
        )
    ),
    *(
        Row(name, lambda x, i, n=name: _reached(_call(n, x, i, 4)) ** 2,
            (Operand(_UFUNCS[how][2]), _NUMBER), (((5, 2), (5,)),), FLOATS, case="square",
            twice=True)
        for name, how in (("segment_sum", "add"), ("segment_prod", "mul"), ("segment_max", "max"),
                          ("segment_min", "min"))
    ),
    Row("segment_mean", lambda x, i: weft.segment_mean(x, i, 4), (Operand(), _NUMBER), _PARTS,
        NUMBERS, _segment_means),
    Row("segment_mean", lambda x, i: weft.segment_mean(x, i, 4) ** 2, (Operand(), _NUMBER),
        (((5, 2), (5,)),), FLOATS, lambda x, i: _segment_means(x, i) ** 2, "square", twice=True),
    *(
        Row(name, lambda x, i, n=name: _call(n, x, i, _SEGMENTS), (FIXED, _NUMBER),
            (((C, N), (N,)), ((N, C, H), (H, N))), FLOATS,
            lambda x, i, f=expected: f(x.T, i), "named")
        for name, expected in (("segment_sum", partial(_segments, "add")),
                               ("segment_mean", _segment_means))
    ),
]  # fmt: skip


def _combined(how: str, include_self: bool, x: Array, at: Any, updates: Array) -> Any:
    """Return an array with updates combined at an index."""
    if how == "mean":
        wide = x.astype(np.int64 if x.dtype.kind in "iu" else np.float64)
        count = _combined("add", include_self, np.ones_like(wide), at, np.ones(updates.shape, int))
        total = _combined("add", include_self, wide, at, updates)
        return (total // count if x.dtype.kind in "iu" else total / count).astype(x.dtype)
    ufunc, neutral, _ = _UFUNCS[how]
    result = np.array(x)
    if not include_self:
        result[at] = neutral(x.dtype)
    ufunc.at(result, at, updates)
    return result


def _three(how: str) -> tuple[Operand, ...]:
    domain = _UFUNCS[how][2] if how in _UFUNCS else "any"
    return Operand(domain), _PLACE, Operand(domain)


_PUT: Shapes = (
    ((4, 2), (5,), (5, 2)), ((3,), (), ()), ((3, 2), (0,), (0, 2)), ((C, H), (N,), (N, H))
)  # fmt: skip

_COMBINED_ROWS = [
    *(
        Row("scatter", lambda x, i, y, h=how, s=include: weft.scatter(x, i, y, 0, h, s),
            _three(how), _PUT, NUMBERS, lambda x, i, y, h=how, s=include: _combined(h, s, x, i, y),
            f"{how}-{'with' if include else 'without'}-self")
        for how, include in (*((how, False) for how in (*_UFUNCS, "mean")), ("mean", True))
    ),
    Row("scatter_along_axis",
        lambda x, i, y: weft.square(weft.scatter_along_axis(x, i, y, 0, "mean", False)),
        _three("mean"), (((3, 2), (4, 2), (4, 2)),), FLOATS,
        lambda x, i, y: _combined("mean", False, x, (i, np.indices(i.shape)[1]), y) ** 2,
        "mean", twice=True),
    Row("scatter_nd", lambda x, i, y: weft.square(weft.scatter_nd(x, i, y, "mean")),
        _three("mean"), (((3, 3), (5, 2), (5,)),), FLOATS,
        lambda x, i, y: _combined("mean", True, x, (i[:, 0], i[:, 1]), y) ** 2, "mean",
        twice=True),
    *(
        Row("index_reduce", lambda x, i, y, r=word: weft.index_reduce(x, 1, i, y, r), _three(how),
            (((2, 4), (3,), (2, 3)), ((H, C), (N,), (H, N))), NUMBERS,
            lambda x, i, y, h=how: _combined(h, True, x, (slice(None), i), y), word)
        for word, how in (("prod", "mul"), ("mean", "mean"), ("amax", "max"), ("amin", "min"))
    ),
    Row("index_reduce",
        lambda x, i, y: weft.square(weft.index_reduce(x, 0, i, y, "amax", include_self=False)),
        _three("max"), (((3, 2), (4,), (4, 2)),), FLOATS,
        lambda x, i, y: _combined("max", False, x, i, y) ** 2, "without-self", twice=True),
]  # fmt: skip


def _masked_scatter(x: Array, number: Array, source: Array) -> Any:
    result, mask = np.array(x), np.broadcast_to(number > 1, x.shape)
    result[mask] = source.reshape(-1)[: np.count_nonzero(mask)]
    return result


_MASKED_ROWS = [
    Row("masked_scatter", lambda x, i, y: weft.masked_scatter(x, i > 1, y),
        (Operand(), _NUMBER, Operand()),
        (((3, 4), (3, 4), (12,)), ((2, 3), (3,), (2, 3)), ((), (), (1,)), ((0, 3), (3,), (0,)),
         ((C, H), (H,), (8,))), ALL, _masked_scatter),
    Row("masked_scatter", lambda x, i, y: weft.square(weft.masked_scatter(x, i > 1, y)),
        (Operand(), _NUMBER, Operand()), (((2, 3), (2, 3), (6,)),), FLOATS,
        lambda x, i, y: _masked_scatter(x, i, y) ** 2, "square", twice=True),
]  # fmt: skip

ROWS: tuple[Row, ...] = (*_SEGMENT_ROWS, *_COMBINED_ROWS, *_MASKED_ROWS)

_X, _NAMED = weft.placeholder((3, 4)), weft.placeholder((N, C))
_IDS, _NAMED_IDS = weft.placeholder((3,), "int32"), weft.placeholder((N,), "int32")
_COMPLEX, _BOOL = weft.placeholder((3,), "complex64"), weft.placeholder((3,), "bool")


def _of_segments(name: str) -> tuple[tuple[str, Callable[[], Any], type[WeftError], str], ...]:
    function = getattr(weft, name)
    return (
        ("floats", lambda: function(_X, [0.5, 1, 2], 2), DTypeError, "ids are integers"),
        ("axes", lambda: function(_X, [0, 1], 2), AxesError, "the first axes of the data"),
        ("negative", lambda: function(_X, _IDS, -1), ArgumentError, "num_segments must be a whole"),
        ("no-name", lambda: function(_NAMED, _NAMED_IDS, 2), AxesError, "may be an Axis"),
    )


_WRONG: dict[str, tuple[tuple[str, Callable[[], Any], type[WeftError], str], ...]] = {
    "segment_sum": (
        *_of_segments("segment_sum"),
        ("bool", lambda: weft.segment_sum(_BOOL, _IDS, 2), DTypeError, "not bool"),
    ),
    "segment_prod": _of_segments("segment_prod"),
    "segment_max": (
        *_of_segments("segment_max"),
        ("complex", lambda: weft.segment_max(_COMPLEX, _IDS, 2), DTypeError, "no order"),
    ),
    "segment_min": _of_segments("segment_min"),
    "segment_mean": _of_segments("segment_mean"),
    "index_reduce": (
        ("word", lambda: weft.index_reduce(_X, 0, _IDS, _X, "add"), ArgumentError,
         "prod, mean, amax, amin"),
        ("matrix", lambda: weft.index_reduce(_X, 0, [[0]], _X, "prod"), AxesError, "a vector"),
        ("axis", lambda: weft.index_reduce(_X, 2, _IDS, _X, "prod"), AxesError, "out of range"),
        ("range", lambda: weft.index_reduce(_X, 0, [3], 1, "prod"), IndexOutOfRange, "index 3"),
    ),
    "masked_scatter": (
        ("mask", lambda: weft.masked_scatter(_X, [True, False], _X), AxesError, "not broadcast"),
    ),
    "scatter": (
        ("bool-mean", lambda: weft.scatter(_BOOL, [0], True, 0, "mean"), DTypeError, "not bool"),
    ),
}  # fmt: skip

REFUSALS: tuple[Refusal, ...] = tuple(
    Refusal(function, *case) for function, cases in _WRONG.items() for case in cases
)
