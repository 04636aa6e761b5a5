"""OpenCLTransformer: compiles computations to programs in OpenCL C."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from weft.device import DeviceTensor
from weft.errors import BackendError
from weft.kernels import c
from weft.kernels.c import keeping
from weft.op import Op
from weft.packing import Packing, Unpacking
from weft.plan import Step
from weft.program import Program
from weft.target import Target
from weft.transformer import Transformer
from weft_opencl.devices import choose, summary
from weft_opencl.errors import explained
from weft_opencl.executor import OpenCLKernelGroup
from weft_opencl.memory import OpenCLConstantStorage, OpenCLStorage

LEAST_ALIGNMENT = 256


class OpenCLTransformer(Transformer):
    """The OpenCL backend: GPUs, CPUs and other devices that have an OpenCL driver.

    Calls run one at a time, in one queue, and wait for the device once.

    Parameters
    ----------
    device
        The device: its number among those that ``weft doctor`` lists, a part of its name, or
        ``"platform:device"``, each a number or a part of a name. Without it what
        ``WEFT_OPENCL_DEVICE`` says, else the best one that works.

    Attributes
    ----------
    processor
        The device as kernels are written for it.
    """

    transformer_name = "opencl"

    def __init__(self, *, device: int | str | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.device = choose(device)
        self.cl = self.device.cl
        self.processor = self.device.processor
        self.queue = self.device.queue()
        self._groups: list[OpenCLKernelGroup] = []

    @classmethod
    def probe(cls) -> tuple[str | None, str]:
        """Return the device that would be chosen, and why others are not usable."""
        return summary()

    @cached_property
    def target(self) -> Target:
        """Any rank and any strides; float64 where the device has it, no complex numbers."""
        processor = self.processor
        names = Target.dtypes | {"float16", "bfloat16"}
        return Target(
            name="opencl",
            supports=_supports,
            fusible=c.fusible,
            alignment=max(processor.alignment, LEAST_ALIGNMENT),
            workspace=self.scratch_bytes,
            dtypes=names if processor.has_fp64 else names - {"float64"},
            fast_math=self.fast_math,
        )

    def scratch_bytes(self, op: Op) -> int:
        """Return the bytes of scratch memory that an op takes while it runs."""
        return c.scratch_bytes(op, self.processor)

    def device_buffer_storage(self, nbytes: int, name: str) -> OpenCLStorage:
        """Return a new, unallocated buffer."""
        return OpenCLStorage(self, nbytes, name)

    def constant_storage(self, op: Op) -> OpenCLStorage:
        """Return a buffer for a constant."""
        return OpenCLConstantStorage(self, op)

    def set_constant(self, tensor: DeviceTensor, op: Op) -> None:
        """Copy the value of a constant to a device that does not share the host's memory."""
        if not self.processor.shares_host:
            super().set_constant(tensor, op)

    def transform_ordered_ops(
        self, program: Program, ordered_ops: Sequence[Step], name: str
    ) -> Callable[..., None]:
        """Write, build and return the program."""
        group = OpenCLKernelGroup(self, program)
        for step in ordered_ops:
            group.add_kernel(step)
        return self._built(group)

    def code_options(self) -> Sequence[Any]:
        """Return the device as kernels see it, and the rules."""
        return [self.processor, [(kind, c.rules[kind]) for kind in c.rules]]

    def export(self, program: Program, packing: Packing) -> Any:
        """Return the source and what is launched."""
        return keeping.packed(program.code, packing)

    def restore(self, program: Program, unpacking: Unpacking) -> Callable[..., None]:
        """Build the source again and return the program."""
        group = OpenCLKernelGroup(self, program)
        keeping.restore(group, unpacking)
        return self._built(group)

    def _built(self, group: OpenCLKernelGroup) -> OpenCLKernelGroup:
        group.build()
        self._groups.append(group)
        return group

    def enqueued(self, enqueue: Callable[..., Any], *args: Any, doing: str, **options: Any) -> None:
        """Give the queue something to do and wait for it; raises BackendError if that fails."""
        try:
            enqueue(self.queue, *args, **options)
            self.queue.finish()
        except self.cl.Error as error:
            raise self.failed(error, doing) from error

    def failed(self, error: Any, doing: str) -> BackendError:
        """Return the error to raise for one of pyopencl's."""
        return explained(error, self.device.name, doing)

    def close(self) -> None:
        """Give all memory of the device back; the transformer cannot be used again."""
        with self.state_lock:
            buffers = [each for each in self.device_buffers if isinstance(each, OpenCLStorage)]
            super().close()
            groups, self._groups = self._groups, []
            for group in groups:
                group.close()
            for buffer in buffers:
                buffer.release()


def _supports(op: Op) -> bool:
    return c.rules.find(type(op)) is not None
