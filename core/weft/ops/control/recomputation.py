"""Gradient checkpointing: recomputes the values of a region instead of keeping them.

Forward, a `CheckpointOp` is its first operand. Its gradient recomputes the inner values of the
region, by copies of the ops on barriers, which depend on the adjoint. So the planner can reuse the
memory of inner values between the forward and the backward computation. (Griewank and Walther,
Evaluating Derivatives, chapter 12; Chen, Xu, Zhang and Guestrin, Training deep nets with sublinear
memory cost, 2016.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from weft.errors import ArgumentError, StateError
from weft.ir import scope, upcalls
from weft.ir.effects import without_effect
from weft.ir.op import Op, explain, listed
from weft.ir.storage import AssignOp, as_op
from weft.ir.tensor import TensorLike, TensorOp
from weft.ir.traversal import operands, postorder
from weft.ops.control.effects import SequentialOp
from weft.ops.shape.movement import IdentityOp

__all__ = ["BarrierOp", "CheckpointOp", "checkpoint"]


class BarrierOp(IdentityOp):
    """The first operand, with a dependency on the others."""


class CheckpointOp(IdentityOp):
    """The first operand, which gradients recompute from the others.

    The others are all inputs of the region: every path to the first operand goes through one of
    them.
    """

    def generate_adjoints(self, delta: TensorOp, *args: TensorOp) -> tuple[TensorOp | None, ...]:
        """Differentiate a copy of the region."""
        y, *starts = args
        barriers = [BarrierOp(x, delta) for x in starts]
        copy = _copied(y, dict(zip(starts, barriers, strict=True)))
        return (None, *upcalls.adjoints_through(copy, delta, barriers))


def _copied(y: Op, starts: Mapping[Op, Op]) -> Any:
    """Return a copy of `y` with the start ops replaced, and without effects."""
    copies = dict(starts)
    for op in postorder([y], lambda op: () if op in starts else operands(op)):
        if op in starts:
            continue
        args = tuple(copies[arg] for arg in operands(op))
        copies[op] = copy = without_effect(op.meaning, args)
        if copy is not op.meaning and all(copy is not arg for arg in args):
            copy.__dict__.update(order=copy.serial, location=op.location)
    return copies[y]


def checkpoint(y: TensorLike, inputs: Iterable[Any] | None = None) -> TensorOp:
    """Return y, whose gradient recomputes the values between the inputs and y.

    So these values need no memory between the forward and the backward computation, but are
    computed twice, and `deriv` with respect to one of them raises GradientError. Random numbers are
    reproduced, and effects such as printing happen only once.

    Parameters
    ----------
    y
        The operand.
    inputs
        Tensors that y depends on, by default the placeholders and states; in a function that is
        transformed also its arguments, and what else was built before its call. Values that
        depend on none of them are kept.

    Returns
    -------
    TensorOp
        A tensor like y.

    Raises
    ------
    ArgumentError
        If y does not depend on an input.
    StateError
        If a state is read both before and after a write.

    Examples
    --------
    >>> def block(x):
    ...     return weft.checkpoint(weft.exp(weft.sin(x)), [x])
    >>> weft.grad(block)(0.0)
    array(1., dtype=float32)
    """
    op = as_op(y)
    found = dict.fromkeys(postorder([op]))
    if inputs is None:
        chosen = [x for x in found if x.is_state or (x.is_tensor and scope.is_outside(x))]
    else:
        chosen = listed("checkpoint", inputs)
    for x in chosen:
        if not isinstance(x, Op) or x not in found:
            raise ArgumentError(explain("checkpoint", f"{op} does not depend on {x!r}", (op,)))
    between = _between(op, set(chosen))
    if op not in between:
        return op
    starts = dict.fromkeys(x for each in between for x in operands(each) if x not in between)
    with scope.pinned(_versions(between)):
        return CheckpointOp(op, *starts)


def _between(y: Op, starts: set[Op]) -> dict[Op, None]:
    """Return, in order, the ops on paths from the starts to `y`."""
    found: dict[Op, None] = {}
    for op in postorder([y], lambda op: () if op in starts else operands(op)):
        leads = any(arg in starts or arg in found for arg in operands(op))
        if leads and op not in starts and not isinstance(op, SequentialOp | AssignOp):
            found[op] = None
    return found


def _versions(ops: Iterable[Op]) -> dict[Op, Op | None]:
    versions: dict[Op, Op | None] = {}
    for op in ops:
        for state, read in zip(op.meaning.args, op.meaning.reads, strict=True):
            if state.is_state and versions.setdefault(state, read) is not read:
                problem = f"reads {state} before and after a write: put the checkpoint before it"
                raise StateError(op.explain(problem))
    return versions
