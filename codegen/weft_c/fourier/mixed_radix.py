"""Transforms by stages of small radices, and the transforms that they replace."""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from weft.ir.axes import Axes, Axis
from weft.ir.dtypes import DType
from weft.ir.op import Op
from weft.ir.storage import owning_constant
from weft.ir.tensor import TensorOp
from weft.ops.pointwise.complex_parts import ViewAsComplexOp
from weft.ops.products.fourier import (
    FourierOp,
    InverseRealFourierOp,
    RealFourierOp,
    chirp_and_spectrum,
    complex_of,
    parts_of,
    roots_of_unity,
)
from weft.ops.shape.movement import TransposeOp, reshaped
from weft.support.backports import override
from weft_c.processor import Processor

RADICES = (8, 4, 2, 3, 5, 7, 11, 13)
"""The radices of stages, in their order."""

LONGEST = 1 << 17
"""The longest transform that a work item of a serial device computes in scratch memory."""

LONGEST_ALONE = 1 << 13
"""The longest transform of a single row of complex numbers there, whose work is not shared."""


class Stage(NamedTuple):
    """A stage of Stockham's algorithm.

    It transforms the `radix` elements q + done (p + rest j), times roots of unity, to elements
    q + done (radix p + k), for each q below `done` and p below `rest`.

    Attributes
    ----------
    radix
        The length of its transforms.
    rest
        The product of the radices of later stages.
    done
        The product of the radices of earlier stages.
    first_root
        Where its roots begin in the table: real parts, then imaginary parts, of the root for k = 1
        and each p, then those for k = 2, and so on.
    """

    radix: int
    rest: int
    done: int
    first_root: int


class MixedRadixOp(TensorOp):
    """The transform along the axis before that of the parts, for a length n of small factors.

    The operands are pairs [..., rows, given, 2]; the table of roots of unity; where fewer pairs
    than n are given, the numbers [given, 1, 2] that they are multiplied with, and zeros follow; and
    maybe the numbers [n, rows, 2] or [n, 1, 2] that the results are multiplied with.

    Attributes
    ----------
    sign
        That of `FourierOp`; for 1, the numbers for results are conjugated.
    scale
        The real number that results are multiplied with.
    length
        The length n.
    kept
        The number of results that are kept.
    is_real
        Whether this is the transform of 2 n real numbers, neighbors of which are pairs, to the
        n + 1 pairs of half a spectrum, or for the sign 1 its inverse times 2 n.
    trailing
        The number of axes of rows that follow those of results, as in [..., kept, rows, 2] for 1.
    """

    sign: int
    scale: float
    length: int
    kept: int
    is_real: bool
    trailing: int

    @property
    def given(self) -> int:
        """The number of pairs in a row."""
        return int(self.args[0].axes.shape[-2])

    @property
    def has_factors(self) -> bool:
        """Whether pairs are multiplied with numbers first."""
        return self.given < self.length

    def infer(self) -> tuple[Axes, DType]:
        """Return the axes of the pairs, in the order of the result."""
        x = self.args[0]
        *outer, line, parts = x.axes
        line = line if line.length == self.kept else Axis(self.kept)
        outer.insert(len(outer) - self.trailing, line)
        return Axes((*outer, parts)), x.dtype

    @override
    def reference(self, x: Any, roots: Any, *factors: Any) -> Any:
        z, n, is_inverse = complex_of(x), self.length, self.sign > 0
        if self.has_factors:
            z, factors = z * complex_of(factors[0])[:, 0], factors[1:]
        if self.is_real and is_inverse:
            z = complex_of(np.fft.irfft(z, 2 * n, norm="forward").reshape(*z.shape[:-1], n, 2))
        elif self.is_real:
            z = np.fft.rfft(x.reshape(*z.shape[:-1], 2 * n))
        else:
            z = np.fft.ifft(z, n, norm="forward") if is_inverse else np.fft.fft(z, n)
        for turns in factors:
            turns = complex_of(turns).T
            z = z * (turns.conj() if is_inverse else turns)
        z = z[..., : self.kept] * self.scale
        return parts_of(np.moveaxis(z, -1, -1 - self.trailing)).astype(x.dtype)

    @property
    @override
    def flops(self) -> int:
        rows = int(self.axes.size) // (2 * self.kept)
        return int(5 * rows * self.length * math.log2(self.length))


@lru_cache(maxsize=256)
def radices_of(n: int) -> tuple[int, ...]:
    """Return radices whose product is n; none if it has a larger prime factor."""
    found = []
    for radix in RADICES:
        while n % radix == 0:
            found.append(radix)
            n //= radix
    if 2 in found and 8 in found:  # two stages of 4 take less than those of 8 and 2
        found[found.index(8)] = 4
        found[found.index(2)] = 4
        found.sort(key=RADICES.index)
    return tuple(found) if n == 1 else ()


def stages_of(n: int) -> tuple[Stage, ...]:
    """Return the stages of a transform."""
    found, done, first_root = [], 1, 0
    for radix in radices_of(n):
        rest = n // done // radix
        found.append(Stage(radix, rest, done, first_root))
        first_root += 2 * (radix - 1) * rest
        done *= radix
    return tuple(found)


def table_of_roots(n: int, real_sign: int = 0) -> Any:
    """Return the roots of unity that results of stages are multiplied with, but for the last.

    Those follow that part the spectra of even and odd real numbers, for a real transform's sign.
    """
    found = []
    for stage in stages_of(n):
        places = np.outer(np.arange(1, stage.radix), np.arange(stage.rest)) * stage.done
        roots = roots_of_unity(n, -1)[places % n]
        found.append(np.stack([roots.real, roots.imag], axis=1).reshape(-1))
    if real_sign:
        turns = (1j if real_sign > 0 else -0.5j) * roots_of_unity(2 * n, real_sign)
        turns = turns[: n if real_sign > 0 else n + 1]
        found += [turns.real, turns.imag]
    return np.concatenate(found)


def first_real_root(n: int) -> int:
    """Return where in the table those roots begin."""
    return sum(2 * (stage.radix - 1) * stage.rest for stage in stages_of(n))


def legalized_transform(op: Op, processor: Processor) -> Op | None:
    """Return the transform by stages in the place of one, or None for other lengths.

    One whose frequencies are moved, to be complex numbers in memory, has them there at once.
    """
    if isinstance(op, ViewAsComplexOp):
        return _with_moved_frequencies(op)
    if not isinstance(op, FourierOp | RealFourierOp | InverseRealFourierOp):
        return None
    (x,) = op.args
    most = _longest(x, processor)
    if isinstance(op, FourierOp):
        # Work items share the columns of a long row that is alone.
        is_alone = processor.is_serial and all(axis.length == 1 for axis in x.axes[:-2])
        return _legalized_complex(op, x, min(most, LONGEST_ALONE) if is_alone else most)
    n = op.length if isinstance(op, InverseRealFourierOp) else x.axes[-1].length
    half, sign = n // 2, 1 if isinstance(op, InverseRealFourierOp) else -1
    slots = half if processor.is_serial else half + 1
    if n % 2 or half < 2 or slots > most or not radices_of(half):
        return None
    if sign < 0:
        x = reshaped(x, [*x.axes[:-1], Axis(half), Axis(2)])
    found = _by_stages(x, half, sign, op.scale, is_real=True)
    return reshaped(found, op.axes)


def _with_moved_frequencies(op: ViewAsComplexOp) -> TensorOp | None:
    (moved,) = op.args
    if not isinstance(moved, TransposeOp):
        return None
    (found,) = moved.args
    trailing = _axes_behind(tuple(map(moved.permutation.index, range(moved.rank))))
    if not trailing or not isinstance(found, MixedRadixOp) or found.trailing:
        return None
    fields = {name: getattr(found, name) for name in MixedRadixOp.fields}
    return ViewAsComplexOp(MixedRadixOp(*found.args, **{**fields, "trailing": trailing}))


def _legalized_complex(op: FourierOp, x: TensorOp, most: int) -> TensorOp | None:
    n = x.axes[-2].length
    if n < 2:
        return None
    if not radices_of(n):
        length = _convolution_length(n)
        return _by_convolution(x, length, op) if length <= most else None
    if n <= most:
        trailing = _axes_behind(x.permutation) if isinstance(x, TransposeOp) else 0
        found = _by_stages(x, n, op.sign, op.scale, trailing=trailing)
        if isinstance(x, TransposeOp) and trailing:
            return TransposeOp(found, permutation=x.permutation)
        return reshaped(found, x.axes)
    factors = _factors(n, most)
    return None if factors is None else _by_columns_and_rows(x, factors, op)


def _longest(x: TensorOp, processor: Processor) -> int:
    """Return the longest transform of a work item, or of a work group in local memory."""
    if processor.is_serial:
        return LONGEST
    return processor.local_bytes // (4 * x.dtype.itemsize)


def _axes_behind(permutation: tuple[int, ...]) -> int:
    """Return how many axes were behind the one that a permutation moves before the last one."""
    *outer, place, parts = permutation
    last = len(permutation) - 1
    is_moved = parts == last and outer == [k for k in range(last) if k != place]
    return last - 1 - place if is_moved else 0


def _factors(n: int, most: int) -> tuple[int, int] | None:
    """Return the two factors of n that are closest to each other, if none is above `most`."""
    first = next(k for k in range(math.isqrt(n), 0, -1) if n % k == 0)
    return (n // first, first) if n // first <= most else None


def _convolution_length(n: int) -> int:
    """Return the length of a convolution that computes a transform of length n, a multiple of 8."""
    return next(k for k in count(-(-(2 * n - 1) // 8) * 8, 8) if radices_of(k))


def _by_stages(
    x: TensorOp, n: int, sign: int, scale: float, *, is_real: bool = False, trailing: int = 0
) -> TensorOp:
    kept = n + 1 if is_real and sign < 0 else n
    return MixedRadixOp(
        _with_rows(x), _roots(n, x.dtype, sign if is_real else 0),
        sign=sign, scale=scale, length=n, kept=kept, is_real=is_real,
        trailing=trailing,
    )  # fmt: skip


def _by_columns_and_rows(x: TensorOp, factors: tuple[int, int], op: FourierOp) -> TensorOp:
    """Return transforms of columns, then of rows (W. M. Gentleman and G. Sande, 1966)."""
    first, second = factors
    *outer, _, parts = x.axes
    columns = reshaped(x, [*outer, Axis(first), Axis(second), parts])
    rank, n = len(outer), first * second
    swapped = TransposeOp(columns, permutation=(*range(rank), rank + 1, rank, rank + 2))
    turns = roots_of_unity(n, -1)[np.outer(np.arange(first), np.arange(second)) % n]
    rows = MixedRadixOp(
        swapped, _roots(first, x.dtype), _numbers(turns, x.dtype),
        sign=op.sign, scale=1.0, length=first, kept=first, is_real=False, trailing=1,
    )  # fmt: skip
    found = MixedRadixOp(
        rows, _roots(second, x.dtype), sign=op.sign, scale=op.scale, length=second, kept=second,
        is_real=False, trailing=1,
    )  # fmt: skip
    return reshaped(found, x.axes)


def _by_convolution(x: TensorOp, length: int, op: FourierOp) -> TensorOp:
    """Return the convolution with a chirp by two transforms (L. Bluestein, 1970)."""
    n = x.axes[-2].length
    chirp, spectrum = chirp_and_spectrum(n, length, op.sign)
    product = MixedRadixOp(
        _with_rows(x), _roots(length, x.dtype), _numbers(chirp[:, None], x.dtype),
        _numbers(spectrum[:, None], x.dtype),
        sign=-1, scale=1.0, length=length, kept=length, is_real=False, trailing=0,
    )  # fmt: skip
    last = np.zeros((length, 1), complex)
    last[:n, 0] = chirp.conj()
    found = MixedRadixOp(
        product, _roots(length, x.dtype), _numbers(last, x.dtype),
        sign=1, scale=op.scale, length=length, kept=n, is_real=False, trailing=0,
    )  # fmt: skip
    return reshaped(found, x.axes)


def _with_rows(x: TensorOp) -> TensorOp:
    return x if x.rank > 2 else reshaped(x, [Axis(1), *x.axes])


def _roots(n: int, dtype: DType, real_sign: int = 0) -> TensorOp:
    return owning_constant(table_of_roots(n, real_sign).astype(dtype))


def _numbers(z: Any, dtype: DType) -> TensorOp:
    return owning_constant(parts_of(z).astype(dtype))
