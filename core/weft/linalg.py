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
    """Return the norm of order `ord` over axes, as `weft.norm`.

    Parameters
    ----------
    x
        A tensor of floats or complex numbers; integers count as float32.
    axis
        The axes of the vectors, by position or name, one or a list; by default all.
    keepdims
        Whether the axes are kept, with length 1.
    ord
        The order: a number, or infinity for the largest and minus infinity for the smallest
        absolute value; 0 counts what is not zero.

    Returns
    -------
    TensorOp
        The norms, real.

    Raises
    ------
    AxesError
        If there is no such axis.
    ArgumentError
        If the order is no number.

    Examples
    --------
    >>> x = np.array([[3.0, 4.0], [6.0, 8.0]])
    >>> weft.jit(lambda x: weft.linalg.vector_norm(x, axis=-1))(x)
    array([ 5., 10.])
    """
    return norm(x, ord, axis, keepdims=keepdims)


def matrix_norm(
    x: TensorLike, *, keepdims: bool = False, ord: float | str | None = "fro"
) -> TensorOp:
    """Return the norm of matrices in the last two axes.

    Parameters
    ----------
    x
        Matrices (..., rows, columns) of floats or complex numbers; integers count as float32.
    keepdims
        Whether the last two axes are kept, with length 1.
    ord
        ``"fro"`` or None for the Frobenius norm; 1 and -1 for the largest and the smallest sum of
        absolute values in a column, infinity and minus infinity for those in a row.

    Returns
    -------
    TensorOp
        The norms, real.

    Raises
    ------
    AxesError
        If x has fewer than two axes.
    ArgumentError
        If the order is another one: 2, -2 and ``"nuc"`` need singular values.

    Examples
    --------
    >>> x = np.array([[3.0, 4.0], [0.0, 12.0]])
    >>> weft.jit(weft.linalg.matrix_norm)(x)
    array(13.)
    >>> weft.jit(lambda x: weft.linalg.matrix_norm(x, ord=1))(x)
    array(16.)
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
