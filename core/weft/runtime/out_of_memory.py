"""Builds out-of-memory messages: the largest tensors, with the user's lines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from heapq import nlargest

from weft.ir import scope
from weft.ir.graph import Graph
from weft.ir.op import Op
from weft.ir.storage import ParameterOp, ReadOp
from weft.ir.views import may_be_view
from weft.support import source
from weft.support.source import Location

_SHOWN = 3


def note_largest_tensors(error: MemoryError, graph: Graph) -> None:
    """Add a note to an error with the largest tensors of a graph and their source lines."""
    sizes = ((op.nbytes, op) for op in graph.ops if _takes_memory(op))
    largest = nlargest(_SHOWN, sizes, key=lambda each: each[0])
    lines = [_request(size, _described(op), op.location) for size, op in largest]
    error.add_note("\n  ".join(["The largest tensors here:", *lines]))


@contextmanager
def noting_request(nbytes: int, what: str) -> Iterator[None]:
    """Add a note to a MemoryError with the requested bytes, their purpose and the source line."""
    try:
        yield
    except MemoryError as error:
        location = scope.current.get().location or source.user_location()
        error.add_note(f"It was needed for {_request(nbytes, what, location)}")
        raise


def _request(nbytes: int, what: str, location: Location) -> str:
    return f"{what} of {nbytes:,} bytes, {source.file_info(location)}"


def _takes_memory(op: Op) -> bool:
    has_none = may_be_view(op) or isinstance(op, ParameterOp)
    return op.is_tensor and op.axes.is_static and not has_none


def _described(op: Op) -> str:
    if op.is_constant:
        return "a constant"
    return f"the state {op.state.name}" if isinstance(op, ReadOp) else f"the result of {op.name}"
