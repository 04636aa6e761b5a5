"""Sample values of operands, from domains without poles, kinks and ties."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.ir import dtypes
from weft.ir.dtypes import Array, DType

Generator = np.random.Generator

CLASSES = 5
"""The number of classes of the domain ``index``."""

SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 2.5)
"""The floats that test elementwise ops for IEEE 754 semantics."""

_SPECIAL_INTEGERS = (0, 1, 2, 3, 7, -1, -2, -3)


def _special_integers(dtype: DType) -> Array:
    """Return small integers, the width in bits, and limits that floats cannot represent exactly."""
    limits = np.iinfo(dtype)
    low, high = limits.min, limits.max
    values = {*_SPECIAL_INTEGERS, limits.bits, low, low + 1, high - 1, high}
    return np.array(sorted(x for x in values if x >= low), dtype)


def _spread(shape: tuple[int, ...], random: Generator, index: int) -> Any:
    """Return values 4 / size apart, and a quarter of that apart from values of other operands.

    The absolute values are at least 1 / (2 size).
    """
    size = int(np.prod(shape))
    shift = 1 / 8 + index / 4 - size / 2
    values = random.permutation(size) + 0.5 + shift
    return values.reshape(shape) * (4.0 / max(size, 1))


def _signed(shape: tuple[int, ...], random: Generator, index: int) -> Any:
    return random.uniform(0.5, 2, shape) * random.choice([-1.0, 1.0], shape)


def _shares(shape: tuple[int, ...], random: Generator, index: int) -> Array:
    parts = random.uniform(0.2, 1, shape)
    return parts / parts.sum(axis=-1, keepdims=True) if shape else np.ones(())


FLOATS: dict[str, Callable[[tuple[int, ...], Generator, int], Array]] = {
    "any": lambda shape, random, index: random.uniform(-2, 2, shape),
    "positive": lambda shape, random, index: random.uniform(0.5, 2, shape),
    "nonzero": _signed,
    "inside": lambda shape, random, index: random.uniform(-0.8, 0.8, shape),
    "beyond": lambda shape, random, index: random.uniform(1.2, 3, shape),
    "unit": lambda shape, random, index: random.uniform(0.1, 0.9, shape),
    "distinct": _spread,
    "shares": _shares,
}
"""By domain, the function that draws floats for a shape, a generator and an operand's number."""

_INTEGER_BOUNDS = {
    "positive": (1, 4),
    "inside": (0, 0),
    "beyond": (2, 4),
    "unit": (0, 1),
    "shares": (0, 3),
    "index": (-1, CLASSES),
    "place": (-3, 2),
}


def sample(
    domain: str, shape: tuple[int, ...], dtype: DType, random: Generator, index: int = 0
) -> Array:
    """Return values of a domain.

    The domains are those of `FLOATS`; ``index``, integers from -1 up; and ``place``, indices of an
    axis of length 3 or more. Integers are small, so that short sums and products do not overflow.
    `index` is the number of the operand, by which ``distinct`` separates operands.
    """
    if dtypes.is_bool(dtype):
        return random.integers(0, 2, shape).astype(dtype)
    if dtypes.is_integer(dtype) or domain == "index":
        low, high = _INTEGER_BOUNDS.get(domain, (-4, 4))
        values = random.integers(low, high, shape, endpoint=True)
        if domain == "nonzero":
            values = np.where(values == 0, 3, values)
        if dtype.kind == "u":
            values = values % 3 if domain == "place" else np.abs(values)
        return values.astype(dtype)
    return FLOATS[domain](shape, random, index).astype(dtype)


def special(count: int, dtype: DType) -> list[Array]:
    """Return operands with each combination of the special values of a dtype."""
    if dtypes.is_bool(dtype):
        values = np.array([False, True])
    elif dtypes.is_integer(dtype):
        values = _special_integers(dtype)
    else:
        values = np.array(SPECIAL)
    meetings = np.meshgrid(*([values] * count), indexing="ij")
    return [np.array(one).reshape(-1).astype(dtype) for one in meetings]
