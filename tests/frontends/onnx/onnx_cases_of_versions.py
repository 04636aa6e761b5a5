"""Cases of ops without closed sets, whose meaning, operands or attributes differ among versions."""

from __future__ import annotations

import numpy as np
from onnx_cases import IMAGE, SPECIAL, X3, Case, always, below, numbers, positive, whole

S = SPECIAL

CASES: dict[str, list[Case]] = {
    "Softmax": [Case(always(X3), {}, {"axis": [None, 0, 1, 2, -1, -2]})],
    "LogSoftmax": [Case(always(X3), {}, {"axis": [None, 0, 1, 2, -1, -2]})],
    "Hardmax": [Case(always(np.round(X3)), {}, {"axis": [None, 0, 1, 2, -1, -2]})],
    "Clip": [
        Case(always(S), {}, {"min": [None, -2.0], "max": [None, 3.0]}, until=10),
        Case(always(S), since=11),
        Case(always(S, np.float32(-1)), since=11),
        Case(always(S, None, np.float32(1)), since=11),
        Case(always(S, np.float32(2), np.float32(-2)), since=11),
        Case(always(below(9, 5), np.int64(2), np.int64(5)), since=12),
    ],
    "Dropout": [
        Case(always(X3), {}, {"ratio": [None, 0.3]}, until=11, outputs=2, since=7),
        Case(always(X3), since=12, outputs=2),
        Case(always(X3, np.float32(0.3)), since=12, outputs=2),
        Case(always(X3), {"is_test": 1}, until=6, outputs=2),
    ],
    "Slice": [
        Case(
            always(X3),
            {"starts": [0, -3], "ends": [1, 1000]},
            {"axes": [None, [1, 2], [0, -1]]},
            until=9,
        ),
        Case(always(X3, whole(-1, 0), whole(-99, 2), whole(2, 1), whole(-1, 1)), since=10),
        Case(always(X3, whole(1), whole(2**62), whole(-1)), since=10),
        Case(always(X3, whole(5), whole(2), whole(1)), since=10),
        Case(always(X3, whole(-1), whole(-(2**63)), whole(1), whole(-2)), since=10),
    ],
    "Split": [
        Case(always(X3), {}, {"axis": [2, -1], "split": [None, [1, 3]]}, until=12, outputs=2),
        Case(always(X3, whole(1, 3)), {"axis": 2}, since=13, outputs=2),
        Case(always(numbers(2, 5)), {"axis": 1, "num_outputs": 2}, since=18, outputs=2),
        Case(always(numbers(2, 4)), {"axis": 1}, since=13, until=17, outputs=2),
    ],
    "Squeeze": [
        Case(always(numbers(1, 3, 1)), {}, {"axes": [None, [0], [-1], [0, 2]]}, until=12),
        Case(always(numbers(1, 3, 1), whole(-1)), since=13),
        Case(always(numbers(1, 3, 1)), since=13),
    ],
    "Unsqueeze": [
        Case(always(X3), {}, {"axes": [[0], [0, 4], [-1], [-1, 1]]}, until=12),
        Case(always(X3, whole(-1, 0)), since=13),
    ],
    "Flatten": [
        Case(always(X3), {}, {"axis": [None, 0, 1, 2, 3, -1, -2, -3]}),
        Case(always(np.float32(3)), {}, {"axis": [0]}),
    ],
    "Concat": [Case(always(X3, X3), {}, {"axis": [0, 1, -1]})],
    "Gather": [Case(always(X3, np.array([[0, -1], [1, 0]])), {}, {"axis": [None, 1, -1]})],
    "GatherElements": [
        Case(always(X3, below(2, 2, 1, 4)), {}, {"axis": [None, 0]}),
        Case(always(X3, below(3, 2, 3, 4) - 1), {"axis": -2}),
    ],
    "GatherND": [
        Case(always(X3, below(2, 2, 1)), {}, {"batch_dims": [None, 0]}),
        Case(always(X3, below(3, 2, 2)), {}),
        Case(always(X3, below(3, 2, 1)), {"batch_dims": 1}, since=12),
    ],
    "OneHot": [
        Case(
            always(np.array([0, -1, 3, 5, -6, -5]), np.int64(5), np.array([2, 7], np.float32)),
            {},
            {"axis": [None, 0, 1, -2]},
        ),
        Case(always(np.array([0.0, 1.0], np.float32), np.array([3]), np.array([0, 1])), {}),
    ],
    "Scatter": [
        Case(always(X3, below(2, 1, 3, 4), numbers(1, 3, 4)), {}, {"axis": [None, 0]}, until=10)
    ],
    "Tile": [Case(always(X3, whole(2, 1, 3)))],
    "Expand": [Case(always(numbers(3, 1), whole(2, 1, 4))), Case(always(X3, whole(1)))],
    "Sum": [Case(always(X3, X3, X3)), Case(always(X3, numbers(4)), since=8), Case(always(X3))],
    "Max": [
        Case(always(X3, -X3)),
        Case(always(S, S[::-1])),
        Case(always(below(9, 4), np.int64(4)), since=12),
    ],
    "Min": [Case(always(X3, -X3)), Case(always(S, S[::-1]))],
    "Mean": [Case(always(X3, -X3, X3)), Case(always(X3, numbers(4)), since=8)],
    "PRelu": [
        Case(always(X3, numbers(4)), since=7),
        Case(always(IMAGE, numbers(4, 1, 1)), since=7),
        Case(always(X3, numbers(3)), until=6),
        Case(always(X3, np.float32([0.3])), until=6),
    ],
    "LRN": [
        Case(always(IMAGE), {}, {"size": [1, 2, 3, 4], "alpha": [None, 0.5], "bias": [None, 2.0]})
    ],
    "InstanceNormalization": [
        Case(always(IMAGE, positive(4), numbers(4)), {}, {"epsilon": [None, 0.1]})
    ],
    "GlobalLpPool": [Case(always(IMAGE), {}, {"p": [None, 1, 2, 3]})],
    "GlobalAveragePool": [Case(always(IMAGE))],
    "ThresholdedRelu": [Case(always(S), {}, {"alpha": [None, 1.4]})],
    "Shrink": [
        Case(always(S), {}, {"lambd": [None, 1.4], "bias": [None, 0.5]}),
        Case(always(below(9, 5) - 4), {"lambd": 1.5, "bias": 0.5}),
    ],
    "HardSigmoid": [Case(always(S), {}, {"alpha": [None, 0.5], "beta": [None, 0.1]})],
    "Selu": [Case(always(S), {}, {"alpha": [None, 0.5], "gamma": [None, 2.0]})],
    "Elu": [Case(always(S), {}, {"alpha": [None, 0.5]})],
    "Celu": [Case(always(S), {}, {"alpha": [None, 0.5]})],
    "LeakyRelu": [Case(always(S), {}, {"alpha": [None, 0.5]})],
    "Pow": [
        Case(always(positive(3), below(3, 3)), since=12),
        Case(always(below(4, 3), numbers(3)), since=12),
        Case(always(below(4, 3, dtype="int32"), below(3, 3)), since=12),
        Case(always(positive(2, 3), numbers(3)), since=7),
    ],
    "Sign": [Case(always(S), since=9)],
    "Round": [Case(always(np.float32([0.5, 1.5, 2.5, -0.5, -1.5, 1.2])), since=11)],
    "Reciprocal": [Case(always(S))],
    "IsNaN": [Case(always(S), since=9)],
    "Where": [Case(always(X3 > 0, X3, numbers(4)), since=9)],
    "Compress": [
        Case(always(X3, np.array([True, False, True])), {}, {"axis": [None, 1, 2, -1]}, since=9)
    ],
    "NonZero": [Case(always(np.round(X3)), since=9)],
    "Transpose": [Case(always(X3), {}, {"perm": [None, [1, 2, 0], [2, 0, 1]]})],
    "Shape": [Case(always(X3), {}, {"start": [None, 1, -1, -9, 5], "end": [None, 2, -1, 9, -9]})],
    "Size": [Case(always(X3))],
    "ConstantOfShape": [Case(always(whole(2, 3)), since=9), Case(always(whole()), since=9)],
    "Einsum": [
        Case(
            always(X3, numbers(4, 5)),
            {},
            {
                "equation": [
                    "ijk,kl->ijl",
                    "...k,kl->...l",
                    "ijk,kl",
                    "ijk , kl -> lji",
                    "IJK,KL->IL",
                    "ijk,kl->",
                ]
            },
            since=12,
        ),
        Case(
            always(numbers(3, 3)),
            {},
            {"equation": ["ii->i", "ii", "ij->ji", "ij->", "...ii->...i", "ij"]},
            since=12,
        ),
    ],
    "MaxUnpool": [
        Case(
            always(numbers(1, 1, 2, 2), np.array([[[[5, 7], [13, 15]]]])),
            {"kernel_shape": [2, 2], "strides": [2, 2]},
            {},
            since=9,
        ),
        Case(
            always(numbers(1, 1, 2, 2), np.array([[[[5, 7], [13, 15]]]]), whole(1, 1, 5, 5)),
            {"kernel_shape": [2, 2], "strides": [2, 2]},
            {},
            since=9,
        ),
    ],
    "Col2Im": [
        Case(
            always(numbers(1, 6, 12), whole(5, 5), whole(2, 3)),
            {},
            {"strides": [None], "pads": [None], "dilations": [None]},
            since=18,
        )
    ],
    "CenterCropPad": [
        Case(always(X3, whole(4, 2, 4)), since=18),
        Case(always(X3, whole(5, 2)), {}, {"axes": [[0, 2], [-1, 1]]}, since=18),
    ],
    "MeanVarianceNormalization": [
        Case(always(IMAGE), {}, {"axes": [None, [0, 2, 3], [1]]}, since=9)
    ],
}
"""By op of the default domain."""
