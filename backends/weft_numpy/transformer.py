"""NumPyTransformer: compiles computations to Python functions of NumPy calls."""

from __future__ import annotations

import contextvars
import os
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.cache.serialization import Deserializer, Serializer
from weft.errors import HostMemoryError
from weft.ir.description import TensorDescription
from weft.ir.dtypes import Array
from weft.ir.graph import called_graphs
from weft.ir.op import Op
from weft.ir.target import Target
from weft.kernels import FusedOp
from weft.nn.spatial.convolutions import BilinearConvolutionOp
from weft.plan.plan import ARENA, Step
from weft.runtime.computation import Computation
from weft.runtime.device import DeviceBufferStorage, DeviceTensor, host_view
from weft.runtime.host_threads import requested_threads
from weft.runtime.out_of_memory import note_largest_tensors
from weft.runtime.program import Program
from weft.runtime.transformer import Transformer
from weft.support.backports import override
from weft.support.interrupts import held
from weft.support.locks import cached_property
from weft_numpy.blocks import Linked, ProgramCode
from weft_numpy.code_serialization import deserialize, serialize
from weft_numpy.codegen import CHUNK, ProgramWriter
from weft_numpy.emitter import SCOPE
from weft_numpy.rules import rules
from weft_numpy.rules.sliding import is_product

if TYPE_CHECKING:
    from weft_numpy.kernels.lowering import Kernels

ALIGNMENT = 64
"""The alignment of memory in bytes: a cache line, and the widest vector register."""


class NumPyDeviceTensor(DeviceTensor):
    """A view of host memory; `array` is set when the buffer is allocated."""

    array: np.ndarray[Any, Any]

    def attach(self) -> None:
        """View the buffer's memory."""
        storage = self.storage
        assert isinstance(storage, NumPyDeviceBufferStorage)
        self.array = host_view(self.description, storage.memory)

    @override
    def detach(self) -> None:
        vars(self).pop("array", None)

    def __getattr__(self, name: str) -> Any:
        if name == "array":  # which an attached tensor has
            self.storage.require_allocated()
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    @override
    def get(self, out: Array | None = None) -> np.ndarray[Any, Any]:
        if out is None:
            return self.array.copy()
        np.copyto(out, self.array)
        return out

    def __getitem__(self, key: Any) -> np.ndarray[Any, Any]:
        return np.array(self.array[key])

    def __setitem__(self, key: Any, value: Any) -> None:
        assert isinstance(self.storage, NumPyDeviceBufferStorage)
        self.storage.require_allocated()
        self.storage.own()
        self.array[key] = value


class NumPyDeviceBufferStorage(DeviceBufferStorage):
    """A buffer in host memory, aligned to a cache line.

    A state with a constant as its initial value shares the constant's memory until it is written.
    """

    transformer: NumPyTransformer
    memory: np.ndarray[Any, Any]
    is_shared = False
    program: Program | None = None
    """The program whose values an arena holds."""

    def allocate(self) -> None:
        """Allocate zeroed, aligned memory, or share that of the initial value.

        Raises HostMemoryError if there is not enough.
        """
        if self.initial is not None:
            self.memory = _bytes_of(self.initial.const)
            self.is_shared = True
        else:
            self.memory = self.zeros()

    @override
    def detach(self) -> None:
        super().detach()
        vars(self).pop("memory", None)

    def zeros(self) -> np.ndarray[Any, Any]:
        """Return new, aligned, zeroed memory; raises HostMemoryError if there is not enough."""
        try:
            raw = np.zeros(self.bytes + ALIGNMENT, np.uint8)
        except (MemoryError, ValueError) as error:  # too much for this host, or for any
            raise self._refused() from error
        start = -raw.ctypes.data % ALIGNMENT
        return raw[start : start + self.bytes]

    def _refused(self) -> HostMemoryError:
        what, remedy = self.name, "use smaller arrays"
        if self.program is not None:
            what = f"the {self.name} of {self.program.name}"
            remedy = f"pass memory_limit=, or {remedy}"
        refused = HostMemoryError(f"the host has no {self.bytes:,} bytes for {what}: {remedy}")
        if self.program is not None:
            note_largest_tensors(refused, self.program.captured)
        return refused

    def own(self) -> None:
        """Replace shared memory by a copy; programs bound to it are bound again."""
        if not self.is_shared:
            return
        memory = self.zeros()
        np.copyto(memory, self.memory)
        self.memory = memory
        for tensor in self.views:
            tensor.attach()
        self.transformer.moves += 1
        self.initial, self.is_shared = None, False  # until here an interrupt changes nothing

    @override
    def make_tensor(self, description: TensorDescription) -> NumPyDeviceTensor:
        return NumPyDeviceTensor(self, description)


def _bytes_of(value: Any) -> np.ndarray[Any, Any]:
    array = np.ascontiguousarray(value).reshape(-1)
    return array.view(np.uint8) if array.size else np.empty(0, np.uint8)


class Arena:
    """Memory for the intermediate values of one call at a time, and the programs bound to it."""

    def __init__(self, storage: NumPyDeviceBufferStorage) -> None:
        self.storage = storage
        self.runners: dict[str, Callable[..., None]] = {}
        self.moves = 0
        # A context of its own, in which floating-point warnings are off: entering it costs a
        # tenth of numpy.errstate. It can be entered once at a time, as an arena is.
        self.context = contextvars.copy_context()
        self.context.run(np.seterr, all="ignore")


class NumPyComputation(Computation):
    """A computation of the NumPy backend."""

    def export_source(self, path: str | os.PathLike[str]) -> None:
        """Write the computation as one Python file that needs NumPy alone.

        The file has a function ``call``, which takes the arguments and returns the results, in one
        thread. Constants are part of it, and so are the present values of states, which it updates
        in memory of its own. Raises ArgumentError for unknown lengths, and BackendError for an op
        whose code cannot be gathered, such as collectives, and for dtypes that NumPy lacks.
        """
        from weft_numpy.export import export_source  # which few programs need

        self.transformer.require_open()
        export_source(self, path)


class NumPyTransformer(Transformer):
    """The NumPy backend. Programs without state may run in several threads at once.

    Parameters
    ----------
    threads
        The most threads of a call; by default the value of ``WEFT_NUM_THREADS``, else the number of
        processors that this process may use.
    """

    transformer_name = "numpy"
    computation_class = NumPyComputation
    is_concurrent = True

    def __init__(self, *, threads: int | None = None, **options: Any) -> None:
        super().__init__(**options)
        self._threads = requested_threads(threads)
        self.idle_arenas: list[Arena] = []
        self.moves = 0
        """How often the memory of a state has become another."""
        self._arenas: weakref.WeakSet[Arena] = weakref.WeakSet()

    @property
    @override
    def threads(self) -> int:
        return self._threads

    @cached_property
    def kernels(self) -> Kernels:
        """The kernels of programs; imported on demand, since cached programs do not need them."""
        from weft_numpy.kernels.lowering import Kernels

        return Kernels(self.threads)

    @cached_property
    def target(self) -> Target:
        """The ops and dtypes of the backend."""
        return Target(
            name="numpy",
            supports=_supports,
            rules="weft_numpy.rules.rules",
            fusible=self._fusible,
            max_kernel_values=256,
            takes_prologue=self._takes_prologue,
            alignment=ALIGNMENT,
            workspace=self._workspace,
            dtypes=Target.dtypes | {"float16", "bfloat16", "complex64", "complex128"},
            runs_graphs=True,
            lends_results=True,
            writes_arguments=True,
            fast_math=self.fast_math,
        )

    def close(self) -> None:
        """Release all computations and memory; the transformer cannot be used again."""
        super().close()
        self.idle_arenas.clear()

    def finish_transform(self) -> None:
        """Drop the kernels after they have been written."""
        if "kernels" in vars(self):
            self.kernels.forget()

    def _fusible(self, op: Op) -> bool:
        return self.kernels.fusible(op)

    def _takes_prologue(self, op: Op) -> bool:
        return self.kernels.takes_prologue(op)

    def _workspace(self, op: Op) -> int:
        return self.kernels.workspace(op)

    @override
    def device_buffer_storage(self, nbytes: int, name: str) -> NumPyDeviceBufferStorage:
        return NumPyDeviceBufferStorage(self, nbytes, name)

    @override
    def arena_storage(self, program: Program) -> NumPyDeviceBufferStorage:
        storage = self.device_buffer_storage(program.arena_size, "arena")
        storage.program = program
        return storage

    def constant_storage(self, op: Op) -> NumPyDeviceBufferStorage:
        """Return a buffer that uses the constant's own array."""
        storage = self.device_buffer_storage(op.const.nbytes, f"constant {op.name}")
        storage.initial = op
        return storage

    def set_constant(self, tensor: DeviceTensor, op: Op) -> None:
        """Do nothing: the buffer is the constant's own array."""

    def set_initial(self, tensor: DeviceTensor, op: Op) -> None:
        """Do nothing: the buffer is the constant's array until it is written."""

    def run_registered_graph_passes(self, programs: Iterable[Program]) -> None:
        """Run the passes, and choose the thread policy of each program."""
        programs = list(programs)
        super().run_registered_graph_passes(programs)
        for program in programs:
            for graph in called_graphs(program.graph, own=True):
                self.kernels.choose_threads(graph.ops)

    def transform_ordered_ops(
        self, program: Program, ordered_ops: Sequence[Step], name: str
    ) -> Callable[..., None]:
        """Generate, compile and return a function."""
        code = ProgramWriter(program, self.kernels).write(ordered_ops)
        return self._runner(program, code)

    @override
    def code_options(self) -> Sequence[Any]:
        return [self.threads, CHUNK, [(kind, rules[kind]) for kind in rules]]

    @override
    def export(self, program: Program, serializer: Serializer) -> Any:
        return serialize(program.code, serializer)

    def restore(self, program: Program, deserializer: Deserializer) -> Callable[..., None]:
        """Compile generated code and return the function."""
        return self._runner(program, deserialize(deserializer))

    def _runner(self, program: Program, code: ProgramCode) -> Callable[..., None]:
        """Return a function that runs a program in an arena of its own for each concurrent call."""
        program.code, program.source = code, code.listing
        program.source_locations = code.listed_locations
        linked = Linked(code, SCOPE, program.name)
        key = program.name
        take, give = self.idle_arenas.pop, self.idle_arenas.append

        def run(*arrays: Any) -> None:
            try:
                arena = take()
            except IndexError:
                arena = held(self._bound, None, program, linked)
            runner = arena.runners.get(key) if arena.moves == self.moves else None
            if runner is None:
                arena = held(self._bound, arena, program, linked)
                runner = arena.runners[key]
            try:
                runner(*arrays)
            except Exception as error:
                linked.add_notes(error)
                raise
            finally:
                give(arena)

        return run

    def _bound(self, arena: Arena | None, program: Program, linked: Linked) -> Arena:
        """Return a large enough arena, with the program bound to it."""
        with self.state_lock:
            self.require_open()  # it may have been closed since the call began
            for state, _ in program.captured.updates:  # they have memory that is not shared
                tensor = self.state_tensors.get(state)
                if tensor is not None:
                    assert isinstance(tensor.storage, NumPyDeviceBufferStorage)
                    tensor.storage.own()
            needed = program.arena_size
            if arena is None or arena.storage.bytes < needed:
                arena = self._new_arena(needed, replaced=arena)
            if arena.moves != self.moves:
                arena.runners.clear()
                arena.moves = self.moves
            run = linked.bound(partial(_array, program.storages, arena.storage))
            if program.captured.updates:
                # An interrupt waits until all states are new; others end a call between steps.
                run = partial(held, run)
            arena.runners[program.name] = partial(arena.context.run, run)
            return arena

    def _new_arena(self, needed: int, replaced: Arena | None) -> Arena:
        """Return an arena in the transformer's memory if that is free and large enough.

        Else it has memory of its own, which goes when it does: an interrupt may take it from a
        call before the call has it.
        """
        if replaced is not None:
            self.device_buffers.discard(replaced.storage)
        shared = self.arena
        is_free = all(each.storage is not shared for each in self._arenas)
        if isinstance(shared, NumPyDeviceBufferStorage) and is_free and shared.bytes >= needed:
            arena = Arena(shared)
        else:
            storage = NumPyDeviceBufferStorage(self, needed, "arena of another thread")
            storage.allocate_with_views()
            arena = Arena(storage)
            weakref.finalize(arena, self.device_buffers.discard, storage).atexit = False
        self._arenas.add(arena)
        return arena


def _array(storages: Any, arena: Any, tensor: TensorDescription) -> Any:
    """Return the array with a layout in an arena, or in a program's other memory."""
    storage = arena if tensor.base.kind == ARENA else storages[tensor.base]
    return storage.device_tensor(tensor).array


def _supports(op: Op) -> bool:
    if isinstance(op, BilinearConvolutionOp) and is_product(op):
        return False
    return isinstance(op, FusedOp) or rules.supports(op)
