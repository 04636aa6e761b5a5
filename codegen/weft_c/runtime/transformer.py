"""DeviceTransformer: the base of backends for devices that are programmed in C."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

from weft.cache.serialization import Deserializer, Serializer
from weft.errors import BackendError
from weft.ir.op import Op
from weft.ir.target import Target
from weft.plan.plan import Step
from weft.runtime.device import DeviceTensor
from weft.runtime.program import Program
from weft.runtime.transformer import Transformer
from weft.support.backports import override
from weft.support.locks import cached_property
from weft_c.fused import fusible
from weft_c.legalization import legalized
from weft_c.lowering import rules, scratch_bytes
from weft_c.matmul.products import takes_prologue
from weft_c.processor import Processor
from weft_c.runtime import segment_serialization
from weft_c.runtime.device import DeviceMemory, OpenDevice
from weft_c.runtime.errors import (
    BuildError,
    DeviceMemoryError,
    build_error_of_rules,
    largest_values,
)
from weft_c.runtime.kernel_group import GPUKernelGroup
from weft_c.runtime.storage import CopiedStorage
from weft_c.runtime.workspace_pool import WorkspacePool
from weft_tiling.machine import Machine

LEAST_ALIGNMENT = 256
"""The minimal alignment of tensors, in bytes."""


class DeviceTransformer(Transformer):
    """A backend that generates one program in C for each computation.

    A subclass sets `device` and `processor`, and creates storages and kernel groups.

    Attributes
    ----------
    device
        The open device.
    processor
        The properties that kernels are generated for.
    workspace_pool
        The memory that programs use in turn: arenas, and copies of arrays.
    """

    device: OpenDevice
    processor: Processor
    survives_fork = False

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._groups: list[GPUKernelGroup] = []
        self._constants: WeakValueDictionary[int, CopiedStorage[Any]] = WeakValueDictionary()
        self.workspace_pool: WorkspacePool[Any] = WorkspacePool(self.make_workspace)

    @abstractmethod
    def device_buffer_storage(self, nbytes: int, name: str) -> CopiedStorage[Any]:
        """Return a new, unallocated buffer."""

    @abstractmethod
    def make_workspace(self, nbytes: int, what: str) -> DeviceMemory:
        """Allocate uninitialized memory; raises DeviceMemoryError if there is not enough."""

    @abstractmethod
    def kernel_group(self, program: Program) -> GPUKernelGroup:
        """Return a new, empty executor of a program."""

    @property
    @override
    def device_name(self) -> str:
        return self.device.name

    @cached_property
    def target(self) -> Target:
        """The ops and dtypes that the backend supports; float64 where the device has it."""
        target = target_of(self.transformer_name, self.processor, self.fast_math)
        return replace(
            target,
            legalized=self.legalized,
            fusible=self.fusible,
            takes_prologue=self.takes_prologue,
            workspace=self.scratch_bytes,
            writes_arguments=True,
        )

    def legalized(self, op: Op) -> Op | None:
        """Return the replacement of an op, or None for the op itself."""
        return legalized(op, self.processor)

    def fusible(self, op: Op) -> bool:
        """Whether an op can be an instruction of a fused kernel."""
        return fusible(op, self.processor)

    def takes_prologue(self, product: Op) -> bool:
        """Whether the kernel of a matrix product may also compute its first operand."""
        return takes_prologue(product, self.processor)

    def scratch_bytes(self, op: Op) -> int:
        """Return the bytes of scratch memory that an op needs."""
        return scratch_bytes(op, self.processor)

    def arena_storage(self, program: Program) -> CopiedStorage[Any]:
        """Return the arena of a program; all programs share its memory."""
        storage = self.device_buffer_storage(program.arena_size, "arena")
        storage.memory_provider = partial(self._arena, program, storage.bytes)
        return storage

    def _arena(self, program: Program, nbytes: int) -> DeviceMemory:
        self.require_open()
        what = f"the arena of {program.name}"
        try:
            arena: DeviceMemory = self.workspace_pool.reserve("arena", nbytes, what)
        except DeviceMemoryError as error:
            raise DeviceMemoryError(f"{error.problem}\n{largest_values(program)}") from error
        return arena

    def constant_storage(self, op: Op) -> CopiedStorage[Any]:
        """Return the buffer of a constant, which all programs that read it share."""
        storage = self._constants.get(id(op.const))
        if storage is None or storage not in self.device_buffers:
            storage = self.new_constant_storage(op)
            storage.constant = op.const  # held, so that no other array can get its id
            self._constants[id(op.const)] = storage
        return storage

    def new_constant_storage(self, op: Op) -> CopiedStorage[Any]:
        """Return a new, unallocated buffer for a constant."""
        return self.device_buffer_storage(op.const.nbytes, f"constant {op.name}")

    def set_constant(self, tensor: DeviceTensor, op: Op) -> None:
        """Copy the value of a constant to its buffer, once."""
        storage: Any = tensor.storage
        if not storage.is_set:
            super().set_constant(tensor, op)
            storage.is_set = True

    def transform_ordered_ops(
        self, program: Program, ordered_ops: Sequence[Step], name: str
    ) -> Callable[..., None]:
        """Generate, compile and return the program."""
        group = self.kernel_group(program)
        _add_steps(group, ordered_ops)
        return self._built(group)

    @override
    def lower(self, program: Program) -> None:
        group = program.code = self.kernel_group(program)
        _add_steps(group, program.plan.steps)
        group.launch_small()

    def code_options(self) -> Sequence[Any]:
        """Return the processor, its tilings and the rules, on which generated code depends."""
        return [self.processor, Machine, [(kind, rules[kind]) for kind in rules]]

    def export(self, program: Program, serializer: Serializer) -> Any:
        """Return the functions and segments of a program as JSON."""
        return segment_serialization.serialize(program.code, serializer)

    def restore(self, program: Program, deserializer: Deserializer) -> Callable[..., None]:
        """Compile the source of an exported program and return the program."""
        group = self.kernel_group(program)
        group.numbers = deserializer.numbers
        segment_serialization.restore(group, deserializer)
        return self._built(group)

    def _built(self, group: GPUKernelGroup) -> Callable[..., None]:
        """Compile a program and return the function that runs it."""
        try:
            group.build()
        except BuildError as error:
            locations = group.program.source_locations
            raise build_error_of_rules(error, group.foreign_ops, locations) from None
        self._groups.append(group)
        return group if group.recorder is None else group.recorded_call

    def require_open(self) -> None:
        """Raise StateError if the transformer has been closed, BackendError without a device."""
        super().require_open()
        if self.is_forked:
            raise BackendError(self.device.lost)

    def close(self) -> None:
        """Release all device memory; the transformer cannot be used again."""
        with self.state_lock:
            buffers = [each for each in self.device_buffers if isinstance(each, CopiedStorage)]
            super().close()
            if not self.is_forked:
                groups, self._groups = self._groups, []
                self.give_back(groups, buffers)

    def give_back(
        self, groups: Iterable[GPUKernelGroup], buffers: Iterable[CopiedStorage[Any]]
    ) -> None:
        """Release executors, then buffers; a backend extends it for other resources."""
        for group in groups:
            group.close()
        for buffer in buffers:
            buffer.release()
        self.workspace_pool.release()


def _add_steps(group: GPUKernelGroup, steps: Sequence[Step]) -> None:
    if len(steps) == 1 and not steps[0].op.graphs:
        group.processor = group.processor.alone
    for step in steps:
        group.add_kernel(step)


def target_of(name: str, processor: Processor, fast_math: bool = False) -> Target:
    """Return the target of a processor: the ops and dtypes that kernels can compute."""
    names = Target.dtypes | {"float16", "bfloat16"}
    return Target(
        name=name,
        supports=rules.supports,
        refusal=rules.refusal,
        rules="weft_c.rules",
        legalized=partial(legalized, processor=processor),
        fusible=partial(fusible, processor=processor),
        max_product_row=0,
        takes_prologue=partial(takes_prologue, processor=processor),
        repeats_kernels=True,
        alignment=max(processor.alignment, LEAST_ALIGNMENT),
        workspace=partial(scratch_bytes, processor=processor),
        dtypes=names if processor.has_fp64 else names - {"float64"},
        runs_graphs=True,
        fast_math=fast_math,
    )
