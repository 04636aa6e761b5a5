"""Layout: views move to where they cost nothing.

Elementwise ops that read one another through transpositions and reshapes, and the reductions of
their values, form a region: all of them run over the same indices, which some know in another
order, or joined in another way. A region is computed in one form, the one that moves the fewest
bytes; so transpositions go on to matrix products and other ops that take any strides, reshapes get
out of chains, and what was kept apart by views can be fused.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.ir.graph import Graph
from weft.ir.target import Target
from weft.ops.movement import ReshapeOp, TransposeOp
from weft.passes.interface import GraphPass
from weft.plugins import hookimpl
from weft_passes.layout.choice import choose_forms
from weft_passes.layout.copies import with_worthy_copies, without_needless_copies
from weft_passes.layout.rebuilding import rebuilt
from weft_passes.layout.regions import Regions

__all__ = ["Layout"]


class Layout(GraphPass):
    """Compute what views keep apart in one form, and let the views go on."""

    def do_pass(self, graph: Graph, target: Target) -> Graph:
        """Drop copies, choose the form of each region, and copy what is read often and badly."""
        if graph.symbols:
            return graph
        graph = without_needless_copies(graph)
        if any(issubclass(kind, TransposeOp | ReshapeOp) for kind in graph.kinds):
            regions = Regions(graph)
            choose_forms(regions)
            graph = rebuilt(graph, regions)
        return with_worthy_copies(graph)


@hookimpl
def weft_register_passes(register: Callable[[str, type], None]) -> None:
    """Register the pass."""
    register("layout", Layout)
