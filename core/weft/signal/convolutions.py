"""Convolutions of signals, by sums of products or through Fourier transforms."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal

from weft.errors import ArgumentError, AxesError
from weft.fft import fftn, ifftn, irfftn, rfftn
from weft.fft.fourier import named, positional
from weft.ir.axes import AxisKeys
from weft.ir.op import explain, explained
from weft.ir.storage import as_op
from weft.ir.tensor import TensorLike, TensorOp
from weft.nn.spatial.convolutions import conv
from weft.nn.spatial.geometry import SPATIAL
from weft.ops.arguments import check_choice
from weft.ops.pointwise.complex_parts import complex, conj, imag, real
from weft.ops.pointwise.elementwise import cast, common_dtype
from weft.ops.pointwise.rounding import round
from weft.ops.shape.arrangement import flip
from weft.ops.shape.joining import stack

__all__ = ["convolve", "correlate", "fftconvolve"]

Mode = Literal["full", "same", "valid"]
Method = Literal["auto", "direct", "fft"]


def fast_length(n: int) -> int:
    """Return the least product of 2, 3 and 5 that is n or more, and even unless n is 1."""
    if n <= 2:
        return n
    halves: Iterator[int] = (
        3**b * 5**c
        for b in range(math.ceil(math.log(n, 3)) + 1)
        for c in range(math.ceil(math.log(n, 5)) + 1)
    )
    return min(m << max(((n - 1) // m).bit_length(), 1) for m in halves)


def transform_work(count: int, lengths: Sequence[int]) -> float:
    """Return the operations of transforms of real numbers, by the usual count of 5 n log2 n / 2."""
    size = math.prod(lengths)
    return 2.5 * count * size * math.log2(max(size, 2))


def convolve(
    in1: TensorLike, in2: TensorLike, mode: Mode = "full", method: Method = "auto"
) -> TensorOp:
    """Return the convolution of two tensors of the same rank, along all axes.

    Parameters
    ----------
    in1, in2
        The tensors.
    mode
        ``"full"`` for all sums of products, ``"same"`` for the middle ones, as many as in1 has
        elements, and ``"valid"`` for those without elements beyond the ends.
    method
        ``"direct"`` for sums of products, in up to three dimensions; ``"fft"`` for `fftconvolve`,
        whose errors are relative to the largest elements; ``"auto"`` for which is quicker by a
        count of operations, where integers and bools are always summed.

    Returns
    -------
    TensorOp
        The convolution, of the common dtype.

    Raises
    ------
    AxesError
        If the ranks differ, a length is unknown or 0, or for mode ``"valid"`` neither operand is at
        least as long as the other along each axis.
    ArgumentError
        If there is no such mode or method, or the direct method has more than three axes.

    Examples
    --------
    >>> convolve = weft.jit(weft.signal.convolve)
    >>> convolve(np.array([1.0, 2.0, 3.0]), np.array([1.0, 1.0]))
    array([1., 3., 5., 3.])
    """
    return _convolved("convolve", in1, in2, mode, method)


def _convolved(
    function: str, in1: TensorLike, in2: TensorLike, mode: Mode, method: Method
) -> TensorOp:
    first, second = _operands(function, in1, in2, mode)
    check_choice(function, "method", method, ("auto", "direct", "fft"), (first, second))
    if method == "auto":
        method = "fft" if _is_quicker_by_transforms(first, second) else "direct"
    if method == "fft":
        dtype = common_dtype((first, second))
        found = fftconvolve(first, second, mode)
        found = cast(found if dtype.kind in "fc" else round(found), dtype)
    else:
        found = _direct(function, first, second, mode)
    return named(found, as_op(in1).axes)


def correlate(
    in1: TensorLike, in2: TensorLike, mode: Mode = "full", method: Method = "auto"
) -> TensorOp:
    """Return the cross-correlation of two tensors of the same rank, along all axes.

    It is the convolution with the conjugate of in2 in reverse order.

    Parameters
    ----------
    in1, in2, mode, method
        As in `convolve`.

    Returns
    -------
    TensorOp
        The correlation, of the common dtype.

    Raises
    ------
    AxesError
        If the ranks differ, a length is unknown or 0, or for mode ``"valid"`` neither operand is at
        least as long as the other along each axis.
    ArgumentError
        If there is no such mode or method, or the direct method has more than three axes.

    Examples
    --------
    >>> correlate = weft.jit(weft.signal.correlate)
    >>> correlate(np.array([1.0, 2.0, 3.0]), np.array([0.0, 1.0]))
    array([1., 2., 3., 0.])
    """
    second: TensorOp = as_op(in2)
    return _convolved("correlate", in1, conj(flip(second, range(second.rank))), mode, method)


def fftconvolve(
    in1: TensorLike, in2: TensorLike, mode: Mode = "full", axes: AxisKeys | None = None
) -> TensorOp:
    """Return the convolution of two tensors of the same rank, through Fourier transforms.

    Its time hardly depends on the length of the shorter operand. The error of each element is
    relative to the largest elements, and a NaN makes all of them NaN.

    Parameters
    ----------
    in1, in2
        The tensors.
    mode
        As in `convolve`.
    axes
        The axes to convolve along, by position or name; by default all. The others broadcast.

    Returns
    -------
    TensorOp
        The convolution: floats or complex numbers, as integers are converted to float32.

    Raises
    ------
    AxesError
        If the ranks differ, an axis is not there, lengths of other axes do not broadcast, a length
        is unknown or 0, or for mode ``"valid"`` neither operand is at least as long as the other
        along each axis.
    ArgumentError
        If there is no such mode.

    Examples
    --------
    >>> fftconvolve = weft.jit(weft.signal.fftconvolve)
    >>> fftconvolve(np.array([1.0, 2.0, 3.0]), np.array([1.0, 1.0])).round(6)
    array([1., 3., 5., 3.])
    """
    function, op = "fftconvolve", as_op(in1)
    keys = range(op.rank) if axes is None else axes
    places = explained(function, (op,), op.axes.positions, keys)
    first, second = _operands(function, op, in2, mode, places)
    lengths = first.axes.lengths, second.axes.lengths
    places = tuple(place for place in places if 1 not in (lengths[0][place], lengths[1][place]))
    sums = [lengths[0][place] + lengths[1][place] - 1 for place in places]
    is_complex = "c" in (first.dtype.kind, second.dtype.kind)
    there, back = (fftn, ifftn) if is_complex else (rfftn, irfftn)
    sizes = [fast_length(n) for n in sums]
    if places:
        first, second = there(first, sizes, places), there(second, sizes, places)
    product = first * second
    if places:
        product = back(product, sizes, places)
    fulls = dict(zip(places, sums, strict=True))
    kept = []
    for place, (m, n) in enumerate(zip(*lengths, strict=True)):
        full = fulls.get(place, max(m, n))
        kept.append(_kept(full, m, n, mode if place in fulls or mode == "same" else "full"))
    return named(product[tuple(kept)], op.axes)


def _operands(
    function: str,
    in1: TensorLike,
    in2: TensorLike,
    mode: Mode,
    places: Sequence[int] | None = None,
) -> tuple[TensorOp, TensorOp]:
    """Return checked positional operands, the first of which is the longer one for mode valid."""
    operands = [as_op(in1), as_op(in2)]
    first, second = operands
    check_choice(function, "mode", mode, ("full", "same", "valid"), operands)
    if first.rank != second.rank or first.axes.names != second.axes.names:
        problem = f"operands need the same axes, not {first.axes} and {second.axes}"
        raise AxesError(explain(function, problem, operands))
    pairs = list(zip(first.axes.lengths, second.axes.lengths, strict=True))
    if not all(isinstance(n, int) and n for pair in pairs for n in pair):
        problem = "a convolution needs axes of known lengths, not 0"
        raise AxesError(explain(function, problem, operands))
    along = [pair for n, pair in enumerate(pairs) if places is None or n in places]
    others = [pair for n, pair in enumerate(pairs) if not (places is None or n in places)]
    if not all(m == n or 1 in (m, n) for m, n in others):
        problem = f"the other axes of {first.axes} and {second.axes} do not broadcast"
        raise AxesError(explain(function, problem, operands))
    operands = [positional(op) for op in operands]
    if mode != "valid" or all(m >= n for m, n in along):
        return operands[0], operands[1]
    if not all(m <= n for m, n in along):
        problem = "for mode 'valid' one operand must be at least as long along each axis"
        raise AxesError(explain(function, problem, operands))
    return operands[1], operands[0]


def _kept(full: int, first: int, second: int, mode: Mode) -> slice:
    """Return which elements along an axis of the full convolution are kept."""
    count = {"full": full, "same": first, "valid": full - 2 * (second - 1)}[mode]
    return slice((full - count) // 2, (full - count) // 2 + count)


def _is_quicker_by_transforms(first: TensorOp, second: TensorOp) -> bool:
    """Whether floats are convolved quicker through transforms.

    Measured for 4096 to 10^6 elements, a product takes 1 (native) to 3 times (NumPy) the time of an
    operation of transforms.
    """
    if common_dtype((first, second)).kind not in "fc" or not first.rank:
        return False
    lengths = [m + n - 1 for m, n in zip(first.axes.lengths, second.axes.lengths, strict=True)]
    products = math.prod(lengths) * min(int(first.axes.size), int(second.axes.size))
    work = transform_work(3, [fast_length(n) for n in lengths])
    return first.rank > len(SPATIAL) or products > work


def _direct(function: str, first: TensorOp, second: TensorOp, mode: Mode) -> TensorOp:
    """Return the convolution as that of one image with a filter of the shorter operand."""
    if not first.rank:
        return first * second
    if first.rank > len(SPATIAL):
        problem = f"the direct method takes up to {len(SPATIAL)} axes, not {first.rank}: use 'fft'"
        raise ArgumentError(explain(function, problem, (first, second)))
    if mode == "full" and int(second.axes.size) > int(first.axes.size):
        first, second = second, first
    lengths = second.axes.lengths
    each = {"full": lambda k: (k - 1, k - 1), "same": lambda k: (k // 2, (k - 1) // 2)}
    padding = [each[mode](k) if mode in each else (0, 0) for k in lengths]
    dtype = common_dtype((first, second))
    x, w = (cast(op, dtype) for op in (first, flip(second, range(second.rank))))
    if dtype.kind != "c":
        return conv(x[None, None], w[None, None], padding=padding)[0, 0]
    rows = stack([real(w), -imag(w)], pos=0), stack([imag(w), real(w)], pos=0)
    images = stack([real(x), imag(x)], pos=0)[None]
    found = conv(images, stack(rows, pos=0), padding=padding)
    return complex(found[0, 0], found[0, 1])
