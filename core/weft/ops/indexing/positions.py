"""Position encodings for attention: rotary, sinusoidal, and biases by distance."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.errors import ArgumentError, AxesError, DTypeError
from weft.ir import dtypes
from weft.ir.axes import Axes, Axis, make_axes
from weft.ir.dtypes import Array, DType, DTypeLike, accumulator_dtype
from weft.ir.lengths import Length
from weft.ir.op import explain, explained
from weft.ir.storage import as_op, constant
from weft.ir.tensor import CompositeOp, TensorLike, TensorOp
from weft.ops.arguments import check_flags, checked_integer, checked_number
from weft.ops.pointwise.elementwise import FloatOp, absolute, align, cast, negative
from weft.ops.pointwise.math import cos as cosine
from weft.ops.pointwise.math import sin as sine
from weft.ops.products.linalg import require_positional
from weft.ops.shape.joining import concat, stack
from weft.ops.shape.movement import BroadcastOp, IotaOp, broadcast, cast_axes, size_of
from weft.support.backports import override

__all__ = ["RotaryOp", "alibi_bias", "rotary_embedding", "sinusoidal_positions"]


class RotaryOp(CompositeOp):
    """The rotary embedding: pairs along the last axis are rotated by angles.

    A pair (a, b) becomes (a cos - b sin, b cos + a sin). Cosine and sine are operands, with the
    axes of the first operand but half the last length. For 16-bit floats they are float32, and so
    is the computation.

    Attributes
    ----------
    interleaved
        Whether neighbors form a pair; otherwise the elements of a pair are half the axis apart.
    """

    interleaved: bool

    def infer(self) -> tuple[Axes, DType]:
        """Check the axes and dtypes of cosine and sine."""
        x, cos, sin = self.args
        if not dtypes.is_float(x.dtype) or {cos.dtype, sin.dtype} != {accumulator_dtype(x.dtype)}:
            given = f"{x.dtype} by {cos.dtype} and {sin.dtype}"
            raise DTypeError(f"cosine and sine must be {accumulator_dtype(x.dtype)}, not {given}")
        length = x.axes[-1].length if x.axes else 1
        if not isinstance(length, int) or length % 2:
            raise AxesError(f"the last axis of {x.axes} must have an even length, known now")
        halves = make_axes((*x.axes.lengths[:-1], length // 2))
        if cos.axes != halves or sin.axes != halves:
            raise AxesError(f"cosine {cos.axes} and sine {sin.axes} must have the axes {halves}")
        return x.axes, x.dtype

    @override
    def reference(self, x: Array, cos: Array, sin: Array) -> Any:
        wide = np.asarray(x, accumulator_dtype(self.dtype))
        half = wide.shape[-1] // 2
        first, second = (
            (np.s_[..., ::2], np.s_[..., 1::2])
            if self.interleaved
            else (np.s_[..., :half], np.s_[..., half:])
        )
        result = np.empty_like(wide)
        result[first] = wide[first] * cos - wide[second] * sin
        result[second] = wide[second] * cos + wide[first] * sin
        return result.astype(self.dtype)

    @override
    def decompose(self, x: TensorOp, cos: TensorOp, sin: TensorOp) -> TensorOp:
        first, second = self._pairs(x)
        rotated = (first * cos - second * sin, second * cos + first * sin)
        if self.interleaved:
            return cast(cast_axes(stack(rotated, pos=x.rank), x.axes), self.dtype)
        return cast(concat(rotated, -1), self.dtype)

    def _pairs(self, x: TensorOp) -> tuple[TensorOp, TensorOp]:
        """Return the first and the second elements of all pairs."""
        wide = cast(x, accumulator_dtype(self.dtype))
        half = wide.axes[-1].length // 2
        if self.interleaved:
            return wide[..., ::2], wide[..., 1::2]
        return wide[..., :half], wide[..., half:]

    def generate_adjoints(self, delta: TensorOp, x: TensorOp, cos: TensorOp, sin: TensorOp) -> Any:
        """Rotate the adjoint back; differentiate the products for cosine and sine."""
        back = RotaryOp(delta, cos, negative(sin), interleaved=self.interleaved)
        (first, second), (by_first, by_second) = self._pairs(x), self._pairs(delta)
        by_cos = by_first * first + by_second * second
        return back, by_cos, by_second * first - by_first * second


def rotary_embedding(
    x: TensorLike,
    positions: TensorLike | None = None,
    base: float = 10000.0,
    interleaved: bool = False,
    cos: TensorLike | None = None,
    sin: TensorLike | None = None,
) -> TensorOp:
    """Return the rotary position embedding (RoPE) of queries or keys.

    Pair i at position p is rotated by the angle ``p * base ** (-2 i / depth)`` (Su and others:
    RoFormer, 2021), so products of queries and keys depend on relative positions. Angles are
    computed in float32, or float64 for float64 x.

    Parameters
    ----------
    x
        Queries or keys, of the shape (..., sequence, depth) with an even depth.
    positions
        The positions, broadcast to the axes of x without the last; by default 0, 1, 2 and so on.
    base
        How slowly the slowest pair turns, at least 1.
    interleaved
        Whether pairs are neighbors; otherwise they are elements i and ``i + depth / 2``.
    cos, sin
        In place of positions, tables of the angles, which broadcast to (..., sequence, depth / 2).

    Returns
    -------
    TensorOp
        A tensor like x. Integers give float32.

    Raises
    ------
    AxesError
        If x has named axes, its depth is odd or unknown, or positions or tables do not broadcast.
    ArgumentError
        If positions are given beside tables, one table is missing, or the base is less than 1.

    Examples
    --------
    >>> x = np.array([[1.0, 0.0], [1.0, 0.0]])
    >>> weft.jit(weft.rotary_embedding)(x)
    array([[1.    , 0.    ],
           [0.5403, 0.8415]])
    """
    (op,) = align(FloatOp, x)
    require_positional("rotary_embedding", op)
    check_flags("rotary_embedding", (op,), interleaved=interleaved)
    if (cos is None) != (sin is None) or (cos is not None and positions is not None):
        problem = "takes either positions, or both cos and sin"
        raise ArgumentError(explain("rotary_embedding", problem, (op,)))
    depth = _even("rotary_embedding", op.axes[-1].length if op.rank > 1 else None)
    dtype = accumulator_dtype(op.dtype)
    if cos is None or sin is None:
        places = _count(op.axes[-2:-1]) if positions is None else positions
        angles = _angles("rotary_embedding", places, depth, base, dtype)
        cos, sin = cosine(angles), sine(angles)
    target = make_axes((*op.axes.lengths[:-1], depth // 2))
    tables = [cast(as_op(table), dtype) for table in (cos, sin)]
    spread = (explained("rotary_embedding", (op, each), broadcast, each, target) for each in tables)
    return RotaryOp(op, *spread, interleaved=interleaved)


def _even(function: str, depth: Any) -> int:
    if isinstance(depth, bool) or not hasattr(depth, "__index__") or depth.__index__() % 2:
        problem = f"the depth must be an even number that is known now, not {depth!r}"
        raise AxesError(explain(function, problem, ()))
    return int(depth)


def _count(axes: Axes) -> TensorOp:
    return IotaOp(target_axes=axes, target_dtype=dtypes.int32, position=0)


def _angles(
    function: str, positions: TensorLike, depth: int, base: float, dtype: DType
) -> TensorOp:
    """Return for each position, along a new last axis, ``position * base ** (-2 i / depth)``."""
    places = as_op(positions)
    require_positional(function, places)
    (places,) = align(FloatOp, cast(places, dtype))
    rates = checked_number(function, "base", base, low=1) ** (
        np.arange(0, -depth, -2) / max(depth, 1)
    )
    axes = make_axes((*places.axes.lengths, depth // 2))
    turns = BroadcastOp(places, target_axes=axes, dims=tuple(range(places.rank)))
    return turns * broadcast(constant(rates, dtype=dtype), axes)


def sinusoidal_positions(
    positions: TensorLike | Length,
    depth: int,
    base: float = 10000.0,
    dtype: DTypeLike = dtypes.DEFAULT,
) -> TensorOp:
    """Return sinusoidal position encodings, along a new last axis.

    Element 2 i is ``sin(p * base ** (-2 i / depth))`` and element ``2 i + 1`` the cosine (Vaswani
    and others: Attention is all you need, 2017). Angles are computed in float32, or float64 for
    that dtype.

    Parameters
    ----------
    positions
        The number of positions, or a tensor of them.
    depth
        The length of the encodings, an even number.
    base
        How slowly the slowest wave turns, at least 1.
    dtype
        A float dtype.

    Returns
    -------
    TensorOp
        A tensor with the axes of the positions, and the new axis.

    Raises
    ------
    AxesError
        If the depth is odd, or the positions have named axes.
    ArgumentError
        If the base is less than 1.
    DTypeError
        If the dtype is not a float.

    Examples
    --------
    >>> weft.jit(lambda: weft.sinusoidal_positions(2, 4))()
    array([[0.    , 1.    , 0.    , 1.    ],
           [0.8415, 0.5403, 0.01  , 0.9999]], dtype=float32)
    """
    target, length = dtypes.as_dtype(dtype), _even("sinusoidal_positions", depth)
    if not dtypes.is_float(target):
        problem = f"the encodings must be floats, not {target}"
        raise DTypeError(explain("sinusoidal_positions", problem, ()))
    places = _count(make_axes(positions)) if isinstance(positions, int | Length) else positions
    angles = _angles("sinusoidal_positions", places, length, base, accumulator_dtype(target))
    waves = stack([sine(angles), cosine(angles)], pos=angles.rank)
    return cast(cast_axes(waves, (*angles.axes[:-1], length)), target)


def alibi_bias(
    heads: int,
    queries: Axis | Length | int,
    keys: Axis | Length | int | None = None,
    dtype: DTypeLike = dtypes.DEFAULT,
) -> TensorOp:
    """Return the ALiBi bias for `attention`: the negative distance of query and key times a slope.

    Head i from 1 has the slope ``2 ** (-8 i / heads)``. If the number of heads is not a power of 2,
    the slopes are those of the power below, then every other one of the power above (Press, Smith
    and Lewis: Train short, test long, 2022). The last query is aligned with the last key.

    Parameters
    ----------
    heads
        The number of heads.
    queries
        The number of queries, or an axis without a name.
    keys
        The number of keys, or an axis without a name; by default as many as queries.
    dtype
        A float dtype.

    Returns
    -------
    TensorOp
        A bias of the shape (heads, queries, keys).

    Raises
    ------
    ArgumentError
        If the number of heads is not an integer, or is less than 1.
    AxesError
        If an axis has a name.
    DTypeError
        If the dtype is not a float.

    Examples
    --------
    >>> bias = weft.jit(lambda: weft.alibi_bias(2, 3))()
    >>> bias.shape
    (2, 3, 3)
    >>> bias[:, 0, 1:]
    array([[-0.0625, -0.125 ],
           [-0.0039, -0.0078]], dtype=float32)
    """
    count, target = checked_integer("alibi_bias", "heads", heads, low=1), dtypes.as_dtype(dtype)
    if not dtypes.is_float(target):
        raise DTypeError(explain("alibi_bias", f"a bias must be floats, not {target}", ()))
    square = make_axes((queries, queries if keys is None else keys))
    row, column = (
        IotaOp(target_axes=square, target_dtype=dtypes.int32, position=place) for place in (0, 1)
    )
    late, long = (size_of(Axes((axis,)), dtypes.int32) for axis in square)
    distance = cast(absolute(row + (long - late) - column), accumulator_dtype(target))
    axes = make_axes((count, *square.lengths))
    slopes = constant(-np.array(_slopes(count)), dtype=distance.dtype)
    spread = BroadcastOp(slopes, target_axes=axes, dims=(0,))
    return cast(spread * broadcast(distance, axes), target)


def _slopes(heads: int) -> list[float]:
    power = 2 ** int(math.log2(heads))
    slopes = [2 ** (-8 * i / power) for i in range(1, power + 1)]
    return slopes + [2 ** (-4 * i / power) for i in range(1, 2 * (heads - power), 2)]
