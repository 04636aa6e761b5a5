"""WorkingMemory: memory that the programs of a transformer use one after the other."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

from weft_c.runtime.device import DeviceMemory

MemoryT = TypeVar("MemoryT", bound=DeviceMemory)


class WorkspacePool(Generic[MemoryT]):
    """Stretches of memory by name, each as large as the largest that was asked for.

    Nothing is kept in them from one call to the next.

    Parameters
    ----------
    make
        Makes memory of so many bytes, and is told what for.

    Attributes
    ----------
    version
        Changes when a stretch is given back: addresses that were taken before count no more.
    """

    def __init__(self, make: Callable[[int, str], MemoryT]) -> None:
        self.version = 0
        self._make = make
        self._held: dict[Hashable, MemoryT] = {}

    def reserve(self, name: Hashable, nbytes: int, what: str) -> MemoryT:
        """Return a stretch, which is replaced if it is smaller than this.

        The smaller one is given back first, since there may be no room for both. Raises
        DeviceMemoryError if there is none for the larger one; those who ask for less get less then.
        """
        held = self._held.get(name)
        if held is None or held.nbytes < nbytes:
            self._give_back(name)
            held = self._held[name] = self._make(nbytes, what)
        return held

    def release(self) -> None:
        """Give everything back."""
        for name in list(self._held):
            self._give_back(name)

    def _give_back(self, name: Hashable) -> None:
        held: Any = self._held.pop(name, None)
        if held is not None:
            self.version += 1
            held.release()
