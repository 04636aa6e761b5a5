"""Fourier transforms: lengths of every kind, their decompositions, and what `weft.fft` accepts."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import weft
from weft import plugins
from weft.ir.axes import Axis
from weft.ops.products.fourier import (
    FourierOp,
    InverseRealFourierOp,
    RealFourierOp,
    complex_of,
    parts_of,
    roots_of_unity,
)
from weft.testing.reference import evaluate

Array = np.ndarray[Any, Any]

LENGTHS = [*range(1, 41), 61, 64, 67, 97, 100, 127, 128, 134, 243, 331, 1000, 1024]

TRANSFORMS: dict[str, tuple[Callable[..., Any], Callable[[Array, int], Array]]] = {
    "fft": (lambda x: weft.fft.fft(x), lambda x, n: np.fft.fft(x)),
    "ifft": (lambda x: weft.fft.ifft(x, norm="ortho"), lambda x, n: np.fft.ifft(x, norm="ortho")),
    "rfft": (lambda x: weft.fft.rfft(x.real), lambda x, n: np.fft.rfft(x.real)),
    "irfft": (
        lambda x: weft.fft.irfft(x, 2 * x.shape[-1] - 1),
        lambda x, n: np.fft.irfft(x, 2 * n - 1),
    ),
}


def simpler(op: weft.TensorOp, *placeholders: Any) -> weft.Graph:
    """Return the graph of an op after its decomposition into primitives."""
    target = weft.Target("primitives", supports=lambda op: not isinstance(op, weft.CompositeOp))
    graph = weft.capture([op], placeholders)
    found: weft.Graph = plugins.load(plugins.PASSES, "decompose")().do_pass(graph, target)
    assert not any(isinstance(each, weft.CompositeOp) for each in found.ops)
    return found


@cache
def signal(*shape: int) -> Array:
    return np.random.default_rng(0).normal(size=shape)


@pytest.mark.parametrize("n", LENGTHS)
def test_decompositions_give_what_numpy_gives(n: int) -> None:
    pairs, lines, halves = signal(3, n, 2), signal(3, n), signal(3, n // 2 + 1, 2)
    z = complex_of(pairs)
    cases = [
        (lambda x: FourierOp(x, sign=-1, scale=2.0), pairs, parts_of(2 * np.fft.fft(z))),
        (lambda x: FourierOp(x, sign=1, scale=1 / n), pairs, parts_of(np.fft.ifft(z))),
        (lambda x: RealFourierOp(x, scale=0.5), lines, parts_of(np.fft.rfft(lines) / 2)),
        (
            lambda x: InverseRealFourierOp(x, length=n, scale=1 / n), halves,
            np.fft.irfft(complex_of(halves), n),
        ),
    ]  # fmt: skip
    for build, values, expected in cases:
        x = weft.placeholder(values.shape, dtype="float64")
        (found,), _ = evaluate(simpler(build(x), x), [values])
        size = np.abs(expected).max()
        np.testing.assert_allclose(found, expected, atol=1e-14 * size * (1 + np.log2(n)))


@pytest.mark.parametrize("n", [2, 3, 8, 12, 100, 1024, 1009])
def test_errors_of_float32_grow_with_the_logarithm_of_the_length(n: int) -> None:
    pairs = signal(2, n, 2).astype("float32")
    x = weft.placeholder(pairs.shape)
    (found,), _ = evaluate(simpler(FourierOp(x, sign=-1, scale=1.0), x), [pairs])
    exact = np.fft.fft(complex_of(pairs.astype("float64")))
    error = np.linalg.norm(complex_of(found) - exact) / np.linalg.norm(exact)
    assert error < 4 * np.finfo("float32").eps * (1 + np.log2(n))


def test_roots_of_unity_are_exact_at_quarters() -> None:
    assert roots_of_unity(8, -1)[::2].tolist() == [1, -1j, -1, 1j]
    assert roots_of_unity(4, 1).tolist() == [1, 1j, -1, -1j]


def test_a_real_transform_is_one_of_half_as_many_complex_numbers() -> None:
    x = weft.placeholder((5, 64))
    graph = weft.capture([RealFourierOp(x, scale=1.0).decompose(x)], [x])
    assert [op.axes.shape for op in graph.ops if isinstance(op, FourierOp)] == [(5, 32, 2)]


@pytest.mark.parametrize("n", [12, 67])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_backends_transform(backend: str, name: str, n: int) -> None:
    build, expected = TRANSFORMS[name]
    values = complex_of(signal(4, n, 2)).astype("complex64")
    found = weft.jit(build, backend=backend)(values)
    wanted = expected(values.astype("complex128"), n)
    size = np.abs(wanted).max()
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5 * size)


def test_gradients_of_a_spectrum_are_those_of_its_energy(backend: str) -> None:
    values = signal(3, 20)

    def energy(x: Any) -> Any:
        return weft.sum(weft.square(abs(weft.fft.fft(x))))

    found = weft.jit(weft.grad(energy), backend=backend)(values)
    np.testing.assert_allclose(found, 2 * 20 * values, rtol=1e-12)  # Parseval's theorem


def test_convolutions_are_products_of_spectra(backend: str) -> None:
    x, w = signal(2, 30), signal(7)

    def convolved(x: Any, w: Any) -> Any:
        return weft.fft.irfft(weft.fft.rfft(x, 36) * weft.fft.rfft(w, 36), 36)

    found = weft.jit(convolved, backend=backend)(x, w)
    np.testing.assert_allclose(found, [np.convolve(row, w) for row in x], atol=1e-12)


@pytest.mark.parametrize("n", [12, 64])
def test_examples_in_batches_of_unknown_length(backend: str, n: int) -> None:
    transform = weft.jit(weft.vmap(weft.fft.rfft), backend=backend, dynamic="batch")
    for count in (3, 1, 17, 0, 5):
        values = signal(count, n)
        np.testing.assert_allclose(transform(values), np.fft.rfft(values), atol=1e-13)


def test_a_batch_of_transforms_is_one() -> None:
    x = weft.placeholder((5, 3, 8), "complex64")
    for build in (weft.fft.fft, weft.fft.hfft, lambda x: weft.fft.rfft(weft.real(x))):
        batched = weft.capture([weft.vmap(build)(x)], [x])
        single = weft.capture([build(x)], [x])
        kinds = [
            {type(op) for op in graph.ops if "FourierOp" in type(op).__name__}
            for graph in (batched, single)
        ]
        assert kinds[0] == kinds[1] != set()


OTHERS = [72, 96, 100, 105, 121, 128, 135, 169, 210, 211, 243, 256, 331, 343, 360, 512, 625, 1000,
          1009, 1024, 2002, 2048, 4093, 4096, 6561, 8192, 16384, 32768, 65536]  # fmt: skip
GROUPS = [range(first, first + 8) for first in range(1, 65, 8)]
GROUPS += [OTHERS[first : first + 4] for first in range(0, len(OTHERS), 4)]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("lengths", GROUPS, ids=lambda lengths: f"{lengths[0]} to {lengths[-1]}")
def test_errors_of_backends_grow_with_the_logarithm(
    backend: str, lengths: list[int], dtype: str
) -> None:
    rng = np.random.default_rng(0)
    for rows in (1, 3):
        pairs = [rng.normal(size=(rows, n, 2)).astype(dtype) for n in lengths]
        exact = [complex_of(each.astype("longdouble")) for each in pairs]

        def transforms(*several: Any) -> Any:
            return [
                [weft.fft.fft(z), weft.fft.ifft(z), weft.fft.rfft(weft.real(z)),
                 weft.fft.irfft(z[:, : z.shape[1] // 2 + 1], z.shape[1])]
                for z in several
            ]  # fmt: skip

        found = weft.jit(transforms, backend=backend)(*map(complex_of, pairs))
        for n, z, values in zip(lengths, exact, found, strict=True):
            wanted = [np.fft.fft(z), np.fft.ifft(z), np.fft.rfft(z.real),
                      np.fft.irfft(z[:, : n // 2 + 1], n)]  # fmt: skip
            for value, expected in zip(values, wanted, strict=True):
                error = np.linalg.norm(value - expected) / np.linalg.norm(expected)
                assert error < 2 * np.finfo(dtype).eps * (1 + np.log2(n)), n


def test_named_axes_keep_their_names() -> None:
    x = weft.placeholder([Axis(2, "batch"), Axis(8, "time"), Axis(3, "channel")])
    spectrum = weft.fft.rfft(x, axis="time")
    assert spectrum.axes.names == ("batch", "time", "channel")
    assert spectrum.axes.lengths == (2, 5, 3)
    back = weft.fft.irfft(spectrum, axis="time")
    assert back.axes == x.axes


@pytest.mark.parametrize("dtype", ["int32", "bool", "float16", "bfloat16"])
def test_other_dtypes_are_converted_to_float32(dtype: str) -> None:
    x = weft.placeholder((8,), dtype)
    assert weft.fft.fft(x).dtype == weft.fft.rfft(x).dtype == "complex64"
    assert weft.fft.irfft(x).dtype == "float32"


def test_frequencies_are_those_of_numpy() -> None:
    for n in (1, 2, 5, 8):
        for own, other in (
            (weft.fft.fftfreq, np.fft.fftfreq), (weft.fft.rfftfreq, np.fft.rfftfreq),
        ):  # fmt: skip
            np.testing.assert_array_equal(own(n, 0.25, "float64").const, other(n, 0.25))
    assert weft.fft.fftfreq(4).dtype == "float32"


def test_parts_in_memory_are_shown_without_a_copy() -> None:
    z = weft.placeholder((3, 4), "complex64")
    pairs = weft.view_as_real(z)
    with weft.make_transformer("numpy") as transformer:
        computation = transformer.computation([pairs * 1, weft.view_as_complex(pairs[::2]) * 1], z)
        values = complex_of(signal(3, 4, 2)).astype("complex64")
        parts, again = computation(values)
    np.testing.assert_array_equal(parts, parts_of(values))
    np.testing.assert_array_equal(again, values[::2])


def test_pairs_that_are_not_in_place_are_copied(backend: str) -> None:
    values = signal(2, 5).astype("float32")
    build = weft.jit(lambda x: weft.view_as_complex(weft.transpose(x)), backend=backend)
    np.testing.assert_array_equal(build(values), values[0] + 1j * values[1])
