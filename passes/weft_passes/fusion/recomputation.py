"""The third sweep: values that other clusters read are computed there, if that moves fewer bytes.

A value may be computed in its readers' clusters in place of its own, with the ops that it needs.
Where that computes an op several times, the op must be cheap.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from weft.kernels import operand_places
from weft.op import Op
from weft.ops.bits import BitwiseOp
from weft.ops.comparison import ComparisonOp, MaximumOp, MinimumOp, WhereOp
from weft.ops.elementwise import (
    AbsoluteOp,
    AddOp,
    CastOp,
    ElementwiseOp,
    MultiplyOp,
    NegativeOp,
    SquareOp,
    SubtractOp,
)
from weft.ops.movement import BroadcastOp
from weft_passes.fusion.clusters import Cluster, Clusters

CHEAP = (
    AbsoluteOp,
    AddOp,
    BitwiseOp,
    CastOp,
    ComparisonOp,
    MaximumOp,
    MinimumOp,
    MultiplyOp,
    NegativeOp,
    SquareOp,
    SubtractOp,
    WhereOp,
)
"""The elementwise ops that take less time than to write their result and read it again."""

MOST_AGAIN = 4
"""How many ops may be computed again for one value."""


def move_to_readers(clusters: Clusters) -> None:
    """Visit every cluster after those that read from it."""
    pinned = {*clusters.graph.roots, *(op for ops in clusters.graph.after.values() for op in ops)}
    number = {op: place for place, op in enumerate(clusters.graph.ops)}
    for cluster in sorted(dict.fromkeys(clusters.home.values()), key=lambda each: -each.rank):
        _Outputs(clusters, cluster, pinned, number).move()


class _Outputs:
    """What a cluster stores, and who reads it.

    Attributes
    ----------
    readers
        For each op that is stored, the clusters that read it; none if something else needs it too.
    """

    def __init__(
        self, clusters: Clusters, cluster: Cluster, pinned: Collection[Op], number: dict[Op, int]
    ) -> None:
        self.clusters = clusters
        self.cluster = cluster
        self.pinned = pinned
        self.number = number
        self.readers: dict[Op, list[Cluster]] = {}

    def move(self) -> None:
        """Move values to their readers while that helps."""
        while self.find_readers() and any(
            self.try_to_move(values, readers) for values, readers in self.choices()
        ):
            pass

    def find_readers(self) -> bool:
        """Find what is stored; return whether some of it might be moved."""
        self.readers = {}
        for op in self.cluster.places:
            if op not in self.clusters.source:
                found = self.readers_of(op)
                if found is not None:
                    self.readers[op] = found
        return any(self.readers.values())

    def readers_of(self, op: Op) -> list[Cluster] | None:
        """Return the clusters that read an op, none if they cannot compute it; None if unread."""
        clusters = self.clusters
        users = clusters.readers.get(op, ())
        outside = [
            (user, cluster)
            for user in users
            for cluster in clusters.clusters_of(user)
            if cluster is not self.cluster and op not in cluster.places
        ]
        tied = (
            op in self.pinned
            or op in clusters.apart
            or any(user not in clusters.home for user in users)
        )
        if not outside and not tied:
            return None
        if tied or not self.can_move(op) or not all(_as_it_is(op, *each) for each in outside):
            return []
        return list(dict.fromkeys(cluster for _, cluster in outside))

    def can_move(self, op: Op) -> bool:
        """Whether an op could be computed in another cluster of the same domain."""
        return isinstance(op, ElementwiseOp) and self.cluster.places[op] == self.cluster.whole

    def choices(self) -> Iterator[tuple[list[Op], list[Cluster]]]:
        """Yield values that might move together, and where to: all for one reader, or one."""
        alone: dict[Cluster, list[Op]] = {}
        for op, readers in self.readers.items():
            if len(readers) == 1:
                alone.setdefault(readers[0], []).append(op)
        for reader, values in alone.items():
            yield values, [reader]
            if len(values) > 1:
                yield from (([value], [reader]) for value in values)
        for op, readers in self.readers.items():
            if len(readers) > 1:
                yield [op], readers

    def try_to_move(self, values: list[Op], readers: list[Cluster]) -> bool:
        """Move values if that helps."""
        needed = self.needed_for(values)
        gone = self.gone_without(values, needed)
        again = needed if len(readers) > 1 else needed - gone
        if len(again) > MOST_AGAIN or not all(isinstance(op, CHEAP) for op in again):
            return False
        operands = {arg for op in needed for arg in op.args} - needed
        sizes = (
            each.values + len(needed) + len(operands - each.places.keys() - each.operands)
            for each in readers
        )
        if max(sizes) > self.clusters.target.max_kernel_values:
            return False
        in_time = self.clusters.is_in_time
        if not all(in_time(op, each.rank, (each,)) for op in needed for each in readers):
            return False
        if self.saving(values, readers, operands, gone) <= 0:
            return False
        self.apply(needed, gone, operands, readers)
        return True

    def needed_for(self, values: list[Op]) -> set[Op]:
        """Return what has to be computed for values, from what stays stored."""
        needed = set(values)
        stack = list(values)
        while stack:
            for arg in stack.pop().args:
                inside = arg in self.cluster.places and arg not in needed
                if inside and arg not in self.readers and self.can_move(arg):
                    needed.add(arg)
                    stack.append(arg)
        return needed

    def gone_without(self, values: list[Op], needed: set[Op]) -> set[Op]:
        """Return what the cluster itself need not compute any more."""
        gone: set[Op] = set()
        for op in sorted(needed, key=self.number.__getitem__, reverse=True):
            users = self.clusters.readers.get(op, ())
            if all(user in gone or user not in self.cluster.places for user in users):
                gone.add(op)
        return gone

    def saving(
        self, values: list[Op], readers: list[Cluster], operands: set[Op], gone: set[Op]
    ) -> int:
        """Return the bytes that fewer are moved."""
        inside, source = self.cluster.places, self.clusters.source
        saved = sum(_traffic(op) * (1 + len(readers)) for op in values)
        for op in operands:
            if op in inside and source.get(op, op) not in self.readers:
                saved -= _traffic(op)
            for reader in readers:
                if op not in reader.operands and op not in reader.places:
                    saved -= _traffic(op)
        left = {arg for op in inside if op not in gone for arg in op.args}
        return saved + sum(_traffic(op) for op in self.cluster.operands - left)

    def apply(
        self, needed: set[Op], gone: set[Op], operands: set[Op], readers: list[Cluster]
    ) -> None:
        """Compute what values need in their readers."""
        clusters, inside = self.clusters, self.cluster
        for reader in readers:
            reader.places.update(dict.fromkeys(needed, inside.whole))
            reader.operands |= operands
            reader.operands.difference_update(reader.places)
        first, *others = sorted(readers, key=lambda each: each.rank)
        for op in needed:
            clusters.copies.setdefault(op, []).extend(others if op in gone else readers)
            if op in gone:
                del inside.places[op]
                clusters.home[op] = first
        inside.operands = {arg for op in inside.places for arg in op.args}
        inside.operands.difference_update(inside.places)


def _as_it_is(op: Op, user: Op, cluster: Cluster) -> bool:
    """Whether an op of a cluster reads another at every point of the domain."""
    places = cluster.places[user]
    return all(
        operand_places(user, index, places) == cluster.whole
        for index, arg in enumerate(user.args)
        if arg is op
    )


def _traffic(op: Op) -> int:
    """Return the bytes of a value, of what is repeated only once."""
    while isinstance(op, BroadcastOp):
        (op,) = op.args
    size: int = op.axes.size * op.dtype.itemsize
    return size
