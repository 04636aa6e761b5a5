"""Columns: sweeps over rows that add up many columns side by side, on serial devices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from math import prod

from weft_c.loops.elementwise import ElementWiseKernel, are_contiguous
from weft_c.loops.parallel import decoded, serial_items, share
from weft_c.reductions.combiners import total_dtype
from weft_c.reductions.loops import Sweeping
from weft_c.source.values import Form

WIDEST, NARROWEST = 1024, 64
"""The most and the fewest columns that a work item sweeps side by side."""

WIDEST_OF_PART = 2048
"""The most columns of a part: it is swept once, and memory is fastest along whole rows."""


def tile_width(columns: int, outer: int, units: int, widest: int = WIDEST) -> int:
    """Return how many columns a work item sweeps, so that there is work for all units."""
    width = widest
    while width > NARROWEST and outer * -(-columns // width) < units * 4:
        width //= 2
    return min(width, columns)


class ColumnSweeping(Sweeping):
    """A kernel that sweeps a tile of columns at a time, with rows of totals."""

    def __init__(
        self, writing: ElementWiseKernel, results: Iterable[int], is_partial: bool = False
    ) -> None:
        super().__init__(writing, results, is_partial)
        self.column = writing.vector_loop = len(self.frame.kept) - 1
        self.columns = self.frame.kept[-1]
        outer, units = prod(self.frame.kept[:-1]), self.writing.processor.units
        widest = WIDEST_OF_PART if is_partial else WIDEST
        self.width = tile_width(self.columns, outer, units, widest)
        self.tiles = -(-self.columns // self.width)
        self.held: dict[int, str] = {}
        numbers = range(len(self.kernel.values))
        self.form = Form(writing.code, self._lanes(numbers))
        self.counter = self.code.name("c")
        self.slot = self.counter
        if self.form.is_vector:
            self.slot = f"{self.counter} / {self.form.lanes}"

    def _lanes(self, numbers: Iterable[int]) -> int:
        lanes = self.writing.processor.lanes
        if self.columns % lanes or self.width % lanes:
            return 1
        made = [n for n in numbers if n >= len(self.kernel.operands)]
        plain = [n for n in made if not self.kernel.instruction(n).is_reduction]
        reductions = [n for n in made if n not in plain]
        if not are_contiguous(self.frame, self.results, self.column):
            return 1
        if any(total_dtype(self.kernel.instruction(n)).itemsize != 4 for n in reductions):
            return 1
        args = [self.kernel.instruction(n).args[0] for n in reductions]
        return self.writing.lanes_along(self.column, [*plain, *args], reductions)

    def write(self) -> None:
        """Write the kernel and launch it."""
        code, outer = self.code, self.frame.kept[:-1]
        tiles = prod(outer) * self.tiles
        items = min(tiles, serial_items(prod(self.frame.shape), self.writing.processor))
        begin, end = share(code, tiles, items, self.kind)
        name = code.name("tile")
        with code.block(f"for ({self.kind} {name} = {begin}; {name} < {end}; {name}++)"):
            *kept, tile = decoded(code, (*outer, self.tiles), name, self.kind)
            first = code.define(f"const {self.kind}", "column", f"{tile} * {self.width}")
            count = str(self.width)
            if self.columns % self.width:
                left = f"{self.columns} - {first}"
                text = f"{left} < {self.width} ? {left} : {self.width}"
                count = code.define(f"const {self.kind}", "count", text)
            self.at_tile(tuple(kept), first, count)
        self.writing.launch(items)

    def at_tile(self, outer: tuple[str, ...], first: str, count: str) -> None:
        """Write all sweeps of a tile."""
        self.held.clear()
        self.limit(outer)
        self.outer, self.first, self.count = outer, first, count
        for stage in range(self.kernel.stages):
            self.sweep_tile(stage)
        results = [r for r in self.results if not self.kernel.varies(self.kernel.outputs[r])]
        if results:
            with self.each_column() as index:
                self.store_results(results, index)

    @contextmanager
    def each_held(self) -> Iterator[None]:
        """Write a loop over the columns of a tile, for what is held of them."""
        head = f"for ({self.kind} {self.counter} = 0; {self.counter} < {self.count};"
        with self.code.block(f"{head} {self.counter} += {self.form.lanes})"):
            yield

    @contextmanager
    def each_column(self) -> Iterator[str]:
        """Write a loop over the columns of a tile; gives the index of one."""
        with self.each_held():
            yield self.code.define(f"const {self.kind}", "at", f"{self.first} + {self.counter}")

    def declared(self, kind: str, hint: str) -> str:
        """Declare a row of variables for a tile, and return the name of one in `each_held`."""
        name = self.code.name(hint)
        self.code.line(f"{kind} {name}[{-(-self.width // self.form.lanes)}];")
        return f"{name}[{self.slot}]"

    def sweep_tile(self, stage: int) -> None:
        """Write a sweep over the rows of a tile."""
        reductions, results = self.of_stage(stage)
        if not reductions and not results:
            return
        self.hold_steady(self.targets(reductions, results))
        self.cut = self.cut_of(reductions, 1, 0)
        totals = self.begin(reductions, 1, 0)
        with ExitStack() as stack:
            rows = self.open_rows(stack, totals)
            index = stack.enter_context(self.each_column())
            self.tile_body(rows, index, totals, results)
        for number, names in totals.items():
            (self.held[number],) = self.rounded(names)

    def open_rows(self, stack: ExitStack, totals: dict[int, list[str]]) -> tuple[str, ...]:
        """Open all reduced loops, and return their indices."""
        outer = self.open_loops(stack, totals)
        name = self.code.name("k")
        first, last = self.span(len(self.frame.reduced) - 1)
        head = f"for ({self.kind} {name} = {first}; {name} < {last}; {name}++)"
        stack.enter_context(self.code.block(head))
        return (*outer, name)

    def tile_body(
        self,
        rows: tuple[str, ...],
        index: str,
        totals: dict[int, list[str]],
        results: list[int],
    ) -> None:
        """Write what happens at one place of a tile."""
        targets = self.targets(list(totals), results)
        names = self.at_place(targets, (*self.outer, index, *rows))
        for number, (total,) in totals.items():
            self.take(self.kernel.instruction(number), self.form, total, names)
        for result in results:
            number = self.kernel.outputs[result]
            indices = (*self.outer, index, *rows)
            self.writing.store(result, names[number], self.form, indices)

    def at_place(self, targets: list[int], indices: tuple[str, ...]) -> dict[int, str]:
        """Write the values at a place, given the rows of totals."""
        needed = {number: self.held[number] for number in self.held}
        closure = set(self.writing.closure(targets, needed)) | set(targets)
        used = {
            arg
            for number in closure
            if number >= len(self.kernel.operands) and number not in needed
            for arg in self.kernel.instruction(number).args
        } | set(targets)
        held = {number: self.value_held(number) for number in sorted(used & set(needed))}
        return self.writing.compute(targets, self.form, indices, {}, held)

    def value_held(self, number: int) -> str:
        """Write the value of a column that is held, in the dtype it has in the kernel."""
        value = self.kernel.values[number]
        text = self.held[number]
        made = self.kernel.instruction(number)
        if made.is_reduction and not self.is_partial:
            text = self.form.converted(total_dtype(made), value.dtype, text)
        return self.code.define(f"const {self.form.type(value.dtype)}", "v", text)

    def hold_steady(self, targets: list[int]) -> None:
        """Compute once for a column what is the same all along it, and no operand."""
        known = list(self.held)
        needed = self.writing.closure(targets, known)
        steady = [
            n
            for n in needed
            if n >= len(self.kernel.operands) and self.writing.is_steady(n, self.loops, known)
        ]
        if not steady:
            return
        kinds = {number: self.form.type(self.kernel.values[number].dtype) for number in steady}
        rows = {number: self.declared(kind, "steady") for number, kind in kinds.items()}
        with self.each_column() as index:
            zeros = tuple("0" for _ in self.frame.reduced)
            names = self.at_place(steady, (*self.outer, index, *zeros))
            for number, place in rows.items():
                self.code.line(f"{place} = {names[number]};")
        self.held.update(rows)

    def store_results(self, results: list[int], index: str) -> None:
        """Store the results that there are once for each column."""
        numbers = [self.kernel.outputs[result] for result in results]
        zeros = tuple("0" for _ in self.frame.reduced)
        indices = (*self.outer, index, *zeros)
        names = self.at_place(numbers, indices)
        for result, number in zip(results, numbers, strict=True):
            self.writing.store(result, names[number], self.form, indices)
