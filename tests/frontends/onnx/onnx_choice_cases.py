"""Nodes for each attribute with a closed set of values: operands, and what else is varied."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from onnx import TensorProto, helper

Operands = Callable[[int], Sequence[Any]]


@dataclass(frozen=True)
class Case:
    """Operands and attributes of an op.

    Attributes
    ----------
    operands
        Arrays in order, for an opset; None for one that is left out.
    fixed
        Attributes that every node has.
    varied
        Values to try of attributes without a closed set, or of those whose values are lists; None
        leaves the attribute out.
    since, until
        The opsets for which the operands fit.
    outputs
        The number of results.
    tolerance
        What results may differ by, relative and absolute.
    """

    operands: Operands
    fixed: Mapping[str, Any] = field(default_factory=dict)
    varied: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    since: int = 6
    until: int = 99
    outputs: int = 1
    tolerance: float = 2e-5


def numbers(*shape: int, dtype: str = "float32", seed: int = 0) -> Any:
    """Return random numbers about zero."""
    found = np.random.default_rng([seed, *shape]).standard_normal(shape) * 2
    return found.astype(dtype)


def positive(*shape: int, seed: int = 0) -> Any:
    """Return random numbers between a half and two."""
    return np.random.default_rng([seed, *shape]).uniform(0.5, 2, shape).astype("float32")


def below(limit: int, *shape: int, dtype: str = "int64", seed: int = 0) -> Any:
    """Return random integers from 0 to below a limit."""
    return np.random.default_rng([seed, *shape]).integers(0, limit, shape).astype(dtype)


def whole(*values: int) -> Any:
    """Return a vector of int64."""
    return np.array(values, np.int64)


def always(*operands: Any) -> Operands:
    """Return operands that are the same in each opset."""
    return lambda opset: operands


def reduction(op: str) -> list[Case]:
    """Return the cases of a reduction: its axes as attribute or as operand, given or not."""
    x = positive(2, 3, 4)
    by_operand = 13 if op == "ReduceSum" else 18
    return [
        Case(always(x), {}, {"axes": [None, [1], [0, -1]]}, until=by_operand - 1),
        Case(always(x), since=by_operand),
        Case(always(x, whole()), since=by_operand),
        Case(always(x, whole(1)), since=by_operand),
        Case(always(x, whole(0, -1)), since=by_operand),
    ]


def recurrent(gates: int, states: int, names: Sequence[Sequence[str]]) -> list[Case]:
    """Return cases of a recurrent network: directions, layouts, lengths, activations."""
    found = []
    steps, batch, size, hidden = 4, 2, 3, 5
    for count, directions in ((1, ["forward", "reverse"]), (2, ["bidirectional"])):
        w, r = (numbers(count, gates * hidden, n, seed=n) / 4 for n in (size, hidden))
        b = numbers(count, 2 * gates * hidden, seed=4) / 4
        peepholes = [numbers(count, 3 * hidden, seed=9) / 4] if states == 2 else []
        for layout in (0, 1):
            x = numbers(*((batch, steps) if layout else (steps, batch)), size, seed=1)
            shape = (batch, count, hidden) if layout else (count, batch, hidden)
            first = [numbers(*shape, seed=5 + n) / 2 for n in range(states)]
            for lengths in (None, np.array([4, 2], np.int32)):
                found.append(Case(
                    always(x, w, r, b, lengths, *first, *peepholes),
                    {"hidden_size": hidden, **({"layout": 1} if layout else {})},
                    {"direction": directions, "activations": [None, *(
                        list(each) * count for each in names
                    )], "clip": [None, 0.4]},
                    since=14 if layout else 7, outputs=1 + states,
                ))  # fmt: skip
    return found


X3 = numbers(2, 3, 4)
IMAGE = numbers(2, 4, 6, 5)
FLOAT8 = {
    number: helper.tensor_dtype_to_np_dtype(number)
    for number in (
        TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E4M3FNUZ, TensorProto.FLOAT8E5M2,
        TensorProto.FLOAT8E5M2FNUZ,
    )
}  # fmt: skip
SPECIAL = np.array(
    [0.0, -0.0, 1.4, -2.5, 3.5, 100.0, -300.0, 500.0, -1e6, 1e6, np.inf, -np.inf, np.nan, 2.0**-9],
    np.float32,
)
"""Numbers that conversions to few bits treat apart."""

PLAIN = np.array([0.0, 1.0, 1.5, 2.5, -1.0, -2.5, 100.0, -100.0], np.float32)
TEXTS = np.array(["b", "A", "stop", "Stop", "ä"], object)


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


def binary(kind: str) -> list[Case]:
    """Return the cases of an op of two tensors before it broadcast by NumPy's rules."""
    x, y = numbers(2, 3, 4), numbers(3, seed=1)
    if kind == "b":
        x, y = x > 0, y > 0
    return [
        Case(always(x, x), {}, {"axis": [None]}, until=6),
        Case(always(x, y), {"broadcast": 1}, {"axis": [1]}, until=6),
        Case(always(x, y[:1]), {"broadcast": 1}, {"axis": [None]}, until=6),
        Case(always(x, x[0, 0]), {"broadcast": 1}, {"axis": [None, 2]}, until=6),
    ]


def resize_cases() -> list[Case]:
    """Return the cases of Resize, by scales and by sizes, enlarging and reducing."""
    x = numbers(1, 2, 5, 4)
    roi = np.array([0, 0, 0.1, 0.2, 1, 1, 0.8, 1.1], np.float32)
    empty = np.zeros(0, np.float32)
    found = [
        Case(always(x, np.array([1, 1, *each], np.float32)), until=10)
        for each in ((2.0, 1.5), (0.6, 0.5), (1.0, 2.6))
    ]
    for each in ((2.0, 1.5), (0.6, 0.5), (0.2, 2.6), (3.0, 0.25)):
        scales = np.array([1, 1, *each], np.float32)
        found.append(Case(always(x, roi, scales), {}, {
            "cubic_coeff_a": [None, -0.5], "extrapolation_value": [None, 7.0],
        }, since=11))  # fmt: skip
    for sizes in ((1, 2, 10, 7), (1, 2, 3, 2), (1, 2, 1, 9), (1, 2, 7, 1)):
        found.append(Case(always(x, roi, empty, whole(*sizes)), since=11))
        found.append(Case(
            always(x, np.concatenate([roi[2:4], roi[6:]]), None, whole(*sizes[2:])),
            {"axes": [2, 3]}, since=18,
        ))  # fmt: skip
    return found


DEFAULT_DOMAIN: dict[str, list[Case]] = {
    "AffineGrid": [
        Case(always(numbers(2, 2, 3), whole(2, 3, 4, 5))),
        Case(always(numbers(2, 3, 4), whole(2, 3, 4, 5, 2))),
    ],
    "GridSample": [
        Case(lambda v: [IMAGE, numbers(2, 3, 4, 2) * 0.6]),
        Case(lambda v: [numbers(1, 2, 3, 4, 5), numbers(1, 2, 3, 2, 3) * 0.6], since=20),
    ],
    "Reshape": [
        Case(always(X3, whole(0, 12))), Case(always(X3, whole(0, -1, 2))),
        Case(always(numbers(0, 3), whole(3, 0))), Case(always(numbers(0, 3), whole(0, 7, 2))),
    ],
    "Resize": resize_cases(),
    "Upsample": [
        Case(always(IMAGE), {"scales": [1.0, 1.0, *each]}, since=7, until=8)
        for each in ((2.0, 2.0), (1.5, 2.5))
    ] + [Case(always(IMAGE, np.array([1, 1, 2, 1.5], np.float32)), since=9)]
      + [Case(always(IMAGE), {"height_scale": 2.0, "width_scale": 1.5}, until=6)],
    "ReverseSequence": [
        Case(always(numbers(4, 4, 2), whole(1, 4, 2, 3)),
             {}, {"batch_axis": [None, 1], "time_axis": [None, 0]}),
        Case(always(numbers(4, 4, 2), whole(1, 4, 2, 3)), {"batch_axis": 0, "time_axis": 1}),
    ],
    **{op: binary("f") for op in ("Add", "Sub", "Mul", "Greater", "Less")},
    **{op: binary("b") for op in ("And", "Or", "Xor")},
    "Div": [Case(always(numbers(2, 3), positive(3)), {"broadcast": 1}, {"axis": [None, 1]}, until=6)],
    "Pow": [Case(always(positive(2, 3), numbers(2)), {"broadcast": 1}, {"axis": [0]}, until=6)],
    "Equal": [Case(always(below(2, 2, 3), below(2, 3)), {"broadcast": 1}, {}, until=6)],
    "Gemm": [
        Case(always(numbers(3, 3), numbers(3, 3, seed=1), numbers(3, 3, seed=2)), {},
             {"alpha": [None, 0.5], "beta": [None, 2.0]}),
        Case(always(numbers(3, 3), numbers(3, 3, seed=1), numbers(3)), {"broadcast": 1}, until=6),
        Case(always(numbers(3, 3), numbers(3, 3, seed=1)), since=11),
        Case(always(numbers(3, 3), numbers(3, 3, seed=1), numbers(3, 1)), {}, since=7),
        Case(always(*(below(9, 3, 3, dtype="int32", seed=n) for n in range(3))), {}, since=9),
    ],
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
        convolution(IMAGE, numbers(6, 4, 3, 2), numbers(6)), convolution(IMAGE, numbers(2, 4, 1, 2)),
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
    "IsInf": [Case(always(SPECIAL))],
    "CumSum": [Case(always(X3, np.int64(1))), Case(always(X3, np.array([-1], np.int32)))],
    "CumProd": [Case(always(X3, np.int64(1))), Case(always(X3, np.int64(-3)))],
    "Mod": [
        Case(always(below(9, 12) - 4, np.array([3, -3] * 6)), since=10),
        Case(always(below(9, 12, dtype="int8") - 4, np.array([3, -3] * 6, np.int8)), since=10),
        Case(always(numbers(12), np.array([1.5, -1.5] * 6, np.float32)), since=10),
    ],
    "LSTM": recurrent(4, 2, [
        ("Tanh", "Sigmoid", "Relu"), ("HardSigmoid", "Softsign", "Softplus"),
        ("Affine", "ScaledTanh", "Elu"), ("LeakyRelu", "ThresholdedRelu", "Tanh"),
    ]),
    "GRU": recurrent(3, 1, [
        ("Tanh", "Sigmoid"), ("HardSigmoid", "Softsign"), ("Softplus", "Affine"),
        ("ScaledTanh", "Elu"), ("LeakyRelu", "ThresholdedRelu"), ("Relu", "relu"),
    ]),
    "RNN": recurrent(1, 1, [
        (each,) for each in (
            "Relu", "Tanh", "Sigmoid", "Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh",
            "HardSigmoid", "Elu", "Softsign", "Softplus",
        )
    ]),
    "RotaryEmbedding": [
        Case(always(numbers(2, 3, 4, 8), numbers(9, 4), numbers(9, 4, seed=1), below(9, 2, 4))),
        Case(always(numbers(2, 4, 24), numbers(9, 2), numbers(9, 2, seed=1), below(9, 2, 4)),
             {"num_heads": 3, "rotary_embedding_dim": 4}),
        Case(always(numbers(2, 3, 4, 8), numbers(2, 4, 4), numbers(2, 4, 4, seed=1))),
    ],
    "DFT": [
        Case(always(numbers(2, 6, 3, 1)), {}, {"axis": [None, 0, 2, -2]}, until=19),
        Case(always(numbers(2, 6, 3, 2), whole(4)[0]), {}, {"axis": [None, 2]}, until=19),
        Case(always(numbers(2, 6, 3, 2)), {}, {"axis": [None, 2]}, until=19),
        Case(always(numbers(2, 6, 3, 1), None, np.int64(1)), since=20),
        Case(always(numbers(2, 6, 3, 2)), since=20),
        Case(always(numbers(2, 6, 3, 2), whole(8)[0], np.int64(1)), since=20),
        Case(always(numbers(2, 6, 3, 1), whole(5)[0], np.int64(-3)), since=20),
    ],
    "STFT": [
        Case(always(numbers(2, 20, 1), np.int64(4), positive(8))),
        Case(always(numbers(2, 20, 1), np.int64(3), None, np.int64(6))),
        Case(always(numbers(2, 20, 2), np.int64(3), positive(6), np.int64(6))),
        Case(always(numbers(2, 20, 1), np.int64(3), positive(7))),
    ],
    "StringNormalizer": [
        Case(always(TEXTS), {}, {"stopwords": [None, ["stop"], ["b", "A", "stop", "Stop", "ä"]]}),
        Case(always(TEXTS[None]), {}, {"stopwords": [None, ["stop", "a"]]}),
    ],
    "Attention": [
        Case(always(numbers(2, 4, 3, 8), numbers(2, 2, 5, 8), numbers(2, 2, 5, 6)), {},
             {"softcap": [None, 2.0], "scale": [None, 0.3]}, outputs=4, since=23),
        Case(always(numbers(2, 3, 8), numbers(2, 5, 8, seed=1), numbers(2, 5, 8, seed=2),
                    numbers(3, 5) > -1), {"q_num_heads": 4, "kv_num_heads": 4}, outputs=4, since=23),
        Case(always(numbers(1, 2, 3, 4), numbers(1, 2, 5, 4), numbers(1, 2, 5, 4, seed=2), None,
                    numbers(1, 2, 2, 4), numbers(1, 2, 2, 4, seed=1)), outputs=4, since=23),
    ],
    **{op: [
        Case(always(np.array([[1, 3, 3], [2, 2, 1]], np.float32)), {}, {"axis": [None, 1, -1]}),
        Case(always(below(3, 2, 3, 4, dtype="int32")), {}, {"axis": [None, 1, -1]}),
    ] for op in ("ArgMax", "ArgMin")},
    "SplitToSequence": [
        Case(always(X3), {}, {"axis": [None, 1, -1]}),
        Case(always(X3, whole(1, 2)), {"axis": 1}), Case(always(X3, np.int64(3)), {"axis": 2}),
    ],
    **{op: reduction(op) for op in (
        "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
        "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare",
    )},
    "TopK": [
        Case(always(X3, whole(2)), {}, {"axis": [None, 0, 1]}, since=10, outputs=2),
        Case(always(below(3, 2, 9), whole(4)), {}, {"axis": [None, 1]}, since=11, outputs=2),
        Case(always(X3), {"k": 2}, {"axis": [None, 1]}, until=9, outputs=2),
    ],
    "Unique": [
        Case(always(np.array([3, 1, 3, 2, 1], np.float32)), outputs=4),
        Case(always(np.array([[2, 1, 2], [0, 5, 0]])), {}, {"axis": [None, 0, 1, -1]}, outputs=4),
    ],
    **{op: [Case(always(np.int64(each))) for each in (8, 9, 1)]
       for op in ("HannWindow", "HammingWindow", "BlackmanWindow")},
    "MelWeightMatrix": [
        Case(always(*(np.int64(n) for n in (8, 16, 8192)), np.float32(0), np.float32(4096))),
    ],
    "Cast": [
        Case(always(PLAIN)), Case(always(PLAIN > 0)), Case(always(below(9, 5))),
        Case(always(SPECIAL), {}, {"to": [1, 10, 11, 16, *FLOAT8, 23, 24, 25, 26]}),
        Case(always(SPECIAL.astype("float16")), {}, {"to": [1, 11, 16, *FLOAT8, 23, 24]}),
        Case(always(np.array(["1.5", "-3", "inf", "nan", "1e3"], object)), {}, {"to": [1, 10, 11]}),
        Case(always(np.array(["15", "-3", "100"], object)), {}, {"to": [3, 6, 7]}),
    ],
    "CastLike": [
        Case(always(SPECIAL, np.zeros(1, dtype)), since=19) for dtype in FLOAT8.values()
    ] + [
        Case(always(PLAIN, np.zeros(1, dtype))) for dtype in ("int8", "float16", "bool", "uint32")
    ] + [
        Case(always(SPECIAL, np.zeros(1, np.dtype(ml_dtypes.float8_e8m0fnu))), since=24),
    ],
    "BatchNormalization": [
        Case(always(IMAGE, positive(4), numbers(4), numbers(4, seed=1), positive(4, seed=1)),
             {}, {"momentum": [None, 0.6], "epsilon": [None, 0.1]}, since=7),
        Case(always(IMAGE, positive(4), numbers(4), numbers(4, seed=1), positive(4, seed=1)),
             {"training_mode": 1}, {"momentum": [None, 0.6]}, since=14, outputs=3),
        Case(always(IMAGE, positive(4, 6, 5), numbers(4, 6, 5), numbers(4, 6, 5, seed=1),
                    positive(4, 6, 5, seed=1)), {"spatial": 0}, since=7, until=8),
        Case(always(IMAGE, positive(4), numbers(4), numbers(4, seed=1), positive(4, seed=1)),
             {"is_test": 1}, until=6),
    ],
    "Trilu": [Case(always(numbers(2, 4, 5))), Case(always(numbers(4, 3), np.int64(-1))),
              Case(always(below(9, 3, 3), np.int64(1)))],
    "CausalConvWithState": [
        Case(always(numbers(2, 3, 6), numbers(3, 1, 4), numbers(3), numbers(2, 3, 3)), outputs=2),
        Case(always(numbers(2, 3, 6), numbers(3, 1, 4)), outputs=2),
    ],
    "Gelu": [Case(always(X3))],
    "RoiAlign": [
        Case(always(IMAGE, np.array([[0, 0, 4, 5], [1, 0.5, 3, 4]], np.float32), whole(0, 1)),
             {"output_height": 2, "output_width": 3}, {"sampling_ratio": [None, 2],
             "spatial_scale": [None, 0.5]}, since=10),
    ],
    "BitShift": [
        Case(always(below(200, 6, dtype=dtype), np.array([0, 1, 3, 7, 2, 5], dtype)))
        for dtype in ("uint8", "uint16", "uint32", "uint64")
    ],
    "EyeLike": [Case(always(np.ones((3, 4), "float32")), {}, {"k": [None, 1, -2]}),
                Case(always(np.ones((3, 4), "int32")))],
    "SequenceEmpty": [Case(always())],
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
    "TensorScatter": [
        Case(always(numbers(2, 3, 6, 4), numbers(2, 3, 2, 4, seed=1), whole(0, 3)), {},
             {"axis": [None, 2]}),
        Case(always(numbers(2, 3, 6, 4), numbers(2, 3, 2, 4, seed=1))),
    ],
    "TfIdfVectorizer": [
        Case(always(below(8, 2, 9)), {
            "min_gram_length": low, "max_gram_length": high, "max_skip_count": skips,
            "ngram_counts": [0, 4], "ngram_indexes": [0, 1, 2, 3, 4, 5, 6],
            "pool_int64s": [2, 3, 5, 4, 5, 6, 7, 2, 6, 1],
        }, {"weights": [None, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]]})
        for low, high, skips in ((1, 1, 0), (1, 2, 0), (2, 2, 3))
    ],
    "LpNormalization": [Case(always(X3), {}, {"axis": [None, 1, -1]}),
                        Case(always(np.zeros((2, 2), np.float32)))],
    "NegativeLogLikelihoodLoss": [
        Case(always(numbers(3, 4), below(4, 3)), {}, {"ignore_index": [None, 1, -1]}),
        Case(always(numbers(2, 4, 3), below(4, 2, 3), positive(4)), {}, {"ignore_index": [None, 2]}),
    ],
    "SoftmaxCrossEntropyLoss": [
        Case(always(numbers(3, 4), below(4, 3)), {}, {"ignore_index": [None, 1]}, outputs=2),
        Case(always(numbers(2, 4, 3), below(4, 2, 3), positive(4)), {}, {"ignore_index": [None, 2]}),
    ],
    "ScatterElements": [
        Case(always(X3, below(3, 2, 2, 4), numbers(2, 2, 4, seed=3)), {"axis": 1}, since=16),
        Case(always(below(9, 5), whole(1, 1, -1), whole(2, 3, 4)), since=16),
    ],
    "ScatterND": [
        Case(always(X3, np.array([[0], [1], [0]]), numbers(3, 3, 4, seed=3)), since=16),
        Case(always(X3, np.array([[0, 1], [1, -1]]), numbers(2, 4, seed=3)), since=16),
    ],
    "GroupNormalization": [
        Case(always(IMAGE, positive(2), numbers(2)), {"num_groups": 2}, until=20),
        Case(always(IMAGE, positive(4), numbers(4)), {"num_groups": 2}, since=21),
        Case(always(IMAGE, positive(4), numbers(4)), {"num_groups": 4}),
        Case(always(*(each.astype("float16") for each in (IMAGE, positive(4), numbers(4)))),
             {"num_groups": 2}, since=21, tolerance=4e-3),
    ],
    "RMSNormalization": [
        Case(always(X3, positive(4)), {}, {"axis": [None, -1]}),
        Case(always(X3, positive(3, 4)), {"axis": 1}),
        Case(always(X3.astype("float16"), positive(4).astype("float16")), tolerance=4e-3),
        Case(always(X3.astype("float64"), positive(4).astype("float64"))),
    ],
    "LayerNormalization": [
        Case(always(X3, positive(4), numbers(4)), {}, {"axis": [None, -1]}, outputs=3),
        Case(always(X3, positive(3, 4)), {"axis": 1}),
        Case(always(X3.astype("float16"), positive(4).astype("float16")), tolerance=4e-3),
        Case(always(X3.astype("float64"), positive(4).astype("float64")), outputs=3),
    ],
    "Range": [
        Case(always(*(np.array(each, dtype) for each in (1, 9, 0.7)))) for dtype in
        ("float32", "float16", "float64")
    ] + [Case(always(*(np.array(each, np.int32) for each in (9, 1, -3))))],
    "BitCast": [
        Case(always(numbers(6)), {}, {"to": [6, 12]}),
        Case(always(numbers(6, dtype="float64")), {}, {"to": [7, 13]}),
        Case(always(below(9, 6, dtype="int8")), {}, {"to": [2, *FLOAT8]}),
        Case(always(numbers(6, dtype="float16")), {}, {"to": [4, 5, 16]}),
    ],
    "LinearAttention": [
        Case(always(numbers(2, 3, 8), numbers(2, 3, 4), numbers(2, 3, 6), numbers(2, 2, 2, 3),
                    -positive(2, 3, 2), positive(2, 3, 2)),
             {"q_num_heads": 4, "kv_num_heads": 2}, outputs=2),
    ],
    "QuantizeLinear": [
        Case(always(numbers(3, 4) * 20, np.float32(0.3), np.array(3, np.uint8))),
        Case(always(numbers(3, 4) * 20, np.float32(0.3))),
        Case(always(numbers(3, 4) * 20, positive(4), below(9, 4, dtype="int8")), {},
             {"axis": [None, 1, -1]}, since=13),
        Case(always(numbers(3, 4) * 20, positive(3)), {"axis": 0}, since=13),
        Case(always(numbers(3, 4) * 20, positive(3, 2)), {"axis": 1, "block_size": 2}, since=21),
    ],
    "DequantizeLinear": [
        Case(always(below(200, 3, 4, dtype="uint8"), np.float32(0.3), np.array(3, np.uint8))),
        Case(always(below(99, 3, 4, dtype="int8"), positive(4), below(9, 4, dtype="int8")), {},
             {"axis": [None, 1, -1]}, since=13),
        Case(always(below(99, 3, 4, dtype="int8"), positive(3, 2)),
             {"axis": 1, "block_size": 2}, since=21),
        Case(always(below(9999, 3, 4, dtype="int32"), np.float32(0.3))),
    ],
}  # fmt: skip
"""By op of the default domain."""

ML_DOMAIN: dict[str, list[Case]] = {
    "Normalizer": [
        Case(always(X3[0])), Case(always(np.abs(X3[0]))), Case(always(-positive(2, 3))),
        Case(always(np.zeros((2, 3), np.float32))), Case(always(X3[0, 0])),
    ],
    "LinearRegressor": [
        Case(always(numbers(5, 3)), {
            "coefficients": [0.5, -0.25, 0.1, 0.3, 0.2, -0.1], "intercepts": [0.1, -0.2],
            "targets": 2,
        }),
        Case(always(numbers(5, 3)), {"coefficients": [0.5, -0.25, 0.1]}),
    ],
    "LinearClassifier": [
        Case(always(numbers(5, 3)), {
            "coefficients": [0.5, -0.25, 0.1, 0.3, 0.2, -0.1, 0.2, 0.5, -0.6],
            "intercepts": [0.1, -0.2, 0.3], "classlabels_ints": [7, 8, 9],
        }, outputs=2),
        Case(always(numbers(5, 3)), {
            "coefficients": [0.5, -0.25, 0.1, -0.5, 0.25, -0.1],
            "intercepts": [0.1, -0.1], "classlabels_strings": ["no", "yes"],
        }, outputs=2),
        Case(always(numbers(5, 3)), {
            "coefficients": [0.5, -0.25, 0.1],
            "intercepts": [0.1], "classlabels_ints": [4, 2],
        }, outputs=2),
    ],
}  # fmt: skip
"""By op of ai.onnx.ml."""
