"""Buffers of the OpenCL backend, in host memory where the device shares it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft_c.runtime.storage import Bytes, CopiedStorage, bytes_of
from weft_opencl.device import Memory

if TYPE_CHECKING:
    from weft_opencl.transformer import OpenCLTransformer


class OpenCLStorage(CopiedStorage[Memory]):
    """A device buffer; kernels access sub-buffers of it."""

    transformer: OpenCLTransformer

    def make_memory(self) -> Memory:
        """Allocate zeroed memory; raises DeviceMemoryError if there is not enough."""
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
        """Return a range of bytes: a view where the host shares the memory, else a copy.

        Waits for all earlier work.
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
        """Return a view where the host shares the memory, else an uninitialized array."""
        host = self.memory.host
        return np.empty(size, np.uint8) if host is None else host[start : start + size]

    def write(self, start: int, bytes_: Bytes) -> None:
        """Write the changed array that `read` or `space` returned back to the buffer."""
        memory = self.memory
        if memory.host is None and bytes_.size:
            self.transformer.enqueued(
                self.transformer.cl.enqueue_copy,
                memory.buffer, bytes_, dst_offset=start, doing=f"writing {self.name}",
            )  # fmt: skip


class OpenCLConstantStorage(OpenCLStorage):
    """The buffer of a constant: its own array where the device shares the host's memory."""

    def make_memory(self) -> Memory:
        """Use the constant's array, or allocate memory that it is copied to later."""
        transformer = self.transformer
        self.is_set = transformer.processor.shares_host
        if not self.is_set or not self.bytes:
            return super().make_memory()
        assert self.constant is not None
        return transformer.device.memory_of(bytes_of(self.constant), self.name, is_read_only=True)
