"""WebGPUTransformer: compiles computations to compute shaders in WGSL."""

from __future__ import annotations

from functools import partial
from typing import Any

from weft.ir import dtypes
from weft.ir.target import Target
from weft.runtime.program import Program
from weft.support.backports import override
from weft.support.locks import cached_property
from weft_c.runtime.transformer import DeviceTransformer
from weft_tiling.machine import Machine
from weft_webgpu import lowering, products
from weft_webgpu.arrays import WebGPUArrays
from weft_webgpu.device import WORD, Device, Memory
from weft_webgpu.devices import choose, summary
from weft_webgpu.executor import WebGPUKernelGroup
from weft_webgpu.memory import WebGPUStorage

WIDE = frozenset({"int64", "uint64"})


class WebGPUTransformer(DeviceTransformer):
    """The WebGPU backend: every GPU with a driver for Vulkan, Metal or Direct3D 12.

    Calls run one at a time, and wait for the device once.

    Parameters
    ----------
    device
        The adapter: its number among those of the machine, or a part of its name. The default is
        the value of ``WEFT_WEBGPU_DEVICE``, else the best adapter.
    int64
        Whether 64-bit integers are computed where the adapter has them; without, as in browsers,
        positions and counts have 32 bits inside of programs.
    """

    transformer_name = "webgpu"
    device: Device

    def __init__(
        self, *, device: int | str | None = None, int64: bool = True, **options: Any
    ) -> None:
        super().__init__(**options)
        self.device = choose(device)
        self.has_int64 = int64 and self.device.has_int64
        self.processor = self.device.processor

    @classmethod
    def probe(cls) -> tuple[str | None, str]:
        """Return the adapter that would be selected with its limits, or why there is none."""
        return summary()

    @cached_property
    def device_arrays(self) -> WebGPUArrays:
        """The arrays in the memory of the adapter."""
        return WebGPUArrays(self.device)

    @cached_property
    def target(self) -> Target:
        """The ops and dtypes that shaders compute; 64-bit integers where the adapter has them."""
        names = Target.dtypes - {"float64"} | {"float16", "bfloat16"}
        return Target(
            name=self.transformer_name,
            supports=lowering.rules.supports,
            rules="weft_webgpu.lowering.rules",
            fusible=lowering.fusible,
            max_product_row=0,
            takes_prologue=partial(products.takes_prologue, processor=self.processor),
            dtypes=names if self.has_int64 else names - WIDE,
            repeats_kernels=True,
            writes_arguments=True,
            index_dtype=dtypes.int64 if self.has_int64 else dtypes.int32,
            word_bytes=WORD,
            max_kernel_buffers=self.device.limits["max-storage-buffers-per-shader-stage"],
            alignment=self.processor.alignment,
            workspace=partial(lowering.scratch_bytes, processor=self.processor),
            runs_graphs=True,
            fast_math=self.fast_math,
            special_values=self.device.has_special_values,
        )

    @override
    def code_options(self) -> list[Any]:
        table = lowering.rules
        return [self.processor, Machine, self.has_int64, [(kind, table[kind]) for kind in table]]

    @override
    def device_buffer_storage(self, nbytes: int, name: str) -> WebGPUStorage:
        return WebGPUStorage(self, nbytes, name)

    def make_workspace(self, nbytes: int, what: str) -> Memory:
        """Allocate zeroed memory; raises DeviceMemoryError if there is not enough."""
        return self.device.memory(nbytes, what)

    @override
    def kernel_group(self, program: Program) -> WebGPUKernelGroup:
        return WebGPUKernelGroup(self, program)
