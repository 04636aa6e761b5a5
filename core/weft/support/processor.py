"""The features of this machine's processor."""

from __future__ import annotations

from functools import cache
from pathlib import Path


@cache
def processor_features() -> frozenset[str]:
    """Return the names of the instruction sets that the system lists, and of the architecture.

    Only the architecture where the system lists none.
    """
    import platform  # which a program that only computes does not need

    found = {platform.machine().lower()}
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return frozenset(found)
    for line in text.splitlines():
        name, _, listed = line.partition(":")
        if name.strip() in ("flags", "Features"):
            found.update(listed.split())
            break
    return frozenset(found)
