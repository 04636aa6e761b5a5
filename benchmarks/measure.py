"""Timing side by side: candidates take turns in one process, and ratios are made round by round.

A benchmark is a module with a function from a number of rounds to rows; `main` runs it as a script.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from timeit import Timer
from typing import Any

from environment import blas, require_untuned
from goals import goals_for
from limits import Limit

SAMPLE_SECONDS = 0.02
"""How long one sample should take; shorter work is repeated."""

PAUSE, LONGEST_REST = 25_000_000, 400_000_000
"""Nanoseconds for which nothing should compute before a sample, and how long to wait for that.

A pause has several ticks of the system, at which it adds up what other threads have computed.
"""

NOISE = 0.10
"""The spread, as a share of the median, from which a machine counts as busy."""


@dataclass(frozen=True)
class Row:
    """One measured value.

    Attributes
    ----------
    what, value, unit
        What was measured; a unit of ``x`` marks a ratio.
    goal
        The most that the value should be, or the least, or None where it is for information.
    note
        What else is worth knowing.
    by_allocator
        Whether the value depends on how the C library hands out fresh memory, so that it is worth
        a second look with memory kept.
    at_least
        Whether the goal is the least that the value should be.
    """

    what: str
    value: float
    unit: str
    goal: float | None = None
    note: str = ""
    by_allocator: bool = False
    at_least: bool = False

    @property
    def reached(self) -> bool | None:
        """Whether the value meets the goal; None without a goal."""
        if self.goal is None:
            return None
        return self.value >= self.goal if self.at_least else self.value <= self.goal

    @property
    def aim(self) -> str:
        """The goal in words; nothing without one."""
        side = "at least" if self.at_least else "at most"
        return "" if self.goal is None else f"{side} {number(self.goal)} {self.unit}"


@dataclass(frozen=True)
class Samples:
    """Seconds per execution of each candidate, one number a round."""

    seconds: Mapping[str, list[float]]

    def median(self, name: str) -> float:
        """Return the median of a candidate's samples."""
        return statistics.median(self.seconds[name])

    def best(self, name: str) -> float:
        """Return the least of a candidate's samples, which other programs disturb least."""
        return min(self.seconds[name])

    def ratio_of_best(self, name: str, over: str) -> float:
        """Return the ratio of the best samples of two candidates."""
        return self.best(name) / self.best(over)

    def spread(self, name: str) -> float:
        """Return the interquartile range of a candidate's samples over their median."""
        low, _, high = statistics.quantiles(self.seconds[name], n=4)
        return (high - low) / self.median(name)

    def ratio(self, name: str, over: str) -> float:
        """Return the median of the ratios of two candidates within a round."""
        pairs = zip(self.seconds[name], self.seconds[over], strict=True)
        return statistics.median(mine / theirs for mine, theirs in pairs)

    def difference(self, name: str, less: str) -> float:
        """Return the median of the differences of two candidates within a round."""
        pairs = zip(self.seconds[name], self.seconds[less], strict=True)
        return statistics.median(mine - theirs for mine, theirs in pairs)

    def noise(self) -> str:
        """Return a warning if the machine was not quiet, else nothing."""
        worst = max(self.seconds, key=self.spread)
        spread = self.spread(worst)
        return f"not quiet: {worst} spreads {spread:.0%}" if spread > NOISE else ""


def number(value: float) -> str:
    """Return a value with four digits, or all of those before the point."""
    return f"{value:.0f}" if value >= 1000 else f"{value:.4g}"


def ratios(
    samples: Samples, goals: Mapping[str, float | None], what: str, limit: Limit
) -> Iterator[Row]:
    """Compare the candidate "weft" with rivals, each with the least ratio that it should reach.

    That is what the NumPy backend should; other backends have goals of their own.
    The first row warns of a machine that was not quiet, the last one says how near weft comes to
    the limit.
    """
    note = samples.noise()
    for rival, goal in goals_for(os.environ.get("WEFT_BACKEND", "numpy"), what, goals).items():
        ratio = samples.ratio(rival, "weft")
        name = f"{rival} over weft, {what}"
        yield Row(name, ratio, "x", goal, note, by_allocator=True, at_least=True)
        note = ""
    taken = samples.median("weft")
    yield Row(f"time of weft, {what}", taken * 1e6, "us", note=limit.remark(taken))


def busy(samples: Sequence[float]) -> str:
    """Return a warning if samples of one kind spread as on a busy machine, else nothing."""
    low, middle, high = statistics.quantiles(samples, n=4)
    spread = (high - low) / middle
    return f"not quiet: spreads {spread:.0%}" if spread > NOISE else ""


def interleaved(
    candidates: Mapping[str, str | Callable[[], Any]],
    rounds: int,
    names: Mapping[str, Any] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Samples:
    """Time callables, or statements that see `names`, in turns.

    The order turns from round to round, the garbage collector is off while a sample is taken, and
    before it all threads have come to rest and the candidate runs once, so that no candidate pays
    for another.
    """
    timers = {
        name: Timer(work, timer=clock, globals=None if names is None else dict(names))
        for name, work in candidates.items()
    }
    loops = {name: _loops(timer) for name, timer in timers.items()}
    seconds: dict[str, list[float]] = {name: [] for name in timers}
    order = list(timers)
    for _ in range(max(rounds, 2)):
        for name in order:
            _rest()
            timers[name].timeit(1)
            seconds[name].append(timers[name].timeit(loops[name]) / loops[name])
        order.append(order.pop(0))
    return Samples(seconds)


def _rest() -> None:
    """Wait until no thread of this process computes: those of a BLAS spin after a product."""
    for _ in range(LONGEST_REST // PAUSE):
        before = time.process_time_ns()
        time.sleep(PAUSE / 1e9)
        if time.process_time_ns() - before < PAUSE // 4:
            return


def _loops(timer: Timer) -> int:
    timer.timeit(1)
    count = 1
    while (taken := timer.timeit(count)) < SAMPLE_SECONDS:
        count = max(2 * count, int(count * SAMPLE_SECONDS / max(taken, 1e-9)))
    return count


def main(benchmark: Callable[[int], Iterable[Row]], rounds: int = 21) -> None:
    """Run a benchmark as a script, and print its rows as text or as JSON.

    The backend is the one that ``weft.make_transformer()`` chooses: that of the command line, and
    in every process that the benchmark starts as well.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=rounds, help="how often to take turns")
    parser.add_argument("--backend", default="numpy", help="the backend to measure")
    parser.add_argument("--keep-memory", action="store_true", help="let malloc keep freed memory")
    parser.add_argument("--json", action="store_true", help="print rows as JSON")
    options = parser.parse_args()
    require_untuned(options.keep_memory)
    os.environ["WEFT_BACKEND"] = options.backend
    rows = list(benchmark(options.rounds))
    if options.json:
        print(json.dumps({"blas": blas(), "rows": [asdict(row) for row in rows]}))
        return
    print(f"backend {options.backend}, BLAS: {blas()}")
    for row in rows:
        aim = f"({row.aim})" if row.aim else ""
        print(f"{row.what:60} {number(row.value):>8} {row.unit:3} {aim:18} {row.note}".rstrip())
