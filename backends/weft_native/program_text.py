"""ProgramText: the C text of a program: its kernels, launches, segments and control flow.

All functions take a table of addresses: the caller's arrays, the buffers of the program, and its
error words. Nothing in a library depends on the transformer that loaded it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from weft.ir.description import TensorDescription
from weft.plan.plan import ARENA, INPUT, RESULT, Buffer
from weft.report.recorder import RESUMED
from weft.support.source import Location
from weft_c.matmul import blas
from weft_c.runtime.control_flow import Conditional, Repeat, While
from weft_c.runtime.segments import Launch, Segment
from weft_c.source.functions import HostCall, LibraryCall, Section
from weft_c.source.numbers import readable

if TYPE_CHECKING:
    from weft_native.executor import NativeKernelGroup

ARRAY_DATA = object.__basicsize__
"""The offset of the address of its elements in an array of NumPy: the field after the head."""

UNIT_SIZE = 12_000
"""The characters of kernels that are worth a unit of their own."""

NUMBERS = Buffer("numbers", 0, -1)
"""What stands for the table of the launches' numbers among the buffers."""

FUNCTIONS = ("weft_init", "weft_launch", "weft_segment", "weft_program", "weft_call")
"""The functions of a program that Python calls."""

REPORTED, INTERRUPTED = 1, 2
"""What a program returns if a kernel reported an error, or an interrupt ended a loop."""


RECORD_HEAD = 3
"""The numbers before the marks of a record: its capacity, the number of marks, the last time."""

RECORD = """\
/* The record of a profile: its head, marks of a row and a time in nanoseconds each, and for each
   row the time and the number of the launches that came when there was no room for marks. */
static int64_t *marks;
EXPORT void weft_record(int64_t *memory) { marks = memory; }
static void record(int64_t row) {
    const int64_t now = runtime->clock();
    if (marks[1] < marks[0]) {
        int64_t *mark = marks + 3 + 2 * marks[1]++;
        mark[0] = row, mark[1] = now;
    } else if (row >= 0) {
        int64_t *total = marks + 3 + 2 * (marks[0] + row);
        total[0] += now - marks[2], total[1] += 1;
    }
    marks[2] = now;
}
"""
"""The function that marks the end of a launch; its clock is that of Python's `perf_counter`."""


class ProgramText:
    """Writes the C text of a program.

    Attributes
    ----------
    has_numbers
        Whether the text reads its numbers from a table, so that it serves other lengths too.
    numbers
        The numbers of launches that the text reads from a table.
    is_whole
        Whether one call runs the whole program, because no host work stands between segments.
    buffers
        The number of each buffer in the table of addresses, where the arena is one buffer; None
        stands for the error words, and `NUMBERS` for the table of numbers.
    segments
        All segments, those inside loops and conditionals included; functions have their numbers.
    launches
        The number of each launch.
    units
        The number of units that the text is compiled in.
    """

    def __init__(self, group: NativeKernelGroup) -> None:
        self.group = group
        self.has_numbers = group.numbers is not None
        self.numbers: list[int] = []
        self.recorder = group.recorder
        self.arrays = len(group.program.captured.inputs) + len(group.program.captured.outputs)
        self.buffers: dict[Buffer | None, int] = {NUMBERS: 0} if self.has_numbers else {}
        self._arena: Buffer | None = None
        self.segments = list(_all_segments(group.segments))
        self.is_whole = not any(isinstance(each.host, HostCall) for each in self.segments)
        self.launches: dict[int, int] = {}
        self.units = 1
        self._numbers = {id(each): number for number, each in enumerate(self.segments)}
        self._known: dict[tuple[str, int, int], int] = {}
        self._calls: list[str] = []

    @property
    def has_loops(self) -> bool:
        """Whether the program has loops."""
        return any(isinstance(each.host, Repeat | While) for each in self.segments)

    def segment_number(self, segment: Segment) -> int:
        """Return the number of a segment."""
        return self._numbers[id(segment)]

    def slot(self, layout: TensorDescription | None) -> int:
        """Return the place in the table of the array or buffer of a tensor."""
        if layout is not None and layout.base.kind in (INPUT, RESULT):
            return self.group.array_number(layout)
        base = None if layout is None else layout.base
        if base is not None and base.kind == ARENA:
            # All of the arena is one buffer, as it is in a program that the cache restores.
            base = self._arena = self._arena or base
        return self.arrays + self.buffers.setdefault(base, len(self.buffers))

    def text(self, processors: int = 1) -> str:
        """Return the program, in as many units as so many processors compile quickly.

        The text of all units is the same; the macro ``UNIT`` tells which kernels one compiles.
        Unit 0 has everything else.
        """
        sections = list(self.group.source.sections())
        size = sum([len(each.text) for each in sections if each.name is not None])
        self.units = max(min(processors, size // UNIT_SIZE), 1)
        declared = [f"static int segment_{n}(char *const *b);" for n in range(len(self.segments))]
        functions = [self._segment(number, each) for number, each in enumerate(self.segments)]
        program = "\n".join([
            "static const struct weft_runtime *runtime;\n",
            *([] if self.recorder is None else [RECORD]),
            *self._calls, *declared, *functions, *self._entries(),
        ])  # fmt: skip
        if self.units > 1:
            program = f"#if UNIT == 0\n{program}\n#endif\n"
        # GCC and Clang differ in their pragmas for unrolling: see UNROLL in prelude.h.
        kernels = "\n".join(each.text for each in self._kernels(sections))
        return f"{kernels.replace('#pragma unroll', 'UNROLL')}\n{program}"

    def readable(self, text: str) -> str:
        """Return the program with the numbers in place."""
        if not self.has_numbers:
            return text
        table = re.escape(f"((const i64 *)b[{self.arrays}])")
        text = re.sub(rf"{table}\[(\d+)\]", lambda found: str(self.numbers[int(found[1])]), text)
        return readable(text, self.group.numbers)

    def number(self, value: int) -> str:
        """Return an integer of a launch: itself, or its place in the table."""
        if not self.has_numbers:
            return str(value)
        self.numbers.append(value)
        return f"((const i64 *)b[{self.arrays}])[{len(self.numbers) - 1}]"

    def line_locations(self) -> list[Sequence[Location]]:
        """Return the user's lines behind each line of the kernels, which come first in the text."""
        kernels = self._kernels(self.group.source.sections())
        return [each.locations for each in kernels for _ in range(each.lines)]

    def _kernels(self, sections: Iterable[Section]) -> Iterator[Section]:
        """Yield the sections of the source, each kernel in the unit that is the smallest so far."""
        sizes = [0] * self.units
        for name, text, locations in sections:
            if name is None or self.units == 1:
                yield Section(name, text, locations)
                continue
            unit = sizes.index(min(sizes))
            sizes[unit] += len(text)
            shared = text.replace(f"static NOINLINE void {name}(", f"NOINLINE void {name}(", 1)
            start = shared.index(f"NOINLINE void {name}(")
            head = shared[start : shared.index(" {", start)]
            text = f"#if UNIT == {unit}\n{shared}\n#else\n{head};\n#endif\n"
            yield Section(name, text, locations)

    def _entries(self) -> Iterator[str]:
        """Yield the functions that Python calls."""
        cases = "".join(f"    case {n}: launch_{n}(b); break;\n" for n in self._known.values())
        segments = "".join(
            f"    case {n}: return segment_{n}(b);\n" for n in range(len(self.segments))
        )
        body = "\n".join(self._sequence(self.group.segments, "    ")) if self.is_whole else ""
        parameters = "".join(f", const char *a{n}" for n in range(self.arrays))
        data = "".join(
            f"    b[{n}] = *(char *const *)(a{n} + {ARRAY_DATA});\n" for n in range(self.arrays)
        )
        yield (
            f"EXPORT void weft_init(const struct weft_runtime *table) {{ runtime = table; }}\n"
            f"EXPORT void weft_launch(char *const *b, int number) {{\n    switch (number) {{\n"
            f"{cases}    }}\n}}\n"
            f"EXPORT int weft_segment(char *const *b, int number) {{\n    switch (number) {{\n"
            f"{segments}    }}\n    return 0;\n}}\n"
            f"EXPORT int weft_program(char *const *b) {{\n{body}\n    return 0;\n}}\n"
            f"EXPORT int weft_call(char **b{parameters}) {{\n{data}"
            "    return weft_program(b);\n}\n"
        )

    # Segments and control flow

    def _segment(self, number: int, segment: Segment) -> str:
        lines = [f"static int segment_{number}(char *const *b) {{"]
        if self.recorder is not None:
            lines.append(f"    record({RESUMED});")
        for launch, word in segment.kernels:
            lines.append(f"    launch_{self._launch(launch, word)}(b);")
            if self.recorder is not None:
                lines.append(f"    record({self.group.row_of(launch)});")
        if self.is_whole:
            if segment.reports:
                words = f"((const i32 *)b[{self.slot(None)}])"
                tests = " | ".join(f"{words}[{report.word}]" for report in segment.reports)
                lines.append(f"    if ({tests}) return {REPORTED};")
            lines += self._control(segment)
        return "\n".join([*lines, "    return 0;\n}\n"])

    def _control(self, segment: Segment) -> Iterator[str]:
        """Yield the loop or conditional at the end of a segment."""
        poll = f"        if (runtime->poll()) return {INTERRUPTED};"
        match segment.host:
            case Repeat(count, inside):
                yield f"    for (i64 i = 0, n = {self.number(count)}; i < n; i++) {{"
                yield from (poll, *self._sequence(inside), "    }")
            case While(test, flag, inside):
                yield from self._sequence(test, "    ")
                yield f"    while ({self._flag(flag)}) {{"
                yield from (poll, *self._sequence(inside), *self._sequence(test), "    }")
            case Conditional(flag, then, otherwise):
                yield f"    if ({self._flag(flag)}) {{"
                yield from (*self._sequence(then), "    } else {", *self._sequence(otherwise))
                yield "    }"

    def _sequence(self, segments: Sequence[Segment], indent: str = "        ") -> Iterator[str]:
        for each in segments:
            if each.kernels or each.host is not None:
                number = self.segment_number(each)
                yield f"{indent}{{ int status = segment_{number}(b); if (status) return status; }}"

    def _flag(self, flag: TensorDescription) -> str:
        return f"*(const u8 *)({self._address(flag, flag.offset)})"

    # Launches

    def _address(self, layout: TensorDescription | None, offset: int) -> str:
        address = f"b[{self.slot(layout)}]"
        return f"{address} + {self.number(offset)}" if offset or self.has_numbers else address

    def _launch(self, launch: Launch, word: int | None) -> int:
        """Return the number of a launch, whose function is written when it is new."""
        if isinstance(launch, LibraryCall):
            call, items = self._library(launch), 0
        else:
            args = [
                f"({parameter.ctype} *)({self._address(layout, self._start(layout, word))})"
                for layout, parameter in zip(launch.args, launch.function.parameters, strict=True)
            ]
            call = f"{launch.function.name}({', '.join([*args, 'item', 'items'])});"
            items = launch.items
        # For other lengths, launches that are equal here may have other addresses each.
        alike = len(self._known) if self.has_numbers else 0
        number = self._known.setdefault((call, items, alike), len(self._known))
        self.launches[id(launch)] = number
        if number == len(self._calls):
            is_alone = items == 1 and not self.has_numbers
            written = self.number(items) if items else ""
            self._calls.append(_launch_function(number, call, written, is_alone))
        return number

    def _start(self, layout: TensorDescription | None, word: int | None) -> int:
        if layout is None:
            assert word is not None, "a launch that reports has a word"
            return 4 * word
        return self.group.argument_range(layout)[0]

    def _library(self, launch: LibraryCall) -> str:
        places = ", ".join(self._address(layout, layout.offset) for layout in launch.args)
        shape = ", ".join(map(self.number, gemm_shape(*launch.args)))
        kind = "const i64" if self.has_numbers else "static const i64"
        return f"    {kind} shape[] = {{{shape}}};\n    runtime->gemm(shape, {places});"


def gemm_shape(
    x: TensorDescription, y: TensorDescription, out: TensorDescription
) -> tuple[int, ...]:
    """Return the parameters of a product, in the order of ``weft_gemm`` in runtime.c."""
    found = blas.gemm(x, y, out)
    assert found is not None, "the product suits a BLAS"
    left, right = found.left, found.right
    return (
        x.dtype.itemsize, found.m, found.n, found.k, found.batch,
        int(left.is_transposed), left.leading, left.step,
        int(right.is_transposed), right.leading, right.step,
        found.out.leading, found.out.step,
    )  # fmt: skip


def _launch_function(number: int, call: str, items: str, is_alone: bool) -> str:
    """Return the function of a launch; a library call, which has no items, divides its own work.

    A launch that `is_alone` has one item, whatever the lengths are.
    """
    head = f"static void launch_{number}(char *const *b)"
    if not items:
        return f"{head} {{\n{call}\n}}\n"
    if is_alone:
        return f"{head} {{\n    const i64 item = 0, items = 1;\n    {call}\n}}\n"
    part = f"static void part_{number}(char *const *b, i64 item, i64 items)"
    run = f"runtime->run(part_{number}, b, {items});"
    return f"{part} {{\n    {call}\n}}\n{head} {{\n    {run}\n}}\n"


def _all_segments(segments: Iterable[Segment]) -> Iterator[Segment]:
    """Yield segments, each followed by those inside its loop or conditional."""
    for segment in segments:
        yield segment
        match segment.host:
            case Repeat(_, inside):
                yield from _all_segments(inside)
            case While(test, _, inside):
                yield from _all_segments([*test, *inside])
            case Conditional(_, then, otherwise):
                yield from _all_segments([*then, *otherwise])
