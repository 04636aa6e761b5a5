"""Gradient graphs of called graphs: what is kept, given and reported, and what never mixes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft.errors import GradientError
from weft.ops.control.calls import call_op

X, W = np.array([0.3, 0.4]), np.array([0.5, 0.6])
STEP = 1e-6
Function = Callable[[Any, Any], Any]


@pytest.fixture(params=["numpy", "opencl", "array"])
def transformer(
    request: pytest.FixtureRequest, transformer_of: Callable[[str], weft.Transformer]
) -> weft.Transformer:
    return transformer_of(request.param)


def graph_of(function: Function, name: str) -> weft.Graph:
    """Return a graph of two vectors for a function that returns its results."""
    a, c = (weft.placeholder((2,), name=each) for each in "ac")
    return weft.capture(list(function(a, c)), [a, c], name)


def pair() -> weft.Graph:
    return graph_of(lambda a, c: (weft.tanh(a * c), a + c), "pair")


def slopes(function: Function) -> list[np.ndarray]:
    """Return central differences of the sum of what a function of two vectors returns."""
    found = []
    for of in range(2):
        slope = np.zeros(2)
        for place in range(2):
            moved = np.zeros((2, 2))
            moved[of, place] = STEP
            ends = [np.sum(function(X + s * moved[0], W + s * moved[1])) for s in (1, -1)]
            slope[place] = (ends[0] - ends[1]) / (2 * STEP)
        found.append(slope)
    return found


def derived(transformer: Any, graph: weft.Graph) -> list[Any]:
    """Return the derivatives of the sum of what a call yields, by `weft.deriv`."""
    x, w = weft.placeholder((2,)), weft.placeholder((2,))
    total = sum((weft.sum(each) for each in weft.call(graph, x, w)), start=0.0)
    found: list[Any] = transformer.computation([weft.deriv(total, x), weft.deriv(total, w)], x, w)(
        X, W
    )
    return found


def yielded(transformer: Any, info: Any) -> list[Any]:
    """Return what a gradient graph yields for seeds of ones."""
    x, w = weft.placeholder((2,)), weft.placeholder((2,))
    forward = call_op(info.forward_graph, x, w)
    seeds = [weft.constant(np.ones(2, np.float32)) for _ in info.provided]
    backward = call_op(info.graph, *seeds, *info.saved_values(forward).values())
    found: list[Any] = transformer.computation([*backward.results], x, w)(X, W)
    return found


def close(found: list[Any], wanted: list[Any]) -> None:
    for value, expected in zip(found, wanted, strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-3, atol=1e-4)


def test_a_request_changes_no_later_result(transformer: Any) -> None:
    called = pair()
    both = graph_of(lambda a, c: [weft.multiply(*weft.call(called, a, c))], "both")
    first = weft.autodiff(called, called.outputs[:1])
    with pytest.raises(GradientError, match=r"(?s)takes no gradient of output 1.*test_gradient_"):
        weft.autodiff(both, called_graphs_grad_info={called: first})
    wanted = slopes(lambda a, c: np.tanh(a * c) * (a + c))
    close(derived(transformer, both), wanted)
    close(yielded(transformer, weft.autodiff(both)), wanted)
    with pytest.raises(GradientError, match="takes no gradient of output 1"):
        weft.autodiff(both, called_graphs_grad_info={called: first})


def test_a_given_gradient_graph_is_used_though_there_is_another() -> None:
    called = pair()
    top = graph_of(lambda a, c: [weft.multiply(*weft.call(called, a, c))], "top")
    mine = weft.autodiff(called, recompute=True)
    assert mine is not weft.autodiff(called)
    for known, expected in (({}, False), ({called: mine}, True), ({}, False)):
        info = weft.autodiff(top, called_graphs_grad_info=known)
        assert (mine.graph in info.graph.called) is expected


def test_a_call_in_which_some_gradients_arrive_runs_their_part() -> None:
    called = graph_of(lambda a, c: (weft.tanh(a * c), weft.sin(weft.exp(a)) * c), "called")
    top = graph_of(lambda a, c: weft.call(called, a, c)[1:], "top")
    for recompute in (False, True):
        whole = weft.autodiff(called, recompute=recompute)
        part = whole.part(called.outputs[1:])
        assert part.provided == called.outputs[1:]
        assert part.outputs == whole.outputs
        assert len(part.graph.ops) < len(whole.graph.ops)
        assert whole.part(called.outputs[1:]).graph is part.graph
        assert set(part.inputs[1:]) <= {*called.inputs, *([] if recompute else called.ops)}
        infos = weft.autodiff(top, called_graphs_grad_info={called: whole})
        assert infos.graph.called == (part.graph,)
        assert whole.part(called.outputs) is whole


@pytest.mark.parametrize("before", [False, True], ids=["anew", "differentiated before"])
def test_graphs_below_calls_loops_and_choices_are_reported(before: bool) -> None:
    leaf, then, step = (graph_of(lambda a, c: (weft.sin(a), c), name) for name in "lts")
    middle = graph_of(lambda a, c: weft.call(leaf, a, c), "middle")
    choosing = graph_of(
        lambda a, c: weft.cond(weft.sum(a) > 0, then, middle, [a, c], [a, c]), "choosing"
    )
    top = graph_of(lambda a, c: weft.loop(step, 2, *weft.call(choosing, a, c)), "top")
    if before:
        weft.autodiff(top)
    infos = weft.autodiff(top, return_all_grad_graphs=True)
    assert set(infos) == {leaf, then, step, middle, choosing, top}
    for graph, info in infos.items():
        assert info.provided == graph.outputs
    again = weft.autodiff(top, called_graphs_grad_info={then: infos[then]})
    inside = {each for called in again.graph.called for each in called.called}
    assert infos[then].graph in {each for called in inside for each in called.called}


def test_an_output_that_is_there_twice_has_two_gradients(transformer: Any) -> None:
    called = graph_of(lambda a, c: (c, a, a), "called")
    info = weft.autodiff(called)
    assert info.provided == called.outputs
    assert weft.autodiff(called, called.outputs) is info
    close(yielded(transformer, info), [[2, 2], [1, 1]])
    top = graph_of(lambda a, c: [weft.add(*weft.call(called, a * c, c)[1:])], "top")
    reused = weft.autodiff(top, called_graphs_grad_info={called: info})
    for each in (reused, weft.autodiff(top)):
        close(yielded(transformer, each), [2 * W, 2 * X])


def without_gradient(x: Any) -> Any:
    count, value = weft.placeholder((), "int32"), weft.placeholder(x.axes)
    more = weft.capture([weft.less(count, 1)], [count, value])
    body = weft.capture([count + 1, value * 2], [count, value])
    return weft.while_loop(more, body, weft.constant(0, dtype=weft.int32), x)[1]


def test_an_output_without_gradient_harms_only_those_who_use_it(transformer: Any) -> None:
    called = graph_of(lambda a, c: (weft.sin(a) * c, without_gradient(a)), "called")
    one = graph_of(lambda a, c: weft.call(called, a, c)[:1], "one")
    both = graph_of(lambda a, c: [weft.add(*weft.call(called, a, c))], "both")
    infos = weft.autodiff(one, return_all_grad_graphs=True)
    with pytest.raises(GradientError, match=r"a\w*: WhileOp"):
        weft.autodiff(both, called_graphs_grad_info={**infos, one: weft.autodiff(one)})
    by_c = weft.autodiff(both, grads_required=both.inputs[1:], return_all_grad_graphs=True)
    wanted = slopes(lambda a, c: np.sin(a) * c)
    close(yielded(transformer, by_c[both]), wanted[1:])
    other = graph_of(lambda a, c: [weft.call(called, a, c)[0] * 1], "other")
    for known in ({}, infos, by_c):
        close(yielded(transformer, weft.autodiff(other, called_graphs_grad_info=known)), wanted)


def test_what_an_earlier_round_cannot_say_is_not_left_out() -> None:
    """A last round with a gradient is not all that its invariants have."""
    step = graph_of(lambda a, c: [without_gradient(a) * c], "step")
    for rounds, refused in ((1, "a"), (3, "c")):
        top = graph_of(lambda a, c, n=rounds: weft.loop(step, n, a, c), "top")
        places = {each.source.name[0]: each for each in top.inputs}
        with pytest.raises(GradientError, match=rf"{refused}\w*: WhileOp"):
            weft.autodiff(top, grads_required=[places[refused]])
    once = graph_of(lambda a, c: weft.loop(step, 1, a, c), "once")
    assert weft.autodiff(once, grads_required=once.inputs[1:]).outputs == once.inputs[1:]


def test_the_gradient_of_a_choice_repeats_no_effect(transformer: Any, capfd: Any) -> None:
    loud = graph_of(lambda a, c: [weft.print_op(weft.sin(a) * c, "loud") + a], "loud")
    quiet = graph_of(lambda a, c: [a * c], "quiet")
    choosing = graph_of(lambda a, c: weft.cond(weft.sum(a) > 0, loud, quiet, [a, c], [a, c]), "top")
    close(yielded(transformer, weft.autodiff(choosing)), slopes(lambda a, c: np.sin(a) * c + a))
    assert capfd.readouterr().out.count("loud") == 1


# Random trees of calls, and requests before the one that counts

KINDS = 5
PART = st.tuples(st.integers(0, KINDS - 1), *[st.integers(0, 5)] * 3)
Tree = list[tuple[int, int, int, int]]


def results_of(number: int, tree: Tree, a: Any, c: Any, how: Any) -> tuple[Any, Any]:
    """Return the results of one graph of a tree, which calls those before it."""
    kind, which, i, j = tree[number]
    if not number:
        return how.tanh(a * c), a + c
    one, other = (a, c) if i % 2 else (c, a)
    called = which % number
    if kind == 0:
        return how.call(called, one, other)[j % 2], c
    if kind == 1:
        return how.call(called, one, other)[0] * how.call(j % number, a, one)[1], one
    if kind == 2:
        return how.loop(called, one, other)[j % 2] + a, other
    if kind == 3:
        return how.choice(called, j % number, one, other)[0], a * 2
    return how.call(called, one, how.tanh(other))


class Numbers:
    """What a tree means."""

    tanh = staticmethod(np.tanh)

    def __init__(self, tree: Tree) -> None:
        self.tree = tree

    def call(self, number: int, a: Any, c: Any) -> Any:
        return results_of(number, self.tree, a, c, self)

    def loop(self, number: int, a: Any, c: Any) -> Any:
        return self.call(number, *self.call(number, *self.call(number, a, c)))

    def choice(self, one: int, other: int, a: Any, c: Any) -> Any:
        return self.call(one, a, c) if a.sum() > 0.03 else self.call(other, c, a)


class Graphs:
    """A tree as graphs."""

    tanh = staticmethod(weft.tanh)

    def __init__(self, tree: Tree) -> None:
        self.made: list[weft.Graph] = []
        for number in range(len(tree)):
            self.made.append(
                graph_of(lambda a, c, n=number: results_of(n, tree, a, c, self), f"g{number}")
            )

    def call(self, number: int, a: Any, c: Any) -> Any:
        return weft.call(self.made[number], a, c)

    def loop(self, number: int, a: Any, c: Any) -> Any:
        return weft.loop(self.made[number], 3, a, c)

    def choice(self, one: int, other: int, a: Any, c: Any) -> Any:
        return weft.cond(weft.sum(a) > 0.03, self.made[one], self.made[other], [a, c], [c, a])


REQUEST = st.tuples(st.integers(0, 4), st.integers(0, 3), st.booleans(), st.booleans())


@settings(max_examples=25, deadline=None)
@given(st.lists(PART, min_size=2, max_size=5), st.lists(REQUEST, max_size=5))
def test_gradients_do_not_depend_on_earlier_requests(
    tree: Tree, requests: list[tuple[int, int, bool, bool]]
) -> None:
    """What is asked for before: some outputs or all, and with all that is known by then or not."""
    graphs = Graphs(tree).made
    known: dict[Any, Any] = {}
    for which, outputs, is_given, is_all in requests:
        graph = graphs[which % len(graphs)]
        # One that is known may take fewer gradients than arrive.
        with suppress(GradientError):
            found = weft.autodiff(
                graph,
                grads_provided=graph.outputs[:outputs] or None,
                called_graphs_grad_info=known if is_given else None,
                return_all_grad_graphs=is_all,
            )
            known.update(found if is_all else {graph: found})
    full = {each: info for each, info in known.items() if info.provided == each.outputs}
    top = graphs[-1]
    numbers = Numbers(tree)
    wanted = slopes(lambda a, c: np.add(*numbers.call(len(tree) - 1, a, c)))
    with weft.make_transformer("numpy") as transformer:
        close(derived(transformer, top), wanted)
        for given_graphs in ({}, full):
            infos = weft.autodiff(
                top, called_graphs_grad_info=given_graphs, return_all_grad_graphs=True
            )
            assert all(infos[each] is info for each, info in given_graphs.items())
            close(yielded(transformer, infos[top]), wanted)
