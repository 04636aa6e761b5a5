"""Definitions of ops in float64, where onnx's reference evaluator has none or contradicts the text.

Each takes an opset, the attributes that a node gives, and its operands, and returns the results; or
None where the evaluator is right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
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
        return [function(x, y)]

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
    if to != kind or operands[0].dtype.kind not in "fV":
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
    """Standardise by given moments, or by those of the batch."""
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
    """Standardise the last axes; the moments have the type stash_type."""
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


def normalizer(opset: int, attributes: Attributes, operands: Sequence[Any]) -> list[Any]:
    """Divide rows by their maximum, or by the norm; the evaluator takes another maximum."""
    (x,) = operands
    norm = {
        "MAX": x.max(-1, keepdims=True), "L1": np.abs(x).sum(-1, keepdims=True),
        "L2": np.sqrt((x**2).sum(-1, keepdims=True)),
    }[attributes.get("norm", "MAX")]  # fmt: skip
    return [x / np.where(norm == 0, 1, norm)]


def _probit(x: Any) -> Any:
    from statistics import NormalDist

    normal = NormalDist()
    return np.vectorize(lambda p: normal.inv_cdf(p) if 0 < p < 1 else np.nan)(x)


def _transformed(x: Any, how: str) -> Any:
    """Return scores after a post_transform."""
    if how == "SOFTMAX_ZERO":
        e = np.where(x == 0, 0, np.exp(x))
        return e / np.where(e.sum(-1, keepdims=True) == 0, 1, e.sum(-1, keepdims=True))
    return {
        "NONE": lambda: x, "LOGISTIC": lambda: 1 / (1 + np.exp(-x)), "PROBIT": lambda: _probit(x),
        "SOFTMAX": lambda: np.exp(x) / np.exp(x).sum(-1, keepdims=True),
    }[how]()  # fmt: skip


def linear(opset: int, attributes: Attributes, operands: Sequence[Any]) -> list[Any]:
    """Return the classes and scores, or the targets, of a linear model."""
    (x,) = operands
    weights = np.array(attributes["coefficients"]).reshape(-1, x.shape[1])
    scores = x @ weights.T + np.array(attributes.get("intercepts", [0.0]))
    names = attributes.get("classlabels_strings", attributes.get("classlabels_ints"))
    if names and scores.shape[1] == 1:
        scores = np.concatenate([-scores, scores], 1)
    found = _transformed(scores, attributes.get("post_transform", "NONE")).astype(np.float32)
    return [np.array(names)[scores.argmax(1)], found] if names else [found]


ACTIVATIONS: dict[str, Callable[[Any, float, float], Any]] = {
    "relu": lambda x, a, b: np.maximum(x, 0),
    "tanh": lambda x, a, b: np.tanh(x),
    "sigmoid": lambda x, a, b: 1 / (1 + np.exp(-x)),
    "affine": lambda x, a, b: a * x + b,
    "leakyrelu": lambda x, a, b: np.where(x >= 0, x, a * x),
    "thresholdedrelu": lambda x, a, b: np.where(x >= a, x, 0),
    "scaledtanh": lambda x, a, b: a * np.tanh(b * x),
    "hardsigmoid": lambda x, a, b: np.clip(a * x + b, 0, 1),
    "elu": lambda x, a, b: np.where(x >= 0, x, a * (np.exp(x) - 1)),
    "softsign": lambda x, a, b: x / (1 + np.abs(x)),
    "softplus": lambda x, a, b: np.log1p(np.exp(x)),
}
SCALES = {
    "affine": (1.0, 0.0), "leakyrelu": (0.01, 0.0), "thresholdedrelu": (1.0, 0.0),
    "scaledtanh": (1.0, 1.0), "hardsigmoid": (0.2, 0.5), "elu": (1.0, 0.0),
}  # fmt: skip
"""Alpha and beta of activations where a node gives none."""


def recurrent(op: str) -> Definition:
    """Return the definition of a recurrent network, one sample and one step at a time."""
    default = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}[op]
    step = {"RNN": _rnn, "GRU": _gru, "LSTM": _lstm}[op]

    def run(opset: int, attributes: Attributes, operands: Sequence[Any]) -> list[Any]:
        x, w, r, b, lengths, *states = operands
        peepholes = states.pop().astype(np.float64) if op == "LSTM" else np.zeros((2, 1))
        if attributes.get("layout", 0):
            x, *states = (np.swapaxes(each, 0, 1) for each in (x, *states))
        steps, batch, _ = x.shape
        hidden, directions = attributes["hidden_size"], w.shape[0]
        names = attributes.get("activations", default * directions)
        y = np.zeros((steps, directions, batch, hidden))
        last = np.zeros((len(states), directions, batch, hidden))
        for way, sample in product(range(directions), range(batch)):
            functions = [
                _activation(name.lower(), attributes.get("clip"))
                for name in names[way * len(default) : (way + 1) * len(default)]
            ]
            parts = (w[way], r[way], *np.split(b[way].astype(np.float64), 2), peepholes[way])
            length = steps if lengths is None else int(lengths[sample])
            places = list(range(length))
            is_reverse = attributes.get("direction") == "reverse" or way == 1
            state = [each[way, sample].astype(np.float64) for each in states]
            for at in reversed(places) if is_reverse else places:
                state = step(x[at, sample].astype(np.float64), state, parts, functions, attributes)
                y[at, way, sample] = state[0]
            for number, each in enumerate(state):
                last[number, way, sample] = each
        results = [y, *last]
        if attributes.get("layout", 0):
            results = [y.transpose(2, 0, 1, 3), *(each.swapaxes(0, 1) for each in last)]
        return [each.astype(np.float32) for each in results]

    return run


def _activation(name: str, limit: float | None) -> Callable[[Any], Any]:
    a, b = SCALES.get(name, (0.0, 0.0))
    if limit is None:
        return lambda x: ACTIVATIONS[name](x, a, b)
    return lambda x: ACTIVATIONS[name](np.clip(x, -limit, limit), a, b)


def _rnn(x: Any, state: Any, parts: Any, functions: Any, attributes: Attributes) -> list[Any]:
    w, r, wb, rb, _ = parts
    return [functions[0](w @ x + r @ state[0] + wb + rb)]


def _gru(x: Any, state: Any, parts: Any, functions: Any, attributes: Attributes) -> list[Any]:
    (f, g), (h,) = functions, state
    (wz, wr, wh), (rz, rr, rh), (wbz, wbr, wbh), (rbz, rbr, rbh) = (
        np.split(each, 3) for each in parts[:4]
    )
    z, reset = f(wz @ x + rz @ h + wbz + rbz), f(wr @ x + rr @ h + wbr + rbr)
    if attributes.get("linear_before_reset", 0):
        new = g(wh @ x + reset * (rh @ h + rbh) + wbh)
    else:
        new = g(wh @ x + rh @ (reset * h) + rbh + wbh)
    return [(1 - z) * new + z * h]


def _lstm(x: Any, state: Any, parts: Any, functions: Any, attributes: Attributes) -> list[Any]:
    (f, g, h), (hidden, cell) = functions, state
    w, r, wb, rb, peepholes = parts
    i, o, forget, c = np.split(w @ x + r @ hidden + wb + rb, 4)
    pi, po, pf = np.split(peepholes, 3)
    i = f(i + pi * cell)
    forget = 1 - i if attributes.get("input_forget", 0) else f(forget + pf * cell)
    cell = forget * cell + i * g(c)
    return [f(o + po * cell) * h(cell), cell]
