"""Work as an ONNX model: a namespace whose functions record nodes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from models.block import EPSILON
from onnx import TensorProto, helper, numpy_helper, shape_inference
from work import Work

OPSET = 23
IR_VERSION = 10
SCALE = 1 / math.sqrt(64)
"""Of attention, whose heads have 64 elements in all work."""


class Value:
    """A value of the model, with Python's operators; its rank is known where attention asks."""

    def __init__(self, recorder: Recorder, name: str, rank: int = 0) -> None:
        self.recorder, self.name, self.rank = recorder, name, rank

    def _with(self, kind: str, other: Any, swapped: bool = False) -> Value:
        operands = (other, self) if swapped else (self, other)
        return self.recorder.node(kind, *operands)

    def __add__(self, other: Any) -> Value:
        return self._with("Add", other)

    def __mul__(self, other: Any) -> Value:
        return self._with("Mul", other)

    def __matmul__(self, other: Any) -> Value:
        return self._with("MatMul", other)

    def __gt__(self, other: Any) -> Value:
        return self._with("Greater", other)

    def __getitem__(self, key: Any) -> Value:
        """Return one element of the first axis, or a slice of the last one."""
        if isinstance(key, int):
            return self.recorder.node("Gather", self, np.int64(key), rank=self.rank - 1, axis=0)
        *_, part = key
        start, stop = part.start or 0, part.stop if part.stop is not None else 2**31
        places = [np.array([each], np.int64) for each in (start, stop, -1)]
        return self.recorder.node("Slice", self, *places)


class Recorder:
    """The namespace: each function adds a node."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []

    def constant(self, array: Any) -> Value:
        """Return an initializer; Python's numbers are float32."""
        if isinstance(array, int | float):
            array = np.float32(array)
        name = f"c{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(np.asarray(array), name))
        return Value(self, name, np.ndim(array))

    def node(self, kind: str, *operands: Any, rank: int = 0, **attributes: Any) -> Value:
        """Return what a new node yields."""
        names = [
            (each if isinstance(each, Value) else self.constant(each)).name for each in operands
        ]
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, names, [name], **attributes))
        return Value(self, name, rank)

    def tanh(self, x: Value) -> Value:
        """Record Tanh."""
        return self.node("Tanh", x)

    def exp(self, x: Value) -> Value:
        """Record Exp."""
        return self.node("Exp", x)

    def where(self, condition: Value, x: Value, y: Value) -> Value:
        """Record Where."""
        return self.node("Where", condition, x, y)

    def maximum(self, x: Value, least: float) -> Value:
        """Record Max."""
        return self.node("Max", x, least)

    def relu(self, x: Value) -> Value:
        """Record Relu."""
        return self.node("Relu", x)

    def sigmoid(self, x: Value) -> Value:
        """Record Sigmoid."""
        return self.node("Sigmoid", x)

    def gelu(self, x: Value) -> Value:
        """Record Gelu."""
        return self.node("Gelu", x)

    def softmax(self, x: Value) -> Value:
        """Record Softmax."""
        return self.node("Softmax", x, axis=-1)

    def sum(self, x: Value, axis: int) -> Value:
        """Record ReduceSum."""
        return self.node("ReduceSum", x, np.array([axis], np.int64), keepdims=0)

    def mean(self, x: Value, axis: int) -> Value:
        """Record ReduceMean."""
        return self.node("ReduceMean", x, np.array([axis], np.int64), keepdims=0)

    def variance(self, x: Value) -> Value:
        """Record the mean square distance from the mean."""
        centered = self.node("Sub", x, self.node("ReduceMean", x, keepdims=1))
        return self.node("ReduceMean", centered * centered, keepdims=0)

    def layer_norm(self, x: Value, scale: Value, bias: Value) -> Value:
        """Record LayerNormalization."""
        return self.node("LayerNormalization", x, scale, bias, axis=-1, epsilon=EPSILON)

    def rms_norm(self, x: Value, scale: Value) -> Value:
        """Record RMSNormalization, as onnxruntime's fused op."""
        return self.node("RMSNormalization", x, scale, axis=-1, epsilon=EPSILON)

    def attention(self, q: Value, k: Value, v: Value) -> Value:
        """Record the products and the softmax between them, for heads of 64 elements."""
        axes = [*range(k.rank - 2), k.rank - 1, k.rank - 2]
        scores = (q @ self.transpose(k, axes)) * SCALE
        return self.softmax(scores) @ v

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        """Record Reshape."""
        return self.node("Reshape", x, np.array(shape, np.int64), rank=len(shape))

    def transpose(self, x: Value, axes: Sequence[int]) -> Value:
        """Record Transpose."""
        return self.node("Transpose", x, rank=len(axes), perm=list(axes))

    def concatenate(self, parts: Sequence[Value], axis: int) -> Value:
        """Record Concat."""
        return self.node("Concat", *parts, rank=parts[0].rank, axis=axis)

    def convolution(self, x: Value, w: Value, b: Value) -> Value:
        """Record Conv."""
        return self.node("Conv", x, w, b, pads=[1, 1, 1, 1])

    def pooled(self, x: Value) -> Value:
        """Record MaxPool."""
        return self.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])


def model(work: Work) -> bytes:
    """Return the model of some work, checked."""
    recorder = Recorder()
    inputs = [Value(recorder, f"x{number}", x.ndim) for number, x in enumerate(work.inputs)]
    weights = [recorder.constant(weight) for weight in work.weights]
    result = work.function(recorder, weights, *inputs)
    declared = [
        helper.make_tensor_value_info(each.name, TensorProto.FLOAT, x.shape)
        for each, x in zip(inputs, work.inputs, strict=True)
    ]
    out = helper.make_tensor_value_info(result.name, TensorProto.FLOAT, None)
    graph = helper.make_graph(recorder.nodes, "work", declared, [out], recorder.initializers)
    found = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
    )
    found = shape_inference.infer_shapes(found)  # of the result too
    onnx.checker.check_model(found)
    return found.SerializeToString()  # type: ignore[no-any-return]
