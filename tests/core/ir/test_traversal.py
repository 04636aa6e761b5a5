"""Walks over ops and the order of a graph, on random graphs and on deep ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from weft.errors import GraphError
from weft.ir.graph import Graph
from weft.ir.results import ResultOp
from weft.ir.storage import ParameterOp
from weft.ir.traversal import postorder
from weft.ops.control.graph_ops import CallOp


@st.composite
def dags(draw: Callable[..., Any]) -> list[Any]:
    """Draw ops of which each adds up to four of those before it, the first being a parameter."""
    ops: list[Any] = [ParameterOp(source=weft.placeholder(()), target_axes=weft.make_axes())]
    for _ in range(draw(st.integers(1, 12))):
        terms = draw(st.lists(st.sampled_from(ops), min_size=1, max_size=4))
        ops.append(weft.tanh(terms[0]))
        for term in terms[1:]:
            ops[-1] = ops[-1] + term
    return ops


def recursively(root: Any, found: dict[Any, None]) -> dict[Any, None]:
    for arg in root.args:
        if arg not in found:
            recursively(arg, found)
    found[root] = None
    return found


def graph_of(ops: list[Any], *outputs: Any) -> Graph:
    return Graph([ops[0]], outputs or ops[-1:])


def assert_in_order(graph: Graph) -> None:
    seen: set[Any] = set()
    for op in graph.ops:
        assert seen.issuperset(op.args)
        assert op not in seen
        seen.add(op)


@given(dags())
def test_postorder_is_that_of_recursion(ops: list[Any]):
    assert postorder([ops[-1]], lambda op: op.args) == list(recursively(ops[-1], {}))


def test_postorder_visits_shared_ops_and_roots_once():
    x = weft.placeholder(())
    y = x * x
    assert postorder([y, x, y]) == [x, y]


@given(dags(), st.data())
def test_the_order_of_a_graph_is_the_users(ops: Any, data: Any):
    outputs = data.draw(st.permutations(ops))
    graph = graph_of(ops, *outputs)
    assert_in_order(graph)
    assert list(graph.ops) == sorted(graph.ops, key=lambda op: op.serial)


@given(dags(), st.data())
def test_what_must_come_first_is_waited_for(ops: Any, data: Any):
    late = data.draw(st.sampled_from(ops[1:]))
    free = weft.constant(1.0)
    graph = Graph([ops[0]], [ops[-1]], effects=[free], after={late: (free,)})
    place = {op: index for index, op in enumerate(graph.ops)}
    assert late not in place or place[free] < place[late]
    assert_in_order(graph)


def copies_in(order: list[Any]) -> dict[Any, Any]:
    """Return a copy of each op, made in an order in which operands come first."""
    copies: dict[Any, Any] = {}
    for op in order:
        copies[op] = op.with_args(tuple(copies[arg] for arg in op.args))
    return copies


@given(dags(), st.data())
def test_an_order_that_is_claimed_is_used_only_if_it_is_one(ops: Any, data: Any):
    graph = graph_of(ops)
    copies = copies_in(list(graph.ops))
    claimed = data.draw(st.lists(st.sampled_from(list(copies.values())), unique=True))
    mapped = graph.mapped(copies, claimed)
    assert_in_order(mapped)
    assert set(mapped.ops) == set(copies.values())


@given(dags(), st.randoms())
def test_an_order_that_is_one_is_kept(ops: Any, random: Any):
    graph = graph_of(ops)
    keys = {op: random.random() for op in graph.ops}
    order: list[Any] = []
    while len(order) < len(graph.ops):
        ready = [op for op in graph.ops if op not in order and set(order) >= set(op.args)]
        order.append(min(ready, key=keys.__getitem__))
    copies = copies_in(order)
    mapped = graph.mapped(copies, [*copies.values(), weft.tanh(ops[-1])])
    assert list(mapped.ops) == list(copies.values())


@given(dags())
def test_a_rewrite_of_everything_keeps_the_order(ops: Any):
    graph = graph_of(ops)
    copied = graph.rewrite(lambda op: op.with_args(op.args))
    assert [type(op) for op in copied.ops] == [type(op) for op in graph.ops]
    assert not set(copied.ops) & set(graph.ops)
    assert_in_order(copied)
    copied.verify()


@given(dags())
def test_a_rewrite_to_deeper_ops_finds_them_all(ops: Any):
    graph = graph_of(ops)
    deeper = graph.rewrite(lambda op: weft.negative(weft.negative(op)) if op.args else op)
    assert_in_order(deeper)
    assert len(deeper.ops) == len(graph.ops) + 2 * (len(graph.ops) - 1)


def test_parts_that_do_not_differ_give_the_same_graph():
    x = weft.placeholder((2,))
    graph = weft.capture([x + 1], [x])
    assert graph.replace(outputs=list(graph.outputs), name=graph.name) is graph
    assert graph.replace(outputs=[graph.inputs[0]]) is not graph
    with pytest.raises(TypeError, match="ouputs"):
        graph.replace(ouputs=[])


@given(dags(), st.data())
def test_what_a_graph_knows_of_its_ops_is_what_they_are(ops: Any, data: Any):
    outputs = data.draw(st.lists(st.sampled_from(ops), min_size=1))
    graph = graph_of(ops, *outputs)
    assert graph.members == set(graph.ops)
    assert graph.kinds == {type(op) for op in graph.ops}
    assert graph.places == {graph.inputs[0]: 0}
    assert not graph.called
    assert not graph.may_raise


def test_a_graph_knows_what_its_ops_run_and_that_they_may_raise():
    x, i = weft.placeholder((4,)), weft.placeholder((), dtype="int32")
    inner = weft.capture([weft.tanh(weft.take(x, i))], [x, i], "inner")
    outer = weft.capture([weft.call(inner, x, i)[0] + weft.call(inner, x, i)[0]], [x, i])
    assert outer.called == (inner,)
    assert inner.may_raise
    assert outer.may_raise


def test_a_call_without_operands_is_verified_with_the_graph_that_it_runs():
    inner = Graph(outputs=[weft.tanh(weft.variable((2,)))], name="inner")
    outer = Graph(outputs=[ResultOp(CallOp(graph=inner), index=0)])
    with pytest.raises(GraphError, match="a stored state is used as a value"):
        outer.verify()


@given(dags(), st.data())
def test_an_order_with_an_op_twice_is_none(ops: Any, data: Any):
    graph = graph_of(ops)
    copies = copies_in(list(graph.ops))
    claimed = list(copies.values())
    twice = data.draw(st.sampled_from(claimed))
    mapped = graph.mapped(copies, [*claimed, twice])
    assert sorted(mapped.ops, key=id) == sorted(claimed, key=id)
    assert_in_order(mapped)


@pytest.mark.long("opencl")
def test_a_chain_of_20000_ops_is_differentiated_and_computed(transformer: weft.Transformer):
    x = weft.placeholder((2,))
    y = x
    for _ in range(6_667):
        y = y * 1.0001 - y * 0.0001
    c = transformer.computation([y, weft.deriv(weft.sum(y), x)], x)
    value, gradient = c([1, 2])
    np.testing.assert_allclose(value, [1, 2], rtol=1e-3)
    np.testing.assert_allclose(gradient, [1, 1], rtol=1e-3)


@pytest.mark.long
def test_a_chain_of_100000_ops_is_captured_differentiated_and_printed():
    x = weft.placeholder(())
    y = x
    for _ in range(100_000):
        y = weft.sin(y)
    d = weft.deriv(y, x)
    graph = weft.capture([d], [x])
    assert len(graph.ops) > 200_000
    assert len(graph.text().splitlines()) > 200_000
