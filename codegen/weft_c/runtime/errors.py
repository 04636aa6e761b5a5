"""Messages for out-of-memory conditions and failed builds on devices programmed in C."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import nlargest

from weft.errors import BackendError
from weft.ir.description import TensorDescription, contiguous
from weft.ir.graph import Graph
from weft.ir.op import Op
from weft.kernels.indexing_maps import VIEWS
from weft.plan.plan import ARENA
from weft.runtime.program import Program
from weft.support.source import Location, file_info
from weft_c.lowering import rules

CONTEXT_LINES = 3
"""The lines of source shown before and after an error."""
MAX_ERRORS_SHOWN = 5
"""The most errors shown with their source."""

MAX_VALUES_SHOWN = 5
"""The values listed in an out-of-memory message."""


class DeviceMemoryError(BackendError, MemoryError):
    """A device has too little memory for an allocation."""


class BuildError(BackendError):
    """Source that weft generated does not compile.

    Attributes
    ----------
    refused
        The compiler and the program.
    report
        The compiler's log, and an excerpt of the source.
    lines
        The line numbers in the log.
    """

    def __init__(self, refused: str, whose: str, report: str, lines: Sequence[int]) -> None:
        super().__init__(f"{refused}; {whose}\n{report}")
        self.refused, self.report, self.lines = refused, report, lines


def build_error(
    refused: str, compiler: str, log: str, source: str, lines: Sequence[int]
) -> BuildError:
    """Return the error for source that fails to compile, with the compiler's log and an excerpt.

    `refused` names the compiler and the program; `lines` are the line numbers in the log.
    """
    whose = f"this is an error of weft or of {compiler}, not of the graph"
    return BuildError(refused, whose, f"{log.strip()}\n{excerpt(source, lines)}", lines)


def build_error_of_rules(
    error: BuildError, ops: Iterable[Op], locations: Sequence[Sequence[Location]]
) -> BuildError:
    """Return the error with the rules that wrote what does not compile, where they are not weft's.

    `ops` are those of the program that such rules wrote, `locations` the users' lines behind each
    line of the source.
    """
    ops = list(ops)
    if not ops:
        return error
    wrong = [locations[line - 1] for line in error.lines if line <= len(locations)]
    failed = {location for found in wrong for location in found}
    written = [
        f"  {type(op).__name__}, {op.file_info}\n    by a rule {rules.registration(type(op))}"
        for op in [op for op in ops if op.location in failed] or ops
    ]
    whose = "\n".join(["it has code of rules that are not weft's own:", *dict.fromkeys(written)])
    return BuildError(error.refused, whose, error.report, error.lines)


def excerpt(source: str, lines: Sequence[int]) -> str:
    """Return the numbered source around the first of `lines`; the first lines if it is empty."""
    written = source.splitlines()
    named = lines or [1]
    shown = {
        near
        for number in dict.fromkeys(named[:MAX_ERRORS_SHOWN])
        for near in range(number - CONTEXT_LINES, number + CONTEXT_LINES + 1)
        if 1 <= near <= len(written)
    }
    return "\n".join(
        f"{'>' if number in named else ' '}{number:5} {written[number - 1]}"
        for number in sorted(shown)
    )


def kernel_and_lines(locations: Iterable[Location], source: str, begin: int) -> str:
    """Return the user's lines that a kernel computes, and the source around line `begin`."""
    named = [f"  {file_info(location)}" for location in locations]
    return "\n".join(["it computes:", *named, excerpt(source, [begin])])


def largest_values(program: Program) -> str:
    """Return a listing of the largest intermediate values of a program, with the users' lines."""
    if program.is_restored:  # planning it again would ask for the memory again
        values = [(op, contiguous(op.axes.shape, op.dtype)) for op in _computed(program.captured)]
    else:
        layouts_by_op = [(step.op, (*step.outs, step.workspace)) for step in program.plan.steps]
        values = [
            (op, layout) for op, all_ in layouts_by_op for layout in all_ if layout is not None
        ]
        values = [(op, layout) for op, layout in values if layout.base.kind == ARENA]
    largest = nlargest(MAX_VALUES_SHOWN, values, key=lambda each: _nbytes(each[1]))
    lines = [
        f"  {_nbytes(layout)} bytes: {_called(op)} of {layout.dtype} {layout.shape}, {op.file_info}"
        for op, layout in largest
    ]
    return "\n".join(["the largest intermediate values are:", *lines, *_advice_on_maxima(program)])


def _advice_on_maxima(program: Program) -> Iterator[str]:
    """Yield what to do where memory is planned for the largest lengths that calls may bring."""
    symbols = program.family.graph.symbols if program.template and program.family else ()
    bounds = [f"{each} <= {each.maximum}" for each in symbols if each.maximum is not None]
    if bounds:
        yield f"memory is planned for {' and '.join(bounds)}: a smaller max= takes less memory"


def _computed(graph: Graph) -> list[Op]:
    """Return the ops that compute new values: no inputs, constants or views."""
    return [op for op in graph.ops if op.is_tensor and op.args and not isinstance(op, VIEWS)]


def _nbytes(layout: TensorDescription) -> int:
    return layout.size * layout.dtype.itemsize


def _called(op: Op) -> str:
    kinds = [type(each).__name__ for each in op.contained or (op,)]
    return " ".join(dict.fromkeys(kinds))
