"""First sweep of fusion: each op joins the clusters of its operands, or starts its own."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from weft.ir.graph import Graph
from weft.ir.op import Op
from weft.kernels import VIEWS, IndexingMap, place
from weft.ops.pointwise.elementwise import ElementwiseOp
from weft.ops.products.linalg import ContractionOp
from weft.ops.reductions.reduction import ReductionOp
from weft.ops.shape.movement import ContiguousOp, ReshapeOp
from weft_passes.fusion.clusters import Cluster, Clusters, is_whole

LONGEST_VIEWS = 8
"""How many views one after the other are followed inside a cluster."""

VIEW, PLAIN, FUSIBLE = range(3)


class _Fit(NamedTuple):
    """How an op joins clusters: the views it needs inside, its indexing map, rank and operands."""

    views: dict[Op, IndexingMap]
    places: IndexingMap
    rank: int
    outside: list[Op]


def grow(clusters: Clusters) -> None:
    """Visit every op after its operands, and ops that overwrite a value after its readers."""
    visit = _Growth(clusters).visit
    for op in clusters.overwriting.order:
        visit(op)


class _Growth:
    """The sweep.

    Attributes
    ----------
    only_reduced
        The ops that only reductions read, with the reduced axes: they join these reductions.
    """

    def __init__(self, clusters: Clusters) -> None:
        self.clusters = clusters
        self.source = clusters.source
        self.home = clusters.home
        self.after = clusters.graph.after
        self.first = clusters.overwriting.first
        self.apart = clusters.overwriting.apart
        self.kinds: dict[type[Op], int] = {}
        self.only_reduced = _only_reduced(clusters.graph)

    def visit(self, op: Op) -> None:
        """Assign a cluster or a rank to an op."""
        kind = self.kinds.get(type(op))
        if kind is None:
            kind = self.kinds[type(op)] = _kind(type(op))
        if kind == VIEW and len(op.args) == 1:
            (shown,) = op.args
            self.source[op] = self.source.get(shown, shown)
            return
        if kind == FUSIBLE and self.can_fuse(op):
            if not self.join_operands(op):
                self.start(op)
        elif op.args or op in self.after:
            firsts = self.after.get(op, ())
            found = (*op.args, *firsts, *self.first.get(op, ()))
            self.clusters.ranks[op] = self.clusters.rank_after(found)
            self.note_reads(op, firsts)
        self.note_reads(op, op.args)

    def can_fuse(self, op: Op) -> bool:
        """Whether an op may be in a cluster: it has elements, and no edges but its operands."""
        if op in self.after or 0 in op.axes.lengths:
            return False
        if not isinstance(op, ElementwiseOp) and any(0 in arg.axes.lengths for arg in op.args):
            return False
        if isinstance(op, ReductionOp) and not op.positions:
            return False
        return self.clusters.target.fusible(op)

    def note_reads(self, op: Op, args: Collection[Op]) -> None:
        """Record an op as a reader of its operands."""
        clusters = self.clusters
        for arg in args:
            source = self.source.get(arg, arg)
            if source in self.home:
                direct = arg is source or (op in self.home and arg in self.home[op].places)
                (clusters.readers if direct else clusters.apart).setdefault(source, []).append(op)

    def start(self, op: Op) -> None:
        """Create a cluster of one op."""
        whole = op.args[0] if isinstance(op, ReductionOp) else op
        rank = self.clusters.rank_after((*op.args, *self.first.get(op, ())))
        cluster = Cluster(whole.axes.lengths, rank)
        cluster.operands.update(op.args)
        cluster.add(op, op.kept() if isinstance(op, ReductionOp) else cluster.whole)
        self.home[op] = cluster

    def join_operands(self, op: Op) -> bool:
        """Add an op to its operands' clusters: to all of them, or else to the latest possible."""
        found: dict[Cluster, None] = {}
        for arg in op.args:
            home = self.home.get(self.source.get(arg, arg))
            if home is not None:
                found[home] = None
        if not found or isinstance(op, ContractionOp):
            return False
        if self.join(op, tuple(found)):
            return True
        latest = sorted(found, key=lambda each: -each.rank)
        return len(latest) > 1 and any(self.join(op, (each,)) for each in latest)

    def join(self, op: Op, chosen: tuple[Cluster, ...]) -> bool:
        """Add an op to clusters, which are merged; returns whether that is possible."""
        fit = self.fit(op, chosen)
        if fit is None:
            return False
        cluster = self.clusters.merge(chosen)
        cluster.rank = fit.rank
        cluster.operands.update(fit.outside)
        for view, places in fit.views.items():
            cluster.places[view] = places
            self.home[view] = cluster
        cluster.add(op, fit.places)
        self.home[op] = cluster
        return True

    def fit(self, op: Op, chosen: tuple[Cluster, ...]) -> _Fit | None:
        """Return how an op joins clusters, which are merged; None if it cannot."""
        clusters = self.clusters
        if not clusters.go_together(chosen, op.positions if isinstance(op, ReductionOp) else None):
            return None
        if op in self.only_reduced and not all(self.may_reduce(op, each) for each in chosen):
            return None
        firsts = self.first.get(op, ())
        if any(self.home.get(each) in chosen and (op, each) in self.apart for each in firsts):
            return None
        known: dict[Op, IndexingMap] = {}
        views: dict[Op, IndexingMap] = {}
        outside: list[Op] = []
        for arg in op.args:
            home = self.home.get(self.source.get(arg, arg))
            if home not in chosen:
                outside.append(arg)
                continue
            found = home.places.get(arg) or self.follow(arg, home, views)
            if found is None:
                return None
            known[arg] = found
        if isinstance(op, ReductionOp) and known.get(op.args[0]) != chosen[0].whole:
            return None
        places = place(op, known, chosen[0].domain)
        if places is None or not self.pays(op, chosen, outside, places):
            return None
        firsts = [each for each in firsts if self.home.get(each) not in chosen]
        rank = max(clusters.rank_after((*outside, *firsts)), *[each.rank for each in chosen])
        if not clusters.can_merge(chosen, rank):
            return None
        size = clusters.size_merged(chosen, outside) + len(views) + 1
        inside = {op, *views}.union(*(each.places for each in chosen))
        read = set(outside).union(*(each.operands for each in chosen))
        if size > clusters.target.max_kernel_values or not clusters.has_few_buffers(inside, read):
            return None
        return _Fit(views, places, rank, outside)

    def may_reduce(self, op: Op, cluster: Cluster) -> bool:
        """Whether the reductions that read an op can join a cluster."""
        if cluster.root is None:
            return True
        rank = len(op.axes)
        reads_rows = rank == len(cluster.domain) and self.only_reduced[op] == {(rank - 1,)}
        return reads_rows and self.clusters.can_reduce(cluster)

    def pays(
        self, op: Op, chosen: tuple[Cluster, ...], outside: Iterable[Op], places: IndexingMap
    ) -> bool:
        """Whether fewer elements move if an op joins clusters.

        They do if it reads an element of each at every point, or an operand of each. Ops with one
        element per row, or a single one, are small and may always join.
        """
        whole = chosen[0].whole
        sources = [self.source.get(arg, arg) for arg in op.args]
        if isinstance(op, ReductionOp):
            return True
        if len(chosen) == 1 and places != whole:
            return True
        for each in chosen:
            if any(each.places.get(source) == whole for source in sources):
                continue
            elsewhere = set(outside).union(*(it.operands for it in chosen if it is not each))
            if not any(is_whole(arg, each.domain) for arg in each.operands & elsewhere):
                return False
        return True

    def follow(self, arg: Op, home: Cluster, views: dict[Op, IndexingMap]) -> IndexingMap | None:
        """Return the indexing map of an operand in a cluster, through views that join the cluster.

        An invariant value may be broadcast over the reduced dimensions, and gain or lose axes of
        length 1, as may the elements of a matrix product. None for any other view.
        """
        path: list[Op] = []
        while arg not in home.places and arg not in views:
            path.append(arg)
            arg = arg.args[0]
            if len(path) > LONGEST_VIEWS:
                return None
        places = home.places[arg] if arg in home.places else views[arg]
        for view in reversed(path):
            if not isinstance(view, VIEWS):
                return None
            if places == home.whole and (home.root is None or not isinstance(view, ReshapeOp)):
                return None
            if not self.clusters.target.fusible(view):
                return None
            found = place(view, {view.args[0]: places}, home.domain)
            if found is None:
                return None
            places = views[view] = found
        return places


def may_fuse(kind: type[Op]) -> bool:
    """Whether ops of a class may start a cluster."""
    return _kind(kind) == FUSIBLE


def _only_reduced(graph: Graph) -> dict[Op, set[tuple[int, ...]]]:
    found: dict[Op, set[tuple[int, ...]]] = {}
    others = set(graph.roots)
    for op in graph.ops:
        if isinstance(op, ReductionOp):
            found.setdefault(op.args[0], set()).add(op.positions)
        else:
            others.update(op.args)
    return {op: axes for op, axes in found.items() if op not in others}


def _kind(kind: type[Op]) -> int:
    """Return how ops of a class are treated."""
    if kind.has_effect or kind.may_raise:
        return PLAIN
    if issubclass(kind, ElementwiseOp | ReductionOp | ContractionOp):
        return FUSIBLE
    shows = kind.view is not Op.view and not issubclass(kind, ContiguousOp)
    return VIEW if shows else PLAIN
