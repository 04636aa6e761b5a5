"""Gradient graphs of called graphs: reported, reused and equal whatever was asked before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from popxl_programs import differences, results

import weft_popxl as popxl
from weft_popxl import ops, transforms
from weft_popxl.transforms.autodiff import ExpectedConnectionType

X, W = np.array([0.3, 0.4], np.float32), np.array([0.5, 0.6], np.float32)
VECTOR = popxl.TensorSpec((2,), popxl.float32)
CLOSE = {"rtol": 1e-3, "atol": 1e-4}
Infos = dict[popxl.Graph, Any]


def gradients(info: Any, *inputs: Any) -> tuple[popxl.Tensor, ...]:
    """Return what a gradient graph yields for seeds of ones, behind a call of its own."""
    forward = ops.call_with_info(info.forward_graph, *inputs)
    seeds = [popxl.constant(np.ones(each.shape, np.float32)) for each in provided(info)]
    return ops.call(info.graph, *seeds, inputs_dict=info.inputs_dict(forward))


def provided(info: Any) -> list[popxl.Tensor]:
    kind = ExpectedConnectionType.FwdGrad
    return [each.fwd_tensor for each in info.expected_inputs if each.connection_type is kind]


def pair(ir: popxl.Ir) -> popxl.Graph:
    return ir.create_graph(lambda a, c: (ops.tanh(a * c), a + c), VECTOR, VECTOR)


@pytest.mark.parametrize("first", ["one output", "both outputs", "nothing"])
def test_a_reused_gradient_graph_takes_all_gradients_that_arrive(first: str, backend: str) -> None:
    seen: list[Any] = []

    def build(ir: popxl.Ir) -> Any:
        called = pair(ir)
        one = ir.create_graph(lambda a, c: ops.call(called, a, c)[0], VECTOR, VECTOR)
        both = ir.create_graph(lambda a, c: ops.mul(*ops.call(called, a, c)), VECTOR, VECTOR)
        known: Infos = {}
        if first != "nothing":
            start = one if first == "one output" else both
            known = transforms.autodiff(start, return_all_grad_graphs=True)
            assert provided(known[called]) == list(called._outputs)
            known.pop(start)
        count = len(ir.graphs)
        infos = transforms.autodiff(
            both, called_graphs_grad_info=known, return_all_grad_graphs=True
        )
        seen.append(len(ir.graphs) - count)
        assert infos[both].graph.called_graphs == (infos[called].graph,)
        assert not known or infos[called] is known[called]
        x, w = popxl.variable(X), popxl.variable(W)
        return [*gradients(transforms.autodiff(one), x, w), *gradients(infos[both], x, w)]

    found = results(backend, build)
    assert seen == [2 if first == "nothing" else 1]
    slopes = differences(lambda a, c: np.tanh(a * c).sum(), [X, W])
    slopes += differences(lambda a, c: (np.tanh(a * c) * (a + c)).sum(), [X, W])
    for value, slope in zip(found, slopes, strict=True):
        np.testing.assert_allclose(value, slope, **CLOSE)


def test_calls_that_use_different_outputs_share_one_gradient_graph(backend: str) -> None:
    def build(ir: popxl.Ir) -> Any:
        called = ir.create_graph(lambda a: (ops.sin(a), ops.exp(a)), VECTOR)
        top = ir.create_graph(lambda a: ops.call(called, a)[0] * ops.call(called, a)[1], VECTOR)
        infos = transforms.autodiff(top, return_all_grad_graphs=True)
        assert list(infos) == [called, top]
        assert infos[top].graph.called_graphs == (infos[called].graph,)
        return gradients(infos[top], popxl.variable(X))

    (found,) = results(backend, build)
    np.testing.assert_allclose(found, np.exp(X) * (np.sin(X) + np.cos(X)), **CLOSE)


@pytest.mark.parametrize("before", [False, True], ids=["anew", "differentiated before"])
def test_all_graphs_below_are_reported(before: bool) -> None:
    ir = popxl.Ir()
    with ir.main_graph:
        leaf = ir.create_graph(lambda a: ops.sin(a), VECTOR)
        graphs = [leaf]
        for _ in range(3):
            below = graphs[-1]
            graphs.append(ir.create_graph(lambda a, g=below: ops.call(g, a)[0] * 1.5, VECTOR))
        then, step = (ir.create_graph(lambda a: ops.exp(a) * 0.1, VECTOR) for _ in range(2))
        top = ir.create_graph(
            lambda a: ops.repeat(
                step, 2, ops.conditional(ops.sum(a) > 0.0, then, graphs[-1], [a], [a])[0]
            )[0],
            VECTOR,
        )
        if before:
            transforms.autodiff(top)
        infos = transforms.autodiff(top, return_all_grad_graphs=True)
        assert set(infos) == {*graphs, then, step, top}
        direct = {infos[each].graph for each in (graphs[-1], then, step)}
        assert set(infos[top].graph.called_graphs) == direct
        count = len(ir.graphs)
        known = {each: infos[each] for each in (leaf, then)}
        again = transforms.autodiff(top, called_graphs_grad_info=known, return_all_grad_graphs=True)
        assert {each: again[each] for each in known} == known
        assert len(ir.graphs) == count + len(infos) - 2
        assert infos[then].graph in again[top].graph.called_graphs
        assert transforms.autodiff(top, called_graphs_grad_info=infos) is infos[top]
        assert len(ir.graphs) == count + len(infos) - 2


WAYS: dict[str, Callable[..., Any]] = {
    "call": lambda g, a, c: ops.call(g, a, c),
    "repeat": lambda g, a, c: ops.repeat(g, 2, a, c),
    "conditional": lambda g, a, c: ops.conditional(ops.sum(a) > 0.0, g, g, [a, c], [a, c]),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("lacking", ["grads_provided", "grads_required"])
def test_what_a_given_gradient_graph_leaves_out_is_named(way: str, lacking: str) -> None:
    ir = popxl.Ir()
    with ir.main_graph:
        called = pair(ir)
        top = ir.create_graph(lambda a, c: ops.mul(*WAYS[way](called, a, c)), VECTOR, VECTOR)
        part = called.outputs[:1] if lacking == "grads_provided" else called.inputs[1:]
        known = {called: transforms.autodiff(called, **{lacking: part})}
        for request in (None, known, None, known):
            if request is None:
                transforms.autodiff(top)
                continue
            with pytest.raises(popxl.popart_exception, match="Unable to provide") as error:
                transforms.autodiff(top, called_graphs_grad_info=request)
            words = str(error.value)
            assert f"call of {called.id}," in words
            assert ("of output 1" if lacking == "grads_provided" else "of the input a") in words
            assert "test_popxl_gradient_reuse.py" in words


@pytest.mark.parametrize("way", WAYS)
def test_an_input_that_nothing_depends_on_is_an_error_in_every_way(way: str, backend: str) -> None:
    def build(ir: popxl.Ir) -> Any:
        called = ir.create_graph(lambda a, c: ops.sin(a), VECTOR, VECTOR)
        top = ir.create_graph(lambda a, c: WAYS[way](called, a, c)[0], VECTOR, VECTOR)
        with pytest.raises(popxl.popart_exception, match="/c: no output whose gradient"):
            transforms.autodiff(top)
        left = transforms.autodiff(called, on_missing="skip")
        assert left.outputs == called.inputs[:1]
        more = ir.create_graph(lambda a, c: WAYS[way](called, a, c)[0] * c, VECTOR, VECTOR)
        info = transforms.autodiff(more, called_graphs_grad_info={called: left})
        return gradients(info, popxl.variable(X), popxl.variable(W))

    inner = np.sin(np.sin(X)) if way == "repeat" else np.sin(X)
    slope = np.cos(np.sin(X)) * np.cos(X) if way == "repeat" else np.cos(X)
    for value, wanted in zip(results(backend, build), [slope * W, inner], strict=True):
        np.testing.assert_allclose(value, wanted, **CLOSE)


def test_an_output_listed_twice_takes_two_gradients(backend: str) -> None:
    def build(ir: popxl.Ir) -> Any:
        thrice = ir.create_graph(lambda a, b: (b, ops.sin(a), a, a), VECTOR, VECTOR)
        info = transforms.autodiff(thrice)
        assert provided(info) == list(thrice._outputs)
        assert transforms.autodiff(thrice, thrice.outputs).inputs == info.inputs
        calling = ir.create_graph(
            lambda a, b: ops.add(*(y * y for y in ops.call(thrice, a, b)[2:])), VECTOR, VECTOR
        )
        infos = transforms.autodiff(calling, on_missing="zeros", return_all_grad_graphs=True)
        assert provided(infos[thrice]) == list(thrice._outputs)
        x, w = popxl.variable(X), popxl.variable(W)
        forward = ops.call_with_info(thrice, x, w)
        seeds = [popxl.constant(np.full(2, seed, np.float32)) for seed in (1, 10, 100, 1000)]
        own = ops.call(info.graph, *seeds, inputs_dict=info.inputs_dict(forward))
        return [*own, *gradients(infos[calling], x, w)]

    expected = [10 * np.cos(X) + 1100, np.ones(2), 4 * X, np.zeros(2)]
    for value, wanted in zip(results(backend, build), expected, strict=True):
        np.testing.assert_allclose(value, wanted, **CLOSE)


INTEGER_WAYS: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "quotient": (lambda g, a, c: a / c, [[3, -6, 2, 0], [-10, -27, 0, 0]]),
    "quotient times": (lambda g, a, c: (a / c) * a, [[39, 102, 0, 0], [-73, 243, 0, 0]]),
    "conditional": (
        lambda g, a, c: ops.conditional(ops.sum(a) > 99, g, g, [a, c], [c, a])[0] * 1,
        [[12, -24, 2, 0], [48, 96, 2, 0]],
    ),
}


@pytest.mark.parametrize("way", INTEGER_WAYS)
def test_integers_that_are_divided_or_chosen(way: str, backend: str) -> None:
    function, expected = INTEGER_WAYS[way]

    def build(ir: popxl.Ir) -> Any:
        a, c = popxl.variable(np.array([7, -9, 0, 0])), popxl.variable(np.array([2, 2, 1, -1]))
        inner = ir.create_graph(lambda a, c: a * c + a, a, c)
        graph = ir.create_graph(lambda a, c: function(inner, a, c), a, c)
        info = transforms.autodiff(graph)
        forward = ops.call_with_info(graph, a, c)
        seed = popxl.constant(np.array([6, -12, 2, 0]))
        return ops.call(info.graph, seed, inputs_dict=info.inputs_dict(forward))

    for value, wanted in zip(results(backend, build), expected, strict=True):
        assert value.dtype == np.int32
        np.testing.assert_array_equal(value, wanted)


# Random trees of calls

Step = tuple[int, int, int, int]
Tree = list[list[Step]]
KINDS = 7
STEP = st.tuples(st.integers(0, KINDS - 1), *[st.integers(0, 5)] * 3)
TREE = st.lists(st.lists(STEP, min_size=1, max_size=3), min_size=2, max_size=5)


def values_of(number: int, tree: Tree, a: Any, c: Any, how: Any) -> tuple[Any, Any]:
    """Return the two results of a graph of a tree; its steps call those before it."""
    values = [a, c]
    for kind, which, i, j in tree[number]:
        one, other = values[i % len(values)], values[j % len(values)]
        if kind == 0 or not number:
            values.append(how.sin(one) * other + one)
            continue
        called = which % number
        if kind < 4:
            made = how.call(called, one, other)
            values += {1: made[:1], 2: made[1:], 3: made}[kind]
        elif kind == 4:
            values += how.repeat(called, one, other)[which % 2 :]
        elif kind == 5:
            values += how.choice(called, j % number, one, other)[:1]
        else:
            values.append(how.tanh(one) - other)
    return values[-1], values[-2]


class Numbers:
    """What the steps of a tree mean."""

    sin, tanh = staticmethod(np.sin), staticmethod(np.tanh)

    def __init__(self, tree: Tree) -> None:
        self.tree = tree

    def call(self, number: int, a: Any, c: Any) -> tuple[Any, Any]:
        return values_of(number, self.tree, a, c, self)

    def repeat(self, number: int, a: Any, c: Any) -> tuple[Any, Any]:
        return self.call(number, *self.call(number, a, c))

    def choice(self, one: int, other: int, a: Any, c: Any) -> tuple[Any, Any]:
        return self.call(one, a, c) if a.sum() > 0.05 else self.call(other, c, a)


class Graphs:
    """The steps of a tree as ops of an Ir."""

    sin, tanh = staticmethod(ops.sin), staticmethod(ops.tanh)

    def __init__(self, tree: Tree) -> None:
        self.made: list[popxl.Graph] = []
        for number in range(len(tree)):
            self.made.append(
                popxl.gir().create_graph(
                    lambda a, c, n=number: values_of(n, tree, a, c, self), VECTOR, VECTOR
                )
            )

    def call(self, number: int, *args: Any) -> Any:
        return ops.call(self.made[number], *args)

    def repeat(self, number: int, *args: Any) -> Any:
        return ops.repeat(self.made[number], 2, *args)

    def choice(self, one: int, other: int, a: Any, c: Any) -> Any:
        chosen = self.made[one], self.made[other]
        return ops.conditional(ops.sum(a) > 0.05, *chosen, [a, c], [c, a])


@settings(max_examples=25, deadline=None)
@given(TREE, st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=5))
def test_gradients_do_not_depend_on_what_was_differentiated_before(
    tree: Tree, before: list[tuple[int, bool]]
) -> None:
    """Some graphs of a tree are differentiated first, with and without what is known by then."""

    def build(ir: popxl.Ir, reuse: bool) -> Any:
        graphs = Graphs(tree).made
        known: Infos = {}
        for which, is_given in before if reuse else ():
            known |= transforms.autodiff(
                graphs[which % len(graphs)],
                called_graphs_grad_info=known if is_given else None,
                return_all_grad_graphs=True,
                on_missing="zeros",
            )
        known.pop(graphs[-1], None)
        infos = transforms.autodiff(
            graphs[-1],
            called_graphs_grad_info=known,
            return_all_grad_graphs=True,
            on_missing="zeros",
        )
        assert all(infos[each] is info for each, info in known.items())
        return gradients(infos[graphs[-1]], popxl.variable(X), popxl.variable(W))

    fresh, reused = (results("numpy", lambda ir, r=reuse: build(ir, r)) for reuse in (False, True))
    numbers = Numbers(tree)
    slopes = differences(lambda a, c: np.add(*numbers.call(len(tree) - 1, a, c)).sum(), [X, W])
    for one, other, slope in zip(fresh, reused, slopes, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(other, slope, **CLOSE)
