"""Host and Memory: the processors of this machine as a device, and its memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.errors import BackendError
from weft.runtime.host_threads import requested_threads
from weft_c.processor import Processor
from weft_c.runtime.device import DeviceMemory, OpenDevice
from weft_c.runtime.errors import DeviceMemoryError
from weft_native import compiler
from weft_native.dialect import host_dialect
from weft_native.library import runtime

ALIGNMENT = 64
"""The alignment of memory in bytes: a cache line, and the widest vector register."""

BLAS_WORK = 300**3
"""The multiplications above which BLAS is quicker than register tiles with a fused epilogue."""

NEVER = 1 << 62
"""More multiplications than any product has."""


class Host(OpenDevice):
    """The processors of this machine, programmed by its C compiler.

    Attributes
    ----------
    runtime
        The runtime library of the process.
    """

    def __init__(self, threads: int | None) -> None:
        super().__init__("this machine", ())
        units = requested_threads(threads)
        vectors = compiler.vectors()
        self.runtime = runtime()
        self.runtime.use_threads(units)
        self._processor = Processor(
            dialect=host_dialect(vectors.lanes),
            is_serial=True,
            units=units,
            alignment=ALIGNMENT,
            shares_host=True,
            host_work=NEVER,
            host_work_even=NEVER,
            has_blas=self.runtime.has_blas,
            blas_dtypes=frozenset({"float32", "float64"}),
            blas_work=BLAS_WORK,
            vector_lanes=vectors.lanes,
            vector_registers=vectors.registers,
            merges_launches=False,
        )

    @property
    def processor(self) -> Processor:
        """The properties that kernels are generated for."""
        return self._processor

    def failed(self, error: Exception, doing: str) -> BackendError:
        """Translate an error; the host has none of its own."""
        return BackendError(f"{doing}: {error}")

    def memory(self, nbytes: int, what: str) -> Memory:
        """Allocate zeroed memory; raises DeviceMemoryError if there is not enough."""
        self.require_possible(nbytes, what)
        try:
            raw = np.zeros(nbytes + ALIGNMENT, np.uint8)
        except MemoryError as error:
            problem = f"this machine has no {nbytes} bytes left for {what}"
            raise DeviceMemoryError(f"{problem}: use smaller arrays, or a memory limit") from error
        start = -raw.ctypes.data % ALIGNMENT
        return Memory(self, raw[start : start + nbytes])


class Memory(DeviceMemory):
    """Bytes of the host.

    Attributes
    ----------
    host
        The bytes as an array; empty after `release`.
    address
        The address of the first one.
    """

    def __init__(self, device: Host, host: np.ndarray[Any, Any]) -> None:
        self.host = host
        self.address: int = host.ctypes.data
        super().__init__(device, host.nbytes)

    def release(self) -> None:
        """Release the memory; further calls do nothing."""
        super().release()
        self.host = self.host[:0].copy()
