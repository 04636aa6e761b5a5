"""CuPyTransformer: compiles computations to programs in CUDA C."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from weft.cache.store import Cache, is_off
from weft.runtime.program import Program
from weft.support.backports import override
from weft.support.locks import cached_property
from weft_c.runtime.kernel_group import GPUKernelGroup
from weft_c.runtime.storage import CopiedStorage
from weft_c.runtime.transformer import DeviceTransformer
from weft_cupy.arrays import CuPyArrays
from weft_cupy.blas import Blas
from weft_cupy.device import Device, Memory, Queue
from weft_cupy.devices import choose, summary
from weft_cupy.exchange import Exchanges
from weft_cupy.executor import CUDAKernelGroup
from weft_cupy.memory import CuPyStorage


class CuPyTransformer(DeviceTransformer):
    """The CuPy backend: NVIDIA GPUs, with CUDA's driver, compiler and BLAS as CuPy finds them.

    Calls run one at a time, in one stream, and wait for the device once.

    Parameters
    ----------
    device
        The GPU: its index in the driver's order, or a part of its name. The default is the value of
        ``WEFT_CUPY_DEVICE``, else the first usable one.
    """

    transformer_name = "cupy"
    shares_code = True
    device: Device

    def __init__(self, *, device: int | str | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.device = choose(device)
        self.processor = self.device.processor
        self.queue = Queue(self.device)

    @classmethod
    def probe(cls) -> tuple[str | None, str]:
        """Return the device that would be selected, or None and the reason."""
        return summary()

    @cached_property
    def blas(self) -> Blas:
        """CuBLAS, loaded when a program first needs it."""
        return Blas(self.queue, self.fast_math)

    @cached_property
    def exchanges(self) -> Exchanges:
        """The collectives that are under way, made when a program first needs them."""
        return Exchanges(self.device, self.queue)

    @cached_property
    def device_arrays(self) -> CuPyArrays:
        """The arrays of CuPy on the GPU."""
        return CuPyArrays(self.device)

    @override
    def device_buffer_storage(self, nbytes: int, name: str) -> CuPyStorage:
        return CuPyStorage(self, nbytes, name)

    def make_workspace(self, nbytes: int, what: str) -> Memory:
        """Allocate uninitialized memory; raises DeviceMemoryError if there is not enough."""
        return self.device.memory(nbytes, what)

    @property
    def code_cache(self) -> Cache | None:
        """The cache of machine code; None if caching is off."""
        return None if self.compile_cache.option is False or is_off() else self.compile_cache.cache

    @override
    def kernel_group(self, program: Program) -> CUDAKernelGroup:
        return CUDAKernelGroup(self, program)

    def give_back(
        self, groups: Iterable[GPUKernelGroup], buffers: Iterable[CopiedStorage[Any]]
    ) -> None:
        """Release executors, buffers, the handle of cuBLAS if it was used, and the stream."""
        with suppress(*self.device.errors), self.device.handle:
            super().give_back(groups, buffers)
            if "blas" in self.__dict__:
                self.blas.close()
            if "exchanges" in self.__dict__:
                self.exchanges.release()
            self.queue.close()
