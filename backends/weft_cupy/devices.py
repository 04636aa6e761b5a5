"""Device selection: the requested GPU, else a usable one for each rank of a machine."""

from __future__ import annotations

from weft import settings
from weft.communicators import local_rank
from weft.errors import ArgumentError, BackendError
from weft.support.backports import after_fork
from weft_c.runtime.device import requested_device
from weft_cupy import blas, drivers
from weft_cupy.device import Device
from weft_cupy.drivers import Candidate

_opened: dict[int, Device] = {}
_after_fork = ""
_FORKED = (
    "this process was forked from one that had used CUDA, which does not survive a fork: start "
    "processes by the method 'spawn', or before CUDA is first used"
)
_WITHOUT_BLAS = "without cuBLAS, so weft's own kernels multiply: pip install nvidia-cublas"


def choose(wanted: int | str | None) -> Device:
    """Return the requested device, from the option or the environment, or a usable one.

    Opens the device, once in a process. Raises ArgumentError and BackendError as `best` does.
    """
    found = best(wanted)
    if found.number not in _opened:
        made = Device(drivers.cupy(), found, blas.library() is not None)
        _opened.setdefault(found.number, made)
    return _opened[found.number]


def best(wanted: int | str | None) -> Candidate:
    """Return the device that `choose` selects, without opening it.

    Of several that match, the first; under a launcher, the ranks of a machine take them in turn.
    Raises ArgumentError if no device has the requested name, and BackendError if none is usable.
    """
    wanted, source = requested_device(wanted, settings.CUPY_DEVICE)
    if _after_fork:
        raise BackendError(_after_fork)
    found = drivers.candidates()
    if wanted is not None:
        matching = tuple(each for each in found if _matches(each, str(wanted).strip()))
        if not matching:
            listed = "\n".join(f"  {each}" for each in found)
            raise ArgumentError(f"{source}{wanted!r} is not one of the NVIDIA devices:\n{listed}")
        found = matching
    usable = [each for each in found if not trouble_with(each)]
    if not usable:
        troubles = "\n".join(f"  {each}: {trouble_with(each)}" for each in found)
        raise BackendError(f"no NVIDIA device can be used:\n{troubles}")
    return usable[local_rank() % len(usable)]


def trouble_with(candidate: Candidate) -> str:
    """Return why a device is not usable; empty if it is.

    Raises BackendError where NVRTC is missing.
    """
    oldest = min(drivers.architectures())
    if candidate.capability >= oldest:
        return ""
    return (
        f"it has compute capability {candidate.capability / 10}, and NVRTC compiles for "
        f"{oldest / 10} and newer: install an older nvidia-cuda-nvrtc and its CuPy"
    )


def _matches(candidate: Candidate, wanted: str) -> bool:
    if wanted.isdecimal():
        return candidate.number == int(wanted)
    return wanted.casefold() in candidate.name.casefold()


def summary() -> tuple[str | None, str]:
    """Return the device that would be selected with notes, or None and the reason."""
    try:
        chosen = best(None)
        notes = [
            f"{each} is not usable: {trouble}"
            for each in drivers.candidates()
            if (trouble := trouble_with(each))
        ]
    except (ArgumentError, BackendError) as error:
        return None, error.problem
    if blas.library() is None:
        notes.append(_WITHOUT_BLAS)
    return "; ".join([chosen.name, *notes]), ""


def _give_up() -> None:
    """Disable CUDA in a process forked after its first use, where every call would fail."""
    global _after_fork
    if _opened:
        _after_fork = _FORKED
        for device in _opened.values():
            device.lost = _FORKED


after_fork(_give_up)
