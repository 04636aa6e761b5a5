"""Third sweep of fusion: recomputes values in their readers' clusters, to save bytes.

A value may be computed in its readers' clusters instead of its own, with the ops that it needs. Ops
that are then computed several times must be cheap. A value that only one matrix product reads, as
its first operand, may be computed in that product's prologue.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from weft.ir.op import Op
from weft.kernels import IndexingMap, operand_indexing_map
from weft.ops.pointwise import elementwise
from weft.ops.pointwise.bits import BitwiseOp
from weft.ops.pointwise.comparison import ComparisonOp, MaximumOp, MinimumOp, WhereOp
from weft.ops.shape.movement import BroadcastOp
from weft_passes.fusion.clusters import Cluster, Clusters

CHEAP = (
    elementwise.AbsoluteOp,
    elementwise.AddOp,
    BitwiseOp,
    elementwise.CastOp,
    ComparisonOp,
    MaximumOp,
    MinimumOp,
    elementwise.MultiplyOp,
    elementwise.NegativeOp,
    elementwise.SquareOp,
    elementwise.SubtractOp,
    WhereOp,
)
"""The elementwise ops that take less time than to write their result and read it again."""

MOST_AGAIN = 4
"""How many ops may be computed again for one value."""


def move_to_readers(clusters: Clusters) -> None:
    """Visit every cluster after its readers."""
    graph, source = clusters.graph, clusters.source
    needed = (*graph.roots, *(op for ops in graph.after.values() for op in ops))
    pinned = {source.get(op, op) for op in needed}
    number = {op: place for place, op in enumerate(graph.ops)}
    for cluster in sorted(dict.fromkeys(clusters.home.values()), key=lambda each: -each.rank):
        _Outputs(clusters, cluster, pinned, number).move()


class _Reader(NamedTuple):
    """A cluster that reads a value, and the indexing map."""

    cluster: Cluster
    places: IndexingMap


@dataclass
class _Outputs:
    """The values that a cluster stores, and their readers.

    Attributes
    ----------
    readers
        For each stored op, the clusters that read it; none if it has other readers.
    """

    clusters: Clusters
    cluster: Cluster
    pinned: Collection[Op]
    number: dict[Op, int]
    readers: dict[Op, list[_Reader]] = field(default_factory=dict)

    def move(self) -> None:
        """Move values to their readers while that saves bytes."""
        while self.find_readers() and any(
            self.try_to_move(values, readers) for values, readers in self.choices()
        ):
            pass

    def find_readers(self) -> bool:
        """Find the stored values; returns whether any might be moved."""
        self.readers = {}
        for op in self.cluster.places:
            if op not in self.clusters.source:
                found = self.readers_of(op)
                if found is not None:
                    self.readers[op] = found
        return any(self.readers.values())

    def readers_of(self, op: Op) -> list[_Reader] | None:
        """Return the readers of an op, none if one cannot compute it; None if it is unread."""
        clusters = self.clusters
        users = clusters.readers.get(op, ())
        outside = [
            (_Reader(cluster, operand_indexing_map(user, index, cluster.places[user])), user)
            for user in users
            for cluster in clusters.clusters_of(user)
            if cluster is not self.cluster and op not in cluster.places
            for index, arg in enumerate(user.args)
            if arg is op
        ]
        found = list(dict.fromkeys(reader for reader, _ in outside))
        tied = (
            op in self.pinned
            or op in clusters.apart
            or any(user not in clusters.home for user in users)
        )
        if not found and not tied:
            return None
        is_possible = all(each.places == each.cluster.whole for each in found) or (
            len(found) == 1 and self.is_for_prologue(found[0], [user for _, user in outside])
        )
        return found if not tied and self.can_move(op) and is_possible else []

    def is_for_prologue(self, reader: _Reader, users: Collection[Op]) -> bool:
        """Whether the readers of a value are in a product's prologue, or the product itself.

        Rows of one element have that operand's indexing map, too: they are read after the product.
        """
        cluster, places = reader
        root = cluster.root
        return (
            root is not None
            and places == operand_indexing_map(root, 0, cluster.whole)
            and all(user is root or user in cluster.prologue for user in users)
            and root.args[0].axes.lengths[-1] > 1
            and self.clusters.target.takes_prologue(root)
        )

    def can_move(self, op: Op) -> bool:
        """Whether an op could be computed in another cluster of the same domain."""
        return (
            isinstance(op, elementwise.ElementwiseOp)
            and self.cluster.places[op] == self.cluster.whole
        )

    def choices(self) -> Iterator[tuple[list[Op], list[_Reader]]]:
        """Yield sets of values to move together, with their readers: all for one reader, or one."""
        alone: dict[_Reader, list[Op]] = {}
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

    def try_to_move(self, values: list[Op], readers: list[_Reader]) -> bool:
        """Move values if that saves bytes."""
        needed = self.needed_for(values)
        gone = self.gone_without(values, needed)
        again = needed if len(readers) > 1 else needed - gone
        in_prologue = any(places != each.whole for each, places in readers)
        most = 0 if in_prologue else MOST_AGAIN
        if len(again) > most or not all(isinstance(op, CHEAP) for op in again):
            return False
        operands = {arg for op in needed for arg in op.args} - needed
        sizes = (
            each.values + len(needed) + len(operands - each.places.keys() - each.operands)
            for each, _ in readers
        )
        if max(sizes) > self.clusters.target.max_kernel_values:
            return False
        left = self.cluster.places.keys() - gone
        if not self.clusters.has_few_buffers(left, self.cluster.operands, operands) or not all(
            self.clusters.has_few_buffers(each.places, (each.operands | operands) - needed)
            for each, _ in readers
        ):
            return False
        if not all(self.may_move(op, *each) for op in needed for each in readers):
            return False
        if self.saving(values, readers, operands, gone) <= 0:
            return False
        self.apply(needed, gone, operands, readers)
        return True

    def may_move(self, op: Op, reader: Cluster, places: IndexingMap) -> bool:
        """Whether a reader may compute an op at its rank, and does not compute it already.

        A product cannot overwrite what its prologue reads.
        """
        together = (reader,) if places == reader.whole else ()
        in_time = self.clusters.is_in_time(op, reader.rank, together)
        return in_time and reader.places.get(op, places) == places

    def needed_for(self, values: list[Op]) -> set[Op]:
        """Return the ops that compute values from stored ones."""
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
        """Return the ops that the cluster need not compute any more."""
        gone: set[Op] = set()
        for op in sorted(needed, key=self.number.__getitem__, reverse=True):
            users = self.clusters.readers.get(op, ())
            if all(user in gone or user not in self.cluster.places for user in users):
                gone.add(op)
        return gone

    def saving(
        self, values: list[Op], readers: list[_Reader], operands: set[Op], gone: set[Op]
    ) -> int:
        """Return the bytes that are saved."""
        inside, source = self.cluster.places, self.clusters.source
        saved = sum(_traffic(op) * (1 + len(readers)) for op in values)
        for op in operands:
            if op in inside and source.get(op, op) not in self.readers:
                saved -= _traffic(op)
            for reader, _ in readers:
                if op not in reader.operands and op not in reader.places:
                    saved -= _traffic(op)
        left = {arg for op in inside if op not in gone for arg in op.args}
        return saved + sum(_traffic(op) for op in self.cluster.operands - left)

    def apply(
        self, needed: set[Op], gone: set[Op], operands: set[Op], readers: list[_Reader]
    ) -> None:
        """Move values to their readers."""
        clusters, inside = self.clusters, self.cluster
        for reader, places in readers:
            reader.places.update(dict.fromkeys(needed, places))
            if places != reader.whole:
                reader.prologue |= needed
            reader.operands |= operands
            reader.operands.difference_update(reader.places)
        first, *others = sorted((each for each, _ in readers), key=lambda each: each.rank)
        for op in needed:
            clusters.copies.setdefault(op, []).extend(others if op in gone else (first, *others))
            if op in gone:
                del inside.places[op]
                clusters.home[op] = first
        clusters.store(operands)
        inside.operands = {arg for op in inside.places for arg in op.args}
        inside.operands.difference_update(inside.places)


def _traffic(op: Op) -> int:
    """Return the bytes of a value's distinct elements."""
    while isinstance(op, BroadcastOp):
        (op,) = op.args
    return op.nbytes
