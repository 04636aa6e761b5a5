"""Second sweep of fusion: merges clusters that read the same value."""

from __future__ import annotations

from weft.ir.op import Op
from weft_passes.fusion.clusters import Cluster, Clusters, is_whole

MOST_OPEN = 4
"""How many clusters that read a value are tried for each that reads it as well."""


def merge_siblings(clusters: Clusters) -> None:
    """Merge clusters of one domain that read a value of its size, except for matrix products."""
    readers: dict[Op, list[Op]] = {}
    for op, cluster in list(clusters.home.items()):
        if (
            clusters.home[op] is not cluster
            or cluster.root is not None
            or next(iter(cluster.places)) is not op
        ):
            continue
        for operand in cluster.operands_in_order():
            if is_whole(operand, cluster.domain):
                _merge_with_one_of(readers.setdefault(operand, []), op, clusters)


def _merge_with_one_of(others: list[Op], op: Op, clusters: Clusters) -> None:
    """Merge the cluster of an op with an open one, or keep it open."""
    for other in reversed(others[-MOST_OPEN:]):
        pair = (clusters.home[other], clusters.home[op])
        if pair[0] is pair[1]:
            return
        if _fit(pair, clusters):
            clusters.merge(pair)
            return
    others.append(op)


def _fit(pair: tuple[Cluster, Cluster], clusters: Clusters) -> bool:
    limit = clusters.target.max_kernel_values
    return (
        sum(len(each.places) for each in pair) < limit
        and clusters.go_together(pair)
        and clusters.can_merge(pair)
        and clusters.size_merged(pair) <= limit
        and clusters.has_few_buffers(
            pair[0].places.keys() | pair[1].places, pair[0].operands | pair[1].operands
        )
    )
