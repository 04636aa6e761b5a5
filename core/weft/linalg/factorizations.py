"""Factorizations under the names of the array API standard, NumPy and SciPy."""

from __future__ import annotations

from typing import NamedTuple

from weft.errors import AxesError
from weft.ir import dtypes
from weft.ir.axes import Axes, make_axes
from weft.ir.dtypes import DType
from weft.ir.op import explain
from weft.ir.tensor import TensorLike, TensorOp
from weft.ops.arguments import check_choice, check_flags
from weft.ops.pointwise.comparison import equal
from weft.ops.pointwise.complex_parts import real
from weft.ops.pointwise.elementwise import cast, real_dtype
from weft.ops.products.decompositions import TriangularSolveOp, solver_operands
from weft.ops.products.factorizations import (
    EigenOp,
    HermitianEigenOp,
    LDLOp,
    LUOp,
    OrthogonalFactorOp,
    SingularValuesOp,
    factorized,
    hermitian,
    in_order,
    permutation_of,
    with_unit_diagonal,
)
from weft.ops.reductions.sorting import argsort
from weft.ops.shape.arrangement import triu
from weft.ops.shape.joining import concat
from weft.ops.shape.movement import IotaOp, broadcast, expand_dims

Lengths = tuple[int, int]


class QR(NamedTuple):
    """The factors of x = Q R."""

    Q: TensorOp
    R: TensorOp


class SVD(NamedTuple):
    """The factors of x = U diag(S) Vh."""

    U: TensorOp
    S: TensorOp
    Vh: TensorOp


class Eigen(NamedTuple):
    """Eigenvalues, and eigenvectors in columns."""

    eigenvalues: TensorOp
    eigenvectors: TensorOp


class LU(NamedTuple):
    """The factors of x = P L U."""

    P: TensorOp
    L: TensorOp
    U: TensorOp


class LUFactors(NamedTuple):
    """L and U of x[permutation] = L U in one matrix, without the ones on the diagonal of L."""

    lu: TensorOp
    permutation: TensorOp


class LDL(NamedTuple):
    """The factors of x = lu d luᴴ, and the order in which the rows of lu are triangular."""

    lu: TensorOp
    d: TensorOp
    perm: TensorOp


def qr(x: TensorLike, *, mode: str = "reduced") -> QR:
    """Return the factors of x = Q R: orthonormal columns, and an upper triangle.

    The signs are those of LAPACK's Householder reflections: so the diagonal of R is real, and may
    be negative. Where the first columns of x, as many as Q has, depend on each other, there is no
    gradient. (Its formula: Walter and Lehmann, 2010.)

    Parameters
    ----------
    x
        Matrices (..., m, n) in the last two axes, of known lengths; k is the smaller of m and n.
    mode
        ``"reduced"`` for Q (..., m, k) and R (..., k, n); ``"complete"`` for Q (..., m, m) and R
        (..., m, n), where the columns of Q that are more than n have no gradient.

    Returns
    -------
    QR
        The factors Q and R. Integers give float32. A matrix that is not finite gives NaN.

    Raises
    ------
    AxesError
        If x has fewer than two axes, named axes, or unknown lengths.
    ArgumentError
        If `mode` is another one.

    Examples
    --------
    >>> x = np.array([[3.0, 1.0], [4.0, 3.0]])
    >>> found = weft.jit(weft.linalg.qr)(x)
    >>> np.round(found.R, 4)
    array([[-5., -3.],
           [ 0.,  1.]])
    """
    check_choice("qr", "mode", mode, ("reduced", "complete"))
    x, dtype, (m, n) = known_matrices("qr", x)
    tall = x[..., :m] if m < n else x
    packed = factorized(OrthogonalFactorOp, tall, complete=False)
    q, r = packed[..., :m, :], packed[..., m:, :]
    if m < n:
        r = concat([r, hermitian(q) @ x[..., m:]], -1)
    if mode == "complete" and m > n:
        q = concat([q, _completed(q)], -1)
        r = concat([r, broadcast(cast(0, r.dtype), Axes((*r.axes[:-2], m - n, n)))], -2)
    return QR(cast(q, dtype), cast(r, dtype))


def _completed(columns: TensorOp) -> TensorOp:
    """Return orthonormal columns that make a square matrix together with those given."""
    whole = factorized(OrthogonalFactorOp, columns, complete=True)
    return whole[..., columns.axes.lengths[-1] :]


def svd(x: TensorLike, *, full_matrices: bool = True) -> SVD:
    """Return singular values S, descending, with x = U diag(S) Vh.

    The signs, or phases, of pairs of singular vectors depend on the backend; only results that do
    not depend on them have a meaningful gradient. The gradient of U and Vh divides by differences
    of singular values and by singular values. Pairs of equal ones and zeros are left out: that is
    right only for results to which the vectors of equal ones contribute alike, such as the product
    of U and Vh. (Townsend, 2016.)

    Parameters
    ----------
    x
        Matrices (..., m, n) in the last two axes, of known lengths; k is the smaller of m and n.
    full_matrices
        Whether U is (..., m, m) and Vh (..., n, n), where vectors that belong to no singular value
        have no gradient. Otherwise they are (..., m, k) and (..., k, n).

    Returns
    -------
    SVD
        U, S and Vh; S is real. Integers give float32. A matrix that is not finite gives NaN.

    Raises
    ------
    AxesError
        If x has fewer than two axes, named axes, or unknown lengths.
    ArgumentError
        If `full_matrices` is not a bool.

    Examples
    --------
    >>> x = np.array([[3.0, 0.0], [0.0, 4.0], [0.0, 0.0]])
    >>> found = weft.jit(lambda x: weft.linalg.svd(x, full_matrices=False))(x)
    >>> found.S, found.U.shape
    (array([4., 3.]), (3, 2))
    """
    check_flags("svd", full_matrices=full_matrices)
    x, dtype, (m, n) = known_matrices("svd", x)
    packed = factorized(SingularValuesOp, x, vectors=True)
    u, v = packed[..., 1 : m + 1, :], packed[..., m + 1 :, :]
    if full_matrices and m > n:
        u = concat([u, _completed(u)], -1)
    if full_matrices and n > m:
        v = concat([v, _completed(v)], -1)
    return SVD(cast(u, dtype), _values(packed, dtype), cast(hermitian(v), dtype))


def svdvals(x: TensorLike) -> TensorOp:
    """Return the singular values of matrices in the last two axes, descending.

    They are real. A matrix that is not finite gives NaN. The gradient of equal ones, and of zeros,
    is that of one choice among their singular vectors.

    Examples
    --------
    >>> weft.jit(weft.linalg.svdvals)(np.array([[0.0, 3.0], [-4.0, 0.0]]))
    array([4., 3.])
    """
    x, dtype, _ = known_matrices("svdvals", x)
    return _values(factorized(SingularValuesOp, x, vectors=False), dtype)


def eigh(x: TensorLike) -> Eigen:
    """Return the eigenvalues of symmetric or Hermitian matrices, ascending, and eigenvectors.

    Only the lower triangle is read; the gradient is Hermitian. The signs, or phases, of
    eigenvectors depend on the backend. Their gradient divides by differences of eigenvalues. Pairs
    of equal ones are left out: that is right only for results to which their eigenvectors
    contribute alike, such as the projection onto the space of these. A matrix that is not finite
    gives NaN. (Giles, 2008.)

    Examples
    --------
    >>> found = weft.jit(weft.linalg.eigh)(np.array([[2.0, 1.0], [1.0, 2.0]]))
    >>> found.eigenvalues, np.round(found.eigenvectors**2, 4)
    (array([1., 3.]), array([[0.5, 0.5],
           [0.5, 0.5]]))
    """
    x, dtype, _ = known_matrices("eigh", x)
    packed = factorized(HermitianEigenOp, x, vectors=True)
    return Eigen(_values(packed, dtype), cast(packed[..., 1:, :], dtype))


def eigvalsh(x: TensorLike) -> TensorOp:
    """Return the eigenvalues of symmetric or Hermitian matrices, ascending.

    Only the lower triangle is read; the gradient is Hermitian. A matrix that is not finite gives
    NaN.

    Examples
    --------
    >>> weft.jit(weft.linalg.eigvalsh)(np.array([[2.0, 1.0], [1.0, 2.0]]))
    array([1., 3.])
    """
    x, dtype, _ = known_matrices("eigvalsh", x)
    return _values(factorized(HermitianEigenOp, x, vectors=False), dtype)


def eig(x: TensorLike) -> Eigen:
    """Return the eigenvalues of square matrices in LAPACK's order, and eigenvectors; both complex.

    Eigenvectors have length 1 and a largest element that is real. Their gradient divides by
    differences of eigenvalues; it leaves out pairs of equal ones, and assumes that the phase of an
    eigenvector does not matter. A matrix that is not finite gives NaN.

    Examples
    --------
    >>> found = weft.jit(weft.linalg.eig)(np.array([[0.0, 1.0], [4.0, 0.0]]))
    >>> np.sort(found.eigenvalues.real)
    array([-2.,  2.])
    """
    x, _, _ = known_matrices("eig", x)
    packed = factorized(EigenOp, x, vectors=True)
    return Eigen(packed[..., 0, :], packed[..., 1:, :])


def eigvals(x: TensorLike) -> TensorOp:
    """Return the eigenvalues of square matrices, complex, in LAPACK's order.

    A matrix that is not finite gives NaN. The gradient of equal eigenvalues does not exist.

    Examples
    --------
    >>> found = weft.jit(weft.linalg.eigvals)(np.array([[0.0, 1.0], [-1.0, 0.0]]))
    >>> np.sort(found.imag)
    array([-1.,  1.])
    """
    x, _, _ = known_matrices("eigvals", x)
    return factorized(EigenOp, x, vectors=False)[..., 0, :]


def lu_factor(x: TensorLike) -> LUFactors:
    """Return the LU factorization of matrices with partial pivoting, for `lu_solve`.

    Each row number of the matrix stands once in the permutation, unlike in SciPy, which lists
    exchanges. The gradient is that of the factors in this order; for a singular matrix it is NaN or
    infinite.

    Examples
    --------
    >>> found = weft.jit(weft.linalg.lu_factor)(np.array([[1.0, 4.0], [2.0, 4.0]]))
    >>> found.lu, found.permutation
    (array([[2. , 4. ],
           [0.5, 2. ]]), array([1, 0]))
    """
    x, dtype, (m, n) = known_matrices("lu_factor", x)
    packed = factorized(LUOp, x[..., :m] if m < n else x)
    factors, order = packed[..., :-1], permutation_of(packed)
    if m < n:
        lower, rest = with_unit_diagonal(factors), in_order(x[..., m:], order)
        rest = TriangularSolveOp(lower, rest, lower=True)
        factors = concat([factors, rest], -1)
    return LUFactors(cast(factors, dtype), order)


def lu(x: TensorLike) -> LU:
    """Return the factors of x = P L U: a permutation, a lower triangle with ones, an upper one.

    P are matrices (..., m, m), L (..., m, k) and U (..., k, n), where k is the smaller of m and n.
    The pivot of a column is its largest element. The gradient of a singular matrix is NaN or
    infinite.

    Examples
    --------
    >>> found = weft.jit(weft.linalg.lu)(np.array([[1.0, 4.0], [2.0, 4.0]]))
    >>> found.L, found.U
    (array([[1. , 0. ],
           [0.5, 1. ]]), array([[2., 4.],
           [0., 2.]]))
    """
    factors, order = lu_factor(x)
    m, n = factors.axes.lengths[-2:]
    k = min(m, n)
    lower = with_unit_diagonal(factors[..., :k, :k])
    lower = concat([lower, factors[..., k:, :k]], -2)
    columns = make_axes((m, m))
    numbers = IotaOp(target_axes=columns, target_dtype=dtypes.int64, position=0)
    rows = equal(expand_dims(order, dim=order.rank - 1), numbers)
    return LU(cast(rows, factors.dtype), lower, triu(factors[..., :k, :]))


def ldl(x: TensorLike) -> LDL:
    """Return the factors of x = lu d luᴴ of symmetric or Hermitian matrices, definite or not.

    `d` has blocks of order 1 and 2 on the diagonal (Bunch and Kaufman, 1977), and `lu`, with its
    rows in the order `perm`, is lower triangular with ones on the diagonal, as in SciPy. Only the
    lower triangle is read. The gradient is Hermitian, and NaN or infinite for a singular matrix. A
    matrix that is not finite gives NaN.

    Examples
    --------
    >>> found = weft.jit(weft.linalg.ldl)(np.array([[4.0, 2.0], [2.0, 3.0]]))
    >>> found.lu, found.d
    (array([[1. , 0. ],
           [0.5, 1. ]]), array([[4., 0.],
           [0., 2.]]))
    """
    x, dtype, (n, _) = known_matrices("ldl", x)
    packed = factorized(LDLOp, x)
    order = permutation_of(packed)
    lower = in_order(packed[..., :n], argsort(order))
    return LDL(cast(lower, dtype), cast(packed[..., n : 2 * n], dtype), order)


def known_matrices(kind: str, x: TensorLike) -> tuple[TensorOp, DType, Lengths]:
    """Return matrices in a dtype of the solvers, the dtype of the results, and their lengths."""
    (found,), dtype = solver_operands(kind, x)
    m, n = found.axes.lengths[-2:]
    if not (isinstance(m, int) and isinstance(n, int)):
        problem = f"needs matrices of known lengths, not {found.axes}"
        raise AxesError(explain(kind, problem, (found,)))
    return found, dtype, (m, n)


def _values(packed: TensorOp, dtype: DType) -> TensorOp:
    """Return the first row, which is real."""
    return cast(real(packed[..., 0, :]), real_dtype(dtype))
