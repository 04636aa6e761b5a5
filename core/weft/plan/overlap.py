"""Overlap: collectives start as early and are waited for as late as an order of steps allows."""

from __future__ import annotations

from collections.abc import Sequence

from weft.plan.dataflow import Dataflow
from weft.ranks.collectives import StartCollectiveOp, WaitCollectiveOp

Key = tuple[int, int]
"""A place in the order, and a place among what was moved there."""


def overlapping(flow: Dataflow, order: Sequence[int]) -> Sequence[int]:
    """Return an order in which collectives overlap with as many other steps as possible.

    Each start comes right after the last step that it depends on. Each wait comes right before the
    first step that depends on it, but before the first that writes a state: no state is written
    before a step that may raise.
    """
    starts = [node for node in order if isinstance(flow.ops[node], StartCollectiveOp)]
    if not starts:
        return order
    return _with_late_waits(flow, _with_early_starts(flow, starts, order))


def _with_early_starts(flow: Dataflow, starts: Sequence[int], order: Sequence[int]) -> list[int]:
    """Put steps that an earlier start depends on first, and those that none depends on last."""
    needed_by: dict[int, int] = {}
    for number, start in enumerate(starts):
        stack = [start]
        while stack:
            node = stack.pop()
            if node not in needed_by:
                needed_by[node] = number
                stack += flow.before[node]
    return sorted(order, key=lambda node: needed_by.get(node, len(starts)))


def _with_late_waits(flow: Dataflow, order: Sequence[int]) -> list[int]:
    positions = {node: position for position, node in enumerate(order)}
    writers = [update.node for update in flow.updates]
    writers += [reuse.node for reuse in flow.reuses if reuse.has_state]
    end = min([positions[node] for node in writers if node in positions], default=len(order))
    first: dict[int, int] = {}
    keys = {node: (position, 1) for node, position in positions.items()}
    for node in reversed(list(_topological(flow, positions))):
        limit = first.get(node, len(order))
        if node in positions and isinstance(flow.ops[node], WaitCollectiveOp):
            position = max(min(limit, end), positions[node])
            keys[node] = position, 0
        else:
            position = positions.get(node, limit)
        for each in flow.before[node]:
            first[each] = min(first.get(each, len(order)), position)
    return sorted(order, key=lambda node: (keys[node], positions[node]))


def _topological(flow: Dataflow, positions: dict[int, int]) -> list[int]:
    """Return all nodes after their predecessors, the steps in the order of their places."""
    keys: dict[int, int] = {}
    for node in range(len(flow.ops)):
        if node in positions:
            keys[node] = positions[node]
        else:
            keys[node] = max((keys[first] for first in flow.before[node]), default=-1)
    return sorted(range(len(flow.ops)), key=lambda node: (keys[node], node not in positions, node))
