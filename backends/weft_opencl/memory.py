"""Buffers of the OpenCL backend: the host's memory where the device shares it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft_c.runtime.storage import Bytes, CopiedStorage, bytes_of
from weft_opencl.device import Memory

if TYPE_CHECKING:
    from weft_opencl.transformer import OpenCLTransformer


class OpenCLStorage(CopiedStorage[Memory]):
    """A buffer of the device. Sub-buffers of it are what kernels are given."""

    transformer: OpenCLTransformer

    def make_memory(self) -> Memory:
        """Return zeroed memory; raises DeviceMemoryError if there is not enough."""
        transformer = self.transformer
        shared = transformer.processor.shares_host
        memory = transformer.device.memory(self.bytes, self.name, shared)
        if memory.host is None:
            zero = np.zeros(1, np.uint8)
            transformer.enqueued(
                transformer.cl.enqueue_fill_buffer,
                memory.buffer, zero, 0, max(self.bytes, 1), doing=f"clearing {self.name}",
            )  # fmt: skip
        return memory

    def read(self, start: int, size: int) -> Bytes:
        """Return a stretch of the bytes: they themselves where the host shares them, else a copy.

        Waits for all work before.
        """
        memory = self.memory
        if memory.host is not None:
            return memory.host[start : start + size]
        bytes_ = np.empty(size, np.uint8)
        if size:
            self.transformer.enqueued(
                self.transformer.cl.enqueue_copy,
                bytes_, memory.buffer, src_offset=start, doing=f"reading {self.name}",
            )  # fmt: skip
        return bytes_

    def space(self, start: int, size: int) -> Bytes:
        """Return the bytes themselves where the host shares them, else memory of the host."""
        host = self.memory.host
        return np.empty(size, np.uint8) if host is None else host[start : start + size]

    def write(self, start: int, bytes_: Bytes) -> None:
        """Write what `read` returned, and was changed, back to where it was."""
        memory = self.memory
        if memory.host is None and bytes_.size:
            self.transformer.enqueued(
                self.transformer.cl.enqueue_copy,
                memory.buffer, bytes_, dst_offset=start, doing=f"writing {self.name}",
            )  # fmt: skip


class OpenCLConstantStorage(OpenCLStorage):
    """The memory of a constant: its own array where the device shares the host's memory."""

    def make_memory(self) -> Memory:
        """Use the constant's array, or make memory that it is copied to later."""
        transformer = self.transformer
        self.is_set = transformer.processor.shares_host
        if not self.is_set or not self.bytes:
            return super().make_memory()
        assert self.constant is not None
        return transformer.device.memory_of(bytes_of(self.constant), self.name, is_read_only=True)
