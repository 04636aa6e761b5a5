"""Ops that move elements: reshapes, transpositions, joining and splitting."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

import weft
from weft_onnx.nodes import Node, lowers
from weft_onnx.values import HostRef, Tensor, dtype_of, is_for_device, shape_of


def _is_host(node: Node, index: int = 0) -> bool:
    return isinstance(node.raw(index), HostRef) or not is_for_device(node.dtype(index))


def reshaped(node: Node, x: Any, shape: Any) -> Any:
    """Return a value in another shape."""
    shape = tuple(int(n) for n in shape)
    if shape_of(x) == shape:
        return x
    if isinstance(x, HostRef) or not is_for_device(dtype_of(x)):
        return node.host(lambda given: [given.reshape(shape)], x)[0]
    if isinstance(x, np.ndarray):
        return x.reshape(shape)
    return weft.reshape(x, shape)


@lowers("Reshape")
def reshape(node: Node) -> Any:
    """Reshape; 0 keeps a length unless `allowzero`, -1 is inferred."""
    wanted = node.ints(1) if node.version >= 5 else list(node.attr("shape", []))
    shape = node.shape()
    if not node.flag("allowzero"):
        wanted = [shape[at] if n == 0 and at < len(shape) else n for at, n in enumerate(wanted)]
    if -1 in wanted:
        rest = prod(n for n in wanted if n != -1)
        size = prod(shape)
        wanted[wanted.index(-1)] = size // rest if rest else 0
    if prod(wanted) != prod(shape):
        raise node.error(f"the shape {list(shape)} cannot become {wanted}")
    return reshaped(node, node.raw(0), wanted)


@lowers("Flatten")
def flatten(node: Node) -> Any:
    """Make a matrix of the axes before and from an axis on."""
    shape, axis = node.shape(), node.attr("axis", 1)
    if not -len(shape) <= axis <= len(shape):
        raise node.error(f"axis {axis} is not one of {len(shape)}, nor the end")
    axis = axis + len(shape) if axis < 0 else axis
    return reshaped(node, node.raw(0), (prod(shape[:axis]), prod(shape[axis:])))


@lowers("Squeeze")
def squeeze(node: Node) -> Any:
    """Drop axes of length 1."""
    axes = node.attr("axes") if node.version < 13 else node.ints(1) if node.has(1) else None
    shape = node.shape()
    gone = {n for n, length in enumerate(shape) if length == 1} if axes is None else node.axes(axes)
    if any(shape[axis] != 1 for axis in gone):
        raise node.error(f"axes {sorted(gone)} of {list(shape)} are not all of length 1")
    return reshaped(node, node.raw(0), [n for at, n in enumerate(shape) if at not in gone])


@lowers("Unsqueeze")
def unsqueeze(node: Node) -> Any:
    """Insert axes of length 1."""
    axes = node.required("axes") if node.version < 13 else node.ints(1)
    shape = node.shape()
    rank = len(shape) + len(axes)
    places = node.axes(axes, rank)
    if len(set(places)) < len(places):
        raise node.error(f"axes {list(axes)} name one twice")
    rest = iter(shape)
    return reshaped(node, node.raw(0), [1 if at in places else next(rest) for at in range(rank)])


@lowers("Transpose")
def transpose(node: Node) -> Any:
    """Permute axes, by default to the reverse order."""
    order = node.attr("perm") or tuple(reversed(range(node.rank())))
    if _is_host(node):
        return node.host(lambda x: [x.transpose(order)], node.raw(0))[0]
    return weft.transpose(node[0], tuple(order)) if node.rank() > 1 else node.raw(0)


@lowers("Concat")
def concat(node: Node) -> Any:
    """Join tensors along an axis."""
    axis = node.axis(node.attr("axis", 1))
    if _is_host(node):
        return node.host(lambda *parts: [np.concatenate(parts, axis)], *node.inputs)[0]
    parts = [node[n] for n in range(len(node.inputs))]
    return weft.concat(parts, axis) if len(parts) > 1 else parts[0]


@lowers("Split")
def split(node: Node) -> Any:
    """Split along an axis into parts of given lengths, or of equal ones."""
    axis = node.axis(node.attr("axis", 0))
    length = node.shape()[axis]
    given = node.attr("split") if node.version < 13 else node.ints(1) if node.has(1) else None
    if given is None:
        count = int(node.attr("num_outputs", node.outputs))
        if count != node.outputs:
            raise node.error(f"it has {node.outputs} results, not {count}")
        each = -(-length // count)
        given = [min(each, max(length - at * each, 0)) for at in range(count)]
    if sum(given) != length or min(given, default=0) < 0:
        raise node.error(f"parts of {list(given)} do not make up the length {length}")
    if len(given) == 1:
        return (node.raw(0),)
    return tuple(weft.split(node[0], list(given), axis))


@lowers("Expand")
def expand(node: Node) -> Any:
    """Broadcast to a shape, and the shape to the operand's."""
    shape = np.broadcast_shapes(node.shape(), tuple(node.ints(1)))
    return node.raw(0) if shape == node.shape() else weft.broadcast(node[0], shape)


@lowers("Tile")
def tile(node: Node) -> Tensor:
    """Repeat as a whole along each axis."""
    if node.version < 6:
        repeats = [1] * node.rank()
        repeats[node.ints(2)[0]] = node.ints(1)[0]
    else:
        repeats = node.ints(1)
    return weft.tile(node[0], tuple(repeats))


@lowers("Pad")
def pad(node: Node) -> Any:
    """Pad; a negative number of elements crops.

    Numbers of 8 bits or fewer, which no device has, are moved as bytes.
    """
    given, dtype = node.raw(0), node.dtype()
    value = np.zeros(1, dtype)
    if node.version < 11:
        value = np.array([node.attr("value", 0.0)])
    elif node.has(2):
        value = node.array(2).reshape(-1)[:1]
    if is_for_device(dtype) or dtype.itemsize > 1:
        return padded(node, node[0], value.item())
    x = node.op(node.host(lambda array: [array.view(np.uint8)], given)[0])
    found = padded(node, x, value.view(np.uint8).item())
    return node.host(lambda array: [array.view(dtype)], found)[0]


def padded(node: Node, x: Tensor, value: Any) -> Tensor:
    """Return a tensor with the padding of a node, which an operand or an attribute gives."""
    rank = node.rank()
    pads = node.ints(1) if node.has(1) else list(node.required("pads"))
    axes = node.axes(node.ints(3)) if node.has(3) else tuple(range(rank))
    mode = node.choice("mode", default="constant")
    before, after = [0] * rank, [0] * rank
    for place, axis in enumerate(axes):
        before[axis], after[axis] = pads[place], pads[place + len(axes)]
    cropped = [
        slice(max(-b, 0), n - max(-a, 0))
        for b, a, n in zip(before, after, x.axes.shape, strict=True)
    ]
    if any(n < 0 for n in (*before, *after)):
        x = weft.tensor_slice(x, tuple(cropped))
    paddings = [(max(b, 0), max(a, 0)) for b, a in zip(before, after, strict=True)]
    if not any(n for pair in paddings for n in pair):
        return x
    if mode == "constant":
        return weft.pad(x, paddings, value)
    node.require_room(*(sum(pair) + n for pair, n in zip(paddings, x.axes.shape, strict=True)))
    return _gathered(x, paddings, mode)


def _gathered(x: Tensor, paddings: list[tuple[int, int]], mode: str) -> Tensor:
    for axis, (before, after) in enumerate(paddings):
        if before or after:
            n = x.axes.shape[axis]
            places = np.pad(np.arange(n), (before, after), mode=mode)  # type: ignore[call-overload]
            x = weft.take(x, weft.constant(places.astype(np.int64)), axis)
    return x


@lowers("DepthToSpace")
def depth_to_space(node: Node) -> Tensor:
    """Move blocks of channels to pixels."""
    x, block = node[0], int(node.required("blocksize"))
    n, c, h, w = x.axes.shape
    if node.choice("mode", {"DCR": True, "CRD": False}, "DCR"):
        split_x = weft.reshape(x, (n, block, block, c // block**2, h, w))
        moved = weft.transpose(split_x, (0, 3, 4, 1, 5, 2))
    else:
        split_x = weft.reshape(x, (n, c // block**2, block, block, h, w))
        moved = weft.transpose(split_x, (0, 1, 4, 2, 5, 3))
    return weft.reshape(moved, (n, c // block**2, h * block, w * block))


@lowers("SpaceToDepth")
def space_to_depth(node: Node) -> Tensor:
    """Move blocks of pixels to channels."""
    x, block = node[0], int(node.required("blocksize"))
    n, c, h, w = x.axes.shape
    split_x = weft.reshape(x, (n, c, h // block, block, w // block, block))
    is_dcr = node.choice("mode", {"DCR": True, "CRD": False}, "DCR")
    order = (0, 3, 5, 1, 2, 4) if is_dcr else (0, 1, 3, 5, 2, 4)
    moved = weft.transpose(split_x, order)
    return weft.reshape(moved, (n, c * block**2, h // block, w // block))


@lowers("Trilu")
def trilu(node: Node) -> Tensor:
    """Keep the upper or lower triangle."""
    k = node.ints(1)[0] if node.has(1) else 0
    if 0 in node.shape():
        return node[0]
    return (weft.triu if node.flag("upper") else weft.tril)(node[0], k)


@lowers("ReverseSequence")
def reverse_sequence(node: Node) -> Tensor:
    """Reverse the first elements of each sequence of a batch."""
    x = node[0]
    batch, time = node.choice("batch_axis"), node.choice("time_axis")
    if batch == time:
        raise node.error(f"batch_axis and time_axis are both {batch}: they must differ")
    lengths = weft.cast(node[1], "int64")
    n = x.axes.shape[time]
    shape = [1] * x.rank
    shape[time] = n
    steps = weft.reshape(weft.constant(np.arange(n, dtype=np.int64)), tuple(shape))
    shape = [1] * x.rank
    shape[batch] = x.axes.shape[batch]
    ends = weft.reshape(lengths, tuple(shape))
    places = weft.where(weft.less(steps, ends), ends - 1 - steps, steps)
    return weft.take_along_axis(x, weft.broadcast(places, x.axes.shape), time)


@lowers("Size")
def size(node: Node) -> Any:
    """Return the number of elements."""
    return np.array(prod(node.shape()), np.int64)


@lowers("Shape")
def shape_rule(node: Node) -> Any:
    """Return the shape, or a part of it."""
    return np.array(node.shape()[slice(node.attr("start", 0), node.attr("end"))], np.int64)
