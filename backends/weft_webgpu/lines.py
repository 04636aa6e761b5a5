"""Lines along an axis: scans, sorting, and searches in sorted vectors.

The algorithms and the parts that lines are split in are those of the other devices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from weft.ir import dtypes
from weft.ir.description import TensorDescription
from weft.ir.dtypes import accumulator_dtype
from weft.ops.reductions import cumulative
from weft.ops.reductions.sorting import SortOp
from weft_c.processor import Processor
from weft_tiling.lines import (
    ELEMENTS_PER_ITEM,
    MIN_LINE,
    as_lines,
    concurrent_lines,
    fits_group,
    line_count,
    network_bytes,
    next_power_of_two,
    part_length,
    sort_key_dtype,
    split_count,
    suits_work_groups,
)
from weft_webgpu import wgsl
from weft_webgpu.movement import as_words
from weft_webgpu.shader import Element, Lowering, Shader, each_point, pointwise

COMBINERS = {
    cumulative.CumsumOp: "add",
    cumulative.CumprodOp: "mul",
    cumulative.CummaxOp: "max",
    cumulative.CumminOp: "min",
    cumulative.LogCumSumExpOp: "logaddexp",
}


def scan_rule(op: cumulative.RunningOp, lowering: Lowering) -> None:
    """Append the launches of a scan: a line for an invocation, or a part of one for a group."""
    scan = _Scan(op, lowering)
    if not scan.out.size:
        return
    if suits_work_groups(scan.args[-1], lowering.processor, MIN_LINE):
        scan.write_groups()
    else:
        each_point(lowering, scan.title, scan.out.shape[:-1], scan.write_line)


class _Scan:
    """A scan, whose total is one value, or the factor and the term of a linear recurrence."""

    def __init__(self, op: Any, lowering: Lowering) -> None:
        self.op, self.lowering, step = op, lowering, lowering.step
        self.title = type(op).__name__.removesuffix("Op")
        *self.args, self.out = as_lines(op.position, *step.args, step.out)
        self.dtype = accumulator_dtype(op.dtype)
        self.length = self.out.shape[-1]
        self.is_recurrence = isinstance(op, cumulative.LinearRecurrenceOp)
        neutral = (1, 0) if self.is_recurrence else (op.nothing(op.dtype),)
        self.neutral = [wgsl.literal(each, self.dtype) for each in neutral]
        self.is_exclusive = getattr(op, "exclusive", False)

    def element(self, shader: Shader, number: str, at: Sequence[str]) -> list[str]:
        """Return the total of one element, the first of which has no factor."""
        place = f"({self.length - 1} - ({number}))" if self.op.reverse else f"({number})"
        values = [shader.element(each, [*at, place]).value for each in self.args]
        if self.is_recurrence:
            values[0] = f"select({values[0]}, {wgsl.literal(0, self.dtype)}, ({number}) == 0)"
        return values

    def store(self, shader: Shader, number: str, at: Sequence[str], value: str) -> str:
        """Return the statement that stores a result."""
        place = f"({self.length - 1} - ({number}))" if self.op.reverse else f"({number})"
        return shader.element(self.out, [*at, place], written=True).store(value)

    def combined(self, x: Sequence[str], y: Sequence[str]) -> list[str]:
        """Return the total of two neighboring ranges, given names of theirs."""
        if not self.is_recurrence:
            name = next(name for kind, name in COMBINERS.items() if isinstance(self.op, kind))
            return [wgsl.combined(name, self.dtype, x[0], y[0])]
        return [
            wgsl.wrapped(self.dtype, f"({x[0]} * {y[0]})"),
            wgsl.wrapped(self.dtype, f"({y[0]} * {x[1]} + {y[1]})"),
        ]

    def variables(self, shader: Shader, name: str, values: Sequence[str]) -> list[str]:
        """Add variables with initial values; return their names."""
        names = [f"{name}{number}" for number in range(len(values))]
        for each, value in zip(names, values, strict=True):
            shader.line(f"var {each} = {value};")
        return names

    def assign(self, shader: Shader, names: Sequence[str], values: Sequence[str]) -> None:
        """Add assignments, the last one first: its value depends on all names."""
        for name, value in reversed(list(zip(names, values, strict=True))):
            shader.line(f"{name} = {value};")

    def write_line(self, shader: Shader, at: list[str]) -> None:
        """Add the lines that scan a whole line."""
        total = self.variables(shader, "total", self.neutral)
        shader.line(f"for (var k = 0; k < {self.length}; k++) {{")
        element = self.variables(shader, "element", self.element(shader, "k", at))
        before = self.store(shader, "k", at, total[-1])
        if self.is_exclusive:
            shader.line(before)
        self.assign(shader, total, self.combined(total, element))
        if not self.is_exclusive:
            shader.line(before)
        shader.line("}")

    def write_groups(self) -> None:
        """Append the launch, or that of the totals of parts and that of the results."""
        lines = line_count(self.out)
        parts = split_count(lines, self.length, self.lowering.processor)
        if parts == 1:
            self._write_parts(1, None, stores=True)
            return
        totals = self.lowering.scratch((len(self.neutral), lines, parts), self.dtype)
        self._write_parts(parts, totals, stores=False)
        self._write_parts(parts, totals, stores=True)

    def _write_parts(self, parts: int, totals: TensorDescription | None, stores: bool) -> None:
        group = self.lowering.processor.group
        shader = Shader(self.lowering, self.title, group)
        line, shape = shader.line, self.out.shape[:-1]
        for number in range(len(self.neutral)):
            kind = wgsl.type_of(self.dtype)
            shader.declarations.append(f"var<workgroup> shared{number}: array<{kind}, {group}>;")
        line(f"if (group_number >= {math.prod(shape) * parts}) {{ return; }}")
        line(f"let part = group_number % {parts};")
        line(f"let row = group_number / {parts};")
        at = [f"d{axis}" for axis in range(len(shape))]
        shader.coordinates("row", shape, at)
        carry = self.variables(shader, "carry", self.neutral)
        if totals is not None and stores:
            line("for (var other = 0; other < part; other++) {")
            found = [
                shader.element(totals, [str(number), "row", "other"]).value
                for number in range(len(carry))
            ]
            self.assign(
                shader, carry, self.combined(carry, self.variables(shader, "earlier", found))
            )
            line("}")
        length = part_length(self.length, parts, group)
        line(f"let stop = min((part + 1) * {length}, {self.length});")
        step = group * ELEMENTS_PER_ITEM
        line(f"for (var start = part * {length}; start < stop; start += {step}) {{")
        self._write_chunk(shader, at, carry, group, stores)
        line("}")
        if totals is not None and not stores:
            line("if (lane == 0) {")
            for number, value in enumerate(carry):
                where = [str(number), "row", "part"]
                line(shader.element(totals, where, written=True).store(value))
            line("}")
        shader.launch(math.prod(shape) * parts)

    def _write_chunk(
        self, shader: Shader, at: Sequence[str], carry: Sequence[str], group: int, stores: bool
    ) -> None:
        """Add the lines that combine a few neighbors, scan their totals, and store results."""
        line, count = shader.line, len(carry)
        kind = wgsl.type_of(self.dtype)
        own = [f"shared{number}[lane]" for number in range(count)]
        last = [f"shared{number}[{group - 1}]" for number in range(count)]
        line(f"let first = start + lane * {ELEMENTS_PER_ITEM};")
        line(f"var kept: array<{kind}, {ELEMENTS_PER_ITEM}>;")
        total = self.variables(shader, "total", self.neutral)
        line(f"for (var j = 0; j < {ELEMENTS_PER_ITEM}; j++) {{")
        line("if (first + j < stop) {")
        element = self.variables(shader, "element", self.element(shader, "first + j", at))
        if self.is_exclusive:
            line(f"kept[j] = {total[-1]};")
        self.assign(shader, total, self.combined(total, element))
        if not self.is_exclusive:
            line(f"kept[j] = {total[-1]};")
        line("}")
        line("}")
        factor = self.variables(shader, "factor", self.neutral[:-1])
        self.assign(shader, own, total)
        line("workgroupBarrier();")
        line(f"for (var reach = 1; reach < {group}; reach = 2 * reach) {{")
        other = self.variables(shader, "other", self._of_lane("lane - reach"))
        mine = self.variables(shader, "mine", own)
        line("workgroupBarrier();")
        self.assign(shader, own, self.combined(other, mine))
        line("workgroupBarrier();")
        line("}")
        if stores:
            before = self.variables(shader, "before", self._of_lane("lane - 1"))
            self.assign(shader, before, self.combined(carry, before))
            self._write_results(shader, at, before, factor)
        whole = self.variables(shader, "whole", last)
        self.assign(shader, carry, self.combined(carry, whole))
        line("workgroupBarrier();")

    def _write_results(
        self, shader: Shader, at: Sequence[str], before: Sequence[str], factor: Sequence[str]
    ) -> None:
        """Add the loop that stores results; factors of a recurrence are found again."""
        line = shader.line
        line(f"for (var j = 0; j < {ELEMENTS_PER_ITEM} && first + j < stop; j++) {{")
        here = [*factor, "kept[j]"]
        if factor:
            weight, _ = self.element(shader, "first + j", at)
            line(f"{factor[0]} = {factor[0]} * {weight};")
        here = self.variables(shader, "here", here)
        *_, found = self.combined(before, here)
        line(self.store(shader, "first + j", at, found))
        line("}")

    def _of_lane(self, index: str) -> list[str]:
        """Return the totals of another lane; neutral ones before the first."""
        return [
            f"select({neutral}, shared{number}[max({index}, 0)], {index} >= 0)"
            for number, neutral in enumerate(self.neutral)
        ]


# Sorting


def rank(layout: TensorDescription, value: str) -> str:
    """Return the key of an element: a whole number in the order of values, NaN the greatest."""
    return f"rank_{wgsl.type_of(layout.dtype)}({value})"


class _Slots(NamedTuple):
    """Memory for the keys of a line and their places, of each work group that sorts one."""

    get: Callable[[str], tuple[str, str]]
    put: Callable[[str, str, str], str]
    barrier: str
    groups: int


def _slots(lowering: Lowering, shader: Shader, x: TensorDescription) -> _Slots:
    """Return the memory of a work group if a line fits there, else scratch memory."""
    processor, length = lowering.processor, x.shape[-1]
    count, keys = next_power_of_two(length), sort_key_dtype(x.dtype)
    if fits_group(length, x.dtype, processor):
        for name, kind in (("keys", wgsl.type_of(keys)), ("places_of", "i32")):
            shader.declarations.append(f"var<workgroup> {name}: array<{kind}, {count}>;")
        return _Slots(
            lambda index: (f"keys[{index}]", f"places_of[{index}]"),
            lambda index, key, place: f"keys[{index}] = {key}; places_of[{index}] = {place};",
            "workgroupBarrier();",
            line_count(x),
        )
    groups = concurrent_lines(line_count(x), length, processor)
    memory = [lowering.scratch((groups, count), dtype) for dtype in (keys, dtypes.int32)]

    def elements(index: str) -> list[Element]:
        return [shader.element(each, ["group_number", index], written=True) for each in memory]

    def get(index: str) -> tuple[str, str]:
        key, place = elements(index)
        return key.value, place.value

    def put(index: str, *values: str) -> str:
        pairs = zip(elements(index), values, strict=True)
        return " ".join(element.store(value) for element, value in pairs)

    return _Slots(get, put, "storageBarrier();", groups)


def sorting_rule(op: Any, lowering: Lowering) -> None:
    """Append the launch of a bitonic network: sorted elements, or their places."""
    x, out = as_lines(op.position, lowering.step.args[0], lowering.step.out)
    if not out.size:
        return
    length, group = x.shape[-1], lowering.processor.group
    shader = Shader(lowering, type(op).__name__.removesuffix("Op"), group)
    slots, line = _slots(lowering, shader, x), shader.line
    line(f"for (var row = group_number; row < {line_count(x)}; row += {slots.groups}) {{")
    at = [f"d{axis}" for axis in range(len(x.shape) - 1)]
    shader.coordinates("row", x.shape[:-1], at)
    line(f"for (var i = lane; i < {next_power_of_two(length)}; i += {group}) {{")
    line(f"var key = ~{wgsl.type_of(sort_key_dtype(x.dtype))}(0);")
    sign = "~" if op.descending else ""
    line(f"if (i < {length}) {{ key = {sign}{rank(x, shader.element(x, [*at, 'i']).value)}; }}")
    line(slots.put("i", "key", "i"))
    line("}")
    _write_network(shader, slots, next_power_of_two(length), group)
    line(f"for (var i = lane; i < {out.shape[-1]}; i += {group}) {{")
    line(f"let place = {slots.get('i')[1]};")
    if isinstance(op, SortOp):
        elements, target = as_words(x), as_words(out)
        for word in [["0"], ["1"]] if elements != x else [[]]:
            value = shader.element(elements, [*at, "place", *word]).value
            line(shader.element(target, [*at, "i", *word], written=True).store(value))
    else:
        value = f"{wgsl.type_of(out.dtype)}(place)"
        line(shader.element(out, [*at, "i"], written=True).store(value))
    line("}")
    line(slots.barrier)
    line("}")
    shader.launch(slots.groups)


def _write_network(shader: Shader, slots: _Slots, count: int, group: int) -> None:
    """Write Batcher's bitonic network; equal keys keep the order of their places."""
    line = shader.line
    line(f"for (var size = 2; size <= {count}; size = 2 * size) {{")
    line("for (var reach = size / 2; reach > 0; reach = reach / 2) {")
    line(slots.barrier)
    line(f"for (var i = lane; i < {max(count // 2, 1)}; i += {group}) {{")
    line("let low = 2 * i - (i & (reach - 1));")
    line("let high = low + reach;")
    for name, index in (("x", "low"), ("y", "high")):
        key, place = slots.get(index)
        line(f"let {name} = {key}; let {name}_place = {place};")
    line("let is_above = x > y || (x == y && x_place > y_place);")
    line("if (is_above == ((low & size) == 0)) {")
    line(slots.put("low", "y", "y_place"))
    line(slots.put("high", "x", "x_place"))
    line("} } } }")
    line(slots.barrier)


def sorting_bytes(op: Any, processor: Processor) -> int:
    """Return the bytes of the keys and places of lines that do not fit in shared memory."""
    x = op.args[0]
    length = x.axes.shape[op.position]
    return network_bytes(x.axes.size // length, length, x.dtype, processor) if x.axes.size else 0


def search_rule(op: Any, lowering: Lowering) -> None:
    """Append the launch of a binary search for each value."""
    ordered, values = lowering.step.args
    out = lowering.step.out
    sign = "<" if op.side == "left" else "<="

    def value(shader: Shader, at: list[str]) -> str:
        shader.line(f"let wanted = {rank(values, shader.element(values, at).value)};")
        shader.line(f"var low = 0; var high = {ordered.size};")
        shader.line("while (low < high) {")
        shader.line("let middle = low + (high - low) / 2;")
        found = rank(ordered, shader.element(ordered, ["middle"]).value)
        shader.line(f"if ({found} {sign} wanted) {{ low = middle + 1; }} else {{ high = middle; }}")
        shader.line("}")
        return f"{wgsl.type_of(out.dtype)}(low)"

    pointwise(lowering, "search sorted", out, value)
