"""Schedules: the order of steps with the smallest peak of live bytes.

Finding the best order is NP-hard (Sethi, Complete register allocation problems, 1975), so several
candidates are compared: program order, which wins ties; depth first, with the operand that
needs the most memory first (Sethi and Ullman, The generation of optimal code for arithmetic
expressions, 1970; with bytes for registers Liu, An application of generalized tree pebbling to
sparse matrix factorization, 1987); and list schedules, forwards and backwards in time, that take
the step which adds the fewest bytes. All but program order also keep soft edges, which let new
values overwrite old ones; bytes that are copied otherwise count as bytes of the arena.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping

from weft.ir.guards import untraced
from weft.plan.buffers import ARENA
from weft.plan.dataflow import Dataflow
from weft.plan.inplace import are_satisfied, topological_order
from weft.plan.liveness import Liveness
from weft.plan.overlap import overlapping

LIST_LIMIT = 20_000
"""The most steps for which list schedules are tried."""

Edges = list[list[int]]
"""The adjacency list of each node."""


def schedules(flow: Dataflow) -> list[Liveness]:
    """Return schedules of a flow, program order first.

    Each keeps dependences and the order of effects; each but the first also keeps soft edges, which
    let new values overwrite old ones. In each, collectives overlap with other steps.
    """
    own = Liveness(flow, overlapping(flow, flow.order))
    soft_edges = _soft_predecessors(flow)
    if own.peak <= peak_lower_bound(flow) and are_satisfied(soft_edges):
        return [own]
    orders = _Tasks(flow, soft_edges).orders()
    return [own, *(Liveness(flow, overlapping(flow, order)) for order in orders)]


def peak_lower_bound(flow: Dataflow) -> int:
    """Return the most arena bytes of a single step: a lower bound of the peak, for any order."""
    elsewhere = _may_be_outside_arena(flow)
    sizes = [0 if other else size for size, other in zip(flow.sizes, elsewhere, strict=True)]
    most = 0
    for node, writes in enumerate(flow.writes):
        reads = sum([sizes[number] for number in flow.reads[node]])
        taking = {written for written, _ in flow.overwrites[node]}
        fresh = sum([sizes[number] for number in writes if number not in taking])
        most = max(most, reads + fresh + untraced(flow.scratch.get(node, 0)))
    return most


def _may_be_outside_arena(flow: Dataflow) -> list[bool]:
    """Return for each buffer whether it may reuse memory outside of the arena."""
    may_be_outside = [buffer.kind != ARENA for buffer in flow.buffers]
    for update in flow.updates:
        may_be_outside[update.buffer] = True
    for pairs in reversed(flow.overwrites):
        for written, read in pairs:
            may_be_outside[read] = may_be_outside[read] or may_be_outside[written]
    return may_be_outside


class _Tasks:
    """The nodes of a flow, with the edges that an order must keep.

    Attributes
    ----------
    first
        Program order, except that a node that overwrites an old value comes after its soft
        predecessors, where dependences allow it.
    before, after
        By node, its predecessors and successors.
    """

    def __init__(self, flow: Dataflow, soft_edges: Mapping[int, set[int]]) -> None:
        self.flow = flow
        self.before: Edges = [list(nodes) for nodes in flow.before]
        is_met = are_satisfied(soft_edges)
        self.first = (
            [*range(len(flow.ops))] if is_met else topological_order(self.before, soft_edges)
        )
        self._keep(soft_edges)
        self.after = _reversed(self.before)

    def orders(self) -> Iterator[list[int]]:
        """Yield orders of the steps."""
        orders = [self._depth_first()]
        if self.first != sorted(self.first):
            orders.append(self.first)
        if len(self.first) <= LIST_LIMIT:
            orders.append(_listed(self.flow, self.before, self.after, later=1))
            orders.append(_listed(self.flow, self.after, self.before, later=-1)[::-1])
        for order in orders:
            yield [node for node in order if self.flow.is_step[node]]

    def _keep(self, soft_edges: Mapping[int, set[int]]) -> None:
        """Keep the soft edges that the first order keeps in all orders."""
        positions = {node: position for position, node in enumerate(self.first)}
        for node, firsts in soft_edges.items():
            met = [each for each in firsts if positions[each] < positions[node]]
            self.before[node] = list(dict.fromkeys([*self.before[node], *met]))

    def _depth_first(self) -> list[int]:
        """Return a depth-first order, the operand with the largest need first.

        Of the nodes without readers, those with the shortest path to them come first.
        """
        needs, depths = self._needs()
        roots = [node for node, users in enumerate(self.after) if not users]
        order: list[int] = []
        done = [False] * len(self.before)
        for root in sorted(roots, key=depths.__getitem__):
            stack = [root]
            while stack:
                node = stack[-1]
                missing = [each for each in self.before[node] if not done[each]]
                if missing:
                    stack.extend(sorted(missing, key=needs.__getitem__))
                    continue
                stack.pop()
                if not done[node]:
                    done[node] = True
                    order.append(node)
        return order

    def _needs(self) -> tuple[list[int], list[int]]:
        """Return for each node the bytes needed to compute it, beyond its value.

        Values are assumed to have one reader. Also returns each node's depth.
        """
        flow = self.flow
        written = [sum([flow.sizes[number] for number in writes]) for writes in flow.writes]
        needs = [0] * len(written)
        depths = [0] * len(written)
        for node in self.first:
            held = most = depth = 0
            for each in sorted(self.before[node], key=needs.__getitem__, reverse=True):
                most = max(most, held + needs[each] + written[each])
                held += written[each]
                depth = max(depth, depths[each])
            most = max(most, held + written[node] + flow.scratch.get(node, 0))
            needs[node] = most - written[node]
            depths[node] = depth + 1
        return needs, depths


def _soft_predecessors(flow: Dataflow) -> dict[int, set[int]]:
    """Return the soft predecessors of each node that should overwrite a value.

    These are the value's other readers and, if it is a state's, the last node that may raise.
    """
    nodes: dict[int, list[int]] = {}
    for reuse in flow.reuses:
        if reuse.old is not None:
            nodes.setdefault(reuse.old, []).append(reuse.node)
    predecessors: dict[int, set[int]] = {reuse.node: set() for reuse in flow.reuses}
    for reader, reads in enumerate(flow.reads) if nodes else ():
        for number in reads:
            for node in nodes.get(number, ()):
                predecessors[node].add(reader)
    for reuse in flow.reuses if flow.barriers else ():
        if reuse.has_state:
            predecessors[reuse.node].add(flow.barriers[-1])
    return {node: firsts - {node} for node, firsts in predecessors.items()}


def _reversed(edges: Edges) -> Edges:
    result: Edges = [[] for _ in edges]
    for node, others in enumerate(edges):
        for other in others:
            result[other].append(node)
    return result


def _listed(flow: Dataflow, before: Edges, after: Edges, later: int) -> list[int]:
    """Return the list schedule that takes the ready node which adds the fewest bytes.

    A buffer is live from the first to the last node that writes or reads it. Ties go to the lowest
    number times `later`.
    """
    usage = _Usage(flow)
    waiting = [len(nodes) for nodes in before]
    added, done = usage.added, usage.done
    ready = [(added[node], later * node) for node, count in enumerate(waiting) if not count]
    heapq.heapify(ready)
    order = []
    while ready:
        node = heapq.heappop(ready)[1] * later
        if done[node]:
            continue
        order.append(node)
        for each in usage.take(node):
            if not waiting[each]:
                heapq.heappush(ready, (added[each], later * each))
        for each in after[node]:
            waiting[each] -= 1
            if not waiting[each]:
                heapq.heappush(ready, (added[each], later * each))
    return order


class _Usage:
    """The live buffers while nodes are taken one by one.

    Attributes
    ----------
    added
        By node, the live bytes that taking it would add, which only decrease.
    done
        By node, whether it has been taken.
    """

    def __init__(self, flow: Dataflow) -> None:
        self.sizes = flow.sizes
        self.users: Edges = [[] for _ in flow.buffers]
        for node, numbers in enumerate(zip(flow.writes, flow.reads, strict=True)):
            for number in (*numbers[0], *numbers[1]):
                self.users[number].append(node)
        self.left = [len(nodes) for nodes in self.users]
        self.used = [
            [each for each in (*writes, *reads) if self.sizes[each] and self.left[each] > 1]
            for writes, reads in zip(flow.writes, flow.reads, strict=True)
        ]
        self.added = [sum([self.sizes[each] for each in numbers]) for numbers in self.used]
        self.done = [False] * len(self.used)

    def take(self, node: int) -> list[int]:
        """Take a node; returns the nodes that add fewer bytes from now on."""
        self.done[node] = True
        changed = []
        for number in self.used[node]:
            users = self.users[number]
            left = self.left[number] = self.left[number] - 1
            if left == len(users) - 1:
                changed.extend(self._less(users, number))
            if left == 1:
                changed.extend(self._less(users, number))
        return changed

    def _less(self, users: list[int], number: int) -> list[int]:
        others = [user for user in users if not self.done[user]]
        for user in others:
            self.added[user] -= self.sizes[number]
        return others
