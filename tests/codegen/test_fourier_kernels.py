"""Transforms by stages in C, on serial devices and in work groups, against NumPy in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

import weft
from weft.ops.pointwise.complex_parts import ViewAsComplexOp
from weft.ops.products.fourier import (
    FourierOp,
    InverseRealFourierOp,
    RealFourierOp,
    complex_of,
    parts_of,
)
from weft.testing.reference import evaluate

pytest.importorskip("pyopencl")
from running import PARALLEL, PROCESSORS, SERIAL, plan_of, run

from weft_c import legalized
from weft_c.fourier.mixed_radix import RADICES, MixedRadixOp, radices_of

PASSES = ("decompose", "merge-equal", "simple-prune", "constant-folding")

Transform = tuple[Any, Callable[[Any], weft.TensorOp], Any]


@cache
def signal(*shape: int) -> Any:
    return np.random.default_rng(0).normal(size=shape)


def transforms(n: int, outer: tuple[int, ...], dtype: str) -> list[Transform]:
    """Return operands, functions of them, and what NumPy returns in float64."""
    pairs, lines = signal(*outer, n, 2).astype(dtype), signal(*outer, n).astype(dtype)
    halves = signal(*outer, n // 2 + 1, 2).astype(dtype)
    z, half = (complex_of(each.astype("float64")) for each in (pairs, halves))
    return [
        (pairs, lambda x: FourierOp(x, sign=-1, scale=1.0), parts_of(np.fft.fft(z))),
        (pairs, lambda x: FourierOp(x, sign=1, scale=1 / n), parts_of(np.fft.ifft(z))),
        (
            lines, lambda x: RealFourierOp(x, scale=0.5),
            parts_of(np.fft.rfft(lines.astype("float64"))) / 2,
        ),
        (
            halves, lambda x: InverseRealFourierOp(x, length=n, scale=1.0),
            np.fft.irfft(half, n) * n,
        ),
    ]  # fmt: skip


def check_transforms(cases: Sequence[Transform], processor: str) -> None:
    given = [x for x, _, _ in cases]
    parameters = [weft.placeholder(x.shape, x.dtype) for x in given]
    built = [build(x) for (_, build, _), x in zip(cases, parameters, strict=True)]
    found, _ = run(built, *parameters, arrays=given, processor=PROCESSORS[processor], passes=PASSES)
    for value, (x, _, expected) in zip(found, cases, strict=True):
        error = np.linalg.norm(value - expected) / np.linalg.norm(expected)
        assert error < 2 * np.finfo(x.dtype).eps * (1 + np.log2(x.size)), x.shape


@pytest.mark.parametrize("processor", ["serial", "parallel"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [2, 4, 6, 13, 17, 30, 64, 98, 176])
def test_lengths_of_all_kinds(n: int, dtype: str, processor: str):
    check_transforms(transforms(n, (5,), dtype), processor)


@pytest.mark.parametrize("processor", ["serial", "parallel"])
@pytest.mark.parametrize("outer", [(), (1,), (16,), (37,), (2, 3), (3, 1, 17)])
def test_batches(outer: tuple[int, ...], processor: str):
    for n in (12, 128):
        check_transforms(transforms(n, outer, "float32"), processor)


@pytest.mark.parametrize("n", [1024, 3 * 343, 4096])
def test_long_transforms_are_those_of_columns_and_of_rows(n: int):
    """The work groups of this device have little memory."""
    op = FourierOp(weft.placeholder((3, n, 2)), sign=-1, scale=1.0)
    steps = plan_of([op], *op.args, processor=PARALLEL, passes=PASSES).steps
    assert [type(each.op) for each in steps] == [MixedRadixOp, MixedRadixOp]
    check_transforms(transforms(n, (3,), "float32")[:2], "parallel")


def test_a_long_row_is_shared_by_its_columns():
    op = FourierOp(weft.placeholder((1 << 14, 2)), sign=1, scale=1.0)
    steps = plan_of([op], *op.args, processor=SERIAL, passes=PASSES).steps
    assert [type(each.op) for each in steps] == [MixedRadixOp, MixedRadixOp]
    check_transforms(transforms(1 << 14, (), "float32")[:2], "serial")


@pytest.mark.parametrize("processor", ["serial", "parallel"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_axes_are_transformed_where_they_are(axis: int, processor: str):
    values = signal(16, 24, 18, 2).astype("float32")
    order = (*(k for k in range(3) if k != axis), axis, 3)
    back = tuple(int(k) for k in np.argsort(order))

    def build(x: weft.TensorOp) -> weft.TensorOp:
        spectrum = FourierOp(weft.transpose(x, order), sign=-1, scale=1.0)
        return weft.transpose(spectrum, back)

    x = weft.placeholder(values.shape)
    steps = plan_of([build(x)], x, processor=PROCESSORS[processor], passes=PASSES).steps
    assert [type(each.op) for each in steps] == [MixedRadixOp]
    expected = parts_of(np.fft.fft(complex_of(values.astype("float64")), axis=axis))
    check_transforms([(values, build, expected)], processor)


@pytest.mark.parametrize("processor", ["serial", "parallel"])
@pytest.mark.parametrize("axis", [0, 1])
def test_frequencies_are_stored_where_they_are_moved(axis: int, processor: str):
    values = signal(6, 17, 24).astype("float32")
    order = (2, 0, 1, 3) if axis == 0 else (0, 2, 1, 3)

    def build(x: weft.TensorOp) -> weft.TensorOp:
        return ViewAsComplexOp(weft.transpose(RealFourierOp(x, scale=1.0), order))

    x = weft.placeholder(values.shape)
    steps = plan_of([build(x)], x, processor=PROCESSORS[processor], passes=PASSES).steps
    assert [type(each.op) for each in steps] == [MixedRadixOp]
    expected = np.moveaxis(np.fft.rfft(values.astype("float64")), -1, axis)
    check_transforms([(values, build, expected)], processor)


@pytest.mark.parametrize("n", [9, 10, 17, 24])
def test_the_op_says_what_its_kernel_computes(n: int):
    for values, build, expected in transforms(n, (3,), "float64"):
        op = build(weft.placeholder(values.shape, "float64"))
        found = legalized(op, SERIAL)
        if found is not None:
            (value,), _ = evaluate(weft.capture([found], op.args), [values])
            np.testing.assert_allclose(value, expected, atol=1e-13 * np.abs(expected).max())


def test_radices_are_factors():
    for n in range(2, 200):
        radices = radices_of(n)
        assert set(radices) <= set(RADICES)
        assert int(np.prod(radices)) == n or not radices
        assert bool(radices) == all(n % p for p in (17, 19, *range(23, 200, 2)) if is_prime(p))


def is_prime(p: int) -> bool:
    return all(p % k for k in range(2, int(p**0.5) + 1))
