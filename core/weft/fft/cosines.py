"""Cosine and sine transforms of the types I to IV, under the names of `scipy.fft`.

A transform of n real numbers is a Fourier transform of as many real ones, or for type IV of half as
many complex ones, between two permutations and a rotation (Makhoul, 1980). Type I extends its
operand, as faster forms lose digits. A sine transform is a cosine transform of numbers in reverse
order or with alternating signs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Literal, SupportsIndex

import numpy as np

from weft import ops
from weft.errors import AxesError
from weft.fft.fourier import (
    Lengths,
    Norm,
    along_several,
    fft,
    inexact,
    irfft,
    named,
    of_length,
    positional,
    rfft,
    scale,
)
from weft.ir.axes import AxisKey, AxisKeys
from weft.ir.dtypes import Array
from weft.ir.op import explain, explained
from weft.ir.storage import as_op, constant
from weft.ir.tensor import TensorLike, TensorOp
from weft.ops.arguments import check_choice, checked_integer
from weft.ops.products.fourier import roots_of_unity

__all__ = ["dct", "dctn", "dst", "dstn", "idct", "idctn", "idst", "idstn"]

Type = Literal[1, 2, 3, 4]


def dct(
    x: TensorLike,
    type: Type = 2,
    n: SupportsIndex | None = None,
    axis: AxisKey = -1,
    norm: Norm = "backward",
    *,
    orthogonalize: bool | None = None,
) -> TensorOp:
    """Return the discrete cosine transform of a type along an axis.

    For element k of the result, twice the sum over j of x_j times

    * type 1: cos(π j k / (n - 1)), where the first and the last x_j count half;
    * type 2: cos(π k (2 j + 1) / 2 n);
    * type 3: cos(π j (2 k + 1) / 2 n), where the first x_j counts half;
    * type 4: cos(π (2 j + 1) (2 k + 1) / 4 n).

    Parameters
    ----------
    x
        Real numbers; integers are converted to float32. The parts of complex ones are transformed
        apart.
    type
        The type, from 1 to 4.
    n
        The length of the transform: x is cut or followed by zeros. By default that of the axis.
    axis
        The axis, of known length.
    norm
        ``"backward"`` divides the inverse transform by the period, which is 2 (n - 1) for type 1
        and 2 n for the others, ``"forward"`` this one, and ``"ortho"`` both by its root.
    orthogonalize
        Whether the first and, for type 1, the last element have the factor √2 in operands of types
        1 and 3, and 1 / √2 in results of types 1 and 2.
        By default only with ``norm="ortho"``, by which the matrix becomes orthogonal.


    Returns
    -------
    TensorOp
        float32, or float64 for 64-bit operands; complex if x is.

    Raises
    ------
    AxesError
        If the axis is not there, is empty, or has an unknown length,
        or for type 1 has fewer than 2 elements.
    ArgumentError
        If there is no such type or norm, or n is not a whole number above 0.

    Examples
    --------
    >>> weft.jit(lambda x: weft.fft.dct(x, 1))(np.array([1.0, 2.0, 4.0]))
    array([ 9., -3.,  1.])
    """
    return _along("dct", x, type, n, axis, norm, orthogonalize)


def idct(
    x: TensorLike,
    type: Type = 2,
    n: SupportsIndex | None = None,
    axis: AxisKey = -1,
    norm: Norm = "backward",
    *,
    orthogonalize: bool | None = None,
) -> TensorOp:
    """Return the inverse of `dct` along an axis.

    Parameters
    ----------
    x, type, n, axis, norm, orthogonalize
        As in `dct`.


    Returns
    -------
    TensorOp
        float32, or float64 for 64-bit operands; complex if x is.

    Raises
    ------
    AxesError
        If the axis is not there, is empty, or has an unknown length,
        or for type 1 has fewer than 2 elements.
    ArgumentError
        If there is no such type or norm, or n is not a whole number above 0.

    Examples
    --------
    >>> weft.jit(lambda x: weft.fft.idct(x, 1))(np.array([9.0, -3.0, 1.0]))
    array([1., 2., 4.])
    """
    return _along("idct", x, type, n, axis, norm, orthogonalize)


def dst(
    x: TensorLike,
    type: Type = 2,
    n: SupportsIndex | None = None,
    axis: AxisKey = -1,
    norm: Norm = "backward",
    *,
    orthogonalize: bool | None = None,
) -> TensorOp:
    """Return the discrete sine transform of a type along an axis.

    For element k of the result, twice the sum over j of x_j times

    * type 1: sin(π (j + 1) (k + 1) / (n + 1));
    * type 2: sin(π (k + 1) (2 j + 1) / 2 n);
    * type 3: sin(π (j + 1) (2 k + 1) / 2 n), where the last x_j counts half;
    * type 4: sin(π (2 j + 1) (2 k + 1) / 4 n).

    Parameters
    ----------
    x
        Real numbers; integers are converted to float32. The parts of complex ones are transformed
        apart.
    type
        The type, from 1 to 4.
    n
        The length of the transform: x is cut or followed by zeros. By default that of the axis.
    axis
        The axis, of known length.
    norm
        ``"backward"`` divides the inverse transform by the period, which is 2 (n + 1) for type 1
        and 2 n for the others, ``"forward"`` this one, and ``"ortho"`` both by its root.
    orthogonalize
        Whether the last element has the factor √2 in operands of type 3, and 1 / √2 in results of
        type 2.
        By default only with ``norm="ortho"``, by which the matrix becomes orthogonal.


    Returns
    -------
    TensorOp
        float32, or float64 for 64-bit operands; complex if x is.

    Raises
    ------
    AxesError
        If the axis is not there, is empty, or has an unknown length.
    ArgumentError
        If there is no such type or norm, or n is not a whole number above 0.

    Examples
    --------
    >>> weft.jit(lambda x: weft.fft.dst(x, 4, norm="ortho") ** 2)(np.ones(1))
    array([1.])
    """
    return _along("dst", x, type, n, axis, norm, orthogonalize)


def idst(
    x: TensorLike,
    type: Type = 2,
    n: SupportsIndex | None = None,
    axis: AxisKey = -1,
    norm: Norm = "backward",
    *,
    orthogonalize: bool | None = None,
) -> TensorOp:
    """Return the inverse of `dst` along an axis.

    Parameters
    ----------
    x, type, n, axis, norm, orthogonalize
        As in `dst`.


    Returns
    -------
    TensorOp
        float32, or float64 for 64-bit operands; complex if x is.

    Raises
    ------
    AxesError
        If the axis is not there, is empty, or has an unknown length.
    ArgumentError
        If there is no such type or norm, or n is not a whole number above 0.

    Examples
    --------
    >>> x = np.array([1.0, 2.0, 4.0])
    >>> weft.jit(lambda x: weft.fft.idst(weft.fft.dst(x, 3), 3))(x).round(6)
    array([1., 2., 4.])
    """
    return _along("idst", x, type, n, axis, norm, orthogonalize)


def dctn(
    x: TensorLike,
    type: Type = 2,
    s: Lengths | None = None,
    axes: AxisKeys | None = None,
    norm: Norm = "backward",
    *,
    orthogonalize: bool | None = None,
) -> TensorOp:
    """Return the discrete cosine transform along several axes.

    Parameters
    ----------
    x, type, norm, orthogonalize
        As in `dct`.
    s
        The length of the transform along each axis.
    axes
        By default all, or with `s` as many of the last ones.

    Returns
    -------
    TensorOp
        float32, or float64 for 64-bit operands; complex if x is.

    Raises
    ------
    AxesError
        If an axis is not there, is empty, or has an unknown length,
        or for type 1 has fewer than 2 elements.
    ArgumentError
        If there is no such type or norm, or `s` has not a length for each axis.

    Examples
    --------
    >>> weft.jit(lambda x: weft.fft.dctn(x, 1))(np.ones((2, 2)))
    array([[4., 0.],
           [0., 0.]])
    """
    return _along_each("dctn", dct, x, type, s, axes, norm, orthogonalize)


def idctn(
    x: TensorLike,
    type: Type = 2,
    s: Lengths | None = None,
    axes: AxisKeys | None = None,
    norm: Norm = "backward",
    *,
    orthogonalize: bool | None = None,
) -> TensorOp:
    """Return the inverse of `dctn`.

    Parameters
    ----------
    x, type, norm, orthogonalize
        As in `idct`.
    s
        The length of the transform along each axis.
    axes
        By default all, or with `s` as many of the last ones.

    Returns
    -------
    TensorOp
        float32, or float64 for 64-bit operands; complex if x is.

    Raises
    ------
    AxesError
        If an axis is not there, is empty, or has an unknown length,
        or for type 1 has fewer than 2 elements.
    ArgumentError
        If there is no such type or norm, or `s` has not a length for each axis.

    Examples
    --------
    >>> weft.jit(lambda x: weft.fft.idctn(x, 1))(np.array([[4.0, 0.0], [0.0, 0.0]]))
    array([[1., 1.],
           [1., 1.]])
    """
    return _along_each("idctn", idct, x, type, s, axes, norm, orthogonalize)


def dstn(
    x: TensorLike,
    type: Type = 2,
    s: Lengths | None = None,
    axes: AxisKeys | None = None,
    norm: Norm = "backward",
    *,
    orthogonalize: bool | None = None,
) -> TensorOp:
    """Return the discrete sine transform along several axes.

    Parameters
    ----------
    x, type, norm, orthogonalize
        As in `dst`.
    s
        The length of the transform along each axis.
    axes
        By default all, or with `s` as many of the last ones.

    Returns
    -------
    TensorOp
        float32, or float64 for 64-bit operands; complex if x is.

    Raises
    ------
    AxesError
        If an axis is not there, is empty, or has an unknown length.
    ArgumentError
        If there is no such type or norm, or `s` has not a length for each axis.

    Examples
    --------
    >>> weft.jit(lambda x: weft.fft.dstn(x, 2))(np.ones((1, 2))).round(6)
    array([[5.6569, 0.    ]])
    """
    return _along_each("dstn", dst, x, type, s, axes, norm, orthogonalize)


def idstn(
    x: TensorLike,
    type: Type = 2,
    s: Lengths | None = None,
    axes: AxisKeys | None = None,
    norm: Norm = "backward",
    *,
    orthogonalize: bool | None = None,
) -> TensorOp:
    """Return the inverse of `dstn`.

    Parameters
    ----------
    x, type, norm, orthogonalize
        As in `idst`.
    s
        The length of the transform along each axis.
    axes
        By default all, or with `s` as many of the last ones.

    Returns
    -------
    TensorOp
        float32, or float64 for 64-bit operands; complex if x is.

    Raises
    ------
    AxesError
        If an axis is not there, is empty, or has an unknown length.
    ArgumentError
        If there is no such type or norm, or `s` has not a length for each axis.

    Examples
    --------
    >>> x = np.array([[1.0, 2.0], [3.0, 4.0]])
    >>> weft.jit(lambda x: weft.fft.idstn(weft.fft.dstn(x)))(x).round(6)
    array([[1., 2.],
           [3., 4.]])
    """
    return _along_each("idstn", idst, x, type, s, axes, norm, orthogonalize)


def _along_each(
    function: str,
    transform: Callable[..., TensorOp],
    x: TensorLike,
    type: Type,
    s: Lengths | None,
    axes: AxisKeys | None,
    norm: Norm,
    orthogonalize: bool | None,
) -> TensorOp:
    def each(x: TensorOp, n: SupportsIndex | None, axis: AxisKey, norm: Norm) -> TensorOp:
        return transform(x, type, n, axis, norm, orthogonalize=orthogonalize)

    return along_several(function, each, each, x, s, axes, norm)


def _along(
    function: str,
    x: TensorLike,
    type: Type,
    n: SupportsIndex | None,
    axis: AxisKey,
    norm: Norm,
    orthogonalize: bool | None,
) -> TensorOp:
    """Return a transform along one axis, which is the last one meanwhile."""
    op: TensorOp = as_op(x)
    if op.dtype.kind == "c":
        parts = (
            _along(function, part, type, n, axis, norm, orthogonalize)
            for part in (ops.real(op), ops.imag(op))
        )
        return ops.complex(*parts)
    check_choice(function, "type", type, _COSINES, (op,))
    place = explained(function, (op,), op.axes.position, axis)
    length = None if n is None else checked_integer(function, "n", n, 1)
    moved = ops.moveaxis(ops.cast(positional(op), inexact(op)), place, -1)
    signal = explained(function, (op,), of_length, moved, length)
    count = signal.axes.lengths[-1]
    is_sine = function.endswith("dst")
    if type == 1 and not is_sine and count < 2:
        problem = "a transform of type 1 needs 2 elements or more"
        raise AxesError(explain(function, problem, (op,)))
    period = 2 * count
    if type == 1:
        period += 2 if is_sine else -2
    factor = scale(function, norm, period)
    roots = norm == "ortho" if orthogonalize is None else orthogonalize
    kind = {2: 3, 3: 2}.get(type, type) if function.startswith("i") else type
    transform = partial(_sine, kind) if is_sine else _COSINES[kind]
    found = transform(signal, factor, roots)
    return named(ops.moveaxis(found, -1, place), op.axes)


def _cosine_1(x: TensorOp, factor: float, is_orthogonal: bool) -> TensorOp:
    """Transform the numbers and, after them, the inner ones in reverse order."""
    ends = np.ones(x.axes.lengths[-1])
    if is_orthogonal:
        ends[[0, -1]] = math.sqrt(2)
    x = _times(x, ends)
    return _times(ops.real(rfft(ops.concat([x, ops.flip(x[..., 1:-1], -1)], -1))), factor / ends)


def _sine_1(x: TensorOp, factor: float) -> TensorOp:
    """Transform the numbers after a 0 and, after another 0, their negatives in reverse order."""
    zero = ops.zeros_like(x[..., :1])
    spectrum = rfft(ops.concat([zero, x, zero, -ops.flip(x, -1)], -1))
    return _times(ops.imag(spectrum)[..., 1 : x.axes.lengths[-1] + 1], -factor)


def _cosine_2(x: TensorOp, factor: float, is_orthogonal: bool) -> TensorOp:
    """Transform real numbers, of even places first; a result is in the parts of each element."""
    n = x.axes.lengths[-1]
    turns = 2 * factor * _eighths(n, -1)
    if is_orthogonal:
        turns[0] *= math.sqrt(0.5)
    turned = _times(rfft(ops.concat(_halves(x), -1)), turns)
    return ops.concat(
        [ops.real(turned), ops.flip(-ops.imag(turned)[..., 1 : (n + 1) // 2], -1)], -1
    )


def _cosine_3(x: TensorOp, factor: float, is_orthogonal: bool) -> TensorOp:
    """Take the steps of type 2 backwards."""
    n = x.axes.lengths[-1]
    half = n // 2
    turns = factor * _eighths(n, 1)
    if is_orthogonal:
        turns[0] *= math.sqrt(2)
    last = ops.concat([ops.zeros_like(x[..., :1]), -ops.flip(x[..., n - half :], -1)], -1)
    spectrum = _times(ops.complex(x[..., : half + 1], last), turns)
    signal = irfft(spectrum, n, norm="forward")
    return _interleaved(signal[..., : n - half], ops.flip(signal[..., n - half :], -1))


def _cosine_4(x: TensorOp, factor: float, is_orthogonal: bool) -> TensorOp:
    """Transform half as many complex numbers; for an odd n real ones, four places apart.

    As 4 has an inverse modulo an odd n, an angle is then a multiple of 2π / n and of π / 4.
    """
    n = x.axes.lengths[-1]
    places = np.arange(n)
    if n % 2 == 0:
        turns = roots_of_unity(2 * n, -1)[: n // 2]
        turned = fft(_times(ops.complex(*_halves(x)), turns))
        shift = roots_of_unity(8 * n, -1)[1]
        spectrum = _times(turned, 2 * factor * shift * turns)
        return _interleaved(ops.real(spectrum), ops.flip(-ops.imag(spectrum), -1))
    extended = np.concatenate([places, places[::-1], places, places[::-1]])
    signs = np.repeat([1, -1, -1, 1], n)
    order = (n // 2 + 4 * places) % (4 * n)
    spectrum = rfft(_times(ops.take(x, constant(extended[order], dtype="int64"), -1), signs[order]))
    numbers = (2 * places + 1) % n
    chosen = ops.take(spectrum, constant(np.minimum(numbers, n - numbers), dtype="int64"), -1)
    angles = roots_of_unity(8, -1)[(2 * places + 1) % 8]
    turns = np.where(numbers > n // 2, angles.conj(), angles)
    return ops.real(_times(chosen, 2 * factor * turns))


def _sine(kind: int, x: TensorOp, factor: float, is_orthogonal: bool) -> TensorOp:
    """Take a cosine transform of other signs, or of the other order."""
    if kind == 1:
        return _sine_1(x, factor)
    cosine, signs = _COSINES[kind], (-1.0) ** np.arange(x.axes.lengths[-1])
    if kind == 2:
        return ops.flip(cosine(_times(x, signs), factor, is_orthogonal), -1)
    return _times(cosine(ops.flip(x, -1), factor, is_orthogonal), signs)


_COSINES = {1: _cosine_1, 2: _cosine_2, 3: _cosine_3, 4: _cosine_4}


def _eighths(n: int, sign: int) -> Array:
    """Return exp(πi sign k / 2 n) for k up to n // 2."""
    return np.array(roots_of_unity(4 * n, sign)[: n // 2 + 1])


def _halves(x: TensorOp) -> tuple[TensorOp, TensorOp]:
    """Return the elements at even places, and those at odd places in reverse order."""
    return x[..., ::2], ops.flip(x[..., 1::2], -1)


def _interleaved(evens: TensorOp, odds: TensorOp) -> TensorOp:
    """Return elements in turns; there may be one more of the first."""
    count = evens.axes.lengths[-1] + odds.axes.lengths[-1]
    missing = evens.axes.lengths[-1] - odds.axes.lengths[-1]
    odds = ops.pad(odds, [(0, 0)] * (odds.rank - 1) + [(0, missing)])
    pairs = ops.stack([evens, odds], pos=evens.rank)
    flat = ops.cast_axes(pairs, (*evens.axes.lengths[:-1], 2 * evens.axes.lengths[-1]))
    return flat[..., :count]


def _times(x: TensorOp, factors: Array | float) -> TensorOp:
    """Return a tensor times known numbers along its last axis."""
    return x * constant(factors, dtype=x.dtype)
