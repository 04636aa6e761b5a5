"""The number of threads that backends use on the host's processors."""

from __future__ import annotations

import os
from contextlib import suppress
from math import ceil
from pathlib import Path
from typing import Any

from weft import settings
from weft.errors import ArgumentError

_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def requested_threads(threads: Any = None) -> int:
    """Return the option ``threads=``, else ``WEFT_NUM_THREADS``, else `available_processors`.

    Raises ArgumentError if either is not a whole number of 1 or more.
    """
    if threads is not None:
        if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
            raise ArgumentError(f"threads= takes a whole number, 1 or more, not {threads!r}")
        return threads
    return settings.NUM_THREADS.value or available_processors()


def available_processors() -> int:
    """Return the number of processors by this process's affinity and its control group's quota."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    with suppress(OSError, ValueError):
        quota, period = _QUOTA.read_text(encoding="ascii").split()
        if quota != "max":
            count = min(count or 1, max(ceil(int(quota) / int(period)), 1))
    return count or 1
