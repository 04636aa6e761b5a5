"""Outlines: the ops of a graph in boxes that open, or counted by source line.

The ops of a name scope are a box, and so are those of their gradient. Boxes have no cycles: a scope
that is left and entered again has another box where one would depend on itself. A repeated
sequence, such as the layers of a network, is a box with a box for each repetition.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from weft.ir import scope
from weft.ir.graph import Graph
from weft.ir.op import Op
from weft.ir.results import ResultOp
from weft.ir.storage import ParameterOp
from weft.ir.tensor import CompositeOp
from weft.ir.traversal import postorder
from weft.kernels import FusedOp
from weft.ops.shape.movement import IdentityOp
from weft.plan import picture
from weft.plan.repeated_blocks import repetitions
from weft.support.source import Location, function_around

MOST_TOGETHER = 40
"""The most items that a box shows; more are put into further boxes."""

SCOPE, LAYER, LINE, PART = "scope", "layer", "line", "part"
"""What the ops of a box share: a name scope, a repetition, the user's line, or their place."""


@dataclass(frozen=True)
class Box:
    """Items of a graph that are shown as one.

    Attributes
    ----------
    kind
        `SCOPE`, `LAYER`, `LINE` or `PART`.
    items
        Numbers of ops, and boxes.
    title
        The innermost name of the scope, the repetition, or the user's function; empty for a `PART`.
    is_gradient
        Whether all of its ops belong to a gradient.
    location
        The user's line of all its ops, for `LINE`.
    """

    kind: str
    items: tuple[int | Box, ...]
    title: str = ""
    is_gradient: bool = False
    location: Location | None = None

    @property
    def ops(self) -> Iterator[int]:
        """The numbers of the ops in it and in the boxes inside of it."""
        for item in self.items:
            if isinstance(item, Box):
                yield from item.ops
            else:
                yield item


def boxed(ops: Sequence[Op], indices: Sequence[int]) -> tuple[int | Box, ...]:
    """Return those ops of a graph that are shown, in boxes if there are many."""
    return _Outline(ops).of(indices, 0)


class _Outline:
    def __init__(self, ops: Sequence[Op]) -> None:
        self.all = ops

    def of(self, indices: Sequence[int], depth: int) -> tuple[int | Box, ...]:
        """Return ops as items, of scopes from a depth on."""
        if len(indices) <= MOST_TOGETHER and depth == 0:
            return tuple(indices)
        items = self.scopes(indices, depth)
        return tuple(items) if len(items) <= MOST_TOGETHER else _fewer(self.repeated(items))

    def scopes(self, indices: Sequence[int], depth: int) -> list[int | Box]:
        """Return ops with a box for each scope, each after what it depends on."""
        groups: list[_Group] = []
        open_groups: dict[Hashable, _Group] = {}
        group_of: dict[Op, _Group] = {}
        for index in indices:
            op = self.all[index]
            key = _scope_of(op, depth)
            before = [group_of[arg] for arg in map(drawn_as, op.args) if arg in group_of]
            rank = max([each.rank + (key is None or each.key != key) for each in before], default=0)
            group = None if key is None else open_groups.get(key)
            if group is None or (group.is_read and group.rank < rank):
                groups.append(group := _Group(key, op))
                open_groups[key] = group
            group.rank = max(group.rank, rank)
            for each in before:
                if each is not group:
                    each.is_read = True
                    group.needs[each.first] = None
            group.indices.append(index)
            group_of[op] = group
        order = postorder([each.first for each in groups], lambda op: group_of[op].needs)
        return [item for op in order for item in self.items(group_of[op], depth)]

    def items(self, group: _Group, depth: int) -> Sequence[int | Box]:
        """Return the box of a scope, or the only op."""
        if group.key is None or len(group.indices) == 1:
            return group.indices
        name, is_backward = group.key
        return [Box(SCOPE, self.of(group.indices, depth + 1), name, is_backward)]

    def repeated(self, items: Sequence[int | Box]) -> list[int | Box]:
        """Return items with a box for each repeated sequence, and for ops of one line."""
        numbers: dict[Hashable, int] = {}
        kinds = [numbers.setdefault(self.kind(item), len(numbers)) for item in items]
        found: list[int | Box] = []
        done = 0
        for start, end, period, _ in sorted(repetitions(kinds)):
            count = (end - start) // period
            if start < done or count < 2:
                continue
            found += self.by_line(items[done:start])
            done = start + count * period
            parts = [items[first : first + period] for first in range(start, done, period)]
            found.append(self.layers(parts))
        return found + self.by_line(items[done:])

    def layers(self, parts: Sequence[Sequence[int | Box]]) -> Box:
        """Return the box of a repeated sequence; gradients count from the last layer."""
        ops = [self.all[index] for part in parts for index in Box(LAYER, tuple(part)).ops]
        is_backward = all(map(is_gradient, ops))
        function = _function_of(ops)
        name = f": {function}" if function else ""
        count = len(parts)
        numbers = range(count, 0, -1) if is_backward else range(1, count + 1)
        layers = [
            Box(LAYER, _fewer(self.by_line(part)), f"{n} of {count}{name}", is_backward)
            for n, part in zip(numbers, parts, strict=True)
        ]
        return Box(LAYER, _fewer(layers), f"{count} times{name}", is_backward)

    def kind(self, item: int | Box) -> Hashable:
        if isinstance(item, Box):
            return item.kind, item.title, item.is_gradient, sum(1 for _ in item.ops)
        op = self.all[item]
        return type(op), op.location, op.axes, op.dtype, is_gradient(op)

    def by_line(self, items: Sequence[int | Box]) -> list[int | Box]:
        """Return items, if they are many with a box for each run of several ops of one line."""
        if len(items) <= MOST_TOGETHER:
            return list(items)
        found: list[int | Box] = []
        for key, several in groupby(items, key=self.line):
            run = tuple(several)
            if key is None or len(run) == 1:
                found += run
            else:
                location, is_backward = key
                title = function_around(location)
                found.append(Box(LINE, _fewer(run), title, is_backward, location))
        return found

    def line(self, item: int | Box) -> tuple[Location, bool] | None:
        if isinstance(item, Box):
            return None
        op = self.all[item]
        return op.location, is_gradient(op)


@dataclass(eq=False)
class _Group:
    """Ops of one scope, or a single op without a key.

    `rank` is larger than that of every other group that the ops depend on. It may grow until an op
    of another group reads one of these, `is_read`. `needs` has the first op of each group that the
    ops depend on.
    """

    key: tuple[str, bool] | None
    first: Op
    rank: int = 0
    is_read: bool = False
    needs: dict[Op, None] = field(default_factory=dict)
    indices: list[int] = field(default_factory=list)


def parts_of(op: CompositeOp) -> list[Op]:
    """Return the ops that compute in the decomposition of a composite, in their order."""
    with scope.replacing(op), scope.captured_ops():
        try:
            made = op.decompose(*op.args)
        except NotImplementedError:
            return []
    given = frozenset(op.args)
    ops = postorder([made], lambda each: () if each in given else each.args)
    moves = [each.is_constant or picture.kind_of(each)[0] == "movement" for each in ops]
    return [each for each, moved in zip(ops, moves, strict=True) if not moved and each not in given]


def kinds_computed(op: Op) -> Iterator[str]:
    """Return the kinds of the ops that compute an op once all composites are decomposed."""
    parts = parts_of(op) if isinstance(op, CompositeOp) else []
    if not parts:
        yield kind_of(op)
    for part in parts:
        yield from kinds_computed(part)


def drawn_as(op: Op) -> Op:
    """Return the op that a drawing shows for an op: one result of several, or a copy, is that."""
    while isinstance(op, ResultOp | IdentityOp):
        op = op.args[0]
    return op


def _scope_of(op: Op, depth: int) -> tuple[str, bool] | None:
    """Return the name of an op's scope at a depth, and whether it belongs to a gradient.

    Inputs have a scope by their place in the arguments.
    """
    path = op.name_scope
    if isinstance(op, ParameterOp):
        path = "/".join(["inputs", *re.findall(r"\w+", op.source.label or "")])
    names = path.split("/", depth + 1) if path else []
    return (names[depth], is_gradient(op)) if len(names) > depth else None


def is_gradient(op: Op) -> bool:
    """Whether an op is part of a gradient; a kernel, if all of its results are."""
    if isinstance(op, FusedOp):
        return all(each.adjoint_of is not None for each in _results(op))
    return op.adjoint_of is not None


def _results(op: FusedOp) -> Iterator[Op]:
    """Yield the ops whose values a kernel returns."""
    kernel = op.kernel
    for place in kernel.outputs:
        yield kernel.body[place - len(kernel.operands)].op


def _function_of(ops: Sequence[Op]) -> str:
    """Return the user's function with all lines of some ops; empty if there are several."""
    names = set(map(function_around, {op.location for op in ops}))
    return names.pop() if len(names) == 1 else ""


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
