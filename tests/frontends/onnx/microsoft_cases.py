"""Nodes of com.microsoft with operands, and the definition of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import microsoft_definitions as definitions
import numpy as np
import onnx
from onnx import helper, numpy_helper

RNG = np.random.default_rng(11)


@dataclass(frozen=True)
class Case:
    """A node.

    Attributes
    ----------
    op, operands, attributes
        What it computes of what; None for an operand that is left out.
    definition
        Returns the results, with None for one that is not compared.
    constants
        The numbers of the operands that a model has as initializers.
    judge
        Whether onnxruntime computes it on processors.
    steps, tolerance
        The most by which numbers of a quantized result, and other numbers, may differ.
    """

    op: str
    operands: Sequence[Any]
    definition: Callable[..., Any]
    attributes: dict[str, Any] = field(default_factory=dict)
    constants: Sequence[int] = ()
    judge: bool = True
    steps: int = 0
    tolerance: float = 2e-5


def model_of(case: Case, outputs: Sequence[str]) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """Return a model of the node of a case, and its inputs by name."""
    names = [f"x{n}" if x is not None else "" for n, x in enumerate(case.operands)]
    arrays = {name: np.asarray(x) for name, x in zip(names, case.operands, strict=True) if name}
    fixed = {f"x{n}" for n in case.constants}
    made = helper.make_node(case.op, names, outputs, domain="com.microsoft", **case.attributes)
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for name, array in arrays.items()
        if name not in fixed
    ]
    constants = [numpy_helper.from_array(x, name) for name, x in arrays.items() if name in fixed]
    results = [helper.make_empty_tensor_value_info(name) for name in outputs if name]
    graph = helper.make_graph([made], "case", inputs, results, constants)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return model, {name: x for name, x in arrays.items() if name not in fixed}


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def whole(low: int, high: int, *shape: int, dtype: str = "int64") -> Any:
    return RNG.integers(low, high, shape).astype(dtype)


d = definitions

CASES: dict[str, Case] = {}


def _products() -> None:
    x, w, b = normal(2, 4, 7, 8), normal(6, 4, 3, 2), normal(6)
    for name, parameters in {
        "": (), "Relu": (), "Tanh": (), "Sigmoid": (), "LeakyRelu": (0.2,), "Clip": (-0.5, 1.0),
        "HardSigmoid": (0.3, 0.4),
    }.items():  # fmt: skip
        attributes = {"activation": name, "activation_params": parameters} if name else {}
        if name and not parameters:
            del attributes["activation_params"]
        CASES[f"FusedConv {name}"] = Case("FusedConv", [x, w, b], d.fused_conv, attributes)
    window = {"pads": [1, 0, 2, 1], "strides": [2, 1], "dilations": [1, 2], "activation": "Relu"}
    summand = normal(2, 6, 4, 7)
    CASES["FusedConv sum"] = Case("FusedConv", [x, w, b, summand], d.fused_conv, window)
    grouped = {"group": 2, "activation": "Relu"}
    CASES["FusedConv groups"] = Case("FusedConv", [x, normal(6, 2, 3, 2)], d.fused_conv, grouped)
    a, b, c = normal(3, 5), normal(4, 5), normal(4)
    for name, more in {
        "Relu": {}, "Tanh": {}, "Sigmoid": {}, "Softplus": {}, "Softsign": {},
        "LeakyRelu": {"activation_alpha": 0.3}, "Elu": {"activation_alpha": 0.7},
        "Selu": {"activation_alpha": 1.6, "activation_gamma": 1.1},
        "HardSigmoid": {"activation_alpha": 0.3, "activation_beta": 0.4},
        "ThresholdedRelu": {"activation_alpha": 0.3},
    }.items():  # fmt: skip
        attributes = {"transB": 1, "activation": name, "alpha": 0.5, "beta": 2.0, **more}
        CASES[f"FusedGemm {name}"] = Case("FusedGemm", [a, b, c], d.fused_gemm, attributes)
    for transpositions in range(16):
        names = ("transA", "transB", "transBatchA", "transBatchB")
        given = {name: transpositions >> n & 1 for n, name in enumerate(names)}
        shapes = []
        for side, inner in (("A", (5, 6)), ("B", (6, 3))):
            last = inner[::-1] if given[f"trans{side}"] else inner
            shapes.append((last[0], 2, 4, last[1]) if given[f"transBatch{side}"] else (2, 4, *last))
        # The first axis goes behind the batch before the last two are exchanged.
        a, b = (normal(*shape) for shape in shapes)
        attributes = {**given, "alpha": 0.25}
        CASES[f"FusedMatMul {transpositions}"] = Case(
            "FusedMatMul", [a, b], d.fused_matmul, attributes
        )
    CASES["FusedMatMul vector"] = Case(
        "FusedMatMul", [normal(5), normal(5, 3)], d.fused_matmul, {"transA": 1}
    )
    CASES["TransposeMatMul"] = Case(
        "TransposeMatMul", [normal(2, 5, 4), normal(5, 3)], d.fused_matmul, {"transA": 1}
    )
    x, bias = normal(2, 3, 8), normal(8)
    CASES["Gelu"] = Case("Gelu", [x], lambda x: [d.gelu(d.wide(x))])
    CASES["BiasGelu"] = Case("BiasGelu", [x, bias], lambda x, b: [d.gelu(d.wide(x) + b)])
    CASES["FastGelu"] = Case("FastGelu", [x], lambda x: [d.tanh_gelu(d.wide(x))])
    CASES["FastGelu bias"] = Case("FastGelu", [x, bias], lambda x, b: [d.tanh_gelu(d.wide(x) + b)])
    for alpha in (1.702, -0.5):
        CASES[f"QuickGelu {alpha}"] = Case(
            "QuickGelu", [x], lambda x, alpha: [x * d.sigmoid(alpha * d.wide(x))], {"alpha": alpha}
        )

    def split_gelu(x: Any, b: Any) -> Any:
        left, right = np.split(d.wide(x) + b, 2, -1)
        return [left * d.gelu(right)]

    CASES["BiasSplitGelu"] = Case("BiasSplitGelu", [x, bias], split_gelu, judge=False)
    CASES["BiasAdd"] = Case("BiasAdd", [x, bias, x], lambda x, b, y: [x + b + y], judge=False)


def _other_products() -> None:
    x, w, bias = normal(2, 3, 4), normal(4, 5), normal(5)
    CASES["GemmFastGelu"] = Case(
        "GemmFastGelu", [x, w, bias], lambda x, w, b: [d.tanh_gelu(d.wide(x) @ w + b)], judge=False
    )
    CASES["BiasDropout"] = Case(
        "BiasDropout", [x, x[0, 0], x, np.float32(0.5)],
        lambda x, b, r, ratio: [x + b + r, np.ones(x.shape, bool)], judge=False,
    )  # fmt: skip
    images, filters = normal(2, 7, 8, 4), normal(6, 4, 3, 2)
    CASES["NhwcConv"] = Case(
        "NhwcConv", [images, filters, normal(6)], d.nhwc_conv, {"pads": [1, 0, 2, 1]}, judge=False
    )
    CASES["NhwcFusedConv"] = Case(
        "NhwcFusedConv", [images, filters, normal(6), normal(2, 5, 7, 6)], d.nhwc_conv,
        {"activation": "Relu"}, judge=False,
    )  # fmt: skip


def _normalizations() -> None:
    x, skip, row, other, third = normal(2, 3, 8), normal(2, 3, 8), *(normal(8) for _ in range(3))
    skips = {"same": skip, "one sample": skip[:1], "matrix": skip[0]}
    for name, given in skips.items():
        CASES[f"SkipLayerNormalization {name}"] = Case(
            "SkipLayerNormalization", [x, given, row, other, third], d.skip_layer_norm,
            {"epsilon": 1e-3},
        )  # fmt: skip
        CASES[f"SkipSimplifiedLayerNormalization {name}"] = Case(
            "SkipSimplifiedLayerNormalization", [x, given, row, third], d.skip_rms_norm
        )
    CASES["SkipLayerNormalization alone"] = Case(
        "SkipLayerNormalization", [x, skip, row], d.skip_layer_norm
    )
    CASES["SimplifiedLayerNormalization"] = Case(
        "SimplifiedLayerNormalization", [x, row], d.rms_norm, {"axis": -1, "epsilon": 1e-2},
        judge=False,
    )  # fmt: skip
    words, kinds = whole(0, 9, 2, 4, dtype="int32"), whole(0, 2, 2, 4, dtype="int32")
    tables = [normal(9, 8), normal(6, 8), normal(2, 8), row, other]
    mask = np.array([[1, 1, 1, 0], [1, 0, 0, 0]], np.int32)
    CASES["EmbedLayerNormalization"] = Case(
        "EmbedLayerNormalization", [words, kinds, *tables, mask], d.embed_layer_norm
    )
    CASES["EmbedLayerNormalization places"] = Case(
        "EmbedLayerNormalization",
        [words, None, *tables[:2], None, *tables[3:], None, whole(0, 6, 2, 4, dtype="int32")],
        d.embed_layer_norm, {"epsilon": 1e-5},
    )  # fmt: skip
    images = normal(2, 3, 3, 8)
    for activation in (0, 1):
        attributes = {"activation": activation, "groups": 4, "epsilon": 1e-3}
        CASES[f"GroupNorm {activation}"] = Case(
            "GroupNorm", [images, row, other], d.group_norm, attributes, judge=False
        )
        for name, given in {"images": normal(2, 3, 3, 8), "rows": normal(2, 8)}.items():
            CASES[f"SkipGroupNorm {activation} {name}"] = Case(
                "SkipGroupNorm", [images, row, other, given, third], d.skip_group_norm,
                attributes, judge=False,
            )  # fmt: skip


def _attention() -> None:
    x, weights, bias = normal(2, 4, 6), normal(6, 24), normal(24)
    masks = {
        "no mask": None,
        "ends": np.array([4, 2], np.int32),
        "ends and starts": np.array([4, 3, 1, 0], np.int32),
        "words": np.array([[1, 1, 0, 1], [1, 0, 0, 0]], np.int32),
        "pairs": whole(0, 2, 2, 4, 4, dtype="int32"),
    }
    for name, mask in masks.items():
        for unidirectional in (0, 1):
            CASES[f"Attention {name} {unidirectional}"] = Case(
                "Attention", [x, weights, bias, mask], d.attention,
                {"num_heads": 2, "unidirectional": unidirectional}, tolerance=1e-3,
            )  # fmt: skip
    CASES["Attention past"] = Case(
        "Attention", [x, weights, bias, None, normal(2, 2, 2, 3, 4)], d.attention,
        {"num_heads": 2, "unidirectional": 1, "scale": 0.3},
    )  # fmt: skip
    CASES["Attention bias"] = Case(
        "Attention", [x, weights, bias, None, None, normal(1, 2, 4, 4)], d.attention,
        {"num_heads": 2},
    )  # fmt: skip
    CASES["Attention sizes"] = Case(
        "Attention", [x, normal(6, 26), normal(26), masks["words"]], d.attention,
        {"num_heads": 2, "qkv_hidden_sizes": [8, 8, 10], "mask_filter_value": -100.0},
    )  # fmt: skip
    query, key, value, bias = normal(2, 3, 8), normal(2, 5, 8), normal(2, 5, 12), normal(28)
    words = np.array([[1, 1, 0, 1, 1], [1, 1, 0, 0, 0]], np.int32)
    op, own = "MultiHeadAttention", {"num_heads": 2}
    for name, mask in {"no mask": None, "words": words}.items():
        CASES[f"{op} {name}"] = Case(
            op, [query, key, value, bias, mask], d.multi_head_attention, own
        )
    CASES[f"{op} bias"] = Case(
        op, [query, key, value, None, None, normal(2, 1, 3, 5)], d.multi_head_attention,
        {**own, "scale": 0.7},
    )  # fmt: skip
    CASES[f"{op} one way"] = Case(
        op, [query, normal(2, 3, 8), normal(2, 3, 8), None, None, None, normal(2, 2, 2, 4),
             normal(2, 2, 2, 4)],
        d.multi_head_attention, {**own, "unidirectional": 1},
    )  # fmt: skip
    CASES[f"{op} keys of four axes"] = Case(
        op, [query, normal(2, 2, 5, 4), normal(2, 2, 5, 4)], d.multi_head_attention, own
    )
    CASES[f"{op} keys and values packed"] = Case(
        op, [query, normal(2, 5, 2, 2, 4)], d.multi_head_attention, own, judge=False
    )
    CASES[f"{op} packed"] = Case(
        op, [normal(2, 5, 2, 3, 4)], d.multi_head_attention, own, judge=False
    )


def angles(rows: int, columns: int) -> tuple[Any, Any]:
    """Return the tables of cosines and sines."""
    found = np.arange(rows)[:, None] * 0.7 ** np.arange(columns)
    return np.cos(found).astype(np.float32), np.sin(found).astype(np.float32)


def _rotations() -> None:
    for interleaved in (0, 1):
        for name, places in {"offset": np.array([2]), "places": whole(0, 9, 2, 3)}.items():
            for shape in ((2, 3, 16), (2, 2, 3, 8)):
                CASES[f"RotaryEmbedding {interleaved} {name} {len(shape)}"] = Case(
                    "RotaryEmbedding", [normal(*shape), places, *angles(9, 4)], d.rotary,
                    {"interleaved": interleaved},
                )  # fmt: skip
    CASES["RotaryEmbedding a part"] = Case(
        "RotaryEmbedding", [normal(2, 3, 16), whole(0, 9, 2, 3), *angles(9, 2)], d.rotary,
        {"rotary_embedding_dim": 4, "num_heads": 2},
    )  # fmt: skip


def _grouped() -> None:
    op, heads = "GroupQueryAttention", {"num_heads": 4, "kv_num_heads": 2}
    query, key, value = normal(2, 3, 64), normal(2, 3, 32), normal(2, 3, 32)
    empty = np.zeros((2, 2, 0, 16), np.float32)
    prompt = [np.array([2, 2], np.int32), np.array(3, np.int32)]
    tables = angles(20, 8)
    CASES[f"{op} prompt"] = Case(
        op, [query, key, value, empty, empty, *prompt], d.group_query_attention, heads
    )
    CASES[f"{op} packed"] = Case(
        op, [normal(2, 3, 128), None, None, empty, empty, *prompt, *tables],
        d.group_query_attention, {**heads, "do_rotary": 1},
    )  # fmt: skip
    row = [normal(2, 1, 64), normal(2, 1, 32), normal(2, 1, 32)]
    past = [normal(2, 2, 5, 16), normal(2, 2, 5, 16)]
    step = [np.array([5, 3], np.int32), np.array(6, np.int32)]
    options = {
        "step": {}, "window": {"local_window_size": 3}, "cap": {"softcap": 2.0},
        "smooth": {"smooth_softmax": 1}, "scale": {"scale": 0.5},
        "rotary": {"do_rotary": 1}, "interleaved": {"do_rotary": 1, "rotary_interleaved": 1},
    }  # fmt: skip
    for name, more in options.items():
        CASES[f"{op} {name}"] = Case(
            op, [*row, *past, *step, *tables], d.group_query_attention, {**heads, **more}
        )
    CASES[f"{op} bias"] = Case(
        op, [*row, *past, *step, None, None, None, normal(1, 4, 1, 6)],
        d.group_query_attention, heads,
    )  # fmt: skip
    CASES[f"{op} sinks"] = Case(
        op, [*row, *past, *step, None, None, None, None, normal(4)], d.group_query_attention, heads
    )


def _relatives() -> None:
    x, k = normal(3, 4), np.array([1])
    CASES["Trilu"] = Case("Trilu", [x, k], lambda x, k, upper: [np.tril(x, k[0])], {"upper": 0})
    CASES["GatherND"] = Case(
        "GatherND", [x, np.array([[1, 2], [0, 0]])], lambda x, at: [x[at[:, 0], at[:, 1]]]
    )
    pads = np.array([1, 0, 2, 1])
    for mode in ("constant", "reflect", "edge"):
        own = {"constant_values": 3} if mode == "constant" else {}
        CASES[f"Pad {mode}"] = Case(
            "Pad", [x, pads, *[np.float32(3)] * len(own)],
            lambda x, pads, *value, mode, own=own: [np.pad(x, [(1, 2), (0, 1)], mode, **own)],
            {"mode": mode}, (1,),
        )  # fmt: skip
    CASES["ExpandDims"] = Case(
        "ExpandDims", [x, np.array(-1, np.int32)], lambda x, axis: [x[..., None]], {}, (1,)
    )
    CASES["Range"] = Case(
        "Range", [np.array(2, np.int32), np.array(7, np.int32)], lambda *x: [np.arange(*x)], {},
        (0, 1),
    )  # fmt: skip
    CASES["Unique"] = Case(
        "Unique", [np.array([2, 1, 1, 3, 4, 3], np.float32)],
        lambda x: [np.array([2, 1, 3, 4.0]), np.array([0, 1, 1, 2, 3, 2]), np.array([1, 2, 2, 1])],
    )  # fmt: skip
    for metric, power in {"sqeuclidean": 1, "euclidean": 0.5}.items():
        CASES[f"CDist {metric}"] = Case(
            "CDist", [x, normal(5, 4)],
            lambda x, y, metric, power=power: [((x[:, None] - y[None]) ** 2).sum(2) ** power],
            {"metric": metric},
        )  # fmt: skip
    images, grid = normal(1, 2, 3, 4), np.array([[[[-1, -1], [1, 1]]]], np.float32)
    CASES["GridSample"] = Case(
        "GridSample", [images, grid],
        lambda x, grid, **more: [np.stack([x[..., :1, 0], x[..., -1:, -1]], -1)],
        {"align_corners": 1},
    )  # fmt: skip


for fill in (
    _products, _other_products, _normalizations, _attention, _rotations, _grouped,
    _relatives,
):  # fmt: skip
    fill()
