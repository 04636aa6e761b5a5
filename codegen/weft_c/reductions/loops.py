"""Reduction loops: kernels with reductions, computed by one work item for each kept point.

All reductions of a stage share the reduced loops. Subclasses reduce tiles of columns, or rows by
work groups; `split` divides long reductions that would occupy few compute units. Sums of many
values are accumulated in blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import prod

from weft.ir.guards import is_multiple, is_traced, largest
from weft_c.loops.elementwise import COSTLY, ElementWiseKernel, are_contiguous
from weft_c.loops.parallel import parallel_for
from weft_c.loops.vectorized_access import find_vector_access
from weft_c.reductions.accumulators import Accumulators
from weft_c.reductions.combiners import BLOCK, is_blocked
from weft_c.source.code import Address
from weft_c.source.index_types import index_type
from weft_c.source.values import ValueEmitter, register_type

VECTOR_ACCUMULATORS = 4
"""The vector accumulators of a long loop, which hide the latency of dependent additions."""

ROW_BYTES = 32768
"""The most bytes of a row that a work item caches for the next stage."""


@dataclass(frozen=True)
class Stage:
    """What the reduced loops of a stage compute.

    Attributes
    ----------
    targets
        The values needed at each point.
    accumulators
        The names of the accumulators of each reduction.
    results
        The results stored at each point.
    row_caches
        The names of the arrays that cache values of a row.
    """

    targets: list[int]
    accumulators: dict[int, list[str]]
    results: list[int]
    row_caches: dict[int, str]


class ReductionLoops(Accumulators):
    """Writes a kernel with reductions, one point of the kept loops at a time."""

    def __init__(
        self, builder: ElementWiseKernel, results: Iterable[int], is_partial: bool = False
    ) -> None:
        super().__init__(builder, is_partial)
        self.nest = builder.nest
        self.results = list(results)
        self.uniforms: dict[int, str] = {}
        self.loops = range(len(self.nest.kept), len(self.nest.shape))
        self.bounds: dict[int, tuple[str, str]] = {}
        self.needed = set(
            builder.required_values([self.kernel.outputs[r] for r in self.results], ())
        )
        self.kind = index_type(self.nest.is_wide)

    def write(self) -> None:
        """Write and launch the kernel."""
        parallel_for(
            self.builder,
            self.nest.kept,
            lambda kept, emitter: self.write_point(kept),
            cost=max(prod(self.nest.reduced), 1),
            wide=self.nest.is_wide,
        )

    def write_point(self, kept: tuple[str, ...]) -> None:
        """Write all stages of a point of the kept loops."""
        self.uniforms.clear()
        self.bound_last_split(kept)
        for stage in range(self.kernel.stages):
            self.write_stage(stage, kept)
        self.store_invariant_results(kept)

    def bound_last_split(self, kept: tuple[str, ...]) -> None:
        """Write the end of a split's first reduced loop, if the last split is shorter."""
        if self.nest.ragged is None:
            return
        chunk = self.nest.reduced[0]
        rest = self.code.define(
            f"const {self.kind}", "rest", f"{self.nest.ragged} - {kept[0]} * {chunk}"
        )
        text = f"{rest} < {chunk} ? ({rest} < 0 ? 0 : {rest}) : {chunk}"
        self.bounds[0] = ("0", self.code.define(f"const {self.kind}", "until", text))

    def stage_values(self, stage: int) -> tuple[list[int], list[int]]:
        """Return the reductions of a stage, and the results that it stores at each point."""
        reductions = [
            number
            for number in self.kernel.reductions_of(stage)
            if number in self.needed and number not in self.builder.loads
        ]
        results = [result for result in self.kernel.results_of(stage) if result in self.results]
        return reductions, results

    def write_stage(self, number: int, kept: tuple[str, ...]) -> None:
        """Write the reduced loops of a stage: its reductions and varying results."""
        reductions, results = self.stage_values(number)
        if not reductions and not results:
            return
        targets = self.targets(reductions, results)
        self.hoist_invariants(targets, kept)
        lanes = self.lanes(targets, results)
        row_caches = self.cache_rows(number, targets)
        vectors = 0 if lanes == 1 else self.vector_accumulator_count(targets, lanes)
        self.block_loop = self.choose_block_loop(reductions, lanes, vectors)
        accumulators = self.begin_accumulators(reductions, lanes, vectors)
        stage = Stage(targets, accumulators, results, row_caches)
        with ExitStack() as stack:
            outer = self.open_loops(stack, accumulators)
            if not self.nest.reduced:
                self.write_body(kept, ValueEmitter(self.code), stage)
            else:
                self.write_innermost_loop((*kept, *outer), lanes, stage)
        for reduction, names in accumulators.items():
            self.uniforms[reduction] = self.finish_accumulator(reduction, names, lanes)
        self.builder.cached_rows.update(row_caches)

    def targets(self, reductions: Sequence[int], results: Sequence[int]) -> list[int]:
        """Return the values that the loops of a stage need at each point."""
        operands = [self.kernel.instruction(number).args[0] for number in reductions]
        return [*operands, *(self.kernel.outputs[result] for result in results)]

    def hoist_invariants(self, targets: Sequence[int], kept: tuple[str, ...]) -> None:
        """Compute the loop-invariant values before the loops."""
        names = self.builder.compute(
            self.invariants(targets),
            ValueEmitter(self.code),
            self.first_indices(kept),
            self.uniforms,
        )
        self.uniforms.update(names)

    def first_indices(self, kept: tuple[str, ...]) -> tuple[str, ...]:
        """Return the indices of the first point of the reduced loops."""
        return (*kept, *("0" for _ in self.nest.reduced))

    def invariants(self, targets: Sequence[int]) -> list[int]:
        """Return the loop-invariant values that are targets or that varying values depend on."""
        needed = self.builder.required_values(targets, self.uniforms)
        invariants = {
            n for n in needed if self.builder.is_loop_invariant(n, self.loops, self.uniforms)
        }
        above = {n for n in targets if n in invariants}
        for number in needed:
            if (
                number in invariants
                or number in self.builder.loads
                or number in self.builder.cached_rows
            ):
                continue
            above.update(arg for arg in self.kernel.instruction(number).args if arg in invariants)
        return sorted(above)

    def lanes(self, targets: Sequence[int], results: Sequence[int]) -> int:
        """Return the lanes of the innermost loop; 1 for scalar code."""
        if not self.nest.reduced or not are_contiguous(self.nest, results, self.loops[-1]):
            return 1
        return self.builder.lanes_along(self.loops[-1], targets, self.uniforms)

    def open_loops(self, stack: ExitStack, accumulators: dict[int, list[str]]) -> tuple[str, ...]:
        """Open all reduced loops but the innermost, and return their counters."""
        names = []
        for loop in range(len(self.nest.reduced)):
            self.open_block_loop(stack, loop, accumulators)
            if loop < len(self.nest.reduced) - 1:
                name = self.code.name("k")
                first, last = self.span(loop)
                stack.enter_context(self.code.loop(self.kind, name, first, last))
                names.append(name)
        return tuple(names)

    def span(self, loop: int) -> tuple[str, str]:
        """Return the bounds of a reduced loop."""
        return self.bounds.get(loop, ("0", str(self.nest.reduced[loop])))

    def has_remainder(self, loop: int, count: int) -> bool:
        """Whether a reduced loop in steps of `count` may leave a remainder."""
        is_ragged = loop == 0 and self.nest.ragged is not None
        return is_ragged or not is_multiple(self.nest.reduced[loop], count)

    # Blocks

    def interleaving(self, loop: int, lanes: int, vectors: int) -> int:
        """Return how many consecutive points of a reduced loop use different accumulators."""
        is_fastest = loop == len(self.nest.reduced) - 1
        return lanes * max(vectors, 1) if is_fastest else 1

    def choose_block_loop(
        self, reductions: Sequence[int], lanes: int, vectors: int
    ) -> tuple[int, int] | None:
        """Return the reduced loop to split into blocks and their length; None if sums are short."""
        if not any(is_blocked(self.kernel.instruction(number)) for number in reductions):
            return None
        inner = 1
        for loop in reversed(range(len(self.nest.reduced))):
            interleaving = self.interleaving(loop, lanes, vectors)
            length = self.nest.reduced[loop]
            turns = -(-length // interleaving)
            if loop == len(self.nest.reduced) - 1:
                turns = largest(turns, lanes - 1 if is_traced(length) else length % lanes)
            if inner * turns > BLOCK:
                return loop, BLOCK // inner * interleaving
            inner *= turns
        return None

    def open_block_loop(
        self, stack: ExitStack, loop: int, accumulators: dict[int, list[str]]
    ) -> None:
        """Open the loop over blocks if it belongs before a reduced loop; blocks end in a flush."""
        if self.block_loop is None or self.block_loop[0] != loop:
            return
        step, (first, last), bounds = self.block_loop[1], self.span(loop), dict(self.bounds)
        name = self.code.name("block")
        stack.enter_context(self.code.loop(self.kind, name, first, last, step))
        until = f"{name} + {step}"
        if self.has_remainder(loop, step):
            until = f"{last} - {name} < {step} ? {last} : {until}"
        until = self.code.define(f"const {self.kind}", "until", until)

        def close() -> None:
            self.bounds = bounds
            self.flush_block(accumulators)

        self.bounds = {**bounds, loop: (name, until)}
        stack.callback(close)

    def write_innermost_loop(self, outer: tuple[str, ...], lanes: int, stage: Stage) -> None:
        """Write the innermost loop: vectors or vectorized accesses, then the scalar remainder."""
        first = self.write_vectorized(("0", 1), outer, stage)
        if first is None:
            return
        loop = len(self.nest.reduced) - 1
        _, last = self.span(loop)
        name = self.code.define(self.kind, "k", first)
        vectors = max((len(names) - 1 for names in stage.accumulators.values()), default=1)
        emitter, step = ValueEmitter(self.code, lanes), lanes * vectors
        if vectors > 1:
            with self.code.block(f"for (; {name} + {step} <= {last}; {name} += {step})"):
                for slot in range(vectors):
                    at = f"{name} + {slot * lanes}" if slot else name
                    self.write_body((*outer, at), emitter, stage, slot)
        if lanes > 1:
            with self.code.block(f"for (; {name} + {lanes} <= {last}; {name} += {lanes})"):
                self.write_body((*outer, name), emitter, stage)
        if self.has_scalar_remainder(lanes):
            with self.code.block(f"for (; {name} < {last}; {name}++)"):
                self.write_body((*outer, name), ValueEmitter(self.code), stage)

    def write_vectorized(
        self, first_and_step: tuple[str, int], outer: tuple[str, ...], stage: Stage
    ) -> str | None:
        """Write the innermost loop in vectorized accesses.

        `first_and_step` are the first vector of a work item and its step. Returns the start of the
        remainder, the loop's start without vectorized accesses; None if there is no remainder.
        """
        loop = len(self.nest.reduced) - 1
        first, last = self.span(loop)
        access = find_vector_access(self.builder, stage.targets, stage.results, self.uniforms)
        if access is None:
            return first
        begin, step = first_and_step
        count, name = access.count, self.code.name("k")
        if first != "0":
            begin = f"{first} / {count} + {begin}"
        whole = (
            f"{last} / {count}" if loop in self.bounds else str(self.nest.reduced[loop] // count)
        )
        loop_of_vectors = self.code.loop(self.kind, name, begin, whole, step)
        with loop_of_vectors, access.elements((*outer, name)) as element:
            self.write_body(element, ValueEmitter(self.code), stage)
        return f"{whole} * {count}" if self.has_remainder(loop, count) else None

    def write_body(
        self, indices: tuple[str, ...], emitter: ValueEmitter, stage: Stage, slot: int = 0
    ) -> None:
        """Write the body of the loops at a point, or a vector of points for accumulator `slot`."""
        targets = [*stage.targets, *stage.row_caches]
        names = self.builder.compute(targets, emitter, indices, self.uniforms)
        for number, (numbers, *vectors) in stage.accumulators.items():
            instruction = self.kernel.instruction(number)
            self.accumulate(
                instruction, emitter, vectors[slot] if emitter.is_vector else numbers, names
            )
        for number, row in stage.row_caches.items():
            dtype = self.kernel.values[number].dtype
            if emitter.is_vector:
                self.code.line(
                    emitter.store(dtype, Address(row, indices[-1]), names[number], memory="")
                )
            else:
                self.code.line(f"{row}[{indices[-1]}] = {names[number]};")
        for result in stage.results:
            self.builder.store(result, names[self.kernel.outputs[result]], emitter, indices)

    def vector_accumulator_count(self, targets: Sequence[int], lanes: int) -> int:
        """Return how many vector accumulators the innermost loop has."""
        ops = [
            self.kernel.instruction(number).op
            for number in self.builder.required_values(targets, self.uniforms)
            if number not in self.builder.loads and number not in self.builder.cached_rows
        ]
        long = self.nest.reduced[-1] >= 4 * VECTOR_ACCUMULATORS * lanes
        is_cheap = not any(isinstance(op, COSTLY) for op in ops)
        return VECTOR_ACCUMULATORS if long and is_cheap else 1

    def has_scalar_remainder(self, lanes: int) -> bool:
        """Whether single points remain beside vectors of `lanes` lanes."""
        return lanes == 1 or self.has_remainder(len(self.nest.reduced) - 1, lanes)

    def cache_rows(self, stage: int, targets: Sequence[int]) -> dict[int, str]:
        """Declare arrays that cache costly values of a row for later stages; names by number."""
        nest = self.nest
        if len(nest.reduced) != 1 or not self.builder.processor.is_serial:
            return {}
        later = self._needed_after(stage)
        rows: dict[int, str] = {}
        length, room = nest.reduced[0], ROW_BYTES
        # An array has a constant size: half of the room for a length that a call tells.
        size = ROW_BYTES // 8 if is_traced(length) else length
        if length > size:
            return {}
        for number in self.builder.required_values(targets, self.uniforms):
            if number in self.builder.loads or number in self.builder.cached_rows:
                continue
            instruction = self.kernel.instruction(number)
            nbytes = size * 4
            if not isinstance(instruction.op, COSTLY) or number not in later or nbytes > room:
                continue
            room -= nbytes
            rows[number] = self.code.name("row_of_")
            kind = register_type(instruction.dtype)
            self.code.line(f"{kind} {rows[number]}[{size}];")
        return rows

    def _needed_after(self, stage: int) -> set[int]:
        targets: list[int] = []
        for later in range(stage + 1, self.kernel.stages):
            targets.extend(self.targets(*self.stage_values(later)))
        numbers = range(len(self.kernel.operands), len(self.kernel.values))
        reductions = [n for n in numbers if self.kernel.instruction(n).is_reduction]
        return set(self.builder.required_values(targets, [*self.uniforms, *reductions]))

    @property
    def invariant_results(self) -> list[int]:
        """The results that are invariant in the reduced loops."""
        return [r for r in self.results if not self.kernel.varies(self.kernel.outputs[r])]

    def store_invariant_results(self, kept: tuple[str, ...]) -> None:
        """Store the results that are invariant in the reduced loops."""
        results, at = self.invariant_results, self.first_indices(kept)
        numbers = [self.kernel.outputs[result] for result in results]
        names = self.builder.compute(numbers, ValueEmitter(self.code), at, self.uniforms)
        for result, number in zip(results, numbers, strict=True):
            self.builder.store(result, names[number], ValueEmitter(self.code), at)
