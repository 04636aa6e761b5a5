"""Whatever a gradient computes again, an effect in it happens once: where the user put it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.ir.effects import without_effects
from weft.ops.control.calls import call_op
from weft.ops.control.effects import EffectOp

X = np.array([0.3, 0.4], np.float32)
seen: list[np.ndarray] = []


class SeenOp(EffectOp):
    """Its operand, of which the values are collected."""

    def perform(self, value: Any) -> None:
        """Collect the value."""
        seen.append(np.array(value))


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    seen.clear()


@pytest.fixture(params=["numpy", "array"])
def transformer(
    request: pytest.FixtureRequest, transformer_of: Callable[[str], weft.Transformer]
) -> weft.Transformer:
    return transformer_of(request.param)


def graph_of(function: Callable[[Any], Any], name: str) -> weft.Graph:
    x = weft.placeholder((2,), name="x")
    return weft.capture([function(x)], [x], name)


def loud(x: Any) -> Any:
    """Return a value whose gradient reads what cheap ops and an effect yield."""
    return weft.square(SeenOp(x * 2))


def expensive(x: Any) -> Any:
    return weft.sin(SeenOp(weft.exp(x)))


def called(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: weft.call(graph_of(function, "called"), x)[0]


def chosen(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def choice(x: Any) -> Any:
        graphs = graph_of(function, "then"), graph_of(weft.cos, "else")
        return weft.cond(weft.sum(x) > 0, *graphs, [x], [x])[0]

    return choice


def looped(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: weft.loop(graph_of(function, "round"), 3, x)[0]


def marked(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: weft.checkpoint(weft.sin(function(x)), [x])


PROGRAMS = {
    "cheap": (loud, 1),
    "expensive": (expensive, 1),
    "a call": (called(loud), 1),
    "a call of a call": (called(called(expensive)), 1),
    "a choice": (chosen(loud), 1),
    "a choice of a call": (chosen(called(expensive)), 1),
    "a call of a choice": (called(chosen(expensive)), 1),
    "a loop": (looped(expensive), 3),
    "a loop of a call": (looped(called(loud)), 3),
    "a checkpoint": (marked(loud), 1),
    "a checkpoint of a call": (marked(called(expensive)), 1),
    "a checkpoint of a loop of a choice": (marked(looped(chosen(expensive))), 3),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_deriv_repeats_no_effect(name: str, transformer: Any) -> None:
    function, count = PROGRAMS[name]
    x = weft.placeholder((2,), name="x")
    y = function(x)
    value, slope = transformer.computation([y, weft.deriv(weft.sum(y), x)], x)(X)
    assert len(seen) == count
    assert_same_without_effects(name, value, slope)


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("name", [name for name in PROGRAMS if "checkpoint" not in name])
def test_a_gradient_graph_repeats_no_effect(name: str, recompute: bool, transformer: Any) -> None:
    function, count = PROGRAMS[name]
    x = weft.placeholder((2,), name="x")
    graph = graph_of(function, "forward")
    info = weft.autodiff(graph, recompute=recompute)
    forward = call_op(graph, x)
    values = info.saved_values(forward).values()
    back = call_op(info.graph, np.ones(2, np.float32), *values)
    value, slope = transformer.computation([*forward.results, *back.results], x)(X)
    assert len(seen) == count
    assert_same_without_effects(name, value, slope)


def assert_same_without_effects(name: str, value: Any, slope: Any) -> None:
    """Compare with the program whose effects are taken out."""
    x = weft.placeholder((2,), name="x")
    y = weft.call(without_effects(graph_of(PROGRAMS[name][0], "quiet")), x)[0]
    seen.clear()
    with weft.make_transformer("numpy") as made:
        wanted = made.computation([y, weft.deriv(weft.sum(y), x)], x)(X)
    assert not seen
    np.testing.assert_allclose(value, wanted[0], rtol=1e-6)
    np.testing.assert_allclose(slope, wanted[1], rtol=1e-5)


def test_an_effect_of_an_adjoint_rule_stays() -> None:
    class LoudGradientOp(weft.ops.IdentityOp):
        def generate_adjoints(self, delta: Any, x: Any) -> tuple[Any, ...]:
            return (SeenOp(delta),)

    graph = graph_of(lambda x: weft.sin(LoudGradientOp(loud(x))), "forward")
    x = weft.placeholder((2,), name="x")
    info = weft.autodiff(graph, recompute=True)
    back = call_op(info.graph, np.ones(2, np.float32), x)
    with weft.make_transformer("numpy") as made:
        made.computation(back.results, x)(X)
    assert len(seen) == 1
    np.testing.assert_allclose(seen[0], np.cos(4 * X**2), rtol=1e-6)


def test_a_graph_without_effects_is_itself_and_one_with_them_is_changed_once() -> None:
    quiet, noisy = graph_of(weft.sin, "quiet"), graph_of(called(loud), "noisy")
    assert without_effects(quiet) is quiet
    assert without_effects(noisy) is without_effects(noisy)
    assert not any(op.has_effect for op in without_effects(noisy).ops)


def test_many_nested_graphs_are_no_deep_recursion() -> None:
    graph = graph_of(loud, "innermost")
    for _ in range(1000):
        x = weft.placeholder((2,), name="x")
        graph = weft.capture([weft.call(graph, x)[0]], [x], "outer")
    assert not without_effects(graph).ops[-2].has_effect
