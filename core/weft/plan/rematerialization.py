"""Rematerialization: recomputes values so that the arena fits a memory limit.

At the peak, values are live that later steps read. Some of them are freed after their last reader
before the peak, and recomputed before the next one. Either single values, those first that free
the most bytes for the longest time at the least work (after Chaitin, Register
allocation and spilling via graph coloring, 1982). Or all values but those on the borders
between segments, which reduces the memory of a chain to its square root for one more forward
computation (Chen, Xu, Zhang and Guestrin, Training deep nets with sublinear memory cost, 2016).
If that does not suffice, the result is processed again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate, pairwise
from operator import index
from typing import Any, NamedTuple

from weft.errors import ArgumentError, MemoryLimitError
from weft.ir.op import Op
from weft.plan.buffers import RESULT
from weft.plan.dataflow import Dataflow
from weft.plan.liveness import Liveness
from weft.plan.schedule import peak_lower_bound
from weft.support.locks import cached_property
from weft.transforms.costs import work_of

ROUNDS = 6
"""The most rounds of rematerialization."""

LONGEST_CHAIN = 8
"""The most steps that recompute a single value."""

SEGMENTS = (2, 3, 4, 6, 8, 11, 16, 23, 32, 45, 64, 128)
"""The numbers of segments that are tried."""

LONG, FEW_SEGMENTS = 20_000, (6, 24)
"""The size of a long schedule, and the numbers of segments that are tried for it."""


class Recomputation(NamedTuple):
    """Values to free at the peak, and the nodes that recompute them.

    Attributes
    ----------
    values
        The buffers that are freed.
    nodes
        The nodes that run again, in order.
    needed
        The buffers that these nodes read, which must stay live.
    at
        The step before which they run.
    nbytes, saved, work
        The bytes of the values; the bytes times the steps for which they are free; the added work.
    """

    values: tuple[int, ...]
    nodes: tuple[int, ...]
    needed: tuple[int, ...]
    at: int
    nbytes: int
    saved: int
    work: int


class Attempt(NamedTuple):
    """A schedule with repeated steps, and the added work."""

    liveness: Liveness
    work: int = 0

    def fits(self, limit: int) -> bool:
        """Whether the arena is within a limit."""
        return self.liveness.peak <= limit and self.liveness.placement[1] <= limit


def checked_limit(limit: Any) -> int:
    """Return a limit as a number of bytes; raises ArgumentError for an invalid one."""
    if isinstance(limit, bool) or not hasattr(limit, "__index__") or limit < 0:
        raise ArgumentError(f"memory_limit is a number of bytes, such as 64 * 2**20, not {limit!r}")
    return index(limit)


def rematerialized(candidates: Sequence[Liveness], limit: int) -> Liveness:
    """Return a schedule with repeated steps whose arena has at most `limit` bytes.

    Of several candidates that fit, it has the least work. Raises MemoryLimitError if none fits.
    """
    own = smallest = min(candidates, key=lambda each: each.placement[1])
    attempts = [Attempt(start) for start in _start_schedules(own, candidates)]
    for _ in range(ROUNDS):
        best, fitting = _best_attempts(attempts, limit)
        if fitting is not None:
            return fitting.liveness
        if best in attempts:
            break
        attempts = [best]
        smallest = min(smallest, best.liveness, key=lambda each: each.placement[1])
    raise _refusal(smallest, own, limit)


def _start_schedules(own: Liveness, candidates: Iterable[Liveness]) -> list[Liveness]:
    """Return the best schedule, and the smallest ones with few and with many segments."""
    others = {tuple(each.order): each for each in candidates}.values()
    if len(own.order) > LONG or len(others) == 1:
        return [own]

    def promise(liveness: Liveness) -> int:
        peak = _Peak(Attempt(liveness))
        tried = (peak.attempt(peak.segments(count)).liveness.peak for count in FEW_SEGMENTS)
        return min(tried, default=liveness.peak)

    return list(dict.fromkeys([own, min(others, key=promise)]))


def _best_attempts(starts: Sequence[Attempt], limit: int) -> tuple[Attempt, Attempt | None]:
    """Return the attempt with the lowest peak, and the one with the least work that fits."""
    best = min(starts, key=lambda each: each.liveness.peak)
    fitting: Attempt | None = None
    for start in starts:
        peak = _Peak(start)
        for recomputations in peak.proposals():
            attempt = peak.attempt(recomputations)
            if attempt.liveness.peak < best.liveness.peak:
                best = attempt
            if attempt.liveness.peak > limit:
                continue
            for each in (attempt, *map(peak.attempt, peak.parts(recomputations, limit))):
                if (fitting is None or each.work < fitting.work) and each.fits(limit):
                    fitting = each
    return best, fitting


def _refusal(smallest: Liveness, own: Liveness, limit: int) -> MemoryLimitError:
    size, least = smallest.placement[1], peak_lower_bound(own.flow)
    position = min(smallest.live_bytes.index(smallest.peak), len(smallest.order) - 1)
    op = smallest.flow.ops[smallest.order[position]]
    problem = (
        f"memory_limit={limit} cannot be met: the smallest arena found has {size} bytes, "
        f"{own.placement[1]} without recomputation, and a single op needs {least}; the peak is "
        f"here: allow {size}, or make the model or the batch smaller"
    )
    return MemoryLimitError(op.explain(problem), size, least)


class _Peak:
    """The peak of a schedule, and the values that might be freed there.

    Attributes
    ----------
    at
        The step of the peak.
    written_at
        By buffer, the step that writes it, or -1.
    is_pure
        By node, whether it may run again.
    early, late
        By buffer, its last reader before the peak, or its producer; its first reader afterwards.
    candidates
        The buffers that might be freed, in the order in which they are written.
    """

    def __init__(self, before: Attempt) -> None:
        self.before = before
        self.liveness = before.liveness
        self.flow = self.liveness.flow
        self.order = self.liveness.order
        self.at = min(self.liveness.live_bytes.index(self.liveness.peak), len(self.order) - 1)
        count = len(self.flow.buffers)
        self.is_pure = [_is_pure(op) for op in self.flow.ops]
        self.written_at, self.early, self.late = [-1] * count, [-1] * count, [-1] * count
        self._walk()
        self.candidates = self._candidates()
        self.candidate_set = set(self.candidates)
        self.works: dict[int, int] = {}

    def _walk(self) -> None:
        flow, written_at, early, late = self.flow, self.written_at, self.early, self.late
        for position, node in enumerate(self.order):
            for number in flow.reads[node]:
                if position <= self.at:
                    early[number] = position
                elif late[number] < 0:
                    late[number] = position
            for number in flow.writes[node]:
                written_at[number] = early[number] = position

    def _candidates(self) -> list[int]:
        liveness, flow = self.liveness, self.flow
        updates = {update.buffer for update in flow.updates}
        return [
            number
            for node in self.order[: self.at]
            if self.is_pure[node]
            for number in flow.writes[node]
            if self.late[number] >= 0
            and self.early[number] < self.at
            and number not in updates
            and flow.sizes[number]
            and liveness.in_arena[liveness.home[number]]
        ]

    def proposals(self) -> Iterator[list[Recomputation]]:
        """Yield sets of recomputations that could take place together."""
        if not self.candidates:
            return
        yield _compatible(self._singles())
        for count in SEGMENTS if len(self.order) < LONG else FEW_SEGMENTS:
            yield self.segments(count)

    def parts(
        self, recomputations: list[Recomputation], limit: int
    ) -> Iterator[list[Recomputation]]:
        """Yield the best of some recomputations, as many as the excess of the peak needs."""
        wanted = self.liveness.peak - limit
        for factor in (1, 1.5):
            sums = accumulate(recomputation.nbytes for recomputation in recomputations)
            count = next((n for n, total in enumerate(sums, 1) if total >= factor * wanted), 0)
            if 0 < count < len(recomputations):
                yield recomputations[:count]

    def attempt(self, recomputations: Iterable[Recomputation]) -> Attempt:
        """Return the schedule with some recomputations."""
        starting: dict[int, list[int]] = {}
        work = self.before.work
        for recomputation in sorted(recomputations, key=lambda recomputation: recomputation.nodes):
            starting.setdefault(recomputation.at, []).extend(recomputation.nodes)
            work += recomputation.work
        order: list[int] = []
        for position, node in enumerate(self.order):
            order.extend(starting.get(position, ()))
            order.append(node)
        flow, numbers = self.flow.repeated(order)
        return Attempt(Liveness(flow, _without_dead(flow, numbers)), work)

    # Single values

    def _singles(self) -> Iterator[Recomputation]:
        for number in self.candidates:
            is_available = partial(self._is_in_use, self.late[number])
            chain = self._chain([number], is_available, LONGEST_CHAIN)
            if chain is not None:
                yield self._recomputation([number], *chain)

    def _is_in_use(self, position: int, number: int) -> bool:
        return self.liveness.last[number] >= position

    def _chain(
        self, values: Iterable[int], is_available: Callable[[int], bool], longest: int
    ) -> tuple[list[int], list[int]] | None:
        """Return the steps that recompute values, and the buffers they read; None if too many."""
        wanted = set(values)
        positions: set[int] = set()
        needed: dict[int, None] = {}
        stack = list(wanted)
        while stack:
            position = self.written_at[stack.pop()]
            if position in positions:
                continue
            positions.add(position)
            node = self.order[position]
            if len(positions) > longest or not self.is_pure[node]:
                return None
            for number in self.flow.reads[node]:
                if self.written_at[number] < 0:
                    continue
                if number not in wanted and is_available(number):
                    needed[number] = None
                else:
                    stack.append(number)
        return sorted(positions), list(needed)

    def _recomputation(
        self, values: Sequence[int], positions: list[int], needed: list[int]
    ) -> Recomputation:
        nodes = tuple([self.order[position] for position in positions])
        at = min(self.late[number] for number in values)
        sizes = self.flow.sizes
        nbytes = sum(sizes[number] for number in values)
        saved = sum(sizes[number] * (at - self.early[number]) for number in values)
        work = sum(self._work(node) for node in nodes)
        return Recomputation(tuple(values), nodes, tuple(needed), at, nbytes, saved, work)

    def _work(self, node: int) -> int:
        work = self.works.get(node)
        if work is None:
            work = self.works[node] = work_of(self.flow.ops[node])
        return work

    # Segments

    def segments(self, count: int) -> list[Recomputation]:
        """Return one for each of about `count` segments before the peak, except the last.

        It frees the values that do not cross the cut after the segment.
        """
        recomputations = []
        positions = [self.written_at[number] for number in self.candidates]
        for start, end in pairwise([-1, *self._cuts(count)]):
            inside = self.candidates[bisect_right(positions, start) : bisect_right(positions, end)]
            values = [number for number in inside if self.early[number] <= end]
            if values:
                recomputations.append(self._segment(values, start, end))
        return _compatible(recomputations)

    def _cuts(self, count: int) -> list[int]:
        """Return steps that cut the schedule before the peak into segments of similar live bytes.

        Each is the step in the later half of a segment that the fewest bytes cross.
        """
        bytes_written = [0] * (self.at + 1)
        for number in self.candidates:
            bytes_written[self.written_at[number]] += self.flow.sizes[number]
        sums = list(accumulate(bytes_written))
        nbytes = max(sums[-1] // count, 1)
        cuts: list[int] = []
        start = 0
        while True:
            half = bisect_left(sums, start + nbytes // 2)
            end = bisect_left(sums, start + nbytes)
            if end >= self.at:
                return cuts
            cuts.append(
                min(
                    range(half, end + 1),
                    key=lambda position: (self.crossing_bytes[position], -position),
                )
            )
            start = max(sums[cuts[-1]], start + 1)

    @cached_property
    def crossing_bytes(self) -> list[int]:
        """For each step before the peak, the bytes written by then and read between the two."""
        changes = [0] * (self.at + 2)
        for number, size in enumerate(self.flow.sizes):
            if 0 <= self.written_at[number] < self.early[number]:
                changes[self.written_at[number]] += size
                changes[self.early[number]] -= size
        return list(accumulate(changes))

    def _segment(self, values: list[int], start: int, end: int) -> Recomputation:
        at = min(self.late[number] for number in values)

        def is_available(number: int) -> bool:
            is_outside = self.written_at[number] <= start or self.early[number] > end
            if is_outside or not self.is_pure[self.order[self.written_at[number]]]:
                return True
            return self._is_in_use(at, number) and number not in self.candidate_set

        chain = self._chain(values, is_available, len(self.order))
        assert chain is not None, "impure values stay live"
        return self._recomputation(values, *chain)


def _without_dead(flow: Dataflow, order: list[int]) -> list[int]:
    """Return an order without dead steps."""
    read = {update.buffer for update in flow.updates}
    read.update(buffer.number for buffer in flow.buffers if buffer.kind == RESULT)
    alive = []
    for node in reversed(order):
        writes = flow.writes[node]
        if not writes or not read.isdisjoint(writes):
            read.update(flow.reads[node])
            alive.append(node)
    return alive[::-1]


def _compatible(recomputations: Iterable[Recomputation]) -> list[Recomputation]:
    """Return recomputations that read no value that another one frees, the most valuable first."""
    gone: set[int] = set()
    needed: set[int] = set()
    chosen = []
    for recomputation in sorted(
        recomputations, key=lambda recomputation: -recomputation.saved / max(recomputation.work, 1)
    ):
        if gone.isdisjoint(recomputation.needed) and needed.isdisjoint(recomputation.values):
            gone.update(recomputation.values)
            needed.update(recomputation.needed)
            chosen.append(recomputation)
    return chosen


def _is_pure(op: Op) -> bool:
    """Whether an op may run again."""
    return not any(each.has_effect or each.may_raise for each in op.contained or (op,))
