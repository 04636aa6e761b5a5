"""Norms of vectors and matrices, condition numbers and ranks."""

from __future__ import annotations

import math

import numpy as np

from weft.errors import ArgumentError, AxesError
from weft.ir import dtypes
from weft.ir.axes import Axes, AxisKeys
from weft.ir.op import explain
from weft.ir.storage import as_op
from weft.ir.tensor import TensorLike, TensorOp
from weft.linalg.factorizations import known_matrices, svdvals
from weft.ops.pointwise.comparison import greater
from weft.ops.pointwise.elementwise import absolute, cast
from weft.ops.products.decompositions import inv
from weft.ops.products.linalg import require_matrices
from weft.ops.reductions.reduction import max, min, sum
from weft.ops.reductions.statistics import norm
from weft.ops.shape.movement import cast_axes, expand_dims


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
        If the order is not a number.

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
        absolute values in a column, infinity and minus infinity for those in a row; 2 and -2 for
        the largest and the smallest singular value, ``"nuc"`` for the sum of all.

    Returns
    -------
    TensorOp
        The norms, real.

    Raises
    ------
    AxesError
        If x has fewer than two axes, or matrices without elements have no such norm.
    ArgumentError
        If the order is another one.

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
    if ord in (2, -2, "nuc"):
        values = svdvals(x) if ord == "nuc" else _some_svdvals("matrix_norm", x)
        chosen = sum(values, -1) if ord == "nuc" else values[..., 0 if ord == 2 else -1]
        return cast_axes(chosen, Axes((*chosen.axes, 1, 1))) if keepdims else chosen
    if ord not in (1, -1, math.inf, -math.inf):
        problem = f"ord must be 'fro', 'nuc', 1, -1, 2, -2, inf or -inf, not {ord!r}"
        raise ArgumentError(explain("matrix_norm", problem, (x,)))
    summed = -2 if abs(ord) == 1 else -1
    extremum = max if ord > 0 else min
    sums = sum(absolute(x), summed, keepdims=True)
    return extremum(sums, (-2, -1), keepdims=keepdims)


def matrix_rank(x: TensorLike, *, rtol: TensorLike | None = None) -> TensorOp:
    """Return how many singular values of matrices are not negligible.

    Parameters
    ----------
    x
        Matrices (..., m, n) in the last two axes, of known lengths.
    rtol
        Singular values up to `rtol` times the largest are negligible: a number, or one for each
        matrix. By default the larger of m and n times the distance from 1 to the next number.

    Returns
    -------
    TensorOp
        The ranks, as int64, without a gradient. A matrix that is not finite has rank 0.

    Raises
    ------
    AxesError
        If x has fewer than two axes, named axes, or unknown lengths.

    Examples
    --------
    >>> weft.jit(weft.linalg.matrix_rank)(np.array([[1.0, 2.0], [2.0, 4.0]]))
    array(1)
    """
    found, _, _ = known_matrices("matrix_rank", x)
    values = svdvals(found)
    bound = as_op(default_rtol(found) if rtol is None else rtol)
    bound = values[..., :1] * cast(expand_dims(bound, dim=bound.rank), values.dtype)
    return sum(cast(greater(values, bound), dtypes.int64), -1)


def cond(x: TensorLike, p: float | str | None = None) -> TensorOp:
    """Return the condition number of matrices: a norm of the matrix times that of its inverse.

    Parameters
    ----------
    x
        Matrices in the last two axes; square unless the norm is that of singular values.
    p
        The order of the norm, as in `matrix_norm`; by default 2, for the largest singular value
        over the smallest one, and -2 for its inverse.

    Returns
    -------
    TensorOp
        The condition numbers, real. A singular matrix gives infinity, or, for norms that need the
        inverse, NaN. A matrix that is not finite gives NaN.

    Raises
    ------
    AxesError
        If x has fewer than two axes, named axes, no elements in a matrix, or is not square where it
        must be.
    ArgumentError
        If the order is another one.

    Examples
    --------
    >>> weft.jit(weft.linalg.cond)(np.array([[4.0, 0.0], [0.0, 2.0]]))
    array(2.)
    """
    if p in (None, 2, -2):
        values = _some_svdvals("cond", as_op(x))
        large, small = values[..., 0], values[..., -1]
        return small / large if p == -2 else large / small
    return matrix_norm(x, ord=p) * matrix_norm(inv(x), ord=p)


def _some_svdvals(kind: str, x: TensorOp) -> TensorOp:
    """Return the singular values of matrices that have some."""
    values = svdvals(x)
    if not values.axes[-1].length:
        problem = f"matrices of {x.axes} have no elements, and so no largest singular value"
        raise AxesError(explain(kind, problem, (x,)))
    return values


def default_rtol(x: TensorOp) -> float:
    """Return the relative size up to which singular values count as zero."""
    rows, columns = x.axes.lengths[-2:]
    largest = rows if rows > columns else columns
    return float(largest * np.finfo(x.dtype).eps)
