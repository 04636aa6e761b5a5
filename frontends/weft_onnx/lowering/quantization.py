"""Quantization."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from weft.nn.quantization import BITS, WORD, words_of
from weft_onnx.lowering.convolution import convolved
from weft_onnx.lowering.elementwise import converted_array, widened
from weft_onnx.nodes import Node, cast, lowers, numpy_dtype
from weft_onnx.values import Tensor, Value, dtype_of, is_for_device, is_known

LIMITS = {
    "int4": (-8, 7), "uint4": (0, 15), "int2": (-2, 1), "uint2": (0, 3),
}  # fmt: skip


def _limits(dtype: np.dtype[Any]) -> tuple[int, int]:
    if dtype.name in LIMITS:
        return LIMITS[dtype.name]
    found = np.iinfo(dtype)
    return int(found.min), int(found.max)


def saturated(x: Tensor, dtype: np.dtype[Any]) -> Tensor:
    """Return rounded numbers in the range of a dtype.

    NaN, which the specification leaves open, gives the least number of the dtype, as in
    onnxruntime: also where an infinity is divided by an infinite scale, or zero by zero.
    """
    low, high = _limits(dtype)
    return weft.where(weft.isnan(x), float(low), weft.clip(x, low, high))


def spread(node: Node, x: Tensor, shape: tuple[int, ...], what: str = "scale") -> Tensor:
    """Return scales or zero points for each element, axis or block of a tensor."""
    if x.axes.size == 1:
        return weft.reshape(x, ())
    axis = node.axis(node.attr("axis", 1), len(shape))
    lengths, block = list(shape), node.attr("block_size", 0)
    if block < 0:
        raise node.error(f"block_size is {block}: it must be 0 or the length of a block")
    if block:
        lengths[axis] = -(-shape[axis] // block)
    elif x.rank == 1:
        lengths = [shape[axis]]
    if list(x.axes.shape) != lengths or (x.rank != 1 and not block):
        raise node.error(
            f"a {what} of the shape {list(x.axes.shape)} does not fit an operand of the shape "
            f"{list(shape)} along axis {axis} with block_size {block}"
        )
    if block:
        found = weft.repeat(x, block, axis)
        return weft.tensor_slice(found, tuple(slice(0, n) for n in shape))
    return weft.reshape(x, tuple(n if at == axis else 1 for at, n in enumerate(shape)))


@lowers("QuantizeLinear")
def quantize_linear(node: Node) -> Any:
    """Divide by a scale, round and add a zero point."""
    shape, dtype = node.shape(), _quantized_dtype(node)
    scale, zero = _wide(node, node.raw(1)), None
    precision = _precision(node, scale)
    scaled = cast(node[0], precision) / spread(node, cast(scale, precision), shape)
    wide = cast(scaled, "float64" if precision == "float64" else "float32")
    if node.has(2):
        zero = spread(node, _wide(node, node.raw(2)), shape, "zero point")
    if dtype.name.startswith("float"):
        # A zero point is 0 here, and would turn -0 into 0 if it were added.
        is_zero = zero is None or (is_known(node.raw(2)) and not np.any(node.raw(2)))
        moved = wide if is_zero else wide + zero
        saturates = node.flag("saturate", True)
        return node.host(lambda given: [converted_array(given, dtype, saturates)], moved)[0]
    rounded = weft.round(wide)
    limited = saturated(rounded if zero is None else rounded + zero, dtype)
    if is_for_device(dtype):
        return cast(limited, dtype)
    return node.host(lambda given: [given.astype(np.int8).astype(dtype)], limited)[0]


def _quantized_dtype(node: Node) -> np.dtype[Any]:
    """Return the dtype of the result; raises NodeError if two are given that differ."""
    number = node.choice("output_dtype", default=0)
    wanted = numpy_dtype(number) if number else None
    if not node.has(2):
        return wanted or np.dtype("uint8")
    found = dtype_of(node.raw(2))
    if wanted is not None and wanted != found:
        raise node.error(
            f"output_dtype is {wanted}, and the zero point is {found}: they must agree"
        )
    return found


def _precision(node: Node, scale: Tensor) -> str:
    """Return the dtype in which the operand is divided, by default that of the scale."""
    number = node.choice("precision", default=0)
    dtype = numpy_dtype(number) if number else dtype_of(scale)
    return "float64" if dtype.kind in "iu" else dtype.name


@lowers("DequantizeLinear")
def dequantize_linear(node: Node) -> Any:
    """Subtract a zero point and multiply by a scale."""
    x, scale, shape = node.raw(0), _wide(node, node.raw(1)), node.shape()
    number = node.choice("output_dtype", default=0)
    dtype = numpy_dtype(number) if number else scale.dtype
    packed = _dequantized_groups(node, scale) if dtype == np.float32 else None
    if packed is not None:
        return packed
    given = _wide(node, x)
    if node.has(2):
        given = given - spread(node, _wide(node, node.raw(2)), shape, "zero point")
    factor = spread(node, cast(scale, "float32"), shape)
    return cast(cast(given, "float32") * factor, dtype)


def _dequantized_groups(node: Node, scale: Tensor) -> Tensor | None:
    """Return a constant matrix in blocks of whole words, whose codes products unpack."""
    given = [node.raw(n) for n in (0, 2) if node.has(n)]
    shape, size = node.shape(), node.attr("block_size", 0)
    bits = next((bits for bits in BITS if dtype_of(given[0]).name.endswith(f"int{bits}")), 0)
    if (
        not bits
        or size < 1
        or size * bits % WORD
        or len(shape) != 2
        or not all(map(is_known, given))
    ):
        return None
    axis = node.axis(node.attr("axis", 1), len(shape))
    groups = [n // size if at == axis else n for at, n in enumerate(shape)]
    shapes = [list(scale.axes.shape), *(list(each.shape) for each in given[1:])]
    if not shape[axis] or shape[axis] % size or any(found != groups for found in shapes):
        return None
    # Codes are unsigned: the least number is 0.
    least = _limits(given[0].dtype)[0]
    codes, *zeros = ((each.astype(np.int32) - least).astype(np.uint8) for each in given)
    origin = zeros[0] if zeros else np.full(groups, -least, np.uint8)
    if axis == 0:
        return weft.dequantize(words_of(codes, bits), scale, origin, bits)
    turned = words_of(codes.T, bits), weft.transpose(scale), origin.T
    return weft.transpose(weft.dequantize(*turned, bits))


def _wide(node: Node, x: Value) -> Tensor:
    """Return integers as int32, and floats of few bits as float32."""
    given = widened(node, x)
    return cast(given, "int32") if dtype_of(x).kind in "iu" else given


@lowers("DynamicQuantizeLinear")
def dynamic_quantize_linear(node: Node) -> Any:
    """Quantize to uint8 by the range of the operand."""
    x, dtype = node[0], np.dtype("uint8")
    if not x.axes.size:
        return np.zeros(x.axes.shape, dtype), np.array(1, np.float32), np.array(0, dtype)
    y, scale, zero = dynamically_quantized(x)
    return cast(y, dtype), scale, cast(zero, dtype)


def dynamically_quantized(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the numbers from 0 to 255 that stand for a tensor, their scale and zero point."""
    dtype = np.dtype("uint8")
    axes = tuple(range(x.rank))
    low = weft.minimum(weft.min(x, axis=axes), 0)
    high = weft.maximum(weft.max(x, axis=axes), 0)
    # The definition divides zero by zero where all elements are 0; onnxruntime's scale is 1.
    scale = weft.where(weft.equal(low, high), 1.0, (high - low) / 255)
    zero = saturated(weft.round((0 - low) / scale), dtype)
    return saturated(weft.round(x / scale) + zero, dtype), scale, zero


def _requantized(node: Node, total: Tensor, factor: Tensor, zero: Value) -> Tensor:
    dtype = dtype_of(zero)
    found = weft.round(cast(total, "float32") * factor) + cast(node.op(zero), "float32")
    return cast(saturated(found, dtype), dtype)


@lowers("QLinearMatMul")
def qlinear_matmul(node: Node) -> Any:
    """Multiply quantized matrices."""
    a, b = (_centered(node, n, n + 2, side) for n, side in ((0, "rows"), (3, "columns")))
    total = weft.matmul(a, b)
    first = _scale_of_rows(node[1], total.rank)
    factor = first * cast(node[4], "float32") / cast(node[6], "float32")
    return _requantized(node, total, factor, node.raw(7))


def _centered(node: Node, operand: int, zero: int, side: str) -> Tensor:
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
    """Convolve quantized images."""
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
