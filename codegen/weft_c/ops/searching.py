"""The rule for places in a sorted vector."""

from __future__ import annotations

from weft.ops import sorting
from weft_c.loops.parallel import each_point
from weft_c.lowering import Lowering, rules
from weft_c.ops.sort_keys import rank_of, rank_type
from weft_c.source.index_types import index_kind, is_wide
from weft_c.source.values import Form


@rules.on_type(sorting.SearchSortedOp)
def search_sorted_rule(op: sorting.SearchSortedOp, lowering: Lowering) -> None:
    """Halve the stretch that is left to search."""
    ordered, values = lowering.args
    writing = lowering.kernel("search sorted")
    code, kind = writing.code, index_kind(is_wide(ordered))
    vector, x = writing.array("ordered", ordered), writing.array("values", values)
    out = writing.array("out", lowering.out, written=True)
    type_, sign = rank_type(ordered.dtype), "<" if op.side == "left" else "<="

    def body(at: tuple[str, ...], form: Form) -> None:
        places = at[: len(values.shape)]
        wanted = code.define(f"const {type_}", "wanted", rank_of(code, x.dtype, x.get(*places)))
        low = code.define(kind, "low", "0")
        high = code.define(kind, "high", str(ordered.size))
        with code.block(f"while ({low} < {high})"):
            middle = code.define(f"const {kind}", "middle", f"{low} + ({high} - {low}) / 2")
            rank = rank_of(code, vector.dtype, vector.get(middle))
            code.line(f"if ({rank} {sign} {wanted}) {low} = {middle} + 1; else {high} = {middle};")
        code.line(out.set(low, *places))

    each_point(writing, values.shape, body, wide=is_wide(values), cost=16)
