"""Sweeps: kernels with reductions.

All reductions of a stage happen in one sweep over the reduced loops. Rows are swept along their
fastest loop; columns side by side, each with a total of its own. Where there are too few rows or
columns for all units, the reduced loops are cut into parts, whose totals are combined by a kernel
in between. A sum that takes many values is cut into blocks, whose totals are put aside.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from math import prod

from weft.ir import dtypes
from weft.kernels.kernel import Instruction
from weft_c.loops.elementwise import COSTLY, ElementWiseKernel, are_contiguous
from weft_c.loops.parallel import each_point
from weft_c.loops.vectorised_access import bundling_of
from weft_c.reductions.combiners import (
    BLOCK,
    Compensated,
    combined,
    is_blocked,
    keeps_errors,
    start,
    total_dtype,
)
from weft_c.source.code import Address, Code
from weft_c.source.index_types import index_kind
from weft_c.source.values import Form, register_type

VECTORS_OF_TOTALS = 4
"""How many vectors a long sweep adds up in, since each addition waits for the one before."""

ROW_BYTES = 32768
"""The most that a work item keeps of a row for the next sweep."""


class Sweeping:
    """A kernel with reductions that is being written, for one point of the kept loops at a time."""

    def __init__(
        self, writing: ElementWiseKernel, results: Iterable[int], is_partial: bool = False
    ) -> None:
        self.is_partial = is_partial
        self.writing = writing
        self.frame = writing.frame
        self.kernel = writing.kernel
        self.code: Code = writing.code
        self.results = list(results)
        self.known: dict[int, str] = {}
        self.loops = range(len(self.frame.kept), len(self.frame.shape))
        self.bounds: dict[int, tuple[str, str]] = {}
        self.cut: tuple[int, int] | None = None
        self.exact: dict[str, Compensated] = {}
        self.form = Form(self.code)
        self.needed = set(writing.closure([self.kernel.outputs[r] for r in self.results], ()))
        self.kind = index_kind(self.frame.is_wide)

    def write(self) -> None:
        """Write the kernel and launch it."""
        each_point(
            self.writing,
            self.frame.kept or (1,),
            lambda indices, form: self.at_point(indices if self.frame.kept else ()),
            cost=max(prod(self.frame.reduced), 1),
            wide=self.frame.is_wide,
        )

    def at_point(self, kept: tuple[str, ...]) -> None:
        """Write all sweeps of a point, and what is the same all along them."""
        self.known.clear()
        self.limit(kept)
        for stage in range(self.kernel.stages):
            self.sweep(stage, kept)
        self.store_steady(kept)

    def limit(self, kept: tuple[str, ...]) -> None:
        """Write where the sweeps of a part end, if the last part is shorter than the others."""
        if self.frame.ragged is None:
            return
        chunk = self.frame.reduced[0]
        rest = self.code.define(
            f"const {self.kind}", "rest", f"{self.frame.ragged} - {kept[0]} * {chunk}"
        )
        text = f"{rest} < {chunk} ? ({rest} < 0 ? 0 : {rest}) : {chunk}"
        self.bounds[0] = ("0", self.code.define(f"const {self.kind}", "until", text))

    def of_stage(self, stage: int) -> tuple[list[int], list[int]]:
        """Return the reductions of a stage, and the results that its sweep stores."""
        numbers = range(len(self.kernel.operands), len(self.kernel.values))
        reductions = [
            number
            for number in numbers
            if number in self.needed
            and number not in self.writing.loads
            and self.kernel.instruction(number).is_reduction
            and self.kernel.instruction(number).stage == stage
        ]
        results = [
            result
            for result in self.results
            if self.kernel.varies(self.kernel.outputs[result])
            and self.kernel.instruction(self.kernel.outputs[result]).stage == stage
        ]
        return reductions, results

    def sweep(self, stage: int, kept: tuple[str, ...]) -> None:
        """Write one sweep: all reductions of a stage, and results that vary."""
        reductions, results = self.of_stage(stage)
        if not reductions and not results:
            return
        targets = self.targets(reductions, results)
        self.settle(targets, kept)
        lanes = self.lanes(targets, results)
        keeping = self.kept_rows(stage, targets)
        vectors = 0 if lanes == 1 else self.side_by_side(targets, lanes)
        self.cut = self.cut_of(reductions, lanes, vectors)
        totals = self.begin(reductions, lanes, vectors)
        with ExitStack() as stack:
            outer = self.open_loops(stack, totals)
            if not self.frame.reduced:
                self.body(kept, Form(self.code), totals, results, keeping)
            else:
                self.inner((*kept, *outer), lanes, totals, results, keeping)
        for number, names in totals.items():
            self.known[number] = self.finish(number, names, lanes)
        self.writing.rows.update(keeping)

    def targets(self, reductions: Sequence[int], results: Sequence[int]) -> list[int]:
        """Return the values that a sweep needs at each of its points."""
        operands = [self.kernel.instruction(number).args[0] for number in reductions]
        return [*operands, *(self.kernel.outputs[result] for result in results)]

    def settle(self, targets: Sequence[int], kept: tuple[str, ...]) -> None:
        """Compute before a sweep what is the same all along it."""
        names = self.writing.compute(
            self.steady(targets), Form(self.code), self.at_first(kept), self.known
        )
        self.known.update(names)

    def at_first(self, kept: tuple[str, ...]) -> tuple[str, ...]:
        """Return the indices of the first point of a sweep."""
        return (*kept, *("0" for _ in self.frame.reduced))

    def steady(self, targets: Sequence[int]) -> list[int]:
        """Return what is computed from, of all that is the same all along a sweep."""
        needed = self.writing.closure(targets, self.known)
        steady = {n for n in needed if self.writing.is_steady(n, self.loops, self.known)}
        above = {n for n in targets if n in steady}
        for number in needed:
            if number in steady or number in self.writing.loads or number in self.writing.rows:
                continue
            above.update(arg for arg in self.kernel.instruction(number).args if arg in steady)
        return sorted(above)

    def lanes(self, targets: Sequence[int], results: Sequence[int]) -> int:
        """Return how many lanes the sweep has."""
        if not self.frame.reduced or not are_contiguous(self.frame, results, self.loops[-1]):
            return 1
        return self.writing.lanes_along(self.loops[-1], targets, self.known)

    def open_loops(self, stack: ExitStack, totals: dict[int, list[str]]) -> tuple[str, ...]:
        """Open all reduced loops but the fastest, and return their indices."""
        names = []
        for place in range(len(self.frame.reduced)):
            self.open_blocks(stack, place, totals)
            if place < len(self.frame.reduced) - 1:
                name = self.code.name("k")
                first, last = self.span(place)
                head = f"for ({self.kind} {name} = {first}; {name} < {last}; {name}++)"
                stack.enter_context(self.code.block(head))
                names.append(name)
        return tuple(names)

    def span(self, place: int) -> tuple[str, str]:
        """Return where a reduced loop begins and ends."""
        return self.bounds.get(place, ("0", str(self.frame.reduced[place])))

    def leaves_rest(self, place: int, count: int) -> bool:
        """Whether steps of so many points may leave some of a reduced loop over."""
        is_ragged = place == 0 and self.frame.ragged is not None
        return is_ragged or self.frame.reduced[place] % count != 0

    # Blocks

    def beside(self, place: int, lanes: int, vectors: int) -> int:
        """Return how many neighbours along a reduced loop count in different totals."""
        is_fastest = place == len(self.frame.reduced) - 1
        return lanes * max(vectors, 1) if is_fastest else 1

    def cut_of(self, reductions: Sequence[int], lanes: int, vectors: int) -> tuple[int, int] | None:
        """Return the reduced loop that is cut into blocks, and their length; None without need."""
        if not any(is_blocked(self.kernel.instruction(number)) for number in reductions):
            return None
        inner = 1
        for place in reversed(range(len(self.frame.reduced))):
            beside = self.beside(place, lanes, vectors)
            turns = -(-self.frame.reduced[place] // beside)
            if place == len(self.frame.reduced) - 1:
                turns = max(turns, self.frame.reduced[place] % lanes)
            if inner * turns > BLOCK:
                return place, BLOCK // inner * beside
            inner *= turns
        return None

    def open_blocks(self, stack: ExitStack, place: int, totals: dict[int, list[str]]) -> None:
        """Open the loop over blocks of a reduced loop if it is cut; each ends in `put_aside`."""
        if self.cut is None or self.cut[0] != place:
            return
        step, (first, last), bounds = self.cut[1], self.span(place), dict(self.bounds)
        name = self.code.name("block")
        head = f"for ({self.kind} {name} = {first}; {name} < {last}; {name} += {step})"
        stack.enter_context(self.code.block(head))
        until = f"{name} + {step}"
        if self.leaves_rest(place, step):
            until = f"{last} - {name} < {step} ? {last} : {until}"
        until = self.code.define(f"const {self.kind}", "until", until)

        def close() -> None:
            self.bounds = bounds
            self.put_aside(totals)

        self.bounds = {**bounds, place: (name, until)}
        stack.callback(close)

    def put_aside(self, totals: dict[int, list[str]]) -> None:
        """Write what adds the sums of a block to those that keep errors, and begins new ones."""
        for number, (numbers, *vectors) in totals.items():
            made = self.kernel.instruction(number)
            if not is_blocked(made):
                continue
            with self.each_held():
                for other in vectors[1:]:
                    self.code.line(f"{vectors[0]} += {other};")
                for names in ([numbers], vectors):
                    exact = self.exact.get(names[0]) if names else None
                    if exact is not None:
                        exact.add(self.code, names[0])
                        for name in names:
                            self.code.line(f"{name} = {start(made, exact.form)};")

    def inner(
        self,
        outer: tuple[str, ...],
        lanes: int,
        totals: dict[int, list[str]],
        results: Sequence[int],
        keeping: dict[int, str],
    ) -> None:
        """Write the fastest loop: vectors or bundles, then the numbers that are left."""
        first = self.in_bundles(("0", 1), outer, totals, results, keeping)
        if first is None:
            return
        place = len(self.frame.reduced) - 1
        _, last = self.span(place)
        name = self.code.define(self.kind, "k", first)
        side_by_side = max(len(names) - 1 for names in totals.values()) if totals else 1
        form, step = Form(self.code, lanes), lanes * side_by_side
        if side_by_side > 1:
            with self.code.block(f"for (; {name} + {step} <= {last}; {name} += {step})"):
                for slot in range(side_by_side):
                    at = f"{name} + {slot * lanes}" if slot else name
                    self.body((*outer, at), form, totals, results, keeping, slot)
        if lanes > 1:
            with self.code.block(f"for (; {name} + {lanes} <= {last}; {name} += {lanes})"):
                self.body((*outer, name), form, totals, results, keeping)
        if self.has_numbers(lanes):
            with self.code.block(f"for (; {name} < {last}; {name}++)"):
                self.body((*outer, name), Form(self.code), totals, results, keeping)

    def in_bundles(
        self,
        own: tuple[str, int],
        outer: tuple[str, ...],
        totals: dict[int, list[str]],
        results: Sequence[int],
        keeping: dict[int, str],
    ) -> str | None:
        """Write the fastest loop as far as there are bundles along it.

        `own` is the first bundle of a work item, and the step to its next. Returns where what is
        left begins, which is all of it without bundles; None if nothing can be.
        """
        place = len(self.frame.reduced) - 1
        first, last = self.span(place)
        targets = self.targets(list(totals), results)
        bundling = bundling_of(self.writing, targets, results, self.known)
        if bundling is None:
            return first
        begin, step = own
        count, name = bundling.count, self.code.name("k")
        if first != "0":
            begin = f"{first} / {count} + {begin}"
        whole = f"{last} / {count}" if place in self.bounds else str(int(last) // count)
        head = f"for ({self.kind} {name} = {begin}; {name} < {whole}; {name} += {step})"
        with self.code.block(head), bundling.elements((*outer, name)) as element:
            self.body(element, Form(self.code), totals, results, keeping)
        return f"{whole} * {count}" if self.leaves_rest(place, count) else None

    def body(
        self,
        indices: tuple[str, ...],
        form: Form,
        totals: dict[int, list[str]],
        results: Sequence[int],
        keeping: dict[int, str],
        slot: int = 0,
    ) -> None:
        """Write one point of a sweep, or a vector of them that counts in one of the totals."""
        targets = self.targets(list(totals), results)
        names = self.writing.compute([*targets, *keeping], form, indices, self.known)
        for number, (numbers, *vectors) in totals.items():
            made = self.kernel.instruction(number)
            self.take(made, form, vectors[slot] if form.is_vector else numbers, names)
        for number, row in keeping.items():
            dtype = self.kernel.values[number].dtype
            if form.is_vector:
                self.code.line(
                    form.store(dtype, Address(row, indices[-1]), names[number], memory="")
                )
            else:
                self.code.line(f"{row}[{indices[-1]}] = {names[number]};")
        for result in results:
            self.writing.store(result, names[self.kernel.outputs[result]], form, indices)

    def take(self, made: Instruction, form: Form, total: str, names: Mapping[int, str]) -> None:
        """Write what takes a point, or a vector of them, into a total."""
        dtype = self.kernel.values[made.args[0]].dtype
        value = form.converted(dtype, total_dtype(made), names[made.args[0]])
        if keeps_errors(made):
            self.exact[total].multiply(self.code, value)
        else:
            self.code.line(f"{total} = {combined(made, form, total, value)};")

    def side_by_side(self, targets: Sequence[int], lanes: int) -> int:
        """Return how many vectors of totals there are, so that none waits for the one before."""
        made = [
            self.kernel.instruction(number).op
            for number in self.writing.closure(targets, self.known)
            if number not in self.writing.loads and number not in self.writing.rows
        ]
        long = self.frame.reduced[-1] >= 4 * VECTORS_OF_TOTALS * lanes
        return VECTORS_OF_TOTALS if long and not any(isinstance(op, COSTLY) for op in made) else 1

    def has_numbers(self, lanes: int) -> bool:
        """Whether single points remain beside vectors of so many lanes."""
        return lanes == 1 or self.leaves_rest(len(self.frame.reduced) - 1, lanes)

    def begin(self, reductions: Sequence[int], lanes: int, vectors: int) -> dict[int, list[str]]:
        """Define the totals of reductions: for each one of numbers, and some of vectors."""
        forms = [self.form, *[Form(self.code, lanes)] * vectors]
        lines: list[str] = []
        totals = {
            number: [
                self._begun(self.kernel.instruction(number), form, lanes, place < 2, lines)
                for place, form in enumerate(forms)
            ]
            for number in reductions
        }
        if lines:
            with self.each_held():
                for line in lines:
                    self.code.line(line)
        return totals

    def _begun(
        self, made: Instruction, form: Form, lanes: int, is_first: bool, lines: list[str]
    ) -> str:
        """Declare a total, and what keeps its errors if it counts; adds the lines that begin it."""
        dtype = total_dtype(made)
        kind = form.type(dtype)
        name = total = self.declared(kind, "total")
        lines.append(f"{name} = {start(made, form)};")
        is_put_aside = is_first and is_blocked(made) and self.cut is not None
        counts = form.is_vector or self.has_numbers(lanes)
        if counts and (is_put_aside or keeps_errors(made)):
            if is_put_aside:
                total = self.declared(kind, "aside")
                lines.append(f"{total} = {start(made, form)};")
            error = self.declared(kind, "error")
            lines.append(f"{error} = {form.constant(0, dtype)};")
            self.exact[name] = Compensated(dtype, form, total, error)
        return name

    def declared(self, kind: str, hint: str) -> str:
        """Declare a variable for each point that a work item has, and return its name."""
        name = self.code.name(hint)
        self.code.line(f"{kind} {name};")
        return name

    @contextmanager
    def each_held(self) -> Iterator[None]:
        """Write a block for each point that a work item has, for what it holds of them."""
        yield

    def rounded(self, names: Sequence[str]) -> list[str]:
        """Write what rounds totals that keep errors, and return the names of all that count."""
        exact = [name for name in names if name in self.exact]
        for name in exact:
            with self.each_held():
                self.code.line(f"{name} = {self.exact[name].rounded};")
        return [names[0], *exact] if exact and names[0] not in exact else exact or list(names)

    def finish(self, number: int, names: Sequence[str], lanes: int) -> str:
        """Combine the lanes and return the total as a number of the reduction's dtype."""
        made = self.kernel.instruction(number)
        names = self.rounded(names)
        total, *vectors = names
        dtype = total_dtype(made)
        for other in vectors[1:]:
            text = combined(made, Form(self.code, lanes), vectors[0], other)
            self.code.line(f"{vectors[0]} = {text};")
        for vector in vectors[:1]:
            count = lanes // 2
            while count > 1:
                kind = register_type(dtype, count)
                half = f"{vector}.lo", f"{vector}.hi"
                text = combined(made, Form(self.code, count), *half)
                vector = self.code.define(kind, "half", text)
                count //= 2
            for part in (f"{vector}.lo", f"{vector}.hi"):
                value = f"({part} & 1)" if dtypes.is_bool(dtype) else part
                self.code.line(f"{total} = {combined(made, Form(self.code), total, value)};")
        if dtype == made.dtype or self.is_partial:
            return total
        form = Form(self.code)
        text = form.converted(dtype, made.dtype, total)
        return self.code.define(f"const {form.type(made.dtype)}", "v", text)

    def kept_rows(self, stage: int, targets: Sequence[int]) -> dict[int, str]:
        """Return the rows in which a sweep keeps costly values that a later one needs."""
        frame = self.frame
        if len(frame.reduced) != 1 or not self.writing.processor.is_serial:
            return {}
        later = self._needed_after(stage)
        found: dict[int, str] = {}
        room = ROW_BYTES
        for number in self.writing.closure(targets, self.known):
            if number in self.writing.loads or number in self.writing.rows:
                continue
            made = self.kernel.instruction(number)
            nbytes = frame.reduced[0] * 4
            if not isinstance(made.op, COSTLY) or number not in later or nbytes > room:
                continue
            room -= nbytes
            found[number] = self.code.name("row_of_")
            kind = register_type(made.dtype)
            self.code.line(f"{kind} {found[number]}[{frame.reduced[0]}];")
        return found

    def _needed_after(self, stage: int) -> set[int]:
        targets: list[int] = []
        for later in range(stage + 1, self.kernel.stages):
            targets.extend(self.targets(*self.of_stage(later)))
        numbers = range(len(self.kernel.operands), len(self.kernel.values))
        reductions = [n for n in numbers if self.kernel.instruction(n).is_reduction]
        return set(self.writing.closure(targets, [*self.known, *reductions]))

    @property
    def steady_results(self) -> list[int]:
        """The results that there are once for all points of the sweeps."""
        return [r for r in self.results if not self.kernel.varies(self.kernel.outputs[r])]

    def store_steady(self, kept: tuple[str, ...]) -> None:
        """Store the results that there are once for all points of the sweeps."""
        results, at = self.steady_results, self.at_first(kept)
        numbers = [self.kernel.outputs[result] for result in results]
        names = self.writing.compute(numbers, Form(self.code), at, self.known)
        for result, number in zip(results, numbers, strict=True):
            self.writing.store(result, names[number], Form(self.code), at)
