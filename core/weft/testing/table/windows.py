"""Rows of the op table: windows."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from weft.errors import ArgumentError, AxesError
from weft.ir.dtypes import Array
from weft.nn.spatial.geometry import Sliding
from weft.testing.table.rows import ALL, FIXED, FLOATS, NUMBERS, C, H, N, Refusal, Row, Shapes, W
from weft.testing.windows_by_definition import Windows, columns, folded

Index = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]
Geometry = tuple[Index, Index, Pairs, Index]
"""Kernel, stride, padding and dilation."""


def _slide(x: Array, kernel: Index, stride: Index, dilation: Index) -> Any:
    extents = [(size - 1) * gap + 1 for size, gap in zip(kernel, dilation, strict=True)]
    windows = np.lib.stride_tricks.sliding_window_view(x, extents, tuple(range(-len(kernel), 0)))
    steps: Any = (..., *(slice(None, None, step) for step in (*stride, *dilation)))
    return windows[steps]


_GEOMETRIES: dict[str, tuple[Index, dict[str, Any], Geometry]] = {
    "vector": ((6,), {"kernel": 3}, ((3,), (1,), ((0, 0),), (1,))),
    "image": ((4, 3), {"kernel": 2}, ((2, 2), (1, 1), ((0, 0),) * 2, (1, 1))),
    "volume": ((2, 3, 2), {"kernel": (1, 2, 2)}, ((1, 2, 2), (1, 1, 1), ((0, 0),) * 3, (1, 1, 1))),
    "blocks": ((4, 4), {"kernel": 2, "stride": 2}, ((2, 2), (2, 2), ((0, 0),) * 2, (1, 1))),
    "apart": ((8,), {"kernel": 2, "stride": 3}, ((2,), (3,), ((0, 0),), (1,))),
    "elements": ((3, 2), {"kernel": 1}, ((1, 1), (1, 1), ((0, 0),) * 2, (1, 1))),
    "whole": ((3, 2), {"kernel": (3, 2)}, ((3, 2), (1, 1), ((0, 0),) * 2, (1, 1))),
    "large": ((5,), {"kernel": 4}, ((4,), (1,), ((0, 0),), (1,))),
    "skipping": ((7,), {"kernel": 1, "stride": 3}, ((1,), (3,), ((0, 0),), (1,))),
    "dilated": ((7,), {"kernel": 3, "stride": 2, "dilation": 2, "padding": [(2, 1)]},
                ((3,), (2,), ((2, 1),), (2,))),
    "padded": ((3, 4), {"kernel": (3, 2), "padding": (1, (0, 1)), "stride": (2, 1)},
               ((3, 2), (2, 1), ((1, 1), (0, 1)), (1, 1))),
    "same": ((5,), {"kernel": 4, "stride": 2, "padding": "same"}, ((4,), (2,), ((1, 2),), (1,))),
    "same-lower": ((5, 3), {"kernel": (4, 2), "padding": "same_lower"},
                   ((4, 2), (1, 1), ((2, 1), (1, 0)), (1, 1))),
    "valid": ((3,), {"kernel": 2, "padding": "valid"}, ((2,), (1,), ((0, 0),), (1,))),
}  # fmt: skip
"""By name, spatial lengths, the user's geometry, and the expanded geometry."""


def _unfold(x: Array, geometry: Geometry) -> Any:
    return columns(Windows.over(x.shape[2:], Sliding(*geometry)), x)


def _fold(x: Array, lengths: Index, geometry: Geometry) -> Any:
    windows = Windows.over(lengths, Sliding(*geometry))
    return folded(windows, x, (len(x), x.shape[1] // windows.table.shape[1], *lengths))


def _columns(lengths: Index, geometry: Geometry, channels: int = 1) -> Index:
    places, taps = Windows.over(lengths, Sliding(*geometry)).table.shape
    return channels * taps, places


def _row(function: str, case: str, build: Any, expected: Any, shapes: Shapes, **rest: Any) -> Row:
    return Row(function, build, shapes=shapes, expected=expected, case=case, **rest)


_SLIDING = [
    _row("sliding_windows", "vector", lambda x: weft.sliding_windows(x, 3),
         lambda x: _slide(x, (3,), (1,), (1,)), (((2, 6),), ((3,),), ((0, 4),)), dtypes=ALL),
    _row("sliding_windows", "image",
         lambda x: weft.sliding_windows(x, (3, 2), stride=(2, 1), dilation=(1, 2)),
         lambda x: _slide(x, (3, 2), (2, 1), (1, 2)), (((2, 5, 4),), ((3, 3),)), dtypes=ALL),
    _row("sliding_windows", "axes", lambda x: weft.sliding_windows(x, (2, 3), axes=(2, 0)),
         lambda x: _slide(x.transpose(1, 2, 0), (2, 3), (1, 1), (1, 1)).transpose(2, 0, 1, 3, 4),
         (((4, 2, 3),),), dtypes=NUMBERS),
    _row("sliding_windows", "named",
         lambda x: weft.sliding_windows(x, weft.make_axis(2, "K"), W, stride=2),
         lambda x: _slide(x.transpose(0, 2, 1), (2,), (2,), (1,)).transpose(0, 2, 1, 3),
         (((C, W, H),),), dtypes=NUMBERS),
    _row("sliding_windows", "none", lambda x: weft.sliding_windows(x, ()), np.asarray,
         (((2, 3),), ((),)), dtypes=NUMBERS),
    _row("sliding_windows", "whole", lambda x: weft.sliding_windows(x, (3, 1)),
         lambda x: x.transpose(0, 2, 1).reshape(2, 1, 4, 3, 1), (((2, 3, 4),),), dtypes=NUMBERS),
    # The exponential must not overwrite the sine, whose elements are shared by windows.
    _row("sliding_windows", "in-place", lambda x: weft.exp(weft.sliding_windows(weft.sin(x), 2)),
         lambda x: np.exp(_slide(np.sin(x), (2,), (1,), (1,))), (((2, 4),), ((5,),)), twice=True),
    # The windows have as many elements as the sine.
    _row("sliding_windows", "in-place-same-size",
         lambda x: weft.exp(weft.sliding_windows(weft.sin(x), 3, stride=2)),
         lambda x: np.exp(_slide(np.sin(x), (3,), (2,), (1,))), (((6,),), ((2, 6),))),
    _row("sliding_windows", "reduced",
         lambda x: weft.sum(weft.sliding_windows(x * x, (2, 2)), (-2, -1)),
         lambda x: _slide(x * x, (2, 2), (1, 1), (1, 1)).sum(axis=(-2, -1)),
         (((3, 4),),), dtypes=NUMBERS, twice=True),
]  # fmt: skip

_FOLDS = [
    row
    for case, (lengths, options, geometry) in _GEOMETRIES.items()
    for row in (
        _row("unfold", case, lambda x, o=options: weft.unfold(x, **o),
             lambda x, g=geometry: _unfold(x, g), (((1, 2, *lengths),), ((2, 1, *lengths),)),
             dtypes=ALL if case == "padded" else FLOATS),
        _row("fold", case, lambda x, n=lengths, o=options: weft.fold(x, n, **o),
             lambda x, n=lengths, g=geometry: _fold(x, n, g),
             (((1, *_columns(lengths, geometry, 2)),),),
             dtypes=NUMBERS if case in ("padded", "blocks") else FLOATS),
    )
]  # fmt: skip

_MORE_FOLDS = [
    _row("unfold", "empty-batch", lambda x: weft.unfold(x, 2), lambda x: np.zeros((0, 4, 6)),
         (((0, 1, 4, 3),),)),
    _row("fold", "empty-batch", lambda x: weft.fold(x, (4, 3), 2),
         lambda x: np.zeros((0, 1, 4, 3)), (((0, 4, 6),),)),
    _row("fold", "integer-length", lambda x: weft.fold(x, 6, 3),
         lambda x: _fold(x, (6,), ((3,), (1,), ((0, 0),), (1,))), (((2, 3, 4),),), dtypes=FLOATS),
    _row("fold", "squared", lambda x: weft.fold(weft.unfold(x, 2) * weft.unfold(x, 2), (3, 3), 2),
         lambda x: x * x * np.array([[1, 2, 1], [2, 4, 2], [1, 2, 1]]), (((1, 2, 3, 3),),),
         twice=True),
    _row("fold", "bool", lambda x: weft.fold(x > 0, 3, 2),
         lambda x: _fold((x > 0).astype(np.int32), (3,), ((2,), (1,), ((0, 0),), (1,))),
         (((1, 2, 2),),), dtypes=NUMBERS, operands=(FIXED,)),
]  # fmt: skip

ROWS: tuple[Row, ...] = (*_SLIDING, *_FOLDS, *_MORE_FOLDS)


def _images(*shape: Any) -> Any:
    return weft.placeholder(shape)


REFUSALS: tuple[Refusal, ...] = (
    Refusal("sliding_windows", "too-long", lambda: weft.sliding_windows(_images(2, 3), 4),
            AxesError, "no window of"),
    Refusal("sliding_windows", "rank", lambda: weft.sliding_windows(_images(3), (2, 2)),
            AxesError, "2 lengths for"),
    Refusal("sliding_windows", "axes", lambda: weft.sliding_windows(_images(3, 4), 2, axes=(0, 1)),
            AxesError, "1 lengths for 2 axes"),
    Refusal("sliding_windows", "no-axis", lambda: weft.sliding_windows(_images(3), 2, axes=5),
            AxesError, "sliding_windows: dimension 5"),
    Refusal("sliding_windows", "same-axis",
            lambda: weft.sliding_windows(_images(3, 4), (2, 2), axes=(0, 0)), AxesError, "twice"),
    Refusal("sliding_windows", "no-name", lambda: weft.sliding_windows(_images(N, H), 2),
            AxesError, "name all or none"),
    Refusal("sliding_windows", "zero", lambda: weft.sliding_windows(_images(3), 0),
            ArgumentError, "lengths must be"),
    Refusal("sliding_windows", "stride", lambda: weft.sliding_windows(_images(3), 2, stride=0),
            ArgumentError, "stride must be an integer >= 1"),
    Refusal("sliding_windows", "text", lambda: weft.sliding_windows(_images(3), "2"),
            AxesError, "text"),
    Refusal("unfold", "rank", lambda: weft.unfold(_images(3, 4), 2), AxesError,
            "N, C, 1 to 3 spatial"),
    Refusal("unfold", "named", lambda: weft.unfold(_images(N, C, H), 2), AxesError, "positional"),
    Refusal("unfold", "kernel", lambda: weft.unfold(_images(1, 2, 5), (2, 2)),
            ArgumentError, "kernel must be an integer >= 1, or a list of 1"),
    Refusal("unfold", "no-kernel", lambda: weft.unfold(_images(1, 2, 5), None),
            ArgumentError, "kernel"),
    Refusal("unfold", "dilation", lambda: weft.unfold(_images(1, 2, 5), 2, dilation=True),
            ArgumentError, "dilation"),
    Refusal("unfold", "padding", lambda: weft.unfold(_images(1, 2, 5), 2, padding=-1),
            ArgumentError, "padding must be a number"),
    Refusal("unfold", "padding-pair", lambda: weft.unfold(_images(1, 2, 5), 2, padding=(1, 2)),
            ArgumentError, r"a pair \(before, after\)"),
    Refusal("unfold", "padding-name", lambda: weft.unfold(_images(1, 2, 5), 2, padding="full"),
            ArgumentError, "'same'"),
    Refusal("unfold", "unknown-length",
            lambda: weft.unfold(_images(1, 2, weft.symbol("n")), 2, 2, "same"),
            AxesError, "known length"),
    Refusal("unfold", "too-small", lambda: weft.unfold(_images(1, 2, 3), 2, dilation=3),
            AxesError, "no window of"),
    Refusal("fold", "rank", lambda: weft.fold(_images(4, 2), 3, 2), AxesError, "three"),
    Refusal("fold", "columns", lambda: weft.fold(_images(1, 4, 3), 5, 2), AxesError, "4 windows"),
    Refusal("fold", "rows", lambda: weft.fold(_images(1, 3, 4), 5, 2), AxesError, "multiple"),
    Refusal("fold", "lengths", lambda: weft.fold(_images(1, 4, 4), (2, 2, 2, 2), 1),
            ArgumentError, "one to three"),
    Refusal("fold", "no-lengths", lambda: weft.fold(_images(1, 4, 4), None, 2),
            ArgumentError, "lengths must be"),
)  # fmt: skip
