"""Attention of grouped queries with a cache, and rotary embeddings."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from weft_onnx.lowering.attention import LOWEST, Heads, parted, scores, weighted
from weft_onnx.nodes import MICROSOFT, Node, cast, lowers
from weft_onnx.values import Tensor


def rotated(x: Tensor, cos: Tensor, sin: Tensor, positions: Any, is_interleaved: bool) -> Tensor:
    """Return heads with their first features rotated by the angles at positions.

    `cos` and `sin` hold half as many columns as features are rotated. Positions have the shape
    (batch, sequence).
    """
    size = 2 * cos.axes.shape[1]
    tables = [weft.unsqueeze(weft.take(each, positions, 0), 1) for each in (cos, sin)]
    y = weft.rotary_embedding(
        x[..., :size], interleaved=is_interleaved, cos=tables[0], sin=tables[1]
    )
    if size == x.axes.shape[3]:
        return cast(y, x.dtype)
    return weft.concat([cast(y, x.dtype), x[..., size:]], 3)


@lowers(
    "RotaryEmbedding",
    domain=MICROSOFT,
    attributes="interleaved is_packed_batching num_heads rotary_embedding_dim scale",
)
def rotary_embedding(node: Node) -> Tensor:
    """Rotate pairs of features by angles that grow with the position."""
    node.choice("is_packed_batching", {0: False}, default=0)
    node.choice("scale", {1.0: 1.0}, default=1.0)
    x, positions = node[0], cast(node[1], "int64")
    is_flat = x.rank == 3
    if is_flat:
        size, width = node.attr("rotary_embedding_dim", 0), 2 * node.shape(2)[1]
        count = node.attr("num_heads", 0) if size else x.axes.shape[2] // width
        if not count:
            raise node.error("with rotary_embedding_dim it needs num_heads")
        x = parted(x, count)
    batch, count, length, depth = x.axes.shape
    if positions.axes.size == 1:
        positions = weft.reshape(positions, (1, 1)) + weft.constant(np.arange(length)[None])
    positions = weft.broadcast(positions, (batch, length))
    y = rotated(x, node[2], node[3], positions, node.flag("interleaved"))
    if not is_flat:
        return y
    return weft.reshape(weft.transpose(y, (0, 2, 1, 3)), (batch, length, count * depth))


@lowers(
    "GroupQueryAttention",
    domain=MICROSOFT,
    attributes=(
        "causal do_rotary k_norm_epsilon k_quant_type kv_cache_bit_width kv_num_heads "
        "local_window_size num_heads q_norm_epsilon qk_norm_epsilon qk_output rotary_interleaved "
        "scale sliding_window_cache smooth_softmax softcap v_quant_type"
    ),
)
def group_query_attention(node: Node) -> Any:
    """Attend with a cache of keys and values, whose heads several heads of queries share.

    Operand 5 has the number of keys of each sample less one, and operand 6 the largest of these
    numbers.
    """
    _refuse_unknown(node)
    query, key, value = _projected(node)
    query, key = _normed(node, query, 14, "q"), _normed(node, key, 15, "k")
    length, total = query.axes.shape[2], node.ints(6)[0]
    node.require_room(*key.axes.shape[:2], total, key.axes.shape[3])
    ends = weft.reshape(cast(node[5], "int64"), (-1, 1)) + 1
    starts = ends - length
    if total == length:
        # A first prompt: its samples begin at 0, and shorter ones are padded behind.
        starts = starts * 0
    steps = weft.constant(np.arange(length, dtype=np.int64)[None])
    own = starts + steps
    if node.flag("do_rotary"):
        places = cast(node[9], "int64") if node.has(9) else own
        places = weft.clip(places, 0, node.shape(7)[0] - 1)
        is_interleaved = node.flag("rotary_interleaved")
        query, key = (rotated(x, node[7], node[8], places, is_interleaved) for x in (query, key))
    capacity = max(total, node.shape(3)[2] if node.has(3) else 0)
    key, value = (
        _cached(node.get(operand), x, starts, ends, capacity)
        for operand, x in ((3, key), (4, value))
    )
    found, kept = _attended(node, Heads(query, key, value), own, ends, total)
    return found, key, value, kept


def _refuse_unknown(node: Node) -> None:
    for name in ("k_quant_type", "v_quant_type"):
        node.choice(name, {"NONE": False}, default="NONE")
    node.choice("sliding_window_cache", {0: False}, default=0)
    node.choice("kv_cache_bit_width", {0: False}, default=0)
    for operand, name in ((12, "k_scale"), (13, "v_scale"), (16, "query_seqlens")):
        if node.has(operand):
            raise node.error(f"weft does not compute it with the operand {name}")


def _projected(node: Node) -> list[Tensor]:
    """Return queries, keys and values as heads; they may be side by side in the first operand."""
    count, few = node.required("num_heads"), node.required("kv_num_heads")
    if node.has(1):
        return [parted(node[0], count), parted(node[1], few), parted(node[2], few)]
    depth = node.shape()[2] // (count + 2 * few)
    found, start = [], 0
    for heads in (count, few, few):
        found.append(parted(node[0][..., start : start + heads * depth], heads))
        start += heads * depth
    return found


def _normed(node: Node, x: Tensor, operand: int, side: str) -> Tensor:
    """Return heads divided by the root mean square of each, times weights, if these are given."""
    if not node.has(operand):
        return x
    epsilon = node.attr(f"{side}_norm_epsilon", node.attr("qk_norm_epsilon", 1e-6))
    wide = cast(x, "float32")
    inverse = weft.rsqrt(weft.mean(wide * wide, axis=3, keepdims=True) + epsilon)
    return cast(wide * inverse * cast(node[operand], "float32"), x.dtype)


def _cached(past: Tensor | None, x: Tensor, starts: Tensor, ends: Tensor, capacity: int) -> Tensor:
    """Return the cache with new rows of each sample from its start on, and zeros behind its end."""
    places = weft.constant(np.arange(capacity, dtype=np.int64)[None])
    if past is None:
        missing = capacity - x.axes.shape[2]
        found = weft.pad(x, [(0, 0), (0, 0), (0, missing), (0, 0)]) if missing else x
    else:
        held = past.axes.shape[2]
        both = weft.concat([past, x], 2)
        new = weft.clip(places - starts, 0, x.axes.shape[2] - 1) + held
        rows = weft.where(places < starts, weft.minimum(places, held + 0 * places), new)
        found = weft.take_along_axis(both, weft.reshape(rows, (-1, 1, capacity, 1)), 2)
    is_kept = weft.reshape(places < ends, (-1, 1, capacity, 1))
    return weft.where(is_kept, found, weft.zeros_like(found))


def _attended(
    node: Node, heads: Heads, own: Tensor, ends: Tensor, total: int
) -> tuple[Tensor, Tensor | None]:
    """Return the result, and the scores before or after the softmax if one asks for them."""
    visible = Heads(heads.query, heads.key[:, :, :total], heads.value[:, :, :total])
    logits = scores(visible, node.attr("scale") or None)
    cap = node.attr("softcap", 0.0)
    logits = weft.tanh(logits / cap) * cap if cap else logits
    places = weft.constant(np.arange(total, dtype=np.int64)[None, None])
    rows = weft.unsqueeze(own, 2)
    window = node.attr("local_window_size", -1)
    is_seen = weft.less_equal(places, rows) if node.flag("causal", True) else (
        places < weft.unsqueeze(ends, 2)
    )  # fmt: skip
    if window > 0:
        is_seen = weft.logical_and(is_seen, places > rows - window)
    if node.has(10):
        logits = logits + cast(node[10], "float32")
    logits = weft.where(weft.unsqueeze(is_seen, 1), logits, LOWEST)
    shares = _shares(node, logits)
    kept = {0: None, 1: logits, 2: shares}[node.attr("qk_output", 0)]
    return weighted(visible, shares), kept


def _shares(node: Node, logits: Tensor) -> Tensor:
    """Return the softmax over keys, with a further term in its denominator on request."""
    if node.has(11):
        sink = weft.reshape(cast(node[11], "float32"), (-1, 1, 1))
    elif node.attr("smooth_softmax", 0) == 1:
        sink = weft.constant(np.zeros((1, 1, 1), np.float32))
    else:
        return weft.softmax(logits, axis=3)
    top = weft.maximum(weft.max(logits, axis=3, keepdims=True), sink)
    powers = weft.exp(logits - top)
    return powers / (weft.sum(powers, axis=3, keepdims=True) + weft.exp(sink - top))
