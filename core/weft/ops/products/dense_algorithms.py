"""Algorithms on stacks of matrices that NumPy lacks: LU, LDL, triangular systems, exponentials."""

from __future__ import annotations

import importlib
import math
from functools import cache
from typing import Any

import numpy as np

from weft.ir.dtypes import Array

_ALPHA = (1 + math.sqrt(17)) / 8
"""The bound of Bunch and Kaufman (1977) on the growth of elements."""

_THETA = 5.371920351148152
"""The largest norm for which the approximant of degree 13 is exact in float64 (Higham, 2005)."""

_STEP, _TERMS = 3.54, 30
"""The largest norm for which so many terms of the series are exact in float64 (Al-Mohy, 2011)."""

_READING = 5
"""A product with fewer columns takes as long, since it reads the matrix anyway."""

_PADE = (
    64764752532480000, 32382376266240000, 7771770303897600, 1187353796428800, 129060195264000,
    10559470521600, 670442572800, 33522128640, 1323241920, 40840800, 960960, 16380, 182, 1,
)  # fmt: skip


_PANEL = 16
"""How many columns are eliminated one after the other."""


def lu(a: Array) -> tuple[Array, Array]:
    """Return the packed factors L and U of matrices (stack, m, n), m >= n, and the order of rows.

    Those of more columns than a panel are LAPACK's where SciPy is installed. Elsewhere the columns
    are halved (Toledo, Locality of reference in LU decomposition, 1997), so
    that most of the work is products, down to panels. Pivots are those of LAPACK.
    """
    n = a.shape[2]
    if n <= _PANEL:
        return _panel(a)
    lapack = _lapack_of_scipy()
    if lapack is not None:
        return _lu_of_lapack(lapack, a)
    half = n // 2
    left, order = lu(a[..., :half])
    right = rows(a[..., half:], order)
    corner = np.tril(left[:, :half], -1) + np.eye(half, dtype=a.dtype)
    above = triangular_solve(corner, right[:, :half], lower=True)
    below, later = lu(right[:, half:] - left[:, half:] @ above)
    left = np.concatenate([left[:, :half], rows(left[:, half:], later)], 1)
    order[:, half:] = np.take_along_axis(order[:, half:], later, 1)
    return np.concatenate([left, np.concatenate([above, below], 1)], 2), order


@cache
def _lapack_of_scipy() -> Any:
    """Return LAPACK's functions, imported when first needed, or None where SciPy is missing."""
    try:
        return importlib.import_module("scipy.linalg.lapack")
    except ImportError:
        return None


def _lu_of_lapack(lapack: Any, a: Array) -> tuple[Array, Array]:
    (getrf,) = lapack.get_lapack_funcs(("getrf",), (a,))
    factors = np.empty_like(a)
    order = np.broadcast_to(np.arange(a.shape[1]), a.shape[:2]).copy()
    for place, matrix in enumerate(a):
        factors[place], swaps, _ = getrf(matrix)
        row = order[place]
        for k, other in enumerate(swaps):
            row[k], row[other] = row[other], row[k]
    return factors, order


def _panel(a: Array) -> tuple[Array, Array]:
    """Return what `lu` does, one column after the other, of which the elements are neighbors."""
    count, m, n = a.shape
    each, columns = np.arange(count), np.array(a.mT, order="C")
    order = np.broadcast_to(np.arange(m), (count, m)).copy()
    for k in range(n):
        pivot = k + np.argmax(sizes(columns[:, k, k:]), -1)
        for array in (columns.mT, order):
            array[each, k], array[each, pivot] = array[each, pivot], array[each, k]
        first = columns[:, k, k, None]
        columns[:, k, k + 1 :] /= np.where(first == 0, 1, first)
        columns[:, k + 1 :, k + 1 :] -= columns[:, k + 1 :, k, None] * columns[:, k, None, k + 1 :]
    return columns.mT, order


def triangular_solve(a: Array, b: Array, lower: bool) -> Array:
    """Return x of a x = b for triangular a, (stack, n, n) and (stack, n, k); NaN if singular.

    Systems of more columns than a panel are LAPACK's where SciPy is installed. Elsewhere they are
    halved, so that most of the work is products, down to panels.
    """
    n = a.shape[1]
    lapack = _lapack_of_scipy() if n > _PANEL and b.size else None
    if lapack is None:
        x = b.copy()
        _substitute(a, x, lower)
        is_regular = (np.diagonal(a, axis1=1, axis2=2) != 0).all(1)
        return np.where(is_regular[:, None, None], x, np.nan).astype(b.dtype)
    (trtrs,) = lapack.get_lapack_funcs(("trtrs",), (a, b))
    x = np.empty_like(b)
    for place, matrix in enumerate(a):
        # LAPACK's matrices have columns first: it reads the transpose without a copy.
        found, info = trtrs(matrix.T, b[place], lower=not lower, trans=1)
        x[place] = np.nan if info else found
    return x


def _substitute(a: Array, x: Array, lower: bool) -> None:
    """Replace the right-hand sides by the solution."""
    n = a.shape[1]
    if n <= _PANEL:
        for i in range(n) if lower else reversed(range(n)):
            known = slice(0, i) if lower else slice(i + 1, n)
            x[:, i] -= (a[:, i, None, known] @ x[:, known])[:, 0]
            x[:, i] /= a[:, i, i, None]
        return
    top, below = slice(0, n // 2), slice(n // 2, n)
    first, last = (top, below) if lower else (below, top)
    _substitute(a[:, first, first], x[:, first], lower)
    x[:, last] -= a[:, last, first] @ x[:, first]
    _substitute(a[:, last, last], x[:, last], lower)


def rows(a: Array, order: Array) -> Array:
    """Return the rows of each matrix in an order of its own."""
    return np.asarray(a[np.arange(len(a))[:, None], order])


def sizes(a: Array) -> Array:
    """Return the numbers by which LAPACK compares elements."""
    return np.asarray(np.abs(a.real) + np.abs(a.imag) if a.dtype.kind == "c" else np.abs(a))


def ldl(a: Array) -> tuple[Array, Array, Array]:
    """Return L, D and the order with a[order][:, order] = L D Lᴴ, of one Hermitian matrix.

    D has blocks of order 1 and 2 on the diagonal (Bunch and Kaufman, 1977).
    """
    n = len(a)
    a, lower, middle, order = a.copy(), np.eye(n, dtype=a.dtype), np.zeros_like(a), np.arange(n)
    k = 0
    while k < n:
        step, swapped = _pivot(a, k)
        last = k + step
        pair, other = [last - 1, swapped], [swapped, last - 1]
        a[pair], order[pair], lower[pair, :k] = a[other], order[other], lower[other, :k]
        a[:, pair] = a[:, other]
        block, column = a[k:last, k:last], a[last:, k:last].copy()
        middle[k:last, k:last] = block
        if block.any():
            lower[last:, k:last] = np.linalg.solve(block.T, column.T).T
            a[last:, last:] -= lower[last:, k:last] @ column.conj().T
        k = last
    return lower, middle, order


def _pivot(a: Array, k: int) -> tuple[int, int]:
    """Return the order of the next block, and the row to be swapped with the last of the block."""
    size = sizes(a[k:, k:])
    if len(size) == 1:
        return 1, k
    largest = 1 + int(np.argmax(size[1:, 0]))
    below, other = size[largest, 0], np.delete(size[largest], largest).max()
    if below == 0 or size[0, 0] >= _ALPHA * below or size[0, 0] * other >= _ALPHA * below**2:
        return 1, k
    return (1 if size[largest, largest] >= _ALPHA * other else 2), k + largest


def expm(a: Array) -> Array:
    """Return the exponentials of matrices (stack, n, n), by scaling and squaring (Higham, 2005).

    The Padé approximant has degree 13.
    """
    wide = a.astype(np.result_type(a, np.float64))
    norms = np.abs(wide).sum(-2).max(-1, initial=0)
    squarings = np.ceil(np.log2(np.maximum(norms / _THETA, 1))).astype(int)
    x = wide * np.exp2(-squarings.astype(float))[:, None, None]
    powers: list[Any] = [np.broadcast_to(np.eye(a.shape[-1], dtype=wide.dtype), x.shape), x @ x]
    powers += [powers[1] @ powers[1]]
    powers += [powers[1] @ powers[2]]
    sums = []
    for first in (1, 0):
        low = sum(_PADE[first + 2 * n] * powers[n] for n in range(4))
        high = sum(_PADE[first + 6 + 2 * n] * powers[n] for n in range(1, 4))
        sums.append(powers[3] @ high + low)
    odd, even = x @ sums[0], sums[1]
    found = np.linalg.solve(even - odd, even + odd)
    for done in range(squarings.max(initial=0)):
        more = squarings > done
        found[more] = found[more] @ found[more]
    return found.astype(a.dtype)


def expm_action(a: Array, b: Array) -> Array:
    """Return exp(a) b for matrices (stack, n, n) and (stack, n, k), by products with a alone.

    The series of exp(a / s) is applied s times (Al-Mohy and Higham, Computing the action of the
    matrix exponential, 2011), to a less the mean of its diagonal. Where s is so large that this
    costs more, the exponential is made whole.
    """
    wide = a.astype(np.result_type(a, np.float64))
    n, k = b.shape[1:]
    shift = np.einsum("bii->b", wide)[:, None, None] / max(n, 1)
    shifted = wide - shift * np.eye(n)
    norms = np.abs(shifted).sum(-2).max(-1, initial=0)
    steps = np.maximum(np.ceil(norms / _STEP), 1)
    is_whole = steps * _TERMS * np.maximum(k, _READING) > (np.log2(steps) + 10) * n
    result = b.astype(wide.dtype)
    result[is_whole] = expm(wide[is_whole]) @ result[is_whole]
    for done in range(int(steps[~is_whole].max(initial=0))):
        more = (steps > done) & ~is_whole
        scale = 1 / steps[more, None, None]
        step, term = shifted[more] * scale, result[more] * np.exp(shift[more] * scale)
        total = term.copy()
        for count in range(1, _TERMS + 1):
            term = step @ term / count
            total += term
            largest = np.abs(total).max((1, 2), keepdims=True, initial=0)
            if np.all(np.abs(term) <= largest * 1e-18):
                break
        result[more] = total
    return result.astype(b.dtype)
