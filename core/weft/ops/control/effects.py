"""Sequences, groups, printing, assertions and stopped gradients."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from weft.communicators.calls import current_call
from weft.errors import ArgumentError, CheckFailed, DTypeError, GradientError
from weft.ir import dtypes
from weft.ir.axes import Axes
from weft.ir.dtypes import Array, DType
from weft.ir.op import Op, listed
from weft.ir.storage import AssignOp, as_op
from weft.ir.tensor import TensorLike, TensorOp, operators
from weft.ir.traversal import dependencies, postorder
from weft.ops.shape.movement import IdentityOp
from weft.support.backports import override

__all__ = [
    "AssertOp",
    "CheckFiniteOp",
    "DecisionOp",
    "EffectOp",
    "ParallelOp",
    "PrintOp",
    "SequentialOp",
    "StopGradientOp",
    "assert_op",
    "check_finite",
    "doall",
    "print_op",
    "sequential",
    "stop_gradient",
]


class SequentialOp(TensorOp):
    """A sequence: its members run in order, each op once; the value is the last member's.

    A read inside sees the writes of earlier members, even those built after it. Ops outside are not
    affected.
    """

    def __init__(self, *args: Op, **options: Any) -> None:
        super().__init__(*args, **options)
        object.__setattr__(self, "is_tensor", args[-1].is_tensor)

    @override
    def infer(self) -> tuple[Axes, DType]:
        return self.args[-1].axes, self.args[-1].dtype

    def generate_adjoints(self, delta: TensorOp, *args: TensorOp) -> list[TensorOp | None]:
        """Send the adjoint to the last member.

        Raises GradientError if that member reads a value written after it was built: its rules
        would read the older value.
        """
        writes: dict[Op, Op] = {}
        ran: set[Op] = set()
        for member in args[:-1]:
            for op in postorder([member], dependencies):
                ran.add(op)
                if isinstance(op, AssignOp):
                    writes[op.args[0]] = op
        for op in postorder([args[-1]]):
            for state, read in zip(op.args, op.reads, strict=True):
                if op not in ran and state in writes and read is not writes[state]:
                    raise GradientError(
                        op.explain(
                            f"reads {state}, which the sequence writes, but was built before the "
                            "write, so it has no gradient: build it after the write"
                        )
                    )
        return [*([None] * (len(args) - 1)), delta]


class ParallelOp(Op):
    """A group: its members all run, in any order; it yields no tensor."""

    has_effect = True


class EffectOp(IdentityOp):
    """The first operand, with a side effect on the host whenever it is computed.

    A subclass defines the effect in `perform`. It happens even if the value is unused.
    """

    has_effect = True
    hands_on = True

    def perform(self, *values: Any) -> None:
        """Perform the effect on NumPy arrays of the operands; an exception ends the call."""
        raise NotImplementedError

    @override
    def reference(self, x: Array, *others: Any) -> Any:
        self.perform(x, *others)
        return x


class DecisionOp(EffectOp):
    """A bool that chooses between graphs with collectives, or repeats one.

    A rank takes note of it for the comparison before the next collective: if another rank has
    chosen otherwise, neither gets the other's tensors.
    """

    @override
    def perform(self, *values: Any) -> None:
        current_call().decided(bool(values[0]))


class PrintOp(EffectOp):
    """The operand, printed whenever it is computed.

    Attributes
    ----------
    prefix
        Printed before the value; None for nothing.
    """

    prefix: str | None

    @override
    def perform(self, *values: Any) -> None:
        (value,) = values
        print(value if self.prefix is None else f"{self.prefix} {value}", flush=True)


class AssertOp(EffectOp):
    """The first operand; the call raises CheckFailed unless the second, a bool, is true everywhere.

    Attributes
    ----------
    message
        The text of the error.
    """

    message: str

    def infer(self) -> tuple[Axes, DType]:
        """Check that the condition is bool."""
        if not dtypes.is_bool(self.args[1].dtype):
            raise DTypeError(f"the condition must be bool, not {self.args[1].dtype}")
        return super().infer()

    def perform(self, *values: Any) -> None:
        """Raise an error with the positions where the condition is false."""
        _, condition = values
        if not np.all(condition):
            raise CheckFailed(self.explain(f"{self.message}{_places(~np.asarray(condition))}"))


class CheckFiniteOp(EffectOp):
    """The operand; the call raises CheckFailed if it holds NaN or an infinity."""

    def perform(self, *values: Any) -> None:
        """Raise an error with the positions of NaN and infinity."""
        (value,) = values
        if dtypes.is_inexact(self.dtype):
            wrong = ~np.isfinite(value)
            if wrong.any():
                raise CheckFailed(self.explain(f"NaN or infinity{_places(wrong)}"))


def _places(wrong: Array) -> str:
    """Return the number of wrong elements and their first positions; empty for a scalar."""
    if not wrong.ndim:
        return ""
    first = ", ".join(str(tuple(place)) for place in np.argwhere(wrong)[:3].tolist())
    return f" in {np.sum(wrong)} of {wrong.size} elements, first at {first}"


class StopGradientOp(IdentityOp):
    """The operand, as a constant for differentiation."""

    @override
    def generate_adjoints(self, delta: TensorOp, *args: TensorOp) -> tuple[None]:
        return (None,)


def sequential(ops: Iterable[Any]) -> Op:
    """Run ops in order and return the value of the last, which may yield no tensor.

    Ops inside read the values that earlier members wrote. If a computation also returns an inner op
    of the sequence, that result is its value inside the sequence; `value_of` the op, built outside,
    is its value outside.

    Examples
    --------
    >>> state = weft.persistent_tensor(initial_value=1.0)
    >>> update = weft.sequential([weft.assign(state, 5.0), 2 * state])
    >>> weft.make_transformer().computation(update)()
    array(10., dtype=float32)
    """
    members = tuple(
        op if isinstance(op, Op) else as_op(op) for op in listed("sequential", ops, object)
    )
    if not members:
        raise ArgumentError("sequential needs at least one op")
    return SequentialOp(*members)


def doall(ops: Iterable[Op]) -> ParallelOp:
    """Return an op that runs all given ops and yields nothing.

    Examples
    --------
    >>> a, b = weft.persistent_tensor(), weft.persistent_tensor()
    >>> transformer = weft.make_transformer()
    >>> transformer.computation(weft.doall([weft.assign(a, 1.0), weft.assign(b, 2.0)]))()
    >>> transformer.computation([a, b])()
    (array(1., dtype=float32), array(2., dtype=float32))
    """
    return ParallelOp(*listed("doall", ops))


def print_op(x: TensorLike, prefix: str | None = None) -> TensorOp:
    """Return the tensor, printed whenever it is computed.

    Parameters
    ----------
    x
        The operand.
    prefix
        What is printed before it.

    Returns
    -------
    TensorOp
        The operand.

    Examples
    --------
    >>> weft.jit(lambda x: weft.print_op(x, "x is") + 1)(np.array([1.0, 2.0]))
    x is [1. 2.]
    array([2., 3.])
    """
    return PrintOp(as_op(x), prefix=prefix)


def assert_op(
    x: TensorLike, condition: TensorLike, message: str = "the condition is false"
) -> TensorOp:
    """Return the tensor; computing it raises CheckFailed unless a condition is true everywhere.

    Parameters
    ----------
    x
        The operand.
    condition
        The condition, as bool, of any shape.
    message
        The text of the error, which also has the line of this call.

    Returns
    -------
    TensorOp
        The operand.

    Raises
    ------
    DTypeError
        If the condition is not bool.

    Examples
    --------
    >>> root = weft.jit(lambda x: weft.sqrt(weft.assert_op(x, x >= 0, "x is negative")))
    >>> root(np.array([4.0, 9.0]))
    array([2., 3.])
    >>> root(np.array([4.0, -9.0]))
    Traceback (most recent call last):
        ...
    weft.errors.CheckFailed: AssertOp: x is negative in 1 of 2 elements, first at (1,)...
    """
    return AssertOp(as_op(x), as_op(condition), message=str(message))


def check_finite(x: TensorLike) -> TensorOp:
    """Return the tensor; computing it raises CheckFailed if an element is not finite.

    The error has the number of elements that are NaN or infinite, and the first positions.

    Examples
    --------
    >>> weft.jit(weft.check_finite)(np.array([1.0, 2.0]))
    array([1., 2.])
    >>> weft.jit(weft.check_finite)(np.array([1.0, np.nan]))
    Traceback (most recent call last):
        ...
    weft.errors.CheckFailed: CheckFiniteOp: NaN or infinity in 1 of 2 elements, first at (1,)...
    """
    return CheckFiniteOp(as_op(x))


def stop_gradient(x: TensorLike) -> TensorOp:
    """Return the tensor, as a constant for differentiation.

    Examples
    --------
    >>> weft.grad(lambda x: x * weft.stop_gradient(x))(3.0)
    array(3., dtype=float32)
    """
    return StopGradientOp(as_op(x))


operators["stop_gradient"] = stop_gradient
