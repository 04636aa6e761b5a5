"""The machine that code is generated for: its threads and cache."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.errors import ArgumentError

VARIABLE = "WEFT_NUM_THREADS"
BLAS_VARIABLES = (
    "OPENBLAS_NUM_THREADS",
    "GOTO_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "OMP_NUM_THREADS",
)
"""Environment variables that limit the threads of a BLAS."""

DEFAULT_CACHE = 2**20
"""The default cache size in bytes, where the system does not report it."""

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


@dataclass(frozen=True)
class Machine:
    """The machine that code is generated for.

    Attributes
    ----------
    threads
        The most threads of a call, including its own.
    cache
        The bytes of each core's private cache.
    blas_threads
        The most threads of BLAS, according to the environment.
    """

    threads: int
    cache: int
    blas_threads: int = 1


def this_machine(threads: Any = None) -> Machine:
    """Return this machine, with the given number of threads or `default_threads`.

    Raises ArgumentError if that is not a whole number of 1 or more.
    """
    if threads is None:
        threads = default_threads()
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
        raise ArgumentError(f"threads= takes a whole number, 1 or more, not {threads!r}")
    return Machine(threads, _cache_size(), _blas_threads())


def default_threads() -> int:
    """Return the value of ``WEFT_NUM_THREADS``, or the number of processors of this process."""
    text = os.environ.get(VARIABLE, "").strip()
    if text:
        if not text.isdecimal() or int(text) < 1:
            raise ArgumentError(f"{VARIABLE} takes a whole number, 1 or more, not {text!r}")
        return int(text)
    return _processors()


def _processors() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _blas_threads() -> int:
    """Return the initial threads of BLAS by the environment; a query takes milliseconds."""
    for variable in BLAS_VARIABLES:
        text = os.environ.get(variable, "").strip()
        if text.isdecimal() and int(text):
            return min(int(text), _processors())
    return _processors()


def _cache_size() -> int:
    """Return the size of the second-level cache."""
    for cache in sorted(_CACHES.glob("index*")):
        try:
            level, size = (cache / "level").read_text(), (cache / "size").read_text()
            if int(level) == 2:
                return int(size.strip().removesuffix("K")) * 1024
        except (OSError, ValueError):
            continue
    return DEFAULT_CACHE
