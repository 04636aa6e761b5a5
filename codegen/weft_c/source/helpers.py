"""Helper functions in C; a program contains those that its kernels call.

Conversions of 16-bit floats follow IEEE 754: ties to even, with subnormals.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

INTEGERS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
FLOATS = ("f32", "f64")


@dataclass(frozen=True)
class Helper:
    """A helper function's text, and the names of the helpers that it calls."""

    text: str
    calls: tuple[str, ...] = ()


HELPERS: dict[str, Helper] = {}
"""The helpers by name."""


def helper(name: str, text: str, *calls: str) -> None:
    """Register a helper; `calls` are the names of the helpers that it calls."""
    HELPERS[name] = Helper(text, calls)


for _type in ("i32", "u32"):
    # NVRTC 12.8 to 13.3 compiles minima and maxima of three integers wrongly for compute capability
    # 9.0 if one is a negation: the negation comes too late. In this form it recognizes none.
    helper(
        f"weft_negated_{_type}",
        f"FUNCTION {_type} weft_negated_{_type}({_type} x) {{\n"
        "#ifdef __CUDA_ARCH__\n"
        "    u32 inverted;\n"
        '    asm("not.b32 %0, %1;" : "=r"(inverted) : "r"(x));\n'
        f"    return ({_type})(inverted + 1u);\n"
        "#else\n"
        f"    return ({_type})(0 - (u32)x);\n"
        "#endif\n}\n",
    )
helper(
    "weft_half_value",
    """\
FUNCTION f32 weft_half_value(u16 half_bits) {
    u32 sign = (u32)(half_bits & 0x8000) << 16, rest = (u32)(half_bits & 0x7fff) << 13;
    u32 exponent = rest & 0x0f800000u;
    u32 normal = rest + (exponent == 0x0f800000u ? 0x70000000u : 0x38000000u);
    f32 subnormal = AS_F32(rest + 0x38800000u) - AS_F32(0x38800000u);
    return AS_F32(sign | (exponent ? normal : AS_U32(subnormal)));
}
""",
)
helper(
    "weft_half_bits",
    """\
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
)
helper(
    "weft_bfloat_value",
    """\
FUNCTION f32 weft_bfloat_value(u16 bits) { return AS_F32((u32)bits << 16); }
""",
)
helper(
    "weft_bfloat_bits",
    """\
FUNCTION u16 weft_bfloat_bits(f32 x) {
    u32 bits = AS_U32(x);
    u32 rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return (u16)(x != x ? (bits >> 16) | 0x40u : rounded);
}
""",
)
helper(
    "weft_half_round",
    """\
FUNCTION f32 weft_half_round(f32 x) { return weft_half_value(weft_half_bits(x)); }
""",
    "weft_half_bits",
    "weft_half_value",
)
helper(
    "weft_bfloat_round",
    """\
FUNCTION f32 weft_bfloat_round(f32 x) { return weft_bfloat_value(weft_bfloat_bits(x)); }
""",
    "weft_bfloat_bits",
    "weft_bfloat_value",
)

# Rounded to odd, to be rounded to fewer bits once more as if it were exact (Boldo and Melquiond,
# Emulation of FMA and correctly rounded sums, 2008): what is dropped sets the last bit.
helper(
    "weft_odd_f64",
    """\
FUNCTION f32 weft_odd_f64(f64 x) {
    f32 near = (f32)x;
    u32 bits = AS_U32(near);
    if (x == x && near != x) bits = (bits - (fabs((f64)near) > fabs(x))) | 1u;
    return AS_F32(bits);
}
""",
)
helper(
    "weft_odd_u64",
    """\
FUNCTION f32 weft_odd_u64(u64 x) {
    i32 shift = x >> 52 ? 40 : x >> 38 ? 28 : x >> 24 ? 14 : 0;
    u64 dropped = x & (((u64)1 << shift) - 1);
    return (f32)((u32)(x >> shift) | (dropped != 0)) * (f32)((u64)1 << shift);
}
""",
)
helper(
    "weft_odd_i64",
    """\
FUNCTION f32 weft_odd_i64(i64 x) {
    return x < 0 ? -weft_odd_u64(0 - (u64)x) : weft_odd_u64((u64)x);
}
""",
    "weft_odd_u64",
)

# A conversion to an integer that is out of range is undefined in C, and a compiler that meets one
# of a constant may leave out what depends on it.
for _type, _suffix in (("f32", "f"), ("f64", "")):
    _least = "x >= -2147483648.0f" if _suffix else "x > -2147483649.0"
    helper(
        f"weft_i32_of_{_type}",
        f"FUNCTION i32 weft_i32_of_{_type}({_type} x) {{\n"
        f"    return {_least} && x < 2147483648.0{_suffix} ? (i32)x : -2147483647 - 1;\n}}\n",
    )
    _bound = f"9223372036854775808.0{_suffix}"
    helper(
        f"weft_i64_of_{_type}",
        f"FUNCTION i64 weft_i64_of_{_type}({_type} x) {{\n"
        f"    return x >= -{_bound} && x < {_bound} ? (i64)x : (i64)((u64)1 << 63);\n}}\n",
    )
    helper(
        f"weft_u64_of_{_type}",
        f"FUNCTION u64 weft_u64_of_{_type}({_type} x) {{\n"
        f"    if (!(x >= {_bound})) return (u64)weft_i64_of_{_type}(x);\n"
        f"    return x < 18446744073709551616.0{_suffix} ? (u64)x : 0;\n}}\n",
        f"weft_i64_of_{_type}",
    )

for _type in INTEGERS:
    _signed = _type[0] == "i"
    _wide = "i64" if _signed else "u64"
    _adjust = " if (r && ((r < 0) != (y < 0))) {fix}" if _signed else ""
    _overflow = f"    if (y == -1) return ({_type})(0 - ({_wide.replace('i', 'u')})x);\n"
    helper(
        f"weft_floordiv_{_type}",
        f"FUNCTION {_type} weft_floordiv_{_type}({_type} x, {_type} y) {{\n"
        "    if (y == 0) return 0;\n"
        + (_overflow if _signed else "")
        + f"    {_type} q = x / y, r = x % y;\n   {_adjust.format(fix='q -= 1;')}\n"
        "    return q;\n}\n",
    )
    helper(
        f"weft_mod_{_type}",
        f"FUNCTION {_type} weft_mod_{_type}({_type} x, {_type} y) {{\n"
        "    if (y == 0) return 0;\n"
        + ("    if (y == -1) return 0;\n" if _signed else "")
        + f"    {_type} r = x % y;\n   {_adjust.format(fix='r += y;')}\n"
        "    return r;\n}\n",
    )
    _negative = (
        "    if (power < 0) return base == 1 ? 1 : base == -1 ? (power & 1 ? -1 : 1) : 0;\n"
        if _signed
        else ""
    )
    helper(
        f"weft_power_{_type}",
        f"FUNCTION {_type} weft_power_{_type}({_type} base, {_type} power) {{\n{_negative}"
        "    u64 result = 1, factor = (u64)base, rest = (u64)power;\n"
        "    for (; rest; rest >>= 1) {\n"
        "        if (rest & 1) result *= factor;\n        factor *= factor;\n    }\n"
        f"    return ({_type})result;\n}}\n",
    )
    _bits = int(_type[1:])
    helper(
        f"weft_left_{_type}",
        f"FUNCTION {_type} weft_left_{_type}({_type} x, {_type} count) {{\n"
        f"    return count >= 0 && count < {_bits} ? ({_type})((u64)x << count) : ({_type})0;\n"
        "}\n",
    )
    _rest = f"({_type})(x < 0 ? -1 : 0)" if _signed else f"({_type})0"
    helper(
        f"weft_right_{_type}",
        f"FUNCTION {_type} weft_right_{_type}({_type} x, {_type} count) {{\n"
        f"    return count >= 0 && count < {_bits} ? ({_type})(x >> count) : {_rest};\n}}\n",
    )

for _type in FLOATS:
    # The quotient is made from the exact remainder, as Python and NumPy do.
    helper(
        f"weft_mod_{_type}",
        f"FUNCTION {_type} weft_mod_{_type}({_type} x, {_type} y) {{\n"
        f"    {_type} r = fmod(x, y);\n"
        "    if (r != 0 && (r < 0) != (y < 0)) return r + y;\n"
        f"    return r == 0 ? copysign(({_type})0, y) : r;\n}}\n",
    )
    helper(
        f"weft_floordiv_{_type}",
        f"FUNCTION {_type} weft_floordiv_{_type}({_type} x, {_type} y) {{\n"
        "    if (y == 0) return x / y;\n"
        f"    {_type} r = fmod(x, y), q = (x - r) / y;\n"
        "    if (r != 0 && (r < 0) != (y < 0)) q -= 1;\n"
        f"    if (q == 0) return copysign(({_type})0, x / y);\n"
        f"    {_type} whole = GUARDED(q == q, floor(q), q);\n"
        f"    return q - whole > ({_type})0.5 ? whole + 1 : whole;\n}}\n",
    )

# The tanh of drivers takes several times as long as exp; in some it is NaN at infinity. The
# coefficients
# of this quotient of polynomials are those that the library Eigen computes tanh of float32 with.
_NUMERATOR = (
    "-2.76076847742355e-16f", "2.00018790482477e-13f", "-8.60467152213735e-11f",
    "5.12229709037114e-08f", "1.48572235717979e-05f", "6.37261928875436e-04f",
    "4.89352455891786e-03f",
)  # fmt: skip
_DENOMINATOR = (
    "1.19825839466702e-06f", "1.18534705686654e-04f", "2.26843463243900e-03f",
    "4.89352518554385e-03f",
)  # fmt: skip


def _series(name: str, kind: str, coefficients: Iterable[str]) -> str:
    """Return the statements that evaluate a polynomial in ``square`` by Horner's scheme."""
    first, *others = (_splat(kind, each) for each in coefficients)
    lines = [f"    {kind} {name} = {first};\n"]
    lines += [f"    {name} = FMA({name}, square, {each});\n" for each in others]
    return "".join(lines)


def _splat(kind: str, number: str) -> str:
    return f"SPLAT({kind}, {number})" if "x" in kind else number


def _select(kind: str, condition: str, x: str, y: str) -> str:
    return f"SELECT({condition}, {x}, {y})" if "x" in kind else f"{condition} ? {x} : {y}"


for _type in ("f32", "f32x4", "f32x8", "f32x16"):
    _bounded = _select(_type, "size > 9.0f", f"copysign({_splat(_type, '9.0f')}, given)", "given")
    helper(
        f"weft_tanh_{_type}",
        f"FUNCTION {_type} weft_tanh_{_type}({_type} given) {{\n"
        f"    {_type} size = fabs(given);\n"
        f"    {_type} x = {_bounded};\n"
        f"    {_type} square = x * x;\n"
        + _series("top", _type, _NUMERATOR)
        + _series("bottom", _type, _DENOMINATOR)
        + f"    {_type} quotient = x * top / bottom;\n"
        f"    return {_select(_type, 'size < 4e-4f', 'given', 'quotient')};\n}}\n",
    )
helper(
    "weft_tanh_f64",
    """\
FUNCTION f64 weft_tanh_f64(f64 x) { return fabs(x) > 40 ? copysign((f64)1, x) : tanh(x); }
""",
)


def with_callees(names: Iterable[str]) -> list[str]:
    """Return helpers and their callees in topological order, callees first."""
    visited: dict[str, None] = {}

    def visit(name: str) -> None:
        for other in HELPERS[name].calls:
            visit(other)
        visited[name] = None

    for name in sorted(set(names)):
        visit(name)
    return list(visited)
