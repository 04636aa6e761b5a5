"""Programs: one specialization of a computation, with graph, plan and generated code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from weft.cache.serialization import Serializer
from weft.cache.structure import Structure
from weft.cache.template import Template
from weft.errors import StateError
from weft.ir.graph import Graph
from weft.ir.lengths import Symbol
from weft.ir.op import Op
from weft.plan.donated_memory import NOTHING, Donated
from weft.plan.plan import STATE, Buffer, Plan
from weft.report.recorder import Recorder
from weft.runtime.device import DeviceBufferStorage, DeviceTensor
from weft.support.source import Location


@dataclass
class Family:
    """The programs of a computation with unknown lengths.

    Attributes
    ----------
    graph
        The graph, with unknown lengths.
    templates
        The templates that serve the lengths which were seen so far.
    key, compiler
        The key of the templates in the compile cache, and the compiler that it is for.
    attempts
        How often a template was to be made.
    donated
        As in `Program`.
    """

    graph: Graph
    templates: list[Template] = field(default_factory=list)
    key: Any = None
    compiler: Any = None
    attempts: int = 0
    donated: Donated = field(default_factory=lambda: NOTHING)

    def lengths(self, solution: Mapping[Symbol, int]) -> list[int]:
        """Return the lengths of a solution in the order of the graph's symbols."""
        return [solution[symbol] for symbol in self.graph.symbols]


class Program:
    """One specialization of a computation: all lengths known, compiled once.

    Attributes
    ----------
    name
        Unique in the transformer; names generated code.
    captured
        The graph before any pass, which defines the inputs and results.
    graph
        The graph, after the passes if they have run.
    plan
        Its plan.
    arena_size, buffers
        The size of the arena, and the buffers of the plan.
    storages
        The device buffer of each buffer, except for inputs and results, which are the caller's.
    tensors
        The device tensor of each op's value, except in inputs and results.
    run
        The executable: takes the input arrays, then the arrays for the results.
    source
        The generated program as text; set it to text, or to a function that returns it.
    source_locations
        The user's lines behind each line of `source`; set it to a function that returns them.
    code
        The backend's own data on its generated code.
    recorder
        What its launches are recorded by; None for an ordinary program.
    family, template
        The programs of the same computation, and the template that it shares with some of them;
        None if its lengths are all known, or if it shares no code.
    donated
        The arguments whose memory results take over, by result. The array of such a result has the
        value of the argument when `run` is called.
    on_device
        Whether its arguments and results may be `Transformer.device_arrays`.
    is_compiled
        Whether it can run: its code, its memory and the first values of its states are there.
    is_restored, later
        Whether it was restored from the cache, and the function that then computes its graph and
        plan when `graph`, `plan` or `tensors` is first accessed.
    """

    run: Callable[..., None]

    def __init__(
        self,
        name: str,
        graph: Graph,
        solution: Mapping[Symbol, int],
        recorder: Recorder | None = None,
        family: Family | None = None,
    ) -> None:
        self.name = name
        self.captured = graph
        self.solution = solution
        self.recorder = recorder
        self.family = family
        self.template: Template | None = None
        self.donated: Donated = NOTHING
        self.on_device = False
        self.arena_size = 0
        self.buffers: Sequence[Buffer] = ()
        self.storages: dict[Buffer, DeviceBufferStorage] = {}
        self.code: Any = None
        self.is_compiled = self.is_restored = False
        self.later: Callable[[], None] | None = None
        self._graph = graph
        self._plan: Plan | None = None
        self._tensors: dict[Op, DeviceTensor] | None = None
        self._source: str | Callable[[], str] = ""
        self._locate: Callable[[], Sequence[Sequence[Location]]] = tuple

    @property
    def graph(self) -> Graph:
        """The graph, after the passes if they have run."""
        self._look()
        return self._graph

    @graph.setter
    def graph(self, graph: Graph) -> None:
        self._graph = graph

    @property
    def plan(self) -> Plan:
        """The plan."""
        self._look()
        if self._plan is None:
            problem = f"{self.name} has no plan: its transformer was closed before it was compiled"
            raise StateError(problem)
        return self._plan

    @plan.setter
    def plan(self, plan: Plan) -> None:
        self._plan, self._tensors = plan, None
        self.arena_size, self.buffers = plan.arena_size, plan.buffers

    @property
    def known_plan(self) -> Plan | None:
        """The plan, unless it is not computed, or that of a restored program not again so far."""
        return None if self.later is not None else self._plan

    def _look(self) -> None:
        later = self.later
        if later is not None:
            later()

    @property
    def tensors(self) -> dict[Op, DeviceTensor]:
        """The device tensor of each op's value, but for those in inputs and results."""
        layouts = self.plan.tensors.items()
        if self._tensors is None:
            self._tensors = {
                op: self.storages[layout.base].device_tensor(layout)
                for op, layout in layouts
                if layout.base in self.storages
            }
        return self._tensors

    def serializer(self, structure: Structure) -> Serializer:
        """Return a serializer for its code; `structure` is that of the captured graph."""
        return Serializer(structure, self.captured.ops, self.arena_size, self.buffers)

    @property
    def states(self) -> list[Any]:
        """All states that the program reads or writes."""
        if self.is_restored:
            return [buffer.owner for buffer in self.buffers if buffer.kind == STATE]
        return list(self._graph.states)

    @property
    def source(self) -> str:
        """The generated program as text."""
        source = self._source
        if not isinstance(source, str):
            source = self._source = source()
        return source

    @source.setter
    def source(self, source: str | Callable[[], str]) -> None:
        self._source = source

    @property
    def source_locations(self) -> Sequence[Sequence[Location]]:
        """The user's lines behind each line of `source`; empty if the backend does not tell."""
        return self._locate()

    @source_locations.setter
    def source_locations(self, locate: Callable[[], Sequence[Sequence[Location]]]) -> None:
        self._locate = locate
