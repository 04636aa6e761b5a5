"""Models like those that exporters write: shape arithmetic, norms and attention as small ops."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx_models import declared, made, node

import weft_onnx

RNG = np.random.default_rng(11)


def numbers(*shape: Any):
    return RNG.standard_normal(shape).astype("float32")


def run(model: Any, backend: str, **inputs: Any):
    return weft_onnx.load(model).run(inputs, backend)


def test_a_layer_norm_in_small_ops(backend: str):
    scale, bias = numbers(8), numbers(8)
    model = made(
        [
            node("ReduceMean", "x last", "mean"),
            node("Sub", "x mean", "d"),
            node("Pow", "d two", "sq"),
            node("ReduceMean", "sq last", "var"),
            node("Add", "var eps", "v"),
            node("Sqrt", "v", "std"),
            node("Div", "d std", "n"),
            node("Mul", "n scale", "m"),
            node("Add", "m bias", "y"),
        ],
        [declared("x", ["batch", "time", 8])],
        ["y"],
        {"last": np.array([-1]), "two": np.float32(2), "eps": np.float32(1e-5), "scale": scale,
         "bias": bias},
    )  # fmt: skip
    x = numbers(2, 3, 8)
    mean, std = x.mean(-1, keepdims=True), np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    expected = (x - mean) / std * scale + bias
    np.testing.assert_allclose(run(model, backend, x=x)["y"], expected, 1e-4, 1e-5)


def test_attention_with_shapes_taken_from_the_input(backend: str):
    """Batch and time are open; heads are split by shape arithmetic, as PyTorch writes it."""
    weights = {name: numbers(8, 8) / 3 for name in ("wq", "wk", "wv", "wo")}
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s zero", "b"),
        node("Gather", "s one", "t"),
        node("Unsqueeze", "b axis", "b1"),
        node("Unsqueeze", "t axis", "t1"),
        node("Concat", "b1 t1 heads depth", "split", axis=0),
        node("Concat", "b1 t1 width", "joined", axis=0),
    ]
    for name in "qkv":
        nodes += [
            node("MatMul", f"x w{name}", f"{name}0"),
            node("Reshape", f"{name}0 split", f"{name}1"),
            node("Transpose", f"{name}1", f"{name}2", perm=[0, 2, 1, 3]),
        ]
    nodes += [
        node("Transpose", "k2", "kt", perm=[0, 1, 3, 2]),
        node("MatMul", "q2 kt", "scores"),
        node("Div", "scores root", "scaled"),
        node("Softmax", "scaled", "p", axis=-1),
        node("MatMul", "p v2", "mixed"),
        node("Transpose", "mixed", "back", perm=[0, 2, 1, 3]),
        node("Reshape", "back joined", "flat"),
        node("MatMul", "flat wo", "y"),
    ]
    constants = {
        **weights, "zero": np.int64(0), "one": np.int64(1), "axis": np.array([0]),
        "heads": np.array([2]), "depth": np.array([4]), "width": np.array([8]),
        "root": np.float32(2),
    }  # fmt: skip
    model = made(nodes, [declared("x", ["batch", "time", 8])], ["y"], constants)
    program = weft_onnx.load(model).prepare(backend)
    for shape in ((2, 5, 8), (1, 3, 8)):
        x = numbers(*shape)
        q, k, v = (
            (x @ weights[name]).reshape(*shape[:2], 2, 4).transpose(0, 2, 1, 3)
            for name in ("wq", "wk", "wv")
        )
        scores = q @ k.swapaxes(-1, -2) / 2
        p = np.exp(scores - scores.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        expected = (p @ v).transpose(0, 2, 1, 3).reshape(shape) @ weights["wo"]
        np.testing.assert_allclose(program.run({"x": x})["y"], expected, 1e-4, 1e-5)
    assert len(program.steps()) == 2
    program.transformer.close()


def test_a_dense_layer_as_gemm(backend: str):
    w, b = numbers(5, 8), numbers(5)
    model = made(
        [node("Flatten", "x", "f"), node("Gemm", "f w b", "y", transB=1)],
        [declared("x", ["batch", 2, 4])], ["y"], {"w": w, "b": b},
    )  # fmt: skip
    x = numbers(3, 2, 4)
    expected = x.reshape(3, 8) @ w.T + b
    np.testing.assert_allclose(run(model, backend, x=x)["y"], expected, 1e-5, 1e-5)


def test_an_lstm_whose_states_are_filled_by_shape(backend: str):
    """The initial states are zeros of a shape that is computed from the input."""
    w, r, bias = numbers(1, 12, 4) / 2, numbers(1, 12, 3) / 2, numbers(1, 24) / 2
    model = made(
        [
            node("Shape", "x", "s"),
            node("Gather", "s one", "batch"),
            node("Unsqueeze", "batch axis", "b1"),
            node("Concat", "single b1 hidden", "shape", axis=0),
            node("Expand", "nothing shape", "zeros"),
            node("LSTM", "x w r b - zeros zeros", "y h c", hidden_size=3),
            node("Squeeze", "y second", "flat"),
        ],
        [declared("x", ["time", "batch", 4])],
        ["flat", "h"],
        {"one": np.int64(1), "axis": np.array([0]), "single": np.array([1]),
         "second": np.array([1]),
         "hidden": np.array([3]), "nothing": np.zeros((1, 1, 1), "float32"), "w": w, "r": r,
         "b": bias},
    )  # fmt: skip
    x = numbers(4, 2, 4)
    h = c = np.zeros((2, 3), "float32")
    expected = []
    for step in x:
        i, o, f, g = np.split(step @ w[0].T + h @ r[0].T + bias[0, :12] + bias[0, 12:], 4, 1)
        i, o, f = (1 / (1 + np.exp(-each)) for each in (i, o, f))
        c = f * c + i * np.tanh(g)
        h = o * np.tanh(c)
        expected.append(h)
    found = run(model, backend, x=x)
    np.testing.assert_allclose(found["flat"], np.stack(expected), 1e-4, 1e-5)
    np.testing.assert_allclose(found["h"][0], h, 1e-4, 1e-5)
