"""Derivatives by central differences, the check on every gradient that a rule claims."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

STEP = float(np.cbrt(np.finfo(np.float64).eps))
"""The step that balances truncation (its square) against cancellation (epsilon over it)."""

ACCURACY = 1e-7
"""The relative error of a central difference with `STEP`, with a margin for higher derivatives."""


def numeric_derivative(
    f: Callable[..., Any], arrays: Sequence[Any], index: int, eps: float = STEP
) -> Array:
    """Return the derivative of a scalar function by the argument at an index, as float64.

    Each element is moved by ``eps`` times its size (at least by `eps`) up and down:
    (f(x + h) - f(x - h)) / 2h, whose error is of the order of h².
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
