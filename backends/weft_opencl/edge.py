"""The edge between a program and the caller's arrays: used in place, or copied in and out."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.kernels.c.edge import Edge
from weft.kernels.c.host import Arrays, Bytes, bytes_of
from weft_opencl.device import Memory

if TYPE_CHECKING:
    from weft_opencl.executor import OpenCLKernelGroup


class OpenCLEdge(Edge):
    """What kernels are given for the arrays of a call, bound to their arguments."""

    def __init__(self, group: OpenCLKernelGroup) -> None:
        super().__init__(group.program.captured)
        self.group = group

    @abstractmethod
    def bind(self, kernel: Any, index: int, number: int, start: int, size: int) -> None:
        """Let an argument of a kernel be a stretch of an array."""


class SharedEdge(OpenCLEdge):
    """Kernels work on the caller's memory: a call makes buffers of it and sets arguments."""

    def __init__(self, group: OpenCLKernelGroup) -> None:
        super().__init__(group)
        self._nothing = group.device.memory(1, "arrays without elements", shared=True)
        flags = group.cl.mem_flags
        self._buffers = [
            self._maker(op, flags.READ_ONLY if number < self.inputs else flags.READ_WRITE)
            for number, op in enumerate(self.ops)
        ]
        self._regions: list[tuple[int, int, int]] = []
        self._args: list[tuple[Callable[[int, Any], None], int, int]] = []

    def _maker(self, op: Any, flags: Any) -> Callable[[np.ndarray[Any, Any]], Any]:
        """Return what makes a buffer of an array of the caller."""
        group = self.group
        if not op.axes.size:
            return lambda array: self._nothing.buffer
        flags |= group.cl.mem_flags.USE_HOST_PTR
        make = partial(group.cl.Buffer, group.device.context, flags, 0)
        if op.dtype.name != "bfloat16":
            return make
        return lambda array: make(array.view(np.uint16))  # NumPy does not export the memory of it

    def bind(self, kernel: Any, index: int, number: int, start: int, size: int) -> None:
        """Set the argument in each call; a stretch that begins later needs a buffer of its own."""
        if start:
            wanted = (number, start, size)
            if wanted not in self._regions:
                self._regions.append(wanted)
            number = len(self.ops) + self._regions.index(wanted)
        self._args.append((kernel.set_arg, index, number))

    def begin(self, arrays: Arrays) -> Any:
        """Make buffers of the arrays and set the arguments that they are."""
        buffers = [make(array) for make, array in zip(self._buffers, arrays, strict=True)]
        for number, start, size in self._regions:
            buffers.append(buffers[number].get_sub_region(start, size))
        for set_arg, index, number in self._args:
            set_arg(index, buffers[number])
        return buffers

    def end(self, arrays: Arrays) -> None:
        """Do nothing: results are in place."""

    def read(self, number: int, arrays: Arrays) -> Bytes:
        """Return the bytes of the array itself."""
        return bytes_of(arrays[number])

    def write(self, number: int, start: int, bytes_: Bytes) -> None:
        """Do nothing: what was written is in place."""

    def release(self) -> None:
        """Give memory back."""
        self._args = []
        self._nothing.release()


class CopiedEdge(OpenCLEdge):
    """Kernels work on copies in memory of the device that all programs use.

    Each copy has a buffer of its own, as devices limit the size of one: the largest the first, so
    that buffers fit the copies of other programs too.
    """

    def __init__(self, group: OpenCLKernelGroup) -> None:
        super().__init__(group)
        self._sizes = [op.axes.size * op.dtype.itemsize for op in self.ops]
        self._copies: dict[int, Memory] = {}
        by_size = sorted(range(len(self.ops)), key=lambda number: -self._sizes[number])
        for place, number in enumerate(by_size):
            what = f"a copy of {self.ops[number]}"
            found = group.working.at_least(("copy", place), self._sizes[number], what)
            self._copies[number] = found
        self._filled = [number for number, size in enumerate(self._sizes) if size]

    def bind(self, kernel: Any, index: int, number: int, start: int, size: int) -> None:
        """Set the argument for good."""
        kernel.set_arg(index, self._copies[number].part(start, size))

    def begin(self, arrays: Arrays) -> Any:
        """Copy the inputs to the device."""
        copy, queue = self.group.cl.enqueue_copy, self.group.queue
        sources = [(n, bytes_of(arrays[n])) for n in self._filled if n < self.inputs]
        for number, source in sources:
            copy(queue, self._copies[number].buffer, source, is_blocking=False)
        return sources

    def end(self, arrays: Arrays) -> None:
        """Copy the results to the caller's arrays, after all kernels."""
        copy, queue = self.group.cl.enqueue_copy, self.group.queue
        for number in self._filled:
            if number >= self.inputs:
                target = bytes_of(arrays[number])
                copy(queue, target, self._copies[number].buffer, is_blocking=False)

    def read(self, number: int, arrays: Arrays) -> Bytes:
        """Return a copy of what the device has."""
        if number < self.inputs:
            return bytes_of(arrays[number])
        found = np.empty(self._sizes[number], np.uint8)
        if found.size:
            self.group.cl.enqueue_copy(self.group.queue, found, self._copies[number].buffer)
        return found

    def write(self, number: int, start: int, bytes_: Bytes) -> None:
        """Write bytes to the device's copy."""
        if bytes_.size:
            target = self._copies[number].buffer
            self.group.cl.enqueue_copy(self.group.queue, target, bytes_, dst_offset=start)

    def release(self) -> None:
        """Do nothing: other programs use the memory too."""
