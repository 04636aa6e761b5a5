"""Runs programs of tests under mpiexec."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from needs import skip_without

PROGRAMS = Path(__file__).parent / "programs"
MPIEXEC = Path(sys.executable).with_name("mpiexec")
HANG = 120
"""Seconds after which a program that should have ended by itself fails the test."""
GRACE = 10
"""Seconds that a process may take to end after ``mpiexec``, which waits for its messages alone."""
SIDE_BY_SIDE = 4
"""Programs at a time that mostly wait."""


def mpiexec(
    ranks: int, program: str, *args: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a program on some ranks and return how it ended; skips the test without MPI."""
    skip_without("mpi")
    command = [str(MPIEXEC), "-n", str(ranks), sys.executable, str(PROGRAMS / program), *args]
    settings = {**os.environ, "OMP_NUM_THREADS": "1", "WEFT_NUM_THREADS": "1", **environment}
    return subprocess.run(
        command, env=settings, capture_output=True, text=True, timeout=HANG, check=False
    )


def side_by_side(
    run: Callable[[str], subprocess.CompletedProcess[str]], cases: Iterable[str]
) -> list[tuple[str, subprocess.CompletedProcess[str]]]:
    """Run a program in several cases, which mostly wait, and return how each ended."""
    skip_without("mpi")
    cases = tuple(cases)
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        return list(zip(cases, pool.map(run, cases), strict=True))


def is_running(process: int) -> bool:
    """Whether there is a process of a number, and it has not ended."""
    try:
        os.kill(process, 0)
        return "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False


def left_running(output: str) -> list[int]:
    """Return the processes among those that say "process NUMBER" which do not end by themselves."""
    processes = [int(each) for each in re.findall(r"process (\d+)", output)]
    deadline = time.monotonic() + GRACE
    while processes and time.monotonic() < deadline:
        time.sleep(0.01)
        processes = [*filter(is_running, processes)]
    return processes
