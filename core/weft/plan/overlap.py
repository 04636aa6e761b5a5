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
    places = {node: place for place, node in enumerate(order)}
    writers = [update.node for update in flow.updates]
    writers += [reuse.node for reuse in flow.reuses if reuse.has_state]
    end = min([places[node] for node in writers if node in places], default=len(order))
    first: dict[int, int] = {}
    keys = {node: (place, 1) for node, place in places.items()}
    for node in reversed(list(_topological(flow, places))):
        limit = first.get(node, len(order))
        if node in places and isinstance(flow.ops[node], WaitCollectiveOp):
            place = max(min(limit, end), places[node])
            keys[node] = place, 0
        else:
            place = places.get(node, limit)
        for each in flow.before[node]:
            first[each] = min(first.get(each, len(order)), place)
    return sorted(order, key=lambda node: (keys[node], places[node]))


def _topological(flow: Dataflow, places: dict[int, int]) -> list[int]:
    """Return all nodes after their predecessors, the steps in the order of their places."""
    keys: dict[int, int] = {}
    for node in range(len(flow.ops)):
        if node in places:
            keys[node] = places[node]
        else:
            keys[node] = max((keys[first] for first in flow.before[node]), default=-1)
    return sorted(range(len(flow.ops)), key=lambda node: (keys[node], node not in places, node))
