"""A device that is programmed in C: how it is named, what it is once opened, and its memory."""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod

from weft.errors import ArgumentError, BackendError
from weft_c.processor import Processor
from weft_c.runtime.errors import DeviceMemoryError

MAX_BYTES = sys.maxsize // 2
"""Bytes: more than that overflows somewhere between here and a driver."""


def requested_device(wanted: int | str | None, variable: str) -> tuple[int | str | None, str]:
    """Return what names the device, the option ``device=`` or else a variable, and which does.

    None is for no name. Raises ArgumentError for an option that is neither a number nor text.
    """
    if wanted is not None and (isinstance(wanted, bool) or not isinstance(wanted, int | str)):
        raise ArgumentError(f"device= is a number or a name, not {wanted!r}")
    if wanted is None or wanted == "":
        return os.environ.get(variable, "").strip() or None, f"{variable}="
    return wanted, "device="


class OpenDevice(ABC):
    """A device, opened: the facts that matter, and what of its memory is in use.

    Attributes
    ----------
    name
        What messages call it.
    errors
        What its driver's Python package raises when something fails.
    lost
        Why the device cannot be used any more; nothing if it can.
    """

    def __init__(self, name: str, errors: tuple[type[Exception], ...]) -> None:
        self.name = name
        self.errors = errors
        self.lost = ""
        self._live: dict[int, int] = {}

    @property
    @abstractmethod
    def processor(self) -> Processor:
        """The device as kernels see it."""

    @abstractmethod
    def failed(self, error: Exception, doing: str) -> BackendError:
        """Return the error to raise for one of `errors` that came up while doing something."""

    def require_possible(self, nbytes: int, what: str) -> None:
        """Raise DeviceMemoryError for a size that no driver takes, let alone has."""
        if nbytes > MAX_BYTES:
            raise DeviceMemoryError(
                f"{self.name} cannot hold {nbytes} bytes for {what}: no device can; use smaller "
                "arrays"
            )

    @property
    def live_bytes(self) -> int:
        """The bytes of the memory that has not been released."""
        return sum(list(self._live.values()))

    def count(self, memory: DeviceMemory, nbytes: int) -> None:
        """Take note of how many bytes something holds now."""
        if nbytes:
            self._live[id(memory)] = nbytes
        else:
            self._live.pop(id(memory), None)


class DeviceMemory:
    """Memory of a device, counted among its live bytes until it is released.

    Attributes
    ----------
    nbytes
        How much it is.
    """

    def __init__(self, device: OpenDevice, nbytes: int) -> None:
        self.device = device
        self.nbytes = nbytes
        device.count(self, nbytes)

    def release(self) -> None:
        """Give the memory back; a second time does nothing."""
        self.device.count(self, 0)

    def __del__(self) -> None:
        self.release()
