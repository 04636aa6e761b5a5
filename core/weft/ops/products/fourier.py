"""The discrete Fourier transforms of pairs of real numbers, and their decomposition into products.

A complex number is a pair, the real and the imaginary part along the last axis: so a backend needs
no complex dtype for them. Nothing is normalized.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from weft.errors import AxesError, DTypeError
from weft.ir import dtypes
from weft.ir.axes import Axes, Axis
from weft.ir.dtypes import Array, DType
from weft.ir.lengths import product
from weft.ir.storage import constant
from weft.ir.tensor import CompositeOp, TensorOp
from weft.ops.products.linalg import MatmulOp
from weft.ops.shape.arrangement import flip
from weft.ops.shape.joining import concat, pad, stack
from weft.ops.shape.movement import TransposeOp, broadcast, reshaped, zeros_like
from weft.support.backports import override

LONGEST_PRODUCT = 64
"""The longest transform that is one product with a matrix."""


class FourierOp(CompositeOp):
    """The transform of complex numbers along the axis before that of their parts.

    Element k of the result is the sum of x_j exp(2πi sign j k / n) over the n elements x_j.

    Attributes
    ----------
    sign
        -1 for the transform, 1 for its inverse times n.
    scale
        The number that the result is multiplied with.
    """

    sign: int
    scale: float

    def infer(self) -> tuple[Axes, DType]:
        """Check that there are pairs of floats, along an axis of known length."""
        (x,) = self.args
        _require_floats(x, "the parts of complex numbers")
        if x.rank < 2 or x.axes[-1].length != 2:
            raise AxesError(f"{x.axes} has no axis of real and imaginary parts")
        _require_known(x.axes[-2].length)
        return x.axes, x.dtype

    @property
    @override
    def flops(self) -> int:
        """Five for each element and bit of the length, as transforms are usually counted."""
        count = int(self.axes.size) // 2
        return int(5 * count * math.log2(max(self.axes.shape[-2], 1)))

    def reference(self, x: Array) -> Any:
        """Transform complex numbers by NumPy."""
        return parts_of(_transform(complex_of(x), self.sign) * self.scale)

    def decompose(self, x: TensorOp) -> TensorOp:
        """Multiply by matrices of the factors of the length (Cooley and Tukey, 1965).

        A long prime length is a convolution (Bluestein, 1970), with a power of 2.
        """
        n = x.axes[-2].length
        if n <= 1:
            return x if self.scale == 1 else x * self.scale
        factor = max(k for k in range(1, LONGEST_PRODUCT + 1) if n % k == 0)
        if factor == n:
            flat = reshaped(x, [*x.axes[:-2], Axis(2 * n)])
            return reshaped(MatmulOp(*_rows(flat, _matrix(n, self.sign) * self.scale)), x.axes)
        return self._by_factors(x, factor) if factor > 1 else self._by_convolution(x)

    def _by_factors(self, x: TensorOp, first: int) -> TensorOp:
        n, outer = x.axes[-2].length, x.axes[:-2]
        second, rank = n // first, len(outer)
        swapped = (*range(rank), rank + 1, rank, rank + 2)

        def swap(y: TensorOp) -> TensorOp:
            return TransposeOp(y, permutation=swapped)

        split = reshaped(x, [*outer, Axis(first), Axis(second), x.axes[-1]])
        inner = FourierOp(swap(split), sign=self.sign, scale=1.0)
        products = np.outer(np.arange(second), np.arange(first))
        turned = multiplied(inner, parts_of(roots_of_unity(n, self.sign)[products % n]))
        return reshaped(swap(FourierOp(swap(turned), sign=self.sign, scale=self.scale)), x.axes)

    def _by_convolution(self, x: TensorOp) -> TensorOp:
        n = x.axes[-2].length
        length = 1 << (2 * n - 2).bit_length()
        chirp, spectrum = chirp_and_spectrum(n, length, self.sign)
        padded = _padded(multiplied(x, parts_of(chirp)), length)
        product = multiplied(FourierOp(padded, sign=-1, scale=1.0), parts_of(spectrum))
        found = FourierOp(product, sign=1, scale=self.scale)
        return multiplied(found[..., :n, :], parts_of(chirp))

    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Transform the adjoint with the other sign."""
        return (FourierOp(delta, sign=-self.sign, scale=self.scale),)


class RealFourierOp(CompositeOp):
    """The transform of n real numbers along the last axis: its first n // 2 + 1 elements, as pairs.

    The others are the conjugates of these.

    Attributes
    ----------
    scale
        The number that the result is multiplied with.
    """

    scale: float

    def infer(self) -> tuple[Axes, DType]:
        """Check that there are floats, along an axis of known length, not 0."""
        (x,) = self.args
        _require_floats(x, "real numbers")
        length = _require_known(x.axes[-1].length)
        if length == 0:
            raise AxesError(f"{x.axes} has no elements to transform")
        return Axes((*x.axes[:-1], Axis(length // 2 + 1), Axis(2))), x.dtype

    @property
    @override
    def flops(self) -> int:
        return int(2.5 * self.args[0].axes.size * math.log2(max(self.args[0].axes.shape[-1], 1)))

    @override
    def reference(self, x: Array) -> Any:
        return parts_of(np.fft.rfft(x) * self.scale)

    def decompose(self, x: TensorOp) -> TensorOp:
        """Transform half as many complex numbers, of neighbors, where their number is even."""
        n = x.axes[-1].length
        half = n // 2
        if n % 2:
            pairs = stack([x, zeros_like(x)], pos=x.rank)
            return FourierOp(pairs, sign=-1, scale=self.scale)[..., : half + 1, :]
        pairs = reshaped(x, [*x.axes[:-1], Axis(half), Axis(2)])
        z = FourierOp(pairs, sign=-1, scale=self.scale)
        ahead = concat([z, z[..., :1, :]], -2)
        back = conjugated(flip(ahead, -2))
        turn = -0.5j * roots_of_unity(n, -1)[: half + 1]
        return (ahead + back) * 0.5 + multiplied(ahead - back, parts_of(turn))

    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Transform the adjoint back; elements that stand for two have half a share in each."""
        length = x.axes[-1].length
        share = np.where(_are_single(length), 1, 0.5)[:, None] * np.ones(2)
        halves = delta * broadcast_to(constant(share, dtype=x.dtype), delta)
        return (InverseRealFourierOp(halves, length=length, scale=self.scale),)


class InverseRealFourierOp(CompositeOp):
    """The inverse of `RealFourierOp`, times n.

    The imaginary parts of the first element and, for an even n, of the last one count as 0.

    Attributes
    ----------
    length
        The number n of real numbers.
    scale
        The number that the result is multiplied with.
    """

    length: int
    scale: float

    def infer(self) -> tuple[Axes, DType]:
        """Check that there are length // 2 + 1 pairs of floats."""
        (x,) = self.args
        _require_floats(x, "the parts of complex numbers")
        if x.rank < 2 or x.axes.lengths[-2:] != (self.length // 2 + 1, 2) or self.length < 1:
            raise AxesError(f"{x.axes} are not half of a spectrum of length {self.length}")
        return Axes((*x.axes[:-2], Axis(self.length))), x.dtype

    @property
    @override
    def flops(self) -> int:
        return int(2.5 * self.axes.size * math.log2(max(self.length, 1)))

    @override
    def reference(self, x: Array) -> Any:
        return np.fft.irfft(complex_of(x), self.length, norm="forward") * self.scale

    def decompose(self, x: TensorOp) -> TensorOp:
        """Transform half as many complex numbers, whose parts are neighbors, or add the others."""
        n, half = self.length, self.length // 2
        is_part = np.ones((half + 1, 2))
        is_part[_are_single(n), 1] = 0
        x = x * broadcast_to(constant(is_part, dtype=x.dtype), x)
        if n % 2:
            whole = concat([x, conjugated(flip(x[..., 1:, :], -2))], -2)
            return FourierOp(whole, sign=1, scale=self.scale)[..., 0]
        ahead, back = x[..., :half, :], conjugated(flip(x[..., 1:, :], -2))
        turn = 1j * roots_of_unity(n, 1)[:half]
        z = ahead + back + multiplied(ahead - back, parts_of(turn))
        return reshaped(FourierOp(z, sign=1, scale=self.scale), self.axes)

    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Transform the adjoint; elements that stand for two get it twice."""
        share = np.where(_are_single(self.length), 1, 2)[:, None] * np.ones(2)
        share[_are_single(self.length), 1] = 0
        found = RealFourierOp(delta, scale=self.scale)
        return (found * broadcast_to(constant(share, dtype=x.dtype), found),)


def complex_of(pairs: Array) -> Array:
    """Return complex numbers from an array with their parts along the last axis."""
    pairs = np.ascontiguousarray(pairs)
    return np.asarray(pairs.view(np.result_type(pairs, np.complex64))[..., 0])


def parts_of(z: Array) -> Array:
    """Return an array with the parts of complex numbers along a last axis."""
    return np.ascontiguousarray(z)[..., None].view(z.real.dtype)


def multiplied(x: TensorOp, factors: Array) -> TensorOp:
    """Return complex numbers times known ones, both as pairs."""
    real, imag = (broadcast_to(constant(factors[..., n], dtype=x.dtype), x[..., 0]) for n in (0, 1))
    a, b = x[..., 0], x[..., 1]
    return stack([a * real - b * imag, a * imag + b * real], pos=x.rank - 1)


def conjugated(x: TensorOp) -> TensorOp:
    """Return the conjugates of pairs."""
    return x * broadcast_to(constant([1.0, -1.0], dtype=x.dtype), x)


def chirp_and_spectrum(n: int, length: int, sign: int) -> tuple[Array, Array]:
    """Return what makes a transform a convolution of some length, at least 2 n - 1.

    It is that of x times the chirp [n] with the chirp's conjugates, whose spectrum [length] is the
    second array, divided by the length. The result is multiplied with the chirp again.
    """
    chirp = roots_of_unity(2 * n, sign)[np.arange(n) ** 2 % (2 * n)]
    kernel = np.zeros(length, complex)
    kernel[:n] = chirp.conj()
    kernel[length - n + 1 :] = chirp[:0:-1].conj()
    return chirp, np.fft.fft(kernel) / length


@lru_cache(maxsize=64)
def roots_of_unity(n: int, sign: int) -> Array:
    """Return exp(2πi sign k / n) for k below n, exact at multiples of a quarter."""
    turns = np.arange(n) / n
    eighths = np.round(turns * 8)
    rest = 2 * np.pi * (turns - eighths / 8)
    sine, cosine = np.sin(rest), np.cos(rest)
    root = math.sqrt(0.5)
    start = np.array([1, complex(root, root), 1j, complex(-root, root)])
    start = np.concatenate([start, -start])[eighths.astype(int) % 8]
    found: Array = start * (cosine + 1j * sine)
    return found if sign > 0 else found.conj()


def broadcast_to(x: TensorOp, like: TensorOp) -> TensorOp:
    """Return a constant with the last axes of another tensor, repeated along the others."""
    named = reshaped(x, like.axes[like.rank - x.rank :])
    return broadcast(named, like.axes)


def _matrix(n: int, sign: int) -> Array:
    """Return the matrix by which n pairs in a row are multiplied."""
    turns = roots_of_unity(n, sign)[np.outer(np.arange(n), np.arange(n)) % n]
    blocks = np.array([[turns.real, turns.imag], [-turns.imag, turns.real]])
    return blocks.transpose(2, 0, 3, 1).reshape(2 * n, 2 * n)


def _rows(x: TensorOp, matrix: Array) -> tuple[TensorOp, TensorOp]:
    """Return all rows, and the matrix that they are multiplied by."""
    rows = reshaped(x, [Axis(product(x.axes.lengths[:-1])), x.axes[-1]])
    return rows, constant(matrix, dtype=x.dtype)


def _padded(x: TensorOp, length: int) -> TensorOp:
    widths = [(0, 0)] * x.rank
    widths[-2] = (0, length - x.axes[-2].length)
    return pad(x, widths)


def _transform(z: Array, sign: int) -> Array:
    return np.fft.fft(z) if sign < 0 else np.fft.ifft(z, norm="forward")


def _are_single(length: int) -> Array:
    """Whether elements of half a spectrum stand for one element of the whole, not for two."""
    places = np.arange(length // 2 + 1)
    return np.asarray((places == 0) | (2 * places == length))


def _require_floats(x: TensorOp, what: str) -> None:
    if x.dtype not in (dtypes.float32, dtypes.float64):
        raise DTypeError(f"{what} must be float32 or float64, not {x.dtype}")


def _require_known(length: Any) -> int:
    if not isinstance(length, int):
        raise AxesError(f"a transform needs an axis of known length, not {length}")
    return length
