"""Clusters: groups of ops to fuse, with ranks that keep their graph acyclic.

Every cluster, and every op outside of clusters, has a rank. A reader of a value from outside its
own cluster has a higher rank than the producer. So ranks increase along a path that leaves a
cluster, which cannot return: each cluster is convex, and the graph of clusters is acyclic. Two
clusters of equal rank can always be merged; a cluster may be lifted to a higher rank below its
readers.

An op that can overwrite an old value has a higher rank than other readers of it, too. So no reader
of the old value depends on the new one, which needs no buffer of its own: a copy of a whole state
costs more than any kernel saves.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import permutations

from weft.ir.graph import Graph
from weft.ir.op import Op
from weft.ir.target import Target
from weft.kernels import VIEWS, Group, IndexingMap, PiecewiseOp, operand_indexing_map
from weft.ops.products.linalg import ContractionOp, MatmulOp
from weft.ops.reductions.reduction import ReductionOp
from weft.ops.shape.movement import BroadcastOp
from weft.plan.inplace import InPlaceAnalysis

MOST_READERS = 256
"""How many readers of a cluster are looked at before lifting it is given up."""


class Cluster:
    """A group of ops that becomes one kernel.

    Attributes
    ----------
    domain, whole
        The lengths of the iteration domain, and the indexing map of a value with all dimensions.
    places
        Its ops, unordered, with their indexing maps.
    operands
        The ops outside of it whose values it reads.
    rank
        See the module.
    reduced
        The dimensions that its reductions run over; None without any.
    root, prologue
        Its contraction, if any, and the ops that compute the first operand of that.
    piecewise
        The values that it reads piece by piece, and what computes them in its kernel.
    """

    __slots__ = (
        "domain",
        "operands",
        "piecewise",
        "places",
        "prologue",
        "rank",
        "reduced",
        "root",
        "whole",
    )

    def __init__(self, domain: tuple[int, ...], rank: int) -> None:
        self.domain = domain
        self.rank = rank
        self.places: dict[Op, IndexingMap] = {}
        self.operands: set[Op] = set()
        self.reduced: tuple[int, ...] | None = None
        self.root: ContractionOp | None = None
        self.prologue: set[Op] = set()
        self.piecewise: dict[Op, PiecewiseOp] = {}
        self.whole: IndexingMap = tuple(range(len(domain)))

    @property
    def values(self) -> int:
        """The most operands and instructions of the kernel; a root may read one in two ways."""
        return len(self.places) + len(self.operands) + (0 if self.root is None else 2)

    def operands_in_order(self) -> list[Op]:
        """Return the distinct operands in a deterministic order."""
        args = dict.fromkeys(arg for op in self.places for arg in op.args)
        return [arg for arg in args if arg in self.operands]

    def add(self, op: Op, places: IndexingMap) -> None:
        """Add an op, whose operands from outside are in `operands` already."""
        self.places[op] = places
        if isinstance(op, ContractionOp):
            self.root = op
        elif isinstance(op, ReductionOp):
            self.reduced = op.positions

    def read_piecewise(self, op: Op, piecewise: PiecewiseOp) -> None:
        """Compute an operand from the operands of a piecewise op."""
        self.piecewise[op] = piecewise
        self.places[op] = self.whole
        self.operands.discard(op)
        self.operands.update(piecewise.args)


class Clusters:
    """The clusters of a graph.

    Attributes
    ----------
    home
        The cluster of each op in a cluster.
    ranks
        The rank of each other op; sources of the graph have none.
    source
        For a view, the op that it is a view of.
    readers
        For an op in a cluster, the direct readers of its value.
    apart
        For an op in a cluster, the readers of its value through a view outside of the cluster.
    copies
        For an op, the clusters that recompute it.
    overwriting
        The ops that can overwrite an old value.
    overwriters
        For an op, those that overwrite its operands, and so come after it.
    """

    def __init__(self, graph: Graph, target: Target) -> None:
        self.graph = graph
        self.target = target
        self.home: dict[Op, Cluster] = {}
        self.ranks: dict[Op, int] = {}
        self.source: dict[Op, Op] = {}
        self.readers: dict[Op, list[Op]] = {}
        self.apart: dict[Op, list[Op]] = {}
        self.copies: dict[Op, list[Cluster]] = {}
        self.overwriting = InPlaceAnalysis(graph)
        self.overwriters: dict[Op, list[Op]] = {}
        self._users: dict[Op, list[Op]] = {}
        self._stored: set[Op] = set()
        if target.max_kernel_buffers is not None:
            self._stored.update(graph.roots)
            for op in graph.ops:
                for arg in op.args:
                    self._users.setdefault(arg, []).append(op)
        for late, firsts in self.overwriting.first.items():
            for op in firsts:
                self.overwriters.setdefault(op, []).append(late)

    def rank(self, op: Op) -> int:
        """Return the rank of an op or its cluster; -1 for a source of the graph."""
        op = self.source.get(op, op)
        cluster = self.home.get(op)
        return self.ranks.get(op, -1) if cluster is None else cluster.rank

    def rank_after(self, ops: Iterable[Op]) -> int:
        """Return the lowest rank of a reader of values from other clusters."""
        return 1 + max(map(self.rank, ops), default=-1)

    def is_in_time(self, op: Op, rank: int, together: Collection[Cluster]) -> bool:
        """Whether an op in clusters to merge stays before ops that overwrite its operands.

        These must have a higher rank, or be in one of the clusters and able to overwrite in the
        same kernel.
        """
        for late in self.overwriters.get(op, ()):
            home = self.home.get(late)
            if home is None and late not in self.ranks:
                continue  # it is yet to be visited, and gets a rank above
            is_beside = home in together and (late, op) not in self.overwriting.apart
            if not is_beside and self.rank(late) <= rank:
                return False
        return True

    def clusters_of(self, op: Op) -> Iterator[Cluster]:
        """Yield the clusters that compute an op."""
        if op in self.home:
            yield self.home[op]
        yield from self.copies.get(op, ())

    def can_lift(self, cluster: Cluster, rank: int, together: Collection[Cluster]) -> bool:
        """Whether a cluster may be lifted to a rank if it is merged with others.

        Its readers must have a higher rank, or be in the others and read a value directly, since a
        view would be a path out of the cluster and back.
        """
        if cluster.rank >= rank:
            return True
        looked_at = 0
        for op in cluster.places:
            if not self.is_in_time(op, rank, together):
                return False
            for reader in self.apart.get(op, ()):
                if self.rank(reader) <= rank:
                    return False
            readers = self.readers.get(op, ())
            for reader in readers:
                if self.home.get(reader) not in together and self.rank(reader) <= rank:
                    return False
            looked_at += len(readers)
            if looked_at > MOST_READERS:
                return False
        return True

    def can_merge(self, clusters: Collection[Cluster], rank: int = 0) -> bool:
        """Whether clusters can be merged at a rank, by default the highest among them.

        The target's limit on values is not considered.
        """
        if len(clusters) == 1:
            return all(self.can_lift(each, rank, clusters) for each in clusters)
        if len({each.domain for each in clusters}) > 1:
            return False
        rank = max(rank, *(each.rank for each in clusters))
        return all(self.can_lift(each, rank, clusters) for each in clusters) and all(
            self.agree(one, other) for one, other in permutations(clusters, 2)
        )

    def go_together(
        self, clusters: Collection[Cluster], reduced: tuple[int, ...] | None = None
    ) -> bool:
        """Whether a kernel can have the roots and reductions of clusters, and another reduction."""
        if len(clusters) == 1 and reduced is None:
            return True
        roots = [each for each in clusters if each.root is not None]
        along = {each.reduced for each in clusters} | {reduced}
        along.discard(None)
        if len(roots) > 1 or len(along) > 1:
            return False
        if not roots or not along:
            return True
        return along == {(len(roots[0].domain) - 1,)} and self.can_reduce(roots[0])

    def can_reduce(self, cluster: Cluster) -> bool:
        """Whether a cluster's kernel may contain reductions: beside a matrix product, of its rows.

        These must fit a cache, in blocks that are not too flat to be fast.
        """
        if cluster.root is None:
            return True
        is_product = isinstance(cluster.root, MatmulOp)
        return is_product and cluster.domain[-1] <= self.target.max_product_row

    def agree(self, writer: Cluster, reader: Cluster) -> bool:
        """Whether a cluster reads the values of another with the same indexing maps."""
        for op in reader.operands & writer.places.keys():
            for user in self.readers.get(op, ()):
                if self.home.get(user) is not reader:
                    continue
                places = reader.places[user]
                wanted = {
                    operand_indexing_map(user, index, places)
                    for index, arg in enumerate(user.args)
                    if arg is op
                }
                if wanted != {writer.places[op]}:
                    return False
        return True

    def has_few_buffers(
        self, places: Collection[Op], operands: Iterable[Op], stored: Collection[Op] = ()
    ) -> bool:
        """Whether a kernel of some ops, which reads operands, is within the target's limit.

        A result is what others read now, even if they may join the kernel later, or is `stored`.
        """
        limit = self.target.max_kernel_buffers
        if limit is None:
            return True
        read = {self.source.get(op, op) for op in operands if not _is_immediate(op)}
        written = sum(
            op in stored
            or op in self._stored
            or any(user not in places for user in self._users.get(op, ()))
            for op in places
        )
        return len(read.difference(places)) + written <= limit

    def store(self, ops: Iterable[Op]) -> None:
        """Note that ops are read by copies of others."""
        self._stored.update(ops)

    def size_merged(self, clusters: Collection[Cluster], operands: Collection[Op] = ()) -> int:
        """Return the number of values of merged clusters, with additional operands."""
        first, *others = clusters
        if not others:
            return first.values + sum(op not in first.operands for op in operands)
        outside = first.operands.union(operands, *(each.operands for each in others))
        for each in clusters:
            outside.difference_update(each.places)
        inside = sum(len(each.places) for each in clusters)
        return inside + len(outside) + (0 if all(each.root is None for each in clusters) else 2)

    def merge(self, clusters: Collection[Cluster]) -> Cluster:
        """Merge clusters and return the result."""
        first = max(clusters, key=lambda each: len(each.places))
        for other in clusters:
            if other is first:
                continue
            first.places.update(other.places)
            first.operands |= other.operands
            first.rank = max(first.rank, other.rank)
            first.reduced = other.reduced if first.reduced is None else first.reduced
            first.root = other.root if first.root is None else first.root
            self.home.update(dict.fromkeys(other.places, first))
            first.operands.difference_update(first.places)
        return first

    def groups(self) -> list[Group]:
        """Return the clusters of ops as groups, in topological order."""
        number = {op: place for place, op in enumerate(self.graph.ops)}
        found = sorted(dict.fromkeys(self.home.values()), key=lambda each: each.rank)
        return [_group(each, number) for each in found if _gains(each)]


def is_whole(op: Op, domain: tuple[int, ...]) -> bool:
    """Whether a value has a distinct element in memory for each point of a domain."""
    return not isinstance(op, BroadcastOp) and bool(domain) and op.axes.shape == domain


def _is_immediate(op: Op) -> bool:
    """Whether kernels have the value of an op in their text."""
    return op.is_constant and not op.axes


def _gains(cluster: Cluster) -> bool:
    """Whether a kernel would read fewer bytes than its ops separately."""
    ops = [op for op in cluster.places if not isinstance(op, VIEWS)]
    return len(ops) > 1 and sum(len({*op.args}) for op in ops) > len(cluster.operands)


def _group(cluster: Cluster, number: dict[Op, int]) -> Group:
    """Return a cluster as a group, with its ops in order: prologue, root, and the rest."""
    rest = cluster.places.keys() - cluster.prologue - {cluster.root}
    ops = sorted(cluster.places, key=lambda op: (op in rest, op is cluster.root, number[op]))
    return Group(cluster.domain, {op: cluster.places[op] for op in ops}, cluster.piecewise)
