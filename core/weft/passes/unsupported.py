"""The unsupported-op check: reports every op that a backend lacks before compilation."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from weft.errors import UnsupportedOpError
from weft.ir.graph import Graph
from weft.ir.op import Op
from weft.ir.results import ResultOp
from weft.ir.storage import ParameterOp, ReadOp
from weft.ir.target import Target
from weft.ir.views import may_be_view
from weft.ops.pointwise.complex_parts import ComplexOp
from weft.ops.pointwise.elementwise import ElementwiseOp, real_dtype

NOT_COMPUTED = (ParameterOp, ReadOp, ResultOp)
"""Ops whose values are there, or are made by others."""


def require_supported(graph: Graph, target: Target) -> None:
    """Raise UnsupportedOpError if a target cannot run a graph.

    It lists each op without a rule and each of a dtype that the target does not compute with, with
    the user's line.
    """
    missing = unsupported(graph.ops, target)
    unknown = {op for op in graph.ops if op.is_tensor and not has_dtype(op, target)}
    if not missing and not unknown:
        return
    lines = [f"backend {target.name} cannot run these ops, nothing was compiled:"]
    for op in missing:
        name = type(op).__name__
        reason = target.lacks.get(name) or target.refusal(op)
        why = f" ({reason})" if reason else ""
        lines.append(f"  {name} on {op.dtype} {op.axes}{why}, {op.file_info}")
    lines.extend(dict.fromkeys(_without_dtype(graph, unknown)))
    kinds = list(dict.fromkeys(type(op) for op in missing))
    foreign = [kind for kind in kinds if kind.__module__.partition(".")[0] != "weft"]
    if unknown or len(foreign) < len(kinds):
        lines.append("use another backend, a cast, or install a plugin with rules for them")
    for kind in foreign:
        lines.extend(_ways_out(kind, target))
    raise UnsupportedOpError("\n".join(lines), tuple([kind.__name__ for kind in kinds]))


def _without_dtype(graph: Graph, unknown: Collection[Op]) -> Iterator[str]:
    """Yield a line for each op with a dtype that the target lacks; constants are their readers'."""
    results = {*graph.outputs}
    for op in graph.ops:
        own = [] if op.is_constant and op not in results else [op]
        for each in [*own, *(arg for arg in op.args if arg.is_constant)]:
            if each in unknown:
                name = type(op).__name__
                yield f"  {name}: it does not compute with {each.dtype}, {op.file_info}"


def _ways_out(kind: type[Op], target: Target) -> Iterator[str]:
    """Yield what the author of an op class can do; docs/extending.md shows each."""
    name = kind.__name__
    yield f"ways to compute {name}, which docs/extending.md shows:"
    yield f"  a decomposition: derive {name} from weft.CompositeOp too, and write decompose"
    call = f"{target.rules}.add({name}, rule)" if target.rules else "the hook weft_register_rules"
    yield f"  a rule for the backend {target.name}: {call}"
    if issubclass(kind, ElementwiseOp):
        expression = f"weft_c.rules.add({name}, weft_c.Expression(...))"
        yield f"  an expression in C, for native, opencl and cupy: {expression}"


def has_dtype(op: Op, target: Target) -> bool:
    """Whether a target computes with the dtype, or with the parts of complex numbers in memory."""
    dtype = op.dtype
    is_moved = op.is_constant or isinstance(op, (*NOT_COMPUTED, ComplexOp)) or may_be_view(op)
    is_split = dtype.kind == "c" and (is_moved or bool(op.graphs))
    known = {dtype.name, real_dtype(dtype).name} if is_split else {dtype.name}
    return not known.isdisjoint(target.dtypes)


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
