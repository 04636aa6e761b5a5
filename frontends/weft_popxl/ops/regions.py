"""Resampling of images, and features of regions of interest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import weft
from weft_popxl import dtypes
from weft_popxl.arguments import one_of, real, several, whole, wholes
from weft_popxl.building import apply, matching
from weft_popxl.data import as_tensor
from weft_popxl.errors import popart_exception, refuse_value
from weft_popxl.program import Tensor

__all__ = ["interpolate", "roi_align"]

_ROUNDINGS = {
    "round_prefer_floor": "half_down",
    "round_prefer_ceil": "half_up",
    "floor": "floor",
    "ceil": "ceil",
}
_COORDINATES = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]


def interpolate(
    t: Tensor,
    scale_factor: Sequence[float] = (1.0, 1.0, 1.0, 1.0),
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
    coordinate_transformation_mode: str = "half_pixel",
) -> Tensor:
    """Return t with each axis resized by a scale factor, a positive number.

    An axis of n elements gets floor(n * factor), and at least one. `mode` is ``nearest``,
    ``linear`` or ``cubic``; `nearest_mode`, for the first only, is ``round_prefer_floor``,
    ``round_prefer_ceil``, ``floor`` or ``ceil``. `coordinate_transformation_mode` is
    ``half_pixel``, ``pytorch_half_pixel``, ``align_corners`` or ``asymmetric``. Raises ValueError
    for any other value.
    """
    t = as_tensor(t)
    rounding = _ROUNDINGS[one_of("interpolate: nearest_mode", nearest_mode, list(_ROUNDINGS))]
    options: dict[str, Any] = {
        "mode": one_of("interpolate: mode", mode, ["nearest", "linear", "cubic"]),
        "coordinates": one_of(
            "interpolate: coordinate_transformation_mode",
            coordinate_transformation_mode,
            _COORDINATES,
        ),
        "rounding": rounding,
    }
    given = several("interpolate: scale_factor", scale_factor)
    factors = [real("interpolate: a scale factor", factor) for factor in given]
    lengths = zip(t.shape, factors, strict=False)
    if len(factors) != t.rank or not all(1 <= n * factor < np.inf for n, factor in lengths if n):
        refuse_value(
            f"interpolate takes a positive scale factor for each of the {t.rank} axes of {t!r}, "
            f"which leaves at least one element, not {factors}"
        )
    axes = [axis for axis, factor in enumerate(factors) if factor != 1]
    scales = [factors[axis] for axis in axes]

    def function(x: weft.TensorOp) -> Any:
        return weft.resize(x, scales=scales, axes=axes, **options) if axes else x

    return apply("interpolate", function, t)


def roi_align(
    t: Tensor,
    rois: Tensor,
    batch_index: Tensor,
    output_size: Sequence[int],
    spatial_scale: float,
    sampling_ratio: int,
) -> Tensor:
    """Return the features of regions of images (N, C, H, W), averaged over a grid of bins.

    `rois` (regions, 4) has rows x1, y1, x2, y2, which `spatial_scale` converts to coordinates of t,
    and `batch_index` (regions,) the image of each. `output_size` is the height and width of the
    result (regions, C, height, width). Each bin is the mean of `sampling_ratio` samples along both
    axes.
    """
    t, boxes = matching("roi_align", t, rois)
    images = as_tensor(batch_index, dtypes.int32)
    if not images.dtype.is_int:
        raise popart_exception(f"roi_align: batch_index holds integers, unlike {images!r}")
    size = wholes("roi_align: output_size", output_size, least=1)
    scale = real("roi_align: spatial_scale", spatial_scale)
    ratio = whole("roi_align: sampling_ratio", sampling_ratio, least=1)
    return apply(
        "roi_align",
        lambda x, where, index: weft.roi_align(x, where, index, size, scale, ratio),
        t,
        boxes,
        images,
    )
