"""Work-group reductions on parallel devices: the work items of a group reduce a row together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from math import prod

from weft.kernels.kernel import Instruction
from weft.support.backports import override
from weft_c.loops.elementwise import ElementWiseKernel
from weft_c.loops.parallel import unravel_index, work_group_loop
from weft_c.lowering import KernelBuilder
from weft_c.reductions.combiners import (
    CompensatedAccumulator,
    accumulation_dtype,
    combine,
    is_compensated,
)
from weft_c.reductions.loops import ReductionLoops, Stage
from weft_c.source.code import Code
from weft_c.source.values import ValueEmitter, register_type

MIN_COALESCED = 32
"""The fewest work items that read contiguous memory, so that accesses coalesce."""

MIN_ELEMENTS_PER_ITEM = 4
"""The fewest elements of a row for each work item, unless a vectorized access has more."""


class WorkGroupReductionLoops(ReductionLoops):
    """Reduction loops in which a work group reduces a row, or several short ones.

    Neighboring work items read neighboring elements.
    """

    def __init__(
        self, builder: ElementWiseKernel, results: Iterable[int], is_partial: bool = False
    ) -> None:
        super().__init__(builder, results, is_partial)
        self.group = self.width = builder.processor.group
        sizes = [each.dtype.itemsize for each in self.nest.tensors if each.strides[-1]]
        places = max(
            MIN_ELEMENTS_PER_ITEM,
            builder.processor.vector_bytes // max(sizes, default=MIN_ELEMENTS_PER_ITEM),
        )
        while self.width > MIN_COALESCED and self.width * places > self.nest.reduced[-1]:
            self.width //= 2
        self.guards: list[str] = []

    @property
    def member(self) -> str:
        """The index of a work item among those that share a row."""
        return "LOCAL_ID" if self.width == self.group else f"LOCAL_ID % {self.width}"

    @override
    def write(self) -> None:
        rows, together = prod(self.nest.kept), self.group // self.width
        with work_group_loop(self.builder, -(-rows // together)) as number:
            row = number
            if together > 1:
                row = self.assign(
                    f"{number} * {together} + LOCAL_ID / {self.width}", rows, together
                )
            self.write_point(unravel_index(self.code, self.nest.kept, row, "i64"))

    def assign(self, number: str, count: int, together: int) -> str:
        """Write the index of the row, or column, of a work item, clamped to the last one.

        A group processes `together` of `count`. All work items take part in barriers; `guards` are
        the conditions under which one has a row.
        """
        self.guards = []
        if count % together:
            number = self.code.define("const i64", "wanted", number)
            self.guards = [f"{number} < {count}"]
            if count == 1:
                return "0"
            number = f"{number} < {count} ? {number} : 0"
        return self.code.define("const i64", "place", number)

    def open_loops(self, stack: ExitStack, accumulators: dict[int, list[str]]) -> tuple[str, ...]:
        """Open all reduced loops but the innermost, under the guards."""
        if self.guards:
            stack.enter_context(self.code.block(f"if ({self.guards[0]})"))
        return super().open_loops(stack, accumulators)

    def interleaving(self, loop: int, lanes: int, vectors: int) -> int:
        """Return how many work items share a reduced loop."""
        return self.width if loop == len(self.nest.reduced) - 1 else 1

    def lanes(self, targets: Sequence[int], results: Sequence[int]) -> int:
        """Return 1: work items replace the lanes of vectors."""
        return 1

    def write_innermost_loop(self, outer: tuple[str, ...], lanes: int, stage: Stage) -> None:
        """Write a work item's innermost loop: vectorized accesses, then the remainder."""
        first = self.write_vectorized((self.member, self.width), outer, stage)
        if first is None:
            return
        _, last = self.span(len(self.nest.reduced) - 1)
        name = self.code.name("k")
        begin = self.member if first == "0" else f"{first} + {self.member}"
        with self.code.loop(self.kind, name, begin, last, self.width):
            self.write_body((*outer, name), ValueEmitter(self.code), stage)

    def accumulator(
        self, instruction: Instruction, names: Sequence[str]
    ) -> tuple[str, CompensatedAccumulator | None]:
        """Return a work item's accumulator: a product with its error, or a rounded total."""
        if is_compensated(instruction):
            return names[0], self.compensated[names[0]]
        return self.rounded(names)[0], None

    def finish_accumulator(self, number: int, names: Sequence[str], lanes: int) -> str:
        """Combine the accumulators of a row's work items; all of them get the result."""
        instruction = self.kernel.instruction(number)
        dtype = accumulation_dtype(instruction)
        total, compensated = self.accumulator(instruction, names)
        total = reduce_work_group(self.builder, instruction, total, self.width, compensated)
        if dtype == instruction.dtype or self.is_partial:
            return total
        emitter = ValueEmitter(self.code)
        text = emitter.converted(dtype, instruction.dtype, total)
        return self.code.define(f"const {emitter.type(instruction.dtype)}", "v", text)

    def store_invariant_results(self, kept: tuple[str, ...]) -> None:
        """Store the row-invariant results by one work item."""
        if self.invariant_results:
            self.wait_for_readers()
            with self.code.block(f"if ({' && '.join([f'{self.member} == 0', *self.guards])})"):
                super().store_invariant_results(kept)

    def wait_for_readers(self) -> None:
        """Write a barrier before results that may overwrite an operand which others still read."""
        _, varying = self.stage_values(self.kernel.stages - 1)
        if varying:
            self.code.line("BARRIER();")


def reduce_work_group(
    builder: KernelBuilder,
    instruction: Instruction,
    total: str,
    width: int,
    compensated: CompensatedAccumulator | None = None,
) -> str:
    """Write the reduction of an accumulator over `width` neighboring work items.

    All of them get the result. Warps reduce by shuffles where the device has them, and their
    results are combined sequentially in local memory; else a tree in local memory reduces all.
    That of a product keeps the errors of its `compensated` accumulators: those of factors add up.
    """
    code, group, warp = builder.code, builder.processor.group, builder.processor.dialect.warp
    kind = register_type(accumulation_dtype(instruction))
    shared = f"of_warps_{kind}"
    if warp and width % warp == 0 and compensated is None:
        _reduce_warp(code, instruction, total, warp)
        code.declare(f"LOCAL {kind} {shared}[{group // warp}];")
        code.line(f"if (LOCAL_ID % {warp} == 0) {shared}[LOCAL_ID / {warp}] = {total};")
        code.line("BARRIER();")
        first = "" if width == group else f"LOCAL_ID / {width} * {width // warp} + "
        found = code.define(kind, "v", f"{shared}[{first}0]")
        for place in range(1, width // warp):
            text = combine(instruction, ValueEmitter(code), found, f"{shared}[{first}{place}]")
            code.line(f"{found} = {text};")
    else:
        member = "LOCAL_ID" if width == group else f"LOCAL_ID % {width}"
        first = "0" if width == group else f"LOCAL_ID / {width} * {width}"
        at = reduce_tree(code, instruction, (total, compensated), (group, width // 2, 1), member)
        found = code.define(f"const {kind}", "v", at(first))
    code.line("BARRIER();")
    return found


def _reduce_warp(code: Code, instruction: Instruction, total: str, warp: int) -> None:
    deviation = warp // 2
    while deviation:
        kind = f"const {register_type(accumulation_dtype(instruction))}"
        other = code.define(kind, "other", code.shuffled(total, deviation))
        code.line(f"{total} = {combine(instruction, ValueEmitter(code), total, other)};")
        deviation //= 2


def reduce_tree(
    code: Code,
    instruction: Instruction,
    accumulator: tuple[str, CompensatedAccumulator | None],
    sizes: tuple[int, int, int],
    member: str,
) -> Callable[[str], str]:
    """Write a tree reduction of a total, or compensated accumulator, of all work items of a group.

    `sizes` are that of the group, and the largest and the smallest distance of elements that are
    combined: one is half of the one before. `member` is the index of a work item among those that
    are reduced together. Returns what gives the result in an element of local memory.
    """
    (total, compensated), (group, widest, least) = accumulator, sizes
    kind = register_type(accumulation_dtype(instruction))
    arrays = {f"shared_{kind}": total}
    if compensated is not None:
        arrays[f"errors_{kind}"] = compensated.error
    for name, value in arrays.items():
        code.declare(f"LOCAL {kind} {name}[{group}];")
        code.line(f"{name}[LOCAL_ID] = {value};")
    code.line("BARRIER();")

    def elements(index: str) -> list[str]:
        return [f"{name}[{index}]" for name in arrays]

    half = code.name("half")
    with code.block(f"for (i32 {half} = {widest}; {half} >= {least}; {half} /= 2)"):
        with code.block(f"if ({member} < {half})"):
            mine, others = elements("LOCAL_ID"), elements(f"LOCAL_ID + {half}")
            if compensated is None:
                code.line(
                    f"{mine[0]} = {combine(instruction, ValueEmitter(code), mine[0], others[0])};"
                )
            else:
                replace(compensated, total=mine[0], error=mine[1]).multiply(code, *others)
        code.line("BARRIER();")

    def result(index: str) -> str:
        if compensated is None:
            return elements(index)[0]
        total, error = elements(index)
        return replace(compensated, total=total, error=error).rounded

    return result
