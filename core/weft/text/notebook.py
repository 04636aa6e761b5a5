"""Ops and graphs as notebooks show them: a table, cut where it gets long."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from weft.errors import GraphError
from weft.ir import upcalls
from weft.ir.dtypes import Array
from weft.ir.graph import Graph
from weft.ir.op import Op, type_of
from weft.ir.results import TupleOp
from weft.ir.storage import AssignableTensorOp, ParameterOp, ReadOp
from weft.kernels import FusedOp
from weft.support.html import Html, facts, section, table
from weft.support.source import quoted_line, short_info

_brief = reprlib.Repr()
_brief.maxother = _brief.maxstring = 60


@upcalls.op_as_html.provide
def op_as_html(op: Op) -> Html:
    """Return an op with its line, attributes and operands."""
    about = {"value": _types(op), "line": quoted_line(op.location), **_details(op)}
    operands = [(f"{arg}", type(arg).__name__, _types(arg), _line(arg)) for arg in op.args]
    columns = ("operand", "op", "value", "line")
    below = [table(columns, operands, len(operands))] if operands else []
    return section(f"{type(op).__name__} {op.name}", facts(about), *below)


@upcalls.graph_as_html.provide
def graph_as_html(graph: Graph) -> Html:
    """Return the first ops of a graph, in order."""
    title = f"Graph {graph.name}"
    try:
        ops = graph.ops
    except GraphError as error:
        return section(title, facts({"malformed": error.problem}))
    about = {
        "inputs": _listed([f"{op.source}: {type_of(op)}" for op in graph.inputs]),
        "outputs": _listed([type_of(op) for op in graph.outputs]),
        "updates": _listed([f"{state}" for state, _ in graph.updates]),
        "ops": f"{len(ops):,}",
    }
    names = {op: f"v{number}" for number, op in enumerate(ops)}
    rows = ((names[op], _types(op), _made(op, names), _line(op)) for op in ops)
    return section(title, facts(about), table(("", "value", "op", "line"), rows, len(ops)))


def _details(op: Op) -> dict[str, str]:
    """Return the attributes of an op, and what a kernel computes."""
    if isinstance(op, AssignableTensorOp):
        return {"kind": op.kind, "constant": _value(op.value) if op.is_constant else ""}
    if isinstance(op, FusedOp):
        return {"computes": _listed([type(each).__name__ for each in op.contained])}
    return {name: _brief.repr(value) for name, value in op.attributes().items()}


def _made(op: Op, names: Mapping[Op, str]) -> str:
    """Return an op as a call on the names of its operands."""
    if isinstance(op, ParameterOp):
        return f"input {op.source}"
    if isinstance(op, ReadOp):
        return f"{op.state.kind} {op.state}"
    if op.is_constant:
        return f"constant {_value(op.const)}"
    kind = f"kernel {op.kernel.title}" if isinstance(op, FusedOp) else type(op).__name__
    given = [] if isinstance(op, FusedOp) else op.attributes().items()
    return f"{kind}({', '.join([*map(names.__getitem__, op.args), *map(_attribute, given)])})"


def _attribute(given: tuple[str, Any]) -> str:
    return f"{given[0]}={_brief.repr(given[1])}"


def _types(op: Op) -> str:
    if isinstance(op, TupleOp):
        types = [f"{dtype}{str(axes).removeprefix('Axes')}" for axes, dtype in op.result_types]
        return _listed(types)
    return type_of(op)


def _value(array: Array) -> str:
    return np.array2string(np.asarray(array), threshold=10, edgeitems=2).replace("\n", "")


def _line(op: Op) -> str:
    return short_info(op.location)


def _listed(names: list[str]) -> str:
    """Return the first names, and how many more there are."""
    more = [f"and {len(names) - _MOST} more"] if len(names) > _MOST else []
    return ", ".join(names[:_MOST] + more)


_MOST = 8
"""The names in a list at most."""
