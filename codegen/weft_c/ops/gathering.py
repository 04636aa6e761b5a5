"""Rules for elements taken by index; an index out of range takes the first element."""

from __future__ import annotations

from weft.ops import gathering
from weft_c.loops.parallel import each_point
from weft_c.loops.vectorised_access import moved_in_bundles
from weft_c.lowering import Array, Lowering, Writing, rules
from weft_c.ops.indices import AFTER, indexing, place_of, report_all
from weft_c.ops.views import bits
from weft_c.source.index_types import index_kind, is_wide
from weft_c.source.values import Form


@rules.on_type(gathering.TakeOp)
def take_rule(op: gathering.TakeOp, lowering: Lowering) -> None:
    """Take what lies at an index, which is read once for a row where it means more than a point."""
    x, indices = lowering.args
    if not x.size:
        _take_nothing(lowering)
        return
    found = indexing(bits(x), op.position, indices, bits(lowering.out))
    writing = lowering.kernel("take")
    wide = is_wide(x, lowering.out)
    source = writing.array("x", found.tensor)
    target = writing.array("out", found.elements, written=True)
    index = writing.array("index", found.indices)
    shape = found.elements.shape
    rank, by_rows = len(found.roles), found.roles[-1:] == (AFTER,)
    known: list[str] = []
    if by_rows:
        shape, source, target = moved_in_bundles(writing, shape, source, target)

    def row(at: tuple[str, ...]) -> None:
        known[:] = [_read_place(op, writing, index, (*at, "0"), index_kind(wide))]

    def body(at: tuple[str, ...], form: Form) -> None:
        places = at[:rank]
        if not by_rows:
            known[:] = [_read_place(op, writing, index, places, index_kind(wide))]
        writing.code.line(target.set(source.get(*places, *known), *places))

    each_point(writing, shape, body, row=row if by_rows else None, wide=wide)


@rules.on_type(gathering.TakeAlongAxisOp)
def take_along_axis_rule(op: gathering.TakeAlongAxisOp, lowering: Lowering) -> None:
    """Take what lies at the index of each point."""
    x, indices, out = bits(lowering.args[0]), lowering.args[1], bits(lowering.out)
    if not x.size:
        _take_nothing(lowering)
        return
    writing = lowering.kernel("take along axis")
    wide = is_wide(x, indices, out)
    source, target = writing.array("x", x), writing.array("out", out, written=True)
    index = writing.array("index", indices)

    def body(at: tuple[str, ...], form: Form) -> None:
        places = list(at)
        places[op.position] = _read_place(op, writing, index, at, index_kind(wide))
        writing.code.line(target.set(source.get(*places), *at))

    each_point(writing, out.shape, body, wide=wide)


def _take_nothing(lowering: Lowering) -> None:
    if lowering.out.size:
        report_all(lowering, "take")


def _read_place(
    op: gathering.IndexedOp, writing: Writing, index: Array, at: tuple[str, ...], kind: str
) -> str:
    """Write the place that is read."""
    place = place_of(op, writing, index, at, kind)
    if op.args[1].is_constant:
        return place
    return writing.code.define(f"const {kind}", "read", f"{place} < 0 ? 0 : {place}")
