"""The lowering rule of fold: sums of overlapping windows."""

from __future__ import annotations

from contextlib import ExitStack

from weft.ir.dtypes import accumulator_dtype
from weft.nn.spatial import windows
from weft.nn.spatial.geometry import Span
from weft.nn.spatial.windows import is_whole
from weft_c.loops.parallel import parallel_for
from weft_c.lowering import Lowering, rules
from weft_c.ops.combining import combined
from weft_c.source.index_types import index_type, is_wide
from weft_c.source.values import ValueEmitter, literal


@rules.on_type(windows.FoldOp)
def fold_rule(op: windows.FoldOp, lowering: Lowering) -> None:
    """Sum the elements of all windows that cover an element of the result."""
    (x,) = lowering.args
    builder = lowering.kernel("fold")
    code, dtype = builder.code, accumulator_dtype(op.dtype)
    wide = is_wide(x, lowering.out)
    kind = index_type(wide)
    source = builder.array("x", x) if x.size else None
    out = builder.array("out", lowering.out, written=True)

    def body(at: tuple[str, ...], emitter: ValueEmitter) -> None:
        total = code.define(emitter.type(dtype), "total", literal(0, dtype))
        if source is not None:
            with ExitStack() as stack:
                window_indices: list[str] = []
                for number, (index, span) in enumerate(zip(at, op.spans, strict=True)):
                    size = lowering.out.shape[number]
                    window_indices += window_at(stack, index, span, size)
                value = emitter.converted(op.dtype, dtype, source.get(*window_indices))
                new = code.define(f"const {emitter.type(dtype)}", "value", value)
                code.line(f"{total} = {combined(code, 'add', dtype, total, new)};")
        code.line(out.set(emitter.converted(dtype, op.dtype, total), *at))

    def window_at(stack: ExitStack, place: str, span: Span, size: int) -> list[str]:
        """Write a loop over the windows that cover an index; returns window and element."""
        count, step, length, gap = span
        if is_whole(span, size):
            return [place, "0"] if length == 1 else ["0", place]
        element = code.name("k")
        stack.enter_context(code.loop(kind, element, 0, length))
        begin = code.define(f"const {kind}", "begin", f"{place} - {element} * {gap}")
        window = code.define(f"const {kind}", "window", f"{begin} / {step}")
        is_one = f"{begin} >= 0 && {window} < {count}"
        if step > 1:
            is_one += f" && {begin} % {step} == 0"
        stack.enter_context(code.block(f"if ({is_one})"))
        return [window, element]

    parallel_for(builder, lowering.out.shape, body, wide=wide, cost=4)
