"""Rounding, and the sign, finiteness and neighbours of floats."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.errors import AxesError
from weft.ir import dtypes
from weft.ir.dtypes import DType
from weft.ir.op import explain
from weft.ir.storage import constant
from weft.ir.tensor import CompositeOp, TensorOp
from weft.ops.bits import bitcast
from weft.ops.comparison import ComparisonOp, equal, less, less_equal, logical_not, not_equal, where
from weft.ops.complex_parts import complex, imag, real
from weft.ops.elementwise import (
    ArithmeticOp,
    FloatOp,
    InexactOp,
    RealNumberOp,
    absolute,
    align,
    build,
    meaning,
    mod,
)
from weft.ops.movement import broadcast

__all__ = [
    "CeilOp",
    "CopysignOp",
    "FloorOp",
    "FmodOp",
    "IsfiniteOp",
    "IsinfOp",
    "IsnanOp",
    "NextafterOp",
    "RoundOp",
    "RoundingOp",
    "SignbitOp",
    "TruncOp",
    "ceil",
    "copysign",
    "floor",
    "fmod",
    "isclose",
    "isfinite",
    "isinf",
    "isnan",
    "nan_to_num",
    "nextafter",
    "round",
    "signbit",
    "trunc",
]


class RoundingOp(RealNumberOp):
    """Ops that give whole numbers; the gradient is 0, which it is wherever it exists."""

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[None]:
        """Return None: there is no gradient."""
        return (None,)


class FloorOp(RoundingOp):
    """The largest whole number that is not above the operand."""

    reference = meaning(np.floor)


class CeilOp(RoundingOp, CompositeOp):
    """The smallest whole number that is not below the operand."""

    reference = meaning(np.ceil)

    def decompose(self, x: TensorOp) -> TensorOp:
        """Round the negative down; that gives -0 for -0.5, as IEEE 754 has it."""
        return -FloorOp(-x)


class TruncOp(RoundingOp, CompositeOp):
    """The operand without its fraction, rounded towards 0."""

    reference = meaning(np.trunc)

    def decompose(self, x: TensorOp) -> TensorOp:
        """Round up below 0 and down above."""
        return where(less(x, 0), CeilOp(x), FloorOp(x))


class RoundOp(RoundingOp, CompositeOp):
    """The nearest whole number; of two equally near ones, the even one."""

    reference = meaning(np.rint)

    def decompose(self, x: TensorOp) -> TensorOp:
        """Look at the rest that rounding down leaves of the size, which is exact."""
        size = absolute(x)
        low = FloorOp(size)
        rest, half = size - low, low * 0.5
        is_odd = less(FloorOp(half), half)
        is_up = less(0.5, rest) | (equal(rest, 0.5) & is_odd)
        return CopysignOp(where(is_up, low + 1, low), x)


class FmodOp(RealNumberOp, CompositeOp):
    """The remainder with the sign of the dividend; an integer modulo 0 gives 0."""

    reference = meaning(np.fmod)

    def decompose(self, x: TensorOp, y: TensorOp) -> TensorOp:
        """Take the remainder of sizes; of integers, whose least has none, correct the other one."""
        if dtypes.is_inexact(x.dtype):
            return CopysignOp(mod(absolute(x), absolute(y)), x)
        rest = mod(x, y)
        is_other = not_equal(rest, 0) & not_equal(less(rest, 0), less(x, 0))
        return where(is_other, rest - y, rest)

    def partials(self, delta: TensorOp, x: TensorOp, y: TensorOp) -> tuple[TensorOp, TensorOp]:
        """1 and -trunc(x / y)."""
        return delta, -(delta * TruncOp(x / y))


class IsnanOp(ComparisonOp, CompositeOp):
    """Whether the operand is NaN, a complex one in any part."""

    reference = meaning(np.isnan)

    def decompose(self, x: TensorOp) -> TensorOp:
        """NaN is what differs from itself."""
        return not_equal(x, x)


class IsinfOp(ComparisonOp, CompositeOp):
    """Whether the operand is infinite, a complex one in any part."""

    reference = meaning(np.isinf)

    def decompose(self, x: TensorOp) -> TensorOp:
        """Look at the size; a complex number with an infinite part is infinite, also beside NaN."""
        if x.dtype.kind == "c":
            return IsinfOp(real(x)) | IsinfOp(imag(x))
        return equal(absolute(x), math.inf)


class IsfiniteOp(ComparisonOp, CompositeOp):
    """Whether the operand is neither infinite nor NaN, a complex one in no part."""

    reference = meaning(np.isfinite)

    def decompose(self, x: TensorOp) -> TensorOp:
        """Look at the size; at that of each part, because the whole may overflow."""
        if x.dtype.kind == "c":
            return IsfiniteOp(real(x)) & IsfiniteOp(imag(x))
        return less(absolute(x), math.inf)


def _as_bits(x: TensorOp) -> TensorOp:
    return bitcast(x, f"int{x.dtype.itemsize * 8}")


class SignbitOp(FloatOp, CompositeOp):
    """Whether the sign bit is set, as it is in -0 and may be in NaN."""

    reference = meaning(np.signbit)

    def result_dtype(self, operand: DType) -> DType:
        """Be bool."""
        return dtypes.bool_

    def decompose(self, x: TensorOp) -> TensorOp:
        """Read the bits as an integer, whose sign bit is the same one."""
        return less(_as_bits(x), 0)

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[None]:
        """Return None: there is no gradient."""
        return (None,)


class CopysignOp(FloatOp, CompositeOp):
    """The size of the first operand with the sign bit of the second."""

    reference = meaning(np.copysign)

    def decompose(self, x: TensorOp, y: TensorOp) -> TensorOp:
        """Put the bits together."""
        size = _as_bits(x)
        every = int(np.iinfo(size.dtype).max)
        return bitcast((size & every) | (_as_bits(y) & ~every), x.dtype)

    def partials(self, delta: TensorOp, x: TensorOp, y: TensorOp) -> tuple[TensorOp, None]:
        """1 where the sign stays, -1 where it changes; nothing for the second."""
        return where(equal(SignbitOp(x), SignbitOp(y)), delta, -delta), None


class NextafterOp(FloatOp, CompositeOp):
    """The next float after the first operand towards the second; its gradient is 1 and 0."""

    reference = meaning(np.nextafter)

    def decompose(self, x: TensorOp, y: TensorOp) -> TensorOp:
        """Count the bits of the size up or down; from 0 on, take the smallest float of a sign."""
        bits = _as_bits(x)
        is_below = less(x, y)
        one = constant(1, dtype=bits.dtype)
        away = where(equal(is_below, less(0, x)), one, -one)
        smallest = CopysignOp(bitcast(one, x.dtype), y)
        moved = where(equal(x, 0), smallest, bitcast(bits + away, x.dtype))
        same = where(equal(x, y), y, x + y)
        return where(is_below | less(y, x), moved, same)

    def partials(self, delta: TensorOp, x: TensorOp, y: TensorOp) -> tuple[TensorOp, None]:
        """The result moves with the first."""
        return delta, None


def _rounded(kind: type[RoundingOp], x: Any) -> TensorOp:
    (x,) = align(kind, x)
    return kind(x) if dtypes.is_inexact(x.dtype) else x


def floor(x: Any) -> TensorOp:
    """Return the largest whole number that is not above x; integers as they are."""
    return _rounded(FloorOp, x)


def ceil(x: Any) -> TensorOp:
    """Return the smallest whole number that is not below x; integers as they are."""
    return _rounded(CeilOp, x)


def trunc(x: Any) -> TensorOp:
    """Return x without its fraction, rounded towards 0; integers as they are."""
    return _rounded(TruncOp, x)


def round(x: Any) -> TensorOp:
    """Return the nearest whole number, of two equally near ones the even one.

    Integers stay as they are; of complex numbers, both parts are rounded. The gradient is 0.
    """
    (x,) = align(ArithmeticOp, x)
    if x.dtype.kind == "c":
        return complex(RoundOp(real(x)), RoundOp(imag(x)))
    return _rounded(RoundOp, x)


def fmod(x: Any, y: Any) -> TensorOp:
    """Return the remainder of x / y, with the sign of x; see `mod` for the sign of y.

    An integer modulo 0 gives 0, a float modulo 0 NaN.
    """
    return build(FmodOp, x, y)


def _asked(kind: type[ComparisonOp], x: Any, otherwise: bool) -> TensorOp:
    (x,) = align(kind, x)
    return kind(x) if dtypes.is_inexact(x.dtype) else broadcast(constant(otherwise), x.axes)


def isnan(x: Any) -> TensorOp:
    """Return whether x is NaN, a complex number in any part; False for integers."""
    return _asked(IsnanOp, x, False)


def isinf(x: Any) -> TensorOp:
    """Return whether x is infinite, a complex number in any part; False for integers."""
    return _asked(IsinfOp, x, False)


def isfinite(x: Any) -> TensorOp:
    """Return whether x is neither infinite nor NaN, in both parts; True for integers."""
    return _asked(IsfiniteOp, x, True)


def signbit(x: Any) -> TensorOp:
    """Return whether the sign bit of x is set, as it is in -0; for integers, whether x < 0."""
    (x,) = align(RealNumberOp, x)
    return SignbitOp(x) if dtypes.is_inexact(x.dtype) else less(x, 0)


def copysign(x: Any, y: Any) -> TensorOp:
    """Return the size of x with the sign of y, which may be that of -0; integers give float32.

    The gradient flows to x alone.
    """
    return build(CopysignOp, x, y)


def nextafter(x: Any, y: Any) -> TensorOp:
    """Return the next float after x in the direction of y, and y where they are equal.

    The gradient flows to x alone.
    """
    return build(NextafterOp, x, y)


def nan_to_num(x: Any, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> TensorOp:
    """Return x with NaN and infinities replaced by numbers; integers as they are.

    By default NaN gives 0, and infinities the largest float of the dtype or its negative. In
    complex numbers both parts are replaced. What was replaced has the gradient 0. Replacements are
    broadcast to x; raises AxesError for one that has axes which x lacks.
    """
    (op,) = align(ArithmeticOp, x)
    if not dtypes.is_inexact(op.dtype):
        return op
    if op.dtype.kind == "c":
        return complex(*(nan_to_num(part(op), nan, posinf, neginf) for part in (real, imag)))
    largest = np.nextafter(np.asarray(np.inf, op.dtype), np.zeros((), op.dtype))
    above = constant(largest) if posinf is None else posinf
    below = constant(-largest) if neginf is None else neginf
    finite = where(IsinfOp(op), where(less(op, 0), below, above), op)
    result = where(IsnanOp(op), nan, finite)
    if not result.axes.agrees_with(op.axes):
        problem = f"a replacement adds axes to x {op.axes}, which gives {result.axes}"
        raise AxesError(explain("nan_to_num", problem, (op,)))
    return result


def isclose(
    x: Any, y: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> TensorOp:
    """Return whether ``|x - y| <= atol + rtol * |y|``, so that y is the one to compare with.

    Infinities are close to themselves, NaN to NaN with `equal_nan`. Integers are compared as
    float32.
    """
    x, y = align(InexactOp, x, y)
    is_near = less_equal(absolute(x - y), absolute(y) * rtol + atol)
    result = (is_near & isfinite(y)) | equal(x, y)
    if not equal_nan:
        return result
    return result | logical_not(equal(x, x) | equal(y, y))
