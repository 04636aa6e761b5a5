"""Models on WebGPU: losses, scores and logits as the numpy backend computes them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from needs import skip_without

import weft

EXAMPLES = str(Path(__file__).parents[3] / "examples")
pytestmark = pytest.mark.slow


def arrays(*shapes: tuple[int, ...]) -> list[Any]:
    """Return normally distributed numbers, the same ones each time."""
    random = np.random.default_rng(0)
    return [random.normal(size=shape).astype("f") for shape in shapes]


def digits(backend: str) -> list[Any]:
    """Return the losses of the example that learns digits, on numbers in the place of images."""
    pytest.importorskip("sklearn")
    from digits import Activation, descent, initial_weights, perceptron

    model = perceptron(initial_weights(0), Activation.TANH)
    (images,), labels = arrays((32, 64)), np.arange(32, dtype="int32") % 10
    with weft.make_transformer(backend, cache=False) as transformer:
        step = transformer.computation([model.loss, descent(model.loss, 0.1, 0.9)], *model.inputs)
        return [step(images, labels)[0] for _ in range(5)]


def pictures(backend: str) -> list[Any]:
    """Return the losses of a network like that of the tutorial, and what it sees in the end."""
    (images, first, second, last), labels = (
        arrays((16, 1, 8, 8), (6, 1, 3, 3), (8, 6, 3, 3), (32, 10)),
        np.arange(16, dtype="int32") % 10,
    )
    filters = [weft.variable(each.shape, initial_value=each / 3) for each in (first, second)]
    matrix = weft.variable(last.shape, initial_value=last / 3)
    states = [
        [weft.persistent_tensor((each.axes[0].length,), initial_value=value) for value in (0, 1)]
        for each in filters
    ]
    x, y = weft.placeholder((16, 1, 8, 8)), weft.placeholder((16,), weft.int32)

    def network(training: bool) -> Any:
        z = x
        for each, (mean, variance) in zip(filters, states, strict=True):
            z = weft.conv2d(z, each, padding=1)
            z = weft.batch_norm(z, 1.0, 0.0, mean, variance, training=training)
            z = weft.max_pool(weft.relu(z), 2)
        return weft.reshape(z, (16, 32)) @ matrix

    loss = weft.cross_entropy(network(True), y)
    with weft.saved_user_deps():
        update = weft.adamw(loss, learning_rate=0.01)
    with weft.make_transformer(backend, cache=False) as transformer:
        step = transformer.computation([loss, update], x, y)
        losses = [step(images, labels)[0] for _ in range(3)]
        return [*losses, transformer.computation(network(False), x)(images)]


def onnx_network(backend: str) -> list[Any]:
    """Return the scores of a convolutional network in ONNX."""
    pytest.importorskip("onnx")
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    import weft_onnx

    images, filters, bias, matrix = arrays((2, 1, 8, 8), (4, 1, 3, 3), (4,), (64, 5))
    constants = {"filters": filters, "bias": bias, "matrix": matrix}
    nodes = [
        helper.make_node("Conv", ["x", "filters", "bias"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MaxPool", ["b"], ["c"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["c"], ["d"]),
        helper.make_node("Gemm", ["d", "matrix"], ["e"]),
        helper.make_node("Softmax", ["e"], ["scores"]),
    ]
    x, scores = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", (2, 1, 8, 8)), ("scores", (2, 5)))
    )
    weights = [numpy_helper.from_array(each, name) for name, each in constants.items()]
    graph = helper.make_graph(nodes, "network", [x], [scores], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.checker.check_model(model)
    return [weft_onnx.load(model).run({"x": images}, backend)["scores"]]


def decoding(backend: str) -> list[Any]:
    """Return the logits of a small LLaMA, after a prompt and after each token."""
    from llama2.checkpoint import Config
    from llama2.decoder import Decoder
    from llama2.training import initial_weights

    config = Config(
        dim=16, hidden_dim=24, layers=2, heads=4, kv_heads=2, vocabulary=31, longest=20
    )  # fmt: skip
    decoder = Decoder(config, initial_weights(config, 0), backend)
    return [decoder.decode(token, place).copy() for place, token in enumerate((3, 1, 4, 1, 5))]


MODELS: tuple[Callable[[str], list[Any]], ...] = (digits, pictures, onnx_network, decoding)


@pytest.mark.parametrize("model", MODELS, ids=lambda each: each.__name__)
def test_models_give_what_numpy_does(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    skip_without("webgpu")
    monkeypatch.setattr(sys, "path", [*sys.path, EXAMPLES])
    for found, expected in zip(model("webgpu"), model("numpy"), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
