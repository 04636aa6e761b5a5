"""WorkspacePool: memory that the programs of a transformer use in turn."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

from weft_c.runtime.device import DeviceMemory

MemoryT = TypeVar("MemoryT", bound=DeviceMemory)


class WorkspacePool(Generic[MemoryT]):
    """Named blocks of memory, each as large as the largest request for it.

    Their contents are not preserved between calls.

    Parameters
    ----------
    make
        Allocates a number of bytes; the second argument is the purpose, for messages.

    Attributes
    ----------
    version
        Changes when a block is released, which invalidates addresses taken before.
    on_release
        Called when a block is released; None for nothing to do.
    """

    on_release: Callable[[], None] | None = None

    def __init__(self, make: Callable[[int, str], MemoryT]) -> None:
        self.version = 0
        self._make = make
        self._held: dict[Hashable, MemoryT] = {}

    def reserve(self, name: Hashable, nbytes: int, what: str) -> MemoryT:
        """Return the block `name`, reallocated if it is smaller than `nbytes`.

        The smaller block is released first, since both may not fit. Raises DeviceMemoryError if the
        larger one does not fit either; the next request then allocates anew.
        """
        held = self._held.get(name)
        if held is None or held.nbytes < nbytes:
            self._give_back(name)
            held = self._held[name] = self._make(nbytes, what)
        return held

    def release(self) -> None:
        """Release all blocks."""
        for name in list(self._held):
            self._give_back(name)

    def _give_back(self, name: Hashable) -> None:
        held: Any = self._held.pop(name, None)
        if held is not None:
            self.version += 1
            if self.on_release is not None:
                self.on_release()
            held.release()
