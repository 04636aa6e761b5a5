"""Buffers and tensors of the OpenCL backend: the host's memory where the device shares it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft.description import TensorDescription
from weft.device import DeviceBufferStorage, DeviceTensor, host_view
from weft.errors import StateError
from weft.kernels.c.function import region
from weft_opencl.device import Bytes, Memory

if TYPE_CHECKING:
    from weft.op import Op
    from weft_opencl.transformer import OpenCLTransformer


class OpenCLStorage(DeviceBufferStorage):
    """A buffer of the device. Sub-buffers of it are what kernels are given."""

    transformer: OpenCLTransformer
    _memory: Memory | None = None

    def allocate(self) -> None:
        """Make zeroed memory; raises DeviceMemoryError if there is not enough."""
        transformer = self.transformer
        shared = transformer.processor.shares_host
        self._memory = memory = transformer.device.memory(self.bytes, self.name, shared)
        if memory.host is None:
            zero = np.zeros(1, np.uint8)
            transformer.enqueued(
                transformer.cl.enqueue_fill_buffer,
                memory.buffer, zero, 0, max(self.bytes, 1), doing=f"clearing {self.name}",
            )  # fmt: skip

    @property
    def memory(self) -> Memory:
        """The memory; raises StateError once the transformer has been closed."""
        if self._memory is None:
            raise StateError(f"the memory of {self.name} was given back: make another transformer")
        return self._memory

    def release(self) -> None:
        """Give the memory back."""
        if self._memory is not None:
            self._memory.release()
            self._memory = None

    def make_tensor(self, description: TensorDescription) -> OpenCLTensor:
        """Return a tensor on this buffer."""
        return OpenCLTensor(self, description)

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

    def __init__(self, transformer: OpenCLTransformer, op: Op) -> None:
        super().__init__(transformer, op.const.nbytes, f"constant {op.name}")
        self.value = op.const

    def allocate(self) -> None:
        """Use the constant's array, or make memory that it is copied to later."""
        transformer = self.transformer
        if not transformer.processor.shares_host or not self.bytes:
            super().allocate()
            return
        host = bytes_of(self.value)
        self._memory = transformer.device.memory_of(host, self.name, is_read_only=True)


class OpenCLTensor(DeviceTensor):
    """A view of a buffer, copied to and from NumPy."""

    storage: OpenCLStorage

    def attach(self) -> None:
        """Do nothing: the buffer is asked for its memory whenever that is needed."""

    def _read(self) -> tuple[int, Bytes, np.ndarray[Any, Any]]:
        start, size = region(self.description)
        bytes_ = self.storage.read(start, size)
        return start, bytes_, view(self.description, bytes_, start)

    def get(self, out: Any = None) -> np.ndarray[Any, Any]:
        """Copy the elements into `out`, or into a new array, and return it."""
        _, _, found = self._read()
        if out is None:
            return found.copy()
        np.copyto(out, found)
        return out  # type: ignore[no-any-return]

    def __getitem__(self, key: Any) -> np.ndarray[Any, Any]:
        return np.array(self._read()[2][key])

    def __setitem__(self, key: Any, value: Any) -> None:
        start, bytes_, found = self._read()
        found[key] = value
        self.storage.write(start, bytes_)


def view(lies: TensorDescription, memory: Bytes, start: int = 0) -> np.ndarray[Any, Any]:
    """Return the described elements of bytes that begin at a place of the buffer."""
    if not lies.size:
        return np.empty(lies.shape, lies.dtype)
    moved = TensorDescription(lies.shape, lies.dtype, lies.strides, lies.offset - start)
    return host_view(moved, memory)


def bytes_of(array: np.ndarray[Any, Any]) -> Bytes:
    """Return the bytes of a C-contiguous array."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
