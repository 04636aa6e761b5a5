"""Fourth sweep of fusion: kernels read padded, concatenated and shifted values piece by piece.

A padding or a concatenation is not an array in memory if all its readers, and those of its slices,
are in elementwise kernels: these load each element from the operand that has it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from weft.ir.op import Op
from weft.kernels import PiecewiseOp, as_piecewise
from weft.ops.indexing.slicing import SliceOp
from weft.ops.pointwise.elementwise import ElementwiseOp
from weft.ops.shape.joining import ConcatOp, PadOp
from weft_passes.fusion.clusters import Cluster, Clusters

MAX_PIECES = 4
"""The most operands that a kernel chooses from at a point."""

MAX_PIECEWISE = 32
"""The most piecewise values of a kernel."""

Uses = list[tuple[PiecewiseOp, Op, Cluster]]
"""Piecewise ops, the ops that they replace, and the clusters that read them."""


def read_piecewise(clusters: Clusters) -> None:
    """Move paddings and concatenations into all their readers' clusters, where these take them."""
    graph, target = clusters.graph, clusters.target
    if not any(issubclass(kind, PadOp | ConcatOp) for kind in graph.kinds):
        return
    pinned = {*graph.roots, *graph.after, *(op for ops in graph.after.values() for op in ops)}
    users: dict[Op, list[Op]] = {}
    for op in graph.ops:
        for arg in dict.fromkeys(op.args):
            users.setdefault(arg, []).append(op)
    for op in graph.ops:
        if isinstance(op, PadOp | ConcatOp) and target.fusible(op):
            uses = _uses(op, users, pinned, clusters)
            if uses is not None and all(_takes(*use, clusters) for use in uses):
                for piecewise, shown, cluster in uses:
                    cluster.read_piecewise(shown, piecewise)


def _uses(
    op: Op, users: dict[Op, list[Op]], pinned: Collection[Op], clusters: Clusters
) -> Uses | None:
    """Return where an op and its slices are read; None if not in clusters alone."""
    found: Uses = []
    for shown in _with_slices(op, users):
        piecewise = as_piecewise(shown)
        if shown in pinned or piecewise is None:
            return None
        for user in users.get(shown, ()):
            if isinstance(user, SliceOp):
                continue
            readers = list(clusters.clusters_of(user))
            if not readers:
                return None
            found += [(piecewise, shown, each) for each in readers]
    return found


def _with_slices(op: Op, users: dict[Op, list[Op]]) -> Iterator[Op]:
    """Yield an op and the slices of it, of these, and so on."""
    yield op
    for each in users.get(op, ()):
        if isinstance(each, SliceOp):
            yield from _with_slices(each, users)


def _takes(piecewise: PiecewiseOp, shown: Op, cluster: Cluster, clusters: Clusters) -> bool:
    """Whether the kernel of a cluster may read a value piece by piece."""
    if cluster.reduced is not None or cluster.root is not None:
        return False
    if not piecewise.axes or piecewise.axes.lengths != cluster.domain:
        return False
    readers = [op for op in cluster.places if any(shown is arg for arg in op.args)]
    if not all(isinstance(op, ElementwiseOp) for op in readers):
        return False
    if any(cluster.places[op] != cluster.whole for op in readers):
        return False
    if len(piecewise.pieces) > MAX_PIECES or len(cluster.piecewise) >= MAX_PIECEWISE:
        return False
    if cluster.values + len(piecewise.args) > clusters.target.max_kernel_values:
        return False
    if not clusters.has_few_buffers(cluster.places, {*cluster.operands, *piecewise.args} - {shown}):
        return False
    if any(0 in arg.axes.lengths for arg in piecewise.args):
        return False
    rank = cluster.rank
    in_time = all(clusters.is_in_time(op, rank, ()) for op in _between(shown, set(piecewise.args)))
    return in_time and _is_mostly_one(piecewise)


def _is_mostly_one(piecewise: PiecewiseOp) -> bool:
    """Whether most elements of rows are in one piece, so that vectors can be loaded."""
    last = len(piecewise.axes) - 1
    low, high = piecewise.interior(last)
    return bool(4 * (high - low) >= 3 * piecewise.axes[last].length)


def _between(shown: Op, operands: Collection[Op]) -> Iterator[Op]:
    """Yield a value, and the paddings, concatenations and slices between it and some operands."""
    if shown not in operands and isinstance(shown, PadOp | ConcatOp | SliceOp):
        yield shown
        for arg in shown.args:
            yield from _between(arg, operands)
