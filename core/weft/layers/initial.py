"""Initial values of parameters, drawn from a generator of NumPy or a key of `weft.random`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft import random
from weft.ir.dtypes import DType

Shape = tuple[int, ...]
Draw = Callable[[Any, Shape, DType], Any]
"""A function of a source of random numbers, a shape and a dtype."""


class Parameter(NamedTuple):
    """The shape of a parameter, and what draws its initial value."""

    shape: Shape
    initial: Draw


def split(source: Any, count: int) -> Sequence[Any]:
    """Return independent sources of random numbers."""
    if isinstance(source, np.random.Generator):
        return source.spawn(count)
    return random.split(source, count)  # type: ignore[no-any-return]


def uniform(bound: float) -> Draw:
    """Return what draws uniformly from ``-bound`` to ``bound``."""

    def draw(source: Any, shape: Shape, dtype: DType) -> Any:
        if isinstance(source, np.random.Generator):
            return source.uniform(-bound, bound, shape).astype(dtype)
        return random.uniform(source, shape, dtype, -bound, bound)

    return draw


def normal(source: Any, shape: Shape, dtype: DType) -> Any:
    """Draw from the normal distribution of mean 0 and variance 1."""
    if isinstance(source, np.random.Generator):
        return source.standard_normal(shape).astype(dtype)
    return random.normal(source, shape, dtype=dtype)


def zeros(source: Any, shape: Shape, dtype: DType) -> Any:
    """Return zeros."""
    return np.zeros(shape, dtype)


def ones(source: Any, shape: Shape, dtype: DType) -> Any:
    """Return ones."""
    return np.ones(shape, dtype)
