"""C expressions of elementwise ops, for scalars and vectors.

An expression is a format string of the operands, or a function of the op, the emitter and the
operands. Operands are names of variables, so an expression may repeat them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.ir import dtypes
from weft.ir.op import Op
from weft.nn import activation
from weft.ops.pointwise import bits, comparison, elementwise, math, rounding, trigonometry
from weft_c.source.values import NARROW_DTYPES, VECTOR_DTYPES, ValueEmitter

Expression = Callable[[Any, ValueEmitter, Sequence[str]], str]

TEMPLATES: dict[type[Op], str] = {
    comparison.EqualOp: "({0} == {1})",
    comparison.NotEqualOp: "({0} != {1})",
    comparison.LogicalNotOp: "({0} == 0)",
    math.SqrtOp: "sqrt({0})",
    math.ExpOp: "GUARDED({0} == {0}, exp({0}), {0})",
    math.LogOp: "log({0})",
    math.AtanOp: "atan({0})",
    math.CbrtOp: "cbrt({0})",
    math.Exp2Op: "GUARDED({0} == {0}, exp2({0}), {0})",
    math.Expm1Op: "GUARDED({0} == {0}, expm1({0}), {0})",
    math.Log1pOp: "log1p({0})",
    math.Log2Op: "log2({0})",
    math.Log10Op: "log10({0})",
    math.HypotOp: "hypot({0}, {1})",
    rounding.FloorOp: "GUARDED({0} == {0}, floor({0}), {0})",
    rounding.CeilOp: "GUARDED({0} == {0}, ceil({0}), {0})",
    rounding.TruncOp: "GUARDED({0} == {0}, trunc({0}), {0})",
    rounding.CopysignOp: "copysign({0}, {1})",
    trigonometry.AsinOp: "asin({0})",
    trigonometry.AcosOp: "acos({0})",
    trigonometry.SinhOp: "GUARDED({0} == {0}, sinh({0}), {0})",
    trigonometry.CoshOp: "cosh({0})",
    trigonometry.AsinhOp: "asinh({0})",
    trigonometry.AcoshOp: "acosh({0})",
    trigonometry.AtanhOp: "atanh({0})",
    trigonometry.Atan2Op: "atan2({0}, {1})",
}
"""Format strings of ops whose text does not depend on dtypes, but for the rounding to 16 bits."""

_functions: dict[type[Op], Expression] = {}


def _expression_for(*kinds: type[Op]) -> Callable[[Expression], Expression]:
    def mark(function: Expression) -> Expression:
        for kind in kinds:
            _functions[kind] = function
        return function

    return mark


def has_expression(op: Op) -> bool:
    """Whether an op has an expression; complex ops have none."""
    return (type(op) in TEMPLATES or type(op) in _functions) and not any(
        value.dtype.kind == "c" for value in (op, *op.args)
    )


def has_vectors(op: Op) -> bool:
    """Whether the expression of an op takes vectors."""
    names = {value.dtype.name for value in (op, *op.args)}
    if not names <= VECTOR_DTYPES | NARROW_DTYPES:
        return False
    if names & NARROW_DTYPES and not isinstance(op, WITHIN_RANGE):
        return False
    if isinstance(op, math.PowerOp):
        return names == {"float32"}
    if isinstance(op, elementwise.CastOp) and op.dtype == dtypes.uint32:
        return not dtypes.is_float(op.args[0].dtype)
    return not isinstance(op, SCALAR_ONLY)


def expression(op: Op, emitter: ValueEmitter, args: Sequence[str]) -> str:
    """Return the expression of an op's result."""
    if isinstance(op, rounding.RoundingOp) and not dtypes.is_float(op.dtype):
        return args[0]
    template = TEMPLATES.get(type(op))
    if template is None:
        return _functions[type(op)](op, emitter, args)
    text = template.format(*args)
    return text if dtypes.is_bool(op.dtype) else emitter.rounded(op.dtype, text)


SCALAR_ONLY = (elementwise.FloorDivideOp, elementwise.ModOp, bits.ShiftOp)
"""Ops whose helpers take scalars only."""

WITHIN_RANGE = (
    activation.ReluOp, comparison.EqualOp, comparison.GreaterEqualOp, comparison.GreaterOp,
    comparison.LessEqualOp, comparison.LessOp, comparison.MaximumOp, comparison.MinimumOp,
    comparison.NotEqualOp, comparison.WhereOp, elementwise.CastOp,
)  # fmt: skip
"""Ops of integers of 8 bits that have vectors: no result is out of the range of its dtype."""

_ARITHMETIC: dict[type[Op], str] = {
    elementwise.AddOp: "+",
    elementwise.SubtractOp: "-",
    elementwise.MultiplyOp: "*",
}


@_expression_for(*_ARITHMETIC)
def _arithmetic(op: Op, emitter: ValueEmitter, args: Sequence[str]) -> str:
    """Use unsigned integers, whose overflow wraps around."""
    sign = _ARITHMETIC[type(op)]
    if not dtypes.is_integer(op.dtype):
        return emitter.rounded(op.dtype, f"({args[0]} {sign} {args[1]})")
    x, y = (emitter.unsigned(op.dtype, arg) for arg in args)
    return emitter.signed(op.dtype, f"({x} {sign} {y})")


@_expression_for(elementwise.DivideOp)
def _divide(op: Op, emitter: ValueEmitter, args: Sequence[str]) -> str:
    return emitter.rounded(op.dtype, f"({args[0]} / {args[1]})")


@_expression_for(elementwise.NegativeOp)
def _negative(op: Op, emitter: ValueEmitter, args: Sequence[str]) -> str:
    if not dtypes.is_integer(op.dtype):
        return f"(-{args[0]})"
    if op.dtype.itemsize == 4 and not emitter.is_vector:
        return emitter.code.call(f"weft_negated_{emitter.type(op.dtype)}", *args)
    return _difference_from_0(op.dtype, emitter, args[0])


def _difference_from_0(dtype: dtypes.DType, emitter: ValueEmitter, x: str) -> str:
    return emitter.signed(dtype, f"(0 - {emitter.unsigned(dtype, x)})")


@_expression_for(elementwise.AbsoluteOp)
def _absolute(op: Op, emitter: ValueEmitter, args: Sequence[str]) -> str:
    if op.dtype.kind == "u":
        return args[0]
    if dtypes.is_float(op.dtype):
        return f"fabs({args[0]})"
    negated = _difference_from_0(op.dtype, emitter, args[0])
    return emitter.select(f"({args[0]} < 0)", negated, args[0])


@_expression_for(elementwise.SquareOp)
def _square(op: Op, emitter: ValueEmitter, args: Sequence[str]) -> str:
    if not dtypes.is_integer(op.dtype):
        return emitter.rounded(op.dtype, f"({args[0]} * {args[0]})")
    x = emitter.unsigned(op.dtype, args[0])
    return emitter.signed(op.dtype, f"({x} * {x})")


@_expression_for(elementwise.ReciprocalOp)
def _reciprocal(op: Op, emitter: ValueEmitter, args: Sequence[str]) -> str:
    return emitter.rounded(op.dtype, f"({emitter.constant(1, op.dtype)} / {args[0]})")


@_expression_for(math.RsqrtOp)
def _rsqrt(op: Op, emitter: ValueEmitter, args: Sequence[str]) -> str:
    return emitter.rounded(op.dtype, f"({emitter.constant(1, op.dtype)} / sqrt({args[0]}))")


@_expression_for(rounding.RoundOp)
def _round(op: Op, emitter: ValueEmitter, args: Sequence[str]) -> str:
    """Round; a float without a fraction is its own result."""
    limit = emitter.constant(2.0**52 if op.dtype.itemsize == 8 else 2.0**23, op.dtype)
    text = f"GUARDED(fabs({args[0]}) < {limit}, rint({args[0]}), {args[0]})"
    return emitter.rounded(op.dtype, text)


@_expression_for(math.SinOp, trigonometry.TanOp)
def _sine_or_tangent(op: Op, emitter: ValueEmitter, args: Sequence[str]) -> str:
    """Return tiny operands themselves; PoCL 3.1 computes 0.0078 of subnormals in vectors of 16."""
    name = "sin" if isinstance(op, math.SinOp) else "tan"
    tiny = emitter.constant(2.0**-100, op.dtype)
    text = f"GUARDED(fabs({args[0]}) >= {tiny}, {name}({args[0]}), {args[0]})"
    return emitter.rounded(op.dtype, text)


@_expression_for(math.CosOp)
def _cosine(op: Op, emitter: ValueEmitter, args: Sequence[str]) -> str:
    """Return 1 for tiny operands, for the reason above, and NaN for NaN."""
    tiny, one = (emitter.constant(number, op.dtype) for number in (2.0**-100, 1))
    text = f"GUARDED(fabs({args[0]}) >= {tiny}, cos({args[0]}), {one} + {args[0]})"
    return emitter.rounded(op.dtype, text)


@_expression_for(math.TanhOp)
def _tanh(op: Op, emitter: ValueEmitter, args: Sequence[str]) -> str:
    return _call_helper("weft_tanh", op, emitter, args)


@_expression_for(elementwise.FloorDivideOp)
def _floor_divide(op: Op, emitter: ValueEmitter, args: Sequence[str]) -> str:
    return _call_helper("weft_floordiv", op, emitter, args)


@_expression_for(elementwise.ModOp)
def _mod(op: Op, emitter: ValueEmitter, args: Sequence[str]) -> str:
    return _call_helper("weft_mod", op, emitter, args)


@_expression_for(math.PowerOp)
def _power(op: Op, emitter: ValueEmitter, args: Sequence[str]) -> str:
    if dtypes.is_integer(op.dtype):
        return _call_helper("weft_power", op, emitter, args)
    exponent = op.args[1]
    known = exponent.const if exponent.is_constant and not exponent.axes else None
    if known is not None and known == 2:
        return emitter.rounded(op.dtype, f"({args[0]} * {args[0]})")
    power = f"GUARDED({args[1]} == {args[1]}, pow({args[0]}, {args[1]}), {args[1]})"
    one = emitter.constant(1, op.dtype)
    return emitter.rounded(op.dtype, f"GUARDED({args[0]} != {one}, {power}, {one})")


@_expression_for(bits.ShiftLeftOp)
def _left(op: Op, emitter: ValueEmitter, args: Sequence[str]) -> str:
    return _call_helper("weft_left", op, emitter, args)


@_expression_for(bits.ShiftRightOp)
def _right(op: Op, emitter: ValueEmitter, args: Sequence[str]) -> str:
    return _call_helper("weft_right", op, emitter, args)


def _call_helper(name: str, op: Op, emitter: ValueEmitter, args: Sequence[str]) -> str:
    return emitter.rounded(op.dtype, emitter.code.call(f"{name}_{emitter.type(op.dtype)}", *args))


_BITWISE: dict[type[Op], str] = {
    bits.BitwiseAndOp: "&",
    bits.BitwiseOrOp: "|",
    bits.BitwiseXorOp: "^",
}


@_expression_for(*_BITWISE)
def _bitwise(op: Op, emitter: ValueEmitter, args: Sequence[str]) -> str:
    return emitter.rounded(op.dtype, f"({args[0]} {_BITWISE[type(op)]} {args[1]})")


@_expression_for(bits.BitwiseNotOp)
def _bitwise_not(op: Op, emitter: ValueEmitter, args: Sequence[str]) -> str:
    text = f"({args[0]} == 0)" if dtypes.is_bool(op.dtype) else f"(~{args[0]})"
    return emitter.rounded(op.dtype, text)


_ORDER: dict[type[Op], str] = {
    comparison.LessOp: "<",
    comparison.LessEqualOp: "<=",
    comparison.GreaterOp: ">",
    comparison.GreaterEqualOp: ">=",
}


@_expression_for(*_ORDER)
def _order(op: Op, emitter: ValueEmitter, args: Sequence[str]) -> str:
    """Compare; bool vectors in reverse, since their true lanes are -1."""
    x, y = args
    if emitter.is_vector and dtypes.is_bool(op.args[0].dtype):
        x, y = y, x
    return f"({x} {_ORDER[type(op)]} {y})"


_EXTREMA: dict[type[Op], str] = {comparison.MaximumOp: ">", comparison.MinimumOp: "<"}


@_expression_for(*_EXTREMA)
def _extremum(op: Op, emitter: ValueEmitter, args: Sequence[str]) -> str:
    return extremum(op.dtype, emitter, _EXTREMA[type(op)], *args)


def extremum(dtype: dtypes.DType, emitter: ValueEmitter, sign: str, x: str, y: str) -> str:
    """Return the maximum (`sign` ``>``) or minimum (``<``) of two values; NaN if either is NaN."""
    if dtypes.is_bool(dtype):
        return f"({x} {'|' if sign == '>' else '&'} {y})"
    if dtypes.is_float(dtype):
        return emitter.select(f"(({x} {sign} {y}) | ({x} != {x}))", x, y)
    return emitter.select(f"({x} {sign} {y})", x, y)


@_expression_for(comparison.WhereOp)
def _where(op: Op, emitter: ValueEmitter, args: Sequence[str]) -> str:
    return emitter.select(*args)


@_expression_for(activation.ReluOp)
def _relu(op: Op, emitter: ValueEmitter, args: Sequence[str]) -> str:
    """Propagate NaN, which is not less than 0."""
    zero = emitter.constant(0, op.dtype)
    return emitter.select(f"({args[0]} < {zero})", zero, args[0])


@_expression_for(elementwise.SignOp)
def _sign(op: Op, emitter: ValueEmitter, args: Sequence[str]) -> str:
    """Propagate NaN and signed zeros, which are neither above nor below 0."""
    (x,) = args
    zero, one = (emitter.constant(value, op.dtype) for value in (0, 1))
    below = emitter.select(f"({x} < {zero})", f"-{one}", x) if op.dtype.kind != "u" else x
    return emitter.select(f"({x} > {zero})", one, below)


@_expression_for(rounding.IsnanOp)
def _isnan(op: Op, emitter: ValueEmitter, args: Sequence[str]) -> str:
    return f"({args[0]} != {args[0]})"


@_expression_for(elementwise.CastOp)
def _cast(op: Op, emitter: ValueEmitter, args: Sequence[str]) -> str:
    return emitter.converted(op.args[0].dtype, op.dtype, args[0])


EXPRESSION_OPS: tuple[type[Op], ...] = (*TEMPLATES, *_functions)
"""The types of ops with an expression."""
