"""Derivatives by central differences, to check gradient rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.ir.dtypes import Array

STEP = float(np.cbrt(np.finfo(np.float64).eps))
"""The step that balances truncation error (step²) and cancellation error (epsilon / step)."""

ACCURACY = 1e-7
"""The relative error of a central difference with `STEP`, with a margin for higher derivatives."""


def numeric_derivative(
    f: Callable[..., Any], arrays: Sequence[Any], index: int, eps: float = STEP
) -> Array:
    """Return the derivative of a scalar function by the argument at an index, as float64.

    For each element it computes (f(x + h) - f(x - h)) / 2h, with an error of order h². The step h
    is ``eps`` times the absolute value of the element, at least `eps`.
    """
    args = [np.asarray(array) for array in arrays]
    x = args[index] = np.array(args[index], np.float64)
    result = np.empty(x.shape, np.float64)
    flat, slopes = x.reshape(-1), result.reshape(-1)
    for place, value in enumerate(flat.tolist()):
        step = eps * max(1.0, abs(value))
        flat[place] = above = value + step
        upper = float(f(*args))
        flat[place] = below = value - step
        lower = float(f(*args))
        flat[place] = value
        slopes[place] = (upper - lower) / (above - below)
    return result
