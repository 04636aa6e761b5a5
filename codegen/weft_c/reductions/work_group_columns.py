"""Column reductions on parallel devices: a work group reduces many columns together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from math import prod

from weft.support.backports import override
from weft_c.loops.elementwise import ElementWiseKernel
from weft_c.loops.parallel import unravel_index, work_group_loop
from weft_c.loops.vectorized_access import find_vector_access
from weft_c.reductions.combiners import accumulation_dtype
from weft_c.reductions.loops import Stage
from weft_c.reductions.work_group import MIN_COALESCED, WorkGroupReductionLoops, reduce_tree
from weft_c.source.values import ValueEmitter, register_type

COLUMNS_PER_GROUP = 64
"""The columns of a work group, roughly: the contiguous vectors or elements that it reads."""

MIN_ROWS_PER_LANE = 8
"""The fewest rows of a lane, unless a group then has more columns than there are."""


class WorkGroupColumnReductionLoops(WorkGroupReductionLoops):
    """Reduction loops in which a work group reduces contiguous columns, several rows at a time.

    Work item `lane * width + i` reduces column, or vector of columns, i over the rows of its lane;
    the lanes are combined in the end. With vectorized accesses, accumulators are arrays over the
    columns of a vector.
    """

    def __init__(
        self, builder: ElementWiseKernel, results: Iterable[int], is_partial: bool = False
    ) -> None:
        super().__init__(builder, results, is_partial)
        loop = len(self.nest.kept) - 1
        outputs = [self.kernel.outputs[result] for result in self.results]
        self.access = find_vector_access(builder, outputs, self.results, loop=loop)
        if self.access is not None and self.nest.kept[loop] % self.access.count:
            self.access = None
        self.count = 1 if self.access is None else self.access.count
        rows = prod(self.nest.reduced)
        self.column_vectors = self.nest.kept[loop] // self.count
        self.width = self.group
        while (
            self.width > MIN_COALESCED and rows >= 2 * MIN_ROWS_PER_LANE * self.group // self.width
        ):
            self.width //= 2
        while self.width >= 2 * self.column_vectors > 0:
            self.width //= 2
        self.lanes_of_rows = self.group // self.width
        self.longest = max(range(len(self.nest.reduced)), key=self.nest.reduced.__getitem__)

    @override
    def write(self) -> None:
        *outer, _ = self.nest.kept
        shape = (*outer, -(-self.column_vectors // self.width))
        with work_group_loop(self.builder, prod(shape)) as number:
            *kept, tile = unravel_index(self.code, shape, number, "i64")
            number = f"{tile} * {self.width} + LOCAL_ID % {self.width}"
            self.write_point((*kept, self.assign(number, self.column_vectors, self.width)))

    @contextmanager
    def each_column(
        self, targets: Iterable[int], results: Iterable[int], at: tuple[str, ...]
    ) -> Iterator[tuple[str, ...]]:
        """Write a block for each column of a work item; yields the indices of a point."""
        if self.access is None:
            yield at
            return
        needed = self.builder.required_values(targets, self.uniforms)
        reads = tuple(number for number in self.access.reads if number in needed)
        with replace(self.access, reads=reads, results=tuple(results)).elements(at) as indices:
            yield indices

    @contextmanager
    def each_accumulator(self) -> Iterator[None]:
        """Write a block for each column of a work item, for its accumulators."""
        with nullcontext() if self.access is None else self.access.numbers():
            yield

    def declare(self, kind: str, hint: str) -> str:
        """Declare a variable for each column of a work item; returns its name in `each_column`."""
        name = self.code.name(hint)
        if self.access is None:
            self.code.line(f"{kind} {name};")
            return name
        self.code.line(f"{kind} {name}[{self.count}];")
        return f"{name}[{self.access.element}]"

    def hoist_invariants(self, targets: Sequence[int], kept: tuple[str, ...]) -> None:
        """Compute loop-invariant values before the loops, for each column."""
        if self.access is None:
            super().hoist_invariants(targets, kept)
            return
        numbers = [number for number in self.invariants(targets) if number not in self.uniforms]
        if not numbers:
            return
        kinds = {n: register_type(self.kernel.values[n].dtype) for n in numbers}
        held = {number: self.declare(kind, "invariant") for number, kind in kinds.items()}
        with self.each_column(numbers, [], self.first_indices(kept)) as at:
            names = self.builder.compute(numbers, ValueEmitter(self.code), at, self.uniforms)
            for number in numbers:
                self.code.line(f"{held[number]} = {names[number]};")
        self.uniforms.update(held)

    def interleaving(self, loop: int, lanes: int, vectors: int) -> int:
        """Return how many lanes of rows share a reduced loop."""
        return self.lanes_of_rows if loop == self.longest else 1

    def open_loops(self, stack: ExitStack, accumulators: dict[int, list[str]]) -> tuple[str, ...]:
        """Open all reduced loops; the lanes of rows share the longest."""
        if self.guards:
            stack.enter_context(self.code.block(f"if ({self.guards[0]})"))
        names = []
        for loop in range(len(self.nest.reduced)):
            self.open_block_loop(stack, loop, accumulators)
            name = self.code.name("k")
            first, last = self.span(loop)
            step = 1
            if loop == self.longest:
                lane = f"LOCAL_ID / {self.width}"
                first = lane if first == "0" else f"{first} + {lane}"
                step = self.lanes_of_rows
            stack.enter_context(self.code.loop(self.kind, name, first, last, step))
            names.append(name)
        return tuple(names)

    def write_innermost_loop(self, outer: tuple[str, ...], lanes: int, stage: Stage) -> None:
        """Write the body of the loops at one row."""
        with self.each_column(stage.targets, stage.results, outer) as at:
            self.write_body(at, ValueEmitter(self.code), stage)

    def finish_accumulator(self, number: int, names: Sequence[str], lanes: int) -> str:
        """Combine the accumulators of all lanes; all work items get the result."""
        instruction = self.kernel.instruction(number)
        code, emitter = self.code, ValueEmitter(self.code)
        dtype = accumulation_dtype(instruction)
        if self.lanes_of_rows == 1:
            (total,) = self.rounded(names)
        else:
            accumulator = total, _ = self.accumulator(instruction, names)
            sizes = self.group, self.group // 2, self.width
            with self.each_accumulator():
                at = reduce_tree(code, instruction, accumulator, sizes, "LOCAL_ID")
                code.line(f"{total} = {at(f'LOCAL_ID % {self.width}')};")
                code.line("BARRIER();")
        if dtype == instruction.dtype or self.is_partial:
            return total
        converted = self.declare(emitter.type(instruction.dtype), "v")
        with self.each_accumulator():
            code.line(f"{converted} = {emitter.converted(dtype, instruction.dtype, total)};")
        return converted

    def store_invariant_results(self, kept: tuple[str, ...]) -> None:
        """Store the results that are invariant in the reduced loops, by the first lane."""
        results = self.invariant_results
        if not results:
            return
        self.wait_for_readers()
        numbers, at = [self.kernel.outputs[result] for result in results], self.first_indices(kept)
        tests = [f"LOCAL_ID < {self.width}", *self.guards]
        with (
            self.code.block(f"if ({' && '.join(tests)})"),
            self.each_column(numbers, results, at) as indices,
        ):
            names = self.builder.compute(numbers, ValueEmitter(self.code), indices, self.uniforms)
            for result, number in zip(results, numbers, strict=True):
                self.builder.store(result, names[number], ValueEmitter(self.code), indices)
