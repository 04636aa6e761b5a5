"""What two threads do at once, with the second one begun at each line of the first one's code."""

from __future__ import annotations

import gc
import importlib
import itertools
import linecache
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from interleaving import interleavings

import weft
import weft.cache.store
from weft import plugins
from weft.autodiff.gradient_graph import gradient_graph
from weft.cache.store import Cache
from weft.errors import StateError
from weft.ir.description import contiguous
from weft.ir.op import Op
from weft.ir.rules import RuleTable
from weft.ir.state_lifting import carrying, function_of
from weft.ir.storage import AssignableTensorOp, AssignOp
from weft.ops.control.graph_ops import CallOp, GraphsOp
from weft.ops.pointwise.elementwise import NegativeOp
from weft.passes.pipeline import Pipeline
from weft.plugins import hookimpl
from weft.runtime import result_pool
from weft.runtime.computation import Computation
from weft.runtime.device import DeviceBufferStorage
from weft.runtime.program import Program
from weft.runtime.transformer import Transformer
from weft.support import gc_pause, source
from weft.transforms.inlining import with_outputs
from weft_numpy import blocks

pytestmark = pytest.mark.slow

ONES = np.ones(3, np.float32)
CASES: list[Any] = []


def case(*where: Any) -> Any:
    """Register what makes an action for both threads, and what is to hold of what comes of it."""

    def register(make: Callable[[], tuple[Any, Any]]) -> Any:
        CASES.append(pytest.param(make, where, id=make.__name__))
        return make

    return register


def the_same(one: Any, other: Any) -> bool:
    return one is other


def numpy(**options: Any) -> Transformer:
    return weft.make_transformer("numpy", **options)


def computation(transformer: Transformer) -> Computation:
    x = weft.placeholder((3,))
    return transformer.computation(weft.tanh(x) + 1, x)


# Graphs


@case(Op.name.fset)
def names_of_ops() -> Any:
    return partial(weft.placeholder, (2,), name="twin"), lambda a, b: a.name != b.name


@case(AssignOp.__init__, AssignableTensorOp.record_write)
def writes_of_a_state() -> Any:
    state = weft.variable((3,), initial_value=0)
    write = partial(weft.assign, state, weft.constant(ONES))
    return write, lambda a, b: a.reads[0] is b or b.reads[0] is a


@case(AssignableTensorOp.record_write)
def writes_in_two_scopes() -> Any:
    state, write = weft.variable((3,)), weft.assign(weft.variable((3,)), weft.constant(ONES))

    def action() -> Any:
        with weft.saved_user_deps() as scope:
            state.record_write(scope, write)
        return scope

    return action, lambda a, b: state.last_write(a) is state.last_write(b) is write


@case(AssignableTensorOp.initializers.fget)
def initializers_of_a_constant() -> Any:
    number = weft.constant(2.0)
    return lambda: next(iter(number.initializers)), the_same


def called() -> Any:
    x = weft.placeholder((3,))
    return weft.capture([weft.tanh(x)], [x])


@case(GraphsOp.results.fget)
def results_of_a_call() -> Any:
    op = CallOp(weft.constant(ONES), graph=called())
    return lambda: op.results, the_same


@case(with_outputs)
def a_graph_with_more_outputs() -> Any:
    graph = called()
    return lambda: with_outputs(graph, graph.outputs), the_same


@case(weft.Graph.specialized)
def a_graph_for_some_lengths() -> Any:
    x = weft.placeholder((weft.symbol("n"),))
    graph = weft.capture([x * 2], [x])
    return lambda: graph.specialized({graph.symbols[0]: 3}), the_same


@case(function_of)
def a_graph_as_a_function() -> Any:
    graph = called()
    return lambda: function_of(graph), the_same


@case(carrying)
def a_graph_that_carries_states() -> Any:
    state, x, y = weft.variable((3,)), weft.placeholder((3,)), weft.placeholder((3,))
    weft.assign(state, state + x + y)
    function = function_of(weft.capture([state], [x, y]))
    return lambda: carrying(function, 1)[0], the_same


@case(gradient_graph)
def a_gradient_graph() -> Any:
    graph = called()
    return lambda: weft.autodiff(graph).graph, the_same


@case(source.add_internal_package, source._classified)
def what_is_internal() -> Any:
    """One thread makes an op in a package while the other one hears that it is a plugin's."""
    name = f"package{next(NUMBERS)}"
    scope: dict[str, Any] = {"__name__": name, "weft": weft}
    exec(compile("def make():\n    return weft.constant(1)", f"{name}.py", "exec"), scope)
    actions = iter([scope["make"], partial(source.add_internal_package, name)])
    return lambda: next(actions)(), lambda _, __: scope["make"]().filename == __file__


# Transformers


@case(Transformer.computation)
def names_of_computations() -> Any:
    return partial(computation, numpy()), lambda a, b: a.name != b.name


class SamePass(weft.GraphPass):
    def do_pass(self, graph: Any, target: Any) -> Any:
        return graph


@case(Transformer.register_graph_pass, Transformer.graph_passes.fget, Pipeline.passes.fget)
def passes() -> Any:
    made, own = numpy(), SamePass()
    return partial(made.register_graph_pass, own), lambda *_: made.graph_passes.count(own) == 2


@case(Transformer.init_computation.fget, Transformer._initial_computation)
def the_computation_of_initializers() -> Any:
    made = numpy()
    made.computation(weft.variable((3,), initial_value=0) + 1)()
    return lambda: made.init_computation, the_same


@case(DeviceBufferStorage.device_tensor)
def tensors_of_a_buffer() -> Any:
    storage = numpy().device_buffer_storage(12, "buffer")
    return lambda: storage.device_tensor(contiguous((3,), ONES.dtype)), the_same


@case(Program.source.fget)
def source_text() -> Any:
    made = computation(numpy()).program
    return lambda: made.source, lambda a, b: a == b != ""


FOLDER = tempfile.TemporaryDirectory()


@case(
    Program._look, Program.graph.fget, Program.plan.fget, Program.tensors.fget,
    Transformer.plan_again, Transformer._plan_again,
)  # fmt: skip
def the_plan_of_a_restored_program() -> Any:
    for _ in range(2):
        made = computation(numpy(cache=FOLDER.name)).program
    assert made.is_restored
    return lambda: (made.graph, made.plan, made.tensors), lambda a, b: a == b


@case(Computation._prepared, Computation._first_call_for_shapes, Computation._new_program)
def programs_for_new_lengths() -> Any:
    x = weft.placeholder((weft.symbol("n"),))
    call = numpy().computation(x + 1, x)

    def is_one(one: Any, other: Any) -> bool:
        return one.tolist() == other.tolist() == [2, 2, 2] and len(call.programs) == 1

    return lambda: call(ONES), is_one


# What the process has once

NUMBERS = itertools.count()


@case(blocks)
def compiled_blocks() -> Any:
    text = f"number = {next(NUMBERS)}\n"

    def is_one(one: Any, other: Any) -> bool:
        return one is other and linecache.getline(one.filename, 1) == text

    return lambda: blocks.compiled(text), is_one


@case(result_pool)
def recycled_memory() -> Any:
    held = result_pool.ResultPool((result_pool.SMALLEST,), np.dtype("u1"))
    held.take()
    return lambda: (
        held.take(),
        held.take(),
    ), lambda a, b: not any(np.shares_memory(*pair) for pair in itertools.combinations((*a, *b), 2))


@case(gc_pause)
def pauses_of_the_collector() -> Any:
    def action() -> bool:
        with gc_pause.gc_paused():
            return gc.isenabled()

    return action, lambda a, b: not a and not b and gc.isenabled()


@case(weft.cache.store)
def files_in_a_cache() -> Any:
    """One thread writes a file that fills the folder, the other one removes them all."""
    folder = Path(FOLDER.name) / f"cache{next(NUMBERS)}"
    kept = Cache(folder, limit=1000)
    kept.write("old", b"x" * 200)
    actions = iter([lambda: kept.write("new", b"x" * 200), kept.clear])
    return lambda: next(actions)(), lambda *_: not kept._warned


@pytest.mark.parametrize(("make", "where"), CASES)
def test_two_threads_at_once(make: Any, where: Any) -> None:
    def twice() -> tuple[Any, Any, Any]:
        action, is_right = make()
        return action, action, is_right

    seen = 0
    for one, other, is_right in interleavings(twice, *where):
        assert is_right(one.result(), other.result())
        seen += 1
    assert seen


CANDIDATE = SimpleNamespace(number=0, platform=0, place=0, handle=None)


@pytest.mark.parametrize(("backend", "found"), [("opencl", (CANDIDATE, None)), ("cupy", CANDIDATE)])
def test_the_process_opens_a_device_once(monkeypatch: Any, backend: str, found: Any) -> None:
    devices: Any = importlib.import_module(f"weft_{backend}.devices")
    monkeypatch.setattr(devices, "best", lambda _: found)
    monkeypatch.setattr(devices, "Device", lambda *_: SimpleNamespace(lost="", handle=None))
    monkeypatch.setattr(devices.drivers, backend, lambda: SimpleNamespace(Error=OSError))
    if backend == "cupy":
        monkeypatch.setattr(devices.blas, "library", lambda: None)

    def make() -> tuple[Any, Any, None]:
        monkeypatch.setattr(devices, "_opened", {})
        return partial(devices.choose, None), partial(devices.choose, None), None

    for one, other, _ in interleavings(make, devices):
        assert one.result() is other.result()


class Plugin:
    """A plugin that has a rule."""

    @hookimpl
    def weft_register_rules(self, backend: str, rules: Any) -> None:
        if backend == "interleaved":
            rules.on_type(NegativeOp)(np.negative)


def test_no_thread_misses_the_rules_of_plugins_that_another_one_loads() -> None:
    def make() -> tuple[Any, Any, None]:
        find = partial(RuleTable("interleaved").find, NegativeOp)
        return find, find, None

    plugins.register(plugin := Plugin())
    try:
        where = RuleTable.find, RuleTable._ask_new_plugins, RuleTable._load, plugins.load_rules
        for one, other, _ in interleavings(make, *where):
            assert one.result() is other.result() is np.negative
    finally:
        plugins.unregister(plugin)


# Closing


def value_read(made: Transformer) -> Any:
    return partial(made.get_value, weft.variable((3,), initial_value=0))


def value_written(made: Transformer) -> Any:
    return partial(made.set_value, weft.variable((3,), initial_value=0), ONES)


def new_lengths(made: Transformer) -> Any:
    x = weft.placeholder((weft.symbol("n"),))
    return partial(made.computation(x + 1, x), ONES)


@pytest.mark.parametrize(
    ("action", "where"),
    [
        (value_read, [Transformer.get_value, Transformer._require_states]),
        (value_written, [Transformer.set_value, Transformer._require_states]),
        (new_lengths, [Computation._compile, Computation._prepared, Transformer.new_program]),
    ],
)
def test_closing_meanwhile(action: Any, where: Any) -> None:
    def make() -> tuple[Any, Any, None]:
        made = numpy()
        return action(made), made.close, None

    for one, other, _ in interleavings(make, *where):
        assert other.exception() is None
        assert one.exception() is None or isinstance(one.exception(), StateError)


def test_a_call_that_finds_the_transformer_closed_writes_nowhere() -> None:
    """The state would still share the memory of its initial value."""
    made = numpy()
    state = weft.variable((300,), initial_value=np.zeros(300, np.float32))
    weft.assign(state, state + 1)
    call = made.computation(state)
    made.initialize()
    run = call.executor
    made.close()
    with pytest.raises(StateError, match="closed"):
        run()


def test_a_program_is_compiled_again_when_another_one_of_the_same_run_failed() -> None:
    """The first thread compiles both together; the second one has seen the executor by then."""
    x = weft.placeholder((40, 40))
    ones, half = np.ones((40, 40), np.float32), np.full((40, 40), 0.5, np.float32)

    def make() -> tuple[Any, Any, None]:
        made: Any = numpy(cache=False)
        call, bad = made.computation(x @ x @ half, x), made.computation(x * 3, x)
        transform = made.transform_ordered_ops

        def failing(program: Program, *rest: Any) -> Any:
            if program.captured is bad.graph:
                raise RuntimeError("no memory")
            return transform(program, *rest)

        made.transform_ordered_ops = failing
        return partial(call, ones), partial(call, ones), None

    where = Transformer._transform_computations, Transformer._transform_programs
    for one, other, _ in interleavings(make, *where):
        assert set(np.ravel([one.result(), other.result()])) == {800}
