"""A case of an op: its operands, and attributes that are varied; see onnx_choice_table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Operands = Callable[[int], Sequence[Any]]


@dataclass(frozen=True)
class Case:
    """Operands and attributes of an op.

    Attributes
    ----------
    operands
        Arrays in order, for an opset; None for one that is left out.
    fixed
        Attributes that every node has.
    varied
        Values to try of attributes without a closed set, or of those whose values are lists; None
        leaves the attribute out.
    since, until
        The opsets for which the operands fit.
    outputs
        The number of results.
    tolerance
        What results may differ by, relative and absolute.
    """

    operands: Operands
    fixed: Mapping[str, Any] = field(default_factory=dict)
    varied: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    since: int = 6
    until: int = 99
    outputs: int = 1
    tolerance: float = 2e-5


def numbers(*shape: int, dtype: str = "float32", seed: int = 0) -> Any:
    """Return random numbers about zero."""
    found = np.random.default_rng([seed, *shape]).standard_normal(shape) * 2
    return found.astype(dtype)


def positive(*shape: int, seed: int = 0) -> Any:
    """Return random numbers between a half and two."""
    return np.random.default_rng([seed, *shape]).uniform(0.5, 2, shape).astype("float32")


def below(limit: int, *shape: int, dtype: str = "int64", seed: int = 0) -> Any:
    """Return random integers from 0 to below a limit."""
    return np.random.default_rng([seed, *shape]).integers(0, limit, shape).astype(dtype)


def whole(*values: int) -> Any:
    """Return a vector of int64."""
    return np.array(values, np.int64)


def always(*operands: Any) -> Operands:
    """Return operands that are the same in each opset."""
    return lambda opset: operands


X3 = numbers(2, 3, 4)
IMAGE = numbers(2, 4, 6, 5)
SPECIAL = np.array(
    [0.0, -0.0, 1.4, -2.5, 3.5, 100.0, -300.0, 500.0, -1e6, 1e6, np.inf, -np.inf, np.nan, 2.0**-9],
    np.float32,
)
"""Numbers that conversions to few bits treat apart."""
