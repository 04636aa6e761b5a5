"""Values of a model while it is lowered.

A value is an array, if it is known; a weft op, if a computation yields it; a `HostRef`, if it is
computed between computations and no device has its dtype, such as a string; a list of values, for a
sequence; a `Maps`, for a sequence of maps; or None, for an optional without a value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.ir.op import Op

Value = Any
Tensor = Any
"""A weft op; functions of the package `weft` are not typed more narrowly."""

DEVICE_DTYPES = frozenset(
    [
        "bool",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float16",
        "bfloat16",
        "float32",
        "float64",
        "complex64",
        "complex128",
    ]
)
"""The names of the dtypes that computations have."""


@dataclass(frozen=True, eq=False)
class HostRef:
    """An array of the host that a call passes from step to step.

    Attributes
    ----------
    dtype, shape
        Its type.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Maps:
    """A sequence of maps with the same keys, one for each row of a matrix.

    Attributes
    ----------
    keys
        Strings or integers, one for each column.
    rows
        The matrix of the maps' values.
    """

    keys: tuple[Any, ...]
    rows: Value

    def dicts(self) -> list[dict[Any, float]]:
        """Return the maps as dicts of Python numbers; the rows are an array."""
        return [dict(zip(self.keys, row.tolist(), strict=True)) for row in self.rows]


def is_known(value: Value) -> bool:
    """Whether a value, with all elements of a sequence, is known."""
    if isinstance(value, Maps):
        return is_known(value.rows)
    if isinstance(value, list):
        return all(map(is_known, value))
    return value is None or isinstance(value, np.ndarray)


def shape_of(value: Value) -> tuple[int, ...]:
    """Return the shape of a tensor."""
    return tuple(value.axes.shape) if isinstance(value, Op) else tuple(value.shape)


def dtype_of(value: Value) -> np.dtype[Any]:
    """Return the dtype of a tensor."""
    found: np.dtype[Any] = np.dtype(value.dtype)
    return found


def is_for_device(dtype: np.dtype[Any]) -> bool:
    """Whether computations have a dtype."""
    return dtype.name in DEVICE_DTYPES


def leaves(value: Value) -> Iterator[Any]:
    """Yield the tensors in a value."""
    if isinstance(value, Maps):
        yield from leaves(value.rows)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from leaves(each)
    elif isinstance(value, dict):
        for each in value.values():
            yield from leaves(each)
    elif value is not None:
        yield value


def mapped(value: Value, change: Callable[[Any], Any]) -> Value:
    """Return a value with its tensors replaced."""
    if isinstance(value, Maps):
        return Maps(value.keys, mapped(value.rows, change))
    if isinstance(value, list | tuple):
        return type(value)(mapped(each, change) for each in value)
    if isinstance(value, dict):
        return {key: mapped(each, change) for key, each in value.items()}
    return None if value is None else change(value)
