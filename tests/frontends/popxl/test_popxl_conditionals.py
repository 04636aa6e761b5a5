"""What is known of a conditional, and what its graphs change in the caller's tensors."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import weft_popxl as popxl
from weft_popxl import ops

Home = SimpleNamespace


def home(condition: bool = True) -> Home:
    """Return an open program with two variables and graphs of them."""
    h = Home(ir=popxl.Ir())
    with h.ir.main_graph:
        h.cond = popxl.variable(condition, name="cond")
        h.a, h.b = popxl.variable([1.0, 2.0], name="a"), popxl.variable([10.0, 20.0], name="b")
        h.sums = h.ir.create_graph(lambda a, b: (a + b, a - b), h.a, h.b)
        h.products = h.ir.create_graph(lambda b, a: (a * b, a / b), h.b, h.a)
        h.info = ops.conditional_with_info(
            h.cond, h.sums, h.products, then_inputs=(h.a, h.b), else_inputs=(h.b, h.a)
        )
    return h


def test_inputs_find_their_branch() -> None:
    h = home()
    assert [h.info.is_parent_index_in_then_branch(n) for n in range(1, 5)] == [1, 1, 0, 0]
    assert [h.info.parent_to_graph_input_index(n) for n in range(1, 5)] == [0, 1, 0, 1]
    assert [h.info.graph_to_parent_input_index(n, True) for n in range(2)] == [1, 2]
    assert [h.info.graph_to_parent_input_index(n, False) for n in range(2)] == [3, 4]
    assert [h.info.graph_to_parent_output_index(n, False) for n in range(2)] == [0, 1]
    for wrong in (0, 5, -1):
        with pytest.raises(IndexError, match="one of its graphs: they have 1 to 4"):
            h.info.is_parent_index_in_then_branch(wrong)
        with pytest.raises(IndexError, match="one of its graphs"):
            h.info.parent_to_graph_input_index(wrong)
    for branch in (True, False):
        with pytest.raises(IndexError):
            h.info.graph_to_parent_input_index(2, branch)


def test_tensors_find_their_branch() -> None:
    h = home()
    for graph, first in ((h.sums, 1), (h.products, 3)):
        for number, tensor in enumerate(graph.inputs):
            assert h.info.graph_to_parent(tensor) is h.info.inputs[first + number]
        for inner, outer in zip(graph.outputs, h.info.outputs, strict=True):
            assert h.info.graph_to_parent(inner) is outer
    assert h.info.parent_to_graph(h.a) is h.sums.inputs[0]
    assert h.info.parent_to_graph(h.b) is h.sums.inputs[1]
    with h.ir.main_graph:
        single = h.ir.create_graph(lambda: (popxl.constant([0.0, 0.0]),))
        info = ops.conditional_with_info(
            h.cond, single, h.ir.create_graph(lambda x: x * 1.0, h.b), else_inputs=[h.b]
        )
    assert info.parent_to_graph(h.b) is info.else_graph.inputs[0]
    assert info.is_parent_index_in_then_branch(1) is False
    for tensor in (h.cond, h.products.inputs[0]):
        with pytest.raises(ValueError, match="neither an input nor an output"):
            info.parent_to_graph(tensor)
    assert "ConditionalInfo[graph=" in repr(info)


def added(x: popxl.Tensor, y: popxl.Tensor) -> popxl.Tensor:
    ops.add_(x, y)
    return x + 0.0


def scaled(y: popxl.Tensor, x: popxl.Tensor) -> popxl.Tensor:
    ops.var_updates.accumulator_scale_(x, 3.0)
    return y + 0.0


def plain(x: popxl.Tensor) -> popxl.Tensor:
    return x * 2.0


CHOICES: dict[str, tuple[Any, str, Any, str, list[list[float]], list[list[float]]]] = {
    "both": (added, "ab", scaled, "ba", [[11, 22], [11, 22]], [[10, 20], [3, 6]]),
    "the first": (added, "ab", plain, "a", [[11, 22], [11, 22]], [[2, 4], [1, 2]]),
    "the second": (plain, "b", scaled, "ba", [[20, 40], [1, 2]], [[10, 20], [3, 6]]),
    "without it": (plain, "b", plain, "b", [[20, 40], [1, 2]], [[20, 40], [1, 2]]),
}


@pytest.mark.parametrize("condition", [True, False])
@pytest.mark.parametrize("case", CHOICES)
def test_changes_reach_the_caller(case: str, condition: bool, backend: str) -> None:
    one, ones, other, others, *wanted = CHOICES[case]
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        cond = popxl.variable(condition)
        named = {"a": popxl.variable([1.0, 2.0], name="a"), "b": popxl.variable([10.0, 20.0])}
        given = [[named[name] for name in names] for names in (ones, others)]
        graphs = [ir.create_graph(f, *each) for f, each in zip((one, other), given, strict=True)]
        for is_modified in (False, True):
            info = ops.conditional_with_info(cond, *graphs, *given)
            if is_modified and any(named["a"] is each for each in info.inputs):
                info.set_parent_input_modified(named["a"])
            info.set_parent_input_modified(named["b"]) if case == "without it" else None
        sinks = [popxl.d2h_stream((2,), popxl.float32) for _ in range(2)]
        ops.host_store(sinks[0], info.outputs[0])
        ops.host_store(sinks[1], named["a"])
    with popxl.Session(ir, backend) as session:
        found = session.run()
        assert [found[sink].tolist() for sink in sinks] == wanted[not condition]
        np.testing.assert_array_equal(session.get_tensor_data(named["a"]), wanted[not condition][1])


def test_changes_in_graphs_with_streams(backend: str) -> None:
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        source, sink = popxl.h2d_stream((), popxl.float32), popxl.d2h_stream((), popxl.float32)
        total, cond = popxl.variable(1.0), popxl.variable(True)

        def more(x: popxl.Tensor) -> None:
            ops.add_(x, ops.host_load(source))
            ops.host_store(sink, x)

        def none(x: popxl.Tensor) -> None:
            ops.host_store(sink, x - ops.host_load(source))

        graphs = [ir.create_graph(f, total) for f in (more, none)]
        info = ops.conditional_with_info(cond, *graphs, [total], [total])
        info.set_parent_input_modified(total, infer_modified_regions=False)
    with popxl.Session(ir, backend) as session:
        assert [session.run({source: 2.0})[sink].item() for _ in range(2)] == [3, 5]
        session.write_variable_data(cond, False)
        assert [session.run({source: 2.0})[sink].item() for _ in range(2)] == [3, 3]


def test_what_cannot_be_said_to_be_modified() -> None:
    h = home()
    with h.ir.main_graph:
        with pytest.raises(ValueError, match="is not an input of this conditional"):
            h.info.set_parent_input_modified(popxl.variable(1.0))
        h.info.set_parent_input_modified(h.cond)
        h.info.set_parent_input_modified(h.a)
        graph = h.ir.create_graph(added, h.a, h.b)
        info = ops.conditional_with_info(h.cond, graph, graph, [h.a, h.b], [h.a, h.b])
        assert h.a.shape == (h.a + 1.0).shape
        with pytest.raises(popxl.popart_exception, match=r"was used after the call, by <add"):
            info.set_parent_input_modified(h.a)

        def swap(x: popxl.Tensor, y: popxl.Tensor) -> None:
            ops.add_(x, 1.0)
            ops.add_(y, 2.0)

        both = h.ir.create_graph(swap, h.b, h.b)
        info = ops.conditional_with_info(h.cond, both, both, [h.b, h.b], [h.b, h.b])
        with pytest.raises(popxl.popart_exception, match="two inputs that are the same memory"):
            info.set_parent_input_modified(h.b)


def test_the_infos_take_popxls_hint() -> None:
    h = home()
    with h.ir.main_graph:
        inputs = dict(zip(h.sums.inputs, (h.a, h.b), strict=True))
        ops.call_with_info(h.sums, inputs_dict=inputs, check_inputs=False)
        ops.repeat_with_info(h.sums, 2, inputs_dict=inputs, check_inputs=True)
        with pytest.raises(ValueError, match="Not enough inputs"):
            ops.call_with_info(h.sums, check_inputs=False)
