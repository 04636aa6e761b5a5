"""Linear systems: Cholesky decomposition, solve, inverse, determinant.

All take stacks of matrices in the last two positional axes. Integer and bool matrices are cast to
float32. Matrices of 16-bit floats are solved in float32 and the result is cast back.

A backend without a solver on its device may compute the primitives on the host, by `reference`.
Calls raise no errors, because a device cannot: a singular matrix, or one that is not positive
definite, gives NaN, without an effect on the other matrices of the stack.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from weft.errors import AxesError, DTypeError
from weft.ir import dtypes
from weft.ir.axes import Axes, Axis, broadcast_axes
from weft.ir.dtypes import Array, DType, accumulator_dtype
from weft.ir.op import explain, explained
from weft.ir.tensor import CompositeOp, TensorLike, TensorOp
from weft.ops.arguments import check_flags, checked_integer
from weft.ops.pointwise.comparison import equal, less_equal, where
from weft.ops.pointwise.complex_parts import complex, conj, imag, real
from weft.ops.pointwise.elementwise import cast
from weft.ops.pointwise.math import exp, log
from weft.ops.products.linalg import (
    MatmulOp,
    as_factors,
    matrix_transpose,
    require_matrices,
    require_positional,
)
from weft.ops.shape.movement import BroadcastOp, IotaOp, broadcast, cast_axes
from weft.support.backports import override

__all__ = [
    "CholeskyOp",
    "DeterminantOp",
    "InverseOp",
    "SolveOp",
    "TriangularSolveOp",
    "cholesky",
    "cholesky_solve",
    "det",
    "inv",
    "inverse",
    "logdet",
    "matrix_power",
    "slogdet",
    "solve",
    "triangular_solve",
]


class CholeskyOp(TensorOp):
    """The lower triangular Cholesky factor L with L Lᴴ = x, of Hermitian matrices.

    Only the lower triangle of `x` is read. A matrix that is not positive definite gives NaN on and
    below the diagonal. A backend without a solver may run `reference` on the host.
    """

    @property
    def flops(self) -> int:
        """A third of the cube of the order, for each matrix."""
        return _cubes(self.args[0]) // 3

    def infer(self) -> tuple[Axes, DType]:
        """Check for square matrices of a dtype that solvers have."""
        (x,) = self.args
        _check_square(x)
        return x.axes, x.dtype

    def reference(self, x: Array) -> Any:
        """Factorize, with NaN in place of an error."""
        return np.tril(_or_nan(np.linalg.cholesky, x))

    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """L⁻ᵀ P L⁻¹, where P is the lower triangle of Lᵀ delta with its diagonal halved.

        The result is made Hermitian, like the operand. (Murray, Differentiation of the Cholesky
        decomposition, 2016; Giles, 2008.)
        """
        turned = matrix_transpose(self)
        product = MatmulOp(turned, delta)
        half = (_triangle(product, lower=True) + _triangle(product, lower=True, offset=-1)) * 0.5
        left = TriangularSolveOp(turned, half, lower=False)
        both = TriangularSolveOp(conj(turned), matrix_transpose(left), lower=False)
        return ((matrix_transpose(both) + conj(both)) * 0.5,)


class SolveOp(TensorOp):
    """The solution x of a x = b, for stacks of matrices with equal leading axes.

    The columns of `b` are independent right-hand sides. If `a` is singular, that is, if elimination
    with partial pivoting finds a pivot of 0, the solution is NaN. A backend without a solver may
    run `reference` on the host.
    """

    @property
    def flops(self) -> int:
        """Those of an LU factorization, and of two substitutions for each right-hand side."""
        return 2 * _cubes(self.args[0]) // 3 + 2 * int(self.axes.size) * int(self.axes.shape[-2])

    @override
    def infer(self) -> tuple[Axes, DType]:
        return _check_system(*self.args)

    def reference(self, a: Array, b: Array) -> Any:
        """Solve, with NaN in place of an error."""
        return _or_nan(np.linalg.solve, a, b)

    def generate_adjoints(self, delta: TensorOp, a: TensorOp, b: TensorOp) -> Any:
        """-db xᵀ and db, which solves aᵀ db = delta (Giles, Collected matrix derivatives, 2008)."""
        db = SolveOp(matrix_transpose(a), delta)
        return -MatmulOp(db, matrix_transpose(self)), db


class DeterminantOp(TensorOp):
    """The sign of the determinant and the logarithm of its absolute value, along a new last axis.

    The new axis has length 2. The logarithm does not overflow where the determinant would. A
    singular matrix has sign 0, logarithm minus infinity, and gradient NaN. The sign of complex
    matrices has absolute value 1. A backend without a solver may run `reference` on the host.
    """

    @property
    def flops(self) -> int:
        """Those of an LU factorization."""
        return 2 * _cubes(self.args[0]) // 3

    def infer(self) -> tuple[Axes, DType]:
        """Replace the last two axes by one of length 2."""
        (x,) = self.args
        _check_square(x)
        return Axes((*x.axes[:-2], Axis(2))), x.dtype

    @override
    def reference(self, x: Array) -> Any:
        return np.stack(np.linalg.slogdet(x), axis=-1).astype(self.dtype)

    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """The adjoint of the logarithm times the transposed inverse (Jacobi's formula).

        The imaginary part of the logarithm of a complex determinant is the angle of the sign.
        """
        share = delta[..., 1]
        if x.dtype.kind == "c":
            share = complex(real(share), imag(delta[..., 0] * self[..., 0]))
        spread = BroadcastOp(share, target_axes=x.axes, dims=tuple(range(x.rank - 2)))
        return (spread * matrix_transpose(InverseOp(x)),)


class InverseOp(CompositeOp):
    """The inverse of square matrices; NaN for a singular one, as in `SolveOp`."""

    @property
    def flops(self) -> int:
        """Twice the cube of the order, for each matrix."""
        return 2 * _cubes(self.args[0])

    def infer(self) -> tuple[Axes, DType]:
        """Check for square matrices of a dtype that solvers have."""
        (x,) = self.args
        _check_square(x)
        return x.axes, x.dtype

    def reference(self, x: Array) -> Any:
        """Invert, with NaN in place of an error."""
        return _or_nan(np.linalg.inv, x)

    @override
    def decompose(self, x: TensorOp) -> TensorOp:
        return SolveOp(x, _identity_like(x))

    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """-x⁻ᵀ delta x⁻ᵀ (Giles, 2008)."""
        turned = matrix_transpose(self)
        return (-MatmulOp(MatmulOp(turned, delta), turned),)


class TriangularSolveOp(CompositeOp):
    """The solution x of a x = b for triangular `a`; the other triangle is not read.

    The solution is NaN if there is a 0 on the diagonal, as in `SolveOp`.

    Attributes
    ----------
    lower
        Whether `a` is lower triangular, else upper.
    """

    lower: bool

    @override
    def infer(self) -> tuple[Axes, DType]:
        return _check_system(*self.args)

    def reference(self, a: Array, b: Array) -> Any:
        """Solve, with NaN for a singular matrix."""
        from weft.ops.products import dense_algorithms  # few programs need it

        a, b = np.asarray(a), np.asarray(b)
        sides = b.reshape(math.prod(b.shape[:-2]), *b.shape[-2:])
        with np.errstate(all="ignore"):
            matrices = a.reshape(len(sides), *a.shape[-2:])
            return dense_algorithms.triangular_solve(matrices, sides, self.lower).reshape(b.shape)

    def decompose(self, a: TensorOp, b: TensorOp) -> TensorOp:
        """Solve with zeros in the other triangle."""
        return SolveOp(_triangle(a, self.lower), b)

    def generate_adjoints(self, delta: TensorOp, a: TensorOp, b: TensorOp) -> Any:
        """As for `SolveOp`, in the triangle that is read."""
        db = TriangularSolveOp(matrix_transpose(a), delta, lower=not self.lower)
        return -_triangle(MatmulOp(db, matrix_transpose(self)), self.lower), db


def _check_square(x: TensorOp) -> None:
    if x.rank < 2 or x.axes.is_named or x.axes[-2].length != x.axes[-1].length:
        raise AxesError(f"needs square matrices in the last two positional axes, not {x.axes}")
    if not dtypes.is_inexact(x.dtype) or x.dtype.itemsize == 2:
        raise DTypeError(f"solvers take float32, float64 and complex numbers, not {x.dtype}")


def _check_system(a: TensorOp, b: TensorOp) -> tuple[Axes, DType]:
    _check_square(a)
    if b.rank != a.rank or b.axes[:-1].lengths != a.axes[:-1].lengths or b.dtype != a.dtype:
        raise AxesError(
            f"the right-hand sides {b.dtype} {b.axes} do not fit the matrices {a.dtype} {a.axes}"
        )
    return b.axes, b.dtype


def _cubes(x: TensorOp) -> int:
    """Return the cube of the order of square matrices, summed over the stack."""
    return int(x.axes.size) * int(x.axes.shape[-1])


def _or_nan(function: Callable[..., Any], *stacks: Any) -> Any:
    """Call a function on stacks of matrices, with NaN for matrices that raise LinAlgError."""
    try:
        return function(*stacks)
    except np.linalg.LinAlgError:
        if stacks[0].ndim == 2:
            return np.full_like(stacks[-1], np.nan)
        return np.stack([_or_nan(function, *each) for each in zip(*stacks, strict=True)])


def _places(axes: Axes) -> tuple[TensorOp, TensorOp]:
    """Return the row and column index of each element of matrices with these two axes."""
    rows, columns = (
        IotaOp(target_axes=axes, target_dtype=dtypes.int64, position=place) for place in (0, 1)
    )
    return rows, columns


def _identity_like(x: TensorOp) -> TensorOp:
    matrix = cast(equal(*_places(x.axes[-2:])), x.dtype)
    return broadcast(matrix, x.axes)


def _triangle(x: TensorOp, lower: bool, offset: int = 0) -> TensorOp:
    """Return the lower or upper triangle up to a diagonal, as NumPy's tril and triu."""
    rows, columns = _places(x.axes[-2:])
    inside = less_equal(columns, rows + offset) if lower else less_equal(rows + offset, columns)
    return where(broadcast(inside, x.axes), x, 0)


def solver_operands(kind: str, *operands: Any) -> tuple[list[TensorOp], DType]:
    """Return operands in a dtype of the solvers, and the dtype of the result."""
    factors = as_factors(kind, *operands)
    require_positional(kind, *factors)
    require_matrices(kind, factors[0])
    dtype = factors[0].dtype if dtypes.is_inexact(factors[0].dtype) else dtypes.DEFAULT
    return [cast(x, accumulator_dtype(dtype)) for x in factors], dtype


def cholesky(x: TensorLike, *, upper: bool = False) -> TensorOp:
    """Return the triangular Cholesky factor of symmetric positive definite matrices.

    Its gradient is symmetric.

    Parameters
    ----------
    x
        Square matrices in the last two axes, complex ones Hermitian. Only the lower triangle is
        read.
    upper
        Whether to return the upper factor, the conjugate transpose of the lower one.

    Returns
    -------
    TensorOp
        Matrices like x. Integers give float32. One that is not positive definite gives NaN in the
        triangle.

    Raises
    ------
    AxesError
        If the matrices are not square, or have named axes.

    Examples
    --------
    >>> weft.jit(weft.cholesky)(np.array([[4.0, 2.0], [2.0, 2.0]]))
    array([[2., 0.],
           [1., 1.]])
    """
    (x,), dtype = solver_operands("cholesky", x)
    factor = cast(CholeskyOp(x), dtype)
    return conj(matrix_transpose(factor)) if upper else factor


def solve(a: TensorLike, b: TensorLike) -> TensorOp:
    """Return the solution x of the linear systems a x = b.

    Parameters
    ----------
    a
        Square matrices in the last two axes.
    b
        Right-hand sides: a vector, or matrices whose columns they are. Leading axes broadcast.

    Returns
    -------
    TensorOp
        The solutions, with the columns of `b`. Integers give float32. A singular matrix gives NaN.

    Raises
    ------
    AxesError
        If the matrices are not square, or `b` does not fit them.

    Examples
    --------
    >>> a, b = np.array([[2.0, 1.0], [1.0, 3.0]]), np.array([4.0, 7.0])
    >>> weft.jit(weft.solve)(a, b)
    array([1., 2.])
    """
    (a, b), dtype = solver_operands("solve", a, b)
    return cast(solved("solve", SolveOp, a, b), dtype)


def triangular_solve(
    a: TensorLike, b: TensorLike, lower: bool = True, transposed: bool = False
) -> TensorOp:
    """Return the solution x of a x = b for triangular matrices.

    Parameters
    ----------
    a
        Square matrices in the last two axes. Only one triangle is read.
    b
        Right-hand sides: a vector, or matrices whose columns they are. Leading axes broadcast.
    lower
        Whether that is the lower triangle; otherwise the upper one.
    transposed
        Whether to solve aᵀ x = b instead.

    Returns
    -------
    TensorOp
        The solutions, with the columns of `b`. Integers give float32. A singular matrix gives NaN.

    Raises
    ------
    AxesError
        If the matrices are not square, or `b` does not fit them.
    ArgumentError
        If `lower` or `transposed` is not a bool.

    Examples
    --------
    >>> a, b = np.array([[2.0, 0.0], [1.0, 4.0]]), np.array([2.0, 9.0])
    >>> weft.jit(weft.triangular_solve)(a, b)
    array([1., 2.])
    """
    (a, b), dtype = solver_operands("triangular_solve", a, b)
    check_flags("triangular_solve", lower=lower, transposed=transposed)
    if transposed:
        a, lower = matrix_transpose(a), not lower
    return cast(solved("triangular_solve", TriangularSolveOp, a, b, lower=lower), dtype)


def cholesky_solve(factor: TensorLike, b: TensorLike, lower: bool = True) -> TensorOp:
    """Return the solution x of a x = b from the Cholesky factor of a.

    Parameters
    ----------
    factor
        L with a = L Lᴴ, or U with a = Uᴴ U.
    b
        Right-hand sides: a vector, or matrices whose columns they are. Leading axes broadcast.
    lower
        Whether the factor is L; otherwise it is U.

    Returns
    -------
    TensorOp
        The solutions, with the columns of `b`. Integers give float32.

    Raises
    ------
    AxesError
        If the matrices are not square, or `b` does not fit them.
    ArgumentError
        If `lower` is not a bool.

    Examples
    --------
    >>> a, b = np.array([[4.0, 2.0], [2.0, 2.0]]), np.array([8.0, 6.0])
    >>> weft.jit(lambda a, b: weft.cholesky_solve(weft.cholesky(a), b))(a, b)
    array([1., 2.])
    """
    (factor, b), dtype = solver_operands("cholesky_solve", factor, b)
    check_flags("cholesky_solve", lower=lower)
    other = conj(matrix_transpose(factor))
    below, above = (factor, other) if lower else (other, factor)
    inner = solved("cholesky_solve", TriangularSolveOp, below, b, lower=True)
    return cast(solved("cholesky_solve", TriangularSolveOp, above, inner, lower=False), dtype)


def solved(
    kind: str, solver: Callable[..., TensorOp], a: TensorOp, b: TensorOp, **fields: Any
) -> TensorOp:
    """Return a solver's op on operands with broadcast leading axes."""
    if not b.axes:
        raise AxesError(explain(kind, "the right-hand side must be a vector or matrices", (a, b)))
    sides = cast_axes(b, (*b.axes, 1)) if b.rank == 1 else b
    head = explained(kind, (a, b), broadcast_axes, a.axes[:-2], sides.axes[:-2])
    result = solver(
        broadcast(a, Axes((*head, *a.axes[-2:]))),
        broadcast(sides, Axes((*head, *sides.axes[-2:]))),
        **fields,
    )
    return cast_axes(result, result.axes[:-1]) if b.rank == 1 else result


def inverse(x: TensorLike) -> TensorOp:
    """Return the inverse of square matrices; NaN for a singular one.

    `solve` is faster and more accurate than a product with an inverse.

    Examples
    --------
    >>> weft.jit(weft.inverse)(np.array([[2.0, 1.0], [1.0, 1.0]]))
    array([[ 1., -1.],
           [-1.,  2.]])
    """
    (x,), dtype = solver_operands("inverse", x)
    return cast(InverseOp(x), dtype)


inv = inverse


class SignAndLog(NamedTuple):
    """The sign of a determinant, and the logarithm of its absolute value."""

    sign: TensorOp
    logabsdet: TensorOp


def slogdet(x: TensorLike) -> SignAndLog:
    """Return the sign of the determinant and the logarithm of its absolute value.

    A singular matrix has sign 0 and logarithm minus infinity, and its gradient is NaN. The sign of
    a complex determinant has absolute value 1, and the logarithm is real.

    Examples
    --------
    >>> found = weft.jit(weft.slogdet)(np.array([[0.0, 2.0], [3.0, 0.0]]))
    >>> found.sign, found.logabsdet
    (array(-1.), array(1.7918))
    """
    (x,), dtype = solver_operands("slogdet", x)
    sign, size = _sign_and_log(x)
    return SignAndLog(cast(sign, dtype), cast(size, dtype) if dtype.kind != "c" else size)


def _sign_and_log(x: TensorOp) -> tuple[TensorOp, TensorOp]:
    pair = DeterminantOp(x)
    size = pair[..., 1]
    return pair[..., 0], real(size) if x.dtype.kind == "c" else size


def logdet(x: TensorLike) -> TensorOp:
    """Return the logarithm of the determinant: NaN if negative, minus infinity if 0.

    It does not overflow where the determinant would. It is complex for complex matrices.

    Examples
    --------
    >>> weft.jit(weft.logdet)(np.array([[2.0, 0.0], [0.0, 3.0]]))
    array(1.7918)
    """
    (x,), dtype = solver_operands("logdet", x)
    sign, size = _sign_and_log(x)
    return cast(log(sign) + size, dtype)


def det(x: TensorLike) -> TensorOp:
    """Return the determinant of square matrices.

    The gradient is NaN for a singular matrix. Large matrices overflow: see `slogdet`.

    Examples
    --------
    >>> weft.jit(weft.det)(np.array([[1.0, 2.0], [3.0, 4.0]]))
    array(-2.)
    """
    (x,), dtype = solver_operands("det", x)
    sign, size = _sign_and_log(x)
    return cast(sign * exp(size), dtype)


def matrix_power(x: TensorLike, n: int) -> TensorOp:
    """Return a power of square matrices, by repeated squaring.

    Parameters
    ----------
    x
        Square matrices in the last two axes, which have no names.
    n
        The exponent, an integer; 0 gives identity matrices, negative ones powers of the inverse.

    Returns
    -------
    TensorOp
        Matrices like x. Integers keep their dtype unless n is negative, and give float32 then; bool
        counts as int32.

    Raises
    ------
    AxesError
        If the matrices are not square, or have named axes.
    ArgumentError
        If `n` is not an integer.

    Examples
    --------
    >>> weft.jit(lambda x: weft.matrix_power(x, 5))(np.array([[1, 1], [1, 0]]))
    array([[8, 5],
           [5, 3]])
    """
    (x,), power = as_factors("matrix_power", x), checked_integer("matrix_power", "n", n)
    require_matrices("matrix_power", x)
    if x.axes[-2].length != x.axes[-1].length:
        raise AxesError(explain("matrix_power", f"needs square matrices, not {x.axes}", (x,)))
    if power < 0:
        return matrix_power(inverse(x), -power)
    if power == 0:
        return _identity_like(x)
    result: TensorOp | None = None
    while power:
        if power % 2:
            result = x if result is None else MatmulOp(result, x)
        power //= 2
        if power:
            x = MatmulOp(x, x)
    assert result is not None
    return result
