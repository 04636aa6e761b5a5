"""Constants, ranges and random numbers."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

import weft
from weft_onnx.nodes import Node, cast, lowers, numpy_dtype
from weft_onnx.values import Tensor

LARGE = 1 << 24
"""The elements from which a filled tensor is an op, and takes no memory in the program."""


@lowers("Constant")
def constant(node: Node) -> Any:
    """Return the value of the one attribute."""
    (name,) = [each.name for each in node.proto.attribute] or [""]
    value = node.required(name)
    if name in ("value", "sparse_value"):
        return np.asarray(value)
    dtype: Any = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64,
                  "value_ints": np.int64}.get(name, object)  # fmt: skip
    return np.array(value, dtype)


@lowers("ConstantOfShape")
def constant_of_shape(node: Node) -> Any:
    """Return a tensor filled with a number."""
    value = np.asarray(node.attr("value", np.zeros(1, np.float32))).reshape(-1)
    shape = tuple(node.ints(0))
    if prod(shape) >= LARGE:
        return weft.full(shape, value[0].item(), dtype=value.dtype.name)
    return np.full(shape, value[0])


@lowers("Range")
def range_rule(node: Node) -> Any:
    """Return evenly spaced numbers."""
    return numbers_between(node, *(node.array(n).reshape(-1)[0] for n in range(3)))


def numbers_between(node: Node, start: Any, limit: Any, delta: Any) -> Any:
    """Return numbers from a start to before a limit; raises NodeError for too many."""
    if not delta:
        raise node.error("the step is zero")
    count = max(int(np.ceil((float(limit) - float(start)) / float(delta))), 0)
    node.require_room(count)
    return (np.arange(count) * delta + start).astype(node.dtype())


def _random_dtype(node: Node, like: Any = np.float32) -> str:
    number = node.choice("dtype")
    return np.dtype(like if number is None else numpy_dtype(number)).name


def _seed(node: Node) -> int:
    return int(np.float32(node.attr("seed", 0.0)).view(np.uint32))


@lowers("RandomNormal", "RandomNormalLike")
def random_normal(node: Node) -> Tensor:
    """Return normally distributed numbers."""
    is_like = node.proto.op_type.endswith("Like")
    shape = node.shape() if is_like else tuple(node.required("shape"))
    dtype = _random_dtype(node, node.dtype() if is_like else np.float32)
    loc, scale = node.attr("mean", 0.0), node.attr("scale", 1.0)
    return weft.normal(shape, loc, scale, dtype=dtype, seed=_seed(node))


@lowers("RandomUniform", "RandomUniformLike")
def random_uniform(node: Node) -> Tensor:
    """Return uniformly distributed numbers."""
    is_like = node.proto.op_type.endswith("Like")
    shape = node.shape() if is_like else tuple(node.required("shape"))
    dtype = _random_dtype(node, node.dtype() if is_like else np.float32)
    return weft.uniform(shape, node.attr("low", 0.0), node.attr("high", 1.0), dtype=dtype,
                        seed=_seed(node))  # fmt: skip


@lowers("Bernoulli")
def bernoulli(node: Node) -> Tensor:
    """Return samples that are 1 with given probabilities."""
    return cast(weft.bernoulli(node[0], seed=_seed(node)), _random_dtype(node, node.dtype()))


@lowers("Multinomial")
def multinomial(node: Node) -> Tensor:
    """Return classes drawn with the probabilities of unnormalized logits."""
    count = node.attr("sample_size", 1)
    batch, classes = node.shape()
    logits = weft.broadcast(weft.unsqueeze(node[0], 1), (batch, count, classes))
    return cast(weft.categorical(logits, seed=_seed(node)), _random_dtype(node, np.int32))


@lowers("Dropout")
def dropout(node: Node) -> Any:
    """Return the operand, or in training with elements dropped; and the mask."""
    ratio, is_training = node.attr("ratio", 0.5), False
    if node.version >= 12:
        ratio = float(node.array(1).reshape(-1)[0]) if node.has(1) else 0.5
        is_training = bool(node.array(2).reshape(-1)[0]) if node.has(2) else False
    kind = "bool" if node.version >= 10 else node.dtype().name
    if not is_training or ratio == 0:
        return node.raw(0), weft.ones(node.shape(), kind)
    x = node[0]
    keep = weft.bernoulli(weft.full(x.axes.shape, 1 - ratio, dtype="float32"), seed=_seed(node))
    zero = weft.zeros_like(x)
    return weft.where(keep, cast(x / (1 - ratio), x.dtype), zero), cast(keep, kind)
