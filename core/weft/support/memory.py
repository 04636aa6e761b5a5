"""The memory of this machine."""

from __future__ import annotations

import os
from functools import cache

ADDRESSES = 1 << 47
"""The bytes that a process can address, where the memory's size is not known."""


@cache
def half_of_memory() -> int:
    """Return half of the bytes of this machine's memory: what input from a stranger may take."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, OSError, ValueError):
        return ADDRESSES
