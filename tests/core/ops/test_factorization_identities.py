"""What factorizations are by definition, for matrices of all shapes, dtypes, ranks and scales."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft import linalg

Pairs = Iterator[tuple[Any, Any]]


@st.composite
def stacks(draw: Any, is_square: bool) -> Any:
    """Draw a stack of matrices, whose ranks may be less than their shapes allow."""
    m = draw(st.integers(1, 6))
    n = m if is_square else draw(st.integers(1, 6))
    head = draw(st.sampled_from([(), (1,), (3,), (2, 2), (0,)]))
    rank = draw(st.just(min(m, n)) | st.integers(0, min(m, n)))
    dtype = draw(st.sampled_from(["f4", "f8", "c8", "c16"]))
    scale = 10.0 ** draw(st.sampled_from([0, -5, 5]))
    rng = np.random.default_rng(draw(st.integers(0, 99)))

    def normal(*shape: int) -> Any:
        real = rng.normal(size=(*head, *shape))
        return real + 1j * rng.normal(size=real.shape) if dtype[0] == "c" else real

    return (normal(m, rank) @ normal(rank, n) * scale).astype(dtype)


def run(f: Callable[..., Any], *arrays: Any) -> Any:
    return weft.jit(f, backend="numpy")(*arrays)


def turned(x: Any) -> Any:
    return x.conj().mT


def orthonormal(x: Any) -> tuple[Any, Any]:
    """Return the products of columns with each other, and what they should be."""
    product = turned(x) @ x
    return product, np.broadcast_to(np.eye(x.shape[-1]), product.shape)


def of_qr(x: Any) -> Pairs:
    for mode in ("reduced", "complete"):
        q, r = run(lambda x, mode=mode: linalg.qr(x, mode=mode), x)
        yield q @ r, x
        yield orthonormal(q)
        assert not np.tril(r, -1).any()


def of_svd(x: Any) -> Pairs:
    u, s, vh = run(lambda x: linalg.svd(x, full_matrices=False), x)
    yield u * s[..., None, :] @ vh, x
    yield orthonormal(u)
    yield orthonormal(turned(vh))
    assert np.all(s[..., :-1] >= s[..., 1:])
    assert np.all(s >= 0)


def of_lu(x: Any) -> Pairs:
    p, lower, upper = run(linalg.lu, x)
    yield p @ lower @ upper, x
    yield np.triu(lower), np.eye(*lower.shape[-2:]) + 0 * lower
    assert not np.tril(upper, -1).any()
    # LAPACK compares the sums of both parts of complex numbers.
    assert np.all(abs(lower) <= 1.5)


def of_pinv(x: Any) -> Pairs:
    """The four equations of Penrose, relative to the condition of the matrices."""
    p = run(linalg.pinv, x)
    size = np.linalg.norm(x, axis=(-2, -1)) * np.linalg.norm(p, axis=(-2, -1))
    condition = np.maximum(size, 1)[..., None, None]
    yield x @ p @ x / condition, x / condition
    yield p @ x @ p / condition, p / condition
    for projection in (x @ p, p @ x):
        yield (turned(projection) - projection) / condition + 1, np.ones(1)


def of_eigh(x: Any) -> Pairs:
    x = x + turned(x)
    values, vectors = run(linalg.eigh, x)
    yield vectors * values[..., None, :] @ turned(vectors), x
    yield orthonormal(vectors)
    assert np.all(values[..., :-1] <= values[..., 1:])


def of_ldl(x: Any) -> Pairs:
    x = x + turned(x)
    lower, middle, order = run(linalg.ldl, x)
    yield lower @ middle @ turned(lower), x
    rows = np.take_along_axis(lower, order[..., None], -2)
    yield np.triu(rows), np.eye(x.shape[-1]) + 0 * rows


def of_cholesky(x: Any) -> Pairs:
    """Of matrices that are far from singular."""
    size = np.max(abs(x), (-2, -1), keepdims=True, initial=1e-12) * x.shape[-1]
    x = x @ turned(x) + size**2 * np.eye(x.shape[-1], dtype=x.dtype)
    for upper in (False, True):
        factor = run(lambda x, upper=upper: linalg.cholesky(x, upper=upper), x)
        yield turned(factor) @ factor if upper else factor @ turned(factor), x


def of_det(x: Any) -> Pairs:
    """The determinant of a product, relative to the largest that such columns can have."""
    x = x / np.maximum(np.linalg.norm(x, axis=-2, keepdims=True), 1e-30)
    first, product = run(lambda x: [linalg.det(x), linalg.det(x @ x)], x)
    yield (1 + first**2 - product)[..., None, None], np.ones((1, 1), x.dtype)


SQUARE = {"eigh": of_eigh, "ldl": of_ldl, "cholesky": of_cholesky, "det": of_det}
OBLONG = {"qr": of_qr, "svd": of_svd, "lu": of_lu, "pinv": of_pinv}


def apart(found: Any, wanted: Any) -> Any:
    """Return the distances of matrices, relative to the precision and the norm of the second."""
    eps = np.finfo(found.dtype).eps
    found, wanted = np.broadcast_arrays(found.astype("c16"), wanted.astype("c16"))
    norm = np.maximum(np.linalg.norm(wanted, axis=(-2, -1)), np.finfo("f4").tiny)
    return np.linalg.norm(found - wanted, axis=(-2, -1)) / norm / eps


@pytest.mark.parametrize("name", [*SQUARE, *OBLONG])
def test_factors_fulfil_what_defines_them(name: str) -> None:
    of = {**SQUARE, **OBLONG}[name]

    @given(stacks(is_square=name in SQUARE))
    @settings(max_examples=10)
    def holds(x: Any) -> None:
        for found, wanted in of(x):
            assert np.all(apart(found, wanted) <= 100), (found, wanted)

    holds()
