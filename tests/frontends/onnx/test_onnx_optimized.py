"""Models as onnxruntime's optimizer and quantizer write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx_models import declared, made, node

import weft_onnx
from weft_onnx.lowering import blocked_channels

RNG = np.random.default_rng(7)


def model_of(
    nodes: list[Any], inputs: list[Any], constants: dict[str, Any], domain: str = "com.microsoft"
):
    """Return a model whose nodes have different names, with a domain of onnxruntime."""
    for each in nodes:
        each.name = f"{each.op_type} {each.output[0]}"
    model = made(nodes, inputs, ["y"], constants, 17)
    model.opset_import.append(helper.make_opsetid(domain, 1))
    return model


def weights(*shape: Any):
    return (RNG.standard_normal(shape) * 0.3).astype("float32")


def images():
    """Return a network with convolutions of several kinds, a sum, pooling and a dense end."""
    nodes = [
        node("Conv", "x w0 b0", "c0", pads=[1, 1, 1, 1]),
        node("Relu", "c0", "r0"),
        node("Conv", "r0 w1", "c1", pads=[1, 1, 1, 1], group=24),
        node("HardSwish", "c1", "r1"),
        node("Conv", "r1 w2 b2", "c2"),
        node("Add", "c2 r0", "s"),
        node("MaxPool", "s", "p", kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", "p w3", "c3", group=2),
        node("LeakyRelu", "c3", "r3", alpha=0.2),
        node("Resize", "r3 - scales", "u", mode="nearest",
             coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
        node("GlobalAveragePool", "u", "g"),
        node("Flatten", "g", "f"),
        node("Gemm", "f w4 b4", "d"),
        node("Tanh", "d", "y"),
    ]  # fmt: skip
    constants = {
        "w0": weights(24, 3, 3, 3), "b0": weights(24), "w1": weights(24, 1, 3, 3),
        "w2": weights(24, 24, 1, 1), "b2": weights(24), "w3": weights(32, 12, 1, 1),
        "w4": weights(32, 5), "b4": weights(5), "scales": np.array([1, 1, 2, 2], "float32"),
    }  # fmt: skip
    return model_of(nodes, [declared("x", [1, 3, 8, 8])], constants), (1, 3, 8, 8)


def normalized(nodes: Any, name: Any, x: Any, constants: Any, rows: Any):
    constants[f"{name}s"], constants[f"{name}b"] = 1 + weights(rows), weights(rows)
    nodes.append(node("LayerNormalization", f"{x} {name}s {name}b", name, axis=-1))


def encoder():
    """Return a block of an encoder of text: attention, dense layers, sums and normalizations."""
    rows, heads = 16, 2
    nodes, constants = [], {
        "split": np.array([0, 0, heads, -1]), "whole": np.array([0, 0, rows]),
        "depth": np.float32((rows / heads) ** 0.5), "root": np.float32(2**0.5),
        "one": np.float32(1), "half": np.float32(0.5), "wo": weights(rows, rows),
        "bo": weights(rows), "wi": weights(rows, 4 * rows), "bi": weights(4 * rows),
        "wj": weights(4 * rows, rows), "bj": weights(rows),
    }  # fmt: skip
    normalized(nodes, "n", "x", constants, rows)
    for name in "qkv":
        constants[f"w{name}"], constants[f"b{name}"] = weights(rows, rows), weights(rows)
        order = [0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]
        nodes += [
            node("MatMul", f"n w{name}", f"{name}m"), node("Add", f"{name}m b{name}", f"{name}a"),
            node("Reshape", f"{name}a split", f"{name}r"),
            node("Transpose", f"{name}r", name, perm=order),
        ]  # fmt: skip
    nodes += [
        node("MatMul", "q k", "qk"), node("Div", "qk depth", "scores"),
        node("Softmax", "scores", "shares", axis=-1), node("MatMul", "shares v", "mixed"),
        node("Transpose", "mixed", "turned", perm=[0, 2, 1, 3]),
        node("Reshape", "turned whole", "joined"), node("MatMul", "joined wo", "om"),
        node("Add", "om bo", "o"), node("Add", "o x", "sum"),
    ]  # fmt: skip
    normalized(nodes, "m", "sum", constants, rows)
    nodes += [
        node("MatMul", "m wi", "im"), node("Add", "im bi", "i"), node("Div", "i root", "e0"),
        node("Erf", "e0", "e1"), node("Add", "e1 one", "e2"), node("Mul", "i e2", "e3"),
        node("Mul", "e3 half", "g"), node("MatMul", "g wj", "jm"), node("Add", "jm bj", "j"),
        node("Add", "j m", "end"),
    ]  # fmt: skip
    normalized(nodes, "y", "end", constants, rows)
    return model_of(nodes, [declared("x", [2, 5, rows])], constants), (2, 5, rows)


def recurrent():
    """Return a recurrent network with a dense end."""
    nodes = [
        helper.make_node("LSTM", ["x", "w", "r", "b"], ["h", "", ""], hidden_size=8),
        node("Squeeze", "h axis", "s"), node("MatMul", "s d", "m"), node("Add", "m e", "a"),
        node("Sigmoid", "a", "y"),
    ]  # fmt: skip
    constants = {
        "w": weights(1, 32, 4), "r": weights(1, 32, 8), "b": weights(1, 64),
        "axis": np.array([1]), "d": weights(8, 3), "e": weights(3),
    }  # fmt: skip
    return model_of(nodes, [declared("x", [6, 1, 4])], constants), (6, 1, 4)


MODELS = {"images": images, "encoder": encoder, "recurrent": recurrent}
LEVELS = {
    "basic": "ORT_ENABLE_BASIC", "extended": "ORT_ENABLE_EXTENDED", "all": "ORT_ENABLE_ALL",
}  # fmt: skip


def written(runtime: Any, model: Any, level: Any, path: Any):
    """Return a model as a level of the optimizer saves it."""
    options = runtime.SessionOptions()
    options.graph_optimization_level = getattr(runtime.GraphOptimizationLevel, LEVELS[level])
    options.optimized_model_filepath = str(path)
    options.log_severity_level = 3
    data = model if isinstance(model, str) else model.SerializeToString()
    runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return onnx.load(path)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", MODELS)
def test_an_optimized_model_gives_what_it_gave(name: str, level: str, tmp_path: Path):
    runtime = pytest.importorskip("onnxruntime")
    model, shape = MODELS[name]()
    found = written(runtime, model, level, tmp_path / "optimized.onnx")
    x = weights(*shape)
    wanted = weft_onnx.load(model).run({"x": x}, "numpy")["y"]
    result = weft_onnx.load(found).run({"x": x}, "numpy")["y"]
    np.testing.assert_allclose(result, wanted, 1e-4, 1e-5)


@pytest.mark.parametrize("kind", ["dynamic", "QDQ", "QOperator"])
@pytest.mark.parametrize("name", MODELS)
def test_a_quantized_model_gives_what_onnxruntime_gives(name: str, kind: str, tmp_path: Path):
    runtime = pytest.importorskip("onnxruntime")
    quantization = pytest.importorskip("onnxruntime.quantization")
    model, shape = MODELS[name]()
    given, path = str(tmp_path / "model.onnx"), str(tmp_path / "quantized.onnx")
    onnx.save(onnx.shape_inference.infer_shapes(model), given)
    x = weights(*shape)
    if kind == "dynamic":
        # Without VNNI, onnxruntime saturates sums of products of unsigned bytes with 8 bits.
        quantization.quantize_dynamic(given, path, reduce_range=True)
    else:
        reader = iter([{"x": x}] * 2)

        class Reader(quantization.CalibrationDataReader):
            def get_next(self):
                return next(reader, None)

        quantization.quantize_static(
            given, path, Reader(), quant_format=quantization.QuantFormat[kind]
        )
    optimized = tmp_path / "optimized.onnx"
    written(runtime, path, "all", optimized)
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    for each in (path, str(optimized)):
        session = runtime.InferenceSession(each, options, providers=["CPUExecutionProvider"])
        (wanted,) = session.run(None, {"x": x})
        found = weft_onnx.load(each).run({"x": x}, "numpy")["y"]
        # A step of quantization is the most by which the two may round apart: onnxruntime's
        # softmax of eight bits does so, since it rounds the inverse of its scale down.
        assert np.abs(found - wanted).max() < 0.1 * max(np.abs(wanted).max(), 1)
        assert np.abs(found - wanted).mean() < 0.03


def test_filters_are_put_back_from_blocks():
    """The order of the file, written out element by element."""
    for block in (8, 16):
        filters, channels = 2 * block, 2 * block
        wanted = weights(filters, channels, 2, 3)
        flat = np.empty(wanted.size, "float32")
        for o in range(filters):
            for i in range(channels):
                for place in range(6):
                    at = (o // block) * (channels // block) + i // block
                    at = ((at * 6 + place) * block + i % block) * block + o % block
                    flat[at] = wanted[o, i, place // 3, place % 3]
        given = flat.reshape(wanted.shape)
        np.testing.assert_array_equal(blocked_channels.in_order(given, block, False), wanted)
        few = weights(filters, 3, 2, 3)
        flat = np.empty(few.size, "float32")
        for o in range(filters):
            for i in range(3):
                for place in range(6):
                    at = (((o // block) * 3 + i) * 6 + place) * block + o % block
                    flat[at] = few[o, i, place // 3, place % 3]
        given = flat.reshape(few.shape)
        np.testing.assert_array_equal(blocked_channels.in_order(given, block, True), few)


def blocked(channels: int, filters: int):
    """Return a model with channels in blocks, whose filters are all 1."""
    domain = "com.microsoft.nchwc"
    nodes = [
        helper.make_node("ReorderInput", ["x"], ["i"], domain=domain),
        helper.make_node("Conv", ["i", "w"], ["c"], domain=domain, activation="Relu"),
        helper.make_node("ReorderOutput", ["c"], ["y"], domain=domain, channels=filters - 3),
    ]
    constants = {"w": np.ones((filters, -(-channels // 8) * 8, 1, 1), "float32")}
    return model_of(nodes, [declared("x", [1, channels, 2, 2])], constants, domain)


def test_channels_are_padded_to_blocks_and_cut_again():
    x = np.abs(weights(1, 20, 2, 2))
    found = weft_onnx.load(blocked(20, 24)).run({"x": x})["y"]
    assert found.shape == (1, 21, 2, 2)
    np.testing.assert_allclose(found[:, :1], x.sum(1, keepdims=True), 1e-5)


def test_a_node_of_no_schema_is_refused_for_an_attribute_that_is_not_read():
    wrong = {
        "FusedMatMul": {"beta": 2.0}, "QLinearAdd": {"axis": 1}, "Gelu": {"approximate": "tanh"},
    }  # fmt: skip
    for op, attributes in wrong.items():
        made_node = helper.make_node(op, ["x"] * 8, ["y"], domain="com.microsoft", **attributes)
        model = model_of([made_node], [declared("x", [2, 2])], {})
        with pytest.raises(weft_onnx.NodeError, match=f"attribute {next(iter(attributes))}"):
            weft_onnx.load(model).run({"x": np.ones((2, 2), "float32")})


@pytest.mark.parametrize(
    ("op", "attributes", "problem"),
    [
        ("FusedConv", {"activation": "Cube"}, "activation is 'Cube'"),
        ("FusedConv", {"auto_pad": "SAME"}, "auto_pad is 'SAME'"),
        ("FusedMatMul", {"transA": 2}, "transA is 2"),
        ("Attention", {"num_heads": 1, "do_rotary": 1}, "do_rotary 1, only with 0"),
        ("RotaryEmbedding", {"scale": 2.0}, "scale 2.0, only with 1.0"),
    ],
)
def test_values_that_are_not_computed_are_refused(
    op: str, attributes: dict[str, Any], problem: str
):
    made_node = helper.make_node(op, ["x"] * 4, ["y"], domain="com.microsoft", **attributes)
    model = model_of([made_node], [declared("x", [1, 1, 2, 2])], {})
    with pytest.raises(weft_onnx.NodeError, match=problem):
        weft_onnx.load(model).run({"x": np.ones((1, 1, 2, 2), "float32")})


def test_the_attributes_of_onnxruntime_are_read_or_refused():
    """Attributes that onnxruntime's schemas have and no lowering declares are refused."""
    pytest.importorskip("onnxruntime")
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    from weft_onnx.nodes import attributes_read

    schemas = {(each.domain, each.name): each for each in state.get_all_operator_schema()}
    declared_ops = attributes_read()
    assert len(declared_ops) > 60
    for key, names in declared_ops.items():
        if key in schemas:
            assert names <= set(schemas[key].attributes), key
            assert set(schemas[key].attributes) <= names, key


def test_what_the_optimizer_puts_into_older_opsets_is_taken():
    """Normalizations that came later, and an axis that quantizers have from opset 13 on."""
    x, scale = weights(3, 4), np.array([0.5, 0.25, 2.0, 1.0], "float32")
    nodes = [
        node("LayerNormalization", "x s", "n", axis=-1, epsilon=1e-3),
        node("SimplifiedLayerNormalization", "n s", "m", axis=-1),
        node("QuantizeLinear", "m s z", "q", axis=1),
        node("DequantizeLinear", "q s z", "y", axis=1),
    ]
    constants = {"s": scale, "z": np.zeros(4, "uint8")}
    model = made(nodes, [declared("x", [3, 4])], ["n", "m", "y"], constants, 12)
    found = weft_onnx.load(model).run({"x": x})
    centered = x - x.mean(1, keepdims=True)
    wanted = centered / np.sqrt(x.var(1, keepdims=True) + 1e-3) * scale
    np.testing.assert_allclose(found["n"], wanted, 1e-5, 1e-5)
    wanted = wanted / np.sqrt((wanted**2).mean(1, keepdims=True) + 1e-5) * scale
    np.testing.assert_allclose(found["m"], wanted, 1e-5, 1e-5)
    codes = np.rint(found["m"] / scale).clip(0, 255)
    np.testing.assert_allclose(found["y"], codes * scale, 1e-6)


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("MatMulNBits", {"K": 2, "N": 2, "block_size": 1 << 50}),
        ("MatMulBnb4", {"K": 1 << 40, "N": 1 << 40, "block_size": 16, "quant_type": 1}),
        ("GatherBlockQuantized", {"block_size": 1 << 50}),
    ],
)
def test_blocks_that_no_memory_holds_are_refused(op: str, attributes: dict[str, int]):
    node = helper.make_node(op, ["x", "b", "s"], ["y"], domain="com.microsoft", **attributes)
    constants = {"b": np.zeros((2, 1, 8), "uint8"), "s": np.ones((2, 1, 1), "float32")}
    model = model_of([node], [declared("x", [2, 2])], constants)
    with pytest.raises(weft_onnx.NodeError, match="more than memory holds"):
        weft_onnx.load(model).run({"x": np.ones((2, 2), "float32")})
