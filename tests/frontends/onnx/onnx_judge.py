"""What a node should give: by onnx's reference evaluator, or by a definition of our own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_definitions as own
import onnx_network_definitions as networks
from onnx import TensorProto, defs, helper
from onnx.reference import ReferenceEvaluator
from onnx_definitions import Attributes, Definition

ML = "ai.onnx.ml"


def node_model(
    op: str, opset: int, attributes: Attributes, operands: Sequence[Any], outputs: int = 1,
    domain: str = "",
) -> tuple[onnx.ModelProto, dict[str, Any]]:  # fmt: skip
    """Return a model of one node, and its inputs by name."""
    names = [f"i{n}" if each is not None else "" for n, each in enumerate(operands)]
    while names and not names[-1]:
        names.pop()
    arrays = {name: np.asarray(each) for name, each in zip(names, operands, strict=False) if name}
    results = [f"o{n}" for n in range(outputs)]
    given = {name: value for name, value in attributes.items() if value is not None}
    node = helper.make_node(op, names, results, f"the {op}", domain=domain, **given)
    inputs = [
        helper.make_tensor_value_info(name, _number(array), array.shape)
        for name, array in arrays.items()
    ]
    graph = helper.make_graph(
        [node], "node", inputs, [onnx.ValueInfoProto(name=name) for name in results]
    )
    opsets = [helper.make_opsetid("", 21 if domain else opset)]
    opsets += [helper.make_opsetid(domain, opset)] if domain else []
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), arrays


def _number(array: Any) -> int:
    is_text = array.dtype == object
    return TensorProto.STRING if is_text else int(helper.np_dtype_to_tensor_dtype(array.dtype))


def evaluated(
    op: str, opset: int, attributes: Attributes, operands: Sequence[Any], outputs: int = 1,
    domain: str = "",
) -> list[Any]:  # fmt: skip
    """Return what the reference evaluator gives."""
    model, arrays = node_model(op, opset, attributes, operands, outputs, domain)
    with np.errstate(all="ignore"):
        return list(ReferenceEvaluator(model).run(None, arrays))


def _upsample(opset: int, attributes: Attributes, operands: Sequence[Any]) -> list[Any]:
    """Resize by the formula of opset 10, of which the evaluator knows no Upsample."""
    x, *rest = operands
    if rest:
        scales = rest[0]
    elif "scales" in attributes:
        scales = np.array(attributes["scales"], np.float32)
    else:
        scales = np.array([1, 1, attributes["height_scale"], attributes["width_scale"]])
    mode = attributes.get("mode", "nearest").removeprefix("bi")
    return resized(11, {"mode": mode, **ASYMMETRIC}, [x, None, scales])


ASYMMETRIC = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}


def resized(opset: int, attributes: Attributes, operands: Sequence[Any]) -> list[Any]:
    """Resize one axis after the other by a matrix of weights, with the formulas of the text."""
    if opset < 11:
        x, scales = operands
        return resized(11, {**attributes, **ASYMMETRIC}, [x, None, scales])
    x, roi, scales, sizes = [*operands, None, None][:4]
    axes = attributes.get("axes", range(x.ndim))
    policy = attributes.get("keep_aspect_ratio_policy", "stretch")
    lengths = [x.shape[axis] for axis in axes]
    if sizes is None:
        scales = [float(each) for each in scales]
        sizes = [int(np.floor(n * s)) for n, s in zip(lengths, scales, strict=True)]
    else:
        scales = [int(m) / n for n, m in zip(lengths, sizes, strict=True)]
        if policy != "stretch":
            scales = [(min if policy == "not_larger" else max)(scales)] * len(axes)
            sizes = [int(np.floor(n * s + 0.5)) for n, s in zip(lengths, scales, strict=True)]
    found, outside = x.astype(np.float64), np.zeros((1,) * x.ndim, bool)
    for place, (axis, n, size, scale) in enumerate(zip(axes, lengths, sizes, scales, strict=True)):
        span = (0.0, 1.0) if roi is None else (roi[place], roi[place + len(axes)])
        at = np.round(_coordinates(attributes, int(size), n, scale, span), 9)
        weights = np.stack([_weights(attributes, each, n, scale) for each in at])
        found = np.moveaxis(np.moveaxis(found, axis, -1) @ weights.T, -1, axis)
        shape = [len(at) if number == axis else 1 for number in range(x.ndim)]
        outside = outside | ((at < 0) | (at > n - 1)).reshape(shape)
    if attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        found = np.where(outside, attributes.get("extrapolation_value", 0.0), found)
    return [found.astype(x.dtype)]


def _coordinates(
    attributes: Attributes, size: int, n: int, scale: float, span: tuple[float, float]
) -> Any:
    i, width = np.arange(size), scale * n
    start, end = (float(each) for each in span)
    half = (i + 0.5) / scale - 0.5
    formulas: Mapping[str, Callable[[], Any]] = {
        "half_pixel": lambda: half,
        "half_pixel_symmetric": lambda: n / 2 * (1 - size / width) + half,
        "pytorch_half_pixel": lambda: half if size > 1 else i * 0.0,
        "align_corners": lambda: i * (n - 1) / (width - 1) if width != 1 else i * 0.0,
        "asymmetric": lambda: i / scale,
        "tf_half_pixel_for_nn": lambda: (i + 0.5) / scale,
        "tf_crop_and_resize": lambda: (
            start * (n - 1) + i * (end - start) * (n - 1) / (width - 1) if size > 1
            else 0.5 * (start + end) * (n - 1) + i * 0.0
        ),
    }  # fmt: skip
    return formulas[attributes.get("coordinate_transformation_mode", "half_pixel")]()


def _weights(attributes: Attributes, at: float, n: int, scale: float) -> Any:
    """Return the weight of each of n elements at a coordinate."""
    mode, found = attributes.get("mode", "nearest"), np.zeros(n)
    if mode == "nearest":
        place = {
            "round_prefer_floor": np.ceil(at - 0.5), "round_prefer_ceil": np.floor(at + 0.5),
            "floor": np.floor(at), "ceil": np.ceil(at),
        }[attributes.get("nearest_mode", "round_prefer_floor")]  # fmt: skip
        found[int(min(max(place, 0), n - 1))] = 1
        return found
    a = attributes.get("cubic_coeff_a", -0.75)
    narrowing = min(scale, 1.0) if attributes.get("antialias", 0) else 1.0
    reach = int(np.ceil(2 / narrowing)) + 1
    for tap in range(int(np.floor(at)) - reach, int(np.floor(at)) + reach + 1):
        d = abs(tap - at) * narrowing
        near = (a + 2) * d**3 - (a + 3) * d**2 + 1
        far = a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
        cubic = near if d <= 1 else far if d < 2 else 0.0
        if 0 <= tap < n or not attributes.get("exclude_outside", 0):
            found[min(max(tap, 0), n - 1)] += cubic if mode == "cubic" else max(1 - d, 0)
    return found / found.sum()


def _roi_align(opset: int, attributes: Attributes, operands: Sequence[Any]) -> list[Any] | None:
    """Return what opset 16 gives without a shift; the evaluator shifts before that too."""
    if opset >= 16:
        return None
    unshifted = {**attributes, "coordinate_transformation_mode": "output_half_pixel"}
    return evaluated("RoiAlign", 16, unshifted, operands)


def _cast_like(opset: int, attributes: Attributes, operands: Sequence[Any]) -> list[Any]:
    """Return what Cast gives, of which the evaluator has the present version."""
    to = int(helper.np_dtype_to_tensor_dtype(operands[1].dtype))
    cast = {**attributes, "to": to}
    found = own.cast_to_power(opset, cast, operands[:1])
    return found or evaluated("Cast", opset, cast, operands[:1])


def _tf_idf(opset: int, attributes: Attributes, operands: Sequence[Any]) -> list[Any] | None:
    """Return the counts with weights 1, without which the evaluator knows counts alone."""
    if "weights" in attributes:
        return None
    weights = [1.0] * len(attributes["ngram_indexes"])
    return evaluated("TfIdfVectorizer", opset, {**attributes, "weights": weights}, operands)


def _grid_sample(opset: int, attributes: Attributes, operands: Sequence[Any]) -> list[Any] | None:
    """Return what opset 20 gives for its names of the modes, the only ones of the evaluator."""
    names = {"bilinear": "linear", "bicubic": "cubic"}
    mode = attributes.get("mode", "linear")
    return evaluated("GridSample", 20, {**attributes, "mode": names.get(mode, mode)}, operands)


def _non_max_suppression(
    opset: int, attributes: Attributes, operands: Sequence[Any]
) -> list[Any] | None:
    """Return no boxes at all where their number is left out, and give the evaluator all limits."""
    if len(operands) < 3:
        return [np.zeros((0, 3), np.int64)]
    limits = [np.zeros(1, np.float32), np.full(1, -1e30, np.float32)]
    whole = [*operands, *limits[len(operands) - 3 :]]
    return evaluated("NonMaxSuppression", opset, attributes, whole)


def _attention(opset: int, attributes: Attributes, operands: Sequence[Any]) -> list[Any] | None:
    """Return the products before softcap, which the evaluator gives after it."""
    if "softcap" not in attributes or attributes.get("qk_matmul_output_mode", 0):
        return None
    found = evaluated("Attention", opset, attributes, operands, 4)
    plain = {name: value for name, value in attributes.items() if name != "softcap"}
    return [*found[:3], evaluated("Attention", opset, plain, operands, 4)[3]]


def _pad(opset: int, attributes: Attributes, operands: Sequence[Any]) -> list[Any] | None:
    """Crop by the negative numbers, which the evaluator does not take, and pad what is left."""
    x = operands[0]
    pads = np.array(attributes["pads"] if opset < 11 else operands[1])
    if (pads >= 0).all() or len(operands) > 3:
        return None
    crop = [slice(max(-b, 0), n - max(-a, 0)) for b, a, n in zip(
        pads[: x.ndim], pads[x.ndim :], x.shape, strict=True)]  # fmt: skip
    rest = np.maximum(pads, 0)
    more = attributes if opset >= 11 else {**attributes, "pads": rest.tolist()}
    operands = [x[tuple(crop)], *([rest, *operands[2:]] if opset >= 11 else [])]
    return evaluated("Pad", opset, more, operands)


DEFINITIONS: dict[tuple[str, str], Definition] = {
    **{("", op): networks.recurrent(op) for op in ("GRU", "LSTM", "RNN")},
    **{("", op): own.broadcast(function) for op, function in {
        "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide, "Pow": np.power,
        "Greater": np.greater, "Less": np.less, "Equal": np.equal, "And": np.logical_and,
        "Or": np.logical_or, "Xor": np.logical_xor,
    }.items()},
    ("", "Attention"): _attention,
    ("", "BatchNormalization"): own.batch_normalization,
    ("", "BlackmanWindow"): own.window(0.42, -0.5, 0.08),
    ("", "Cast"): own.cast_to_power,
    ("", "CastLike"): _cast_like,
    ("", "ConvTranspose"): own.conv_transpose,
    ("", "DequantizeLinear"): own.dequantize_linear,
    ("", "Dropout"): own.dropout,
    ("", "GatherElements"): own.gather_elements,
    ("", "Gemm"): own.gemm,
    ("", "GlobalLpPool"): own.global_lp_pool,
    ("", "GridSample"): _grid_sample,
    ("", "HammingWindow"): own.window(25 / 46, -21 / 46),
    ("", "HannWindow"): own.window(0.5, -0.5),
    ("", "Hardmax"): own.from_an_axis_on(own.hardmax),
    ("", "LRN"): own.lrn,
    ("", "LogSoftmax"): own.from_an_axis_on(lambda x: np.log(own.softmax(x))),
    ("", "LayerNormalization"): own.layer_normalization,
    ("", "LpNormalization"): own.lp_normalization,
    ("", "NonMaxSuppression"): _non_max_suppression,
    ("", "OneHot"): own.one_hot,
    ("", "Pad"): _pad,
    ("", "RMSNormalization"): own.rms_normalization,
    ("", "Resize"): resized,
    ("", "RoiAlign"): _roi_align,
    ("", "Scatter"): own.scatter_elements,
    ("", "ScatterElements"): own.scatter_elements,
    ("", "Softmax"): own.from_an_axis_on(own.softmax),
    ("", "StringNormalizer"): own.string_normalizer,
    ("", "TfIdfVectorizer"): _tf_idf,
    ("", "Unique"): own.unique,
    ("", "Upsample"): _upsample,
    (ML, "LinearClassifier"): networks.linear,
    (ML, "LinearRegressor"): networks.linear,
    (ML, "Normalizer"): networks.normalizer,
}  # fmt: skip
"""Where the evaluator lacks a definition, a version or an attribute, or contradicts the text."""


def expected(
    op: str, opset: int, attributes: Attributes, operands: Sequence[Any], outputs: int,
    domain: str = "",
) -> list[Any]:  # fmt: skip
    """Return the results that a node should have."""
    given = {name: value for name, value in attributes.items() if value is not None}
    if op in ("AveragePool", "LpPool", "MaxPool"):
        definition: Definition | None = own.pool(op, outputs)
    else:
        definition = DEFINITIONS.get((domain, op))
    if definition is not None:
        more = {**given, "outputs": outputs} if op == "BatchNormalization" else given
        found = definition(opset, more, operands)
        if found is not None:
            return found[:outputs]
    return evaluated(op, opset, given, operands, outputs, domain)


def versions(op: str, since: int, until: int, domain: str = "") -> list[int]:
    """Return an opset for each version of an op, among those that weft reads."""
    found = {}
    newest = max(s.since_version for s in defs.get_all_schemas() if s.domain == domain)
    for opset in range(1 if domain else max(since, 6), min(newest, until) + 1):
        try:
            schema = defs.get_schema(op, opset, domain)
        except defs.SchemaError:
            continue
        if not schema.deprecated:
            found.setdefault(schema.since_version, opset)
    return list(found.values())
