"""Autodiff through all that graphs can hold: loops, choices, streams, integers, gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from popxl_programs import called, differences, results, stored

import weft_popxl as popxl
from weft_popxl import ops, transforms
from weft_popxl.transforms.autodiff import ExpectedConnectionType

FWD, GRAD = ExpectedConnectionType.Fwd, ExpectedConnectionType.FwdGrad
TOLERANCE = {"rtol": 1e-6, "atol": 1e-6}
RANDOM = np.random.default_rng(0)


def array(*shape: int) -> Any:
    return RANDOM.normal(size=shape).astype(np.float32)


@pytest.mark.parametrize(("way", "count"), [("zeros", 2), ("skip", 1)])
def test_inputs_without_influence(way: str, count: int, backend: str) -> None:
    def build(ir: popxl.Ir) -> Any:
        graph = ir.create_graph(
            lambda x, y: ops.detach(y) * x, *(popxl.TensorSpec((), popxl.float32),) * 2
        )
        forward = ops.call_with_info(graph, 2.0, 3.0)
        info = transforms.autodiff(graph, on_missing=way)
        return ops.call(info.graph, 5.0, inputs_dict=info.inputs_dict(forward))

    assert [each.item() for each in results(backend, build)] == [15.0, 0.0][:count]


def test_recomputation_needs_nothing_but_inputs(backend: str) -> None:
    x_data, w_data = array(3), array(3)

    def build(ir: popxl.Ir) -> Any:
        x, w = popxl.variable(x_data), popxl.variable(w_data)
        graph = ir.create_graph(lambda x, w: ops.tanh(ops.sin(x) * w), x, w)
        forward = ops.call_with_info(graph, x, w)
        info = transforms.autodiff(graph, recompute=True)
        assert len(graph.outputs) == 1
        assert all(each.fwd_tensor in graph.inputs for each in info.expected_inputs[1:])
        seed = popxl.constant(np.ones(3, np.float32))
        return ops.call(info.graph, seed, inputs_dict=info.inputs_dict(forward))

    slopes = differences(lambda x, w: np.tanh(np.sin(x) * w).sum(), [x_data, w_data])
    for gradient, slope in zip(results(backend, build), slopes, strict=True):
        np.testing.assert_allclose(gradient, slope, rtol=1e-3, atol=1e-4)


def test_recomputation_and_choice_through_graphs_that_call(backend: str) -> None:
    x_data, w_data = array(3), array(3)

    def build(ir: popxl.Ir) -> Any:
        x, w = popxl.variable(x_data), popxl.variable(w_data)
        inner = ir.create_graph(lambda x, w: ops.sin(x) * w, x, w)
        calling = ir.create_graph(lambda x, w: ops.call(inner, ops.tanh(x), w)[0], x, w)
        choosing = ir.create_graph(
            lambda x, w: ops.conditional(ops.sum(x) > 99.0, inner, calling, [x, w], [x, w])[0], x, w
        )
        seed = popxl.constant(np.ones(3, np.float32))
        found = []
        for graph, recompute in ((calling, True), (calling, False), (choosing, False)):
            forward = ops.call_with_info(graph, x, w)
            info = transforms.autodiff(graph, recompute=recompute)
            found += ops.call(info.graph, seed, inputs_dict=info.inputs_dict(forward))
        return found

    slopes = differences(lambda x, w: (np.sin(np.tanh(x)) * w).sum(), [x_data, w_data])
    for gradient, slope in zip(results(backend, build), slopes * 3, strict=True):
        np.testing.assert_allclose(gradient, slope, rtol=1e-3, atol=1e-4)


def test_gradients_of_gradients(backend: str) -> None:
    x_data = array(3)

    def build(ir: popxl.Ir) -> Any:
        x, one = popxl.variable(x_data), popxl.constant(np.ones(3, np.float32))
        graph = ir.create_graph(lambda x: ops.tanh(x) * x, x)
        first = transforms.autodiff(graph, recompute=True)
        second = transforms.autodiff(first.graph, recompute=True)
        assert second.forward_graph is first.graph
        given = {each: one if each is first.graph.inputs[0] else x for each in first.graph.inputs}
        call = ops.call_with_info(first.graph, inputs_dict=given)
        made = ops.call_with_info(second.graph, one, inputs_dict=second.inputs_dict(call))
        outer = second.fwd_graph_ins_to_grad_parent_outs(made)
        return [outer[first.graph.inputs[-1]]]

    (found,) = results(backend, build)
    tanh = np.tanh(x_data.astype(np.float64))
    slope = 1 - tanh**2
    np.testing.assert_allclose(found, 2 * slope - 2 * tanh * slope * x_data, rtol=1e-4, atol=1e-5)


def test_repeat_and_conditional_have_gradients(backend: str) -> None:
    x_data, w_data = array(2), array(2)

    def graph_of(x: popxl.Tensor, w: popxl.Tensor) -> Any:
        ir = popxl.gir()
        step = ir.create_graph(lambda x, w: ops.sin(x) * w, x, w)
        (y,) = ops.repeat(step, 3, x, w)
        other = ir.create_graph(lambda x: x * 2, x)
        (z,) = ops.conditional(ops.sum(w) > 100.0, other, step, [y], [y, w])
        return z

    (value,), found = called(backend, graph_of, [x_data, w_data])

    def function(x: Any, w: Any) -> Any:
        for _ in range(4):
            x = np.sin(x) * w
        return x.sum()

    np.testing.assert_allclose(value.sum(), function(x_data, w_data), rtol=1e-4)
    for gradient, slope in zip(found, differences(function, [x_data, w_data]), strict=True):
        np.testing.assert_allclose(gradient, slope, rtol=1e-3, atol=1e-4)


BINARY = [ops.add, ops.sub, ops.mul, ops.maximum]
UNARY = [ops.sin, ops.tanh, ops.negate, lambda x: ops.transpose(x), lambda x: x[::-1]]
Steps = list[tuple[int, int, int]]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, 8)] * 3), min_size=1, max_size=8))
def test_a_call_means_what_its_ops_mean(steps: Steps) -> None:
    """Built inline, called, called in a call, and repeated once: equal values and gradients."""

    def graph_of(x: popxl.Tensor, w: popxl.Tensor) -> popxl.Tensor:
        values = [x, w]
        for kind, i, j in steps:
            one, other = values[i % len(values)], values[j % len(values)]
            both = BINARY[kind](one, other) if kind < 4 else UNARY[kind - 4](one)
            values.append(both)
        return values[-1]

    x_data, w_data = array(2, 2), array(2, 2)

    def build(ir: popxl.Ir) -> Any:
        x, w = popxl.variable(x_data), popxl.variable(w_data)
        plain = ir.create_graph(graph_of, x, w)
        called = ir.create_graph(lambda x, w: ops.call(plain, x, w)[0], x, w)
        repeated = ir.create_graph(lambda x, w: ops.repeat(called, 1, x, w)[0], x, w)
        seed = popxl.constant(np.arange(4, dtype=np.float32).reshape(2, 2))
        found = [graph_of(x, w)]
        for graph in (plain, called, repeated):
            forward = ops.call_with_info(graph, x, w)
            info = transforms.autodiff(graph, on_missing="zeros")
            found.append(forward.outputs[0])
            found += ops.call(info.graph, seed, inputs_dict=info.inputs_dict(forward))
        return found

    inline, *found = results("numpy", build)
    for value in found[::3]:
        np.testing.assert_allclose(value, inline, rtol=1e-5, atol=1e-6)
    for other in (found[3:6], found[6:9]):
        for one, gradient in zip(found[:3], other, strict=True):
            np.testing.assert_allclose(gradient, one, rtol=1e-5, atol=1e-6)


def test_a_loop_that_trains(backend: str) -> None:
    x_data = array(16, 3)
    slope = np.array([[1], [2], [3]], np.float32)

    def build(ir: popxl.Ir) -> Any:
        def loss(x: popxl.Tensor, w: popxl.Tensor, y: popxl.Tensor) -> popxl.Tensor:
            return ops.mean((x @ w - y) ** 2.0)

        def step(w: popxl.TensorByRef, x: popxl.Tensor, y: popxl.Tensor) -> None:
            forward = ops.call_with_info(graph, x, w, y)
            (gradient,) = ops.call(info.graph, 1.0, inputs_dict=info.inputs_dict(forward))
            ops.var_updates.accumulate_(w, gradient, -0.1)

        w = popxl.variable(np.zeros((3, 1), np.float32))
        x, y = popxl.constant(x_data), popxl.constant(x_data @ slope)
        graph = ir.create_graph(loss, x, w, y)
        info = transforms.autodiff(graph, grads_required=[graph.inputs[1]])
        ops.repeat(ir.create_graph(step, w, x, y), 300, w, x, y)
        return [w * 1]

    (found,) = results(backend, build, in_sequence=True)
    np.testing.assert_allclose(found, slope, rtol=1e-3)


def test_streams_inside_a_graph_that_is_differentiated(backend: str) -> None:
    ir = popxl.Ir()
    with ir.main_graph:
        source = popxl.h2d_stream((2,), popxl.float32, "source")
        w_data, data = array(2), array(2)
        w = popxl.variable(w_data)
        graph = ir.create_graph(lambda w: ops.sin(w * ops.host_load(source, "loaded")), w)
        forward = ops.call_with_info(graph, w)
        info = transforms.autodiff(graph)
        seed = popxl.constant(np.ones(2, np.float32))
        gradients = ops.call(info.graph, seed, inputs_dict=info.inputs_dict(forward))
        (stream,) = stored(gradients)
    with popxl.Session(ir, backend) as session:
        found = session.run({source: data})[stream]
    np.testing.assert_allclose(found, np.cos(w_data * data) * data, rtol=1e-5, atol=1e-6)


def test_integers_are_differentiated_like_floats(backend: str) -> None:
    x_data, w_data = np.array([3, -1], np.int32), np.array([2, 5], np.int32)
    seen: list[int] = []

    def build(ir: popxl.Ir) -> Any:
        x, w = popxl.variable(x_data), popxl.variable(w_data)
        scaled = ir.create_graph(lambda x, w: x * w + 1, x, w)
        summed = ir.create_graph(
            lambda x, w: ops.sum(ops.call(scaled, ops.call(scaled, x, w)[0], w)[0] - 2 * w), x, w
        )
        other = ir.create_graph(lambda x, w: ops.call(scaled, x, w)[0] * x, x, w)
        graphs = len(ir.graphs)
        infos = transforms.autodiff(summed, return_all_grad_graphs=True)
        seen.append(len(ir.graphs) - graphs)
        info = transforms.autodiff(other, called_graphs_grad_info=infos)
        seen.append(len(ir.graphs) - graphs)
        assert infos[summed].inputs[0] is summed.outputs[0]
        assert infos[summed].outputs == summed.inputs
        assert {each.dtype for each in infos[summed].graph.inputs} == {popxl.int32}
        assert infos[scaled].graph in infos[summed].graph.called_graphs
        found = []
        for each, seed in ((infos[summed], 1), (info, [1, 10])):
            forward = ops.call_with_info(each.forward_graph, x, w)
            values = each.inputs_dict(forward)
            found += ops.call(each.graph, popxl.constant(seed), inputs_dict=values)
        return found

    found = results(backend, build)
    assert seen == [2, 3]
    expected = [w_data**2, 2 * x_data * w_data - 1, [1, 10] * (2 * x_data * w_data + 1)]
    expected.append([1, 10] * x_data**2)
    for value, wanted in zip(found, expected, strict=True):
        assert value.dtype == np.int32
        np.testing.assert_array_equal(value, wanted)


def test_what_autodiff_added_is_not_provided_the_next_time() -> None:
    ir = popxl.Ir()
    with ir.main_graph:
        graph = ir.create_graph(lambda x: ops.sin(ops.sin(x)), popxl.TensorSpec((2,), "float32"))
        first, second = transforms.autodiff(graph), transforms.autodiff(graph)
        assert len(graph.outputs) > 1
        again = ops.repeat_with_info(graph, 2, popxl.constant([1.0, 2.0]))
    assert first.inputs == second.inputs
    assert len(again.outputs) == 1
    assert again.graph_to_parent(graph.inputs[0]) is again.inputs[0]


def test_the_submodule_and_the_function_share_a_name() -> None:
    import importlib

    from weft_popxl.transforms.autodiff import autodiff

    assert transforms.autodiff is autodiff
    module = importlib.import_module("weft_popxl.transforms.autodiff")
    for name in ("ExpectedConnection", "ExpectedConnectionType", "GradGraphInfo", "autodiff"):
        assert getattr(module, name) is getattr(transforms.autodiff, name)
