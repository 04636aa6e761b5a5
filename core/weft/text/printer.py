"""Prints a graph as a typed program with source lines.

The syntax is a subset of Python's, so that it reads like a program; `weft.text.parser` reads it. ::

    graph('step')
    state('w', 'variable', float32(3))
    v0: float32(N=2, C=3) = Parameter('x')  # model.py:4
    v1: float32(3) = Read('w')
    v2: float32(3) = AddOp(v1, v1)
    result(v2)
    update('w', v2)

A kernel is a block of its own, in which the places of an operand's axes in the domain follow its
type; results of an op that has several are taken one by one. ::

    with kernel('k0', (2, 3), (1,)):
        p0: float32(2, 3) = Operand(0, 1)
        p1: float32(2) = MaxOp(p0, positions=(1,))  # model.py:5
        store(p1)
    v3: several = FusedOp(v0, kernel=k0)
    v4: float32(2) = ResultOp(v3, index=0)

So is a graph that others call; its names are its own. ::

    with called('g0'):
        graph('layer')
        v0: float32(3) = Parameter('x')
        v1: float32(3) = TanhOp(v0)
        result(v1)
    v5: several = LoopOp(v2, graph=g0, count=3)
"""

from __future__ import annotations

import base64
import keyword
import math
import re
import textwrap
import zlib
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from weft.ir import lengths, upcalls
from weft.ir.axes import Axes, Axis, FlattenedAxis, ShardAxis
from weft.ir.dtypes import Array
from weft.ir.graph import Graph, called_graphs
from weft.ir.op import Op
from weft.ir.storage import ParameterOp, ReadOp
from weft.kernels import FusedOp, Instruction, Kernel, Operand

SEVERAL = "several"
"""Stands for the type of an op that has several results."""
_INLINE = 16


@upcalls.print_graph.provide
def print_graph(graph: Graph, full: bool = False) -> str:
    """Return the text of a graph; with `full`, large constants too, so that it parses back."""
    return _Printer(graph, full, {}).text()


class Listings:
    """Prints graphs that share states, with large constants in a table beside the texts.

    A constant of the table is printed as ``stored('c0')``; `parse` takes the table.

    Attributes
    ----------
    labels
        The name of each parameter's placeholder and of each state, the same in all texts.
    constants
        The table: arrays by name.
    """

    def __init__(self, graphs: Iterable[Graph]) -> None:
        graphs = list(graphs)
        sources = [op.source for graph in graphs for op in graph.inputs]
        self.labels = labels([*sources, *(state for graph in graphs for state in graph.states)])
        self.constants: dict[str, Any] = {}
        self._names: dict[int, str] = {}

    def text(self, graph: Graph) -> str:
        """Return the text of a graph."""
        return _Printer(graph, True, {}, self).text()

    def symbol_names(self, graph: Graph) -> dict[lengths.Symbol, str]:
        """Return the names that the unknown lengths of a graph have in its text."""
        renamed = new_names(graph.symbols)
        return {each: str(renamed.get(each, each)) for each in graph.symbols}

    def stored(self, array: Array) -> str:
        """Return the name of an array in the table."""
        name = self._names.setdefault(id(array), f"c{len(self._names)}")
        self.constants[name] = array
        return name


class _Printer:
    def __init__(
        self, graph: Graph, full: bool, graphs: dict[Graph, str], listings: Listings | None = None
    ) -> None:
        self.listings = listings
        self.renamed = new_names(graph.symbols)
        self.graph = graph = graph.specialize(self.renamed) if self.renamed else graph
        self.full = full
        self.graphs = graphs
        # Inputs come first: a reader takes them in this order.
        self.ops = tuple(dict.fromkeys((*graph.inputs, *graph.ops)))
        self.names = {op: f"v{number}" for number, op in enumerate(self.ops)}
        stored = [op.source for op in graph.inputs] + list(graph.states)
        shared = {} if listings is None else listings.labels
        self.labels = shared if shared.keys() >= set(stored) else labels(stored)
        self.kernels: dict[Any, str] = {}

    def text(self) -> str:
        graph = self.graph
        lines = [*self.called(), f"graph({graph.name!r})"]
        bounded = [each for each in graph.symbols if each.maximum is not None]
        lines += [f"bound({each.name!r}, {each.maximum})" for each in bounded]
        for state in graph.states:
            kind = type_text(state.axes.substitute(self.renamed), state.dtype.name)
            lines.append(f"state({self.labels[state]!r}, {state.kind!r}, {kind})")
        for op in self.ops:
            if isinstance(op, FusedOp) and _form(op.kernel) not in self.kernels:
                lines += self.kernel(op.kernel)
            kind = type_text(op.axes, op.dtype.name) if op.is_tensor else SEVERAL
            lines.append(f"{self.names[op]}: {kind} = {self.call(op)}{_origin(op)}")
        lines.extend(f"effect({self.names[op]})" for op in graph.effects)
        lines.append(f"result({', '.join(self.names[op] for op in graph.outputs)})")
        for state, value in graph.updates:
            lines.append(f"update({self.labels[state]!r}, {self.names[value]})")
        for op, firsts in graph.after.items():
            before = ", ".join(self.names[first] for first in firsts)
            lines.append(f"after({self.names[op]}, {before})")
        return "\n".join(lines) + "\n"

    def called(self) -> list[str]:
        """Return the blocks of called graphs that have none yet, those called first."""
        lines = []
        for each in called_graphs(self.graph):
            if each not in self.graphs:
                text = _Printer(each, self.full, self.graphs, self.listings).text()
                name = self.graphs[each] = f"g{len(self.graphs)}"
                inside = textwrap.indent(text.rstrip(), "    ")
                lines += [f"with called({name!r}):", *inside.splitlines()]
        return lines

    def call(self, op: Op) -> str:
        if isinstance(op, ParameterOp):
            return f"Parameter({self.labels[op.source]!r})"
        if isinstance(op, ReadOp):
            return f"Read({self.labels[op.state]!r})"
        if op.is_constant:
            return f"Constant({self.array(op.const)})"
        if isinstance(op, FusedOp):
            args = [self.names[arg] for arg in op.args]
            return f"FusedOp({', '.join([*args, f'kernel={self.kernels[_form(op.kernel)]}'])})"
        return _call(op, [self.names[arg] for arg in op.args], self.graphs)

    def kernel(self, kernel: Kernel) -> list[str]:
        """Return the block of a kernel, which it is the first to need."""
        name = self.kernels[_form(kernel)] = f"k{len(self.kernels)}"
        lines = [
            f"with kernel({name!r}, {value_text(kernel.domain)}, {value_text(kernel.reduced)}):"
        ]
        for number, value in enumerate(kernel.values):
            if isinstance(value, Instruction):
                op = value.op
                kind = type_text(op.axes, op.dtype.name)
                call = _call(op, [f"p{arg}" for arg in value.args]) + _origin(op)
            else:
                kind = type_text(value.axes, value.dtype.name)
                constant = [] if value.constant is None else [self.array(value.constant)]
                call = f"Operand({', '.join([*map(str, value.places), *constant])})"
            lines.append(f"    p{number}: {kind} = {call}")
        lines.append(f"    store({', '.join(f'p{number}' for number in kernel.outputs)})")
        return lines

    def array(self, array: Array) -> str:
        if (text := short_text(array)) is not None:
            return text
        if self.listings is not None:
            return f"stored({self.listings.stored(array)!r})"
        if not self.full:
            return "..."
        packed = base64.b64encode(zlib.compress(np.ascontiguousarray(array).tobytes())).decode()
        return f"packed({packed!r})"


def short_text(array: Any) -> str | None:
    """Return the elements of an array as text; None if there are none or too many."""
    if not array.size or array.size > _INLINE:
        return None
    return _nested(array.tolist() if array.dtype.kind != "V" else array.astype(float).tolist())


def _call(op: Op, args: list[str], graphs: Mapping[Graph, str] = MappingProxyType({})) -> str:
    fields = {
        key: graphs[value] if isinstance(value, Graph) else value_text(value)
        for key, value in op.attributes().items()
    }
    parts = [*args, *(f"{key}={value}" for key, value in fields.items())]
    return f"{type(op).__name__}({', '.join(parts)})"


def _form(kernel: Kernel) -> tuple[Any, ...]:
    """Return a key that is equal for kernels that print alike, lines aside; names of axes count."""
    axes = (v.axes if isinstance(v, Operand) else v.op.axes for v in kernel.values)
    return (kernel.key, *axes)


def _origin(op: Op) -> str:
    return f"  # {_printable(op.filename)}:{op.lineno}"


def new_names(symbols: tuple[lengths.Symbol, ...]) -> dict[lengths.Symbol, Any]:
    """Return other symbols if one of these does not parse as a name, or two look the same."""
    plain = {symbol.name for symbol in symbols if _is_plain(symbol.name)}
    if len(plain) == len(symbols):
        return {}
    return {each: lengths.symbol(f"n{n}", each.maximum) for n, each in enumerate(symbols)}


def _is_plain(name: str) -> bool:
    reserved = keyword.iskeyword(name) or re.fullmatch(r"v\d+|nan|inf", name)
    return name.isascii() and name.isidentifier() and not reserved


def _printable(filename: str) -> str:
    """Return a file name that stays on its line, with the spaces around it."""
    is_plain = filename.isprintable() and filename == filename.strip()
    return filename if is_plain else repr(filename)


def labels(stored: Iterable[Any]) -> dict[Any, str]:
    """Return a name for each tensor: its own, else that of its kind, with a number where taken."""
    found: dict[Any, str] = {}
    taken: set[str] = set()
    for op in dict.fromkeys(stored):
        label = name = op.label or op._default_name
        number = 0
        while label in taken:
            number += 1
            label = f"{name}_{number}"
        taken.add(label)
        found[op] = label
    return found


def _nested(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_nested, value))}]"
    return value_text(value)


def type_text(axes: Axes, head: str = "Axes") -> str:
    """Return axes as the arguments of `head`, which is a dtype for the type of a tensor."""
    as_keywords = all(_is_keyword(axis) for axis in axes)
    return f"{head}({', '.join(_axis(axis, as_keywords) for axis in axes)})"


def _is_keyword(axis: Axis) -> bool:
    name = axis.name or ""
    plain = name.isascii() and name.isidentifier() and not keyword.iskeyword(name)
    return plain and not isinstance(axis, FlattenedAxis | ShardAxis)


def _axis(axis: Axis, as_keyword: bool) -> str:
    if isinstance(axis, FlattenedAxis):
        return type_text(axis.axes, "Flattened")
    if isinstance(axis, ShardAxis):
        return f"Shard({type_text(axis.axes)}, {axis.ranks}, {axis.communicator!r})"
    if axis.name is None:
        return str(axis.length)
    form = "{name}={length}" if as_keyword else "Axis({length}, {name!r})"
    return form.format(name=axis.name, length=axis.length)


def value_text(value: Any) -> str:
    """Return the text of an attribute."""
    if isinstance(value, Axes):
        return type_text(value)
    if isinstance(value, np.dtype):
        return f"dtype({value.name!r})"
    if isinstance(value, tuple):
        inner = ", ".join(map(value_text, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, complex):
        return f"complex({value_text(value.real)}, {value_text(value.imag)})"
    return repr(value)
