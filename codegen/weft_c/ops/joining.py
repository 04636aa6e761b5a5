"""Rules for tensors put together, and slices put into tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from weft.ir.description import TensorDescription
from weft.ops import dynamic_slices, indexing, joining
from weft_c.loops.parallel import each_point
from weft_c.loops.vectorised_access import moved_in_bundles
from weft_c.lowering import Array, Lowering, Writing, rules
from weft_c.ops.copies import copy
from weft_c.ops.spreading import launch, spread, work_items
from weft_c.ops.views import bits, bits_of, joined
from weft_c.source.index_types import index_kind, is_wide
from weft_c.source.values import Form, literal

TOGETHER = 16
"""The most operands that one kernel puts together."""

Span = tuple[str | int, int, int]
"""Start, length and step of a slice along one dimension; a start may be known at a call only."""


@rules.on_type(joining.ConcatOp)
def concat_rule(op: joining.ConcatOp, lowering: Lowering) -> None:
    """Copy each operand into its part."""
    out = bits(lowering.out)
    parts = [
        (bits(arg), out.slice(bounds))
        for arg, bounds in zip(lowering.args, op.parts(), strict=True)
        if arg.size
    ]
    for first in range(0, len(parts), TOGETHER):
        _copy_all(lowering, parts[first : first + TOGETHER])


def _copy_all(
    lowering: Lowering, parts: Sequence[tuple[TensorDescription, TensorDescription]]
) -> None:
    writing = lowering.kernel("concat")
    moved = []
    for whole_source, whole_target in parts:
        (source, target), _ = joined(whole_source, whole_target)
        x = writing.array("x", source)
        out = writing.array("out", target, written=True)
        kind = index_kind(is_wide(source, target))
        moved.append((kind, *moved_in_bundles(writing, source.shape, x, out)))
    items = work_items(sum(prod(shape) for _, shape, _, _ in moved), writing)
    for kind, shape, x, out in moved:

        def body(at: tuple[str, ...], x: Array = x, out: Array = out) -> None:
            places = at[: len(x.strides)]
            writing.code.line(out.set(x.get(*places), *places))

        spread(writing, shape, items, body, kind)
    launch(writing, items)


@rules.on_type(joining.PadOp)
def pad_rule(op: joining.PadOp, lowering: Lowering) -> None:
    """Choose between the operand and the constant."""
    out, x = bits(lowering.out), bits(lowering.args[0])
    fill = literal(bits_of(op.fill, op.dtype), out.dtype)
    writing = lowering.kernel("pad")
    _put(writing, out, x, op.inner_bounds(op.args[0].axes), lambda at: fill)


@rules.on_type(indexing.UpdateSliceOp)
def update_slice_rule(op: indexing.UpdateSliceOp, lowering: Lowering) -> None:
    """Write the slice, into a copy of the first operand unless it is in place."""
    x, update, out = map(bits, (*lowering.args, lowering.out))
    if x == out or x.shape == update.shape:
        copy(lowering, update, out.slice(op.bounds))
        return
    writing = lowering.kernel("update slice")
    old = writing.array("x", x)
    _put(writing, out, update, op.bounds, lambda at: old.get(*at), x)


@rules.on_type(dynamic_slices.DynamicSliceOp)
def dynamic_slice_rule(op: dynamic_slices.DynamicSliceOp, lowering: Lowering) -> None:
    """Copy the block."""
    x, out = bits(lowering.args[0]), bits(lowering.out)
    writing = lowering.kernel("dynamic slice")
    wide = is_wide(x, out)
    starts = _starts(op, writing, index_kind(wide))
    source, target = writing.array("x", x), writing.array("out", out, written=True)
    shape = out.shape
    if starts[-1:] == [0]:
        shape, source, target = moved_in_bundles(writing, shape, source, target)

    def body(at: tuple[str, ...], form: Form) -> None:
        places = at[: len(shape)]
        moved = map(_sum, places, starts)
        writing.code.line(target.set(source.get(*moved), *places))

    each_point(writing, shape, body, wide=wide)


@rules.on_type(dynamic_slices.DynamicUpdateSliceOp)
def dynamic_update_slice_rule(op: dynamic_slices.DynamicUpdateSliceOp, lowering: Lowering) -> None:
    """Write the block, into a copy of the first operand unless it is in place."""
    x, update, out = map(bits, (*lowering.args[:2], lowering.out))
    writing = lowering.kernel("dynamic update slice")
    wide = is_wide(x, update)
    starts = _starts(op, writing, index_kind(wide))
    if x != out:
        old = writing.array("x", x)
        spans: list[Span] = [
            (start, length, 1) for start, length in zip(starts, update.shape, strict=True)
        ]
        _put(writing, out, update, spans, lambda at: old.get(*at), x)
        return
    source, target = writing.array("update", update), writing.array("out", out, written=True)
    shape = update.shape
    if starts[-1:] == [0]:
        shape, source, target = moved_in_bundles(writing, shape, source, target)

    def body(at: tuple[str, ...], form: Form) -> None:
        places = at[: len(shape)]
        writing.code.line(target.set(source.get(*places), *map(_sum, places, starts)))

    each_point(writing, shape, body, wide=wide)


def _put(
    writing: Writing,
    out: TensorDescription,
    update: TensorDescription,
    spans: Sequence[Span],
    other: Callable[[tuple[str, ...]], str],
    *read: TensorDescription,
) -> None:
    """Write a kernel that puts an update into slices, and something else beside them."""
    code = writing.code
    target = writing.array("out", out, written=True)
    wide = is_wide(out, update, *read)
    kind, rank = index_kind(wide), len(out.shape)
    if not update.size:
        each_point(
            writing,
            out.shape,
            lambda at, form: code.line(target.set(other(at[:rank]), *at[:rank])),
            wide=wide,
        )
        return
    source = writing.array("update", update)
    outside: list[str] = []
    found: list[str] = []

    def look(places: Sequence[str], first: int) -> tuple[list[str], list[str]]:
        """Return what tells that a point lies in the slices, and its places there."""
        tests, inner = [], []
        for number, place in enumerate(places, first):
            test, at = _inside(place, spans[number], out.shape[number])
            tests.extend(test)
            inner.append(at)
        return tests, inner

    def row(at: tuple[str, ...]) -> None:
        tests, found[:] = look(at, 0)
        outside[:] = [code.define(f"const {kind}", "inside", " && ".join(tests))] if tests else []

    def body(at: tuple[str, ...], form: Form) -> None:
        places = at[:rank]
        tests, inner = look(places[-1:], max(rank - 1, 0))
        tests = [*outside, *tests]
        new = source.get(*found, *inner)
        chosen = f"({' && '.join(tests)}) ? {new} : {other(places)}" if tests else new
        code.line(target.set(chosen, *places))

    each_point(writing, out.shape, body, row=row, wide=wide)


def _inside(place: str, span: Span, size: int) -> tuple[list[str], str]:
    """Return tests of whether a place lies in a slice of a dimension, and where in that.

    The slice is not empty.
    """
    start, length, step = span
    if size == 1:
        return [], place
    if step == 1:
        if start == 0 and length == size:
            return [], place
        below = [] if start == 0 else [f"{place} >= {start}"]
        at = place if start == 0 else f"({place} - {start})"
        beyond = [] if isinstance(start, int) and start + length == size else [f"{at} < {length}"]
        return [*below, *beyond], at
    assert isinstance(start, int), "only slices of neighbours begin where a call says"
    low, high = sorted((start, start + (length - 1) * step))
    tests = [f"{place} >= {low}", f"{place} <= {high}", f"({place} - {low}) % {abs(step)} == 0"]
    at = f"({place} - {low}) / {abs(step)}"
    return tests, f"({at})" if step > 0 else f"({length - 1} - {at})"


def _starts(op: dynamic_slices.DynamicBlockOp, writing: Writing, kind: str) -> list[str | int]:
    """Write where a block begins, moved as little as needed for all of it to lie inside."""
    args = writing.lowering.args
    given = args[len(args) - len(args[0].shape) :] if args[0].shape else ()
    found: list[str | int] = []
    for start, size, length in zip(given, args[0].shape, op.lengths(), strict=True):
        room = size - length
        if not room:
            found.append(0)
            continue
        value = writing.code.define(
            f"const {'u64' if start.dtype.kind == 'u' else 'i64'}",
            "start",
            writing.array("start", start).get(),
        )
        low = f"{value} < 0 ? 0 : " if start.dtype.kind == "i" else ""
        moved = f"({kind})({low}{value} > {room} ? {room} : {value})"
        found.append(writing.code.define(f"const {kind}", "first", moved))
    return found


def _sum(place: str, start: str | int) -> str:
    return place if start == 0 else f"({place} + {start})"
