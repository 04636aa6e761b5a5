"""Steps of a transformation; a transformer outlives errors of computations until it is closed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft import plugins
from weft.plugins import hookimpl


def broken(x: weft.TensorOp, label: str):
    class Failing(weft.GraphPass):
        def do_pass(self, graph: weft.Graph, target: weft.Target):
            if any(op.label == label for op in graph.ops):
                raise ValueError(f"refused {label}")
            return graph

    return (x * 2).named(label), Failing()


def test_each_computation_reports_its_own_error():
    x = weft.placeholder((2,))
    first, refuse_first = broken(x, "first")
    second, refuse_second = broken(x, "second")
    transformer = weft.make_transformer("numpy", passes=[refuse_first, refuse_second, "decompose"])
    one, other = transformer.computation(first, x), transformer.computation(second, x)
    good = transformer.computation(x + 1, x)
    for computation, message in ((one, "first"), (other, "second"), (one, "first")):
        with pytest.raises(ValueError, match=f"refused {message}"):
            computation([1, 2])
    assert good([1, 2]).tolist() == [2, 3]


def test_a_computation_that_failed_is_tried_again():
    x = weft.placeholder((2,))
    y, refuse = broken(x, "y")
    transformer = weft.make_transformer("numpy", passes=[refuse, "decompose"])
    twice = transformer.computation(y, x)
    with pytest.raises(ValueError, match="refused y"):
        twice([1, 2])
    transformer.graph_passes.remove(refuse)
    assert twice([1, 2]).tolist() == [2, 4]


def test_values_can_be_read_beside_a_broken_computation():
    w = weft.variable((2,), initial_value=1)
    y, refuse = broken(w, "y")
    transformer = weft.make_transformer("numpy", passes=[refuse, "decompose"])
    transformer.computation(y)
    assert transformer.get_value(w).tolist() == [1, 1]
    transformer.set_value(w, [3, 4])
    assert transformer.get_value(w).tolist() == [3, 4]


def test_values_can_be_read_where_computations_end_with_initialization():
    w, v = weft.variable((), initial_value=1), weft.variable((), initial_value=2)
    transformer = weft.make_transformer("numpy", strict_finalize=True)
    transformer.computation(w)()
    assert transformer.get_value(v) == 2


def test_a_closed_transformer_refuses_everything():
    x = weft.placeholder((2,))
    transformer = weft.make_transformer("numpy")
    twice = transformer.computation(x * 2, x)
    twice([1, 2])
    transformer.close()
    out = np.empty(2, np.float32)
    for use in (
        lambda: twice([1, 2]),
        lambda: twice([1, 2], out=out),
        lambda: transformer.computation(x, x),
        lambda: transformer.get_value(weft.variable(())),
    ):
        with pytest.raises(weft.errors.StateError, match="has been closed"):
            use()
    assert transformer.idle_arenas == []


def test_a_hook_that_fails_is_named():
    class Observer:
        @hookimpl
        def weft_computation_compiled(self, computation: weft.Computation):
            raise ValueError("the observer stumbles")

    observer = Observer()
    plugins.register(observer, "stumbling")
    try:
        x = weft.placeholder(())
        twice = weft.make_transformer("numpy").computation(x * 2, x)
        with pytest.raises(weft.errors.PluginError, match="stumbling"):
            twice(2)
        assert twice(2) == 4
    finally:
        plugins.unregister(observer)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda t, x: t.computation(3.0), "returns ops, not 3.0"),
        (lambda t, x: t.computation(x * 2, [x]), "one by one"),
        (lambda t, x: t.computation(x * 2, "x"), "'x'"),
        (lambda t, x: t.computation(x * 2, x)(x=[1, 2]), "by position"),
        (lambda t, x: t.computation(x * 2, x)(weft.constant([1, 2])), "a call takes arrays"),
        (lambda t, x: t.register_graph_pass(weft.GraphPass), "GraphPass class"),
        (lambda t, x: weft.make_transformer("numpy", passes="decompose"), r"\['decompose'\]"),
    ],
)
def test_what_a_wrong_use_says(use: Callable[..., Any], message: str):
    with pytest.raises(weft.errors.ArgumentError, match=message):
        use(weft.make_transformer("numpy"), weft.placeholder((2,)))


def test_an_error_in_a_visitor_names_pass_and_op():
    class Careless(weft.PeepholeGraphPass):
        @weft.visit.on_type(weft.ops.ExpOp)
        def visit(self, op: weft.TensorOp):
            raise KeyError("oops")

    x = weft.placeholder(())
    with pytest.raises(KeyError) as caught:
        weft.make_transformer("numpy", passes=[Careless()]).computation(weft.exp(x), x)(1)
    assert "in pass Careless, visiting" in caught.value.__notes__[0]
    assert "test_life_cycle.py" in caught.value.__notes__[0]


def test_buffers_are_allocated_once_by_the_first_call():
    transformer = weft.make_transformer("numpy")
    seen = []
    allocate = transformer.allocate_storage

    def watched():
        seen.append([(storage.name, storage.allocated) for storage in transformer.device_buffers])
        allocate()

    transformer.allocate_storage = watched
    w = weft.variable((2,), initial_value=[1, 2])
    c = transformer.computation(weft.tanh(w) + weft.sum(w * 2))
    flags = ("finalized", "allocated", "initialized")
    assert [getattr(transformer, flag) for flag in flags] == [False] * 3
    assert len(transformer.device_buffers) == 0
    c()
    assert [getattr(transformer, flag) for flag in flags] == [True] * 3
    ((*before,),) = seen
    assert len(before) > 1
    assert {allocated for _, allocated in before} == {False}
    assert all(storage.allocated for storage in transformer.device_buffers)
    transformer.initialize()
    c()
    assert len(seen) == 1


def test_a_transformer_without_computations_can_be_initialized(transformer: weft.Transformer):
    transformer.initialize()
    transformer.initialize()
    assert transformer.initialized
    assert transformer.computation(weft.constant(1) + 1)().item() == 2


class Recorder(weft.NumPyTransformer):
    """Notes the steps of the life cycle."""

    def __init__(self, **options: Any):
        super().__init__(**options)
        self.log = []

    def run_registered_graph_passes(self, programs: list[Any]):
        programs = list(programs)
        self.log.append(("passes", [program.name for program in programs]))
        super().run_registered_graph_passes(programs)

    def initialize_tensor_descriptions(self, program: weft.Program):
        before = set(self.device_buffers)
        super().initialize_tensor_descriptions(program)
        new = [storage for storage in self.device_buffers if storage not in before]
        self.log.append(("describe", program.name, [(s.name, s.allocated) for s in new]))

    def start_transform_allocate(self):
        self.log.append(("start allocation", len(self.allocations)))

    def finish_transform_allocate(self):
        self.log.append(("finish allocation", len(self.allocations)))

    def transform_ordered_ops(self, program: weft.Program, ordered_ops: list[Any], name: str):
        place = {step.op: number for number, step in enumerate(ordered_ops)}
        for op, number in place.items():
            assert all(place.get(arg, -1) < number for arg in op.args)
        self.log.append(("transform", name, [type(step.op).__name__ for step in ordered_ops]))
        return super().transform_ordered_ops(program, ordered_ops, name)

    def finish_transform(self):
        self.log.append(("finish",))

    def allocate_storage(self):
        assert not any(action.__self__.allocated for action in self.allocations)
        self.log.append(("allocate", len(self.allocations)))
        super().allocate_storage()


def computed(*values: Any):
    """Return what a program computes; constants are copied without one."""
    return weft.exp(weft.log(weft.constant(np.array(values, np.float32))))


def test_the_steps_of_a_transformation_come_in_order():
    transformer = Recorder()
    w = weft.variable((2,), initial_value=computed(1, 2), name="w")
    x = weft.placeholder((2,), name="x")
    first = transformer.computation(weft.tanh(w * x) + weft.exp(x), x, name="first")
    assert list(transformer.computations) == [first]
    assert list(transformer.all_results) == list(first.results)
    assert transformer.log == []
    assert len(transformer.device_buffers) == 0

    first([1, 1])
    kinds = [entry[0] for entry in transformer.log]
    assert kinds == [
        "passes", "passes", "describe", "describe", "start allocation", "finish allocation",
        "transform", "transform", "finish", "allocate",
    ]  # fmt: skip
    log = transformer.log
    assert log[0][1] == ["first_1"]
    assert log[1][1] == [f"{transformer.init_computation.name}_2"]
    assert (w.name, False) in log[2][2]
    assert ("arena", False) in log[2][2]
    assert log[4] == ("start allocation", 0)
    assert log[5] == ("finish allocation", len(transformer.device_buffers))
    assert log[6][1:] == ("first_1", ["FusedOp"])
    assert log[9] == ("allocate", len(transformer.device_buffers))
    assert callable(first.executor)


def test_initialization_is_incremental():
    transformer = Recorder()
    w = weft.variable((2,), initial_value=computed(1, 2), name="w")
    transformer.computation(w * 2)()
    transformer.log.clear()
    v = weft.variable((2,), initial_value=computed(3, 4), name="v")
    later = transformer.computation(weft.tanh(w + v), name="later")
    assert transformer.log == []
    np.testing.assert_allclose(later(), np.tanh([4, 6]), rtol=1e-5)
    described = {entry[1]: entry[2] for entry in transformer.log if entry[0] == "describe"}
    assert [name for name, _ in described["later_3"]] == [v.name]
    (transformed,) = (e for e in transformer.log if e[0] == "transform" and e[1] != "later_3")
    assert transformed[2] == ["ContiguousOp"]
    transformer.log.clear()
    later()
    transformer.initialize()
    assert transformer.log == []


def test_initialize_can_be_called_by_hand():
    transformer = Recorder()
    x = weft.placeholder((2,))
    c = transformer.computation(x + 1, x)
    transformer.initialize()
    assert transformer.initialized
    transformer.log.clear()
    assert c([1, 2]).tolist() == [2, 3]
    assert transformer.log == []


def test_computations_can_be_created_after_initialization_unless_that_is_refused():
    x = weft.placeholder(())
    strict = weft.make_transformer("numpy", strict_finalize=True)
    c = strict.computation(x + 1, x)
    strict.initialize()
    with pytest.raises(ValueError, match="Cannot create computations from a finalized transformer"):
        strict.computation(x + 2, x)
    assert c(1).item() == 2
