"""The compiler: what passes make of a graph for a target, and the plan of its memory.

It knows no threads and no states, and what it returns follows from the graph and the target alone.
"""

from __future__ import annotations

from functools import partial

from weft.ir.graph import Graph, called_graphs
from weft.ir.target import Target
from weft.passes.interface import PassHistory, run_passes
from weft.passes.pipeline import Pipeline
from weft.passes.unsupported import require_supported
from weft.plan.donated_memory import NOTHING, Donated
from weft.plan.plan import Plan, make_plan
from weft.transforms.inlining import with_callees_prepared


class Compiler:
    """A pipeline of passes, and a limit on memory; None for no limit."""

    def __init__(self, pipeline: Pipeline, memory_limit: int | None) -> None:
        self.pipeline = pipeline
        self.memory_limit = memory_limit

    def run_passes(
        self,
        graph: Graph,
        target: Target,
        label: str,
        histories: list[PassHistory] | None = None,
    ) -> Graph:
        """Return a graph after the passes have run on it and on the graphs that it calls.

        What they did to each graph is added to `histories`, called graphs first. Raises
        UnsupportedOpError for ops that the target cannot compute.
        """
        passes = self.pipeline.changed(target)
        run = partial(run_passes, passes=passes, target=target, label=label, histories=histories)
        # To fit a limit, values inside of calls may have to be computed again.
        inline_calls = self.memory_limit is not None
        compiled = run(with_callees_prepared(graph, target, run, inline_calls))
        for each in called_graphs(compiled, own=True):
            require_supported(each, target)
        return compiled

    def plan(self, graph: Graph, target: Target, donated: Donated = NOTHING) -> Plan:
        """Return the plan of a graph; raises MemoryLimitError if it cannot fit the limit."""
        return make_plan(graph, target, self.memory_limit, donated)
