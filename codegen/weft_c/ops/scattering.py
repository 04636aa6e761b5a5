"""Lowering rules of scatters; updates at indices out of range are reported and dropped.

On a serial device each work item owns a range of the axis and applies its updates in order, so
results are deterministic; the same holds for 64-bit elements on devices without atomics for them.
Elsewhere updates are atomic, and the order of float additions is unspecified. For ``set`` a first
kernel finds the last update of each index by its number, and a second one stores only those.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from weft.ir.description import TensorDescription, row_major
from weft.ir.dtypes import DType
from weft.ops.indexing import gathering
from weft_c.loops.parallel import parallel_for, unravel_index, work_item_bounds
from weft_c.lowering import Lowering, needs_scratch, rules
from weft_c.ops.combining import combined
from weft_c.ops.copies import convert, copy
from weft_c.ops.indices import AFTER, BEFORE, INDEXED, checked_index, indexing, report_out_of_range
from weft_c.ops.views import bits, collapse_dims
from weft_c.source.index_types import index_type, is_wide
from weft_c.source.values import ValueEmitter, register_type
from weft_tiling.scatters import number_dtype, scatter_bytes, total_dtype
from weft_tiling.sharing import serial_items

needs_scratch(gathering.ScatterOp)(scatter_bytes)


@rules.on_type(gathering.ScatterOp)
def scatter_rule(op: gathering.ScatterOp, lowering: Lowering) -> None:
    """Copy the first operand unless the scatter is in place, then apply the updates."""
    x, out = lowering.args[0], lowering.out
    dtype = total_dtype(op, lowering.processor)
    if not out.size:
        if x.shape[op.position] == 0 and lowering.args[1].size:
            report_out_of_range(lowering, "scatter")
        return
    target = out if dtype == op.dtype else lowering.scratch(out.shape, dtype)
    if op.reduction == "set":
        target = bits(target)
        copy(lowering, bits(x), target)
    else:
        convert(lowering, x, target)
    if lowering.args[2].size:
        _ScatterKernel(op, lowering, target).write()
    if dtype != op.dtype:
        convert(lowering, target, out)


class _ScatterKernel:
    """Builds the kernel that applies the updates."""

    def __init__(
        self, op: gathering.ScatterOp, lowering: Lowering, target: TensorDescription
    ) -> None:
        self.op = op
        self.lowering = lowering
        indices, updates = lowering.args[1:]
        self.found = indexing(
            target, op.position, indices, bits(updates) if op.reduction == "set" else updates
        )
        self.length = target.shape[op.position]
        self.builder = lowering.kernel(f"scatter {op.reduction}")
        self.wide = is_wide(target, updates)
        self.kind = index_type(self.wide)
        self.source = self.builder.array("updates", self.found.elements)
        self.index = self.builder.array("index", self.found.indices)
        self.target = self.builder.array("out", self.found.tensor, written=True)

    def write(self) -> None:
        """Write the kernel for the processor and the reduction."""
        processor = self.builder.processor
        if processor.is_serial:
            self._write_shares()
        elif self.op.reduction == "set":
            self._write_set()
        elif self.target.dtype.itemsize == 8 and not processor.has_int64_atomics:
            self._write_shares()
        else:
            self._write_atomics()

    def _write_set(self) -> None:
        """Write the kernel of ``set``, which stores the last update of each index."""
        dtype = number_dtype(self.op, self.builder.processor)
        if dtype is not None:
            self._write_last(dtype)
        elif self.op.args[1].axes.size == 1:
            self._write_each()
        else:
            self._write_shares()

    def _write_shares(self) -> None:
        """Write loops in which a work item reads all indices and applies those in its range."""
        builder, code, kind = self.builder, self.builder.code, self.kind
        shapes = [self.found.shape(role) for role in (BEFORE, INDEXED, AFTER)]
        rows, count, width = map(prod, shapes)
        items = min(builder.processor.units, serial_items(rows * count * width, builder.processor))
        by_rows = rows >= items
        begin, end = work_item_bounds(code, rows if by_rows else self.length, items, kind)
        row, number, i = (code.name(hint) for hint in ("row", "number", "i"))
        first, last = (begin, end) if by_rows else ("0", str(rows))
        conditions = (
            [f"{{0}} < {begin}", f"{{0}} >= {end}"] if items > 1 and not by_rows else ["{0} < 0"]
        )
        with (
            code.loop(kind, row, first, last),
            code.loop(kind, number, 0, count),
        ):
            before = unravel_index(code, shapes[0], row, kind)
            at = unravel_index(code, shapes[1], number, kind)
            here = (*("0" for _ in before), *at, *("0" for _ in shapes[2]))
            place = checked_index(self.op, builder, self.index, here, kind)
            code.line(f"if ({' || '.join(conditions).format(place)}) continue;")
            with code.loop(kind, i, 0, width):
                self._combine((*before, *at, *unravel_index(code, shapes[2], i, kind)), place)
        builder.launch(items)

    def _combine(self, indices: tuple[str, ...], place: str) -> None:
        code, at = self.builder.code, (*indices, place)
        if self.op.reduction == "set":
            code.line(self.target.set(self.source.get(*indices), *at))
            return
        new = self._update(indices)
        old = code.define(f"const {register_type(self.target.dtype)}", "old", self.target.get(*at))
        both = combined(code, self.op.reduction, self.target.dtype, old, new)
        code.line(self.target.set(both, *at))

    def _update(self, indices: tuple[str, ...]) -> str:
        """Write an update, converted to the accumulators' dtype."""
        emitter, dtype = ValueEmitter(self.builder.code), self.target.dtype
        value = emitter.converted(self.source.dtype, dtype, self.source.get(*indices))
        return self.builder.code.define(f"const {emitter.type(dtype)}", "new", value)

    def _write_atomics(self) -> None:
        """Write an atomic update for each element."""

        def combine(indices: tuple[str, ...], place: str) -> None:
            new = self._update(indices)
            name = f"weft_atomic_{self.op.reduction}_{register_type(self.target.dtype)}"
            code = self.builder.code
            code.line(f"{code.call(name, self.target.at(*indices, place), new)};")

        self._write_points(combine)

    def _write_each(self) -> None:
        """Write a store for each element, without conflicts between updates."""
        self._write_points(self._combine)

    def _write_last(self, dtype: DType) -> None:
        """Write the search for each index's last update, and the kernel that stores those."""
        last = _last_updates(self.op, self.lowering, dtype)
        numbers = self.builder.array("last", last)
        shape = self.found.shape(INDEXED)

        def store(indices: tuple[str, ...], place: str) -> None:
            at = [i for i, role in zip(indices, self.found.roles, strict=True) if role == INDEXED]
            with self.builder.code.block(f"if ({numbers.get(place)} == {_number(shape, at)})"):
                self._combine(indices, place)

        self._write_points(store)

    def _write_points(self, put: Callable[[tuple[str, ...], str], None]) -> None:
        """Write a parallel loop over the updates with indices in range."""
        builder = self.builder

        def body(at: tuple[str, ...], emitter: ValueEmitter) -> None:
            place = checked_index(self.op, builder, self.index, at, self.kind)
            with builder.code.block(f"if ({place} >= 0)"):
                put(at, place)

        parallel_for(builder, self.found.elements.shape, body, wide=self.wide)


def _number(shape: Sequence[int], at: Sequence[str]) -> str:
    """Return the flat row-major index of a point."""
    terms = [
        name if step == 1 else f"{name} * {step}"
        for name, step in zip(at, row_major(shape, 1), strict=True)
        if name != "0"
    ]
    return " + ".join(terms) or "0"


def _last_updates(op: gathering.ScatterOp, lowering: Lowering, dtype: DType) -> TensorDescription:
    """Write kernels that find the last update of each index along the axis.

    The result holds its flat number among the indices, or -1 for no update. Updates are numbered by
    index, not by element, since the other dimensions share the indices.
    """
    last = lowering.scratch((op.axes.shape[op.position],), dtype)
    clearing = lowering.kernel("no update")
    cleared = clearing.array("last", last, written=True)
    parallel_for(
        clearing, last.shape, lambda at, emitter: clearing.code.line(cleared.set("-1", *at))
    )
    (indices,), _ = collapse_dims(lowering.args[1])
    builder = lowering.kernel("last updates")
    index, found = builder.array("index", indices), builder.array("last", last, written=True)
    name = f"weft_atomic_max_{register_type(dtype)}"

    def body(at: tuple[str, ...], emitter: ValueEmitter) -> None:
        place = checked_index(op, builder, index, at, index_type(is_wide(last)))
        number = _number(indices.shape, at)
        call = builder.code.call(name, found.at(place), number)
        builder.code.line(f"if ({place} >= 0) {call};")

    parallel_for(builder, indices.shape, body, wide=is_wide(indices))
    return last
