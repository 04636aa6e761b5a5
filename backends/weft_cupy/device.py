"""An open GPU: its stream and its memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from weft.cache.store import Cache
from weft.errors import BackendError
from weft.support.locks import cached_property
from weft_c import CUDA, Processor
from weft_c.runtime.device import DeviceMemory, OpenDevice
from weft_c.runtime.storage import Bytes
from weft_cupy.compiler import compiled
from weft_cupy.drivers import Candidate
from weft_cupy.errors import CuBLASError, explained, is_lost

GROUP = 256
"""The threads of a block."""
ALIGNMENT = 256
"""Bytes: what CUDA aligns memory to."""
ACCESS = 16
"""Bytes: the most that a thread loads or stores at once."""


class Device(OpenDevice):
    """A GPU, opened: the facts that matter, and what of its memory is in use.

    Attributes
    ----------
    cupy
        The module `cupy`.
    handle
        The device, as CuPy has it; within ``with device.handle:`` it is the current one.
    has_blas
        Whether there is cuBLAS.
    """

    def __init__(self, cupy: Any, candidate: Candidate, has_blas: bool) -> None:
        cuda = cupy.cuda
        errors = (
            cuda.runtime.CUDARuntimeError,
            cuda.driver.CUDADriverError,
            cuda.memory.OutOfMemoryError,
            CuBLASError,
        )
        super().__init__(candidate.name, errors)
        self.cupy = cupy
        self.candidate = candidate
        self.has_blas = has_blas
        self.handle = cuda.Device(candidate.number)

    @cached_property
    def processor(self) -> Processor:
        """The device as kernels see it."""
        facts = self.candidate.facts
        return Processor(
            dialect=CUDA,
            is_serial=False,
            units=int(facts["multiProcessorCount"]),
            group=GROUP,
            local_bytes=int(facts["sharedMemPerBlock"]),
            alignment=ALIGNMENT,
            access_bytes=ACCESS,
            has_blas=self.has_blas,
        )

    @contextmanager
    def current(self, doing: str) -> Iterator[None]:
        """Let it be the current device; raises BackendError for CUDA's errors."""
        try:
            with self.handle:
                yield
        except self.errors as error:
            raise self.failed(error, doing) from error

    def failed(self, error: Exception, doing: str) -> BackendError:
        """Return the error to raise for one of CuPy's, and take note of a device that is lost."""
        if isinstance(error, CuBLASError) and error.is_of_device:
            error = self._reported() or error
        found = explained(error, self.name, doing)
        if is_lost(error):
            self.lost = found.problem
        return found

    def _reported(self) -> Exception | None:
        """Return the error that CUDA has to report of what was started before; None for none."""
        try:
            with self.handle:
                self.cupy.cuda.runtime.deviceSynchronize()
        except self.errors as error:
            return error
        return None

    def memory(self, nbytes: int, what: str) -> Memory:
        """Return memory with anything in it; raises DeviceMemoryError if there is not enough."""
        self.require_possible(nbytes, what)
        with self.current(f"making {nbytes} bytes for {what}"):
            return Memory(self, self.cupy.cuda.Memory(max(nbytes, 1)))

    def build(self, source: str, name: str, cache: Cache | None) -> Any:
        """Return a built module; raises BackendError with the compiler's log and the lines.

        Its machine code is kept in a cache, if there is one.
        """
        code = compiled(source, name, self.candidate.capability, self.name, cache)
        with self.current(f"loading {name}"):
            module = self.cupy.cuda.Module()
            module.load(code)
        return module


class Memory(DeviceMemory):
    """Memory of a device, which is given back to the driver when it is released.

    It is not from CuPy's pool, which would keep it from other programs.

    Attributes
    ----------
    address
        Where it begins.
    """

    def __init__(self, device: Device, raw: Any) -> None:
        self.address = int(raw.ptr)
        self._raw = raw
        super().__init__(device, int(raw.size))

    def release(self) -> None:
        """Give the memory back; a second time does nothing."""
        self._raw = None
        super().release()


class Queue:
    """A stream: copies, kernels and calls of libraries in the order in which it is given them.

    But for `wait` nothing waits, except that CUDA itself waits for copies to memory of the host
    that is not pinned.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self._runtime = device.cupy.cuda.runtime
        with device.current("making a stream"):
            self.stream = device.cupy.cuda.Stream(non_blocking=True)

    def upload(self, address: int, source: Bytes) -> None:
        """Copy bytes of the host to an address."""
        kind = self._runtime.memcpyHostToDevice
        place = source.ctypes.data
        self._runtime.memcpyAsync(address, place, source.nbytes, kind, self.stream.ptr)

    def download(self, target: Bytes, address: int) -> None:
        """Copy bytes from an address to the host; `target` must live until `wait` has returned."""
        kind = self._runtime.memcpyDeviceToHost
        place = target.ctypes.data
        self._runtime.memcpyAsync(place, address, target.nbytes, kind, self.stream.ptr)

    def clear(self, address: int, nbytes: int) -> None:
        """Fill memory with zeros."""
        self._runtime.memsetAsync(address, 0, nbytes, self.stream.ptr)

    def wait(self) -> None:
        """Wait for everything given so far."""
        self.stream.synchronize()

    def close(self) -> None:
        """Give the stream back."""
        self.stream = None
