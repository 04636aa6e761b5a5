"""Expands call, loop and conditional steps into sub-plans placed in the caller's memory.

A called graph is planned once. A frame maps its plan to the caller's memory: inputs to the
operands, outputs to the results, and its arena to a part of the step's workspace. So code for the
steps of a plan is generated once, and runs in any number of frames.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from weft.ir import scope
from weft.ir.description import TensorDescription, contiguous
from weft.ir.dtypes import uint8
from weft.ir.graph import Graph
from weft.ir.op import Op
from weft.ir.storage import CARRIED, placeholder
from weft.ops.control.graph_ops import CallOp, CondOp, LoopOp, WhileOp
from weft.ops.control.passing_loops import Iteration, PassingLoopOp, Place, cycle_of
from weft.ops.shape.movement import ContiguousOp
from weft.plan.buffers import ARENA, INPUT, RESULT, Buffer
from weft.plan.callee_memory import spare_offsets
from weft.plan.carried_memory import carried_in_place
from weft.plan.steps import Plan, Step, plan_of

NOWHERE = TensorDescription((0,), uint8, (1,), 0, Buffer(ARENA, 0, 0))
"""The memory of an empty arena."""


@dataclass(frozen=True, eq=False)
class CallFrame:
    """The mapping of a plan's memory to the caller's.

    Attributes
    ----------
    inputs, outputs
        The layouts of the inputs and the outputs, all contiguous.
    workspace
        The memory that contains the arena.
    carried
        The layouts of carried values that a loop updates in place, by what stands for them.
    """

    inputs: Sequence[TensorDescription]
    outputs: Sequence[TensorDescription]
    workspace: TensorDescription | None
    carried: Mapping[Any, TensorDescription] = field(default_factory=dict)

    def place(self, tensor: TensorDescription) -> TensorDescription:
        """Return a layout of the plan in the caller's memory."""
        base = tensor.base
        if base.kind == ARENA:
            home = self.workspace or NOWHERE
        elif base.kind in (INPUT, RESULT):
            home = (self.inputs if base.kind == INPUT else self.outputs)[base.owner]
        elif base.kind == CARRIED:
            home = self.carried[base.owner]
        else:
            return tensor
        offset = tensor.offset + home.offset
        return TensorDescription(tensor.shape, tensor.dtype, tensor.strides, offset, home.base)

    def step(self, step: Step) -> Step:
        """Return a step of the plan, in this frame."""
        space = None if step.workspace is None else self.place(step.workspace)
        outs, args = (tuple(map(self.place, each)) for each in (step.outs, step.args))
        return Step(step.op, outs, args, space)


@dataclass(frozen=True, eq=False)
class CallPart:
    """A call of a plan in a frame."""

    plan: Plan
    frame: CallFrame


@dataclass(frozen=True, eq=False)
class CopyPart:
    """A step that copies a value."""

    step: Step


@dataclass(frozen=True, eq=False)
class LoopPart:
    """A loop with a fixed number of iterations."""

    count: int
    parts: tuple[Part, ...]


@dataclass(frozen=True, eq=False)
class WhilePart:
    """A loop whose test computes a bool before each iteration."""

    test: CallPart
    flag: TensorDescription
    parts: tuple[Part, ...]


@dataclass(frozen=True, eq=False)
class CondPart:
    """A conditional: the parts of its two branches."""

    flag: TensorDescription
    then: tuple[Part, ...]
    otherwise: tuple[Part, ...]


Part = CallPart | CopyPart | LoopPart | WhilePart | CondPart


def expand_step(step: Step) -> tuple[Part, ...]:
    """Return the parts of a step whose op calls graphs; these must be planned."""
    return _PARTS[type(step.op)](step)


def calls_of(plan: Plan) -> Iterator[CallPart]:
    """Yield the calls that the steps of a plan make of other plans."""
    waiting = [part for step in plan.steps if step.op.graphs for part in expand_step(step)]
    while waiting:
        match waiting.pop():
            case CallPart() as call:
                yield call
            case LoopPart(_, parts):
                waiting.extend(parts)
            case WhilePart(test, _, parts):
                waiting.extend((test, *parts))
            case CondPart(_, then, otherwise):
                waiting.extend((*then, *otherwise))


def _call(step: Step) -> tuple[Part, ...]:
    plan = plan_of(step.op.graphs[0])
    return (CallPart(plan, CallFrame(step.args, step.outs, step.workspace)),)


def _loop(step: Step) -> tuple[Part, ...]:
    """Chain the iterations of a loop; the last one writes the results."""
    op = step.op
    assert isinstance(op, LoopOp)
    if carried_in_place(op.graph):
        return _passing_loop(step)
    plan = plan_of(op.graph)
    spare = _spare(step, op.graph) if op.count > 1 else []
    fixed = step.args[len(step.outs) :]

    def turn(old: Sequence[TensorDescription], new: Sequence[TensorDescription]) -> CallPart:
        return CallPart(plan, CallFrame([*old, *fixed], new, step.workspace))

    rest = op.count - 1
    # Iterations alternate between two sets of buffers, so that the last one writes the results.
    one, other = (spare, step.outs) if rest % 2 else (step.outs, spare)
    pairs = LoopPart(rest // 2, (turn(one, other), turn(other, one)))
    return (
        turn(step.args[: len(step.outs)], one),
        *([pairs] if pairs.count else []),
        *([turn(one, other)] if rest % 2 else []),
    )


def _passing_loop(step: Step) -> tuple[Part, ...]:
    """Repeat the iterations after which carried values are in the same buffers again.

    What the body updates in part is copied to the buffer of its result first, and stays there. At
    the end a result is copied if it is in an operand, or in the buffer of another result.
    """
    op = step.op
    assert isinstance(op, LoopOp)
    in_place = {each.output: each for each in carried_in_place(op.graph)}
    iterations, first = cycle_of(op, {each.output: each.carried for each in in_place.values()})
    first = min(first, op.count)
    cycle = iterations[first:]
    times, rest = divmod(op.count - first, len(cycle)) if cycle else (0, 0)
    final = iterations[first + rest].carried
    plan, at = plan_of(op.graph), _buffers(step, op, iterations, final)

    def call(iteration: Iteration) -> CallPart:
        inputs = [*(at[place] for place in iteration.carried), *step.args[len(iteration.carried) :]]
        layouts = [at[place] for place in iteration.outputs]
        outputs = [each for index, each in enumerate(layouts) if index not in in_place]
        carried = {each.state: layouts[index] for index, each in in_place.items()}
        return CallPart(plan, CallFrame(inputs, outputs, step.workspace, carried))

    kept = [(step.args[each.carried], step.outs[each.carried]) for each in in_place.values()]
    before = _copies(op, [arg for arg, _ in kept], [out for _, out in kept])
    calls = list(map(call, iterations))
    repeated = [LoopPart(times, tuple(calls[first:]))] if times else []
    pairs = zip(final, step.outs, strict=True)
    copied = {out: at[place] for place, out in pairs if at[place] is not out}
    copies = _copies(op, list(copied.values()), list(copied))
    return (*before, *calls[:first], *repeated, *calls[first : first + rest], *copies)


def _buffers(
    step: Step, op: LoopOp, iterations: Iterable[Iteration], final: Sequence[Place]
) -> dict[Place, TensorDescription]:
    """Return the layout of each place: results are in their own buffers at the end."""
    found: dict[Place, TensorDescription] = dict(enumerate(step.args))
    free: dict[Any, list[TensorDescription]] = {}
    for place, out in zip(final, step.outs, strict=True):
        if found.setdefault(place, out) is not out:
            free.setdefault((out.shape, out.dtype), []).append(out)
    for each in _spare(step, op.graph):
        free.setdefault((each.shape, each.dtype), []).append(each)
    for place in (place for iteration in iterations for place in iteration.outputs):
        if place not in found:
            found[place] = free[place.shape, place.dtype].pop()
    return found


def _cond(step: Step) -> tuple[Part, ...]:
    op = step.op
    assert isinstance(op, CondOp)
    index = 1 + len(op.then_graph.inputs)
    then, otherwise = (
        (CallPart(plan_of(graph), CallFrame(args, step.outs, step.workspace)),)
        for graph, args in zip(op.graphs, (step.args[1:index], step.args[index:]), strict=True)
    )
    return (CondPart(step.args[0], then, otherwise),)


def _while(step: Step) -> tuple[Part, ...]:
    """Carry values in the results and in spare memory by turns, or copy them after each iteration.

    An odd number of iterations ends in spare memory, from where the results are copied; then the
    condition is computed once more, so one with effects is not. A body that calls graphs is called
    once: what it calls would be there twice at each depth.
    """
    op = step.op
    assert isinstance(op, WhileOp)
    test, body = map(plan_of, op.graphs)
    *spare, flag = _spare(step, op.body, op.condition)
    fixed = step.args[len(step.outs) :]

    def call(plan: Plan, old: Sequence[TensorDescription], *new: TensorDescription) -> CallPart:
        return CallPart(plan, CallFrame([*old, *fixed], new, step.workspace))

    one, copies = call(body, step.outs, *spare), tuple(_copies(op, spare, step.outs))
    turns: tuple[Part, ...] = (one, *copies)
    if not (op.body.called or op.condition.effects):
        other = call(body, spare, *step.outs)
        turns = one, call(test, spare, flag), CondPart(flag, (other,), copies)
    return (
        *_copies(op, step.args, step.outs),
        WhilePart(call(test, step.outs, flag), flag, turns),
    )


_PARTS: dict[type[Op], Callable[[Step], tuple[Part, ...]]] = {
    CallOp: _call,
    LoopOp: _loop,
    PassingLoopOp: _passing_loop,
    CondOp: _cond,
    WhileOp: _while,
}


def _spare(step: Step, *graphs: Graph) -> list[TensorDescription]:
    """Return layouts for the outputs of graphs, in the step's workspace after their arenas."""
    space = step.workspace or NOWHERE
    outputs = [op for graph in graphs for op in plan_of(graph).graph.outputs]
    offsets = spare_offsets(graphs)
    return [
        replace(contiguous(op.axes.shape, op.dtype, space.base), offset=space.offset + offset)
        for op, offset in zip(outputs, offsets, strict=True)
    ]


def _copies(
    op: Op, sources: Sequence[TensorDescription], outs: Sequence[TensorDescription]
) -> list[CopyPart]:
    """Return copies between equally many layouts, for an op."""
    with scope.replacing(op):
        pairs = zip(sources, outs, strict=False)
        return [CopyPart(Step(_CopyOp(out), (out,), (source,))) for source, out in pairs]


class _CopyOp(ContiguousOp):
    """A copy between layouts, without an operand in the graph."""

    def __init__(self, like: TensorDescription) -> None:
        super().__init__(placeholder(like.shape, like.dtype))
