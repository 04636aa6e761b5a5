"""The document of a report: what a compiler did to a program, as data for JSON.

Graphs, files, locations, types, and what ops say of themselves occur once and are referred to by
their number. Ops are referred to by their place in a graph; their identity, by which they are found
in other graphs, is a number too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from linecache import getlines
from os.path import basename
from typing import Any, NamedTuple

from weft.ir.graph import Graph, called_graphs
from weft.ir.op import Op
from weft.ir.results import ResultOp
from weft.ir.storage import ParameterOp, ReadOp
from weft.ir.tensor import CompositeOp
from weft.kernels import FusedOp, Kernel
from weft.ops.control.graph_ops import LoopOp
from weft.passes.interface import PassHistory
from weft.plan import picture
from weft.plan.plan import Plan
from weft.plan.steps import plan_of
from weft.report.changes import changes
from weft.report.memory import memory_of
from weft.report.outline import (
    Box,
    boxed,
    drawn_as,
    is_gradient,
    kind_of,
    kinds_computed,
    parts_of,
    summary,
)
from weft.report.profile import Profile
from weft.support.source import Location, function_around
from weft.text.printer import short_text, type_text, value_text

VERSION = 3
"""Changes whenever a document changes its meaning."""

MOST_OPS = 30_000
"""The most ops of a graph, with those in kernels, that are listed; of more there is a summary."""

MOST_OPS_IN_ALL = 100_000
"""The most ops of all graphs; once there are more, further graphs have a summary only.

The captured and the planned graph come first."""

MOST_CHANGES = 1_000
"""The most changes of a pass that are listed."""

MOST_LINES = 20_000
"""The most lines of generated source that are shown."""

LONGEST = 300
"""The most characters of an op's attributes."""

CONTEXT = 4
"""The lines of a file that are shown before and after one that made an op."""


class Compiled(NamedTuple):
    """What a report shows.

    Attributes
    ----------
    computation, backend, device
        What was compiled, and for what.
    lengths
        The lengths by name that were unknown.
    captured
        The graph before any pass.
    histories
        What the passes made of each graph, that of the program itself as the last.
    plan
        Its plan.
    source, source_locations
        The generated program, and the user's lines behind each of its lines.
    profile
        Where the time of a call goes; None if it was not measured.
    """

    computation: str
    backend: str
    device: str
    lengths: dict[str, int]
    captured: Graph
    histories: Sequence[PassHistory]
    plan: Plan
    source: str
    source_locations: Sequence[Sequence[Location]]
    profile: Profile | None


def document(compiled: Compiled) -> dict[str, Any]:
    """Return the document of a compiled program."""
    return _Document(compiled).whole()


class _Document:
    def __init__(self, compiled: Compiled) -> None:
        self.compiled = compiled
        self.graphs: list[dict[str, Any]] = []
        self.numbers: dict[Graph, int] = {}
        self.listed = 0
        self.heads: dict[tuple[tuple[str, Any], ...], int] = {}
        self.orders: dict[float, int] = {}
        self.parts: dict[Op, tuple[tuple[str, int, tuple[str, ...]], ...]] = {}
        self.types: dict[str, int] = {}
        self.files: dict[str, int] = {}
        self.locations: dict[Location, int] = {}

    def whole(self) -> dict[str, Any]:
        compiled, plan = self.compiled, self.compiled.plan
        captured = self.graph(compiled.captured)
        plans = [plan, *map(plan_of, called_graphs(plan.graph))]
        memory = [self.memory(each) for each in plans]
        document = {
            "version": VERSION,
            "computation": compiled.computation,
            "backend": compiled.backend,
            "device": compiled.device,
            "lengths": compiled.lengths,
            "captured": captured,
            "pipelines": [self.pipeline(each) for each in reversed(compiled.histories)],
            "plans": memory,
            "source": self.source(),
            "profile": None if compiled.profile is None else self.profile(compiled.profile),
            "graphs": self.graphs,
            "heads": list(map(dict, self.heads)),
        }
        # What refers to locations is complete now.
        return {
            **document,
            "types": list(self.types),
            "locations": [
                [self.files[file], line, function_around((file, line))]
                for file, line in self.locations
            ],
            "files": [self.file(path) for path in self.files],
        }

    # Tables

    def type_of(self, op: Op) -> int:
        text = type_text(op.axes, op.dtype.name) if op.is_tensor else ""
        return self.types.setdefault(text, len(self.types))

    def layout_type(self, shape: Any, dtype: Any) -> int:
        return self.types.setdefault(f"{dtype}({', '.join(map(str, shape))})", len(self.types))

    def location(self, location: Location) -> int:
        self.files.setdefault(location[0], len(self.files))
        return self.locations.setdefault(location, len(self.locations))

    def file(self, path: str) -> dict[str, Any]:
        """Return the lines of a file that made ops, and those around them."""
        text = getlines(path)
        numbers = {line for file, line in self.locations if file == path}
        near = {each for line in numbers for each in range(line - CONTEXT, line + CONTEXT + 1)}
        lines = [[line, text[line - 1].rstrip()] for line in sorted(near) if 1 <= line <= len(text)]
        missing = [[line, ""] for line in sorted(numbers) if line > len(text)]
        return {"name": basename(path), "path": path, "lines": lines + missing}

    # Graphs

    def graph(self, graph: Graph) -> int:
        """Return the number of a graph, which is described at the first time."""
        for each in called_graphs(graph, own=True):
            if each not in self.numbers:
                self.numbers[each] = len(self.graphs)
                self.graphs.append(self.described(each))
        return self.numbers[graph]

    def described(self, graph: Graph) -> dict[str, Any]:
        description: dict[str, Any] = {
            "name": graph.name,
            "count": len(graph.ops),
            "kernels": sum(isinstance(op, FusedOp) for op in graph.ops),
        }
        size = len(graph.ops) + sum(len(tuple(op.contained)) for op in graph.ops)
        if size > MOST_OPS or self.listed + size > MOST_OPS_IN_ALL:
            return {**description, **self.summary(graph)}
        self.listed += size
        indices = {op: index for index, op in enumerate(graph.ops)}
        ops = [self.op(op, indices) for op in graph.ops]
        visible = [index for index, op in enumerate(graph.ops) if not _is_hidden(op)]
        return {
            **description,
            "ops": ops,
            "items": [self.item(item) for item in boxed(graph.ops, visible)],
            "inputs": [indices[op] for op in graph.inputs],
            "outputs": [indices[op] for op in graph.outputs],
            "updates": [[state.name, indices[value]] for state, value in graph.updates],
            "effects": [indices[op] for op in graph.effects],
        }

    def summary(self, graph: Graph) -> dict[str, Any]:
        calls: dict[Graph, int] = {}
        for op in graph.ops:
            for each in op.graphs:
                calls[each] = calls.get(each, 0) + 1
        return {
            "lines": [
                {"line": self.location(each.location), "count": each.count, "kinds": each.kinds}
                for each in summary(graph)
            ],
            "calls": [[self.numbers[each], count] for each, count in calls.items()],
        }

    def item(self, item: int | Box) -> Any:
        if not isinstance(item, Box):
            return item
        fields: dict[str, Any] = {"kind": item.kind, "items": [self.item(e) for e in item.items]}
        if item.title:
            fields["title"] = item.title
        if item.is_gradient:
            fields["gradient"] = True
        if item.location is not None:
            fields["line"] = self.location(item.location)
        return fields

    def op(self, op: Op, indices: dict[Op, int]) -> list[Any]:
        """Return the record of an op of a graph."""
        body = self.kernel(op.kernel) if isinstance(op, FusedOp) else None
        return self.record(op, self.fields(op), [indices[arg] for arg in op.args], body)

    # An op stands in several graphs, and says the same of itself in each: that is its head.

    def record(
        self, op: Op, fields: dict[str, Any], args: list[int], body: Any = None
    ) -> list[Any]:
        """Return the numbers of an op's head, its operands and its identity.

        There follow, if there are any, the identity of the op whose gradient it is part of, or -1,
        and the body of its kernel.
        """
        head = tuple((key, value) for key, value in fields.items() if value not in ("", (), None))
        order = op.adjoint_of if is_gradient(op) else None
        forward = -1 if order is None else self.identity(order)
        found = [self.heads.setdefault(head, len(self.heads)), args, self.identity(op.order)]
        return [*found, forward, body] if body else [*found, forward] if forward >= 0 else found

    def identity(self, order: float) -> int:
        return self.orders.setdefault(order, len(self.orders))

    def fields(self, op: Op) -> dict[str, Any]:
        """Return what an op of a graph says of itself, empty fields included."""
        fields = {
            **self.head(op),
            "role": _role(op),
            "graphs": tuple([self.numbers[each] for each in op.graphs]),
        }
        if op.label or isinstance(op, ParameterOp | ReadOp):
            fields["name"] = op.name
        if isinstance(op, ParameterOp):
            fields["name"] = op.source.name
        elif isinstance(op, ReadOp):
            fields["name"] = op.state.name
        elif op.is_constant:
            fields["value"] = short_text(op.const) or "..."
        elif isinstance(op, ResultOp):
            fields["index"] = op.index
        elif isinstance(op, FusedOp):
            fields["title"] = op.kernel.title
        if isinstance(op, LoopOp):
            fields["count"] = op.count
        return fields

    def head(self, op: Op) -> dict[str, Any]:
        fields = {
            key: value
            for key, value in op.attributes().items()
            if not isinstance(value, Graph | Kernel | Op)
        }
        is_given = op.is_constant or isinstance(op, ParameterOp | ReadOp | ResultOp)
        text = "" if is_given else ", ".join(f"{k}={value_text(v)}" for k, v in fields.items())
        if isinstance(op, CompositeOp):
            if op not in self.parts:
                self.parts[op] = tuple(
                    [(kind_of(x), self.type_of(x), tuple(kinds_computed(x))) for x in parts_of(op)]
                )
            made_of = self.parts[op]
        else:
            made_of = ()
        return {
            "kind": kind_of(op),
            "class": picture.kind_of(op)[0],
            "type": self.type_of(op),
            "line": self.location(op.location),
            "scope": op.name_scope,
            "fields": text if len(text) <= LONGEST else f"{text[:LONGEST]}...",
            "parts": made_of,
        }

    def kernel(self, kernel: Kernel) -> dict[str, Any]:
        """Return a kernel; operands have the numbers before those of the ops."""
        body = [self.record(each.op, self.head(each.op), list(each.args)) for each in kernel.body]
        return {
            "domain": list(kernel.domain),
            "reduced": list(kernel.reduced),
            "operands": len(kernel.operands),
            "ops": body,
            "outputs": list(kernel.outputs),
        }

    # Passes, plan, source and profile

    def pipeline(self, history: PassHistory) -> dict[str, Any]:
        """Return the stages of a graph: as the passes got it, and after each."""
        stages = [{"name": "before", "graph": self.graph(history.graph)}]
        before = history.graph
        for name, after in history.steps:
            stages.append({"name": name, **self.stage(before, after)})
            before = after
        return {"name": history.graph.name, "stages": stages}

    def stage(self, before: Graph, after: Graph) -> dict[str, Any]:
        replacements = changes(before, after)
        was, now = ({op: index for index, op in enumerate(graph.ops)} for graph in (before, after))
        number = self.graph(after)
        # Where a graph has a summary, nobody can ask for one of its ops.
        change_limit = MOST_CHANGES if "ops" in self.graphs[number] else 0
        return {
            "graph": number,
            "removed": sum(len(each.removed) for each in replacements),
            "added": sum(len(each.added) for each in replacements),
            "changes": [
                {
                    "removed": [was[op] for op in each.removed[:change_limit]],
                    "added": [now[op] for op in each.added[:change_limit]],
                    "was": _kind_counts(each.removed),
                    "now": _kind_counts(each.added),
                    "line": self.location((each.removed or each.added)[0].location),
                }
                for each in replacements[:MOST_CHANGES]
            ],
        }

    def memory(self, plan: Plan) -> dict[str, Any]:
        indices = {op: index for index, op in enumerate(plan.graph.ops)}
        memory = memory_of(plan, indices, self.layout_type)
        return {"graph": self.graph(plan.graph), **memory}

    def source(self) -> dict[str, Any]:
        """Return the generated program; runs of lines with the same locations are joined."""
        lines = self.compiled.source.split("\n")
        locations = [tuple(each) for each in self.compiled.source_locations[: len(lines)]]
        locations = locations[:MOST_LINES]
        return {
            "text": "\n".join(lines[:MOST_LINES]),
            "lines": len(lines),
            "locations": [
                [len(list(several)), [self.location(each) for each in here]]
                for here, several in groupby(locations)
            ],
        }

    def profile(self, profile: Profile) -> dict[str, Any]:
        fields = profile.to_dict()
        for row in fields["rows"]:
            row["locations"] = [self.location((file, line)) for file, line, _ in row.pop("lines")]
        return fields


def _role(op: Op) -> str:
    if isinstance(op, ParameterOp):
        return "input"
    if isinstance(op, ReadOp):
        return "state"
    if op.is_constant:
        return "constant"
    return "result" if drawn_as(op) is not op else ""


def _is_hidden(op: Op) -> bool:
    """Whether a drawing shows an op as part of others: a number, a copy, or one of results."""
    return drawn_as(op) is not op or (op.is_constant and op.axes.size <= 1)


def _kind_counts(ops: Iterable[Op]) -> str:
    """Return the kinds of some ops as text, each with its number if there are several."""
    counts: dict[str, int] = {}
    for op in ops:
        if not isinstance(op, ResultOp):
            name = op.kernel.title if isinstance(op, FusedOp) else kind_of(op)
            counts[name] = counts.get(name, 0) + 1
    return ", ".join(name if n == 1 else f"{n} {name}" for name, n in counts.items())
