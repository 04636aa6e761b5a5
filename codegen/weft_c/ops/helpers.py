"""Helper functions in C of this package's rules: Philox, sort keys, sorting, atomics."""

from __future__ import annotations

import itertools

from weft_c.source.helpers import FLOATS, INTEGERS, helper

# Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3; 2011).
helper(
    "weft_philox",
    """\
FUNCTION void weft_philox(u32 *words, u32 low, u32 high) {
    #pragma unroll
    for (i32 turn = 0; turn < 10; turn++) {
        u64 first = (u64)words[0] * 0xD2511F53u, second = (u64)words[2] * 0xCD9E8D57u;
        words[0] = (u32)(second >> 32) ^ words[1] ^ low;
        words[1] = (u32)second;
        words[2] = (u32)(first >> 32) ^ words[3] ^ high;
        words[3] = (u32)first;
        low += 0x9E3779B9u;
        high += 0xBB67AE85u;
    }
}
""",
)

# A sort key is an unsigned integer in the order of the values: NaN is the greatest, 0 equals -0.
for _type in INTEGERS:
    _rank = "u64" if _type.endswith("64") else "u32"
    _top = f"(({_rank})1 << {int(_rank[1:]) - 1})"
    _value = f"({_rank})x ^ {_top}" if _type[0] == "i" else "x"
    helper(
        f"weft_rank_{_type}",
        f"FUNCTION {_rank} weft_rank_{_type}({_type} x) {{ return {_value}; }}\n",
    )
for _type, _rank, _top, _nan in (
    ("f32", "u32", "0x80000000u", "0xffc00000u"),
    ("f64", "u64", "0x8000000000000000ul", "0xfff8000000000000ul"),
):
    _signed = _rank.replace("u", "i")
    helper(
        f"weft_rank_{_type}",
        f"FUNCTION {_rank} weft_rank_{_type}({_type} x) {{\n"
        f"    {_signed} bits = AS_{_signed.upper()}(x + 0);\n"
        f"    {_signed} ordered = bits ^ ((bits >> {int(_rank[1:]) - 1}) & ~{_top});\n"
        f"    return x != x ? {_nan} : ({_rank})ordered ^ {_top};\n}}\n",
    )

# Sorts keys stably, with their positions; returns whether the result is in the spare memory.
# Up to 64 keys are sorted by insertion, more by a radix sort with digits of 8 bits.
for _rank, _place in itertools.product(("u32", "u64"), ("i32", "i64")):
    helper(
        f"weft_sort_{_rank}_{_place}",
        f"""\
FUNCTION bool weft_sort_{_rank}_{_place}(GLOBAL {_rank} *ranks, GLOBAL {_place} *places,
    GLOBAL {_rank} *spare, GLOBAL {_place} *spare_places, {_place} n) {{
    bool is_spare = false;
    for ({_place} i = 1; n <= 64 && i < n; i++) {{
        {_rank} rank = ranks[i];
        {_place} place = places[i], j = i;
        for (; j > 0 && ranks[j - 1] > rank; j--) {{
            ranks[j] = ranks[j - 1];
            places[j] = places[j - 1];
        }}
        ranks[j] = rank;
        places[j] = place;
    }}
    for (i32 shift = 0; n > 64 && shift < {_rank[1:]}; shift += 8) {{
        {_place} begin[256], total = 0;
        for (i32 digit = 0; digit < 256; digit++) begin[digit] = 0;
        for ({_place} i = 0; i < n; i++) begin[(ranks[i] >> shift) & 255]++;
        if (begin[(ranks[0] >> shift) & 255] == n) continue;
        for (i32 digit = 0; digit < 256; digit++) {{
            {_place} count = begin[digit];
            begin[digit] = total;
            total += count;
        }}
        for ({_place} i = 0; i < n; i++) {{
            {_place} at = begin[(ranks[i] >> shift) & 255]++;
            spare[at] = ranks[i];
            spare_places[at] = places[i];
        }}
        GLOBAL {_rank} *other = ranks;
        GLOBAL {_place} *other_places = places;
        ranks = spare, places = spare_places;
        spare = other, spare_places = other_places;
        is_spare = !is_spare;
    }}
    return is_spare;
}}
""",
    )

for _type in FLOATS:
    helper(
        f"weft_logaddexp_{_type}",
        f"FUNCTION {_type} weft_logaddexp_{_type}({_type} x, {_type} y) {{\n"
        f"    if (x == y) return x + ({_type})0.6931471805599453;\n"
        f"    {_type} d = x - y;\n"
        "    return d != d ? d : (d > 0 ? x : y) + log1p(exp(-fabs(d)));\n}\n",
    )

_EXTREMUM = {"max": ">", "min": "<"}


def _combined(reduction: str, kind: str) -> str:
    if reduction in _EXTREMUM:
        is_nan = " | (x != x)" if kind in FLOATS else ""
        return f"((x {_EXTREMUM[reduction]} y){is_nan}) ? x : y"
    unsigned = kind.replace("i", "u")
    sign = "+" if reduction == "add" else "*"
    return f"({unsigned})x {sign} ({unsigned})y"


def _atomic(reduction: str, kind: str) -> str:
    """Return the body of an atomic update: a native one or a compare-and-swap loop."""
    word = f"u{kind[1:]}"
    from_bits, to_bits = f"({kind})seen", f"({word})sum"
    if kind in FLOATS:
        from_bits, to_bits = f"AS_{kind.upper()}(seen)", f"AS_{word.upper()}(sum)"
    loop = (
        f"    {word} seen = *(volatile GLOBAL {word} *)place, found;\n"
        "    for (;; seen = found) {\n"
        f"        {kind} x = {from_bits};\n"
        f"        {kind} sum = ({kind})({_combined(reduction, kind)});\n"
        f"        found = ATOMIC_CAS_{word.upper()}(place, seen, {to_bits});\n"
        "        if (found == seen) return;\n    }\n"
    )
    if reduction != "add":
        return loop
    cast = kind if kind in FLOATS else word
    direct = f"    ATOMIC_ADD((GLOBAL {cast} *)place, ({cast})y);\n"
    return f"#ifdef ATOMIC_ADD\n{direct}#else\n{loop}#endif\n"


# Atomic read-modify-write of a number in memory.
for _type in ("i32", "u32", "f32", "i64", "u64", "f64"):
    for _reduction in ("add", "mul", "max", "min"):
        helper(
            f"weft_atomic_{_reduction}_{_type}",
            f"FUNCTION void weft_atomic_{_reduction}_{_type}(GLOBAL {_type} *place, {_type} y) {{\n"
            f"{_atomic(_reduction, _type)}}}\n",
        )
