"""Rules for elements put by index; what goes to an index out of range is dropped.

On a serial device each work item has places of its own along the axis and takes the updates in
order, so the result is the same every time; so it is with numbers of 64 bits where there are no
atomics for them. Elsewhere each update is combined with what is there at once, and the order in
which floats are added is free.
"""

from __future__ import annotations

from math import prod

from weft import dtypes
from weft.description import TensorDescription
from weft.dtypes import DType
from weft.kernels.c.counters import index_kind, is_wide
from weft.kernels.c.forms import Form
from weft.kernels.c.loops import decoded, each_point, serial_items, share
from weft.kernels.c.lowering import Lowering, needs_scratch, rules
from weft.kernels.c.processor import Processor
from weft.kernels.c.steps.bits import bits
from weft.kernels.c.steps.combining import combined
from weft.kernels.c.steps.copies import convert, copy
from weft.kernels.c.steps.indices import (
    AFTER,
    BEFORE,
    INDEXED,
    indexing,
    place_of,
    report_all,
)
from weft.ops import gathering

_WIDER = {"b": dtypes.int32, "i": dtypes.int32, "u": dtypes.uint32, "f": dtypes.float32}


def _total_dtype(op: gathering.ScatterOp, processor: Processor) -> DType:
    """Return the dtype in which numbers are combined: atomics need 32 bits or 64."""
    if processor.is_serial or op.reduction == "set" or op.dtype.itemsize >= 4:
        return op.working_dtype
    return _WIDER.get(op.dtype.kind, dtypes.float32)


@needs_scratch(gathering.ScatterOp)
def scatter_scratch(op: gathering.ScatterOp, processor: Processor) -> int:
    """Return the bytes of the numbers in the dtype in which they are combined."""
    dtype = _total_dtype(op, processor)
    return 0 if dtype == op.dtype else op.axes.size * dtype.itemsize


@rules.on_type(gathering.ScatterOp)
def scatter_rule(op: gathering.ScatterOp, lowering: Lowering) -> None:
    """Copy the first operand unless it is in place, then put into it."""
    x, out = lowering.args[0], lowering.out
    dtype = _total_dtype(op, lowering.processor)
    if not out.size:
        if x.shape[op.position] == 0 and lowering.args[1].size:
            report_all(lowering, "scatter")
        return
    target = out if dtype == op.dtype else lowering.scratch(out.shape, dtype)
    if op.reduction == "set":
        target = bits(target)
        copy(lowering, bits(x), target)
    else:
        convert(lowering, x, target)
    if lowering.args[2].size:
        _Scatter(op, lowering, target).write()
    if dtype != op.dtype:
        convert(lowering, target, out)


class _Scatter:
    """The kernel that puts updates into a target."""

    def __init__(
        self, op: gathering.ScatterOp, lowering: Lowering, target: TensorDescription
    ) -> None:
        self.op = op
        indices, updates = lowering.args[1:]
        self.found = indexing(
            target, op.position, indices, bits(updates) if op.reduction == "set" else updates
        )
        self.length = target.shape[op.position]
        self.writing = lowering.kernel(f"scatter {op.reduction}")
        self.wide = is_wide(target, updates)
        self.kind = index_kind(self.wide)
        self.source = self.writing.array("updates", self.found.elements)
        self.index = self.writing.array("index", self.found.indices)
        self.target = self.writing.array("out", self.found.tensor, written=True)

    def write(self) -> None:
        """Write the kernel for the kind of device."""
        processor = self.writing.processor
        needs_int64_atomics = self.op.reduction != "set" and self.target.dtype.itemsize == 8
        if processor.is_serial or (needs_int64_atomics and not processor.has_int64_atomics):
            self._write_shares()
        else:
            self._write_atomics()

    def _write_shares(self) -> None:
        """Let each work item look at all indices, and take those at its own places."""
        writing, code, kind = self.writing, self.writing.code, self.kind
        shapes = [self.found.shape(role) for role in (BEFORE, INDEXED, AFTER)]
        rows, count, width = map(prod, shapes)
        items = min(writing.processor.units, serial_items(rows * count * width, writing.processor))
        by_rows = rows >= items
        begin, end = share(code, rows if by_rows else self.length, items, kind)
        row, number, i = (code.name(hint) for hint in ("row", "number", "i"))
        first, last = (begin, end) if by_rows else ("0", str(rows))
        mine = [f"{{0}} < {begin}", f"{{0}} >= {end}"] if items > 1 and not by_rows else ["{0} < 0"]
        with (
            code.block(f"for ({kind} {row} = {first}; {row} < {last}; {row}++)"),
            code.block(f"for ({kind} {number} = 0; {number} < {count}; {number}++)"),
        ):
            before = decoded(code, shapes[0], row, kind)
            at = decoded(code, shapes[1], number, kind)
            here = (*("0" for _ in before), *at, *("0" for _ in shapes[2]))
            place = place_of(self.op, writing, self.index, here, kind)
            code.line(f"if ({' || '.join(mine).format(place)}) continue;")
            with code.block(f"for ({kind} {i} = 0; {i} < {width}; {i}++)"):
                self._combine((*before, *at, *decoded(code, shapes[2], i, kind)), place)
        writing.launch(items)

    def _combine(self, places: tuple[str, ...], place: str) -> None:
        code, at = self.writing.code, (*places, place)
        if self.op.reduction == "set":
            code.line(self.target.set(self.source.get(*places), *at))
            return
        new = self._update(places)
        old = code.define(f"const {Form().type(self.target.dtype)}", "old", self.target.get(*at))
        both = combined(self.op.reduction, self.target.dtype, old, new)
        code.line(self.target.set(both, *at))

    def _update(self, places: tuple[str, ...]) -> str:
        """Write an update in the dtype in which numbers are combined."""
        form, dtype = Form(), self.target.dtype
        value = form.converted(self.source.dtype, dtype, self.source.get(*places))
        return self.writing.code.define(f"const {form.type(dtype)}", "new", value)

    def _write_atomics(self) -> None:
        """Combine each update at once; of those that are set one stays."""
        writing, code = self.writing, self.writing.code

        def body(at: tuple[str, ...], form: Form) -> None:
            places = at[: len(self.found.roles)]
            place = place_of(self.op, writing, self.index, places, self.kind)
            with code.block(f"if ({place} >= 0)"):
                if self.op.reduction == "set":
                    self._combine(places, place)
                    return
                new = self._update(places)
                name = f"weft_atomic_{self.op.reduction}_{form.type(self.target.dtype)}"
                code.line(f"{name}({self.target.at(*places, place)}, {new});")

        each_point(writing, self.found.elements.shape, body, wide=self.wide)
