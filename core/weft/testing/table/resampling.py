"""Rows of the op table: resizing, and sampling at arbitrary positions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import weft
from weft.errors import ArgumentError, AxesError, DTypeError, WeftError
from weft.ir.dtypes import Array
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
    W,
    operands,
)


def _place(i: int, n: int, m: int, scale: float, coordinates: str) -> float:
    if coordinates == "align_corners":
        return i * (n - 1) / (m - 1) if m > 1 else 0.0
    if coordinates == "pytorch_half_pixel" and m == 1:
        return 0.0
    return i / scale if coordinates == "asymmetric" else (i + 0.5) / scale - 0.5


_ROUNDED: dict[str, Callable[[float], int]] = {
    "half_up": lambda place: math.floor(place + 0.5),
    "half_down": lambda place: math.ceil(place - 0.5),
    "floor": math.floor,
    "ceil": math.ceil,
}


def _cubic(t: float, a: float) -> float:
    t = abs(t)
    if t >= 2:
        return 0
    if t > 1:
        return a * t**3 - 5 * a * t**2 + 8 * a * t - 4 * a
    return (a + 2) * t**3 - (a + 3) * t**2 + 1


def _mixed(line: list[Any], place: float, mode: str, rounding: str, a: float, width: float) -> Any:
    """Return a vector interpolated at a coordinate."""
    last = len(line) - 1
    if mode == "nearest":
        return line[min(max(_ROUNDED[rounding](place), 0), last)]
    kernel: Callable[[float], float] = {
        "linear": lambda t: max(1 - abs(t), 0),
        "cubic": lambda t: _cubic(t, a),
        "lanczos3": lambda t: float(np.sinc(t) * np.sinc(t / 3)) if abs(t) < 3 else 0.0,
    }[mode]
    if width:
        shares = {j: kernel((j - place) / width) for j in range(last + 1)}
    else:
        shares = {j: kernel(j - place) for j in range(math.floor(place) - 4, math.floor(place) + 6)}
    total = sum(share * line[min(max(j, 0), last)] for j, share in shares.items())
    return total / sum(shares.values())


def _resized(
    x: Array,
    axis: int,
    m: int,
    mode: str = "linear",
    coordinates: str = "half_pixel",
    rounding: str = "half_up",
    scale: float | None = None,
    antialias: bool = False,
    a: float = -0.75,
) -> Any:
    """Return an array resized along one axis, element by element."""
    n = x.shape[axis]
    factor = m / n if scale is None else scale
    line = [np.take(x, j, axis) for j in range(n)]
    places = [_place(i, n, m, factor, coordinates) for i in range(m)]
    gap = places[1] - places[0] if m > 1 else 1 / factor
    width = max(gap, 1) if antialias else 0
    return np.stack([_mixed(line, place, mode, rounding, a, width) for place in places], axis)


_IMAGES: Shapes = (((1, 2, 4, 3),), ((2, 1, 1, 2),))


def _resize_rows() -> list[Row]:
    rows = []
    dtypes = {("nearest", "up"): ALL, ("linear", "up"): NUMBERS}
    for mode, coordinates in itertools.product(
        ("nearest", "linear", "cubic"), ("half_pixel", "align_corners", "asymmetric")
    ):
        options = {"mode": mode, "coordinates": coordinates}
        for case, lengths in (("up", (7, 5)), ("down", (2, 2)), ("one", (1, 3))):
            rows.append(
                Row("resize", lambda x, n=lengths, o=options: weft.resize(x, n, **o),
                    operands("any"), _IMAGES, dtypes.get((mode, case), FLOATS),
                    lambda x, n=lengths, o=options: _resized(_resized(x, 2, n[0], **o), 3, n[1],
                                                             **o),
                    f"{mode}-{coordinates}-{case}")
            )  # fmt: skip
    return rows


def _resize_row(
    case: str,
    options: dict[str, Any],
    expected: dict[str, Any],
    shapes: Shapes = (((2, 5),),),
    twice: bool = False,
) -> Row:
    """Return a row that resizes the last axis."""
    return Row(
        "resize", lambda x: weft.resize(x, axes=-1, **options), operands("any"), shapes, FLOATS,
        lambda x: _resized(x, x.ndim - 1, **expected), case, twice=twice,
    )  # fmt: skip


_RESIZE_OPTIONS = [
    *(
        _resize_row(f"nearest-{rounding}", {"lengths": 4, "mode": "nearest", "rounding": rounding,
                                            "coordinates": "asymmetric"},
                    {"m": 4, "mode": "nearest", "rounding": rounding, "coordinates": "asymmetric"},
                    (((2, 6),),))
        for rounding in _ROUNDED
    ),
    _resize_row("scale", {"scales": 1.5, "mode": "linear"}, {"m": 7, "scale": 1.5}),
    _resize_row("scale-down", {"scales": 0.7, "coordinates": "asymmetric"},
                {"m": 3, "scale": 0.7, "coordinates": "asymmetric"}),
    _resize_row("scale-only", {"scales": 1.1}, {"m": 5, "scale": 1.1}),
    _resize_row("pytorch", {"lengths": 3, "coordinates": "pytorch_half_pixel"},
                {"m": 3, "coordinates": "pytorch_half_pixel"}),
    _resize_row("pytorch-one", {"lengths": 1, "coordinates": "pytorch_half_pixel"},
                {"m": 1, "coordinates": "pytorch_half_pixel"}),
    _resize_row("unchanged", {"lengths": 5, "mode": "cubic"}, {"m": 5, "mode": "cubic"}),
    _resize_row("coefficient", {"lengths": 7, "mode": "cubic", "cubic_coefficient": -0.5},
                {"m": 7, "mode": "cubic", "a": -0.5}),
    _resize_row("antialias", {"lengths": 3, "antialias": True}, {"m": 3, "antialias": True},
                (((2, 8),),), twice=True),
    _resize_row("antialias-cubic", {"lengths": 3, "antialias": True, "mode": "cubic"},
                {"m": 3, "antialias": True, "mode": "cubic"}, (((2, 8),),)),
    _resize_row("antialias-up", {"lengths": 9, "antialias": True}, {"m": 9, "antialias": True}),
    _resize_row("antialias-cubic-up", {"lengths": 9, "antialias": True, "mode": "cubic"},
                {"m": 9, "antialias": True, "mode": "cubic"}),
    _resize_row("lanczos", {"lengths": 7, "mode": "lanczos3"}, {"m": 7, "mode": "lanczos3"}),
    _resize_row("antialias-lanczos", {"lengths": 3, "antialias": True, "mode": "lanczos3"},
                {"m": 3, "antialias": True, "mode": "lanczos3"}, (((2, 8),),)),
    Row("resize", lambda x: weft.resize(x, (3, 5)), operands("any"), (((H, N, W),),), NUMBERS,
        lambda x: _resized(_resized(x, 0, 3), 2, 5), "named"),
    Row("resize", lambda x: weft.resize(x, 2, mode="nearest", axes="C"), operands("any"),
        (((N, C),),), NUMBERS, lambda x: _resized(x, 1, 2, "nearest"), "named-axis"),
    Row("resize", lambda x: weft.resize(x, scales=(2, 1, 0.5)), operands("any"),
        (((1, 1, 2, 2, 4),), ((0, 1, 1, 1, 2),)), NUMBERS,
        lambda x: _resized(_resized(x, 2, 4), 4, 2), "volume"),
    Row("resize", lambda x: weft.resize(x * x, (3, 3)), operands("any"), (((1, 1, 2, 2),),), FLOATS,
        lambda x: _resized(_resized(x * x, 2, 3), 3, 3), "squares", twice=True),
]  # fmt: skip


def _reflected(place: float, low: float, high: float) -> float:
    while high > low and not low <= place <= high:
        place = 2 * low - place if place < low else 2 * high - place
    return place if high > low else 0.0


def _padded(image: Array, index: Sequence[int], padding: str, align: bool) -> Any:
    """Return the element of an image at an index that may be outside."""
    found = []
    for i, n in zip(index, image.shape[1:], strict=True):
        if padding == "zeros" and not 0 <= i < n:
            return np.zeros(image.shape[0])
        if padding == "reflection":
            i = round(_reflected(i, 0 if align else -0.5, n - 1 if align else n - 0.5))
        found.append(min(max(i, 0), n - 1))
    return image[(slice(None), *found)]


def _at(image: Array, coordinates: Array, mode: str, padding: str, align: bool) -> Any:
    """Return an image (C, spatial) sampled at a point."""
    lengths = image.shape[1:]
    places = []
    for g, n in zip(coordinates[::-1], lengths, strict=True):
        place = (g + 1) / 2 * (n - 1) if align else (g + 1) * n / 2 - 0.5
        if padding == "reflection":
            place = _reflected(place, 0 if align else -0.5, n - 1 if align else n - 0.5)
        is_free = padding == "zeros" or mode == "bicubic"
        places.append(place if is_free else min(max(place, 0), n - 1))
    total = np.zeros(image.shape[0])
    if mode == "bicubic":
        around = [range(math.floor(place) - 1, math.floor(place) + 3) for place in places]
        for tap in itertools.product(*around):
            pairs = zip(tap, places, strict=True)
            share = math.prod(_cubic(i - place, -0.75) for i, place in pairs)
            total += share * _padded(image, tap, padding, align)
        return total
    for corner in itertools.product((0, 1), repeat=len(lengths)):
        index = [math.floor(place) + bit for place, bit in zip(places, corner, strict=True)]
        share = math.prod(1 - abs(i - place) for i, place in zip(index, places, strict=True))
        if mode == "nearest":
            index, share = [round(place) for place in places], float(not any(corner))
        if all(0 <= i < n for i, n in zip(index, lengths, strict=True)):
            total += share * image[(slice(None), *index)]
    return total


def _sampled(
    x: Array, grid: Array, mode: str = "bilinear", padding: str = "zeros", align: bool = False
) -> Any:
    result = np.zeros((*x.shape[:2], *grid.shape[1:-1]))
    for n, *at in np.ndindex(*grid.shape[:-1]):
        result[(n, slice(None), *at)] = _at(x[n], grid[(n, *at)], mode, padding, align)
    return result


_SAMPLED: Shapes = (
    ((1, 1, 3, 4), (1, 1, 3, 2)),
    ((2, 1, 1, 2), (2, 1, 2, 2)),
    ((0, 1, 2, 2), (0, 1, 1, 2)),
)


def _grid_rows() -> list[Row]:
    rows = []
    for mode, padding, align in itertools.product(
        ("bilinear", "nearest"), ("zeros", "border", "reflection"), (False, True)
    ):
        options = {"mode": mode, "padding": padding}
        is_smooth = mode == "bilinear"
        images = Operand("any", differentiable=is_smooth or padding == "zeros")
        places = Operand("any", differentiable=is_smooth)
        rows.append(
            Row("grid_sample",
                lambda x, g, o=options, a=align: weft.grid_sample(x, g, **o, align_corners=a),
                (images, places), _SAMPLED, FLOATS,
                lambda x, g, o=options, a=align: _sampled(x, g, **o, align=a),
                f"{mode}-{padding}-{'corners' if align else 'edges'}",
                twice=is_smooth and not align, is_generic=is_smooth)
        )  # fmt: skip
    return rows


_SAME = weft.constant([[[1, 0, 0], [0, 1, 0]]])

_GRIDS = [
    Row("grid_sample", weft.grid_sample, operands("any", "any"), (((2, 2, 4), (2, 3, 1)),), FLOATS,
        _sampled, "line"),
    Row("grid_sample", weft.grid_sample, operands("any", "any"),
        (((1, 1, 2, 1, 2), (1, 1, 1, 2, 3)),), FLOATS, _sampled, "volume"),
    *(
        Row("grid_sample",
            lambda x, g, p=padding, a=align: weft.grid_sample(x, g, "bicubic", p, a),
            operands("any", "any"), (((2, 2, 4), (2, 3, 1)), ((1, 1, 1), (1, 2, 1))), FLOATS,
            lambda x, g, p=padding, a=align: _sampled(x, g, "bicubic", p, a),
            f"bicubic-{padding}-{'corners' if align else 'edges'}", twice=padding == "zeros")
        for padding, align in (("zeros", False), ("border", True), ("reflection", False),
                               ("reflection", True))
    ),
    Row("grid_sample", lambda x, g: weft.grid_sample(x, g, "bicubic"), operands("any", "any"),
        (((1, 1, 3, 4), (1, 1, 2, 2)), ((0, 1, 2, 2), (0, 1, 1, 2))), FLOATS,
        lambda x, g: _sampled(x, g, "bicubic"), "bicubic"),
    Row("grid_sample", lambda x, g: weft.grid_sample(x, g * 1e30), (FIXED, FIXED),
        (((1, 2, 3, 4), (1, 2, 2, 2)),), FLOATS, lambda x, g: np.zeros((1, 2, 2, 2)), "far",
        is_generic=False),
    Row("grid_sample", lambda x, g: weft.grid_sample(x > 0, g), (FIXED, Operand("any")),
        (((1, 2, 3, 4), (1, 2, 3, 2)),), ("float32",), lambda x, g: _sampled(x > 0, g), "bool"),
    Row("affine_grid", lambda t: weft.affine_grid(t, (2, 3)), operands("any"),
        (((2, 2, 3),), ((0, 2, 3),)), NUMBERS,
        lambda t: np.einsum("nij,hwj->nhwi", t,
                            [[[x, y, 1] for x in (-2 / 3, 0, 2 / 3)] for y in (-0.5, 0.5)]),
        "edges", twice=True),
    Row("affine_grid", lambda t: weft.affine_grid(t, (3, 1), align_corners=True), operands("any"),
        (((2, 2, 3),),), NUMBERS,
        lambda t: np.einsum("nij,hwj->nhwi", t, [[[0, y, 1]] for y in (-1, 0, 1)]), "corners"),
    Row("affine_grid", lambda t: weft.affine_grid(t, (1, 2, 2)), operands("any"), (((1, 3, 4),),),
        FLOATS, lambda t: np.einsum("nij,dhwj->ndhwi", t, [[[[x, y, 0, 1] for x in (-0.5, 0.5)]
                                                            for y in (-0.5, 0.5)]]), "volume"),
    Row("affine_grid", lambda x: weft.grid_sample(x, weft.affine_grid(_SAME, (4, 2))),
        operands("any"), (((1, 2, 4, 2),),), FLOATS, np.asarray, "sampled"),
]  # fmt: skip


def _shuffled(x: Array, r: int) -> Any:
    n, channels, *lengths = x.shape
    block = r ** len(lengths)
    result = np.zeros((n, channels // block, *(length * r for length in lengths)), x.dtype)
    for channel in range(channels):
        inside = np.unravel_index(channel % block, [r] * len(lengths))
        where = tuple(slice(int(i), None, r) for i in inside)
        result[(slice(None), channel // block, *where)] = x[:, channel]
    return result


_SHUFFLES: list[tuple[int, Shapes]] = [
    (2, (((1, 8, 2, 3),), ((2, 4, 1, 1),), ((0, 4, 2, 2),))),
    (3, (((2, 3, 2),),)),
    (1, (((1, 2, 2, 3),),)),
    (2, (((1, 8, 1, 2, 1),),)),
]

_SHUFFLE_ROWS = [
    row
    for number, (r, shapes) in enumerate(_SHUFFLES)
    for row in (
        Row("pixel_shuffle", lambda x, r=r: weft.pixel_shuffle(x, r), operands("any"), shapes, ALL,
            lambda x, r=r: _shuffled(x, r), f"{number}"),
        Row("pixel_unshuffle", lambda x, r=r: weft.pixel_unshuffle(weft.pixel_shuffle(x, r), r),
            operands("any"), shapes, ALL, np.asarray, f"{number}-undone"),
    )
]  # fmt: skip

_UNSHUFFLED = Row(
    "pixel_unshuffle", lambda x: weft.pixel_unshuffle(x, 2), operands("any"),
    (((1, 2, 2, 4),),), ALL,
    lambda x: np.stack([x[:, c, i::2, j::2] for c in (0, 1) for i in (0, 1) for j in (0, 1)], 1),
    "plain",
)  # fmt: skip

ROWS: tuple[Row, ...] = (
    *_resize_rows(),
    *_RESIZE_OPTIONS,
    *_grid_rows(),
    *_GRIDS,
    *_SHUFFLE_ROWS,
    _UNSHUFFLED,
)


def _images(*shape: Any, dtype: str = "float32") -> Any:
    return weft.placeholder(shape, dtype)


def _resize_refusals() -> list[Refusal]:
    wrong: list[tuple[str, dict[str, Any], Any, str]] = [
        ("nothing", {}, ArgumentError, "either lengths or scales"),
        ("both", {"lengths": 2, "scales": 2}, ArgumentError, "either lengths or scales"),
        ("zero", {"lengths": 0}, ArgumentError, "lengths must be"),
        ("count", {"lengths": (2, 2, 2)}, ArgumentError, "a list of 2"),
        ("scale-count", {"scales": (2, 2, 2)}, ArgumentError, "3 scales for 2 axes"),
        ("negative-scale", {"scales": -1}, ArgumentError, "a scale must be"),
        ("small-scale", {"scales": 0.1}, AxesError, "leave nothing"),
        ("mode", {"lengths": 2, "mode": "bilinear"}, ArgumentError, "mode must be one of"),
        ("no-mode", {"lengths": 2, "mode": None}, ArgumentError, "mode must be one of"),
        ("coordinates", {"lengths": 2, "coordinates": "pixel"}, ArgumentError, "coordinates must"),
        ("rounding", {"lengths": 2, "rounding": "even"}, ArgumentError, "rounding must be one of"),
        ("antialias", {"lengths": 2, "antialias": True, "mode": "nearest"},
         ArgumentError, "not available"),
        ("axis", {"lengths": 2, "axes": 4}, AxesError, "out of range"),
        ("coefficient", {"lengths": 2, "mode": "cubic", "cubic_coefficient": "a"},
         ArgumentError, "cubic_coefficient must be"),
    ]  # fmt: skip

    def refusal(case: str, options: dict[str, Any], error: type[WeftError], words: str) -> Refusal:
        return Refusal(
            "resize", case, lambda: weft.resize(_images(1, 2, 4, 4), **options), error, words
        )

    return [refusal(*each) for each in wrong]


REFUSALS: tuple[Refusal, ...] = (
    *_resize_refusals(),
    Refusal("resize", "no-space", lambda: weft.resize(_images(2, 3), 2), AxesError, "no spatial"),
    Refusal("resize", "no-axis", lambda: weft.resize(_images(1, 2, 3), 2, axes=5),
            AxesError, "resize: dimension 5"),
    Refusal("resize", "named", lambda: weft.resize(_images(N, C), 2), AxesError, "no spatial"),
    Refusal("resize", "unknown", lambda: weft.resize(_images(1, 2, weft.symbol("n")), 2),
            AxesError, "must be known"),
    Refusal("resize", "empty", lambda: weft.resize(_images(1, 2, 0), 2), AxesError, "not 0"),
    Refusal("grid_sample", "rank", lambda: weft.grid_sample(_images(2, 3), _images(2, 3)),
            AxesError, "N, C, 1 to 3 spatial"),
    Refusal("grid_sample", "grid-rank",
            lambda: weft.grid_sample(_images(1, 2, 3, 3), _images(1, 3, 2)), AxesError, "as many"),
    Refusal("grid_sample", "batch",
            lambda: weft.grid_sample(_images(1, 2, 3, 3), _images(2, 3, 3, 2)),
            AxesError, "2 coordinates"),
    Refusal("grid_sample", "coordinates",
            lambda: weft.grid_sample(_images(1, 2, 3, 3), _images(1, 3, 3, 3)),
            AxesError, "2 coordinates"),
    Refusal("grid_sample", "empty",
            lambda: weft.grid_sample(_images(1, 2, 0, 3), _images(1, 3, 3, 2)),
            AxesError, "not 0"),
    Refusal("grid_sample", "mode",
            lambda: weft.grid_sample(_images(1, 2, 3), _images(1, 3, 1), "cubic"),
            ArgumentError, "mode must be one of bilinear, bicubic, nearest"),
    Refusal("grid_sample", "padding",
            lambda: weft.grid_sample(_images(1, 2, 3), _images(1, 3, 1), padding=0),
            ArgumentError, "padding must be one of"),
    Refusal("grid_sample", "complex",
            lambda: weft.grid_sample(_images(1, 2, 3, dtype="complex64"), _images(1, 3, 1)),
            DTypeError, "complex"),
    Refusal("affine_grid", "axes", lambda: weft.affine_grid(_images(1, 2, 2), (2, 2)),
            AxesError, "theta must have the axes"),
    Refusal("affine_grid", "lengths", lambda: weft.affine_grid(_images(1, 2, 3), (2, 0)),
            ArgumentError, "lengths must be"),
    Refusal("affine_grid", "named", lambda: weft.affine_grid(_images(N, C), 2),
            AxesError, "theta must have the axes"),
    Refusal("pixel_shuffle", "rank", lambda: weft.pixel_shuffle(_images(4, 2), 2),
            AxesError, "N, C, 1 to 3 spatial"),
    Refusal("pixel_shuffle", "channels", lambda: weft.pixel_shuffle(_images(1, 6, 2, 2), 2),
            AxesError, "blocks of 4"),
    Refusal("pixel_shuffle", "factor", lambda: weft.pixel_shuffle(_images(1, 4, 2, 2), 0),
            ArgumentError, "factor must be"),
    Refusal("pixel_unshuffle", "lengths", lambda: weft.pixel_unshuffle(_images(1, 4, 2, 3), 2),
            AxesError, "do not divide"),
    Refusal("pixel_unshuffle", "factor", lambda: weft.pixel_unshuffle(_images(1, 4, 2, 2), 1.5),
            ArgumentError, "factor must be"),
)  # fmt: skip
