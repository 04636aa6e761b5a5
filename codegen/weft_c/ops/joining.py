"""Lowering rules of concatenation, padding, and slice updates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from weft.ir.description import TensorDescription
from weft.ops.indexing import dynamic_slices, slicing
from weft.ops.indexing.slicing import Bounds
from weft.ops.shape import joining
from weft_c.loops.parallel import Body, parallel_for
from weft_c.loops.vectorized_access import vectorized_move
from weft_c.lowering import Array, KernelBuilder, Lowering, rules
from weft_c.ops.copies import copy, move, move_lanes
from weft_c.ops.views import bits, bits_of, collapse_dims
from weft_c.ops.work_sharing import launch, share_points, work_items
from weft_c.source.index_types import index_type, is_wide
from weft_c.source.values import ValueEmitter, literal

MAX_PARTS = 16
"""The most parts of a result that one kernel writes."""

Part = tuple[TensorDescription | str, TensorDescription]
"""A part of a result, and what it is a copy of, or the value that fills it."""

Span = tuple[str | int, int, int]
"""Start, length and step of a slice along one dimension; dynamic starts are expressions."""


@rules.on_type(joining.ConcatOp)
def concat_rule(op: joining.ConcatOp, lowering: Lowering) -> None:
    """Copy each operand to its slice of the result."""
    out = bits(lowering.out)
    parts = zip(map(bits, lowering.args), map(out.slice, op.parts()), strict=True)
    _write_parts(lowering, "concat", list(parts))


@rules.on_type(joining.PadOp)
def pad_rule(op: joining.PadOp, lowering: Lowering) -> None:
    """Copy the operand to the inside of the result, and fill what is around it."""
    out, x = bits(lowering.out), bits(lowering.args[0])
    fill = literal(bits_of(op.fill, op.dtype), out.dtype)
    inner = op.inner_bounds(op.args[0].axes)
    around = [(fill, out.slice(box)) for box in _boxes_around(inner, out.shape)]
    _write_parts(lowering, "pad", [(x, out.slice(inner)), *around])


@rules.on_type(slicing.UpdateSliceOp)
def update_slice_rule(op: slicing.UpdateSliceOp, lowering: Lowering) -> None:
    """Store the slice, in a copy of the first operand unless the update is in place."""
    x, update, out = map(bits, (*lowering.args, lowering.out))
    if x == out or x.shape == update.shape:
        copy(lowering, update, out.slice(op.bounds))
    elif all(step == 1 for _, _, step in op.bounds):
        around = [(x.slice(box), out.slice(box)) for box in _boxes_around(op.bounds, out.shape)]
        _write_parts(lowering, "update slice", [(update, out.slice(op.bounds)), *around])
    else:
        builder = lowering.kernel("update slice")
        old = builder.array("x", x)
        _write_update(builder, out, update, op.bounds, lambda at: old.get(*at), x)


def _boxes_around(inner: Bounds, shape: Sequence[int]) -> list[Bounds]:
    """Return slices without steps that make up what is outside another one."""
    whole = [(0, length, 1) for length in shape]
    boxes: list[Bounds] = []
    for axis, ((start, size, _), length) in enumerate(zip(inner, shape, strict=True)):
        end = start + size
        spans = (0, start, 1), (end, length - end, 1)
        boxes += [(*inner[:axis], span, *whole[axis + 1 :]) for span in spans]
    return boxes


def _write_parts(lowering: Lowering, title: str, parts: Sequence[Part]) -> None:
    """Write the parts of a result, in one kernel if they are few."""
    wanted = [(source, target) for source, target in parts if target.size]
    for first in range(0, len(wanted), MAX_PARTS):
        _write_some(lowering.kernel(title), wanted[first : first + MAX_PARTS])


def _write_some(builder: KernelBuilder, parts: Sequence[Part]) -> None:
    loops: list[tuple[str, tuple[int, ...], Body, int]] = []
    for source, target in parts:
        layouts, _ = collapse_dims(target, *(() if isinstance(source, str) else (source,)))
        wide, out = is_wide(*layouts), builder.array("out", layouts[0], written=True)
        shape, lanes = layouts[0].shape, 1
        if isinstance(source, str):
            body = _filling(builder, out, source)
        else:
            x = builder.array("x", layouts[1])
            shape, x, out = vectorized_move(builder, shape, x, out)
            body, lanes = _moving(x, out), move_lanes(builder, x, out)
        loops.append((index_type(wide), shape, body, lanes))
    items = work_items(sum(prod(shape) for _, shape, _, _ in loops), builder)
    for kind, shape, body, lanes in loops:
        share_points(builder, shape, items, body, kind, lanes)
    launch(builder, items)


def _moving(x: Array, out: Array) -> Body:
    def body(at: tuple[str, ...], emitter: ValueEmitter) -> None:
        move(emitter, x.at(*at), out.at(*at), out.dtype)

    return body


def _filling(builder: KernelBuilder, out: Array, value: str) -> Body:
    def body(at: tuple[str, ...], emitter: ValueEmitter) -> None:
        builder.code.line(out.set(value, *at))

    return body


@rules.on_type(dynamic_slices.DynamicSliceOp)
def dynamic_slice_rule(op: dynamic_slices.DynamicSliceOp, lowering: Lowering) -> None:
    """Copy the block at the dynamic start."""
    x, out = bits(lowering.args[0]), bits(lowering.out)
    builder = lowering.kernel("dynamic slice")
    wide = is_wide(x, out)
    starts = _starts(op, builder, index_type(wide))
    source, target = builder.array("x", x), builder.array("out", out, written=True)
    shape = out.shape
    if starts[-1:] == [0]:
        shape, source, target = vectorized_move(builder, shape, source, target)

    def body(at: tuple[str, ...], emitter: ValueEmitter) -> None:
        move(emitter, source.at(*map(_sum, at, starts)), target.at(*at), out.dtype)

    lanes = move_lanes(builder, source, target)
    parallel_for(builder, shape, body, lanes=lanes, wide=wide)


@rules.on_type(dynamic_slices.DynamicUpdateSliceOp)
def dynamic_update_slice_rule(op: dynamic_slices.DynamicUpdateSliceOp, lowering: Lowering) -> None:
    """Store the block, in a copy of the first operand unless the update is in place."""
    x, update, out = map(bits, (*lowering.args[:2], lowering.out))
    builder = lowering.kernel("dynamic update slice")
    wide = is_wide(x, update)
    starts = _starts(op, builder, index_type(wide))
    if x != out:
        old = builder.array("x", x)
        spans: list[Span] = [
            (start, length, 1) for start, length in zip(starts, update.shape, strict=True)
        ]
        _write_update(builder, out, update, spans, lambda at: old.get(*at), x)
        return
    source, target = builder.array("update", update), builder.array("out", out, written=True)
    shape = update.shape
    if starts[-1:] == [0]:
        shape, source, target = vectorized_move(builder, shape, source, target)

    def body(at: tuple[str, ...], emitter: ValueEmitter) -> None:
        move(emitter, source.at(*at), target.at(*map(_sum, at, starts)), out.dtype)

    lanes = move_lanes(builder, source, target)
    parallel_for(builder, shape, body, lanes=lanes, wide=wide)


def _write_update(
    builder: KernelBuilder,
    out: TensorDescription,
    update: TensorDescription,
    spans: Sequence[Span],
    other: Callable[[tuple[str, ...]], str],
    *read: TensorDescription,
) -> None:
    """Write a kernel that stores an update inside a slice, and `other` values outside."""
    code = builder.code
    target = builder.array("out", out, written=True)
    wide = is_wide(out, update, *read)
    kind, rank = index_type(wide), len(out.shape)
    if not update.size:
        parallel_for(
            builder, out.shape, lambda at, _: code.line(target.set(other(at), *at)), wide=wide
        )
        return
    source = builder.array("update", update)
    outside: list[str] = []
    outer_indices: list[str] = []

    def look(indices: Sequence[str], first: int) -> tuple[list[str], list[str]]:
        """Return tests of whether a point is inside the slice, and its indices in the update."""
        tests, inner = [], []
        for number, index in enumerate(indices, first):
            test, at = _inside(index, spans[number], out.shape[number])
            tests.extend(test)
            inner.append(at)
        return tests, inner

    def row(at: tuple[str, ...]) -> None:
        tests, outer_indices[:] = look(at, 0)
        outside[:] = [code.define(f"const {kind}", "inside", " && ".join(tests))] if tests else []

    def body(at: tuple[str, ...], emitter: ValueEmitter) -> None:
        tests, inner = look(at[-1:], max(rank - 1, 0))
        tests = [*outside, *tests]
        new = source.get(*outer_indices, *inner)
        chosen = f"({' && '.join(tests)}) ? {new} : {other(at)}" if tests else new
        code.line(target.set(chosen, *at))

    parallel_for(builder, out.shape, body, row=row, wide=wide)


def _inside(index: str, span: Span, size: int) -> tuple[list[str], str]:
    """Return tests of whether an index is in a slice of a dimension, and the index within it.

    The slice is not empty.
    """
    start, length, step = span
    if size == 1:
        return [], index
    if step == 1:
        if start == 0 and length == size:
            return [], index
        below = [] if start == 0 else [f"{index} >= {start}"]
        at = index if start == 0 else f"({index} - {start})"
        beyond = [] if isinstance(start, int) and start + length == size else [f"{at} < {length}"]
        return [*below, *beyond], at
    assert isinstance(start, int), "slices with a dynamic start have step 1"
    low, high = sorted((start, start + (length - 1) * step))
    tests = [f"{index} >= {low}", f"{index} <= {high}", f"({index} - {low}) % {abs(step)} == 0"]
    at = f"({index} - {low}) / {abs(step)}"
    return tests, f"({at})" if step > 0 else f"({length - 1} - {at})"


def _starts(
    op: dynamic_slices.DynamicBlockOp, builder: KernelBuilder, kind: str
) -> list[str | int]:
    """Write the start of a block, clamped so that the block is inside."""
    args = builder.lowering.args
    given = args[len(args) - len(args[0].shape) :] if args[0].shape else ()
    starts: list[str | int] = []
    for start, size, length in zip(given, args[0].shape, op.lengths(), strict=True):
        room = size - length
        if not room:
            starts.append(0)
            continue
        value = builder.code.define(
            f"const {'u64' if start.dtype.kind == 'u' else 'i64'}",
            "start",
            builder.array("start", start).get(),
        )
        low = f"{value} < 0 ? 0 : " if start.dtype.kind == "i" else ""
        moved = f"({kind})({low}{value} > {room} ? {room} : {value})"
        starts.append(builder.code.define(f"const {kind}", "first", moved))
    return starts


def _sum(index: str, start: str | int) -> str:
    return index if start == 0 else f"({index} + {start})"
