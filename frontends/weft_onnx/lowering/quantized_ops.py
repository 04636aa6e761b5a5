"""Ops on quantized tensors, as onnxruntime's quantizer and optimizer write them.

An operand comes with its scale and zero point. What is not a product is computed in float32 and
quantized again; products are of int32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from weft_onnx.lowering.convolution import convolved, window
from weft_onnx.lowering.fused import CONVOLUTION
from weft_onnx.lowering.quantization import (
    dequantize_linear,
    dynamically_quantized,
    quantize_linear,
)
from weft_onnx.lowering.recurrent import RecurrentSequence, long_short_term_memory
from weft_onnx.nodes import MICROSOFT, Node, cast, lowers
from weft_onnx.values import Tensor

lowers("QuantizeLinear", domain=MICROSOFT, attributes="axis")(quantize_linear)
lowers("DequantizeLinear", domain=MICROSOFT, attributes="axis")(dequantize_linear)


def parameter(node: Node, operand: int, dtype: str = "float32", axis: int = -1) -> Tensor:
    """Return a scale or zero point that broadcasts to a tensor; 0 for one that is left out.

    One of several numbers has these along the last axis, or along another one.
    """
    if not node.has(operand):
        return weft.constant(np.zeros((), dtype))
    x = cast(node[operand], dtype)
    if x.axes.size == 1:
        return weft.reshape(x, ())
    return weft.reshape(x, (*x.axes.shape, *[1] * (-1 - axis)))


def centered(node: Node, operand: int, zero: int) -> Tensor:
    """Return an operand less its zero point, as int32."""
    return cast(node[operand], "int32") - parameter(node, zero, "int32")


def dequantized(node: Node, operand: int) -> Tensor:
    """Return an operand as float32; its scale and zero point are the next two operands."""
    scale = parameter(node, operand + 1)
    return cast(centered(node, operand, operand + 2), "float32") * scale


def quantized(node: Node, y: Tensor, scale: int, zero: int, dtype: Any) -> Tensor:
    """Return float32 in a quantized type, by the operands that are scale and zero point."""
    return rounded(y / parameter(node, scale), parameter(node, zero), dtype)


def quantized_sum(node: Node, y: Tensor, scale: int, zero: int, dtype: Any) -> Tensor:
    """Return the same with the zero point added before it is rounded, which decides ties."""
    return limited(weft.round(y / parameter(node, scale) + parameter(node, zero)), dtype)


def rounded(y: Tensor, zero: Tensor, dtype: Any) -> Tensor:
    """Return the nearest numbers of a type, after a zero point is added."""
    return limited(weft.round(y) + zero, dtype)


def limited(y: Tensor, dtype: Any) -> Tensor:
    """Return whole numbers in a type, the nearest one where they are out of its range."""
    limits = np.iinfo(dtype)
    return cast(weft.clip(y, float(limits.min), float(limits.max)), dtype)


@lowers("QLinearAdd", domain=MICROSOFT, attributes="")
def qlinear_add(node: Node) -> Tensor:
    """Add quantized tensors.

    Scales are divided by that of the result first, as onnxruntime does: ratios such as a half are
    exact then, and so are the many ties that they give.
    """
    a, b = (cast(centered(node, at, at + 2), "float32") for at in (0, 3))
    scale = parameter(node, 6)
    y = a * (parameter(node, 1) / scale) + b * (parameter(node, 4) / scale)
    return limited(weft.round(y + parameter(node, 7)), node.dtype())


@lowers("QLinearMul", domain=MICROSOFT, attributes="")
def qlinear_mul(node: Node) -> Tensor:
    """Multiply quantized tensors elementwise."""
    product = cast(centered(node, 0, 2) * centered(node, 3, 5), "float32")
    y = product * (parameter(node, 1) * parameter(node, 4) / parameter(node, 6))
    return limited(weft.round(y + parameter(node, 7)), node.dtype())


@lowers("QLinearWhere", domain=MICROSOFT, attributes="")
def qlinear_where(node: Node) -> Tensor:
    """Choose between elements of quantized tensors."""
    y = weft.where(node[0], dequantized(node, 1), dequantized(node, 4))
    return quantized(node, y, 7, 8, node.dtype(1))


@lowers("QLinearConcat", domain=MICROSOFT, attributes="axis")
def qlinear_concat(node: Node) -> Tensor:
    """Join quantized tensors along an axis; the scale and zero point of the result come first."""
    parts = [dequantized(node, at) for at in range(2, len(node.inputs), 3)]
    axis = node.axis(node.required("axis"), node.rank(2))
    return quantized(node, weft.concat(parts, axis), 0, 1, node.dtype(2))


@lowers("QLinearLeakyRelu", domain=MICROSOFT, attributes="alpha")
def qlinear_leaky_relu(node: Node) -> Tensor:
    """Return quantized x, or alpha x where it is negative."""
    y = weft.leaky_relu(dequantized(node, 0), node.attr("alpha", 0.01))
    return quantized(node, y, 3, 4, node.dtype())


@lowers("QLinearSigmoid", domain=MICROSOFT, attributes="")
def qlinear_sigmoid(node: Node) -> Tensor:
    """Return the sigmoid of a quantized tensor."""
    return quantized(node, weft.sigmoid(dequantized(node, 0)), 3, 4, node.dtype())


@lowers("QLinearSoftmax", domain=MICROSOFT, attributes="axis opset")
def qlinear_softmax(node: Node) -> Tensor:
    """Return the softmax along an axis, or before opset 13 over all axes from one on."""
    axis = node.axis(node.attr("axis", -1))
    axes = (axis,) if node.required("opset") >= 13 else tuple(range(axis, node.rank()))
    return quantized(node, weft.softmax(dequantized(node, 0), axis=axes), 3, 4, node.dtype())


@lowers("QLinearReduceMean", domain=MICROSOFT, attributes="axes keepdims")
def qlinear_reduce_mean(node: Node) -> Tensor:
    """Return means of a quantized tensor over axes."""
    axes = node.axes(node.attr("axes") or range(node.rank()))
    y = weft.mean(dequantized(node, 0), axis=axes, keepdims=node.flag("keepdims", True))
    return quantized(node, y, 3, 4, node.dtype())


def channels_first(node: Node, x: Tensor) -> Tensor:
    """Return images with their channels before the spatial axes."""
    return weft.moveaxis(x, x.rank - 1, 1) if node.flag("channels_last") else x


def channels_back(node: Node, y: Tensor) -> Tensor:
    """Return images with their channels where a node has them."""
    return weft.moveaxis(y, 1, y.rank - 1) if node.flag("channels_last") else y


@lowers("QLinearGlobalAveragePool", domain=MICROSOFT, attributes="channels_last")
def qlinear_global_average_pool(node: Node) -> Tensor:
    """Return the means of quantized images over the spatial axes."""
    y = weft.global_avg_pool(channels_first(node, dequantized(node, 0)))
    return channels_back(node, quantized(node, y, 3, 4, node.dtype()))


POOL = "auto_pad ceil_mode kernel_shape pads strides"


@lowers(
    "QLinearAveragePool", domain=MICROSOFT, attributes=f"channels_last count_include_pad {POOL}"
)
def qlinear_average_pool(node: Node) -> Tensor:
    """Return the mean of each window of quantized images."""
    x = channels_first(node, dequantized(node, 0))
    options = window(node, x.axes.shape[2:])
    y = weft.avg_pool(x, count_include_pad=node.flag("count_include_pad"), **options)
    return channels_back(node, quantized_sum(node, y, 3, 4, node.dtype()))


@lowers("NhwcMaxPool", domain=MICROSOFT, attributes=f"dilations {POOL}")
def nhwc_max_pool(node: Node) -> Tensor:
    """Return the maximum of each window of images whose channels are last."""
    x = weft.moveaxis(cast(node[0], "int32"), node.rank() - 1, 1)
    y = weft.max_pool(x, **window(node, x.axes.shape[2:]))
    return cast(weft.moveaxis(y, 1, y.rank - 1), node.dtype())


@lowers("QLinearConv", domain=MICROSOFT, attributes=f"channels_last {CONVOLUTION}")
def qlinear_conv(node: Node) -> Tensor:
    """Convolve quantized images, whose channels may be last."""
    filters = node.rank(3)
    x = channels_first(node, centered(node, 0, 2))
    w = cast(node[3], "int32") - parameter(node, 5, "int32", axis=-filters)
    total = cast(convolved(node, x, w, node.get(8)), "float32")
    factor = parameter(node, 1) * parameter(node, 4, axis=1 - filters) / parameter(node, 6)
    y = rounded(total * factor, parameter(node, 7), node.dtype(7))
    return channels_back(node, y)


@lowers("QGemm", domain=MICROSOFT, attributes="alpha transA transB")
def qgemm(node: Node) -> Tensor:
    """Return alpha A B + C of quantized matrices, which stays float32 without a scale."""
    a, b = centered(node, 0, 2), cast(node[3], "int32")
    a = weft.transpose(a, (1, 0)) if node.flag("transA") else a
    b = weft.transpose(b, (1, 0)) if node.flag("transB") else b
    total = weft.matmul(a, b - parameter(node, 5, "int32"))
    total = total + node[6] if node.has(6) else total
    factor = parameter(node, 1) * parameter(node, 4) * node.attr("alpha", 1.0)
    y = cast(total, "float32") * factor
    return quantized(node, y, 7, 8, node.dtype(8)) if node.has(7) else y


@lowers("MatMulIntegerToFloat", domain=MICROSOFT, attributes="")
def matmul_integer_to_float(node: Node) -> Tensor:
    """Multiply quantized matrices, and add a bias, as float32."""
    a, b = centered(node, 0, 4), centered(node, 1, 5)
    y = cast(weft.matmul(a, b), "float32") * (parameter(node, 2) * parameter(node, 3))
    return cast(y + node[6] if node.has(6) else y, node.dtype(3))


@lowers("MatMulInteger16", domain=MICROSOFT, attributes="")
def matmul_integer_16(node: Node) -> Tensor:
    """Multiply matrices of 16-bit integers, as int32."""
    return weft.matmul(cast(node[0], "int32"), cast(node[1], "int32"))


@lowers("DynamicQuantizeMatMul", domain=MICROSOFT, attributes="")
def dynamic_quantize_matmul(node: Node) -> Tensor:
    """Quantize the first matrix by its range, multiply by a quantized one, and add a bias."""
    y, scale, zero = dynamically_quantized(node[0])
    y, zero = (cast(cast(each, "uint8"), "int32") for each in (y, zero))
    product = weft.matmul(y - zero, centered(node, 1, 3))
    found = cast(product, "float32") * (scale * parameter(node, 2))
    return found + node[4] if node.has(4) else found


class QuantizedSequence(RecurrentSequence):
    """The operands of a recurrent network with quantized weights."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self.hidden = node.attr("hidden_size") or node.shape(2)[1]
        self.x = self.fed_back(self.x)

    def weights(self, index: int) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the weights and biases of a direction."""
        node = self.node
        w, r = (self._dequantized(operand, place, index) for operand, place in ((1, 8), (2, 10)))
        bias = weft.slice_along_axis(node[3], 0, index) if node.has(3) else None
        return w, r, bias

    def _dequantized(self, operand: int, place: int, index: int) -> Tensor:
        """Return a matrix of quantized weights, which the file has transposed."""
        node = self.node
        given, zero = (cast(node[n], "int32") for n in (operand, place + 1))
        x, zero, scale = (weft.slice_along_axis(t, 0, index) for t in (given, zero, node[place]))
        return weft.transpose(cast(x - zero, "float32") * scale, (1, 0))

    def fed_back(self, hidden: Tensor) -> Tensor:
        """Return a tensor as the eight bits by its range stand for it."""
        y, scale, zero = dynamically_quantized(hidden)
        return (y - zero) * scale


@lowers(
    "DynamicQuantizeLSTM",
    domain=MICROSOFT,
    attributes=(
        "activation_alpha activation_beta activations clip direction hidden_size input_forget"
    ),
)
def dynamic_quantize_lstm(node: Node) -> Any:
    """Run long short-term memories with quantized weights and states."""
    return long_short_term_memory(node, QuantizedSequence(node))
