"""Structural digests of graphs, equal for equal graphs in any process and build order.

Digests cover classes, attributes, axes, dtypes, operands, states, outputs, updates, effects and
order; not names, source lines, identity or the order of creation. Values count with their types:
1, 1.0 and True differ, and so do 0.0 and -0.0.
"""

from __future__ import annotations

import enum
import importlib
import struct
import sys
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from weft.ir.axes import AUTOMATIC_NAME, Axes, Axis, FlattenedAxis, ShardAxis
from weft.ir.graph import Graph
from weft.ir.guards import TracedLength
from weft.ir.lengths import FloorDivision, Length, Symbol
from weft.ir.op import Op
from weft.ir.storage import ParameterOp, ReadOp
from weft.ir.traversal import postorder
from weft.kernels import Kernel
from weft.support.digest import digest_of, digest_of_array
from weft.support.locks import cached_property

SMALL = 256
"""The bytes up to which the values of every constant count."""


class NotCanonical(Exception):
    """A value has no description that is valid in another process."""


@dataclass(frozen=True)
class Structure:
    """The structure of a graph, without names and identity.

    Attributes
    ----------
    digest
        The digest, equal for equal graphs only.
    ops, states
        The ops in an order that depends on the structure only, and the states in the order of their
        first use.
    modules
        The modules of the graph's classes and functions.
    unread
        The constants whose values are not covered.
    called_structures
        The structures of called graphs, transitively, each once.
    """

    digest: str
    ops: tuple[Op, ...]
    states: tuple[Any, ...]
    modules: frozenset[str]
    unread: frozenset[Op]
    called_structures: tuple[Structure, ...] = ()

    def twin(self, graph: Graph) -> Structure:
        """Return the structure of a graph that differs from this one's in its lengths alone."""
        twins: dict[str, Structure] = {}
        found = self._twin(graph, twins)
        called = tuple([twins[each.digest] for each in self.called_structures])
        return replace(found, called_structures=called)

    def _twin(self, graph: Graph, twins: dict[str, Structure]) -> Structure:
        """Return the twin without its called structures, which are added to `twins`."""
        ops = _ordered(graph)
        for op, other in zip(self.ops, ops, strict=True):
            for called, twin in zip(op.graphs, other.graphs, strict=True):
                structure = memoized_structure(called)
                if structure.digest not in twins:
                    twins[structure.digest] = structure._twin(twin, twins)
        unread = frozenset(
            [other for op, other in zip(self.ops, ops, strict=True) if op in self.unread]
        )
        return replace(self, ops=tuple(ops), unread=unread)

    @cached_property
    def all_ops(self) -> tuple[Op, ...]:
        """The ops, then those of called graphs, in an order that depends on the structure only."""
        return tuple([op for each in (self, *self.called_structures) for op in each.ops])


def structure_of(graph: Graph, all_values: bool = True) -> Structure:
    """Return the structure of a graph.

    Without `all_values`, large constants that no op reads are not covered: such a constant is a
    result, or the new value of a state, and nothing else depends on it.
    Raises NotCanonical for an attribute, class or annotation that has no stable description.
    """
    return _StructureBuilder(graph, all_values).structure()


class _StructureBuilder:
    def __init__(self, graph: Graph, all_values: bool) -> None:
        self.graph = graph
        self.roots = _roots(graph)
        self.ops = _ordered(graph)
        self.numbers = {op: number for number, op in enumerate(self.ops)}
        self.inputs = {op: number for number, op in enumerate(graph.inputs)}
        self.states: dict[Any, int] = {}
        self.describe = Canonicalizer()
        read = () if all_values else {arg for op in self.ops for arg in op.args}
        self.unread = frozenset(
            op
            for op in self.ops
            if not all_values and op.is_constant and op not in read and op.const.nbytes > SMALL
        )

    def structure(self) -> Structure:
        lines = [self.line(op) for op in self.ops]
        graph, number = self.graph, self.numbers
        lines.append(f"roots{[number[op] for op in self.roots]} {len(graph.effects)}")
        lines.extend(f"update{self.state(state)}={number[v]}" for state, v in graph.updates)
        lines.extend(f"outputs{len(graph.outputs)} inputs{len(graph.inputs)}")
        for op in self.ops if graph.after else ():
            firsts = graph.after.get(op, ())
            lines.append(f"after{[number[first] for first in firsts]}")
        digest = digest_of("\n".join(lines).encode())
        return Structure(
            digest=digest,
            ops=tuple(self.ops),
            states=tuple(self.states),
            modules=frozenset(self.describe.modules),
            unread=self.unread,
            called_structures=tuple(self.called_structures()),
        )

    def called_structures(self) -> Iterable[Structure]:
        """Return the structures of called graphs, one for each digest."""
        structures: dict[str, Structure] = {}
        for graph in (graph for op in self.ops if op.graphs for graph in op.graphs):
            structure = memoized_structure(graph)
            for each in (structure, *structure.called_structures):
                structures.setdefault(each.digest, each)
        return structures.values()

    def line(self, op: Op) -> str:
        describe = self.describe
        extra = op.__dict__.keys() - _ANNOTATIONS
        if len(extra) != len(op.fields):
            _refuse_extra(op, extra.difference(op.fields))
        kind = describe.by_name(type(op))
        operands = ",".join([str(self.numbers[arg]) for arg in op.args])
        notes = describe(op._metadata) if op._metadata else ""
        type_ = describe.axes(op.axes) + describe.dtype(op.dtype)
        return f"{kind}{self.attributes(op)}({operands}){type_}{notes}"

    def attributes(self, op: Op) -> str:
        if isinstance(op, ReadOp):
            return f"state{self.state(op.state)}"
        if isinstance(op, ParameterOp):
            return f"input{self.inputs[op]}"
        if op.is_constant:
            return "any" if op in self.unread else digest_of_array(op.const)
        return ";".join([self.describe(getattr(op, name)) for name in op.fields])

    def state(self, state: Any) -> str:
        number = self.states.setdefault(state, len(self.states))
        # Lengths that a state leaves open are those of the ops that read or update it.
        axes = self.describe(state.target_axes) if state.target_axes.is_static else ""
        return f"{number}:{state.kind}:{axes}{self.describe.dtype(state.dtype)}"


def memoized_structure(graph: Graph) -> Structure:
    """Return the structure of a called graph, which is memoized."""
    return graph.memo_nested(structure_of, lambda: structure_of(graph))


def _roots(graph: Graph) -> tuple[Op, ...]:
    index = {op: number for number, op in enumerate(graph.ops)}
    effects = sorted(graph.effects, key=index.__getitem__)
    return *graph.inputs, *effects, *graph.outputs, *(value for _, value in graph.updates)


def _ordered(graph: Graph) -> list[Op]:
    """Return the ops of a graph in an order that depends on the structure only."""
    return postorder(_roots(graph), graph.children if graph.after else _args)


def _args(op: Op) -> tuple[Any, ...]:
    return op.args


def _refuse_extra(op: Op, extra: set[str]) -> None:
    """Refuse an op with undeclared attributes, other than cached properties."""
    unknown = [name for name in extra if not hasattr(getattr(type(op), name, None), "attrname")]
    if unknown == ["_schemas"] and not op.__dict__["_schemas"]:
        return
    if unknown:
        raise NotCanonical(f"{op!r} carries {', '.join(sorted(unknown))}")


_ANNOTATIONS = frozenset({
    "adjoint_of", "args", "axes", "dtype", "is_constant", "is_state", "is_tensor", "label",
    "location", "order", "reads", "serial", "_metadata", "_name", "_prefix",
})  # fmt: skip
"""What an op has beside its attributes and says nothing of what it computes."""


class Canonicalizer:
    """Describes values as canonical text, and records the modules of named values."""

    def __init__(self) -> None:
        self.modules: set[str] = set()
        self._axes: dict[int, tuple[Axes, str]] = {}
        self._names: dict[Any, str] = {}
        self._dtypes: dict[Any, str] = {}
        self._automatic: dict[str, str] = {}
        self._symbols: dict[Symbol, int] = {}

    def graph(self, graph: Graph) -> str:
        """Return the description of a called graph."""
        known = memoized_structure(graph)
        self.modules |= known.modules
        return f"graph{known.digest}"

    def __call__(self, value: Any) -> str:
        """Return the description of a value; raises NotCanonical if there is none."""
        describe = _BY_TYPE.get(type(value))
        if describe is not None:
            return describe(self, value)
        if isinstance(value, np.dtype):
            return self.dtype(value)
        if isinstance(value, np.ndarray):
            return f"array {value.dtype} {value.shape} {digest_of_array(value)}"
        if isinstance(value, np.generic):
            return f"scalar {value.dtype} {value.tobytes().hex()}"
        if isinstance(value, enum.Enum):
            return f"{self.by_name(type(value))}.{value.name}"
        if isinstance(value, tuple):
            return f"{self.by_name(type(value))}{self.sequence(value)}"
        if is_dataclass(value) and not isinstance(value, type):
            parts = [getattr(value, each.name) for each in fields(value)]
            return f"{self.by_name(type(value))}{self.sequence(parts)}"
        if callable(value):
            return self.by_name(value)
        raise NotCanonical(f"{value!r} of type {type(value).__name__}")

    def by_name(self, value: Any) -> str:
        """Return the module and name of a class or function."""
        address = self._names.get(value)
        if address is None:
            module, name = _address_once(value)
            self.modules.add(module)
            address = self._names[value] = f"{module}:{name}"
        return address

    def sequence(self, values: Iterable[Any]) -> str:
        """Return the description of values in order."""
        return f"({','.join([self(value) for value in values])})"

    def axes(self, axes: Axes) -> str:
        """Return the description of axes, which is memoized."""
        entry = self._axes.get(id(axes))
        if entry is None:
            entry = self._axes[id(axes)] = (axes, f"axes{self.sequence(axes)}")
        return entry[1]

    def dtype(self, dtype: Any) -> str:
        """Return the description of a dtype, or of None."""
        text = self._dtypes.get(dtype)
        if text is None:
            text = self._dtypes[dtype] = "none" if dtype is None else f"{dtype.str} {dtype.name}"
            if dtype is not None and dtype.kind == "V":
                self.modules.add(dtype.type.__module__)
        return text

    def axis(self, axis: Axis) -> str:
        """Return length and name; automatic names are numbered by first use."""
        name = axis.name
        if name is not None and AUTOMATIC_NAME.fullmatch(name):
            name = self._automatic.setdefault(name, f"?{len(self._automatic)}")
        return f"{self(axis.length)}{name!r}"

    def length(self, length: Length) -> str:
        """Return the description of a polynomial; symbols are numbered by first use."""
        terms = [
            f"{factor}*{'*'.join(sorted(map(self.atom, atoms)))}"
            for atoms, factor in length.terms.items()
        ]
        return f"length({'+'.join(sorted(terms))})"

    def atom(self, atom: Symbol | FloorDivision) -> str:
        """Return the description of a symbol or a quotient."""
        if isinstance(atom, FloorDivision):
            return f"({self(atom.numerator)}//{self(atom.denominator)})"
        most = "" if atom.maximum is None else f"<={atom.maximum}"
        return f"s{self._symbols.setdefault(atom, len(self._symbols))}{most}"

    def kernel(self, kernel: Kernel) -> str:
        """Return the description of a kernel, with operands by number."""
        operands = [(x.shape, x.dtype, x.places, x.constant) for x in kernel.operands]
        body = [
            (type(x.op), *x.op.attributes().values(), x.op.axes, x.op.dtype, x.args, x.places)
            for x in kernel.body
        ]
        return self.sequence((kernel.domain, kernel.reduced, operands, body, kernel.outputs))


def address(value: Any) -> tuple[str, str]:
    """Return module and qualified name of a class or function.

    Raises NotCanonical for one that is not found by them, such as a local function.
    """
    # NumPy tells neither of its ufuncs everywhere.
    module: str = getattr(value, "__module__", "") or "numpy"
    name: str = getattr(value, "__qualname__", "") or getattr(value, "__name__", "")
    resolved: Any = sys.modules.get(module)
    for part in name.split("."):
        resolved = getattr(resolved, part, None)
    if resolved is not value:
        raise NotCanonical(f"{value!r} is not to be found under its name")
    return module, name


def found_by_name(address: Sequence[str], packages: Container[str]) -> Any:
    """Return a function or class by module and name; raises ValueError outside of some packages."""
    module, name = address
    if module.partition(".")[0] not in packages:
        raise ValueError(f"the module {module!r} has no part in this program")
    value = importlib.import_module(module)
    for part in name.split("."):
        value = getattr(value, part)
    return value


def packages_of(modules: Iterable[str]) -> set[str]:
    """Return the packages of some modules."""
    return {each.partition(".")[0] for each in modules}


_address_once = lru_cache(maxsize=4096)(address)
"""What was found once stays describable, wherever its name points later."""

_BY_TYPE: dict[type, Callable[[Canonicalizer, Any], str]] = {
    type(None): lambda _, value: "none",
    type(...): lambda _, value: "...",
    bool: lambda _, value: "true" if value else "false",
    int: lambda _, value: str(value),
    float: lambda _, value: f"f{struct.pack('<d', value).hex()}",
    complex: lambda _, value: f"c{struct.pack('<dd', value.real, value.imag).hex()}",
    str: lambda _, value: repr(value),
    bytes: lambda _, value: repr(value),
    tuple: lambda describe, value: describe.sequence(value),
    list: lambda describe, value: f"list{describe.sequence(value)}",
    dict: lambda describe, value: f"dict{describe.sequence(value.items())}",
    frozenset: lambda describe, value: f"set({','.join(sorted(map(describe, value)))})",
    slice: lambda describe, x: f"slice{describe.sequence((x.start, x.stop, x.step))}",
    Axes: Canonicalizer.axes,
    Axis: Canonicalizer.axis,
    FlattenedAxis: lambda describe, value: f"flat{describe.axes(value.axes)}",
    ShardAxis: lambda describe, x: f"shard{describe.sequence((x.axes, x.ranks, x.communicator))}",
    Kernel: Canonicalizer.kernel,
    Length: Canonicalizer.length,
    TracedLength: lambda describe, value: f"traced {describe.length(value.length)}",
    Graph: Canonicalizer.graph,
}
