"""The unsupported-op check: reports every op that a backend lacks before compilation."""

from __future__ import annotations

from collections.abc import Iterable

from weft.errors import UnsupportedOpError
from weft.ir.graph import Graph
from weft.ir.op import Op
from weft.ir.results import ResultOp
from weft.ir.storage import ParameterOp, ReadOp
from weft.ir.target import Target

NOT_COMPUTED = (ParameterOp, ReadOp, ResultOp)
"""Ops whose values are there, or are made by others."""


def require_supported(graph: Graph, target: Target) -> None:
    """Raise UnsupportedOpError if a target cannot run a graph.

    It lists each op without a rule and each of a dtype that the target does not compute with, with
    the user's line.
    """
    missing = unsupported(graph.ops, target)
    used = {op.dtype for op in graph.ops if op.is_tensor}
    unknown = {dtype for dtype in used if dtype.name not in target.dtypes}
    if not missing and not unknown:
        return
    lines = [f"backend {target.name} cannot run these ops, nothing was compiled:"]
    for op in missing:
        kind = type(op).__name__
        reason = target.lacks.get(kind)
        why = f" ({reason})" if reason else ""
        lines.append(f"  {kind} on {op.dtype} {op.axes}{why}, {op.file_info}")
    for op in (op for op in graph.ops if op.dtype in unknown):
        kind = type(op).__name__
        lines.append(f"  {kind}: it does not compute with {op.dtype}, {op.file_info}")
    lines.append("use another backend, a cast, or install a plugin with rules for them")
    kinds = dict.fromkeys(type(op).__name__ for op in missing)
    raise UnsupportedOpError("\n".join(lines), tuple(kinds))


def unsupported(ops: Iterable[Op], target: Target) -> list[Op]:
    """Return the ops that a target can neither compute nor show as a view."""
    return [
        op
        for op in ops
        if not (
            op.is_constant
            or isinstance(op, NOT_COMPUTED)
            or (target.runs_graphs if op.graphs else target.supports(op))
        )
    ]
