"""Elementwise ops: arithmetic, powers, activations, rounding, casts."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import weft
from weft import TensorOp
from weft_popxl import dtypes
from weft_popxl.building import apply, change, computed, pair, same_dtypes, view
from weft_popxl.data import as_tensor
from weft_popxl.errors import popart_exception, refuse_value
from weft_popxl.ops.families import Function, applied, binary, twins, unary
from weft_popxl.program import Tensor
from weft_popxl.tensor_arguments import axis_of, number_for

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


negate = unary("negate", weft.negative, "Return -t.")
abs = unary("abs", weft.absolute, "Return the absolute value.")
sign = unary("sign", weft.sign, "Return the sign of t: -1, 0 or 1.")
floor = unary("floor", weft.floor, "Return t rounded down.")
ceil = unary("ceil", weft.ceil, "Return t rounded up.")
round = unary("round", weft.round, "Return t rounded to the nearest integer, with ties to even.")
exp = unary("exp", weft.exp, "Return e to the power of t.")
exp_ = unary("exp_", weft.exp, "Set t to e to the power of t.")
log = unary("log", weft.log, "Return the natural logarithm.")
log2 = unary("log2", weft.log2, "Return the logarithm to base 2.")
sqrt = unary("sqrt", weft.sqrt, "Return the square root.")
sin = unary("sin", weft.sin, "Return the sine.")
cos = unary("cos", weft.cos, "Return the cosine.")
tan = unary("tan", weft.tan, "Return the tangent.")
sinh = unary("sinh", weft.sinh, "Return the hyperbolic sine.")
cosh = unary("cosh", weft.cosh, "Return the hyperbolic cosine.")
tanh = unary("tanh", weft.tanh, "Return the hyperbolic tangent.")
sigmoid = unary("sigmoid", weft.sigmoid, "Return 1 / (1 + exp(-t)).")
relu = unary("relu", weft.relu, "Return max(t, 0).")
relu_ = unary("relu_", weft.relu, "Set negative elements of t to 0.")
gelu = unary(
    "gelu",
    functools.partial(weft.gelu, approximate="tanh"),
    "Return 0.5 t (1 + tanh(0.7978845608 t + 0.03567740814 t³)) (Hendrycks and Gimpel, 2016).",
)
gelu_ = unary("gelu_", functools.partial(weft.gelu, approximate="tanh"), "Set t to its `gelu`.")
geluerf = unary("geluerf", weft.gelu, "Return t times the normal distribution function of t.")
geluerf_ = unary("geluerf_", weft.gelu, "Set t to its `geluerf`.")
swish = unary("swish", weft.silu, "Return t times its sigmoid.")
swish_ = unary("swish_", weft.silu, "Set t to its `swish`.")
detach = unary("detach", weft.stop_gradient, "Return t without a gradient.")


def _quotient(x: TensorOp, y: TensorOp) -> Any:
    """Return the quotient, which truncates for integers."""
    if x.dtype.kind not in "iu":
        return weft.divide(x, y)
    sign = weft.cast(weft.sign(x) * weft.sign(y), x.dtype)
    return sign * weft.floordivide(weft.absolute(x), weft.absolute(y))


add = binary(
    "add",
    weft.add,
    "Return lhs + rhs, broadcast as in NumPy; a number or array takes the tensor's dtype.",
)
sub = binary("sub", weft.subtract, "Return lhs - rhs.")
mul = binary("mul", weft.multiply, "Return lhs * rhs.")
div = binary("div", _quotient, "Return lhs / rhs; integer division truncates, as in C.")
fmod = binary("fmod", weft.fmod, "Return the remainder of lhs / rhs, with the sign of lhs.")


def add_(lhs: Tensor, rhs: Any) -> Tensor:
    """Add rhs to lhs in place, or lhs to rhs if only the shape of rhs permits it."""
    left, right = pair("add_", lhs, rhs)
    shape = computed("add_", weft.add, (left, right)).shape
    target, other = (left, right) if tuple(shape) == left.shape else (right, left)
    return change("add_", weft.add, target, other)


def pow(t: Any, e: Any) -> Tensor:
    """Return t to the power of e."""
    return apply("pow", weft.power, *pair("pow", t, e))


def maximum(*ts: Any) -> Tensor:
    """Return the elementwise maximum of several tensors, which are broadcast."""
    return _largest("maximum", weft.maximum, ts)


def minimum(*ts: Any) -> Tensor:
    """Return the elementwise minimum of several tensors, which are broadcast."""
    return _largest("minimum", weft.minimum, ts)


def _largest(kind: str, function: Function, ts: Sequence[Any]) -> Tensor:
    """Combine one or more tensors, which are broadcast."""
    if not ts:
        refuse_value(f"{kind} takes at least one tensor")
    like = as_tensor(next((t for t in ts if isinstance(t, Tensor)), ts[0]))
    tensors = [as_tensor(t, like) for t in ts]
    same_dtypes(kind, *tensors)
    return apply(kind, lambda *ops: functools.reduce(function, ops), *tensors)


def _scaled_add(kind: str, X: Tensor, Y: Tensor, a: Any = 1.0, b: Any = 1.0) -> Tensor:  # noqa: N803
    """Return aX + bY for tensors of equal shape; a and b are numbers or scalars."""
    x, y = pair(kind, X, Y)
    if x.shape != y.shape:
        raise popart_exception(f"{kind} takes tensors of one shape, not {x!r} and {y!r}")

    def function(x: TensorOp, y: TensorOp, a: TensorOp, b: TensorOp) -> Any:
        return weft.cast(a * x + b * y, x.dtype)

    return applied(kind, function, x, y, as_tensor(a, x), as_tensor(b, x))


scaled_add, scaled_add_ = twins(
    _scaled_add, "Set X to aX + bY for tensors of equal shape; a and b are numbers or scalars."
)


def softmax(t: Tensor, axis: int) -> Tensor:
    """Return exp(t) divided by its sum along an axis."""
    t = as_tensor(t)
    place = axis_of("softmax", t, axis)
    return apply("softmax", lambda x: weft.softmax(x, axis=place), t)


def _clip(kind: str, t: Tensor, min: float = -np.inf, max: float = np.inf) -> Tensor:
    """Return t clipped to a range; raises ValueError for integers and a fractional limit."""
    t = as_tensor(t)
    given = (number_for(f"{kind}: min", min, t), number_for(f"{kind}: max", max, t))
    limits = [None if math.isinf(limit) else limit for limit in given]
    return applied(kind, lambda x: weft.cast(weft.clip(x, *limits), x.dtype), t)


clip, clip_ = twins(_clip, "Clip t to a range in place; see `clip`.")
clamp = clip


def cast(t: Tensor, data_type: Any) -> Tensor:
    """Return t in another dtype."""
    wanted = dtypes.dtype.as_dtype(data_type).as_numpy()
    return apply("cast", lambda x: weft.cast(x, wanted), as_tensor(t))


def identity(t: Tensor, output_name: str | None = None) -> Tensor:
    """Return a copy of a tensor in separate storage, with an optional name."""
    return apply("identity", weft.value_of, as_tensor(t), name=output_name)


rename = identity


def detach_(t: Tensor) -> Tensor:
    """Return a view of t without a gradient."""
    return view("detach_", weft.stop_gradient, lambda value, _: (value,), as_tensor(t))


def where(condition: Tensor, lhs: Any, rhs: Any) -> Tensor:
    """Return lhs where the condition is true and rhs elsewhere; all three are broadcast."""
    left, right = pair("where", lhs, rhs)
    chosen = as_tensor(condition, dtypes.bool)
    return apply("where", weft.where, chosen, left, right)


def _increment_mod(kind: str, t: Tensor, increment: float, modulus: float) -> Tensor:
    """Return (t + increment) % modulus; raises ValueError for fractions if t has integers."""
    t = as_tensor(t)
    step = number_for(f"{kind}: the increment", increment, t)
    end = number_for(f"{kind}: the modulus", modulus, t)
    return applied(kind, lambda x: weft.mod(x + step, end), t)


increment_mod, increment_mod_ = twins(
    _increment_mod, "Set t to (t + increment) % modulus; see `increment_mod`."
)
