"""Fourier transforms and windows."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from weft_onnx.nodes import Node, lowers, numpy_dtype
from weft_onnx.values import Tensor


def _dft(
    node: Node, real: Tensor, imag: Tensor | None, length: int, inverse: bool
) -> tuple[Tensor, Tensor]:
    """Return both parts of the transform along the last axis, padded or cropped to a length.

    It is a product with the matrix of the transform, for few points as quick as a fast transform.
    """
    n = real.axes.shape[-1]
    count = min(n, length)
    node.require_room(count, length)
    steps = np.outer(np.arange(count), np.arange(length)) % length
    angles = 2 * np.pi * steps / length
    scale = 1 / length if inverse else 1.0
    sign = 1.0 if inverse else -1.0
    kind = real.dtype
    cos = weft.constant((np.cos(angles) * scale).astype(kind))
    sin = weft.constant((np.sin(angles) * scale * sign).astype(kind))

    real = real[..., :count]
    if imag is None:
        return real @ cos, real @ sin
    imag = imag[..., :count]
    return real @ cos - imag @ sin, real @ sin + imag @ cos


def _whole(half: Tensor, length: int, is_imaginary: bool) -> Tensor:
    """Return a part of the spectrum of a real signal from its first half, on the last axis."""
    kept, last = length // 2 + 1, half.rank - 1
    n = half.axes.shape[last]
    if n < kept:
        half = weft.pad(half, [(0, 0)] * last + [(0, kept - n)])
    half = half[..., :kept]
    mirrored = weft.take(half, weft.constant(np.arange(length - kept, 0, -1)), last)
    return weft.concat([half, -mirrored if is_imaginary else mirrored], last)


@lowers("DFT")
def dft(node: Node) -> Any:
    """Return the discrete Fourier transform along an axis."""
    x = node[0]
    axis = (node.ints(2)[0] if node.has(2) else -2) if node.version >= 20 else node.attr("axis", 1)
    axis = node.axis(axis)
    is_inverse, is_onesided = node.flag("inverse"), node.flag("onesided")
    parts = x.axes.shape[-1]
    real = weft.slice_along_axis(x, -1, 0)
    imag: Any = weft.slice_along_axis(x, -1, 1) if parts == 2 else None
    length = node.ints(1)[0] if node.has(1) else None
    if is_onesided and is_inverse != (imag is not None):
        wanted = "complex numbers" if is_inverse else "real numbers"
        raise node.error(f"with onesided 1 and inverse {int(is_inverse)} it takes {wanted} only")
    if is_inverse and is_onesided:
        length = length or 2 * (x.axes.shape[axis] - 1)
        node.require_room(length)
        real, imag = (
            _whole(weft.moveaxis(each, axis, -1), length, each is imag) for each in (real, imag)
        )
        found, _ = _dft(node, real, imag, length, True)
        return weft.unsqueeze(weft.moveaxis(found, -1, axis), -1)
    length = length or x.axes.shape[axis]
    real = weft.moveaxis(real, axis, -1)
    imag = None if imag is None else weft.moveaxis(imag, axis, -1)
    both = _dft(node, real, imag, length, is_inverse)
    kept = length // 2 + 1 if is_onesided else length
    several = [weft.moveaxis(each[..., :kept], -1, axis) for each in both]
    return weft.stack(several, pos=x.rank - 1)


@lowers("STFT")
def stft(node: Node) -> Any:
    """Return the Fourier transforms of windows of a signal."""
    x, step = node[0], node.ints(1)[0]
    window = node.get(2)
    length = node.ints(3)[0] if node.has(3) else None
    if length is None:
        assert window is not None, "the schema wants one of both"
        length = window.axes.shape[0]
    is_onesided = node.flag("onesided")
    if x.rank == 3:
        parts = x.axes.shape[-1]
    else:
        x, parts = weft.unsqueeze(x, -1), 1
    n = x.axes.shape[1]
    count = (n - length) // step + 1
    node.require_room(count, length)
    places = np.arange(count)[:, None] * step + np.arange(length)[None]
    frames = weft.take(x, weft.constant(places.astype(np.int64)), 1)
    real = weft.slice_along_axis(frames, -1, 0)
    imag = weft.slice_along_axis(frames, -1, 1) if parts == 2 else None
    if window is not None:
        real = real * window
        imag = None if imag is None else imag * window
    both = _dft(node, real, imag, length, False)
    kept = length // 2 + 1 if is_onesided else length
    return weft.stack([each[..., :kept] for each in both], pos=3)


def _window(node: Node, terms: tuple[float, ...]) -> Any:
    size = node.ints(0)[0]
    dtype = numpy_dtype(node.choice("output_datatype"))
    node.require_room(size, len(terms))
    period = size if node.flag("periodic") else size - 1
    angles = 2 * np.pi * np.arange(size) / period
    orders = np.arange(len(terms))[:, None]
    found = (np.cos(orders * angles) * np.array(terms)[:, None]).sum(0)
    # Rounding first keeps the 1 in the middle from becoming the integer 0.
    return found.astype(np.float32).astype(dtype) if dtype.kind in "iu" else found.astype(dtype)


@lowers("HannWindow")
def hann_window(node: Node) -> Any:
    """Return a Hann window."""
    return _window(node, (0.5, -0.5))


@lowers("HammingWindow")
def hamming_window(node: Node) -> Any:
    """Return a Hamming window."""
    return _window(node, (25 / 46, -21 / 46))


@lowers("BlackmanWindow")
def blackman_window(node: Node) -> Any:
    """Return a Blackman window."""
    return _window(node, (0.42, -0.5, 0.08))


@lowers("MelWeightMatrix")
def mel_weight_matrix(node: Node) -> Any:
    """Return the matrix that maps a spectrum to the mel scale."""
    bins, length, rate = (node.ints(n)[0] for n in range(3))
    low, high = (float(node.array(n).reshape(-1)[0]) for n in (3, 4))
    dtype = numpy_dtype(node.choice("output_datatype"))
    spectrum = length // 2 + 1
    node.require_room(spectrum, bins)
    mel = 2595 * np.log10(1 + np.array([low, high]) / 700)
    centers = mel[0] + np.arange(bins + 2) * (mel[1] - mel[0]) / (bins + 2)
    hertz = 700 * (10 ** (centers / 2595) - 1)
    places = ((length + 1) * hertz // rate).astype(np.int64)
    found = np.zeros((spectrum, bins))
    for number in range(bins):
        first, center, last = places[number : number + 3]
        if center == first:
            found[center, number] = 1
        else:
            for at in range(first, center + 1):
                found[at, number] = (at - first) / (center - first)
        if last > center:
            for at in range(center, last):
                found[at, number] = (last - at) / (last - center)
    return found.astype(dtype)
