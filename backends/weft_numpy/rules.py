"""How each primitive becomes a NumPy call that writes into memory it is given."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import dtypes
from weft.op import Op
from weft.ops import (
    comparison,
    control,
    elementwise,
    indexing,
    joining,
    linalg,
    movement,
    nn,
    random,
    reduction,
    state,
)
from weft.rules import RuleTable
from weft_numpy.codegen import Emitter

rules = RuleTable("numpy")

UFUNCS: dict[type[Op], np.ufunc] = {
    elementwise.NegativeOp: np.negative,
    elementwise.AbsoluteOp: np.absolute,
    elementwise.SignOp: np.sign,
    elementwise.SquareOp: np.square,
    elementwise.SqrtOp: np.sqrt,
    elementwise.ExpOp: np.exp,
    elementwise.LogOp: np.log,
    elementwise.SinOp: np.sin,
    elementwise.CosOp: np.cos,
    elementwise.TanhOp: np.tanh,
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

REDUCTIONS: dict[type[Op], np.ufunc] = {
    reduction.SumOp: np.add,
    reduction.ProdOp: np.multiply,
    reduction.MaxOp: np.maximum,
    reduction.MinOp: np.minimum,
}


@rules.on_type(*UFUNCS)
def elementwise_rule(op: Op, emit: Emitter) -> None:
    """Call the ufunc with its result in place."""
    ufunc = UFUNCS[type(op)]
    out = f"out={emit.out}" if ufunc in OUT_BY_NAME else emit.out
    emit.line(f"{emit.bind(ufunc, ufunc.__name__)}({', '.join([*emit.args, out])})")


@rules.on_type(elementwise.ReciprocalOp)
def reciprocal_rule(op: Op, emit: Emitter) -> None:
    """Divide 1, because NumPy's reciprocal of an integer is an integer."""
    one = emit.bind(np.ones((), op.dtype), "one")
    emit.line(f"{emit.bind(np.divide, 'divide')}({one}, {emit.args[0]}, {emit.out})")


@rules.on_type(nn.ReluOp)
def relu_rule(op: Op, emit: Emitter) -> None:
    """Take the maximum with a row of zeros, which NumPy does several times faster than with one."""
    shape = op.axes.shape[-1:]
    zeros = emit.bind(np.zeros(shape, op.dtype), "zeros")
    emit.line(f"{emit.bind(np.maximum, 'maximum')}({emit.args[0]}, {zeros}, out={emit.out})")


@rules.on_type(elementwise.PowerOp)
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


@rules.on_type(comparison.WhereOp)
def where_rule(op: Op, emit: Emitter) -> None:
    """Select bits: with y ^ ((x ^ y) * condition), several times faster than copies under a mask.

    Against a constant 0, whose bits are all 0, it is one product.
    """
    condition, x, y = emit.args
    bits = INTEGER_OF_SIZE.get(op.dtype.itemsize)
    if bits is None:
        emit.line(f"copyto({emit.out}, {y})")
        emit.line(f"copyto({emit.out}, {x}, 'no', {condition})")
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


@rules.on_type(*REDUCTIONS)
def reduction_rule(op: Any, emit: Emitter) -> None:
    """Call the ufunc's reduction along the axes; 16-bit sums are accumulated in float32."""
    ufunc = REDUCTIONS[type(op)]
    call = f"{emit.bind(ufunc, ufunc.__name__)}.reduce"
    axes = op.positions[0] if len(op.positions) == 1 else op.positions
    summed = isinstance(op, reduction.SumOp | reduction.ProdOp)
    if summed and op.dtype.name in ("float16", "bfloat16"):
        wide = emit.bind(dtypes.float32, "float32")
        emit.line(f"copyto({emit.out}, {call}({emit.args[0]}, {axes}, {wide}), 'unsafe')")
        return
    dtype = emit.bind(op.dtype, "dtype") if summed else None
    emit.line(f"{call}({emit.args[0]}, {axes}, {dtype}, {emit.out})")


@rules.on_type(reduction.ArgmaxOp, reduction.ArgminOp)
def arg_rule(op: Any, emit: Emitter) -> None:
    """Call the array's own method."""
    method = "argmax" if isinstance(op, reduction.ArgmaxOp) else "argmin"
    emit.line(f"{emit.args[0]}.{method}({op.positions[0]}, {emit.out})")


@rules.on_type(linalg.MatmulOp)
def matmul_rule(op: Op, emit: Emitter) -> None:
    """Call the matrix product; transposed operands go to BLAS as they are."""
    emit.line(f"{emit.bind(np.matmul, 'matmul')}({', '.join([*emit.args, emit.out])})")


@rules.on_type(movement.ContiguousOp)
def copy_rule(op: Op, emit: Emitter) -> None:
    """Copy."""
    emit.line(f"copyto({emit.out}, {emit.args[0]})")


@rules.on_type(movement.TransposeOp, movement.BroadcastOp, indexing.SliceOp)
@rules.on_type(control.StopGradientOp, state.ValueOfOp)
def view_rule(op: Op, emit: Emitter) -> None:
    """Write nothing: these are always views, which the plan describes."""


@rules.on_type(movement.ReshapeOp)
def reshape_rule(op: Op, emit: Emitter) -> None:
    """Copy into the result seen under the operand's shape, where strides allow no view."""
    shape = emit.step.args[0].shape
    target = emit.part(emit.out, emit.step.out, f".reshape({shape})")
    emit.line(f"copyto({target}, {emit.args[0]})")


@rules.on_type(indexing.UpdateSliceOp)
def update_slice_rule(op: Any, emit: Emitter) -> None:
    """Copy the first operand unless it is in place, then write the slice."""
    if emit.args[0] != emit.out:
        emit.line(f"copyto({emit.out}, {emit.args[0]})")
    emit.line(f"copyto({_slice(op.bounds, emit)}, {emit.args[1]})")


@rules.on_type(joining.PadOp)
def pad_rule(op: Any, emit: Emitter) -> None:
    """Fill, then copy the operand into the middle."""
    emit.line(f"{emit.out}.fill({emit.bind(np.asarray(op.fill, op.dtype)[()], 'fill')})")
    inner = op.inner_bounds(op.args[0].axes)
    emit.line(f"copyto({_slice(inner, emit)}, {emit.args[0]})")


@rules.on_type(joining.ConcatOp)
def concat_rule(op: Any, emit: Emitter) -> None:
    """Copy each operand into its part."""
    for bounds, arg in zip(op.parts(), emit.args, strict=True):
        emit.line(f"copyto({_slice(bounds, emit)}, {arg})")


def _slice(bounds: indexing.Bounds, emit: Emitter) -> str:
    parts = ", ".join(
        f"{part.start}:{'' if part.stop is None else part.stop}:{part.step or 1}"
        for part in indexing.python_slices(bounds)
    )
    return emit.part(emit.out, emit.step.out, f"[{parts}]") if bounds else emit.out


@rules.on_type(movement.IotaOp)
def iota_rule(op: Op, emit: Emitter) -> None:
    """Copy an index that was counted while compiling."""
    emit.line(f"copyto({emit.out}, {emit.bind(op.reference(), 'index')})")


@rules.on_type(random.RandomBitsOp)
def random_bits_rule(op: Op, emit: Emitter) -> None:
    """Run Philox on whole arrays."""
    emit.line(f"copyto({emit.out}, {emit.bind(op.reference, 'random_bits')}({emit.args[0]}))")


@rules.on_type(control.PrintOp)
def print_rule(op: Any, emit: Emitter) -> None:
    """Print the operand; the value is a view of it."""
    emit.line(f"{emit.bind(op.show, 'show')}({emit.args[0]})")
