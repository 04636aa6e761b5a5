"""Cases of networks with states, attention, losses, signals, texts and types."""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np
from onnx import TensorProto, helper
from onnx_cases import SPECIAL, X3, Case, always, below, numbers, positive, whole


def recurrent(gates: int, states: int, names: Sequence[Sequence[str]]) -> list[Case]:
    """Return cases of a recurrent network: directions, layouts, lengths, activations."""
    found = []
    steps, batch, size, hidden = 4, 2, 3, 5
    for count, directions in ((1, ["forward", "reverse"]), (2, ["bidirectional"])):
        w, r = (numbers(count, gates * hidden, n, seed=n) / 8 for n in (size, hidden))
        b = numbers(count, 2 * gates * hidden, seed=4) / 8
        peepholes = [numbers(count, 3 * hidden, seed=9) / 8] if states == 2 else []
        for layout in (0, 1):
            x = numbers(*((batch, steps) if layout else (steps, batch)), size, seed=1)
            shape = (batch, count, hidden) if layout else (count, batch, hidden)
            first = [numbers(*shape, seed=5 + n) / 2 for n in range(states)]
            fixed = {"hidden_size": hidden, **({"layout": 1} if layout else {})}
            varied = {
                "direction": directions, "layout": [None, 0], "clip": [None, 0.4],
                "activations": [None, *(list(each) * count for each in names)],
            }  # fmt: skip
            found += [
                Case(always(x, w, r, b, lengths, *first, *peepholes), fixed, varied,
                     since=14 if layout else 7, outputs=1 + states, tolerance=5e-4)
                for lengths in (None, np.array([4, 2], np.int32))
            ]  # fmt: skip
    return found


FLOAT8 = {
    number: helper.tensor_dtype_to_np_dtype(number)
    for number in (
        TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E4M3FNUZ, TensorProto.FLOAT8E5M2,
        TensorProto.FLOAT8E5M2FNUZ,
    )
}  # fmt: skip
HALVES = np.array([0.0, -0.0, 1.4, -2.5, 448, 500, -60000, np.inf, -np.inf, np.nan], np.float16)
PLAIN = np.array([0.0, 1.0, 1.5, 2.5, -1.0, -2.5, 100.0, -100.0], np.float32)
TEXTS = np.array(["b", "A", "stop", "Stop", "ä"], object)

CASES: dict[str, list[Case]] = {
    "LSTM": recurrent(4, 2, [
        ("Tanh", "Sigmoid", "Relu"), ("HardSigmoid", "Softsign", "Softplus"),
        ("Affine", "ScaledTanh", "Elu"), ("LeakyRelu", "ThresholdedRelu", "Tanh"),
    ]),
    "GRU": recurrent(3, 1, [
        ("Tanh", "Sigmoid"), ("HardSigmoid", "Softsign"), ("Sigmoid", "Affine"),
        ("ScaledTanh", "Elu"), ("HardSigmoid", "Softplus"),
        ("LeakyRelu", "ThresholdedRelu"), ("Relu", "relu"),
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
                    numbers(3, 5) > -1),
             {"q_num_heads": 4, "kv_num_heads": 4}, outputs=4, since=23),
        Case(always(numbers(1, 2, 3, 4), numbers(1, 2, 5, 4), numbers(1, 2, 5, 4, seed=2), None,
                    numbers(1, 2, 2, 4), numbers(1, 2, 2, 4, seed=1)), outputs=4, since=23),
    ],
    "MelWeightMatrix": [
        Case(always(*(np.int64(n) for n in (8, 16, 8192)), np.float32(0), np.float32(4096))),
    ],
    "Cast": [
        Case(always(PLAIN)), Case(always(PLAIN > 0)), Case(always(below(9, 5))),
        Case(always(SPECIAL), {}, {"to": [1, 10, 11, 16, *FLOAT8, 23, 24, 25, 26]}),
        Case(always(HALVES), {}, {"to": [1, 11, 16, *FLOAT8, 23, 24]}),
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
        Case(always(numbers(2, 4, 3), below(4, 2, 3), positive(4)), {},
             {"ignore_index": [None, 2]}),
    ],
    "SoftmaxCrossEntropyLoss": [
        Case(always(numbers(3, 4), below(4, 3)), {}, {"ignore_index": [None, 1]}, outputs=2),
        Case(always(numbers(2, 4, 3), below(4, 2, 3), positive(4)), {},
             {"ignore_index": [None, 2]}),
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
