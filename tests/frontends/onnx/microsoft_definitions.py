"""Definitions in NumPy, in float64, of ops of com.microsoft."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

erf = np.vectorize(math.erf, otypes=[float])


def sigmoid(x: np.ndarray):
    return 1 / (1 + np.exp(-x))


def gelu(x: np.ndarray):
    return 0.5 * x * (1 + erf(x / math.sqrt(2)))


def tanh_gelu(x: np.ndarray):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def softmax(x: np.ndarray, axis: int = -1):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def wide(x: np.ndarray):
    return None if x is None else np.asarray(x, np.float64)


ACTIVATIONS: dict[str, Callable[..., Any]] = {
    "Relu": lambda x: np.maximum(x, 0),
    "Tanh": np.tanh,
    "Sigmoid": sigmoid,
    "LeakyRelu": lambda x, a=0.01: np.where(x < 0, a * x, x),
    "Clip": np.clip,
    "HardSigmoid": lambda x, a=0.2, b=0.5: np.clip(a * x + b, 0, 1),
    "Elu": lambda x, a=1.0: np.where(x < 0, a * np.expm1(x), x),
    "Selu": lambda x, a=1.6732632, g=1.050701: g * np.where(x < 0, a * np.expm1(x), x),
    "Softplus": lambda x: np.log1p(np.exp(x)),
    "Softsign": lambda x: x / (1 + abs(x)),
    "ThresholdedRelu": lambda x, a=1.0: np.where(x > a, x, 0),
}


def convolution(
    x: np.ndarray,
    w: np.ndarray,
    pads: Sequence[int] = (0, 0, 0, 0),
    strides: Sequence[int] = (1, 1),
    dilations: Sequence[int] = (1, 1),
    group: int = 1,
):
    """Return a convolution of images, element by element of the filter."""
    x = np.pad(x, [(0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])])
    filters, depth, rows, columns = w.shape
    height, width = (
        (n - (k - 1) * d - 1) // s + 1
        for n, k, d, s in zip(x.shape[2:], (rows, columns), dilations, strides, strict=True)
    )
    y = np.zeros((len(x), filters, height, width), x.dtype)
    each = filters // group
    for i in range(rows):
        for j in range(columns):
            top, left = i * dilations[0], j * dilations[1]
            part = x[
                :, :, top : top + height * strides[0] : strides[0],
                left : left + width * strides[1] : strides[1],
            ]  # fmt: skip
            for g in range(group):
                out = slice(g * each, (g + 1) * each)
                given = part[:, g * depth : (g + 1) * depth]
                y[:, out] += np.einsum("nchw,fc->nfhw", given, w[out, :, i, j])
    return y


def fused_conv(
    x: np.ndarray,
    w: np.ndarray,
    b: np.ndarray | None = None,
    z: np.ndarray | None = None,
    activation: str = "",
    activation_params: tuple[float, ...] = (),
    **window: Any,
):
    y = convolution(wide(x), wide(w), **window)
    y = y if b is None else y + b[:, None, None]
    y = y if z is None else y + z
    return [ACTIVATIONS[activation](y, *activation_params) if activation else y]


def turned_over(a: np.ndarray, b: np.ndarray, more: dict[str, Any]):
    """Return matrices, each transposed if the attributes say so; takes these out of them."""
    return (x.T if more.pop(f"trans{side}", 0) else x for x, side in ((a, "A"), (b, "B")))


def fused_gemm(
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray | None = None,
    activation: str = "",
    alpha: float = 1.0,
    beta: float = 1.0,
    **more: Any,
):
    a, b = turned_over(wide(a), wide(b), more)
    y = alpha * (a @ b) + (0 if c is None else beta * c)
    keys = {"activation_alpha": "a", "activation_beta": "b", "activation_gamma": "g"}
    return [ACTIVATIONS[activation](y, **{keys[k]: v for k, v in more.items()})]


def fused_matmul(a: np.ndarray, b: np.ndarray, alpha: float = 1.0, **turns: Any):
    def turned(x: np.ndarray, side: str):
        x = wide(x)
        x = np.moveaxis(x, 0, -2) if turns.get(f"transBatch{side}") and x.ndim > 1 else x
        return np.swapaxes(x, -1, -2) if turns.get(f"trans{side}") and x.ndim > 1 else x

    return [alpha * (turned(a, "A") @ turned(b, "B"))]


def nhwc_conv(x: Any, w: Any, b: Any = None, z: Any = None, **more: Any):
    z = None if z is None else np.moveaxis(z, -1, 1)
    (y,) = fused_conv(np.moveaxis(x, -1, 1), w, b, z, **more)
    return [np.moveaxis(y, 1, -1)]


def layer_norm(x: np.ndarray, scale: np.ndarray, bias: np.ndarray, epsilon: float):
    mean = x.mean(-1, keepdims=True)
    inverse = 1 / np.sqrt(x.var(-1, keepdims=True) + epsilon)
    y = (x - mean) * inverse * scale
    return y if bias is None else y + bias


def skip_layer_norm(
    x: np.ndarray,
    skip: np.ndarray,
    scale: np.ndarray,
    shift: np.ndarray | None = None,
    bias: np.ndarray | None = None,
    epsilon: float = 1e-12,
):
    total = wide(x) + skip + (0 if bias is None else bias)
    return [layer_norm(total, scale, shift, epsilon), None, None, total]


def rms_norm(x: np.ndarray, scale: np.ndarray, axis: int = -1, epsilon: float = 1e-5):
    x = wide(x)
    axes = tuple(range(axis % x.ndim, x.ndim))
    inverse = 1 / np.sqrt((x * x).mean(axes, keepdims=True) + epsilon)
    return [x * inverse * scale, inverse]


def skip_rms_norm(
    x: np.ndarray,
    skip: np.ndarray,
    scale: np.ndarray,
    bias: np.ndarray | None = None,
    epsilon: float = 1e-12,
):
    total = wide(x) + skip + (0 if bias is None else bias)
    return [rms_norm(total, scale, epsilon=epsilon)[0], None, None, total]


def embed_layer_norm(
    words: np.ndarray, segments: Any, table: np.ndarray, places: np.ndarray, kinds: Any,
    scale: np.ndarray, shift: np.ndarray, mask: Any = None, positions: np.ndarray | None = None,
    epsilon: float = 1e-12, mask_index_type: int = 0,
):  # fmt: skip
    batch, length = words.shape
    at = np.arange(length)[None] if positions is None else positions
    total = wide(table)[words] + places[np.broadcast_to(at, words.shape)]
    total = total if segments is None else total + kinds[segments]
    counts = np.zeros(batch) if mask is None else (mask == 1).sum(1)
    return [layer_norm(total, scale, shift, epsilon), counts, total]


def group_norm(
    x: np.ndarray,
    scale: np.ndarray,
    shift: np.ndarray,
    groups: int,
    activation: int,
    epsilon: float = 1e-5,
    channels_last: int = 1,
):
    x = wide(x)
    images = np.moveaxis(x, -1, 1) if channels_last else x
    flat = images.reshape(len(images), groups, -1)
    y = (flat - flat.mean(2, keepdims=True)) / np.sqrt(flat.var(2, keepdims=True) + epsilon)
    y = y.reshape(images.shape) * scale[:, None, None] + shift[:, None, None]
    y = y * sigmoid(y) if activation else y
    return [np.moveaxis(y, 1, -1) if channels_last else y]


def skip_group_norm(x: Any, scale: Any, shift: Any, skip: Any, bias: Any = None, **more: Any):
    skip = skip[:, None, None] if skip.ndim == 2 else skip
    total = wide(x) + skip + (0 if bias is None else bias)
    return [*group_norm(total, scale, shift, **more), total]


def attend(query: np.ndarray, key: np.ndarray, value: np.ndarray, scale: float, added: np.ndarray):
    """Return one head's result for each sample: row by row."""
    batch, _, length, depth = query.shape
    scale = scale or 1 / math.sqrt(depth)
    logits = np.einsum("bhqd,bhkd->bhqk", query, key) * scale + added
    return np.einsum("bhqk,bhkd->bqhd", softmax(logits), value).reshape(batch, length, -1)


def heads_of(x: np.ndarray, count: int):
    x = wide(x)
    return np.moveaxis(x.reshape(*x.shape[:2], count, -1), 2, 1)


def mask_added(
    mask: np.ndarray | None, batch: int, queries: int, keys: int, filled: float, unidirectional: int
):
    """Return what a mask adds, written out for each sample, query and key."""
    added = np.zeros((batch, 1, queries, keys))
    for b in range(batch):
        for q in range(queries):
            for k in range(keys):
                if mask is None:
                    keeps = True
                elif mask.ndim == 1:
                    start = mask[batch + b] if len(mask) == 2 * batch else 0
                    keeps = start <= k < mask[b]
                else:
                    keeps = mask[b, k] > 0 if mask.ndim == 2 else mask[b, q, k] > 0
                added[b, 0, q, k] = 0 if keeps else filled
                if unidirectional and k > q + keys - queries:
                    added[b, 0, q, k] = -1e30
    return added


def attention(
    x: np.ndarray, weights: np.ndarray, bias: np.ndarray | None = None,
    mask: np.ndarray | None = None, past: np.ndarray | None = None, extra: np.ndarray | None = None,
    num_heads: int = 1, unidirectional: int = 0, qkv_hidden_sizes: list[int] | None = None,
    scale: float = 0.0, mask_filter_value: float = -10000.0,
):  # fmt: skip
    projected = wide(x) @ weights + (0 if bias is None else bias)
    sizes = qkv_hidden_sizes or [projected.shape[2] // 3] * 3
    parts = np.split(projected, np.cumsum(sizes)[:2], 2)
    query, key, value = (heads_of(each, num_heads) for each in parts)
    if past is not None:
        key, value = (
            np.concatenate([old, x], 2) for old, x in zip(past, (key, value), strict=True)
        )
    batch, _, queries, _ = query.shape
    added = mask_added(mask, batch, queries, key.shape[2], mask_filter_value, unidirectional)
    added = added if extra is None else added + extra
    present = np.stack([key, value]) if key.shape == value.shape else None
    return [attend(query, key, value, scale, added), present]


def multi_head_attention(
    query: np.ndarray, key: np.ndarray | None = None, value: np.ndarray | None = None,
    bias: np.ndarray | None = None, mask: Any = None, extra: np.ndarray | None = None,
    past_key: Any = None, past_value: Any = None, num_heads: int = 1, unidirectional: int = 0,
    scale: float = 0.0, mask_filter_value: float = -10000.0,
):  # fmt: skip
    if query.ndim == 5:
        query, key, value = (np.moveaxis(wide(query)[:, :, :, n], 2, 1) for n in range(3))
    elif key.ndim == 5:
        key, value = (np.moveaxis(wide(key)[:, :, :, n], 2, 1) for n in range(2))
    given = [x if x.ndim == 4 else heads_of(x, num_heads) for x in (query, key, value)]
    if bias is not None:
        parts = np.split(wide(bias), np.cumsum([x.shape[1] * x.shape[3] for x in given])[:2])
        was_flat = [x.ndim != 4 for x in (query, key, value)]
        given = [
            x + part.reshape(1, num_heads, 1, -1) if flat else x
            for x, part, flat in zip(given, parts, was_flat, strict=True)
        ]
    query, key, value = given
    if past_key is not None:
        key, value = np.concatenate([past_key, key], 2), np.concatenate([past_value, value], 2)
    batch, _, queries, _ = query.shape
    added = mask_added(mask, batch, queries, key.shape[2], mask_filter_value, unidirectional)
    added = added if extra is None else added + extra
    return [attend(query, key, value, scale, added), key, value]


def rotary(
    x: np.ndarray, positions: np.ndarray, cos: np.ndarray, sin: np.ndarray, interleaved: int = 0,
    num_heads: int = 0, rotary_embedding_dim: int = 0,
):  # fmt: skip
    """Rotate pair by pair."""
    size = 2 * cos.shape[1]
    is_flat = x.ndim == 3
    if is_flat:
        x = heads_of(x, num_heads or x.shape[2] // size)
    x = wide(x).copy()
    y = x.copy()
    for b in range(x.shape[0]):
        for s in range(x.shape[2]):
            at = positions.reshape(-1)[0] + s if positions.size == 1 else positions[b, s]
            for pair in range(size // 2):
                i, j = (2 * pair, 2 * pair + 1) if interleaved else (pair, pair + size // 2)
                c, w = cos[at, pair], sin[at, pair]
                y[b, :, s, i] = x[b, :, s, i] * c - x[b, :, s, j] * w
                y[b, :, s, j] = x[b, :, s, i] * w + x[b, :, s, j] * c
    return [np.moveaxis(y, 1, 2).reshape(y.shape[0], y.shape[2], -1) if is_flat else y]


def group_query_attention(
    query: np.ndarray, key: np.ndarray | None, value: np.ndarray | None, past_key: np.ndarray,
    past_value: np.ndarray, ends: np.ndarray, total: np.ndarray, cos: np.ndarray | None = None,
    sin: np.ndarray | None = None, positions: Any = None, extra: np.ndarray | None = None,
    sinks: Any = None, q_weight: Any = None, k_weight: Any = None, num_heads: int = 1,
    kv_num_heads: int = 1, scale: float = 0.0, do_rotary: int = 0, rotary_interleaved: int = 0,
    local_window_size: int = -1, softcap: float = 0.0, smooth_softmax: int = 0,
    q_norm_epsilon: float = 1e-06, k_norm_epsilon: float = 1e-06,
):  # fmt: skip
    """Attend sample by sample, head by head and query by query."""
    if key is None:
        width = query.shape[2] // (num_heads + 2 * kv_num_heads)
        sizes = np.cumsum([num_heads * width, kv_num_heads * width])
        query, key, value = np.split(wide(query), sizes, 2)
    q, k, v = heads_of(query, num_heads), heads_of(key, kv_num_heads), heads_of(value, kv_num_heads)
    if q_weight is not None:
        q = q / np.sqrt((q * q).mean(-1, keepdims=True) + q_norm_epsilon) * q_weight
        k = k / np.sqrt((k * k).mean(-1, keepdims=True) + k_norm_epsilon) * k_weight
    batch, _, length, depth = q.shape
    total = int(np.reshape(total, -1)[0])
    starts = np.array([0 if total == length else int(e) + 1 - length for e in ends.reshape(-1)])
    own = starts[:, None] + np.arange(length)
    if do_rotary:
        at = own if positions is None else positions
        at = np.minimum(at, len(cos) - 1)
        q, k = (rotary(x, at, cos, sin, rotary_interleaved)[0] for x in (q, k))
    capacity = max(total, 0 if past_key is None else past_key.shape[2])
    keys = np.zeros((batch, kv_num_heads, capacity, depth))
    values = np.zeros_like(keys)
    y = np.zeros((batch, length, num_heads, depth))
    for b in range(batch):
        start, end = starts[b], int(ends.reshape(-1)[b]) + 1
        for cache, old, new in ((keys, past_key, k), (values, past_value, v)):
            if old is not None and start:
                cache[b, :, :start] = old[b, :, :start]
            cache[b, :, start:end] = new[b, :, : end - start]
        for h in range(num_heads):
            shared = h * kv_num_heads // num_heads
            for row in range(length):
                at = own[b, row]
                if at >= end:
                    continue  # padding
                first = max(at + 1 - local_window_size, 0) if local_window_size > 0 else 0
                logits = keys[b, shared, first : at + 1] @ q[b, h, row]
                logits = logits * (scale or 1 / math.sqrt(depth))
                logits = softcap * np.tanh(logits / softcap) if softcap else logits
                if extra is not None:
                    logits = logits + extra[b % len(extra), h % extra.shape[1], row, first : at + 1]
                sink = sinks[h] if sinks is not None else 0.0 if smooth_softmax == 1 else -np.inf
                weights = np.exp(logits)
                weights = weights / (weights.sum() + np.exp(sink))
                y[b, row, h] = weights @ values[b, shared, first : at + 1]
    return [y.reshape(batch, length, -1), keys, values]
