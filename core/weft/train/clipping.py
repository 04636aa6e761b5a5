"""Gradient clipping by value and by norm."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from weft import ops, ranks
from weft.errors import ArgumentError
from weft.ir import dtypes
from weft.ir.dtypes import accumulator_dtype
from weft.ir.op import Op, explain
from weft.ir.storage import constant
from weft.ir.tensor import TensorLike, TensorOp
from weft.ops.arguments import checked_number
from weft.ops.pointwise.elementwise import align
from weft.ops.reductions.reduction import sum_over
from weft.ranks.sharding import shard_axis

__all__ = ["clip_by_global_norm", "clip_by_norm", "clip_by_value"]


def clip_by_value(x: TensorLike, low: TensorLike, high: TensorLike) -> TensorOp:
    """Return a gradient or other tensor, clipped elementwise to a range.

    The gradient is 1 where x is within the bounds, else 0. NaN is kept.

    Parameters
    ----------
    x
        The operand.
    low, high
        The bounds: numbers, or tensors that broadcast with x.

    Returns
    -------
    TensorOp
        The clipped tensor.

    Raises
    ------
    ArgumentError
        If both bounds are Python numbers and `low` is above `high`.

    Examples
    --------
    >>> weft.jit(lambda x: weft.clip_by_value(x, -1.0, 1.0))(np.array([-3.0, 0.5, 2.0]))
    array([-1. ,  0.5,  1. ])
    """
    if isinstance(low, int | float) and isinstance(high, int | float) and not low <= high:
        problem = f"low must not be above high, as {low!r} is above {high!r}"
        raise ArgumentError(explain("clip_by_value", problem, ()))
    return ops.clip(x, low, high)


def clip_by_norm(x: TensorLike, limit: float) -> TensorOp:
    """Return a gradient or other tensor, scaled down to a Euclidean norm of at most `limit`.

    Parameters
    ----------
    x
        A tensor of floats; integers count as float32.
    limit
        A Python number above 0.

    Returns
    -------
    TensorOp
        A tensor like x, unchanged if its norm, over all elements, is below the limit. The norm may
        exceed the range of the dtype.

    Raises
    ------
    ArgumentError
        If the limit is out of range.
    DTypeError
        If x is complex.

    Examples
    --------
    >>> weft.jit(lambda x: weft.clip_by_norm(x, 2.5))(np.array([3.0, 4.0]))
    array([1.5, 2. ])
    """
    return _clipped("clip_by_norm", [x], limit)[0]


def clip_by_global_norm(gradients: Sequence[Any], limit: float) -> list[TensorOp]:
    """Return a list of gradients, scaled down by one factor to a joint norm of at most `limit`.

    (Pascanu, Mikolov and Bengio: On the difficulty of training recurrent neural networks, 2013.)

    Parameters
    ----------
    gradients
        A list of tensors of floats. The norm is over all elements of all of them, those of other
        ranks too where they are shards.
    limit
        A Python number above 0.

    Returns
    -------
    list[TensorOp]
        Tensors like the gradients, in their order and dtypes.

    Raises
    ------
    ArgumentError
        If the limit is out of range, or the gradients are no list.
    DTypeError
        If a gradient is complex.

    Examples
    --------
    >>> x, y = np.array([3.0, 0.0]), np.array([4.0])
    >>> weft.jit(lambda x, y: weft.clip_by_global_norm([x, y], 2.5))(x, y)
    [array([1.5, 0. ]), array([2.])]
    """
    if isinstance(gradients, Op) or not isinstance(gradients, Sequence):
        problem = f"takes a list of gradients, not {gradients!r}"
        raise ArgumentError(explain("clip_by_global_norm", problem, ()))
    return _clipped("clip_by_global_norm", list(gradients), limit)


def _clipped(function: str, tensors: list[Any], limit: float) -> list[TensorOp]:
    if not checked_number(function, "limit", limit):
        raise ArgumentError(explain(function, "limit must be more than 0", ()))
    floats = [x for each in tensors for x in align(ops.FloatOp, each)]
    wide = [ops.cast(x, accumulator_dtype(x.dtype)) for x in floats if x.axes.size != 0]
    dtype = reduce(dtypes.promote, (x.dtype for x in wide), dtypes.float32)
    # Elements are divided by the largest first, so that no square overflows; the factor cancels.
    top = constant(limit, dtype=dtype)
    for x in wide:
        size = ops.absolute(ops.cast(x, dtype))
        top = ops.maximum(top, ops.MaxOp(size, positions=tuple(range(x.rank))))
    shards: dict[str, list[TensorOp]] = {}
    for x in wide:
        if (axis := shard_axis(x)) is not None:
            shards.setdefault(axis.communicator, []).append(x)
    for communicator in shards:
        top = ranks.all_reduce(top, "max", communicator)
    top = ops.stop_gradient(top)
    share = limit / top
    total = _sum_of_squares([x for x in wide if shard_axis(x) is None], top)
    for communicator, parts in shards.items():
        total = total + ranks.all_reduce(_sum_of_squares(parts, top), communicator=communicator)
    scale = share / ops.sqrt(ops.maximum(ops.square(share), total))
    return [ops.cast(ops.cast(x, dtype) * scale, x.dtype) for x in floats]


def _sum_of_squares(tensors: list[TensorOp], unit: TensorOp) -> TensorOp:
    """Return the sum of the squares of all elements, each divided by a unit first."""
    total = constant(0, dtype=unit.dtype)
    for x in tensors:
        total = total + sum_over(ops.square(ops.cast(x, unit.dtype) / unit), tuple(range(x.rank)))
    return total
