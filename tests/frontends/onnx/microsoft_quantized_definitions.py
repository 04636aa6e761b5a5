"""Definitions in NumPy, in float64, of ops of com.microsoft on quantized tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from microsoft_definitions import (
    convolution,
    embed_layer_norm,
    sigmoid,
    softmax,
    turned_over,
    wide,
)


def dequantized(x: np.ndarray, scale: Any, zero: Any = None):
    """Return numbers; scales and zero points of several numbers are of the last axis."""
    origin = 0 if zero is None else np.asarray(zero, np.int64)
    return (np.asarray(x, np.int64) - origin) * np.float64(scale)


def quantized(y: np.ndarray, scale: Any, zero: Any, kind: Any):
    limits = np.iinfo(kind)
    origin = 0 if zero is None else int(zero)
    return np.clip(np.rint(y / np.float64(scale)) + origin, limits.min, limits.max)


def quantized_sum(y: np.ndarray, scale: np.ndarray, zero: np.ndarray, kind: Any):
    limits = np.iinfo(kind)
    origin = 0 if zero is None else int(zero)
    return np.clip(np.rint(y / np.float64(scale) + origin), limits.min, limits.max)


def qlinear(function: np.ufunc):
    """Return the definition of a function of two quantized operands."""

    def defined(
        a: Any,
        a_scale: Any,
        a_zero: Any,
        b: Any,
        b_scale: Any,
        b_zero: Any,
        scale: Any,
        zero: Any = None,
    ):
        y = function(dequantized(a, a_scale, a_zero), dequantized(b, b_scale, b_zero))
        return [quantized_sum(y, scale, zero, a.dtype)]

    return defined


def qlinear_of(function: Callable[..., Any], ending: Callable[..., Any] = quantized):
    """Return the definition of a function of one quantized operand."""

    def defined(
        x: np.ndarray, x_scale: Any, x_zero: Any, scale: Any, zero: Any = None, **attributes: Any
    ):
        y = function(dequantized(x, x_scale, x_zero), **attributes)
        return [ending(y, scale, zero, x.dtype)]

    return defined


def q_softmax(x: np.ndarray, axis: int = -1, opset: int = 13):
    if opset >= 13:
        return softmax(x, axis)
    axis %= x.ndim
    return softmax(x.reshape(*x.shape[:axis], -1)).reshape(x.shape)


def global_average(x: np.ndarray, channels_last: int = 0):
    axes = tuple(range(1, x.ndim - 1)) if channels_last else tuple(range(2, x.ndim))
    return x.mean(axes, keepdims=True)


def windows(x: np.ndarray, kernel: list[int], strides: list[int], pads: list[int]):
    """Yield the place and the slice of each window of images that are padded with NaN."""
    x = np.pad(x, [(0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])], constant_values=np.nan)
    height, width = ((n - k) // s + 1 for n, k, s in zip(x.shape[2:], kernel, strides, strict=True))
    for i in range(height):
        for j in range(width):
            top, left = i * strides[0], j * strides[1]
            yield (i, j), x[:, :, top : top + kernel[0], left : left + kernel[1]]


def pooled(
    x: np.ndarray,
    function: Any,
    kernel_shape: list[int],
    strides: Sequence[Any] = (1, 1),
    pads: Sequence[Any] = (0, 0, 0, 0),
):
    found = {
        place: function(part, (2, 3)) for place, part in windows(x, kernel_shape, strides, pads)
    }
    height, width = (max(place[n] for place in found) + 1 for n in (0, 1))
    return np.stack([np.stack([found[i, j] for j in range(width)], -1) for i in range(height)], -2)


def average_pool(x: np.ndarray, channels_last: int = 0, count_include_pad: int = 0, **window: Any):
    x = np.moveaxis(x, -1, 1) if channels_last else x
    if count_include_pad:
        y = pooled(x, np.nansum, **window) / np.prod(window["kernel_shape"])
    else:
        y = pooled(x, np.nanmean, **window)
    return np.moveaxis(y, 1, -1) if channels_last else y


def nhwc_max_pool(x: Any, **window: Any):
    return [np.moveaxis(pooled(np.moveaxis(wide(x), -1, 1), np.nanmax, **window), 1, -1)]


def qlinear_where(
    c: Any,
    x: Any,
    x_scale: Any,
    x_zero: Any,
    y: Any,
    y_scale: Any,
    y_zero: Any,
    scale: Any,
    zero: Any,
):
    z = np.where(c, dequantized(x, x_scale, x_zero), dequantized(y, y_scale, y_zero))
    return [quantized(z, scale, zero, x.dtype)]


def qlinear_concat(scale: np.ndarray, zero: np.ndarray, *parts: Any, axis: int):
    given = [dequantized(*parts[at : at + 3]) for at in range(0, len(parts), 3)]
    return [quantized(np.concatenate(given, axis), scale, zero, parts[0].dtype)]


def qlinear_conv(
    x: np.ndarray, x_scale: np.ndarray, x_zero: np.ndarray, w: np.ndarray, w_scale: np.ndarray,
    w_zero: np.ndarray, scale: np.float32, zero: np.ndarray, b: np.ndarray | None = None,
    channels_last: int = 0, **window: Any
):  # fmt: skip
    x = dequantized(x, x_scale, x_zero)
    x = np.moveaxis(x, -1, 1) if channels_last else x
    factor, origin = (np.reshape(each, (-1, 1, 1, 1)) for each in (w_scale, w_zero))
    y = convolution(x, dequantized(w, factor, origin), **window)
    if b is not None:
        y = y + (b * np.float64(x_scale) * np.reshape(w_scale, -1))[:, None, None]
    y = quantized(y, scale, zero, np.asarray(zero).dtype)
    return [np.moveaxis(y, 1, -1) if channels_last else y]


def qgemm(
    a: np.ndarray, a_scale: np.ndarray, a_zero: np.ndarray, b: np.ndarray, b_scale: np.ndarray,
    b_zero: np.ndarray, c: np.ndarray | None = None, scale: np.float32 | None = None,
    zero: np.ndarray | None = None, alpha: float = 1.0, **turns: Any
):  # fmt: skip
    a, b = turned_over(a, b, turns)
    y = alpha * (dequantized(a, a_scale, a_zero) @ dequantized(b, b_scale, b_zero))
    y = y if c is None else y + c * np.float64(a_scale) * np.float64(b_scale) * alpha
    return [y if scale is None else quantized(y, scale, zero, zero.dtype)]


def integer_to_float(
    a: Any,
    b: Any,
    a_scale: Any,
    b_scale: Any,
    a_zero: Any = None,
    b_zero: Any = None,
    bias: Any = None,
):
    y = dequantized(a, a_scale, a_zero) @ dequantized(b, b_scale, b_zero)
    return [y if bias is None else y + bias]


def by_range(x: np.ndarray):
    """Return what the eight bits of dynamic quantization stand for."""
    x = np.asarray(x, np.float32)
    low, high = min(x.min(), np.float32(0)), max(x.max(), np.float32(0))
    scale = np.float32(high - low) / np.float32(255)
    zero = np.clip(np.rint(-low / scale), 0, 255)
    return (np.clip(np.rint(x / scale) + zero, 0, 255) - zero) * np.float64(scale)


def dynamic_matmul(
    a: np.ndarray,
    b: np.ndarray,
    b_scale: np.ndarray,
    b_zero: np.ndarray | None = None,
    bias: np.ndarray | None = None,
):
    y = by_range(a) @ dequantized(b, b_scale, b_zero)
    return [y if bias is None else y + bias]


def dynamic_lstm(
    x: np.ndarray, w: np.ndarray, r: np.ndarray, b: np.ndarray, lengths: Any, h: Any, c: Any,
    p: Any, w_scale: np.ndarray, w_zero: np.ndarray, r_scale: np.ndarray, r_zero: np.ndarray,
    hidden_size: int, direction: str = "forward",
):  # fmt: skip
    """Run one direction after the other, step by step."""
    x = by_range(x)
    count, batch = len(w), x.shape[1]
    outputs = np.zeros((len(x), count, batch, hidden_size))
    last = np.zeros((2, count, batch, hidden_size))
    for d in range(count):
        wd = dequantized(w[d], w_scale[d], w_zero[d])
        rd = dequantized(r[d], r_scale[d], r_zero[d])
        bias = 0 if b is None else b[d][: 4 * hidden_size] + b[d][4 * hidden_size :]
        hidden = np.zeros((batch, hidden_size)) if h is None else wide(h[d])
        cell = np.zeros((batch, hidden_size)) if c is None else wide(c[d])
        is_reverse = direction == "reverse" or d == 1
        for t in range(len(x))[:: -1 if is_reverse else 1]:
            gates = x[t] @ wd + by_range(hidden) @ rd + bias if hidden.any() else x[t] @ wd + bias
            i, o, f, g = np.split(gates, 4, 1)
            cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
            hidden = sigmoid(o) * np.tanh(cell)
            outputs[t, d] = hidden
        last[:, d] = hidden, cell
    return [outputs, last[0], last[1]]


def n_bits(
    a: np.ndarray,
    packed: np.ndarray,
    scales: np.ndarray,
    zeros: np.ndarray | None = None,
    g_idx: Any = None,
    bias: Any = None,
    *,
    block_size: int,
    bits: int = 4,
    **more: Any,
):
    """Multiply by a matrix that is read code by code."""
    rows, columns = more["K"], more["N"]
    blocks = -(-rows // block_size)
    matrix = np.zeros((rows, columns))
    scales = scales.reshape(columns, blocks)
    per_byte = 8 // bits
    for n in range(columns):
        for k in range(rows):
            block, inside = divmod(k, block_size)
            byte, place = divmod(inside, per_byte)
            code = (int(packed[n, block, byte]) >> (bits * place)) & (2**bits - 1)
            zero = 2 ** (bits - 1)
            if zeros is not None and zeros.dtype == np.uint8:
                row = zeros.reshape(columns, -1)[n]
                zero = (int(row[block // per_byte]) >> (bits * (block % per_byte))) & (2**bits - 1)
            elif zeros is not None:
                zero = zeros.reshape(columns, blocks)[n, block]
            matrix[k, n] = (code - zero) * scales[n, block]
    y = wide(a) @ matrix
    return [y if bias is None else y + bias]


NF4 = (
    -1, -0.6961928, -0.5250731, -0.3949175, -0.2844414, -0.1847734, -0.09105, 0, 0.0795803,
    0.1609302, 0.2461123, 0.3379152, 0.4407098, 0.562617, 0.7229568, 1,
)  # fmt: skip


def fp4(code: Any):
    """Return the number of a sign, two bits of exponent and one of mantissa, at most 1."""
    size = {0: 0, 1: 0.0052083333, 2: 2 / 3, 3: 1, 4: 1 / 3, 5: 0.5, 6: 1 / 6, 7: 0.25}[code & 7]
    return -size if code & 8 else size


def bnb4(a: Any, packed: Any, largest: Any, *, block_size: Any, quant_type: Any, **more: Any):
    """Multiply by a matrix that is read code by code."""
    rows, columns = more["K"], more["N"]
    matrix = np.zeros((rows, columns))
    for at in range(rows * columns):
        byte = int(packed.reshape(-1)[at // 2])
        code = byte & 15 if at % 2 else byte >> 4
        number = NF4[code] if quant_type else fp4(code)
        matrix[at % rows, at // rows] = number * largest[at // block_size]
    return [wide(a) @ matrix]


def gather_blocks(
    data: Any, indices: Any, scales: Any, zeros: Any = None, block_size: Any = 128, bits: Any = 4,
    gather_axis: Any = 0, quantize_axis: Any = 1,
):  # fmt: skip
    """Take rows of a matrix that is quantized in blocks along its rows."""
    per_byte = 8 // bits
    found = np.zeros((len(data), data.shape[1] * per_byte))
    for row in range(found.shape[0]):
        for column in range(found.shape[1]):
            block = column // block_size
            code = int(data[row, column // per_byte]) >> (bits * (column % per_byte))
            zero = 2 ** (bits - 1)
            if zeros is not None:
                zero = int(zeros[row, block // per_byte]) >> (bits * (block % per_byte))
            mask = 2**bits - 1
            found[row, column] = ((code & mask) - (zero & mask)) * scales[row, block]
    return [np.take(found, indices, gather_axis)]


def q_embed_layer_norm(
    words: Any, segments: Any, table: Any, places: Any, kinds: Any, scale: Any, shift: Any,
    mask: Any, *rest: Any, epsilon: Any = 1e-12,
):  # fmt: skip
    """Embed with tables that are quantized, whose scales and zero points come last."""
    given = [
        None if x is None else dequantized(x, rest[n], rest[5 + n])
        for n, x in enumerate((table, places, kinds, scale, shift))
    ]
    return embed_layer_norm(words, segments, *given, mask, epsilon=epsilon)[:2]
