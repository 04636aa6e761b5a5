"""Comparisons, logical ops and bitwise ops; the results of the first two are bool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import weft
from weft import TensorOp
from weft_popxl import dtypes
from weft_popxl.building import apply, pair
from weft_popxl.data import as_tensor
from weft_popxl.tensor import Tensor

__all__ = [
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "equal",
    "greater",
    "greater_equal",
    "isfinite",
    "isinf",
    "isnan",
    "less",
    "less_equal",
    "logical_and",
    "logical_not",
    "logical_or",
    "not_equal",
]


def _compared(kind: str, function: Callable[..., TensorOp], lhs: Any, rhs: Any) -> Tensor:
    return apply(kind, function, *pair(kind, lhs, rhs))


def _tested(kind: str, function: Callable[..., TensorOp], t: Any) -> Tensor:
    return apply(kind, function, as_tensor(t))


def _logical(kind: str, function: Callable[..., TensorOp], *operands: Any) -> Tensor:
    return apply(kind, function, *(as_tensor(each, dtypes.bool) for each in operands))


def equal(lhs: Any, rhs: Any) -> Tensor:
    """Return whether lhs equals rhs."""
    return _compared("equal", weft.equal, lhs, rhs)


def not_equal(lhs: Any, rhs: Any) -> Tensor:
    """Return whether lhs differs from rhs."""
    return _compared("not_equal", weft.not_equal, lhs, rhs)


def greater(input: Any, other: Any) -> Tensor:
    """Return whether input > other."""
    return _compared("greater", weft.greater, input, other)


def greater_equal(lhs: Any, rhs: Any) -> Tensor:
    """Return whether lhs >= rhs."""
    return _compared("greater_equal", weft.greater_equal, lhs, rhs)


def less(lhs: Any, rhs: Any) -> Tensor:
    """Return whether lhs < rhs."""
    return _compared("less", weft.less, lhs, rhs)


def less_equal(lhs: Any, rhs: Any) -> Tensor:
    """Return whether lhs <= rhs."""
    return _compared("less_equal", weft.less_equal, lhs, rhs)


def logical_and(lhs: Any, rhs: Any) -> Tensor:
    """Return the logical AND; numbers other than 0 are true."""
    return _logical("logical_and", weft.logical_and, lhs, rhs)


def logical_or(lhs: Any, rhs: Any) -> Tensor:
    """Return the logical OR; numbers other than 0 are true."""
    return _logical("logical_or", weft.logical_or, lhs, rhs)


def logical_not(t: Any) -> Tensor:
    """Return the logical NOT, that is, whether t is 0."""
    return _logical("logical_not", weft.logical_not, t)


def isnan(t: Tensor) -> Tensor:
    """Return whether t is NaN."""
    return _tested("isnan", weft.isnan, t)


def isinf(t: Tensor) -> Tensor:
    """Return whether t is infinite."""
    return _tested("isinf", weft.isinf, t)


def isfinite(t: Tensor) -> Tensor:
    """Return whether t is finite."""
    return _tested("isfinite", weft.isfinite, t)


def bitwise_and(lhs: Any, rhs: Any) -> Tensor:
    """Return the bitwise AND of integers."""
    return _compared("bitwise_and", weft.bitwise_and, lhs, rhs)


def bitwise_or(lhs: Any, rhs: Any) -> Tensor:
    """Return the bitwise OR of integers."""
    return _compared("bitwise_or", weft.bitwise_or, lhs, rhs)


def bitwise_xor(lhs: Any, rhs: Any) -> Tensor:
    """Return the bitwise XOR of integers."""
    return _compared("bitwise_xor", weft.bitwise_xor, lhs, rhs)


def bitwise_not(t: Any) -> Tensor:
    """Return the bitwise NOT of integers."""
    return _tested("bitwise_not", weft.bitwise_not, t)
