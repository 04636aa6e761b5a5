"""Arrays of CuPy as arguments and results of programs."""

from __future__ import annotations

from typing import Any

from weft.errors import ArgumentError
from weft.ir.dtypes import Array, DType
from weft.runtime.device_arrays import DeviceArrays
from weft_cupy.device import Device

ON_CUDA = (2, 13)
"""The device types of DLPack whose memory kernels of CUDA can access: of CUDA, and managed."""


class CuPyArrays(DeviceArrays):
    """The arrays of CuPy on a GPU."""

    def __init__(self, device: Device) -> None:
        self.device, self.cupy = device, device.cupy
        self.kind = device.cupy.ndarray
        self._number = device.candidate.number

    def empty(self, shape: tuple[int, ...], dtype: DType) -> Any:
        """Return an uninitialized array; raises DeviceMemoryError if there is no memory."""
        with self.device.current(f"making an array of {dtype} {shape}"):
            return self.cupy.empty(shape, dtype)

    def is_ready(self, array: Any) -> bool:
        """Whether an array is on the GPU."""
        return int(array.device.id) == self._number

    def of(self, value: Any) -> Any | None:
        """Return an array on a GPU, of CuPy or by DLPack, as one that is contiguous.

        None for anything else; raises ArgumentError for an array on another GPU.
        """
        if not isinstance(value, self.kind):
            where = getattr(value, "__dlpack_device__", None)
            if where is None or where()[0] not in ON_CUDA:
                return None
            value = self.cupy.from_dlpack(value)
        if not self.is_ready(value):
            raise ArgumentError(
                f"an array is on GPU {value.device.id}, not on GPU {self._number}, "
                f"{self.device.name}: copy it, as in with cupy.cuda.Device({self._number}): ..."
            )
        if value.flags.c_contiguous:
            return value
        with self.device.current("copying an array"):
            return self.cupy.ascontiguousarray(value)

    def from_host(self, array: Array) -> Any:
        """Return a copy of an array of the host."""
        with self.device.current("copying an array to the device"):
            return self.cupy.asarray(array)

    def to_host(self, array: Any) -> Array:
        """Return a copy of an array in the memory of the host."""
        with self.device.current("copying an array from the device"):
            return self.cupy.asnumpy(array, order="C")  # type: ignore[no-any-return]

    def memory_of(self, array: Any) -> Any:
        """Return the address of the allocation that an array is a part of."""
        return array.data.mem.ptr if array.size else id(array)
