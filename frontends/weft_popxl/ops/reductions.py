"""Reductions over axes: a number, an iterable of numbers, or None for all."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import Any

import weft
from weft import TensorOp
from weft_popxl.arguments import flag, real, several, whole
from weft_popxl.building import apply, apply_all
from weft_popxl.data import as_tensor
from weft_popxl.errors import popart_exception, refuse_value
from weft_popxl.ops.families import Function, family
from weft_popxl.program import Tensor
from weft_popxl.tensor_arguments import axes_of, axis_of

__all__ = [
    "argmax",
    "argmin",
    "cumsum",
    "histogram",
    "l1",
    "l2",
    "lamb_square",
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


@family
def _reduction(
    kind: str, function: Function, t: Tensor, axis: Axis = None, keepdims: bool = False
) -> Tensor:
    """Reduce a tensor over axes."""
    t = as_tensor(t)
    axes = None if axis is None else axes_of(kind, t, axis)
    keeps = flag(f"{kind}: keepdims", keepdims)
    return apply(kind, lambda x: function(x, axis=axes, keepdims=keeps), t)


def _median(x: TensorOp, axis: tuple[int, ...] | None, keepdims: bool) -> Any:
    """Return the lower median over axes, NaN where an element is."""
    axes = tuple(range(x.rank)) if axis is None else axis
    rest = [place for place in range(x.rank) if place not in axes]
    lengths = [x.shape[place] for place in rest]
    count = math.prod(x.shape[place] for place in axes)
    if not count:
        raise popart_exception("median: there is none of no elements")
    rows = weft.reshape(weft.transpose(x, [*rest, *axes]), (*lengths, count))
    ordered = weft.sort(rows)
    found = ordered[..., (count - 1) // 2]
    if x.dtype.kind not in "iub":
        last = ordered[..., count - 1]
        found = weft.where(weft.isnan(last), last, found)
    shape = [1 if place in axes else n for place, n in enumerate(x.shape)]
    return weft.reshape(found, shape) if keepdims else found


sum = _reduction("sum", weft.sum, "Return the sum.")
mean = _reduction("mean", weft.mean, "Return the mean.")
max = _reduction("max", weft.max, "Return the maximum.")
min = _reduction("min", weft.min, "Return the minimum.")
prod = _reduction("prod", weft.prod, "Return the product.")
median = _reduction(
    "median",
    _median,
    "Return the median: of an even number of elements, the lower of the two middle ones.\n\n"
    "It has the dtype of t, and is NaN if an element is.",
)
logsum = _reduction(
    "logsum", lambda x, **over: weft.log(weft.sum(x, **over)), "Return the logarithm of the sum."
)
logsumexp = _reduction(
    "logsumexp", weft.logsumexp, "Return the logarithm of the sum of exponentials."
)
l1 = _reduction(
    "l1", lambda x, **over: weft.sum(weft.absolute(x), **over), "Return the sum of absolute values."
)
l2 = _reduction("l2", weft.norm, "Return the square root of the sum of squares.")
sumsquare = _reduction(
    "sumsquare", lambda x, **over: weft.sum(weft.square(x), **over), "Return the sum of squares."
)


def argmax(t: Tensor, dim: int = 0, keepdim: bool = False) -> Tensor:
    """Return the index of the first maximum along an axis, as int32."""
    return _index("argmax", weft.argmax, t, dim, keepdim)


def argmin(t: Tensor, dim: int = 0, keepdim: bool = False) -> Tensor:
    """Return the index of the first minimum along an axis, as int32."""
    return _index("argmin", weft.argmin, t, dim, keepdim)


def _index(kind: str, function: Function, t: Tensor, dim: int, keepdim: bool) -> Tensor:
    """Return the int32 index along an axis computed by a function."""
    t = as_tensor(t)
    place, keeps = axis_of(kind, t, dim), flag(f"{kind}: keepdim", keepdim)
    return apply(kind, lambda x: weft.cast(function(x, axis=place, keepdims=keeps), weft.int32), t)


def cumsum(t: Tensor, dim: int = 0) -> Tensor:
    """Return the cumulative sum along an axis."""
    t = as_tensor(t)
    place = axis_of("cumsum", t, dim)
    return apply("cumsum", lambda x: weft.cumsum(x, axis=place), t)


def lamb_square(t: Tensor) -> Tensor:
    """Return the sum of the squares of all elements, as float32, or float64 for float64.

    `var_updates.adam_var_update` takes those of a weight and of a step (You et al., 2019).
    """

    def function(x: TensorOp) -> Any:
        return weft.sum(weft.square(weft.cast(x, weft.promote(x.dtype, weft.float32))), axis=None)

    return apply("lamb_square", function, as_tensor(t))


def topk(
    t: Tensor,
    k: int,
    axis: int = -1,
    largest: bool = True,
    sorted: bool = True,
    available_memory_proportion: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the k largest or smallest elements along an axis, sorted, and their int32 indices.

    The largest are in descending order, the smallest in ascending, whatever `sorted` says.
    `available_memory_proportion` has no effect.
    """
    t = as_tensor(t)
    place, count = axis_of("topk", t, axis), whole("topk: k", k, least=0)
    is_largest = flag("topk: largest", largest)
    flag("topk: sorted", sorted)

    def function(x: TensorOp) -> tuple[TensorOp, TensorOp]:
        values, indices = weft.topk(x, count, axis=place, largest=is_largest)
        return values, weft.cast(indices, weft.int32)

    values, indices = apply_all("topk", function, t)
    return values, indices


def histogram(t: Tensor, levels: Iterable[float], absolute_of_input: bool = False) -> Tensor:
    """Return the numbers of elements below, between and above increasing levels, as uint32.

    Element n of the result counts the elements from level n - 1 to below level n; the first counts
    those below all levels, the last the remaining ones. `absolute_of_input` counts absolute values.
    Raises ValueError for levels that do not increase.
    """
    given = [real("histogram: a level", level) for level in several("histogram: levels", levels)]
    if not given or any(low >= high for low, high in itertools.pairwise(given)):
        refuse_value(f"histogram takes levels that rise, at least one, not {given}")
    takes_size = flag("histogram: absolute_of_input", absolute_of_input)

    def function(x: TensorOp) -> Any:
        values = weft.reshape(weft.absolute(x) if takes_size else x, (-1,))
        edges = weft.constant(given, dtype=weft.promote(x.dtype, weft.float32))
        bins = weft.searchsorted(edges, values, side="right")
        return weft.cast(weft.bincount(bins, len(given) + 1), weft.uint32)

    return apply("histogram", function, as_tensor(t))
