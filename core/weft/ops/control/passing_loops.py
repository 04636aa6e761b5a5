"""Loops that pass carried values on from one iteration to the next without copying them.

A step in time yields the state that it was given as the one before; a filter shifts its delay line
by one. Such values stay where they are, and the iterations alternate between slots.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count, islice
from types import MappingProxyType
from typing import Any, NamedTuple

from weft.ir.axes import Axes
from weft.ir.dtypes import DType
from weft.ir.tensor import TensorOp
from weft.ops.control.graph_ops import (
    Evaluate,
    GraphsOp,
    LoopOp,
    check_carried,
    check_operands,
)
from weft.support.backports import override
from weft.support.locks import cached_property

LONGEST_CYCLE = 32
"""The most iterations until carried values are in the same slots again; else they are copied."""

LONGEST_CYCLE_WITH_CALLS = 4
"""The same for a body that calls graphs, which are there once for each iteration of the cycle."""


class PassingLoopOp(LoopOp):
    """A loop whose body yields what it computes; other carried values are inputs of the body.

    Attributes
    ----------
    sources
        For each carried value what it is after an iteration: an output of the body, by its index,
        or an input, counted on from the last output.
    """

    sources: tuple[int, ...]

    @cached_property
    @override
    def result_types(self) -> tuple[tuple[Axes, DType], ...]:
        return tuple((op.axes, op.dtype) for op in self._carried)

    @property
    def _carried(self) -> list[TensorOp]:
        """The carried values after an iteration."""
        values = (*self.graph.outputs, *self.graph.inputs)
        return [values[number] for number in self.sources]

    def infer(self) -> tuple[Axes, Any]:
        """Check operands and carried values against inputs."""
        check_operands(self.graph, self.args)
        check_carried(self.graph, self._carried)
        return GraphsOp.infer(self)

    @override
    def run(self, evaluate: Evaluate, args: tuple[Any, ...]) -> tuple[Any, ...]:
        carried = len(self.sources)
        for _ in range(self.count):
            values = *evaluate(self.graph, args), *args
            args = (*(values[number] for number in self.sources), *args[carried:])
        return args[:carried]


class Slot(NamedTuple):
    """Memory for one value of a shape and dtype, by its number."""

    shape: tuple[int, ...]
    dtype: DType
    number: int


Place = Slot | int
"""Where a value is: in a slot, or in an operand of the loop, by its index."""


class Iteration(NamedTuple):
    """The places of an iteration: of the carried values before it, and of the body's outputs."""

    carried: tuple[Place, ...]
    outputs: tuple[Slot, ...]


def passing(loop: LoopOp) -> LoopOp:
    """Return a loop that copies no values, if its body yields inputs, or a value twice."""
    graph, carried = loop.graph, len(loop.graph.outputs)
    inputs = {op: number for number, op in enumerate(graph.inputs)}
    computed = list(dict.fromkeys(op for op in graph.outputs if op not in inputs))
    if isinstance(loop, PassingLoopOp) or len(computed) == carried:
        return loop
    places = {op: number for number, op in enumerate((*computed, *graph.inputs))}
    sources = tuple(places[op] for op in graph.outputs)
    body = graph.memo(passing, lambda: graph.replace(outputs=computed))
    made = PassingLoopOp(*loop.args, graph=body, count=loop.count, sources=sources)
    most = LONGEST_CYCLE_WITH_CALLS if graph.called else LONGEST_CYCLE
    return made if len(cycle_of(made)[0]) <= most else loop


def sources_of(loop: LoopOp) -> tuple[int, ...]:
    """Return `PassingLoopOp.sources`; of another loop, its outputs in order."""
    if isinstance(loop, PassingLoopOp):
        return loop.sources
    return tuple(range(len(loop.graph.outputs)))


def cycle_of(
    loop: LoopOp, in_place: Mapping[int, int] = MappingProxyType({})
) -> tuple[list[Iteration], int]:
    """Return the iterations until one has its values where another had them, and which that is.

    There are at most `LONGEST_CYCLE` and one more. `in_place` are outputs that stay in the slot of
    a carried value; each such value is in its own slot at first.
    """
    seen: dict[tuple[Place, ...], int] = {}
    iterations: list[Iteration] = []
    for each in islice(_iterations(loop, in_place), LONGEST_CYCLE + 1):
        if each.carried in seen:
            return iterations, seen[each.carried]
        seen[each.carried] = len(iterations)
        iterations.append(each)
    return iterations, len(iterations)


def _iterations(loop: LoopOp, in_place: Mapping[int, int]) -> Iterator[Iteration]:
    """Yield the iterations; each output is in the first slot without a carried value."""
    graph, sources = loop.graph, sources_of(loop)
    carried = len(sources)
    own = {
        output: Slot(graph.inputs[place].axes.shape, graph.inputs[place].dtype, -1 - place)
        for output, place in in_place.items()
    }
    before: tuple[Place, ...] = tuple(own.get(sources[place], place) for place in range(carried))
    while True:
        outputs: list[Slot] = []
        for index, op in enumerate(graph.outputs):
            slots = (Slot(op.axes.shape, op.dtype, number) for number in count())
            free = (each for each in slots if each not in (*before, *outputs))
            outputs.append(own[index] if index in own else next(free))
        yield Iteration(before, tuple(outputs))
        values = (*outputs, *before, *range(carried, len(graph.inputs)))
        before = tuple(values[number] for number in sources)
