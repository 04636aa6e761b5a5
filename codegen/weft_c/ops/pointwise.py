"""Rules of elementwise ops: their expressions in C, for scalars and vectors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from weft.ir import dtypes
from weft.ir.op import Op
from weft.nn import activation
from weft.ops.pointwise import bits, comparison, elementwise, math, rounding, trigonometry
from weft.support.backports import override
from weft.support.dispatch import ClassTable
from weft_c.lowering import rules
from weft_c.source.expressions import Expression, ExpressionWriter
from weft_c.source.values import (
    DOUBLE_VECTOR_DTYPES,
    NARROW_DTYPES,
    VECTOR_DTYPES,
    ValueEmitter,
)

VECTORS = sorted(VECTOR_DTYPES | DOUBLE_VECTOR_DTYPES)
WITHIN_RANGE = sorted({*VECTORS, *NARROW_DTYPES})
"""The dtypes with vectors of ops whose results are never out of the range of their dtype."""

TEXTS: dict[type[Op], str] = {
    comparison.LogicalNotOp: "({0} == 0)",
    elementwise.DivideOp: "({0} / {1})",
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
    rounding.CopysignOp: "copysign({0}, {1})",
    rounding.IsnanOp: "({0} != {0})",
    trigonometry.AsinOp: "asin({0})",
    trigonometry.AcosOp: "acos({0})",
    trigonometry.SinhOp: "GUARDED({0} == {0}, sinh({0}), {0})",
    trigonometry.CoshOp: "cosh({0})",
    trigonometry.AsinhOp: "asinh({0})",
    trigonometry.AcoshOp: "acosh({0})",
    trigonometry.AtanhOp: "atanh({0})",
    trigonometry.Atan2Op: "atan2({0}, {1})",
    bits.BitwiseAndOp: "({0} & {1})",
    bits.BitwiseOrOp: "({0} | {1})",
    bits.BitwiseXorOp: "({0} ^ {1})",
}
"""The ops whose expression does not depend on dtypes, but for the rounding to 16 bits."""

for _kind, _text in TEXTS.items():
    rules.add(_kind, Expression(_text, vectors=VECTORS))
rules.add(comparison.EqualOp, Expression("({0} == {1})", vectors=WITHIN_RANGE))
rules.add(comparison.NotEqualOp, Expression("({0} != {1})", vectors=WITHIN_RANGE))


def _expression_for(
    *kinds: type[Op], vectors: Collection[str] = VECTORS
) -> Callable[[ExpressionWriter], ExpressionWriter]:
    def mark(function: ExpressionWriter) -> ExpressionWriter:
        for kind in kinds:
            rules.add(kind, Expression(function, vectors=vectors))
        return function

    return mark


_SIGNS = ClassTable[str](
    {
        elementwise.AddOp: "+",
        elementwise.SubtractOp: "-",
        elementwise.MultiplyOp: "*",
        comparison.LessOp: "<",
        comparison.LessEqualOp: "<=",
        comparison.GreaterOp: ">",
        comparison.GreaterEqualOp: ">=",
    }
)


@_expression_for(elementwise.AddOp, elementwise.SubtractOp, elementwise.MultiplyOp)
def _arithmetic(op: Op, emitter: ValueEmitter, args: Sequence[str]) -> str:
    """Use unsigned integers, whose overflow wraps around."""
    sign = _SIGNS.nearest(type(op))
    if not dtypes.is_integer(op.dtype):
        return emitter.rounded(op.dtype, f"({args[0]} {sign} {args[1]})")
    x, y = (emitter.unsigned(op.dtype, arg) for arg in args)
    return emitter.signed(op.dtype, f"({x} {sign} {y})")


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
    """Round; a float without a fraction is its own result, and so is an integer."""
    if not dtypes.is_float(op.dtype):
        return args[0]
    limit = emitter.constant(2.0**52 if op.dtype.itemsize == 8 else 2.0**23, op.dtype)
    text = f"GUARDED(fabs({args[0]}) < {limit}, rint({args[0]}), {args[0]})"
    return emitter.rounded(op.dtype, text)


_WHOLE = ClassTable[str](
    {rounding.FloorOp: "floor", rounding.CeilOp: "ceil", rounding.TruncOp: "trunc"}
)


@_expression_for(rounding.FloorOp, rounding.CeilOp, rounding.TruncOp)
def _whole(op: Op, emitter: ValueEmitter, args: Sequence[str]) -> str:
    """Round in one direction; an integer is its own result."""
    (x,) = args
    if not dtypes.is_float(op.dtype):
        return x
    rounded = f"{_WHOLE.nearest(type(op))}({x})"
    return emitter.rounded(op.dtype, f"GUARDED({x} == {x}, {rounded}, {x})")


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


@_expression_for(math.TanhOp, vectors=sorted(VECTOR_DTYPES))
def _tanh(op: Op, emitter: ValueEmitter, args: Sequence[str]) -> str:
    return _call_helper("weft_tanh", op, emitter, args)


@_expression_for(elementwise.FloorDivideOp, vectors=())
def _floor_divide(op: Op, emitter: ValueEmitter, args: Sequence[str]) -> str:
    return _call_helper("weft_floordiv", op, emitter, args)


@_expression_for(elementwise.ModOp, vectors=())
def _mod(op: Op, emitter: ValueEmitter, args: Sequence[str]) -> str:
    return _call_helper("weft_mod", op, emitter, args)


@_expression_for(math.PowerOp, vectors=["float32"])
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


@_expression_for(bits.ShiftLeftOp, vectors=())
def _left(op: Op, emitter: ValueEmitter, args: Sequence[str]) -> str:
    return _call_helper("weft_left", op, emitter, args)


@_expression_for(bits.ShiftRightOp, vectors=())
def _right(op: Op, emitter: ValueEmitter, args: Sequence[str]) -> str:
    return _call_helper("weft_right", op, emitter, args)


def _call_helper(name: str, op: Op, emitter: ValueEmitter, args: Sequence[str]) -> str:
    return emitter.rounded(op.dtype, emitter.code.call(f"{name}_{emitter.type(op.dtype)}", *args))


@_expression_for(bits.BitwiseNotOp)
def _bitwise_not(op: Op, emitter: ValueEmitter, args: Sequence[str]) -> str:
    text = f"({args[0]} == 0)" if dtypes.is_bool(op.dtype) else f"(~{args[0]})"
    return emitter.rounded(op.dtype, text)


@_expression_for(
    comparison.LessOp,
    comparison.LessEqualOp,
    comparison.GreaterOp,
    comparison.GreaterEqualOp,
    vectors=WITHIN_RANGE,
)
def _order(op: Op, emitter: ValueEmitter, args: Sequence[str]) -> str:
    """Compare; bool vectors in reverse, since their true lanes are -1."""
    x, y = args
    if emitter.is_vector and dtypes.is_bool(op.args[0].dtype):
        x, y = y, x
    return f"({x} {_SIGNS.nearest(type(op))} {y})"


@_expression_for(comparison.MaximumOp, comparison.MinimumOp, vectors=WITHIN_RANGE)
def _extremum(op: Op, emitter: ValueEmitter, args: Sequence[str]) -> str:
    sign = ">" if isinstance(op, comparison.MaximumOp) else "<"
    return emitter.extremum(op.dtype, sign, *args)


@_expression_for(comparison.WhereOp, vectors=WITHIN_RANGE)
def _where(op: Op, emitter: ValueEmitter, args: Sequence[str]) -> str:
    return emitter.select(*args)


@_expression_for(activation.ReluOp, vectors=WITHIN_RANGE)
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


def _cast(op: Op, emitter: ValueEmitter, args: Sequence[str]) -> str:
    return emitter.converted(op.args[0].dtype, op.dtype, args[0])


class _CastExpression(Expression):
    """The expression of casts, which has no vectors from floats to uint32."""

    @override
    def takes_vectors(self, op: Op) -> bool:
        is_wide = op.dtype == dtypes.uint32 and dtypes.is_float(op.args[0].dtype)
        return not is_wide and super().takes_vectors(op)


rules.add(elementwise.CastOp, _CastExpression(_cast, vectors=WITHIN_RANGE))
