"""Runs the benchmarks, each in a process of its own, and prints one table.

The processes see none of the variables that tune a BLAS or OpenMP, so that no competitor is slowed
down by them. Benchmarks that compare with eager NumPy run a second time with an allocator that
keeps the memory it has, since fetching fresh memory is the largest cost of eager code; goals are
for eager NumPy as it is.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from environment import FOLDER, cores, untuned
from measure import Row, number
from rich.console import Console
from rich.table import Table

RESULTS = FOLDER / "RESULTS.md"
BENCHMARKS = (
    "elementwise",
    "reductions",
    "products",
    "mlp_step",
    "cnn_step",
    "transformer_block",
    "decode",
    "mnist_script",
    "scalar_call",
    "function_calls",
    "profiles",
    "first_result",
    "unknown_lengths",
    "import_time",
    "compile_time",
    "graph_calls",
    "build",
    "scaling",
)

ON_DEVICES = (
    "elementwise",
    "reductions",
    "products",
    "mlp_step",
    "cnn_step",
    "transformer_block",
    "decode",
    "mnist_script",
    "scalar_call",
    "function_calls",
    "profiles",
    "first_result",
    "unknown_lengths",
)
"""The benchmarks that say something about backends beside NumPy."""

Results = dict[str, list[Row]]


@dataclass(frozen=True)
class Options:
    """What every benchmark is run with.

    `rounds` is None to leave their number to the benchmark, `load` how many processes were running
    on average in the minute before.
    """

    rounds: int | None
    backend: str
    load: float


def run(name: str, options: Options, keep_memory: bool = False) -> tuple[str, list[Row]]:
    """Run one benchmark in a fresh process; raises SystemExit if it fails.

    Returns which BLAS it ran with, and its rows.
    """
    command = [sys.executable, str(FOLDER / f"{name}.py"), "--json", "--backend", options.backend]
    if options.rounds is not None:
        command += ["--rounds", str(options.rounds)]
    if keep_memory:
        command.append("--keep-memory")
    done = subprocess.run(
        command, env=untuned(keep_memory), stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"benchmark {name} failed with status {done.returncode}")
    found = json.loads(done.stdout)
    return found["blas"], [Row(**fields) for fields in found["rows"]]


def results(name: str, options: Options) -> tuple[str, list[Row]]:
    """Run a benchmark, with a second look at the rows that depend on the allocator."""
    blas, rows = run(name, options)
    if any(row.by_allocator for row in rows) and sys.platform == "linux":
        rows += [
            replace(row, what=f"{row.what}, memory kept", goal=None)
            for row in run(name, options, keep_memory=True)[1]
            if row.by_allocator
        ]
    return blas, rows


def cells(row: Row) -> tuple[str, str, str, str]:
    """Return what the columns after the benchmark's name show."""
    verdict = {None: "", True: "reached", False: "missed"}[row.reached]
    remark = "; ".join(part for part in (verdict, row.note) if part)
    return row.what, f"{number(row.value)} {row.unit}", row.aim, remark


def table(found: Results) -> Table:
    """Return the results as a table for a terminal."""
    shown = Table("benchmark", "what", "value", "goal", "")
    for name, rows in found.items():
        for index, row in enumerate(rows):
            last = index == len(rows) - 1
            style = "red" if row.reached is False else None
            shown.add_row("" if index else name, *cells(row), style=style, end_section=last)
    return shown


def machine(blas: str, options: Options) -> str:
    """Return the processor, the number of cores, the versions that matter, and how busy it was."""
    model = platform.processor() or platform.machine()
    listing = Path("/proc/cpuinfo")
    if listing.exists():
        lines = listing.read_text(encoding="utf-8").splitlines()
        models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        model = models[0] if models else model
    versions = f"NumPy {np.__version__}, Python {platform.python_version()}"
    where = f"{model}, {cores()} cores, {versions}, {platform.system()}"
    return f"{where}; BLAS: {blas}; backend {options.backend}; load before {options.load:.2g}"


def markdown(found: Results, where: str) -> Iterator[str]:
    """Write the generated section, line by line."""
    yield f"Measured on {datetime.now(UTC):%Y-%m-%d} on {where}."
    yield ""
    yield "| benchmark | what | value | goal | |"
    yield "|---|---|---|---|---|"
    for name, rows in found.items():
        for row in rows:
            yield f"| {name} | {' | '.join(cells(row))} |"


def write(found: Results, where: str, backend: str) -> None:
    """Replace the generated section of a backend in the page of results."""
    text = RESULTS.read_text(encoding="utf-8")
    opening, closing = (f"<!-- generated {backend}: {side} -->" for side in ("begin", "end"))
    before, begin, rest = text.partition(opening)
    _, end, after = rest.partition(closing)
    if not begin or not end:
        raise SystemExit(f"{RESULTS.name} lacks the marks {opening} and {closing}")
    section = "\n".join(markdown(found, where))
    fresh = RESULTS.with_suffix(".new")
    fresh.write_text(f"{before}{begin}\n{section}\n{end}{after}", encoding="utf-8")
    fresh.replace(RESULTS)


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description="Run the benchmarks and print one table.")
    parser.add_argument("--only", action="append", choices=BENCHMARKS, help="run just this one")
    parser.add_argument("--rounds", type=int, help="how often competitors take turns")
    parser.add_argument("--backend", default="numpy", help="the backend to measure")
    parser.add_argument("--write", action="store_true", help=f"write the table to {RESULTS.name}")
    given = parser.parse_args()
    if given.write and given.only:
        parser.error("--write needs all benchmarks of a backend, leave --only out")
    chosen = BENCHMARKS if given.backend == "numpy" else ON_DEVICES
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    options = Options(given.rounds, given.backend, load)
    console = Console(width=None if sys.stdout.isatty() else 170)
    found: Results = {}
    for name in given.only or chosen:
        with console.status(f"measuring {name}"):
            blas, found[name] = results(name, options)
    where = machine(blas, options)
    console.print(where)
    console.print(table(found))
    if given.write:
        write(found, where, given.backend)


if __name__ == "__main__":
    main()
