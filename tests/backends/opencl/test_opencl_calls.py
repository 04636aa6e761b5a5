"""Calls on a device: memory, order, errors, and what stays when something goes wrong."""

from __future__ import annotations

import gc
import mmap
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from machines import transformer_for

import weft
import weft_c
from weft.errors import (
    BackendError,
    CheckFailed,
    IndexOutOfRange,
    StateError,
    UnsupportedOpError,
)
from weft.ir import dtypes
from weft_c.runtime.errors import DeviceMemoryError, excerpt
from weft_opencl.device import Memory
from weft_opencl.errors import build_error, explained, lines_in
from weft_opencl.transformer import OpenCLTransformer

pytestmark = pytest.mark.slow

STATM = Path("/proc/self/statm")


def counted(transformer: OpenCLTransformer) -> tuple[Any, Any, Any, Any]:
    """A computation that counts its calls, takes elements at indices, and prints nothing."""
    x, at = weft.placeholder((6,)), weft.placeholder((2,), "int32")
    calls = weft.variable((), initial_value=0)
    weft.assign(calls, calls + 1)
    taken = weft.take(x * 2, at) + 1
    return transformer.computation([taken, calls], x, at), x, at, calls


NUMBERS = np.arange(6, dtype=np.float32)


def test_an_index_out_of_range_leaves_states_as_they_were(
    any_transformer: OpenCLTransformer,
) -> None:
    computation, _, _, calls = counted(any_transformer)
    for wrong in ([0, 6], [-7, 0]):
        before = any_transformer.get_value(calls)
        with pytest.raises(IndexOutOfRange, match=f"index {max(wrong, key=abs)} at") as caught:
            computation(NUMBERS, wrong)
        assert "test_opencl_calls.py" in str(caught.value)
        assert any_transformer.get_value(calls) == before
        taken, count = computation(NUMBERS, [5, -6])
        assert taken.tolist() == [11, 1]
        assert count == before + 1


def test_the_first_of_several_wrong_ops_is_reported(any_transformer: OpenCLTransformer) -> None:
    x, first, second = weft.placeholder((3,)), *(weft.placeholder((1,), "int32") for _ in "ab")
    one = weft.take(x + 1, first)
    two = weft.take(x + 2, second)
    computation = any_transformer.computation([one + 1, two + one], x, first, second)
    for places, index in (([7], [8]), 7), (([0], [8]), 8), (([7], [0]), 7):
        with pytest.raises(IndexOutOfRange, match=f"index {index} "):
            computation([1, 2, 3], *places)
    assert computation([1, 2, 3], [0], [2])[1].tolist() == [7]


def test_an_error_comes_before_later_effects_and_after_earlier_ones(
    any_transformer: OpenCLTransformer, capsys: pytest.CaptureFixture[str]
) -> None:
    x, at = weft.placeholder((3,)), weft.placeholder((1,), "int32")
    early = weft.print_op(x, "early")
    late = weft.print_op(weft.take(early, at), "late")
    computation = any_transformer.computation(late, x, at)
    with pytest.raises(IndexOutOfRange):
        computation([1, 2, 3], [3])
    printed = capsys.readouterr().out
    assert printed.count("early") == 1
    assert "late" not in printed
    assert computation([1, 2, 3], [2]).tolist() == [3]
    assert capsys.readouterr().out.count("late") == 1


def test_an_error_on_the_host_leaves_states_as_they_were(
    any_transformer: OpenCLTransformer,
) -> None:
    x, calls = weft.placeholder((3,)), weft.variable((), initial_value=0)
    weft.assign(calls, calls + 1)
    computation = any_transformer.computation([weft.check_finite(x + 1) * 2, calls], x)
    with pytest.raises(CheckFailed, match="in 1 of 3"):
        computation([1, np.inf, 3])
    value, count = computation([1, 2, 3])
    assert (value.tolist(), count) == ([4, 6, 8], 1)


@pytest.mark.parametrize("dtype", ["bool", "int8", "float16", "bfloat16", "float32", "uint64"])
@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,), (5, 7)])
def test_arrays_of_any_shape_and_dtype_pass_the_edge(
    any_transformer: OpenCLTransformer, dtype: str, shape: tuple[int, ...]
) -> None:
    x = weft.placeholder(shape, dtype)
    given = np.asarray(np.arange(np.prod(shape, dtype=int)).reshape(shape) % 2)
    given = given.astype(dtypes.as_dtype(dtype))
    given.flags.writeable = False
    got = any_transformer.computation([weft.where(weft.equal(x, x), x, x), x], x)(given)
    for each in got:
        assert (each.shape, each.dtype) == (given.shape, given.dtype)
        assert each.tobytes() == given.tobytes()


def test_views_of_arguments_that_begin_far_inside_them(any_transformer: OpenCLTransformer) -> None:
    x = weft.placeholder((1000,))
    computation = any_transformer.computation(
        [x[900:] + 1, x[::-1] * 2, weft.reshape(x[500:], (5, 100))], x
    )
    given = np.arange(1000, dtype=np.float32)
    tail, back, rows = computation(given)
    np.testing.assert_array_equal(tail, given[900:] + 1)
    np.testing.assert_array_equal(back, given[::-1] * 2)
    np.testing.assert_array_equal(rows, given[500:].reshape(5, 100))


def test_states_constants_and_slices_of_them(any_transformer: OpenCLTransformer) -> None:
    large = np.arange(4096, dtype=np.float32)
    w = weft.variable((4096,), initial_value=large)
    x = weft.placeholder((4096,))
    weft.assign(w, w * 0.5 + x)
    computation = any_transformer.computation([w, weft.constant(large) + x], x)
    updated, added = computation(large)
    np.testing.assert_array_equal(updated, large * 1.5)
    np.testing.assert_array_equal(added, large * 2)
    np.testing.assert_array_equal(any_transformer.get_value(w), large * 1.5)
    any_transformer.set_value(w, large)
    tensor = any_transformer.state_tensors[w]
    assert tensor[5:8].tolist() == [5, 6, 7]
    tensor[5:8] = 0
    assert tensor.get()[4:9].tolist() == [4, 0, 0, 0, 8]
    out = np.empty(4096, np.float32)
    assert tensor.get(out) is out
    assert computation(np.zeros_like(large))[0][9] == 4.5


def test_results_go_to_given_arrays(any_transformer: OpenCLTransformer) -> None:
    x = weft.placeholder((300,))
    computation = any_transformer.computation(x + 1, x)
    out = np.zeros(300, np.float32)
    assert computation(np.ones(300, np.float32), out=out) is out
    assert (out == 2).all()
    assert (computation(out, out=out) == 3).all()


def test_memory_of_the_device_is_given_back(device: None) -> None:
    """Two hundred transformers leave nothing behind, whatever they computed or failed at."""
    x, at = weft.placeholder((1000,)), weft.placeholder((1,), "int32")
    w = weft.variable((1000,), initial_value=np.ones(1000))
    results = [weft.take(weft.softmax(x + w), at), weft.constant(np.arange(5000.0)) * 2]
    given = np.ones(1000, np.float32)
    gc.collect()
    before = None
    kept = []
    for number in range(200):
        with transformer_for(("as it is", "copies")[number % 2]) as made:
            computation = made.computation(results, x, at)
            if number < 4:
                computation(given, [3])
                with pytest.raises(IndexOutOfRange):
                    computation(given, [1000])
                assert made.device.live_bytes > (before or 0)
            kept.append((computation, made.state_tensors.get(w)))
        if before is None:
            before = made.device.live_bytes
        assert made.device.live_bytes == before


@pytest.mark.needs("linux")
def test_memory_of_the_process_is_given_back(device: None) -> None:
    """The memory of a CPU is the process's own."""
    w = weft.variable((2**22,), initial_value=np.ones(2**22))
    in_use = []
    for number in range(24):
        with transformer_for("as it is") as made:
            made.computation(weft.sum(w))()
        if number % 12 == 11:
            gc.collect()
            in_use.append(int(STATM.read_text().split()[1]) * mmap.PAGESIZE)
    assert in_use[1] - in_use[0] < 4 * w.axes.size


def test_nothing_of_a_closed_transformer_can_be_used(any_transformer: OpenCLTransformer) -> None:
    x, w = weft.placeholder((3,)), weft.variable((3,), initial_value=0)
    computation = any_transformer.computation(x + w, x)
    computation([1, 2, 3])
    run, tensor = computation.program.run, any_transformer.state_tensors[w]
    any_transformer.close()
    uses: list[Callable[[], Any]] = [
        lambda: computation([1, 2, 3]),
        lambda: run(np.zeros(3, "f4"), np.zeros(3, "f4")),
        lambda: tensor.get(),
        lambda: any_transformer.get_value(w),
        lambda: any_transformer.computation(x, x),
    ]
    for use in uses:
        with pytest.raises(StateError, match="make another"):
            use()
    any_transformer.close()


def test_threads_may_share_a_computation(any_transformer: OpenCLTransformer) -> None:
    x = weft.placeholder((4000,))
    computation = any_transformer.computation(weft.tanh(x) + x * 2, x)
    wrong: list[Any] = []

    def work(number: int) -> None:
        given = np.full(4000, number, np.float32)
        for _ in range(20):
            got = computation(given)
            if not np.allclose(got, np.tanh(given) + given * 2, 1e-5):
                wrong.append(got)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong


def test_a_device_without_float64_refuses_it(device: None) -> None:
    x = weft.placeholder((3,), "float64")
    with transformer_for("as it is") as made:
        made.processor = replace(made.processor, has_fp64=False)
        with pytest.raises(UnsupportedOpError, match="does not compute with float64") as caught:
            made.computation(x * 2, x)([1, 2, 3])
        assert "test_opencl_calls.py" in str(caught.value)
        y = weft.placeholder((3,))
        assert made.computation(y * 2, y)([1, 2, 3]).tolist() == [2, 4, 6]


def test_source_that_does_not_build_is_shown_around_the_error(
    transformer: OpenCLTransformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = weft.placeholder((3,))
    computation = transformer.computation(weft.negative(x), x)
    with monkeypatch.context() as patch:
        text = weft_c.Source.text.fget  # type: ignore[attr-defined]
        patch.setattr(weft_c.Source, "text", property(lambda self: text(self).replace("-", "@")))
        with pytest.raises(BackendError, match="refused the program") as caught:
            computation([1, 2, 3])
    assert "error" in str(caught.value)
    assert any(line.startswith(">") and "@" in line for line in str(caught.value).splitlines())
    assert computation([1, 2, 3]).tolist() == [-1, -2, -3], "the next call tries again"


def test_warnings_of_the_compiler_do_not_reach_the_terminal(
    transformer: OpenCLTransformer, capfd: pytest.CaptureFixture[str]
) -> None:
    text = (
        "int nothing(int x) { }\n"
        "__kernel void warned(__global int *x) { int unused; x[0] = nothing(1 << 40); }"
        f" // {time.time_ns()}, so that no driver has it already\n"
    )
    transformer.device.build(text, "a test")
    assert capfd.readouterr() == ("", "")


def test_an_excerpt_shows_the_lines_that_a_log_names() -> None:
    source = "\n".join(f"line {number}" for number in range(1, 31))
    for log in ("error: prog.cl:20:5: no", "<stdin>:20:1: error: x", "1:20:3: fatal error: y"):
        shown = excerpt(source, lines_in(log)).splitlines()
        assert [each[-7:] for each in shown] == [f"line {number}" for number in range(17, 24)]
        assert shown[3].startswith(">   20 ")
    assert "line 1" in excerpt(source, lines_in("something is wrong"))
    assert excerpt("", lines_in("1:1: error")) == ""
    assert "a log" in str(build_error("a log", source, "a device", "a program"))


class FakeError(Exception):
    code = 0


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [(-4, DeviceMemoryError, "no memory"), (-5, DeviceMemoryError, "no memory"),
     (-61, DeviceMemoryError, "no memory"), (-36, BackendError, "does not answer any more"),
     (-2, BackendError, "does not answer any more"),
     (-9999, BackendError, "does not answer any more"), (-54, BackendError, "failed")],
)  # fmt: skip
def test_codes_of_drivers_are_explained(code: int, kind: type[Exception], words: str) -> None:
    error = FakeError("clSomething failed")
    error.code = code
    found = explained(error, "a device", "computing f")
    assert type(found) is kind
    assert words in str(found)
    assert "computing f" in str(found)
    assert "clSomething failed" in str(found)
    assert isinstance(found, MemoryError) == (kind is DeviceMemoryError)


@pytest.mark.parametrize("form", ["as it is", "copies"])
@pytest.mark.parametrize(("exponent", "advice"), [(44, "memory_limit"), (60, "no device can")])
def test_too_little_memory_is_an_error_after_which_others_work(
    device: None, form: str, exponent: int, advice: str
) -> None:
    with transformer_for(form) as made:
        w = weft.variable((2**exponent,), dtype="float32")
        with pytest.raises(DeviceMemoryError, match=advice):
            made.get_value(w)
        x = weft.placeholder(())
        long = weft.contiguous(weft.broadcast(x, (2**exponent,)))
        with pytest.raises(DeviceMemoryError, match=advice) as caught:
            made.computation(weft.sum(weft.cumsum(long)), x)(1)
        assert "for the arena of computation" in str(caught.value)
        assert f"  {2**exponent * 4} bytes: " in str(caught.value)
        assert "test_opencl_calls.py" in str(caught.value)
        x = weft.placeholder((3,))
        assert made.computation(x * 2, x)([1, 2, 3]).tolist() == [2, 4, 6]


def test_an_error_of_the_driver_in_a_call_leaves_the_next_call_working(
    transformer: OpenCLTransformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = weft.placeholder((3,))
    computation = transformer.computation(x + 1, x)
    computation([1, 2, 3])
    group: Any = computation.program.run

    def fails(arrays: Any) -> None:
        transformer.cl.Buffer(transformer.device.context, 0, 0)

    with monkeypatch.context() as patch:
        patch.setattr(group.host_io, "begin", fails)
        with pytest.raises(DeviceMemoryError, match="computing computation_0"):
            computation([1, 2, 3])
    assert computation([1, 2, 3]).tolist() == [2, 3, 4]


def failing(transformer: OpenCLTransformer, number: int) -> Any:
    """Return what raises an error of the driver with a code."""

    class DriverError(transformer.cl.Error):  # type: ignore[name-defined, misc]
        code = number

    def fails(*args: Any, **options: Any) -> Any:
        raise DriverError(f"clSomething failed: {number}")

    return fails


@pytest.mark.parametrize("code", [-2, -33, -34, -36, -9999])
@pytest.mark.parametrize("is_first", [True, False])
def test_after_a_device_was_lost_another_transformer_works(
    device: None, monkeypatch: pytest.MonkeyPatch, code: int, is_first: bool
) -> None:
    x = weft.placeholder((3,))
    with transformer_for("copies") as lost:
        lost.processor = replace(lost.processor, shares_host=False)
        computation = lost.computation(x * 2 + 1, x)
        if not is_first:
            computation([1, 2, 3])
        computation.transformer.initialize()
        with monkeypatch.context() as patch:
            patch.setattr(lost.cl, "enqueue_copy", failing(lost, code))
            with pytest.raises(BackendError, match="make another transformer"):
                computation([1, 2, 3])
        with pytest.raises(BackendError, match="does not answer any more, computing computation"):
            computation([1, 2, 3])
        with transformer_for("copies") as made:
            assert made.device is not lost.device
            assert made.device.context != lost.device.context
            assert made.computation(x * 2 + 1, x)([1, 2, 3]).tolist() == [3, 5, 7]
        with transformer_for("copies") as other:
            assert other.device is made.device


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [(-5, DeviceMemoryError, "no memory or resources left"), (-54, BackendError, "failed")],
)
def test_an_error_at_a_launch_shows_the_kernel_and_its_lines(
    transformer: OpenCLTransformer, monkeypatch: pytest.MonkeyPatch, code: int,
    kind: type[Exception], words: str,
) -> None:  # fmt: skip
    x = weft.placeholder((300,))
    computation = transformer.computation([weft.tanh(x) * 2, weft.cumsum(x)], x)
    computation.transformer.initialize()
    with monkeypatch.context() as patch:
        patch.setattr(transformer.cl, "enqueue_nd_range_kernel", failing(transformer, code))
        with pytest.raises(BackendError, match=words) as caught:
            computation(np.ones(300))
    said = str(caught.value)
    assert type(caught.value) is kind
    name = next(iter(computation.program.run.source.functions))  # type: ignore[attr-defined]
    assert f"computing {computation.program.name}, starting {name}" in said
    assert "it computes:\n  File" in said
    assert "test_opencl_calls.py" in said
    assert any(line.startswith(">") and f"void {name}(" in line for line in said.splitlines())


@pytest.mark.share(8)
@pytest.mark.parametrize("dtype", ["int64", "uint64", "float64", "float32", "int8"])
@pytest.mark.parametrize("reduction", ["set", "add", "mul", "max", "min"])
def test_scatter_without_atomics_of_64_bits(device: None, dtype: str, reduction: str) -> None:
    x, at = weft.placeholder((5, 7), dtype), weft.placeholder((40,), "int32")
    updates = weft.placeholder((40, 7), dtype)
    result = weft.scatter(x, at, updates, 0, reduction=reduction)
    random = np.random.default_rng(7)
    places = random.permutation(5) if reduction == "set" else random.integers(-5, 5, 40)
    places = np.resize(places, 40).astype(np.int32)
    given = random.integers(1, 4, (5, 7)).astype(dtype)
    new = np.resize(random.integers(1, 3, (5, 7)), (40, 7)).astype(dtype)
    parameters = result, x, at, updates
    expected = weft.make_transformer("numpy").computation(*parameters)(given, places, new)
    with transformer_for("groups") as made:
        made.processor = replace(made.processor, has_int64_atomics=False)
        computation = made.computation(*parameters)
        np.testing.assert_array_equal(computation(given, places, new), expected)
        # Of updates that are set the numbers are compared, in 32 bits.
        is_atomic = reduction == "set" or dtype in ("float32", "int8")
        assert ("weft_atomic" in computation.source) is is_atomic


@pytest.mark.parametrize("form", ["as it is", "copies"])
def test_programs_share_one_arena_and_one_place_for_copies(device: None, form: str) -> None:
    with transformer_for(form) as made:
        computations = {}
        held = {}
        for rows in (4, 80, 800, 2, 8000, 40):
            x = weft.placeholder((rows, 20))
            computations[rows] = made.computation(weft.cumsum(weft.cumsum(x, 0), 1), x)
            for _ in range(2):
                for each, computation in computations.items():
                    given = np.full((each, 20), 2, np.float32)
                    np.testing.assert_array_equal(
                        computation(given), np.cumsum(np.cumsum(given, 0), 1)
                    )
            held[rows] = made.device.live_bytes
        assert held[8000] - held[2] < 8000 / 800 * (held[800] - held[80]) * 1.1
        assert held[40] - held[8000] <= 128, "but for what a program has of its own"
        assert held[2] - held[800] <= 128


@pytest.mark.parametrize("form", ["as it is", "copies"])
def test_a_constant_is_on_the_device_once(device: None, form: str) -> None:
    value = np.random.default_rng(7).normal(size=(64, 64)).astype(np.float32)
    w = weft.constant(value)
    with transformer_for(form) as made:
        held = []
        for rows in (20, 19, 18):
            x = weft.placeholder((rows, 64))
            given = np.ones((rows, 64), np.float32)
            got = made.computation(weft.matmul(x, w), x)(given)
            np.testing.assert_allclose(got, given @ value, 1e-4, 1e-4)
            held.append(made.device.live_bytes)
        assert held[2] - held[0] <= 256


def test_sub_buffers_that_reach_to_the_end_share_no_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """As NVIDIA's driver needs them."""
    begun: list[tuple[int, int, int]] = []

    def part(memory: Memory, start: int, size: int) -> Any:
        found = of_memory(memory, start, size)
        begun.append((id(memory), start, found.int_ptr))
        return found

    of_memory = Memory.part
    monkeypatch.setattr(Memory, "part", part)
    x, w = weft.placeholder((3, 4)), weft.placeholder((4, 4))
    hidden = weft.rnn(x, (w, w)).hidden
    results = [hidden, weft.deriv(weft.sum(hidden), w), weft.pad(x, [1, 1], mode="replicate")]
    arrays = np.linspace(-1, 1, 12).reshape(3, 4), np.linspace(-1, 2, 16).reshape(4, 4)
    expected = weft.make_transformer("numpy").computation(results, x, w)(*arrays)
    with transformer_for("copies") as transformer:
        monkeypatch.setitem(vars(transformer.device), "parts_reach_end", True)
        for got, wanted in zip(
            transformer.computation(results, x, w)(*arrays), expected, strict=True
        ):
            np.testing.assert_allclose(got, wanted, 1e-5, 1e-6)
    starts = {place[:2] for place in begun}
    assert len(starts) > 3
    assert len(starts) == len(set(begun))
