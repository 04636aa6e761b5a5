"""Rules for elementwise ops: mostly one ufunc each."""

from __future__ import annotations

import numpy as np

from weft import dtypes
from weft.op import Op
from weft.ops import activation, bits, comparison, complex_parts, elementwise, math
from weft_numpy.codegen import Emitter
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
    comparison.MaximumOp: np.maximum,
    comparison.MinimumOp: np.minimum,
    comparison.EqualOp: np.equal,
    comparison.NotEqualOp: np.not_equal,
    comparison.GreaterOp: np.greater,
    comparison.GreaterEqualOp: np.greater_equal,
    comparison.LessOp: np.less,
    comparison.LessEqualOp: np.less_equal,
}

OUT_BY_NAME = (np.maximum, np.minimum)
"""NumPy 2.4 deprecates a third positional argument of these."""

INTEGER_OF_SIZE = {1: "i1", 2: "i2", 4: "i4", 8: "i8"}


def call_ufunc(ufunc: np.ufunc, emit: Emitter) -> None:
    """Call a ufunc on all operands, with its result in place."""
    out = f"out={emit.out}" if ufunc in OUT_BY_NAME else emit.out
    emit.line(f"{emit.bind(ufunc, ufunc.__name__)}({', '.join([*emit.args, out])})")


@rules.on_type(*UFUNCS)
def elementwise_rule(op: Op, emit: Emitter) -> None:
    """Call the ufunc."""
    call_ufunc(UFUNCS[type(op)], emit)


@rules.on_type(elementwise.ReciprocalOp)
def reciprocal_rule(op: Op, emit: Emitter) -> None:
    """Divide 1, because NumPy's reciprocal of an integer is an integer."""
    one = emit.bind(np.ones((), op.dtype), "one")
    emit.line(f"{emit.bind(np.divide, 'divide')}({one}, {emit.args[0]}, {emit.out})")


@rules.on_type(activation.ReluOp)
def relu_rule(op: Op, emit: Emitter) -> None:
    """Take the maximum with a row of zeros, which NumPy does several times faster than with one."""
    shape = op.axes.shape[-1:]
    zeros = emit.bind(np.zeros(shape, op.dtype), "zeros")
    emit.line(f"{emit.bind(np.maximum, 'maximum')}({emit.args[0]}, {zeros}, out={emit.out})")


@rules.on_type(math.PowerOp)
def power_rule(op: Op, emit: Emitter) -> None:
    """Call the ufunc; for integers, whose negative powers it refuses, the reference."""
    if dtypes.is_integer(op.dtype):
        reference = emit.bind(op.reference, "integer_power")
        emit.line(f"copyto({emit.out}, {reference}({', '.join(emit.args)}))")
    else:
        emit.line(f"{emit.bind(np.power, 'power')}({', '.join([*emit.args, emit.out])})")


@rules.on_type(elementwise.CastOp)
def cast_rule(op: Op, emit: Emitter) -> None:
    """Copy with conversion."""
    emit.line(f"copyto({emit.out}, {emit.args[0]}, 'unsafe')")


@rules.on_type(complex_parts.RealOp)
def real_rule(op: Op, emit: Emitter) -> None:
    """Copy the real part."""
    emit.line(f"copyto({emit.out}, {emit.args[0]}.real)")


@rules.on_type(complex_parts.ImagOp)
def imag_rule(op: Op, emit: Emitter) -> None:
    """Copy the imaginary part."""
    emit.line(f"copyto({emit.out}, {emit.args[0]}.imag)")


@rules.on_type(complex_parts.ComplexOp)
def complex_rule(op: Op, emit: Emitter) -> None:
    """Write each part in its place."""
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
    x, y = (emit.part(n, d, as_bits) for n, d in zip((x, y), emit.step.args[1:], strict=True))
    out = emit.part(emit.out, emit.step.out, as_bits)
    multiply = emit.bind(np.multiply, "multiply")
    zero = op.args[2]
    if zero.is_constant and not zero.const.any() and not np.signbit(zero.const.real).any():
        emit.line(f"{multiply}({x}, {condition}, {out})")
        return
    xor = emit.bind(np.bitwise_xor, "bitwise_xor")
    emit.line(f"{xor}({x}, {y}, {out})")
    emit.line(f"{multiply}({out}, {condition}, {out})")
    emit.line(f"{xor}({out}, {y}, {out})")
