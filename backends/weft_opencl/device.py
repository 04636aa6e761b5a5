"""Device and Memory: an open OpenCL device, and its buffers."""

from __future__ import annotations

import threading
import warnings
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from weft.errors import BackendError
from weft.report.progress import Stage
from weft.support.locks import cached_property, renewed
from weft_c import OPENCL, Processor
from weft_c.runtime.device import DeviceMemory, OpenDevice
from weft_c.runtime.storage import Bytes
from weft_opencl.drivers import NVIDIA, POCL
from weft_opencl.errors import build_error, explained, is_lost
from weft_opencl.trial import OPTIONS
from weft_opencl.verdicts import Verdict

_building = renewed(threading.RLock())
"""Held while warnings are disabled, since that affects all threads."""
SMALLEST_ALIGNMENT = 128
"""The minimal alignment in bytes, two cache lines; drivers may report less."""
GROUP = 256
"""The work items of a group on devices other than CPUs, unless their maximum is lower."""
ACCESS = 16
"""The width of vectorized accesses on GPUs, in bytes."""
NVIDIA_ELEMENTS = 8
"""The most elements of a vectorized access that NVIDIA's driver compiles rightly."""
CASES = 8
"""The functions merged into a kernel of PoCL: more save little, and may be compiled in vain."""

_INT64_ATOMICS = "cl_khr_int64_base_atomics"


class Device(OpenDevice):
    """An open OpenCL device: its properties, its context, and the memory allocated on it.

    Attributes
    ----------
    cl
        The module `pyopencl`.
    handle
        The `pyopencl.Device`.
    context
        The context; the process has one for each device, and a new one after it is lost.
    verdict
        The result of probing the device.
    """

    def __init__(self, cl: Any, handle: Any, verdict: Verdict) -> None:
        super().__init__(described(handle), (cl.Error,))
        self.cl = cl
        self.handle = handle
        self.verdict = verdict
        self.context = cl.Context([handle])

    @cached_property
    def is_cpu(self) -> bool:
        """Whether the device is a CPU."""
        return bool(self.handle.type & self.cl.device_type.CPU)

    @property
    def has_host_memory(self) -> bool:
        """Whether the device works in the host's memory."""
        return bool(self.handle.host_unified_memory)

    @property
    def access_bytes(self) -> int:
        """The width of vectorized accesses in bytes; 0 for scalar accesses.

        CPUs use scalar accesses, since their compilers vectorize across work items. The preferred
        width that GPUs report is that of arithmetic, so it is ignored.
        """
        handle, kinds = self.handle, self.cl.device_type
        has_vectors = handle.type & kinds.GPU or handle.preferred_vector_width_float > 1
        return ACCESS if has_vectors and not self.is_cpu else 0

    @property
    def access_elements(self) -> int:
        """The most elements of a vectorized access to operands of arithmetic.

        NVIDIA's compiler (580.159) compares signed bytes wrongly in every fourth element of an
        access to 16 of them; accesses to 8 are right.
        """
        return NVIDIA_ELEMENTS if self.is_nvidia else Processor.access_elements

    @cached_property
    def is_nvidia(self) -> bool:
        """Whether NVIDIA's driver runs the device."""
        return bool(self.handle.platform.name.strip() == NVIDIA)

    @property
    def group(self) -> int:
        """The work items of a group: a power of two, as tree reductions need."""
        return 1 << min(GROUP, int(self.handle.max_work_group_size)).bit_length() - 1

    @cached_property
    def processor(self) -> Processor:
        """The properties that kernels are generated for."""
        handle = self.handle
        return Processor(
            dialect=replace(OPENCL, warp=self.verdict.warp),
            is_serial=self.is_cpu,
            units=int(handle.max_compute_units),
            group=self.group,
            local_bytes=int(handle.local_mem_size),
            alignment=max(int(handle.mem_base_addr_align) // 8, SMALLEST_ALIGNMENT),
            access_bytes=self.access_bytes,
            access_elements=self.access_elements,
            has_fp64=bool(handle.double_fp_config),
            has_int64_atomics=_INT64_ATOMICS in handle.extensions.split(),
            shares_host=self.has_host_memory and self.verdict.coherent and not self.access_bytes,
            cases=CASES if self.is_cpu and handle.platform.name.strip() == POCL else 1,
        )

    @cached_property
    def parts_reach_end(self) -> bool:
        """Whether sub-buffers extend to the end of their buffer, so that no two share a start.

        NVIDIA's driver (580.159) confuses two sub-buffers with the same start: kernels compute
        wrong numbers, and releasing the sub-buffers crashes the process.
        """
        return self.is_nvidia

    def queue(self, records_times: bool = False) -> Any:
        """Return a new in-order queue, whose events may have times.

        Raises BackendError if that fails.
        """
        properties = self.cl.command_queue_properties.PROFILING_ENABLE if records_times else 0
        try:
            return self.cl.CommandQueue(self.context, self.handle, properties)
        except self.cl.Error as error:
            raise self.failed(error, "making a queue") from error

    def failed(self, error: Exception, doing: str) -> BackendError:
        """Translate an error of pyopencl, and record whether the context is lost."""
        found = explained(error, self.name, doing)
        if is_lost(error):
            self.lost = found.problem
        return found

    def build(self, source: str, name: str) -> Any:
        """Compile a program; raises BackendError with the compiler's log and an excerpt.

        Programs of equal source are one, as long as somebody holds it.
        """
        return self.shared_program(source, partial(self._built, source, name))

    def _built(self, source: str, name: str) -> Any:
        cl = self.cl
        # pyopencl caches binaries, and the source of failed builds, on disk; drivers have caches of
        # their own. A query of the program before the build disables both, with a warning.
        with Stage(f"building {name}"), _building, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = cl.Program(self.context, source)
            program.get_info(cl.program_info.REFERENCE_COUNT)
            try:
                return program.build(OPTIONS)
            except cl.Error as error:
                if is_lost(error):
                    raise self.failed(error, f"building {name}") from error
                log = program.get_build_info(self.handle, cl.program_build_info.LOG) or str(error)
        raise build_error(log, source, self.name, name)

    def memory(self, nbytes: int, what: str, shared: bool) -> Memory:
        """Allocate memory: zeroed host memory if `shared`, else uninitialized device memory.

        Raises DeviceMemoryError if there is not enough.
        """
        self.require_possible(nbytes, what)
        size = max(nbytes, 1)
        if not shared:
            return self._memory(what, self.cl.mem_flags.READ_WRITE, size, None)
        try:
            raw = np.zeros(size + self.processor.alignment, np.uint8)
        except MemoryError as error:
            raise self.failed(error, f"making {nbytes} bytes for {what}") from error
        start = -raw.ctypes.data % self.processor.alignment
        return self.memory_of(raw[start : start + size], what)

    def memory_of(self, host: Bytes, what: str, is_read_only: bool = False) -> Memory:
        """Return a buffer on an array of the host; raises DeviceMemoryError if that fails."""
        flags = self.cl.mem_flags
        access = flags.READ_ONLY if is_read_only else flags.READ_WRITE
        return self._memory(what, access | flags.USE_HOST_PTR, host.nbytes, host)

    def _memory(self, what: str, flags: Any, nbytes: int, host: Bytes | None) -> Memory:
        try:
            buffer = self.cl.Buffer(self.context, flags, 0 if host is not None else nbytes, host)
        except self.cl.Error as error:
            raise self.failed(error, f"making {nbytes} bytes for {what}") from error
        return Memory(self, buffer, host)


def described(handle: Any) -> str:
    """Return the name of a device and that of its platform, as listings show them."""
    return f"{handle.name.strip()} ({handle.platform.name.strip()})"


class Memory(DeviceMemory):
    """A buffer of a device, counted in its live bytes until it is released.

    Attributes
    ----------
    buffer
        The buffer.
    host
        The bytes of a buffer in the host's memory; else None.
    """

    device: Device

    def __init__(self, device: Device, buffer: Any, host: Bytes | None) -> None:
        self.buffer = buffer
        self.host = host
        self._size = int(buffer.size)
        self._parts: dict[tuple[int, int], Any] = {}
        super().__init__(device, self._size)

    def part(self, start: int, size: int) -> Any:
        """Return the sub-buffer of `size` bytes from an aligned start; equal ones are shared.

        It extends to the end of the buffer where `Device.parts_reach_end` says so.
        """
        if self.device.parts_reach_end:
            size = self._size - start
        if start == 0 and size >= self._size:
            return self.buffer
        found = self._parts.get((start, size))
        if found is None:
            found = self._parts[start, size] = self.buffer.get_sub_region(start, size)
        return found

    def release(self) -> None:
        """Release the memory; further calls do nothing."""
        self._size = 0
        super().release()
        while self._parts:  # newest first: in order of creation, NVIDIA's driver crashes
            self._parts.popitem()
        self.buffer = self.host = None
