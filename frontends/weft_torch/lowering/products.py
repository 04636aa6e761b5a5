"""Matrix products, factorizations and linear systems."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from weft_torch.rules import Node, Tensor, is_inexact, lowers, typed

lowers("mm bmm")(lambda x, mat2: weft.matmul(x, mat2))
lowers("mv")(lambda x, vec: weft.matmul(x, vec))
lowers("dot")(lambda x, tensor: weft.matmul(x, tensor))
lowers("vdot")(lambda x, y: weft.vecdot(x, y))
lowers("matmul")(lambda x, y: weft.matmul(x, y))
lowers("outer")(lambda x, vec2: weft.outer(x, vec2))
lowers("linalg_matrix_exp")(lambda x: weft.linalg.matrix_exp(x))
lowers("cholesky")(lambda x, upper: weft.cholesky(x, upper=upper))
lowers("cholesky_inverse")(
    lambda x, upper: weft.cholesky_solve(x, weft.eye(x.axes.lengths[-1], dtype=x.dtype), not upper)
)
lowers("cholesky_solve")(lambda x, input2, upper: weft.cholesky_solve(input2, x, not upper))
lowers("linalg_inv_ex")(lambda node, a: (weft.inverse(a), *node.zeros(1)))
lowers("linalg_cholesky_ex")(lambda node, x, upper: (weft.cholesky(x, upper=upper), *node.zeros(1)))
lowers("_linalg_eigh")(lambda node, a: _lower_eigh(a, node.arguments["uplo"]))
lowers("linalg_eig")(lambda x: tuple(weft.linalg.eig(x)))
lowers("linalg_eigvals")(lambda x: weft.linalg.eigvals(x))
lowers("linalg_qr")(lambda a, mode: tuple(weft.linalg.qr(a, mode=mode)))
lowers("_linalg_svd")(
    lambda node, a, full_matrices: tuple(weft.linalg.svd(a, full_matrices=full_matrices))
)


def _wide(node: Node, *tensors: Tensor) -> list[Tensor]:
    return [weft.broadcast(each, node.shape()) for each in tensors]


@lowers("linalg_cross")
def linalg_cross(node: Node, x: Tensor, y: Tensor, dim: int) -> Tensor:
    """Return the cross products of vectors along an axis."""
    x, y = _wide(node, x, y)
    return weft.cross(x, y, dim)


def _lower_eigh(x: Tensor, triangle: str) -> Any:
    """Return eigenvalues and vectors of what one triangle of a matrix says."""
    half = weft.tril(x, -1) if triangle.upper() == "L" else weft.matrix_transpose(weft.triu(x, 1))
    mirrored = weft.matrix_transpose(half)
    if "complex" in x.dtype.name:
        mirrored = weft.conj(mirrored)
    whole = half + mirrored + x * weft.eye(x.axes.lengths[-1], dtype=x.dtype)
    return tuple(weft.linalg.eigh(whole))


@lowers("addmm baddbmm addmv addbmm")
def addmm(
    node: Node,
    x: Tensor,
    beta: Any,
    alpha: Any,
    mat1: Tensor = None,
    mat2: Tensor = None,
    mat: Tensor = None,
    vec: Tensor = None,
    batch1: Tensor = None,
    batch2: Tensor = None,
) -> Tensor:
    """Add multiples of a product and of a tensor."""
    left, right = ((mat1, mat2), (mat, vec), (batch1, batch2))[
        0 if mat1 is not None else 1 if mat is not None else 2
    ]
    found = weft.matmul(left, right)
    found = weft.sum(found, axis=0) if node.name == "addbmm" else found
    found = found if alpha == 1 else found * _factor(node, alpha)
    if beta == 0:
        return weft.broadcast(found, node.shape())
    return found + (x if beta == 1 else x * _factor(node, beta))


def _factor(node: Node, number: Any) -> Tensor:
    return typed(number if is_inexact(node.dtype()) else int(number), node.dtype())


@lowers("linalg_solve_triangular")
def solve_triangular(
    node: Node, x: Tensor, b: Tensor, upper: bool, left: bool, unitriangular: bool
) -> Tensor:
    """Solve systems whose matrices are triangles."""
    batch = node.shape()[:-2]
    x = weft.broadcast(x, (*batch, *x.axes.lengths[-2:]))
    b = weft.broadcast(b, (*batch, *b.axes.lengths[-2:]))
    return weft.linalg.solve_triangular(
        x, b, lower=not upper, unit_diagonal=unitriangular, left=left
    )


@lowers("triangular_solve")
def old_triangular_solve(
    node: Node, x: Tensor, a: Tensor, upper: bool, transpose: bool, unitriangular: bool
) -> Any:
    """Solve systems whose matrices are triangles, and return these, too."""
    batch = node.shape(0)[:-2]
    a = weft.broadcast(a, (*batch, *a.axes.lengths[-2:]))
    b = weft.broadcast(x, (*batch, *x.axes.lengths[-2:]))
    found = weft.linalg.solve_triangular(
        a, b, trans=int(transpose), lower=not upper, unit_diagonal=unitriangular
    )
    return found, a


def _swapped(order: Tensor, k: int, other: Tensor) -> Tensor:
    """Return numbers of which one has changed places with another."""
    place = weft.arange(order.axes.lengths[-1], dtype=other.dtype)
    here = order[..., k : k + 1]
    there = weft.take_along_axis(order, other, -1)
    return weft.where(
        weft.equal(place, k), there, weft.where(weft.equal(place, other), here, order)
    )


def _pivots(permutation: Tensor, count: int) -> Tensor:
    """Return the rows, counted from 1, that LAPACK swaps one after the other for a permutation."""
    order = weft.broadcast(
        weft.arange(permutation.axes.lengths[-1], dtype=permutation.dtype),
        permutation.axes.lengths,
    )
    found = []
    for k in range(count):
        is_other = weft.equal(order, permutation[..., k : k + 1])
        found.append(weft.unsqueeze(weft.argmax(is_other, axis=-1), order.rank - 1))
        order = _swapped(order, k, found[-1])
    if not found:
        return weft.zeros((*order.axes.lengths[:-1], 0), "int32")
    return weft.concat(found, -1) + 1


def _permutation(pivots: Tensor, count: int) -> Tensor:
    """Return the permutation that swaps make."""
    lengths = (*pivots.axes.lengths[:-1], count)
    order = weft.broadcast(weft.arange(count, dtype="int64"), lengths)
    for k in range(pivots.axes.lengths[-1]):
        order = _swapped(order, k, weft.cast(pivots[..., k : k + 1] - 1, "int64"))
    return order


def _factorized(a: Tensor) -> tuple[Tensor, Tensor]:
    lu, permutation = weft.linalg.lu_factor(a)
    return lu, _pivots(permutation, min(a.axes.lengths[-2:]))


def _factors(node: Node, a: Tensor, *numbers: int) -> list[Tensor]:
    """Return factors and pivots, or zeros where nobody asks for them."""
    return list(_factorized(a)) if node.uses(*numbers) else node.zeros(*numbers)


def _as_factorized(node: Node, a: Tensor) -> Tensor:
    """Return the matrix whose factors ATen gives beside a determinant.

    It is the transpose of one that is real and in row-major order.
    """
    matrix: Any = node.fx.args[0]
    is_turned = matrix.meta["val"].is_contiguous() and "complex" not in a.dtype.name
    return weft.matrix_transpose(a) if is_turned else a


@lowers("linalg_lu_factor_ex")
def lu_factor(node: Node, a: Tensor, pivot: bool) -> Any:
    """Factorize into triangles."""
    if not pivot:
        raise node.refuse("factors without pivots")
    return *_factorized(a), *node.zeros(2)


@lowers("linalg_lu")
def lu(node: Node, a: Tensor, pivot: bool) -> Any:
    """Return a permutation and two triangles."""
    if not pivot:
        raise node.refuse("factors without pivots")
    return tuple(weft.linalg.lu(a))


@lowers("lu_unpack")
def lu_unpack(
    node: Node, lu_data: Tensor, lu_pivots: Tensor, unpack_data: bool, unpack_pivots: bool
) -> Any:
    """Return a permutation and two triangles of what a factorization packs."""
    rows, columns = lu_data.axes.lengths[-2:]
    count = min(rows, columns)
    lower, upper = node.zeros(1, 2)
    if unpack_data:
        eye = weft.eye(rows, count, dtype=node.dtype())
        lower = weft.tril(lu_data[..., :count], -1) + eye
        upper = weft.triu(lu_data[..., :count, :])
    permuted = node.zeros(0)[0]
    if unpack_pivots:
        order = _permutation(lu_pivots, rows)
        is_row = weft.equal(
            weft.unsqueeze(order, order.rank - 1),
            weft.reshape(weft.arange(rows, dtype="int64"), (rows, 1)),
        )
        permuted = typed(is_row, node.dtype(0))
    return permuted, lower, upper


@lowers("linalg_lu_solve")
def lu_solve(
    node: Node, lu: Tensor, pivots: Tensor, b: Tensor, left: bool, adjoint: bool
) -> Tensor:
    """Solve systems by factors of their matrices."""
    batch = node.shape()[:-2]
    if not left:
        # x a = b is a^H x^H = b^H.
        b, adjoint = weft.conj(weft.matrix_transpose(b)), not adjoint
    lu, b = (weft.broadcast(each, (*batch, *each.axes.lengths[-2:])) for each in (lu, b))
    order = _permutation(pivots, lu.axes.lengths[-1])
    order = weft.broadcast(order, (*batch, order.axes.lengths[-1]))
    found = weft.linalg.lu_solve((lu, order), b, trans=2 if adjoint else 0)
    return found if left else weft.conj(weft.matrix_transpose(found))


@lowers("_linalg_solve_ex")
def solve_ex(node: Node, a: Tensor, b: Tensor, left: bool) -> Any:
    """Solve systems, and return the factors if they are asked for."""
    is_vector = b.rank == 1 or (b.rank == a.rank - 1 and node.shape(0) == b.axes.lengths)
    if is_vector:
        found = weft.squeeze(weft.solve(a, weft.unsqueeze(b, -1)), -1)
    elif left:
        found = weft.solve(a, b)
    else:
        turned = weft.solve(weft.matrix_transpose(a), weft.matrix_transpose(b))
        found = weft.matrix_transpose(turned)
    return found, *_factors(node, a, 1, 2), *node.zeros(3)


@lowers("_linalg_det")
def det(node: Node, a: Tensor) -> Any:
    """Return the determinant, and the factors if they are asked for."""
    return weft.det(a), *_factors(node, _as_factorized(node, a), 1, 2)


@lowers("_linalg_slogdet")
def slogdet(node: Node, a: Tensor) -> Any:
    """Return the sign and the logarithm of a determinant, and the factors if asked for."""
    return *weft.slogdet(a), *_factors(node, _as_factorized(node, a), 2, 3)


@lowers("linalg_lstsq")
def lstsq(node: Node, x: Tensor) -> Any:
    """Return least squares solutions."""
    found = weft.linalg.lstsq(x, node.arguments["b"])
    return found[0], *node.zeros(1, 2, 3)


@lowers("linalg_pinv")
def pinv(
    node: Node, x: Tensor, atol: Any = None, rtol: Any = None, hermitian: bool = False
) -> Tensor:
    """Return pseudo-inverses by singular values, or by eigenvalues, above a tolerance."""
    if not x.axes.size:
        return weft.zeros(node.shape(), node.dtype())
    if hermitian:
        sizes, vectors = _lower_eigh(x, "L")
        left, right = vectors, weft.conj(weft.matrix_transpose(vectors))
    else:
        left, sizes, right = weft.linalg.svd(x, full_matrices=False)
    largest = weft.max(weft.absolute(sizes), axis=-1, keepdims=True)
    epsilon = max(x.axes.lengths[-2:]) * float(np.finfo(sizes.dtype).eps)
    relative = (0.0 if atol is not None else epsilon) if rtol is None else rtol
    limit = weft.maximum(_column(relative) * largest, _column(0.0 if atol is None else atol))
    is_kept = weft.absolute(sizes) > limit
    inverses = weft.where(is_kept, 1 / weft.where(is_kept, sizes, 1.0), 0.0)
    scaled = weft.conj(weft.matrix_transpose(right)) * weft.unsqueeze(inverses, inverses.rank - 1)
    return weft.matmul(scaled, weft.conj(weft.matrix_transpose(left)))


def _column(x: Any) -> Any:
    return weft.unsqueeze(x, x.rank) if isinstance(x, weft.TensorOp) and x.rank else x


@lowers("_trilinear")
def trilinear(
    i1: Tensor, i2: Tensor, i3: Tensor, expand1: Any, expand2: Any, expand3: Any, sumdim: Any
) -> Tensor:
    """Return the sum of a product of three tensors that are broadcast along some axes."""
    factors = []
    for x, axes in ((i1, expand1), (i2, expand2), (i3, expand3)):
        for axis in sorted(axes):
            x = weft.unsqueeze(x, axis)
        factors.append(x)
    return weft.sum(factors[0] * factors[1] * factors[2], axis=tuple(sumdim))


def _reflected(x: Tensor, tau: Tensor, y: Tensor) -> Tensor:
    """Return a product of reflections, of which each column has a vector, with a matrix.

    Golub, Van Loan: Matrix Computations, section 5.1.6.
    """
    vectors = weft.tril(x, -1) + weft.eye(*x.axes.lengths[-2:], dtype=x.dtype.name)
    for k in reversed(range(tau.axes.lengths[-1])):
        vector = vectors[..., k : k + 1]
        row = weft.matmul(weft.conj(weft.matrix_transpose(vector)), y)
        y = y - weft.unsqueeze(tau[..., k : k + 1], tau.rank) * vector * row
    return y


@lowers("linalg_householder_product")
def householder_product(node: Node, x: Tensor, tau: Tensor) -> Tensor:
    """Return the first columns of a product of reflections."""
    columns = weft.eye(*x.axes.lengths[-2:], dtype=node.dtype())
    return _reflected(x, tau, weft.broadcast(columns, node.shape()))


@lowers("ormqr")
def ormqr(x: Tensor, input2: Tensor, input3: Tensor, left: bool, transpose: bool) -> Tensor:
    """Multiply a matrix by a product of reflections, or by what undoes it, on either side."""
    *batch, rows, _ = x.axes.lengths
    square = weft.broadcast(weft.eye(rows, dtype=x.dtype.name), (*batch, rows, rows))
    product = _reflected(x, input2, square)
    if transpose:
        product = weft.conj(weft.matrix_transpose(product))
    return weft.matmul(product, input3) if left else weft.matmul(input3, product)
