"""Reductions of many elements: rounding errors must not grow linearly with the number of elements.

The elements have one sign, so that there is no cancellation. The reference uses long doubles. The
error may be 1/64 of the target's relative tolerance for each doubling of the number of elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log2
from typing import Any, NamedTuple

import numpy as np
import pytest

import weft
from weft.ir.dtypes import Array, as_dtype
from weft.ir.target import Target
from weft.runtime.transformer import Transformer
from weft.testing.levels import VALUES, level

pytestmark = level(VALUES)

SHARE = 64
"""The relative tolerance of a target divided by the allowed error for each doubling."""


class Case(NamedTuple):
    """A function of an array in weft and in NumPy.

    Attributes
    ----------
    shape
        The shape of the array.
    elements
        The number of elements reduced into one.
    mean
        The mean that deviations are from. Its rounding error, squared, is what a variance may have
        instead of 0.
    """

    name: str
    build: Callable[[Any], Any]
    expected: Callable[[Any], Any]
    shape: tuple[int, ...]
    elements: int
    mean: float = 0.0


def _sum(name: str, shape: tuple[int, ...], axis: Any, elements: int) -> Case:
    return Case(name, lambda x: weft.sum(x, axis=axis), lambda x: x.sum(axis), shape, elements)


def _variance(name: str, shape: tuple[int, ...], axis: Any, elements: int) -> Case:
    return Case(name, lambda x: weft.variance(x, axis=axis), lambda x: x.var(axis), shape, elements)


def _exponentials(x: Array, axis: int) -> Any:
    return np.exp(x) / np.exp(x).sum(axis, keepdims=True)


SUMS = (
    _sum("a vector", (300_007,), 0, 300_007),
    _sum("rows", (3, 100_003), 1, 100_003),
    _sum("short rows", (50, 3_001), 1, 3_001),
    _sum("few columns", (100_003, 3), 0, 100_003),
    _sum("some columns", (20_011, 16), 0, 20_011),
    _sum("columns", (4_001, 70), 0, 4_001),
    _sum("many columns", (1_009, 300), 0, 1_009),
    _sum("a middle axis", (2, 30_011, 5), 1, 30_011),
    _sum("a middle axis of planes", (3, 2_003, 50), 1, 2_003),
    _sum("the last two of three axes", (5, 61, 1_009), (1, 2), 61_549),
    _sum("the first and the last axis", (61, 3, 1_009), (0, 2), 61_549),
    _sum("the first two of three axes", (61, 101, 48), (0, 1), 6_161),
    _sum("everything", (401, 701), (0, 1), 281_101),
    _sum("before an axis of one element", (100_003, 1), 0, 100_003),
    _sum("after an axis of one element", (1, 100_003), 1, 100_003),
    Case("every other element", lambda x: weft.sum(x[::2]), lambda x: x[::2].sum(),
         (200_003,), 100_002),
    Case("every other column", lambda x: weft.sum(x[:, ::2], axis=0), lambda x: x[:, ::2].sum(0),
         (20_011, 8), 20_011),
    Case("backwards", lambda x: weft.sum(x[::-1], axis=0), lambda x: x.sum(0),
         (50_021, 4), 50_021),
    Case("transposed", lambda x: weft.sum(weft.transpose(x), axis=0), lambda x: x.sum(1),
         (4, 50_021), 50_021),
    Case("repeated", lambda x: weft.sum(weft.broadcast(x, (100_003, 5)), axis=0),
         lambda x: x * 100_003, (5,), 100_003),
    Case("squares", lambda x: weft.sum(weft.square(x), axis=0), lambda x: (x * x).sum(0),
         (50_021, 5), 50_021),
    Case("before a function", lambda x: weft.sqrt(weft.sum(x, axis=0)) + 1,
         lambda x: np.sqrt(x.sum(0)) + 1, (50_021, 4), 50_021),
    Case("a mean", lambda x: weft.mean(x, axis=0), lambda x: x.mean(0), (50_021, 5), 50_021),
)  # fmt: skip

REAL = (
    Case("after a function", lambda x: weft.sum(weft.sqrt(x), axis=1),
         lambda x: np.sqrt(x).sum(1), (3, 100_003), 100_003),
    Case("a norm", lambda x: weft.norm(x, axis=0), lambda x: np.sqrt((x * x).sum(0)),
         (50_021, 5), 50_021),
    Case("exponentials", lambda x: weft.sum(weft.exp(x), axis=0), lambda x: np.exp(x).sum(0),
         (50_021, 5), 50_021),
    Case("a softmax", lambda x: weft.softmax(x, axis=1), lambda x: _exponentials(x, 1),
         (2, 100_003), 100_003),
    Case("a softmax of columns", lambda x: weft.softmax(x, axis=0), lambda x: _exponentials(x, 0),
         (20_011, 3), 20_011),
    Case("their logarithm", lambda x: weft.logsumexp(x, axis=1),
         lambda x: np.log(np.exp(x).sum(1)), (2, 100_003), 100_003),
)  # fmt: skip

PRODUCTS = (
    Case("all", weft.prod, np.prod, (5_003,), 5_003),
    Case("rows", lambda x: weft.prod(x, axis=1), lambda x: x.prod(1), (3, 5_003), 5_003),
    Case("columns", lambda x: weft.prod(x, axis=0), lambda x: x.prod(0), (5_003, 3), 5_003),
    Case("several", lambda x: weft.prod(x, axis=(0, 1)), lambda x: x.prod((0, 1)),
         (61, 101, 40), 6_161),
)  # fmt: skip

FAR = (
    _variance("rows", (3, 100_003), 1, 100_003),
    _variance("short rows", (20, 3_001), 1, 3_001),
    _variance("columns", (50_021, 5), 0, 50_021),
    _variance("many columns", (2_003, 70), 0, 2_003),
    _variance("everything", (401, 301), (0, 1), 120_701),
    _variance("a middle axis", (2, 10_007, 5), 1, 10_007),
    _variance("several axes", (31, 3, 1_009), (0, 2), 31_279),
    Case("a standard deviation", lambda x: weft.std(x, axis=1), lambda x: x.std(1),
         (3, 50_021), 50_021),
    Case("of equal numbers", lambda x: weft.variance(x * 0 + 1e6, axis=1), lambda x: x[:, 0] * 0,
         (3, 50_021), 50_021, mean=1e6),
)  # fmt: skip


def problems(
    found: Sequence[Any], cases: Sequence[Case], arrays: Sequence[Any], target: Target
) -> list[str]:
    """Return a line for each case with results too far from NumPy's."""
    lines = []
    for case, got, array in zip(cases, found, arrays, strict=True):
        wide = np.clongdouble if array.dtype.kind == "c" else np.longdouble
        want = case.expected(array.astype(wide))
        relative, _ = target.tolerance(array.dtype)
        bound = relative * log2(case.elements) / SHARE
        rounding = float(np.spacing(array.dtype.type(case.mean))) if case.mean else 0.0
        allowed = bound * (np.abs(want) + rounding**2)
        close = np.abs(np.asarray(got).astype(wide) - want) <= allowed
        if not np.all(close):
            lines.append(f"{case.name}: {np.asarray(got)[~close][:3]} != {want[~close][:3]}")
    return lines


def compute(
    transformer: Transformer, cases: Sequence[Case], arrays: Sequence[Any]
) -> Sequence[Any]:
    """Return the results of all cases, in one program."""
    parameters = [weft.placeholder(each.shape, dtype=each.dtype) for each in arrays]
    results = [case.build(x) for case, x in zip(cases, parameters, strict=True)]
    return transformer.computation(results, *parameters)(*arrays)  # type: ignore[no-any-return]


def check(
    transformer: Transformer,
    cases: Sequence[Case],
    dtype: str,
    draw: Callable[[tuple[int, ...]], Any],
) -> None:
    """Compute cases on random arrays, and compare."""
    if dtype not in transformer.target.dtypes:
        pytest.skip(f"{transformer.target.name} does not compute with {dtype}")
    arrays = [np.asarray(draw(case.shape)).astype(as_dtype(dtype)) for case in cases]
    assert problems(compute(transformer, cases, arrays), cases, arrays, transformer.target) == []


def even(shape: tuple[int, ...]) -> Any:
    """Return an array of 0.1, for which all rounding errors have the same sign."""
    return np.full(shape, 0.1)


def uneven(shape: tuple[int, ...]) -> Any:
    """Return an array of positive numbers."""
    return np.random.default_rng(7).uniform(0.5, 1.5, shape)


def near_one(shape: tuple[int, ...]) -> Any:
    """Return factors whose product stays in range."""
    return 1 + 1e-3 * np.random.default_rng(8).standard_normal(shape)


def far_from_zero(shape: tuple[int, ...]) -> Any:
    """Return numbers with a mean a million times their standard deviation."""
    return 1e6 + np.random.default_rng(9).standard_normal(shape)


@pytest.mark.share(6)
@pytest.mark.parametrize("draw", [even, uneven])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
def test_long_sums(transformer: Transformer, dtype: str, draw: Any) -> None:
    """Sums of rows, columns and other layouts, and functions of them, are accurate."""
    check(transformer, SUMS if dtype == "complex64" else (*SUMS, *REAL), dtype, draw)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_long_sums_of_16_bits(transformer: Transformer, dtype: str) -> None:
    """Sums of 16-bit floats are computed in float32, and rounded once."""
    names = ("a mean", "short rows", "columns", "many columns")
    check(transformer, [case for case in SUMS if case.name in names], dtype, even)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
def test_long_products(transformer: Transformer, dtype: str) -> None:
    """Products are accurate, though each multiplication rounds."""
    check(transformer, PRODUCTS, dtype, near_one)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_variances_far_from_zero(transformer: Transformer, dtype: str) -> None:
    """Variances are accurate, though the rounding error of the mean is not negligible."""
    check(transformer, FAR, dtype, far_from_zero)
