"""Column reductions on serial devices: loops over rows that reduce a tile of columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from math import prod

from weft.ir.guards import is_multiple
from weft.support.backports import override
from weft_c.loops.elementwise import ElementWiseKernel, are_contiguous
from weft_c.loops.parallel import unravel_index, work_item_bounds
from weft_c.reductions.combiners import accumulation_dtype
from weft_c.reductions.loops import ReductionLoops
from weft_c.source.values import ValueEmitter
from weft_tiling.sharing import serial_items

MAX_WIDTH, MIN_WIDTH = 1024, 64
"""The most and the fewest columns of a tile."""

MAX_SPLIT_WIDTH = 2048
"""The most columns of a tile of a split, which is read once and fastest in long rows."""


def tile_width(columns: int, outer: int, units: int, widest: int = MAX_WIDTH) -> int:
    """Return the columns of a tile, so that there is work for all compute units."""
    width = widest
    while width > MIN_WIDTH and outer * -(-columns // width) < units * 4:
        width //= 2
    return int(min(width, columns))  # arrays have constant sizes


class ColumnReductionLoops(ReductionLoops):
    """Reduction loops over tiles of columns, with an array of accumulators for each reduction."""

    def __init__(
        self, builder: ElementWiseKernel, results: Iterable[int], is_partial: bool = False
    ) -> None:
        super().__init__(builder, results, is_partial)
        self.column = builder.vector_loop = len(self.nest.kept) - 1
        self.columns = self.nest.kept[-1]
        outer, units = prod(self.nest.kept[:-1]), self.builder.processor.units
        widest = MAX_SPLIT_WIDTH if is_partial else MAX_WIDTH
        self.width = tile_width(self.columns, outer, units, widest)
        self.tiles = -(-self.columns // self.width)
        self.held: dict[int, str] = {}
        numbers = range(len(self.kernel.values))
        self.emitter = ValueEmitter(builder.code, self._lanes(numbers))
        self.counter = self.code.name("c")
        self.slot = self.counter
        if self.emitter.is_vector:
            self.slot = f"{self.counter} / {self.emitter.lanes}"

    def _lanes(self, numbers: Iterable[int]) -> int:
        lanes = self.builder.processor.lanes
        if self.columns % lanes or self.width % lanes:
            return 1
        instruction = [n for n in numbers if n >= len(self.kernel.operands)]
        plain = [n for n in instruction if not self.kernel.instruction(n).is_reduction]
        reductions = [n for n in instruction if n not in plain]
        if not are_contiguous(self.nest, self.results, self.column):
            return 1
        if any(accumulation_dtype(self.kernel.instruction(n)).itemsize != 4 for n in reductions):
            return 1
        args = [self.kernel.instruction(n).args[0] for n in reductions]
        return self.builder.lanes_along(self.column, [*plain, *args], reductions)

    @override
    def write(self) -> None:
        code, outer = self.code, self.nest.kept[:-1]
        tiles = prod(outer) * self.tiles
        items = min(tiles, serial_items(prod(self.nest.shape), self.builder.processor))
        begin, end = work_item_bounds(code, tiles, items, self.kind)
        name = code.name("tile")
        with code.loop(self.kind, name, begin, end):
            *kept, tile = unravel_index(code, (*outer, self.tiles), name, self.kind)
            first = code.define(f"const {self.kind}", "column", f"{tile} * {self.width}")
            count = str(self.width)
            if not is_multiple(self.columns, self.width):
                left = f"{self.columns} - {first}"
                text = f"{left} < {self.width} ? {left} : {self.width}"
                count = code.define(f"const {self.kind}", "count", text)
            self.write_tile(tuple(kept), first, count)
        self.builder.launch(items)

    def write_tile(self, outer: tuple[str, ...], first: str, count: str) -> None:
        """Write all stages of a tile."""
        self.held.clear()
        self.bound_last_split(outer)
        self.outer, self.first, self.count = outer, first, count
        for stage in range(self.kernel.stages):
            self.write_tile_stage(stage)
        results = [r for r in self.results if not self.kernel.varies(self.kernel.outputs[r])]
        if results:
            with self.each_column() as index:
                self.store_results(results, index)

    @contextmanager
    def each_accumulator(self) -> Iterator[None]:
        """Write a loop over the accumulators of a tile."""
        with self.code.loop(self.kind, self.counter, 0, self.count, self.emitter.lanes):
            yield

    @contextmanager
    def each_column(self) -> Iterator[str]:
        """Write a loop over the columns of a tile; yields the index of a column."""
        with self.each_accumulator():
            yield self.code.define(f"const {self.kind}", "at", f"{self.first} + {self.counter}")

    def declare(self, kind: str, hint: str) -> str:
        """Declare an array for a tile, and return the element's name in `each_accumulator`."""
        name = self.code.name(hint)
        self.code.line(f"{kind} {name}[{-(-self.width // self.emitter.lanes)}];")
        return f"{name}[{self.slot}]"

    def write_tile_stage(self, stage: int) -> None:
        """Write the reduced loops of a stage for a tile."""
        reductions, results = self.stage_values(stage)
        if not reductions and not results:
            return
        self.hoist_column_invariants(self.targets(reductions, results))
        self.block_loop = self.choose_block_loop(reductions, 1, 0)
        accumulators = self.begin_accumulators(reductions, 1, 0)
        with ExitStack() as stack:
            rows = self.open_rows(stack, accumulators)
            index = stack.enter_context(self.each_column())
            self.tile_body(rows, index, accumulators, results)
        for number, names in accumulators.items():
            (self.held[number],) = self.rounded(names)

    def open_rows(self, stack: ExitStack, accumulators: dict[int, list[str]]) -> tuple[str, ...]:
        """Open all reduced loops, and return their counters."""
        outer = self.open_loops(stack, accumulators)
        name = self.code.name("k")
        first, last = self.span(len(self.nest.reduced) - 1)
        stack.enter_context(self.code.loop(self.kind, name, first, last))
        return (*outer, name)

    def tile_body(
        self,
        rows: tuple[str, ...],
        index: str,
        accumulators: dict[int, list[str]],
        results: list[int],
    ) -> None:
        """Write the body of the loops at a row and a column."""
        targets = self.targets(list(accumulators), results)
        names = self.at_place(targets, (*self.outer, index, *rows))
        for number, (total,) in accumulators.items():
            self.accumulate(self.kernel.instruction(number), self.emitter, total, names)
        for result in results:
            number = self.kernel.outputs[result]
            indices = (*self.outer, index, *rows)
            self.builder.store(result, names[number], self.emitter, indices)

    def at_place(self, targets: list[int], indices: tuple[str, ...]) -> dict[int, str]:
        """Write the values of `targets` at a point, given the arrays of a tile."""
        needed = {number: self.held[number] for number in self.held}
        required_values = set(self.builder.required_values(targets, needed)) | set(targets)
        used = {
            arg
            for number in required_values
            if number >= len(self.kernel.operands) and number not in needed
            for arg in self.kernel.instruction(number).args
        } | set(targets)
        held = {number: self.value_held(number) for number in sorted(used & set(needed))}
        return self.builder.compute(targets, self.emitter, indices, {}, held)

    def value_held(self, number: int) -> str:
        """Write the load of a value from a tile's array, in its dtype in the kernel."""
        value = self.kernel.values[number]
        text = self.held[number]
        instruction = self.kernel.instruction(number)
        if instruction.is_reduction and not self.is_partial:
            text = self.emitter.converted(accumulation_dtype(instruction), value.dtype, text)
        return self.code.define(f"const {self.emitter.type(value.dtype)}", "v", text)

    def hoist_column_invariants(self, targets: list[int]) -> None:
        """Compute values that are invariant along a column before the loops, in arrays."""
        uniforms = list(self.held)
        needed = self.builder.required_values(targets, uniforms)
        invariants = [
            n
            for n in needed
            if n >= len(self.kernel.operands)
            and self.builder.is_loop_invariant(n, self.loops, uniforms)
        ]
        if not invariants:
            return
        kinds = {
            number: self.emitter.type(self.kernel.values[number].dtype) for number in invariants
        }
        rows = {number: self.declare(kind, "invariant") for number, kind in kinds.items()}
        with self.each_column() as index:
            zeros = tuple("0" for _ in self.nest.reduced)
            names = self.at_place(invariants, (*self.outer, index, *zeros))
            for number, row in rows.items():
                self.code.line(f"{row} = {names[number]};")
        self.held.update(rows)

    def store_results(self, results: list[int], index: str) -> None:
        """Store the results that are invariant in the reduced loops, for each column."""
        numbers = [self.kernel.outputs[result] for result in results]
        zeros = tuple("0" for _ in self.nest.reduced)
        indices = (*self.outer, index, *zeros)
        names = self.at_place(numbers, indices)
        for result, number in zip(results, numbers, strict=True):
            self.builder.store(result, names[number], self.emitter, indices)
