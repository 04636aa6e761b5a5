"""Inverses of pooling."""

from __future__ import annotations

import math
from typing import Any, Unpack

from weft.errors import AxesError
from weft.ir.axes import make_axes
from weft.ir.lengths import product
from weft.ir.storage import as_op, constant
from weft.ir.tensor import TensorLike, TensorOp
from weft.nn.spatial.geometry import PerAxis, Use
from weft.nn.spatial.windows import folded_into
from weft.ops.arguments import checked_number
from weft.ops.indexing.multi_index import scatter_along_axis
from weft.ops.pointwise.elementwise import FloatOp, align
from weft.ops.products.roles import IMAGES, ImageRoles, RoleSignature, by_roles
from weft.ops.shape.movement import BroadcastOp, broadcast, cast_axes

__all__ = [
    "avg_unpool",
    "lp_unpool",
    "max_unpool",
]


_IMAGES = "batch? channels? spatial*"
_PAIR = RoleSignature(_IMAGES, _IMAGES, results=[_IMAGES])


def max_unpool(
    x: TensorLike, indices: TensorLike, lengths: PerAxis, **axes: Unpack[ImageRoles]
) -> TensorOp:
    """Return images of spatial `lengths` with the elements of x at their indices, else zeros.

    `x` and `indices` are results of `max_pool_with_indices`, `lengths` the spatial lengths of its
    images. Of elements with the same index, which overlapping windows may have, the last one in
    row-major order wins, and gets the gradient. For named axes see `max_pool`. A call with an index
    out of range raises IndexOutOfRange.
    """
    return by_roles(
        "max_unpool", _PAIR, (x, indices), axes, lambda *both: _put(both[0], both[1], lengths)
    )


def _put(x: TensorLike, indices: TensorLike, lengths: PerAxis) -> TensorOp:
    x, indices = as_op(x), as_op(indices)
    use = Use("max_unpool", (x, indices))
    counts = use.spatial_lengths()
    sizes = use.numbers("lengths", lengths, len(counts))
    if indices.axes != x.axes:
        raise use.refusal(f"{x.axes} needs indices of the same axes, not {indices.axes}", AxesError)
    rows = (*x.axes.lengths[:2], product(counts))
    zeros = broadcast(constant(0, dtype=x.dtype), make_axes((*rows[:2], math.prod(sizes))))
    found = scatter_along_axis(zeros, cast_axes(indices, rows), cast_axes(x, rows))
    return cast_axes(found, (*rows[:2], *sizes))


def avg_unpool(
    x: TensorLike,
    kernel: PerAxis,
    stride: PerAxis | None = None,
    lengths: PerAxis | None = None,
    **axes: Unpack[ImageRoles],
) -> TensorOp:
    """Return images with each window filled with the element of x, its mean.

    It is a right inverse of `avg_pool` with the same `kernel` and `stride`: pooling the result
    gives `x`. Windows must not overlap, so the stride (by default the kernel) must be at least the
    kernel; elements between windows are 0. `lengths` are the spatial lengths, by default the least.
    For named axes see `max_pool`.
    """

    def apply(x: Any) -> TensorOp:
        return _unpooled("avg_unpool", as_op(x), kernel, stride, lengths)

    return by_roles("avg_unpool", IMAGES, (x,), axes, apply)


def lp_unpool(
    x: TensorLike,
    p: float,
    kernel: PerAxis,
    stride: PerAxis | None = None,
    lengths: PerAxis | None = None,
    **axes: Unpack[ImageRoles],
) -> TensorOp:
    """Return images with each window filled with its p-norm, an element of x, / count ** (1 / p).

    The count is the number of elements of a window. It is a right inverse of `lp_pool`: pooling the
    result gives the absolute value of `x`. The arguments are those of `avg_unpool`; integers give
    float32.
    """

    def apply(x: Any) -> TensorOp:
        (x,) = align(FloatOp, x)
        use = Use("lp_unpool", (x,))
        sizes = use.numbers("kernel", kernel, len(use.spatial_lengths()))
        share = x * math.prod(sizes) ** (-1 / checked_number("lp_unpool", "p", p, 1))
        return _unpooled("lp_unpool", share, kernel, stride, lengths)

    return by_roles("lp_unpool", IMAGES, (x,), axes, apply)


def _unpooled(
    function: str, x: TensorOp, kernel: PerAxis, stride: PerAxis | None, lengths: PerAxis | None
) -> TensorOp:
    use = Use(function, (x,))
    counts = use.spatial_lengths()
    sliding = use.sliding(counts, kernel, kernel if stride is None else stride, 0, 1)
    if any(step < size for step, size in zip(sliding.stride, sliding.kernel, strict=True)):
        problem = f"windows of {sliding.kernel} at every {sliding.stride} overlap"
        raise use.refusal(f"{problem}: the stride must be at least the kernel")
    least = sliding.lengths(counts)
    sizes = least if lengths is None else use.numbers("lengths", lengths, len(counts))
    if use.fitting(sliding, sizes).counts(sizes) != counts:
        problem = f"{counts} windows do not fit the lengths {sizes}: give {least} or slightly more"
        raise use.refusal(problem, AxesError)
    target = make_axes((*x.axes.lengths, *sliding.kernel))
    windows = BroadcastOp(x, target_axes=target, dims=tuple(range(x.rank)))
    return folded_into(make_axes((*x.axes.lengths[:2], *sizes)), windows, sliding)
