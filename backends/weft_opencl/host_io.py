"""Transfers between a program and the caller's arrays: in place, mapped, or copied."""

from __future__ import annotations

import mmap
from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np

from weft.support.backports import override
from weft_c.runtime.host_io import HostIO
from weft_c.runtime.storage import Arrays, Bytes, bytes_of
from weft_opencl.device import Memory

if TYPE_CHECKING:
    from weft_opencl.executor import OpenCLKernelGroup


class OpenCLHostIO(HostIO):
    """Transfers of a call's arrays, which are bound to arguments of kernels."""

    def __init__(self, group: OpenCLKernelGroup) -> None:
        super().__init__(group.program)
        self.group = group

    def access(self, number: int) -> Any:
        """Return the flags of a buffer on array `number`."""
        flags = self.group.cl.mem_flags
        is_read_only = number < self.inputs and number not in self.taken.values()
        return flags.READ_ONLY if is_read_only else flags.READ_WRITE

    @abstractmethod
    def bind(self, kernel: Any, index: int, number: int, start: int, size: int) -> None:
        """Bind argument `index` of a kernel to a range of bytes of array `number`."""


class KernelArguments:
    """Arguments of kernels that are set to other buffers in each call."""

    def __init__(self, arrays: int) -> None:
        self._arrays = arrays
        self._regions: list[tuple[int, int, int]] = []
        self._args: list[tuple[Callable[[int, Any], None], int, int]] = []

    def add(self, kernel: Any, index: int, number: int, start: int, size: int) -> None:
        """Add an argument for a range of an array; one with a start needs a sub-buffer."""
        if start:
            wanted = (number, start, size)
            if wanted not in self._regions:
                self._regions.append(wanted)
            number = self._arrays + self._regions.index(wanted)
        self._args.append((kernel.set_arg, index, number))

    def set(self, buffers: list[Any]) -> None:
        """Set all arguments, given a buffer for each array; appends sub-buffers to the list."""
        for number, start, size in self._regions:
            buffers.append(buffers[number].get_sub_region(start, size))
        for set_arg, index, number in self._args:
            set_arg(index, buffers[number])


class SharedHostIO(OpenCLHostIO):
    """Transfers in place: each call creates buffers on the caller's memory and sets arguments."""

    def __init__(self, group: OpenCLKernelGroup) -> None:
        super().__init__(group)
        self._nothing = group.device.memory(1, "arrays without elements", shared=True)
        self._buffers = [self._maker(op, self.access(number)) for number, op in enumerate(self.ops)]
        self._arguments = KernelArguments(len(self.ops))

    def _maker(self, op: Any, flags: Any) -> Callable[[np.ndarray[Any, Any]], Any]:
        """Return a function that creates a buffer on an array of the caller."""
        group = self.group
        if not op.axes.size:
            return lambda array: self._nothing.buffer
        flags |= group.cl.mem_flags.USE_HOST_PTR
        make = partial(group.cl.Buffer, group.device.context, flags, 0)
        if op.dtype.name != "bfloat16":
            return make
        return lambda array: make(array.view(np.uint16))  # NumPy does not export its buffer

    def bind(self, kernel: Any, index: int, number: int, start: int, size: int) -> None:
        """Register the argument, which is set in each call."""
        self._arguments.add(kernel, index, number, start, size)

    def begin(self, arrays: Arrays) -> Any:
        """Create buffers on the arrays and set the arguments."""
        buffers = [make(array) for make, array in zip(self._buffers, arrays, strict=True)]
        for number, taken in self.taken.items():
            if arrays[number] is arrays[taken]:
                buffers[number] = buffers[taken]
        self._arguments.set(buffers)
        return buffers

    def end(self, arrays: Arrays) -> None:
        """Do nothing: results are in the caller's arrays."""

    def read(self, number: int, arrays: Arrays) -> Bytes:
        """Return the bytes of the array in place."""
        return bytes_of(arrays[number])

    def write(self, number: int, start: int, bytes_: Bytes) -> None:
        """Do nothing: the bytes were written in place."""

    @override
    def release(self) -> None:
        self._arguments = KernelArguments(len(self.ops))
        self._nothing.release()


class CopiedHostIO(OpenCLHostIO):
    """Transfers by copies in device memory, from the workspace pool.

    Each copy has its own buffer, since devices limit the size of a buffer. Buffers are assigned by
    descending size, so that they fit the copies of other programs as well.
    """

    def __init__(self, group: OpenCLKernelGroup) -> None:
        super().__init__(group)
        self._sizes: list[int] = [op.nbytes for op in self.ops]
        by_size = sorted(range(len(self.ops)), key=lambda number: -self._sizes[number])
        self._places = {number: place for place, number in enumerate(by_size)}
        self._copies: dict[int, Memory] = {}

    def copy_of(self, number: int) -> Memory:
        """Return the memory for the copy of an array, allocated when it is first needed."""
        number = self.taken.get(number, number)
        if number not in self._copies:
            name, what = ("copy", self._places[number]), f"a copy of {self.ops[number]}"
            self._copies[number] = self.group.workspace_pool.reserve(
                name, self._sizes[number], what
            )
        return self._copies[number]

    def buffer(self, number: int) -> Any:
        """Return the buffer that kernels access for an array."""
        return self.copy_of(number).buffer

    def is_copied(self, number: int) -> bool:
        """Whether an array has bytes to copy."""
        return self._sizes[number] > 0

    def bind(self, kernel: Any, index: int, number: int, start: int, size: int) -> None:
        """Set the argument once for all calls."""
        kernel.set_arg(index, self.copy_of(number).part(start, size))

    @override
    def begin(self, arrays: Arrays) -> Any:
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
        """Return the bytes of the device's copy."""
        if number < self.inputs and isinstance(arrays[number], np.ndarray):
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
    """Transfers by mapping, for arrays that fill pages of memory, and by copies for others.

    Arrays of PyOpenCL are accessed in place, after what was enqueued to compute them.
    A buffer on an array contains what the host wrote before its creation. Mapping the buffer makes
    the kernels' results visible to the host, without a copy where memory is shared.
    """

    def __init__(self, group: OpenCLKernelGroup) -> None:
        super().__init__(group)
        self._line = max(int(group.device.handle.global_mem_cacheline_size), 1)
        self._arguments = KernelArguments(len(self.ops))
        self._running: Callable[[], InPlace | None] = lambda: None

    @property
    def in_place(self) -> InPlace:
        """The buffers of the running call, which owns them."""
        return self._running() or InPlace()

    def buffer(self, number: int) -> Any:
        """Return the buffer that kernels access: the array in place, or its copy."""
        in_place = self.in_place
        return in_place[number] if number in in_place else super().buffer(number)

    def is_copied(self, number: int) -> bool:
        """Whether an array has bytes to copy."""
        return number not in self.in_place and super().is_copied(number)

    def bind(self, kernel: Any, index: int, number: int, start: int, size: int) -> None:
        """Register the argument, which is set in each call."""
        self._arguments.add(kernel, index, number, start, size)

    def begin(self, arrays: Arrays) -> Any:
        """Create buffers on suitable arrays, copy other inputs, and set all arguments."""
        held = self._made(arrays)
        self._running = ref(held)
        buffers = [self.buffer(number) for number in range(len(arrays))]
        self._arguments.set(buffers)
        return held, buffers, super().begin(arrays)

    def _made(self, arrays: Arrays) -> InPlace:
        """Return buffers on arrays that fill pages, without overlaps between buffers."""
        found = InPlace()
        made: dict[int, Bytes] = {}
        for number, array in enumerate(arrays):
            if not isinstance(array, np.ndarray):
                if array.size:
                    array.finish()
                    found[number] = array.base_data
                continue
            if not self.group.maps_host or not self._fills_pages(array):
                continue
            bytes_ = bytes_of(array)
            beside = next((n for n in made if np.may_share_memory(made[n], bytes_)), None)
            if beside is None:
                made[number] = bytes_
                found[number] = self._buffer_of(bytes_, number)
            elif _span(made[beside]) == _span(bytes_):
                found[number] = found[beside]
        for pair in self.taken.items():
            if sum(number in found for number in pair) == 1:  # their copy is one
                found.pop(pair[0], None)
                found.pop(pair[1], None)
        return found

    def _fills_pages(self, array: np.ndarray[Any, Any]) -> bool:
        """Whether drivers can use an array's memory without a copy."""
        start, size = _span(array)
        return bool(size and not start % mmap.PAGESIZE and not size % self._line)

    def _buffer_of(self, bytes_: Bytes, number: int) -> Any:
        cl = self.group.cl
        flags = self.access(number) | cl.mem_flags.USE_HOST_PTR
        return cl.Buffer(self.group.device.context, flags, 0, bytes_)

    def end(self, arrays: Arrays) -> None:
        """Map or copy the results to the caller's arrays, after all kernels."""
        super().end(arrays)
        cl, queue = self.group.cl, self.group.queue
        for number, buffer in self.in_place.items():
            if number >= self.inputs and isinstance(arrays[number], np.ndarray):
                mapped, _ = cl.enqueue_map_buffer(
                    queue, buffer, cl.map_flags.READ, 0, buffer.size, np.uint8, is_blocking=False
                )
                mapped.base.release(queue)


def _span(array: np.ndarray[Any, Any]) -> tuple[int, int]:
    """Return the address and the size of a contiguous array, in bytes."""
    return array.__array_interface__["data"][0], array.nbytes
