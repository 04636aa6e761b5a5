"""WGSL: how dtypes are stored and computed with, and the expressions of elementwise ops.

A storage buffer is an array of words. WGSL has no pointer casts, and none of the types below 32
bits in memory, so elements are taken out of words and put back with shifts. A value of a small
integer is an i32 or u32 that is wrapped around after each op.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import Op, ops

COMPUTED = {
    "bool": "bool",
    "float32": "f32",
    "int8": "i32",
    "int16": "i32",
    "int32": "i32",
    "uint8": "u32",
    "uint16": "u32",
    "uint32": "u32",
    "int64": "i64",
    "uint64": "u64",
    "float16": "f32",
    "bfloat16": "f32",
}
"""The type in which values of a dtype are computed."""

WIDE = ("int64", "uint64")
ROUNDED = {"float16": "half", "bfloat16": "bfloat"}
"""The dtypes that are computed as f32 and rounded after each op, and the helpers for them."""


def type_of(dtype: Any) -> str:
    """Return the type that values of a dtype have in a function."""
    return COMPUTED[dtype.name]


def literal(value: Any, dtype: Any) -> str:
    """Return a constant.

    NaN and infinities are no constant expressions in WGSL, so they are variables. A zero is opaque,
    or compilers take x + 0 for x, which it is not if x is -0.
    """
    kind = type_of(dtype)
    if kind == "bool":
        return "true" if value else "false"
    if kind == "f32":
        number = float(np.float32(value))
        if math.isnan(number):
            return "bitcast<f32>(NAN_BITS)"
        if math.isinf(number):
            return "bitcast<f32>(INF_BITS)" if number > 0 else "(-bitcast<f32>(INF_BITS))"
        if number == 0:
            return f"opaque({number!r})"
        return f"f32({number!r})"
    number = int(value)
    if kind == "i64":
        return f"i64_of({number & 0xFFFFFFFF}u, {number >> 32 & 0xFFFFFFFF}u)"
    if kind == "u64":
        return f"u64_of({number & 0xFFFFFFFF}u, {number >> 32}u)"
    if kind == "u32":
        return f"{number}u"
    return "i32(-2147483647 - 1)" if number == -(2**31) else f"i32({number})"


def load(name: str, index: str, dtype: Any) -> str:
    """Return an element, by its index counted in elements from the beginning of the buffer.

    `name` is a function that returns a word.
    """
    bits = 8 * dtype.itemsize
    if dtype.name in WIDE:
        return f"{type_of(dtype)}_of({name}(2 * ({index})), {name}(2 * ({index}) + 1))"
    if bits == 32:
        return f"bitcast<{type_of(dtype)}>({name}({index}))"
    per, shift = 32 // bits, f"u32(({index}) % {32 // bits}) * {bits}u"
    word = f"{name}(({index}) / {per})"
    if dtype.name == "bool":
        return f"(extractBits({word}, {shift}, {bits}u) != 0u)"
    if dtype.kind == "i":
        return f"extractBits(bitcast<i32>({word}), {shift}, {bits}u)"
    found = f"extractBits({word}, {shift}, {bits}u)"
    if dtype.name in ROUNDED:
        return f"{ROUNDED[dtype.name]}_value({found})"
    return found


def bits_of(value: str, dtype: Any) -> str:
    """Return the bits of a value as a u32, for a dtype of at most 32 bits."""
    if dtype.name == "bool":
        return f"select(0u, 1u, {value})"
    if dtype.name in ROUNDED:
        return f"{ROUNDED[dtype.name]}_bits({value})"
    return f"bitcast<u32>({value})" if type_of(dtype) != "u32" else value


def store(name: str, index: str, value: str, dtype: Any) -> str:
    """Return the statement that stores an element; its neighbors in a word stay."""
    if dtype.name in WIDE:
        low, high = f"u32({value} & {literal(0xFFFFFFFF, dtype)})", f"u32({value} >> 32u)"
        if dtype.kind == "i":
            high = f"u32(({value} >> 32u) & {literal(0xFFFFFFFF, dtype)})"
        return f"set_{name}(2 * ({index}), {low}); set_{name}(2 * ({index}) + 1, {high});"
    bits = 8 * dtype.itemsize
    if bits == 32:
        return f"set_{name}({index}, {bits_of(value, dtype)});"
    per, mask = 32 // bits, (1 << bits) - 1
    shift = f"(u32(({index}) % {per}) * {bits}u)"
    return (
        f"put_{name}(({index}) / {per}, {mask}u << {shift}, "
        f"({bits_of(value, dtype)} & {mask}u) << {shift});"
    )


def wrapped(dtype: Any, value: str) -> str:
    """Return a value wrapped around to the width of its dtype."""
    bits = 8 * dtype.itemsize
    if dtype.kind in "iu" and bits < 32:
        return f"extractBits({value}, 0u, {bits}u)"
    if dtype.name in ROUNDED:
        return f"{ROUNDED[dtype.name]}_value({ROUNDED[dtype.name]}_bits({value}))"
    return value


def cast(value: str, source: Any, target: Any) -> str:
    """Return a value converted to another dtype.

    An i32 is made wider by hand: `i64(x) < 2` was false for an x of 1 in Mesa 22.3.
    """
    if source == target:
        return value
    here, there = type_of(source), type_of(target)
    if there == "bool":
        return f"({value} != {literal(0, source)})"
    if here == "bool":
        return f"select({literal(0, target)}, {literal(1, target)}, {value})"
    if here == "f32" and target.kind in "iu" and there == "u32":
        return wrapped(target, f"u32_of({value})")
    if here == "f32" and there == "u64":
        return f"u64(i64({value}))"
    if here == "i32" and there in ("i64", "u64"):
        return f"{there}_of(bitcast<u32>({value}), bitcast<u32>({value} >> 31u))"
    return wrapped(target, value if here == there else f"{there}({value})")


Expression = Callable[[Any, Sequence[str]], str]
"""Of an op and the names of its operands' values."""


def _arithmetic(sign: str) -> Expression:
    return lambda op, args: wrapped(op.dtype, f"({args[0]} {sign} {args[1]})")


def _called(name: str) -> Expression:
    """Call a helper, of which there is one for each type."""
    return lambda op, args: wrapped(
        op.dtype, f"{name}_{type_of(op.args[0].dtype)}({', '.join(args)})"
    )


def _bitwise(sign: str) -> Expression:
    def write(op: Any, args: Sequence[str]) -> str:
        x, y = args
        if op.dtype.name == "bool" and sign == "^":
            return f"({x} != {y})"
        return f"({x} {sign} {y})"

    return write


def equal(dtype: Any, x: str, y: str) -> str:
    """Compare; by the bits of NaN too, since compilers of WGSL may take x == x for true."""
    return f"equal_f32({x}, {y})" if type_of(dtype) == "f32" else f"({x} == {y})"


def larger(dtype: Any, x: str, y: str) -> str:
    """Return whether a value is larger than another; NaN is larger than any number."""
    kind = type_of(dtype)
    if kind == "f32":
        return f"(!is_nan({y}) & (is_nan({x}) | ({x} > {y})))"
    return f"({x} & !{y})" if kind == "bool" else f"({x} > {y})"


def _less(op: Any, args: Sequence[str]) -> str:
    x, y = args
    return f"(!{x} & {y})" if op.args[0].dtype.name == "bool" else f"({x} < {y})"


def maximum(dtype: Any, x: str, y: str) -> str:
    """Return the larger of two values; NaN if either is."""
    kind = type_of(dtype)
    if kind == "bool":
        return f"({x} | {y})"
    return f"maximum_f32({x}, {y})" if kind == "f32" else f"max({x}, {y})"


def combined(reduction: str, dtype: Any, x: str, y: str) -> str:
    """Return two values combined: ``add``, ``mul``, ``max``, ``min`` or ``logaddexp``."""
    if reduction == "max":
        return maximum(dtype, x, y)
    if reduction == "min":
        return minimum(dtype, x, y)
    if reduction == "logaddexp":
        return f"logaddexp_f32({x}, {y})"
    return wrapped(dtype, f"({x} {'+' if reduction == 'add' else '*'} {y})")


def minimum(dtype: Any, x: str, y: str) -> str:
    """Return the smaller of two values; NaN if either is."""
    kind = type_of(dtype)
    if kind == "bool":
        return f"({x} & {y})"
    return f"minimum_f32({x}, {y})" if kind == "f32" else f"min({x}, {y})"


def _absolute(op: Any, args: Sequence[str]) -> str:
    return args[0] if op.dtype.kind == "u" else wrapped(op.dtype, f"abs({args[0]})")


def _shift(sign: str) -> Expression:
    def write(op: Any, args: Sequence[str]) -> str:
        kind, bits = type_of(op.dtype), 8 * op.dtype.itemsize
        x, y = args
        zero, width = literal(0, op.dtype), literal(bits, op.dtype)
        outside = f"(({y} < {zero}) | ({y} >= {width}))"
        count = f"u32(select({y}, {zero}, {outside}))"
        rest = f"({x} >> {bits - 1}u)" if sign == ">>" and kind[0] == "i" else zero
        return wrapped(op.dtype, f"select({x} {sign} {count}, {rest}, {outside})")

    return write


EXPRESSIONS: dict[type[Op], Expression] = {
    ops.AbsoluteOp: _absolute,
    ops.AddOp: _arithmetic("+"),
    ops.AtanOp: _called("arctan"),
    ops.BitwiseAndOp: _bitwise("&"),
    ops.BitwiseOrOp: _bitwise("|"),
    ops.BitwiseXorOp: _bitwise("^"),
    ops.CastOp: lambda op, args: cast(args[0], op.args[0].dtype, op.dtype),
    ops.CosOp: _called("cosine"),
    ops.DivideOp: _arithmetic("/"),
    ops.EqualOp: lambda op, args: equal(op.args[0].dtype, *args),
    ops.ExpOp: _called("exponential"),
    ops.FloorDivideOp: _called("floor_divide"),
    ops.FloorOp: lambda op, args: f"floor({args[0]})" if op.dtype.kind == "f" else args[0],
    ops.LessOp: _less,
    ops.LogOp: _called("logarithm"),
    ops.MaximumOp: lambda op, args: maximum(op.dtype, *args),
    ops.ModOp: _called("modulo"),
    ops.MultiplyOp: _arithmetic("*"),
    ops.PowerOp: _called("power"),
    ops.ShiftLeftOp: _shift("<<"),
    ops.ShiftRightOp: _shift(">>"),
    ops.SinOp: _called("sine"),
    ops.SqrtOp: lambda op, args: wrapped(op.dtype, f"square_root({args[0]})"),
    ops.SubtractOp: _arithmetic("-"),
    ops.TanhOp: _called("tangent"),
    ops.WhereOp: lambda op, args: f"select({args[2]}, {args[1]}, {args[0]})",
}
"""How each elementwise op is written."""


def find_expression(op: Op) -> Expression | None:
    """Return what writes an op, which its class or the nearest base class decides."""
    return next((EXPRESSIONS[kind] for kind in type(op).__mro__ if kind in EXPRESSIONS), None)


INTEGER_HELPERS = """\
fn floor_divide_T(x: T, y: T) -> T {
  if (y == T(0)) { return T(0); }
  SIGNED if (y == T(-1)) { return T(0) - x; }
  let q = x / y;
  SIGNED if ((x % y != T(0)) & ((x < T(0)) != (y < T(0)))) { return q - T(1); }
  return q;
}
fn modulo_T(x: T, y: T) -> T {
  if (y == T(0)) { return T(0); }
  SIGNED if (y == T(-1)) { return T(0); }
  let r = x % y;
  SIGNED if ((r != T(0)) & ((r < T(0)) != (y < T(0)))) { return r + y; }
  return r;
}
fn power_T(x: T, y: T) -> T {
  SIGNED if (y < T(0)) {
  SIGNED   if (x == T(1)) { return x; }
  SIGNED   if (x == T(-1)) { return select(x, T(1), y % T(2) == T(0)); }
  SIGNED   return T(0);
  SIGNED }
  var result = T(1);
  var base = x;
  var left = y;
  while (left != T(0)) {
    if (left % T(2) != T(0)) { result = result * base; }
    base = base * base;
    left = left / T(2);
  }
  return result;
}
"""
"""Helpers of integers, with T for the type; lines that begin with SIGNED are for signed ones."""

WIDE_HELPERS = """\
fn u64_of(low: u32, high: u32) -> u64 { return (u64(high) << 32u) | u64(low); }
fn i64_of(low: u32, high: u32) -> i64 { return i64(u64_of(low, high)); }
fn rank_u64(x: u64) -> u64 { return x; }
fn rank_i64(x: i64) -> u64 { return u64(x) ^ u64_of(0u, 0x80000000u); }
"""

VARIABLES = """\
var<private> INF_BITS: u32 = 0x7f800000u;
var<private> NAN_BITS: u32 = 0x7fc00000u;
var<private> zero: u32;
"""
"""`zero` is 0 at run time, which no compiler knows."""

HELPERS = """\
fn opaque(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) | zero); }
fn equal_f32(x: f32, y: f32) -> bool { return (x == y) & !is_nan(x) & !is_nan(y); }
fn is_nan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }
fn is_inf(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) == 0x7f800000u; }
fn half_value(x: u32) -> f32 {
  let e = (x >> 10u) & 31u;
  let m = x & 1023u;
  let s = (x & 0x8000u) << 16u;
  if (e == 31u) { return bitcast<f32>(s | 0x7f800000u | (m << 13u)); }
  if (e == 0u) { return bitcast<f32>(s | bitcast<u32>(f32(m) * 5.9604644775390625e-8)); }
  return bitcast<f32>(s | ((e + 112u) << 23u) | (m << 13u));
}
fn half_bits(x: f32) -> u32 {
  let b = bitcast<u32>(x);
  let s = (b >> 16u) & 0x8000u;
  let a = b & 0x7fffffffu;
  if (a > 0x7f800000u) { return s | 0x7e00u; }
  if (a >= 0x477ff000u) { return s | 0x7c00u; }
  if (a < 0x38800000u) { return s | u32(round(bitcast<f32>(a) * 16777216.0)); }
  return s | ((a - 0x38000000u + 0xfffu + ((a >> 13u) & 1u)) >> 13u);
}
fn bfloat_value(x: u32) -> f32 { return bitcast<f32>(x << 16u); }
fn bfloat_bits(x: f32) -> u32 {
  let b = bitcast<u32>(x);
  if ((b & 0x7fffffffu) > 0x7f800000u) { return (b >> 16u) | 0x40u; }
  return (b + 0x7fffu + ((b >> 16u) & 1u)) >> 16u;
}
fn high_product(x: u32, y: u32) -> u32 {
  let low = (x & 0xffffu) * (y & 0xffffu);
  let one = (x >> 16u) * (y & 0xffffu) + (low >> 16u);
  let two = (x & 0xffffu) * (y >> 16u) + (one & 0xffffu);
  return (x >> 16u) * (y >> 16u) + (one >> 16u) + (two >> 16u);
}
fn philox(counter: vec4<u32>, given: vec2<u32>) -> vec4<u32> {
  var c = counter;
  var key = given;
  for (var i = 0; i < 10; i++) {
    let first = c.x;
    let second = c.z;
    c = vec4<u32>(
      high_product(second, 0xCD9E8D57u) ^ c.y ^ key.x, second * 0xCD9E8D57u,
      high_product(first, 0xD2511F53u) ^ c.w ^ key.y, first * 0xD2511F53u);
    key = key + vec2<u32>(0x9E3779B9u, 0xBB67AE85u);
  }
  return c;
}
fn u32_of(x: f32) -> u32 {
  if (x < 0.0) { return bitcast<u32>(i32(x)); }
  return u32(x);
}
fn product_error(x: f32, y: f32, p: f32) -> f32 {
  let a = bitcast<f32>(bitcast<u32>(x) & 0xfffff000u);
  let b = bitcast<f32>(bitcast<u32>(y) & 0xfffff000u);
  return ((opaque(a * b) - p) + a * (y - b) + (x - a) * b) + (x - a) * (y - b);
}
fn maximum_f32(x: f32, y: f32) -> f32 {
  if (is_nan(x)) { return x; }
  if (is_nan(y)) { return y; }
  return select(y, x, x > y);
}
fn minimum_f32(x: f32, y: f32) -> f32 {
  if (is_nan(x)) { return x; }
  if (is_nan(y)) { return y; }
  return select(y, x, x < y);
}
fn logaddexp_f32(x: f32, y: f32) -> f32 {
  let most = maximum_f32(x, y);
  if (is_nan(most) | is_inf(most)) { return most; }
  let e = exponential_f32(minimum_f32(x, y) - most);
  let u = opaque(1.0 + e);
  if (u == 1.0) { return most + e; }
  return most + (logarithm_f32(u) - (opaque(u - 1.0) - e) / u);
}
fn rank_f32(x: f32) -> u32 {
  if (is_nan(x)) { return 0xffffffffu; }
  if (x == 0.0) { return 0x80000000u; }
  let b = bitcast<u32>(x);
  return select(b | 0x80000000u, ~b, b >> 31u == 1u);
}
fn rank_bool(x: bool) -> u32 { return select(0u, 1u, x); }
fn rank_u32(x: u32) -> u32 { return x; }
fn rank_i32(x: i32) -> u32 { return bitcast<u32>(x) ^ 0x80000000u; }
fn square_root(x: f32) -> f32 {
  if (x < 0.0) { return bitcast<f32>(NAN_BITS); }
  if ((x == 0.0) | is_inf(x) | is_nan(x)) { return x; }
  let s = sqrt(x);
  return s + 0.5 * fma(-s, s, x) / s;
}
fn scaled(x: f32, n: i32) -> f32 {
  let half = n / 2;
  return x * bitcast<f32>(u32(half + 127) << 23u) * bitcast<f32>(u32(n - half + 127) << 23u);
}
fn exponential_f32(x: f32) -> f32 {
  if (is_nan(x)) { return x; }
  if (x > 89.0) { return bitcast<f32>(INF_BITS); }
  if (x < -104.0) { return 0.0; }
  let n = round(x * 1.44269504);
  let r = (x - n * 0.693359375) + n * 2.12194440e-4;
  var p = 1.98412698e-4;
  p = fma(p, r, 1.38888889e-3);
  p = fma(p, r, 8.33333333e-3);
  p = fma(p, r, 4.16666667e-2);
  p = fma(p, r, 1.66666667e-1);
  p = fma(p, r, 0.5);
  return scaled(1.0 + fma(p * r, r, r), i32(n));
}
fn logarithm_f32(given: f32) -> f32 {
  if (is_nan(given) | (given < 0.0)) { return bitcast<f32>(NAN_BITS); }
  if (given == 0.0) { return -bitcast<f32>(INF_BITS); }
  if (is_inf(given)) { return given; }
  var x = given;
  var e = 0.0;
  if (x < 1.17549435e-38) { x = x * 8388608.0; e = -23.0; }
  let bits = bitcast<u32>(x);
  e = e + f32(i32(bits >> 23u) - 127);
  var m = bitcast<f32>((bits & 0x7fffffu) | 0x3f800000u);
  if (m > 1.41421356) { m = 0.5 * m; e = e + 1.0; }
  let f = m - 1.0;
  let s = f / (2.0 + f);
  let z = s * s;
  var p = 0.111111111;
  p = fma(p, z, 0.142857143);
  p = fma(p, z, 0.2);
  p = fma(p, z, 0.333333333);
  let tail = fma(2.0 * s * z, p, e * -2.12194440e-4);
  return e * 0.693359375 + (2.0 * s + tail);
}
fn sine_near(r: f32) -> f32 {
  let z = r * r;
  var p = 2.75573192e-6;
  p = fma(p, z, -1.98412698e-4);
  p = fma(p, z, 8.33333333e-3);
  p = fma(p, z, -0.166666667);
  return r + r * z * p;
}
fn cosine_near(r: f32) -> f32 {
  let z = r * r;
  var p = -2.75573192e-7;
  p = fma(p, z, 2.48015873e-5);
  p = fma(p, z, -1.38888889e-3);
  p = fma(p, z, 4.16666667e-2);
  p = fma(p, z, -0.5);
  return 1.0 + z * p;
}
fn turned(x: f32, quarter: i32) -> f32 {
  if (is_nan(x) | is_inf(x)) { return bitcast<f32>(NAN_BITS); }
  let n = round(x * 0.636619772);
  let r = ((x - n * 1.5703125) - n * 0.0004835128784) - n * 3.138557076e-07 - n * 6.077100628e-11;
  let q = (i32(n % 4.0) + quarter) & 3;
  let value = select(sine_near(r), cosine_near(r), (q & 1) == 1);
  return clamp(select(value, -value, q >= 2), -1.0, 1.0);
}
fn sine_f32(x: f32) -> f32 { return select(turned(x, 0), x, x == 0.0); }
fn cosine_f32(x: f32) -> f32 { return turned(x, 1); }
fn tangent_f32(x: f32) -> f32 {
  if (is_nan(x)) { return x; }
  let a = abs(x);
  if (a < 0.25) {
    let z = x * x;
    var p = -8.86323553e-3;
    p = fma(p, z, 2.18694885e-2);
    p = fma(p, z, -5.39682540e-2);
    p = fma(p, z, 0.133333333);
    p = fma(p, z, -0.333333333);
    return x + x * z * p;
  }
  let t = 1.0 - 2.0 / (exponential_f32(2.0 * min(a, 20.0)) + 1.0);
  return select(t, -t, x < 0.0);
}
fn arctan_f32(x: f32) -> f32 {
  if (is_nan(x)) { return x; }
  var a = abs(x);
  var base = 0.0;
  var sign = 1.0;
  if (a > 1.0) { base = 1.57079633; sign = -1.0; a = select(1.0 / a, 0.0, is_inf(a)); }
  if (a > 0.414213562) { base = base + sign * 0.785398163; a = (a - 1.0) / (a + 1.0); }
  let z = a * a;
  var p = 5.88235294e-2;
  p = fma(p, z, -6.66666667e-2);
  p = fma(p, z, 7.69230769e-2);
  p = fma(p, z, -9.09090909e-2);
  p = fma(p, z, 0.111111111);
  p = fma(p, z, -0.142857143);
  p = fma(p, z, 0.2);
  p = fma(p, z, -0.333333333);
  let t = base + sign * fma(a * z, p, a);
  return select(t, -t, x < 0.0);
}
fn modulo_f32(x: f32, y: f32) -> f32 {
  if (is_nan(x) | is_nan(y) | is_inf(x) | (y == 0.0)) { return bitcast<f32>(NAN_BITS); }
  if (is_inf(y)) { return select(x, y, (x != 0.0) & ((x < 0.0) != (y < 0.0))); }
  var r = fma(-trunc(x / y), y, x);
  if ((r != 0.0) & ((r < 0.0) != (y < 0.0))) { r = r + y; }
  if (abs(r) >= abs(y)) { r = r - y; }
  return r;
}
fn floor_divide_f32(x: f32, y: f32) -> f32 {
  if (y == 0.0) { return x / y; }
  if (is_inf(y) & !is_inf(x) & !is_nan(x)) {
    return select(0.0, -1.0, (x != 0.0) & ((x < 0.0) != (y < 0.0)));
  }
  if (is_nan(x) | is_nan(y) | is_inf(x)) { return bitcast<f32>(NAN_BITS); }
  return round((x - modulo_f32(x, y)) / y);
}
fn power_f32(x: f32, y: f32) -> f32 {
  if ((y == 0.0) | (x == 1.0)) { return 1.0; }
  if (is_nan(x) | is_nan(y)) { return bitcast<f32>(NAN_BITS); }
  let a = abs(x);
  let inf = bitcast<f32>(INF_BITS);
  let is_whole = floor(y) == y;
  let is_odd = is_whole & (abs(y) < 16777216.0) & (floor(0.5 * y) != 0.5 * y);
  if ((x < 0.0) & !is_inf(x) & !is_inf(y) & !is_whole) { return bitcast<f32>(NAN_BITS); }
  var value = 0.0;
  if (a == 1.0) { value = 1.0; }
  else if (is_inf(y)) { value = select(0.0, inf, (a > 1.0) == (y > 0.0)); }
  else if ((a == 0.0) | is_inf(a)) { value = select(0.0, inf, (a == 0.0) == (y < 0.0)); }
  else if (is_whole & (abs(y) <= 64.0)) {
    var base = a;
    var left = i32(abs(y));
    value = 1.0;
    while (left != 0) {
      if ((left & 1) == 1) { value = value * base; }
      base = base * base;
      left = left >> 1u;
    }
    if (y < 0.0) { value = 1.0 / value; }
  }
  else { value = exponential_f32(y * logarithm_f32(a)); }
  return select(value, -value, (bitcast<u32>(x) >> 31u == 1u) & is_odd);
}
"""
"""Functions that WGSL lacks, or that it defines to fewer digits than a float has.

Parts of constants are short, so that their products are exact: `fma` need not be fused. Sines are
good to about 2 ** 17; nothing finds the remainder of larger numbers.
"""


def _functions() -> dict[str, str]:
    """Return the text of each helper by its name."""
    text = [HELPERS, WIDE_HELPERS]
    for kind in ("i32", "u32", "i64", "u64"):
        lines = INTEGER_HELPERS.replace("T", kind).splitlines(keepends=True)
        is_signed = kind[0] == "i"
        text += [
            line.replace("SIGNED ", "")
            for line in lines
            if is_signed or not line.lstrip().startswith("SIGNED")
        ]
    parts = re.split(r"^(?=fn )", "".join(text), flags=re.MULTILINE)
    return {part[3 : part.index("(")]: part for part in parts if part}


FUNCTIONS = _functions()
_CALL = re.compile(r"\b\w+(?=\()")


def prelude(body: str) -> str:
    """Return the helpers that a text calls, and those that they call."""
    found: dict[str, str] = {}
    waiting = [body]
    while waiting:
        for name in _CALL.findall(waiting.pop()):
            if name in FUNCTIONS and name not in found:
                found[name] = FUNCTIONS[name]
                waiting.append(FUNCTIONS[name])
    return VARIABLES + "".join(text for name, text in FUNCTIONS.items() if name in found)
