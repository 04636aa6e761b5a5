"""Comparisons, selection and logic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.errors import DTypeError
from weft.ir import dtypes
from weft.ir.axes import Axes, broadcast_axes
from weft.ir.dtypes import DType
from weft.ir.storage import as_op, constant
from weft.ir.tensor import CompositeOp, TensorLike, TensorOp, operators
from weft.ops.pointwise.bits import bitwise_and, bitwise_or, bitwise_xor
from weft.ops.pointwise.elementwise import ElementwiseOp, OrderedOp, align, build, meaning
from weft.ops.shape.movement import broadcast
from weft.support.backports import override

__all__ = [
    "ComparisonOp",
    "Equal",
    "EqualOp",
    "Greater",
    "GreaterEqualOp",
    "GreaterOp",
    "Less",
    "LessEqualOp",
    "LessOp",
    "LogicalNotOp",
    "Maximum",
    "MaximumOp",
    "Minimum",
    "MinimumOp",
    "NotEqual",
    "NotEqualOp",
    "OrderOp",
    "Where",
    "WhereOp",
    "clip",
    "equal",
    "greater",
    "greater_equal",
    "less",
    "less_equal",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "not_equal",
    "where",
]


class ComparisonOp(ElementwiseOp):
    """Comparisons: ops that yield bool and have no gradient."""

    @override
    def result_dtype(self, operand: DType) -> DType:
        return dtypes.bool_

    @override
    def partials(self, delta: TensorOp, *args: TensorOp) -> list[None]:
        return [None] * len(args)


class OrderOp(ComparisonOp, OrderedOp):
    """Comparisons by order; complex numbers are refused."""


class LogicalNotOp(ComparisonOp, CompositeOp):
    """Whether the operand is zero or False."""

    reference = meaning(np.logical_not)

    @override
    def decompose(self, x: TensorOp) -> TensorOp:
        return equal(x, constant(0, dtype=x.dtype))


class MaximumOp(OrderedOp):
    """The elementwise maximum; NaN if either is NaN. At ties the gradient goes to the first."""

    reference = meaning(np.maximum)

    def partials(self, delta: TensorOp, x: TensorOp, y: TensorOp) -> tuple[TensorOp, TensorOp]:
        """1 for the operand that was taken, else 0."""
        first = greater_equal(x, y)
        return where(first, delta, 0), where(first, 0, delta)


class MinimumOp(OrderedOp, CompositeOp):
    """The elementwise minimum; NaN if either is NaN. At ties the gradient goes to the first."""

    reference = meaning(np.minimum)

    def decompose(self, x: TensorOp, y: TensorOp) -> TensorOp:
        """Select the first if it is less or NaN, else the second, which may be NaN."""
        return where(logical_or(less(x, y), not_equal(x, x)), x, y)

    def partials(self, delta: TensorOp, x: TensorOp, y: TensorOp) -> tuple[TensorOp, TensorOp]:
        """1 for the operand that was taken, else 0."""
        first = less_equal(x, y)
        return where(first, delta, 0), where(first, 0, delta)


_INSTEAD_OF_EQUALITY = (
    f"{TensorOp.instead_of_truth}; == compares elements, so ask by `is` whether two names have the "
    "same op, and look ops up in a set or dict, not in a list"
)


class EqualOp(ComparisonOp):
    """Elementwise equality; NaN equals nothing."""

    instead_of_truth = _INSTEAD_OF_EQUALITY

    reference = meaning(np.equal)


class NotEqualOp(ComparisonOp, CompositeOp):
    """Elementwise inequality; NaN differs from everything."""

    instead_of_truth = _INSTEAD_OF_EQUALITY

    reference = meaning(np.not_equal)

    @override
    def decompose(self, x: TensorOp, y: TensorOp) -> TensorOp:
        return logical_not(equal(x, y))


class GreaterOp(OrderOp, CompositeOp):
    """Whether the first operand is greater."""

    reference = meaning(np.greater)

    @override
    def decompose(self, x: TensorOp, y: TensorOp) -> TensorOp:
        return LessOp(y, x)


class GreaterEqualOp(OrderOp, CompositeOp):
    """Whether the first operand is greater or equal."""

    reference = meaning(np.greater_equal)

    @override
    def decompose(self, x: TensorOp, y: TensorOp) -> TensorOp:
        return LessEqualOp(y, x)


class LessOp(OrderOp):
    """Whether the first operand is less."""

    reference = meaning(np.less)


class LessEqualOp(OrderOp, CompositeOp):
    """Whether the first operand is less or equal."""

    reference = meaning(np.less_equal)

    def decompose(self, x: TensorOp, y: TensorOp) -> TensorOp:
        """Compare with less and equal; the negation of greater would be wrong for NaN."""
        return logical_or(LessOp(x, y), EqualOp(x, y))


class WhereOp(ElementwiseOp):
    """The second operand where the condition, the first operand, is true; the third elsewhere."""

    reference = meaning(np.where)

    def infer(self) -> tuple[Axes, DType]:
        """Check that the condition is bool and that both alternatives share a dtype."""
        condition, x, y = self.args
        if not dtypes.is_bool(condition.dtype) or x.dtype != y.dtype:
            raise DTypeError(
                f"where takes a bool and two operands of one dtype, not {condition.dtype}, "
                f"{x.dtype}, {y.dtype}"
            )
        return self._common_axes(), x.dtype

    def may_overwrite(self, index: int) -> bool:
        """Allow the second operand only: the condition and the third are read to the end."""
        return index == 1

    @override
    def partials(self, delta: TensorOp, condition: TensorOp, x: TensorOp, y: TensorOp) -> Any:
        return None, where(condition, delta, 0), where(condition, 0, delta)


Equal, NotEqual, Greater, Less = EqualOp, NotEqualOp, GreaterOp, LessOp
Maximum, Minimum, Where = MaximumOp, MinimumOp, WhereOp


def logical_not(x: TensorLike) -> TensorOp:
    """Return whether x is zero or False.

    Examples
    --------
    >>> weft.jit(weft.logical_not)(np.array([0, 1, 2]))
    array([ True, False, False])
    """
    return build(LogicalNotOp, x)


def _as_bool(x: TensorLike) -> TensorOp:
    op = as_op(x)
    return op if dtypes.is_bool(op.dtype) else not_equal(op, 0)


def _as_bools(*operands: TensorLike) -> list[Any]:
    """Return operands as bools; a Python bool stays, as `align` refuses several of them alone."""
    return [x if isinstance(x, bool) else _as_bool(x) for x in operands]


def logical_and(x: TensorLike, y: TensorLike) -> TensorOp:
    """Return the logical AND; numbers other than 0 are true.

    Parameters
    ----------
    x, y
        The operands, broadcast against each other.

    Returns
    -------
    TensorOp
        The truth values, as bool.

    Raises
    ------
    AxesError
        If the operands do not broadcast.

    Examples
    --------
    >>> x, y = np.array([True, True, False]), np.array([True, False, False])
    >>> weft.jit(weft.logical_and)(x, y)
    array([ True, False, False])
    """
    return bitwise_and(*_as_bools(x, y))


def logical_or(x: TensorLike, y: TensorLike) -> TensorOp:
    """Return the logical OR; numbers other than 0 are true.

    Parameters
    ----------
    x, y
        The operands, broadcast against each other.

    Returns
    -------
    TensorOp
        The truth values, as bool.

    Raises
    ------
    AxesError
        If the operands do not broadcast.

    Examples
    --------
    >>> x, y = np.array([True, True, False]), np.array([True, False, False])
    >>> weft.jit(weft.logical_or)(x, y)
    array([ True,  True, False])
    """
    return bitwise_or(*_as_bools(x, y))


def logical_xor(x: TensorLike, y: TensorLike) -> TensorOp:
    """Return the logical XOR; numbers other than 0 are true.

    Parameters
    ----------
    x, y
        The operands, broadcast against each other.

    Returns
    -------
    TensorOp
        The truth values, as bool.

    Raises
    ------
    AxesError
        If the operands do not broadcast.

    Examples
    --------
    >>> x, y = np.array([True, True, False]), np.array([True, False, False])
    >>> weft.jit(weft.logical_xor)(x, y)
    array([False,  True, False])
    """
    return bitwise_xor(*_as_bools(x, y))


def maximum(x: TensorLike, y: TensorLike) -> TensorOp:
    """Return the elementwise maximum of x and y.

    Parameters
    ----------
    x, y
        The operands, broadcast against each other.

    Returns
    -------
    TensorOp
        The elements, in the promoted dtype of the operands; NaN where one of them is NaN.

    Raises
    ------
    AxesError
        If the operands do not broadcast.
    DTypeError
        If the operands are complex.

    Examples
    --------
    >>> weft.jit(weft.maximum)(np.array([1.0, 5.0]), np.array([3.0, 2.0]))
    array([3., 5.])
    """
    return build(MaximumOp, x, y)


def minimum(x: TensorLike, y: TensorLike) -> TensorOp:
    """Return the elementwise minimum of x and y.

    Parameters
    ----------
    x, y
        The operands, broadcast against each other.

    Returns
    -------
    TensorOp
        The elements, in the promoted dtype of the operands; NaN where one of them is NaN.

    Raises
    ------
    AxesError
        If the operands do not broadcast.
    DTypeError
        If the operands are complex.

    Examples
    --------
    >>> weft.jit(weft.minimum)(np.array([1.0, 5.0]), np.array([3.0, 2.0]))
    array([1., 2.])
    """
    return build(MinimumOp, x, y)


def clip(x: TensorLike, min: TensorLike | None = None, max: TensorLike | None = None) -> TensorOp:
    """Return x clipped to the range from `min` to `max`.

    If the limits cross, `max` wins. A limit of NaN gives NaN. The gradient flows to x up to and
    including the limits.

    Parameters
    ----------
    x
        The operand.
    min, max
        The limits, broadcast against x; None means no limit.

    Returns
    -------
    TensorOp
        The clipped elements, in the promoted dtype of operand and limits.

    Raises
    ------
    AxesError
        If the operands do not broadcast.
    DTypeError
        If an operand is complex.

    Examples
    --------
    >>> weft.jit(lambda x: weft.clip(x, -1, 1))(np.array([-3.0, 0.5, 2.0]))
    array([-1. ,  0.5,  1. ])
    >>> weft.jit(lambda x: weft.clip(x, min=0))(np.array([-3.0, 0.5, 2.0]))
    array([0. , 0.5, 2. ])
    """
    x = as_op(x) if min is None else maximum(x, min)
    return x if max is None else minimum(x, max)


def equal(x: TensorLike, y: TensorLike) -> TensorOp:
    """Return whether x equals y, as bool.

    Parameters
    ----------
    x, y
        The operands, broadcast against each other.

    Returns
    -------
    TensorOp
        The truth values, as bool. NaN differs from everything.

    Raises
    ------
    AxesError
        If the operands do not broadcast.

    Examples
    --------
    >>> weft.jit(weft.equal)(np.array([1, 2, 3]), np.array([1, 0, 3]))
    array([ True, False,  True])
    """
    return build(EqualOp, x, y)


def not_equal(x: TensorLike, y: TensorLike) -> TensorOp:
    """Return whether x differs from y, as bool.

    Parameters
    ----------
    x, y
        The operands, broadcast against each other.

    Returns
    -------
    TensorOp
        The truth values, as bool. NaN differs from everything.

    Raises
    ------
    AxesError
        If the operands do not broadcast.

    Examples
    --------
    >>> weft.jit(weft.not_equal)(np.array([1, 2, 3]), np.array([1, 0, 3]))
    array([False,  True, False])
    """
    return build(NotEqualOp, x, y)


def greater(x: TensorLike, y: TensorLike) -> TensorOp:
    """Return whether x > y, as bool.

    Parameters
    ----------
    x, y
        The operands, broadcast against each other.

    Returns
    -------
    TensorOp
        The truth values, as bool. With NaN they are False.

    Raises
    ------
    AxesError
        If the operands do not broadcast.
    DTypeError
        If the operands are complex.

    Examples
    --------
    >>> weft.jit(weft.greater)(np.array([1, 2, 3]), 2)
    array([False, False,  True])
    """
    return build(GreaterOp, x, y)


def greater_equal(x: TensorLike, y: TensorLike) -> TensorOp:
    """Return whether x >= y, as bool.

    Parameters
    ----------
    x, y
        The operands, broadcast against each other.

    Returns
    -------
    TensorOp
        The truth values, as bool. With NaN they are False.

    Raises
    ------
    AxesError
        If the operands do not broadcast.
    DTypeError
        If the operands are complex.

    Examples
    --------
    >>> weft.jit(weft.greater_equal)(np.array([1, 2, 3]), 2)
    array([False,  True,  True])
    """
    return build(GreaterEqualOp, x, y)


def less(x: TensorLike, y: TensorLike) -> TensorOp:
    """Return whether x < y, as bool.

    Parameters
    ----------
    x, y
        The operands, broadcast against each other.

    Returns
    -------
    TensorOp
        The truth values, as bool. With NaN they are False.

    Raises
    ------
    AxesError
        If the operands do not broadcast.
    DTypeError
        If the operands are complex.

    Examples
    --------
    >>> weft.jit(weft.less)(np.array([1, 2, 3]), 2)
    array([ True, False, False])
    """
    return build(LessOp, x, y)


def less_equal(x: TensorLike, y: TensorLike) -> TensorOp:
    """Return whether x <= y, as bool.

    Parameters
    ----------
    x, y
        The operands, broadcast against each other.

    Returns
    -------
    TensorOp
        The truth values, as bool. With NaN they are False.

    Raises
    ------
    AxesError
        If the operands do not broadcast.
    DTypeError
        If the operands are complex.

    Examples
    --------
    >>> weft.jit(weft.less_equal)(np.array([1, 2, 3]), 2)
    array([ True,  True, False])
    """
    return build(LessEqualOp, x, y)


def where(condition: TensorLike, x: TensorLike, y: TensorLike) -> TensorOp:
    """Return x where the condition is true and y elsewhere.

    Parameters
    ----------
    condition
        What decides; numbers other than 0 are true.
    x
        The values where the condition is true.
    y
        The values elsewhere.

    Returns
    -------
    TensorOp
        The chosen elements, in the promoted dtype of x and y. All three operands are broadcast.

    Raises
    ------
    AxesError
        If the operands do not broadcast.
    ArgumentError
        If the condition is a Python bool, which is not a tensor.

    Examples
    --------
    >>> x = np.array([-1.0, 2.0])
    >>> weft.jit(lambda x: weft.where(x > 0, x, 0))(x)
    array([0., 2.])
    """
    test = _as_bool(condition)
    if isinstance(x, bool) and isinstance(y, bool):
        x = constant(x)
    x, y = align(WhereOp, x, y)
    axes = broadcast_axes(broadcast_axes(test.axes, x.axes), y.axes)
    return WhereOp(*(op if not op.axes else broadcast(op, axes) for op in (test, x, y)))


_functions: tuple[Callable[..., TensorOp], ...] = (
    equal, not_equal, greater, greater_equal, less, less_equal, where
)  # fmt: skip
operators.update({function.__name__: function for function in _functions})
