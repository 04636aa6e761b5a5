"""Translation of OpenCL's error codes to weft's errors."""

from __future__ import annotations

import re
from typing import Any

from weft.errors import BackendError
from weft_c.runtime import errors as device_errors
from weft_c.runtime.errors import DeviceMemoryError

_OUT_OF_MEMORY = (-4, -5, -6)
"""CL_MEM_OBJECT_ALLOCATION_FAILURE, CL_OUT_OF_RESOURCES, CL_OUT_OF_HOST_MEMORY."""
_TOO_LARGE = -61
"""CL_INVALID_BUFFER_SIZE."""
_LOST = (-2, -33, -34, -36, -9999)
"""CL_DEVICE_NOT_AVAILABLE, CL_INVALID_DEVICE, CL_INVALID_CONTEXT, CL_INVALID_COMMAND_QUEUE.

The last one is NVIDIA's code for an access outside of a buffer.
"""

_PLACE = re.compile(r"(\d+):\d+:\s")
"""A line and a column in the logs of compilers based on Clang."""


def is_lost(error: Any) -> bool:
    """Whether the context cannot be used any more after an error."""
    return getattr(error, "code", None) in _LOST


def explained(error: Any, device: str, doing: str) -> BackendError:
    """Translate an error of pyopencl; `doing` says what failed."""
    code = getattr(error, "code", None)
    said = str(error).strip()
    if code in _OUT_OF_MEMORY or code == _TOO_LARGE or isinstance(error, MemoryError):
        return DeviceMemoryError(
            f"{device} has no memory or resources left, {doing} ({said}): close transformers that "
            "are not needed, pass memory_limit= or smaller arrays"
        )
    if is_lost(error):
        return BackendError(
            f"{device} does not answer any more, {doing} ({said}): make another transformer; "
            "states that were only in its memory are lost"
        )
    return BackendError(f"{device} failed, {doing}: {said}")


def build_error(log: str, source: str, device: str, name: str) -> BackendError:
    """Return the error for source that fails to compile, with the log and an excerpt."""
    refused = f"the compiler of {device} refused the program of {name}"
    return device_errors.build_error(refused, "the driver", log, source, lines_in(log))


def lines_in(log: str) -> list[int]:
    """Return the line numbers of the errors in a log."""
    errors = [_PLACE.search(line) for line in log.splitlines() if "error" in line]
    return [int(place[1]) for place in errors if place]
