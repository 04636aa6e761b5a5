"""Recorders: when each launch of a program ran.

A program that is compiled with a recorder is a variant with time stamps; an ordinary program has
no trace of it. Launches run one after the other, so a mark at the end of each is enough: a launch
began at the mark before its own. Devices with clocks of their own add intervals instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from time import perf_counter_ns
from typing import NamedTuple

from weft.ir.op import Op

KERNEL, LIBRARY, HOST = "kernel", "library", "host"
"""What a launch is: generated code, a call of a library, or a Python function."""

RESUMED = -1
"""The row of a mark from which on time is counted again: it ends no launch."""

CAPACITY = 1 << 20
"""The most events that are kept of a call; later ones count in the totals only."""


class RecordedRow(NamedTuple):
    """A launch, or several that compute the same ops.

    Attributes
    ----------
    ops
        The ops that it computes; several where launches are merged.
    kind
        `KERNEL`, `LIBRARY` or `HOST`.
    launches
        How many launches compute the ops once.
    items
        The most threads that share a launch; None where there is no such limit.
    """

    ops: tuple[Op, ...]
    kind: str
    launches: int
    items: int | None = None


class Event(NamedTuple):
    """One launch: the index of its row, its start and its end in seconds of `perf_counter`."""

    row: int
    start: float
    end: float


class Recording(NamedTuple):
    """What a recorder saw since it was asked before.

    Attributes
    ----------
    events
        The launches in order, at most `CAPACITY`.
    seconds, counts
        For each row the time of its launches, and their number.
    """

    events: list[Event]
    seconds: list[float]
    counts: list[int]


class Recorder:
    """Records the launches of one program; its calls must not overlap.

    Backends declare rows when they generate code, and record launches when it runs.

    Attributes
    ----------
    rows
        The rows, in the order of their declaration.
    mark
        Takes the index of a row whose launch ends now, or `RESUMED`.
    """

    def __init__(self) -> None:
        self.rows: list[RecordedRow] = []
        self._numbers: dict[tuple[Op, ...], int] = {}
        self._marks: list[tuple[int, int]] = []
        self._events: list[Event] = []
        self._lost: list[tuple[int, float, int]] = []
        self._deferred: list[Callable[[], None]] = []
        self.mark: Callable[[int], None] = self._mark

    def row(
        self, ops: Sequence[Op], kind: str = KERNEL, launches: int = 1, items: int | None = None
    ) -> int:
        """Return the index of the row of some ops, which is declared at the first time."""
        key = tuple(ops)
        number = self._numbers.setdefault(key, len(self.rows))
        if number == len(self.rows):
            self.rows.append(RecordedRow(key, kind, launches, items))
        return number

    def _mark(self, row: int) -> None:
        self._marks.append((row, perf_counter_ns()))
        if len(self._marks) > CAPACITY:
            self.add_marks([])

    def add_marks(self, marks: Sequence[tuple[int, int]]) -> None:
        """Add marks that were not made by `mark`: rows and times in nanoseconds."""
        ordered = sorted([*self._marks, *marks], key=lambda mark: mark[1])
        for (_, start), (row, end) in pairwise(ordered):
            if row != RESUMED:
                self.add(row, start / 1e9, end / 1e9)
        self._marks = [(RESUMED, ordered[-1][1])] if ordered else []

    def add(self, row: int, start: float, end: float) -> None:
        """Add a launch that ran from `start` to `end`, in seconds of `perf_counter`."""
        if len(self._events) < CAPACITY:
            self._events.append(Event(row, start, end))
        else:
            self.add_unlisted(row, end - start, 1)

    def add_unlisted(self, row: int, seconds: float, count: int) -> None:
        """Add launches of which only the total time is known."""
        self._lost.append((row, seconds, count))

    def defer(self, deliver: Callable[[], None]) -> None:
        """Have a function add launches when they are asked for, so that no call waits for it."""
        self._deferred.append(deliver)

    def deliver(self) -> None:
        """Add the launches that were deferred."""
        deferred, self._deferred = self._deferred, []
        for each in deferred:
            each()

    def take(self) -> Recording:
        """Return the records since the last call."""
        self.deliver()
        self.add_marks([])
        self._marks = []
        events, self._events = self._events, []
        lost, self._lost = self._lost, []
        seconds, counts = [0.0] * len(self.rows), [0] * len(self.rows)
        for row, start, end in events:
            seconds[row] += end - start
            counts[row] += 1
        for row, time, count in lost:
            seconds[row] += time
            counts[row] += count
        return Recording(sorted(events, key=lambda event: event.start), seconds, counts)

    def around(self, run: Callable[..., None], ops: Sequence[Op]) -> Callable[..., None]:
        """Return an executor of a program that is one row if the backend records nothing."""

        def recorded(*arrays: object) -> None:
            self.mark(RESUMED)
            before = self._size
            run(*arrays)
            self.mark(RESUMED if self._size > before else self.row(ops))

        return recorded

    @property
    def _size(self) -> int:
        return len(self._marks) + len(self._events) + len(self._lost) + len(self._deferred)
