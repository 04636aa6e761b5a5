"""Normalisations."""

from __future__ import annotations

from typing import Any

import weft
from weft_onnx.nodes import Node, cast, lowers
from weft_onnx.values import Tensor


def _per_channel(x: Tensor, rank: int) -> Tensor:
    return weft.reshape(x, (-1, *[1] * (rank - 2)))


@lowers("BatchNormalization")
def batch_normalization(node: Node) -> Any:
    """Standardise channels by given moments, or in training by those of the batch."""
    x, rank = node[0], node.rank()
    scale, bias, mean, variance = (node[n] for n in range(1, 5))
    epsilon, momentum = node.attr("epsilon", 1e-5), node.attr("momentum", 0.9)
    if node.version < 9 and not node.attr("spatial", 1):
        inverse = weft.rsqrt(variance + epsilon)
        return (x - mean) * inverse * scale + bias
    is_training = node.attr("training_mode", 0) if node.version >= 14 else (
        node.version < 7 and not node.attr("is_test", 0)
    )  # fmt: skip
    if not is_training:
        factor = cast(scale, variance.dtype) * weft.rsqrt(variance + epsilon)
        offset = cast(bias, variance.dtype) - mean * factor
        found = x * _per_channel(factor, rank) + _per_channel(offset, rank)
        return cast(found, x.dtype)
    axes = (0, *range(2, rank))
    wide = cast(x, mean.dtype)
    own_mean, own_variance = weft.mean(wide, axis=axes), weft.variance(wide, axis=axes)
    inverse = weft.rsqrt(own_variance + epsilon)
    y = (wide - _per_channel(own_mean, rank)) * _per_channel(inverse, rank)
    y = y * _per_channel(scale, rank) + _per_channel(bias, rank)
    running = (
        mean * momentum + own_mean * (1 - momentum),
        variance * momentum + own_variance * (1 - momentum),
    )
    return cast(y, x.dtype), *running


@lowers("InstanceNormalization")
def instance_normalization(node: Node) -> Tensor:
    """Standardise each channel of each sample."""
    return weft.instance_norm(node[0], node[1], node[2], epsilon=node.attr("epsilon", 1e-5))


@lowers("LayerNormalization")
def layer_normalization(node: Node) -> Any:
    """Standardise the axes from one on; the mean and the inverse deviation on request."""
    x = node[0]
    axis = node.axis(node.attr("axis", -1))
    axes, epsilon = tuple(range(axis, x.rank)), node.attr("epsilon", 1e-5)
    wide = cast(x, "float32") if x.dtype.itemsize < 4 and node.attr("stash_type", 1) == 1 else x
    if not node.wants(1) and not node.wants(2):
        scale, bias = node[1], node.get(2)
        if wide is x and scale.axes.shape == x.axes.shape[axis:]:
            return weft.layer_norm(x, scale, bias, axes=axes, epsilon=epsilon)
    mean = weft.mean(wide, axis=axes, keepdims=True)
    centred = wide - mean
    inverse = weft.rsqrt(weft.mean(centred * centred, axis=axes, keepdims=True) + epsilon)
    y = cast(centred * inverse, x.dtype) * node[1]
    if node.has(2):
        y = y + node[2]
    return y, mean, inverse


@lowers("RMSNormalization")
def rms_normalization(node: Node) -> Tensor:
    """Divide by the root mean square over the axes from one on."""
    x = node[0]
    axis = node.axis(node.attr("axis", -1))
    axes, epsilon = tuple(range(axis, x.rank)), node.attr("epsilon", 1e-5)
    wide = cast(x, "float32") if x.dtype.itemsize < 4 and node.attr("stash_type", 1) == 1 else x
    mean = weft.mean(wide * wide, axis=axes, keepdims=True)
    return cast(wide * weft.rsqrt(mean + epsilon), x.dtype) * node[1]


@lowers("GroupNormalization")
def group_normalization(node: Node) -> Any:
    """Standardise groups of channels of each sample."""
    x, groups = node[0], node.required("num_groups")
    channels = x.axes.shape[1]
    scale, bias, epsilon = node[1], node[2], node.attr("epsilon", 1e-5)
    if node.version >= 21 or channels == groups:
        return weft.group_norm(x, groups, scale, bias, epsilon=epsilon)
    repeats = channels // groups
    scale, bias = (weft.repeat(each, repeats, 0) for each in (scale, bias))
    return weft.group_norm(x, groups, scale, bias, epsilon=epsilon)


@lowers("LRN")
def local_response_normalization(node: Node) -> Tensor:
    """Normalise by the squares of neighbouring channels."""
    x, size = node[0], node.required("size")
    alpha, beta, bias = node.attr("alpha", 1e-4), node.attr("beta", 0.75), node.attr("bias", 1.0)
    return weft.local_response_norm(x, size, alpha, beta, bias, axis=1)


@lowers("LpNormalization")
def lp_normalization(node: Node) -> Tensor:
    """Divide by the p-norm along an axis; zeros stay zeros."""
    x, p = node[0], node.attr("p", 2)
    axis = node.axis(node.attr("axis", -1))
    if p == 1:
        norm = weft.sum(weft.absolute(x), axis=axis, keepdims=True)
    else:
        norm = weft.sqrt(weft.sum(x * x, axis=axis, keepdims=True))
    is_zero = weft.equal(norm, 0)
    safe = weft.where(is_zero, weft.ones_like(norm), norm)
    return weft.where(is_zero, weft.zeros_like(x), x / safe)
