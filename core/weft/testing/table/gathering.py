"""Rows of the op table: gather and scatter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

import weft
from weft.errors import ArgumentError, AxesError, DTypeError, IndexOutOfRange, WeftError
from weft.ir.axes import Axis
from weft.ir.dtypes import Array
from weft.testing.table.rows import (
    ALL,
    FLOATS,
    NUMBERS,
    C,
    H,
    N,
    Operand,
    Refusal,
    Row,
    Shapes,
    W,
)

_X = Operand()
_PLACE = Operand("place", "int32", False)
_INDICES = {dtype: Operand("place", dtype, False) for dtype in ("int8", "uint8", "int64", "uint64")}

_TAKEN: Shapes = (
    ((4, 3), (2, 2)),
    ((3,), ()), ((5, 2), (0,)), ((3, 0), (2,)), ((3, 1, 2), (1, 1)), ((C, H), (N,)),
    ((0, 2), (0,)),
)  # fmt: skip


def _squares(function: str, *arguments: Any) -> Callable[..., Any]:
    """Build an op and square it, for a nonzero second derivative."""
    return lambda *x: weft.square(getattr(weft, function)(*x, *arguments))


_TAKE_ROWS = [
    Row("take", lambda x, i: weft.take(x, i, 0), (_X, _PLACE), _TAKEN, ALL,
        lambda x, i: np.take(x, i, 0)),
    Row("take", lambda x, i: weft.take(x, i, 1), (_X, _PLACE),
        (((2, 4, 3), (2, 3)), ((0, 3), (2,)), ((H, C), (N, W))), ALL,
        lambda x, i: np.take(x, i, 1), "inner"),
    Row("take", lambda x, i: weft.take(weft.transpose(x), i, -1), (_X, _PLACE),
        (((3, 2, 2), (4,)),), FLOATS, lambda x, i: np.take(x.T, i, -1), "last"),
    Row("take", lambda x, i: weft.square(weft.take(x, i)), (_X, _PLACE), (((4,), (3,)),), FLOATS,
        lambda x, i: np.take(x, i) ** 2, "vector", twice=True),
    Row("take", lambda x: weft.take(x, [[0, -1], [2, 0]], 0), (_X,), (((3, 2),),), ALL,
        lambda x: x[[[0, -1], [2, 0]]], "constant"),
    *(
        Row("take", lambda x, i: weft.take(x, i, 0), (_X, index), (((3, 2), (4,)),), ("float32",),
            lambda x, i: x[i.astype(int)], dtype)
        for dtype, index in _INDICES.items()
    ),
    Row("take", lambda x, i: x[1:, ..., i], (_X, _PLACE), (((3, 2, 3), (2, 2)),), ALL,
        lambda x, i: x[1:, ..., i], "item"),
    Row("take", lambda x, i, j: weft.square(x[i, 0, :, j]), (_X, _PLACE, _PLACE),
        (((3, 2, 2, 3), (2, 1), (2,)),), FLOATS, lambda x, i, j: x[i, 0, :, j] ** 2, "items",
        twice=True),
    Row("take_along_axis", weft.take_along_axis, (_X, _PLACE),
        (((2, 4), (2, 3)), ((3,), (2,)), ((2, 2, 3), (2, 1, 4)), ((1, 3), (3, 2)), ((0, 3), (0, 2)),
         ((2, 3), (2, 0))), ALL, lambda x, i: np.take_along_axis(x, i, -1)),
    Row("take_along_axis", _squares("take_along_axis", 0), (_X, _PLACE),
        (((3, 2), (4, 2)), ((3, 2, 2), (2, 2, 1))), FLOATS,
        lambda x, i: np.take_along_axis(x, i, 0) ** 2, "first", twice=True),
    Row("take_along_axis", lambda x, i: weft.take_along_axis(x, i, "C"), (_X, _PLACE),
        (((N, C), (N,)), ((C, N, H), (H, N)), ((C,), (H,))), FLOATS,
        lambda x, i: np.take_along_axis(x, i[:, None], 1)[:, 0], "named"),
    Row("take_along_axis", lambda x, i: weft.take_along_axis(x, i, "C"), (_X, _PLACE),
        (((N, C), (Axis(2, "C"), N)),), FLOATS,
        lambda x, i: np.take_along_axis(x, i.T, 1), "named-kept"),
    Row("gather_nd", weft.gather_nd, (_X, _PLACE),
        (((3, 4, 2), (5, 2)), ((3, 4), (2, 1, 2)), ((3, 2), (2, 1)), ((4,), (1,)), ((3, 2), (0, 2)),
         ((3, 0), (2, 1)), ((C, H), (N, Axis(1, "I")))), ALL,
        lambda x, i: x[i[..., 0], i[..., 1]]),
    Row("gather_nd", lambda x, i: weft.square(weft.gather_nd(x, i, batch_dims=1)), (_X, _PLACE),
        (((2, 3, 2), (2, 2, 1)), ((2, 3, 4), (2, 2)), ((N, C, H), (N, W, Axis(1, "I")))), FLOATS,
        lambda x, i: np.stack([x[b][i[b, :, 0]] for b in range(2)]) ** 2, "batched", twice=True),
]  # fmt: skip

_UFUNCS: dict[str, tuple[np.ufunc | None, str, tuple[str, ...]]] = {
    "add": (np.add, "any", NUMBERS),
    "mul": (np.multiply, "nonzero", NUMBERS),
    "max": (np.maximum, "distinct", ALL),
    "min": (np.minimum, "distinct", ALL),
}

_PUT: Shapes = (
    ((4, 3), (2, 2), (2, 2, 3)),
    ((3,), (), ()), ((3,), (4,), ()), ((5, 2), (0,), (0, 2)), ((3, 0), (2,), (2, 0)),
    ((0, 2), (0,), (0, 2)),
    ((C, H), (N,), (N, H)),
)  # fmt: skip


def _put(ufunc: np.ufunc | None, x: Array, at: tuple[Any, ...], updates: Array | int) -> Any:
    result = np.array(x)
    if ufunc is None:
        result[at] = updates
    else:
        ufunc.at(result, at, updates)
    return result


def _put_along(ufunc: np.ufunc | None, x: Array, i: Array, updates: Array, axis: int) -> Any:
    at = [*np.indices(np.broadcast_shapes(i.shape, updates.shape))]
    at[axis] = np.broadcast_to(i, at[0].shape)
    return _put(ufunc, x, tuple(at), updates)


def _put_operands(domain: str) -> tuple[Operand, ...]:
    return (Operand(domain), _PLACE, Operand(domain))


def _put_rows(
    reduction: str, ufunc: np.ufunc | None, domain: str, dtypes: tuple[str, ...]
) -> list[Row]:
    """Return the rows of the three scatter functions, for one reduction."""
    several = _put_operands(domain)
    twice = {"twice": True}
    return [
        Row("scatter", lambda x, i, y: weft.scatter(x, i, y, 0, reduction), several, _PUT, dtypes,
            lambda x, i, y: _put(ufunc, x, (i,), y), reduction),
        Row("scatter", lambda x, i, y: weft.square(weft.scatter(x, i, y, -2, reduction)), several,
            (((2, 3, 2), (2,), (2, 2, 2)), ((0, 3, 1), (2,), (0, 2, 1))), FLOATS,
            lambda x, i, y: _put(ufunc, x, (slice(None), i), y) ** 2, f"{reduction}-inner",
            **twice),
        Row("scatter_along_axis",
            lambda x, i, y: weft.scatter_along_axis(x, i, y, 1, reduction), several,
            (((2, 4), (2, 3), (2, 3)), ((2, 3, 1), (2, 1, 1), ()), ((2, 3), (1, 4), (2, 4)),
             ((2, 3), (2, 0), (2, 0)), ((N, C), (N,), (N,))), dtypes,
            lambda x, i, y: _put_along(ufunc, x, i, y, 1), reduction),
        Row("scatter_nd", lambda x, i, y: weft.scatter_nd(x, i, y, reduction), several,
            (((3, 4, 2), (5, 2), (5, 2)), ((3, 4), (2, 1, 2), ()), ((3, 2), (0, 1), (0, 2)),
             ((C, W), (N, Axis(2, "I")), (N,))), dtypes,
            lambda x, i, y: _put(ufunc, x, (i[:, 0], i[:, 1]), y), reduction),
    ]  # fmt: skip


_REPEATED = [
    Row("scatter", lambda x, i, y: weft.scatter(x, i, y, 0), _put_operands("any"),
        (((3, 2), (4, 3), (4, 3, 2)), ((3,), (40, 30), (40, 30)), ((3, 300), (70,), (70, 300))),
        ALL, lambda x, i, y: _put(None, x, (i,), y), "set-repeated"),
    Row("scatter", lambda x, i, y: weft.square(weft.scatter(x, i, y, 1)), _put_operands("any"),
        (((2, 3, 2), (3, 2, 2), (2, 3, 2, 2, 2)),), FLOATS,
        lambda x, i, y: _put(None, x, (slice(None), i), y) ** 2, "set-repeated-inner", twice=True),
    Row("scatter_along_axis", lambda x, i, y: weft.scatter_along_axis(x, i, y, 0),
        _put_operands("any"), (((3, 2), (9, 2), (9, 2)), ((3, 40), (50, 40), (50, 40))), ALL,
        lambda x, i, y: _put_along(None, x, i, y, 0), "set-repeated"),
    Row("scatter_nd", weft.scatter_nd, _put_operands("any"),
        (((3, 3), (6, 5, 2), (6, 5)), ((3, 3, 2), (60, 2), (60, 2))), ALL,
        lambda x, i, y: _put(None, x, (i[..., 0], i[..., 1]), y), "set-repeated"),
]  # fmt: skip
"""More updates than elements, so that most are overwritten: the last in row-major order wins."""

_SCATTER_ROWS = [
    *_put_rows("set", None, "any", ALL),
    *_REPEATED,
    *(
        row
        for reduction, (ufunc, domain, dtypes) in _UFUNCS.items()
        for row in _put_rows(reduction, ufunc, domain, dtypes)
    ),
    Row("scatter", lambda x, i: weft.scatter(x, i, 1, 0), (_X, _PLACE), (((3, 2), (2,)),), ALL,
        lambda x, i: _put(None, x, (i,), 1), "number"),
    Row("scatter", lambda x, i, y: weft.scatter(x, i, y, 0, "add"), (_X, _INDICES["uint64"], _X),
        (((3, 2), (2,), (2, 2)),), ("float32",),
        lambda x, i, y: _put(np.add, x, (i.astype(int),), y), "uint64"),
]  # fmt: skip

_START = Operand("any", "int32", False)


def _block(x: Array, starts: Iterable[Array], sizes: Sequence[int]) -> tuple[slice, ...]:
    first = [
        np.clip(at, 0, n - size)
        for at, n, size in zip(map(int, starts), x.shape, sizes, strict=True)
    ]
    return tuple(slice(at, at + size) for at, size in zip(first, sizes, strict=True))


_DYNAMIC_ROWS = [
    Row("dynamic_slice", lambda x, i, j: weft.dynamic_slice(x, [i, j], (2, 3)),
        (_X, _START, _START), (((4, 5), (), ()), ((2, 3), (), ()), ((C, W), (), ())), ALL,
        lambda x, *at: x[_block(x, at, (2, 3))]),
    Row("dynamic_slice", lambda x, i: weft.square(weft.dynamic_slice(x, i, (2, 1, 0)[: x.rank])),
        (_X, _START), (((3, 4), (2,)), ((2,), (1,)), ((2, 1, 1), (3,))), FLOATS,
        lambda x, at: x[_block(x, at, (2, 1))] ** 2, "vector", twice=True),
    Row("dynamic_slice", lambda x, i: weft.dynamic_slice(x, (i, 1), (None, 2)), (_X, _START),
        (((3, 4), ()), ((0, 4), ())), ALL, lambda x, at: x[:, 1:3], "whole-axis"),
    Row("dynamic_slice", lambda x: weft.dynamic_slice(x, (), ()), (_X,), (((),),), FLOATS,
        lambda x: x, "scalar"),
    Row("dynamic_slice", lambda x, i: weft.dynamic_slice(x, (i,), (2,)),
        (_X, Operand("positive", "uint64", False)), (((5,), ()),), ("float32",),
        lambda x, at: x[_block(x, (at,), (2,))], "unsigned"),
    Row("dynamic_update_slice", lambda x, y, i, j: weft.dynamic_update_slice(x, y, [i, j]),
        (_X, _X, _START, _START),
        (((4, 5), (2, 3), (), ()), ((2, 3), (2, 3), (), ()), ((2, 3), (0, 1), (), ()),
         ((C, W), (Axis(1, "C"), W), (), ())), ALL,
        lambda x, y, *at: _put(None, x, _block(x, at, y.shape), y)),
    Row("dynamic_update_slice", lambda x, y, i: weft.square(weft.dynamic_update_slice(x, y, i)),
        (_X, _X, _START), (((3, 4), (2, 1), (2,)),), FLOATS,
        lambda x, y, at: _put(None, x, _block(x, at, y.shape), y) ** 2, "vector", twice=True),
]  # fmt: skip

ROWS: tuple[Row, ...] = (*_TAKE_ROWS, *_SCATTER_ROWS, *_DYNAMIC_ROWS)

_MATRIX, _NAMED = weft.placeholder((3, 4)), weft.placeholder((N, C))
_EMPTY, _ROW = weft.placeholder((0,)), weft.placeholder((1, 4))
_COUNT, _CLASSES = weft.placeholder((2,), "int32"), weft.placeholder((C,), "int32")

_WRONG: dict[str, dict[str, tuple[Callable[[], Any], type[WeftError], str]]] = {
    "take": {
        "floats": (lambda: weft.take(_MATRIX, [0.5], 0), DTypeError, "must be integers, not float"),
        "mask": (lambda: weft.take(_MATRIX, [True], 0), DTypeError, "where"),
        "text": (lambda: weft.take(_MATRIX, "one", 0), DTypeError, "not made of numbers"),
        "axis": (lambda: weft.take(_MATRIX, _COUNT, 2), AxesError, "dimension 2 is out of range"),
        "no-axis": (lambda: weft.take(_MATRIX, _COUNT), AxesError, "axis=0"),
        "unknown-axis": (lambda: weft.take(_NAMED, _COUNT, "Z"), AxesError, "unknown axis 'Z'"),
        "range": (lambda: weft.take(_MATRIX, [3], 0), IndexOutOfRange, "index 3 at .* length 3"),
        "ragged": (lambda: weft.take(_MATRIX, [[0], [1, 2]], 0), ArgumentError, "ragged"),
        "huge": (lambda: weft.take(_MATRIX, 2**64 - 1, 0), IndexOutOfRange, str(2**64 - 1)),
        "negative": (lambda: weft.take(_MATRIX, -5, 1), IndexOutOfRange, "from -4 to 3"),
        "empty": (lambda: weft.take(_EMPTY, 0), IndexOutOfRange, "no elements"),
        "collision": (lambda: weft.take(_NAMED, _CLASSES, N), AxesError, "more than once.*map_ro"),
        "mixed": (lambda: weft.take(_NAMED, _COUNT, N), AxesError, "mix named.*cast_axes"),
    },
    "take_along_axis": {
        "rank": (lambda: weft.take_along_axis(_MATRIX, _COUNT), AxesError, "as many axes"),
        "shape": (lambda: weft.take_along_axis(_MATRIX, [[0], [1]]), AxesError, "broadcast"),
        "range": (lambda: weft.take_along_axis(_MATRIX, [[4]]), IndexOutOfRange, "index 4"),
        "axis": (lambda: weft.take_along_axis(_MATRIX, [[0]], 2), AxesError, "out of range"),
        "named": (lambda: weft.take_along_axis(_NAMED, _COUNT, N), AxesError, "named"),
    },
    "gather_nd": {
        "scalar": (lambda: weft.gather_nd(_MATRIX, 1), AxesError, "last axis"),
        "rows": (lambda: weft.gather_nd(_MATRIX, [0, 0, 0]), AxesError, "rows of 3 indices"),
        "batch": (lambda: weft.gather_nd(_MATRIX, [[0]], 2), AxesError, "batch_dims"),
        "no-number": (lambda: weft.gather_nd(_MATRIX, [[0]], None), ArgumentError, "whole number"),
        "batch-axes": (lambda: weft.gather_nd(_MATRIX, [[0]], 1), AxesError, "differ"),
        "range": (lambda: weft.gather_nd(_MATRIX, [[0, 4]]), IndexOutOfRange, "length 4"),
        "floats": (lambda: weft.gather_nd(_MATRIX, _MATRIX), AxesError, "rows of 4"),
    },
    "scatter": {
        "mode": (lambda: weft.scatter(_MATRIX, 0, 1, 0, "sum"), ArgumentError, "set, add, mul"),
        "shape": (lambda: weft.scatter(_MATRIX, _COUNT, _COUNT, 0), AxesError, "broadcast"),
        "no-axis": (lambda: weft.scatter(_MATRIX, _COUNT, 0), AxesError, "axis=0"),
        "floats": (lambda: weft.scatter(_MATRIX, [0.5], 0, 0), DTypeError, "must be integers"),
        "bool": (lambda: weft.scatter([True], 0, True, 0, "add"), DTypeError, "not bool"),
        "complex": (lambda: weft.scatter([1j], 0, 1, 0, "max"), DTypeError, "no order"),
        "fraction": (lambda: weft.scatter(_COUNT, 0, 0.5), DTypeError, "fractions"),
        "range": (lambda: weft.scatter(_MATRIX, [-4], 0, 0), IndexOutOfRange, "index -4"),
    },
    "scatter_along_axis": {
        "rank": (lambda: weft.scatter_along_axis(_MATRIX, [0], 1), AxesError, "as many axes"),
        "wider": (lambda: weft.scatter_along_axis(_ROW, [[0], [1]], 1), AxesError,
                  "lacks"),
        "shape": (lambda: weft.scatter_along_axis(_MATRIX, [[0]], _COUNT), AxesError, "broadcast"),
        "mode": (lambda: weft.scatter_along_axis(_MATRIX, [[0]], 0, 0, "sum"), ArgumentError,
                 "set, add"),
    },
    "scatter_nd": {
        "rows": (lambda: weft.scatter_nd(_MATRIX, [[0, 0, 0]], 1), AxesError, "rows of 3 indices"),
        "shape": (lambda: weft.scatter_nd(_MATRIX, [[0]], _MATRIX), AxesError, "broadcast"),
        "mode": (lambda: weft.scatter_nd(_MATRIX, [[0]], 0, None), ArgumentError, "set, add"),
        "range": (lambda: weft.scatter_nd(_MATRIX, [[3, 0]], 0), IndexOutOfRange, "index 3"),
    },
    "dynamic_slice": {
        "starts": (lambda: weft.dynamic_slice(_MATRIX, (0,), (1, 1)), ArgumentError, "each axis"),
        "vector": (lambda: weft.dynamic_slice(_MATRIX, _CLASSES, (1, 1)), ArgumentError,
                   "each axis"),
        "floats": (lambda: weft.dynamic_slice(_MATRIX, (weft.constant(0.0), 0), (1, 1)),
                   DTypeError, "integer scalars"),
        "fraction": (lambda: weft.dynamic_slice(_MATRIX, (0, 0.5), (1, 1)), ArgumentError,
                     "whole number"),
        "text": (lambda: weft.dynamic_slice(_MATRIX, "ab", (1, 1)), ArgumentError, "whole number"),
        "sizes": (lambda: weft.dynamic_slice(_MATRIX, (0, 0), 1), ArgumentError, "one length"),
        "negative": (lambda: weft.dynamic_slice(_MATRIX, (0, 0), (-1, 1)), AxesError, "negative"),
        "too-long": (lambda: weft.dynamic_slice(_MATRIX, (0, 0), (4, 1)), AxesError, "inside"),
    },
    "dynamic_update_slice": {
        "rank": (lambda: weft.dynamic_update_slice(_MATRIX, 1, (0, 0)), AxesError, "inside"),
        "too-long": (lambda: weft.dynamic_update_slice(_MATRIX, [[1] * 5], (0, 0)), AxesError,
                     "inside"),
        "starts": (lambda: weft.dynamic_update_slice(_MATRIX, [[1]], 0), ArgumentError,
                   "each axis"),
        "names": (lambda: weft.dynamic_update_slice(_NAMED, _MATRIX, (0, 0)), AxesError,
                  "cannot be"),
    },
}  # fmt: skip

REFUSALS: tuple[Refusal, ...] = tuple(
    Refusal(function, case, build, error, words)
    for function, cases in _WRONG.items()
    for case, (build, error, words) in cases.items()
)
