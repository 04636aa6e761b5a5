"""Cases of ops on images: windows, resampling, regions, normalization of channels."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx_cases import IMAGE, X3, Case, always, below, numbers, positive, whole


def pools(**more: Any) -> list[Case]:
    """Return the cases of a pooling of images."""
    return [
        Case(
            always(IMAGE), {"kernel_shape": [3, 2], **more},
            {"strides": [None, [2, 1], [2, 3]], "pads": [None, [1, 0, 1, 1], [0, 0, 2, 1]],
             "dilations": [None, [1, 2]]},
        ),
        Case(
            always(numbers(1, 2, 7)), {"kernel_shape": [2], **more},
            {"strides": [None, [2], [3]], "pads": [None, [1, 0]], "dilations": [None, [2]]},
        ),
        Case(
            always(numbers(1, 2, 4, 3, 5)), {"kernel_shape": [2, 2, 3], **more},
            {"strides": [None, [2, 2, 2]]},
        ),
    ]  # fmt: skip


def convolution(*operands: Any) -> Case:
    """Return the case of a convolution of images."""
    return Case(
        always(*operands), {},
        {"strides": [None, [2, 1], [3, 2]], "pads": [None, [1, 0, 2, 1]],
         "dilations": [None, [1, 2]]},
    )  # fmt: skip


def resize_cases() -> list[Case]:
    """Return the cases of Resize, by scales and by sizes, enlarging and reducing."""
    x = numbers(1, 2, 5, 4)
    roi = np.array([0, 0, 0.125, 0.25, 1, 1, 0.75, 1.125], np.float32)
    empty = np.zeros(0, np.float32)
    found = [
        Case(always(x, np.array([1, 1, *each], np.float32)), until=10)
        for each in ((2.0, 1.5), (0.75, 0.5), (1.0, 2.5))
    ]
    for each in ((2.0, 1.5), (0.75, 0.5), (0.25, 2.5), (3.0, 0.25)):
        scales = np.array([1, 1, *each], np.float32)
        found.append(Case(always(x, roi, scales), {}, {
            "cubic_coeff_a": [None, -0.5], "extrapolation_value": [None, 7.0],
        }, since=11))  # fmt: skip
    for sizes in ((1, 2, 10, 7), (1, 2, 3, 2), (1, 2, 1, 9), (1, 2, 7, 1)):
        # Lengths of all axes leave no ratio to keep.
        found.append(Case(
            always(x, roi, empty, whole(*sizes)), {}, {"keep_aspect_ratio_policy": [None]},
            since=11,
        ))  # fmt: skip
        found.append(Case(
            always(x, np.concatenate([roi[2:4], roi[6:]]), None, whole(*sizes[2:])),
            {"axes": [2, 3]}, since=18,
        ))  # fmt: skip
    return found


CASES: dict[str, list[Case]] = {
    "AffineGrid": [
        Case(always(numbers(2, 2, 3), whole(2, 3, 4, 5))),
        Case(always(numbers(2, 3, 4), whole(2, 3, 4, 5, 2))),
    ],
    "GridSample": [
        Case(lambda v: [IMAGE, numbers(2, 3, 4, 2) * 0.6]),
        Case(lambda v: [numbers(1, 2, 3, 4, 5), numbers(1, 2, 3, 2, 3) * 0.6], since=20),
    ],
    "Resize": resize_cases(),
    "Upsample": [
        Case(always(IMAGE), {"scales": [1.0, 1.0, *each]}, since=7, until=8)
        for each in ((2.0, 2.0), (1.5, 2.5))
    ] + [Case(always(IMAGE, np.array([1, 1, 2, 1.5], np.float32)), since=9)]
      + [Case(always(IMAGE), {"height_scale": 2.0, "width_scale": 1.5}, until=6)],
    "AveragePool": pools(),
    "MaxPool": [
        *pools(),
        *(Case(c.operands, c.fixed, c.varied, since=8, outputs=2) for c in pools()),
        Case(always(below(200, 1, 2, 5, 4, dtype="uint8")), {"kernel_shape": [2, 2]},
             {"pads": [None, [1, 1, 0, 0]]}, since=12),
        Case(always(-below(120, 1, 2, 5, 4, dtype="int8")), {"kernel_shape": [2, 2]},
             {"pads": [None, [1, 1, 0, 0]]}, since=12),
    ],
    "LpPool": [*pools(p=2), *pools(p=1), *pools(p=3)],
    "Conv": [
        convolution(IMAGE, numbers(6, 4, 3, 2), numbers(6)),
        convolution(IMAGE, numbers(2, 4, 1, 2)),
        Case(always(numbers(2, 4, 7), numbers(6, 2, 3)), {"group": 2}, {"strides": [None, [2]]}),
    ],
    "ConvInteger": [
        convolution(below(9, 2, 3, 6, 5, dtype="uint8"), below(9, 4, 3, 3, 2, dtype="uint8"),
                    np.array(3, np.uint8)),
    ],
    "QLinearConv": [
        convolution(
            below(99, 2, 3, 6, 5, dtype="uint8"), np.float32(0.1), np.uint8(7),
            below(99, 4, 3, 3, 2, dtype="uint8"), np.float32(0.05), np.uint8(9),
            np.float32(0.7), np.uint8(11),
        ),
    ],
    "ConvTranspose": [
        Case(always(IMAGE, numbers(4, 3, 3, 2), numbers(3)), {}, {
            "strides": [None, [2, 1], [3, 2]], "pads": [None, [1, 0, 2, 1]],
            "dilations": [None, [1, 2]], "output_padding": [None, [1, 1]],
        }),
        Case(always(IMAGE, numbers(4, 3, 3, 2)), {"strides": [3, 2]},
             {"output_shape": [[18, 11], [20, 12], [17, 9]]}),
    ],
    "NonMaxSuppression": [
        Case(always(
            positive(2, 8, 4), np.abs(numbers(2, 3, 8)), whole(3), np.array([0.3], np.float32),
            np.array([0.4], np.float32),
        )),
        Case(always(positive(1, 6, 4), np.abs(numbers(1, 1, 6)), whole(9))),
        Case(always(positive(1, 6, 4), np.abs(numbers(1, 1, 6)))),
    ],
    "BatchNormalization": [
        Case(always(IMAGE, positive(4), numbers(4), numbers(4, seed=1), positive(4, seed=1)),
             {}, {"momentum": [None, 0.6], "epsilon": [None, 0.1], "spatial": [None, 1]}, since=7),
        Case(always(IMAGE, positive(4), numbers(4), numbers(4, seed=1), positive(4, seed=1)),
             {}, {"momentum": [None, 0.6], "spatial": [None, 1]}, since=7, until=13, outputs=5),
        Case(always(IMAGE, positive(4, 6, 5), numbers(4, 6, 5), numbers(4, 6, 5, seed=1),
                    positive(4, 6, 5, seed=1)), {"spatial": 0}, since=7, until=8, outputs=5),
        Case(always(IMAGE, positive(4), numbers(4), numbers(4, seed=1), positive(4, seed=1)),
             {"training_mode": 1}, {"momentum": [None, 0.6]}, since=14, outputs=3),
        Case(always(IMAGE, positive(4, 6, 5), numbers(4, 6, 5), numbers(4, 6, 5, seed=1),
                    positive(4, 6, 5, seed=1)), {"spatial": 0}, since=7, until=8),
        Case(always(IMAGE, positive(4), numbers(4), numbers(4, seed=1), positive(4, seed=1)),
             {"is_test": 1, "spatial": 1}, until=6),
    ],
    "CausalConvWithState": [
        Case(always(numbers(2, 3, 6), numbers(3, 1, 4), numbers(3), numbers(2, 3, 3)), outputs=2),
        Case(always(numbers(2, 3, 6), numbers(3, 1, 4)), outputs=2),
    ],
    "RoiAlign": [
        Case(always(IMAGE, np.array([[0, 0, 4, 5], [1, 0.5, 3, 4]], np.float32), whole(0, 1)),
             {"output_height": 2, "output_width": 3}, {"sampling_ratio": [None, 2],
             "spatial_scale": [None, 0.5]}, since=10),
    ],
    "DepthToSpace": [Case(always(numbers(2, 8, 3, 2)), {"blocksize": 2})],
    "SpaceToDepth": [Case(always(numbers(2, 3, 6, 4)), {"blocksize": 2})],
    "Pad": [
        Case(always(X3), {"pads": [0, 1, 2, 0, 0, 1]}, {"value": [None, 1.5]}, until=10),
        Case(always(X3), {"pads": [0, -1, 2, 0, 1, -1]}, until=10),
        Case(always(X3, whole(0, 1, 2, 0, 0, 1), np.float32(3)), since=11),
        Case(always(X3, whole(0, 1, 2, 0, 2, 3)), since=11),
        Case(always(X3, whole(0, -1, 2, 0, 1, -1)), since=11),
        Case(always(below(9, 2, 3), whole(0, 1, 1, 2), np.int64(7)), since=11),
        Case(always(X3, whole(2, 1), np.float32(3), whole(-1)), since=18),
    ],
    "GroupNormalization": [
        Case(always(IMAGE, positive(4), numbers(4)), {"num_groups": 2}, since=21),
        Case(always(IMAGE, positive(4), numbers(4)), {"num_groups": 4}),
        Case(always(*(each.astype("float16") for each in (IMAGE, positive(4), numbers(4)))),
             {"num_groups": 2}, since=21, tolerance=4e-3),
    ],
}  # fmt: skip
"""By op of the default domain."""
