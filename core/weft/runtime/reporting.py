"""Collects what a report shows of a computation."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from weft.errors import ArgumentError
from weft.ir.graph import Graph
from weft.passes.interface import PassHistory
from weft.report.document import Compiled, document
from weft.report.page import write_report_page
from weft.report.profile import Profile
from weft.support.gc_pause import gc_paused

if TYPE_CHECKING:
    from weft.runtime.computation import Computation
    from weft.runtime.program import Program
    from weft.runtime.transformer import Transformer


def write_report(
    computation: Computation,
    path: str | os.PathLike[str],
    args: tuple[Any, ...],
    profile: Profile | None = None,
) -> None:
    """Write the report of a computation, profiled for arguments unless there is a profile."""
    if profile is not None and not isinstance(profile, Profile):
        raise ArgumentError(
            f"profile= takes what {computation.name}.profile returned, not {profile!r}"
        )
    if not args and not computation.is_static and len(computation.programs) != 1:
        raise ArgumentError(
            f"{computation.name} has {len(computation.programs)} programs, one for each solution "
            "of its unknown lengths: give the arguments of a call, as in report(path, x)"
        )
    program = computation.program_for(*args) if args else computation.program
    if profile is None and args:
        profile = computation.profile(*args)
    write_report_page(document(compiled(computation, program, profile)), path)


def compiled(computation: Computation, program: Program, profile: Profile | None) -> Compiled:
    """Return the part of a report on one program of a computation."""
    transformer = computation.transformer
    return Compiled(
        computation=computation.name,
        backend=transformer.transformer_name,
        device=transformer.device_name,
        lengths={str(symbol): length for symbol, length in program.solution.items()},
        captured=program.captured,
        histories=pass_histories(transformer, program.captured),
        plan=program.plan,
        source=program.source,
        source_locations=program.source_locations,
        profile=profile,
    )


def pass_histories(transformer: Transformer, graph: Graph) -> list[PassHistory]:
    """Run the passes on a graph again, and return what each did to it and to graphs it calls.

    Those that are called come first, the graph itself last.
    """
    histories: list[PassHistory] = []
    with transformer.state_lock, gc_paused():
        transformer.graph_compiler.run_passes(graph, transformer.target, graph.name, histories)
    return histories
