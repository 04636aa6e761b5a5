"""Tensors of no tensor."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from weft_torch.rules import Node, Tensor, lowers, typed


@lowers("full full_like new_full scalar_tensor fill")
def full(node: Node, fill_value: Any = None, value: Any = None, s: Any = None) -> Tensor:
    """Fill a tensor."""
    filling = next(each for each in (fill_value, value, s) if each is not None)
    return weft.broadcast(typed(filling, node.dtype()), node.shape())


ZEROS = (
    "zeros zeros_like new_zeros empty empty_like new_empty empty_strided new_empty_strided "
    "empty_permuted _efficientzerotensor"
)
lowers(ZEROS)(lambda node: weft.zeros(node.shape(), node.dtype()))
lowers("ones ones_like new_ones")(lambda node: weft.ones(node.shape(), node.dtype()))
lowers("eye")(lambda node: weft.eye(*node.shape(), dtype=node.dtype()))


@lowers("arange prims.iota.default")
def arange(node: Node, start: Any = 0, step: Any = 1) -> Tensor:
    """Count from a start by steps."""
    (n,) = node.shape()
    kind = "int64" if isinstance(start, int) and isinstance(step, int) else "float64"
    counted = weft.arange(n, dtype=kind)
    return typed(counted * typed(step, kind) + typed(start, kind), node.dtype())


@lowers("linspace")
def linspace(node: Node, start: Any, end: Any, steps: int) -> Tensor:
    """Count from a start to an end, from both sides to the middle as ATen does."""
    at = weft.arange(steps, dtype="float64")
    start, end = typed(start, "float64"), typed(end, "float64")
    step = (end - start) / max(steps - 1, 1)
    found = weft.where(at < steps // 2, start + step * at, end - step * (steps - 1 - at))
    return weft.broadcast(start, (1,)) if steps == 1 else found


@lowers("tril_indices triu_indices")
def triangle(node: Node, row: int, col: int, offset: int) -> Tensor:
    """Return the rows and columns of a triangle."""
    found = (np.tril_indices if node.name == "tril_indices" else np.triu_indices)(row, offset, col)
    return weft.constant(np.stack(found).astype("int64"))
