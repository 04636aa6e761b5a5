"""Machine: the properties of a device that decide how work is divided on it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The properties of a device that decide how work is divided on it.

    Attributes
    ----------
    is_serial
        Whether a work item processes a contiguous range of elements in vectors, as on a CPU; else
        neighboring work items access neighboring elements.
    units
        The number of compute units: cores, or multiprocessors.
    group
        The work items of a work group, on devices that are not serial.
    local_bytes
        The local (shared) memory of a work group, in bytes.
    has_int64_atomics
        Whether the device exchanges 64-bit integers atomically.
    """

    is_serial: bool
    units: int
    group: int = 256
    local_bytes: int = 32768
    has_int64_atomics: bool = True
