"""Dataflow of a graph and the memory that it needs, for any order of the steps.

Nodes and buffers are numbered in program order, so the searches for schedules, live ranges and
addresses work on integers.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from weft.errors import HostMemoryError
from weft.ir import scope
from weft.ir.axes import require_addressable
from weft.ir.description import TensorDescription, contiguous
from weft.ir.graph import Graph
from weft.ir.guards import untraced
from weft.ir.op import Op
from weft.ir.results import ResultOp, TupleOp
from weft.ir.storage import AssignableTensorOp, ReadOp
from weft.ir.target import Target
from weft.plan.buffers import ARENA, CONSTANT, INPUT, RESULT, STATES, Buffer, kind_of
from weft.plan.callee_memory import workspace_of
from weft.plan.inplace import Rewrite, buffer_owner, may_reuse, producer_of, rewrites


class Update(NamedTuple):
    """A state's new value: the node that computes it, and the buffers of the new and the old value.

    `old` is None if nothing reads the old value; `in_place` says whether the node may overwrite the
    old value while it reads it.
    """

    state: Any
    value: Op
    node: int
    buffer: int
    old: int | None
    in_place: bool


class BufferReuse(NamedTuple):
    """A value that should reuse an older value's buffer: its node, its buffer and the old one.

    `old` is None if nothing reads the older value. `is_partial` is as in `Rewrite`; `has_state`
    says whether the memory belongs to a state.
    """

    node: int
    buffer: int
    old: int | None
    is_partial: bool
    has_state: bool


class Dataflow:
    """The steps of a graph, their dependences, and the buffers that they read and write.

    Attributes
    ----------
    graph
        The graph. Its lengths are known, and each output and update has a buffer of its own.
    tensors
        The layout of each op's value; in the arena, relative to the start of its buffer.
    results
        The results of each step that has several, in order.
    buffers
        All buffers; each state, input and constant has one.
    sizes
        By buffer, its bytes in the arena, rounded up to the alignment; 0 outside of it. They are
        untraced: every schedule and every placement is right.
    values
        By buffer, the op whose value a step stores there.
    ops
        The op of each node. Not every node is a step: a view with several predecessors is a node,
        so that its readers have one predecessor instead of several.
    is_step
        By node, whether it is a step.
    before
        By node, its predecessors.
    reads, writes
        By node, the buffers that it reads, and those that it writes.
    overwrites
        By node, pairs of a buffer that it writes and one that it reads, whose memory it may reuse.
    scratch
        By node, the bytes of scratch memory, for nodes that need any.
    called
        The buffers that a called graph reads or writes; they never reuse the user's memory.
    barriers
        The nodes with effects and those that may raise, in order. No state is written before them.
    updates
        The states' new values.
    reuses
        The values that should reuse an older value's buffer.
    """

    def __init__(self, graph: Graph, target: Target) -> None:
        self.graph = graph
        self.target = target
        self.tensors: dict[Op, TensorDescription] = {}
        self.results: dict[Op, list[Op]] = _results(graph)
        self.buffers: list[Buffer] = []
        self.sizes: list[int] = []
        self.values: dict[int, Op] = {}
        self.ops: list[Op] = []
        self.is_step: list[bool] = []
        self.before: list[tuple[int, ...]] = []
        self.reads: list[tuple[int, ...]] = []
        self.writes: list[tuple[int, ...]] = []
        self.overwrites: list[tuple[tuple[int, int], ...]] = []
        self.scratch: dict[int, int] = {}
        self.called: set[int] = set()
        self.barriers: list[int] = []
        self._roles = {buffer_owner(op): number for number, op in enumerate(graph.outputs)}
        self._states: dict[Any, Buffer] = {}
        self._sources: dict[Op, tuple[int, ...]] = {}
        for number, parameter in enumerate(graph.inputs):
            self._store(parameter, INPUT, number)
        for op in graph.ops:
            self._add(op)
        self.updates = [self._update(state, value) for state, value in graph.updates]
        self.reuses = [self._reuse(each) for each in rewrites(graph)]

    @property
    def order(self) -> list[int]:
        """The steps in program order."""
        return [node for node, runs in enumerate(self.is_step) if runs]

    def written_by(self, op: Op) -> list[Op]:
        """Return the tensors that a step writes: its value, or its results."""
        return self.results[op] if isinstance(op, TupleOp) else [op] if op.is_tensor else []

    def repeated(self, order: Iterable[int]) -> tuple[Dataflow, list[int]]:
        """Return the flow of an order with repeated nodes, and that order in the flow's nodes.

        Readers after a repetition of a node read the results of the repetition.
        """
        new = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, list | dict | set):
                setattr(new, name, value.copy())
        newest = list(range(len(self.buffers)))
        seen: set[int] = set()
        numbers = []
        for node in order:
            number = node
            if node in seen:
                number = new._repeat(node, newest)
            elif len(new.ops) > len(self.ops):
                new._read_newest(node, node, newest)
            seen.add(node)
            numbers.append(number)
        return new, numbers

    def _read_newest(self, node: int, like: int, newest: list[int]) -> None:
        """Let a node read the latest copies of the buffers that the original reads."""
        self.reads[node] = tuple([newest[number] for number in self.reads[like]])
        pairs = self.overwrites[like]
        if pairs:
            self.overwrites[node] = tuple([(written, newest[read]) for written, read in pairs])

    def _repeat(self, like: int, newest: list[int]) -> int:
        """Add a copy of a node; its results are the latest copies from now on."""
        node = self._add_node(self.ops[like], (), is_step=True)
        self._read_newest(node, like, newest)
        if like in self.scratch:
            self.scratch[node] = self.scratch[like]
        for number in self.writes[like]:
            newest[number] = self._buffer(ARENA, self.buffers[number].nbytes).number
            self.values[newest[number]] = self.values[number]
        self.writes[node] = tuple([newest[number] for number in self.writes[like]])
        if self.ops[like].graphs:
            self.called.update(self.reads[node], self.writes[node])
        pairs = self.overwrites[node]
        self.overwrites[node] = tuple([(newest[written], read) for written, read in pairs])
        return node

    def padded(self, nbytes: int) -> int:
        """Return a number of bytes rounded up to the alignment."""
        align = self.target.alignment
        return -(-nbytes // align) * align

    def _buffer(self, kind: str, nbytes: int, owner: Any = None) -> Buffer:
        buffer = Buffer(kind, nbytes, len(self.buffers), owner)
        if kind == ARENA:
            buffer.size = self.padded(nbytes)
        self.buffers.append(buffer)
        self.sizes.append(untraced(buffer.size) if kind == ARENA and nbytes else 0)
        return buffer

    def _store(self, op: Op, kind: str, owner: Any) -> None:
        """Add the layout of a value that exists before the first step."""
        buffer = self._states.get(owner) if kind in STATES else None
        if buffer is None:
            buffer = self._buffer(kind, _nbytes(op), owner)
            if kind in STATES:
                self._states[owner] = buffer
        self.tensors[op] = contiguous(op.axes.shape, op.dtype, buffer)
        self._sources[op] = ()

    def _add(self, op: Op) -> None:
        if op in self._sources:
            return
        if op.is_constant:
            self._store(op, CONSTANT, op)
        elif isinstance(op, ReadOp):
            self._store(op, kind_of(op.state), op.state)
        elif isinstance(op, ResultOp):
            self._sources[op] = self._join_node(op)
        else:
            view = op.view(self.tensors[op.args[0]]) if op.args else None
            if view is not None:
                self.tensors[op] = view
            if view is None or op.has_effect:
                self._add_step(op, writes=view is None)
            else:
                self._sources[op] = self._join_node(op)

    def _predecessors(self, op: Op) -> tuple[int, ...]:
        """Return the predecessors of an op."""
        sources = self._sources
        first = self.graph.after.get(op, ())
        if len(op.args) == 1 and not first:
            return sources[op.args[0]]
        predecessors = [node for arg in (*op.args, *first) for node in sources[arg]]
        return tuple(dict.fromkeys(predecessors))

    def _join_node(self, op: Op) -> tuple[int, ...]:
        """Return the node that readers of a view depend on; adds one if there are several."""
        needed = self._predecessors(op)
        if len(needed) <= 1:
            return needed
        return (self._add_node(op, needed, is_step=False),)

    def _add_node(self, op: Op, needed: tuple[int, ...], is_step: bool) -> int:
        self.ops.append(op)
        self.is_step.append(is_step)
        self.before.append(needed)
        self.reads.append(())
        self.writes.append(())
        self.overwrites.append(())
        return len(self.ops) - 1

    def _add_step(self, op: Op, writes: bool) -> None:
        node = self._add_node(op, self._predecessors(op), is_step=True)
        self._sources[op] = (node,)
        tensors = self.tensors
        self.reads[node] = tuple({tensors[arg].base.number for arg in op.args})
        scratch = workspace_of(op, self.target)
        if scratch:
            self.scratch[node] = scratch
        if op.has_effect or op.may_raise:
            self.before[node] = tuple(dict.fromkeys((*self.before[node], *self.barriers[-1:])))
            self.barriers.append(node)
        if writes:
            values = self.written_by(op)
            self.writes[node] = tuple([self._make(value) for value in values])
            if op.graphs:
                self.called.update(self.reads[node], self.writes[node])
            if not _never_overwrites(op):
                self.overwrites[node] = tuple(self._overwrites(op, values))

    def _make(self, value: Op) -> int:
        nbytes = _nbytes(value)
        role = self._roles.get(value)
        buffer = self._buffer(ARENA if role is None else RESULT, nbytes, role)
        self.tensors[value] = contiguous(value.axes.shape, value.dtype, buffer)
        self.values[buffer.number] = value
        return buffer.number

    def _overwrites(self, op: Op, values: Iterable[Op]) -> Iterator[tuple[int, int]]:
        """Yield pairs of a buffer that an op writes and one that it reads and may reuse."""
        for value in values:
            base = self.tensors[value].base
            for read in [self.tensors[arg].base for arg in op.args]:
                fits = read.nbytes == base.nbytes and read.kind == ARENA
                if fits and self._may_overwrite(value, op, read):
                    yield base.number, read.number

    def _may_overwrite(self, value: Op, op: Op, buffer: Buffer) -> bool:
        """Whether a value may reuse the memory of a buffer that its producer reads."""
        may_overwrite = False
        for index, arg in enumerate(op.args):
            tensor = self.tensors[arg]
            if tensor.base is not buffer:
                continue
            if not may_reuse(value, index, tensor):
                return False
            may_overwrite = True
        return may_overwrite

    def may_replace(self, number: int, read: int | None) -> bool:
        """Whether a result of a step may reuse the memory of a buffer that the step reads."""
        value = self.values[number]
        producer = producer_of(value)
        return read is not None and self._may_overwrite(value, producer, self.buffers[read])

    def _update(self, state: AssignableTensorOp, value: Op) -> Update:
        producer = buffer_owner(value)
        assert producer is not None, "every update has a producer of its own"
        (node,) = self._sources[producer]
        old = self._states.get(state)
        in_place = old is not None and self._may_overwrite(producer, self.ops[node], old)
        buffer = self.tensors[value].base.number
        return Update(state, value, node, buffer, None if old is None else old.number, in_place)

    def _reuse(self, rewrite: Rewrite) -> BufferReuse:
        (node,) = self._sources[rewrite.value]
        buffer = self.tensors[rewrite.value].base
        is_states = rewrite.old is rewrite.state
        old = self._states.get(rewrite.state) if is_states else self.tensors[rewrite.old].base
        number = None if old is None else old.number
        return BufferReuse(
            node, buffer.number, number, rewrite.is_partial, rewrite.state is not None
        )


def _nbytes(op: Op) -> int:
    """Return the size of a value in bytes; raises HostMemoryError if it cannot be addressed."""
    try:
        return require_addressable(op.axes, op.dtype.itemsize)
    except HostMemoryError as error:
        raise HostMemoryError(op.explain(error.problem)) from None


def _never_overwrites(op: Op) -> bool:
    if isinstance(op, TupleOp):
        return type(op).may_overwrite_with is TupleOp.may_overwrite_with
    return type(op).may_overwrite is Op.may_overwrite


def _results(graph: Graph) -> dict[Op, list[Op]]:
    """Return, for each op with several results, the ops that select them, in order."""
    by_index: dict[Op, dict[int, Op]] = {}
    for op in graph.ops:
        if isinstance(op, TupleOp):
            by_index[op] = {}
        elif isinstance(op, ResultOp):
            by_index[op.args[0]][op.index] = op
    return {op: _in_order(op, results) for op, results in by_index.items()}


def _in_order(op: Any, results: dict[int, Op]) -> list[Op]:
    """Return an op that selects each result, including unused results."""
    with scope.replacing(op):
        count = range(len(op.result_types))
        return [
            results[index] if index in results else ResultOp(op, index=index) for index in count
        ]
