"""Convolutions and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

import weft
from weft_onnx.nodes import Node, cast, lowers
from weft_onnx.values import Tensor

Pairs = list[tuple[int, int]]


def paddings(node: Node, kernel: Sequence[int], lengths: Sequence[int]) -> Pairs:
    """Return the padding of each spatial axis from `pads` or `auto_pad`."""
    rank = len(kernel)
    strides, dilations = per_axis(node, "strides", rank), per_axis(node, "dilations", rank)
    auto = node.choice("auto_pad", default="NOTSET")
    if auto in ("NOTSET", "VALID"):
        pads = [0] * (2 * rank) if auto == "VALID" else per_axis(node, "pads", 2 * rank, 0)
        return [(pads[at], pads[at + rank]) for at in range(rank)]
    found = []
    for k, n, step, gap in zip(kernel, lengths, strides, dilations, strict=True):
        total = max((-(-n // step) - 1) * step + (k - 1) * gap + 1 - n, 0)
        small = total // 2
        found.append((small, total - small) if auto == "SAME_UPPER" else (total - small, small))
    return found


def per_axis(node: Node, name: str, count: int, default: int = 1) -> list[int]:
    """Return an attribute with a number for each axis, or side of one."""
    found = list(node.attr(name) or [default] * count)
    if len(found) != count:
        raise node.error(f"{name} has {len(found)} numbers, of {count}")
    return found


def kernel_of(node: Node, w: Tensor) -> list[int]:
    """Return the spatial lengths of filters, which an attribute may repeat."""
    found = list(w.axes.shape[2:])
    given = node.attr("kernel_shape")
    if given and list(given) != found:
        raise node.error(f"kernel_shape {list(given)} contradicts filters of {found}")
    return found


@lowers("Conv")
def conv(node: Node) -> Tensor:
    """Convolve."""
    return convolved(node, node[0], node[1], node.get(2))


def convolved(node: Node, x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
    """Return a convolution with a node's attributes."""
    kernel, lengths = kernel_of(node, w), x.axes.shape[2:]
    rank = len(kernel)
    return weft.conv(
        x, w, stride=tuple(per_axis(node, "strides", rank)),
        padding=paddings(node, kernel, lengths), dilation=tuple(per_axis(node, "dilations", rank)),
        groups=node.attr("group", 1), bias=bias,
    )  # fmt: skip


@lowers("ConvInteger")
def conv_integer(node: Node) -> Tensor:
    """Convolve 8-bit integers with zero points, as int32."""
    x, w = cast(node[0], "int32"), cast(node[1], "int32")
    x = x - cast(node[2], "int32") if node.has(2) else x
    w = w - _per_filter(cast(node[3], "int32"), w.rank) if node.has(3) else w
    return convolved(node, x, w, None)


def _per_filter(x: Tensor, rank: int) -> Tensor:
    return weft.reshape(x, (-1, *[1] * (rank - 1))) if x.rank == 1 and x.axes.size > 1 else x


@lowers("ConvTranspose")
def conv_transpose(node: Node) -> Tensor:
    """Convolve transposed; `output_shape` or `auto_pad` may give the padding."""
    x, w = node[0], node[1]
    kernel = kernel_of(node, w)
    rank, lengths = len(kernel), x.axes.shape[2:]
    strides, dilations = per_axis(node, "strides", rank), per_axis(node, "dilations", rank)
    extra = per_axis(node, "output_padding", rank, 0)
    extents = [(k - 1) * gap + 1 for k, gap in zip(kernel, dilations, strict=True)]
    whole = [step * (n - 1) + extra_n + extent for step, n, extra_n, extent in
             zip(strides, lengths, extra, extents, strict=True)]  # fmt: skip
    auto, wanted = node.choice("auto_pad", default="NOTSET"), node.attr("output_shape")
    if wanted is not None or auto.startswith("SAME"):
        shape = list(wanted)[-rank:] if wanted is not None else [
            n * step for n, step in zip(lengths, strides, strict=True)
        ]  # fmt: skip
        if any(n < 1 for n in shape):
            raise node.error(f"output_shape {list(shape)} has lengths below 1")
        pads = []
        for full, n in zip(whole, shape, strict=True):
            total = full - n
            small = total // 2
            pads.append((small, total - small) if auto == "SAME_UPPER" else (total - small, small))
    else:
        flat = [0] * (2 * rank) if auto == "VALID" else per_axis(node, "pads", 2 * rank, 0)
        pads = [(flat[at], flat[at + rank]) for at in range(rank)]
    found = weft.conv_transpose(
        x, w, stride=tuple(strides), padding=0, output_padding=0, dilation=tuple(dilations),
        groups=node.attr("group", 1), bias=None,
    )  # fmt: skip
    return _with_bias(_cropped(found, pads, whole), node.get(2))


def _cropped(x: Tensor, pads: Pairs, whole: Sequence[int]) -> Tensor:
    """Return the part of a whole transposed convolution that padding leaves."""
    grown = [n - have for n, have in zip(whole, x.axes.shape[2:], strict=True)]
    before = [(0, 0), (0, 0)] + [
        (max(-b, 0), max(g - a, 0)) for (b, a), g in zip(pads, grown, strict=True)
    ]
    if any(n for pair in before for n in pair):
        x = weft.pad(x, before)
    slices = [slice(None), slice(None)]
    for (b, a), n in zip(pads, whole, strict=True):
        first = max(b, 0)
        slices.append(slice(first, first + n - b - a))
    return weft.tensor_slice(x, tuple(slices))


def _with_bias(x: Tensor, bias: Tensor | None) -> Tensor:
    if bias is None:
        return x
    return x + weft.reshape(bias, (-1, *[1] * (x.rank - 2)))


def window(node: Node, lengths: Sequence[int]) -> dict[str, Any]:
    """Return the options of pooling over spatial axes of these lengths."""
    kernel = list(node.required("kernel_shape"))
    return {
        "kernel": tuple(kernel),
        "stride": tuple(per_axis(node, "strides", len(kernel))),
        "padding": paddings(node, kernel, lengths),
        "dilation": tuple(per_axis(node, "dilations", len(kernel))),
        "ceil_mode": node.flag("ceil_mode"),
    }


@lowers("MaxPool")
def max_pool(node: Node) -> Any:
    """Return the maximum of each window, and its index in the flat operand."""
    x, options = node[0], window(node, node.shape()[2:])
    kind = x.dtype
    x = cast(x, "int32") if kind.itemsize == 1 else x
    if not node.wants(1):
        return cast(weft.max_pool(x, **options), kind)
    values, indices = weft.max_pool_with_indices(x, **options)
    batch, channels, *lengths = x.axes.shape
    plane = prod(lengths)
    found = cast(indices, "int64")
    if node.choice("storage_order", default=0):
        found = _column_major(found, lengths)
    offsets = np.arange(batch * channels, dtype=np.int64).reshape(batch, channels) * plane
    offsets = offsets.reshape(batch, channels, *[1] * len(lengths))
    return cast(values, kind), found + weft.constant(offsets)


def _column_major(index: Tensor, lengths: Sequence[int]) -> Tensor:
    """Return flat indices in the order in which the first axis changes fastest."""
    found, stride = weft.zeros_like(index), prod(lengths)
    for n in reversed(lengths):
        stride //= n
        found = found + weft.mod(index, n) * stride
        index = weft.floordivide(index, n)
    return found


@lowers("AveragePool")
def average_pool(node: Node) -> Tensor:
    """Return the mean of each window."""
    counts_padding = node.flag("count_include_pad")
    return weft.avg_pool(
        node[0], count_include_pad=counts_padding, **window(node, node.shape()[2:])
    )


@lowers("LpPool")
def lp_pool(node: Node) -> Tensor:
    """Return the p-norm of each window."""
    return weft.lp_pool(node[0], node.attr("p", 2), **window(node, node.shape()[2:]))


@lowers("GlobalAveragePool")
def global_average_pool(node: Node) -> Tensor:
    """Return the mean over the spatial axes."""
    return weft.global_avg_pool(node[0])


@lowers("GlobalMaxPool")
def global_max_pool(node: Node) -> Tensor:
    """Return the maximum over the spatial axes."""
    return weft.global_max_pool(node[0])


@lowers("GlobalLpPool")
def global_lp_pool(node: Node) -> Tensor:
    """Return the p-norm over the spatial axes."""
    x, p = node[0], node.attr("p", 2)
    if p < 1:
        raise node.error(f"p is {p}: there are norms from 1 on")
    axes = tuple(range(2, x.rank))
    return weft.power(weft.sum(weft.power(weft.absolute(x), p), axis=axes, keepdims=True), 1 / p)


@lowers("MaxUnpool")
def max_unpool(node: Node) -> Tensor:
    """Put maxima back at their flat indices."""
    x, indices = node[0], node[1]
    kernel = list(node.required("kernel_shape"))
    strides = per_axis(node, "strides", len(kernel))
    pads = per_axis(node, "pads", 2 * len(kernel), 0)
    if node.has(2):
        shape = tuple(node.ints(2))
    else:
        rank = len(kernel)
        shape = (*x.axes.shape[:2], *(
            (n - 1) * step - pads[at] - pads[at + rank] + k
            for at, (n, step, k) in enumerate(zip(x.axes.shape[2:], strides, kernel, strict=True))
        ))  # fmt: skip
    inferred = (*x.axes.shape[:2], *(
        (n - 1) * step + k - pads[at] - pads[at + len(kernel)]
        for at, (n, step, k) in enumerate(zip(x.axes.shape[2:], strides, kernel, strict=True))
    ))  # fmt: skip
    flat = weft.zeros((prod(inferred),), x.dtype.name)
    found = weft.scatter_along_axis(
        flat, weft.reshape(cast(indices, "int64"), (-1,)), weft.reshape(x, (-1,)), 0
    )
    found = weft.reshape(found, inferred)
    if shape == inferred:
        return found
    grown = [(0, want - have) for want, have in zip(shape, inferred, strict=True)]
    return weft.pad(found, grown)


@lowers("Col2Im")
def col2im(node: Node) -> Tensor:
    """Sum columns of windows into images."""
    lengths, kernel = node.ints(1), node.ints(2)
    rank = len(kernel)
    pads = per_axis(node, "pads", 2 * rank, 0)
    return weft.fold(
        node[0], tuple(lengths), tuple(kernel), stride=tuple(per_axis(node, "strides", rank)),
        padding=[(pads[at], pads[at + rank]) for at in range(rank)],
        dilation=tuple(per_axis(node, "dilations", rank)),
    )  # fmt: skip
