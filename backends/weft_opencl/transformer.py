"""OpenCLTransformer: compiles computations to programs in OpenCL C."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.ir.op import Op
from weft.runtime.program import Program
from weft.support.backports import override
from weft.support.locks import cached_property
from weft_c.runtime.transformer import DeviceTransformer
from weft_opencl.arrays import OpenCLArrays
from weft_opencl.device import Device, Memory
from weft_opencl.devices import choose, summary
from weft_opencl.executor import OpenCLKernelGroup
from weft_opencl.memory import OpenCLConstantStorage, OpenCLStorage


class OpenCLTransformer(DeviceTransformer):
    """The OpenCL backend: GPUs, CPUs and other devices that have an OpenCL driver.

    Calls run one at a time, in one queue, and wait for the device once.

    Parameters
    ----------
    device
        The device: its number among those that ``weft doctor`` lists, a part of its name, or
        ``"platform:device"``, each a number or a part of a name. The default is the value of
        ``WEFT_OPENCL_DEVICE``, else the best device that works.

    Attributes
    ----------
    maps_host
        Whether kernels can access the host's arrays, given that results are mapped afterwards.
    """

    transformer_name = "opencl"
    shares_code = True
    device: Device
    maps_host: bool

    def __init__(self, *, device: int | str | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.device = choose(device)
        self.cl = self.device.cl
        self.processor = self.device.processor
        self.maps_host = self.device.has_host_memory
        self.queue = self.device.queue()

    @classmethod
    def probe(cls) -> tuple[str | None, str]:
        """Return the device that would be selected, and why others are not usable."""
        return summary()

    @cached_property
    def device_arrays(self) -> OpenCLArrays:
        """The arrays of PyOpenCL in the context of the device."""
        return OpenCLArrays(self.device, self.queue)

    @override
    def device_buffer_storage(self, nbytes: int, name: str) -> OpenCLStorage:
        return OpenCLStorage(self, nbytes, name)

    @override
    def new_constant_storage(self, op: Op) -> OpenCLStorage:
        return OpenCLConstantStorage(self, op.const.nbytes, f"constant {op.name}")

    def make_workspace(self, nbytes: int, what: str) -> Memory:
        """Allocate uninitialized memory; raises DeviceMemoryError if there is not enough."""
        return self.device.memory(nbytes, what, self.processor.shares_host)

    @override
    def kernel_group(self, program: Program) -> OpenCLKernelGroup:
        return OpenCLKernelGroup(self, program)

    def enqueued(self, enqueue: Callable[..., Any], *args: Any, doing: str, **options: Any) -> None:
        """Enqueue a command and wait for it; raises BackendError if that fails."""
        try:
            enqueue(self.queue, *args, **options)
            self.queue.finish()
        except self.cl.Error as error:
            raise self.device.failed(error, doing) from error
