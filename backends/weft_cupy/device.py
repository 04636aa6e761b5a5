"""Device, Memory and Queue: an open GPU, its memory, and a stream."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
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
"""The alignment of CUDA's allocations, in bytes."""
ACCESS = 16
"""The width of vectorized accesses, in bytes."""


class Device(OpenDevice):
    """An open GPU: its properties, and the memory allocated on it.

    Attributes
    ----------
    cupy
        The module `cupy`.
    handle
        The `cupy.cuda.Device`; ``with device.handle:`` makes it the current one.
    has_blas
        Whether cuBLAS is available.
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
        """The properties that kernels are generated for."""
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
        """Make it the current device; translates CUDA's errors to BackendError."""
        try:
            with self.handle:
                yield
        except self.errors as error:
            raise self.failed(error, doing) from error

    def failed(self, error: Exception, doing: str) -> BackendError:
        """Translate an error of CuPy, and record whether the device is lost."""
        if isinstance(error, CuBLASError) and error.is_of_device:
            error = self._reported() or error
        found = explained(error, self.name, doing)
        if is_lost(error):
            self.lost = found.problem
        return found

    def _reported(self) -> Exception | None:
        """Return the error that CUDA reports for earlier work; None for none."""
        try:
            with self.handle:
                self.cupy.cuda.runtime.deviceSynchronize()
        except self.errors as error:
            return error
        return None

    def memory(self, nbytes: int, what: str) -> Memory:
        """Allocate uninitialized memory; raises DeviceMemoryError if there is not enough."""
        self.require_possible(nbytes, what)
        with self.current(f"making {nbytes} bytes for {what}"):
            return Memory(self, self.cupy.cuda.Memory(max(nbytes, 1)))

    def build(self, source: str, name: str, cache: Cache | None) -> LoadedModule:
        """Compile and load a module; raises BackendError with the compiler's log and an excerpt.

        Machine code is read from the cache and written there, if there is a cache and no module of
        equal source is loaded; such a module is shared.
        """
        return self.shared_program(source, partial(self._loaded, source, name, cache))

    def _loaded(self, source: str, name: str, cache: Cache | None) -> LoadedModule:
        code = compiled(source, name, self.candidate.capability, self.name, cache)
        with self.current(f"loading {name}"):
            module = self.cupy.cuda.Module()
            module.load(code)
        return LoadedModule(module)


class LoadedModule:
    """A loaded module of CUDA, which programs share; CuPy's own has no weak references."""

    def __init__(self, raw: Any) -> None:
        self.get_function = raw.get_function


class Memory(DeviceMemory):
    """Device memory, returned to the driver when it is released.

    It is not from CuPy's pool, which would withhold freed memory from other libraries.

    Attributes
    ----------
    address
        The address of its first byte.
    """

    def __init__(self, device: Device, raw: Any) -> None:
        self.address = int(raw.ptr)
        self._raw = raw
        super().__init__(device, int(raw.size))

    def release(self) -> None:
        """Release the memory; further calls do nothing."""
        self._raw = None
        super().release()


class Queue:
    """A stream: copies, kernels and library calls, executed in order.

    All methods but `wait` are asynchronous, except that CUDA blocks for copies to host memory that
    is not pinned.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self._runtime = device.cupy.cuda.runtime
        with device.current("making a stream"):
            self.stream = device.cupy.cuda.Stream(non_blocking=True)

    def upload(self, address: int, source: Bytes) -> None:
        """Copy an array of the host to an address."""
        kind = self._runtime.memcpyHostToDevice
        place = source.ctypes.data
        self._runtime.memcpyAsync(address, place, source.nbytes, kind, self.stream.ptr)

    def download(self, target: Bytes, address: int) -> None:
        """Copy bytes from an address to the host; `target` must live until `wait` has returned."""
        kind = self._runtime.memcpyDeviceToHost
        place = target.ctypes.data
        self._runtime.memcpyAsync(place, address, target.nbytes, kind, self.stream.ptr)

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Copy bytes from one address of the device to another."""
        kind = self._runtime.memcpyDeviceToDevice
        self._runtime.memcpyAsync(target, source, nbytes, kind, self.stream.ptr)

    def clear(self, address: int, nbytes: int) -> None:
        """Fill memory with zeros."""
        self._runtime.memsetAsync(address, 0, nbytes, self.stream.ptr)

    def wait(self) -> None:
        """Wait until the stream is idle."""
        self.stream.synchronize()

    def close(self) -> None:
        """Release the stream."""
        self.stream = None
