"""The reduced axes of a reduction, and the axes of its result."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, SupportsIndex

import numpy as np

from weft.errors import ArgumentError, WeftError
from weft.ir.axes import Axes, Axis, AxisKeys, make_axes
from weft.ir.op import explain
from weft.ir.storage import as_op
from weft.ir.tensor import TensorLike, TensorOp
from weft.ops.shape.movement import cast_axes, transpose

OutAxes = Axis | SupportsIndex | Iterable[Axis | SupportsIndex]
"""The axes that a reduction keeps: axes of a named tensor, positions in another."""


def default_positions(axes: Axes) -> tuple[int, ...]:
    """Return the positions of the axes reduced by default."""
    return tuple(i for i, axis in enumerate(axes) if not (axis.is_batch or axis.is_recurrent))


def reduced_positions(
    x: TensorOp,
    reduction_axes: AxisKeys | None,
    out_axes: OutAxes | None,
    function: str = "reduction",
) -> tuple[int, ...]:
    """Return the positions to reduce, from `reduction_axes` or `out_axes`."""
    try:
        if out_axes is not None:
            if reduction_axes is not None:
                raise ArgumentError("give reduction_axes or out_axes, not both")
            kept = x.axes.positions(make_axes(out_axes) if x.axes.is_named else out_axes)
            return tuple(place for place in range(x.rank) if place not in kept)
        if reduction_axes is None:
            return default_positions(x.axes)
        return tuple(sorted(x.axes.positions(reduction_axes)))
    except WeftError as error:
        raise type(error)(explain(function, error.problem, (x,))) from None


def arranged(
    result: TensorOp,
    x: TensorOp,
    positions: tuple[int, ...],
    out_axes: OutAxes | None,
    keepdims: bool,
) -> TensorOp:
    """Return a reduced tensor with its axes in the order of `out_axes`, or with kept dimensions."""
    if out_axes is not None and x.axes.is_named:
        return transpose(result, make_axes(out_axes))
    if keepdims:
        ones = (Axis(1, a.name) if i in positions else a for i, a in enumerate(x.axes))
        return cast_axes(result, Axes(ones))
    return result


def reduce(
    kind: type[TensorOp],
    x: TensorLike,
    reduction_axes: AxisKeys | None,
    out_axes: OutAxes | None,
    keepdims: bool,
    **fields: Any,
) -> TensorOp:
    """Return a reduction of a class, with its axes arranged."""
    x = as_op(x)
    positions = reduced_positions(x, reduction_axes, out_axes, kind.__name__)
    return arranged(kind(x, positions=positions, **fields), x, positions, out_axes, keepdims)


def joined(x: TensorOp, positions: tuple[int, ...]) -> tuple[TensorOp, Callable[..., TensorOp]]:
    """Return the tensor with some axes flattened into the last, and the inverse function."""
    order = (*(place for place in range(x.rank) if place not in positions), *positions)
    turned = transpose(x, order)
    kept, gone = turned.axes[: x.rank - len(positions)], turned.axes[x.rank - len(positions) :]
    last = gone.flatten() if gone else Axis(1, "()" if x.axes.is_named else None)
    inverse = tuple(map(int, np.argsort(order)))

    def back(y: TensorOp) -> TensorOp:
        return transpose(cast_axes(y, turned.axes), inverse)

    return cast_axes(turned, Axes((*kept, last))), back
