"""The rules of a plan, checked independently of how the plan was made: by running it on addresses.

Each byte range that a step writes is stamped with the op that wrote it; each read must find the
stamp of the op that it wants.
"""

from __future__ import annotations

from typing import Any

from weft.description import TensorDescription
from weft.errors import PlanError
from weft.op import Op
from weft.ops.storage import ParameterOp, ReadOp
from weft.plan import ARENA, CONSTANT, INPUT, RESULT, STATE, Buffer, Plan


def verify_plan(plan: Plan) -> None:
    """Check a plan; raises PlanError that names the op and its line."""
    _check_overlaps([buffer for buffer in plan.buffers if buffer.kind == ARENA])
    made: dict[Op, bool] = {}
    memory = _Memory(plan)
    results = plan.results
    for step in plan.steps:
        for arg, tensor in zip(step.op.args, step.args, strict=True):
            source = _maker(arg, made, plan)
            memory.check_read(step.op, source, tensor)
        made[step.op] = True
        if step.op.has_effect:
            continue
        for value, tensor in zip(results.get(step.op, [step.op]), step.outs, strict=True):
            if tensor.base.kind in (CONSTANT, INPUT):
                raise PlanError(step.op.explain(f"the plan writes into a {tensor.base.kind}"))
            made[value] = True
            memory.write(value, tensor.base)
    for number, op in enumerate(plan.graph.outputs):
        memory.check_final(op, (RESULT, number))
    for state, value in plan.graph.updates:
        memory.check_final(value, (STATE, state))


def _maker(op: Op, made: dict[Op, bool], plan: Plan) -> Op:
    """Return the op whose step wrote the bytes behind a value, following views."""
    while op not in made and not op.is_constant and not isinstance(op, ParameterOp | ReadOp):
        if not op.args or plan.tensors[op].base is not plan.tensors[op.args[0]].base:
            raise PlanError(op.explain("the plan reads it before it is computed"))
        op = op.args[0]
    if op in made and op.has_effect:
        return _maker(op.args[0], made, plan)
    return op


class _Memory:
    """Which op wrote what is in memory now, by place."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.owner: dict[Any, Op] = {}
        self.arena: list[tuple[int, int, Op]] = []

    def _place(self, buffer: Buffer) -> Any:
        return (buffer.kind, buffer.owner)

    def check_read(self, reader: Op, source: Op, tensor: TensorDescription) -> None:
        buffer = tensor.base
        if buffer.kind == ARENA:
            start, end = buffer.offset, buffer.offset + buffer.nbytes
            ok = start == end or any(
                a <= start and end <= b and op is source for a, b, op in self.arena
            )
        elif buffer.kind in (CONSTANT, INPUT):
            ok = True
        else:
            found = self.owner.get(self._place(buffer))
            ok = found is source or (found is None and isinstance(source, ReadOp))
        if not ok:
            raise PlanError(
                reader.explain(f"the plan lets it read {source} after that was overwritten")
            )

    def write(self, op: Op, buffer: Buffer) -> None:
        if buffer.kind == ARENA:
            start, end = buffer.offset, buffer.offset + buffer.nbytes
            self.arena = [(a, b, op) for a, b, op in self.arena if b <= start or a >= end]
            self.arena.append((start, end, op))
        else:
            self.owner[self._place(buffer)] = op

    def check_final(self, op: Op, place: Any) -> None:
        if self.owner.get(place) is not op:
            raise PlanError(op.explain(f"the plan does not leave it in its {place[0]}"))


def _check_overlaps(buffers: list[Buffer]) -> None:
    """Sweep over time; buffers alive together must lie apart."""
    events = [(b.first, 1, i) for i, b in enumerate(buffers)]
    events += [(b.last, 2, i) for i, b in enumerate(buffers)]
    alive: dict[int, Buffer] = {}
    for _, kind, index in sorted(events):
        if kind == 2:
            alive.pop(index, None)
            continue
        mine = buffers[index]
        for other in alive.values():
            if (
                mine.nbytes
                and other.nbytes
                and mine.offset < other.offset + other.nbytes
                and other.offset < mine.offset + mine.nbytes
            ):
                raise PlanError(f"the plan puts {mine} over {other} while both are alive")
        alive[index] = mine
