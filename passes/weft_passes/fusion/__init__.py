"""Fusion: groups ops into kernels that share one loop nest."""

from __future__ import annotations

from collections.abc import Callable

from weft.ir.graph import Graph
from weft.ir.target import Target
from weft.kernels import fused, in_effect_order
from weft.passes.interface import GraphPass
from weft.plugins import hookimpl
from weft_passes.fusion.clusters import Clusters
from weft_passes.fusion.growth import grow, may_fuse
from weft_passes.fusion.piecewise import read_piecewise
from weft_passes.fusion.recomputation import move_to_readers
from weft_passes.fusion.repetition import repeat_kernels
from weft_passes.fusion.shifted_slices import slice_operands
from weft_passes.fusion.siblings import merge_siblings


class Fusion(GraphPass):
    """Group the ops that the target can fuse into kernels, to move fewer bytes.

    Loops over one elementwise kernel become kernels, and shifted slices of cheap values are
    computed from slices of their operands. Then the first sweep over the graph adds each op to the
    cluster of its operands, the second merges clusters that read the same value, the third
    recomputes values in their readers' clusters if that moves fewer bytes, and the fourth makes
    kernels read paddings and concatenations piece by piece. All keep clusters convex; see
    `Clusters`.
    """

    def do_pass(self, graph: Graph, target: Target) -> Graph:
        """Fuse in linear time; a graph with unknown lengths is returned unchanged."""
        if graph.symbols:
            return graph
        if target.repeats_kernels:
            graph = repeat_kernels(graph)
        if not any(map(may_fuse, graph.kinds)):
            return graph
        graph = slice_operands(graph, target)
        clusters = Clusters(in_effect_order(graph), target)
        grow(clusters)
        merge_siblings(clusters)
        move_to_readers(clusters)
        read_piecewise(clusters)
        return fused(graph, clusters.groups())


@hookimpl
def weft_register_passes(register: Callable[[str, type], None]) -> None:
    """Register the pass."""
    register("fusion", Fusion)
