"""Computations as notebooks show them: what is known without compiling anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.ir.op import Op, type_of
from weft.support.html import Html, facts, folded, section, table
from weft.support.source import quoted_line
from weft.text.notebook import graph_as_html

if TYPE_CHECKING:
    from weft.runtime.computation import Computation


def computation_as_html(computation: Computation) -> Html:
    """Return a computation with its parameters and results, and its graph and plan to unfold."""
    about = {"backend": computation.transformer.transformer_name, "state": computation.condition}
    tables = [
        table((kind, "value", "line"), map(_row, ops), len(ops))
        for kind, ops in (("parameter", computation.parameters), ("result", computation.results))
        if ops
    ]
    graph = folded(repr(computation.graph), graph_as_html(computation.graph))
    plans = [program.known_plan for program in list(computation.programs.values())]
    unfold = [folded(repr(plan), plan.as_html()) for plan in plans[:MOST_PLANS] if plan is not None]
    return section(f"Computation {computation.name}", facts(about), *tables, graph, *unfold)


MOST_PLANS = 3
"""The plans of a computation with unknown lengths that are shown."""


def _row(op: Op) -> tuple[str, str, str]:
    return f"{op}", type_of(op), quoted_line(op.location)
