"""Fourier transforms, under the names of `numpy.fft` and of the array API standard."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal, SupportsIndex

import numpy as np

from weft import ops
from weft.errors import ArgumentError, AxesError, DTypeError
from weft.ir import dtypes
from weft.ir.axes import Axes, Axis, AxisKey, AxisKeys
from weft.ir.dtypes import DType, DTypeLike
from weft.ir.op import explain, explained
from weft.ir.storage import as_op, constant
from weft.ir.tensor import TensorLike, TensorOp
from weft.ops.arguments import check_choice, checked_integer
from weft.ops.indexing.slicing import with_lengths
from weft.ops.keywords import also_takes
from weft.ops.products.fourier import FourierOp, InverseRealFourierOp, RealFourierOp
from weft.ops.shape.movement import reshaped

__all__ = [
    "fft",
    "fft2",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "hfft2",
    "hfftn",
    "ifft",
    "ifft2",
    "ifftn",
    "ifftshift",
    "ihfft",
    "ihfft2",
    "ihfftn",
    "irfft",
    "irfft2",
    "irfftn",
    "rfft",
    "rfft2",
    "rfftfreq",
    "rfftn",
]

Norm = Literal["backward", "ortho", "forward"]
Lengths = Sequence[SupportsIndex]


def fft(
    x: TensorLike, n: SupportsIndex | None = None, axis: AxisKey = -1, norm: Norm = "backward"
) -> TensorOp:
    """Return the discrete Fourier transform of complex numbers along an axis.

    Element k is the sum of x_j exp(-2πi j k / n). Any length is fast, powers of 2 most of all.

    Parameters
    ----------
    x
        Complex numbers; real ones are converted.
    n
        The length of the transform: x is cut or followed by zeros. By default that of the axis.
    axis
        The axis, of known length.
    norm
        ``"backward"`` divides the inverse transform by n, ``"forward"`` this one, and ``"ortho"``
        both by the root of n.

    Returns
    -------
    TensorOp
        complex64, or complex128 for 64-bit operands.

    Raises
    ------
    AxesError
        If the axis is not there, is empty or has an unknown length.

    Examples
    --------
    >>> weft.jit(weft.fft.fft)(np.array([1.0, 2.0, 3.0, 2.0]))
    array([ 8.+0.j, -2.+0.j,  0.+0.j, -2.+0.j])
    """
    return _along("fft", _complex, x, n, axis, norm, sign=-1)


def ifft(
    x: TensorLike, n: SupportsIndex | None = None, axis: AxisKey = -1, norm: Norm = "backward"
) -> TensorOp:
    """Return the inverse of `fft` along an axis.

    Parameters
    ----------
    x, n, axis, norm
        As in `fft`.

    Returns
    -------
    TensorOp
        complex64, or complex128 for 64-bit operands.

    Raises
    ------
    AxesError
        If the axis is not there, is empty or has an unknown length.

    Examples
    --------
    >>> weft.jit(weft.fft.ifft)(np.array([8.0, -2.0, 0.0, -2.0]))
    array([1.+0.j, 2.+0.j, 3.+0.j, 2.+0.j])
    """
    return _along("ifft", _complex, x, n, axis, norm, sign=1)


def rfft(
    x: TensorLike, n: SupportsIndex | None = None, axis: AxisKey = -1, norm: Norm = "backward"
) -> TensorOp:
    """Return the first n // 2 + 1 elements of the Fourier transform of real numbers.

    The others are the conjugates of these. It takes half the time of `fft`.

    Parameters
    ----------
    x
        Real numbers; integers and bools are converted to float32.
    n, axis, norm
        As in `fft`.

    Returns
    -------
    TensorOp
        complex64, or complex128 for float64.

    Raises
    ------
    AxesError
        If the axis is not there, is empty or has an unknown length.
    DTypeError
        If x is complex.

    Examples
    --------
    >>> weft.jit(weft.fft.rfft)(np.array([1.0, 2.0, 3.0, 2.0]))
    array([ 8.+0.j, -2.+0.j,  0.+0.j])
    """
    return _along("rfft", _of_real, x, n, axis, norm, sign=-1)


def irfft(
    x: TensorLike, n: SupportsIndex | None = None, axis: AxisKey = -1, norm: Norm = "backward"
) -> TensorOp:
    """Return the real numbers of which x is the first half of the Fourier transform.

    The imaginary parts of the first element and, for an even n, of the last one count as 0.

    Parameters
    ----------
    x
        Complex numbers; real ones are converted.
    n
        The length of the result. By default the even one, 2 (m - 1) for m elements.
    axis, norm
        As in `fft`.

    Returns
    -------
    TensorOp
        float32, or float64 for 64-bit operands.

    Raises
    ------
    AxesError
        If the axis is not there or has an unknown length.
    ArgumentError
        If n is not a whole number above 0.

    Examples
    --------
    >>> weft.jit(weft.fft.irfft)(np.array([8.0, -2.0, 0.0]))
    array([1., 2., 3., 2.])
    """
    return _along("irfft", _to_real, x, n, axis, norm, sign=1)


def hfft(
    x: TensorLike, n: SupportsIndex | None = None, axis: AxisKey = -1, norm: Norm = "backward"
) -> TensorOp:
    """Return the real Fourier transform of a signal that equals its own reversed conjugate.

    Parameters
    ----------
    x
        The first half of the signal.
    n, axis
        As in `irfft`.
    norm
        As in `fft`.

    Returns
    -------
    TensorOp
        float32, or float64 for 64-bit operands.

    Raises
    ------
    AxesError
        If the axis is not there or has an unknown length.
    ArgumentError
        If n is not a whole number above 0.

    Examples
    --------
    >>> weft.jit(weft.fft.hfft)(np.array([1.0, 2.0, 3.0]))
    array([ 8., -2.,  0., -2.])
    """
    return _along("hfft", _to_real, ops.conj(x), n, axis, norm, sign=-1)


def ihfft(
    x: TensorLike, n: SupportsIndex | None = None, axis: AxisKey = -1, norm: Norm = "backward"
) -> TensorOp:
    """Return the first half of the inverse Fourier transform of real numbers.

    Parameters
    ----------
    x, n, axis
        As in `rfft`.
    norm
        As in `fft`.

    Returns
    -------
    TensorOp
        complex64, or complex128 for float64.

    Raises
    ------
    AxesError
        If the axis is not there, is empty or has an unknown length.
    DTypeError
        If x is complex.

    Examples
    --------
    >>> weft.jit(weft.fft.ihfft)(np.array([8.0, -2.0, 0.0, -2.0])).real
    array([1., 2., 3.])
    """
    return ops.conj(_along("ihfft", _of_real, x, n, axis, norm, sign=1))


def fftn(
    x: TensorLike,
    s: Lengths | None = None,
    axes: AxisKeys | None = None,
    norm: Norm = "backward",
) -> TensorOp:
    """Return the Fourier transform along several axes.

    Parameters
    ----------
    x
        Complex numbers; real ones are converted.
    s
        The length of the transform along each axis.
    axes
        By default all, or with `s` as many of the last ones.
    norm
        As in `fft`.

    Returns
    -------
    TensorOp
        complex64, or complex128 for 64-bit operands.

    Raises
    ------
    AxesError
        If an axis is not there, is empty or has an unknown length.
    ArgumentError
        If `s` has not a length for each axis.

    Examples
    --------
    >>> weft.jit(weft.fft.fftn)(np.array([[1.0, 2.0], [3.0, 4.0]]))
    array([[10.+0.j, -2.+0.j],
           [-4.+0.j,  0.+0.j]])
    """
    return along_several("fftn", fft, fft, x, s, axes, norm)


def ifftn(
    x: TensorLike,
    s: Lengths | None = None,
    axes: AxisKeys | None = None,
    norm: Norm = "backward",
) -> TensorOp:
    """Return the inverse of `fftn`.

    Parameters
    ----------
    x, s, axes, norm
        As in `fftn`.

    Returns
    -------
    TensorOp
        complex64, or complex128 for 64-bit operands.

    Raises
    ------
    AxesError
        If an axis is not there, is empty or has an unknown length.
    ArgumentError
        If `s` has not a length for each axis.

    Examples
    --------
    >>> weft.jit(weft.fft.ifftn)(np.array([[10.0, -2.0], [-4.0, 0.0]]))
    array([[1.+0.j, 2.+0.j],
           [3.+0.j, 4.+0.j]])
    """
    return along_several("ifftn", ifft, ifft, x, s, axes, norm)


def rfftn(
    x: TensorLike,
    s: Lengths | None = None,
    axes: AxisKeys | None = None,
    norm: Norm = "backward",
) -> TensorOp:
    """Return the Fourier transform of real numbers along several axes: half of the last one.

    Parameters
    ----------
    x
        Real numbers; integers and bools are converted to float32.
    s, axes, norm
        As in `fftn`.

    Returns
    -------
    TensorOp
        complex64, or complex128 for float64.

    Raises
    ------
    AxesError
        If an axis is not there, is empty or has an unknown length.
    ArgumentError
        If `s` has not a length for each axis.
    DTypeError
        If x is complex.

    Examples
    --------
    >>> weft.jit(weft.fft.rfftn)(np.ones((2, 4)))
    array([[8.+0.j, 0.+0.j, 0.+0.j],
           [0.+0.j, 0.+0.j, 0.+0.j]])
    """
    return along_several("rfftn", fft, rfft, x, s, axes, norm)


def irfftn(
    x: TensorLike,
    s: Lengths | None = None,
    axes: AxisKeys | None = None,
    norm: Norm = "backward",
) -> TensorOp:
    """Return the inverse of `rfftn`.

    Parameters
    ----------
    x
        Complex numbers; real ones are converted.
    s
        The length of the result along each axis. By default the last one is even.
    axes, norm
        As in `fftn`.

    Returns
    -------
    TensorOp
        float32, or float64 for 64-bit operands.

    Raises
    ------
    AxesError
        If an axis is not there, is empty or has an unknown length.
    ArgumentError
        If `s` has not a length for each axis.

    Examples
    --------
    >>> weft.jit(weft.fft.irfftn)(np.array([[8.0, 0.0, 0.0], [0.0, 0.0, 0.0]]))
    array([[1., 1., 1., 1.],
           [1., 1., 1., 1.]])
    """
    return along_several("irfftn", ifft, irfft, x, s, axes, norm)


def hfftn(
    x: TensorLike,
    s: Lengths | None = None,
    axes: AxisKeys | None = None,
    norm: Norm = "backward",
) -> TensorOp:
    """Return the real Fourier transform of signals that equal their own reversed conjugate.

    The signal is reversed along all of the axes.

    Parameters
    ----------
    x
        The first half of the signal along the last axis, and all of it along the others.
    s, axes, norm
        As in `irfftn`.

    Returns
    -------
    TensorOp
        float32, or float64 for 64-bit operands.

    Raises
    ------
    AxesError
        If an axis is not there, is empty or has an unknown length.
    ArgumentError
        If `s` has not a length for each axis.

    Examples
    --------
    >>> weft.jit(weft.fft.hfftn)(np.array([[2.0, 1.0], [0.0, 0.0]]))
    array([[3., 1.],
           [3., 1.]])
    """
    return along_several("hfftn", fft, hfft, x, s, axes, norm)


def ihfftn(
    x: TensorLike,
    s: Lengths | None = None,
    axes: AxisKeys | None = None,
    norm: Norm = "backward",
) -> TensorOp:
    """Return the inverse Fourier transform of real numbers along several axes: half of the last.

    Parameters
    ----------
    x
        Real numbers; integers and bools are converted to float32.
    s, axes, norm
        As in `fftn`.

    Returns
    -------
    TensorOp
        complex64, or complex128 for float64.

    Raises
    ------
    AxesError
        If an axis is not there, is empty or has an unknown length.
    ArgumentError
        If `s` has not a length for each axis.
    DTypeError
        If x is complex.

    Examples
    --------
    >>> weft.jit(weft.fft.ihfftn)(np.array([[4.0, 0.0], [4.0, 0.0]])).real
    array([[2., 2.],
           [0., 0.]])
    """
    return along_several("ihfftn", ifft, ihfft, x, s, axes, norm)


def fft2(
    x: TensorLike,
    s: Lengths | None = None,
    axes: AxisKeys = (-2, -1),
    norm: Norm = "backward",
) -> TensorOp:
    """Return the Fourier transform along two axes.

    Parameters
    ----------
    x, s, axes, norm
        As in `fftn`; by default along the last two axes.

    Returns
    -------
    TensorOp
        complex64, or complex128 for 64-bit operands.

    Examples
    --------
    >>> weft.jit(weft.fft.fft2)(np.ones((2, 2)))
    array([[4.+0.j, 0.+0.j],
           [0.+0.j, 0.+0.j]])
    """
    return along_several("fft2", fft, fft, x, s, axes, norm)


def ifft2(
    x: TensorLike,
    s: Lengths | None = None,
    axes: AxisKeys = (-2, -1),
    norm: Norm = "backward",
) -> TensorOp:
    """Return the inverse of `fft2`.

    Parameters
    ----------
    x, s, axes, norm
        As in `fftn`; by default along the last two axes.

    Returns
    -------
    TensorOp
        complex64, or complex128 for 64-bit operands.

    Examples
    --------
    >>> weft.jit(weft.fft.ifft2)(np.array([[4.0, 0.0], [0.0, 0.0]]))
    array([[1.+0.j, 1.+0.j],
           [1.+0.j, 1.+0.j]])
    """
    return along_several("ifft2", ifft, ifft, x, s, axes, norm)


def rfft2(
    x: TensorLike,
    s: Lengths | None = None,
    axes: AxisKeys = (-2, -1),
    norm: Norm = "backward",
) -> TensorOp:
    """Return the Fourier transform of real numbers along two axes: half of the last one.

    Parameters
    ----------
    x, s, axes, norm
        As in `rfftn`; by default along the last two axes.

    Returns
    -------
    TensorOp
        complex64, or complex128 for float64.

    Examples
    --------
    >>> weft.jit(weft.fft.rfft2)(np.ones((2, 2)))
    array([[4.+0.j, 0.+0.j],
           [0.+0.j, 0.+0.j]])
    """
    return along_several("rfft2", fft, rfft, x, s, axes, norm)


def irfft2(
    x: TensorLike,
    s: Lengths | None = None,
    axes: AxisKeys = (-2, -1),
    norm: Norm = "backward",
) -> TensorOp:
    """Return the inverse of `rfft2`.

    Parameters
    ----------
    x, s, axes, norm
        As in `irfftn`; by default along the last two axes.

    Returns
    -------
    TensorOp
        float32, or float64 for 64-bit operands.

    Examples
    --------
    >>> weft.jit(weft.fft.irfft2)(np.array([[4.0, 0.0], [0.0, 0.0]]))
    array([[1., 1.],
           [1., 1.]])
    """
    return along_several("irfft2", ifft, irfft, x, s, axes, norm)


def hfft2(
    x: TensorLike,
    s: Lengths | None = None,
    axes: AxisKeys = (-2, -1),
    norm: Norm = "backward",
) -> TensorOp:
    """Return the real Fourier transform along two axes, as `hfftn` does.

    Parameters
    ----------
    x, s, axes, norm
        As in `hfftn`; by default along the last two axes.

    Returns
    -------
    TensorOp
        float32, or float64 for 64-bit operands.

    Examples
    --------
    >>> weft.jit(weft.fft.hfft2)(np.array([[2.0, 1.0], [0.0, 0.0]]))
    array([[3., 1.],
           [3., 1.]])
    """
    return along_several("hfft2", fft, hfft, x, s, axes, norm)


def ihfft2(
    x: TensorLike,
    s: Lengths | None = None,
    axes: AxisKeys = (-2, -1),
    norm: Norm = "backward",
) -> TensorOp:
    """Return the inverse Fourier transform of real numbers along two axes, as `ihfftn` does.

    Parameters
    ----------
    x, s, axes, norm
        As in `ihfftn`; by default along the last two axes.

    Returns
    -------
    TensorOp
        complex64, or complex128 for float64.

    Examples
    --------
    >>> weft.jit(weft.fft.ihfft2)(np.array([[4.0, 0.0], [4.0, 0.0]])).real
    array([[2., 2.],
           [0., 0.]])
    """
    return along_several("ihfft2", ifft, ihfft, x, s, axes, norm)


@also_takes(device=None)
def fftfreq(n: SupportsIndex, d: float = 1.0, dtype: DTypeLike | None = None) -> TensorOp:
    """Return the frequencies of the elements of `fft`, in cycles per unit of the spacing.

    Parameters
    ----------
    n
        The length of the transform.
    d
        The distance between samples.
    dtype
        By default float32.
    device
        Must be None, for the backend of a graph decides where its tensors are.

    Returns
    -------
    TensorOp
        A constant of shape (n,): 0, 1, … and then the negative ones, divided by n d.

    Raises
    ------
    ArgumentError
        If n is not a whole number above 0.

    Examples
    --------
    >>> weft.jit(lambda: weft.fft.fftfreq(4, 0.5, "float64"))()
    array([ 0. ,  0.5, -1. , -0.5])
    """
    return _frequencies("fftfreq", n, d, dtype, np.fft.fftfreq)


@also_takes(device=None)
def rfftfreq(n: SupportsIndex, d: float = 1.0, dtype: DTypeLike | None = None) -> TensorOp:
    """Return the frequencies of the elements of `rfft`, in cycles per unit of the spacing.

    Parameters
    ----------
    n
        The length of the transformed signal.
    d, dtype, device
        As in `fftfreq`.

    Returns
    -------
    TensorOp
        A constant of shape (n // 2 + 1,).

    Raises
    ------
    ArgumentError
        If n is not a whole number above 0.

    Examples
    --------
    >>> weft.jit(lambda: weft.fft.rfftfreq(4, 0.5, "float64"))()
    array([0. , 0.5, 1. ])
    """
    return _frequencies("rfftfreq", n, d, dtype, np.fft.rfftfreq)


def fftshift(x: TensorLike, axes: AxisKeys | None = None) -> TensorOp:
    """Return a spectrum with the frequency 0 in its middle.

    Parameters
    ----------
    x
        The tensor.
    axes
        The axes to shift, of known length; by default all.

    Returns
    -------
    TensorOp
        The elements of x, rolled by half the length along each axis.

    Examples
    --------
    >>> weft.jit(weft.fft.fftshift)(np.array([0.0, 1.0, 2.0, -2.0, -1.0]))
    array([-2., -1.,  0.,  1.,  2.])
    """
    return _shifted("fftshift", x, axes, lambda length: length // 2)


def ifftshift(x: TensorLike, axes: AxisKeys | None = None) -> TensorOp:
    """Return what `fftshift` had shifted.

    Parameters
    ----------
    x, axes
        As in `fftshift`.

    Returns
    -------
    TensorOp
        The elements of x, rolled back.

    Examples
    --------
    >>> weft.jit(weft.fft.ifftshift)(np.array([-2.0, -1.0, 0.0, 1.0, 2.0]))
    array([ 0.,  1.,  2., -2., -1.])
    """
    return _shifted("ifftshift", x, axes, lambda length: -(length // 2))


Transform = Callable[[TensorOp, int | None, int, Callable[[int], float]], TensorOp]
"""Returns a transform, given an operand, its length or None, a sign, and a length's factor."""


def _along(
    function: str,
    transform: Transform,
    x: TensorLike,
    n: SupportsIndex | None,
    axis: AxisKey,
    norm: Norm,
    sign: int,
) -> TensorOp:
    """Return a transform along one axis, which is the last one meanwhile."""
    op: TensorOp = as_op(x)
    place = explained(function, (op,), op.axes.position, axis)
    length = None if n is None else checked_integer(function, "n", n, 1)
    plain, factor = positional(op), partial(scale, function, norm)
    found = explained(
        function, (op,), transform, ops.moveaxis(plain, place, -1), length, sign, factor
    )
    return named(ops.moveaxis(found, -1, place), op.axes)


def _complex(x: TensorOp, n: int | None, sign: int, factor: Callable[[int], float]) -> TensorOp:
    """Return the transform of complex numbers."""
    length = _length(x)
    count = length if n is None else n
    return ops.ViewAsComplexOp(FourierOp(_pairs(x, count), sign=sign, scale=factor(count)))


def _of_real(x: TensorOp, n: int | None, sign: int, factor: Callable[[int], float]) -> TensorOp:
    """Return half of the transform of real numbers."""
    if x.dtype.kind == "c":
        raise DTypeError(f"x must be real, not {x.dtype}: use fft")
    x = of_length(x, n)
    return ops.ViewAsComplexOp(RealFourierOp(ops.cast(x, inexact(x)), scale=factor(_length(x))))


def _to_real(x: TensorOp, n: int | None, sign: int, factor: Callable[[int], float]) -> TensorOp:
    """Return the real numbers of half of a transform."""
    length = _length(x)
    count = 2 * (length - 1) if n is None else n
    if count < 1:
        problem = f"{x.axes} has no even length: give n"
        raise AxesError(problem)
    pairs = _pairs(x, count // 2 + 1)
    return InverseRealFourierOp(pairs, length=count, scale=factor(count))


def _pairs(x: TensorOp, n: int) -> TensorOp:
    """Return n complex numbers as pairs; those are not taken apart to be cut or lengthened."""
    if x.dtype.kind != "c":
        x = of_length(x, n)
    dtype = dtypes.promote(inexact(x), dtypes.complex64)
    return of_length(ops.ViewAsRealOp(ops.cast(x, dtype)), n, -2)


def inexact(x: TensorOp) -> DType:
    """Return the dtype to compute with: float32 for what is not a float of 32 or 64 bits."""
    is_wide = x.dtype in (dtypes.float64, dtypes.complex64, dtypes.complex128)
    return x.dtype if is_wide else dtypes.float32


def _length(x: TensorOp, place: int = -1) -> int:
    length = x.axes[place].length
    if not isinstance(length, int):
        raise AxesError(f"a transform needs an axis of known length, not {length} of {x.axes}")
    if not length:
        raise AxesError(f"{x.axes} has no elements to transform")
    return length


def of_length(x: TensorOp, n: int | None, place: int = -1) -> TensorOp:
    """Return x cut to a length along an axis, by default the last one, or followed by zeros."""
    length = _length(x, place)
    if n is None or n == length:
        return x
    place %= x.rank
    if n < length:
        return x[(slice(None),) * place + (slice(n),)]
    return ops.pad(x, [(0, n - length if axis == place else 0) for axis in range(x.rank)])


def scale(function: str, norm: Norm, count: int) -> float:
    """Return the factor of a transform, which is an inverse if its name begins with i."""
    check_choice(function, "norm", norm, ("backward", "ortho", "forward"))
    if norm == "ortho":
        return 1 / math.sqrt(count)
    is_inverse = function.startswith("i")
    return 1 / count if is_inverse == (norm == "backward") else 1.0


def positional(x: TensorOp) -> TensorOp:
    """Return a tensor without the names of its axes."""
    return reshaped(x, map(Axis, x.axes.lengths))


def named(x: TensorOp, axes: Axes) -> TensorOp:
    """Return a tensor under the names of other axes."""
    return reshaped(x, with_lengths(axes, x.axes.lengths))


def along_several(
    function: str,
    others: Callable[..., TensorOp],
    last: Callable[..., TensorOp],
    x: TensorLike,
    s: Lengths | None,
    axes: AxisKeys | None,
    norm: Norm,
) -> TensorOp:
    """Return transforms along several axes; that of the last one comes first, or last back."""
    op: TensorOp = as_op(x)
    count = op.rank if s is None else len(s)
    keys = range(op.rank - count, op.rank) if axes is None else axes
    places = explained(function, (op,), op.axes.positions, keys)
    lengths: Lengths | Sequence[None] = [None] * len(places) if s is None else s
    if len(lengths) != len(places) or not places:
        problem = f"s must have a length for each of the axes {places}, not {s!r}"
        raise ArgumentError(explain(function, problem, (op,)))
    steps = [(others, *each) for each in zip(lengths[:-1], places[:-1], strict=True)]
    final = (last, lengths[-1], places[-1])
    for transform, n, place in [*steps, final] if last in (irfft, hfft) else [final, *steps]:
        op = transform(op, n, place, norm)
    return op


def _frequencies(
    function: str,
    n: SupportsIndex,
    d: float,
    dtype: DTypeLike | None,
    frequencies: Callable[..., np.ndarray[tuple[int], np.dtype[np.floating]]],
) -> TensorOp:
    count = checked_integer(function, "n", n, 1)
    return constant(frequencies(count, d), dtype=dtypes.DEFAULT if dtype is None else dtype)


def _shifted(
    function: str, x: TensorLike, axes: AxisKeys | None, shift: Callable[[int], int]
) -> TensorOp:
    op: TensorOp = as_op(x)
    keys = range(op.rank) if axes is None else axes
    for place in explained(function, (op,), op.axes.positions, keys):
        length = op.axes[place].length
        if not isinstance(length, int):
            problem = f"the length of axis {place} of {op.axes} must be known"
            raise AxesError(explain(function, problem, (op,)))
        op = ops.roll(op, shift(length), place)
    return op
