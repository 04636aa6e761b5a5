"""Rules of products and linear systems: a batch on one side becomes rows or columns."""

from __future__ import annotations

from typing import Any

from weft.batching.walk import Batch, batching_rule_of, moved
from weft.ir.axes import make_axes
from weft.ir.tensor import TensorOp
from weft.ops.products.decompositions import SolveOp, TriangularSolveOp
from weft.ops.products.linalg import DotOp, MatmulOp, matrix_transpose
from weft.ops.shape.movement import cast_axes


@batching_rule_of(MatmulOp)
def batched_matmul(op: MatmulOp, batch: Batch, x: TensorOp, y: TensorOp) -> TensorOp:
    """Multiply all rows at once where one side is a single matrix."""
    if op.rank == 2 and batch.operands == (True, False):
        return _product_of_rows(batch, x, y)
    if op.rank == 2 and batch.operands == (False, True):
        turned = _product_of_rows(batch, matrix_transpose(y), matrix_transpose(x))
        return matrix_transpose(turned)
    return MatmulOp(*batch.spread((x, y)))


def _product_of_rows(batch: Batch, x: TensorOp, y: TensorOp) -> TensorOp:
    """Return the products of batched matrices with a single one."""
    _, rows, inner = x.axes.lengths
    flat = cast_axes(x, make_axes((batch.size * rows, inner)))
    single = cast_axes(y, make_axes(y.axes.lengths))
    return cast_axes(MatmulOp(flat, single), make_axes((batch.size, rows, y.axes[-1].length)))


@batching_rule_of(DotOp)
def batched_dot(op: DotOp, batch: Batch, x: TensorOp, y: TensorOp) -> TensorOp:
    """Batch over the axis if both operands have it; otherwise it is a free axis of one of them."""
    contracted, batched = (
        tuple(
            tuple(place + has_axis for place in places)
            for places, has_axis in zip(pair, batch.operands, strict=True)
        )
        for pair in (op.contracted, op.batched)
    )
    if all(batch.operands):
        batched = ((0, *batched[0]), (0, *batched[1]))
        return DotOp(x, y, contracted=contracted, batched=batched)
    before = len(op.batched[0]) + (0 if batch.operands[0] else len(op.free()[0]))
    return moved(DotOp(x, y, contracted=contracted, batched=batched), before, 0)


@batching_rule_of(SolveOp, TriangularSolveOp)
def batched_solve(op: SolveOp | TriangularSolveOp, batch: Batch, a: TensorOp, b: TensorOp) -> Any:
    """Solve for all right-hand sides at once where the matrices are the same for all."""
    fields = op.attributes()
    if batch.operands[0]:
        return type(op)(*batch.spread((a, b)), **fields)
    *outer, rows, columns = op.axes.lengths
    sides = cast_axes(moved(b, 0, op.rank - 1), (*outer, rows, batch.size * columns))
    solved = type(op)(a, sides, **fields)
    return moved(cast_axes(solved, (*outer, rows, batch.size, columns)), op.rank - 1, 0)
