"""Computations: arguments and results, source and executor, and what they share with others."""

from __future__ import annotations

import traceback
import types
from typing import Any

import numpy as np
import pytest

import weft
from weft.ops.pointwise.elementwise import ElementwiseOp
from weft.plugins.entrypoints import DEFAULT_PIPELINE


def test_a_shared_operand_is_computed_once_and_not_clobbered():
    x = weft.placeholder((4,))
    x1 = x + x
    y = x1 * x1 - x
    transformer = weft.make_transformer("numpy")
    alone, both = transformer.computation(y, x), transformer.computation([x1, y], x)
    assert alone([1, 2, 3, 4]).tolist() == [3, 14, 33, 60]
    assert [v.tolist() for v in both([1, 2, 3, 4])] == [[2, 4, 6, 8], [3, 14, 33, 60]]
    assert alone.source.count("add(") == 1
    assert both.source.count("add(") == 1


def test_the_executor_is_set_when_the_transformation_is_finished():
    executors = {}

    class Watching(weft.NumPyTransformer):
        def finish_transform(self):
            executors.update({c: c.executor for c in self.computations})

    transformer = Watching()
    x = weft.placeholder((2,))
    c = transformer.computation(x + 1, x)
    before = c.executor
    c([1, 2])
    assert executors[c] is c.executor is not before
    assert isinstance(c.executor, types.FunctionType)


def test_an_executor_may_be_any_callable():
    class Kernels:
        def __init__(self):
            self.calls = 0

        def __call__(self, x: np.ndarray):
            self.calls += 1
            return x * 3

    x = weft.placeholder((2,))
    transformer = weft.make_transformer("numpy")
    c = transformer.computation(x + 1, x)
    transformer.initialize()
    c.executor = group = Kernels()
    assert c(np.ones(2)).tolist() == [3, 3]
    assert group.calls == 1


def test_the_generated_source_is_text_that_compiles():
    x = weft.placeholder((3,))
    y = weft.exp(weft.tanh(x) * weft.sin(x))
    unfused = [name for name in DEFAULT_PIPELINE if name != "fusion"]
    c = weft.make_transformer("numpy", passes=unfused).computation(y, x)
    compile(c.source, "generated", "exec")
    ops = [op for op in c.program.graph.ops if isinstance(op, ElementwiseOp)]
    assert len(ops) == 4
    statements = [line.strip() for line in c.source.splitlines()]
    calls = [line.partition("(")[0] for line in statements if line.endswith((" r0)", " v0)"))]
    assert calls == ["tanh", "sin", "multiply", "exp"]
    assert f"test_computation.py:{y.lineno}" in c.source


def test_the_generated_source_of_a_kernel_has_the_lines_of_its_ops():
    x = weft.placeholder((3,))
    inner = weft.tanh(x)
    outer = weft.exp(inner)
    c = weft.make_transformer("numpy").computation(outer, x)
    compile(c.source, "generated", "exec")
    assert [type(step.op).__name__ for step in c.plan.steps] == ["FusedOp"]
    for op in (inner, outer):
        assert f"test_computation.py:{op.lineno}" in c.source


def test_the_generated_source_is_in_tracebacks():
    class Broken(RuntimeError):
        pass

    class Failing:
        def __call__(self, *_args: Any):
            raise Broken

    x = weft.placeholder((3,))
    c = weft.make_transformer("numpy").computation(weft.print_op(x) + 1, x)
    c([1, 2, 3])
    shown = next(op for op in c.program.graph.ops if type(op).__name__ == "PrintOp")
    object.__setattr__(shown, "perform", Failing())
    again = weft.make_transformer("numpy").computation(weft.Graph(
        inputs=c.program.graph.inputs, outputs=c.program.graph.outputs, effects=[shown],
    ))  # fmt: skip
    with pytest.raises(Broken) as caught:
        again(np.ones(3, np.float32))
    lines = traceback.format_exception(caught.value)
    assert any("<weft numpy" in line and "perform" in line for line in lines)


def test_two_transformers_share_a_graph_and_not_its_state(backend: str):
    w = weft.variable((), initial_value=5)
    weft.assign(w, w + 1)
    first = weft.make_transformer(backend).computation(w)
    assert [first().item(), first().item()] == [6, 7]
    second = weft.make_transformer("numpy").computation(w)
    assert [second().item(), first().item(), second().item()] == [6, 8, 7]


def test_a_computation_after_the_first_call_sees_the_state(transformer: weft.Transformer):
    w = weft.variable((2,), initial_value=[1, 2])
    with weft.saved_user_deps():
        double = weft.assign(w, w * 2)
    transformer.computation(double)()
    buffers = len(transformer.device_buffers)
    x = weft.placeholder((2,))
    late = transformer.computation(w + x, x)
    assert late([10, 20]).tolist() == [12, 24]
    assert transformer.state_tensors.keys() == {w}
    assert len(transformer.device_buffers) <= buffers + 1


def test_results_belong_to_the_caller(transformer: weft.Transformer):
    w = weft.variable((2,), initial_value=[1, 2])
    weft.assign(w, w + 1)
    c = transformer.computation(w)
    a = c()
    kept = a.copy()
    a_again = c()
    assert not np.shares_memory(a, a_again)
    assert a.tolist() == kept.tolist()
    a[:] = 100
    assert c().tolist() == [4, 5]


def test_constants_and_parameters_are_not_handed_out(transformer: weft.Transformer):
    c, x = weft.constant([1.0, 2.0]), weft.placeholder((2,))
    value = np.array([5, 6], np.float32)
    first = transformer.computation([c, x, c], x)(value)
    assert len({array.ctypes.data for array in (*first, value)}) == 4
    first[0][:] = 0
    assert transformer.computation(c)().tolist() == [1, 2]


def test_results_come_in_the_structure_that_was_asked_for(transformer: weft.Transformer):
    x = weft.placeholder(())
    y = x + 1
    assert transformer.computation(y, x)(1).item() == 2
    assert [v.item() for v in transformer.computation((x, y), x)(1)] == [1, 2]
    assert {op: v.item() for op, v in transformer.computation({x, y}, x)(1).items()} == {x: 1, y: 2}
    assert transformer.computation({"sum": y}, x)(1)["sum"].item() == 2
    assert transformer.computation(None)() is None
    assert transformer.computation([])() == ()


def test_out_receives_the_results(transformer: weft.Transformer):
    x = weft.placeholder((2,))
    c = transformer.computation([x + 1, x * 2], x)
    out = [np.empty(2, np.float32), np.empty(2, np.float32)]
    got = c([1, 2], out=out)
    assert [a is b for a, b in zip(got, out, strict=True)] == [True, True]
    assert [a.tolist() for a in out] == [[2, 3], [2, 4]]


def test_out_may_be_the_memory_of_an_argument(transformer: weft.Transformer):
    x = weft.placeholder((4,))
    y = weft.tanh(x)
    c = transformer.computation([y + 1, x * y], x)
    value = np.array([1, 2, 3, 4], np.float32)
    expected = [array.copy() for array in c(value)]
    got = c(value, out=[value, np.empty(4, np.float32)])
    for mine, theirs in zip(got, expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_feed_dict_gives_arguments_by_placeholder(transformer: weft.Transformer):
    x, y = weft.placeholder(()), weft.placeholder(())
    c = transformer.computation(x - y, "all")
    assert c.parameters == (x, y)
    assert c(feed_dict={y: 1, x: 5}).item() == 4
    assert c(5, feed_dict={y: 2}).item() == 3


def test_calls_from_several_threads_do_not_meet(transformer: weft.Transformer):
    from concurrent.futures import ThreadPoolExecutor

    x = weft.placeholder((50, 50))
    c = transformer.computation(weft.exp(weft.sin(x @ x) * x) - x, x)
    values = [np.full((50, 50), n / 100, np.float32) for n in range(16)]
    expected = [c(value) for value in values]
    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(c, values * 4))
    for number, array in enumerate(got):
        np.testing.assert_array_equal(array, expected[number % 16])


def test_a_shared_operand_is_fused_and_takes_no_memory(transformer: weft.Transformer):
    x = weft.placeholder((2,))
    x1 = x + x
    y = x1 * x1 - x
    plan = transformer.computation(y, x).plan
    (step,) = plan.steps
    computed = [type(each.op).__name__ for each in step.op.kernel.body]
    assert computed == ["AddOp", "MultiplyOp", "SubtractOp"]
    assert plan.arena_size == 0
    both = transformer.computation([x1, y], x)
    assert [v.tolist() for v in both([1, 2])] == [[2, 4], [3, 14]]
