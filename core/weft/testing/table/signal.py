"""Rows of the op table: spectra of segments, and convolutions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import weft
from weft.errors import ArgumentError, AxesError, WeftError
from weft.ir.axes import Axis
from weft.ir.tensor import TensorOp
from weft.testing.table.rows import FLOATS, Refusal, Row, Shapes, operands

_SIGNALS: Shapes = (((9,),), ((2, 8),), ((Axis(2, "B"), Axis(7, "T")),))
_PAIRS: Shapes = (((6,), (3,)), ((3, 4), (2, 2)), ((2, 1), (1, 4)))

_HANN = np.array([0.0, 0.5, 1.0, 0.5])
_COUNT = 4
"""The samples of a segment."""


def _spectra(x: Any, between: int) -> Any:
    """Return the spectra of segments of 4 samples, in NumPy."""
    starts = range(0, x.shape[-1] - _COUNT + 1, between)
    segments = [x[..., start : start + _COUNT] * _HANN for start in starts]
    return np.fft.rfft(np.stack(segments, -1), axis=-2)


def _stft(x: Any) -> Any:
    widths = [(0, 0)] * (x.ndim - 1) + [(2, 2 + x.shape[-1] % 2)]
    return _power(_spectra(np.pad(x, widths), 2) / 2)


def _power(z: TensorOp) -> Any:
    return z.real**2 + z.imag**2


def _stft_of(x: TensorOp) -> Any:
    return _power(weft.signal.stft(x, nperseg=_COUNT)[2])


def _spectrogram_of(x: TensorOp) -> Any:
    options: dict[str, Any] = {"nperseg": _COUNT, "noverlap": 1, "detrend": False}
    return weft.signal.spectrogram(x, 2.0, "hann", **options)[2]


def _spectrogram(x: Any) -> Any:
    doubled = np.array([1, 2, 1])[:, None]
    return doubled * _power(_spectra(x, 3)) / (2 * np.sum(_HANN**2))


def _istft_of(x: TensorOp, y: TensorOp) -> Any:
    return weft.signal.istft(weft.complex(x, y), nperseg=2)[1]


def _istft(x: Any, y: Any) -> Any:
    """Return the second samples of segments of two, which alone have weight."""
    return np.fft.irfft(x + 1j * y, axis=-2)[..., 1, :-1]


def _convolution(name: str, method: str, expected: Callable[..., Any]) -> Row:
    build = partial(getattr(weft.signal, name), method=method)
    return Row(
        f"signal.{name}", build, operands("unit", "unit"), _PAIRS, FLOATS, expected, method,
        twice=True, is_generic=False,
    )  # fmt: skip


def _window(x: TensorOp) -> Any:
    return x * weft.signal.get_window("hann", _COUNT)


def _checked(name: str, x: TensorOp) -> Any:
    """Return the operand times 1 for a half, and times 0 for no overlap of two windows."""
    check = getattr(weft.signal, name)
    return x * (check("hann", _COUNT, 2) - check(_HANN, _COUNT, 0))


ROWS: tuple[Row, ...] = (
    Row(
        "signal.stft", _stft_of, operands("unit"), _SIGNALS, FLOATS, _stft, twice=True,
        is_generic=False,
    ),
    Row(
        "signal.spectrogram", _spectrogram_of, operands("unit"), _SIGNALS, FLOATS, _spectrogram,
        twice=True, is_generic=False,
    ),
    Row(
        "signal.istft", _istft_of, operands("unit", "unit"), (((2, 5), (2, 5)),), FLOATS, _istft,
        twice=True, is_generic=False,
    ),
    *(_convolution("convolve", method, np.convolve) for method in ("direct", "fft")),
    _convolution("correlate", "direct", partial(np.correlate, mode="full")),
    Row(
        "signal.fftconvolve", weft.signal.fftconvolve, operands("unit", "unit"), _PAIRS, FLOATS,
        np.convolve, twice=True, is_generic=False,
    ),
    *(
        Row(f"signal.{name}", partial(_checked, name), operands("any"), (((),),), FLOATS,
            lambda x: x)
        for name in ("check_COLA", "check_NOLA")
    ),
    Row("signal.get_window", _window, operands("any"), (((),),), FLOATS, lambda x: x * _HANN),
)  # fmt: skip

_X, _EMPTY = weft.placeholder((2, 6)), weft.placeholder((2, 0))
_UNKNOWN = weft.placeholder((2, weft.symbol("n")))
_SPECTRA = weft.placeholder((3, 5), "complex64")


def _refused(
    names: tuple[str, ...],
    case: str,
    error: type[WeftError],
    words: str,
    *args: Any,
    **options: Any,
) -> list[Refusal]:
    """Return the refusal of the same arguments by several functions."""
    return [
        Refusal(
            f"signal.{name}", case, partial(getattr(weft.signal, name), *args, **options), error,
            words,
        )
        for name in names
    ]  # fmt: skip


_OF_SEGMENTS = ("stft", "spectrogram")
_CHECKS = ("check_COLA", "check_NOLA")
_CONVOLUTIONS = ("convolve", "correlate", "fftconvolve")

REFUSALS: tuple[Refusal, ...] = (
    *_refused(_OF_SEGMENTS, "axis", AxesError, "out of range", _X, axis=2),
    *_refused(_OF_SEGMENTS, "unknown", AxesError, "known length", _UNKNOWN),
    *_refused(_OF_SEGMENTS, "empty", AxesError, "known length, not 0", _EMPTY),
    *_refused(_OF_SEGMENTS, "overlap", ArgumentError, "less than the 4", _X, 1.0, "hann", 4, 4),
    *_refused(_OF_SEGMENTS, "window", ArgumentError, "there are boxcar", _X, 1.0, "han"),
    *_refused(_OF_SEGMENTS, "values", ArgumentError, "does not fit", _X, 1.0, np.ones(7)),
    *_refused(_OF_SEGMENTS, "rate", ArgumentError, "fs must be", _X, 0.0),
    *_refused(_OF_SEGMENTS, "scaling", ArgumentError, "must be one of", _X, scaling="no"),
    *_refused(_OF_SEGMENTS, "detrend", ArgumentError, "'linear'", _X, detrend="no"),
    *_refused(_OF_SEGMENTS, "nfft", ArgumentError, "at least 4", _X, nperseg=4, nfft=3),
    *_refused(("stft",), "boundary", ArgumentError, "'odd'", _X, boundary="no"),
    *_refused(("spectrogram",), "mode", ArgumentError, "'magnitude'", _X, mode="power"),
    *_refused(("istft",), "lost", ArgumentError, "NOLA", _SPECTRA, noverlap=0),
    *_refused(("istft",), "axes", AxesError, "both axis 1", _SPECTRA, freq_axis=1),
    *_refused(("istft",), "nfft", ArgumentError, "do not have 3", _SPECTRA, nfft=6),
    *_refused(_CHECKS, "size", ArgumentError, "at least 1", "hann", 0, 0),
    *_refused(_CHECKS, "values", ArgumentError, "does not fit", _HANN, 5, 2),
    *_refused(_CHECKS, "overlap", ArgumentError, "less than the 4", "hann", 4, 4),
    *_refused(_CHECKS, "tolerance", ArgumentError, "tol must be", "hann", 4, 2, tol=-1.0),
    *_refused(_CONVOLUTIONS, "mode", ArgumentError, "'same'", _X, _X, "no"),
    *_refused(_CONVOLUTIONS, "rank", AxesError, "the same axes", _X, _X[0]),
    *_refused(_CONVOLUTIONS, "empty", AxesError, "known lengths, not 0", _X, _EMPTY),
    *_refused(_CONVOLUTIONS, "valid", AxesError, "along each axis", _X[:1], _X[:, :3], "valid"),
    *_refused(("convolve", "correlate"), "method", ArgumentError, "'direct'", _X, _X, method="no"),
    *_refused(
        ("fftconvolve",), "broadcast", AxesError, "do not broadcast", _X, _X[:, :3], axes=0
    ),
    *_refused(
        ("convolve", "correlate"), "direct", ArgumentError, "up to 3 axes",
        weft.placeholder((1, 2, 2, 2)), weft.placeholder((1, 2, 2, 2)), method="direct",
    ),
    *_refused(("get_window",), "name", ArgumentError, "there are boxcar", "han", 4),
    *_refused(("get_window",), "number", ArgumentError, "takes a number", "kaiser", 4),
    *_refused(("get_window",), "count", ArgumentError, "at least 1", "hann", 0),
)  # fmt: skip
