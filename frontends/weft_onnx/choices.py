"""Attributes with a closed set of values: the sets, by op and opset, and the check of a node.

The sets are those of the schemas and their texts. Every attribute of a node is checked before the
node is lowered, so no lowering sees a value that its opset does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, defs

from weft.support.quoting import harmless
from weft_onnx.runtime_choices import RUNTIME_OPS, TWINS, with_runtime

Values = tuple[Any, ...]
Versions = Mapping[int, Values | Callable[[Any], Values]]
"""By the opset from which it holds, a set of values, or the function of a schema that gives it."""

FLAG: Values = (0, 1)
FLOATS: Values = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16)


def types_of_result(schema: Any) -> Values:
    """Return the numbers of the types that the first result may have."""
    return tuple(
        number
        for name, number in TensorProto.DataType.items()
        if {f"tensor({name.lower()})", f"seq(tensor({name.lower()}))"}
        & set(schema.outputs[0].types)
    )


def types_of_result_or_none(schema: Any) -> Values:
    """Return the numbers of the types that the first result may have, and 0 for no choice."""
    return (0, *types_of_result(schema))


REDUCED = (
    "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd "
    "ReduceSum ReduceSumSquare"
)
POOLS = "AveragePool LpPool MaxPool"
RECURRENT = "GRU LSTM RNN"
WINDOWS = "BlackmanWindow HammingWindow HannWindow"
ADDITIVE = "Add And Div Equal Gemm Greater Less Mul Or Pow Sub Xor"

FLAGS = {
    "align_corners": "AffineGrid GridSample",
    "allowzero": "Reshape",
    "antialias": "Resize",
    "batch_axis": "ReverseSequence",
    "broadcast": ADDITIVE,
    "ceil_mode": POOLS,
    "center_point_box": "NonMaxSuppression",
    "count_include_pad": "AveragePool",
    "detect_negative": "IsInf",
    "detect_positive": "IsInf",
    "directions": "Scan",
    "exclude_outside": "Resize",
    "exclusive": "CumProd CumSum",
    "fmod": "Mod",
    "input_forget": "LSTM",
    "interleaved": "RotaryEmbedding",
    "inverse": "DFT",
    "is_case_sensitive": "StringNormalizer",
    "is_causal": "Attention",
    "keepdims": f"ArgMax ArgMin SplitToSequence {REDUCED}",
    "largest": "TopK",
    "layout": RECURRENT,
    "linear_before_reset": "GRU",
    "new_axis": "ConcatFromSequence",
    "noop_with_empty_axes": REDUCED,
    "onesided": "DFT STFT",
    "output_sequence": RECURRENT,
    "periodic": WINDOWS,
    "reverse": "CumProd CumSum",
    "saturate": "Cast CastLike QuantizeLinear",
    "scan_input_directions": "Scan",
    "scan_output_directions": "Scan",
    "select_last_index": "ArgMax ArgMin",
    "sorted": "TopK Unique",
    "spatial": "BatchNormalization",
    "storage_order": "MaxPool",
    "time_axis": "ReverseSequence",
    "training_mode": "BatchNormalization",
    "transA": "Gemm",
    "transB": "Gemm",
    "upper": "Trilu",
}
"""Attributes of the default domain that are 0 or 1, and their ops."""

ML_FLAGS = {
    "multi_class": "LinearClassifier",
    "nodes_missing_value_tracks_true":
        "TreeEnsemble TreeEnsembleClassifier TreeEnsembleRegressor",
    "one_class": "SVMRegressor",
    "zeros": "OneHotEncoder",
}  # fmt: skip
"""Attributes of ai.onnx.ml that are 0 or 1, and their ops."""

PAD_MODES = ("constant", "reflect", "edge")
RESIZE_COORDINATES = (
    "half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize",
)  # fmt: skip
BRANCHES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")

DEFAULT_DOMAIN: dict[str, list[tuple[str, Versions]]] = {
    "activation": [("CausalConvWithState", {1: ("none", "silu", "swish")})],
    "activations": [(RECURRENT, {1: (
        "Relu", "Tanh", "Sigmoid", "Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh",
        "HardSigmoid", "Elu", "Softsign", "Softplus",
    )})],
    "approximate": [("Gelu", {1: ("none", "tanh")})],
    "auto_pad": [
        (f"{POOLS} Conv ConvInteger ConvTranspose QLinearConv",
         {1: ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")}),
    ],
    "case_change_action": [("StringNormalizer", {1: ("NONE", "LOWER", "UPPER")})],
    "coordinate_transformation_mode": [
        ("Resize", {
            11: (*RESIZE_COORDINATES, "tf_half_pixel_for_nn"), 13: RESIZE_COORDINATES,
            19: (*RESIZE_COORDINATES, "half_pixel_symmetric"),
        }),
        ("RoiAlign", {16: ("half_pixel", "output_half_pixel")}),
    ],
    "direction": [
        ("BitShift", {1: ("LEFT", "RIGHT")}),
        (RECURRENT, {1: ("forward", "reverse", "bidirectional")}),
    ],
    "dtype": [
        ("Bernoulli EyeLike Multinomial RandomNormal RandomNormalLike RandomUniform "
         "RandomUniformLike SequenceEmpty", {1: types_of_result}),
    ],
    "keep_aspect_ratio_policy": [("Resize", {18: ("stretch", "not_larger", "not_smaller")})],
    "mode": [
        ("DepthToSpace SpaceToDepth", {1: ("DCR", "CRD")}),
        ("GridSample",
         {16: ("bilinear", "nearest", "bicubic"), 20: ("linear", "nearest", "cubic")}),
        ("Pad", {1: PAD_MODES, 19: (*PAD_MODES, "wrap")}),
        ("Resize", {10: ("nearest", "linear"), 11: ("nearest", "linear", "cubic")}),
        ("RoiAlign", {10: ("avg", "max")}),
        ("TensorScatter", {24: ("linear", "circular")}),
        ("TfIdfVectorizer", {9: ("TF", "IDF", "TFIDF")}),
        ("Upsample", {1: ("nearest", "bilinear"), 7: ("nearest", "linear")}),
    ],
    "nearest_mode": [
        ("Resize", {11: ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")}),
    ],
    "output_datatype": [(f"{WINDOWS} MelWeightMatrix", {17: types_of_result})],
    "output_dtype": [("DequantizeLinear QuantizeLinear", {21: types_of_result_or_none})],
    "p": [("LpNormalization", {1: (1, 2)})],
    "padding_mode": [("GridSample", {16: ("zeros", "border", "reflection")})],
    "pixel_format": [("ImageDecoder", {20: ("RGB", "BGR", "Grayscale")})],
    "precision": [("QuantizeLinear", {23: (0, *FLOATS)})],
    "qk_matmul_output_mode": [("Attention", {23: (0, 1, 2, 3)})],
    "reduction": [
        ("NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss", {12: ("none", "sum", "mean")}),
        ("ScatterElements ScatterND",
         {16: ("none", "add", "mul"), 18: ("none", "add", "mul", "max", "min")}),
    ],
    "round_mode": [("Cast CastLike", {24: ("up", "down", "nearest")})],
    "softmax_precision": [("Attention", {23: FLOATS})],
    "stash_type": [
        ("GroupNormalization RMSNormalization", {21: FLOATS}),
        ("Range", {27: (TensorProto.FLOAT, TensorProto.DOUBLE)}),
        ("LayerNormalization", {17: (TensorProto.FLOAT, TensorProto.BFLOAT16)}),
    ],
    "to": [("BitCast Cast", {1: types_of_result})],
    "update_rule": [("LinearAttention", {27: ("linear", "gated", "delta", "gated_delta")})],
}  # fmt: skip

ML_DOMAIN: dict[str, list[tuple[str, Versions]]] = {
    "aggregate_function": [
        ("TreeEnsemble", {5: (0, 1, 2, 3)}),
        ("TreeEnsembleRegressor", {1: ("AVERAGE", "SUM", "MIN", "MAX")}),
    ],
    "cast_to": [("CastMap", {1: ("TO_FLOAT", "TO_STRING", "TO_INT64")})],
    "kernel_type": [("SVMClassifier SVMRegressor", {1: ("LINEAR", "POLY", "RBF", "SIGMOID")})],
    "map_form": [("CastMap", {1: ("DENSE", "SPARSE")})],
    "nodes_modes": [
        ("TreeEnsemble", {5: (0, 1, 2, 3, 4, 5, 6)}),
        ("TreeEnsembleClassifier TreeEnsembleRegressor", {1: (*BRANCHES, "LEAF")}),
    ],
    "norm": [("Normalizer", {1: ("MAX", "L1", "L2")})],
    "post_transform": [
        ("LinearClassifier LinearRegressor SVMClassifier SVMRegressor TreeEnsembleClassifier "
         "TreeEnsembleRegressor", {1: TRANSFORMS}),
        ("TreeEnsemble", {5: (0, 1, 2, 3, 4)}),
    ],
}  # fmt: skip

TRAINING_DOMAIN: dict[str, list[tuple[str, Versions]]] = {
    "mode": [("Momentum", {1: ("standard", "nesterov")})],
}
PREVIEW_DOMAIN: dict[str, list[tuple[str, Versions]]] = {
    "softmax_precision": [("FlexAttention", {1: FLOATS})],
}


def _rows() -> Iterator[tuple[tuple[str, str, str], Versions]]:
    for domain, flags in (("", FLAGS), ("ai.onnx.ml", ML_FLAGS)):
        for name, ops in flags.items():
            yield from (((domain, op, name), {1: FLAG}) for op in ops.split())
    for domain, table in (
        ("", DEFAULT_DOMAIN), ("ai.onnx.ml", ML_DOMAIN),
        ("ai.onnx.preview.training", TRAINING_DOMAIN), ("ai.onnx.preview", PREVIEW_DOMAIN),
    ):  # fmt: skip
        for name, rows in table.items():
            for ops, versions in rows:
                yield from (((domain, op, name), versions) for op in ops.split())


CHOICES: dict[tuple[str, str, str], Versions] = with_runtime(dict(_rows()))
"""By domain, op and attribute, the values of each opset."""

WITHOUT_CASE = frozenset({"activations"})
"""Attributes whose values are compared without case, as onnxruntime does."""


@lru_cache(maxsize=4096)
def choices_of(domain: str, op: str, attribute: str, opset: int) -> Values | None:
    """Return the values that an attribute may have, or None if it has no closed set of these."""
    versions = CHOICES.get((domain, op, attribute))
    if versions is None:
        return None
    known = [each for each in versions if each <= opset]
    if not known:
        return None
    found = versions[max(known)]
    return found(defs.get_schema(op, opset, domain)) if callable(found) else found


@lru_cache(maxsize=4096)
def default_of(domain: str, op: str, attribute: str, opset: int) -> onnx.AttributeProto | None:
    """Return the value that the schema gives an attribute that a node leaves out, or None."""
    if (domain, op) in TWINS:
        domain, op, opset = "", TWINS[domain, op], defs.onnx_opset_version()
    try:
        schema = defs.get_schema(op, opset, domain)
    except defs.SchemaError:
        if op not in RUNTIME_OPS or not defs.has(op, domain):
            return None
        schema = defs.get_schema(op, domain)
    known = schema.attributes.get(attribute)
    return known.default_value if known is not None and known.default_value.name else None


def problem_of(domain: str, op: str, attribute: str, opset: int, value: Any) -> str | None:
    """Return the problem of an attribute's value, or None."""
    choices = choices_of(domain, op, attribute, opset)
    if choices is None or value is None:
        return None
    ignores_case = attribute in WITHOUT_CASE
    valid = {each.lower() for each in choices} if ignores_case else set(choices)
    for each in _elements(value):
        if (each.lower() if ignores_case else each) not in valid:
            later = _other_opsets(domain, op, attribute, each)
            return (
                f"attribute {attribute} is {_shown(attribute, each)}, which opset {opset} does not "
                f"have{later}; it can be {listed(attribute, choices)}: correct the attribute in "
                "the model, or export the model again"
            )
    return None


def _elements(value: Any) -> list[Any]:
    if isinstance(value, np.ndarray):
        return [each.item() for each in value.reshape(-1)]
    return list(value) if isinstance(value, list | tuple) else [value]


def _other_opsets(domain: str, op: str, attribute: str, value: Any) -> str:
    """Return which other opsets have a value, as a clause; empty if none has."""
    versions = CHOICES[domain, op, attribute]
    found = [n for n, each in versions.items() if not callable(each) and value in each]
    return f" (opset {found[0]} does)" if found else ""


TYPE_ATTRIBUTES = frozenset({
    "dtype", "output_datatype", "output_dtype", "precision", "softmax_precision", "stash_type",
    "to",
})  # fmt: skip
"""Attributes that are numbers of TensorProto.DataType."""


def _shown(attribute: str, value: Any) -> str:
    if attribute in TYPE_ATTRIBUTES and value in TensorProto.DataType.values():
        return f"{value} ({TensorProto.DataType.Name(value)})"
    return repr(harmless(value)[:80]) if isinstance(value, str) else str(value)


def listed(attribute: str, values: Any) -> str:
    """Return the values of an attribute as a list for messages."""
    *several, last = (_shown(attribute, each) for each in values)
    return f"{', '.join(several)} or {last}" if several else last
