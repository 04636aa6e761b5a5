"""Expressions: what an elementwise op is in C, for numbers and for vectors of lanes alike.

An expression is a template of the operands, or a function of the op, the form of the values and the
operands' text. Operands are names of variables, so they may be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.ir import dtypes
from weft.ir.op import Op
from weft.ops import activation, bits, comparison, elementwise, math, rounding, trigonometry
from weft_c.source.values import VECTORS, Form

Expression = Callable[[Any, Form, Sequence[str]], str]

TEMPLATES: dict[type[Op], str] = {
    comparison.EqualOp: "({0} == {1})",
    comparison.NotEqualOp: "({0} != {1})",
    comparison.WhereOp: "({0} ? {1} : {2})",
    comparison.LogicalNotOp: "(!{0})",
    math.SqrtOp: "sqrt({0})",
    math.ExpOp: "exp({0})",
    math.LogOp: "log({0})",
    math.SinOp: "sin({0})",
    math.CosOp: "cos({0})",
    math.AtanOp: "atan({0})",
    math.CbrtOp: "cbrt({0})",
    math.Exp2Op: "exp2({0})",
    math.Expm1Op: "expm1({0})",
    math.Log1pOp: "log1p({0})",
    math.Log2Op: "log2({0})",
    math.Log10Op: "log10({0})",
    math.HypotOp: "hypot({0}, {1})",
    rounding.FloorOp: "floor({0})",
    rounding.CeilOp: "ceil({0})",
    rounding.TruncOp: "trunc({0})",
    rounding.RoundOp: "rint({0})",
    rounding.CopysignOp: "copysign({0}, {1})",
    trigonometry.TanOp: "tan({0})",
    trigonometry.AsinOp: "asin({0})",
    trigonometry.AcosOp: "acos({0})",
    trigonometry.SinhOp: "sinh({0})",
    trigonometry.CoshOp: "cosh({0})",
    trigonometry.AsinhOp: "asinh({0})",
    trigonometry.AcoshOp: "acosh({0})",
    trigonometry.AtanhOp: "atanh({0})",
    trigonometry.Atan2Op: "atan2({0}, {1})",
}
"""Ops whose text does not depend on dtypes, but that results of 16 bits are rounded."""

ROUNDING_IS_EXACT = (comparison.WhereOp, comparison.MaximumOp, comparison.MinimumOp)
"""Ops whose results are operands, which have been rounded."""

_functions: dict[type[Op], Expression] = {}


def _writes(*kinds: type[Op]) -> Callable[[Expression], Expression]:
    def mark(function: Expression) -> Expression:
        for kind in kinds:
            _functions[kind] = function
        return function

    return mark


def has_expression(op: Op) -> bool:
    """Whether an op has an expression, of real numbers."""
    return (type(op) in TEMPLATES or type(op) in _functions) and not any(
        value.dtype.kind == "c" for value in (op, *op.args)
    )


def has_vectors(op: Op) -> bool:
    """Whether an op can be computed in vectors of lanes."""
    names = {value.dtype.name for value in (op, *op.args)}
    if not names <= VECTORS:
        return False
    is_power = isinstance(op, math.PowerOp)
    return not isinstance(op, ONE_AT_A_TIME) and not (is_power and names != {"float32"})


def expression(op: Op, form: Form, args: Sequence[str]) -> str:
    """Return the text of an op's result."""
    template = TEMPLATES.get(type(op))
    if template is None:
        return _functions[type(op)](op, form, args)
    if isinstance(op, rounding.RoundingOp) and not dtypes.is_float(op.dtype):
        return args[0]
    found = template.format(*args)
    is_exact = isinstance(op, ROUNDING_IS_EXACT) or dtypes.is_bool(op.dtype)
    return found if is_exact else form.rounded(op.dtype, found)


ONE_AT_A_TIME = (elementwise.FloorDivideOp, elementwise.ModOp, bits.ShiftOp)
"""Ops that are functions of numbers."""

_ARITHMETIC: dict[type[Op], str] = {
    elementwise.AddOp: "+",
    elementwise.SubtractOp: "-",
    elementwise.MultiplyOp: "*",
}


@_writes(*_ARITHMETIC)
def _arithmetic(op: Op, form: Form, args: Sequence[str]) -> str:
    """Compute in unsigned integers, which wrap around."""
    sign = _ARITHMETIC[type(op)]
    if not dtypes.is_integer(op.dtype):
        return form.rounded(op.dtype, f"({args[0]} {sign} {args[1]})")
    x, y = (form.unsigned(op.dtype, arg) for arg in args)
    return form.signed(op.dtype, f"({x} {sign} {y})")


@_writes(elementwise.DivideOp)
def _divide(op: Op, form: Form, args: Sequence[str]) -> str:
    return form.rounded(op.dtype, f"({args[0]} / {args[1]})")


@_writes(elementwise.NegativeOp)
def _negative(op: Op, form: Form, args: Sequence[str]) -> str:
    if not dtypes.is_integer(op.dtype):
        return f"(-{args[0]})"
    return form.signed(op.dtype, f"(0 - {form.unsigned(op.dtype, args[0])})")


@_writes(elementwise.AbsoluteOp)
def _absolute(op: Op, form: Form, args: Sequence[str]) -> str:
    if op.dtype.kind == "u":
        return args[0]
    if dtypes.is_float(op.dtype):
        return f"fabs({args[0]})"
    negated = _negative(op, form, args)
    return f"({args[0]} < 0 ? {negated} : {args[0]})"


@_writes(elementwise.SquareOp)
def _square(op: Op, form: Form, args: Sequence[str]) -> str:
    if not dtypes.is_integer(op.dtype):
        return form.rounded(op.dtype, f"({args[0]} * {args[0]})")
    x = form.unsigned(op.dtype, args[0])
    return form.signed(op.dtype, f"({x} * {x})")


@_writes(elementwise.ReciprocalOp)
def _reciprocal(op: Op, form: Form, args: Sequence[str]) -> str:
    return form.rounded(op.dtype, f"({form.constant(1, op.dtype)} / {args[0]})")


@_writes(math.RsqrtOp)
def _rsqrt(op: Op, form: Form, args: Sequence[str]) -> str:
    return form.rounded(op.dtype, f"({form.constant(1, op.dtype)} / sqrt({args[0]}))")


@_writes(math.TanhOp)
def _tanh(op: Op, form: Form, args: Sequence[str]) -> str:
    return _called("weft_tanh", op, form, args)


@_writes(elementwise.FloorDivideOp)
def _floor_divide(op: Op, form: Form, args: Sequence[str]) -> str:
    return _called("weft_floordiv", op, form, args)


@_writes(elementwise.ModOp)
def _mod(op: Op, form: Form, args: Sequence[str]) -> str:
    return _called("weft_mod", op, form, args)


@_writes(math.PowerOp)
def _power(op: Op, form: Form, args: Sequence[str]) -> str:
    if dtypes.is_integer(op.dtype):
        return _called("weft_power", op, form, args)
    exponent = op.args[1]
    known = exponent.const if exponent.is_constant and not exponent.axes else None
    if known is not None and known == 2:
        return form.rounded(op.dtype, f"({args[0]} * {args[0]})")
    return form.rounded(op.dtype, f"pow({args[0]}, {args[1]})")


@_writes(bits.ShiftLeftOp)
def _left(op: Op, form: Form, args: Sequence[str]) -> str:
    return _called("weft_left", op, form, args)


@_writes(bits.ShiftRightOp)
def _right(op: Op, form: Form, args: Sequence[str]) -> str:
    return _called("weft_right", op, form, args)


def _called(name: str, op: Op, form: Form, args: Sequence[str]) -> str:
    return form.rounded(op.dtype, form.code.call(f"{name}_{form.type(op.dtype)}", *args))


_BITWISE: dict[type[Op], str] = {
    bits.BitwiseAndOp: "&",
    bits.BitwiseOrOp: "|",
    bits.BitwiseXorOp: "^",
}


@_writes(*_BITWISE)
def _bitwise(op: Op, form: Form, args: Sequence[str]) -> str:
    return form.rounded(op.dtype, f"({args[0]} {_BITWISE[type(op)]} {args[1]})")


@_writes(bits.BitwiseNotOp)
def _bitwise_not(op: Op, form: Form, args: Sequence[str]) -> str:
    sign = "!" if dtypes.is_bool(op.dtype) else "~"
    return form.rounded(op.dtype, f"({sign}{args[0]})")


_ORDER: dict[type[Op], str] = {
    comparison.LessOp: "<",
    comparison.LessEqualOp: "<=",
    comparison.GreaterOp: ">",
    comparison.GreaterEqualOp: ">=",
}


@_writes(*_ORDER)
def _order(op: Op, form: Form, args: Sequence[str]) -> str:
    """Compare, true lanes of vectors, which are -1, in reverse."""
    x, y = args
    if form.is_vector and dtypes.is_bool(op.args[0].dtype):
        x, y = y, x
    return f"({x} {_ORDER[type(op)]} {y})"


_EXTREMA: dict[type[Op], str] = {comparison.MaximumOp: ">", comparison.MinimumOp: "<"}


@_writes(*_EXTREMA)
def _extremum(op: Op, form: Form, args: Sequence[str]) -> str:
    return extremum(op.dtype, _EXTREMA[type(op)], *args)


def extremum(dtype: dtypes.DType, sign: str, x: str, y: str) -> str:
    """Return the greater or lesser of two values; NaN if either is."""
    if dtypes.is_bool(dtype):
        return f"({x} {'|' if sign == '>' else '&'} {y})"
    if dtypes.is_float(dtype):
        return f"((({x} {sign} {y}) | ({x} != {x})) ? {x} : {y})"
    return f"({x} {sign} {y} ? {x} : {y})"


@_writes(activation.ReluOp)
def _relu(op: Op, form: Form, args: Sequence[str]) -> str:
    """Keep NaN, which is not below 0."""
    zero = form.constant(0, op.dtype)
    return f"({args[0]} < {zero} ? {zero} : {args[0]})"


@_writes(elementwise.SignOp)
def _sign(op: Op, form: Form, args: Sequence[str]) -> str:
    """Keep NaN and zeros, which are neither above nor below 0."""
    (x,) = args
    zero, one = (form.constant(value, op.dtype) for value in (0, 1))
    below = f"({x} < {zero} ? -{one} : {x})" if op.dtype.kind != "u" else x
    return f"({x} > {zero} ? {one} : {below})"


@_writes(rounding.IsnanOp)
def _isnan(op: Op, form: Form, args: Sequence[str]) -> str:
    return f"({args[0]} != {args[0]})"


@_writes(elementwise.CastOp)
def _cast(op: Op, form: Form, args: Sequence[str]) -> str:
    return form.converted(op.args[0].dtype, op.dtype, args[0])


KINDS: tuple[type[Op], ...] = (*TEMPLATES, *_functions)
"""The ops that have an expression."""
