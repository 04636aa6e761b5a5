"""The unsupported-op check: reports every op that a backend lacks before compilation."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from weft.errors import UnsupportedOpError
from weft.ir.dtypes import int64, uint64
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

WIDE = (int64, uint64)
"""The dtypes that devices may lack and yet have in memory, as words of 32 bits."""


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
    lines.extend(dict.fromkeys(_without_dtype(graph, unknown, target)))
    kinds = list(dict.fromkeys(type(op) for op in missing))
    foreign = [kind for kind in kinds if kind.__module__.partition(".")[0] != "weft"]
    if unknown or len(foreign) < len(kinds):
        lines.append("use another backend, a cast, or install a plugin with rules for them")
    for kind in foreign:
        lines.extend(_ways_out(kind, target))
    raise UnsupportedOpError("\n".join(lines), tuple([kind.__name__ for kind in kinds]))


def _without_dtype(graph: Graph, unknown: Collection[Op], target: Target) -> Iterator[str]:
    """Yield a line for each op with a dtype that the target lacks; constants are their readers'."""
    results = {*graph.outputs}
    for op in graph.ops:
        own = [] if op.is_constant and op not in results else [op]
        for each in [*own, *(arg for arg in op.args if arg.is_constant)]:
            if each in unknown:
                dtype = next((arg.dtype for arg in op.args if is_words(arg, target)), each.dtype)
                name = type(op).__name__
                yield f"  {name}: it does not compute with {dtype}, {op.file_info}"


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
    """Whether a target computes with the dtype of an op, or has its values in memory alone.

    There it may have the parts of complex numbers, or the words of 64-bit integers, which others
    than views do not read.
    """
    dtype = op.dtype
    if is_words(op, target):
        return _is_moved(op) or op.has_effect
    is_known = target.has_dtype(dtype) or (
        dtype.kind == "c"
        and target.has_dtype(real_dtype(dtype))
        and (_is_moved(op) or bool(op.graphs))
    )
    return is_known and (not any(is_words(arg, target) for arg in op.args) or reads_memory(op))


def _is_moved(op: Op) -> bool:
    """Whether the values of an op are there, are made by others, or are those of its operands."""
    return op.is_constant or isinstance(op, (*NOT_COMPUTED, ComplexOp)) or may_be_view(op)


def is_words(op: Op, target: Target) -> bool:
    """Whether the values of an op are 64-bit integers that a target has in memory alone."""
    has_words = target.index_dtype not in WIDE
    return has_words and op.is_tensor and op.dtype in WIDE and not target.has_dtype(op.dtype)


def reads_memory(op: Op) -> bool:
    """Whether an op shows or hands on the values of its operands, whatever their dtype."""
    return bool(op.graphs) or op.has_effect or isinstance(op, ResultOp) or may_be_view(op)


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
