"""Images whose channels are in blocks, as onnxruntime optimizes for one processor.

Such a tensor is here what it is without the blocks: (batch, channels, height, width), with the
channels padded to whole blocks. Only filters have another order in the file, so only they are put
back. The size of a block is not in the file; onnxruntime takes that of the processor it runs on.
"""

from __future__ import annotations

from math import prod
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import onnx

import weft
from weft.ir.dtypes import Array
from weft.support.processor import processor_features
from weft_onnx.lowering.convolution import convolved, window
from weft_onnx.lowering.fused import CONVOLUTION, activated_sum
from weft_onnx.nodes import Node, lowers
from weft_onnx.tracing import Body
from weft_onnx.values import Tensor, shape_of

NCHWC = "com.microsoft.nchwc"
POOL = "auto_pad ceil_mode dilations kernel_shape pads strides"

_blocks: WeakKeyDictionary[Body, int] = WeakKeyDictionary()


def block_of(node: Node) -> int:
    """Return the number of channels in a block in the graph of a node."""
    body = node.frame.body
    found = _blocks.get(body)
    if found is None:
        found = _blocks[body] = _shown_by(body) or _of_processor()
    return found


def _of_processor() -> int:
    """Return the block that onnxruntime takes on this machine: as many as a register holds."""
    return 16 if processor_features() & {"avx512f", "aarch64", "arm64"} else 8


def _shown_by(body: Body) -> int | None:
    """Return the block that the shapes of filters show, or None if they fit either."""
    for proto in body.nodes:
        given = body.constants.get(proto.input[1]) if _is_convolution(proto) else None
        if given is None:
            continue
        filters, channels = shape_of(given)[:2]
        if filters % 16 or (channels > 16 and channels % 16):
            return 8
        if 8 < channels < 16:
            return 16
    return None


def _is_convolution(proto: onnx.NodeProto) -> bool:
    return proto.domain == NCHWC and proto.op_type == "Conv"


def in_order(filters: Array, block: int, is_first: bool) -> Array:
    """Return filters in the order (filters, channels, height, width).

    In the file, filters are in blocks, whose elements come last. Channels are in blocks too, before
    these, except where there is one for each filter, or where `is_first` says that the operand has
    too few for a block.
    """
    count, channels, *lengths = filters.shape
    if count % block:
        raise ValueError(f"{count} filters are not a multiple of a block of {block} channels")
    if is_first or channels == 1:
        given = filters.reshape(count // block, channels, *lengths, block)
        return np.moveaxis(given, -1, 1).reshape(filters.shape)
    given = filters.reshape(count // block, channels // block, *lengths, block, block)
    order = (0, given.ndim - 1, 1, given.ndim - 2, *range(2, given.ndim - 2))
    return given.transpose(order).reshape(filters.shape)


@lowers("Conv", domain=NCHWC, attributes=f"activation activation_params {CONVOLUTION}")
def conv(node: Node) -> Tensor:
    """Convolve, add a tensor, and apply an activation."""
    block = block_of(node)
    is_first = node.shape(1)[1] < block
    (filters,) = node.host(lambda w: [in_order(w, block, is_first)], node.raw(1))
    y = convolved(node, node[0], node.op(filters), node.get(2))
    return activated_sum(node, y, node.get(3))


@lowers("MaxPool", domain=NCHWC, attributes=f"storage_order {POOL}")
def max_pool(node: Node) -> Tensor:
    """Return the maximum of each window."""
    return weft.max_pool(node[0], **window(node, node.shape()[2:]))


@lowers("AveragePool", domain=NCHWC, attributes=f"count_include_pad {POOL}")
def average_pool(node: Node) -> Tensor:
    """Return the mean of each window."""
    counted = node.flag("count_include_pad")
    return weft.avg_pool(node[0], count_include_pad=counted, **window(node, node.shape()[2:]))


@lowers("GlobalAveragePool", domain=NCHWC, attributes="")
def global_average_pool(node: Node) -> Tensor:
    """Return the mean over the spatial axes."""
    return weft.global_avg_pool(node[0])


@lowers("GlobalMaxPool", domain=NCHWC, attributes="")
def global_max_pool(node: Node) -> Tensor:
    """Return the maximum over the spatial axes."""
    return weft.global_max_pool(node[0])


@lowers("ReorderInput", domain=NCHWC, attributes="channels_last")
def reorder_input(node: Node) -> Tensor:
    """Pad channels to whole blocks."""
    x = node[0]
    x = weft.moveaxis(x, x.rank - 1, 1) if node.flag("channels_last") else x
    missing = -x.axes.shape[1] % block_of(node)
    paddings = [(0, 0), (0, missing), *[(0, 0)] * (x.rank - 2)]
    return weft.pad(x, paddings) if missing else x


@lowers("ReorderOutput", domain=NCHWC, attributes="channels channels_last")
def reorder_output(node: Node) -> Tensor:
    """Cut channels off that fill the last block."""
    x, channels = node[0], node.required("channels")
    if not 0 <= x.axes.shape[1] - channels < block_of(node):
        raise node.error(
            f"{channels} channels do not fill {x.axes.shape[1]} in blocks of {block_of(node)}: the "
            "model was optimized for another processor"
        )
    x = x[:, :channels]
    return weft.moveaxis(x, 1, x.rank - 1) if node.flag("channels_last") else x


@lowers("Upsample", domain=NCHWC, attributes="coordinate_transformation_mode mode scales")
def upsample(node: Node) -> Any:
    """Enlarge by whole numbers."""
    x, scales = node[0], list(node.attr("scales") or [1, 1, 1, 1])
    if prod(scales) == 1:
        return x
    return weft.resize(
        x, scales=[float(each) for each in scales], mode=node.choice("mode", default="nearest"),
        coordinates=node.choice("coordinate_transformation_mode", default="asymmetric"),
        axes=tuple(range(x.rank)), rounding="floor",
    )  # fmt: skip
