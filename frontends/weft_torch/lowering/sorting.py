"""Sorting, and elements by their rank."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from weft_torch.rules import Node, Tensor, is_inexact, lowers


def _of_scalar(node: Node, x: Tensor) -> Any:
    return x, weft.zeros(node.shape(1), "int64")


@lowers("sort")
def sort(node: Node, x: Tensor, dim: int, descending: bool) -> Any:
    """Return sorted numbers and where they were; those that are equal stay in order."""
    if x.rank == 0:
        return _of_scalar(node, x)
    places = weft.argsort(x, dim, bool(descending))
    return weft.take_along_axis(x, places, dim), places


@lowers("topk")
def topk(node: Node, x: Tensor, k: int, dim: int, largest: bool) -> Any:
    """Return the first numbers in order, and where they were."""
    return tuple(weft.topk(x, k, dim, largest)) if x.rank else _of_scalar(node, x)


@lowers("kthvalue median.dim nanmedian.dim")
def kthvalue(node: Node, x: Tensor, dim: int, k: int | None = None) -> Any:
    """Return a number by its rank and where it was; a median is the lower of two."""
    if x.rank == 0:
        return _of_scalar(node, x)
    order = weft.argsort(x, dim)
    value = weft.take_along_axis(x, order, dim)
    at = weft.constant(np.int64(k - 1)) if k is not None else _middle(node, x, dim)
    lengths = list(x.axes.lengths)
    lengths[dim] = 1
    at = weft.broadcast(at, tuple(lengths))
    found = (weft.take_along_axis(each, at, dim) for each in (value, order))
    return tuple(weft.reshape(each, node.shape(number)) for number, each in enumerate(found))


def _middle(node: Node, x: Tensor, dim: int) -> Tensor:
    """Return the rank of a median among sorted numbers, of which NaN is the last."""
    n = x.axes.lengths[dim]
    if not is_inexact(x.dtype.name):
        return weft.constant(np.int64((n - 1) // 2))
    nans = weft.sum(weft.cast(weft.isnan(x), "int64"), axis=dim, keepdims=True)
    if node.name.startswith("nan"):
        return weft.maximum(weft.floordivide(n - nans - 1, 2), 0)
    return weft.where(nans > 0, n - nans, (n - 1) // 2)


@lowers("median nanmedian")
def median(node: Node, x: Tensor) -> Tensor:
    """Return the lower median of all numbers."""
    flat = weft.reshape(x, (-1,))
    at = _middle(node, flat, 0)
    found = weft.take(weft.sort(flat, 0), weft.reshape(at, (1,)), 0)
    return weft.reshape(found, ())


@lowers("mode")
def mode(node: Node, x: Tensor, dim: int, keepdim: bool) -> Any:
    """Return the number that is there most often, and its last place."""
    return tuple(weft.mode(x, dim, keepdim)) if x.rank else _of_scalar(node, x)
