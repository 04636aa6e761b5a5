"""Group columns: sweeps over rows in which a group takes many columns, on parallel devices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from math import prod

from weft_c.loops.elementwise import ElementWiseKernel
from weft_c.loops.parallel import decoded, each_group
from weft_c.loops.vectorised_access import bundling_of
from weft_c.reductions.combiners import total_dtype
from weft_c.reductions.work_group import BESIDE, GroupSweeping, combine_tree
from weft_c.source.values import Form, register_type

USUAL = 64
"""The columns that a group has about: as many bundles or single ones as are side by side."""

FEWEST_ROWS = 8
"""The rows of a lane at least, where that does not make groups wider than there are columns."""


class GroupColumnSweeping(GroupSweeping):
    """A kernel in which a group sweeps columns beside each other, several rows at a time.

    Work item `lane * width + i` has the column, or the bundle of columns, with number i, and every
    row of its lane; what the lanes have found is combined in the end. Whatever there is once for a
    column is an array over the columns of a bundle where there are any.
    """

    def __init__(
        self, writing: ElementWiseKernel, results: Iterable[int], is_partial: bool = False
    ) -> None:
        super().__init__(writing, results, is_partial)
        loop = len(self.frame.kept) - 1
        outputs = [self.kernel.outputs[result] for result in self.results]
        self.bundling = bundling_of(writing, outputs, self.results, loop=loop)
        if self.bundling is not None and self.frame.kept[loop] % self.bundling.count:
            self.bundling = None
        self.count = 1 if self.bundling is None else self.bundling.count
        rows = prod(self.frame.reduced)
        self.places = self.frame.kept[loop] // self.count
        self.width = self.group
        while self.width > BESIDE and rows >= 2 * FEWEST_ROWS * self.group // self.width:
            self.width //= 2
        while self.width >= 2 * self.places > 0:
            self.width //= 2
        self.lanes_of_rows = self.group // self.width
        self.longest = max(range(len(self.frame.reduced)), key=self.frame.reduced.__getitem__)

    def write(self) -> None:
        """Write the kernel and launch it."""
        *outer, _ = self.frame.kept
        shape = (*outer, -(-self.places // self.width))
        with each_group(self.writing, prod(shape)) as number:
            *kept, tile = decoded(self.code, shape, number, "i64")
            number = f"{tile} * {self.width} + LOCAL_ID % {self.width}"
            self.at_point((*kept, self.own(number, self.places, self.width)))

    @contextmanager
    def each_column(
        self, targets: Iterable[int], results: Iterable[int], at: tuple[str, ...]
    ) -> Iterator[tuple[str, ...]]:
        """Write a block for each column that a work item has; gives the indices of a point."""
        if self.bundling is None:
            yield at
            return
        needed = self.writing.closure(targets, self.known)
        reads = tuple(number for number in self.bundling.reads if number in needed)
        with replace(self.bundling, reads=reads, results=tuple(results)).elements(at) as indices:
            yield indices

    @contextmanager
    def each_held(self) -> Iterator[None]:
        """Write a block for each column that a work item has, for what it holds of them."""
        with nullcontext() if self.bundling is None else self.bundling.numbers():
            yield

    def declared(self, kind: str, hint: str) -> str:
        """Declare a number for each column of a work item, and return its name in `each_column`."""
        name = self.code.name(hint)
        if self.bundling is None:
            self.code.line(f"{kind} {name};")
            return name
        self.code.line(f"{kind} {name}[{self.count}];")
        return f"{name}[{self.bundling.element}]"

    def settle(self, targets: Sequence[int], kept: tuple[str, ...]) -> None:
        """Compute before a sweep what is the same all along it, for each column."""
        if self.bundling is None:
            super().settle(targets, kept)
            return
        numbers = [number for number in self.steady(targets) if number not in self.known]
        if not numbers:
            return
        kinds = {n: register_type(self.kernel.values[n].dtype) for n in numbers}
        held = {number: self.declared(kind, "steady") for number, kind in kinds.items()}
        with self.each_column(numbers, [], self.at_first(kept)) as at:
            names = self.writing.compute(numbers, Form(self.code), at, self.known)
            for number in numbers:
                self.code.line(f"{held[number]} = {names[number]};")
        self.known.update(held)

    def beside(self, place: int, lanes: int, vectors: int) -> int:
        """Return how many lanes of rows share a reduced loop."""
        return self.lanes_of_rows if place == self.longest else 1

    def open_loops(self, stack: ExitStack, totals: dict[int, list[str]]) -> tuple[str, ...]:
        """Open all reduced loops, of which the lanes of rows share the longest."""
        if self.inside:
            stack.enter_context(self.code.block(f"if ({self.inside[0]})"))
        names = []
        for loop in range(len(self.frame.reduced)):
            self.open_blocks(stack, loop, totals)
            name = self.code.name("k")
            first, last = self.span(loop)
            step = "1"
            if loop == self.longest:
                lane = f"LOCAL_ID / {self.width}"
                first = lane if first == "0" else f"{first} + {lane}"
                step = str(self.lanes_of_rows)
            head = f"for ({self.kind} {name} = {first}; {name} < {last}; {name} += {step})"
            stack.enter_context(self.code.block(head))
            names.append(name)
        return tuple(names)

    def inner(
        self,
        outer: tuple[str, ...],
        lanes: int,
        totals: dict[int, list[str]],
        results: Sequence[int],
        keeping: dict[int, str],
    ) -> None:
        """Write what happens at one row."""
        targets = self.targets(list(totals), results)
        with self.each_column(targets, results, outer) as at:
            self.body(at, Form(self.code), totals, results, keeping)

    def finish(self, number: int, names: Sequence[str], lanes: int) -> str:
        """Combine the totals of all lanes, which all get to know the result."""
        made, code, form = self.kernel.instruction(number), self.code, Form(self.code)
        (total,), dtype = self.rounded(names), total_dtype(made)
        if self.lanes_of_rows > 1:
            shared = f"shared_{form.type(dtype)}"
            code.declare(f"LOCAL {form.type(dtype)} {shared}[{self.group}];")
            with self.each_held():
                code.line(f"{shared}[LOCAL_ID] = {total};")
                code.line("BARRIER();")
                combine_tree(code, made, shared, self.group // 2, self.width, "LOCAL_ID")
                code.line(f"{total} = {shared}[LOCAL_ID % {self.width}];")
                code.line("BARRIER();")
        if dtype == made.dtype or self.is_partial:
            return total
        found = self.declared(form.type(made.dtype), "v")
        with self.each_held():
            code.line(f"{found} = {form.converted(dtype, made.dtype, total)};")
        return found

    def store_steady(self, kept: tuple[str, ...]) -> None:
        """Let the first lane store what there is once for a column."""
        results = self.steady_results
        if not results:
            return
        self.wait_for_readers()
        numbers, at = [self.kernel.outputs[result] for result in results], self.at_first(kept)
        tests = [f"LOCAL_ID < {self.width}", *self.inside]
        with (
            self.code.block(f"if ({' && '.join(tests)})"),
            self.each_column(numbers, results, at) as indices,
        ):
            names = self.writing.compute(numbers, Form(self.code), indices, self.known)
            for result, number in zip(results, numbers, strict=True):
                self.writing.store(result, names[number], Form(self.code), indices)
