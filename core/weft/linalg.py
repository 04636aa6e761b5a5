"""Linear algebra under the names of the array API standard, as far as weft has it."""

from __future__ import annotations

import math

from weft.errors import ArgumentError
from weft.ir.axes import AxisKeys
from weft.ir.op import explain
from weft.ir.storage import as_op
from weft.ir.tensor import TensorLike, TensorOp
from weft.ops.pointwise.elementwise import absolute
from weft.ops.products.contraction import outer, tensordot, vecdot
from weft.ops.products.decompositions import cholesky, det, inv, matrix_power, slogdet, solve
from weft.ops.products.linalg import (
    cross,
    diagonal,
    matmul,
    matrix_transpose,
    require_matrices,
    trace,
)
from weft.ops.reductions.reduction import max, min, sum
from weft.ops.reductions.statistics import norm

__all__ = [
    "cholesky",
    "cross",
    "det",
    "diagonal",
    "inv",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_transpose",
    "outer",
    "slogdet",
    "solve",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]


def vector_norm(
    x: TensorLike, *, axis: AxisKeys | None = None, keepdims: bool = False, ord: float = 2
) -> TensorOp:
    """Return `weft.norm` over axes, by default over all."""
    return norm(x, ord, axis, keepdims=keepdims)


def matrix_norm(
    x: TensorLike, *, keepdims: bool = False, ord: float | str | None = "fro"
) -> TensorOp:
    """Return the norm of matrices in the last two axes.

    That is the Frobenius norm, or for the orders 1 and -1 the largest and the smallest sum of the
    absolute values in a column, for infinity and minus infinity of those in a row. Raises
    ArgumentError for the orders that need singular values: 2, -2 and ``"nuc"``.
    """
    x = as_op(x)
    require_matrices("matrix_norm", x)
    if ord in ("fro", None):
        return norm(x, 2, (-2, -1), keepdims=keepdims)
    if ord not in (1, -1, math.inf, -math.inf):
        problem = f"ord must be 'fro', 1, -1, inf or -inf, not {ord!r}: weft has no singular values"
        raise ArgumentError(explain("matrix_norm", problem, (x,)))
    summed = -2 if abs(ord) == 1 else -1
    extremum = max if ord > 0 else min
    sums = sum(absolute(x), summed, keepdims=True)
    return extremum(sums, (-2, -1), keepdims=keepdims)
