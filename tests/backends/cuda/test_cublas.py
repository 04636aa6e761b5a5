"""Products of matrices as cuBLAS is asked for them, in every layout that it takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import weft

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from conftest import Maker
    from pretended import Machine

Build = Callable[[Any, Any], Any]
TAKEN: dict[str, tuple[tuple[int, ...], tuple[int, ...], Build]] = {
    "plain": ((20, 30), (30, 40), lambda x, y: weft.matmul(x, y)),
    "first transposed": ((30, 20), (30, 40), lambda x, y: weft.matmul(x.T, y)),
    "second transposed": ((20, 30), (40, 30), lambda x, y: weft.matmul(x, y.T)),
    "both transposed": ((30, 20), (40, 30), lambda x, y: weft.matmul(x.T, y.T)),
    "columns of a wider one": ((20, 60), (30, 80), lambda x, y: weft.matmul(x[:, 7:37], y[:, :40])),
    "every other row": ((40, 30), (60, 40), lambda x, y: weft.matmul(x[::2], y[1::2])),
    "batch": ((3, 20, 30), (3, 30, 40), lambda x, y: weft.matmul(x, y)),
    "batch of two axes": ((2, 3, 20, 30), (2, 3, 30, 40), lambda x, y: weft.matmul(x, y)),
    "the same second one": ((3, 20, 30), (30, 40), lambda x, y: weft.matmul(x, y)),
    "the same first one": ((20, 30), (3, 30, 40), lambda x, y: weft.matmul(x, y)),
    "every other matrix": ((6, 20, 30), (3, 30, 40), lambda x, y: weft.matmul(x[::2], y)),
    "sums of one term": ((60, 1), (1, 60), lambda x, y: weft.matmul(x, y)),
    "sums of one term, transposed": ((1, 60), (60, 1), lambda x, y: weft.matmul(x.T, y.T)),
}  # fmt: skip
REFUSED: dict[str, tuple[tuple[int, ...], tuple[int, ...], Build]] = {
    "backwards": ((20, 30), (30, 40), lambda x, y: weft.matmul(x[:, ::-1], y)),
    "gaps along both axes": ((20, 60), (30, 40), lambda x, y: weft.matmul(x[:, ::2], y)),
    "repeated": ((20, 1), (30, 40), lambda x, y: weft.matmul(weft.broadcast(x, (20, 30)), y)),
    "a vector": ((1, 300), (300, 40), lambda x, y: weft.matmul(x, y)),
    "small": ((4, 5), (5, 6), lambda x, y: weft.matmul(x, y)),
    "whole numbers": ((20, 30), (30, 40), lambda x, y: weft.matmul(
        weft.cast(x, "int32"), weft.cast(y, "int32"))),
}  # fmt: skip


def uses_cublas(make: Maker, machine: Machine, case: Any) -> bool:
    """Check a product, by itself and in a graph; returns whether cuBLAS made it."""
    *shapes, build = case
    parameters = [weft.placeholder(shape) for shape in shapes]
    random = np.random.default_rng(7)
    arrays = [random.integers(-4, 5, shape).astype(np.float32) for shape in shapes]
    result = build(*parameters)
    expected = weft.make_transformer("numpy").computation(result, *parameters)(*arrays)
    computation = make(passes=[]).computation(result, *parameters)
    for _ in range(3):
        np.testing.assert_array_equal(computation(*arrays), expected)
    return "gemm" in machine.log


LONG: dict[str, tuple[Build, bool]] = {
    "as they are": (lambda x, y: weft.matmul(x, y), False),
    "as views": (lambda x, y: weft.matmul(weft.reshape(x, (9, -1))[1:], weft.reshape(y, (-1, 9))),
                 False),
    "backwards": (lambda x, y: weft.matmul(x[:, ::-1], y), True),
}  # fmt: skip


@pytest.mark.parametrize("name", LONG)
def test_only_our_kernels_take_memory_for_parts_of_long_sums(make: Maker, name: str) -> None:
    build, is_ours = LONG[name]
    x, y = weft.placeholder((9, 9000)), weft.placeholder((9000, 9))
    plan = make(passes=[]).computation(build(x, y), x, y).plan
    assert any(step.workspace for step in plan.steps) == is_ours


@pytest.mark.parametrize("name", TAKEN)
def test_cublas_makes_the_product(make: Maker, machine: Machine, name: str) -> None:
    assert uses_cublas(make, machine, TAKEN[name])


@pytest.mark.parametrize("name", REFUSED)
def test_our_kernel_makes_the_product(make: Maker, machine: Machine, name: str) -> None:
    assert not uses_cublas(make, machine, REFUSED[name])
