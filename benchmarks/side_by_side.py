"""Tables of what weft computes beside other tools: a row for each case, a column for each rival.

Results are checked before anything is timed; rivals may be less exact, up to `ROUGH`. A tool that
is not installed is left out. Times are the best of all rounds, since other programs only add.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

from environment import cores, require_untuned
from measure import NOISE, Samples, interleaved, number

Call = Callable[[], Any]

ROUGH = 1e-4
"""The error that a rival may have: some functions of PyTorch are fitted for float32 alone."""


class Case(Protocol):
    """What is computed in a row of the table; its `str` is the name of the row."""

    @property
    def most(self) -> float:
        """The largest error that is right."""

    def weft(self, backend: str) -> Call:
        """Return the call of weft, compiled."""

    def rivals(self) -> Mapping[str, Callable[[], Call]]:
        """Return what makes the call of each tool that has one; it may raise ImportError."""

    def error(self, found: Any) -> float:
        """Return how far a result is off."""


class Measured(NamedTuple):
    """The samples of a case, the error of weft, and the tools that are missing and why."""

    samples: Samples
    error: float
    missing: dict[str, str]


def measured(case: Case, backend: str, rounds: int) -> Measured:
    """Check the results of all tools, then time them in turns."""
    calls, missing = {"weft": case.weft(backend)}, {}
    for name, make in case.rivals().items():
        try:
            calls[name] = make()
        except ImportError as why:
            missing[name] = str(why)
    off = {name: case.error(call()) for name, call in calls.items()}
    for name, value in off.items():
        most = case.most if name == "weft" else max(case.most, ROUGH)
        if not value <= most:
            raise ValueError(f"the error of {name} in {case} is {value:.1e}, above {most:.1e}")
    return Measured(interleaved(calls, rounds), off["weft"], missing)


def cells(case: Case, rivals: Sequence[str], found: Measured) -> list[str]:
    """Return a row of the table."""
    samples = found.samples
    over = [
        f"{samples.ratio_of_best(each, 'weft'):.2f}" if each in samples.seconds else ""
        for each in rivals
    ]
    noise = "not quiet" if max(map(samples.spread, samples.seconds)) > NOISE else ""
    time = f"{number(samples.best('weft') * 1e6)} us"
    return [str(case), time, *over, f"{found.error:.1e}", noise]


def means(rivals: Sequence[str], found: Sequence[Measured]) -> list[str]:
    """Return the row of geometric means."""
    row = []
    for name in rivals:
        ratios = [
            each.samples.ratio_of_best(name, "weft")
            for each in found
            if name in each.samples.seconds
        ]
        row.append(f"{statistics.geometric_mean(ratios):.2f}" if ratios else "")
    return ["geometric mean", "", *row, "", ""]


def main(what: str, description: str, rivals: Sequence[str], cases: Sequence[Case]) -> None:
    """Measure what the command line asks for, and print a table in Markdown, row by row."""
    parser = argparse.ArgumentParser(description=description.partition("\n")[0])
    parser.add_argument("--only", default="", help="measure cases whose names contain this")
    parser.add_argument("--rounds", type=int, default=21, help="how often tools take turns")
    parser.add_argument("--backend", default="native", help="the backend of weft to measure")
    given = parser.parse_args()
    require_untuned()
    heads = [what, "time of weft", *(f"{name} over weft" for name in rivals), "error", ""]
    print(f"{datetime.now(UTC):%Y-%m-%d}, {cores()} cores, weft's backend {given.backend}\n")
    print(line(heads), line(["---"] * len(heads)), sep="\n", flush=True)
    found = []
    for case in cases:
        if given.only in str(case):
            found.append(measured(case, given.backend, given.rounds))
            print(line(cells(case, rivals, found[-1])), flush=True)
    print(line(means(rivals, found)))
    missing = {tool: why for each in found for tool, why in each.missing.items()}
    for tool, why in missing.items():
        print(f"\nwithout {tool}: {why}")


def line(row: Sequence[str]) -> str:
    """Return a row of a table in Markdown."""
    return f"| {' | '.join(row)} |"
