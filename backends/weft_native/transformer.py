"""NativeTransformer: compiles computations to C for the processors of this machine."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from weft.ir.op import Op
from weft.runtime.computation import Computation
from weft.runtime.program import Program
from weft.support.backports import override
from weft_c.runtime.kernel_group import GPUKernelGroup
from weft_c.runtime.storage import Bytes, CopiedStorage, bytes_of
from weft_c.runtime.transformer import DeviceTransformer
from weft_native import compiler
from weft_native.device import Host, Memory
from weft_native.executor import NativeKernelGroup
from weft_native.export import export_c
from weft_native.library import runtime


class NativeComputation(Computation):
    """A computation of the native backend."""

    transformer: NativeTransformer

    def export_c(
        self, folder: str | os.PathLike[str], name: str | None = None
    ) -> tuple[Path, Path]:
        """Write the computation as a C function, for programs without Python.

        The files ``NAME.c`` and ``NAME.h`` hold C11 with no dependency but libm: scalar code, one
        thread, static memory. `name` is that of the function and the files, by default the
        computation's; one that C has for something else, such as ``exp``, begins with ``weft_``.
        Constants are part of the source, and so are the present values of states,
        which the function updates in its own memory. Unknown lengths are arguments of the function,
        before the arrays, and need a maximum. What was exported under the same name is replaced.
        Returns the paths. Raises ArgumentError for an unknown length without a maximum, a state of
        unknown length, unknown lengths with a limit on memory, more than 65,536 combinations of
        lengths or 32 kinds of code, and where another file is in the way, such as the export of
        another name that becomes the same in C; BackendError for ops that Python computes: effects
        and matrix decompositions.
        """
        return export_c(self, folder, name)


class NativeTransformer(DeviceTransformer):
    """The native backend: C for this machine, compiled by its own compiler.

    Parameters
    ----------
    threads
        The most threads of a call; by default the value of ``WEFT_NUM_THREADS``, else the number of
        processors that this process may use.
    """

    transformer_name = "native"
    computation_class = NativeComputation
    survives_fork = True
    shares_code = True
    device: Host

    def __init__(self, *, threads: int | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.device = Host(threads)
        self.processor = self.device.processor
        self.workspace_pool.on_release = self._unbind

    @property
    @override
    def threads(self) -> int:
        return self.processor.units

    @override
    def on_one_thread(self) -> AbstractContextManager[None] | None:
        return self.device.runtime.on_one_thread() if self.threads > 1 else None

    def _unbind(self) -> None:
        for group in self._groups:
            assert isinstance(group, NativeKernelGroup), "the transformer makes no others"
            group.unbind()

    def _built(self, group: GPUKernelGroup) -> Callable[..., None]:
        assert isinstance(group, NativeKernelGroup), "the transformer makes no others"
        run = super()._built(group)
        return group.entry() if group.recorder is None else run

    @classmethod
    def probe(cls) -> tuple[str | None, str]:
        """Return the compiler, or None and how to get one.

        Raises BackendError for a compiler that does not compile the runtime of programs.
        """
        try:
            compiler.command()
        except compiler.NoCompilerError as error:
            return None, error.problem
        runtime()
        return " ".join(compiler.command()), ""

    @override
    def device_buffer_storage(self, nbytes: int, name: str) -> NativeStorage:
        return NativeStorage(self, nbytes, name)

    @override
    def new_constant_storage(self, op: Op) -> NativeStorage:
        return NativeConstantStorage(self, op.const.nbytes, f"constant {op.name}")

    def make_workspace(self, nbytes: int, what: str) -> Memory:
        """Allocate memory; raises DeviceMemoryError if there is not enough."""
        return self.device.memory(nbytes, what)

    @override
    def kernel_group(self, program: Program) -> NativeKernelGroup:
        return NativeKernelGroup(self, program)


class NativeStorage(CopiedStorage[Memory]):
    """Memory of the host, which programs and the host access in place."""

    transformer: NativeTransformer

    def make_memory(self) -> Memory:
        """Allocate zeroed memory; raises DeviceMemoryError if there is not enough."""
        return self.transformer.device.memory(self.bytes, self.name)

    def read(self, start: int, size: int) -> Bytes:
        """Return a view of a range of bytes."""
        return self.memory.host[start : start + size]

    def write(self, start: int, bytes_: Bytes) -> None:
        """Do nothing: `read` returned the memory itself."""


class NativeConstantStorage(NativeStorage):
    """The buffer of a constant: its own array."""

    def make_memory(self) -> Memory:
        """Use the constant's array, unless it is not aligned as memory is."""
        assert self.constant is not None
        found = bytes_of(self.constant)
        self.is_set = bool(found.size) and found.ctypes.data % self.constant.itemsize == 0
        return Memory(self.transformer.device, found) if self.is_set else super().make_memory()
