"""Host I/O: uses the caller's arrays in place, or copies them in and out."""

from __future__ import annotations

import mmap
from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np

from weft_c.runtime.host_io import HostIO
from weft_c.runtime.storage import Arrays, Bytes, bytes_of
from weft_opencl.device import Memory

if TYPE_CHECKING:
    from weft_opencl.executor import OpenCLKernelGroup


class OpenCLHostIO(HostIO):
    """What kernels are given for the arrays of a call, bound to their arguments."""

    def __init__(self, group: OpenCLKernelGroup) -> None:
        super().__init__(group.program.captured)
        self.group = group

    @abstractmethod
    def bind(self, kernel: Any, index: int, number: int, start: int, size: int) -> None:
        """Let an argument of a kernel be a stretch of an array."""


class Arguments:
    """Arguments of kernels that are other buffers in each call."""

    def __init__(self, arrays: int) -> None:
        self._arrays = arrays
        self._regions: list[tuple[int, int, int]] = []
        self._args: list[tuple[Callable[[int, Any], None], int, int]] = []

    def add(self, kernel: Any, index: int, number: int, start: int, size: int) -> None:
        """Take in one for an array; a stretch that begins later needs a buffer of its own."""
        if start:
            wanted = (number, start, size)
            if wanted not in self._regions:
                self._regions.append(wanted)
            number = self._arrays + self._regions.index(wanted)
        self._args.append((kernel.set_arg, index, number))

    def set(self, buffers: list[Any]) -> None:
        """Set all to buffers, one for each array; those of stretches are added to them."""
        for number, start, size in self._regions:
            buffers.append(buffers[number].get_sub_region(start, size))
        for set_arg, index, number in self._args:
            set_arg(index, buffers[number])


class SharedHostIO(OpenCLHostIO):
    """Kernels work on the caller's memory: a call makes buffers of it and sets arguments."""

    def __init__(self, group: OpenCLKernelGroup) -> None:
        super().__init__(group)
        self._nothing = group.device.memory(1, "arrays without elements", shared=True)
        flags = group.cl.mem_flags
        self._buffers = [
            self._maker(op, flags.READ_ONLY if number < self.inputs else flags.READ_WRITE)
            for number, op in enumerate(self.ops)
        ]
        self._arguments = Arguments(len(self.ops))

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
        """Set the argument in each call."""
        self._arguments.add(kernel, index, number, start, size)

    def begin(self, arrays: Arrays) -> Any:
        """Make buffers of the arrays and set the arguments that they are."""
        buffers = [make(array) for make, array in zip(self._buffers, arrays, strict=True)]
        self._arguments.set(buffers)
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
        self._arguments = Arguments(len(self.ops))
        self._nothing.release()


class CopiedHostIO(OpenCLHostIO):
    """Kernels work on copies in memory of the device that all programs use.

    Each copy has a buffer of its own, as devices limit the size of one: the largest the first, so
    that buffers fit the copies of other programs too.
    """

    def __init__(self, group: OpenCLKernelGroup) -> None:
        super().__init__(group)
        self._sizes: list[int] = [op.axes.size * op.dtype.itemsize for op in self.ops]
        by_size = sorted(range(len(self.ops)), key=lambda number: -self._sizes[number])
        self._places = {number: place for place, number in enumerate(by_size)}
        self._copies: dict[int, Memory] = {}

    def copy_of(self, number: int) -> Memory:
        """Return the memory for the copy of an array, made when it is first needed."""
        if number not in self._copies:
            name, what = ("copy", self._places[number]), f"a copy of {self.ops[number]}"
            self._copies[number] = self.group.workspace_pool.reserve(
                name, self._sizes[number], what
            )
        return self._copies[number]

    def buffer(self, number: int) -> Any:
        """Return what kernels are given for an array."""
        return self.copy_of(number).buffer

    def is_copied(self, number: int) -> bool:
        """Whether there is anything to copy."""
        return self._sizes[number] > 0

    def bind(self, kernel: Any, index: int, number: int, start: int, size: int) -> None:
        """Set the argument for good."""
        kernel.set_arg(index, self.copy_of(number).part(start, size))

    def begin(self, arrays: Arrays) -> Any:
        """Copy the inputs to the device."""
        copy, queue = self.group.cl.enqueue_copy, self.group.queue
        sources = [(n, bytes_of(arrays[n])) for n in range(self.inputs) if self.is_copied(n)]
        for number, source in sources:
            copy(queue, self.buffer(number), source, is_blocking=False)
        return sources

    def end(self, arrays: Arrays) -> None:
        """Copy the results to the caller's arrays, after all kernels."""
        copy, queue = self.group.cl.enqueue_copy, self.group.queue
        for number in range(self.inputs, len(arrays)):
            if self.is_copied(number):
                copy(queue, bytes_of(arrays[number]), self.buffer(number), is_blocking=False)

    def read(self, number: int, arrays: Arrays) -> Bytes:
        """Return a copy of what the device has."""
        if number < self.inputs:
            return bytes_of(arrays[number])
        found = np.empty(self._sizes[number], np.uint8)
        if found.size:
            self.group.cl.enqueue_copy(self.group.queue, found, self.buffer(number))
        return found

    def write(self, number: int, start: int, bytes_: Bytes) -> None:
        """Write bytes to the device's copy."""
        if bytes_.size:
            target = self.buffer(number)
            self.group.cl.enqueue_copy(self.group.queue, target, bytes_, dst_offset=start)


class InPlace(dict[int, Any]):
    """The buffers that are arrays of a running call, by their numbers."""


class MappedHostIO(CopiedHostIO):
    """Kernels work on those of the caller's arrays that fill pages, and on copies of the others.

    A buffer of an array shows what the host wrote before it was made. The host sees what kernels
    wrote once the buffer has been mapped, which copies nothing where the device shares the memory.
    """

    def __init__(self, group: OpenCLKernelGroup) -> None:
        super().__init__(group)
        self._line = max(int(group.device.handle.global_mem_cacheline_size), 1)
        self._arguments = Arguments(len(self.ops))
        self._running: Callable[[], InPlace | None] = lambda: None

    @property
    def in_place(self) -> InPlace:
        """Those of the call that runs, which alone holds them."""
        return self._running() or InPlace()

    def buffer(self, number: int) -> Any:
        """Return what kernels are given for an array: that itself, or the copy."""
        in_place = self.in_place
        return in_place[number] if number in in_place else super().buffer(number)

    def is_copied(self, number: int) -> bool:
        """Whether there is anything to copy."""
        return number not in self.in_place and super().is_copied(number)

    def bind(self, kernel: Any, index: int, number: int, start: int, size: int) -> None:
        """Set the argument in each call."""
        self._arguments.add(kernel, index, number, start, size)

    def begin(self, arrays: Arrays) -> Any:
        """Make buffers of the arrays that fit, copy other inputs, and set all arguments."""
        held = self._made(arrays)
        self._running = ref(held)
        buffers = [self.buffer(number) for number in range(len(arrays))]
        self._arguments.set(buffers)
        return held, buffers, super().begin(arrays)

    def _made(self, arrays: Arrays) -> InPlace:
        """Return buffers of arrays that fill pages, none of which overlaps another."""
        found = InPlace()
        made: dict[int, Bytes] = {}
        for number, array in enumerate(arrays):
            if not self._fills_pages(array):
                continue
            bytes_ = bytes_of(array)
            beside = next((n for n in made if np.may_share_memory(made[n], bytes_)), None)
            if beside is None:
                made[number] = bytes_
                found[number] = self._buffer_of(bytes_, number < self.inputs)
            elif _span(made[beside]) == _span(bytes_):
                found[number] = found[beside]
        return found

    def _fills_pages(self, array: np.ndarray[Any, Any]) -> bool:
        """Whether drivers may use the memory as it is."""
        start, size = _span(array)
        return bool(size and not start % mmap.PAGESIZE and not size % self._line)

    def _buffer_of(self, bytes_: Bytes, is_read_only: bool) -> Any:
        cl, flags = self.group.cl, self.group.cl.mem_flags
        access = flags.READ_ONLY if is_read_only else flags.READ_WRITE
        return cl.Buffer(self.group.device.context, access | flags.USE_HOST_PTR, 0, bytes_)

    def end(self, arrays: Arrays) -> None:
        """Let the results be in the caller's arrays, after all kernels."""
        super().end(arrays)
        cl, queue = self.group.cl, self.group.queue
        for number, buffer in self.in_place.items():
            if number >= self.inputs:
                mapped, _ = cl.enqueue_map_buffer(
                    queue, buffer, cl.map_flags.READ, 0, buffer.size, np.uint8, is_blocking=False
                )
                mapped.base.release(queue)


def _span(array: np.ndarray[Any, Any]) -> tuple[int, int]:
    """Return where a contiguous array begins, and its bytes."""
    return array.__array_interface__["data"][0], array.nbytes
