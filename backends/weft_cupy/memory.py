"""Buffers of the CuPy backend."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft_c.runtime.storage import Bytes, CopiedStorage
from weft_cupy.device import Memory

if TYPE_CHECKING:
    from weft_cupy.transformer import CuPyTransformer


class CuPyStorage(CopiedStorage[Memory]):
    """A device buffer."""

    transformer: CuPyTransformer

    def make_memory(self) -> Memory:
        """Allocate zeroed memory; raises DeviceMemoryError if there is not enough."""
        transformer = self.transformer
        memory = transformer.device.memory(self.bytes, self.name)
        with transformer.device.current(f"clearing {self.name}"):
            transformer.queue.clear(memory.address, max(self.bytes, 1))
        return memory

    def read(self, start: int, size: int) -> Bytes:
        """Return a copy of a range of bytes, after all earlier work has ended."""
        address, queue = self.memory.address + start, self.transformer.queue
        found = np.empty(size, np.uint8)
        if size:
            with self.transformer.device.current(f"reading {self.name}"):
                queue.download(found, address)
                queue.wait()
        return found

    def space(self, start: int, size: int) -> Bytes:
        """Return an uninitialized array of the host."""
        return np.empty(size, np.uint8)

    def write(self, start: int, bytes_: Bytes) -> None:
        """Write bytes from byte `start` on."""
        address, queue = self.memory.address + start, self.transformer.queue
        if bytes_.size:
            with self.transformer.device.current(f"writing {self.name}"):
                queue.upload(address, bytes_)
                queue.wait()
