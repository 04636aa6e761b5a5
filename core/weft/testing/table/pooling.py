"""Rows of the op table: pooling and its inverses."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np

import weft
from weft.errors import ArgumentError, AxesError, DTypeError, WeftError
from weft.ir.dtypes import Array
from weft.ir.tensor import TensorOp
from weft.nn.spatial.geometry import Sliding
from weft.testing.table.rows import (
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
    W,
    operands,
)
from weft.testing.table.windows import Geometry, Index, Pairs
from weft.testing.windows_by_definition import Pooling, Windows, meaning

Build = Callable[..., Any]

_LINE: Geometry = ((2,), (2,), ((0, 0),), (1,))
_SQUARE: Geometry = ((2, 2), (2, 2), ((0, 0),) * 2, (1, 1))
_STEPS: Geometry = ((2, 2), (1, 1), ((0, 0),) * 2, (1, 1))
_AROUND: Geometry = ((3, 3), (2, 2), ((1, 1),) * 2, (1, 1))

_POOLS: dict[str, tuple[Shapes, dict[str, Any], Geometry]] = {
    "line": ((((2, 2, 6),), ((1, 1, 2),)), {"kernel": 2}, _LINE),
    "square": ((((2, 1, 4, 5),), ((0, 2, 2, 2),)), {"kernel": 2}, _SQUARE),
    "volume": ((((1, 2, 2, 3, 2),),), {"kernel": (1, 3, 2)},
               ((1, 3, 2), (1, 3, 2), ((0, 0),) * 3, (1, 1, 1))),
    "overlapping": ((((1, 2, 3, 4),),), {"kernel": (2, 3), "stride": 1},
                    ((2, 3), (1, 1), ((0, 0),) * 2, (1, 1))),
    "padded": ((((1, 2, 4, 3),),), {"kernel": 3, "stride": 2, "padding": 1},
               ((3, 3), (2, 2), ((1, 1), (1, 1)), (1, 1))),
    "uneven": ((((2, 1, 5),),), {"kernel": 4, "stride": 3, "padding": [(3, 1)]},
               ((4,), (3,), ((3, 1),), (1,))),
    "same": ((((1, 1, 5, 4),),), {"kernel": (2, 3), "stride": (2, 1), "padding": "same"},
             ((2, 3), (2, 1), ((0, 1), (1, 1)), (1, 1))),
    "dilated": ((((1, 1, 4, 6),),), {"kernel": 2, "stride": 1, "dilation": (1, 3), "padding": 1},
                ((2, 2), (1, 1), ((1, 1), (1, 1)), (1, 3))),
    "points": ((((1, 2, 2, 3),),), {"kernel": 1}, ((1, 1), (1, 1), ((0, 0),) * 2, (1, 1))),
    "whole": ((((2, 2, 2, 3),),), {"kernel": (2, 3)}, ((2, 3), (2, 3), ((0, 0),) * 2, (1, 1))),
}  # fmt: skip
"""By name, shapes, options, and the expanded geometry."""

_CEILED: dict[str, tuple[Shapes, dict[str, Any], Geometry]] = {
    "ceil": ((((1, 2, 5, 4),),), {"kernel": 2, "ceil_mode": True},
             ((2, 2), (2, 2), ((0, 1), (0, 0)), (1, 1))),
    "ceil-padded": ((((1, 1, 6),),), {"kernel": 3, "stride": 2, "padding": 1, "ceil_mode": True},
                    ((3,), (2,), ((1, 2),), (1,))),
    # A fourth window would start in the padding after the image.
    "ceil-left-out": ((((1, 2, 5),),),
                      {"kernel": 3, "stride": 3, "padding": 1, "ceil_mode": True},
                      ((3,), (3,), ((1, 1),), (1,))),
    "ceil-short": ((((1, 2, 2),),), {"kernel": 3, "stride": 2, "ceil_mode": True},
                   ((3,), (2,), ((0, 1),), (1,))),
}  # fmt: skip
"""The same with a last window past the end, and the padding that completes it."""


def _pooling(x: Array, geometry: Geometry) -> Pooling:
    return Pooling(Windows.over(x.shape[2:], Sliding(*geometry)))


def _largest(x: Array, geometry: Geometry) -> Any:
    return _pooling(x, geometry).maximum(x)


def _first(x: Array, geometry: Geometry) -> Any:
    return _pooling(x, geometry).index(x)


def _mean(x: Array, geometry: Geometry, counted: Pairs | None = None) -> Any:
    """Divide by the number of elements of a window within the user's padding."""
    return _pooling(x, geometry).mean(x, geometry[2] if counted is None else counted)


def _norm(x: Array, p: float, geometry: Geometry) -> Any:
    return _pooling(x, geometry).norm(x, p)


def _pool_rows(
    case: str, shapes: Shapes, options: dict[str, Any], geometry: Geometry
) -> Iterator[Row]:
    rows: list[tuple[str, str, Any, str, Any]] = [
        ("max_pool", "distinct", lambda x: weft.max_pool(x, **options), case,
         lambda x: _largest(x, geometry)),
        ("avg_pool", "any", lambda x: weft.avg_pool(x, **options, count_include_pad=False),
         f"{case}-inner", lambda x: _mean(x, geometry, ((0, 0),) * (x.ndim - 2))),
        ("lp_pool", "nonzero", lambda x: weft.lp_pool(x, 2, **options), case,
         lambda x: _norm(x, 2, geometry)),
    ]  # fmt: skip
    twice = case in ("padded", "dilated")
    for function, domain, build, name, expected in rows:
        dtypes = NUMBERS if (function, case) == ("max_pool", "padded") else FLOATS
        yield Row(function, build, operands(domain), shapes, dtypes, expected, name,
                  twice=twice and function != "max_pool")  # fmt: skip
    yield Row("max_pool_with_indices", lambda x: weft.max_pool_with_indices(x, **options)[1],
              (FIXED,), shapes, NUMBERS if case == "padded" else FLOATS,
              lambda x: _first(x, geometry), case)  # fmt: skip


_ROWS = [
    *(row for case, rest in (_POOLS | _CEILED).items() for row in _pool_rows(case, *rest)),
    *(
        Row("avg_pool", lambda x, o=options: weft.avg_pool(x, **o), operands("any"), shapes,
            NUMBERS if case == "padded" else FLOATS, lambda x, g=geometry: _mean(x, g), case)
        for case, (shapes, options, geometry) in _POOLS.items()
    ),
    *(
        Row("avg_pool", lambda x, o=options: weft.avg_pool(x, **o), operands("any"), shapes,
            FLOATS, lambda x, g=geometry, a=asked: _mean(x, g, a), case)
        for (case, (shapes, options, geometry)), asked in zip(
            _CEILED.items(), (((0, 0), (0, 0)), ((1, 1),), ((1, 1),), ((0, 0),)), strict=True
        )
    ),
    Row("max_pool_with_indices", lambda x: weft.max_pool_with_indices(x, 2, 1)[0],
        operands("distinct"), (((1, 2, 3, 3),),), NUMBERS,
        lambda x: _largest(x, _STEPS), "values"),
    Row("max_pool_with_indices", lambda x: weft.max_pool_with_indices(x, 3, 2, 1)[1],
        (Operand("index", differentiable=False),), (((2, 3, 5, 4),),), NUMBERS,
        lambda x: _first(x, _AROUND), "ties"),
    # Elements equal to the padding value, and the least numbers.
    Row("max_pool_with_indices",
        lambda x: weft.max_pool_with_indices(weft.where(x > 0, x, float("-inf")), 3, 2, 1)[1],
        (FIXED,), (((1, 2, 5, 4),),), FLOATS,
        lambda x: _first(np.where(x > 0, x, -np.inf), _AROUND),
        "infinity"),
    Row("max_pool_with_indices",
        lambda x: weft.max_pool_with_indices(weft.where(x > 0.5, float("nan"), x), 3, 2, 1)[1],
        (FIXED,), (((1, 2, 5, 4),),), FLOATS,
        lambda x: _first(np.where(x > 0.5, np.nan, x), _AROUND),
        "nan"),
    Row("lp_pool", lambda x: weft.lp_pool(x, 3, 2), (FIXED,), (((1, 2, 4),),), ("int32",),
        lambda x: _norm(x, 3, _LINE), "integers"),
    Row("max_pool", lambda x: weft.max_pool(x, 3, 2, 1), (FIXED,), (((1, 2, 4, 3),),), ("bool",),
        lambda x: _largest(x, _AROUND), "bool"),
    Row("max_pool", lambda x: weft.max_pool(weft.where(x > 0, float("-inf"), x), 2, padding=1),
        (FIXED,), (((1, 2, 4, 3),),), FLOATS,
        lambda x: _largest(np.where(x > 0, -np.inf, x), ((2, 2), (2, 2), ((1, 1),) * 2, (1, 1))),
        "infinity"),
    Row("max_pool", lambda x: weft.max_pool(x * x, 2, 1), operands("distinct"), (((1, 1, 3, 3),),),
        FLOATS, lambda x: _largest(x * x, _STEPS), "squares",
        twice=True),
    *(
        Row("lp_pool", lambda x, p=p: weft.lp_pool(x, p, 2, 1), operands("nonzero"),
            (((1, 2, 3, 3),),), FLOATS,
            lambda x, p=p: _norm(x, p, _STEPS), f"order-{p}",
            twice=True)
        for p in (1, 3, 2.5)
    ),
    # A window of zeros, and numbers whose squares overflow or underflow.
    Row("lp_pool", lambda x: weft.lp_pool(weft.concat([x * 0, x * 1e-30, x * 1e30], 2), 2, 2),
        operands("nonzero"), (((1, 2, 4),),), FLOATS,
        lambda x: np.concatenate([_norm(x * s, 2, _LINE) for s in (0, 1e-30, 1e30)], 2), "scales",
        is_generic=False),
]  # fmt: skip


def _filled(x: Array, kernel: Index, stride: Index, lengths: Index) -> Any:
    sliding = Sliding(kernel, stride, ((0, 0),) * len(kernel), (1,) * len(kernel))
    windows = Windows(lengths, sliding, x.shape[2:])
    return windows.summed(
        np.broadcast_to(x.reshape(*x.shape[:2], -1, 1), (*x.shape[:2], *windows.table.shape))
    )


def _put(x: Array, index: Array, lengths: Index) -> Any:
    result = np.zeros((*x.shape[:2], int(np.prod(lengths))), x.dtype)
    flat = (*x.shape[:2], -1)
    np.put_along_axis(result, index.reshape(flat), x.reshape(flat), axis=-1)
    return result.reshape(*x.shape[:2], *lengths)


def _adapted_windows(n: int, m: int) -> list[range]:
    return [range(i * n // m, math.ceil((i + 1) * n / m)) for i in range(m)]


def _adapted_maximum(x: Any, m: int, axis: int) -> Any:
    """Return the maxima over the adaptive windows along one axis."""
    windows = _adapted_windows(x.shape[axis], m)
    return np.stack([np.take(x, window, axis).max(axis) for window in windows], axis)


def _adapted_index(x: Any, lengths: Index) -> Any:
    """Return the flat places of the first maxima of adaptive windows over the last two axes."""
    places = np.arange(math.prod(x.shape[2:])).reshape(x.shape[2:])
    found = np.empty((*x.shape[:2], *lengths), np.int64)
    pairs = zip(x.shape[2:], lengths, strict=True)
    rows, columns = (list(enumerate(_adapted_windows(*pair))) for pair in pairs)
    for (i, above), (j, beside) in product(rows, columns):
        window = np.ix_(above, beside)
        best = x[:, :, *window].reshape(*x.shape[:2], -1).argmax(-1)
        found[:, :, i, j] = places[window].ravel()[best]
    return found


_INDEX = weft.constant(np.array([[[[0, 3], [9, 11]], [[5, 2], [8, 10]]]]))
_SAME = weft.constant(np.array([[[[0, 3, 3], [1, 0, 3], [0, 1, 2]], [[2] * 3, [1] * 3, [2] * 3]]]))

_WHOLE: list[Row] = [
    Row("global_avg_pool", weft.global_avg_pool, operands("any"),
        (((2, 3, 2, 4),), ((2, 1, 3),), ((0, 1, 2),)), NUMBERS,
        lambda x: x.mean(axis=(2, 3), keepdims=True), twice=True),
    Row("global_avg_pool", lambda x: weft.global_avg_pool(x, False), operands("any"),
        (((H, N, W, C),),), NUMBERS, lambda x: x.mean(axis=(0, 2)), "named"),
    Row("global_max_pool", weft.global_max_pool, operands("distinct"),
        (((2, 3, 2, 4),), ((2, 1, 3),)), NUMBERS, lambda x: x.max(axis=(2, 3), keepdims=True)),
    Row("global_max_pool", lambda x: weft.global_max_pool(x, keepdims=False), operands("distinct"),
        (((N, C, H),),), NUMBERS, lambda x: x.max(axis=2), "named"),
    Row("adaptive_avg_pool", lambda x: weft.adaptive_avg_pool(x, (2, 3)), operands("any"),
        (((2, 2, 4, 3),),), NUMBERS, lambda x: x.reshape(2, 2, 2, 2, 3).mean(axis=3), "even",
        twice=True),
    Row("adaptive_avg_pool", lambda x: weft.adaptive_avg_pool(x, (3, 2)), operands("any"),
        (((1, 2, 5, 3),), ((0, 2, 2, 2),)), NUMBERS,
        lambda x: np.einsum("ncij,ai,bj->ncab", x, meaning(5, 3), meaning(3, 2)), "uneven",
        twice=True),
    Row("adaptive_avg_pool", lambda x: weft.adaptive_avg_pool(x, 3), operands("any"),
        (((2, 2, 2),),), NUMBERS, lambda x: np.einsum("nci,ai->nca", x, meaning(2, 3)), "more"),
    Row("adaptive_max_pool", lambda x: weft.adaptive_max_pool(x, (2, 3)), operands("distinct"),
        (((2, 2, 4, 3),),), NUMBERS, lambda x: x.reshape(2, 2, 2, 2, 3).max(axis=3), "even"),
    Row("adaptive_max_pool", lambda x: weft.square(weft.adaptive_max_pool(x, (3, 2))),
        operands("distinct"), (((1, 2, 5, 3),), ((0, 2, 2, 2),), ((1, 1, 1, 1),)), NUMBERS,
        lambda x: _adapted_maximum(_adapted_maximum(x, 3, 2), 2, 3) ** 2, "uneven", twice=True),
    Row("adaptive_max_pool", lambda x: weft.adaptive_max_pool(x, 3), operands("distinct"),
        (((2, 2, 2),), ((N, C, H),)), NUMBERS, lambda x: _adapted_maximum(x, 3, 2), "more"),
    Row("adaptive_max_pool_with_indices",
        lambda x: weft.adaptive_max_pool_with_indices(x, (3, 2))[1], operands("distinct"),
        (((1, 2, 5, 3),), ((0, 2, 2, 2),)), NUMBERS, lambda x: _adapted_index(x, (3, 2))),
    Row("max_unpool", lambda x: weft.max_unpool(x, _INDEX, (3, 4)), operands("any"),
        (((1, 2, 2, 2),),), NUMBERS, lambda x: _put(x, _INDEX.const, (3, 4)), twice=True),
    Row("max_unpool",
        lambda x: weft.max_unpool(*weft.max_pool_with_indices(x, 2, 1), x.axes.lengths[2:]),
        operands("distinct"), (((1, 2, 3, 3),), ((1, 1, 5),), ((0, 2, 4),)), FLOATS,
        lambda x: _put(_largest(x, _STEPS), _first(x, _STEPS), (3, 3)),
        "overlapping"),
    Row("max_unpool", lambda x: weft.max_unpool(x, _SAME, (2, 2)), operands("any"),
        (((1, 2, 3, 3),),), NUMBERS, lambda x: _put(x, _SAME.const, (2, 2)), "repeated"),
    Row("avg_unpool", lambda x: weft.avg_unpool(x, (2, 1)), operands("any"),
        (((2, 2, 2, 3),), ((0, 1, 1, 1),)), NUMBERS,
        lambda x: _filled(x, (2, 1), (2, 1), (4, 3)), "plain"),
    Row("avg_unpool", lambda x: weft.avg_unpool(x, 2, 3, 9), operands("any"), (((2, 2, 3),),),
        NUMBERS, lambda x: _filled(x, (2,), (3,), (9,)), "apart"),
    Row("avg_unpool", lambda x: weft.avg_pool(weft.avg_unpool(x, 2, 3), 2, 3), operands("any"),
        (((2, 2, 2, 2),),), FLOATS, np.asarray, "undone", twice=True),
    Row("lp_unpool", lambda x: weft.lp_unpool(x, 2, (2, 3)), operands("any"),
        (((2, 2, 1, 2),),), NUMBERS, lambda x: _filled(x / 6**0.5, (2, 3), (2, 3), (2, 6)),
        "plain"),
    Row("lp_unpool", lambda x: weft.lp_pool(weft.lp_unpool(x, 3, 2, lengths=5), 3, 2),
        operands("positive"), (((2, 2, 2),),), FLOATS, np.asarray, "undone", twice=True),
]  # fmt: skip

ROWS: tuple[Row, ...] = (*_ROWS, *_WHOLE)


def _images(*shape: Any, dtype: str = "float32") -> Any:
    return weft.placeholder(shape, dtype)


def _refusal(
    name: str,
    case: str,
    build: Build,
    args: tuple[Any, ...],
    options: dict[str, Any],
    error: type[WeftError],
    words: str,
) -> Refusal:
    return Refusal(name, case, lambda: build(_images(1, 2, 4), *args, **options), error, words)


def _refusals(name: str, build: Build) -> list[Refusal]:
    """Return the refusals shared by all functions of windows."""
    return [
        Refusal(name, "rank", lambda: build(_images(2, 3), 1), AxesError, "N, C, 1 to 3 spatial"),
        Refusal(name, "place", lambda: build(_images(1, 2, 4), 1, channels=1), ArgumentError,
                "no operand has names"),
        Refusal(name, "kernel", lambda: build(_images(1, 2, 4), 0), ArgumentError, "kernel"),
        Refusal(name, "stride", lambda: build(_images(1, 2, 4), 1, stride="1"),
                ArgumentError, "stride"),
    ]  # fmt: skip


def _padding_refusals(name: str, build: Build) -> list[Refusal]:
    return [
        Refusal(name, "padding", lambda: build(_images(1, 2, 4), 2, padding=-1),
                ArgumentError, "padding must be"),
        Refusal(name, "much-padding", lambda: build(_images(1, 2, 4), 2, padding=2),
                AxesError, "use less padding"),
        Refusal(name, "far-apart", lambda: build(_images(1, 2, 2), 2, padding=2, dilation=3),
                AxesError, "use less padding"),
        Refusal(name, "too-small", lambda: build(_images(1, 2, 4), 5), AxesError, "no window of"),
        Refusal(name, "complex", lambda: build(_images(1, 2, 4, dtype="complex64"), 2),
                DTypeError, "complex"),
        Refusal(name, "ceil-unknown",
                lambda: build(_images(1, 2, weft.symbol("n")), 2, ceil_mode=True),
                AxesError, "known lengths"),
    ]  # fmt: skip


def _lp_pool(x: TensorOp, kernel: Any, **options: Any) -> Any:
    return weft.lp_pool(x, 2, kernel, **options)


def _lp_unpool(x: TensorOp, kernel: Any, **options: Any) -> Any:
    return weft.lp_unpool(x, 2, kernel, **options)


_POOLINGS: dict[str, Build] = {
    "max_pool": weft.max_pool,
    "max_pool_with_indices": weft.max_pool_with_indices,
    "avg_pool": weft.avg_pool,
    "lp_pool": _lp_pool,
}

_UNPOOLINGS: dict[str, Build] = {"avg_unpool": weft.avg_unpool, "lp_unpool": _lp_unpool}

REFUSALS: tuple[Refusal, ...] = (
    *(each for name, build in (_POOLINGS | _UNPOOLINGS).items() for each in _refusals(name, build)),
    *(each for name, build in _POOLINGS.items() for each in _padding_refusals(name, build)),
    *(
        _refusal(name, case, build, (2,), options, error, words)
        for name, build in _UNPOOLINGS.items()
        for case, options, error, words in (
            ("overlap", {"stride": 1}, ArgumentError, "overlap"),
            ("lengths", {"lengths": 11}, AxesError, "do not fit the lengths"),
            ("no-lengths", {"lengths": "8"}, ArgumentError, "lengths must be"),
        )
    ),
    *(
        _refusal("lp_pool", f"order-{p}", weft.lp_pool, (p, 2), {}, ArgumentError, "p must be")
        for p in (0, None, float("inf"), "2")
    ),
    Refusal("lp_unpool", "order", lambda: weft.lp_unpool(_images(1, 2, 4), 0.5, 2),
            ArgumentError, "p must be"),
    Refusal("global_avg_pool", "no-space", lambda: weft.global_avg_pool(_images(2, 3)),
            AxesError, "no spatial axes"),
    Refusal("global_max_pool", "no-space", lambda: weft.global_max_pool(_images(N, C)),
            AxesError, "no spatial axes"),
    Refusal("global_max_pool", "empty", lambda: weft.global_max_pool(_images(2, 3, 0)),
            AxesError, "no elements"),
    Refusal("adaptive_avg_pool", "lengths",
            lambda: weft.adaptive_avg_pool(_images(1, 2, 4), (2, 2)), ArgumentError, "lengths"),
    Refusal("adaptive_avg_pool", "zero", lambda: weft.adaptive_avg_pool(_images(1, 2, 4), 0),
            ArgumentError, "lengths must be an integer >= 1"),
    Refusal("adaptive_avg_pool", "unknown",
            lambda: weft.adaptive_avg_pool(_images(1, 2, weft.symbol("n")), 2),
            AxesError, "must be known"),
    Refusal("adaptive_avg_pool", "named", lambda: weft.adaptive_avg_pool(_images(N, C), 2),
            AxesError, "no axis left for spatial: pass spatial="),
    Refusal("adaptive_max_pool", "lengths",
            lambda: weft.adaptive_max_pool(_images(1, 2, 4), (2, 2)), ArgumentError, "lengths"),
    Refusal("adaptive_max_pool", "empty",
            lambda: weft.adaptive_max_pool(_images(1, 2, 0), 2), AxesError, "must be known"),
    Refusal("adaptive_max_pool", "complex",
            lambda: weft.adaptive_max_pool(_images(1, 2, 5, dtype="complex64"), 2), DTypeError,
            "no order"),
    Refusal("adaptive_max_pool_with_indices", "complex",
            lambda: weft.adaptive_max_pool_with_indices(_images(1, 2, 5, dtype="complex64"), 2),
            DTypeError, "no order"),
    Refusal("max_unpool", "axes",
            lambda: weft.max_unpool(_images(1, 2, 2), _images(1, 2, 3, dtype="int64"), 4),
            AxesError, "indices of the same axes"),
    Refusal("max_unpool", "floats", lambda: weft.max_unpool(_images(1, 2, 2), _images(1, 2, 2), 4),
            DTypeError, "indices must be integers"),
    Refusal("max_unpool", "lengths",
            lambda: weft.max_unpool(_images(1, 2, 2), _images(1, 2, 2, dtype="int64"), (2, 2)),
            ArgumentError, "lengths must be"),
)  # fmt: skip
