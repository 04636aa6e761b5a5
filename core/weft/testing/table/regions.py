"""Rows of the op table: features of boxes in images."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import weft
from weft.errors import ArgumentError, AxesError, DTypeError
from weft.ir.dtypes import Array
from weft.testing.table.rows import FLOATS, Refusal, Row, Shapes, operands

_IMAGES: Shapes = (((2, 3, 5, 6),),)
# Boxes inside, empty, partly outside the image, and far outside.
_BOXES = np.array(
    [[0.4, 0.7, 3.3, 3.9], [2.2, 1.1, 2.2, 1.1], [-3.7, -2.6, 9.3, 8.1], [20, 20, 30, 30]]
)
_WHERE = [1, 0, 1, 0]


def _sample(image: Any, y: float, x: float) -> Any:
    """Return an image (C, H, W) interpolated at a point."""
    height, width = image.shape[1:]
    if not (-1 <= y <= height and -1 <= x <= width):
        return 0 * image[:, 0, 0]
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    total: Any = 0
    for i in {math.floor(y), math.ceil(y)}:
        for j in {math.floor(x), math.ceil(x)}:
            total = total + (1 - abs(y - i)) * (1 - abs(x - j)) * image[:, i, j]
    return total


def _aligned(
    x: Any, boxes: Any, size: tuple[int, int], scale: float, ratio: int, aligned: bool
) -> Any:
    """Return the features of boxes, sample by sample."""
    result = np.zeros((len(boxes), x.shape[1], *size))
    for r, box in enumerate(np.asarray(boxes, np.float64)):
        x1, y1, x2, y2 = box * scale - (0.5 if aligned else 0)
        extent = [y2 - y1, x2 - x1] if aligned else [max(y2 - y1, 1), max(x2 - x1, 1)]
        steps = [n / (bins * ratio) for n, bins in zip(extent, size, strict=True)]
        for i, j in np.ndindex(size[0] * ratio, size[1] * ratio):
            y, across = y1 + (i + 0.5) * steps[0], x1 + (j + 0.5) * steps[1]
            share = _sample(x[_WHERE[r]], y, across) / ratio**2
            result[r, :, i // ratio, j // ratio] += share
    return result


def _row(case: str, size: tuple[int, int], scale: float, ratio: int, aligned: bool) -> Row:
    return Row(
        "roi_align",
        lambda x: weft.roi_align(x, _BOXES, _WHERE, size, scale, ratio, aligned),
        operands("any"), _IMAGES, FLOATS,
        lambda x: _aligned(x, _BOXES, size, scale, ratio, aligned), case,
    )  # fmt: skip


ROWS: tuple[Row, ...] = (
    _row("pixels", (2, 3), 1.0, 2, False),
    _row("aligned", (2, 3), 1.0, 2, True),
    _row("scaled", (3, 1), 0.5, 3, False),
    _row("one-sample", (1, 1), 1.0, 1, True),
    # No sample is at a pixel, where the derivative is discontinuous.
    Row("roi_align", lambda x, d: weft.roi_align(x, d * 1e-3 + _BOXES[:1], [1], (2, 2), 1.0, 2),
        operands("any", "any"), (((2, 3, 5, 6), (1, 4)),), FLOATS,
        lambda x, d: _aligned(x, d * 1e-3 + _BOXES[:1], (2, 2), 1.0, 2, False), "boxes",
        is_generic=False),
)  # fmt: skip


def _use(*shape: Any, boxes: Array = _BOXES, images: Any = _WHERE, **options: Any) -> Any:
    return weft.roi_align(
        weft.placeholder(shape), boxes, images, options.pop("size", (2, 2)), **options
    )


REFUSALS: tuple[Refusal, ...] = (
    Refusal("roi_align", "rank", lambda: _use(2, 3, 5), AxesError, "N, C, 2 spatial"),
    Refusal("roi_align", "empty", lambda: _use(2, 3, 0, 6), AxesError, "not 0"),
    Refusal("roi_align", "unknown", lambda: _use(2, 3, weft.symbol("h"), 6), AxesError, "known"),
    Refusal("roi_align", "boxes", lambda: _use(2, 3, 5, 6, boxes=_BOXES[:, :3]),
            AxesError, r"boxes must have the axes \(R, 4\)"),
    Refusal("roi_align", "images", lambda: _use(2, 3, 5, 6, images=[0, 1]),
            AxesError, "batch_indices must have the axes"),
    Refusal("roi_align", "float-images", lambda: _use(2, 3, 5, 6, images=[0.0, 1.0, 0.0, 1.0]),
            DTypeError, "must be integers"),
    Refusal("roi_align", "size", lambda: _use(2, 3, 5, 6, size=(2, 0)),
            ArgumentError, "output_size must be"),
    Refusal("roi_align", "ratio", lambda: _use(2, 3, 5, 6, sampling_ratio=0),
            ArgumentError, "sampling_ratio must be"),
    Refusal("roi_align", "scale", lambda: _use(2, 3, 5, 6, spatial_scale="1"),
            ArgumentError, "spatial_scale must be"),
)  # fmt: skip
