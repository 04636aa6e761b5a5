"""Normalizations with a skip connection, of sums of embeddings, or without a mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import weft
from weft_onnx.nodes import MICROSOFT, Node, cast, lowers
from weft_onnx.values import Tensor


def _wide(x: Tensor) -> Tensor:
    return cast(x, "float32") if x.dtype.itemsize < 4 else x


def _scaled(node: Node, y: Tensor, scale: Tensor, bias: Tensor | None, kind: Any) -> Tensor:
    """Return y times a scale plus a bias, rounded once."""
    y = y * cast(scale, y.dtype)
    return cast(y if bias is None else y + cast(bias, y.dtype), kind)


def _root_mean_square(x: Tensor, axes: tuple[int, ...], epsilon: float) -> tuple[Tensor, Tensor]:
    """Return x divided by its root mean square, and the inverse of that."""
    inverse = weft.rsqrt(weft.mean(x * x, axis=axes, keepdims=True) + epsilon)
    return x * inverse, inverse


def _standardized(
    x: Tensor, axes: tuple[int, ...], epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return x with mean 0 and variance 1, its mean, and the inverse of its deviation."""
    mean = weft.mean(x, axis=axes, keepdims=True)
    y, inverse = _root_mean_square(x - mean, axes, epsilon)
    return y, mean, inverse


@lowers("SimplifiedLayerNormalization", attributes="axis epsilon stash_type")
@lowers("SimplifiedLayerNormalization", domain=MICROSOFT, attributes="axis epsilon stash_type")
def simplified_layer_normalization(node: Node) -> Any:
    """Divide by the root mean square over the axes from one on; the inverse of that on request."""
    x = node[0]
    axis = node.axis(node.attr("axis", -1))
    axes = tuple(range(axis, x.rank))
    y, inverse = _root_mean_square(_wide(x), axes, node.attr("epsilon", 1e-5))
    return _scaled(node, y, node[1], None, node[1].dtype), inverse


def _skipped(node: Node, bias: int) -> Tensor:
    """Return the sum of the operand, the skip connection and a bias, in which both broadcast."""
    total = node[0] + node[1]
    return total + node[bias] if node.has(bias) else total


@lowers("SkipLayerNormalization", domain=MICROSOFT, attributes="epsilon")
def skip_layer_normalization(node: Node) -> Any:
    """Standardize the features of a sum; its mean, inverse deviation and itself on request."""
    total = _skipped(node, 4)
    axes = (total.rank - 1,)
    y, mean, inverse = _standardized(_wide(total), axes, node.attr("epsilon", 1e-12))
    return _scaled(node, y, node[2], node.get(3), total.dtype), mean, inverse, total


@lowers("SkipSimplifiedLayerNormalization", domain=MICROSOFT, attributes="epsilon")
def skip_simplified_layer_normalization(node: Node) -> Any:
    """Divide the features of a sum by their root mean square; the sum itself on request."""
    total = _skipped(node, 3)
    axes = (total.rank - 1,)
    y, inverse = _root_mean_square(_wide(total), axes, node.attr("epsilon", 1e-12))
    return _scaled(node, y, node[2], None, total.dtype), None, inverse, total


def embedded(
    node: Node, tables: Sequence[Tensor], scale: Tensor, bias: Tensor, positions: Any
) -> Any:
    """Return the standardized sum of embeddings of words, positions and segments, and the sum.

    The tables are in this order. Operand 0 has the words and operand 1 the segments; positions
    count from 0 unless they are given.
    """
    words, places, segments = tables
    length = node.shape()[1]
    if positions is None:
        found = weft.tensor_slice(places, (slice(0, length), slice(None)))
    else:
        found = weft.take(places, positions, 0)
    total = weft.take(words, node[0], 0) + found
    if segments is not None and node.has(1):
        total = total + weft.take(segments, node[1], 0)
    y, _, _ = _standardized(_wide(total), (2,), node.attr("epsilon", 1e-12))
    return _scaled(node, y, scale, bias, words.dtype), total


def _lengths(node: Node, operand: int) -> Tensor:
    """Return the number of words that a mask keeps of each sample; 0 without a mask."""
    if not node.has(operand):
        return weft.constant(np.zeros(node.shape()[0], np.int32))
    return weft.sum(cast(weft.equal(node[operand], 1), "int32"), axis=1)


@lowers("EmbedLayerNormalization", domain=MICROSOFT, attributes="epsilon mask_index_type")
def embed_layer_normalization(node: Node) -> Any:
    """Standardize sums of embeddings; count the words that a mask keeps."""
    tables = [node.get(index) for index in (2, 3, 4)]
    y, total = embedded(node, tables, node[5], node[6], node.get(8))
    return y, _lengths(node, 7), total


@lowers("QEmbedLayerNormalization", domain=MICROSOFT, attributes="epsilon")
def quantized_embed_layer_normalization(node: Node) -> Any:
    """Standardize sums of quantized embeddings; count the words that a mask keeps."""
    quantized = (2, 3, 4, 5, 6)
    words, places, segments, scale, bias = (
        _dequantized(node, operand, 8 + at, 13 + at) for at, operand in enumerate(quantized)
    )
    y, _ = embedded(node, [words, places, segments], scale, bias, None)
    return y, _lengths(node, 7)


def _dequantized(node: Node, operand: int, scale: int, zero: int) -> Tensor:
    """Return an operand as float32, or None if it is left out."""
    if not node.has(operand):
        return None
    origin = weft.reshape(cast(node[zero], "int32"), ())
    centered = cast(node[operand], "int32") - origin
    return cast(centered, "float32") * weft.reshape(node[scale], ())


@lowers("GroupNorm", domain=MICROSOFT, attributes="activation channels_last epsilon groups")
def group_norm(node: Node) -> Tensor:
    """Standardize groups of channels of images, and apply SiLU on request."""
    return _grouped(node, node[0])


@lowers("SkipGroupNorm", domain=MICROSOFT, attributes="activation channels_last epsilon groups")
def skip_group_norm(node: Node) -> Any:
    """Standardize groups of channels of a sum of images; the sum on request."""
    skip = node[3]
    if skip.rank == 2:
        batch, channels = skip.axes.shape
        is_last = node.flag("channels_last", True)
        skip = weft.reshape(skip, (batch, 1, 1, channels) if is_last else (batch, channels, 1, 1))
    total = node[0] + skip
    if node.has(4):
        bias = node[4]
        is_last = node.flag("channels_last", True)
        total = total + (bias if is_last else weft.reshape(bias, (-1, 1, 1)))
    return _grouped(node, total), total


def _grouped(node: Node, x: Tensor) -> Tensor:
    is_last = node.flag("channels_last", True)
    images = weft.transpose(x, (0, 3, 1, 2)) if is_last else x
    y = weft.group_norm(
        _wide(images), node.required("groups"), node[1], node[2],
        epsilon=node.attr("epsilon", 1e-5),
    )  # fmt: skip
    y = weft.silu(y) if node.choice("activation") else y
    y = weft.transpose(y, (0, 2, 3, 1)) if is_last else y
    return cast(y, x.dtype)
