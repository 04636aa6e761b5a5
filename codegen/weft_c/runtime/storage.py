"""Buffers of devices as the host sees them: bytes that are copied, and arrays on them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from weft.errors import StateError
from weft.ir.description import TensorDescription
from weft.runtime.device import DeviceBufferStorage, DeviceTensor, host_view
from weft_c.runtime.device import DeviceMemory
from weft_c.source.functions import byte_range

Arrays = Sequence[np.ndarray[Any, Any]]
Bytes = np.ndarray[Any, Any]
MemoryT = TypeVar("MemoryT", bound=DeviceMemory)


class CopiedStorage(DeviceBufferStorage, Generic[MemoryT]):
    """A buffer of which the host sees stretches of bytes.

    Attributes
    ----------
    lender
        What gives the memory of a buffer that has none of its own; it may be another one each time.
    constant
        The array that the buffer of a constant is to hold.
    is_set
        Whether it holds that.
    """

    memory_provider: Callable[[], MemoryT] | None = None
    constant: np.ndarray[Any, Any] | None = None
    is_set = False
    _memory: MemoryT | None = None

    @abstractmethod
    def make_memory(self) -> MemoryT:
        """Return zeroed memory; raises DeviceMemoryError if there is not enough."""

    def allocate(self) -> None:
        """Take memory, so that an error comes now; raises DeviceMemoryError."""
        if self.memory_provider is not None:
            self.memory_provider()
        else:
            self._memory = self.make_memory()

    @property
    def memory(self) -> MemoryT:
        """The memory; raises StateError once the transformer has been closed."""
        if self.memory_provider is not None:
            return self.memory_provider()
        if self._memory is None:
            raise StateError(f"the memory of {self.name} was given back: make another transformer")
        return self._memory

    def release(self) -> None:
        """Give the memory back."""
        if self._memory is not None:
            self._memory.release()
            self._memory = None

    @abstractmethod
    def read(self, start: int, size: int) -> Bytes:
        """Return a stretch of the bytes, once all work before has ended.

        A copy, or they themselves where the host shares them.
        """

    def space(self, start: int, size: int) -> Bytes:
        """Return a stretch of bytes that the host overwrites as a whole, and then gives `write`.

        Those of the buffer where the host shares them; else what they hold is not copied.
        """
        return self.read(start, size)

    @abstractmethod
    def write(self, start: int, bytes_: Bytes) -> None:
        """Write what `read` or `space` returned, and was changed, back to where it was."""

    def make_tensor(self, description: TensorDescription) -> CopiedTensor:
        """Return a tensor on this buffer."""
        return CopiedTensor(self, description)


class CopiedTensor(DeviceTensor):
    """A view of a buffer, copied to and from NumPy."""

    storage: CopiedStorage[Any]

    def attach(self) -> None:
        """Do nothing: the buffer is asked for its memory whenever that is needed."""

    def _read(self) -> tuple[int, Bytes, np.ndarray[Any, Any]]:
        start, size = byte_range(self.description)
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
        if key is Ellipsis and self.description.is_contiguous:
            start, size = byte_range(self.description)
            bytes_ = self.storage.space(start, size)
            found = view(self.description, bytes_, start)
        else:
            start, bytes_, found = self._read()
        found[key] = value
        self.storage.write(start, bytes_)


def view(layout: TensorDescription, memory: Bytes, start: int = 0) -> np.ndarray[Any, Any]:
    """Return the described elements of bytes that begin at a place of the buffer."""
    if not layout.size:
        return np.empty(layout.shape, layout.dtype)
    moved = TensorDescription(layout.shape, layout.dtype, layout.strides, layout.offset - start)
    return host_view(moved, memory)


def bytes_of(array: np.ndarray[Any, Any]) -> Bytes:
    """Return the bytes of a C-contiguous array."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
