"""NumPyTransformer: compiles computations to Python functions of NumPy calls."""

from __future__ import annotations

import contextvars
import linecache
import weakref
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from weft.description import TensorDescription
from weft.device import DeviceBufferStorage, DeviceTensor, host_view
from weft.op import Op
from weft.plan import ARENA, Step
from weft.program import Program
from weft.target import Target
from weft.transformer import Transformer
from weft_numpy.codegen import Module
from weft_numpy.rules import rules

ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector register."""


class NumPyDeviceTensor(DeviceTensor):
    """A view of host memory; `array` is there once the buffer is allocated."""

    array: np.ndarray[Any, Any]

    def attach(self) -> None:
        """View the buffer's memory."""
        storage = self.storage
        assert isinstance(storage, NumPyDeviceBufferStorage)
        self.array = host_view(self.description, storage.memory)

    def get(self, out: Any = None) -> np.ndarray[Any, Any]:
        """Copy the elements into `out`, or into a new array, and return it."""
        if out is None:
            return self.array.copy()
        np.copyto(out, self.array)
        return out  # type: ignore[no-any-return]

    def __getitem__(self, key: Any) -> np.ndarray[Any, Any]:
        return np.array(self.array[key])

    def __setitem__(self, key: Any, value: Any) -> None:
        self.array[key] = value


class NumPyDeviceBufferStorage(DeviceBufferStorage):
    """A stretch of host memory, aligned to a cache line."""

    memory: np.ndarray[Any, Any]

    def allocate(self) -> None:
        """Make zeroed, aligned memory."""
        raw = np.zeros(self.bytes + ALIGNMENT, np.uint8)
        start = -raw.ctypes.data % ALIGNMENT
        self.memory = raw[start : start + self.bytes]

    def make_tensor(self, description: TensorDescription) -> NumPyDeviceTensor:
        """Return a tensor on this buffer."""
        return NumPyDeviceTensor(self, description)


class NumPyConstantStorage(NumPyDeviceBufferStorage):
    """The memory of a constant that is in the host's memory already."""

    def __init__(self, transformer: Transformer, op: Op) -> None:
        super().__init__(transformer, op.const.nbytes, f"constant {op.name}")
        self.value = op.const

    def allocate(self) -> None:
        """Use the constant's own array."""
        array = np.ascontiguousarray(self.value).reshape(-1)
        self.memory = array.view(np.uint8) if array.size else np.empty(0, np.uint8)


class Arena:
    """Memory for the intermediate values of one call at a time, and the programs bound to it."""

    def __init__(self, storage: NumPyDeviceBufferStorage) -> None:
        self.storage = storage
        self.runners: dict[str, Callable[..., None]] = {}
        # A context of its own, in which floating-point warnings are off: entering it costs a
        # tenth of numpy.errstate. It can be entered once at a time, as an arena is.
        self.context = contextvars.copy_context()
        self.context.run(np.seterr, all="ignore")


class BoundLater(NamedTuple):
    """A compiled chunk of a program, and the fixed arrays that bind it to an arena."""

    bind: Callable[..., Callable[..., None]]
    tensors: list[TensorDescription]


class NumPyTransformer(Transformer):
    """The NumPy backend. Programs without state may run in several threads at once."""

    transformer_name = "numpy"
    is_concurrent = True

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.idle_arenas: list[Arena] = []
        self._arenas_in_use: weakref.WeakSet[NumPyDeviceBufferStorage] = weakref.WeakSet()

    @cached_property
    def target(self) -> Target:
        """Any rank and any strides."""
        return Target(
            name="numpy",
            supports=_supports,
            alignment=ALIGNMENT,
            dtypes=Target.dtypes | {"float16", "bfloat16", "complex64", "complex128"},
            fast_math=self.fast_math,
        )

    def close(self) -> None:
        """Let go of all computations and memory; the transformer cannot be used again."""
        super().close()
        self.idle_arenas.clear()

    def device_buffer_storage(self, nbytes: int, name: str) -> NumPyDeviceBufferStorage:
        """Return a new, unallocated buffer."""
        return NumPyDeviceBufferStorage(self, nbytes, name)

    def constant_storage(self, op: Op) -> NumPyDeviceBufferStorage:
        """Return a buffer that uses the constant's own array."""
        return NumPyConstantStorage(self, op)

    def set_constant(self, tensor: DeviceTensor, op: Op) -> None:
        """Do nothing: the buffer is the constant's own array."""

    def transform_ordered_ops(
        self, program: Program, ordered_ops: Sequence[Step], name: str
    ) -> Callable[..., None]:
        """Generate, compile and return a function."""
        module = Module(program)
        chunks = module.write(ordered_ops, rules.find)
        program.source = "\n\n".join(chunk.text for chunk in chunks)
        parts = [
            BoundLater(_compiled(chunk.text, module.scope, program, number), chunk.tensors)
            for number, chunk in enumerate(chunks)
        ]
        return self._runner(program, parts)

    def _runner(self, program: Program, parts: list[BoundLater]) -> Callable[..., None]:
        """Return a function that runs a program in an arena that nobody else uses meanwhile."""
        key = program.name
        take, give = self.idle_arenas.pop, self.idle_arenas.append

        def run(*arrays: Any) -> None:
            try:
                arena = take()
            except IndexError:
                arena = self._bound(None, program, parts)
            runner = arena.runners.get(key)
            if runner is None:
                arena = self._bound(arena, program, parts)
                runner = arena.runners[key]
            try:
                runner(*arrays)
            except Exception as error:
                _note_line(error)
                raise
            finally:
                give(arena)

        return run

    def _bound(self, arena: Arena | None, program: Program, parts: list[BoundLater]) -> Arena:
        """Return an arena that is large enough, with the program bound to it."""
        needed = program.plan.arena_size
        if arena is None or arena.storage.bytes < needed:
            with self.state_lock:
                arena = Arena(self._arena_storage(needed, replaced=arena))
        runs = [
            part.bind([self._array(tensor, program, arena) for tensor in part.tensors])
            for part in parts
        ]
        whole = runs[0] if len(runs) == 1 else partial(_run_all, runs)
        arena.runners[program.name] = partial(arena.context.run, whole)
        return arena

    def _arena_storage(self, needed: int, replaced: Arena | None) -> NumPyDeviceBufferStorage:
        """Return the transformer's arena if it is free and large enough, else one of its own."""
        if replaced is not None:
            self.device_buffers.discard(replaced.storage)
        shared = self.arena
        if (
            isinstance(shared, NumPyDeviceBufferStorage)
            and shared not in self._arenas_in_use
            and shared.bytes >= needed
        ):
            self._arenas_in_use.add(shared)
            return shared
        storage = NumPyDeviceBufferStorage(self, needed, "arena of another thread")
        storage.allocate_with_views()
        return storage

    def _array(
        self, description: TensorDescription, program: Program, arena: Arena
    ) -> np.ndarray[Any, Any]:
        in_arena = description.base.kind == ARENA
        storage = arena.storage if in_arena else program.storages[description.base]
        tensor = storage.device_tensor(description)
        assert isinstance(tensor, NumPyDeviceTensor)
        return tensor.array


def _compiled(
    text: str, scope: dict[str, Any], program: Program, number: int
) -> Callable[..., Callable[..., None]]:
    """Compile a chunk under a name of its own, where tracebacks find its lines."""
    filename = f"<weft numpy {program.name}.{number} {id(program):x}>"
    exec(compile(text, filename, "exec"), scope)
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    weakref.finalize(program, linecache.cache.pop, filename, None)
    bind: Callable[..., Callable[..., None]] = scope.pop("bind")
    return bind


def _note_line(error: BaseException) -> None:
    """Add the generated statement that failed, and the user's line above it, to an error."""
    trace = error.__traceback__
    while trace is not None:
        filename, number = trace.tb_frame.f_code.co_filename, trace.tb_lineno
        if filename.startswith("<weft numpy"):
            lines = [line.strip() for line in linecache.getlines(filename)[:number]]
            above = next((line for line in reversed(lines) if line.startswith("#")), "")
            error.add_note(f"in generated code: {lines[-1]}\n  {above}")
        trace = trace.tb_next


def _run_all(runs: list[Callable[..., None]], *arrays: Any) -> None:
    for run in runs:
        run(*arrays)


def _supports(op: Op) -> bool:
    return rules.find(type(op)) is not None
