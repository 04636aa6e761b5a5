"""The rows of contract/graph.md, section 4, on transformers, computations and devices."""

from __future__ import annotations

import traceback
import types

import numpy as np
import pytest
import test_checklist_state as state_rows
from toy_site import SOURCE, installed

import weft
from weft import plugins
from weft.ir.description import contiguous
from weft.ops.pointwise.elementwise import ElementwiseOp
from weft.plugins.entrypoints import DEFAULT_PIPELINE


@pytest.fixture
def toy(tmp_path):
    with installed(tmp_path), weft.make_transformer("toy") as made:
        yield made


def test_c20_a_shared_operand_is_computed_once_and_not_clobbered():
    x = weft.placeholder((4,))
    x1 = x + x
    y = x1 * x1 - x
    transformer = weft.make_transformer("numpy")
    alone, both = transformer.computation(y, x), transformer.computation([x1, y], x)
    assert alone([1, 2, 3, 4]).tolist() == [3, 14, 33, 60]
    assert [v.tolist() for v in both([1, 2, 3, 4])] == [[2, 4, 6, 8], [3, 14, 33, 60]]
    assert alone.source.count("add(") == 1
    assert both.source.count("add(") == 1


def test_c28_initializers_run_once(transformer):
    calls = []

    def first_value():
        calls.append(1)
        return 10

    w = weft.variable((), initial_value=first_value)
    weft.assign(w, w + 1)
    first, second = transformer.computation(w), transformer.computation(w * 2)
    assert first().item() == 11
    assert second().item() == 24
    assert first().item() == 13
    transformer.initialize()
    assert first().item() == 14
    assert calls == [1]
    assert transformer.init_computation.name.startswith("init")


def test_c28_a_later_computation_brings_only_its_own_initializers(transformer):
    w = weft.variable((), initial_value=3)
    with weft.saved_user_deps():
        up = weft.assign(w, w + 1)
    transformer.computation(up)()
    v = weft.variable((), initial_value=w * 2)
    later = transformer.computation(v)
    later()
    assert transformer.get_value(w).item() == 4


def test_c28_an_initial_value_may_depend_on_another_variable(transformer):
    w = weft.variable((), initial_value=3)
    v = weft.variable((), initial_value=w * 2)
    u = weft.variable((), initial_value=v + w)
    assert transformer.computation(u)().item() == 9


def test_c29_lifecycle():
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


def test_c29_a_transformer_without_computations_can_be_initialized(transformer):
    transformer.initialize()
    transformer.initialize()
    assert transformer.initialized
    assert transformer.computation(weft.constant(1) + 1)().item() == 2


def device_buffer(transformer, nbytes=48):
    storage = transformer.device_buffer_storage(nbytes, "test")
    assert storage in transformer.device_buffers
    assert not storage.allocated
    assert "not allocated" in repr(storage)
    return storage


def test_c30_device_tensors_copy_to_and_from_numpy(transformer):
    storage = device_buffer(transformer)
    tensor = storage.device_tensor(contiguous((3, 4), weft.float32))
    storage.transform_allocate()
    transformer.allocate_storage()
    assert (storage.allocated, storage.bytes, storage.views) == (True, 48, [tensor])
    assert tensor.get().tolist() == np.zeros((3, 4)).tolist()
    value = np.arange(12, dtype=np.float32).reshape(3, 4)
    tensor[...] = value
    out = np.empty((3, 4), np.float32)
    assert tensor.get(out) is out
    assert out.tolist() == value.tolist()
    tensor[1, 1:3] = [100, 200]
    assert tensor[1].tolist() == [4, 100, 200, 7]
    assert tensor[:, ::2].tolist() == [[0, 2], [4, 200], [8, 10]]
    kept = tensor.get()
    tensor[...] = 0
    assert kept[1, 1] == 100


def test_c30_views_of_one_buffer_see_each_others_writes(transformer):
    storage = device_buffer(transformer)
    whole = contiguous((3, 4), weft.float32)
    turned = whole.slice([(0, 2, 2), (1, 2, 1)]).transpose((1, 0))
    tensor, view = storage.device_tensor(whole), storage.device_tensor(turned)
    storage.transform_allocate()
    transformer.allocate_storage()
    late = storage.device_tensor(turned.slice([(0, 1, 1), (0, 2, 1)]))
    assert (view.shape, view.strides, view.offset) == ((2, 2), (4, 32), 4)
    assert view.dtype == weft.float32
    tensor[...] = np.arange(12).reshape(3, 4)
    assert view.get().tolist() == [[1, 9], [2, 10]]
    assert late.get().tolist() == [[1, 9]]
    view[1] = -1
    assert tensor.get().tolist() == [[0, 1, -1, 3], [4, 5, 6, 7], [8, 9, -1, 11]]


@pytest.mark.parametrize(
    "row",
    [
        state_rows.test_c06_a_plain_assign_runs_with_every_call,
        state_rows.test_c07_a_guarded_assign_does_not,
        lambda toy: state_rows.test_c08_unless_the_computation_names_it(toy, w_first=True),
        lambda toy: state_rows.test_c08_unless_the_computation_names_it(toy, w_first=False),
    ],
    ids=["C6", "C7", "C8", "C8 reversed"],
)
def test_c31_a_backend_of_a_third_party(toy, row):
    assert type(toy).__name__ == "ToyTransformer"
    row(toy)


def test_c31_it_computes_more_than_that(toy):
    rng = np.random.default_rng(0)
    x = weft.placeholder((4, 3))
    w = weft.variable((3, 2), initial_value=rng.normal(size=(3, 2)))
    y = weft.softmax(weft.relu(x @ w)[::-1].T)
    loss = weft.sum(y * y)
    weft.assign(w, w - 0.1 * weft.deriv(loss, w))
    results = [loss, y, w]
    value = rng.normal(size=(4, 3)).astype(np.float32)
    got = toy.computation(results, x)
    expected = weft.make_transformer("numpy").computation(results, x)
    for _ in range(2):
        for mine, theirs in zip(got(value), expected(value), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)
    got.plan.verify()


def test_c31_its_abstract_methods_are_all_that_it_defines(toy):
    defined = {name for name in vars(type(toy)) if not name.startswith("_")}
    assert defined == {"transformer_name", *weft.Transformer.__abstractmethods__}


def test_c31_it_can_be_registered_by_hand(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(SOURCE)
    import weft_toy

    assert "toy" not in weft.transformer_choices()
    plugins.register(weft_toy)
    try:
        assert "toy" in weft.transformer_choices()
        state_rows.test_c06_a_plain_assign_runs_with_every_call(weft.make_transformer("toy"))
    finally:
        plugins.unregister(weft_toy)


def test_c32_the_executor_is_set_when_the_transformation_is_finished():
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


def test_c32_an_executor_may_be_any_callable():
    class Kernels:
        def __init__(self):
            self.calls = 0

        def __call__(self, x):
            self.calls += 1
            return x * 3

    x = weft.placeholder((2,))
    transformer = weft.make_transformer("numpy")
    c = transformer.computation(x + 1, x)
    transformer.initialize()
    c.executor = group = Kernels()
    assert c(np.ones(2)).tolist() == [3, 3]
    assert group.calls == 1


def test_c33_the_generated_source_is_text_that_compiles():
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
    assert f"test_checklist_transformer.py:{y.lineno}" in c.source


def test_c33_the_generated_source_of_a_kernel_has_the_lines_of_its_ops():
    x = weft.placeholder((3,))
    inner = weft.tanh(x)
    outer = weft.exp(inner)
    c = weft.make_transformer("numpy").computation(outer, x)
    compile(c.source, "generated", "exec")
    assert [type(step.op).__name__ for step in c.plan.steps] == ["FusedOp"]
    for op in (inner, outer):
        assert f"test_checklist_transformer.py:{op.lineno}" in c.source


def test_c33_the_generated_source_is_in_tracebacks():
    class Broken(RuntimeError):
        pass

    class Failing:
        def __call__(self, *_args):
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


def test_c35_two_transformers_share_a_graph_and_not_its_state(backend):
    w = weft.variable((), initial_value=5)
    weft.assign(w, w + 1)
    first = weft.make_transformer(backend).computation(w)
    assert [first().item(), first().item()] == [6, 7]
    second = weft.make_transformer("numpy").computation(w)
    assert [second().item(), first().item(), second().item()] == [6, 8, 7]


def test_c36_a_computation_after_the_first_call_sees_the_state(transformer):
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


def test_c37_results_belong_to_the_caller(transformer):
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


def test_c37_constants_and_parameters_are_not_handed_out(transformer):
    c, x = weft.constant([1.0, 2.0]), weft.placeholder((2,))
    value = np.array([5, 6], np.float32)
    first = transformer.computation([c, x, c], x)(value)
    assert len({array.ctypes.data for array in (*first, value)}) == 4
    first[0][:] = 0
    assert transformer.computation(c)().tolist() == [1, 2]


def test_results_come_in_the_structure_that_was_asked_for(transformer):
    x = weft.placeholder(())
    y = x + 1
    assert transformer.computation(y, x)(1).item() == 2
    assert [v.item() for v in transformer.computation((x, y), x)(1)] == [1, 2]
    assert {op: v.item() for op, v in transformer.computation({x, y}, x)(1).items()} == {x: 1, y: 2}
    assert transformer.computation({"sum": y}, x)(1)["sum"].item() == 2
    assert transformer.computation(None)() is None
    assert transformer.computation([])() == ()


def test_out_receives_the_results(transformer):
    x = weft.placeholder((2,))
    c = transformer.computation([x + 1, x * 2], x)
    out = [np.empty(2, np.float32), np.empty(2, np.float32)]
    got = c([1, 2], out=out)
    assert [a is b for a, b in zip(got, out, strict=True)] == [True, True]
    assert [a.tolist() for a in out] == [[2, 3], [2, 4]]


def test_out_may_be_the_memory_of_an_argument(transformer):
    x = weft.placeholder((4,))
    y = weft.tanh(x)
    c = transformer.computation([y + 1, x * y], x)
    value = np.array([1, 2, 3, 4], np.float32)
    expected = [array.copy() for array in c(value)]
    got = c(value, out=[value, np.empty(4, np.float32)])
    for mine, theirs in zip(got, expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_feed_dict_gives_arguments_by_placeholder(transformer):
    x, y = weft.placeholder(()), weft.placeholder(())
    c = transformer.computation(x - y, "all")
    assert c.parameters == (x, y)
    assert c(feed_dict={y: 1, x: 5}).item() == 4
    assert c(5, feed_dict={y: 2}).item() == 3


def test_calls_from_several_threads_do_not_meet(transformer):
    from concurrent.futures import ThreadPoolExecutor

    x = weft.placeholder((50, 50))
    c = transformer.computation(weft.exp(weft.sin(x @ x) * x) - x, x)
    values = [np.full((50, 50), n / 100, np.float32) for n in range(16)]
    expected = [c(value) for value in values]
    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(c, values * 4))
    for number, array in enumerate(got):
        np.testing.assert_array_equal(array, expected[number % 16])


def test_choosing_a_backend(monkeypatch):
    monkeypatch.delenv("WEFT_BACKEND", raising=False)
    assert weft.make_transformer().transformer_name in ("native", "numpy")
    assert "numpy" in weft.transformer_choices()
    assert weft.make_transformer_factory("numpy")().transformer_name == "numpy"
    monkeypatch.setenv("WEFT_BACKEND", "nothing-of-that-name")
    with pytest.raises(ValueError, match="nothing-of-that-name"):
        weft.make_transformer()
    with weft.backend("numpy", fast_math=True):
        assert weft.make_transformer().fast_math
    weft.set_transformer_factory(lambda: weft.make_transformer("numpy", fast_math=True))
    try:
        assert weft.make_transformer().fast_math
        assert not weft.make_transformer("numpy").fast_math
    finally:
        weft.set_transformer_factory(None)
