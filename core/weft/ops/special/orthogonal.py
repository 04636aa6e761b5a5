"""Orthogonal polynomials by their recurrences (Abramowitz and Stegun, table 22.7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, SupportsIndex

from weft.ir.tensor import TensorLike, TensorOp
from weft.ops.arguments import checked_integer
from weft.ops.pointwise.elementwise import FloatOp, align, cast
from weft.ops.pointwise.special import wide
from weft.ops.shape.creation import ones_like


class Family(NamedTuple):
    """Polynomials with P_0 = 1, P_1 = a x + b and P_n+1 = (A x + B) P_n - C P_n-1.

    Attributes
    ----------
    first
        The numbers a and b.
    step
        A function from n to A, B and C.
    """

    first: tuple[float, float]
    step: Callable[[int], tuple[float, float, float]]


def _chebyshev(slope: float, shift: float) -> Family:
    return Family((slope, shift), lambda n: (2, 0, 1))


FAMILIES = {
    "chebyt": _chebyshev(1, 0),
    "chebyu": _chebyshev(2, 0),
    "chebyv": _chebyshev(2, -1),
    "chebyw": _chebyshev(2, 1),
    "hermite": Family((2, 0), lambda n: (2, 0, 2 * n)),
    "hermitenorm": Family((1, 0), lambda n: (1, 0, n)),
    "laguerre": Family((-1, 1), lambda n: (-1 / (n + 1), (2 * n + 1) / (n + 1), n / (n + 1))),
    "legendre": Family((1, 0), lambda n: ((2 * n + 1) / (n + 1), 0, n / (n + 1))),
}


def evaluated(family: str, n: SupportsIndex, x: TensorLike) -> TensorOp:
    """Return the polynomial of degree n at x; in float32 for 16-bit floats."""
    degree = checked_integer(f"eval_{family}", "the degree n", n, low=0)
    (given,) = align(FloatOp, x)
    x = wide(given)
    (slope, shift), step = FAMILIES[family]
    before: Any = ones_like(x)
    value = x * slope + shift if degree else before
    for k in range(1, degree):
        along, beside, back = step(k)
        before, value = value, value * (x * along + beside) - before * back
    return cast(value, given.dtype)
