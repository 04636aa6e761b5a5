"""Account: what fusion did to a computation, in ops, kernels and bytes."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from weft.description import TensorDescription
from weft.graph import Graph
from weft.kernels.fusedop import FusedOp
from weft.kernels.places import VIEWS
from weft.op import Op
from weft.ops.results import ResultOp
from weft.ops.storage import ParameterOp, ReadOp
from weft.plan import Plan, Step

_GIVEN = (ParameterOp, ReadOp, ResultOp)


@dataclass(frozen=True)
class Account:
    """What a computation consists of, before and after its ops were fused.

    Attributes
    ----------
    captured
        The ops that were captured, without constants and without what calls and states give.
    ops
        The ops that are computed after all passes and the plan, each on its own; views are not.
    kernels, fused
        The kernels, and the ops that they contain.
    steps
        What runs, one after the other: kernels, and ops that are in none.
    bytes_op_by_op, bytes_moved
        What a call reads and writes, each step its operands and results once: if every op ran on
        its own, and as it is. A step that sweeps several times over more than fits into a cache
        reads more.
    arena
        The bytes of memory for intermediate values.
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


def account(captured: Graph, plan: Plan) -> Account:
    """Return the account of a plan for what was captured."""
    kernels = [step.op.kernel for step in plan.steps if isinstance(step.op, FusedOp)]
    fused = sum(not isinstance(each.op, VIEWS) for kernel in kernels for each in kernel.body)
    return Account(
        captured=sum(1 for op in captured.ops if not (op.is_constant or isinstance(op, _GIVEN))),
        ops=len(plan.steps) - len(kernels) + fused,
        kernels=len(kernels),
        fused=fused,
        steps=len(plan.steps),
        bytes_op_by_op=sum(map(_bytes_op_by_op, plan.steps)),
        bytes_moved=sum(map(_bytes_moved, plan.steps)),
        arena=plan.arena_size,
    )


def _bytes_moved(step: Step) -> int:
    """Return what a step reads and writes; an effect writes nothing."""
    written = () if step.op.has_effect else step.outs
    return sum(map(_touched, dict.fromkeys(step.args))) + sum(map(_touched, written))


def _bytes_op_by_op(step: Step) -> int:
    """Return what the ops of a kernel would read and write one by one, or the step's own."""
    if not isinstance(step.op, FusedOp):
        return _bytes_moved(step)
    kernel = step.op.kernel
    sizes = [_touched(arg) for arg in step.args]
    total = 0
    for each in kernel.body:
        if isinstance(each.op, VIEWS):
            sizes.append(sizes[each.args[0]])
        else:
            sizes.append(_nbytes(each.op))
            total += sizes[-1] + sum(sizes[number] for number in set(each.args))
    return total


def _touched(tensor: TensorDescription) -> int:
    """Return the bytes of the different elements that a description shows."""
    lengths = zip(tensor.shape, tensor.strides, strict=True)
    return prod(length for length, stride in lengths if stride) * tensor.dtype.itemsize


def _nbytes(op: Op) -> int:
    size: int = op.axes.size * op.dtype.itemsize
    return size
