"""Forward mode by two reverse walks leaves the graph that a derivative by hand has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.ir.graph import called_graphs

RNG = np.random.default_rng(0)
X, T = (RNG.normal(size=(32, 16)).astype("float32") for _ in range(2))
W, U = (RNG.normal(size=(16, 16)).astype("float32") for _ in range(2))


def chain(x: Any) -> Any:
    return weft.exp(weft.sin(x * x) + weft.tanh(x)) * x


def chain_by_hand(x: Any, t: Any) -> Any:
    square, tanh = x * x, weft.tanh(x)
    factor = weft.exp(weft.sin(square) + tanh)
    slope = factor * (weft.cos(square) * (2 * x * t) + (1 - tanh * tanh) * t)
    return factor * x, slope * x + factor * t


def net(x: Any) -> Any:
    return weft.tanh(x @ W + W[0]) @ U


def net_by_hand(x: Any, t: Any) -> Any:
    hidden = weft.tanh(x @ W + W[0])
    return hidden @ U, ((1 - hidden * hidden) * (t @ W)) @ U


def norm(x: Any) -> Any:
    return weft.sqrt(weft.sum(x * x, -1))


def norm_by_hand(x: Any, t: Any) -> Any:
    value = norm(x)
    return value, weft.sum(x * t, -1) / value


def log_sum(x: Any) -> Any:
    return weft.log(weft.sum(weft.exp(x), -1))


def log_sum_by_hand(x: Any, t: Any) -> Any:
    powers = weft.exp(x)
    total = weft.sum(powers, -1)
    return weft.log(total), weft.sum(powers * t, -1) / total


def softmax_by_hand(x: Any, t: Any) -> Any:
    y = weft.softmax(x, -1)
    return y, y * (t - weft.sum(y * t, -1)[:, None])


def rows(x: Any) -> Any:
    return weft.take(x * x, np.array([3, 1, 1]), axis=0)


def rows_by_hand(x: Any, t: Any) -> Any:
    return rows(x), weft.take(2 * x * t, np.array([3, 1, 1]), axis=0)


def running(x: Any) -> Any:
    return weft.cumsum(weft.sin(x), 0)


def running_by_hand(x: Any, t: Any) -> Any:
    return running(x), weft.cumsum(weft.cos(x) * t, 0)


FAMILIES: dict[str, tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]] = {
    "elementwise": (chain, chain_by_hand),
    "products": (net, net_by_hand),
    "a norm": (norm, norm_by_hand),
    "a logarithm of a sum": (log_sum, log_sum_by_hand),
    "softmax": (lambda x: weft.softmax(x, -1), softmax_by_hand),
    "rows at indices": (rows, rows_by_hand),
    "running sums": (running, running_by_hand),
}


def run(function: Callable[..., Any]) -> tuple[Any, int, int]:
    """Return what a function gives, with the ops of its program and the steps of its plan."""
    jitted = weft.jit(function, backend="numpy")
    program = jitted.lower(X, T).program
    ops = [op for graph in called_graphs(program.graph, own=True) for op in graph.ops]
    inner = [each for op in ops for each in (op.contained or (op,))]
    count = sum(bool(each.args) and not each.is_constant for each in inner)
    return jitted(X, T), count, len(program.plan.steps)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_walks_leave_the_ops_of_a_derivative_by_hand(family: str) -> None:
    function, by_hand = FAMILIES[family]
    found, ops, steps = run(lambda x, t: weft.jvp(function, (x,), (t,)))
    wanted, fewest, least = run(by_hand)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)
    assert steps <= least
    assert ops <= fewest + 3
