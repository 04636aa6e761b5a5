"""weft beside its peers: onnxruntime, JAX, PyTorch eager and compiled, numba, and eager NumPy.

Every piece of work is written once, as a function of a namespace of array functions; each tool
brings its namespace and compiles the function its own way. A result is compared with that of NumPy
before anything is timed. A tool that is not installed, or has no way to do some work, is left out
with the reason. ``pip install 'weftc[bench]'`` installs them all.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from environment import FOLDER, blas, cores, require_untuned
from measure import NOISE, Samples, interleaved, number
from peer_tools import TOOLS, Unavailable
from rich.console import Console
from rich.table import Table
from work import OWN, WORK, Work

RESULTS = FOLDER / "RESULTS.md"
README = FOLDER.parent / "README.md"
SUMMARY = (
    "call",
    "chain-1e5",
    "chain-1e7",
    "layer-norm",
    "softmax",
    "mlp-step",
    "cnn-step",
    "block",
)
"""The work in the table of the README."""
COMPILERS = ("gcc", "clang")
"""Compilers of weft's native backend that may be named; each has a table of its own."""


@dataclass
class Outcome:
    """How long each tool took for some work, in seconds, and why others were left out."""

    work: Work
    samples: Samples
    reasons: dict[str, str] = field(default_factory=dict)

    def speed(self, tool: str) -> float | None:
        """Return the time of NumPy over that of a tool; None for one that was left out."""
        known = tool in self.samples.seconds
        return self.samples.ratio("numpy", tool) if known else None

    @property
    def best(self) -> str | None:
        """The fastest peer; None if there is none but NumPy."""
        peers = [name for name in self.samples.seconds if name not in ("weft", "numpy")]
        return min(peers, key=self.samples.median, default=None)


def require_close(found: Sequence[Any], expected: Sequence[Any], tolerance: float) -> None:
    """Raise Unavailable for a result that differs by more than a share of the largest value."""
    for got, want in zip(found, expected, strict=True):
        largest = max(float(np.abs(want).max()), 1e-30)
        error = float(np.abs(got - want).max()) / largest
        if not error <= tolerance:
            raise Unavailable(f"wrong by {error:.1e} of the largest value")


def outcome(each: Work, chosen: Sequence[str], rounds: int) -> Outcome:
    """Check every tool against NumPy, then time them in turns."""
    calls: dict[str, Callable[[], Any]] = {}
    reasons: dict[str, str] = {}
    expected: list[Any] = []
    for name in chosen:
        try:
            call, results = TOOLS[name](each)
            expected = expected or results
            require_close(results, expected, each.tolerance)
        except Unavailable as error:
            if name in OWN:
                raise
            reasons[name] = str(error)
            continue
        calls[name] = call
    return Outcome(each, interleaved(calls, rounds), reasons)


def geometric_means(found: Sequence[Outcome], chosen: Sequence[str]) -> dict[str, str]:
    """Return each tool's mean speed over the rows that it computed, and their number."""
    means = {}
    for tool in chosen:
        speeds = [speed for each in found if (speed := each.speed(tool)) is not None]
        means[tool] = f"{statistics.geometric_mean(speeds):.3g} ({len(speeds)})" if speeds else ""
    return means


def rows(found: Sequence[Outcome], chosen: Sequence[str]) -> Iterator[list[str]]:
    """Yield the cells of the table: the time of NumPy over that of each tool."""
    for each in found:
        speeds = [each.speed(tool) for tool in chosen]
        cells = ["" if speed is None else f"{speed:.3g}" for speed in speeds]
        best = each.best
        ratio = "" if best is None else f"{each.samples.ratio(best, 'weft'):.3g} ({best})"
        noisy = max(each.samples.spread(tool) for tool in each.samples.seconds) > NOISE
        taken = f"{number(each.samples.median('weft') * 1e6)} us"
        yield [each.work.what, taken, *cells, ratio, "not quiet" if noisy else ""]
    yield ["geometric mean (rows)", "", *geometric_means(found, chosen).values(), "", ""]


def heading(chosen: Sequence[str]) -> list[str]:
    """Return the heads of the columns."""
    return ["work", "time of weft", *chosen, "best peer over weft", ""]


def markdown(found: Sequence[Outcome], chosen: Sequence[str], where: str) -> str:
    """Return the section of the page of results."""
    lines = [where, "", f"| {' | '.join(heading(chosen))} |", "|---" * (len(chosen) + 4) + "|"]
    lines += [f"| {' | '.join(cells)} |" for cells in rows(found, chosen)]
    reasons = {(tool, why) for each in found for tool, why in each.reasons.items()}
    lines += ["", *(f"* {tool}: {why}" for tool, why in sorted(reasons))]
    return "\n".join(lines)


def summary(found: Sequence[Outcome], chosen: Sequence[str], where: str) -> str:
    """Return the table of the README: the time of each tool over that of weft."""
    tools = [tool for tool in chosen if tool != "weft"]
    lines = [f"| time over weft's | {' | '.join(tools)} |", "|---" * (len(tools) + 1) + "|"]
    for each in found:
        known = each.samples.seconds
        ratios = [each.samples.ratio(tool, "weft") if tool in known else None for tool in tools]
        cells = ["" if ratio is None else _two_digits(ratio) for ratio in ratios]
        lines.append(f"| {each.work.what} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", where])


def _two_digits(ratio: float) -> str:
    """Return a ratio with two digits, or all of those before the point."""
    return f"{ratio:.0f}" if ratio >= 10 else f"{ratio:.2g}"


def marks(name: str) -> tuple[str, str]:
    """Return the comments around a table."""
    return f"<!-- generated {name}: begin -->", f"<!-- generated {name}: end -->"


def write(section: str, page: Path, name: str) -> None:
    """Replace a section of a page."""
    opening, closing = marks(name)
    text = page.read_text(encoding="utf-8")
    before, begin, rest = text.partition(opening)
    _, end, after = rest.partition(closing)
    if not begin or not end:
        raise SystemExit(f"{page.name} lacks the marks {opening} and {closing}")
    fresh = page.with_suffix(".new")
    fresh.write_text(f"{before}{begin}\n{section}\n{end}{after}", encoding="utf-8")
    fresh.replace(page)


def versions(chosen: Sequence[str]) -> str:
    """Return the version of each tool that has been loaded."""
    modules: Mapping[str, str] = {"inductor": "torch"}
    names = dict.fromkeys(modules.get(tool, tool) for tool in chosen)
    loaded = [(name, sys.modules[name]) for name in names if name in sys.modules]
    return ", ".join(f"{name} {module.__version__}" for name, module in loaded)


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", action="append", choices=list(WORK), help="just this work")
    parser.add_argument("--tool", action="append", choices=list(TOOLS), help="just this peer")
    parser.add_argument("--rounds", type=int, default=11, help="how often tools take turns")
    parser.add_argument("--backend", default="numpy", help="the backend of weft to measure")
    parser.add_argument("--compiler", choices=COMPILERS, help="the compiler of the native backend")
    parser.add_argument("--write", action="store_true", help=f"write the table to {RESULTS.name}")
    parser.add_argument("--summary", action="store_true", help=f"write the table of {README.name}")
    given = parser.parse_args()
    if given.compiler is not None:
        os.environ["WEFT_CC"] = given.compiler
    require_untuned()
    os.environ["WEFT_BACKEND"] = given.backend
    chosen = ["numpy", "weft", *(name for name in given.tool or TOOLS if name not in OWN)]
    console = Console(width=None if sys.stdout.isatty() else 170)
    found = []
    for name in given.only or (SUMMARY if given.summary else WORK):
        with console.status(f"measuring {name}"):
            found.append(outcome(WORK[name](), chosen, given.rounds))
    shown = Table(*heading(chosen))
    for cells in rows(found, chosen):
        shown.add_row(*cells)
    compiled = "" if given.compiler is None else f" with {given.compiler}"
    where = (
        f"measured on {datetime.now(UTC):%Y-%m-%d} on {cores()} cores, "
        f"weft's backend {given.backend}{compiled}; {versions(chosen)}; BLAS of NumPy: {blas()}."
    )
    console.print(f"Speeds over eager NumPy, {where}", shown)
    for each in found:
        for tool, why in each.reasons.items():
            console.print(f"{each.work.what}: without {tool}: {why}")
    if given.write:
        name = "peers" if given.compiler is None else f"peers {given.compiler}"
        write(markdown(found, chosen, f"Speeds over eager NumPy, {where}"), RESULTS, name)
    if given.summary:
        write(summary(found, chosen, where[0].upper() + where[1:]), README, "ratios")


if __name__ == "__main__":
    main()
