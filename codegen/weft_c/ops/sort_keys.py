"""Sort keys: unsigned integers in the order of values; NaN is the greatest, 0 equals -0."""

from __future__ import annotations

from weft.ir.dtypes import DType
from weft_c.lowering import KernelBuilder
from weft_c.source.code import Code
from weft_c.source.values import register_type
from weft_tiling.lines import sort_key_dtype


def sort_key_type(dtype: DType) -> str:
    """Return the C type of the sort keys of a dtype."""
    return register_type(sort_key_dtype(dtype))


def sort_key(code: Code, dtype: DType, value: str, descending: bool = False) -> str:
    """Return the sort key of a value, in reverse order if `descending`."""
    rank = code.call(f"weft_rank_{register_type(dtype)}", value)
    return f"~{rank}" if descending else rank


def reduce_highest_key(
    builder: KernelBuilder, types: tuple[str, str], rank: str, place: str
) -> None:
    """Write the reduction of a group's sort keys to the highest one, with its first position.

    The results are in ``ranks[0]`` and ``places[0]`` in local memory, of the given types. A barrier
    must precede the next write to them.
    """
    code, group = builder.code, builder.processor.group
    for type_, hint in zip(types, ("ranks", "places"), strict=True):
        code.declare(f"LOCAL {type_} {hint}[{group}];")
    code.line(f"ranks[LOCAL_ID] = {rank};")
    code.line(f"places[LOCAL_ID] = {place};")
    code.line("BARRIER();")
    with code.block(f"for (i32 reach = {group // 2}; reach > 0; reach /= 2)"):
        with code.block("if (LOCAL_ID < reach)"):
            code.line("const i32 other = LOCAL_ID + reach;")
            better = (
                "ranks[other] > ranks[LOCAL_ID] || (ranks[other] == ranks[LOCAL_ID] && "
                "places[other] < places[LOCAL_ID])"
            )
            with code.block(f"if ({better})"):
                code.line("ranks[LOCAL_ID] = ranks[other];")
                code.line("places[LOCAL_ID] = places[other];")
        code.line("BARRIER();")
