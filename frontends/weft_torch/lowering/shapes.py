"""Views, slices, joins and padding."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import weft
from weft_torch.rules import Node, Tensor, at_axis, is_inexact, lowers, typed

VIEWS = (
    "view reshape _unsafe_view squeeze unsqueeze _reshape_alias view_copy squeeze_copy "
    "unsqueeze_copy"
)
lowers(VIEWS)(lambda node, x: weft.reshape(x, node.shape()))
lowers("prims.squeeze.default")(lambda node, a: weft.reshape(a, node.shape()))
lowers("expand expand_copy broadcast_to")(lambda node, x: weft.broadcast(x, node.shape()))
lowers("t")(lambda x: weft.transpose(x) if x.rank == 2 else x)
lowers("transpose")(lambda x, dim0, dim1: weft.swapaxes(x, dim0, dim1) if x.rank else x)
lowers("permute permute_copy")(
    lambda x, dims: weft.transpose(x, [d % x.rank for d in dims]) if x.rank else x
)
lowers("select")(lambda x, dim, index: weft.tensor_slice(x, at_axis(x.rank, dim, index)))
lowers("diagonal diagonal_copy")(lambda x, offset, dim1, dim2: weft.diagonal(x, offset, dim1, dim2))
lowers("unbind")(lambda x, dim: weft.unstack(x, dim))
lowers("tril")(lambda x, diagonal: weft.tril(x, diagonal))
lowers("triu")(lambda x, diagonal: weft.triu(x, diagonal))
lowers("flip")(lambda x, dims: weft.flip(x, [d % x.rank for d in dims]) if dims and x.rank else x)
lowers("select_scatter")(
    lambda x, src, dim, index: weft.update_slice(x, at_axis(x.rank, dim, index), src)
)
lowers("sym_size")(lambda x, dim: x.axes.lengths[dim])
lowers("sym_numel")(lambda x: x.axes.size)


def _bounds(n: Any, start: Any, end: Any, step: int) -> slice:
    """Return a slice that does not leave an axis of n elements."""
    if isinstance(n, int):
        return slice(*slice(start, end, step).indices(n))
    is_end = end is None or (isinstance(end, int) and end >= 2**62)
    return slice(start or 0, None if is_end else end, step)


@lowers("slice")
def slice_rule(x: Tensor, dim: int, start: Any, end: Any, step: int) -> Tensor:
    """Take a slice of an axis."""
    bounds = _bounds(x.axes.lengths[dim], start, end, step)
    return weft.tensor_slice(x, at_axis(x.rank, dim, bounds))


@lowers("slice_scatter")
def slice_scatter(x: Tensor, src: Tensor, dim: int, start: Any, end: Any, step: int) -> Tensor:
    """Put a tensor into a slice of another."""
    bounds = _bounds(x.axes.lengths[dim], start, end, step)
    return weft.update_slice(x, at_axis(x.rank, dim, bounds), src)


@lowers("cat")
def cat(node: Node, tensors: Any, dim: int) -> Tensor:
    """Join tensors; empty ones of rank 1 go with any."""
    rank = len(node.shape())
    return weft.concat([typed(each, node.dtype()) for each in tensors if each.rank == rank], dim)


@lowers("stack")
def stack(node: Node, tensors: Any, dim: int) -> Tensor:
    """Join tensors along a new axis."""
    return weft.stack([typed(x, node.dtype()) for x in tensors], pos=dim % len(node.shape()))


@lowers(
    "split_with_sizes split split_with_sizes_copy split_copy unsafe_split unsafe_split_with_sizes "
    "chunk"
)
def split(node: Node, x: Tensor, dim: int) -> Any:
    """Cut an axis into pieces."""
    found, start = [], 0
    for number in range(len(node.val)):
        n = node.shape(number)[dim]
        found.append(weft.tensor_slice(x, at_axis(x.rank, dim, slice(start, start + n))))
        start += n
    return found


def _bordered(x: Tensor, padding: Any, mode: str) -> Tensor:
    """Put a border around a tensor; a negative width cuts."""
    pairs = _pairs(x, padding)
    x = weft.pad(x, [(max(a, 0), max(b, 0)) for a, b in pairs], mode=mode)
    lengths = zip(pairs, x.axes.lengths, strict=True)
    return weft.tensor_slice(x, tuple(slice(max(-a, 0), n - max(-b, 0)) for (a, b), n in lengths))


def _pairs(x: Tensor, pad: Any) -> list[tuple[Any, Any]]:
    """Return what is put before and after each axis; ATen begins with the last one."""
    given = list(zip(pad[::2], pad[1::2], strict=True))[::-1]
    return [(0, 0)] * (x.rank - len(given)) + given


@lowers("constant_pad_nd")
def constant_pad_nd(node: Node, x: Tensor, pad: Any, value: Any) -> Tensor:
    """Put a number around a tensor; a negative width cuts."""
    pairs = _pairs(x, pad)
    if any(isinstance(n, int) and n < 0 for pair in pairs for n in pair):
        lengths = zip(pairs, x.axes.lengths, strict=True)
        x = weft.tensor_slice(x, tuple(slice(max(-a, 0), n - max(-b, 0)) for (a, b), n in lengths))
        pairs = [(max(a, 0), max(b, 0)) for a, b in pairs]
    if is_inexact(node.dtype()) or not value:
        return weft.pad(x, pairs, value or 0)
    whole = weft.broadcast(typed(value, node.dtype()), node.shape())
    inner = (slice(a, a + n) for (a, _), n in zip(pairs, x.axes.lengths, strict=True))
    return weft.update_slice(whole, tuple(inner), x)


lowers("reflection_pad1d reflection_pad2d reflection_pad3d")(
    lambda x, padding: _bordered(x, padding, "reflect")
)
lowers(
    "reflection_pad1d_backward reflection_pad2d_backward reflection_pad3d_backward "
    "replication_pad1d_backward replication_pad2d_backward replication_pad3d_backward"
)(
    lambda node, grad_output, x, padding: weft.deriv(
        _bordered(x, padding, "reflect" if "reflection" in node.name else "edge"), x, grad_output
    )
)
lowers("replication_pad1d replication_pad2d replication_pad3d")(
    lambda x, padding: _bordered(x, padding, "edge")
)


@lowers("repeat")
def repeat(x: Tensor, repeats: Any) -> Tensor:
    """Repeat along axes, of which there may be more than the tensor has."""
    if not repeats:
        return x
    lengths = (1,) * (len(repeats) - x.rank) + x.axes.lengths
    return weft.tile(weft.reshape(x, lengths), tuple(repeats))


@lowers("roll")
def roll(node: Node, x: Tensor, shifts: Any, dims: Any) -> Tensor:
    """Shift along axes, or along all as if they were one."""
    if not dims:
        return weft.reshape(weft.roll(weft.reshape(x, (-1,)), shifts[0], 0), node.shape())
    for shift, dim in zip(shifts, dims, strict=True):
        x = weft.roll(x, shift, dim)
    return x


def _places(size: Any, stride: Any, offset: int) -> np.ndarray[Any, Any]:
    """Return where the elements of a strided view are in memory."""
    found = np.full((), offset, np.int64)
    for n, step in zip(size, stride, strict=True):
        found = found[..., None] + np.arange(n, dtype=np.int64) * step
    return found


def _is_row_major(node: Node) -> bool:
    source = node.fx.args[0]
    return isinstance(source, torch.fx.Node) and source.meta["val"].is_contiguous()


@lowers("as_strided as_strided_copy")
def as_strided(node: Node, x: Tensor, size: Any, stride: Any, storage_offset: int | None) -> Tensor:
    """Take elements by their places in memory, which is in row-major order."""
    if not _is_row_major(node):
        raise node.refuse("the tensor is not contiguous")
    places = _places(size, stride, storage_offset or 0)
    return weft.take(weft.reshape(x, (-1,)), weft.constant(places), 0)


@lowers("as_strided_scatter")
def as_strided_scatter(
    node: Node, x: Tensor, src: Tensor, size: Any, stride: Any, storage_offset: int | None
) -> Tensor:
    """Put elements by their places in memory."""
    if not _is_row_major(node):
        raise node.refuse("the tensor is not contiguous")
    places = _places(size, stride, storage_offset or 0).reshape(-1)
    flat = weft.reshape(x, (-1,))
    made = weft.scatter(flat, weft.constant(places), weft.reshape(src, (-1,)), 0)
    return weft.reshape(made, node.shape())


@lowers("unfold unfold_copy")
def unfold(node: Node, x: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """Return windows along an axis, whose elements are the last axis."""
    if x.rank == 0:
        return weft.broadcast(x, node.shape())
    axis = dimension % x.rank
    places = np.arange(node.shape()[axis])[:, None] * step + np.arange(size)
    return weft.moveaxis(weft.take(x, weft.constant(places), axis), axis + 1, -1)


@lowers("diagonal_scatter")
def diagonal_scatter(
    node: Node, x: Tensor, src: Tensor, offset: int, dim1: int, dim2: int
) -> Tensor:
    """Put a tensor onto a diagonal."""
    flat = np.arange(int(np.prod(x.axes.shape)), dtype=np.int64).reshape(x.axes.shape)
    places = np.diagonal(flat, offset, dim1, dim2).reshape(-1)
    made = weft.scatter(weft.reshape(x, (-1,)), weft.constant(places), weft.reshape(src, (-1,)), 0)
    return weft.reshape(made, node.shape())
