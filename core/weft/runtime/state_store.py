"""The state store: buffers, states and their first values, and what becomes of them in a fork.

It compiles nothing: the transformer, which is one, hands it programs and asks it for memory.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from weft.errors import AxesError, NotPicklable, StateError
from weft.ir.axes import Axes
from weft.ir.description import contiguous
from weft.ir.graph import Graph
from weft.ir.op import Op
from weft.ir.storage import AssignableTensorOp, ReadOp, host_value
from weft.plan.plan import ARENA, CONSTANT, STATE, Buffer
from weft.runtime.device import DeviceBufferStorage, DeviceTensor
from weft.runtime.exchanges import are_shared
from weft.runtime.interface import BackendInterface
from weft.runtime.missing_values import missing_value, reads_without_value
from weft.runtime.program import Program
from weft.support.backports import after_fork
from weft.support.locks import renew
from weft.support.ordered_set import OrderedSet
from weft.transforms.state_initializers import initializers_of

States = Iterable[Any] | Mapping[str, Any]
"""States, or states by the names that they have in files."""

FORKED = (
    "another thread used this transformer when the process was forked, so its states may be half "
    "written here: make another one, or fork while nothing runs"
)

_stores: weakref.WeakSet[StateStore] = weakref.WeakSet()


def _after_fork() -> None:
    """Decide for each store whether it can be used in a forked process.

    That has only the forking thread. If another one was in a call or compiled, states may be half
    written. No backend has a say in this: it only declares whether its device survives a fork.
    """
    for each in list(_stores):
        was_in_use = renew(each.state_lock)
        if not each.survives_fork:
            each.is_forked = True
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))  # releasing memory may block
        elif was_in_use:
            each._close(FORKED)


after_fork(_after_fork)


class StateStore(BackendInterface):
    """The memory of a transformer: states, constants, and the arena that programs share.

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
        The states to initialize by copying a constant.
    states_set
        The states that `set_value` has given a value in the place of the initial one.
    written
        The states that a call or `set_value` has written.
    arena
        The arena that all programs share, as large as the largest plan needs.
    state_lock
        The lock that is held by whoever reads or writes any of this.
    allocated, closed
        Whether the buffers have been allocated, and whether they have been released for good.
    is_forked
        Whether it is a copy in a forked process, whose device did not survive the fork.
    """

    is_forked = False
    _is_made = False
    _why_closed = ""

    def __init__(self) -> None:
        self.device_buffers: OrderedSet[DeviceBufferStorage] = OrderedSet()
        self.unallocated: OrderedSet[DeviceBufferStorage] = OrderedSet()
        self.allocations: list[Callable[[], None]] = []
        self.state_tensors: dict[Any, DeviceTensor] = {}
        self.initial_constants: dict[Any, Op] = {}
        self.states_set: OrderedSet[Any] = OrderedSet()
        self.written: set[Any] = set()
        self._waiting_values: dict[Any, np.ndarray[Any, Any]] = {}
        self.arena: DeviceBufferStorage | None = None
        self.allocated = self.closed = False
        self.state_lock = threading.RLock()
        self._is_made = True
        _stores.add(self)

    # Life

    def require_open(self) -> None:
        """Raise StateError if the transformer has been closed, or is not made yet."""
        self._require_made()
        if self.closed:
            raise StateError(self._why_closed)

    def _require_made(self) -> None:
        if not self._is_made:
            raise StateError(
                f"{type(self).__name__} is used before it is made: call super().__init__() first "
                "in its constructor"
            )

    def _close(self, why: str) -> None:
        """Release everything; later calls raise StateError with the reason."""
        with self.state_lock:
            if not self.closed:
                self._why_closed = why
            self.closed = True
            self.forget_memory()

    def __reduce_ex__(self, protocol: object) -> Any:
        problem = (
            "a transformer owns memory and can be neither copied nor pickled: make another one"
        )
        raise NotPicklable(problem)

    # Buffers

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
        states, arena = dict(self.state_tensors), self.arena
        buffers = OrderedSet(self.device_buffers)
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

    def _state_tensor(self, state: AssignableTensorOp, nbytes: int, axes: Axes) -> DeviceTensor:
        nbytes = self.target.whole_words(nbytes)
        tensor = self.state_tensors.get(state)
        if tensor is None:
            storage = self.device_buffer_storage(nbytes, state.name)
            description = contiguous(axes.shape, state.dtype)
            storage.initial = self.initial_constants.get(state)
            tensor = self.state_tensors[state] = storage.device_tensor(description)
        if tensor.storage.bytes != nbytes:
            raise AxesError(
                f"{state} was made with shape {tensor.shape}, but this computation needs another "
                f"shape for {state.axes}: use a transformer of its own\n  {state.file_info}"
            )
        return tensor

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
                    layout = contiguous(op.axes.shape, op.dtype)
                    self.set_constant(storage.device_tensor(layout), op)
        self.allocated = True

    def _allocate_new_buffers(self) -> None:
        """Allocate buffers that were made by hand after the last program."""
        if self.unallocated:
            with self.memory_restored_on_error():
                self.transform_allocate(())
                self.allocate(())

    def _release_constants(self, program: Program) -> None:
        """Let go of the buffers of a program's constants."""
        for buffer, storage in program.storages.items():
            if buffer.kind == CONSTANT:
                self.device_buffers.discard(storage)

    def note_writes(self, program: Program) -> None:
        """Take note that a program has run, so that what it writes has a value."""
        self.written.update(state for state, _ in program.captured.updates)

    # Values of states

    def ordered_initializers(self, ops: Iterable[Op]) -> list[Op]:
        """Return the initializers of the uninitialized states among ops.

        Initializers of states that another initializer reads are included, before it.
        """
        return initializers_of(ops, self.state_tensors)

    def set_initial_constants(self) -> None:
        """Copy the constant initial values of states."""
        for state, op in self.initial_constants.items():
            self.set_initial(self.state_tensors[state], op)

    def _waits_for_ranks(self, state: AssignableTensorOp) -> bool:
        """Whether a state has no memory so far, since other ranks take part in its first value.

        They do so when they compile what uses it. A value that it is given waits for that.
        """
        known = self.state_tensors
        return state not in known and state.axes.is_static and are_shared([state], known)

    def write_state(self, state: Any, value: Any) -> None:
        """Set the value of a state, or let it wait if the state has no memory.

        Raises AxesError or DTypeError if it does not fit.
        """
        tensor = self.state_tensors.get(state)
        shape = state.axes.shape if tensor is None else tensor.shape
        array = host_value(value, state.dtype, f"value of {state}")
        if array.shape != shape:
            raise AxesError(f"{state} has shape {shape}, a value of {array.shape} does not fit")
        if tensor is None:
            self._waiting_values[state] = array.copy()
        else:
            tensor[...] = array
        self.states_set.add(state)
        self.written.add(state)

    def require_values(self, name: str, graph: Graph) -> None:
        """Raise StateError if a graph reads a state that has no value; `name` is its computation's.

        It has one if it has an initial value or anything has been written to it.
        """
        reads = reads_without_value(graph, self.written)
        if reads:
            raise missing_value(name, graph, reads)

    def _set_waiting_values(self) -> None:
        """Set the values that waited for states to have memory."""
        for state in [each for each in self._waiting_values if each in self.state_tensors]:
            self.state_tensors[state][...] = self._waiting_values[state]
            del self._waiting_values[state]


def _solved_axes(graph: Graph) -> dict[Any, Axes]:
    """Return the axes of each state as the graph solves them."""
    solved = {op.state: op.axes for op in graph.ops if isinstance(op, ReadOp)}
    return solved | {state: value.axes for state, value in graph.updates}
