"""Attention as onnxruntime's optimizer fuses it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import weft
from weft_onnx.nodes import MICROSOFT, Node, cast, lowers
from weft_onnx.values import Tensor

LOWEST = float(np.finfo(np.float32).min)
"""What is added to the score of a key that comes later; finite, as a row may have no other."""


@dataclass(frozen=True)
class Heads:
    """Queries, keys and values, each of shape (batch, heads, sequence, depth).

    Attributes
    ----------
    query, key, value
        The operands. Keys and values may have fewer heads, which neighboring queries share.
    """

    query: Tensor
    key: Tensor
    value: Tensor

    @property
    def queries(self) -> int:
        """The number of queries."""
        return int(self.query.axes.shape[2])

    @property
    def keys(self) -> int:
        """The number of keys."""
        return int(self.key.axes.shape[2])

    def after(self, key: Tensor | None, value: Tensor | None) -> Heads:
        """Return these with the keys and values that came before."""
        if key is None or value is None:
            return self
        return replace(
            self,
            key=weft.concat([key, self.key], 2),
            value=weft.concat([value, self.value], 2),
        )


def scores(heads: Heads, scale: float | None) -> Tensor:
    """Return the scaled products of queries and keys, in float32."""
    query, key = cast(heads.query, "float32"), cast(heads.key, "float32")
    key = _repeated(key, query)
    if scale is None:
        scale = 1 / float(np.sqrt(query.axes.shape[-1]))
    return weft.matmul(query, weft.transpose(key, (0, 1, 3, 2))) * scale


def _repeated(x: Tensor, query: Tensor) -> Tensor:
    """Return keys or values with as many heads as the query."""
    return weft.repeat(x, query.axes.shape[1] // x.axes.shape[1], 1)


def weighted(heads: Heads, shares: Tensor) -> Tensor:
    """Return the values weighted by shares, of shape (batch, sequence, heads times depth)."""
    value = _repeated(cast(heads.value, "float32"), heads.query)
    return joined(cast(weft.matmul(shares, value), heads.query.dtype))


def joined(x: Tensor) -> Tensor:
    """Return heads side by side: (batch, sequence, heads times depth)."""
    batch, count, length, depth = x.axes.shape
    return weft.reshape(weft.transpose(x, (0, 2, 1, 3)), (batch, length, count * depth))


def parted(x: Tensor, count: int) -> Tensor:
    """Return features as heads: (batch, heads, sequence, depth)."""
    batch, length, width = x.axes.shape
    return weft.transpose(weft.reshape(x, (batch, length, count, width // count)), (0, 2, 1, 3))


def later(queries: int, keys: int) -> Tensor:
    """Return the addend of scores that keeps queries from later keys."""
    places = np.arange(keys)[None] > np.arange(queries)[:, None] + (keys - queries)
    return weft.constant(np.where(places, np.float32(LOWEST), np.float32(0)))


def padding(node: Node, operand: int, keys: int) -> Tensor | None:
    """Return the addend of scores for a mask of words.

    It holds the number of keys of each sample, or that and the first key of each; or for each key,
    or each query and key, whether it is one.
    """
    if not node.has(operand):
        return None
    mask, batch = node[operand], node.shape()[0]
    filled = node.attr("mask_filter_value", -10000.0)
    if mask.rank == 1:
        size = mask.axes.shape[0]
        if size not in (batch, 2 * batch):
            raise node.error(
                f"a mask of {size} numbers is not known, only one or two for each sample"
            )
        places = weft.constant(np.arange(keys, dtype=np.int32))
        parts = weft.reshape(cast(mask, "int32"), (size // batch, batch, 1))
        is_key = places < weft.slice_along_axis(parts, 0, 0)
        if size == 2 * batch:
            is_key = weft.logical_and(is_key, places >= weft.slice_along_axis(parts, 0, 1))
    elif mask.rank in (2, 3):
        is_key = mask > 0
    else:
        raise node.error(f"a mask of rank {mask.rank} is not known, only ranks 1 to 3")
    if is_key.rank == 2:
        is_key = weft.unsqueeze(is_key, 1)
    return weft.unsqueeze(weft.where(is_key, 0.0, float(filled)), 1)


def attended(node: Node, heads: Heads, mask: int, bias: int) -> tuple[Tensor, Tensor]:
    """Return the result of attention, and the scores that enter the softmax.

    `mask` and `bias` are the numbers of these operands.
    """
    found = scores(heads, node.attr("scale"))
    added = padding(node, mask, heads.keys)
    found = found if added is None else found + added
    if node.flag("unidirectional"):
        found = weft.maximum(found + later(heads.queries, heads.keys), LOWEST)
    if bias and node.has(bias):
        found = found + cast(node[bias], "float32")
    return weighted(heads, weft.softmax(found, axis=3)), found


def _past(node: Node, operand: int) -> tuple[Tensor | None, Tensor | None]:
    """Return the earlier keys and values of one operand."""
    if not node.has(operand):
        return None, None
    keys, values = (weft.slice_along_axis(node[operand], 0, n) for n in (0, 1))
    return keys, values


def _self_attention(node: Node, projected: Tensor, past: int, mask: int, bias: int) -> Any:
    """Return attention over projected queries, keys and values side by side, and what it keeps."""
    count = node.required("num_heads")
    width = projected.axes.shape[2]
    sizes = list(node.attr("qkv_hidden_sizes") or [width // 3] * 3)
    parts = [parted(part, count) for part in weft.split(projected, sizes, 2)]
    heads = Heads(*parts).after(*_past(node, past))
    found, _ = attended(node, heads, mask, bias)
    present = weft.stack([heads.key, heads.value]) if node.wants(1) else None
    return found, present


ATTENTION = "do_rotary mask_filter_value num_heads past_present_share_buffer scale unidirectional"


def _refuse_shared(node: Node) -> None:
    """Raise NodeError for what only GPUs compute."""
    for name in ("do_rotary", "past_present_share_buffer"):
        node.choice(name, {0: False}, default=0)


@lowers(
    "Attention", domain=MICROSOFT, attributes=f"{ATTENTION} qkv_hidden_sizes rotary_embedding_dim"
)  # fmt: skip
def attention(node: Node) -> Any:
    """Project to queries, keys and values, and attend; the keys and values on request."""
    _refuse_shared(node)
    projected = weft.matmul(node[0], node[1])
    if node.has(2):
        projected = projected + node[2]
    return _self_attention(node, projected, past=4, mask=3, bias=5)


@lowers("QAttention", domain=MICROSOFT, attributes=ATTENTION)
def quantized_attention(node: Node) -> Any:
    """Attend like Attention, with a quantized operand and quantized weights."""
    _refuse_shared(node)
    x, weights = cast(node[0], "int32"), cast(node[1], "int32")
    if node.has(6):
        x = x - weft.reshape(cast(node[6], "int32"), ())
    if node.has(7):
        zero = cast(node[7], "int32")
        weights = weights - (weft.reshape(zero, ()) if zero.axes.size == 1 else zero)
    factor = weft.reshape(node[3], ()) * (
        weft.reshape(node[4], ()) if node[4].axes.size == 1 else node[4]
    )
    projected = cast(weft.matmul(x, weights), "float32") * factor + node[2]
    return _self_attention(node, projected, past=8, mask=5, bias=0)


@lowers(
    "MultiHeadAttention",
    domain=MICROSOFT,
    attributes="mask_filter_value num_heads scale unidirectional",
)
def multi_head_attention(node: Node) -> Any:
    """Attend with queries, keys and values, which may be packed; the last two on request."""
    for operand, name in ((8, "past_sequence_length"), (9, "cache_indirection")):
        if node.has(operand):
            raise node.error(f"weft does not compute it with the operand {name}")
    heads = _given_heads(node).after(node.get(6), node.get(7))
    found, logits = attended(node, heads, mask=4, bias=5)
    shares = weft.softmax(logits, axis=3) if node.wants(3) else None
    return found, heads.key, heads.value, shares


def _given_heads(node: Node) -> Heads:
    """Return the heads of the first three operands, with the bias of the fourth."""
    count, query = node.required("num_heads"), node[0]
    if query.rank == 5:
        parts = [weft.slice_along_axis(query, 3, n) for n in range(3)]
        given = [weft.transpose(each, (0, 2, 1, 3)) for each in parts]
    elif node.rank(1) == 5:
        parts = [weft.slice_along_axis(node[1], 3, n) for n in range(2)]
        given = [parted(query, count), *(weft.transpose(x, (0, 2, 1, 3)) for x in parts)]
    else:
        given = [x if x.rank == 4 else parted(x, count) for x in (query, node[1], node[2])]
    if node.has(3):
        sizes = [count * each.axes.shape[3] for each in given]
        starts = np.cumsum([0, *sizes])
        for at in range(3):
            # Keys and values that are four-dimensional have their bias already.
            if node.rank(at) != 4:
                part = weft.tensor_slice(node[3], (slice(int(starts[at]), int(starts[at + 1])),))
                given[at] = given[at] + weft.reshape(part, (count, 1, -1))
    return Heads(*given)
