"""Every op against plain NumPy, all in one program; gradients against central differences."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from popxl_programs import called, differences, results, stored

import weft_popxl as popxl
from weft_popxl import ops, transforms
from weft_popxl.ops import var_updates

RANDOM = np.random.default_rng(3)


def array(*shape: int) -> Any:
    return RANDOM.normal(size=shape).astype(np.float32)


DATA: dict[str, Any] = {
    "x": array(3, 4),
    "y": array(3, 4),
    "p": np.abs(array(3, 4)) + 0.5,
    "w": array(4, 5),
    "n": np.array([[3, -4, 5], [0, 7, -2]], np.int32),
    "labels": np.array([2, 0, 3], np.int32),
    "odd": np.array([1.0, np.nan, np.inf, -2.5], np.float32),
    "images": array(2, 4, 5, 6),
    "filters": array(6, 2, 3, 3),
    "laid": array(4, 3, 3, 3),
    "scale": array(4),
    "shift": array(4),
}
VALUES = SimpleNamespace(**DATA)


def softmax(x: Any) -> Any:
    shares = np.exp(x - x.max(-1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True)


def gelu(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(0.7978845608 * x + 0.03567740814 * x**3))


def gelu_erf(x: Any) -> Any:
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def normed(x: Any, axes: Any, eps: float = 1e-5) -> Any:
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    return (x - mean) / np.sqrt(variance + eps)


def grouped(x: Any, groups: int) -> Any:
    return normed(x.reshape(2, groups, -1), -1).reshape(x.shape)


def channels(v: Any) -> Any:
    return v.reshape(1, 4, 1, 1)


def batch_normed(x: Any, scale: Any, shift: Any) -> Any:
    return (x - shift) / np.sqrt(np.abs(scale) + 1e-5) * scale + shift


def correlated(x: Any, w: Any, groups: int, pad: int, stride: int) -> Any:
    """Return the convolution by its definition."""
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    rows, columns = ((size - 3) // stride + 1 for size in x.shape[2:])
    out = np.zeros((x.shape[0], w.shape[0], rows, columns))
    share, inside = w.shape[0] // groups, w.shape[1]
    for o, i, j in np.ndindex(w.shape[0], rows, columns):
        first = o // share * inside
        window = x[
            :, first : first + inside, i * stride : i * stride + 3, j * stride : j * stride + 3
        ]
        out[:, o, i, j] = (window * w[o]).sum((1, 2, 3))
    return out


def laid_out(x: Any, w: Any, stride: Any, dilation: Any, groups: int) -> Any:
    """Return the transposed convolution by its definition: each element lays a filter out."""
    gaps = [(n - 1) * d + 1 for n, d in zip(w.shape[2:], dilation, strict=True)]
    lengths = [(n - 1) * s + g for n, s, g in zip(x.shape[2:], stride, gaps, strict=True)]
    share, each = x.shape[1] // groups, w.shape[1]
    out = np.zeros((x.shape[0], groups * each, *lengths))
    for c, i, j in np.ndindex(*x.shape[1:]):
        first, (top, left) = c // share * each, (i * stride[0], j * stride[1])
        rows = slice(top, top + gaps[0], dilation[0])
        columns = slice(left, left + gaps[1], dilation[1])
        laid = x[:, c, i, j, None, None, None] * w[c]
        out[:, first : first + each, rows, columns] += laid
    return out


def widened(x: Any) -> Any:
    return np.pad(x, ((0, 0), (0, 0), (0, 1), (0, 0)))


def pooled(x: Any, reduce: Any) -> Any:
    return np.stack([
        np.stack([reduce(x[:, :, i : i + 2, j : j + 3], (2, 3)) for j in range(4)], -1)
        for i in range(4)
    ], -2)  # fmt: skip


def windows(x: Any, size: Any, stride: Any, pads: Any, reduce: Any, step: Any = (1, 1)) -> Any:
    """Return what a reduction makes of windows, whose padding is NaN."""
    x = np.pad(x, ((0, 0), (0, 0), *pads), constant_values=np.nan)
    span = [(n - 1) * s + 1 for n, s in zip(size, step, strict=True)]
    seen = np.lib.stride_tricks.sliding_window_view(x, span, (2, 3))
    seen = seen[:, :, :: stride[0], :: stride[1], :: step[0], :: step[1]]
    return reduce(seen, (-1, -2)).astype(np.float32)


def nll(p: Any, labels: Any) -> Any:
    return -np.log(p[np.arange(3), labels])


def nll_grad(p: Any, labels: Any) -> Any:
    return p - np.eye(4, dtype=np.float32)[labels]


def put(x: Any, indices: Any, values: Any) -> Any:
    out = x.copy()
    np.put_along_axis(out, indices, values, 0)
    return out


def changed(x: Any, key: Any, value: Any) -> Any:
    out = np.array(x)
    out[key] = value
    return out


SHARES = np.array([[1, 2, 1, 0, 0, 0], [0, 0, 1, 2, 1, 0]], np.float32) / 4
INDEX = np.array([[0, 2, 1, 1], [2, 1, 0, 2]], np.int32)
Case = tuple[Callable[[Any], Any], Callable[[Any], Any]]
CASES: dict[str, Case] = {
    "add": (lambda t: ops.add(t.x, t.y), lambda v: v.x + v.y),
    "sub": (lambda t: ops.sub(t.x, t.y), lambda v: v.x - v.y),
    "mul": (lambda t: ops.mul(2.0, t.y), lambda v: 2 * v.y),
    "div": (lambda t: ops.div(t.x, t.p), lambda v: v.x / v.p),
    "div of integers": (lambda t: ops.div(t.n, 2), lambda v: np.trunc(v.n / 2)),
    "fmod": (lambda t: ops.fmod(t.x, 0.3), lambda v: np.fmod(v.x, np.float32(0.3))),
    "pow": (lambda t: ops.pow(t.p, t.x), lambda v: v.p**v.x),
    "maximum": (lambda t: ops.maximum(t.x, t.y), lambda v: np.maximum(v.x, v.y)),
    "maximum of three": (
        lambda t: ops.maximum(0.0, t.x, t.y[0]),
        lambda v: np.maximum(np.maximum(0, v.x), v.y[0]),
    ),
    "minimum of one": (lambda t: ops.minimum(t.x), lambda v: v.x),
    "minimum": (lambda t: ops.minimum(t.x, 0.1), lambda v: np.minimum(v.x, 0.1)),
    "scaled_add": (lambda t: ops.scaled_add(t.x, t.y, 2, b=3), lambda v: 2 * v.x + 3 * v.y),
    "negate": (lambda t: ops.negate(t.x), lambda v: -v.x),
    "abs": (lambda t: ops.abs(t.x), lambda v: np.abs(v.x)),
    "exp": (lambda t: ops.exp(t.x), lambda v: np.exp(v.x)),
    "log": (lambda t: ops.log(t.p), lambda v: np.log(v.p)),
    "log2": (lambda t: ops.log2(t.p), lambda v: np.log2(v.p)),
    "sqrt": (lambda t: ops.sqrt(t.p), lambda v: np.sqrt(v.p)),
    "sin": (lambda t: ops.sin(t.x), lambda v: np.sin(v.x)),
    "cos": (lambda t: ops.cos(t.x), lambda v: np.cos(v.x)),
    "tan": (lambda t: ops.tan(t.x), lambda v: np.tan(v.x)),
    "sinh": (lambda t: ops.sinh(t.x), lambda v: np.sinh(v.x)),
    "cosh": (lambda t: ops.cosh(t.x), lambda v: np.cosh(v.x)),
    "tanh": (lambda t: ops.tanh(t.x), lambda v: np.tanh(v.x)),
    "sigmoid": (lambda t: ops.sigmoid(t.x), lambda v: 1 / (1 + np.exp(-v.x))),
    "relu": (lambda t: ops.relu(t.x), lambda v: np.maximum(v.x, 0)),
    "gelu": (lambda t: ops.gelu(t.x), lambda v: gelu(v.x)),
    "geluerf": (lambda t: ops.geluerf(t.x), lambda v: gelu_erf(v.x)),
    "swish": (lambda t: ops.swish(t.x), lambda v: v.x / (1 + np.exp(-v.x))),
    "softmax": (lambda t: ops.softmax(t.x, 0), lambda v: softmax(v.x.T).T),
    "clip": (lambda t: ops.clip(t.x, -0.5, 0.5), lambda v: np.clip(v.x, -0.5, 0.5)),
    "clamp": (lambda t: ops.clamp(t.n, -1, 4.0), lambda v: np.clip(v.n, -1, 4)),
    "clip above": (lambda t: ops.clip(t.n, max=2), lambda v: np.minimum(v.n, 2)),
    "sign": (lambda t: ops.sign(t.n), lambda v: np.sign(v.n)),
    "floor": (lambda t: ops.floor(t.x), lambda v: np.floor(v.x)),
    "ceil": (lambda t: ops.ceil(t.x), lambda v: np.ceil(v.x)),
    "round": (lambda t: ops.round(t.x), lambda v: np.round(v.x)),
    "cast": (lambda t: ops.cast(t.n, popxl.float32), lambda v: v.n.astype(np.float32)),
    "identity": (lambda t: ops.identity(t.x), lambda v: v.x),
    "rename": (lambda t: ops.rename(t.x, "another"), lambda v: v.x),
    "detach": (lambda t: ops.detach(t.x), lambda v: v.x),
    "detach_": (lambda t: ops.detach_(t.x), lambda v: v.x),
    "where": (lambda t: ops.where(t.x > 0, t.y, 0.0), lambda v: np.where(v.x > 0, v.y, 0)),
    "increment_mod": (lambda t: ops.increment_mod(t.n, 2, 5), lambda v: (v.n + 2) % 5),
    "equal": (lambda t: ops.equal(t.n, 5), lambda v: v.n == 5),
    "not_equal": (lambda t: ops.not_equal(t.n, 5), lambda v: v.n != 5),
    "greater": (lambda t: ops.greater(t.x, t.y), lambda v: v.x > v.y),
    "greater_equal": (lambda t: ops.greater_equal(t.n, 5), lambda v: v.n >= 5),
    "less": (lambda t: ops.less(t.n, 5), lambda v: v.n < 5),
    "less_equal": (lambda t: ops.less_equal(t.n, 5), lambda v: v.n <= 5),
    "logical_and": (lambda t: ops.logical_and(t.n, t.n > 3), lambda v: v.n > 3),
    "logical_or": (lambda t: ops.logical_or(t.n > 3, t.n), lambda v: v.n != 0),
    "logical_not": (lambda t: ops.logical_not(t.n), lambda v: v.n == 0),
    "isnan": (lambda t: ops.isnan(t.odd), lambda v: np.isnan(v.odd)),
    "isinf": (lambda t: ops.isinf(t.odd), lambda v: np.isinf(v.odd)),
    "isfinite": (lambda t: ops.isfinite(t.odd), lambda v: np.isfinite(v.odd)),
    "bitwise_and": (lambda t: ops.bitwise_and(t.n, 3), lambda v: v.n & 3),
    "bitwise_or": (lambda t: ops.bitwise_or(t.n, 3), lambda v: v.n | 3),
    "bitwise_xor": (lambda t: ops.bitwise_xor(t.n, 3), lambda v: v.n ^ 3),
    "bitwise_not": (lambda t: ops.bitwise_not(t.n), lambda v: ~v.n),
    "sum": (lambda t: ops.sum(t.x), lambda v: v.x.sum()),
    "sum of an axis": (lambda t: ops.sum(t.x, 0, True), lambda v: v.x.sum(0, keepdims=True)),
    "sum of axes": (lambda t: ops.sum(t.images, [0, -1]), lambda v: v.images.sum((0, -1))),
    "mean": (lambda t: ops.mean(t.x, 1), lambda v: v.x.mean(1)),
    "max": (lambda t: ops.max(t.x, 1), lambda v: v.x.max(1)),
    "min": (lambda t: ops.min(t.n), lambda v: v.n.min()),
    "prod": (lambda t: ops.prod(t.x, 0), lambda v: v.x.prod(0)),
    "median": (lambda t: ops.median(t.x, 0), lambda v: np.median(v.x, 0)),
    "median of an even number": (lambda t: ops.median(t.x, 1), lambda v: np.sort(v.x, 1)[:, 1]),
    "median of integers": (lambda t: ops.median(t.n, (0, 1), True), lambda v: np.int32([[0]])),
    "median with NaN": (lambda t: ops.median(t.odd), lambda v: np.float32(np.nan)),
    "logsum": (lambda t: ops.logsum(t.p, 0), lambda v: np.log(v.p.sum(0))),
    "logsumexp": (lambda t: ops.logsumexp(t.x, 0), lambda v: np.log(np.exp(v.x).sum(0))),
    "l1": (lambda t: ops.l1(t.x, 0), lambda v: np.abs(v.x).sum(0)),
    "l2": (lambda t: ops.l2(t.x, 0), lambda v: np.sqrt((v.x**2).sum(0))),
    "sumsquare": (lambda t: ops.sumsquare(t.x, 0), lambda v: (v.x**2).sum(0)),
    "argmax": (lambda t: ops.argmax(t.x, 1), lambda v: v.x.argmax(1).astype(np.int32)),
    "argmin": (
        lambda t: ops.argmin(t.x, 0, True),
        lambda v: v.x.argmin(0, keepdims=True).astype(np.int32),
    ),
    "cumsum": (lambda t: ops.cumsum(t.x, 1), lambda v: v.x.cumsum(1)),
    "topk": (lambda t: ops.topk(t.x, 2, 1, True, True)[0], lambda v: np.sort(v.x, 1)[:, :-3:-1]),
    "topk indices": (
        lambda t: ops.topk(t.x, 2)[1],
        lambda v: np.argsort(-v.x, 1)[:, :2].astype(np.int32),
    ),
    "topk of the smallest": (
        lambda t: ops.topk(t.x, k=2, axis=0, largest=False, sorted=True)[0],
        lambda v: np.sort(v.x, 0)[:2],
    ),
    "transpose": (
        lambda t: ops.transpose(t.images, (0, 2, -1, 1)),
        lambda v: v.images.transpose(0, 2, 3, 1),
    ),
    "transpose_": (lambda t: ops.transpose_(t.x), lambda v: v.x.T),
    "reshape": (lambda t: ops.reshape(t.x, (2, -1)), lambda v: v.x.reshape(2, -1)),
    "reshape_": (lambda t: ops.reshape_(t.x, (12,)), lambda v: v.x.reshape(12)),
    "flatten": (lambda t: ops.flatten(t.x), lambda v: v.x.ravel()),
    "flatten_": (lambda t: ops.flatten_(t.x), lambda v: v.x.ravel()),
    "squeeze": (lambda t: ops.squeeze(t.x[:1], [0]), lambda v: v.x[0]),
    "squeeze_": (lambda t: ops.squeeze_(t.x[:1]), lambda v: v.x[0]),
    "slice": (lambda t: ops.slice(t.x, [0, 3], [2, 0], [1, -2]), lambda v: v.x[0:2, 3:0:-2]),
    "slice of an axis": (lambda t: ops.slice(t.x, 1, 3, axis=1), lambda v: v.x[:, 1:3]),
    "slice of none": (lambda t: ops.slice(t.x), lambda v: v.x),
    "slice_": (lambda t: ops.slice_(t.x, step=-1), lambda v: v.x[::-1]),
    "subsample": (lambda t: ops.subsample(t.x, [2, 3]), lambda v: v.x[::2, ::3]),
    "subsample_": (lambda t: ops.subsample_(t.x, 2), lambda v: v.x[::2]),
    "diag": (lambda t: ops.diag(t.x), lambda v: v.x.diagonal()),
    "concat": (lambda t: ops.concat([t.x, t.y], 1), lambda v: np.concatenate([v.x, v.y], 1)),
    "concat_": (lambda t: ops.concat_([t.x, t.y]), lambda v: np.concatenate([v.x, v.y])),
    "split": (lambda t: ops.split(t.x, 2, 1)[1], lambda v: v.x[:, 2:]),
    "split by lengths": (lambda t: ops.split(t.x, [1, 2])[1], lambda v: v.x[1:]),
    "gather": (lambda t: ops.gather(t.x, [[1, 0], [2, 2]], 1), lambda v: v.x[:, [[1, 0], [2, 2]]]),
    "gather with zeros": (
        lambda t: ops.gather(t.x, [1, 9, -1], zero_OOR=True),
        lambda v: np.stack([v.x[1], 0 * v.x[0], 0 * v.x[0]]),
    ),
    "gather of the nearest": (
        lambda t: ops.gather(t.x, [1, 9, -1, -9]),
        lambda v: v.x[[1, 2, 2, 0]],
    ),
    "tied_gather of the nearest": (
        lambda t: ops.tied_gather(t.x, [7, 0], 1),
        lambda v: v.x[:, [3, 0]],
    ),
    "groupedgather of the nearest": (
        lambda t: ops.groupedgather(t.images, [[9, 0], [-9, 1]], 2, 2),
        lambda v: np.stack([v.images[0][:, [4, 0]], v.images[1][:, [0, 1]]]),
    ),
    "scatter": (lambda t: ops.scatter(t.x, INDEX, t.y[:2]), lambda v: put(v.x, INDEX, v.y[:2])),
    "scatter_reduce": (
        lambda t: ops.scatter_reduce(t.p[:2], INDEX, "sum", axis_size=3),
        lambda v: np.stack([np.where(i == INDEX, v.p[:2], 0).sum(0) for i in range(3)]),
    ),
    "scatter_reduce from values": (
        lambda t: ops.scatter_reduce(t.p[:2], INDEX, "max", t.x),
        lambda v: np.maximum(v.x, [np.where(i == INDEX, v.p[:2], -9).max(0) for i in range(3)]),
    ),
    "scatter_reduce where nothing is": (
        lambda t: ops.scatter_reduce(t.x[:2], INDEX, "min", axis_size=3),
        lambda v: np.stack([
            np.where((i == INDEX).any(0), np.where(i == INDEX, v.x[:2], 9).min(0), 0)
            for i in range(3)
        ]),
    ),
    "onehot": (
        lambda t: ops.onehot(t.labels, 4, [-1.0, 2.0], 0),
        lambda v: 3 * np.eye(4, dtype=np.float32)[:, v.labels] - 1,
    ),
    "dynamic_slice": (lambda t: ops.dynamic_slice(t.x, [1], [1], [2]), lambda v: v.x[:, 1:3]),
    "dynamic_update": (
        lambda t: ops.dynamic_update(t.x, [2, 1], t.y[:1, :2], [1, 0], [2, 1]),
        lambda v: changed(v.x, np.s_[1:2, 2:], v.y[:1, :2]),
    ),
    "matmul": (lambda t: ops.matmul(t.x, t.w), lambda v: v.x @ v.w),
    "matmul in another dtype": (
        lambda t: ops.matmul(t.x, t.w, output_type=popxl.float16),
        lambda v: (v.x @ v.w).astype(np.float16),
    ),
    "layer_norm": (
        lambda t: ops.layer_norm(t.x, t.scale, t.shift),
        lambda v: normed(v.x, -1) * v.scale + v.shift,
    ),
    "group_norm": (
        lambda t: ops.group_norm(t.images, t.scale, t.shift, 2),
        lambda v: grouped(v.images, 2) * channels(v.scale) + channels(v.shift),
    ),
    "batch_norm_inference": (
        lambda t: ops.batch_norm_inference(t.images, t.scale, t.shift, t.shift, abs(t.scale)),
        lambda v: batch_normed(v.images, *map(channels, (v.scale, v.shift))),
    ),
    "conv": (
        lambda t: ops.conv(t.images, t.filters, (2, 2), (1, 1, 1, 1), groups=2),
        lambda v: correlated(v.images, v.filters, 2, 1, 2),
    ),
    "conv, padding chosen": (
        lambda t: ops.conv(t.images, t.filters, groups=2, pad_type="same_upper"),
        lambda v: correlated(v.images, v.filters, 2, 1, 1),
    ),
    "max_pool": (lambda t: ops.max_pool(t.images, (2, 3)), lambda v: pooled(v.images, np.max)),
    "max_pool with padding chosen": (
        lambda t: ops.max_pool(t.images, (2, 3), (1, 2), auto_pad="same_upper"),
        lambda v: windows(v.images, (2, 3), (1, 2), ((0, 1), (0, 1)), np.nanmax),
    ),
    "average_pool with padding chosen": (
        lambda t: ops.average_pool(t.images, (2, 3), (1, 2), auto_pad="same_lower"),
        lambda v: windows(v.images, (2, 3), (1, 2), ((1, 0), (1, 0)), np.nanmean),
    ),
    "max_pool with steps in windows": (
        lambda t: ops.max_pool(t.images, (2, 2), None, (1, 0, 0, 1), None, (2, 3)),
        lambda v: windows(v.images, (2, 2), (1, 1), ((1, 0), (0, 1)), np.nanmax, (2, 3)),
    ),
    "average_pool": (
        lambda t: ops.average_pool(t.images, (2, 3)),
        lambda v: pooled(v.images, np.mean),
    ),
    "nll_loss": (
        lambda t: ops.nll_loss(ops.softmax(t.x, -1), t.labels),
        lambda v: nll(softmax(v.x), v.labels).mean(),
    ),
    "nll_loss of each": (
        lambda t: ops.nll_loss(t.x, t.labels, reduction="none", log_prob=True),
        lambda v: -v.x[np.arange(3), v.labels],
    ),
    "nll_loss without some": (
        lambda t: ops.nll_loss(t.p, t.labels, ignore_index=0),
        lambda v: nll(v.p, v.labels)[[0, 2]].mean(),
    ),
    "nll_loss_with_softmax_grad": (
        lambda t: ops.nll_loss_with_softmax_grad(t.p, t.labels)[0],
        lambda v: nll(v.p, v.labels).mean(),
    ),
    "its gradient": (
        lambda t: ops.nll_loss_with_softmax_grad(t.p, t.labels, 6)[1],
        lambda v: nll_grad(v.p, v.labels) * 2,
    ),
    "its gradient of a sum": (
        lambda t: ops.nll_loss_with_softmax_grad(t.p, t.labels, 6, reduction="sum")[1],
        lambda v: nll_grad(v.p, v.labels) * 6,
    ),
    "its gradient of each": (
        lambda t: ops.nll_loss_with_softmax_grad(t.p, t.labels, t.shift[:3], reduction="none")[1],
        lambda v: nll_grad(v.p, v.labels) * v.shift[:3, None],
    ),
    "its gradient without some": (
        lambda t: ops.nll_loss_with_softmax_grad(t.p, t.labels, 6, ignore_index=0)[1],
        lambda v: nll_grad(v.p, v.labels) * [[3], [0], [3]],
    ),
    "conv_transpose": (
        lambda t: ops.conv_transpose(t.images, t.laid, (2, 1), (1, 0, 0, 2), (1, 2), 2,
                                     output_padding=(1, 0)),
        lambda v: widened(laid_out(v.images, v.laid, (2, 1), (1, 2), 2))[:, :, 1:, :-2],
    ),
    "conv_transpose to a shape": (
        lambda t: ops.conv_transpose(t.images, t.laid, (2, 1), groups=2, output_shape=(10, 7)),
        lambda v: laid_out(v.images, v.laid, (2, 1), (1, 1), 2)[:, :, 1:, 1:],
    ),
    "conv_transpose to a shape of all axes": (
        lambda t: ops.conv_transpose(t.images, t.laid, (2, 1), groups=2,
                                     output_shape=(2, 6, 10, 7)),
        lambda v: laid_out(v.images, v.laid, (2, 1), (1, 1), 2)[:, :, 1:, 1:],
    ),
    "conv_transpose to the same": (
        lambda t: ops.conv_transpose(t.images, t.laid, (2, 1), groups=2, pad_type="same_lower"),
        lambda v: laid_out(v.images, v.laid, (2, 1), (1, 1), 2)[:, :, 1:, 1:-1],
    ),
    "tied_gather": (lambda t: ops.tied_gather(t.x, [2, 0]), lambda v: v.x[[2, 0]]),
    "groupedgather": (
        lambda t: ops.groupedgather(t.images, [[1, 4], [0, 2]], 2, 2),
        lambda v: np.stack([v.images[g][:, index] for g, index in enumerate([[1, 4], [0, 2]])]),
    ),
    "groupedgather of one": (
        lambda t: ops.groupedgather(t.x, [1, 3, 3], 1), lambda v: v.x[:, [1, 3, 3]],
    ),
    "groupedgather out of range": (
        lambda t: ops.groupedgather(t.images, [[1, 9], [-1, 2]], 1, 2, zero_OOR=True),
        lambda v: np.stack([[v.images[0, 1], 0 * v.images[0, 1]],
                            [0 * v.images[0, 1], v.images[1, 2]]]),
    ),
    "histogram": (
        lambda t: ops.histogram(t.x, [-0.5, 0.0, 1.0]),
        lambda v: np.histogram(v.x, [-np.inf, -0.5, 0, 1, np.inf])[0].astype(np.uint32),
    ),
    "histogram of sizes": (
        lambda t: ops.histogram(t.n, [3, 5], True), lambda v: np.array([2, 2, 2], np.uint32),
    ),
    "interpolate": (
        lambda t: ops.interpolate(t.x, (1.0, 2.5)),
        lambda v: v.x[:, [0, 0, 0, 1, 1, 2, 2, 2, 3, 3]],
    ),
    "interpolate between": (
        lambda t: ops.interpolate(t.x, (1.0, 2.0), "linear", coordinate_transformation_mode=
                                  "asymmetric"),
        lambda v: np.stack([v.x, (v.x + v.x[:, [1, 2, 3, 3]]) / 2], -1).reshape(3, 8),
    ),
    "interpolate below 1": (
        lambda t: ops.interpolate(t.x, (0.5, 0.75), nearest_mode="floor"),
        lambda v: v.x[:1, [0, 1, 2]],
    ),
    "lamb_square": (lambda t: ops.lamb_square(t.x), lambda v: (v.x**2).sum()),
    "lamb_square of integers": (
        lambda t: ops.lamb_square(t.n), lambda v: np.float32((v.n**2).sum()),
    ),
    "subsample the first axis": (lambda t: ops.subsample(t.images, [2]), lambda v: v.images[::2]),
    "interpolate nothing": (lambda t: ops.interpolate(t.images), lambda v: v.images),
    "roi_align": (
        lambda t: ops.roi_align(t.images, [[0.0, 0.0, 4.0, 4.0]], [1], (1, 2), 1.0, 2),
        lambda v: v.images[1:, :, 1:4:2].mean(2, keepdims=True) @ SHARES.T,
    ),
    "init": (lambda t: ops.init((2, 3), popxl.int8), lambda v: np.zeros((2, 3), np.int8)),
    "arange": (lambda t: ops.arange(1, 8, 2, popxl.int32), lambda v: np.arange(1, 8, 2, np.int32)),
    "adam_updater": (
        lambda t: var_updates.adam_updater(t.x, t.p, epsilon=0.5),
        lambda v: v.x / (np.sqrt(v.p) + 0.5),
    ),
    "adam_updater without decay": (
        lambda t: var_updates.adam_updater(t.x, t.p, None, None, 0.0, epsilon=0.5),
        lambda v: v.x / (np.sqrt(v.p) + 0.5),
    ),
    "lamb_updater": (
        lambda t: var_updates.lamb_updater(
            t.x, t.p, t.y, popxl.variable(2.0), 0.1, 0.9, 0.99, 0.5
        ),
        lambda v: v.x / (1 - 0.9**3) / (np.sqrt(v.p / (1 - 0.99**3)) + 0.5) + 0.1 * v.y,
    ),
    "adamax_updater": (
        lambda t: var_updates.adamax_updater(t.x, t.p, t.y, popxl.variable(2.0), 0.1, 0.9, 0.5),
        lambda v: v.x / (1 - 0.9**3) / (v.p + 0.5) + 0.1 * v.y,
    ),
    "adam_updater with a step": (
        lambda t: var_updates.adam_updater(
            t.x, t.p, t.y, popxl.variable(2.0), 0.1, 0.9, 0.99, 0.5
        ),
        lambda v: v.x / (1 - 0.9**3) / (np.sqrt(v.p / (1 - 0.99**3)) + 0.5) + 0.1 * v.y,
    ),
}  # fmt: skip


def test_ops_compute_what_numpy_does(backend: str) -> None:
    def build(ir: popxl.Ir) -> Any:
        tensors = SimpleNamespace(
            **{name: popxl.variable(v, name=name) for name, v in DATA.items()}
        )
        return [build(tensors) for build, _ in CASES.values()]

    found = results(backend, build, in_sequence=True)
    for name, value, (_, function) in zip(CASES, found, CASES.values(), strict=True):
        wanted = np.asarray(function(VALUES))
        assert value.shape == wanted.shape, name
        assert value.dtype.kind == wanted.dtype.kind or wanted.dtype == np.float64, name
        close = 2e-3 if wanted.dtype == np.float16 else 2e-5
        np.testing.assert_allclose(value, wanted, rtol=close, atol=close, err_msg=name)


def test_every_op_has_a_case() -> None:
    elsewhere = {
        *("call", "call_with_info", "repeat", "repeat_with_info", "CallSiteInfo", "RepeatInfo"),
        *("conditional", "conditional_with_info", "ConditionalInfo", "collectives", "getitem"),
        *("host_load", "host_store", "print_tensor", "dropout", "random_normal", "random_uniform"),
        *("shaped_dropout", "var_updates", "PadType"),
        *("split_random_seed", "dynamic_update_", *var_updates.__all__),
    }
    in_place = {f"{name.split()[0]}_" for name in CASES}
    known = {name.split()[0] for name in CASES} | in_place | elsewhere
    assert [name for name in ops.__all__ if name not in known] == []


def test_gradients_of_what_the_face_composes(backend: str) -> None:
    labels = DATA["labels"]

    def graph_of(x: popxl.Tensor, p: popxl.Tensor, w: popxl.Tensor) -> Any:
        def total(*parts: popxl.Tensor) -> popxl.Tensor:
            made = ops.sum(parts[0])
            for part in parts[1:]:
                made = made + ops.sum(part)
            return made

        return total(
            ops.nll_loss(ops.softmax(x, -1), popxl.constant(labels)),
            ops.gelu(x @ w),
            x[x > 0.0] * 2,
            ops.gather(w, [1, 9, 1], zero_OOR=True) * 3,
            ops.scatter(x, INDEX, p[:2] * p[:2]),
            ops.slice_(ops.transpose_(x * x), step=-1) * p.T,
            ops.concat_([x * p, ops.sin(x)]),
            ops.batch_norm_inference(x * p, p[0], p[1], x[0], p[2]),
            ops.scaled_add(x * x, p, 2.0, 3.0),
            ops.l2(p) * ops.logsum(p),
        )

    def function(x: Any, p: Any, w: Any) -> Any:
        gathered = np.stack([w[1], 0 * w[0], w[1]]) * 3
        parts = [
            nll(softmax(x), labels).mean(),
            gelu(x @ w),
            np.where(x > 0, x, 0) * 2,
            gathered,
            put(x, INDEX, p[:2] ** 2),
            (x**2).T[::-1] * p.T,
            x * p,
            np.sin(x),
            (x * p - x[0]) / np.sqrt(p[2] + 1e-5) * p[0] + p[1],
            2 * x * x + 3 * p,
            np.sqrt((p**2).sum()) * np.log(p.sum()),
        ]
        return sum(part.sum() for part in parts)

    given = [DATA["x"], DATA["p"], DATA["w"]]
    (value,), gradients = called(backend, graph_of, given)
    wide = [each.astype(np.float64) for each in given]
    np.testing.assert_allclose(value, function(*wide), rtol=1e-4)
    for gradient, slope in zip(gradients, differences(function, wide), strict=True):
        np.testing.assert_allclose(gradient, slope, rtol=2e-3, atol=2e-3)


def test_random_numbers_come_from_the_seed(backend: str) -> None:
    shape = (100, 50)

    def build(ir: popxl.Ir) -> Any:
        seed = popxl.variable(np.array([3, 4], np.uint32))
        other = popxl.constant(np.array([3, 5], np.uint32))
        first, second = ops.split_random_seed(seed)
        ones = popxl.constant(np.ones(shape, np.float32))
        return [
            ops.random_uniform(seed, shape, -1, 3),
            ops.random_uniform(seed, shape, -1, 3),
            ops.random_uniform(other, shape, -1, 3),
            ops.random_uniform(first, shape, -1, 3),
            ops.random_uniform(second, shape, -1, 3),
            ops.random_normal(seed, shape, 2.0, 0.5),
            ops.random_normal(seed, shape, dtype=popxl.float16),
            ops.dropout(ones, seed, 0.25),
            ops.shaped_dropout(ones, seed, (50,), 0.25),
        ]

    found = results(backend, build)
    uniform, again, *others = found[:5]
    np.testing.assert_array_equal(uniform, again)
    assert all((uniform != other).mean() > 0.99 for other in others)
    assert -1 <= uniform.min() < -0.99 < 2.99 < uniform.max() < 3
    assert abs(uniform.mean() - 1) < 0.05
    assert abs(found[5].mean() - 2) < 0.03
    assert abs(found[5].std() - 0.5) < 0.03
    assert found[6].dtype == np.float16
    assert set(np.unique(found[7].round(4))) == {0, np.float32(1.3333)}
    assert abs((found[7] == 0).mean() - 0.25) < 0.03
    assert set(np.unique(found[8].round(4))) == {0, np.float32(1.3333)}
    assert (found[8] == found[8][0]).all()


def test_dropout_hides_the_same_elements_in_its_gradient(backend: str) -> None:
    def build(ir: popxl.Ir) -> Any:
        x = popxl.variable(np.ones((8, 8), np.float32))
        seed = popxl.constant(np.array([1, 2], np.uint32))
        graph = ir.create_graph(lambda x, seed: ops.dropout(x, seed, 0.5), x, seed)
        forward = ops.call_with_info(graph, x, seed)
        info = popxl.transforms.autodiff(graph)
        one = popxl.constant(np.ones((8, 8), np.float32))
        return forward.outputs[0], *ops.call(info.graph, one, inputs_dict=info.inputs_dict(forward))

    value, gradient = results(backend, build)
    np.testing.assert_array_equal(value, gradient)
    assert set(np.unique(value)) == {0, 2}


def test_print_tensor_prints_in_each_run(capfd: pytest.CaptureFixture[str], backend: str) -> None:
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable(7.0, name="x")
        graph = ir.create_graph(lambda x: ops.print_tensor(x * 2, "inside"), x)
        rounds = ir.create_graph(lambda x: ops.print_tensor(x * 3, "round") + 1, x)
        ops.call(graph, x)
        ops.repeat(rounds, 1, x)
        ops.print_tensor(x)
        (stream,) = stored([ops.print_tensor(x + 1, "more")])
    with popxl.Session(ir, backend) as session:
        assert session.run()[stream] == 8
        session.run()
    printed = capfd.readouterr().err
    for text in ("print_x 7.0", "more 8.0", "inside 14.0", "round 21.0"):
        assert printed.count(text) == 2


def test_only_the_graph_that_is_chosen_prints(capfd: pytest.CaptureFixture[str]) -> None:
    ir = popxl.Ir()
    with ir.main_graph:
        x, flag = popxl.variable(7.0), popxl.variable(True)
        one = ir.create_graph(lambda x: ops.print_tensor(x, "one"), x)
        other = ir.create_graph(lambda x: ops.print_tensor(x, "other"), x)
        ops.conditional(flag, one, other, [x], [x])
    with popxl.Session(ir) as session:
        session.run()
        session.write_variable_data(flag, False)
        session.run()
    printed = capfd.readouterr()
    assert (printed.out, printed.err) == ("", "one 7.0\nother 7.0\n")


@pytest.mark.parametrize("recompute", [False, True])
def test_autodiff_prints_nothing_again(capfd: pytest.CaptureFixture[str], recompute: bool) -> None:
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable([1.0, 2.0])
        inner = ir.create_graph(lambda x: ops.print_tensor(x * 2, "seen") ** 2.0, x)
        graph = ir.create_graph(lambda x: ops.sin(ops.call(inner, x)[0]), x)
        forward = ops.call_with_info(graph, x)
        info = transforms.autodiff(graph, recompute=recompute)
        seed = popxl.constant(np.ones(2, np.float32))
        ops.call(info.graph, seed, inputs_dict=info.inputs_dict(forward))
        (stream,) = stored(forward.outputs[:1])
    with popxl.Session(ir) as session:
        session.run()[stream]
    assert capfd.readouterr().err.count("seen") == 1


@pytest.mark.parametrize("of_self", [True, False])
def test_print_tensor_prints_gradients(capfd: pytest.CaptureFixture[str], of_self: bool) -> None:
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable(3.0)
        graph = ir.create_graph(
            lambda x: ops.print_tensor(x * x, "square", of_self, print_gradient=True) * 5, x
        )
        forward = ops.call_with_info(graph, x)
        info = transforms.autodiff(graph)
        (gradient,) = ops.call(info.graph, 1.0, inputs_dict=info.inputs_dict(forward))
        (stream,) = stored([gradient])
    with popxl.Session(ir) as session:
        assert session.run()[stream] == 30
    printed = capfd.readouterr().err.splitlines()
    assert printed == ["square 9.0"] * of_self + ["square_gradient 5.0"]
