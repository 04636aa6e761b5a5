"""Gathering, scattering and slices."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from weft_onnx.nodes import Node, cast, lowers, numpy_dtype
from weft_onnx.values import Tensor, is_for_device


@lowers("Slice")
def slice_rule(node: Node) -> Any:
    """Slice along axes; bounds are attributes before opset 10."""
    if node.version < 10:
        starts, ends = node.required("starts"), node.required("ends")
        axes, steps = node.attr("axes"), None
    else:
        starts, ends = node.ints(1), node.ints(2)
        axes = node.ints(3) if node.has(3) else None
        steps = node.ints(4) if node.has(4) else None
    axes = node.axes(range(len(starts)) if axes is None else axes)
    chosen = [slice(None)] * node.rank()
    for start, end, step, axis in zip(starts, ends, steps or [1] * len(starts), axes, strict=True):
        chosen[axis] = _bounds(int(start), int(end), int(step), node.shape()[axis])
    if not is_for_device(node.dtype()):
        return node.host(lambda x: [x[tuple(chosen)]], node.raw(0))[0]
    return weft.tensor_slice(node[0], tuple(chosen))


def _bounds(start: int, end: int, step: int, length: int) -> slice:
    if step > 0:
        return slice(start, end, step)
    first, last, _ = slice(start, max(end, -length - 1) if end < 0 else end, step).indices(length)
    return slice(first, None if last < 0 else last, step)


@lowers("Gather")
def gather(node: Node) -> Any:
    """Take elements at indices along an axis."""
    axis = node.axis(node.attr("axis", 0))
    if not is_for_device(node.dtype()):
        return node.host(lambda x, i: [np.take(x, i, axis)], node.raw(0), node.raw(1))[0]
    return weft.take(node[0], node[1], axis)


@lowers("GatherElements")
def gather_elements(node: Node) -> Tensor:
    """Take an element for each index, along an axis."""
    axis = node.axis(node.attr("axis", 0))
    return weft.take_along_axis(weft.tensor_slice(node[0], _reach(node, axis)), node[1], axis)


def _reach(node: Node, axis: int) -> tuple[slice, ...]:
    """Return the part of an operand that indices reach, which may be shorter than it elsewhere."""
    lengths, counts = node.shape(0), node.shape(1)
    fits = len(lengths) == len(counts) and all(
        have >= count or at == axis
        for at, (have, count) in enumerate(zip(lengths, counts, strict=True))
    )
    if not fits:
        raise node.error(
            f"indices of the shape {list(counts)} do not fit an operand of the shape "
            f"{list(lengths)} along axis {axis}"
        )
    return tuple(slice(None) if at == axis else slice(0, n) for at, n in enumerate(counts))


@lowers("GatherND")
def gather_nd(node: Node) -> Tensor:
    """Take elements or slices at index rows."""
    return weft.gather_nd(node[0], node[1], node.attr("batch_dims", 0))


REDUCTIONS = {"none": "set", "add": "add", "mul": "mul", "max": "max", "min": "min"}
"""What weft calls the ways in which updates are combined."""


@lowers("Scatter", "ScatterElements")
def scatter_elements(node: Node) -> Tensor:
    """Put an update for each index, along an axis."""
    how = node.choice("reduction", REDUCTIONS, "none")
    axis = node.axis(node.attr("axis", 0))
    if node.shape(1) != node.shape(2):
        raise node.error(
            f"updates of the shape {list(node.shape(2))} do not fit indices of the shape "
            f"{list(node.shape(1))}"
        )
    x, reach = node[0], _reach(node, axis)
    part = weft.tensor_slice(x, reach)
    found = weft.scatter_along_axis(part, node[1], node[2], axis, reduction=how)
    return found if part.axes.shape == x.axes.shape else weft.update_slice(x, reach, found)


@lowers("ScatterND")
def scatter_nd(node: Node) -> Tensor:
    """Put updates at index rows."""
    how = node.choice("reduction", REDUCTIONS, "none")
    return weft.scatter_nd(node[0], node[1], node[2], reduction=how)


@lowers("TensorScatter")
def tensor_scatter(node: Node) -> Tensor:
    """Write new slices into a cache, at a position for each sample."""
    x, update = node[0], node[1]
    axis = node.axis(node.attr("axis", -2))
    length, count = x.axes.shape[axis], update.axes.shape[axis]
    batch = x.axes.shape[0]
    first = node[2] if node.has(2) else weft.constant(np.zeros(batch, np.int64))
    steps = weft.constant(np.arange(count, dtype=np.int64))
    places = weft.reshape(cast(first, "int64"), (batch, 1)) + weft.reshape(steps, (1, count))
    if node.choice("mode", {"linear": False, "circular": True}):
        places = weft.mod(places, length)
    shape = [batch, *[1] * (x.rank - 1)]
    shape[axis] = count
    where = weft.broadcast(weft.reshape(places, tuple(shape)), update.axes.shape)
    return weft.scatter_along_axis(x, where, update, axis)


@lowers("OneHot")
def one_hot(node: Node) -> Tensor:
    """Encode integers along a new axis; those out of range have no element that is on."""
    depth = int(node.array(1).reshape(-1)[0])
    values = node[2]
    indices = node[0]
    rank = indices.rank + 1
    axis = node.axis(node.attr("axis", -1), rank)
    whole = cast(indices, "int64")
    wrapped = weft.where(weft.less(whole, 0), whole + depth, whole)
    shape = [1] * rank
    shape[axis] = depth
    node.require_room(depth)
    classes = weft.reshape(weft.constant(np.arange(depth, dtype=np.int64)), tuple(shape))
    is_on = weft.equal(weft.unsqueeze(wrapped, axis), classes)
    off, on = (weft.reshape(weft.tensor_slice(values, (slice(n, n + 1),)), ()) for n in (0, 1))
    return weft.where(is_on, on, off)


@lowers("EyeLike")
def eye_like(node: Node) -> Tensor:
    """Return ones on a diagonal."""
    rows, columns = node.shape()
    number = node.choice("dtype")
    dtype = node.dtype() if number is None else numpy_dtype(number)
    return weft.eye(rows, columns, k=node.attr("k", 0), dtype=dtype.name)
