"""Calls by value and by reference, what is known of them, repeats, conditionals, and streams."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from popxl_programs import results, stored

import weft_popxl as popxl
from weft_popxl import ops

SPEC = popxl.TensorSpec((), popxl.float32)


def increment(x: popxl.Tensor, value: popxl.Tensor) -> popxl.Tensor:
    return x + value


def incremented(x: popxl.Tensor) -> None:
    x += 1


def incremented_by_ref(x: popxl.TensorByRef) -> None:
    x += 1


def accumulating(total: popxl.TensorByRef, x: popxl.Tensor) -> popxl.Tensor:
    ops.var_updates.accumulate_(total, x)
    return x + total


@pytest.fixture
def main() -> Any:
    ir = popxl.Ir()
    with ir.main_graph as graph:
        yield graph


def test_calls_are_by_value_unless_told_otherwise(backend: str) -> None:
    def build(ir: popxl.Ir) -> Any:
        x = popxl.variable(1.0)
        by_value = ir.create_graph(incremented, x)
        by_ref = ir.create_graph(incremented_by_ref, x)
        found = []
        ops.call(by_value, x)
        found.append(x + 0)
        ops.call_with_info(by_value, x).set_parent_input_modified(x)
        found.append(x + 0)
        ops.call(by_ref, x)
        found.append(x + 0)
        part = ops.slice_(ops.reshape_(x, (1,)), 0, 1)
        with by_spec(ir) as graph:
            popxl.gcg()
        ops.call(graph, part)
        found.append(x + 0)
        return found

    def by_spec(ir: popxl.Ir) -> popxl.Graph:
        return ir.create_graph(incremented_by_ref, popxl.TensorSpec((1,), popxl.float32))

    assert [each.item() for each in results(backend, build, in_sequence=True)] == [1, 2, 3, 4]


def test_inputs_by_position_in_lists_and_by_name(backend: str) -> None:
    def build(ir: popxl.Ir) -> Any:
        graph = ir.create_graph(lambda a, b, c: a * 100 + b * 10 + c, SPEC, SPEC, SPEC)
        a, b, c = graph.inputs
        x = popxl.variable(1.0)
        return [
            *ops.call(graph, x, 2.0, 3),
            *ops.call(graph, [x, [2, 3]]),
            *ops.call(graph, x, inputs_dict={c: 3, b: np.float32(2)}),
            *ops.call(graph, inputs_dict={c: x + 2, a: x, b: x * 2}),
        ]

    assert [each.item() for each in results(backend, build)] == [123.0] * 4


def test_what_a_call_tells(main: popxl.Graph) -> None:
    graph = main.ir.create_graph(lambda a, b: (a + b, a - b), SPEC, SPEC)
    x, y = popxl.variable(1.0), popxl.variable(2.0)
    info = ops.call_with_info(graph, x, y)
    assert info.called_graph is graph
    assert info.graph is main
    assert info.inputs == (x, y)
    assert [info.parent_input(0), info.parent_output(1)] == [x, info.outputs[1]]
    for inner, outer in zip(
        (*graph.inputs, *graph.outputs), (*info.inputs, *info.outputs), strict=True
    ):
        assert info.graph_to_parent(inner) is outer
        assert info.parent_to_graph(outer) is inner
    for maps in (info.graph_to_parent_input_index, info.parent_to_graph_input_index):
        assert [maps(0), maps(1)] == [0, 1]
    for maps in (info.graph_to_parent_output_index, info.parent_to_graph_output_index):
        assert [maps(0), maps(1)] == [0, 1]
        with pytest.raises(IndexError):
            maps(2)
    both = ops.call_with_info(graph, x, x)
    assert both.parent_to_graph(x) is graph.inputs[0]
    assert repr(info).startswith("CallSiteInfo[graph=Graph(main) called_graph=")


def test_repeats(backend: str) -> None:
    def build(ir: popxl.Ir) -> Any:
        x, two = popxl.variable(1.0), popxl.constant(2.0)
        graph = ir.create_graph(increment, x, two)
        swap = ir.create_graph(lambda a, b, c: (b, a + c), x, x, x)
        info = ops.repeat_with_info(graph, 4, x, inputs_dict={graph.inputs[1]: two})
        assert info.called_graph is graph
        assert info.parent_to_graph(two) is graph.inputs[1]
        assert info.graph_to_parent(graph.outputs[0]) is info.outputs[0]
        return [
            *info.outputs,
            *ops.repeat(graph, 1, x, two),
            *ops.repeat(graph, 0, x, two),
            *ops.repeat(swap, 5, x, two, 10.0),
        ]

    assert [each.item() for each in results(backend, build)] == [9, 3, 1, 22, 31]


def test_repeats_that_change_something_in_place(backend: str) -> None:
    def build(ir: popxl.Ir) -> Any:
        total, x = popxl.variable(0.0), popxl.variable(1.0)
        kept, fresh, first = (popxl.variable(0.0) for _ in range(3))
        nothing = ir.create_graph(incremented_by_ref, x)
        by_value = ir.create_graph(incremented, x)
        summing = ir.create_graph(accumulating, total, x)
        by_ref = popxl.TensorSpec((), popxl.float32, by_ref=True)
        swapped = ir.create_graph(lambda x, total: ops.add_(total, x) * 1, x, by_ref)
        ops.repeat(nothing, 5, total)
        ops.repeat_with_info(by_value, 3, kept).set_parent_input_modified(kept)
        ops.repeat(by_value, 3, fresh)
        (last,) = ops.repeat(swapped, 3, x, first)
        (carried,) = ops.repeat(summing, 2, total, 7.0)
        return [total + 0, kept + 0, fresh + 0, last, first + 0, carried]

    # swapped: first 1, x 1; first 2, x 2; first 4, x 4.
    # summing: its input 0 is total, which the first output replaces: 5 + 7, then 19 + 7.
    found = [each.item() for each in results(backend, build, in_sequence=True)]
    assert found == [26, 3, 0, 4, 4, 33]


def test_references_pass_through_several_graphs(backend: str) -> None:
    def inner_of(x: popxl.TensorByRef) -> popxl.Tensor:
        x += 1
        return x * 10

    def build(ir: popxl.Ir) -> Any:
        x, w = popxl.variable(1.0), popxl.variable(0.0)
        inner = ir.create_graph(inner_of, x)

        def outer_of(x: popxl.TensorByRef) -> popxl.Tensor:
            return ops.call(inner, x)[0] + ops.call(inner, x)[0] + x

        def calling(x: popxl.TensorByRef) -> None:
            ops.call(inner, x)

        def repeating(x: popxl.TensorByRef) -> None:
            ops.repeat(called, 2, x)

        outer = ir.create_graph(outer_of, x)
        called = ir.create_graph(calling, x)
        (first,) = ops.call(outer, x)
        (second,) = ops.repeat(outer, 1, x)
        ops.repeat(ir.create_graph(repeating, x), 3, w)
        return [first, second, x * 1, w * 1]

    found = [each.item() for each in results(backend, build, in_sequence=True)]
    assert found == [20 + 30 + 3, 40 + 50 + 5, 5, 6]


def test_conditionals(backend: str) -> None:
    def build(ir: popxl.Ir) -> Any:
        flag, x, y = popxl.variable(True), popxl.variable(3.0), popxl.variable(4.0)
        doubled = ir.create_graph(lambda x: x * 2, x)
        summed = ir.create_graph(lambda x, y: x + y, x, y)
        changing = ir.create_graph(lambda x: ops.add_(x, 1.0), x)
        found = []
        for cond in (flag, ~flag, ops.reshape(flag, (1,))):
            info = ops.conditional_with_info(cond, doubled, summed, [x], [x, y])
            found += info.outputs
        found += ops.conditional(
            flag,
            summed,
            changing,
            then_inputs_dict=dict(zip(summed.inputs, (x, y), strict=True)),
            else_inputs_dict={changing.inputs[0]: x},
        )
        found += [*ops.conditional(~flag, summed, changing, [x, y], [x]), x + 0]
        assert info.inputs == (info.condition, x, x, y)
        assert [info.parent_input(number) for number in range(4)] == [info.condition, x, x, y]
        assert (info.parent_output(0),) == info.outputs
        assert info.called_graph == (info.then_graph, info.else_graph) == (doubled, summed)
        assert info.graph_to_parent(summed.inputs[1], False) is y
        assert info.parent_to_graph(x) is doubled.inputs[0]
        assert info.parent_to_graph(y, then_branch=False) is summed.inputs[1]
        assert info.graph_to_parent_input_index(0) == 1
        assert info.graph_to_parent_input_index(1, then_branch=False) == 3
        assert info.parent_to_graph_input_index(3, then_branch=False) == 1
        assert info.graph_to_parent_output_index(0) == info.parent_to_graph_output_index(0, False)
        return found

    assert [each.item() for each in results(backend, build)] == [6, 7, 6, 7, 4, 3]


def test_streams_in_graphs_that_are_called_repeated_and_chosen(backend: str) -> None:
    ir = popxl.Ir()
    ir.num_host_transfers = 9
    with ir.main_graph:
        source = popxl.h2d_stream((2,), popxl.float32, "source")
        sink = popxl.d2h_stream((2,), popxl.float32, "sink")

        def step(x: popxl.Tensor) -> popxl.Tensor:
            x = x + ops.host_load(source, "added")
            ops.host_store(sink, x)
            x = x * ops.host_load(source, "factor")
            ops.host_store(sink, x)
            return x

        def once(x: popxl.Tensor) -> popxl.Tensor:
            made = x - ops.host_load(source)
            ops.host_store(sink, made)
            return made

        x = popxl.variable([0.0, 0.0])
        graph, other = ir.create_graph(step, x), ir.create_graph(once, x)
        minus = ir.create_graph(lambda x: once(x) * -1, x)
        outer = ir.create_graph(lambda x: ops.repeat(graph, 2, x)[0], x)
        (x,) = ops.call(graph, x)
        (x,) = ops.repeat(outer, 1, x)
        ops.host_store(sink, x + ops.host_load(source))
        (x,) = ops.call(other, x)
        (x,) = ops.conditional(popxl.constant(False), other, minus, [x], [x])
        last = stored_once(x)
    data = np.random.default_rng(1).normal(size=(9, 2)).astype(np.float32)
    with popxl.Session(ir, backend) as session:
        (found, end) = (session.run({source: data})[each] for each in (sink, last))
    x, expected = np.zeros(2), []
    for number in range(3):
        x = x + data[2 * number]
        expected.append(x)
        x = x * data[2 * number + 1]
        expected.append(x)
    expected += [x + data[6], x - data[7], x - data[7] - data[8]]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(end[0], -expected[-1], rtol=1e-5, atol=1e-6)


def stored_once(x: popxl.Tensor) -> Any:
    """Store a tensor nine times, as often as all streams of the program are stored."""
    graph = popxl.gir().create_empty_graph("nine")
    (stream,) = [popxl.d2h_stream(x.shape, x.dtype)]
    with graph:
        given = popxl.graph_input(x.shape, x.dtype)
        ops.host_store(stream, given)
    ops.repeat(graph, 9, x)
    return stream


def test_branches_that_load_differently_are_refused(main: popxl.Graph) -> None:
    source = popxl.h2d_stream((), popxl.float32)
    loading = main.ir.create_graph(lambda x: x + ops.host_load(source), SPEC)
    plain = main.ir.create_graph(lambda x: x + 1, SPEC)
    with pytest.raises(popxl.popart_exception, match="must load as many tensors"):
        ops.conditional(popxl.constant(True), loading, plain, [1.0], [1.0])


def test_a_result_of_a_call_may_be_an_input_of_it(backend: str) -> None:
    def build(ir: popxl.Ir) -> Any:
        graph = ir.create_graph(lambda a, b: (b, a, a), SPEC, SPEC)
        return ops.call(graph, 1.0, 2.0)

    assert [each.item() for each in results(backend, build)] == [2, 1, 1]


def test_graphs_are_called_from_graphs_built_before(backend: str) -> None:
    def build(ir: popxl.Ir) -> Any:
        outer = ir.create_empty_graph("outer")
        inner = ir.create_graph(lambda x: ops.tanh(x), SPEC)
        with outer:
            x = popxl.graph_input((), popxl.float32, "x")
            popxl.graph_output(ops.call(inner, ops.call(inner, x))[0] + 1)
        assert outer.called_graphs == (inner,)
        return ops.call(outer, 0.5)

    (found,) = results(backend, build)
    np.testing.assert_allclose(found, np.tanh(np.tanh(0.5)) + 1, rtol=1e-6)


def test_stored_twice_and_loaded_twice() -> None:
    ir = popxl.Ir()
    ir.num_host_transfers = 2
    with ir.main_graph:
        source = popxl.h2d_stream((), popxl.int32)
        first, second = ops.host_load(source), ops.host_load(source)
        sink = popxl.d2h_stream((), popxl.int32)
        ops.host_store(sink, first + second)
        ops.host_store(sink, first - second)
        assert len(stored([])) == 0
    with popxl.Session(ir) as session:
        assert session.run({source: [7, 5]})[sink].tolist() == [12, 2]
