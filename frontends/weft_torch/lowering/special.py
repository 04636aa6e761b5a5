"""Orthogonal polynomials, whose order is a tensor in ATen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import weft
from weft_torch.rules import Node, Tensor, lowers, typed

Start = Callable[[Tensor], Tensor]
Step = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def _chebyshev(first: Start) -> tuple[Start, Step]:
    return first, lambda n, x, here, before: 2 * x * here - before


FAMILIES: dict[str, tuple[Start, Step]] = {
    "chebyshev_polynomial_t": _chebyshev(lambda x: x),
    "chebyshev_polynomial_u": _chebyshev(lambda x: 2 * x),
    "chebyshev_polynomial_v": _chebyshev(lambda x: 2 * x - 1),
    "chebyshev_polynomial_w": _chebyshev(lambda x: 2 * x + 1),
    "hermite_polynomial_h": (
        lambda x: 2 * x,
        lambda n, x, here, before: 2 * x * here - 2 * n * before,
    ),
    "hermite_polynomial_he": (lambda x: x, lambda n, x, here, before: x * here - n * before),
    "laguerre_polynomial_l": (
        lambda x: 1 - x,
        lambda n, x, here, before: ((2 * n + 1 - x) * here - n * before) / (n + 1),
    ),
    "legendre_polynomial_p": (
        lambda x: x,
        lambda n, x, here, before: ((2 * n + 1) * x * here - n * before) / (n + 1),
    ),
}
"""For each family the polynomial of order 1, and the one of order n + 1 by the two before it.

Abramowitz and Stegun, Handbook of Mathematical Functions, table 22.7.
"""


def _polynomial(name: str, is_shifted: bool) -> Callable[..., Tensor]:
    first, step = FAMILIES[name]

    def rule(node: Node, x: Tensor, n: Tensor) -> Tensor:
        dtype = node.dtype()
        order = weft.broadcast(typed(n, "int64"), node.shape())
        x = weft.broadcast(typed(x, dtype), node.shape())
        x = 2 * x - 1 if is_shifted else x

        def further(state: Any) -> Any:
            k, before, here = state
            is_below = k < order
            after = step(typed(k, dtype), x, here, before)
            return k + 1, weft.where(is_below, here, before), weft.where(is_below, after, here)

        one, zero = weft.ones(node.shape(), dtype), weft.zeros(node.shape(), dtype)
        start = weft.constant(np.int64(1)), one, first(x)
        if not order.axes.size:
            return zero
        highest = weft.max(order)
        *_, found = weft.while_loop(lambda state: state[0] < highest, further, start)
        found = weft.where(weft.equal(order, 0), one, found)
        return weft.where(order < 0, zero, found)

    return rule


for _name in FAMILIES:
    lowers(f"special_{_name}")(_polynomial(_name, False))
    if _name.startswith("chebyshev"):
        lowers(f"special_shifted_{_name}")(_polynomial(_name, True))
