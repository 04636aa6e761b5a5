"""CuPy, NVIDIA's driver and NVRTC, which are loaded when a device is first requested."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from weft.errors import BackendError
from weft_cupy.errors import DRIVER_TOO_OLD, NO_DEVICE


@dataclass(frozen=True)
class Candidate:
    """A device that the driver lists.

    Attributes
    ----------
    number
        Its index in the driver's order.
    name
        Its name.
    facts
        Its properties, by CUDA's names for them.
    """

    number: int
    name: str
    facts: Mapping[str, Any]

    @property
    def capability(self) -> int:
        """The compute capability, as 90 for 9.0."""
        return int(self.facts["major"]) * 10 + int(self.facts["minor"])

    def __str__(self) -> str:
        return f"{self.number}: {self.name}"


@cache
def cupy() -> Any:
    """Return the module `cupy`; raises BackendError with instructions if it is missing."""
    try:
        import cupy
    except ModuleNotFoundError as error:
        if error.name != "cupy":
            raise BackendError(f"CuPy cannot be imported: {error}") from error
        raise BackendError("CuPy is not installed: pip install 'weftc[cupy]'") from error
    except (ImportError, OSError) as error:
        raise BackendError(f"CuPy cannot be loaded: {error}") from error
    return cupy


def candidates() -> tuple[Candidate, ...]:
    """Return the devices in the driver's order, which begins with the fastest.

    Raises BackendError where there is no CuPy, no driver or no device.
    """
    runtime = cupy().cuda.runtime
    try:
        if not runtime.driverGetVersion():
            raise BackendError(
                "no NVIDIA driver is installed: install the one for your GPU; in a container, "
                "start it with the GPU (docker run --gpus all)"
            )
        found = [
            Candidate(number, facts["name"].decode(errors="replace"), facts)
            for number in range(runtime.getDeviceCount())
            for facts in (runtime.getDeviceProperties(number),)
        ]
    except runtime.CUDARuntimeError as error:
        raise BackendError(_why_none(error)) from error
    if not found:
        raise BackendError(_NONE)
    return tuple(found)


_NONE = "the NVIDIA driver finds no GPU; CUDA_VISIBLE_DEVICES may hide them"


def _why_none(error: Any) -> str:
    if error.status == NO_DEVICE:
        return _NONE
    if error.status == DRIVER_TOO_OLD:
        return (
            f"the NVIDIA driver is too old for this CuPy ({error}): update the driver, or install "
            "the CuPy for the CUDA that it supports (cupy-cuda12x)"
        )
    return f"the NVIDIA devices cannot be listed: {error}"


@cache
def nvrtc() -> Any:
    """Return CuPy's bindings of NVRTC; raises BackendError if NVRTC is missing."""
    cupy()
    try:
        from cupy_backends.cuda.libs import nvrtc

        nvrtc.getVersion()
    except (ImportError, OSError, RuntimeError) as error:
        raise BackendError(
            f"NVRTC, NVIDIA's compiler, cannot be loaded: pip install nvidia-cuda-nvrtc ({error})"
        ) from error
    return nvrtc


@cache
def architectures() -> tuple[int, ...]:
    """Return the compute capabilities that NVRTC supports; BackendError if NVRTC is missing."""
    return tuple(map(int, nvrtc().getSupportedArchs()))
