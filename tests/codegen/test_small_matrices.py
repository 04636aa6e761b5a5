"""Factorizations of small matrices in C: serial, parallel, as CUDA C."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from weft import linalg

pytest.importorskip("pyopencl")
from checking import check, everywhere
from running import PROCESSORS, plan_of, work_of

pytestmark = pytest.mark.slow


def matrices(kind: str, dtype: str, *shape: int) -> Any:
    x = np.random.default_rng(shape).normal(size=shape)
    if kind == "rank 1":
        x = x[..., :1] * x[..., :1, :]
    if kind == "zero":
        x *= 0
    if kind == "equal values":
        x = np.linalg.svd(x, full_matrices=False)
        x = x[0] @ x[2]
    return x.astype(dtype)


def products(x: weft.TensorOp) -> list[weft.TensorOp]:
    """Return what must be the matrices again, identities, and values."""
    u, s, vh = linalg.svd(x, full_matrices=False)
    found = [(u * s[..., None, :]) @ vh, u.mT @ u, vh @ vh.mT, s, linalg.svdvals(x)]
    q, r = linalg.qr(x)
    found += [q @ r, q.mT @ q, linalg.qr(x, mode="complete").Q]
    p, lower, upper = linalg.lu(x)
    return [*found, p @ lower @ upper]


def of_squares(x: weft.TensorOp) -> list[weft.TensorOp]:
    square = x @ x.mT
    values, vectors = linalg.eigh(square)
    regular = square + weft.eye(x.shape[-2], dtype=x.dtype)
    found = [(vectors * values[..., None, :]) @ vectors.mT, vectors.mT @ vectors, values]
    found += [linalg.eigvalsh(square), weft.cholesky(regular), weft.inverse(regular)]
    return [*found, weft.solve(regular, x), *weft.slogdet(regular), linalg.lu_factor(regular).lu]


SHAPES = [(3, 4, 4), (2, 5, 3), (2, 3, 5), (1, 1), (4, 1), (2, 0, 3), (0, 2, 2), (32, 32)]


@everywhere
@pytest.mark.parametrize("kind", ["full rank", "rank 1", "zero", "equal values"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_factors(shape: tuple[int, ...], kind: str, processor: str) -> None:
    given = matrices(kind, "float64", *shape)
    wanted = of_squares if kind != "full rank" else lambda x: [*products(x), *of_squares(x)]
    check(wanted, given, processor=processor, exact=False, passes=("decompose",))


@everywhere
def test_factors_of_lower_rank(processor: str) -> None:
    """Of which the first vectors are determined; the others are orthonormal."""

    def build(x: weft.TensorOp) -> list[weft.TensorOp]:
        u, s, vh = linalg.svd(x)
        return [(u * s[..., None, :]) @ vh, u.mT @ u, vh @ vh.mT, s]

    for kind in ("rank 1", "zero", "equal values"):
        check(
            build,
            matrices(kind, "float64", 3, 6, 6),
            processor=processor,
            exact=False,
            passes=("decompose",),
        )


@everywhere
@pytest.mark.parametrize("size", [1e-25, 1e25])
def test_factors_of_tiny_and_huge_numbers(size: float, processor: str) -> None:
    def build(x: weft.TensorOp) -> list[weft.TensorOp]:
        q, r = linalg.qr(x)
        u, s, vh = linalg.svd(x)
        w, v = linalg.eigh(x)
        each = (s, w, q @ r, (u * s[..., None, :]) @ vh)
        return [x / size for x in each] + [q.mT @ q, u.mT @ u, v.mT @ v]

    check(build, matrices("", "float32", 3, 4, 4) * np.float32(size), processor=processor,
          exact=False, passes=("decompose",))  # fmt: skip


@everywhere
def test_bad_matrices_give_nan_and_spoil_no_other(processor: str) -> None:
    x = matrices("", "float64", 5, 3, 3)
    x[1, 2, 0], x[2, 2, 2], x[3] = np.nan, np.inf, 0

    def build(x: weft.TensorOp) -> list[weft.TensorOp]:
        return [
            linalg.qr(x).Q, linalg.lu_factor(x).lu, linalg.svdvals(x), linalg.eigvalsh(x),
            weft.cholesky(x), weft.inverse(x[::3]), weft.solve(x[::3], x[::3]),
            *weft.slogdet(x[::3]),
        ]  # fmt: skip

    check(build, x, processor=processor, exact=False, passes=("decompose",))


@pytest.mark.parametrize("processor", ["serial", "parallel"])
def test_large_and_complex_matrices_are_factorized_on_the_host(processor: str) -> None:
    for shape, dtype, kernels in (
        ((32, 32), "float32", True), ((33, 33), "float32", False), ((2, 2), "complex64", False)
    ):  # fmt: skip
        x = weft.placeholder(shape, dtype=dtype)
        plan = plan_of([linalg.svdvals(x)], x, processor=PROCESSORS[processor])
        work, source = work_of(plan, PROCESSORS[processor])
        assert work
        assert ("singular_" in source) is kernels
