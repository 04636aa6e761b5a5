"""Rules of ops that treat all axes alike, or name some of them by position."""

from __future__ import annotations

from typing import Any

from weft import nn, ops
from weft.batching.walk import Batch, batching_rule_of
from weft.ir.tensor import TensorOp
from weft.linalg.systems import LeastSquaresOp, PseudoInverseOp
from weft.ops.products.factorizations import FactorizationOp, MatrixExpActionOp
from weft.ops.products.fourier import FourierOp, InverseRealFourierOp, RealFourierOp
from weft.ops.reductions.cumulative import RunningOp


@batching_rule_of(ops.ElementwiseOp)
def batched_elementwise(op: ops.ElementwiseOp, batch: Batch, *args: TensorOp) -> TensorOp:
    """Bring operands to the axes of the result; scalars that are not batched remain."""
    operands = [
        _at_axes(op, batch, arg) if is_batched else batch.repeated(arg) if arg.axes else arg
        for arg, is_batched in zip(args, batch.operands, strict=True)
    ]
    return type(op)(*operands, **op.attributes())


def _at_axes(op: TensorOp, batch: Batch, x: TensorOp) -> TensorOp:
    """Return a batched operand, a scalar broadcast to the axes of the result."""
    is_scalar = x.rank == 1 and op.axes
    return ops.BroadcastOp(x, target_axes=batch.before(op.axes), dims=(0,)) if is_scalar else x


@batching_rule_of(
    nn.AttentionOp, ops.BitcastOp, ops.CholeskyOp, ops.ConcatOp, nn.CrossEntropyLogitsOp,
    ops.DeterminantOp, FactorizationOp, FourierOp, ops.InverseOp, InverseRealFourierOp,
    LeastSquaresOp, ops.LogitsOp, MatrixExpActionOp, nn.NormalizeOp, nn.PickOp, PseudoInverseOp,
    RealFourierOp, ops.ReductionOp, ops.RotaryOp, RunningOp, ops.SortingOp, ops.TakeAlongAxisOp,
    ops.ViewAsComplexOp, ops.ViewAsRealOp,
)  # fmt: skip
def batched_along_others(op: TensorOp, batch: Batch, *args: TensorOp) -> TensorOp:
    """Give all operands the batch axis, and add 1 to the positions of axes."""
    fields: dict[str, Any] = op.attributes()
    if "position" in fields:
        fields["position"] += 1
    if "positions" in fields:
        fields["positions"] = tuple(place + 1 for place in fields["positions"])
    return type(op)(*batch.spread(args), **fields)
