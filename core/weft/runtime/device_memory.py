"""Device memory: the buffers, states and arena of a transformer, and their allocation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from weft.errors import AxesError
from weft.ir.axes import Axes
from weft.ir.description import contiguous
from weft.ir.graph import Graph
from weft.ir.op import Op
from weft.ir.storage import ReadOp
from weft.plan.plan import ARENA, CONSTANT, STATE, Buffer
from weft.runtime.device import DeviceBufferStorage, DeviceTensor
from weft.runtime.interface import BackendInterface
from weft.runtime.program import Program
from weft.support.ordered_set import OrderedSet


class DeviceMemory(BackendInterface):
    """The device memory of a transformer.

    Attributes
    ----------
    device_buffers
        Every device buffer, allocated or not.
    unallocated
        Those that have no memory yet.
    allocations
        Allocations that `allocate_storage` has not run yet.
    state_tensors
        The device tensor of each state.
    initial_constants
        The states to initialise by copying a constant.
    arena
        The arena that all programs share, as large as the largest plan needs.
    allocated
        Whether the buffers have been allocated.
    """

    def __init__(self) -> None:
        self.device_buffers: OrderedSet[DeviceBufferStorage] = OrderedSet()
        self.unallocated: OrderedSet[DeviceBufferStorage] = OrderedSet()
        self.allocations: list[Callable[[], None]] = []
        self.state_tensors: dict[Any, DeviceTensor] = {}
        self.initial_constants: dict[Any, Op] = {}
        self.arena: DeviceBufferStorage | None = None
        self.allocated = False

    def forget_memory(self) -> None:
        """Release all buffers, and what tensors hold of their memory."""
        for storage in self.device_buffers:
            storage.detach()
        self.device_buffers, self.unallocated, self.allocations = OrderedSet(), OrderedSet(), []
        self.state_tensors = {}
        self.arena = None

    @contextmanager
    def memory_restored_on_error(self) -> Iterator[None]:
        """Release the buffers created in the ``with`` block if it raises."""
        states, buffers, arena = (
            dict(self.state_tensors),
            OrderedSet(self.device_buffers),
            self.arena,
        )
        try:
            yield
        except BaseException:
            self.state_tensors, self.device_buffers, self.allocations = states, buffers, []
            self.unallocated = OrderedSet(each for each in self.unallocated if each in buffers)
            self.arena = arena
            raise

    def transform_allocate(self, programs: Iterable[Program]) -> None:
        """Create the buffers and tensors of programs, and the allocations of all new buffers."""
        for program in programs:
            self.initialize_tensor_descriptions(program)
        for state, op in self.initial_constants.items():
            if state not in self.state_tensors:
                self._state_tensor(state, op.const.nbytes, op.axes)
        self.start_transform_allocate()
        for storage in [each for each in self.unallocated if each in self.device_buffers]:
            storage.transform_allocate()
        self.finish_transform_allocate()

    def initialize_tensor_descriptions(self, program: Program) -> None:
        """Create the device buffers and tensors of a program's plan."""
        solved = _solved_axes(program.captured)
        for buffer in program.buffers:
            storage = self._storage(buffer, program, solved)
            if storage is not None:
                program.storages[buffer] = storage

    def _storage(
        self, buffer: Buffer, program: Program, solved: Mapping[Any, Axes]
    ) -> DeviceBufferStorage | None:
        if buffer.kind == ARENA:
            if self.arena is None or self.arena.bytes < program.arena_size:
                self.arena = self.arena_storage(program)
            return self.arena
        if buffer.kind == STATE:
            return self._state_tensor(buffer.owner, buffer.nbytes, solved[buffer.owner]).storage
        return self.constant_storage(buffer.owner) if buffer.kind == CONSTANT else None

    def _state_tensor(self, state: Any, nbytes: int, axes: Axes) -> DeviceTensor:
        found = self.state_tensors.get(state)
        if found is None:
            storage = self.device_buffer_storage(nbytes, state.name)
            description = contiguous(axes.shape, state.dtype)
            storage.initial = self.initial_constants.get(state)
            found = self.state_tensors[state] = storage.device_tensor(description)
        if found.storage.bytes != nbytes:
            raise AxesError(
                f"{state} was made with shape {found.shape}, but this computation needs another "
                f"shape for {state.axes}: use a transformer of its own\n  {state.file_info}"
            )
        return found

    def allocate_storage(self) -> None:
        """Run the transformed allocations."""
        pending, self.allocations = self.allocations, []
        for allocate in pending:
            allocate()

    def allocate(self, programs: Iterable[Program]) -> None:
        """Allocate buffers and set constants from their host values."""
        self.allocate_storage()
        for program in programs:
            for buffer, storage in program.storages.items():
                if buffer.kind == CONSTANT:
                    op = buffer.owner
                    place = contiguous(op.axes.shape, op.dtype)
                    self.set_constant(storage.device_tensor(place), op)
        self.allocated = True

    def set_initial_constants(self) -> None:
        """Copy the constant initial values of states."""
        for state, op in self.initial_constants.items():
            self.set_initial(self.state_tensors[state], op)


def _solved_axes(graph: Graph) -> dict[Any, Axes]:
    """Return the axes of each state as the graph solves them."""
    solved = {op.state: op.axes for op in graph.ops if isinstance(op, ReadOp)}
    return solved | {state: value.axes for state, value in graph.updates}
