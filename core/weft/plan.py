"""Plan: the order of a graph's ops, and an address for everything they compute.

Every value is a `TensorDescription` of a buffer: the arena, a state, an input, a constant, or a
result, which is memory that the caller will own. Views take no memory; an op writes over an operand
that nobody reads afterwards; the last op that makes a result, or the new value of a state, writes
there directly where that is safe.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from weft import dtypes, scope
from weft.description import TensorDescription, contiguous
from weft.graph import Graph
from weft.op import Op
from weft.ops.movement import ContiguousOp
from weft.ops.results import ResultOp, TupleOp
from weft.ops.storage import ParameterOp, ReadOp
from weft.placement import lower_bound, place
from weft.target import Target

ARENA, STATE, INPUT, CONSTANT, RESULT = "arena", "state", "input", "constant", "result"
_BYTE = dtypes.uint8
_NOT_COMPUTED = (ParameterOp, ReadOp, ResultOp)


class Buffer:
    """A stretch of memory in use from step `first` to step `last`, both included.

    Attributes
    ----------
    kind
        ``arena``, ``state``, ``input``, ``constant`` or ``result``.
    owner
        The state or constant op, the number of the input or result, or None in the arena.
    nbytes, size
        The bytes in use, and those taken in the arena after rounding up to the alignment.
    offset
        Where it lies in the arena.
    """

    __slots__ = ("first", "kind", "last", "merged", "nbytes", "offset", "owner", "size")

    def __init__(self, kind: str, nbytes: int, first: int, owner: Any = None) -> None:
        self.kind = kind
        self.nbytes = nbytes
        self.size = nbytes
        self.first = first
        self.last = first
        self.offset = 0
        self.owner = owner
        self.merged: Buffer | None = None

    @property
    def root(self) -> Buffer:
        """The buffer that this one was merged into, or itself."""
        found = self
        while found.merged is not None:
            found = found.merged
        return found

    def __repr__(self) -> str:
        return f"<{self.kind} buffer, {self.nbytes} bytes, steps {self.first} to {self.last}>"


@dataclass(slots=True)
class Step:
    """One op that runs: where its operands are and where its results go.

    An op with an effect has its first operand as its result.
    """

    op: Op
    outs: tuple[TensorDescription, ...]
    args: tuple[TensorDescription, ...]
    workspace: TensorDescription | None = None

    @property
    def out(self) -> TensorDescription:
        """Where the only result goes, or the first of several."""
        return self.outs[0]


@dataclass
class Plan:
    """What runs, in which order, and where everything lies.

    Attributes
    ----------
    graph
        The planned graph; copies that the plan needs are ops of it.
    steps
        The ops that run, in order; views are not among them.
    tensors
        The description of every op's value; in the arena, offsets count from its start.
    buffers
        All buffers that are in use.
    results
        The values that a step with several results makes, in their order.
    arena_size
        The bytes of the arena.
    peak_live
        The most bytes of the arena in use at one step, without alignment: the lower bound.
    """

    graph: Graph
    steps: list[Step]
    tensors: dict[Op, TensorDescription]
    buffers: list[Buffer]
    results: dict[Op, list[Op]]
    arena_size: int = 0
    peak_live: int = 0

    def describe(self, op: Op) -> TensorDescription:
        """Return where the value of an op lies."""
        return self.tensors[op]

    def verify(self) -> None:
        """Check the plan against its own rules; raises PlanError that names the ops.

        No two buffers of the arena that live at the same step overlap; no step reads what is not
        yet computed, or what has been overwritten; no step writes a constant or an input; every
        result and update is in its place at the end.
        """
        from weft.plan_verifier import verify_plan

        verify_plan(self)

    def table(self) -> str:
        """Return the plan as text: a line a step, then a line a buffer of the arena."""
        lines = [f"arena {self.arena_size} bytes, at most {self.peak_live} live"]
        for number, step in enumerate(self.steps):
            args, outs = (", ".join(map(_address, each)) for each in (step.args, step.outs))
            lines.append(f"{number:5}  {outs} <- {type(step.op).__name__}({args})")
        lines.extend(
            f"steps {b.first:5} to {b.last:5}: bytes {b.offset} to {b.offset + b.nbytes}"
            for b in sorted(self.buffers, key=lambda b: (b.first, b.offset))
            if b.kind == ARENA
        )
        return "\n".join(lines)


def _address(tensor: TensorDescription) -> str:
    buffer = tensor.base
    if buffer.kind == ARENA:
        place = f"arena[{tensor.offset}]"
    elif buffer.kind in (INPUT, RESULT):
        place = f"{buffer.kind}{buffer.owner}"
    else:
        place = str(buffer.owner)
    return f"{place}:{tensor.dtype}{list(tensor.shape)}"


def make_plan(graph: Graph, target: Target) -> Plan:
    """Return a plan for a graph whose lengths are all known."""
    return _Planner(_with_copies(graph), target).plan()


def _copy(value: Op) -> ContiguousOp:
    with scope.replacing(value):
        return ContiguousOp(value)


def _with_copies(graph: Graph) -> Graph:
    """Return the graph in which each output and update is made by an op of its own.

    A copy is added for an output or update that is a view of something else, or that has another
    role already.
    """
    taken: set[Op] = set()

    def own(value: Op) -> Op:
        made_here = not value.is_constant and not isinstance(value, ParameterOp | ReadOp)
        if made_here and value not in taken and not _may_be_view(value):
            taken.add(value)
            return value
        return _copy(value)

    outputs = [own(op) for op in graph.outputs]
    updates = [
        (state, own(value))
        for state, value in graph.updates
        if not (isinstance(value, ReadOp) and value.state is state)
    ]
    return graph.replace(outputs=outputs, updates=updates)


def _may_be_view(op: Op) -> bool:
    return type(op).view is not Op.view and not isinstance(op, ContiguousOp)


class _Planner:
    def __init__(self, graph: Graph, target: Target) -> None:
        self.graph = graph
        self.target = target
        self.tensors: dict[Op, TensorDescription] = {}
        self.buffers: list[Buffer] = []
        self.states: dict[Op, Buffer] = {}
        self.inputs: dict[Op, Buffer] = {}
        self.steps: list[Op] = []
        self.results = _results(graph)
        self.last_effect = -1

    def plan(self) -> Plan:
        for number, op in enumerate(self.graph.inputs):
            self.tensors[op] = self._stored(op, INPUT, number)
        for each in self.graph.ops:
            self._locate(each)
        self._place_updates()
        self._place_results()
        self._merge()
        return self._finish()

    def _stored(self, op: Op, kind: str, owner: Any) -> TensorDescription:
        buffer = Buffer(kind, op.axes.size * op.dtype.itemsize, 0, owner)
        self.buffers.append(buffer)
        return contiguous(op.axes.shape, op.dtype, buffer)

    def _locate(self, op: Op) -> None:
        """Give an op its place, and note when its operands are in use."""
        if op in self.tensors or isinstance(op, ResultOp):
            return
        if op.is_constant:
            self.tensors[op] = self._stored(op, CONSTANT, op)
        elif isinstance(op, ReadOp):
            found = self._stored(op, STATE, op.state)
            if op.state in self.states:
                self.buffers.pop()
                found = replace(found, base=self.states[op.state])
            self.tensors[op] = found
            self.states[op.state] = found.base
        else:
            view = op.view(self.tensors[op.args[0]]) if op.args else None
            if view is None:
                self._add_step(op)
                return
            self.tensors[op] = view
            if op.has_effect:
                self.last_effect = self._add_reader(op)

    def _add_reader(self, op: Op) -> int:
        number = len(self.steps)
        self.steps.append(op)
        for arg in op.args:
            self.tensors[arg].base.last = number
        return number

    def _add_step(self, op: Op) -> None:
        number = self._add_reader(op)
        if op.may_raise:
            self.last_effect = number
        for value in self._values(op):
            buffer = Buffer(ARENA, value.axes.size * value.dtype.itemsize, number)
            self.buffers.append(buffer)
            self.tensors[value] = contiguous(value.axes.shape, value.dtype, buffer)

    def _values(self, op: Op) -> list[Op]:
        """Return the tensors that a step makes: its own value, or its results'."""
        return self.results[op] if isinstance(op, TupleOp) else [op] if op.is_tensor else []

    def _place_updates(self) -> None:
        """Let the op that makes a state's new value write into the state, or copy at the end.

        Writing early is right if no later step reads the old value, and the op itself reads it at
        the same place only; not before an effect, which may raise and must leave states alone.
        """
        late = []
        updates = list(self.graph.updates)
        for index, (state, value) in enumerate(updates):
            buffer = self.tensors[value].base
            if self._may_write(state, value, buffer.first):
                self._make_state(buffer, state)
            else:
                late.append((index, state, value))
        for index, state, value in late:
            copy = _copy(value)
            self._add_step(copy)
            self._make_state(self.tensors[copy].base, state)
            updates[index] = (state, copy)
        if late:
            self.graph = self.graph.replace(updates=updates)

    def _make_state(self, buffer: Buffer, state: Any) -> None:
        buffer.kind, buffer.owner = STATE, state
        buffer.last = len(self.steps)

    def _may_write(self, state: Any, value: Op, step: int) -> bool:
        if step <= self.last_effect:
            return False
        old = self.states.get(state)
        if old is None or old.last < step:
            return True
        return old.last == step and self._may_overwrite(value, old)

    def _may_overwrite(self, value: Op, buffer: Buffer) -> bool:
        """Whether a value may take the memory of a buffer that the op which makes it reads."""
        wanted = (value.axes.shape, value.dtype)
        found = False
        for index, arg in enumerate(_maker(value).args):
            tensor = self.tensors[arg]
            if tensor.base.root is not buffer:
                continue
            fits = (tensor.shape, tensor.dtype) == wanted and tensor.is_contiguous
            if not (fits and tensor.offset == 0 and _overwrites(value, index)):
                return False
            found = True
        return found

    def _place_results(self) -> None:
        for number, op in enumerate(self.graph.outputs):
            buffer = self.tensors[op].base
            buffer.kind, buffer.owner = RESULT, number
            buffer.last = len(self.steps)

    def _merge(self) -> None:
        """Let ops write over operands that they are the last to read."""
        for number in reversed(range(len(self.steps))):
            op = self.steps[number]
            if not op.has_effect:
                for value in self._values(op):
                    self._merge_value(value, number)

    def _merge_value(self, value: Op, number: int) -> None:
        buffer = self.tensors[value].base.root
        if buffer.first != number:
            return
        made_here = {self.tensors[each].base.root for each in self._values(self.steps[number])}
        for index, arg in enumerate(_maker(value).args):
            operand = self.tensors[arg].base.root
            if operand in made_here:
                continue
            if _overwrites(value, index) and self._may_merge(operand, buffer, value, number):
                operand.merged = buffer
                buffer.first = operand.first
                return

    def _may_merge(self, operand: Buffer, buffer: Buffer, value: Op, number: int) -> bool:
        if operand.kind != ARENA or operand.last != number or operand.nbytes != buffer.nbytes:
            return False
        if buffer.kind == STATE:
            if operand.first <= self.last_effect:
                return False
            old = self.states.get(buffer.owner)
            if old is not None and old.last >= operand.first:
                return False
        return self._may_overwrite(value, operand)

    def _finish(self) -> Plan:
        scratch = self._workspaces()
        kept = [buffer for buffer in self.buffers if buffer.merged is None]
        arena = [buffer for buffer in kept if buffer.kind == ARENA]
        peak = lower_bound(arena)
        align = self.target.alignment
        for buffer in arena:
            buffer.size = -(-buffer.nbytes // align) * align
        offsets, size = place(arena)
        for buffer, offset in zip(arena, offsets, strict=True):
            buffer.offset = offset
        self._settle_addresses()
        kept = [b for b in kept if b.kind != STATE or self.states[b.owner] is b]
        steps = [self._step(op, scratch.get(op)) for op in self.steps]
        return Plan(self.graph, steps, self.tensors, kept, self.results, size, peak)

    def _workspaces(self) -> dict[Op, Buffer]:
        """Add a buffer for each op that needs scratch memory while it runs."""
        found = {}
        for number, op in enumerate(self.steps):
            nbytes = self.target.workspace(op)
            if nbytes:
                found[op] = Buffer(ARENA, nbytes, number)
        self.buffers.extend(found.values())
        return found

    def _settle_addresses(self) -> None:
        """Put every description at its final address; equal ones become one object."""
        settled: dict[TensorDescription, TensorDescription] = {}
        for op, tensor in self.tensors.items():
            root = tensor.base.root
            if root.kind == STATE:
                root = self.states.setdefault(root.owner, root)
            if root is not tensor.base or root.offset:
                tensor = TensorDescription(
                    tensor.shape, tensor.dtype, tensor.strides, tensor.offset + root.offset, root
                )
            self.tensors[op] = settled.setdefault(tensor, tensor)

    def _step(self, op: Op, scratch: Buffer | None) -> Step:
        args = tuple([self.tensors[arg] for arg in op.args])
        outs = tuple([self.tensors[value] for value in self._values(op)]) or args[:1]
        if scratch is None:
            return Step(op, outs, args)
        workspace = TensorDescription((scratch.nbytes,), _BYTE, (1,), scratch.offset, scratch)
        return Step(op, outs, args, workspace)


def _results(graph: Graph) -> dict[Op, list[Op]]:
    """Return, for each op that has several results, the ops that take them, in order."""
    found: dict[Op, dict[int, Op]] = {}
    for op in graph.ops:
        if isinstance(op, ResultOp):
            found.setdefault(op.args[0], {})[op.index] = op
    return {op: _in_order(op, results) for op, results in found.items()}


def _in_order(op: Any, results: dict[int, Op]) -> list[Op]:
    """Return a taker for every result, also for those that nobody takes."""
    with scope.replacing(op):
        count = range(len(op.result_types))
        return [
            results[index] if index in results else ResultOp(op, index=index) for index in count
        ]


def _maker(value: Op) -> Op:
    """Return the op whose step makes a value."""
    return value.args[0] if isinstance(value, ResultOp) else value


def _overwrites(value: Op, index: int) -> bool:
    """Whether a value may lie where the operand at an index of the op that makes it lies."""
    if isinstance(value, ResultOp):
        made: TupleOp = value.args[0]
        return made.may_overwrite_with(value.index, index)
    return value.may_overwrite(index)


def unsupported(ops: Iterable[Op], target: Target) -> list[Op]:
    """Return the ops that a target can neither compute nor show as a view."""
    return [
        op
        for op in ops
        if not (op.is_constant or isinstance(op, _NOT_COMPUTED) or target.supports(op))
    ]
