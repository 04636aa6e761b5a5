"""Gradient clipping by value and by norm."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from weft.errors import ArgumentError
from weft.ir import dtypes
from weft.ir.dtypes import accumulator_dtype
from weft.ir.op import Op, explain
from weft.ir.storage import constant
from weft.ir.tensor import TensorOp
from weft.ops.arguments import checked_number
from weft.ops.comparison import clip, maximum
from weft.ops.control import stop_gradient
from weft.ops.elementwise import FloatOp, absolute, align, cast, square
from weft.ops.math import sqrt
from weft.ops.reduction import MaxOp, sum_over

__all__ = ["clip_by_global_norm", "clip_by_norm", "clip_by_value"]


def clip_by_value(x: Any, low: Any, high: Any) -> TensorOp:
    """Return x, such as a gradient, with what is below `low` or above `high` set to that bound.

    The gradient flows where x was kept. NaN stays.
    """
    both_known = isinstance(low, int | float) and isinstance(high, int | float)
    if both_known and not low <= high:
        problem = f"low must not be above high, as {low!r} is above {high!r}"
        raise ArgumentError(explain("clip_by_value", problem, ()))
    return clip(x, low, high)


def clip_by_norm(x: Any, limit: float) -> TensorOp:
    """Return x, such as a gradient, scaled down to a Euclidean norm of `limit` if its is larger.

    The norm is that of all elements; it may be larger than the dtype holds.
    """
    return _clipped("clip_by_norm", [x], limit)[0]


def clip_by_global_norm(gradients: Sequence[Any], limit: float) -> list[TensorOp]:
    """Return gradients as a list, scaled down together to a norm of `limit` if theirs is larger.

    The norm is that of all elements of all of them (Pascanu, Mikolov and Bengio: On the difficulty
    of training recurrent neural networks, 2013).
    """
    if isinstance(gradients, Op) or not isinstance(gradients, Sequence):
        problem = f"takes a list of gradients, not {gradients!r}"
        raise ArgumentError(explain("clip_by_global_norm", problem, ()))
    return _clipped("clip_by_global_norm", list(gradients), limit)


def _clipped(function: str, tensors: list[Any], limit: float) -> list[TensorOp]:
    if not checked_number(function, "limit", limit):
        raise ArgumentError(explain(function, "limit must be more than 0", ()))
    ops = [x for each in tensors for x in align(FloatOp, each)]
    wide = [cast(x, accumulator_dtype(x.dtype)) for x in ops if x.axes.size != 0]
    dtype = reduce(dtypes.promote, (x.dtype for x in wide), dtypes.float32)
    # The largest element is divided out first, so that no square overflows; in the end it cancels.
    top = constant(limit, dtype=dtype)
    for x in wide:
        size = absolute(cast(x, dtype))
        top = maximum(top, MaxOp(size, positions=tuple(range(x.rank))))
    top = stop_gradient(top)
    share = limit / top
    total = constant(0, dtype=dtype)
    for x in wide:
        total = total + sum_over(square(cast(x, dtype) / top), tuple(range(x.rank)))
    scale = share / sqrt(maximum(square(share), total))
    return [cast(cast(x, dtype) * scale, x.dtype) for x in ops]
