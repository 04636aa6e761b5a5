"""Rows of the op table: convolutions."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from weft.errors import ArgumentError, AxesError, DTypeError
from weft.ir.dtypes import Array
from weft.nn.spatial.geometry import Sliding
from weft.testing.table.rows import FLOATS, NUMBERS, C, H, N, Refusal, Row, Shapes, operands
from weft.testing.table.windows import Pairs
from weft.testing.windows_by_definition import Bilinear, Windows


def _convolution(
    x: Array, w: Array, stride: Any, padding: Pairs, dilation: Any, groups: int = 1
) -> Any:
    windows = Windows.over(x.shape[2:], Sliding(w.shape[2:], stride, padding, dilation))
    return Bilinear(windows, groups).outputs(x, w)


def _transposed(
    x: Array, w: Array, stride: Any, padding: Pairs, extra: Any, dilation: Any, groups: int = 1
) -> Any:
    sliding = Sliding(w.shape[2:], stride, padding, dilation)
    least = sliding.lengths(x.shape[2:])
    lengths = [n + more for n, more in zip(least, extra, strict=True)]
    return Bilinear(Windows(lengths, sliding, x.shape[2:]), groups).images(x, w)


_Case = tuple[Shapes, dict[str, Any], tuple[Any, ...]]

_NONE2: Pairs = ((0, 0), (0, 0))

_CONVOLUTIONS: dict[str, _Case] = {
    "plain": ((((2, 2, 3, 4), (3, 2, 2, 2)),), {}, ((1, 1), _NONE2, (1, 1))),
    "points": ((((2, 2, 2, 3), (3, 2, 1, 1)), ((1, 1, 1, 1), (1, 1, 1, 1))), {},
               ((1, 1), _NONE2, (1, 1))),
    "strided": ((((1, 2, 4, 5), (2, 2, 3, 2)),), {"stride": (1, 2)}, ((1, 2), _NONE2, (1, 1))),
    "skipping": ((((2, 1, 5, 4), (2, 1, 1, 1)),), {"stride": (2, 3)}, ((2, 3), _NONE2, (1, 1))),
    "padded": ((((2, 1, 3, 2), (2, 1, 3, 3)),), {"padding": 1},
               ((1, 1), ((1, 1), (1, 1)), (1, 1))),
    "uneven": ((((1, 2, 2, 3), (2, 2, 2, 3)),), {"padding": [(0, 2), 1], "stride": 2},
               ((2, 2), ((0, 2), (1, 1)), (1, 1))),
    "dilated": ((((1, 2, 5, 4), (2, 2, 2, 3)),), {"dilation": (3, 1), "padding": (1, 0)},
                ((1, 1), ((1, 1), (0, 0)), (3, 1))),
    "same": ((((1, 1, 4, 5), (2, 1, 2, 3)),), {"padding": "same", "stride": (1, 2)},
             ((1, 2), ((0, 1), (1, 1)), (1, 1))),
    "same-lower": ((((1, 1, 4, 5), (2, 1, 2, 4)),), {"padding": "same_lower", "stride": 2},
                   ((2, 2), ((0, 0), (2, 1)), (1, 1))),
    "valid": ((((1, 2, 3, 3), (2, 2, 2, 2)),), {"padding": "valid"}, ((1, 1), _NONE2, (1, 1))),
    "groups": ((((1, 4, 2, 3), (4, 2, 2, 2)),), {"groups": 2}, ((1, 1), _NONE2, (1, 1), 2)),
    "depthwise": ((((1, 3, 4, 3), (6, 1, 2, 2)),), {"groups": 3, "padding": 1},
                  ((1, 1), ((1, 1), (1, 1)), (1, 1), 3)),
    "whole": ((((3, 2, 2, 3), (2, 2, 2, 3)),), {}, ((1, 1), _NONE2, (1, 1))),
}  # fmt: skip
"""By name, shapes, options, and the expanded geometry, in two dimensions."""

_LINE: _Case = (
    (((2, 2, 5), (2, 2, 3)), ((1, 1, 7), (1, 1, 2))),
    {"stride": 2, "padding": [(1, 0)]},
    ((2,), ((1, 0),), (1,)),
)
_VOLUME: _Case = (
    (((1, 2, 2, 3, 2), (2, 2, 2, 2, 1)),),
    {"padding": (0, 1, 0), "stride": (1, 2, 1)},
    ((1, 2, 1), ((0, 0), (1, 1), (0, 0)), (1, 1, 1)),
)

_TRANSPOSED: dict[str, _Case] = {
    "plain": ((((2, 2, 2, 3), (2, 3, 2, 2)),), {}, ((1, 1), _NONE2, (0, 0), (1, 1))),
    "points": ((((2, 2, 2, 3), (2, 3, 1, 1)),), {}, ((1, 1), _NONE2, (0, 0), (1, 1))),
    "strided": ((((1, 2, 3, 2), (2, 2, 2, 3)),), {"stride": (3, 2)},
                ((3, 2), _NONE2, (0, 0), (1, 1))),
    "padded": ((((1, 2, 3, 2), (2, 1, 3, 3)),), {"stride": 2, "padding": [1, (0, 2)]},
               ((2, 2), ((1, 1), (0, 2)), (0, 0), (1, 1))),
    "extended": ((((1, 1, 2, 3), (1, 2, 2, 3)),),
                 {"stride": (3, 2), "padding": (0, 1), "output_padding": (2, 1)},
                 ((3, 2), ((0, 0), (1, 1)), (2, 1), (1, 1))),
    "dilated": ((((2, 1, 2, 2), (1, 2, 2, 2)),), {"dilation": (2, 1), "padding": 1},
                ((1, 1), ((1, 1), (1, 1)), (0, 0), (2, 1))),
    "far": ((((1, 1, 2, 2), (1, 2, 2, 1)),),
            {"dilation": 3, "stride": (2, 1), "padding": (0, 1), "output_padding": 2},
            ((2, 1), ((0, 0), (1, 1)), (2, 2), (3, 3))),
    "groups": ((((1, 4, 2, 2), (4, 2, 2, 1)),), {"groups": 2, "stride": 2},
               ((2, 2), _NONE2, (0, 0), (1, 1), 2)),
    "line": ((((2, 2, 3), (2, 2, 3)),), {"stride": 2, "output_padding": 1},
             ((2,), ((0, 0),), (1,), (1,))),
    "volume": ((((1, 2, 2, 1, 2), (2, 1, 2, 2, 1)),), {"padding": (1, 0, 0)},
               ((1, 1, 1), ((1, 1), (0, 0), (0, 0)), (0, 0, 0), (1, 1, 1))),
}  # fmt: skip


def _row(function: str, name: str, case: _Case, expected: Any) -> Row:
    shapes, options, geometry = case
    build = getattr(weft, function)
    return Row(
        function, lambda x, w: build(x, w, **options), operands("any", "any"), shapes,
        NUMBERS if name in ("padded", "groups", "points") else FLOATS,
        lambda x, w: expected(x, w, *geometry), name, twice=True,
    )  # fmt: skip


def _bias_row(function: str, *shapes: tuple[int, ...]) -> Row:
    build, rank = getattr(weft, function), len(shapes[0]) - 2
    ones = ((1,) * rank, ((0, 0),) * rank, (1,) * rank)
    return Row(
        function, lambda x, w, b: build(x, w, bias=b), operands("any", "any", "any"),
        ((*shapes, shapes[1][:1]),), NUMBERS,
        lambda x, w, b: _convolution(x, w, *ones) + b.reshape(-1, *ones[0]), "bias",
    )  # fmt: skip


ROWS: tuple[Row, ...] = (
    *(_row("conv", name, case, _convolution) for name, case in _CONVOLUTIONS.items()),
    *(_row("conv_transpose", name, case, _transposed) for name, case in _TRANSPOSED.items()),
    _row("conv", "line", _LINE, _convolution),
    _row("conv", "volume", _VOLUME, _convolution),
    _bias_row("conv", (1, 2, 2, 3), (2, 2, 2, 2)),
    _bias_row("conv1d", (2, 1, 4), (3, 1, 2)),
    _bias_row("conv2d", (1, 1, 3, 2), (2, 1, 2, 1)),
    _bias_row("conv3d", (1, 1, 2, 2, 1), (2, 1, 2, 1, 1)),
    Row("conv_transpose", lambda x, w, b: weft.conv_transpose(x, w, bias=b),
        operands("any", "any", "any"), (((1, 2, 2, 3), (2, 3, 2, 2), (3,)),), NUMBERS,
        lambda x, w, b: _transposed(x, w, (1, 1), _NONE2, (0, 0), (1, 1)) + b.reshape(-1, 1, 1),
        "bias"),
    Row("conv", lambda x, w: weft.conv(x, w), operands("any", "any"),
        (((0, 2, 3, 3), (3, 2, 2, 2)), ((2, 0, 3, 3), (3, 0, 2, 2)), ((2, 2, 3, 3), (0, 2, 2, 2))),
        NUMBERS, lambda x, w: np.zeros((0, 3, 2, 2)), "empty"),
    Row("conv", lambda x, w: weft.conv(x > 0, w), operands("any", "any"),
        (((2, 2, 4), (3, 2, 2)),), NUMBERS,
        lambda x, w: _convolution(x > 0, w, (1,), ((0, 0),), (1,)), "bool"),
)  # fmt: skip


def _images(*shape: Any, dtype: str = "float32") -> Any:
    return weft.placeholder(shape, dtype)


_x, _w = (1, 2, 4, 4), (3, 2, 2, 2)

REFUSALS: tuple[Refusal, ...] = (
    Refusal("conv", "rank", lambda: weft.conv(_images(2, 4), _images(*_w)), AxesError,
            "N, C, 1 to 3 spatial"),
    Refusal("conv", "half-named", lambda: weft.conv(_images(3, 4, 2), _images(N, C, H)),
            AxesError, "cast_axes"),
    Refusal("conv", "filter-rank", lambda: weft.conv(_images(*_x), _images(3, 2, 2)),
            AxesError, "filters need 4 axes"),
    Refusal("conv", "channels", lambda: weft.conv(_images(*_x), _images(3, 1, 2, 2)),
            AxesError, "images of 2 channels"),
    Refusal("conv", "groups", lambda: weft.conv(_images(*_x), _images(3, 1, 2, 2), groups=2),
            AxesError, "in 2 groups"),
    Refusal("conv", "no-groups", lambda: weft.conv(_images(*_x), _images(*_w), groups=0),
            ArgumentError, "groups must be"),
    Refusal("conv", "padding", lambda: weft.conv(_images(*_x), _images(*_w), padding="SAME"),
            ArgumentError, "same_lower"),
    Refusal("conv", "stride", lambda: weft.conv(_images(*_x), _images(*_w), stride=1.5),
            ArgumentError, "stride"),
    Refusal("conv", "dilation", lambda: weft.conv(_images(*_x), _images(*_w), dilation="2"),
            ArgumentError, "dilation"),
    Refusal("conv", "too-small", lambda: weft.conv(_images(1, 2, 1, 4), _images(*_w)),
            AxesError, "no window of"),
    Refusal("conv", "bias", lambda: weft.conv(_images(*_x), _images(*_w), bias=_images(2)),
            AxesError, "bias must have one number for each of 3 filters"),
    Refusal("conv", "empty-filter", lambda: weft.conv(_images(*_x), _images(3, 2, 0, 2)),
            ArgumentError, "kernel must be"),
    Refusal("conv", "dtypes",
            lambda: weft.conv(_images(*_x, dtype="float16"), _images(*_w, dtype="bfloat16")),
            DTypeError, "float16"),
    Refusal("conv1d", "rank", lambda: weft.conv1d(_images(*_x), _images(*_w)),
            AxesError, "N, C, 1 spatial"),
    Refusal("conv2d", "rank", lambda: weft.conv2d(_images(1, 2, 3), _images(3, 2, 1)),
            AxesError, "N, C, 2 spatial"),
    Refusal("conv3d", "rank", lambda: weft.conv3d(_images(*_x), _images(*_w)),
            AxesError, "N, C, 3 spatial"),
    Refusal("conv_transpose", "rank", lambda: weft.conv_transpose(_images(2, 4), _images(*_w)),
            AxesError, "N, C, 1 to 3 spatial"),
    Refusal("conv_transpose", "channels",
            lambda: weft.conv_transpose(_images(*_x), _images(3, 2, 2, 2)),
            AxesError, "filters"),
    Refusal("conv_transpose", "padding",
            lambda: weft.conv_transpose(_images(*_x), _images(2, 3, 2, 2), padding="same"),
            ArgumentError, "padding must be numbers"),
    Refusal("conv_transpose", "all-padding",
            lambda: weft.conv_transpose(_images(1, 2, 1, 1), _images(2, 3, 2, 2), padding=1),
            AxesError, "leaves nothing"),
    Refusal("conv_transpose", "output-padding",
            lambda: weft.conv_transpose(_images(*_x), _images(2, 3, 2, 2), output_padding=1),
            ArgumentError, "less than the stride"),
    Refusal("conv_transpose", "groups",
            lambda: weft.conv_transpose(_images(*_x), _images(2, 3, 2, 2), groups=None),
            ArgumentError, "groups must be"),
)  # fmt: skip
