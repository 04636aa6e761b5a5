"""Normalization, convolution and attention."""

from __future__ import annotations

import math
from typing import Any

import weft
from weft_torch.rules import Node, Tensor, lowers


def _affine(y: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def _standardized(x: Tensor, axes: tuple[int, ...], eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return numbers of mean 0 and variance 1, the mean, and what they were multiplied by."""
    x = weft.cast(x, "float32") if x.dtype.itemsize < 4 else x
    mean = weft.mean(x, axis=axes, keepdims=True)
    rstd = weft.rsqrt(weft.variance(x, axis=axes, keepdims=True) + eps)
    return (x - mean) * rstd, mean, rstd


@lowers("native_layer_norm")
def layer_norm(
    x: Tensor, normalized_shape: Any, weight: Tensor | None, bias: Tensor | None, eps: float
) -> Any:
    """Standardize the last axes."""
    axes = tuple(range(x.rank - len(normalized_shape), x.rank))
    y, mean, rstd = _standardized(x, axes, eps)
    return _affine(y, weight, bias), mean, rstd


def _per_channel(x: Tensor | None, rank: int) -> Tensor | None:
    return None if x is None else weft.reshape(x, (x.axes.lengths[0], *[1] * (rank - 2)))


@lowers("_weight_norm_interface_backward")
def weight_norm_backward(
    grad_w: Tensor, saved_v: Tensor, saved_g: Tensor, saved_norms: Tensor, dim: int
) -> Any:
    """Return the gradients of filters and lengths, where ``w = v * (g / norm(v))``."""
    axes = tuple(axis for axis in range(saved_v.rank) if axis != dim % saved_v.rank)
    unit = saved_v / saved_norms
    along = weft.sum(grad_w * unit, axis=axes, keepdims=True)
    return saved_g / saved_norms * (grad_w - unit * along), along


@lowers("native_group_norm")
def group_norm(
    node: Node,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    n: int,
    group: int,
    eps: float,
) -> Any:
    """Standardize groups of channels."""
    parts = weft.reshape(x, (n, group, -1))
    y, mean, rstd = _standardized(parts, (2,), eps)
    y = weft.reshape(y, x.axes.lengths)
    y = _affine(y, _per_channel(weight, x.rank), _per_channel(bias, x.rank))
    return y, weft.reshape(mean, node.shape(1)), weft.reshape(rstd, node.shape(2))


@lowers(
    "_native_batch_norm_legit_functional _native_batch_norm_legit_no_training "
    "_native_batch_norm_legit native_batch_norm _batch_norm_with_update_functional "
    "_batch_norm_no_update"
)
def batch_norm(
    node: Node,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    momentum: float,
    eps: float,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    training: bool | None = None,
) -> Any:
    """Standardize channels over a batch, or by running statistics."""
    training = "with_update" in node.name if training is None else training
    axes = (0, *range(2, x.rank))
    new_mean, new_var = running_mean, running_var
    if training:
        y, mean, rstd = _standardized(x, axes, eps)
        mean, rstd = (weft.reshape(each, (x.axes.lengths[1],)) for each in (mean, rstd))
        saved = [mean, rstd]
        if running_mean is not None and running_var is not None:
            n = x.axes.size // x.axes.lengths[1]
            var = weft.variance(x, axis=axes) * (momentum * n / (n - 1))
            new_mean = running_mean * (1 - momentum) + mean * momentum
            new_var = running_var * (1 - momentum) + var
    else:
        assert running_var is not None
        rstd = weft.rsqrt(running_var + eps)
        y = (x - _per_channel(running_mean, x.rank)) * _per_channel(rstd, x.rank)
        saved = node.zeros(1, 2)
    y = _affine(y, _per_channel(weight, x.rank), _per_channel(bias, x.rank))
    if not node.name.endswith("functional"):
        return [y, *saved, *node.zeros(*range(3, len(node.val)))]
    reserve = node.zeros(3) if "with_update" in node.name else []
    return [y, *saved, *reserve, new_mean, new_var]


def _convolved(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Tensor:
    rank = x.rank - 2
    stride, padding, dilation, output_padding = (
        [each[0]] * rank if len(each) == 1 else list(each)
        for each in (stride, padding, dilation, output_padding)
    )
    pairs = [(p, p) for p in padding]
    if not transposed:
        return weft.conv(x, weight, stride, pairs, dilation, groups, bias)
    if all(n < s for n, s in zip(output_padding, stride, strict=True)):
        return weft.conv_transpose(x, weight, stride, pairs, output_padding, dilation, groups, bias)
    # What the result has beyond the last pixel that a filter reaches is zero, but for the bias.
    ends = [p - n for p, n in zip(padding, output_padding, strict=True)]
    pairs = [(p, max(end, 0)) for p, end in zip(padding, ends, strict=True)]
    y = weft.conv_transpose(x, weight, stride, pairs, 0, dilation, groups)
    y = weft.pad(y, [(0, 0), (0, 0), *((0, max(-end, 0)) for end in ends)])
    spread = _per_channel(bias, x.rank)
    return y if spread is None else y + spread


lowers("convolution _convolution")(_convolved)


@lowers("convolution_backward")
def convolution_backward(
    grad_output: Tensor,
    x: Tensor,
    weight: Tensor,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    output_mask: Any,
) -> Any:
    """Return the gradients of the input, of the filters and of the bias."""
    y = _convolved(x, weight, None, stride, padding, dilation, transposed, output_padding, groups)
    axes = (0, *range(2, x.rank))
    return (
        weft.deriv(y, x, grad_output) if output_mask[0] else None,
        weft.deriv(y, weight, grad_output) if output_mask[1] else None,
        weft.sum(grad_output, axis=axes) if output_mask[2] else None,
    )


def _scores(q: Tensor, k: Tensor, mask: Tensor | None, is_causal: bool, scale: float) -> Tensor:
    scores = weft.matmul(q, weft.swapaxes(k, -1, -2)) * scale
    if mask is not None:
        scores = scores + mask
    if is_causal:
        rows, columns = scores.axes.lengths[-2:]
        seen = weft.tri(rows, columns, dtype="bool")
        scores = weft.where(seen, scores, -math.inf)
    return scores


def _scale(q: Tensor, scale: float | None) -> float:
    return 1 / math.sqrt(q.axes.lengths[-1]) if scale is None else scale


@lowers("_scaled_dot_product_flash_attention_for_cpu")
def attention(
    node: Node,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    is_causal: bool,
    attn_mask: Tensor | None,
    scale: float | None,
) -> Any:
    """Return attention, and the logarithms of the sums of its exponentials."""
    scores = _scores(query, key, attn_mask, is_causal, _scale(query, scale))
    total = weft.logsumexp(scores, axis=-1)
    if node.uses(1):
        return weft.matmul(weft.exp(scores - weft.unsqueeze(total, -1)), value), total
    return weft.matmul(weft.softmax(scores, axis=-1), value), total


@lowers("_scaled_dot_product_flash_attention_for_cpu_backward")
def attention_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    is_causal: bool,
    attn_mask: Tensor | None,
    scale: float | None,
) -> Any:
    """Return the gradients of queries, keys and values.

    Dao et al.: FlashAttention, NeurIPS 2022, appendix B.
    """
    factor = _scale(query, scale)
    scores = _scores(query, key, attn_mask, is_causal, factor)
    weights = weft.exp(scores - weft.unsqueeze(logsumexp, logsumexp.rank))
    of_weights = weft.matmul(grad_out, weft.swapaxes(value, -1, -2))
    inner = weft.sum(grad_out * out, axis=-1, keepdims=True)
    of_scores = weights * (of_weights - inner) * factor
    return (
        weft.matmul(of_scores, key),
        weft.matmul(weft.swapaxes(of_scores, -1, -2), query),
        weft.matmul(weft.swapaxes(weights, -1, -2), grad_out),
    )
