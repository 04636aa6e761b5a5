"""What onnxruntime writes that onnx does not know: sets of values of attributes, and nodes.

Its domains have one version, so each set holds from opset 1 on.
"""

from __future__ import annotations

from typing import Any

import onnx
from onnx import defs

Values = tuple[Any, ...]

FLAG: Values = (0, 1)
CONV: Values = (
    "Clip", "Elu", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "QuickGelu", "Relu", "Sigmoid",
    "Tanh",
)  # fmt: skip
"""The activations of fused convolutions."""

GEMM: Values = (
    "Elu", "HardSigmoid", "LeakyRelu", "ParametricSoftplus", "Relu", "Selu", "Sigmoid", "Softplus",
    "Softsign", "Tanh", "ThresholdedRelu",
)  # fmt: skip
"""The activations of fused products."""

TABLE: dict[str, dict[str, dict[str, Values]]] = {
    "com.microsoft": {
        "accuracy_level": {"MatMulNBits": (0, 1, 2, 3, 4)},
        "activation": {
            "FusedConv NhwcFusedConv": CONV,
            "FusedGemm": ("", *GEMM),
            "GroupNorm SkipGroupNorm": FLAG,
        },
        "bits": {"GatherBlockQuantized MatMulNBits": (2, 4, 8)},
        "causal": {"GroupQueryAttention": FLAG},
        "channels_last": {
            "GroupNorm QLinearAveragePool QLinearConv QLinearGlobalAveragePool SkipGroupNorm": FLAG,
        },
        "do_rotary": {"Attention GroupQueryAttention QAttention": FLAG},
        "interleaved": {"RotaryEmbedding": FLAG},
        "align_corners": {"GridSample": FLAG},
        "is_packed_batching": {"RotaryEmbedding": FLAG},
        "k_quant_type": {"GroupQueryAttention": ("NONE", "PER_TENSOR", "PER_CHANNEL")},
        "keepdims": {"QLinearReduceMean": FLAG},
        "kv_cache_bit_width": {"GroupQueryAttention": (0, 4, 8)},
        "metric": {"CDist": (
            "braycurtis", "canberra", "chebyshev", "cityblock", "correlation", "cosine", "dice",
            "euclidean", "hamming", "jaccard", "jensenshannon", "kulsinski", "mahalanobis",
            "matching", "minkowski", "rogerstanimoto", "russellrao", "seuclidean", "sokalmichener",
            "sokalsneath", "sqeuclidean", "wminkowski", "yule",
        )},
        "mode": {
            "GridSample": ("bilinear", "nearest", "bicubic"),
            "Pad": ("constant", "reflect", "edge", "wrap"),
        },
        "padding_mode": {"GridSample": ("zeros", "border", "reflection")},
        "upper": {"Trilu": FLAG},
        "mask_index_type": {"EmbedLayerNormalization": (0, 1, 2)},
        "past_present_share_buffer": {"Attention QAttention": FLAG},
        "qk_output": {"GroupQueryAttention": (0, 1, 2)},
        "quant_type": {"MatMulBnb4": FLAG},
        "rotary_interleaved": {"GroupQueryAttention": FLAG},
        "sliding_window_cache": {"GroupQueryAttention": FLAG},
        "smooth_softmax": {"GroupQueryAttention": (-1, 0, 1)},
        "training_mode": {"MatMulBnb4": FLAG},
        "transA": {"FusedGemm FusedMatMul QGemm TransposeMatMul": FLAG},
        "transB": {"FusedGemm FusedMatMul MatMulBnb4 QGemm TransposeMatMul": FLAG},
        "transBatchA": {"FusedMatMul": FLAG},
        "transBatchB": {"FusedMatMul": FLAG},
        "unidirectional": {"Attention MultiHeadAttention QAttention": FLAG},
        "v_quant_type": {"GroupQueryAttention": ("NONE", "PER_TENSOR", "PER_CHANNEL")},
        "weight_prepacked": {"MatMulNBits": (0, 1, 2)},
    },
    "com.microsoft.nchwc": {
        "activation": {"Conv": CONV},
        "channels_last": {"ReorderInput ReorderOutput": FLAG},
        "coordinate_transformation_mode": {
            "Upsample": ("asymmetric", "align_corners", "half_pixel"),
        },
        "mode": {"Upsample": ("nearest", "linear")},
    },
}  # fmt: skip
"""By domain and attribute, ops and the values there."""

TWINS: dict[tuple[str, str], str] = {
    ("com.microsoft", "DynamicQuantizeLSTM"): "LSTM",
    ("com.microsoft", "FusedConv"): "Conv",
    ("com.microsoft", "GridSample"): "GridSample",
    ("com.microsoft", "NhwcConv"): "Conv",
    ("com.microsoft", "NhwcFusedConv"): "Conv",
    ("com.microsoft", "NhwcMaxPool"): "MaxPool",
    ("com.microsoft", "QLinearAveragePool"): "AveragePool",
    ("com.microsoft", "QLinearConv"): "QLinearConv",
    ("com.microsoft.nchwc", "AveragePool"): "AveragePool",
    ("com.microsoft.nchwc", "Conv"): "Conv",
    ("com.microsoft.nchwc", "MaxPool"): "MaxPool",
}
"""Ops whose other attributes are those of an op of the default domain."""


def with_runtime(known: dict[tuple[str, str, str], Any]) -> dict[tuple[str, str, str], Any]:
    """Return sets by domain, op and attribute, and with them those of onnxruntime's domains."""
    found = dict(known)
    for (domain, op), twin in TWINS.items():
        for (base, other, name), versions in known.items():
            if (base, other) == ("", twin):
                found.setdefault((domain, op, name), {1: versions[max(versions)]})
    for domain, table in TABLE.items():
        for name, rows in table.items():
            for ops, values in rows.items():
                found.update({(domain, op, name): {1: values} for op in ops.split()})
    return found


RUNTIME_OPS = frozenset({"LayerNormalization", "SimplifiedLayerNormalization"})
"""Ops that onnxruntime's optimizer puts into the default domain, whatever the opset is."""

QUANTIZERS = frozenset({"QuantizeLinear", "DequantizeLinear"})
"""Ops to which it gives an axis, which they have from opset 13 on."""


def is_of_runtime(node: onnx.NodeProto, opset: int) -> bool:
    """Whether onnxruntime has put a node into the default domain, of an op that is not there."""
    if node.domain not in ("", "ai.onnx") or node.op_type not in RUNTIME_OPS:
        return False
    if not defs.has(node.op_type, ""):
        return True
    return bool(opset < defs.get_schema(node.op_type, "").since_version)


def as_specified(node: onnx.NodeProto, opset: int) -> onnx.NodeProto:
    """Return a node without what onnxruntime's optimizer adds in opsets that lack it."""
    if node.op_type not in QUANTIZERS or opset >= 13:
        return node
    found = onnx.NodeProto()
    found.CopyFrom(node)
    del found.attribute[:]
    found.attribute.extend(each for each in node.attribute if each.name != "axis")
    return found
