"""Window functions, which weight the samples of a segment."""

from __future__ import annotations

from collections.abc import Callable
from typing import SupportsIndex

import numpy as np

from weft.errors import ArgumentError
from weft.ir import dtypes
from weft.ir.dtypes import Array, DTypeLike
from weft.ir.op import explain
from weft.ir.storage import constant
from weft.ir.tensor import TensorOp
from weft.ops.arguments import as_number, checked_integer, checked_number

__all__ = ["get_window"]

WindowName = str | float | tuple[str | float, ...]


def get_window(
    window: WindowName,
    Nx: SupportsIndex,  # noqa: N803
    fftbins: bool = True,
    dtype: DTypeLike | None = None,
) -> TensorOp:
    """Return a window function, as `scipy.signal.get_window` does.

    Parameters
    ----------
    window
        The name of a window, or a tuple of the name and a number; a number alone is the beta of
        ``kaiser``. There are

        * sums of cosines: ``boxcar``, ``hann``, ``hamming``, ``blackman``, ``blackmanharris``,
          ``nuttall`` and ``flattop``;
        * ``bartlett``, ``cosine``, and ``("tukey", alpha)``, by default 0.5;
        * ``("kaiser", beta)`` and ``("gaussian", deviation)``.
    Nx
        The number of samples.
    fftbins
        Whether the window is periodic, as for spectra, and not symmetric.
    dtype
        By default float32.

    Returns
    -------
    TensorOp
        A constant of shape (Nx,).

    Raises
    ------
    ArgumentError
        If there is no such window, its number is missing, or Nx is not a whole number above 0.

    Examples
    --------
    >>> weft.jit(lambda: weft.signal.get_window("hann", 4, dtype="float64"))()
    array([0. , 0.5, 1. , 0.5])
    """
    values = window_values(
        "get_window", window, checked_integer("get_window", "Nx", Nx, 1), fftbins
    )
    return constant(values, dtype=dtypes.DEFAULT if dtype is None else dtype)


def window_values(function: str, window: WindowName, count: int, is_periodic: bool) -> Array:
    """Return the values of a named window in float64."""
    name, *numbers = window if isinstance(window, tuple) else (window,)
    if not isinstance(name, str):
        name, numbers = "kaiser", [name]
    least, most = (0, 0) if name in _COSINES else _NUMBERS.get(name, (1, 0))
    if not least <= len(numbers) <= most:
        problem = f"there is no window {window!r}; there are {', '.join(_NAMES)}"
        if name in _NAMES:
            problem = f"the window {name!r} takes {'a' if most else 'no'} number, not {window!r}"
        raise ArgumentError(explain(function, problem, ()))
    if count == 1:
        return np.ones(1)
    length = count + is_periodic
    places = np.arange(count)
    if name in _COSINES:
        angles = 2 * np.pi * places / (length - 1)
        signs = ((-1) ** k * a for k, a in enumerate(_COSINES[name]))
        return np.asarray(sum(a * np.cos(k * angles) for k, a in enumerate(signs)))
    checked = [
        checked_number(function, f"the number of {name!r}", as_number(each)) for each in numbers
    ]
    return _OTHERS[name](places, length, *checked)


def _bartlett(places: Array, length: int) -> Array:
    return np.asarray(1 - np.abs(2 * places / (length - 1) - 1))


def _cosine(places: Array, length: int) -> Array:
    return np.asarray(np.sin(np.pi / length * (places + 0.5)))


def _tukey(places: Array, length: int, alpha: float = 0.5) -> Array:
    """Return ones between the halves of a Hann window."""
    distance = np.minimum(places, length - 1 - places)
    width = min(alpha, 1.0) * (length - 1) / 2
    slope = 0.5 - 0.5 * np.cos(np.pi * distance / max(width, 1e-300))
    return np.where(distance <= int(width), slope if width else 1.0, 1.0)


def _kaiser(places: Array, length: int, beta: float) -> Array:
    turned = 1 - (2 * places / (length - 1) - 1) ** 2
    return np.asarray(np.i0(beta * np.sqrt(np.maximum(turned, 0))) / np.i0(beta))


def _gaussian(places: Array, length: int, deviation: float) -> Array:
    return np.asarray(np.exp(-(((places - (length - 1) / 2) / deviation) ** 2) / 2))


_COSINES = {
    "boxcar": (1.0,),
    "hann": (0.5, 0.5),
    "hamming": (0.54, 0.46),
    "blackman": (0.42, 0.5, 0.08),
    "blackmanharris": (0.35875, 0.48829, 0.14128, 0.01168),
    "nuttall": (0.3635819, 0.4891775, 0.1365995, 0.0106411),
    "flattop": (0.21557895, 0.41663158, 0.277263158, 0.083578947, 0.006947368),
}
"""The coefficients of sums of cosines, whose signs alternate."""

_OTHERS: dict[str, Callable[..., Array]] = {
    "bartlett": _bartlett,
    "cosine": _cosine,
    "tukey": _tukey,
    "kaiser": _kaiser,
    "gaussian": _gaussian,
}
_NUMBERS = {
    "bartlett": (0, 0),
    "cosine": (0, 0),
    "tukey": (0, 1),
    "kaiser": (1, 1),
    "gaussian": (1, 1),
}
"""How many numbers they take, at least and at most."""

_NAMES = (*_COSINES, *_OTHERS)
