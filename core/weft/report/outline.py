"""Outlines: the ops of a graph in boxes that open, or counted by source line.

Each box holds ops that follow one another in the graph's order, so boxes have no cycles. A repeated
sequence, such as the layers of a network, is a box with a box for each repetition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import groupby

from weft.ir.graph import Graph
from weft.ir.op import Op
from weft.plan.repeated_blocks import repetitions
from weft.support.source import Location

MOST_TOGETHER = 40
"""The most items that a box shows; more are put into further boxes."""

LAYER, LINE, PART = "layer", "line", "part"
"""What the ops of a box have in common: a repetition, the user's line, or being neighbors."""


@dataclass(frozen=True)
class Box:
    """Neighboring items of a graph.

    Attributes
    ----------
    kind
        `LAYER`, `LINE` or `PART`.
    items
        Numbers of ops, and boxes.
    title
        How the repetition is called; empty for other boxes.
    location
        The user's line of all its ops, for `LINE`.
    """

    kind: str
    items: tuple[int | Box, ...]
    title: str = ""
    location: Location | None = None


def boxed(ops: Sequence[Op], indices: Sequence[int]) -> tuple[int | Box, ...]:
    """Return those ops of a graph that are shown, in boxes if there are many."""
    if len(indices) <= MOST_TOGETHER:
        return tuple(indices)
    numbers: dict[Hashable, int] = {}
    kinds = [numbers.setdefault(_kind(ops[index]), len(numbers)) for index in indices]
    items: list[int | Box] = []
    done = 0
    for start, end, period, _ in sorted(repetitions(kinds)):
        count = (end - start) // period
        if start < done or count < 2:
            continue
        items += _by_line(ops, indices[done:start])
        done = start + count * period
        layers = [
            Box(LAYER, _fewer(_by_line(ops, indices[first : first + period])), f"{n} of {count}")
            for n, first in enumerate(range(start, done, period), 1)
        ]
        items.append(Box(LAYER, _fewer(layers), f"{count} times"))
    items += _by_line(ops, indices[done:])
    return _fewer(items)


def _kind(op: Op) -> Hashable:
    return type(op), op.location, op.axes, op.dtype


def _by_line(ops: Sequence[Op], indices: Sequence[int]) -> list[int | Box]:
    """Return ops with a box for each run of several ops of one line."""
    items: list[int | Box] = []
    for location, several in groupby(indices, key=lambda index: ops[index].location):
        line_indices = tuple(several)
        if len(line_indices) == 1:
            items += line_indices
        else:
            items.append(Box(LINE, _fewer(line_indices), location=location))
    return items


def _fewer(items: Sequence[int | Box]) -> tuple[int | Box, ...]:
    """Return items in as many levels of boxes as keep each box small."""
    while len(items) > MOST_TOGETHER:
        starts = range(0, len(items), MOST_TOGETHER)
        items = [Box(PART, tuple(items[start : start + MOST_TOGETHER])) for start in starts]
    return tuple(items)


@dataclass(frozen=True)
class LineSummary:
    """The ops of one of the user's lines: how many, and the names of the most frequent kinds."""

    location: Location
    count: int
    kinds: tuple[str, ...]


def kind_of(op: Op) -> str:
    """Return the name of an op in reports."""
    return "Constant" if op.is_constant else type(op).__name__.removesuffix("Op")


def summary(graph: Graph) -> list[LineSummary]:
    """Return the ops of a graph by the user's line, most ops first."""
    kinds_by_line: dict[Location, Counter[str]] = {}
    for op in graph.ops:
        for each in op.contained or (op,):
            kinds = kinds_by_line.setdefault(each.location, Counter())
            kinds[kind_of(each)] += 1
    lines = [
        LineSummary(location, kinds.total(), tuple(name for name, _ in kinds.most_common(4)))
        for location, kinds in kinds_by_line.items()
    ]
    return sorted(lines, key=lambda line: -line.count)
