"""Decomposition of sums of many tensors into binary additions."""

from __future__ import annotations

from weft_popxl.errors import refuse_type
from weft_popxl.program import Graph

__all__ = ["decompose_sum"]


def decompose_sum(graph: Graph) -> Graph:
    """Return the graph unchanged, since it has binary additions only.

    Gradients are accumulated one by one, as they become available.
    """
    if not isinstance(graph, Graph):
        refuse_type(f"decompose_sum takes a graph, not {graph!r}")
    return graph
