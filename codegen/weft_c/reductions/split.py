"""Split reductions: few long rows or columns, split so that all compute units have work.

One kernel stores the accumulators of each split, a small kernel combines them, and later stages
read the result. Splits are fixed at compile time, so results do not depend on scheduling.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod

from weft.ir.description import TensorDescription
from weft.kernels.kernel import Kernel
from weft_c.loops.elementwise import ElementWiseKernel
from weft_c.loops.loop_nest import LoopNest, split_reduced_loop, without_reduced_loops
from weft_c.loops.parallel import parallel_for, unravel_index, work_group_loop, work_item_loop
from weft_c.loops.pointwise import write_map
from weft_c.lowering import Lowering
from weft_c.processor import Processor
from weft_c.reductions.columns import MAX_SPLIT_WIDTH, MIN_WIDTH, ColumnReductionLoops
from weft_c.reductions.combiners import (
    CompensatedAccumulator,
    accumulation_dtype,
    combine,
    identity_element,
    is_blocked,
    is_compensated,
)
from weft_c.reductions.loops import ReductionLoops
from weft_c.reductions.variance import (
    Variance,
    VarianceReductionLoops,
    count_blocks,
    find_variances,
    max_blocks,
    points_in_block,
)
from weft_c.reductions.work_group import MIN_COALESCED, WorkGroupReductionLoops, reduce_work_group
from weft_c.reductions.work_group_columns import COLUMNS_PER_GROUP, WorkGroupColumnReductionLoops
from weft_c.source.index_types import is_wide
from weft_c.source.values import ValueEmitter, register_type
from weft_tiling.sharing import GROUPS_PER_UNIT, MIN_SPLIT_POINTS, count_splits

MIN_WORK_GROUP_ROW = 64
"""The shortest row that is reduced by a work group."""

MIN_SPLIT_ROWS = 128
"""The fewest rows of a split of columns that a work group reduces in several lanes."""

_SPLIT_SIZES = {
    ColumnReductionLoops: (MIN_WIDTH, MIN_SPLIT_POINTS),
    WorkGroupColumnReductionLoops: (COLUMNS_PER_GROUP, MIN_SPLIT_ROWS),
}
"""For column reductions, the columns that are split together, and the fewest points of a split."""

SCRATCH_ALIGNMENT = 256
"""The alignment of scratch memory, in bytes."""


def choose_reduction_loops(nest: LoopNest, processor: Processor) -> type[ReductionLoops]:
    """Return the kind of reduction loops for a nest, by the strides of its operands."""
    in_rows = not nest.reduced or 1 in nest.strides_along(len(nest.shape) - 1)
    in_columns = bool(nest.kept) and 1 in nest.strides_along(len(nest.kept) - 1)
    if not processor.is_serial:
        if in_columns and not in_rows:
            return (
                WorkGroupColumnReductionLoops
                if _suits_work_groups(nest, processor)
                else ReductionLoops
            )
        return (
            WorkGroupReductionLoops if prod(nest.reduced) >= MIN_WORK_GROUP_ROW else ReductionLoops
        )
    has_columns = in_columns and nest.kept[-1] >= processor.lanes
    are_short = has_columns and bool(nest.reduced) and prod(nest.reduced) < processor.lanes
    has_rows = in_rows and not are_short
    return ColumnReductionLoops if has_columns and not has_rows else ReductionLoops


def _suits_work_groups(nest: LoopNest, processor: Processor) -> bool:
    """Whether columns are reduced by work groups, which need many rows or enough columns.

    Single work items reduce columns where few are contiguous, and where there are enough of them in
    total to occupy all compute units.
    """
    columns = nest.kept[-1]
    if (
        columns < MIN_COALESCED
        and prod(nest.kept) >= processor.units * GROUPS_PER_UNIT * processor.group
    ):
        return False
    return prod(nest.reduced) >= MIN_WORK_GROUP_ROW or columns >= processor.group


def _count_splits(
    kind: type[ReductionLoops], kernel: Kernel, unreduced: int, reduced: int, processor: Processor
) -> int:
    """Return the number of splits of the reduced points, by the kind of reduction loops.

    Single-pass column reductions prefer splits to narrow tiles.
    """
    if kind is ColumnReductionLoops and _is_single_pass(kernel):
        return count_splits(
            -(-unreduced // MAX_SPLIT_WIDTH), reduced, processor, points=unreduced * reduced
        )
    together, min_points = _SPLIT_SIZES.get(kind, (1, MIN_SPLIT_POINTS))
    return count_splits(-(-unreduced // together), reduced, processor, min_points)


def _is_single_pass(kernel: Kernel) -> bool:
    """Whether no stage of a kernel depends on the reductions of another one."""
    reductions = (each for each in kernel.body if each.is_reduction)
    return not any(each.stage for each in reductions) and not any(
        map(kernel.varies, kernel.outputs)
    )


def split_count(nest: LoopNest, processor: Processor) -> int:
    """Return the number of splits of a nest's reductions."""
    kind = choose_reduction_loops(nest, processor)
    unreduced, reduced = map(prod, (nest.kept, nest.reduced))
    splits = _count_splits(kind, nest.kernel, unreduced, reduced, processor)
    return splits if processor.is_serial or splits == 1 else min(splits, nest.reduced[0])


def split_scratch(kernel: Kernel, processor: Processor) -> int:
    """Return the most bytes that the accumulators of a kernel's splits need, for any layout."""
    reduced = prod(kernel.domain[axis] for axis in kernel.reduced)
    unreduced = prod(n for axis, n in enumerate(kernel.domain) if axis not in kernel.reduced)
    kinds = (
        ReductionLoops,
        ColumnReductionLoops if processor.is_serial else WorkGroupColumnReductionLoops,
    )
    splits = max(_count_splits(kind, kernel, unreduced, reduced, processor) for kind in kinds)
    if splits == 1:
        return 0
    if processor.is_serial and find_variances(kernel):
        splits = max_blocks(reduced, splits)
    sizes = [accumulation_dtype(each).itemsize for each in kernel.body if each.is_reduction]
    sizes += [kernel.values[each.mean].dtype.itemsize for each in find_variances(kernel)]
    return sum(
        -(-unreduced * splits * size // SCRATCH_ALIGNMENT) * SCRATCH_ALIGNMENT
        + unreduced * size
        + SCRATCH_ALIGNMENT
        for size in sizes
    )


def write_split_reduction(lowering: Lowering, nest: LoopNest, splits: int) -> None:
    """Write and launch the kernels of all stages, with each row split."""
    _SplitReduction(lowering, nest, splits).write()


class _SplitReduction:
    """Writes the kernels of a split reduction.

    Attributes
    ----------
    variances
        By number, the sums of deviations that are computed together with the sum of their mean.
    """

    def __init__(self, lowering: Lowering, nest: LoopNest, splits: int) -> None:
        self.lowering = lowering
        self.nest = nest
        self.kernel = nest.kernel
        self.kind = choose_reduction_loops(nest, lowering.processor)
        self.variances: dict[int, Variance] = {}
        if self.kind is ReductionLoops and lowering.processor.is_serial:
            variances = find_variances(nest.kernel)
            self.variances = {number: each for each in variances for number in each.sums}
        self.splits = count_blocks(nest, splits) if self.variances else splits
        self.accumulators: dict[int, TensorDescription] = {}

    def write(self) -> None:
        kernel = self.kernel
        stages = [set(kernel.reductions_of(stage)) for stage in range(kernel.stages)]
        for number, variance in self.variances.items():
            stages[kernel.instruction(number).stage].discard(number)
            stages[kernel.instruction(variance.total).stage].add(number)
        last = max(stage for stage, numbers in enumerate(stages) if numbers)
        for stage, numbers in enumerate(stages):
            if numbers:
                invariants = [r for r, n in enumerate(kernel.outputs) if not kernel.varies(n)]
                partial = self.write_stage(sorted(numbers))
                self.combine_splits(partial, invariants if stage == last else [])
            stored = kernel.results_of(stage)
            if stored:
                write_map(self.kernel_on(self.nest), stored)

    @property
    def is_for_groups(self) -> bool:
        """Whether there are enough splits for a work group to combine them."""
        return not self.lowering.processor.is_serial and self.splits >= MIN_WORK_GROUP_ROW

    @property
    def grain(self) -> int:
        """The multiple of points at which splits begin, so that vectorized accesses are aligned."""
        is_fastest = len(self.nest.reduced) == 1
        return max(self.lowering.processor.vector_bytes, 1) if is_fastest else 1

    def kernel_on(self, nest: LoopNest, title: str = "", before: int = 0) -> ElementWiseKernel:
        """Begin a kernel that reads combined reductions, which lack the first `before` loops."""
        builder = ElementWiseKernel(self.lowering, nest, title)
        after = len(nest.shape) - before - len(self.nest.kept)
        for number, layout in self.accumulators.items():
            shape = (1,) * before + layout.shape + (1,) * after
            strides = (0,) * before + layout.strides + (0,) * after
            builder.loads[number] = replace(layout, shape=shape, strides=strides)
        return builder

    def write_stage(self, numbers: Sequence[int]) -> dict[int, TensorDescription]:
        """Write the kernel of some reductions; returns their layouts for all splits."""
        shape = (self.splits, *self.nest.kept)
        means = {self.variances[number].mean for number in numbers if number in self.variances}
        partial = {
            number: self.lowering.scratch(
                shape, accumulation_dtype(self.kernel.instruction(number))
            )
            for number in (*numbers, *means)
        }
        nest = split_reduced_loop(self.nest, self.splits, partial, self.grain)
        builder = self.kernel_on(nest, f"{self.kernel.title}_of_parts", before=1)
        results = range(len(partial))
        if self.variances:
            VarianceReductionLoops(builder, results, self.variances.values()).write()
        else:
            self.kind(builder, results, is_partial=True).write()
        return partial

    def combine_splits(
        self, partial: dict[int, TensorDescription], invariants: Sequence[int]
    ) -> None:
        """Write the kernel that combines splits, and stores the results that are then complete."""
        nest = without_reduced_loops(self.nest)
        builder = self.kernel_on(nest, f"{self.kernel.title}_of_all")
        accumulators = {
            number: self.lowering.scratch(nest.kept, self.kernel.instruction(number).dtype)
            for number in partial
            if self.kernel.instruction(number).is_reduction
        }
        outputs = [self.kernel.outputs[result] for result in invariants]

        def known_at(kept: tuple[str, ...]) -> dict[int, str]:
            uniforms: dict[int, str] = {}
            for number in accumulators:
                deviation_correction = self.deviation_correction(
                    builder, number, partial, kept, uniforms
                )
                uniforms[number] = self.total(
                    builder, number, partial[number], kept, deviation_correction
                )
            return uniforms

        def store(uniforms: dict[int, str], kept: tuple[str, ...]) -> None:
            for number, layout in accumulators.items():
                written = builder.array("total", layout, written=True)
                builder.code.line(written.set(uniforms[number], *kept))
            names = builder.compute(outputs, ValueEmitter(builder.code), kept, uniforms)
            for result, number in zip(invariants, outputs, strict=True):
                builder.store(result, names[number], ValueEmitter(builder.code), kept)

        def write_point(kept: tuple[str, ...], emitter: ValueEmitter) -> None:
            store(known_at(kept), kept)

        if self.is_for_groups:
            with work_group_loop(builder, prod(nest.kept)) as number:
                kept = unravel_index(builder.code, nest.kept, number, "i64")
                uniforms = known_at(kept)
                with builder.code.block("if (LOCAL_ID == 0)"):
                    store(uniforms, kept)
        else:
            wide = nest.is_wide or is_wide(*partial.values())
            parallel_for(builder, nest.kept, write_point, wide=wide, cost=self.splits)
        self.accumulators.update(accumulators)

    def deviation_correction(
        self,
        builder: ElementWiseKernel,
        number: int,
        partial: Mapping[int, TensorDescription],
        kept: tuple[str, ...],
        uniforms: Mapping[int, str],
    ) -> Callable[[str], str] | None:
        """Return a writer of the correction of a split's deviations to the mean of the whole row.

        It takes the name of a split's index and returns an expression. None for any other
        reduction.
        """
        if number not in self.variances:
            return None
        variance, code = self.variances[number], builder.code
        kind = f"const {register_type(self.kernel.values[number].dtype)}"
        mean = builder.compute([variance.mean], ValueEmitter(builder.code), kept, uniforms)[
            variance.mean
        ]

        def added(part: str) -> str:
            points = points_in_block(self.nest, part, self.splits)
            points = code.define(kind, "points", points)
            own = builder.array("of_part", partial[variance.mean]).get(part, *kept)
            deviation = code.define(kind, "distance", f"{own} - {mean}")
            if number == variance.deviations:
                return f"{points} * {deviation}"
            moved = f"{points} * {deviation} * {deviation}"
            if variance.deviations is None:
                return moved
            sums = builder.array("of_part", partial[variance.deviations]).get(part, *kept)
            return f"({moved} + 2 * {deviation} * {sums})"

        return added

    def total(
        self,
        builder: ElementWiseKernel,
        number: int,
        layout: TensorDescription,
        kept: tuple[str, ...],
        deviation_correction: Callable[[str], str] | None = None,
    ) -> str:
        """Write the combination of all splits at a point, and return its name.

        `deviation_correction` writes the term added to the accumulator of each split.
        """
        instruction = self.kernel.instruction(number)
        code, emitter = builder.code, ValueEmitter(builder.code)
        dtype = accumulation_dtype(instruction)
        total = code.define(emitter.type(dtype), "total", identity_element(instruction, emitter))
        compensated: CompensatedAccumulator | None = None
        if is_blocked(instruction) or is_compensated(instruction):
            error = code.define(emitter.type(dtype), "error", emitter.constant(0, dtype))
            compensated = CompensatedAccumulator(dtype, emitter, total, error)
        part = code.name("part")
        head = f"for (i32 {part} = 0; {part} < {self.splits}; {part}++)"
        if self.is_for_groups:
            head = work_item_loop(builder, part, self.splits)
        with code.block(head):
            value = builder.array("of_part", layout).get(part, *kept)
            if deviation_correction is not None:
                value = f"({value} + {deviation_correction(part)})"
            if compensated is None:
                code.line(f"{total} = {combine(instruction, emitter, total, value)};")
            else:
                compensated.accumulate(code, instruction, value)
        if compensated is not None and (not self.is_for_groups or is_blocked(instruction)):
            code.line(f"{total} = {compensated.rounded};")
        if self.is_for_groups:
            group, of_product = builder.processor.group, is_compensated(instruction)
            total = reduce_work_group(
                builder, instruction, total, group, compensated if of_product else None
            )
        text = emitter.converted(dtype, instruction.dtype, total)
        return code.define(f"const {emitter.type(instruction.dtype)}", "v", text)
