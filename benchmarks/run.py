"""Runs the benchmarks, each in a process of its own, and prints one table.

The processes see none of the variables that tune a BLAS or OpenMP, so that no competitor is slowed
down by them. Benchmarks that compare with eager NumPy run a second time with an allocator that
keeps the memory it has, since fetching fresh memory is the largest cost of eager code.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from measure import Row
from rich.console import Console
from rich.table import Table

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "RESULTS.md"
BEGIN, END = "<!-- generated: begin -->", "<!-- generated: end -->"
BENCHMARKS = (
    "mlp_step",
    "scalar_call",
    "import_time",
    "compile_time",
    "build",
    "scaling",
    "elementwise",
    "softmax",
)
TUNING = ("OPENBLAS_", "OMP_", "MKL_", "BLIS_", "GOTO_")
KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "10000000000"}

Results = dict[str, list[Row]]


def environment() -> dict[str, str]:
    """Return this process's variables without those that tune numerical libraries or malloc."""
    dropped = (*TUNING, "MALLOC_")
    return {name: text for name, text in os.environ.items() if not name.startswith(dropped)}


def run(name: str, rounds: int | None, **variables: str) -> list[Row]:
    """Run one benchmark in a fresh process and return its rows; raises SystemExit if it fails."""
    command = [sys.executable, str(FOLDER / f"{name}.py"), "--json"]
    if rounds is not None:
        command += ["--rounds", str(rounds)]
    done = subprocess.run(
        command, env=environment() | variables, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"benchmark {name} failed with status {done.returncode}")
    return [Row(**fields) for fields in json.loads(done.stdout)]


def results(name: str, rounds: int | None) -> list[Row]:
    """Return the rows of a benchmark, with a second look at those that depend on the allocator."""
    rows = run(name, rounds)
    if any(row.by_allocator for row in rows) and sys.platform == "linux":
        rows += [
            replace(row, what=f"{row.what}, memory kept")
            for row in run(name, rounds, **KEEP_MEMORY)
            if row.by_allocator
        ]
    return rows


def number(value: float) -> str:
    """Return a value with four digits, or all of those before the point."""
    return f"{value:.0f}" if value >= 1000 else f"{value:.4g}"


def cells(row: Row) -> tuple[str, str, str, str]:
    """Return what the columns after the benchmark's name show."""
    goal = "" if row.goal is None else f"at most {number(row.goal)} {row.unit}"
    verdict = {None: "", True: "reached", False: "missed"}[row.reached]
    remark = "; ".join(part for part in (verdict, row.note) if part)
    return row.what, f"{number(row.value)} {row.unit}", goal, remark


def table(found: Results) -> Table:
    """Return the results as a table for a terminal."""
    shown = Table("benchmark", "what", "value", "goal", "")
    for name, rows in found.items():
        for index, row in enumerate(rows):
            last = index == len(rows) - 1
            style = "red" if row.reached is False else None
            shown.add_row("" if index else name, *cells(row), style=style, end_section=last)
    return shown


def machine() -> str:
    """Return the processor, the number of cores, and the versions that matter."""
    model = platform.processor() or platform.machine()
    listing = Path("/proc/cpuinfo")
    if listing.exists():
        lines = listing.read_text(encoding="utf-8").splitlines()
        models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        model = models[0] if models else model
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    versions = f"NumPy {np.__version__}, Python {platform.python_version()}"
    return f"{model}, {cores} cores, {versions}, {platform.system()}"


def markdown(found: Results) -> Iterator[str]:
    """Write the generated section, line by line."""
    yield f"Measured on {datetime.now(UTC):%Y-%m-%d} on {machine()}."
    yield ""
    yield "| benchmark | what | value | goal | |"
    yield "|---|---|---|---|---|"
    for name, rows in found.items():
        for row in rows:
            yield f"| {name} | {' | '.join(cells(row))} |"


def write(found: Results) -> None:
    """Replace the generated section of the page of results."""
    text = RESULTS.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{RESULTS.name} has lost its marks {BEGIN} and {END}")
    section = "\n".join(markdown(found))
    fresh = RESULTS.with_suffix(".new")
    fresh.write_text(f"{before}{BEGIN}\n{section}\n{END}{after}", encoding="utf-8")
    fresh.replace(RESULTS)


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description="Run the benchmarks and print one table.")
    parser.add_argument("--only", action="append", choices=BENCHMARKS, help="run just this one")
    parser.add_argument("--rounds", type=int, help="how often competitors take turns")
    parser.add_argument("--write", action="store_true", help=f"write the table to {RESULTS.name}")
    options = parser.parse_args()
    if options.write and options.only:
        parser.error("--write needs the results of all benchmarks, leave --only out")
    console = Console(width=None if sys.stdout.isatty() else 150)
    found: Results = {}
    for name in options.only or BENCHMARKS:
        with console.status(f"measuring {name}"):
            found[name] = results(name, options.rounds)
    console.print(machine())
    console.print(table(found))
    if options.write:
        write(found)


if __name__ == "__main__":
    main()
