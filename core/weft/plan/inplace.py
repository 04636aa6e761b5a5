"""Decides which values reuse an older buffer, and which reads must precede the write.

A partial update writes only the changed part if it may overwrite its operand, else the whole value.
The new value of a state is computed in the state's buffer, or else copied there at the end. So
other readers of the old value should run first; a reader that cannot reads a copy, if it is small.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from weft.ir.description import TensorDescription, contiguous
from weft.ir.graph import Graph
from weft.ir.op import Op
from weft.ir.results import ResultOp, TupleOp
from weft.ir.storage import ParameterOp, ReadOp
from weft.ir.views import planned_layout
from weft.ops.indexing.dynamic_slices import DynamicUpdateSliceOp
from weft.ops.indexing.gathering import ScatterOp
from weft.ops.indexing.slicing import UpdateSliceOp
from weft.ops.shape.movement import BroadcastOp
from weft.plan.buffers import STATE, kind_of

PARTIAL_UPDATES = (DynamicUpdateSliceOp, ScatterOp, UpdateSliceOp)
"""The partial updates: ops that replace a part of their first operand."""


class Rewrite(NamedTuple):
    """A value that should reuse an older value's buffer.

    Attributes
    ----------
    value
        The new value.
    old
        The older value, or the state that holds it when a call begins.
    state
        The state that owns the buffer, if any.
    is_partial
        Whether `value` is a partial update of `old`.
    """

    value: Op
    old: Op
    state: Op | None
    is_partial: bool

    @property
    def producer(self) -> Op:
        """The op that computes the value."""
        return producer_of(self.value)


def rewrites(graph: Graph) -> list[Rewrite]:
    """Return the values that should reuse an older value's buffer, in order for each buffer."""
    result: list[Rewrite] = []
    owners = {state: buffer_owner(last) for state, last in graph.updates}
    lasting = {*owners.values()}
    for state, value in owners.items():
        if value is not None and not _is_given(value):
            result.extend(reversed([*_versions(state, value, lasting)]))
    known = {each.value for each in result}
    lasting.update(map(buffer_owner, graph.outputs))
    for op in graph.ops:
        if isinstance(op, PARTIAL_UPDATES) and op not in known:
            old = _partially_updated(op)
            if old is not None and old not in lasting and not isinstance(old, ReadOp):
                result.append(Rewrite(op, old, None, is_partial=True))
    return result


def _versions(state: Op, last: Op, lasting: Collection[Op | None]) -> Iterator[Rewrite]:
    """Yield the values that should reuse a state's buffer, the last one first.

    The last value of another state stays in that state's buffer.
    """
    value = last
    while (old := _partially_updated(value)) is not None:
        if isinstance(old, ReadOp) or old in lasting:
            break
        yield Rewrite(value, old, state, is_partial=True)
        value = old
    is_partial = isinstance(old, ReadOp) and old.state is state
    yield Rewrite(value, state, state, is_partial)
    if value is not last and not is_partial:
        yield Rewrite(last, state, state, is_partial=False)


def _partially_updated(op: Op) -> Op | None:
    """Return the value that an op updates in part, unless its buffer is read-only."""
    old = buffer_owner(op.args[0]) if isinstance(op, PARTIAL_UPDATES) else None
    if old is None or old.dtype != op.dtype:
        return None
    return None if old.is_constant or isinstance(old, ParameterOp) else old


def _is_given(op: Op) -> bool:
    return op.is_constant or isinstance(op, ParameterOp | ReadOp)


def producer_of(value: Op) -> Op:
    """Return the op that computes a value: itself, or the op that it is a result of."""
    return value.args[0] if isinstance(value, ResultOp) else value


def buffer_owner(value: Op) -> Op | None:
    """Return the op whose buffer a value occupies, whole and in the same order.

    A view that only renames axes, or that shows pairs as complex numbers, occupies its operand's
    buffer; any other view gives None.
    """
    layout = planned_layout(value)
    owner: Op = layout.base
    is_whole = layout.is_contiguous and layout.nbytes == owner.nbytes
    return owner if is_whole else None


def may_reuse(value: Op, index: int, tensor: TensorDescription) -> bool:
    """Whether a value may reuse the buffer of its producer's operand, which has a layout."""
    if not _is_same(value, tensor):
        return False
    producer = producer_of(value)
    if isinstance(producer, TupleOp) and isinstance(value, ResultOp):
        return producer.may_overwrite_with(value.index, index)
    return value.may_overwrite(index)


def _is_same(value: Op, tensor: TensorDescription) -> bool:
    """Whether a layout places elements as a contiguous value at the same address does."""
    same = tensor.shape == value.axes.shape and tensor.dtype == value.dtype
    return same and not tensor.offset and tensor.is_contiguous


def _before_broadcast(reader: Op, arg: Op) -> tuple[Op, Op]:
    """Return the outermost broadcast of an operand and what it broadcasts; else both as given."""
    while isinstance(arg, BroadcastOp):
        reader, (arg,) = arg, arg.args
    return reader, arg


class InPlaceAnalysis:
    """The values of a graph that can reuse older buffers, all in one order of the ops.

    Attributes
    ----------
    order
        Program order, except that an op that overwrites a value follows the value's other readers
        and, for a state's value, the ops that may raise, as far as possible.
    first
        For an op that can overwrite a value, the ops that must run before it.
    apart
        Pairs of such ops that cannot be fused into one kernel.
    copied
        For an op, the operands to copy, because this op or an earlier one overwrites them.
    states
        The partial updates of a state that are computed in its buffer.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.order: Sequence[Op] = graph.ops
        self.first: dict[Op, list[Op]] = {}
        self.apart: set[tuple[Op, Op]] = set()
        self.copied: dict[Op, set[Op]] = {}
        self.states: dict[Op, Op] = {}
        self._viewed: dict[Op, tuple[Op, TensorDescription]] = {}
        self._readers: dict[Op, list[Op]] = {}
        self._barriers = [op for op in graph.ops if op.has_effect or op.may_raise]
        candidates = rewrites(graph)
        if candidates:
            self._find_readers({each.old for each in candidates})
            wanted = [self._soft_predecessors(each) for each in candidates]
            self.order = self._ordered(candidates, wanted)
            indices = {op: index for index, op in enumerate(self.order)}
            for each, firsts in zip(candidates, wanted, strict=True):
                self._settle(each, firsts, indices)

    def _find_readers(self, wanted: Collection[Op]) -> None:
        """Find the views of values, and the readers of values, directly or through views."""
        self._readers = {op: [] for op in wanted}
        viewed = self._viewed
        for op in self.graph.ops:
            memory = op.state if isinstance(op, ReadOp) else op
            if memory in wanted:
                viewed[op] = memory, contiguous(op.axes.shape, op.dtype)
            if viewed.keys().isdisjoint(op.args):
                continue
            view = None
            if op.args[0] in viewed:
                old, tensor = viewed[op.args[0]]
                view = op.view(tensor)
                if view is not None:
                    viewed[op] = old, view
            if view is None or op.has_effect:
                for old in {viewed[arg][0] for arg in op.args if arg in viewed}:
                    self._readers[old].append(op)

    def _soft_predecessors(self, rewrite: Rewrite) -> list[Op]:
        """Return the ops that should run before an op that overwrites a value."""
        wanted = dict.fromkeys([*self._readers[rewrite.old], *self._before_writes(rewrite)])
        return [op for op in wanted if op is not rewrite.producer]

    def _before_writes(self, rewrite: Rewrite) -> Sequence[Op]:
        """Return the last barrier, which must run before an op that writes a state."""
        is_lasting = rewrite.state is not None and kind_of(rewrite.state) == STATE
        return self._barriers[-1:] if is_lasting else ()

    def _ordered(
        self, candidates: Iterable[Rewrite], wanted: Iterable[Iterable[Op]]
    ) -> Sequence[Op]:
        """Return program order, or one that keeps more soft edges."""
        ops = self.graph.ops
        indices = {op: index for index, op in enumerate(ops)}
        soft_edges: dict[int, set[int]] = {}
        for each, firsts in zip(candidates, wanted, strict=True):
            soft_edges.setdefault(indices[each.producer], set()).update(
                [indices[op] for op in firsts]
            )
        if are_satisfied(soft_edges):
            return ops
        before = [[indices[first] for first in self.graph.children(op)] for op in ops]
        for one, other in pairwise(self._barriers):
            before[indices[other]].append(indices[one])
        return [ops[node] for node in topological_order(before, soft_edges)]

    def _settle(self, rewrite: Rewrite, wanted: Sequence[Op], indices: Mapping[Op, int]) -> None:
        """Decide whether a value can reuse an older buffer, and record what that requires."""
        producer, value = rewrite.producer, rewrite.value
        if any(indices[op] >= indices[producer] for op in self._before_writes(rewrite)):
            return
        late = {op: None for op in wanted if indices[op] > indices[producer]}
        copied = {
            _before_broadcast(op, arg)
            for op in (*late, producer)
            for index, arg, tensor in self._operands(op, rewrite.old)
            if op is not producer or not may_reuse(value, index, tensor)
        }
        if copied and sum(op.nbytes for op in {part for _, part in copied}) >= value.nbytes:
            return
        for op, part in copied:
            self.copied.setdefault(op, set()).add(part)
        self.first.setdefault(producer, []).extend(op for op in wanted if op not in late)
        self.apart.update((producer, op) for op in wanted if self._reads_elsewhere(op, rewrite))
        state = rewrite.state
        is_there = rewrite.old is state or self.states.get(rewrite.old) is state
        if state is not None and rewrite.is_partial and is_there:
            self.states[value] = state

    def _operands(self, op: Op, old: Op) -> Iterator[tuple[int, Op, TensorDescription]]:
        """Yield the operands of an op that are views of a value, with their indices."""
        for index, arg in enumerate(op.args):
            viewed, tensor = self._viewed.get(arg, (None, None))
            if viewed is old and tensor is not None:
                yield index, arg, tensor

    def _reads_elsewhere(self, op: Op, rewrite: Rewrite) -> bool:
        """Whether an op reads a view at other addresses than the value's, too large to copy."""
        size = rewrite.value.nbytes
        return any(
            not _is_same(rewrite.value, tensor) and _before_broadcast(op, arg)[1].nbytes >= size
            for _, arg, tensor in self._operands(op, rewrite.old)
        )


def are_satisfied(soft_edges: Mapping[int, Collection[int]]) -> bool:
    """Whether the numbers of nodes keep all soft edges: a node comes after its predecessors."""
    return all(first < node for node, firsts in soft_edges.items() for first in firsts)


def topological_order(
    before: Sequence[Collection[int]], soft_edges: Mapping[int, Collection[int]]
) -> list[int]:
    """Return nodes by number in an order that keeps hard edges, and soft ones where possible.

    `before` holds the hard predecessors of each node, which have lower numbers. A soft edge that
    would close a cycle is left out; a node with open soft edges is taken when no other is ready.
    """
    possible = _satisfiable(before, soft_edges)
    after: list[list[int]] = [[] for _ in before]
    for node, others in enumerate(before):
        for other in others:
            after[other].append(node)
    waiting = [len(nodes) for nodes in before]
    open_edges = {node: len(nodes) for node, nodes in possible.items()}
    successors: dict[int, list[int]] = {}
    for node, nodes in possible.items():
        for each in nodes:
            successors.setdefault(each, []).append(node)
    ready = [(open_edges.get(node, 0) > 0, node) for node, count in enumerate(waiting) if not count]
    heapq.heapify(ready)
    order: dict[int, None] = {}
    while ready:
        _, node = heapq.heappop(ready)
        if node in order:
            continue
        order[node] = None
        for each in after[node]:
            waiting[each] -= 1
            if not waiting[each]:
                heapq.heappush(ready, (open_edges.get(each, 0) > 0, each))
        for each in successors.get(node, ()):
            open_edges[each] -= 1
            if not open_edges[each] and not waiting[each]:
                heapq.heappush(ready, (False, each))
    return list(order)


def _satisfiable(
    before: Sequence[Collection[int]], soft_edges: Mapping[int, Collection[int]]
) -> dict[int, list[int]]:
    """Return soft edges without those that would close a cycle with the hard ones."""
    bits = {node: 1 << number for number, node in enumerate(soft_edges)}
    needed = [0] * len(before)
    for node, others in enumerate(before):
        mask = bits.get(node, 0)
        for other in others:
            mask |= needed[other]
        needed[node] = mask
    return {
        node: [each for each in nodes if not needed[each] & bits[node]]
        for node, nodes in soft_edges.items()
    }
