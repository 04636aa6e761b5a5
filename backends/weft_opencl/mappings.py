"""Mappings: the limit on loaded kernels of PoCL, which never unmaps their libraries.

PoCL maps a shared library for each kernel that runs. Version 3.1 with threads leaks them: it takes
two references for each run and drops one; its single-threaded device, `basic`, does not. Linux
limits the mappings of a process, and beyond the limit the process ends without a message.
"""

from __future__ import annotations

from pathlib import Path

from weft_c.runtime.errors import DeviceMemoryError

FOR_KERNEL = 5
"""The mappings for each kernel: four segments of its library, and one for heap growth."""
SPARE = 4096
"""The mappings reserved for everything else."""
_LIMIT = Path("/proc/sys/vm/max_map_count")
_MAPPED = Path("/proc/self/maps")


class Mappings:
    """Tracks the mappings of this process, and counts them only when an estimate is too high."""

    def __init__(self) -> None:
        self._counted = 0
        self._kernels_since = 0

    def make_room(self, kernels: int, device: str) -> None:
        """Record that kernels will be loaded; raises DeviceMemoryError if there is no room."""
        self._kernels_since += kernels
        limit = _limit()
        if limit is None or self._expected <= limit:
            return
        self._counted, self._kernels_since = _mapped(), kernels
        if self._expected > limit:
            self._kernels_since = 0
            raise DeviceMemoryError(
                f"this process has no room for {kernels} more kernels of {device}: of the {limit} "
                f"mappings of memory that Linux lets a process have {self._counted} are taken, and "
                "PoCL keeps those of each kernel that ran. Go on in another process, let there be "
                "more (sysctl vm.max_map_count=1000000), or take PoCL's device that computes in "
                "one thread and keeps few (POCL_DEVICES=basic)"
            )

    @property
    def _expected(self) -> int:
        return self._counted + FOR_KERNEL * self._kernels_since + SPARE


MAPPINGS = Mappings()
"""The mappings of this process."""


def _limit() -> int | None:
    try:
        return int(_LIMIT.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _mapped() -> int:
    with _MAPPED.open("rb") as lines:
        return sum(1 for _ in lines)
