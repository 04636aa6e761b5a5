"""Reductions and scans."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any

import numpy as np

import weft
from weft.ir.dtypes import accumulator_dtype, as_dtype
from weft_torch.rules import Node, Tensor, at_axis, is_inexact, lowers, typed


def axes_of(x: Tensor, dim: Any) -> tuple[int, ...]:
    """Return the axes of an argument ``dim``, of which none means all."""
    dims = (dim,) if isinstance(dim, int) else dim
    return tuple(d % x.rank for d in dims) if dims else tuple(range(x.rank))


def reduced(apply: Callable[..., Any], x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """Reduce axes; a scalar is reduced along an axis of its own."""
    if x.rank == 0:
        return apply(weft.reshape(x, (1,)), axis=0)
    return apply(x, axis=axes_of(x, dim), keepdims=keepdim)


@lowers("sum prod mean")
def total(node: Node, x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """Reduce, in the dtype of the result."""
    return reduced(getattr(weft, node.name), typed(x, node.dtype()), dim, keepdim)


EXTREMES = {"amax": weft.max, "amin": weft.min, "max": weft.max, "min": weft.min}


@lowers("amax amin max min")
def extreme(node: Node, x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """Return the largest or smallest number."""
    if node.dtype() == "bool":
        x = typed(x, "uint8")
    return reduced(EXTREMES[node.name], x, dim, keepdim)


@lowers("any all")
def logical(node: Node, x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """Return whether any or all are not zero."""
    found = x if x.dtype.name == "bool" else weft.not_equal(x, 0)
    return reduced(getattr(weft, node.name), found, dim, keepdim)


@lowers("argmax argmin")
def argmax(node: Node, x: Tensor, dim: int | None) -> Tensor:
    """Return the place of the first extreme."""
    x = typed(x, "uint8") if x.dtype.name == "bool" else x
    x = weft.reshape(x, (-1,)) if dim is None or x.rank == 0 else x
    return weft.reshape(getattr(weft, node.name)(x, axis=dim or 0), node.shape())


@lowers("max.dim min.dim")
def max_dim(node: Node, x: Tensor, dim: int) -> Any:
    """Return extremes and their places."""
    x = typed(x, "uint8") if x.dtype.name == "bool" else x
    x = weft.reshape(x, (1,)) if x.rank == 0 else x
    place = weft.argmax if node.name == "max" else weft.argmin
    found = EXTREMES[node.name](x, axis=dim), place(x, axis=dim)
    return tuple(weft.reshape(each, node.shape(at)) for at, each in enumerate(found))


def _moment(
    apply: Callable[..., Any], x: Tensor, dim: Any, correction: Any, keepdim: bool
) -> Tensor:
    correction = 1 if correction is None else correction
    if "complex" in x.dtype.name:
        parts = (_moment(weft.variance, p, dim, correction, keepdim) for p in _parts(x))
        found = sum(parts)
        return weft.sqrt(found) if apply is weft.std else found
    return reduced(partial(apply, correction=correction), x, dim, keepdim)


def _parts(x: Tensor) -> tuple[Tensor, Tensor]:
    return weft.real(x), weft.imag(x)


@lowers("var std var_mean std_mean")
def var(
    node: Node,
    x: Tensor,
    dim: Any = None,
    correction: Any = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
) -> Any:
    """Return the variance or its root, and perhaps the mean."""
    correction = int(unbiased) if unbiased is not None else correction
    apply = weft.variance if node.name.startswith("var") else weft.std
    spread = _moment(apply, x, dim, correction, keepdim)
    return (spread, reduced(weft.mean, x, dim, keepdim)) if "mean" in node.name else spread


@lowers("linalg_vector_norm norm")
def vector_norm(
    node: Node, x: Tensor, ord: float = 2, dim: Any = None, keepdim: bool = False, p: Any = None
) -> Tensor:
    """Return a norm of vectors."""
    size = weft.absolute(x) if "complex" in x.dtype.name else x
    # Powers of 16-bit floats overflow.
    wide = accumulator_dtype(as_dtype(node.dtype())).name
    size, order = weft.absolute(typed(size, wide)), ord if p is None else p
    if order in (inf, -inf):
        return reduced(weft.max if order > 0 else weft.min, size, dim, keepdim)
    if order == 0:
        return reduced(weft.sum, typed(weft.not_equal(size, 0), wide), dim, keepdim)
    if order == 1:
        return reduced(weft.sum, size, dim, keepdim)
    if order == 2:
        return weft.sqrt(reduced(weft.sum, size * size, dim, keepdim))
    return weft.power(reduced(weft.sum, weft.power(size, order), dim, keepdim), 1 / order)


@lowers("logsumexp")
def logsumexp(node: Node, x: Tensor, dim: Any, keepdim: bool) -> Tensor:
    """Return the logarithm of the sum of exponentials."""
    return reduced(weft.logsumexp, typed(x, node.dtype()), dim, keepdim)


@lowers("count_nonzero")
def count_nonzero(node: Node, x: Tensor, dim: Any = None) -> Tensor:
    """Count what is not zero."""
    return reduced(weft.sum, typed(weft.not_equal(x, 0), "int64"), dim)


@lowers("cumsum cumprod logcumsumexp")
def scan(node: Node, x: Tensor, dim: int) -> Tensor:
    """Return running sums, products or logarithms of sums."""
    x = typed(x, node.dtype())
    return x if x.rank == 0 else getattr(weft, node.name)(x, dim)


@lowers("cummax cummin")
def cummax(node: Node, x: Tensor, dim: int) -> Any:
    """Return running extremes, and the last place of each."""
    if x.rank == 0:
        return x, weft.zeros((), "int64")
    best = getattr(weft, node.name)(x, dim)
    n = x.axes.lengths[dim]
    shape = tuple(n if at == dim % x.rank else 1 for at in range(x.rank))
    place = weft.reshape(weft.arange(n, dtype="int64"), shape)
    is_best = weft.equal(x, best)
    if is_inexact(x.dtype.name):
        is_best = weft.logical_or(is_best, weft.isnan(x))
    return best, weft.cummax(weft.where(is_best, place, weft.constant(np.int64(-1))), dim)


@lowers("_softmax _log_softmax _safe_softmax")
def softmax(node: Node, x: Tensor, dim: int) -> Tensor:
    """Return probabilities, or their logarithms."""
    apply = weft.log_softmax if "log" in node.name else weft.softmax
    x = typed(x, node.dtype())
    if x.rank == 0:
        return weft.reshape(apply(weft.reshape(x, (1,)), axis=0), ())
    if node.name != "_safe_softmax":
        return apply(x, axis=dim)
    is_hidden = weft.all(weft.equal(x, -inf), axis=dim, keepdims=True)
    return weft.where(is_hidden, 0.0, apply(weft.where(is_hidden, 0.0, x), axis=dim))


@lowers("_softmax_backward_data _log_softmax_backward_data")
def softmax_backward(node: Node, grad_output: Tensor, output: Tensor, dim: int) -> Tensor:
    """Return the gradient of probabilities, or of their logarithms."""
    if output.rank == 0:
        return weft.zeros((), node.dtype())
    if "log" in node.name:
        total = weft.sum(grad_output, axis=dim, keepdims=True)
        return grad_output - weft.exp(output) * total
    total = weft.sum(grad_output * output, axis=dim, keepdims=True)
    return output * (grad_output - total)


@lowers("_cdist_forward")
def cdist(x1: Tensor, x2: Tensor, p: float) -> Tensor:
    """Return the distances of all pairs of rows of two matrices."""
    return weft.norm(weft.unsqueeze(x1, x1.rank - 1) - weft.unsqueeze(x2, x2.rank - 2), p, axis=-1)


@lowers("_pdist_forward")
def pdist(x: Tensor, p: float) -> Tensor:
    """Return the distances of all pairs of rows of a matrix."""
    left, right = (weft.constant(each) for each in np.triu_indices(x.axes.shape[0], 1))
    return weft.norm(weft.take(x, left, 0) - weft.take(x, right, 0), p, axis=-1)


@lowers("_cdist_backward")
def cdist_backward(grad: Tensor, x1: Tensor, x2: Tensor, p: float) -> Tensor:
    """Return the gradient of distances for the rows of the first matrix."""
    return weft.deriv(cdist(x1, x2, p), x1, grad)


@lowers("_pdist_backward")
def pdist_backward(grad: Tensor, x: Tensor, p: float) -> Tensor:
    """Return the gradient of distances among rows."""
    return weft.deriv(pdist(x, p), x, grad)


@lowers("histc")
def histc(node: Node, x: Tensor, bins: int, min: float, max: float) -> Tensor:
    """Count numbers in intervals of one width; by default from the least to the largest number."""
    x = typed(weft.reshape(x, (-1,)), "float64")
    low, high = typed(min, "float64"), typed(max, "float64")
    if min == max and x.axes.size:
        low, high = weft.min(x), weft.max(x)
    is_point = weft.equal(low, high)
    low, high = low - typed(is_point, "float64"), high + typed(is_point, "float64")
    place = typed(weft.floor((x - low) / (high - low) * bins), "int64")
    place = weft.minimum(place, bins - 1)
    inside = weft.logical_and(x >= low, x <= high)
    counts = weft.zeros((bins,), "int64")
    place = weft.where(inside, place, 0)
    return weft.scatter(counts, place, typed(inside, "int64"), 0, reduction="add")


def _segments(x: Tensor, lengths: Any, offsets: Any, axis: int) -> tuple[Tensor, Tensor]:
    """Return the segment of each element, from 1 on and as of x, and where segments end.

    Elements before the first segment are in segment 0, and those behind the last in one more.
    """
    if offsets is None:
        ends = weft.cumsum(lengths, axis)
        offsets = weft.concat([weft.zeros_like(lengths)[..., :1], ends], axis)
    places = weft.arange(x.axes.lengths[axis], dtype=offsets.dtype.name)
    places = weft.broadcast(places, x.axes.lengths[: axis + 1])
    segment = weft.searchsorted(offsets, places, "right")
    segment = weft.reshape(segment, segment.axes.lengths + (1,) * (x.rank - axis - 1))
    return weft.broadcast(segment, x.axes.lengths), offsets


def _reduced_by_segment(
    node: Node, x: Tensor, segment: Tensor, count: int, axis: int, how: str, start: float
) -> Tensor:
    """Reduce segments, of which the first and the last are left out."""
    shape = [*x.axes.lengths]
    shape[axis] = count + 2
    base = weft.full(shape, start, dtype=node.dtype())
    made = weft.scatter_along_axis(base, segment, x, axis, reduction=how)
    return made[at_axis(x.rank, axis, slice(1, -1))]


NEUTRAL = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -inf, "min": inf}


def _by_segment(
    node: Node, x: Tensor, reduce: str, lengths: Any, offsets: Any, axis: int, initial: Any
) -> Tensor:
    segment, offsets = _segments(x, lengths, offsets, axis)
    count = offsets.axes.lengths[axis] - 1
    start = NEUTRAL[reduce] if initial is None else initial
    how = {"sum": "add", "mean": "add", "prod": "mul"}.get(reduce, reduce)
    found = _reduced_by_segment(node, x, segment, count, axis, how, start)
    if reduce != "mean":
        return found
    ones = weft.ones(x.axes.lengths, x.dtype.name)
    sizes = _reduced_by_segment(node, ones, segment, count, axis, "add", 0.0)
    empty = math.nan if initial is None else initial
    return weft.where(weft.equal(sizes, 0), empty, found / weft.maximum(sizes, 1))


@lowers("segment_reduce")
def segment_reduce(
    node: Node, data: Tensor, reduce: str, lengths: Any, offsets: Any, axis: int, initial: Any
) -> Tensor:
    """Reduce segments of an axis, of some lengths or between offsets."""
    return _by_segment(node, data, reduce, lengths, offsets, axis, initial)


@lowers("_segment_reduce_backward")
def segment_reduce_backward(
    node: Node,
    grad: Tensor,
    data: Tensor,
    reduce: str,
    lengths: Any,
    offsets: Any,
    axis: int,
    initial: Any,
) -> Tensor:
    """Return the gradient of what segments are reduced from."""
    return weft.deriv(_by_segment(node, data, reduce, lengths, offsets, axis, initial), data, grad)
