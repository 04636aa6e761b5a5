"""Gradients of loops over graphs: graphs of constant size, the same as of the loops unrolled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import ArgumentError
from weft.ir.graph import called_graphs
from weft.ops.control.calls import loop_op

Maker = Callable[[str], weft.Transformer]

X, W = np.array([0.3, -0.7]), np.array([0.9, 1.1])


def body() -> weft.Graph:
    """Return a step that carries two values, of which one changes places, and a counter."""
    x, y, w = (weft.placeholder((2,), "float64", name=name) for name in "xyw")
    n = weft.placeholder((), "int32", name="n")
    after = weft.sin(x * w) + 0.1 * y * weft.cast(n, "float64")
    return weft.capture([after, x, n + 1], [x, y, n, w], "step")


def looped(x: Any, w: Any, count: int, recompute: bool = False) -> Any:
    first = weft.constant(0, dtype="int32")
    one, other, _ = weft.loop(body(), count, x, x * 2, first, w, recompute=recompute)
    return weft.sum(one * other)


def unrolled(x: Any, w: Any, count: int) -> Any:
    one, other = x, x * 2
    for n in range(count):
        one, other = weft.sin(one * w) + 0.1 * other * n, one
    return weft.sum(one * other)


def gradients(function: Callable[..., Any], transformer: Any, *args: Any) -> Any:
    x, w = (weft.placeholder((2,), "float64", name=name) for name in "xw")
    value = function(x, w, *args)
    slopes = [weft.deriv(value, each) for each in (x, w)]
    second = weft.deriv(weft.sum(slopes[0] * slopes[1]), w)
    return transformer.computation([value, *slopes, second], x, w)


@pytest.mark.parametrize("backend", ["numpy", "native", "opencl"])
@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("count", [1, 2, 7])
def test_they_are_those_of_the_loop_unrolled(
    backend: str, recompute: bool, count: int, transformer_of: Maker
) -> None:
    transformer = transformer_of(backend)
    found = gradients(looped, transformer, count, recompute)(X, W)
    wanted = gradients(unrolled, transformer, count)(X, W)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("recompute", [False, True])
def test_the_graph_does_not_grow_with_the_iterations(
    recompute: bool, transformer_of: Maker
) -> None:
    def size(count: int) -> int:
        computation = gradients(looped, transformer_of("numpy"), count, recompute)
        return sum(len(each.ops) for each in called_graphs(computation.graph, own=True))

    assert size(1000) == size(10)


@pytest.mark.parametrize("backend", ["numpy", "native", "opencl"])
def test_a_value_of_an_iteration_has_a_gradient(backend: str, transformer_of: Maker) -> None:
    step = body()
    inner = next(op for op in step.ops if isinstance(op, weft.ops.SinOp))
    x, w = (weft.placeholder((2,), "float64", name=name) for name in "xw")
    made = loop_op(step, 5, x, x * 2, weft.constant(0, dtype="int32"), w)
    value = weft.sum(weft.saved(made, inner, 1) * weft.saved(made, inner, 3)) + made.results[0][0]

    one, other, kept = x, x * 2, []
    for n in range(5):
        kept.append(weft.sin(one * w))
        one, other = kept[-1] + 0.1 * other * n, one
    by_hand = weft.sum(kept[1] * kept[3]) + one[0]
    results = [f(y) for y in (value, by_hand) for f in (lambda y: y, lambda y: weft.deriv(y, x))]
    found = transformer_of(backend).computation(results, x, w)(X, W)
    for mine, wanted in zip(found[:2], found[2:], strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=1e-10)


def test_a_loop_that_writes_a_state_has_gradients(transformer_of: Maker) -> None:
    x = weft.placeholder((2,), "float64", name="x")
    total = weft.variable((2,), "float64", initial_value=np.zeros(2), name="total")
    with weft.saved_user_deps():
        a = weft.placeholder((2,), "float64")
        write = weft.assign(total, total + a * a)
        step = weft.capture([weft.sin(a) * 2, write], [a], "step")
    (last,) = weft.loop(step, 4, x)
    value = weft.sum(last)
    computation = transformer_of("numpy").computation([value, weft.deriv(value, x), total], x)
    y, slope, squares = X, np.ones(2), np.zeros(2)
    for _ in range(4):
        squares, slope, y = squares + y * y, slope * 2 * np.cos(y), 2 * np.sin(y)
    for mine, wanted in zip(computation(X), (y.sum(), slope, squares), strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=1e-12)


@pytest.mark.parametrize(("turn", "words"), [(5, "5 iterations, not 6"), (-1, "at least 0")])
def test_iterations_that_are_none_are_refused(turn: int, words: str) -> None:
    step = body()
    x = weft.placeholder((2,), "float64")
    made = loop_op(step, 5, x, x, weft.constant(0, dtype="int32"), x)
    with pytest.raises(ArgumentError, match=words):
        weft.saved(made, step.outputs[0], turn)
