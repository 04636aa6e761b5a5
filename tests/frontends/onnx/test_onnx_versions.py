"""What ops mean in their versions."""

from __future__ import annotations

import numpy as np
import pytest
from onnx_models import declared, made, node

import weft_onnx

X = np.arange(24, dtype="float32").reshape(2, 3, 4) / 8 - 1


def softmax(x: np.ndarray, axes: tuple[int, ...]):
    e = np.exp(x - x.max(axes, keepdims=True))
    return e / e.sum(axes, keepdims=True)


CASES = {
    "softmax over all axes from one on": (12, "Softmax", {"axis": 1}, {}, softmax(X, (1, 2))),
    "softmax over one axis": (13, "Softmax", {"axis": 1}, {}, softmax(X, (1,))),
    "softmax over the axis 1 by default": (11, "Softmax", {}, {}, softmax(X, (1, 2))),
    "softmax over the last axis by default": (13, "Softmax", {}, {}, softmax(X, (2,))),
    "axes of a sum as attribute": (11, "ReduceSum", {"axes": [1]}, {}, X.sum(1, keepdims=True)),
    "axes of a sum as operand": (13, "ReduceSum", {}, {"a": [1]}, X.sum(1, keepdims=True)),
    "axes of a maximum as attribute": (13, "ReduceMax", {"axes": [2]}, {}, X.max(2, keepdims=True)),
    "axes of a maximum as operand": (18, "ReduceMax", {}, {"a": [2]}, X.max(2, keepdims=True)),
    "limits as attributes": (6, "Clip", {"min": -0.5, "max": 0.5}, {}, X.clip(-0.5, 0.5)),
    "limits as operands": (
        11, "Clip", {}, {"a": np.float32(-0.5), "b": np.float32(0.5)}, X.clip(-0.5, 0.5),
    ),
    "a slice by attributes": (
        9, "Slice", {"starts": [1], "ends": [9], "axes": [2]}, {}, X[:, :, 1:],
    ),
    "a slice by operands": (
        13, "Slice", {}, {"a": [-1], "b": [-9], "c": [2], "d": [-2]}, X[:, :, ::-2],
    ),
    "padding by attributes": (
        10, "Pad", {"pads": [0, 1, 0, 0, 0, 2], "value": 3.0}, {},
        np.pad(X, [(0, 0), (1, 0), (0, 2)], constant_values=3),
    ),
    "padding by operands": (
        13, "Pad", {}, {"a": [0, 1, 0, 0, 0, 2], "b": np.float32(3)},
        np.pad(X, [(0, 0), (1, 0), (0, 2)], constant_values=3),
    ),
    "dropout without training, ratio as attribute": (10, "Dropout", {"ratio": 0.5}, {}, X),
    "dropout without training, ratio as operand": (13, "Dropout", {}, {"a": np.float32(0.5)}, X),
    "new axes as attribute": (11, "Unsqueeze", {"axes": [0, 4]}, {}, X[None, ..., None]),
    "new axes as operand": (13, "Unsqueeze", {}, {"a": [0, -1]}, X[None, ..., None]),
    "a top number as attribute": (9, "TopK", {"k": 2, "axis": 2}, {}, X[:, :, :1:-1]),
    "a top number as operand": (11, "TopK", {"axis": 2}, {"a": [2]}, X[:, :, :1:-1]),
    "scales of an enlargement as attribute": (
        8, "Upsample", {"scales": [1.0, 2.0, 1.0]}, {}, X.repeat(2, 1),
    ),
    "scales of an enlargement as operand": (
        9, "Upsample", {}, {"a": np.array([1, 2, 1], "float32")}, X.repeat(2, 1),
    ),
    "parts of equal length by their number": (
        18, "Split", {"num_outputs": 2, "axis": 2}, {}, X[:, :, :2],
    ),
}  # fmt: skip
"""Opset, op, attributes, further operands, and the first result."""


@pytest.mark.parametrize("name", CASES)
def test_version(name: str):
    opset, op, attributes, more, expected = CASES[name]
    outputs = "y z" if op in ("TopK", "Split") else "y"
    constants = {key: np.asarray(value) for key, value in more.items()}
    model = made(
        [node(op, " ".join(["x", *more]), outputs, **attributes)],
        [declared("x", [2, 3, 4])], ["y"], constants, opset,
    )  # fmt: skip
    found = weft_onnx.load(model).run({"x": X})["y"]
    np.testing.assert_allclose(found, expected, 1e-6, 1e-6)
