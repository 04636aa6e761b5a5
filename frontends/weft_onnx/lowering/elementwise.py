"""Elementwise ops and activations."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

import weft
from weft.ir import dtypes
from weft_onnx.nodes import Node, cast, lowers, numpy_dtype
from weft_onnx.values import Tensor, dtype_of, is_for_device

UNARY: dict[str, Callable[[Any], Tensor]] = {
    "Abs": weft.absolute, "Acos": weft.acos, "Acosh": weft.acosh, "Asin": weft.asin,
    "Asinh": weft.asinh, "Atan": weft.atan, "Atanh": weft.atanh, "BitwiseNot": weft.bitwise_not,
    "Ceil": weft.ceil, "Cos": weft.cos, "Cosh": weft.cosh, "Erf": weft.erf, "Exp": weft.exp,
    "Floor": weft.floor, "HardSwish": weft.hard_swish, "Log": weft.log,
    "Mish": weft.mish, "Neg": weft.negative, "Not": weft.logical_not,
    "Reciprocal": weft.reciprocal, "Relu": weft.relu, "Round": weft.round,
    "Sigmoid": weft.sigmoid, "Sign": weft.sign, "Sin": weft.sin, "Sinh": weft.sinh,
    "Softplus": weft.softplus, "Sqrt": weft.sqrt, "Tan": weft.tan, "Tanh": weft.tanh,
}  # fmt: skip
"""Functions of one tensor."""

BINARY: dict[str, Callable[[Any, Any], Tensor]] = {
    "Add": weft.add, "And": weft.logical_and, "BitwiseAnd": weft.bitwise_and,
    "BitwiseOr": weft.bitwise_or, "BitwiseXor": weft.bitwise_xor, "Equal": weft.equal,
    "Greater": weft.greater, "GreaterOrEqual": weft.greater_equal, "Less": weft.less,
    "LessOrEqual": weft.less_equal, "Mul": weft.multiply, "Or": weft.logical_or,
    "Sub": weft.subtract, "Xor": weft.logical_xor,
}  # fmt: skip
"""Functions of two tensors, which are broadcast."""


@lowers(*UNARY)
def unary(node: Node) -> Tensor:
    """Apply a function of one tensor."""
    return UNARY[node.proto.op_type](node[0])


@lowers(*BINARY)
def binary(node: Node) -> Any:
    """Apply a function of two tensors."""
    if node.proto.op_type == "Equal" and not is_for_device(node.dtype(0)):
        return node.host(lambda x, y: [np.equal(x, y).astype(bool)], *node.inputs)[0]
    return BINARY[node.proto.op_type](*_broadcast(node))


def _broadcast(node: Node) -> tuple[Tensor, Tensor]:
    """Return two operands; before opset 7, the second may lie along axes from a given one on."""
    x, y = node[0], node[1]
    if node.version < 7 and node.flag("broadcast") and y.rank < x.rank:
        axis = node.attr("axis", x.rank - y.rank)
        axis = axis + x.rank if axis < 0 else axis
        if not 0 <= axis <= x.rank - y.rank:
            raise node.error(f"{y.rank} axes do not fit {x.rank} from axis {axis} on")
        y = weft.reshape(y, (*y.axes.shape, *[1] * (x.rank - axis - y.rank)))
    return x, y


@lowers("Div")
def div(node: Node) -> Tensor:
    """Divide; integers round towards zero."""
    x, y = _broadcast(node)
    if x.dtype.kind not in "iu":
        return weft.divide(x, y)
    quotient = weft.floordivide(x, y)
    if x.dtype.kind == "u":
        return quotient
    is_below = weft.logical_and(
        weft.not_equal(weft.less(x, 0), weft.less(y, 0)), weft.not_equal(weft.mod(x, y), 0)
    )
    return quotient + cast(is_below, x.dtype)


@lowers("Mod")
def mod(node: Node) -> Tensor:
    """Return the remainder, with the sign of the divisor, or of the dividend for fmod."""
    return (weft.fmod if node.flag("fmod") else weft.mod)(node[0], node[1])


@lowers("Pow")
def power(node: Node) -> Tensor:
    """Raise to a power, in the dtype of the base."""
    x, y = _broadcast(node)
    if x.dtype == y.dtype:
        return weft.power(x, y)
    if x.dtype.kind in "iu" and y.dtype.kind in "iu":
        return cast(weft.power(cast(x, "int64"), cast(y, "int64")), x.dtype)
    if y.dtype.kind in "iu":
        return weft.power(x, cast(y, x.dtype))
    wide = "float64" if max(x.dtype.itemsize, y.dtype.itemsize) > 4 else "float32"
    return cast(weft.power(cast(x, wide), cast(y, wide)), x.dtype)


@lowers("BitShift")
def bit_shift(node: Node) -> Tensor:
    """Shift bits left or right."""
    shift = node.choice("direction", {"LEFT": weft.shift_left, "RIGHT": weft.shift_right})
    return shift(node[0], node[1])


VARIADIC: dict[str, Callable[[Any, Any], Tensor]] = {
    "Max": weft.maximum, "Min": weft.minimum, "Sum": weft.add, "Mean": weft.add,
}  # fmt: skip


@lowers(*VARIADIC)
def variadic(node: Node) -> Tensor:
    """Combine any number of tensors."""
    total = reduce(VARIADIC[node.proto.op_type], [node[n] for n in range(len(node.inputs))])
    return total / len(node.inputs) if node.proto.op_type == "Mean" else total


@lowers("Clip")
def clip(node: Node) -> Tensor:
    """Clip to limits, which are attributes before opset 11."""
    x = node[0]
    if node.version < 11:
        low, high = node.attr("min"), node.attr("max")
    else:
        low, high = node.get(1), node.get(2)
    if low is not None:
        x = weft.maximum(x, low)
    return x if high is None else weft.minimum(x, high)


def widened(node: Node, x: Any) -> Tensor:
    """Return numbers that devices compute with: those of 8 bits or fewer as float32 or int32."""
    if is_for_device(dtype_of(x)):
        return node.op(x)
    kind = np.float32 if dtype_of(x).name.startswith("float") else np.int32
    return node.op(node.host(lambda given: [given.astype(kind)], x)[0])


@lowers("IsNaN")
def is_nan(node: Node) -> Tensor:
    """Find what is not a number."""
    return weft.isnan(widened(node, node.raw(0)))


@lowers("IsInf")
def is_inf(node: Node) -> Tensor:
    """Find infinities of the signs that are asked for."""
    x = widened(node, node.raw(0))
    signs = []
    if node.flag("detect_positive"):
        signs.append(weft.greater(x, 0))
    if node.flag("detect_negative"):
        signs.append(weft.less(x, 0))
    if not signs:
        return weft.zeros(x.axes.shape, "bool")
    return weft.logical_and(weft.isinf(x), reduce(weft.logical_or, signs))


@lowers("Elu")
def elu(node: Node) -> Tensor:
    """Apply the exponential linear unit."""
    return weft.elu(node[0], node.attr("alpha", 1.0))


@lowers("Celu")
def celu(node: Node) -> Tensor:
    """Apply the continuously differentiable exponential linear unit."""
    return weft.celu(node[0], node.attr("alpha", 1.0))


@lowers("Selu")
def selu(node: Node) -> Tensor:
    """Apply the scaled exponential linear unit."""
    alpha, gamma = node.attr("alpha", 1.6732632), node.attr("gamma", 1.050701)
    return weft.elu(node[0], alpha) * gamma


@lowers("LeakyRelu")
def leaky_relu(node: Node) -> Tensor:
    """Apply the rectifier with a slope below zero."""
    return weft.leaky_relu(node[0], node.attr("alpha", 0.01))


@lowers("PRelu")
def prelu(node: Node) -> Tensor:
    """Apply the rectifier with a tensor of slopes."""
    x, slope = node[0], node[1]
    if node.version < 7 and slope.rank == 1 and x.rank > 1:
        slope = weft.reshape(slope, (-1, *[1] * (x.rank - 2)))
    return weft.where(weft.less(x, 0), x * slope, x)


@lowers("ThresholdedRelu")
def thresholded_relu(node: Node) -> Tensor:
    """Keep elements above a threshold."""
    x = node[0]
    return weft.where(weft.greater(x, node.attr("alpha", 1.0)), x, weft.zeros_like(x))


@lowers("HardSigmoid")
def hard_sigmoid(node: Node) -> Tensor:
    """Apply a line clipped to the range from 0 to 1."""
    return weft.clip(node[0] * node.attr("alpha", 0.2) + node.attr("beta", 0.5), 0, 1)


@lowers("Softsign")
def softsign(node: Node) -> Tensor:
    """Return x / (1 + abs(x))."""
    x = node[0]
    return x / (weft.absolute(x) + 1)


@lowers("Gelu")
def gelu(node: Node) -> Tensor:
    """Apply the Gaussian error linear unit."""
    return weft.gelu(node[0], node.choice("approximate", {"none": "none", "tanh": "tanh"}))


@lowers("Swish")
def swish(node: Node) -> Tensor:
    """Return x times the sigmoid of alpha x."""
    x = node[0]
    return x * weft.sigmoid(x * node.attr("alpha", 1.0))


@lowers("Shrink")
def shrink(node: Node) -> Tensor:
    """Move elements towards zero by the bias, and those in the range to zero."""
    x, lambd, bias = node[0], node.attr("lambd", 0.5), node.attr("bias", 0.0)
    below, above = weft.less(x, -lambd), weft.greater(x, lambd)
    zero = weft.zeros_like(x)
    moved = weft.where(below, cast(x + bias, x.dtype), zero)
    return weft.where(above, cast(x - bias, x.dtype), moved)


@lowers("Where")
def where(node: Node) -> Any:
    """Select by a condition."""
    if not is_for_device(node.dtype(1)):
        return node.host(lambda c, x, y: [np.where(c, x, y)], *node.inputs)[0]
    return weft.where(node[0], node[1], node[2])


@lowers("Identity")
def identity(node: Node) -> Any:
    """Return the operand, which may be a sequence."""
    return node.raw(0)


@lowers("Cast", "CastLike")
def cast_rule(node: Node) -> Any:
    """Convert to another dtype."""
    dtype = numpy_dtype(node.choice("to")) if node.proto.op_type == "Cast" else node.dtype(1)
    return converted(node, node.raw(0), dtype)


def converted(node: Node, x: Any, dtype: Any) -> Any:
    """Return a value in another dtype; those that no device has are converted by the host."""
    dtype = np.dtype(dtype)
    saturates = node.flag("saturate", True)
    rounding = node.choice("round_mode", default="up")
    if is_for_device(dtype) and is_for_device(dtype_of(x)):
        if dtype_of(x) == dtype:
            return x
        return cast(node.op(x), dtype)
    return node.host(lambda given: [converted_array(given, dtype, saturates, rounding)], x)[0]


def converted_array(x: Any, dtype: Any, saturates: bool = True, rounding: str = "up") -> Any:
    """Return an array in another dtype, of those that devices lack."""
    if dtype.kind == "O":
        x = x.astype(np.float32) if x.dtype.kind == "V" else x
        flat = np.empty(x.size, object)
        flat[:] = [_text(each) for each in x.reshape(-1)]
        return flat.reshape(x.shape)
    if x.dtype.kind == "O":
        kind = dtype if is_for_device(dtype) and dtype.kind in "fiub" else np.dtype("float32")
        numbers = [_number(each, kind) for each in x.reshape(-1)]
        return np.array(numbers, kind).reshape(x.shape).astype(dtype)
    with np.errstate(all="ignore"):
        if dtype.name in ("int4", "uint4", "int2", "uint2"):
            bits = int(dtype.name[-1])
            wide = x.astype(np.float64) if x.dtype.kind not in "iu" else x
            whole = wide.astype(np.int64) % (1 << bits)
            if dtype.name.startswith("int"):
                whole = np.where(whole >= 1 << (bits - 1), whole - (1 << bits), whole)
            return whole.astype(np.int8).astype(dtype)
        if dtype.name.startswith("float8_e8m0"):
            return _power_of_two(_single(x, dtype), dtype, saturates, rounding)
        if dtype.name.startswith("float8") and saturates:
            return _saturated(x, dtype)
        return (_single(x, dtype) if dtypes.is_float(x.dtype) else x).astype(dtype)


def _single(x: Any, dtype: Any) -> Any:
    """Return numbers as float32 from which a rounding to a dtype of 8 bits is that of `x`."""
    return dtypes.rounded_to_odd(x) if dtypes.rounds_twice(x.dtype, dtype) else x.astype(np.float32)


def _saturated(x: Any, dtype: Any) -> Any:
    import ml_dtypes

    largest = np.float32(ml_dtypes.finfo(dtype).max)  # type: ignore[no-untyped-call]
    wide = _single(x, dtype)
    limited = np.where(np.isnan(wide), wide, np.clip(wide, -largest, largest))
    return limited.astype(dtype)


SMALLEST_POWER, LARGEST_POWER = 2.0**-127, 2.0**127
"""What float8e8m0 holds: powers of two, and NaN."""


def _power_of_two(x: Any, dtype: Any, saturates: bool, rounding: str) -> Any:
    """Return magnitudes as powers of two, by the table of Cast for float8e8m0."""
    x = np.abs(x.astype(np.float64))
    is_outside = ~((x >= SMALLEST_POWER) & (x <= LARGEST_POWER))
    fraction, exponent = np.frexp(x)
    low = np.ldexp(0.5, exponent)
    limit = {"up": 0.5, "nearest": 0.75, "down": 1.0}[rounding]
    is_up = fraction >= limit if rounding == "nearest" else fraction > limit
    found = np.clip(np.where(is_up, low * 2, low), SMALLEST_POWER, LARGEST_POWER)
    edge = np.clip(x, SMALLEST_POWER, LARGEST_POWER) if saturates else np.nan
    return np.where(is_outside, edge, found).astype(np.float32).astype(dtype)


def _text(value: Any) -> str:
    if not isinstance(value, float | np.floating):
        return str(value)
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "INF" if value > 0 else "-INF"
    return str(np.float32(value) if np.asarray(value).dtype == np.float16 else value)


def _number(value: Any, dtype: Any) -> Any:
    text = value.decode() if isinstance(value, bytes) else str(value)
    return (
        float(text) if dtype.kind == "f" else int(float(text)) if dtype.kind in "iu" else bool(text)
    )


@lowers("BitCast")
def bit_cast(node: Node) -> Any:
    """Reinterpret the bits in another dtype."""
    dtype = numpy_dtype(node.choice("to"))
    are_plain = all(is_for_device(each) and each.kind != "b" for each in (dtype, node.dtype()))
    if are_plain and dtype.itemsize == node.dtype().itemsize:
        return weft.bitcast(node[0], dtype.name)
    return node.host(lambda x: [np.ascontiguousarray(x).view(dtype)], node.raw(0))[0]
