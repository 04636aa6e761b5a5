"""Spectra of segments and convolutions beside SciPy, their inverses, gradients and axes."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest

import weft
from weft.ir.axes import Axis
from weft.signal.convolutions import fast_length

USES: list[dict[str, Any]] = [
    {"nperseg": 8}, {"nperseg": 9, "noverlap": 6}, {"nperseg": 8, "noverlap": 3, "nfft": 12},
    {"nperseg": 8, "return_onesided": False}, {"nperseg": 8, "window": "boxcar", "noverlap": 0},
    {"nperseg": 8, "boundary": "even", "fs": 3.0}, {"nperseg": 8, "boundary": "odd"},
    {"nperseg": 7, "boundary": None, "padded": False, "scaling": "psd"},
    {"nperseg": 8, "boundary": "constant", "detrend": "linear"}, {"nperseg": 8, "axis": 0},
]  # fmt: skip
PAIRS = [((5,), (3,)), ((3,), (5,)), ((4, 5), (3, 2)), ((4, 4, 3), (2, 3, 3)), ((1,), (4,))]


def signal(*shape: int) -> Any:
    return np.random.default_rng(0).normal(size=shape)


def assert_close(found: Any, expected: Any) -> None:
    for own, other in zip(found, expected, strict=True):
        assert own.shape == other.shape
        np.testing.assert_allclose(own, other, atol=1e-12)


@pytest.mark.parametrize("name", ["stft", "spectrogram"])
def test_spectra_are_those_of_scipy(name: str) -> None:
    scipy_signal = pytest.importorskip("scipy.signal")
    x = signal(30, 61)
    uses = USES
    if name == "spectrogram":
        modes = [{"mode": mode} for mode in ("psd", "magnitude", "complex")]
        uses = [{"nperseg": size, "fs": 4.0, **mode} for size in (15, 16) for mode in modes]
    own, other = getattr(weft.signal, name), getattr(scipy_signal, name)
    found = weft.jit(lambda x: [own(x, **use) for use in uses])(x)
    for use, results in zip(uses, found, strict=True):
        assert_close(results, other(x, **use))


@pytest.mark.parametrize("size", [1, 16])
def test_phases_are_angles_without_jumps(size: int) -> None:
    x = signal(3, 61)
    modes: list[Any] = ["angle", "phase"]
    found = weft.jit(
        lambda x: [weft.signal.spectrogram(x, nperseg=size, mode=mode)[2] for mode in modes]
    )
    angles, phases = found(x)
    np.testing.assert_allclose(phases, np.unwrap(angles, axis=1), atol=1e-12)


def test_windows_are_those_of_scipy() -> None:
    scipy_signal = pytest.importorskip("scipy.signal")
    names: list[Any] = ["boxcar", "hann", "hamming", "blackman", "blackmanharris", "nuttall"]
    names += ["flattop", "bartlett", "cosine", "tukey", ("tukey", 0.25), ("tukey", 0.0), 3.5]
    for name in [*names, ("kaiser", 5.0), ("gaussian", 2.5)]:
        for count in (1, 2, 8, 9):
            for periodic in (True, False):
                found = weft.signal.get_window(name, count, periodic, "float64").const
                expected = scipy_signal.get_window(name, count, periodic)
                np.testing.assert_allclose(found, expected, atol=1e-14)


@pytest.mark.parametrize("use", USES[:5])
def test_the_inverse_gives_back_the_signal(backend: str, use: dict[str, Any]) -> None:
    x = signal(2, 61).astype("float32")
    options = {key: value for key, value in use.items() if key != "return_onesided"}
    one = use.get("return_onesided", True)

    def back(x: Any) -> Any:
        spectra = weft.signal.stft(x, **use)[2]
        return weft.real(weft.signal.istft(spectra, input_onesided=one, **options)[1])

    found = weft.jit(back, backend=backend)(x)
    np.testing.assert_allclose(found[:, :61], x, atol=1e-5)


@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize("method", ["direct", "fft"])
def test_convolutions_are_those_of_scipy(method: str, is_complex: bool) -> None:
    scipy_signal = pytest.importorskip("scipy.signal")
    factor = 1 + 2j if is_complex else 1
    for first, second in PAIRS:
        a, b = signal(*first) * factor, signal(*second) / factor
        uses = list(product(("convolve", "correlate"), ("full", "same", "valid")))

        def results(of: Any, a: Any, b: Any) -> list[Any]:
            return [getattr(of, name)(a, b, mode, method) for name, mode in uses]  # noqa: B023

        found = weft.jit(partial(results, weft.signal))(a, b)
        assert_close(found, results(scipy_signal, a, b))


def test_gradients_through_transforms_are_those_of_sums() -> None:
    a, b = signal(3, 8), signal(2, 5)

    def loss(method: str) -> Any:
        def total(a: Any, b: Any) -> Any:
            return weft.sum(weft.square(weft.signal.convolve(a, b, "same", method)))

        return weft.jit(weft.grad(total, (0, 1)))(a, b)

    assert_close(loss("fft"), loss("direct"))


def test_a_window_has_a_gradient() -> None:
    x, window = signal(20), signal(8) + 3

    def power(window: Any) -> Any:
        return weft.sum(weft.square(abs(weft.signal.stft(x, window=window)[2])))

    gradient, step = weft.jit(weft.grad(power))(window), 1e-6 * signal(8)
    change = weft.jit(power)(window + step) - weft.jit(power)(window - step)
    np.testing.assert_allclose(change, 2 * gradient @ step, rtol=1e-5)


def test_axes_keep_their_names() -> None:
    x = weft.placeholder([Axis(20, "time"), Axis(3, "channel")])
    spectra = weft.signal.stft(x, nperseg=8, axis="time")[2]
    assert spectra.axes.names == ("time", "channel", "segments")
    back = weft.signal.istft(spectra, time_axis="segments", freq_axis="time")[1]
    assert back.axes == x.axes
    assert weft.signal.convolve(x, x).axes.names == ("time", "channel")


def test_integers_are_summed_exactly() -> None:
    x = np.arange(300) * 10001
    np.testing.assert_array_equal(weft.jit(weft.signal.convolve)(x, x), np.convolve(x, x))


def test_fast_lengths_have_small_factors() -> None:
    found = [fast_length(n) for n in range(1, 200)]
    for n, length in enumerate(found, 1):
        candidates = [m for m in range(n, 2 * n + 1) if m <= 2 or m % 2 == 0]
        assert length == next(m for m in candidates if 60**9 % m == 0)


@pytest.mark.parametrize("name", ["check_COLA", "check_NOLA"])
def test_overlaps_are_judged_as_in_scipy(name: str) -> None:
    own, other = getattr(weft.signal, name), getattr(pytest.importorskip("scipy.signal"), name)
    windows = ["hann", "boxcar", ("tukey", 0.25), np.array([0.0, 1.0, 2.0, 1.0, 0.0, 0.0, 3.0])]
    found = [
        (own(window, 7, overlap), other(window, 7, overlap))
        for window, overlap in product(windows, range(7))
    ]
    assert all(ours is bool(theirs) for ours, theirs in found)
    assert {ours for ours, _ in found} == {False, True}
