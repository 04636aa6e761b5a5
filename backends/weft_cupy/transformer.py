"""CuPyTransformer: compiles computations to programs in CUDA C."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

from weft.kernels import c
from weft.kernels.c import keeping
from weft.op import Op
from weft.packing import Packing, Unpacking
from weft.plan import Step
from weft.program import Program
from weft.target import Target
from weft.transformer import Transformer
from weft_cupy.blas import Blas
from weft_cupy.device import ALIGNMENT, Queue
from weft_cupy.devices import choose, summary
from weft_cupy.executor import CUDAKernelGroup
from weft_cupy.memory import CuPyStorage


class CuPyTransformer(Transformer):
    """The CuPy backend: NVIDIA GPUs, with CUDA's driver, compiler and BLAS as CuPy finds them.

    Calls run one at a time, in one stream, and wait for the device once.

    Parameters
    ----------
    device
        The GPU: its number in the driver's order, or a part of its name. Without it what
        ``WEFT_CUPY_DEVICE`` says, else the first that can be used.

    Attributes
    ----------
    processor
        The device as kernels are written for it.
    """

    transformer_name = "cupy"

    def __init__(self, *, device: int | str | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.device = choose(device)
        self.processor = self.device.processor
        self.queue = Queue(self.device)
        self._groups: list[CUDAKernelGroup] = []

    @classmethod
    def probe(cls) -> tuple[str | None, str]:
        """Return the device that would be chosen, or None and why there is none."""
        return summary()

    @cached_property
    def blas(self) -> Blas:
        """CuBLAS, which is asked for when the first program has a product for it."""
        return Blas(self.queue, self.fast_math)

    @cached_property
    def target(self) -> Target:
        """Any rank and any strides; no complex numbers."""
        return target_of(self.scratch_bytes, self.fast_math)

    def scratch_bytes(self, op: Op) -> int:
        """Return the bytes of scratch memory that an op takes while it runs."""
        return c.scratch_bytes(op, self.processor)

    def device_buffer_storage(self, nbytes: int, name: str) -> CuPyStorage:
        """Return a new, unallocated buffer."""
        return CuPyStorage(self, nbytes, name)

    def transform_ordered_ops(
        self, program: Program, ordered_ops: Sequence[Step], name: str
    ) -> Callable[..., None]:
        """Write, build and return the program."""
        group = CUDAKernelGroup(self, program)
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
        group = CUDAKernelGroup(self, program)
        keeping.restore(group, unpacking)
        return self._built(group)

    def _built(self, group: CUDAKernelGroup) -> CUDAKernelGroup:
        group.build()
        self._groups.append(group)
        return group

    def close(self) -> None:
        """Give all memory of the device back; the transformer cannot be used again."""
        with self.state_lock:
            buffers = [each for each in self.device_buffers if isinstance(each, CuPyStorage)]
            super().close()
            groups, self._groups = self._groups, []
            with suppress(*self.device.errors), self.device.handle:
                for group in groups:
                    group.close()
                if "blas" in self.__dict__:
                    self.blas.close()
                for buffer in buffers:
                    buffer.release()
                self.queue.close()


def target_of(workspace: Callable[[Op], int], fast_math: bool = False) -> Target:
    """Return what kernels can compute that take so much scratch memory for an op."""
    return Target(
        name="cupy",
        supports=_supports,
        fusible=c.fusible,
        alignment=ALIGNMENT,
        workspace=workspace,
        dtypes=Target.dtypes | {"float16", "bfloat16"},
        fast_math=fast_math,
    )


def _supports(op: Op) -> bool:
    return c.rules.find(type(op)) is not None
