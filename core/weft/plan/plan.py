"""The planner: schedules a graph, places its buffers, and describes every tensor."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from weft.ir import dtypes
from weft.ir.description import TensorDescription, contiguous
from weft.ir.graph import Graph, called_graphs
from weft.ir.guards import at_maximum, is_traced, recomputed
from weft.ir.op import Op
from weft.ir.target import Target
from weft.plan.buffers import ARENA, CONSTANT, INPUT, RESULT, STATE, STATES, Buffer, kind_of
from weft.plan.carried_memory import find_carried, with_carried_states
from weft.plan.copies import copy_of, with_copies
from weft.plan.dataflow import Dataflow
from weft.plan.donated_memory import NOTHING, Donated, in_results, pairs_of, with_donated_states
from weft.plan.liveness import Liveness
from weft.plan.placement import placement_in_units
from weft.plan.rematerialization import rematerialized
from weft.plan.schedule import schedules
from weft.plan.steps import PLAN, Plan, Step, plan_of
from weft.plan.unrolled_schedule import unroll

__all__ = [
    "ARENA", "CONSTANT", "INPUT", "RESULT", "STATE", "Buffer", "Plan", "Step", "make_plan",
]  # fmt: skip

_BYTE = dtypes.uint8


def make_plan(
    graph: Graph,
    target: Target,
    memory_limit: int | None = None,
    donated: Donated = NOTHING,
) -> Plan:
    """Return a plan for a graph whose lengths are all known.

    A result takes over the memory of the argument that `donated` has for it; then it has the value
    of the argument when the program begins.

    If the arena exceeds `memory_limit` bytes, values are recomputed instead of kept. Raises
    MemoryLimitError if that does not suffice.
    """
    find_carried(graph)
    for each in called_graphs(graph):
        each.memo(PLAN, partial(_planned, each, target, is_called=True))
    pairs = pairs_of(graph, donated)
    return in_results(_planned(with_donated_states(graph, pairs), target, memory_limit), pairs)


def _planned(
    graph: Graph, target: Target, memory_limit: int | None = None, is_called: bool = False
) -> Plan:
    """Return a plan for a graph whose called graphs are planned."""
    lends = target.lends_results and not is_called
    graph = with_carried_states(graph) if is_called else graph
    candidates = schedules(Dataflow(with_copies(graph, is_called, lends), target))
    best = _smallest(candidates)
    if memory_limit is not None and best.placement[1] > memory_limit:
        best = unroll(rematerialized(candidates, memory_limit))
    plan = _Assembly(best).plan(graph, peak_as_written=candidates[0].peak)
    plan.memory_limit = memory_limit
    return plan


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
        self.states = {buffer.owner: buffer for buffer in self.buffers if buffer.kind in STATES}
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
            buffer = self.buffers[number]
            buffer.kind, buffer.owner = kind_of(update.state), update.state

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
            copy = copy_of(update.value)
            tensor = self.tensors[update.value]
            buffer = Buffer(
                kind_of(update.state), tensor.base.nbytes, len(self.buffers), update.state
            )
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
        return self.states.setdefault(buffer.owner, buffer) if buffer.kind in STATES else buffer

    def _in_use(self) -> list[Buffer]:
        own = [buffer for buffer in self.buffers if self._root(buffer) is buffer]
        called = self.flow.graph.called
        within = (buffer for graph in called for buffer in plan_of(graph).buffers)
        return [*own, *dict.fromkeys(buffer for buffer in within if buffer.kind == CONSTANT)]

    def _step(self, op: Op, workspace: TensorDescription | None) -> Step:
        args = tuple([self.tensors[arg] for arg in op.args])
        outs = tuple([self.tensors[value] for value in self.flow.written_by(op)]) or args[:1]
        return Step(op, outs, args, workspace)
