"""How the ops are computed in C, in any of its dialects."""

from __future__ import annotations

from typing import Any

import weft_c
from weft_special.ops import HistogramOp, LambertOp, SmoothOp

LAMBERT = weft_c.Expression(
    "{factor} * special_lambert_{type}({0})",
    helpers="""
FUNCTION {type} special_lambert_{type}({type} x) {
    {type} w = log1p(x);
    for (i32 turn = 0; turn < 10; turn++) w = (w * w + x * exp(-w)) / (w + 1);
    return w;
}
""",
    vectors=["float32"],
)


def smooth_rule(op: SmoothOp, lowering: weft_c.Lowering) -> None:
    """Smooth the rows in parallel."""
    builder = lowering.kernel("smooth")
    x = builder.array("x", lowering.args[0])
    out = builder.array("out", lowering.out, written=True)
    *rows, length = lowering.out.shape
    code = builder.code

    def row(at: tuple[str, ...], emitter: weft_c.ValueEmitter) -> None:
        keep, rest = (emitter.constant(value, op.dtype) for value in (op.keep, 1 - op.keep))
        total = code.define(emitter.type(op.dtype), "total", "0")
        with code.loop(builder.index_type, "t", 0, length):
            code.line(f"{total} = {keep} * {total} + {rest} * {x.get(*at, 't')};")
            code.line(out.set(total, *at, "t"))

    weft_c.parallel_for(builder, rows, row, cost=length)


COUNT = """
FUNCTION void special_count(GLOBAL u32 *place) {
    u32 seen = *(volatile GLOBAL u32 *)place, found;
    for (;; seen = found) {
        found = ATOMIC_CAS_U32(place, seen, seen + 1);
        if (found == seen) return;
    }
}
"""


def histogram_rule(op: HistogramOp, lowering: weft_c.Lowering) -> None:
    """Clear the counts, then add to them."""
    clearing = lowering.kernel("clear")
    cleared = clearing.array("out", lowering.out, written=True)
    weft_c.parallel_for(
        clearing, lowering.out.shape, lambda at, _: clearing.code.line(cleared.set("0", *at))
    )
    counting = lowering.kernel("count")
    x = counting.array("x", lowering.args[0])
    out = counting.array("out", lowering.out, written=True)
    counting.code.add_helpers(COUNT)

    def point(at: tuple[str, ...], emitter: weft_c.ValueEmitter) -> None:
        value = counting.code.define("const i32", "value", x.get(*at))
        place = out.at(value)
        counting.code.line(f"if ({value} >= 0 && {value} < {op.bins}) special_count({place});")

    weft_c.parallel_for(counting, lowering.args[0].shape, point)


def add_rules(rules: Any) -> None:
    """Add the rules to the table."""
    rules.add(LambertOp, LAMBERT)
    rules.add(SmoothOp, smooth_rule)
    rules.add(HistogramOp, histogram_rule)
