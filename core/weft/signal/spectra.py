"""Spectra of overlapping segments of a signal, and the signal of such spectra.

Functions have the arguments, results and scales of `scipy.signal`, so that programs that call it
run unchanged, and like `weft.fft` work along any axis.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike

from weft import nn, ops
from weft.errors import ArgumentError, AxesError
from weft.fft import fft, fftfreq, ifft, irfft, rfft, rfftfreq
from weft.fft.fourier import inexact, named, positional
from weft.ir import dtypes
from weft.ir.axes import Axes, Axis, AxisKey, make_axes
from weft.ir.dtypes import Array, DType
from weft.ir.op import explain, explained
from weft.ir.storage import as_op, constant
from weft.ir.tensor import TensorLike, TensorOp
from weft.nn.spatial.windows import window_axes, windows_at
from weft.ops.arguments import checked_integer, checked_number
from weft.signal.windows import WindowName, window_values

__all__ = ["check_COLA", "check_NOLA", "istft", "spectrogram", "stft"]

Window = WindowName | TensorLike
Detrend = Literal["constant", "linear", False]
Boundary = Literal["zeros", "constant", "even", "odd"] | None

SEGMENTS = "segments"
"""The name of the axis of segments, beside named axes."""

MODES = ("psd", "complex", "magnitude", "angle", "phase")
"""What a spectrogram may be."""

TINY = 1e-10
"""The sum of squares of windows below which a sample counts as left out, as in SciPy."""


def stft(
    x: TensorLike,
    fs: float = 1.0,
    window: Window = "hann",
    nperseg: SupportsIndex | None = None,
    noverlap: SupportsIndex | None = None,
    nfft: SupportsIndex | None = None,
    detrend: Detrend = False,
    return_onesided: bool = True,
    boundary: Boundary = "zeros",
    padded: bool = True,
    axis: AxisKey = -1,
    scaling: Literal["spectrum", "psd"] = "spectrum",
) -> tuple[TensorOp, TensorOp, TensorOp]:
    """Return the Fourier transforms of overlapping segments of a signal.

    Parameters
    ----------
    x
        The signal; integers are converted to float32.
    fs
        The sampling frequency.
    window
        The name of a window, as in `get_window`, or a tensor of its values, which has a gradient.
    nperseg
        The length of a segment: by default that of the tensor `window`, or 256. A shorter signal is
        one segment.
    noverlap
        How many samples a segment shares with the next one; by default half of them.
    nfft
        The length of the transforms: segments are followed by zeros. By default `nperseg`.
    detrend
        What is subtracted from each segment: its mean (``"constant"``), the line through it
        (``"linear"``), or nothing.
    return_onesided
        Whether only frequencies from 0 are returned; a complex signal has all.
    boundary
        How the signal is extended by half a segment at both ends: ``"zeros"``, ``"constant"``,
        ``"even"``, ``"odd"``, or None for not at all. Without it the ends have little weight.
    padded
        Whether zeros follow, so that the last segment is whole; otherwise the rest is left out.
    axis
        The axis of time, of known length.
    scaling
        ``"spectrum"`` divides by the sum of the window, so that a sinusoid has its amplitude, and
        ``"psd"`` so that squares are a spectral density.

    Returns
    -------
    tuple[TensorOp, TensorOp, TensorOp]
        The frequencies, the times of the middles of segments, and the spectra: with frequencies in
        place of the axis, and a new last axis of segments, named ``segments`` if others have names.

    Raises
    ------
    AxesError
        If the axis is not there, is empty, has an unknown length, or is too short to be extended.
    ArgumentError
        If an option has another value, segments overlap wholly, or the window has another length.

    Examples
    --------
    >>> x = np.cos(np.pi * np.arange(16) / 2)
    >>> weft.jit(lambda x: abs(weft.signal.stft(x, nperseg=4)[2][:, 2:4]))(x).round(6)
    array([[0.5, 0.5],
           [0.5, 0.5],
           [0.5, 0.5]])
    """
    op: TensorOp = as_op(x)
    segments = _segments("stft", op, axis, fs, window, nperseg, noverlap, nfft, return_onesided)
    scale = segments.root_of_scale(_choice("stft", "scaling", scaling, ("spectrum", "psd")))
    return segments.spectra(op, detrend, boundary, padded, scale)


def spectrogram(
    x: TensorLike,
    fs: float = 1.0,
    window: Window = ("tukey", 0.25),
    nperseg: SupportsIndex | None = None,
    noverlap: SupportsIndex | None = None,
    nfft: SupportsIndex | None = None,
    detrend: Detrend = "constant",
    return_onesided: bool = True,
    scaling: Literal["density", "spectrum"] = "density",
    axis: AxisKey = -1,
    mode: Literal["psd", "complex", "magnitude", "angle", "phase"] = "psd",
) -> tuple[TensorOp, TensorOp, TensorOp]:
    """Return the power of overlapping segments of a signal at each frequency.

    Parameters
    ----------
    x, fs, window, nperseg, nfft, detrend, return_onesided, axis
        As in `stft`.
    noverlap
        How many samples a segment shares with the next one; by default an eighth of them.
    scaling
        ``"density"`` for a power per frequency, ``"spectrum"`` for the power of sinusoids.
    mode
        ``"psd"`` for the power, in which a frequency above 0 stands for the negative one too;
        ``"complex"`` for the spectra, ``"magnitude"`` and ``"angle"`` for their parts, ``"phase"``
        for the angles plus the turns that keep steps between frequencies within half a turn.

    Returns
    -------
    tuple[TensorOp, TensorOp, TensorOp]
        The frequencies, the times of the middles of segments, and the result, with axes as in
        `stft`.

    Raises
    ------
    AxesError
        If the axis is not there, is empty or has an unknown length.
    ArgumentError
        If an option has another value, segments overlap wholly, or the window has another length.

    Examples
    --------
    >>> x = np.cos(np.pi * np.arange(8) / 2)
    >>> weft.jit(lambda x: weft.signal.spectrogram(x, nperseg=4, scaling="spectrum")[2])(x).shape
    (3, 2)
    """
    op: TensorOp = as_op(x)
    _choice("spectrogram", "mode", mode, MODES)
    segments = _segments(
        "spectrogram", op, axis, fs, window, nperseg, noverlap, nfft, return_onesided, share=8
    )
    _choice("spectrogram", "scaling", scaling, ("density", "spectrum"))
    scale = segments.root_of_scale("psd" if scaling == "density" else scaling)
    frequencies, times, found = segments.spectra(op, detrend, None, False, scale)
    if mode == "psd":
        found = ops.moveaxis(
            ops.square(ops.real(found)) + ops.square(ops.imag(found)), segments.place, -1
        )
        counts = ops.cast_axes(segments.multiplicities(found.dtype), Axes(found.axes[-1:]))
        found = ops.moveaxis(found * counts, -1, segments.place)
    elif mode == "magnitude":
        found = ops.absolute(found)
    elif mode in ("angle", "phase"):
        angles = ops.atan2(ops.imag(found), ops.real(found))
        found = angles if mode == "angle" else _unwrapped(angles, segments.place)
    return frequencies, times, found


def _unwrapped(angles: TensorOp, place: int) -> TensorOp:
    """Return angles with whole turns added along an axis, as `numpy.unwrap` does."""
    moved = ops.moveaxis(positional(angles), place, -1)
    turns = ops.cumsum(ops.round((moved[..., 1:] - moved[..., :-1]) / (2 * np.pi)), -1)
    return named(ops.moveaxis(moved - 2 * np.pi * _padded(turns, 1, 0), -1, place), angles.axes)


def istft(
    Zxx: TensorLike,  # noqa: N803
    fs: float = 1.0,
    window: Window = "hann",
    nperseg: SupportsIndex | None = None,
    noverlap: SupportsIndex | None = None,
    nfft: SupportsIndex | None = None,
    input_onesided: bool = True,
    boundary: bool = True,
    time_axis: AxisKey = -1,
    freq_axis: AxisKey = -2,
    scaling: Literal["spectrum", "psd"] = "spectrum",
) -> tuple[TensorOp, TensorOp]:
    """Return the signal whose segments have, nearest in squares, these Fourier transforms.

    It is the inverse of `stft` with the same options (Griffin and Lim, 1984).

    Parameters
    ----------
    Zxx
        The spectra.
    fs, window, noverlap, scaling
        As in `stft`.
    nperseg
        The length of a segment; by default that of the tensor `window`, or what the number of
        frequencies implies.
    nfft
        The length of the transforms; by default what the number of frequencies implies, and of the
        two possible lengths the even one unless `nperseg` is the odd one.
    input_onesided
        Whether there are only frequencies from 0, and the result is real.
    boundary
        Whether `stft` had extended the signal.
    time_axis, freq_axis
        The axes of segments and of frequencies, of known lengths.

    Returns
    -------
    tuple[TensorOp, TensorOp]
        The times, and the signal with the axis of time in place of that of frequencies. It is 0
        where no window has weight, which without a boundary may be at its ends.

    Raises
    ------
    AxesError
        If an axis is not there, or has an unknown length.
    ArgumentError
        If the windows leave out samples between segments, an option has another value, segments
        overlap wholly, or lengths do not fit together.

    Examples
    --------
    >>> x = np.array([1.0, 2.0, 4.0, 8.0])
    >>> there = lambda x: weft.signal.stft(x, nperseg=2)[2]
    >>> weft.jit(lambda x: weft.signal.istft(there(x))[1])(x).round(6)
    array([1., 2., 4., 8.])
    """
    function, op = "istft", as_op(Zxx)
    places = [explained(function, (op,), op.axes.position, key) for key in (time_axis, freq_axis)]
    if places[0] == places[1]:
        problem = f"time_axis and freq_axis are both axis {places[0]}"
        raise AxesError(explain(function, problem, (op,)))
    moved = ops.moveaxis(positional(op), places, (-2, -1))
    _, rows = (_known(function, op, place) for place in places)
    implied = 2 * (rows - 1) if input_onesided else rows
    weights, size = _window(function, window, nperseg, implied, op.dtype, None)
    odd = input_onesided and size == implied + 1
    length = checked_integer(function, "nfft", nfft or (size if odd else implied), size)
    if length // 2 + 1 != rows if input_onesided else length != rows:
        problem = f"transforms of length {length} do not have {rows} frequencies: give nfft"
        raise ArgumentError(explain(function, problem, (op,)))
    step = size - _overlap(function, noverlap, size, 2)
    _choice(function, "scaling", scaling, ("spectrum", "psd"))
    rate = checked_number(function, "fs", fs, TINY)
    segments = _Segments(function, rate, weights, size, step, length, input_onesided, places[1])
    _require_nonzero_overlap(segments)
    inverse = irfft if input_onesided else ifft
    frames = inverse(moved, length)[..., :size] / segments.root_of_scale(scaling)
    signal = _overlap_added(frames, weights, step, boundary)
    times = np.arange(signal.axes.lengths[-1]) / rate
    place = places[1] - (places[0] < places[1])
    signal = ops.moveaxis(signal, -1, place)
    if op.axes.is_named:
        kept = [axis.name for n, axis in enumerate(op.axes) if n != places[0]]
        signal = ops.cast_axes(signal, Axes(map(Axis, signal.axes.lengths, kept)))
    return constant(times, dtype=weights.dtype), signal


def _overlap_added(frames: TensorOp, weights: TensorOp, step: int, is_extended: bool) -> TensorOp:
    """Return the weighted mean of overlapping frames, without the ends of an extended signal."""
    count, size = frames.axes.lengths[-2:]
    total = _overlapped(frames * weights, step)
    squares = _overlapped(ops.broadcast(ops.square(weights), make_axes((count, size))), step)
    if is_extended:
        half, stop = size // 2, total.axes.lengths[-1] - size // 2
        total, squares = total[..., half:stop], squares[half:stop]
    return total / ops.where(squares > TINY, squares, 1)


def check_COLA(  # noqa: N802
    window: WindowName | ArrayLike,
    nperseg: SupportsIndex,
    noverlap: SupportsIndex,
    tol: float = TINY,
) -> bool:
    """Return whether overlapping windows have a constant sum (constant overlap-add).

    It is `scipy.signal.check_COLA`.

    Parameters
    ----------
    window
        The name of a window, as in `get_window`, or its values.
    nperseg
        The length of a segment.
    noverlap
        The number of samples that a segment has in common with the next one.
    tol
        The largest deviation of a sum from the median of all.

    Returns
    -------
    bool
        Whether each sum is within the tolerance.

    Raises
    ------
    ArgumentError
        If there is no such window, its values do not fit, or a number is out of range.

    Examples
    --------
    >>> weft.signal.check_COLA("hann", 8, 4), weft.signal.check_COLA("hann", 8, 3)
    (True, False)
    """
    sums, tolerance = _sums("check_COLA", window, nperseg, noverlap, tol, 1)
    return bool(np.abs(sums - np.median(sums)).max() < tolerance)


def check_NOLA(  # noqa: N802
    window: WindowName | ArrayLike,
    nperseg: SupportsIndex,
    noverlap: SupportsIndex,
    tol: float = TINY,
) -> bool:
    """Return whether the sum of squares of overlapping windows is above 0 at each sample.

    It is `scipy.signal.check_NOLA` (nonzero overlap-add), which `istft` needs.

    Parameters
    ----------
    window, nperseg, noverlap
        As in `check_COLA`.
    tol
        The number that each sum must exceed.

    Returns
    -------
    bool
        Whether each sum does.

    Raises
    ------
    ArgumentError
        If there is no such window, its values do not fit, or a number is out of range.

    Examples
    --------
    >>> weft.signal.check_NOLA("hann", 8, 4), weft.signal.check_NOLA("hann", 8, 0)
    (True, False)
    """
    sums, tolerance = _sums("check_NOLA", window, nperseg, noverlap, tol, 2)
    return bool(sums.min() > tolerance)


@dataclass(frozen=True)
class _Segments:
    """The segments of a signal.

    Attributes
    ----------
    function
        The name of the function that takes them, for errors.
    fs
        The sampling frequency.
    window
        The values of the window.
    size, step, length
        The number of samples of a segment, that between segments, and the length of transforms.
    is_onesided
        Whether there are only frequencies from 0.
    place
        The place of the axis of time, and of frequencies.
    """

    function: str
    fs: float
    window: TensorOp
    size: int
    step: int
    length: int
    is_onesided: bool
    place: int

    def root_of_scale(self, scaling: str) -> TensorOp:
        """Return the factor of spectra, the root of that of their squares."""
        if scaling == "spectrum":
            return 1 / ops.sum(self.window)
        return (self.fs * ops.sum(ops.square(self.window))) ** -0.5

    def multiplicities(self, dtype: DType) -> TensorOp:
        """Return how many frequencies each one stands for."""
        count = self.length // 2 + 1 if self.is_onesided else self.length
        places = np.arange(count)
        is_single = (places == 0) | (2 * places == self.length) | (not self.is_onesided)
        return constant(np.where(is_single, 1, 2), dtype=dtype)

    def spectra(
        self, op: TensorOp, detrend: Detrend, boundary: Boundary, padded: bool, scale: TensorOp
    ) -> tuple[TensorOp, TensorOp, TensorOp]:
        """Return frequencies, times, and the transforms of the weighted segments."""
        ends = ("zeros", "constant", "even", "odd")
        _choice(self.function, "boundary", boundary or "zeros", ends)
        _choice(self.function, "detrend", detrend or "constant", ("constant", "linear"))
        moved = ops.moveaxis(ops.cast(positional(op), inexact(op)), self.place, -1)
        extended = explained(self.function, (op,), _extended, moved, boundary, self.size // 2)
        total = extended.axes.lengths[-1]
        if padded:
            extended = _padded(extended, 0, (self.size - total) % self.step)
            total = extended.axes.lengths[-1]
        count = (total - self.size) // self.step + 1
        span = (count, self.step, self.size, 1)
        frames = windows_at(extended, {moved.rank - 1: span})
        frames = _detrended(frames, detrend)
        transform = rfft if self.is_onesided else fft
        found = transform(frames * (self.window * scale), self.length)
        result = ops.moveaxis(found, -1, self.place)
        if op.axes.is_named:
            names = [*op.axes.names, SEGMENTS]
            result = ops.cast_axes(result, Axes(map(Axis, result.axes.lengths, names)))
        frequencies = (rfftfreq if self.is_onesided else fftfreq)(
            self.length, 1 / self.fs, self.window.dtype
        )
        middles = np.arange(count) * self.step + self.size / 2
        times = (middles - (self.size / 2 if boundary else 0)) / self.fs
        return frequencies, constant(times, dtype=self.window.dtype), result


def _segments(
    function: str,
    op: TensorOp,
    axis: AxisKey,
    fs: float,
    window: Window,
    nperseg: SupportsIndex | None,
    noverlap: SupportsIndex | None,
    nfft: SupportsIndex | None,
    onesided: bool,
    share: int = 2,
) -> _Segments:
    place = explained(function, (op,), op.axes.position, axis)
    samples = _known(function, op, place)
    weights, size = _window(function, window, nperseg, 256, op.dtype, samples)
    step = size - _overlap(function, noverlap, size, share)
    length = size if nfft is None else checked_integer(function, "nfft", nfft, size)
    rate = checked_number(function, "fs", fs, TINY)
    is_onesided = onesided and op.dtype.kind != "c"
    return _Segments(function, rate, weights, size, step, length, is_onesided, place)


def _window(
    function: str,
    window: Window,
    nperseg: SupportsIndex | None,
    default: int,
    dtype: DType,
    most: int | None,
) -> tuple[TensorOp, int]:
    """Return a window, and the length of a segment, at most that of the signal if it has one."""
    wide = dtype in (dtypes.float64, dtypes.complex128)
    kind = dtypes.float64 if wide else dtypes.float32
    given = None if nperseg is None else checked_integer(function, "nperseg", nperseg, 1)
    if isinstance(window, str | float | int | tuple):
        size = max(default if given is None else given, 1)
        size = size if most is None else min(size, most)
        return constant(window_values(function, window, size, True), dtype=kind), size
    op = ops.cast(positional(as_op(window)), kind)
    size = op.axes.lengths[0] if op.rank == 1 else 0
    if not size or given not in (None, size) or (most is not None and size > most):
        problem = f"a window of shape {op.axes.lengths} does not fit segments of {given or size} "
        problem += "samples" if most is None else f"of a signal of {most}"
        raise ArgumentError(explain(function, problem, (op,)))
    return op, size


def _overlap(function: str, noverlap: SupportsIndex | None, size: int, share: int) -> int:
    if noverlap is None:
        return size // share
    count = checked_integer(function, "noverlap", noverlap, 0)
    if count >= size:
        problem = f"noverlap must be less than the {size} samples of a segment, not {count}"
        raise ArgumentError(explain(function, problem, ()))
    return count


def _choice(function: str, what: str, value: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        problem = f"{what} must be one of {', '.join(map(repr, choices))}, not {value!r}"
        raise ArgumentError(explain(function, problem, ()))
    return value


def _known(function: str, op: TensorOp, place: int) -> int:
    length = op.axes.lengths[place]
    if not isinstance(length, int) or not length:
        problem = f"axis {place} of {op.axes} must have a known length, not 0"
        raise AxesError(explain(function, problem, (op,)))
    return length


def _extended(x: TensorOp, boundary: Boundary, count: int) -> TensorOp:
    """Return a signal with samples before and after it."""
    if boundary is None:
        return x
    if boundary != "odd":
        return _padded(x, count, count, {"constant": "edge", "even": "reflect"}.get(boundary))
    return 2 * _padded(x, count, count, "edge") - _padded(x, count, count, "reflect")


def _padded(x: TensorOp, before: int, after: int, mode: str | None = None) -> TensorOp:
    widths = [(0, 0)] * (x.rank - 1) + [(before, after)]
    return ops.pad(x, widths, mode=mode or "constant")


def _detrended(frames: TensorOp, detrend: Detrend) -> TensorOp:
    """Return segments without their projections on a constant, and on a line."""
    size = frames.axes.lengths[-1]
    line = np.arange(size) - (size - 1) / 2
    removed = [np.ones(size), line] if detrend == "linear" else [np.ones(size)]
    for direction in removed if detrend else []:
        unit = constant(direction / (np.linalg.norm(direction) or 1), dtype=frames.dtype)
        frames = frames - ops.sum(frames * unit, -1, keepdims=True) * unit
    return frames


def _overlapped(frames: TensorOp, step: int) -> TensorOp:
    """Return the sum of segments, which are along the last axis, each a step after the last."""
    *outer, count, size = frames.axes.lengths
    spans = (*((n, 1, 1, 1) for n in outer), (count, step, size, 1))
    target = make_axes((*outer, (count - 1) * step + size))
    return nn.FoldOp(ops.cast_axes(frames, window_axes(spans)), spans=spans, target_axes=target)


def _require_nonzero_overlap(segments: _Segments) -> None:
    """Raise ArgumentError if a known window has no weight for samples between segments (NOLA)."""
    if not segments.window.is_constant:
        return
    squares = _sums_of_steps(np.square(segments.window.const), segments.step)
    if squares.min() <= TINY:
        problem = (
            f"windows of {segments.size} samples, {segments.step} apart, give no weight to some "
            "samples, which are lost (nonzero overlap-add, NOLA): give a greater noverlap"
        )
        raise ArgumentError(explain("istft", problem, ()))


def _sums(
    function: str,
    window: WindowName | ArrayLike,
    nperseg: SupportsIndex,
    noverlap: SupportsIndex,
    tol: float,
    power: int,
) -> tuple[Array, float]:
    """Return the sum of the powers of overlapping windows at each sample, and the tolerance."""
    size = checked_integer(function, "nperseg", nperseg, 1)
    if isinstance(window, str | float | int | tuple):
        values = window_values(function, window, size, True)
    else:
        values = np.asarray(window, np.float64)
    if values.shape != (size,):
        problem = f"a window of shape {values.shape} does not fit segments of {size} samples"
        raise ArgumentError(explain(function, problem, ()))
    step = size - _overlap(function, noverlap, size, 2)
    return _sums_of_steps(values**power, step), checked_number(function, "tol", tol)


def _sums_of_steps(values: Array, step: int) -> Array:
    """Return the sums of every step-th number, from each of the first ones on."""
    padded = np.zeros(-(-len(values) // step) * step)
    padded[: len(values)] = values
    return np.asarray(padded.reshape(-1, step).sum(0))
