"""The plan verifier: replays a plan on addresses, independently of the planner.

Each range of bytes that a step writes is stamped with its value; each read must find the stamp of
the value that it expects. The planner's live ranges are checked as well.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Sequence
from itertools import combinations
from typing import Any

from weft.errors import PlanError
from weft.ir.description import TensorDescription
from weft.ir.graph import Graph, called_graphs
from weft.ir.op import Op
from weft.ir.results import ResultOp, TupleOp
from weft.ir.storage import ParameterOp, ReadOp
from weft.ops.shape.movement import ContiguousOp
from weft.plan.buffers import ARENA, CONSTANT, INPUT, RESULT, STATE, Buffer, kind_of
from weft.plan.donated_memory import DonatedTensorOp
from weft.plan.steps import Plan, Step, plan_of

Span = tuple[int, int]
"""A half-open range of bytes."""


def verify_plan(plan: Plan) -> None:
    """Check a plan and those of called graphs; raises PlanError with the op and its line."""
    _verify_one(plan)
    called = (called_graphs(graph, own=True) for step in plan.steps for graph in step.op.graphs)
    for graph in dict.fromkeys(graph for graphs in called for graph in graphs):
        _verify_one(plan_of(graph))


def _verify_one(plan: Plan) -> None:
    _check_meaning(plan)
    _check_buffers(plan)
    _check_tensors(plan)
    _check_order(plan)
    for index, step in enumerate(plan.steps):
        _check_places(plan, step)
        _check_apart(plan, step)
        _check_lifetimes(step, index)
    _MemorySimulation(plan).run()


def _error(op: Op, problem: str) -> PlanError:
    return PlanError(op.explain(f"the plan {problem}"))


def _check_meaning(plan: Plan) -> None:
    """Check that the planned graph computes the original one; parts of it may run again."""
    numbers: dict[Hashable, int] = {}
    before, after = plan.source, plan.graph
    (wanted, acts), (found, done) = _value_numbers(before, numbers), _value_numbers(after, numbers)
    if acts != done:
        raise PlanError(f"the plan has {len(done)} effects instead of {len(acts)}")
    for op, planned in zip(before.outputs, after.outputs, strict=True):
        if wanted[op] != found[planned]:
            raise _error(op, f"returns {planned} for it, which has another value")
    updates = {state: found[value] for state, value in after.updates}
    for state, value in before.updates:
        is_kept = isinstance(value, ReadOp) and value.state is state
        if updates.pop(state, wanted[value] if is_kept else None) != wanted[value]:
            raise _error(value, f"does not update {state} to it")
    if updates:
        raise PlanError(
            f"the plan updates {', '.join(map(format, updates))}, which the graph does not"
        )


def _value_numbers(graph: Graph, numbers: dict[Hashable, int]) -> tuple[dict[Op, int], list[int]]:
    """Return a value number for each op, and those of effects in order."""
    numbers_of: dict[Op, int] = {}
    effects = []
    for op in graph.ops:
        fields = [id(value) for value in op.attributes().values()]
        key = (type(op), *fields, *[numbers_of[arg] for arg in op.args]) if op.args else op
        number = numbers.setdefault(key, len(numbers))
        if op.has_effect:
            effects.append(number)
        hands_on = op.args and (isinstance(op, ContiguousOp) or op.hands_on)
        numbers_of[op] = numbers_of[op.args[0]] if hands_on else number
    return numbers_of, effects


def _check_buffers(plan: Plan) -> None:
    """Check that buffers are aligned, inside the arena, and disjoint while they are live."""
    buffers = [buffer for buffer in plan.buffers if buffer.kind == ARENA]
    for buffer in buffers:
        if buffer.offset % plan.alignment:
            raise PlanError(f"the plan puts {buffer} at {buffer.offset}, which is not aligned")
        if not 0 <= buffer.offset <= plan.arena_size - buffer.nbytes:
            raise PlanError(f"the plan puts {buffer} outside the arena")
    events = [(buffer.first, 1, number) for number, buffer in enumerate(buffers) if buffer.nbytes]
    events += [(buffer.last, 2, number) for number, buffer in enumerate(buffers) if buffer.nbytes]
    alive: dict[int, Buffer] = {}
    for _, kind, number in sorted(events):
        if kind == 2:
            alive.pop(number, None)
            continue
        mine = buffers[number]
        for other in alive.values():
            if _overlap(_span_of(mine), _span_of(other)):
                raise PlanError(f"the plan puts {mine} over {other} while both are alive")
        alive[number] = mine


def _overlap(one: Span, other: Span) -> bool:
    return max(one[0], other[0]) < min(one[1], other[1])


def _span_of(buffer: Buffer) -> Span:
    return buffer.offset, buffer.offset + buffer.nbytes


def _span(tensor: TensorDescription) -> Span:
    """Return the range of bytes that a tensor covers."""
    if not tensor.size:
        return tensor.offset, tensor.offset
    steps = [(n - 1) * stride for n, stride in zip(tensor.shape, tensor.strides, strict=True)]
    low = tensor.offset + sum(step for step in steps if step < 0)
    high = tensor.offset + sum(step for step in steps if step > 0)
    return low, high + tensor.dtype.itemsize


def _check_tensors(plan: Plan) -> None:
    """Check that every value has a layout in its buffer, and views that of their operand."""
    for op, tensor in plan.tensors.items():
        if (tensor.shape, tensor.dtype) != (op.axes.shape, op.dtype):
            raise _error(op, f"describes it as {tensor.dtype}{list(tensor.shape)}")
        low, high = _span(tensor)
        start, end = _span_of(tensor.base)
        if low < high and not start <= low <= high <= end:
            raise _error(op, f"puts it outside of {tensor.base}")
        if _is_view(op, plan) and tensor != op.view(plan.tensors[op.args[0]]):
            raise _error(op, "describes it as another view")


def _is_leaf(op: Op) -> bool:
    return op.is_constant or isinstance(op, ParameterOp | ReadOp)


def _is_view(op: Op, plan: Plan) -> bool:
    if not op.args or isinstance(op, TupleOp | ResultOp) or _is_leaf(op):
        return False
    return op.view(plan.tensors[op.args[0]]) is not None


def _check_order(plan: Plan) -> None:
    """Check that every op but views runs once, after its predecessors, and effects in order."""
    indices = {step.op: index for index, step in enumerate(plan.steps)}
    if len(indices) < len(plan.steps):
        raise PlanError("the plan runs an op twice")
    done: dict[Op, int] = {}
    last = -1
    for op in plan.graph.ops:
        waits = [done[first] for first in (*op.args, *plan.graph.after.get(op, ()))]
        done[op] = indices.get(op, max(waits, default=-1))
        if op not in indices:
            if (
                not (_is_leaf(op) or isinstance(op, ResultOp) or _is_view(op, plan))
                or op.has_effect
            ):
                raise _error(op, "leaves it out")
            continue
        if max(waits, default=-1) >= indices[op]:
            raise _error(op, "runs it before one of its predecessors")
        if op.has_effect or op.may_raise:
            if indices[op] < last:
                raise _error(op, "runs it before an earlier op with an effect")
            last = indices[op]
    for index, step in enumerate(plan.steps[: last + 1]):
        if any(out.base.kind == STATE for out in _written(step)):
            raise _error(step.op, f"writes a state at step {index}, but step {last} may raise")


def _written(step: Step) -> Sequence[TensorDescription]:
    return () if step.op.hands_on else step.outs


def _check_places(plan: Plan, step: Step) -> None:
    """Check that steps access their operands and results, and that results are contiguous."""
    op = step.op
    values = plan.results[op] if isinstance(op, TupleOp) else [op] if op.is_tensor else []
    for out in _written(step):
        if out.base.kind in (CONSTANT, INPUT):
            raise _error(op, f"writes into a {out.base.kind}")
        if not out.is_contiguous:
            raise _error(op, "gives it a result that is not contiguous")
    if list(step.args) != [plan.tensors[arg] for arg in op.args]:
        raise _error(op, "lets it read other layouts than its operands'")
    if list(step.outs) != [plan.tensors[value] for value in values]:
        raise _error(op, "lets it write other layouts than its results'")


def _check_apart(plan: Plan, step: Step) -> None:
    """Check that a step's results overlap neither each other nor operands that must survive."""
    op = step.op
    written = [*_written(step), *([step.workspace] if step.workspace else [])]
    if any(share_memory(one, other) for one, other in combinations(written, 2)):
        raise _error(op, "lets its results and workspace overlap")
    for index, arg in enumerate(step.args):
        if step.workspace and share_memory(step.workspace, arg):
            raise _error(op, f"puts its workspace over operand {index}")
        for number, out in enumerate(_written(step)):
            in_place = _is_same_place(out, arg) and _overwrites(op, number, index)
            if share_memory(out, arg) and not in_place:
                raise _error(op, f"lets it overwrite operand {index} while it reads it")


def share_memory(one: TensorDescription, other: TensorDescription) -> bool:
    """Return whether two tensors of a plan cover some bytes in common."""
    return _space(one.base) == _space(other.base) and _overlap(_span(one), _span(other))


def _is_same_place(out: TensorDescription, arg: TensorDescription) -> bool:
    """Whether each element of a result has the address of the operand's element."""
    same = (out.shape, out.dtype, out.offset) == (arg.shape, arg.dtype, arg.offset)
    return same and out.is_contiguous and arg.is_contiguous


def _space(buffer: Buffer) -> Hashable:
    """Return an identifier of the memory that an offset refers to."""
    return ARENA if buffer.kind == ARENA else _space_of(buffer.kind, buffer.owner)


def _space_of(kind: str, owner: Any) -> Hashable:
    return kind, id(owner) if isinstance(owner, Op) else owner


def _overwrites(op: Op, result: int, index: int) -> bool:
    if isinstance(op, TupleOp):
        return op.may_overwrite_with(result, index)
    return op.may_overwrite(index)


def _check_lifetimes(step: Step, index: int) -> None:
    """Check that the buffers that a step accesses are live."""
    tensors = [*step.args, *step.outs, *([step.workspace] if step.workspace else [])]
    for tensor in tensors:
        buffer = tensor.base
        if buffer.kind == ARENA and not buffer.first <= index <= buffer.last:
            raise _error(step.op, f"lets it use {buffer} at step {index}")


class _MemorySimulation:
    """The values in memory while the steps run."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.spaces: dict[Hashable, _Stamps] = {}
        self.computed: set[Op] = set()

    def run(self) -> None:
        """Run all steps, and check the final contents."""
        for step in self.plan.steps:
            for arg, tensor in zip(step.op.args, step.args, strict=True):
                self._check_read(step.op, self._source(arg), tensor)
            if step.workspace:
                self._write(step.op, step.workspace)
            values = self._values(step.op) if _written(step) else []
            for value, tensor in zip(values, step.outs, strict=bool(values)):
                self._write(value, tensor)
                self.computed.add(value)
        for number, op in enumerate(self.plan.graph.outputs):
            self._check_final(op, RESULT, number)
        updates = dict(self.plan.graph.updates)
        for state, op in updates.items():
            self._check_final(op, kind_of(state), state)
        for state in self.plan.graph.states:
            if _space_of(kind_of(state), state) in self.spaces and state not in updates:
                raise PlanError(f"the plan writes {state}, which has no update")

    def _values(self, op: Op) -> list[Op]:
        return self.plan.results[op] if isinstance(op, TupleOp) else [op] if op.is_tensor else []

    def _source(self, op: Op) -> Op:
        """Return the op whose step wrote a value, through views."""
        while op not in self.computed and not _is_leaf(op):
            if not _is_view(op, self.plan):
                raise _error(op, "reads it before it is computed")
            op = op.args[0]
        return op

    def _check_read(self, reader: Op, source: Op, tensor: TensorDescription) -> None:
        buffer = tensor.base
        span = _span(tensor)
        stamps = self.spaces.get(_space(buffer), _NO_STAMPS)
        if span[0] == span[1]:
            return
        if buffer.kind == CONSTANT:
            is_there = buffer.owner is source
        elif buffer.kind == INPUT:
            is_there = self.plan.graph.inputs[buffer.owner] is source
        elif isinstance(source, ReadOp):
            is_there = _is_of(buffer, source.state) and not stamps.touching(span)
        else:
            is_there = stamps.covers(span, source)
        if not is_there:
            raise _error(reader, f"lets it read {source} from memory with another value")

    def _write(self, op: Op, tensor: TensorDescription) -> None:
        self.spaces.setdefault(_space(tensor.base), _Stamps()).write(_span(tensor), op)

    def _check_final(self, op: Op, kind: str, owner: Any) -> None:
        tensor = self.plan.tensors[op]
        space = _space_of(kind, owner)
        stamps = self.spaces.get(space, _NO_STAMPS)
        nbytes = op.nbytes
        is_there = not nbytes or stamps.covers((0, nbytes), self._source(op))
        if not (is_there and tensor.is_contiguous and _space(tensor.base) == space):
            raise _error(op, f"does not leave it in its {kind}")


def _is_of(buffer: Buffer, state: Any) -> bool:
    """Whether a buffer is that of a state, or of the result in whose memory an argument is."""
    is_donated = isinstance(state, DonatedTensorOp) and buffer.kind == RESULT
    return buffer.owner == state.result if is_donated else buffer.owner is state


class _Stamps:
    """The values in one memory: sorted spans, and the op of each."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.ops: list[Op] = []

    def touching(self, span: Span) -> range:
        """Return the indices of the stamps that overlap a span."""
        return range(bisect_right(self.ends, span[0]), bisect_left(self.starts, span[1]))

    def covers(self, span: Span, op: Op) -> bool:
        """Whether one value covers a span."""
        indices = self.touching(span)
        if len(indices) != 1 or self.ops[indices[0]] is not op:
            return False
        return self.starts[indices[0]] <= span[0] and span[1] <= self.ends[indices[0]]

    def write(self, span: Span, op: Op) -> None:
        """Write a value to a span; values that it overlaps are lost."""
        if span[0] == span[1]:
            return
        indices = self.touching(span)
        cut = slice(indices.start, indices.stop)
        self.starts[cut], self.ends[cut], self.ops[cut] = [span[0]], [span[1]], [op]


_NO_STAMPS = _Stamps()
