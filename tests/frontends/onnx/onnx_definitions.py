"""Definitions of ops in float64, where onnx's reference evaluator has none or contradicts the text.

Each takes an opset, the attributes that a node gives, and its operands, and returns the results; or
None where the evaluator is right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import ml_dtypes
import numpy as np
from onnx import helper

Attributes = Mapping[str, Any]
Definition = Callable[[int, Attributes, Sequence[Any]], "list[Any] | None"]


def _spatial(attributes: Attributes, rank: int) -> tuple[list[int], list[int], list[int]]:
    """Return the strides, dilations and pads of a node."""
    return (
        list(attributes.get("strides", [1] * rank)),
        list(attributes.get("dilations", [1] * rank)),
        list(attributes.get("pads", [0] * 2 * rank)),
    )


def _windows(attributes: Attributes, lengths: Sequence[int]) -> list[list[tuple[list[int], int]]]:
    """Return for each axis the windows: indices inside of the operand, and the padded number.

    The text of MaxPool and AveragePool says which windows there are; with auto_pad VALID and
    ceil_mode these are the ones that shape inference counts, as in onnxruntime.
    """
    kernel, rank = attributes["kernel_shape"], len(lengths)
    strides, dilations, pads = _spatial(attributes, rank)
    auto, rounds_up = attributes.get("auto_pad", "NOTSET"), attributes.get("ceil_mode", 0)
    pads = [0] * 2 * rank if auto == "VALID" else pads
    found = []
    for axis, n in enumerate(lengths):
        step, gap = strides[axis], dilations[axis]
        extent = (kernel[axis] - 1) * gap + 1
        before, after = pads[axis], pads[axis + rank]
        if auto in ("NOTSET", "VALID"):
            room = n + before + after - extent
            count = (-(-room // step) if rounds_up else room // step) + 1
            count -= (count - 1) * step >= n + before
        else:
            count = -(-n // step)
            total = max((count - 1) * step + extent - n, 0)
            before = total // 2 if auto == "SAME_UPPER" else total - total // 2
            after = total - before
        along = []
        for window in range(count):
            places = [window * step - before + k * gap for k in range(kernel[axis])]
            inside = [place for place in places if 0 <= place < n]
            padded = sum(-before <= place < n + after for place in places)
            along.append((inside, padded))
        found.append(along)
    return found


def pool(op: str, outputs: int) -> Definition:
    """Return the definition of a pooling."""

    def pooled(opset: int, attributes: Attributes, operands: Sequence[Any]) -> list[Any]:
        (x,) = operands
        batch, channels, *lengths = x.shape
        axes = _windows(attributes, lengths)
        shape = (batch, channels, *map(len, axes))
        order = "F" if attributes.get("storage_order", 0) else "C"
        flat = np.arange(prod(lengths)).reshape(lengths, order=order)
        y, index = np.zeros(shape), np.zeros(shape, np.int64)
        for place in np.ndindex(*shape):
            several = [axes[axis][window] for axis, window in enumerate(place[2:])]
            at = np.ix_(*(inside for inside, _ in several))
            plane = place[0] * channels + place[1]
            values = x[place[:2]].astype(np.float64)[at]
            if op == "MaxPool":
                y[place] = values.max()
                index[place] = flat[at].reshape(-1)[values.argmax()] + plane * prod(lengths)
            elif op == "LpPool":
                p = attributes.get("p", 2)
                y[place] = (np.abs(values) ** p).sum() ** (1 / p)
            else:
                padded = prod(number for _, number in several)
                count = padded if attributes.get("count_include_pad", 0) else values.size
                y[place] = values.sum() / count
        return [y.astype(x.dtype), index][:outputs]

    return pooled


def conv_transpose(opset: int, attributes: Attributes, operands: Sequence[Any]) -> list[Any]:
    """Scatter each element times the filter, and crop by the pads."""
    x, w, *bias = operands
    lengths, kernel, rank = x.shape[2:], w.shape[2:], x.ndim - 2
    strides, dilations, pads = _spatial(attributes, rank)
    extra = attributes.get("output_padding", [0] * rank)
    auto, wanted = attributes.get("auto_pad", "NOTSET"), attributes.get("output_shape")
    if auto == "VALID":
        pads = [0] * 2 * rank
    if wanted is None and auto.startswith("SAME"):
        wanted = [n * step for n, step in zip(lengths, strides, strict=True)]
    sizes = [
        step * (n - 1) + more + (k - 1) * gap + 1
        for step, n, more, k, gap in zip(strides, lengths, extra, kernel, dilations, strict=True)
    ]
    if wanted is not None:
        for axis, (size, want) in enumerate(zip(sizes, wanted, strict=True)):
            total = size - want
            small = total // 2
            halves = (small, total - small) if auto == "SAME_UPPER" else (total - small, small)
            pads[axis], pads[axis + rank] = halves
    whole = np.zeros((x.shape[0], w.shape[1], *(size + 64 for size in sizes)))
    for at in np.ndindex(*lengths):
        for tap in np.ndindex(*kernel):
            place = [
                32 + i * step + k * gap
                for i, step, k, gap in zip(at, strides, tap, dilations, strict=True)
            ]
            whole[:, :, *place] += x[:, :, *at].astype(np.float64) @ w[:, :, *tap]
    crop = [
        slice(32 + pads[axis], 32 + size - pads[axis + rank]) for axis, size in enumerate(sizes)
    ]
    found = whole[:, :, *crop]
    if bias:
        found = found + bias[0].reshape(-1, *[1] * rank)
    return [found.astype(np.float32)]


def gemm(opset: int, attributes: Attributes, operands: Sequence[Any]) -> list[Any]:
    """Return alpha A B + beta C."""
    a, b, *c = (each.astype(np.float64) for each in operands)
    a = a.T if attributes.get("transA", 0) else a
    b = b.T if attributes.get("transB", 0) else b
    found = attributes.get("alpha", 1.0) * (a @ b)
    if c:
        found = found + attributes.get("beta", 1.0) * c[0]
    return [found.astype(operands[0].dtype)]


def broadcast(function: Callable[[Any, Any], Any]) -> Definition:
    """Return the definition of an op of two tensors before opset 7."""

    def applied(opset: int, attributes: Attributes, operands: Sequence[Any]) -> list[Any]:
        x, y = operands
        if attributes.get("broadcast", 0):
            axis = attributes.get("axis", x.ndim - y.ndim)
            y = y.reshape(*y.shape, *[1] * (x.ndim - axis - y.ndim))
        found = function(x, y)
        return [found if found.dtype == bool else found.astype(x.dtype)]

    return applied


def lp_normalization(opset: int, attributes: Attributes, operands: Sequence[Any]) -> list[Any]:
    """Divide by the norm; where that is 0, the result is 0."""
    (x,) = operands
    norm = np.linalg.norm(
        x.astype(np.float64), attributes.get("p", 2), attributes.get("axis", -1), keepdims=True
    )
    return [np.divide(x, norm, out=np.zeros(x.shape), where=norm != 0).astype(x.dtype)]


def unique(opset: int, attributes: Attributes, operands: Sequence[Any]) -> list[Any]:
    """Return slices in the order of their first occurrence, or sorted."""
    (x,) = operands
    axis = attributes.get("axis")
    values, first, inverse, counts = np.unique(x, True, True, True, axis)
    if not attributes.get("sorted", 1):
        order = np.argsort(first)
        values = np.take(values, order, 0 if axis is None else axis)
        first, counts, inverse = first[order], counts[order], np.argsort(order)[inverse]
    return [values, *(each.reshape(-1).astype(np.int64) for each in (first, inverse, counts))]


def string_normalizer(opset: int, attributes: Attributes, operands: Sequence[Any]) -> list[Any]:
    """Leave out stop words, then change the case."""
    (x,) = operands
    change = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}
    stops = attributes.get("stopwords", [])
    fold = str if attributes.get("is_case_sensitive", 0) else str.lower
    left_out = set(map(fold, stops))
    kept = [text for text in x.reshape(-1) if fold(text) not in left_out]
    found = list(map(change[attributes.get("case_change_action", "NONE")], kept)) or [""]
    return [np.array(found, object).reshape((1, -1) if x.ndim == 2 else (-1,))]


def cast_to_power(opset: int, attributes: Attributes, operands: Sequence[Any]) -> list[Any] | None:
    """Return powers of two by the table of Cast; the evaluator has NaN for infinity."""
    kind = np.dtype(ml_dtypes.float8_e8m0fnu)
    to = helper.tensor_dtype_to_np_dtype(attributes["to"]) if "to" in attributes else kind
    if to != kind or operands[0].dtype == object:
        return None
    saturates, how = attributes.get("saturate", 1), attributes.get("round_mode", "up")
    found = []
    for value in np.abs(operands[0].astype(np.float64)).reshape(-1):
        if np.isnan(value) or (not saturates and not 2.0**-127 <= value <= 2.0**127):
            found.append(np.nan)
            continue
        value = min(max(value, 2.0**-127), 2.0**127)
        low = 2.0 ** np.floor(np.log2(value))
        rises = {"up": value > low, "down": False, "nearest": value >= 1.5 * low}[how]
        found.append(min(low * 2 if rises else low, 2.0**127))
    return [np.array(found, np.float32).astype(kind).reshape(operands[0].shape)]


def window(*terms: float) -> Definition:
    """Return the definition of a window: a sum of cosines, rounded once."""

    def computed(opset: int, attributes: Attributes, operands: Sequence[Any]) -> list[Any]:
        size = int(operands[0])
        period = size if attributes.get("periodic", 1) else size - 1
        angles = 2 * np.pi * np.arange(size) / period
        found = sum(term * np.cos(order * angles) for order, term in enumerate(terms))
        dtype = helper.tensor_dtype_to_np_dtype(attributes.get("output_datatype", 1))
        return [np.round(found, 12).astype(dtype)]

    return computed


def batch_normalization(opset: int, attributes: Attributes, operands: Sequence[Any]) -> list[Any]:
    """Standardize by given moments, or by those of the batch."""
    x, scale, bias, mean, variance = (each.astype(np.float64) for each in operands)
    epsilon, momentum = attributes.get("epsilon", 1e-5), attributes.get("momentum", 0.9)
    is_spatial = attributes.get("spatial", 1)
    axes = (0, *range(2, x.ndim)) if is_spatial else (0,)
    batch_mean, batch_variance = x.mean(axes), x.var(axes)
    is_training = attributes.get("training_mode", 0) if opset >= 14 else (
        attributes.get("outputs", 1) > 1
    )  # fmt: skip
    used = (batch_mean, batch_variance) if is_training else (mean, variance)

    def spread(each: Any) -> Any:
        return each.reshape(-1, *[1] * (x.ndim - 2)) if is_spatial else each

    y = (x - spread(used[0])) / np.sqrt(spread(used[1]) + epsilon) * spread(scale) + spread(bias)
    running = [
        old * momentum + new * (1 - momentum)
        for old, new in ((mean, batch_mean), (variance, batch_variance))
    ]
    return [each.astype(np.float32) for each in (y, *running, batch_mean, batch_variance)]


def layer_normalization(opset: int, attributes: Attributes, operands: Sequence[Any]) -> list[Any]:
    """Standardize the last axes; the moments have the type stash_type."""
    x, scale, *bias = operands
    stash = helper.tensor_dtype_to_np_dtype(attributes.get("stash_type", 1))
    axes = tuple(range(attributes.get("axis", -1) % x.ndim, x.ndim))
    wide = x.astype(np.float64)
    mean = wide.mean(axes, keepdims=True)
    inverse = 1 / np.sqrt(wide.var(axes, keepdims=True) + 1e-5)
    y = (wide - mean) * inverse * scale + (bias[0] if bias else 0)
    return [y.astype(x.dtype), mean.astype(stash), inverse.astype(stash)]


def rms_normalization(opset: int, attributes: Attributes, operands: Sequence[Any]) -> list[Any]:
    """Divide by the root of the mean square over the last axes."""
    x, scale = operands
    axes = tuple(range(attributes.get("axis", -1) % x.ndim, x.ndim))
    wide = x.astype(np.float64)
    return [(wide / np.sqrt((wide**2).mean(axes, keepdims=True) + 1e-5) * scale).astype(x.dtype)]


def dequantize_linear(opset: int, attributes: Attributes, operands: Sequence[Any]) -> list[Any]:
    """Subtract the zero point, and multiply by the scale, of an axis or a block."""
    x, scale, *zero = operands
    number, axis = attributes.get("output_dtype", 0), attributes.get("axis", 1) % x.ndim
    dtype = helper.tensor_dtype_to_np_dtype(number) if number else scale.dtype

    def spread(each: Any) -> Any:
        if block := attributes.get("block_size", 0):
            return np.repeat(each.astype(np.float64), block, axis)
        shape = [-1 if at == axis else 1 for at in range(x.ndim)] if each.ndim else []
        return each.astype(np.float64).reshape(shape)

    origin = spread(zero[0]) if zero else 0
    return [((x.astype(np.float64) - origin) * spread(scale)).astype(dtype)]


def from_an_axis_on(function: Callable[[Any], Any]) -> Definition:
    """Return the definition of a function of rows: before opset 13, of all axes from one on."""

    def applied(opset: int, attributes: Attributes, operands: Sequence[Any]) -> list[Any]:
        x = operands[0].astype(np.float64)
        axis = attributes.get("axis", -1 if opset >= 13 else 1) % x.ndim
        if opset >= 13:
            rows = np.moveaxis(x, axis, -1)
            found = function(rows.reshape(-1, rows.shape[-1])).reshape(rows.shape)
            return [np.moveaxis(found, -1, axis).astype(np.float32)]
        flat = x.reshape(prod(x.shape[:axis]), -1)
        return [function(flat).reshape(x.shape).astype(np.float32)]

    return applied


def softmax(x: Any) -> Any:
    """Return the softmax of rows."""
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def hardmax(x: Any) -> Any:
    """Return 1 at the first maximum of rows."""
    return np.eye(x.shape[-1])[x.argmax(-1)]


def dropout(opset: int, attributes: Attributes, operands: Sequence[Any]) -> list[Any]:
    """Return the operand and a mask of ones, as without training."""
    kind = bool if opset >= 10 else np.float32
    return [operands[0], np.ones(operands[0].shape, kind)]


def gather_elements(opset: int, attributes: Attributes, operands: Sequence[Any]) -> list[Any]:
    """Return an element for each index, which stands at its own place on the other axes."""
    x, index = operands
    axis, found = attributes.get("axis", 0) % x.ndim, np.empty(index.shape, x.dtype)
    for place in np.ndindex(*index.shape):
        found[place] = x[tuple(index[place] if a == axis else n for a, n in enumerate(place))]
    return [found]


def scatter_elements(opset: int, attributes: Attributes, operands: Sequence[Any]) -> list[Any]:
    """Put an update for each index at its own place on the other axes, or combine it."""
    x, index, updates = operands
    axis, found = attributes.get("axis", 0) % x.ndim, x.copy()
    combine = {
        "none": lambda a, b: b, "add": np.add, "mul": np.multiply, "max": np.maximum,
        "min": np.minimum,
    }[attributes.get("reduction", "none")]  # fmt: skip
    for place in np.ndindex(*index.shape):
        at = tuple(index[place] if a == axis else n for a, n in enumerate(place))
        found[at] = combine(found[at], updates[place])
    return [found]


def one_hot(opset: int, attributes: Attributes, operands: Sequence[Any]) -> list[Any]:
    """Encode integers; those out of range have no element that is on."""
    indices, depth, (off, on) = operands
    n = int(np.asarray(depth).reshape(-1)[0])
    wrapped = np.where(indices < 0, indices + n, indices)
    is_on = wrapped[..., None] == np.arange(n)
    axis = attributes.get("axis", -1)
    return [np.moveaxis(np.where(is_on, on, off), -1, axis).astype(operands[2].dtype)]


def lrn(opset: int, attributes: Attributes, operands: Sequence[Any]) -> list[Any]:
    """Divide by a power of the mean square of neighboring channels."""
    (x,) = operands
    size, squares = attributes["size"], np.zeros(x.shape)
    for c in range(x.shape[1]):
        low, high = max(c - (size - 1) // 2, 0), c - (-(size - 1) // 2)
        squares[:, c] = (x[:, low : high + 1].astype(np.float64) ** 2).sum(1)
    base = attributes.get("bias", 1.0) + attributes.get("alpha", 1e-4) / size * squares
    return [(x / base ** attributes.get("beta", 0.75)).astype(x.dtype)]


def global_lp_pool(opset: int, attributes: Attributes, operands: Sequence[Any]) -> list[Any]:
    """Return the norm of each plane."""
    (x,) = operands
    p, axes = attributes.get("p", 2), tuple(range(2, x.ndim))
    powers = np.abs(x.astype(np.float64)) ** p
    return [(powers.sum(axes, keepdims=True) ** (1 / p)).astype(x.dtype)]
