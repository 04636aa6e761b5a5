"""Comparisons, logical ops and bitwise ops; the results of the first two are bool."""

from __future__ import annotations

from typing import Any

import weft
from weft_popxl import dtypes
from weft_popxl.building import apply, pair
from weft_popxl.data import as_tensor
from weft_popxl.ops.families import Function, binary, unary
from weft_popxl.program import Tensor

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


equal = binary("equal", weft.equal, "Return whether lhs equals rhs.")
not_equal = binary("not_equal", weft.not_equal, "Return whether lhs differs from rhs.")
greater_equal = binary("greater_equal", weft.greater_equal, "Return whether lhs >= rhs.")
less = binary("less", weft.less, "Return whether lhs < rhs.")
less_equal = binary("less_equal", weft.less_equal, "Return whether lhs <= rhs.")
isnan = unary("isnan", weft.isnan, "Return whether t is NaN.")
isinf = unary("isinf", weft.isinf, "Return whether t is infinite.")
isfinite = unary("isfinite", weft.isfinite, "Return whether t is finite.")
bitwise_and = binary("bitwise_and", weft.bitwise_and, "Return the bitwise AND of integers.")
bitwise_or = binary("bitwise_or", weft.bitwise_or, "Return the bitwise OR of integers.")
bitwise_xor = binary("bitwise_xor", weft.bitwise_xor, "Return the bitwise XOR of integers.")


def _logical(kind: str, function: Function, *operands: Any) -> Tensor:
    """Apply a function to tensors of bools."""
    return apply(kind, function, *(as_tensor(each, dtypes.bool) for each in operands))


def logical_and(lhs: Any, rhs: Any) -> Tensor:
    """Return the logical AND; numbers other than 0 are true."""
    return _logical("logical_and", weft.logical_and, lhs, rhs)


def logical_or(lhs: Any, rhs: Any) -> Tensor:
    """Return the logical OR; numbers other than 0 are true."""
    return _logical("logical_or", weft.logical_or, lhs, rhs)


def logical_not(t: Any) -> Tensor:
    """Return the logical NOT, that is, whether t is 0."""
    return _logical("logical_not", weft.logical_not, t)


def greater(input: Any, other: Any) -> Tensor:
    """Return whether input > other."""
    return apply("greater", weft.greater, *pair("greater", input, other))


def bitwise_not(t: Any) -> Tensor:
    """Return the bitwise NOT of integers."""
    return apply("bitwise_not", weft.bitwise_not, as_tensor(t))
