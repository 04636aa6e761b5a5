"""What CUDA's error codes mean to a user."""

from __future__ import annotations

import re
from typing import Any

from weft.errors import BackendError


class DeviceMemoryError(BackendError, MemoryError):
    """A device has no memory left for what it was asked to hold."""


OUT_OF_MEMORY = 2
"""cudaErrorMemoryAllocation, and CUDA_ERROR_OUT_OF_MEMORY of the driver."""
DRIVER_TOO_OLD = 35
"""cudaErrorInsufficientDriver."""
NO_DEVICE = 100
"""cudaErrorNoDevice."""
_LOST = frozenset({214, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719})
"""Codes after which a process cannot use the device any more, such as an illegal address."""

_PLACE = re.compile(r"\((\d+)\): (?:catastrophic )?error")
"""A line, as NVRTC names it."""
AROUND = 3
"""The lines of source that are shown before and after an error."""
FIRST = 5
"""The errors that are shown with their source."""


def is_lost(error: Any) -> bool:
    """Whether an error of CUDA's is one after which the process cannot use the device."""
    return getattr(error, "status", None) in _LOST


def explained(error: Any, device: str, doing: str) -> BackendError:
    """Return the error to raise for one of CuPy's that came up while doing something."""
    said = str(error).strip()
    if isinstance(error, MemoryError) or getattr(error, "status", None) == OUT_OF_MEMORY:
        return DeviceMemoryError(
            f"{device} has no memory left, {doing} ({said}): close transformers that are not "
            "needed, free CuPy's memory pool, pass memory_limit= or smaller arrays"
        )
    if is_lost(error):
        return BackendError(
            f"{device} does not answer any more, {doing} ({said}): start the process again; what "
            "was only in its memory is lost"
        )
    return BackendError(f"{device} failed, {doing}: {said}")


def build_error(log: str, source: str, device: str, name: str) -> BackendError:
    """Return the error for source that does not build, with the compiler's log and the lines."""
    return BackendError(
        f"NVRTC refused the program of {name} for {device}; this is an error of weft or of NVRTC, "
        f"not of the graph\n{log.strip()}\n{excerpt(source, log)}"
    )


def excerpt(source: str, log: str) -> str:
    """Return the lines around the errors that a log names, numbered; the first lines for none."""
    lines = source.splitlines()
    named = [int(place) for place in _PLACE.findall(log)] or [1]
    shown = {
        near
        for number in dict.fromkeys(named[:FIRST])
        for near in range(number - AROUND, number + AROUND + 1)
        if 1 <= near <= len(lines)
    }
    return "\n".join(
        f"{'>' if number in named else ' '}{number:5} {lines[number - 1]}"
        for number in sorted(shown)
    )
