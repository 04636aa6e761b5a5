"""Rows of the op table: Fourier transforms, with real operands and results."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

import weft
from weft.errors import ArgumentError, AxesError, DTypeError, WeftError
from weft.ir.dtypes import Array
from weft.ir.tensor import TensorOp
from weft.testing.table.rows import FLOATS, C, H, Refusal, Row, Shapes, W, operands

_LINES: Shapes = (((2, 6),), ((8,),), ((1,),), ((3, 1, 5),), ((C, W),))
_PAIRS: Shapes = tuple((shapes[0], shapes[0]) for shapes in _LINES)
_HALVES: Shapes = (((2, 4), (2, 4)), ((5,), (5,)), ((2,), (2,)), ((C, W), (C, W)))
_PLANES: Shapes = (((2, 3, 4),), ((4, 6),), ((1, 1),), ((H, W),))

_ROWS: Shapes = (((2, 6),), ((5,),), ((C, W),))

_MIXED = 2 + 3j
"""A factor that mixes the parts of a spectrum, so that both are seen in a real result."""


def _of_complex(name: str, shapes: Shapes, **options: Any) -> Row:
    """Return a row of a function of complex numbers, which are made of two real operands."""
    own, other = getattr(weft.fft, name), getattr(np.fft, name)

    def build(x: TensorOp, y: TensorOp) -> Any:
        return _real(own(weft.complex(x, y), **options), weft)

    def expected(x: Array, y: Array) -> Any:
        return _real(other(x + 1j * y, **options), np)

    case = "-".join(map(str, options.values()))
    return Row(
        f"fft.{name}", build, operands("unit", "unit"), shapes, FLOATS, expected, case, twice=True,
        is_generic=False,
    )  # fmt: skip


def _of_real(name: str, shapes: Shapes, **options: Any) -> Row:
    """Return a row of a function of real numbers."""
    own, other = getattr(weft.fft, name), getattr(np.fft, name)
    case = "-".join(map(str, options.values()))
    return Row(
        f"fft.{name}", lambda x: _real(own(x, **options), weft), operands("unit"), shapes, FLOATS,
        lambda x: _real(other(x, **options), np), case, twice=True, is_generic=False,
    )  # fmt: skip


def _real(z: Any, library: ModuleType) -> Any:
    z = z * _MIXED
    return library.real(z) + library.imag(z)


def _cosine(name: str, type: int, shapes: Shapes, *, is_of_several: bool = False) -> Row:
    """Return a row of a cosine or sine transform, which is a product with its definition."""
    own = getattr(weft.fft, name)

    def expected(x: Array) -> Any:
        for axis in range(x.ndim) if is_of_several else [-1]:
            moved = np.moveaxis(x, axis, -1) @ _matrix(name, type, x.shape[axis])
            x = np.moveaxis(moved, -1, axis)
        return x

    return Row(
        f"fft.{name}", partial(own, type=type), operands("unit"), shapes, FLOATS, expected,
        str(type), twice=True, is_generic=False,
    )  # fmt: skip


def _matrix(name: str, type: int, n: int) -> Any:
    """Return the matrix of a cosine or sine transform, from its definition."""
    is_sine, is_first = "dst" in name, type == 1
    shift = {1: (is_sine, is_sine), 2: (0.5, is_sine), 3: (is_sine, 0.5), 4: (0.5, 0.5)}[type]
    period = n + (1 if is_sine else -1) * is_first
    j, k = np.arange(n)[:, None] + shift[0], np.arange(n) + shift[1]
    matrix = 2 * (np.sin if is_sine else np.cos)(np.pi * j * k / period)
    halved = {(False, 1): [0, -1], (False, 3): [0], (True, 3): [-1]}.get((is_sine, type), [])
    matrix[halved] /= 2
    return np.linalg.inv(matrix) if name.startswith("i") else matrix


def _shift(name: str) -> list[Row]:
    own, other = getattr(weft.fft, name), getattr(np.fft, name)
    each: list[tuple[str, Callable[..., Any]]] = [("", lambda f, x: f(x)), ("last", _last)]
    return [
        Row(
            f"fft.{name}", partial(call, own), operands("any"), _PLANES, FLOATS,
            partial(call, other), case,
        )
        for case, call in each
    ]  # fmt: skip


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
            f"fft.{name}", case, partial(getattr(weft.fft, name), *args, **options), error, words
        )
        for name in names
    ]


def _times(frequencies: Callable[..., Any], x: Any) -> Any:
    """Return frequencies times a number."""
    return x * frequencies(5, 0.2)


def _last(function: Callable[..., Any], x: Any) -> Any:
    return function(x, axes=-1)


def _symmetric_of(name: str, x: Any, y: Any) -> Any:
    return getattr(weft.fft, name)(weft.complex(x, y))


def _symmetric(x: Any, y: Any) -> Any:
    return np.fft.irfftn(x - 1j * y, norm="forward")


def _half_of(name: str, x: Any) -> Any:
    half = getattr(weft.fft, name)(x)
    return half.real + 2 * half.imag


def _half(name: str, x: Any) -> Any:
    half = (np.fft.rfft2 if name.endswith("2") else np.fft.rfftn)(x, norm="forward")
    return half.real - 2 * half.imag


ROWS: tuple[Row, ...] = (
    *(_of_complex(name, _PAIRS) for name in ("fft", "ifft")),
    *(_of_complex(name, _PAIRS, n=4, axis=0, norm="ortho") for name in ("fft", "ifft")),
    *(_of_complex(name, _HALVES) for name in ("irfft", "hfft")),
    *(_of_complex(name, _PAIRS, n=5, axis=0, norm="forward") for name in ("irfft", "hfft")),
    *(_of_real(name, _LINES) for name in ("rfft", "ihfft")),
    *(_of_real(name, _LINES, n=7, axis=0, norm="forward") for name in ("rfft", "ihfft")),
    *(
        _of_complex(name, tuple((shapes[0], shapes[0]) for shapes in _PLANES), **options)
        for name in ("fftn", "ifftn", "fft2", "ifft2")
        for options in ({}, {"norm": "ortho"})
    ),
    *(_of_complex(name, _HALVES[:1]) for name in ("irfftn", "irfft2")),
    *(_of_real(name, _PLANES) for name in ("rfftn", "rfft2")),
    *(
        Row(
            f"fft.{name}",
            partial(_symmetric_of, name),
            operands("unit", "unit"),
            _HALVES[:1],
            FLOATS,
            _symmetric,
            twice=True,
            is_generic=False,
        )
        for name in ("hfftn", "hfft2")
    ),
    *(
        Row(
            f"fft.{name}",
            partial(_half_of, name),
            operands("unit"),
            _PLANES,
            FLOATS,
            partial(_half, name),
            twice=True,
            is_generic=False,
        )
        for name in ("ihfftn", "ihfft2")
    ),
    *(
        Row(
            f"fft.{name}",
            partial(_times, getattr(weft.fft, name)),
            operands("any"),
            (((),),),
            FLOATS,
            partial(_times, getattr(np.fft, name)),
        )
        for name in ("fftfreq", "rfftfreq")
    ),
    *(_cosine(name, type, _ROWS) for name in ("dct", "dst") for type in (1, 2, 3, 4)),
    *(_cosine(name, 2, _ROWS[:1]) for name in ("idct", "idst")),
    *(
        _cosine(name, 2, _PLANES[:1], is_of_several=True)
        for name in ("dctn", "idctn", "dstn", "idstn")
    ),
    *_shift("fftshift"),
    *_shift("ifftshift"),
)

_X, _SCALAR = weft.placeholder((2, 3)), weft.placeholder(())
_UNKNOWN = weft.placeholder((2, weft.symbol("n")))

_ALONG_ONE = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
_COSINES = ("dct", "idct", "dst", "idst")
_COSINES_OF_SEVERAL = ("dctn", "idctn", "dstn", "idstn")
_ALONG_SEVERAL = tuple(f"{name}{dimensions}" for name in _ALONG_ONE for dimensions in "n2")

REFUSALS: tuple[Refusal, ...] = (
    *_refused(_ALONG_ONE, "axis", AxesError, "out of range", _X, axis=2),
    *_refused(_ALONG_ONE, "scalar", AxesError, "out of range", _SCALAR),
    *_refused(_ALONG_ONE, "unknown", AxesError, "known length", _UNKNOWN),
    *_refused(_ALONG_ONE, "n", ArgumentError, "at least 1", _X, n=0),
    *_refused(_ALONG_ONE, "norm", ArgumentError, "'ortho'", _X, norm="no"),
    *_refused(("fft", "ifft", "rfft", "ihfft"), "empty", AxesError, "elements", _X[:, :0]),
    *_refused(("rfft", "ihfft"), "complex", DTypeError, "use fft", _X * 1j),
    *_refused(_COSINES, "type", ArgumentError, "1, 2, 3 or 4, not 5", _X, 5),
    *_refused(_COSINES, "norm", ArgumentError, "'ortho'", _X, norm="no"),
    *_refused(_COSINES, "unknown", AxesError, "known length", _UNKNOWN),
    *_refused(("dct", "idct"), "short", AxesError, "2 elements or more", _X[:, :1], 1),
    *_refused(
        _COSINES_OF_SEVERAL, "lengths", ArgumentError, "each of the axes", _X, 2, (4,), (0, 1)
    ),
    *_refused(_ALONG_SEVERAL, "lengths", ArgumentError, "each of the axes", _X, (4,), (0, 1)),
    *_refused(("fftshift", "ifftshift"), "axes", AxesError, "out of", _X, axes=3),
    *_refused(("fftfreq", "rfftfreq"), "n", ArgumentError, "at least 1", 0),
)
