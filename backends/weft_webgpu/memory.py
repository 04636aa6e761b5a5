"""Buffers of the WebGPU backend, which the host reads and writes by copies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft_c.runtime.storage import Bytes, CopiedStorage
from weft_webgpu.device import Memory

if TYPE_CHECKING:
    from weft_webgpu.transformer import WebGPUTransformer


class WebGPUStorage(CopiedStorage[Memory]):
    """A storage buffer."""

    transformer: WebGPUTransformer

    def make_memory(self) -> Memory:
        """Allocate zeroed memory; raises DeviceMemoryError if there is not enough."""
        return self.transformer.device.memory(self.bytes, self.name)

    def read(self, start: int, size: int) -> Bytes:
        """Return a copy of a range of bytes, after all earlier work has ended."""
        device, buffer = self.transformer.device, self.memory.buffer
        try:
            return device.download(buffer, start, size)
        except device.errors as error:
            raise device.failed(error, f"reading {self.name}") from error

    def space(self, start: int, size: int) -> Bytes:
        """Return an uninitialized array."""
        return np.empty(size, np.uint8)

    def write(self, start: int, bytes_: Bytes) -> None:
        """Copy bytes to the buffer."""
        device, buffer = self.transformer.device, self.memory.buffer
        try:
            device.upload(buffer, start, bytes_)
        except device.errors as error:
            raise device.failed(error, f"writing {self.name}") from error
