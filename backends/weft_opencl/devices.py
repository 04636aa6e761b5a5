"""Device selection: the requested device, else the best one that works."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from weft import settings
from weft.errors import ArgumentError, BackendError
from weft.support.backports import after_fork
from weft_c.runtime.device import requested_device
from weft_opencl import drivers, verdicts
from weft_opencl.device import Device, described
from weft_opencl.drivers import INTEL, POCL, Candidate
from weft_opencl.errors import explained
from weft_opencl.verdicts import Verdict

_opened: dict[tuple[int, int], Device] = {}
_choosing = threading.RLock()
_after_fork = ""
_FORKED = (
    "this process was forked from one that had used OpenCL, whose drivers do not survive a "
    "fork: start processes by the method 'spawn', or before OpenCL is first used"
)


def choose(wanted: int | str | None) -> Device:
    """Return the requested device, from the option or the environment, or the best that works.

    Opens the device. Raises ArgumentError and BackendError as `best` does.
    """
    with _choosing:
        found, verdict = best(wanted)
        return opened(found, verdict)


def best(wanted: int | str | None) -> tuple[Candidate, Verdict]:
    """Return the device that `choose` selects, without opening it.

    Raises ArgumentError if no device has the requested name, and BackendError if none works.
    """
    wanted, source = requested_device(wanted, settings.OPENCL_DEVICE)
    if _after_fork:
        raise BackendError(_after_fork)
    found = drivers.candidates()
    if wanted is not None:
        text = str(wanted).strip()
        matching = [each for each in found if _matches(each, text)]
        if not matching:
            listed = "\n".join(f"  {each}" for each in found)
            raise ArgumentError(f"{source}{text!r} is not one of the OpenCL devices:\n{listed}")
        found = tuple(matching)
    troubles = []
    for each in ranked(found):
        verdict = verdicts.verdict_on(each)
        if not verdict.wrong:
            return each, verdict
        troubles.append(f"  {each}: {verdict.wrong}")
    what = f"the OpenCL device {wanted}" if wanted is not None else "any OpenCL device"
    raise BackendError(
        f"{what} cannot be used:\n" + "\n".join(troubles) + "\nonce that is fixed, run: weft "
        f"doctor, which tries again; {drivers.HOW_TO_GET_A_DRIVER}"
    )


def opened(candidate: Candidate, verdict: Verdict) -> Device:
    """Open a device; the process opens each device once, until it is lost."""
    key = (candidate.platform, candidate.place)
    found = _opened.get(key)
    if found is None or found.lost or found.handle != candidate.handle:
        cl = drivers.opencl()
        try:
            found = _opened[key] = Device(cl, candidate.handle, verdict)
        except cl.Error as error:
            raise explained(error, str(candidate), "opening it") from error
    return found


def ranked(found: Iterable[Candidate]) -> list[Candidate]:
    """Return devices, the best first: discrete GPUs, then other GPUs and devices, then CPUs.

    Of CPU runtimes Intel's comes first, whose launches are several times as fast, PoCL last.
    """
    kinds = drivers.opencl().device_type

    def rank(each: Candidate) -> tuple[Any, ...]:
        kind = each.handle.type
        if kind & kinds.GPU:
            return 0, bool(each.handle.host_unified_memory), -each.handle.max_compute_units
        if not kind & kinds.CPU:
            return 1, 0, 0
        return 2, {INTEL: 0, POCL: 2}.get(each.platform_name, 1), 0

    return sorted(found, key=rank)


def _matches(candidate: Candidate, wanted: str) -> bool:
    """Whether a device matches a number, a part of a name, or ``platform:device``."""
    if wanted.isdecimal():
        return candidate.number == int(wanted)
    if wanted.casefold() in candidate.device_name.casefold():
        return True
    platform, colon, device = wanted.rpartition(":")
    if not colon:
        return wanted.casefold() in candidate.platform_name.casefold()
    return _is_called(platform, candidate.platform, candidate.platform_name) and _is_called(
        device, candidate.place, candidate.device_name
    )


def _is_called(wanted: str, number: int, name: str) -> bool:
    wanted = wanted.strip()
    return number == int(wanted) if wanted.isdecimal() else wanted.casefold() in name.casefold()


def summary() -> tuple[str | None, str]:
    """Return the device that would be selected with notes on others, or None and the reason.

    Devices that did not work are probed again.
    """
    try:
        found = drivers.candidates()
        notes = [
            f"{each} is not usable: {verdict.wrong}"
            for each in found
            if (verdict := verdicts.verdict_on(each, again=True)).wrong
        ]
        chosen = described(best(None)[0].handle)
    except (ArgumentError, BackendError) as error:
        return None, error.problem
    intel = drivers.trouble_with_intel(found)
    return "; ".join([chosen, *notes, *([intel] if intel else [])]), ""


def _give_up() -> None:
    """Disable OpenCL in a process forked after its first use, where calls would block forever."""
    global _after_fork, _choosing
    _choosing = threading.RLock()
    if drivers.candidates.cache_info().currsize:
        _after_fork = _FORKED
        for device in _opened.values():
            device.lost = _FORKED


after_fork(_give_up)
