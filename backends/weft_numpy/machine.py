"""The machine: number of threads and size of caches."""

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
"""Where users say how many threads their BLAS may start."""

DEFAULT_CACHE = 2**20
"""Bytes, where the system does not tell."""

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


@dataclass(frozen=True)
class Machine:
    """The machine that code is generated for.

    Attributes
    ----------
    threads
        The most threads that a call runs in, its own included.
    cache
        The bytes of the cache that each processor has for itself.
    blas_threads
        The most threads that BLAS runs in, as far as the environment tells.
    """

    threads: int
    cache: int
    blas_threads: int = 1


def this_machine(threads: Any = None) -> Machine:
    """Return what holds here, with the number of threads as given, or else as `default_threads`.

    Raises ArgumentError if that is not a whole number of 1 or more.
    """
    if threads is None:
        threads = default_threads()
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
        raise ArgumentError(f"threads= takes a whole number, 1 or more, not {threads!r}")
    return Machine(threads, _cache_size(), _blas_threads())


def default_threads() -> int:
    """Return what ``WEFT_NUM_THREADS`` says, or the number of processors this process may use."""
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
    """Return how many threads a BLAS starts with, without asking it, which takes milliseconds."""
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
