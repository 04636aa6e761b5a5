"""A model of what more threads gain: the critical path, the barriers and the bytes of a program.

It predicts a call from a profile. The work of a launch is divided into its items, and ends with a
barrier. What no cache holds cannot move faster than a copy, and more threads bring no more memory:
a machine with more channels gains more. The host's own work stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from weft.report.profile import Profile, ProfileRow, format_seconds

if TYPE_CHECKING:
    from rich.table import Table

THREADS = (4, 8, 16, 32, 64)
"""The numbers of threads that are predicted, beside those that are measured."""

BARRIER = 2e-7
"""The seconds that each further thread adds to a launch, measured on two: a job of the native pool
without work takes 0.1 to 0.3 us."""


@dataclass(frozen=True)
class Prediction:
    """The predicted time of a call on some threads; all times are seconds.

    Attributes
    ----------
    threads
        Their number.
    path
        The critical path: the longest share of each launch.
    barriers
        The waits at the ends of launches.
    memory
        What the bytes that no cache holds take beyond the critical path.
    host
        The time outside of launches.
    measured
        The time of a call on so many threads; None where it was not measured.
    """

    threads: int
    path: float
    barriers: float
    memory: float
    host: float
    measured: float | None

    @property
    def call(self) -> float:
        """The time of a call."""
        return self.path + self.barriers + self.memory + self.host


def predictions(profile: Profile) -> list[Prediction]:
    """Return predictions for one thread, all threads of the profile and more; none without times.

    Only a profile on several threads has the times on one that the model needs.
    """
    if not profile.threads or not any(row.one_thread for row in profile.rows):
        return []
    counts = sorted({1, profile.threads, *THREADS})
    return [_predicted(profile, threads) for threads in counts]


def _predicted(profile: Profile, threads: int) -> Prediction:
    path = barriers = memory = 0.0
    host = profile.overhead
    for row in profile.rows:
        if row.one_thread is None:
            host += row.seconds
            continue
        share = row.one_thread * _longest_share(row, threads)
        path += share
        if threads > 1 and row.items != 1:
            barriers += row.calls * BARRIER * (threads - 1)
        memory += max(min(_seconds_of_bytes(row, profile), row.one_thread) - share, 0.0)
    measured = {
        1: profile.overhead + sum(row.one_thread or row.seconds for row in profile.rows),
        profile.threads: profile.wall,
    }
    return Prediction(threads, path, barriers, memory, host, measured.get(threads))


def _longest_share(row: ProfileRow, threads: int) -> float:
    """Return the share of a launch's work that the thread with most of it does."""
    return 1 / threads if row.items is None else -(-row.items // threads) / row.items


def _seconds_of_bytes(row: ProfileRow, profile: Profile) -> float:
    """Return what a copy of the bytes takes; nothing where caches of more cores may hold them."""
    copies = profile.rates.copies
    if len(copies) < 2 or row.bytes_of_launch < copies[1][0]:
        return 0.0
    return row.bytes / copies[0][1]


def as_table(found: list[Prediction]) -> Table:
    """Return a table of predictions, for a console of rich."""
    from rich.table import Table

    table = Table(title="Predicted for more threads")
    for column in _HEADS:
        table.add_column(column, justify="right")
    for cells in _cells(found):
        table.add_row(*cells)
    return table


_HEADS = ("threads", "critical path", "barriers", "memory", "host", "call", "gain", "measured")


def _cells(found: list[Prediction]) -> Iterator[tuple[str, ...]]:
    for each in found:
        times = (each.path, each.barriers, each.memory, each.host, each.call)
        measured = "" if each.measured is None else format_seconds(each.measured)
        gain = f"{found[0].call / each.call:.2f}" if each.call else ""
        yield (str(each.threads), *map(format_seconds, times), gain, measured)
