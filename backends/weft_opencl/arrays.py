"""Arrays of PyOpenCL as arguments and results of programs."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.errors import ArgumentError
from weft.ir.dtypes import Array, DType
from weft.runtime.device_arrays import DeviceArrays
from weft_c.runtime.storage import bytes_of
from weft_opencl.device import Device


class OpenCLArrays(DeviceArrays):
    """The arrays of PyOpenCL in the context of a device, made in a queue."""

    def __init__(self, device: Device, queue: Any) -> None:
        from pyopencl.array import Array as PyOpenCLArray  # in no program that keeps no results

        self.device, self.queue, self.cl = device, queue, device.cl
        self.kind = PyOpenCLArray

    def empty(self, shape: tuple[int, ...], dtype: DType) -> Any:
        """Return an uninitialized array; raises DeviceMemoryError if there is no memory."""
        try:
            return self.kind(self.queue, shape, dtype)
        except self.cl.Error as error:
            raise self.device.failed(error, f"making an array of {dtype} {shape}") from error

    def is_ready(self, array: Any) -> bool:
        """Whether an array begins with its buffer, in the context of the device."""
        return bool(array.offset == 0 and array.context == self.device.context)

    def of(self, value: Any) -> Any | None:
        """Return an array of PyOpenCL as one that is contiguous; None for anything else.

        Raises ArgumentError for an array in another context.
        """
        if not isinstance(value, self.kind):
            return None
        if value.context != self.device.context:
            raise ArgumentError(
                f"an array of PyOpenCL is in another context than {self.device.name}: make it in "
                "the queue of the transformer, f.transformer.queue"
            )
        if value.flags.c_contiguous and not value.offset:
            return value
        return self.from_host(self.to_host(value))

    def from_host(self, array: Array) -> Any:
        """Return a copy of a C-contiguous array of the host."""
        made = self.empty(array.shape, array.dtype)
        if array.size:
            self._copy(made.base_data, bytes_of(array), "copying an array to the device")
        return made

    def to_host(self, array: Any) -> Array:
        """Return a copy of an array in the memory of the host."""
        if not array.size:
            return np.empty(array.shape, array.dtype)
        array.finish()
        held = np.empty(array.base_data.size, np.uint8)
        self._copy(held, array.base_data, "copying an array from the device")
        return np.ndarray(array.shape, array.dtype, held, array.offset, array.strides).copy()

    def memory_of(self, array: Any) -> Any:
        """Return the address of the buffer."""
        return array.base_data.int_ptr if array.size else id(array)

    def _copy(self, target: Any, source: Any, doing: str) -> None:
        try:
            self.cl.enqueue_copy(self.queue, target, source)
        except self.cl.Error as error:
            raise self.device.failed(error, doing) from error
