"""Parts: reductions with so few rows or columns that these are cut, for all units to have work.

A sweep leaves the totals of each part, a small kernel combines them, and later sweeps read what it
found. The parts are fixed when a kernel is written: which unit did what makes no difference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod

from weft.ir.description import TensorDescription
from weft.kernels.kernel import Kernel
from weft_c.loops.elementwise import ElementWiseKernel
from weft_c.loops.loop_nest import Frame, cut_into, without_reduced
from weft_c.loops.parallel import (
    SHARES,
    decoded,
    each_group,
    each_point,
    serial_items,
    within_group,
)
from weft_c.loops.pointwise import write_map
from weft_c.lowering import Lowering
from weft_c.processor import Processor
from weft_c.reductions.columns import NARROWEST, WIDEST_OF_PART, ColumnSweeping
from weft_c.reductions.combiners import (
    Compensated,
    combined,
    is_blocked,
    keeps_errors,
    start,
    total_dtype,
)
from weft_c.reductions.loops import Sweeping
from weft_c.reductions.variance import (
    BlockSweeping,
    Moment,
    blocks_of,
    moments_of,
    most_blocks,
    points_of_block,
)
from weft_c.reductions.work_group import BESIDE, GroupSweeping, group_total
from weft_c.reductions.work_group_columns import USUAL, GroupColumnSweeping
from weft_c.source.index_types import is_wide
from weft_c.source.values import Form, register_type

SHORTEST_PART = 1024
"""The fewest points of a part."""

SHORTEST_ROW = 64
"""The shortest row that is worth a group of work items."""

SHORTEST_OF_GROUPS = 128
"""The fewest rows of a part of columns that a group sweeps in several lanes."""

_CUT = {
    ColumnSweeping: (NARROWEST, SHORTEST_PART),
    GroupColumnSweeping: (USUAL, SHORTEST_OF_GROUPS),
}
"""Of sweeps in columns, how many of these are cut together, and the fewest points of a part."""

SLOT = 256
"""The bytes to which scratch memory is aligned."""


def sweeping_of(frame: Frame, processor: Processor) -> type[Sweeping]:
    """Return how a frame is swept, by how its operands lie."""
    in_rows = not frame.reduced or 1 in frame.along(len(frame.shape) - 1)
    in_columns = bool(frame.kept) and 1 in frame.along(len(frame.kept) - 1)
    if not processor.is_serial:
        if in_columns and not in_rows:
            return GroupColumnSweeping if _are_for_groups(frame, processor) else Sweeping
        return GroupSweeping if prod(frame.reduced) >= SHORTEST_ROW else Sweeping
    if in_rows or not frame.kept or frame.kept[-1] < processor.lanes:
        return Sweeping
    return ColumnSweeping if in_columns else Sweeping


def _are_for_groups(frame: Frame, processor: Processor) -> bool:
    """Whether columns are for groups: a group needs many rows, or enough columns.

    A work item takes a column by itself where there are few columns beside each other, and so many
    of these that all units have work.
    """
    columns = frame.kept[-1]
    if columns < BESIDE and prod(frame.kept) >= processor.units * SHARES * processor.group:
        return False
    return prod(frame.reduced) >= SHORTEST_ROW or columns >= processor.group


def count_parts(
    rows: int,
    reduced: int,
    processor: Processor,
    shortest: int = SHORTEST_PART,
    points: int | None = None,
) -> int:
    """Return into how many parts each of some rows is cut; 1 for not at all.

    Rows of more points than one beside each other have so many `points` together.
    """
    if not rows or reduced < 2 * shortest:
        return 1
    wanted = processor.units * SHARES
    if processor.is_serial:
        wanted = min(wanted, serial_items(points or rows * reduced, processor))
    return max(1, min(wanted // rows, reduced // shortest))


def _count(
    kind: type[Sweeping], kernel: Kernel, kept: int, reduced: int, processor: Processor
) -> int:
    """Return into how many parts the reduced points are cut for each kept one, as they are swept.

    Columns that are swept once are cut before they are shared out among units in narrow tiles.
    """
    if kind is ColumnSweeping and _is_swept_once(kernel):
        return count_parts(-(-kept // WIDEST_OF_PART), reduced, processor, points=kept * reduced)
    together, shortest = _CUT.get(kind, (1, SHORTEST_PART))
    return count_parts(-(-kept // together), reduced, processor, shortest)


def _is_swept_once(kernel: Kernel) -> bool:
    """Whether no sweep of a kernel waits for the totals of another."""
    reductions = (each for each in kernel.body if each.is_reduction)
    return not any(each.stage for each in reductions) and not any(
        map(kernel.varies, kernel.outputs)
    )


def split_count(frame: Frame, processor: Processor) -> int:
    """Return into how many parts the sweeps of a frame are cut."""
    kind, (kept, reduced) = sweeping_of(frame, processor), map(prod, (frame.kept, frame.reduced))
    parts = _count(kind, frame.kernel, kept, reduced, processor)
    return parts if processor.is_serial or parts == 1 else min(parts, frame.reduced[0])


def scratch_of(kernel: Kernel, processor: Processor) -> int:
    """Return the bytes that the totals of a kernel's parts may take, however its operands lie."""
    reduced = prod(kernel.domain[place] for place in kernel.reduced)
    kept = prod(n for place, n in enumerate(kernel.domain) if place not in kernel.reduced)
    kinds = (Sweeping, ColumnSweeping if processor.is_serial else GroupColumnSweeping)
    parts = max(_count(kind, kernel, kept, reduced, processor) for kind in kinds)
    if parts == 1:
        return 0
    if processor.is_serial and moments_of(kernel):
        parts = most_blocks(reduced, parts)
    sizes = [total_dtype(each).itemsize for each in kernel.body if each.is_reduction]
    sizes += [kernel.values[each.mean].dtype.itemsize for each in moments_of(kernel)]
    return sum(-(-kept * parts * size // SLOT) * SLOT + kept * size + SLOT for size in sizes)


def write_in_parts(lowering: Lowering, frame: Frame, parts: int) -> None:
    """Write and launch the kernels of all stages, with each row cut into parts."""
    _Parts(lowering, frame, parts).write()


class _Parts:
    """The kernels of one frame.

    Attributes
    ----------
    moments
        By number, the sums of distances that are taken in the sweep for the sum of their mean.
    """

    def __init__(self, lowering: Lowering, frame: Frame, parts: int) -> None:
        self.lowering = lowering
        self.frame = frame
        self.kernel = frame.kernel
        self.kind = sweeping_of(frame, lowering.processor)
        self.moments: dict[int, Moment] = {}
        if self.kind is Sweeping and lowering.processor.is_serial:
            found = moments_of(frame.kernel)
            self.moments = {number: each for each in found for number in each.sums}
        self.parts = blocks_of(frame, parts) if self.moments else parts
        self.totals: dict[int, TensorDescription] = {}

    def write(self) -> None:
        kernel = self.kernel
        reductions = {
            number: kernel.instruction(number).stage
            for number in range(len(kernel.operands), len(kernel.values))
            if kernel.instruction(number).is_reduction
        }
        for number, moment in self.moments.items():
            reductions[number] = reductions[moment.total]
        results = dict(enumerate(kernel.outputs))
        steady = [result for result, number in results.items() if not kernel.varies(number)]
        for stage in range(kernel.stages):
            numbers = [number for number, each in reductions.items() if each == stage]
            if numbers:
                is_last = stage == max(reductions.values())
                self.combine(self.sweep(numbers), steady if is_last else [])
            stored = [
                result
                for result, number in results.items()
                if result not in steady and kernel.instruction(number).stage == stage
            ]
            if stored:
                write_map(self.kernel_on(self.frame), stored)

    @property
    def is_for_groups(self) -> bool:
        """Whether there are enough parts for a group of work items to combine them."""
        return not self.lowering.processor.is_serial and self.parts >= SHORTEST_ROW

    @property
    def grain(self) -> int:
        """The points in multiples of which parts begin, so that they begin with a bundle."""
        is_fastest = len(self.frame.reduced) == 1
        return max(self.lowering.processor.bundle_bytes, 1) if is_fastest else 1

    def kernel_on(self, frame: Frame, title: str = "", before: int = 0) -> ElementWiseKernel:
        """Begin a kernel that reads totals, which have `before` loops less than the frame."""
        writing = ElementWiseKernel(self.lowering, frame, title)
        after = len(frame.shape) - before - len(self.frame.kept)
        for number, lies in self.totals.items():
            shape = (1,) * before + lies.shape + (1,) * after
            strides = (0,) * before + lies.strides + (0,) * after
            writing.loads[number] = replace(lies, shape=shape, strides=strides)
        return writing

    def sweep(self, numbers: Sequence[int]) -> dict[int, TensorDescription]:
        """Write the sweep for some reductions; returns their totals of each part."""
        shape = (self.parts, *self.frame.kept)
        means = {self.moments[number].mean for number in numbers if number in self.moments}
        partial = {
            number: self.lowering.scratch(shape, total_dtype(self.kernel.instruction(number)))
            for number in (*numbers, *means)
        }
        frame = cut_into(self.frame, self.parts, partial, self.grain)
        writing = self.kernel_on(frame, f"{self.kernel.title}_of_parts", before=1)
        results = range(len(partial))
        if self.moments:
            BlockSweeping(writing, results, self.moments.values()).write()
        else:
            self.kind(writing, results, is_partial=True).write()
        return partial

    def combine(self, partial: dict[int, TensorDescription], steady: Sequence[int]) -> None:
        """Write the kernel that combines parts, and stores the results that are complete then."""
        frame = without_reduced(self.frame)
        writing = self.kernel_on(frame, f"{self.kernel.title}_of_all")
        totals = {
            number: self.lowering.scratch(frame.kept, self.kernel.instruction(number).dtype)
            for number in partial
            if self.kernel.instruction(number).is_reduction
        }
        outputs = [self.kernel.outputs[result] for result in steady]

        def known_at(kept: tuple[str, ...]) -> dict[int, str]:
            known: dict[int, str] = {}
            for number in totals:
                beyond = self.beyond(writing, number, partial, kept, known)
                known[number] = self.total(writing, number, partial[number], kept, beyond)
            return known

        def store(known: dict[int, str], kept: tuple[str, ...]) -> None:
            for number, lies in totals.items():
                written = writing.array("total", lies, written=True)
                writing.code.line(written.set(known[number], *kept))
            names = writing.compute(outputs, Form(writing.code), kept, known)
            for result, number in zip(steady, outputs, strict=True):
                writing.store(result, names[number], Form(writing.code), kept)

        def at_point(indices: tuple[str, ...], form: Form) -> None:
            kept = indices if frame.kept else ()
            store(known_at(kept), kept)

        if self.is_for_groups:
            with each_group(writing, prod(frame.kept)) as number:
                kept = decoded(writing.code, frame.kept, number, "i64")
                known = known_at(kept)
                with writing.code.block("if (LOCAL_ID == 0)"):
                    store(known, kept)
        else:
            wide = frame.is_wide or is_wide(*partial.values())
            each_point(writing, frame.kept or (1,), at_point, wide=wide, cost=self.parts)
        self.totals.update(totals)

    def beyond(
        self,
        writing: ElementWiseKernel,
        number: int,
        partial: Mapping[int, TensorDescription],
        kept: tuple[str, ...],
        known: Mapping[int, str],
    ) -> Callable[[str], str] | None:
        """Write what tells how far each part is from the mean of all, if distances are added up.

        Returns what writes that for a part; None for any other reduction.
        """
        if number not in self.moments:
            return None
        moment, code = self.moments[number], writing.code
        kind = f"const {register_type(self.kernel.values[number].dtype)}"
        mean = writing.compute([moment.mean], Form(writing.code), kept, known)[moment.mean]

        def added(part: str) -> str:
            points = points_of_block(self.frame, part, self.parts)
            points = code.define(kind, "points", points)
            own = writing.array("of_part", partial[moment.mean]).get(part, *kept)
            distance = code.define(kind, "distance", f"{own} - {mean}")
            if number == moment.distances:
                return f"{points} * {distance}"
            moved = f"{points} * {distance} * {distance}"
            if moment.distances is None:
                return moved
            sums = writing.array("of_part", partial[moment.distances]).get(part, *kept)
            return f"({moved} + 2 * {distance} * {sums})"

        return added

    def total(
        self,
        writing: ElementWiseKernel,
        number: int,
        lies: TensorDescription,
        kept: tuple[str, ...],
        beyond: Callable[[str], str] | None = None,
    ) -> str:
        """Write the total of all parts at a point, and return its name.

        `beyond` writes what each part counts for beside its own total.
        """
        made = self.kernel.instruction(number)
        form, dtype, code = Form(writing.code), total_dtype(made), writing.code
        total = code.define(form.type(dtype), "total", start(made, form))
        exact: Compensated | None = None
        if is_blocked(made) or keeps_errors(made):
            error = code.define(form.type(dtype), "error", form.constant(0, dtype))
            exact = Compensated(dtype, form, total, error)
        part = code.name("part")
        head = f"for (i32 {part} = 0; {part} < {self.parts}; {part}++)"
        if self.is_for_groups:
            head = within_group(writing, part, self.parts)
        with code.block(head):
            value = writing.array("of_part", lies).get(part, *kept)
            if beyond is not None:
                value = f"({value} + {beyond(part)})"
            if exact is None:
                code.line(f"{total} = {combined(made, form, total, value)};")
            else:
                exact.take(code, made, value)
        if exact is not None:
            code.line(f"{total} = {exact.rounded};")
        if self.is_for_groups:
            total = group_total(writing, made, total, writing.processor.group)
        text = form.converted(dtype, made.dtype, total)
        return code.define(f"const {form.type(made.dtype)}", "v", text)
