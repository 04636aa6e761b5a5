"""Inverses of pooling."""

from __future__ import annotations

import math
from typing import Any, Unpack

from weft import ops
from weft.errors import AxesError
from weft.ir.axes import make_axes
from weft.ir.lengths import product
from weft.ir.storage import as_op, constant
from weft.ir.tensor import TensorLike, TensorOp
from weft.nn.spatial.geometry import PerAxis, Use
from weft.nn.spatial.windows import folded_into
from weft.ops.arguments import checked_number
from weft.ops.pointwise.elementwise import align
from weft.ops.products.roles import IMAGES, ImageRoles, RoleSignature, by_roles

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
    """Return images with the elements of x at their indices, else zeros.

    Of elements with the same index, which overlapping windows may have, the last one in row-major
    order wins, and gets the gradient.

    Parameters
    ----------
    x
        Maxima (N, C, windows along each spatial axis), as from `max_pool_with_indices`.
    indices
        Their indices, with the same axes: integers, flattened over the spatial axes of the result.
    lengths
        The spatial lengths of the result: an integer for all axes, or a list with one for each.
    **axes
        Which named axes play a role, for operands whose axes have names; they may then be in any
        order: ``batch=``, ``channels=`` and ``spatial=``. By default they are ``N``, ``C``, and
        ``D``, ``H``, ``W``.

    Returns
    -------
    TensorOp
        (N, C, lengths), in the dtype of x.

    Raises
    ------
    AxesError
        If the axes of x and the indices differ, or x has no one to three spatial axes.
    ArgumentError
        If the lengths have another form, or a role does not exist.
    IndexOutOfRange
        In a call, for an index out of range.

    Examples
    --------
    >>> x, indices = np.array([[[5.0, 4.0]]]), np.array([[[1, 3]]])
    >>> weft.jit(lambda x, indices: weft.max_unpool(x, indices, 4))(x, indices)
    array([[[0., 5., 0., 4.]]])
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
    zeros = ops.broadcast(constant(0, dtype=x.dtype), make_axes((*rows[:2], math.prod(sizes))))
    found = ops.scatter_along_axis(zeros, ops.cast_axes(indices, rows), ops.cast_axes(x, rows))
    return ops.cast_axes(found, (*rows[:2], *sizes))


def avg_unpool(
    x: TensorLike,
    kernel: PerAxis,
    stride: PerAxis | None = None,
    lengths: PerAxis | None = None,
    **axes: Unpack[ImageRoles],
) -> TensorOp:
    """Return images with each window filled with an element of x, its mean.

    It is a right inverse of `avg_pool` with the same windows: pooling the result gives x.

    Parameters
    ----------
    x
        Means (N, C, windows along each spatial axis), with one to three spatial axes.
    kernel
        The length of a window: an integer for all spatial axes, or a list with one for each.
    stride
        The step between windows, likewise, at least the kernel, which is the default. Elements
        between windows are 0.
    lengths
        The spatial lengths of the result, likewise; by default the least that hold the windows.
    **axes
        Which named axes play a role, for operands whose axes have names; they may then be in any
        order: ``batch=``, ``channels=`` and ``spatial=``. By default they are ``N``, ``C``, and
        ``D``, ``H``, ``W``.

    Returns
    -------
    TensorOp
        (N, C, lengths), in the dtype of x.

    Raises
    ------
    AxesError
        If the lengths do not have as many windows, or x has other axes.
    ArgumentError
        If windows overlap, an option has another form, or a role does not exist.

    Examples
    --------
    >>> weft.jit(lambda x: weft.avg_unpool(x, 2))(np.array([[[2.0, 6.0]]]))
    array([[[2., 2., 6., 6.]]])
    >>> weft.jit(lambda x: weft.avg_unpool(x, 2, stride=3, lengths=6))(np.array([[[2.0, 6.0]]]))
    array([[[2., 2., 0., 6., 6., 0.]]])
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
    """Return images with each window filled so that its p-norm is an element of x.

    That is ``x / count ** (1 / p)`` for a window of `count` elements. It is a right inverse of
    `lp_pool`: pooling the result gives the absolute value of x.

    Parameters
    ----------
    x
        Norms (N, C, windows along each spatial axis), with one to three spatial axes; integers give
        float32.
    p
        The order of the norm, a finite number of at least 1.
    kernel
        The length of a window: an integer for all spatial axes, or a list with one for each.
    stride
        The step between windows, likewise, at least the kernel, which is the default. Elements
        between windows are 0.
    lengths
        The spatial lengths of the result, likewise; by default the least that hold the windows.
    **axes
        Which named axes play a role, for operands whose axes have names; they may then be in any
        order: ``batch=``, ``channels=`` and ``spatial=``. By default they are ``N``, ``C``, and
        ``D``, ``H``, ``W``.

    Returns
    -------
    TensorOp
        (N, C, lengths).

    Raises
    ------
    AxesError
        If the lengths do not have as many windows, or x has other axes.
    ArgumentError
        If windows overlap, an option has another form, or a role does not exist.

    Examples
    --------
    >>> weft.jit(lambda x: weft.lp_unpool(x, 2, 4))(np.array([[[2.0, 6.0]]]))
    array([[[1., 1., 1., 1., 3., 3., 3., 3.]]])
    """

    def apply(x: Any) -> TensorOp:
        (x,) = align(ops.FloatOp, x)
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
    windows = ops.BroadcastOp(x, target_axes=target, dims=tuple(range(x.rank)))
    return folded_into(make_axes((*x.axes.lengths[:2], *sizes)), windows, sliding)
