"""The arrays of a library in which a backend's results can stay on its device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.ir.dtypes import Array, DType


class DeviceArrays(ABC):
    """The arrays of a library, on one device.

    Attributes
    ----------
    kind
        Their class; they have `dtype`, `shape`, `flags` and `copy` as NumPy's have.
    """

    kind: type[Any]

    @abstractmethod
    def empty(self, shape: tuple[int, ...], dtype: DType) -> Any:
        """Return an uninitialized array; raises DeviceMemoryError if there is no memory."""

    @abstractmethod
    def is_ready(self, array: Any) -> bool:
        """Whether a contiguous array of the class is on the device as programs access it."""

    @abstractmethod
    def of(self, value: Any) -> Any | None:
        """Return a value on the device as a contiguous array; None for one that is not there.

        The memory is shared if it can be. Raises ArgumentError for one on another device.
        """

    @abstractmethod
    def from_host(self, array: Array) -> Any:
        """Return a copy of a C-contiguous array of the host."""

    @abstractmethod
    def to_host(self, array: Any) -> Array:
        """Return a copy of an array of the class in the memory of the host."""

    @abstractmethod
    def memory_of(self, array: Any) -> Any:
        """Return what tells the memory of an array from that of others; it may be too much."""

    def writable(self, arrays: list[Any], count: int) -> list[Any]:
        """Return arrays with copies of those among the first `count` that share memory."""
        owners = [self.memory_of(each) for each in arrays]
        for number in range(count):
            if owners.count(owners[number]) > 1:
                arrays[number] = arrays[number].copy()
                owners[number] = object()
        return arrays


class HostArrays(DeviceArrays):
    """The arrays of NumPy, for backends whose device is the host."""

    kind = np.ndarray

    def empty(self, shape: tuple[int, ...], dtype: DType) -> Array:
        """Return an uninitialized array."""
        return np.empty(shape, dtype)

    def is_ready(self, array: Array) -> bool:
        """Return True."""
        return True

    def of(self, value: Any) -> Array | None:
        """Return an array of NumPy as it is; None for anything else."""
        return value if type(value) is np.ndarray else None

    def from_host(self, array: Array) -> Array:
        """Return the array itself."""
        return array

    def to_host(self, array: Array) -> Array:
        """Return the array itself."""
        return array

    def memory_of(self, array: Array) -> int:
        """Return the identity of the object that has the memory."""
        return id(array if array.base is None else array.base)

    def writable(self, arrays: list[Any], count: int) -> list[Any]:
        """Return arrays with copies of those that must not be overwritten.

        These are read-only, or share memory with another array.
        """
        owners = [each if each.base is None else each.base for each in arrays]
        # An owner that is not an array, such as a memoryview, may stand for the memory of another
        # one.
        is_apart = len({*map(id, owners)}) == len(owners) and all(
            isinstance(owner, np.ndarray) and owner.base is None for owner in owners
        )
        for number in range(count):
            mine = arrays[number]
            if not mine.flags.writeable or not (is_apart or _is_alone(number, arrays)):
                arrays[number] = mine.copy()
        return arrays


HOST = HostArrays()
"""The arrays of the host."""


def _is_alone(number: int, arrays: Sequence[Array]) -> bool:
    """Whether an array shares no memory with another one."""
    others = (*arrays[:number], *arrays[number + 1 :])
    return not any(np.may_share_memory(arrays[number], each) for each in others)
