"""Arrays in the memory of an adapter, as arguments and results of programs."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.errors import ArgumentError
from weft.ir.description import row_major
from weft.ir.dtypes import Array, DType
from weft.runtime.device_arrays import DeviceArrays
from weft_c.runtime.storage import bytes_of
from weft_webgpu.device import Device, Memory


class WebGPUArray:
    """A C-contiguous array in the memory of an adapter.

    Attributes
    ----------
    device, memory
        The open adapter, and the memory, at whose beginning the array is.
    shape, dtype
        As NumPy has them.
    """

    flags = np.empty(1).flags

    def __init__(
        self, device: Device, shape: tuple[int, ...], dtype: DType, memory: Memory
    ) -> None:
        self.device, self.shape, self.dtype, self.memory = device, shape, dtype, memory

    @property
    def size(self) -> int:
        """The number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def strides(self) -> tuple[int, ...]:
        """The bytes between neighbors along each dimension."""
        return row_major(self.shape, self.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        """The bytes of its elements."""
        return self.size * int(self.dtype.itemsize)

    def get(self) -> Array:
        """Return a copy in the memory of the host, after all earlier work has ended."""
        found = self.device.download(self.memory.buffer, 0, self.nbytes)
        return found.view(self.dtype).reshape(self.shape)

    def copy(self) -> WebGPUArray:
        """Return a copy in the memory of the adapter."""
        made = self.device.memory(self.nbytes, "a copy of an array")
        encoder = self.device.handle.create_command_encoder()
        size = self.memory.buffer.size
        encoder.copy_buffer_to_buffer(self.memory.buffer, 0, made.buffer, 0, size)
        self.device.handle.queue.submit([encoder.finish()])
        return WebGPUArray(self.device, self.shape, self.dtype, made)

    def __repr__(self) -> str:
        return f"WebGPUArray({self.dtype.name} {self.shape} on {self.device.name})"


class WebGPUArrays(DeviceArrays):
    """The arrays in the memory of one adapter."""

    kind = WebGPUArray

    def __init__(self, device: Device) -> None:
        self.device = device

    def empty(self, shape: tuple[int, ...], dtype: DType) -> WebGPUArray:
        """Return an array of zeros; raises DeviceMemoryError if there is no memory."""
        nbytes = int(np.prod(shape, dtype=np.int64)) * int(dtype.itemsize)
        memory = self.device.memory(nbytes, f"an array of {dtype} {shape}")
        return WebGPUArray(self.device, tuple(shape), dtype, memory)

    def is_ready(self, array: Any) -> bool:
        """Whether an array is in the memory of this adapter."""
        return array.device is self.device

    def of(self, value: Any) -> Any | None:
        """Return an array of this class as it is; None for anything else.

        Raises ArgumentError for an array of another adapter.
        """
        if not isinstance(value, WebGPUArray):
            return None
        if value.device is not self.device:
            raise ArgumentError(f"{value!r} is not on {self.device.name}: copy it by get()")
        return value

    def from_host(self, array: Array) -> WebGPUArray:
        """Return a copy of a C-contiguous array of the host."""
        made = self.empty(array.shape, array.dtype)
        self.device.upload(made.memory.buffer, 0, bytes_of(array))
        return made

    def to_host(self, array: Any) -> Array:
        """Return a copy of an array in the memory of the host."""
        found: Array = array.get()
        return found

    def memory_of(self, array: Any) -> int:
        """Return the identity of the memory."""
        return id(array.memory)
