"""Lowering rules of gathers; an index out of range is reported and reads the first element."""

from __future__ import annotations

from weft.ops.indexing import gathering
from weft_c.loops.parallel import parallel_for
from weft_c.loops.vectorized_access import vectorized_move
from weft_c.lowering import Array, KernelBuilder, Lowering, rules
from weft_c.ops.indices import AFTER, checked_index, indexing, report_out_of_range
from weft_c.ops.views import bits
from weft_c.source.index_types import index_type, is_wide
from weft_c.source.values import ValueEmitter


@rules.on_type(gathering.TakeOp)
def take_rule(op: gathering.TakeOp, lowering: Lowering) -> None:
    """Gather slices; the index is read once for a row where slices have several elements."""
    x, indices = lowering.args
    if not x.size:
        _take_nothing(lowering)
        return
    indexed = indexing(bits(x), op.position, indices, bits(lowering.out))
    builder = lowering.kernel("take")
    wide = is_wide(x, lowering.out)
    source = builder.array("x", indexed.tensor)
    target = builder.array("out", indexed.elements, written=True)
    index = builder.array("index", indexed.indices)
    shape = indexed.elements.shape
    by_rows = indexed.roles[-1:] == (AFTER,)
    known: list[str] = []
    if by_rows:
        shape, source, target = vectorized_move(builder, shape, source, target)

    def row(at: tuple[str, ...]) -> None:
        known[:] = [_read_index(op, builder, index, (*at, "0"), index_type(wide))]

    def body(at: tuple[str, ...], emitter: ValueEmitter) -> None:
        if not by_rows:
            known[:] = [_read_index(op, builder, index, at, index_type(wide))]
        builder.code.line(target.set(source.get(*at, *known), *at))

    parallel_for(builder, shape, body, row=row if by_rows else None, wide=wide)


@rules.on_type(gathering.TakeAlongAxisOp)
def take_along_axis_rule(op: gathering.TakeAlongAxisOp, lowering: Lowering) -> None:
    """Gather the element at the index of each point."""
    x, indices, out = bits(lowering.args[0]), lowering.args[1], bits(lowering.out)
    if not x.size:
        _take_nothing(lowering)
        return
    builder = lowering.kernel("take along axis")
    wide = is_wide(x, indices, out)
    source, target = builder.array("x", x), builder.array("out", out, written=True)
    index = builder.array("index", indices)

    def body(at: tuple[str, ...], emitter: ValueEmitter) -> None:
        source_indices = list(at)
        source_indices[op.position] = _read_index(op, builder, index, at, index_type(wide))
        builder.code.line(target.set(source.get(*source_indices), *at))

    parallel_for(builder, out.shape, body, wide=wide)


def _take_nothing(lowering: Lowering) -> None:
    if lowering.out.size:
        report_out_of_range(lowering, "take")


def _read_index(
    op: gathering.IndexedOp, builder: KernelBuilder, index: Array, at: tuple[str, ...], kind: str
) -> str:
    """Write the index that is read, clamped to 0 if it is out of range."""
    checked = checked_index(op, builder, index, at, kind)
    if op.args[1].is_constant:
        return checked
    return builder.code.define(f"const {kind}", "read", f"{checked} < 0 ? 0 : {checked}")
