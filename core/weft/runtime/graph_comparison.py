"""Graphs as ranks compare them: what has to be the same on all ranks, and nothing else."""

from __future__ import annotations

import zlib

from weft.cache.structure import NotCanonical, structure_of
from weft.ir import scope
from weft.ir.graph import Graph, called_graphs
from weft.ir.op import Op
from weft.ir.storage import constant
from weft.ranks.collectives import BroadcastFromOp
from weft.support.digest import digest_of


def comparable(graph: Graph) -> Graph:
    """Return a graph without the values of constants that only the root of a broadcast sends."""
    if BroadcastFromOp not in graph.kinds:
        return graph
    seen = set(graph.roots)  # what others than broadcasts need
    for op in reversed(graph.ops):
        if op in seen and not isinstance(op, BroadcastFromOp):
            seen.update(op.args)

    def change(op: Op) -> Op:
        if op in seen or not op.is_constant:
            return op
        with scope.replacing(op):
            return constant(0, op.axes, op.dtype)

    return graph.rewrite(change)


def graph_digest(graph: Graph) -> str:
    """Return the digest of the structure of a graph with all lengths known."""
    try:
        return structure_of(graph).digest
    except NotCanonical:
        return digest_of(listing(graph).encode())


def listing(graph: Graph) -> str:
    """Return a line for each op, those of called graphs too: what it is, and the user's line."""
    lines: list[str] = []
    for each in called_graphs(graph, own=True):
        numbers = {op: number for number, op in enumerate(each.ops)}
        for op in each.ops:
            operands = [f"%{numbers[arg]}" for arg in op.args]
            lines.append(f"{_description(op, operands)}\t{op.file_info}")
    return "\n".join(lines) or "nothing\tits graph is empty"


FEW = 4
"""The elements up to which the values of a constant are shown, such as the key of a seed."""


def _description(op: Op, operands: list[str]) -> str:
    """Return the description of an op, the same on all ranks."""
    fields = {k: v for k, v in op.attributes().items() if isinstance(v, bool | int | float | str)}
    if op.is_constant:
        fields["crc32"] = f"{zlib.crc32(op.const.tobytes()):x}"
        if op.const.size <= FEW:
            fields["value"] = str(op.const.tolist())
    options = ", ".join([*operands, *(f"{name}={value}" for name, value in fields.items())])
    value = f" {op.dtype}{list(op.axes.lengths)}" if op.is_tensor else ""
    return f"{type(op).__name__}({options}){value}".replace("\n", " ")


def kinds(graph: Graph) -> str:
    """Return the kinds of a graph's ops and their operands, which no name of a length changes."""
    lines: list[str] = []
    for each in called_graphs(graph, own=True):
        numbers = {op: number for number, op in enumerate(each.ops)}
        lines += [f"{type(op).__name__} {[numbers[arg] for arg in op.args]}" for op in each.ops]
    return "\n".join(lines)
