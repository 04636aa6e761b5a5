"""Device buffers, and the tensors that are views of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.errors import ArgumentError, StateError
from weft.ir.description import TensorDescription
from weft.ir.dtypes import Array
from weft.ops.arguments import checked_integer

if TYPE_CHECKING:
    from weft.ir.op import Op
    from weft.runtime.state_store import StateStore


class DeviceBufferStorage(ABC):
    """A stretch of device memory that one or more tensors view.

    Creating one allocates nothing: it is added to the transformer's ``device_buffers``. With the
    next program, or at `Transformer.initialize`, its allocation is transformed into something
    callable, which `Transformer.allocate_storage` runs. Raises StateError if the transformer has
    been closed.

    Attributes
    ----------
    transformer
        The transformer that it belongs to.
    bytes
        Its size, a whole number of at least 0; raises ArgumentError for anything else.
    name
        What it is for, in listings.
    initial
        The constant that the memory of a state is to hold at first; None for zeros, or for what a
        program computes. `Transformer.set_initial` sees to it, after the allocation.
    """

    initial: Op | None = None

    def __init__(self, transformer: StateStore, nbytes: int, name: str) -> None:
        transformer.require_open()
        self.transformer = transformer
        self.bytes = checked_integer(f"the buffer {name}", "its size in bytes", nbytes, low=0)
        self.name = name
        self._tensors: dict[TensorDescription, DeviceTensor] = {}
        self.allocated = False
        transformer.device_buffers.add(self)
        transformer.unallocated.add(self)

    def device_tensor(self, description: TensorDescription) -> DeviceTensor:
        """Return a tensor on this buffer; it can be used once the buffer is allocated.

        Raises ArgumentError for what is no `TensorDescription` or does not fit into the buffer, and
        StateError if the transformer has been closed.
        """
        try:
            tensor = self._tensors.get(description)
        except TypeError as error:
            raise self._not_a_description(description) from error
        if tensor is None:
            self.transformer.require_open()
            self._require_fitting(description)
            tensor = self._tensors.setdefault(description, self.make_tensor(description))
            if self.allocated:
                tensor.attach()
        return tensor

    def _require_fitting(self, description: Any) -> None:
        try:
            has_objects = description.dtype.hasobject
            lengths = list(map(index, description.shape))
            first, size = map(index, description.byte_range)
        except (AttributeError, TypeError, ValueError) as error:
            raise self._not_a_description(description) from error
        if has_objects or min(lengths, default=0) < 0:
            raise self._not_a_description(description)
        if first < 0 or first + size > self.bytes:
            raise ArgumentError(
                f"the buffer {self.name} has {self.bytes} bytes, but a tensor needs the bytes from "
                f"{first} to {first + size}: make a larger buffer, or a smaller tensor than "
                f"{description}"
            )

    def _not_a_description(self, given: Any) -> ArgumentError:
        return ArgumentError(
            f"a tensor on the buffer {self.name} takes a TensorDescription of numbers, such as "
            f"weft.ir.description.contiguous((2, 3), np.dtype('float32')), not {given!r}"
        )

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
        self.transformer.require_open()
        self.allocate()
        self.allocated = True
        self.transformer.unallocated.discard(self)
        for tensor in self.views:
            tensor.attach()

    def detach(self) -> None:
        """Let the tensors go of the memory, as the transformer has been closed."""
        self.allocated = False
        for tensor in self.views:
            tensor.detach()

    def require_allocated(self) -> None:
        """Raise StateError if there is no memory yet, or the transformer has been closed."""
        if not self.allocated:
            self.transformer.require_open()
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

    def detach(self) -> None:  # noqa: B027
        """Take note that the buffer has no memory any more, and hold none.

        From now on an access raises what `DeviceBufferStorage.require_allocated` does.
        """

    @abstractmethod
    def get(self, out: Array | None = None) -> np.ndarray[Any, Any]:
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
