"""Fusion statistics: the ops, kernels and bytes of a computation before and after fusion."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from math import prod

from weft.ir.description import TensorDescription
from weft.ir.graph import Graph
from weft.ir.op import Op
from weft.ir.results import ResultOp
from weft.ir.storage import ParameterOp, ReadOp
from weft.ir.traversal import nested
from weft.kernels.fused_op import FusedOp
from weft.kernels.indexing_maps import VIEWS
from weft.ops.control.graph_ops import CondOp, LoopOp
from weft.ops.indexing.dynamic_slices import DynamicSliceOp, DynamicUpdateSliceOp
from weft.ops.indexing.gathering import ScatterOp, TakeAlongAxisOp, TakeOp
from weft.ops.indexing.slicing import UpdateSliceOp
from weft.plan.plan import Plan, Step
from weft.plan.sub_plans import CallPart, CondPart, CopyPart, LoopPart, Part, WhilePart, expand_step

_GIVEN = (ParameterOp, ReadOp, ResultOp)
_CHOOSING = (DynamicSliceOp, TakeAlongAxisOp, TakeOp)
_UPDATING = (DynamicUpdateSliceOp, ScatterOp, UpdateSliceOp)


@dataclass(frozen=True)
class FusionStatistics:
    """The ops, kernels and bytes of a computation, before and after fusion.

    A called graph counts once for each call, a loop of unknown length as one iteration, and a
    conditional as the branch that moves more bytes.

    Attributes
    ----------
    captured
        The captured ops, without constants, parameters and reads of states.
    ops
        The ops that are computed after all passes, without views.
    kernels, fused
        The kernels, and the ops that they contain.
    steps
        The steps: kernels, and ops outside of kernels.
    bytes_op_by_op, bytes_moved
        The bytes that a call reads and writes, without and with fusion. Each step counts its
        operands and results once, though one that reads them in several loops may read more.
    arena
        The bytes of the arena.
    """

    captured: int
    ops: int
    kernels: int
    fused: int
    steps: int
    bytes_op_by_op: int
    bytes_moved: int
    arena: int

    def __str__(self) -> str:
        return "\n".join(
            [
                f"ops captured    {self.captured:>18,}",
                f"ops computed    {self.ops:>18,}  {self.fused:,} of them in kernels",
                f"kernels         {self.kernels:>18,}",
                f"steps           {self.steps:>18,}",
                f"bytes op by op  {self.bytes_op_by_op:>18,}",
                f"bytes moved     {self.bytes_moved:>18,}",
                f"arena bytes     {self.arena:>18,}",
            ]
        )


def fusion_statistics(captured: Graph, plan: Plan) -> FusionStatistics:
    """Return the fusion statistics of a captured graph and its plan."""
    steps = _ran(plan.steps, {})
    kernels = [(times, each.op.kernel) for times, each in steps if isinstance(each.op, FusedOp)]
    fused = sum(
        times * sum(not isinstance(each.op, VIEWS) for each in kernel.body)
        for times, kernel in kernels
    )
    count, number = (sum(times for times, _ in each) for each in (steps, kernels))
    return FusionStatistics(
        captured=_op_count(captured, {}),
        ops=count - number + fused,
        kernels=number,
        fused=fused,
        steps=count,
        bytes_op_by_op=sum(times * _bytes_op_by_op(step) for times, step in steps),
        bytes_moved=sum(times * bytes_moved(step) for times, step in steps),
        arena=plan.arena_size,
    )


def _op_count(graph: Graph, known: dict[Graph, int]) -> int:
    """Return the number of ops of a graph, those of called graphs included."""
    ops = [op for op in graph.ops if not (op.is_constant or isinstance(op, _GIVEN))]
    return sum(_op_count_in(op, known) if op.graphs else 1 for op in ops)


def _op_count_in(op: Op, known: dict[Graph, int]) -> int:
    times = op.count if isinstance(op, LoopOp) else 1
    sizes = [nested(known, graph, partial(_op_count, graph, known)) for graph in op.graphs]
    return max(sizes) if isinstance(op, CondOp) else times * sum(sizes)


Ran = list[tuple[int, Step]]
"""Steps, each with how often it runs."""


def _ran(steps: Iterable[Step], known: dict[int, Ran]) -> Ran:
    """Return steps, with those that run graphs replaced by the steps of these graphs.

    The steps of plans are memoized by number.
    """
    ran: Ran = []
    for step in steps:
        if step.op.graphs:
            for part in expand_step(step):
                ran += _ran_in(part, known)
        else:
            ran.append((1, step))
    return ran


def _ran_in(part: Part, known: dict[int, Ran]) -> Ran:
    match part:
        case CallPart(plan):
            return nested(known, id(plan), partial(_ran, plan.steps, known))
        case CopyPart(step):
            return [(1, step)]
        case LoopPart(count, parts):
            inside = [ran for each in parts for ran in _ran_in(each, known)]
            return [(count * times, step) for times, step in inside]
        case WhilePart(test, _, parts):
            return [ran for each in (test, *parts) for ran in _ran_in(each, known)]
        case CondPart(_, then, otherwise):
            sides = [[x for one in side for x in _ran_in(one, known)] for side in (then, otherwise)]
            return max(sides, key=lambda side: sum(n * bytes_moved(step) for n, step in side))


def bytes_moved(step: Step) -> int:
    """Return the bytes that a step reads and writes; an effect writes nothing.

    Of an operand that is indexed it reads as many as there are in the result, and where a result
    takes over the memory of an operand, it writes what is updated.
    """
    written = () if step.op.hands_on else step.outs
    sizes = {arg: _distinct_bytes(arg) for arg in step.args}
    if isinstance(step.op, _CHOOSING):
        sizes[step.args[0]] = min(sizes[step.args[0]], _distinct_bytes(step.out))
    elif isinstance(step.op, _UPDATING) and step.out.base is step.args[0].base:
        update = step.args[2 if isinstance(step.op, ScatterOp) else 1]
        sizes[step.args[0]] = min(sizes[step.args[0]], _distinct_bytes(update))
        written = (update,)
    return sum(sizes.values()) + sum(map(_distinct_bytes, written))


def _bytes_op_by_op(step: Step) -> int:
    """Return the bytes that the ops of a step would read and write without fusion."""
    if not isinstance(step.op, FusedOp):
        return bytes_moved(step)
    kernel = step.op.kernel
    sizes = [_distinct_bytes(arg) for arg in step.args]
    total = 0
    for each in kernel.body:
        if isinstance(each.op, VIEWS):
            sizes.append(sizes[each.args[0]])
        else:
            sizes.append(each.op.nbytes)
            total += sizes[-1] + sum(sizes[number] for number in set(each.args))
    return total


def _distinct_bytes(tensor: TensorDescription) -> int:
    """Return the bytes of the distinct elements of a layout."""
    lengths = zip(tensor.shape, tensor.strides, strict=True)
    return prod(length for length, stride in lengths if stride) * tensor.dtype.itemsize
