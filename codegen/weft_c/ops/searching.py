"""The lowering rule of searchsorted."""

from __future__ import annotations

from weft.ops.reductions import sorting
from weft_c.loops.parallel import parallel_for
from weft_c.lowering import Lowering, rules
from weft_c.ops.sort_keys import sort_key, sort_key_type
from weft_c.source.index_types import index_type, is_wide
from weft_c.source.values import ValueEmitter


@rules.on_type(sorting.SearchSortedOp)
def search_sorted_rule(op: sorting.SearchSortedOp, lowering: Lowering) -> None:
    """Write a binary search for each value."""
    ordered, values = lowering.args
    builder = lowering.kernel("search sorted")
    code, kind = builder.code, index_type(is_wide(ordered))
    vector, x = builder.array("ordered", ordered), builder.array("values", values)
    out = builder.array("out", lowering.out, written=True)
    type_, sign = sort_key_type(ordered.dtype), "<" if op.side == "left" else "<="

    def body(at: tuple[str, ...], emitter: ValueEmitter) -> None:
        wanted = code.define(f"const {type_}", "wanted", sort_key(code, x.dtype, x.get(*at)))
        low = code.define(kind, "low", "0")
        high = code.define(kind, "high", str(ordered.size))
        with code.block(f"while ({low} < {high})"):
            middle = code.define(f"const {kind}", "middle", f"{low} + ({high} - {low}) / 2")
            rank = sort_key(code, vector.dtype, vector.get(middle))
            code.line(f"if ({rank} {sign} {wanted}) {low} = {middle} + 1; else {high} = {middle};")
        code.line(out.set(low, *at))

    parallel_for(builder, values.shape, body, wide=is_wide(values), cost=16)
