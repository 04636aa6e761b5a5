"""Factorizations: degenerate matrices, stacks with bad ones, batches, and foreign backends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg

import weft
from weft import linalg
from weft.errors import GradientError
from weft.ops.products import dense_algorithms
from weft.testing.numeric import numeric_derivative


def run(f: Callable[..., Any], *arrays: Any) -> Any:
    return weft.jit(f, backend="numpy")(*arrays)


def random_stack(*shape: int, kind: str = "f") -> Any:
    rng = np.random.default_rng(shape)
    real = rng.normal(size=shape)
    return real + 1j * rng.normal(size=shape) if kind == "c" else real


def hermitian(*shape: int, kind: str = "f") -> Any:
    x = random_stack(*shape, kind=kind)
    return x + x.conj().mT


def check_gradient(f: Callable[[Any], Any], x: Any, accuracy: float = 1e-5) -> None:
    """Compare the gradient of a real function of a real matrix with central differences."""
    got = weft.grad(f)(x)
    expected = numeric_derivative(lambda x: float(run(f, x)), [x], 0)
    np.testing.assert_allclose(got, expected, rtol=accuracy, atol=accuracy)


@pytest.mark.parametrize("kind", ["f", "c"])
@pytest.mark.parametrize("n", [1, 2, 5, 16, 33])
def test_factors_with_pivots_are_those_of_scipy(kind: str, n: int) -> None:
    x, h = random_stack(n, n, kind=kind), hermitian(n, n, kind=kind)
    for got, expected in zip(run(linalg.lu, x), scipy.linalg.lu(x), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-12)
    for got, expected in zip(run(linalg.ldl, h), scipy.linalg.ldl(h), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("size", [1e-3, 1.0, 30.0, 1e4])
def test_the_exponential_is_that_of_scipy(size: float) -> None:
    x = random_stack(3, 4, 4, kind="c")
    skew = (x - x.conj().mT) * size
    expected = scipy.linalg.expm(skew)
    np.testing.assert_allclose(run(linalg.matrix_exp, skew), expected, atol=1e-13 * max(size, 10))


@pytest.mark.parametrize("kind", ["f", "c"])
@pytest.mark.parametrize(("n", "columns", "size"), [(40, 1, 0.1), (40, 2, 1.0), (3, 1, 50.0)])
def test_the_action_of_the_exponential_is_that_of_scipy(
    kind: str, n: int, columns: int, size: float
) -> None:
    """By the series alone, in stacks of different norms, and by the exponential."""
    b = random_stack(2, n, columns, kind=kind)
    a = random_stack(2, n, n, kind=kind) * np.array([1, 1e-3])[:, None, None]
    a = (a - a.conj().mT) * size + 0.5 * np.eye(n)
    expected = scipy.linalg.expm(a) @ b
    np.testing.assert_allclose(run(linalg.expm_multiply, a, b), expected, rtol=1e-11, atol=1e-12)


OF_SQUARES: dict[str, Callable[[Any], Any]] = {
    "qr": lambda x: linalg.qr(x).R,
    "svd": lambda x: linalg.svd(x).S,
    "svdvals": linalg.svdvals,
    "eigh": lambda x: linalg.eigh(x).eigenvalues,
    "eigvalsh": linalg.eigvalsh,
    "eig": lambda x: weft.real(linalg.eig(x).eigenvalues),
    "eigvals": lambda x: weft.real(linalg.eigvals(x)),
    "lu_factor": lambda x: linalg.lu_factor(x).lu,
    "ldl": lambda x: linalg.ldl(x).lu,
    "pinv": linalg.pinv,
    "matrix_exp": linalg.matrix_exp,
    "expm_multiply": lambda x: linalg.expm_multiply(x, x[..., :1]),
}


@pytest.mark.parametrize("name", OF_SQUARES)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_matrix_that_is_not_finite_gives_nan_and_spoils_no_other(name: str, bad: float) -> None:
    good = hermitian(3, 3, 3)
    x = good.copy()
    x[1, 2, 0] = bad
    got, expected = run(OF_SQUARES[name], x), run(OF_SQUARES[name], good)
    assert np.isnan(got[1]).any()
    np.testing.assert_array_equal(got[[0, 2]], expected[[0, 2]])
    gradient = weft.grad(lambda x: weft.sum(OF_SQUARES[name](x)[::2]))(x)
    assert np.isfinite(gradient[[0, 2]]).all()


def test_an_iteration_that_fails_gives_nan_for_its_matrix(monkeypatch: Any) -> None:
    works = np.linalg.eigh

    def eigh(x: Any) -> Any:
        if (x[:, 0, 0] == 7).any():
            raise np.linalg.LinAlgError("Eigenvalues did not converge")
        return works(x)

    monkeypatch.setattr(np.linalg, "eigh", eigh)
    x = hermitian(3, 2, 2)
    x[1, 0, 0] = 7
    values, vectors = run(linalg.eigh, x)
    assert np.isnan(values[1]).all()
    assert np.isnan(vectors[1]).all()
    np.testing.assert_array_equal(values[[0, 2]], works(x[[0, 2]])[0])


def test_the_upper_triangle_is_not_read() -> None:
    x = hermitian(4, 4)
    spoiled = np.tril(x) + np.triu(np.full((4, 4), np.nan), 1)
    for f in (linalg.eigvalsh, lambda x: linalg.eigh(x)[1], lambda x: linalg.ldl(x).d):
        np.testing.assert_array_equal(run(f, spoiled), run(f, x))


def test_gradients_where_eigenvalues_are_equal() -> None:
    """Of their sum, and of the projection onto the space of their eigenvectors."""
    weights = np.arange(9.0).reshape(3, 3)

    def projection(x: Any) -> Any:
        vectors = linalg.eigh((x + x.mT) * 0.5).eigenvectors[:, 1:]
        return weft.sum(vectors @ vectors.mT * weights)

    for x in (np.diag([2.0, 2.0, 1.0]), np.diag([3.0, 1.0, 3.0])):
        check_gradient(projection, x)
        check_gradient(lambda x: weft.sum(linalg.eigvalsh(x)), x)


@pytest.mark.parametrize("x", [np.eye(3), np.diag([2.0, 2.0, 1.0]), np.zeros((3, 2))])
def test_gradients_where_singular_values_are_equal_or_zero(x: Any) -> None:
    """Of their sum, and of the orthogonal matrix that is nearest."""
    weights = np.arange(9.0).reshape(3, 3)

    def nearest(x: Any) -> Any:
        u, _, vh = linalg.svd(x, full_matrices=False)
        return weft.sum(u @ vh * weights[:, : x.shape[1]])

    for f in (nearest, lambda x: weft.sum(linalg.svdvals(x))):
        assert np.isfinite(weft.grad(f)(x)).all()
        if x.any():
            check_gradient(f, x)


def test_the_gradient_of_a_pseudoinverse_needs_no_different_singular_values() -> None:
    weights = np.arange(6.0).reshape(2, 3)
    for x in (np.eye(3, 2), np.diag([3.0, 3.0, 1.0])[:, :2], random_stack(3, 2)):
        check_gradient(lambda x: weft.sum(linalg.pinv(x) * weights), x)


def test_the_gradient_of_a_matrix_of_lower_rank_is_that_at_constant_rank() -> None:
    u, v = random_stack(4, 1), random_stack(1, 3)
    expected = weft.grad(lambda u: weft.sum(weft.square(linalg.pinv(u)) ** 1))(u @ v)
    moved = numeric_derivative(
        lambda u: float(np.sum(np.linalg.pinv(u @ v, rtol=1e-6) ** 2)), [u], 0
    )
    np.testing.assert_allclose(expected @ v.T, moved, rtol=1e-5)


def test_columns_that_the_matrix_does_not_determine_have_no_gradient() -> None:
    x = random_stack(3, 2)
    for f in (lambda x: linalg.qr(x, mode="complete").Q, lambda x: linalg.svd(x).U):
        with pytest.raises(GradientError, match="not a function of the matrix"):
            weft.grad(lambda x, f=f: weft.sum(f(x)))(x)
    check_gradient(lambda x: weft.sum(linalg.svd(x).S), x)
    check_gradient(lambda x: weft.sum(linalg.qr(x, mode="complete").R), x)


def test_singular_matrices() -> None:
    x = np.zeros((2, 2))
    p, lower, upper = run(linalg.lu, x)
    np.testing.assert_array_equal(p @ lower @ upper, x)
    np.testing.assert_array_equal(run(linalg.ldl, x).d, x)
    np.testing.assert_array_equal(run(linalg.pinv, x), x)
    assert run(linalg.matrix_rank, x) == 0
    assert run(linalg.cond, np.diag([1.0, 0.0])) == np.inf
    found = run(lambda x: linalg.lu_solve(linalg.lu_factor(x), np.ones(2)), x)
    assert np.isnan(found).all()


def test_least_squares_tell_residuals_and_ranks() -> None:
    a, b = random_stack(2, 5, 3), random_stack(2, 5, 2)
    a[1, :, 2] = a[1, :, 0]
    got = run(lambda a, b: linalg.lstsq(a, b, rcond=1e-10), a, b)
    for number in range(2):
        x, _, rank, values = np.linalg.lstsq(a[number], b[number], rcond=1e-10)
        np.testing.assert_allclose(got.x[number], x, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(got.singular_values[number], values, atol=1e-12)
        assert got.rank[number] == rank
        residuals = np.sum((a[number] @ x - b[number]) ** 2, 0)
        np.testing.assert_allclose(got.residuals[number], residuals, rtol=1e-9)


@pytest.mark.parametrize(
    ("kind", "m", "n", "rank"), [("f", 40, 33, 33), ("c", 33, 40, 33), ("c", 34, 32, 20)]
)
def test_large_least_squares_are_products_with_a_pseudoinverse(
    kind: str, m: int, n: int, rank: int
) -> None:
    a = random_stack(3, m, rank, kind=kind) @ random_stack(3, rank, n, kind=kind)
    b = random_stack(3, m, 2, kind=kind)

    def direct(a: Any, b: Any) -> Any:
        return linalg.lstsq(a, b, rcond=1e-10).x

    def product(a: Any, b: Any) -> Any:
        return linalg.pinv(a, rtol=1e-10) @ b

    def gradients(f: Callable[..., Any]) -> Any:
        return weft.grad(lambda a, b: weft.sum(weft.real(f(a, b) * (1 - 0.5j))), (0, 1))

    expected = run(product, a, b)
    for f in (direct, weft.vmap(direct)):
        np.testing.assert_allclose(run(f, a, b), expected, rtol=1e-8, atol=1e-8)
    for each in zip(gradients(direct)(a, b), gradients(product)(a, b), strict=True):
        np.testing.assert_allclose(*each, rtol=1e-7, atol=1e-7)
    a[1, 2, 3] = np.inf
    assert np.isnan(run(direct, a, b)).any((1, 2)).tolist() == [False, True, False]


@pytest.mark.parametrize("name", OF_SQUARES)
def test_a_function_for_one_matrix_becomes_one_for_a_batch(name: str) -> None:
    x = hermitian(3, 2, 2)
    for f in (OF_SQUARES[name], weft.grad(lambda x: weft.sum(OF_SQUARES[name](x)))):
        expected = np.stack([run(f, each) for each in x])
        np.testing.assert_allclose(run(weft.vmap(f), x), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.needs("compiler")
@pytest.mark.parametrize("kind", ["f", "c"])
def test_a_backend_without_complex_numbers_factorizes_complex_matrices(kind: str) -> None:
    x = hermitian(2, 3, 3, kind=kind)
    for name in ("qr", "svdvals", "eigvalsh", "pinv", "matrix_exp"):
        got = weft.jit(OF_SQUARES[name], backend="native")(x)
        np.testing.assert_allclose(got, run(OF_SQUARES[name], x), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_lu_of_scipy_has_the_factors_of_that_without(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, imaginary = np.random.default_rng(3).normal(size=(2, 2, 45, 37))
    x = np.asarray(real + 1j * imaginary if dtype == "complex128" else real, dtype)
    x[1, :, 5] = 0
    found, order = dense_algorithms.lu(x)
    monkeypatch.setattr(dense_algorithms, "_lapack_of_scipy", lambda: None)
    expected, expected_order = dense_algorithms.lu(x)
    np.testing.assert_array_equal(order, expected_order)
    np.testing.assert_allclose(found, expected, atol=200 * np.finfo(dtype).eps)
