"""Rounding, the sign, finiteness and neighbors of floats, and the divisors of integers."""

from __future__ import annotations

import math

import numpy as np

from weft.errors import AxesError, DTypeError
from weft.ir import dtypes
from weft.ir.dtypes import DType
from weft.ir.op import explain
from weft.ir.storage import constant
from weft.ir.tensor import CompositeOp, TensorLike, TensorOp
from weft.ops.pointwise.bits import bitcast
from weft.ops.pointwise.comparison import (
    ComparisonOp,
    equal,
    less,
    less_equal,
    logical_not,
    not_equal,
    where,
)
from weft.ops.pointwise.complex_parts import complex, imag, real
from weft.ops.pointwise.elementwise import (
    ArithmeticOp,
    ElementwiseOp,
    FloatOp,
    InexactOp,
    RealNumberOp,
    absolute,
    align,
    build,
    cast,
    floordivide,
    meaning,
    mod,
)
from weft.ops.shape.movement import broadcast
from weft.support.backports import override

__all__ = [
    "CeilOp",
    "CopysignOp",
    "FloorOp",
    "FmodOp",
    "GcdOp",
    "IsfiniteOp",
    "IsinfOp",
    "IsnanOp",
    "LcmOp",
    "NextafterOp",
    "RoundOp",
    "RoundingOp",
    "SignbitOp",
    "TruncOp",
    "ceil",
    "copysign",
    "floor",
    "fmod",
    "gcd",
    "isclose",
    "isfinite",
    "isinf",
    "isnan",
    "lcm",
    "nan_to_num",
    "nextafter",
    "round",
    "signbit",
    "trunc",
]


class RoundingOp(RealNumberOp):
    """Ops that round to integers; the gradient is 0."""

    @override
    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[None]:
        return (None,)


class FloorOp(RoundingOp):
    """The operand rounded down."""

    reference = meaning(np.floor)


class CeilOp(RoundingOp, CompositeOp):
    """The operand rounded up."""

    reference = meaning(np.ceil)

    def decompose(self, x: TensorOp) -> TensorOp:
        """Negate the negative rounded down, which gives -0 for -0.5, as in IEEE 754."""
        return -FloorOp(-x)


class TruncOp(RoundingOp, CompositeOp):
    """The operand rounded towards 0."""

    reference = meaning(np.trunc)

    def decompose(self, x: TensorOp) -> TensorOp:
        """Round negative numbers up and others down."""
        return where(less(x, 0), CeilOp(x), FloorOp(x))


class RoundOp(RoundingOp, CompositeOp):
    """The operand rounded to the nearest integer, with ties to even."""

    reference = meaning(np.rint)

    def decompose(self, x: TensorOp) -> TensorOp:
        """Round by the fraction of the absolute value, which is exact."""
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
        """Compute mod of absolute values for floats, and correct the sign of mod for integers."""
        if dtypes.is_inexact(x.dtype):
            return CopysignOp(mod(absolute(x), absolute(y)), x)
        rest = mod(x, y)
        is_other = not_equal(rest, 0) & not_equal(less(rest, 0), less(x, 0))
        return where(is_other, rest - y, rest)

    def partials(self, delta: TensorOp, x: TensorOp, y: TensorOp) -> tuple[TensorOp, TensorOp]:
        """Multiply the adjoint by 1, and by -trunc(x / y)."""
        return delta, -(delta * TruncOp(x / y))


class IsnanOp(ComparisonOp, CompositeOp):
    """Whether the operand is NaN; a complex number is if a part is."""

    reference = meaning(np.isnan)

    def decompose(self, x: TensorOp) -> TensorOp:
        """Compare the operand with itself, from which only NaN differs."""
        return not_equal(x, x)


class IsinfOp(ComparisonOp, CompositeOp):
    """Whether the operand is infinite; a complex number is if a part is."""

    reference = meaning(np.isinf)

    def decompose(self, x: TensorOp) -> TensorOp:
        """Compare the absolute value with infinity, of both parts for complex numbers."""
        if x.dtype.kind == "c":
            return IsinfOp(real(x)) | IsinfOp(imag(x))
        return equal(absolute(x), math.inf)


class IsfiniteOp(ComparisonOp, CompositeOp):
    """Whether the operand, or both parts of a complex one, are neither infinite nor NaN."""

    reference = meaning(np.isfinite)

    def decompose(self, x: TensorOp) -> TensorOp:
        """Compare the absolute value with infinity, of both parts for complex numbers."""
        if x.dtype.kind == "c":
            return IsfiniteOp(real(x)) & IsfiniteOp(imag(x))
        return less(absolute(x), math.inf)


def _as_bits(x: TensorOp) -> TensorOp:
    return bitcast(x, f"int{x.dtype.itemsize * 8}")


class SignbitOp(FloatOp, CompositeOp):
    """Whether the sign bit is set, also of -0 and NaN."""

    reference = meaning(np.signbit)

    @override
    def result_dtype(self, operand: DType) -> DType:
        return dtypes.bool_

    def decompose(self, x: TensorOp) -> TensorOp:
        """Bitcast to a signed integer and compare with 0."""
        return less(_as_bits(x), 0)

    @override
    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[None]:
        return (None,)


class CopysignOp(FloatOp, CompositeOp):
    """The absolute value of the first operand with the sign bit of the second."""

    reference = meaning(np.copysign)

    @override
    def decompose(self, x: TensorOp, y: TensorOp) -> TensorOp:
        size = _as_bits(x)
        every = int(np.iinfo(size.dtype).max)
        return bitcast((size & every) | (_as_bits(y) & ~every), x.dtype)

    def partials(self, delta: TensorOp, x: TensorOp, y: TensorOp) -> tuple[TensorOp, None]:
        """Multiply the adjoint by 1 or -1, depending on the sign change; None for the second."""
        return where(equal(SignbitOp(x), SignbitOp(y)), delta, -delta), None


class NextafterOp(FloatOp, CompositeOp):
    """The next float after the first operand towards the second; its gradient is 1 and 0."""

    reference = meaning(np.nextafter)

    def decompose(self, x: TensorOp, y: TensorOp) -> TensorOp:
        """Increment or decrement the bits; the neighbors of 0 are the smallest floats."""
        bits = _as_bits(x)
        is_below = less(x, y)
        one = constant(1, dtype=bits.dtype)
        away = where(equal(is_below, less(0, x)), one, -one)
        smallest = CopysignOp(bitcast(one, x.dtype), y)
        moved = where(equal(x, 0), smallest, bitcast(bits + away, x.dtype))
        same = where(equal(x, y), y, x + y)
        return where(is_below | less(y, x), moved, same)

    @override
    def partials(self, delta: TensorOp, x: TensorOp, y: TensorOp) -> tuple[TensorOp, None]:
        return delta, None


def _rounded(kind: type[RoundingOp], x: TensorLike) -> TensorOp:
    (x,) = align(kind, x)
    return kind(x) if dtypes.is_inexact(x.dtype) else x


def floor(x: TensorLike) -> TensorOp:
    """Return x rounded down; integers are unchanged.

    Examples
    --------
    >>> weft.jit(weft.floor)(np.array([1.5, -1.5]))
    array([ 1., -2.])
    """
    return _rounded(FloorOp, x)


def ceil(x: TensorLike) -> TensorOp:
    """Return x rounded up; integers are unchanged.

    Examples
    --------
    >>> weft.jit(weft.ceil)(np.array([1.5, -1.5]))
    array([ 2., -1.])
    """
    return _rounded(CeilOp, x)


def trunc(x: TensorLike) -> TensorOp:
    """Return x rounded towards 0; integers are unchanged.

    Examples
    --------
    >>> weft.jit(weft.trunc)(np.array([1.5, -1.5]))
    array([ 1., -1.])
    """
    return _rounded(TruncOp, x)


def round(x: TensorLike) -> TensorOp:
    """Return x rounded to the nearest integer, with ties to even.

    Integers are unchanged; both parts of complex numbers are rounded. The gradient is 0.

    Examples
    --------
    >>> weft.jit(weft.round)(np.array([0.5, 1.5, -1.7]))
    array([ 0.,  2., -2.])
    """
    (x,) = align(ArithmeticOp, x)
    if x.dtype.kind == "c":
        return complex(RoundOp(real(x)), RoundOp(imag(x)))
    return _rounded(RoundOp, x)


def fmod(x: TensorLike, y: TensorLike) -> TensorOp:
    """Return the remainder of x / y, with the sign of x; see `mod` for the sign of y.

    Parameters
    ----------
    x, y
        The operands, broadcast against each other.

    Returns
    -------
    TensorOp
        The remainders, in the promoted dtype of the operands. An integer modulo 0 gives 0, a float
        NaN.

    Raises
    ------
    AxesError
        If the operands do not broadcast.
    DTypeError
        If the operands are complex.

    Examples
    --------
    >>> weft.jit(weft.fmod)(np.array([7, -7]), 3)
    array([ 1, -1])
    """
    return build(FmodOp, x, y)


def _asked(kind: type[ComparisonOp], x: TensorLike, otherwise: bool) -> TensorOp:
    (x,) = align(kind, x)
    return kind(x) if dtypes.is_inexact(x.dtype) else broadcast(constant(otherwise), x.axes)


def isnan(x: TensorLike) -> TensorOp:
    """Return whether x, or a part of a complex x, is NaN; False for integers.

    Examples
    --------
    >>> weft.jit(weft.isnan)(np.array([1.0, np.inf, np.nan]))
    array([False, False,  True])
    """
    return _asked(IsnanOp, x, False)


def isinf(x: TensorLike) -> TensorOp:
    """Return whether x, or a part of a complex x, is infinite; False for integers.

    Examples
    --------
    >>> weft.jit(weft.isinf)(np.array([1.0, np.inf, np.nan]))
    array([False,  True, False])
    """
    return _asked(IsinfOp, x, False)


def isfinite(x: TensorLike) -> TensorOp:
    """Return whether x, or both parts of a complex x, are finite; True for integers.

    Examples
    --------
    >>> weft.jit(weft.isfinite)(np.array([1.0, np.inf, np.nan]))
    array([ True, False, False])
    """
    return _asked(IsfiniteOp, x, True)


def signbit(x: TensorLike) -> TensorOp:
    """Return whether the sign bit of x is set, also for -0; for integers, whether x < 0.

    Examples
    --------
    >>> weft.jit(weft.signbit)(np.array([1.0, -2.0, -0.0]))
    array([False,  True,  True])
    """
    (x,) = align(RealNumberOp, x)
    return SignbitOp(x) if dtypes.is_inexact(x.dtype) else less(x, 0)


def copysign(x: TensorLike, y: TensorLike) -> TensorOp:
    """Return the absolute value of x with the sign of y, including -0; only x has a gradient.

    Parameters
    ----------
    x
        Where the absolute values come from.
    y
        Where the signs come from.

    Returns
    -------
    TensorOp
        The elements, in the promoted dtype of the operands, which are broadcast. Integers give
        float32.

    Raises
    ------
    AxesError
        If the operands do not broadcast.
    DTypeError
        If the operands are complex.

    Examples
    --------
    >>> weft.jit(weft.copysign)(np.array([1.0, -2.0]), np.array([-1.0, -0.0]))
    array([-1., -2.])
    """
    return build(CopysignOp, x, y)


def nextafter(x: TensorLike, y: TensorLike) -> TensorOp:
    """Return the next float after x towards y, or y if they are equal; only x has a gradient.

    Parameters
    ----------
    x
        Where to start.
    y
        Where to go.

    Returns
    -------
    TensorOp
        The floats, in the promoted dtype of the operands, which are broadcast. Integers give
        float32.

    Raises
    ------
    AxesError
        If the operands do not broadcast.
    DTypeError
        If the operands are complex.

    Examples
    --------
    >>> weft.jit(weft.nextafter)(np.array([1.0]), 2.0) - 1
    array([2.2204e-16])
    """
    return build(NextafterOp, x, y)


def nan_to_num(
    x: TensorLike,
    nan: TensorLike = 0.0,
    posinf: TensorLike | None = None,
    neginf: TensorLike | None = None,
) -> TensorOp:
    """Return x with NaN and infinities replaced by numbers; integers are unchanged.

    Both parts of complex numbers are replaced. Replaced elements have gradient 0.

    Parameters
    ----------
    x
        The operand.
    nan
        What replaces NaN.
    posinf, neginf
        What replaces infinity and minus infinity; by default the largest float of the dtype and its
        negative.

    Returns
    -------
    TensorOp
        A tensor like x. The replacements are broadcast to it.

    Raises
    ------
    AxesError
        If a replacement has axes that x lacks.

    Examples
    --------
    >>> weft.jit(lambda x: weft.nan_to_num(x, posinf=9))(np.array([1.0, np.nan, np.inf]))
    array([1., 0., 9.])
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
    x: TensorLike, y: TensorLike, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> TensorOp:
    """Return whether x is close to the reference y: ``|x - y| <= atol + rtol * |y|``.

    Equal infinities are close. Integers are compared as float32.

    Parameters
    ----------
    x
        The operand.
    y
        The reference, broadcast against x.
    rtol, atol
        How far x may be from y: relative to y, and absolutely.
    equal_nan
        Whether NaN is close to NaN.

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
    >>> weft.jit(weft.isclose)(np.array([1.0, 1.1]), np.array([1.0 + 1e-9, 1.0]))
    array([ True, False])
    """
    x, y = align(InexactOp, x, y)
    is_near = less_equal(absolute(x - y), absolute(y) * rtol + atol)
    result = (is_near & isfinite(y)) | equal(x, y)
    if not equal_nan:
        return result
    return result | logical_not(equal(x, x) | equal(y, y))


def _integer(dtype: DType) -> DType:
    if not dtypes.is_integer(dtype):
        raise DTypeError(f"divisors and multiples are those of integers, not of {dtype}")
    return dtype


class _IntegerOp(ElementwiseOp, CompositeOp):
    """The base of ops on integers, which have no gradient."""

    operand_dtype = staticmethod(_integer)

    @override
    def partials(self, delta: TensorOp, *args: TensorOp) -> list[None]:
        return [None] * len(args)


def _sizes(*args: TensorOp) -> list[TensorOp]:
    """Return the absolute values as unsigned integers, which have one for the least number too."""
    unsigned = np.dtype(f"uint{args[0].dtype.itemsize * 8}")
    return [cast(absolute(x), unsigned) for x in args]


class GcdOp(_IntegerOp):
    """The greatest common divisor, not negative; 0 of 0 and 0."""

    reference = meaning(np.gcd)

    def decompose(self, x: TensorOp, y: TensorOp) -> TensorOp:
        """Divide with remainder as often as any pair of a dtype needs (Euclid; G. Lamé, 1844)."""
        x, y = _sizes(x, y)
        for _ in range(_steps(x.dtype)):
            x, y = where(equal(y, 0), x, y), mod(x, y)
        return cast(x, self.dtype)


def _steps(dtype: DType) -> int:
    """Return the number of Fibonacci numbers of a dtype, the worst pairs of which are neighbors."""
    low, high, count = 1, 2, 2
    while high <= np.iinfo(dtype).max:
        low, high, count = high, low + high, count + 1
    return count


class LcmOp(_IntegerOp):
    """The least common multiple, not negative; 0 where an operand is 0."""

    reference = meaning(np.lcm)

    def decompose(self, x: TensorOp, y: TensorOp) -> TensorOp:
        """Divide by the greatest common divisor; 0 divided by 0 is 0."""
        x, y = _sizes(x, y)
        return cast(floordivide(x, GcdOp(x, y)) * y, self.dtype)


def gcd(x: TensorLike, y: TensorLike) -> TensorOp:
    """Return the greatest common divisor of integers.

    Parameters
    ----------
    x, y
        The operands, broadcast against each other.

    Returns
    -------
    TensorOp
        The divisors, not negative, in the promoted dtype of the operands; 0 of 0 and 0.

    Raises
    ------
    AxesError
        If the operands do not broadcast.
    DTypeError
        If an operand does not hold integers.

    Examples
    --------
    >>> weft.jit(weft.gcd)(np.array([12, -18, 0]), np.array([8, 27, 5]))
    array([4, 9, 5])
    """
    return build(GcdOp, x, y)


def lcm(x: TensorLike, y: TensorLike) -> TensorOp:
    """Return the least common multiple of integers.

    Parameters
    ----------
    x, y
        The operands, broadcast against each other.

    Returns
    -------
    TensorOp
        The multiples, not negative, in the promoted dtype of the operands; 0 where one is 0.

    Raises
    ------
    AxesError
        If the operands do not broadcast.
    DTypeError
        If an operand does not hold integers.

    Examples
    --------
    >>> weft.jit(weft.lcm)(np.array([4, -6, 0]), np.array([6, 15, 5]))
    array([12, 30,  0])
    """
    return build(LcmOp, x, y)
