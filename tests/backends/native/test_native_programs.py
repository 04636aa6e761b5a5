"""Programs in C: what one call runs, errors in kernels, loops, threads, forks, and the binding."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import ref

import numpy as np
import pytest

import weft
from weft.errors import BackendError, CheckFailed, IndexOutOfRange, StateError
from weft.report.progress import Stage
from weft_c.source.functions import HostCall
from weft_native import compiler, executor, library, program_text
from weft_native.executor import NativeKernelGroup
from weft_native.program_text import ProgramText
from weft_native.transformer import NativeTransformer

pytestmark = pytest.mark.needs("compiler")

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(0, 1, (6, 8)).astype(np.float32)


def group_of(computation: Any) -> NativeKernelGroup:
    found = computation.program.code
    assert isinstance(found, NativeKernelGroup)
    return found


def doubled(x: Any) -> Any:
    """Double numbers until their sum is large enough."""
    value = weft.placeholder(x.axes)
    more = weft.capture([weft.less(weft.sum(value), 1000)], [value], "more")
    return weft.while_loop(more, weft.capture([value * 2], [value], "body"), x)[0]


def layered(x: Any) -> Any:
    value = weft.placeholder(x.axes)
    body = weft.capture([weft.tanh(weft.softmax(value) @ weft.transpose(value) @ value)], [value])
    return weft.loop(body, 5, x)[0]


def chosen(x: Any) -> Any:
    value = weft.placeholder(x.axes)
    one, other = (weft.capture([value * k], [value]) for k in (3, 5))
    return weft.cond(weft.less(weft.sum(x), 0), one, other, [x], [x])[0]


GRAPHS: dict[str, Callable[[Any], Any]] = {
    "a chain": lambda x: weft.exp(-x) * weft.tanh(x * 0.5 + 1),
    "rows": lambda x: weft.layer_norm(weft.softmax(x)),
    "a product": lambda x: weft.relu(x @ weft.transpose(x) + 1),
    "a loop": layered,
    "a loop with a condition": lambda x: doubled(weft.abs(x) + 0.1),
    "a conditional": chosen,
}


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("bound", [True, False], ids=["builtin", "ctypes"])
def test_results_are_those_of_numpy(
    transformer: NativeTransformer, monkeypatch: pytest.MonkeyPatch, name: str, bound: bool
) -> None:
    if not bound:
        monkeypatch.setattr(executor, "binder", lambda: None)
    x = weft.placeholder((6, 8))
    result = GRAPHS[name](x)
    compiled = transformer.computation(result, x)
    expected = weft.make_transformer("numpy").computation(result, x)(X)
    for _ in range(3):
        np.testing.assert_allclose(compiled(X), expected, rtol=2e-5, atol=1e-6)
    assert group_of(compiled).text.is_whole


def test_programs_outlive_the_runtime_that_they_were_loaded_with() -> None:
    """Libraries that are still loaded have its addresses, and equal programs share them."""
    before = ref(library.runtime())
    library.runtime.cache_clear()
    gc.collect()
    assert before() is not None
    assert library.runtime() is not before()


def test_loops_and_conditionals_stay_in_c(transformer: NativeTransformer) -> None:
    x = weft.placeholder((6, 8))
    compiled = transformer.computation([layered(x), doubled(weft.abs(x) + 0.1), chosen(x)], x)
    compiled(X)
    group = group_of(compiled)
    assert not group._bound_segments
    assert "runtime->poll()" in compiled.source
    assert "while (*(const u8 *)" in compiled.source


def test_units_are_compiled_at_the_same_time(
    transformer: NativeTransformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = weft.placeholder((6, 8))
    results = [build(x) for build in GRAPHS.values()]
    whole = transformer.computation(results, x)
    expected = whole(X)
    assert group_of(whole).text.units == 1
    monkeypatch.setattr(program_text, "UNIT_SIZE", 500)
    monkeypatch.setattr(executor, "available_processors", lambda: 3)
    parts = transformer.computation(results, x)
    for one, other in zip(parts(X), expected, strict=True):
        np.testing.assert_array_equal(one, other)
    assert group_of(parts).text.units == 3
    assert parts.source.count("#if UNIT == 2") > 1


def test_units_are_counted_as_they_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Stage] = []

    def noted(title: str, total: int | None) -> Stage:
        made.append(Stage(title, total))
        return made[-1]

    monkeypatch.setattr(compiler, "Stage", noted)
    compiler.build("static int unit = UNIT;", "a test", units=2)
    assert [(each.title, each.total, each.done) for each in made] == [("compiling a test", 2, 2)]


def test_an_error_in_any_unit_is_reported() -> None:
    text = "#if UNIT == 1\nint broken = ;\n#endif\n"
    with pytest.raises(BackendError, match=r"(?s)could not compile a test.*>    2 int broken"):
        compiler.build(text, "a test", units=2)


def test_the_source_has_the_lines_of_the_user(transformer: NativeTransformer) -> None:
    x = weft.placeholder((6, 8))
    y = weft.tanh(x) + 1
    assert f'// File "{__file__}", line {y.lineno}\n' in transformer.computation(y, x).source


def test_work_of_the_host_stands_between_segments(
    transformer: NativeTransformer, capsys: pytest.CaptureFixture[str]
) -> None:
    x, a = weft.placeholder((6, 8)), weft.placeholder((6, 6))
    noted = weft.print_op(weft.exp(x), "noted")
    compiled = transformer.computation([weft.solve(a, noted * 2) + 1, weft.sum(noted)], x, a)
    solved, total = compiled(X, np.eye(6, dtype=np.float32) * 2)
    assert not group_of(compiled).text.is_whole
    np.testing.assert_allclose(solved, np.exp(X) + 1, rtol=1e-5)
    np.testing.assert_allclose(total, np.exp(X).sum(), rtol=1e-5)
    assert "noted" in capsys.readouterr().out


def test_errors_in_loops_name_the_line(transformer: NativeTransformer) -> None:
    table, index = weft.placeholder((5, 3)), weft.placeholder((4,), "int32")
    given, at = weft.placeholder((5, 3)), weft.placeholder((4,), "int32")
    taken = weft.take(given, at, 0)
    body = weft.capture([given * 1 + weft.sum(taken), at + 1], [given, at], "body")
    result = weft.loop(body, 6, table, index)[0]
    compiled = transformer.computation(result, table, index)
    with pytest.raises(IndexOutOfRange, match=f"line {taken.lineno}"):
        compiled(np.ones((5, 3), np.float32), np.array([0, 1, 2, 0], np.int32))
    with pytest.raises(IndexOutOfRange):
        compiled(np.ones((5, 3), np.float32), np.array([0, 1, 2, 0], np.int32))


def test_a_call_that_reports_leaves_states_as_they_were(transformer: NativeTransformer) -> None:
    x = weft.placeholder((4,))
    state = weft.variable((4,), initial_value=np.zeros(4, np.float32))
    checked = weft.assert_op(x, weft.greater(x, 0), "must be positive")
    step = transformer.computation(weft.sequential([weft.assign(state, state + checked), state]), x)
    np.testing.assert_array_equal(step(np.ones(4, np.float32)), np.ones(4))
    with pytest.raises(CheckFailed, match="must be positive"):
        step(np.array([1, -1, 1, 1], np.float32))
    np.testing.assert_array_equal(step(np.ones(4, np.float32)), np.full(4, 2))


def test_a_larger_program_moves_the_arena_of_a_smaller_one(transformer: NativeTransformer) -> None:
    small, large = weft.placeholder((64, 8)), weft.placeholder((512, 300))
    one = transformer.computation(weft.softmax(weft.softmax(small) @ weft.transpose(small)), small)
    a = RANDOM.normal(0, 1, (64, 8)).astype(np.float32)
    first = one(a)
    other = transformer.computation(
        weft.softmax(weft.softmax(large) @ weft.transpose(large)), large
    )
    other(np.ones((512, 300), np.float32))
    np.testing.assert_array_equal(one(a), first)


def test_a_closed_transformer_says_so() -> None:
    transformer = NativeTransformer(cache=False)
    x = weft.placeholder((6, 8))
    compiled = transformer.computation(weft.softmax(x), x)
    compiled(X)
    transformer.close()
    with pytest.raises(StateError, match="closed"):
        compiled(X)


@pytest.mark.parametrize("shape", [(1000, 1000), (3, 400_000), (400_000, 3)])
def test_results_do_not_depend_on_the_schedule(shape: tuple[int, int]) -> None:
    values = RANDOM.normal(0, 1, shape).astype(np.float32)
    x = weft.placeholder(shape)
    results = [weft.softmax(x), weft.sum(x), weft.sum(x, 0), weft.variance(x, 1)]
    with NativeTransformer(threads=3, cache=False) as transformer:
        compiled = transformer.computation(results, x)
        first = compiled(values)
        for _ in range(5):
            for one, other in zip(first, compiled(values), strict=True):
                np.testing.assert_array_equal(one, other)
    np.testing.assert_allclose(first[2], values.astype(np.float64).sum(0), rtol=1e-5, atol=1e-3)


def test_transformers_share_the_pool_between_threads() -> None:
    x = weft.placeholder((512, 512))
    result = weft.softmax(x @ weft.transpose(x))
    values = RANDOM.normal(0, 1, (512, 512)).astype(np.float32)
    transformers = [NativeTransformer(threads=2, cache=False) for _ in range(3)]
    compiled = [each.computation(result, x) for each in transformers]
    expected = compiled[0](values)
    wrong: list[int] = []

    def run(number: int) -> None:
        same = [np.array_equal(compiled[number](values), expected) for _ in range(20)]
        wrong.extend([number] * same.count(False))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong


@pytest.mark.needs("blas")
@pytest.mark.parametrize("batch", [(), (3,), (40,)])
def test_blas_and_own_tiles_agree(batch: tuple[int, ...]) -> None:
    a, b = ((*batch, 300, 270), (*batch, 270, 290))
    x, y = weft.placeholder(a), weft.placeholder(b)
    one, other = (RANDOM.normal(0, 1, shape).astype(np.float32) for shape in (a, b))
    found = []
    for blas_work in (0, 1 << 60):
        with NativeTransformer(cache=False) as transformer:
            transformer.processor = replace(transformer.processor, blas_work=blas_work)
            compiled = transformer.computation(x @ y, x, y)
            assert ("runtime->gemm(shape" in compiled.source) is (blas_work == 0)
            found.append(compiled(one, other))
    expected = one.astype(np.float64) @ other.astype(np.float64)
    for each in found:
        np.testing.assert_allclose(each, expected, rtol=1e-4, atol=1e-3)


FORKED = """
import os, numpy as np, weft
x = weft.placeholder((700, 700))
result = weft.softmax(x @ weft.transpose(x))
values = np.random.default_rng(0).normal(0, 1, (700, 700)).astype(np.float32)
t = weft.make_transformer("native", threads=2)
compiled = t.computation(result, x)
expected = compiled(values)
if os.fork() == 0:
    print("inherited", np.array_equal(compiled(values), expected), flush=True)
    with weft.make_transformer("native", threads=2) as other:
        print("same", np.array_equal(other.computation(result, x)(values), expected), flush=True)
    os._exit(0)
os.wait()
print("parent", np.array_equal(compiled(values), expected))
"""


@pytest.mark.needs("posix")
def test_a_forked_process_has_threads_of_its_own() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=120, check=True
    )
    assert sorted(done.stdout.splitlines()) == ["inherited True", "parent True", "same True"]


ENDLESS = """
import numpy as np, weft
v = weft.placeholder((4,))
more = weft.capture([weft.less(weft.sum(v), 1e30)], [v])
x = weft.placeholder((4,))
result = weft.while_loop(more, weft.capture([v * 1], [v]), x)[0]
compiled = weft.make_transformer("native").computation(result, x)
compiled.source
print("ready", flush=True)
try:
    compiled(np.ones(4, np.float32))
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_an_interrupt_ends_a_loop_in_c() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", ENDLESS], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(3)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert out == "interrupted\n", err


def test_a_program_text_counts_host_calls(transformer: NativeTransformer) -> None:
    x = weft.placeholder((6, 8))
    group = group_of(transformer.computation(weft.softmax(x), x))
    assert ProgramText(group).is_whole
    call = HostCall(np.copyto, (), (), group.work[0].ops[0])  # type: ignore[union-attr]
    group.segments[-1].host = call
    assert not ProgramText(group).is_whole


def test_memory_that_does_not_exist_is_refused(transformer: NativeTransformer) -> None:
    with pytest.raises(BackendError, match="this machine"):
        transformer.device.memory(1 << 60, "a test")


def test_kernels_on_parts_of_one_buffer_wait_for_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of a program from the cache are, whose arena is one buffer."""
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))
    shapes = (2, 9, 4, 8), (2, 3, 6, 8), (2, 3, 6, 8)
    arrays = [RANDOM.random(shape, "f4") for shape in shapes]

    def repeated(x: Any) -> Any:
        wide = weft.broadcast_to(weft.reshape(x, (2, 3, 1, 6, 8)), (2, 3, 3, 6, 8))
        return weft.reshape(wide, (2, 9, 6, 8))

    def attention(backend: str) -> Any:
        q, k, v = (weft.placeholder(shape) for shape in shapes)
        scale = weft.constant(np.array([0.6], "f4"))
        keys = weft.transpose(repeated(k), (0, 1, 3, 2)) * scale
        scores = weft.matmul(q * scale, keys) + weft.constant(np.zeros((4, 6), "f4"))
        result = weft.matmul(weft.softmax(scores, 3), repeated(v))
        with weft.make_transformer(backend) as transformer:
            return transformer.computation(result, q, k, v)(*arrays)

    wanted = attention("numpy")
    for _ in range(2):
        np.testing.assert_allclose(attention("native"), wanted, 1e-5)
