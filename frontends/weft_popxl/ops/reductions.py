"""Reductions over axes, which are a number, an iterable of numbers, or None for all."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import weft
from weft import TensorOp
from weft_popxl.arguments import axes_of, axis_of, flag, whole
from weft_popxl.building import apply
from weft_popxl.data import as_tensor
from weft_popxl.tensor import Tensor

__all__ = [
    "argmax",
    "argmin",
    "cumsum",
    "l1",
    "l2",
    "logsum",
    "logsumexp",
    "max",
    "mean",
    "median",
    "min",
    "prod",
    "sum",
    "sumsquare",
    "topk",
]

Axis = int | Iterable[int] | None


def _reduced(
    kind: str, function: Callable[..., TensorOp], t: Any, axis: Axis, keepdims: bool
) -> Tensor:
    t = as_tensor(t)
    axes = None if axis is None else axes_of(kind, t, axis)
    keeps = flag(f"{kind}: keepdims", keepdims)
    made: Tensor = apply(kind, lambda x: function(x, axis=axes, keepdims=keeps), t)
    return made


def sum(t: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return the sum."""
    return _reduced("sum", weft.sum, t, axis, keepdims)


def mean(t: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return the mean."""
    return _reduced("mean", weft.mean, t, axis, keepdims)


def max(t: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return the largest element."""
    return _reduced("max", weft.max, t, axis, keepdims)


def min(t: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return the smallest element."""
    return _reduced("min", weft.min, t, axis, keepdims)


def prod(t: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return the product."""
    return _reduced("prod", weft.prod, t, axis, keepdims)


def median(t: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return the median, of an even number of elements the mean of the two in the middle."""
    return _reduced("median", weft.median, t, axis, keepdims)


def logsum(t: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return the logarithm of the sum."""
    return _reduced("logsum", lambda x, **over: weft.log(weft.sum(x, **over)), t, axis, keepdims)


def logsumexp(t: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return the logarithm of the sum of exponentials."""
    return _reduced("logsumexp", weft.logsumexp, t, axis, keepdims)


def l1(t: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return the sum of absolute values."""
    return _reduced("l1", lambda x, **over: weft.sum(weft.absolute(x), **over), t, axis, keepdims)


def l2(t: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return the root of the sum of squares."""
    return _reduced("l2", weft.norm, t, axis, keepdims)


def sumsquare(t: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return the sum of squares."""
    return _reduced(
        "sumsquare", lambda x, **over: weft.sum(weft.square(x), **over), t, axis, keepdims
    )


def argmax(t: Tensor, dim: int = 0, keepdim: bool = False) -> Tensor:
    """Return the index of the first largest element along an axis, as int32."""
    return _placed("argmax", weft.argmax, t, dim, keepdim)


def argmin(t: Tensor, dim: int = 0, keepdim: bool = False) -> Tensor:
    """Return the index of the first smallest element along an axis, as int32."""
    return _placed("argmin", weft.argmin, t, dim, keepdim)


def _placed(
    kind: str, function: Callable[..., TensorOp], t: Any, dim: int, keepdim: bool
) -> Tensor:
    """Return the int32 index along an axis that a function finds."""
    t = as_tensor(t)
    place, keeps = axis_of(kind, t, dim), flag(f"{kind}: keepdim", keepdim)
    made: Tensor = apply(
        kind, lambda x: weft.cast(function(x, axis=place, keepdims=keeps), weft.int32), t
    )
    return made


def cumsum(t: Tensor, dim: int = 0) -> Tensor:
    """Return the running sum along an axis."""
    t = as_tensor(t)
    place = axis_of("cumsum", t, dim)
    made: Tensor = apply("cumsum", lambda x: weft.cumsum(x, axis=place), t)
    return made


def topk(t: Tensor, axis: int, k: int, sorted: bool = True) -> tuple[Tensor, Tensor]:
    """Return the k largest elements along an axis in descending order, and their int32 indices.

    They are in order whether `sorted` asks for it or not.
    """
    t = as_tensor(t)
    place, count = axis_of("topk", t, axis), whole("topk: k", k, least=0)
    flag("topk: sorted", sorted)

    def function(x: TensorOp) -> tuple[TensorOp, TensorOp]:
        values, indices = weft.topk(x, count, axis=place)
        return values, weft.cast(indices, weft.int32)

    values, indices = apply("topk", function, t)
    return values, indices
