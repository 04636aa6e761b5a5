"""Device buffers, and the tensors that are views of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.errors import StateError
from weft.ir.description import TensorDescription

if TYPE_CHECKING:
    from weft.ir.op import Op
    from weft.runtime.transformer import Transformer


class DeviceBufferStorage(ABC):
    """A stretch of device memory that one or more tensors view.

    Creating one allocates nothing: it is added to the transformer's ``device_buffers``. With the
    next program, or at `Transformer.initialize`, its allocation is transformed into something
    callable, which `Transformer.allocate_storage` runs.

    Attributes
    ----------
    transformer
        The transformer that it belongs to.
    bytes
        Its size.
    name
        What it is for, in listings.
    initial
        The constant that the memory of a state is to hold at first; None for zeros, or for what a
        program computes. `Transformer.set_initial` sees to it, after the allocation.
    """

    initial: Op | None = None

    def __init__(self, transformer: Transformer, nbytes: int, name: str) -> None:
        self.transformer = transformer
        self.bytes = nbytes
        self.name = name
        self._tensors: dict[TensorDescription, DeviceTensor] = {}
        self.allocated = False
        transformer.device_buffers.add(self)
        transformer.unallocated.add(self)

    def device_tensor(self, description: TensorDescription) -> DeviceTensor:
        """Return a tensor on this buffer; it can be used once the buffer is allocated."""
        tensor = self._tensors.get(description)
        if tensor is None:
            tensor = self._tensors.setdefault(description, self.make_tensor(description))
            if self.allocated:
                tensor.attach()
        return tensor

    @property
    def views(self) -> list[DeviceTensor]:
        """The tensors made on the buffer, one for each description."""
        return list(self._tensors.values())

    def transform_allocate(self) -> None:
        """Hand the allocation over as a callable, to be run by `Transformer.allocate_storage`."""
        self.transformer.allocations.append(self.allocate_with_views)

    def allocate_with_views(self) -> None:
        """Allocate the memory, zeroed, and attach the views to it; do nothing if there is some."""
        if self.allocated:
            return
        self.allocate()
        self.allocated = True
        self.transformer.unallocated.discard(self)
        for tensor in self.views:
            tensor.attach()

    def require_allocated(self) -> None:
        """Raise StateError if there is no memory yet."""
        if not self.allocated:
            raise StateError(
                f"the buffer {self.name} has no memory yet: transformer.initialize() allocates it"
            )

    @abstractmethod
    def allocate(self) -> None:
        """Make the memory, filled with zeros."""

    @abstractmethod
    def make_tensor(self, description: TensorDescription) -> DeviceTensor:
        """Return a tensor of the backend's kind."""

    def __repr__(self) -> str:
        state = "allocated" if self.allocated else "not allocated"
        return f"<{type(self).__name__} {self.name}: {self.bytes} bytes, {state}>"


class DeviceTensor(ABC):
    """A view of a device buffer: offset, shape, strides and dtype; copies to and from NumPy.

    Attributes
    ----------
    storage
        The buffer.
    description
        Where the elements lie in it.
    """

    def __init__(self, storage: DeviceBufferStorage, description: TensorDescription) -> None:
        self.storage = storage
        self.description = description

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape."""
        return self.description.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """The strides in bytes."""
        return self.description.strides

    @property
    def offset(self) -> int:
        """The place of the first element in the buffer, in bytes."""
        return self.description.offset

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype."""
        return self.description.dtype

    @abstractmethod
    def attach(self) -> None:
        """Take note that the buffer has memory now."""

    @abstractmethod
    def get(self, out: Any = None) -> np.ndarray[Any, Any]:
        """Copy the elements into `out`, or into a new array, and return it."""

    @abstractmethod
    def __getitem__(self, key: Any) -> np.ndarray[Any, Any]:
        """Return a copy of a slice as an array."""

    @abstractmethod
    def __setitem__(self, key: Any, value: Any) -> None:
        """Copy values into a slice."""


def host_view(description: TensorDescription, memory: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the described elements of host memory, a contiguous array, without copying."""
    return np.ndarray(
        description.shape,
        description.dtype,
        memory.view(np.uint8) if memory.dtype.kind == "V" else memory,
        description.offset,
        description.strides,
    )
