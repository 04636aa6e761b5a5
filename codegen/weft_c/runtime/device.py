"""OpenDevice and DeviceMemory: a device programmed in C, and its memory accounting."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from weft.errors import ArgumentError, BackendError
from weft.settings import Setting
from weft_c.processor import Processor
from weft_c.runtime.errors import DeviceMemoryError

Program = TypeVar("Program")

MAX_BYTES = sys.maxsize // 2
"""The largest size in bytes that is passed to a driver: larger ones overflow in some."""


def requested_device(
    wanted: int | str | None, setting: Setting[str]
) -> tuple[int | str | None, str]:
    """Return the requested device, from the option ``device=`` or an environment variable.

    Returns the request, None for none, and its origin for messages. Raises ArgumentError for an
    option that is neither a number nor text.
    """
    if wanted is not None and (isinstance(wanted, bool) or not isinstance(wanted, int | str)):
        raise ArgumentError(f"device= is a number or a name, not {wanted!r}")
    if wanted is None or wanted == "":
        return setting.value or None, f"{setting.name}="
    return wanted, "device="


class OpenDevice(ABC):
    """An open device: its properties, and the memory allocated on it.

    Attributes
    ----------
    name
        The name shown in messages.
    errors
        The exceptions that its driver's Python package raises.
    lost
        Why the device cannot be used any more; empty if it can.
    """

    def __init__(self, name: str, errors: tuple[type[Exception], ...]) -> None:
        self.name = name
        self.errors = errors
        self.lost = ""
        self._live: dict[int, int] = {}
        self._programs: WeakValueDictionary[str, Any] = WeakValueDictionary()

    @property
    @abstractmethod
    def processor(self) -> Processor:
        """The properties that kernels are generated for."""

    @abstractmethod
    def failed(self, error: Exception, doing: str) -> BackendError:
        """Translate one of `errors`; `doing` says what failed, for the message."""

    def shared_program(self, source: str, build: Callable[[], Program]) -> Program:
        """Return the built program of a source, which is shared as long as somebody holds it.

        Threads that ask at the same time may build it twice.
        """
        found: Program | None = self._programs.get(source)
        if found is None:
            found = self._programs[source] = build()
        return found

    def require_possible(self, nbytes: int, what: str) -> None:
        """Raise DeviceMemoryError for a size above `MAX_BYTES`."""
        if nbytes > MAX_BYTES:
            raise DeviceMemoryError(
                f"{self.name} cannot hold {nbytes} bytes for {what}: no device can; use smaller "
                "arrays"
            )

    @property
    def live_bytes(self) -> int:
        """The bytes allocated and not released."""
        return sum(list(self._live.values()))

    def count(self, memory: DeviceMemory, nbytes: int) -> None:
        """Record the bytes that a memory object holds now."""
        if nbytes:
            self._live[id(memory)] = nbytes
        else:
            self._live.pop(id(memory), None)


class DeviceMemory:
    """Device memory, counted in the device's live bytes until it is released.

    Attributes
    ----------
    nbytes
        The size.
    """

    def __init__(self, device: OpenDevice, nbytes: int) -> None:
        self.device = device
        self.nbytes = nbytes
        device.count(self, nbytes)

    def release(self) -> None:
        """Release the memory; further calls do nothing."""
        self.device.count(self, 0)

    def __del__(self) -> None:
        self.release()
