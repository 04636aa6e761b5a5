"""Quantisation."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from weft_onnx.lowering.convolution import convolved
from weft_onnx.lowering.elementwise import converted_array
from weft_onnx.nodes import Node, cast, lowers, numpy_dtype
from weft_onnx.values import Tensor, Value, dtype_of, is_for_device, shape_of

LIMITS = {
    "int4": (-8, 7), "uint4": (0, 15), "int2": (-2, 1), "uint2": (0, 3),
}  # fmt: skip


def _limits(dtype: np.dtype[Any]) -> tuple[int, int]:
    if dtype.name in LIMITS:
        return LIMITS[dtype.name]
    found = np.iinfo(dtype)
    return int(found.min), int(found.max)


def spread(node: Node, x: Tensor, shape: tuple[int, ...], axis: int, block: int) -> Tensor:
    """Return scales or zero points for each element, axis or block of a tensor."""
    if x.rank == 0 or (x.axes.size == 1 and x.rank == 1 and len(shape) != 1):
        return weft.reshape(x, ())
    if block:
        found = weft.repeat(x, block, axis)
        slices = [slice(0, n) for n in shape]
        return weft.tensor_slice(found, tuple(slices))
    if x.rank == 1:
        lengths = [1] * len(shape)
        lengths[axis] = x.axes.shape[0]
        return weft.reshape(x, tuple(lengths))
    return x


@lowers("QuantizeLinear")
def quantize_linear(node: Node) -> Any:
    """Divide by a scale, round and add a zero point."""
    x, y_scale = node.raw(0), node.raw(1)
    number = node.attr("output_dtype", 0)
    if node.has(2):
        dtype = dtype_of(node.raw(2))
    else:
        dtype = numpy_dtype(number) if number else np.dtype("uint8")
    axis = node.axis(node.attr("axis", 1)) if node.rank() > abs(node.attr("axis", 1)) else 0
    block, saturates = node.attr("block_size", 0), bool(node.attr("saturate", 1))
    wide = "float64" if dtype_of(x).name == "float64" else "float32"
    precision = node.attr("precision", 0)
    if not is_for_device(dtype_of(y_scale)):
        return NotImplemented
    scale = spread(node, cast(node.op(y_scale), wide), shape_of(x), axis, block)
    scaled = cast(node[0], wide) / scale
    del precision
    if dtype.name.startswith("float"):
        return node.host(lambda given: [converted_array(given, dtype, saturates)], scaled)[0]
    low, high = _limits(dtype)
    rounded = weft.round(scaled)
    if node.has(2):
        zero = node.raw(2)
        if not is_for_device(dtype_of(zero)):
            zero = node.known(zero).astype(np.int32)
        rounded = rounded + spread(node, cast(node.op(zero), wide), shape_of(x), axis, block)
    limited = weft.clip(rounded, low, high)
    if is_for_device(dtype):
        return cast(limited, dtype)
    return node.host(lambda given: [given.astype(np.int8).astype(dtype)], limited)[0]


@lowers("DequantizeLinear")
def dequantize_linear(node: Node) -> Any:
    """Subtract a zero point and multiply by a scale."""
    x, scale = node.raw(0), node[1]
    number = node.attr("output_dtype", 0)
    dtype = numpy_dtype(number) if number else scale.dtype
    axis = node.axis(node.attr("axis", 1)) if node.rank() > abs(node.attr("axis", 1)) else 0
    block = node.attr("block_size", 0)
    given = _wide(node, x)
    if node.has(2):
        given = given - spread(node, _wide(node, node.raw(2)), shape_of(x), axis, block)
    factor = spread(node, cast(scale, "float32"), shape_of(x), axis, block)
    return cast(cast(given, "float32") * factor, dtype)


def _wide(node: Node, x: Value) -> Tensor:
    """Return numbers of few bits as int32 or float32."""
    dtype = dtype_of(x)
    if is_for_device(dtype):
        return cast(node.op(x), "int32") if dtype.kind in "iu" else node.op(x)
    kind = np.float32 if dtype.name.startswith("float") else np.int32
    return node.op(node.host(lambda given: [given.astype(kind)], x)[0])


@lowers("DynamicQuantizeLinear")
def dynamic_quantize_linear(node: Node) -> Any:
    """Quantise to uint8 by the range of the operand."""
    x = node[0]
    axes = tuple(range(x.rank))
    low = weft.minimum(weft.min(x, axis=axes), 0)
    high = weft.maximum(weft.max(x, axis=axes), 0)
    scale = (high - low) / 255
    scale = weft.where(weft.equal(scale, 0), 1.0, scale)
    zero = weft.clip(weft.round((0 - low) / scale), 0, 255)
    y = weft.clip(weft.round(x / scale) + zero, 0, 255)
    return cast(y, "uint8"), scale, cast(zero, "uint8")


def _requantized(node: Node, total: Tensor, factor: Tensor, zero: Value) -> Tensor:
    dtype = dtype_of(zero)
    low, high = _limits(dtype)
    found = weft.round(cast(total, "float32") * factor) + cast(node.op(zero), "float32")
    return cast(weft.clip(found, low, high), dtype)


@lowers("QLinearMatMul")
def qlinear_matmul(node: Node) -> Any:
    """Multiply quantised matrices."""
    a, b = (_centred(node, n, n + 2, side) for n, side in ((0, "rows"), (3, "columns")))
    total = weft.matmul(a, b)
    first = _scale_of_rows(node[1], total.rank)
    factor = first * cast(node[4], "float32") / cast(node[6], "float32")
    return _requantized(node, total, factor, node.raw(7))


def _centred(node: Node, operand: int, zero: int, side: str) -> Tensor:
    given, point = node.raw(operand), node.raw(zero)
    if not is_for_device(dtype_of(given)):
        raise node.error(f"no device multiplies {dtype_of(given)}")
    x, origin = cast(node.op(given), "int32"), cast(node.op(point), "int32")
    if side == "rows" and origin.rank == 1 and origin.axes.size > 1:
        origin = weft.unsqueeze(origin, -1)
    if origin.axes.size == 1:
        origin = weft.reshape(origin, ())
    return x - origin


def _scale_of_rows(scale: Tensor, rank: int) -> Tensor:
    scale = cast(scale, "float32")
    if scale.axes.size == 1:
        return weft.reshape(scale, ())
    return weft.unsqueeze(scale, -1) if scale.rank == 1 and rank > 1 else scale


@lowers("QLinearConv")
def qlinear_conv(node: Node) -> Any:
    """Convolve quantised images."""
    x = cast(node[0], "int32") - weft.reshape(cast(node[2], "int32"), ())
    w, origin = cast(node[3], "int32"), cast(node[5], "int32")
    shape = (-1, *[1] * (w.rank - 1))
    w = w - (weft.reshape(origin, shape) if origin.axes.size > 1 else weft.reshape(origin, ()))
    total = convolved(node, x, w, node.get(8))
    factor = cast(node[1], "float32") * cast(node[4], "float32") / cast(node[6], "float32")
    factor = weft.reshape(factor, (-1, *[1] * (w.rank - 2))) if factor.axes.size > 1 else (
        weft.reshape(factor, ())
    )  # fmt: skip
    return _requantized(node, total, factor, node.raw(7))
