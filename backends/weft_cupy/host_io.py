"""Transfers between a program and the caller's arrays, by copies."""

from __future__ import annotations

from itertools import accumulate

import numpy as np

from weft.ir.graph import Graph
from weft.support.backports import override
from weft_c.runtime.host_io import HostIO
from weft_c.runtime.storage import Arrays, Bytes, bytes_of
from weft_c.runtime.workspace_pool import WorkspacePool
from weft_cupy.device import ALIGNMENT, Memory, Queue


class CuPyHostIO(HostIO):
    """Transfers by copies in one block of the workspace pool.

    The caller's memory is not pinned: CUDA stages the copies in pinned memory itself.
    """

    def __init__(self, workspace_pool: WorkspacePool[Memory], queue: Queue, graph: Graph) -> None:
        super().__init__(graph)
        self.queue = queue
        self.sizes = [op.axes.size * op.dtype.itemsize for op in self.ops]
        spaces = [-(-size // ALIGNMENT) * ALIGNMENT for size in self.sizes]
        what = "copies of the caller's arrays"
        begin = workspace_pool.reserve("copies", sum(spaces), what).address
        self.addresses: list[int] = list(accumulate(spaces, initial=begin))[:-1]
        """The address of the copy of each array: inputs, then results."""
        filled = [number for number, size in enumerate(self.sizes) if size]
        self._sources = [number for number in filled if number < self.inputs]
        self._targets = [number for number in filled if number >= self.inputs]

    @override
    def begin(self, arrays: Arrays) -> None:
        for number in self._sources:
            self.queue.upload(self.addresses[number], bytes_of(arrays[number]))

    def end(self, arrays: Arrays) -> None:
        """Copy the results to the caller's arrays, after all kernels."""
        for number in self._targets:
            self.queue.download(bytes_of(arrays[number]), self.addresses[number])

    def read(self, number: int, arrays: Arrays) -> Bytes:
        """Return the bytes of the device's copy of an array."""
        if number < self.inputs:
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
