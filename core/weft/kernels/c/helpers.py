"""Functions in C that kernels call; a program contains those that it needs, by their names.

The text of the bits of 16-bit floats follows IEEE 754: ties to even, subnormals kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

INTEGERS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
FLOATS = ("f32", "f64")

HELPERS: dict[str, str] = {
    "weft_half_value": """\
FUNCTION f32 weft_half_value(u16 half_bits) {
    u32 sign = (u32)(half_bits & 0x8000) << 16, rest = (u32)(half_bits & 0x7fff) << 13;
    u32 exponent = rest & 0x0f800000u;
    u32 normal = rest + (exponent == 0x0f800000u ? 0x70000000u : 0x38000000u);
    f32 subnormal = AS_F32(rest + 0x38800000u) - AS_F32(0x38800000u);
    return AS_F32(sign | (exponent ? normal : AS_U32(subnormal)));
}
""",
    "weft_half_bits": """\
FUNCTION u16 weft_half_bits(f32 x) {
    u32 bits = AS_U32(x), sign = (bits >> 16) & 0x8000u;
    bits &= 0x7fffffffu;
    u32 normal = (bits + 0xc8000fffu + ((bits >> 13) & 1u)) >> 13;
    u32 subnormal = AS_U32(AS_F32(bits) + 0.5f) - 0x3f000000u;
    u32 large = bits > 0x7f800000u ? 0x7e00u : 0x7c00u;
    u32 rounded = bits < 0x38800000u ? subnormal : normal;
    return (u16)(sign | (bits >= 0x47800000u ? large : rounded));
}
""",
    "weft_bfloat_value": """\
FUNCTION f32 weft_bfloat_value(u16 bits) { return AS_F32((u32)bits << 16); }
""",
    "weft_bfloat_bits": """\
FUNCTION u16 weft_bfloat_bits(f32 x) {
    u32 bits = AS_U32(x);
    u32 rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return (u16)(x != x ? (bits >> 16) | 0x40u : rounded);
}
""",
    "weft_half_round": """\
FUNCTION f32 weft_half_round(f32 x) { return weft_half_value(weft_half_bits(x)); }
""",
    "weft_bfloat_round": """\
FUNCTION f32 weft_bfloat_round(f32 x) { return weft_bfloat_value(weft_bfloat_bits(x)); }
""",
}

for _type in INTEGERS:
    _signed = _type[0] == "i"
    _wide = "i64" if _signed else "u64"
    _adjust = " if (r && ((r < 0) != (y < 0))) {fix}" if _signed else ""
    _overflow = f"    if (y == -1) return ({_type})(0 - ({_wide.replace('i', 'u')})x);\n"
    HELPERS[f"weft_floordiv_{_type}"] = (
        f"FUNCTION {_type} weft_floordiv_{_type}({_type} x, {_type} y) {{\n"
        "    if (y == 0) return 0;\n"
        + (_overflow if _signed else "")
        + f"    {_type} q = x / y, r = x % y;\n   {_adjust.format(fix='q -= 1;')}\n"
        "    return q;\n}\n"
    )
    HELPERS[f"weft_mod_{_type}"] = (
        f"FUNCTION {_type} weft_mod_{_type}({_type} x, {_type} y) {{\n"
        "    if (y == 0) return 0;\n"
        + ("    if (y == -1) return 0;\n" if _signed else "")
        + f"    {_type} r = x % y;\n   {_adjust.format(fix='r += y;')}\n"
        "    return r;\n}\n"
    )
    _negative = (
        "    if (power < 0) return base == 1 ? 1 : base == -1 ? (power & 1 ? -1 : 1) : 0;\n"
        if _signed
        else ""
    )
    HELPERS[f"weft_power_{_type}"] = (
        f"FUNCTION {_type} weft_power_{_type}({_type} base, {_type} power) {{\n{_negative}"
        "    u64 result = 1, factor = (u64)base, rest = (u64)power;\n"
        "    for (; rest; rest >>= 1) {\n"
        "        if (rest & 1) result *= factor;\n        factor *= factor;\n    }\n"
        f"    return ({_type})result;\n}}\n"
    )
    _bits = int(_type[1:])
    HELPERS[f"weft_left_{_type}"] = (
        f"FUNCTION {_type} weft_left_{_type}({_type} x, {_type} count) {{\n"
        f"    return count >= 0 && count < {_bits} ? ({_type})((u64)x << count) : ({_type})0;\n}}\n"
    )
    _rest = f"({_type})(x < 0 ? -1 : 0)" if _signed else f"({_type})0"
    HELPERS[f"weft_right_{_type}"] = (
        f"FUNCTION {_type} weft_right_{_type}({_type} x, {_type} count) {{\n"
        f"    return count >= 0 && count < {_bits} ? ({_type})(x >> count) : {_rest};\n}}\n"
    )

for _type in FLOATS:
    # The quotient is made from the exact remainder, as Python and NumPy do.
    HELPERS[f"weft_mod_{_type}"] = (
        f"FUNCTION {_type} weft_mod_{_type}({_type} x, {_type} y) {{\n"
        f"    {_type} r = fmod(x, y);\n"
        "    if (r != 0 && (r < 0) != (y < 0)) return r + y;\n"
        f"    return r == 0 ? copysign(({_type})0, y) : r;\n}}\n"
    )
    HELPERS[f"weft_floordiv_{_type}"] = (
        f"FUNCTION {_type} weft_floordiv_{_type}({_type} x, {_type} y) {{\n"
        "    if (y == 0) return x / y;\n"
        f"    {_type} r = fmod(x, y), q = (x - r) / y;\n"
        "    if (r != 0 && (r < 0) != (y < 0)) q -= 1;\n"
        f"    if (q == 0) return copysign(({_type})0, x / y);\n"
        f"    {_type} whole = floor(q);\n"
        f"    return q - whole > ({_type})0.5 ? whole + 1 : whole;\n}}\n"
    )

# Drivers' tanh takes ten times as long as exp, and is NaN at infinity in some. The polynomial near
# 0 is that of tanhf in S. Moshier's Cephes library.
for _type in ("f32", "f32x16"):
    HELPERS[f"weft_tanh_{_type}"] = (
        f"FUNCTION {_type} weft_tanh_{_type}({_type} x) {{\n"
        f"    {_type} size = fabs(x), square = x * x;\n"
        f"    {_type} series = square * -5.70498872745e-3f + 2.06390887954e-2f;\n"
        "    series = series * square - 5.37397155531e-2f;\n"
        "    series = series * square + 1.33314422036e-1f;\n"
        "    series = series * square - 3.33332819422e-1f;\n"
        f"    {_type} near = x * (1.0f + square * series);\n"
        f"    {_type} far = copysign(1.0f - 2.0f / (exp(2.0f * size) + 1.0f), x);\n"
        "    return size < 0.625f ? near : far;\n}\n"
    )
HELPERS["weft_tanh_f64"] = """\
FUNCTION f64 weft_tanh_f64(f64 x) { return fabs(x) > 40 ? copysign((f64)1, x) : tanh(x); }
"""

_CALLED = re.compile(r"\bweft_\w+")


def closure(names: Iterable[str]) -> list[str]:
    """Return helpers and those that they call, each once, after those that it calls."""
    found: dict[str, None] = {}

    def visit(name: str) -> None:
        for other in _CALLED.findall(HELPERS[name]):
            if other != name:
                visit(other)
        found[name] = None

    for name in sorted(set(names)):
        visit(name)
    return list(found)
