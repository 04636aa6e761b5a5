"""Transfers between a program and the caller's arrays, by copies."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np

from weft.runtime.program import Program
from weft.support.backports import override
from weft_c.runtime.host_io import HostIO
from weft_c.runtime.storage import Arrays, Bytes, bytes_of
from weft_c.runtime.workspace_pool import WorkspacePool
from weft_cupy.device import ALIGNMENT, Memory, Queue


class CuPyHostIO(HostIO):
    """Transfers by copies in one block of the workspace pool.

    Arrays of CuPy are copied too, on the device: so the addresses in CUDA graphs stay the same.
    The caller's memory is not pinned: CUDA stages the copies in pinned memory itself.
    """

    def __init__(
        self, workspace_pool: WorkspacePool[Memory], queue: Queue, program: Program
    ) -> None:
        super().__init__(program)
        self.queue = queue
        self.sizes = [op.nbytes for op in self.ops]
        spaces = [
            0 if number in self.taken else -(-size // ALIGNMENT) * ALIGNMENT
            for number, size in enumerate(self.sizes)
        ]
        what = "copies of the caller's arrays"
        begin = workspace_pool.reserve("copies", sum(spaces), what).address
        self.addresses: list[int] = list(accumulate(spaces, initial=begin))[:-1]
        """The address of the copy of each array: inputs, then results."""
        for number, taken in self.taken.items():
            self.addresses[number] = self.addresses[taken]
        filled = [number for number, size in enumerate(self.sizes) if size]
        self._sources = [number for number in filled if number < self.inputs]
        self._targets = [number for number in filled if number >= self.inputs]

    @override
    def begin(self, arrays: Arrays) -> None:
        for number in self._sources:
            array = arrays[number]
            if isinstance(array, np.ndarray):
                self.queue.upload(self.addresses[number], bytes_of(array))
            else:
                self.queue.copy(self.addresses[number], _address(array), self.sizes[number])

    def end(self, arrays: Arrays) -> None:
        """Copy the results to the caller's arrays, after all kernels."""
        for number in self._targets:
            array = arrays[number]
            if isinstance(array, np.ndarray):
                self.queue.download(bytes_of(array), self.addresses[number])
            else:
                self.queue.copy(_address(array), self.addresses[number], self.sizes[number])

    def read(self, number: int, arrays: Arrays) -> Bytes:
        """Return the bytes of the device's copy of an array."""
        if number < self.inputs and isinstance(arrays[number], np.ndarray):
            return bytes_of(arrays[number])
        found = np.empty(self.sizes[number], np.uint8)
        if found.size:
            self.queue.download(found, self.addresses[number])
            self.queue.wait()
        return found

    def write(self, number: int, start: int, bytes_: Bytes) -> None:
        """Write bytes to the device's copy from byte `start` on."""
        if bytes_.size:
            self.queue.upload(self.addresses[number] + start, bytes_)
            self.queue.wait()


def _address(array: Any) -> int:
    """Return the address of an array of CuPy."""
    return int(array.data.ptr)
