"""Products and convolutions of quantized tensors: which of them multiply words.

A quantized tensor is of int8 or uint8, and stands for its numbers less a zero point, times a scale.
Where both factors are, and the second is constant, the numbers as they are in memory are multiplied
and added up in int32. What the zero point of the first adds is a multiple of the sums of the second
one's columns, and a scale is a factor of the whole sum.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from weft.ir.axes import make_axes
from weft.ir.dtypes import float32, int8, int32, uint8
from weft.ir.op import Op
from weft.ir.storage import constant, owning_constant
from weft.ir.tensor import TensorOp
from weft.nn.spatial.convolutions import ConvolutionOp
from weft.nn.spatial.geometry import Sliding
from weft.ops.pointwise.elementwise import CastOp, MultiplyOp, SubtractOp, cast
from weft.ops.products.linalg import MatmulOp
from weft.ops.shape.movement import BroadcastOp, ReshapeOp, TransposeOp, cast_axes
from weft_c.matmul.accumulators import accumulator
from weft_c.matmul.packed_panels import MIN_WORK, PackedMatmulOp, packed
from weft_c.matmul.words import BYTES, PackWordsOp, words_of
from weft_c.processor import Processor
from weft_c.spatial.packed_filters import (
    PackedConvolutionOp,
    best_pixel_tile,
    is_possible,
    windows_of,
)
from weft_tiling.counters import needs_wide_counter
from weft_tiling.spatial import Geometry, geometry_of

MAX_DEPTH = 8
"""The most ops between a constant and a product that are computed to find the constant factor."""

MAX_TERMS = 2**31 // (255 * 128)
"""The terms of a sum below which int32 holds it: floats do not wrap around."""

SCALES = 1e-30, 1e30
"""Between these, a product of scales loses no digits, and no sum is infinite."""

OPS_OF_CONSTANTS = (BroadcastOp, CastOp, MultiplyOp, ReshapeOp, SubtractOp, TransposeOp)
"""The ops that dequantize and rearrange a constant."""


@dataclass(frozen=True)
class Centered:
    """Integers of 8 bits less a zero point, an int32 without axes or of one element; 0 for None."""

    numbers: TensorOp
    zero: TensorOp | None

    @property
    def offset(self) -> int:
        """What makes the numbers unsigned."""
        return 128 if self.numbers.dtype == int8 else 0

    @property
    def is_zero_in_range(self) -> bool:
        """Whether the zero point is known to be a number of the dtype."""
        zero = self.zero
        if zero is None:
            return True
        if zero.is_constant:
            limits = np.iinfo(self.numbers.dtype)
            return limits.min <= int(zero.const.item()) <= limits.max
        return isinstance(zero, CastOp) and zero.args[0].dtype == self.numbers.dtype


def behind_views(op: Op) -> tuple[Op, Callable[[TensorOp], TensorOp]]:
    """Return what an op is a view of, and a function that makes that view of another tensor."""
    views: list[ReshapeOp | TransposeOp] = []
    while isinstance(op, ReshapeOp | TransposeOp) and len(views) < MAX_DEPTH:
        views.append(op)
        op = op.args[0]

    def viewed(x: TensorOp) -> TensorOp:
        for view in reversed(views):
            if isinstance(view, ReshapeOp):
                x = ReshapeOp(x, target_axes=view.target_axes)
            else:
                x = TransposeOp(x, permutation=view.permutation)
        return x

    return op, viewed


def centered(op: Op) -> Centered | None:
    """Return the quantized tensor that an int32 op is made of."""
    zero = None
    op, viewed = behind_views(op)
    if isinstance(op, SubtractOp):
        op, zero = op.args
        if zero.axes.size != 1:
            return None
        zero = zero.args[0] if isinstance(zero, BroadcastOp) else zero
    if not isinstance(op, CastOp) or op.dtype != int32 or op.args[0].dtype not in (int8, uint8):
        return None
    return Centered(viewed(op.args[0]), zero)


def dequantized(op: Op) -> tuple[TensorOp, TensorOp] | None:
    """Return the int32 op and the scale whose product a float32 op is."""
    op, viewed = behind_views(op)
    if not isinstance(op, MultiplyOp) or op.dtype != float32:
        return None
    for integers, scale in (op.args, op.args[::-1]):
        if isinstance(integers, CastOp) and integers.args[0].dtype == int32:
            wide = scale if scale.axes.size == 1 else viewed(scale)
            return viewed(integers.args[0]), wide
    return None


def value_of(op: Op, depth: int = MAX_DEPTH) -> Any:
    """Return the value of an op of constants as an array; None for another, or a deep one."""
    if op.is_constant:
        return op.const
    if not isinstance(op, OPS_OF_CONSTANTS) or not depth:
        return None
    values = [value_of(arg, depth - 1) for arg in op.args]
    if any(value is None for value in values):
        return None
    return np.asarray(op.reference(*values), op.dtype)


@dataclass(frozen=True)
class Factor:
    """A constant factor: int8, and a scale for each position along an axis, or one for all."""

    numbers: Any
    scale: Any

    def sums(self, axes: tuple[int, ...]) -> Any:
        """Return the sums of the numbers over some axes."""
        return self.numbers.sum(axes, dtype=np.int32)


def constant_factor(op: Op, summed: tuple[int, ...]) -> Factor | None:
    """Return the second factor of a product that sums over some of its axes.

    Its scale must not vary along these, and its numbers must fit int8.
    """
    integers, scale = op, np.ones((), np.float32)
    if op.dtype == float32:
        found = dequantized(op)
        if found is None:
            return None
        integers, scale = found[0], value_of(found[1])
    value = value_of(integers)
    if value is None or scale is None or value.size == 0:
        return None
    if value.min() < -128 or value.max() > 127:
        return None
    scale = np.broadcast_to(scale, value.shape)
    index = tuple(slice(0, 1) if axis in summed else slice(None) for axis in range(value.ndim))
    first = scale[index]
    if not np.array_equal(np.broadcast_to(first, scale.shape), scale):
        return None
    return Factor(value.astype(np.int8), first)


_words: WeakValueDictionary[tuple[Any, ...], Op] = WeakValueDictionary()
"""The words of constants, which all programs that read equal ones share."""


def constant_words(numbers: Any, axis: int) -> TensorOp:
    """Return numbers of int8 as a constant of words along an axis."""
    digest = hashlib.sha256(numbers.tobytes()).digest()
    key = (numbers.shape, axis, digest)
    found = _words.get(key)
    if found is None:
        value = words_of(numbers, axis)
        found = _words[key] = owning_constant(value, make_axes(value.shape))
    return found  # type: ignore[return-value]


def legalized_quantized(op: Op, processor: Processor) -> Op | None:
    """Return a product or a convolution of words in the place of one of quantized tensors.

    Those of int32 wrap around as they do; those of float32 are computed so only if int32 holds any
    sum of theirs.
    """
    if not processor.dialect.has_dot4 or processor.lanes == 1:
        return None
    if not isinstance(op, MatmulOp | ConvolutionOp) or op.dtype not in (float32, int32):
        return None
    if not op.axes.is_static or not all(each.axes.is_static for each in op.args):
        return None
    if op.dtype == int32:
        return _integer_product(op, op.args[0], op.args[1], processor)
    found = dequantized(op.args[0])
    if found is None or not found[1].is_constant or found[1].axes.size != 1:
        return None
    return _integer_product(op, found[0], op.args[1], processor, found[1].const)


def _integer_product(
    op: MatmulOp | ConvolutionOp,
    first: Op,
    second: TensorOp,
    processor: Processor,
    scale: Any = None,
) -> Op | None:
    """Return the op for factors of int32, times a scale of the first one where it is float32."""
    x = centered(first)
    if x is None or (scale is not None and not x.is_zero_in_range):
        return None
    summed, trailing = tuple(range(1, second.rank)), (1,) * (op.rank - 2)
    if isinstance(op, MatmulOp):
        second = second.args[0] if isinstance(second, BroadcastOp) else second
        summed, trailing = (0,), ()
        if second.axes != op.args[1].axes[-2:]:
            return None
    factor = constant_factor(second, summed)
    if factor is None:
        return None
    terms = prod(factor.numbers.shape[axis] for axis in summed)
    factors = None
    if scale is not None:
        factors = (scale.reshape(()) * factor.scale).reshape(-1)
        low, high = SCALES
        sizes = np.abs(factors)
        if terms >= MAX_TERMS or not np.all((low < sizes) & (sizes < high)):
            return None
    multiply = _matrix_product if isinstance(op, MatmulOp) else _convolution
    total = multiply(op, x, factor, processor)
    if total is None:
        return None
    sums = factor.sums(summed).reshape(-1, *trailing)
    total = _less_zero_point(total, x, sums)
    if factors is not None:
        total = cast(total, float32) * constant(factors.reshape(-1, *trailing))
    return cast_axes(total, op.axes)


def _less_zero_point(total: TensorOp, x: Centered, sums: Any) -> TensorOp:
    """Return sums of products of unsigned numbers, less what their zero point adds."""
    if x.zero is None or x.zero.is_constant:
        known = x.offset + (0 if x.zero is None else int(x.zero.const.item()))
        if not known:
            return total
        # In 64 bits, and then modulo 2^32.
        wrapped = (sums.astype(np.int64) * known).astype(np.int32)
        return total - constant(wrapped)
    zero = cast_axes(x.zero, ())
    if x.offset:
        zero = zero + constant(np.int32(x.offset))
    return total - zero * constant(sums)


def _filling(x: Centered) -> TensorOp:
    return constant(np.zeros((), np.int32)) if x.zero is None else cast_axes(x.zero, ())


def _matrix_product(
    op: TensorOp, x: Centered, factor: Factor, processor: Processor
) -> TensorOp | None:
    k, n = factor.numbers.shape
    rows = op.axes.size // n
    if rows * n * k < MIN_WORK or needs_wide_counter(2 * k * n):
        return None
    acc = accumulator(int32, processor)
    width = min(2, -(-n // acc.lanes)) * acc.lanes
    panels = packed(constant_words(factor.numbers, 0), 1, width, True)
    words = PackWordsOp(x.numbers, _filling(x), axis=x.numbers.rank - 1, padding=())
    return PackedMatmulOp(words, panels, columns=n)


def _convolution(op: Any, x: Centered, factor: Factor, processor: Processor) -> TensorOp | None:
    g = geometry_of(op)
    if not is_possible(op, g, is_transposed=False) or (g.groups > 1 and g.channels % BYTES):
        return None
    if any(n < 0 for pads in op.padding for n in pads) or not x.is_zero_in_range:
        return None
    lengths = tuple(
        before + n + after for n, (before, after) in zip(g.lengths, op.padding, strict=True)
    )
    kernel, stride, _, dilation = g.sliding
    around = ((0, 0),) * len(kernel)
    sliding = Sliding(kernel, stride, around, dilation)
    channels = -(-g.channels // BYTES)
    padded = Geometry(g.batch, g.groups, channels, g.filters, lengths, g.counts, sliding)
    _, tile = best_pixel_tile(windows_of(padded, False), accumulator(int32, processor))
    panels = packed(constant_words(factor.numbers, 1), g.groups, tile.width, False)
    words = PackWordsOp(x.numbers, _filling(x), axis=1, padding=op.padding)
    return PackedConvolutionOp(
        words, panels, results=g.filters, kernel=kernel, is_transposed=False, stride=stride,
        padding=around, dilation=dilation, groups=g.groups,
    )  # fmt: skip
