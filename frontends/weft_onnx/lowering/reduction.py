"""Reductions, cumulative ops and sorting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import weft
from weft_onnx.nodes import Node, cast, lowers
from weft_onnx.values import Tensor

Reduction = Callable[[Tensor, tuple[int, ...], bool], Tensor]


def _plain(function: Any) -> Reduction:
    return lambda x, axes, keepdims: function(x, axis=axes, keepdims=keepdims)


def _extremum(function: Any) -> Reduction:
    """Return a maximum or minimum; of no elements it is the least or greatest number."""
    is_max = function is weft.max

    def reduced(x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
        if x.dtype.kind == "b":
            return cast(reduced(cast(x, "uint8"), axes, keepdims), "bool")
        if all(x.axes.shape[axis] for axis in axes):
            return function(x, axis=axes, keepdims=keepdims)
        shape = [
            1 if axis in axes else n
            for axis, n in enumerate(x.axes.shape)
            if keepdims or axis not in axes
        ]
        if x.dtype.kind in "iu":
            limits = np.iinfo(x.dtype)
            value: Any = limits.min if is_max else limits.max
        else:
            value = -np.inf if is_max else np.inf
        return weft.full(tuple(shape), value, dtype=x.dtype)

    return reduced


def _log_sum(x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    return weft.log(weft.sum(x, axis=axes, keepdims=keepdims))


def _log_sum_exp(x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    if not all(x.axes.shape[axis] for axis in axes):
        return _log_sum(x, axes, keepdims)
    return weft.logsumexp(x, axis=axes, keepdims=keepdims)


def _mean(x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    if x.dtype.kind in "iu":
        count = int(np.prod([x.axes.shape[axis] for axis in axes]))
        return weft.floordivide(weft.sum(x, axis=axes, keepdims=keepdims), max(count, 1))
    return weft.mean(x, axis=axes, keepdims=keepdims)


REDUCTIONS: dict[str, Reduction] = {
    "ReduceSum": _plain(weft.sum),
    "ReduceMean": _mean,
    "ReduceProd": _plain(weft.prod),
    "ReduceMax": _extremum(weft.max),
    "ReduceMin": _extremum(weft.min),
    "ReduceL1": lambda x, axes, k: weft.sum(weft.absolute(x), axis=axes, keepdims=k),
    "ReduceL2": lambda x, axes, k: weft.sqrt(weft.sum(x * x, axis=axes, keepdims=k)),
    "ReduceSumSquare": lambda x, axes, k: weft.sum(x * x, axis=axes, keepdims=k),
    "ReduceLogSum": _log_sum,
    "ReduceLogSumExp": _log_sum_exp,
}
AXES_AS_OPERAND = {"ReduceSum": 13}
"""The opset from which axes are an operand, where it is not 18."""

WITHOUT_REDUCTION: dict[str, Callable[[Tensor], Tensor]] = {
    "ReduceL1": weft.absolute,
    "ReduceL2": weft.absolute,
    "ReduceSumSquare": weft.square,
    "ReduceLogSum": weft.log,
}
"""What is computed of each element where no axis is reduced."""


@lowers(*REDUCTIONS)
def reduction(node: Node) -> Tensor:
    """Reduce over axes, all by default."""
    name, x = node.proto.op_type, node[0]
    if node.version < AXES_AS_OPERAND.get(name, 18):
        axes = node.attr("axes", [])
    else:
        axes = node.ints(1) if node.has(1) else []
    if not axes and node.flag("noop_with_empty_axes"):
        return WITHOUT_REDUCTION.get(name, lambda x: x)(x)
    chosen = node.axes(axes, x.rank) if axes else tuple(range(x.rank))
    if not chosen:
        return WITHOUT_REDUCTION.get(name, lambda x: x)(x)
    found = REDUCTIONS[name](x, chosen, node.flag("keepdims"))
    return found if found.dtype == x.dtype else cast(found, x.dtype)


@lowers("ArgMax", "ArgMin")
def arg_extremum(node: Node) -> Tensor:
    """Return the index of the first or last extremum along an axis, as int64."""
    x = node[0]
    axis = node.axis(node.attr("axis", 0))
    function = weft.argmax if node.proto.op_type == "ArgMax" else weft.argmin
    is_last = node.flag("select_last_index")
    found = function(weft.flip(x, axis) if is_last else x, axis=axis)
    found = cast(found, "int64")
    if is_last:
        found = x.axes.shape[axis] - 1 - found
    return weft.unsqueeze(found, axis) if node.flag("keepdims") else found


@lowers("CumSum", "CumProd")
def cumulative(node: Node) -> Tensor:
    """Accumulate along an axis."""
    function = weft.cumsum if node.proto.op_type == "CumSum" else weft.cumprod
    axis = node.axis(node.ints(1)[0])
    return function(node[0], axis, exclusive=node.flag("exclusive"), reverse=node.flag("reverse"))


@lowers("TopK")
def top_k(node: Node) -> Any:
    """Return the largest or smallest elements along an axis, and their indices."""
    k = node.ints(1)[0] if node.version >= 10 else int(node.required("k"))
    axis = node.axis(node.attr("axis", -1))
    values, indices = weft.topk(node[0], k, axis, largest=node.flag("largest", True))
    return values, indices


@lowers("Hardmax")
def hardmax(node: Node) -> Tensor:
    """Return 1 at the first maximum along an axis, and 0 elsewhere."""
    return along_axis(node, _hardmax)


def _hardmax(x: Tensor, axis: int) -> Tensor:
    chosen = weft.argmax(x, axis=axis)
    return weft.one_hot(chosen, x.axes.shape[axis], dtype=x.dtype.name, pos=axis)


@lowers("Softmax")
def softmax(node: Node) -> Tensor:
    """Return the softmax along an axis."""
    return along_axis(node, lambda x, axis: weft.softmax(x, axis=axis))


@lowers("LogSoftmax")
def log_softmax(node: Node) -> Tensor:
    """Return the logarithm of the softmax along an axis."""
    return along_axis(node, lambda x, axis: weft.log_softmax(x, axis=axis))


def along_axis(node: Node, function: Callable[[Tensor, int], Tensor]) -> Tensor:
    """Apply a function along an axis; before opset 13, to all axes from there on as one."""
    x = node[0]
    if node.version >= 13:
        return function(x, node.axis(node.attr("axis", -1)))
    axis = node.axis(node.attr("axis", 1))
    shape = x.axes.shape
    flat = weft.reshape(x, (int(np.prod(shape[:axis])), int(np.prod(shape[axis:]))))
    return weft.reshape(function(flat, 1), shape)
