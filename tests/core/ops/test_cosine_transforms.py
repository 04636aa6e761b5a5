"""Cosine and sine transforms: lengths of every kind beside SciPy, their cost, inverses and axes."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import weft
from weft.ir.axes import Axis
from weft.ops.products.fourier import FourierOp, InverseRealFourierOp, RealFourierOp

NAMES = ("dct", "idct", "dst", "idst")
TYPES = (1, 2, 3, 4)
LENGTHS = (*range(2, 10), 15, 16, 33, 64, 101)
OPTIONS = [
    {"norm": norm, "orthogonalize": factors}
    for norm in ("backward", "ortho", "forward")
    for factors in (None, True, False)
]


def signal(*shape: int) -> Any:
    return np.random.default_rng(0).normal(size=shape)


@pytest.mark.parametrize("name", NAMES)
def test_transforms_are_those_of_scipy(name: str) -> None:
    scipy_fft = pytest.importorskip("scipy.fft")
    expected = getattr(scipy_fft, name)
    own = getattr(weft.fft, name)
    lines = [signal(2, n) for n in LENGTHS]
    uses = [{"type": type, **options} for type in TYPES for options in OPTIONS][::5]
    found = weft.jit(lambda lines: [[own(x, **use) for x in lines] for use in uses])(lines)
    for use, results in zip(uses, found, strict=True):
        for x, result in zip(lines, results, strict=True):
            np.testing.assert_allclose(result, expected(x, **use), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("type", TYPES)
def test_backends_transform_as_scipy_does(backend: str, type: int) -> None:
    scipy_fft = pytest.importorskip("scipy.fft")
    x, z = signal(3, 12).astype("float32"), signal(2, 9) + 1j * signal(9)

    def both(x: Any, z: Any) -> Any:
        return weft.fft.dct(x, type, 10, 0), weft.fft.dst(z, type, norm="ortho")

    found = weft.jit(both, backend=backend)(x, z)
    assert [each.dtype for each in found] == ["float32", "complex128"]
    np.testing.assert_allclose(found[0], scipy_fft.dct(x, type, 10, 0), atol=1e-5)
    np.testing.assert_allclose(found[1], scipy_fft.dst(z, type, norm="ortho"), atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("type", TYPES)
def test_gradients_are_products_with_the_transposed_matrix(name: str, type: int) -> None:
    transform = partial(getattr(weft.fft, name), type=type)
    for n in (2, 7, 8):
        matrix = weft.jit(transform)(np.eye(n))
        cotangent, x = signal(3, n), signal(3, n)
        gradient = weft.grad(lambda x, c: weft.sum(c * transform(x)))
        np.testing.assert_allclose(weft.jit(gradient)(x, cotangent), cotangent @ matrix.T)
        hessian = weft.jit(weft.hessian(lambda x: weft.sum(weft.square(transform(x)))))(x[0])
        np.testing.assert_allclose(hessian, 2 * matrix @ matrix.T, atol=1e-12)


@pytest.mark.parametrize("forward", ["dct", "dst", "dctn", "dstn"])
@pytest.mark.parametrize("type", TYPES)
def test_inverses_give_back_the_operand(forward: str, type: int) -> None:
    x = signal(4, 7)
    for norm in ("backward", "ortho", "forward"):
        there = partial(getattr(weft.fft, forward), type=type, norm=norm)
        back = partial(getattr(weft.fft, f"i{forward}"), type=type, norm=norm)
        np.testing.assert_allclose(weft.jit(lambda x: back(there(x)))(x), x, atol=1e-14)  # noqa: B023


@pytest.mark.parametrize(
    ("name", "type", "n", "lengths"),
    [
        ("dct", 2, 64, [64]), ("dst", 3, 63, [63]), ("dct", 1, 65, [128]), ("dst", 1, 63, [128]),
        ("dct", 4, 64, [32]), ("dst", 4, 63, [63]),
    ],
)  # fmt: skip
def test_a_transform_is_one_of_real_numbers_or_of_half_as_many(
    name: str, type: int, n: int, lengths: list[int]
) -> None:
    x = weft.placeholder((3, n))
    ops = weft.capture([getattr(weft.fft, name)(x, type)], [x]).ops
    complex_ones = [op.axes.lengths[-2] for op in ops if isinstance(op, FourierOp)]
    there = [op.args[0].axes.lengths[-1] for op in ops if isinstance(op, RealFourierOp)]
    back = [op.axes.lengths[-1] for op in ops if isinstance(op, InverseRealFourierOp)]
    assert [*complex_ones, *there, *back] == lengths


@pytest.mark.parametrize("n", [16, 243, 1024])
@pytest.mark.parametrize("type", TYPES)
def test_errors_of_float32_grow_with_the_logarithm_of_the_length(type: int, n: int) -> None:
    x = signal(2, n)
    found = weft.jit(lambda x: weft.fft.dct(x, type))(x.astype("float32"))
    exact = weft.jit(lambda x: weft.fft.dct(x, type))(x.astype("float32").astype("float64"))
    error = np.linalg.norm(found - exact) / np.linalg.norm(exact)
    assert error < 4 * np.finfo("float32").eps * (1 + np.log2(n))


def test_named_axes_keep_their_names() -> None:
    x = weft.placeholder([Axis(2, "batch"), Axis(8, "time"), Axis(3, "channel")])
    assert weft.fft.dst(x, 4, axis="time").axes == x.axes
    assert weft.fft.idctn(x, axes=["channel", "time"]).axes == x.axes
    assert weft.fft.dct(x, 1, 5, axis="time").axes.lengths == (2, 5, 3)


def test_a_wrong_transform_is_refused_with_what_to_do() -> None:
    x = weft.placeholder((2, 1))
    with pytest.raises(weft.errors.AxesError, match="type 1 needs 2 elements or more"):
        weft.fft.dctn(x, 1)
    with pytest.raises(weft.errors.ArgumentError, match="type must be 1, 2, 3 or 4, not 'II'"):
        weft.fft.dct(x, "II")  # type: ignore[arg-type]
