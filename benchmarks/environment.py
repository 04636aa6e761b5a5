"""The environment of a measurement: which variables it sees, which BLAS, and fresh processes.

Variables that tune a BLAS or OpenMP slow some competitors down and not others: a matrix product of
NumPy takes twice the time with ``OPENBLAS_CORETYPE=Haswell``. So nothing is measured in a process
that has one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent

STARTED_WITH = dict(os.environ)
"""The variables that this process was started with; packages such as scikit-learn add some."""

TUNING = (
    "BLIS_", "GOTO_", "KMP_", "MALLOC_", "MKL_", "NUMEXPR_", "OMP_", "OPENBLAS_", "VECLIB_",
    "WEFT_CACHE", "WEFT_DUMP",
)  # fmt: skip
"""How the names of variables begin that tune numerical libraries, memory or weft."""

NO_CACHE = {"WEFT_CACHE": "0"}
"""What makes weft compile without looking for results on disk."""

KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "10000000000"}
"""What makes the C library keep freed memory; fetching fresh memory costs eager code the most."""


CHILD = "BENCHMARK_CHILD"
"""A variable of processes that begin with `untuned` variables."""


def untuned(keep_memory: bool = False) -> dict[str, str]:
    """Return this process's variables without those that tune, or with memory kept."""
    kept = {name: text for name, text in STARTED_WITH.items() if not name.startswith(TUNING)}
    return kept | NO_CACHE | {CHILD: "1"} | (KEEP_MEMORY if keep_memory else {})


def require_untuned(keep_memory: bool = False) -> None:
    """Go on in a child process, and exit with its status, if this one began with other variables.

    Raises RuntimeError in a child that is to have another child, which would never end.
    """
    wanted = untuned(keep_memory)
    if wanted != STARTED_WITH:
        if CHILD in STARTED_WITH:
            raise RuntimeError("something changes the variables of child processes as they begin")
        command = [sys.executable, *sys.orig_argv[1:]]
        raise SystemExit(subprocess.run(command, env=wanted, check=False).returncode)


def run_fresh(arguments: Sequence[str], bytecode: str, **variables: str) -> str:
    """Return what a fresh interpreter prints, which reads and writes bytecode in a folder.

    It starts in the folder of the benchmarks. Raises CalledProcessError if it fails.
    """
    inherited = {**os.environ, "PYTHONPYCACHEPREFIX": bytecode, **variables}
    inherited.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        [sys.executable, *arguments],
        check=True, stdout=subprocess.PIPE, text=True, env=inherited, cwd=FOLDER,
    )  # fmt: skip
    return done.stdout


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def blas() -> str:
    """Return NumPy's BLAS, its version, the processor that its kernels are for, and its threads.

    Without threadpoolctl, the last two are unknown.
    """
    try:
        from threadpoolctl import threadpool_info
    except ImportError:
        found = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
        return f"{found['name']} {found['version']}, core type unknown without threadpoolctl"
    found = next((each for each in threadpool_info() if each["user_api"] == "blas"), None)
    if found is None:
        return "a BLAS that threadpoolctl does not know"
    core = found.get("architecture", "unknown")
    return f"{found['internal_api']} {found['version']} for {core}, {found['num_threads']} threads"
