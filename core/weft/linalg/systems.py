"""Systems of equations, least squares, pseudoinverses, and the exponential of matrices."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from weft.errors import ArgumentError, AxesError
from weft.ir.axes import Axes
from weft.ir.dtypes import Array, DType
from weft.ir.op import explain, explained
from weft.ir.storage import as_op
from weft.ir.tensor import CompositeOp, TensorLike, TensorOp
from weft.linalg.factorizations import known_matrices, svdvals
from weft.linalg.norms import default_rtol, matrix_rank
from weft.ops.arguments import check_flags
from weft.ops.control.host import HostOp
from weft.ops.pointwise.comparison import greater, where
from weft.ops.pointwise.complex_parts import ViewAsComplexOp, conj, real
from weft.ops.pointwise.elementwise import absolute, cast, real_dtype, square
from weft.ops.products.decompositions import (
    TriangularSolveOp,
    solved,
    solver_operands,
)
from weft.ops.products.factorizations import (
    MatrixExpActionOp,
    MatrixExpOp,
    SingularValuesOp,
    as_stored,
    factorized,
    hermitian,
    in_order,
    inverse_or_zero,
    with_unit_diagonal,
)
from weft.ops.products.fourier import complex_of, parts_of
from weft.ops.products.linalg import matmul, matrix_transpose
from weft.ops.reductions.reduction import sum
from weft.ops.reductions.sorting import argsort
from weft.ops.shape.movement import broadcast, expand_dims
from weft.support.backports import override


class LeastSquares(NamedTuple):
    """A solution of least squares, and what the singular values say about it."""

    x: TensorOp
    residuals: TensorOp
    rank: TensorOp
    singular_values: TensorOp


class PseudoInverseOp(CompositeOp):
    """The pseudoinverse of matrices, without singular values up to a bound times the largest.

    The second operand is the bound, a real number for each matrix.
    """

    @override
    def infer(self) -> tuple[Axes, DType]:
        x = self.args[0]
        return Axes((*x.axes[:-2], x.axes[-1], x.axes[-2])), x.dtype

    def reference(self, x: Array, rtol: Array) -> Any:
        """Invert the singular values by NumPy."""
        is_finite = np.isfinite(x).all((-2, -1), keepdims=True)
        u, s, vh = np.linalg.svd(np.where(is_finite, x, 0), full_matrices=False)
        is_kept = s > s[..., :1] * rtol[..., None]
        inverse = is_kept / np.where(is_kept, s, 1)
        found = (vh.conj().mT * inverse[..., None, :]) @ u.conj().mT
        return np.where(is_finite, found, np.nan).astype(self.dtype)

    @override
    def decompose(self, x: TensorOp, rtol: TensorOp) -> TensorOp:
        packed, m = factorized(SingularValuesOp, x, vectors=True), x.axes.lengths[-2]
        s, u, v = packed[..., :1, :], packed[..., 1 : m + 1, :], packed[..., m + 1 :, :]
        bound = expand_dims(expand_dims(rtol, dim=rtol.rank), dim=rtol.rank + 1)
        is_kept = greater(real(s), real(s[..., :1]) * bound)
        return (v * where(is_kept, inverse_or_zero(s), s * 0)) @ hermitian(u)

    def generate_adjoints(self, delta: TensorOp, x: TensorOp, rtol: TensorOp) -> Any:
        """The derivative at constant rank (Golub and Pereyra, 1973).

        -Pᴴ G Pᴴ + (I - x P) Gᴴ P Pᴴ + Pᴴ P Gᴴ (I - P x).
        """
        p, g = self, conj(delta)
        turned, share = hermitian(p), hermitian(g)
        left, right = share @ (p @ turned), turned @ (p @ share)
        outside = left - x @ (p @ left) + right - (right @ p) @ x
        return conj(outside - turned @ g @ turned), None


class LeastSquaresOp(HostOp):
    """The x of least norm that minimizes the norm of a x - b, without a pseudoinverse of a.

    The operands have equal leading axes. Singular values of a up to a bound times the largest, a
    real number for each matrix, count as zero. LAPACK's gelsd applies the singular vectors to b and
    never makes them, which takes half as long; a batch is a loop over matrices, though.

    Attributes
    ----------
    is_complex
        Whether the matrices are complex, as pairs along one more axis.
    """

    is_complex: bool

    @property
    def flops(self) -> int:
        """About ten times those of a product of the matrix with its transpose."""
        m, n = self._lengths(0)
        return 20 * int(self.args[0].axes.size) * min(m, n)

    def _lengths(self, operand: int) -> tuple[int, ...]:
        return tuple(map(int, self.args[operand].axes.shape[self.args[2].rank :][:2]))

    @override
    def infer(self) -> tuple[Axes, DType]:
        a, b, rtol = self.args
        head = rtol.rank
        if b.rank != a.rank or b.axes.lengths[: head + 1] != a.axes.lengths[: head + 1]:
            raise AxesError(f"the right-hand sides {b.axes} do not fit the matrices {a.axes}")
        return Axes((*a.axes[:head], a.axes[head + 1], *b.axes[head + 1 :])), b.dtype

    def reference(self, a: Array, b: Array, rtol: Array) -> Any:
        """Solve one system after the other by NumPy; NaN for matrices that are not finite."""
        if self.is_complex:
            a, b = complex_of(a), complex_of(b)
        (m, n), (_, k) = self._lengths(0), self._lengths(1)
        found = np.full((rtol.size, n, k), np.nan, b.dtype)
        stacks = (a.reshape(-1, m, n), b.reshape(-1, m, k), np.ravel(rtol), found)
        for matrix, sides, bound, out in zip(*stacks, strict=True):
            if np.isfinite(matrix).all() and np.isfinite(sides).all():
                with suppress(np.linalg.LinAlgError):
                    out[...] = np.linalg.lstsq(matrix, sides, float(bound))[0]
        return (parts_of(found) if self.is_complex else found).reshape(self.axes.shape)

    def generate_adjoints(
        self, delta: TensorOp, a: TensorOp, b: TensorOp, rtol: TensorOp
    ) -> tuple[TensorOp, TensorOp, None]:
        """Those of the product with the pseudoinverse."""
        if self.is_complex:
            a, b, delta = ViewAsComplexOp(a), ViewAsComplexOp(b), ViewAsComplexOp(delta)
        inverse = PseudoInverseOp(a, rtol)
        share, _ = inverse.generate_adjoints(conj(delta @ hermitian(b)), a, rtol)
        return as_stored(conj(share)), as_stored(hermitian(inverse) @ delta), None


_DIRECT = 32
"""The order from which on least squares are LAPACK's one by one; below it are kernels."""


def pinv(x: TensorLike, *, rtol: TensorLike | None = None) -> TensorOp:
    """Return the Moore-Penrose pseudoinverse of matrices.

    The gradient is that at constant rank (Golub and Pereyra, 1973), so equal singular values do not
    matter to it.

    Parameters
    ----------
    x
        Matrices (..., m, n) in the last two axes, of known lengths.
    rtol
        Singular values up to `rtol` times the largest count as zero: a number, or one for each
        matrix. By default the larger of m and n times the distance from 1 to the next number.

    Returns
    -------
    TensorOp
        Matrices (..., n, m). Integers give float32. A matrix that is not finite gives NaN.

    Raises
    ------
    AxesError
        If x has fewer than two axes, named axes, or unknown lengths.

    Examples
    --------
    >>> weft.jit(weft.linalg.pinv)(np.array([[2.0, 0.0], [0.0, 0.0]]))
    array([[0.5, 0. ],
           [0. , 0. ]])
    """
    x, dtype, _ = known_matrices("pinv", x)
    return cast(PseudoInverseOp(x, _bounds(x, rtol)), dtype)


def _bounds(x: TensorOp, rtol: TensorLike | None) -> TensorOp:
    """Return the relative bound on singular values that count, for each matrix."""
    bound = cast(default_rtol(x) if rtol is None else as_op(rtol), real_dtype(x.dtype))
    return broadcast(bound, x.axes[:-2])


def lstsq(a: TensorLike, b: TensorLike, rcond: TensorLike | None = None) -> LeastSquares:
    """Return the x of least norm that minimizes the norm of a x - b.

    It is the product with the pseudoinverse, whose gradient it has.

    Parameters
    ----------
    a
        Matrices (..., m, n) in the last two axes, of known lengths.
    b
        Right-hand sides: a vector of length m, or matrices (..., m, k) whose columns they are.
        Leading axes broadcast.
    rcond
        Singular values up to `rcond` times the largest count as zero, as in `pinv`.

    Returns
    -------
    LeastSquares
        The solutions x, the sums of squares of a x - b for each right-hand side whatever the rank,
        the ranks as int64, and the singular values. A matrix that is not finite gives NaN.

    Raises
    ------
    AxesError
        If the axes do not fit.

    Examples
    --------
    >>> a, b = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]), np.array([1.0, 3.0, 5.0])
    >>> found = weft.jit(weft.linalg.lstsq)(a, b)
    >>> np.round(found.x, 4), found.rank
    (array([1., 2.]), array(2))
    """
    (a, b), dtype = solver_operands("lstsq", a, b)
    _, _, (m, n) = known_matrices("lstsq", a)

    def direct(a: TensorOp, b: TensorOp) -> TensorOp:
        is_complex = a.dtype.kind == "c"
        bounds = _bounds(a, rcond)
        found = LeastSquaresOp(as_stored(a), as_stored(b), bounds, is_complex=is_complex)
        return ViewAsComplexOp(found) if is_complex else found

    is_large = min(m, n) >= _DIRECT
    x = solved("lstsq", direct, a, b) if is_large else matmul(pinv(a, rtol=rcond), b)
    squares = square(absolute(matmul(a, x) - b))
    residuals = sum(squares, -1 if b.rank == 1 else -2)
    rank, values = matrix_rank(a, rtol=rcond), svdvals(a)
    found = real_dtype(dtype)
    return LeastSquares(cast(x, dtype), cast(residuals, found), rank, cast(values, found))


_TRANSPOSED = {0: 0, 1: 1, 2: 2, "N": 0, "T": 1, "C": 2}


def solve_triangular(
    a: TensorLike,
    b: TensorLike,
    trans: int | str = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
    *,
    left: bool = True,
) -> TensorOp:
    """Return the solution x of a x = b, or of x a = b, for triangular matrices.

    Parameters
    ----------
    a
        Square matrices in the last two axes. Only one triangle is read.
    b
        Right-hand sides: a vector, or matrices whose columns they are. Leading axes broadcast.
    trans
        0 or ``"N"`` for a itself, 1 or ``"T"`` for its transpose, 2 or ``"C"`` for its conjugate
        transpose.
    lower
        Whether the lower triangle of a is read; otherwise the upper one.
    unit_diagonal
        Whether the diagonal counts as ones, and is not read.
    left
        Whether a is on the left; otherwise the equation is x a = b, and the right-hand sides are
        the rows of b.

    Returns
    -------
    TensorOp
        The solutions, with the shape of `b`. Integers give float32. A singular matrix gives NaN.

    Raises
    ------
    AxesError
        If the matrices are not square, or `b` does not fit them.
    ArgumentError
        If `trans` is another one, or a flag is not a bool.

    Examples
    --------
    >>> a, b = np.array([[2.0, 0.0], [1.0, 4.0]]), np.array([2.0, 9.0])
    >>> weft.jit(lambda a, b: weft.linalg.solve_triangular(a, b, lower=True))(a, b)
    array([1., 2.])
    """
    kind = "solve_triangular"
    (a, b), dtype = solver_operands(kind, a, b)
    check_flags(kind, lower=lower, unit_diagonal=unit_diagonal, left=left)
    place = _place_of(kind, trans)
    if unit_diagonal:
        below = with_unit_diagonal(a if lower else matrix_transpose(a))
        a = below if lower else matrix_transpose(below)
    if place:
        a, lower = hermitian(a) if place == 2 else matrix_transpose(a), not lower
    if left:
        return cast(solved(kind, TriangularSolveOp, a, b, lower=lower), dtype)
    sides = matrix_transpose(b) if b.rank > 1 else b
    x = solved(kind, TriangularSolveOp, matrix_transpose(a), sides, lower=not lower)
    return cast(matrix_transpose(x) if b.rank > 1 else x, dtype)


def lu_solve(
    factors: tuple[TensorLike, TensorLike], b: TensorLike, trans: int | str = 0
) -> TensorOp:
    """Return the solution x of a x = b from the factors of a that `lu_factor` has found.

    Parameters
    ----------
    factors
        The packed factors, of square matrices, and the permutation.
    b
        Right-hand sides: a vector, or matrices whose columns they are, with the leading axes of a.
    trans
        0 or ``"N"`` for a itself, 1 or ``"T"`` for its transpose, 2 or ``"C"`` for its conjugate
        transpose.

    Returns
    -------
    TensorOp
        The solutions, with the shape of `b`. Integers give float32. A singular matrix gives NaN.

    Raises
    ------
    AxesError
        If the matrices are not square, or `b` does not fit them.
    ArgumentError
        If `trans` is another one.

    Examples
    --------
    >>> a, b = np.array([[1.0, 4.0], [2.0, 4.0]]), np.array([9.0, 10.0])
    >>> weft.jit(lambda a, b: weft.linalg.lu_solve(weft.linalg.lu_factor(a), b))(a, b)
    array([1., 2.])
    """
    kind, (lu, permutation) = "lu_solve", factors
    (lu, b), dtype = solver_operands(kind, lu, b)
    place, order = _place_of(kind, trans), as_op(permutation)
    sides = expand_dims(b, dim=1) if b.rank == 1 else b
    sides = explained(kind, (lu, b), broadcast, sides, Axes((*lu.axes[:-1], sides.axes[-1])))
    lower, upper = with_unit_diagonal(lu), lu
    if place == 0:
        inner = TriangularSolveOp(lower, in_order(sides, order), lower=True)
        x: TensorOp = TriangularSolveOp(upper, inner, lower=False)
    else:
        turned = hermitian if place == 2 else matrix_transpose
        inner = TriangularSolveOp(turned(upper), sides, lower=True)
        x = in_order(TriangularSolveOp(turned(lower), inner, lower=False), argsort(order))
    return cast(x[..., 0] if b.rank == 1 else x, dtype)


def matrix_exp(x: TensorLike) -> TensorOp:
    """Return the exponentials of square matrices.

    They are found by scaling and squaring with a Padé approximant of degree 13 (Higham, The scaling
    and squaring method for the matrix exponential revisited, 2005). The gradient is a block of the
    exponential of a matrix of twice the order, exact to all orders. A matrix that is not finite
    gives NaN.

    Examples
    --------
    >>> weft.jit(weft.linalg.matrix_exp)(np.array([[0.0, 1.0], [0.0, 0.0]]))
    array([[1., 1.],
           [0., 1.]])
    """
    (x,), dtype = solver_operands("matrix_exp", x)
    return cast(factorized(MatrixExpOp, x), dtype)


def expm_multiply(a: TensorLike, b: TensorLike) -> TensorOp:
    """Return the product of the exponential of square matrices with vectors or matrices.

    The exponential is not made: its series is applied to `b`, as often as the norm of `a` needs
    (Al-Mohy and Higham, Computing the action of the matrix exponential, 2011). Where that costs
    more than the exponential, because the norm is large or the matrices are small, it is made
    after all, and for the gradient by `a`.

    Parameters
    ----------
    a
        Square matrices in the last two axes.
    b
        A vector, or matrices with as many rows as a. Leading axes broadcast.

    Returns
    -------
    TensorOp
        The products. Integers give float32. A matrix that is not finite gives NaN.

    Raises
    ------
    AxesError
        If the matrices are not square, or `b` does not fit them.

    Examples
    --------
    >>> a, b = np.array([[0.0, 1.0], [0.0, 0.0]]), np.array([1.0, 2.0])
    >>> weft.jit(weft.linalg.expm_multiply)(a, b)
    array([3., 2.])
    """
    (a, b), dtype = solver_operands("expm_multiply", a, b)
    return cast(solved("expm_multiply", _action, a, b), dtype)


def _action(a: TensorOp, b: TensorOp) -> TensorOp:
    is_complex = a.dtype.kind == "c"
    product = MatrixExpActionOp(as_stored(a), as_stored(b), is_complex=is_complex)
    return ViewAsComplexOp(product) if is_complex else product


def _place_of(kind: str, trans: int | str) -> int:
    """Return 1 for the transpose of a matrix, 2 for the conjugate one, 0 for itself."""
    if trans not in _TRANSPOSED:
        problem = f"trans must be 0, 1 or 2, or 'N', 'T' or 'C', not {trans!r}"
        raise ArgumentError(explain(kind, problem, ()))
    return _TRANSPOSED[trans]
