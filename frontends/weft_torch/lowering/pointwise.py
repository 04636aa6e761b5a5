"""Elementwise ops, comparisons and casts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any

import weft
from weft_torch.rules import Node, Tensor, is_inexact, lowers, typed

UNARY = """
    neg:negative exp expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan
    asin acos atan sinh cosh tanh asinh acosh atanh erf erfc erfinv lgamma digamma sigmoid relu
    ceil floor round trunc silu square sinc mish relu6 selu hardsigmoid:hard_sigmoid
    hardswish:hard_swish bitwise_not special_erfcx:special.erfcx special_entr:special.entr
    special_log_ndtr:special.log_ndtr special_ndtri:special.ndtri special_ndtr:special.ndtr
    special_i0e:special.i0e special_i1:special.i1 special_i1e:special.i1e i0:special.i0
    special_bessel_j0:special.j0 special_bessel_j1:special.j1 special_bessel_y0:special.y0
    special_bessel_y1:special.y1 special_modified_bessel_i0:special.i0
    special_modified_bessel_i1:special.i1 special_modified_bessel_k0:special.k0
    special_modified_bessel_k1:special.k1 special_scaled_modified_bessel_k0:special.k0e
    special_scaled_modified_bessel_k1:special.k1e
    special_spherical_bessel_j0:special.spherical_bessel_j0
"""
"""ATen's names of functions of one tensor, with weft's name where it is another."""

BINARY = """
    mul:multiply div:divide pow:power maximum minimum fmod remainder:mod atan2 bitwise_and
    bitwise_or bitwise_xor bitwise_left_shift:shift_left bitwise_right_shift:shift_right
    __lshift__:shift_left __rshift__:shift_right copysign nextafter hypot logaddexp xlogy gcd lcm
    floor_divide:floordivide special_xlog1py:special.xlog1py
    igamma:special.gammainc igammac:special.gammaincc logical_and logical_or logical_xor
"""
COMPARISONS = """
    eq:equal ne:not_equal lt:less le:less_equal gt:greater ge:greater_equal
"""
PREDICATES = "abs:absolute isnan isinf isfinite signbit logical_not sign sgn:sign"
"""Functions of one tensor that take it as it is."""


def named(table: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield ATen's names of a table with the functions of weft."""
    for word in table.split():
        aten, _, name = word.partition(":")
        function: Any = reduce(getattr, (name or aten).split("."), weft)
        yield aten, function


def _elementwise(apply: Callable[..., Any], count: int) -> Callable[[Node], Tensor]:
    """Return the rule of a function of tensors of one dtype, which is that of its result."""

    def rule(node: Node) -> Tensor:
        dtype = node.common_dtype(count) if node.dtype() == "bool" else node.dtype()
        return apply(*(typed(x, dtype) for x in node.operands(count)))

    return rule


def _comparison(apply: Callable[..., Any]) -> Callable[[Node], Tensor]:
    def rule(node: Node) -> Tensor:
        dtype = node.common_dtype()
        return apply(*(typed(x, dtype) for x in node.operands(2)))

    return rule


for _name, _apply in named(UNARY):
    lowers(_name)(_elementwise(_apply, 1))
for _name, _apply in named(BINARY):
    lowers(_name)(_elementwise(_apply, 2))
for _name, _apply in named(COMPARISONS):
    lowers(_name)(_comparison(_apply))
for _name, _apply in named(PREDICATES):
    lowers(_name)(lambda x, apply=_apply: apply(x))

lowers("isposinf")(lambda x: weft.equal(x, math.inf))
lowers("isneginf")(lambda x: weft.equal(x, -math.inf))
lowers("logit")(lambda x, eps: _logit(x, eps))
lowers("log_sigmoid_forward")(lambda node, x: (weft.log_sigmoid(x), *node.zeros(1)))
lowers("rad2deg")(lambda node, x: weft.degrees(typed(x, node.dtype())))
lowers("deg2rad")(lambda node, x: weft.radians(typed(x, node.dtype())))
lowers("gelu")(lambda x, approximate: weft.gelu(x, approximate))
lowers("leaky_relu")(lambda x, negative_slope: weft.leaky_relu(x, negative_slope))
lowers("threshold")(lambda x, threshold, value: weft.where(x > threshold, x, value))
lowers("masked_fill")(lambda node, x, mask, value: weft.where(mask, typed(value, node.dtype()), x))


@lowers("special_zeta")
def zeta(node: Node, x: Tensor, y: Tensor) -> Tensor:
    """Return Hurwitz's zeta function; below 0 the terms to the left of it come in.

    There are real ones for integers x only.
    """
    x, q = weft.broadcast_arrays(typed(x, node.dtype()), typed(y, node.dtype()))
    above = q - weft.floor(q)
    below = weft.special.zeta(x, 1 - above) - weft.special.zeta(x, 1 - q)
    sign = 1 - 2 * weft.mod(x, 2)
    is_real = weft.equal(x, weft.floor(x)) | weft.equal(above, 0)
    left = weft.special.zeta(x, above) + weft.where(weft.equal(above, 0), 0, sign * below)
    return weft.where(q < 0, weft.where(is_real, left, math.nan), weft.special.zeta(x, q))


@lowers("exp2")
def exp2(node: Node, x: Tensor) -> Tensor:
    """Return powers of two, which weft has of real numbers."""
    x = typed(x, node.dtype())
    return weft.exp(x * math.log(2)) if "complex" in node.dtype() else weft.exp2(x)


lowers("ldexp")(lambda node, x, y: typed(x, node.dtype()) * exp2(node, y))
lowers("special_polygamma polygamma")(
    lambda node, n, x: weft.special.polygamma(n, typed(x, node.dtype()))
)
lowers("mvlgamma")(
    lambda node, x, p: sum(
        (weft.lgamma(typed(x, node.dtype()) - j / 2) for j in range(p)),
        start=typed(p * (p - 1) / 4 * math.log(math.pi), node.dtype()),
    )
)
lowers("frexp")(lambda x: weft.frexp(x))
lowers("special_airy_ai")(lambda node, x: weft.special.airy(typed(x, node.dtype()))[0])
lowers("nan_to_num")(
    lambda node, x, nan, posinf, neginf: (
        weft.nan_to_num(x, nan or 0.0, posinf, neginf) if is_inexact(node.dtype()) else x
    )
)
lowers("lerp")(lambda node, x, end, weight: _lerp(x, end, typed(weight, node.dtype())))
lowers("prelu _prelu_kernel")(lambda x, weight: weft.where(x > 0, x, x * weight))
lowers("addcmul")(
    lambda node, x, tensor1, tensor2, value: _scaled(node, x, value, tensor1, tensor2)
)
lowers("addcdiv")(
    lambda node, x, tensor1, tensor2, value: _scaled(node, x, value, tensor1, 1 / tensor2)
)


def _scaled(node: Node, x: Tensor, value: Any, *factors: Tensor) -> Tensor:
    return typed(x, node.dtype()) + math.prod(factors, start=typed(value, node.dtype()))


def _lerp(x: Tensor, end: Tensor, weight: Tensor) -> Tensor:
    """Of the two formulas that agree, the one that is exact at its end, as ATen does."""
    size = weft.absolute(weight) < 0.5
    return weft.where(size, x + weight * (end - x), end - (end - x) * (1 - weight))


def _logit(x: Tensor, eps: float | None) -> Tensor:
    x = x if eps is None else weft.clip(x, eps, 1 - eps)
    return weft.log(x / (1 - x))


@lowers("round.decimals")
def round_decimals(x: Tensor, decimals: int) -> Tensor:
    """Round to a number of decimals."""
    scale = 10.0 ** abs(decimals)
    return weft.round(x * scale) / scale if decimals >= 0 else weft.round(x / scale) * scale


@lowers("add sub rsub")
def add(node: Node, x: Tensor, y: Tensor, alpha: Any = 1) -> Tensor:
    """Add or subtract a multiple."""
    x, y = typed(x, node.dtype()), typed(y, node.dtype())
    if node.name == "rsub":
        x, y = y, x
    y = y if alpha == 1 else y * typed(alpha, node.dtype())
    if node.dtype() == "bool":
        return weft.logical_or(x, y)
    return x + y if node.name == "add" else x - y


@lowers("div.Tensor_mode div.Scalar_mode")
def div_mode(node: Node, x: Tensor, y: Tensor, rounding_mode: str | None) -> Tensor:
    """Divide, and round down or to zero."""
    x, y = typed(x, node.dtype()), typed(y, node.dtype())
    if rounding_mode is None:
        return x / y
    if rounding_mode == "floor":
        return weft.floordivide(x, y)
    if is_inexact(node.dtype()):
        return weft.trunc(x / y)
    down = weft.floordivide(x, y)
    is_above = weft.logical_and(weft.not_equal(down * y, x), down < 0)
    return weft.where(is_above, down + 1, down)


@lowers("fmax fmin")
def fmax(node: Node, x: Tensor, y: Tensor) -> Tensor:
    """Return the larger or smaller number, where NaN is none."""
    x, y = typed(x, node.dtype()), typed(y, node.dtype())
    found = (weft.maximum if node.name == "fmax" else weft.minimum)(x, y)
    if not is_inexact(node.dtype()):
        return found
    return weft.where(weft.isnan(x), y, weft.where(weft.isnan(y), x, found))


@lowers("where")
def where(node: Node, condition: Tensor, x: Tensor = 1, y: Tensor = 0) -> Tensor:
    """Choose elements."""
    return weft.where(condition, typed(x, node.dtype()), typed(y, node.dtype()))


@lowers("clamp clamp_min clamp_max hardtanh")
def clamp(
    node: Node,
    x: Tensor,
    min: Any = None,
    max: Any = None,
    min_val: Any = None,
    max_val: Any = None,
) -> Tensor:
    """Limit numbers from below and above."""
    x = typed(x, node.dtype())
    low, high = min if min_val is None else min_val, max if max_val is None else max_val
    x = x if low is None else weft.maximum(x, typed(low, node.dtype()))
    return x if high is None else weft.minimum(x, typed(high, node.dtype()))


@lowers("elu")
def elu(x: Tensor, alpha: float, scale: float, input_scale: float) -> Tensor:
    """Scale numbers above 0, and exponentials below."""
    below = weft.expm1(weft.minimum(x, 0.0) * input_scale) * (alpha * scale)
    return weft.where(x > 0, x * scale, below)


@lowers("isclose")
def isclose(x: Tensor, y: Tensor, rtol: float, atol: float, equal_nan: bool) -> Tensor:
    """Compare within tolerances."""
    return weft.isclose(x, y, rtol, atol, equal_nan)


@lowers(
    "clone alias detach lift_fresh_copy lift_fresh _to_copy contiguous positive view_of "
    "prims.device_put.default prims.convert_element_type.default"
)
def same(node: Node, x: Tensor = None, a: Tensor = None) -> Tensor:
    """Return a tensor as it is, or its real part, for the result to be cast."""
    given = a if x is None else x
    is_cut = given.dtype.kind == "c" and "complex" not in node.dtype()
    return weft.real(given) if is_cut else given


lowers("copy")(lambda node, src: weft.broadcast(typed(src, node.dtype()), node.shape()))
lowers("view.dtype")(lambda node, x: weft.bitcast(x, node.dtype()))
lowers("heaviside")(
    lambda node, x, values: weft.where(
        weft.isnan(x) if is_inexact(node.dtype()) else weft.zeros((), "bool"),
        x,
        weft.where(weft.equal(x, 0), values, typed(x > 0, node.dtype())),
    )
)
