"""Irs, graphs, names and contexts, and how arguments of functions become inputs of graphs."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pytest

import weft_popxl as popxl
from weft_popxl import ops

SPEC = popxl.TensorSpec((2,), popxl.float32)


@pytest.fixture
def ir() -> Any:
    made = popxl.Ir()
    with made.main_graph:
        yield made


def plain(x: popxl.Tensor) -> popxl.Tensor:
    return x + 1


def shapes_of(graph: popxl.Graph) -> list[tuple[str, tuple[int, ...]]]:
    return [(each.name, each.shape) for each in graph.inputs]


def test_an_ir_has_one_main_graph() -> None:
    ir = popxl.Ir()
    assert ir.main_graph is ir.main_graph
    assert ir.main_graph.main_graph is ir.main_graph
    assert ir.main_graph.ir is ir
    assert (ir.num_host_transfers, ir.replication_factor) == (1, 1)
    assert popxl.Ir(replication=2).replication_factor == 2
    assert ir == ir
    assert ir != popxl.Ir()
    assert len({ir, ir, popxl.Ir()}) == 2


def test_graphs_are_named_and_numbered(ir: popxl.Ir) -> None:
    class Doubled(popxl.Module):
        def build(self, x: popxl.Tensor) -> popxl.Tensor:
            return x * 2

    first, second = (ir.create_graph(plain, SPEC) for _ in range(2))
    third = ir.create_graph(Doubled(), SPEC)
    fourth = ir.create_empty_graph("own")
    here = "test_graphs_are_named_and_numbered"
    assert [each.id for each in (first, second, third, fourth)] == [
        "plain_subgraph(0)",
        "plain_subgraph(1)",
        f"{here}.Doubled_subgraph(2)",
        "own_subgraph(3)",
    ]
    assert ir.create_empty_graph().name == "graph_subgraph(4)"
    assert first == ir.graphs[1]
    assert first != second
    assert len({first, first, second}) == 2
    assert first != 1


def test_tensors_are_named_after_graph_scope_and_name(ir: popxl.Ir) -> None:
    assert popxl.variable(1, name="a").id == "a"
    again = popxl.variable(1, name="a")
    assert again.id not in ("a", "")
    assert again.id.startswith("a")
    with popxl.name_scope("outer"), popxl.name_scope("inner"):
        scoped = popxl.constant(1, name="c")
    assert (scoped.id, scoped.name, scoped.scope) == (
        "outer/inner/c",
        "outer/inner/c",
        "outer/inner",
    )
    graph = ir.create_graph(plain, SPEC)
    assert (graph.inputs[0].id, graph.inputs[0].name) == ("plain_subgraph(0)/x", "x")
    assert graph.inputs[0].scope == "plain_subgraph(0)"
    assert graph.outputs[0].name.startswith("t")
    assert len({each.id for g in ir.graphs for each in g.tensors}) == sum(
        len(g.tensors) for g in ir.graphs
    )


def test_outputs_of_calls_are_named_after_those_of_the_graph(ir: popxl.Ir) -> None:
    graph = ir.create_empty_graph()
    with graph, popxl.name_scope("scope"):
        popxl.graph_output(ops.init((2,), popxl.int8, "made"))
    (first,), (second,) = ops.call(graph), ops.call(graph)
    assert first.name == "made"
    assert second.name.startswith("made")


def test_a_graph_lists_what_is_in_it(ir: popxl.Ir) -> None:
    main = ir.main_graph
    v, c = popxl.variable([1.0, 2.0], name="v"), popxl.constant(3.0, name="c")
    graph = ir.create_graph(plain, SPEC)
    (y,) = ops.call(graph, v * c)
    assert main.variables == (v,)
    assert main.constants == (c,)
    assert set(main.tensors) >= {v, c, y}
    assert main.called_graphs == (graph,)
    assert main.get_tensor("v") is v
    assert v in main
    assert v not in graph
    assert graph.inputs_by_name == {"x": graph.inputs[0]}
    assert graph.main_graph is main


def test_hooks_hear_of_the_ops_of_their_graph(ir: popxl.Ir) -> None:
    heard: list[str] = []
    handle = ir.main_graph.register_op_created_hook(lambda op: heard.append(op.kind))
    v = popxl.variable([1.0, 2.0])
    graph = ir.create_graph(plain, v)
    ops.call(graph, v)
    ops.add_(v, 1)
    ir.main_graph.remove_op_created_hook(handle)
    ops.exp(v)
    assert heard == ["call", "add_"]


def test_the_current_graph_is_the_innermost(ir: popxl.Ir) -> None:
    seen: list[Any] = []

    def function() -> None:
        seen.extend([popxl.gcg(), popxl.gmg(), popxl.gir()])

    graph = ir.create_graph(function)
    assert seen == [graph, ir.main_graph, ir]
    assert popxl.gcg() is ir.main_graph
    with graph, ir.main_graph:
        assert popxl.get_current_graph() is popxl.get_main_graph() is ir.main_graph
        assert popxl.get_ir() is ir


def test_threads_have_contexts_of_their_own(ir: popxl.Ir) -> None:
    seen: list[Any] = []

    def build() -> None:
        with pytest.raises(RuntimeError):
            popxl.gcg()
        other = popxl.Ir()
        with other.main_graph:
            seen.append(popxl.gir() is other)

    thread = threading.Thread(target=build)
    thread.start()
    thread.join()
    assert seen == [True]
    assert popxl.gir() is ir


def test_in_sequence_nests_and_decorates(ir: popxl.Ir) -> None:
    def now() -> bool:
        return popxl.context.current.get().in_sequence

    inside = popxl.in_sequence(True)(now)
    assert not now()
    assert inside()
    assert inside(), "a decorated function can be called again"
    with popxl.in_sequence():
        assert now()
        with popxl.in_sequence(False):
            assert not now()
            with popxl.in_sequence("pass"):
                assert not now()
        with popxl.in_sequence("pass"):
            assert now()
    assert not now()


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "names"),
    [
        (lambda x, y: None, (SPEC, SPEC), {}, ["x", "y"]),
        (lambda x, y: None, (SPEC,), {"y": SPEC}, ["x", "y"]),
        (lambda x, n=3: None, (SPEC,), {}, ["x"]),
        (lambda x, n: None, (SPEC, 3), {}, ["x"]),
        (lambda xs: None, ([SPEC, SPEC],), {}, ["xs_0", "xs_1"]),
        (lambda xs: None, ((SPEC, SPEC),), {}, ["xs_0", "xs_1"]),
        (lambda *xs: None, (SPEC, SPEC), {}, ["xs_0", "xs_1"]),
        (lambda **xs: None, (), {"a": SPEC, "b": SPEC}, ["a", "b"]),
        (lambda xs: None, ([1, 2],), {}, []),
        (lambda xs: None, ({"a": SPEC},), {}, []),
        (lambda xs: None, ([],), {}, []),
    ],
)
def test_which_arguments_become_inputs(
    ir: popxl.Ir, function: Any, args: Any, kwargs: Any, names: list[str]
) -> None:
    graph = ir.create_graph(function, *args, **kwargs)
    assert shapes_of(graph) == [(name, (2,)) for name in names]


def test_what_a_function_gets(ir: popxl.Ir) -> None:
    got: dict[str, Any] = {}

    def function(
        x: popxl.Tensor, xs: Any, options: Any, n: int = 4, *rest: Any, **more: Any
    ) -> Any:
        got.update(x=x, xs=xs, options=options, n=n, rest=rest, more=more)
        return [x, xs[1]]

    v = popxl.variable([1.0, 2.0])
    graph = ir.create_graph(function, v, (SPEC, v), {"v": v}, more=v)
    assert [each.graph for each in (got["x"], *got["xs"], got["more"]["more"])] == [graph] * 4
    assert isinstance(got["xs"], tuple)
    assert got["options"] == {"v": v}
    assert (got["n"], got["rest"]) == (4, ())
    assert graph.outputs == (got["x"], got["xs"][1])


def test_inputs_are_declared_by_reference(ir: popxl.Ir) -> None:
    def annotated(x: popxl.TensorByRef, y: popxl.Tensor) -> None: ...

    by_spec = popxl.TensorSpec((2,), popxl.float32, by_ref=True)
    assert [each.by_ref for each in ir.create_graph(annotated, SPEC, SPEC).inputs] == [True, False]
    assert [each.by_ref for each in ir.create_graph(plain, by_spec).inputs] == [True]
    graph = ir.create_empty_graph()
    with graph:
        assert popxl.graph_input((2,), popxl.int8, "x", by_ref=True).by_ref


def test_a_module_keeps_its_inputs_and_overwrites_them(ir: popxl.Ir) -> None:
    class Scaled(popxl.Module):
        W: Any = None

        def build(self, x: popxl.Tensor) -> popxl.Tensor:
            y = popxl.graph_input((), popxl.float32, "first")
            self.W = popxl.graph_input(x.shape, x.dtype, "W")
            return x * self.W + y

    module = Scaled()
    first = ir.create_graph(module, SPEC)
    kept = module.W
    second = ir.create_graph(module, popxl.TensorSpec((3,), popxl.float32))
    assert shapes_of(first) == [("x", (2,)), ("first", ()), ("W", (2,))]
    assert kept is first.inputs[2]
    assert module.W is second.inputs[2]


def test_modules_and_partial_functions_nest(ir: popxl.Ir) -> None:
    class Inner(popxl.Module):
        def build(self, x: popxl.Tensor) -> popxl.Tensor:
            self.w = popxl.graph_input(x.shape, x.dtype, "w")
            return x * self.w

    class Outer(popxl.Module):
        def __init__(self) -> None:
            self.parts = [Inner(), Inner()]

        def build(self, x: popxl.Tensor) -> popxl.Tensor:
            for part in self.parts:
                x = part(x)
            return x

    outer = Outer()
    graph = ir.create_graph(outer, SPEC)
    assert [each.w for each in outer.parts] == list(graph.inputs[1:])
    assert len({each.id for each in graph.inputs}) == 3
    assert ir.create_graph(partial(partial(plain)), SPEC).name.startswith("plain_subgraph(")


def test_outputs_may_be_an_iterator_or_be_declared(ir: popxl.Ir) -> None:
    graph = ir.create_graph(lambda x: (each for each in (x, x + 1)), SPEC)
    assert len(graph.outputs) == 2
    assert graph.outputs[0] is graph.inputs[0]

    def declaring(x: popxl.Tensor) -> popxl.Tensor:
        popxl.graph_output(x)
        return x * 2

    assert len(ir.create_graph(declaring, SPEC).outputs) == 2


def test_streams_that_are_used_are_listed(ir: popxl.Ir) -> None:
    h2d = popxl.h2d_stream((2,), popxl.float32, "in")
    d2h = popxl.d2h_stream((2,), popxl.float32, "out")
    assert (ir.get_all_h2d_streams(), ir.get_all_d2h_streams()) == (set(), set())
    graph = ir.create_graph(lambda: ops.host_store(d2h, ops.host_load(h2d, "loaded")))
    assert (ir.get_all_h2d_streams(), ir.get_all_d2h_streams()) == ({h2d}, {d2h})
    ops.call(graph)
    assert (ir.get_all_h2d_streams(), ir.get_all_d2h_streams()) == ({h2d}, {d2h})
    assert "in" in repr(h2d)
    assert (h2d.name, h2d.tensor_id, h2d.spec) == ("in", "in", SPEC)
    assert popxl.h2d_stream((2,), popxl.float32, "in").name != "in"
    with graph:
        assert popxl.h2d_stream((), popxl.float32).ir is ir
