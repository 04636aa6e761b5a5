"""The machine that code is generated for: its threads and cache."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from weft.runtime.host_threads import available_processors, requested_threads

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
    """Return this machine, with the given number of threads or the default one.

    Raises ArgumentError if that is not a whole number of 1 or more.
    """
    return Machine(requested_threads(threads), _cache_size(_CACHES), _blas_threads())


def _blas_threads() -> int:
    """Return the initial threads of BLAS by the environment; a query takes milliseconds."""
    for variable in BLAS_VARIABLES:
        text = os.environ.get(variable, "").strip()
        if text.isdecimal() and int(text):
            return min(int(text), available_processors())
    return available_processors()


@cache
def _cache_size(caches: Path) -> int:
    """Return the size of the second-level cache, read once from a folder of the system."""
    for folder in sorted(caches.glob("index*")):
        try:
            level, size = (
                (folder / name).read_text(encoding="ascii") for name in ("level", "size")
            )
            if int(level) == 2:
                return int(size.strip().removesuffix("K")) * 1024
        except (OSError, ValueError):
            continue
    return DEFAULT_CACHE
