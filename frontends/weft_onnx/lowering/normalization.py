"""Normalizations."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from weft_onnx.nodes import Node, cast, lowers, numpy_dtype
from weft_onnx.values import Tensor


def _per_channel(x: Tensor, rank: int) -> Tensor:
    return weft.reshape(x, (-1, *[1] * (rank - 2)))


@lowers("BatchNormalization")
def batch_normalization(node: Node) -> Any:
    """Standardize channels by given moments, or in training by those of the batch.

    Before opset 9 an attribute may make each element of a sample a channel.
    """
    x, rank = node[0], node.rank()
    scale, bias, mean, variance = (node[n] for n in range(1, 5))
    is_spatial = node.version >= 9 or node.flag("spatial")
    epsilon = node.attr("epsilon")

    def spread(each: Tensor) -> Tensor:
        return _per_channel(each, rank) if is_spatial else each

    if not _is_training(node):
        factor = cast(scale, variance.dtype) * weft.rsqrt(variance + epsilon)
        offset = cast(bias, variance.dtype) - mean * factor
        return cast(x * spread(factor) + spread(offset), x.dtype)
    axes, momentum = (0, *range(2, rank)) if is_spatial else (0,), node.attr("momentum")
    wide = cast(x, mean.dtype)
    own_mean, own_variance = weft.mean(wide, axis=axes), weft.variance(wide, axis=axes)
    inverse = weft.rsqrt(own_variance + epsilon)
    y = (wide - spread(own_mean)) * spread(inverse) * spread(scale) + spread(bias)
    running = (
        mean * momentum + own_mean * (1 - momentum),
        variance * momentum + own_variance * (1 - momentum),
    )
    # Before opset 14 two further results are the moments of the batch.
    return cast(y, x.dtype), *running, own_mean, own_variance


def _is_training(node: Node) -> bool:
    """Whether a batch has its own moments: from opset 7 to 13, if further results are named."""
    if node.version >= 14:
        return node.flag("training_mode")
    if node.version >= 7:
        return any(node.wants(index) for index in range(1, 5))
    return not node.attr("is_test")


@lowers("InstanceNormalization")
def instance_normalization(node: Node) -> Tensor:
    """Standardize each channel of each sample."""
    return weft.instance_norm(node[0], node[1], node[2], epsilon=node.attr("epsilon", 1e-5))


def _stashed(node: Node, x: Tensor) -> tuple[np.dtype[Any], Tensor]:
    """Return the dtype of stage one, and the operand in it; float64 loses nothing to float32."""
    stash = numpy_dtype(node.choice("stash_type"))
    is_wider = x.dtype == np.float64 and stash == np.float32
    return stash, x if is_wider or x.dtype == stash else cast(x, stash)


@lowers("LayerNormalization")
def layer_normalization(node: Node) -> Any:
    """Standardize the axes from one on; the mean and the inverse deviation on request."""
    x = node[0]
    axis = node.axis(node.attr("axis", -1))
    axes, epsilon = tuple(range(axis, x.rank)), node.attr("epsilon")
    stash, wide = _stashed(node, x)
    if not node.wants(1) and not node.wants(2):
        scale, bias = node[1], node.get(2)
        if wide is x and scale.axes.shape == x.axes.shape[axis:]:
            return weft.layer_norm(x, scale, bias, axes=axes, epsilon=epsilon)
    mean = weft.mean(wide, axis=axes, keepdims=True)
    centered = wide - mean
    inverse = weft.rsqrt(weft.mean(centered * centered, axis=axes, keepdims=True) + epsilon)
    y = cast(centered * inverse, x.dtype) * node[1]
    if node.has(2):
        y = y + node[2]
    return y, cast(mean, stash), cast(inverse, stash)


@lowers("RMSNormalization")
def rms_normalization(node: Node) -> Tensor:
    """Divide by the root mean square over the axes from one on."""
    x = node[0]
    axis = node.axis(node.attr("axis", -1))
    axes, epsilon = tuple(range(axis, x.rank)), node.attr("epsilon")
    _, wide = _stashed(node, x)
    mean = weft.mean(wide * wide, axis=axes, keepdims=True)
    return cast(wide * weft.rsqrt(mean + epsilon), x.dtype) * node[1]


@lowers("GroupNormalization")
def group_normalization(node: Node) -> Any:
    """Standardize groups of channels of each sample; before opset 21 the op is withdrawn."""
    x, groups = node[0], node.required("num_groups")
    scale, bias, epsilon = node[1], node[2], node.attr("epsilon")
    _, wide = _stashed(node, x)
    if wide is x:
        return weft.group_norm(x, groups, scale, bias, epsilon=epsilon)
    found = cast(weft.group_norm(wide, groups, epsilon=epsilon), x.dtype)
    return found * _per_channel(scale, x.rank) + _per_channel(bias, x.rank)


@lowers("LRN")
def local_response_normalization(node: Node) -> Tensor:
    """Normalize by the squares of neighboring channels."""
    x, size = node[0], node.required("size")
    alpha, beta, bias = node.attr("alpha", 1e-4), node.attr("beta", 0.75), node.attr("bias", 1.0)
    if size % 2:
        return weft.local_response_norm(x, size, alpha, beta, bias, axis=1)
    # Of an even number of channels one more comes after than before, and not the other way.
    reverse = weft.local_response_norm(weft.flip(x, 1), size, alpha, beta, bias, axis=1)
    return weft.flip(reverse, 1)


@lowers("LpNormalization")
def lp_normalization(node: Node) -> Tensor:
    """Divide by the p-norm along an axis; zeros stay zeros."""
    x = node[0]
    axis = node.axis(node.attr("axis", -1))
    if node.choice("p") == 1:
        norm = weft.sum(weft.absolute(x), axis=axis, keepdims=True)
    else:
        norm = weft.sqrt(weft.sum(x * x, axis=axis, keepdims=True))
    is_zero = weft.equal(norm, 0)
    safe = weft.where(is_zero, weft.ones_like(norm), norm)
    return weft.where(is_zero, weft.zeros_like(x), x / safe)
