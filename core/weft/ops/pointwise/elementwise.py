"""Elementwise ops, their broadcasting and dtype promotion.

Operands have the axes of the result, or are scalars; other broadcasting is an explicit
`BroadcastOp`. The operands of an op share a dtype, unless the class says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from weft.errors import AxesError, DTypeError, WeftError
from weft.ir import dtypes
from weft.ir.axes import Axes, broadcast_axes
from weft.ir.dtypes import Array, DType, DTypeLike
from weft.ir.lengths import Length
from weft.ir.op import explain
from weft.ir.storage import as_op, constant, not_a_tensor
from weft.ir.tensor import CompositeOp, TensorLike, TensorOp, operators
from weft.ops.shape.movement import broadcast
from weft.support.backports import override

__all__ = [
    "Absolute",
    "AbsoluteOp",
    "Add",
    "AddOp",
    "ArithmeticOp",
    "Cast",
    "CastOp",
    "Divide",
    "DivideOp",
    "ElementwiseOp",
    "FloatOp",
    "FloorDivideOp",
    "InexactOp",
    "Mod",
    "ModOp",
    "Multiply",
    "MultiplyOp",
    "Negative",
    "NegativeOp",
    "OrderedOp",
    "RealNumberOp",
    "Reciprocal",
    "ReciprocalOp",
    "Sign",
    "SignOp",
    "Square",
    "SquareOp",
    "Subtract",
    "SubtractOp",
    "abs",
    "absolute",
    "add",
    "cast",
    "divide",
    "floor_divide",
    "floordivide",
    "mod",
    "multiply",
    "negative",
    "positive",
    "reciprocal",
    "remainder",
    "sign",
    "square",
    "subtract",
]


def meaning(function: Callable[..., Any]) -> Any:
    """Return a NumPy function as the `reference` of an op."""
    return staticmethod(function)


class ElementwiseOp(TensorOp):
    """The base of all elementwise ops."""

    def infer(self) -> tuple[Axes, DType]:
        """Check that operands share a dtype, and share their axes or are scalars."""
        axes = self._common_axes()
        first = self.args[0].dtype
        for arg in self.args[1:]:
            if arg.dtype != first:
                raise DTypeError(f"operands have different dtypes, {first} and {arg.dtype}")
        return axes, self.result_dtype(first)

    def _common_axes(self) -> Axes:
        axes: Axes = self.args[0].axes
        for arg in self.args[1:]:
            if arg.axes is not axes and arg.axes:
                if axes and arg.axes != axes:
                    raise AxesError(f"operands have different axes, {axes} and {arg.axes}")
                axes = arg.axes
        return axes

    @property
    @override
    def flops(self) -> int:
        size: int = self.axes.size
        return size

    @override
    def may_overwrite(self, index: int) -> bool:
        return True

    def result_dtype(self, operand: DType) -> DType:
        """Return the dtype of the result for the operands' dtype."""
        return operand

    @staticmethod
    def operand_dtype(dtype: DType) -> DType:
        """Return the dtype of operands for a promoted dtype."""
        return dtype

    def partials(self, delta: TensorOp, *args: Any) -> Iterable[Any]:
        """Return the adjoint of each operand, before the sum over axes for scalars."""
        raise NotImplementedError

    def generate_adjoints(self, delta: TensorOp, *args: TensorOp) -> list[TensorOp | None]:
        """Return the partials, summed over all axes for scalar operands."""
        return [
            part
            if part is None or part.axes == arg.axes
            else operators["sum_over"](part, tuple(range(part.rank)))
            if not arg.axes
            else broadcast(part, arg.axes)
            for part, arg in zip(self.partials(delta, *args), args, strict=True)
        ]


def _number(dtype: DType) -> DType:
    return dtypes.int32 if dtypes.is_bool(dtype) else dtype


def _ordered(dtype: DType) -> DType:
    if dtype.kind == "c":
        raise DTypeError(
            f"{dtype} numbers have no order, so they cannot be compared or rounded: take real(), "
            "imag() or absolute()"
        )
    return dtype


def _real(dtype: DType) -> DType:
    return _number(_ordered(dtype))


def _inexact(dtype: DType) -> DType:
    return dtype if dtypes.is_inexact(dtype) else dtypes.DEFAULT


class ArithmeticOp(ElementwiseOp):
    """Ops on numbers; bool counts as int32."""

    operand_dtype = staticmethod(_number)


def _float(dtype: DType) -> DType:
    if dtype.kind == "c":
        raise DTypeError(
            f"complex numbers ({dtype}) are not supported: take real(), imag() or absolute()"
        )
    return _inexact(dtype)


def real_dtype(dtype: DType) -> DType:
    """Return the dtype of the parts of complex numbers; real dtypes are unchanged."""
    return np.dtype(f"float{dtype.itemsize * 4}") if dtype.kind == "c" else dtype


class OrderedOp(ElementwiseOp):
    """Ops that need an order; complex numbers are refused."""

    operand_dtype = staticmethod(_ordered)


class RealNumberOp(ElementwiseOp):
    """Ops on real numbers; bool counts as int32, complex numbers are refused."""

    operand_dtype = staticmethod(_real)


class InexactOp(ElementwiseOp):
    """Ops on floats and complex numbers; integers and bool count as float32."""

    operand_dtype = staticmethod(_inexact)


class FloatOp(ElementwiseOp):
    """Ops on real floats; integers and bool count as float32, complex numbers are refused."""

    operand_dtype = staticmethod(_float)


class NegativeOp(ArithmeticOp, CompositeOp):
    """The negative; unsigned integers wrap around."""

    reference = meaning(np.negative)

    def decompose(self, x: TensorOp) -> TensorOp:
        """Return 0 - x for integers, and -1 times x for floats, so that 0 gives -0."""
        return x * -1 if dtypes.is_inexact(x.dtype) else subtract(0, x)

    @override
    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        return (-delta,)


class AbsoluteOp(ArithmeticOp):
    """The absolute value, which is real for complex numbers; its gradient at 0 is 0."""

    reference = meaning(np.absolute)

    @override
    def result_dtype(self, operand: DType) -> DType:
        return real_dtype(operand)

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Multiply by the sign, for complex numbers by its conjugate."""
        return (delta * (operators["conj"](sign(x)) if x.dtype.kind == "c" else sign(x)),)


class SignOp(ArithmeticOp, CompositeOp):
    """The sign: -1, 0 or 1, and NaN for NaN; x / abs(x) for complex numbers.

    The gradient is 0 for real numbers and for complex 0.
    """

    reference = meaning(np.sign)

    def decompose(self, x: TensorOp) -> TensorOp:
        """Compare with 0; NaN fails both comparisons and is kept."""
        if x.dtype.kind == "c":
            # Dividing 0 by 1 keeps the gradient from being NaN.
            is_zero = operators["equal"](x, 0)
            direction = x / absolute(operators["where"](is_zero, 1, x))
            return operators["where"](is_zero, 0, direction)
        choose, one = operators["where"], constant(1, dtype=x.dtype)
        below = choose(operators["less"](x, 0), -one, x)
        return choose(operators["less"](0, x), one, below)

    def partials(self, delta: TensorOp, x: TensorOp) -> Iterable[Any]:
        """Return None for real numbers; for complex ones differentiate the quotient."""
        if x.dtype.kind == "c":
            return CompositeOp.generate_adjoints(self, delta, x)
        return (None,)


class SquareOp(ArithmeticOp, CompositeOp):
    """The square."""

    reference = meaning(np.square)

    @override
    def decompose(self, x: TensorOp) -> TensorOp:
        return x * x

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Multiply the adjoint by 2 x."""
        return (delta * (x * 2),)


class ReciprocalOp(InexactOp, CompositeOp):
    """The reciprocal 1 / x; infinite at 0."""

    @override
    def decompose(self, x: TensorOp) -> TensorOp:
        return divide(1, x)

    @override
    def reference(self, x: Array) -> Any:
        return np.divide(np.ones((), np.asarray(x).dtype), x)

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Multiply the adjoint by -1 / x²."""
        return (-(delta * self * self),)


class CastOp(ElementwiseOp):
    """The elements converted to another dtype: floats are truncated towards zero to integers.

    To a float they are rounded once, to nearest with ties to even, from whatever dtype.
    A float outside the range of an integer dtype, or NaN, gives an unspecified integer.

    Attributes
    ----------
    target_dtype
        The dtype of the result.
    """

    target_dtype: DType

    def result_dtype(self, operand: DType) -> DType:
        """Return the declared dtype; raises DTypeError for casts from complex to real."""
        if operand.kind == "c" and self.target_dtype.kind != "c":
            raise DTypeError(f"{operand} numbers do not fit {self.target_dtype}")
        return self.target_dtype

    def reference(self, x: Array) -> Any:
        """Convert the array, with a single rounding."""
        return dtypes.converted(np.asarray(x), self.target_dtype)

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp | None]:
        """Cast the adjoint back: None for integers, its real part for real operands."""
        if not dtypes.is_inexact(x.dtype):
            return (None,)
        is_widened = delta.dtype.kind == "c" and x.dtype.kind != "c"
        return (cast(operators["real"](delta) if is_widened else delta, x.dtype),)


class AddOp(ArithmeticOp):
    """The sum of two tensors."""

    reference = meaning(np.add)

    @override
    def partials(self, delta: TensorOp, x: TensorOp, y: TensorOp) -> tuple[TensorOp, TensorOp]:
        return delta, delta


class SubtractOp(ArithmeticOp):
    """The difference of two tensors."""

    reference = meaning(np.subtract)

    @override
    def partials(self, delta: TensorOp, x: TensorOp, y: TensorOp) -> tuple[TensorOp, TensorOp]:
        return delta, -delta


class MultiplyOp(ArithmeticOp):
    """The elementwise product of two tensors."""

    reference = meaning(np.multiply)

    @override
    def partials(self, delta: TensorOp, x: TensorOp, y: TensorOp) -> tuple[TensorOp, TensorOp]:
        return delta * y, delta * x


class DivideOp(InexactOp):
    """The quotient; division by 0 gives an infinity, or NaN for 0 / 0."""

    reference = meaning(np.divide)

    def partials(self, delta: TensorOp, x: TensorOp, y: TensorOp) -> tuple[TensorOp, TensorOp]:
        """Multiply the adjoint by 1 / y, and by -x / y²."""
        share = delta / y
        return share, -(share * self)


class FloorDivideOp(RealNumberOp):
    """The quotient rounded down; an integer divided by 0 gives 0. The gradient is 0."""

    reference = meaning(np.floor_divide)

    @override
    def partials(self, delta: TensorOp, x: TensorOp, y: TensorOp) -> tuple[None, None]:
        return None, None


class ModOp(RealNumberOp):
    """The remainder with the divisor's sign; an integer modulo 0 gives 0."""

    reference = meaning(np.mod)

    def partials(self, delta: TensorOp, x: TensorOp, y: TensorOp) -> tuple[TensorOp, TensorOp]:
        """Multiply the adjoint by 1, and by -floor(x / y)."""
        return delta, -(delta * floordivide(x, y))


Add, Subtract, Multiply, Divide, Negative = AddOp, SubtractOp, MultiplyOp, DivideOp, NegativeOp
Absolute, Sign, Square, Reciprocal = AbsoluteOp, SignOp, SquareOp, ReciprocalOp
Cast, Mod = CastOp, ModOp


def cast(x: TensorLike, dtype: DTypeLike) -> TensorOp:
    """Return x converted to another dtype.

    Parameters
    ----------
    x
        The operand.
    dtype
        The dtype of the result.

    Returns
    -------
    TensorOp
        The elements in this dtype: x itself if it has it. Floats are cut to integers towards 0.

    Raises
    ------
    DTypeError
        If complex numbers are cast to real ones.

    Examples
    --------
    >>> weft.jit(lambda x: weft.cast(x, "int32"))(np.array([1.5, -1.5]))
    array([ 1, -1], dtype=int32)
    """
    x, target = as_op(x), dtypes.as_dtype(dtype)
    return x if x.dtype == target else CastOp(x, target_dtype=target)


def _with_dtype(x: TensorOp, dtype: DType) -> TensorOp:
    if x.dtype is dtype or x.dtype == dtype:
        return x
    if x.is_constant and x.is_scalar and dtypes.promote(x.dtype, dtype) == dtype:
        return constant(x.const, dtype=dtype)
    return CastOp(x, target_dtype=dtype)


def align(kind: type[ElementwiseOp], *operands: Any) -> tuple[TensorOp, ...]:
    """Return operands broadcast and promoted to common axes and dtype; scalars stay scalars.

    Raises AxesError or DTypeError, with every operand and its line in the message.
    """
    first, last = operands[0], operands[-1]
    try:
        if (
            isinstance(first, TensorOp)
            and isinstance(last, TensorOp)
            and first.dtype is last.dtype
            and (first.axes is last.axes or not last.axes)
            and len(operands) <= 2
            and kind.operand_dtype(first.dtype) is first.dtype
        ):
            return operands
        dtype = kind.operand_dtype(common_dtype(operands))
        ops = [_with_dtype(as_op(x, _weak(x, dtype)), dtype) for x in operands]
        axes = ops[0].axes
        for x in ops[1:]:
            axes = broadcast_axes(axes, x.axes)
    except WeftError as error:
        known = [x for x in operands if isinstance(x, TensorOp)]
        raise type(error)(explain(kind.__name__, error.problem, known)) from None
    return tuple(x if not x.axes else broadcast(x, axes) for x in ops)


def _weak(value: object, dtype: DType) -> DType | None:
    return dtype if isinstance(value, bool | int | float | complex | Length) else None


def common_dtype(operands: Iterable[Any]) -> DType:
    """Return the promoted dtype of operands; Python numbers and lengths are weakly typed."""
    strong: DType | None = None
    weak = []
    for x in operands:
        if isinstance(x, bool | int | float | complex) and not isinstance(x, np.generic):
            weak.append(x)
            continue
        if isinstance(x, Length):
            weak.append(1)
            continue
        dtype = as_op(x).dtype
        strong = dtype if strong is None else dtypes.promote(strong, dtype)
    if strong is None:
        if all(isinstance(x, bool) for x in weak):
            raise not_a_tensor(weak[0])
        strong = dtypes.DEFAULT
    for value in weak:
        strong = dtypes.promote(strong, dtypes.weak_dtype(value, strong))
    return strong


def build(kind: type[ElementwiseOp], *operands: Any, **fields: Any) -> TensorOp:
    """Return an elementwise op on aligned operands, with the values of its fields."""
    return kind(*align(kind, *operands), **fields)


def negative(x: TensorLike) -> TensorOp:
    """Return -x.

    Examples
    --------
    >>> weft.jit(weft.negative)(np.array([1.0, -2.0]))
    array([-1.,  2.])
    """
    return build(NegativeOp, x)


def positive(x: TensorLike) -> TensorOp:
    """Return x unchanged, bool as int32.

    Examples
    --------
    >>> weft.jit(weft.positive)(np.array([1.0, -2.0]))
    array([ 1., -2.])
    """
    return align(ArithmeticOp, x)[0]


def absolute(x: TensorLike) -> TensorOp:
    """Return the absolute value of x, which is real for complex numbers.

    Examples
    --------
    >>> weft.jit(weft.absolute)(np.array([-1.5, 2.0]))
    array([1.5, 2. ])
    >>> weft.jit(weft.absolute)(np.array([3 + 4j]))
    array([5.])
    """
    return build(AbsoluteOp, x)


def sign(x: TensorLike) -> TensorOp:
    """Return the sign of x: -1, 0 or 1.

    Examples
    --------
    >>> weft.jit(weft.sign)(np.array([-2.0, 0.0, 0.5]))
    array([-1.,  0.,  1.])
    """
    return build(SignOp, x)


def square(x: TensorLike) -> TensorOp:
    """Return x².

    Examples
    --------
    >>> weft.jit(weft.square)(np.array([1.0, -3.0]))
    array([1., 9.])
    """
    return build(SquareOp, x)


def reciprocal(x: TensorLike) -> TensorOp:
    """Return 1 / x.

    Examples
    --------
    >>> weft.jit(weft.reciprocal)(np.array([2.0, -4.0]))
    array([ 0.5 , -0.25])
    """
    return build(ReciprocalOp, x)


def add(x: TensorLike, y: TensorLike) -> TensorOp:
    """Return x + y.

    Parameters
    ----------
    x, y
        The operands, broadcast against each other.

    Returns
    -------
    TensorOp
        The sums, in the promoted dtype of the operands.

    Raises
    ------
    AxesError
        If the operands do not broadcast.

    Examples
    --------
    >>> weft.jit(weft.add)(np.array([[1.0], [2.0]]), np.array([10.0, 20.0]))
    array([[11., 21.],
           [12., 22.]])
    """
    return build(AddOp, x, y)


def subtract(x: TensorLike, y: TensorLike) -> TensorOp:
    """Return x - y.

    Parameters
    ----------
    x, y
        The operands, broadcast against each other.

    Returns
    -------
    TensorOp
        The differences, in the promoted dtype of the operands.

    Raises
    ------
    AxesError
        If the operands do not broadcast.

    Examples
    --------
    >>> weft.jit(weft.subtract)(np.array([5.0, 7.0]), 2.0)
    array([3., 5.])
    """
    return build(SubtractOp, x, y)


def multiply(x: TensorLike, y: TensorLike) -> TensorOp:
    """Return x * y.

    Parameters
    ----------
    x, y
        The operands, broadcast against each other.

    Returns
    -------
    TensorOp
        The products, in the promoted dtype of the operands.

    Raises
    ------
    AxesError
        If the operands do not broadcast.

    Examples
    --------
    >>> weft.jit(weft.multiply)(np.array([[1.0], [2.0]]), np.array([10.0, 20.0]))
    array([[10., 20.],
           [20., 40.]])
    """
    return build(MultiplyOp, x, y)


def divide(x: TensorLike, y: TensorLike) -> TensorOp:
    """Return x / y.

    Parameters
    ----------
    x, y
        The operands, broadcast against each other.

    Returns
    -------
    TensorOp
        The quotients, in the promoted dtype of the operands. Integers give float32.

    Raises
    ------
    AxesError
        If the operands do not broadcast.

    Examples
    --------
    >>> weft.jit(weft.divide)(np.array([1.0, 3.0]), 2.0)
    array([0.5, 1.5])
    """
    return build(DivideOp, x, y)


def floordivide(x: TensorLike, y: TensorLike) -> TensorOp:
    """Return x / y rounded down.

    Parameters
    ----------
    x, y
        The operands, broadcast against each other.

    Returns
    -------
    TensorOp
        The quotients, in the promoted dtype of the operands. An integer divided by 0 gives 0.

    Raises
    ------
    AxesError
        If the operands do not broadcast.
    DTypeError
        If the operands are complex.

    Examples
    --------
    >>> weft.jit(weft.floordivide)(np.array([7, -7]), 2)
    array([ 3, -4])
    """
    return build(FloorDivideOp, x, y)


def mod(x: TensorLike, y: TensorLike) -> TensorOp:
    """Return the remainder of x / y, with the sign of y.

    Parameters
    ----------
    x, y
        The operands, broadcast against each other.

    Returns
    -------
    TensorOp
        The remainders, in the promoted dtype of the operands. An integer modulo 0 gives 0.

    Raises
    ------
    AxesError
        If the operands do not broadcast.
    DTypeError
        If the operands are complex.

    Examples
    --------
    >>> weft.jit(weft.mod)(np.array([7, -7]), 3)
    array([1, 2])
    """
    return build(ModOp, x, y)


abs, remainder, floor_divide = absolute, mod, floordivide

_functions: tuple[Callable[..., TensorOp], ...] = (
    negative, absolute, add, subtract, multiply, divide, floordivide, mod, cast
)  # fmt: skip
operators.update({function.__name__: function for function in _functions})
