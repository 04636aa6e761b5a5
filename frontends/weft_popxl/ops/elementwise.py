"""Elementwise ops: arithmetic, powers, activations, rounding, casts."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import weft
from weft import TensorOp
from weft_popxl import dtypes
from weft_popxl.arguments import axis_of, number_for
from weft_popxl.building import apply, change, computed, pair, same_dtypes, view
from weft_popxl.data import as_tensor
from weft_popxl.errors import popart_exception, refuse_value
from weft_popxl.tensor import Tensor

__all__ = [
    "abs",
    "add",
    "add_",
    "cast",
    "ceil",
    "clamp",
    "clip",
    "clip_",
    "cos",
    "cosh",
    "detach",
    "detach_",
    "div",
    "exp",
    "exp_",
    "floor",
    "fmod",
    "gelu",
    "gelu_",
    "geluerf",
    "geluerf_",
    "identity",
    "increment_mod",
    "increment_mod_",
    "log",
    "log2",
    "maximum",
    "minimum",
    "mul",
    "negate",
    "pow",
    "relu",
    "relu_",
    "rename",
    "round",
    "scaled_add",
    "scaled_add_",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "softmax",
    "sqrt",
    "sub",
    "swish",
    "swish_",
    "tan",
    "tanh",
    "where",
]


def _unary(kind: str, function: Callable[..., TensorOp], t: Any) -> Tensor:
    return apply(kind, function, as_tensor(t))


def _binary(kind: str, function: Callable[..., TensorOp], lhs: Any, rhs: Any) -> Tensor:
    return apply(kind, function, *pair(kind, lhs, rhs))


def add(lhs: Any, rhs: Any) -> Tensor:
    """Return lhs + rhs, broadcast as in NumPy; a number or array takes the tensor's dtype."""
    return _binary("add", weft.add, lhs, rhs)


def add_(lhs: Tensor, rhs: Any) -> Tensor:
    """Add rhs to lhs in place, or lhs to rhs if only the shape of rhs permits it."""
    left, right = pair("add_", lhs, rhs)
    shape = computed("add_", weft.add, (left, right)).shape
    target, other = (left, right) if tuple(shape) == left.shape else (right, left)
    return change("add_", weft.add, target, other)


def sub(lhs: Any, rhs: Any) -> Tensor:
    """Return lhs - rhs."""
    return _binary("sub", weft.subtract, lhs, rhs)


def mul(lhs: Any, rhs: Any) -> Tensor:
    """Return lhs * rhs."""
    return _binary("mul", weft.multiply, lhs, rhs)


def div(lhs: Any, rhs: Any) -> Tensor:
    """Return lhs / rhs; integer division truncates, as in C."""
    return _binary("div", _quotient, lhs, rhs)


def _quotient(x: TensorOp, y: TensorOp) -> Any:
    if x.dtype.kind not in "iu":
        return weft.divide(x, y)
    sign = weft.cast(weft.sign(x) * weft.sign(y), x.dtype)
    return sign * weft.floordivide(weft.absolute(x), weft.absolute(y))


def fmod(lhs: Any, rhs: Any) -> Tensor:
    """Return the remainder of lhs / rhs, with the sign of lhs."""
    return _binary("fmod", weft.fmod, lhs, rhs)


def pow(t: Any, e: Any) -> Tensor:
    """Return t to the power of e."""
    return _binary("pow", weft.power, t, e)


def maximum(*ts: Any) -> Tensor:
    """Return the elementwise maximum of several tensors, which are broadcast."""
    return _largest("maximum", weft.maximum, ts)


def minimum(*ts: Any) -> Tensor:
    """Return the elementwise minimum of several tensors, which are broadcast."""
    return _largest("minimum", weft.minimum, ts)


def _largest(kind: str, function: Callable[..., TensorOp], ts: Sequence[Any]) -> Tensor:
    if not ts:
        refuse_value(f"{kind} takes at least one tensor")
    like = next((t for t in ts if isinstance(t, Tensor)), ts[0])
    like = as_tensor(like)
    tensors = [as_tensor(t, like) for t in ts]
    same_dtypes(kind, *tensors)
    return apply(kind, lambda *ops: functools.reduce(function, ops), *tensors)


def scaled_add(X: Tensor, Y: Tensor, a: Any = 1.0, b: Any = 1.0) -> Tensor:  # noqa: N803
    """Return aX + bY for tensors of equal shape; a and b are numbers or scalars."""
    return apply("scaled_add", _combination, *_combined("scaled_add", X, Y, a, b))


def scaled_add_(X: Tensor, Y: Tensor, a: Any = 1.0, b: Any = 1.0) -> Tensor:  # noqa: N803
    """Set X to aX + bY for tensors of equal shape; a and b are numbers or scalars."""
    return change("scaled_add_", _combination, *_combined("scaled_add_", X, Y, a, b))


def _combined(kind: str, x: Tensor, y: Any, a: Any, b: Any) -> tuple[Tensor, ...]:
    x, y = pair(kind, x, y)
    if x.shape != y.shape:
        raise popart_exception(f"{kind} takes tensors of one shape, not {x!r} and {y!r}")
    return x, y, as_tensor(a, x), as_tensor(b, x)


def _combination(x: TensorOp, y: TensorOp, a: TensorOp, b: TensorOp) -> Any:
    return weft.cast(a * x + b * y, x.dtype)


def negate(t: Tensor) -> Tensor:
    """Return -t."""
    return _unary("negate", weft.negative, t)


def abs(t: Tensor) -> Tensor:
    """Return the absolute value."""
    return _unary("abs", weft.absolute, t)


def exp(t: Tensor) -> Tensor:
    """Return e to the power of t."""
    return _unary("exp", weft.exp, t)


def exp_(t: Tensor) -> Tensor:
    """Set t to e to the power of t."""
    return change("exp_", weft.exp, as_tensor(t))


def log(t: Tensor) -> Tensor:
    """Return the natural logarithm."""
    return _unary("log", weft.log, t)


def log2(t: Tensor) -> Tensor:
    """Return the logarithm to base 2."""
    return _unary("log2", weft.log2, t)


def sqrt(t: Tensor) -> Tensor:
    """Return the square root."""
    return _unary("sqrt", weft.sqrt, t)


def sin(t: Tensor) -> Tensor:
    """Return the sine."""
    return _unary("sin", weft.sin, t)


def cos(t: Tensor) -> Tensor:
    """Return the cosine."""
    return _unary("cos", weft.cos, t)


def tan(t: Tensor) -> Tensor:
    """Return the tangent."""
    return _unary("tan", weft.tan, t)


def sinh(t: Tensor) -> Tensor:
    """Return the hyperbolic sine."""
    return _unary("sinh", weft.sinh, t)


def cosh(t: Tensor) -> Tensor:
    """Return the hyperbolic cosine."""
    return _unary("cosh", weft.cosh, t)


def tanh(t: Tensor) -> Tensor:
    """Return the hyperbolic tangent."""
    return _unary("tanh", weft.tanh, t)


def sigmoid(t: Tensor) -> Tensor:
    """Return 1 / (1 + exp(-t))."""
    return _unary("sigmoid", weft.sigmoid, t)


def relu(t: Tensor) -> Tensor:
    """Return max(t, 0)."""
    return _unary("relu", weft.relu, t)


def relu_(t: Tensor) -> Tensor:
    """Set negative elements of t to 0."""
    return change("relu_", weft.relu, as_tensor(t))


def _gelu(x: TensorOp) -> Any:
    return weft.gelu(x, approximate="tanh")


def gelu(t: Tensor) -> Tensor:
    """Return 0.5 t (1 + tanh(0.7978845608 t + 0.03567740814 t³)) (Hendrycks and Gimpel, 2016)."""
    return _unary("gelu", _gelu, t)


def gelu_(t: Tensor) -> Tensor:
    """Set t to its `gelu`."""
    return change("gelu_", _gelu, as_tensor(t))


def geluerf(t: Tensor) -> Tensor:
    """Return t times the normal distribution function of t."""
    return _unary("geluerf", weft.gelu, t)


def geluerf_(t: Tensor) -> Tensor:
    """Set t to its `geluerf`."""
    return change("geluerf_", weft.gelu, as_tensor(t))


def swish(t: Tensor) -> Tensor:
    """Return t times its sigmoid."""
    return _unary("swish", weft.silu, t)


def swish_(t: Tensor) -> Tensor:
    """Set t to its `swish`."""
    return change("swish_", weft.silu, as_tensor(t))


def softmax(t: Tensor, axis: int) -> Tensor:
    """Return exp(t) divided by its sum along an axis."""
    t = as_tensor(t)
    place = axis_of("softmax", t, axis)
    return _unary("softmax", lambda x: weft.softmax(x, axis=place), t)


def clip(t: Tensor, min: float = -np.inf, max: float = np.inf) -> Tensor:
    """Return t clipped to a range; raises ValueError for integers and a fractional limit."""
    t = as_tensor(t)
    return _unary("clip", _clipped("clip", t, min, max), t)


clamp = clip


def clip_(t: Tensor, min: float = -np.inf, max: float = np.inf) -> Tensor:
    """Clip t to a range in place; see `clip`."""
    t = as_tensor(t)
    return change("clip_", _clipped("clip_", t, min, max), t)


def _clipped(kind: str, t: Tensor, low: float, high: float) -> Callable[[TensorOp], TensorOp]:
    given = (number_for(f"{kind}: min", low, t), number_for(f"{kind}: max", high, t))
    limits = [None if math.isinf(limit) else limit for limit in given]
    return lambda x: weft.cast(weft.clip(x, *limits), x.dtype)


def sign(t: Tensor) -> Tensor:
    """Return the sign of t: -1, 0 or 1."""
    return _unary("sign", weft.sign, t)


def floor(t: Tensor) -> Tensor:
    """Return t rounded down."""
    return _unary("floor", weft.floor, t)


def ceil(t: Tensor) -> Tensor:
    """Return t rounded up."""
    return _unary("ceil", weft.ceil, t)


def round(t: Tensor) -> Tensor:
    """Return t rounded to the nearest integer, with ties to even."""
    return _unary("round", weft.round, t)


def cast(t: Tensor, data_type: Any) -> Tensor:
    """Return t in another dtype."""
    wanted = dtypes.dtype.as_dtype(data_type).as_numpy()
    return _unary("cast", lambda x: weft.cast(x, wanted), t)


def identity(t: Tensor, output_name: str | None = None) -> Tensor:
    """Return a copy of a tensor in separate storage, with an optional name."""
    return apply("identity", weft.value_of, as_tensor(t), name=output_name)


rename = identity


def detach(t: Tensor) -> Tensor:
    """Return t without a gradient."""
    return _unary("detach", weft.stop_gradient, t)


def detach_(t: Tensor) -> Tensor:
    """Return a view of t without a gradient."""
    return view("detach_", weft.stop_gradient, lambda value, _: (value,), as_tensor(t))


def where(condition: Tensor, lhs: Any, rhs: Any) -> Tensor:
    """Return lhs where the condition is true and rhs elsewhere; all three are broadcast."""
    left, right = pair("where", lhs, rhs)
    chosen = as_tensor(condition, dtypes.bool)
    return apply("where", weft.where, chosen, left, right)


def increment_mod(t: Tensor, increment: float, modulus: float) -> Tensor:
    """Return (t + increment) % modulus; raises ValueError for fractions if t has integers."""
    t = as_tensor(t)
    return _unary("increment_mod", _incremented("increment_mod", t, increment, modulus), t)


def increment_mod_(t: Tensor, increment: float, modulus: float) -> Tensor:
    """Set t to (t + increment) % modulus; see `increment_mod`."""
    t = as_tensor(t)
    return change("increment_mod_", _incremented("increment_mod_", t, increment, modulus), t)


def _incremented(
    kind: str, t: Tensor, increment: float, modulus: float
) -> Callable[[TensorOp], TensorOp]:
    step = number_for(f"{kind}: the increment", increment, t)
    end = number_for(f"{kind}: the modulus", modulus, t)
    return lambda x: weft.mod(x + step, end)


def matching(kind: str, *tensors: Any) -> tuple[Tensor, ...]:
    """Return operands as tensors of one dtype, that of the first tensor."""
    first = as_tensor(tensors[0])
    found = (first, *(as_tensor(each, first) for each in tensors[1:]))
    same_dtypes(kind, *found)
    return found
