"""Translation of the error codes of CUDA and cuBLAS to weft's errors."""

from __future__ import annotations

import re
from typing import Any

from weft.errors import BackendError
from weft_c.runtime import errors as device_errors
from weft_c.runtime.errors import DeviceMemoryError

OUT_OF_MEMORY = 2
"""cudaErrorMemoryAllocation, and CUDA_ERROR_OUT_OF_MEMORY of the driver."""
DRIVER_TOO_OLD = 35
"""cudaErrorInsufficientDriver."""
NO_DEVICE = 100
"""cudaErrorNoDevice."""
_LOST = frozenset({214, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719})
"""Codes after which a process cannot use the device any more, such as an illegal address."""

_CUBLAS_OUT_OF_MEMORY = 3
"""CUBLAS_STATUS_ALLOC_FAILED."""
_CUBLAS_OF_DEVICE = frozenset({13, 14})
"""CUBLAS_STATUS_EXECUTION_FAILED and CUBLAS_STATUS_INTERNAL_ERROR: CUDA reports details."""

_PLACE = re.compile(r"\((\d+)\): (?:catastrophic )?error")
"""A line number in a log of NVRTC."""


class CuBLASError(Exception):
    """A call of cuBLAS failed.

    Attributes
    ----------
    code
        The cublasStatus_t that the call returned.
    """

    def __init__(self, function: str, code: int) -> None:
        super().__init__(f"{function} returned status {code}")
        self.code = code

    @property
    def is_of_device(self) -> bool:
        """Whether the error occurred on the device, for which CUDA reports details."""
        return self.code in _CUBLAS_OF_DEVICE


def is_lost(error: Any) -> bool:
    """Whether the process cannot use the device any more after an error of CUDA."""
    return getattr(error, "status", None) in _LOST


def explained(error: Any, device: str, doing: str) -> BackendError:
    """Translate an error of CuPy; `doing` says what failed."""
    said = str(error).strip()
    if _is_out_of_memory(error):
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


def _is_out_of_memory(error: Any) -> bool:
    if isinstance(error, CuBLASError):
        return error.code == _CUBLAS_OUT_OF_MEMORY
    return isinstance(error, MemoryError) or getattr(error, "status", None) == OUT_OF_MEMORY


def build_error(log: str, source: str, device: str, name: str) -> BackendError:
    """Return the error for source that fails to compile, with the log and an excerpt."""
    refused = f"NVRTC refused the program of {name} for {device}"
    return device_errors.build_error(refused, "NVRTC", log, source, lines_in(log))


def lines_in(log: str) -> list[int]:
    """Return the line numbers of the errors in a log."""
    return [int(place) for place in _PLACE.findall(log)]
