"""Errors for values that a computation needs and that nobody gave: arguments and states."""

from __future__ import annotations

from collections.abc import Container, Iterable

from weft.errors import StateError
from weft.ir.graph import Graph
from weft.ir.op import Op
from weft.ir.storage import AssignableTensorOp, ParameterOp, ReadOp


def reads_without_value(graph: Graph, written: Container[Op]) -> list[ReadOp]:
    """Return the reads of states that have no initial value, of which none was written.

    A variable whose lengths are unknown until a call is zeros at first: before the call nobody
    could set it.
    """
    reads = (op for op in graph.ops if isinstance(op, ReadOp))
    return [op for op in reads if not has_initial_value(op.state) and op.state not in written]


def has_initial_value(state: AssignableTensorOp) -> bool:
    """Whether a state holds a value before anything is written to it."""
    return bool(state.initializers) or (state.is_trainable and not state.axes.is_static)


def missing_value(name: str, graph: Graph, reads: Iterable[ReadOp]) -> StateError:
    """Return the error of a computation for states that have no value when it reads them."""
    states = [op.state for op in reads]
    ways = []
    if any(state.is_placeholder for state in states):
        ways.append("list a placeholder among the parameters, as in computation(result, x)")
    if not all(state.is_placeholder for state in states):
        ways.append("give a variable an initial_value=")
    hint = ", ".join([*ways, "or assign or set_value() before"])
    problem = f"{name} needs values that nobody gave: {hint}"
    return StateError("\n".join([problem, *uses(graph, states)]))


def uses(graph: Graph, sources: Iterable[Op]) -> list[str]:
    """Return a line for each placeholder or state: where it is from, and an op that uses it."""
    leaf = {op.source: op for op in graph.ops if isinstance(op, ParameterOp)}
    leaf |= {op.state: op for op in graph.ops if isinstance(op, ReadOp)}
    user: dict[Op, Op] = {}
    for op in graph.ops:
        for arg in op.args:
            user.setdefault(arg, op)
    lines = []
    for source in sources:
        reader = user.get(leaf[source]) if source in leaf else None
        of = "" if reader is None else f", used by {type(reader).__name__}, {reader.file_info}"
        lines.append(f"  {source} ({source.dtype} {source.axes}), {source.file_info}{of}")
    return lines
