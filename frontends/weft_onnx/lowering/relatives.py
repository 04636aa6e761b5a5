"""Ops of com.microsoft that have a relative in the default domain."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from weft.ir.dtypes import Array
from weft_onnx.lowering.convolution import convolved
from weft_onnx.lowering.creation import numbers_between
from weft_onnx.lowering.fused import CONVOLUTION, activated_sum
from weft_onnx.lowering.indexing import gather_nd
from weft_onnx.lowering.movement import padded, trilu
from weft_onnx.lowering.resampling import grid_sample
from weft_onnx.nodes import MICROSOFT, Node, lowers
from weft_onnx.values import Tensor

lowers("GatherND", domain=MICROSOFT, attributes="")(gather_nd)
lowers("GridSample", domain=MICROSOFT, attributes="align_corners mode padding_mode")(grid_sample)
lowers("Trilu", domain=MICROSOFT, attributes="upper")(trilu)


@lowers("Pad", domain=MICROSOFT, attributes="mode")
def pad(node: Node) -> Tensor:
    """Pad; a negative number of elements crops."""
    value = node.array(2).reshape(-1)[0].item() if node.has(2) else 0
    return padded(node, node[0], value)


@lowers("Range", domain=MICROSOFT, attributes="")
def range_rule(node: Node) -> Any:
    """Return evenly spaced numbers, by default with the step 1."""
    start, limit = (node.array(n).reshape(-1)[0] for n in (0, 1))
    step = node.array(2).reshape(-1)[0] if node.has(2) else 1
    return numbers_between(node, start, limit, step)


@lowers("ExpandDims", domain=MICROSOFT, attributes="")
def expand_dims(node: Node) -> Tensor:
    """Insert an axis of length 1."""
    return weft.unsqueeze(node[0], node.axis(node.ints(1)[0], node.rank() + 1))


@lowers("Unique", domain=MICROSOFT, attributes="")
def unique(node: Node) -> Any:
    """Return distinct elements as they first occur, the place of each element, and counts."""

    def found(x: Array) -> list[Array]:
        _, first, inverse, counts = np.unique(
            x, return_index=True, return_inverse=True, return_counts=True
        )
        order = np.argsort(first)
        places = np.argsort(order)[inverse.reshape(-1)]
        return [x[first[order]], places.astype(np.int64), counts[order].astype(np.int64)]

    return tuple(node.host(found, node.raw(0)))


@lowers("CDist", domain=MICROSOFT, attributes="metric")
def pairwise_distances(node: Node) -> Tensor:
    """Return the distance, or its square, of each row of one matrix and each row of another."""
    is_root = node.choice("metric", {"sqeuclidean": False, "euclidean": True}, "sqeuclidean")
    difference = weft.unsqueeze(node[0], 1) - weft.unsqueeze(node[1], 0)
    found = weft.sum(difference * difference, axis=2)
    return weft.sqrt(found) if is_root else found


@lowers("NhwcConv", domain=MICROSOFT, attributes=CONVOLUTION)
@lowers("NhwcFusedConv", domain=MICROSOFT, attributes=f"activation activation_params {CONVOLUTION}")
def nhwc_conv(node: Node) -> Tensor:
    """Convolve images whose channels are last, add a tensor, and apply an activation."""
    x = weft.moveaxis(node[0], node.rank() - 1, 1)
    y = convolved(node, x, node[1], node.get(2))
    return activated_sum(node, weft.moveaxis(y, 1, y.rank - 1), node.get(3))
