"""Plans: the order of a graph's steps and an address for every value.

Every value has a `TensorDescription` in a buffer: the arena, a state, an input, a constant or a
result of the caller's. Views take no memory. An op reuses the memory of an operand that is dead
afterwards. Results and the new values of states are computed in their final buffers where that is
safe.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

from weft.ir.description import TensorDescription
from weft.ir.graph import Graph
from weft.ir.op import Op
from weft.ir.traversal import nested
from weft.kernels import FusedOp
from weft.plan.buffers import ARENA, CONSTANT, INPUT, RESULT, STATE, Buffer
from weft.support import html
from weft.support.source import short_info

PLAN = "plan"
"""The key of a called graph's plan in its memo."""


@dataclass(slots=True)
class Step:
    """A step: an op, with the layouts of its operands and results.

    The result of an op with an effect is its first operand.
    """

    op: Op
    outs: tuple[TensorDescription, ...]
    args: tuple[TensorDescription, ...]
    workspace: TensorDescription | None = None

    @property
    def out(self) -> TensorDescription:
        """The layout of the only result, or of the first of several."""
        return self.outs[0]


@dataclass(repr=False)
class Plan:
    """The steps of a program in order, and the layout of every tensor.

    Attributes
    ----------
    graph
        The planned graph, which contains copies and recomputed ops.
    source
        The graph before planning.
    steps
        The steps in order, without views.
    tensors
        The layout of every op's value; offsets in the arena are from its start.
    buffers
        All buffers.
    results
        The results of each step that has several, in order.
    alignment
        The bytes to which offsets in the arena are aligned.
    arena_size
        The bytes of the arena.
    peak_live
        The peak of the live bytes, each buffer rounded up to the alignment: a lower bound for the
        arena in this order.
    peak_as_written
        The peak of the live bytes in program order.
    memory_limit
        The limit on the arena in bytes, or None.
    """

    graph: Graph
    steps: list[Step]
    tensors: dict[Op, TensorDescription]
    buffers: list[Buffer]
    results: dict[Op, list[Op]]
    source: Graph
    alignment: int
    arena_size: int
    peak_live: int
    peak_as_written: int
    memory_limit: int | None = None

    @property
    def live_bytes(self) -> list[int]:
        """For each step, the live bytes of the arena."""
        changes = [0] * (len(self.steps) + 2)
        for buffer in self.buffers:
            if buffer.kind == ARENA:
                changes[buffer.first] += buffer.size
                changes[buffer.last + 1] -= buffer.size
        return list(accumulate(changes[: len(self.steps)]))

    def describe(self, op: Op) -> TensorDescription:
        """Return the layout of an op's value."""
        return self.tensors[op]

    def verify(self) -> None:
        """Check the plan independently of the planner; raises PlanError, which names the op.

        The plan computes the graph. Ops run after their predecessors, effects in order, and no
        state is written before an op that may raise. Buffers are aligned, inside the arena, and
        disjoint while they are live. No step reads a value that is not yet computed or already
        overwritten, also by its own results or workspace. No step writes a constant or an input.
        Every result and update is in its final buffer at the end.
        """
        from weft.plan.verifier import verify_plan  # few programs need it

        verify_plan(self)

    def picture(self, path: str | os.PathLike[str]) -> None:
        """Write the plan as a picture to an SVG file.

        The x axis is time, the y axis the bytes of the arena. Each tensor is a box with a tooltip;
        states are rows below.
        """
        from weft.plan.picture import write_picture

        write_picture(self, path)

    def __repr__(self) -> str:
        count, name = len(self.steps), self.graph.name
        return f"<Plan of {name}: {count} steps, an arena of {self.arena_size} bytes>"

    def __str__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        return self.as_html()

    def as_html(self) -> html.Html:
        """Return the first steps as HTML, with the sizes of all buffers."""
        about = {
            "steps": f"{len(self.steps):,}",
            "arena": f"{self.arena_size:,} bytes",
            "most live": f"{self.peak_live:,} bytes, {self.peak_as_written:,} as written",
            **{f"{kind}s": _buffer_totals(self.buffers, kind) for kind in (STATE, CONSTANT)},
        }
        rows = (
            (
                str(number),
                _addresses(step.outs),
                step.op.kernel.title if isinstance(step.op, FusedOp) else type(step.op).__name__,
                _addresses(step.args),
                short_info(step.op.location),
            )
            for number, step in enumerate(self.steps)
        )
        columns = ("step", "results", "op", "operands", "line")
        steps = html.table(columns, rows, len(self.steps))
        return html.section(f"Plan of {self.graph.name}", html.facts(about), steps)

    def table(self) -> str:
        """Return the plan as text: steps, buffers of the arena, and called graphs."""
        return "\n".join(self._lines({}))

    def _lines(self, known: dict[Graph, list[str]]) -> list[str]:
        lines = [
            f"arena {self.arena_size} bytes, at most {self.peak_live} live, "
            f"{self.peak_as_written} in the order as written"
        ]
        for number, step in enumerate(self.steps):
            args, outs = map(_addresses, (step.args, step.outs))
            lines.append(f"{number:5}  {outs} <- {type(step.op).__name__}({args})")
        lines.extend(
            f"steps {b.first:5} to {b.last:5}: bytes {b.offset} to {b.offset + b.nbytes}"
            for b in sorted(self.buffers, key=lambda b: (b.first, b.offset))
            if b.kind == ARENA
        )
        for graph in dict.fromkeys(graph for step in self.steps for graph in step.op.graphs):
            lines.append(f"{graph.name}, which a step runs in its workspace:")
            plan = plan_of(graph)
            inside = nested(known, graph, partial(plan._lines, known))
            lines.extend(f"    {line}" for line in inside)
        return lines


def _buffer_totals(buffers: Iterable[Buffer], kind: str) -> str:
    """Return how many buffers of a kind there are, and their bytes."""
    sizes = [buffer.nbytes for buffer in buffers if buffer.kind == kind]
    return f"{len(sizes):,} of {sum(sizes):,} bytes" if sizes else ""


def _addresses(tensors: Iterable[TensorDescription]) -> str:
    return ", ".join(map(_address, tensors))


def _address(tensor: TensorDescription) -> str:
    buffer = tensor.base
    if buffer.kind == ARENA:
        text = f"arena[{tensor.offset}]"
    elif buffer.kind in (INPUT, RESULT):
        text = f"{buffer.kind}{buffer.owner}"
    else:
        text = f"{buffer.owner}"
    return f"{text}:{tensor.dtype}{list(tensor.shape)}"


def plan_of(graph: Graph) -> Plan:
    """Return the plan of a called graph, which must exist."""

    def missing() -> Plan:
        raise AssertionError(f"{graph!r} has no plan")

    return graph.memo(PLAN, missing)
