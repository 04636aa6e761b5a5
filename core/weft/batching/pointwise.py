"""Rules of ops that treat all axes alike, or name some of them by position."""

from __future__ import annotations

from typing import Any

from weft.batching.walk import Batch, batching_rule_of
from weft.ir.tensor import TensorOp
from weft.linalg.systems import PseudoInverseOp
from weft.nn.dot_product_attention import AttentionOp
from weft.nn.losses import CrossEntropyLogitsOp, PickOp
from weft.nn.normalization import NormalizeOp
from weft.ops.indexing.gathering import TakeAlongAxisOp
from weft.ops.indexing.positions import RotaryOp
from weft.ops.pointwise.bits import BitcastOp
from weft.ops.pointwise.complex_parts import ViewAsComplexOp, ViewAsRealOp
from weft.ops.pointwise.elementwise import ElementwiseOp
from weft.ops.products.decompositions import CholeskyOp, DeterminantOp, InverseOp
from weft.ops.products.factorizations import FactorizationOp, MatrixExpActionOp
from weft.ops.products.fourier import FourierOp, InverseRealFourierOp, RealFourierOp
from weft.ops.reductions.cumulative import RunningOp
from weft.ops.reductions.probabilities import LogitsOp
from weft.ops.reductions.reduction import ReductionOp
from weft.ops.reductions.sorting import SortingOp
from weft.ops.shape.joining import ConcatOp
from weft.ops.shape.movement import BroadcastOp


@batching_rule_of(ElementwiseOp)
def batched_elementwise(op: ElementwiseOp, batch: Batch, *args: TensorOp) -> TensorOp:
    """Bring operands to the axes of the result; scalars that are not batched remain."""
    operands = [
        _at_axes(op, batch, arg) if is_batched else batch.repeated(arg) if arg.axes else arg
        for arg, is_batched in zip(args, batch.operands, strict=True)
    ]
    return type(op)(*operands, **op.attributes())


def _at_axes(op: TensorOp, batch: Batch, x: TensorOp) -> TensorOp:
    """Return a batched operand, a scalar broadcast to the axes of the result."""
    is_scalar = x.rank == 1 and op.axes
    return BroadcastOp(x, target_axes=batch.before(op.axes), dims=(0,)) if is_scalar else x


@batching_rule_of(
    AttentionOp, BitcastOp, CholeskyOp, ConcatOp, CrossEntropyLogitsOp, DeterminantOp,
    FactorizationOp, FourierOp, InverseOp, InverseRealFourierOp, LogitsOp, MatrixExpActionOp,
    NormalizeOp, PickOp, PseudoInverseOp, RealFourierOp, ReductionOp, RotaryOp, RunningOp,
    SortingOp, TakeAlongAxisOp, ViewAsComplexOp, ViewAsRealOp,
)  # fmt: skip
def batched_along_others(op: TensorOp, batch: Batch, *args: TensorOp) -> TensorOp:
    """Give all operands the batch axis, and add 1 to the positions of axes."""
    fields: dict[str, Any] = op.attributes()
    if "position" in fields:
        fields["position"] += 1
    if "positions" in fields:
        fields["positions"] = tuple(place + 1 for place in fields["positions"])
    return type(op)(*batch.spread(args), **fields)
