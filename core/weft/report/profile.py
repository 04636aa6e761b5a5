"""Profile: where the time of a call goes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from weft.ir.graph import called_graphs
from weft.ir.op import Op
from weft.kernels.fused_op import FusedOp
from weft.plan.fusion_statistics import bytes_moved
from weft.plan.plan import Plan, Step
from weft.plan.steps import plan_of
from weft.report.recorder import HOST, Event, RecordedRow
from weft.report.trace import write_chrome_trace
from weft.support import html
from weft.support.source import short_info, source_line

if TYPE_CHECKING:
    from rich.table import Table

VERSION = 1
"""Changes whenever the form of `Profile.to_dict` changes its meaning."""

StepIndex = tuple[int, int]
"""A step: 0 for the plan of the program or the number of a called graph, and an index there."""


@dataclass(frozen=True)
class Rates:
    """The rates of a machine, as measured on a backend.

    Attributes
    ----------
    copies
        The bytes that copies of arrays read and write, and how many of them a second, the largest
        array first; those that could not be measured are missing.
    matmul
        The operations a second of a product of large float32 matrices; None if not measured.
    """

    copies: tuple[tuple[int, float], ...] = ()
    matmul: float | None = None

    @property
    def copy(self) -> float | None:
        """The bytes a second that a copy of a large array reads and writes; None if unknown."""
        return self.copies[0][1] if self.copies else None

    def copy_of(self, nbytes: float) -> float | None:
        """Return the highest rate of a copy of at least so many bytes, as caches allow it."""
        rates = [rate for size, rate in self.copies if size >= nbytes]
        return max(rates, default=self.copy)


@dataclass(frozen=True)
class ProfileRow:
    """A launch of a program, or several that compute the same steps.

    Attributes
    ----------
    name
        The kinds of its ops.
    kind
        ``kernel``, ``library`` for a call of one, or ``host`` for a Python function.
    steps
        The steps that it computes; several if they share a launch. A copy of an operand of a loop
        is not a step.
    ops
        The classes of its ops.
    lines
        The user's lines that it computes: file, line number and text.
    calls
        How often it ran in a call.
    seconds
        The time of all these.
    one_thread
        The same on one thread; None where the backend cannot tell.
    items
        The most threads that share a launch; None where there is no such limit.
    bytes
        The bytes that it reads and writes in a call, each operand and result once.
    flops
        Its arithmetic operations in a call.
    """

    name: str
    kind: str
    steps: tuple[StepIndex, ...]
    ops: tuple[str, ...]
    lines: tuple[tuple[str, int, str], ...]
    calls: float
    seconds: float
    bytes: int
    flops: int
    one_thread: float | None = None
    items: int | None = None

    @property
    def bandwidth(self) -> float:
        """The bytes a second."""
        return self.bytes / self.seconds if self.seconds else 0.0

    @property
    def bytes_of_launch(self) -> float:
        """The bytes that it reads and writes each time that it runs."""
        return self.bytes / self.calls if self.calls else 0.0

    @property
    def flop_rate(self) -> float:
        """The operations a second."""
        return self.flops / self.seconds if self.seconds else 0.0

    @property
    def where(self) -> str:
        """The first of its lines, as file and number, and how many more there are."""
        if not self.lines:
            return ""
        (file, line, _), *more = self.lines
        return short_info((file, line)) + (f" and {len(more)} more" if more else "")


@dataclass(frozen=True)
class Profile:
    """Where the time of a call goes: a row for each launch, and the host's time.

    All times are those of one call, in seconds: means over the faster half of the calls.

    Attributes
    ----------
    computation, backend, device
        What was called, and where it ran.
    repeat
        The number of calls.
    wall
        The time of a call with time stamps.
    call
        The time of the one call whose launches `events` are.
    ordinary
        The time of a call of the ordinary program, without time stamps.
    rows
        The launches, in the order of their first run.
    rates
        What a copy and a matrix product reach on this machine.
    threads
        The most threads of the host that a call uses; None for a device of its own.
    events
        The launches of one call, that of the median time among the faster half: the index of a row,
        the start and the end.
    """

    computation: str
    backend: str
    device: str
    repeat: int
    wall: float
    call: float
    ordinary: float
    rows: tuple[ProfileRow, ...]
    rates: Rates
    threads: int | None
    events: tuple[Event, ...]

    @property
    def device_time(self) -> float:
        """The time of kernels and libraries."""
        return sum(row.seconds for row in self.rows if row.kind != HOST)

    @property
    def host(self) -> float:
        """The time in which no kernel runs: host work, checks of arguments, transfers, waits."""
        return self.wall - self.device_time

    @property
    def overhead(self) -> float:
        """The time outside of all rows."""
        return self.wall - sum(row.seconds for row in self.rows)

    def table(self, rows: int = 30) -> str:
        """Return a table of the rows that take most time, as text without colors."""
        from rich.console import Console

        table = self.as_table(rows)
        console = Console(width=10_000, color_system=None)
        console = Console(width=console.measure(table).maximum, color_system=None)
        with console.capture() as captured:
            console.print(table)
        return captured.get()

    def as_table(self, rows: int = 30) -> Table:
        """Return a table of the rows that take most time, for a console of rich."""
        from rich.table import Table
        from rich.text import Text

        table = Table(title=Text(self._title()), caption=Text(self._caption()))
        for column in _NAMES:
            table.add_column(column, overflow="fold")
        for column in self._heads:
            table.add_column(column, justify="right")
        for cells in self._rows(rows):
            table.add_row(*map(Text, cells))
        table.add_section()
        for cells in self._totals():
            table.add_row(*cells)
        return table

    @property
    def _knows_one_thread(self) -> bool:
        return any(row.one_thread is not None for row in self.rows)

    @property
    def _heads(self) -> tuple[str, ...]:
        return (*_FIGURES, *(_OF_THREADS if self._knows_one_thread else ()))

    def waiting(self, row: ProfileRow) -> float | None:
        """Return the share of the threads' time in a row in which they wait.

        It is 1 - t / (n T), where one thread takes t, and n threads take T: they wait for each
        other, for memory or for work. None where the time of one thread is unknown.
        """
        if row.one_thread is None or not self.threads or not row.seconds:
            return None
        return max(1 - row.one_thread / (self.threads * row.seconds), 0.0)

    def _rows(self, most: int) -> Iterator[tuple[str, ...]]:
        """Yield the cells of the rows that take most time, and of the others together."""
        ordered = sorted(self.rows, key=lambda row: -row.seconds)
        for row in ordered[:most]:
            yield (row.name, row.where, *self._figures(row))
        if rest := ordered[most:]:
            yield (f"{len(rest)} more", "", *self._figures(_sum(rest)))

    def _totals(self) -> Iterator[tuple[str, ...]]:
        yield ("outside of kernels", "", "", *self._time(self.overhead))
        yield ("whole call", "", "", *self._time(self.wall))

    def _title(self) -> str:
        return f"{self.computation} on {self.backend} ({self.device})"

    def _caption(self) -> str:
        sentences = [f"{format_seconds(self.ordinary)} a call without time stamps"]
        if self.rates.copy:
            sentences.append(f"copy {self.rates.copy / 1e9:.3g} GB/s")
        if self.rates.matmul:
            sentences.append(f"matrix product {self.rates.matmul / 1e9:.3g} GFLOP/s")
        return ", ".join(sentences)

    def _figures(self, row: ProfileRow) -> list[str]:
        return [
            f"{row.calls:g}",
            *self._time(row.seconds),
            *_rate(row.bandwidth, self.rates.copy_of(row.bytes_of_launch)),
            *_rate(row.flop_rate, self.rates.matmul),
            *(self._threads(row) if self._knows_one_thread else ()),
        ]

    def _threads(self, row: ProfileRow) -> tuple[str, str]:
        waiting = self.waiting(row)
        if row.one_thread is None or waiting is None:
            return "", ""
        return format_seconds(row.one_thread), f"{waiting:.0%}"

    def _time(self, seconds: float) -> tuple[str, str]:
        return format_seconds(seconds), f"{seconds / self.wall:.1%}" if self.wall else ""

    def to_dict(self) -> dict[str, Any]:
        """Return the profile as data for JSON; times are seconds, and all figures those of a call.

        Steps are pairs: 0 for the plan of the program, or the number of a graph in the order of
        `called_graphs`, and an index in its steps. Events have the index of a row, start and end.
        """
        return {
            "version": VERSION,
            "computation": self.computation,
            "backend": self.backend,
            "device": self.device,
            "repeat": self.repeat,
            "wall": self.wall,
            "call": self.call,
            "ordinary": self.ordinary,
            "host": self.host,
            "device_time": self.device_time,
            "rates": {
                "copy": self.rates.copy,
                "copies": list(map(list, self.rates.copies)),
                "matmul": self.rates.matmul,
            },
            "threads": self.threads,
            "rows": [
                {
                    "name": row.name,
                    "kind": row.kind,
                    "steps": list(map(list, row.steps)),
                    "ops": list(row.ops),
                    "lines": list(map(list, row.lines)),
                    "calls": row.calls,
                    "seconds": row.seconds,
                    "one_thread": row.one_thread,
                    "items": row.items,
                    "bytes": row.bytes,
                    "flops": row.flops,
                }
                for row in self.rows
            ],
            "events": list(map(list, self.events)),
        }

    def to_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Write one call as a file of the Trace Event Format, which Perfetto opens.

        Raises ArgumentError if the file cannot be written; an older file then stays as it is.
        """
        write_chrome_trace(self.to_dict(), path)

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write a page with a timeline and a table that sorts, which needs no network.

        Raises ArgumentError if the file cannot be written; an older file then stays as it is.
        """
        from weft.report.page import write_profile_page  # few programs need it

        write_profile_page(self.to_dict(), path)

    def __rich__(self) -> Table:
        return self.as_table()

    def __str__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        rows = [*self._rows(html.ROWS - 3), *self._totals()]
        table = html.table((*_NAMES, *self._heads), rows, figures=len(_NAMES))
        return html.section(self._title(), table, html.text(self._caption()))

    def __repr__(self) -> str:
        return (
            f"<Profile of {self.computation} on {self.backend}: "
            f"{format_seconds(self.wall)} a call, {len(self.rows)} rows>"
        )


_NAMES = ("kernel", "line")
_FIGURES = ("calls", "time", "of call", "GB/s", "of copy", "GFLOP/s", "of product")
_OF_THREADS = ("one thread", "waiting")


def _rate(rate: float, most: float | None) -> tuple[str, str]:
    """Return a rate in billions, and its share of the machine's.

    What was measured is not a bound for every kernel, as one that only reads is faster than a copy.
    """
    if not rate:
        return "", ""
    share = rate / most if most else None
    return f"{rate / 1e9:.3g}", "" if share is None else f"{share:.0%}" if share <= 1 else "> 100%"


def format_seconds(seconds: float) -> str:
    """Return a time with three digits and a unit."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if abs(seconds) >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def _sum(rows: Sequence[ProfileRow]) -> ProfileRow:
    """Return rows as one, for the table."""
    return ProfileRow(
        name="",
        kind="",
        steps=(),
        ops=(),
        lines=(),
        calls=sum(row.calls for row in rows),
        seconds=sum(row.seconds for row in rows),
        bytes=sum(row.bytes for row in rows),
        flops=sum(row.flops for row in rows),
        one_thread=None
        if any(row.one_thread is None for row in rows)
        else sum(row.one_thread or 0.0 for row in rows),
    )


def make_rows(
    recorded: Sequence[RecordedRow],
    plan: Plan,
    seconds: Sequence[float],
    counts: Sequence[float],
    one_thread: Sequence[float] | None = None,
) -> tuple[ProfileRow, ...]:
    """Return the rows of a profile: recorded rows with the steps of a plan, and their figures.

    `seconds` and `counts` give the time and the number of launches of each row, `one_thread` the
    time on one thread.
    """
    step_of = dict(_steps_by_op(plan))
    # Parts of a step may share the launch of others: its work counts where it is most by itself.
    homes: dict[Op, RecordedRow] = {}
    for _, row in sorted(zip(seconds, recorded, strict=True), key=lambda each: -each[0]):
        for op in row.ops:
            if len(row.ops) < len(homes.setdefault(op, row).ops):
                homes[op] = row
    rows = []
    alone: Sequence[float | None] = one_thread or [None] * len(recorded)
    for row, time, count, single in zip(recorded, seconds, counts, alone, strict=True):
        runs = count / row.launches
        steps = [step_of[op] for op in row.ops if op in step_of]
        new = [op for op in row.ops if homes[op] is row]
        rows.append(
            ProfileRow(
                name=_name(row.ops),
                kind=row.kind,
                steps=tuple([index for index, _ in steps]),
                ops=tuple(
                    [type(op).__name__ for each in row.ops for op in each.contained or (each,)]
                ),
                lines=tuple(_lines(row.ops)),
                calls=count,
                seconds=time,
                bytes=round(runs * sum(_bytes(op, step_of) for op in new)),
                flops=round(runs * sum(op.flops for op in new)),
                one_thread=single,
                items=row.items,
            )
        )
    return tuple(rows)


def _steps_by_op(plan: Plan) -> Iterable[tuple[Op, tuple[StepIndex, Step]]]:
    """Yield the op of each step with its place, those of called graphs included."""
    plans = [plan, *map(plan_of, called_graphs(plan.graph))]
    for number, each in enumerate(plans):
        for index, step in enumerate(each.steps):
            yield step.op, ((number, index), step)


def _bytes(op: Op, step_of: Mapping[Op, tuple[StepIndex, Step]]) -> int:
    """Return the bytes that an op reads and writes; an op that is not a step copies."""
    if op in step_of:
        return bytes_moved(step_of[op][1])
    return sum(each.nbytes for each in (op, *op.args) if each.is_tensor)


def _name(ops: Sequence[Op]) -> str:
    """Return the kinds of some ops."""
    if not ops:
        return "nothing"
    first = ops[0]
    name = (
        first.kernel.title
        if isinstance(first, FusedOp)
        else type(first).__name__.removesuffix("Op").lower()
    )
    return name if len(ops) == 1 else f"{name} and {len(ops) - 1} more"


def _lines(ops: Iterable[Op]) -> Iterable[tuple[str, int, str]]:
    """Yield the user's lines of some ops, each once."""
    inside = [inner for op in ops for inner in op.contained or (op,)]
    for location in dict.fromkeys(op.location for op in inside):
        yield (*location, source_line(location).strip())
