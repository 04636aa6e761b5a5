"""Lowering rules of scans: cumulative sums, products and extrema, linear recurrences.

A work item scans a line, or several contiguous lines. A work group scans a line in chunks: each
work item combines a few neighbors, their totals are scanned by doubling the distance (Hillis and
Steele, Data Parallel Algorithms, 1986), and the chunk's total is carried to the next. Long lines
are split: one kernel computes the totals of splits, another one the results.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.ir.description import TensorDescription
from weft.ir.dtypes import DType, accumulator_dtype
from weft.ops.reductions import cumulative
from weft.support.backports import override
from weft_c.loops.parallel import parallel_for, unravel_index, work_group_loop
from weft_c.lowering import Array, KernelBuilder, Lowering, needs_scratch, rules
from weft_c.ops.combining import combined
from weft_c.source.index_types import index_type, is_wide
from weft_c.source.values import ValueEmitter, literal, register_type
from weft_tiling.lines import (
    ELEMENTS_PER_ITEM,
    MIN_LINE,
    WIDTH,
    are_columns,
    as_lines,
    line_blocks,
    line_count,
    part_length,
    scan_bytes,
    split_count,
    suits_work_groups,
)

_REDUCTIONS = {
    cumulative.CumsumOp: "add",
    cumulative.CumprodOp: "mul",
    cumulative.CummaxOp: "max",
    cumulative.CumminOp: "min",
    cumulative.LogCumSumExpOp: "logaddexp",
}


@rules.on_type(*_REDUCTIONS)
def running_rule(op: cumulative.CumulativeOp, lowering: Lowering) -> None:
    """Scan each line with the op's combiner."""
    if lowering.out.size:
        _CumulativeScan(op, lowering).write()


@rules.on_type(cumulative.LinearRecurrenceOp)
def recurrence_rule(op: cumulative.LinearRecurrenceOp, lowering: Lowering) -> None:
    """Scan each line with the linear recurrence."""
    if lowering.out.size:
        _RecurrenceScan(op, lowering).write()


needs_scratch(cumulative.RunningOp)(scan_bytes)


class _Scan:
    """Builds the kernels of a scan, whose accumulator is one or more scalars."""

    def __init__(self, op: cumulative.RunningOp, lowering: Lowering) -> None:
        self.op = op
        self.lowering = lowering
        *self.read, self.layout = as_lines(op.position, *lowering.args, lowering.out)
        self.wide = is_wide(*self.read, self.layout)
        self.kind = index_type(self.wide)
        self.dtype: DType = accumulator_dtype(op.dtype)
        self.type = register_type(self.dtype)
        self.length = self.layout.shape[-1]
        self.begin()

    def begin(self) -> None:
        """Begin a kernel."""
        title = type(self.op).__name__.removesuffix("Op")
        self.builder: KernelBuilder = self.lowering.kernel(title)
        self.code = self.builder.code
        self.args = [self.builder.array("x", each) for each in self.read]

    @property
    def out(self) -> Array:
        """The array of the results."""
        return self.builder.array("out", self.layout, written=True)

    neutral: tuple[str, ...]
    is_exclusive = False

    def element(self, *at: str) -> tuple[str, ...]:
        """Return the accumulator of one element."""
        raise NotImplementedError

    def combined(self, x: Sequence[str], y: Sequence[str]) -> tuple[str, ...]:
        """Return the combination of the accumulators of two adjacent ranges, given variables."""
        raise NotImplementedError

    def step(self, total: str, at: tuple[str, ...], number: str) -> str:
        """Return the accumulator of a sequential scan after one more element."""
        raise NotImplementedError

    def get(self, array: Array, *at: str) -> str:
        """Return an element in the accumulator's dtype."""
        return ValueEmitter(self.code).converted(array.dtype, self.dtype, array.get(*at))

    def store_statement(self, value: str, *at: str) -> str:
        """Return the statement that stores a result."""
        return self.out.set(
            ValueEmitter(self.code).converted(self.dtype, self.op.dtype, value), *at
        )

    def place(self, number: str) -> str:
        """Return the index of an element on the line, given its number in scan order."""
        return f"({self.length - 1} - {number})" if self.op.reverse else number

    def write(self) -> None:
        """Write the kernel and launch it."""
        x = self.args[-1].layout
        if suits_work_groups(x, self.builder.processor, MIN_LINE):
            self._write_groups()
        elif self.builder.processor.is_serial and are_columns(x):
            self._write_columns()
        else:
            shape = self.layout.shape[:-1]
            parallel_for(self.builder, shape, self._line, wide=self.wide, cost=self.length)

    def _line(self, outer: tuple[str, ...], emitter: ValueEmitter) -> None:
        """Write the scan of one line."""
        number, code = self.code.name("k"), self.code
        total = code.define(self.type, "total", self.neutral[-1])
        with code.loop(self.kind, number, 0, self.length):
            self._advance(total, (*outer, self.place(number)), number)

    def _advance(self, total: str, indices: tuple[str, ...], number: str) -> None:
        after = self.step(total, indices, number)
        if self.is_exclusive:
            after = self.code.define(f"const {self.type}", "after", after)
            self.code.line(self.store_statement(total, *indices))
            self.code.line(f"{total} = {after};")
        else:
            self.code.line(f"{total} = {after};")
            self.code.line(self.store_statement(total, *indices))

    def _write_columns(self) -> None:
        """Write the scan of tiles of contiguous lines."""
        code, kind, width = self.code, self.kind, self.layout.shape[-2]

        def body(at: tuple[str, ...], emitter: ValueEmitter) -> None:
            totals, number, column = code.name("total"), code.name("k"), code.name("j")
            first = code.define(f"const {kind}", "first", f"{at[-1]} * {WIDTH}")
            last = str(WIDTH)
            if width % WIDTH:
                rest = f"{width} - {first}"
                last = code.define(f"const {kind}", "last", f"{rest} < {WIDTH} ? {rest} : {WIDTH}")
            inner = f"for ({kind} {column} = 0; {column} < {last}; {column}++)"
            code.line(f"{self.type} {totals}[{WIDTH}];")
            code.line(f"{inner} {totals}[{column}] = {self.neutral[-1]};")
            with code.loop(kind, number, 0, self.length), code.block(inner):
                total = code.define(self.type, "sum", f"{totals}[{column}]")
                indices = (*at[:-1], f"({first} + {column})", self.place(number))
                self._advance(total, indices, number)
                code.line(f"{totals}[{column}] = {total};")

        cost = self.length * min(width, WIDTH)
        parallel_for(self.builder, line_blocks(self.layout.shape), body, wide=self.wide, cost=cost)

    def _write_groups(self) -> None:
        """Write the scan of lines, or of splits of lines, by work groups."""
        count = line_count(self.layout)
        splits = split_count(count, self.length, self.lowering.processor)
        if splits == 1:
            self._write_parts(splits, None, is_last=True)
            return
        shape = (len(self.neutral), count, splits)
        totals = self.lowering.scratch(shape, self.dtype)
        self._write_parts(splits, totals, is_last=False)
        self.begin()
        self._write_parts(splits, totals, is_last=True)

    def _write_parts(self, splits: int, layout: TensorDescription | None, is_last: bool) -> None:
        """Write the kernel that stores the totals of splits, or the one that stores results."""
        code, group, lines = self.code, self.builder.processor.group, self.layout.shape[:-1]
        numbers = range(len(self.neutral))
        for number in numbers:
            code.declare(f"LOCAL {self.type} shared{number}[{group}];")
        totals = None if layout is None else self.builder.array("totals", layout, not is_last)
        with work_group_loop(self.builder, line_count(self.layout) * splits) as each:
            line, part = unravel_index(code, (line_count(self.layout), splits), each, "i64")
            carry = self._variables("carry", self.neutral)
            if totals is not None and is_last:
                with code.loop("i64", "before", 0, part):
                    totals_before = [totals.get(number, line, "before") for number in numbers]
                    self._assign(
                        carry, self.combined(carry, self._variables("part", totals_before))
                    )
            length = part_length(self.length, splits, group)
            last = f"({part} + 1) * {length}"
            end = f"{last} < {self.length} ? {last} : {self.length}"
            code.line(f"const i64 end = {end if splits > 1 else self.length};")
            step = group * ELEMENTS_PER_ITEM
            with code.loop("i64", "begin", f"{part} * {length}", "end", step):
                self._stretch(unravel_index(code, lines, line, "i64"), carry, group, is_last)
            if totals is not None and not is_last:
                with code.block("if (LOCAL_ID == 0)"):
                    for number, total in enumerate(carry):
                        code.line(totals.set(total, number, line, part))

    def _stretch(self, outer: tuple[str, ...], carry: list[str], group: int, stores: bool) -> None:
        code, count = self.code, len(self.neutral)
        code.line(f"const i64 first = begin + LOCAL_ID * {ELEMENTS_PER_ITEM};")
        partial_results = [f"kept{number}[j]" for number in range(count)] if stores else []
        for number in range(len(partial_results)):
            code.line(f"{self.type} kept{number}[{ELEMENTS_PER_ITEM}];")
        total = self._variables("total", self.neutral)
        with code.loop("i32", "j", 0, ELEMENTS_PER_ITEM):
            with code.block("if (first + j < end)"):
                indices = (*outer, self.place("(first + j)"))
                element = self._variables("element", self.element("first + j", *indices))
                self._assign(total, self.combined(total, element))
            self._assign(partial_results, total[: len(partial_results)])
        self._share(total, group)
        if stores:
            self._store(outer, carry, partial_results)
        whole = self._variables("whole", self._shared(str(group - 1)))
        self._assign(carry, self.combined(carry, whole))
        code.line("BARRIER();")

    def _store(self, outer: tuple[str, ...], carry: list[str], partial_results: list[str]) -> None:
        code = self.code
        before = self._variables("before", self._shared("LOCAL_ID - 1", "LOCAL_ID > 0"))
        *_, last = self.combined(carry, before)
        before = [*self.neutral[:-1], *self._variables("before", [last])]
        with code.block(f"for (i32 j = 0; j < {ELEMENTS_PER_ITEM} && first + j < end; j++)"):
            here = partial_results
            if self.is_exclusive:
                here = [
                    f"(j ? kept{number}[j - 1] : {neutral})"
                    for number, neutral in enumerate(self.neutral)
                ]
            *_, found = self.combined(before, self._variables("here", here))
            code.line(self.store_statement(found, *outer, self.place("(first + j)")))

    def _share(self, total: list[str], group: int) -> None:
        """Write the inclusive scan of the work items' totals in local memory."""
        code = self.code
        mine = [f"shared{number}[LOCAL_ID]" for number in range(len(self.neutral))]
        self._assign(mine, total)
        code.line("BARRIER();")
        with code.block(f"for (i32 reach = 1; reach < {group}; reach *= 2)"):
            other = self._variables("other", self._shared("LOCAL_ID - reach", "LOCAL_ID >= reach"))
            own = self._variables("own", mine)
            code.line("BARRIER();")
            self._assign(mine, self.combined(other, own))
            code.line("BARRIER();")

    def _shared(self, index: str, condition: str = "") -> list[str]:
        variables = [f"shared{number}[{index}]" for number in range(len(self.neutral))]
        if not condition:
            return variables
        return [
            f"({condition} ? {each} : {neutral})"
            for each, neutral in zip(variables, self.neutral, strict=True)
        ]

    def _variables(self, hint: str, values: Sequence[str]) -> list[str]:
        return [self.code.define(self.type, hint, value) for value in values]

    def _assign(self, names: Sequence[str], values: Sequence[str]) -> None:
        """Write assignments, the last one first, since its value depends on all names."""
        for name, value in reversed(list(zip(names, values, strict=True))):
            self.code.line(f"{name} = {value};")


class _CumulativeScan(_Scan):
    """The scan of a cumulative sum, product, extremum or logaddexp."""

    op: cumulative.CumulativeOp

    def __init__(self, op: cumulative.CumulativeOp, lowering: Lowering) -> None:
        super().__init__(op, lowering)
        self.neutral = (literal(op.nothing(op.dtype), self.dtype),)
        self.is_exclusive = op.exclusive
        self.reduction = _REDUCTIONS[type(op)]

    @override
    def element(self, *at: str) -> tuple[str, ...]:
        return (self.get(self.args[0], *at[1:]),)

    def combined(self, x: Sequence[str], y: Sequence[str]) -> tuple[str, ...]:
        """Return the combination by the op's combiner."""
        return (combined(self.code, self.reduction, self.dtype, x[0], y[0]),)

    @override
    def step(self, total: str, at: tuple[str, ...], number: str) -> str:
        (value,) = self._variables("value", [self.get(self.args[0], *at)])
        return combined(self.code, self.reduction, self.dtype, total, value)


class _RecurrenceScan(_Scan):
    """The scan of a linear recurrence; the accumulator is a factor and a term."""

    op: cumulative.LinearRecurrenceOp

    def __init__(self, op: cumulative.LinearRecurrenceOp, lowering: Lowering) -> None:
        super().__init__(op, lowering)
        self.neutral = (literal(1, self.dtype), literal(0, self.dtype))

    def element(self, *at: str) -> tuple[str, ...]:
        """Return weight and term of an element; the first weight is 0."""
        number, *indices = at
        weight, term = (self.get(array, *indices) for array in self.args)
        return f"({number} == 0 ? {literal(0, self.dtype)} : {weight})", term

    def combined(self, x: Sequence[str], y: Sequence[str]) -> tuple[str, ...]:
        """Return the product of the factors and the first term advanced by the second range."""
        factor = combined(self.code, "mul", self.dtype, x[0], y[0])
        carried = combined(self.code, "mul", self.dtype, y[0], x[1])
        return factor, combined(self.code, "add", self.dtype, carried, y[1])

    def step(self, total: str, at: tuple[str, ...], number: str) -> str:
        """Return the weighted accumulator plus the term."""
        weight, term = self._variables("value", [self.get(array, *at) for array in self.args])
        carried = combined(self.code, "mul", self.dtype, weight, total)
        both = combined(self.code, "add", self.dtype, carried, term)
        return f"({number} == 0 ? {term} : {both})"
