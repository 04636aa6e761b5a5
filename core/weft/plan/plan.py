"""Plans: the order of a graph's steps and an address for every value.

Every value has a `TensorDescription` in a buffer: the arena, a state, an input, a constant or a
result of the caller's. Views take no memory. An op reuses the memory of an operand that is dead
afterwards. Results and the new values of states are computed in their final buffers where that is
safe.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from weft.ir import dtypes, scope
from weft.ir.description import TensorDescription, contiguous
from weft.ir.graph import Graph, called_graphs
from weft.ir.guards import at_maximum, is_traced, recomputed
from weft.ir.op import Op
from weft.ir.results import ResultOp
from weft.ir.storage import ParameterOp, ReadOp
from weft.ir.target import Target
from weft.ir.traversal import nested
from weft.ir.views import planned_layout
from weft.kernels import FusedOp
from weft.ops.control.graph_ops import CallOp
from weft.ops.shape.movement import ContiguousOp
from weft.plan.buffers import ARENA, CONSTANT, INPUT, RESULT, STATE, Buffer
from weft.plan.callee_plans import PLAN, plan_of
from weft.plan.dataflow import Dataflow
from weft.plan.inplace import InPlaceAnalysis, buffer_owner
from weft.plan.liveness import Liveness
from weft.plan.placement import placement_in_units
from weft.plan.rematerialization import rematerialized
from weft.plan.schedule import schedules
from weft.plan.unrolled_schedule import unroll
from weft.plan.verifier import verify_plan
from weft.support import html
from weft.support.source import short_info

__all__ = [
    "ARENA", "CONSTANT", "INPUT", "RESULT", "STATE", "Buffer", "Plan", "Step", "make_plan",
]  # fmt: skip

_BYTE = dtypes.uint8
_GIVEN = (ParameterOp, ReadOp)


@dataclass(slots=True)
class Step:
    """A step: an op, with the layouts of its operands and results.

    The result of an op with an effect is its first operand.
    """

    op: Op
    outs: tuple[TensorDescription, ...]
    args: tuple[TensorDescription, ...]
    workspace: TensorDescription | None = None

    @property
    def out(self) -> TensorDescription:
        """The layout of the only result, or of the first of several."""
        return self.outs[0]


@dataclass(repr=False)
class Plan:
    """The steps of a program in order, and the layout of every tensor.

    Attributes
    ----------
    graph
        The planned graph, which contains copies and recomputed ops.
    source
        The graph before planning.
    steps
        The steps in order, without views.
    tensors
        The layout of every op's value; offsets in the arena are from its start.
    buffers
        All buffers.
    results
        The results of each step that has several, in order.
    alignment
        The bytes to which offsets in the arena are aligned.
    arena_size
        The bytes of the arena.
    peak_live
        The peak of the live bytes, each buffer rounded up to the alignment: a lower bound for the
        arena in this order.
    peak_as_written
        The peak of the live bytes in program order.
    memory_limit
        The limit on the arena in bytes, or None.
    """

    graph: Graph
    steps: list[Step]
    tensors: dict[Op, TensorDescription]
    buffers: list[Buffer]
    results: dict[Op, list[Op]]
    source: Graph
    alignment: int
    arena_size: int
    peak_live: int
    peak_as_written: int
    memory_limit: int | None = None

    def describe(self, op: Op) -> TensorDescription:
        """Return the layout of an op's value."""
        return self.tensors[op]

    def verify(self) -> None:
        """Check the plan independently of the planner; raises PlanError, which names the op.

        The plan computes the graph. Ops run after their predecessors, effects in order, and no
        state is written before an op that may raise. Buffers are aligned, inside the arena, and
        disjoint while they are live. No step reads a value that is not yet computed or already
        overwritten, also by its own results or workspace. No step writes a constant or an input.
        Every result and update is in its final buffer at the end.
        """
        verify_plan(self)

    def picture(self, path: str | os.PathLike[str]) -> None:
        """Write the plan as a picture to an SVG file.

        The x axis is time, the y axis the bytes of the arena. Each tensor is a box with a tooltip;
        states are rows below.
        """
        from weft.plan.picture import write_picture  # few programs need it

        write_picture(self, path)

    def __repr__(self) -> str:
        count, name = len(self.steps), self.graph.name
        return f"<Plan of {name}: {count} steps, an arena of {self.arena_size} bytes>"

    def __str__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        return self.as_html()

    def as_html(self) -> html.Html:
        """Return the first steps as HTML, with the sizes of all buffers."""
        about = {
            "steps": f"{len(self.steps):,}",
            "arena": f"{self.arena_size:,} bytes",
            "most live": f"{self.peak_live:,} bytes, {self.peak_as_written:,} as written",
            **{f"{kind}s": _buffer_totals(self.buffers, kind) for kind in (STATE, CONSTANT)},
        }
        rows = (
            (
                str(number),
                _addresses(step.outs),
                step.op.kernel.title if isinstance(step.op, FusedOp) else type(step.op).__name__,
                _addresses(step.args),
                short_info(step.op.location),
            )
            for number, step in enumerate(self.steps)
        )
        columns = ("step", "results", "op", "operands", "line")
        steps = html.table(columns, rows, len(self.steps))
        return html.section(f"Plan of {self.graph.name}", html.facts(about), steps)

    def table(self) -> str:
        """Return the plan as text: steps, buffers of the arena, and called graphs."""
        return "\n".join(self._lines({}))

    def _lines(self, known: dict[Graph, list[str]]) -> list[str]:
        lines = [
            f"arena {self.arena_size} bytes, at most {self.peak_live} live, "
            f"{self.peak_as_written} in the order as written"
        ]
        for number, step in enumerate(self.steps):
            args, outs = map(_addresses, (step.args, step.outs))
            lines.append(f"{number:5}  {outs} <- {type(step.op).__name__}({args})")
        lines.extend(
            f"steps {b.first:5} to {b.last:5}: bytes {b.offset} to {b.offset + b.nbytes}"
            for b in sorted(self.buffers, key=lambda b: (b.first, b.offset))
            if b.kind == ARENA
        )
        for graph in dict.fromkeys(graph for step in self.steps for graph in step.op.graphs):
            lines.append(f"{graph.name}, which a step runs in its workspace:")
            plan = plan_of(graph)
            inside = nested(known, graph, partial(plan._lines, known))
            lines.extend(f"    {line}" for line in inside)
        return lines


def _buffer_totals(buffers: Iterable[Buffer], kind: str) -> str:
    """Return how many buffers of a kind there are, and their bytes."""
    sizes = [buffer.nbytes for buffer in buffers if buffer.kind == kind]
    return f"{len(sizes):,} of {sum(sizes):,} bytes" if sizes else ""


def _addresses(tensors: Iterable[TensorDescription]) -> str:
    return ", ".join(map(_address, tensors))


def _address(tensor: TensorDescription) -> str:
    buffer = tensor.base
    if buffer.kind == ARENA:
        text = f"arena[{tensor.offset}]"
    elif buffer.kind in (INPUT, RESULT):
        text = f"{buffer.kind}{buffer.owner}"
    else:
        text = str(buffer.owner)
    return f"{text}:{tensor.dtype}{list(tensor.shape)}"


def make_plan(graph: Graph, target: Target, memory_limit: int | None = None) -> Plan:
    """Return a plan for a graph whose lengths are all known.

    If the arena exceeds `memory_limit` bytes, values are recomputed instead of kept. Raises
    MemoryLimitError if that does not suffice.
    """
    for each in called_graphs(graph):
        each.memo(PLAN, partial(_planned, each, target, is_called=True))
    return _planned(graph, target, memory_limit)


def _planned(
    graph: Graph, target: Target, memory_limit: int | None = None, is_called: bool = False
) -> Plan:
    """Return a plan for a graph whose called graphs are planned."""
    lends = target.lends_results and not is_called
    candidates = schedules(Dataflow(with_copies(graph, is_called, lends), target))
    best = _smallest(candidates)
    if memory_limit is not None and best.placement[1] > memory_limit:
        best = unroll(rematerialized(candidates, memory_limit))
    plan = _Assembly(best).plan(graph, peak_as_written=candidates[0].peak)
    plan.memory_limit = memory_limit
    return plan


def _copy(value: Any) -> ContiguousOp:
    with scope.replacing(value):
        return ContiguousOp(value)


def with_copies(graph: Graph, is_called: bool = False, lends: bool = False) -> Graph:
    """Return the graph with copies, so that each output and update is computed by an op of its own.

    Copied are outputs and updates that are partial views, that have another role already, or that
    occupy the buffer of a state with partial updates; parts of a value that are read after the
    value is overwritten; and views that an op takes as contiguous tensors. Operands and results of
    called graphs have buffers of their own, so that one program serves all calls; if the graph
    `lends` its results, a call writes to these.
    """
    graph = _with_own_operands(_with_results_once(graph), is_called)
    graph = _with_contiguous_operands(graph)
    overwriting = InPlaceAnalysis(graph)
    if overwriting.copied:
        graph = _with_copied(graph, overwriting.copied)
        overwriting = InPlaceAnalysis(graph)
    states = overwriting.states
    lent = _writable_results(graph) if lends else set()
    taken: set[Op] = set()
    copies: dict[Op, list[Op]] = {}

    def own(value: Op, state: Any = None) -> Op:
        producer = buffer_owner(value)
        is_lent = state is None and value in lent
        if (
            producer is None
            or producer in taken
            or (_has_fixed_buffer(producer) and not is_lent)
            or states.get(producer, state) is not state
        ):
            copy = _copy(value)
            copies.setdefault(value, []).append(copy)
            return copy
        taken.add(producer)
        return value

    outputs = [own(op) for op in graph.outputs]
    updates = [
        (state, own(value, state))
        for state, value in graph.updates
        if not (isinstance(value, ReadOp) and value.state is state)
    ]
    ops: Sequence[Op] = graph.ops
    if copies:
        ops = [each for op in ops for each in (op, *copies.get(op, ()))]
    return graph.replace(ops, outputs=outputs, updates=updates)


def _with_results_once(graph: Graph) -> Graph:
    """Return a graph in which a single op selects each result of an op with several results."""
    if ResultOp not in graph.kinds:
        return graph
    takers: dict[tuple[Op, int], Op] = {}

    def taken_once(op: Op) -> Op:
        if not isinstance(op, ResultOp):
            return op
        return takers.setdefault((op.args[0], op.index), op)

    return graph.rewrite(taken_once)


def _has_fixed_buffer(op: Op) -> bool:
    """Whether a value exists before the first step, or is a result of a called graph."""
    if isinstance(op, ResultOp) and op.args[0].graphs:
        return True
    return op.is_constant or isinstance(op, _GIVEN)


def _writable_results(graph: Graph) -> set[Op]:
    """Return the results of calls that are outputs and that calls may write in place.

    At least half of the calls of a graph then yield the same outputs; the others copy theirs, so
    that all calls share code.
    """
    results: dict[Any, list[ResultOp]] = {op: [] for op in graph.ops if isinstance(op, CallOp)}
    for op in dict.fromkeys(graph.outputs):
        if isinstance(op, ResultOp) and op.args[0] in results:
            results[op.args[0]].append(op)
    kinds = {call: (call.graph, frozenset(op.index for op in ops)) for call, ops in results.items()}
    alike, all_calls = Counter(kinds.values()), Counter(call.graph for call in results)
    shared = {call for call, kind in kinds.items() if 2 * alike[kind] >= all_calls[call.graph]}
    return {op for call in shared for op in results[call]}


def _with_own_operands(graph: Graph, is_called: bool) -> Graph:
    """Return a graph whose calls take contiguous tensors only, none in memory of the user's."""
    if not graph.called:
        return graph
    returned = {buffer_owner(op) for op in graph.outputs}

    def is_own(arg: Op) -> bool:
        producer = buffer_owner(arg)
        is_users = isinstance(producer, ParameterOp) or producer in returned
        return producer is not None and (is_called or not is_users)

    wanted = {op: [arg for arg in op.args if not is_own(arg)] for op in graph.ops if op.graphs}
    return _with_copied(graph, wanted) if any(wanted.values()) else graph


def _with_contiguous_operands(graph: Graph) -> Graph:
    """Return a graph in which ops take contiguous tensors if they must."""
    wanted = {
        op: [arg for arg in op.args if not planned_layout(arg).is_contiguous]
        for op in graph.ops
        if op.takes_contiguous
    }
    return _with_copied(graph, wanted) if any(wanted.values()) else graph


def _with_copied(graph: Graph, wanted: Mapping[Op, Collection[Op]]) -> Graph:
    """Return the graph in which ops read one copy of each of some operands."""
    copied = set().union(*wanted.values())
    new: dict[Op, Op] = {}
    lent: dict[Op, Op] = {}
    ops: list[Op] = []
    for op in graph.ops:
        mine = wanted.get(op, ())
        args = tuple([(lent if arg in mine else new)[arg] for arg in op.args])
        new[op] = op if args == op.args else op.with_args(args)
        ops.append(new[op])
        if op in copied:
            lent[op] = _copy(new[op])
            ops.append(lent[op])
    return graph.mapped(new, ops)


def _smallest(candidates: Iterable[Liveness]) -> Liveness:
    """Return the schedule with the fewest bytes of arena and copies.

    Ties go to the first.
    """
    best, *others = sorted(candidates, key=lambda each: each.peak + each.copied)
    least = best.peak + best.copied
    lowest = [each for each in (best, *others) if each.peak + each.copied == least]
    for each in lowest if len(lowest) > 1 else ():
        if each.is_placed_quickly:
            return each
    for other in others:
        most = best.placement[1] + best.copied
        if other.peak + other.copied < most and other.placement[1] + other.copied < most:
            best = other
    return best


class _Assembly:
    """Assembles a plan from a schedule: the addresses of buffers, and the layouts of steps.

    The plan takes over the flow and its buffers.
    """

    def __init__(self, liveness: Liveness) -> None:
        self.liveness = liveness
        self.flow = liveness.flow
        self.tensors = self.flow.tensors
        self.buffers = self.flow.buffers
        self.states = {buffer.owner: buffer for buffer in self.buffers if buffer.kind == STATE}
        self.scratch: dict[int, TensorDescription] = {}
        self.arena_size = 0

    def plan(self, source: Graph, peak_as_written: int) -> Plan:
        """Return the plan for a graph."""
        self._set_lifetimes()
        self._set_offsets()
        graph, copies = self._with_late_updates()
        self._settle_addresses()
        ops = self.flow.ops
        steps = [self._step(ops[node], self.scratch.get(node)) for node in self.liveness.order]
        steps.extend(self._step(copy, None) for copy in copies)
        return Plan(
            graph=graph,
            steps=steps,
            tensors=self.tensors,
            buffers=self._in_use(),
            results=self.flow.results,
            source=source,
            alignment=self.flow.target.alignment,
            arena_size=self.arena_size,
            peak_live=self.liveness.peak,
            peak_as_written=peak_as_written,
        )

    def _set_lifetimes(self) -> None:
        """Set the live range of each buffer, and the kind of those of states' new values."""
        first, last = self.liveness.first, self.liveness.last
        for number, buffer in enumerate(self.buffers):
            buffer.first, buffer.last = first[number], last[number]
        for number, update in self.liveness.early.items():
            self.buffers[number].kind, self.buffers[number].owner = STATE, update.state

    def _set_offsets(self) -> None:
        """Place the buffers of the arena, and add those of scratch memory."""
        scratch: dict[int, Buffer] = {}
        for position, node in self.liveness.scratch:
            nbytes = self.flow.scratch[node]
            scratch[node] = buffer = Buffer(ARENA, nbytes, len(self.buffers))
            buffer.size = self.flow.padded(nbytes)
            buffer.first = buffer.last = position
            self.buffers.append(buffer)
        values = [self.buffers[number] for number in self.liveness.arena]
        self.arena_size = self._place([*values, *scratch.values()])
        for node, buffer in scratch.items():
            self.scratch[node] = TensorDescription(
                (buffer.nbytes,), _BYTE, (1,), buffer.offset, buffer
            )

    def _place(self, arena: Sequence[Buffer]) -> Any:
        """Place the buffers of the arena, and return its size."""
        sizes = tuple([buffer.size for buffer in arena])
        if is_traced(*sizes):
            unit = self.flow.target.alignment
            ranges = tuple([(buffer.first, buffer.last) for buffer in arena])
            maxima = tuple(map(at_maximum, sizes))
            blocks = sizes, () if None in maxima else maxima, ranges, unit
            *places, end = recomputed(placement_in_units, *blocks, for_largest=True)
            offsets, arena_size = [unit * place for place in places], unit * end
        else:
            offsets, arena_size = self.liveness.placement
        for buffer, offset in zip(arena, offsets, strict=True):
            buffer.offset = offset
        return arena_size

    def _with_late_updates(self) -> tuple[Graph, list[Op]]:
        """Return the graph with copies to states appended, and these copies."""
        graph = self.flow.graph
        updates = dict(graph.updates)
        copies: list[Op] = []
        for position, update in enumerate(self.liveness.late, len(self.liveness.order)):
            copy = _copy(update.value)
            tensor = self.tensors[update.value]
            buffer = Buffer(STATE, tensor.base.nbytes, len(self.buffers), update.state)
            buffer.first, buffer.last = position, position
            self.buffers.append(buffer)
            self.tensors[copy] = contiguous(tensor.shape, tensor.dtype, buffer)
            updates[update.state] = copy
            copies.append(copy)
        return (graph.replace(updates=updates.items()) if copies else graph), copies

    def _settle_addresses(self) -> None:
        """Set the final address of every layout; equal ones become one object."""
        settled: dict[TensorDescription, TensorDescription] = {}
        for op, tensor in self.tensors.items():
            root = self._root(tensor.base)
            if root is not tensor.base or root.kind == ARENA:
                tensor = TensorDescription(
                    tensor.shape, tensor.dtype, tensor.strides, tensor.offset + root.offset, root
                )
            self.tensors[op] = settled.setdefault(tensor, tensor)

    def _root(self, buffer: Buffer) -> Buffer:
        """Return the buffer whose memory a buffer reuses; of a state, its only one."""
        home = self.liveness.home
        if buffer.number < len(home):
            buffer = self.buffers[home[buffer.number]]
        return self.states.setdefault(buffer.owner, buffer) if buffer.kind == STATE else buffer

    def _in_use(self) -> list[Buffer]:
        own = [buffer for buffer in self.buffers if self._root(buffer) is buffer]
        called = self.flow.graph.called
        within = (buffer for graph in called for buffer in plan_of(graph).buffers)
        return [*own, *dict.fromkeys(buffer for buffer in within if buffer.kind == CONSTANT)]

    def _step(self, op: Op, workspace: TensorDescription | None) -> Step:
        args = tuple([self.tensors[arg] for arg in op.args])
        outs = tuple([self.tensors[value] for value in self.flow.written_by(op)]) or args[:1]
        return Step(op, outs, args, workspace)
