"""Factorizations of matrices: orthogonal factors, eigenvalues, singular values, LU, LDL.

LAPACK computes them, through NumPy on the host. Each op packs its factors into one matrix. Complex
matrices are pairs, the real and the imaginary part along a last axis, so that a backend needs no
complex dtype for them.

Calls raise no errors, because a device cannot: a matrix with an element that is read and not
finite, or one for which the iteration does not converge, gives NaN, without an effect on the other
matrices of the stack.

In adjoints, G is the gradient with respect to the real part plus i times that with respect to the
imaginary part; the inner product of matrices is the real part of the trace of Gᴴ dX.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from weft.errors import AxesError, DTypeError, GradientError
from weft.ir import dtypes
from weft.ir.axes import Axes, Axis
from weft.ir.dtypes import Array, DType
from weft.ir.tensor import TensorOp
from weft.ops.control.host import HostOp
from weft.ops.indexing.multi_index import take_along_axis
from weft.ops.pointwise.comparison import equal, where
from weft.ops.pointwise.complex_parts import (
    ViewAsComplexOp,
    ViewAsRealOp,
    conj,
    real,
)
from weft.ops.pointwise.elementwise import cast
from weft.ops.products import dense_algorithms
from weft.ops.products.decompositions import SolveOp, TriangularSolveOp
from weft.ops.products.fourier import complex_of, parts_of
from weft.ops.products.linalg import diagonal, matrix_transpose
from weft.ops.reductions.sorting import argsort
from weft.ops.shape.arrangement import tril, triu
from weft.ops.shape.joining import concat
from weft.ops.shape.movement import IotaOp, ReshapeOp, broadcast, zeros_like
from weft.support.backports import override


class FactorizationOp(HostOp):
    """Factors of each matrix in the last two axes, packed into one matrix.

    Attributes
    ----------
    is_complex
        Whether the matrices are complex, as pairs along one more axis.
    """

    is_complex: bool

    gives_pairs: ClassVar[bool] = False
    """Whether the factors of real matrices are complex too."""

    @property
    def matrix_shape(self) -> tuple[int, int]:
        """The numbers of rows and columns of each operand."""
        lengths = self.args[0].axes.lengths
        m, n = lengths[-3:-1] if self.is_complex else lengths[-2:]
        return m, n

    @property
    def packed(self) -> tuple[int, int]:
        """The numbers of rows and columns of each packed result."""
        return self.matrix_shape

    @property
    def flops(self) -> int:
        """About ten times those of a product of the matrix with itself, as for eigenvalues."""
        m, n = self.matrix_shape
        return 20 * int(self.args[0].axes.size) * min(m, n)

    def infer(self) -> tuple[Axes, DType]:
        """Check that there are floats, in matrices of known lengths that fit."""
        (x,) = self.args
        tail = 3 if self.is_complex else 2
        if x.dtype not in (dtypes.float32, dtypes.float64):
            raise DTypeError(f"factorizations take float32, float64 and their pairs, not {x.dtype}")
        if x.rank < tail or x.axes.is_named or (self.is_complex and x.axes[-1].length != 2):
            raise AxesError(f"needs matrices in the last positional axes, not {x.axes}")
        if not all(isinstance(length, int) for length in self.matrix_shape):
            raise AxesError(f"needs matrices of known lengths, not {x.axes}")
        self.check(*self.matrix_shape)
        pair = (Axis(2),) if self.is_complex or self.gives_pairs else ()
        matrix = (Axis(length) for length in self.packed)
        return Axes((*x.axes[: x.rank - tail], *matrix, *pair)), x.dtype

    def check(self, rows: int, columns: int) -> None:
        """Raise AxesError if the operation takes no matrices of this shape: by default oblong."""
        if rows != columns:
            raise AxesError(f"needs square matrices in the last two axes, not {rows} x {columns}")

    def read(self, x: Array) -> Array:
        """Return the matrices as far as they are read."""
        return x

    def factorize(self, x: Array) -> Array:
        """Return the packed factors of a stack of finite matrices; may raise LinAlgError."""
        raise NotImplementedError

    def reference(self, x: Array) -> Any:
        """Factorize matrices that are finite; NaN for others, and for those where that fails."""
        x = complex_of(x) if self.is_complex else np.asarray(x)
        flat = self.read(x.reshape(math.prod(x.shape[:-2]), *self.matrix_shape))
        gives_pairs = self.is_complex or self.gives_pairs
        dtype = np.result_type(flat, np.complex64) if gives_pairs else flat.dtype
        is_finite = np.isfinite(flat).all((1, 2))
        if flat.size and is_finite.all():
            result = np.asarray(self._factors_or_nan(flat), dtype)
        else:
            result = np.full((len(flat), *self.packed), np.nan, dtype)
            if result.size:
                result[is_finite] = self._factors_or_nan(flat[is_finite])
        return (parts_of(result) if gives_pairs else result).reshape(self.axes.shape)

    def _factors_or_nan(self, x: Array) -> Array:
        try:
            return self.factorize(x)
        except np.linalg.LinAlgError:
            if len(x) == 1:
                return np.full((1, *self.packed), np.nan)
            return np.concatenate([self._factors_or_nan(each[None]) for each in x])

    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Hand matrices to `adjoint`, complex ones instead of pairs."""
        given: Callable[..., Any] = ViewAsComplexOp if self.is_complex else _same
        found: Callable[..., Any] = ViewAsComplexOp if self.gives_pairs else given
        share = self.adjoint(found(self), found(delta), given(x))
        if self.is_complex:
            return (ViewAsRealOp(share),)
        return (real(share) if self.gives_pairs else share,)

    def adjoint(self, packed: TensorOp, delta: TensorOp, x: TensorOp) -> TensorOp:
        """Return the gradient of the matrices, from those of the packed factors."""
        raise NotImplementedError


class OrthogonalFactorOp(FactorizationOp):
    """Q with orthonormal columns, and R below it, of x = Q R, of matrices that are not wide.

    Q is the product of Householder reflections that LAPACK's geqrf makes; so are the signs. Where
    the columns of x depend on each other there is no gradient: it is NaN or infinite.

    Attributes
    ----------
    complete
        Whether Q is square and alone; the columns that x does not determine have no gradient.
    """

    complete: bool

    @property
    @override
    def packed(self) -> tuple[int, int]:
        m, n = self.matrix_shape
        return (m, m) if self.complete else (m + n, n)

    @override
    def check(self, rows: int, columns: int) -> None:
        _require_tall(rows, columns)

    @override
    def factorize(self, x: Array) -> Array:
        if self.complete:
            return np.linalg.qr(x, "complete")[0]
        return np.concatenate(np.linalg.qr(x), 1)

    def adjoint(self, packed: TensorOp, delta: TensorOp, x: TensorOp) -> TensorOp:
        """(dQ + Q S) R⁻ᴴ, S Hermitian with the lower half of R dRᴴ - dQᴴ Q.

        (Walter and Lehmann, Algorithmic differentiation of linear algebra functions, 2010.)
        """
        if self.complete:
            problem = (
                "the columns beside those of the reduced factor are not a function of the matrix"
            )
            raise GradientError(self.explain(f"{problem}, so they have no gradient"))
        m, _ = self.matrix_shape
        q, r, dq, dr = packed[..., :m, :], packed[..., m:, :], delta[..., :m, :], delta[..., m:, :]
        lower = tril(r @ hermitian(triu(dr)) - hermitian(dq) @ q)
        half = (lower + tril(lower, -1)) * 0.5
        return _over_upper(dq + q @ (half + hermitian(half)), r)


class HermitianEigenOp(FactorizationOp):
    """Eigenvalues of Hermitian matrices, ascending, in a row, and eigenvectors in columns below.

    Only the lower triangle is read. The gradient is Hermitian. That of eigenvectors divides by
    differences of eigenvalues, and leaves out pairs of equal ones, so that it is finite.

    Attributes
    ----------
    vectors
        Whether there are eigenvectors.
    """

    vectors: bool

    @property
    @override
    def packed(self) -> tuple[int, int]:
        n = self.matrix_shape[1]
        return 1 + n * self.vectors, n

    @override
    def read(self, x: Array) -> Array:
        below = np.tril(x, -1)
        middle = np.einsum("...ii->...i", x).real[..., None] * np.eye(x.shape[-1], dtype=x.dtype)
        return np.asarray(below + below.conj().mT + middle) if x.size else x

    @override
    def factorize(self, x: Array) -> Array:
        if not self.vectors:
            return np.linalg.eigvalsh(x)[:, None]
        values, vectors = np.linalg.eigh(x)
        return np.concatenate([values[:, None], vectors], 1)

    def adjoint(self, packed: TensorOp, delta: TensorOp, x: TensorOp) -> TensorOp:
        """V (diag(dw) + F (Vᴴ dV)) Vᴴ with F_ij = 1 / (w_j - w_i) (Giles, 2008)."""
        if not self.vectors:
            packed = as_matrix(HermitianEigenOp, self.args[0], self.is_complex, vectors=True)
        values, vectors = packed[..., :1, :], packed[..., 1:, :]
        inner = on_diagonal(_as_real(delta[..., :1, :]))
        if self.vectors:
            product = hermitian(vectors) @ delta[..., 1:, :]
            gaps = values - matrix_transpose(values)
            inner = inner + inverse_or_zero(gaps) * (product - hermitian(product)) * 0.5
        return vectors @ inner @ hermitian(vectors)


class SingularValuesOp(FactorizationOp):
    """Singular values of x = U S Vᴴ, descending, in a row, and below the columns of U and of V.

    The gradient of U and V divides by differences and sums of singular values, and leaves out pairs
    of equal ones and zeros, so that it is finite.

    Attributes
    ----------
    vectors
        Whether there are singular vectors.
    """

    vectors: bool

    @property
    @override
    def packed(self) -> tuple[int, int]:
        m, n = self.matrix_shape
        return 1 + (m + n) * self.vectors, min(m, n)

    @override
    def check(self, rows: int, columns: int) -> None:
        """Accept all."""

    @override
    def factorize(self, x: Array) -> Array:
        if not self.vectors:
            return np.linalg.svd(x, compute_uv=False)[:, None]
        u, s, vh = np.linalg.svd(x, full_matrices=False)
        return np.concatenate([s[:, None], u, vh.conj().mT], 1)

    def adjoint(self, packed: TensorOp, delta: TensorOp, x: TensorOp) -> TensorOp:
        """U (F (M + N) + E (M - N) + diag(ds)) Vᴴ, and the parts outside of U and V.

        M and N are Uᴴ dU and Vᴴ dV less their conjugate transposes, F_ij = 1/2 / (s_j - s_i), and
        E_ij = 1/2 / (s_j + s_i). (Townsend, Differentiating the singular value decomposition, 2016;
        Wan and Zhang, Automatic differentiation for complex valued SVD, 2019.)
        """
        m, n = self.matrix_shape
        if not self.vectors:
            packed = as_matrix(SingularValuesOp, self.args[0], self.is_complex, vectors=True)
        s, u, v = packed[..., :1, :], packed[..., 1 : m + 1, :], packed[..., m + 1 :, :]
        inner = on_diagonal(_as_real(delta[..., :1, :]))
        if not self.vectors:
            return u @ inner @ hermitian(v)
        du, dv = delta[..., 1 : m + 1, :], delta[..., m + 1 :, :]
        left, right = hermitian(u) @ du, hermitian(v) @ dv
        column, inverse = matrix_transpose(s), inverse_or_zero(s)
        together, apart = left + right, left - right
        inner = inner + 0.5 * inverse_or_zero(s - column) * (together - hermitian(together))
        inner = inner + 0.5 * inverse_or_zero(s + column) * (apart - hermitian(apart))
        share = u @ inner
        if m > n:
            share = share + (du - u @ left) * inverse
        share = share @ hermitian(v)
        if n > m:
            share = share + u @ hermitian((dv - v @ right) * inverse)
        return share


class LUOp(FactorizationOp):
    """L and U of x[p] = L U in one matrix, with no fewer rows than columns, and p as last column.

    L has ones on the diagonal, which are left out. The gradient of a singular matrix is NaN or
    infinite.
    """

    @property
    @override
    def packed(self) -> tuple[int, int]:
        m, n = self.matrix_shape
        return m, n + 1

    @override
    def check(self, rows: int, columns: int) -> None:
        _require_tall(rows, columns)

    @override
    def factorize(self, x: Array) -> Array:
        factors, order = dense_algorithms.lu(x)
        return np.concatenate([factors, order[..., None].astype(x.dtype)], 2)

    def adjoint(self, packed: TensorOp, delta: TensorOp, x: TensorOp) -> TensorOp:
        """L⁻ᴴ (lower part of Lᴴ dL + upper part of dU Uᴴ) U⁻ᴴ, with the rows put back."""
        n = self.matrix_shape[1]
        top, below, order = packed[..., :n, :n], packed[..., n:, :n], permutation_of(packed)
        lower, upper = with_unit_diagonal(top), triu(top)
        d_upper, d_below = triu(delta[..., :n, :n]), delta[..., n:, :n]
        shares = []
        if self.matrix_shape[0] > n:
            shares = [_over_upper(d_below, upper)]
            d_upper = d_upper - triu(hermitian(below) @ shares[0])
        inner = tril(hermitian(lower) @ tril(delta[..., :n, :n], -1), -1)
        inner = inner + triu(d_upper @ hermitian(upper))
        inner = _over_upper(inner, upper)
        share = TriangularSolveOp(hermitian(lower), inner, lower=False)
        return in_order(concat([share, *shares], -2), argsort(order))


class LDLOp(FactorizationOp):
    """L, D and p side by side, of x[p][:, p] = L D Lᴴ, for Hermitian matrices, definite or not.

    Only the lower triangle is read. D has blocks of order 1 and 2. The gradient is Hermitian, and
    NaN or infinite where D is singular.
    """

    @property
    @override
    def packed(self) -> tuple[int, int]:
        n = self.matrix_shape[1]
        return n, 2 * n + 1

    read = HermitianEigenOp.read

    @override
    def factorize(self, x: Array) -> Array:
        each = [dense_algorithms.ldl(matrix) for matrix in x]
        return np.stack(
            [np.concatenate([lower, middle, order[:, None]], 1) for lower, middle, order in each]
        )

    def adjoint(self, packed: TensorOp, delta: TensorOp, x: TensorOp) -> TensorOp:
        """L⁻ᴴ (dD in the blocks, Lᴴ dL D⁻ᴴ below) L⁻¹, made Hermitian, with the order put back."""
        n = self.matrix_shape[1]
        lower, middle = packed[..., :n], packed[..., n : 2 * n]
        is_block = _is_diagonal(middle) | ~equal(middle, 0)
        product = hermitian(lower) @ delta[..., :n]
        divided = hermitian(SolveOp(middle, hermitian(product)))
        inner = where(is_block, delta[..., n : 2 * n], tril(divided, -1))
        turned = hermitian(lower)
        left = hermitian(TriangularSolveOp(turned, inner, lower=False))
        both = hermitian(TriangularSolveOp(turned, left, lower=False))
        back = argsort(permutation_of(packed))
        share = in_order(matrix_transpose(in_order(both, back)), back)
        return (matrix_transpose(share) + conj(share)) * 0.5


class EigenOp(FactorizationOp):
    """Eigenvalues of square matrices in a row, and eigenvectors in the columns below, as pairs.

    Vectors have length 1 and a largest element that is real, as LAPACK leaves them. The gradient of
    eigenvectors leaves out pairs of equal eigenvalues, and assumes that the phase of a vector does
    not matter.

    Attributes
    ----------
    vectors
        Whether there are eigenvectors.
    """

    vectors: bool

    gives_pairs = True
    packed = HermitianEigenOp.packed

    @override
    def factorize(self, x: Array) -> Array:
        if not self.vectors:
            return np.linalg.eigvals(x)[:, None]
        values, vectors = np.linalg.eig(x)
        return np.concatenate([values[:, None], vectors], 1)

    def adjoint(self, packed: TensorOp, delta: TensorOp, x: TensorOp) -> TensorOp:
        """V⁻ᴴ (diag(dw) + F (Vᴴ dV - Vᴴ V diag(Vᴴ dV))) Vᴴ, F_ij the conjugate of 1 / (w_j - w_i).

        (Boeddeker and others, On the computation of complex-valued gradients, 2017.)
        """
        if not self.vectors:
            op = EigenOp(self.args[0], is_complex=self.is_complex, vectors=True)
            packed = ViewAsComplexOp(op)
        values, vectors = packed[..., :1, :], packed[..., 1:, :]
        turned = hermitian(vectors)
        inner = on_diagonal(delta[..., :1, :])
        if self.vectors:
            product = turned @ delta[..., 1:, :]
            lengths = _row(real(diagonal(product)))
            gaps = conj(values - matrix_transpose(values))
            product = product - turned @ (vectors * cast(lengths, product.dtype))
            inner = inner + inverse_or_zero(gaps) * product
        return SolveOp(turned, inner @ turned)


class MatrixExpOp(FactorizationOp):
    """The exponential of square matrices, by scaling and squaring."""

    @override
    def factorize(self, x: Array) -> Array:
        return dense_algorithms.expm(x)

    def adjoint(self, packed: TensorOp, delta: TensorOp, x: TensorOp) -> TensorOp:
        """The upper right block of the exponential of [[xᴴ, dX], [0, xᴴ]] (Higham, 2008)."""
        return _derivative_of_exponential(x, delta)


class MatrixExpActionOp(HostOp):
    """The product exp(a) b of stacks of matrices with equal leading axes, without exp(a).

    Attributes
    ----------
    is_complex
        Whether the matrices are complex, as pairs along one more axis.
    """

    is_complex: bool

    @property
    def flops(self) -> int:
        """Those of thirty products of the operands."""
        columns = self.args[0].axes.shape[-1 - self.is_complex]
        return 60 * int(self.args[1].axes.size) * int(columns)

    def infer(self) -> tuple[Axes, DType]:
        """Check the matrices as for their exponential."""
        a, b = self.args
        MatrixExpOp(a, is_complex=self.is_complex)
        last = -1 - self.is_complex
        if b.rank != a.rank or b.axes.lengths[:last] != a.axes.lengths[:last]:
            raise AxesError(f"the right-hand sides {b.axes} do not fit the matrices {a.axes}")
        return b.axes, b.dtype

    def reference(self, a: Array, b: Array) -> Any:
        """Compute products for matrices that are finite; NaN for others."""
        if self.is_complex:
            a, b = complex_of(a), complex_of(b)
        count = math.prod(a.shape[:-2])
        a, sides = (np.asarray(x).reshape(count, *x.shape[-2:]) for x in (a, b))
        is_finite = np.isfinite(a).all((1, 2)) & np.isfinite(sides).all((1, 2))
        found = np.full_like(sides, np.nan)
        found[is_finite] = dense_algorithms.expm_action(a[is_finite], sides[is_finite])
        return (parts_of(found) if self.is_complex else found).reshape(self.axes.shape)

    def generate_adjoints(self, delta: TensorOp, a: TensorOp, b: TensorOp) -> Any:
        """exp(aᴴ) G for b; for a the derivative of its exponential in the direction G bᴴ."""
        given: Callable[..., Any] = ViewAsComplexOp if self.is_complex else _same
        a, b, delta = given(a), given(b), given(delta)
        share = _derivative_of_exponential(a, delta @ hermitian(b))
        turned = as_stored(hermitian(a))
        db = MatrixExpActionOp(turned, as_stored(delta), is_complex=self.is_complex)
        return as_stored(share), db


def factorized(kind: type[FactorizationOp], x: TensorOp, **fields: Any) -> TensorOp:
    """Return the packed factors of real or complex matrices, not as pairs."""
    is_complex = x.dtype.kind == "c"
    return as_matrix(kind, as_stored(x), is_complex, **fields)


def as_stored(x: TensorOp) -> TensorOp:
    """Return complex matrices as pairs, real ones as they are."""
    return ViewAsRealOp(x) if x.dtype.kind == "c" else x


def as_matrix(
    kind: type[FactorizationOp], x: TensorOp, is_complex: bool, **fields: Any
) -> TensorOp:
    """Return packed factors, complex if they are pairs."""
    op = kind(x, is_complex=is_complex, **fields)
    return ViewAsComplexOp(op) if is_complex or kind.gives_pairs else op


def hermitian(x: TensorOp) -> TensorOp:
    """Return the conjugate transpose of matrices."""
    return conj(matrix_transpose(x))


def inverse_or_zero(x: TensorOp) -> TensorOp:
    """Return 1 / x, and 0 where x is 0."""
    is_zero = equal(x, 0)
    return where(is_zero, 0, 1 / where(is_zero, 1, x))


def on_diagonal(row: TensorOp) -> TensorOp:
    """Return diagonal matrices of rows (..., 1, n)."""
    spread = broadcast(row, Axes((*row.axes[:-2], row.axes[-1], row.axes[-1])))
    return where(_is_diagonal(spread), spread, 0)


def with_unit_diagonal(x: TensorOp) -> TensorOp:
    """Return the lower triangle of square matrices, with ones on the diagonal."""
    return where(_is_diagonal(x), 1, tril(x, -1))


def permutation_of(packed: TensorOp) -> TensorOp:
    """Return the order in the last column, as integers; of a matrix of NaN, that of the rows."""
    order = real(packed[..., -1])
    numbers = IotaOp(target_axes=order.axes, target_dtype=dtypes.int64, position=order.rank - 1)
    return where(equal(order, order), cast(order, dtypes.int64), numbers)


def in_order(x: TensorOp, order: TensorOp) -> TensorOp:
    """Return the rows of each matrix in an order of its own."""
    column = ReshapeOp(order, target_axes=Axes((*order.axes, Axis(1))))
    return take_along_axis(x, broadcast(column, x.axes), -2)


def _derivative_of_exponential(x: TensorOp, delta: TensorOp) -> TensorOp:
    turned, n = hermitian(x), x.axes.lengths[-1]
    above = concat([turned, delta], -1)
    below = concat([zeros_like(turned), turned], -1)
    return factorized(MatrixExpOp, concat([above, below], -2))[..., :n, n:]


def _require_tall(rows: int, columns: int) -> None:
    if rows < columns:
        raise AxesError(f"needs no fewer rows than columns, not {rows} x {columns}")


def _same(x: TensorOp) -> TensorOp:
    return x


def _row(x: TensorOp) -> TensorOp:
    return ReshapeOp(x, target_axes=Axes((*x.axes[:-1], Axis(1), x.axes[-1])))


def _as_real(x: TensorOp) -> TensorOp:
    """Return what is the gradient of a real number, in the dtype that it is stored in."""
    return cast(real(x), x.dtype)


def _over_upper(x: TensorOp, upper: TensorOp) -> TensorOp:
    """Return x U⁻ᴴ."""
    return hermitian(TriangularSolveOp(upper, hermitian(x), lower=False))


def _is_diagonal(x: TensorOp) -> TensorOp:
    rows, columns = (
        IotaOp(target_axes=x.axes[-2:], target_dtype=dtypes.int64, position=place)
        for place in (0, 1)
    )
    return broadcast(equal(rows, columns), x.axes)
