"""Worked checks of autodiff (H1 to H9 of the contract), and each member of GradGraphInfo."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pytest
from popxl_programs import differences, results, stored

import weft_popxl as popxl
from weft_popxl import ops, transforms
from weft_popxl.transforms.autodiff import ExpectedConnectionType

FWD, GRAD = ExpectedConnectionType.Fwd, ExpectedConnectionType.FwdGrad
TOLERANCE = {"rtol": 1e-6, "atol": 1e-6}
RANDOM = np.random.default_rng(0)


def array(*shape: int) -> Any:
    return RANDOM.normal(size=shape).astype(np.float32)


class Linear(popxl.Module):
    def __init__(self, activation: Any = None) -> None:
        self.W: Any = None
        self.b: Any = None
        self.activation = activation

    def build(self, x: popxl.Tensor, out_features: int, bias: bool = True) -> popxl.Tensor:
        self.W = popxl.graph_input((x.shape[-1], out_features), popxl.float32, "W")
        y = x @ self.W
        if bias:
            self.b = popxl.graph_input((out_features,), popxl.float32, "b")
            y = y + self.b
        return y if self.activation is None else self.activation(y)


@pytest.mark.parametrize("scale", [1.0, 1024.0], ids=["h1", "h2"])
def test_the_listing_of_the_document(backend: str, scale: float) -> None:
    ir = popxl.Ir()
    main = ir.main_graph
    with main:
        input = popxl.h2d_stream([2, 2], popxl.float32, name="input_stream")
        x = ops.host_load(input, "x")
        W_data, b_data = array(2, 2), array(2)  # noqa: N806
        W = popxl.variable(W_data, name="W")  # noqa: N806
        b = popxl.variable(b_data, name="b")
        linear = Linear()
        linear_graph = ir.create_graph(linear, x, out_features=2)
        fwd_call_info = ops.call_with_info(linear_graph, x, inputs_dict={linear.W: W, linear.b: b})
        y = fwd_call_info.outputs[0]
        graphs = len(ir.graphs)
        bwd_graph_info = transforms.autodiff(linear_graph)
        assert len(ir.graphs) == graphs + 1
        grad_seed = popxl.constant(np.full((2, 2), scale, np.float32))
        activations = bwd_graph_info.inputs_dict(fwd_call_info)
        gradients = ops.call(bwd_graph_info.graph, grad_seed, inputs_dict=activations)
        again = ops.call(linear_graph, x, W, b)
        streams = stored([y, *gradients, *again])
    data = array(2, 2)
    with popxl.Session(ir, backend) as session:
        found = session.run({input: data})
    ones = np.full((2, 2), scale, np.float32)
    expected = [data @ W_data + b_data, ones @ W_data.T, data.T @ ones, [2 * scale] * 2]
    assert set(found) == set(streams)
    for stream, value in zip(streams, [*expected, expected[0]], strict=True):
        np.testing.assert_allclose(found[stream], value, **TOLERANCE)


@pytest.fixture(scope="module")
def linear() -> Any:
    """A linear graph, its gradient graph, and a call of each."""
    ir = popxl.Ir()
    with ir.main_graph:
        x, W, b = (popxl.variable(array(*s)) for s in ((3, 2), (2, 4), (4,)))  # noqa: N806
        module = Linear()
        graph = ir.create_graph(module, x, out_features=4)
        forward = ops.call_with_info(graph, x, W, b)
        info = transforms.autodiff(graph)
        seed = popxl.constant(np.ones((3, 4), np.float32))
        backward = ops.call_with_info(info.graph, seed, inputs_dict=info.inputs_dict(forward))
    return graph, module, info, (x, W, b), forward, backward


def test_members_of_the_linear_graph(linear: Any) -> None:
    graph, module, info, (x, W, _), forward, backward = linear  # noqa: N806
    own = graph.inputs[0]
    assert info.forward_graph is graph
    assert info.graph in graph.ir.graphs
    connections = [(each.connection_type, each.fwd_tensor) for each in info.expected_inputs]
    assert connections == [(GRAD, graph.outputs[0]), (FWD, module.W), (FWD, own)]
    connections = [(each.connection_type, each.fwd_tensor) for each in info.expected_outputs]
    assert connections == [(GRAD, own), (GRAD, module.W), (GRAD, module.b)]
    assert info.inputs == tuple(each.fwd_tensor for each in info.expected_inputs)
    assert info.outputs == (own, module.W, module.b)
    assert len(graph.outputs) == len(forward.outputs) == 1
    _, weight, data = info.graph.inputs
    assert info.inputs_dict(forward) == {weight: W, data: x}
    inner = info.fwd_graph_ins_to_grad_parent_outs(backward)
    outer = info.fwd_parent_ins_to_grad_parent_outs(forward, backward)
    assert list(inner.values()) == list(outer.values()) == list(backward.outputs)
    main = graph.ir.main_graph
    assert all(tensor in graph for tensor in inner)
    assert all(tensor in main for tensor in outer)
    assert list(outer) == list(forward.inputs)


def test_names_of_gradient_graphs(linear: Any) -> None:
    graph, _, info, *_ = linear
    assert graph.id.startswith("Linear_subgraph(")
    assert info.graph.id == f"{graph.id}_bwd"
    assert info.graph.inputs[0].name == f"Gradient___{graph.outputs[0].name}"
    assert [each.name for each in info.graph.outputs] == [
        f"Gradient___{each.name}" for each in graph.inputs
    ]
    with graph.ir.main_graph:
        others = [transforms.autodiff(graph) for _ in range(2)]
    assert [each.graph.id for each in others] == [f"{graph.id}_bwd_1", f"{graph.id}_bwd_2"]


def test_the_text_of_an_info_names_its_members(linear: Any) -> None:
    _, _, info, *_ = linear
    assert repr(info).startswith(f"GradGraphInfo[\n  graph={info.graph}\n  expected_inputs=[(")
    assert "\n  expected_outputs=[(FwdGrad, Tensor[" in repr(info)


def three(a: popxl.Tensor, b: popxl.Tensor, c: popxl.Tensor) -> tuple[popxl.Tensor, ...]:
    return a * b, b * c, a + c


def test_h3_subsets_and_orders_of_what_is_provided_and_required() -> None:
    ir = popxl.Ir()
    with ir.main_graph:
        values = [popxl.variable(array(2)) for _ in range(3)]
        graph = ir.create_graph(three, *values)
        for size in (1, 2, 3):
            for chosen in itertools.permutations(range(3), size):
                given = [graph.outputs[place] for place in chosen]
                info = transforms.autodiff(graph, given, graph.inputs, on_missing="zeros")
                kinds = [each.connection_type for each in info.expected_inputs]
                assert kinds == [GRAD] * size + [FWD] * (len(kinds) - size)
                assert list(info.inputs[:size]) == given
                wanted = [graph.inputs[place] for place in chosen]
                info = transforms.autodiff(graph, grads_required=wanted)
                assert list(info.outputs) == wanted
                assert info.inputs[:3] == graph.outputs[:3]


def test_h3_the_values_of_a_subset(backend: str) -> None:
    a, b, c, seed = (array(2) for _ in range(4))

    def build(ir: popxl.Ir) -> Any:
        values = [popxl.variable(value) for value in (a, b, c)]
        graph = ir.create_graph(three, *values)
        forward = ops.call_with_info(graph, *values)
        info = transforms.autodiff(
            graph, [graph.outputs[2], graph.outputs[0]], [graph.inputs[1], graph.inputs[0]]
        )
        seeds = [popxl.constant(seed), popxl.constant(2 * seed)]
        return ops.call(info.graph, *seeds, inputs_dict=info.inputs_dict(forward))

    found = results(backend, build)
    np.testing.assert_allclose(found[0], 2 * seed * a, **TOLERANCE)
    np.testing.assert_allclose(found[1], seed + 2 * seed * b, **TOLERANCE)


def test_h4_an_output_that_is_used_inside(backend: str) -> None:
    one, other = array(3), array(3)

    def build(ir: popxl.Ir) -> Any:
        def graph_of(a: popxl.Tensor, b: popxl.Tensor) -> Any:
            y = a + b
            return y, y + y

        graph = ir.create_graph(graph_of, *(popxl.TensorSpec((3,), popxl.float32),) * 2)
        info = transforms.autodiff(graph)
        assert [each.connection_type for each in info.expected_inputs] == [GRAD, GRAD]
        return ops.call(info.graph, popxl.constant(one), popxl.constant(other))

    for found in results(backend, build):
        np.testing.assert_allclose(found, one + 2 * other, **TOLERANCE)


def test_outputs_that_are_inputs_or_the_same_value(backend: str) -> None:
    def build(ir: popxl.Ir) -> Any:
        def graph_of(x: popxl.Tensor) -> Any:
            y = x * 2
            return x, y, y.reshape((1,)), ops.slice(x), popxl.constant([5.0])

        graph = ir.create_graph(graph_of, popxl.TensorSpec((1,), popxl.float32))
        forward = ops.call_with_info(graph, np.array([7.0]))
        info = transforms.autodiff(graph, graph.outputs[:4])
        assert info.inputs[:4] == graph.outputs[:4]
        seeds = [popxl.constant([seed]) for seed in (1.0, 10.0, 100.0, 1000.0)]
        return [
            *forward.outputs[:5],
            *ops.call(info.graph, *seeds, inputs_dict=info.inputs_dict(forward)),
        ]

    assert [each.item() for each in results(backend, build)] == [7, 14, 14, 7, 5, 1221]


def test_h5_one_tensor_for_two_inputs(backend: str) -> None:
    value = array(2, 2)

    def build(ir: popxl.Ir) -> Any:
        a = popxl.variable(value)
        graph = ir.create_graph(lambda x, y: ops.tanh(x) * y, a, a)
        forward = ops.call_with_info(graph, a, a)
        info = transforms.autodiff(graph)
        seed = popxl.constant(np.ones((2, 2), np.float32))
        backward = ops.call_with_info(info.graph, seed, inputs_dict=info.inputs_dict(forward))
        inner = info.fwd_graph_ins_to_grad_parent_outs(backward)
        assert tuple(inner) == graph.inputs
        outer = info.fwd_parent_ins_to_grad_parent_outs(forward, backward)
        assert tuple(outer) == (a,)
        return *inner.values(), outer[a]

    first, second, total = results(backend, build)
    slope = 1 - np.tanh(value) ** 2
    np.testing.assert_allclose(first, slope * value, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(second, np.tanh(value), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(total, first + second, **TOLERANCE)


def test_h6_a_gradient_graph_serves_two_callers(backend: str) -> None:
    x_data, w_data = array(3), array(3)
    seen: list[int] = []

    def build(ir: popxl.Ir) -> Any:
        x, w = popxl.variable(x_data), popxl.variable(w_data)
        graph_c = ir.create_graph(lambda x, w: ops.tanh(x * w), x, w)
        twice = ir.create_graph(
            lambda x, w: ops.call(graph_c, ops.call(graph_c, x, w)[0], w)[0] * x, x, w
        )
        once = ir.create_graph(lambda x, w: ops.sin(ops.call(graph_c, x, w)[0]), x, w)
        infos = transforms.autodiff(once, return_all_grad_graphs=True)
        assert set(infos) == {once, graph_c}
        graphs = len(ir.graphs)
        both = transforms.autodiff(
            twice, called_graphs_grad_info=infos, return_all_grad_graphs=True
        )
        seen.append(len(ir.graphs) - graphs)
        assert both[graph_c].graph is infos[graph_c].graph
        assert infos[graph_c].graph in both[twice].graph.called_graphs
        seed = popxl.constant(np.ones(3, np.float32))
        found = []
        for graph in (once, twice):
            forward = ops.call_with_info(graph, x, w)
            found += ops.call(both[graph].graph, seed, inputs_dict=both[graph].inputs_dict(forward))
        return found

    found = results(backend, build)
    assert seen == [1]

    def once(x: Any, w: Any) -> Any:
        return np.sin(np.tanh(x * w)).sum()

    def twice(x: Any, w: Any) -> Any:
        return (np.tanh(np.tanh(x * w) * w) * x).sum()

    expected = [*differences(once, [x_data, w_data]), *differences(twice, [x_data, w_data])]
    for value, slope in zip(found, expected, strict=True):
        np.testing.assert_allclose(value, slope, rtol=1e-3, atol=1e-4)


def test_h7_three_levels(backend: str) -> None:
    x_data, w_data = array(2, 2), array(2, 2)

    def build(ir: popxl.Ir) -> Any:
        x, w = popxl.variable(x_data), popxl.variable(w_data)
        inner = ir.create_graph(lambda x, w: ops.tanh(x) * w, x, w)
        middle = ir.create_graph(lambda x, w: ops.call(inner, x * w, ops.tanh(w))[0], x, w)
        outer = ir.create_graph(lambda x, w: ops.call(middle, ops.sin(x), w)[0] * x, x, w)
        forward = ops.call_with_info(outer, x, w)
        info = transforms.autodiff(outer)
        values = info.inputs_dict(forward)
        assert tuple(values) == info.graph.inputs[1:]
        assert all(each in outer.inputs or each in outer.outputs for each in info.inputs)
        assert all(tensor in ir.main_graph for tensor in values.values())
        seed = popxl.constant(np.ones((2, 2), np.float32))
        return *forward.outputs[:1], *ops.call(info.graph, seed, inputs_dict=values)

    def function(x: Any, w: Any) -> Any:
        return (np.tanh(np.sin(x) * w) * np.tanh(w) * x).sum()

    value, *found = results(backend, build)
    np.testing.assert_allclose(value.sum(), function(x_data, w_data), rtol=1e-4)
    for gradient, slope in zip(found, differences(function, [x_data, w_data]), strict=True):
        np.testing.assert_allclose(gradient, slope, rtol=1e-3, atol=1e-3)


def test_h8_calls_before_and_after_autodiff(backend: str) -> None:
    x_data, w_data, b_data = array(3, 2), array(2, 4), array(4)

    def build(ir: popxl.Ir) -> Any:
        x, w, b = (popxl.variable(value) for value in (x_data, w_data, b_data))
        graph = ir.create_graph(Linear(ops.gelu), x, out_features=4)
        before = ops.call_with_info(graph, x, w, b)
        plain = before.outputs
        info = transforms.autodiff(graph)
        after = ops.call_with_info(graph, x * 2, w, b)
        assert len(graph.outputs) == len(before.outputs) == len(after.outputs) > len(plain) == 1
        assert before.outputs[0] is plain[0]
        seed = popxl.constant(np.ones((3, 4), np.float32))
        found = [before.outputs[0], after.outputs[0]]
        for call in (before, after):
            found += ops.call(info.graph, seed, inputs_dict=info.inputs_dict(call))
        return found

    first, second, *gradients = results(backend, build)

    def function(x: Any, w: Any, b: Any) -> Any:
        z = x @ w + b
        return (0.5 * z * (1 + np.tanh(0.7978845608 * z + 0.03567740814 * z**3))).sum()

    for value, data, found in ((first, x_data, gradients[:3]), (second, 2 * x_data, gradients[3:])):
        np.testing.assert_allclose(value.sum(), function(data, w_data, b_data), rtol=1e-4)
        for gradient, slope in zip(
            found, differences(function, [data, w_data, b_data]), strict=True
        ):
            np.testing.assert_allclose(gradient, slope, rtol=1e-3, atol=1e-3)


def test_h9_loss_and_accuracy(backend: str) -> None:
    x_data, labels = array(4, 3), np.array([0, 2, 1, 2], np.int32)

    def build(ir: popxl.Ir) -> Any:
        def graph_of(x: popxl.Tensor, label: popxl.Tensor) -> Any:
            loss = ops.nll_loss(ops.softmax(x, axis=-1), label)
            right = ops.equal(ops.argmax(x, dim=-1), label)
            return loss, ops.mean(ops.cast(right, popxl.float32)), ops.argmax(x, dim=-1)

        x, label = popxl.variable(x_data), popxl.variable(labels)
        graph = ir.create_graph(graph_of, x, label)
        forward = ops.call_with_info(graph, x, label)
        info = transforms.autodiff(graph, grads_provided=graph.outputs[:1])
        assert info.inputs[0] is graph.outputs[0]
        assert info.outputs == graph.inputs[:1]
        _, expected = ops.nll_loss_with_softmax_grad(ops.softmax(x, axis=-1), label)
        found = ops.call(info.graph, popxl.constant(1.0), inputs_dict=info.inputs_dict(forward))
        return *found, expected

    gradient, expected = results(backend, build)
    np.testing.assert_allclose(gradient, expected, **TOLERANCE)
    assert np.abs(gradient).max() > 0.01


def test_h9_what_has_no_gradient_may_be_provided(
    backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    def build(ir: popxl.Ir) -> Any:
        def graph_of(x: popxl.Tensor, label: popxl.Tensor) -> Any:
            read = ops.argmax(x)
            return ops.equal(read, label), read, ops.sum(x * x), ops.detach(ops.max(x))

        x, label = popxl.variable([1.0, 3.0]), popxl.variable(1)
        graph = ir.create_graph(graph_of, x, label)
        forward = ops.call_with_info(graph, x, label)
        info = transforms.autodiff(graph, graph.outputs, graph.inputs[:1])
        assert info.inputs[:4] == graph.outputs
        assert [each.dtype for each in info.graph.inputs[:4]] == [
            each.dtype for each in graph.outputs
        ]
        return ops.call(info.graph, True, 1, 2.0, 9.0, inputs_dict=info.inputs_dict(forward))

    (found,) = results(backend, build)
    np.testing.assert_allclose(found, [4, 12])
    unread = [record.getMessage() for record in caplog.records if record.name == "weft_popxl"]
    assert len(unread) == 3


def test_what_is_no_output_is_left_out_with_a_warning() -> None:
    ir = popxl.Ir()
    with ir.main_graph:
        graph = ir.create_graph(lambda x: ops.exp(x) * x, popxl.TensorSpec((), popxl.float32))
        inner = next(each for each in graph.tensors if each not in (*graph.inputs, *graph.outputs))
        with pytest.warns(UserWarning, match="not an output"):
            info = transforms.autodiff(graph, grads_provided=[*graph.outputs, inner])
    assert info.inputs[0] is graph.outputs[0]


def test_sums_of_gradients_are_additions_of_two(linear: Any) -> None:
    graph = linear[0]
    assert transforms.decompose_sum(graph) is graph
    with warnings.catch_warnings(), transforms.merge_exchange(), transforms.io_tile_exchange():
        pass
    with pytest.raises(TypeError, match="takes a graph"):
        transforms.decompose_sum(3)
