"""Lowering rules of elementwise ops: mostly one ufunc each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.ir import dtypes
from weft.ir.op import Op
from weft.nn import activation
from weft.ops.pointwise import (
    bits,
    comparison,
    complex_parts,
    elementwise,
    math,
    rounding,
    trigonometry,
)
from weft_numpy.emitter import Emitter
from weft_numpy.rules.references import reference_rule
from weft_numpy.rules.table import rules

UFUNCS: dict[type[Op], np.ufunc] = {
    elementwise.NegativeOp: np.negative,
    elementwise.AbsoluteOp: np.absolute,
    elementwise.SignOp: np.sign,
    elementwise.SquareOp: np.square,
    math.SqrtOp: np.sqrt,
    math.ExpOp: np.exp,
    math.LogOp: np.log,
    math.SinOp: np.sin,
    math.CosOp: np.cos,
    math.TanhOp: np.tanh,
    math.AtanOp: np.arctan,
    complex_parts.ConjOp: np.conjugate,
    bits.BitwiseAndOp: np.bitwise_and,
    bits.BitwiseOrOp: np.bitwise_or,
    bits.BitwiseXorOp: np.bitwise_xor,
    bits.BitwiseNotOp: np.bitwise_not,
    bits.ShiftLeftOp: np.left_shift,
    bits.ShiftRightOp: np.right_shift,
    comparison.LogicalNotOp: np.logical_not,
    elementwise.AddOp: np.add,
    elementwise.SubtractOp: np.subtract,
    elementwise.MultiplyOp: np.multiply,
    elementwise.DivideOp: np.divide,
    elementwise.FloorDivideOp: np.floor_divide,
    elementwise.ModOp: np.remainder,
    comparison.EqualOp: np.equal,
    comparison.NotEqualOp: np.not_equal,
    comparison.GreaterOp: np.greater,
    comparison.GreaterEqualOp: np.greater_equal,
    comparison.LessOp: np.less,
    comparison.LessEqualOp: np.less_equal,
    math.CbrtOp: np.cbrt,
    math.Exp2Op: np.exp2,
    math.Expm1Op: np.expm1,
    math.HypotOp: np.hypot,
    math.Log10Op: np.log10,
    math.Log1pOp: np.log1p,
    math.Log2Op: np.log2,
    rounding.CeilOp: np.ceil,
    rounding.CopysignOp: np.copysign,
    rounding.FloorOp: np.floor,
    rounding.FmodOp: np.fmod,
    rounding.IsfiniteOp: np.isfinite,
    rounding.IsinfOp: np.isinf,
    rounding.IsnanOp: np.isnan,
    rounding.NextafterOp: np.nextafter,
    rounding.RoundOp: np.rint,
    rounding.SignbitOp: np.signbit,
    rounding.TruncOp: np.trunc,
    trigonometry.AcosOp: np.arccos,
    trigonometry.AcoshOp: np.arccosh,
    trigonometry.AsinOp: np.arcsin,
    trigonometry.AsinhOp: np.arcsinh,
    trigonometry.Atan2Op: np.arctan2,
    trigonometry.AtanhOp: np.arctanh,
    trigonometry.CoshOp: np.cosh,
    trigonometry.SinhOp: np.sinh,
    trigonometry.TanOp: np.tan,
}
"""The ops that are one ufunc.

`logaddexp` is not: its decomposition takes a third of the time of NumPy's ufunc.
"""

OUT_BY_NAME = (np.maximum, np.minimum)
"""NumPy 2.4 deprecates a third positional argument of these."""

INTEGER_OF_SIZE = {1: "i1", 2: "i2", 4: "i4", 8: "i8"}


def call_ufunc(ufunc: np.ufunc, emit: Emitter, args: Sequence[str] | None = None) -> None:
    """Call a ufunc on all operands, or on other arrays, with its result in place."""
    out = f"out={emit.out}" if ufunc in OUT_BY_NAME else emit.out
    names = emit.args if args is None else args
    emit.line(f"{emit.bind(ufunc, ufunc.__name__)}({', '.join([*names, out])})")


@rules.on_type(*UFUNCS)
def elementwise_rule(op: Op, emit: Emitter) -> None:
    """Call the ufunc."""
    call_ufunc(UFUNCS[type(op)], emit)


@rules.on_type(elementwise.ReciprocalOp)
def reciprocal_rule(op: Op, emit: Emitter) -> None:
    """Divide 1, because NumPy's reciprocal of an integer is an integer."""
    call_ufunc(np.divide, emit, [emit.number(1, op.dtype), *emit.args])


@rules.on_type(comparison.MaximumOp, comparison.MinimumOp)
def extremum_rule(op: Op, emit: Emitter) -> None:
    """Call the ufunc, with a row instead of a scalar."""
    known = [emit.constant(index) for index in range(2)]
    args = [
        name if value is None or value.ndim else emit.row(value, emit.step.out)
        for name, value in zip(emit.args, known, strict=True)
    ]
    call_ufunc(np.maximum if isinstance(op, comparison.MaximumOp) else np.minimum, emit, args)


@rules.on_type(activation.ReluOp)
def relu_rule(op: Op, emit: Emitter) -> None:
    """Take the maximum with zeros."""
    call_ufunc(np.maximum, emit, [*emit.args, emit.row(0, emit.step.out)])


@rules.on_type(math.PowerOp)
def power_rule(op: Op, emit: Emitter) -> None:
    """Multiply for small integer powers, hundreds of times as fast as NumPy's function.

    Other powers use the ufunc; powers of integers, some of which it refuses, the reference.
    """
    known = emit.constant(1)
    power = None if known is None or known.ndim else known.item()
    if dtypes.is_integer(op.dtype):
        reference_rule(op, emit)
    elif power in (2, 3, 4) and emit.args[0] != emit.out:
        call_ufunc(np.square, emit, emit.args[:1])
        if power == 3:
            call_ufunc(np.multiply, emit, [emit.out, emit.args[0]])
        elif power == 4:
            call_ufunc(np.square, emit, [emit.out])
    else:
        call_ufunc(np.power, emit)


@rules.on_type(elementwise.CastOp)
def cast_rule(op: Op, emit: Emitter) -> None:
    """Copy with conversion, with a single rounding."""
    x = emit.args[0]
    if dtypes.rounds_twice(op.args[0].dtype, op.dtype):
        x = f"{emit.bind(dtypes.rounded_to_odd, 'rounded_to_odd')}({x})"
    emit.line(f"copyto({emit.out}, {x}, 'unsafe')")


@rules.on_type(complex_parts.RealOp, complex_parts.ImagOp)
def part_rule(op: complex_parts.PartOp, emit: Emitter) -> None:
    """Copy the real or the imaginary part."""
    emit.line(f"copyto({emit.out}, {emit.args[0]}.{'imag' if op.number else 'real'})")


@rules.on_type(complex_parts.ComplexOp)
def complex_rule(op: Op, emit: Emitter) -> None:
    """Copy the real and the imaginary part."""
    for part, arg in zip(("real", "imag"), emit.args, strict=True):
        emit.line(f"copyto({emit.out}.{part}, {arg})")


@rules.on_type(comparison.WhereOp)
def where_rule(op: Op, emit: Emitter) -> None:
    """Select bits: with y ^ ((x ^ y) * condition), several times faster than copies under a mask.

    Against a constant 0, whose bits are all 0, it is one product.
    """
    condition, x, y = emit.args
    bits = INTEGER_OF_SIZE.get(op.dtype.itemsize)
    if bits is None:
        # The result may lie where the second operand does, so that one goes first.
        emit.line(f"copyto({emit.out}, {x})")
        emit.line(f"copyto({emit.out}, {y}, 'no', ~{condition})")
        return
    as_bits = f".view('{bits}')"
    x = emit.part(x, emit.step.args[1], as_bits)
    out = emit.part(emit.out, emit.step.out, as_bits)
    multiply = emit.bind(np.multiply, "multiply")
    zero = emit.constant(2)
    if zero is not None and not zero.any() and not np.signbit(zero.real).any():
        emit.line(f"{multiply}({x}, {condition}, {out})")
        return
    y = emit.part(y, emit.step.args[2], as_bits)
    xor = emit.bind(np.bitwise_xor, "bitwise_xor")
    emit.line(f"{xor}({x}, {y}, {out})")
    emit.line(f"{multiply}({out}, {condition}, {out})")
    emit.line(f"{xor}({out}, {y}, {out})")
