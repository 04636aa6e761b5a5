"""A transformer outlives the errors of single computations, and ends when it is closed."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft import plugins
from weft.plugins import hookimpl


def broken(x, label):
    class Failing(weft.GraphPass):
        def do_pass(self, graph, target):
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
        def weft_computation_compiled(self, computation):
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
def test_what_a_wrong_use_says(use, message):
    with pytest.raises(weft.errors.ArgumentError, match=message):
        use(weft.make_transformer("numpy"), weft.placeholder((2,)))


def test_an_error_in_a_visitor_names_pass_and_op():
    class Careless(weft.PeepholeGraphPass):
        @weft.visit.on_type(weft.ops.ExpOp)
        def visit(self, op):
            raise KeyError("oops")

    x = weft.placeholder(())
    with pytest.raises(KeyError) as caught:
        weft.make_transformer("numpy", passes=[Careless()]).computation(weft.exp(x), x)(1)
    assert "in pass Careless, visiting" in caught.value.__notes__[0]
    assert "test_life_cycle.py" in caught.value.__notes__[0]
