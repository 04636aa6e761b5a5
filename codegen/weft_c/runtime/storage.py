"""Device buffers with access from the host: ranges of bytes, and NumPy arrays on them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from weft.errors import StateError
from weft.ir.description import TensorDescription
from weft.ir.dtypes import Array
from weft.runtime.device import DeviceBufferStorage, DeviceTensor, host_view
from weft.support.backports import override
from weft_c.runtime.device import DeviceMemory

Arrays = Sequence[np.ndarray[Any, Any]]
Bytes = np.ndarray[Any, Any]
MemoryT = TypeVar("MemoryT", bound=DeviceMemory)


class CopiedStorage(DeviceBufferStorage, Generic[MemoryT]):
    """A device buffer whose byte ranges the host can read and write.

    Attributes
    ----------
    memory_provider
        Returns the memory of a buffer that owns none; it may be different memory each time.
    constant
        The value of a constant's buffer.
    is_set
        Whether the buffer holds that value.
    """

    memory_provider: Callable[[], MemoryT] | None = None
    constant: np.ndarray[Any, Any] | None = None
    is_set = False
    _memory: MemoryT | None = None

    @abstractmethod
    def make_memory(self) -> MemoryT:
        """Allocate zeroed memory; raises DeviceMemoryError if there is not enough."""

    def allocate(self) -> None:
        """Allocate the memory now; raises DeviceMemoryError if there is not enough."""
        if self.memory_provider is not None:
            self.memory_provider()
        else:
            self._memory = self.make_memory()

    @property
    def memory(self) -> MemoryT:
        """The memory; raises StateError before there is some, and after it was released."""
        if self.memory_provider is not None:
            return self.memory_provider()
        if self._memory is None:
            self.require_allocated()
            raise StateError(f"the memory of {self.name} was released: make another transformer")
        return self._memory

    def release(self) -> None:
        """Release the memory."""
        if self._memory is not None:
            self._memory.release()
            self._memory = None

    @abstractmethod
    def read(self, start: int, size: int) -> Bytes:
        """Return a range of bytes, after all earlier work has ended.

        A view where the host shares the memory, else a copy.
        """

    def space(self, start: int, size: int) -> Bytes:
        """Return an array for a range of bytes that the host overwrites and then passes to `write`.

        Like `read`, but the old contents are not copied from the device.
        """
        return self.read(start, size)

    @abstractmethod
    def write(self, start: int, bytes_: Bytes) -> None:
        """Write the changed array that `read` or `space` returned back to the buffer."""

    @override
    def make_tensor(self, description: TensorDescription) -> CopiedTensor:
        return CopiedTensor(self, description)


class CopiedTensor(DeviceTensor):
    """A tensor on a buffer, copied to and from NumPy arrays."""

    storage: CopiedStorage[Any]

    def attach(self) -> None:
        """Do nothing: the memory is looked up at each access."""

    def _read(self) -> tuple[int, Bytes, np.ndarray[Any, Any]]:
        self.storage.require_allocated()
        start, size = self.description.byte_range
        bytes_ = self.storage.read(start, size)
        return start, bytes_, view(self.description, bytes_, start)

    @override
    def get(self, out: Array | None = None) -> np.ndarray[Any, Any]:
        _, _, array = self._read()
        if out is None:
            return array.copy()
        np.copyto(out, array)
        return out

    def __getitem__(self, key: Any) -> np.ndarray[Any, Any]:
        return np.array(self._read()[2][key])

    def __setitem__(self, key: Any, value: Any) -> None:
        if key is Ellipsis and self.description.is_contiguous:
            self.storage.require_allocated()
            start, size = self.description.byte_range
            bytes_ = self.storage.space(start, size)
            array = view(self.description, bytes_, start)
        else:
            start, bytes_, array = self._read()
        array[key] = value
        self.storage.write(start, bytes_)


def view(layout: TensorDescription, memory: Bytes, start: int = 0) -> np.ndarray[Any, Any]:
    """Return the tensor as a NumPy array on bytes that begin at byte `start` of its buffer."""
    if not layout.size:
        return np.empty(layout.shape, layout.dtype)
    moved = TensorDescription(layout.shape, layout.dtype, layout.strides, layout.offset - start)
    return host_view(moved, memory)


def bytes_of(array: np.ndarray[Any, Any]) -> Bytes:
    """Return the bytes of a C-contiguous array."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
