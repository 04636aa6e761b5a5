"""Layout: moves transpositions and reshapes to where they cost least.

Elementwise ops that are connected through transpositions and reshapes, and reductions of their
values, form a region: they share an index space, up to the order and grouping of axes. A region is
computed in the axis split that moves the fewest bytes. So transpositions reach matrix products and
other ops that take any strides, reshapes leave chains, and ops that views separated can be fused.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.ir.graph import Graph
from weft.ir.target import Target
from weft.ops.shape.movement import ReshapeOp, TransposeOp
from weft.passes.interface import GraphPass
from weft.plugins import hookimpl
from weft_passes.layout.choice import choose_splits
from weft_passes.layout.copies import with_worthy_copies, without_needless_copies
from weft_passes.layout.rebuilding import rebuilt
from weft_passes.layout.regions import Regions

__all__ = ["Layout"]


class Layout(GraphPass):
    """Compute each region in one axis split, and move its views to the border."""

    def do_pass(self, graph: Graph, target: Target) -> Graph:
        """Drop copies, choose axis splits, and copy operands that are often read with strides."""
        if graph.symbols:
            return graph
        graph = without_needless_copies(graph)
        if any(issubclass(kind, TransposeOp | ReshapeOp) for kind in graph.kinds):
            regions = Regions(graph)
            choose_splits(regions)
            graph = rebuilt(graph, regions)
        return with_worthy_copies(graph)


@hookimpl
def weft_register_passes(register: Callable[[str, type], None]) -> None:
    """Register the pass."""
    register("layout", Layout)
